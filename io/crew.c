/* SPDX-License-Identifier: MIT */
/* Threads that serve requests, and the queues between them and the owner.
 * The contract is in io/crew.h.
 *
 * One mutex guards the lists and every request's private fields.  A worker drops the mutex while it
 * is inside a call.  `work` wakes workers, `done` wakes the reaper. */
#include "config.h"

#include "io/crew.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "alloc/region.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/wait.h"
#include "io/engine-impl.h"
#include "io/rows.h"
#include "io/worker.h"

/* The piece of a hot request that one worker copies: a whole staging slot, so that a slot is one
 * call.  Smaller pieces cost calls and wake-ups, larger ones leave threads idle at the request's
 * end. */
#define PIECE_BYTES (2 * HOIST__MIB)

/* While copies are made, or are next, the owner is told of this many ends at once: a wake costs
 * system calls on both sides. */
#define TOGETHER 4u

struct hoist__crew {
	pthread_mutex_t mutex;
	pthread_cond_t work;
	pthread_cond_t done;
	struct hoist__disks disks;
	struct disk_queue {
		struct hoist__list queued;
		unsigned n_serving;
	} disk_queues[HOIST__MAX_DISKS];
	unsigned next;	/* the queue to look at first */
	unsigned share; /* threads that one queue may occupy */
	struct hoist__list running;
	struct hoist__list finished;
	unsigned n_untold; /* requests that ended since the owner was last told */
	unsigned n_copies; /* pieces of hot ranges that workers are copying: they end soon */
	bool stop;
	bool woken;
	void (*ended)(void *context);
	void *context;
	unsigned n_workers;
	pthread_t workers[HOIST__CREW_MAX_THREADS];
};

static struct hoist__request *request_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__request, node);
}

/* --- parts of requests; the mutex is held --- */

static bool splits(const struct hoist__request *request)
{
	return request->hot && !request->write && !request->direct && request->n_rows == 0 &&
	       request->done == 0 && request->bytes > PIECE_BYTES;
}

/* Makes @part the copy that a worker serves: all of the request, or its next piece.  A worker
 * writes to its own copy only, so that several can serve one request. */
static void take_part(struct hoist__request *request, struct hoist__request *part)
{
	HOIST__ASSERT(request->taken < request->bytes && request->done < request->bytes);
	*part = *request;
	if (splits(request)) {
		size_t at = request->taken;
		part->offset += at;
		part->address += at;
		part->bytes = PIECE_BYTES - (uintptr_t)part->address % PIECE_BYTES;
		part->bytes = hoist__min_u64(part->bytes, request->bytes - at);
		part->need = request->need > at ? request->need - at : 0;
		part->need = hoist__min_u64(part->need, part->bytes);
		request->taken += part->bytes;
	} else {
		request->taken = request->bytes;
	}
	HOIST__ASSERT(request->taken <= request->bytes && part->need <= part->bytes);
	request->n_parts++;
}

/* Pieces end in any order: the first one that stopped short decides how much is done. */
static void stop_at(struct hoist__request *request, size_t at, int result)
{
	HOIST__ASSERT(at <= request->bytes && request->stopped <= request->bytes && result <= 0);
	if (at < request->stopped) {
		request->stopped = at;
		request->stop_result = result;
	}
}

static void merge(struct hoist__request *request, const struct hoist__request *part)
{
	HOIST__ASSERT(request->n_parts != 0 && part->done <= part->bytes);
	HOIST__ASSERT(splits(request) || request->n_parts == 1);
	if (splits(request)) {
		if (part->done < part->bytes)
			stop_at(request, part->offset - request->offset + part->done, part->result);
	} else {
		request->result = part->result;
		request->done = part->done;
		request->direct_done = part->direct_done;
		request->fell_back = part->fell_back;
	}
	request->n_parts--;
}

