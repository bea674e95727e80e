/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-box.c - copies loops by the driver's 2-D and 3-D copies, and by its plain ones.
 * The contract is in lib/copy/copy.h. */
#include "config.h"

#include <string.h>

#include "lib/copy/copy.h"
#include "lib/device/device.h"

/* Drivers take a pitch of at most 31 bits; HIP refuses the greatest. */
static bool can_be_rows(const struct hoist__nest *nest, int i)
{
	int64_t item = (int64_t)nest->item;
	return nest->dst_strides[i] >= item && nest->src_strides[i] >= item &&
	       nest->dst_strides[i] < INT32_MAX && nest->src_strides[i] < INT32_MAX;
}

static bool fits(int64_t plane, int64_t pitch, int64_t n_rows, size_t item)
{
	return plane >= (n_rows - 1) * pitch + (int64_t)item && plane % pitch == 0;
}

/* A driver's one call copies planes that lie one behind the other, each a whole number of pitches
 * after the one before. */
static bool can_be_planes(const struct hoist__nest *nest, int row, int i)
{
	int64_t n = nest->extents[row];
	return fits(nest->dst_strides[i], nest->dst_strides[row], n, nest->item) &&
	       fits(nest->src_strides[i], nest->src_strides[row], n, nest->item);
}

/* Chooses the two loops that put the most rows into one call. */
void hoist__boxes_plan(const struct hoist__nest *nest, struct hoist__boxes *ret)
{
	int64_t most = 1;
	ret->row = -1;
	ret->plane = -1;
	ret->n_rows = 1;
	for (int row = 0; row < nest->rank; row++) {
		ret->n_rows *= (uint64_t)nest->extents[row];
		if (!can_be_rows(nest, row))
			continue;
		for (int plane = -1; plane < nest->rank; plane++) {
			int64_t rows = nest->extents[row];
			if (plane == row || (plane >= 0 && !can_be_planes(nest, row, plane)))
				continue;
			rows *= plane >= 0 ? nest->extents[plane] : 1;
			if (rows > most) {
				most = rows;
				ret->row = row;
				ret->plane = plane;
			}
		}
	}
	ret->n_calls = ret->n_rows / (uint64_t)most;
}

static void set_box(const struct hoist__nest *nest, const struct hoist__boxes *boxes,
		    struct hoist__box *ret)
{
	ret->width = nest->item;
	ret->rows = 1;
	ret->planes = 1;
	ret->dst_pitch = ret->src_pitch = nest->item;
	if (boxes->row >= 0) {
		ret->rows = (size_t)nest->extents[boxes->row];
		ret->dst_pitch = (size_t)nest->dst_strides[boxes->row];
		ret->src_pitch = (size_t)nest->src_strides[boxes->row];
	}
	ret->dst_plane = ret->rows * ret->dst_pitch;
	ret->src_plane = ret->rows * ret->src_pitch;
	if (boxes->plane >= 0) {
		ret->planes = (size_t)nest->extents[boxes->plane];
		ret->dst_plane = (size_t)nest->dst_strides[boxes->plane];
		ret->src_plane = (size_t)nest->src_strides[boxes->plane];
	}
}

/* Moves @box to the next box.
 * Returns: false behind the last box. */
static bool advance(const struct hoist__nest *nest, const struct hoist__boxes *boxes,
		    int64_t *index, struct hoist__box *box)
{
	for (int i = nest->rank - 1; i >= 0; i--) {
		if (i == boxes->row || i == boxes->plane)
			continue;
		if (++index[i] < nest->extents[i]) {
			box->dst += (uintptr_t)nest->dst_strides[i];
			box->src += (uintptr_t)nest->src_strides[i];
			return true;
		}
		index[i] = 0;
		box->dst -= (uintptr_t)((nest->extents[i] - 1) * nest->dst_strides[i]);
		box->src -= (uintptr_t)((nest->extents[i] - 1) * nest->src_strides[i]);
	}
	return false;
}

int hoist__boxes_queue(struct hoist__dev_stream *stream, enum hoist__copy kind,
		       const struct hoist__nest *nest, const struct hoist__boxes *boxes,
		       uintptr_t dst, uintptr_t src)
{
	int64_t index[HOIST__MAX_RANK];
	struct hoist__box box;
	int err;
	memset(index, 0, (size_t)nest->rank * sizeof index[0]);
	set_box(nest, boxes, &box);
	box.dst = dst + (uintptr_t)nest->dst_offset;
	box.src = src + (uintptr_t)nest->src_offset;
	do {
		err = boxes->row < 0 ? hoist__copy_async(stream, kind, box.dst, box.src, box.width)
				     : hoist__copy_box_async(stream, kind, &box);
	} while (err == 0 && advance(nest, boxes, index, &box));
	return err;
}

int hoist__peers_queue(struct hoist__dev_stream *stream, const struct hoist__move *move)
{
	static const struct hoist__boxes none = {.row = -1, .plane = -1};
	const struct hoist__nest *nest = &move->nest;
	int64_t index[HOIST__MAX_RANK];
	struct hoist__box box;
	int err;
	memset(index, 0, (size_t)nest->rank * sizeof index[0]);
	box.dst = move->dst.address + (uintptr_t)nest->dst_offset;
	box.src = move->src.address + (uintptr_t)nest->src_offset;
	do {
		err = hoist__copy_peer_async(stream, hoist__device_dev(move->dst.device), box.dst,
					     hoist__device_dev(move->src.device), box.src,
					     nest->item);
	} while (err == 0 && advance(nest, &none, index, &box));
	return err;
}
