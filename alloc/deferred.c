/* SPDX-License-Identifier: MIT */
/* alloc/deferred.c - takes blocks over that streams still use, and gives them out again.
 * The contract is in alloc/deferred.h. */
#include "config.h"

#include "alloc/deferred.h"

#include <stdlib.h>

#include "alloc/deferred-private.h"
#include "base/assert.h"
#include "base/error.h"

#define LOOKS 16    /* blocks that a take looks at for one of the alignment */
#define FULL_MOST 8 /* queues whose full batches one push records */

int hoist__deferred_create(const struct hoist__deferred_options *options,
			   struct hoist__deferred **ret)
{
	struct hoist__deferred *deferred = calloc(1, sizeof *deferred);
	if (deferred == NULL)
		return hoist__fail_nomem("blocks in stream order", sizeof *deferred);
	deferred->options = *options;
	int err = hoist__held_tables_init(deferred);
	if (err == 0) {
		err = -pthread_mutex_init(&deferred->lock, NULL);
		if (err != 0) {
			hoist__held_tables_fini(deferred);
			err = hoist__fail_errno(err, "making a lock for blocks in stream order");
		}
	}
	if (err != 0) {
		free(deferred);
		return err;
	}
	*ret = deferred;
	return 0;
}

void hoist__deferred_destroy(struct hoist__deferred *deferred)
{
	if (deferred == NULL)
		return;
	(void)pthread_mutex_destroy(&deferred->lock);
	hoist__held_tables_fini(deferred);
	free(deferred);
}

void hoist__deferred_lock(struct hoist__deferred *deferred)
{
	pthread_mutex_lock(&deferred->lock);
}

void hoist__deferred_unlock(struct hoist__deferred *deferred)
{
	pthread_mutex_unlock(&deferred->lock);
}

size_t hoist__deferred_bytes(const struct hoist__deferred *deferred)
{
	return atomic_load_explicit(&deferred->bytes, memory_order_relaxed);
}

bool hoist__deferred_any(const struct hoist__deferred *deferred)
{
	return atomic_load_explicit(&deferred->n_pending, memory_order_relaxed) != 0;
}

bool hoist__deferred_holds(struct hoist__deferred *deferred, uintptr_t address)
{
	pthread_mutex_lock(&deferred->lock);
	const struct hoist__held *block = hoist__held_find(deferred, address);
	bool holds = block != NULL && block->allocated != 0;
	pthread_mutex_unlock(&deferred->lock);
	return holds;
}

static size_t count_uses(struct hoist__held *block)
{
	size_t n = 0;
	for (struct hoist__held_use *use = NULL; (use = hoist__held_next_use(block, use)) != NULL;)
		n++;
	return n;
}

/* --- taking blocks over --- */

/* Finds or makes everything that a push or use needs, so that the caller cannot fail any more
 * [unlocks]: the queue (unless @stream is NULL), and cells for the block, a use, a bin and a batch
 * per use.  The block is added only by the caller. */
static int prepare(struct hoist__deferred *deferred, uintptr_t address,
		   struct hoist__dev_stream *stream, struct hoist__held_queue **queue)
{
	int err = 1;
	(void)hoist__held_grow(deferred);
	while (err > 0) {
		*queue = stream == NULL ? NULL : hoist__held_queue_find(deferred, stream);
		err = 0;
		HOIST__ASSERT(hoist__mutex_held(&deferred->lock));
		if (stream != NULL && *queue == NULL) {
			err = hoist__held_queue_make(deferred, stream);
			err = err == 0 ? 1 : err;
		}
		if (err == 0) {
			struct hoist__held *block = hoist__held_find(deferred, address);
			size_t n_uses = block == NULL ? 0 : count_uses(block);
			err = hoist__held_reserve(deferred, n_uses + 4);
		}
	}
	return err;
}

