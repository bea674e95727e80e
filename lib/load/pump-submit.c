/* SPDX-License-Identifier: MIT */
/* Turns chunks of the plan into requests, and submits them to the engine.
 * The contract is in lib/load/pump.h. */
#include "config.h"

#include "base/assert.h"
#include "base/checked.h"
#include "lib/load/give.h"
#include "lib/load/pump.h"

_Static_assert(HOIST__PUMP_BATCH >= HOIST__LOAD_PARTS, "a batch has room for all parts of a chunk");

static struct hoist__way go_cached(const struct hoist_load *load, const struct hoist__file *file,
				   bool known, uint64_t resident, size_t bytes)
{
	enum hoist_io io = load->options.io;
	bool asked = io == HOIST_IO_CACHED || io == HOIST_IO_MAP;
	bool empty = known && resident == 0;
	return (struct hoist__way){.hot = known && resident >= bytes,
				   .drop = !asked && (empty || file->dontcache)};
}

/* A range of which nine tenths are in the page cache is copied from there, as memory is quicker
 * than a disk.  Other ranges are read directly, where the file system gains by that. */
struct hoist__way hoist__pump_choose_way(struct hoist_load *load, struct hoist__load_disk *disk,
					 const struct hoist__chunk *chunk, uint64_t offset)
{
	enum hoist_io io = load->options.io;
	size_t bytes = chunk->need;
	const struct hoist__plan_extent *extent = &load->plan.extents[chunk->extent];
	const struct hoist__file *file = load->checkpoint->files[extent->file].file;
	if (io == HOIST_IO_DIRECT && file->direct_fd >= 0)
		return (struct hoist__way){.direct = true};
	uint64_t resident = 0;
	bool known = hoist__file_resident_ahead(file, &disk->window, offset, bytes, extent->end,
						&resident) == 0;
	if (file->direct_fd < 0) {
		load->routes.no_direct++;
		load->routes.note = file->direct_note;
	}
	/* Where direct reads are slower, they are made only on request. */
	bool chooses = io == HOIST_IO_AUTO || io == HOIST_IO_ADAPTIVE;
	if (file->direct_fd < 0 || !chooses || !file->fs->direct)
		return go_cached(load, file, known, resident, bytes);
	if (!known) {
		load->routes.unknown++;
		return (struct hoist__way){.direct = true};
	}
	/* A direct read that falls back to the cache leaves no pages there, either. */
	if (resident < bytes - bytes / 10)
		return (struct hoist__way){.direct = true, .drop = resident == 0};
	load->routes.resident++;
	return go_cached(load, file, known, resident, bytes);
}

static const struct hoist__file *file_of(const struct hoist_load *load,
					 const struct hoist__chunk *chunk)
{
	return load->checkpoint->files[load->plan.extents[chunk->extent].file].file;
}

/* Makes the request of part @part of the flight's chunk.  The way of an image was chosen before its
 * pages were asked for. */
static struct hoist__request *fill_request(struct hoist_load *load, struct hoist__flight *flight,
					   unsigned part)
{
	const struct hoist__chunk *chunk = &flight->chunk;
	const struct hoist__file *file = file_of(load, chunk);
	struct hoist__request *request = &flight->requests[part];
	uint64_t offset = chunk->offset + part * chunk->part_stride;
	HOIST__ASSERT(part < chunk->n_parts && chunk->need <= chunk->bytes);
	struct hoist__load_disk *disk = &load->disks[flight->disk];
	struct hoist__way way = flight->slot == NULL
					? disk->way
					: hoist__pump_choose_way(load, disk, chunk, offset);
	*request = (struct hoist__request){
		.file = file,
		.offset = offset,
		.address = flight->address + part * chunk->bytes,
		.bytes = way.direct ? chunk->bytes : chunk->need,
		.need = chunk->need,
		.direct = way.direct,
		.buffer = flight->slot != NULL ? flight->slot->request.buffer : -1,
		.hot = way.hot,
		.drop = way.drop,
		.owner = flight,
	};
	uintptr_t address = (uintptr_t)flight->address;
	if (flight->slot == NULL)
		hoist__pump_set_fresh(load, address, address + chunk->need, request);
	return request;
}

/* The rest of the chunk comes from the load's source, which decided the way of an image: this part
 * has a way of its own.  Sources divide files at multiples of each alignment. */
