/* SPDX-License-Identifier: MIT */
/* Memory is on the node that was asked for: regions of every host kind, blocks of every size, and
 * both still after threads of other nodes have allocated and freed there a million times; so are
 * a device's staging slots.  Interleaved memory is even.  On a machine, or a virtual one, with
 * several nodes: vm/nodes.sh.
 *
 *   vm_place [ALLOCATIONS [slots]]   slots: cuda:0 is on a node, which its slots are on, too */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/checked.h"
#include "device/device.h"
#include "lib/memory/device-memory.h"
#include "tests/support/random.h"
#include "tests/vm/nodes.h"

static int n_nodes;

static const char *kind_text(enum hoist__memory_kind kind, const struct hoist__dev *dev)
{
	return kind == HOIST__MEMORY_HOST ? "host memory"
	       : dev == NULL		  ? "locked memory"
					  : "memory pinned by a driver";
}

/* --- regions --- */

static void check_region(enum hoist__memory_kind kind, struct hoist__dev *dev, size_t bytes,
			 enum hoist__policy policy, int node)
{
	struct hoist__region_options options = {
		.kind = kind, .dev = dev, .bytes = bytes, .placement = placement_on(policy, node)};
	struct hoist__region *region = NULL;
	OK(hoist__region_create(&options, &region));
	CHECK(region->placed == HOIST__PLACED_KERNEL);
	CHECK(region->node == node);
	check_on(region->base, region->bytes, node, kind_text(kind, dev));
	hoist__region_destroy(region);
}

static void regions_are_on_their_node(struct hoist__dev *cuda)
{
	static const size_t sizes[] = {4096, 5 * HOIST__MIB + 12288, 33 * HOIST__MIB};
	static const enum hoist__policy policies[] = {HOIST__POLICY_BIND, HOIST__POLICY_PREFER};
	size_t n = 0;
	for (int from = 0; from < n_nodes; from++) {
		run_on(from);
		for (int node = 0; node < n_nodes; node++)
			for (size_t s = 0; s < HOIST__ARRAY_SIZE(sizes); s++)
				for (size_t p = 0; p < HOIST__ARRAY_SIZE(policies); p++, n += 3) {
					enum hoist__policy policy = policies[p];
					check_region(HOIST__MEMORY_HOST, NULL, sizes[s], policy,
						     node);
					check_region(HOIST__MEMORY_PINNED, NULL, sizes[s], policy,
						     node);
					check_region(HOIST__MEMORY_PINNED, cuda, sizes[s], policy,
						     node);
				}
	}
	printf("figure: place%d.regions %zu regions, every page on the node asked for\n", n_nodes,
	       n);
}

/* --- blocks --- */

static struct hoist__pool *make_pool(const struct hoist__pool_options *options)
{
	struct hoist__pool *pool = NULL;
	OK(hoist__pool_create(options, &pool));
	return pool;
}

/* Sizes of every class, of spans, and of regions of their own. */
static size_t next_size(size_t bytes)
{
	return bytes + bytes / 5 + 1;
}

/* Returns how many. */
static size_t blocks_are_on_their_node(struct hoist__dev *dev, int node)
{
	const struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_PINNED,
		.dev = dev,
		.placement = placement_on(HOIST__POLICY_BIND, node),
		.region_bytes = 8 * HOIST__MIB,
	};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t blocks[128];
	size_t n = 0;
	for (size_t bytes = 1; bytes <= 12 * HOIST__MIB && n < HOIST__ARRAY_SIZE(blocks);
	     bytes = next_size(bytes)) {
		struct hoist__block block;
		OK(hoist__pool_alloc(pool, bytes, 0, 0, &blocks[n]));
		memset((void *)blocks[n], 1, bytes);
		check_on(blocks[n], bytes, node, "a block");
		CHECK(hoist__pool_find(pool, blocks[n], &block) == 0 && block.node == node);
		n++;
	}
	for (size_t i = 0; i < n; i++)
		OK(hoist__pool_free(pool, blocks[i]));
	hoist__pool_unref(pool);
	return n;
}

/* --- threads of other nodes --- */

