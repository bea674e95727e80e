/* SPDX-License-Identifier: MIT */
/* base/minifloat.c - reads and writes floats of any format, in integers.
 * The contract is in base/minifloat.h.
 *
 * Neither the thread's rounding mode nor a maths library can change a result. */
#include "config.h"

#include "base/minifloat.h"
#include "hoist/number.h"

#include <string.h>

#define BITS(n) ((UINT64_C(1) << (n)) - 1)

/* The formats are those of IEEE 754, bf16 (the upper half of an IEEE binary32), of OCP's OFP8 1.0
 * (e4m3, e5m2) and of OCP's Microscaling Formats 1.0 (e8m0, e2m3, e3m2, e2m1).  The fnuz formats
 * have a bias that is one higher, as in ml_dtypes. */
const struct hoist__minifloat *hoist__minifloat_of(hoist_dtype dtype)
{
	static const struct hoist__minifloat f16 = {5, 10, true, HOIST__IEEE, 15};
	static const struct hoist__minifloat bf16 = {8, 7, true, HOIST__IEEE, 127};
	static const struct hoist__minifloat f32 = {8, 23, true, HOIST__IEEE, 127};
	static const struct hoist__minifloat f64 = {11, 52, true, HOIST__IEEE, 1023};
	static const struct hoist__minifloat e4m3fn = {4, 3, true, HOIST__FN, 7};
	static const struct hoist__minifloat e4m3fnuz = {4, 3, true, HOIST__FNUZ, 8};
	static const struct hoist__minifloat e5m2 = {5, 2, true, HOIST__IEEE, 15};
	static const struct hoist__minifloat e5m2fnuz = {5, 2, true, HOIST__FNUZ, 16};
	static const struct hoist__minifloat e8m0fnu = {8, 0, false, HOIST__FN, 127};
	static const struct hoist__minifloat e2m3fn = {2, 3, true, HOIST__FINITE, 1};
	static const struct hoist__minifloat e3m2fn = {3, 2, true, HOIST__FINITE, 3};
	static const struct hoist__minifloat e2m1fn = {2, 1, true, HOIST__FINITE, 1};
	switch ((int)dtype) {
	case HOIST_F16:
		return &f16;
	case HOIST_BF16:
		return &bf16;
	case HOIST_F32:
	case HOIST_C64:
		return &f32;
	case HOIST_F64:
	case HOIST_C128:
		return &f64;
	case HOIST_F8_E4M3FN:
		return &e4m3fn;
	case HOIST_F8_E4M3FNUZ:
		return &e4m3fnuz;
	case HOIST_F8_E5M2:
		return &e5m2;
	case HOIST_F8_E5M2FNUZ:
		return &e5m2fnuz;
	case HOIST_F8_E8M0FNU:
		return &e8m0fnu;
	case HOIST_F6_E2M3FN:
		return &e2m3fn;
	case HOIST_F6_E3M2FN:
		return &e3m2fn;
	case HOIST_F4_E2M1FN:
		return &e2m1fn;
	default:
		return NULL;
	}
}

static uint64_t sign_bit(const struct hoist__minifloat *f)
{
	return f->has_sign ? UINT64_C(1) << (f->exponent_bits + f->mantissa_bits) : 0;
}

/* Returns a mask of all bits but the sign. */
static uint64_t magnitude_bits(const struct hoist__minifloat *f)
{
	return BITS(f->exponent_bits + f->mantissa_bits);
}

static uint64_t infinity_of(const struct hoist__minifloat *f)
{
	return BITS(f->exponent_bits) << f->mantissa_bits;
}

uint64_t hoist__minifloat_largest(const struct hoist__minifloat *f)
{
	switch (f->specials) {
	case HOIST__IEEE:
		return infinity_of(f) - 1;
	case HOIST__FN:
		return magnitude_bits(f) - 1;
	default:
		return magnitude_bits(f);
	}
}

