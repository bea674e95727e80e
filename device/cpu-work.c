/* SPDX-License-Identifier: MIT */
/* device/cpu-work.c - the work of the CPU's streams: copies, fills, calls.
 * The contract is in device/cpu.h, and for a backend in device/device-ops.h. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/strided.h"
#include "device/cpu.h"

struct box_op {
	struct hoist__cpu_op op;
	struct hoist__box box;
};

struct fill_op {
	struct hoist__cpu_op op;
	uintptr_t dst;
	uint32_t value;
	unsigned width;
	size_t n;
};

struct call_op {
	struct hoist__cpu_op op;
	void (*function)(void *argument);
	void *argument;
};

/* Copies elements of one byte, which the nest joins to the largest pieces that touch. */
static void run_box(struct hoist__cpu_op *op)
{
	const struct hoist__box *box = &((struct box_op *)op)->box;
	const int64_t shape[3] = {(int64_t)box->planes, (int64_t)box->rows, (int64_t)box->width};
	const int64_t dst[3] = {(int64_t)box->dst_plane, (int64_t)box->dst_pitch, 1};
	const int64_t src[3] = {(int64_t)box->src_plane, (int64_t)box->src_pitch, 1};
	struct hoist__nest nest;
	if (hoist__nest_make(3, shape, dst, src, 1, &nest))
		hoist__nest_copy(&nest, (void *)box->dst, (const void *)box->src);
}

int hoist__cpu_copy_box(struct hoist__dev_stream *stream, enum hoist__copy kind,
			const struct hoist__box *box)
{
	struct box_op *op = hoist__cpu_op_create(sizeof *op, run_box);
	(void)kind;
	if (op == NULL)
		return -ENOMEM;
	op->box = *box;
	hoist__cpu_submit(stream, &op->op);
	return 0;
}

int hoist__cpu_copy_async(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
			  uintptr_t src, size_t bytes)
{
	const struct hoist__box box = {
		.dst = dst, .src = src, .width = bytes, .rows = 1, .planes = 1};
	return hoist__cpu_copy_box(stream, kind, &box);
}

int hoist__cpu_copy_peer_async(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
			       uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src,
			       size_t bytes)
{
	(void)dst_dev;
	(void)src_dev;
	return hoist__cpu_copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, dst, src, bytes);
}

static void run_fill(struct hoist__cpu_op *op)
{
	const struct fill_op *fill = (const struct fill_op *)op;
	size_t n = fill->n;
	if (fill->width == 1)
		memset((void *)fill->dst, (unsigned char)fill->value, n);
	else if (fill->width == 2)
		for (uint16_t *at = (uint16_t *)fill->dst; n > 0; n--)
			*at++ = (uint16_t)fill->value;
	else
		for (uint32_t *at = (uint32_t *)fill->dst; n > 0; n--)
			*at++ = fill->value;
}

int hoist__cpu_fill_async(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
			  unsigned width, size_t n)
{
	struct fill_op *op = hoist__cpu_op_create(sizeof *op, run_fill);
	if (op == NULL)
		return -ENOMEM;
	op->dst = dst;
	op->value = value;
	op->width = width;
	op->n = n;
	hoist__cpu_submit(stream, &op->op);
	return 0;
}

static void run_call(struct hoist__cpu_op *op)
{
	const struct call_op *call = (const struct call_op *)op;
	call->function(call->argument);
}

int hoist__cpu_stream_call(struct hoist__dev_stream *stream, void (*function)(void *argument),
			   void *argument)
{
	struct call_op *op = hoist__cpu_op_create(sizeof *op, run_call);
	if (op == NULL)
		return -ENOMEM;
	op->function = function;
	op->argument = argument;
	hoist__cpu_submit(stream, &op->op);
	return 0;
}
