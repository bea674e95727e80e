/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-bits.c - elements that are no whole bytes: the CPU takes them apart.
 *
 * A device's memory is looked at through an image of it, of the bytes from the first element to
 * the last one. */
#include "config.h"

#include "base/error.h"
#include "lib/copy/copy.h"

struct image {
	struct hoist__span span; /* of the bytes that it shows */
	size_t bytes;
	uintptr_t memory; /* to be released; 0: the memory itself is looked at */
	void *first;	  /* where the first element begins */
};

/* Strides as they are, or those of a run for two contiguous ones whose shapes may differ. */
struct loops {
	int rank;
	int64_t run[2]; /* shape and stride */
	const int64_t *shape;
	const int64_t *dst_strides;
	const int64_t *src_strides;
};

static void set_loops(const hoist_buffer *dst, const hoist_buffer *src, struct loops *ret)
{
	*ret = (struct loops){dst->rank, {0, 1}, dst->dims, dst->strides, src->strides};
	if (!dst->contiguous || !src->contiguous)
		return;
	ret->rank = 1;
	ret->run[0] = (int64_t)dst->elements;
	ret->shape = &ret->run[0];
	ret->dst_strides = ret->src_strides = &ret->run[1];
}

/* The image of nothing yet. */
static void set_image(const hoist_buffer *buffer, unsigned bits, struct image *ret)
{
	int64_t low = 0;
	int64_t high = 0;
	for (int i = 0; i < buffer->rank; i++) {
		int64_t way = (buffer->dims[i] - 1) * buffer->strides[i];
		if (way < 0)
			low += way;
		else
			high += way;
	}
	/* Shifts of negative numbers round down, as is wanted. */
	int64_t first = (low * (int64_t)bits + buffer->bit) >> 3;
	int64_t end = ((high + 1) * (int64_t)bits + buffer->bit + 7) >> 3;
	ret->span = hoist__buffer_span(buffer, first);
	ret->bytes = (size_t)(end - first);
	ret->memory = 0;
	ret->first = (void *)(ret->span.address - (uintptr_t)first);
}

static int make_image(struct image *image, hoist_memory *through)
{
	int err = hoist__middle_acquire(through, image->bytes, "elements to take apart",
					&image->memory);
	if (err < 0)
		return err;
	uintptr_t before = (uintptr_t)image->first - image->span.address;
	image->first = (void *)(image->memory + before);
	return 0;
}

/* @bytes of it, from byte @at on: from where it shows (@show) or back there. */
static int move_image(const struct image *image, size_t at, size_t bytes, bool show)
{
	const struct hoist__span here = {NULL, HOIST__MEMORY_HOST, image->memory + at};
	struct hoist__span there = image->span;
	there.address += at;
	return show ? hoist__transfer(&here, &there, bytes) : hoist__transfer(&there, &here, bytes);
}

static bool reach_each_other(const struct image *a, const struct image *b)
{
	return hoist__span_on_host(&a->span) && hoist__span_on_host(&b->span) &&
	       a->span.address < b->span.address + b->bytes &&
	       b->span.address < a->span.address + a->bytes;
}

/* The bytes at both ends, of which others may have a part. */
static int show_ends(const struct image *image)
{
	int err = move_image(image, 0, 1, true);
	return err == 0 && image->bytes > 1 ? move_image(image, image->bytes - 1, 1, true) : err;
}

static int take_images(const hoist_buffer *dst, struct image *to, struct image *from,
		       hoist_memory *through)
{
	int err = 0;
	if (!hoist__span_on_host(&from->span) || reach_each_other(to, from))
		err = make_image(from, through);
	if (err == 0 && from->memory != 0)
		err = move_image(from, 0, from->bytes, true);
	if (err < 0 || hoist__span_on_host(&to->span))
		return err;
	if (!dst->contiguous)
		return hoist__fail(
			-ENOTSUP,
			"elements of %s that share bytes with others cannot be written on "
			"%s; copy that buffer to the CPU, and back as a whole",
			hoist_dtype_name(dst->dtype), hoist_device_spec(dst->device));
	err = make_image(to, through);
	return err < 0 ? err : show_ends(to);
}

int hoist__copy_bits(const hoist_buffer *dst, const hoist_buffer *src, hoist_memory *through)
{
	unsigned bits = hoist_dtype_bits(dst->dtype);
	struct image to;
	struct image from;
	struct loops loops;
	set_image(dst, bits, &to);
	set_image(src, bits, &from);
	set_loops(dst, src, &loops);
	int err = hoist__span_check(&to.span);
	if (err == 0)
		err = hoist__span_check(&from.span);
	if (err == 0)
		err = take_images(dst, &to, &from, through);
	if (err == 0)
		hoist__bits_copy(loops.rank, loops.shape, bits, to.first, dst->bit,
				 loops.dst_strides, from.first, src->bit, loops.src_strides);
	if (err == 0 && to.memory != 0)
		err = move_image(&to, 0, to.bytes, false);
	if (to.memory != 0)
		hoist__middle_release(through, to.memory);
	if (from.memory != 0)
		hoist__middle_release(through, from.memory);
	return err;
}