static double from_bits(uint64_t bits)
{
	double value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

/* Returns 2^exponent.  Pre: it is a normal double. */
static double power_of_two(int exponent)
{
	return from_bits((uint64_t)(exponent + 1023) << 52);
}

static double special(uint64_t bits, bool negative)
{
	return from_bits(bits | (uint64_t)negative << 63);
}

double hoist__minifloat_decode(const struct hoist__minifloat *f, uint64_t code)
{
	if (f->mantissa_bits == 52)
		return from_bits(code);
	bool negative = code & sign_bit(f);
	uint64_t magnitude = code & magnitude_bits(f);
	bool is_nan = f->specials == HOIST__FNUZ ? code == sign_bit(f)
						 : magnitude > hoist__minifloat_largest(f);
	if (f->specials == HOIST__IEEE && magnitude == infinity_of(f))
		return special(UINT64_C(0x7ff) << 52, negative);
	if (is_nan)
		return special(UINT64_C(0xfff) << 51, negative && f->specials != HOIST__FNUZ);
	int exponent = (int)(magnitude >> f->mantissa_bits);
	uint64_t mantissa = magnitude & BITS(f->mantissa_bits);
	if (exponent > 0 || !f->has_sign)
		mantissa |= UINT64_C(1) << f->mantissa_bits;
	else
		exponent = 1; /* for zero and the subnormals */
	/* Both factors and the product are exact: no format but f64 has more than 24 bits, or
	 * exponents near the ends of a double's range. */
	double value = (double)mantissa * power_of_two(exponent - f->bias - f->mantissa_bits);
	return negative ? -value : value;
}

struct hoist__real hoist__real_of(double value)
{
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	struct hoist__real real = {HOIST__REAL_FINITE, bits >> 63, 0, bits & BITS(52)};
	int exponent = (int)(bits >> 52 & 0x7ff);
	if (exponent == 0x7ff) {
		real.kind = real.mantissa != 0 ? HOIST__REAL_NAN : HOIST__REAL_INFINITE;
		return real;
	}
	if (exponent > 0)
		real.mantissa |= UINT64_C(1) << 52;
	else
		exponent = 1;
	real.exponent = exponent - 1023 - 52;
	return real;
}

/* Returns the code of a value that is not 0, rounded to the format's precision.  The exponent has
 * no upper limit here. */
static uint64_t round_magnitude(const struct hoist__minifloat *f, uint64_t mantissa, int exponent,
				bool toward_zero)
{
	int zeros = __builtin_clzll(mantissa);
	mantissa <<= zeros;
	exponent -= zeros;
	/* The value is now 1.xxx * 2^(exponent + 63).  Keep the bits at or above the last bit that
	 * the format has at this exponent; `shift` is 11 or more. */
	int smallest = f->has_sign ? 1 - f->bias : -f->bias; /* of a normal value */
	int above = exponent + 63 - smallest;		     /* exponents above `smallest` */
	if (above < 0)
		above = 0;
	int shift = smallest + above - f->mantissa_bits - exponent;
	uint64_t kept = shift < 64 ? mantissa >> shift : 0;
	/* as a fraction of the last kept bit */
	uint64_t rest = shift <= 64 ? mantissa << (64 - shift) : 1;
	const uint64_t half = UINT64_C(1) << 63;
	if (!toward_zero && (rest > half || (rest == half && kept & 1)))
		kept++;
	/* The leading 1, if there is one, increments the exponent, and so does a carry. */
	uint64_t code = kept + ((uint64_t)above << f->mantissa_bits);
	if (f->has_sign)
		return code;
	return code > 0 ? code - 1 : 0; /* without a sign, the smallest power has the exponent 0 */
}

static uint64_t nan_of(const struct hoist__minifloat *f, bool negative)
{
	if (f->specials == HOIST__FNUZ)
		return sign_bit(f);
	uint64_t nan = magnitude_bits(f);
	if (f->specials == HOIST__IEEE)
		nan = infinity_of(f) | UINT64_C(1) << (f->mantissa_bits - 1);
	return nan | (negative ? sign_bit(f) : 0);
}

/* Returns the code, without the sign, for a value beyond the largest one. */
static uint64_t overflow(const struct hoist__minifloat *f, unsigned flags)
{
	if (flags & HOIST_SATURATE || f->specials == HOIST__FINITE)
		return hoist__minifloat_largest(f);
	return f->specials == HOIST__IEEE ? infinity_of(f) : nan_of(f, false);
}

uint64_t hoist__minifloat_encode(const struct hoist__minifloat *f, struct hoist__real value,
				 unsigned flags)
{
	bool is_zero = value.kind == HOIST__REAL_FINITE && value.mantissa == 0;
	if (value.kind == HOIST__REAL_NAN)
		return nan_of(f, value.negative);
	if (!f->has_sign && (value.negative || is_zero))
		return flags & HOIST_SATURATE ? 0 : nan_of(f, false);
	uint64_t code = 0;
	if (value.kind == HOIST__REAL_INFINITE) {
		code = overflow(f, flags);
	} else if (!is_zero) {
		bool toward_zero = flags & HOIST_TOWARD_ZERO;
		code = round_magnitude(f, value.mantissa, value.exponent, toward_zero);
		if (code > hoist__minifloat_largest(f))
			code = toward_zero ? hoist__minifloat_largest(f) : overflow(f, flags);
	}
	if (f->specials == HOIST__FNUZ && code == 0)
		return 0;
	return code | (value.negative ? sign_bit(f) : 0);
}
