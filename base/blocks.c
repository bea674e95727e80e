/* SPDX-License-Identifier: MIT */
/* Quantised blocks -> f32.
 * The contract is in base/blocks.h.
 *
 * Each type has a function that unpacks a block: the integers in the order of the elements, and the
 * scale, and perhaps the offset, of each group of elements.  One loop makes the values of all
 * types.  -ffp-contract=off (base/Makefile.am) keeps its product and its sum two operations. */
#include "config.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/blocks.h"
#include "base/convert.h"
#include "base/dtype.h"
#include "base/error.h"

#define MOST_ELEMENTS 256
#define MOST_GROUPS 16

struct unpacked {
	int8_t q[MOST_ELEMENTS];
	float scale[MOST_GROUPS];
	float offset[MOST_GROUPS]; /* of types that have offsets */
};

/* --- parts of blocks --- */

static float half_at(const uint8_t *bytes)
{
	uint32_t bits = hoist__from_f16(bytes[0] | (uint32_t)bytes[1] << 8);
	float ret;
	memcpy(&ret, &bits, sizeof ret);
	return ret;
}

/* Bits [@shift, @shift + @bits) of each of @n bytes, less @less. */
static void take_bits(const uint8_t *bytes, size_t n, unsigned shift, unsigned bits, int less,
		      int8_t *ret)
{
	for (size_t i = 0; i < n; i++)
		ret[i] = (int8_t)(((bytes[i] >> shift) & ((1u << bits) - 1)) - (unsigned)less);
}

/* The lower halves of @n bytes, then the upper halves. */
static void take_nibbles(const uint8_t *bytes, size_t n, int less, int8_t *ret)
{
	take_bits(bytes, n, 0, 4, less, ret);
	take_bits(bytes, n, 4, 4, less, ret + n);
}

static void look_up(const int8_t table[16], int8_t *q, size_t n)
{
	for (size_t i = 0; i < n; i++)
		q[i] = table[q[i]];
}

/* --- blocks of 32 --- */

static void unpack_q4_0(const uint8_t *block, struct unpacked *ret)
{
	ret->scale[0] = half_at(block);
	take_nibbles(block + 2, 16, 8, ret->q);
}

static void unpack_q4_1(const uint8_t *block, struct unpacked *ret)
{
	ret->scale[0] = half_at(block);
	ret->offset[0] = half_at(block + 2);
	take_nibbles(block + 4, 16, 0, ret->q);
}

/* The fifth bits of the 32 elements are the bits of a word of 32. */
static void add_fifth_bits(const uint8_t word[4], int less, int8_t q[32])
{
	for (size_t i = 0; i < 32; i++)
		q[i] = (int8_t)(q[i] + (((word[i / 8] >> (i % 8)) & 1) << 4) - less);
}

static void unpack_q5_0(const uint8_t *block, struct unpacked *ret)
{
	ret->scale[0] = half_at(block);
	take_nibbles(block + 6, 16, 0, ret->q);
	add_fifth_bits(block + 2, 16, ret->q);
}

static void unpack_q5_1(const uint8_t *block, struct unpacked *ret)
{
	ret->scale[0] = half_at(block);
	ret->offset[0] = half_at(block + 2);
	take_nibbles(block + 8, 16, 0, ret->q);
	add_fifth_bits(block + 4, 0, ret->q);
}

static void unpack_q8_0(const uint8_t *block, struct unpacked *ret)
{
	ret->scale[0] = half_at(block);
	memcpy(ret->q, block + 2, 32);
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
				      1,    13,	  25,  38,  53,	 69,  89,  113};

static void unpack_iq4_nl(const uint8_t *block, struct unpacked *ret)
{
	ret->scale[0] = half_at(block);
	take_nibbles(block + 2, 16, 0, ret->q);
	look_up(iq4_values, ret->q, 32);
}