#define N_SHARED 256
#define ASK_EACH 2048 /* allocations; asking the kernel takes long */

struct storm {
	const char *name;
	struct hoist__pool *pool;
	size_t (*size)(uint64_t *random);
	int node; /* where the memory is */
	unsigned n_each;
	size_t n_shared;		    /* of these, used */
	_Atomic uintptr_t shared[N_SHARED]; /* freed by the next thread */
	_Atomic size_t n_asked;
};

struct stormer {
	struct storm *storm;
	int node; /* where it runs */
	uint64_t random;
	pthread_t thread;
};

/* Small ones mostly, so that magazines and slabs have work; now and then a span. */
static size_t storm_size(uint64_t *random)
{
	uint64_t dice = random_below(random, 64);
	size_t most = dice == 0 ? 512 << 10 : dice < 8 ? 64 << 10 : 2048;
	return 1 + random_below(random, most);
}

/* Rings, as loads ask for them: each has a region of its own, which is kept for the next. */
static size_t ring_size(uint64_t *random)
{
	return (size_t)(64 << 10) << 2 * (random_below(random, 3));
}

static void *storm_main(void *arg)
{
	struct stormer *stormer = arg;
	struct storm *storm = stormer->storm;
	run_on(stormer->node);
	for (unsigned i = 0; i < storm->n_each; i++) {
		size_t bytes = storm->size(&stormer->random);
		uintptr_t address = 0;
		OK(hoist__pool_alloc(storm->pool, bytes, 0, 0, &address));
		*(volatile char *)address = 1;
		if (i % ASK_EACH == 0) {
			check_on(address, bytes, storm->node, "a block of a storm");
			atomic_fetch_add(&storm->n_asked, 1);
		}
		size_t slot = random_below(&stormer->random, storm->n_shared);
		address = atomic_exchange(&storm->shared[slot], address);
		if (address != 0)
			OK(hoist__pool_free(storm->pool, address));
	}
	return NULL;
}

/* Checks the blocks that are there when all have ended; then gives them back. */
static void look_after(struct storm *storm, size_t n_threads, bool others_only)
{
	hoist__pool_check(storm->pool);
	struct spread spread = spread_of_regions(storm->pool);
	check_spread(&spread, storm->node, "regions after a storm");
	printf("figure: place%d.storm-%s %zu allocations by %zu threads%s; %zu blocks meanwhile "
	       "and all %zu "
	       "pages afterwards are on the node asked for\n",
	       n_nodes, storm->name, (size_t)storm->n_each * n_threads, n_threads,
	       others_only ? " of other nodes" : " of all nodes", atomic_load(&storm->n_asked),
	       spread.n);
	for (size_t i = 0; i < storm->n_shared; i++)
		if (storm->shared[i] != 0)
			OK(hoist__pool_free(storm->pool, storm->shared[i]));
}

/* Two threads on each node, or on each but the memory's: caches are filled and emptied by
 * processors that are far from it, and freed by others than allocated. */
static void run_storm(struct storm *storm, unsigned n_allocs, bool others_only)
{
	struct stormer stormers[2 * MAX_NODES];
	struct hoist__pool_stats before, after;
	size_t n = 0;
	for (int i = 0; i < 2 * n_nodes; i++)
		if (!others_only || i / 2 != storm->node)
			stormers[n++] = (struct stormer){.node = i / 2, .random = (uint64_t)i + 1};
	storm->n_each = (unsigned)(n_allocs / n);
	hoist__pool_stats(storm->pool, &before);
	for (size_t i = 0; i < n; i++) {
		stormers[i].storm = storm;
		OK(pthread_create(&stormers[i].thread, NULL, storm_main, &stormers[i]));
	}
	for (size_t i = 0; i < n; i++)
		OK(pthread_join(stormers[i].thread, NULL));
	hoist__pool_stats(storm->pool, &after);
	CHECK(after.n_allocs - before.n_allocs == (uint64_t)storm->n_each * n);
	look_after(storm, n, others_only);
}

