/* SPDX-License-Identifier: MIT */
/* Scenarios: a group of two ranks in one process.  Any call of either fails: both ranks have all
 * their bytes then, or both fail. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <unistd.h>

#include <hoist/group.h>

#define N_RANKS 2
#define BUDGET ((size_t)64 << 20)

static int whole(hoist_load *it)
{
	int err = 0;
	for (size_t i = 0; err == 0 && i < SWEEP_N_TENSORS; i++) {
		hoist_buffer *buffer = NULL;
		size_t tensor = 0;
		err = hoist_load_tensor(it, i, &tensor, &buffer);
		STEP(err, sweep_compare(buffer, tensor, 0));
		hoist_buffer_unref(buffer);
	}
	return err;
}

/* Drives both until both have ended, or one has failed.  A rank whose partner failed before the two
 * met would wait for the timeout: such a rank is cancelled by its end. */
static int drive(hoist_load *const loads[N_RANKS])
{
	bool ended[N_RANKS] = {false};
	int err = 0;
	while (err == 0 && !(ended[0] && ended[1])) {
		for (int r = 0; r < N_RANKS && err == 0; r++) {
			int got = ended[r] ? 0 : hoist_load_step(loads[r], 1000000);
			ended[r] = ended[r] || got == 1;
			err = got == 1 ? hoist_load_wait(loads[r]) : got;
		}
	}
	return err;
}

static int group_of(const char *spec)
{
	char name[64];
	hoist_device *device = NULL;
	hoist_budget *budget = NULL;
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *loads[N_RANKS] = {NULL};
	(void)snprintf(name, sizeof name, "shm:sweep-%d", (int)getpid());
	int err = hoist_budget_create(BUDGET, &budget);
	STEP(err, hoist_device_open(spec, &device));
	STEP(err, hoist_checkpoint_open(sweep_path("m.safetensors"), 0, &checkpoint));
	for (unsigned r = 0; r < N_RANKS; r++) {
		/* Longer than any machine is slow. */
		const hoist_group group = {.size = sizeof group,
					   .name = name,
					   .rank = r,
					   .n_ranks = N_RANKS,
					   .timeout_ns = UINT64_C(100000000000)};
		const hoist_load_options o = {.size = sizeof o,
					      .device = r == 0 ? NULL : device,
					      .budget = budget,
					      .chunk_bytes = 64 << 10,
					      .flags = HOIST_LOAD_CALLER_DRIVEN |
						       (r == 0 ? HOIST_LOAD_DIGEST : 0)};
		STEP(err, hoist_group_load(&group, checkpoint, &o, &loads[r]));
	}
	STEP(err, drive(loads));
	for (unsigned r = 0; r < N_RANKS; r++)
		STEP(err, whole(loads[r]));
	for (unsigned r = 0; r < N_RANKS; r++)
		hoist_load_destroy(loads[r]);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
	if (budget != NULL && hoist_budget_used(budget) != 0)
		sweep_wrong("%zu bytes of the budget are not given back",
			    hoist_budget_used(budget));
	hoist_budget_unref(budget);
	return err;
}

static int group_host(void)
{
	return group_of("cpu");
}

static int group_cuda(void)
{
	return group_of("cuda:0");
}

const struct sweep_scenario sweep_groups[] = {
	{.name = "group-host", .run = group_host, .varies = true},
	{.name = "group-cuda", .api = "cuda", .run = group_cuda, .varies = true},
	{.name = NULL},
};
