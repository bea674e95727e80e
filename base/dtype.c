/* SPDX-License-Identifier: MIT */
/* base/dtype.c - the table of dtypes, and look-ups in it.
 * The contract is in hoist/dtype.h and base/dtype.h. */
#include "config.h"

#include "base/dtype.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"

/* dtype, kind, name, bits, DLPack, MAX, safetensors, GGUF id, NumPy, native */
#define SCALAR(d, k, n, b, dl, mx, st, gg, np, native)                                             \
	[d] = {d, HOIST_KIND_##k, n, b, 1, (b) / 8, (b) / 8, dl, mx, st, gg, np, native}
#define COMPLEX(d, n, b, st, np)                                                                   \
	[d] = {d, HOIST_KIND_COMPLEX, n, b, 1, (b) / 8, (b) / 16, 5, -1, st, -1, np, true}
#define SUB_BYTE(d, n, b, dl, mx, st, np)                                                          \
	[d] = {d, HOIST_KIND_FLOAT, n, b, 1, 0, 1, dl, mx, st, -1, np, false}
/* dtype, name, elements per block, bytes per block; the dtype's value holds the GGUF id */
#define BLOCK(d, n, elements, bytes)                                                               \
	[d] = {d,    HOIST_KIND_BLOCK, n,    0,	   elements, bytes, 1, -1, -1,                     \
	       NULL, (int)(d)-128,     NULL, false}

/* Indexed by dtype.  A row without a name is no dtype. */
static const struct hoist__dtype_info table[] = {
	SCALAR(HOIST_BOOL, BOOL, "bool", 8, 6, 1, "BOOL", -1, "bool", true),
	SCALAR(HOIST_I8, SIGNED, "i8", 8, 0, 135, "I8", 24, "int8", true),
	SCALAR(HOIST_I16, SIGNED, "i16", 16, 0, 137, "I16", 25, "int16", true),
	SCALAR(HOIST_I32, SIGNED, "i32", 32, 0, 139, "I32", 26, "int32", true),
	SCALAR(HOIST_I64, SIGNED, "i64", 64, 0, 141, "I64", 27, "int64", true),
	SCALAR(HOIST_U8, UNSIGNED, "u8", 8, 1, 134, "U8", -1, "uint8", true),
	SCALAR(HOIST_U16, UNSIGNED, "u16", 16, 1, 136, "U16", -1, "uint16", true),
	SCALAR(HOIST_U32, UNSIGNED, "u32", 32, 1, 138, "U32", -1, "uint32", true),
	SCALAR(HOIST_U64, UNSIGNED, "u64", 64, 1, 140, "U64", -1, "uint64", true),
	SCALAR(HOIST_F16, FLOAT, "f16", 16, 2, 79, "F16", 1, "float16", true),
	SCALAR(HOIST_BF16, FLOAT, "bf16", 16, 4, 80, "BF16", 30, "bfloat16", false),
	SCALAR(HOIST_F32, FLOAT, "f32", 32, 2, 81, "F32", 0, "float32", true),
	SCALAR(HOIST_F64, FLOAT, "f64", 64, 2, 82, "F64", 28, "float64", true),
	COMPLEX(HOIST_C64, "c64", 64, "C64", "complex64"),
	COMPLEX(HOIST_C128, "c128", 128, NULL, "complex128"),
	SCALAR(HOIST_F8_E4M3FN, FLOAT, "f8_e4m3fn", 8, 10, 75, "F8_E4M3", -1, "float8_e4m3fn",
	       false),
	SCALAR(HOIST_F8_E4M3FNUZ, FLOAT, "f8_e4m3fnuz", 8, 11, 76, "F8_E4M3FNUZ", -1,
	       "float8_e4m3fnuz", false),
	SCALAR(HOIST_F8_E5M2, FLOAT, "f8_e5m2", 8, 12, 77, "F8_E5M2", -1, "float8_e5m2", false),
	SCALAR(HOIST_F8_E5M2FNUZ, FLOAT, "f8_e5m2fnuz", 8, 13, 78, "F8_E5M2FNUZ", -1,
	       "float8_e5m2fnuz", false),
	SCALAR(HOIST_F8_E8M0FNU, FLOAT, "f8_e8m0fnu", 8, 14, 73, "F8_E8M0", -1, "float8_e8m0fnu",
	       false),
	SUB_BYTE(HOIST_F6_E2M3FN, "f6_e2m3fn", 6, 15, 65, "F6_E2M3", "float6_e2m3fn"),
	SUB_BYTE(HOIST_F6_E3M2FN, "f6_e3m2fn", 6, 16, 66, "F6_E3M2", "float6_e3m2fn"),
	SUB_BYTE(HOIST_F4_E2M1FN, "f4_e2m1fn", 4, 17, 64, "F4", "float4_e2m1fn"),
	BLOCK(HOIST_Q4_0, "q4_0", 32, 18),
	BLOCK(HOIST_Q4_1, "q4_1", 32, 20),
	BLOCK(HOIST_Q5_0, "q5_0", 32, 22),
	BLOCK(HOIST_Q5_1, "q5_1", 32, 24),
	BLOCK(HOIST_Q8_0, "q8_0", 32, 34),
	/* 36 bytes, as ggml stores the block: two half-precision values, then 32 bytes. */
	BLOCK(HOIST_Q8_1, "q8_1", 32, 36),
	BLOCK(HOIST_Q2_K, "q2_k", 256, 84),
	BLOCK(HOIST_Q3_K, "q3_k", 256, 110),
	BLOCK(HOIST_Q4_K, "q4_k", 256, 144),
	BLOCK(HOIST_Q5_K, "q5_k", 256, 176),
	BLOCK(HOIST_Q6_K, "q6_k", 256, 210),
	BLOCK(HOIST_Q8_K, "q8_k", 256, 292),
	BLOCK(HOIST_IQ2_XXS, "iq2_xxs", 256, 66),
	BLOCK(HOIST_IQ2_XS, "iq2_xs", 256, 74),
	BLOCK(HOIST_IQ3_XXS, "iq3_xxs", 256, 98),
	BLOCK(HOIST_IQ1_S, "iq1_s", 256, 50),
	BLOCK(HOIST_IQ4_NL, "iq4_nl", 32, 18),
	BLOCK(HOIST_IQ3_S, "iq3_s", 256, 110),
	BLOCK(HOIST_IQ2_S, "iq2_s", 256, 82),
	BLOCK(HOIST_IQ4_XS, "iq4_xs", 256, 136),
	BLOCK(HOIST_IQ1_M, "iq1_m", 256, 56),
	BLOCK(HOIST_TQ1_0, "tq1_0", 256, 54),
	BLOCK(HOIST_TQ2_0, "tq2_0", 256, 66),
	BLOCK(HOIST_MXFP4, "mxfp4", 32, 17),
	BLOCK(HOIST_NVFP4, "nvfp4", 64, 36),
	BLOCK(HOIST_Q1_0, "q1_0", 128, 18),
	BLOCK(HOIST_Q2_0, "q2_0", 64, 18),
};

const struct hoist__dtype_info *hoist__dtype_info(hoist_dtype dtype)
{
	size_t i = (size_t)dtype;
	return i < HOIST__ARRAY_SIZE(table) && table[i].name != NULL ? &table[i] : NULL;
}

const char *hoist_dtype_name(hoist_dtype dtype)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	return info != NULL ? info->name : NULL;
}

