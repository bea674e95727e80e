/* SPDX-License-Identifier: MIT */
/* Numbers as text: few digits, and the same element when read back. */
#include "config.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "hoist/number.h"
#include "tests/support/locale.h"
#include "tests/support/random.h"

static void expect_text(hoist_number number, hoist_dtype dtype, const char *text)
{
	char found[HOIST__NUMBER_TEXT];
	size_t n = hoist__number_text(number, dtype, found);
	cr_expect_str_eq(found, text, "%s: %s, not %s", hoist_dtype_name(dtype), found, text);
	cr_expect_eq(n, strlen(found));
}

static const struct {
	double value;
	hoist_dtype dtype;
	const char *text;
} floats[] = {
	{0, HOIST_F64, "0.0"},
	{-0.0, HOIST_F32, "-0.0"},
	{1, HOIST_BF16, "1.0"},
	{-2.5, HOIST_F16, "-2.5"},
	{0.1, HOIST_F64, "0.1"},
	{(double)0.1f, HOIST_F32, "0.1"},
	{(double)0.1f, HOIST_F64, "0.10000000149011612"},
	{0x1.9ap-4, HOIST_BF16, "0.1"},
	{3.14, HOIST_F64, "3.14"},
	{1234567.875, HOIST_F64, "1234567.875"},
	{100, HOIST_F64, "100.0"},
	/* Before the point all digits are there, though fewer would do. */
	{448, HOIST_F8_E4M3FN, "448.0"},
	{57344, HOIST_F8_E5M2, "57344.0"},
	{65504, HOIST_F16, "65504.0"},
	{0.4375, HOIST_F8_E4M3FN, "0.44"},
	{0.5, HOIST_F4_E2M1FN, "0.5"},
	{9007199254740993.0, HOIST_F64, "9007199254740992.0"},
	{1e15, HOIST_F64, "1000000000000000.0"},
	{1e16, HOIST_F64, "1e+16"},
	{0.0001, HOIST_F64, "0.0001"},
	{0.00012345, HOIST_F64, "0.00012345"},
	{0.00001, HOIST_F64, "1e-05"},
	{-1.5e-7, HOIST_F64, "-1.5e-07"},
	{0x1.fffffffffffffp1023, HOIST_F64, "1.7976931348623157e+308"},
	{0x1p-1074, HOIST_F64, "5e-324"},
	{0x1p-149, HOIST_F32, "1e-45"},
	{0x1p-127, HOIST_F8_E8M0FNU, "6e-39"},
	{(double)INFINITY, HOIST_F32, "inf"},
	{-(double)INFINITY, HOIST_F8_E5M2, "-inf"},
	{(double)NAN, HOIST_F16, "nan"},
	{-(double)NAN, HOIST_F16, "nan"},
};

static void expect_floats(void)
{
	for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
		expect_text(hoist_number_f64(floats[i].value), floats[i].dtype, floats[i].text);
}

Test(base_number_text, every_kind_is_written_as_python_writes_it)
{
	expect_floats();
	expect_text(hoist_number_bool(1), HOIST_BOOL, "True");
	expect_text(hoist_number_bool(0), HOIST_BOOL, "False");
	expect_text(hoist_number_i64(INT64_MIN), HOIST_I64, "-9223372036854775808");
	expect_text(hoist_number_u64(UINT64_MAX), HOIST_U64, "18446744073709551615");
	expect_text(hoist_number_c128(1, -2.5), HOIST_C64, "1.0-2.5j");
	expect_text(hoist_number_c128(-0.0, (double)NAN), HOIST_C128, "-0.0+nanj");
	expect_text(hoist_number_c128(0.1, (double)INFINITY), HOIST_C128, "0.1+infj");
	/* The longest there are. */
	expect_text(hoist_number_c128(-0x1p-1022, -0x1p-1022), HOIST_C128,
		    "-2.2250738585072014e-308-2.2250738585072014e-308j");
}

/* The element that the text, read as a double, is stored as. */
static uint64_t code_of(double value, hoist_dtype dtype)
{
	uint64_t code = 0;
	cr_assert_eq(hoist_number_encode(hoist_number_f64(value), 0, &code, dtype, 0), 0);
	return code;
}

/* The significant digits of @text before any exponent. */
static int digits_in(const char *text)
{
	char digits[HOIST__NUMBER_TEXT];
	int n = 0;
	for (; *text != '\0' && *text != 'e'; text++)
		if (*text >= '0' && *text <= '9' && (n > 0 || *text != '0'))
			digits[n++] = *text;
	while (n > 0 && digits[n - 1] == '0')
		n--;
	return n;
}

/* No text with a digit less reads back as the same; printf is the other opinion. */
static void expect_fewest(double value, hoist_dtype dtype, const char *text)
{
	char other[48];
	int digits = digits_in(text);
	if (digits < 2 || fabs(value) >= 1)
		return;
	snprintf(other, sizeof other, "%.*e", digits - 2, value);
	cr_assert_neq(code_of(strtod(other, NULL), dtype), code_of(value, dtype), "%s: %s is %s",
		      hoist_dtype_name(dtype), text, other);
}

static void expect_back(double value, hoist_dtype dtype)
{
	char text[HOIST__NUMBER_TEXT];
	if (isnan(value))
		return;
	hoist__number_text(hoist_number_f64(value), dtype, text);
	cr_assert_eq(code_of(strtod(text, NULL), dtype), code_of(value, dtype), "%s: %s",
		     hoist_dtype_name(dtype), text);
	expect_fewest(value, dtype, text);
}

Test(base_number_text, every_text_is_its_element_again)
{
	static const hoist_dtype small[] = {HOIST_F16,	       HOIST_BF16,	HOIST_F8_E4M3FN,
					    HOIST_F8_E4M3FNUZ, HOIST_F8_E5M2,	HOIST_F8_E5M2FNUZ,
					    HOIST_F8_E8M0FNU,  HOIST_F6_E2M3FN, HOIST_F6_E3M2FN,
					    HOIST_F4_E2M1FN};
	hoist_number number;
	for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
		for (uint32_t code = 0; code < UINT32_C(1) << hoist_dtype_bits(small[i]); code++) {
			uint32_t bytes = code;
			cr_assert_eq(hoist_number_decode(&bytes, small[i], 0, &number), 0);
			expect_back(number.as.f64, small[i]);
		}
	uint64_t state = 1;
	for (int i = 0; i < 20000; i++) {
		uint64_t bits = random_next(&state);
		cr_assert_eq(hoist_number_decode(&bits, HOIST_F64, 0, &number), 0);
		expect_back(number.as.f64, HOIST_F64);
		cr_assert_eq(hoist_number_decode(&bits, HOIST_F32, 0, &number), 0);
		expect_back(number.as.f64, HOIST_F32);
	}
}

/* Where the program's locale writes 3,14. */
Test(base_number_text, a_locale_with_a_comma_changes_nothing)
{
	char text[16];
	if (!locale_set("de_DE"))
		cr_skip_test("no locale with a comma can be made here");
	snprintf(text, sizeof text, "%.1f", 0.5);
	cr_assert_str_eq(text, "0,5");
	expect_floats();
}
