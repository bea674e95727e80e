/* SPDX-License-Identifier: MIT */
/* Gathers bytes of a tensor that do not lie in the file's order.
 * The contract is in lib/save/save.h.
 *
 * A range of a row-major tensor is a few boxes: at each level the rest of the row that the range
 * begins in, whole rows in the middle, and the beginning of the row that it ends in.  Each box is a
 * copy between strides, which lib/copy/copy.h makes. */
#include "config.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/dtype.h"
#include "hoist/compat.h"
#include "hoist/copy.h"
#include "hoist/load.h"
#include "lib/device/device.h"
#include "lib/save/save.h"

/* The largest unit; every block type has fewer bytes. */
#define MAX_UNIT_BYTES 1024

struct gather {
	const hoist_buffer *buffer;
	struct hoist__units units;
	struct hoist__span to;		     /* the place of the next unit */
	uint64_t inner[HOIST__MAX_RANK + 1]; /* units in one step along axis k - 1 */
};

/* --- boxes --- */

/* Copies @n steps along @axis, each with all of the axes behind it, from unit @offset on. */
static int move_box(struct gather *gather, int axis, int64_t offset, int64_t n)
{
	const struct hoist__units *units = &gather->units;
	int rank = units->rank - axis;
	int64_t shape[HOIST__MAX_RANK];
	int64_t dense[HOIST__MAX_RANK];
	int64_t step = 1;
	for (int i = rank - 1; i >= 0; i--) {
		shape[i] = i == 0 ? n : units->shape[axis + i];
		dense[i] = step;
		step *= shape[i];
	}
	struct hoist__move move = {
		.dst = gather->to,
		.src = hoist__buffer_span(gather->buffer, offset * (int64_t)units->bytes),
	};
	gather->to.address += (uintptr_t)step * units->bytes;
	if (!hoist__nest_make(rank, shape, dense, units->strides + axis, units->bytes, &move.nest))
		return 0;
	return hoist__move_run(&move);
}

/* Copies units [@first, @first + @count) of the row-major order of the axes from @axis on. */
static int move_range(struct gather *gather, int axis, int64_t offset, uint64_t first,
		      uint64_t count)
{
	if (count == 0)
		return 0;
	if (axis == gather->units.rank)
		return move_box(gather, axis, offset, 1);
	uint64_t row = gather->inner[axis + 1];
	int64_t stride = gather->units.strides[axis];
	int64_t at = offset + (int64_t)(first / row) * stride;
	uint64_t into = first % row;
	int err = 0;
	if (into != 0 || count < row) {
		uint64_t n = hoist__min_u64(count, row - into);
		err = move_range(gather, axis + 1, at, into, n);
		at += stride;
		count -= n;
	}
	uint64_t whole = count / row;
	if (err == 0 && whole > 0)
		err = move_box(gather, axis, at, (int64_t)whole);
	if (err == 0)
		err = move_range(gather, axis + 1, at + (int64_t)whole * stride, 0, count % row);
	return err;
}

/* --- bytes --- */

/* Copies a part of one unit, by way of a copy of the whole unit. */
static int move_part(struct gather *gather, uint64_t unit, size_t from, size_t bytes)
{
	unsigned char whole[MAX_UNIT_BYTES];
	struct hoist__span to = gather->to;
	gather->to = (struct hoist__span){NULL, HOIST__MEMORY_HOST, (uintptr_t)whole};
	int err = move_range(gather, 0, 0, unit, 1);
	gather->to = to;
	if (err < 0)
		return err;
	memcpy((void *)to.address, whole + from, bytes);
	gather->to.address += bytes;
	return 0;
}

static int move_bytes(struct gather *gather, uint64_t from, size_t bytes)
{
	size_t unit = gather->units.bytes;
	int err = 0;
	if (from % unit != 0) {
		size_t n = (size_t)hoist__min_u64(unit - from % unit, bytes);
		err = move_part(gather, from / unit, from % unit, n);
		from += n;
		bytes -= n;
	}
	if (err == 0)
		err = move_range(gather, 0, 0, from / unit, bytes / unit);
	from += bytes / unit * unit;
	if (err == 0 && bytes % unit != 0)
		err = move_part(gather, from / unit, 0, bytes % unit);
	return err;
}

static int gather_units(const hoist_buffer *buffer, const struct hoist__units *units, uint64_t from,
			size_t bytes, const struct hoist__span *to)
{
	struct gather gather = {.buffer = buffer, .units = *units, .to = *to};
	gather.inner[units->rank] = 1;
	for (int i = units->rank - 1; i >= 0; i--)
		gather.inner[i] = gather.inner[i + 1] * (uint64_t)units->shape[i];
	return move_bytes(&gather, from, bytes);
}

/* --- packing --- */

/* True if the buffer's bytes cannot be gathered: its elements are not whole bytes, and do not lie
 * side by side. */
static bool needs_packing(const hoist_buffer *buffer)
{
	struct hoist__units units;
	if (buffer->contiguous && buffer->bit == 0)
		return false;
	hoist__units_of(buffer, &units);
	return units.bytes == 0;
}

static int copy_packed(hoist_buffer *buffer, hoist_buffer **ret)
{
	hoist_device *cpu;
	int err = hoist__device_cpu(&cpu);
	return err < 0 ? err : hoist_buffer_contiguous(buffer, cpu, ret);
}

/* Strided buffers are copied box by box. */
static int copy_range(const hoist_buffer *buffer, uint64_t from, size_t bytes,
		      const struct hoist__span *to)
{
	struct hoist__units units;
	if (buffer->contiguous && buffer->bit == 0) {
		const struct hoist__span here = hoist__buffer_span(buffer, (int64_t)from);
		return hoist__transfer(to, &here, bytes);
	}
	hoist__units_of(buffer, &units);
	return gather_units(buffer, &units, from, bytes, to);
}

static void drop_packed(struct hoist_save *save)
{
	hoist_buffer_unref(save->packed);
	save->packed = NULL;
	save->packed_of = NULL;
}

/* Copies from a packed copy of the whole buffer.  Only one such copy exists at a time, in host
 * memory, until another tensor needs one or the buffer's end has been copied.  If a range follows
 * then, the copy is made again. */
static int gather_packed(struct hoist_save *save, const struct hoist__save_source *source,
			 hoist_buffer *buffer, uint64_t from, size_t bytes,
			 const struct hoist__span *to)
{
	int err = 0;
	bool ends = from + bytes == buffer->bytes;
	pthread_mutex_lock(&save->packing);
	if (save->packed_of != source) {
		drop_packed(save);
		err = copy_packed(buffer, &save->packed);
		save->packed_of = err == 0 ? source : NULL;
	}
	if (err == 0)
		err = copy_range(save->packed, from, bytes, to);
	if (ends)
		drop_packed(save);
	pthread_mutex_unlock(&save->packing);
	return err;
}

int hoist__source_gather(struct hoist_save *save, const struct hoist__save_source *source,
			 hoist_buffer *buffer, uint64_t from, size_t bytes, unsigned char *to)
{
	HOIST__ASSERT(bytes != 0 && from + bytes <= buffer->bytes);
	bool pinned = save->n_streams > 0;
	const struct hoist__span slot = {
		pinned ? hoist_stream_device(save->streams[0]) : NULL,
		pinned ? HOIST__MEMORY_PINNED : HOIST__MEMORY_HOST,
		(uintptr_t)to,
	};
	return needs_packing(buffer) ? gather_packed(save, source, buffer, from, bytes, &slot)
				     : copy_range(buffer, from, bytes, &slot);
}
