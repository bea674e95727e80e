/* SPDX-License-Identifier: MIT */
/* Pinned and device memory: on an emulated device, and on a real one where
 * HOIST_TEST_DEVICE says cuda or hip. */
#include "config.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/pin.h"
#include "alloc/pool.h"
#include "base/checked.h"
#include "base/error.h"
#include "emulator/control.h"

static struct hoist__dev *dev;
static void *stand_in; /* the emulator's library; NULL on a real device */

static void open_device(void)
{
	const char *real = getenv("HOIST_TEST_DEVICE");
	enum hoist__api api =
		real != NULL && strcmp(real, "hip") == 0 ? HOIST__API_HIP : HOIST__API_CUDA;
	if (real == NULL) {
		setenv("HOIST_EMULATE", "cuda:1", 1);
		setenv("HOIST_EMULATE_MEMORY", "1G", 1);
	}
	if (hoist__dev_get(api, 0, &dev) != 0)
		cr_skip_test("%s", hoist__error_text());
	if (real == NULL) {
		stand_in = dlopen(hoist__api_library(api), RTLD_NOW | RTLD_NOLOAD);
		cr_assert_not_null(stand_in, "%s", dlerror());
	}
}

static void need_stand_in(void)
{
	if (stand_in == NULL)
		cr_skip_test("only the emulator can be made to fail");
}

static struct hoist_emulator_counters counters(void)
{
	struct hoist_emulator_counters now;
	__typeof__(&hoist_emulator_counters) ask;
	*(void **)&ask = dlsym(stand_in, "hoist_emulator_counters");
	ask(&now);
	return now;
}

static void make_fail(const char *spec)
{
	__typeof__(&hoist_emulator_fail) fail;
	*(void **)&fail = dlsym(stand_in, "hoist_emulator_fail");
	cr_assert_eq(fail(spec), 0, "%s", spec);
}

/* Unmapped before unregistered is a use after free to the emulator. */
static void expect_nothing_left(void)
{
	if (stand_in == NULL)
		return;
	struct hoist_emulator_counters now = counters();
	cr_assert_eq(now.live_allocations, 0);
	cr_assert_eq(now.live_bytes, 0);
	cr_assert_eq(now.live_registrations, 0);
	cr_assert_eq(now.bad_frees, 0);
	cr_assert_eq(now.use_after_free, 0);
}

TestSuite(alloc_device, .init = open_device);

Test(alloc_device, registers_pinned_regions_with_the_driver)
{
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = 5 * HOIST__MIB, .dev = dev};
	struct hoist__region *region = NULL;
	cr_assert_eq(hoist__region_create(&options, &region), 0, "%s", hoist__error_text());
	cr_assert(region->pinned);
	cr_assert_gt(region->step_ns[HOIST__STEP_PIN], 0);
	if (stand_in != NULL) {
		cr_assert_eq(counters().live_registrations, 1);
		cr_assert_eq(counters().live_registered_bytes, region->bytes);
	}
	memset((void *)region->base, 1, region->bytes);
	pid_t child = fork();
	if (child == 0) {
		/* What a driver pinned is not in a child's address space at all. */
		unsigned char resident[5 * 256];
		_exit(mincore((void *)region->base, region->bytes, resident) != 0 && errno == ENOMEM
			      ? 0
			      : 1);
	}
	int status = -1;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert_eq(status, 0);
	hoist__region_destroy(region);
	expect_nothing_left();
}

/* A driver refuses a copy across two registrations: a block may be of any size,
 * so its region is one.  Address space alone is enough to show it. */
Test(alloc_device, registers_in_one_piece_whatever_the_size)
{
	need_stand_in();
	size_t bytes = 4 * HOIST__GIB + HOIST__MIB;
	void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	cr_assert_neq(base, MAP_FAILED);
	cr_assert_eq(hoist__pin(dev, base, bytes), 0);
	cr_assert_eq(counters().live_registrations, 1);
	cr_assert_eq(counters().live_registered_bytes, bytes);
	hoist__unpin(dev, base, bytes);
	expect_nothing_left();
	cr_assert_eq(munmap(base, bytes), 0);
}

Test(alloc_device, blames_no_device_memory_for_what_cannot_be_pinned)
{
	need_stand_in();
	struct hoist__region_options options = {
		.kind = HOIST__MEMORY_PINNED, .bytes = HOIST__MIB, .dev = dev};
	struct hoist__region *region = NULL;
	make_fail("cuMemHostRegister:1");
	cr_assert_eq(hoist__region_create(&options, &region), -ENOMEM);
	const char *text = hoist__error_text();
	cr_assert(strstr(text, "page-locking 1048576 bytes") != NULL, "%s", text);
	cr_assert(strstr(text, "CUDA_ERROR_OUT_OF_MEMORY") != NULL, "%s", text);
	cr_assert(strstr(text, "device memory") == NULL, "%s", text);
	expect_nothing_left();
}

