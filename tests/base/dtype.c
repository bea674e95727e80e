/* SPDX-License-Identifier: MIT */
/* The table of dtypes against rows written by hand from the formats, the names and codes both ways,
 * and the sizes in bytes. */
#include "config.h"

#include <criterion/criterion.h>

#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"

/* Written down a second time, from the formats' own tables: bits (or 0), elements
 * and bytes of a block (or 1 and 0), DLPack code, safetensors name, GGUF id. */
static const struct row {
	hoist_dtype dtype;
	const char *name;
	unsigned bits, block_elements, block_bytes;
	int dlpack;
	const char *safetensors;
	int gguf;
	const char *numpy;
} rows[] = {
	{HOIST_BOOL, "bool", 8, 1, 1, 6, "BOOL", -1, "bool"},
	{HOIST_I8, "i8", 8, 1, 1, 0, "I8", 24, "int8"},
	{HOIST_I16, "i16", 16, 1, 2, 0, "I16", 25, "int16"},
	{HOIST_I32, "i32", 32, 1, 4, 0, "I32", 26, "int32"},
	{HOIST_I64, "i64", 64, 1, 8, 0, "I64", 27, "int64"},
	{HOIST_U8, "u8", 8, 1, 1, 1, "U8", -1, "uint8"},
	{HOIST_U16, "u16", 16, 1, 2, 1, "U16", -1, "uint16"},
	{HOIST_U32, "u32", 32, 1, 4, 1, "U32", -1, "uint32"},
	{HOIST_U64, "u64", 64, 1, 8, 1, "U64", -1, "uint64"},
	{HOIST_F16, "f16", 16, 1, 2, 2, "F16", 1, "float16"},
	{HOIST_BF16, "bf16", 16, 1, 2, 4, "BF16", 30, "bfloat16"},
	{HOIST_F32, "f32", 32, 1, 4, 2, "F32", 0, "float32"},
	{HOIST_F64, "f64", 64, 1, 8, 2, "F64", 28, "float64"},
	{HOIST_C64, "c64", 64, 1, 8, 5, "C64", -1, "complex64"},
	{HOIST_C128, "c128", 128, 1, 16, 5, NULL, -1, "complex128"},
	{HOIST_F8_E4M3FN, "f8_e4m3fn", 8, 1, 1, 10, "F8_E4M3", -1, "float8_e4m3fn"},
	{HOIST_F8_E4M3FNUZ, "f8_e4m3fnuz", 8, 1, 1, 11, "F8_E4M3FNUZ", -1, "float8_e4m3fnuz"},
	{HOIST_F8_E5M2, "f8_e5m2", 8, 1, 1, 12, "F8_E5M2", -1, "float8_e5m2"},
	{HOIST_F8_E5M2FNUZ, "f8_e5m2fnuz", 8, 1, 1, 13, "F8_E5M2FNUZ", -1, "float8_e5m2fnuz"},
	{HOIST_F8_E8M0FNU, "f8_e8m0fnu", 8, 1, 1, 14, "F8_E8M0", -1, "float8_e8m0fnu"},
	{HOIST_F6_E2M3FN, "f6_e2m3fn", 6, 1, 0, 15, "F6_E2M3", -1, "float6_e2m3fn"},
	{HOIST_F6_E3M2FN, "f6_e3m2fn", 6, 1, 0, 16, "F6_E3M2", -1, "float6_e3m2fn"},
	{HOIST_F4_E2M1FN, "f4_e2m1fn", 4, 1, 0, 17, "F4", -1, "float4_e2m1fn"},
	{HOIST_Q4_0, "q4_0", 0, 32, 18, -1, NULL, 2, NULL},
	{HOIST_Q4_1, "q4_1", 0, 32, 20, -1, NULL, 3, NULL},
	{HOIST_Q5_0, "q5_0", 0, 32, 22, -1, NULL, 6, NULL},
	{HOIST_Q5_1, "q5_1", 0, 32, 24, -1, NULL, 7, NULL},
	{HOIST_Q8_0, "q8_0", 0, 32, 34, -1, NULL, 8, NULL},
	{HOIST_Q8_1, "q8_1", 0, 32, 36, -1, NULL, 9, NULL},
	{HOIST_Q2_K, "q2_k", 0, 256, 84, -1, NULL, 10, NULL},
	{HOIST_Q3_K, "q3_k", 0, 256, 110, -1, NULL, 11, NULL},
	{HOIST_Q4_K, "q4_k", 0, 256, 144, -1, NULL, 12, NULL},
	{HOIST_Q5_K, "q5_k", 0, 256, 176, -1, NULL, 13, NULL},
	{HOIST_Q6_K, "q6_k", 0, 256, 210, -1, NULL, 14, NULL},
	{HOIST_Q8_K, "q8_k", 0, 256, 292, -1, NULL, 15, NULL},
	{HOIST_IQ2_XXS, "iq2_xxs", 0, 256, 66, -1, NULL, 16, NULL},
	{HOIST_IQ2_XS, "iq2_xs", 0, 256, 74, -1, NULL, 17, NULL},
	{HOIST_IQ3_XXS, "iq3_xxs", 0, 256, 98, -1, NULL, 18, NULL},
	{HOIST_IQ1_S, "iq1_s", 0, 256, 50, -1, NULL, 19, NULL},
	{HOIST_IQ4_NL, "iq4_nl", 0, 32, 18, -1, NULL, 20, NULL},
	{HOIST_IQ3_S, "iq3_s", 0, 256, 110, -1, NULL, 21, NULL},
	{HOIST_IQ2_S, "iq2_s", 0, 256, 82, -1, NULL, 22, NULL},
	{HOIST_IQ4_XS, "iq4_xs", 0, 256, 136, -1, NULL, 23, NULL},
	{HOIST_IQ1_M, "iq1_m", 0, 256, 56, -1, NULL, 29, NULL},
	{HOIST_TQ1_0, "tq1_0", 0, 256, 54, -1, NULL, 34, NULL},
	{HOIST_TQ2_0, "tq2_0", 0, 256, 66, -1, NULL, 35, NULL},
	{HOIST_MXFP4, "mxfp4", 0, 32, 17, -1, NULL, 39, NULL},
	{HOIST_NVFP4, "nvfp4", 0, 64, 36, -1, NULL, 40, NULL},
	{HOIST_Q1_0, "q1_0", 0, 128, 18, -1, NULL, 41, NULL},
	{HOIST_Q2_0, "q2_0", 0, 64, 18, -1, NULL, 42, NULL},
};

