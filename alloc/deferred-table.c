/* SPDX-License-Identifier: MIT */
/* alloc/deferred-table.c - keeps and finds blocks, uses, queues, batches and bins.
 * The contract is in alloc/deferred-private.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "alloc/deferred-private.h"
#include "base/assert.h"
#include "base/error.h"

#define CHUNK_CELLS 32
#define FIRST_BUCKETS 256

/* Fibonacci hashing: 2^64 divided by the golden ratio.  The upper half of the product is well
 * mixed. */
static size_t hash(uint64_t value)
{
	return (size_t)(value * UINT64_C(0x9e3779b97f4a7c15) >> 32);
}

int hoist__held_tables_init(struct hoist__deferred *deferred)
{
	deferred->buckets = calloc(FIRST_BUCKETS, sizeof *deferred->buckets);
	if (deferred->buckets == NULL)
		return hoist__fail_nomem("blocks in stream order",
					 FIRST_BUCKETS * sizeof *deferred->buckets);
	deferred->n_buckets = FIRST_BUCKETS;
	hoist__list_init(&deferred->queues);
	hoist__list_init(&deferred->captured);
	hoist__list_init(&deferred->ready);
	return 0;
}

static void destroy_event(struct hoist__held_batch *batch)
{
	if (batch != NULL)
		hoist__dev_event_destroy(batch->event);
}

static void free_queue(struct hoist__held_queue *queue)
{
	/* A thread that the child of a fork does not have may have been at work with the queue. */
	HOIST__ASSERT((queue->n_busy == 0 && queue->pins == 0) || hoist__held_stale(queue));
	/* In a child of fork batches may be left, as their blocks never came out. */
	destroy_event(queue->open);
	struct hoist__list *node;
	while ((node = hoist__list_pop(&queue->closed)) != NULL)
		destroy_event(HOIST__CONTAINER_OF(node, struct hoist__held_batch, node));
	free(queue);
}

/* Cells are freed with their chunks.  Before that the events of the batches are destroyed. */
void hoist__held_tables_fini(struct hoist__deferred *deferred)
{
	struct hoist__list *node;
	while ((node = hoist__list_pop(&deferred->queues)) != NULL)
		free_queue(HOIST__CONTAINER_OF(node, struct hoist__held_queue, node));
	while (deferred->spare != NULL) {
		struct hoist__held_queue *queue = deferred->spare;
		deferred->spare = queue->next;
		free(queue);
	}
	while (deferred->events != NULL) {
		struct hoist__held_events *events = deferred->events;
		deferred->events = events->next;
		while ((node = hoist__list_pop(&events->idle)) != NULL)
			destroy_event(HOIST__CONTAINER_OF(node, struct hoist__held_batch, node));
		free(events);
	}
	while (deferred->chunks != NULL) {
		struct hoist__held_chunk *chunk = deferred->chunks;
		deferred->chunks = chunk->next;
		free(chunk);
	}
	free(deferred->buckets);
}

/* --- cells --- */

static void put_cell(struct hoist__deferred *deferred, void *memory)
{
	union hoist__held_cell *cell = memory;
	HOIST__ASSERT(hoist__mutex_held(&deferred->lock));
	HOIST__ASSERT((deferred->free == NULL) == (deferred->n_free == 0));
	cell->next = deferred->free;
	deferred->free = cell;
	deferred->n_free++;
}

static void *take_cell(struct hoist__deferred *deferred)
{
	union hoist__held_cell *cell = deferred->free;
	HOIST__ASSERT(hoist__mutex_held(&deferred->lock));
	HOIST__ASSERT(cell != NULL && deferred->n_free != 0);
	deferred->free = cell->next;
	deferred->n_free--;
	return cell;
}

int hoist__held_reserve(struct hoist__deferred *deferred, size_t n)
{
	if (__builtin_expect(deferred->n_free >= n, 1))
		return 0;
	size_t n_cells = n > CHUNK_CELLS ? n : CHUNK_CELLS;
	size_t bytes = sizeof(struct hoist__held_chunk) + n_cells * sizeof(union hoist__held_cell);
	pthread_mutex_unlock(&deferred->lock);
	struct hoist__held_chunk *chunk = malloc(bytes);
	int err = chunk == NULL ? hoist__fail_nomem("a block in stream order", bytes) : 1;
	pthread_mutex_lock(&deferred->lock);
	if (chunk == NULL)
		return err;
	chunk->next = deferred->chunks;
	deferred->chunks = chunk;
	for (size_t i = 0; i < n_cells; i++)
		put_cell(deferred, &chunk->cells[i]);
	return err;
}

