/* SPDX-License-Identifier: MIT */
/* alloc/deferred-sweep.c - records events, queries them, and passes blocks.
 * The contract is in alloc/deferred.h and alloc/deferred-private.h. */
#include "config.h"

#include <errno.h>
#include <sched.h>

#include "alloc/deferred-private.h"
#include "base/assert.h"
#include "base/clock.h"

static struct hoist__held_batch *batch_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__held_batch, node);
}

static struct hoist__held_batch *oldest(const struct hoist__held_queue *queue)
{
	return hoist__list_empty(&queue->closed) ? NULL : batch_of(queue->closed.next);
}

/* --- the driver; no lock --- */

static void count(struct hoist__deferred *deferred, enum hoist__call call, uint64_t since)
{
	hoist__calls_add(deferred->options.calls, call, hoist__now_ns() - since);
}

bool hoist__held_capturing(struct hoist__deferred *deferred, struct hoist__dev_stream *stream)
{
	bool capturing = true;
	uint64_t since = hoist__now_ns();
	if (hoist__dev_stream_capturing(stream, &capturing) != 0 &&
	    hoist__dev_stream_capturing(stream, &capturing) != 0)
		capturing = true;
	count(deferred, HOIST__CALL_QUERY, since);
	return capturing;
}

static int query(struct hoist__deferred *deferred, struct hoist__dev_event *event)
{
	uint64_t since = hoist__now_ns();
	int err = hoist__dev_event_query(event);
	count(deferred, HOIST__CALL_QUERY, since);
	return err;
}

static int synchronize(struct hoist__deferred *deferred, struct hoist__dev_event *event)
{
	uint64_t since = hoist__now_ns();
	int err = hoist__dev_event_synchronize(event);
	count(deferred, HOIST__CALL_WAIT, since);
	return err;
}

/* True if @err says whether the event has passed: *passed.  Other errors may come from the work, or
 * from the query alone. */
static bool is_answer(int err, bool *passed)
{
	*passed = err == 0;
	return err == 0 || err == -EAGAIN || err == -ESTALE;
}

/* *refused: the event cannot be waited for while some stream captures.
 * Failed work counts as passed when a wait and a query both fail: the driver runs nothing any more
 * then. */
static bool has_passed(struct hoist__deferred *deferred, struct hoist__dev_event *event, bool wait,
		       bool *refused)
{
	bool passed;
	int err = wait ? synchronize(deferred, event) : query(deferred, event);
	*refused = err == -EBUSY || err == -ENOTSUP;
	if (is_answer(err, &passed) || is_answer(query(deferred, event), &passed))
		return passed;
	if (is_answer(synchronize(deferred, event), &passed))
		return passed;
	return is_answer(query(deferred, event), &passed) ? passed : true;
}

/* The driver is asked for a capture before and after the recording.  A capture that another thread
 * began in between may have got the event, which must never be queried then.  Recording the event
 * again repairs it. */
static bool try_record(struct hoist__deferred *deferred, struct hoist__dev_stream *stream,
		       struct hoist__dev_event **event)
{
	if (*event == NULL && hoist__dev_event_create(hoist__dev_stream_dev(stream), 0, event) != 0)
		return false;
	bool may_capture = hoist__dev_stream_may_capture(stream);
	if (may_capture && hoist__held_capturing(deferred, stream))
		return false;
	uint64_t since = hoist__now_ns();
	int err = hoist__dev_event_record(*event, stream);
	count(deferred, HOIST__CALL_EVENT, since);
	return err == 0 && !(may_capture && hoist__held_capturing(deferred, stream));
}

/* --- captures --- */

void hoist__held_note_capture(struct hoist__deferred *deferred, struct hoist__held_queue *queue,
			      bool capturing)
{
	HOIST__ASSERT(hoist__mutex_held(&deferred->lock));
	if (capturing && !queue->capturing)
		queue->capture = ++deferred->captures;
	queue->capturing = capturing;
}

bool hoist__held_ask(struct hoist__deferred *deferred, struct hoist__held_queue *queue)
{
	if (!hoist__dev_stream_may_capture(queue->stream))
		return false;
	HOIST__ASSERT(!hoist__held_stale(queue));
	queue->n_busy++;
	pthread_mutex_unlock(&deferred->lock);
	bool capturing = hoist__held_capturing(deferred, queue->stream);
	pthread_mutex_lock(&deferred->lock);
	HOIST__ASSERT(queue->n_busy != 0);
	queue->n_busy--;
	hoist__held_note_capture(deferred, queue, capturing);
	return capturing;
}

