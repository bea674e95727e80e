/* SPDX-License-Identifier: MIT */
/* base/strided-bits.c - copies elements of some bits: the nest counts bits instead of bytes.
 * The contract is in base/strided.h. */
#include "config.h"

#include "base/strided.h"

#include <endian.h>
#include <string.h>

/* Returns at least @bits bits (1..56) from bit @at (0..7) of @src on.  Reads only bytes that hold
 * some of them. */
static uint64_t load(const uint8_t *src, unsigned at, unsigned bits)
{
	uint64_t word = 0;
	unsigned bytes = (at + bits + 7) / 8;
	for (unsigned i = 0; i < bytes; i++)
		word |= (uint64_t)src[i] << (8 * i);
	return word >> at;
}

/* Writes the lowest @bits (1..8 - @at) of @value to bit @at of one byte. */
static void store_in_byte(uint8_t *dst, unsigned at, unsigned bits, uint64_t value)
{
	unsigned mask = ((1U << bits) - 1) << at;
	*dst = (uint8_t)((*dst & ~mask) | (((unsigned)value << at) & mask));
}

/* Writes @bits bits (1..56) to bit @at (0..7) of @dst.  Writes only bytes that hold some of
 * them. */
static void store(uint8_t *dst, unsigned at, unsigned bits, uint64_t value)
{
	while (bits > 0) {
		unsigned here = 8 - at < bits ? 8 - at : bits;
		store_in_byte(dst++, at, here, value);
		value >>= here;
		bits -= here;
		at = 0;
	}
}

/* Copies a run of @bits bits between any two places. */
static void copy_run(uint8_t *dst, int64_t dst_at, const uint8_t *src, int64_t src_at, size_t bits)
{
	dst += dst_at >> 3;
	src += src_at >> 3;
	unsigned to = (unsigned)dst_at & 7;
	unsigned from = (unsigned)src_at & 7;
	if (to > 0 && bits >= 64) { /* afterwards dst continues with whole bytes */
		unsigned head = 8 - to;
		store_in_byte(dst++, to, head, load(src, from, head));
		src += (from + head) / 8;
		from = (from + head) % 8;
		to = 0;
		bits -= head;
	}
	if (to == 0 && from == 0) {
		memcpy(dst, src, bits / 8);
		dst += bits / 8;
		src += bits / 8;
		bits %= 8;
	}
	/* from > 0: 9 bytes are read */
	for (; to == 0 && bits >= 64; bits -= 64, dst += 8, src += 8) {
		uint64_t word;
		memcpy(&word, src, sizeof word);
		word = htole64(le64toh(word) >> from | (uint64_t)src[8] << (64 - from));
		memcpy(dst, &word, sizeof word);
	}
	while (bits > 0) {
		unsigned now = bits < 56 ? (unsigned)bits : 56;
		store(dst, to, now, load(src, from, now));
		dst += 7;
		src += 7;
		bits -= now;
	}
}

/* Copies one element of at most 8 bits, which lies in one byte or in two. */
static inline void copy_one(uint8_t *dst, int64_t dst_at, const uint8_t *src, int64_t src_at,
			    unsigned bits)
{
	unsigned to = (unsigned)dst_at & 7;
	unsigned from = (unsigned)src_at & 7;
	dst += dst_at >> 3;
	src += src_at >> 3;
	unsigned value = src[0];
	if (from + bits > 8)
		value |= (unsigned)src[1] << 8;
	unsigned mask = ((1U << bits) - 1) << to;
	value = (value >> from) << to & mask;
	dst[0] = (uint8_t)((dst[0] & ~mask) | value);
	if (to + bits > 8)
		dst[1] = (uint8_t)((dst[1] & ~(mask >> 8)) | value >> 8);
}

/* The innermost loop. */
static void copy_line(const struct hoist__nest *nest, uint8_t *dst, int64_t dst_at,
		      const uint8_t *src, int64_t src_at)
{
	int loop = nest->rank - 1;
	int64_t n = loop < 0 ? 1 : nest->extents[loop];
	int64_t dst_step = loop < 0 ? 0 : nest->dst_strides[loop];
	int64_t src_step = loop < 0 ? 0 : nest->src_strides[loop];
	for (; n > 0; n--, dst_at += dst_step, src_at += src_step)
		if (nest->item <= 8)
			copy_one(dst, dst_at, src, src_at, (unsigned)nest->item);
		else
			copy_run(dst, dst_at, src, src_at, nest->item);
}

/* Turns a nest of bits into one of bytes, if every place and size is whole bytes. */
static bool in_bytes(struct hoist__nest *nest)
{
	int64_t any = (int64_t)nest->item | nest->dst_offset | nest->src_offset;
	for (int i = 0; i < nest->rank; i++)
		any |= nest->dst_strides[i] | nest->src_strides[i];
	if ((any & 7) != 0)
		return false;
	nest->item /= 8;
	nest->dst_offset /= 8;
	nest->src_offset /= 8;
	for (int i = 0; i < nest->rank; i++) {
		nest->dst_strides[i] /= 8;
		nest->src_strides[i] /= 8;
	}
	return true;
}

/* If every place and size is whole bytes, the copy of bytes does the work. */
void hoist__bits_copy(int rank, const int64_t *shape, unsigned bits, void *dst, unsigned dst_bit,
		      const int64_t *dst_strides, const void *src, unsigned src_bit,
		      const int64_t *src_strides)
{
	struct hoist__nest nest;
	if (!hoist__nest_make(rank, shape, dst_strides, src_strides, bits, &nest))
		return;
	nest.dst_offset += dst_bit;
	nest.src_offset += src_bit;
	if (in_bytes(&nest)) {
		hoist__nest_copy(&nest, dst, src);
		return;
	}
	int64_t to = nest.dst_offset;
	int64_t from = nest.src_offset;
	int64_t index[HOIST__MAX_RANK];
	memset(index, 0, (size_t)nest.rank * sizeof index[0]);
	for (;;) {
		copy_line(&nest, dst, to, src, from);
		int i = nest.rank - 2;
		for (; i >= 0 && ++index[i] == nest.extents[i]; i--) {
			index[i] = 0;
			to -= (nest.extents[i] - 1) * nest.dst_strides[i];
			from -= (nest.extents[i] - 1) * nest.src_strides[i];
		}
		if (i < 0)
			return;
		to += nest.dst_strides[i];
		from += nest.src_strides[i];
	}
}
