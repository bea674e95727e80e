/* SPDX-License-Identifier: MIT */
/* Makes checkpoints of structs by chance, and compares elements with their bytes. */
#include "config.h"

#include "tests/support/lib-plan-random.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/minifloat.h"

static uint64_t (*below)(uint64_t n);
static const struct plan_model_size *limits;

static hoist_dtype some_dtype(void)
{
	static const hoist_dtype dtypes[] = {
		HOIST_F32,  HOIST_F16, HOIST_BF16, HOIST_U8,   HOIST_F32,	HOIST_F16,
		HOIST_BF16, HOIST_F64, HOIST_Q4_0, HOIST_Q8_0, HOIST_F4_E2M1FN, HOIST_F6_E2M3FN};
	return dtypes[below(HOIST__ARRAY_SIZE(dtypes))];
}

/* Small, or with rows so far apart that gaps are worth leaving out. */
static int some_shape(hoist_dtype dtype, int64_t shape[4])
{
	const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
	int64_t unit = info->block_elements > 1 ? info->block_elements : info->bits < 8 ? 4 : 1;
	bool wide = below(2) == 0;
	int rank = wide ? 2 + (int)below(3) : (int)below(5);
	if (unit > 1 && rank == 0)
		rank = 1;
	uint64_t most = wide ? limits->tensor_bytes : limits->tensor_bytes / 6;
	for (int a = 0; a < rank; a++)
		shape[a] = (int64_t)(wide ? 1 : 0) + (int64_t)below(7);
	if (rank > 0) {
		int64_t last = wide ? 4096 * (1 + (int64_t)below(15)) : (int64_t)below(300);
		if (wide && below(2) == 0)
			last += (int64_t)below(2000) * unit;
		shape[rank - 1] = last / unit * unit;
	}
	/* Narrow rows of many, and those far apart. */
	if (wide && rank > 2 && below(2) == 0) {
		shape[rank - 2] = 100 + (int64_t)below(1000);
		shape[rank - 1] = (1 + (int64_t)below(8)) * unit;
	}
	/* Sub-byte rows that end in the middle of a byte, as long as the whole does not. */
	if (info->bits == 4 && rank == 2 && below(2) == 0)
		shape[0] = 2 * (1 + (int64_t)below(3)), shape[1] = shape[1] + 1;
	for (;;) {
		uint64_t n = 1;
		int largest = 0;
		for (int a = 0; a < rank; a++) {
			n *= (uint64_t)shape[a];
			largest = a < rank - 1 && shape[a] > shape[largest] ? a : largest;
		}
		if (n == 0 || plan_bytes(dtype, n) <= most)
			return rank;
		bool may_halve = info->bits != 4 || shape[rank - 1] <= unit;
		int a = rank > 1 && shape[largest] > 1 && may_halve ? largest : rank - 1;
		shape[a] = a < rank - 1 ? shape[a] / 2 : shape[a] / 2 / unit * unit;
		if (shape[a] == 0)
			shape[a] = unit;
	}
}

/* With gaps between elements, or axes exchanged. */
static void make_strided(struct hoist__tensor *tensor, int64_t strides[4])
{
	if (tensor->rank != 2 || tensor->bytes == 0 || tensor->bytes > 100000 || below(3) > 0 ||
	    hoist__dtype_info(tensor->dtype)->bits < 8)
		return;
	uint64_t size = plan_bytes(tensor->dtype, 1);
	strides[0] = 1 + (int64_t)below(2);
	strides[1] = tensor->shape[0] * strides[0] + (int64_t)below(2);
	tensor->strides = strides;
	tensor->bytes = size * (uint64_t)(1 + (tensor->shape[0] - 1) * strides[0] +
					  (tensor->shape[1] - 1) * strides[1]);
}

/* Small tensors lie close together. */
static bool are_small(void)
{
	return limits->tensor_bytes < 4096;
}

static uint64_t some_gap(void)
{
	if (are_small())
		return below(8) > 0 ? 0 : below(40) > 0 ? below(64) : below(40000);
	switch (below(8)) {
	case 0:
		return below(64);
	case 1:
		return below(40000);
	default:
		return 0;
	}
}

