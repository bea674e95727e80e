/* SPDX-License-Identifier: MIT */
/* lib/device/stream-private.h - what the files of streams and events share.
 *
 *   stream.c        the objects, their list, the public face of device/device.h's streams
 *   stream-wait.c   marks and pasts: how a stream waits for any other
 *   event.c         the public events
 *
 * A mark is one point in a stream, recorded as an event of its device.  Drivers let a stream wait
 * for marks of their own api.  Across apis, a function that is called in the order of the
 * waiting stream (hoist__stream_call()) blocks until the mark is reached.  On the CPU that is the
 * stream's own thread.  A driver may have one thread for all such calls: if it is blocked for a
 * mark that is itself behind a call of that driver, in another stream, neither ever ends.
 *
 * So each stream knows its past: the marks of other apis, one for each stream, that work on it
 * waits for, directly or through others.  Before a driver's thread is blocked for a mark, the
 * waiting stream is made to wait, in its driver, for the marks of its own api in the past of that
 * mark; the calls those are behind have been made then.  What is left to wait for needs
 * no thread of this driver.  It may need one of the other driver, which in turn may be blocked for
 * a mark that needs this one: two chains of three streams each, one from CUDA to HIP to CUDA and
 * one from HIP to CUDA to HIP.  Only drivers with one thread for all calls can block so.
 */
#ifndef HOIST_LIB_STREAM_PRIVATE_H
#define HOIST_LIB_STREAM_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "hoist/stream.h"
#include "lib/memory/objects.h"
#include "lib/core/user.h"

struct hoist__mark {
	_Atomic unsigned xrefs;
	struct hoist__dev *dev;
	struct hoist__dev_event *event;
	uint64_t stream_id; /* where it was recorded */
	uint64_t serial;    /* more than that of the marks before it in the stream */
	bool captured;	    /* into a graph: nothing that runs ever reaches it */
};

struct hoist__past {
	struct hoist__mark **marks; /* referenced; one for each stream_id */
	size_t n;
	size_t room;
};

/* Devices live as long as the process, so that a stream need not hold one. */
struct hoist_stream {
	_Atomic unsigned xrefs;
	hoist_device *device;
	struct hoist__dev_stream *stream;
	uint64_t id; /* no other stream of the process has had it */
	unsigned generation;
	struct hoist__user user;
	struct hoist__list link; /* in the list of all; its lock */
	pthread_mutex_t lock;	 /* below, and recording */
	uint64_t n_marks;
	struct hoist__past past;
	_Atomic bool xwaits; /* the past may hold something; also read without the lock */
};

/* 0; -ESTALE if @generation, hoist__fork_now() when @what ("the stream") was made, was another
 * process's.  Asked before a lock that this may have left held is taken. */
int hoist__check_generation(unsigned generation, const char *what);

/* For what can be recorded there.  Returns: 0; as hoist_event_create(). */
int hoist__mark_create(hoist_device *device, unsigned flags, struct hoist__mark **ret);
struct hoist__mark *hoist__mark_ref(struct hoist__mark *mark);
void hoist__mark_unref(struct hoist__mark *mark); /* takes NULL */

/* Records it, and gives the past of that point; not while others use the mark. */
int hoist__mark_record(struct hoist__mark *mark, hoist_stream *stream, struct hoist__past *ret);

/* @stream waits for @mark, of any device, whose past this is. */
int hoist__stream_wait_mark(hoist_stream *stream, struct hoist__mark *mark,
			    const struct hoist__past *past);

/* A copy with references of its own.  Returns: 0; -ENOMEM. */
/* Lets go of the marks in @stream's past that have been reached: each is an event of a driver. */
void hoist__stream_forget_reached(hoist_stream *stream);

int hoist__past_copy(const struct hoist__past *past, struct hoist__past *ret);
void hoist__past_clear(struct hoist__past *past);

/* Waits for all streams of @device that this process made but those that capture a graph, which
 * waiting would break; *captures: there are such.  Returns: the first failure. */
int hoist__streams_synchronize(hoist_device *device, bool *captures);

#endif