#define N_ROWS (sizeof rows / sizeof rows[0])

static const char *or_none(const char *name)
{
	return name != NULL ? name : "(none)";
}

Test(base_dtype, every_row_agrees_with_the_formats)
{
	for (size_t i = 0; i < N_ROWS; i++) {
		const struct row *row = &rows[i];
		const struct hoist__dtype_info *info = hoist__dtype_info(row->dtype);
		cr_assert_not_null(info, "%s", row->name);
		cr_expect_eq(info->dtype, row->dtype, "%s", row->name);
		cr_expect_str_eq(info->name, row->name);
		cr_expect_eq(info->bits, row->bits, "%s", row->name);
		cr_expect_eq(info->block_elements, row->block_elements, "%s", row->name);
		cr_expect_eq(info->block_bytes, row->block_bytes, "%s", row->name);
		cr_expect_eq(info->dlpack_code, row->dlpack, "%s", row->name);
		cr_expect_str_eq(or_none(info->safetensors), or_none(row->safetensors));
		cr_expect_eq(info->gguf, row->gguf, "%s", row->name);
		cr_expect_str_eq(or_none(info->numpy), or_none(row->numpy));
		unsigned align = row->bits == 128 ? 8 : row->dtype == HOIST_C64 ? 4 : row->bits / 8;
		cr_expect_eq(info->align, row->bits >= 8 ? align : 1, "%s", row->name);
		cr_expect_eq(hoist_dtype_bits(row->dtype), row->bits);
	}
}

Test(base_dtype, every_value_of_the_enum_is_in_the_table_and_no_other)
{
	size_t n = 0;
	for (int value = -5; value < 1000; value++)
		n += hoist__dtype_info((hoist_dtype)value) != NULL;
	cr_expect_eq(n, N_ROWS);
	cr_expect_null(hoist_dtype_name(HOIST_DTYPE_INVALID));
	cr_expect_null(hoist_dtype_name((hoist_dtype)999));
	cr_expect_eq(hoist_dtype_bits((hoist_dtype)999), 0);
}