/* --- waiting and passing --- */

bool hoist__held_wait_for(struct hoist__deferred *deferred, struct hoist__held_use *use)
{
	struct hoist__held_queue *queue = use->queue;
	struct hoist__held_batch *batch = queue->open;
	HOIST__ASSERT(use->batch == NULL && use->block->allocated != 0);
	if (queue->forgotten) {
		/* The last event was recorded behind all work that the stream ever got. */
		if (hoist__list_empty(&queue->closed))
			return true;
		batch = batch_of(queue->closed.prev);
	} else if (batch == NULL) {
		batch = hoist__held_batch_take(deferred, queue);
		if (batch == NULL)
			return false;
		queue->open = batch;
	}
	hoist__list_push_back(&batch->uses, &use->link);
	batch->n_uses++;
	queue->n_linked++;
	use->batch = batch;
	use->block->n_waits++;
	HOIST__ASSERT(batch->n_uses <= queue->n_linked && queue->n_linked <= queue->n_uses);
	return true;
}

void hoist__held_wait_no_more(struct hoist__held_use *use)
{
	if (use->batch == NULL)
		return;
	HOIST__ASSERT(use->batch->n_uses != 0 && use->queue->n_linked != 0);
	HOIST__ASSERT(use->block->n_waits != 0);
	hoist__list_remove(&use->link);
	use->batch->n_uses--;
	use->queue->n_linked--;
	use->batch = NULL;
	use->block->n_waits--;
}

bool hoist__held_wait_for_all(struct hoist__deferred *deferred, struct hoist__held *block)
{
	for (struct hoist__held_use *use = NULL; (use = hoist__held_next_use(block, use)) != NULL;)
		if (use->batch == NULL && !hoist__held_wait_for(deferred, use))
			return false;
	return true;
}

void hoist__held_wait_for_none(struct hoist__held *block)
{
	for (struct hoist__held_use *use = NULL; (use = hoist__held_next_use(block, use)) != NULL;)
		hoist__held_wait_no_more(use);
}

void hoist__held_make_ready(struct hoist__deferred *deferred, struct hoist__held *block)
{
	HOIST__ASSERT(block->n_waits == 0 && block->allocated != 0);
	hoist__held_bin_remove(deferred, block);
	hoist__list_push_back(&deferred->ready, &block->node);
}

static void pass(struct hoist__deferred *deferred, struct hoist__held_batch *batch)
{
	HOIST__ASSERT(!batch->gone && !batch->recording);
	while (!hoist__list_empty(&batch->uses)) {
		struct hoist__held_use *use =
			HOIST__CONTAINER_OF(batch->uses.next, struct hoist__held_use, link);
		hoist__held_wait_no_more(use);
		if (use->block->n_waits == 0)
			hoist__held_make_ready(deferred, use->block);
	}
	hoist__held_batch_drop(batch);
}

/* --- queues --- */

void hoist__held_close(struct hoist__held_queue *queue)
{
	struct hoist__held_batch *batch = queue->open;
	if (batch == NULL || batch->n_uses == 0)
		return;
	HOIST__ASSERT(!batch->recorded && !batch->recording && !batch->gone);
	queue->open = NULL;
	hoist__list_push_back(&queue->closed, &batch->node);
}

/* [unlocks] */
static bool record(struct hoist__deferred *deferred, struct hoist__held_queue *queue,
		   struct hoist__held_batch *batch)
{
	HOIST__ASSERT(!batch->recording && !batch->gone && queue->pins != 0);
	batch->recording = true;
	batch->pins++;
	queue->n_busy++;
	pthread_mutex_unlock(&deferred->lock);
	bool done = try_record(deferred, queue->stream, &batch->event);
	pthread_mutex_lock(&deferred->lock);
	HOIST__ASSERT(batch->recording && batch->pins != 0 && queue->n_busy != 0);
	queue->n_busy--;
	batch->recording = false;
	batch->recorded = done;
	HOIST__ASSERT(!done || batch->event != NULL);
	if (done)
		batch->sequence = ++deferred->sequence;
	hoist__held_batch_unpin(batch);
	return done;
}

bool hoist__held_needless(const struct hoist__held_queue *queue,
			  const struct hoist__held_batch *batch)
{
	return batch->n_uses == 0 && !batch->recording && !queue->forgotten;
}

/* Looks at the newest batches and at the oldest one.  A batch between recorded ones, whose
 * recording was refused, need not be recorded before it is the oldest. */