/* OCP's e2m1, doubled, so that the values are whole; the scale, a power of two, is halved. */
static void unpack_mxfp4(const uint8_t *block, struct unpacked *ret)
{
	static const int8_t values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
	uint32_t exponent = block[0];
	uint32_t bits = exponent < 2 ? UINT32_C(0x200000) << exponent : (exponent - 1) << 23;
	memcpy(&ret->scale[0], &bits, sizeof bits);
	take_nibbles(block + 1, 16, 0, ret->q);
	look_up(values, ret->q, 32);
}

/* --- blocks of 256 --- */

/* Two bits an element: 4 x 32 elements of the first 32 bytes, 4 x 32 of the next. */
static void take_pairs(const uint8_t bytes[64], int8_t *ret)
{
	for (size_t i = 0; i < 8; i++)
		take_bits(bytes + i / 4 * 32, 32, (unsigned)(i % 4 * 2), 2, 0, ret + 32 * i);
}

static void unpack_q2_k(const uint8_t *block, struct unpacked *ret)
{
	float scale = half_at(block + 80);
	float offset = half_at(block + 82);
	for (size_t g = 0; g < 16; g++) {
		ret->scale[g] = scale * (float)(block[g] & 15);
		ret->offset[g] = -(offset * (float)(block[g] >> 4));
	}
	take_pairs(block + 16, ret->q);
}

/* A scale has six bits: four of a nibble of the first eight bytes, and two of the last four
 * bytes. */
static void unpack_q3_k(const uint8_t *block, struct unpacked *ret)
{
	const uint8_t *high = block;
	const uint8_t *scales = block + 96;
	float scale = half_at(block + 108);
	for (unsigned g = 0; g < 16; g++) {
		int low = (scales[g % 8] >> (g / 8 * 4)) & 15;
		int two = (scales[8 + g % 4] >> (g / 4 * 2)) & 3;
		ret->scale[g] = scale * (float)((low | two << 4) - 32);
	}
	take_pairs(block + 32, ret->q);
	for (size_t i = 0; i < 256; i++) /* 4 less where the element's bit is 0 */
		ret->q[i] = (int8_t)(ret->q[i] - ((~high[i % 32] >> (i / 32) & 1) << 2));
}

/* Scales and offsets of q4_k and q5_k have six bits each, in twelve bytes. */
static void take_scales(const uint8_t *block, struct unpacked *ret)
{
	const uint8_t *packed = block + 4;
	float scale = half_at(block);
	float offset = half_at(block + 2);
	for (size_t g = 0; g < 8; g++) {
		int s = packed[g % 4] & 63;
		int m = packed[g % 4 + 4] & 63;
		if (g >= 4) {
			s = (packed[g + 4] & 15) | (packed[g - 4] >> 6) << 4;
			m = packed[g + 4] >> 4 | (packed[g] >> 6) << 4;
		}
		ret->scale[g] = scale * (float)s;
		ret->offset[g] = -(offset * (float)m);
	}
}

static void unpack_q4_k(const uint8_t *block, struct unpacked *ret)
{
	take_scales(block, ret);
	for (size_t i = 0; i < 4; i++)
		take_nibbles(block + 16 + 32 * i, 32, 0, ret->q + 64 * i);
}

static void unpack_q5_k(const uint8_t *block, struct unpacked *ret)
{
	const uint8_t *high = block + 16;
	take_scales(block, ret);
	for (size_t i = 0; i < 4; i++)
		take_nibbles(block + 48 + 32 * i, 32, 0, ret->q + 64 * i);
	for (size_t i = 0; i < 256; i++)
		ret->q[i] = (int8_t)(ret->q[i] + ((high[i % 32] >> (i / 32) & 1) << 4));
}

