/* SPDX-License-Identifier: MIT */
/* alloc/heap-hooks.c - gives jemalloc extents of the pool, and takes them back.
 * The contract is in alloc/heap-private.h. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc/heap-private.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

static struct hoist__heap *heap_of(struct hoist__je_hooks *hooks)
{
	return HOIST__CONTAINER_OF(hooks, struct hoist__heap, hooks);
}

/* --- jemalloc's books, where it has no other way than the hooks --- */

/* Maps zeroed memory at a multiple of @align. */
static void *map_books(size_t bytes, size_t align)
{
	char *base = mmap(NULL, bytes + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	if (base == MAP_FAILED)
		return NULL;
	size_t lead = hoist__round_up((uintptr_t)base, align) - (uintptr_t)base;
	/* A failure only leaves address space reserved. */
	if (lead != 0)
		(void)munmap(base, lead);
	(void)munmap(base + lead + bytes, align - lead);
	return base + lead;
}

/* --- what jemalloc calls --- */

static void *alloc_extent(struct hoist__je_hooks *hooks, void *wanted, size_t bytes, size_t align,
			  bool *zero, bool *commit, unsigned arena)
{
	struct hoist__heap *heap = heap_of(hooks);
	struct hoist__heap_thread *thread = &hoist__heap_thread;
	uintptr_t address;
	(void)arena;
	/* Refused: a given address, which would grow a block in place; and memory that is not to be
	 * committed, which is growth ahead of need. */
	if (wanted != NULL || !*commit)
		return NULL;
	if (heap->books_by_hooks && *zero)
		return map_books(bytes, align);
	HOIST__ASSERT(thread->growing == 0);
	thread->growing++;
	thread->err = hoist__pool_alloc(heap->pool, bytes, align, 0, &address);
	thread->growing--;
	if (thread->err != 0)
		return NULL;
	HOIST__ASSERT(address % align == 0 && hoist__heap_holds(heap, address));
	atomic_fetch_add_explicit(&heap->mapped, bytes, memory_order_relaxed);
	if (*zero)
		memset((void *)address, 0, bytes);
	return (void *)address;
}

static bool dalloc_extent(struct hoist__je_hooks *hooks, void *address, size_t bytes,
			  bool committed, unsigned arena)
{
	struct hoist__heap *heap = heap_of(hooks);
	(void)committed;
	(void)arena;
	if (heap->books_by_hooks && !hoist__heap_holds(heap, (uintptr_t)address))
		return munmap(address, bytes) != 0;
	if (hoist__heap_check(heap) != 0)
		return true;
	struct hoist__heap_part *part = address;
	HOIST__ASSERT(bytes >= sizeof *part && hoist__heap_holds(heap, (uintptr_t)address));
	part->bytes = bytes;
	part->next = atomic_load_explicit(&heap->returned, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&heap->returned, &part->next, part,
						      memory_order_release, memory_order_relaxed))
		;
	return false;
}

static bool allow_split(struct hoist__je_hooks *hooks, void *address, size_t bytes, size_t first,
			size_t second, bool committed, unsigned arena)
{
	(void)hooks;
	(void)address;
	(void)bytes;
	(void)first;
	(void)second;
	(void)committed;
	(void)arena;
	return false; /* no objection */
}

const struct hoist__je_hooks hoist__heap_hooks = {
	.alloc = alloc_extent,
	.dalloc = dalloc_extent,
	.split = allow_split,
};

/* --- back to the pool --- */

static struct hoist__heap_part **bucket_of(struct hoist__heap *heap, uintptr_t address)
{
	return &heap->partial[(address >> 12) % HOIST__HEAP_BUCKETS];
}

/* Adds a part to the parts of its block that came back.  Returns: true when the block is
 * complete. */
static bool add_part(struct hoist__heap *heap, struct hoist__heap_part *part,
		     const struct hoist__block *block)
{
	bool whole = false;
	HOIST__ASSERT((uintptr_t)part + part->bytes <= block->address + block->bytes);
	hoist__heaps_lock();
	struct hoist__heap_part **at = bucket_of(heap, block->address);
	while (*at != NULL && (*at)->address != block->address)
		at = &(*at)->next;
	struct hoist__heap_part *known = *at;
	if (known == NULL) {
		part->address = block->address;
		part->next = NULL;
		*at = part;
	} else {
		known->bytes += part->bytes;
		HOIST__ASSERT(known->bytes <= block->bytes);
		whole = known->bytes == block->bytes;
		if (whole)
			*at = known->next;
	}
	hoist__heaps_unlock();
	return whole;
}

static void give_back(struct hoist__heap *heap, struct hoist__heap_part *part)
{
	struct hoist__block block;
	int err = hoist__pool_find(heap->pool, (uintptr_t)part, &block);
	if (err == 0 && part->bytes != block.bytes && !add_part(heap, part, &block))
		return;
	if (err == 0) {
		HOIST__ASSERT(atomic_load(&heap->mapped) >= block.bytes);
		atomic_fetch_sub_explicit(&heap->mapped, block.bytes, memory_order_relaxed);
		err = hoist__pool_free(heap->pool, block.address);
	}
	if (err != 0) /* debug: the block was written to after it was freed */
		hoist__log(alloc, "a heap's extent: %s", hoist__error_text());
}

size_t hoist__heap_drain(struct hoist__heap *heap)
{
	struct hoist__heap_part *part =
		atomic_exchange_explicit(&heap->returned, NULL, memory_order_acquire);
	size_t n = 0;
	while (part != NULL) {
		struct hoist__heap_part *next = part->next;
		give_back(heap, part);
		part = next;
		n++;
	}
	return n;
}