/* Offsets ascend; where tensors overlap, they begin anywhere behind the one before's beginning. */
void plan_make_random(const struct plan_model_size *size, uint64_t (*choose)(uint64_t n))
{
	limits = size;
	below = choose;
	plan_begin();
	size_t least = are_small() ? limits->tensors / 2 : 1;
	size_t n = least + below(limits->tensors + 1 - least);
	size_t file = 0;
	bool overlap = below(3) == 0;
	uint64_t offset = below(2) ? 4096 : 8 + below(5000);
	for (size_t i = 0; i < n; i++) {
		int64_t shape[4];
		hoist_dtype dtype = some_dtype();
		int rank = some_shape(dtype, shape);
		if (offset + 800000 > PLAN_FILE_BYTES || below(are_small() ? 99 : 12) == 0) {
			if (file + 1 == PLAN_FILES)
				break;
			file++;
			offset = 8 + below(5000);
		}
		struct hoist__tensor *tensor = plan_add(file, offset, dtype, rank, shape);
		if (overlap)
			make_strided(tensor, plan_made.strides[i]);
		offset +=
			overlap && below(2) ? below(tensor->bytes + 1) : tensor->bytes + some_gap();
	}
	plan_made.files[1].offset_align = below(2) ? 16384 : 512;
}

/* --- comparing --- */

static double value_at(hoist_dtype dtype, const unsigned char *bytes)
{
	uint32_t code = 0;
	memcpy(&code, bytes, hoist_dtype_bits(dtype) / 8);
	return hoist__minifloat_decode(hoist__minifloat_of(dtype), code);
}

static bool is_element(hoist_dtype to, const unsigned char *got, hoist_dtype from,
		       const unsigned char *stored)
{
	double value = value_at(from, stored);
	if (isnan(value))
		return isnan(value_at(to, got));
	uint64_t code = hoist__minifloat_encode(hoist__minifloat_of(to), hoist__real_of(value), 0);
	return memcmp(&code, got, hoist_dtype_bits(to) / 8) == 0;
}

static unsigned bit_of(const unsigned char *bytes, uint64_t bit)
{
	return bytes[bit / 8] >> (bit % 8) & 1;
}

/* Element @to of the destination is element @from of the file. */
static bool same(const struct hoist__tensor *tensor, const unsigned char *file, hoist_dtype dtype,
		 const unsigned char *got, uint64_t to, uint64_t from)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	if (info->block_elements > 1)
		return memcmp(got + to / info->block_elements * info->block_bytes,
			      file + from / info->block_elements * info->block_bytes,
			      info->block_bytes) == 0;
	if (dtype != tensor->dtype)
		return is_element(dtype, got + to * (hoist_dtype_bits(dtype) / 8), tensor->dtype,
				  file + from * (info->bits / 8));
	bool ret = true;
	if (info->bits % 8 == 0)
		return memcmp(got + to * info->bits / 8, file + from * info->bits / 8,
			      info->bits / 8) == 0;
	for (unsigned b = 0; b < info->bits; b++)
		ret = ret &&
		      bit_of(got, to * info->bits + b) == bit_of(file, from * info->bits + b);
	return ret;
}

uint64_t plan_count_wrong(const struct hoist__tensor *tensor, hoist_dtype dtype,
			  const unsigned char *got, uint64_t to, uint64_t from, uint64_t n)
{
	const unsigned char *file =
		plan_made.bytes[plan_made.entries[tensor - plan_made.tensors].file] +
		tensor->offset;
	const struct hoist__dtype_info *info = hoist__dtype_info(tensor->dtype);
	const uint64_t bytes = info->bits / 8;
	uint64_t n_bad = 0;
	if (dtype == tensor->dtype && info->block_elements <= 1 && info->bits % 8 == 0 &&
	    memcmp(got + to * bytes, file + from * bytes, n * bytes) == 0)
		return 0;
	for (uint64_t i = 0; i < n; i++)
		n_bad += !same(tensor, file, dtype, got, to + i, from + i);
	return n_bad;
}
