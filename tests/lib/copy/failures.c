/* SPDX-License-Identifier: MIT */
/* Copies of every way while each allocation and each driver call fails once, in turn: the failure
 * is told, what lies between the elements of a destination stays as it was, nothing is left over,
 * and the next time it works. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/compat.h"
#include "tests/support/lib-copy.h"
#include "tests/support/lib-failing.h"
#include "tests/support/random.h"

#define MANY 3000

/* --- the scenario --- */

enum { ROWS = 8, COLUMNS = 20, WIDE = 33 };
enum { N_BUFFERS = 9 };

struct scenario {
	hoist_device *devices[LIB_N_DEVICES];
	hoist_stream *streams[2];	 /* of the CPU, of cuda:0 */
	hoist_buffer *whole[N_BUFFERS];	 /* ROWS x WIDE bytes */
	hoist_buffer *window[N_BUFFERS]; /* ROWS x COLUMNS of them, from the right */
	hoist_buffer *made[4];
	unsigned char model[ROWS * COLUMNS];
};

/* cpu, locked, cuda:0, pinned, cuda:1, hip:0, again cuda:0, again cpu, again hip:0 */
static const struct {
	int device;
	unsigned flags;
} at[N_BUFFERS] = {{0, 0}, {0, HOIST_BUFFER_PINNED},
		   {1, 0}, {1, HOIST_BUFFER_PINNED},
		   {2, 0}, {3, 0},
		   {1, 0}, {0, 0},
		   {3, 0}};

static int open_devices(struct scenario *s)
{
	int err = 0;
	for (int i = 0; err == 0 && i < LIB_N_DEVICES; i++)
		err = hoist_device_open(lib_specs[i], &s->devices[i]);
	return err;
}

static int make(struct scenario *s)
{
	const int64_t shape[] = {ROWS, WIDE};
	const hoist_slice slices[] = {HOIST_ALL, HOIST_STEP(HOIST_NONE, WIDE - COLUMNS - 1, -1)};
	int err = hoist_stream_create(s->devices[0], &s->streams[0]);
	if (err == 0)
		err = hoist_stream_create(s->devices[1], &s->streams[1]);
	for (int i = 0; err == 0 && i < N_BUFFERS; i++) {
		err = hoist_buffer_create(s->devices[at[i].device], HOIST_U8, 2, shape,
					  at[i].flags | HOIST_BUFFER_ZERO, &s->whole[i]);
		if (err == 0)
			err = hoist_buffer_slice(s->whole[i], 2, slices, &s->window[i]);
	}
	return err;
}

static int copy_around(struct scenario *s)
{
	hoist_buffer **w = s->window;
	int err = hoist_buffer_copy_in(w[0], s->model, sizeof s->model);
	if (err == 0)
		err = hoist_buffer_copy_into(w[2], w[0]); /* through slots */
	if (err == 0)
		err = hoist_buffer_copy_into(w[6], w[2]); /* on one device */
	if (err == 0)
		err = hoist_buffer_copy_into(w[4], w[6]); /* to its peer */
	if (err == 0)
		err = hoist_buffer_copy_into(w[5], w[4]); /* to another driver's */
	if (err == 0)
		err = hoist_buffer_copy_into(w[3], w[6]); /* to pinned memory */
	if (err == 0)
		err = hoist_buffer_copy_on(w[6], w[3], s->streams[1]);
	if (err == 0)
		err = hoist_buffer_copy_on(w[4], w[6], s->streams[1]); /* row by row */
	if (err == 0)
		err = hoist_buffer_copy_on(w[7], w[0], s->streams[0]);
	if (err == 0)
		err = hoist_stream_synchronize(s->streams[0]);
	if (err == 0)
		err = hoist_buffer_copy_on(w[2], w[7], s->streams[1]); /* waits its turn */
	if (err == 0)
		err = hoist_stream_synchronize(s->streams[1]);
	return err;
}

static int make_more(struct scenario *s)
{
	hoist_buffer **w = s->window;
	hoist_buffer *const dsts[] = {w[6], w[8], w[2]};
	hoist_buffer *const srcs[] = {w[2], w[5], w[6]};
	int err = hoist_buffer_copy_to_stream(w[4], s->streams[1], &s->made[0]);
	if (err == 0)
		err = hoist_stream_synchronize(s->streams[1]);
	if (err == 0)
		err = hoist_buffer_to_all(w[5], 3, s->devices, &s->made[1]);
	if (err == 0)
		err = hoist_buffer_copy_batch(3, dsts, srcs, NULL);
	if (err == 0)
		err = hoist_buffer_fill(w[1], "m", 1);
	if (err == 0)
		err = hoist_buffer_fill(s->made[0], "0123456789abcdef", 8);
	return err;
}

/* Driver calls fail in this part. */
static int run(struct scenario *s)
{
	int err = copy_around(s);
	return err == 0 ? make_more(s) : err;
}

