/* SPDX-License-Identifier: MIT */
/* The loop that moves a save forward; save.h tells how. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "lib/memory.h"
#include "lib/save.h"
#include "lib/stream-private.h"

/* How long a wait may last before the pump looks again whether it was cancelled, and how long when
 * a device may have copied meanwhile. */
#define CANCEL_POLL_NS (20 * UINT64_C(1000000))
#define COPY_POLL_NS (100 * UINT64_C(1000))

static void fail(struct hoist_save *save, int err)
{
	if (save->phase != HOIST__SAVE_DRAINING) {
		save->phase = HOIST__SAVE_DRAINING;
		/* -EAGAIN: somebody's patience is at an end; to our caller it would say "not yet".
		 */
		save->err = err == -EAGAIN ? -EIO : err;
		hoist__error_copy(save->text, sizeof save->text);
		hoist__log(load, "saving failed: %s", save->text);
	}
	if (save->engine != NULL)
		hoist__engine_cancel(save->engine);
}

/* --- begin --- */

static int staging_pool(struct hoist_save *save, struct hoist__pool **ret)
{
	if (save->n_streams > 0)
		return hoist__device_staging_pool(hoist_stream_device(save->streams[0]), ret);
	hoist_device *cpu;
	hoist_memory *memory;
	int err = hoist__device_cpu(&cpu);
	if (err == 0)
		err = hoist__device_buffers(cpu, false, &memory);
	return err < 0 ? err : hoist__memory_pool(memory, ret);
}

/* Pinned memory that is kept for the next ring must fit the budget together with this one. */
static void trim_pool(struct hoist__pool *pool, struct hoist__budget *budget)
{
	const size_t usual = HOIST__SAVE_SLOTS * HOIST__SAVE_SLOT_BYTES;
	size_t free_bytes = hoist__budget_limit(budget) - hoist__budget_used(budget);
	hoist__pool_trim(pool, free_bytes >= 2 * usual ? usual : 0);
}

/* Slots are larger than blocks by what reads of files need to lie above their places. */
static void size_blocks(struct hoist_save *save)
{
	size_t slot = hoist__staging_slot_bytes(save->ring);
	uint64_t slack = 4 * save->source_align;
	if (4 * slack > slot)
		slack = 0; /* no direct reads then */
	uint64_t align = HOIST__FILE_MAX_ALIGN;
	if (slot - slack < 4 * align)
		for (size_t f = align = 1; f <= save->n_files; f++)
			align = hoist__max_u64(
				align, hoist__output_file(save->files[f - 1].output)->offset_align);
	save->block_bytes = (size_t)hoist__round_down(slot - slack, align);
}

static uint64_t count_blocks(const struct hoist_save *save, size_t block_bytes)
{
	uint64_t n = 0;
	for (size_t f = 0; f < save->n_files; f++)
		n += save->files[f].out.bytes / block_bytes + 1;
	return n;
}

static int create_ring(struct hoist_save *save)
{
	struct hoist__pool *pool;
	struct hoist__dev_stream *streams[HOIST__STAGING_MAX_STREAMS];
	int err = staging_pool(save, &pool);
	if (err < 0)
		return err;
	for (unsigned i = 0; i < save->n_streams; i++)
		streams[i] = hoist__stream_dev_stream(save->streams[i]);
	/* A small save takes no more of a shared budget than it can use. */
	uint64_t n = count_blocks(save, HOIST__SAVE_SLOT_BYTES / 2) + 1;
	const struct hoist__staging_options options = {
		.streams = streams,
		.n_streams = save->n_streams,
		.pool = pool,
		.budget = hoist__budget_of(save->budget),
		.slot_bytes = HOIST__SAVE_SLOT_BYTES,
		.n_slots = (unsigned)hoist__min_u64(n, HOIST__SAVE_SLOTS),
	};
	if (save->n_streams > 0)
		trim_pool(pool, options.budget);
	err = hoist__staging_create(&options, &save->ring);
	if (err < 0)
		return err;
	save->n_slots = hoist__staging_n_slots(save->ring);
	save->blocks = calloc(save->n_slots, sizeof *save->blocks);
	save->window = calloc(save->n_slots, sizeof *save->window);
	if (save->blocks == NULL || save->window == NULL)
		return hoist__fail_nomem("a table of blocks", save->n_slots * sizeof *save->blocks);
	size_blocks(save);
	return 0;
}

