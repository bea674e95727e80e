/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-fill.c - sets the bytes of buffers to a pattern.
 * The contract is in hoist/copy.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "hoist/copy.h"
#include "lib/copy/copy.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"

#define WIDEST 16u
#define MOST_UNIT 512u /* no block of a dtype is larger */

/* One fill: @bytes bytes in one run; or, if there are loops, units of @unit bytes each. */
struct fill {
	struct hoist__move move; /* its source is `block`, again and again */
	size_t bytes;		 /* of the run; 0: there are loops */
	size_t width;
	unsigned char block[MOST_UNIT]; /* the pattern, repeated */
};

/* --- in host memory --- */

/* Doubles the part that is filled, so that most of the work is long copies. */
static void fill_run(unsigned char *to, size_t bytes, const struct fill *fill)
{
	size_t done = fill->width;
	if (fill->width == 1) {
		memset(to, fill->block[0], bytes);
		return;
	}
	memcpy(to, fill->block, done);
	while (done < bytes) {
		/* No piece is larger than a cache keeps. */
		size_t n = hoist__min_u64(hoist__min_u64(done, 16 * HOIST__KIB), bytes - done);
		memcpy(to + done, to, n);
		done += n;
	}
}

static void fill_host(const struct fill *fill)
{
	unsigned char *to = (unsigned char *)fill->move.dst.address;
	if (fill->bytes > 0)
		fill_run(to, fill->bytes, fill);
	else
		hoist__nest_copy(&fill->move.nest, to, fill->block);
}

static int run_queued(void *context)
{
	fill_host(context);
	free(context);
	return 0;
}

static int queue_on_cpu(const struct fill *fill, hoist_stream *stream)
{
	struct fill *kept = malloc(sizeof *kept);
	if (kept == NULL)
		return hoist__fail_nomem("a fill on a stream", sizeof *kept);
	*kept = *fill;
	int err = hoist__dev_stream_call(hoist__stream_dev_stream(stream), run_queued, kept);
	if (err < 0)
		free(kept);
	return err;
}

/* --- in a device's --- */

static uint32_t value_of(const unsigned char *bytes, unsigned width)
{
	uint32_t value = 0;
	for (unsigned i = width; i-- > 0;)
		value = value << 8 | bytes[i];
	return value;
}

/* Drivers set elements of 1, 2 and 4 bytes at addresses aligned for them.  Any other run begins
 * with one pattern, made of such elements, and grows by copies of itself. */
static int queue_run(const struct fill *fill, struct hoist__dev_stream *stream)
{
	uintptr_t to = fill->move.dst.address;
	size_t width = fill->width;
	if (width <= 4 && to % width == 0)
		return hoist__fill_async(stream, to, value_of(fill->block, (unsigned)width),
					 (unsigned)width, fill->bytes / width);
	unsigned step = to % 4 == 0 ? 4 : to % 2 == 0 ? 2 : 1;
	int err = 0;
	for (size_t i = 0; err == 0 && i < width; i += step)
		err = hoist__fill_async(stream, to + i, value_of(fill->block + i, step), step, 1);
	for (size_t done = width; err == 0 && done < fill->bytes;) {
		size_t n = hoist__min_u64(done, fill->bytes - done);
		err = hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, to + done, to, n);
		done += n;
	}
	return err;
}

static int fill_device(const struct fill *fill)
{
	hoist_device *device = fill->move.dst.device;
	struct hoist__lane *lane;
	if (fill->bytes == 0) {
		struct hoist__move move = fill->move;
		move.src = (struct hoist__span){NULL, HOIST__MEMORY_HOST, (uintptr_t)fill->block};
		return hoist__move_run(&move);
	}
	int err = hoist__lane_acquire(device, &lane);
	if (err < 0)
		return err;
	err = queue_run(fill, lane->stream);
	return hoist__lane_release(device, lane, err);
}

/* --- planning --- */

static int check_width(const hoist_buffer *buffer, const void *pattern, size_t width)
{
	if (pattern == NULL)
		return hoist__fail(-EINVAL, "the pattern to fill with is NULL");
	if (!hoist__is_power_of_two(width) || width > WIDEST)
		return hoist__fail(
			-EINVAL, "a pattern of %zu bytes to fill with; it must be 1, 2, 4, 8 or 16",
			width);
	if (buffer->bytes % width != 0)
		return hoist__fail(
			-EINVAL,
			"the %zu bytes of the buffer are not divisible by the pattern's %zu",
			buffer->bytes, width);
	if (hoist__buffer_overlaps_itself(buffer))
		return hoist__fail(-EINVAL,
				   "elements of the buffer overlap, by its strides, or may");
	if (!hoist__storage_has_access(buffer->storage))
		return hoist__fail(-ENOTSUP, "nothing may touch the buffer's memory");
	return 0;
}

