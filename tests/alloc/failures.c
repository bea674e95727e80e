/* SPDX-License-Identifier: MIT */
/* Regions, topologies and budgets, with every call that can fail failing. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/budget.h"
#include "alloc/region.h"
#include "base/checked.h"
#include "base/error.h"
#include "numa/place.h"
#include "tests/support/check.h"
#include "tests/support/failing-calls.h"

/* --- scenarios: 0, or the error that stopped them; nothing is kept --- */

static int make_region(const struct hoist__region_options *options)
{
	struct hoist__region *region;
	int err = hoist__region_create(options, &region);
	if (err == 0) {
		memset((void *)region->base, 1, region->bytes);
		hoist__region_destroy(region);
	}
	return err;
}

static int host_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 2 * HOIST__MIB, .n_threads = 1};
	return make_region(&options);
}

static int pinned_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = 32 * HOIST__KIB, .n_threads = 1};
	options.placement.policy = HOIST__POLICY_PREFER;
	hoist__nodeset_add(&options.placement.nodes, 0);
	return make_region(&options);
}

static int hugetlb_region(void)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 2 * HOIST__MIB,
						.hugetlb = true,
						.n_threads = 1};
	return make_region(&options);
}

static int lazy_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .unpopulated = true};
	struct hoist__region *region;
	int err = hoist__region_create(&options, &region);
	if (err != 0)
		return err;
	err = hoist__populate((void *)region->base, region->bytes);
	hoist__region_destroy(region);
	return err;
}

/* By two threads, three slices. */
static int region_by_threads(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = 33 * HOIST__MIB, .n_threads = 2};
	return make_region(&options);
}

/* Huge pages are given up behind the second slice of three. */
static int slow_region(void)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_HOST,
						.bytes = 33 * HOIST__MIB,
						.n_threads = 1,
						.thp_floor = UINT64_MAX};
	return make_region(&options);
}

static struct hoist__dev *emulated;

/* Two pieces, registered with a driver that no failure reaches. */
static int registered_region(void)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_PINNED,
						.bytes = 128 * HOIST__KIB,
						.dev = emulated,
						.piece_bytes = 64 * HOIST__KIB,
						.n_threads = 1};
	return make_region(&options);
}

static int device_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_DEVICE, .bytes = HOIST__MIB, .dev = emulated};
	struct hoist__region *region;
	int err = hoist__region_create(&options, &region);
	if (err == 0)
		hoist__region_destroy(region);
	return err;
}

static int managed_region(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_MANAGED, .bytes = HOIST__MIB, .dev = emulated};
	return make_region(&options);
}

static _Alignas(65536) char not_ours[3 * 65536];

/* Locked, and by a driver registered. */
static int given_region(void)
{
	struct hoist__region_options options = {.kind = HOIST__MEMORY_PINNED,
						.bytes = sizeof not_ours,
						.given = (uintptr_t)not_ours};
	int err = make_region(&options);
	options.dev = emulated;
	return err == 0 ? make_region(&options) : err;
}

/* Not aligned, so that it is asked twice. */
static int lend(void *context, size_t bytes, size_t align, uintptr_t *ret)
{
	(void)align;
	if (failing_call() || bytes > sizeof not_ours - 4096)
		return hoist__fail(-ENOSPC, "a test's source has no more");
	++*(int *)context;
	*ret = (uintptr_t)not_ours + 4096;
	return 0;
}

static void take_back(void *context, uintptr_t address, size_t bytes)
{
	CHECK(address == (uintptr_t)not_ours + 4096 && bytes <= sizeof not_ours - 4096);
	--*(int *)context;
}

static int source_region(void)
{
	int n_lent = 0;
	struct hoist__source source = {lend, take_back, &n_lent};
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = 4096, .source = &source};
	int err = make_region(&options);
	CHECK(n_lent == 0);
	return err;
}

static int topology(void)
{
	struct hoist__topology *loaded;
	int err = hoist__topology_load("/sys", &loaded);
	if (err != 0)
		return err;
	CHECK(loaded->n_nodes > 0);
	hoist__topology_destroy(loaded);
	return 0;
}

static int budget(void)
{
	struct hoist__budget *made;
	int err = hoist__budget_create(1, &made);
	if (err == 0)
		hoist__budget_unref(made);
	return err;
}

/* A pool of huge pages that turns out empty on the node asked for. */
static void check_hugetlb_fallback(void)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST, .bytes = HOIST__MIB, .hugetlb = true, .n_threads = 1};
	struct hoist__region *region;
	failing.at = 0;
	failing.hugetlb_node_is_full = true;
	OK(hoist__region_create(&options, &region));
	CHECK(!failing.hugetlb_node_is_full);
	CHECK(region->pages == HOIST__PAGES_SMALL && region->bytes == HOIST__MIB);
	CHECK(strstr(region->step_note[HOIST__STEP_HUGE], "no such page left") != NULL);
	hoist__region_destroy(region);
	OK(hoist__region_create(&options, &region));
	CHECK(region->pages == HOIST__PAGES_HUGETLB && region->bytes == 2 * HOIST__MIB);
	CHECK(region->step_note[HOIST__STEP_HUGE][0] == '\0');
	hoist__region_destroy(region);
	failing_expect_nothing_left();
}

static const struct {
	const char *name;
	int (*scenario)(void);
	bool pretend_hugetlb;
} scenarios[] = {
	{"host region", host_region, false},
	{"pinned region", pinned_region, false},
	{"lazy region", lazy_region, false},
	{"region by threads", region_by_threads, false},
	{"slow region", slow_region, false},
	{"registered region", registered_region, false},
	{"device region", device_region, false},
	{"managed region", managed_region, false},
	{"given region", given_region, false},
	{"source region", source_region, false},
	{"topology", topology, false},
	{"budget", budget, false},
	{"hugetlb region", hugetlb_region, true},
};

int main(void)
{
	static const int errors[] = {ENOMEM, EPERM, EINVAL};
	struct hoist__dev *cpu;
	/* Devices, and the memory that their drivers begin with, live as long as the process. */
	OK(setenv("HOIST_EMULATE", "cuda:1", 1));
	OK(hoist__dev_get(HOIST__API_CPU, 0, &cpu));
	OK(hoist__dev_get(HOIST__API_CUDA, 0, &emulated));
	OK(registered_region());
	atomic_store(&failing.n_allocated, 0);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(errors); i++)
		for (size_t k = 0; k < HOIST__ARRAY_SIZE(scenarios); k++) {
			failing.pretend_hugetlb = scenarios[k].pretend_hugetlb;
			failing_sweep(scenarios[k].name, scenarios[k].scenario, errors[i]);
		}
	failing.pretend_hugetlb = true;
	check_hugetlb_fallback();
	return 0;
}
