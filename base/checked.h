/* SPDX-License-Identifier: MIT */
/* base/checked.h - arithmetic that reports overflow, and rounding.
 *
 * The hoist__*_overflow() functions return true on overflow; *ret is then undefined.  Each argument
 * is evaluated once, as these are functions. */
#ifndef HOIST_BASE_CHECKED_H
#define HOIST_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOIST__KIB ((size_t)1 << 10)
#define HOIST__MIB ((size_t)1 << 20)
#define HOIST__GIB ((size_t)1 << 30)

#define HOIST__ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define HOIST__LIKELY(x) __builtin_expect(!!(x), 1)
#define HOIST__UNLIKELY(x) __builtin_expect(!!(x), 0)

static inline bool hoist__add_overflow(uint64_t a, uint64_t b, uint64_t *ret)
{
	return __builtin_add_overflow(a, b, ret);
}

static inline bool hoist__mul_overflow(uint64_t a, uint64_t b, uint64_t *ret)
{
	return __builtin_mul_overflow(a, b, ret);
}

static inline bool hoist__is_power_of_two(uint64_t x)
{
	return x != 0 && (x & (x - 1)) == 0;
}

/* @align must be a power of two.  hoist__round_up() must not overflow: callers check a bound of @x
 * first (files and memory are far below 2^63). */
static inline uint64_t hoist__round_down(uint64_t x, uint64_t align)
{
	return x & ~(align - 1);
}

static inline uint64_t hoist__round_up(uint64_t x, uint64_t align)
{
	return (x + align - 1) & ~(align - 1);
}

static inline uint64_t hoist__min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t hoist__max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* Euclid's algorithm.  The divisor of @a and 0 is @a. */
static inline uint64_t hoist__gcd_u64(uint64_t a, uint64_t b)
{
	while (b != 0) {
		uint64_t rest = a % b;
		a = b;
		b = rest;
	}
	return a;
}

#endif
