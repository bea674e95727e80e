/* SPDX-License-Identifier: MIT */
/* lib/load/plan.h - from selected tensors to reads and to places in memory.
 *
 *   tensor   one that the caller selected: whole or a slice of it, perhaps in another dtype
 *   run      bytes of one file that go to one place: rows of equal bytes, at regular distances in
 *            the file, one behind the other in the destination.  A whole tensor and a slice along
 *            the first axis are one row
 *   extent   a range of one file that is read: runs that touch each other, or whose gap is cheaper
 *            to read than to leave out; or the rows of one run whose gaps are left out
 *   chunk    the bytes that one read fetches: a part of one extent, widened to alignment
 *   piece    the part of a run that lies in one chunk, and is moved once the chunk is read
 *
 * An extent is read in one of two ways:
 *
 *   image    straight to its final place in host memory, no pieces: its first byte lies in memory
 *            at the same distance from an ALIGN boundary as in the file.  Only for whole tensors
 *            (or slices that are one row) that keep their dtype, to the host.  Tensors share an
 *            extent if no block lies between them, so that gaps do not grow the destination:
 *
 *     file    |......[ a ][ b ].[ c ]....|      ALIGN boundaries: |
 *     memory  |xxxxxx[ a ][ b ]x[ c ]xxxx|      x: read along, part of no tensor
 *
 *   staged   into slots, from which pieces are moved: copied to a device, or, to the host,
 *            gathered from rows and converted.  Staged tensors are packed in the destination, each
 *            at a multiple of tensor_align.  Tensors of one row share a run as long as they follow
 *            each other in the file and stay aligned by themselves, so that a slot is one copy.
 *
 * Gaps: a request costs as much as reading HOIST__PLAN_GAP bytes.  Staged extents read through
 * smaller gaps and leave larger ones out, between tensors as between rows of a slice.  Where gaps
 * are left out, a chunk is one row (or block of rows with small gaps), or several if the caller
 * allows several parts (max_parts).
 *
 * Conversion: pieces of a run that is converted hold whole elements only; an element that a chunk
 * would cut is in the next chunk, which begins early enough.  Elements that become wider for a
 * device are in extents of their own, whose chunks fill at most half of a slot (`half`) and are
 * widened in the slot.
 *
 * Tensors of one file may overlap.  Tensors (or slices) of the same bytes are tied, and share one
 * place in the destination.  Other overlapping tensors share an image, or, staged, have a place
 * each.  Overlapping bytes are read once, without leaving out gaps.  But if one of the tensors is
 * converted for a device, each of them is an extent of its own: bytes in a slot can be converted in
 * one way only.
 *
 * Invariants: extents are in order of (file, offset) and do not overlap, except those; runs are in
 * the order of their first bytes; every byte of every selected element is in exactly one piece of
 * exactly one chunk (tensors that overlap in the file: in one for each of them).  Runs, not rows,
 * take memory: a plan's size depends on the number of tensors and their ranks alone.
 */
#ifndef HOIST_LIB_LOAD_PLAN_H
#define HOIST_LIB_LOAD_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hoist/load.h"
#include "lib/checkpoint/checkpoint.h"

/* Reads begin and end at multiples of this (and of the file's own alignment if
 * that is larger), in the file and in memory. */
#define HOIST__PLAN_ALIGN ((uint64_t)4096)

/* The cost of a request, in bytes.  Random direct reads with 48 in flight, on a disk that reads 2
 * MiB at 2.2 GB/s: 4 KiB 7.7 us, 8 KiB 10.0, 16 KiB 15.3, 32 KiB 24.7, so 6 to 9 us each and 0.5 us
 * a KiB.  Faster disks have faster requests, and reads from the page cache have the same ratio (a
 * pread and the copy of 16 KiB take 2 us each).  Leaving a gap out saves nothing unless the gap is
 * at least two blocks. */
#define HOIST__PLAN_GAP ((uint64_t)16384)

enum hoist__plan_kind {
	HOIST__PLAN_HOST,  /* images where possible, else staged */
	HOIST__PLAN_DEVICE /* staged */
};

/* One selected tensor as it will be in the destination. */
struct hoist__plan_tensor {
	size_t index; /* in the checkpoint; ascending */
	hoist_dtype dtype;
	const int64_t *shape; /* the slice's; the checkpoint's own if it is whole */
	uint64_t begin;	      /* of its first element, in the file; 0 if it is empty */
	uint64_t bytes;	      /* in the destination, of `dtype` */
	uint64_t target;      /* where its first byte is in the destination; 0 if it is empty */
	bool whole;	      /* not sliced: the file's strides, if any, are kept */
};

struct hoist__plan_extent {
	size_t file;
	uint64_t begin; /* in the file, of its first selected byte */
	uint64_t end;	/* behind its last */
	uint64_t align; /* of reads: at least HOIST__PLAN_ALIGN */
	uint64_t image; /* image: where round_down(begin, align) lands in the destination */
	bool staged;
	bool half;	  /* see Conversion above */
	size_t first_run; /* the extent has runs[first_run .. first_run + n_runs) */
	size_t n_runs;
	uint64_t block_bytes; /* 0: the extent is read through.  Else gaps of its only run are left
			       * out, and so many selected bytes lie between two gaps */
};

