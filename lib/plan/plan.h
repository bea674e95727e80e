/* SPDX-License-Identifier: MIT */
/* lib/plan/plan.h - from selected tensors to reads and to places in memory.
 *
 *   want     the tensors, slices and dtype that one target of the load asks for, or several
 *            targets that ask for the same
 *   tensor   one that a want selected: whole or a slice of it, perhaps in another dtype
 *   tier     the tensors that one entry of the caller's order names first; the last tier has all
 *            others.  A load reads tier by tier
 *   lot      a part of the destination that is allocated, counted and given back by itself.  It
 *            belongs to one want.  A want has one lot, or (lot_bytes) one for each tensor and for
 *            each group of small tensors that follow each other in the file.  A want whose tensors
 *            go to places of the caller's (`into`) has one lot, in place: nothing is allocated
 *   run      bytes of one file that go to one place in a lot: rows of equal bytes, at regular
 *            distances in the file and in the lot.  A whole tensor and a slice along the first
 *            axis are one row.  If several wants have the same bytes in the same form, the run has
 *            a place in a lot of each
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
 *   staged   into slots, from which pieces are moved: copied to devices, or, to the host,
 *            gathered from rows and converted.  Staged tensors are packed in their lot, each at a
 *            multiple of tensor_align.  Tensors of one row share a run as long as they follow each
 *            other in the file and in their lots, and stay aligned by themselves, so that a slot is
 *            one copy.  Bytes that several wants have are staged.
 *
 * In place: the lot is the address space itself, so the target of a tensor is an address.  A run
 * has the rows that both the file and the strides of the place allow, down to single elements.
 * Nothing between tensors belongs to the load, so no block is read along, and no small tensors are
 * laid (below).  On a device, small tensors that lie beside each other, or at equal distances, in
 * one allocation as in the slot are one copy (lib/load/pump-deliver.c).  Tensors of one tier that
 * follow each other in memory as in the file, at the same distance from ALIGN boundaries, are an
 * image from the first boundary to the last, and staged before and behind:
 *
 *     file    |...[a    |         |      a]|[b      |  b].....|
 *     runs        staged  image            | image  | staged
 *
 * An image lies in one lot.  The two lots of neighbours each have a copy of a block that both
 * touch.  A staged extent may have runs of many lots and wants: all that is wanted of a file is
 * read once.
 *
 * Gaps: a request costs as much as reading HOIST__PLAN_GAP bytes.  Staged extents read through
 * smaller gaps and leave larger ones out, between tensors as between rows of a slice.  Where gaps
 * are left out, a chunk is one row (or block of rows with small gaps), or several if the caller
 * allows several parts (max_parts).
 *
 * Conversion: pieces of a run that is converted hold whole elements only; an element that a chunk
 * would cut is in the next chunk, which begins early enough.  Elements that become wider for a
 * device are in extents of their own (`share`), whose chunks fill a part of a slot, at its end. All
 * pieces of such a chunk are packed from the slot's beginning on, widened ones and, of small
 * tensors (below), others.  A chunk has at most half of the slot.  Where runs lie between each
 * other's rows it has a third, so that no row is written where another one is still to be read.
 *
 * Small tensors for devices: where many follow each other in the file, and would be a copy each, as
 * their places in the lot are padded to tensor_align, their extent is `laid`.  A chunk of it leaves
 * room for its pieces as they will lie in their lots, converted and with padding between them, once
 * for each want of devices:
 *
 *     slot   |[ laid, want 0 ][ laid, want 1 ]        [ chunk, as in the file ]|
 *     bytes    chunk.laid      chunk.laid               chunk.bytes
 *
 * The pieces of a want follow each other there.  Those that follow each other in one lot, too, with
 * nothing but padding between them, are one copy.  A gap in a lot is padding if it is less than
 * tensor_align and a tensor begins behind it: another tensor in the gap would begin at a multiple
 * of tensor_align, and there is none.  The tensor before the gap is whole, as runs of a laid extent
 * do not overlap.  A chunk has no room (`laid` 0) if a slot is too small for one block, or two
 * where elements may be cut.
 *
 * Transposed tensors in place on a device are laid, too, if their innermost axis in the file, of
 * short rows, is not the one whose elements are neighbours in memory, and the next one is.  The
 * planes of a chunk (struct hoist__plan_stack) then are rows of one box, as long as the chunk has
 * planes.  Their chunks end behind a whole plane.
 *
 * Tensors of one file may overlap.  Tensors (or slices) of the same bytes in one want are tied, and
 * share one place; in place they do so only if they were given the same one.  Other overlapping
 * tensors of one want share an image, or, staged, have a place each.  Overlapping bytes are read
 * once, without leaving out gaps.  But bytes can be converted in their own place in one way only.
 * So where one of several such runs is converted for a device, and they are not slices of one
 * tensor without a byte in common, their extent is `tight`: it is laid, and each want of devices
 * has a room in the slot for its own form of the bytes, without padding.  Only tensors of one want
 * that overlap so are an extent each, and are read for each.
 *
 * Tiers: an extent and a lot have tensors of one tier.  Tensors that overlap are read together, so
 * they have the first tier of all of them, and so have tied ones.  Bytes of another tier that lie
 * in a gap are read along, and are read again for their own tier.
 *
 * Invariants: extents are in order of (tier, file, offset) and do not overlap, except those of one
 * want's overlapping tensors that are converted; runs are in the order of their extents, and of
 * their first bytes (parts of an extent may share a run); every byte of every selected element is
 * in exactly one piece of exactly one chunk (tensors that overlap in the file: in one for each of
 * them), and a piece has the places of all wants that have these bytes.  The pieces with a place in
 * a lot have, in all chunks, the lot's `useful` bytes.  Runs, not rows, take memory: a plan's size
 * depends on the number of tensors and their ranks alone.
 */
