/* SPDX-License-Identifier: MIT */
/* Scenarios: copies between devices, and buffers handed over as DLPack's. */
#include "config.h"

#include "hoist/dlpack.h"
#include "tests/faults/sweep.h"

static int64_t shape[2];

static int make(const char *spec, hoist_buffer **ret)
{
	hoist_device *device = NULL;
	int err = hoist_device_open(spec, &device);
	STEP(err, hoist_buffer_create(device, HOIST_U8, 2, shape, 0, ret));
	hoist_device_unref(device);
	return err;
}

/* Host to device to device to another API's, every second column from the last to the first, and
 * back. */
static int copy_strided(hoist_buffer *from, hoist_device *to, hoist_buffer **ret)
{
	const hoist_slice slices[] = {HOIST_ALL, HOIST_STEP(SWEEP_COLUMNS - 1, HOIST_NONE, -2)};
	hoist_buffer *view = NULL;
	int err = hoist_buffer_slice(from, 2, slices, &view);
	STEP(err, hoist_buffer_copy(view, to, ret));
	hoist_buffer_unref(view);
	return err;
}

static int copy_all(hoist_buffer *const buffers[4], hoist_device *cpu, const unsigned char *all)
{
	static unsigned char cut[SWEEP_MOST_BYTES];
	hoist_buffer *back = NULL;
	hoist_buffer *const dsts[] = {buffers[2], buffers[3]};
	hoist_buffer *const srcs[] = {buffers[1], buffers[1]};
	const uint32_t filler = 0x01020304;
	int err = hoist_buffer_copy_in(buffers[0], all, sweep_bytes(0));
	for (int i = 1; err == 0 && i < 4; i++)
		err = hoist_buffer_fill(buffers[i], &filler, sizeof filler);
	STEP(err, hoist_buffer_copy_into(buffers[1], buffers[0]));
	STEP(err, hoist_buffer_copy_batch(2, dsts, srcs, NULL));
	for (int i = 1; err == 0 && i < 4; i++)
		err = sweep_compare_bytes(buffers[i], all, sweep_bytes(0));
	for (size_t i = 0; i < sweep_bytes(0) / 2; i++) {
		size_t row = i / (SWEEP_COLUMNS / 2);
		size_t column = SWEEP_COLUMNS - 1 - i % (SWEEP_COLUMNS / 2) * 2;
		cut[i] = all[row * SWEEP_COLUMNS + column];
	}
	STEP(err, copy_strided(buffers[2], cpu, &back));
	STEP(err, sweep_compare_bytes(back, cut, sweep_bytes(0) / 2));
	hoist_buffer_unref(back);
	return err;
}

static int copies(void)
{
	static unsigned char all[SWEEP_MOST_BYTES];
	static const char *const specs[] = {"cpu", "cuda:0", "cuda:1", "hip:0"};
	hoist_buffer *buffers[4] = {NULL};
	hoist_device *cpu = NULL;
	int err = hoist_device_open("cpu", &cpu);
	sweep_fill(0, 0, all);
	(void)sweep_shape(0, shape);
	for (int i = 0; err == 0 && i < 4; i++)
		err = make(specs[i], &buffers[i]);
	STEP(err, copy_all(buffers, cpu, all));
	for (int i = 0; i < 4; i++)
		hoist_buffer_unref(buffers[i]);
	hoist_device_unref(cpu);
	return err;
}

/* --- out as DLPack's, and in again --- */

static int exchange(hoist_buffer *buffer, const unsigned char *all)
{
	struct DLManagedTensorVersioned *tensor = NULL;
	hoist_buffer *back = NULL;
	int err = hoist_buffer_to_dlpack(buffer, NULL, &tensor);
	if (err != 0 && tensor != NULL)
		sweep_wrong("a tensor that could not be made is given");
	STEP(err, hoist_buffer_from_dlpack(tensor, NULL, 0, &back));
	if (err != 0)
		hoist_dlpack_release(tensor);
	STEP(err, sweep_compare_bytes(back, all, sweep_bytes(0)));
	hoist_buffer_unref(back);
	return err;
}

static int dlpack(void)
{
	static unsigned char all[SWEEP_MOST_BYTES];
	static const char *const specs[] = {"cpu", "cuda:0"};
	int err = 0;
	sweep_fill(0, 0, all);
	(void)sweep_shape(0, shape);
	for (int i = 0; err == 0 && i < 2; i++) {
		hoist_buffer *buffer = NULL;
		err = make(specs[i], &buffer);
		STEP(err, hoist_buffer_copy_in(buffer, all, sweep_bytes(0)));
		STEP(err, exchange(buffer, all));
		hoist_buffer_unref(buffer);
	}
	return err;
}

const struct sweep_scenario sweep_copies[] = {
	{.name = "copy", .api = "cuda", .run = copies},
	{.name = "dlpack", .api = "cuda", .run = dlpack},
	{.name = NULL},
};
