/* SPDX-License-Identifier: MIT */
/* base/layout-axes.c - moves, drops, adds and repeats axes.
 * The contract is in hoist/layout.h. */
#include "config.h"

#include "base/error.h"
#include "base/layout.h"
#include "hoist/layout.h"

/* Begins a layout without axes, whose items begin where those of @layout do. */
static void begin(const hoist_layout *layout, hoist_layout *made)
{
	made->rank = 0;
	made->implicit = 0;
	made->itemsize = layout->itemsize;
	made->offset = layout->offset;
}

static void append(hoist_layout *made, int64_t extent, int64_t stride)
{
	made->shape[made->rank] = extent;
	made->strides[made->rank] = stride;
	made->rank++;
}

int hoist_layout_permute(const hoist_layout *layout, int n, const int *axes, hoist_layout *ret)
{
	hoist_layout made;
	int from[HOIST_MAX_RANK];
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	if (n != layout->rank)
		return hoist__fail(-EINVAL, "permute: %d axes are listed, the layout has %d", n,
				   layout->rank);
	err = hoist__layout_axes("permute", layout->rank, n, axes, from);
	if (err < 0)
		return err;
	begin(layout, &made);
	for (int i = 0; i < n; i++)
		append(&made, layout->shape[from[i]], layout->strides[from[i]]);
	hoist__layout_put(&made, ret);
	return 0;
}

int hoist_layout_squeeze(const hoist_layout *layout, hoist_layout *ret)
{
	hoist_layout made;
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	begin(layout, &made);
	if (hoist__layout_is_empty(layout->rank, layout->shape)) {
		append(&made, 0, 0);
	} else {
		for (int i = 0; i < layout->rank; i++)
			if (layout->shape[i] != 1)
				append(&made, layout->shape[i], layout->strides[i]);
	}
	hoist__layout_put(&made, ret);
	return 0;
}

/* Gives the stride of a new axis before axis @next: one that lets the two be merged.  Behind the
 * last axis the new axis gets the last one's stride. */
static int new_stride(const hoist_layout *layout, int next, int64_t *ret)
{
	if (next < layout->rank) {
		if (__builtin_mul_overflow(layout->shape[next], layout->strides[next], ret))
			return hoist__fail(-EOVERFLOW,
					   "unsqueeze: extent %lld by stride %lld of axis %d does "
					   "not fit in 63 bits",
					   (long long)layout->shape[next],
					   (long long)layout->strides[next], next);
	} else {
		*ret = layout->rank > 0 ? layout->strides[layout->rank - 1] : 1;
	}
	return 0;
}

/* An axis is a place in the result, as in numpy.expand_dims(): the new places are marked first, and
 * the old axes fill the others in their order. */
int hoist_layout_unsqueeze(const hoist_layout *layout, int n, const int *axes, hoist_layout *ret)
{
	hoist_layout made;
	int places[HOIST_MAX_RANK];
	bool is_new[HOIST_MAX_RANK] = {false};
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	if (n == 0) {
		hoist__layout_put(layout, ret);
		return 0;
	}
	if (n < 0 || n > HOIST_MAX_RANK - layout->rank)
		return hoist__fail(-EINVAL, "unsqueeze: %d more axes than %d; %d is the most", n,
				   layout->rank, HOIST_MAX_RANK);
	err = hoist__layout_axes("unsqueeze", layout->rank + n, n, axes, places);
	for (int i = 0; i < n && err == 0; i++)
		is_new[places[i]] = true;
	begin(layout, &made);
	for (int next = 0; made.rank < layout->rank + n && err == 0;) {
		int64_t stride = 0;
		if (is_new[made.rank]) {
			err = new_stride(layout, next, &stride);
			append(&made, 1, stride);
		} else {
			append(&made, layout->shape[next], layout->strides[next]);
			next++;
		}
	}
	if (err < 0)
		return err;
	hoist__layout_put(&made, ret);
	return 0;
}

/* Repeated items have the stride 0 and take no memory.  The bytes of all items must fit in 63 bits
 * nonetheless, as for any sound layout. */
int hoist_layout_broadcast(const hoist_layout *layout, int rank, const int64_t *shape,
			   hoist_layout *ret)
{
	hoist_layout made;
	uint64_t n;
	int err = hoist__layout_check(layout);
	if (err == 0)
		err = hoist__layout_elements(rank, shape, &n);
	if (err < 0)
		return err;
	int added = rank - layout->rank;
	if (added < 0)
		return hoist__fail(-EINVAL, "broadcast: to %d axes from %d", rank, layout->rank);
	int64_t bytes;
	if (__builtin_mul_overflow(n, layout->itemsize, &bytes))
		return hoist__fail(
			-EOVERFLOW,
			"broadcast: %llu items of %lld bytes do not fit in 63 bits of bytes",
			(unsigned long long)n, (long long)layout->itemsize);
	begin(layout, &made);
	for (int i = 0; i < added; i++)
		append(&made, shape[i], 0);
	for (int i = 0; i < layout->rank; i++) {
		int64_t extent = shape[added + i];
		bool same = layout->shape[i] == extent;
		if (!same && layout->shape[i] != 1)
			return hoist__fail(-EINVAL,
					   "broadcast: axis %d has the extent %lld, which becomes "
					   "%lld only from 1",
					   i, (long long)layout->shape[i], (long long)extent);
		append(&made, extent, same ? layout->strides[i] : 0);
	}
	hoist__layout_put(&made, ret);
	return 0;
}
