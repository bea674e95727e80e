/* SPDX-License-Identifier: MIT */
/* Copies by hand: the peers of hoist's copies.  The contract is in copy-loops.h. */
#include "config.h"

#include "bench/copy-loops.h"

#include <string.h>

/* The loops are optimised as far as the compiler can, but stay loops: gcc would replace some by
 * memcpy(). */
#ifndef __clang__
#pragma GCC optimize("O3", "no-tree-loop-distribute-patterns")
#endif

void copy_memcpy(const struct copy_loops *loops, void *dst, const void *src)
{
	memcpy(dst, src, (size_t)(loops->n[0] * loops->n[1] * loops->n[2]) * loops->item);
}

void copy_words(const struct copy_loops *loops, void *dst, const void *src)
{
	uint64_t *restrict to = dst;
	const uint64_t *restrict from = src;
	size_t n = (size_t)(loops->n[0] * loops->n[1] * loops->n[2]) * loops->item / sizeof *to;
	for (size_t i = 0; i < n; i++)
		to[i] = from[i];
}

void copy_rows(const struct copy_loops *loops, void *dst, const void *src)
{
	size_t item = loops->item;
	size_t bytes = (size_t)loops->n[2] * item;
	for (int64_t i = 0; i < loops->n[0]; i++)
		for (int64_t j = 0; j < loops->n[1]; j++)
			memcpy((char *)dst +
				       (i * loops->dst[0] + j * loops->dst[1]) * (int64_t)item,
			       (const char *)src +
				       (i * loops->src[0] + j * loops->src[1]) * (int64_t)item,
			       bytes);
}

#define FIXED_ROWS(bytes)                                                                          \
	for (int64_t i = 0; i < loops->n[0]; i++)                                                  \
		for (int64_t j = 0; j < loops->n[1]; j++)                                          \
	memcpy((char *)dst + (i * loops->dst[0] + j * loops->dst[1]) * (int64_t)item,              \
	       (const char *)src + (i * loops->src[0] + j * loops->src[1]) * (int64_t)item, bytes)

void copy_fixed_rows(const struct copy_loops *loops, void *dst, const void *src)
{
	size_t item = loops->item;
	size_t bytes = (size_t)loops->n[2] * item;
	if (bytes == 256)
		FIXED_ROWS(256);
	else if (bytes == 1024)
		FIXED_ROWS(1024);
	else if (bytes == 4096)
		FIXED_ROWS(4096);
	else
		copy_rows(loops, dst, src);
}

/* The same loops for each type of item. */
#define LOOPS(type)                                                                                \
	static void dense_##type(const struct copy_loops *loops, type *restrict dst,               \
				 const type *restrict src)                                         \
	{                                                                                          \
		for (int64_t i = 0; i < loops->n[0]; i++)                                          \
			for (int64_t j = 0; j < loops->n[1]; j++) {                                \
				type *restrict to = dst + i * loops->dst[0] + j * loops->dst[1];   \
				const type *restrict from =                                        \
					src + i * loops->src[0] + j * loops->src[1];               \
				for (int64_t k = 0; k < loops->n[2]; k++)                          \
					to[k] = from[k];                                           \
			}                                                                          \
	}                                                                                          \
	static void plane_##type(type *restrict dst, const type *restrict src, int64_t rows,       \
				 int64_t columns, int64_t dst_row, int64_t dst_column,             \
				 int64_t src_row, int64_t src_column)                              \
	{                                                                                          \
		for (int64_t j = 0; j < rows; j++)                                                 \
			for (int64_t k = 0; k < columns; k++)                                      \
				dst[j * dst_row + k * dst_column] =                                \
					src[j * src_row + k * src_column];                         \
	}                                                                                          \
	static void items_##type(const struct copy_loops *loops, type *dst, const type *src)       \
	{                                                                                          \
		for (int64_t i = 0; i < loops->n[0]; i++)                                          \
			plane_##type(dst + i * loops->dst[0], src + i * loops->src[0],             \
				     loops->n[1], loops->n[2], loops->dst[1], loops->dst[2],       \
				     loops->src[1], loops->src[2]);                                \
	}                                                                                          \
	static void swapped_##type(const struct copy_loops *loops, type *dst, const type *src)     \
	{                                                                                          \
		for (int64_t i = 0; i < loops->n[0]; i++)                                          \
			plane_##type(dst + i * loops->dst[0], src + i * loops->src[0],             \
				     loops->n[2], loops->n[1], loops->dst[2], loops->dst[1],       \
				     loops->src[2], loops->src[1]);                                \
	}                                                                                          \
	static void blocked_##type(const struct copy_loops *loops, type *dst, const type *src)     \
	{                                                                                          \
		const int64_t *n = loops->n;                                                       \
		int64_t side = 64 / (int64_t)sizeof(type);                                         \
		for (int64_t i = 0; i < n[0]; i++)                                                 \
			for (int64_t j = 0; j < n[1]; j += side)                                   \
				for (int64_t k = 0; k < n[2]; k += side)                           \
					plane_##type(dst + i * loops->dst[0] + j * loops->dst[1] + \
							     k * loops->dst[2],                    \
						     src + i * loops->src[0] + j * loops->src[1] + \
							     k * loops->src[2],                    \
						     side < n[1] - j ? side : n[1] - j,            \
						     side < n[2] - k ? side : n[2] - k,            \
						     loops->dst[1], loops->dst[2], loops->src[1],  \
						     loops->src[2]);                               \
	}
LOOPS(uint8_t)
LOOPS(uint16_t)
LOOPS(uint32_t)

#define BY_ITEM(name, which)                                                                       \
	void name(const struct copy_loops *loops, void *dst, const void *src)                      \
	{                                                                                          \
		if (loops->item == 1)                                                              \
			which##_uint8_t(loops, dst, src);                                          \
		else if (loops->item == 2)                                                         \
			which##_uint16_t(loops, dst, src);                                         \
		else                                                                               \
			which##_uint32_t(loops, dst, src);                                         \
	}
BY_ITEM(copy_items_dense, dense)
BY_ITEM(copy_items, items)
BY_ITEM(copy_items_swapped, swapped)
BY_ITEM(copy_items_blocked, blocked)

bool copy_is_right(const struct copy_loops *loops, const void *dst, const void *src)
{
	for (int64_t i = 0; i < loops->n[0]; i++)
		for (int64_t j = 0; j < loops->n[1]; j++)
			for (int64_t k = 0; k < loops->n[2]; k++) {
				int64_t to =
					i * loops->dst[0] + j * loops->dst[1] + k * loops->dst[2];
				int64_t from =
					i * loops->src[0] + j * loops->src[1] + k * loops->src[2];
				if (memcmp((const char *)dst + to * (int64_t)loops->item,
					   (const char *)src + from * (int64_t)loops->item,
					   loops->item) != 0)
					return false;
			}
	return true;
}
