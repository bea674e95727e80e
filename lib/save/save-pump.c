/* SPDX-License-Identifier: MIT */
/* The pump: rounds and end of a save.
 * The contract is in lib/job/job.h; lib/save/save.h tells how the pump works. */
#include "config.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "lib/save/save.h"

/* True if the window has the blocks that are begun and not sealed, and each of them has a slot or
 * needs none. */
HOIST__CONDITION static bool adds_up(const struct hoist_save *save)
{
	if (save->n_sealed > save->n_begun ||
	    save->n_begun - save->n_sealed > save->n_blocks - save->n_free ||
	    save->n_writing > HOIST__SAVE_WRITES ||
	    save->n_writing > hoist__job_n_inflight(&save->job) + 1)
		return false;
	for (uint64_t n = save->n_sealed; n < save->n_begun; n++) {
		const struct hoist__save_block *block =
			&save->blocks[save->window[n % save->n_blocks]];
		if ((block->slot == NULL) != (block->straight != NULL) ||
		    (block->slot != NULL && block->slot->state == HOIST__SLOT_FREE))
			return false;
	}
	return true;
}

static void submit(struct hoist_save *save, struct hoist__request *request)
{
	int err = hoist__engine_submit(save->job.engine, &request, 1);
	if (err < 0)
		hoist__job_fail(&save->job, err);
}

/* Has the crew do a part of the block's work. */
static void submit_work(struct hoist_save *save, struct hoist__save_block *block,
			int (*work)(void *block))
{
	block->work = (struct hoist__request){
		.file = hoist__output_file(block->file->output),
		.work = work,
		.owner = block,
	};
	submit(save, &block->work);
}

/* --- filling --- */

/* Runs in a thread of the crew's. */
static int fill_heavy(void *context)
{
	struct hoist__save_block *block = context;
	block->step = hoist__block_fill(block->save, block, true);
	if (block->step >= 0)
		return 0;
	hoist__failure_keep(&block->failure);
	return block->step;
}

/* Queues the fetches from all devices. */
static int fetch(struct hoist_save *save, struct hoist__save_block *block)
{
	int err = 0;
	for (unsigned s = 0; err == 0 && s < save->n_streams; s++) {
		const struct hoist__save_fetch *f = &block->fetches[s];
		if (f->n > 0)
			err = hoist__slot_fetch(save->job.staging, block->slot, s, f->boxes, f->n);
	}
	return err;
}

void hoist__save_step(struct hoist_save *save, struct hoist__save_block *block, int step)
{
	HOIST__ASSERT(block->slot->state == HOIST__SLOT_READING &&
		      save->job.phase == HOIST__JOB_RUNNING);
	if (step == HOIST__FILL_HEAVY) {
		submit_work(save, block, fill_heavy);
	} else if (step == HOIST__FILL_READ) {
		submit(save, &block->request);
	} else {
		int err = step < 0 ? step : fetch(save, block);
		if (err < 0)
			hoist__job_fail(&save->job, err);
		else if (block->slot->state == HOIST__SLOT_READING)
			hoist__slot_filled(save->job.staging, block->slot);
	}
}

/* Begins one block.  Slots are made only while the disk could take more.
 * Returns: false if no more blocks can be begun now. */
static bool begin_block(struct hoist_save *save)
{
	struct hoist__save_next next;
	struct hoist__slot *slot = NULL;
	if (save->job.phase != HOIST__JOB_RUNNING || save->n_free == 0 ||
	    !hoist__block_next(save, &next))
		return false;
	if (next.straight == NULL) {
		slot = hoist__staging_acquire(save->job.staging);
		if (slot == NULL && save->n_writing < HOIST__SAVE_WRITES)
			hoist__job_grow_staging(&save->job, hoist__output_file(next.file->output));
		if (slot == NULL)
			return false;
	}
	struct hoist__save_block *block = hoist__block_begin(save, &next, slot);
	if (slot != NULL)
		hoist__save_step(save, block, hoist__block_fill(save, block, false));
	return true;
}

static void take_fetched(struct hoist_save *save)
{
	struct hoist__slot *slot;
	int n;
	while ((n = hoist__staging_fetched(save->job.staging, &slot)) > 0)
		continue;
	if (n < 0)
		hoist__job_fail(&save->job, n);
}

