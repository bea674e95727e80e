/* SPDX-License-Identifier: MIT */
/* Integers, truth values and complex numbers as elements, and the values that a dtype refuses. */
#include "config.h"

#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "hoist/number.h"

#define INF ((double)INFINITY)

/* Stores it, reads it back. */
static int store(hoist_number number, unsigned flags, hoist_dtype dtype, hoist_number *ret)
{
	unsigned char bytes[18];
	memset(bytes, 0x5a, sizeof bytes);
	int err = hoist_number_encode(number, flags, bytes + 1, dtype, 0);
	unsigned n = err == 0 ? hoist_dtype_bits(dtype) / 8 : 0;
	for (size_t i = 0; i < sizeof bytes; i++)
		if (i < 1 || i > n)
			cr_assert_eq(bytes[i], 0x5a, "byte %zu of %s was touched", i,
				     hoist_dtype_name(dtype));
	return err == 0 ? hoist_number_decode(bytes + 1, dtype, 0, ret) : err;
}

static const struct {
	hoist_dtype dtype;
	int64_t min;
	uint64_t max;
} integers[] = {
	{HOIST_I8, INT8_MIN, INT8_MAX},	   {HOIST_I16, INT16_MIN, INT16_MAX},
	{HOIST_I32, INT32_MIN, INT32_MAX}, {HOIST_I64, INT64_MIN, INT64_MAX},
	{HOIST_U8, 0, UINT8_MAX},	   {HOIST_U16, 0, UINT16_MAX},
	{HOIST_U32, 0, UINT32_MAX},	   {HOIST_U64, 0, UINT64_MAX},
};

static void expect_integer(hoist_dtype dtype, hoist_number number, unsigned flags, int64_t value)
{
	hoist_number read;
	cr_assert_eq(store(number, flags, dtype, &read), 0, "%s", hoist_error());
	cr_assert_eq(read.kind, dtype >= HOIST_U8 ? HOIST_NUMBER_U64 : HOIST_NUMBER_I64);
	cr_assert_eq(read.as.i64, value, "%s: %" PRId64, hoist_dtype_name(dtype), read.as.i64);
}

/* proves: S4.13 */
Test(base_number_kinds, integers_do_not_wrap)
{
	for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
		hoist_dtype dtype = integers[i].dtype;
		int64_t min = integers[i].min;
		uint64_t max = integers[i].max;
		hoist_number read;
		expect_integer(dtype, hoist_number_i64(min), 0, min);
		expect_integer(dtype, hoist_number_u64(max), 0, (int64_t)max);
		expect_integer(dtype, hoist_number_i64(5), 0, 5);
		expect_integer(dtype, hoist_number_bool(1), 0, 1);
		expect_integer(dtype, hoist_number_f64(-0.0), 0, 0);
		expect_integer(dtype, hoist_number_f64((double)min), 0, min);
		expect_integer(dtype, hoist_number_c128(7, 0), 0, 7);
		expect_integer(dtype, hoist_number_f64(1e300), HOIST_SATURATE, (int64_t)max);
		expect_integer(dtype, hoist_number_f64(-INF), HOIST_SATURATE, min);
		expect_integer(dtype, hoist_number_f64(99.9), HOIST_TOWARD_ZERO, 99);
		expect_integer(dtype, hoist_number_f64(-0.9), HOIST_TOWARD_ZERO, 0);
		cr_expect_eq(store(hoist_number_f64(INF), 0, dtype, &read), -EDOM);
		cr_expect_eq(store(hoist_number_f64(-0x1p64), 0, dtype, &read), -EDOM);
		if (min > INT64_MIN) {
			expect_integer(dtype, hoist_number_i64(min - 1), HOIST_SATURATE, min);
			cr_expect_eq(store(hoist_number_i64(min - 1), 0, dtype, &read), -EDOM);
		}
		if (max < UINT64_MAX) {
			hoist_number above = hoist_number_u64(max + 1);
			expect_integer(dtype, above, HOIST_SATURATE, (int64_t)max);
			cr_expect_eq(store(above, 0, dtype, &read), -EDOM);
			cr_expect_eq(store(hoist_number_f64((double)max * 2), 0, dtype, &read),
				     -EDOM);
		}
		cr_expect_eq(store(hoist_number_f64((double)NAN), 3, dtype, &read), -EINVAL);
		cr_expect_eq(store(hoist_number_f64(0.5), 0, dtype, &read), -EINVAL);
		cr_expect_eq(store(hoist_number_c128(1, 1), 3, dtype, &read), -EINVAL);
		cr_expect_eq(store(hoist_number_c128(1, (double)NAN), 3, dtype, &read), -EINVAL);
	}
}

