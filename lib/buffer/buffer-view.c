/* SPDX-License-Identifier: MIT */
/* lib/buffer/buffer-view.c - other buffers over the same storage. */
#include "config.h"

#include <string.h>

#include "base/error.h"
#include "base/layout.h"
#include "hoist/layout.h"
#include "lib/buffer/buffer-private.h"
#include "lib/device/device-private.h"

static unsigned whole_bytes(hoist_dtype dtype)
{
	unsigned bits = hoist_dtype_bits(dtype);
	return bits % 8 == 0 ? bits / 8 : 0;
}

/* As the algebra sees it: items of one byte where elements are no whole bytes. */
static void take_layout(const hoist_buffer *buffer, hoist_layout *ret)
{
	unsigned bytes = whole_bytes(buffer->dtype);
	size_t n = (size_t)buffer->rank * sizeof(int64_t);
	ret->rank = buffer->rank;
	ret->implicit = buffer->implicit;
	ret->itemsize = bytes != 0 ? bytes : 1;
	ret->offset = 0;
	if (n > 0) {
		memcpy(ret->shape, buffer->dims, n);
		memcpy(ret->strides, buffer->strides, n);
	}
}

/* --- where a view begins --- */

/* Elements of block types have no place: what is viewed must be whole blocks. */
static int check_blocks(const struct hoist__dtype_info *info, const hoist_layout *layout)
{
	int64_t block = info->block_elements;
	int last = layout->rank - 1;
	for (int i = 0; i < last; i++)
		if (layout->shape[i] > 1 && layout->strides[i] % block != 0)
			return hoist__fail(-EINVAL,
					   "axis %d has stride %lld; elements of %s lie in blocks "
					   "of %lld",
					   i, (long long)layout->strides[i], info->name,
					   (long long)block);
	if (last < 0 || layout->shape[last] % block != 0 || layout->strides[last] > 1 ||
	    layout->strides[last] < 0 || layout->offset % block != 0)
		return hoist__fail(-EINVAL,
				   "elements of %s lie in blocks of %lld on the last axis, which "
				   "can be sliced between blocks only",
				   info->name, (long long)block);
	return 0;
}

/* The byte and bit of the element @layout begins with; without elements, it stays where it is. */
static int place(const hoist_buffer *buffer, const hoist_layout *layout, struct hoist__view *view)
{
	const struct hoist__dtype_info *info = hoist__dtype_info(buffer->dtype);
	for (int i = 0; i < layout->rank; i++)
		if (layout->shape[i] == 0)
			return 0;
	if (info->bits == 0) {
		int err = check_blocks(info, layout);
		if (err == 0)
			view->offset +=
				(size_t)(layout->offset / info->block_elements) * info->block_bytes;
		return err;
	}
	/* Within the storage, so that the bits of it fit in 63. */
	int64_t bits = (int64_t)buffer->bit + layout->offset * (int64_t)info->bits;
	view->bit = (unsigned)(bits & 7);
	view->offset = (size_t)((int64_t)buffer->offset + (bits >> 3));
	return 0;
}

static struct hoist__view view_of(const hoist_buffer *buffer)
{
	const struct hoist__view view = {
		.dtype = buffer->dtype,
		.rank = buffer->rank,
		.bit = buffer->bit,
		.read_only = buffer->read_only,
		.offset = buffer->offset,
		.stream = buffer->stream,
		.shape = buffer->dims,
		.strides = hoist__buffer_given_strides(buffer),
	};
	return view;
}

/* A view whose elements are some of @buffer's. */
static int derive(hoist_buffer *buffer, const hoist_layout *layout, hoist_buffer **ret)
{
	struct hoist__view view = view_of(buffer);
	view.rank = layout->rank;
	view.shape = layout->shape;
	view.strides = layout->strides;
	int err = place(buffer, layout, &view);
	return err < 0 ? err : hoist__buffer_make(buffer->storage, &view, ret);
}

/* --- by the algebra --- */

