/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): streams and events wait for each other. */
#include "config.h"

#include "hoist/compat.h"
#include "hoist/hoist.h"
#include "tests/faults/sweep.h"

static int nothing(void *context)
{
	(void)context;
	return 0;
}

/* In both directions, directly, by an event and over a third stream. */
static int wait_both_ways(hoist_stream *a, hoist_stream *b, hoist_stream *cpu, hoist_event *event)
{
	int err = hoist_stream_wait_for(a, b);
	STEP(err, hoist_stream_wait_for(cpu, a));
	STEP(err, hoist_stream_wait_for(b, cpu));
	STEP(err, hoist_stream_call(b, nothing, NULL));
	STEP(err, hoist_event_record(event, b));
	STEP(err, hoist_stream_wait_event(a, event));
	STEP(err, hoist_stream_wait_event(cpu, event));
	STEP(err, hoist_event_record(event, b));
	STEP(err, hoist_event_synchronize(event));
	STEP(err, hoist_device_synchronize(hoist_stream_device(a)));
	return err == 0 ? hoist_device_synchronize(hoist_stream_device(cpu)) : err;
}

/* Specs, whose failures leave nothing either. */
static int ask_devices(void)
{
	static const hoist_spec specs[] = {{HOIST_SPEC_CPU, -1}, {HOIST_SPEC_GPU, 0}};
	hoist_device *opened[2];
	int can, err = hoist_spec_open(specs, 2, opened);
	if (err < 0)
		return err;
	hoist_device_statistics s = {.size = sizeof s};
	err = hoist_device_can_access(opened[1], sweep_devices[2], &can);
	STEP(err, hoist_device_get_statistics(opened[1], &s));
	hoist_device_unref(opened[0]);
	hoist_device_unref(opened[1]);
	return err;
}

static int streams_wait_for_each_other(void)
{
	hoist_stream *streams[3] = {NULL, NULL, NULL};
	hoist_event *event = NULL;
	int err = ask_devices();
	for (int k = 0; err == 0 && k < 3; k++)
		err = hoist_stream_create(sweep_devices[k == 0 ? 0 : k == 1 ? 1 : 3], &streams[k]);
	STEP(err, hoist_event_create(hoist_stream_device(streams[2]), 0, &event));
	STEP(err, wait_both_ways(streams[1], streams[2], streams[0], event));
	hoist_event_unref(event);
	for (int k = 0; k < 3; k++)
		hoist_stream_unref(streams[k]);
	return err;
}

const struct sweep_scenario sweep_lib_device[] = {
	SWEEP_BOTH("lib-stream", 1, 1, .prepare = sweep_need_devices,
		   .run = streams_wait_for_each_other, .check = sweep_check_devices),
	{.name = NULL},
};
