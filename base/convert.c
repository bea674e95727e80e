/* SPDX-License-Identifier: MIT */
/* base/convert.c - converts blocks of elements to f32, and from f32 to the wanted dtype.
 * The contract is in base/convert.h.
 *
 * f32 holds every value of f16 and bf16, so that nothing is rounded twice.  Loops have no branches
 * and a constant count.  So compilers turn them into vector code at -O2: of 4 elements or, if the
 * processor has AVX2, of 8.  All arithmetic is in integers, or in floats that are exact: the
 * thread's rounding mode and its flushing of subnormals do not matter. */
#include "config.h"

#include "base/convert.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK = 256 };

/* --- one element, as f32's bits --- */

HOIST__INLINE uint32_t from_bf16(uint32_t bits)
{
	uint32_t wide = bits << 16;
	int32_t is_nan = (int32_t)(wide & 0x7fffffff) > 0x7f800000;
	return wide | hoist__choose(is_nan, 0x00400000, 0);
}

HOIST__INLINE uint32_t to_bf16(uint32_t bits)
{
	int32_t is_nan = (int32_t)(bits & 0x7fffffff) > 0x7f800000;
	uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
	return hoist__choose(is_nan, bits >> 16 | 0x0040, rounded);
}

/* Returns the bits of the value's magnitude if it is a subnormal of f16, otherwise 0. */
HOIST__INLINE uint32_t subnormal_f16(uint32_t bits)
{
	uint32_t magnitude = bits & 0x7fffffff;
	return hoist__choose((int32_t)magnitude < 0x38800000, magnitude, 0);
}

/* @subnormal is the float of the bits that subnormal_f16() returns. */
HOIST__INLINE uint32_t to_f16(uint32_t bits, float subnormal)
{
	uint32_t sign = bits >> 16 & 0x8000;
	uint32_t magnitude = bits & 0x7fffffff;
	int32_t order = (int32_t)magnitude;
	/* From 2^-14 on: the exponent's bias goes from 127 to 15.  A value above 65504 that is
	 * rounded up gets the code of infinity. */
	uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
	uint32_t special =
		hoist__choose(order > 0x7f800000, (magnitude >> 13 & 0x3ff) | 0x7e00, 0x7c00);
	uint32_t large = hoist__choose(order >= 0x47800000, special, normal);
	/* Below 2^-14: split into whole multiples of 2^-24 and a rest.  The rest keeps enough bits
	 * to tell a half from more than a half. */
	float scaled = subnormal * 0x1p24f;
	int32_t whole = (int32_t)scaled;
	int32_t rest = (int32_t)((scaled - (float)whole) * 0x1p30f);
	uint32_t up = ((uint32_t)whole & 1) + (uint32_t)rest > 1u << 29;
	return sign | hoist__choose(order < 0x38800000, (uint32_t)whole + up, large);
}

/* --- blocks --- */

union block {
	uint32_t bits[BLOCK];
	float values[BLOCK];
};

HOIST__INLINE void load(union block *to, hoist_dtype type, const unsigned char *from, size_t n)
{
	uint16_t half[BLOCK];
	void *target = type == HOIST_F32 ? (void *)to->bits : (void *)half;
	size_t size = type == HOIST_F32 ? 4 : 2;
	if (n < BLOCK)
		memset(target, 0, BLOCK * size);
	memcpy(target, from, n * size);
	if (type == HOIST_F16)
		for (int i = 0; i < BLOCK; i++)
			to->bits[i] = hoist__from_f16(half[i]);
	else if (type == HOIST_BF16)
		for (int i = 0; i < BLOCK; i++)
			to->bits[i] = from_bf16(half[i]);
}

HOIST__INLINE void store(unsigned char *to, hoist_dtype type, const union block *from, size_t n)
{
	uint16_t half[BLOCK];
	union block subnormal;
	if (type == HOIST_F16) {
		/* Compilers make vector code of casts between int and float only if they go through
		 * memory. */
		for (int i = 0; i < BLOCK; i++)
			subnormal.bits[i] = subnormal_f16(from->bits[i]);
		for (int i = 0; i < BLOCK; i++)
			half[i] = (uint16_t)to_f16(from->bits[i], subnormal.values[i]);
	} else if (type == HOIST_BF16) {
		for (int i = 0; i < BLOCK; i++)
			half[i] = (uint16_t)to_bf16(from->bits[i]);
	}
	memcpy(to, type == HOIST_F32 ? (const void *)from->bits : (const void *)half,
	       n * (type == HOIST_F32 ? 4 : 2));
}

HOIST__INLINE void convert(unsigned char *to, hoist_dtype to_type, const unsigned char *from,
			   hoist_dtype from_type, size_t n)
{
	size_t from_size = from_type == HOIST_F32 ? 4 : 2;
	size_t to_size = to_type == HOIST_F32 ? 4 : 2;
	/* Each block is read before it is written, and the written part lies before everything that
	 * is still to be read. */
	for (size_t i = 0; i < n; i += BLOCK) {
		union block block;
		size_t some = n - i < BLOCK ? n - i : BLOCK;
		load(&block, from_type, from + i * from_size, some);
		store(to + i * to_size, to_type, &block, some);
	}
}

static void convert_plain(unsigned char *to, hoist_dtype to_type, const unsigned char *from,
			  hoist_dtype from_type, size_t n)
{
	convert(to, to_type, from, from_type, n);
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static void convert_avx2(unsigned char *to, hoist_dtype to_type,
							 const unsigned char *from,
							 hoist_dtype from_type, size_t n)
{
	convert(to, to_type, from, from_type, n);
}
#endif

bool hoist__converts(hoist_dtype from, hoist_dtype to)
{
	bool known_from = from == HOIST_F32 || from == HOIST_F16 || from == HOIST_BF16;
	bool known_to = to == HOIST_F32 || to == HOIST_F16 || to == HOIST_BF16;
	return known_from && known_to && from != to;
}

void hoist__convert(void *to, hoist_dtype to_type, const void *from, hoist_dtype from_type,
		    size_t n)
{
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2")) {
		convert_avx2(to, to_type, from, from_type, n);
		return;
	}
#endif
	convert_plain(to, to_type, from, from_type, n);
}
