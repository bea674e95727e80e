/* SPDX-License-Identifier: MIT */
/* Scenarios of the failure sweep (tests/faults/sweep.h): buffers are saved, then their checkpoint
 * in shards; large host buffers are saved; a checkpoint is saved converted and in parts.  Nothing
 * else is left in the folder. */
#include "config.h"

#include <sched.h>
#include <sys/stat.h>

#include "hoist/hoist.h"
#include "tests/faults/sweep.h"
#include "tests/support/count.h"

static int finish(hoist_save *save, int err)
{
	STEP(err, hoist_save_start(save));
	STEP(err, hoist_save_wait(save));
	sweep_check_text(err);
	hoist_save_destroy(save);
	return err;
}

/* Two devices of one driver, one of another; whole, and with strides. */
static int save_buffers(hoist_budget *budget)
{
	static const int turned[] = {1, 0};
	static const char *const names[] = {"v0", "v1", "v2"};
	const int64_t shape[] = {30, 50};
	const int i = sweep_device;
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = HOIST_ENGINE_THREADS,
		.budget = budget,
		.flags = HOIST_SAVE_DIGEST | HOIST_SAVE_NO_SYNC,
	};
	hoist_device *const devices[] = {sweep_devices[i], sweep_devices[i == 1 ? 2 : 0],
					 sweep_devices[4 - i]};
	hoist_save *save = NULL;
	int err = hoist_save_create(sweep_path("saved/m.safetensors"), &options, &save);
	for (int k = 0; err == 0 && k < 3; k++) {
		hoist_buffer *buffer = NULL;
		hoist_buffer *view = NULL;
		hoist_device *device = devices[k];
		err = hoist_buffer_create(device, HOIST_F32, 2, shape, HOIST_BUFFER_ZERO, &buffer);
		STEP(err, hoist_buffer_permute(buffer, turned, &view));
		STEP(err, hoist_save_add(save, names[k], view));
		STEP(err, hoist_save_add(save, names[k] + 1, buffer));
		hoist_buffer_unref(view);
		hoist_buffer_unref(buffer);
	}
	STEP(err, hoist_save_metadata(save, "key", "value"));
	if (save != NULL)
		err = finish(save, err);
	return err;
}

/* Saves that file's tensors again, in shards. */
static int save_checkpoint(hoist_budget *budget)
{
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = HOIST_ENGINE_THREADS,
		.budget = budget,
		.shard_bytes = 7000,
		.flags = HOIST_SAVE_NO_SYNC,
	};
	hoist_checkpoint *checkpoint = NULL;
	hoist_save *save = NULL;
	int err = hoist_checkpoint_open(sweep_path("saved/m.safetensors"), 0, &checkpoint);
	STEP(err, hoist_save_create(sweep_path("saved/s.safetensors"), &options, &save));
	for (size_t t = 0; err == 0 && t < hoist_checkpoint_n_tensors(checkpoint); t++)
		err = hoist_save_add_tensor(save, NULL, checkpoint, t);
	STEP(err, hoist_save_metadata_of(save, checkpoint));
	hoist_checkpoint_close(checkpoint);
	if (save != NULL)
		err = finish(save, err);
	return err;
}

/* Saves with a budget of @bytes, all of which are free again afterwards. */
static int with_budget(size_t bytes, int (*save)(hoist_budget *budget))
{
	hoist_budget *budget = NULL;
	int err = hoist_budget_create(bytes, &budget);
	STEP(err, save(budget));
	if (budget != NULL && hoist_budget_used(budget) != 0)
		sweep_wrong("%zu bytes of the budget are in use", hoist_budget_used(budget));
	hoist_budget_unref(budget);
	return err;
}

static int save_twice(hoist_budget *budget)
{
	int err = save_buffers(budget);
	STEP(err, save_checkpoint(budget));
	return err;
}

static int saves(void)
{
	return with_budget(256 << 10, save_twice);
}

/* --- large host buffers --- */

/* One is written from where it is; the other, turned, is gathered by the crew. */
static int save_flat_and_turned(hoist_budget *budget)
{
	static const int turned[] = {1, 0};
	const int64_t flat = 700000;
	const int64_t shape[] = {310, 900};
	hoist_device *cpu = NULL;
	hoist_save *save = NULL;
	hoist_buffer *buffers[3] = {NULL, NULL, NULL};
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = HOIST_ENGINE_THREADS,
		.budget = budget,
		.flags = HOIST_SAVE_DIGEST | HOIST_SAVE_NO_SYNC,
	};
	int err = hoist_save_create(sweep_path("large/l.safetensors"), &options, &save);
	STEP(err, hoist_device_open("cpu", &cpu));
	STEP(err, hoist_buffer_create(cpu, HOIST_U8, 1, &flat, HOIST_BUFFER_ZERO, &buffers[0]));
	STEP(err, hoist_buffer_create(cpu, HOIST_U8, 2, shape, HOIST_BUFFER_ZERO, &buffers[1]));
	STEP(err, hoist_buffer_permute(buffers[1], turned, &buffers[2]));
	STEP(err, hoist_save_add(save, "flat", buffers[0]));
	STEP(err, hoist_save_add(save, "turned", buffers[2]));
	for (int i = 0; i < 3; i++)
		hoist_buffer_unref(buffers[i]);
	hoist_device_unref(cpu);
	if (save != NULL)
		err = finish(save, err);
	return err;
}

