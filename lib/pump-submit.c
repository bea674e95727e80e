/* SPDX-License-Identifier: MIT */
/* Chunks of the plan become requests, and go to the engine. */
#include "config.h"

#include "base/checked.h"
#include "lib/pump.h"

/* Direct, or through the page cache? */
static bool go_direct(struct hoist_load *load, const struct hoist__file *file,
		      const struct hoist__chunk *chunk)
{
	if (load->io == HOIST_IO_CACHED || load->io == HOIST_IO_MAP)
		return false;
	if (file->direct_fd < 0) {
		load->routes.no_direct++;
		load->routes.note = file->direct_note;
		return false;
	}
	if (load->io == HOIST_IO_DIRECT)
		return true;
	uint64_t resident;
	if (hoist__file_resident(file, chunk->offset, chunk->need, &resident) < 0) {
		load->routes.unknown++;
		return true;
	}
	bool cached = resident >= chunk->need - chunk->need / 10;
	load->routes.resident += cached;
	return !cached;
}

static void fill_request(struct hoist_load *load, const struct hoist__chunk *chunk,
			 struct hoist__request *request)
{
	const struct hoist__file *file =
		load->checkpoint->files[load->plan.extents[chunk->extent].file].file;
	request->file = file;
	request->offset = chunk->offset;
	request->need = chunk->need;
	request->direct = go_direct(load, file, chunk);
	request->bytes = request->direct ? chunk->bytes : chunk->need;
}

/* The next chunk's request, or NULL: @ret_wait says that it only waits for memory
 * (a slot to come back, pages to be populated). */
static struct hoist__request *prepare_host(struct hoist_load *load, bool *ret_wait)
{
	const struct hoist__chunk *chunk = &load->next;
	if (load->populator != NULL && chunk->target + chunk->bytes > load->populated) {
		int err = hoist__populator_done(load->populator, &load->populated);
		if (err < 0) {
			hoist__pump_fail(load, err);
			return NULL;
		}
		if (chunk->target + chunk->bytes > load->populated) {
			*ret_wait = true;
			return NULL;
		}
	}
	struct hoist__inflight *inflight = load->free_inflight;
	if (inflight == NULL)
		return NULL;
	load->free_inflight = inflight->next_free;
	inflight->chunk = *chunk;
	inflight->request = (struct hoist__request){
		.address =
			(unsigned char *)hoist__storage_address(load->storages[0]) + chunk->target,
		.buffer = -1,
		.owner = inflight,
	};
	return &inflight->request;
}

static struct hoist__request *prepare_slot(struct hoist_load *load)
{
	struct hoist__slot *slot = hoist__staging_acquire(load->ring);
	if (slot == NULL)
		return NULL;
	load->slots[slot->index] = load->next;
	slot->request.owner = slot;
	return &slot->request;
}

static size_t chunk_bytes(const struct hoist_load *load)
{
	size_t bytes = load->ring != NULL ? hoist__staging_slot_bytes(load->ring)
					  : HOIST__LOAD_CHUNK_BYTES;
	return (size_t)hoist__round_down(bytes, load->plan.align);
}

bool hoist__pump_submit(struct hoist_load *load)
{
	struct hoist__request *batch[HOIST__LOAD_DEPTH];
	unsigned n = 0;
	bool wait = false;
	unsigned room = hoist__engine_room(load->engine);
	while (n < room && n < HOIST__LOAD_DEPTH && load->phase == HOIST__PHASE_RUNNING) {
		if (!load->has_next)
			load->has_next = hoist__plan_next(&load->plan, chunk_bytes(load),
							  &load->cursor, &load->next);
		if (!load->has_next)
			break;
		struct hoist__request *request =
			load->ring != NULL ? prepare_slot(load) : prepare_host(load, &wait);
		if (request == NULL)
			break;
		fill_request(load, &load->next, request);
		load->has_next = false;
		batch[n++] = request;
	}
	int err = n > 0 ? hoist__engine_submit(load->engine, batch, n) : 0;
	if (err < 0) {
		/* All or none: nothing of the batch is in flight, and nothing goes on. */
		for (unsigned i = 0; load->ring != NULL && i < n; i++)
			hoist__slot_release(load->ring, batch[i]->owner);
		hoist__pump_fail(load, err);
		return false;
	}
	load->n_inflight += n;
	load->report.n_reads += n;
	return wait;
}
