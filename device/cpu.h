/* SPDX-License-Identifier: MIT */
/* device/cpu.h - streams and events of the CPU; private to device/.
 *
 * A stream is a thread and a queue.  The thread does the queued work in order, and
 * sleeps while the queue is empty.  The work (memcpy, memset, waiting for a point, reaching one)
 * cannot fail, so neither can a stream once it exists.
 *
 * An event names the point where it was last recorded.  Recording makes a new
 * point, so waiters for the old one are not disturbed.  A waiter, the stream
 * that will reach the point and the event each hold a reference.  Only work that
 * is queued after the work that reaches a point waits for the point, hence no cycle.
 */
#ifndef HOIST_DEVICE_CPU_H
#define HOIST_DEVICE_CPU_H

#include "base/list.h"
#include "device/device-ops.h"

/* One thing for a stream to do.  The op is the first member of a larger struct, which holds the
 * data that the op works on. */
struct hoist__cpu_op {
	struct hoist__list link;
	void (*run)(
		struct hoist__cpu_op *op); /* on the stream's thread, which then frees the op */
};

/* @bytes of memory, zero but for the op at the start; NULL, the text set, where there is none. */
void *hoist__cpu_op_create(size_t bytes, void (*run)(struct hoist__cpu_op *op));
void hoist__cpu_submit(struct hoist__dev_stream *stream, struct hoist__cpu_op *op);

int hoist__cpu_stream_create(struct hoist__dev_stream *stream);
void hoist__cpu_stream_destroy(struct hoist__dev_stream *stream);
int hoist__cpu_stream_synchronize(struct hoist__dev_stream *stream);
int hoist__cpu_stream_query(struct hoist__dev_stream *stream);
int hoist__cpu_stream_wait_event(struct hoist__dev_stream *stream, struct hoist__dev_event *event);

int hoist__cpu_event_create(struct hoist__dev_event *event);
void hoist__cpu_event_destroy(struct hoist__dev_event *event);
int hoist__cpu_event_record(struct hoist__dev_event *event, struct hoist__dev_stream *stream);
int hoist__cpu_event_query(struct hoist__dev_event *event);
int hoist__cpu_event_synchronize(struct hoist__dev_event *event);
int hoist__cpu_event_elapsed_ns(struct hoist__dev_event *start, struct hoist__dev_event *end,
				uint64_t *ret);

int hoist__cpu_copy_async(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
			  uintptr_t src, size_t bytes);
int hoist__cpu_copy_peer_async(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
			       uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src,
			       size_t bytes);
int hoist__cpu_copy_box(struct hoist__dev_stream *stream, enum hoist__copy kind,
			const struct hoist__box *box);
int hoist__cpu_stream_call(struct hoist__dev_stream *stream, void (*function)(void *argument),
			   void *argument);
int hoist__cpu_fill_async(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
			  unsigned width, size_t n);

#endif
