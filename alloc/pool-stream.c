/* SPDX-License-Identifier: MIT */
/* alloc/pool-stream.c - joins the pool and deferred.h: blocks in stream order.
 * The contract is in alloc/pool.h and alloc/pool-private.h. */
#include "config.h"

#include <errno.h>

#include "alloc/deferred.h"
#include "alloc/pool-private.h"
#include "base/assert.h"
#include "base/error.h"

#define DRAIN_BLOCKS 64

/* Made when first needed.  If two threads make it at once, the later one discards its own. */
static int need_deferred(struct hoist__pool *pool, struct hoist__deferred **ret)
{
	struct hoist__deferred *known = atomic_load(&pool->deferred);
	if (known == NULL) {
		const struct hoist__deferred_options options = {
			.reuse = pool->options.kind == HOIST__MEMORY_DEVICE,
			.calls = &pool->calls,
		};
		struct hoist__deferred *made;
		int err = hoist__deferred_create(&options, &made);
		if (err != 0)
			return err;
		/* The lock keeps this out of a fork, which would else unlock a lock that it has not
		 * taken. */
		pthread_mutex_lock(&pool->lock);
		bool first = atomic_compare_exchange_strong(&pool->deferred, &known, made);
		pthread_mutex_unlock(&pool->lock);
		if (first)
			known = made;
		else
			hoist__deferred_destroy(made);
	}
	HOIST__ASSERT(known == atomic_load(&pool->deferred));
	*ret = known;
	return 0;
}

static int check_stale(const struct hoist__pool *pool)
{
	return hoist__pool_is_stale(pool) ? hoist__dev_check(pool->options.dev) : 0;
}

static bool is_watched(const struct hoist__pool *pool)
{
	return (atomic_load_explicit(&pool->slow, memory_order_relaxed) & HOIST__SLOW_WATCHED) != 0;
}

int hoist__pool_defer(struct hoist__pool *pool, uintptr_t address, const struct hoist__claim *claim,
		      struct hoist__dev_stream *stream)
{
	struct hoist__deferred *deferred;
	HOIST__ASSERT(claim->requested != 0);
	HOIST__ASSERT(claim->allocated + claim->discarded >= claim->requested);
	int err = need_deferred(pool, &deferred);
	if (err == 0)
		err = hoist__deferred_push(deferred, address, claim->allocated, stream);
	if (err != 0) {
		/* The block was not freed: it is live again, as before. */
		hoist__block_live(address, claim->requested, claim->used);
		return hoist__fail_in(err, "freeing %#zx", (size_t)address);
	}
	hoist__count_free(pool, claim->requested - claim->discarded);
	return 0;
}

int hoist__pool_free_on(struct hoist__pool *pool, uintptr_t address,
			struct hoist__dev_stream *stream)
{
	HOIST__ASSERT(stream != NULL);
	int err = check_stale(pool);
	if (err != 0)
		return err;
	if (is_watched(pool))
		return hoist__pool_watched_free(pool, address, stream, true);
	struct hoist__claim claim;
	err = hoist__block_claim(pool, address, &claim);
	return err != 0 ? err : hoist__pool_defer(pool, address, &claim, stream);
}

int hoist__pool_alloc_on(struct hoist__pool *pool, size_t bytes, size_t align,
			 struct hoist__dev_stream *stream, uintptr_t *ret)
{
	struct hoist__deferred *deferred = atomic_load(&pool->deferred);
	HOIST__ASSERT(stream != NULL);
	if (is_watched(pool))
		return hoist__pool_alloc_slow(pool, bytes, align, 0, stream, ret);
	/* A request that is refused here is refused below, with the text. */
	if (deferred != NULL && pool->options.kind == HOIST__MEMORY_DEVICE &&
	    hoist__pool_check_request(pool, bytes, align, 0) == 0) {
		uintptr_t address = hoist__deferred_take(deferred, stream,
							 hoist__block_rounded(pool, bytes, align),
							 align == 0 ? 1 : align);
		if (address != 0) {
			HOIST__ASSERT((address & ((align == 0 ? 1 : align) - 1)) == 0);
			hoist__block_live(address, bytes, true);
			hoist__count_alloc(pool, bytes);
			*ret = address;
			return 0;
		}
	}
	return hoist__pool_alloc(pool, bytes, align, 0, ret);
}

int hoist__pool_use(struct hoist__pool *pool, uintptr_t address, struct hoist__dev_stream *stream)
{
	struct hoist__deferred *deferred;
	HOIST__ASSERT(stream != NULL);
	int err = check_stale(pool);
	if (err == 0)
		err = need_deferred(pool, &deferred);
	uintptr_t raw = address;
	if (err == 0 && pool->watch != NULL)
		err = hoist__pool_watched_raw(pool, address, &raw);
	if (err == 0)
		err = hoist__block_use(pool, raw);
	/* If this fails, the flag stays: another thread may rely on it by now. */
	return err != 0 ? err : hoist__deferred_use(deferred, raw, stream);
}

int hoist__pool_release_captured(struct hoist__pool *pool)
{
	int err = check_stale(pool);
	struct hoist__deferred *deferred = atomic_load(&pool->deferred);
	if (err == 0 && deferred != NULL)
		hoist__deferred_release_captured(deferred);
	return err;
}

void hoist__pool_passed(struct hoist__pool *pool, uintptr_t address)
{
	if (is_watched(pool))
		hoist__pool_watched_passed(pool, address);
	else
		hoist__block_put(pool, address);
}

void hoist__pool_drain_streams(struct hoist__pool *pool)
{
	struct hoist__deferred *deferred = atomic_load(&pool->deferred);
	uintptr_t blocks[DRAIN_BLOCKS];
	size_t n = deferred != NULL ? DRAIN_BLOCKS : 0;
	while (n != 0) {
		n = hoist__deferred_drain(deferred, blocks, DRAIN_BLOCKS);
		for (size_t i = 0; i < n; i++)
			hoist__pool_passed(pool, blocks[i]);
	}
}