int hoist_dtype_from_name(const char *name, hoist_dtype *ret)
{
	for (size_t i = 0; name != NULL && i < HOIST__ARRAY_SIZE(table); i++)
		if (table[i].name != NULL && strcmp(table[i].name, name) == 0) {
			*ret = table[i].dtype;
			return 0;
		}
	return hoist__fail(-EINVAL,
			   "dtype \"%s\" is not known; the names are like bf16, f8_e4m3fn, q4_0",
			   name != NULL ? name : "(null)");
}

unsigned hoist_dtype_bits(hoist_dtype dtype)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	return info != NULL ? info->bits : 0;
}

/* Sub-byte types: n elements of b bits.  All others: whole blocks; a scalar is a block of one
 * element. */
int hoist_dtype_bytes(hoist_dtype dtype, uint64_t n_elements, size_t *ret)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	if (info == NULL)
		return hoist__fail(-EINVAL, "%d is no dtype", (int)dtype);
	uint64_t bytes;
	bool overflow;
	if (info->block_bytes == 0) {
		uint64_t bits;
		overflow = hoist__mul_overflow(n_elements, info->bits, &bits);
		if (!overflow && bits % 8 != 0)
			return hoist__fail(-EINVAL,
					   "%llu elements of %s are %llu bits, not whole bytes",
					   (unsigned long long)n_elements, info->name,
					   (unsigned long long)bits);
		bytes = bits / 8;
	} else {
		if (n_elements % info->block_elements != 0)
			return hoist__fail(
				-EINVAL, "%llu elements of %s are not whole blocks of %u",
				(unsigned long long)n_elements, info->name, info->block_elements);
		overflow = hoist__mul_overflow(n_elements / info->block_elements, info->block_bytes,
					       &bytes);
	}
	if (overflow || bytes > SIZE_MAX / 2)
		return hoist__fail(-EOVERFLOW, "%llu elements of %s do not fit in memory",
				   (unsigned long long)n_elements, info->name);
	*ret = (size_t)bytes;
	return 0;
}

hoist_dtype hoist__dtype_from_safetensors(const char *name, size_t length)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(table); i++) {
		const char *known = table[i].safetensors;
		if (known != NULL && strlen(known) == length && memcmp(known, name, length) == 0)
			return table[i].dtype;
	}
	return HOIST_DTYPE_INVALID;
}

hoist_dtype hoist__dtype_from_gguf(int id)
{
	for (size_t i = 0; id >= 0 && i < HOIST__ARRAY_SIZE(table); i++)
		if (table[i].name != NULL && table[i].gguf == id)
			return table[i].dtype;
	return HOIST_DTYPE_INVALID;
}

hoist_dtype hoist__dtype_from_max(int code)
{
	for (size_t i = 0; code >= 0 && i < HOIST__ARRAY_SIZE(table); i++)
		if (table[i].name != NULL && table[i].max_code == code)
			return table[i].dtype;
	return HOIST_DTYPE_INVALID;
}

int hoist_dtype_from_numpy(const char *name, hoist_dtype *ret)
{
	for (size_t i = 0; name != NULL && i < HOIST__ARRAY_SIZE(table); i++)
		if (table[i].numpy != NULL && strcmp(table[i].numpy, name) == 0) {
			*ret = table[i].dtype;
			return 0;
		}
	return hoist__fail(-EINVAL,
			   "no dtype is NumPy's \"%s\"; its names are like float32, bfloat16",
			   name != NULL ? name : "(null)");
}

int hoist_dtype_from_dlpack(unsigned code, unsigned bits, hoist_dtype *ret)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(table); i++)
		if (table[i].name != NULL && table[i].dlpack_code >= 0 &&
		    (unsigned)table[i].dlpack_code == code && table[i].bits == bits) {
			*ret = table[i].dtype;
			return 0;
		}
	return hoist__fail(-EINVAL, "no dtype is DLPack's type %u with %u bits", code, bits);
}
