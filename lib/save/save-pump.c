/* SPDX-License-Identifier: MIT */
/* The pump: rounds and end of a save.
 * The contract is in lib/job/job.h; lib/save/save.h tells how the pump works. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "lib/save/save.h"

/* True if the window has the blocks that are begun and not sealed, and each of them has a slot. */
HOIST__CONDITION static bool adds_up(const struct hoist_save *save)
{
	if (save->n_sealed > save->n_begun || save->n_begun - save->n_sealed > save->n_slots ||
	    save->n_writing > HOIST__SAVE_WRITES ||
	    save->n_writing > hoist__job_n_inflight(&save->job) + 1)
		return false;
	for (uint64_t n = save->n_sealed; n < save->n_begun; n++) {
		unsigned slot = save->window[n % save->n_slots];
		const struct hoist__save_block *block = &save->blocks[slot];
		if (slot >= save->n_slots || block->slot->index != slot ||
		    block->slot->state == HOIST__SLOT_FREE || block->filled > block->bytes)
			return false;
	}
	return true;
}

/* --- blocks --- */

static void submit(struct hoist_save *save, struct hoist__request *request)
{
	int err = hoist__engine_submit(save->job.engine, &request, 1);
	if (err < 0)
		hoist__job_fail(&save->job, err);
}

/* Goes on filling the block, which has no request in flight. */
static void advance(struct hoist_save *save, struct hoist__save_block *block)
{
	HOIST__ASSERT(block->slot->state == HOIST__SLOT_READING &&
		      save->job.phase == HOIST__JOB_RUNNING);
	int err = hoist__block_fill(save, block);
	if (err < 0)
		hoist__job_fail(&save->job, err);
	else if (err > 0)
		submit(save, &block->slot->request);
}

/* Begins one block at a time: filling takes the CPU a while, and the disk should not wait for its
 * next write meanwhile.  Returns: false if no more blocks can be begun now. */
