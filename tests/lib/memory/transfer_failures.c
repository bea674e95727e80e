/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): bytes go from device to device. */
#include "config.h"

#include <string.h>

#include "tests/faults/sweep.h"
#include "tests/support/random.h"

#define BYTES 50000
#define N_BUFFERS 8

static unsigned char model[BYTES];
static unsigned char got[BYTES];

static int use_buffers(hoist_buffer **b)
{
	const int64_t shape[] = {BYTES};
	const int64_t half[] = {BYTES / 2};
	int err =
		hoist_buffer_create(sweep_devices[1], HOIST_U8, 1, shape, HOIST_BUFFER_ZERO, &b[0]);
	STEP(err, hoist_buffer_write(b[0], 0, model, BYTES));
	STEP(err,
	     hoist_buffer_create(sweep_devices[1], HOIST_U8, 1, shape, HOIST_BUFFER_PINNED, &b[1]));
	STEP(err, hoist_buffer_copy_into(b[1], b[0]));
	STEP(err, hoist_buffer_copy(b[1], sweep_devices[2], &b[2]));
	STEP(err, hoist_buffer_copy(b[2], sweep_devices[1], &b[3])); /* peer */
	STEP(err, hoist_buffer_copy(b[3], sweep_devices[3], &b[4])); /* another api */
	STEP(err, hoist_buffer_copy(b[4], sweep_devices[0], &b[5]));
	STEP(err, hoist_buffer_view(b[5], 0, HOIST_U8, 1, half, &b[6]));
	STEP(err, hoist_buffer_copy(b[6], sweep_devices[0], &b[7]));
	STEP(err, hoist_buffer_read(b[7], 0, got, BYTES / 2));
	return err;
}

static void prepare(void)
{
	uint64_t seed = 1;
	random_fill(&seed, model, BYTES);
}

static int bytes_go_around(void)
{
	hoist_buffer *buffers[N_BUFFERS] = {NULL};
	hoist_stream *stream = NULL;
	hoist_budget *budget = NULL;
	memset(got, 0, BYTES);
	int err = sweep_open_devices();
	STEP(err, use_buffers(buffers));
	STEP(err, hoist_stream_create(sweep_devices[1], &stream));
	STEP(err, hoist_stream_synchronize(stream));
	STEP(err, hoist_budget_create(100, &budget));
	if (err == 0 && memcmp(got, model, BYTES / 2) != 0)
		sweep_wrong("wrong bytes arrived");
	for (int i = 0; i < N_BUFFERS; i++)
		hoist_buffer_unref(buffers[i]);
	hoist_stream_unref(stream);
	hoist_budget_unref(budget);
	return err;
}

/* A failing release is nobody's error, and a refused allocation is tried again: only failures of
 * copies (SWEEP_ASYNC) must all be told. */
const struct sweep_scenario sweep_lib_transfer[] = {
	{.name = "lib-transfer",
	 .api = "cuda",
	 .kinds = SWEEP_COLD(SWEEP_OWN) | SWEEP_WARM(SWEEP_DRIVER) | SWEEP_WARM(SWEEP_ASYNC),
	 .prepare = prepare,
	 .run = bytes_go_around,
	 .check = sweep_check_devices},
	{.name = "lib-transfer-hip",
	 .api = "hip",
	 .kinds = SWEEP_WARM(SWEEP_DRIVER),
	 .prepare = prepare,
	 .run = bytes_go_around,
	 .check = sweep_check_devices},
	{.name = NULL},
};
