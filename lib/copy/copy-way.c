/* SPDX-License-Identifier: MIT */
/* lib/copy/copy-way.c - chooses which way the bytes of a move go, and sends them.
 * The contract is in lib/copy/copy.h. */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "hoist/stream.h"
#include "lib/copy/copy.h"
#include "lib/device/device.h"
#include "lib/device/stream.h"

/* A copy of more driver calls than this has run for long before the last call is queued. */
#define MOST_CALLS 1024u
/* Between peers each row is one call.  Rows of at least PEER_ROW_BYTES are faster as driver calls,
 * and so are a few rows of any size. */
#define PEER_ROW_BYTES 4096u
#define FEW_ROWS 32u

/* The ways are described in copy.h. */
enum way { WAY_HOST, WAY_DIRECT, WAY_PEER, WAY_BOUNCE, WAY_THROUGH };

/* Chooses the way.  *kind is set where the driver copies: the kind of copy to tell it. */
static enum way way_of(const struct hoist__move *move, enum hoist__copy *kind)
{
	const struct hoist__span *dst = &move->dst;
	const struct hoist__span *src = &move->src;
	bool to_host = hoist__span_on_host(dst);
	bool from_host = hoist__span_on_host(src);
	if (to_host && from_host)
		return WAY_HOST;
	if (to_host || from_host) {
		*kind = to_host ? HOIST__COPY_DEVICE_TO_HOST : HOIST__COPY_HOST_TO_DEVICE;
		return hoist__span_is_direct(to_host ? dst : src, to_host ? src : dst) ? WAY_DIRECT
										       : WAY_BOUNCE;
	}
	*kind = HOIST__COPY_DEVICE_TO_DEVICE;
	if (dst->device == src->device)
		return WAY_DIRECT;
	return hoist__span_api(dst) == hoist__span_api(src) ? WAY_PEER : WAY_THROUGH;
}

/* The device whose streams the move uses.  Pre: one side is not host memory. */
static hoist_device *device_of(const struct hoist__move *move)
{
	return hoist__span_on_host(&move->src) ? move->dst.device : move->src.device;
}

/* --- through a third place --- */

static bool is_same(const struct hoist__move *move)
{
	const struct hoist__nest *nest = &move->nest;
	if (move->dst.address + (uintptr_t)nest->dst_offset !=
	    move->src.address + (uintptr_t)nest->src_offset)
		return false;
	for (int i = 0; i < nest->rank; i++)
		if (nest->dst_strides[i] != nest->src_strides[i])
			return false;
	return true;
}

int hoist__middle_acquire(hoist_memory *through, size_t bytes, const char *what, uintptr_t *ret)
{
	if (through != NULL)
		return hoist_memory_alloc(through, bytes, 0, ret);
	void *memory = malloc(bytes);
	if (memory == NULL)
		return hoist__fail_nomem(what, bytes);
	*ret = (uintptr_t)memory;
	return 0;
}

/* A failure has no use to the caller: the block was live, and its copy is over. */
void hoist__middle_release(hoist_memory *through, uintptr_t address)
{
	if (through != NULL)
		(void)hoist_memory_free(through, address);
	else
		free((void *)address);
}

/* Loops over overlapping sides: all bytes are read before any is written. */
static int run_overlapping(const struct hoist__move *move)
{
	const struct hoist__nest *nest = &move->nest;
	int64_t packed[HOIST__MAX_RANK];
	size_t bytes = nest->item;
	for (int i = nest->rank - 1; i >= 0; i--) {
		packed[i] = (int64_t)bytes;
		bytes *= (size_t)nest->extents[i];
	}
	uintptr_t memory = 0;
	int err = hoist__middle_acquire(move->through, bytes, "a copy onto itself", &memory);
	if (err < 0)
		return err;
	const struct hoist__span middle = {NULL, HOIST__MEMORY_HOST, memory};
	struct hoist__move in = {.dst = middle, .src = move->src, .through = move->through};
	struct hoist__move out = {.dst = move->dst, .src = middle, .through = move->through};
	in.src.address += (uintptr_t)nest->src_offset;
	out.dst.address += (uintptr_t)nest->dst_offset;
	hoist__nest_of(nest->rank, nest->extents, nest->item, packed, nest->src_strides, &in.nest);
	hoist__nest_of(nest->rank, nest->extents, nest->item, nest->dst_strides, packed, &out.nest);
	err = hoist__move_run(&in);
	if (err == 0)
		err = hoist__move_run(&out);
	hoist__middle_release(move->through, memory);
	return err;
}

