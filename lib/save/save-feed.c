/* SPDX-License-Identifier: MIT */
/* Runs the loads of the batches, and copies from their buffers into blocks.
 * The contract is in lib/save/feed.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/blocks.h"
#include "base/checked.h"
#include "base/convert.h"
#include "base/dtype.h"
#include "lib/save/save.h"

/* --- one load --- */

/* The texts of one load's options, in one allocation each. */
struct asked {
	const char **names;
	hoist_load_slice *slices;
	size_t n_slices;
};

/* Appends the part of the axis that the segment has, unless that is all of the axis. */
static void add_slice(struct asked *asked, const struct hoist__tensor *tensor, int axis,
		      int64_t begin, int64_t n)
{
	if (begin == 0 && n == tensor->shape[axis])
		return;
	asked->slices[asked->n_slices++] = (hoist_load_slice){
		.tensor = tensor->name,
		.axis = axis,
		.begin = begin,
		.end = begin + n,
	};
}

static void ask(struct asked *asked, size_t i, const struct hoist__save_source *source,
		const struct hoist__save_segment *segment)
{
	const struct hoist__tensor *tensor = source->checkpoint->tensors[source->index].tensor;
	asked->names[i] = tensor->name;
	for (int a = 0; a < tensor->rank; a++) {
		int64_t begin = source->dims != NULL ? source->begins[a] : 0;
		int64_t n = source->dims != NULL ? source->dims[a] : tensor->shape[a];
		if (a == 0 && segment->n_rows > 0) {
			begin += segment->row;
			n = segment->n_rows;
		}
		add_slice(asked, tensor, a, begin, n);
	}
}

static size_t count_axes(const struct hoist_save *save, const struct hoist__save_batch *batch)
{
	size_t n = 0;
	for (size_t i = 0; i < batch->n; i++)
		n += (size_t)save->tensors[save->feed.segments[batch->first + i].source].rank;
	return n;
}

/* Pre: locked. */
static int start(struct hoist_save *save, struct hoist__save_batch *batch)
{
	const struct hoist__save_segment *segments = &save->feed.segments[batch->first];
	const struct hoist__save_source *first = &save->sources[segments[0].source];
	size_t n_axes = count_axes(save, batch);
	struct asked asked = {
		.names = calloc(batch->n, sizeof *asked.names),
		.slices = calloc(n_axes + 1, sizeof *asked.slices),
	};
	int err = 0;
	if (asked.names == NULL || asked.slices == NULL)
		err = hoist__fail_nomem("a load", (batch->n + n_axes) * sizeof *asked.slices);
	for (size_t i = 0; err == 0 && i < batch->n; i++)
		ask(&asked, i, &save->sources[segments[i].source], &segments[i]);
	const hoist_load_options options = {
		.size = sizeof options,
		.engine = save->engine_kind,
		.io = save->io,
		.budget = save->feed.budget,
		.tensors = asked.names,
		.n_tensors = batch->n,
		.slices = asked.slices,
		.n_slices = asked.n_slices,
		.dtype = first->asked,
	};
	if (err == 0)
		err = hoist_load_start(first->checkpoint, &options, &batch->load);
	free(asked.names);
	free(asked.slices);
	return err;
}

/* --- the line of loads --- */

/* Gives the batch's load, once it is done.  Begins the next one, too, which then reads while this
 * one's bytes are copied; if that fails, the failure comes again when its turn has come. */
static int take(struct hoist_save *save, size_t b, hoist_load **ret)
{
	struct hoist__save_feed *feed = &save->feed;
	struct hoist__save_batch *batch = &feed->batches[b];
	int err = 0;
	pthread_mutex_lock(&feed->lock);
	if (feed->stopped)
		err = hoist__fail(-ECANCELED, "the save was cancelled");
	if (err == 0 && batch->load == NULL)
		err = start(save, batch);
	if (err == 0 && b + 1 < feed->n_batches && batch[1].load == NULL && batch[1].left > 0)
		(void)start(save, &batch[1]);
	*ret = batch->load;
	pthread_mutex_unlock(&feed->lock);
	return err < 0 ? err : hoist_load_wait(*ret);
}

