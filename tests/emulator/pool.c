/* SPDX-License-Identifier: MIT */
/* The stand-in's pools: the stream that gets freed memory, and the moment; the limits and the
 * memory kept; the reports about use out of order.  Managed memory too. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/emulator-driver.h"

#define MIB ((size_t)1 << 20)

enum {
	INVALID = HOIST__CU_ERROR_INVALID_VALUE,
	FULL = HOIST__CU_ERROR_OUT_OF_MEMORY,
	ILLEGAL = HOIST__CU_ERROR_ILLEGAL_ADDRESS,
};

static struct cuda cu;
static hoist__cu_stream stream[2];
static hoist__cu_pool pool;

static hoist__cu_pool make_pool(size_t max_bytes)
{
	const struct hoist__cu_pool_props props = {
		.type = HOIST__CU_ALLOCATION_PINNED,
		.location_type = HOIST__CU_LOCATION_DEVICE,
		.max_bytes = max_bytes,
	};
	uint64_t keep = UINT64_MAX;
	hoist__cu_pool made = NULL;
	cr_assert(cu.cuMemPoolCreate(&made, &props) == 0);
	cr_assert(cu.cuMemPoolSetAttribute(made, HOIST__CU_POOL_THRESHOLD, &keep) == 0);
	return made;
}

static void start(void)
{
	cuda_start(&cu, "cuda:1", 0);
	cu.control.set_memory(64 * MIB);
	cr_assert(cu.cuStreamCreate(&stream[0], 1) == 0);
	cr_assert(cu.cuStreamCreate(&stream[1], 1) == 0);
	pool = make_pool(0);
}

static void stop(void)
{
	cu.control.hold(0);
	(void)cu.cuStreamSynchronize(stream[0]);
	(void)cu.cuStreamSynchronize(stream[1]);
	cr_expect(cu.cuMemPoolDestroy(pool) == 0);
	cr_expect(cu.cuStreamDestroy(stream[0]) == 0);
	cr_expect(cu.cuStreamDestroy(stream[1]) == 0);
	struct hoist_emulator_counters count = counters_of(&cu.control);
	cr_expect(count.live_allocations + count.live_bytes + count.live_pools == 0);
}

static hoist__cu_device_ptr take(size_t bytes, hoist__cu_stream from)
{
	hoist__cu_device_ptr memory = 0;
	cr_assert(cu.cuMemAllocFromPoolAsync(&memory, bytes, pool, from) == 0);
	return memory;
}

static void give(hoist__cu_device_ptr memory, hoist__cu_stream to)
{
	cr_assert(cu.cuMemFreeAsync(memory, to) == 0);
}

static uint64_t value_of(hoist__cu_pool_attribute attribute)
{
	uint64_t value = 0;
	cr_assert(cu.cuMemPoolGetAttribute(pool, attribute, &value) == 0);
	return value;
}

Test(emulator_pool, a_capture_makes_nodes_of_its_graph, .init = start, .fini = stop)
{
	hoist__cu_device_ptr none = 77;
	hoist__cu_device_ptr block = take(MIB, stream[0]);
	cr_assert(cu.control.capture(stream[0], 1) == 0);
	uint64_t used = value_of(HOIST__CU_POOL_USED_CURRENT);
	uint64_t reserved = value_of(HOIST__CU_POOL_RESERVED_CURRENT);
	hoist__cu_device_ptr node = take(MIB, stream[0]);
	cr_expect(value_of(HOIST__CU_POOL_USED_CURRENT) == used, "it is the graph's");
	cr_expect(value_of(HOIST__CU_POOL_RESERVED_CURRENT) == reserved);
	cr_expect(cu.cuMemAllocFromPoolAsync(&none, MIB, NULL, stream[0]) == INVALID);
	cr_expect(none == 77);
	cr_expect(cu.cuMemFreeAsync(node, stream[1]) == INVALID, "no other stream's");
	cr_expect(cu.cuMemFreeAsync(block, stream[0]) == INVALID, "nor the pool's in the graph");
	cr_expect(counters_of(&cu.control).bad_frees == 2);
	give(node, stream[0]);
	cr_expect(cu.control.capture(stream[0], 0) == 0, "whole");
	give(block, stream[0]);
}

static void forbid(hoist__cu_pool_attribute flag)
{
	int no = 0;
	cr_assert(cu.cuMemPoolSetAttribute(pool, flag, &no) == 0);
}

static uint64_t caught(void)
{
	return counters_of(&cu.control).use_after_free;
}

Test(emulator_pool, a_stream_takes_its_freed_block_again_without_waiting, .init = start)
{
	cu.control.hold(1);
	hoist__cu_device_ptr first = take(MIB, stream[0]);
	cr_expect(cu.cuMemsetD8Async(first, 1, MIB, stream[0]) == 0);
	give(first, stream[0]);
	cr_expect(take(MIB, stream[0]) == first);
	cr_expect(cu.cuMemsetD8Async(first, 2, MIB, stream[0]) == 0);
	give(first, stream[0]);
	hoist__cu_device_ptr other = take(MIB, stream[1]);
	cr_expect(other != first, "another stream is not behind it");
	give(other, stream[1]);
	cr_expect(value_of(HOIST__CU_POOL_RESERVED_CURRENT) == 2 * MIB);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(caught() == 0);
	stop();
}

Test(emulator_pool, names_the_devices_that_may_access_it, .init = start)
{
	struct hoist__cu_access access = {{HOIST__CU_LOCATION_DEVICE, 0},
					  HOIST__CU_ACCESS_READ_WRITE};
	hoist__cu_access_flags flags = 77;
	cr_expect(cu.cuMemPoolGetAccess(&flags, pool, &access.location) == 0);
	cr_expect(flags == HOIST__CU_ACCESS_READ_WRITE);
	cr_expect(cu.cuMemPoolSetAccess(pool, &access, 1) == 0);
	access.flags = HOIST__CU_ACCESS_NONE;
	cr_expect(cu.cuMemPoolSetAccess(pool, &access, 1) == INVALID, "its own device's stays");
	access.flags = HOIST__CU_ACCESS_READ;
	cr_expect(cu.cuMemPoolSetAccess(pool, &access, 1) == INVALID, "all or nothing");
	cr_expect(cu.cuMemPoolSetAccess(pool, &access, 0) == INVALID);
	cr_expect(cu.cuMemPoolSetAccess(pool, NULL, 1) == INVALID);
	cr_expect(cu.cuMemPoolSetAccess(NULL, &access, 1) == INVALID);
	access.location.type = 0;
	cr_expect(cu.cuMemPoolSetAccess(pool, &access, 1) == INVALID);
	cr_expect(cu.cuMemPoolGetAccess(&flags, pool, &access.location) == INVALID);
	access.location = (struct hoist__cu_location){HOIST__CU_LOCATION_DEVICE, 1};
	cr_expect(cu.cuMemPoolSetAccess(pool, &access, 1) == HOIST__CU_ERROR_INVALID_DEVICE);
	cr_expect(cu.cuMemPoolGetAccess(&flags, pool, &access.location) ==
		  HOIST__CU_ERROR_INVALID_DEVICE);
	cr_expect(flags == HOIST__CU_ACCESS_READ_WRITE);
	stop();
}

Test(emulator_pool, others_take_it_when_it_has_passed, .init = start)
{
	hoist__cu_device_ptr first = take(MIB, stream[0]);
	give(first, stream[0]);
	cr_assert(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(take(MIB, stream[1]) == first);
	give(first, stream[1]);
	cr_assert(cu.cuStreamSynchronize(stream[1]) == 0);
	forbid(HOIST__CU_POOL_OPPORTUNISTIC);
	hoist__cu_device_ptr second = take(MIB, stream[0]);
	cr_expect(second != first, "unless the pool may not");
	give(second, stream[0]);
	stop();
}

Test(emulator_pool, where_nothing_is_left_the_stream_is_made_to_wait, .init = start)
{
	hoist__cu_device_ptr all = take(40 * MIB, stream[0]);
	hoist__cu_device_ptr none = 0;
	cu.control.hold(1);
	cr_expect(cu.cuMemsetD8Async(all, 1, MIB, stream[0]) == 0);
	give(all, stream[0]);
	hoist__cu_device_ptr again = take(30 * MIB, stream[1]);
	cr_expect(again == all);
	cr_expect(cu.cuMemsetD8Async(again, 2, MIB, stream[1]) == 0);
	give(again, stream[1]);
	forbid(HOIST__CU_POOL_DEPENDENCIES);
	cr_expect(cu.cuMemAllocFromPoolAsync(&none, 30 * MIB, pool, stream[0]) == FULL);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream[1]) == 0);
	cr_expect(cu.cuStreamQuery(stream[0]) == 0, "the second was behind the first");
	cr_expect(caught() == 0);
	stop();
}

Test(emulator_pool, its_reserve_makes_room_for_other_sizes, .init = start)
{
	for (size_t i = 1; i <= 32; i++) {
		hoist__cu_device_ptr memory = take(i * 2 * MIB, stream[0]);
		give(memory, stream[0]);
		cr_assert(cu.cuStreamSynchronize(stream[0]) == 0);
	}
	cr_expect(value_of(HOIST__CU_POOL_RESERVED_CURRENT) <= 64 * MIB);
	cr_expect(value_of(HOIST__CU_POOL_USED_HIGH) == 64 * MIB);
	stop();
}

Test(emulator_pool, limits_hold, .init = start)
{
	hoist__cu_device_ptr memory = 0;
	hoist__cu_pool small = make_pool(MIB);
	cr_expect(cu.cuMemAllocFromPoolAsync(&memory, MIB + 1, small, stream[0]) == FULL);
	cr_expect(cu.cuMemAllocFromPoolAsync(&memory, MIB, small, stream[0]) == 0);
	hoist__cu_device_ptr more = 0;
	cr_expect(cu.cuMemAllocFromPoolAsync(&more, 1, small, stream[0]) == FULL);
	give(memory, stream[0]);
	cr_expect(cu.cuMemAllocFromPoolAsync(&more, 1, small, stream[0]) == 0);
	give(more, stream[0]);
	cr_expect(cu.cuMemPoolDestroy(small) == 0);
	cr_expect(cu.cuMemAllocFromPoolAsync(&more, 1, small, stream[0]) == INVALID);
	cr_expect(cu.cuMemPoolDestroy(small) == INVALID);
	cr_expect(cu.cuMemAllocFromPoolAsync(&more, 65 * MIB, pool, stream[0]) == FULL);
	cr_expect(cu.cuMemAllocFromPoolAsync(&more, 0, pool, stream[0]) == INVALID);
	stop();
}

Test(emulator_pool, trimming_gives_back_blocks_that_have_passed, .init = start)
{
	hoist__cu_device_ptr memory[3];
	for (int i = 0; i < 3; i++)
		memory[i] = take(MIB, stream[0]);
	cu.control.hold(1);
	give(memory[0], stream[0]);
	cr_expect(cu.cuMemPoolTrimTo(pool, 0) == 0);
	cr_expect(value_of(HOIST__CU_POOL_RESERVED_CURRENT) == 3 * MIB, "not passed yet");
	cu.control.hold(0);
	give(memory[1], stream[0]);
	cr_assert(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(cu.cuMemPoolTrimTo(pool, 2 * MIB) == 0);
	cr_expect(value_of(HOIST__CU_POOL_RESERVED_CURRENT) == 2 * MIB, "no more than asked");
	cr_expect(cu.cuMemPoolTrimTo(pool, 0) == 0);
	cr_expect(value_of(HOIST__CU_POOL_RESERVED_CURRENT) == MIB, "one is in use");
	cr_expect(value_of(HOIST__CU_POOL_RESERVED_HIGH) == 3 * MIB);
	uint64_t zero = 0;
	cr_expect(cu.cuMemPoolSetAttribute(pool, HOIST__CU_POOL_RESERVED_HIGH, &zero) == 0);
	cr_expect(value_of(HOIST__CU_POOL_RESERVED_HIGH) == MIB);
	cr_expect(cu.cuMemPoolSetAttribute(pool, HOIST__CU_POOL_USED_CURRENT, &zero) == INVALID);
	give(memory[2], stream[0]);
	stop();
}

Test(emulator_pool, a_destroyed_pool_ends_with_its_last_free, .init = start)
{
	cu.control.hold(1);
	hoist__cu_device_ptr memory = take(MIB, stream[0]);
	hoist__cu_device_ptr kept = take(MIB, stream[0]);
	give(memory, stream[0]);
	cr_expect(cu.cuMemPoolDestroy(pool) == 0);
	cr_expect(counters_of(&cu.control).live_bytes == 2 * MIB);
	cu.control.hold(0);
	cr_assert(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(counters_of(&cu.control).live_bytes == MIB);
	give(kept, stream[0]);
	cr_assert(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(counters_of(&cu.control).live_bytes == 0);
	pool = make_pool(0);
	stop();
}

Test(emulator_pool, a_devices_own_pool_keeps_nothing, .init = start)
{
	hoist__cu_pool own = NULL;
	hoist__cu_device_ptr memory = 0;
	cr_assert(cu.cuDeviceGetMemPool(&own, 0) == 0);
	cr_expect(cu.cuDeviceGetMemPool(&own, 1) == HOIST__CU_ERROR_INVALID_DEVICE);
	cr_expect(cu.cuMemAllocFromPoolAsync(&memory, MIB, own, stream[0]) == 0);
	give(memory, stream[0]);
	cr_assert(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(counters_of(&cu.control).live_bytes == 0);
	cr_expect(cu.cuMemPoolDestroy(own) == INVALID);
	stop();
}

static void wait_until(void *true_then)
{
	while (!*(atomic_bool *)true_then)
		(void)usleep(1000);
}

Test(emulator_pool, work_that_is_not_ordered_before_the_free_is_caught, .init = start)
{
	hoist__cu_device_ptr memory = take(MIB, stream[0]);
	atomic_bool freed = false;
	cr_expect(cu.cuLaunchHostFunc(stream[1], wait_until, &freed) == 0);
	cr_expect(cu.cuMemsetD8Async(memory, 1, MIB, stream[1]) == 0);
	give(memory, stream[0]);
	cr_expect(cu.cuMemsetD8Async(memory, 1, MIB, stream[0]) == INVALID, "it is not there");
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(caught() == 1);
	freed = true;
	cr_expect(cu.cuStreamSynchronize(stream[1]) == ILLEGAL);
	cu.control.reset();
	stop();
}

Test(emulator_pool, a_plain_free_waits_for_nobody, .init = start)
{
	hoist__cu_device_ptr memory = take(MIB, stream[0]);
	cr_expect(cu.cuMemFree(memory) == 0);
	cr_expect(cu.cuMemFree(memory) == INVALID);
	cr_expect(cu.cuMemFreeAsync(memory, stream[0]) == INVALID);
	cr_expect(take(MIB, stream[1]) == memory, "at once");
	cu.control.hold(1);
	cr_expect(cu.cuMemsetD8Async(memory, 1, MIB, stream[1]) == 0);
	cr_expect(cu.cuMemFree(memory) == ILLEGAL);
	cr_expect(caught() == 1);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream[1]) == ILLEGAL);
	stop();
}

/* The user frees twice out of order; the stand-in must survive that. */
Test(emulator_pool, releases_that_pass_out_of_order_harm_nobody, .init = start)
{
	cu.control.hold(1);
	hoist__cu_device_ptr memory = take(MIB, stream[0]);
	cr_expect(cu.cuMemsetD8Async(memory, 1, MIB, stream[0]) == 0);
	give(memory, stream[0]);
	cr_expect(take(MIB, stream[0]) == memory);
	cr_expect(cu.cuMemFree(memory) == 0);
	cr_expect(cu.cuMemPoolDestroy(pool) == 0);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(counters_of(&cu.control).live_bytes == 0);
	pool = make_pool(0);
	stop();
}