static void check_bytes(hoist_buffer *buffer, const struct scenario *s, const char *what,
			unsigned long n)
{
	unsigned char got[ROWS * COLUMNS];
	if (hoist_buffer_copy_out(buffer, got, sizeof got) != 0)
		lib_die("%s %lu: copying out", what, n);
	if (memcmp(got, s->model, sizeof got) != 0)
		lib_die("%s %lu: wrong bytes arrived on %s", what, n,
			hoist_device_spec(hoist_buffer_device(buffer)));
}

/* The columns that are in no window. */
static void check_gaps(struct scenario *s, const char *what, unsigned long n)
{
	for (int i = 0; i < N_BUFFERS; i++) {
		unsigned char got[ROWS][WIDE];
		if (s->window[i] == NULL)
			continue;
		if (hoist_buffer_read(s->whole[i], 0, got, sizeof got) != 0)
			lib_die("%s %lu: reading buffer %d", what, n, i);
		for (int row = 0; row < ROWS; row++)
			for (int column = 0; column < WIDE - COLUMNS; column++)
				if (got[row][column] != 0)
					lib_die("%s %lu: buffer %d was written at %d, %d", what, n,
						i, row, column);
	}
}

static void drop(struct scenario *s)
{
	for (int i = 0; i < N_BUFFERS; i++) {
		hoist_buffer_unref(s->window[i]);
		hoist_buffer_unref(s->whole[i]);
	}
	for (int i = 0; i < 4; i++)
		hoist_buffer_unref(s->made[i]);
	hoist_stream_unref(s->streams[0]);
	hoist_stream_unref(s->streams[1]);
	memset(s->streams, 0, sizeof s->streams);
	memset(s->window, 0, sizeof s->window);
	memset(s->whole, 0, sizeof s->whole);
	memset(s->made, 0, sizeof s->made);
}

static void check_error(int err, const char *what, unsigned long n)
{
	if (err != 0 && !lib_is_failure(err))
		lib_die("%s %lu: an unexpected error, %d", what, n, err);
	if (err != 0 && hoist_error()[0] == '\0')
		lib_die("%s %lu: no text", what, n);
}

static void must_work(struct scenario *s, const char *what, unsigned long n)
{
	if (make(s) != 0 || run(s) != 0)
		lib_die("after %s %lu: does not work any more", what, n);
	for (int i = 2; i < N_BUFFERS; i++)
		check_bytes(s->window[i], s, what, n);
	for (int i = 1; i < 4; i++)
		check_bytes(s->made[i], s, what, n);
	check_gaps(s, what, n);
	drop(s);
	if (!lib_only_default_streams(s->devices) || !lib_drivers_content())
		lib_die("after %s %lu: something is left", what, n);
}

/* --- the sweeps --- */

/* What failed on a stream may be told late, and goes to the streams that wait for it: so those
 * first get there. */
static void forget_failures(struct scenario *s)
{
	hoist_stream *stream = NULL;
	(void)hoist_stream_synchronize(s->streams[1]);
	for (int i = 1; i < 3; i++) {
		if (hoist_device_default_stream(s->devices[i], &stream) != 0)
			lib_die("a default stream");
		(void)hoist_stream_synchronize(stream);
		hoist_stream_unref(stream);
	}
}

static void sweep_driver(struct scenario *s, const char *api, const char *what)
{
	unsigned long n = 1;
	/* Later ones are more of the same: every third. */
	for (; n < MANY; n += n < 60 ? 1 : 3) {
		char fault[64];
		(void)snprintf(fault, sizeof fault, "%s:%lu", what, n);
		if (make(s) != 0)
			lib_die("%s: making buffers", fault);
		if (lib_fail(api, fault) != 0)
			lib_die("%s: %s is not understood", api, fault);
		uint64_t before = lib_counters(api).injected_failures;
		int err = run(s);
		bool struck = lib_counters(api).injected_failures != before;
		check_error(err, fault, n);
		if (strcmp(what, "async") == 0 && struck && err == 0)
			lib_die("%s: the failure was lost", fault);
		forget_failures(s);
		lib_reset(api);
		check_gaps(s, fault, n);
		drop(s);
		if (!lib_only_default_streams(s->devices) || !lib_drivers_content())
			lib_die("%s %s: something is left", api, fault);
		lib_set_latency(api, 0, 20);
		if (!struck)
			break;
	}
	if (n >= MANY || n < 5)
		lib_die("%s: %s: the sweep ended at %lu", api, what, n);
	must_work(s, what, n);
	printf("%s: calls of \"%s\" failed in turn, the last of them %lu\n", api, what, n - 1);
}

/* Where hoist was never used before. */
static void run_alone(unsigned long n)
{
	static struct scenario s;
	uint64_t seed = n;
	random_fill(&seed, s.model, sizeof s.model);
	int err = open_devices(&s);
	if (err == 0)
		err = make(&s);
	if (err != 0)
		lib_die("allocation %lu: making buffers: %d", n, err);
	lib_fail_allocation(n);
	err = run(&s);
	lib_fail_allocation(0);
	check_error(err, "allocation", n);
	check_gaps(&s, "allocation", n);
	drop(&s);
	must_work(&s, "allocation", n);
}

/* proves: S0.21 S0.24 S0.27 */
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
	random_fill(&seed, s.model, sizeof s.model);
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
