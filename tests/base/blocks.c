/* SPDX-License-Identifier: MIT */
/* Quantised blocks: values to the bit as gguf-py has them. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/blocks.h"
#include "base/dtype.h"
#include "base/error.h"

enum { BLOCKS = 1000 };

/* FNV-1a over the bits of the values, word by word, NaNs being 0x7fc00000; and the second value.
 * The values are those of 1,000 blocks of a generator's bytes, seeded with the dtype: some scales
 * are NaNs and subnormals.  Blocks 10 and 11 are infinities, 0x7c00 and 0xfc00 over and over.  Made
 * with gguf-py 0.19's gguf.quants.dequantize(). */
static const struct vector {
	hoist_dtype dtype;
	uint64_t digest;
	uint32_t second;
} vectors[] = {
	{HOIST_Q4_0, UINT64_C(0xd20a6a23aece7725), 0xbc8a8400},
	{HOIST_Q4_1, UINT64_C(0x35f76a9377ab6a05), 0x7fc00000},
	{HOIST_Q5_0, UINT64_C(0xe124848212c01925), 0xc13d6800},
	{HOIST_Q5_1, UINT64_C(0xbc7adbd5b7f8c32f), 0xc58d3d62},
	{HOIST_Q8_0, UINT64_C(0x662f4f1e7c3ab125), 0x3bf9ce00},
	{HOIST_Q2_K, UINT64_C(0xc79d038df7fbd579), 0x46583800},
	{HOIST_Q3_K, UINT64_C(0xc0ea53f045f35465), 0x80000000},
	{HOIST_Q4_K, UINT64_C(0xc71ab025f5c6dcbe), 0x45716e78},
	{HOIST_Q5_K, UINT64_C(0x201186e314bef977), 0x440c17ee},
	{HOIST_Q6_K, UINT64_C(0xd20db1c74c650355), 0xc604f9e0},
	{HOIST_IQ4_NL, UINT64_C(0xc8a2dfa4e5c7b5a5), 0x49911cc0},
	{HOIST_IQ4_XS, UINT64_C(0x440204955b4b8bb7), 0xbf9a4c00},
	{HOIST_MXFP4, UINT64_C(0xa92454a17aaf6725), 0xd8800000},
};

static uint32_t bits_of(float value)
{
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return isnan(value) ? 0x7fc00000 : bits;
}

Test(base_blocks, values_are_those_of_gguf_py)
{
	for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++) {
		const struct hoist__dtype_info *info = hoist__dtype_info(vectors[v].dtype);
		size_t bytes = (size_t)BLOCKS * info->block_bytes;
		size_t n = (size_t)BLOCKS * info->block_elements;
		unsigned char *blocks = malloc(bytes + 1);
		float *values = malloc(n * sizeof *values);
		cr_assert(blocks != NULL && values != NULL);
		uint64_t state = vectors[v].dtype;
		for (size_t i = 0; i < bytes; i++) {
			state = state * UINT64_C(6364136223846793005) +
				UINT64_C(1442695040888963407);
			blocks[i + 1] = (unsigned char)(state >> 56); /* not aligned */
		}
		for (size_t i = 0; i < 2 * info->block_bytes; i++) {
			size_t in_block = i % info->block_bytes;
			int high = i < info->block_bytes ? 0x7c : 0xfc;
			blocks[10 * info->block_bytes + i + 1] =
				(unsigned char)(in_block % 2 != 0 ? high : 0);
		}
		cr_assert_eq(hoist__blocks_to_f32(vectors[v].dtype, blocks + 1, n, values), 0);
		uint64_t digest = UINT64_C(0xcbf29ce484222325);
		for (size_t i = 0; i < n; i++)
			digest = (digest ^ bits_of(values[i])) * UINT64_C(0x100000001b3);
		cr_expect_eq(bits_of(values[1]), vectors[v].second, "%s: %08x", info->name,
			     bits_of(values[1]));
		cr_expect_eq(digest, vectors[v].digest, "%s", info->name);
		cr_expect(hoist__blocks_are_known(vectors[v].dtype));
		free(values);
		free(blocks);
	}
}

Test(base_blocks, other_types_and_parts_of_blocks_are_refused)
{
	unsigned char block[292] = {0};
	float values[1] = {7};
	for (hoist_dtype dtype = 0; dtype < 200; dtype++) {
		bool known = false;
		for (size_t v = 0; v < sizeof vectors / sizeof vectors[0]; v++)
			known = known || vectors[v].dtype == dtype;
		cr_expect_eq(hoist__blocks_are_known(dtype), known, "%d", (int)dtype);
		int err = hoist__blocks_to_f32(dtype, block, 1, values);
		cr_expect_eq(err, known ? -EINVAL : -ENOTSUP, "%d", (int)dtype);
		cr_expect_eq(hoist__blocks_to_f32(dtype, block, 0, values), known ? 0 : -ENOTSUP);
	}
	cr_expect_eq(values[0], 7.0f);
	cr_expect_eq(hoist__blocks_to_f32(HOIST_Q2_0, block, 0, values), -ENOTSUP);
	cr_expect_str_eq(hoist_error(), "the values of q2_0 blocks are not known to hoist");
}