/* --- blocks --- */

static struct hoist__held **bucket_of(const struct hoist__deferred *deferred, uintptr_t address)
{
	return &deferred->buckets[hash(address >> 6) & (deferred->n_buckets - 1)];
}

struct hoist__held *hoist__held_find(const struct hoist__deferred *deferred, uintptr_t address)
{
	struct hoist__held *block = *bucket_of(deferred, address);
	HOIST__ASSERT(hoist__mutex_held(&deferred->lock));
	while (block != NULL && block->address != address)
		block = block->next;
	return block;
}

struct hoist__held *hoist__held_add(struct hoist__deferred *deferred, uintptr_t address)
{
	HOIST__ASSERT(hoist__held_find(deferred, address) == NULL);
	struct hoist__held *block = take_cell(deferred);
	struct hoist__held **bucket = bucket_of(deferred, address);
	block->next = *bucket;
	block->address = address;
	block->allocated = 0;
	block->first.queue = NULL;
	block->bin = NULL;
	block->n_waits = 0;
	block->captured = false;
	*bucket = block;
	deferred->n_held++;
	return block;
}

void hoist__held_remove(struct hoist__deferred *deferred, struct hoist__held *block)
{
	HOIST__ASSERT(block->n_waits == 0 && block->bin == NULL && deferred->n_held != 0);
	HOIST__ASSERT(hoist__held_find(deferred, block->address) == block);
	struct hoist__held **at = bucket_of(deferred, block->address);
	while (*at != block)
		at = &(*at)->next;
	*at = block->next;
	deferred->n_held--;
	struct hoist__held_use *use = block->first.queue == NULL ? NULL : &block->first;
	while (use != NULL) {
		struct hoist__held_use *next = use->next;
		struct hoist__held_queue *queue = use->queue;
		assert(use->batch == NULL);
		HOIST__ASSERT(use->block == block);
		HOIST__ASSERT(queue->n_uses > queue->n_linked);
		queue->pins++;
		queue->n_uses--;
		/* With the pin the call also ends a forgotten queue whose last use this was. */
		hoist__held_queue_unpin(deferred, queue);
		if (use != &block->first)
			put_cell(deferred, use);
		use = next;
	}
	put_cell(deferred, block);
}

/* The new table is allocated without the lock.  If the table has grown meanwhile, the new one is
 * discarded. */
bool hoist__held_grow(struct hoist__deferred *deferred)
{
	size_t n_buckets = deferred->n_buckets * 2;
	if (__builtin_expect(deferred->n_held < deferred->n_buckets, 1))
		return false;
	pthread_mutex_unlock(&deferred->lock);
	struct hoist__held **buckets = calloc(n_buckets, sizeof(struct hoist__held *));
	struct hoist__held **old = NULL;
	pthread_mutex_lock(&deferred->lock);
	if (buckets != NULL && n_buckets == deferred->n_buckets * 2) {
		size_t n_old = deferred->n_buckets;
		HOIST__ASSERT((n_buckets & (n_buckets - 1)) == 0);
		old = deferred->buckets;
		deferred->buckets = buckets;
		deferred->n_buckets = n_buckets;
		for (size_t i = 0; i < n_old; i++)
			while (old[i] != NULL) {
				struct hoist__held *block = old[i];
				old[i] = block->next;
				struct hoist__held **bucket = bucket_of(deferred, block->address);
				block->next = *bucket;
				*bucket = block;
			}
	} else {
		/* Without memory the chains only get longer.  Or another thread was faster. */
		old = buckets;
	}
	if (old != NULL) {
		pthread_mutex_unlock(&deferred->lock);
		free(old);
		pthread_mutex_lock(&deferred->lock);
	}
	return true;
}

struct hoist__held_use *hoist__held_use(struct hoist__deferred *deferred, struct hoist__held *block,
					struct hoist__held_queue *queue)
{
	/* The first use lies in the block, so that a block of one stream takes one cell. */
	struct hoist__held_use *use = &block->first;
	if (use->queue != NULL) {
		struct hoist__held_use *last = use;
		for (; use != NULL && use->queue != queue; use = use->next)
			last = use;
		if (use != NULL)
			return use;
		use = take_cell(deferred);
		last->next = use;
	}
	HOIST__ASSERT(!queue->forgotten && !hoist__held_stale(queue));
	use->next = NULL;
	use->block = block;
	use->queue = queue;
	use->batch = NULL;
	use->capture = 0;
	use->asked = false;
	queue->n_uses++;
	return use;
}

