/* SPDX-License-Identifier: MIT */
/* Floats of every dtype: decoded beside a second, exact model of the formats, and encoded beside
 * the meaning of rounding. */
#include "config.h"

#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hoist/number.h"
#include "tests/support/random.h"

/* The formats once more, from their papers, with the largest value written out. */
static const struct format {
	hoist_dtype dtype;
	int bits, mantissa, bias;
	bool has_sign, has_infinity;
	uint64_t nan; /* the canonical one without sign; 0: none */
	double largest;
	const char *name;
} formats[] = {
	{HOIST_F16, 16, 10, 15, true, true, 0x7e00, 65504, "f16"},
	{HOIST_BF16, 16, 7, 127, true, true, 0x7fc0, 0x1.fep127, "bf16"},
	{HOIST_F8_E4M3FN, 8, 3, 7, true, false, 0x7f, 448, "f8_e4m3fn"},
	{HOIST_F8_E4M3FNUZ, 8, 3, 8, true, false, 0x80, 240, "f8_e4m3fnuz"},
	{HOIST_F8_E5M2, 8, 2, 15, true, true, 0x7e, 57344, "f8_e5m2"},
	{HOIST_F8_E5M2FNUZ, 8, 2, 16, true, false, 0x80, 57344, "f8_e5m2fnuz"},
	{HOIST_F8_E8M0FNU, 8, 0, 127, false, false, 0xff, 0x1p127, "f8_e8m0fnu"},
	{HOIST_F6_E2M3FN, 6, 3, 1, true, false, 0, 7.5, "f6_e2m3fn"},
	{HOIST_F6_E3M2FN, 6, 2, 3, true, false, 0, 28, "f6_e3m2fn"},
	{HOIST_F4_E2M1FN, 4, 1, 1, true, false, 0, 6, "f4_e2m1fn"},
	{HOIST_F32, 32, 23, 127, true, true, 0x7fc00000, 0x1.fffffep127, "f32"},
	{HOIST_F64, 64, 52, 1023, true, true, UINT64_C(0x7ff8000000000000), 0x1.fffffffffffffp1023,
	 "f64"},
};

#define N_FORMATS (sizeof formats / sizeof formats[0])
#define N_SMALL (N_FORMATS - 2) /* those of 16 bits and fewer: all their codes are tried */

static bool is_fnuz(const struct format *f)
{
	return f->nan == 0x80;
}

static uint64_t sign_of(const struct format *f)
{
	return f->has_sign ? UINT64_C(1) << (f->bits - 1) : 0;
}

/* Value by the definition: (-1)^s * 2^(e-bias) * 1.m, or 0.m where e is 0. */
static double model(const struct format *f, uint64_t code)
{
	bool negative = code & sign_of(f);
	uint64_t magnitude = code & ~sign_of(f);
	int exponent = (int)(magnitude >> f->mantissa);
	double fraction =
		ldexp((double)(magnitude - ((uint64_t)exponent << f->mantissa)), -f->mantissa);
	double value = exponent == 0 && f->has_sign ? ldexp(fraction, 1 - f->bias)
						    : ldexp(1 + fraction, exponent - f->bias);
	if (is_fnuz(f) && code == f->nan)
		return (double)NAN;
	if (value > f->largest || isinf(value)) {
		bool infinite = f->has_infinity && fraction == 0;
		value = infinite ? (double)INFINITY : (double)NAN;
	}
	return negative ? -value : value;
}

static double decode(const struct format *f, uint64_t code)
{
	hoist_number number;
	unsigned char bytes[8];
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(code >> 8 * i);
	cr_assert_eq(hoist_number_decode(bytes, f->dtype, 0, &number), 0);
	cr_assert_eq(number.kind, HOIST_NUMBER_F64);
	return number.as.f64;
}

static uint64_t encode_number(const struct format *f, hoist_number number, unsigned flags)
{
	unsigned char bytes[8] = {0};
	uint64_t code = 0;
	cr_assert_eq(hoist_number_encode(number, flags, bytes, f->dtype, 0), 0, "%s: %s", f->name,
		     hoist_error());
	for (int i = 0; i < 8; i++)
		code |= (uint64_t)bytes[i] << 8 * i;
	return code;
}

static uint64_t encode(const struct format *f, double value, unsigned flags)
{
	return encode_number(f, hoist_number_f64(value), flags);
}

static bool same(double a, double b)
{
	return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}

