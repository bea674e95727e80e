/* SPDX-License-Identifier: MIT */
/* base/dtype.h - the table behind hoist/dtype.h: one row for each type.
 *
 * Sources: DLPack 1.1's type codes; the names in safetensors headers; GGUF's type ids, with
 * elements and bytes per block (from gguf-py's table); NumPy's names, and ml_dtypes' names for
 * types that NumPy lacks; the values of MAX's DType since its floats were renumbered (f16 79, bf16
 * 80, f32 81, f64 82).
 */
#ifndef HOIST_BASE_DTYPE_H
#define HOIST_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#include "hoist/dtype.h"

struct hoist__dtype_info {
	hoist_dtype dtype;
	hoist_dtype_kind kind;
	const char *name;        /* "bf16" */
	unsigned bits;           /* of one element; 0 for block types */
	unsigned block_elements; /* elements per block; 1 for scalars and sub-byte types */
	unsigned block_bytes;    /* bytes per block; 0 for sub-byte types */
	unsigned align;          /* natural alignment in bytes (1 for sub-byte and block types) */
	int dlpack_code;         /* DLDataTypeCode; -1 if DLPack has none */
	int max_code;            /* MAX's DType value, as in .max files; -1 if MAX has none */
	const char *safetensors; /* "BF16", or NULL */
	int gguf;                /* ggml type id, or -1 */
	const char *numpy;       /* "float32", "bfloat16" (ml_dtypes), or NULL */
	bool numpy_native;       /* true if NumPy has the type without ml_dtypes */
};

/* Returns the row of @dtype, in constant time; NULL if there is none. */
const struct hoist__dtype_info *hoist__dtype_info(hoist_dtype dtype);

/* Returns the dtype that safetensors calls @name[0..length); HOIST_DTYPE_INVALID if there is
 * none. */
hoist_dtype hoist__dtype_from_safetensors(const char *name, size_t length);

/* Return the dtype of a GGUF type id, or of a value of MAX's DType; HOIST_DTYPE_INVALID if there is
 * none. */
hoist_dtype hoist__dtype_from_gguf(int id);
hoist_dtype hoist__dtype_from_max(int code);

#endif
