/* SPDX-License-Identifier: MIT */
/* tests/support/lib-plan.h - checkpoints made of structs, and plans carried out in memory. */
#ifndef HOIST_TESTS_LIB_PLAN_H
#define HOIST_TESTS_LIB_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/plan/plan.h"

#define PLAN_MAX_TENSORS 160
#define PLAN_FILES 3
#define PLAN_FILE_BYTES ((size_t)3 << 20)

/* One at a time: tensors are added in the order of (file, offset), then it is finished. */
struct plan_checkpoint {
	hoist_checkpoint checkpoint;
	struct hoist__file files[PLAN_FILES];
	struct hoist__checkpoint_file shards[PLAN_FILES];
	struct hoist__tensor tensors[PLAN_MAX_TENSORS];
	struct hoist__checkpoint_tensor entries[PLAN_MAX_TENSORS];
	size_t by_name[PLAN_MAX_TENSORS];
	char names[PLAN_MAX_TENSORS][16];
	int64_t shapes[PLAN_MAX_TENSORS][4];
	int64_t strides[PLAN_MAX_TENSORS][4];
	unsigned char
		*bytes[PLAN_FILES]; /* PLAN_FILE_BYTES of each, random; made at the first use */
};

extern struct plan_checkpoint plan_made;

void plan_begin(void);
/* "t000", "t001", ...  Returns it, for what is not usual. */
struct hoist__tensor *plan_add(size_t file, uint64_t offset, hoist_dtype dtype, int rank,
			       const int64_t *shape);

/* Bytes that a dense tensor takes; of @n of its elements. */
uint64_t plan_bytes(hoist_dtype dtype, uint64_t n);

/* A plan of one want. */
struct plan_one {
	enum hoist__plan_kind kind;
	uint64_t tensor_align;
	const char *const *patterns;
	size_t n_patterns;
	const hoist_load_slice *slices;
	size_t n_slices;
	hoist_dtype dtype;
	uint64_t lot_bytes;
	unsigned max_parts;
};
int plan_make_one(const hoist_checkpoint *checkpoint, const struct plan_one *one,
		  struct hoist__plan *plan);

/* The work that a plan was seen to do. */
struct plan_seen {
	size_t chunks;
	size_t reads;
	size_t pieces;
	size_t most_pieces; /* of one chunk */
	size_t laid;	    /* chunks with room for their pieces as they will lie */
	size_t copies;	    /* of these, for all wants */
	size_t planes;	    /* stacks of several planes in these */
	uint64_t read;	    /* bytes */
};

/* Extents are in order, and do not overlap. */
void plan_check_extents(const struct hoist__plan *plan);

/* Carries the plan out in memory, checking each chunk and piece, that every byte of the destination
 * is written at most once, and that each lot gets its useful bytes.  Returns: the destination, all
 * lots one behind the other; plan_put_away() frees it. */
struct plan_destination {
	unsigned char *bytes;
	unsigned char *written; /* how often, of each */
	uint32_t *when;		/* the number of the chunk that brought it, of each */
	uint32_t chunk;		/* that is being carried out */
	bool *padding;		/* a copy of laid pieces brings zeros */
	uint64_t *lots;		/* the beginning of each lot; behind them, the end of the last */
	uint64_t *useful;	/* bytes that arrived in each */
};
struct plan_destination plan_run(const struct hoist__plan *plan, size_t max_bytes,
				 struct plan_seen *seen);
void plan_put_away(struct plan_destination *destination);

/* Chunks of a plan that was interleaved at @step go back in a file by a step and a block, at most.
 */
void plan_check_interleaved(const struct hoist__plan *plan, size_t max_bytes, uint64_t step);

/* The place of the tensor in the destination. */
uint64_t plan_place(const struct plan_destination *destination,
		    const struct hoist__plan_tensor *tensor);

/* Is each byte of the tensor written, each once? */
bool plan_is_written(const struct plan_destination *destination,
		     const struct hoist__plan_tensor *tensor);

#endif