static void expect_code(const struct format *f, uint64_t code)
{
	double value = model(f, code);
	double read = decode(f, code);
	cr_assert(same(read, value), "%s 0x%" PRIx64 ": %a, not %a", f->name, code, read, value);
	if (isnan(value)) {
		uint64_t sign = is_fnuz(f) ? 0 : code & sign_of(f);
		uint64_t nan = f->nan | sign;
		cr_assert_eq(signbit(read) != 0, sign != 0, "%s 0x%" PRIx64, f->name, code);
		cr_assert_eq(encode(f, read, 0), nan, "%s 0x%" PRIx64, f->name, code);
		cr_assert_eq(encode(f, read, HOIST_SATURATE | HOIST_TOWARD_ZERO), nan);
		return;
	}
	cr_assert_eq(encode(f, value, 0), code, "%s 0x%" PRIx64, f->name, code);
	cr_assert_eq(encode(f, value, HOIST_TOWARD_ZERO), code, "%s 0x%" PRIx64, f->name, code);
}

/* proves: S4.13 V043 */
Test(base_number, every_code_has_its_value_and_every_value_its_code)
{
	for (size_t k = 0; k < N_SMALL; k++)
		for (uint64_t code = 0; code < UINT64_C(1) << formats[k].bits; code++)
			expect_code(&formats[k], code);
	uint64_t state = 1;
	for (size_t k = N_SMALL; k < N_FORMATS; k++) {
		const struct format *f = &formats[k];
		uint64_t all = UINT64_MAX >> (64 - f->bits);
		for (uint64_t near = 0; near < 3; near++)
			for (uint64_t e = 0; e <= all >> f->mantissa; e++) {
				expect_code(f, ((e << f->mantissa) + near) & all);
				expect_code(f, ((e << f->mantissa) - near) & all);
			}
		for (int i = 0; i < 100000; i++)
			expect_code(f, random_next(&state) & all);
	}
}

/* --- rounding --- */

/* Values between two neighbours; @code is the lower one. */
static void expect_between(const struct format *f, uint64_t code, double sign)
{
	double a = model(f, code);
	double b = model(f, code + 1);
	double middle = a + (b - a) / 2; /* exact: one bit more than the format has */
	uint64_t negative = sign < 0 ? sign_of(f) : 0;
	/* Without a mantissa all codes are powers of two, whose leading 1 is odd. */
	uint64_t even = code % 2 == 0 && f->mantissa > 0 ? code : code + 1;
	const struct {
		double value;
		uint64_t nearest;
	} cases[] = {
		{nextafter(a, b), code},	  {nextafter(middle, a), code}, {middle, even},
		{nextafter(middle, b), code + 1}, {nextafter(b, a), code + 1},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		double value = sign * cases[i].value;
		uint64_t nearest = cases[i].nearest | negative;
		uint64_t cut = code | negative;
		if (is_fnuz(f) && (nearest & ~negative) == 0)
			nearest = 0;
		if (is_fnuz(f) && code == 0)
			cut = 0;
		cr_assert_eq(encode(f, value, 0), nearest, "%s: %a", f->name, value);
		cr_assert_eq(encode(f, value, HOIST_SATURATE), nearest, "%s: %a", f->name, value);
		cr_assert_eq(encode(f, value, HOIST_TOWARD_ZERO), cut, "%s: %a", f->name, value);
	}
}

/* proves: S0.16 V042 */
Test(base_number, values_between_two_codes_become_the_nearer_or_the_even_one)
{
	for (size_t k = 0; k < N_SMALL; k++)
		for (uint64_t code = 0; model(&formats[k], code) < formats[k].largest; code++) {
			expect_between(&formats[k], code, 1);
			if (formats[k].has_sign)
				expect_between(&formats[k], code, -1);
		}
	uint64_t state = 2;
	for (int i = 0; i < 100000; i++)
		expect_between(&formats[N_SMALL], random_next(&state) % 0x7f7fffff, i % 2 ? 1 : -1);
}

/* Any double there may be, and the sizes that the formats have. */
static double random_double(uint64_t *state, int i)
{
	uint64_t bits = random_next(state);
	double value;
	memcpy(&value, &bits, sizeof value);
	if (i % 2 != 0)
		value = ldexp((double)(int64_t)bits, -63 + (int)(random_next(state) % 40) - 24);
	return value;
}

/* proves: S0.16 V042 */
Test(base_number, no_value_is_nearer_than_the_one_that_was_taken)
{
	uint64_t state = 3;
	for (size_t k = 0; k < N_SMALL; k++) {
		const struct format *f = &formats[k];
		if (f->bits > 8 || !f->has_sign)
			continue;
		for (int i = 0; i < 2000; i++) {
			double value = random_double(&state, i);
			if (!isfinite(value))
				continue;
			double taken = decode(f, encode(f, value, HOIST_SATURATE));
			for (uint64_t code = 0; code < UINT64_C(1) << f->bits; code++) {
				double other = model(f, code);
				cr_assert(!isfinite(other) ||
						  fabs(other - value) >= fabs(taken - value),
					  "%s: %a became %a, not %a", f->name, value, taken, other);
			}
		}
	}
}

