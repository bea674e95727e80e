/* SPDX-License-Identifier: MIT */
/* emulator/copy.c - copies and memsets.
 * The contract is in emulator/core.h.
 *
 * Each device has one copy engine for each direction.  If a rate is set, a copy takes its engine
 * for bytes / rate, from the first moment at which the copy is ready, its stream has come to it and
 * the engine is idle.  Its bytes move in chunks, each at the end of its share of that time: a
 * source that is overwritten too early gives wrong bytes, as late as possible.  The times are
 * computed, not measured: a thread that wakes late makes one copy late, never the engine slow.
 * Without a rate a copy starts when ready, and runs at the speed of memory.
 *
 * A copy of rows is like one of as many bytes.  The bytes between its rows are neither moved nor
 * paid for, but must belong to the allocation or registration all the same. */
#include "config.h"

#include "emulator/graph.h"
#include "emulator/vmm.h"

#include <string.h>

#include "base/checked.h"
#include "base/past.h"
#include "emulator/stream.h"

#define CHUNK ((size_t)1 << 20)

/* Returns bytes / rate in ns. */
static uint64_t transfer_ns(size_t bytes, uint64_t rate)
{
	return (uint64_t)((unsigned __int128)bytes * 1000000000u / rate);
}

/* Chunks are multiples of every width. */
static void set(unsigned char *dst, uint32_t value, unsigned width, size_t bytes)
{
	if (width == 1)
		memset(dst, (unsigned char)value, bytes);
	else if (width == 2)
		for (size_t i = 0; i < bytes; i += 2)
			memcpy(dst + i, &(uint16_t){(uint16_t)value}, 2);
	else
		for (size_t i = 0; i < bytes; i += 4)
			memcpy(dst + i, &value, 4);
}

/* A part of an operation: some rows of one plane, or some bytes of one row. */
struct part {
	size_t dst; /* offsets */
	size_t src;
	size_t width;
	size_t rows;
};

static size_t extent(const struct part *part, size_t pitch)
{
	return (part->rows - 1) * pitch + part->width;
}

/* [locked] Moves one part; the lock is released while its bytes move. */
static int move(struct hoist__emu_op *op, const struct part *part)
{
	const struct hoist__emu_box *box = &op->box;
	int result = hoist__emu_span_touch(&op->dst, part->dst, extent(part, box->dst_pitch));
	if (result != EMU_SUCCESS)
		return result;
	if (op->kind == EMU_COPY) {
		result = hoist__emu_span_touch(&op->src, part->src, extent(part, box->src_pitch));
		if (result != EMU_SUCCESS) {
			hoist__emu_span_leave(&op->dst);
			return result;
		}
	}
	hoist__emu_unlock();
	for (size_t i = 0; i < part->rows; i++) {
		unsigned char *dst = op->dst.bytes + part->dst + i * box->dst_pitch;
		/* Bytes on one device may overlap.  A copy engine leaves the cache alone. */
		if (op->kind == EMU_COPY && op->direction == EMU_ON_DEVICE)
			memmove(dst, op->src.bytes + part->src + i * box->src_pitch, part->width);
		else if (op->kind == EMU_COPY)
			hoist__copy_past(dst, op->src.bytes + part->src + i * box->src_pitch,
					 part->width);
		else
			set(dst, op->value, op->width, part->width);
	}
	hoist__emu_lock();
	hoist__emu_span_leave(&op->dst);
	if (op->kind == EMU_COPY)
		hoist__emu_span_leave(&op->src);
	return EMU_SUCCESS;
}

static void count_moved(const struct hoist__emu_op *op)
{
	struct hoist_emulator_counters *count = &hoist__emu.count;
	if (op->kind != EMU_COPY)
		return;
	switch (op->direction) {
	case EMU_TO_DEVICE:
		count->host_to_device_bytes += op->bytes;
		break;
	case EMU_TO_HOST:
		count->device_to_host_bytes += op->bytes;
		break;
	case EMU_ON_DEVICE:
		count->device_to_device_bytes += op->bytes;
		break;
	}
}

static void sleep_unlocked(uint64_t until_ns)
{
	hoist__emu_unlock();
	hoist__emu_sleep_until(until_ns);
	hoist__emu_lock();
}

/* [locked] Takes the engine for the whole copy.
 * Returns: when the copy starts, by the engine's time. */
static uint64_t take_engine(struct hoist__emu_stream *stream, const struct hoist__emu_op *op,
			    uint64_t rate)
{
	uint64_t *engine_free = &stream->device->engine_free_ns[op->direction];
	uint64_t takes = transfer_ns(op->bytes, rate);
	uint64_t start = hoist__max_u64(op->ready_ns, stream->free_ns);
	start = hoist__max_u64(start, *engine_free);
	*engine_free = start + takes;
	stream->free_ns = start + takes;
	hoist__emu.count.engine_busy_ns += takes;
	return start;
}

/* Returns how many of @left rows are moved at once.  The memory between rows need not exist, so
 * that rows far from each other are touched one by one. */
