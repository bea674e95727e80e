/* SPDX-License-Identifier: MIT */
/* device/cpu-stream.c - streams of the CPU: a thread and its queue.
 * The contract is in device/cpu.h, and for a backend in device/device-ops.h. */
#include "config.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/list.h"
#include "base/thread.h"
#include "device/cpu.h"

#define STREAM_STACK_BYTES ((size_t)256 << 10)

struct cpu_stream {
	pthread_mutex_t lock; /* guards all below but the thread */
	pthread_cond_t work;  /* something was queued, or stopping */
	pthread_cond_t done;  /* completed grew */
	struct hoist__list queue;
	_Atomic uint64_t submitted; /* changed under the lock; also read without it */
	_Atomic uint64_t completed;
	bool stopping;
	pthread_t thread;
};

/* The stream that the calling thread serves; NULL in other threads. */
static _Thread_local struct cpu_stream *serving;

/* All queued work runs before the thread ends, also once `stopping` is set.  Work runs without the
 * lock, because a function of the caller's may submit more work to this stream. */
static void *stream_main(void *argument)
{
	struct cpu_stream *stream = argument;
	serving = stream;
	pthread_mutex_lock(&stream->lock);
	for (;;) {
		while (hoist__list_empty(&stream->queue) && !stream->stopping)
			pthread_cond_wait(&stream->work, &stream->lock);
		struct hoist__list *node = hoist__list_pop(&stream->queue);
		if (node == NULL)
			break;
		pthread_mutex_unlock(&stream->lock);
		struct hoist__cpu_op *op = HOIST__CONTAINER_OF(node, struct hoist__cpu_op, link);
		op->run(op);
		free(op);
		pthread_mutex_lock(&stream->lock);
		stream->completed++;
		HOIST__ASSERT(stream->completed <= stream->submitted);
		pthread_cond_broadcast(&stream->done);
	}
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

static int start_thread(void *(*run)(void *argument), void *argument, bool detached, pthread_t *ret)
{
	const struct hoist__thread_options options = {STREAM_STACK_BYTES, detached};
	return hoist__thread_start(&options, run, argument, ret);
}

bool hoist__in_cpu_stream(void)
{
	return serving != NULL;
}

int hoist__leave_cpu_stream(void *(*run)(void *context), void *context)
{
	pthread_t thread;
	int err = start_thread(run, context, true, &thread);
	return err == 0 ? 0 : hoist__fail_thread(err, "starting a thread");
}

static void stream_free(struct cpu_stream *stream)
{
	pthread_cond_destroy(&stream->done);
	pthread_cond_destroy(&stream->work);
	pthread_mutex_destroy(&stream->lock);
	free(stream);
}

int hoist__cpu_stream_create(struct hoist__dev_stream *stream)
{
	struct cpu_stream *cpu = calloc(1, sizeof *cpu);
	if (cpu == NULL)
		return hoist__fail_nomem("a stream of the cpu", sizeof *cpu);
	pthread_mutex_init(&cpu->lock, NULL);
	pthread_cond_init(&cpu->work, NULL);
	pthread_cond_init(&cpu->done, NULL);
	hoist__list_init(&cpu->queue);
	int err = start_thread(stream_main, cpu, false, &cpu->thread);
	if (err < 0) {
		stream_free(cpu);
		return hoist__fail_thread(err, "cpu: starting the thread of a stream");
	}
	(void)pthread_setname_np(cpu->thread, "hoist-stream");
	stream->native = cpu;
	return 0;
}

void hoist__cpu_stream_destroy(struct hoist__dev_stream *stream)
{
	struct cpu_stream *cpu = stream->native;
	pthread_mutex_lock(&cpu->lock);
	cpu->stopping = true;
	pthread_cond_signal(&cpu->work);
	pthread_mutex_unlock(&cpu->lock);
	HOIST__ASSERT(serving != cpu);
	(void)pthread_join(cpu->thread, NULL);
	HOIST__ASSERT(cpu->completed == cpu->submitted && hoist__list_empty(&cpu->queue));
	stream_free(cpu);
}

/* True if all work queued before the call, in the caller's order, is done.  Takes no lock, so that
 * the usual case is cheap.  `submitted` is read first, so work that others queue meanwhile does not
 * count: the stream completes work in order. */
static bool is_idle(struct cpu_stream *cpu)
{
	uint64_t submitted = atomic_load(&cpu->submitted);
	return atomic_load(&cpu->completed) >= submitted;
}

/* Waits for the work that is queued now, not for work that others queue meanwhile. */
int hoist__cpu_stream_synchronize(struct hoist__dev_stream *stream)
{
	struct cpu_stream *cpu = stream->native;
	if (is_idle(cpu)) /* an idle stream runs no function that could be waiting here */
		return 0;
	if (serving == cpu)
		return hoist__fail(-EDEADLK, "a function that a stream of the cpu calls waits for "
					     "that stream, which would wait for it");
	pthread_mutex_lock(&cpu->lock);
	uint64_t target = cpu->submitted;
	while (cpu->completed < target)
		pthread_cond_wait(&cpu->done, &cpu->lock);
	pthread_mutex_unlock(&cpu->lock);
	return 0;
}

int hoist__cpu_stream_query(struct hoist__dev_stream *stream)
{
	struct cpu_stream *cpu = stream->native;
	return is_idle(cpu) ? 0 : -EAGAIN;
}

/* --- work --- */

void *hoist__cpu_op_create(size_t bytes, void (*run)(struct hoist__cpu_op *op))
{
	struct hoist__cpu_op *op = calloc(1, bytes);
	if (op != NULL)
		op->run = run;
	else
		(void)hoist__fail_nomem("work for a stream of the cpu", bytes);
	return op;
}

void hoist__cpu_submit(struct hoist__dev_stream *stream, struct hoist__cpu_op *op)
{
	struct cpu_stream *cpu = stream->native;
	pthread_mutex_lock(&cpu->lock);
	HOIST__ASSERT(!cpu->stopping && op->run != NULL);
	hoist__list_push_back(&cpu->queue, &op->link);
	cpu->submitted++;
	pthread_cond_signal(&cpu->work);
	pthread_mutex_unlock(&cpu->lock);
}
