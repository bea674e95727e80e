/* SPDX-License-Identifier: MIT */
/* lib/memory/device-memory.c - keeps a device's resources and its budget, and waits for a device.
 * The contract is in lib/memory/device-memory.h and hoist/device.h. */
#include "config.h"

#include <stdio.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/figure.h"
#include "base/log.h"
#include "hoist/budget.h"
#include "lib/core/options.h"
#include "lib/device/device-private.h"
#include "lib/device/device.h"
#include "lib/device/stream-private.h"
#include "lib/memory/device-memory.h"
#include "lib/memory/lane.h"
#include "lib/memory/memory.h"
#include "lib/memory/parked.h"

/* Small device buffers share regions of the first size, and pinned buffers of the second: a single
 * pinned page must not take much of a small memlock limit. */
#define SHARED_REGION_BYTES (32 * HOIST__MIB)
#define PINNED_REGION_BYTES (2 * HOIST__MIB)

static hoist_memory_options options_for(hoist_device *device, enum hoist__device_memory use,
					char name[static 48])
{
	static const char *const names[] = {"buffers", "pinned buffers", "staging", "graphs"};
	hoist_memory_options options = {.size = sizeof options, .device = device, .name = name};
	(void)snprintf(name, 48, "%s of %s", names[use], device->spec);
	switch (use) {
	case HOIST__BUFFERS:
		options.kind = HOIST_MEMORY_DEVICE;
		options.region_bytes = SHARED_REGION_BYTES;
		break;
	case HOIST__PINNED_BUFFERS:
		options.kind = HOIST_MEMORY_PINNED;
		options.region_bytes = PINNED_REGION_BYTES;
		break;
	case HOIST__GRAPHS:
		options.kind = HOIST_MEMORY_GRAPH;
		break;
	case HOIST__STAGING:
	case HOIST__N_USES:
		/* Regions so small that each staging has a region of its own, of its exact size.
		 * They are kept, because pinning is slow and the next load wants the same region.
		 * Memory that no driver copies from need not be pinned. */
		options.kind =
			hoist__device_is_cpu(device) ? HOIST_MEMORY_HOST : HOIST_MEMORY_PINNED;
		options.region_bytes = 4096;
		options.keep_bytes = HOIST_BUDGET_DEFAULT;
		break;
	}
	return options;
}

/* Gives the device's resource for @use, made on first use.  Borrowed. */
static int use_memory(hoist_device *device, enum hoist__device_memory use, hoist_memory **ret)
{
	hoist_memory *known = atomic_load(&device->xmemories[use]);
	if (known == NULL) {
		char name[48];
		const hoist_memory_options options = options_for(device, use, name);
		hoist_memory *made;
		int err = hoist__memory_make(&options, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&device->xmemories[use], &known, made))
			known = made;
		else
			hoist_memory_unref(made);
	}
	*ret = known;
	return 0;
}

int hoist__device_buffers(hoist_device *device, bool pinned, hoist_memory **ret)
{
	return use_memory(device, pinned ? HOIST__PINNED_BUFFERS : HOIST__BUFFERS, ret);
}

int hoist__device_staging_pool(hoist_device *device, struct hoist__pool **ret)
{
	hoist_memory *memory;
	int err = use_memory(device, HOIST__STAGING, &memory);
	return err < 0 ? err : hoist__memory_pool(memory, ret);
}

int hoist_memory_of_device(hoist_device *device, int kind, hoist_memory **ret)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to ask for its memory is NULL");
	int buffers = hoist__device_is_cpu(device) ? HOIST_MEMORY_HOST : HOIST_MEMORY_DEVICE;
	hoist_memory *memory;
	int err;
	if (kind == HOIST_MEMORY_DEVICE || kind == buffers)
		err = use_memory(device, HOIST__BUFFERS, &memory);
	else if (kind == HOIST_MEMORY_GRAPH)
		err = use_memory(device, HOIST__GRAPHS, &memory);
	else if (kind == HOIST_MEMORY_PINNED)
		err = use_memory(device, HOIST__PINNED_BUFFERS, &memory);
	else
		err = hoist__fail(-EINVAL,
				  "no buffers of %s come from %s memory; ask for %s or pinned",
				  device->spec, hoist__memory_kind_text(kind),
				  hoist__memory_kind_text(buffers));
	if (err == 0)
		*ret = hoist_memory_ref(memory);
	return err;
}

/* The limit is 99 % of the free memory, unless the first opening set one. */
static uint64_t budget_bytes(const hoist_device *device, uint64_t free_memory)
{
	return device->memory_limit != 0 ? device->memory_limit
					 : hoist__max_u64(free_memory / 100 * 99, 1);
}

/* Asking the driver makes the device's context, so the budget is made only when memory is first
 * taken. */
static int make_budget(hoist_device *device, struct hoist__budget **ret)
{
	uint64_t bytes = 0;
	uint64_t total;
	int err = device->memory_limit == 0 ? hoist__dev_mem_info(device->dev, &bytes, &total) : 0;
	if (err < 0)
		return err;
	bytes = budget_bytes(device, bytes);
	hoist__log(alloc, "%s: device memory is limited to %s", device->spec,
		   hoist__figure(bytes).text);
	return hoist__budget_create(bytes, ret);
}

