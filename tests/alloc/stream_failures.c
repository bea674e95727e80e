/* SPDX-License-Identifier: MIT */
/* Pools, streams and budgets, with every driver call that they make failing in turn, and every
 * malloc: what fails says so with a code that the headers name, what did not happen can be done
 * again, every block comes back, and nothing is left of pool, budgets and events.  Exit: 0, 1. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc/budget.h"
#include "alloc/pool.h"
#include "base/checked.h"
#include "base/error.h"
#include "device/device.h"
#include "tests/support/check.h"
#include "tests/support/failing-calls.h"
#include "tests/support/emulator-driver.h"

#define N_BLOCKS 90 /* more than one batch */
#define N_STREAMS 3

static struct control control;
static struct hoist__dev *dev;
static struct hoist__dev_stream *streams[N_STREAMS];
static enum hoist__memory_kind kind;
static struct hoist__budget *budget;
static struct hoist__budget *device_budget;
static struct hoist__pool *pool;
static uintptr_t blocks[N_BLOCKS];
static int first_err;

/* The first error is the scenario's; it has a text, and one of the codes that are promised. */
static bool is_done(int err, const int *codes)
{
	if (err == 0)
		return true;
	CHECK(hoist__error_text()[0] != '\0');
	while (*codes != 0 && *codes != err)
		codes++;
	CHECK(*codes == err);
	first_err = first_err == 0 ? err : first_err;
	return false;
}

static const int no_memory[] = {-ENOMEM, 0};
static const int no_block[] = {-ENOMEM, -ENOSPC, -EDQUOT, -EREMOTEIO, 0};

static size_t bytes_of(unsigned i)
{
	static const size_t sizes[] = {100, 3000, 300, 40000, 600, 300000, 700, 250};
	if (i == 50)
		return 700000; /* a region of its own */
	return sizes[i % HOIST__ARRAY_SIZE(sizes)];
}

/* Most are of the first one, which fills a batch. */
static struct hoist__dev_stream *stream_of(unsigned i)
{
	return streams[i % 4 == 0 ? 1 + i / 4 % 2 : 0];
}

static int take(unsigned i)
{
	int err = i % 2 == 0 ? hoist__pool_alloc_on(pool, bytes_of(i), 0, stream_of(i), &blocks[i])
			     : hoist__pool_alloc(pool, bytes_of(i), 0, 0, &blocks[i]);
	CHECK((err == 0) == (blocks[i] != 0));
	return err;
}

/* Late work, which the emulator will find if the memory goes away under it; it may be refused. */
static void work(unsigned i, struct hoist__dev_stream *stream)
{
	(void)hoist__fill_async(stream, blocks[i], 1, 1, bytes_of(i) < 5000 ? bytes_of(i) : 5000);
}

static int give(unsigned i)
{
	if (i % 5 == 0) /* its users alone are waited for */
		return hoist__pool_free(pool, blocks[i]);
	return hoist__pool_free_on(pool, blocks[i], stream_of(i));
}

/* One call fails at most: what was refused is given the second time. */
static void live(unsigned i)
{
	if (!is_done(take(i), no_block))
		CHECK(take(i) == 0);
	if (i % 6 == 0)
		work(i, stream_of(i));
	if (i % 5 == 0 && !is_done(hoist__pool_use(pool, blocks[i], stream_of(i)), no_memory))
		OK(hoist__pool_use(pool, blocks[i], stream_of(i)));
	if (i % 3 == 0) {
		if (i % 6 == 0)
			work(i, stream_of(i + 1));
		if (!is_done(hoist__pool_use(pool, blocks[i], stream_of(i + 1)), no_memory))
			OK(hoist__pool_use(pool, blocks[i], stream_of(i + 1)));
	}
}

static void die(unsigned i)
{
	struct hoist__block found;
	if (!is_done(give(i), no_memory)) {
		CHECK(hoist__pool_find(pool, blocks[i], &found) == 0 && found.bytes == bytes_of(i));
		CHECK(give(i) == 0);
	}
	blocks[i] = 0;
}

static void expect_whole(size_t n_blocks)
{
	struct hoist__pool_stats now;
	hoist__pool_check(pool);
	hoist__pool_stats(pool, &now);
	CHECK(now.n_blocks == n_blocks && now.requested_bytes <= now.allocated_bytes);
	CHECK(now.allocated_bytes + now.cached_bytes + now.pending_bytes <= now.reserved_bytes);
	CHECK(hoist__budget_used(budget) == now.reserved_bytes);
	CHECK(hoist__budget_used(device_budget) ==
	      (kind == HOIST__MEMORY_DEVICE ? now.reserved_bytes : 0));
}

