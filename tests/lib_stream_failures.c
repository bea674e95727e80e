/* SPDX-License-Identifier: MIT */
/* Every allocation of hoist's own and every driver call of a scenario with streams and events fails
 * once, in turn: the scenario says so, nothing hangs or is left over, and the next one works. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "tests/lib-failing.h"
#include "tests/lib-support.h"

#define MANY 2000

static hoist_device *devices[LIB_N_DEVICES];

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
	err = hoist_device_can_access(opened[1], devices[2], &can);
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
		err = hoist_stream_create(devices[k == 0 ? 0 : k == 1 ? i : 4 - i], &streams[k]);
	if (err == 0)
		err = hoist_event_create(hoist_stream_device(streams[2]), 0, &event);
	if (err == 0)
		err = wait_both_ways(streams[1], streams[2], streams[0], event);
	hoist_event_unref(event);
	for (int k = 0; k < 3; k++)
		hoist_stream_unref(streams[k]);
	return err;
}

/* A stream that could not be waited for before it was destroyed frees a little later. */
static void check_clean(const char *what, unsigned long n)
{
	for (int tries = 0; !lib_nothing_outstanding(devices); tries++) {
		if (tries == 100)
			lib_die("%s %lu: something is left", what, n);
		usleep(10000);
	}
	if (!lib_drivers_content())
		lib_die("%s %lu: the drivers saw a misuse", what, n);
}

static void sweep_driver(int i, const char *api)
{
	unsigned long n = 1;
	for (; n < MANY; n++) {
		char fault[64];
		(void)snprintf(fault, sizeof fault, "any:%lu", n);
		if (lib_fail(api, fault) != 0)
			lib_die("%s: %s is not understood", api, fault);
		int err = run(i);
		if (err != 0 && (!lib_is_failure(err) || hoist_error()[0] == '\0'))
			lib_die("%s %s: an unexpected error, %d", api, fault, err);
		bool struck = lib_counters(api).injected_failures != 0;
		check_clean(fault, n);
		lib_reset(api);
		lib_set_latency(api, 0, 20);
		if (!struck)
			break;
	}
	if (n == MANY || n < 20)
		lib_die("%s: the sweep ended at %lu", api, n);
	if (run(i) != 0)
		lib_die("%s: does not work any more", api);
	printf("%s: %lu calls failed in turn\n", api, n - 1);
}

static void run_alone(unsigned long n)
{
	lib_open_all(devices);
	lib_fail_allocation(n);
	int err = run(1);
	if (err != 0 && !lib_is_failure(err))
		lib_die("allocation %lu: an unexpected error, %d", n, err);
	lib_fail_allocation(0);
	check_clean("allocation", n);
	if (run(1) != 0)
		lib_die("after allocation %lu: does not work any more", n);
	check_clean("after allocation", n);
}

int main(void)
{
	(void)alarm(120);
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	(void)fflush(stdout);
	setenv("HOIST_EMULATE_LATENCY", "0..20", 1);
	lib_sweep_allocations(run_alone, MANY);
	lib_open_all(devices);
	if (run(1) != 0 || run(3) != 0)
		lib_die("without failures");
	check_clean("without failures", 0);
	sweep_driver(1, "cuda");
	sweep_driver(1, "hip");
	return 0;
}