int hoist__device_budget(hoist_device *device, struct hoist__budget **ret)
{
	struct hoist__budget *known = atomic_load(&device->xbudget);
	if (known == NULL) {
		struct hoist__budget *made;
		int err = make_budget(device, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&device->xbudget, &known, made))
			known = made;
		else
			hoist__budget_unref(made);
	}
	*ret = known;
	return 0;
}

/* The limit that the budget has, or would get if memory were taken now.  Nothing is made: whoever
 * looks at the statistics must not decide the limit. */
static void look_at_budget(hoist_device *device, hoist_device_statistics *ret)
{
	struct hoist__budget *budget = atomic_load(&device->xbudget);
	if (budget == NULL) {
		ret->memory_limit = budget_bytes(device, ret->free_memory);
		return;
	}
	ret->memory_limit = hoist__budget_limit(budget);
	ret->limited = hoist__budget_used(budget);
	ret->limited_peak = hoist__budget_peak(budget);
}

/* Adds the bytes of one of the device's own resources; nothing if the resource was not made yet. */
static int add_statistics(hoist_device *device, enum hoist__device_memory use,
			  hoist_memory_statistics *sum)
{
	hoist_memory_statistics one = {.size = sizeof one};
	hoist_memory *memory = atomic_load(&device->xmemories[use]);
	int err = memory != NULL ? hoist_memory_get_statistics(memory, &one) : 0;
	sum->allocated_bytes += one.allocated_bytes;
	sum->reserved_bytes += one.reserved_bytes;
	return err;
}

int hoist_device_get_statistics(hoist_device *device, hoist_device_statistics *statistics)
{
	hoist_memory_statistics buffers = {0};
	hoist_memory_statistics pinned = {0};
	hoist_device_statistics known = {.size = sizeof known, .memory_limit = UINT64_MAX};
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to ask for its statistics is NULL");
	int err = hoist__dev_mem_info(device->dev, &known.free_memory, &known.total_memory);
	if (err == 0)
		err = add_statistics(device, HOIST__BUFFERS, &buffers);
	if (err == 0)
		err = add_statistics(device, HOIST__PINNED_BUFFERS, &pinned);
	if (err == 0)
		/* Staging slots are pinned, too. */
		err = add_statistics(device, HOIST__STAGING, &pinned);
	if (err < 0)
		return err;
	if (!hoist__device_is_cpu(device))
		look_at_budget(device, &known);
	known.used = buffers.allocated_bytes;
	known.cached = buffers.reserved_bytes - buffers.allocated_bytes;
	known.pinned = pinned.reserved_bytes;
	return hoist__options_out("hoist_device_statistics", statistics, &known, sizeof known);
}

void hoist__device_trim(hoist_device *device)
{
	(void)hoist__parked_sweep(device, true);
	hoist__lanes_drain(device);
	hoist_stream_unref(atomic_exchange(&device->xreturns, NULL));
	for (int i = 0; i < HOIST__N_USES; i++) {
		hoist_memory *memory = atomic_load(&device->xmemories[i]);
		if (memory != NULL)
			(void)hoist_memory_trim(memory, 0);
	}
}

/* --- waiting --- */

static int synchronize_unless_capturing(hoist_stream *stream, bool *captures)
{
	bool capturing = false;
	int err = 0;
	if (hoist__dev_stream_may_capture(stream->stream))
		err = hoist__dev_stream_capturing(stream->stream, &capturing);
	*captures = *captures || capturing;
	return err < 0 || capturing ? err : hoist__stream_drain(stream);
}

/* Waits for all streams of @device that this process made, except those that capture a graph, which
 * a wait would break.  *captures: there are such streams.  Returns: the first failure. */
static int synchronize_streams(hoist_device *device, bool *captures)
{
	struct hoist__failure failure;
	int first = 0;
	*captures = false;
	const uint64_t last = hoist__streams_last();
	hoist_stream *stream = hoist__streams_next(device, 0, last);
	while (stream != NULL) {
		int err = synchronize_unless_capturing(stream, captures);
		if (err < 0 && first == 0) {
			first = err;
			hoist__failure_keep(&failure);
		}
		uint64_t id = stream->id;
		hoist_stream_unref(stream);
		stream = hoist__streams_next(device, id, last);
	}
	return first == 0 ? 0 : hoist__fail_again(first, &failure);
}

/* Streams know failures that the driver does not: those of functions that they called.  The driver
 * knows streams that we do not, but a wait for all of them breaks a capture. */
int hoist_device_synchronize(hoist_device *device)
{
	struct hoist__failure failure;
	bool captures = false;
	if (device == NULL)
		return hoist__fail(-EINVAL, "the device to wait for is NULL");
	int first = hoist__dev_check(device->dev);
	if (first == 0)
		first = synchronize_streams(device, &captures);
	if (first < 0)
		hoist__failure_keep(&failure);
	int err = captures ? 0 : hoist__dev_synchronize(device->dev);
	if (err == -EBUSY) /* a capture that began meanwhile, or is not ours */
		err = 0;
	(void)hoist__parked_sweep(device, false);
	if (first < 0)
		err = hoist__fail_again(first, &failure);
	return err < 0 ? hoist__fail_in(err, "work on %s", device->spec) : 0;
}