/* --- sealing and writing --- */

void hoist__save_write(struct hoist_save *save, struct hoist__save_block *block)
{
	const struct hoist__file *file = hoist__output_file(block->file->output);
	struct hoist__request *request = &block->request;
	HOIST__ASSERT(hoist__block_full(block));
	HOIST__ASSERT(block->straight != NULL || block->filled == block->bytes);
	*request = (struct hoist__request){
		.file = file,
		.direct = file->direct_fd >= 0,
		.offset = block->begin,
		.bytes = block->bytes,
		.write = true,
		.owner = block,
		.address = block->memory,
	};
	if (block->straight != NULL) {
		/* The engine only reads from this address. */
		memcpy(&request->address, &block->straight, sizeof request->address);
		request->buffer = -1;
		save->routes.straight++;
	} else if (request->direct) {
		/* A direct write takes whole blocks; hoist__output_finish() cuts the file to its
		 * length. */
		request->bytes = (size_t)hoist__round_up(block->bytes, file->offset_align);
		memset(block->memory + block->bytes, 0, request->bytes - block->bytes);
	}
	HOIST__ASSERT(block->straight != NULL ||
		      request->bytes <= hoist__staging_slot_bytes(save->job.staging));
	HOIST__ASSERT(!request->direct || request->offset % file->offset_align == 0);
	request->need = request->bytes;
	if (file->direct_fd < 0)
		save->routes.note = file->direct_note;
	save->n_sealed++;
	save->routes.n_writes++;
	save->n_writing++;
	submit(save, request);
}

/* Runs in a thread of the crew's. */
static int seal_heavy(void *context)
{
	struct hoist__save_block *block = context;
	hoist__seal_block(block->save, block);
	return 0;
}

static void seal_blocks(struct hoist_save *save)
{
	while (save->job.phase == HOIST__JOB_RUNNING && save->n_sealed < save->n_begun &&
	       save->n_writing < HOIST__SAVE_WRITES && !save->sealing) {
		struct hoist__save_block *block =
			&save->blocks[save->window[save->n_sealed % save->n_blocks]];
		if (!hoist__block_full(block))
			return;
		if (save->digest != NULL && block->bytes > HOIST__SAVE_HEAVY_BYTES) {
			save->sealing = true;
			submit_work(save, block, seal_heavy);
		} else {
			hoist__seal_block(save, block);
			hoist__save_write(save, block);
		}
	}
}

/* --- the loop --- */

static bool all_written(const struct hoist_save *save)
{
	return save->next_file == save->n_files && save->n_sealed == save->n_begun;
}

static bool round_of_save(struct hoist__job *job, uint64_t timeout_ns)
{
	struct hoist_save *save = hoist__save_of(job);
	if (job->phase == HOIST__JOB_RUNNING)
		take_fetched(save);
	else
		hoist__feed_stop(save);
	bool busy = begin_block(save);
	seal_blocks(save);
	HOIST__ASSERT(adds_up(save));
	bool running = job->phase == HOIST__JOB_RUNNING;
	bool flying = hoist__job_n_inflight(job) > 0;
	if (!flying && (!running || all_written(save)))
		return true;
	/* Fetches of a failed device are waited for when the slots are released.  With only fetches
	 * in flight, the engine's wait ends by the wake at the end of one. */
	bool fetching = running && hoist__staging_n_fetching(job->staging) > 0;
	if (flying || (fetching && !busy))
		hoist__save_reap(save, fetching, busy ? 0 : timeout_ns);
	return false;
}

static void end(struct hoist__job *job)
{
	struct hoist_save *save = hoist__save_of(job);
	if (job->phase == HOIST__JOB_RUNNING) {
		HOIST__ASSERT(save->n_writing == 0 && save->written == save->total_bytes);
		int err = hoist__save_publish(save);
		if (err < 0)
			hoist__job_fail(job, err);
	}
	hoist__save_report(save);
	hoist__save_release(save);
}

const struct hoist__job_kind hoist__save_kind = {
	.what = "save",
	.starting = "starting the save's thread",
	.begin = hoist__save_begin,
	.make_staging = hoist__save_make_staging,
	.round = round_of_save,
	.end = end,
};