/* --- waiting --- */

static int run_run(const struct hoist__move *move)
{
	struct hoist__span dst = move->dst;
	struct hoist__span src = move->src;
	dst.address += (uintptr_t)move->nest.dst_offset;
	src.address += (uintptr_t)move->nest.src_offset;
	return hoist__transfer_through(&dst, &src, move->nest.item, move->through);
}

/* True if the driver's own copies are the best way; @boxes becomes their plan. */
static bool takes_boxes(const struct hoist__move *move, enum hoist__copy kind,
			struct hoist__boxes *boxes)
{
	hoist__boxes_plan(&move->nest, boxes);
	if (kind == HOIST__COPY_DEVICE_TO_DEVICE)
		return boxes->n_calls <= MOST_CALLS;
	return hoist__boxes_cost(&move->nest, boxes) <= hoist__stage_cost(move);
}

static int run_direct(const struct hoist__move *move, enum hoist__copy kind)
{
	struct hoist__boxes boxes;
	if (!takes_boxes(move, kind, &boxes))
		return kind == HOIST__COPY_DEVICE_TO_DEVICE ? hoist__stage_between(move)
							    : hoist__stage_run(move);
	hoist_device *device = device_of(move);
	struct hoist__lane *lane;
	int err = hoist__lane_acquire(device, &lane);
	if (err < 0)
		return err;
	err = hoist__boxes_queue(lane->stream, kind, &move->nest, &boxes, move->dst.address,
				 move->src.address);
	return hoist__lane_release(device, lane, err);
}

static bool peers_take(const struct hoist__nest *nest)
{
	struct hoist__boxes boxes;
	hoist__boxes_plan(nest, &boxes);
	return boxes.n_rows <= FEW_ROWS ||
	       (boxes.n_rows <= MOST_CALLS && nest->item >= PEER_ROW_BYTES);
}

static int run_between_peers(const struct hoist__move *move)
{
	if (!peers_take(&move->nest))
		return hoist__stage_between(move);
	struct hoist__lane *lane;
	int err = hoist__lane_acquire(move->src.device, &lane);
	if (err < 0)
		return err;
	err = hoist__peers_queue(lane->stream, move);
	return hoist__lane_release(move->src.device, lane, err);
}

static int run_loops(const struct hoist__move *move)
{
	enum hoist__copy kind = HOIST__COPY_DEVICE_TO_DEVICE;
	switch (way_of(move, &kind)) {
	case WAY_HOST:
		hoist__nest_copy(&move->nest, (void *)move->dst.address,
				 (const void *)move->src.address);
		return 0;
	case WAY_DIRECT:
		return run_direct(move, kind);
	case WAY_BOUNCE:
		return hoist__stage_run(move);
	case WAY_PEER:
		return run_between_peers(move);
	case WAY_THROUGH:
		break;
	}
	return hoist__stage_between(move);
}

int hoist__move_run(const struct hoist__move *move)
{
	if (move->nest.rank == 0)
		return run_run(move);
	int err = hoist__span_check(&move->dst);
	if (err == 0)
		err = hoist__span_check(&move->src);
	if (err < 0)
		return err;
	if (!hoist__move_overlaps(move))
		return run_loops(move);
	return is_same(move) ? 0 : run_overlapping(move);
}

bool hoist__move_is_direct(const struct hoist__move *move, hoist_device **device)
{
	enum hoist__copy kind;
	struct hoist__boxes boxes;
	if (way_of(move, &kind) != WAY_DIRECT || hoist__move_overlaps(move) ||
	    !takes_boxes(move, kind, &boxes))
		return false;
	*device = device_of(move);
	return true;
}

/* --- on a stream --- */

static bool known_to(const struct hoist__span *span, enum hoist__api api)
{
	return span->kind != HOIST__MEMORY_HOST && hoist__span_api(span) == api;
}

/* Chooses the kind of copy that the driver of @api is told.  The CPU may touch managed memory, but
 * in a device's stream the driver copies managed memory, too.
 * Returns: false if this driver cannot do the move alone. */
