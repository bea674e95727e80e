/* SPDX-License-Identifier: MIT */
/* Scenario of the failure sweep (tests/faults/sweep.h): every kind of memory resource. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "hoist/memory-driver.h"
#include "tests/faults/sweep.h"
#include "tests/support/lib-support.h"

#define MIB ((size_t)1 << 20)

/* All that a resource can do, on @device; the first failure ends it, blocks are always freed. */
static int use_blocks(hoist_memory *memory, hoist_stream *stream)
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
	STEP(err, hoist_memory_use(memory, blocks[1], stream));
	STEP(err, hoist_memory_get_statistics(memory, &s));
	for (size_t i = 0; i < 4; i++) {
		/* A free on a stream may want memory for that; then the block is still there. */
		int failed = hoist_memory_free_on(memory, blocks[i], stream);
		if (failed == -ENOMEM)
			failed = hoist_memory_free(memory, blocks[i]);
		if (failed == -ENOMEM)
			failed = hoist_memory_free(memory, blocks[i]);
		STEP(err, failed);
	}
	return err;
}

/* The other functions of a driver's pool.  A device that has no peer asks for itself. */
static int use_pool(hoist_memory *memory, hoist_device *peer)
{
	uint64_t value;
	void *handle;
	int allowed;
	int err = hoist_memory_native_pool(memory, &handle);
	STEP(err, hoist_memory_get_attribute(memory, HOIST_POOL_USED_HIGH, &value));
	STEP(err, hoist_memory_set_peer_access(memory, peer, 1));
	STEP(err, hoist_memory_get_peer_access(memory, peer, &allowed));
	return err;
}

static int use_kind(int kind, hoist_device *device, hoist_memory *upstream, hoist_stream *stream)
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
	STEP(err, use_blocks(memory, stream));
	if (err == 0 && kind == HOIST_MEMORY_DRIVER_POOL)
		err = use_pool(memory, device == sweep_devices[1] ? sweep_devices[2] : device);
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
	STEP(err, hoist_memory_use(memory, blocks[0], stream));
	for (int i = 0; err == 0 && i < 2; i++)
		err = hoist_memory_grow(memory, blocks[i], 200000, &blocks[i]);
	STEP(err,
	     hoist_buffer_create_from(memory, stream, HOIST_U8, 1, (const int64_t[]){1000}, 0, &b));
	STEP(err, hoist_buffer_grow(b, 1, &n, &larger));
	hoist_buffer_unref(b);
	hoist_buffer_unref(larger);
	for (int i = 0; i < 2; i++)
		if (hoist_memory_free_on(memory, blocks[i], stream) < 0 && blocks[i] != 0)
			sweep_die("a block was not freed");
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
	STEP(err, hoist_memory_of_device(device, HOIST_MEMORY_GRAPH, &memory));
	if (err == 0 && lib_capture(api, hoist_stream_native(stream), 1) != 0)
		sweep_die("a stream that is new captures already");
	bool captures = err == 0;
	STEP(err, hoist_memory_alloc_on(memory, 1000, 0, stream, &block));
	STEP(err, hoist_buffer_create_from(memory, stream, HOIST_U8, 1, (const int64_t[]){1000},
					   HOIST_BUFFER_ZERO, &b));
	STEP(err, hoist_memory_get_attribute(memory, HOIST_POOL_USED_CURRENT, &value));
	hoist_buffer_unref(b);
	int failed = memory != NULL ? hoist_memory_free_on(memory, block, stream) : 0;
	STEP(err, failed);
	/* The graph does not free a block whose free could not ask for the capture's state. */
	if (captures && lib_capture(api, hoist_stream_native(stream), 0) != 0)
		sweep_die("the capture was broken");
	STEP(err, hoist_memory_trim(memory, 0));
	STEP(err, hoist_memory_reset_peaks(memory));
	hoist_memory_unref(memory);
	hoist_stream_unref(stream);
	return err;
}

/* Each kind, and one over another. */
/* proves: S2.22 S2.26 S2.27 S2.28 */
static int resources_of_every_kind(void)
{
	hoist_device *device = sweep_devices[sweep_device];
	static const int kinds[] = {HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE, HOIST_MEMORY_MANAGED,
				    HOIST_MEMORY_DRIVER_POOL};
	hoist_stream *stream = NULL;
	hoist_stream *on_cpu = NULL;
	hoist_memory *up = NULL;
	int err = hoist_stream_create(device, &stream);
	STEP(err, hoist_stream_create(sweep_devices[0], &on_cpu));
	STEP(err, use_kind(HOIST_MEMORY_HOST, sweep_devices[0], NULL, on_cpu));
	for (size_t k = 0; err == 0 && k < sizeof kinds / sizeof kinds[0]; k++)
		err = use_kind(kinds[k], device, NULL, stream);
	STEP(err, use_virtual(device, stream));
	STEP(err, use_graph(device, sweep_device == 3 ? "hip" : "cuda"));
	const hoist_memory_options options = {
		.size = sizeof options, .kind = HOIST_MEMORY_DRIVER_POOL, .device = device};
	STEP(err, hoist_memory_create(&options, &up));
	STEP(err, use_kind(HOIST_MEMORY_DEVICE, device, up, stream));
	hoist_memory_unref(up);
	hoist_stream_unref(on_cpu);
	hoist_stream_unref(stream);
	return err;
}

/* A snapshot of each kind.  The kernel's answer about the residence of host memory takes long,
 * above all under AddressSanitizer: the many faults of the other scenario do without. */
static int snapshots_of_every_kind(void)
{
	static const int kinds[] = {HOIST_MEMORY_HOST, HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE,
				    HOIST_MEMORY_MANAGED, HOIST_MEMORY_DRIVER_POOL};
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int err = 0;
	for (size_t k = 0; err == 0 && k < sizeof kinds / sizeof kinds[0]; k++) {
		const hoist_memory_options options = {
			.size = sizeof options,
			.kind = kinds[k],
			.device = sweep_devices[k == 0 ? 0 : sweep_device]};
		hoist_memory *memory = NULL;
		uintptr_t block = 0;
		err = hoist_memory_create(&options, &memory);
		STEP(err, hoist_memory_alloc(memory, 5000, 0, &block));
		STEP(err, hoist_memory_snapshot(memory, null));
		int failed = block != 0 ? hoist_memory_free(memory, block) : 0;
		if (failed == -ENOMEM)
			failed = hoist_memory_free(memory, block);
		STEP(err, failed);
		hoist_memory_unref(memory);
	}
	close(null);
	return err;
}

const struct sweep_scenario sweep_lib_memory[] = {
	SWEEP_BOTH("lib-memory", 1, 3, .prepare = sweep_need_devices,
		   .run = resources_of_every_kind, .check = sweep_check_devices),
	SWEEP_BOTH("lib-snapshot", 1, 3, .prepare = sweep_need_devices,
		   .run = snapshots_of_every_kind, .check = sweep_check_devices),
	{.name = NULL},
};
