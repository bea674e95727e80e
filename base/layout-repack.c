/* SPDX-License-Identifier: MIT */
/* base/layout-repack.c - describes the same bytes as items of another size.
 * The contract is in hoist/layout.h. */
#include "config.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/layout.h"
#include "hoist/layout.h"

static int fail_overflow(const char *what, int64_t value, int64_t ratio)
{
	return hoist__fail(-EOVERFLOW, "repack: %s, %lld by %lld, does not fit in 63 bits", what,
			   (long long)value, (long long)ratio);
}

/* Turns @ratio items along @axis into one. */
static int pack(const hoist_layout *layout, int64_t ratio, int axis, hoist_layout *made)
{
	if (layout->shape[axis] % ratio != 0)
		return hoist__fail(-EINVAL,
				   "repack: axis %d holds %lld items, not a multiple of %lld", axis,
				   (long long)layout->shape[axis], (long long)ratio);
	if (layout->offset % ratio != 0)
		return hoist__fail(-EINVAL, "repack: the offset, %lld, is not a multiple of %lld",
				   (long long)layout->offset, (long long)ratio);
	made->offset = layout->offset / ratio;
	for (int i = 0; i < layout->rank; i++) {
		int64_t extent = layout->shape[i];
		int64_t stride = layout->strides[i];
		if (i != axis && stride % ratio != 0)
			return hoist__fail(-EINVAL,
					   "repack: axis %d has the stride %lld, not a multiple of "
					   "%lld",
					   i, (long long)stride, (long long)ratio);
		made->shape[i] = i == axis ? extent / ratio : extent;
		made->strides[i] = i == axis ? 1 : stride / ratio;
	}
	return 0;
}

/* Turns each item into @ratio items along @axis. */
static int unpack(const hoist_layout *layout, int64_t ratio, int axis, hoist_layout *made)
{
	if (__builtin_mul_overflow(layout->offset, ratio, &made->offset))
		return fail_overflow("the offset", layout->offset, ratio);
	for (int i = 0; i < layout->rank; i++) {
		made->shape[i] = layout->shape[i];
		made->strides[i] = 1;
		if (i == axis && __builtin_mul_overflow(made->shape[i], ratio, &made->shape[i]))
			return fail_overflow("an extent", layout->shape[i], ratio);
		if (i != axis &&
		    __builtin_mul_overflow(layout->strides[i], ratio, &made->strides[i]))
			return fail_overflow("a stride", layout->strides[i], ratio);
	}
	return 0;
}

static void drop_axis(hoist_layout *layout, int axis)
{
	layout->rank--;
	for (int i = axis; i < layout->rank; i++) {
		layout->shape[i] = layout->shape[i + 1];
		layout->strides[i] = layout->strides[i + 1];
	}
}

static int check(const hoist_layout *layout, int64_t itemsize, uintptr_t data, int axis)
{
	if (layout->strides[axis] != 1 || layout->shape[axis] == 0)
		return hoist__fail(-EINVAL,
				   "repack: axis %d has the extent %lld and the stride %lld; it "
				   "must not be empty, and its stride must be 1",
				   axis, (long long)layout->shape[axis],
				   (long long)layout->strides[axis]);
	if (itemsize % layout->itemsize != 0 && layout->itemsize % itemsize != 0)
		return hoist__fail(
			-EINVAL,
			"repack: neither of %lld and %lld bytes is a multiple of the other",
			(long long)layout->itemsize, (long long)itemsize);
	if (itemsize > layout->itemsize && data % (uint64_t)itemsize != 0)
		return hoist__fail(-EINVAL,
				   "repack: the address 0x%llx is not aligned to %lld bytes",
				   (unsigned long long)data, (long long)itemsize);
	return 0;
}

/* Items of the same size need none of the checks: the layout stays as it is. */
int hoist_layout_repack(const hoist_layout *layout, int64_t itemsize, uintptr_t data, int axis,
			int keep_dim, hoist_layout *ret)
{
	hoist_layout made;
	int err = hoist__layout_check(layout);
	if (err < 0)
		return err;
	if (itemsize <= 0)
		return hoist__fail(-EINVAL,
				   "repack: an itemsize of %lld; items have at least 1 byte",
				   (long long)itemsize);
	if (itemsize == layout->itemsize) {
		hoist__layout_put(layout, ret);
		return 0;
	}
	err = hoist__layout_axis("repack", layout->rank, axis, &axis);
	if (err == 0)
		err = check(layout, itemsize, data, axis);
	if (err < 0)
		return err;
	made.rank = layout->rank;
	made.implicit = 0;
	made.itemsize = itemsize;
	bool larger = itemsize > layout->itemsize;
	err = larger ? pack(layout, itemsize / layout->itemsize, axis, &made)
		     : unpack(layout, layout->itemsize / itemsize, axis, &made);
	if (err < 0)
		return err;
	if (larger && !keep_dim && made.shape[axis] == 1)
		drop_axis(&made, axis);
	hoist__layout_put(&made, ret);
	return 0;
}

/* Reduces *size so that it also divides the bytes of @count items. */
static int divide(const hoist_layout *layout, int64_t count, uint64_t *size)
{
	int64_t bytes;
	if (__builtin_mul_overflow(count, layout->itemsize, &bytes))
		return hoist__fail(-EOVERFLOW,
				   "max_itemsize: %lld items of %lld bytes do not fit in 63 bits",
				   (long long)count, (long long)layout->itemsize);
	*size = hoist__gcd_u64(*size, bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes);
	return 0;
}

/* The result is the greatest common divisor of @max, the address and every distance in bytes: items
 * of that size lie at multiples of their size. */
int hoist_layout_max_itemsize(const hoist_layout *layout, int64_t max, uintptr_t data, int axis,
			      int64_t *ret)
{
	int err = hoist__layout_check(layout);
	if (err == 0)
		err = hoist__layout_axis("max_itemsize", layout->rank, axis, &axis);
	if (err < 0)
		return err;
	if (max < layout->itemsize)
		return hoist__fail(-EINVAL,
				   "max_itemsize: at most %lld bytes, but items have %lld now",
				   (long long)max, (long long)layout->itemsize);
	if (layout->strides[axis] != 1 || layout->shape[axis] == 0) {
		*ret = layout->itemsize;
		return 0;
	}
	uint64_t size = hoist__gcd_u64((uint64_t)max, data);
	err = divide(layout, layout->offset, &size);
	for (int i = 0; i < layout->rank && err == 0; i++)
		err = divide(layout, i == axis ? layout->shape[i] : layout->strides[i], &size);
	if (err < 0)
		return err;
	*ret = (int64_t)size;
	return 0;
}