static int create_engine(struct hoist_save *save)
{
	static const enum hoist__engine_kind kinds[] = {
		[HOIST_ENGINE_AUTO] = HOIST__ENGINE_AUTO,
		[HOIST_ENGINE_URING] = HOIST__ENGINE_URING,
		[HOIST_ENGINE_THREADS] = HOIST__ENGINE_THREADS,
	};
	const struct hoist__file **files = calloc(save->n_files, sizeof *files);
	if (files == NULL)
		return hoist__fail_nomem("a list of files", save->n_files * sizeof *files);
	for (size_t f = 0; f < save->n_files; f++)
		files[f] = hoist__output_file(save->files[f].output);
	struct hoist__engine_buffer memory;
	hoist__staging_memory(save->ring, &memory);
	const struct hoist__engine_options options = {
		.kind = kinds[save->engine_kind],
		.depth = save->n_slots,
		.buffers = &memory,
		.n_buffers = 1,
		.files = files,
		.n_files = (unsigned)save->n_files,
	};
	int err = hoist__engine_create(&options, &save->engine);
	free(files);
	return err;
}

/* Waits until the ring may fit, or the time is over. */
static int wait_for_budget(struct hoist_save *save)
{
	struct hoist__budget *budget = hoist__budget_of(save->budget);
	const size_t least = 2 * HOIST__STAGING_MIN_SLOT_BYTES;
	hoist__memories_yield(budget);
	int err = hoist__budget_acquire_wait(budget, least, CANCEL_POLL_NS);
	if (err == 0)
		hoist__budget_release(budget, least);
	return err == -EAGAIN ? 0 : err;
}

/* 0: running; 1: the budget is in use, call again; else the save fails. */
static int begin(struct hoist_save *save)
{
	int err = create_ring(save);
	if (err == -EAGAIN) {
		err = wait_for_budget(save);
		return err < 0 ? err : 1;
	}
	if (err == 0)
		err = create_engine(save);
	if (err == 0)
		err = hoist__seal_create(save);
	if (err < 0)
		return err;
	save->next_tensor = save->files[0].first;
	save->phase = HOIST__SAVE_RUNNING;
	return 0;
}

/* --- blocks --- */

static struct hoist__save_block *block_of(struct hoist_save *save, const struct hoist__slot *slot)
{
	return &save->blocks[slot->index];
}

static void submit(struct hoist_save *save, struct hoist__request *request)
{
	int err = hoist__engine_submit(save->engine, &request, 1);
	if (err < 0)
		fail(save, err);
	else
		save->n_inflight++;
}

/* Goes on filling; nothing of the block is in flight. */
static void advance(struct hoist_save *save, struct hoist__save_block *block)
{
	int err = hoist__block_fill(save, block);
	if (err < 0)
		fail(save, err);
	else if (block->state == HOIST__SAVE_BLOCK_READING)
		submit(save, &block->slot->request);
}

/* One at a time: filling takes the CPU a while, during which the disk shall not wait for the next
 * write.  Returns: false if no more can be begun now. */
static bool begin_block(struct hoist_save *save)
{
	if (save->phase != HOIST__SAVE_RUNNING || save->next_file == save->n_files)
		return false;
	struct hoist__slot *slot = hoist__staging_acquire(save->ring);
	if (slot == NULL)
		return false;
	if (!hoist__block_begin(save, slot)) {
		hoist__slot_release(save->ring, slot);
		return false;
	}
	save->window[save->n_begun++ % save->n_slots] = slot->index;
	advance(save, block_of(save, slot));
	return true;
}

static void take_fetched(struct hoist_save *save)
{
	struct hoist__slot *slot;
	int n;
	while ((n = hoist__staging_fetched(save->ring, &slot)) > 0)
		block_of(save, slot)->state = HOIST__SAVE_BLOCK_FULL;
	if (n < 0)
		fail(save, n);
}

/* --- writing --- */

