/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/region.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/figure.h"
#include "alloc/map.h"
#include "alloc/pin.h"
#include "alloc/populate.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"
#include "base/log.h"

#define MAX_BYTES ((size_t)1 << 47) /* a process's address space */
#define DEVICE_GRANULE ((size_t)256)
#define DEFAULT_THREADS 4
#define VERIFY_SAMPLES 64

/* A region with what its owner need not see. */
struct storage {
	struct hoist__region region; /* first */
	struct hoist__map map;	     /* host kinds */
};

/* What one creation works with. */
struct maker {
	struct storage *storage;
	struct hoist__region *region;	    /* in the storage */
	const struct hoist__nodeset *nodes; /* NULL for LOCAL */
	struct hoist__topology *topology;   /* loaded where @nodes is set */
	bool hugetlb;			    /* try it (still) */
};

static void note(struct hoist__region *region, enum hoist__region_step step, const char *format,
		 ...) HOIST__PRINTF(3, 4);

static void note(struct hoist__region *region, enum hoist__region_step step, const char *format,
		 ...)
{
	va_list args;
	va_start(args, format);
	(void)vsnprintf(region->step_note[step], sizeof region->step_note[step], format, args);
	va_end(args);
}

static uint64_t huge_pages_free_on(const struct maker *maker)
{
	uint64_t sum = 0;
	bool first_only = maker->region->options.placement.policy == HOIST__POLICY_PREFER;
	for (size_t i = 0; i < maker->topology->n_nodes; i++) {
		const struct hoist__node *node = &maker->topology->nodes[i];
		if (!hoist__nodeset_has(maker->nodes, node->id))
			continue;
		sum += node->free_hugepages_2m;
		if (first_only)
			break;
	}
	return sum;
}

/* True if the region is now in hugetlb pages; a note says why not. */
static bool map_hugetlb(struct maker *maker)
{
	struct hoist__region *region = maker->region;
	size_t bytes = hoist__round_up(region->options.bytes, HOIST__HUGE_PAGE_BYTES);
	if (maker->nodes != NULL) {
		uint64_t n_free = huge_pages_free_on(maker);
		if (n_free < bytes / HOIST__HUGE_PAGE_BYTES) {
			note(region, HOIST__STEP_HUGE,
			     "hugetlb: %zu pages needed, %llu free on the nodes asked for",
			     bytes / HOIST__HUGE_PAGE_BYTES, (unsigned long long)n_free);
			return false;
		}
	}
	if (hoist__map_hugetlb(bytes, &maker->storage->map) != 0) {
		note(region, HOIST__STEP_HUGE, "%s", hoist__error_text());
		return false;
	}
	region->pages = HOIST__PAGES_HUGETLB;
	return true;
}

static int step_reserve(struct maker *maker)
{
	struct hoist__region *region = maker->region;
	struct hoist__map *map = &maker->storage->map;
	region->pages = HOIST__PAGES_SMALL;
	if (!maker->hugetlb || !map_hugetlb(maker)) {
		size_t bytes = hoist__round_up(region->options.bytes, hoist__page_bytes());
		int err = hoist__map_anonymous(bytes, map);
		if (err != 0)
			return err;
	}
	region->base = (uintptr_t)map->base;
	region->bytes = map->bytes;
	/* A child's copy of what a driver pins is of no use, and old kernels would
	 * move the parent's pages away from under the device. */
	if (region->options.kind == HOIST__MEMORY_PINNED &&
	    hoist__pinned_by_driver(region->options.dev) &&
	    madvise(map->base, map->bytes, MADV_DONTFORK) != 0)
		note(region, HOIST__STEP_RESERVE, "MADV_DONTFORK: %s", strerror(errno));
	return 0;
}

static int step_huge(struct maker *maker)
{
	struct hoist__region *region = maker->region;
	if (region->pages == HOIST__PAGES_HUGETLB || region->options.no_thp ||
	    region->bytes < HOIST__HUGE_PAGE_BYTES)
		return 0;
	if (madvise(maker->storage->map.base, region->bytes, MADV_HUGEPAGE) == 0) {
		region->pages = HOIST__PAGES_THP;
		return 0;
	}
	/* A note on hugetlb says more already. */
	if (region->step_note[HOIST__STEP_HUGE][0] == '\0')
		note(region, HOIST__STEP_HUGE, "MADV_HUGEPAGE: %s", strerror(errno));
	return 0;
}

static int step_place(struct maker *maker)
{
	struct hoist__region *region = maker->region;
	int err = hoist__place(maker->storage->map.base, region->bytes, &region->options.placement,
			       &region->placed);
	if (err == 0 && region->placed == HOIST__PLACED_FIRST_TOUCH)
		note(region, HOIST__STEP_PLACE, "the kernel refused mbind: %s",
		     region->options.lazy ? "pages go to the nodes that touch them"
					  : "touched first from the nodes' CPUs");
	return err;
}

