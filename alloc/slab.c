/* SPDX-License-Identifier: MIT */
/* alloc/slab.c - cuts spans into blocks of one size, and lists slabs by class.
 * The contract is in alloc/slab.h. */
#include "config.h"

#include "alloc/slab.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/error.h"

/* A slab of small blocks should hold several, so that batches are worth their lock.  A slab of
 * large blocks holds as few as fill its granules well: unused blocks of a slab are waste. */
#define SMALL_BYTES HOIST__GRANULE_BYTES
#define SMALL_BLOCKS 8
#define SMALL_WASTE 32 /* at most 1/32 of the slab behind the last block */
#define LARGE_WASTE 12

#define KEPT_GRANULES 8 /* the most granules of a wholly free slab that its class keeps */

static bool fits_well(size_t block_bytes, size_t n_granules)
{
	size_t bytes = n_granules << HOIST__GRANULE_SHIFT;
	size_t n = bytes / block_bytes;
	size_t waste = bytes - n * block_bytes;
	if (n == 0)
		return false;
	if (block_bytes <= SMALL_BYTES)
		return n >= SMALL_BLOCKS && waste * SMALL_WASTE <= bytes;
	return waste * LARGE_WASTE <= bytes;
}

static size_t choose_granules(size_t block_bytes, size_t most)
{
	if (most > HOIST__SLAB_GRANULES_MOST)
		most = HOIST__SLAB_GRANULES_MOST;
	for (size_t n = 1; n <= most; n++)
		if (fits_well(block_bytes, n))
			return n;
	/* Within the limit no size fills well: the least granules that hold one block. */
	size_t least = (block_bytes + HOIST__GRANULE_BYTES - 1) >> HOIST__GRANULE_SHIFT;
	return least <= most ? least : 0;
}

bool hoist__class_possible(size_t block_bytes, size_t most_granules)
{
	return choose_granules(block_bytes, most_granules) != 0;
}

/* The reciprocal is 2^64 / block_bytes, rounded up: hoist__slab_index() multiplies instead of
 * dividing. */
void hoist__class_init(struct hoist__class *class, unsigned index, size_t block_bytes,
		       size_t most_granules)
{
	class->index = index;
	class->block_bytes = (uint32_t)block_bytes;
	class->n_granules = (uint32_t)choose_granules(block_bytes, most_granules);
	class->n_blocks =
		(uint32_t)(((size_t) class->n_granules << HOIST__GRANULE_SHIFT) / block_bytes);
	HOIST__ASSERT(class->n_blocks != 0 && class->n_blocks <= HOIST__SLAB_BLOCKS_MOST);
	HOIST__ASSERT(class->n_granules <= most_granules && block_bytes <= UINT32_MAX);
	class->reciprocal = UINT64_MAX / block_bytes + 1;
	hoist__list_init(&class->partial);
	hoist__list_init(&class->full);
	hoist__list_init(&class->spares);
}

void hoist__class_done(struct hoist__class *class)
{
	struct hoist__list *link;
	while ((link = hoist__list_pop(&class->spares)) != NULL)
		free(HOIST__CONTAINER_OF(link, struct hoist__slab, link));
}

size_t hoist__slab_bytes(const struct hoist__class *class)
{
	return sizeof(struct hoist__slab) +
	       (((class->n_blocks + 1) * sizeof(uint32_t) + 63) & ~(size_t)63);
}

struct hoist__slab *hoist__slab_create(struct hoist__pool *pool, struct hoist__class *class)
{
	size_t bytes = hoist__slab_bytes(class);
	struct hoist__slab *slab = aligned_alloc(64, bytes);
	if (slab == NULL) {
		(void)hoist__fail_nomem("a slab's description", bytes);
		return NULL;
	}
	memset(slab, 0, bytes);
	slab->pool = pool;
	slab->class = class;
	slab->class_index = class->index;
	slab->block_bytes = class->block_bytes;
	slab->n_blocks = class->n_blocks;
	slab->reciprocal = class->reciprocal;
	hoist__list_init(&slab->link);
	return slab;
}

