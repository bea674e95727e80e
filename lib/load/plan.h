/* SPDX-License-Identifier: MIT */
/* lib/load/plan.h - from selected tensors to reads and to places in memory.
 *
 *   tensor   what the caller asked for: a whole one or a slice of one, perhaps in another dtype
 *   run      bytes of one file that go to one place: rows of equal bytes, at regular distances in
 *            the file, one behind the other in the destination.  A whole tensor and a slice along
 *            the first axis are one row
 *   extent   a range of one file that is read: runs that touch each other, or whose gap is cheaper
 *            to read than to leave out; or the rows of one run whose gaps are left out
 *   chunk    what one read fetches: a part of one extent, widened to alignment
 *   piece    the part of a run that lies in one chunk: what is moved once the chunk is there
 *
 * An extent is read in one of two ways:
 *
 *   image    straight to its final place in host memory, no pieces: its first byte lies in memory
 *            at the same distance from an ALIGN boundary as in the file.  Only for whole tensors
 *            (or slices that are one row) that keep their dtype, to the host.  Tensors share an
 *            extent if no block lies between them, so that gaps do not grow the destination:
 *
 *     file    |......[ a ][ b ].[ c ]....|      ALIGN boundaries: |
 *     memory  |xxxxxx[ a ][ b ]x[ c ]xxxx|      x: read along, belongs to nobody
 *
 *   staged   into slots, from which pieces are moved: copied to a device, or, to the host,
 *            gathered from rows and converted.  What is staged is packed in the destination, each
 *            tensor at a multiple of tensor_align; as long as tensors of one row follow each other
 *            in the file and stay aligned by themselves they share a run, so that a slot is one
 *            copy.
 *
 * Gaps: a request costs as much as reading HOIST__PLAN_GAP bytes.  In what is staged, smaller gaps
 * are read through and larger ones left out, between tensors as between rows of a slice: then one
 * chunk is one row (or block of rows with small gaps), or, if the caller can do that, several.
 *
 * Conversion: pieces of a run that is converted hold whole elements only; an element that a chunk
 * would cut is the next chunk's, which begins early enough.  What becomes wider for a device is in
 * extents of its own, whose chunks have at most half of a slot (`half`) and are widened there.
 *
 * Tensors of one file may overlap.  Of the same bytes (tied ones; slices, too) there is one place.
 * Else each has its own, but for images, which they share; what overlaps is read once, without
 * leaving out gaps, unless some of it is converted for a device: then, as bytes in a slot can
 * become only one thing, each tensor is an extent.
 *
 * Invariants: extents are in order of (file, offset) and do not overlap, but for those; runs are in
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

/* What a request costs, in bytes.  Random direct reads with 48 in flight, on a disk that reads 2
 * MiB at 2.2 GB/s: 4 KiB 7.7 us, 8 KiB 10.0, 16 KiB 15.3, 32 KiB 24.7, so 6 to 9 us each and 0.5 us
 * a KiB.  Faster disks have faster requests, and out of the page cache it is alike (a pread and the
 * copy of 16 KiB take 2 us each).  Two blocks are the least that leaving a gap out can save. */
#define HOIST__PLAN_GAP ((uint64_t)16384)

enum hoist__plan_kind {
	HOIST__PLAN_HOST,  /* images where that is possible */
	HOIST__PLAN_DEVICE /* staged */
};

/* One selected tensor as it will be in the destination. */
struct hoist__plan_tensor {
	size_t index; /* the checkpoint's; ascending */
	hoist_dtype dtype;
	const int64_t *shape; /* the slice's; the checkpoint's own if it is whole */
	uint64_t begin;	      /* of its first element, in the file; 0 if it is empty */
	uint64_t bytes;	      /* in the destination, of `dtype` */
	uint64_t target;      /* where its first byte is in the destination; 0 if it is empty */
	bool whole;	      /* not sliced: strides, if the file has some, are kept */
};

