/* SPDX-License-Identifier: MIT */
/* alloc/small.c - refills and flushes magazines, from and to slabs.
 * The contract is in alloc/pool-private.h. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "alloc/pool-private.h"
#include "base/assert.h"
#include "base/checked.h"

#define BATCH_MOST (HOIST__MAGAZINE_MOST / 2)
/* A cache without room for one more block gives half of every magazine back, unless the block is
 * larger than this part of the cache's bytes and more is left. */
#define LEAST_LEFT 8

/* --- slabs come and go --- */

static struct hoist__want want_of(const struct hoist__class *class)
{
	size_t bytes = (size_t) class->n_granules << HOIST__GRANULE_SHIFT;
	return (struct hoist__want){class->n_granules, 1, HOIST__SPAN_SLAB, bytes};
}

static void mark_slab(const struct hoist__granule *span, struct hoist__slab *slab)
{
	HOIST__ASSERT(span->kind == HOIST__SPAN_SLAB && span->n == slab->class->n_granules);
	for (size_t i = 0; i < span->n; i++) {
		struct hoist__granule *granule = hoist__granule_at(span->address, i);
		HOIST__ASSERT(atomic_load(&granule->slab) == NULL);
		granule->address = slab->base;
		granule->reciprocal = slab->reciprocal;
		granule->class_index = (uint16_t)slab->class_index;
		atomic_store_explicit(&granule->slab, slab, memory_order_release);
	}
}

static void unmark_slab(const struct hoist__granule *span)
{
	for (size_t i = 0; i < span->n; i++) {
		struct hoist__granule *granule = hoist__granule_at(span->address, i);
		atomic_store_explicit(&granule->slab, NULL, memory_order_release);
	}
	hoist__fence(memory_order_release); /* orders the stores before any other use of the
					     * records */
}

/* Gives the class one more slab, in @span.  Pre: the class's lock is held. */
static void add_slab(struct hoist__class *class, struct hoist__slab *slab,
		     struct hoist__granule *span)
{
	HOIST__ASSERT(hoist__lock_held(&class->lock) && slab->class == class);
	slab->base = span->address;
	mark_slab(span, slab);
	hoist__class_add(class, slab);
}

/* Ends a slab that its class gave up. */
static void drop_slab(struct hoist__pool *pool, struct hoist__slab *slab,
		      struct hoist__doomed *doomed)
{
	struct hoist__granule *span = hoist__granule_of(slab->base);
	HOIST__ASSERT(slab->pool == pool && slab->n_free == slab->n_blocks);
	HOIST__ASSERT(span->kind == HOIST__SPAN_SLAB && span->n == slab->class->n_granules);
	unmark_slab(span);
	hoist__lock(&slab->class->lock);
	hoist__class_return_spare(slab->class, slab);
	hoist__unlock(&slab->class->lock);
	hoist__pool_span_release(pool, span, doomed);
}

bool hoist__small_shrink(struct hoist__pool *pool, struct hoist__doomed *doomed)
{
	bool any = false;
	for (unsigned i = 0; i < pool->n_shards * pool->n_classes; i++) {
		struct hoist__class *class =
			&pool->shards[i / pool->n_classes].classes[i % pool->n_classes];
		hoist__lock(&class->lock);
		struct hoist__slab *slab = hoist__class_shrink(class);
		hoist__unlock(&class->lock);
		if (slab == NULL)
			continue;
		HOIST__ASSERT(slab->class == class && slab->n_free == slab->n_blocks);
		drop_slab(pool, slab, doomed);
		any = true;
	}
	return any;
}

/* Slabs that their classes give up are collected, and dropped only after the last class is
 * unlocked. */
void hoist__small_give(struct hoist__pool *pool, const struct hoist__entry *entries, size_t n,
		       struct hoist__doomed *doomed)
{
	struct hoist__class *locked = NULL;
	struct hoist__list dropped;
	hoist__list_init(&dropped);
	for (size_t i = 0; i < n; i++) {
		struct hoist__slab *slab = atomic_load_explicit(
			&hoist__granule_of(entries[i].address)->slab, memory_order_relaxed);
		HOIST__ASSERT(slab != NULL && slab->pool == pool);
		HOIST__ASSERT(atomic_load_explicit(entries[i].state, memory_order_relaxed) == 0);
		if (slab->class != locked) {
			if (locked != NULL)
				hoist__unlock(&locked->lock);
			locked = slab->class;
			hoist__lock(&locked->lock);
		}
		slab = hoist__class_give(locked, slab, entries[i].address);
		if (slab != NULL)
			hoist__list_push_back(&dropped, &slab->link);
	}
	if (locked != NULL)
		hoist__unlock(&locked->lock);
	struct hoist__list *link;
	while ((link = hoist__list_pop(&dropped)) != NULL)
		drop_slab(pool, HOIST__CONTAINER_OF(link, struct hoist__slab, link), doomed);
}

