/* SPDX-License-Identifier: MIT */
/* device/cpu-stream.c - see cpu.h for the shape of streams, events and points. */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/list.h"
#include "device/cpu.h"

#define STREAM_STACK_BYTES ((size_t)256 << 10)

struct point {
	atomic_uint xrefs;
	pthread_mutex_t lock;
	pthread_cond_t reached_cond;
	bool reached; /* lock */
	uint64_t ns;  /* lock; when it was reached */
};

enum op_kind { OP_COPY, OP_FILL, OP_WAIT, OP_REACH };

struct op {
	struct hoist__list link;
	enum op_kind kind;
	uint32_t value; /* OP_FILL: elements of width bytes are set to it */
	unsigned width;
	uintptr_t dst;
	uintptr_t src;
	size_t bytes;
	struct point *point; /* OP_WAIT, OP_REACH: one reference */
};

struct cpu_stream {
	pthread_mutex_t lock; /* all below but the thread */
	pthread_cond_t work;  /* something was queued, or stopping */
	pthread_cond_t done;  /* completed grew */
	struct hoist__list queue;
	uint64_t submitted;
	uint64_t completed;
	bool stopping;
	pthread_t thread;
};

struct cpu_event {
	pthread_mutex_t lock;
	struct point *point; /* lock; one reference; NULL before the first record */
};

/* --- points --- */

static struct point *point_create(unsigned refs)
{
	struct point *point = calloc(1, sizeof *point);
	if (point == NULL)
		return NULL;
	atomic_init(&point->xrefs, refs);
	pthread_mutex_init(&point->lock, NULL);
	pthread_cond_init(&point->reached_cond, NULL);
	return point;
}

static void point_unref(struct point *point)
{
	if (point == NULL || atomic_fetch_sub(&point->xrefs, 1) != 1)
		return;
	pthread_cond_destroy(&point->reached_cond);
	pthread_mutex_destroy(&point->lock);
	free(point);
}

static void point_wait(struct point *point)
{
	pthread_mutex_lock(&point->lock);
	while (!point->reached)
		pthread_cond_wait(&point->reached_cond, &point->lock);
	pthread_mutex_unlock(&point->lock);
}

static void point_reach(struct point *point)
{
	pthread_mutex_lock(&point->lock);
	point->ns = hoist__now_ns();
	point->reached = true;
	pthread_cond_broadcast(&point->reached_cond);
	pthread_mutex_unlock(&point->lock);
}

/* False while it was not reached; else *ns says when. */
static bool point_test(struct point *point, uint64_t *ns)
{
	pthread_mutex_lock(&point->lock);
	bool reached = point->reached;
	*ns = point->ns;
	pthread_mutex_unlock(&point->lock);
	return reached;
}

/* The event's present point, with a reference for the caller. */
static struct point *event_point(struct cpu_event *event)
{
	pthread_mutex_lock(&event->lock);
	struct point *point = event->point;
	atomic_fetch_add(&point->xrefs, 1);
	pthread_mutex_unlock(&event->lock);
	return point;
}

/* --- streams --- */

static void fill(const struct op *op)
{
	size_t n = op->bytes / op->width;
	if (op->width == 1)
		memset((void *)op->dst, (unsigned char)op->value, n);
	else if (op->width == 2)
		for (uint16_t *at = (uint16_t *)op->dst; n > 0; n--)
			*at++ = (uint16_t)op->value;
	else
		for (uint32_t *at = (uint32_t *)op->dst; n > 0; n--)
			*at++ = op->value;
}

static void run_op(struct op *op)
{
	switch (op->kind) {
	case OP_COPY:
		memcpy((void *)op->dst, (const void *)op->src, op->bytes);
		break;
	case OP_FILL:
		fill(op);
		break;
	case OP_WAIT:
		point_wait(op->point);
		break;
	case OP_REACH:
		point_reach(op->point);
		break;
	}
	point_unref(op->point);
	free(op);
}

static void *stream_main(void *argument)
{
	struct cpu_stream *stream = argument;
	pthread_mutex_lock(&stream->lock);
	for (;;) {
		while (hoist__list_empty(&stream->queue) && !stream->stopping)
			pthread_cond_wait(&stream->work, &stream->lock);
		struct hoist__list *node = hoist__list_pop(&stream->queue);
		if (node == NULL)
			break;
		pthread_mutex_unlock(&stream->lock);
		run_op(HOIST__CONTAINER_OF(node, struct op, link));
		pthread_mutex_lock(&stream->lock);
		stream->completed++;
		pthread_cond_broadcast(&stream->done);
	}
	pthread_mutex_unlock(&stream->lock);
	return NULL;
}

