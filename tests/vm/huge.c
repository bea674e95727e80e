/* SPDX-License-Identifier: MIT */
/* Pools of hugetlb pages, one of each node: used where they are asked for, and no farther than they
 * reach; a program that then gets other pages is told why.  Pages set aside by others, and a
 * cgroup's limit, are a shortage like any other.
 *
 *   vm_huge          the caller has filled the pools: as many pages on each node, at least 8
 *   vm_huge limited  in a cgroup whose hugetlb limit is below that */
#include "config.h"

#include <string.h>
#include <sys/mman.h>

#include <hoist/hoist.h>

#include "base/checked.h"
#include "tests/vm/nodes.h"

#define HUGE HOIST__HUGE_PAGE_BYTES
#define MAP_HUGE_OF_2M (21 << 26)

static size_t pool_of(int node, const char *what)
{
	char path[128];
	(void)snprintf(path, sizeof path,
		       "/sys/devices/system/node/node%d/hugepages/hugepages-2048kB/%s", node, what);
	return number_in(path);
}

static struct hoist__region *make(enum hoist__policy policy, int node, size_t bytes)
{
	const struct hoist__region_options options = {
		.bytes = bytes, .hugetlb = true, .placement = placement_on(policy, node)};
	struct hoist__region *region = NULL;
	OK(hoist__region_create(&options, &region));
	return region;
}

static bool is_huge(const struct hoist__region *region)
{
	return region->pages == HOIST__PAGES_HUGETLB;
}

/* Why it is in other pages: says the note, in words that hold @part. */
static void check_note(const struct hoist__region *region, const char *part)
{
	const char *note = region->step_note[HOIST__STEP_HUGE];
	if (is_huge(region) || strstr(note, part) == NULL) {
		fprintf(stderr, "%s pages, and the note is \"%s\", without \"%s\"\n",
			is_huge(region) ? "hugetlb" : "other", note, part);
		exit(1);
	}
}

/* --- one node's pool, to its end --- */

static void runs_out(enum hoist__policy policy, int node)
{
	struct hoist__region *taken[64];
	size_t n = 0;
	size_t n_pages = pool_of(node, "free_hugepages");
	size_t other = pool_of(nodes_after(node), "free_hugepages");
	CHECK(n_pages >= 8 && n_pages <= 60);
	for (; n < n_pages / 2; n++) {
		taken[n] = make(policy, node, 2 * HUGE - 4096);
		CHECK(is_huge(taken[n]) && taken[n]->bytes == 2 * HUGE && taken[n]->node == node);
		CHECK(taken[n]->step_note[HOIST__STEP_HUGE][0] == '\0');
		memset((void *)taken[n]->base, 1, taken[n]->bytes);
		check_on(taken[n]->base, taken[n]->bytes, node, "hugetlb pages");
	}
	CHECK(pool_of(node, "free_hugepages") == n_pages % 2);
	struct hoist__region *next = make(policy, node, 2 * HUGE);
	check_note(next, "hugetlb: 2 pages needed");
	CHECK(next->node == node);
	check_on(next->base, next->bytes, node, "what is there when the pool is empty");
	CHECK(pool_of(nodes_after(node), "free_hugepages") == other);
	printf("figure: huge.pool%d%s %zu huge pages of a node taken to the last; then: %s\n", node,
	       policy == HOIST__POLICY_BIND ? "b" : "p", 2 * n, next->step_note[HOIST__STEP_HUGE]);
	hoist__region_destroy(next);
	while (n > 0)
		hoist__region_destroy(taken[--n]);
	CHECK(pool_of(node, "free_hugepages") == n_pages);
}

/* --- set aside by others --- */

/* A mapping that nobody has touched has pages set aside, of no node in particular: they are free
 * by each node's count, and cannot be had. */
static void set_aside(int n_nodes)
{
	size_t n = 0;
	for (int node = 0; node < n_nodes; node++)
		n += pool_of(node, "free_hugepages");
	void *all = mmap(NULL, n * HUGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_OF_2M, -1, 0);
	CHECK(all != MAP_FAILED);
	struct hoist__region *region = make(HOIST__POLICY_BIND, 0, HUGE);
	check_note(region, "hugetlb");
	check_on(region->base, region->bytes, 0, "what is there when all is set aside");
	printf("figure: huge.reserved %zu huge pages set aside by another mapping; then: %s\n", n,
	       region->step_note[HOIST__STEP_HUGE]);
	hoist__region_destroy(region);
	OK(munmap(all, n * HUGE));
}

/* --- a resource over the pools --- */

static void resources_go_on(void)
{
	static const int node = 1;
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_PINNED,
		.placement = HOIST_PLACE_BIND,
		.nodes = &node,
		.n_nodes = 1,
		.pages = HOIST_PAGES_HUGETLB,
		.region_bytes = 2 * HUGE,
	};
	hoist_memory *memory = NULL;
	uintptr_t blocks[40];
	size_t n = 0;
	size_t before = pool_of(node, "free_hugepages");
	OK(hoist_memory_create(&options, &memory));
	for (; n < HOIST__ARRAY_SIZE(blocks); n++) {
		OK(hoist_memory_alloc(memory, HUGE, 0, &blocks[n]));
		memset((void *)blocks[n], 1, HUGE);
		check_on(blocks[n], HUGE, node, "a block of a resource of huge pages");
	}
	CHECK(pool_of(node, "free_hugepages") == 0 && n > before);
	while (n > 0)
		OK(hoist_memory_free(memory, blocks[--n]));
	hoist_memory_unref(memory);
	CHECK(pool_of(node, "free_hugepages") == before);
	printf("figure: huge.resource %zu blocks of 2 MiB of a pool of %zu pages\n",
	       HOIST__ARRAY_SIZE(blocks), before);
}

/* --- a cgroup's limit --- */

static void limited(void)
{
	size_t before = pool_of(0, "free_hugepages");
	struct hoist__region *region = make(HOIST__POLICY_BIND, 0, before * HUGE);
	check_note(region, "hugetlb");
	check_on(region->base, region->bytes, 0, "what is there beyond a cgroup's limit");
	printf("figure: huge.cgroup a cgroup's limit; then: %s\n",
	       region->step_note[HOIST__STEP_HUGE]);
	hoist__region_destroy(region);
	CHECK(pool_of(0, "free_hugepages") == before);
	/* Without a node the pool is asked by mapping alone. */
	const struct hoist__region_options anywhere = {.bytes = before * HUGE, .hugetlb = true};
	OK(hoist__region_create(&anywhere, &region));
	check_note(region, "hugetlb");
	hoist__region_destroy(region);
	struct hoist__region *small = make(HOIST__POLICY_BIND, 0, HUGE);
	CHECK(is_huge(small));
	hoist__region_destroy(small);
}

int main(int argc, char **argv)
{
	int n_nodes = nodes_need(2);
	if (argc > 1 && strcmp(argv[1], "limited") == 0) {
		limited();
		return 0;
	}
	for (int node = 0; node < n_nodes; node++) {
		run_on(nodes_after(node));
		runs_out(HOIST__POLICY_BIND, node);
		runs_out(HOIST__POLICY_PREFER, node);
	}
	set_aside(n_nodes);
	resources_go_on();
	return 0;
}
