/* SPDX-License-Identifier: MIT */
/* base/strided.c - makes nests of loops, and runs them.
 * The contract is in base/strided.h. */
#include "config.h"

#include "base/strided.h"

#include <stdlib.h>
#include <string.h>

#include "base/strided-box.h"

/* Below this many bytes, the call of a special loop costs more than it saves. */
#define WORTH_A_CALL 256

/* An item of more bytes uses so much of a line that blocks gain less than they cost. */
#define SMALL_ITEM 16

/* Inserts a loop in its place in the order: inside those with larger strides in dst. */
static void insert(struct hoist__nest *nest, int64_t n, int64_t dst, int64_t src)
{
	int at = nest->rank++;
	for (; at > 0 && nest->dst_strides[at - 1] < dst; at--) {
		nest->extents[at] = nest->extents[at - 1];
		nest->dst_strides[at] = nest->dst_strides[at - 1];
		nest->src_strides[at] = nest->src_strides[at - 1];
	}
	nest->extents[at] = n;
	nest->dst_strides[at] = dst;
	nest->src_strides[at] = src;
}

/* Joins each loop with the one inside it if both sides continue without a gap. */
static void merge(struct hoist__nest *nest)
{
	int kept = 0;
	for (int i = 1; i < nest->rank; i++) {
		int64_t n = nest->extents[i];
		if (nest->dst_strides[kept] == nest->dst_strides[i] * n &&
		    nest->src_strides[kept] == nest->src_strides[i] * n)
			n *= nest->extents[kept];
		else
			kept++;
		nest->extents[kept] = n;
		nest->dst_strides[kept] = nest->dst_strides[i];
		nest->src_strides[kept] = nest->src_strides[i];
	}
	if (nest->rank > 0)
		nest->rank = kept + 1;
	/* After merging, only the innermost loop can have both strides equal to one item. */
	int64_t item = (int64_t)nest->item;
	if (nest->rank > 0 && nest->dst_strides[kept] == item && nest->src_strides[kept] == item) {
		nest->item *= (size_t)nest->extents[kept];
		nest->rank = kept;
	}
}

/* An axis with a negative stride in dst is walked backwards.  With a stride of 0 in dst the last
 * index wins, so that only that index is copied. */
bool hoist__nest_make(int rank, const int64_t *shape, const int64_t *dst_strides,
		      const int64_t *src_strides, size_t bytes, struct hoist__nest *ret)
{
	for (int i = 0; i < rank; i++)
		if (shape[i] == 0)
			return false;
	ret->rank = 0;
	ret->item = bytes;
	ret->dst_offset = 0;
	ret->src_offset = 0;
	for (int i = 0; i < rank; i++) {
		int64_t n = shape[i];
		if (n == 1)
			continue;
		int64_t dst = dst_strides[i] * (int64_t)bytes;
		int64_t src = src_strides[i] * (int64_t)bytes;
		if (dst <= 0) {
			ret->dst_offset += (n - 1) * dst;
			ret->src_offset += (n - 1) * src;
		}
		if (dst > 0)
			insert(ret, n, dst, src);
		else if (dst < 0)
			insert(ret, n, -dst, -src);
	}
	merge(ret);
	return true;
}

/* Returns the loop with the smallest steps in src, if they are smaller than the innermost
 * loop's; -1: none.  Lines of src run along that loop, and should be used up before they leave
 * the cache. */
static int across(const struct hoist__nest *nest)
{
	int last = nest->rank - 1;
	int best = last;
	for (int i = 0; i < last; i++)
		if (llabs(nest->src_strides[i]) < llabs(nest->src_strides[best]))
			best = i;
	return best == last ? -1 : best;
}

typedef void (*loops_function)(const struct hoist__loops *box, char *dst, const char *src);

static void set_loop(struct hoist__loops *box, int at, const struct hoist__nest *nest, int loop)
{
	box->n[at] = loop < 0 ? 1 : nest->extents[loop];
	box->dst[at] = loop < 0 ? 0 : nest->dst_strides[loop];
	box->src[at] = loop < 0 ? 0 : nest->src_strides[loop];
}

/* Takes the loops of the box out of the nest, and leaves the others in @outer.
 * Returns: the function that runs the box. */
static loops_function choose(const struct hoist__nest *nest, struct hoist__loops *box,
			     struct hoist__nest *outer)
{
	int last = nest->rank - 1;
	int row = across(nest);
	loops_function run = hoist__loops_copy;
	int64_t item = (int64_t)nest->item;
	int64_t line = nest->extents[last] * item;

	box->item = nest->item;
	outer->rank = 0;
	if (row >= 0 && item <= SMALL_ITEM && nest->extents[row] * line >= WORTH_A_CALL) {
		for (int i = 0; i < last; i++)
			if (i != row)
				insert(outer, nest->extents[i], nest->dst_strides[i],
				       nest->src_strides[i]);
		set_loop(box, 0, nest, -1);
		set_loop(box, 1, nest, row);
		set_loop(box, 2, nest, last);
		return hoist__loops_tile;
	}
	if (nest->src_strides[last] == 0 && nest->dst_strides[last] == item && line >= WORTH_A_CALL)
		run = hoist__loops_fill;
	for (int i = 0; i < last - 2; i++)
		insert(outer, nest->extents[i], nest->dst_strides[i], nest->src_strides[i]);
	for (int i = 0; i < 3; i++)
		set_loop(box, i, nest, last - 2 + i);
	return run;
}

void hoist__nest_copy(const struct hoist__nest *nest, void *dst, const void *src)
{
	char *to = (char *)dst + nest->dst_offset;
	const char *from = (const char *)src + nest->src_offset;
	if (nest->rank == 0) {
		memcpy(to, from, nest->item);
		return;
	}
	struct hoist__loops box;
	struct hoist__nest outer;
	int64_t index[HOIST__MAX_RANK];
	loops_function run = choose(nest, &box, &outer);
	memset(index, 0, (size_t)outer.rank * sizeof index[0]);
	for (;;) {
		run(&box, to, from);
		/* The outer axes count like an odometer: a full axis goes back to its start and
		 * carries. */
		int i = outer.rank - 1;
		for (; i >= 0 && ++index[i] == outer.extents[i]; i--) {
			index[i] = 0;
			to -= (outer.extents[i] - 1) * outer.dst_strides[i];
			from -= (outer.extents[i] - 1) * outer.src_strides[i];
		}
		if (i < 0)
			return;
		to += outer.dst_strides[i];
		from += outer.src_strides[i];
	}
}