/* Plans loops over units with gaps between them. */
static int plan_units(const hoist_buffer *buffer, size_t width, struct fill *fill)
{
	static const int64_t none[HOIST__MAX_RANK];
	struct hoist__units units;
	hoist__units_of(buffer, &units);
	if (units.bytes == 0 || units.bytes > MOST_UNIT)
		return hoist__fail(-ENOTSUP,
				   "elements of %s that share bytes with others cannot be filled",
				   hoist_dtype_name(buffer->dtype));
	if (units.bytes % width != 0)
		return hoist__fail(-EINVAL,
				   "a pattern of %zu bytes over elements of %zu that are not "
				   "contiguous; it must fit into one",
				   width, units.bytes);
	for (size_t i = width; i < units.bytes; i++)
		fill->block[i] = fill->block[i - width];
	(void)hoist__nest_make(units.rank, units.shape, units.strides, none, units.bytes,
			       &fill->move.nest);
	return 0;
}

/* Pre: the buffer has its memory. */
static int plan(const hoist_buffer *buffer, const void *pattern, size_t width, struct fill *fill)
{
	memcpy(fill->block, pattern, width);
	fill->bytes = 0;
	fill->move.through = NULL;
	fill->move.dst = hoist__buffer_span(buffer, 0);
	if (!hoist__buffer_is_run(buffer))
		return plan_units(buffer, width, fill);
	while (width > 1 && memcmp(fill->block, fill->block + width / 2, width / 2) == 0)
		width /= 2;
	fill->bytes = buffer->bytes;
	fill->width = width;
	return 0;
}

static int run(const struct fill *fill)
{
	int err = hoist__span_check(&fill->move.dst);
	if (err < 0 || !hoist__span_on_host(&fill->move.dst))
		return err < 0 ? err : fill_device(fill);
	fill_host(fill);
	return 0;
}

static int fail_fill(const hoist_buffer *buffer, int err)
{
	return err < 0 ? hoist__fail_in(err, "filling %zu bytes on %s", buffer->bytes,
					hoist_device_spec(buffer->device))
		       : 0;
}

int hoist_buffer_fill(hoist_buffer *buffer, const void *pattern, size_t width)
{
	struct fill fill;
	int err = hoist__buffer_check_writable(buffer, "the buffer");
	if (err == 0)
		err = check_width(buffer, pattern, width);
	if (err < 0 || buffer->bytes == 0)
		return err;
	err = hoist__buffer_settle(buffer);
	if (err == 0)
		err = plan(buffer, pattern, width, &fill);
	if (err == 0)
		err = run(&fill);
	return fail_fill(buffer, err);
}

/* --- on a stream --- */

static int check_stream(const hoist_buffer *buffer, hoist_stream *stream)
{
	if (stream == NULL)
		return hoist__fail(-EINVAL, "the stream to fill on is NULL");
	if (hoist_stream_device(stream) == buffer->device)
		return 0;
	return hoist__fail(-EINVAL, "a stream of %s cannot fill a buffer on %s",
			   hoist_device_spec(hoist_stream_device(stream)),
			   hoist_device_spec(buffer->device));
}

/* True if a driver can set the bytes by itself, or the CPU's stream does. */
static bool is_queued(const hoist_buffer *buffer, const struct fill *fill)
{
	enum hoist__memory_kind kind = fill->move.dst.kind;
	if (hoist__device_is_cpu(buffer->device))
		return true;
	return fill->bytes > 0 && (kind == HOIST__MEMORY_DEVICE || kind == HOIST__MEMORY_MANAGED);
}

static int queue(hoist_buffer *buffer, const struct fill *fill, hoist_stream *stream)
{
	int err;
	if (!is_queued(buffer, fill)) {
		err = hoist__stream_reach(stream);
		return err < 0 ? err : run(fill);
	}
	err = hoist__storage_use(buffer->storage, stream);
	if (err < 0)
		return err;
	return hoist__device_is_cpu(buffer->device)
		       ? queue_on_cpu(fill, stream)
		       : queue_run(fill, hoist__stream_dev_stream(stream));
}

int hoist_buffer_fill_on(hoist_buffer *buffer, const void *pattern, size_t width,
			 hoist_stream *stream)
{
	struct fill fill;
	int err = hoist__buffer_check_writable(buffer, "the buffer");
	if (err == 0)
		err = check_stream(buffer, stream);
	if (err == 0)
		err = check_width(buffer, pattern, width);
	if (err < 0 || buffer->bytes == 0)
		return err;
	err = hoist__storage_allocate(buffer->storage);
	if (err == 0)
		err = plan(buffer, pattern, width, &fill);
	if (err == 0)
		err = queue(buffer, &fill, stream);
	return fail_fill(buffer, err);
}
