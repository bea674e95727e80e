/* SPDX-License-Identifier: MIT */
/* Every allocation of hoist's own and every driver call of a scenario with memory resources fails
 * once, in turn: the scenario says so, nothing is left over, and the next one works. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "hoist/memory-driver.h"
#include "tests/support/lib-failing.h"
#include "tests/support/lib-support.h"

#define MIB ((size_t)1 << 20)

/* --- the scenario --- */

/* All that a resource can do, on @device; the first failure ends it, blocks are always freed. */
static int use_blocks(hoist_memory *memory, hoist_stream *stream, int null)
{
	static const size_t sizes[] = {100, 5000, 300000, 3 * MIB};
	uintptr_t blocks[4] = {0};
	uintptr_t seen;
	hoist_memory_statistics s = {.size = sizeof s};
	int err = 0;
	for (size_t i = 0; err == 0 && i < 4; i++)
		err = i % 2 == 0 ? hoist_memory_alloc(memory, sizes[i], 0, &blocks[i])
				 : hoist_memory_alloc_on(memory, sizes[i], 0, stream, &blocks[i]);
	if (err == 0 && (err = hoist_memory_device_address(memory, blocks[0], &seen)) == -ENOTSUP)
		err = 0;
	if (err == 0)
		err = hoist_memory_use(memory, blocks[1], stream);
	if (err == 0)
		err = hoist_memory_snapshot(memory, null);
	if (err == 0)
		err = hoist_memory_get_statistics(memory, &s);
	for (size_t i = 0; i < 4; i++) {
		/* A free on a stream may want memory for that; then the block is still there. */
		int failed = hoist_memory_free_on(memory, blocks[i], stream);
		if (failed == -ENOMEM)
			failed = hoist_memory_free(memory, blocks[i]);
		if (failed == -ENOMEM)
			failed = hoist_memory_free(memory, blocks[i]);
		if (err == 0)
			err = failed;
	}
	return err;
}

/* What a driver's pool has beside its blocks.  One device that has no peer asks for its own. */
static int use_pool(hoist_memory *memory, hoist_device *peer)
{
	uint64_t value;
	void *handle;
	int allowed;
	int err = hoist_memory_native_pool(memory, &handle);
	if (err == 0)
		err = hoist_memory_get_attribute(memory, HOIST_POOL_USED_HIGH, &value);
	if (err == 0)
		err = hoist_memory_set_peer_access(memory, peer, 1);
	if (err == 0)
		err = hoist_memory_get_peer_access(memory, peer, &allowed);
	return err;
}

static int use_kind(int kind, hoist_device *device, hoist_memory *upstream, hoist_stream *stream,
		    int null)
{
	hoist_memory *memory = NULL;
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = kind,
		.device = device,
		.upstream = upstream,
		.debug = kind == HOIST_MEMORY_PINNED ? 2 : 0,
		.preferred_location =
			kind == HOIST_MEMORY_MANAGED ? HOIST_PREFER_DEVICE : HOIST_PREFER_NONE,
		.region_bytes = kind == HOIST_MEMORY_DRIVER_POOL ? 0 : 4 * MIB,
	};
	int err = hoist_memory_create(&options, &memory);
	if (err == 0)
		err = use_blocks(memory, stream, null);
	if (err == 0 && kind == HOIST_MEMORY_DRIVER_POOL)
		err = use_pool(memory, device == lib_swept[1] ? lib_swept[2] : device);
	hoist_memory_unref(memory);
	return err;
}

