/* SPDX-License-Identifier: MIT */
/* The stand-in's virtual memory: what the manual's words refuse is refused, in each order in which
 * it can be got wrong; memory lives as long as its handle or a mapping; copies need access. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/emulator-driver.h"

#define SMALL ((size_t)64 << 10)
#define MIB ((size_t)1 << 20)

enum {
	INVALID = HOIST__CU_ERROR_INVALID_VALUE,
	FULL = HOIST__CU_ERROR_OUT_OF_MEMORY,
	NO_DEVICE = HOIST__CU_ERROR_INVALID_DEVICE,
	ILLEGAL = HOIST__CU_ERROR_ILLEGAL_ADDRESS,
};

static struct cuda cu;
static hoist__cu_stream stream;
static struct hoist__cu_memory_props props;

static void start(void)
{
	cuda_start(&cu, "cuda:2", 0);
	cu.control.set_memory(64 * MIB);
	cr_assert(cu.cuStreamCreate(&stream, 1) == 0);
	props = (struct hoist__cu_memory_props){.type = HOIST__CU_ALLOCATION_PINNED,
						.location = {HOIST__CU_LOCATION_DEVICE, 0}};
}

static void stop(uint64_t bad_frees)
{
	cr_expect(cu.cuStreamDestroy(stream) == 0);
	struct hoist_emulator_counters count = counters_of(&cu.control);
	cr_expect(count.live_allocations + count.live_bytes + count.live_reservations == 0);
	cr_expect(count.bad_frees == bad_frees, "%d", (int)count.bad_frees);
}

static hoist__cu_device_ptr reserve(size_t bytes, hoist__cu_device_ptr hint)
{
	hoist__cu_device_ptr address = 0;
	cr_assert(cu.cuMemAddressReserve(&address, bytes, 0, hint, 0) == 0);
	return address;
}

static hoist__cu_memory make(size_t bytes)
{
	hoist__cu_memory memory = 0;
	cr_assert(cu.cuMemCreate(&memory, bytes, &props, 0) == 0);
	return memory;
}

static int allow(hoist__cu_device_ptr address, size_t bytes, int device, unsigned flags)
{
	const struct hoist__cu_access access = {{HOIST__CU_LOCATION_DEVICE, device}, flags};
	return (int)cu.cuMemSetAccess(address, bytes, &access, 1);
}

Test(emulator_vmm, sizes_and_properties_must_be_right, .init = start)
{
	hoist__cu_device_ptr address = 77;
	hoist__cu_memory memory = 77;
	size_t granularity = 0;
	cr_expect(cu.cuMemGetAllocationGranularity(&granularity, &props, 0) == 0);
	cr_expect(granularity == SMALL);
	cr_expect(cu.cuMemGetAllocationGranularity(&granularity, &props, 1) == 0);
	cr_expect(granularity == 2 * MIB);
	cr_expect(cu.cuMemGetAllocationGranularity(&granularity, &props, 2) == INVALID);
	cr_expect(cu.cuMemGetAllocationGranularity(NULL, &props, 0) == INVALID);
	cr_expect(cu.cuMemAddressReserve(&address, 0, 0, 0, 0) == INVALID);
	cr_expect(cu.cuMemAddressReserve(&address, SMALL + 4096, 0, 0, 0) == INVALID);
	cr_expect(cu.cuMemAddressReserve(&address, SMALL, 3, 0, 0) == INVALID);
	cr_expect(cu.cuMemAddressReserve(&address, SMALL, 0, 4096, 0) == INVALID);
	cr_expect(cu.cuMemAddressReserve(&address, SMALL, 0, 0, 1) == INVALID);
	cr_expect(cu.cuMemAddressReserve(&address, (size_t)1 << 50, 0, 0, 0) == FULL);
	cr_expect(cu.cuMemCreate(&memory, 0, &props, 0) == INVALID);
	cr_expect(cu.cuMemCreate(&memory, SMALL / 2, &props, 0) == INVALID);
	cr_expect(cu.cuMemCreate(&memory, SMALL, &props, 1) == INVALID);
	cr_expect(cu.cuMemCreate(&memory, SMALL, NULL, 0) == INVALID);
	cr_expect(cu.cuMemCreate(&memory, 65 * MIB, &props, 0) == FULL);
	static const struct hoist__cu_memory_props wrong[] = {
		{.type = 0, .location = {HOIST__CU_LOCATION_DEVICE, 0}},
		{.type = 1, .location = {HOIST__CU_LOCATION_HOST, 0}},
		{.type = 1, .handle_types = 1, .location = {HOIST__CU_LOCATION_DEVICE, 0}},
		{.type = 1, .location = {HOIST__CU_LOCATION_DEVICE, 0}, .compression = 1},
		{.type = 1, .location = {HOIST__CU_LOCATION_DEVICE, 0}, .usage = 1},
		{.type = 1, .location = {HOIST__CU_LOCATION_DEVICE, 1}, .rdma = 1},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
		cr_expect(cu.cuMemCreate(&memory, SMALL, &wrong[i], 0) == INVALID, "%zu", i);
	props.location.id = 2;
	cr_expect(cu.cuMemCreate(&memory, SMALL, &props, 0) == NO_DEVICE);
	cr_expect(address == 77 && memory == 77);
	stop(0);
}

Test(emulator_vmm, reservations_are_at_the_hint_or_elsewhere, .init = start)
{
	hoist__cu_device_ptr first = reserve(4 * SMALL, 0);
	hoist__cu_device_ptr behind = reserve(SMALL, first + 4 * SMALL);
	cr_expect(behind == first + 4 * SMALL);
	hoist__cu_device_ptr other = reserve(SMALL, first + SMALL);
	cr_expect(other != first + SMALL && other != behind, "those are taken");
	hoist__cu_device_ptr aligned = 0;
	cr_assert(cu.cuMemAddressReserve(&aligned, SMALL, 4 * MIB, 0, 0) == 0);
	cr_expect(aligned % (4 * MIB) == 0);
	cr_expect(cu.cuMemAddressFree(first + SMALL, 3 * SMALL) == INVALID, "not a part");
	cr_expect(cu.cuMemAddressFree(first, SMALL) == INVALID);
	cr_expect(cu.cuMemAddressFree(first, 5 * SMALL) == INVALID, "nor two");
	cr_expect(cu.cuMemAddressFree(first, 4 * SMALL) == 0);
	cr_expect(cu.cuMemAddressFree(first, 4 * SMALL) == INVALID, "nor twice");
	cr_expect(cu.cuMemAddressFree(behind, SMALL) == 0);
	cr_expect(cu.cuMemAddressFree(other, SMALL) == 0);
	cr_expect(cu.cuMemAddressFree(aligned, SMALL) == 0);
	stop(4);
}

Test(emulator_vmm, mappings_are_whole_and_alone, .init = start)
{
	hoist__cu_device_ptr at = reserve(4 * SMALL, 0);
	hoist__cu_device_ptr behind = reserve(SMALL, at + 4 * SMALL);
	hoist__cu_memory memory = make(2 * SMALL);
	hoist__cu_memory small = make(SMALL);
	cr_expect(cu.cuMemMap(at + 4096, SMALL, 0, memory, 0) == INVALID);
	cr_expect(cu.cuMemMap(at, 4096, 0, memory, 0) == INVALID);
	cr_expect(cu.cuMemMap(at, SMALL, SMALL, memory, 0) == INVALID, "the offset is 0");
	cr_expect(cu.cuMemMap(at, SMALL, 0, memory, 1) == INVALID);
	cr_expect(cu.cuMemMap(at, 4 * SMALL, 0, memory, 0) == INVALID, "it has not so much");
	cr_expect(cu.cuMemMap(at, SMALL, 0, 12345, 0) == INVALID);
	cr_expect(cu.cuMemMap(at + 3 * SMALL, 2 * SMALL, 0, memory, 0) == INVALID,
		  "across two reservations");
	cr_expect(cu.cuMemMap(at + 16 * MIB, SMALL, 0, memory, 0) == INVALID, "not reserved");
	cr_assert(cu.cuMemMap(at, 2 * SMALL, 0, memory, 0) == 0);
	cr_expect(cu.cuMemMap(at + SMALL, SMALL, 0, small, 0) == INVALID, "it is taken");
	cr_assert(cu.cuMemMap(at + 2 * SMALL, SMALL, 0, small, 0) == 0);
	cr_expect(cu.cuMemAddressFree(at, 4 * SMALL) == INVALID, "while it is mapped");
	cr_expect(cu.cuMemUnmap(at, SMALL) == INVALID, "not a part");
	cr_expect(cu.cuMemUnmap(at + SMALL, SMALL) == INVALID);
	cr_expect(cu.cuMemUnmap(at, 3 * SMALL) == INVALID, "nor two");
	cr_expect(cu.cuMemUnmap(behind, SMALL) == INVALID, "nor nothing");
	/* The memory outlives its handle by its mapping. */
	uint64_t before = counters_of(&cu.control).live_bytes;
	cr_expect(cu.cuMemRelease(memory) == 0);
	cr_expect(counters_of(&cu.control).live_bytes == before);
	cr_expect(cu.cuMemRelease(memory) == INVALID, "twice");
	cr_expect(cu.cuMemMap(at + 3 * SMALL, SMALL, 0, memory, 0) == INVALID, "it is released");
	cr_expect(cu.cuMemUnmap(at, 2 * SMALL) == 0);
	cr_expect(counters_of(&cu.control).live_bytes == before - 2 * SMALL);
	cr_expect(cu.cuMemUnmap(at + 2 * SMALL, SMALL) == 0);
	cr_expect(cu.cuMemRelease(small) == 0);
	cr_expect(cu.cuMemAddressFree(at, 4 * SMALL) == 0);
	cr_expect(cu.cuMemAddressFree(behind, SMALL) == 0);
	stop(6);
}

