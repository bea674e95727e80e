/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "lib/load.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "lib/objects.h"

/* How long a wait may last before the pump looks again whether it was cancelled,
 * and how long when a device copy may complete meanwhile. */
#define CANCEL_POLL_NS (20 * UINT64_C(1000000))
#define COPY_POLL_NS (100 * UINT64_C(1000))

/* The first failure wins; its text is in this thread's hoist_error(). */
static void fail(struct hoist_load *load, int err)
{
	if (load->phase != HOIST__PHASE_DRAINING) {
		load->phase = HOIST__PHASE_DRAINING;
		load->err = err;
		hoist__error_copy(load->text, sizeof load->text);
		hoist__log(load, "failed: %s", load->text);
	}
	if (load->engine != NULL)
		hoist__engine_cancel(load->engine);
}

/* --- begin --- */

static int create_engine(struct hoist_load *load)
{
	static const enum hoist__engine_kind kinds[] = {
		[HOIST_ENGINE_AUTO] = HOIST__ENGINE_AUTO,
		[HOIST_ENGINE_URING] = HOIST__ENGINE_URING,
		[HOIST_ENGINE_THREADS] = HOIST__ENGINE_THREADS,
	};
	struct hoist__engine_buffer memory = {0};
	if (load->ring != NULL)
		hoist__staging_memory(load->ring, &memory);
	const struct hoist__engine_options options = {
		.kind = kinds[load->engine_kind],
		.depth = HOIST__LOAD_DEPTH,
		.shared = load->caller_driven,
		.buffers = &memory,
		.n_buffers = load->ring != NULL ? 1 : 0,
		.files = load->files,
		.n_files = (unsigned)load->checkpoint->n_files,
	};
	return hoist__engine_create(&options, &load->engine);
}

/* A ring of the usual size stays pinned between loads, since pinning is slow; but
 * what is kept and the new ring must fit the budget together, were the one of no
 * use for the other. */
static void trim_pool(struct hoist__pool *pool, struct hoist__budget *budget)
{
	const size_t usual = HOIST__STAGING_SLOTS * HOIST__STAGING_SLOT_BYTES;
	size_t free_bytes = hoist__budget_limit(budget) - hoist__budget_used(budget);
	hoist__pool_trim(pool, free_bytes >= 2 * usual ? usual : 0);
	hoist__pool_reset_peak(pool);
}

static int create_ring(struct hoist_load *load)
{
	struct hoist__pool *pool;
	int err = hoist__device_staging_pool(load->device, &pool);
	if (err < 0)
		return err;
	const struct hoist__staging_options options = {
		.stream = hoist__stream_dev_stream(load->stream),
		.pool = pool,
		.budget = hoist__budget_of(load->budget),
	};
	trim_pool(pool, options.budget);
	err = hoist__staging_create(&options, &load->ring);
	if (err < 0)
		return err;
	unsigned n = hoist__staging_n_slots(load->ring);
	load->slots = calloc(n, sizeof *load->slots);
	load->copying = calloc(n, sizeof *load->copying);
	if (load->slots == NULL || load->copying == NULL)
		return hoist__fail_nomem("a table of slots", n * sizeof *load->slots);
	return 0;
}

/* Waits until the ring may fit, or the time is over. */
static int wait_for_budget(struct hoist_load *load, uint64_t timeout_ns)
{
	struct hoist__budget *budget = hoist__budget_of(load->budget);
	const size_t least = 2 * HOIST__STAGING_MIN_SLOT_BYTES;
	int err = hoist__budget_acquire_wait(budget, least, timeout_ns);
	if (err == 0)
		hoist__budget_release(budget, least);
	return err == -EAGAIN ? 0 : err;
}

/* Populating ahead is an optimisation: without the threads, reads fault pages in. */
static void start_populator(struct hoist_load *load)
{
	struct hoist__storage *storage = load->storages[0];
	void *base = (void *)hoist__storage_address(storage);
	if (hoist__populator_start(base, hoist__storage_bytes(storage), 0, &load->populator) < 0)
		hoist__log(load, "not populating ahead: %s", hoist__error_text());
}

