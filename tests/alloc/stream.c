/* SPDX-License-Identifier: MIT */
/* Stream order through pools, a million times: blocks are freed behind work that is late, and
 * taken again by other threads, and no byte is ever wrong; meanwhile mappings, resident memory and
 * the heap stay as they were.  Where the order is left out on purpose, bytes are wrong.
 * On emulated devices, or on a real one where HOIST_TEST_DEVICE says cuda or hip.
 * Exit: 0, 1, 77. */
#include "config.h"

#include "tests/support/alloc-clock.h"
#include "tests/support/alloc-figures.h"
#include "tests/support/alloc-support.h"
#include "tests/support/emulator-driver.h"
#include "tests/support/patience.h"

static struct control control; /* of the stand-in; not on a real device */
static bool emulated;

/* --- blocks of pools --- */

static int alloc(void *from, size_t bytes, uintptr_t *ret)
{
	return hoist__pool_alloc(from, bytes, 0, 0, ret);
}

static int alloc_on(void *from, size_t bytes, void *stream, uintptr_t *ret)
{
	return hoist__pool_alloc_on(from, bytes, 0, stream, ret);
}

static int give(void *from, uintptr_t address)
{
	return hoist__pool_free(from, address);
}

static int give_on(void *from, uintptr_t address, void *stream)
{
	return hoist__pool_free_on(from, address, stream);
}

static int use(void *from, uintptr_t address, void *stream)
{
	return hoist__pool_use(from, address, stream);
}

static const struct clock_calls calls = {alloc, alloc_on, give, give_on, use};

/* So small that blocks soon come again, and that streams must be waited for. */
static struct hoist__pool *make_small_pool(enum hoist__memory_kind kind, struct hoist__dev *dev)
{
	const struct hoist__pool_options options = {
		.kind = kind,
		.dev = dev,
		.region_bytes = HOIST__MIB / 2,
		.keep_bytes = HOIST__MIB,
		.cache_bytes = 64 * HOIST__KIB,
		.limit_bytes = HOIST__MIB,
	};
	return make_pool(&options);
}

static void open_clock(struct clock *clock, enum hoist__api api)
{
	memset(clock, 0, sizeof *clock);
	clock->calls = &calls;
	int err = hoist__dev_get(api, 0, &clock->dev);
	if (err != 0 && !emulated) {
		printf("skipped: %s\n", hoist__error_text());
		exit(77);
	}
	CHECK(err == 0);
	clock->device = make_small_pool(HOIST__MEMORY_DEVICE, clock->dev);
	clock->pinned = make_small_pool(HOIST__MEMORY_PINNED, clock->dev);
	for (int i = 0; i < CLOCK_PLAYERS + 1; i++) {
		CHECK(hoist__dev_stream_create(clock->dev, &clock->streams[i].stream) == 0);
		clock->streams[i].known = clock->streams[i].stream;
	}
	clock_open(clock);
}

static void end_pool(struct hoist__pool *pool)
{
	for (uint64_t until = 0; pool_stats(pool).pending_bytes != 0 && patience(&until);)
		hoist__pool_trim(pool, 0);
	expect_unused(pool);
	hoist__pool_unref(pool);
}

static void close_clock(struct clock *clock)
{
	end_pool(clock->device);
	end_pool(clock->pinned);
	clock_close(clock);
	for (int i = 0; i < CLOCK_PLAYERS + 1; i++) {
		hoist__pools_forget_stream(clock->streams[i].stream);
		hoist__dev_stream_destroy(clock->streams[i].stream);
	}
	if (!emulated)
		return;
	struct hoist_emulator_counters now = counters_of(&control);
	CHECK(now.use_after_free == 0 && now.bad_copies == 0 && now.bad_frees == 0);
	CHECK(now.live_allocations == 0 && now.live_registrations == 0 && now.live_events == 0);
}

/* --- the order left out --- */

/* A stream will write to a block, which is freed in its order or, wrongly, at once.
 * Returns: whether the next owner keeps its bytes. */