/* proves: S0.16 V042 */
Test(base_number, bf16_toward_zero_is_the_upper_half_of_the_float)
{
	/* As MAX stores it. */
	const struct format *bf16 = &formats[1];
	uint64_t state = 4;
	for (int i = 0; i < 200000; i++) {
		uint32_t bits = (uint32_t)random_next(&state);
		float value;
		memcpy(&value, &bits, sizeof value);
		if (isnan(value))
			cr_assert(
				isnan(decode(bf16, encode(bf16, (double)value, (unsigned)i % 4))));
		else
			cr_assert_eq(encode(bf16, (double)value, HOIST_TOWARD_ZERO), bits >> 16,
				     "%a", (double)value);
	}
	cr_expect_eq(encode(bf16, 1e300, 0), 0x7f80);
	cr_expect_eq(encode(bf16, -1e300, 0), 0xff80);
	cr_expect_eq(encode(bf16, 1e300, HOIST_TOWARD_ZERO), 0x7f7f);
	cr_expect_eq(encode(bf16, -1e300, HOIST_TOWARD_ZERO), 0xff7f);
	cr_expect_eq(encode(bf16, (double)INFINITY, HOIST_TOWARD_ZERO), 0x7f80);
}

Test(base_number, f32_is_rounded_as_the_compiler_rounds_a_double)
{
	const struct format *f32 = &formats[N_SMALL];
	uint64_t state = 5;
	for (int i = 0; i < 200000; i++) {
		double value = random_double(&state, i);
		float cast = (float)value;
		uint32_t bits;
		memcpy(&bits, &cast, sizeof bits);
		if (!isnan(value))
			cr_assert_eq(encode(f32, value, 0), bits, "%a", value);
	}
}

Test(base_number, integers_are_rounded_once)
{
	const struct format *f32 = &formats[N_SMALL], *f64 = &formats[N_SMALL + 1];
	/* As a double the last bit is lost, and half way between two floats is left. */
	const int64_t odd = (INT64_C(1) << 60) + (INT64_C(1) << 36) + 1;
	uint64_t state = 6;
	cr_expect_eq(decode(f32, encode_number(f32, hoist_number_i64(odd), 0)), 0x1.000002p60);
	cr_expect_eq(decode(f32, encode_number(f32, hoist_number_i64(-odd), 0)), -0x1.000002p60);
	cr_expect_eq(decode(f32, encode_number(f32, hoist_number_i64(odd), 1)), 0x1p60);
	cr_expect_eq(decode(f64, encode_number(f64, hoist_number_u64(UINT64_MAX), 0)), 0x1p64);
	cr_expect_eq(decode(f64, encode_number(f64, hoist_number_u64(UINT64_MAX), 1)),
		     0x1.fffffffffffffp63);
	for (int i = 0; i < 100000; i++) {
		int64_t value = (int64_t)random_next(&state) >> random_next(&state) % 64;
		cr_assert_eq(decode(f64, encode_number(f64, hoist_number_i64(value), 0)),
			     (double)value);
		cr_assert_eq(decode(f32, encode_number(f32, hoist_number_i64(value), 0)),
			     (double)(float)value);
		cr_assert_eq(decode(f32, encode_number(f32, hoist_number_u64((uint64_t)value), 0)),
			     (double)(float)(uint64_t)value);
	}
}

/* --- beyond the range --- */

#define INF ((double)INFINITY)
#define ZERO_AND_CLAMP (HOIST_TOWARD_ZERO | HOIST_SATURATE)