struct hoist__plan_extent {
	size_t file;
	uint64_t begin; /* in the file, of its first selected byte */
	uint64_t end;	/* behind its last */
	uint64_t align; /* of reads: at least HOIST__PLAN_ALIGN */
	uint64_t image; /* image: where round_down(begin, align) lands in the destination */
	bool staged;
	bool half;	  /* see Conversion above */
	size_t first_run; /* runs[first_run .. first_run + n_runs) are in it */
	size_t n_runs;
	uint64_t block_bytes; /* 0: it is read through.  Else gaps of its only run are left out: so
			       * many selected bytes lie between two of them */
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
	uint64_t destination_bytes; /* to allocate, */
	uint64_t align;		    /* at multiples of this: the largest of all extents */
	struct hoist__plan_arena *arena; /* shapes and rows of slices */
};

/* Which tensors, sliced and converted how; the pointers are the caller's, used only here. */
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
 *   -EOVERFLOW.  @plan, zeroed before, is left so on failure. */
int hoist__plan_make(const hoist_checkpoint *checkpoint, const struct hoist__plan_options *options,
		     struct hoist__plan *plan);

void hoist__plan_fini(struct hoist__plan *plan); /* takes a zeroed one */

/* --- chunks, in order --- */

/* Part p < n_parts is read from offset + p * part_stride in the file to p * bytes in the chunk's
 * memory.  More than one have only chunks of extents with block_bytes, and none if max_parts is 1;
 * all together they are within max_bytes. */
struct hoist__chunk {
	size_t extent;
	uint64_t offset; /* in the file; a multiple of the extent's align */
	size_t bytes;	 /* to read; a multiple of align, may pass the end of the file */
	size_t need;	 /* up to the last byte that is wanted; <= bytes */
	size_t skip;	 /* bytes at the front that belong to nobody, or to the chunk before */
	size_t useful; /* selected bytes, of all parts: what progress counts; in the file's dtype */
	uint64_t target; /* image: where `offset` lands in the destination */
	unsigned n_parts;
	uint64_t part_stride;
	/* Private: its pieces' first run, and what is the chunk's of each, in the file. */
	size_t first_run;
	uint64_t from;
	uint64_t to;
};

struct hoist__cursor {
	size_t extent;
	uint64_t from; /* bytes before it were in earlier chunks; 0: none were */
	size_t run;
};

/* The next chunk of at most @max_bytes (a multiple of every extent's align, at least 4 of it).
 * Images' chunks end at multiples of @max_bytes in the destination, so that they share no
 * large page.  Each has useful bytes.  False at the end; the cursor starts zeroed. */
bool hoist__plan_next(const struct hoist__plan *plan, size_t max_bytes,
		      struct hoist__cursor *cursor, struct hoist__chunk *ret);

/* The first selected byte at or behind @offset of the file that the chunk's extent has; UINT64_MAX:
 * none.  What lies before it was only read along. */
uint64_t hoist__plan_wanted(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
			    uint64_t offset);

/* --- pieces of a staged chunk, in the order of their runs --- */

struct hoist__plan_piece {
	size_t at;		/* in the chunk's memory */
	uint64_t target;	/* in the destination */
	size_t rows;		/* 1 and more: */
	size_t row_bytes;	/* of so many bytes in the chunk, */
	size_t at_stride;	/* so far apart there, */
	uint64_t target_stride; /* and there: at the end of the row before */
	hoist_dtype from;	/* INVALID: copied as they are */
	hoist_dtype to;
};

struct hoist__piece_cursor {
	size_t run;
	uint64_t done; /* of the run's selected bytes */
	bool begun;
};

/* False at the end; the cursor starts zeroed.  A run whose rows lie in the chunk in part gives up
 * to three pieces: a cut row, whole rows, a cut row; one sliced along several axes gives that for
 * each of the outer. */
bool hoist__plan_piece(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		       struct hoist__piece_cursor *cursor, struct hoist__plan_piece *ret);

/* The tensor that holds byte @offset of file @file, for messages; NULL if none does. */
const struct hoist__tensor *hoist__plan_tensor_at(const hoist_checkpoint *checkpoint,
						  const struct hoist__plan *plan, size_t file,
						  uint64_t offset);

#endif
