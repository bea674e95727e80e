/* SPDX-License-Identifier: MIT */
/* Conversion of arrays against base/minifloat.h: all codes of 16 bits, and of f32 the codes around
 * everything that rounding can meet, and random ones. */
#include "config.h"

#include <criterion/criterion.h>

#include <fenv.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/convert.h"
#include "base/minifloat.h"
#include "tests/support/random.h"

static const hoist_dtype dtypes[] = {HOIST_F32, HOIST_F16, HOIST_BF16};

static size_t size_of(hoist_dtype dtype)
{
	return hoist_dtype_bits(dtype) / 8;
}

static uint32_t code_at(const unsigned char *bytes, hoist_dtype dtype, size_t i)
{
	uint32_t code = 0;
	memcpy(&code, bytes + i * size_of(dtype), size_of(dtype));
	return code;
}

/* Quiet, its sign and what fits of its payload. */
static bool is_nan_of(hoist_dtype to, uint32_t got, hoist_dtype from, uint32_t code)
{
	const struct hoist__minifloat *f = hoist__minifloat_of(from);
	const struct hoist__minifloat *t = hoist__minifloat_of(to);
	uint32_t payload = code & (((uint32_t)1 << f->mantissa_bits) - 1);
	int shift = t->mantissa_bits - f->mantissa_bits;
	payload = shift < 0 ? payload >> -shift : payload << shift;
	uint32_t quiet = (uint32_t)1 << (t->mantissa_bits - 1);
	uint32_t exponent = (((uint32_t)1 << t->exponent_bits) - 1) << t->mantissa_bits;
	uint32_t sign = code >> (f->exponent_bits + f->mantissa_bits);
	return got == (sign << (t->exponent_bits + t->mantissa_bits) | exponent | payload | quiet);
}

static void check(hoist_dtype to, uint32_t got, hoist_dtype from, uint32_t code)
{
	double value = hoist__minifloat_decode(hoist__minifloat_of(from), code);
	if (isnan(value)) {
		cr_assert(is_nan_of(to, got, from, code), "%s %x -> %s: %x", hoist_dtype_name(from),
			  code, hoist_dtype_name(to), got);
		return;
	}
	uint64_t expected =
		hoist__minifloat_encode(hoist__minifloat_of(to), hoist__real_of(value), 0);
	cr_assert_eq(got, expected, "%s %x -> %s: %x", hoist_dtype_name(from), code,
		     hoist_dtype_name(to), got);
}

static void check_array(const unsigned char *codes, hoist_dtype from, size_t n)
{
	unsigned char *got = malloc(n * 4);
	cr_assert_not_null(got);
	for (size_t d = 0; d < HOIST__ARRAY_SIZE(dtypes); d++) {
		if (dtypes[d] == from)
			continue;
		hoist__convert(got, dtypes[d], codes, from, n);
		for (size_t i = 0; i < n; i++)
			check(dtypes[d], code_at(got, dtypes[d], i), from, code_at(codes, from, i));
	}
	free(got);
}

static void check_all_of_16_bits(void)
{
	static uint16_t codes[1 << 16];
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(codes); i++)
		codes[i] = (uint16_t)i;
	check_array((const unsigned char *)codes, HOIST_F16, HOIST__ARRAY_SIZE(codes));
	check_array((const unsigned char *)codes, HOIST_BF16, HOIST__ARRAY_SIZE(codes));
}

/* Codes of f32 around every value of f16 and bf16, and around the middle between two values. */
static void check_boundaries(void)
{
	enum { AROUND = 5 };
	static uint32_t codes[(1 << 16) * AROUND * 2];
	size_t n = 0;
	for (uint32_t i = 0; i < 1 << 16; i++) {
		const struct hoist__minifloat *f32 = hoist__minifloat_of(HOIST_F32);
		double value = hoist__minifloat_decode(hoist__minifloat_of(HOIST_F16), i);
		double next = hoist__minifloat_decode(hoist__minifloat_of(HOIST_F16), i ^ 1);
		bool finite = !isnan(value) && !isnan(next) && !isinf(value) && !isinf(next);
		double middle = finite ? (value + next) / 2 : value;
		uint32_t half = (uint32_t)hoist__minifloat_encode(f32, hoist__real_of(middle), 0);
		for (uint32_t d = 0; d < AROUND; d++) {
			codes[n++] = half + d - AROUND / 2;
			codes[n++] = (i << 16) + (d % 2 ? 0x8000 : 0) + d - AROUND / 2;
		}
	}
	check_array((const unsigned char *)codes, HOIST_F32, n);
}

