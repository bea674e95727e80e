/* SPDX-License-Identifier: MIT */
/* Chunks of the plan become requests, and go to the engine. */
#include "config.h"

#include "base/checked.h"
#include "lib/pump.h"

_Static_assert(HOIST__PUMP_BATCH >= HOIST__LOAD_PARTS, "a batch has room for all parts of a chunk");

/* The way that one read takes, and whether what it brings into the page cache is to leave it again:
 * the cache is left as it was found, unless it was asked for.  Where the kernel itself knows what a
 * read brought in (dontcache), it need not have been empty before. */
struct way {
	bool direct;
	bool hot;
	bool drop;
};

static struct way go_cached(const struct hoist_load *load, const struct hoist__file *file,
			    bool known, uint64_t resident, size_t bytes)
{
	enum hoist_io io = load->options.io;
	bool asked = io == HOIST_IO_CACHED || io == HOIST_IO_MAP;
	bool empty = known && resident == 0;
	return (struct way){.hot = known && resident >= bytes,
			    .drop = !asked && (empty || file->dontcache)};
}

static struct way choose_way(struct hoist_load *load, const struct hoist__file *file,
			     uint64_t offset, size_t bytes)
{
	enum hoist_io io = load->options.io;
	if (io == HOIST_IO_DIRECT && file->direct_fd >= 0)
		return (struct way){.direct = true};
	uint64_t resident = 0;
	bool known = hoist__file_resident(file, offset, bytes, &resident) == 0;
	if (file->direct_fd < 0) {
		load->routes.no_direct++;
		load->routes.note = file->direct_note;
	}
	/* Where direct reads lose, they are for who asks for them. */
	if (file->direct_fd < 0 || io != HOIST_IO_AUTO || !file->fs->direct)
		return go_cached(load, file, known, resident, bytes);
	if (!known) {
		load->routes.unknown++;
		return (struct way){.direct = true};
	}
	/* One that falls back leaves nothing, either. */
	if (resident < bytes - bytes / 10)
		return (struct way){.direct = true, .drop = resident == 0};
	load->routes.resident++;
	return go_cached(load, file, known, resident, bytes);
}

/* Part @part of the flight's chunk. */
static struct hoist__request *fill_request(struct hoist_load *load, struct hoist__flight *flight,
					   unsigned part)
{
	const struct hoist__chunk *chunk = &flight->chunk;
	const struct hoist__file *file =
		load->checkpoint->files[load->plan.extents[chunk->extent].file].file;
	struct hoist__request *request = &flight->requests[part];
	uint64_t offset = chunk->offset + part * chunk->part_stride;
	struct way way = choose_way(load, file, offset, chunk->need);
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
	return request;
}

/* Are the pages that an image's chunk goes to there?  They are populated in order. */
static bool is_populated(struct hoist_load *load, const struct hoist__chunk *chunk)
{
	size_t end = (size_t)(chunk->target + chunk->bytes);
	if (load->populator == NULL || end <= load->populated)
		return true;
	int err = hoist__populator_done(load->populator, &load->populated);
	if (err < 0)
		hoist__pump_fail(load, err);
	return err == 0 && end <= load->populated;
}

static bool take_slot(struct hoist_load *load, struct hoist__flight *flight)
{
	flight->slot = hoist__staging_acquire(load->ring);
	if (flight->slot == NULL)
		return false;
	flight->address = flight->slot->request.address + hoist__pump_slot_offset(load, flight);
	return true;
}

static void take_place(struct hoist_load *load, struct hoist__flight *flight)
{
	flight->slot = NULL;
	flight->address = (unsigned char *)hoist__storage_address(load->targets[0].storage) +
			  flight->chunk.target;
}

/* A flight for the next chunk, or NULL: *ret_wait says that it only waits for pages. */
static struct hoist__flight *prepare(struct hoist_load *load, bool *ret_wait)
{
	const struct hoist__chunk *chunk = &load->next;
	bool staged = load->plan.extents[chunk->extent].staged;
	if (!staged && !is_populated(load, chunk)) {
		*ret_wait = load->phase == HOIST__PHASE_RUNNING;
		return NULL;
	}
	struct hoist__list *node = hoist__list_pop(&load->free_flights);
	if (node == NULL)
		return NULL;
	struct hoist__flight *flight = HOIST__CONTAINER_OF(node, struct hoist__flight, node);
	flight->chunk = *chunk;
	if (!staged) {
		take_place(load, flight);
	} else if (!take_slot(load, flight)) {
		hoist__list_push_front(&load->free_flights, node);
		return NULL;
	}
	flight->turn = load->next_turn++;
	return flight;
}

/* Chunks of the two ways have sizes of their own. */
static bool next_chunk(struct hoist_load *load)
{
	if (load->has_next)
		return true;
	if (load->cursor.extent == load->plan.n_extents)
		return false;
	bool staged = load->plan.extents[load->cursor.extent].staged;
	load->has_next =
		hoist__plan_next(&load->plan, staged ? load->staged_bytes : load->image_bytes,
				 &load->cursor, &load->next);
	return load->has_next;
}

/* Requests of as many chunks as there is room for, all parts of each.  Returns: how many. */
static unsigned fill_batch(struct hoist_load *load, struct hoist__request **batch, unsigned most,
			   bool *ret_wait)
{
	unsigned n = 0;
	while (load->phase == HOIST__PHASE_RUNNING && next_chunk(load) &&
	       n + load->next.n_parts <= most) {
		struct hoist__flight *flight = prepare(load, ret_wait);
		if (flight == NULL)
			break;
		load->has_next = false;
		flight->n_open = flight->chunk.n_parts;
		for (unsigned part = 0; part < flight->chunk.n_parts; part++)
			batch[n++] = fill_request(load, flight, part);
	}
	return n;
}

/* All or none: nothing of the batch is in flight, and nothing goes on. */
static void take_back(struct hoist_load *load, struct hoist__request *const *batch, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct hoist__flight *flight = batch[i]->owner;
		if (--flight->n_open == 0)
			hoist__pump_give_up(load, flight);
	}
}

bool hoist__pump_submit(struct hoist_load *load)
{
	bool wait = false;
	unsigned n = 1;
	while (n > 0 && load->phase == HOIST__PHASE_RUNNING) {
		struct hoist__request *batch[HOIST__PUMP_BATCH];
		unsigned room = hoist__engine_room(load->engine);
		n = fill_batch(load, batch, room < HOIST__PUMP_BATCH ? room : HOIST__PUMP_BATCH,
			       &wait);
		int err = n > 0 ? hoist__engine_submit(load->engine, batch, n) : 0;
		if (err < 0) {
			take_back(load, batch, n);
			hoist__pump_fail(load, err);
			return false;
		}
		load->n_inflight += n;
		load->report.n_reads += n;
	}
	return wait;
}
