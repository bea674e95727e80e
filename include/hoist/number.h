/* SPDX-License-Identifier: MIT */
/* hoist/number.h - single values, and the elements of any dtype that they are stored in.
 *
 * A Number is what a program computes with: a truth value, an integer of 64 bits, a double or
 * a pair of them.  Encoding rounds it once, straight to the element's own precision; decoding is
 * exact.
 *
 * What does not fit:
 *   into bool      0 is false; all else, NaN too, is true
 *   into integers  nothing wraps: out of range is -EDOM, and so is an infinity; a fraction is
 *                  -EINVAL unless TOWARD_ZERO asks for its loss; NaN is -EINVAL
 *   into floats    rounded to the nearest, ties to even; what then lies beyond the largest
 *                  finite value, and infinities, become
 *                    f16 bf16 f32 f64 f8_e5m2           infinity (IEEE 754; OCP OFP8)
 *                    f8_e4m3fn                          NaN (OFP8 without saturation, ml_dtypes)
 *                    f8_e4m3fnuz f8_e5m2fnuz            NaN (ml_dtypes)
 *                    f6_e2m3fn f6_e3m2fn f4_e2m1fn      the largest (OCP MX: they have nothing
 *                                                       else); NaN into one is -EINVAL
 *                    f8_e8m0fnu                         NaN, as do zero and what is negative:
 *                                                       it has powers of two alone; ties go up
 *                                                       and what is tiny becomes 2^-127
 *                                                       (ml_dtypes)
 *                  the fnuz types have no -0: it becomes 0
 *   complex into   the part that is not 0 would be lost: -EINVAL (bool: true unless both are 0)
 *     others
 * Two options, where the field disagrees:
 *   HOIST_TOWARD_ZERO  cuts digits off instead of rounding, as MAX does when it stores bf16: a
 *                      finite value never becomes infinite
 *   HOIST_SATURATE     what is out of range becomes the nearest value of the range: integers
 *                      clamp, floats become the largest finite value, infinities too (OFP8's
 *                      saturating mode, CUDA's SATFINITE).  e8m0: zero and below: 2^-127
 *
 * NaN keeps its sign where the type has NaNs of both, and is quiet; its payload is not kept.
 *
 * Threads: any; nothing is shared, allocated or waited for.
 */
#ifndef HOIST_NUMBER_H
#define HOIST_NUMBER_H

#include <stdint.h>

#include <hoist/dtype.h>
#include <hoist/error.h>

HOIST_BEGIN

typedef enum hoist_number_kind {
	HOIST_NUMBER_BOOL, /* i64 is 0 or 1 */
	HOIST_NUMBER_I64,
	HOIST_NUMBER_U64,
	HOIST_NUMBER_F64,
	HOIST_NUMBER_C128
} hoist_number_kind;

typedef struct hoist_complex {
	double re, im;
} hoist_complex;

typedef struct hoist_number {
	hoist_number_kind kind; /* which of the values it is */
	union {
		int64_t i64;
		uint64_t u64;
		double f64;
		hoist_complex c128;
	} as;
} hoist_number;

static inline hoist_number hoist_number_bool(int value)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_BOOL;
	number.as.i64 = value != 0;
	return number;
}

static inline hoist_number hoist_number_i64(int64_t value)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_I64;
	number.as.i64 = value;
	return number;
}

static inline hoist_number hoist_number_u64(uint64_t value)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_U64;
	number.as.u64 = value;
	return number;
}

static inline hoist_number hoist_number_f64(double value)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_F64;
	number.as.f64 = value;
	return number;
}

static inline hoist_number hoist_number_c128(double re, double im)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_C128;
	number.as.c128.re = re;
	number.as.c128.im = im;
	return number;
}

#define HOIST_TOWARD_ZERO 1u
#define HOIST_SATURATE 2u

/* Element @index, counted in elements from @data on, of @dtype.  Sub-byte types are packed (see
 * hoist/dtype.h).  It may be misaligned.  Integers are I64, or U64 where the dtype is unsigned.
 * Returns: 0; -EINVAL (no dtype; @data NULL); -ENOTSUP for a block type, whose elements have no
 *   address. */
HOIST_API int hoist_number_decode(const void *data, hoist_dtype dtype, uint64_t index,
				  hoist_number *ret);

/* The other way; bits beside the element stay.  @flags: TOWARD_ZERO, SATURATE.
 * Returns: also -EDOM and -EINVAL as said above, with the value and what would fit (nothing is
 *   then written); -EINVAL for other flags. */
HOIST_API int hoist_number_encode(hoist_number number, unsigned flags, void *data,
				  hoist_dtype dtype, uint64_t index);

/* For who knows what to expect: the number as one C type.
 * Returns: 0; -EDOM, -EINVAL as encoding to i64 and f64 does. */
static inline int hoist_number_to_i64(hoist_number number, int64_t *ret)
{
	return hoist_number_encode(number, 0, ret, HOIST_I64, 0);
}

static inline int hoist_number_to_f64(hoist_number number, double *ret)
{
	return hoist_number_encode(number, 0, ret, HOIST_F64, 0);
}

HOIST_END

#endif