/* A block that grows in place, then elsewhere, and a buffer of it. */
static int use_virtual(hoist_device *device, hoist_stream *stream)
{
	const hoist_virtual_options how = {.size = sizeof how, .minimum_granularity = 1};
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_VIRTUAL,
					      .device = device,
					      .virtual_options = &how};
	hoist_memory *memory = NULL;
	hoist_buffer *b = NULL;
	hoist_buffer *larger = NULL;
	uintptr_t blocks[2] = {0};
	const int64_t n = 100000;
	int err = hoist_memory_create(&options, &memory);
	for (int i = 0; err == 0 && i < 2; i++)
		err = hoist_memory_alloc(memory, 1000, 0, &blocks[i]);
	if (err == 0)
		err = hoist_memory_use(memory, blocks[0], stream);
	for (int i = 0; err == 0 && i < 2; i++)
		err = hoist_memory_grow(memory, blocks[i], 200000, &blocks[i]);
	if (err == 0)
		err = hoist_buffer_create_from(memory, stream, HOIST_U8, 1, (const int64_t[]){1000},
					       0, &b);
	if (err == 0)
		err = hoist_buffer_grow(b, 1, &n, &larger);
	hoist_buffer_unref(b);
	hoist_buffer_unref(larger);
	for (int i = 0; i < 2; i++)
		if (hoist_memory_free_on(memory, blocks[i], stream) < 0 && blocks[i] != 0)
			lib_die("a block was not freed");
	hoist_memory_unref(memory);
	return err;
}

/* A block, and a buffer, of a graph that a stream of its own captures. */
static int use_graph(hoist_device *device, const char *api)
{
	hoist_memory *memory = NULL;
	hoist_stream *stream = NULL;
	hoist_buffer *b = NULL;
	uintptr_t block = 0;
	uint64_t value;
	int err = hoist_stream_create(device, &stream);
	if (err == 0)
		err = hoist_memory_of_device(device, HOIST_MEMORY_GRAPH, &memory);
	if (err == 0 && lib_capture(api, hoist_stream_native(stream), 1) != 0)
		lib_die("a stream that is new captures already");
	bool captures = err == 0;
	if (err == 0)
		err = hoist_memory_alloc_on(memory, 1000, 0, stream, &block);
	if (err == 0)
		err = hoist_buffer_create_from(memory, stream, HOIST_U8, 1, (const int64_t[]){1000},
					       HOIST_BUFFER_ZERO, &b);
	if (err == 0)
		err = hoist_memory_get_attribute(memory, HOIST_POOL_USED_CURRENT, &value);
	hoist_buffer_unref(b);
	int failed = memory != NULL ? hoist_memory_free_on(memory, block, stream) : 0;
	if (err == 0)
		err = failed;
	/* What the asking for the capture's state failed for is not freed by the graph. */
	if (captures && lib_capture(api, hoist_stream_native(stream), 0) != 0)
		lib_die("the capture was broken");
	if (err == 0)
		err = hoist_memory_trim(memory, 0);
	if (err == 0)
		err = hoist_memory_reset_peaks(memory);
	hoist_memory_unref(memory);
	hoist_stream_unref(stream);
	return err;
}

/* Each kind, and one over another, on the @i-th device. */
static int run(int i)
{
	static const int kinds[] = {HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE, HOIST_MEMORY_MANAGED,
				    HOIST_MEMORY_DRIVER_POOL};
	hoist_stream *stream = NULL;
	hoist_stream *on_cpu = NULL;
	hoist_memory *up = NULL;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int err = hoist_stream_create(lib_swept[i], &stream);
	if (err == 0)
		err = hoist_stream_create(lib_swept[0], &on_cpu);
	if (err == 0)
		err = use_kind(HOIST_MEMORY_HOST, lib_swept[0], NULL, on_cpu, null);
	for (size_t k = 0; err == 0 && k < sizeof kinds / sizeof kinds[0]; k++)
		err = use_kind(kinds[k], lib_swept[i], NULL, stream, null);
	if (err == 0)
		err = use_virtual(lib_swept[i], stream);
	if (err == 0)
		err = use_graph(lib_swept[i], i == 3 ? "hip" : "cuda");
	const hoist_memory_options options = {
		.size = sizeof options, .kind = HOIST_MEMORY_DRIVER_POOL, .device = lib_swept[i]};
	if (err == 0)
		err = hoist_memory_create(&options, &up);
	if (err == 0)
		err = use_kind(HOIST_MEMORY_DEVICE, lib_swept[i], up, stream, null);
	hoist_memory_unref(up);
	hoist_stream_unref(on_cpu);
	hoist_stream_unref(stream);
	close(null);
	return err;
}

/* proves: S2.22 S2.26 S2.27 S2.28 */
int main(void)
{
	return lib_sweep_failures(run, 1, 3);
}
