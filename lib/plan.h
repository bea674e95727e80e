/* SPDX-License-Identifier: MIT */
/* lib/plan.h - from selected tensors to reads and to places in memory.
 *
 *   tensor   what the caller asked for
 *   extent   a range of one file that holds selected tensors without a gap
 *   piece    a part of an extent that lands at one place in the destination
 *   chunk    what one read fetches: a part of one extent, widened to alignment
 *
 * Host destinations are images of their extents: an extent's first byte lies in
 * memory at the same distance from an ALIGN boundary as in the file, so that
 * direct reads go straight into their final place:
 *
 *     file    |......[ a ][ b ][ c ]....|      ALIGN boundaries: |
 *     memory  |xxxxxx[ a ][ b ][ c ]xxxx|      x: read along, belongs to nobody
 *
 * Device destinations are packed, each tensor at a multiple of tensor_align; as
 * long as tensors follow each other in the file and stay aligned by
 * themselves, they share a piece, so that a slot is one copy.
 *
 * Invariants: extents are in order of (file, offset) and do not overlap; pieces
 * are in the order of their extents, and within one in the order of the file;
 * every byte of every selected tensor is in exactly one piece.
 */
#ifndef HOIST_LIB_PLAN_H
#define HOIST_LIB_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/checkpoint.h"

/* Reads begin and end at multiples of this (and of the file's own alignment if
 * that is larger), in the file and in memory. */
#define HOIST__PLAN_ALIGN ((uint64_t)4096)

enum hoist__plan_kind {
	HOIST__PLAN_HOST,  /* images of extents */
	HOIST__PLAN_DEVICE /* packed */
};

struct hoist__extent {
	size_t file;
	uint64_t begin; /* in the file */
	uint64_t end;
	uint64_t image;	    /* HOST: where round_down(begin, align) lands in the destination */
	uint64_t align;	    /* of reads: at least HOIST__PLAN_ALIGN */
	size_t first_piece; /* DEVICE: pieces[first_piece .. first_piece + n_pieces) */
	size_t n_pieces;
};

struct hoist__plan_piece {
	uint64_t begin; /* in the file */
	uint64_t bytes;
	uint64_t target; /* in the destination */
};

struct hoist__plan {
	enum hoist__plan_kind kind;
	size_t n_tensors;
	size_t *tensors;   /* the checkpoint's indices, ascending */
	uint64_t *targets; /* where each tensor's first byte is in the destination */
	size_t n_extents;
	struct hoist__extent *extents;
	size_t n_pieces;
	struct hoist__plan_piece *pieces; /* DEVICE only */
	uint64_t bytes;			  /* of the selected tensors */
	uint64_t destination_bytes;	  /* to allocate, */
	uint64_t align;			  /* at multiples of this: the largest of all extents */
};

/* Which tensors: all if @patterns is NULL, else those that a name or glob selects.
 * Fills plan->tensors.  Returns: 0; -ENOENT naming a pattern without a match; -ENOMEM. */
int hoist__plan_select(const hoist_checkpoint *checkpoint, const char *const *patterns,
		       size_t n_patterns, struct hoist__plan *plan);

/* Lays the selected tensors out.  @tensor_align: DEVICE, a power of two.
 * Returns: 0; -ENOMEM; -EOVERFLOW. */
int hoist__plan_lay_out(const hoist_checkpoint *checkpoint, enum hoist__plan_kind kind,
			uint64_t tensor_align, struct hoist__plan *plan);

void hoist__plan_fini(struct hoist__plan *plan); /* takes a zeroed one */

/* --- chunks, in order --- */

struct hoist__chunk {
	size_t extent;
	uint64_t offset; /* in the file; a multiple of the extent's align */
	size_t bytes;	 /* to read; a multiple of align, may pass the end of the file */
	size_t need;	 /* up to the end of the extent or of the chunk; <= bytes */
	size_t skip;	 /* bytes at the front that belong to nobody */
	uint64_t target; /* HOST: where `offset` lands in the destination */
};

struct hoist__cursor {
	size_t extent;
	uint64_t offset; /* the next byte to read; 0: at the extent's beginning */
};

/* The next chunk of at most @max_bytes (a multiple of every extent's align).
 * Chunks to the host end at multiples of @max_bytes in the destination, so that
 * they share no large page.  False at the end; the cursor starts zeroed. */
bool hoist__plan_next(const struct hoist__plan *plan, size_t max_bytes,
		      struct hoist__cursor *cursor, struct hoist__chunk *ret);

/* The number of wanted bytes of a chunk. */
static inline size_t hoist__chunk_useful(const struct hoist__chunk *chunk)
{
	return chunk->need - chunk->skip;
}

/* The tensor that holds byte @offset of file @file, for messages; NULL if none does. */
const struct hoist__tensor *hoist__plan_tensor_at(const hoist_checkpoint *checkpoint,
						  const struct hoist__plan *plan, size_t file,
						  uint64_t offset);

#endif