struct hoist__request *hoist__pump_fill_part(struct hoist_load *load, struct hoist__flight *flight,
					     unsigned part, size_t at, size_t bytes)
{
	struct hoist__load_disk *disk = &load->disks[flight->disk];
	const struct hoist__chunk *chunk = &flight->chunk;
	struct hoist__request *request = fill_request(load, flight, part);
	struct hoist__way way = hoist__pump_choose_way(load, disk, chunk, request->offset);
	bool last = at + bytes == chunk->need;
	request->offset += at;
	request->address += at;
	request->need = bytes;
	request->bytes = way.direct && last ? chunk->bytes - at : bytes;
	request->direct = way.direct;
	request->hot = way.hot;
	request->drop = way.drop;
	request->fresh_bytes = 0;
	return request;
}

/* Tells whether the next image chunk may be read: its pages are there, or its threads make them. */
static bool has_pages(struct hoist_load *load, unsigned index)
{
	struct hoist__load_disk *disk = &load->disks[index];
	size_t end = hoist__pump_end_of(load, &disk->next);
	if (!disk->has_way)
		disk->way = hoist__pump_choose_way(load, disk, &disk->next, disk->next.offset);
	disk->has_way = true;
	if (load->fresh == NULL || end <= disk->populated)
		return true;
	if (disk->way.hot && load->pages.populate == NULL) {
		disk->populated = end;
		if (load->populator != NULL)
			hoist__populator_pass(load->populator, index, end);
		return true;
	}
	if (load->populator == NULL && !load->no_populator)
		hoist__pump_start_populator(load);
	if (load->populator == NULL)
		return true;
	int err = hoist__populator_done(load->populator, index, end, &disk->populated);
	if (err < 0)
		hoist__job_fail(&load->job, err);
	return err == 0 && end <= disk->populated;
}

static bool take_slot(struct hoist_load *load, struct hoist__flight *flight)
{
	flight->slot = hoist__staging_acquire(load->job.staging);
	if (flight->slot == NULL)
		return false;
	HOIST__ASSERT(hoist__pump_slot_offset(load, flight) +
			      (flight->straight ? flight->chunk.useful
						: flight->chunk.bytes * flight->chunk.n_parts) <=
		      hoist__staging_slot_bytes(load->job.staging));
	flight->address = flight->slot->request.address + hoist__pump_slot_offset(load, flight);
	return true;
}

/* An image belongs to the only target that has its lot's want: bytes that several targets have are
 * staged. */
static void take_place(struct hoist_load *load, struct hoist__flight *flight)
{
	size_t lot = load->plan.extents[flight->chunk.extent].lot;
	const struct hoist__target *target = load->targets;
	while (target->want != load->plan.lots[lot].want)
		target++;
	HOIST__ASSERT(flight->chunk.n_parts == 1 && target->to_host);
	HOIST__ASSERT(load->plan.lots[lot].in_place ||
		      flight->chunk.target + flight->chunk.bytes <=
			      hoist__storage_bytes(target->storages[lot]));
	/* A lot in place has address 0: its chunks' targets are addresses. */
	flight->address = (unsigned char *)(hoist__load_lot_address(target, lot) +
					    (uintptr_t)flight->chunk.target);
}

/* Makes a flight for the next chunk of the disk, or NULL; *ret_wait: the chunk only waits for
 * pages. */