static size_t rows_at_once(const struct hoist__emu_box *box, size_t left)
{
	const size_t page = 4096;
	if (box->width > CHUNK || box->dst_pitch - box->width >= page ||
	    box->src_pitch - box->width >= page)
		return 1;
	return (size_t)hoist__min_u64(CHUNK / box->width, left);
}

/* Returns the part of @op that begins behind its first @done bytes. */
static struct part part_of(const struct hoist__emu_op *op, size_t done)
{
	const struct hoist__emu_box *box = &op->box;
	size_t column = done % box->width;
	size_t row = done / box->width % box->rows;
	size_t plane = done / box->width / box->rows;
	struct part part = {
		.dst = plane * box->dst_plane + row * box->dst_pitch + column,
		.src = plane * box->src_plane + row * box->src_pitch + column,
		.width = (size_t)hoist__min_u64(CHUNK, box->width - column),
		.rows = column > 0 ? 1 : rows_at_once(box, box->rows - row),
	};
	return part;
}

int hoist__emu_copy_perform(struct hoist__emu_stream *stream, struct hoist__emu_op *op)
{
	sleep_unlocked(op->ready_ns);
	if (op->forced != 0)
		return op->forced;
	uint64_t rate = op->kind == EMU_COPY ? hoist__emu.now.rate : 0;
	uint64_t start = rate != 0 ? take_engine(stream, op, rate) : 0;
	for (size_t done = 0; done < op->bytes;) {
		const struct part part = part_of(op, done);
		done += part.rows * part.width;
		if (rate != 0)
			sleep_unlocked(start + transfer_ns(done, rate));
		int result = move(op, &part);
		if (result != EMU_SUCCESS)
			return result;
	}
	if (rate == 0)
		stream->free_ns = hoist__emu_now_ns();
	count_moved(op);
	return EMU_SUCCESS;
}

/* Returns how far the last byte of a side ends from its first; 0 if its rows or planes overlap, or
 * are too far apart. */
static size_t reach(const struct hoist__emu_box *box, size_t pitch, size_t plane)
{
	uint64_t rows = 0;
	uint64_t planes = 0;
	uint64_t last = 0;
	if (box->rows > 1 && (pitch < box->width || pitch > EMU_MAX_PITCH))
		return 0;
	if (hoist__mul_overflow(box->rows - 1, pitch, &rows) ||
	    hoist__add_overflow(rows, box->width, &rows))
		return 0;
	last = box->whole_planes ? hoist__max_u64(plane, rows) : rows;
	if ((box->planes > 1 && plane < rows) ||
	    hoist__mul_overflow(box->planes - 1, plane, &planes) ||
	    hoist__add_overflow(last, planes, &planes))
		return 0;
	return (size_t)planes;
}

/* [locked] Finds both sides of a copy and takes them. */
static int find_sides(const struct hoist__emu_stream *stream, struct hoist__emu_op *op)
{
	const struct hoist__emu_device *device = stream->device;
	const struct hoist__emu_box *box = &op->box;
	size_t dst = reach(box, box->dst_pitch, box->dst_plane);
	size_t src = reach(box, box->src_pitch, box->src_plane);
	if (dst == 0 || src == 0 || !hoist__emu_vmm_allows(device, box->dst, dst, true) ||
	    !hoist__emu_vmm_allows(device, box->src, src, false) ||
	    !hoist__emu_graph_allows(stream, box->dst) ||
	    !hoist__emu_graph_allows(stream, box->src)) {
		hoist__emu.count.bad_copies++;
		return EMU_INVALID_VALUE;
	}
	int result = op->direction == EMU_TO_HOST ? hoist__emu_span_host(box->dst, dst, &op->dst)
						  : hoist__emu_span_device(box->dst, dst, &op->dst);
	if (result != EMU_SUCCESS)
		return result;
	result = op->direction == EMU_TO_DEVICE ? hoist__emu_span_host(box->src, src, &op->src)
						: hoist__emu_span_device(box->src, src, &op->src);
	if (result != EMU_SUCCESS)
		hoist__emu_span_release(&op->dst);
	return result;
}

/* [locked] Releases the sides of @op.  Returns @result. */
static int refuse(struct hoist__emu_op *op, int result)
{
	hoist__emu_span_release(&op->dst);
	hoist__emu_span_release(&op->src);
	return result;
}

/* [locked] Queues @op, whose sides are taken; they are released on failure. */
static int submit(struct hoist__emu_stream *stream, struct hoist__emu_op *op)
{
	int result = hoist__emu_stream_submit(stream, op);
	return result == EMU_SUCCESS ? EMU_SUCCESS : refuse(op, result);
}

/* [locked] Counts work that touches memory out of its device's reach, and returns its failure. */
static int touch_fails(void)
{
	hoist__emu.count.bad_touches++;
	return EMU_ILLEGAL_ADDRESS;
}

/* [locked] A driver copies pageable memory through buffers of its own, and returns when it no
 * longer needs the caller's bytes. */
static int after_submission(struct hoist__emu_stream *stream, const struct hoist__emu_op *op,
			    bool pageable)
{
	hoist__emu.count.copies++;
	if (!pageable)
		return EMU_SUCCESS;
	hoist__emu.count.pageable_copies++;
	hoist__emu.count.pageable_bytes += op->bytes;
	return hoist__emu_stream_drain(stream);
}

