/* SPDX-License-Identifier: MIT */
/* Every allocation and every driver call of a scenario fails once, in turn: the
 * scenario says so, nothing is left over, and the next one works. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "tests/support/lib-failing.h"
#include "tests/support/lib-support.h"
#include "tests/support/random.h"

#define MANY 2000

/* --- the scenario --- */

#define BYTES 50000
#define N_BUFFERS 8

struct scenario {
	hoist_device *devices[LIB_N_DEVICES];
	hoist_buffer *buffers[N_BUFFERS];
	hoist_stream *stream;
	hoist_budget *budget;
	unsigned char model[BYTES];
	unsigned char got[BYTES];
};

static int open_devices(struct scenario *s)
{
	int err = 0;
	for (int i = 0; err == 0 && i < LIB_N_DEVICES; i++)
		err = hoist_device_open(lib_specs[i], &s->devices[i]);
	return err;
}

static int use_buffers(struct scenario *s)
{
	const int64_t shape[] = {BYTES};
	const int64_t half[] = {BYTES / 2};
	hoist_buffer **b = s->buffers;
	int err = hoist_buffer_create(s->devices[1], HOIST_U8, 1, shape, HOIST_BUFFER_ZERO, &b[0]);
	if (err == 0)
		err = hoist_buffer_write(b[0], 0, s->model, BYTES);
	if (err == 0)
		err = hoist_buffer_create(s->devices[1], HOIST_U8, 1, shape, HOIST_BUFFER_PINNED,
					  &b[1]);
	if (err == 0)
		err = hoist_buffer_copy_into(b[1], b[0]);
	if (err == 0)
		err = hoist_buffer_copy(b[1], s->devices[2], &b[2]);
	if (err == 0)
		err = hoist_buffer_copy(b[2], s->devices[1], &b[3]); /* peer */
	if (err == 0)
		err = hoist_buffer_copy(b[3], s->devices[3], &b[4]); /* another api */
	if (err == 0)
		err = hoist_buffer_copy(b[4], s->devices[0], &b[5]);
	if (err == 0)
		err = hoist_buffer_view(b[5], 0, HOIST_U8, 1, half, &b[6]);
	if (err == 0)
		err = hoist_buffer_copy(b[6], s->devices[0], &b[7]);
	if (err == 0)
		err = hoist_buffer_read(b[7], 0, s->got, BYTES / 2);
	return err;
}

static int run(struct scenario *s)
{
	int err = use_buffers(s);
	if (err == 0)
		err = hoist_stream_create(s->devices[1], &s->stream);
	if (err == 0)
		err = hoist_stream_synchronize(s->stream);
	if (err == 0)
		err = hoist_budget_create(100, &s->budget);
	return err;
}

static void drop(struct scenario *s)
{
	for (int i = 0; i < N_BUFFERS; i++)
		hoist_buffer_unref(s->buffers[i]);
	hoist_stream_unref(s->stream);
	hoist_budget_unref(s->budget);
	memset(s->buffers, 0, sizeof s->buffers);
	s->stream = NULL;
	s->budget = NULL;
}

/* Runs it with failures set up by the caller; then nothing may be left. */
static void run_once(struct scenario *s, const char *what, unsigned long n, bool must_fail)
{
	memset(s->got, 0, BYTES);
	int err = run(s);
	if (err == 0 && memcmp(s->got, s->model, BYTES / 2) != 0)
		lib_die("%s %lu: wrong bytes arrived", what, n);
	if (err != 0 && !lib_is_failure(err))
		lib_die("%s %lu: an unexpected error, %d", what, n, err);
	if (err != 0 && hoist_error()[0] == '\0')
		lib_die("%s %lu: no text", what, n);
	if (err == 0 && must_fail)
		lib_die("%s %lu: the failure was lost", what, n);
	drop(s);
}

static void must_work(struct scenario *s, const char *what, unsigned long n)
{
	int err = run(s);
	if (err != 0 || memcmp(s->got, s->model, BYTES / 2) != 0)
		lib_die("after %s %lu: does not work any more: %d", what, n, err);
	drop(s);
	if (!lib_nothing_outstanding(s->devices) || !lib_drivers_content())
		lib_die("after %s %lu: something is left", what, n);
}

/* --- the sweeps --- */

static void sweep_driver(struct scenario *s, const char *api, const char *what)
{
	unsigned long n = 1;
	for (; n < MANY; n++) {
		char fault[64];
		(void)snprintf(fault, sizeof fault, "%s:%lu", what, n);
		if (lib_fail(api, fault) != 0)
			lib_die("%s: %s is not understood", api, fault);
		uint64_t before = lib_counters(api).injected_failures;
		/* A failing release is nobody's error, a refused allocation is tried
		 * again: not every failure can be seen. */
		run_once(s, fault, n,
			 strcmp(what, "async") == 0 &&
				 lib_counters(api).injected_failures != before);
		bool struck = lib_counters(api).injected_failures != before;
		if (!lib_nothing_outstanding(s->devices) || !lib_drivers_content())
			lib_die("%s %s: something is left", api, fault);
		lib_reset(api);
		lib_set_latency(api, 0, 20);
		if (!struck)
			break;
	}
	if (n == MANY || n < 5)
		lib_die("%s: %s: the sweep ended at %lu", api, what, n);
	must_work(s, what, n);
	printf("%s: %lu calls of \"%s\" failed in turn\n", api, n - 1, what);
}

/* Where hoist was never used before. */
static void run_alone(unsigned long n)
{
	static struct scenario s;
	uint64_t seed = n;
	random_fill(&seed, s.model, BYTES);
	lib_fail_allocation(n);
	int err = open_devices(&s);
	if (err == 0)
		run_once(&s, "allocation", n, false);
	else if (!lib_is_failure(err))
		lib_die("allocation %lu: opening: %d", n, err);
	lib_fail_allocation(0);
	/* A driver that could not be opened stays so: that is remembered. */
	if (err == 0 || open_devices(&s) == 0)
		must_work(&s, "allocation", n);
}

int main(void)
{
	static struct scenario s;
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	(void)fflush(stdout);
	setenv("HOIST_EMULATE_LATENCY", "0..20", 1);
	lib_sweep_allocations(run_alone, MANY);
	uint64_t seed = 1;
	random_fill(&seed, s.model, BYTES);
	if (open_devices(&s) != 0)
		lib_die("opening the devices");
	must_work(&s, "nothing", 0);
	sweep_driver(&s, "cuda", "any");
	sweep_driver(&s, "hip", "any");
	sweep_driver(&s, "cuda", "async");
	for (int i = 0; i < LIB_N_DEVICES; i++)
		hoist_device_unref(s.devices[i]);
	return 0;
}
