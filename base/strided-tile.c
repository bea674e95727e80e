/* SPDX-License-Identifier: MIT */
/* base/strided-tile.c - transposes by squares of items: loads lines of src, stores lines of dst.
 * The contract is in base/strided-box.h. */
#include "config.h"

#include <stdbool.h>
#include <string.h>

#include "base/strided-box.h"

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef uint8_t v8 __attribute__((vector_size(16)));
typedef uint16_t v16 __attribute__((vector_size(16)));
typedef uint32_t v32 __attribute__((vector_size(16)));
typedef uint64_t v64 __attribute__((vector_size(16)));

enum { LINE = 64, BLOCK = 128 }; /* bytes */

#ifdef __clang__
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif
#define LOW8(a, b) SHUFFLE(v8, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH8(a, b) SHUFFLE(v8, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW16(a, b) SHUFFLE(v16, a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH16(a, b) SHUFFLE(v16, a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW32(a, b) SHUFFLE(v32, a, b, 0, 4, 1, 5)
#define HIGH32(a, b) SHUFFLE(v32, a, b, 2, 6, 3, 7)

/* Interleaving the first half of N*N items with the second moves the highest bit of an item's
 * number to the lowest place.  After log2(N) times, row and column have changed places. */
#define SQUARE(bits, side, stages)                                                                 \
	INLINE void square##bits(char *dst, int64_t dst_row, const char *src, int64_t src_column)  \
	{                                                                                          \
		v##bits in[side];                                                                  \
		v##bits out[side];                                                                 \
		UNROLL for (int i = 0; i < (side); i++)                                            \
			memcpy(&in[i], src + i * src_column, sizeof in[i]);                        \
		UNROLL for (int stage = 0; stage < (stages); stage++)                              \
		{                                                                                  \
			UNROLL for (int i = 0; i < (side) / 2; i++)                                \
			{                                                                          \
				out[2 * i] = LOW##bits(in[i], in[i + (side) / 2]);                 \
				out[2 * i + 1] = HIGH##bits(in[i], in[i + (side) / 2]);            \
			}                                                                          \
			UNROLL for (int i = 0; i < (side); i++) in[i] = out[i];                    \
		}                                                                                  \
		UNROLL for (int i = 0; i < (side); i++)                                            \
			memcpy(dst + i * dst_row, &in[i], sizeof in[i]);                           \
	}
SQUARE(8, 16, 4)
SQUARE(16, 8, 3)
SQUARE(32, 4, 2)

INLINE v64 pair(const char *src, int64_t src_column)
{
	uint64_t items[2];
	memcpy(&items[0], src, sizeof items[0]);
	memcpy(&items[1], src + src_column, sizeof items[1]);
	return (v64){items[0], items[1]};
}

/* Large items are stored a whole line at a time: that gains more than the loads cost. */
INLINE void square64(char *dst, int64_t dst_row, const char *src, int64_t src_column)
{
	for (int i = 0; i < LINE; i += 8, dst += dst_row, src += 8)
		UNROLL for (int j = 0; j < LINE / 8; j += 2)
		{
			v64 two = pair(src + j * src_column, src_column);
			memcpy(dst + (ptrdiff_t)j * 8, &two, sizeof two);
		}
}

static int64_t side_of(size_t item)
{
	return (item <= 4 ? 16 : LINE) / (int64_t)item;
}

/* @rows and @columns are multiples of a square's side. */
INLINE void squares(const struct hoist__loops *box, char *dst, const char *src, int64_t rows,
		    int64_t columns, size_t item)
{
	int64_t side = side_of(item);
	int64_t right = side * (int64_t)item;
	int64_t down = side * box->src[2];
	for (int64_t i = 0; i < rows; i += side) {
		char *to = dst + i * box->dst[1];
		const char *from = src + i * (int64_t)item;
		for (int64_t j = 0; j < columns; j += side, to += right, from += down) {
			if (item == 1)
				square8(to, box->dst[1], from, box->src[2]);
			else if (item == 2)
				square16(to, box->dst[1], from, box->src[2]);
			else if (item == 4)
				square32(to, box->dst[1], from, box->src[2]);
			else
				square64(to, box->dst[1], from, box->src[2]);
		}
	}
}

/* Copies the part of @box that is rows [@i, @i + @rows) and columns [@j, @j + @columns). */
static void part(const struct hoist__loops *box, char *dst, const char *src, int64_t i,
		 int64_t rows, int64_t j, int64_t columns)
{
	if (rows == 0 || columns == 0)
		return;
	struct hoist__loops piece = *box;
	piece.n[1] = rows;
	piece.n[2] = columns;
	hoist__loops_copy(&piece, dst + i * box->dst[1] + j * box->dst[2],
			  src + i * box->src[1] + j * box->src[2]);
}

/* Each call of squares() has a constant item size, so that the compiler makes a loop for this size.
 * The edges, and all that squares cannot take, are left to part(). */
static void block(const struct hoist__loops *box, char *dst, const char *src, int64_t rows,
		  int64_t columns)
{
	size_t item = box->item;
	bool square = item <= 8 && (item & (item - 1)) == 0 && box->src[1] == (int64_t)item &&
		      box->dst[2] == (int64_t)item;
	if (!square) {
		part(box, dst, src, 0, rows, 0, columns);
		return;
	}
	int64_t whole_rows = rows - rows % side_of(item);
	int64_t whole_columns = columns - columns % side_of(item);
	if (item == 1)
		squares(box, dst, src, whole_rows, whole_columns, 1);
	else if (item == 2)
		squares(box, dst, src, whole_rows, whole_columns, 2);
	else if (item == 4)
		squares(box, dst, src, whole_rows, whole_columns, 4);
	else
		squares(box, dst, src, whole_rows, whole_columns, 8);
	part(box, dst, src, 0, whole_rows, whole_columns, columns - whole_columns);
	part(box, dst, src, whole_rows, rows - whole_rows, 0, columns);
}

void hoist__loops_tile(const struct hoist__loops *box, char *dst, const char *src)
{
	int64_t step = box->item < BLOCK ? BLOCK / (int64_t)box->item : 1;
	for (int64_t i = 0; i < box->n[1]; i += step)
		for (int64_t j = 0; j < box->n[2]; j += step)
			block(box, dst + i * box->dst[1] + j * box->dst[2],
			      src + i * box->src[1] + j * box->src[2],
			      step < box->n[1] - i ? step : box->n[1] - i,
			      step < box->n[2] - j ? step : box->n[2] - j);
}