/* proves: S0.16 V042 */
Test(base_number, too_large_values_become_the_formats_infinity_nan_or_largest)
{
	static const struct {
		size_t format;
		double value;
		/* to the nearest; that, saturating; toward zero; that, saturating */
		uint64_t codes[4];
	} cases[] = {
		{0, 65519, {0x7bff, 0x7bff, 0x7bff, 0x7bff}},
		{0, 65520, {0x7c00, 0x7bff, 0x7bff, 0x7bff}},
		{0, -INF, {0xfc00, 0xfbff, 0xfc00, 0xfbff}},
		{1, 0x1.ff7p127, {0x7f80, 0x7f7f, 0x7f7f, 0x7f7f}},
		{2, 464, {0x7e, 0x7e, 0x7e, 0x7e}}, /* half way to what would be 480 */
		{2, 465, {0x7f, 0x7e, 0x7e, 0x7e}},
		{2, -1e9, {0xff, 0xfe, 0xfe, 0xfe}},
		{2, INF, {0x7f, 0x7e, 0x7f, 0x7e}},
		{2, -0.0, {0x80, 0x80, 0x80, 0x80}},
		{3, 247, {0x7f, 0x7f, 0x7f, 0x7f}},
		{3, 248, {0x80, 0x7f, 0x7f, 0x7f}}, /* a tie, to the even one above */
		{3, -INF, {0x80, 0xff, 0x80, 0xff}},
		{3, -0.0, {0, 0, 0, 0}},
		{4, 61440, {0x7c, 0x7b, 0x7b, 0x7b}},
		{4, -INF, {0xfc, 0xfb, 0xfc, 0xfb}},
		{5, 1e9, {0x80, 0x7f, 0x7f, 0x7f}},
		{5, -1e-30, {0, 0, 0, 0}},
		{6, 0x1.7p127, {0xfe, 0xfe, 0xfe, 0xfe}},
		{6, 0x1.8p127, {0xff, 0xfe, 0xfe, 0xfe}},
		{6, INF, {0xff, 0xfe, 0xff, 0xfe}},
		{6, 0, {0xff, 0, 0xff, 0}},
		{6, -2, {0xff, 0, 0xff, 0}},
		{6, -INF, {0xff, 0, 0xff, 0}},
		{6, 1e-300, {0, 0, 0, 0}},
		{7, 1e9, {0x1f, 0x1f, 0x1f, 0x1f}},
		{7, -INF, {0x3f, 0x3f, 0x3f, 0x3f}},
		{8, 31, {0x1f, 0x1f, 0x1f, 0x1f}},
		{9, 100, {0x7, 0x7, 0x7, 0x7}},
		{9, -INF, {0xf, 0xf, 0xf, 0xf}},
		{10, 1e300, {0x7f800000, 0x7f7fffff, 0x7f7fffff, 0x7f7fffff}},
		{11,
		 INF,
		 {UINT64_C(0x7ff) << 52, (UINT64_C(0x7ff) << 52) - 1, UINT64_C(0x7ff) << 52,
		  (UINT64_C(0x7ff) << 52) - 1}},
	};
	static const unsigned flags[] = {0, HOIST_SATURATE, HOIST_TOWARD_ZERO, ZERO_AND_CLAMP};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		for (int k = 0; k < 4; k++)
			cr_expect_eq(encode(&formats[cases[i].format], cases[i].value, flags[k]),
				     cases[i].codes[k], "%s: %g with flags %u became 0x%" PRIx64,
				     formats[cases[i].format].name, cases[i].value, flags[k],
				     encode(&formats[cases[i].format], cases[i].value, flags[k]));
}

/* --- where elements are --- */

/* Bit @at of the little-endian bit string. */
static unsigned bit(const unsigned char *bytes, size_t at)
{
	return (unsigned)bytes[at / 8] >> at % 8 & 1;
}

Test(base_number, elements_below_a_byte_are_packed_from_the_low_bit_on)
{
	enum { N = 24 };
	for (size_t k = 7; k < N_SMALL; k++) {
		const struct format *f = &formats[k];
		unsigned char bytes[N], before[N];
		uint64_t state = k;
		for (size_t i = 0; i < N; i++)
			bytes[i] = (unsigned char)random_next(&state);
		for (int round = 0; round < 2000; round++) {
			size_t n = (size_t)f->bits, index = random_next(&state) % (8 * N / n);
			uint64_t code = random_next(&state) % (UINT64_C(1) << n), found = 0;
			hoist_number number = hoist_number_f64(model(f, code));
			memcpy(before, bytes, N);
			cr_assert_eq(hoist_number_encode(number, 0, bytes, f->dtype, index), 0);
			for (size_t b = 0; b < 8 * N; b++)
				if (b / n == index)
					found |= (uint64_t)bit(bytes, b) << (b - index * n);
				else
					cr_assert_eq(bit(bytes, b), bit(before, b));
			cr_assert_eq(found, code, "%s: element %zu", f->name, index);
			cr_assert_eq(hoist_number_decode(bytes, f->dtype, index, &number), 0);
			cr_assert(same(number.as.f64, model(f, code)));
		}
	}
}

Test(base_number, elements_of_whole_bytes_follow_each_other)
{
	const int16_t shorts[] = {1, -2, 3};
	const double doubles[] = {0.5, -1e300};
	hoist_number number;
	cr_assert_eq(hoist_number_decode(shorts, HOIST_I16, 1, &number), 0);
	cr_expect_eq(number.as.i64, -2);
	cr_assert_eq(hoist_number_decode(doubles, HOIST_F64, 1, &number), 0);
	cr_expect_eq(number.as.f64, -1e300);
	/* misaligned */
	cr_assert_eq(hoist_number_decode((const char *)shorts + 1, HOIST_U16, 0, &number), 0);
	cr_expect_eq(number.as.u64, 0xfe00);
}