static struct hoist__held *find_or_add(struct hoist__deferred *deferred, uintptr_t address)
{
	struct hoist__held *block = hoist__held_find(deferred, address);
	return block != NULL ? block : hoist__held_add(deferred, address);
}

static void note_use(struct hoist__deferred *deferred, struct hoist__held *block,
		     struct hoist__held_queue *queue, bool capturing)
{
	hoist__held_note_capture(deferred, queue, capturing);
	struct hoist__held_use *use = hoist__held_use(deferred, block, queue);
	HOIST__ASSERT(use->block == block && use->queue == queue && use->batch == NULL);
	if (capturing && use->capture == 0)
		use->capture = queue->capture;
}

static bool is_capturing(struct hoist__deferred *deferred, struct hoist__dev_stream *stream)
{
	return hoist__dev_stream_may_capture(stream) && hoist__held_capturing(deferred, stream);
}

int hoist__deferred_use(struct hoist__deferred *deferred, uintptr_t address,
			struct hoist__dev_stream *stream)
{
	struct hoist__held_queue *queue;
	bool capturing = is_capturing(deferred, stream);
	pthread_mutex_lock(&deferred->lock);
	int err = prepare(deferred, address, stream, &queue);
	if (err == 0)
		note_use(deferred, find_or_add(deferred, address), queue, capturing);
	pthread_mutex_unlock(&deferred->lock);
	return err;
}

/* Asks whether the block's other streams capture now [unlocks]. */
static void ask_users(struct hoist__deferred *deferred, uintptr_t address,
		      const struct hoist__dev_stream *stream)
{
	struct hoist__held *block = hoist__held_find(deferred, address);
	struct hoist__held_use *use = NULL;
	while (block != NULL && (use = hoist__held_next_use(block, use)) != NULL)
		use->asked = use->queue->stream == stream;
	while (block != NULL && (use = hoist__held_next_use(block, use)) != NULL) {
		struct hoist__held_queue *queue = use->queue;
		if (use->asked || queue->forgotten || hoist__held_stale(queue))
			continue;
		use->asked = true;
		HOIST__ASSERT(block->allocated == 0);
		/* A use of a live block stays, and so does its queue: no other thread frees the
		 * block. */
		if (hoist__held_ask(deferred, queue) && use->capture == 0)
			use->capture = queue->capture;
	}
}

/* Makes the block pending or captured. */
static void hold(struct hoist__deferred *deferred, struct hoist__held *block, size_t allocated)
{
	const struct hoist__held_queue *queue = block->first.queue;
	assert(block->allocated == 0);
	HOIST__ASSERT(block->n_waits == 0 && block->bin == NULL && !block->captured);
	HOIST__ASSERT(allocated != 0);
	block->allocated = allocated;
	hoist__held_count(&deferred->bytes, allocated, 0);
	uint64_t capture = block->first.capture;
	/* A block of a graph can be taken while the capture lasts. */
	if (deferred->options.reuse && queue != NULL && block->first.next == NULL &&
	    !queue->forgotten && (capture == 0 || (queue->capturing && queue->capture == capture)))
		hoist__held_bin_put(deferred, block->first.queue, block, capture);
	if (hoist__held_in_graph(block)) {
		hoist__held_make_captured(deferred, block);
		return;
	}
	hoist__held_count(&deferred->n_pending, 1, 0);
	(void)hoist__held_wait_for_all(deferred, block);
	if (block->n_waits == 0)
		hoist__held_make_ready(deferred, block);
}

