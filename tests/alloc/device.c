/* SPDX-License-Identifier: MIT */
/* Pools of pinned and device memory: on an emulated device, and on a real one where
 * HOIST_TEST_DEVICE says cuda or hip. */
#include "config.h"

#include "tests/support/alloc-device.h"

TestSuite(alloc_device, .init = open_device);

Test(alloc_device, hands_out_device_memory_exactly)
{
	struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_DEVICE, .dev = dev, .region_bytes = 8 * HOIST__MIB};
	struct hoist__pool_stats stats;
	struct hoist__block found;
	uintptr_t a, b, c;
	struct hoist__pool *pool = make_pool(&options);
	OK(hoist__pool_alloc(pool, 1000, 0, 0, &a));
	OK(hoist__pool_alloc(pool, 1, 0, 0, &b));
	cr_assert_eq(a % 256, 0);
	cr_assert_eq(b % 256, 0);
	OK(hoist__pool_find(pool, a + 999, &found));
	cr_assert_eq(found.address, a);
	cr_assert_eq(found.node, -1);
	hoist__pool_stats(pool, &stats);
	cr_assert_eq(stats.allocated_bytes, 1024 + 256);
	cr_assert_eq(stats.reserved_bytes, 8 * HOIST__MIB);
	/* Half a region or more: exact, but for the granule. */
	OK(hoist__pool_alloc(pool, 5 * HOIST__MIB + 1, 0, 0, &c));
	hoist__pool_stats(pool, &stats);
	cr_assert_eq(stats.reserved_bytes, 13 * HOIST__MIB + 64 * HOIST__KIB);
	give(pool, c);
	OK(hoist__pool_alloc(pool, 5 * HOIST__MIB, 2 * HOIST__MIB, 0, &c));
	cr_assert_eq(c % (2 * HOIST__MIB), 0);
	give(pool, c);
	give(pool, a);
	give(pool, b);
	hoist__pool_unref(pool);
	expect_nothing_left();
}

/* Small, of a span, and of a region of its own: the same stream has it again at once, that is,
 * while nothing of it passes. */
Test(alloc_device, gives_a_stream_its_blocks_again_whatever_their_size)
{
	need_stand_in();
	struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_DEVICE, .dev = dev, .region_bytes = 8 * HOIST__MIB};
	const size_t sizes[] = {1000, HOIST__MIB + 1, 4 * HOIST__MIB, 20 * HOIST__MIB + 1};
	struct hoist__dev_stream *stream = NULL;
	uintptr_t a, b = 77;
	struct hoist__pool *pool = make_pool(&options);
	OK(hoist__dev_stream_create(dev, &stream));
	control.hold(1);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		OK(hoist__pool_alloc_on(pool, sizes[i], 0, stream, &a));
		OK(hoist__pool_free_on(pool, a, stream));
		/* A pool refuses what no pool gives, also with a fitting block at hand. */
		cr_assert_eq(hoist__pool_alloc_on(pool, sizes[i], 4 * HOIST__MIB, stream, &b),
			     -EINVAL);
		cr_assert_eq(hoist__pool_alloc_on(pool, SIZE_MAX - 1, 0, stream, &b), -ENOSPC);
		cr_assert_eq(b, 77);
		OK(hoist__pool_alloc_on(pool, sizes[i], 0, stream, &b));
		cr_assert_eq(a, b, "%zu bytes", sizes[i]);
		OK(hoist__pool_free_on(pool, b, stream));
		b = 77;
	}
	control.hold(0);
	hoist__pool_unref(pool);
	hoist__dev_stream_destroy(stream);
	expect_nothing_left();
}

Test(alloc_device, says_how_much_device_memory_is_left)
{
	need_stand_in();
	struct hoist__pool_options options = {.kind = HOIST__MEMORY_DEVICE, .dev = dev};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t block;
	cr_assert_eq(hoist__pool_alloc(pool, 2 * HOIST__GIB, 0, 0, &block), -ENOSPC);
	SAYS("1024 of 1024 MiB are free");
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
	uintptr_t a, b;
	cr_assert_eq(hoist__region_create(&most, &region), 0);
	struct hoist__pool *pool = make_pool(&options);
	/* Shared regions are 32 MiB, and 8 MiB are left. */
	OK(hoist__pool_alloc(pool, 6 * HOIST__MIB, 0, 0, &a));
	give(pool, a);
	/* The 6 MiB that are kept make room for what they are too small for. */
	OK(hoist__pool_alloc(pool, 7 * HOIST__MIB, 0, 0, &b));
	give(pool, b);
	hoist__pool_unref(pool);
	hoist__region_destroy(region);
	expect_nothing_left();
}

/* Drivers refuse a copy from one registration into the next. */
Test(alloc_device, a_block_lies_within_one_registration)
{
	need_stand_in();
	struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_PINNED, .dev = dev, .region_bytes = 192 * HOIST__MIB};
	struct hoist__block block;
	uintptr_t blocks[3], large;
	control.set_register_most(64 * HOIST__MIB);
	struct hoist__pool *pool = make_pool(&options);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(blocks); i++) {
		OK(hoist__pool_alloc(pool, 40 * HOIST__MIB, 0, 0, &blocks[i]));
		OK(hoist__pool_find(pool, blocks[i], &block));
		size_t at = blocks[i] - block.region->base;
		size_t piece = block.region->piece_bytes;
		cr_assert_eq(piece, 64 * HOIST__MIB);
		cr_assert_eq(at / piece, (at + block.bytes - 1) / piece);
	}
	cr_assert_eq(counters().live_registrations, 3, "all of one region");
	/* A block that no registration can hold is not made of two. */
	cr_assert_eq(hoist__pool_alloc(pool, 65 * HOIST__MIB, 0, 0, &large), -ENOMEM);
	OK(hoist__pool_alloc(pool, 64 * HOIST__MIB, 0, 0, &large));
	give(pool, large);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(blocks); i++)
		give(pool, blocks[i]);
	hoist__pool_unref(pool);
	expect_nothing_left();
}

/* Two blocks of one kind, freed again.  Returns the first failure. */
static int use_pool(enum hoist__memory_kind kind)
{
	struct hoist__pool_options options = {.kind = kind, .dev = dev, .region_bytes = HOIST__MIB};
	uintptr_t small, large;
	struct hoist__pool *pool = make_pool(&options);
	int err = hoist__pool_alloc(pool, 1000, 0, 0, &small);
	if (err == 0) {
		err = hoist__pool_alloc(pool, 2 * HOIST__MIB, 0, 0, &large);
		if (err == 0)
			give(pool, large);
		give(pool, small);
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
