/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-plan.c - from two buffers to loops over bytes. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "lib/copy/copy.h"

/* The last axis that has more than one element; -1: none. */
static int last_axis(const hoist_buffer *buffer)
{
	int axis = buffer->rank - 1;
	while (axis >= 0 && buffer->dims[axis] == 1)
		axis--;
	return axis;
}

/* Elements that only together are whole bytes: the last axis must have them side by side, and
 * all else must lie a multiple of them apart. */
static bool group(const hoist_buffer *buffer, int64_t per_unit, struct hoist__units *units)
{
	int last = last_axis(buffer);
	if (buffer->bit != 0 || last < 0 || buffer->strides[last] != 1)
		return false;
	if (buffer->dims[last] % per_unit != 0)
		return false;
	for (int i = 0; i < units->rank; i++) {
		if (i == last || units->shape[i] == 1)
			continue;
		if (units->strides[i] % per_unit != 0)
			return false;
		units->strides[i] /= per_unit;
	}
	units->shape[last] /= per_unit;
	return true;
}

void hoist__units_of(const hoist_buffer *buffer, struct hoist__units *ret)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(buffer->dtype);
	size_t n = (size_t)buffer->rank;
	ret->rank = buffer->rank;
	if (n > 0) {
		memcpy(ret->shape, buffer->dims, n * sizeof(int64_t));
		memcpy(ret->strides, buffer->strides, n * sizeof(int64_t));
	}
	if (info->bits > 0 && info->bits % 8 == 0) {
		ret->bytes = info->bits / 8;
		return;
	}
	/* 4 bits: 2 elements are a byte; 6 bits: 4 are 3 bytes. */
	int64_t per_unit = info->bits == 0 ? info->block_elements : info->bits == 4 ? 2 : 4;
	size_t bytes = info->bits == 0 ? info->block_bytes : (size_t)per_unit * info->bits / 8;
	ret->bytes = group(buffer, per_unit, ret) ? bytes : 0;
}

bool hoist__buffer_is_run(const hoist_buffer *buffer)
{
	if (!buffer->contiguous || buffer->bit != 0)
		return false;
	/* Blocks are whole bytes. */
	return buffer->elements % 8 == 0 ||
	       buffer->elements % 8 * hoist__dtype_info(buffer->dtype)->bits % 8 == 0;
}

bool hoist__move_plan(const hoist_buffer *dst, const hoist_buffer *src, struct hoist__move *ret)
{
	ret->through = NULL;
	ret->dst = hoist__buffer_span(dst, 0);
	ret->src = hoist__buffer_span(src, 0);
	if (hoist__buffer_is_run(dst) && hoist__buffer_is_run(src)) {
		ret->nest.rank = 0;
		ret->nest.item = dst->bytes;
		ret->nest.dst_offset = 0;
		ret->nest.src_offset = 0;
		return true;
	}
	if (dst->contiguous && src->contiguous)
		return false; /* whose shapes may differ */
	struct hoist__units to;
	struct hoist__units from;
	hoist__units_of(dst, &to);
	hoist__units_of(src, &from);
	if (to.bytes == 0 || from.bytes == 0)
		return false;
	return hoist__nest_make(to.rank, to.shape, to.strides, from.strides, to.bytes, &ret->nest);
}

void hoist__nest_of(int rank, const int64_t *extents, size_t item, const int64_t *dst_strides,
		    const int64_t *src_strides, struct hoist__nest *ret)
{
	int64_t shape[HOIST__MAX_RANK + 1];
	int64_t dst[HOIST__MAX_RANK + 1];
	int64_t src[HOIST__MAX_RANK + 1];
	for (int i = 0; i < rank; i++) {
		shape[i] = extents[i];
		dst[i] = dst_strides[i];
		src[i] = src_strides[i];
	}
	shape[rank] = (int64_t)item;
	dst[rank] = 1;
	src[rank] = 1;
	(void)hoist__nest_make(rank + 1, shape, dst, src, 1, ret);
}

void hoist__nest_bounds(const struct hoist__nest *nest, int64_t offset, const int64_t *strides,
			int64_t *low, int64_t *high)
{
	*low = offset;
	*high = offset + (int64_t)nest->item;
	for (int i = 0; i < nest->rank; i++) {
		int64_t way = (nest->extents[i] - 1) * strides[i];
		if (way < 0)
			*low += way;
		else
			*high += way;
	}
}

static bool same_space(const struct hoist__span *a, const struct hoist__span *b)
{
	bool host = hoist__span_on_host(a);
	return host == hoist__span_on_host(b) && (host || a->device == b->device);
}

bool hoist__move_overlaps(const struct hoist__move *move)
{
	const struct hoist__nest *nest = &move->nest;
	int64_t low[2];
	int64_t high[2];
	if (!same_space(&move->dst, &move->src))
		return false;
	hoist__nest_bounds(nest, nest->dst_offset, nest->dst_strides, &low[0], &high[0]);
	hoist__nest_bounds(nest, nest->src_offset, nest->src_strides, &low[1], &high[1]);
	return move->dst.address + (uintptr_t)low[0] < move->src.address + (uintptr_t)high[1] &&
	       move->src.address + (uintptr_t)low[1] < move->dst.address + (uintptr_t)high[0];
}

/* True unless every axis steps over all that the axes with smaller strides reach.  Layouts that
 * do not overlap and fail this exist, but no slicing, reshaping or permuting makes them. */
bool hoist__buffer_overlaps_itself(const hoist_buffer *buffer)
{
	if (buffer->contiguous)
		return false;
	int64_t reach = 0; /* of the axes that were looked at, in elements */
	int64_t least = 0; /* their largest stride */
	for (int left = buffer->rank; left > 0; left--) {
		/* The next larger stride; equal ones overlap. */
		int64_t next = INT64_MAX;
		int64_t extent = 0;
		for (int i = 0; i < buffer->rank; i++) {
			int64_t stride = llabs(buffer->strides[i]);
			if (buffer->dims[i] == 1 || stride < least)
				continue;
			if (stride == 0 || (stride == least && least > 0))
				continue;
			if (stride < next) {
				next = stride;
				extent = buffer->dims[i];
			} else if (stride == next) {
				return true;
			}
		}
		if (extent == 0)
			break;
		if (next <= reach)
			return true;
		reach += (extent - 1) * next;
		least = next;
	}
	for (int i = 0; i < buffer->rank; i++)
		if (buffer->dims[i] > 1 && buffer->strides[i] == 0)
			return true;
	return false;
}
