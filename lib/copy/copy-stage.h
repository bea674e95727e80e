/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-stage.h - how a copy through slots is divided. */
#ifndef HOIST_LIB_COPY_STAGE_H
#define HOIST_LIB_COPY_STAGE_H

#include "lib/copy/copy.h"

struct hoist__stage {
	const struct hoist__move *move;
	bool to_device;
	bool range;		 /* slots have what lies between the elements too */
	struct hoist__nest nest; /* the move's, loops in the order of the device's strides, those of
				  * stride 0 last */
	int cut;      /* the loop that is cut to fit into slots; rank: runs are; -1: none */
	int64_t step; /* turns of it, or bytes of a run, in one slot */
	uint64_t n_chunks;
	size_t chunk_bytes; /* in a slot, of the largest one */
};

/* What one slot takes: a part of the nest, and how it lies there. */
struct hoist__stage_chunk {
	struct hoist__nest nest;
	int64_t strides[HOIST__MAX_RANK]; /* in the slot */
	int64_t first;			  /* from the slot's beginning to the first element */
	size_t bytes;
};

/* Sets cut, step, n_chunks and chunk_bytes, by all the others. */
void hoist__stage_divide(struct hoist__stage *stage);

/* Chunk @number: its part of the nest, laid out. */
void hoist__stage_take_chunk(const struct hoist__stage *stage, uint64_t number,
			     struct hoist__stage_chunk *ret);

/* Where the elements of the chunk's nest lie in a slot. */
void hoist__stage_lay_out(const struct hoist__stage *stage, struct hoist__stage_chunk *chunk);

#endif
