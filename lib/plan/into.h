/* SPDX-License-Identifier: MIT */
/* lib/plan/into.h - the buffers of the caller's that a load in place reads into (options.into).
 *
 * A target that is in place has a want that is, too (lib/plan/plan.h): the targets of its tensors
 * are addresses, and its lot begins at address 0.  So a load moves bytes as in any other case.
 *
 * The state of a tensor:
 *
 *     UNTOUCHED --a chunk with bytes of it may be written--> TORN --all bytes are counted--> WHOLE
 *
 * A chunk may be written from the moment that its read is submitted (images, straight rows), or
 * that it is settled (slots).  Bytes are counted when they are in host memory, or their copies are
 * queued.  The end of a failed load waits for the copies, and asks whether the files have changed:
 * WHOLE tensors of a device that failed, or of a file that changed, are TORN.
 *
 * Order: an event on each stream of a buffer in host memory is recorded at start, and the load
 * begins behind all of them.  The stream of a device's copies waits for the streams of its buffers.
 *
 * Threads: one owner, which moves the bytes; states are any thread's once the load is done.
 */
#ifndef HOIST_LIB_PLAN_INTO_H
#define HOIST_LIB_PLAN_INTO_H

#include "base/error.h"
#include "lib/buffer/storage.h"
#include "lib/plan/plan.h"

/* One target, as the buffers need to know it.  All is borrowed. */
struct hoist__into_target {
	const hoist_load_into *given; /* NULL: the target is not in place */
	size_t n;
	hoist_device *device;
	hoist_stream *stream; /* of the copies; NULL: the target is the host */
	unsigned want;
	size_t first; /* the target has places[first .. first + n) */
};

struct hoist__into_place {
	hoist_buffer *buffer;		/* referenced, */
	struct hoist__storage *storage; /* and so is its storage, beyond hoist_buffer_close() */
	size_t target;
	size_t tensor; /* plan->tensors[] */
};

struct hoist__into_tensor {
	uint64_t left;	  /* bytes, as they are in the file, that have not been counted */
	uintptr_t memory; /* hoist__into_memory() */
	enum hoist_into_state state;
};

struct hoist__into {
	const hoist_checkpoint *checkpoint;
	const struct hoist__plan *plan;
	size_t n_targets;
	struct hoist__into_target *targets;
	size_t n;
	struct hoist__into_place *places;
	struct hoist__plan_into *planned;   /* as places, until the plan is made */
	struct hoist__into_tensor *tensors; /* as plan->tensors; of tensors that are tied, the one
					     * that has the run counts */
	hoist_event **events;		    /* that the load begins behind */
	size_t n_events;
	size_t n_passed;
};

/* Checks the list of one target, if it has one, without the device.  @where begins messages.
 * Returns: 0; -EINVAL, -EBADF, -EROFS, -ENOTSUP. */
int hoist__into_check(const hoist_load_options *o, const hoist_load_target *asked,
		      const char *where);

/* The device of the first buffer that has elements; NULL: the CPU can touch its bytes.
 * Pre: checked; @n is not 0. */
hoist_device *hoist__into_device(const hoist_load_into *given, size_t n);

/* Takes the buffers of all targets, and their memory.  On failure, too, *ret is the caller's.
 * Returns: 0; -EINVAL, -ENOMEM; as hoist_buffer_allocate(). */
int hoist__into_open(const struct hoist__into_target *targets, size_t n, struct hoist__into **ret);

/* The places of a target, for the plan. */
const struct hoist__plan_into *hoist__into_planned(const struct hoist__into *into, size_t target);

/* Finds the tensor of each buffer in the plan, which is made, and outlives @into.  Takes NULL.
 * Returns: 0; -EINVAL (buffers overlap); -ENOMEM. */
int hoist__into_match(struct hoist__into *into, const hoist_checkpoint *checkpoint,
		      const struct hoist__plan *plan);

/* Puts the load behind the work that is queued on the buffers' streams.  Takes NULL.
 * Returns: 0; -ENOTSUP (a stream captures a graph); -ENOMEM, -EREMOTEIO. */
int hoist__into_begin(struct hoist__into *into);

/* Waits for that work, a little while.  Returns: 0, the load may begin; 1: to be called again; what
 * failed. */
int hoist__into_await(struct hoist__into *into, uint64_t timeout_ns);

/* The chunk may be written from now on; its bytes are where they belong, or on their way to the
 * devices. */
void hoist__into_touch(struct hoist__into *into, const struct hoist__chunk *chunk);
void hoist__into_count(struct hoist__into *into, const struct hoist__chunk *chunk);

/* A number for the driver's allocation that the tensor of the plan lies in: one copy may bring
 * tensors of one allocation alone. */
static inline uintptr_t hoist__into_memory(const struct hoist__into *into,
					   const struct hoist__plan_tensor *tensor)
{
	return into->tensors[tensor - into->plan->tensors].memory;
}

/* The load has ended with @err, and nothing is in flight but copies.  Says in the text of @failure
 * how many buffers have which state. */
void hoist__into_end(struct hoist__into *into, int err, struct hoist__failure *failure);

/* Memory of these buffers may be written at any later time: it never goes back. */
void hoist__into_keep(const struct hoist__into *into);

/* The buffer, borrowed, of the @index-th tensor of the plan, which is in place. */
hoist_buffer *hoist__into_buffer(const struct hoist__into *into, size_t target, size_t index);

/* Returns: 0; -EINVAL (no such buffer). */
int hoist__into_state(const struct hoist__into *into, size_t target, size_t index,
		      enum hoist_into_state *ret);

void hoist__into_close(struct hoist__into *into); /* takes NULL */

#endif