static struct hoist__flight *prepare(struct hoist_load *load, unsigned index, bool *ret_wait)
{
	struct hoist__load_disk *disk = &load->disks[index];
	HOIST__ASSERT(disk->has_next && load->job.phase == HOIST__JOB_RUNNING);
	bool image = !load->plan.extents[disk->next.extent].staged;
	bool mapped = load->plan.extents[disk->next.extent].mapped;
	if (!hoist__give_admits(load, index) || !hoist__pump_source_admits(load, index))
		return NULL;
	if (image && !mapped && !has_pages(load, index)) {
		*ret_wait = load->job.phase == HOIST__JOB_RUNNING;
		return NULL;
	}
	struct hoist__list *node = hoist__list_pop(&load->free_flights);
	if (node == NULL)
		return NULL;
	struct hoist__flight *flight = HOIST__CONTAINER_OF(node, struct hoist__flight, node);
	HOIST__ASSERT(flight->n_open == 0);
	flight->chunk = disk->next;
	flight->straight = disk->straight;
	flight->mapped = mapped;
	flight->sourced = disk->sourced;
	flight->reached = false;
	flight->slot = NULL;
	flight->address = NULL;
	if (image) {
		take_place(load, flight);
	} else if (!(flight->straight && load->to_host) && !take_slot(load, flight)) {
		hoist__list_push_front(&load->free_flights, node);
		return NULL;
	}
	if (flight->slot == NULL)
		hoist__into_touch(load->into, &flight->chunk);
	else
		hoist__pump_reach(load, flight);
	bool there = mapped || flight->reached;
	flight->lap = (struct hoist__lap){
		.kind = HOIST_INTERVAL_STRAIGHT,
		.number = (unsigned)(flight - load->flights),
		.bytes = flight->chunk.useful,
		.begin_ns = hoist__timeline_now(load->job.stages.timeline),
	};
	flight->disk = index;
	flight->sequence = disk->next_sequence++;
	flight->n_open = there ? 0 : flight->chunk.n_parts;
	disk->has_next = false;
	disk->has_way = false;
	disk->n_flights++;
	disk->n_requests += flight->n_open;
	HOIST__ASSERT(there == (flight->n_open == 0) && flight->n_open <= load->n_parts);
	HOIST__ASSERT(disk->n_flights <= disk->most_flights && disk->n_requests <= disk->depth);
	return flight;
}

/* Makes the next flight, of any disk, that needs at most @room requests, or NULL; *ret_wait: a disk
 * that only waits for pages. */
static struct hoist__flight *next_flight(struct hoist_load *load, unsigned room, unsigned *ret_wait)
{
	struct hoist__flight *flight = NULL;
	unsigned without = 0;
	while (flight == NULL && load->job.phase == HOIST__JOB_RUNNING) {
		bool wait = false;
		unsigned disk = hoist__pump_choose(load, room, without);
		if (disk == HOIST__MAX_DISKS)
			break;
		flight = prepare(load, disk, &wait);
		if (wait)
			*ret_wait = disk;
		without |= 1u << disk;
	}
	return flight;
}

/* Fills the batch with the requests of as many chunks as there is room for, all parts of each.
 * Chunks that are mapped or reached need none, and arrive at once.
 * Returns: the number of requests. */
static unsigned fill_batch(struct hoist_load *load, struct hoist__request **batch, unsigned most,
			   unsigned *ret_wait)
{
	struct hoist__flight *flight;
	unsigned n = 0;
	*ret_wait = HOIST__MAX_DISKS;
	while ((flight = next_flight(load, most - n, ret_wait)) != NULL) {
		unsigned n_open = flight->n_open;
		if (flight->reached)
			hoist__slot_filled(load->job.staging, flight->slot);
		if (n_open == 0) {
			hoist__pump_arrive(load, flight);
			continue;
		}
		if (flight->sourced) {
			n += hoist__pump_fill_sourced(load, flight, &batch[n]);
			continue;
		}
		for (unsigned part = 0; part < n_open; part++)
			batch[n++] = flight->straight ? hoist__pump_fill_rows(load, flight)
						      : fill_request(load, flight, part);
	}
	HOIST__ASSERT(n <= most);
	return n;
}

/* Undoes a batch that the engine refused: submit takes all or none, so none of the requests is in
 * flight. */
static void take_back(struct hoist_load *load, struct hoist__request *const *batch, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct hoist__flight *flight = batch[i]->owner;
		HOIST__ASSERT(flight->n_open != 0 && load->disks[flight->disk].n_requests != 0);
		load->disks[flight->disk].n_requests--;
		if (--flight->n_open == 0)
			hoist__pump_give_up(load, flight);
	}
}

unsigned hoist__pump_submit(struct hoist_load *load)
{
	unsigned wait = HOIST__MAX_DISKS;
	unsigned n = 1;
	while (n > 0 && load->job.phase == HOIST__JOB_RUNNING) {
		struct hoist__request *batch[HOIST__PUMP_BATCH];
		unsigned room = hoist__engine_room(load->job.engine);
		n = fill_batch(load, batch, room < HOIST__PUMP_BATCH ? room : HOIST__PUMP_BATCH,
			       &wait);
		int err = n > 0 ? hoist__engine_submit(load->job.engine, batch, n) : 0;
		if (err < 0) {
			take_back(load, batch, n);
			hoist__job_fail(&load->job, err);
			hoist__pump_give_up_waiting(load);
			return HOIST__MAX_DISKS;
		}
		load->report.n_reads += n;
	}
	return wait;
}
