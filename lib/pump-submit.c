/* SPDX-License-Identifier: MIT */
/* Chunks of the plan become requests, and go to the engine. */
#include "config.h"

#include "base/checked.h"
#include "lib/pump.h"

#define BATCH 64u

enum way { DIRECT, CACHED, CACHED_HOT, CACHED_DROP };

/* Through the page cache, which is left as it was found unless that way was asked for. */
static enum way go_cached(const struct hoist_load *load, bool known, uint64_t resident,
			  const struct hoist__chunk *chunk)
{
	if (known && resident >= chunk->need)
		return CACHED_HOT;
	bool asked = load->options.io == HOIST_IO_CACHED || load->options.io == HOIST_IO_MAP ||
		     load->options.io == HOIST_IO_LAZY;
	return known && resident == 0 && !asked ? CACHED_DROP : CACHED;
}

static enum way choose_way(struct hoist_load *load, const struct hoist__file *file,
			   const struct hoist__chunk *chunk)
{
	enum hoist_io io = load->options.io;
	if (io == HOIST_IO_DIRECT && file->direct_fd >= 0)
		return DIRECT;
	uint64_t resident = 0;
	bool known = hoist__file_resident(file, chunk->offset, chunk->need, &resident) == 0;
	if (file->direct_fd < 0) {
		load->routes.no_direct++;
		load->routes.note = file->direct_note;
	}
	if (file->direct_fd < 0 || (io != HOIST_IO_AUTO && io != HOIST_IO_DIRECT))
		return go_cached(load, known, resident, chunk);
	if (!known) {
		load->routes.unknown++;
		return DIRECT;
	}
	if (resident < chunk->need - chunk->need / 10)
		return DIRECT;
	load->routes.resident++;
	return go_cached(load, known, resident, chunk);
}

static void fill_request(struct hoist_load *load, const struct hoist__chunk *chunk,
			 struct hoist__request *request)
{
	const struct hoist__file *file =
		load->checkpoint->files[load->plan.extents[chunk->extent].file].file;
	enum way way = choose_way(load, file, chunk);
	request->file = file;
	request->offset = chunk->offset;
	request->need = chunk->need;
	request->direct = way == DIRECT;
	request->hot = way == CACHED_HOT;
	request->drop = way == CACHED_DROP;
	request->bytes = request->direct ? chunk->bytes : chunk->need;
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

/* A slot for the chunk; where it will be widened in place, its second half. */
static struct hoist__request *prepare_slot(struct hoist_load *load, struct hoist__flight *flight)
{
	flight->slot = hoist__staging_acquire(load->ring);
	if (flight->slot == NULL)
		return NULL;
	struct hoist__request *request = &flight->slot->request;
	if (load->plan.extents[flight->chunk.extent].half)
		request->address += hoist__staging_slot_bytes(load->ring) / 2;
	return request;
}

static struct hoist__request *prepare_image(struct hoist_load *load, struct hoist__flight *flight)
{
	flight->slot = NULL;
	flight->own = (struct hoist__request){
		.address = (unsigned char *)hoist__storage_address(load->targets[0].storage) +
			   flight->chunk.target,
		.buffer = -1,
	};
	return &flight->own;
}

/* The next chunk's request, or NULL: *ret_wait says that it only waits for pages. */
static struct hoist__request *prepare(struct hoist_load *load, bool *ret_wait)
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
	struct hoist__request *request =
		staged ? prepare_slot(load, flight) : prepare_image(load, flight);
	if (request == NULL) {
		hoist__list_push_front(&load->free_flights, node);
		return NULL;
	}
	flight->turn = load->next_turn++;
	request->owner = flight;
	fill_request(load, chunk, request);
	return request;
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

/* All or none: nothing of the batch is in flight, and nothing goes on. */
static void take_back(struct hoist_load *load, struct hoist__request *const *batch, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct hoist__flight *flight = batch[i]->owner;
		if (flight->slot != NULL)
			hoist__slot_release(load->ring, flight->slot);
		hoist__pump_land(load, flight);
	}
}

bool hoist__pump_submit(struct hoist_load *load)
{
	bool wait = false;
	bool more = true;
	while (more && load->phase == HOIST__PHASE_RUNNING) {
		struct hoist__request *batch[BATCH];
		unsigned room = hoist__engine_room(load->engine);
		unsigned most = room < BATCH ? room : BATCH;
		unsigned n = 0;
		while (n < most && load->phase == HOIST__PHASE_RUNNING && next_chunk(load)) {
			struct hoist__request *request = prepare(load, &wait);
			if (request == NULL)
				break;
			load->has_next = false;
			batch[n++] = request;
		}
		more = n == BATCH;
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
