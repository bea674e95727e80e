/* SPDX-License-Identifier: MIT */
/* Rows and calls in the stand-in drivers: what is done late, what is refused, what is counted. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/emulator-driver.h"

#define MIB ((size_t)1 << 20)

enum { INVALID = 1, ILLEGAL = HOIST__CU_ERROR_ILLEGAL_ADDRESS, NOT_PERMITTED = 800 };

static struct cuda cu;
static struct hip hip;
static unsigned char *host; /* 4 MiB, of which the second is registered */
static unsigned char *pinned;
static hoist__cu_device_ptr device; /* 1 MiB */
static hoist__cu_stream stream;

static void map_host(void)
{
	host = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert(host != MAP_FAILED);
	pinned = host + MIB;
}

static void start(void)
{
	cuda_start(&cu, "cuda:2", 0);
	map_host();
	cr_assert(cu.cuMemHostRegister(pinned, MIB, 1) == 0);
	cr_assert(cu.cuMemAlloc(&device, MIB) == 0);
	cr_assert(cu.cuStreamCreate(&stream, 1) == 0);
}

static struct hoist_emulator_counters count(void)
{
	return counters_of(&cu.control);
}

/* Rows of 100 bytes every 200, from host memory to the device's. */
static struct hoist__cu_copy_3d rows_of(const void *src, hoist__cu_device_ptr dst, size_t rows,
					size_t planes)
{
	return (struct hoist__cu_copy_3d){
		.src_type = HOIST__CU_MEMORY_HOST,
		.src_host = src,
		.src_pitch = 200,
		.src_height = rows,
		.dst_type = HOIST__CU_MEMORY_DEVICE,
		.dst_device = dst,
		.dst_pitch = 200,
		.dst_height = rows,
		.width = 100,
		.height = rows,
		.depth = planes,
	};
}

static unsigned copy(const struct hoist__cu_copy_3d *what)
{
	return cu.cuMemcpy3DAsync(what, stream);
}

Test(emulator_rows, are_copied_late_and_counted, .init = start)
{
	struct hoist__cu_copy_3d what = rows_of(pinned, device, 50, 20);
	memset(pinned, 'a', MIB);
	cu.control.hold(1);
	cr_expect(copy(&what) == 0);
	memset(pinned, 'b', MIB);
	cu.control.hold(0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, device, 100, stream) == 0);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(host[0] == 'b' && host[99] == 'b', "the source was changed too early");
	cr_expect(count().host_to_device_bytes == 100000);
	cr_expect(count().copies == 2 && count().pageable_copies == 1);
	cr_expect(count().bad_copies == 0);
}

/* Where the last byte of the last row is one too far, on either side. */
Test(emulator_rows, must_lie_in_one_allocation, .init = start)
{
	struct hoist__cu_copy_3d what = rows_of(pinned, device, 10, 10);
	what.dst_device = device + MIB - (99 * 200 + 100);
	cr_expect(copy(&what) == 0);
	what.dst_device++;
	cr_expect(copy(&what) == INVALID);
	what.dst_device = device;
	what.src_host = pinned + MIB - (99 * 200 + 100);
	cr_expect(copy(&what) == 0);
	what.src_host = pinned + MIB - (99 * 200 + 100) + 1;
	cr_expect(copy(&what) == INVALID, "it runs out of the registration");
	what.src_host = pinned - 50;
	cr_expect(copy(&what) == INVALID, "it runs into the registration");
	what.src_host = host;
	what.dst_type = HOIST__CU_MEMORY_DEVICE;
	what.dst_device = (hoist__cu_device_ptr)(uintptr_t)(pinned + MIB);
	cr_expect(copy(&what) == INVALID, "host memory is no device's");
	cr_expect(count().bad_copies == 4);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(count().host_to_device_bytes == 20000, "what was refused was not done");
}

Test(emulator_rows, from_pageable_memory_are_waited_for, .init = start)
{
	struct hoist__cu_copy_3d what = rows_of(host, device, 10, 10);
	cr_expect(copy(&what) == 0);
	cr_expect(cu.cuStreamQuery(stream) == 0, "the driver has waited");
	cr_expect(count().pageable_copies == 1 && count().pageable_bytes == 10000);
}

