/* SPDX-License-Identifier: MIT */
/* tests/lib/load/stream.h - a checkpoint whose tensors are taken one by one, for stream.c and
 * stream_ends.c. */
#ifndef HOIST_TESTS_LIB_LOAD_STREAM_H
#define HOIST_TESTS_LIB_LOAD_STREAM_H

#include <errno.h>
#include <string.h>

#include "tests/support/lib-custom.h"
#include "tests/support/load-support.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Groups of small tensors, large ones, empty ones. */
static const size_t sizes[] = {100, 0,		 300 * KIB, 3 * MIB + 5, MIB,	   4 * KIB, 7,
			       0,   2 * MIB + 1, 64,	    MIB + 77,	 MIB + 99, 5 * MIB, 1};
enum { N = sizeof sizes / sizeof sizes[0], N_EMPTY = 2 };

static inline hoist_load *start(const hoist_load_options *o)
{
	hoist_checkpoint *checkpoint = support_open("m.safetensors");
	hoist_load *load = NULL;
	OK(hoist_load_start(checkpoint, o, &load));
	hoist_checkpoint_close(checkpoint);
	return load;
}

/* The file's bytes of a tensor, read by the test itself. */
static inline void same_bytes(size_t tensor, hoist_buffer *buffer)
{
	static unsigned char got[5 * MIB];
	static unsigned char want[5 * MIB];
	hoist_checkpoint *checkpoint = support_open("m.safetensors");
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, tensor, &info));
	FILE *file = fopen(support_path("m.safetensors"), "rb");
	CHECK(file != NULL && hoist_buffer_bytes(buffer) == info.bytes);
	OK(fseek(file, (long)info.offset, SEEK_SET));
	CHECK(fread(want, 1, (size_t)info.bytes, file) == info.bytes);
	OK(fclose(file));
	OK(hoist_buffer_copy_out(buffer, got, (size_t)info.bytes));
	CHECK(memcmp(got, want, (size_t)info.bytes) == 0);
	hoist_checkpoint_close(checkpoint);
}

static inline hoist_load_item next_of(hoist_load *load)
{
	hoist_load_item item = {.size = sizeof item};
	CHECK(hoist_load_next(load, UINT64_MAX, &item) == 1);
	return item;
}

static inline void drop(hoist_load_item *item)
{
	hoist_buffer_unref(item->buffer);
	item->buffer = NULL;
}

static inline int try_next(hoist_load *load, uint64_t timeout_ns)
{
	hoist_load_item item = {.size = sizeof item};
	int got = hoist_load_next(load, timeout_ns, &item);
	hoist_buffer_unref(item.buffer);
	CHECK((got == 1) == (item.buffer != NULL));
	return got;
}

/* Drives a caller-driven load until its next call has something to say. */
static inline int look(hoist_load *load, hoist_load_item *item)
{
	int got;
	while ((got = hoist_load_next(load, 1000000, item)) == -ETIMEDOUT)
		continue;
	return got;
}

#endif