/* proves: S4.13 */
Test(base_number_kinds, every_number_but_zero_is_true)
{
	const struct {
		hoist_number number;
		int truth;
	} cases[] = {
		{hoist_number_bool(0), 0},     {hoist_number_bool(7), 1},
		{hoist_number_i64(-256), 1},   {hoist_number_u64(UINT64_C(1) << 63), 1},
		{hoist_number_u64(0), 0},      {hoist_number_f64(-0.0), 0},
		{hoist_number_f64(1e-300), 1}, {hoist_number_f64((double)NAN), 1},
		{hoist_number_c128(0, 0), 0},  {hoist_number_c128(0, -2), 1},
	};
	hoist_number read;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cr_assert_eq(store(cases[i].number, 0, HOIST_BOOL, &read), 0);
		cr_expect_eq(read.kind, HOIST_NUMBER_BOOL);
		cr_expect_eq(read.as.i64, cases[i].truth, "case %zu", i);
	}
	/* A byte that other programs wrote. */
	cr_assert_eq(hoist_number_decode("\x80", HOIST_BOOL, 0, &read), 0);
	cr_expect_eq(read.as.i64, 1);
}

Test(base_number_kinds, complex_numbers_are_two_floats)
{
	hoist_number read;
	unsigned char bytes[8];
	cr_assert_eq(store(hoist_number_c128(1.5, -INF), 0, HOIST_C128, &read), 0);
	cr_expect_eq(read.kind, HOIST_NUMBER_C128);
	cr_expect_eq(read.as.c128.re, 1.5);
	cr_expect_eq(read.as.c128.im, -INF);
	cr_assert_eq(store(hoist_number_i64(-3), 0, HOIST_C64, &read), 0);
	cr_expect_eq(read.as.c128.re, -3);
	cr_expect(read.as.c128.im == 0 && !signbit(read.as.c128.im));
	cr_assert_eq(store(hoist_number_c128(0.1, 1e300), HOIST_SATURATE, HOIST_C64, &read), 0);
	cr_expect_eq(read.as.c128.re, (double)0.1f);
	cr_expect_eq(read.as.c128.im, 0x1.fffffep127);
	cr_assert_eq(hoist_number_encode(hoist_number_c128(1, 2), 0, bytes, HOIST_C64, 0), 0);
	cr_expect_arr_eq(bytes, "\0\0\x80\x3f\0\0\0\x40", 8, "little-endian, the real part first");
	double real;
	cr_assert_eq(hoist_number_to_f64(hoist_number_c128(2.5, -0.0), &real), 0);
	cr_expect_eq(real, 2.5);
	real = 7;
	cr_expect_eq(hoist_number_to_f64(hoist_number_c128(2.5, 1), &real), -EINVAL);
	cr_expect_eq(real, 7);
}

