/* SPDX-License-Identifier: MIT */
/* Reads cells to slots.
 * The contract is in lib/swarm/cell-read.h. */
#include "config.h"

#include "lib/swarm/cell-read.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread.h"

#define LOOK_NS (UINT64_C(100) * 1000000) /* wakes are hints */
#define BATCH 32u
#define DEPTH 32u

/* Chooses as the load itself does (lib/load/pump-submit.c): direct reads, but for bytes that are in
 * the page cache already. */
static void choose_access(const struct hoist_load *load, struct hoist__request *request)
{
	const struct hoist__file *file = request->file;
	enum hoist_io io = load->options.io;
	uint64_t resident = 0;
	bool direct = file->direct_fd >= 0 && file->memory_align <= HOIST__BLOCK_BYTES &&
		      (io == HOIST_IO_DIRECT || (io == HOIST_IO_AUTO && file->fs->direct));
	bool known = hoist__file_resident(file, request->offset, request->need, &resident) == 0;
	bool hot = known && resident >= request->need - request->need / 10;
	request->direct = direct && (io == HOIST_IO_DIRECT || !hot);
	request->hot = !request->direct && known && resident >= request->need;
	request->drop = io == HOIST_IO_AUTO && known && resident == 0;
	if (!request->direct)
		request->bytes = request->need;
}

/* Makes the request of the cell's next run.  NULL: there is none. */
static struct hoist__request *next_request(const struct hoist__cell_reader *reader,
					   struct hoist__cell_job *job)
{
	const struct hoist__cells *cells = reader->cells;
	size_t index = hoist__cells_file(cells, job->cell);
	const struct hoist__file *file = cells->load->checkpoint->files[index].file;
	uint64_t at = (job->cell - cells->first[index]) * HOIST__CELL_BYTES;
	unsigned begin = 0;
	if (!hoist__blocks_run(job->blocks, HOIST__CELL_GAP, &job->next_block, &begin))
		return NULL;
	uint64_t align = hoist__max_u64(HOIST__BLOCK_BYTES, file->offset_align);
	uint64_t from = hoist__round_down(at + begin * HOIST__BLOCK_BYTES, align);
	uint64_t to = hoist__round_up(at + job->next_block * HOIST__BLOCK_BYTES, align);
	/* Nobody wants blocks behind the file's end, unless somebody lies. */
	if (from >= file->bytes || job->n_requests == HOIST__CELL_RUNS)
		return NULL;
	struct hoist__request *request = &job->requests[job->n_requests++];
	*request = (struct hoist__request){
		.file = file,
		.offset = from,
		.address = job->slot + (from - at),
		.bytes = (size_t)(to - from),
		.need = (size_t)(hoist__min_u64(to, file->bytes) - from),
		.buffer = -1, /* the kernel would take the memory of all slots to register them */
		.owner = job,
	};
	choose_access(cells->load, request);
	return request;
}

static void end_job(struct hoist__cell_reader *reader, struct hoist__cell_job *job)
{
	if (job->complete && job->n_open == 0)
		reader->ops->done(reader->context, job, job->err);
}

static struct hoist__cell_job *next_job(struct hoist__cell_reader *reader)
{
	struct hoist__cell_job *job = reader->ops->next(reader->context);
	if (job != NULL) {
		job->next_block = job->n_requests = job->n_open = 0;
		job->complete = false;
		job->err = 0;
	}
	return job;
}

/* Submits requests while the engine has room.  Returns: 0; the engine's error. */
static int submit(struct hoist__cell_reader *reader)
{
	while (hoist__engine_room(reader->engine) > 0) {
		struct hoist__cell_job *job = reader->current;
		if (job == NULL && (job = next_job(reader)) == NULL)
			return 0;
		reader->current = job;
		struct hoist__request *request = job->err < 0 ? NULL : next_request(reader, job);
		if (request == NULL) {
			job->complete = true;
			reader->current = NULL;
			end_job(reader, job);
			continue;
		}
		int err = hoist__engine_submit(reader->engine, &request, 1);
		if (err < 0)
			return err;
		job->n_open++;
		reader->n_reads++;
	}
	return 0;
}

