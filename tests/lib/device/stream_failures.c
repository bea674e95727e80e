/* SPDX-License-Identifier: MIT */
/* Every allocation of hoist's own and every driver call of a scenario with streams and events fails
 * once, in turn: the scenario says so, nothing hangs or is left over, and the next one works. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hoist/compat.h"
#include "hoist/hoist.h"
#include "tests/support/lib-failing.h"
#include "tests/support/lib-support.h"

static int nothing(void *context)
{
	(void)context;
	return 0;
}

/* In both directions, directly, by an event and over a third stream. */
static int wait_both_ways(hoist_stream *a, hoist_stream *b, hoist_stream *cpu, hoist_event *event)
{
	int err = hoist_stream_wait_for(a, b);
	if (err == 0)
		err = hoist_stream_wait_for(cpu, a);
	if (err == 0)
		err = hoist_stream_wait_for(b, cpu);
	if (err == 0)
		err = hoist_stream_call(b, nothing, NULL);
	if (err == 0)
		err = hoist_event_record(event, b);
	if (err == 0)
		err = hoist_stream_wait_event(a, event);
	if (err == 0)
		err = hoist_stream_wait_event(cpu, event);
	if (err == 0)
		err = hoist_event_record(event, b);
	if (err == 0)
		err = hoist_event_synchronize(event);
	if (err == 0)
		err = hoist_device_synchronize(hoist_stream_device(a));
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
	err = hoist_device_can_access(opened[1], lib_swept[2], &can);
	if (err == 0)
		err = hoist_device_get_statistics(opened[1], &s);
	hoist_device_unref(opened[0]);
	hoist_device_unref(opened[1]);
	return err;
}

static int run(int i)
{
	hoist_stream *streams[3] = {NULL, NULL, NULL};
	hoist_event *event = NULL;
	int err = ask_devices();
	for (int k = 0; err == 0 && k < 3; k++)
		err = hoist_stream_create(lib_swept[k == 0 ? 0 : k == 1 ? i : 4 - i], &streams[k]);
	if (err == 0)
		err = hoist_event_create(hoist_stream_device(streams[2]), 0, &event);
	if (err == 0)
		err = wait_both_ways(streams[1], streams[2], streams[0], event);
	hoist_event_unref(event);
	for (int k = 0; k < 3; k++)
		hoist_stream_unref(streams[k]);
	return err;
}

int main(void)
{
	(void)alarm(120);
	return lib_sweep_failures(run, 1, 1);
}
