/* SPDX-License-Identifier: MIT */
/* Makes the pump's slots, blocks and engine, and gives them back; the report.
 * The contract is in lib/save/save.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "lib/device/device.h"
#include "lib/device/stream-private.h"
#include "lib/device/stream.h"
#include "lib/memory/budget.h"
#include "lib/memory/device-memory.h"
#include "lib/save/save.h"

#define LEAST_BYTES (2 * HOIST__STAGING_MIN_SLOT_BYTES)

/* --- begin --- */

static int staging_pool(struct hoist_save *save, struct hoist__pool **ret)
{
	hoist_device *device = NULL;
	int err = 0;
	if (save->n_streams > 0)
		device = hoist_stream_device(save->streams[0]);
	else
		err = hoist__device_cpu(&device);
	return err < 0 ? err : hoist__device_staging_pool(device, ret);
}

/* Slots are larger than blocks, so that reads of files have room to lie above their places. */
static void size_blocks(struct hoist_save *save)
{
	size_t slot = hoist__staging_slot_bytes(save->job.staging);
	uint64_t slack = 4 * save->source_align;
	if (4 * slack > slot)
		slack = 0; /* no direct reads then */
	uint64_t align = HOIST__FILE_MAX_ALIGN;
	if (slot - slack < 4 * align)
		for (size_t f = align = 1; f <= save->n_files; f++)
			align = hoist__max_u64(
				align, hoist__output_file(save->files[f - 1].output)->offset_align);
	save->block_bytes = (size_t)hoist__round_down(slot - slack, align);
	HOIST__ASSERT(save->block_bytes != 0 && save->block_bytes <= slot);
}

static uint64_t count_blocks(const struct hoist_save *save, size_t block_bytes)
{
	uint64_t n = 0;
	for (size_t f = 0; f < save->n_files; f++)
		n += save->files[f].out.bytes / block_bytes + 1;
	return n;
}

static int create_tables(struct hoist_save *save)
{
	size_t n = hoist__staging_n_slots(save->job.staging) + HOIST__SAVE_WRITES;
	size_t n_fetches = n * save->n_streams;
	HOIST__ASSERT(save->blocks == NULL && save->window == NULL);
	save->blocks = calloc(n, sizeof *save->blocks);
	save->window = calloc(n, sizeof *save->window);
	save->free_blocks = calloc(n, sizeof *save->free_blocks);
	save->fetches = calloc(n_fetches > 0 ? n_fetches : 1, sizeof *save->fetches);
	save->n_blocks = (unsigned)n;
	if (save->blocks == NULL || save->window == NULL || save->free_blocks == NULL ||
	    save->fetches == NULL)
		return hoist__fail_nomem("a table of blocks", n * sizeof *save->blocks);
	for (size_t i = 0; i < n; i++) {
		save->blocks[i].save = save;
		save->blocks[i].fetches = save->fetches + i * save->n_streams;
		save->free_blocks[save->n_free++] = (unsigned)(n - 1 - i);
	}
	size_blocks(save);
	return 0;
}

/* A save that loads takes a quarter of the budget for slots. */
static void leave_room(const struct hoist__job *job, size_t *slot_bytes, uint64_t *n_slots)
{
	uint64_t share = hoist__budget_limit(hoist__budget_of(job->budget)) / 4;
	uint64_t slot = hoist__round_down(share / 8, HOIST__STAGING_MIN_SLOT_BYTES);
	slot = hoist__max_u64(slot, HOIST__STAGING_MIN_SLOT_BYTES);
	*slot_bytes = (size_t)hoist__min_u64(slot, *slot_bytes);
	*n_slots = hoist__min_u64(hoist__max_u64(share / *slot_bytes, 4), *n_slots);
}