static void finish(struct hoist__cell_reader *reader, const struct hoist__request *request)
{
	struct hoist__cell_job *job = request->owner;
	reader->direct_bytes += request->direct_done;
	reader->cached_bytes += request->done - request->direct_done;
	job->n_open--;
	if (request->result < 0 && job->err == 0)
		job->err = hoist__fail_errno(request->result == -EAGAIN ? -EIO : request->result,
					     "reading %s at byte %llu for the group",
					     request->file->path,
					     (unsigned long long)hoist__request_offset(request));
	end_job(reader, job);
}

static void *run(void *argument)
{
	struct hoist__cell_reader *reader = argument;
	int err = 0;
	while (err == 0 && !atomic_load(&reader->stopping)) {
		struct hoist__request *done[BATCH];
		err = submit(reader);
		int n = err == 0 ? hoist__engine_reap(reader->engine, done, BATCH, LOOK_NS) : 0;
		for (int i = 0; i < n; i++)
			finish(reader, done[i]);
		err = n < 0 ? n : err;
	}
	if (err < 0)
		reader->ops->failed(reader->context, err);
	return NULL;
}

/* --- begin and end --- */

static int make_engine(struct hoist__cell_reader *reader)
{
	static const enum hoist__engine_kind kinds[] = {
		[HOIST_ENGINE_AUTO] = HOIST__ENGINE_AUTO,
		[HOIST_ENGINE_URING] = HOIST__ENGINE_URING,
		[HOIST_ENGINE_THREADS] = HOIST__ENGINE_THREADS,
	};
	const struct hoist_load *load = reader->cells->load;
	size_t n_files = load->checkpoint->n_files;
	const struct hoist__file **files = calloc(n_files + 1, sizeof(*files));
	struct hoist__engine *engine = NULL;
	if (files == NULL)
		return hoist__fail_nomem("a table of files", n_files);
	for (size_t f = 0; f < n_files; f++)
		files[f] = load->checkpoint->files[f].file;
	const struct hoist__engine_options options = {
		.kind = kinds[load->options.engine],
		.depth = DEPTH,
		.shared = true,
		.files = files,
		.n_files = (unsigned)n_files,
	};
	int err = hoist__engine_create(&options, &engine);
	free(files);
	if (err == 0)
		atomic_store(&reader->engine, engine);
	return err;
}

int hoist__cell_reader_start(struct hoist__cell_reader *reader, const struct hoist__cells *cells,
			     const struct hoist__cell_reader_ops *ops, void *context)
{
	reader->ops = ops;
	reader->context = context;
	reader->cells = cells;
	int err = make_engine(reader);
	if (err == 0) {
		err = hoist__thread_start(NULL, run, reader, &reader->thread);
		reader->has_thread = err == 0;
		err = err < 0 ? hoist__fail_thread(err, "starting a group's reading thread") : 0;
	}
	return err;
}

void hoist__cell_reader_wake(struct hoist__cell_reader *reader)
{
	struct hoist__engine *engine = atomic_load(&reader->engine);
	if (engine != NULL)
		hoist__engine_wake(engine);
}

bool hoist__cell_reader_stop(struct hoist__cell_reader *reader)
{
	struct hoist__engine *engine = atomic_load(&reader->engine);
	bool abandoned = false;
	atomic_store(&reader->stopping, true);
	if (reader->has_thread) {
		hoist_load_report *report = &reader->cells->load->report;
		hoist__engine_wake(engine);
		pthread_join(reader->thread, NULL);
		report->direct_bytes += reader->direct_bytes;
		report->cached_bytes += reader->cached_bytes;
		report->n_reads += reader->n_reads;
	}
	reader->has_thread = false;
	if (engine != NULL) {
		struct hoist__request *done[BATCH];
		hoist__engine_cancel(engine);
		while (hoist__engine_in_flight(engine) > 0)
			if (hoist__engine_reap(engine, done, BATCH, LOOK_NS) < 0)
				break;
		abandoned = hoist__engine_abandoned(engine);
	}
	return !abandoned;
}

void hoist__cell_reader_destroy(struct hoist__cell_reader *reader)
{
	hoist__engine_destroy(atomic_exchange(&reader->engine, NULL));
}
