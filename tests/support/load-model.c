/* SPDX-License-Identifier: MIT */
/* Chooses what a load brings, and compares what came with the files' bytes at the places that
 * shapes, strides and ranges give. */
#include "config.h"

#include "tests/support/load-model.h"

#include <math.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/number.h"
#include "tests/support/load-support.h"

hoist_tensor_info load_info_of(hoist_checkpoint *checkpoint, size_t t)
{
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, t, &info));
	return info;
}

/* Elements that share bytes. */
static unsigned unit_of(hoist_dtype dtype, unsigned *bytes)
{
	hoist_dtype_info info = {.size = sizeof info};
	OK(hoist_dtype_get_info(dtype, &info));
	unsigned unit = 1;
	if (info.block_elements > 1)
		unit = (unsigned)info.block_elements;
	else
		while (unit * hoist_dtype_bits(dtype) % 8 != 0)
			unit++;
	size_t n = 0;
	CHECK(hoist_dtype_bytes(dtype, unit, &n) == 0);
	*bytes = (unsigned)n;
	return unit;
}

static void slice_axis(struct load_choice *choice, size_t t, const hoist_tensor_info *info,
		       int axis)
{
	unsigned bytes;
	int64_t unit = axis == info->rank - 1 ? unit_of(info->dtype, &bytes) : 1;
	int64_t extent = info->shape[axis] / unit;
	int64_t begin = (int64_t)below((uint64_t)extent + 1);
	int64_t end = begin + (int64_t)below((uint64_t)(extent - begin) + 1);
	hoist_load_slice *slice = &choice->slices[choice->n_slices++];
	*slice = (hoist_load_slice){.tensor = info->name,
				    .axis = axis - (chance(2) ? info->rank : 0)};
	if (extent % 2 == 0 && chance(3)) {
		slice->rank = (int)below(2);
		slice->n_ranks = 2;
		begin = extent / 2 * slice->rank;
		end = begin + extent / 2;
	} else {
		slice->begin = begin * unit;
		slice->end = end == extent && chance(2) ? HOIST_SLICE_END : end * unit;
		if (begin < extent && chance(3))
			slice->begin -= extent * unit;
	}
	choice->begin[t][axis] = begin * unit;
	choice->end[t][axis] = end * unit;
}

void load_choose_parts(hoist_checkpoint *checkpoint, bool slices, struct load_choice *choice)
{
	size_t n = hoist_checkpoint_n_tensors(checkpoint);
	CHECK(n <= RANDOM_MOST_TENSORS);
	choice->all = chance(2);
	for (size_t t = 0; t < n; t++) {
		const hoist_tensor_info info = load_info_of(checkpoint, t);
		choice->wanted[t] = choice->all || chance(2);
		if (!choice->all && choice->wanted[t])
			choice->names[choice->n_names++] = info.name;
		for (int a = 0; a < info.rank; a++) {
			choice->begin[t][a] = 0;
			choice->end[t][a] = info.shape[a];
			if (slices && info.strides == NULL && chance(2))
				slice_axis(choice, t, &info, a);
		}
	}
}

/* --- comparing --- */

static bool is_float(hoist_dtype dtype)
{
	return dtype == HOIST_F32 || dtype == HOIST_F16 || dtype == HOIST_BF16;
}

/* One element as another; a NaN has any payload. */
static bool same_value(const unsigned char *is, hoist_dtype to, const unsigned char *was,
		       hoist_dtype from)
{
	alignas(8) unsigned char should[8] = {0};
	hoist_number number;
	OK(hoist_number_decode(was, from, 0, &number));
	OK(hoist_number_encode(number, 0, should, to, 0));
	if (memcmp(is, should, hoist_dtype_bits(to) / 8) == 0)
		return true;
	hoist_number got;
	OK(hoist_number_decode(is, to, 0, &got));
	return isnan(number.as.f64) && isnan(got.as.f64);
}

/* Compares @n units that lie one behind the other in the buffer and in the file.  Returns: the
 * first that differs; @n. */
static size_t first_wrong(const unsigned char *is, hoist_dtype to, const unsigned char *was,
			  hoist_dtype from, size_t n)
{
	unsigned to_bytes;
	unsigned from_bytes;
	(void)unit_of(to, &to_bytes);
	(void)unit_of(from, &from_bytes);
	if (to == from && memcmp(is, was, n * to_bytes) == 0)
		return n;
	for (size_t i = 0; i < n; i++, is += to_bytes, was += from_bytes)
		if (to == from ? memcmp(is, was, to_bytes) != 0 : !same_value(is, to, was, from))
			return i;
	return n;
}

/* Walks along the elements in C order, row by row where the file has them in this order. */
bool load_compare(const struct load_choice *choice, size_t t, const hoist_tensor_info *info,
		  const struct load_files *files, hoist_buffer *buffer, char what[static 64])
{
	hoist_dtype to = is_float(info->dtype) && choice->dtype != 0 ? choice->dtype : info->dtype;
	unsigned unit_bytes;
	unsigned to_bytes;
	int64_t unit = unit_of(info->dtype, &unit_bytes);
	(void)unit_of(to, &to_bytes);
	int64_t index[RANDOM_MOST_RANK] = {0};
	size_t n = 1;
	CHECK(hoist_buffer_dtype(buffer) == to && hoist_buffer_rank(buffer) == info->rank);
	for (int a = 0; a < info->rank; a++) {
		index[a] = choice->begin[t][a];
		n *= (size_t)(choice->end[t][a] - choice->begin[t][a]);
		CHECK(hoist_buffer_shape(buffer)[a] == choice->end[t][a] - choice->begin[t][a]);
	}
	n /= (size_t)unit;
	size_t bytes = hoist_buffer_bytes(buffer);
	CHECK(bytes == n * to_bytes);
	unsigned char *out = malloc(bytes + 1);
	CHECK(out != NULL && hoist_buffer_copy_out(buffer, out, bytes) == 0);
	const unsigned char *file = files->bytes[info->file].p;
	int last = info->rank - 1;
	size_t run = 1;
	if (info->strides == NULL && last >= 0 && n > 0)
		run = (size_t)((choice->end[t][last] - choice->begin[t][last]) / unit);
	for (size_t i = 0; i < n; i += run) {
		int64_t flat = 0;
		for (int a = 0; a < info->rank; a++)
			flat = info->strides != NULL ? flat + index[a] * info->strides[a]
						     : flat * info->shape[a] + index[a];
		const unsigned char *was = file + info->offset + (size_t)(flat / unit) * unit_bytes;
		size_t wrong = first_wrong(out + i * to_bytes, to, was, info->dtype, run);
		if (wrong < run) {
			(void)snprintf(what, 64, "element %zu of %zu is wrong", i + wrong, n);
			free(out);
			return false;
		}
		for (int a = last; a >= 0; a--) {
			index[a] += a == last ? (int64_t)run * unit : 1;
			if (index[a] < choice->end[t][a])
				break;
			index[a] = choice->begin[t][a];
		}
	}
	free(out);
	return true;
}
