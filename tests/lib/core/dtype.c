/* SPDX-License-Identifier: MIT */
/* hoist_dtype_get_info(): the facts of each dtype, typed once more from the tables of the formats,
 * NumPy and ml_dtypes. */
#include "config.h"

#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "hoist/dtype.h"
#include "tests/support/unit-check.h"

static hoist_dtype_info info_of(hoist_dtype dtype)
{
	hoist_dtype_info info = {.size = sizeof info};
	OK(hoist_dtype_get_info(dtype, &info));
	cr_assert_eq(info.size, sizeof info);
	cr_assert_str_eq(info.name, hoist_dtype_name(dtype));
	return info;
}

#define IEEE 1, 1, 1, 1

static const struct {
	hoist_dtype dtype;
	unsigned exponent_bits, mantissa_bits;
	double largest, epsilon, smallest_normal, smallest;
	int has_sign, has_negative_zero, has_infinity, has_nan;
} floats[] = {
	{HOIST_F16, 5, 10, 65504, 0x1p-10, 0x1p-14, 0x1p-24, IEEE},
	{HOIST_BF16, 8, 7, 0x1.fep127, 0x1p-7, 0x1p-126, 0x1p-133, IEEE},
	{HOIST_F32, 8, 23, 0x1.fffffep127, 0x1p-23, 0x1p-126, 0x1p-149, IEEE},
	{HOIST_F64, 11, 52, 0x1.fffffffffffffp1023, 0x1p-52, 0x1p-1022, 0x1p-1074, IEEE},
	{HOIST_C64, 8, 23, 0x1.fffffep127, 0x1p-23, 0x1p-126, 0x1p-149, IEEE},
	{HOIST_C128, 11, 52, 0x1.fffffffffffffp1023, 0x1p-52, 0x1p-1022, 0x1p-1074, IEEE},
	{HOIST_F8_E4M3FN, 4, 3, 448, 0x1p-3, 0x1p-6, 0x1p-9, 1, 1, 0, 1},
	{HOIST_F8_E4M3FNUZ, 4, 3, 240, 0x1p-3, 0x1p-7, 0x1p-10, 1, 0, 0, 1},
	{HOIST_F8_E5M2, 5, 2, 57344, 0x1p-2, 0x1p-14, 0x1p-16, IEEE},
	{HOIST_F8_E5M2FNUZ, 5, 2, 57344, 0x1p-2, 0x1p-15, 0x1p-17, 1, 0, 0, 1},
	{HOIST_F8_E8M0FNU, 8, 0, 0x1p127, 1, 0x1p-127, 0x1p-127, 0, 0, 0, 1},
	{HOIST_F6_E2M3FN, 2, 3, 7.5, 0x1p-3, 1, 0x1p-3, 1, 1, 0, 0},
	{HOIST_F6_E3M2FN, 3, 2, 28, 0x1p-2, 0x1p-2, 0x1p-4, 1, 1, 0, 0},
	{HOIST_F4_E2M1FN, 2, 1, 6, 0x1p-1, 1, 0x1p-1, 1, 1, 0, 0},
};

Test(lib_dtype, floats_have_the_limits_that_numpy_and_ml_dtypes_name)
{
	for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++) {
		hoist_dtype_info info = info_of(floats[i].dtype);
		int is_complex = floats[i].dtype == HOIST_C64 || floats[i].dtype == HOIST_C128;
		cr_expect_eq(info.kind, is_complex ? HOIST_KIND_COMPLEX : HOIST_KIND_FLOAT);
		cr_expect_eq(info.exponent_bits, floats[i].exponent_bits, "%s", info.name);
		cr_expect_eq(info.mantissa_bits, floats[i].mantissa_bits, "%s", info.name);
		cr_expect_eq(info.largest, floats[i].largest, "%s", info.name);
		cr_expect_eq(info.epsilon, floats[i].epsilon, "%s", info.name);
		cr_expect_eq(info.smallest_normal, floats[i].smallest_normal, "%s", info.name);
		cr_expect_eq(info.smallest, floats[i].smallest, "%s", info.name);
		cr_expect_eq(info.has_sign, floats[i].has_sign, "%s", info.name);
		cr_expect_eq(info.has_negative_zero, floats[i].has_negative_zero, "%s", info.name);
		cr_expect_eq(info.has_infinity, floats[i].has_infinity, "%s", info.name);
		cr_expect_eq(info.has_nan, floats[i].has_nan, "%s", info.name);
		cr_expect_eq(info.min, 0);
		cr_expect_eq(info.max, 0);
	}
}

