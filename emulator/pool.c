/* SPDX-License-Identifier: MIT */
/* emulator/pool.c - pieces and blocks of pools.
 * The contract is in emulator/pool.h. */
#include "config.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "emulator/block.h"
#include "emulator/graph.h"
#include "emulator/ipc.h"
#include "emulator/stream.h"

static struct hoist__emu_piece *piece_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__emu_piece, node);
}

/* [locked] All functions but hoist__emu_pool_alloc() and hoist__emu_pool_free(). */

static void grow_value(struct hoist__emu_pool *pool, unsigned current, size_t bytes)
{
	pool->values[current] += bytes;
	pool->values[current + 1] =
		hoist__max_u64(pool->values[current + 1], pool->values[current]);
}

static bool has_passed(const struct hoist__emu_piece *piece)
{
	return piece->n_releases == 0;
}

/* --- pieces --- */

/* Only memory that a device could not page counts as the device's. */
static int take_place(struct hoist__emu_piece *piece)
{
	struct hoist__emu_block *place = &piece->place;
	bool managed = piece->pool->kind == EMU_POOL_MANAGED;
	if (piece->pool->kind == EMU_POOL_DEVICE)
		return hoist__emu_block_place(place);
	if (managed && !hoist__emu_has_room(place->device, place->rounded))
		return EMU_OUT_OF_MEMORY;
	void *memory = mmap(NULL, place->rounded, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return EMU_OUT_OF_MEMORY;
	place->range.start = (uintptr_t)memory;
	if (managed)
		hoist__emu_block_take(place);
	return EMU_SUCCESS;
}

static void give_place(struct hoist__emu_piece *piece)
{
	struct hoist__emu_block *place = &piece->place;
	if (piece->pool->kind != EMU_POOL_HOST)
		hoist__emu_block_give(place);
	if (piece->pool->kind == EMU_POOL_DEVICE)
		hoist__emu_block_unplace(place);
	else
		(void)munmap((void *)place->range.start, place->rounded);
}

/* The set that has the pool's blocks: memory that the host may touch is looked up by other
 * functions than a device's. */
static void **set_of(const struct hoist__emu_pool *pool)
{
	return pool->kind == EMU_POOL_DEVICE ? &hoist__emu.allocations : &hoist__emu.registrations;
}

static void release_piece(struct hoist__emu_piece *piece)
{
	piece->pool->values[EMU_POOL_RESERVED_CURRENT] -= piece->place.rounded;
	give_place(piece);
	hoist__list_remove(&piece->node);
	piece->pool->n_pieces--;
	hoist__emu_mark_unref(piece->mark);
	free(piece);
}

void hoist__emu_pool_settle(struct hoist__emu_pool *pool, uint64_t keep)
{
	struct hoist__list *next = NULL;
	for (struct hoist__list *at = pool->free.next; at != &pool->free; at = next) {
		struct hoist__emu_piece *piece = piece_of(at);
		next = at->next;
		if (pool->values[EMU_POOL_RESERVED_CURRENT] <= keep)
			break;
		if (has_passed(piece))
			release_piece(piece);
	}
	if (pool->closing && pool->n_pieces == 0) {
		hoist__list_remove(&pool->node);
		if (pool->imported)
			(void)close(pool->fd);
		free(pool);
	}
}

static struct hoist__emu_piece *make_piece(struct hoist__emu_pool *pool, size_t rounded)
{
	uint64_t reserved = pool->values[EMU_POOL_RESERVED_CURRENT];
	if (pool->max_bytes != 0 &&
	    (reserved > pool->max_bytes || rounded > pool->max_bytes - reserved))
		return NULL;
	struct hoist__emu_piece *piece = calloc(1, sizeof *piece);
	if (piece == NULL)
		return NULL;
	piece->pool = pool;
	piece->place.device = pool->device;
	piece->place.rounded = rounded;
	if (take_place(piece) != EMU_SUCCESS) {
		free(piece);
		return NULL;
	}
	hoist__list_push_back(&pool->free, &piece->node);
	pool->n_pieces++;
	grow_value(pool, EMU_POOL_RESERVED_CURRENT, rounded);
	return piece;
}

enum whose { OF_STREAM, OF_PASSED, OF_ANY };

static bool fits(const struct hoist__emu_piece *piece, const struct hoist__emu_stream *stream,
		 enum whose whose, size_t rounded)
{
	if (piece->place.rounded < rounded)
		return false;
	switch (whose) {
	case OF_STREAM:
		return piece->stream == stream && piece->place.rounded / 2 <= rounded;
	case OF_PASSED:
		return has_passed(piece) && piece->place.rounded / 2 <= rounded;
	case OF_ANY:
		break;
	}
	return true;
}

/* Returns the smallest piece that is large enough. */
static struct hoist__emu_piece *find_piece(struct hoist__emu_pool *pool,
					   const struct hoist__emu_stream *stream, enum whose whose,
					   size_t rounded)
{
	struct hoist__emu_piece *best = NULL;
	for (struct hoist__list *at = pool->free.next; at != &pool->free; at = at->next) {
		struct hoist__emu_piece *piece = piece_of(at);
		if (fits(piece, stream, whose, rounded) &&
		    (best == NULL || piece->place.rounded < best->place.rounded))
			best = piece;
	}
	return best;
}

/* Makes @stream wait until the piece's release has passed. */
static int wait_for_release(struct hoist__emu_stream *stream, struct hoist__emu_piece *piece)
{
	if (piece->mark == NULL || piece->stream == stream)
		return EMU_SUCCESS;
	struct hoist__emu_op op = {.kind = EMU_WAIT, .mark = piece->mark};
	int result = hoist__emu_stream_queue(stream, &op);
	piece->mark->refs += result == EMU_SUCCESS;
	return result;
}

static int get_piece(struct hoist__emu_pool *pool, struct hoist__emu_stream *stream, size_t rounded,
		     struct hoist__emu_piece **ret)
{
	*ret = find_piece(pool, stream, OF_STREAM, rounded);
	if (*ret == NULL && pool->values[EMU_POOL_OPPORTUNISTIC] != 0)
		*ret = find_piece(pool, stream, OF_PASSED, rounded);
	if (*ret == NULL)
		*ret = make_piece(pool, rounded);
	if (*ret == NULL) {
		hoist__emu_pool_settle(pool, 0);
		*ret = make_piece(pool, rounded);
	}
	if (*ret != NULL || pool->values[EMU_POOL_DEPENDENCIES] == 0)
		return *ret != NULL ? EMU_SUCCESS : EMU_OUT_OF_MEMORY;
	*ret = find_piece(pool, stream, OF_ANY, rounded);
	return *ret != NULL ? wait_for_release(stream, *ret) : EMU_OUT_OF_MEMORY;
}

/* --- blocks --- */

static int alloc_block(struct hoist__emu_pool *pool, struct hoist__emu_stream *stream,
		       struct hoist__emu_block *block)
{
	struct hoist__emu_piece *piece = NULL;
	int result = stream->error;
	if (result == EMU_SUCCESS)
		result = get_piece(pool, stream, block->rounded, &piece);
	if (result != EMU_SUCCESS)
		return result;
	block->range.start = piece->place.range.start;
	if (hoist__emu_range_add(set_of(pool), &block->range) < 0)
		return EMU_OUT_OF_MEMORY; /* the piece stays, and is free */
	block->piece = piece;
	hoist__list_remove(&piece->node);
	hoist__emu_mark_unref(piece->mark);
	piece->mark = NULL;
	grow_value(pool, EMU_POOL_USED_CURRENT, block->rounded);
	hoist__emu.count.live_allocations++;
	return EMU_SUCCESS;
}

/* Takes the block off its piece, which is free once @mark has passed. */
static void leave_piece(struct hoist__emu_block *block, struct hoist__emu_stream *stream,
			struct hoist__emu_mark *mark)
{
	struct hoist__emu_piece *piece = block->piece;
	hoist__emu_range_remove(set_of(piece->pool), &block->range);
	piece->pool->values[EMU_POOL_USED_CURRENT] -= block->rounded;
	hoist__list_push_back(&piece->pool->free, &piece->node);
	piece->stream = stream;
	piece->mark = mark;
}

/* A driver reserves the memory that a free needs when it allocates.  Here, without memory, the host
 * waits for the stream instead. */
static int free_block(struct hoist__emu_block *block, struct hoist__emu_stream *stream)
{
	struct hoist__emu_mark *mark = calloc(1, sizeof *mark);
	struct hoist__emu_op op = {.kind = EMU_RELEASE, .mark = mark, .block = block};
	if (mark == NULL || hoist__emu_stream_queue(stream, &op) != EMU_SUCCESS) {
		free(mark);
		(void)hoist__emu_stream_drain(stream);
		hoist__emu.count.live_allocations--;
		return hoist__emu_pool_free_now(block);
	}
	mark->refs = 2; /* one for the operation, one for the piece */
	leave_piece(block, stream, mark);
	block->piece->n_releases++;
	hoist__emu.count.live_allocations--;
	return stream->error;
}

void hoist__emu_pool_passed(struct hoist__emu_op *op)
{
	struct hoist__emu_block *block = op->block;
	struct hoist__emu_pool *pool = block->piece->pool;
	op->mark->done = true;
	block->piece->n_releases--;
	if (block->users > 0) {
		hoist__emu.count.use_after_free++;
		block->dead = true;
	} else {
		hoist__emu_block_discard(block);
	}
	if (pool->closing)
		hoist__emu_pool_settle(pool, 0);
}

int hoist__emu_pool_free_now(struct hoist__emu_block *block)
{
	struct hoist__emu_pool *pool = block->piece->pool;
	leave_piece(block, NULL, NULL);
	int result = hoist__emu_block_retire(block);
	if (pool->closing)
		hoist__emu_pool_settle(pool, 0);
	return result;
}

void hoist__emu_pools_synchronized(struct hoist__emu_device *device)
{
	struct hoist__list *next = NULL;
	for (struct hoist__list *at = device->pools.next; at != &device->pools; at = next) {
		struct hoist__emu_pool *pool =
			HOIST__CONTAINER_OF(at, struct hoist__emu_pool, node);
		next = at->next;
		hoist__emu_pool_settle(pool, pool->closing ? 0 : pool->values[EMU_POOL_THRESHOLD]);
	}
}

/* A capturing stream's allocation is a node of its graph, and needs no block. */
int hoist__emu_pool_alloc(struct hoist__emu_device *device, struct hoist__emu_pool *handle,
			  struct hoist__emu_stream *stream, size_t bytes, uintptr_t *ret)
{
	if (bytes == 0 || ret == NULL)
		return EMU_INVALID_VALUE;
	if (bytes > SIZE_MAX / 4)
		return EMU_OUT_OF_MEMORY;
	struct hoist__emu_block *block = calloc(1, sizeof *block);
	if (block == NULL)
		return EMU_OUT_OF_MEMORY;
	block->range.bytes = bytes;
	block->rounded = hoist__emu_round(bytes);
	hoist__emu_lock();
	struct hoist__emu_pool *pool = hoist__emu_pool_find(handle);
	int result = EMU_INVALID_VALUE;
	if (pool != NULL && !pool->imported)
		result = hoist__emu_stream_find(device, stream, &stream);
	bool captures = result == EMU_SUCCESS && stream->capture != EMU_CAPTURE_NONE;
	if (captures) {
		result = hoist__emu_graph_add(stream, pool->device, block->rounded, ret);
	} else if (result == EMU_SUCCESS) {
		block->device = pool->device;
		block->managed = pool->kind == EMU_POOL_MANAGED;
		if (pool->kind != EMU_POOL_DEVICE)
			block->rounded = (size_t)hoist__round_up(block->rounded,
								 (uint64_t)sysconf(_SC_PAGESIZE));
		result = alloc_block(pool, stream, block);
	}
	if (result == EMU_SUCCESS && !captures)
		*ret = block->range.start;
	hoist__emu_unlock();
	if (result != EMU_SUCCESS || captures)
		free(block);
	return result;
}

/* [locked] */
static struct hoist__emu_block *find_block(uintptr_t address)
{
	struct hoist__emu_block *block = hoist__emu_range_find(&hoist__emu.allocations, address, 1);
	if (block == NULL)
		block = hoist__emu_range_find(&hoist__emu.registrations, address, 1);
	return block != NULL && block->range.start == address ? block : NULL;
}

static bool is_imported(const struct hoist__emu_block *block)
{
	return block != NULL && block->window != NULL && hoist__emu_window_is_of_pool(block);
}

/* [locked] Another process's block goes once the stream has passed.  The lock is released while the
 * host waits, so the block is looked for anew. */
static int free_imported(uintptr_t address, struct hoist__emu_stream *stream)
{
	int result = hoist__emu_stream_drain(stream);
	struct hoist__emu_block *block = find_block(address);
	if (!is_imported(block)) {
		hoist__emu.count.bad_frees++;
		return EMU_INVALID_VALUE;
	}
	hoist__emu_window_leave(block);
	int freed = hoist__emu_block_retire(block);
	return result != EMU_SUCCESS ? result : freed;
}

/* Memory of a graph has no block, and a free on a capturing stream is a node of its graph. */
int hoist__emu_pool_free(struct hoist__emu_device *device, uintptr_t address,
			 struct hoist__emu_stream *stream)
{
	if (address == 0)
		return EMU_SUCCESS;
	hoist__emu_lock();
	int result = hoist__emu_stream_find(device, stream, &stream);
	if (result == EMU_SUCCESS &&
	    (hoist__emu_graph_has(address) || stream->capture != EMU_CAPTURE_NONE)) {
		result = hoist__emu_graph_free(stream, address);
		hoist__emu_unlock();
		return result;
	}
	struct hoist__emu_block *block = find_block(address);
	bool imported = is_imported(block);
	if (!imported && (block == NULL || block->piece == NULL)) {
		hoist__emu.count.bad_frees++;
		result = EMU_INVALID_VALUE;
	}
	if (result == EMU_SUCCESS)
		result = imported ? free_imported(address, stream) : free_block(block, stream);
	hoist__emu_unlock();
	return result;
}