/* [unlocks] */
static void record_full(struct hoist__deferred *deferred, struct hoist__held *block)
{
	struct hoist__held_queue *full[FULL_MOST];
	size_t n = 0;
	for (struct hoist__held_use *use = NULL;
	     (use = hoist__held_next_use(block, use)) != NULL;) {
		struct hoist__held_batch *open = use->queue->open;
		if (open == NULL || open->n_uses < HOIST__DEFERRED_BATCH ||
		    hoist__held_stale(use->queue) || n == FULL_MOST)
			continue;
		full[n++] = use->queue;
		use->queue->pins++;
	}
	HOIST__ASSERT(hoist__mutex_held(&deferred->lock));
	for (size_t i = 0; i < n; i++) {
		if (full[i]->open != NULL && full[i]->open->n_uses >= HOIST__DEFERRED_BATCH)
			hoist__held_close(full[i]);
		(void)hoist__held_record_all(deferred, full[i], false);
		hoist__held_queue_unpin(deferred, full[i]);
	}
}

int hoist__deferred_push(struct hoist__deferred *deferred, uintptr_t address, size_t allocated,
			 struct hoist__dev_stream *stream)
{
	struct hoist__held_queue *queue;
	bool capturing = stream != NULL && is_capturing(deferred, stream);
	pthread_mutex_lock(&deferred->lock);
	ask_users(deferred, address, stream);
	int err = prepare(deferred, address, stream, &queue);
	HOIST__ASSERT(err != 0 || stream == NULL || queue->stream == stream);
	if (err == 0) {
		struct hoist__held *block = find_or_add(deferred, address);
		if (queue != NULL)
			note_use(deferred, block, queue, capturing);
		hold(deferred, block, allocated);
		record_full(deferred, block);
	}
	pthread_mutex_unlock(&deferred->lock);
	return err;
}

/* --- taking again --- */

/* Makes the block live again, with its stream as the only user. */
static void revive(struct hoist__deferred *deferred, struct hoist__held *block, bool capturing)
{
	struct hoist__held_use *use = &block->first;
	struct hoist__held_batch *batch = use->batch;
	HOIST__ASSERT(block->allocated != 0 && use->next == NULL && block->n_waits <= 1);
	HOIST__ASSERT(block->captured == (use->capture != 0) && block->bin != NULL);
	hoist__held_count(&deferred->bytes, 0, block->allocated);
	hoist__held_bin_remove(deferred, block);
	hoist__held_wait_no_more(use);
	HOIST__ASSERT(block->n_waits == 0);
	if (batch != NULL && batch != use->queue->open && hoist__held_needless(use->queue, batch))
		hoist__held_batch_drop(batch);
	if (block->captured)
		hoist__list_remove(&block->node);
	else
		hoist__held_count(&deferred->n_pending, 0, 1);
	block->captured = false;
	block->allocated = 0;
	use->capture = capturing ? use->queue->capture : 0;
}

/* The driver is asked for a capture before the lock is taken.  While the stream captures, only
 * blocks that this capture holds are in the bin. */
uintptr_t hoist__deferred_take(struct hoist__deferred *deferred, struct hoist__dev_stream *stream,
			       size_t allocated, size_t align)
{
	HOIST__ASSERT(align != 0 && (align & (align - 1)) == 0);
	uintptr_t address = 0;
	if (!deferred->options.reuse)
		return 0;
	bool capturing = is_capturing(deferred, stream);
	pthread_mutex_lock(&deferred->lock);
	struct hoist__held_queue *queue = hoist__held_queue_find(deferred, stream);
	struct hoist__held_bin *bin = NULL;
	if (queue != NULL) {
		hoist__held_note_capture(deferred, queue, capturing);
		bin = hoist__held_bin_find(queue, allocated, capturing ? queue->capture : 0);
	}
	struct hoist__list *node = bin == NULL ? NULL : bin->blocks.next;
	for (int i = 0; bin != NULL && i < LOOKS && node != &bin->blocks; i++, node = node->next) {
		struct hoist__held *block = HOIST__CONTAINER_OF(node, struct hoist__held, of_bin);
		HOIST__ASSERT(block->allocated == allocated && block->first.queue == queue);
		if ((block->address & (align - 1)) == 0) {
			address = block->address;
			revive(deferred, block, capturing);
			break;
		}
	}
	pthread_mutex_unlock(&deferred->lock);
	return address;
}