Test(base_convert, every_code_of_16_bits)
{
	check_all_of_16_bits();
}

Test(base_convert, codes_of_f32_around_every_rounding)
{
	check_boundaries();
}

Test(base_convert, random_codes_of_f32)
{
	enum { N = 1 << 18 };
	static uint32_t codes[N];
	uint64_t seed = 1;
	for (size_t i = 0; i < N; i++) {
		codes[i] = (uint32_t)random_next(&seed);
		if (i % 2) /* near what f16 can hold */
			codes[i] = (codes[i] & 0x8fffffff) | 0x30000000 | (i % 4 ? 0x08000000 : 0);
	}
	check_array((const unsigned char *)codes, HOIST_F32, N);
}

Test(base_convert, the_rounding_mode_of_the_thread_has_no_part_in_it)
{
	static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
	static uint32_t codes[1 << 16];
	static uint16_t nearest[2][HOIST__ARRAY_SIZE(codes)];
	static uint16_t got[HOIST__ARRAY_SIZE(codes)];
	static float wide[2][HOIST__ARRAY_SIZE(codes)];
	static uint16_t halves[HOIST__ARRAY_SIZE(codes)];
	size_t n = HOIST__ARRAY_SIZE(codes);
	for (uint32_t i = 0; i < n; i++) {
		codes[i] = 0x33000000 + i * 0x3a7f; /* below, within and above f16's values */
		halves[i] = (uint16_t)i;
	}
	hoist__convert(nearest[0], HOIST_F16, codes, HOIST_F32, n);
	hoist__convert(nearest[1], HOIST_BF16, codes, HOIST_F32, n);
	hoist__convert(wide[0], HOIST_F32, halves, HOIST_F16, n);
	for (size_t m = 0; m < HOIST__ARRAY_SIZE(modes); m++) {
		fesetround(modes[m]);
		hoist__convert(got, HOIST_F16, codes, HOIST_F32, n);
		int f16 = memcmp(got, nearest[0], sizeof got);
		hoist__convert(got, HOIST_BF16, codes, HOIST_F32, n);
		int bf16 = memcmp(got, nearest[1], sizeof got);
		hoist__convert(wide[1], HOIST_F32, halves, HOIST_F16, n);
		int f32 = memcmp(wide[0], wide[1], sizeof wide[0]);
		fesetround(FE_TONEAREST);
		cr_assert(f16 == 0 && bf16 == 0 && f32 == 0, "mode %zu", m);
	}
}

Test(base_convert, lengths_alignments_and_arrays_in_place)
{
	enum { MOST = 300 };
	uint64_t seed = 3;
	unsigned char in[4 * MOST + 8];
	unsigned char apart[4 * MOST];
	unsigned char place[4 * MOST + 16];
	random_fill(&seed, in, sizeof in);
	for (size_t n = 0; n <= MOST; n++)
		for (size_t pair = 0; pair < 9; pair++) {
			hoist_dtype from = dtypes[pair / 3];
			hoist_dtype to = dtypes[pair % 3];
			size_t from_bytes = n * size_of(from);
			size_t to_bytes = n * size_of(to);
			size_t at = n % 5; /* of any alignment */
			if (from == to)
				continue;
			hoist__convert(apart, to, in + at, from, n);
			for (size_t i = 0; i < n; i++)
				check(to, code_at(apart, to, i), from, code_at(in + at, from, i));
			memset(place, 0x5a, sizeof place);
			size_t behind = to_bytes > from_bytes ? to_bytes - from_bytes : 0;
			memcpy(place + at + behind, in + at, from_bytes);
			hoist__convert(place + at, to, place + at + behind, from, n);
			cr_assert_eq(memcmp(place + at, apart, to_bytes), 0, "in place");
			size_t end = at + (to_bytes > from_bytes ? to_bytes : from_bytes);
			for (size_t i = 0; i < sizeof place; i++)
				cr_assert(place[i] == 0x5a || (i >= at && i < end), "byte %zu", i);
		}
}

Test(base_convert, only_three_dtypes_convert)
{
	for (int from = 0; from < 256; from++)
		for (int to = 0; to < 256; to++) {
			bool known = false;
			for (size_t pair = 0; pair < 9; pair++)
				known = known ||
					(pair / 3 != pair % 3 && from == (int)dtypes[pair / 3] &&
					 to == (int)dtypes[pair % 3]);
			cr_assert_eq(hoist__converts((hoist_dtype)from, (hoist_dtype)to), known);
		}
}
