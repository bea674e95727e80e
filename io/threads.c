/* SPDX-License-Identifier: MIT */
/* io/threads.c - the engine for where io_uring is refused: threads that call pread.
 *
 *     submit -> queued --worker--> running --policy--> finished -> reap
 *                  ^                   |
 *                  +---- (cancel) -----+--> finished
 *
 * One mutex guards the lists and every request's private fields; it is free
 * while a worker is inside pread.  `work` wakes workers, `done` the reaper.
 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/wait.h"
#include "io/engine-impl.h"
#include "io/worker.h"

#define DEFAULT_THREADS 16u

struct threads {
	struct hoist__engine engine; /* first: the two are cast into each other */
	pthread_mutex_t mutex;
	pthread_cond_t work;
	pthread_cond_t done;
	struct hoist__list queued;
	struct hoist__list running;
	struct hoist__list finished;
	bool stop;
	unsigned n_workers;
	pthread_t workers[HOIST__ENGINE_MAX_THREADS];
};

static struct threads *threads_of(struct hoist__engine *engine)
{
	return HOIST__CONTAINER_OF(engine, struct threads, engine);
}

static struct hoist__request *request_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__request, node);
}

/* Reads @request to its end.  The mutex is held on entry and on return. */
static void serve(struct threads *t, struct hoist__request *request)
{
	bool ended = false;
	while (!ended) {
		struct hoist__attempt read;
		hoist__request_next(request, &read);
		pthread_mutex_unlock(&t->mutex);
		ssize_t n = pread(read.fd, read.address, read.bytes, (off_t)read.offset);
		int64_t result = n < 0 ? -errno : n;
		pthread_mutex_lock(&t->mutex);
		ended = hoist__request_finish(request, result);
	}
}

static void *work(void *argument)
{
	struct threads *t = argument;
	pthread_mutex_lock(&t->mutex);
	while (!t->stop) {
		struct hoist__list *node = hoist__list_pop(&t->queued);
		if (node == NULL) {
			pthread_cond_wait(&t->work, &t->mutex);
			continue;
		}
		hoist__list_push_back(&t->running, node);
		serve(t, request_of(node));
		hoist__list_remove(node);
		hoist__list_push_back(&t->finished, node);
		pthread_cond_signal(&t->done);
	}
	pthread_mutex_unlock(&t->mutex);
	return NULL;
}

static int threads_submit(struct hoist__engine *engine, struct hoist__request *const *requests,
			  unsigned n)
{
	struct threads *t = threads_of(engine);
	pthread_mutex_lock(&t->mutex);
	for (unsigned i = 0; i < n; i++) {
		hoist__list_push_back(&t->queued, &requests[i]->node);
		pthread_cond_signal(&t->work);
	}
	pthread_mutex_unlock(&t->mutex);
	return 0;
}

static unsigned threads_reap(struct hoist__engine *engine, struct hoist__request **ret,
			     unsigned max, uint64_t timeout_ns)
{
	struct threads *t = threads_of(engine);
	unsigned n = 0;
	pthread_mutex_lock(&t->mutex);
	if (timeout_ns != 0) {
		uint64_t deadline = hoist__deadline(timeout_ns);
		while (hoist__list_empty(&t->finished) &&
		       hoist__condition_wait(&t->done, &t->mutex, deadline) == 0)
			continue;
	}
	for (; n < max && !hoist__list_empty(&t->finished); n++)
		ret[n] = request_of(hoist__list_pop(&t->finished));
	pthread_mutex_unlock(&t->mutex);
	return n;
}

static void threads_cancel(struct hoist__engine *engine)
{
	struct threads *t = threads_of(engine);
	pthread_mutex_lock(&t->mutex);
	for (struct hoist__list *node; (node = hoist__list_pop(&t->queued)) != NULL;) {
		hoist__request_end(request_of(node), -ECANCELED);
		hoist__list_push_back(&t->finished, node);
	}
	for (struct hoist__list *node = t->running.next; node != &t->running; node = node->next)
		request_of(node)->cancelled = true;
	pthread_mutex_unlock(&t->mutex);
}

static void stop_workers(struct threads *t)
{
	pthread_mutex_lock(&t->mutex);
	t->stop = true;
	pthread_cond_broadcast(&t->work);
	pthread_mutex_unlock(&t->mutex);
	for (unsigned i = 0; i < t->n_workers; i++)
		pthread_join(t->workers[i], NULL);
}

static void threads_destroy(struct hoist__engine *engine, bool forked)
{
	struct threads *t = threads_of(engine);
	/* The child has no workers, and its copy of the mutex may be locked for ever. */
	if (!forked) {
		stop_workers(t);
		pthread_cond_destroy(&t->done);
		pthread_cond_destroy(&t->work);
		pthread_mutex_destroy(&t->mutex);
	}
	free(t);
}

static const struct hoist__engine_ops threads_ops = {
	.name = "threads",
	.submit = threads_submit,
	.reap = threads_reap,
	.cancel = threads_cancel,
	.destroy = threads_destroy,
};

static int init_locks(struct threads *t)
{
	int err = -pthread_mutex_init(&t->mutex, NULL);
	if (err != 0)
		return err;
	err = hoist__condition_init(&t->work);
	if (err != 0)
		goto fail_mutex;
	err = hoist__condition_init(&t->done);
	if (err != 0)
		goto fail_work;
	return 0;
fail_work:
	pthread_cond_destroy(&t->work);
fail_mutex:
	pthread_mutex_destroy(&t->mutex);
	return err;
}

/* Fewer workers than wanted are only slower; none is a failure. */
static int start_workers(struct threads *t, unsigned n)
{
	int err = 0;
	while (t->n_workers < n && err == 0) {
		err = hoist__worker_start(&t->workers[t->n_workers], work, t);
		if (err == 0)
			t->n_workers++;
	}
	return t->n_workers > 0 ? 0 : err;
}

int hoist__threads_create(const struct hoist__engine_options *options, struct hoist__engine **ret)
{
	unsigned n = options->n_threads != 0 ? options->n_threads : DEFAULT_THREADS;
	n = (unsigned)hoist__min_u64(n, options->depth);
	n = (unsigned)hoist__min_u64(n, HOIST__ENGINE_MAX_THREADS);

	struct threads *t = calloc(1, sizeof *t);
	if (t == NULL)
		return hoist__fail_nomem("reading threads", sizeof *t);
	hoist__list_init(&t->queued);
	hoist__list_init(&t->running);
	hoist__list_init(&t->finished);
	int err = init_locks(t);
	if (err != 0) {
		free(t);
		return hoist__fail_errno(err, "locks of the reading threads");
	}
	t->engine.ops = &threads_ops;
	err = start_workers(t, n);
	if (err != 0) {
		threads_destroy(&t->engine, false);
		/* -EAGAIN is what the kernel says; to our callers it would mean "busy". */
		return hoist__fail_errno(err == -EAGAIN ? -ENOMEM : err,
					 "starting a reading thread");
	}
	(void)snprintf(t->engine.reason, sizeof t->engine.reason, "threads: %u%s", t->n_workers,
		       t->n_workers < n ? " (more were refused)" : "");
	*ret = &t->engine;
	return 0;
}
