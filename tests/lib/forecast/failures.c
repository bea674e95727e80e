/* SPDX-License-Identifier: MIT */
/* Scenarios of the failure sweep (tests/faults/sweep.h): a load to a device and the CPU is
 * forecast, and one that records its timeline.  A forecast that fails leaves nothing, and gives
 * nothing. */
#include "config.h"

#include <hoist/timeline.h>

#include <stdlib.h>

#include "tests/faults/sweep.h"
#include "tests/support/load-support.h"

static bool write_file(void)
{
	const size_t sizes[] = {70000, 17, 200000, 0, 5000};
	support_write("forecast.safetensors", 0, 5, sizes, -1);
	return true;
}

static int forecast_to(hoist_device *device)
{
	static const hoist_load_slice half = {.tensor = "t000002", .n_ranks = 2, .rank = 1};
	hoist_checkpoint *checkpoint = NULL;
	const hoist_load_target there = {
		.size = sizeof there, .device = device, .slices = &half, .n_slices = 1};
	const hoist_load_target here = {.size = sizeof here};
	const hoist_load_target *targets[] = {&there, &here};
	const hoist_load_options o = {.size = sizeof o,
				      .targets = targets,
				      .n_targets = 2,
				      .io = HOIST_IO_ADAPTIVE,
				      .budget = sweep_budget};
	hoist_forecast f = {.size = sizeof f};
	int err = 0;
	STEP(err, hoist_checkpoint_open(support_path("forecast.safetensors"), 0, &checkpoint));
	STEP(err, hoist_load_forecast(checkpoint, &o, &f));
	if (err == 0 && (f.n_targets != 2 || f.n_tensors != 10 || f.n_reads == 0))
		sweep_wrong("%zu targets, %llu tensors, %llu reads", f.n_targets,
			    (unsigned long long)f.n_tensors, (unsigned long long)f.n_reads);
	if (err != 0 && (f.n_targets != 0 || f.n_reads != 0))
		sweep_wrong("a forecast that failed has figures");
	hoist_checkpoint_close(checkpoint);
	return err;
}

static int forecast(void)
{
	return forecast_to(sweep_devices[sweep_device]);
}

/* System calls fail, too. */
static int forecast_to_host(void)
{
	return forecast_to(NULL);
}

/* A load that succeeds has all of its timeline; one that fails, that of the chunks that ended. */
static int recorded(void)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	const hoist_load_options o = {.size = sizeof o,
				      .device = sweep_devices[sweep_device],
				      .budget = sweep_budget,
				      .flags = HOIST_LOAD_TIMELINE};
	hoist_load_interval interval = {.size = sizeof interval};
	uint64_t bytes = 0;
	size_t n = 0;
	int err = 0;
	STEP(err, hoist_checkpoint_open(support_path("forecast.safetensors"), 0, &checkpoint));
	STEP(err, hoist_load_start(checkpoint, &o, &load));
	STEP(err, hoist_load_wait(load));
	if (load != NULL && hoist_load_n_intervals(load, &n, NULL) != 0)
		sweep_wrong("a load that has ended has no timeline");
	for (size_t i = 0; i < n; i++) {
		if (hoist_load_get_interval(load, i, &interval) != 0)
			sweep_wrong("interval %zu of %zu is not there", i, n);
		bytes += interval.bytes;
	}
	if (err == 0 && bytes != 275017)
		sweep_wrong("the chunks have %llu bytes", (unsigned long long)bytes);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return err;
}

const struct sweep_scenario sweep_lib_forecast[] = {
	SWEEP_BOTH("lib-forecast", 1, 3, .set_up = write_file, .prepare = sweep_need_devices,
		   .run = forecast, .check = sweep_check_devices, .least = 2),
	SWEEP_BOTH("lib-timeline", 1, 3, .set_up = write_file, .prepare = sweep_need_devices,
		   .run = recorded, .check = sweep_check_devices, .least = 2),
	{.name = "forecast", .set_up = write_file, .run = forecast_to_host},
	{.name = NULL},
};
