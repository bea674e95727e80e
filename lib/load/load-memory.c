/* SPDX-License-Identifier: MIT */
/* The memory of a load's destination, lot by lot.
 * The contract is in lib/load/load.h. */
#include "config.h"

#include <stdlib.h>

#include "alloc/pool.h"
#include "base/checked.h"
#include "lib/buffer/portions.h"
#include "lib/load/load.h"
#include "lib/memory/device-memory.h"
#include "lib/plan/adaptive.h"

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

/* --- lots with memory of their own --- */

/* Without an image, all of the lot's bytes come through slots, and the threads that settle slots
 * make its pages. */
static bool is_settled(const struct hoist_load *load, const struct hoist__target *target,
		       size_t lot)
{
	const struct hoist__plan_lot *planned = &load->plan.lots[lot];
	return target->has_fresh && !planned->has_image && planned->bytes >= POPULATE_BYTES;
}

/* Blocks for the caller's stream are taken and given back in its order, so that a block that was
 * dropped on that stream is there at once. */
int hoist__load_take_lot(struct hoist_load *load, struct hoist__target *target, size_t lot)
{
	const struct hoist__plan_lot *planned = &load->plan.lots[lot];
	if (planned->in_place)
		return hoist__storage_none(target->device, &target->storages[lot]);
	bool split = (load->options.flags & HOIST__LOAD_SPLITS) != 0;
	bool settled = is_settled(load, target, lot);
	size_t align = settled		 ? HOIST__HUGE_PAGE_BYTES
		       : split		 ? (size_t)planned->align
		       : target->to_host ? (size_t)load->plan.align
					 : HOIST__LOAD_MAX_ALIGN;
	hoist_stream *stream = target->shares_stream ? target->stream : NULL;
	return hoist__storage_create(target->memory, stream, (size_t)planned->bytes, align,
				     settled ? HOIST__STORAGE_UNPOPULATED : 0,
				     &target->storages[lot]);
}

/* Pages that are not populated here are faulted in later, so room for them is made now, while a
 * lack of it can still be an error. */
static int make_room(const struct hoist_load *load)
{
	uint64_t bytes = 0;
	for (size_t t = 0; t < load->n_targets; t++)
		for (size_t lot = 0; lot < load->plan.n_lots; lot++)
			if (load->plan.lots[lot].want == load->targets[t].want &&
			    is_settled(load, &load->targets[t], lot))
				bytes += load->plan.lots[lot].bytes;
	return bytes > 0 ? hoist__pools_make_room(bytes, "host memory") : 0;
}

/* --- lots in one block --- */

/* A lot begins with a huge page if no more than such a part of it is lost: then no two lots share
 * one, and the lot's pages are made and given back as a whole. */
#define HUGE_LOSS 16u

/* Gives each lot its place in the block.  Returns: the block's bytes; 0 if they exceed 63 bits. */
static uint64_t lay_lots(struct hoist_load *load)
{
	uint64_t bytes = 0;
	for (size_t lot = 0; lot < load->plan.n_lots && bytes <= INT64_MAX; lot++) {
		const struct hoist__plan_lot *planned = &load->plan.lots[lot];
		uint64_t huge = hoist__round_up(bytes, HOIST__HUGE_PAGE_BYTES);
		bool apart = huge - bytes <= planned->bytes / HUGE_LOSS;
		load->lots[lot].at = apart ? huge : hoist__round_up(bytes, planned->align);
		bytes = load->lots[lot].at + planned->bytes;
	}
	return bytes <= INT64_MAX ? bytes : 0;
}

