/* SPDX-License-Identifier: MIT */
/* A node that is full: strict memory fails, with the node and its figures in the text, and nobody
 * is killed; preferred memory goes elsewhere and says so; what the page cache alone fills is not
 * full.
 *
 *   vm_full              a node filled with memory
 *   vm_full cached FILE  a node filled with the page cache of FILE, which is larger than the node
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <hoist/hoist.h>

#include "base/checked.h"
#include "device/device.h"
#include "tests/vm/nodes.h"

#define NODE 1
#define CHUNK (8 * HOIST__MIB)
/* The kernel keeps some for itself, and caches of each processor's: all else must be had. */
#define LEFT_MOST (40 * HOIST__MIB)
#define MAX_CHUNKS 512

static struct hoist__region *chunks[MAX_CHUNKS];
static size_t n_chunks;

static int make_region(enum hoist__memory_kind kind, enum hoist__policy policy, size_t bytes,
		       struct hoist__region **ret)
{
	const struct hoist__region_options options = {
		.kind = kind, .bytes = bytes, .placement = placement_on(policy, NODE)};
	return hoist__region_create(&options, ret);
}

static void release_all(void)
{
	while (n_chunks > 0)
		hoist__region_destroy(chunks[--n_chunks]);
}

/* Releases half of the bytes.  Half of the regions might be small ones only, whose pages another
 * processor's page cache can hold. */
static void release_half(void)
{
	size_t bytes = 0, freed = 0;
	for (size_t i = 0; i < n_chunks; i++)
		bytes += chunks[i]->bytes;
	while (freed < bytes / 2) {
		freed += chunks[--n_chunks]->bytes;
		hoist__region_destroy(chunks[n_chunks]);
	}
}

/* --- strict --- */

/* The text of a failure: which node, and how much the node has. */
static void check_full(int err)
{
	CHECK(err == -ENOMEM);
	CHECK_TEXT("node 1");
	CHECK_TEXT("free");
}

static void more_than_there_is(void)
{
	struct hoist__region *region = NULL;
	check_full(make_region(HOIST__MEMORY_HOST, HOIST__POLICY_BIND,
			       node_bytes(NODE, "MemTotal") + HOIST__MIB, &region));
	printf("more than node 1 has: %s\n", hoist__error_text());
	/* A part of the free memory is taken. */
	check_full(make_region(HOIST__MEMORY_HOST, HOIST__POLICY_BIND,
			       node_bytes(NODE, "MemTotal") - HOIST__MIB, &region));
	printf("all that node 1 has: %s\n", hoist__error_text());
	CHECK(region == NULL);
}

/* Until it fails; all that there is to be had is had.  (Pages that another processor has in its
 * cache are not: some seconds later the kernel takes them back, and a full node has a few MiB
 * again.) */
static void fill(enum hoist__memory_kind kind, size_t bytes)
{
	int err = 0;
	while (n_chunks < MAX_CHUNKS) {
		struct hoist__region *region = NULL;
		err = make_region(kind, HOIST__POLICY_BIND, bytes, &region);
		if (err != 0)
			break;
		CHECK(region->node == NODE);
		chunks[n_chunks++] = region;
	}
	check_full(err);
	printf("%zu times %zu KiB were had of node 1, which has %zu MiB free: %s\n", n_chunks,
	       bytes >> 10, node_bytes(NODE, "MemFree") >> 20, hoist__error_text());
	for (size_t i = 0; i < n_chunks; i++)
		check_on(chunks[i]->base, chunks[i]->bytes, NODE, "strict memory of a full node");
}

static void strict_fails_rather_than_spills(void)
{
	size_t n_killed = vmstat("oom_kill");
	more_than_there_is();
	fill(HOIST__MEMORY_HOST, CHUNK);
	size_t n = n_chunks;
	fill(HOIST__MEMORY_HOST, 256 << 10);
	CHECK(node_bytes(NODE, "MemFree") < LEFT_MOST);
	size_t n_all = n_chunks;
	/* Pinned memory takes the same way. */
	fill(HOIST__MEMORY_PINNED, CHUNK);
	/* Another node has room. */
	struct hoist__region *region = NULL;
	struct hoist__region_options other = {.bytes = CHUNK,
					      .placement = placement_on(HOIST__POLICY_BIND, 0)};
	OK(hoist__region_create(&other, &region));
	check_on(region->base, region->bytes, 0, "strict memory of another node");
	hoist__region_destroy(region);
	CHECK(vmstat("oom_kill") == n_killed);
	printf("figure: full.strict %zu times 8 MiB and %zu times 256 KiB filled a node, %zu MiB "
	       "of "
	       "it left; the next failed, nobody was killed\n",
	       n, n_all - n, node_bytes(NODE, "MemFree") >> 20);
}

/* --- several threads that fill it at once --- */

#define N_FILLERS 4

struct filler {
	struct hoist__region *regions[MAX_CHUNKS];
	size_t n;
	int node; /* where it runs */
	pthread_t thread;
};

static void *filler_main(void *arg)
{
	struct filler *filler = arg;
	int err = 0;
	run_on(filler->node);
	while (filler->n < MAX_CHUNKS &&
	       (err = make_region(HOIST__MEMORY_HOST, HOIST__POLICY_BIND, 2 * HOIST__MIB,
				  &filler->regions[filler->n])) == 0)
		filler->n++;
	check_full(err);
	return NULL;
}

