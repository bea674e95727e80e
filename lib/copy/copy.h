/* SPDX-License-Identifier: MIT */
/* lib/copy/copy.h - shared by the files that copy.
 *
 *   copy.c        the public copies into buffers: the checks, and the streams to wait for
 *   copy-new.c    into new buffers; hoist_buffer_to()
 *   copy-bytes.c  raw bytes, and the caller's memory
 *   copy-fill.c   patterns
 *   copy-batch.c  many pairs
 *   copy-plan.c   from two buffers to loops over bytes
 *   copy-way.c    which way the loops go
 *   copy-box.c    loops as the driver's copies
 *   copy-stage.c  loops through pinned slots
 *   copy-bits.c   elements that are no whole bytes
 *   overlap.c     whether two buffers share bytes
 *
 * In lib/memory, transfer.c moves runs of bytes, and lane.c has the streams of copies that are
 * waited for.
 *
 * A move is all that copying needs of two buffers: two places and the loops between them.  The ways
 * that a move can go:
 *
 *   HOST     the CPU can touch both sides: loops of our own
 *   DIRECT   one driver can reach both sides, which are on one device, or one is host memory
 *            that is known to it: boxes on a stream
 *   PEER     two devices of one driver: a call for each row; with many rows through host memory
 *   BOUNCE   pageable host memory and a device: runs by transfer.c, loops by copy-stage.c
 *   THROUGH  devices of two drivers: through host memory
 */
#ifndef HOIST_LIB_COPY_COPY_H
#define HOIST_LIB_COPY_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strided.h"
#include "lib/buffer/buffer-private.h"
#include "lib/memory/transfer.h"

struct hoist__move {
	struct hoist__span dst; /* the first element; without the nest's offset */
	struct hoist__span src;
	struct hoist__nest nest;
	hoist_memory *through; /* the resource to copy through; NULL: hoist's own memory */
};

/* --- copy-plan.c --- */

/* A buffer's elements, in units of whole bytes: a unit is one element, one block, or as many
 * sub-byte elements as fill whole bytes.  Strides and shape count units. */
struct hoist__units {
	int rank;
	size_t bytes; /* of one unit; 0: the elements are no whole bytes */
	int64_t shape[HOIST__MAX_RANK];
	int64_t strides[HOIST__MAX_RANK];
};

void hoist__units_of(const hoist_buffer *buffer, struct hoist__units *ret);

/* True if all elements are one run of whole bytes. */
bool hoist__buffer_is_run(const hoist_buffer *buffer);

/* Plans the move from @src to @dst.  Pre: both have equal shapes or are contiguous; there are
 * elements.
 * Returns: false if the elements do not fill whole bytes: see hoist__copy_bits(). */
bool hoist__move_plan(const hoist_buffer *dst, const hoist_buffer *src, struct hoist__move *ret);

/* Makes the loops, in canonical form, over @extents of runs of @item bytes.  The strides are in
 * bytes. */
void hoist__nest_of(int rank, const int64_t *extents, size_t item, const int64_t *dst_strides,
		    const int64_t *src_strides, struct hoist__nest *ret);

/* Gives the bytes that the loops touch on one side: [*low, *high), from the first element on. */
void hoist__nest_bounds(const struct hoist__nest *nest, int64_t offset, const int64_t *strides,
			int64_t *low, int64_t *high);

/* True if two of @buffer's elements may share a byte: then it cannot be a destination. */
bool hoist__buffer_overlaps_itself(const hoist_buffer *buffer);

/* True if the two sides overlap: then a driver may not copy even one run. */
bool hoist__move_overlaps(const struct hoist__move *move);

/* --- overlap.c --- */

/* Gives the bytes between the buffer's first and its last: [*low, *high).  Pre: the buffer has its
 * memory, and elements. */
void hoist__buffer_reach(const hoist_buffer *buffer, uint64_t *low, uint64_t *high);

/* False if the buffers have no byte in common: they lie apart, or are parts of rows at a distance
 * that both have.  Buffers that interleave in any other way are taken to overlap.
 * Pre: as above. */
bool hoist__buffers_may_overlap(const hoist_buffer *a, const hoist_buffer *b);

/* --- copy-way.c --- */

/* Does the move, and waits for it, as hoist__transfer() does; the same rule for overlaps holds. */
int hoist__move_run(const struct hoist__move *move);