static bool kind_for(const struct hoist__move *move, enum hoist__api api, enum hoist__copy *kind)
{
	enum way way = way_of(move, kind);
	bool to = move->dst.kind == HOIST__MEMORY_MANAGED;
	bool from = move->src.kind == HOIST__MEMORY_MANAGED;
	if (way != WAY_HOST)
		return way == WAY_DIRECT;
	if (!(to || from) || !known_to(&move->dst, api) || !known_to(&move->src, api))
		return false;
	*kind = to && from ? HOIST__COPY_DEVICE_TO_DEVICE
		: to	   ? HOIST__COPY_HOST_TO_DEVICE
			   : HOIST__COPY_DEVICE_TO_HOST;
	return true;
}

int hoist__move_queue_direct(const struct hoist__move *move, struct hoist__dev_stream *stream)
{
	enum hoist__copy kind = HOIST__COPY_DEVICE_TO_DEVICE;
	struct hoist__boxes boxes;
	(void)kind_for(move, hoist__dev_api(hoist__dev_stream_dev(stream)), &kind);
	hoist__boxes_plan(&move->nest, &boxes);
	return hoist__boxes_queue(stream, kind, &move->nest, &boxes, move->dst.address,
				  move->src.address);
}

bool hoist__move_is_queued(const struct hoist__move *move, hoist_stream *stream)
{
	hoist_device *device = hoist_stream_device(stream);
	enum hoist__api api = hoist__dev_api(hoist__device_dev(device));
	enum hoist__copy kind;
	struct hoist__boxes boxes;
	enum way way = way_of(move, &kind);
	if (api == HOIST__API_CPU)
		return way == WAY_HOST;
	if (way == WAY_PEER)
		return peers_take(&move->nest);
	if (!kind_for(move, api, &kind) || hoist__move_overlaps(move))
		return false;
	if (way == WAY_DIRECT && device_of(move) != device)
		return false;
	hoist__boxes_plan(&move->nest, &boxes);
	return boxes.n_calls <= MOST_CALLS;
}

static int run_queued(void *context)
{
	struct hoist__move *move = context;
	int err = hoist__move_run(move);
	hoist_memory_unref(move->through);
	free(move);
	return err;
}

static int queue_on_cpu(const struct hoist__move *move, struct hoist__dev_stream *stream)
{
	const struct hoist__nest *nest = &move->nest;
	if (nest->rank == 0 && !hoist__move_overlaps(move))
		return hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE,
					 move->dst.address + (uintptr_t)nest->dst_offset,
					 move->src.address + (uintptr_t)nest->src_offset,
					 nest->item);
	struct hoist__move *kept = malloc(sizeof *kept);
	if (kept == NULL)
		return hoist__fail_nomem("a copy on a stream", sizeof *kept);
	*kept = *move;
	if (kept->through != NULL)
		(void)hoist_memory_ref(kept->through);
	int err = hoist__dev_stream_call(stream, run_queued, kept);
	if (err < 0) {
		hoist_memory_unref(kept->through);
		free(kept);
	}
	return err;
}

int hoist__move_queue(const struct hoist__move *move, hoist_stream *stream)
{
	struct hoist__dev_stream *on = hoist__stream_dev_stream(stream);
	enum hoist__copy kind;
	int err = hoist__span_check(&move->dst);
	if (err == 0)
		err = hoist__span_check(&move->src);
	if (err < 0)
		return err;
	if (hoist__dev_api(hoist__dev_stream_dev(on)) == HOIST__API_CPU)
		return queue_on_cpu(move, on);
	if (way_of(move, &kind) == WAY_PEER)
		return hoist__peers_queue(on, move);
	return hoist__move_queue_direct(move, on);
}

/* --- in between --- */

int hoist__stream_reach(hoist_stream *stream)
{
	int err = hoist__stream_check_capture(stream);
	return err < 0 ? err : hoist__dev_stream_await(hoist__stream_dev_stream(stream));
}

int hoist__stream_order(hoist_stream *stream, hoist_stream *other)
{
	int err = hoist_stream_wait_for(stream, other);
	return err == -ENOTSUP ? hoist__stream_reach(other) : err;
}