/* Gives each lot its portion of the block. */
static int divide(struct hoist_load *load, size_t bytes, struct hoist__storage **storages)
{
	size_t n = load->plan.n_lots;
	struct hoist__portions *portions = NULL;
	struct hoist__portion_range *ranges = calloc(n, sizeof *ranges);
	if (ranges == NULL)
		return hoist__fail_nomem("a load", n * sizeof *ranges);
	for (size_t lot = 0; lot < n; lot++) {
		ranges[lot].begin = (size_t)load->lots[lot].at;
		ranges[lot].end = lot + 1 < n ? (size_t)load->lots[lot + 1].at : bytes;
	}
	int err = hoist__portions_create(load->fresh, ranges, n, &portions);
	for (size_t lot = 0; err == 0 && lot < n; lot++) {
		struct hoist__storage *portion;
		size_t begin;
		err = hoist__portions_take(portions, ranges[lot].begin, &portion, &begin);
		if (err == 0)
			storages[lot] = hoist__storage_ref(portion);
	}
	hoist__portions_close(portions);
	free(ranges);
	return err;
}

/* Takes one block for all lots, where its pages can go back lot by lot.  A block that cannot shrink
 * is given back, and lots take memory of their own. */
static int take_fresh(struct hoist_load *load, struct hoist__target *target)
{
	size_t n = load->plan.n_lots;
	size_t bytes = (size_t)lay_lots(load);
	if (load->n_targets > 1 || !target->has_fresh || bytes < POPULATE_BYTES)
		return 0;
	int err = hoist__pools_make_room(bytes, "host memory");
	if (err == 0)
		err = hoist__storage_create(
			target->memory, NULL, bytes, HOIST__HUGE_PAGE_BYTES,
			load->pages.populate == NULL ? HOIST__STORAGE_UNPOPULATED : 0,
			&load->fresh);
	if (err < 0)
		return err;
	if (n == 1) {
		target->storages[0] = hoist__storage_ref(load->fresh);
		return 0;
	}
	if (hoist__storage_can_shrink(load->fresh))
		return divide(load, bytes, target->storages);
	hoist__storage_unref(load->fresh);
	load->fresh = NULL;
	return 0;
}

static int allocate_on(struct hoist_load *load, struct hoist__target *target, hoist_memory *memory)
{
	const struct hoist__plan *plan = &load->plan;
	int err = 0;
	target->storages = calloc(plan->n_lots, sizeof(struct hoist__storage *));
	if (target->storages == NULL)
		return hoist__fail_nomem("a load", plan->n_lots * sizeof(struct hoist__storage *));
	if (load->n_maps > 0) {
		err = hoist__adaptive_allocate(load->checkpoint, &load->plan, target->device,
					       &load->n_maps, &target->storages[0]);
		load->fresh = err == 0 ? hoist__storage_ref(target->storages[0]) : NULL;
		return err;
	}
	if (memory == NULL)
		err = hoist__device_buffers(target->device, false, &memory);
	if (err == 0)
		target->memory = hoist_memory_ref(memory);
	if (err == 0)
		err = take_fresh(load, target);
	bool now = load->options.window_bytes == 0;
	for (size_t lot = 0; err == 0 && now && lot < plan->n_lots; lot++)
		if (plan->lots[lot].want == target->want && target->storages[lot] == NULL)
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

int hoist__load_check_memory(const struct hoist_load *load, const struct hoist__load_asked *asked)
{
	int err = 0;
	for (size_t t = 0; err == 0 && t < load->n_targets; t++)
		if (asked->targets[t].memory != NULL)
			err = check_memory(&load->targets[t], asked->targets[t].memory);
	return err;
}

int hoist__load_allocate(struct hoist_load *load, const struct hoist__load_asked *asked)
{
	if (load->maps)
		return hoist__mapped_open(load);
	int err = make_lots(load);
	/* The threads that write to the memory make its pages.  Memory of a caller's resource may
	 * have them already, unless the caller says otherwise. */
	for (size_t t = 0; t < load->n_targets; t++)
		load->targets[t].has_fresh =
			load->targets[t].to_host &&
			(asked->targets[t].memory == NULL || load->pages.populate != NULL) &&
			load->options.window_bytes == 0;
	if (err == 0 && load->n_targets > 1)
		err = make_room(load);
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
	hoist__storage_unref(load->fresh);
	for (size_t t = 0; t < load->n_targets; t++)
		drop_target(load, &load->targets[t]);
	free(load->targets);
}