/* The same.  Pre: no lock is held. */
static void give(struct hoist__pool *pool, const struct hoist__entry *entries, size_t n)
{
	struct hoist__doomed doomed;
	hoist__doomed_init(&doomed);
	hoist__small_give(pool, entries, n, &doomed);
	hoist__pool_destroy_doomed(pool, &doomed);
}

/* --- magazines --- */

/* Counts anew how many bytes the cache may still take, as allocations have not been counted.
 * Pre: the cache is entered. */
static size_t measure(struct hoist__cache *cache)
{
	size_t bytes = hoist__cache_bytes(cache);
	cache->left = bytes < cache->pool->cache_bytes ? cache->pool->cache_bytes - bytes : 0;
	return cache->left;
}

/* Puts as many of @entries as fit into the magazine, the first of them on top; none if another
 * thread empties the cache just now. */
static size_t push_many(struct hoist__cache *cache, unsigned class,
			const struct hoist__entry *entries, size_t n)
{
	struct hoist__magazine *magazine = &cache->magazines[class];
	if (!hoist__cache_enter(cache))
		return 0;
	struct hoist__entry *top = hoist__magazine_top(magazine);
	size_t pushed = hoist__min_u64(n, (size_t)(magazine->end - top));
	pushed = hoist__min_u64(pushed, cache->left / magazine->block_bytes);
	HOIST__ASSERT(top + pushed <= magazine->end && pushed <= n);
	cache->left -= pushed * magazine->block_bytes;
	for (size_t i = 0; i < pushed; i++)
		*top++ = entries[n - 1 - i];
	hoist__magazine_set_top(magazine, top);
	HOIST__ASSERT(cache->left <= cache->pool->cache_bytes);
	hoist__cache_leave(cache);
	return pushed;
}

/* Takes the @n oldest blocks out of the magazine; none if it has less by now, or another thread
 * empties the cache just now. */
static size_t pull(struct hoist__cache *cache, unsigned class, struct hoist__entry *entries,
		   size_t n)
{
	struct hoist__magazine *magazine = &cache->magazines[class];
	if (!hoist__cache_enter(cache))
		return 0;
	const size_t has = hoist__magazine_n(magazine);
	const size_t pulled = has < n ? 0 : n;
	HOIST__ASSERT(has <= hoist__magazine_most(magazine) && n <= BATCH_MOST);
	if (pulled != 0) {
		memcpy(entries, magazine->entries, n * sizeof *entries);
		memmove(magazine->entries, magazine->entries + n, (has - n) * sizeof *entries);
		hoist__magazine_set_top(magazine, magazine->entries + has - n);
		cache->left += n * magazine->block_bytes;
	}
	hoist__cache_leave(cache);
	return pulled;
}

/* Takes half of every magazine out.  The bound on bytes is shared by all classes, and after
 * emptying one that has little the bound would be met again at once.  Odd numbers are rounded up
 * and down in turn, as most magazines of a cache of large blocks have one block or none. */
static void halve(struct hoist__pool *pool, struct hoist__cache *cache)
{
	struct hoist__entry entries[BATCH_MOST];
	size_t odd = 1;
	for (unsigned i = 0; i < pool->n_classes; i++) {
		const size_t twice = hoist__magazine_n(&cache->magazines[i]) + odd;
		odd = twice % 2;
		cache->batches[i] /= 2;
		size_t n = twice < 2 ? 0 : pull(cache, i, entries, twice / 2);
		if (n != 0)
			give(pool, entries, n);
	}
}

/* Returns: the bytes that the cache may still take, counted anew if these are less than @need; 0 if
 * another thread empties the cache just now. */
static size_t left_in(struct hoist__cache *cache, size_t need)
{
	if (!hoist__cache_enter(cache))
		return 0;
	const size_t left = cache->left < need ? measure(cache) : cache->left;
	hoist__cache_leave(cache);
	return left;
}

/* Makes room for one block of the class, by halving the cache if there is none. */
static void make_room(struct hoist__pool *pool, struct hoist__cache *cache, unsigned class)
{
	const size_t block = cache->magazines[class].block_bytes;
	const size_t left = left_in(cache, block);
	if (left < block && left <= pool->cache_bytes / LEAST_LEFT)
		halve(pool, cache);
}

/* Returns: how many blocks a refill takes.  A class's first refill takes one block, and each
 * further refill twice as many, up to half a magazine, but no more than the cache has room for.
 * Halving the cache halves the batches, too: in a cache that is always full, blocks beside the one
 * that is wanted would push out blocks of other classes. */
static size_t batch_of(struct hoist__cache *cache, unsigned class)
{
	const struct hoist__magazine *magazine = &cache->magazines[class];
	const size_t half = (hoist__magazine_most(magazine) + 1) / 2;
	if (half < 2)
		return 1;
	const size_t more = hoist__min_u64(cache->batches[class], half - 1);
	cache->batches[class] = (uint8_t)(2 * more + 1);
	if (more == 0)
		return 1;
	const size_t left = left_in(cache, more * magazine->block_bytes);
	return 1 + hoist__min_u64(more, left / magazine->block_bytes);
}

