/* SPDX-License-Identifier: MIT */
/* base/minifloat.h - binary floating-point formats of 4 to 64 bits, by their fields.
 *
 * One row describes a format, one function reads all of them and one writes all: the bits of a
 * value are one integer, its code, of sign, biased exponent and mantissa, and codes without
 * sign are in the order of their values.
 *
 * What formats do with the codes that IEEE 754 keeps for infinities and NaNs:
 *   IEEE    largest exponent: infinity and NaNs (f16, bf16, f32, f64, OFP8's e5m2)
 *   FN      no infinity; NaN is all ones, with either sign (OFP8's e4m3; e8m0)
 *   FNUZ    no infinity, no -0: its code is the NaN
 *   FINITE  neither (OCP MX's f6 and f4)
 */
#ifndef HOIST_BASE_MINIFLOAT_H
#define HOIST_BASE_MINIFLOAT_H

#include <stdbool.h>
#include <stdint.h>

#include "hoist/number.h"

enum hoist__specials { HOIST__IEEE, HOIST__FN, HOIST__FNUZ, HOIST__FINITE };

struct hoist__minifloat {
	unsigned char exponent_bits;
	unsigned char mantissa_bits;
	bool has_sign; /* without: neither zero nor subnormals, code 0 is the smallest power */
	enum hoist__specials specials;
	int bias;
};

/* Of a float dtype, and of a complex one its parts'; NULL for all others. */
const struct hoist__minifloat *hoist__minifloat_of(hoist_dtype dtype);

/* The largest finite value's code. */
uint64_t hoist__minifloat_largest(const struct hoist__minifloat *format);

/* The value of a code: exact, as every format's values are doubles. */
double hoist__minifloat_decode(const struct hoist__minifloat *format, uint64_t code);

/* A value that need not be a double: mantissa * 2^exponent, so that integers of 64 bits are
 * rounded once too. */
struct hoist__real {
	enum { HOIST__REAL_FINITE, HOIST__REAL_INFINITE, HOIST__REAL_NAN } kind;
	bool negative;
	int exponent;
	uint64_t mantissa;
};

struct hoist__real hoist__real_of(double value);

/* The code that stores it under HOIST_TOWARD_ZERO and HOIST_SATURATE, by the rules in
 * hoist/number.h.  Pre: no NaN for a FINITE format. */
uint64_t hoist__minifloat_encode(const struct hoist__minifloat *format, struct hoist__real value,
				 unsigned flags);

#endif
