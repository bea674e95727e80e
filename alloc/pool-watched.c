/* SPDX-License-Identifier: MIT */
/* alloc/pool-watched.c - joins the pool with watch.h and trace.h: every call is checked or traced.
 * The contract is in alloc/pool-private.h.
 *
 * `raw` is the block that the allocator gave.  Without a watch (a trace alone) the user's block is
 * the same.  A watched pool does not take a block again in stream order: when the stream has
 * passed, the block is checked, filled and kept for a while, like any other.
 *
 * A fault may be found where no caller can be told, because a stream has passed or memory is taken
 * back.  The next free tells it.
 */
#include "config.h"

#include <errno.h>

#include "alloc/deferred.h"
#include "alloc/pool-private.h"
#include "alloc/trace.h"
#include "alloc/watch.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"

static void trace(struct hoist__pool *pool, const char *action, uintptr_t address, size_t bytes,
		  struct hoist__dev_stream *stream)
{
	const void *native = stream == NULL ? NULL : hoist__dev_stream_native(stream);
	pthread_mutex_lock(&pool->trace_lock);
	if (pool->trace != NULL)
		hoist__trace_line(pool->trace, action, address, bytes, native);
	pthread_mutex_unlock(&pool->trace_lock);
}

/* --- allocating --- */

/* A block that must stay unpopulated gets no redzones: writing them would populate its pages. */
static int alloc_watched(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
			 uintptr_t *ret)
{
	bool unpopulated = (flags & HOIST__ALLOC_UNPOPULATED) != 0;
	size_t raw_bytes = bytes;
	size_t raw_align = align;
	size_t allocated;
	uintptr_t raw;
	uintptr_t user;
	if (!unpopulated)
		hoist__watch_size(pool->watch, bytes, align, &raw_bytes, &raw_align);
	int err = hoist__block_take(pool, raw_bytes, raw_align, flags, &raw, &allocated);
	if (err != 0)
		return err;
	HOIST__ASSERT(allocated >= raw_bytes);
	err = hoist__watch_allocated(pool->watch, raw, allocated, bytes, align, unpopulated, &user);
	if (err != 0) {
		hoist__block_put(pool, raw);
		return err;
	}
	hoist__block_live(raw, bytes, false);
	*ret = user;
	return 0;
}

/* A pool that is only traced takes blocks from where it takes them without a trace. */
static int alloc_traced(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
			struct hoist__dev_stream *stream, uintptr_t *ret)
{
	struct hoist__deferred *deferred = atomic_load(&pool->deferred);
	size_t allocated;
	uintptr_t raw = 0;
	if (stream != NULL && deferred != NULL && pool->options.kind == HOIST__MEMORY_DEVICE)
		raw = hoist__deferred_take(deferred, stream,
					   hoist__block_rounded(pool, bytes, align),
					   align == 0 ? 1 : align);
	bool used = raw != 0;
	int err = used ? 0 : hoist__block_take(pool, bytes, align, flags, &raw, &allocated);
	if (err != 0)
		return err;
	hoist__block_live(raw, bytes, used);
	*ret = raw;
	return 0;
}

int hoist__pool_watched_alloc(struct hoist__pool *pool, size_t bytes, size_t align, unsigned flags,
			      struct hoist__dev_stream *stream, uintptr_t *ret)
{
	uintptr_t user = 0;
	int err = pool->watch != NULL ? alloc_watched(pool, bytes, align, flags, &user)
				      : alloc_traced(pool, bytes, align, flags, stream, &user);
	if (err != 0) {
		trace(pool, "allocate failure", 0, bytes, stream);
		return err;
	}
	hoist__count_alloc(pool, bytes);
	trace(pool, "allocate", user, bytes, stream);
	*ret = user;
	return 0;
}

/* --- freeing --- */

int hoist__pool_watched_raw(struct hoist__pool *pool, uintptr_t address, uintptr_t *ret)
{
	uintptr_t start = 0;
	size_t bytes;
	uintptr_t raw = hoist__block_around(pool, address);
	int err =
		raw == 0 ? -EINVAL : hoist__watch_known(pool->watch, raw, address, &start, &bytes);
	if (err == 0) {
		*ret = raw;
		return 0;
	}
	if (start != 0 && start != address)
		return hoist__fail(err, "%#zx lies inside or beside the block of %zu bytes at %#zx",
				   (size_t)address, bytes, (size_t)start);
	return hoist__fail(err, "%#zx: not a block of this pool (freed already, or another's)",
			   (size_t)address);
}