int hoist_buffer_slice(hoist_buffer *buffer, int n, const hoist_slice *slices, hoist_buffer **ret)
{
	hoist_layout layout;
	int err = hoist__buffer_check(buffer, "the buffer to slice");
	if (err < 0)
		return err;
	take_layout(buffer, &layout);
	err = hoist__layout_slice(&layout, n, slices, -ERANGE, &layout);
	return err < 0 ? err : derive(buffer, &layout, ret);
}

int hoist_buffer_reshape(hoist_buffer *buffer, int rank, const int64_t *shape, hoist_buffer **ret)
{
	hoist_layout layout;
	int err = hoist__buffer_check(buffer, "the buffer to reshape");
	if (err < 0)
		return err;
	take_layout(buffer, &layout);
	err = hoist_layout_reshape(&layout, rank, shape, &layout);
	return err < 0 ? err : derive(buffer, &layout, ret);
}

int hoist_buffer_permute(hoist_buffer *buffer, const int *axes, hoist_buffer **ret)
{
	hoist_layout layout;
	int err = hoist__buffer_check(buffer, "the buffer to permute");
	if (err < 0)
		return err;
	take_layout(buffer, &layout);
	err = hoist_layout_permute(&layout, buffer->rank, axes, &layout);
	return err < 0 ? err : derive(buffer, &layout, ret);
}

int hoist_buffer_get_layout(const hoist_buffer *buffer, hoist_layout *ret)
{
	int err = hoist__buffer_check(buffer, "the buffer to ask for its layout");
	if (err < 0)
		return err;
	if (whole_bytes(buffer->dtype) == 0)
		return hoist__fail(-ENOTSUP, "elements of %s are no whole bytes, as layouts want",
				   hoist_dtype_name(buffer->dtype));
	take_layout(buffer, ret);
	return 0;
}

/* What @layout covers must be covered by @buffer. */
static int check_covered(const hoist_buffer *buffer, const hoist_layout *layout)
{
	int64_t low;
	int64_t high;
	int64_t first;
	int64_t last;
	int err = hoist__layout_bounds(buffer->dtype, buffer->rank, buffer->dims, buffer->strides,
				       &low, &high);
	if (err == 0)
		err = hoist_layout_bounds(layout, &first, &last);
	if (err < 0 || last < first)
		return err;
	int64_t end;
	int64_t begin;
	if (__builtin_add_overflow(last, 1, &end) ||
	    __builtin_mul_overflow(end, layout->itemsize, &end) ||
	    __builtin_mul_overflow(first, layout->itemsize, &begin))
		return hoist__fail(-EOVERFLOW, "the layout's last byte does not fit in 63 bits");
	if (end > high)
		return hoist__fail(-EINVAL, "the layout needs at least %lld bytes, got %lld",
				   (long long)end, (long long)high);
	if (begin < low)
		return hoist__fail(-EINVAL,
				   "the layout begins %llu bytes before the first element, where "
				   "the buffer has %lld; see hoist_layout_to_dense()",
				   -(unsigned long long)begin, -(long long)low);
	return 0;
}

/* An implicit layout whose strides were changed by hand has those. */
static bool is_c_order(const hoist_layout *layout)
{
	int64_t strides[HOIST_MAX_RANK];
	return hoist__layout_c_strides(layout->rank, layout->shape, strides) == 0 &&
	       memcmp(strides, layout->strides, (size_t)layout->rank * sizeof strides[0]) == 0;
}

