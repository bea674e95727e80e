/* SPDX-License-Identifier: MIT */
/* device/cpu-event.c - events and points of the CPU.
 * The contract is in device/cpu.h, and for a backend in device/device-ops.h. */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "device/cpu.h"

struct point {
	atomic_uint xrefs;
	pthread_mutex_t lock;
	pthread_cond_t reached_cond;
	bool reached; /* lock */
	uint64_t ns;  /* lock; the time when it was reached */
};

struct cpu_event {
	pthread_mutex_t lock;
	struct point *point; /* lock; one reference; NULL before the first record */
};

/* The op waits for a point or reaches it, and holds one reference. */
struct point_op {
	struct hoist__cpu_op op;
	struct point *point;
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

/* False while @point is not reached.  Else *ns is the time when it was reached. */
static bool point_test(struct point *point, uint64_t *ns)
{
	pthread_mutex_lock(&point->lock);
	bool reached = point->reached;
	*ns = point->ns;
	pthread_mutex_unlock(&point->lock);
	return reached;
}

/* The event's current point, with a reference for the caller. */
static struct point *event_point(struct cpu_event *event)
{
	pthread_mutex_lock(&event->lock);
	struct point *point = event->point;
	atomic_fetch_add(&point->xrefs, 1);
	pthread_mutex_unlock(&event->lock);
	return point;
}

/* --- events --- */

static void run_wait(struct hoist__cpu_op *op)
{
	struct point *point = ((struct point_op *)op)->point;
	point_wait(point);
	point_unref(point);
}

static void run_reach(struct hoist__cpu_op *op)
{
	struct point *point = ((struct point_op *)op)->point;
	point_reach(point);
	point_unref(point);
}

int hoist__cpu_stream_wait_event(struct hoist__dev_stream *stream, struct hoist__dev_event *event)
{
	struct point_op *op = hoist__cpu_op_create(sizeof *op, run_wait);
	if (op == NULL)
		return -ENOMEM;
	op->point = event_point(event->native);
	hoist__cpu_submit(stream, &op->op);
	return 0;
}

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

/* Queues the op under the event's lock.  If two threads record the event at once, the
 * point that stays in the event is then the later one in the queue. */
int hoist__cpu_event_record(struct hoist__dev_event *event, struct hoist__dev_stream *stream)
{
	struct cpu_event *cpu = event->native;
	struct point_op *op = hoist__cpu_op_create(sizeof *op, run_reach);
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
	hoist__cpu_submit(stream, &op->op);
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
