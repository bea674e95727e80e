/* SPDX-License-Identifier: MIT */
/* One load in a process of its own.  The contract is in once.h. */
#include "config.h"

#include "bench/once.h"

#include "bench/bench.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens the device and makes its context, so that no load pays for that. */
static hoist_device *open_device(const char *spec)
{
	hoist_device *device = NULL;
	uint64_t free_bytes;
	uint64_t total_bytes;
	bench_must(hoist_device_open(spec, &device), "opening", spec);
	bench_must(hoist_device_memory(device, &free_bytes, &total_bytes), "asking", spec);
	return device;
}

/* Takes each tensor as soon as it has arrived. */
static void take_all(hoist_load *load, const char *path)
{
	hoist_load_item item = {.size = sizeof item};
	int rc;
	while ((rc = hoist_load_next(load, UINT64_MAX, &item)) == 1)
		hoist_buffer_unref(item.buffer);
	bench_must(rc, "streaming", path);
}

static void load(const char *path, hoist_checkpoint *checkpoint,
		 const hoist_load_options *load_options, struct once_result *result)
{
	hoist_load *load = NULL;
	double cpu = bench_cpu_seconds();
	double begin = clock_seconds();
	bench_must(hoist_load_start(checkpoint, load_options, &load), "loading", path);
	if ((load_options->flags & HOIST_LOAD_STREAM) != 0)
		take_all(load, path);
	bench_must(hoist_load_wait(load), "loading", path);
	result->seconds = clock_seconds() - begin;
	result->cpu_seconds = bench_cpu_seconds() - cpu;
	result->report.size = sizeof result->report;
	bench_must(hoist_load_get_report(load, &result->report), "reporting", path);
	hoist_load_destroy(load);
}

static void set_environment(const struct once_options *options)
{
	char rate[24];
	char resident[24];
	if (options->emulate == NULL)
		return;
	(void)snprintf(rate, sizeof rate, "%" PRIu64, options->emulated_rate);
	(void)snprintf(resident, sizeof resident, "%" PRIu64, options->emulated_resident);
	if (setenv("HOIST_EMULATE", options->emulate, 1) < 0 ||
	    setenv("HOIST_EMULATE_RATE", rate, 1) < 0 ||
	    setenv("HOIST_EMULATE_RESIDENT", resident, 1) < 0 ||
	    setenv("HOIST_EMULATE_MEMORY", "64G", 1) < 0)
		bench_fail("no memory");
}

/* Prepares the page cache first, then touches as much memory as the destination takes.  The other
 * way round, the file would get the touched memory. */
static void prepare(const struct once_options *options)
{
	if (options->hot == 2)
		bench_make_half(options->path);
	else if (options->hot)
		bench_make_hot(options->path);
	else
		bench_make_cold(options->path);
	bench_touch_memory((size_t)bench_file_bytes(options->path));
}

/* Loads into fresh memory, and then into the buffers of that load. */
static void load_in_place(const struct once_options *options, hoist_checkpoint *checkpoint,
			  const hoist_load_options *fresh, struct once_result *result)
{
	hoist_load *load_before = NULL;
	bench_must(hoist_load_start(checkpoint, fresh, &load_before), "loading", options->path);
	bench_must(hoist_load_wait(load_before), "loading", options->path);
	size_t n = hoist_load_n_tensors(load_before);
	hoist_load_into *into = calloc(n, sizeof *into);
	if (into == NULL)
		bench_fail("no memory");
	for (size_t i = 0; i < n; i++) {
		hoist_tensor_info info = {.size = sizeof info};
		size_t which = 0;
		bench_must(hoist_load_tensor(load_before, i, &which, &into[i].buffer),
			   "a buffer of", options->path);
		bench_must(hoist_checkpoint_tensor(checkpoint, which, &info), "listing",
			   options->path);
		into[i].tensor = info.name;
	}
	hoist_load_destroy(load_before);
	hoist_load_options again = *fresh;
	again.into = into;
	again.n_into = n;
	prepare(options);
	load(options->path, checkpoint, &again, result);
	for (size_t i = 0; i < n; i++)
		hoist_buffer_unref(into[i].buffer);
	free(into);
}

/* A resource that keeps the destination of one load for the next. */
static hoist_memory *memory_that_is_kept(const struct once_options *options)
{
	hoist_memory *memory = NULL;
	const hoist_memory_options memory_options = {
		.size = sizeof memory_options,
		.kind = HOIST_MEMORY_HOST,
		.keep_bytes = 2 * (size_t)bench_file_bytes(options->path),
	};
	bench_must(hoist_memory_create(&memory_options, &memory), "making", "a memory resource");
	return memory;
}

/* Each load overwrites the result: the last one counts.  The parent has prepared the first. */
static void in_child(const void *argument, void *ret)
{
	const struct once_options *options = argument;
	struct once_result *result = ret;
	hoist_checkpoint *checkpoint = NULL;

	set_environment(options);
	hoist_device *device = open_device(options->device);
	unsigned flags = (options->raw ? HOIST_OPEN_RAW : 0) |
			 (options->follow_links ? HOIST_OPEN_FOLLOW_LINKS : 0);
	bench_must(hoist_checkpoint_open(options->path, flags, &checkpoint), "opening",
		   options->path);
	hoist_load_options load_options = {
		.size = sizeof load_options,
		.device = device,
		.engine = options->engine,
		.slices = options->slices,
		.n_slices = options->n_slices,
		.flags = options->streams ? HOIST_LOAD_STREAM : 0,
	};
	if (options->warm_ups > 0 && strcmp(options->device, "cpu") == 0)
		load_options.memory = memory_that_is_kept(options);
	for (int i = 0; i <= options->warm_ups && !options->in_place; i++) {
		if (i > 0)
			prepare(options);
		load(options->path, checkpoint, &load_options, result);
	}
	if (options->in_place)
		load_in_place(options, checkpoint, &load_options, result);
	hoist_memory_unref(load_options.memory);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
}

void once_load(const struct once_options *options, struct once_result *ret)
{
	memset(ret, 0, sizeof *ret);
	prepare(options);
	ret->whole_cpu_seconds = bench_in_child(in_child, options, ret, sizeof *ret);
	/* A real device's destination is not the host's memory. */
	if (options->emulate != NULL || strcmp(options->device, "cpu") == 0)
		bench_keep_memory((size_t)bench_file_bytes(options->path));
}
