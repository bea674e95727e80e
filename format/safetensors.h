/* SPDX-License-Identifier: MIT */
/* format/safetensors.h - one tensor's description, between the two files that read a safetensors
 * header. */
#ifndef HOIST_FORMAT_SAFETENSORS_H
#define HOIST_FORMAT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/layout.h"
#include "format/json.h"
#include "hoist/dtype.h"

/* The keys of one tensor, as they come. */
struct hoist__safetensors_fields {
	hoist_dtype dtype;
	int rank;
	int64_t shape[HOIST__MAX_RANK];
	int64_t begin;
	int64_t end;
	uint64_t bytes;	 /* by shape and dtype: end - begin */
	size_t dtype_at; /* positions of the values; 0: the key has not come */
	size_t shape_at;
	size_t range_at;
	/* From the tensor before: begins as zeros, and is kept between calls. */
	const char *last;
	size_t last_bytes;
	hoist_dtype last_dtype;
};

/* Reads and checks {"dtype", "shape", "data_offsets"} at the reader's place.  @key_at is the
 * position of the tensor's name.  @data_bytes are the bytes that the file holds behind its header.
 * Returns: 0; -EBADMSG, and @ret is then undefined. */
int hoist__safetensors_fields(struct hoist__json *json, size_t key_at, uint64_t data_bytes,
			      struct hoist__safetensors_fields *ret);

#endif
