/* SPDX-License-Identifier: MIT */
/* Plans the loads that bring tensors which are not saved as they lie in their files.
 * The contract is in lib/save/feed.h. */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "lib/memory/budget.h"
#include "lib/save/save.h"

/* Larger batches gain nothing: they are as long as some reads of a disk. */
#define MOST_BATCH_BYTES ((uint64_t)16 << 20)
#define LEAST_BATCH_BYTES ((uint64_t)256 << 10)

static uint64_t limit_of(const struct hoist_save *save)
{
	return hoist__budget_limit(hoist__budget_of(save->job.budget));
}

static int make_budget(struct hoist_save *save)
{
	uint64_t bytes = hoist__max_u64(limit_of(save) / 4, HOIST__FEED_LEAST_BYTES);
	return hoist_budget_create((size_t)bytes, &save->feed.budget);
}

/* --- rows --- */

static uint64_t elements_behind_first(int rank, const int64_t *shape)
{
	uint64_t n = 1;
	for (int a = 1; a < rank; a++)
		n *= (uint64_t)shape[a];
	return n;
}

/* True if the tensor may be cut between two indices of its first axis, in the file as in the copy.
 */
static bool has_rows(const struct hoist__save_source *source, const struct hoist__out_tensor *out)
{
	const struct hoist__tensor *tensor = source->checkpoint->tensors[source->index].tensor;
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	if (tensor->strides != NULL || out->rank == 0 || out->shape[0] < 2)
		return false;
	uint64_t unit =
		info->block_bytes != 0 ? info->block_elements : 8u >> __builtin_ctz(info->bits);
	return elements_behind_first(tensor->rank, tensor->shape) % unit == 0 &&
	       elements_behind_first(out->rank, out->shape) % unit == 0;
}

/* --- batches --- */

/* Makes room for one more entry of a list. */
static int reserve(void *list, size_t n, size_t *room, size_t bytes)
{
	void **entries = list;
	if (n < *room)
		return 0;
	size_t more = *room == 0 ? 64 : 2 * *room;
	void *larger = reallocarray(*entries, more, bytes);
	if (larger == NULL)
		return hoist__fail_nomem("a list of loads", more * bytes);
	*entries = larger;
	*room = more;
	return 0;
}

static const struct hoist__save_source *last_source(const struct hoist_save *save,
						    const struct hoist__save_batch *batch)
{
	return &save->sources[save->feed.segments[batch->first + batch->n - 1].source];
}

/* A load gives the tensors of one checkpoint, each once, in ascending order, in one dtype. */
static bool takes(const struct hoist_save *save, const struct hoist__save_batch *batch,
		  const struct hoist__save_source *source)
{
	const struct hoist__save_source *last = last_source(save, batch);
	return last->checkpoint == source->checkpoint && last->asked == source->asked &&
	       last->index < source->index;
}

/* Finds, or begins, the batch of the next @least bytes or more.  *room: the bytes that it may take
 * in. */
static int open_batch(struct hoist_save *save, const struct hoist__save_source *source,
		      uint64_t batch_bytes, uint64_t least, uint64_t *room)
{
	struct hoist__save_feed *feed = &save->feed;
	if (feed->n_batches > 0) {
		const struct hoist__save_batch *batch = &feed->batches[feed->n_batches - 1];
		if (batch->bytes < batch_bytes && least <= batch_bytes - batch->bytes &&
		    takes(save, batch, source)) {
			*room = batch_bytes - batch->bytes;
			return 0;
		}
	}
	int err = reserve(&feed->batches, feed->n_batches, &feed->batches_room,
			  sizeof *feed->batches);
	if (err < 0)
		return err;
	feed->batches[feed->n_batches++] = (struct hoist__save_batch){.first = feed->n_segments};
	*room = hoist__max_u64(batch_bytes, least);
	return 0;
}

static int add_segment(struct hoist_save *save, const struct hoist__save_segment *segment)
{
	struct hoist__save_feed *feed = &save->feed;
	struct hoist__save_batch *batch = &feed->batches[feed->n_batches - 1];
	int err = reserve(&feed->segments, feed->n_segments, &feed->segments_room,
			  sizeof *feed->segments);
	if (err < 0)
		return err;
	feed->segments[feed->n_segments] = *segment;
	feed->segments[feed->n_segments++].batch = feed->n_batches - 1;
	batch->n++;
	batch->bytes += segment->bytes;
	batch->left += segment->bytes;
	return 0;
}

/* A tensor that does not fit into one batch is divided, if its rows allow that. */
static int plan_source(struct hoist_save *save, size_t s, uint64_t batch_bytes)
{
	const struct hoist__out_tensor *out = &save->tensors[s];
	struct hoist__save_source *source = &save->sources[s];
	bool divided = out->bytes > batch_bytes && has_rows(source, out);
	int64_t rows = divided ? out->shape[0] : 1;
	uint64_t row_bytes = out->bytes / (uint64_t)rows;
	int err = 0;
	source->segment = save->feed.n_segments;
	for (int64_t row = 0; err == 0 && row < rows;) {
		uint64_t room;
		err = open_batch(save, source, batch_bytes, row_bytes, &room);
		if (err < 0)
			break;
		int64_t n = (int64_t)hoist__min_u64(room / row_bytes, (uint64_t)(rows - row));
		const struct hoist__save_segment segment = {
			.source = s,
			.from = (uint64_t)row * row_bytes,
			.bytes = (uint64_t)n * row_bytes,
			.row = row,
			.n_rows = divided ? n : 0,
		};
		HOIST__ASSERT(n > 0);
		err = add_segment(save, &segment);
		row += n;
	}
	return err;
}

int hoist__save_plan_batches(struct hoist_save *save)
{
	uint64_t batch_bytes = hoist__min_u64(
		hoist__max_u64(limit_of(save) / 16, LEAST_BATCH_BYTES), MOST_BATCH_BYTES);
	int err = 0;
	for (size_t s = 0; err == 0 && s < save->n_sources; s++)
		if (save->sources[s].way == HOIST__FROM_LOAD && save->tensors[s].bytes > 0)
			err = plan_source(save, s, batch_bytes);
	return err == 0 && save->feed.n_batches > 0 ? make_budget(save) : err;
}

void hoist__save_unplan_batches(struct hoist_save *save)
{
	struct hoist__save_feed *feed = &save->feed;
	free(feed->segments);
	free(feed->batches);
	feed->segments = NULL;
	feed->batches = NULL;
	feed->n_segments = feed->segments_room = feed->n_batches = feed->batches_room = 0;
	hoist_budget_unref(feed->budget);
	feed->budget = NULL;
	feed->stopped = false;
}
