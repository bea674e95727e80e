/* SPDX-License-Identifier: MIT */
/* base/minifloat.h - binary floating-point formats of 4 to 64 bits, described by their fields.
 *
 * One row describes a format.  One function reads all formats, and one writes all.  The bits of a
 * value are one integer, its code, made of sign, biased exponent and mantissa.  Codes without a
 * sign are in the order of their values.
 *
 * Formats differ in the codes that IEEE 754 keeps for infinities and NaNs:
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
	bool has_sign; /* without one: no zero, no subnormals; code 0 is the smallest power */
	enum hoist__specials specials;
	int bias;
};

/* Returns the format of a float dtype, or of the parts of a complex one; NULL for all others. */
const struct hoist__minifloat *hoist__minifloat_of(hoist_dtype dtype);

/* Returns the code of the largest finite value. */
uint64_t hoist__minifloat_largest(const struct hoist__minifloat *format);

/* Returns the value of a code.  The value is exact, as all formats' values are doubles. */
double hoist__minifloat_decode(const struct hoist__minifloat *format, uint64_t code);

/* The value mantissa * 2^exponent, which need not be a double: so integers of 64 bits are rounded
 * only once, too. */
struct hoist__real {
	enum { HOIST__REAL_FINITE, HOIST__REAL_INFINITE, HOIST__REAL_NAN } kind;
	bool negative;
	int exponent;
	uint64_t mantissa;
};

struct hoist__real hoist__real_of(double value);

/* Returns the code for @value, by the rules in hoist/number.h; @flags are HOIST_TOWARD_ZERO and
 * HOIST_SATURATE.  Pre: no NaN for a FINITE format. */
uint64_t hoist__minifloat_encode(const struct hoist__minifloat *format, struct hoist__real value,
				 unsigned flags);

#endif
