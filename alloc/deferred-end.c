/* SPDX-License-Identifier: MIT */
/* alloc/deferred-end.c - handles the ends of graphs, of streams and of the pool.
 * The contract is in alloc/deferred.h and alloc/deferred-private.h. */
#include "config.h"

#include <sched.h>

#include "alloc/deferred-private.h"
#include "base/assert.h"
#include "base/checked.h"

/* --- graphs --- */

/* No graph has the block any more, so it waits for the work that its streams got until now.  The
 * block stays captured if there is no memory for that. */
static void release(struct hoist__deferred *deferred, struct hoist__held *block)
{
	HOIST__ASSERT(block->captured && block->allocated != 0 && block->n_waits == 0);
	if (!hoist__held_wait_for_all(deferred, block)) {
		hoist__held_wait_for_none(block);
		return;
	}
	HOIST__ASSERT(!hoist__held_in_graph(block) && hoist__mutex_held(&deferred->lock));
	hoist__held_bin_remove(deferred, block);
	hoist__list_remove(&block->node);
	block->captured = false;
	hoist__held_count(&deferred->n_pending, 1, 0);
	if (block->n_waits == 0)
		hoist__held_make_ready(deferred, block);
}

/* True if the counts are the sums over the blocks. */
HOIST__CONDITION static bool adds_up(const struct hoist__deferred *deferred)
{
	size_t n_held = 0;
	size_t n_pending = 0;
	size_t bytes = 0;
	for (size_t i = 0; i < deferred->n_buckets; i++)
		for (const struct hoist__held *block = deferred->buckets[i]; block != NULL;
		     block = block->next) {
			n_held++;
			n_pending += block->allocated != 0 && !block->captured;
			bytes += block->allocated;
		}
	return n_held == deferred->n_held && n_pending == atomic_load(&deferred->n_pending) &&
	       bytes == hoist__deferred_bytes(deferred);
}

static void release_all(struct hoist__deferred *deferred)
{
	struct hoist__list *node = deferred->captured.next;
	while (node != &deferred->captured) {
		struct hoist__held *block = HOIST__CONTAINER_OF(node, struct hoist__held, node);
		node = node->next;
		if (!hoist__held_in_graph(block))
			release(deferred, block);
	}
	HOIST__ASSERT(adds_up(deferred));
}

/* [unlocks] */
static void ask_queues(struct hoist__deferred *deferred)
{
	struct hoist__list *node = deferred->queues.next;
	while (node != &deferred->queues) {
		struct hoist__held_queue *queue =
			HOIST__CONTAINER_OF(node, struct hoist__held_queue, node);
		queue->pins++;
		if (!queue->forgotten && !hoist__held_stale(queue))
			(void)hoist__held_ask(deferred, queue);
		node = queue->node.next;
		hoist__held_queue_unpin(deferred, queue);
	}
}

static void clear_captured(struct hoist__deferred *deferred, bool all)
{
	if (deferred->captures == 0)
		return; /* no stream ever captured: skip the walk through all blocks */
	for (size_t i = 0; i < deferred->n_buckets; i++)
		for (struct hoist__held *block = deferred->buckets[i]; block != NULL;
		     block = block->next)
			for (struct hoist__held_use *use = NULL;
			     (use = hoist__held_next_use(block, use)) != NULL;)
				if (all || use->queue->forgotten || !use->queue->capturing)
					use->capture = 0;
}

void hoist__deferred_release_captured(struct hoist__deferred *deferred)
{
	pthread_mutex_lock(&deferred->lock);
	ask_queues(deferred);
	clear_captured(deferred, false);
	release_all(deferred);
	pthread_mutex_unlock(&deferred->lock);
}

/* Makes the block captured, because the stream of @use goes away without an event behind @use. */
static void capture_use(struct hoist__deferred *deferred, struct hoist__held_use *use)
{
	struct hoist__held *block = use->block;
	bool pending = block->allocated != 0 && !block->captured;
	if (pending && (use->batch == NULL || use->batch->recorded))
		return;
	if (use->capture == 0)
		use->capture = use->queue->capture;
	HOIST__ASSERT(use->capture != 0);
	if (!pending)
		return;
	hoist__held_wait_for_none(block);
	hoist__held_bin_remove(deferred, block);
	hoist__held_count(&deferred->n_pending, 0, 1);
	hoist__held_make_captured(deferred, block);
}

/* A stream that goes away while it captures cannot be waited for: its blocks wait for the end of
 * the graph instead. */
