/* SPDX-License-Identifier: MIT */
/* Stream order through the public resources: blocks are freed behind late work, by streams that the
 * caller's own calls of the driver use too, and no byte is ever wrong.  Exit: 0, 1, 77. */
#include "config.h"

#include "hoist/hoist.h"
#include "lib/device/device.h"
#include "tests/support/alloc-clock.h"
#include "tests/support/lib-support.h"

#define MIB ((size_t)1 << 20)

static int alloc(void *from, size_t bytes, uintptr_t *ret)
{
	return hoist_memory_alloc(from, bytes, 0, ret);
}

static int alloc_on(void *from, size_t bytes, void *stream, uintptr_t *ret)
{
	return hoist_memory_alloc_on(from, bytes, 0, stream, ret);
}

static int give(void *from, uintptr_t address)
{
	return hoist_memory_free(from, address);
}

static int give_on(void *from, uintptr_t address, void *stream)
{
	return hoist_memory_free_on(from, address, stream);
}

static int use(void *from, uintptr_t address, void *stream)
{
	return hoist_memory_use(from, address, stream);
}

static const struct clock_calls calls = {alloc, alloc_on, give, give_on, use};

static hoist_memory *make(int kind, hoist_device *device)
{
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = kind,
		.device = device,
		.region_bytes = kind == HOIST_MEMORY_DRIVER_POOL ? 0 : MIB / 2,
		.limit_bytes = kind == HOIST_MEMORY_DRIVER_POOL ? 0 : MIB,
	};
	hoist_memory *memory = NULL;
	CHECK(hoist_memory_create(&options, &memory) == 0);
	return memory;
}

static void play(hoist_device *device, const char *api, int kind, uint64_t n)
{
	static struct clock clock;
	memset(&clock, 0, sizeof clock);
	clock.calls = &calls;
	clock.dev = hoist__device_dev(device);
	clock.device = make(kind, device);
	clock.pinned = make(HOIST_MEMORY_PINNED, device);
	for (int i = 0; i < CLOCK_PLAYERS + 1; i++) {
		hoist_stream *stream = NULL;
		CHECK(hoist_stream_create(device, &stream) == 0);
		clock.streams[i].known = stream;
		CHECK(hoist__dev_stream_wrap(clock.dev, hoist_stream_native(stream),
						   &clock.streams[i].stream) == 0);
	}
	clock_open(&clock);
	lib_set_latency(api, 0, 200);
	clock_run(&clock, kind == HOIST_MEMORY_DEVICE ? api : "the driver's pool", n, true);
	lib_set_latency(api, 0, 0);
	clock_close(&clock);
	for (int i = 0; i < CLOCK_PLAYERS + 1; i++) {
		hoist__dev_stream_destroy(clock.streams[i].stream);
		hoist_stream_unref(clock.streams[i].known);
	}
	hoist_memory_statistics s = {.size = sizeof s};
	CHECK(hoist_memory_get_statistics(clock.device, &s) == 0);
	CHECK(s.n_blocks == 0 && s.n_allocs == s.n_frees && s.n_allocs >= n);
	hoist_memory_unref(clock.device);
	hoist_memory_unref(clock.pinned);
}

int main(void)
{
	hoist_device *devices[LIB_N_DEVICES];
	const char *sanitizers = getenv("HOIST_TEST_SANITIZERS");
	bool slow = sanitizers != NULL && sanitizers[0] != '\0';
	const uint64_t n = slow ? 10000 : 60000;
	lib_need_emulators();
	lib_open_all(devices);
	play(devices[1], "cuda", HOIST_MEMORY_DEVICE, n);
	play(devices[1], "cuda", HOIST_MEMORY_DRIVER_POOL, n / 2);
	play(devices[3], "hip", HOIST_MEMORY_DEVICE, n / 2);
	CHECK(lib_drivers_content());
	CHECK(lib_nothing_outstanding(devices));
	for (int i = 0; i < LIB_N_DEVICES; i++)
		hoist_device_unref(devices[i]);
	return 0;
}