static bool begin_block(struct hoist_save *save)
{
	if (save->job.phase != HOIST__JOB_RUNNING || save->next_file == save->n_files)
		return false;
	struct hoist__slot *slot = hoist__staging_acquire(save->job.staging);
	if (slot == NULL)
		return false;
	if (!hoist__block_begin(save, slot)) {
		hoist__slot_release(save->job.staging, slot);
		return false;
	}
	HOIST__ASSERT(save->n_begun - save->n_sealed < save->n_slots);
	save->window[save->n_begun++ % save->n_slots] = slot->index;
	advance(save, &save->blocks[slot->index]);
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

/* --- writing --- */

static void write_block(struct hoist_save *save, struct hoist__save_block *block)
{
	const struct hoist__file *file = hoist__output_file(block->file->output);
	struct hoist__request *request = &block->slot->request;
	HOIST__ASSERT(block->slot->state == HOIST__SLOT_FULL);
	HOIST__ASSERT(block->straight != NULL || block->filled == block->bytes);
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
	save->routes.n_writes++;
	save->n_writing++;
	submit(save, request);
}

static void seal_blocks(struct hoist_save *save)
{
	while (save->job.phase == HOIST__JOB_RUNNING && save->n_sealed < save->n_begun &&
	       save->n_writing < HOIST__SAVE_WRITES) {
		struct hoist__save_block *block =
			&save->blocks[save->window[save->n_sealed % save->n_slots]];
		if (block->slot->state != HOIST__SLOT_FULL)
			return;
		hoist__seal_block(save, block);
		save->n_sealed++;
		write_block(save, block);
	}
}

/* --- completions --- */

/* Names the tensors with bytes in [@begin, @end) of the file, for messages: a failed direct write
 * does not tell which of its bytes failed. */
static void describe(const struct hoist_save *save, const struct hoist__save_file *file,
		     uint64_t begin, uint64_t end, char *text, size_t bytes)
{
	const struct hoist__out_tensor *first = NULL;
	const struct hoist__out_tensor *last = NULL;
	for (size_t t = file->first; t < file->first + file->out.n_tensors; t++) {
		const struct hoist__out_tensor *tensor = &save->tensors[t];
		if (tensor->bytes == 0 || tensor->offset >= end ||
		    tensor->offset + tensor->bytes <= begin)
			continue;
		first = first == NULL ? tensor : first;
		last = tensor;
	}
	const char *header = begin < file->out.header_bytes ? "the header, " : "";
	if (first == NULL)
		(void)snprintf(text, bytes, "%s", *header != '\0' ? "the header" : "no tensor's");
	else if (first == last)
		(void)snprintf(text, bytes, "%stensor \"%.200s\"", header, first->name);
	else
		(void)snprintf(text, bytes, "%stensors \"%.200s\" to \"%.200s\"", header,
			       first->name, last->name);
}

static int fail_write(const struct hoist_save *save, const struct hoist__save_block *block)
{
	const struct hoist__request *request = &block->slot->request;
	uint64_t begin = request->offset + request->done;
	uint64_t end = block->begin + block->bytes;
	char whose[512];
	describe(save, block->file, begin, end, whose, sizeof whose);
	return hoist__fail_errno(request->result, "writing %s at bytes %llu to %llu, %s",
				 request->file->path, (unsigned long long)begin,
				 (unsigned long long)end, whose);
}

static void complete_write(struct hoist_save *save, struct hoist__save_block *block)
{
	const struct hoist__request *request = &block->slot->request;
	HOIST__ASSERT(save->n_writing != 0 && block->slot->state == HOIST__SLOT_FULL);
	save->n_writing--;
	save->report.direct_bytes += hoist__min_u64(request->direct_done, block->bytes);
	save->routes.fell_back += request->fell_back;
	if (request->result < 0) {
		if (save->job.phase == HOIST__JOB_RUNNING)
			hoist__job_fail(&save->job, fail_write(save, block));
	} else {
		HOIST__ASSERT(save->written + block->bytes <= save->total_bytes);
		atomic_fetch_add_explicit(&save->written, block->bytes, memory_order_relaxed);
	}
	hoist__slot_release(save->job.staging, block->slot);
}

static int fail_read(const struct hoist_save *save, const struct hoist__save_block *block)
{
	const struct hoist__request *request = &block->slot->request;
	const struct hoist__save_source *source = &save->sources[block->tensor];
	const char *name = source->checkpoint->tensors[source->index].tensor->name;
	unsigned long long at = (unsigned long long)hoist__max_u64(request->offset + request->done,
								   hoist__block_wants(save, block));
	if (request->result == -ENODATA)
		return hoist__fail(
			-ENODATA,
			"%s ends at byte %llu, in tensor \"%.200s\"; do not change files "
			"while they are saved from",
			request->file->path, (unsigned long long)(request->offset + request->done),
			name);
	return hoist__fail_errno(request->result, "reading %s at byte %llu, tensor \"%.200s\"",
				 request->file->path, at, name);
}

static void complete_read(struct hoist_save *save, struct hoist__save_block *block)
{
	const struct hoist__request *request = &block->slot->request;
	HOIST__ASSERT(block->slot->state == HOIST__SLOT_READING && !request->write);
	if (save->job.phase != HOIST__JOB_RUNNING)
		return;
	if (request->result == 0 || hoist__block_retry(block))
		advance(save, block);
	else
		hoist__job_fail(&save->job, fail_read(save, block));
}

static void reap(struct hoist_save *save, bool fetching, uint64_t timeout_ns)
{
	struct hoist__request *done[HOIST__SAVE_SLOTS];
	unsigned n = hoist__job_reap(&save->job, done, HOIST__SAVE_SLOTS, fetching, timeout_ns);
	for (unsigned i = 0; i < n; i++) {
		struct hoist__save_block *block = done[i]->owner;
		if (done[i]->write)
			complete_write(save, block);
		else
			complete_read(save, block);
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
	bool busy = begin_block(save);
	seal_blocks(save);
	HOIST__ASSERT(save->n_slots == 0 || adds_up(save));
	bool running = job->phase == HOIST__JOB_RUNNING;
	bool flying = hoist__job_n_inflight(job) > 0;
	if (!flying && (!running || all_written(save)))
		return true;
	/* Fetches of a failed device are waited for when the slots are released.  With only fetches
	 * in flight, the engine's wait ends by the wake at the end of one. */
	bool fetching = running && hoist__staging_n_fetching(job->staging) > 0;
	if (flying || (fetching && !busy))
		reap(save, fetching, busy ? 0 : timeout_ns);
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
