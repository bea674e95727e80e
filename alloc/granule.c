/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/granule.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/error.h"

_Static_assert(sizeof(struct hoist__granule) == 64, "one cache line");

struct hoist__granule *_Atomic hoist__granule_root[(size_t)1 << HOIST__ROOT_BITS];

#define LEAF_BYTES (HOIST__LEAF_GRANULES * sizeof(struct hoist__granule))

/* Of two threads that make a leaf at once, the later discards his. */
static int need_leaf(uintptr_t address)
{
	size_t root = address >> (HOIST__GRANULE_SHIFT + HOIST__LEAF_BITS);
	struct hoist__granule *known = atomic_load(&hoist__granule_root[root]);
	if (known != NULL)
		return 0;
	void *made = mmap(NULL, LEAF_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (made == MAP_FAILED)
		return hoist__fail_nomem("a part of the page map", LEAF_BYTES);
	if (!atomic_compare_exchange_strong(&hoist__granule_root[root], &known, made))
		(void)munmap(made, LEAF_BYTES);
	return 0;
}

void hoist__granules_release(uintptr_t base, size_t n)
{
	for (size_t i = 0; i < n; i++)
		atomic_store_explicit(&hoist__granule_at(base, i)->extent, NULL,
				      memory_order_release);
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
	for (size_t i = 0; i < n; i++) {
		struct hoist__extent *none = NULL;
		struct hoist__granule *granule = hoist__granule_at(base, i);
		if (!atomic_compare_exchange_strong_explicit(&granule->extent, &none, extent,
							     memory_order_release,
							     memory_order_relaxed)) {
			hoist__granules_release(base, i);
			return hoist__fail(-EEXIST,
					   "memory at %#zx is part of another resource already",
					   (size_t)base);
		}
	}
	return 0;
}
