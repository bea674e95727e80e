/* SPDX-License-Identifier: MIT */
/* The bytes that a pool keeps of malloc for itself, so that the soak can subtract them. */
#include "config.h"

#include <malloc.h>

#include "alloc/pool-private.h"
#include "tests/soak/worker.h"

uint64_t soak_kept_by(struct hoist__pool *pool)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; pool != NULL && i < pool->n_shards * pool->n_classes; i++) {
		struct hoist__class *class =
			&pool->shards[i / pool->n_classes].classes[i % pool->n_classes];
		size_t one = hoist__slab_bytes(class) + 16; /* malloc's part of it */
		hoist__lock(&class->lock);
		bytes += class->n_slabs * one;
		for (struct hoist__list *at = class->spares.next; at != &class->spares;
		     at = at->next)
			bytes += one;
		hoist__unlock(&class->lock);
	}
	hoist__caches_lock();
	for (struct hoist__list *at = pool != NULL ? pool->caches.next : NULL;
	     pool != NULL && at != &pool->caches; at = at->next)
		bytes += malloc_usable_size(HOIST__CONTAINER_OF(at, struct hoist__cache, link)) + 8;
	hoist__caches_unlock();
	return bytes;
}