#ifndef HOIST_LIB_PLAN_PLAN_H
#define HOIST_LIB_PLAN_PLAN_H

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

#define HOIST__PLAN_MOST_WANTS 16u

enum hoist__plan_kind {
	HOIST__PLAN_HOST,  /* images where possible, else staged */
	HOIST__PLAN_DEVICE /* staged */
};

/* One selected tensor as it will be in the destination. */
struct hoist__plan_tensor {
	size_t index;	      /* in the checkpoint; ascending within a want */
	const int64_t *shape; /* the slice's; the checkpoint's own if it is whole */
	uint64_t begin;	      /* of its first element, in the file; 0 if it is empty */
	uint64_t bytes;	      /* in the destination, of `dtype` */
	uint64_t target;      /* where its first byte is in the lot; 0 if it is empty */
	uint32_t lot;	      /* plan->lots[] */
	uint32_t tier;
	hoist_dtype dtype;
	uint16_t want;	/* plan->wants[] */
	bool whole;	/* not sliced: the file's strides, if any, are kept */
	uint32_t entry; /* in place: of the want's `into` */
	uint32_t like;	/* tied: the tensor in whose run its bytes are; else its own number */
};

struct hoist__plan_want {
	enum hoist__plan_kind kind;
	bool in_place;
	unsigned number;     /* a device's: among such wants */
	size_t first_tensor; /* plan->tensors[first_tensor .. first_tensor + n_tensors) */
	size_t n_tensors;
};

struct hoist__plan_lot {
	unsigned want;
	bool has_image;
	bool in_place;	 /* the lot begins at address 0, and has no bytes of its own */
	uint64_t bytes;	 /* to allocate, */
	uint64_t align;	 /* at multiples of this */
	uint64_t useful; /* selected bytes, in the file, that arrive in the lot */
};