static struct hoist__held_batch *first_unrecorded(struct hoist__held_queue *queue)
{
	struct hoist__list *head = &queue->closed;
	struct hoist__held_batch *ret = NULL;
	struct hoist__list *node = head->prev;
	for (; node != head && !batch_of(node)->recorded; node = node->prev)
		if (!batch_of(node)->recording && !hoist__held_needless(queue, batch_of(node)))
			ret = batch_of(node);
	struct hoist__held_batch *first = oldest(queue);
	if (first != NULL && !first->recorded && !first->recording &&
	    !hoist__held_needless(queue, first))
		ret = first;
	HOIST__ASSERT(ret == NULL || (!ret->recorded && !ret->gone));
	return ret;
}

bool hoist__held_record_all(struct hoist__deferred *deferred, struct hoist__held_queue *queue,
			    bool forgetting)
{
	struct hoist__held_batch *batch;
	HOIST__ASSERT(hoist__mutex_held(&deferred->lock) && queue->pins != 0);
	while ((batch = first_unrecorded(queue)) != NULL)
		if ((queue->forgotten && !forgetting) || !record(deferred, queue, batch))
			return false;
	return true;
}

/* [unlocks] Passes the batches whose events have passed, oldest first.  True if no closed batch is
 * left. */
static bool pass_closed(struct hoist__deferred *deferred, struct hoist__held_queue *queue)
{
	struct hoist__held_batch *batch;
	while ((batch = oldest(queue)) != NULL) {
		if (hoist__held_needless(queue, batch)) {
			hoist__held_batch_drop(batch);
			continue;
		}
		if (!batch->recorded)
			return false;
		batch->pins++;
		pthread_mutex_unlock(&deferred->lock);
		bool refused;
		bool passed = has_passed(deferred, batch->event, false, &refused);
		pthread_mutex_lock(&deferred->lock);
		HOIST__ASSERT(batch->gone || batch == oldest(queue));
		if (passed && !batch->gone)
			pass(deferred, batch);
		hoist__held_batch_unpin(batch);
		if (!passed)
			return false;
	}
	return true;
}

/* [unlocks] Without @all the open batch is closed only if no closed batch is left, so that frees
 * between many sweeps do not take an event each. */
static void sweep_queue(struct hoist__deferred *deferred, struct hoist__held_queue *queue, bool all)
{
	if (hoist__held_stale(queue) || queue->n_linked == 0)
		return;
	if (!queue->forgotten && hoist__held_ask(deferred, queue))
		return;
	if (all)
		hoist__held_close(queue);
	(void)hoist__held_record_all(deferred, queue, false);
	if (!pass_closed(deferred, queue) || queue->forgotten)
		return;
	hoist__held_close(queue);
	if (hoist__held_record_all(deferred, queue, false))
		(void)pass_closed(deferred, queue);
}

/* [unlocks] */
static void sweep_queues(struct hoist__deferred *deferred, bool all)
{
	struct hoist__list *node = deferred->queues.next;
	while (node != &deferred->queues) {
		struct hoist__held_queue *queue =
			HOIST__CONTAINER_OF(node, struct hoist__held_queue, node);
		queue->pins++;
		sweep_queue(deferred, queue, all);
		node = queue->node.next;
		hoist__held_queue_unpin(deferred, queue);
	}
}

/* --- waiting for the driver --- */

/* Only batches that were closed before the wait have passed, so the last one is pinned and the loop
 * ends with it. */
bool hoist__held_synchronize(struct hoist__deferred *deferred, struct hoist__held_queue *queue)
{
	bool passed;
	HOIST__ASSERT(queue->pins != 0 && !hoist__held_stale(queue));
	struct hoist__held_batch *last =
		hoist__list_empty(&queue->closed) ? NULL : batch_of(queue->closed.prev);
	if (last != NULL)
		last->pins++;
	queue->n_busy++;
	pthread_mutex_unlock(&deferred->lock);
	uint64_t since = hoist__now_ns();
	int err = hoist__dev_stream_await(queue->stream);
	count(deferred, HOIST__CALL_WAIT, since);
	if (!is_answer(err, &passed) && !is_answer(hoist__dev_stream_query(queue->stream), &passed))
		passed = true;
	pthread_mutex_lock(&deferred->lock);
	HOIST__ASSERT(queue->n_busy != 0);
	queue->n_busy--;
	if (last == NULL)
		return passed;
	/* A batch that another thread is recording just now waits for its event. */
	while (passed && !last->gone && !oldest(queue)->recording)
		pass(deferred, oldest(queue));
	hoist__held_batch_unpin(last);
	return passed;
}