int hoist__save_make_staging(struct hoist__job *job)
{
	struct hoist_save *save = hoist__save_of(job);
	struct hoist__pool *pool;
	struct hoist__dev_stream *streams[HOIST__STAGING_MAX_STREAMS];
	int err = staging_pool(save, &pool);
	if (err < 0)
		return err;
	for (unsigned i = 0; i < save->n_streams; i++)
		streams[i] = hoist__stream_dev_stream(save->streams[i]);
	/* A small save takes no more of a shared budget than it can use. */
	size_t slot_bytes = HOIST__SAVE_SLOT_BYTES;
	uint64_t most = HOIST__SAVE_SLOTS;
	if (save->feed.n_batches > 0)
		leave_room(job, &slot_bytes, &most);
	uint64_t n = count_blocks(save, slot_bytes / 2) + 1;
	struct hoist__staging_options options = {
		.streams = streams,
		.n_streams = save->n_streams,
		.pool = pool,
		.slot_bytes = slot_bytes,
		.n_slots = (unsigned)hoist__min_u64(n, most),
		.n_step = HOIST__SAVE_STEP,
	};
	hoist__job_size_staging(job, &options, HOIST__SAVE_SLOTS * HOIST__SAVE_SLOT_BYTES);
	err = hoist__job_create_staging(job, &options);
	return err < 0 ? err : create_tables(save);
}

static int create_engine(struct hoist_save *save)
{
	const struct hoist__file **files = calloc(save->n_files, sizeof *files);
	if (files == NULL)
		return hoist__fail_nomem("a list of files", save->n_files * sizeof *files);
	for (size_t f = 0; f < save->n_files; f++)
		files[f] = hoist__output_file(save->files[f].output);
	struct hoist__engine_options options = {
		.depth = save->n_blocks, /* each block has one request at a time */
		.files = files,
		.n_files = (unsigned)save->n_files,
	};
	int err = hoist__job_create_engine(&save->job, save->engine_kind, &options);
	free(files);
	return err;
}

int hoist__save_begin(struct hoist__job *job, uint64_t timeout_ns)
{
	struct hoist_save *save = hoist__save_of(job);
	int err = hoist__job_take_staging(job, LEAST_BYTES, timeout_ns);
	if (err == 0)
		err = create_engine(save);
	if (err == 0)
		err = hoist__seal_create(save);
	if (err == 0)
		save->next_tensor = save->run_tensor = save->files[0].first;
	return err;
}

/* --- end --- */

/* The kernel may still read buffers that are written straight from their memory: they are
 * leaked. */
static void leak_buffers(struct hoist_save *save)
{
	for (size_t i = 0; i < save->n_sources; i++)
		if (save->sources[i].buffer != NULL)
			(void)hoist_buffer_ref(save->sources[i].buffer);
}

/* Runs before the job's release: the engine's texts and the staging's peak are read here. */
void hoist__save_report(struct hoist_save *save)
{
	hoist_save_report *report = &save->report;
	report->bytes = save->total_bytes;
	report->n_tensors = save->n_sources;
	report->n_files = save->n_files;
	report->budget_bytes = hoist__budget_limit(hoist__budget_of(save->job.budget));
	report->cached_bytes =
		atomic_load_explicit(&save->written, memory_order_relaxed) - report->direct_bytes;
	if (save->job.staging != NULL)
		report->staging_peak_bytes = hoist__staging_peak_bytes(save->job.staging);
	if (save->job.engine != NULL) {
		(void)snprintf(report->engine, sizeof report->engine, "%s",
			       hoist__engine_name(save->job.engine));
		(void)snprintf(report->engine_reason, sizeof report->engine_reason, "%s",
			       hoist__engine_reason(save->job.engine));
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
	hoist__job_times(&save->job, &report->ns, &report->cpu_ns);
}

void hoist__save_release(struct hoist_save *save)
{
	if (!hoist__job_release(&save->job))
		leak_buffers(save);
	for (size_t i = 0; save->fetches != NULL && i < (size_t)save->n_blocks * save->n_streams;
	     i++)
		free(save->fetches[i].boxes);
	free(save->fetches);
	free(save->blocks);
	free(save->window);
	free(save->free_blocks);
	save->fetches = NULL;
	save->blocks = NULL;
	save->window = save->free_blocks = NULL;
	hoist__feed_release(save);
	hoist_buffer_unref(save->packed);
	save->packed = NULL;
	save->packed_of = NULL;
	hoist__seal_destroy(save);
}