struct hoist__plan_extent {
	size_t file;
	uint64_t begin; /* in the file, of its first selected byte */
	uint64_t end;	/* behind its last.  Parts of a split extent begin and end where it was
			 * cut, perhaps in a gap */
	uint64_t align; /* of reads: at least HOIST__PLAN_ALIGN */
	size_t lot;	/* image: the lot, */
	uint64_t image; /* and where round_down(begin, align) lands in it */
	uint32_t tier;
	bool staged;
	bool laid;	     /* small or transposed tensors, or tight: see above */
	bool tight;	     /* the same bytes in several forms, for several wants */
	bool mapped;	     /* image: the caller maps the bytes (hoist__plan_split()) */
	bool goes_on;	     /* where the extent before was cut */
	unsigned char share; /* a chunk has at most the share-th part of a slot; above 1: see
			      * Conversion above */
	size_t first_run;    /* the extent has runs[first_run .. first_run + n_runs) */
	size_t n_runs;
	uint64_t block_bytes; /* 0: the extent is read through.  Else gaps of its only run are left
			       * out, and so many selected bytes lie between two gaps */
};

struct hoist__run; /* private to plan*.c */

struct hoist__plan {
	size_t n_wants;
	unsigned n_device_wants;
	struct hoist__plan_want *wants;
	size_t n_tensors;
	struct hoist__plan_tensor *tensors; /* those of the first want, then those of the next */
	size_t n_lots;
	struct hoist__plan_lot *lots; /* in the order in which their first bytes are read.  Without
				       * lot_bytes: lots[want] */
	size_t n_extents;
	struct hoist__plan_extent *extents;
	size_t n_runs;
	struct hoist__run *runs;
	size_t *places; /* tensors of the runs that several wants have */
	unsigned max_parts;
	uint64_t cut_bytes; /* chunks that are read through, and neither laid out nor tight, cross
			     * no multiple of this of their file; 0 at first: they may.  Set before
			     * the first chunk; a multiple of align */
	uint64_t tensor_align;
	unsigned most_share; /* of all extents */
	bool has_images;
	bool has_staged;
	bool has_conversion;
	uint64_t bytes; /* of the selected elements, in the file; those of tensors that overlap
			 * count for each, those of tied ones, and of wants that want the same,
			 * once */
	uint64_t align; /* of reads: the largest of all extents */
	struct hoist__plan_arena *arena; /* shapes and rows of slices */
};

/* A place of the caller's for one tensor. */
struct hoist__plan_into {
	const char *tensor; /* a name, or a glob that matches one */
	uint64_t address;   /* of the first element */
	hoist_dtype dtype;
	int rank;
	const int64_t *shape;
	const int64_t *strides; /* in elements; NULL: C order */
};

/* Selects, slices and converts tensors; the pointers are the caller's, used only by make. */
struct hoist__plan_asked {
	enum hoist__plan_kind kind;
	const char *const *patterns; /* NULL: all */
	size_t n_patterns;
	const hoist_load_slice *slices;
	size_t n_slices;
	hoist_dtype dtype; /* INVALID: as in the file */
	const struct hoist__plan_into
		*into; /* in place of patterns and dtype; NULL: not in place */
	size_t n_into;
};

struct hoist__plan_options {
	const struct hoist__plan_asked *wants;
	size_t n_wants;		  /* 1 to HOIST__PLAN_MOST_WANTS */
	const char *const *order; /* names or globs: tensors that match the first entry are the */
	size_t n_order;		  /* first tier, and so on; fewer than UINT32_MAX */
	uint64_t tensor_align;	  /* a power of two */
	uint64_t lot_bytes;	  /* 0: one lot for each want; else one for each tensor, and tensors
				   * that together have at most so many bytes share one */
	bool lots_apart;    /* chunks bring one lot of each want, except where tensors overlap */
	unsigned max_parts; /* of a chunk; 0: 1 */
};

/* Selects and lays out.
 * Returns: 0; -ENOENT naming a pattern without a match, also of a slice or the order; -EINVAL (a
 *   slice that its tensor does not have, with shape and slice; two slices of one axis; one that
 *   cuts bytes or blocks; one of a tensor with strides; a dtype that nothing converts to; a place
 *   of another shape or dtype, with both; one tensor in two places; a glob for several tensors);
 *   -ENOTSUP (in place, a tensor whose elements overlap in the file); -ENOMEM; -EOVERFLOW.  @plan
 *   is zeroed on failure. */
int hoist__plan_make(const hoist_checkpoint *checkpoint, const struct hoist__plan_options *options,
		     struct hoist__plan *plan);

