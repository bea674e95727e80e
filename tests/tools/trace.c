/* SPDX-License-Identifier: MIT */
/* tools/trace FILE DEVICE - a resource on DEVICE records what two threads do, into FILE: 20
 * allocations and 19 frees each, a third of them on a stream; and one free of a block from before
 * the recording; and an allocation that fails.  Exit status: 0; 1 with the reason on stderr. */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <hoist/memory.h>

#define N_BLOCKS 20
#define LIMIT ((size_t)64 << 20)

static hoist_memory *memory;
static hoist_stream *stream;

static int fail(const char *what)
{
	(void)fprintf(stderr, "tools/trace: %s: %s\n", what, hoist_error());
	return 1;
}

static void *work(void *argument)
{
	uintptr_t blocks[N_BLOCKS];
	int *status = argument;
	for (size_t i = 0; i < N_BLOCKS; i++) {
		size_t bytes = (i + 1) * 5000;
		int err = i % 3 == 0 ? hoist_memory_alloc_on(memory, bytes, 0, stream, &blocks[i])
				     : hoist_memory_alloc(memory, bytes, 0, &blocks[i]);
		if (err != 0) {
			*status = fail("allocating");
			return NULL;
		}
	}
	for (size_t i = 1; i < N_BLOCKS; i++) {
		int err = i % 3 == 0 ? hoist_memory_free_on(memory, blocks[i], stream)
				     : hoist_memory_free(memory, blocks[i]);
		if (err != 0)
			*status = fail("freeing");
	}
	return NULL;
}

/* Both at once; the two blocks that they leave go with the process. */
static int run_threads(void)
{
	pthread_t other;
	int status[2] = {0, 0};
	if (pthread_create(&other, NULL, work, &status[0]) != 0)
		return fail("a thread");
	(void)work(&status[1]);
	(void)pthread_join(other, NULL);
	return status[0] | status[1];
}

int main(int argc, char **argv)
{
	hoist_device *device = NULL;
	uintptr_t before = 0;
	uintptr_t none = 0;
	if (argc != 3) {
		(void)fprintf(stderr, "usage: tools/trace FILE DEVICE\n");
		return 2;
	}
	if (hoist_device_open(argv[2], &device) != 0 || hoist_stream_create(device, &stream) != 0)
		return fail(argv[2]);
	hoist_memory_options options = {.size = sizeof options,
					.kind = strcmp(argv[2], "cpu") == 0 ? HOIST_MEMORY_HOST
									    : HOIST_MEMORY_DEVICE,
					.device = device,
					.limit_bytes = LIMIT};
	if (hoist_memory_create(&options, &memory) != 0 ||
	    hoist_memory_alloc(memory, 1000, 0, &before) != 0)
		return fail("the resource");
	if (hoist_memory_trace(memory, argv[1]) != 0)
		return fail(argv[1]);
	int status = run_threads();
	if (hoist_memory_alloc(memory, LIMIT + 1, 0, &none) == 0)
		status = fail("the limit does not hold");
	if (hoist_memory_free(memory, before) != 0 || hoist_memory_trace(memory, NULL) != 0)
		status = fail(argv[1]);
	hoist_memory_unref(memory);
	hoist_stream_unref(stream);
	hoist_device_unref(device);
	return status;
}
