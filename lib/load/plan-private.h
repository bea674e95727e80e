/* SPDX-License-Identifier: MIT */
/* lib/load/plan-private.h - shared by the plan's files.
 *
 *   plan.c          the order of things; tensor_at
 *   plan-select.c   selects tensors, and ranges of their axes
 *   plan-slice.c    a tensor's shape and run
 *   plan-extents.c  runs -> extents, and places in the destination
 *   plan-chunk.c    chunks and pieces
 */
#ifndef HOIST_LIB_LOAD_PLAN_PRIVATE_H
#define HOIST_LIB_LOAD_PLAN_PRIVATE_H

#include "lib/load/plan.h"

/* Rows repeat `count` times, `stride` apart in the file. */
struct hoist__level {
	uint64_t count; /* 2 and more */
	uint64_t stride;
};

/* A run's bytes are counted row by row, as they lie in the destination: row r is the bytes
 * [r * row_bytes, (r + 1) * row_bytes).  The levels, outermost first, give the row's place in the
 * file.  Rows are in order and do not overlap, and the gap between two is largest where an outer
 * level steps.  While extents are made, there is one run for each tensor that is not empty. */
struct hoist__run {
	uint64_t begin; /* in the file, of its first byte */
	uint64_t end;	/* behind its last */
	uint64_t target;
	uint64_t row_bytes;
	uint64_t rows;
	const struct hoist__level *levels;
	unsigned n_levels;
	unsigned char element; /* bytes of an element in the file, */
	unsigned char becomes; /* and in the destination; 1 and 1 if it is not converted */
	bool staged;
	bool crowded;	  /* another run of the extent begins before it ends */
	bool alone;	  /* begins an extent; the one before may hold some of its bytes, too */
	hoist_dtype from; /* INVALID: not converted */
	hoist_dtype to;
	size_t tensor; /* plan->tensors[]: the run's first */
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

/* Fills plan->tensors; of each entry only `index`. */
int hoist__plan_select(const hoist_checkpoint *checkpoint,
		       const struct hoist__plan_options *options, struct hoist__plan *plan);

/* @ret[i] becomes the ranges of plan->tensors[i], one for each axis; it stays NULL if no slice
 * names it. */
int hoist__plan_ranges(const hoist_checkpoint *checkpoint,
		       const struct hoist__plan_options *options, struct hoist__plan *plan,
		       struct hoist__range **ret);

/* Fills the rest of plan->tensors[@i] except its target, and makes the run.  @ranges NULL: the
 * whole tensor.
 * Returns: 1: it has a run; 0: it is empty; -EINVAL, -EOVERFLOW, -ENOMEM. */
int hoist__plan_cut(const hoist_checkpoint *checkpoint, struct hoist__plan *plan, size_t i,
		    const struct hoist__range *ranges, struct hoist__run *run);

/* Makes extents and places from the runs, one for each tensor, in the order of plan->tensors.
 * Returns: 0; -EOVERFLOW, -ENOMEM. */
int hoist__plan_extents(const hoist_checkpoint *checkpoint, uint64_t tensor_align,
			struct hoist__plan *plan);

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

static inline uint64_t hoist__run_bytes(const struct hoist__run *run)
{
	return run->rows * run->row_bytes;
}

/* The size of @bytes of the run in the destination. */
static inline uint64_t hoist__run_becomes(const struct hoist__run *run, uint64_t bytes)
{
	return run->becomes == run->element ? bytes : bytes / run->element * run->becomes;
}

#endif