static int begin_host(struct hoist_load *load)
{
	load->inflight = calloc(HOIST__LOAD_DEPTH, sizeof *load->inflight);
	if (load->inflight == NULL)
		return hoist__fail_nomem("requests", HOIST__LOAD_DEPTH * sizeof *load->inflight);
	for (unsigned i = 0; i < HOIST__LOAD_DEPTH; i++) {
		load->inflight[i].next_free = load->free_inflight;
		load->free_inflight = &load->inflight[i];
	}
	if (hoist__load_is_lazy(load))
		start_populator(load);
	return 0;
}

/* 0: running; 1: the budget is in use, call again; else the load fails.  -EAGAIN
 * means "busy" from the ring alone: elsewhere (no thread to be had) it is final. */
static int begin(struct hoist_load *load, uint64_t timeout_ns)
{
	if (load->plan.n_extents == 0 || (load->to_host && load->io == HOIST_IO_MAP)) {
		load->phase = HOIST__PHASE_RUNNING;
		return 0;
	}
	int err = 0;
	if (load->to_host) {
		err = begin_host(load);
	} else {
		err = create_ring(load);
		if (err == -EAGAIN) {
			err = wait_for_budget(load, hoist__min_u64(timeout_ns, CANCEL_POLL_NS));
			return err < 0 ? err : 1;
		}
	}
	if (err == 0)
		err = create_engine(load);
	if (err == 0)
		load->phase = HOIST__PHASE_RUNNING;
	return err;
}

/* --- which way a chunk goes --- */

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

/* --- submit --- */

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
			fail(load, err);
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
	load->slots[slot->index].chunk = load->next;
	slot->request.owner = slot;
	return &slot->request;
}

static size_t chunk_bytes(const struct hoist_load *load)
{
	size_t bytes = load->ring != NULL ? hoist__staging_slot_bytes(load->ring)
					  : HOIST__LOAD_CHUNK_BYTES;
	return (size_t)hoist__round_down(bytes, load->plan.align);
}

/* Submits what there is room for, as one batch.  True if it stopped only because
 * pages are not populated yet. */
static bool submit(struct hoist_load *load)
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
		fail(load, err);
		return false;
	}
	load->n_inflight += n;
	load->report.n_reads += n;
	return wait;
}

/* --- completions --- */

/* Reads end in any order, so where a file now ends is asked, not concluded. */
static void fail_short(struct hoist_load *load, const struct hoist__request *request, size_t file)
{
	struct stat now;
	uint64_t end = request->offset + request->done;
	if (fstat(request->file->fd, &now) == 0 && (uint64_t)now.st_size < end)
		end = (uint64_t)now.st_size;
	const struct hoist__tensor *tensor =
		hoist__plan_tensor_at(load->checkpoint, &load->plan, file, end);
	fail(load,
	     hoist__fail(-ENODATA,
			 "%s ends at byte %llu, before the end of tensor \"%.200s\": it had %llu "
			 "bytes when it was opened; do not change files while they are loaded",
			 request->file->path, (unsigned long long)end,
			 tensor != NULL ? tensor->name : "?",
			 (unsigned long long)request->file->bytes));
}

static void fail_read(struct hoist_load *load, const struct hoist__request *request,
		      const struct hoist__chunk *chunk)
{
	if (load->phase == HOIST__PHASE_DRAINING)
		return;
	const struct hoist__extent *extent = &load->plan.extents[chunk->extent];
	if (request->result == -ENODATA) {
		fail_short(load, request, extent->file);
		return;
	}
	uint64_t at = hoist__max_u64(request->offset + request->done, extent->begin);
	const struct hoist__tensor *tensor =
		hoist__plan_tensor_at(load->checkpoint, &load->plan, extent->file, at);
	fail(load, hoist__fail_errno(request->result, "reading %s at byte %llu, tensor \"%.200s\"",
				     request->file->path, (unsigned long long)at,
				     tensor != NULL ? tensor->name : "?"));
}

static void account(struct hoist_load *load, const struct hoist__request *request)
{
	load->report.direct_bytes += request->direct_done;
	load->report.cached_bytes += request->done - request->direct_done;
	load->routes.fell_back += request->fell_back;
}

/* The pieces of the destination that a slot's bytes belong to.  Chunks complete
 * out of order, so each looks its first piece up. */
