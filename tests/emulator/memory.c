/* SPDX-License-Identifier: MIT */
/* Device memory and registered host memory of the stand-in drivers. */
#include "config.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/emulator-driver.h"

#define MIB ((size_t)1 << 20)

static struct cuda cu;

static void start(void)
{
	cuda_start(&cu, "cuda:2", 0);
}

static struct hoist_emulator_counters count(void)
{
	return counters_of(&cu.control);
}

/* Whether a child that reads or writes a byte at @address dies of it. */
static bool touch_kills(uintptr_t address, bool write)
{
	pid_t child = fork();
	if (child == 0) {
		volatile char *byte = (volatile char *)address;
		(void)signal(SIGSEGV, SIG_DFL);
		if (write)
			*byte = 1;
		else
			(void)*byte;
		_exit(0);
	}
	int status = 0;
	cr_assert(child > 0 && waitpid(child, &status, 0) == child);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

Test(emulator_memory, the_host_can_neither_read_nor_write_it, .init = start)
{
	hoist__cu_device_ptr address = 0;
	cr_assert(cu.cuMemAlloc(&address, 3 * MIB) == 0);
	cr_expect(touch_kills((uintptr_t)address, false));
	cr_expect(touch_kills((uintptr_t)address, true));
	cr_expect(touch_kills((uintptr_t)address + 3 * MIB - 1, false));
	int here = 0;
	cr_expect(!touch_kills((uintptr_t)&here, false), "the check itself");
	cr_expect(cu.cuMemFree(address) == 0);
}

Test(emulator_memory, addresses_are_aligned_and_disjoint, .init = start)
{
	hoist__cu_device_ptr address[64];
	for (size_t i = 0; i < 64; i++) {
		cr_assert(cu.cuMemAlloc(&address[i], 1 + i * 37) == 0);
		cr_expect((unsigned long)address[i] % 512 == 0);
		for (size_t k = 0; k < i; k++)
			cr_expect(address[k] + 1 + k * 37 <= address[i] ||
				  address[i] + 1 + i * 37 <= address[k]);
	}
	cr_expect(count().live_allocations == 64);
	for (size_t i = 0; i < 64; i++)
		cr_expect(cu.cuMemFree(address[i]) == 0);
	cr_expect(count().live_allocations == 0);
	cr_expect(count().live_bytes == 0);
	cr_expect(count().peak_bytes > 0);
}

Test(emulator_memory, the_limit_is_out_of_memory_and_freeing_makes_room, .init = start)
{
	hoist__cu_device_ptr first = 0;
	hoist__cu_device_ptr second = 77;
	size_t free_bytes = 0;
	size_t total = 0;
	cu.control.set_memory(8 * MIB);
	cr_assert(cu.cuMemAlloc(&first, 6 * MIB) == 0);
	cr_expect(cu.cuMemGetInfo(&free_bytes, &total) == 0);
	cr_expect(free_bytes == 2 * MIB && total == 8 * MIB);
	cr_expect(cu.cuMemAlloc(&second, 3 * MIB) == HOIST__CU_ERROR_OUT_OF_MEMORY);
	cr_expect((unsigned long)second == 77, "results are untouched on failure");
	cr_expect(cu.cuMemAlloc(&second, 0) == HOIST__CU_ERROR_INVALID_VALUE);
	cr_expect(cu.cuMemAlloc(&second, SIZE_MAX) == HOIST__CU_ERROR_OUT_OF_MEMORY);
	cr_expect(cu.cuMemFree(first) == 0);
	for (int i = 0; i < 50; i++) { /* wraps around the address range many times */
		cr_assert(cu.cuMemAlloc(&second, 8 * MIB) == 0);
		cr_assert(cu.cuMemFree(second) == 0);
	}
	cr_expect(count().live_bytes == 0);
}

Test(emulator_memory, a_limit_holds_per_device, .init = start)
{
	hoist__cu_device_ptr first = 0;
	hoist__cu_device_ptr second = 0;
	hoist__cu_context context = NULL;
	cu.control.set_memory(4 * MIB);
	cr_assert(cu.cuMemAlloc(&first, 4 * MIB) == 0);
	cr_assert(cu.cuDevicePrimaryCtxRetain(&context, 1) == 0);
	cr_assert(cu.cuCtxPushCurrent(context) == 0);
	cr_expect(cu.cuMemAlloc(&second, 4 * MIB) == 0);
	cr_expect(cu.cuMemFree(first) == 0);
	cr_expect(cu.cuMemFree(second) == 0);
}

Test(emulator_memory, frees_of_no_block_fail_and_are_counted, .init = start)
{
	hoist__cu_device_ptr address = 0;
	cr_assert(cu.cuMemAlloc(&address, MIB) == 0);
	cr_expect(cu.cuMemFree(address + 512) == HOIST__CU_ERROR_INVALID_VALUE);
	cr_expect(cu.cuMemFree(address) == 0);
	cr_expect(cu.cuMemFree(address) == HOIST__CU_ERROR_INVALID_VALUE);
	cr_expect(cu.cuMemFree(0) == 0);
	cr_expect(count().bad_frees == 2);
}

Test(emulator_memory, fresh_memory_is_not_zero, .init = start)
{
	unsigned char seen[16] = {0};
	unsigned char zero[16] = {0};
	hoist__cu_device_ptr address = 0;
	cr_assert(cu.cuMemAlloc(&address, sizeof seen) == 0);
	cr_assert(cu.cuMemcpyDtoHAsync(seen, address, sizeof seen, NULL) == 0);
	cr_expect(memcmp(seen, zero, sizeof seen) != 0);
	cr_expect(cu.cuMemFree(address) == 0);
}

Test(emulator_memory, registrations_are_known_by_range, .init = start)
{
	static char bytes[4096];
	hoist__cu_device_ptr seen = 0;
	cr_expect(cu.cuMemHostRegister(bytes, 2048, 1) == 0);
	cr_expect(cu.cuMemHostRegister(bytes, 2048, 1) ==
		  HOIST__CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	cr_expect(cu.cuMemHostRegister(bytes + 2047, 100, 1) ==
		  HOIST__CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	cr_expect(cu.cuMemHostRegister(bytes + 2048, 2048, 1) == 0);
	cr_expect(count().live_registrations == 2);
	cr_expect(count().live_registered_bytes == 4096);
	cr_expect(cu.cuMemHostGetDevicePointer(&seen, bytes + 5, 0) == 0);
	cr_expect((unsigned long)seen == (unsigned long)(uintptr_t)(bytes + 5));
	cr_expect(cu.cuMemHostUnregister(bytes + 1) == HOIST__CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
	cr_expect(cu.cuMemHostUnregister(bytes) == 0);
	cr_expect(cu.cuMemHostUnregister(bytes) == HOIST__CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
	cr_expect(cu.cuMemHostGetDevicePointer(&seen, bytes, 0) == HOIST__CU_ERROR_INVALID_VALUE);
	cr_expect(cu.cuMemHostUnregister(bytes + 2048) == 0);
	cr_expect(count().live_registered_bytes == 0);
	cr_expect(count().bad_frees == 2);
}

/* As the manual has it: what kernels see is told in a context, and only to those that do. */
Test(emulator_memory, where_kernels_see_it_is_told_in_a_context, .init = start)
{
	hoist__cu_pointer_attribute plain[] = {HOIST__CU_POINTER_MEMORY_TYPE,
					       HOIST__CU_POINTER_DEVICE_ORDINAL};
	hoist__cu_pointer_attribute seen = HOIST__CU_POINTER_DEVICE_POINTER;
	unsigned type = 0;
	int ordinal = -1;
	hoist__cu_device_ptr found = 0;
	hoist__cu_device_ptr address = 0;
	hoist__cu_context mine = NULL;
	hoist__cu_context other = NULL;
	void *plain_results[] = {&type, &ordinal};
	void *result = &found;
	cr_assert(cu.cuMemAlloc(&address, 4096) == 0);
	cr_expect(cu.cuPointerGetAttributes(1, &seen, &result, address) == 0 && found == address);
	cr_assert(cu.cuCtxPopCurrent(&mine) == 0);
	cr_expect(cu.cuPointerGetAttributes(1, &seen, &result, address) ==
		  HOIST__CU_ERROR_INVALID_CONTEXT);
	cr_expect(cu.cuPointerGetAttributes(2, plain, plain_results, address) == 0);
	cr_expect(type == HOIST__CU_MEMORY_DEVICE && ordinal == 0);
	cr_assert(cu.cuDevicePrimaryCtxRetain(&other, 1) == 0 && cu.cuCtxPushCurrent(other) == 0);
	cr_expect(cu.cuPointerGetAttributes(1, &seen, &result, address) ==
		  HOIST__CU_ERROR_INVALID_VALUE);
	cr_expect(cu.cuCtxPushCurrent(mine) == 0 && cu.cuMemFree(address) == 0);
}

/* A stream of cuda:0 whose work touches @theirs, of cuda:1: what became of it. */
static unsigned touch_peer(hoist__cu_device_ptr mine, hoist__cu_device_ptr theirs)
{
	hoist__cu_stream stream = NULL;
	cr_assert(cu.cuStreamCreate(&stream, 1) == 0);
	cr_assert(cu.cuMemsetD8Async(theirs, 7, 4096, stream) == 0);
	unsigned result = cu.cuStreamSynchronize(stream);
	cr_assert(cu.cuStreamDestroy(stream) == 0 && cu.cuStreamCreate(&stream, 1) == 0);
	cr_assert(cu.cuMemcpyDtoDAsync(mine, theirs, 4096, stream) == 0);
	cr_expect(cu.cuStreamSynchronize(stream) == result);
	cr_assert(cu.cuStreamDestroy(stream) == 0);
	return result;
}

Test(emulator_memory, a_peers_is_reached_when_access_is_enabled, .init = start)
{
	const unsigned illegal = HOIST__CU_ERROR_ILLEGAL_ADDRESS;
	hoist__cu_context contexts[2];
	hoist__cu_device_ptr mine = 0;
	hoist__cu_device_ptr theirs = 0;
	cr_assert(cu.cuMemAlloc(&mine, 4096) == 0);
	for (int i = 0; i < 2; i++)
		cr_assert(cu.cuDevicePrimaryCtxRetain(&contexts[i], i) == 0);
	cr_assert(cu.cuCtxPushCurrent(contexts[1]) == 0 && cu.cuMemAlloc(&theirs, 4096) == 0 &&
		  cu.cuCtxPopCurrent(&contexts[1]) == 0);
	cr_expect(touch_peer(mine, theirs) == illegal);
	cr_expect(count().bad_touches == 2);
	cr_expect(cu.cuMemcpyPeerAsync(mine, contexts[0], theirs, contexts[1], 4096, NULL) == 0);
	cr_expect(cu.cuStreamSynchronize(NULL) == 0 && count().staged_copies == 1);
	cr_expect(cu.cuMemcpyPeerAsync(mine, contexts[1], theirs, contexts[0], 4096, NULL) ==
			  HOIST__CU_ERROR_INVALID_VALUE,
		  "the other way round");
	cr_expect(cu.cuCtxEnablePeerAccess(contexts[0], 0) == HOIST__CU_ERROR_INVALID_CONTEXT);
	cr_expect(cu.cuCtxEnablePeerAccess(NULL, 0) == HOIST__CU_ERROR_INVALID_CONTEXT);
	cr_expect(cu.cuCtxEnablePeerAccess(contexts[1], 1) == HOIST__CU_ERROR_INVALID_VALUE);
	cr_expect(cu.cuCtxEnablePeerAccess(contexts[1], 0) == 0);
	cr_expect(cu.cuCtxEnablePeerAccess(contexts[1], 0) == HOIST__CU_ERROR_PEER_ENABLED);
	cr_expect(touch_peer(mine, theirs) == 0);
	cr_expect(cu.cuMemcpyPeerAsync(mine, contexts[0], theirs, contexts[1], 4096, NULL) == 0);
	cr_expect(cu.cuStreamSynchronize(NULL) == 0 && count().staged_copies == 1);
	cr_assert(cu.cuCtxPushCurrent(contexts[1]) == 0);
	cr_expect(touch_peer(theirs, mine) == illegal, "the other direction is another matter");
	cr_assert(cu.cuCtxPopCurrent(&contexts[1]) == 0);
	cr_expect(cu.cuMemFree(mine) == 0 && cu.cuMemFree(theirs) == 0);
}

Test(emulator_memory, one_registration_has_a_largest_size)
{
	static char bytes[12288];
	(void)setenv("HOIST_EMULATE_REGISTER_MOST", "8K", 1);
	start();
	cr_expect(cu.cuMemHostRegister(bytes, 8193, 1) == HOIST__CU_ERROR_OUT_OF_MEMORY);
	cr_expect(cu.cuMemHostRegister(bytes, 8192, 1) == 0);
	cr_expect(cu.cuMemHostRegister(bytes + 8192, 4096, 1) == 0, "of one call, not of all");
	cr_expect(cu.cuMemHostUnregister(bytes) == 0);
	cr_expect(cu.cuMemHostUnregister(bytes + 8192) == 0);
	cu.control.set_register_most(0);
	cr_expect(cu.cuMemHostRegister(bytes, 12288, 1) == 0);
	cr_expect(cu.cuMemHostUnregister(bytes) == 0);
	cu.control.reset();
	cr_expect(cu.cuMemHostRegister(bytes, 12288, 1) == HOIST__CU_ERROR_OUT_OF_MEMORY);
	cr_expect(count().live_registrations == 0);
}

Test(emulator_memory, unmapped_memory_cannot_be_registered, .init = start)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert(page != MAP_FAILED);
	cr_assert(munmap(page, 4096) == 0);
	cr_expect(cu.cuMemHostRegister(page, 4096, 1) == HOIST__CU_ERROR_INVALID_VALUE);
	cr_expect(cu.cuMemHostRegister(NULL, 4096, 1) == HOIST__CU_ERROR_INVALID_VALUE);
	cr_expect(count().live_registrations == 0);
}

Test(emulator_memory, copies_out_of_range_are_refused_and_counted, .init = start)
{
	static char bytes[8192];
	hoist__cu_device_ptr address = 0;
	cr_assert(cu.cuMemAlloc(&address, 1000) == 0);
	cr_assert(cu.cuMemHostRegister(bytes, 4096, 1) == 0);
	const unsigned bad = HOIST__CU_ERROR_INVALID_VALUE;
	cr_expect(cu.cuMemcpyHtoDAsync(address, bytes, 1001, NULL) == bad);
	cr_expect(cu.cuMemcpyHtoDAsync(address + 999, bytes, 2, NULL) == bad);
	cr_expect(cu.cuMemcpyDtoHAsync(bytes, address + 1000, 1, NULL) == bad);
	cr_expect(cu.cuMemcpyHtoDAsync((uintptr_t)bytes + 5000, bytes, 8, NULL) == bad,
		  "pageable host memory is no destination on the device");
	cr_expect(cu.cuMemcpyHtoDAsync(address, (void *)(uintptr_t)address, 8, NULL) == bad);
	cr_expect(cu.cuMemcpyHtoDAsync(address, bytes + 4090, 10, NULL) == bad, "half registered");
	cr_expect(cu.cuMemsetD8Async(address, 0, 1001, NULL) == bad);
	cr_expect(count().bad_copies == 7);
	cr_expect(cu.cuMemFree(address) == 0);
	cr_expect(cu.cuMemcpyHtoDAsync(address, bytes, 1, NULL) == bad, "freed");
	cr_expect(count().bad_copies == 8);
	cr_expect(count().copies == 0);
	cr_expect(cu.cuStreamSynchronize(NULL) == 0, "a refusal is no failure of the stream");
	cr_expect(cu.cuMemHostUnregister(bytes) == 0);
}

static long minor_faults(void)
{
	struct rusage usage;
	cr_assert(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_minflt;
}

Test(emulator_memory, resident_memory_needs_no_page_faults)
{
#ifdef __SANITIZE_ADDRESS__
	cr_skip_test("AddressSanitizer's shadow of the memory faults in its place");
#endif
	cr_assert(setenv("HOIST_EMULATE_RESIDENT", "64M", 1) == 0);
	cuda_start(&cu, "cuda:1", 0);
	for (int i = 0; i < 2; i++) { /* freed memory stays resident too */
		hoist__cu_device_ptr address = 0;
		cr_assert(cu.cuMemAlloc(&address, 24 * MIB) == 0);
		cr_assert(cu.cuMemsetD8Async(address, 1, 4096, NULL) == 0);
		cr_assert(cu.cuStreamSynchronize(NULL) == 0); /* its thread's own faults */
		long before = minor_faults();
		cr_assert(cu.cuMemsetD8Async(address, 1, 24 * MIB, NULL) == 0);
		cr_assert(cu.cuStreamSynchronize(NULL) == 0);
		cr_expect(minor_faults() - before < 6, "%ld", minor_faults() - before);
		cr_expect(cu.cuMemFree(address) == 0);
	}
}
