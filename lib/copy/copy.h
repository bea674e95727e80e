/* SPDX-License-Identifier: MIT */
/* lib/copy/copy.h - what the files of the copies share.
 *
 *   copy.c        the public copies into buffers: what is allowed, whom to wait for
 *   copy-new.c    into new buffers; hoist_buffer_to()
 *   copy-bytes.c  raw bytes, and the caller's memory
 *   copy-fill.c   patterns
 *   copy-batch.c  many pairs
 *   copy-plan.c   from two buffers to loops over bytes
 *   copy-move.c   which way those go
 *   copy-box.c    loops as the driver's copies
 *   copy-stage.c  loops through pinned slots
 *   copy-bits.c   elements that are no whole bytes
 *   transfer.c    runs of bytes; lane.c the streams for what is waited for
 *
 * A move is all that is left of two buffers: two places and the loops between them.  The ways:
 *
 *   HOST     both sides are the CPU's to touch: loops of our own
 *   DIRECT   one driver can reach both sides, which are on one device, or one is host memory
 *            that is known to it: boxes on a stream
 *   PEER     two devices of one driver: a call for each row, unless there are many: through
 *            host memory
 *   BOUNCE   pageable host memory and a device: a run by transfer.c, loops by copy-stage.c
 *   THROUGH  devices of two drivers: through host memory
 */
#ifndef HOIST_LIB_COPY_H
#define HOIST_LIB_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strided.h"
#include "lib/buffer/buffer-private.h"
#include "lib/memory/transfer.h"

struct hoist__move {
	struct hoist__span dst; /* of the first elements; the nest's offsets are not in it */
	struct hoist__span src;
	struct hoist__nest nest;
	hoist_memory *through; /* what it is copied through comes from; NULL: hoist's own */
};

/* --- copy-plan.c --- */

/* A buffer's elements, in units of whole bytes: one element, one block, or as many sub-byte
 * elements as fill bytes.  What the strides count is units, what the shape counts too. */
struct hoist__units {
	int rank;
	size_t bytes; /* of one unit; 0: the elements are no whole bytes */
	int64_t shape[HOIST__MAX_RANK];
	int64_t strides[HOIST__MAX_RANK];
};

void hoist__units_of(const hoist_buffer *buffer, struct hoist__units *ret);

/* All elements are one run of whole bytes. */
bool hoist__buffer_is_run(const hoist_buffer *buffer);

/* How @dst and @src of equal shape, or both contiguous, lie to each other.  Pre: elements.
 * Returns: false if their elements do not fill whole bytes: see hoist__copy_bits(). */
bool hoist__move_plan(const hoist_buffer *dst, const hoist_buffer *src, struct hoist__move *ret);

/* The loops over @extents of runs of @item bytes between two sides with these strides in bytes, in
 * canonical form. */
void hoist__nest_of(int rank, const int64_t *extents, size_t item, const int64_t *dst_strides,
		    const int64_t *src_strides, struct hoist__nest *ret);

/* The bytes that the loops touch on one side, [*low, *high) from where the first element is. */
void hoist__nest_bounds(const struct hoist__nest *nest, int64_t offset, const int64_t *strides,
			int64_t *low, int64_t *high);

/* Two of @buffer's elements may be one byte: then it is no destination. */
bool hoist__buffer_overlaps_itself(const hoist_buffer *buffer);

/* The sides reach into each other: not even one run may then be copied by a driver. */
bool hoist__move_overlaps(const struct hoist__move *move);

/* --- copy-move.c --- */

/* Does it, and waits for it: as hoist__transfer(), whose rule for overlaps holds too. */
int hoist__move_run(const struct hoist__move *move);

/* True if hoist__move_run() would queue it on one stream of *device alone. */
bool hoist__move_is_direct(const struct hoist__move *move, hoist_device **device);
int hoist__move_queue_direct(const struct hoist__move *move, struct hoist__dev_stream *stream);

/* True if @stream can do it alone: the CPU between host memories; a device what is DIRECT or to a
 * PEER, unless that takes too many calls. */
bool hoist__move_is_queued(const struct hoist__move *move, hoist_stream *stream);

/* Pre: it can. */
int hoist__move_queue(const struct hoist__move *move, hoist_stream *stream);

/* Blocks until the work that is queued on @stream now is done.
 * Returns: 0; -ENOTSUP if it captures a graph; -EDEADLK in a function that it calls; what failed
 *   there, where the driver says so. */
int hoist__stream_reach(hoist_stream *stream);

/* Host memory to copy through; @through NULL: malloc(). */
int hoist__middle_acquire(hoist_memory *through, size_t bytes, const char *what, uintptr_t *ret);
void hoist__middle_release(hoist_memory *through, uintptr_t address);

/* --- copy-box.c --- */

/* How many driver calls the nest takes, and how many rows are in them. */
struct hoist__boxes {
	uint64_t n_calls;
	uint64_t n_rows;
	int row;   /* the loop that is the rows of each box; -1: none */
	int plane; /* the planes; -1: none */
};

void hoist__boxes_plan(const struct hoist__nest *nest, struct hoist__boxes *ret);

/* @dst and @src are those of the first elements. */
int hoist__boxes_queue(struct hoist__dev_stream *stream, enum hoist__copy kind,
		       const struct hoist__nest *nest, const struct hoist__boxes *boxes,
		       uintptr_t dst, uintptr_t src);

/* The same between two devices of one driver, which has no such copies for that: a call for each
 * row. */
int hoist__peers_queue(struct hoist__dev_stream *stream, const struct hoist__move *move);

/* --- copy-stage.c --- */

/* Nanoseconds that going through slots takes, about; for a move with one side on a device. */
uint64_t hoist__stage_cost(const struct hoist__move *move);
uint64_t hoist__boxes_cost(const struct hoist__nest *nest, const struct hoist__boxes *boxes);

/* A move between host memory of any kind and a device. */
int hoist__stage_run(const struct hoist__move *move);

/* A move between two devices, or on one. */
int hoist__stage_between(const struct hoist__move *move);

/* --- copy-bits.c --- */

/* Copies elements that are no whole bytes, and waits for that.  Pre: settled.
 * Returns: also -ENOTSUP for a device's memory with gaps. */
int hoist__copy_bits(const hoist_buffer *dst, const hoist_buffer *src, hoist_memory *through);

/* --- copy.c --- */

struct hoist__pair {
	hoist_buffer *dst;
	hoist_buffer *src;
	unsigned flags;	       /* HOIST_COPY_... */
	hoist_memory *through; /* as in struct hoist__move */
};

/* All that hoist_buffer_copy_with() refuses.  Returns: 1 if there is nothing to do; 0; a negative
 * errno value. */
int hoist__pair_check(const struct hoist__pair *pair, hoist_stream *stream);

/* Takes their memory; without a stream, waits for theirs. */
int hoist__pair_prepare(const struct hoist__pair *pair, hoist_stream *stream);

/* Pre: checked, prepared.  Returns: 0; -ENOTSUP if copying on @stream would be, as it captures. */
int hoist__pair_check_capture(const struct hoist__pair *pair, hoist_stream *stream);

/* Pre: checked, prepared. */
int hoist__pair_copy(const struct hoist__pair *pair, hoist_stream *stream);

/* All three. */
int hoist__pair_run(const struct hoist__pair *pair, hoist_stream *stream);

/* Later work on @stream is behind what is queued on @other now: the host waits for that only where
 * no driver can. */
int hoist__stream_order(hoist_stream *stream, hoist_stream *other);

#endif
