/* SPDX-License-Identifier: MIT */
/* The memory of a load's destination, lot by lot.
 * The contract is in lib/load/load.h. */
#include "config.h"

#include <stdlib.h>

#include "alloc/pool.h"
#include "base/checked.h"
#include "lib/load/load.h"
#include "lib/memory/device-memory.h"

/* From this size on, populating fresh memory while it is read into pays for its threads. */
#define POPULATE_BYTES ((uint64_t)8 << 20)

static int check_memory(const struct hoist__target *target, hoist_memory *memory)
{
	hoist_memory_info info = {.size = sizeof info};
	int err = hoist_memory_get_info(memory, &info);
	if (err < 0)
		return err;
	if (target->to_host && !info.is_host_accessible)
		return hoist__fail(-EINVAL,
				   "the load goes to the CPU, which cannot address the memory of "
				   "the resource \"%s\"; choose host memory, or load to its device",
				   info.name);
	if (!target->to_host && info.device != target->device)
		return hoist__fail(-EINVAL,
				   "the load goes to %s, and the resource \"%s\" has memory of %s; "
				   "both must be of one device",
				   hoist_device_spec(target->device), info.name,
				   hoist_device_spec(info.device));
	return 0;
}

/* Blocks for the caller's stream are taken and given back in its order, so that a block that was
 * dropped on that stream is there at once. */
int hoist__load_take_lot(struct hoist_load *load, struct hoist__target *target, size_t lot)
{
	const struct hoist__plan_lot *planned = &load->plan.lots[lot];
	if (planned->in_place)
		return hoist__storage_none(target->device, &target->storages[lot]);
	bool split = (load->options.flags & HOIST__LOAD_SPLITS) != 0;
	size_t align = load->populates	 ? HOIST__HUGE_PAGE_BYTES
		       : split		 ? (size_t)planned->align
		       : target->to_host ? (size_t)load->plan.align
					 : HOIST__LOAD_MAX_ALIGN;
	hoist_stream *stream = target->shares_stream ? target->stream : NULL;
	return hoist__storage_create(target->memory, stream, (size_t)planned->bytes, align,
				     load->populates ? HOIST__STORAGE_UNPOPULATED : 0,
				     &target->storages[lot]);
}

static int allocate_on(struct hoist_load *load, struct hoist__target *target, hoist_memory *memory)
{
	const struct hoist__plan *plan = &load->plan;
	int err = 0;
	target->storages = calloc(plan->n_lots, sizeof(struct hoist__storage *));
	if (target->storages == NULL)
		return hoist__fail_nomem("a load", plan->n_lots * sizeof(struct hoist__storage *));
	if (load->n_maps > 0)
		return hoist__adaptive_allocate(load, &target->storages[0]);
	/* Pages that are not populated here are faulted in by the reads, so room for them is made
	 * now, while a lack of it can still be an error. */
	if (load->populates)
		err = hoist__pools_make_room(plan->lots[0].bytes, "host memory");
	if (err == 0 && memory == NULL)
		err = hoist__device_buffers(target->device, false, &memory);
	if (err == 0)
		target->memory = hoist_memory_ref(memory);
	bool now = load->options.window_bytes == 0;
	for (size_t lot = 0; err == 0 && now && lot < plan->n_lots; lot++)
		if (plan->lots[lot].want == target->want)
			err = hoist__load_take_lot(load, target, lot);
	if (err < 0)
		return hoist__fail_in(err, "the destination of %zu tensors on %s",
				      plan->wants[target->want].n_tensors,
				      hoist_device_spec(target->device));
	return 0;
}

static int make_lots(struct hoist_load *load)
{
	size_t n = load->plan.n_lots;
	load->lots = calloc(n > 0 ? n : 1, sizeof *load->lots);
	if (load->lots == NULL)
		return hoist__fail_nomem("a load", n * sizeof *load->lots);
	for (size_t lot = 0; lot < n; lot++)
		load->lots[lot].left = load->plan.lots[lot].useful;
	return 0;
}

int hoist__load_allocate(struct hoist_load *load, const struct hoist__load_asked *asked)
{
	if (load->maps)
		return hoist__mapped_open(load);
	/* The threads that write to the memory make its pages.  Memory of a caller's resource may
	 * have them already. */
	bool fresh = load->to_host && load->n_targets == 1 && asked->targets[0].memory == NULL &&
		     load->options.window_bytes == 0 && load->plan.n_lots == 1;
	load->populates = load->n_maps > 0 || (fresh && load->plan.lots[0].bytes >= POPULATE_BYTES);
	int err = 0;
	for (size_t t = 0; err == 0 && t < load->n_targets; t++)
		if (asked->targets[t].memory != NULL)
			err = check_memory(&load->targets[t], asked->targets[t].memory);
	if (err == 0)
		err = make_lots(load);
	for (size_t t = 0; err == 0 && t < load->n_targets; t++)
		err = allocate_on(load, &load->targets[t], asked->targets[t].memory);
	return err;
}

static void drop_target(const struct hoist_load *load, struct hoist__target *target)
{
	hoist__portions_close(atomic_load(&target->portions));
	for (size_t lot = 0; target->storages != NULL && lot < load->plan.n_lots; lot++)
		hoist__storage_unref(target->storages[lot]);
	free((void *)target->storages);
	hoist_memory_unref(target->memory);
	hoist_stream_unref(target->stream);
	hoist_device_unref(target->device);
}

void hoist__load_drop_targets(struct hoist_load *load)
{
	hoist__checkpoint_map_close(load->map);
	for (size_t t = 0; t < load->n_targets; t++)
		drop_target(load, &load->targets[t]);
	free(load->targets);
}