struct hoist__slab *hoist__class_spare(struct hoist__class *class)
{
	HOIST__ASSERT(hoist__lock_held(&class->lock));
	struct hoist__list *link = hoist__list_pop(&class->spares);
	return link == NULL ? NULL : HOIST__CONTAINER_OF(link, struct hoist__slab, link);
}

void hoist__class_return_spare(struct hoist__class *class, struct hoist__slab *slab)
{
	HOIST__ASSERT(slab->class == class);
	hoist__list_remove(&slab->link);
	hoist__list_push_front(&class->spares, &slab->link);
}

void hoist__class_add(struct hoist__class *class, struct hoist__slab *slab)
{
	HOIST__ASSERT(hoist__lock_held(&class->lock));
	HOIST__ASSERT(slab->class == class && hoist__list_empty(&slab->link));
	HOIST__ASSERT(slab->base != 0 && slab->base % HOIST__GRANULE_BYTES == 0);
	slab->n_free = slab->n_blocks;
	uint32_t n_words = (slab->n_blocks + 63) / 64;
	for (uint32_t i = 0; i < n_words; i++)
		slab->free[i] = UINT64_MAX;
	/* Bits behind the last block stay clear. */
	if (slab->n_blocks % 64 != 0)
		slab->free[n_words - 1] = (UINT64_C(1) << slab->n_blocks % 64) - 1;
	slab->words = (uint32_t)((UINT64_C(1) << n_words) - 1);
	hoist__list_push_front(&class->partial, &slab->link);
	class->n_slabs++;
	class->n_wholly_free++;
}

/* Takes one block.  Pre: the slab has a free block. */
static uint32_t take_bit(struct hoist__slab *slab)
{
	HOIST__ASSERT(slab->n_free != 0 && slab->words != 0);
	unsigned word = (unsigned)__builtin_ctz(slab->words);
	unsigned bit = (unsigned)__builtin_ctzll(slab->free[word]);
	HOIST__ASSERT(word * 64 + bit < slab->n_blocks);
	slab->free[word] &= slab->free[word] - 1;
	if (slab->free[word] == 0)
		slab->words &= slab->words - 1;
	slab->n_free--;
	HOIST__ASSERT((slab->n_free == 0) == (slab->words == 0));
	return word * 64 + bit;
}

size_t hoist__class_take(struct hoist__class *class, struct hoist__entry *entries, size_t n)
{
	HOIST__ASSERT(hoist__lock_held(&class->lock));
	size_t taken = 0;
	while (taken < n && !hoist__list_empty(&class->partial)) {
		struct hoist__slab *slab =
			HOIST__CONTAINER_OF(class->partial.next, struct hoist__slab, link);
		HOIST__ASSERT(slab->class == class && slab->n_free != 0);
		HOIST__ASSERT(slab->n_free != slab->n_blocks || class->n_wholly_free != 0);
		if (slab->n_free == slab->n_blocks)
			class->n_wholly_free--;
		while (taken < n && slab->n_free != 0) {
			uint32_t index = take_bit(slab);
			HOIST__ASSERT(atomic_load_explicit(&slab->states[index],
							   memory_order_relaxed) == 0);
			entries[taken++] = (struct hoist__entry){hoist__slab_block(slab, index),
								 &slab->states[index]};
		}
		if (slab->n_free == 0) {
			hoist__list_remove(&slab->link);
			hoist__list_push_front(&class->full, &slab->link);
		}
	}
	class->n_out += taken;
	HOIST__ASSERT(class->n_out <= class->n_slabs * class->n_blocks);
	return taken;
}

