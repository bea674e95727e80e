/* SPDX-License-Identifier: MIT */
/* hoist/number.h - single values, and their conversion to and from elements of any dtype.
 *
 *     unsigned char element[2];
 *     hoist_number number;
 *     double value;
 *     hoist_number_encode(hoist_number_f64(0.1), 0, element, HOIST_BF16, 0);
 *     hoist_number_decode(element, HOIST_BF16, 0, &number);
 *     hoist_number_to_f64(number, &value);                    // 0.10009765625
 *
 * A Number is a value that a program computes with: a truth value, an integer of 64 bits, a double
 * or a pair of doubles.  Encoding rounds the value once, straight to the element's own precision.
 * Decoding is exact.
 *
 * Values that the element type cannot hold:
 *
 *   into bool      0 becomes false; every other value, NaN too, becomes true
 *   into integers  nothing wraps: a value out of range, and an infinity, is -EDOM; a fraction is
 *                  -EINVAL unless HOIST_TOWARD_ZERO permits its loss; NaN is -EINVAL
 *   into floats    rounded to the nearest, ties to even; a result beyond the largest finite value,
 *                  and an infinity, becomes
 *                    f16 bf16 f32 f64 f8_e5m2           infinity (IEEE 754; OCP OFP8)
 *                    f8_e4m3fn                          NaN (OFP8 without saturation, ml_dtypes)
 *                    f8_e4m3fnuz f8_e5m2fnuz            NaN (ml_dtypes)
 *                    f6_e2m3fn f6_e3m2fn f4_e2m1fn      the largest finite value (OCP MX: these
 *                                                       types have neither infinity nor NaN);
 *                                                       NaN into one of them is -EINVAL
 *                    f8_e8m0fnu                         NaN; so do zero and negative values: the
 *                                                       type holds powers of two only; ties go up,
 *                                                       and smaller positive values become 2^-127
 *                                                       (ml_dtypes)
 *                  the fnuz types have no -0: -0 becomes 0
 *   complex into   a part other than 0 would be lost: -EINVAL (bool: true unless both parts are 0)
 *     others
 *
 * Two flags choose where other libraries disagree:
 *
 *   HOIST_TOWARD_ZERO  cuts digits off instead of rounding, as MAX does when it stores bf16: a
 *                      finite value never becomes infinite
 *   HOIST_SATURATE     a value out of range becomes the nearest value of the range: integers
 *                      clamp; floats, infinities too, become the largest finite value (OFP8's
 *                      saturating mode, CUDA's SATFINITE); in e8m0, zero and negative values
 *                      become 2^-127
 *
 * NaN keeps its sign where the type has NaNs of both signs, and becomes quiet; its payload is lost.
 *
 * Threads: any.  The functions share nothing, allocate nothing and never wait.
 */
#ifndef HOIST_NUMBER_H
#define HOIST_NUMBER_H

#include <stdint.h>

#include <hoist/dtype.h>
#include <hoist/error.h>

HOIST_BEGIN

/* --- values --- */

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
	hoist_number_kind kind; /* says which member of `as` holds the value */
	union {
		int64_t i64;
		uint64_t u64;
		double f64;
		hoist_complex c128;
	} as;
} hoist_number;

/* A Number of the truth value of @value: 1 unless @value is 0. */
static inline hoist_number hoist_number_bool(int value)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_BOOL;
	number.as.i64 = value != 0;
	return number;
}

/* A Number of @value. */
static inline hoist_number hoist_number_i64(int64_t value)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_I64;
	number.as.i64 = value;
	return number;
}

/* A Number of @value. */
static inline hoist_number hoist_number_u64(uint64_t value)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_U64;
	number.as.u64 = value;
	return number;
}

/* A Number of @value. */
static inline hoist_number hoist_number_f64(double value)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_F64;
	number.as.f64 = value;
	return number;
}

/* A Number of the complex value @re + @im i. */
static inline hoist_number hoist_number_c128(double re, double im)
{
	hoist_number number;
	number.kind = HOIST_NUMBER_C128;
	number.as.c128.re = re;
	number.as.c128.im = im;
	return number;
}

/* --- elements in memory --- */

#define HOIST_TOWARD_ZERO 1u /* see the head of this file */
#define HOIST_SATURATE 2u

/* The value of element @index of the array of @dtype at @data.  Elements of sub-byte types are
 * packed (hoist/dtype.h).  @data may be misaligned.  Integers give a Number of kind I64, or U64
 * where the dtype is unsigned.
 * Returns: 0; -EINVAL (@dtype is no dtype; @data is NULL); -ENOTSUP (a block type: its elements
 *   have no address). */
HOIST_API int hoist_number_decode(const void *data, hoist_dtype dtype, uint64_t index,
				  hoist_number *ret);

/* Stores @number as element @index of the array of @dtype at @data.  Bits beside the element keep
 * their value.  @flags: HOIST_TOWARD_ZERO, HOIST_SATURATE.  After a failure nothing was written.
 * Returns: as hoist_number_decode(); -EDOM, -EINVAL (the dtype cannot hold the value, see the head
 *   of this file; the text has the value and the range); -EINVAL (unknown flags). */
HOIST_API int hoist_number_encode(hoist_number number, unsigned flags, void *data,
				  hoist_dtype dtype, uint64_t index);

/* The number as an int64_t, for callers that know the kind of value to expect.
 * Returns: 0; -EDOM, -EINVAL as hoist_number_encode() to HOIST_I64. */
static inline int hoist_number_to_i64(hoist_number number, int64_t *ret)
{
	return hoist_number_encode(number, 0, ret, HOIST_I64, 0);
}

/* The number as a double.
 * Returns: 0; -EDOM, -EINVAL as hoist_number_encode() to HOIST_F64. */
static inline int hoist_number_to_f64(hoist_number number, double *ret)
{
	return hoist_number_encode(number, 0, ret, HOIST_F64, 0);
}

HOIST_END

#endif
