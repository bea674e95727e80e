/* SPDX-License-Identifier: MIT */
/* tests/support/lib-copy.h - places with memory, random layouts over it, and a model of copies that
 * goes bit by bit: for the tests of hoist/copy.h. */
#ifndef HOIST_TESTS_LIB_COPY_H
#define HOIST_TESTS_LIB_COPY_H

#include "hoist/hoist.h"
#include "lib/buffer/buffer-private.h"
#include "tests/support/lib-support.h"

/* Pageable memory, mlock'ed memory, and of each accelerator: its memory, memory pinned for it,
 * and memory that its driver moves. */
enum { LIB_N_PLACES = 2 + 3 * (LIB_N_DEVICES - 1) };

struct lib_place {
	hoist_device *device;
	hoist_memory *memory;
	hoist_stream *stream; /* of its own */
	char name[32];
};

void lib_open_places(hoist_device *const devices[LIB_N_DEVICES],
		     struct lib_place places[LIB_N_PLACES]);
void lib_close_places(struct lib_place places[LIB_N_PLACES]);

/* A buffer of bytes with random content, of which @model gets a copy (to be freed). */
hoist_buffer *lib_random_buffer(const struct lib_place *place, size_t bytes, uint64_t *seed,
				unsigned char **model);

/* Elements over a part of such a buffer. */
struct lib_layout {
	hoist_dtype dtype;
	int rank;
	int64_t shape[8];
	int64_t strides[8];
	size_t offset; /* bytes from the buffer's beginning to the first element */
	unsigned bit;
	size_t bytes; /* the least size of the buffer */
};

/* Gives the shape in *ret random strides: any order of axes, gaps, both directions, guards on
 * both ends; with @repeats some of 0. */
void lib_random_layout(uint64_t *seed, bool repeats, struct lib_layout *ret);

hoist_buffer *lib_view(hoist_buffer *bytes, const struct lib_layout *layout);

/* The bytes that a copy of all elements must leave in @dst, as if all of @src were read first. */
void lib_model_copy(unsigned char *dst, const struct lib_layout *to, const unsigned char *src,
		    const struct lib_layout *from);

/* True if @buffer, of bytes, has these. */
bool lib_has_bytes(hoist_buffer *buffer, const unsigned char *model, size_t bytes);

/* As lib_nothing_outstanding(), except the default streams that devices have made, which stay. */
bool lib_only_default_streams(hoist_device *const devices[LIB_N_DEVICES]);

#endif
