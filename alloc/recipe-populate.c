/* SPDX-License-Identifier: MIT */
/* alloc/recipe-populate.c - the populate step: how many threads, on which CPUs, in what slices.
 * The contract is in alloc/recipe.h. */
#include "config.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "alloc/populate.h"
#include "alloc/recipe.h"
#include "base/checked.h"
#include "base/figure.h"
#include "numa/processors.h"

/* Returns: min(16, the CPUs that can be used for populating, the control group's quota of them). */
static unsigned default_threads(const struct hoist__maker *maker)
{
	cpu_set_t set;
	uint64_t n = 0;
	for (size_t i = 0; maker->cpus != NULL && i < maker->topology->n_nodes; i++)
		if (hoist__nodeset_has(maker->cpus, maker->topology->nodes[i].id))
			n += maker->topology->nodes[i].n_cpus;
	if (n == 0)
		n = hoist__processors_allowed(&set);
	n = hoist__min_u64(n, hoist__group_processors(""));
	return (unsigned)hoist__min_u64(HOIST__PROCESSORS_POPULATE, n);
}

/* Chooses the nodes whose CPUs populate: all nodes asked for; only the first where the others are a
 * fallback; this thread's own node for LOCAL, since helping threads could run anywhere. */
static int choose_cpus(struct hoist__maker *maker)
{
	enum hoist__policy policy = maker->region->options.placement.policy;
	unsigned cpu;
	unsigned node;
	if (policy == HOIST__POLICY_LOCAL && maker->topology == NULL) {
		bool alone = maker->region->options.n_threads == 1 ||
			     maker->region->bytes <= HOIST__SLICE_BYTES;
		int err = alone ? 0 : hoist__topology_load("/sys", &maker->topology);
		if (err != 0)
			return err;
	}
	maker->cpus = NULL;
	if (maker->topology == NULL || maker->topology->n_nodes == 1)
		return 0;
	maker->cpus = maker->nodes;
	memset(&maker->one, 0, sizeof maker->one);
	if (policy == HOIST__POLICY_PREFER)
		hoist__nodeset_add(&maker->one, hoist__nodeset_first(maker->nodes));
	else if (policy == HOIST__POLICY_LOCAL && getcpu(&cpu, &node) == 0)
		hoist__nodeset_add(&maker->one, (int)node);
	if (hoist__nodeset_first(&maker->one) >= 0)
		maker->cpus = &maker->one;
	return 0;
}

static unsigned count_nodes(const struct hoist__nodeset *set)
{
	unsigned n = 0;
	for (int i = 0; i < HOIST__MAX_NODES / 64; i++)
		n += (unsigned)__builtin_popcountll(set->bits[i]);
	return n;
}

static struct hoist__populate_job plan_populating(const struct hoist__maker *maker)
{
	const struct hoist__region *region = maker->region;
	uint64_t floor = region->options.thp_floor;
	struct hoist__populate_job job = {
		.base = maker->storage->map.base,
		.bytes = region->bytes,
		.n_threads = region->options.n_threads,
		.topology = maker->topology,
		.nodes = maker->cpus,
	};
	if (job.n_threads == 0)
		job.n_threads = default_threads(maker);
	if (region->pages == HOIST__PAGES_THP)
		job.thp_floor = floor != 0 ? floor : HOIST__THP_FLOOR;
	/* With first touch the thread decides the node: every node needs a thread, and the nodes
	 * alternate by slices. */
	if (region->options.placement.policy == HOIST__POLICY_INTERLEAVE && job.nodes != NULL &&
	    region->placed == HOIST__PLACED_FIRST_TOUCH) {
		job.n_threads = (unsigned)hoist__max_u64(job.n_threads, count_nodes(job.nodes));
		job.slice_bytes = HOIST__HUGE_PAGE_BYTES;
	}
	return job;
}

static void note_populating(struct hoist__region *region,
			    const struct hoist__populate_report *report)
{
	if (report->touched || report->unpinned || report->no_threads)
		hoist__region_note(region, HOIST__STEP_POPULATE, "%s%s%s",
				   report->touched ? "no MADV_POPULATE_WRITE: touched; " : "",
				   report->unpinned ? "could not run on the node's CPUs; " : "",
				   report->no_threads ? "could not start all threads; " : "");
	/* A note that says why these huge pages were taken instead of hugetlb stays. */
	if (report->slow && region->step_note[HOIST__STEP_HUGE][0] == '\0')
		hoist__region_note(region, HOIST__STEP_HUGE,
				   "huge pages came at %s/s a thread: %s with small ones",
				   hoist__figure(report->rate).text,
				   hoist__figure(region->bytes - report->small_at).text);
}

int hoist__step_populate(struct hoist__maker *maker)
{
	struct hoist__region *region = maker->region;
	if (region->options.unpopulated)
		return 0;
	int err = choose_cpus(maker);
	if (err != 0)
		return err;
	struct hoist__populate_job job = plan_populating(maker);
	struct hoist__populate_report report = {0};
	uint64_t start = hoist__now_ns();
	bool late = hoist__recipe_binds_late(region);
	err = hoist__populate_parallel(&job, &report);
	for (unsigned n = 0; err == 0 && late; n++) {
		struct hoist__populate_report again; /* about steps that were reported already */
		/* Binding may move pages, which then are gone and must be populated again. */
		err = hoist__place_strictly(job.base, job.bytes, &region->options.placement, n);
		if (err <= 0)
			break;
		err = hoist__populate_parallel(&job, &again);
	}
	hoist__called(region->options.calls, HOIST__CALL_MAP, start);
	note_populating(region, &report);
	return err;
}
