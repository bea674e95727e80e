/* SPDX-License-Identifier: MIT */
/* tests/support/alloc-stage.h - the stage for tests of alloc/deferred.h: a device, four streams,
 * marks, and a malloc that can fail.  One program, one device at a time.
 *
 * A block is a number here: nothing reads or writes it.  Where lateness matters, a stream writes a
 * mark behind its use of a block, and a block that comes out must have all its marks. */
#ifndef HOIST_TESTS_ALLOC_STAGE_H
#define HOIST_TESTS_ALLOC_STAGE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/deferred.h"
#include "base/error.h"
#include "tests/support/check.h"
#include "tests/support/emulator-driver.h"
#include "tests/support/failing-calls.h"

#define BLOCK 256
#define N_STREAMS 4
#define N_SLOTS 256
#define SLOW_BYTES (1 << 20)

static enum hoist__api api;
static struct control control; /* of the stand-in; not for the CPU */
static struct hoist__dev *dev;
static struct hoist__dev_stream *streams[N_STREAMS];
static struct hoist__calls calls;
static struct hoist__deferred *deferred;
static uintptr_t memory; /* on the device: the bytes 0 to 255, and room */
static int attempt;
static unsigned char *host; /* registered: SLOW_BYTES, then the marks */
static volatile unsigned char *marks;
static unsigned char due[N_SLOTS * N_STREAMS]; /* the marks when all work is done */

/* --- the stage --- */

static inline const char *function(const char *name)
{
	static char full[64];
	bool hip = api == HOIST__API_HIP;
	(void)snprintf(full, sizeof full, "%s%s%s", hip ? "hip" : "cu", name,
		       hip && strcmp(name, "EventCreate") == 0 ? "WithFlags" : "");
	return full;
}

static inline uint64_t called(const char *name)
{
	uint64_t n = control.calls(function(name));
	CHECK(n != UINT64_MAX);
	return n;
}

static inline void make_fail(const char *name, const char *when)
{
	char spec[96];
	(void)snprintf(spec, sizeof spec, "%s:%s", strcmp(name, "any") == 0 ? name : function(name),
		       when);
	CHECK(control.fail(spec) == 0);
}

static inline void capture(int stream, bool on, int expected)
{
	CHECK(control.capture(hoist__dev_stream_native(streams[stream]), on) == expected);
}

static inline void open_device(enum hoist__api which)
{
	api = which;
	failing.kinds = FAIL_ALLOCATIONS;
	if (api != HOIST__API_CPU) {
		const char *library = api == HOIST__API_CUDA ? "libhoist-emulated-cuda.so"
							     : "libhoist-emulated-hip.so";
		(void)driver_open(library, "cuda:1,hip:1", &control);
	}
	CHECK(hoist__dev_get(api, 0, &dev) == 0);
	size_t bytes = SLOW_BYTES + N_SLOTS * N_STREAMS;
	host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(host != MAP_FAILED);
	marks = host + SLOW_BYTES;
	for (int i = 0; i < N_STREAMS; i++)
		CHECK(hoist__dev_stream_create(dev, &streams[i]) == 0);
	CHECK(hoist__dev_mem_alloc(dev, SLOW_BYTES, &memory) == 0);
	if (api != HOIST__API_CPU)
		CHECK(hoist__dev_host_register(dev, host, bytes) == 0);
	for (uintptr_t i = 0; i < 256; i++)
		CHECK(hoist__fill_async(streams[0], memory + i, (unsigned char)i, 1, 1) == 0);
	memset(due, 0, sizeof due);
	CHECK(hoist__dev_stream_synchronize(streams[0]) == 0);
}

static inline void close_device(void)
{
	for (int i = 0; i < N_STREAMS; i++)
		hoist__dev_stream_destroy(streams[i]);
	if (api != HOIST__API_CPU) {
		struct hoist_emulator_counters count = counters_of(&control);
		CHECK(count.broken_captures == 0 && count.live_events == 0);
		CHECK(hoist__dev_host_unregister(dev, host, SLOW_BYTES + N_SLOTS * N_STREAMS) == 0);
	}
	CHECK(hoist__dev_mem_free(dev, memory, SLOW_BYTES) == 0);
	(void)munmap(host, SLOW_BYTES + N_SLOTS * N_STREAMS);
}

static inline void begin(const char *name, bool reuse)
{
	const struct hoist__deferred_options options = {.reuse = reuse, .calls = &calls};
	check_at("%s, %s", hoist__api_name(api), name);
	memset(&calls, 0, sizeof calls);
	CHECK(hoist__deferred_create(&options, &deferred) == 0);
}

static inline void end(void)
{
	uintptr_t left[8];
	CHECK(hoist__deferred_drain(deferred, left, 8) == 0);
	CHECK(hoist__deferred_bytes(deferred) == 0 && !hoist__deferred_any(deferred));
	hoist__deferred_destroy(deferred);
	if (api != HOIST__API_CPU)
		control.reset();
}

static inline uintptr_t block(int i)
{
	return (uintptr_t)0x7f0000000000 + (uintptr_t)i * BLOCK;
}

static inline void push(int i, int stream)
{
	CHECK(hoist__deferred_push(deferred, block(i), BLOCK,
				   stream < 0 ? NULL : streams[stream]) == 0);
}

static inline void use(int i, int stream)
{
	CHECK(hoist__deferred_use(deferred, block(i), streams[stream]) == 0);
}

static inline uintptr_t take(int stream)
{
	return hoist__deferred_take(deferred, streams[stream], BLOCK, 1);
}

static inline size_t sweep(bool wait)
{
	uintptr_t out[N_SLOTS];
	return hoist__deferred_sweep(deferred, wait, out, N_SLOTS);
}

static inline size_t drain(void)
{
	uintptr_t out[N_SLOTS];
	size_t n = 0;
	for (size_t more; (more = hoist__deferred_drain(deferred, out, N_SLOTS)) != 0;)
		n += more;
	return n;
}

/* The stream writes the slot's mark when it gets there. */
static inline void work(int slot, int stream)
{
	int at = slot * N_STREAMS + stream;
	uintptr_t mark = (uintptr_t)&marks[at];
	unsigned char value = ++due[at];
	if (api == HOIST__API_CPU)
		CHECK(hoist__fill_async(streams[stream], mark, value, 1, 1) == 0);
	else
		CHECK(hoist__copy_async(streams[stream], HOIST__COPY_DEVICE_TO_HOST, mark,
					memory + value, 1) == 0);
}

/* Work of some milliseconds, more at each attempt, and a mark in slot 0. */
#define MOST_BUSY 12 /* minutes */
static inline void keep_busy(int stream)
{
	if (api == HOIST__API_CPU) {
		for (int i = 0; i < 100 << attempt; i++)
			CHECK(hoist__fill_async(streams[stream], (uintptr_t)host, 1, 1,
						SLOW_BYTES) == 0);
	} else {
		control.set_rate((256 << 20) >> attempt);
		CHECK(hoist__copy_async(streams[stream], HOIST__COPY_DEVICE_TO_HOST,
					(uintptr_t)host, memory, SLOW_BYTES) == 0);
	}
	work(0, stream);
}

static inline bool is_busy(int stream)
{
	return marks[stream] != due[stream];
}

#endif