void hoist__held_pass_all(struct hoist__deferred *deferred, struct hoist__held_queue *queue)
{
	hoist__held_close(queue);
	while (oldest(queue) != NULL)
		pass(deferred, oldest(queue));
}

/* The ways in which a sweep can wait, in rising order: it takes the best of all queues. */
enum prospect { NOTHING, STREAM, OTHERS, EVENT };

static enum prospect prospect_of(const struct hoist__held_queue *queue)
{
	const struct hoist__held_batch *batch = oldest(queue);
	if (batch == NULL || queue->n_linked == 0 || hoist__held_stale(queue) ||
	    (queue->capturing && !queue->forgotten))
		return NOTHING;
	if (batch->recorded)
		return EVENT;
	return batch->recording || queue->forgotten ? OTHERS : STREAM;
}

static enum prospect best_prospect(struct hoist__deferred *deferred, struct hoist__held_queue **ret)
{
	enum prospect best = NOTHING;
	struct hoist__list *head = &deferred->queues;
	for (struct hoist__list *node = head->next; node != head; node = node->next) {
		struct hoist__held_queue *queue =
			HOIST__CONTAINER_OF(node, struct hoist__held_queue, node);
		enum prospect prospect = prospect_of(queue);
		if (prospect > best ||
		    (prospect == EVENT && oldest(queue)->sequence < oldest(*ret)->sequence)) {
			best = prospect;
			*ret = queue;
		}
	}
	return best;
}

/* [unlocks] Returns: false if there is nothing that could be waited for. */
static bool wait_for_one(struct hoist__deferred *deferred)
{
	struct hoist__held_queue *queue = NULL;
	struct hoist__held_batch *batch;
	bool any = true;
	switch (best_prospect(deferred, &queue)) {
	case EVENT:
		HOIST__ASSERT(oldest(queue)->recorded && oldest(queue)->event != NULL);
		batch = oldest(queue);
		batch->pins++;
		pthread_mutex_unlock(&deferred->lock);
		bool refused;
		bool passed = has_passed(deferred, batch->event, true, &refused);
		pthread_mutex_lock(&deferred->lock);
		if (passed && !batch->gone) {
			queue->pins++;
			pass(deferred, batch);
			hoist__held_queue_unpin(deferred, queue);
		}
		any = passed || !refused;
		hoist__held_batch_unpin(batch);
		break;
	case STREAM:
		queue->pins++;
		any = !hoist__held_ask(deferred, queue) &&
		      (queue->forgotten || hoist__list_empty(&queue->closed) ||
		       hoist__held_synchronize(deferred, queue));
		hoist__held_queue_unpin(deferred, queue);
		break;
	case OTHERS: /* another thread records, for microseconds */
		pthread_mutex_unlock(&deferred->lock);
		(void)sched_yield();
		pthread_mutex_lock(&deferred->lock);
		break;
	case NOTHING:
		any = false;
		break;
	}
	return any;
}

static size_t take_ready(struct hoist__deferred *deferred, uintptr_t *ret, size_t n)
{
	size_t taken = 0;
	struct hoist__list *node;
	while (taken < n && (node = hoist__list_pop(&deferred->ready)) != NULL) {
		struct hoist__held *block = HOIST__CONTAINER_OF(node, struct hoist__held, node);
		HOIST__ASSERT(block->n_waits == 0 && block->allocated != 0 && block->bin == NULL);
		hoist__held_count(&deferred->bytes, 0, block->allocated);
		hoist__held_count(&deferred->n_pending, 0, 1);
		ret[taken++] = block->address;
		hoist__held_remove(deferred, block);
	}
	return taken;
}

size_t hoist__deferred_sweep(struct hoist__deferred *deferred, bool wait, uintptr_t *ret, size_t n)
{
	pthread_mutex_lock(&deferred->lock);
	if (hoist__list_empty(&deferred->ready))
		sweep_queues(deferred, wait);
	while (wait && hoist__list_empty(&deferred->ready) && wait_for_one(deferred))
		sweep_queues(deferred, true);
	size_t taken = take_ready(deferred, ret, n);
	HOIST__ASSERT(taken <= n && (taken == n || hoist__list_empty(&deferred->ready)));
	pthread_mutex_unlock(&deferred->lock);
	return taken;
}