static size_t first_piece(const struct hoist__plan *plan, const struct hoist__chunk *chunk)
{
	const struct hoist__extent *extent = &plan->extents[chunk->extent];
	uint64_t offset = chunk->offset + chunk->skip;
	size_t low = extent->first_piece;
	size_t high = extent->first_piece + extent->n_pieces;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;
		if (plan->pieces[middle].begin <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Copies go to the driver in batches of pieces: a slot of tiny tensors has many. */
static int copy_slot(struct hoist_load *load, struct hoist__slot *slot,
		     const struct hoist__chunk *chunk)
{
	const struct hoist__plan *plan = &load->plan;
	const struct hoist__extent *extent = &plan->extents[chunk->extent];
	uintptr_t base = hoist__storage_address(load->storages[0]);
	uint64_t from = chunk->offset + chunk->skip;
	uint64_t to = chunk->offset + chunk->need;
	size_t first = first_piece(plan, chunk);
	size_t end = extent->first_piece + extent->n_pieces;
	size_t n = 0;
	while (first + n < end && plan->pieces[first + n].begin < to)
		n++;
	struct hoist__piece *pieces = calloc(n, sizeof *pieces);
	if (pieces == NULL)
		return hoist__fail_nomem("a list of copies", n * sizeof *pieces);
	for (size_t i = 0; i < n; i++) {
		const struct hoist__plan_piece *p = &plan->pieces[first + i];
		uint64_t begin = hoist__max_u64(p->begin, from);
		uint64_t stop = hoist__min_u64(p->begin + p->bytes, to);
		pieces[i] = (struct hoist__piece){
			.slot_offset = (size_t)(begin - chunk->offset),
			.device_address = base + (uintptr_t)(p->target + (begin - p->begin)),
			.bytes = (size_t)(stop - begin),
		};
	}
	int err = hoist__slot_copy(load->ring, slot, pieces, n);
	free(pieces);
	load->report.n_copies += n;
	return err;
}

static void complete_slot(struct hoist_load *load, struct hoist__request *request)
{
	struct hoist__slot *slot = request->owner;
	const struct hoist__chunk *chunk = &load->slots[slot->index].chunk;
	if (request->result < 0) {
		fail_read(load, request, chunk);
		hoist__slot_release(load->ring, slot);
		return;
	}
	hoist__slot_filled(load->ring, slot);
	if (load->phase != HOIST__PHASE_RUNNING) {
		hoist__slot_release(load->ring, slot);
		return;
	}
	unsigned n_slots = hoist__staging_n_slots(load->ring);
	unsigned n_copying = hoist__staging_n_copying(load->ring);
	size_t useful = hoist__chunk_useful(chunk);
	int err = copy_slot(load, slot, chunk);
	if (slot->state == HOIST__SLOT_COPYING)
		load->copying[(load->copying_first + n_copying) % n_slots] = useful;
	else
		hoist__slot_release(load->ring, slot);
	if (err < 0)
		fail(load, err);
}

static void complete_host(struct hoist_load *load, struct hoist__request *request)
{
	struct hoist__inflight *inflight = request->owner;
	if (request->result < 0)
		fail_read(load, request, &inflight->chunk);
	else
		atomic_fetch_add_explicit(&load->arrived, hoist__chunk_useful(&inflight->chunk),
					  memory_order_relaxed);
	inflight->next_free = load->free_inflight;
	load->free_inflight = inflight;
}

static void reap(struct hoist_load *load, uint64_t timeout_ns)
{
	struct hoist__request *done[HOIST__LOAD_DEPTH];
	int n = hoist__engine_reap(load->engine, done, HOIST__LOAD_DEPTH, timeout_ns);
	if (n < 0) {
		fail(load, n);
		return;
	}
	for (int i = 0; i < n; i++) {
		load->n_inflight--;
		account(load, done[i]);
		if (load->ring != NULL)
			complete_slot(load, done[i]);
		else
			complete_host(load, done[i]);
	}
}

/* @n slots came back, oldest first: copies complete in the order of the stream. */
static void note_reclaimed(struct hoist_load *load, int n)
{
	if (n < 0) {
		fail(load, n);
		return;
	}
	unsigned n_slots = hoist__staging_n_slots(load->ring);
	for (int i = 0; i < n; i++) {
		atomic_fetch_add_explicit(&load->arrived, load->copying[load->copying_first],
					  memory_order_relaxed);
		load->copying_first = (load->copying_first + 1) % n_slots;
	}
}

/* --- end --- */

static void check_files(struct hoist_load *load)
{
	size_t last = SIZE_MAX;
	for (size_t e = 0; load->err == 0 && e < load->plan.n_extents; e++) {
		size_t file = load->plan.extents[e].file;
		if (file == last)
			continue;
		last = file;
		int err = hoist__file_changed(load->checkpoint->files[file].file);
		if (err < 0)
			fail(load, err);
	}
}

/* The kernel may write into this load's memory at any later time: it is nobody's
 * any more, and stays allocated, pinned and charged to the budget. */
static void give_up_memory(struct hoist_load *load)
{
	hoist__log(load, "reads were abandoned: their memory is never used again");
	if (load->to_host)
		(void)hoist__storage_ref(load->storages[0]);
	while (load->ring != NULL && hoist__staging_wait(load->ring) > 0)
		continue;
	load->ring = NULL;
}

static void end(struct hoist_load *load)
{
	if (load->phase == HOIST__PHASE_RUNNING)
		check_files(load);
	hoist__load_finish_report(load);
	if (load->engine != NULL && hoist__engine_abandoned(load->engine))
		give_up_memory(load);
	hoist__engine_destroy(load->engine);
	load->engine = NULL;
	hoist__staging_destroy(load->ring);
	load->ring = NULL;
	hoist__populator_stop(load->populator);
	load->populator = NULL;
	load->phase = HOIST__PHASE_DONE;
}

/* --- one round --- */

/* A load that failed waits for its copies only when the ring is destroyed: a
 * stream that is broken never completes them one by one. */
static unsigned n_awaited_copies(const struct hoist_load *load)
{
	bool awaits = load->ring != NULL && load->phase == HOIST__PHASE_RUNNING;
	return awaits ? hoist__staging_n_copying(load->ring) : 0;
}

static void nap(uint64_t ns)
{
	const struct timespec time = {.tv_nsec = (long)ns};
	(void)nanosleep(&time, NULL);
}

static void wait_for_something(struct hoist_load *load, bool populating, uint64_t timeout_ns)
{
	uint64_t wait = hoist__min_u64(timeout_ns, CANCEL_POLL_NS);
	unsigned n_copying = n_awaited_copies(load);
	if (load->n_inflight > 0) {
		reap(load, n_copying > 0 ? hoist__min_u64(wait, COPY_POLL_NS) : wait);
	} else if (n_copying > 0 && timeout_ns == UINT64_MAX) {
		note_reclaimed(load, hoist__staging_wait(load->ring));
	} else if (n_copying > 0 && timeout_ns > 0) {
		/* The device does not say when; the stream may have the caller's work too. */
		nap(hoist__min_u64(wait, COPY_POLL_NS));
	} else if (populating) {
		size_t need = (size_t)(load->next.target + load->next.bytes);
		int err = hoist__populator_wait(load->populator, need, wait);
		if (err < 0 && err != -EAGAIN)
			fail(load, err);
	}
}

static bool all_home(const struct hoist_load *load)
{
	bool more = load->phase == HOIST__PHASE_RUNNING &&
		    (load->has_next || load->cursor.extent < load->plan.n_extents);
	return load->engine == NULL ||
	       (!more && load->n_inflight == 0 && n_awaited_copies(load) == 0);
}

bool hoist__pump_step(struct hoist_load *load, uint64_t timeout_ns)
{
	if (load->phase == HOIST__PHASE_DONE)
		return true;
	if (atomic_load_explicit(&load->cancelled, memory_order_relaxed) &&
	    load->phase != HOIST__PHASE_DRAINING)
		fail(load, hoist__fail(-ECANCELED, "the load was cancelled"));
	if (load->phase == HOIST__PHASE_READY) {
		int begun = begin(load, timeout_ns);
		if (begun > 0)
			return false;
		if (begun < 0)
			fail(load, begun);
	}
	bool populating = false;
	if (load->engine != NULL) {
		if (n_awaited_copies(load) > 0)
			note_reclaimed(load, hoist__staging_reclaim(load->ring));
		if (load->phase == HOIST__PHASE_RUNNING)
			populating = submit(load);
		if (!all_home(load))
			wait_for_something(load, populating, timeout_ns);
	}
	if (!all_home(load))
		return false;
	end(load);
	return true;
}
