/* SPDX-License-Identifier: MIT */
/* lib/device/stream-private.h - shared by the files of streams and events.
 *
 *   stream.c        the objects, their list, the public face of device/device.h's streams; the
 *                   last unref is lib/memory/stream-unref.c, as memory must forget a stream
 *   stream-wait.c   marks and pasts: how a stream waits for any other
 *   event.c         the public events
 *
 * A mark is one point in a stream, recorded as an event of its device.  A driver lets a stream wait
 * for marks of its own API.  Across APIs, the waiting stream calls a function in its order
 * (hoist__dev_stream_call()), which blocks until the mark is reached.  On the CPU the stream's own
 * thread blocks.  A driver may have one thread for all such calls.  If that thread is blocked for a
 * mark that is itself behind a call of the same driver, in another stream, neither ever ends.
 *
 * So each stream knows its past: the marks of other APIs, one for each stream, that its work waits
 * for, directly or through other streams.  Before a driver's thread is blocked for a mark, the
 * waiting stream is made to wait, in its driver, for the marks of its own API in the past of that
 * mark.  The calls before those marks have been made by then.  The rest of the wait needs no thread
 * of this driver.  It may need a thread of the other driver, which in turn may be blocked for a
 * mark that needs this one: two chains of three streams each, one from CUDA to HIP to CUDA and one
 * from HIP to CUDA to HIP.  Only drivers with one thread for all calls can block so.
 */
#ifndef HOIST_LIB_DEVICE_STREAM_PRIVATE_H
#define HOIST_LIB_DEVICE_STREAM_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "device/device.h"
#include "hoist/stream.h"
#include "lib/core/user.h"

struct hoist__mark {
	_Atomic unsigned xrefs;
	struct hoist__dev *dev;
	struct hoist__dev_event *event;
	uint64_t stream_id; /* the stream it was recorded in */
	uint64_t serial;    /* above the serials of the marks before it in the stream */
	bool captured;	    /* into a graph: no running work ever reaches the mark */
};

struct hoist__past {
	struct hoist__mark **marks; /* with a reference each; one mark for each stream_id */
	size_t n;
	size_t room;
};

/* A stream holds no reference to its device: devices live as long as the process. */
struct hoist_stream {
	_Atomic unsigned xrefs;
	hoist_device *device;
	struct hoist__dev_stream *stream;
	uint64_t id; /* no other stream of the process ever had this id */
	unsigned generation;
	struct hoist__user user;
	struct hoist__list link; /* in the list of all streams, under that list's lock */
	pthread_mutex_t lock;	 /* for recording and for the fields below */
	uint64_t n_marks;
	struct hoist__past past;
	_Atomic bool xwaits; /* the past may hold marks; also read without the lock */
};

/* Checks that the object named @what ("the stream") is this process's: @generation is the value of
 * hoist__fork_now() when it was made.  Call this before taking a lock of the object: a fork may
 * have left the lock held.
 * Returns: 0; -ESTALE for an object of the process that forked this one. */
int hoist__check_generation(unsigned generation, const char *what);

/* Makes a mark for points in streams of @device.
 * Returns: 0; as hoist_event_create(). */
int hoist__mark_create(hoist_device *device, unsigned flags, struct hoist__mark **ret);
struct hoist__mark *hoist__mark_ref(struct hoist__mark *mark);
void hoist__mark_unref(struct hoist__mark *mark); /* takes NULL */

/* Records @mark in @stream, and gives the past of that point.  Pre: only the caller uses the mark.
 */
int hoist__mark_record(struct hoist__mark *mark, hoist_stream *stream, struct hoist__past *ret);

/* Makes @stream wait for @mark, of any device.  @past is the past of @mark. */
int hoist__stream_wait_mark(hoist_stream *stream, struct hoist__mark *mark,
			    const struct hoist__past *past);

/* Drops the marks in @stream's past that have been reached: each holds an event of a driver. */
void hoist__stream_forget_reached(hoist_stream *stream);

/* Copies @past, with references of its own.
 * Returns: 0; -ENOMEM. */
int hoist__past_copy(const struct hoist__past *past, struct hoist__past *ret);
void hoist__past_clear(struct hoist__past *past);

/* Waits for the work of @stream, and drops the marks it has passed.
 * Returns: as hoist_stream_synchronize(). */
int hoist__stream_drain(hoist_stream *stream);

/* Ends a stream that no memory knows and nobody refers to: waits for its work. */
void hoist__stream_end(hoist_stream *stream);

/* Returns the id of the newest stream. */
uint64_t hoist__streams_last(void);

/* Returns the first stream of @device with an id above @after and up to @last, if this process made
 * it and somebody still holds a reference to it.  The caller gets a reference; NULL if there is
 * none. */
hoist_stream *hoist__streams_next(const hoist_device *device, uint64_t after, uint64_t last);

#endif