/* Notes that bytes are in a block; with the last ones the load's memory goes. */
static void give_back(struct hoist_save *save, size_t b, uint64_t bytes)
{
	struct hoist__save_batch *batch = &save->feed.batches[b];
	hoist_load *load = NULL;
	pthread_mutex_lock(&save->feed.lock);
	HOIST__ASSERT(bytes <= batch->left);
	batch->left -= bytes;
	if (batch->left == 0) {
		load = batch->load;
		batch->load = NULL;
	}
	pthread_mutex_unlock(&save->feed.lock);
	hoist_load_destroy(load);
}

void hoist__feed_stop(struct hoist_save *save)
{
	struct hoist__save_feed *feed = &save->feed;
	if (feed->n_batches == 0)
		return;
	pthread_mutex_lock(&feed->lock);
	for (size_t b = 0; !feed->stopped && b < feed->n_batches; b++)
		if (feed->batches[b].load != NULL)
			hoist_load_cancel(feed->batches[b].load);
	feed->stopped = true;
	pthread_mutex_unlock(&feed->lock);
}

void hoist__feed_release(struct hoist_save *save)
{
	for (size_t b = 0; b < save->feed.n_batches; b++) {
		hoist_load_destroy(save->feed.batches[b].load);
		save->feed.batches[b].load = NULL;
	}
}

/* --- copying --- */

/* A multiple of every block. */
#define PIECE_ELEMENTS ((size_t)1024)

/* Copies bytes of the elements that a quantised buffer stands for, in another dtype. */
static int copy_dequantised(const hoist_buffer *buffer, hoist_dtype dtype, uint64_t from,
			    size_t bytes, unsigned char *to)
{
	float numbers[PIECE_ELEMENTS];
	const struct hoist__dtype_info *info = hoist__dtype_info(buffer->dtype);
	const struct hoist__span span = hoist__buffer_span(buffer, 0);
	size_t width = hoist_dtype_bits(dtype) / 8;
	uint64_t elements = buffer->bytes / info->block_bytes * info->block_elements;
	while (bytes > 0) {
		uint64_t first = from / width / PIECE_ELEMENTS * PIECE_ELEMENTS;
		size_t n = (size_t)hoist__min_u64(PIECE_ELEMENTS, elements - first);
		uintptr_t blocks = span.address + first / info->block_elements * info->block_bytes;
		int err = hoist__blocks_to_f32(buffer->dtype, (const void *)blocks, n, numbers);
		if (err < 0)
			return err;
		if (dtype != HOIST_F32)
			hoist__convert(numbers, dtype, numbers, HOIST_F32, n);
		size_t at = (size_t)(from - first * width);
		size_t part = (size_t)hoist__min_u64(bytes, n * width - at);
		memcpy(to, (const unsigned char *)numbers + at, part);
		from += part;
		to += part;
		bytes -= part;
	}
	return 0;
}

static int copy_segment(struct hoist_save *save, const struct hoist__save_segment *segment,
			uint64_t from, size_t bytes, unsigned char *to)
{
	const struct hoist__save_source *source = &save->sources[segment->source];
	size_t number = (size_t)(segment - save->feed.segments);
	hoist_load *load;
	hoist_buffer *buffer;
	int err = take(save, segment->batch, &load);
	if (err == 0)
		err = hoist_load_tensor(load, number - save->feed.batches[segment->batch].first,
					NULL, &buffer);
	if (err < 0)
		return err;
	/* The load converts all but quantised tensors. */
	if (hoist_buffer_dtype(buffer) != source->dtype)
		err = copy_dequantised(buffer, source->dtype, from - segment->from, bytes, to);
	else
		err = hoist__source_gather(save, source, buffer, from - segment->from, bytes, to);
	hoist_buffer_unref(buffer);
	if (err == 0)
		give_back(save, segment->batch, bytes);
	return err;
}

int hoist__feed_copy(struct hoist_save *save, size_t tensor, uint64_t from, size_t bytes,
		     unsigned char *to)
{
	const struct hoist__save_segment *segment =
		&save->feed.segments[save->sources[tensor].segment];
	int err = 0;
	while (err == 0 && bytes > 0) {
		while (segment->from + segment->bytes <= from)
			segment++;
		HOIST__ASSERT(segment->source == tensor && segment->from <= from);
		size_t n = (size_t)hoist__min_u64(bytes, segment->from + segment->bytes - from);
		err = copy_segment(save, segment, from, n, to);
		from += n;
		to += n;
		bytes -= n;
	}
	return err < 0 ? hoist__fail_in(err, "saving tensor \"%.200s\"", save->tensors[tensor].name)
		       : 0;
}