static void capture_queue(struct hoist__deferred *deferred, struct hoist__held_queue *queue)
{
	HOIST__ASSERT(queue->forgotten && queue->n_busy == 0 && queue->pins != 0);
	if (queue->capture == 0)
		queue->capture = ++deferred->captures;
	for (size_t i = 0; i < deferred->n_buckets; i++)
		for (struct hoist__held *block = deferred->buckets[i]; block != NULL;
		     block = block->next)
			for (struct hoist__held_use *use = NULL;
			     (use = hoist__held_next_use(block, use)) != NULL;)
				if (use->queue == queue)
					capture_use(deferred, use);
	struct hoist__list *node = queue->closed.next;
	while (node != &queue->closed) {
		struct hoist__held_batch *batch =
			HOIST__CONTAINER_OF(node, struct hoist__held_batch, node);
		node = node->next;
		if (!batch->recorded)
			hoist__held_batch_drop(batch);
	}
}

/* [unlocks] Closes the queue of a stream that goes away.  Live blocks that the stream uses need its
 * last event, too. */
static void close_for_good(struct hoist__deferred *deferred, struct hoist__held_queue *queue)
{
	HOIST__ASSERT(queue->forgotten && queue->n_busy == 0 && queue->pins != 0);
	if (queue->open == NULL && queue->n_uses > queue->n_linked)
		queue->open = hoist__held_batch_take(deferred, queue);
	bool sure = queue->open != NULL || queue->n_uses == queue->n_linked;
	if (queue->open != NULL) {
		hoist__list_push_back(&queue->closed, &queue->open->node);
		queue->open = NULL;
	}
	if (!hoist__held_record_all(deferred, queue, true) || !sure)
		if (!hoist__held_synchronize(deferred, queue) &&
		    !hoist__held_synchronize(deferred, queue))
			capture_queue(deferred, queue);
}

/* The pin keeps the queue while the lock is free.  The queue leaves the table first, so that no
 * call finds it; then the calls that already use the stream are waited for. */
void hoist__deferred_forget(struct hoist__deferred *deferred, struct hoist__dev_stream *stream)
{
	pthread_mutex_lock(&deferred->lock);
	struct hoist__held_queue *queue = hoist__held_queue_find(deferred, stream);
	if (queue != NULL) {
		queue->pins++;
		bool capturing = hoist__held_ask(deferred, queue);
		hoist__held_queue_forget(deferred, queue);
		while (queue->n_busy != 0) {
			pthread_mutex_unlock(&deferred->lock);
			(void)sched_yield();
			pthread_mutex_lock(&deferred->lock);
		}
		HOIST__ASSERT(hoist__held_queue_find(deferred, stream) == NULL);
		if (capturing)
			capture_queue(deferred, queue);
		else
			close_for_good(deferred, queue);
		HOIST__ASSERT(queue->open == NULL || capturing);
		hoist__held_queue_unpin(deferred, queue);
		HOIST__ASSERT(adds_up(deferred));
	}
	pthread_mutex_unlock(&deferred->lock);
}

/* Passes the blocks that are left.  They cannot be waited for, as their streams capture. */
static void give_up_waiting(struct hoist__deferred *deferred)
{
	struct hoist__list *head = &deferred->queues;
	for (struct hoist__list *node = head->next; node != head; node = node->next) {
		struct hoist__held_queue *queue =
			HOIST__CONTAINER_OF(node, struct hoist__held_queue, node);
		HOIST__ASSERT(queue->n_busy == 0 || hoist__held_stale(queue));
		if (!hoist__held_stale(queue))
			hoist__held_pass_all(deferred, queue);
	}
	struct hoist__list *node;
	/* Blocks that are still captured: there was no memory to make them pending. */
	while ((node = hoist__list_pop(&deferred->captured)) != NULL) {
		struct hoist__held *block = HOIST__CONTAINER_OF(node, struct hoist__held, node);
		block->captured = false;
		hoist__held_count(&deferred->n_pending, 1, 0);
		hoist__held_make_ready(deferred, block);
	}
}

size_t hoist__deferred_drain(struct hoist__deferred *deferred, uintptr_t *ret, size_t n)
{
	pthread_mutex_lock(&deferred->lock);
	ask_queues(deferred);
	clear_captured(deferred, true);
	release_all(deferred);
	HOIST__ASSERT(deferred->n_held != 0 || hoist__list_empty(&deferred->captured));
	pthread_mutex_unlock(&deferred->lock);
	size_t taken = hoist__deferred_sweep(deferred, true, ret, n);
	if (taken != 0)
		return taken;
	pthread_mutex_lock(&deferred->lock);
	give_up_waiting(deferred);
	pthread_mutex_unlock(&deferred->lock);
	return hoist__deferred_sweep(deferred, false, ret, n);
}

/* --- what is only kept --- */

void hoist__deferred_trim(struct hoist__deferred *deferred)
{
	struct hoist__dev_event *events[64];
	size_t n;
	do {
		hoist__deferred_lock(deferred);
		n = hoist__held_events_take(deferred, events, HOIST__ARRAY_SIZE(events));
		hoist__deferred_unlock(deferred);
		for (size_t i = 0; i < n; i++)
			hoist__dev_event_destroy(events[i]);
	} while (n == HOIST__ARRAY_SIZE(events));
}
