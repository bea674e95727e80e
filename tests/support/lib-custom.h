/* SPDX-License-Identifier: MIT */
/* tests/support/lib-custom.h - a CUSTOM memory resource over malloc() that counts, and fails or
 * lies when told to.  Without a struct backing it only works; such a one may be shared by threads.
 */
#ifndef HOIST_TESTS_LIB_CUSTOM_H
#define HOIST_TESTS_LIB_CUSTOM_H

#include <errno.h>
#include <stdlib.h>

#include "hoist/hoist.h"

struct backing {
	int fail;	  /* alloc returns this instead */
	uintptr_t answer; /* alloc gives this address instead, if any */
	unsigned n_allocs;
	unsigned n_frees;
	unsigned n_ends;
	unsigned n_waits;
	size_t bytes; /* of the last call */
	size_t align;
	hoist_stream *stream;
};

static inline int take(void *context, size_t bytes, size_t align, hoist_stream *stream,
		       uintptr_t *ret)
{
	struct backing nothing = {0};
	struct backing *backing = context != NULL ? context : &nothing;
	backing->bytes = bytes;
	backing->align = align;
	backing->stream = stream;
	if (backing->fail != 0)
		return backing->fail;
	void *memory = NULL;
	if (posix_memalign(&memory, align < sizeof memory ? sizeof memory : align, bytes) != 0)
		return -ENOMEM;
	backing->n_allocs++;
	*ret = backing->answer != 0 ? backing->answer : (uintptr_t)memory;
	if (backing->answer != 0)
		free(memory);
	return 0;
}

static inline void give(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	struct backing nothing = {0};
	struct backing *backing = context != NULL ? context : &nothing;
	backing->n_frees++;
	backing->bytes = bytes;
	backing->stream = stream;
	if (backing->answer == 0)
		free((void *)address);
}

static inline void end(void *context)
{
	if (context != NULL)
		((struct backing *)context)->n_ends++;
}

/* "mine".  @host, @device: whether these can access the memory. */
static inline hoist_memory *make_custom(struct backing *backing, hoist_device *on, int host,
					int device)
{
	const hoist_memory_functions functions = {.size = sizeof functions,
						  .alloc = take,
						  .free = give,
						  .destroy = end,
						  .is_host_accessible = host,
						  .is_device_accessible = device};
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_CUSTOM,
					      .name = "mine",
					      .device = on,
					      .functions = &functions,
					      .functions_context = backing};
	hoist_memory *memory = NULL;
	if (hoist_memory_create(&options, &memory) != 0)
		abort();
	return memory;
}

#endif