static struct hoist__slab *take_out(struct hoist__class *class, struct hoist__slab *slab)
{
	HOIST__ASSERT(slab->n_free == slab->n_blocks && !hoist__list_empty(&slab->link));
	HOIST__ASSERT(class->n_wholly_free != 0 && class->n_slabs != 0);
	HOIST__ASSERT(class->n_out <= (class->n_slabs - 1) * class->n_blocks);
	hoist__list_remove(&slab->link);
	class->n_wholly_free--;
	class->n_slabs--;
	return slab;
}

struct hoist__slab *hoist__class_give(struct hoist__class *class, struct hoist__slab *slab,
				      uintptr_t address)
{
	uint32_t index = hoist__slab_index(slab, address);
	HOIST__ASSERT(hoist__lock_held(&class->lock));
	HOIST__ASSERT(slab->class == class && index < slab->n_blocks && class->n_out != 0);
	HOIST__ASSERT(hoist__slab_block(slab, index) == address);
	HOIST__ASSERT(atomic_load_explicit(&slab->states[index], memory_order_relaxed) == 0);
	HOIST__ASSERT(!hoist__list_empty(&slab->link));
	assert(!hoist__slab_has_free(slab, index));
	slab->free[index / 64] |= UINT64_C(1) << (index % 64);
	slab->words |= UINT32_C(1) << (index / 64);
	class->n_out--;
	if (slab->n_free++ == 0) {
		hoist__list_remove(&slab->link);
		hoist__list_push_front(&class->partial, &slab->link);
	}
	if (slab->n_free != slab->n_blocks)
		return NULL;
	/* One wholly free slab stays, behind those that are better filled, as the next allocation
	 * would want it back.  A large slab, and the last slab of a class without live blocks, are
	 * worth more elsewhere. */
	if (class->n_wholly_free++ != 0 || class->n_granules > KEPT_GRANULES || class->n_out == 0)
		return take_out(class, slab);
	hoist__list_remove(&slab->link);
	hoist__list_push_back(&class->partial, &slab->link);
	return NULL;
}

struct hoist__slab *hoist__class_shrink(struct hoist__class *class)
{
	HOIST__ASSERT(hoist__lock_held(&class->lock));
	for (struct hoist__list *link = class->partial.next; link != &class->partial;
	     link = link->next) {
		struct hoist__slab *slab = HOIST__CONTAINER_OF(link, struct hoist__slab, link);
		if (slab->n_free == slab->n_blocks)
			return take_out(class, slab);
	}
	return NULL;
}

void hoist__class_check(const struct hoist__class *class)
{
	size_t n_wholly_free = 0;
	size_t n_free = 0;
	size_t n_partial = 0;
	size_t n_full = 0;
	for (struct hoist__list *link = class->partial.next; link != &class->partial;
	     link = link->next) {
		const struct hoist__slab *slab =
			HOIST__CONTAINER_OF(link, struct hoist__slab, link);
		size_t n_bits = 0;
		for (uint32_t i = 0; i < HOIST__SLAB_BLOCKS_MOST / 64; i++) {
			n_bits += (size_t)__builtin_popcountll(slab->free[i]);
			assert((slab->free[i] != 0) == (slab->words >> i & 1));
		}
		assert(slab->n_free == n_bits && n_bits != 0 && n_bits <= slab->n_blocks);
		n_wholly_free += slab->n_free == slab->n_blocks;
		n_free += n_bits;
		n_partial++;
	}
	assert(n_wholly_free == class->n_wholly_free && n_wholly_free <= 1);
	for (struct hoist__list *link = class->full.next; link != &class->full; link = link->next) {
		assert(HOIST__CONTAINER_OF(link, struct hoist__slab, link)->n_free == 0);
		n_full++;
	}
	assert(n_partial + n_full == class->n_slabs);
	assert(class->n_out + n_free == class->n_slabs * class->n_blocks);
	(void)n_free;
	(void)n_partial;
	(void)n_full;
	(void)n_wholly_free;
}
