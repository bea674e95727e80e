/* SPDX-License-Identifier: MIT */
/* lib/plan/plan-private.h - shared by the plan's files.
 *
 *   plan.c          the order of things; tensor_at
 *   plan-select.c   selects tensors, tiers, and ranges of axes
 *   plan-slice.c    a tensor's shape and run
 *   plan-order.c    the order of runs, tier by tier; tied tensors, wants of the same bytes,
 *                   overlaps
 *   plan-extents.c  runs -> extents, and places in lots
 *   plan-split.c    images -> what is mapped, and what is read
 *   plan-chunk.c    chunks and pieces
 *   plan-stack.c    pieces in host memory, alone and as planes of a stack
 *   plan-into.c     tensors that are read in place
 *   plan-lay.c      small tensors for devices
 *   plan-portions.c tensors that go back one by one
 */
#ifndef HOIST_LIB_PLAN_PLAN_PRIVATE_H
#define HOIST_LIB_PLAN_PLAN_PRIVATE_H

#include "lib/plan/plan.h"

/* Rows repeat `count` times, `stride` apart in the file and `target_stride` in the lot. */
struct hoist__level {
	uint64_t count; /* 2 and more */
	uint64_t stride;
	int64_t target_stride;
};

/* A run's bytes are counted row by row, in the order of the file: row r is the bytes
 * [r * row_bytes, (r + 1) * row_bytes).  The levels, outermost first, give the row's place in the
 * file and in the lot.  In the file, rows are in order and do not overlap, and the gap between two
 * is largest where an outer level steps.  Until places are found, there is one run for each tensor
 * that is not empty. */
struct hoist__run {
	uint64_t begin; /* in the file, of its first byte */
	uint64_t end;	/* behind its last */
	uint64_t row_bytes;
	uint64_t rows;
	const struct hoist__level *levels;
	unsigned n_levels;
	unsigned char element; /* bytes of an element in the file, */
	unsigned char becomes; /* and in the destination; 1 and 1 if it is not converted */
	unsigned char share;   /* of the extent that it is read in */
	bool staged;
	bool crowded;	  /* another run of the extent begins before it ends; or gaps of the run are
			   * bytes of the tensor, too, and wanted for digests */
	bool singly;	  /* each row is a piece: devices do not copy rows backwards */
	bool laid;	  /* of an extent of small tensors */
	bool tight;	  /* of an extent of several wants' forms of the same bytes */
	uint64_t shift;	  /* bytes of the tensor before this run, which is a part of it */
	bool alone;	  /* begins an extent; the one before may hold some of its bytes, too */
	hoist_dtype from; /* INVALID: not converted */
	hoist_dtype to;
	unsigned n_places;  /* of the run's first tensor in each of so many wants */
	size_t first_place; /* several: plan->places[first_place .. first_place + n_places) */
	size_t tensor;	    /* plan->tensors[]: the run's first.  A run that was set aside has the
			     * place of plan->tensors[first_place] */
};

/* A block of memory for small objects, which live as long as the plan. */
struct hoist__plan_arena {
	struct hoist__plan_arena *next;
	size_t used; /* behind this header */
	size_t bytes;
};

/* @bytes, aligned for 64-bit integers; NULL (with text) if there is no memory. */
void *hoist__plan_alloc(struct hoist__plan *plan, size_t bytes);

/* [begin, end) of one axis; begin -1: it is not sliced. */
struct hoist__range {
	int64_t begin;
	int64_t end;
};

/* Adds the tensors of plan->wants[@w] to plan->tensors; of each entry only `index`, `want`,
 * `entry`, `like` and, if @tiers is not NULL, `tier`. */
int hoist__plan_select(const hoist_checkpoint *checkpoint, const struct hoist__plan_asked *asked,
		       size_t w, const uint32_t *tiers, struct hoist__plan *plan);

/* Gives each tensor of the checkpoint its tier: *ret has checkpoint->n_tensors entries, or is NULL
 * without an order.  The caller frees *ret. */
int hoist__plan_tiers(const hoist_checkpoint *checkpoint, const struct hoist__plan_options *options,
		      uint32_t **ret);

/* @ret[i] becomes the ranges of the want's i-th tensor, one for each axis; it stays NULL if no
 * slice names it. */
int hoist__plan_ranges(const hoist_checkpoint *checkpoint, const struct hoist__plan_asked *asked,
		       size_t w, struct hoist__plan *plan, struct hoist__range **ret);

/* Fills the rest of plan->tensors[@i] except its target, and makes the run.  @ranges NULL: the
 * whole tensor.  @into NULL: not in place; else the target, too, is filled.
 * Returns: 1: it has a run; 0: it is empty; -EINVAL, -ENOTSUP, -EOVERFLOW, -ENOMEM. */
int hoist__plan_cut(const hoist_checkpoint *checkpoint, struct hoist__plan *plan, size_t i,
		    const struct hoist__range *ranges, const struct hoist__plan_into *into,
		    struct hoist__run *run);

