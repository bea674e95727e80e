/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/granule.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "alloc/spans.h"
#include "base/error.h"
#include "device/device.h"

_Static_assert(sizeof(struct hoist__granule) == 64, "one cache line");

struct hoist__granule *_Atomic hoist__granule_root[(size_t)1 << HOIST__ROOT_BITS];

#define LEAF_BYTES (HOIST__LEAF_GRANULES * sizeof(struct hoist__granule))
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Records of a large region lie in huge pages where the kernel has them: a walk through many
 * blocks else misses the TLB at each.  A small region would waste most of one. */
static void want_huge_pages(uintptr_t base, size_t n)
{
	if (n * sizeof(struct hoist__granule) < HUGE_PAGE_BYTES / 2)
		return;
	size_t page_granules = HUGE_PAGE_BYTES / sizeof(struct hoist__granule);
	for (size_t i = 0; i < n; i += page_granules) {
		uintptr_t record = (uintptr_t)hoist__granule_at(base, i);
		(void)madvise((void *)(record & -HUGE_PAGE_BYTES), HUGE_PAGE_BYTES, MADV_HUGEPAGE);
	}
}

/* Of two threads that make a leaf at once, the later discards his. */
static int need_leaf(uintptr_t address)
{
	size_t root = address >> (HOIST__GRANULE_SHIFT + HOIST__LEAF_BITS);
	struct hoist__granule *known = atomic_load(&hoist__granule_root[root]);
	if (known != NULL)
		return 0;
	/* One huge page more, so that it can begin at the start of one. */
	const size_t bytes = LEAF_BYTES + HUGE_PAGE_BYTES;
	char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (start == MAP_FAILED)
		return hoist__fail_nomem("a part of the page map", LEAF_BYTES);
	char *made = start + (-(uintptr_t)start & (HUGE_PAGE_BYTES - 1));
	if (!atomic_compare_exchange_strong(&hoist__granule_root[root], &known, (void *)made))
		(void)munmap(start, bytes);
	return 0;
}

void hoist__granules_release(uintptr_t base, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct hoist__granule *granule = hoist__granule_at(base, i);
		atomic_store_explicit(&granule->owner, 0, memory_order_relaxed);
		atomic_store_explicit(&granule->extent, NULL, memory_order_release);
	}
}

bool hoist__extent_is_stale(const struct hoist__extent *extent)
{
	unsigned process = atomic_load(&extent->process);
	return process != 0 && process != hoist__fork_now();
}

static bool take_one(struct hoist__granule *granule, struct hoist__extent *extent)
{
	struct hoist__extent *known = NULL;
	/* Acquires what hoist__granules_release() of the region before, which may have been another
	 * pool's at the same address, has released. */
	if (atomic_compare_exchange_strong_explicit(&granule->extent, &known, extent,
						    memory_order_acq_rel, memory_order_acquire))
		return true;
	if (!hoist__extent_is_stale(known) ||
	    !atomic_compare_exchange_strong(&granule->extent, &known, extent))
		return false;
	/* Of slabs and blocks that are no more. */
	atomic_store(&granule->slab, NULL);
	atomic_store(&granule->state, 0);
	granule->kind = HOIST__SPAN_NONE;
	return true;
}

int hoist__granules_take(uintptr_t base, size_t n, struct hoist__extent *extent)
{
	uintptr_t last = base + ((n - 1) << HOIST__GRANULE_SHIFT);
	if (last < base || last >> HOIST__ADDRESS_BITS != 0)
		return hoist__fail(-ENOTSUP, "memory at %#zx: addresses above %d bits",
				   (size_t)base, HOIST__ADDRESS_BITS);
	const size_t leaf_span = HOIST__LEAF_GRANULES << HOIST__GRANULE_SHIFT;
	for (uintptr_t at = base; at <= last; at = (at | (leaf_span - 1)) + 1) {
		int err = need_leaf(at);
		if (err != 0)
			return err;
	}
	want_huge_pages(base, n);
	for (size_t i = 0; i < n; i++) {
		struct hoist__granule *granule = hoist__granule_at(base, i);
		if (take_one(granule, extent)) {
			atomic_store_explicit(&granule->owner, extent->owner, memory_order_release);
			continue;
		}
		hoist__granules_release(base, i);
		return hoist__fail(-EEXIST, "memory at %#zx is part of another resource already",
				   (size_t)base);
	}
	return 0;
}
