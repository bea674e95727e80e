/* SPDX-License-Identifier: MIT */
/* Says what a load would read from where.
 * The contract is in hoist/forecast.h.
 *
 * The forecast has a load of its own that is planned and never started.  It goes through the chunks
 * as the pump would, disk by disk, and asks for the way of each; it submits none of them. */
#include "config.h"

#include "hoist/forecast.h"

#include <stdio.h>

#include "base/checked.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/load/load.h"
#include "lib/load/pump.h"
#include "lib/memory/budget.h"
#include "numa/group.h"

_Static_assert(HOIST_FORECAST_TARGETS == HOIST__LOAD_TARGETS, "a target of each load has a place");

/* --- reads --- */

struct forecast {
	struct hoist_load *load;
	hoist_forecast is;
	struct hoist__resident_window window; /* of the disk that is looked at */
	bool slow_direct;		      /* the file system is read through the page cache */
};

/* The sizes that slots would have now.  A load that finds less of its budget free than it needs
 * waits for that. */
static void size_slots(struct forecast *f)
{
	struct hoist_load *load = f->load;
	struct hoist__staging_options options = {0};
	struct hoist__budget *budget = hoist__budget_of(load->job.budget);
	hoist__pump_size_staging(load, &options);
	size_t room = hoist__budget_limit(budget) - hoist__budget_used(budget);
	room = hoist__max_u64(room, 2 * options.slot_bytes_least);
	f->is.n_slots = hoist__staging_fit(&options, room, &f->is.slot_bytes);
	load->staged_bytes = (size_t)hoist__round_down(f->is.slot_bytes, load->plan.align);
}

static const struct hoist__file *file_of(const struct forecast *f, size_t extent)
{
	return f->load->checkpoint->files[f->load->plan.extents[extent].file].file;
}

/* Counts what the page cache holds of [@offset, @offset + @bytes). */
static void count_resident(struct forecast *f, size_t extent, uint64_t offset, uint64_t bytes)
{
	const struct hoist__file *file = file_of(f, extent);
	uint64_t resident = 0;
	uint64_t end = hoist__max_u64(f->load->plan.extents[extent].end, offset + bytes);
	bool known =
		hoist__file_resident_ahead(file, &f->window, offset, bytes, end, &resident) == 0;
	f->is.residency = f->is.residency && known;
	f->is.resident_bytes += known ? hoist__min_u64(resident, bytes) : 0;
}

static void look_at_part(struct forecast *f, struct hoist__load_disk *disk, uint64_t offset)
{
	const struct hoist__chunk *chunk = &disk->next;
	const struct hoist__file *file = file_of(f, chunk->extent);
	struct hoist__way way = hoist__pump_choose_way(f->load, disk, chunk, offset);
	f->slow_direct = f->slow_direct || (file->direct_fd >= 0 && !file->fs->direct);
	if (way.direct)
		f->is.direct_bytes += hoist__min_u64(chunk->bytes, file->bytes - offset);
	else
		f->is.cached_bytes += chunk->need;
	count_resident(f, chunk->extent, offset, chunk->need);
	f->is.n_reads++;
}

static void look_at_chunk(struct forecast *f, struct hoist__load_disk *disk)
{
	const struct hoist__chunk *chunk = &disk->next;
	const struct hoist__plan_extent *extent = &f->load->plan.extents[chunk->extent];
	bool slot = extent->staged && !(disk->straight && f->load->to_host);
	if (extent->mapped)
		return;
	if (slot)
		f->is.staged_bytes += chunk->useful;
	else
		f->is.straight_bytes += chunk->useful;
	if (disk->straight) {
		f->is.cached_bytes += chunk->useful;
		f->is.resident_bytes += chunk->useful;
		f->is.n_reads++;
		f->load->routes.straight++;
		return;
	}
	for (unsigned part = 0; part < chunk->n_parts; part++)
		look_at_part(f, disk, chunk->offset + part * chunk->part_stride);
}

/* Makes the disk's next chunk known; slots come with the first chunk that needs one. */
static bool next_chunk(struct forecast *f, unsigned disk)
{
	if (hoist__pump_has_chunk(f->load, disk))
		return true;
	if (!f->load->needs_slots)
		return false;
	f->load->needs_slots = false;
	size_slots(f);
	return hoist__pump_has_chunk(f->load, disk);
}

/* Returns: 0; -EDQUOT. */
static int look_at_reads(struct forecast *f)
{
	struct hoist_load *load = f->load;
	if (load->maps || load->plan.n_extents == 0)
		return 0;
	hoist__pump_find_disks(load);
	int err = hoist__pump_check_budget(load);
	if (err < 0)
		return err;
	if (hoist__pump_begins_with_slots(load))
		size_slots(f);
	for (unsigned d = 0; d < load->disk_table.n; d++) {
		f->window = (struct hoist__resident_window){0};
		while (next_chunk(f, d)) {
			look_at_chunk(f, &load->disks[d]);
			load->disks[d].has_next = false;
		}
	}
	return 0;
}

static void look_at_maps(struct forecast *f)
{
	const struct hoist__plan *plan = &f->load->plan;
	f->window = (struct hoist__resident_window){0};
	for (size_t e = 0; e < plan->n_extents; e++) {
		const struct hoist__plan_extent *extent = &plan->extents[e];
		if (!f->load->maps && !extent->mapped)
			continue;
		f->is.mapped_bytes += extent->end - extent->begin;
		count_resident(f, e, extent->begin, extent->end - extent->begin);
	}
}

/* --- what the plan says --- */