/* Memory locked by the kernel, or pinned by @dev's driver. */
static void storm_over(const char *name, struct hoist__dev *dev, enum hoist__policy policy,
		       int node, unsigned n_allocs, bool others_only)
{
	const struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_PINNED,
		.dev = dev,
		.placement = placement_on(policy, node),
		.region_bytes = 4 * HOIST__MIB,
		.keep_bytes = 4 * HOIST__MIB,
	};
	struct storm storm = {.name = name,
			      .pool = make_pool(&options),
			      .size = storm_size,
			      .node = node,
			      .n_shared = N_SHARED};
	run_storm(&storm, n_allocs, others_only);
	hoist__pool_unref(storm.pool);
}

/* The slots that a load or save of cuda:0 takes.  Few of these are taken at once. */
static void storm_over_slots(unsigned n_allocs)
{
	struct storm storm = {.name = "slots", .size = ring_size, .n_shared = 24};
	hoist_device_info info = {.size = sizeof info};
	hoist_device *device = NULL;
	OK(hoist_device_open("cuda:0", &device));
	CHECK(hoist_device_get_info(device, &info) == 0 && info.numa_node >= 0);
	OK(hoist__device_staging_pool(device, &storm.pool));
	storm.node = info.numa_node;
	run_storm(&storm, n_allocs, true);
	hoist_device_unref(device);
}

/* --- interleaving --- */

/* Every node has as many pages as any other, or one less; huge pages count as one. */
static void interleaves(size_t bytes, bool no_thp)
{
	const struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST,
		.bytes = bytes,
		.no_thp = no_thp,
		.placement = placement_all(HOIST__POLICY_INTERLEAVE),
	};
	struct hoist__region *region = NULL;
	OK(hoist__region_create(&options, &region));
	struct spread spread = spread_of(region->base, region->bytes);
	size_t least = spread.n;
	size_t most = 0;
	for (int node = 0; node < n_nodes; node++) {
		least = spread.on[node] < least ? spread.on[node] : least;
		most = spread.on[node] > most ? spread.on[node] : most;
	}
	size_t unit = no_thp ? 1 : HOIST__HUGE_PAGE_BYTES / 4096;
	printf("figure: place%d.interleave%s%zu %zu to %zu of %zu pages on each node%s\n", n_nodes,
	       no_thp ? "" : "-huge", bytes >> 20, least, most, spread.n,
	       no_thp ? "" : ", all of them in huge pages");
	CHECK(region->pages == (no_thp ? HOIST__PAGES_SMALL : HOIST__PAGES_THP));
	CHECK(huge_bytes(region->base, region->bytes) == (no_thp ? 0 : region->bytes));
	CHECK(region->node == -1 && spread.n_absent + spread.n_unknown == 0);
	CHECK(most - least <= unit);
	CHECK(region->step_note[HOIST__STEP_VERIFY][0] == '\0');
	hoist__region_destroy(region);
}

int main(int argc, char **argv)
{
	n_nodes = nodes_need(2);
	unsigned n_allocs = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000000;
	struct hoist__dev *cuda = NULL;
	OK(setenv("HOIST_EMULATE", "cuda:1", 1));
	OK(hoist__dev_get(HOIST__API_CUDA, 0, &cuda));
	regions_are_on_their_node(cuda);
	size_t n_blocks = 0;
	for (int node = 0; node < n_nodes; node++)
		n_blocks += blocks_are_on_their_node(node % 2 == 0 ? cuda : NULL, node);
	printf("figure: place%d.blocks %zu blocks of 1 B to 12 MiB, every page on the node asked "
	       "for\n",
	       n_nodes, n_blocks);
	interleaves(HOIST__MIB + 4096, true);
	interleaves(17 * HOIST__MIB, true);
	if (huge_can_be_had())
		interleaves(32 * HOIST__MIB, false);
	storm_over("bind", NULL, HOIST__POLICY_BIND, 1, n_allocs, true);
	storm_over("prefer", NULL, HOIST__POLICY_PREFER, 0, n_allocs, false);
	storm_over("pinned", cuda, HOIST__POLICY_BIND, 1, n_allocs, true);
	if (argc > 2 && strcmp(argv[2], "slots") == 0)
		storm_over_slots(n_allocs);
	return 0;
}