/* min(4, the CPUs that can be used for it). */
static unsigned default_threads(const struct maker *maker)
{
	uint64_t n = 0;
	for (size_t i = 0; maker->nodes != NULL && i < maker->topology->n_nodes; i++)
		if (hoist__nodeset_has(maker->nodes, maker->topology->nodes[i].id))
			n += maker->topology->nodes[i].n_cpus;
	cpu_set_t set;
	if (maker->nodes == NULL && sched_getaffinity(0, sizeof set, &set) == 0)
		n = (uint64_t)CPU_COUNT(&set);
	return (unsigned)hoist__max_u64(1, hoist__min_u64(DEFAULT_THREADS, n));
}

static int step_populate(struct maker *maker)
{
	struct hoist__region *region = maker->region;
	if (region->options.lazy)
		return 0;
	bool choose_cpus = maker->nodes != NULL && maker->topology->n_nodes > 1;
	struct hoist__nodeset first = {0};
	if (choose_cpus)
		hoist__nodeset_add(&first, hoist__nodeset_first(maker->nodes));
	bool first_only = region->options.placement.policy == HOIST__POLICY_PREFER;
	struct hoist__populate_job job = {
		.base = maker->storage->map.base,
		.bytes = region->bytes,
		.n_threads = region->options.n_threads != 0 ? region->options.n_threads
							    : default_threads(maker),
		.topology = maker->topology,
		.nodes = !choose_cpus ? NULL
			 : first_only ? &first
				      : maker->nodes,
	};
	struct hoist__populate_report report = {0};
	int err = hoist__populate_parallel(&job, &report);
	if (report.touched || report.unpinned || report.no_threads)
		note(region, HOIST__STEP_POPULATE, "%s%s%s",
		     report.touched ? "no MADV_POPULATE_WRITE: touched; " : "",
		     report.unpinned ? "could not run on the node's CPUs; " : "",
		     report.no_threads ? "could not start all threads; " : "");
	return err;
}

static int verify_strict(const struct hoist__region *region, size_t n_elsewhere, size_t n_sampled,
			 int node)
{
	if (n_elsewhere == 0 || region->options.placement.policy != HOIST__POLICY_BIND)
		return 0;
	return hoist__fail(-ENOMEM,
			   "binding %s to node %d: %zu of %zu sampled pages are elsewhere, on "
			   "node %d%s",
			   hoist__figure(region->bytes).text,
			   hoist__nodeset_first(&region->options.placement.nodes), n_elsewhere,
			   n_sampled, node,
			   region->placed == HOIST__PLACED_FIRST_TOUCH
				   ? "; the kernel refuses mbind here (allow it, or prefer the "
				     "node instead)"
				   : "");
}

static int step_verify(struct maker *maker)
{
	struct hoist__region *region = maker->region;
	region->node = -1;
	if (region->options.lazy)
		return 0;
	struct hoist__whereabouts where;
	int err =
		hoist__whereabouts(maker->storage->map.base, region->bytes, VERIFY_SAMPLES, &where);
	if (err == -ENOMEM)
		return err;
	if (err != 0) {
		note(region, HOIST__STEP_VERIFY, "%s", hoist__error_text());
		return 0;
	}
	size_t n_elsewhere = 0;
	int elsewhere = -1;
	for (int node = 0; node < HOIST__MAX_NODES; node++) {
		if (where.per_node[node] == where.n_sampled)
			region->node = node;
		if (maker->nodes != NULL && !hoist__nodeset_has(maker->nodes, node) &&
		    where.per_node[node] != 0) {
			n_elsewhere += where.per_node[node];
			elsewhere = node;
		}
	}
	if (n_elsewhere != 0)
		note(region, HOIST__STEP_VERIFY, "%zu of %zu sampled pages are on other nodes (%d)",
		     n_elsewhere, where.n_sampled, elsewhere);
	else if (where.n_unknown != 0 || where.n_absent != 0)
		note(region, HOIST__STEP_VERIFY,
		     "%zu of %zu sampled pages: the kernel does not say",
		     where.n_unknown + where.n_absent, where.n_sampled);
	return verify_strict(region, n_elsewhere, where.n_sampled, elsewhere);
}

static int step_pin(struct maker *maker)
{
	struct hoist__region *region = maker->region;
	if (region->options.kind != HOIST__MEMORY_PINNED)
		return 0;
	int err = hoist__pin(region->options.dev, maker->storage->map.base, region->bytes);
	region->pinned = err == 0;
	return err;
}

static int (*const host_steps[HOIST__N_STEPS])(struct maker *) = {
	[HOIST__STEP_RESERVE] = step_reserve, [HOIST__STEP_HUGE] = step_huge,
	[HOIST__STEP_PLACE] = step_place,     [HOIST__STEP_POPULATE] = step_populate,
	[HOIST__STEP_VERIFY] = step_verify,   [HOIST__STEP_PIN] = step_pin,
};

/* Goes through the steps; on failure nothing is mapped or pinned. */
static int run_steps(struct maker *maker)
{
	for (int step = 0; step < HOIST__N_STEPS; step++) {
		uint64_t start = hoist__now_ns();
		int err = host_steps[step](maker);
		maker->region->step_ns[step] += hoist__now_ns() - start;
		if (err != 0) {
			/* Pinning is the last step: what failed is never pinned. */
			hoist__map_release(&maker->storage->map);
			return err;
		}
	}
	return 0;
}

