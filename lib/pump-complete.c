/* SPDX-License-Identifier: MIT */
/* Finished requests: bytes that have arrived, copies to queue, or what went wrong. */
#include "config.h"

#include <stdlib.h>
#include <sys/stat.h>

#include "base/checked.h"
#include "lib/pump.h"

/* Reads end in any order, so where a file now ends is asked, not concluded. */
static void fail_short(struct hoist_load *load, const struct hoist__request *request, size_t file)
{
	struct stat now;
	uint64_t end = request->offset + request->done;
	if (fstat(request->file->fd, &now) == 0 && S_ISREG(now.st_mode) &&
	    (uint64_t)now.st_size < end)
		end = (uint64_t)now.st_size;
	const struct hoist__tensor *tensor =
		hoist__plan_tensor_at(load->checkpoint, &load->plan, file, end);
	hoist__pump_fail(
		load,
		hoist__fail(
			-ENODATA,
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
	/* -EAGAIN: the engine's patience is at an end; to our caller it would say "not yet". */
	int err = request->result == -EAGAIN ? -EIO : request->result;
	hoist__pump_fail(load, hoist__fail_errno(err, "reading %s at byte %llu, tensor \"%.200s\"",
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
	int err = hoist__slot_copy(load->ring, slot, 0, pieces, n);
	free(pieces);
	load->report.n_copies += n;
	return err;
}

static void complete_slot(struct hoist_load *load, struct hoist__request *request)
{
	struct hoist__slot *slot = request->owner;
	const struct hoist__chunk *chunk = &load->slots[slot->index];
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
		hoist__pump_fail(load, err);
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

void hoist__pump_reap(struct hoist_load *load, uint64_t timeout_ns)
{
	struct hoist__request *done[HOIST__LOAD_DEPTH];
	int n = hoist__engine_reap(load->engine, done, HOIST__LOAD_DEPTH, timeout_ns);
	if (n < 0) {
		hoist__pump_fail(load, n);
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

void hoist__pump_reclaimed(struct hoist_load *load, int n)
{
	if (n < 0) {
		hoist__pump_fail(load, n);
		return;
	}
	unsigned n_slots = hoist__staging_n_slots(load->ring);
	for (int i = 0; i < n; i++) {
		atomic_fetch_add_explicit(&load->arrived, load->copying[load->copying_first],
					  memory_order_relaxed);
		load->copying_first = (load->copying_first + 1) % n_slots;
	}
}
