/* SPDX-License-Identifier: MIT */
/* lib/memory/memory-list.c - lists all resources, counts references, helps when memory runs out.
 * The contract is in lib/memory/memory.h and hoist/memory.h. */
#include "config.h"

#include <limits.h>
#include <stdlib.h>

#include "base/lock-fork.h"
#include "base/log.h"
#include "lib/memory/lane.h"
#include "lib/memory/memory.h"
#include "lib/memory/parked.h"
#include "lib/memory/transfer.h"

static struct hoist__lock lock;
static struct hoist__list all = {&all, &all};

/* A child of fork goes on with host memory, and so with the list: no fork happens while the lock is
 * held. */
HOIST__WATCH_FORKS(lock, alloc, "memory resources")

void hoist__memory_join(hoist_memory *memory)
{
	watch_forks();
	hoist__lock(&lock);
	hoist__list_push_back(&all, &memory->xlink);
	hoist__unlock(&lock);
}

static hoist_memory *memory_of(struct hoist__list *link)
{
	return HOIST__CONTAINER_OF(link, hoist_memory, xlink);
}

/* Takes a reference.  False if the last one is gone. */
static bool try_ref(hoist_memory *memory)
{
	unsigned refs = atomic_load(&memory->xrefs);
	while (refs != 0)
		if (atomic_compare_exchange_weak(&memory->xrefs, &refs, refs + 1))
			return true;
	return false;
}

/* Returns: the next resource behind @memory (NULL: the first) with a reference; NULL at the end.
 * Drops the reference to @memory.  So the caller works on each resource without the lock. */
static hoist_memory *next_of_all(hoist_memory *memory)
{
	hoist_memory *found = NULL;
	hoist__lock(&lock);
	struct hoist__list *link = memory != NULL ? memory->xlink.next : all.next;
	for (; found == NULL && link != &all; link = link->next)
		if (try_ref(memory_of(link)))
			found = memory_of(link);
	hoist__unlock(&lock);
	hoist_memory_unref(memory);
	return found;
}

void hoist__memories_forget_stream(struct hoist__dev_stream *stream)
{
	for (hoist_memory *m = next_of_all(NULL); m != NULL; m = next_of_all(m))
		if (m->ops->forget_stream != NULL)
			m->ops->forget_stream(m, stream);
}

hoist_memory *hoist__memories_find(bool (*fits)(hoist_memory *memory, const void *arg),
				   const void *arg)
{
	hoist_memory *m = next_of_all(NULL);
	while (m != NULL && !fits(m, arg))
		m = next_of_all(m);
	return m;
}

/* --- references --- */

hoist_memory *hoist_memory_ref(hoist_memory *memory)
{
	atomic_fetch_add_explicit(&memory->xrefs, 1, memory_order_relaxed);
	return memory;
}

/* The device and the parked references are read before the reference is dropped: afterwards the
 * resource may be gone. */
void hoist_memory_unref(hoist_memory *memory)
{
	if (memory == NULL)
		return;
	hoist_device *device = memory->device;
	unsigned n_parked = atomic_load(&memory->xn_parked);
	unsigned refs = atomic_fetch_sub_explicit(&memory->xrefs, 1, memory_order_acq_rel) - 1;
	/* Only parked memory refers to the resource.  Ending that memory ends the resource. */
	if (refs != 0 && refs == n_parked)
		(void)hoist__parked_sweep(device, true);
	if (refs != 0)
		return;
	/* Blocks in use stay, and with them the resource: in the list, without references. */
	if (!memory->ops->done(memory)) {
		hoist__log(alloc, "\"%s\" ends with blocks in use: its memory is kept",
			   memory->name);
		return;
	}
	hoist__lock(&lock);
	hoist__list_remove(&memory->xlink);
	hoist__unlock(&lock);
	hoist__budget_unref(memory->budget);
	hoist_memory_unref(memory->upstream);
	struct hoist__user user = memory->user;
	free(memory);
	hoist__user_end(&user);
}

/* --- when memory runs out --- */

/* True if @a could use the memory that @b only keeps, as both take memory from the same place. */
static bool share(const hoist_memory *a, const hoist_memory *b)
{
	return a->info.is_host_accessible && !a->info.is_managed
		       ? b->info.is_host_accessible && !b->info.is_managed
		       : a->dev == b->dev;
}

static bool share_budget(const hoist_memory *a, const hoist_memory *b)
{
	return a->budget != NULL && a->budget == b->budget;
}

/* If the budget lacks the bytes, only resources that share the budget can help. */
bool hoist__memory_lacks_budget(const hoist_memory *memory, size_t bytes)
{
	return memory->budget != NULL &&
	       bytes > hoist__budget_limit(memory->budget) - hoist__budget_used(memory->budget);
}

/* True if no other resource can help: the resource's own limit is reached, or @bytes exceed the
 * budget's limit. */
static bool is_own_limit(const hoist_memory *memory, size_t bytes)
{
	struct hoist__pool *pool = atomic_load(&memory->xpool);
	size_t limit = memory->options.limit_bytes;
	if (memory->budget != NULL && bytes > hoist__budget_limit(memory->budget))
		return true;
	if (pool == NULL || limit == 0)
		return false;
	struct hoist__pool_stats stats;
	hoist__pool_stats(pool, &stats);
	return bytes > limit || stats.reserved_bytes > limit - bytes;
}

/* jemalloc may be the caller, and must not be called again from its own hooks. */
static bool may_trim(const hoist_memory *memory)
{
	return memory->ops->trim != NULL && memory->ops != &hoist__memory_heap_ops;
}

static void trim_others(hoist_memory *memory, size_t bytes)
{
	bool budget_only = hoist__memory_lacks_budget(memory, bytes);
	if (!budget_only)
		hoist__lanes_drain(memory->device);
	for (hoist_memory *m = next_of_all(NULL); m != NULL; m = next_of_all(m))
		if (m != memory && may_trim(m) &&
		    (share_budget(memory, m) || (!budget_only && share(memory, m))))
			(void)m->ops->trim(m, 0);
}

void hoist__memories_yield(const struct hoist__budget *budget)
{
	(void)hoist__parked_sweep(NULL, true);
	for (hoist_memory *m = next_of_all(NULL); m != NULL; m = next_of_all(m))
		if (m->budget == budget && m->ops->trim != NULL)
			(void)m->ops->trim(m, 0);
}

/* Ends parked memory that consumers have let go: of any device if the memory is the host's.  Not
 * for a heap: jemalloc may be the caller, and parked memory may be jemalloc's blocks. */
static void give_back_parked(const hoist_memory *memory)
{
	if (memory->ops != &hoist__memory_heap_ops)
		(void)hoist__parked_sweep(memory->info.is_host_accessible ? NULL : memory->device,
					  true);
}

unsigned hoist__memory_retries(const hoist_memory *memory)
{
	unsigned calls = memory->options.exhausted_retries;
	return calls < UINT_MAX ? calls + 1 : calls;
}

int hoist__memory_exhausted(void *context, size_t bytes, unsigned attempt)
{
	hoist_memory *memory = context;
	if (attempt == 1) {
		give_back_parked(memory);
		if (!is_own_limit(memory, bytes))
			trim_others(memory, bytes);
		return 1;
	}
	if (memory->options.exhausted == NULL)
		return 0;
	atomic_fetch_add_explicit(&memory->xn_exhausted, 1, memory_order_relaxed);
	return memory->options.exhausted(memory->options.exhausted_context, bytes, attempt - 1);
}