Test(emulator_vmm, nobody_has_access_until_it_is_said, .init = start)
{
	static unsigned char host[SMALL];
	hoist__cu_device_ptr at = reserve(2 * SMALL, 0);
	hoist__cu_memory memory = make(SMALL);
	cr_assert(cu.cuMemHostRegister(host, sizeof host, 0) == 0);
	cr_expect(cu.cuMemsetD8Async(at, 1, SMALL, stream) == INVALID, "nothing is there");
	cr_assert(cu.cuMemMap(at, SMALL, 0, memory, 0) == 0);
	cr_expect(cu.cuMemsetD8Async(at, 1, SMALL, stream) == INVALID);
	cr_expect(cu.cuMemcpyDtoHAsync(host, at, SMALL, stream) == INVALID);
	cr_expect(allow(at, SMALL / 2, 0, HOIST__CU_ACCESS_READ) == INVALID, "not a part");
	cr_expect(allow(at, 2 * SMALL, 0, HOIST__CU_ACCESS_READ) == INVALID, "half is not mapped");
	cr_expect(allow(at, SMALL, 0, 2) == INVALID);
	cr_expect(allow(at, SMALL, 2, HOIST__CU_ACCESS_READ) == NO_DEVICE);
	cr_expect(cu.cuMemSetAccess(at, SMALL, NULL, 1) == INVALID);
	cr_expect(allow(at, SMALL, 1, HOIST__CU_ACCESS_READ_WRITE) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, at, SMALL, stream) == INVALID, "another's access");
	cr_expect(allow(at, SMALL, 0, HOIST__CU_ACCESS_READ) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, at, SMALL, stream) == 0);
	cr_expect(cu.cuMemsetD8Async(at, 1, SMALL, stream) == INVALID, "it may only be read");
	cr_expect(allow(at, SMALL, 0, HOIST__CU_ACCESS_READ_WRITE) == 0);
	cr_expect(cu.cuMemsetD8Async(at, 7, SMALL, stream) == 0);
	cr_expect(cu.cuMemsetD8Async(at, 7, SMALL + 1, stream) == INVALID, "beyond the mapping");
	cr_assert(cu.cuStreamSynchronize(stream) == 0);
	/* A second mapping shows the same bytes, and begins without access. */
	cr_assert(cu.cuMemMap(at + SMALL, SMALL, 0, memory, 0) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, at + SMALL, SMALL, stream) == INVALID);
	cr_expect(allow(at + SMALL, SMALL, 0, HOIST__CU_ACCESS_READ_WRITE) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, at + SMALL, SMALL, stream) == 0);
	cr_assert(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(host[0] == 7 && host[SMALL - 1] == 7);
	cr_expect(cu.cuMemsetD8Async(at, 9, 2 * SMALL, stream) == 0, "one copy over both");
	cr_assert(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(cu.cuMemUnmap(at, SMALL) == 0);
	cr_expect(cu.cuMemUnmap(at + SMALL, SMALL) == 0);
	cr_assert(cu.cuMemMap(at, SMALL, 0, memory, 0) == 0);
	cr_expect(cu.cuMemcpyDtoHAsync(host, at, SMALL, stream) == INVALID, "access is anew");
	cr_expect(cu.cuMemUnmap(at, SMALL) == 0);
	cr_expect(cu.cuMemRelease(memory) == 0);
	cr_expect(cu.cuMemAddressFree(at, 2 * SMALL) == 0);
	cr_expect(cu.cuMemHostUnregister(host) == 0);
	stop(0);
}

Test(emulator_vmm, unmapping_under_work_is_noticed, .init = start)
{
	hoist__cu_device_ptr at = reserve(SMALL, 0);
	hoist__cu_memory memory = make(SMALL);
	cr_assert(cu.cuMemMap(at, SMALL, 0, memory, 0) == 0);
	cr_assert(allow(at, SMALL, 0, HOIST__CU_ACCESS_READ_WRITE) == 0);
	cu.control.hold(1);
	cr_assert(cu.cuMemsetD8Async(at + 4096, 7, 4096, stream) == 0);
	cr_expect(cu.cuMemUnmap(at, SMALL) == ILLEGAL);
	cr_expect(counters_of(&cu.control).use_after_free == 1);
	cu.control.hold(0);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(cu.cuMemRelease(memory) == 0);
	cr_expect(cu.cuMemAddressFree(at, SMALL) == 0);
	stop(0);
}

Test(emulator_vmm, a_capture_forbids_it, .init = start)
{
	hoist__cu_device_ptr at = reserve(SMALL, 0);
	hoist__cu_memory memory = 0;
	cr_assert(cu.control.capture(stream, 1) == 0);
	cr_expect(cu.cuMemCreate(&memory, SMALL, &props, 0) == HOIST__CU_ERROR_CAPTURE_UNSUPPORTED);
	cr_expect(cu.control.capture(stream, 0) != 0, "and is broken");
	cr_expect(cu.cuMemAddressFree(at, SMALL) == 0);
	stop(0);
}
