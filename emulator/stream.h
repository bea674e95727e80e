/* SPDX-License-Identifier: MIT */
/* emulator/stream.h - the part of the core that queues: streams, captures and events.  The terms and
 * the lock are emulator/core.h's.
 */
#ifndef HOIST_EMULATOR_STREAM_H
#define HOIST_EMULATOR_STREAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "emulator/core.h"

/* --- stream.c --- */

enum hoist__emu_kind { EMU_COPY, EMU_MEMSET, EMU_CALL, EMU_RECORD, EMU_WAIT, EMU_RELEASE };

/* Rows of planes; an ordinary copy is one row of all bytes. */
struct hoist__emu_box {
	uintptr_t dst;
	uintptr_t src;
	size_t width;
	size_t rows;
	size_t planes;
	size_t dst_pitch; /* from row to row */
	size_t src_pitch;
	size_t dst_plane; /* from plane to plane */
	size_t src_plane;
	/* Memory must extend behind the last plane, up to where the next one would begin. */
	bool whole_planes;
};

/* The drivers' numbers for a stream's state. */
enum hoist__emu_capture { EMU_CAPTURE_NONE, EMU_CAPTURE_ACTIVE, EMU_CAPTURE_INVALIDATED };

struct hoist__emu_mark {
	unsigned refs;
	bool done;
	bool captured; /* recorded into a graph: never done */
	int error;     /* of the stream at that point */
	uint64_t ns;   /* when done */
};

/* Operations stay in their stream's queue until they have ended. */
struct hoist__emu_op {
	struct hoist__list node;
	enum hoist__emu_kind kind;
	enum hoist__emu_direction direction;
	uint64_t ticket;   /* order of submission over all streams */
	uint64_t ready_ns; /* does not start before */
	struct hoist__emu_span dst;
	struct hoist__emu_span src;
	size_t bytes;		   /* EMU_COPY, EMU_MEMSET: all bytes to write */
	struct hoist__emu_box box; /* EMU_COPY; EMU_MEMSET: one row */
	uint32_t value;		   /* EMU_MEMSET: elements of width bytes */
	unsigned width;
	void (*function)(void *); /* EMU_CALL */
	void *argument;
	struct hoist__emu_mark *mark;	/* EMU_RECORD, EMU_WAIT, EMU_RELEASE */
	struct hoist__emu_block *block; /* EMU_RELEASE: freed to its pool */
	int forced;			/* fail with this code instead */
};

struct hoist__emu_stream {
	struct hoist__emu_range range; /* [this, this + 1): its handle */
	struct hoist__list node;       /* in its device's streams */
	struct hoist__emu_device *device;
	pthread_cond_t wake;
	struct hoist__list queue;
	unsigned refs; /* handle, thread, waiting callers, events */
	bool blocking; /* ordered with the NULL stream */
	int priority;
	bool is_null;
	bool is_of_thread;
	pthread_t owner; /* is_of_thread: the thread whose default stream it is */
	bool closing;	 /* destroyed: the thread ends when the queue is empty */
	enum hoist__emu_capture capture;
	int error;	    /* kept; later operations do nothing */
	uint64_t submitted; /* ticket of the latest operation */
	uint64_t completed;
	uint64_t free_ns; /* when the previous operation ended, by the engine's time */
	uint64_t random;  /* state of its latencies */
};

int hoist__emu_stream_create(struct hoist__emu_device *device, bool blocking,
			     struct hoist__emu_stream **ret);
int hoist__emu_stream_destroy(struct hoist__emu_stream *handle);

struct hoist__emu_stream_info {
	struct hoist__emu_device *device;
	bool blocking;
	int priority;
	uint64_t id; /* of this stream alone */
};

/* Sets how urgent the work of a stream is; work is done in the same way all the same. */
int hoist__emu_stream_set_priority(struct hoist__emu_stream *handle, int priority);

/* Answers for a stream of any device; for a default stream, of @device. */
int hoist__emu_stream_info(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			   struct hoist__emu_stream_info *ret);
int hoist__emu_stream_synchronize(struct hoist__emu_device *device,
				  struct hoist__emu_stream *handle);
