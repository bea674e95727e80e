/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): a plan is made.  A failure is -ENOMEM with
 * text, and the plan is as it was before.  The same counts bound the memory of a plan. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "lib/plan/plan.h"
#include "tests/faults/sweep.h"

enum { TENSORS = 1000 };

static struct hoist__tensor tensors[TENSORS];
static struct hoist__checkpoint_tensor entries[TENSORS];
static size_t by_name[TENSORS];
static char names[TENSORS][8];
static struct hoist__file file = {.offset_align = 512};
static struct hoist__checkpoint_file shard = {.file = &file};
static hoist_checkpoint checkpoint = {.n_files = 1,
				      .files = &shard,
				      .n_tensors = TENSORS,
				      .tensors = entries,
				      .by_name = by_name};

/* Each has 4096 rows of 64 KiB. */
static void prepare(void)
{
	static const int64_t shape[] = {4, 1024, 32768};
	for (size_t i = 0; i < TENSORS; i++) {
		snprintf(names[i], sizeof names[i], "t%03zu", i);
		tensors[i] = (struct hoist__tensor){.name = names[i],
						    .dtype = HOIST_BF16,
						    .rank = 3,
						    .shape = shape,
						    .bytes = UINT64_C(4096) * 65536,
						    .offset = 4096 + i * UINT64_C(4096) * 65536};
		entries[i].tensor = &tensors[i];
		by_name[i] = i;
	}
}

static const hoist_load_slice slices[] = {
	{.tensor = "t*", .axis = 2, .rank = 3, .n_ranks = 8},
	{.tensor = "t*[02468]", .axis = 1, .begin = 0, .end = 512},
};

static int a_plan_is_made(void)
{
	static const struct hoist__plan empty;
	const char *patterns[] = {"t[1-9]*", "t000"};
	const struct hoist__plan_asked asked = {.kind = HOIST__PLAN_DEVICE,
						.patterns = patterns,
						.n_patterns = 2,
						.slices = slices,
						.n_slices = 2,
						.dtype = HOIST_F32};
	static const char *const order[] = {"t999", "t*5"};
	const struct hoist__plan_options options = {.wants = &asked,
						    .n_wants = 1,
						    .order = order,
						    .n_order = 2,
						    .tensor_align = 256,
						    .lot_bytes = 1 << 20};
	struct hoist__plan plan = {0};
	int err = hoist__plan_make(&checkpoint, &options, &plan);
	if (err != 0 && (err != -ENOMEM || strstr(hoist_error(), "memory") == NULL))
		sweep_wrong("not -ENOMEM, or no text");
	if (err != 0 && memcmp(&plan, &empty, sizeof plan) != 0)
		sweep_wrong("the plan was touched");
	/* 4 million rows: the memory does not depend on how many. */
	if (err == 0 && (plan.n_tensors != 901 || plan.n_runs != 901 || plan.n_extents != 901))
		sweep_wrong("not as many runs and extents as tensors");
	if (atomic_load(&sweep->bytes) > TENSORS * 512)
		sweep_wrong("a plan takes more than 512 bytes for a tensor");
	if (err == 0)
		hoist__plan_fini(&plan);
	return err;
}

const struct sweep_scenario sweep_lib_plan[] = {
	{.name = "lib-plan",
	 .kinds = SWEEP_COLD(SWEEP_OWN),
	 .least = 7,
	 .prepare = prepare,
	 .run = a_plan_is_made},
	{.name = NULL},
};