/* The host program's signals are not for this thread. */
static int start_thread(struct cpu_stream *stream)
{
	pthread_attr_t attributes;
	sigset_t all;
	sigset_t before;
	int err = pthread_attr_init(&attributes);
	if (err != 0)
		return -err;
	(void)pthread_attr_setstacksize(&attributes, STREAM_STACK_BYTES);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&stream->thread, &attributes, stream_main, stream);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (err == 0)
		(void)pthread_setname_np(stream->thread, "hoist-stream");
	return -err;
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
	int err = start_thread(cpu);
	if (err < 0) {
		stream_free(cpu);
		/* -EAGAIN is what the kernel says; to our callers it means "busy". */
		return hoist__fail(err == -EAGAIN ? -ENOMEM : err,
				   "cpu: starting the thread of a stream: %s; `ulimit -u` or the "
				   "container's limit on processes may be reached",
				   strerrordesc_np(-err));
	}
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
	(void)pthread_join(cpu->thread, NULL);
	stream_free(cpu);
}

/* Waits for what is queued now; what others queue meanwhile is not ours. */
int hoist__cpu_stream_synchronize(struct hoist__dev_stream *stream)
{
	struct cpu_stream *cpu = stream->native;
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
	pthread_mutex_lock(&cpu->lock);
	bool idle = cpu->completed == cpu->submitted;
	pthread_mutex_unlock(&cpu->lock);
	return idle ? 0 : -EAGAIN;
}

static struct op *op_create(enum op_kind kind)
{
	struct op *op = calloc(1, sizeof *op);
	if (op != NULL)
		op->kind = kind;
	else
		(void)hoist__fail_nomem("work for a stream of the cpu", sizeof *op);
	return op;
}

static void submit(struct cpu_stream *stream, struct op *op)
{
	pthread_mutex_lock(&stream->lock);
	hoist__list_push_back(&stream->queue, &op->link);
	stream->submitted++;
	pthread_cond_signal(&stream->work);
	pthread_mutex_unlock(&stream->lock);
}

int hoist__cpu_copy_async(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
			  uintptr_t src, size_t bytes)
{
	struct op *op = op_create(OP_COPY);
	(void)kind;
	if (op == NULL)
		return -ENOMEM;
	op->dst = dst;
	op->src = src;
	op->bytes = bytes;
	submit(stream->native, op);
	return 0;
}

int hoist__cpu_copy_peer_async(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
			       uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src,
			       size_t bytes)
{
	(void)dst_dev;
	(void)src_dev;
	return hoist__cpu_copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, dst, src, bytes);
}

int hoist__cpu_fill_async(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
			  unsigned width, size_t n)
{
	struct op *op = op_create(OP_FILL);
	if (op == NULL)
		return -ENOMEM;
	op->dst = dst;
	op->value = value;
	op->width = width;
	op->bytes = n * width;
	submit(stream->native, op);
	return 0;
}

int hoist__cpu_stream_wait_event(struct hoist__dev_stream *stream, struct hoist__dev_event *event)
{
	struct op *op = op_create(OP_WAIT);
	if (op == NULL)
		return -ENOMEM;
	op->point = event_point(event->native);
	submit(stream->native, op);
	return 0;
}

/* --- events --- */

int hoist__cpu_event_create(struct hoist__dev_event *event)
{
	struct cpu_event *cpu = calloc(1, sizeof *cpu);
	if (cpu == NULL)
		return hoist__fail_nomem("an event of the cpu", sizeof *cpu);
	pthread_mutex_init(&cpu->lock, NULL);
	event->native = cpu;
	return 0;
}

void hoist__cpu_event_destroy(struct hoist__dev_event *event)
{
	struct cpu_event *cpu = event->native;
	point_unref(cpu->point);
	pthread_mutex_destroy(&cpu->lock);
	free(cpu);
}

/* Queued under the event's lock: of two threads that record it at once, the
 * later in the event is the later in the queue. */
int hoist__cpu_event_record(struct hoist__dev_event *event, struct hoist__dev_stream *stream)
{
	struct cpu_event *cpu = event->native;
	struct op *op = op_create(OP_REACH);
	if (op == NULL)
		return -ENOMEM;
	op->point = point_create(2);
	if (op->point == NULL) {
		free(op);
		return hoist__fail_nomem("a point in a stream of the cpu", sizeof(struct point));
	}
	struct point *point = op->point;
	pthread_mutex_lock(&cpu->lock);
	struct point *old = cpu->point;
	cpu->point = point;
	submit(stream->native, op);
	pthread_mutex_unlock(&cpu->lock);
	point_unref(old);
	return 0;
}

int hoist__cpu_event_query(struct hoist__dev_event *event)
{
	struct point *point = event_point(event->native);
	uint64_t ns = 0;
	bool reached = point_test(point, &ns);
	point_unref(point);
	return reached ? 0 : -EAGAIN;
}

int hoist__cpu_event_synchronize(struct hoist__dev_event *event)
{
	struct point *point = event_point(event->native);
	point_wait(point);
	point_unref(point);
	return 0;
}

int hoist__cpu_event_elapsed_ns(struct hoist__dev_event *start, struct hoist__dev_event *end,
				uint64_t *ret)
{
	struct point *points[2] = {event_point(start->native), event_point(end->native)};
	uint64_t ns[2] = {0, 0};
	bool reached = point_test(points[0], &ns[0]) && point_test(points[1], &ns[1]);
	point_unref(points[0]);
	point_unref(points[1]);
	if (!reached)
		return -EAGAIN;
	*ret = ns[1] > ns[0] ? ns[1] - ns[0] : 0;
	return 0;
}