/* The devices of a copy that is told them; both are NULL for a copy that is not. */
struct ends {
	const struct hoist__emu_device *dst;
	const struct hoist__emu_device *src;
};

/* [locked] A copy that is told both devices must name their owners, and goes through the host if
 * the stream's device does not reach both.  Any other copy fails if that device does not reach
 * both. */
static int check_reach(const struct hoist__emu_device *device, const struct ends *ends,
		       struct hoist__emu_op *op)
{
	bool reached = hoist__emu_peer_may_touch(device, &op->dst) &&
		       hoist__emu_peer_may_touch(device, &op->src);
	if (ends->dst == NULL) {
		if (!reached)
			op->forced = touch_fails();
		return EMU_SUCCESS;
	}
	if (!hoist__emu_peer_owns(ends->dst, &op->dst) ||
	    !hoist__emu_peer_owns(ends->src, &op->src)) {
		hoist__emu.count.bad_copies++;
		return EMU_INVALID_VALUE;
	}
	hoist__emu.count.staged_copies += !reached;
	return EMU_SUCCESS;
}

static int copy_between(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			enum hoist__emu_direction direction, const struct ends *ends,
			const struct hoist__emu_box *box)
{
	struct hoist__emu_stream *stream = NULL;
	struct hoist__emu_op op = {.kind = EMU_COPY, .direction = direction, .box = *box};
	bool empty = box->width == 0 || box->rows == 0 || box->planes == 0;
	hoist__emu_lock();
	int result = hoist__emu_stream_find(device, handle, &stream);
	if (result == EMU_SUCCESS && !empty)
		result = find_sides(stream, &op);
	if (result == EMU_SUCCESS && !empty) {
		const struct hoist__emu_span *host = direction == EMU_TO_HOST ? &op.dst : &op.src;
		bool pageable = host->host && host->block == NULL;
		op.bytes = box->width * box->rows * box->planes;
		op.forced = hoist__emu_fault_due(EMU_FAULT_ASYNC);
		result = check_reach(stream->device, ends, &op);
		result = result == EMU_SUCCESS ? submit(stream, &op) : refuse(&op, result);
		if (result == EMU_SUCCESS)
			result = after_submission(stream, &op, pageable);
	}
	hoist__emu_unlock();
	return result;
}

int hoist__emu_copy_box(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			enum hoist__emu_direction direction, const struct hoist__emu_box *box)
{
	return copy_between(device, handle, direction, &(struct ends){0}, box);
}

static struct hoist__emu_box row_of(uintptr_t dst, uintptr_t src, size_t bytes)
{
	return (struct hoist__emu_box){
		.dst = dst,
		.src = src,
		.width = bytes,
		.rows = 1,
		.planes = 1,
		.dst_pitch = bytes,
		.src_pitch = bytes,
	};
}

int hoist__emu_copy(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
		    enum hoist__emu_direction direction, uintptr_t dst, uintptr_t src, size_t bytes)
{
	const struct hoist__emu_box box = row_of(dst, src, bytes);
	return hoist__emu_copy_box(device, handle, direction, &box);
}

int hoist__emu_copy_peer(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
			 const struct hoist__emu_device *dst_device, uintptr_t dst,
			 const struct hoist__emu_device *src_device, uintptr_t src, size_t bytes)
{
	const struct hoist__emu_box box = row_of(dst, src, bytes);
	return copy_between(device, handle, EMU_ON_DEVICE, &(struct ends){dst_device, src_device},
			    &box);
}

int hoist__emu_memset(struct hoist__emu_device *device, struct hoist__emu_stream *handle,
		      uintptr_t dst, uint32_t value, unsigned width, size_t n)
{
	struct hoist__emu_stream *stream = NULL;
	if (dst % width != 0 || n > SIZE_MAX / width)
		return EMU_INVALID_VALUE;
	struct hoist__emu_op op = {
		.kind = EMU_MEMSET,
		.direction = EMU_ON_DEVICE,
		.bytes = n * width,
		.box = row_of(dst, 0, n * width),
		.value = value,
		.width = width,
	};
	hoist__emu_lock();
	int result = hoist__emu_stream_find(device, handle, &stream);
	if (result == EMU_SUCCESS && n > 0 &&
	    (!hoist__emu_vmm_allows(stream->device, dst, op.bytes, true) ||
	     !hoist__emu_graph_allows(stream, dst))) {
		hoist__emu.count.bad_copies++;
		result = EMU_INVALID_VALUE;
	}
	if (result == EMU_SUCCESS && n > 0)
		result = hoist__emu_span_device(dst, op.bytes, &op.dst);
	if (result == EMU_SUCCESS && n > 0) {
		if (!hoist__emu_peer_may_touch(stream->device, &op.dst))
			op.forced = touch_fails();
		result = submit(stream, &op);
		hoist__emu.count.memsets += result == EMU_SUCCESS;
	}
	hoist__emu_unlock();
	return result;
}