int hoist__emu_stream_query(struct hoist__emu_device *device, struct hoist__emu_stream *handle);

/* Both drivers' handles for default streams: the NULL stream, and the calling thread's own. */
#define EMU_STREAM_LEGACY ((struct hoist__emu_stream *)1)
#define EMU_STREAM_OF_THREAD ((struct hoist__emu_stream *)2)

/* [locked] Finds the stream of a handle, or a default stream of @device.  Work on the NULL stream
 * breaks the capture of a blocking stream. */
int hoist__emu_stream_find(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			   struct hoist__emu_stream **ret);

void hoist__emu_stream_unref(struct hoist__emu_stream *stream); /* [locked] */

/* [locked] True if @stream still has an operation from before @ticket. */
bool hoist__emu_stream_has_older(const struct hoist__emu_stream *stream, uint64_t ticket);

/* [locked] Queues a copy of *@op.  A capturing stream records it instead, which releases the spans
 * and the mark at once.
 * Returns: 0; the stream's failure, or EMU_OUT_OF_MEMORY: then the caller still owns the spans and
 *   the mark. */
int hoist__emu_stream_submit(struct hoist__emu_stream *stream, const struct hoist__emu_op *op);

/* [locked] The same, but always queued: for operations that belong to no graph, and that happen
 * even if the stream's work has failed.
 * Returns: 0; EMU_OUT_OF_MEMORY. */
int hoist__emu_stream_queue(struct hoist__emu_stream *stream, const struct hoist__emu_op *op);

/* [locked] Waits for all work that is queued now.
 * Returns: 0; the stream's failure. */
int hoist__emu_stream_drain(struct hoist__emu_stream *stream);

/* --- capture.c --- */

#define EMU_MODE_RELAXED 2u

/* Swaps the calling thread's capture mode with *@mode. */
int hoist__emu_exchange_mode(unsigned *mode);

/* Every call that a driver forbids while any stream captures calls this first.
 * Returns: 0 if no stream captures or the thread's mode is relaxed; otherwise the code to return at
 *   once. */
int hoist__emu_unsafe(void);

/* Gives the capture state of a stream; asking breaks nothing. */
int hoist__emu_stream_capturing(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
				unsigned *ret);

/* [locked] Counts a call that breaks all captures.  Returns @code. */
int hoist__emu_capture_break(int code);

/* [locked] True if a stream of @device captures for which work on the NULL stream would wait. */
bool hoist__emu_capture_blocks(struct hoist__emu_device *device);

/* [locked] */
void hoist__emu_capture_end(struct hoist__emu_stream *stream);

/* --- event.c --- */

struct hoist__emu_event {
	struct hoist__emu_range range; /* [this, this + 1): its handle */
	struct hoist__emu_device *device;
	bool timing;
	struct hoist__emu_mark *mark;	  /* of the latest recording; NULL before the first */
	/* the stream of that recording, with a reference, even if it is destroyed; NULL: the NULL
	 * stream, or the event does not use it */
	struct hoist__emu_stream *stream;
};

int hoist__emu_event_create(struct hoist__emu_device *device, bool timing,
			    struct hoist__emu_event **ret);
int hoist__emu_event_destroy(struct hoist__emu_event *handle);
int hoist__emu_event_record(struct hoist__emu_device *device, struct hoist__emu_event *handle,
			    struct hoist__emu_stream *stream);
int hoist__emu_event_wait(struct hoist__emu_device *device, struct hoist__emu_event *handle,
			  struct hoist__emu_stream *stream);
int hoist__emu_event_query(struct hoist__emu_event *handle);
int hoist__emu_event_synchronize(struct hoist__emu_event *handle);
int hoist__emu_event_elapsed_ms(struct hoist__emu_event *start, struct hoist__emu_event *end,
				float *ret);

void hoist__emu_mark_unref(struct hoist__emu_mark *mark); /* [locked]; takes NULL */

#endif
