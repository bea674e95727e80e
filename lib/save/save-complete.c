/* SPDX-License-Identifier: MIT */
/* Takes requests that have ended: the next step of their blocks, or the save's failure.
 * The contract is in lib/save/save.h. */
#include "config.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/checked.h"
#include "lib/save/save.h"

#define N_REAPED 24

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
	const struct hoist__request *request = &block->request;
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
	const struct hoist__request *request = &block->request;
	HOIST__ASSERT(save->n_writing != 0 && hoist__block_full(block));
	save->n_writing--;
	save->report.direct_bytes += hoist__min_u64(request->direct_done, block->bytes);
	save->routes.fell_back += request->fell_back;
	if (request->result < 0) {
		if (save->job.phase == HOIST__JOB_RUNNING)
			hoist__job_fail(&save->job, fail_write(save, block));
	} else {
		HOIST__ASSERT(save->written + block->bytes <= save->total_bytes);
		atomic_fetch_add_explicit(&save->written, block->bytes, memory_order_relaxed);
		save->report.straight_bytes += block->straight != NULL ? block->bytes : 0;
	}
	if (block->slot != NULL)
		hoist__slot_release(save->job.staging, block->slot);
	save->free_blocks[save->n_free++] = (unsigned)(block - save->blocks);
	HOIST__ASSERT(save->n_free <= save->n_blocks);
}

static int fail_read(const struct hoist_save *save, const struct hoist__save_block *block)
{
	const struct hoist__request *request = &block->request;
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
	const struct hoist__request *request = &block->request;
	HOIST__ASSERT(block->slot->state == HOIST__SLOT_READING && !request->write);
	if (save->job.phase != HOIST__JOB_RUNNING)
		return;
	if (request->result == 0 || hoist__block_retry(block))
		hoist__save_step(save, block, hoist__block_fill(save, block, false));
	else
		hoist__job_fail(&save->job, fail_read(save, block));
}

/* A block of a save that has failed is left as it is. */
static void complete_work(struct hoist_save *save, struct hoist__save_block *block)
{
	int err = block->work.result;
	if (save->job.phase != HOIST__JOB_RUNNING)
		return;
	if (hoist__block_full(block)) {
		HOIST__ASSERT(save->sealing && err == 0);
		save->sealing = false;
		hoist__save_write(save, block);
		return;
	}
	hoist__save_step(save, block,
			 err < 0 ? hoist__fail_again(err, &block->failure) : block->step);
}

void hoist__save_reap(struct hoist_save *save, bool fetching, uint64_t timeout_ns)
{
	struct hoist__request *done[N_REAPED];
	unsigned n = hoist__job_reap(&save->job, done, N_REAPED, fetching, timeout_ns);
	for (unsigned i = 0; i < n; i++) {
		struct hoist__save_block *block = done[i]->owner;
		if (done[i]->work != NULL)
			complete_work(save, block);
		else if (done[i]->write)
			complete_write(save, block);
		else
			complete_read(save, block);
	}
}
