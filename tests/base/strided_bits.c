/* SPDX-License-Identifier: MIT */
/* Strided copies of packed elements against a model that moves bit after bit. */
#include "config.h"

#include <criterion/criterion.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/strided.h"
#include "tests/support/random.h"

enum { MAX_AXES = 4 };

static uint64_t state = 1;

static uint64_t draw(uint64_t below)
{
	return random_below(&state, below);
}

/* Exactly the bytes that the elements touch.  @base is the byte of element 0, @bit where in
 * it that begins. */
struct side {
	uint8_t *memory;
	size_t bytes;
	int64_t base;
	unsigned bit;
	int64_t strides[MAX_AXES];
};

static void make_side(struct side *side, int rank, const int64_t *shape, unsigned bits,
		      unsigned zeros)
{
	int64_t low = 0;
	int64_t high = 0;
	int64_t step = draw(3) == 0 ? 1 + (int64_t)draw(3) : 1;
	bool backwards = draw(2) == 0;
	for (int n = 0; n < rank; n++) {
		int i = backwards ? n : rank - 1 - n;
		side->strides[i] = draw(4) == 0 ? -step : step;
		if (zeros > 0 && draw(zeros) == 0)
			side->strides[i] = 0;
		else
			step = step * shape[i] + (draw(3) == 0 ? (int64_t)draw(5) : 0);
		int64_t reach = (shape[i] - 1) * side->strides[i];
		*(reach < 0 ? &low : &high) += reach;
	}
	side->bit = draw(2) == 0 ? 0 : (unsigned)draw(8);
	int64_t first = (low * bits + side->bit) >> 3;
	int64_t last = ((high + 1) * bits + side->bit + 7) >> 3;
	side->base = -first;
	side->bytes = (size_t)(last - first);
	side->memory = malloc(side->bytes);
	cr_assert_not_null(side->memory);
	for (size_t i = 0; i < side->bytes; i++)
		side->memory[i] = (uint8_t)draw(256);
}

static void move_bits(uint8_t *dst, int64_t to, const uint8_t *src, int64_t from, unsigned bits)
{
	for (unsigned b = 0; b < bits; b++, to++, from++) {
		unsigned bit = src[from / 8] >> (from % 8) & 1U;
		dst[to / 8] = (uint8_t)((dst[to / 8] & ~(1U << (to % 8))) | bit << (to % 8));
	}
}

static void compare(int rank, const int64_t *shape, unsigned bits, unsigned zeros)
{
	struct side dst;
	struct side src;
	make_side(&dst, rank, shape, bits, 0);
	make_side(&src, rank, shape, bits, zeros);
	uint8_t *expected = malloc(dst.bytes);
	cr_assert_not_null(expected);
	memcpy(expected, dst.memory, dst.bytes);
	int64_t n = 1;
	for (int i = 0; i < rank; i++)
		n *= shape[i];
	for (int64_t e = 0; e < n; e++) {
		int64_t to = 0;
		int64_t from = 0;
		int64_t rest = e;
		for (int i = rank - 1; i >= 0; i--) {
			to += rest % shape[i] * dst.strides[i];
			from += rest % shape[i] * src.strides[i];
			rest /= shape[i];
		}
		move_bits(expected, dst.base * 8 + dst.bit + to * bits, src.memory,
			  src.base * 8 + src.bit + from * bits, bits);
	}
	hoist__bits_copy(rank, shape, bits, dst.memory + dst.base, dst.bit, dst.strides,
			 src.memory + src.base, src.bit, src.strides);
	for (size_t i = 0; i < dst.bytes; i++)
		cr_assert_eq(dst.memory[i], expected[i], "%u bits, rank %d: byte %zu of %zu", bits,
			     rank, i, dst.bytes);
	free(expected);
	free(src.memory);
	free(dst.memory);
}

Test(base_strided_bits, copies_the_same_bits_as_a_walk_over_all_bits)
{
	static const unsigned widths[] = {4, 6, 4, 6, 1, 2, 3, 5, 7, 8, 12, 57, 64};
	for (int round = 0; round < 20000; round++) {
		int rank = (int)draw(MAX_AXES + 1);
		int64_t shape[MAX_AXES];
		for (int i = 0; i < rank; i++)
			shape[i] = 1 + (int64_t)draw(rank < 3 ? 40 : 5);
		compare(rank, shape, widths[(size_t)round % HOIST__ARRAY_SIZE(widths)],
			round % 3 == 0 ? 3 : 0);
	}
}

Test(base_strided_bits, long_runs_between_all_places_in_a_byte)
{
	for (int64_t n = 1; n < 700; n += 1 + n / 9)
		for (int round = 0; round < 200; round++)
			compare(1, &n, round % 2 == 0 ? 4 : 6, 0);
}

Test(base_strided_bits, without_elements_nothing_is_touched)
{
	static const int64_t shape[] = {3, 0};
	static const int64_t strides[] = {1, 1};
	hoist__bits_copy(2, shape, 4, NULL, 0, strides, NULL, 0, strides);
}
