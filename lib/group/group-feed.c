/* SPDX-License-Identifier: MIT */
/* The feeder: reads this rank's cells to its slots, for all ranks.
 * The contract is in lib/group/group.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/thread.h"
#include "lib/group/group.h"

#define LOOK_NS (UINT64_C(100) * 1000000) /* wakes are hints */
#define BATCH 32u

static void fail(struct hoist__feeder *feeder, int err)
{
	struct hoist__member *member = feeder->member;
	pthread_mutex_lock(&member->lock);
	if (member->err == 0) {
		member->err = err;
		hoist__failure_keep(&member->failure);
	}
	pthread_mutex_unlock(&member->lock);
	hoist__engine_wake(member->load->job.engine);
}

/* As the load itself reads (lib/load/pump-submit.c): directly, but for bytes that are in the page
 * cache already. */
static void choose_way(const struct hoist__member *member, struct hoist__request *request)
{
	const struct hoist__file *file = request->file;
	enum hoist_io io = member->load->options.io;
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
static struct hoist__request *next_request(struct hoist__feeder *feeder,
					   struct hoist__fed_cell *fed)
{
	struct hoist__member *member = feeder->member;
	size_t index = hoist__member_file(member, fed->cell);
	const struct hoist__file *file = member->load->checkpoint->files[index].file;
	uint64_t at = (fed->cell - member->first_cell[index]) * HOIST__CELL_BYTES;
	unsigned begin = 0;
	if (!hoist__ownership_run(&member->ownership, fed->cell, &fed->next_block, &begin))
		return NULL;
	uint64_t align = hoist__max_u64(HOIST__BLOCK_BYTES, file->offset_align);
	uint64_t from = hoist__round_down(at + begin * HOIST__BLOCK_BYTES, align);
	uint64_t to = hoist__round_up(at + fed->next_block * HOIST__BLOCK_BYTES, align);
	/* No rank wants blocks behind the file's end, unless it lies. */
	if (from >= file->bytes || fed->n_requests == HOIST__CELL_RUNS)
		return NULL;
	struct hoist__request *request = &fed->requests[fed->n_requests++];
	*request = (struct hoist__request){
		.file = file,
		.offset = from,
		.address = fed->slot + (from - at),
		.bytes = (size_t)(to - from),
		.need = (size_t)(hoist__min_u64(to, file->bytes) - from),
		.buffer = -1, /* the kernel would take the memory of all slots to register them */
		.owner = fed,
	};
	choose_way(member, request);
	return request;
}

static void publish(struct hoist__feeder *feeder, const struct hoist__fed_cell *fed)
{
	struct hoist__member *member = feeder->member;
	member->ops->publish(member->transport, fed->ordinal,
			     member->ownership.cells[fed->cell].wanted_by);
}

/* Gives the next cell a slot.  Returns: the cell; NULL: there is none, or no slot, or a failure. */
static struct hoist__fed_cell *next_cell(struct hoist__feeder *feeder)
{
	struct hoist__member *member = feeder->member;
	uint32_t k = feeder->next;
	if (k == feeder->n_cells)
		return NULL;
	struct hoist__fed_cell *fed = &feeder->fed[k % HOIST__GROUP_SLOTS];
	uint64_t before = 0;
	if (k >= HOIST__GROUP_SLOTS)
		before = member->ownership.cells[feeder->cells[k - HOIST__GROUP_SLOTS]].wanted_by;
	int given =
		fed->n_open > 0 ? 0 : member->ops->slot(member->transport, k, before, &fed->slot);
	if (given < 0)
		fail(feeder, given);
	if (given <= 0)
		return NULL;
	fed->ordinal = k;
	fed->cell = feeder->cells[k];
	fed->next_block = 0;
	fed->n_requests = 0;
	fed->complete = false;
	return fed;
}

/* Submits what there is room for.  Returns: 0; the engine's error. */
static int feed(struct hoist__feeder *feeder, struct hoist__fed_cell **current)
{
	unsigned room;
	while ((room = hoist__engine_room(feeder->engine)) > 0) {
		struct hoist__request *request;
		struct hoist__fed_cell *fed = *current;
		if (fed == NULL && (fed = next_cell(feeder)) == NULL)
			return 0;
		*current = fed;
		request = next_request(feeder, fed);
		if (request == NULL) {
			fed->complete = true;
			*current = NULL;
			feeder->next++;
			if (fed->n_open == 0)
				publish(feeder, fed);
			continue;
		}
		int err = hoist__engine_submit(feeder->engine, &request, 1);
		if (err < 0)
			return err;
		fed->n_open++;
		feeder->n_reads++;
	}
	return 0;
}

static int finish(struct hoist__feeder *feeder, const struct hoist__request *request)
{
	struct hoist__fed_cell *fed = request->owner;
	feeder->direct_bytes += request->direct_done;
	feeder->cached_bytes += request->done - request->direct_done;
	fed->n_open--;
	if (request->result < 0)
		return hoist__fail_errno(request->result == -EAGAIN ? -EIO : request->result,
					 "reading %s at byte %llu for the group",
					 request->file->path,
					 (unsigned long long)hoist__request_offset(request));
	if (fed->complete && fed->n_open == 0)
		publish(feeder, fed);
	return 0;
}

static void *run(void *argument)
{
	struct hoist__feeder *feeder = argument;
	struct hoist__fed_cell *current = NULL;
	int err = 0;
	while (err == 0 && !atomic_load(&feeder->stopping)) {
		struct hoist__request *done[BATCH];
		err = feed(feeder, &current);
		int n = err == 0 ? hoist__engine_reap(feeder->engine, done, BATCH, LOOK_NS) : 0;
		for (int i = 0; i < n && err == 0; i++)
			err = finish(feeder, done[i]);
		err = n < 0 ? n : err;
	}
	if (err < 0)
		fail(feeder, err);
	return NULL;
}

/* --- begin and end --- */

static int make_engine(struct hoist__feeder *feeder)
{
	static const enum hoist__engine_kind kinds[] = {
		[HOIST_ENGINE_AUTO] = HOIST__ENGINE_AUTO,
		[HOIST_ENGINE_URING] = HOIST__ENGINE_URING,
		[HOIST_ENGINE_THREADS] = HOIST__ENGINE_THREADS,
	};
	const struct hoist__member *member = feeder->member;
	const struct hoist_checkpoint *checkpoint = member->load->checkpoint;
	const struct hoist__file **files = calloc(checkpoint->n_files + 1, sizeof(*files));
	struct hoist__engine *engine = NULL;
	if (files == NULL)
		return hoist__fail_nomem("a table of files", checkpoint->n_files);
	for (size_t f = 0; f < checkpoint->n_files; f++)
		files[f] = checkpoint->files[f].file;
	const struct hoist__engine_options options = {
		.kind = kinds[member->load->options.engine],
		.depth = HOIST__FEED_DEPTH,
		.shared = true,
		.files = files,
		.n_files = (unsigned)checkpoint->n_files,
	};
	int err = hoist__engine_create(&options, &engine);
	free(files);
	if (err == 0)
		atomic_store(&feeder->engine, engine);
	return err;
}

int hoist__feeder_start(struct hoist__feeder *feeder, struct hoist__member *member)
{
	const struct hoist__ownership *o = &member->ownership;
	uint32_t n = o->n_owned[member->rank];
	feeder->member = member;
	if (n == 0)
		return 0;
	feeder->cells = calloc(n, sizeof *feeder->cells);
	feeder->fed = calloc(HOIST__GROUP_SLOTS, sizeof *feeder->fed);
	if (feeder->cells == NULL || feeder->fed == NULL)
		return hoist__fail_nomem("the cells of a rank", n * sizeof *feeder->cells);
	for (size_t c = 0; c < o->n_cells; c++)
		if (o->cells[c].shared && o->cells[c].owner == member->rank)
			feeder->cells[feeder->n_cells++] = c;
	HOIST__ASSERT(feeder->n_cells == n);
	int err = make_engine(feeder);
	if (err == 0) {
		err = hoist__thread_start(NULL, run, feeder, &feeder->thread);
		feeder->has_thread = err == 0;
		err = err < 0 ? hoist__fail_thread(err, "starting a group's reading thread") : 0;
	}
	return err;
}

void hoist__feeder_wake(struct hoist__feeder *feeder)
{
	struct hoist__engine *engine = atomic_load(&feeder->engine);
	if (engine != NULL)
		hoist__engine_wake(engine);
}

bool hoist__feeder_stop(struct hoist__feeder *feeder)
{
	struct hoist__engine *engine = atomic_load(&feeder->engine);
	bool abandoned = false;
	atomic_store(&feeder->stopping, true);
	if (feeder->has_thread) {
		hoist__engine_wake(engine);
		pthread_join(feeder->thread, NULL);
	}
	feeder->has_thread = false;
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