/* --- queues --- */

static size_t stream_bucket(const struct hoist__dev_stream *stream)
{
	return hash((uintptr_t)stream >> 4) % HOIST__DEFERRED_STREAMS;
}

struct hoist__held_queue *hoist__held_queue_find(const struct hoist__deferred *deferred,
						 const struct hoist__dev_stream *stream)
{
	HOIST__ASSERT(hoist__mutex_held(&deferred->lock));
	struct hoist__held_queue *queue = deferred->streams[stream_bucket(stream)];
	while (queue != NULL && (queue->stream != stream || hoist__held_stale(queue)))
		queue = queue->next;
	return queue;
}

static struct hoist__held_events *find_events(const struct hoist__deferred *deferred,
					      const struct hoist__dev *dev)
{
	struct hoist__held_events *events = deferred->events;
	while (events != NULL && events->dev != dev)
		events = events->next;
	return events;
}

static void init_queue(struct hoist__deferred *deferred, struct hoist__held_queue *queue,
		       struct hoist__dev_stream *stream)
{
	struct hoist__held_queue **bucket = &deferred->streams[stream_bucket(stream)];
	struct hoist__dev *dev = hoist__dev_stream_dev(stream);
	*queue = (struct hoist__held_queue){
		.next = *bucket,
		.stream = stream,
		.events = find_events(deferred, dev),
		.generation = hoist__fork_now(),
	};
	HOIST__ASSERT(queue->events != NULL && queue->events->dev == dev);
	hoist__list_init(&queue->closed);
	hoist__list_push_back(&deferred->queues, &queue->node);
	deferred->n_queues++;
	*bucket = queue;
}

/* Makes two allocations at most.  The caller calls again after 1, until nothing is left to
 * allocate. */
int hoist__held_queue_make(struct hoist__deferred *deferred, struct hoist__dev_stream *stream)
{
	struct hoist__dev *dev = hoist__dev_stream_dev(stream);
	HOIST__ASSERT(hoist__held_queue_find(deferred, stream) == NULL);
	if (deferred->spare == NULL || find_events(deferred, dev) == NULL) {
		pthread_mutex_unlock(&deferred->lock);
		struct hoist__held_queue *queue = malloc(sizeof *queue);
		struct hoist__held_events *events = malloc(sizeof *events);
		if (queue == NULL || events == NULL) {
			free(queue);
			free(events);
			int err = hoist__fail_nomem("a stream's queue", sizeof *queue);
			pthread_mutex_lock(&deferred->lock);
			return err;
		}
		pthread_mutex_lock(&deferred->lock);
		queue->next = deferred->spare;
		deferred->spare = queue;
		if (find_events(deferred, dev) == NULL) {
			events->dev = dev;
			events->next = deferred->events;
			hoist__list_init(&events->idle);
			deferred->events = events;
			events = NULL;
		}
		free(events);
		return 1;
	}
	struct hoist__held_queue *queue = deferred->spare;
	deferred->spare = queue->next;
	init_queue(deferred, queue, stream);
	return 0;
}

void hoist__held_queue_forget(struct hoist__deferred *deferred, struct hoist__held_queue *queue)
{
	HOIST__ASSERT(!queue->forgotten && !hoist__held_stale(queue) && queue->pins != 0);
	struct hoist__held_queue **at = &deferred->streams[stream_bucket(queue->stream)];
	while (*at != queue)
		at = &(*at)->next;
	*at = queue->next;
	queue->forgotten = true;
}

/* A forgotten queue ends with its last pin or its last use, whichever goes later. */
void hoist__held_queue_unpin(struct hoist__deferred *deferred, struct hoist__held_queue *queue)
{
	HOIST__ASSERT(hoist__mutex_held(&deferred->lock) && queue->pins != 0);
	if (--queue->pins != 0 || !queue->forgotten || queue->n_uses != 0)
		return;
	HOIST__ASSERT(queue->n_linked == 0 && queue->n_busy == 0 && deferred->n_queues != 0);
	if (queue->open != NULL)
		hoist__held_batch_drop(queue->open);
	while (!hoist__list_empty(&queue->closed))
		hoist__held_batch_drop(
			HOIST__CONTAINER_OF(queue->closed.next, struct hoist__held_batch, node));
	hoist__list_remove(&queue->node);
	deferred->n_queues--;
	queue->next = deferred->spare;
	deferred->spare = queue;
}

/* --- batches --- */