/* A set that asks for more than its nodes have would end in the kernel's OOM
 * killer, not in an error. */
static int check_nodes_have(const struct maker *maker)
{
	const struct hoist__region_options *options = &maker->region->options;
	if (options->placement.policy != HOIST__POLICY_BIND || options->lazy)
		return 0;
	uint64_t total = 0;
	for (size_t i = 0; i < maker->topology->n_nodes; i++)
		if (hoist__nodeset_has(maker->nodes, maker->topology->nodes[i].id))
			total += maker->topology->nodes[i].total_bytes;
	/* None at all: the node does not exist, or the tree says nothing; place knows. */
	if (total == 0 || options->bytes <= total)
		return 0;
	return hoist__fail(-ENOMEM, "binding %s to node %d: its memory is %s",
			   hoist__figure(options->bytes).text, hoist__nodeset_first(maker->nodes),
			   hoist__figure(total).text);
}

static int create_host(struct storage *storage)
{
	struct hoist__region *region = &storage->region;
	const struct hoist__placement *placement = &region->options.placement;
	struct maker maker = {.storage = storage, .region = region};
	maker.hugetlb = region->options.hugetlb;
	if (placement->policy != HOIST__POLICY_LOCAL) {
		maker.nodes = &placement->nodes;
		int err = hoist__topology_load("/sys", &maker.topology);
		if (err != 0)
			return err;
	}
	int err = maker.nodes != NULL ? check_nodes_have(&maker) : 0;
	if (err == 0)
		err = run_steps(&maker);
	if (err == -ENOMEM && region->pages == HOIST__PAGES_HUGETLB) {
		/* The pool was there when mapped, but not on the node or in the cgroup. */
		memset(region->step_note, 0, sizeof region->step_note);
		note(region, HOIST__STEP_HUGE, "hugetlb: %s", hoist__error_text());
		maker.hugetlb = false;
		err = run_steps(&maker);
	}
	hoist__topology_destroy(maker.topology);
	return err;
}

static int create_device(struct storage *storage)
{
	struct hoist__region *region = &storage->region;
	region->bytes = hoist__round_up(region->options.bytes, DEVICE_GRANULE);
	uint64_t start = hoist__now_ns();
	int err = hoist__dev_mem_alloc(region->options.dev, region->bytes, &region->base);
	region->step_ns[HOIST__STEP_RESERVE] = hoist__now_ns() - start;
	return err;
}

static int check_options(const struct hoist__region_options *options)
{
	bool device = options->kind == HOIST__MEMORY_DEVICE;
	if (options->bytes == 0)
		return hoist__fail(-EINVAL, "a region of 0 bytes");
	if (device && options->dev == NULL)
		return hoist__fail(-EINVAL, "device memory without a device");
	if (options->lazy && options->kind != HOIST__MEMORY_HOST)
		return hoist__fail(-EINVAL, "only pageable host memory can be lazy");
	if (options->bytes > MAX_BYTES)
		return hoist__fail(device ? -ENOSPC : -ENOMEM,
				   "a region of %s exceeds every address space",
				   hoist__figure(options->bytes).text);
	return 0;
}

size_t hoist__region_bound(const struct hoist__region_options *options)
{
	if (options->kind == HOIST__MEMORY_DEVICE)
		return hoist__round_up(options->bytes, DEVICE_GRANULE);
	return hoist__round_up(options->bytes,
			       options->hugetlb ? HOIST__HUGE_PAGE_BYTES : hoist__page_bytes());
}

int hoist__region_create(const struct hoist__region_options *options, struct hoist__region **ret)
{
	int err = check_options(options);
	if (err != 0)
		return err;
	struct storage *storage = calloc(1, sizeof *storage);
	if (storage == NULL)
		return hoist__fail_nomem("region", sizeof *storage);
	struct hoist__region *region = &storage->region;
	region->options = *options;
	region->node = -1;
	err = options->kind == HOIST__MEMORY_DEVICE ? create_device(storage) : create_host(storage);
	if (err != 0) {
		free(storage);
		return err;
	}
	for (int step = 0; step < HOIST__N_STEPS; step++)
		if (region->step_note[step][0] != '\0')
			hoist__log(alloc, "region of %zu bytes: %s", region->bytes,
				   region->step_note[step]);
	*ret = region;
	return 0;
}

void hoist__region_destroy(struct hoist__region *region)
{
	if (region == NULL)
		return;
	struct storage *storage = HOIST__CONTAINER_OF(region, struct storage, region);
	if (region->options.kind == HOIST__MEMORY_DEVICE) {
		if (hoist__dev_mem_free(region->options.dev, region->base, region->bytes) != 0)
			hoist__log(alloc, "freeing device memory: %s", hoist__error_text());
	} else {
		if (region->pinned)
			hoist__unpin(region->options.dev, storage->map.base, region->bytes);
		hoist__map_release(&storage->map);
	}
	free(storage);
}