Test(emulator_rows, that_make_no_sense_are_refused, .init = start)
{
	const struct hoist__cu_copy_3d good = rows_of(pinned, device, 10, 10);
	struct hoist__cu_copy_3d what = good;
	what.src_pitch = 99;
	cr_expect(copy(&what) == INVALID, "rows overlap");
	what = good;
	what.dst_height = 9;
	cr_expect(copy(&what) == INVALID, "planes overlap");
	what = good;
	what.dst_pitch = (size_t)1 << 31;
	cr_expect(copy(&what) == INVALID, "above the device's greatest pitch");
	what.height = what.depth = 1;
	cr_expect(copy(&what) == INVALID, "of one row, too");
	what = good;
	what.src_pitch = 99;
	what.height = what.depth = 1;
	cr_expect(copy(&what) == INVALID, "less than the width of one row");
	what = good;
	what.src_x = 1;
	cr_expect(copy(&what) == INVALID);
	what = good;
	what.dst_type = 77;
	cr_expect(copy(&what) == INVALID);
	cr_expect(cu.cuMemcpy3DAsync(NULL, stream) == INVALID);
	cr_expect(cu.cuMemcpy2DAsync(NULL, stream) == INVALID);
	what = good;
	what.width = 0;
	cr_expect(copy(&what) == 0, "nothing is no error");
	cr_expect(count().copies == 0);
	cr_expect(copy(&good) == 0);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
}

Test(emulator_rows, under_which_memory_is_freed_are_noticed, .init = start)
{
	struct hoist__cu_copy_3d what = rows_of(pinned, device, 10, 10);
	cu.control.hold(1);
	cr_expect(copy(&what) == 0);
	cr_expect(cu.cuMemFree(device) == ILLEGAL);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream) == ILLEGAL);
	cr_expect(count().use_after_free == 1);
}

Test(emulator_rows, under_which_memory_is_unmapped_are_noticed, .init = start)
{
	struct hoist__cu_copy_3d what = rows_of(pinned, device, 10, 10);
	cu.control.hold(1);
	cr_expect(copy(&what) == 0);
	cr_expect(munmap(pinned, 8192) == 0);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream) == ILLEGAL);
	cr_expect(count().use_after_free == 1);
}

/* The gaps between rows need no memory. */
Test(emulator_rows, may_have_holes_between_them, .init = start)
{
	unsigned char *far = host + 2 * MIB;
	struct hoist__cu_copy_3d what = rows_of(far, device, 2, 1);
	memset(far, 'x', 100);
	memset(far + MIB, 'y', 100);
	what.src_pitch = MIB;
	cr_assert(munmap(far + 8192, 8192) == 0);
	cr_expect(copy(&what) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, device + 200, 100, stream) == 0);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(host[0] == 'y' && host[99] == 'y');
	cr_expect(count().use_after_free == 0);
}

/* The engine is paid for the bytes of rows, not for what lies between. */
Test(emulator_rows, take_the_engine_for_their_bytes, .init = start)
{
	struct hoist__cu_copy_3d what = rows_of(pinned, device, 50, 20);
	cu.control.set_rate(10000000);
	cr_expect(copy(&what) == 0);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(count().engine_busy_ns == 10000000, "%llu",
		  (unsigned long long)count().engine_busy_ns);
}

Test(emulator_rows, can_fail_late, .init = start)
{
	struct hoist__cu_copy_3d what = rows_of(pinned, device, 10, 10);
	cr_assert(cu.control.fail("async:1") == 0);
	cr_expect(copy(&what) == 0);
	cr_expect(cu.cuStreamSynchronize(stream) == ILLEGAL);
}

/* --- calls --- */

static int called;

static void call(void *argument)
{
	called += *(int *)argument;
}

Test(emulator_rows, calls_come_late_and_on_another_thread, .init = start)
{
	int one = 1;
	cu.control.hold(1);
	cr_expect(cu.cuLaunchHostFunc(stream, call, &one) == 0);
	usleep(2000);
	cr_expect(called == 0);
	cr_expect(cu.cuStreamQuery(stream) == HOIST__CU_ERROR_NOT_READY);
	one = 5;
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(called == 5);
	cr_expect(count().host_calls == 1);
	cr_expect(cu.cuLaunchHostFunc(stream, NULL, &one) == INVALID);
}

Test(emulator_rows, calls_have_a_latency, .init = start)
{
	struct timespec before;
	struct timespec after;
	int one = 1;
	cu.control.set_latency(30000, 30000);
	cr_assert(clock_gettime(CLOCK_MONOTONIC, &before) == 0);
	cr_expect(cu.cuLaunchHostFunc(stream, call, &one) == 0);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
	cr_assert(clock_gettime(CLOCK_MONOTONIC, &after) == 0);
	cr_expect((after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec >=
		  30000000);
}

Test(emulator_rows, calls_behind_a_failure_do_not_come, .init = start)
{
	int one = 1;
	cr_assert(cu.control.fail("async:1") == 0);
	cu.control.hold(1); /* both are queued before the first one fails */
	cr_expect(cu.cuMemcpyHtoDAsync(device, pinned, 8, stream) == 0);
	cr_expect(cu.cuLaunchHostFunc(stream, call, &one) == 0);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream) == ILLEGAL);
	cr_expect(called == 0 && count().host_calls == 0);
}

