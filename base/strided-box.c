/* SPDX-License-Identifier: MIT */
/* base/strided-box.c - the inner loops of a strided copy, without transposing.
 * The contract is in base/strided-box.h. */
#include "config.h"

#include "base/strided-box.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* The loops below are written once, for items of @item bytes that are moved as two parts of @part
 * bytes.  The parts may overlap (5 bytes: [0..3] and [1..4]).  If both sizes are the same constant,
 * there is one part.  The compiler makes a loop for each constant. */
INLINE void put(char *dst, const char *src, size_t item, size_t part)
{
	memcpy(dst, src, part);
	if (item != part)
		memcpy(dst + item - part, src + item - part, part);
}

INLINE void line(char *dst, const char *src, int64_t n, int64_t dst_step, int64_t src_step,
		 size_t item, size_t part)
{
	for (; n >= 4; n -= 4) {
		put(dst, src, item, part);
		put(dst + dst_step, src + src_step, item, part);
		put(dst + 2 * dst_step, src + 2 * src_step, item, part);
		put(dst + 3 * dst_step, src + 3 * src_step, item, part);
		dst += 4 * dst_step;
		src += 4 * src_step;
	}
	for (; n > 0; n--) {
		put(dst, src, item, part);
		dst += dst_step;
		src += src_step;
	}
}

INLINE void loops(const struct hoist__loops *box, char *dst, const char *src, size_t item,
		  size_t part)
{
	for (int64_t i = 0; i < box->n[0]; i++)
		for (int64_t j = 0; j < box->n[1]; j++)
			line(dst + i * box->dst[0] + j * box->dst[1],
			     src + i * box->src[0] + j * box->src[1], box->n[2], box->dst[2],
			     box->src[2], item, part);
}

/* Runs of more than 64 bytes.  A call of memcpy() takes as long as moving some hundred bytes.  In
 * the first cache level, where memcpy()'s wide registers count, short runs are worth the call;
 * beyond it only long ones. */
enum { PIECE = 64, NEAR = 16 << 10, CALL_NEAR = 512, CALL_FAR = 2048 };

INLINE void put_run(char *dst, const char *src, size_t bytes, size_t call)
{
	if (bytes >= call) {
		memcpy(dst, src, bytes);
		return;
	}
	for (size_t at = 0; at < bytes - PIECE; at += PIECE)
		memcpy(dst + at, src + at, PIECE);
	memcpy(dst + bytes - PIECE, src + bytes - PIECE, PIECE);
}

/* The CPU fetches ahead by itself, but does not see where the next run begins. */
enum { FAR = 256 << 10, AHEAD = 512 };

INLINE void fetch(const char *src, size_t bytes)
{
	for (size_t at = 0; at < bytes && at < AHEAD; at += PIECE)
		__builtin_prefetch(src + at);
}

static void runs(const struct hoist__loops *box, char *dst, const char *src)
{
	int64_t n = box->n[2];
	size_t all = (size_t)(box->n[0] * box->n[1] * n) * box->item;
	size_t call = all <= NEAR ? CALL_NEAR : CALL_FAR;
	int64_t fetched = all >= FAR ? n - 1 : 0;
	for (int64_t i = 0; i < box->n[0]; i++)
		for (int64_t j = 0; j < box->n[1]; j++) {
			char *to = dst + i * box->dst[0] + j * box->dst[1];
			const char *from = src + i * box->src[0] + j * box->src[1];
			for (int64_t k = 0; k < n; k++) {
				if (k < fetched)
					fetch(from + box->src[2], box->item);
				put_run(to, from, box->item, call);
				to += box->dst[2];
				from += box->src[2];
			}
		}
}

/* Each call passes constants as sizes, for which the compiler makes a loop of its own.  An item of
 * another size is moved as two parts of the next smaller constant. */
void hoist__loops_copy(const struct hoist__loops *box, char *dst, const char *src)
{
	size_t item = box->item;
	if (item == 1)
		loops(box, dst, src, 1, 1);
	else if (item == 2)
		loops(box, dst, src, 2, 2);
	else if (item == 4)
		loops(box, dst, src, 4, 4);
	else if (item == 8)
		loops(box, dst, src, 8, 8);
	else if (item == 16)
		loops(box, dst, src, 16, 16);
	else if (item < 4)
		loops(box, dst, src, item, 2);
	else if (item < 8)
		loops(box, dst, src, item, 4);
	else if (item < 16)
		loops(box, dst, src, item, 8);
	else if (item <= 32)
		loops(box, dst, src, item, 16);
	else if (item <= 64)
		loops(box, dst, src, item, 32);
	else
		runs(box, dst, src);
}

/* Fills @bytes bytes with one item again and again.  The source of each copy stays in the cache. */
static void fill(char *dst, const char *item_at, size_t item, size_t bytes)
{
	enum { CHUNK = 4096 };
	if (memcmp(item_at, item_at + 1, item - 1) == 0) { /* all bytes of the item are the same */
		memset(dst, *item_at, bytes);
		return;
	}
	memcpy(dst, item_at, item);
	size_t have = item;
	for (size_t next; have < bytes; have += next) {
		next = have <= CHUNK ? have : CHUNK / item * item;
		if (next == 0)
			next = item;
		if (next > bytes - have)
			next = bytes - have;
		memcpy(dst + have, dst, next);
	}
}

void hoist__loops_fill(const struct hoist__loops *box, char *dst, const char *src)
{
	for (int64_t i = 0; i < box->n[0]; i++)
		for (int64_t j = 0; j < box->n[1]; j++)
			fill(dst + i * box->dst[0] + j * box->dst[1],
			     src + i * box->src[0] + j * box->src[1], box->item,
			     box->item * (size_t)box->n[2]);
}