static void use_pool(void)
{
	for (int round = 0; round < 2; round++) {
		for (unsigned i = 0; i < N_BLOCKS; i++) {
			live(i);
			if (i % 4 != 0) /* the others live to the round's end */
				die(i);
		}
		expect_whole((N_BLOCKS + 3) / 4);
		for (unsigned i = 0; i < N_BLOCKS; i += 4)
			die(i);
		if (round == 0)
			hoist__pool_trim(pool, 0);
		OK(hoist__pool_release_captured(pool));
		expect_whole(0);
	}
}

/* Each making is tried twice. */
static void make_budget(size_t limit, struct hoist__budget **ret)
{
	if (!is_done(hoist__budget_create(limit, ret), no_memory))
		OK(hoist__budget_create(limit, ret));
}

static int play(void)
{
	first_err = 0;
	make_budget(24 * HOIST__MIB, &budget);
	make_budget(20 * HOIST__MIB, &device_budget);
	const struct hoist__pool_options options = {
		.kind = kind,
		.dev = dev,
		.region_bytes = HOIST__MIB,
		.keep_bytes = 2 * HOIST__MIB,
		.limit_bytes = 20 * HOIST__MIB,
		.soft_bytes = 12 * HOIST__MIB,
		.budget = budget,
		.device_budget = kind == HOIST__MEMORY_DEVICE ? device_budget : NULL,
	};
	if (!is_done(hoist__pool_create(&options, &pool), no_memory))
		OK(hoist__pool_create(&options, &pool));
	use_pool();
	hoist__pool_unref(pool);
	CHECK(hoist__budget_used(budget) == 0 && hoist__budget_used(device_budget) == 0);
	hoist__budget_unref(budget);
	hoist__budget_unref(device_budget);
	struct hoist_emulator_counters now = counters_of(&control);
	CHECK(now.live_allocations == 0 && now.live_registrations == 0 && now.live_events == 0);
	CHECK(now.use_after_free == 0 && now.bad_frees == 0 && now.bad_copies == 0);
	return first_err;
}

static int in_thread(void)
{
	return failing_in_thread(play);
}

/* Streams go on after a failure: theirs is that of the call alone. */
static void settle(void)
{
	for (int i = 0; i < N_STREAMS; i++)
		OK(hoist__dev_stream_synchronize(streams[i]));
}

/* Under sanitizers some calls are left out: they are slow. */
static void sweep_driver(const char *name)
{
	const char *sanitizers = getenv("HOIST_TEST_SANITIZERS");
	const long step = sanitizers != NULL && sanitizers[0] != '\0' ? 5 : 1;
	char spec[32];
	long n_failed = 0;
	long nth = 1 - step;
	bool failed;
	failing.at = 0;
	do {
		(void)snprintf(spec, sizeof spec, "any:%ld", nth += step);
		check_at("%s, driver call %ld", name, nth);
		uint64_t before = counters_of(&control).injected_failures;
		CHECK(control.fail(spec) == 0);
		n_failed += in_thread() != 0;
		failed = counters_of(&control).injected_failures != before;
		CHECK(control.fail("") == 0);
		failing_expect_nothing_left();
		settle();
	} while (failed);
	CHECK(nth > 50 && n_failed > 0);
	printf("%s: %ld driver calls failed, %ld of them could not be helped\n", name, nth / step,
	       n_failed);
}

static void sweep_kind(enum hoist__memory_kind which, const char *name)
{
	kind = which;
	/* The first run makes the list of pools and the pages of the address map, which stay. */
	failing.at = 0;
	CHECK(in_thread() == 0);
	atomic_store(&failing.n_allocated, 0);
	atomic_store(&failing.n_mapped, 0);
	failing_sweep(name, in_thread, ENOMEM);
	settle();
	sweep_driver(name);
}

static void open_api(enum hoist__api api, const char *library)
{
	(void)driver_open(library, "cuda:1,hip:1", &control);
	OK(hoist__dev_get(api, 0, &dev));
	for (int i = 0; i < N_STREAMS; i++)
		OK(hoist__dev_stream_create(dev, &streams[i]));
	control.set_latency(0, 50);
}

static void close_api(void)
{
	for (int i = 0; i < N_STREAMS; i++)
		hoist__dev_stream_destroy(streams[i]);
	control.reset();
}

int main(void)
{
	open_api(HOIST__API_CUDA, "libhoist-emulated-cuda.so");
	sweep_kind(HOIST__MEMORY_DEVICE, "cuda, device");
	sweep_kind(HOIST__MEMORY_PINNED, "cuda, pinned");
	close_api();
	open_api(HOIST__API_HIP, "libhoist-emulated-hip.so");
	sweep_kind(HOIST__MEMORY_DEVICE, "hip, device");
	close_api();
	return 0;
}