struct hoist__held_batch *hoist__held_batch_take(struct hoist__deferred *deferred,
						 struct hoist__held_queue *queue)
{
	/* An idle batch comes first: the batch has an event, which costs a call of the driver. */
	struct hoist__list *node = hoist__list_pop(&queue->events->idle);
	struct hoist__held_batch *batch;
	struct hoist__dev_event *event = NULL;
	if (node != NULL) {
		batch = HOIST__CONTAINER_OF(node, struct hoist__held_batch, node);
		event = batch->event;
		HOIST__ASSERT(batch->gone && batch->pins == 0 && batch->n_uses == 0);
	} else {
		if (deferred->n_free == 0)
			return NULL;
		batch = take_cell(deferred);
	}
	*batch = (struct hoist__held_batch){.events = queue->events, .event = event};
	hoist__list_init(&batch->node);
	hoist__list_init(&batch->uses);
	return batch;
}

void hoist__held_batch_drop(struct hoist__held_batch *batch)
{
	assert(batch->n_uses == 0);
	HOIST__ASSERT(!batch->gone && hoist__list_empty(&batch->uses));
	hoist__list_remove(&batch->node);
	batch->gone = true;
	/* With this pin, unpin() ends the batch here, or when another thread's pin goes. */
	batch->pins++;
	hoist__held_batch_unpin(batch);
}

void hoist__held_batch_unpin(struct hoist__held_batch *batch)
{
	HOIST__ASSERT(batch->pins != 0);
	if (--batch->pins == 0 && batch->gone)
		hoist__list_push_front(&batch->events->idle, &batch->node);
}

size_t hoist__held_events_take(struct hoist__deferred *deferred, struct hoist__dev_event **ret,
			       size_t n)
{
	size_t taken = 0;
	for (struct hoist__held_events *events = deferred->events; events != NULL;
	     events = events->next)
		for (struct hoist__list *node = events->idle.next;
		     taken < n && node != &events->idle; node = node->next) {
			struct hoist__held_batch *batch =
				HOIST__CONTAINER_OF(node, struct hoist__held_batch, node);
			HOIST__ASSERT(batch->gone && batch->pins == 0 && !batch->recording);
			if (batch->event != NULL)
				ret[taken++] = batch->event;
			/* The batch stays idle, and gets a new event when it is used. */
			batch->event = NULL;
		}
	return taken;
}

/* --- bins --- */

static size_t bin_bucket(size_t allocated, uint64_t capture)
{
	return hash(allocated + (capture << 48)) % HOIST__DEFERRED_BINS;
}

struct hoist__held_bin *hoist__held_bin_find(const struct hoist__held_queue *queue,
					     size_t allocated, uint64_t capture)
{
	struct hoist__held_bin *bin = queue->bins[bin_bucket(allocated, capture)];
	while (bin != NULL && (bin->allocated != allocated || bin->capture != capture))
		bin = bin->next;
	return bin;
}

void hoist__held_bin_put(struct hoist__deferred *deferred, struct hoist__held_queue *queue,
			 struct hoist__held *block, uint64_t capture)
{
	HOIST__ASSERT(block->bin == NULL && block->allocated != 0 && deferred->options.reuse);
	HOIST__ASSERT(block->first.queue == queue && block->first.next == NULL);
	struct hoist__held_bin *bin = hoist__held_bin_find(queue, block->allocated, capture);
	if (bin == NULL) {
		struct hoist__held_bin **bucket =
			&queue->bins[bin_bucket(block->allocated, capture)];
		bin = take_cell(deferred);
		bin->next = *bucket;
		bin->queue = queue;
		bin->allocated = block->allocated;
		bin->capture = capture;
		hoist__list_init(&bin->blocks);
		*bucket = bin;
	}
	block->bin = bin;
	hoist__list_push_front(&bin->blocks, &block->of_bin);
}

void hoist__held_bin_remove(struct hoist__deferred *deferred, struct hoist__held *block)
{
	struct hoist__held_bin *bin = block->bin;
	if (bin == NULL)
		return;
	HOIST__ASSERT(bin->queue == block->first.queue && bin->allocated == block->allocated);
	block->bin = NULL;
	hoist__list_remove(&block->of_bin);
	if (!hoist__list_empty(&bin->blocks))
		return;
	struct hoist__held_bin **at = &bin->queue->bins[bin_bucket(bin->allocated, bin->capture)];
	while (*at != bin)
		at = &(*at)->next;
	*at = bin->next;
	put_cell(deferred, bin);
}