Test(base_dtype, names_go_there_and_back)
{
	for (size_t i = 0; i < N_ROWS; i++) {
		const struct row *row = &rows[i];
		hoist_dtype dtype = HOIST_DTYPE_INVALID;
		cr_expect_str_eq(hoist_dtype_name(row->dtype), row->name);
		cr_expect_eq(hoist_dtype_from_name(row->name, &dtype), 0);
		cr_expect_eq(dtype, row->dtype);
		if (row->safetensors != NULL)
			cr_expect_eq(hoist__dtype_from_safetensors(row->safetensors,
								   strlen(row->safetensors)),
				     row->dtype);
		if (row->gguf >= 0)
			cr_expect_eq(hoist__dtype_from_gguf(row->gguf), row->dtype);
		if (row->numpy != NULL) {
			cr_expect_eq(hoist_dtype_from_numpy(row->numpy, &dtype), 0);
			cr_expect_eq(dtype, row->dtype);
		}
		if (row->dlpack >= 0) {
			cr_expect_eq(
				hoist_dtype_from_dlpack((unsigned)row->dlpack, row->bits, &dtype),
				0);
			cr_expect_eq(dtype, row->dtype);
		}
	}
}

/* MAX's values, as the seed's table has them. */
static const struct {
	hoist_dtype dtype;
	int code;
} max_codes[] = {
	{HOIST_BOOL, 1},       {HOIST_I8, 135},		{HOIST_I16, 137},
	{HOIST_I32, 139},      {HOIST_I64, 141},	{HOIST_U8, 134},
	{HOIST_U16, 136},      {HOIST_U32, 138},	{HOIST_U64, 140},
	{HOIST_F16, 79},       {HOIST_BF16, 80},	{HOIST_F32, 81},
	{HOIST_F64, 82},       {HOIST_F8_E4M3FN, 75},	{HOIST_F8_E4M3FNUZ, 76},
	{HOIST_F8_E5M2, 77},   {HOIST_F8_E5M2FNUZ, 78}, {HOIST_F8_E8M0FNU, 73},
	{HOIST_F6_E2M3FN, 65}, {HOIST_F6_E3M2FN, 66},	{HOIST_F4_E2M1FN, 64},
};

Test(base_dtype, max_codes_go_there_and_back)
{
	size_t n = 0;
	for (size_t i = 0; i < sizeof max_codes / sizeof max_codes[0]; i++) {
		const struct hoist__dtype_info *info = hoist__dtype_info(max_codes[i].dtype);
		cr_expect_eq(info->max_code, max_codes[i].code, "%s", info->name);
	}
	for (int code = -1; code < 300; code++) {
		hoist_dtype dtype = hoist__dtype_from_max(code);
		n += dtype != HOIST_DTYPE_INVALID;
		if (dtype != HOIST_DTYPE_INVALID)
			cr_expect_eq(hoist__dtype_info(dtype)->max_code, code);
	}
	cr_expect_eq(n, sizeof max_codes / sizeof max_codes[0]);
	cr_expect_eq(hoist__dtype_info(HOIST_C64)->max_code, -1);
}