Test(alloc_device, hands_out_device_memory_exactly)
{
	struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_DEVICE, .dev = dev, .region_bytes = 8 * HOIST__MIB};
	struct hoist__pool *pool = NULL;
	struct hoist__pool_stats stats;
	struct hoist__block a, b, c;
	cr_assert_eq(hoist__pool_create(&options, &pool), 0);
	cr_assert_eq(hoist__pool_alloc(pool, 1000, 0, 0, &a), 0, "%s", hoist__error_text());
	cr_assert_eq(hoist__pool_alloc(pool, 1, 0, 0, &b), 0);
	cr_assert_eq(a.address % 256, 0);
	cr_assert_eq(b.address % 256, 0);
	cr_assert_eq(a.node, -1);
	hoist__pool_stats(pool, &stats);
	cr_assert_eq(stats.allocated_bytes, 1024 + 256);
	cr_assert_eq(stats.reserved_bytes, 8 * HOIST__MIB);
	/* Half a region or more: exact, but for the granule. */
	cr_assert_eq(hoist__pool_alloc(pool, 5 * HOIST__MIB + 1, 0, 0, &c), 0);
	hoist__pool_stats(pool, &stats);
	cr_assert_eq(stats.reserved_bytes, 13 * HOIST__MIB + 256);
	cr_assert_eq(hoist__pool_free(pool, c.address), 0);
	cr_assert_eq(hoist__pool_alloc(pool, 5 * HOIST__MIB, 2 * HOIST__MIB, 0, &c), 0);
	cr_assert_eq(c.address % (2 * HOIST__MIB), 0);
	cr_assert_eq(hoist__pool_free(pool, c.address), 0);
	cr_assert_eq(hoist__pool_free(pool, a.address), 0);
	cr_assert_eq(hoist__pool_free(pool, b.address), 0);
	hoist__pool_unref(pool);
	expect_nothing_left();
}

Test(alloc_device, says_how_much_device_memory_is_left)
{
	need_stand_in();
	struct hoist__pool_options options = {.kind = HOIST__MEMORY_DEVICE, .dev = dev};
	struct hoist__pool *pool = NULL;
	struct hoist__block block;
	cr_assert_eq(hoist__pool_create(&options, &pool), 0);
	cr_assert_eq(hoist__pool_alloc(pool, 2 * HOIST__GIB, 0, 0, &block), -ENOSPC);
	const char *text = hoist__error_text();
	cr_assert(strstr(text, "1024 of 1024 MiB are free") != NULL, "%s", text);
	hoist__pool_unref(pool);
	expect_nothing_left();
}

Test(alloc_device, makes_do_with_smaller_regions_when_the_device_is_nearly_full)
{
	need_stand_in();
	struct hoist__region_options most = {
		.kind = HOIST__MEMORY_DEVICE, .dev = dev, .bytes = HOIST__GIB - 8 * HOIST__MIB};
	struct hoist__region *region = NULL;
	struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_DEVICE, .dev = dev, .keep_bytes = 64 * HOIST__MIB};
	struct hoist__pool *pool = NULL;
	struct hoist__block a, b;
	cr_assert_eq(hoist__region_create(&most, &region), 0);
	cr_assert_eq(hoist__pool_create(&options, &pool), 0);
	/* Shared regions are 32 MiB, and 8 MiB are left. */
	cr_assert_eq(hoist__pool_alloc(pool, 6 * HOIST__MIB, 0, 0, &a), 0, "%s",
		     hoist__error_text());
	cr_assert_eq(hoist__pool_free(pool, a.address), 0);
	/* The 6 MiB that are kept make room for what they are too small for. */
	cr_assert_eq(hoist__pool_alloc(pool, 7 * HOIST__MIB, 0, 0, &b), 0, "%s",
		     hoist__error_text());
	cr_assert_eq(hoist__pool_free(pool, b.address), 0);
	hoist__pool_unref(pool);
	hoist__region_destroy(region);
	expect_nothing_left();
}

/* Two blocks of one kind, freed again.  Returns the first failure. */
static int use_pool(enum hoist__memory_kind kind)
{
	struct hoist__pool_options options = {.kind = kind, .dev = dev, .region_bytes = HOIST__MIB};
	struct hoist__pool *pool = NULL;
	struct hoist__block small, large;
	cr_assert_eq(hoist__pool_create(&options, &pool), 0);
	int err = hoist__pool_alloc(pool, 1000, 0, 0, &small);
	if (err == 0) {
		err = hoist__pool_alloc(pool, 2 * HOIST__MIB, 0, 0, &large);
		if (err == 0)
			cr_assert_eq(hoist__pool_free(pool, large.address), 0);
		cr_assert_eq(hoist__pool_free(pool, small.address), 0);
	}
	hoist__pool_unref(pool);
	return err;
}

static void sweep(enum hoist__memory_kind kind)
{
	unsigned n_failures = 0;
	cr_assert_eq(use_pool(kind), 0, "%s", hoist__error_text());
	for (int n = 1;; n++) {
		char spec[32];
		(void)snprintf(spec, sizeof spec, "any:%d", n);
		make_fail(spec);
		uint64_t before = counters().injected_failures;
		int err = use_pool(kind);
		bool injected = counters().injected_failures != before;
		make_fail("");
		expect_nothing_left();
		n_failures += err != 0;
		if (!injected) {
			cr_assert_eq(err, 0);
			cr_assert_gt(n, 2);
			break;
		}
	}
	cr_assert_gt(n_failures, 0);
}

Test(alloc_device, leaves_nothing_behind_whatever_driver_call_fails)
{
	need_stand_in();
	sweep(HOIST__MEMORY_PINNED);
	sweep(HOIST__MEMORY_DEVICE);
}