static void write_block(struct hoist_save *save, struct hoist__save_block *block)
{
	const struct hoist__file *file = hoist__output_file(block->file->output);
	struct hoist__request *request = &block->slot->request;
	request->file = file;
	request->direct = file->direct_fd >= 0;
	request->offset = block->begin;
	request->bytes = block->bytes;
	request->write = true;
	request->hot = false;
	request->drop = false;
	request->owner = block;
	request->address = block->memory;
	if (block->straight != NULL) {
		/* Written from, never to. */
		memcpy(&request->address, &block->straight, sizeof request->address);
		request->buffer = -1;
		save->routes.straight++;
	} else if (request->direct) {
		request->bytes = (size_t)hoist__round_up(block->bytes, file->offset_align);
		memset(block->memory + block->bytes, 0, request->bytes - block->bytes);
	}
	request->need = request->bytes;
	if (file->direct_fd < 0)
		save->routes.note = file->direct_note;
	block->state = HOIST__SAVE_BLOCK_WRITING;
	save->routes.n_writes++;
	save->n_writing++;
	submit(save, request);
}

static void seal_blocks(struct hoist_save *save)
{
	while (save->phase == HOIST__SAVE_RUNNING && save->n_sealed < save->n_begun &&
	       save->n_writing < HOIST__SAVE_WRITES) {
		struct hoist__save_block *block =
			&save->blocks[save->window[save->n_sealed % save->n_slots]];
		if (block->state != HOIST__SAVE_BLOCK_FULL)
			return;
		hoist__seal_block(save, block);
		save->n_sealed++;
		write_block(save, block);
	}
}

/* --- completions --- */

static void complete_write(struct hoist_save *save, struct hoist__save_block *block)
{
	const struct hoist__request *request = &block->slot->request;
	save->n_writing--;
	save->report.direct_bytes += hoist__min_u64(request->direct_done, block->bytes);
	save->routes.fell_back += request->fell_back;
	if (request->result < 0) {
		if (save->phase == HOIST__SAVE_RUNNING)
			fail(save, hoist__fail_errno(
					   request->result, "writing %s at byte %llu",
					   request->file->path,
					   (unsigned long long)(request->offset + request->done)));
	} else {
		atomic_fetch_add_explicit(&save->written, block->bytes, memory_order_relaxed);
	}
	hoist__slot_release(save->ring, block->slot);
	block->slot = NULL;
}

static void complete_read(struct hoist_save *save, struct hoist__save_block *block)
{
	const struct hoist__request *request = &block->slot->request;
	if (save->phase != HOIST__SAVE_RUNNING)
		return;
	if (request->result == 0) {
		advance(save, block);
		return;
	}
	const char *name = save->tensors[block->tensor].name;
	unsigned long long at = (unsigned long long)(request->offset + request->done);
	if (request->result == -ENODATA)
		fail(save, hoist__fail(-ENODATA,
				       "%s ends at byte %llu, in tensor \"%.200s\" or one behind "
				       "it; do not change files while they are saved from",
				       request->file->path, at, name));
	else
		fail(save, hoist__fail_errno(request->result,
					     "reading %s at byte %llu, tensor \"%.200s\" or one "
					     "behind it",
					     request->file->path, at, name));
}

static void reap(struct hoist_save *save, uint64_t timeout_ns)
{
	struct hoist__request *done[HOIST__SAVE_SLOTS];
	int n = hoist__engine_reap(save->engine, done, HOIST__SAVE_SLOTS, timeout_ns);
	if (n < 0) {
		fail(save, n);
		return;
	}
	for (int i = 0; i < n; i++) {
		struct hoist__save_block *block = done[i]->owner;
		save->n_inflight--;
		if (done[i]->write)
			complete_write(save, block);
		else
			complete_read(save, block);
	}
}

/* --- end --- */

/* What the kernel may still read from, or write to, is nobody's any more: it stays as it is, and
 * charged to the budget. */
static void give_up_memory(struct hoist_save *save)
{
	hoist__log(load, "requests were abandoned: their memory is never used again");
	save->ring = NULL;
	for (size_t i = 0; i < save->n_sources; i++)
		if (save->sources[i].buffer != NULL)
			(void)hoist_buffer_ref(save->sources[i].buffer);
}