/* Bytes [begin, end) of a file, in an image extent.  Both are multiples of the extent's align, or
 * its own begin and end. */
struct hoist__plan_range {
	size_t extent;
	uint64_t begin;
	uint64_t end;
};

/* Makes extents of their own, which are marked as mapped, of these ranges, and others of the rest.
 * The ranges are in order and disjoint, and each part has a selected byte.  Cursors begin anew.
 * Returns: 0; -ENOMEM, and the plan is as it was. */
int hoist__plan_split(struct hoist__plan *plan, const struct hoist__plan_range *ranges, size_t n);

/* Cuts extents that overlap in a file at the file's multiples of @step, and reads their parts in
 * the order of the file: no chunk of the plan then begins more than @step and a block before the
 * end of an earlier one of the file and tier.
 * @step: a multiple of each align.  Cursors begin anew.
 * Returns: 0; -ENOMEM, and the plan is as it was. */
int hoist__plan_interleave(struct hoist__plan *plan, uint64_t step);

/* Has the plan begin with the bytes of @file from @offset on, or, where there are none, with those
 * of the next file.  All bytes before come last.  An extent with bytes on both sides is cut, if
 * @may_cut: digests need a tensor's bytes in order.
 * @offset: a multiple of each align.  Pre: one tier; extents that overlap were cut at @offset
 * (hoist__plan_interleave()); the plan begins with its first extent.  Cursors begin anew.
 * Returns: 0; 1: one side has no bytes, an extent may not be cut, or tensors that are laid, or an
 * element that is converted, lie on both sides: the plan is as it was; -ENOMEM, likewise. */
int hoist__plan_begin_at(struct hoist__plan *plan, size_t file, uint64_t offset, bool may_cut);

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
	uint64_t target; /* image: where `offset` lands in the extent's lot */
	unsigned n_parts;
	uint64_t part_stride;
	size_t laid; /* room for each want of devices; 0: the pieces are not laid out */
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

/* The next chunk of at most @max_bytes: a multiple of every extent's align, and at least
 * hoist__plan_least_bytes().  Images' chunks end at multiples of @max_bytes in their lot, so that
 * they share no large page.  Each has useful bytes.  False at the end; the cursor starts zeroed. */
bool hoist__plan_next(const struct hoist__plan *plan, size_t max_bytes,
		      struct hoist__cursor *cursor, struct hoist__chunk *ret);

/* The same for bytes of a staged extent that are read row by row, straight to their places: gaps
 * are not read in any case, so the chunk has one part, and is cut as if the extent were read
 * through.  False, too, and at once, where many more than @most_runs runs begin in the chunk: each
 * has a piece.  The two functions may be called in turn with one cursor. */
bool hoist__plan_next_rows(const struct hoist__plan *plan, size_t max_bytes, size_t most_runs,
			   struct hoist__cursor *cursor, struct hoist__chunk *ret);

/* With conversion, a chunk may begin and end with cut elements, and has only its share. */
static inline uint64_t hoist__plan_least_bytes(const struct hoist__plan *plan)
{
	unsigned share = plan->most_share > 2 ? plan->most_share : 2;
	return (plan->has_conversion ? 2 * share : 1) * plan->align;
}

/* The first selected byte of the chunk's extent at or behind @offset of the file; UINT64_MAX: none.
 * Bytes between @offset and that byte were only read along. */
uint64_t hoist__plan_wanted(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
			    uint64_t offset);

/* --- pieces of a staged chunk, in the order of their runs --- */