/* Notes the number of each place plus 1 in the entry of its tensor in @places, which has an entry,
 * 0 at first, for each tensor of the checkpoint.
 * Returns: 0; -ENOENT, -EINVAL. */
int hoist__plan_select_into(const hoist_checkpoint *checkpoint,
			    const struct hoist__plan_asked *asked, uint32_t *places);

/* Tells whether the dtype and the shape of a place suit its tensor, of which plan->tensors[@i] has
 * the shape.
 * Returns: 0; -EINVAL. */
int hoist__plan_fits(const struct hoist__tensor *tensor, const struct hoist__plan_tensor *cut,
		     const struct hoist__plan_into *into);

/* True if the run's tensor, or one that shares its bytes, is read in place. */
bool hoist__run_is_in_place(const struct hoist__plan *plan, const struct hoist__run *run);

/* True if a place in host memory has the same distance from alignment boundaries as the file. */
bool hoist__run_is_congruent(const hoist_checkpoint *checkpoint, const struct hoist__plan *plan,
			     const struct hoist__run *run);

/* Divides images that are in place at alignment boundaries: see lib/plan/plan.h.  *n_kept of the
 * plan's runs are not set aside.
 * Returns: 0; -ENOMEM. */
int hoist__plan_divide(const hoist_checkpoint *checkpoint, struct hoist__plan *plan,
		       size_t *n_kept);

/* The alignment of reads of a file. */
uint64_t hoist__plan_align_of(const hoist_checkpoint *checkpoint, size_t file);

/* Sorts the runs, one for each tensor, and decides for each whether it is staged, crowded, laid,
 * alone, and its share.  Tensors that are read together get one tier; its runs stand together, and
 * a run's tier is that of its tensor.  Without @tiers all are of one.  Runs that share the run of
 * another tensor are set aside at the table's end.
 * Returns: the number of runs that stay. */
size_t hoist__plan_order(const hoist_checkpoint *checkpoint, bool tiers, struct hoist__plan *plan);

/* True if the run, which goes to a device, is small enough to be laid out in a slot, and its rows
 * are packed in lots; or if it is transposed.  False for another run in place: the bytes between
 * such tensors are the caller's. */
bool hoist__run_may_be_laid(const struct hoist__plan *plan, const struct hoist__run *run);

/* Runs that may be laid (`laid`) stay so only where many of them follow each other, or where one is
 * transposed. */
void hoist__plan_find_laid(const hoist_checkpoint *checkpoint, struct hoist__plan *plan);

/* The bytes to read at @offset into a slot of @max_bytes for the next chunk of a laid extent: at
 * most @most, a multiple of align.  *@laid: the room for each want; 0: too little, and the chunk is
 * not laid. */
uint64_t hoist__plan_fit_laid(const struct hoist__plan *plan, const struct hoist__cursor *cursor,
			      uint64_t offset, uint64_t most, size_t max_bytes, size_t *laid);

/* The end of the last whole plane that a chunk of a laid extent has up to @end, if a transposed run
 * goes on there; else @end. */
uint64_t hoist__plan_stop_laid(const struct hoist__plan *plan, const struct hoist__cursor *cursor,
			       uint64_t end);

/* Makes extents, lots and places from the runs, one for each tensor, in the order of plan->tensors.
 * Returns: 0; -EOVERFLOW, -ENOMEM. */
int hoist__plan_extents(const hoist_checkpoint *checkpoint,
			const struct hoist__plan_options *options, struct hoist__plan *plan);

/* "[8192, 28672]" */
struct hoist__plan_text {
	char text[128];
};
const char *hoist__plan_shape_text(const struct hoist__tensor *tensor,
				   struct hoist__plan_text *text);

/* The number of the run's bytes that lie before @offset of the file; if the run is converted, only
 * whole elements count. */
uint64_t hoist__run_before(const struct hoist__run *run, uint64_t offset);

/* The place of the run's byte @index in the file. */
uint64_t hoist__run_place(const struct hoist__run *run, uint64_t index);

/* The first tensor of the run in each want. */
static inline const size_t *hoist__run_places(const struct hoist__plan *plan,
					      const struct hoist__run *run)
{
	return run->n_places > 1 ? &plan->places[run->first_place] : &run->tensor;
}

static inline uint64_t hoist__run_bytes(const struct hoist__run *run)
{
	return run->rows * run->row_bytes;
}

/* The place of the run's byte @index in its lots, behind the place of its first byte. */
int64_t hoist__run_within(const struct hoist__run *run, uint64_t index);

static inline size_t hoist__run_file(const hoist_checkpoint *checkpoint,
				     const struct hoist__plan *plan, const struct hoist__run *run)
{
	return checkpoint->tensors[plan->tensors[run->tensor].index].file;
}

/* The size of @bytes of the run in the destination. */
static inline uint64_t hoist__run_becomes(const struct hoist__run *run, uint64_t bytes)
{
	return run->becomes == run->element ? bytes : bytes / run->element * run->becomes;
}

#endif