static uint64_t converted_bytes(const struct hoist_load *load)
{
	uint64_t bytes = 0;
	for (size_t i = 0; i < load->plan.n_tensors; i++) {
		const struct hoist__plan_tensor *tensor = &load->plan.tensors[i];
		hoist_dtype from = hoist__load_entry(load, i)->tensor->dtype;
		if (tensor->dtype != from && tensor->like == i)
			bytes += tensor->bytes / (hoist_dtype_bits(tensor->dtype) / 8) *
				 (hoist_dtype_bits(from) / 8);
	}
	return bytes;
}

/* The bytes of memory of a target's lots. */
static uint64_t destination_bytes(const struct hoist_load *load, const struct hoist__target *target)
{
	const struct hoist__plan *plan = &load->plan;
	uint64_t bytes = 0;
	uint64_t largest = 0;
	uint64_t window = load->options.window_bytes;
	if (load->maps)
		return 0;
	for (size_t lot = 0; lot < plan->n_lots; lot++) {
		if (plan->lots[lot].want != target->want || plan->lots[lot].in_place)
			continue;
		bytes += plan->lots[lot].bytes;
		largest = hoist__max_u64(largest, plan->lots[lot].bytes);
	}
	/* Only a load with one target and one lot is adaptive.  Mapped pages are the page cache's.
	 */
	for (size_t e = 0; e < plan->n_extents; e++)
		if (plan->extents[e].mapped)
			bytes -= plan->extents[e].end -
				 hoist__round_down(plan->extents[e].begin, plan->extents[e].align);
	return window == 0 ? bytes : hoist__min_u64(bytes, hoist__max_u64(window, largest));
}

/* The memory that the device has free, with what hoist keeps for the next buffers.  Returns: 0; as
 * hoist_device_get_statistics(). */
static int free_bytes(const struct hoist__target *target, uint64_t *ret)
{
	hoist_device_statistics has = {.size = sizeof has, .memory_limit = UINT64_MAX};
	struct hoist__group group;
	int err = hoist_device_get_statistics(target->device, &has);
	if (err == -ENOTSUP && target->to_host)
		has.free_memory = UINT64_MAX; /* there is no /proc that would say */
	else if (err < 0)
		return err;
	*ret = hoist__min_u64(has.free_memory, has.memory_limit - has.limited);
	if (target->to_host && hoist__group_look("", &group) == 0)
		*ret = hoist__min_u64(*ret, group.left_bytes);
	*ret += hoist__min_u64(has.cached, UINT64_MAX - *ret);
	return 0;
}

/* Returns: 0; as hoist_device_get_statistics(). */
static int look_at_target(struct forecast *f, size_t t)
{
	const struct hoist__target *target = &f->load->targets[t];
	hoist_forecast_target *is = &f->is.targets[t];
	int err = free_bytes(target, &is->free_bytes);
	if (err < 0)
		return err;
	(void)snprintf(is->device, sizeof is->device, "%s", hoist_device_spec(target->device));
	is->emulated = hoist__dev_props(hoist__device_dev(target->device))->emulated;
	is->n_tensors = f->load->plan.wants[target->want].n_tensors;
	is->bytes = destination_bytes(f->load, target);
	uint64_t taken = 0;
	for (size_t like = 0; like <= t; like++)
		if (f->load->targets[like].device == target->device)
			taken += f->is.targets[like].bytes;
	f->is.fits = f->is.fits && taken <= is->free_bytes;
	f->is.n_targets++;
	return 0;
}

static void describe(struct forecast *f)
{
	const struct hoist__routes *routes = &f->load->routes;
	const char *rule = f->load->maps ? "mapped, as asked" : hoist__load_io_rule(f->load);
	const char *but = "";
	const char *note = "";
	if (f->load->maps || f->load->plan.n_extents == 0) {
		but = ""; /* nothing is read */
	} else if (routes->no_direct > 0) {
		but = "; not direct: ";
		note = routes->note != NULL ? routes->note : "a file refuses direct reads";
	} else if (f->slow_direct) {
		but = "; not direct: this file system is faster through the page cache";
	} else if (routes->unknown > 0) {
		but = "; direct because the kernel does not say what is cached";
	}
	(void)snprintf(f->is.io_reason, sizeof f->is.io_reason, "%s%s%s", rule, but, note);
}

static int look(struct forecast *f)
{
	const struct hoist_load *load = f->load;
	f->is.bytes = load->plan.bytes;
	f->is.n_tensors = load->plan.n_tensors;
	f->is.n_files = load->n_files;
	f->is.converted_bytes = converted_bytes(load);
	f->is.budget_bytes = hoist__budget_limit(hoist__budget_of(load->job.budget));
	int err = look_at_reads(f);
	for (size_t t = 0; err == 0 && t < load->n_targets; t++)
		err = look_at_target(f, t);
	if (err < 0)
		return err;
	look_at_maps(f);
	describe(f);
	return 0;
}

int hoist_load_forecast(hoist_checkpoint *checkpoint, const hoist_load_options *options,
			hoist_forecast *ret)
{
	struct hoist__load_asked asked = {0};
	struct forecast f = {.is = {.fits = 1, .residency = 1}};
	int err = hoist__options_check("hoist_forecast", ret, sizeof f.is);
	if (err == 0)
		err = hoist__load_plan(checkpoint, options, &asked, &f.load);
	if (err < 0)
		return err;
	err = look(&f);
	hoist__load_free(f.load);
	return err < 0 ? err : hoist__options_out("hoist_forecast", ret, &f.is, sizeof f.is);
}