Test(base_dtype, unknown_names_are_refused)
{
	static const char *const bad[] = {"", "F32", "f3", "f322", "float32", "q4_0 "};
	hoist_dtype dtype = HOIST_U8;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect_eq(hoist_dtype_from_name(bad[i], &dtype), -EINVAL, "%s", bad[i]);
	cr_expect_not_null(strstr(hoist_error(), "\"q4_0 \""));
	cr_expect_eq(hoist_dtype_from_name(NULL, &dtype), -EINVAL);
	cr_expect_eq(dtype, HOIST_U8);
	cr_expect_eq(hoist__dtype_from_safetensors("F32", 2), HOIST_DTYPE_INVALID);
	cr_expect_eq(hoist__dtype_from_safetensors("F8_E4M3FNUZ", 7), HOIST_F8_E4M3FN);
	cr_expect_eq(hoist__dtype_from_safetensors("", 0), HOIST_DTYPE_INVALID);
	cr_expect_eq(hoist__dtype_from_gguf(-1), HOIST_DTYPE_INVALID);
	cr_expect_eq(hoist__dtype_from_gguf(4), HOIST_DTYPE_INVALID);
	cr_expect_eq(hoist_dtype_from_numpy(NULL, &dtype), -EINVAL);
	cr_expect_eq(hoist_dtype_from_numpy("object", &dtype), -EINVAL);
	cr_expect_not_null(strstr(hoist_error(), "\"object\""));
	/* An f4 in a byte of its own is no f4_e2m1fn, and blocks are not DLPack's. */
	cr_expect_eq(hoist_dtype_from_dlpack(17, 8, &dtype), -EINVAL);
	cr_expect_eq(hoist_dtype_from_dlpack(0, 0, &dtype), -EINVAL);
	cr_expect_eq(hoist_dtype_from_dlpack(UINT_MAX, 0, &dtype), -EINVAL);
	cr_expect_not_null(strstr(hoist_error(), "with 0 bits"));
	cr_expect_eq(dtype, HOIST_U8);
}

Test(base_dtype, bytes_of_whole_elements_and_blocks)
{
	for (size_t i = 0; i < N_ROWS; i++) {
		const struct row *row = &rows[i];
		size_t bytes = 1;
		cr_expect_eq(hoist_dtype_bytes(row->dtype, 0, &bytes), 0);
		cr_expect_eq(bytes, 0);
		/* 768 elements are whole bytes and whole blocks of every type. */
		size_t expected = row->bits > 0
					  ? 768 * (size_t)row->bits / 8
					  : 768 / (size_t)row->block_elements * row->block_bytes;
		cr_expect_eq(hoist_dtype_bytes(row->dtype, 768, &bytes), 0);
		cr_expect_eq(bytes, expected, "%s: %zu", row->name, bytes);
	}
}

Test(base_dtype, parts_of_bytes_and_blocks_are_refused)
{
	size_t bytes = 77;
	cr_expect_eq(hoist_dtype_bytes(HOIST_F4_E2M1FN, 3, &bytes), -EINVAL);
	cr_expect_str_eq(hoist_error(), "3 elements of f4_e2m1fn are 12 bits, not whole bytes");
	cr_expect_eq(hoist_dtype_bytes(HOIST_F6_E2M3FN, 2, &bytes), -EINVAL);
	cr_expect_eq(hoist_dtype_bytes(HOIST_Q4_0, 33, &bytes), -EINVAL);
	cr_expect_str_eq(hoist_error(), "33 elements of q4_0 are not whole blocks of 32");
	cr_expect_eq(hoist_dtype_bytes(HOIST_DTYPE_INVALID, 0, &bytes), -EINVAL);
	cr_expect_eq(bytes, 77);
	cr_expect_eq(hoist_dtype_bytes(HOIST_F6_E2M3FN, 4, &bytes), 0);
	cr_expect_eq(bytes, 3);
}

Test(base_dtype, sizes_that_do_not_fit_are_refused)
{
	const uint64_t half = SIZE_MAX / 2;
	size_t bytes = 77;
	cr_expect_eq(hoist_dtype_bytes(HOIST_U8, half + 1, &bytes), -EOVERFLOW);
	cr_expect_eq(hoist_dtype_bytes(HOIST_F64, UINT64_MAX / 8 + 1, &bytes), -EOVERFLOW);
	cr_expect_eq(hoist_dtype_bytes(HOIST_F64, half / 8 + 1, &bytes), -EOVERFLOW);
	cr_expect_eq(hoist_dtype_bytes(HOIST_F4_E2M1FN, UINT64_MAX - 1, &bytes), -EOVERFLOW);
	cr_expect_eq(hoist_dtype_bytes(HOIST_Q8_K, UINT64_MAX / 256 * 256, &bytes), -EOVERFLOW);
	cr_expect_eq(bytes, 77);
	cr_expect_eq(hoist_dtype_bytes(HOIST_U8, half, &bytes), 0);
	cr_expect_eq(bytes, half);
	cr_expect_eq(hoist_dtype_bytes(HOIST_F64, half / 8, &bytes), 0);
	cr_expect_eq(bytes, half / 8 * 8);
}