/* Returns: true if no worker serves @request or will: the request is then in `finished`. */
static bool end_if_over(struct hoist__crew *crew, struct hoist__request *request)
{
	HOIST__ASSERT(hoist__mutex_held(&crew->mutex) && request->taken <= request->bytes);
	HOIST__ASSERT(!hoist__list_empty(&request->node));
	if (request->n_parts > 0 || request->taken < request->bytes)
		return false;
	if (splits(request)) {
		bool enough = request->stopped >= request->need;
		request->done = request->stopped;
		hoist__request_end(request, enough ? 0 : request->stop_result);
	}
	hoist__list_remove(&request->node);
	hoist__list_push_back(&crew->finished, &request->node);
	pthread_cond_signal(&crew->done);
	return true;
}

/* --- workers --- */

/* The queues are served round robin, and a queue never occupies more than its share of the workers:
 * a slow disk leaves the others theirs. */
static struct disk_queue *next_queue(struct hoist__crew *crew)
{
	HOIST__ASSERT(hoist__mutex_held(&crew->mutex) && crew->next < crew->disks.n);
	for (unsigned i = 0; i < crew->disks.n; i++) {
		struct disk_queue *queue = &crew->disk_queues[(crew->next + i) % crew->disks.n];
		if (queue->n_serving < crew->share && !hoist__list_empty(&queue->queued)) {
			crew->next = (crew->next + i + 1) % crew->disks.n;
			return queue;
		}
	}
	return NULL;
}

/* Populates the part of the fresh memory that the next call copies to.  The calls for rows go on
 * where the one before ended, so the first call populates for all. */
static int make_pages(const struct hoist__request *part, const struct hoist__attempt *call)
{
	uintptr_t from = (uintptr_t)part->fresh;
	uintptr_t to = from + part->fresh_bytes;
	if (part->n_rows == 0) {
		from = hoist__max_u64(from, (uintptr_t)call->address);
		to = hoist__min_u64(to, (uintptr_t)call->address + call->bytes);
	} else if (part->done > 0) {
		return 0;
	}
	return from < to ? hoist__populate((void *)from, to - from) : 0;
}

/* Makes the next call in this worker.  Returns: as hoist__attempt_make(). */
static int64_t make_call(const struct hoist__request *part)
{
	struct hoist__attempt call;
	hoist__request_next(part, &call);
	if (part->hot && make_pages(part, &call) < 0)
		return -ENOMEM;
	if (part->n_rows > 0 && call.what == HOIST__ATTEMPT_READ)
		return hoist__rows_read(part);
	return hoist__attempt_make(&call);
}

/* Bytes in the page cache are copied at once.  A rescue, many rows, or an owner's work may take
 * long. */
static bool ends_soon(const struct hoist__request *request)
{
	return request->hot && !request->write && request->n_rows == 0 &&
	       request->state == HOIST__REQUEST_CACHED;
}

/* True if some end is certain to come soon: a copy is being made, or is the next thing that a
 * worker does. */
static bool more_comes_soon(const struct hoist__crew *crew)
{
	bool soon = crew->n_copies > 0;
	for (unsigned i = 0; i < crew->disks.n && !soon; i++) {
		const struct hoist__list *queued = &crew->disk_queues[i].queued;
		soon = !hoist__list_empty(queued) && ends_soon(request_of(queued->next));
	}
	return soon;
}

/* Tells the owner of all that has ended.  The mutex is held on entry and on return. */
static void tell(struct hoist__crew *crew)
{
	crew->n_untold = 0;
	pthread_mutex_unlock(&crew->mutex);
	crew->ended(crew->context);
	pthread_mutex_lock(&crew->mutex);
}

/* Serves the next part of the first request of @queue.  The mutex is held on entry and on
 * return.  Returns: true if the request is over. */
static bool serve(struct hoist__crew *crew, struct disk_queue *queue)
{
	struct hoist__request part, *request = request_of(queue->queued.next);
	take_part(request, &part);
	if (request->taken == request->bytes) {
		hoist__list_remove(&request->node);
		hoist__list_push_back(&crew->running, &request->node);
	}
	HOIST__ASSERT(queue->n_serving < crew->share && crew->share <= crew->n_workers);
	bool copies = ends_soon(&part);
	queue->n_serving++;
	crew->n_copies += copies;
	for (bool ended = false; !ended;) {
		pthread_mutex_unlock(&crew->mutex);
		int64_t result = make_call(&part);
		pthread_mutex_lock(&crew->mutex);
		part.cancelled = request->cancelled;
		ended = hoist__request_finish(&part, result);
		HOIST__ASSERT(crew->n_copies >= copies);
		crew->n_copies -= copies;
		copies = false;
		if (!ended && crew->n_untold > 0 && !more_comes_soon(crew))
			tell(crew);
	}
	HOIST__ASSERT(queue->n_serving != 0);
	queue->n_serving--;
	merge(request, &part);
	return end_if_over(crew, request);
}