/* Each sees room that another takes: none of them is killed for that. */
static void fillers_race(void)
{
	static struct filler fillers[N_FILLERS];
	size_t n_killed = vmstat("oom_kill");
	size_t n = 0;
	for (int i = 0; i < N_FILLERS; i++) {
		fillers[i].node = i % 2;
		OK(pthread_create(&fillers[i].thread, NULL, filler_main, &fillers[i]));
	}
	for (int i = 0; i < N_FILLERS; i++)
		OK(pthread_join(fillers[i].thread, NULL));
	CHECK(node_bytes(NODE, "MemFree") < LEFT_MOST);
	for (int i = 0; i < N_FILLERS; i++)
		for (; fillers[i].n > 0; n++) {
			struct hoist__region *region = fillers[i].regions[--fillers[i].n];
			check_on(region->base, region->bytes, NODE, "strict memory of a race");
			hoist__region_destroy(region);
		}
	CHECK(vmstat("oom_kill") == n_killed);
	printf("figure: full.race %d threads had %zu times 2 MiB of a node until all failed; "
	       "nobody "
	       "was killed\n",
	       N_FILLERS, n);
}

/* Blocks of a full node, until there is none. */
static void exhaust(hoist_memory *memory)
{
	uintptr_t blocks[LEFT_MOST / CHUNK];
	size_t n = 0;
	int err = 0;
	while (n < sizeof blocks / sizeof blocks[0] &&
	       (err = hoist_memory_alloc(memory, CHUNK, 0, &blocks[n])) == 0)
		check_on(blocks[n++], CHUNK, NODE, "a block of a full node");
	check_full(err);
	while (n > 0)
		OK(hoist_memory_free(memory, blocks[--n]));
	OK(hoist_memory_trim(memory, 0));
}

/* A resource over it: its first failure's text, and it goes on when there is room again. */
static void resources_say_so(void)
{
	static const int node = NODE;
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_PINNED,
		.placement = HOIST_PLACE_BIND,
		.nodes = &node,
		.n_nodes = 1,
		.region_bytes = CHUNK,
	};
	hoist_memory *memory = NULL;
	uintptr_t address = 0;
	OK(hoist_memory_create(&options, &memory));
	exhaust(memory);
	release_half();
	OK(hoist_memory_alloc(memory, CHUNK, 0, &address));
	check_on(address, CHUNK, NODE, "a block of a node that has room again");
	OK(hoist_memory_free(memory, address));
	hoist_memory_unref(memory);
	fill(HOIST__MEMORY_HOST, CHUNK);
}

/* --- preferred --- */

static char *snapshot_of(hoist_memory *memory)
{
	char name[] = "/tmp/snapshot.XXXXXX";
	int fd = mkstemp(name);
	CHECK(fd >= 0 && unlink(name) == 0);
	OK(hoist_memory_snapshot(memory, fd));
	off_t bytes = lseek(fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)bytes + 1);
	CHECK(text != NULL && pread(fd, text, (size_t)bytes, 0) == bytes);
	(void)close(fd);
	return text;
}

static void preferred_spills_and_says_so(void)
{
	static const int node = NODE;
	const hoist_memory_options options = {
		.size = sizeof options,
		.placement = HOIST_PLACE_PREFER,
		.nodes = &node,
		.n_nodes = 1,
		.region_bytes = 4 * CHUNK,
	};
	hoist_memory *memory = NULL;
	uintptr_t address = 0;
	hoist_block_info block = {.size = sizeof block};
	OK(hoist_memory_create(&options, &memory));
	OK(hoist_memory_alloc(memory, 4 * CHUNK, 0, &address));
	struct spread spread = spread_of(address, 4 * CHUNK);
	spread_print(&spread, "32 MiB that would rather be on node 1, which is full");
	CHECK(spread.n_absent + spread.n_unknown == 0);
	CHECK(spread.on[NODE] < spread.n / 2);
	CHECK(hoist_memory_find(address, &block) == 0 && block.node != NODE);
	char *text = snapshot_of(memory);
	CHECK(strstr(text, "sampled pages are on other nodes") != NULL);
	CHECK(strstr(text, "\"pages_per_node\"") != NULL);
	free(text);
	printf("figure: full.prefer %zu of %zu pages went to other nodes, which the snapshot "
	       "says\n",
	       spread.n - spread.on[NODE], spread.n);
	OK(hoist_memory_free(memory, address));
	hoist_memory_unref(memory);
}

/* --- a page cache that fills it --- */

static void read_file(const char *path)
{
	char *buffer = malloc(HOIST__MIB);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(buffer != NULL && fd >= 0);
	while (read(fd, buffer, HOIST__MIB) > 0)
		;
	(void)close(fd);
	free(buffer);
}

/* Memory that the kernel would give back is there to be had, by strict memory too. */
static void cached_files_give_way(const char *path)
{
	run_on(NODE);
	read_file(path);
	size_t total = node_bytes(NODE, "MemTotal");
	size_t before = node_bytes(NODE, "MemFree");
	printf("node 1 after %s was read: %zu of %zu MiB free, %zu MiB of files\n", path,
	       before >> 20, total >> 20, node_bytes(NODE, "FilePages") >> 20);
	CHECK(before < total / 4);
	struct hoist__region *region = NULL;
	size_t bytes = total / 2;
	OK(make_region(HOIST__MEMORY_HOST, HOIST__POLICY_BIND, bytes, &region));
	check_on(region->base, region->bytes, NODE, "strict memory where the page cache was");
	printf("figure: full.cached %zu MiB were had of a node that had %zu MiB free, the rest "
	       "page "
	       "cache\n",
	       bytes >> 20, before >> 20);
	hoist__region_destroy(region);
}

int main(int argc, char **argv)
{
	(void)nodes_need(2);
	if (argc > 2 && strcmp(argv[1], "cached") == 0) {
		cached_files_give_way(argv[2]);
		return 0;
	}
	strict_fails_rather_than_spills();
	resources_say_so();
	preferred_spills_and_says_so();
	release_all();
	fillers_race();
	return 0;
}
