/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-stage.h - a copy through slots, and its division into chunks. */
#ifndef HOIST_LIB_COPY_STAGE_H
#define HOIST_LIB_COPY_STAGE_H

#include "lib/copy/copy.h"

struct hoist__stage {
	const struct hoist__move *move;
	bool to_device;
	bool range;		 /* slots also have the bytes between the elements */
	struct hoist__nest nest; /* the move's nest, its loops in the order of the device's strides,
				  * those of stride 0 last */
	int cut;      /* the loop that is cut to fit into slots; rank: runs are cut; -1: none */
	int64_t step; /* iterations of that loop, or bytes of a run, in one slot */
	uint64_t n_chunks;
	size_t chunk_bytes; /* in a slot, of the largest chunk */
};

/* The content of one slot: a part of the nest, and how it lies there. */
struct hoist__stage_chunk {
	struct hoist__nest nest;
	int64_t strides[HOIST__MAX_RANK]; /* in the slot */
	int64_t first;			  /* the bytes from the start of the slot to the first
					   * element */
	size_t bytes;
};

/* Computes cut, step, n_chunks and chunk_bytes from the other fields. */
void hoist__stage_divide(struct hoist__stage *stage);

/* Gives chunk @number: its part of the nest, laid out. */
void hoist__stage_take_chunk(const struct hoist__stage *stage, uint64_t number,
			     struct hoist__stage_chunk *ret);

/* Sets where the elements of the chunk's nest lie in a slot. */
void hoist__stage_lay_out(const struct hoist__stage *stage, struct hoist__stage_chunk *chunk);

#endif