static const struct {
	hoist_dtype dtype;
	hoist_dtype_kind kind;
	int64_t min;
	uint64_t max;
} integers[] = {
	{HOIST_BOOL, HOIST_KIND_BOOL, 0, 1},
	{HOIST_I8, HOIST_KIND_SIGNED, INT8_MIN, INT8_MAX},
	{HOIST_I16, HOIST_KIND_SIGNED, INT16_MIN, INT16_MAX},
	{HOIST_I32, HOIST_KIND_SIGNED, INT32_MIN, INT32_MAX},
	{HOIST_I64, HOIST_KIND_SIGNED, INT64_MIN, INT64_MAX},
	{HOIST_U8, HOIST_KIND_UNSIGNED, 0, UINT8_MAX},
	{HOIST_U16, HOIST_KIND_UNSIGNED, 0, UINT16_MAX},
	{HOIST_U32, HOIST_KIND_UNSIGNED, 0, UINT32_MAX},
	{HOIST_U64, HOIST_KIND_UNSIGNED, 0, UINT64_MAX},
};

Test(lib_dtype, integers_have_the_ranges_of_c)
{
	for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
		hoist_dtype_info info = info_of(integers[i].dtype);
		cr_expect_eq(info.kind, integers[i].kind, "%s", info.name);
		cr_expect_eq(info.min, integers[i].min, "%s", info.name);
		cr_expect_eq(info.max, integers[i].max, "%s", info.name);
		cr_expect_eq(info.mantissa_bits, 0);
		cr_expect_eq(info.has_nan, 0);
	}
}

/* proves: V056 */
Test(lib_dtype, one_row_of_each_kind)
{
	hoist_dtype_info info = info_of(HOIST_BF16);
	cr_expect_eq(info.bits, 16);
	cr_expect_eq(info.block_bytes, 2);
	cr_expect_eq(info.block_elements, 1);
	cr_expect_eq(info.align, 2);
	cr_expect_eq(info.dlpack_code, 4);
	cr_expect_eq(info.max_code, 80);
	cr_expect_eq(info.gguf, 30);
	cr_expect_str_eq(info.safetensors, "BF16");
	cr_expect_str_eq(info.numpy, "bfloat16");
	cr_expect_eq(info.numpy_native, 0);
	info = info_of(HOIST_F4_E2M1FN);
	cr_expect_eq(info.bits, 4);
	cr_expect_eq(info.block_bytes, 0);
	cr_expect_eq(info.align, 1);
	info = info_of(HOIST_Q4_0);
	cr_expect_eq(info.kind, HOIST_KIND_BLOCK);
	cr_expect_eq(info.bits, 0);
	cr_expect_eq(info.block_elements, 32);
	cr_expect_eq(info.block_bytes, 18);
	cr_expect_eq(info.dlpack_code, -1);
	cr_expect_null(info.numpy);
	/* NumPy's itemsize. */
	static const struct {
		hoist_dtype dtype;
		unsigned bytes;
	} native[] = {
		{HOIST_BOOL, 1}, {HOIST_I8, 1},	 {HOIST_I16, 2}, {HOIST_I32, 4},
		{HOIST_I64, 8},	 {HOIST_U8, 1},	 {HOIST_U16, 2}, {HOIST_U32, 4},
		{HOIST_U64, 8},	 {HOIST_F16, 2}, {HOIST_F32, 4}, {HOIST_F64, 8},
	};
	for (size_t i = 0; i < sizeof native / sizeof native[0]; i++) {
		info = info_of(native[i].dtype);
		cr_expect_eq(info.block_bytes, native[i].bytes, "%s", info.name);
		cr_expect_eq(info.numpy_native, 1, "%s", info.name);
	}
}

Test(lib_dtype, an_older_program_gets_the_fields_of_its_struct)
{
	hoist_dtype_info info;
	memset(&info, 0x5a, sizeof info);
	info.size = sizeof info.size + sizeof info.name;
	OK(hoist_dtype_get_info(HOIST_I8, &info));
	cr_expect_str_eq(info.name, "i8");
	cr_expect_eq(info.bits, 0x5a5a5a5a);
	info.size = sizeof info + 8;
	cr_expect_eq(hoist_dtype_get_info(HOIST_I8, &info), -EINVAL);
	info.size = 0;
	cr_expect_eq(hoist_dtype_get_info(HOIST_I8, &info), -EINVAL);
	cr_expect_eq(hoist_dtype_get_info(HOIST_I8, NULL), -EINVAL);
	info.size = sizeof info;
	REFUSED(hoist_dtype_get_info(HOIST_DTYPE_INVALID, &info), -EINVAL, "0 is no dtype");
	cr_expect_eq(info.bits, 0x5a5a5a5a);
}