struct hoist__run; /* private to plan*.c */

struct hoist__plan {
	enum hoist__plan_kind kind;
	size_t n_tensors;
	struct hoist__plan_tensor *tensors;
	size_t n_extents;
	struct hoist__plan_extent *extents;
	size_t n_runs;
	struct hoist__run *runs;
	unsigned max_parts;
	bool has_images;
	bool has_staged;
	bool has_conversion;
	uint64_t bytes;		    /* of the selected elements, in the file; those of tensors that
				     * overlap count for each, those of tied ones once */
	uint64_t destination_bytes; /* the bytes to allocate, */
	uint64_t align;		    /* at multiples of this: the largest of all extents */
	struct hoist__plan_arena *arena; /* shapes and rows of slices */
};

/* Selects, slices and converts tensors; the pointers are the caller's, used only by make. */
struct hoist__plan_options {
	enum hoist__plan_kind kind;
	uint64_t tensor_align;	     /* a power of two */
	const char *const *patterns; /* NULL: all */
	size_t n_patterns;
	const hoist_load_slice *slices;
	size_t n_slices;
	hoist_dtype dtype;  /* INVALID: as in the file */
	unsigned max_parts; /* of a chunk; 0: 1 */
};

/* Selects and lays out.
 * Returns: 0; -ENOENT naming a pattern without a match, also of a slice; -EINVAL (a slice that its
 *   tensor does not have, with shape and slice; two slices of one axis; one that cuts bytes or
 *   blocks; one of a tensor with strides; a dtype that nothing converts to); -ENOMEM;
 *   -EOVERFLOW.  @plan is zeroed on failure. */
int hoist__plan_make(const hoist_checkpoint *checkpoint, const struct hoist__plan_options *options,
		     struct hoist__plan *plan);

void hoist__plan_fini(struct hoist__plan *plan); /* takes a zeroed one */

/* --- chunks, in order --- */

/* Part p < n_parts is read from offset + p * part_stride in the file to p * bytes in the chunk's
 * memory.  Only chunks of extents with block_bytes have several parts, and none has if max_parts is
 * 1.  All parts together are within max_bytes. */
struct hoist__chunk {
	size_t extent;
	uint64_t offset; /* in the file; a multiple of the extent's align */
	size_t bytes;	 /* to read; a multiple of align, may pass the end of the file */
	size_t need;	 /* up to the last byte that is wanted; <= bytes */
	size_t skip;	 /* bytes at the front that are in no tensor, or in the chunk before */
	size_t useful; /* selected bytes, of all parts: what progress counts; in the file's dtype */
	uint64_t target; /* image: where `offset` lands in the destination */
	unsigned n_parts;
	uint64_t part_stride;
	/* Private: the first run of the chunk's pieces; the chunk has [from, to) of each run. */
	size_t first_run;
	uint64_t from;
	uint64_t to;
};

struct hoist__cursor {
	size_t extent;
	uint64_t from; /* bytes before it were in earlier chunks; 0: there are none */
	size_t run;
};

/* The next chunk of at most @max_bytes (a multiple of every extent's align, at least 4 of it).
 * Images' chunks end at multiples of @max_bytes in the destination, so that they share no
 * large page.  Each has useful bytes.  False at the end; the cursor starts zeroed. */
bool hoist__plan_next(const struct hoist__plan *plan, size_t max_bytes,
		      struct hoist__cursor *cursor, struct hoist__chunk *ret);

/* The first selected byte of the chunk's extent at or behind @offset of the file; UINT64_MAX: none.
 * Bytes between @offset and that byte were only read along. */
uint64_t hoist__plan_wanted(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
			    uint64_t offset);

/* --- pieces of a staged chunk, in the order of their runs --- */

struct hoist__plan_piece {
	size_t at;		/* in the chunk's memory */
	uint64_t target;	/* in the destination */
	size_t rows;		/* 1 and more: */
	size_t row_bytes;	/* bytes of a row in the chunk, */
	size_t at_stride;	/* from row to row in the chunk's memory, */
	uint64_t target_stride; /* and in the destination: without gaps */
	hoist_dtype from;	/* INVALID: not converted */
	hoist_dtype to;
};

struct hoist__piece_cursor {
	size_t run;
	uint64_t done; /* of the run's selected bytes */
	bool begun;
};

/* False at the end; the cursor starts zeroed.  A run of which the chunk has a part gives up to
 * three pieces: a cut row, whole rows, a cut row.  A run sliced along several axes gives these for
 * each step of the outer levels. */
bool hoist__plan_piece(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		       struct hoist__piece_cursor *cursor, struct hoist__plan_piece *ret);

/* The tensor that holds byte @offset of file @file, for messages; NULL if none does. */
const struct hoist__tensor *hoist__plan_tensor_at(const hoist_checkpoint *checkpoint,
						  const struct hoist__plan *plan, size_t file,
						  uint64_t offset);

#endif
