/* SPDX-License-Identifier: MIT */
/* hoist/dtype.h - element types: their names, sizes and properties.
 *
 *     hoist_dtype dtype;
 *     size_t bytes;
 *     hoist_dtype_from_name("bf16", &dtype);       // HOIST_BF16
 *     hoist_dtype_bytes(dtype, 4096, &bytes);      // 8192
 *
 *     hoist_dtype_info info = {.size = sizeof info};
 *     hoist_dtype_get_info(dtype, &info);
 *     puts(info.numpy);                            // "bfloat16"
 *
 * One enum has three kinds of element types:
 *
 *   scalar    8 to 128 bits, a whole number of bytes
 *   sub-byte  4 or 6 bits, packed without padding as DLPack packs them: element i is bits
 *             [i*b, (i+1)*b) of the little-endian bit string
 *   block     GGUF's quantised types: a fixed number of elements in a fixed number of bytes;
 *             single elements have no address
 *
 * Element counts are always logical: a shape of [2, 64] in f4_e2m1fn is 128 elements in 64 bytes;
 * [2, 64] in q4_0 is 128 elements in 4 blocks, 72 bytes.  Elements of several bytes are
 * little-endian, as in the files.
 *
 * The enum's values are ABI: they never change, and new ones go to the end of their group.
 *
 * Threads: any.
 */
#ifndef HOIST_DTYPE_H
#define HOIST_DTYPE_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/error.h>

HOIST_BEGIN

typedef enum hoist_dtype {
	HOIST_DTYPE_INVALID = 0,
	HOIST_BOOL = 1, /* one byte, 0 or 1 */
	HOIST_I8, HOIST_I16, HOIST_I32, HOIST_I64,
	HOIST_U8, HOIST_U16, HOIST_U32, HOIST_U64,
	HOIST_F16, HOIST_BF16, HOIST_F32, HOIST_F64,
	HOIST_C64, HOIST_C128, /* complex: two f32, two f64 */
	HOIST_F8_E4M3FN = 32, HOIST_F8_E4M3FNUZ, HOIST_F8_E5M2, HOIST_F8_E5M2FNUZ,
	HOIST_F8_E8M0FNU,
	HOIST_F6_E2M3FN, HOIST_F6_E3M2FN, HOIST_F4_E2M1FN,
	/* GGUF block types: 128 + the id that GGUF gives the type. */
	HOIST_Q4_0 = 130, HOIST_Q4_1 = 131, HOIST_Q5_0 = 134, HOIST_Q5_1 = 135,
	HOIST_Q8_0 = 136, HOIST_Q8_1 = 137,
	HOIST_Q2_K = 138, HOIST_Q3_K = 139, HOIST_Q4_K = 140, HOIST_Q5_K = 141,
	HOIST_Q6_K = 142, HOIST_Q8_K = 143,
	HOIST_IQ2_XXS = 144, HOIST_IQ2_XS = 145, HOIST_IQ3_XXS = 146, HOIST_IQ1_S = 147,
	HOIST_IQ4_NL = 148, HOIST_IQ3_S = 149, HOIST_IQ2_S = 150, HOIST_IQ4_XS = 151,
	HOIST_IQ1_M = 157, HOIST_TQ1_0 = 162, HOIST_TQ2_0 = 163,
	HOIST_MXFP4 = 167, HOIST_NVFP4 = 168, HOIST_Q1_0 = 169, HOIST_Q2_0 = 170
} hoist_dtype;

/* --- names --- */

/* The name used everywhere in hoist: "bf16", "f8_e4m3fn", "q4_0".
 * Returns: a constant; NULL if @dtype is none of the enum's values. */
HOIST_API const char *hoist_dtype_name(hoist_dtype dtype);

/* The inverse of hoist_dtype_name(); case matters.
 * Returns: 0; -EINVAL (no dtype has that name; @name is NULL). */
HOIST_API int hoist_dtype_from_name(const char *name, hoist_dtype *ret);

/* --- sizes --- */

/* Bits of one element: 16 for bf16, 4 for f4_e2m1fn.
 * Returns: the bits; 0 for a block type and for a value that is no dtype. */
HOIST_API unsigned hoist_dtype_bits(hoist_dtype dtype);

/* Bytes that @n_elements densely packed elements of @dtype take.
 * Returns: 0; -EINVAL (@dtype is invalid; the elements are not a whole number of bytes (sub-byte
 *   types) or of blocks (block types)); -EOVERFLOW (the result exceeds SIZE_MAX/2). */
HOIST_API int hoist_dtype_bytes(hoist_dtype dtype, uint64_t n_elements, size_t *ret);

/* --- the types of other interfaces --- */

/* The dtype that has a name in NumPy ("float32", "bool") or, for types that NumPy lacks, in
 * ml_dtypes ("bfloat16").
 * Returns: 0; -EINVAL (hoist has no such type; @name is NULL). */
HOIST_API int hoist_dtype_from_numpy(const char *name, hoist_dtype *ret);

/* The dtype of a DLPack type: its DLDataTypeCode and the bits of one lane.
 * Returns: 0; -EINVAL (hoist has no such type). */
HOIST_API int hoist_dtype_from_dlpack(unsigned code, unsigned bits, hoist_dtype *ret);

/* --- everything about one dtype --- */

typedef enum hoist_dtype_kind {
	HOIST_KIND_BOOL,
	HOIST_KIND_SIGNED,   /* integers, two's complement */
	HOIST_KIND_UNSIGNED,
	HOIST_KIND_FLOAT,    /* 4 to 64 bits */
	HOIST_KIND_COMPLEX,
	HOIST_KIND_BLOCK
} hoist_dtype_kind;

/* The properties of a dtype.  A field that does not apply to the dtype is 0, NULL, or -1 where the
 * field's comment says so. */
typedef struct hoist_dtype_info {
	size_t size;		 /* in: sizeof(hoist_dtype_info) */
	const char *name;	 /* hoist_dtype_name() */
	hoist_dtype_kind kind;
	unsigned bits;		 /* of one element; block types: 0 */
	unsigned block_elements; /* elements of one block; all other types: 1 */
	unsigned block_bytes;	 /* bytes of one element, or of one block; sub-byte types: 0 */
	unsigned align;		 /* the element's natural alignment in bytes */
	int dlpack_code;	 /* DLDataTypeCode, with `bits` bits and one lane; or -1 */
	int max_code;		 /* MAX's DType value, which .max files have; or -1 */
	int gguf;		 /* GGUF's id; or -1 */
	const char *safetensors; /* "BF16" */
	const char *numpy;	 /* "float32"; "bfloat16" */
	int numpy_native;	 /* 1: NumPy itself has the type; 0: ml_dtypes has */
	/* Integers: the range.  bool: 0 and 1. */
	int64_t min;
	uint64_t max;
	/* Floats.  Complex types: the properties of their parts. */
	unsigned exponent_bits;
	unsigned mantissa_bits;	 /* as stored, without the leading 1 */
	double largest;		 /* finite value */
	double epsilon;		 /* the distance from 1 to the next value */
	double smallest_normal;	 /* normal value above 0 */
	double smallest;	 /* value above 0 */
	int has_sign;		 /* 0: f8_e8m0fnu, which has no zero either */
	int has_negative_zero;
	int has_infinity;
	int has_nan;
} hoist_dtype_info;

/* Fills @info up to info->size.  Strings are constants.
 * Returns: 0; -EINVAL (@dtype is no dtype; info->size is 0 or larger than this library knows). */
HOIST_API int hoist_dtype_get_info(hoist_dtype dtype, hoist_dtype_info *info);

HOIST_END

#endif