/* Counts a request that ended.  True if the owner is to be told now: enough have ended, or no later
 * end is certain to come soon. */
static bool count_end(struct hoist__crew *crew)
{
	return crew->ended != NULL && (++crew->n_untold >= TOGETHER || !more_comes_soon(crew));
}

static void *work(void *argument)
{
	struct hoist__crew *crew = argument;
	pthread_mutex_lock(&crew->mutex);
	while (!crew->stop) {
		struct disk_queue *queue = next_queue(crew);
		if (queue == NULL) {
			pthread_cond_wait(&crew->work, &crew->mutex);
		} else if (serve(crew, queue) && count_end(crew)) {
			tell(crew);
		}
	}
	pthread_mutex_unlock(&crew->mutex);
	return NULL;
}

/* --- the owner's side --- */

void hoist__crew_submit(struct hoist__crew *crew, struct hoist__request *const *requests,
			unsigned n)
{
	pthread_mutex_lock(&crew->mutex);
	for (unsigned i = 0; i < n; i++) {
		struct hoist__request *request = requests[i];
		HOIST__ASSERT(request->done < request->bytes && request->need <= request->bytes);
		request->n_parts = 0;
		request->taken = 0;
		request->stopped = request->bytes;
		request->stop_result = 0;
		unsigned queue = hoist__disk_of(&crew->disks, request->file);
		HOIST__ASSERT(queue < crew->disks.n);
		hoist__list_push_back(&crew->disk_queues[queue].queued, &request->node);
		if (splits(request))
			pthread_cond_broadcast(&crew->work);
		else
			pthread_cond_signal(&crew->work);
	}
	pthread_mutex_unlock(&crew->mutex);
}

unsigned hoist__crew_reap(struct hoist__crew *crew, struct hoist__request **ret, unsigned max,
			  uint64_t timeout_ns)
{
	unsigned n = 0;
	pthread_mutex_lock(&crew->mutex);
	if (timeout_ns != 0) {
		uint64_t deadline = hoist__deadline(timeout_ns);
		while (!crew->woken && hoist__list_empty(&crew->finished) &&
		       hoist__condition_wait(&crew->done, &crew->mutex, deadline) == 0)
			continue;
	}
	crew->woken = false;
	for (; n < max && !hoist__list_empty(&crew->finished); n++)
		ret[n] = request_of(hoist__list_pop(&crew->finished));
	pthread_mutex_unlock(&crew->mutex);
	return n;
}

void hoist__crew_take(struct hoist__crew *crew, struct hoist__list *list)
{
	pthread_mutex_lock(&crew->mutex);
	for (struct hoist__list *node; (node = hoist__list_pop(&crew->finished)) != NULL;)
		hoist__list_push_back(list, node);
	pthread_mutex_unlock(&crew->mutex);
}

void hoist__crew_wake(struct hoist__crew *crew)
{
	pthread_mutex_lock(&crew->mutex);
	crew->woken = true;
	pthread_cond_signal(&crew->done);
	pthread_mutex_unlock(&crew->mutex);
}

/* The bytes of the request that no worker has taken are not read any more. */
static void cancel_queued(struct hoist__crew *crew, struct hoist__request *request)
{
	HOIST__ASSERT(hoist__mutex_held(&crew->mutex) && request->taken < request->bytes);
	HOIST__ASSERT(request->n_parts == 0 || splits(request));
	request->cancelled = true;
	stop_at(request, request->taken, -ECANCELED);
	request->taken = request->bytes;
	if (!splits(request))
		hoist__request_end(request, -ECANCELED);
	/* end_if_over() takes the request out of a list. */
	hoist__list_push_back(&crew->running, &request->node);
	(void)end_if_over(crew, request);
}

