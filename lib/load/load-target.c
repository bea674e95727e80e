/* SPDX-License-Identifier: MIT */
/* The targets of a load: devices with their streams, and the memory on each device.
 * The contract is in lib/load/load.h. */
#include "config.h"

#include <stdlib.h>

#include "alloc/pool.h"
#include "base/checked.h"
#include "lib/device/device.h"
#include "lib/load/load.h"
#include "lib/memory/device-memory.h"

/* --- devices --- */

static int own_stream(struct hoist__target *target)
{
	return hoist_stream_create(target->device, &target->stream);
}

/* Takes the device of the options, or the device of the options' stream; else the CPU. */
static int take_first(struct hoist_load *load, const hoist_load_options *o)
{
	struct hoist__target *first = &load->targets[0];
	int err = 0;
	load->n_targets = 1;
	if (o->device != NULL)
		first->device = hoist_device_ref(o->device);
	else if (o->stream != NULL)
		first->device = hoist_device_ref(hoist_stream_device(o->stream));
	else
		err = hoist_device_open("cpu", &first->device);
	if (err < 0)
		return err;
	load->to_host = hoist__device_is_cpu(first->device);
	load->maps = load->to_host && o->io == HOIST_IO_MAP;
	if (load->to_host)
		return 0;
	if (o->stream != NULL) {
		first->stream = hoist_stream_ref(o->stream);
		return 0;
	}
	return own_stream(first);
}

/* One slot is copied to all targets, so the slot's memory must be pinned for all of them. */
static int check_replica(const struct hoist_load *load, hoist_device *device, size_t index)
{
	if (device == NULL)
		return hoist__fail(-EINVAL, "replicas[%zu] is NULL", index);
	hoist_device *first = load->targets[0].device;
	if (load->to_host ||
	    hoist__dev_api(hoist__device_dev(device)) != hoist__dev_api(hoist__device_dev(first)))
		return hoist__fail(-ENOTSUP,
				   "replica %zu on %s of a load to %s: a load and its replicas go "
				   "to accelerators of one API; load twice instead",
				   index, hoist_device_spec(device), hoist_device_spec(first));
	for (size_t t = 0; t < load->n_targets; t++)
		if (load->targets[t].device == device)
			return hoist__fail(-EINVAL,
					   "replica %zu on %s: the load goes to that device "
					   "already; name each device once",
					   index, hoist_device_spec(device));
	return 0;
}

static int add_replica(struct hoist_load *load, hoist_device *device, size_t index)
{
	int err = check_replica(load, device, index);
	if (err < 0)
		return err;
	struct hoist__target *target = &load->targets[load->n_targets++];
	target->device = hoist_device_ref(device);
	return own_stream(target);
}

int hoist__load_take_devices(struct hoist_load *load, const hoist_load_options *o)
{
	if (o->n_replicas >= HOIST__STAGING_MAX_STREAMS)
		return hoist__fail(-EINVAL, "n_replicas is %zu; a load has at most %u replicas",
				   o->n_replicas, HOIST__STAGING_MAX_STREAMS - 1);
	load->targets = calloc(1 + o->n_replicas, sizeof *load->targets);
	if (load->targets == NULL)
		return hoist__fail_nomem("a load", (1 + o->n_replicas) * sizeof *load->targets);
	int err = take_first(load, o);
	for (size_t r = 0; err == 0 && r < o->n_replicas; r++)
		err = add_replica(load, o->replicas[r], r);
	return err;
}

/* --- memory --- */

/* From this size on, populating fresh memory ahead of the reads pays for its threads. */
#define POPULATE_BYTES ((uint64_t)8 << 20)

static int check_memory(const struct hoist_load *load, hoist_memory *memory)
{
	hoist_memory_info info = {.size = sizeof info};
	int err = hoist_memory_get_info(memory, &info);
	if (err < 0)
		return err;
	if (load->to_host && !info.is_host_accessible)
		return hoist__fail(-EINVAL,
				   "the load goes to the CPU, which cannot address the memory of "
				   "the resource \"%s\"; choose host memory, or load to its device",
				   info.name);
	if (!load->to_host && info.device != load->targets[0].device)
		return hoist__fail(-EINVAL,
				   "the load goes to %s, and the resource \"%s\" has memory of %s; "
				   "both must be of one device",
				   hoist_device_spec(load->targets[0].device), info.name,
				   hoist_device_spec(info.device));
	return 0;
}

static int allocate_on(struct hoist_load *load, struct hoist__target *target, hoist_memory *memory)
{
	bool unpopulated = load->populates;
	size_t align = unpopulated     ? HOIST__HUGE_PAGE_BYTES
		       : load->to_host ? (size_t)load->plan.align
				       : HOIST__LOAD_MAX_ALIGN;
	int err = 0;
	/* Pages that are not populated here are faulted in by the reads, so room for them is made
	 * now, while a lack of it can still be an error. */
	if (unpopulated)
		err = hoist__pools_make_room(load->plan.destination_bytes, "host memory");
	if (err == 0 && memory == NULL)
		err = hoist__device_buffers(target->device, false, &memory);
	if (err == 0)
		err = hoist__storage_create(memory, NULL, (size_t)load->plan.destination_bytes,
					    align, unpopulated ? HOIST__STORAGE_UNPOPULATED : 0,
					    &target->storage);
	if (err < 0)
		return hoist__fail_in(err, "the destination of %zu tensors on %s",
				      load->plan.n_tensors, hoist_device_spec(target->device));
	return 0;
}

int hoist__load_allocate(struct hoist_load *load)
{
	hoist_memory *memory = load->options.memory;
	if (load->maps)
		return hoist__mapped_open(load);
	/* Only images are read in order, so only they gain from populating ahead.  Memory of a
	 * caller's resource may have its pages already. */
	load->populates = load->to_host && memory == NULL && load->plan.has_images &&
			  load->plan.destination_bytes >= POPULATE_BYTES;
	int err = memory != NULL ? check_memory(load, memory) : 0;
	for (size_t t = 0; err == 0 && t < load->n_targets; t++)
		err = allocate_on(load, &load->targets[t], t == 0 ? memory : NULL);
	return err;
}

void hoist__load_drop_targets(struct hoist_load *load)
{
	hoist__load_map_close(load->map);
	for (size_t t = 0; t < load->n_targets; t++) {
		hoist__storage_unref(load->targets[t].storage);
		hoist_stream_unref(load->targets[t].stream);
		hoist_device_unref(load->targets[t].device);
	}
	free(load->targets);
}