/* Ends the life of the user's block that starts at @address. */
static int claim_watched(struct hoist__pool *pool, uintptr_t address, uintptr_t *raw,
			 struct hoist__claim *claim)
{
	int err = hoist__pool_watched_raw(pool, address, raw);
	return err != 0 ? err : hoist__block_claim(pool, *raw, claim);
}

/* If there are two faults, the first one stays. */
static int first_of(int err, const struct hoist__failure *first, int later)
{
	return err == 0 ? later : hoist__fail_again(err, first);
}

/* Frees the blocks whose time in quarantine is over. */
static int let_leave(struct hoist__pool *pool)
{
	uintptr_t raw = 0;
	int err = 0;
	do {
		struct hoist__failure first;
		hoist__failure_keep(&first);
		err = first_of(err, &first, hoist__watch_leaves(pool->watch, false, &raw));
		if (raw != 0)
			hoist__block_put(pool, raw);
	} while (raw != 0);
	return err;
}

/* Frees a claimed block that no stream uses any more. */
static int finish(struct hoist__pool *pool, uintptr_t raw)
{
	uintptr_t back;
	struct hoist__failure first;
	int err = hoist__watch_freed(pool->watch, raw, &back);
	HOIST__ASSERT(back == 0 || back == raw);
	hoist__failure_keep(&first);
	if (back != 0)
		hoist__block_put(pool, back);
	return first_of(err, &first, let_leave(pool));
}

/* As hoist__pool_defer().  The caller has written the line of the free before, as another thread
 * may have the block afterwards.  If the block was not freed after all, another line takes it
 * back. */
static int defer(struct hoist__pool *pool, uintptr_t raw, uintptr_t address,
		 const struct hoist__claim *claim, struct hoist__dev_stream *stream)
{
	int err = hoist__pool_defer(pool, raw, claim, stream);
	if (err != 0)
		trace(pool, "allocate", address, claim->requested, stream);
	return err;
}

int hoist__pool_watched_free(struct hoist__pool *pool, uintptr_t address,
			     struct hoist__dev_stream *stream, bool on_stream)
{
	struct hoist__claim claim;
	uintptr_t raw = address;
	int err = pool->watch != NULL ? claim_watched(pool, address, &raw, &claim)
				      : hoist__block_claim(pool, address, &claim);
	if (err != 0)
		return err;
	trace(pool, "free", address, claim.requested, stream);
	if (claim.used || on_stream) {
		HOIST__ASSERT(claim.requested != 0);
		err = defer(pool, raw, address, &claim, stream);
	} else {
		hoist__count_free(pool, claim.requested - claim.discarded);
		if (pool->watch != NULL)
			err = finish(pool, raw);
		else
			hoist__block_put(pool, raw);
	}
	return err == 0 && pool->watch != NULL ? hoist__watch_tell_fault(pool->watch) : err;
}

void hoist__pool_watched_passed(struct hoist__pool *pool, uintptr_t raw)
{
	if (pool->watch == NULL)
		hoist__block_put(pool, raw);
	else if (finish(pool, raw) != 0)
		hoist__watch_keep_fault(pool->watch);
}

bool hoist__pool_watched_empty(struct hoist__pool *pool)
{
	uintptr_t raw = 0;
	bool any = false;
	if (pool->watch == NULL)
		return false;
	do {
		if (hoist__watch_leaves(pool->watch, true, &raw) != 0)
			hoist__watch_keep_fault(pool->watch);
		if (raw != 0)
			hoist__block_put(pool, raw);
		any |= raw != 0;
	} while (raw != 0);
	return any;
}

/* --- traces --- */

int hoist__pool_trace(struct hoist__pool *pool, const char *path)
{
	struct hoist__trace *next = NULL;
	int err = path == NULL ? 0 : hoist__trace_open(path, &next);
	if (err != 0)
		return err;
	pthread_mutex_lock(&pool->trace_lock);
	struct hoist__trace *last = pool->trace;
	pool->trace = next;
	hoist__pool_set_slow(pool, HOIST__SLOW_WATCHED, next != NULL || pool->watch != NULL);
	pthread_mutex_unlock(&pool->trace_lock);
	if (next != NULL)
		(void)hoist__caches_empty(pool); /* no thread uses the fast path any more */
	return hoist__trace_close(last);
}