Test(base_number_kinds, a_number_becomes_the_c_type_that_is_asked_for)
{
	int64_t i = 7;
	double f = 7;
	cr_expect_eq(hoist_number_to_i64(hoist_number_u64(UINT64_MAX), &i), -EDOM);
	cr_expect_eq(hoist_number_to_i64(hoist_number_f64(0.5), &i), -EINVAL);
	cr_expect_eq(i, 7);
	cr_expect_eq(hoist_number_to_i64(hoist_number_f64(-0x1p63), &i), 0);
	cr_expect_eq(i, INT64_MIN);
	cr_expect_eq(hoist_number_to_i64(hoist_number_bool(1), &i), 0);
	cr_expect_eq(i, 1);
	cr_expect_eq(hoist_number_to_f64(hoist_number_i64(-5), &f), 0);
	cr_expect_eq(f, -5);
	cr_expect_eq(hoist_number_to_f64(hoist_number_f64((double)NAN), &f), 0);
	cr_expect(isnan(f));
}

/* --- refusals --- */

Test(base_number_kinds, messages_name_the_value_and_the_values_that_fit)
{
	static const struct {
		double value;
		hoist_dtype dtype;
		int err;
		const char *text;
	} cases[] = {
		{300, HOIST_I8, -EDOM,
		 "300.0 is outside i8, which is -128 to 127; HOIST_SATURATE stores the nearest of "
		 "these"},
		{-1, HOIST_U16, -EDOM, "-1.0 is outside u16, which is 0 to 65535"},
		{1e300, HOIST_I64, -EDOM,
		 "1e+300 is outside i64, which is -9223372036854775808 to 9223372036854775807"},
		{0.1, HOIST_U8, -EINVAL,
		 "0.1 is no whole number and u8 holds no others; round it, or HOIST_TOWARD_ZERO "
		 "drops the fraction"},
		{(double)NAN, HOIST_I32, -EINVAL, "nan is no value of i32"},
		{(double)NAN, HOIST_F4_E2M1FN, -EINVAL, "f4_e2m1fn has no nan"},
		{1, HOIST_Q4_0, -ENOTSUP,
		 "single elements of q4_0 have no address: 32 of them share a block of 18 bytes"},
		{1, (hoist_dtype)999, -EINVAL, "999 is no dtype"},
	};
	unsigned char bytes[16] = {0};
	hoist_number number = hoist_number_i64(77);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cr_expect_eq(hoist_number_encode(hoist_number_f64(cases[i].value), 0, bytes,
						 cases[i].dtype, 0),
			     cases[i].err, "case %zu", i);
		cr_expect_not_null(strstr(hoist_error(), cases[i].text), "%s", hoist_error());
	}
	cr_expect_eq(hoist_number_encode(hoist_number_c128(1, -2), 0, bytes, HOIST_F32, 0),
		     -EINVAL);
	cr_expect_not_null(strstr(hoist_error(), "1.0-2.0j is complex and f32 is not"), "%s",
			   hoist_error());
	cr_expect_eq(hoist_number_encode(hoist_number_u64(UINT64_MAX), 0, bytes, HOIST_I64, 0),
		     -EDOM);
	cr_expect_not_null(strstr(hoist_error(), "18446744073709551615 is outside i64"));
	for (size_t i = 0; i < sizeof bytes; i++)
		cr_expect_eq(bytes[i], 0, "nothing is written by what fails");
	cr_expect_eq(hoist_number_decode(bytes, HOIST_Q4_0, 0, &number), -ENOTSUP);
	cr_expect_eq(hoist_number_decode(bytes, HOIST_DTYPE_INVALID, 0, &number), -EINVAL);
	cr_expect_eq(hoist_number_decode(NULL, HOIST_F32, 0, &number), -EINVAL);
	cr_expect_eq(number.as.i64, 77);
	cr_expect_eq(hoist_number_encode(number, 0, NULL, HOIST_F32, 0), -EINVAL);
	cr_expect_eq(hoist_number_encode(number, 4, bytes, HOIST_F32, 0), -EINVAL);
	number.kind = (hoist_number_kind)9;
	cr_expect_eq(hoist_number_encode(number, 0, bytes, HOIST_F32, 0), -EINVAL);
}