/* True if hoist__move_run() would queue the move on one stream of *device alone. */
bool hoist__move_is_direct(const struct hoist__move *move, hoist_device **device);
int hoist__move_queue_direct(const struct hoist__move *move, struct hoist__dev_stream *stream);

/* True if @stream can do the move alone.  A CPU stream can between host memories.  A device's
 * stream can if the way is DIRECT or PEER and does not take too many calls. */
bool hoist__move_is_queued(const struct hoist__move *move, hoist_stream *stream);

/* Pre: hoist__move_is_queued(). */
int hoist__move_queue(const struct hoist__move *move, hoist_stream *stream);

/* Blocks until the work that is queued on @stream now is done.
 * Returns: 0; -ENOTSUP if @stream captures a graph; -EDEADLK in a function that @stream calls; the
 *   failure of the work, if the driver reports it. */
int hoist__stream_reach(hoist_stream *stream);

/* Takes host memory to copy through; from malloc() if @through is NULL. */
int hoist__middle_acquire(hoist_memory *through, size_t bytes, const char *what, uintptr_t *ret);
void hoist__middle_release(hoist_memory *through, uintptr_t address);

/* --- copy-box.c --- */

/* How many driver calls the nest takes, and how many rows those have in all. */
struct hoist__boxes {
	uint64_t n_calls;
	uint64_t n_rows;
	int row;   /* the loop over the rows of a box; -1: none */
	int plane; /* the loop over the planes of a box; -1: none */
};

void hoist__boxes_plan(const struct hoist__nest *nest, struct hoist__boxes *ret);

/* @dst and @src are the addresses of the first elements. */
int hoist__boxes_queue(struct hoist__dev_stream *stream, enum hoist__copy kind,
		       const struct hoist__nest *nest, const struct hoist__boxes *boxes,
		       uintptr_t dst, uintptr_t src);

/* The same between two devices of one driver, which has no 2-D or 3-D copies for that: one call for
 * each row. */
int hoist__peers_queue(struct hoist__dev_stream *stream, const struct hoist__move *move);

/* --- copy-stage.c --- */

/* Estimates the nanoseconds that a move through slots takes.  Pre: one side is on a device. */
uint64_t hoist__stage_cost(const struct hoist__move *move);
uint64_t hoist__boxes_cost(const struct hoist__nest *nest, const struct hoist__boxes *boxes);

/* A move between host memory of any kind and a device. */
int hoist__stage_run(const struct hoist__move *move);

/* A move between two devices, or on one. */
int hoist__stage_between(const struct hoist__move *move);

/* --- copy-bits.c --- */

/* Copies elements that are no whole bytes, and waits for the copy.  Pre: both buffers are settled.
 * Returns: also -ENOTSUP for a destination in a device's memory whose elements have gaps. */
int hoist__copy_bits(const hoist_buffer *dst, const hoist_buffer *src, hoist_memory *through);

/* --- copy.c --- */

struct hoist__pair {
	hoist_buffer *dst;
	hoist_buffer *src;
	unsigned flags;	       /* HOIST_COPY_... */
	hoist_memory *through; /* as in struct hoist__move */
};

/* Makes all checks of hoist_buffer_copy_with().
 * Returns: 1 if there is nothing to do; 0; a negative errno value. */
int hoist__pair_check(const struct hoist__pair *pair, hoist_stream *stream);

/* Takes the memory of both buffers.  Without a stream, waits for the work on the buffers'
 * streams. */
int hoist__pair_prepare(const struct hoist__pair *pair, hoist_stream *stream);

/* Pre: checked, prepared.
 * Returns: 0; -ENOTSUP if the copy would have to wait and @stream captures a graph. */
int hoist__pair_check_capture(const struct hoist__pair *pair, hoist_stream *stream);

/* Pre: checked, prepared. */
int hoist__pair_copy(const struct hoist__pair *pair, hoist_stream *stream);

/* Checks, prepares and copies. */
int hoist__pair_run(const struct hoist__pair *pair, hoist_stream *stream);

/* Orders later work on @stream behind the work that is queued on @other now.  The host waits only
 * if no driver can. */
int hoist__stream_order(hoist_stream *stream, hoist_stream *other);

#endif