int hoist_buffer_with_layout(hoist_buffer *buffer, const hoist_layout *layout, hoist_dtype dtype,
			     hoist_buffer **ret)
{
	hoist_layout sound;
	int err = hoist__buffer_check(buffer, "the buffer to lay out");
	if (err < 0)
		return err;
	if (layout == NULL)
		return hoist__fail(-EINVAL, "the layout for a buffer is NULL");
	if (hoist__dtype_info(dtype) == NULL)
		return hoist__fail(-EINVAL, "%d is no dtype", (int)dtype);
	unsigned bytes = whole_bytes(dtype);
	if (bytes == 0 || whole_bytes(buffer->dtype) == 0)
		return hoist__fail(-ENOTSUP, "elements of %s are no whole bytes, as layouts want",
				   hoist_dtype_name(bytes == 0 ? dtype : buffer->dtype));
	if (layout->itemsize != bytes)
		return hoist__fail(-EINVAL, "the layout's items have %lld bytes, those of %s %u",
				   (long long)layout->itemsize, hoist_dtype_name(dtype), bytes);
	err = hoist_layout_make(layout->rank, layout->shape, layout->strides, bytes, 0, &sound);
	if (err < 0)
		return err;
	sound.offset = layout->offset;
	err = check_covered(buffer, &sound);
	if (err < 0)
		return err;
	struct hoist__view view = view_of(buffer);
	view.dtype = dtype;
	view.rank = sound.rank;
	view.shape = sound.shape;
	view.strides = layout->implicit && is_c_order(&sound) ? NULL : sound.strides;
	if (hoist_layout_volume(&sound) != 0)
		view.offset = (size_t)((int64_t)buffer->offset + sound.offset * (int64_t)bytes);
	return hoist__buffer_make(buffer->storage, &view, ret);
}

/* --- other dtypes --- */

static int fail_stride(const char *dtype, int axis, int64_t stride, const hoist_buffer *buffer)
{
	return hoist__fail(-EINVAL,
			   "view(%s): axis %d has stride %lld in elements of %s, which does not "
			   "fit; copy the buffer first",
			   dtype, axis, (long long)stride, hoist_dtype_name(buffer->dtype));
}

/* The bits of the last axis, and the strides of the others, in the new element's size.  Those of
 * axes of extent 1 do not count. */
static int retype(const hoist_buffer *buffer, const struct hoist__dtype_info *to,
		  hoist_layout *layout)
{
	int64_t old_bits = hoist_dtype_bits(buffer->dtype);
	int64_t bits = to->bits;
	int last = buffer->rank - 1;
	if (buffer->elements > 0 && layout->shape[last] > 1 && layout->strides[last] != 1)
		return fail_stride(to->name, last, layout->strides[last], buffer);
	int64_t row;
	if (__builtin_mul_overflow(layout->shape[last], old_bits, &row))
		return hoist__fail(-EOVERFLOW, "the last axis does not fit in 63 bits");
	if (row % bits != 0)
		return hoist__fail(-EINVAL,
				   "view(%s): last axis holds %lld %s, not a multiple of %lld",
				   to->name, (long long)(row % 8 == 0 ? row / 8 : row),
				   row % 8 == 0 ? "bytes" : "bits",
				   (long long)(row % 8 == 0 && bits % 8 == 0 ? bits / 8 : bits));
	layout->shape[last] = row / bits;
	layout->strides[last] = 1;
	for (int i = 0; i < last && buffer->elements > 0; i++) {
		int64_t distance;
		if (layout->shape[i] == 1) {
			layout->strides[i] = layout->shape[last];
			continue;
		}
		if (__builtin_mul_overflow(layout->strides[i], old_bits, &distance))
			return hoist__fail(-EOVERFLOW, "axis %d does not fit in 63 bits", i);
		if (distance % bits != 0)
			return fail_stride(to->name, i, layout->strides[i], buffer);
		layout->strides[i] = distance / bits;
	}
	return 0;
}