static int save_large(void)
{
	return with_budget(1 << 20, save_flat_and_turned);
}

/* --- converted, and in parts --- */

static int save_source(hoist_budget *budget)
{
	const int64_t shape[] = {300, 500};
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = HOIST_ENGINE_THREADS,
		.budget = budget,
		.flags = HOIST_SAVE_NO_SYNC,
	};
	hoist_device *cpu = NULL;
	hoist_save *save = NULL;
	hoist_buffer *buffer = NULL;
	int err = hoist_save_create(sweep_path("converted/s.safetensors"), &options, &save);
	STEP(err, hoist_device_open("cpu", &cpu));
	STEP(err, hoist_buffer_create(cpu, HOIST_F32, 2, shape, HOIST_BUFFER_ZERO, &buffer));
	STEP(err, hoist_save_add(save, "a", buffer));
	STEP(err, hoist_save_add(save, "b", buffer));
	hoist_buffer_unref(buffer);
	hoist_device_unref(cpu);
	if (save != NULL)
		err = finish(save, err);
	return err;
}

/* Several loads, as a batch has 256 KiB. */
static int save_converted(hoist_budget *budget)
{
	static const hoist_load_slice part = {.axis = 1, .rank = 1, .n_ranks = 2};
	const hoist_save_tensor as[] = {
		{.size = sizeof as[0], .dtype = HOIST_BF16},
		{.size = sizeof as[0], .slices = &part, .n_slices = 1},
		{.size = sizeof as[0], .name = "c", .dtype = HOIST_F16},
	};
	const hoist_save_options options = {
		.size = sizeof options,
		.engine = HOIST_ENGINE_THREADS,
		.budget = budget,
		.flags = HOIST_SAVE_NO_SYNC,
	};
	hoist_checkpoint *checkpoint = NULL;
	hoist_save *save = NULL;
	int err = save_source(budget);
	STEP(err, hoist_checkpoint_open(sweep_path("converted/s.safetensors"), 0, &checkpoint));
	STEP(err, hoist_save_create(sweep_path("converted/c.safetensors"), &options, &save));
	for (size_t i = 0; i < 3; i++)
		STEP(err, hoist_save_add_tensor_as(save, checkpoint, i % 2, &as[i]));
	hoist_checkpoint_close(checkpoint);
	if (save != NULL)
		err = finish(save, err);
	return err;
}

/* On one processor: the more loads are at work at once, the more records of slabs the pools keep,
 * and a run without a failure would keep fewer than another. */
static int save_in_parts(void)
{
	cpu_set_t all, one;
	if (sched_getaffinity(0, sizeof all, &all) == 0) {
		size_t first = 0;
		while (first < CPU_SETSIZE - 1 && !CPU_ISSET(first, &all))
			first++;
		CPU_ZERO(&one);
		CPU_SET(first, &one);
		(void)sched_setaffinity(0, sizeof one, &one);
	}
	return with_budget(256 << 10, save_converted);
}

/* --- folders --- */

static bool set_up(void)
{
	(void)mkdir(sweep_path("saved"), 0700);
	(void)mkdir(sweep_path("large"), 0700);
	(void)mkdir(sweep_path("converted"), 0700);
	return true;
}

static void check_folder(int err, const char *name, size_t n_files)
{
	if (err == 0 && count_entries(sweep_path(name)) != n_files)
		sweep_wrong("something else is in the folder");
}

/* The file, six shards, their index. */
static void check(int err)
{
	check_folder(err, "saved", 8);
	sweep_check_devices(err);
}

static void check_large(int err)
{
	check_folder(err, "large", 1);
}

static void check_converted(int err)
{
	check_folder(err, "converted", 2);
}

const struct sweep_scenario sweep_lib_save[] = {
	SWEEP_BOTH("lib-save", 1, 3, .set_up = set_up, .prepare = sweep_need_devices, .run = saves,
		   .check = check),
	{.name = "lib-save-large",
	 .kinds = SWEEP_COLD(SWEEP_OWN),
	 .set_up = set_up,
	 .run = save_large,
	 .check = check_large},
	{.name = "lib-save-converted",
	 .kinds = SWEEP_COLD(SWEEP_OWN),
	 .set_up = set_up,
	 .run = save_in_parts,
	 .check = check_converted},
	{.name = NULL},
};
