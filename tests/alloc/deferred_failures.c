/* SPDX-License-Identifier: MIT */
/* Blocks in stream order while calls of the driver, or malloc, fail: none comes out early, none
 * is lost, none comes twice.  Exit: 0, 1. */
#include "config.h"

#include "tests/support/alloc-stage.h"
#include "tests/support/patience.h"

/* 200 frees on two streams, every tenth block with both: never early, none lost, none twice. */
static void frees_under_failure(const char *name, const char *when, bool dead)
{
	static bool seen[N_SLOTS];
	uintptr_t out[16];
	size_t n_out = 0;
	memset(seen, 0, sizeof seen);
	begin("failures", true);
	check_at("%s, %s fails at %s", hoist__api_name(api), name, when);
	control.hold(1);
	for (int i = 0; i < 2; i++)
		CHECK(hoist__fill_async(streams[i], memory + 256, 1, 1, 1) == 0);
	make_fail(name, when);
	for (int i = 0; i < 200; i++) {
		if (i % 10 == 0)
			use(i, !(i & 1));
		push(i, i & 1);
		if (i % 50 == 49 && !dead)
			CHECK(sweep(false) == 0);
	}
	control.hold(0);
	bool drains = false;
	while (n_out < 200) {
		size_t n = drains ? hoist__deferred_drain(deferred, out, 16)
				  : hoist__deferred_sweep(deferred, true, out, 16);
		CHECK(n != 0 || !drains);
		drains = drains || n == 0;
		for (size_t i = 0; i < n; i++) {
			size_t slot = (out[i] - block(0)) / BLOCK;
			CHECK(slot < 200 && !seen[slot]);
			seen[slot] = true;
		}
		n_out += n;
	}
	CHECK(control.fail("") == 0);
	end();
}

static void driver_failures(void)
{
	static const char *const names[] = {"EventRecord",	 "EventCreate",
					    "EventQuery",	 "EventSynchronize",
					    "StreamIsCapturing", "StreamSynchronize"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		for (int nth = 1; nth <= 5; nth++) {
			char when[16];
			(void)snprintf(when, sizeof when, "%d", nth);
			frees_under_failure(names[i], when, false);
		}
		frees_under_failure(names[i], "1+", i == 2 || i == 3);
	}
	for (int nth = 1; nth <= 60; nth++) {
		char when[16];
		(void)snprintf(when, sizeof when, "%d", nth);
		frees_under_failure("any", when, false);
	}
	frees_under_failure("any", "1+", true);
}

/* Work that fails, and then is gone: its blocks come out. */
static void failed_work(void)
{
	begin("failed work", true);
	CHECK(control.fail("async:1") == 0);
	CHECK(hoist__copy_async(streams[0], HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host, memory,
				SLOW_BYTES) == 0);
	push(1, 0);
	push(2, 1);
	CHECK(drain() == 2);
	end();
}

static void forget_failures(void)
{
	static const char *const names[] = {"EventRecord", "EventCreate", "StreamSynchronize",
					    "any"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		begin("forgetting", true);
		check_at("%s, forgetting while %s fails", hoist__api_name(api), names[i]);
		struct hoist__dev_stream *kept = streams[1];
		CHECK(hoist__dev_stream_create(dev, &streams[1]) == 0);
		keep_busy(1);
		use(1, 1);
		push(2, 1);
		make_fail(names[i], "1+");
		hoist__deferred_forget(deferred, streams[1]);
		CHECK(control.fail("") == 0);
		hoist__dev_stream_destroy(streams[1]);
		streams[1] = kept;
		push(1, -1);
		CHECK(drain() == 2);
		end();
	}
}

static int try_scene(void)
{
	const struct hoist__deferred_options options = {.reuse = true, .calls = &calls};
	uintptr_t out[64];
	size_t n_pushed = 0;
	size_t n_out = 0;
	struct hoist__dev_stream *kept = streams[1];
	int err = hoist__deferred_create(&options, &deferred);
	if (err != 0)
		return err;
	streams[1] = streams[2];
	for (int i = 0; i < 1000; i++) {
		int used = hoist__deferred_use(deferred, block(i), streams[i % 3]);
		int pushed = hoist__deferred_push(deferred, block(i), BLOCK + (size_t)i % 40 * 256,
						  streams[i & 1]);
		CHECK(used == 0 || used == -ENOMEM);
		CHECK(pushed == 0 || pushed == -ENOMEM);
		CHECK(hoist__deferred_holds(deferred, block(i)) == (pushed == 0));
		/* Refused, it is the caller's still. */
		if (pushed != 0)
			CHECK(hoist__deferred_push(deferred, block(i), BLOCK, streams[0]) == 0);
		n_pushed++;
		if (used != 0 || pushed != 0)
			err = -ENOMEM;
	}
	hoist__deferred_forget(deferred, streams[2]);
	for (size_t n; (n = hoist__deferred_drain(deferred, out, 64)) != 0;)
		n_out += n;
	CHECK(n_out == n_pushed && hoist__deferred_bytes(deferred) == 0);
	hoist__deferred_destroy(deferred);
	streams[1] = kept;
	return err;
}

static void malloc_failures(void)
{
	for (int i = 0; i < N_STREAMS; i++)
		CHECK(hoist__dev_stream_synchronize(streams[i]) == 0);
	(void)usleep(10000);
	long before = failing.n_allocated;
	long nth = 0;
	do {
		check_at("%s, malloc %ld fails", hoist__api_name(api), ++nth);
		failing.n_calls = 0;
		failing.at = nth;
		(void)try_scene();
		/* Streams free their part when they come to it. */
		for (uint64_t until = 0; failing.n_allocated != before && patience(&until);)
			continue;
		CHECK(failing.n_allocated == before);
	} while (failing.n_calls >= nth);
	failing.at = 0;
	CHECK(nth > 20 && try_scene() == 0);
}

int main(void)
{
	static const enum hoist__api apis[] = {HOIST__API_CPU, HOIST__API_CUDA, HOIST__API_HIP};
	for (size_t i = 0; i < sizeof apis / sizeof apis[0]; i++) {
		open_device(apis[i]);
		malloc_failures();
		if (api != HOIST__API_CPU) {
			driver_failures();
			failed_work();
			forget_failures();
		}
		close_device();
	}
	return 0;
}
