/* SPDX-License-Identifier: MIT */
/* Images that processes share: on the nodes asked for; on a full node, an error and nobody killed;
 * hugetlb pages of one node's pool, and other pages where that has too few.
 *
 *   vm_image          the caller has put 8 hugetlb pages on each node; checkpoints in $TMPDIR */
#include "config.h"

#include <string.h>
#include <unistd.h>

#include <hoist/hoist.h>

#include "base/checked.h"
#include "tests/support/lib-cache.h"
#include "tests/vm/nodes.h"

#define NODE 1
#define N_TENSORS 3
#define TENSOR_BYTES ((size_t)3 << 20)

/* Where the image's pages are, as this process has them mapped. */
static struct spread spread_of_image(hoist_image *image, unsigned seed)
{
	struct spread sum = {0};
	cache_check(image, N_TENSORS, TENSOR_BYTES, seed); /* touches all of it */
	for (size_t t = 0; t < N_TENSORS; t++) {
		hoist_buffer *buffer = NULL;
		OK(hoist_image_buffer(image, t, &buffer));
		struct spread one = spread_of(hoist_buffer_address(buffer), TENSOR_BYTES);
		sum.n += one.n;
		sum.n_absent += one.n_absent;
		sum.n_unknown += one.n_unknown;
		for (int node = 0; node < MAX_NODES; node++)
			sum.on[node] += one.on[node];
		hoist_buffer_unref(buffer);
	}
	return sum;
}

static int add(const char *path, int placement, int pages, hoist_image **ret)
{
	static const int nodes[] = {NODE, 0};
	const hoist_cache_options options = {
		.size = sizeof options,
		.flags = HOIST_CACHE_REPLACE,
		.image_flags = HOIST_IMAGE_READ_ONLY,
		.placement = placement,
		.nodes = nodes,
		.n_nodes = placement == HOIST_PLACE_INTERLEAVE ? 2 : 1,
		.pages = pages,
	};
	return hoist_cache_add(path, &options, ret);
}

static void check_image(const char *path, int placement, int pages, const char *note)
{
	hoist_image *image = NULL;
	hoist_image_info info = {.size = sizeof info};
	OK(add(path, placement, pages, &image));
	OK(hoist_image_get_info(image, &info));
	struct spread spread = spread_of_image(image, 1);
	spread_print(&spread, "an image");
	printf("its pages: %d, node %d, note: %s\n", info.pages, info.node, info.note);
	if (placement == HOIST_PLACE_INTERLEAVE) {
		size_t unit = info.pages == HOIST_PAGES_SMALL ? N_TENSORS : 512;
		size_t more = spread.on[0] > spread.on[1] ? spread.on[0] - spread.on[1]
							  : spread.on[1] - spread.on[0];
		CHECK(spread.on[0] + spread.on[1] == spread.n && more <= unit && info.node == -1);
	} else {
		check_spread(&spread, NODE, "an image");
		CHECK(info.node == NODE);
	}
	if (note == NULL)
		CHECK(pages != HOIST_PAGES_HUGETLB || info.pages == HOIST_PAGES_HUGETLB);
	else
		CHECK(info.pages != HOIST_PAGES_HUGETLB && strstr(info.note, note) != NULL);
	hoist_image_close(image);
}

static void images_are_where_they_should_be(const char *path)
{
	check_image(path, HOIST_PLACE_BIND, HOIST_PAGES_DEFAULT, NULL);
	check_image(path, HOIST_PLACE_BIND, HOIST_PAGES_SMALL, NULL);
	check_image(path, HOIST_PLACE_PREFER, HOIST_PAGES_DEFAULT, NULL);
	check_image(path, HOIST_PLACE_INTERLEAVE, HOIST_PAGES_SMALL, NULL);
	printf("figure: image.placed 4 images: bound, preferring, interleaved\n");
}

/* There are enough huge pages, and not enough of them on this node. */
static void pools_of_nodes_end(const char *path, const char *large)
{
	hoist_image *image = NULL;
	hoist_image_info info = {.size = sizeof info};
	check_image(path, HOIST_PLACE_BIND, HOIST_PAGES_HUGETLB, NULL);
	OK(hoist_cache_drop(NULL, NULL));
	cache_wait_for_end();
	OK(add(large, HOIST_PLACE_BIND, HOIST_PAGES_HUGETLB, &image));
	OK(hoist_image_get_info(image, &info));
	printf("figure: image.pool an image of %zu MiB, more than the node's pool: %s\n",
	       (size_t)info.bytes >> 20, info.note);
	CHECK(info.pages != HOIST_PAGES_HUGETLB && info.node == NODE);
	CHECK(strstr(info.note, "no hugetlb pages") != NULL);
	hoist_image_close(image);
}

/* All but what the kernel keeps. */
static void full_nodes_are_errors(const char *path, const char *large)
{
	size_t n_killed = vmstat("oom_kill");
	struct hoist__region *chunks[512];
	size_t n = 0;
	hoist_image *image = NULL;
	struct hoist__region_options options = {
		.bytes = 4 * HOIST__MIB, .placement = placement_on(HOIST__POLICY_BIND, NODE)};
	OK(hoist_cache_drop(NULL, NULL));
	cache_wait_for_end();
	for (int step = 0; step < 2; step++) {
		while (n < 512 && hoist__region_create(&options, &chunks[n]) == 0)
			n++;
		options.bytes = 256 * HOIST__KIB; /* less is left than an image has */
	}
	int err = add(large, HOIST_PLACE_BIND, HOIST_PAGES_SMALL, &image);
	printf("figure: image.full on a full node: %s\n", hoist_error());
	CHECK(err == -ENOMEM && strstr(hoist_error(), "node 1") != NULL);
	CHECK(vmstat("oom_kill") == n_killed);
	while (n > 0)
		hoist__region_destroy(chunks[--n]);
	check_image(path, HOIST_PLACE_BIND, HOIST_PAGES_SMALL, NULL);
}

int main(int argc, char **argv)
{
	(void)cache_test_begin(argc, argv);
	(void)nodes_need(2);
	char *path = strdup(cache_path("a.safetensors"));
	char *large = strdup(cache_path("large.safetensors"));
	CHECK(path != NULL && large != NULL);
	cache_write(path, N_TENSORS, TENSOR_BYTES, 1);
	cache_write(large, 4, 5 << 20, 2); /* more than one node's pool, less than both */
	images_are_where_they_should_be(path);
	pools_of_nodes_end(path, large);
	full_nodes_are_errors(path, large);
	free(path);
	free(large);
	return 0;
}