Test(emulator_pool, a_failed_stream_frees_too, .init = start)
{
	hoist__cu_device_ptr memory = take(MIB, stream[0]);
	static char bytes[8];
	cr_assert(cu.control.fail("async:1") == 0);
	cr_expect(cu.cuMemcpyHtoDAsync(memory, bytes, sizeof bytes, stream[0]) == ILLEGAL);
	cr_expect(cu.cuMemFreeAsync(memory, stream[0]) == ILLEGAL, "done, and the failure told");
	hoist__cu_device_ptr none = 0;
	cr_expect(cu.cuMemAllocFromPoolAsync(&none, MIB, pool, stream[0]) == ILLEGAL);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == ILLEGAL);
	stop();
}

/* --- managed memory --- */

Test(emulator_pool, managed_memory_is_the_hosts_too, .init = start)
{
	hoist__cu_device_ptr managed = 0;
	hoist__cu_device_ptr memory = take(MIB, stream[0]);
	cr_assert(cu.cuMemAllocManaged(&managed, MIB, HOIST__CU_ATTACH_GLOBAL) == 0);
	cr_expect(cu.cuMemAllocManaged(&managed, MIB, 77) == INVALID);
	cr_expect(cu.cuMemAllocManaged(&managed, 0, HOIST__CU_ATTACH_GLOBAL) == INVALID);
	unsigned char *bytes = (unsigned char *)(uintptr_t)managed;
	memset(bytes, 5, MIB);
	cr_expect(cu.cuMemcpyDtoDAsync(memory, managed, MIB, stream[0]) == 0);
	cr_expect(cu.cuMemsetD8Async(managed, 6, MIB, stream[0]) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(bytes + MIB / 2, memory, MIB / 2, stream[0]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0);
	cr_expect(bytes[0] == 6 && bytes[MIB / 2] == 5 && bytes[MIB - 1] == 5);
	cr_expect(counters_of(&cu.control).pageable_copies == 0);
	cr_expect(counters_of(&cu.control).live_registrations == 0);
	cr_expect(cu.cuMemHostUnregister(bytes) == HOIST__CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
	cr_expect(cu.cuMemFree(managed + 1) == INVALID, "not its start");
	give(memory, stream[0]);
	cu.control.hold(1);
	cr_expect(cu.cuMemsetD8Async(managed, 7, MIB, stream[0]) == 0);
	cr_expect(cu.cuMemFree(managed) == ILLEGAL, "in use");
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == ILLEGAL);
	cr_expect(cu.cuMemAllocManaged(&managed, 65 * MIB, HOIST__CU_ATTACH_GLOBAL) == FULL);
	stop();
}
