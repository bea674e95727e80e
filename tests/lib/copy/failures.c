/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): copies of every way.  A failure is told,
 * and the bytes between the elements of a destination stay as they were. */
#include "config.h"

#include <string.h>

#include "hoist/compat.h"
#include "tests/faults/sweep.h"
#include "tests/support/lib-copy.h"
#include "tests/support/random.h"

enum { ROWS = 8, COLUMNS = 20, WIDE = 33 };
enum { N_BUFFERS = 9 };

static hoist_stream *streams[2];	/* of the CPU, of cuda:0 */
static hoist_buffer *whole[N_BUFFERS];	/* ROWS x WIDE bytes */
static hoist_buffer *window[N_BUFFERS]; /* ROWS x COLUMNS of them, from the right */
static hoist_buffer *made[4];
static unsigned char model[ROWS * COLUMNS];

/* cpu, locked, cuda:0, pinned, cuda:1, hip:0, again cuda:0, again cpu, again hip:0 */
static const struct {
	int device;
	unsigned flags;
} at[N_BUFFERS] = {{0, 0}, {0, HOIST_BUFFER_PINNED},
		   {1, 0}, {1, HOIST_BUFFER_PINNED},
		   {2, 0}, {3, 0},
		   {1, 0}, {0, 0},
		   {3, 0}};

static int make(void)
{
	const int64_t shape[] = {ROWS, WIDE};
	const hoist_slice slices[] = {HOIST_ALL, HOIST_STEP(HOIST_NONE, WIDE - COLUMNS - 1, -1)};
	int err = hoist_stream_create(sweep_devices[0], &streams[0]);
	STEP(err, hoist_stream_create(sweep_devices[1], &streams[1]));
	for (int i = 0; err == 0 && i < N_BUFFERS; i++) {
		err = hoist_buffer_create(sweep_devices[at[i].device], HOIST_U8, 2, shape,
					  at[i].flags | HOIST_BUFFER_ZERO, &whole[i]);
		STEP(err, hoist_buffer_slice(whole[i], 2, slices, &window[i]));
	}
	return err;
}

static int copy_around(void)
{
	int err = hoist_buffer_copy_in(window[0], model, sizeof model);
	STEP(err, hoist_buffer_copy_into(window[2], window[0])); /* through slots */
	STEP(err, hoist_buffer_copy_into(window[6], window[2])); /* on one device */
	STEP(err, hoist_buffer_copy_into(window[4], window[6])); /* to its peer */
	STEP(err, hoist_buffer_copy_into(window[5], window[4])); /* to another driver's */
	STEP(err, hoist_buffer_copy_into(window[3], window[6])); /* to pinned memory */
	STEP(err, hoist_buffer_copy_on(window[6], window[3], streams[1]));
	STEP(err, hoist_buffer_copy_on(window[4], window[6], streams[1])); /* row by row */
	STEP(err, hoist_buffer_copy_on(window[7], window[0], streams[0]));
	STEP(err, hoist_stream_synchronize(streams[0]));
	STEP(err, hoist_buffer_copy_on(window[2], window[7], streams[1])); /* waits its turn */
	STEP(err, hoist_stream_synchronize(streams[1]));
	return err;
}

static int make_more(void)
{
	hoist_buffer *const dsts[] = {window[6], window[8], window[2]};
	hoist_buffer *const srcs[] = {window[2], window[5], window[6]};
	int err = hoist_buffer_copy_to_stream(window[4], streams[1], &made[0]);
	STEP(err, hoist_stream_synchronize(streams[1]));
	STEP(err, hoist_buffer_to_all(window[5], 3, sweep_devices, &made[1]));
	STEP(err, hoist_buffer_copy_batch(3, dsts, srcs, NULL));
	STEP(err, hoist_buffer_fill(window[1], "m", 1));
	STEP(err, hoist_buffer_fill(made[0], "0123456789abcdef", 8));
	return err;
}

/* proves: S0.21 S0.24 S0.27 */
static int copies_of_every_way(void)
{
	int err = copy_around();
	return err == 0 ? make_more() : err;
}

/* --- before and after each run, when nothing fails --- */

static void begin(void)
{
	uint64_t seed = 1;
	random_fill(&seed, model, sizeof model);
	if (make() != 0)
		sweep_die("making buffers");
}

static void check_bytes(hoist_buffer *buffer)
{
	unsigned char got[ROWS * COLUMNS];
	if (hoist_buffer_copy_out(buffer, got, sizeof got) != 0)
		sweep_wrong("copying out");
	else if (memcmp(got, model, sizeof got) != 0)
		sweep_wrong("wrong bytes arrived on %s",
			    hoist_device_spec(hoist_buffer_device(buffer)));
}

/* The columns that are in no window. */
static void check_gaps(void)
{
	for (int i = 0; i < N_BUFFERS; i++) {
		unsigned char got[ROWS][WIDE];
		if (hoist_buffer_read(whole[i], 0, got, sizeof got) != 0)
			sweep_die("reading buffer %d", i);
		for (int row = 0; row < ROWS; row++)
			for (int column = 0; column < WIDE - COLUMNS; column++)
				if (got[row][column] != 0)
					sweep_wrong("buffer %d was written at %d, %d", i, row,
						    column);
	}
}

/* A failure on a stream may be told late, and goes to the streams that wait for it: so those first
 * get there. */
static void forget_failures(void)
{
	hoist_stream *stream = NULL;
	(void)hoist_stream_synchronize(streams[1]);
	for (int i = 1; i < 3; i++) {
		if (hoist_device_default_stream(sweep_devices[i], &stream) != 0)
			sweep_die("a default stream");
		(void)hoist_stream_synchronize(stream);
		hoist_stream_unref(stream);
	}
}

static void drop(void)
{
	for (int i = 0; i < N_BUFFERS; i++) {
		hoist_buffer_unref(window[i]);
		hoist_buffer_unref(whole[i]);
	}
	for (int i = 0; i < 4; i++)
		hoist_buffer_unref(made[i]);
	hoist_stream_unref(streams[0]);
	hoist_stream_unref(streams[1]);
	memset(streams, 0, sizeof streams);
	memset(window, 0, sizeof window);
	memset(whole, 0, sizeof whole);
	memset(made, 0, sizeof made);
}

static void check(int err)
{
	forget_failures();
	sweep_reset_drivers();
	for (int i = 2; err == 0 && i < N_BUFFERS; i++)
		check_bytes(window[i]);
	for (int i = 1; err == 0 && i < 4; i++)
		check_bytes(made[i]);
	check_gaps();
	drop();
	sweep_check_devices_but(err, lib_only_default_streams);
}

const struct sweep_scenario sweep_lib_copy[] = {
	{.name = "lib-copy",
	 .api = "cuda",
	 .alike = 60,
	 .kinds = SWEEP_COLD(SWEEP_OWN) | SWEEP_WARM(SWEEP_DRIVER) | SWEEP_WARM(SWEEP_ASYNC),
	 .prepare = sweep_need_devices,
	 .begin = begin,
	 .run = copies_of_every_way,
	 .check = check},
	{.name = "lib-copy-hip",
	 .api = "hip",
	 .kinds = SWEEP_WARM(SWEEP_DRIVER),
	 .prepare = sweep_need_devices,
	 .begin = begin,
	 .run = copies_of_every_way,
	 .check = check},
	{.name = NULL},
};