/* Each half of the block has 64 bytes of lower four bits, and 32 bytes of upper two. */
static void unpack_q6_k(const uint8_t *block, struct unpacked *ret)
{
	float scale = half_at(block + 208);
	for (size_t half = 0; half < 2; half++) {
		const uint8_t *high = block + 128 + 32 * half;
		int8_t *q = ret->q + 128 * half;
		take_nibbles(block + 64 * half, 64, 32, q);
		for (size_t i = 0; i < 128; i++)
			q[i] = (int8_t)(q[i] + ((high[i % 32] >> (i / 32 * 2) & 3) << 4));
	}
	for (size_t g = 0; g < 16; g++)
		ret->scale[g] = scale * (float)(int8_t)block[192 + g];
}

static void unpack_iq4_xs(const uint8_t *block, struct unpacked *ret)
{
	float scale = half_at(block);
	for (unsigned g = 0; g < 8; g++) {
		int low = block[4 + g / 2] >> (g % 2 * 4) & 15;
		int two = block[2 + g / 4] >> (g % 4 * 2) & 3;
		ret->scale[g] = scale * (float)((low | two << 4) - 32);
		take_nibbles(block + 8 + 16 * g, 16, 0, ret->q + 32 * g);
	}
	look_up(iq4_values, ret->q, 256);
}

/* --- all types --- */

static const struct type {
	hoist_dtype dtype;
	unsigned group; /* elements that share a scale */
	bool has_offset;
	void (*unpack)(const uint8_t *block, struct unpacked *ret);
} types[] = {
	{HOIST_Q4_0, 32, false, unpack_q4_0},	  {HOIST_Q4_1, 32, true, unpack_q4_1},
	{HOIST_Q5_0, 32, false, unpack_q5_0},	  {HOIST_Q5_1, 32, true, unpack_q5_1},
	{HOIST_Q8_0, 32, false, unpack_q8_0},	  {HOIST_Q2_K, 16, true, unpack_q2_k},
	{HOIST_Q3_K, 16, false, unpack_q3_k},	  {HOIST_Q4_K, 32, true, unpack_q4_k},
	{HOIST_Q5_K, 32, true, unpack_q5_k},	  {HOIST_Q6_K, 16, false, unpack_q6_k},
	{HOIST_IQ4_NL, 32, false, unpack_iq4_nl}, {HOIST_IQ4_XS, 32, false, unpack_iq4_xs},
	{HOIST_MXFP4, 32, false, unpack_mxfp4},
};

static const struct type *find(hoist_dtype dtype)
{
	const struct type *ret = NULL;
	for (size_t i = 0; i < sizeof types / sizeof types[0] && ret == NULL; i++)
		if (types[i].dtype == dtype)
			ret = &types[i];
	return ret;
}

bool hoist__blocks_are_known(hoist_dtype dtype)
{
	return find(dtype) != NULL;
}

/* Adding an offset of 0 would make a 0 of -0. */
static void multiply(const struct type *type, const struct unpacked *from, size_t n, float *ret)
{
	for (size_t g = 0; g < n / type->group; g++) {
		const int8_t *q = from->q + g * type->group;
		float *to = ret + g * type->group;
		if (type->has_offset)
			for (size_t i = 0; i < type->group; i++)
				to[i] = from->scale[g] * (float)q[i] + from->offset[g];
		else
			for (size_t i = 0; i < type->group; i++)
				to[i] = from->scale[g] * (float)q[i];
	}
}

int hoist__blocks_to_f32(hoist_dtype dtype, const void *blocks, size_t n_elements, float *ret)
{
	const struct type *type = find(dtype);
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	if (type == NULL)
		return hoist__fail(-ENOTSUP, "the values of %s blocks are not known to hoist",
				   info != NULL ? info->name : "these");
	if (n_elements % info->block_elements != 0)
		return hoist__fail(-EINVAL,
				   "%zu elements are not a whole number of %s blocks of %u",
				   n_elements, info->name, info->block_elements);
	const uint8_t *block = blocks;
	for (size_t i = 0; i < n_elements; i += info->block_elements) {
		struct unpacked unpacked;
		type->unpack(block, &unpacked);
		multiply(type, &unpacked, info->block_elements, ret + i);
		block += info->block_bytes;
	}
	return 0;
}
