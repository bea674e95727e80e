/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-bits.c - copies elements that are no whole bytes: the CPU takes them apart.
 * The contract is in lib/copy/copy.h.
 *
 * A device's memory is handled through a mirror in host memory of the bytes from the first element
 * to the last one. */
#include "config.h"

#include "base/error.h"
#include "lib/copy/copy.h"

struct mirror {
	struct hoist__span span; /* the bytes that the mirror shows */
	size_t bytes;
	uintptr_t memory; /* the mirror's own, to be released; 0: the bytes are used in place */
	void *first;	  /* where the first element begins */
};

/* The strides of the buffers; or, for two contiguous buffers, whose shapes may differ, those of one
 * run. */
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

/* Finds the bytes of the buffer.  The mirror has no memory of its own yet. */
static void set_mirror(const hoist_buffer *buffer, unsigned bits, struct mirror *ret)
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
	/* Right shifts of negative numbers round down, as is needed. */
	int64_t first = (low * (int64_t)bits + buffer->bit) >> 3;
	int64_t end = ((high + 1) * (int64_t)bits + buffer->bit + 7) >> 3;
	ret->span = hoist__buffer_span(buffer, first);
	ret->bytes = (size_t)(end - first);
	ret->memory = 0;
	ret->first = (void *)(ret->span.address - (uintptr_t)first);
}

static int make_mirror(struct mirror *mirror, hoist_memory *through)
{
	int err = hoist__middle_acquire(through, mirror->bytes, "elements to take apart",
					&mirror->memory);
	if (err < 0)
		return err;
	uintptr_t before = (uintptr_t)mirror->first - mirror->span.address;
	mirror->first = (void *)(mirror->memory + before);
	return 0;
}

/* Moves @bytes bytes of the mirror, from byte @at on: into the mirror (@show), or back to the bytes
 * it shows. */
static int move_mirror(const struct mirror *mirror, size_t at, size_t bytes, bool show)
{
	const struct hoist__span here = {NULL, HOIST__MEMORY_HOST, mirror->memory + at};
	struct hoist__span there = mirror->span;
	there.address += at;
	return show ? hoist__transfer(&here, &there, bytes) : hoist__transfer(&there, &here, bytes);
}

static bool reach_each_other(const struct mirror *a, const struct mirror *b)
{
	return hoist__span_on_host(&a->span) && hoist__span_on_host(&b->span) &&
	       a->span.address < b->span.address + b->bytes &&
	       b->span.address < a->span.address + a->bytes;
}

/* Reads the bytes at both ends into the mirror: other elements may have bits in them. */
static int show_ends(const struct mirror *mirror)
{
	int err = move_mirror(mirror, 0, 1, true);
	return err == 0 && mirror->bytes > 1 ? move_mirror(mirror, mirror->bytes - 1, 1, true)
					     : err;
}

static int take_mirrors(const hoist_buffer *dst, struct mirror *to, struct mirror *from,
			hoist_memory *through)
{
	int err = 0;
	if (!hoist__span_on_host(&from->span) || reach_each_other(to, from))
		err = make_mirror(from, through);
	if (err == 0 && from->memory != 0)
		err = move_mirror(from, 0, from->bytes, true);
	if (err < 0 || hoist__span_on_host(&to->span))
		return err;
	if (!dst->contiguous)
		return hoist__fail(
			-ENOTSUP,
			"elements of %s that share bytes with others cannot be written on "
			"%s; copy that buffer to the CPU, and back as a whole",
			hoist_dtype_name(dst->dtype), hoist_device_spec(dst->device));
	err = make_mirror(to, through);
	return err < 0 ? err : show_ends(to);
}

/* The order matters: the mirrors are filled before any bit is written, and the destination's mirror
 * goes back only after the whole copy. */
int hoist__copy_bits(const hoist_buffer *dst, const hoist_buffer *src, hoist_memory *through)
{
	unsigned bits = hoist_dtype_bits(dst->dtype);
	struct mirror to;
	struct mirror from;
	struct loops loops;
	set_mirror(dst, bits, &to);
	set_mirror(src, bits, &from);
	set_loops(dst, src, &loops);
	int err = hoist__span_check(&to.span);
	if (err == 0)
		err = hoist__span_check(&from.span);
	if (err == 0)
		err = take_mirrors(dst, &to, &from, through);
	if (err == 0)
		hoist__bits_copy(loops.rank, loops.shape, bits, to.first, dst->bit,
				 loops.dst_strides, from.first, src->bit, loops.src_strides);
	if (err == 0 && to.memory != 0)
		err = move_mirror(&to, 0, to.bytes, false);
	if (to.memory != 0)
		hoist__middle_release(through, to.memory);
	if (from.memory != 0)
		hoist__middle_release(through, from.memory);
	return err;
}