int hoist_buffer_view_as(hoist_buffer *buffer, hoist_dtype dtype, hoist_buffer **ret)
{
	hoist_layout layout;
	int err = hoist__buffer_check(buffer, "the buffer to view");
	if (err < 0)
		return err;
	const struct hoist__dtype_info *to = hoist__dtype_info(dtype);
	if (to == NULL)
		return hoist__fail(-EINVAL, "%d is no dtype", (int)dtype);
	unsigned old_bits = hoist_dtype_bits(buffer->dtype);
	struct hoist__view view = view_of(buffer);
	view.dtype = dtype;
	if (to->bits == 0 || old_bits == 0)
		return hoist__fail(-EINVAL,
				   "view(%s): elements of %s lie in blocks; say the shape, too "
				   "(hoist_buffer_view)",
				   to->name,
				   old_bits == 0 ? hoist_dtype_name(buffer->dtype) : to->name);
	if (buffer->rank == 0 && to->bits != old_bits)
		return hoist__fail(-ERANGE,
				   "view(%s): a buffer of rank 0 has no last axis; say the "
				   "shape, too (hoist_buffer_view)",
				   to->name);
	if (to->bits % 8 == 0 && buffer->bit != 0)
		return hoist__fail(-EINVAL, "view(%s): the buffer begins within a byte, at bit %u",
				   to->name, buffer->bit);
	if (to->bits == old_bits)
		return hoist__buffer_make(buffer->storage, &view, ret);
	take_layout(buffer, &layout);
	err = retype(buffer, to, &layout);
	if (err == 0 && buffer->elements == 0)
		err = hoist__layout_c_strides(layout.rank, layout.shape, layout.strides);
	if (err < 0)
		return err;
	view.shape = layout.shape;
	view.strides = layout.strides;
	return hoist__buffer_make(buffer->storage, &view, ret);
}

int hoist_buffer_view(hoist_buffer *buffer, size_t byte_offset, hoist_dtype dtype, int rank,
		      const int64_t *shape, hoist_buffer **ret)
{
	int err = hoist__buffer_check(buffer, "the buffer to view");
	if (err < 0)
		return err;
	uint64_t elements;
	size_t bytes = 0;
	err = hoist__buffer_measure(dtype, rank, shape, &elements, &bytes);
	if (err < 0)
		return hoist__fail_in(err, "a view");
	if (!buffer->contiguous || buffer->bit != 0)
		return hoist__fail(-EINVAL, "a view of bytes needs a contiguous buffer; copy it "
					    "first, or use hoist_buffer_view_as()");
	/* Against the buffer's own bytes: the storage may go on behind them. */
	if (byte_offset > buffer->bytes || bytes > buffer->bytes - byte_offset)
		return hoist__fail(-EINVAL,
				   "a view of %zu bytes from byte %zu on leaves its buffer of %zu "
				   "bytes",
				   bytes, byte_offset, buffer->bytes);
	struct hoist__view view = view_of(buffer);
	view.dtype = dtype;
	view.rank = rank;
	view.shape = shape;
	view.strides = NULL;
	view.offset += byte_offset;
	return hoist__buffer_make(buffer->storage, &view, ret);
}

/* --- another right --- */

int hoist_buffer_read_only(hoist_buffer *buffer, hoist_buffer **ret)
{
	int err = hoist__buffer_check(buffer, "the buffer to view read-only");
	if (err < 0)
		return err;
	struct hoist__view view = view_of(buffer);
	view.read_only = true;
	return hoist__buffer_make(buffer->storage, &view, ret);
}

/* --- another stream --- */

int hoist_buffer_on_stream(hoist_buffer *buffer, hoist_stream *stream, hoist_buffer **ret)
{
	int err = hoist__buffer_check(buffer, "the buffer to put on a stream");
	if (err < 0)
		return err;
	if (stream == NULL || hoist_stream_device(stream) != buffer->device)
		return hoist__fail(
			-EINVAL,
			"a buffer of %s can be on streams of that device; this "
			"one is %s%s",
			hoist_device_spec(buffer->device), stream != NULL ? "of " : "NULL",
			stream != NULL ? hoist_device_spec(hoist_stream_device(stream)) : "");
	if (stream == buffer->stream ||
	    (buffer->stream == NULL && stream == hoist__device_known_stream(buffer->device))) {
		*ret = hoist_buffer_ref(buffer);
		return 0;
	}
	/* The block itself is freed in the order of another stream. */
	err = hoist__storage_use(buffer->storage, stream);
	if (err < 0)
		return err;
	struct hoist__view view = view_of(buffer);
	view.stream = stream;
	return hoist__buffer_make(buffer->storage, &view, ret);
}