void hoist__crew_cancel(struct hoist__crew *crew)
{
	pthread_mutex_lock(&crew->mutex);
	for (struct hoist__list *node = crew->running.next; node != &crew->running;
	     node = node->next)
		request_of(node)->cancelled = true;
	for (unsigned i = 0; i < crew->disks.n; i++)
		for (struct hoist__list *node;
		     (node = hoist__list_pop(&crew->disk_queues[i].queued)) != NULL;)
			cancel_queued(crew, request_of(node));
	pthread_mutex_unlock(&crew->mutex);
}

unsigned hoist__crew_n_threads(const struct hoist__crew *crew)
{
	return crew->n_workers;
}

/* --- making and ending --- */

static void stop_workers(struct hoist__crew *crew)
{
	pthread_mutex_lock(&crew->mutex);
	crew->stop = true;
	pthread_cond_broadcast(&crew->work);
	pthread_mutex_unlock(&crew->mutex);
	for (unsigned i = 0; i < crew->n_workers; i++)
		pthread_join(crew->workers[i], NULL);
}

void hoist__crew_destroy(struct hoist__crew *crew, bool forked)
{
	if (crew == NULL)
		return;
	/* The child has no workers, and its copy of the mutex may be locked for ever. */
	if (!forked) {
		stop_workers(crew);
		HOIST__ASSERT(hoist__list_empty(&crew->running));
		pthread_cond_destroy(&crew->done);
		pthread_cond_destroy(&crew->work);
		pthread_mutex_destroy(&crew->mutex);
	}
	free(crew);
}

static int init_locks(struct hoist__crew *crew)
{
	int err = -pthread_mutex_init(&crew->mutex, NULL);
	if (err != 0)
		return err;
	err = hoist__condition_init(&crew->work);
	if (err != 0)
		goto fail_mutex;
	err = hoist__condition_init(&crew->done);
	if (err != 0)
		goto fail_work;
	return 0;
fail_work:
	pthread_cond_destroy(&crew->work);
fail_mutex:
	pthread_mutex_destroy(&crew->mutex);
	return err;
}

static int start_workers(struct hoist__crew *crew, unsigned n)
{
	int err = 0;
	pthread_mutex_lock(&crew->mutex); /* the workers begin once the share is known */
	while (crew->n_workers < n && err == 0) {
		err = hoist__worker_start(&crew->workers[crew->n_workers], work, crew);
		if (err == 0)
			crew->n_workers++;
	}
	crew->share = (unsigned)hoist__max_u64(crew->n_workers / crew->disks.n, 1);
	HOIST__ASSERT(crew->disks.n != 0 && crew->disks.n <= HOIST__MAX_DISKS);
	pthread_mutex_unlock(&crew->mutex);
	/* Fewer threads than asked for are enough. */
	return crew->n_workers > 0 ? 0 : err;
}

int hoist__crew_create(const struct hoist__crew_options *options, struct hoist__crew **ret)
{
	struct hoist__crew *crew = calloc(1, sizeof *crew);
	if (crew == NULL)
		return hoist__fail_nomem("reading threads", sizeof *crew);
	crew->disks = options->disks;
	crew->ended = options->ended;
	crew->context = options->context;
	for (unsigned i = 0; i < crew->disks.n; i++)
		hoist__list_init(&crew->disk_queues[i].queued);
	hoist__list_init(&crew->running);
	hoist__list_init(&crew->finished);
	int err = init_locks(crew);
	if (err != 0) {
		free(crew);
		return hoist__fail_errno(err, "locks of the reading threads");
	}
	unsigned n = (unsigned)hoist__min_u64(options->n_threads, HOIST__CREW_MAX_THREADS);
	err = start_workers(crew, n);
	if (err != 0) {
		hoist__crew_destroy(crew, false);
		return hoist__fail_thread(err, "starting a reading thread");
	}
	*ret = crew;
	return 0;
}