static unsigned said;

static void call_the_driver(void *argument)
{
	said = cu.cuStreamQuery(argument);
}

Test(emulator_rows, calls_must_not_call_the_driver, .init = start)
{
	cr_expect(cu.cuLaunchHostFunc(stream, call_the_driver, stream) == 0);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(said == NOT_PERMITTED);
	cr_expect(count().bad_calls == 1);
	cr_expect(cu.cuStreamQuery(stream) == 0, "others may");
}

/* --- HIP --- */

Test(emulator_rows, hips_rows_and_calls_work_alike)
{
	void *memory = NULL;
	void *seen = NULL;
	hoist__hip_stream own = NULL;
	hip_open(&hip, "hip:1");
	map_host();
	cr_assert(hip.hipHostRegister(pinned, MIB, 2) == 0);
	cr_assert(hip.hipMalloc(&memory, MIB) == 0);
	cr_assert(hip.hipStreamCreateWithFlags(&own, 1) == 0);
	cr_assert(hip.hipHostGetDevicePointer(&seen, pinned, 0) == 0);
	cr_assert(seen != (void *)pinned, "kernels see it elsewhere");
	memset(pinned, 'x', MIB);
	struct hoist__hip_copy_3d what = {
		.src = {.address = seen, .pitch = 200, .width = 100, .height = 10},
		.dst = {.address = memory, .pitch = 100, .width = 100, .height = 10},
		.width = 100,
		.height = 10,
		.depth = 10,
		.kind = HOIST__HIP_COPY_HOST_TO_DEVICE,
	};
	cr_expect(hip.hipMemcpy3DAsync(&what, own) == 0);
	what.depth = 1000;
	cr_expect(hip.hipMemcpy3DAsync(&what, own) == INVALID);
	cr_expect(hip.hipGetLastError() == INVALID);
	what.depth = 10;
	what.src_position[1] = 1;
	cr_expect(hip.hipMemcpy3DAsync(&what, own) == INVALID);
	what.src_position[1] = 0;
	/* Planes of 20 rows, of which 10 are copied: the last one ends with the allocation. */
	what.dst.height = 20;
	what.dst.address = (void *)((uintptr_t)memory + MIB - (9 * 20 + 10) * 100);
	cr_expect(hip.hipMemcpy3DAsync(&what, own) == INVALID, "its last plane is not whole");
	what.src.width = what.dst.width = 0;
	cr_expect(hip.hipMemcpy3DAsync(&what, own) == 0, "nobody says how wide it is");
	what.dst.width = 101;
	cr_expect(hip.hipMemcpy3DAsync(&what, own) == INVALID, "wider than its pitch");
	what.dst.width = 0;
	what.dst.height = ((size_t)4 << 30) / 100 + 1;
	cr_expect(hip.hipMemcpy3DAsync(&what, own) == INVALID, "planes 4 GiB apart");
	what.dst.height = 10;
	what.dst.address = memory;
	what.dst.pitch = INT32_MAX;
	what.height = what.depth = 1;
	cr_expect(hip.hipMemcpy3DAsync(&what, own) == INVALID, "the greatest pitch");
	what.dst.pitch--;
	cr_expect(hip.hipMemcpy3DAsync(&what, own) == 0);
	cr_expect(hip.hipMemcpy2DAsync(host, 300, memory, 100, 100, 10,
				       HOIST__HIP_COPY_DEVICE_TO_HOST, own) == 0);
	cr_expect(hip.hipStreamSynchronize(own) == 0);
	cr_expect(host[2700] == 'x' && host[2799] == 'x' && host[2800] == 0 && host[100] == 0);
	/* The second name is memory only while it is registered, and only as far. */
	void *behind = (void *)((uintptr_t)seen + MIB);
	cr_expect(hip.hipMemcpyAsync(memory, behind, 1, HOIST__HIP_COPY_HOST_TO_DEVICE, own) ==
		  INVALID);
	cr_expect(hip.hipHostUnregister(pinned) == 0);
	cr_expect(hip.hipMemcpyAsync(memory, seen, 1, HOIST__HIP_COPY_HOST_TO_DEVICE, own) ==
		  INVALID);
	cr_expect(counters_of(&hip.control).bad_copies == 4);
}