/* Takes from the class's slabs, or from one more slab, if the shard has room and the class a spare
 * descriptor. */
static size_t take_or_add(struct hoist__pool *pool, struct hoist__shard *shard,
			  struct hoist__class *class, struct hoist__entry *entries, size_t n)
{
	hoist__lock(&class->lock);
	size_t taken = hoist__class_take(class, entries, n);
	struct hoist__slab *spare = taken == 0 ? hoist__class_spare(class) : NULL;
	if (spare != NULL) {
		const struct hoist__want want = want_of(class);
		struct hoist__granule *span = hoist__pool_span_at_hand(pool, shard, &want);
		HOIST__ASSERT(spare->class == class && spare->pool == pool);
		if (span != NULL) {
			add_slab(class, spare, span);
			taken = hoist__class_take(class, entries, n);
		} else {
			hoist__class_return_spare(class, spare);
		}
	}
	hoist__unlock(&class->lock);
	return taken;
}

/* Takes from the slabs of all shards.  Called before the pool fails, not before it grows. */
static size_t take_elsewhere(struct hoist__pool *pool, unsigned class_index,
			     struct hoist__entry *entries, size_t n)
{
	size_t taken = 0;
	for (unsigned i = 0; taken == 0 && i < pool->n_shards; i++) {
		struct hoist__class *class = &pool->shards[i].classes[class_index];
		hoist__lock(&class->lock);
		taken = hoist__class_take(class, entries, n);
		hoist__unlock(&class->lock);
	}
	return taken;
}

/* Returns: a spare descriptor, or a new one. */
static struct hoist__slab *need_slab(struct hoist__pool *pool, struct hoist__class *class)
{
	hoist__lock(&class->lock);
	struct hoist__slab *slab = hoist__class_spare(class);
	hoist__unlock(&class->lock);
	return slab != NULL ? slab : hoist__slab_create(pool, class);
}

/* The descriptor is made before the span is taken, so that nothing can fail once there is a span.
 */
static int take_batch(struct hoist__pool *pool, struct hoist__shard *shard, unsigned class_index,
		      struct hoist__entry *entries, size_t n, size_t *taken)
{
	struct hoist__class *class = &shard->classes[class_index];
	const struct hoist__want want = want_of(class);
	*taken = take_or_add(pool, shard, class, entries, n);
	HOIST__ASSERT(*taken <= n);
	if (*taken != 0)
		return 0;
	struct hoist__slab *slab = need_slab(pool, class);
	if (slab == NULL)
		return -ENOMEM;
	struct hoist__granule *span = NULL;
	int err = hoist__pool_span(pool, shard, &want, 0, &span);
	/* One critical section: if several threads add a slab each, none of these is left wholly
	 * free. */
	hoist__lock(&class->lock);
	if (err == 0) {
		add_slab(class, slab, span);
		*taken = hoist__class_take(class, entries, n);
	} else {
		hoist__class_return_spare(class, slab);
	}
	hoist__unlock(&class->lock);
	if (err != 0)
		*taken = take_elsewhere(pool, class_index, entries, n);
	return *taken != 0 ? 0 : err;
}

int hoist__small_refill(struct hoist__pool *pool, struct hoist__cache *cache, unsigned class_index,
			struct hoist__entry *ret)
{
	struct hoist__shard *shard = &pool->shards[cache == NULL ? 0 : cache->shard];
	struct hoist__entry entries[BATCH_MOST];
	size_t batch = cache == NULL ? 1 : batch_of(cache, class_index);
	size_t n;
	int err = take_batch(pool, shard, class_index, entries, batch, &n);
	if (err != 0)
		return err;
	HOIST__ASSERT(n != 0 && n <= batch && batch <= BATCH_MOST);
	*ret = entries[0];
	if (n > 1) {
		size_t pushed = push_many(cache, class_index, entries + 1, n - 1);
		if (pushed != n - 1)
			give(pool, entries + 1, n - 1 - pushed);
	}
	return 0;
}

void hoist__small_flush(struct hoist__pool *pool, struct hoist__cache *cache, unsigned class,
			const struct hoist__entry *entry)
{
	struct hoist__entry entries[BATCH_MOST];
	struct hoist__magazine *magazine = cache == NULL ? NULL : &cache->magazines[class];
	const size_t most = magazine == NULL ? 0 : hoist__magazine_most(magazine);
	if (most != 0) {
		size_t n = hoist__magazine_n(magazine) < most
				   ? 0
				   : pull(cache, class, entries, (most + 1) / 2);
		if (n != 0)
			give(pool, entries, n);
		make_room(pool, cache, class);
		if (push_many(cache, class, entry, 1) == 1)
			return;
	}
	give(pool, entry, 1);
}
