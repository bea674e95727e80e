/* SPDX-License-Identifier: MIT */
/* Chunks with bytes that come from the load's source: asks, copies, ends.
 * The contracts are in lib/load/source.h and lib/load/pump.h. */
#include "config.h"

#include "alloc/region.h"
#include "base/assert.h"
#include "lib/load/pump.h"

int hoist__load_walk(const struct hoist_load *load,
		     int (*visit)(void *context, const struct hoist__chunk *chunk), void *context)
{
	const struct hoist__plan *plan = &load->plan;
	struct hoist__cursor cursor = {0};
	struct hoist__chunk chunk;
	int err = 0;
	while (err == 0 && cursor.extent < plan->n_extents) {
		const struct hoist__plan_extent *extent = &plan->extents[cursor.extent];
		unsigned disk = hoist__pump_disk_of(load, extent->file);
		size_t most = extent->staged ? load->staged_bytes : load->disks[disk].image_bytes;
		if (!hoist__plan_next(plan, most, &cursor, &chunk))
			break;
		err = visit(context, &chunk);
	}
	return err;
}

bool hoist__pump_source_admits(struct hoist_load *load, unsigned index)
{
	struct hoist__load_disk *disk = &load->disks[index];
	disk->sourced = false;
	if (load->source == NULL)
		return true;
	enum hoist__load_source_state state = load->source->ops->look(load->source, &disk->next);
	disk->sourced = state == HOIST__SOURCE_READY;
	/* The thread that copies makes the pages, as it does for hot images. */
	if (disk->sourced && !load->plan.extents[disk->next.extent].staged) {
		disk->way = (struct hoist__way){.hot = true};
		disk->has_way = true;
	}
	return state != HOIST__SOURCE_LATER;
}

/* --- from the source's memory to devices --- */

/* Tells whether all devices get the chunk's bytes as they are in the file, and the host none. */
static bool is_for_devices(const struct hoist_load *load, const struct hoist__flight *flight)
{
	bool host = load->to_host;
	for (size_t t = 0; t < load->n_targets; t++)
		host = host || load->targets[t].to_host;
	return !host && flight->chunk.n_parts == 1 && flight->chunk.laid == 0 &&
	       !load->plan.has_conversion;
}

void hoist__pump_reach(struct hoist_load *load, struct hoist__flight *flight)
{
	struct hoist__load_source *source = load->source;
	if (!flight->sourced || source->ops->reach == NULL || !is_for_devices(load, flight))
		return;
	unsigned char *from = source->ops->reach(source, &flight->chunk);
	if (from == NULL)
		return;
	HOIST__ASSERT(hoist__pump_slot_offset(load, flight) == 0);
	flight->reached = true;
	flight->address = from;
	flight->slot->from = from;
}

void hoist__pump_reached(struct hoist_load *load, const struct hoist__flight *flight)
{
	HOIST__ASSERT(load->n_reached < hoist__staging_n_slots(load->job.staging));
	load->reached[load->n_reached++] = (struct hoist__reached){flight->slot, flight->chunk};
	load->reached_bytes += flight->chunk.useful;
}

void hoist__pump_land_reached(struct hoist_load *load)
{
	unsigned n = 0;
	for (unsigned i = 0; i < load->n_reached; i++) {
		const struct hoist__reached *reached = &load->reached[i];
		if (reached->slot->state == HOIST__SLOT_FREE)
			load->source->ops->landed(load->source, &reached->chunk);
		else
			load->reached[n++] = *reached;
	}
	load->n_reached = n;
}

/* --- by the crew --- */

/* Copies the foreign bytes of the flight's chunk.  A thread of the crew. */
static int copy_chunk(void *owner)
{
	const struct hoist__flight *flight = owner;
	const struct hoist_load *load = flight->load;
	struct hoist__load_source *source = load->source;
	const struct hoist__chunk *chunk = &flight->chunk;
	size_t file = load->plan.extents[chunk->extent].file;
	int err = 0;
	if (flight->slot == NULL && load->fresh != NULL)
		err = hoist__populate(flight->address, chunk->need) < 0 ? -ENOMEM : 0;
	for (unsigned part = 0; part < chunk->n_parts && err == 0; part++) {
		uint64_t offset = chunk->offset + part * chunk->part_stride;
		unsigned char *to = flight->address + part * chunk->bytes;
		for (size_t at = 0, n; at < chunk->need && err == 0; at += n) {
			bool foreign = false;
			n = source->ops->alike(source, file, offset + at, chunk->need - at,
					       &foreign);
			if (foreign)
				err = source->ops->copy(source, file, offset + at, n, to + at);
		}
	}
	return err;
}

unsigned hoist__pump_fill_sourced(struct hoist_load *load, struct hoist__flight *flight,
				  struct hoist__request **batch)
{
	struct hoist__load_source *source = load->source;
	const struct hoist__chunk *chunk = &flight->chunk;
	struct hoist__load_disk *disk = &load->disks[flight->disk];
	size_t file = load->plan.extents[chunk->extent].file;
	unsigned n_requests = 0;
	for (unsigned part = 0; part < chunk->n_parts; part++) {
		uint64_t offset = chunk->offset + part * chunk->part_stride;
		for (size_t at = 0, n; at < chunk->need; at += n) {
			bool foreign = false;
			n = source->ops->alike(source, file, offset + at, chunk->need - at,
					       &foreign);
			if (!foreign)
				batch[n_requests++] =
					hoist__pump_fill_part(load, flight, part, at, n);
		}
	}
	HOIST__ASSERT(n_requests <= chunk->n_parts && n_requests < load->n_parts);
	struct hoist__request *work = &flight->requests[load->n_parts - 1];
	*work = (struct hoist__request){
		.file = load->checkpoint->files[file].file,
		.buffer = -1,
		.work = copy_chunk,
		.owner = flight,
	};
	batch[n_requests++] = work;
	disk->n_requests += n_requests;
	disk->n_requests -= flight->n_open;
	flight->n_open = n_requests;
	return n_requests;
}

bool hoist__pump_source_ends(struct hoist_load *load, bool whole)
{
	if (load->source == NULL || load->job.phase != HOIST__JOB_RUNNING)
		return true;
	int ended = load->source->ops->step(load->source, whole);
	if (ended < 0)
		hoist__job_fail(&load->job, ended);
	return ended == 1;
}
