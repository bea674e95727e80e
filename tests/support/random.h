/* SPDX-License-Identifier: MIT */
/* tests/support/random.h - numbers that look random and that a seed repeats: splitmix64 (Steele,
 * Lea, Flood, "Fast splittable pseudorandom number generators", 2014).  The state is the caller's:
 * a word that begins as the seed, any value, one for each thread. */
#ifndef HOIST_TESTS_RANDOM_H
#define HOIST_TESTS_RANDOM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* A number in 0..n-1; @n is at least 1. */
static inline uint64_t random_below(uint64_t *state, uint64_t n)
{
	return random_next(state) % n;
}

static inline void random_fill(uint64_t *state, void *bytes, size_t n)
{
	unsigned char *to = bytes;
	for (size_t take; n > 0; to += take, n -= take) {
		uint64_t word = random_next(state);
		take = n < sizeof word ? n : sizeof word;
		memcpy(to, &word, take);
	}
}

#endif