static bool next_owner_is_safe(struct clock *clock, bool pinned, bool ordered)
{
	struct hoist__pool *pool = pinned ? clock->pinned : clock->device;
	struct clock_stream *early = &clock->streams[1];
	struct clock_stream *late = &clock->streams[0];
	unsigned char *pattern = clock->host;
	unsigned char *result = clock->host + CLOCK_BYTES;
	uintptr_t block = 0;
	memset(pattern, 0x55, CLOCK_BYTES);
	/* Later and later, until it was late enough for this machine. */
	for (unsigned late_us = 20000;; late_us *= 2) {
		CHECK(hoist__pool_alloc(pool, 256, 0, 0, &block) == 0);
		control.set_latency(late_us, late_us);
		if (pinned)
			clock_to_host(late, (void *)block, clock->garbage, 256);
		else
			clock_spoil(late, block, 256);
		control.set_latency(0, 0);
		CHECK((ordered ? hoist__pool_free_on(pool, block, late->stream)
			       : hoist__pool_free(pool, block)) == 0);
		CHECK(hoist__pool_alloc(pool, 256, 0, 0, &block) == 0);
		if (pinned) {
			memcpy((void *)block, pattern, 256);
		} else {
			clock_to_device(early, block, pattern, 256);
			CHECK(hoist__dev_stream_synchronize(early->stream) == 0);
		}
		bool was_late = hoist__dev_stream_query(late->stream) == -EAGAIN;
		CHECK(hoist__dev_stream_synchronize(late->stream) == 0);
		if (pinned)
			memcpy(result, (const void *)block, 256);
		else
			clock_to_host(early, result, block, 256);
		CHECK(hoist__dev_stream_synchronize(early->stream) == 0);
		give_block(pool, block);
		if (was_late)
			return memcmp(pattern, result, 256) == 0;
	}
}

/* Sanitizers would rightly find it before the bytes do. */
static void check_that_it_matters(struct clock *clock)
{
	for (int pinned = 0; pinned < 2; pinned++) {
		CHECK(next_owner_is_safe(clock, pinned != 0, true));
		if (!is_slow())
			CHECK(!next_owner_is_safe(clock, pinned != 0, false));
	}
}

static void play(enum hoist__api api, uint64_t n_first, uint64_t n)
{
	static struct clock clock;
	open_clock(&clock, api);
	if (emulated) {
		check_that_it_matters(&clock);
		control.set_latency(0, 200);
	}
	clock_run(&clock, "at first", n_first, false);
	struct figures before = figures();
	/* A real device is as late as it is. */
	clock_run(&clock, hoist__api_name(api), n, emulated);
	/* A real driver keeps what it likes. */
	if (emulated)
		expect_steady("memory of the process", before, figures(), HOIST__MIB);
	for (int i = 0; i < 2; i++) {
		struct hoist__pool *pool = i == 0 ? clock.device : clock.pinned;
		struct hoist__pool_stats now = pool_stats(pool);
		hoist__pool_check(pool);
		CHECK(now.n_blocks == 0 && now.reserved_peak_bytes <= HOIST__MIB);
		printf("%s: %llu events, %llu queries, %llu waits\n", i == 0 ? "device" : "pinned",
		       (unsigned long long)now.calls.of[HOIST__CALL_EVENT].n,
		       (unsigned long long)now.calls.of[HOIST__CALL_QUERY].n,
		       (unsigned long long)now.calls.of[HOIST__CALL_WAIT].n);
	}
	close_clock(&clock);
	if (emulated)
		control.reset();
}

int main(void)
{
	const uint64_t n = is_slow() ? 50000 : 1000000;
	const char *real = getenv("HOIST_TEST_DEVICE");
	if (real != NULL) {
		play(strncmp(real, "hip", 3) == 0 ? HOIST__API_HIP : HOIST__API_CUDA, n / 10, n);
		return 0;
	}
	emulated = true;
	(void)driver_open("libhoist-emulated-cuda.so", "cuda:1,hip:1", &control);
	play(HOIST__API_CUDA, n / 10, n);
	(void)driver_open("libhoist-emulated-hip.so", "cuda:1,hip:1", &control);
	play(HOIST__API_HIP, n / 10, n / 10);
	return 0;
}