static void finish_report(struct hoist_save *save)
{
	hoist_save_report *report = &save->report;
	report->bytes = save->total_bytes;
	report->n_tensors = save->n_sources;
	report->n_files = save->n_files;
	report->budget_bytes = hoist__budget_limit(hoist__budget_of(save->budget));
	report->cached_bytes =
		atomic_load_explicit(&save->written, memory_order_relaxed) - report->direct_bytes;
	if (save->ring != NULL)
		report->staging_peak_bytes = hoist__staging_peak_bytes(save->ring);
	if (save->engine != NULL) {
		(void)snprintf(report->engine, sizeof report->engine, "%s",
			       hoist__engine_name(save->engine));
		(void)snprintf(report->engine_reason, sizeof report->engine_reason, "%s",
			       hoist__engine_reason(save->engine));
	}
	const struct hoist__save_routes *routes = &save->routes;
	const char *way = save->io == HOIST_IO_CACHED ? "through the page cache, as asked"
			  : routes->note == NULL      ? "direct"
						      : "through the page cache: ";
	(void)snprintf(report->io_reason, sizeof report->io_reason,
		       "%s%s; %llu of %llu writes from where the bytes were%s", way,
		       routes->note != NULL && save->io != HOIST_IO_CACHED ? routes->note : "",
		       (unsigned long long)routes->straight, (unsigned long long)routes->n_writes,
		       routes->fell_back > 0 ? "; some finished through the page cache" : "");
	report->ns = hoist__now_ns() - save->start_ns;
	report->cpu_ns = hoist__cpu_ns() - save->start_cpu_ns;
}

static void release(struct hoist_save *save)
{
	if (save->engine != NULL && hoist__engine_abandoned(save->engine))
		give_up_memory(save);
	hoist__engine_destroy(save->engine);
	save->engine = NULL;
	for (unsigned i = 0; save->ring != NULL && save->blocks != NULL && i < save->n_slots; i++) {
		struct hoist__slot *slot = save->blocks[i].slot;
		if (slot != NULL &&
		    (slot->state == HOIST__SLOT_READING || slot->state == HOIST__SLOT_FULL))
			hoist__slot_release(save->ring, slot);
	}
	hoist__staging_destroy(save->ring);
	save->ring = NULL;
	for (unsigned i = 0; save->blocks != NULL && i < save->n_slots; i++)
		free(save->blocks[i].pieces);
	free(save->blocks);
	free(save->window);
	save->blocks = NULL;
	save->window = NULL;
	hoist__seal_destroy(save);
}

static bool all_written(const struct hoist_save *save)
{
	return save->next_file == save->n_files && save->n_sealed == save->n_begun &&
	       save->n_inflight == 0;
}

/* @busy: there is more to do at once. */
static void wait_for_something(struct hoist_save *save, bool busy)
{
	/* A device that has failed is waited for when the ring goes. */
	bool fetching =
		save->phase == HOIST__SAVE_RUNNING && hoist__staging_n_fetching(save->ring) > 0;
	if (save->n_inflight > 0) {
		reap(save, busy ? 0 : fetching ? COPY_POLL_NS : CANCEL_POLL_NS);
	} else if (fetching && !busy) {
		const struct timespec nap = {.tv_nsec = (long)COPY_POLL_NS};
		(void)nanosleep(&nap, NULL);
	}
}

/* One round.  True once nothing is in flight, and nothing more to come. */
static bool step(struct hoist_save *save)
{
	if (atomic_load_explicit(&save->cancelled, memory_order_relaxed) &&
	    save->phase != HOIST__SAVE_DRAINING)
		fail(save, hoist__fail(-ECANCELED, "the save was cancelled"));
	if (save->phase == HOIST__SAVE_READY) {
		int begun = begin(save);
		if (begun > 0)
			return false;
		if (begun < 0)
			fail(save, begun);
	}
	if (save->phase == HOIST__SAVE_RUNNING)
		take_fetched(save);
	bool busy = begin_block(save);
	seal_blocks(save);
	if (save->phase == HOIST__SAVE_DRAINING && save->n_inflight == 0)
		return true;
	if (save->phase == HOIST__SAVE_RUNNING && all_written(save))
		return true;
	wait_for_something(save, busy);
	return false;
}

void hoist__save_run(struct hoist_save *save)
{
	while (!step(save))
		continue;
	if (save->phase == HOIST__SAVE_RUNNING) {
		int err = hoist__save_publish(save);
		if (err < 0)
			fail(save, err);
	}
	finish_report(save);
	release(save);
	save->phase = HOIST__SAVE_DONE;
}