struct hoist__plan_piece {
	size_t at;	       /* in the chunk's memory */
	size_t rows;	       /* 1 and more: */
	size_t row_bytes;      /* bytes of a row in the chunk, */
	size_t at_stride;      /* from row to row in the chunk's memory, */
	int64_t target_stride; /* and in the lot */
	hoist_dtype from;      /* INVALID: not converted */
	hoist_dtype to;
	/* The piece goes to `within` bytes behind the first byte of each of these tensors, which
	 * are in lots of different wants (hoist__plan_place()). */
	const size_t *places;
	size_t n_places; /* 1 and more */
	int64_t within;
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

/* Pieces of one run that are alike and follow each other at equal distances: its planes. */
struct hoist__plan_stack {
	struct hoist__plan_piece piece; /* the first */
	size_t planes;			/* 1 and more */
	size_t at_plane;		/* from plane to plane in the chunk's memory, */
	int64_t target_plane;		/* and in the lot */
};

/* The next piece, with those behind it that are planes of one stack. */
bool hoist__plan_stack(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		       struct hoist__piece_cursor *cursor, struct hoist__plan_stack *ret);

/* Moves a stack in host memory, from the place of its first byte in the chunk to that in the lot,
 * converted.  Neighbours in the chunk that lie far apart in the lot are moved in squares.  The two
 * places do not overlap, unless the stack is one row, or one plane that is converted within a
 * slot. */
void hoist__plan_move(const struct hoist__plan_stack *stack, unsigned char *to,
		      const unsigned char *from);

/* The bytes of a row of the piece in its lots. */
size_t hoist__plan_row_after(const struct hoist__plan_piece *piece);

/* The bytes, as they are in the file, that a chunk has of one run. */
struct hoist__plan_bytes {
	const size_t *places; /* as those of a piece: the run's first tensors */
	size_t n_places;
	uint64_t bytes;
};

/* The runs that the chunk, image or staged, has bytes of.  False at the end; the cursor starts
 * as 0.  A run that has a place in place is of one tensor, or of a part of one. */
bool hoist__plan_brings(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
			size_t *cursor, struct hoist__plan_bytes *ret);

/* The tensor, and so the lot, of one of the piece's places. */
static inline const struct hoist__plan_tensor *
hoist__plan_place(const struct hoist__plan *plan, const struct hoist__plan_piece *piece, size_t p)
{
	return &plan->tensors[piece->places[p]];
}

/* --- pieces of a chunk with room (`laid`), as they lie in the slot for one want --- */

struct hoist__laid {
	struct hoist__plan_stack stack; /* the strides of the target are those in the room */
	size_t at;	  /* in the slot, the room's beginning being 0; the rows are packed, */
	size_t row_bytes; /* of so many bytes, converted; those of all planes are one */
	size_t rows;	  /* of planes * row_bytes bytes; 1: all lie together in the lot; else */
	size_t stride;	  /* they lie at this distance there */
	size_t gap;	  /* zeros in front */
	uint32_t lot;
	uint64_t target; /* in the lot */
	bool joins;	 /* one copy brings the piece and the one before, and the gap */
};

struct hoist__lay_cursor {
	struct hoist__piece_cursor pieces;
	size_t packed; /* the room that has been used */
	uint32_t lot;  /* of the last piece, */
	uint64_t end;  /* and where it ends there */
	bool begun;
};

/* The next piece that has a place in the want, which is of devices.  False at the end; the cursor
 * starts zeroed. */
bool hoist__plan_lay(const struct hoist__plan *plan, const struct hoist__chunk *chunk,
		     unsigned want, struct hoist__lay_cursor *cursor, struct hoist__laid *ret);

/* --- tensors that go back one by one --- */

/* Makes portions of a want's only lot in host memory: one for each tensor.  Tensors that overlap
 * there, tied ones among them, are one portion.
 * Returns: 0; -ENOMEM. */
struct hoist__storage;
struct hoist__portions;
int hoist__plan_portions(const struct hoist__plan *plan, const struct hoist__plan_want *want,
			 struct hoist__storage *whole, struct hoist__portions **ret);

/* A tensor that holds byte @offset of file @file, for messages; NULL if none does. */
const struct hoist__tensor *hoist__plan_tensor_at(const hoist_checkpoint *checkpoint,
						  const struct hoist__plan *plan, size_t file,
						  uint64_t offset);

/* Finds the range of @tensor's axis that slice @number of a list means, which names the tensor.
 * Returns: 0; -EINVAL: there is no such rank, axis or range, or the tensor has strides. */
int hoist__plan_slice(const hoist_load_slice *slice, size_t number,
		      const struct hoist__tensor *tensor, int *ret_axis, int64_t *ret_begin,
		      int64_t *ret_end);

#endif
