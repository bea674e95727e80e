/* SPDX-License-Identifier: MIT */
/* What drivers say of devices and of addresses: see device-driver.h. */
#include "config.h"

#define SUITE device_query

#include <errno.h>

#include "tests/support/device-driver.h"

/* --- devices --- */

static void access_between(void)
{
	struct hoist__dev *cpu = NULL;
	struct hoist__dev *other = NULL;
	int count = 0;
	bool can = false;
	OK(hoist__dev_get(HOIST__API_CPU, 0, &cpu));
	OK(hoist__dev_can_access(dev, dev, &can));
	cr_assert(can);
	OK(hoist__dev_can_access(dev, cpu, &can));
	cr_assert(!can);
	OK(hoist__dev_can_access(cpu, dev, &can));
	cr_assert(!can);
	OK(hoist__dev_can_access(cpu, cpu, &can));
	cr_assert(can);
	OK(hoist__dev_count(hoist__dev_api(dev), &count));
	if (count < 2)
		return;
	OK(hoist__dev_get(hoist__dev_api(dev), 1, &other));
	can = false;
	OK(hoist__dev_can_access(dev, other, &can));
	if (hoist__api_emulated(hoist__dev_api(dev)))
		cr_assert(can);
}
EVERYWHERE(devices_reach_themselves_and_no_other_kind, access_between)

/* Two devices of the api, memory of each, and a stream of the first. */
static struct hoist__dev *peer;
static struct hoist__dev_stream *on_first;
static uintptr_t mine;
static uintptr_t theirs;

static void open_peers(void)
{
	OK(hoist__dev_get(hoist__dev_api(dev), 1, &peer));
	OK(hoist__dev_stream_create(dev, &on_first));
	OK(hoist__dev_mem_alloc(dev, 4096, &mine));
	OK(hoist__dev_mem_alloc(peer, 4096, &theirs));
}

static void close_peers(void)
{
	hoist__dev_stream_destroy(on_first);
	OK(hoist__dev_mem_free(dev, mine, 4096));
	OK(hoist__dev_mem_free(peer, theirs, 4096));
}

static int copy_from_peer(void)
{
	int err = hoist__copy_peer_async(on_first, dev, mine, peer, theirs, 4096);
	return err < 0 ? err : hoist__dev_stream_synchronize(on_first);
}

/* What is promised holds: work of the device touches the peer's memory, as a kernel does. */
static void access_is_enabled(void)
{
	bool can = false;
	open_peers();
	for (int i = 0; i < 2; i++) {
		OK(hoist__dev_can_access(dev, peer, &can));
		cr_assert(can);
	}
	OK(hoist__fill_async(on_first, theirs, 0x5a, 1, 4096));
	OK(hoist__dev_stream_synchronize(on_first));
	OK(copy_from_peer());
	cr_assert_eq(counters().bad_touches, 0);
	cr_assert_eq(counters().staged_copies, 0);
	close_peers();
}
EMULATED(access_that_is_promised_is_enabled, access_is_enabled)

static void copies_are_direct(void)
{
	open_peers();
	OK(copy_from_peer());
	OK(hoist__copy_peer_async(on_first, peer, theirs, dev, mine, 4096));
	OK(hoist__dev_stream_synchronize(on_first));
	cr_assert_eq(counters().staged_copies, 0);
	close_peers();
}
EMULATED(copies_between_devices_are_direct, copies_are_direct)

/* Drivers ask pools one by one who reaches their memory: those of before and of after. */
static void pools_are_reached(void)
{
	struct hoist__dev_pool *pools[2];
	struct hoist__dev_pool *denied;
	struct hoist__dev_stream *on_second;
	uintptr_t blocks[3];
	bool can = false;
	open_peers();
	OK(hoist__dev_stream_create(peer, &on_second));
	OK(hoist__dev_pool_create(peer, 0, &pools[0]));
	OK(hoist__dev_pool_create(peer, 0, &denied));
	OK(hoist__dev_pool_set_access(denied, dev, false));
	OK(hoist__dev_can_access(dev, peer, &can));
	OK(hoist__dev_pool_create(peer, 0, &pools[1]));
	for (int i = 0; i < 2; i++) {
		OK(hoist__dev_pool_alloc(pools[i], 4096, on_second, &blocks[i]));
		OK(hoist__dev_stream_synchronize(on_second));
		OK(hoist__fill_async(on_first, blocks[i], 0x5a, 1, 4096));
		OK(hoist__copy_peer_async(on_first, dev, mine, peer, blocks[i], 4096));
		OK(hoist__dev_stream_synchronize(on_first));
	}
	cr_assert_eq(counters().bad_touches + counters().staged_copies, 0);
	OK(hoist__dev_pool_alloc(denied, 4096, on_second, &blocks[2]));
	OK(hoist__copy_peer_async(on_first, dev, mine, peer, blocks[2], 4096));
	OK(hoist__dev_stream_synchronize(on_first));
	cr_assert_eq(counters().staged_copies, 1, "what was denied stays so");
	for (int i = 0; i < 3; i++) {
		struct hoist__dev_pool *pool = i < 2 ? pools[i] : denied;
		OK(hoist__dev_pool_free(pool, blocks[i], on_second));
		hoist__dev_pool_destroy(pool);
	}
	hoist__dev_stream_destroy(on_second);
	close_peers();
}
EMULATED(access_goes_for_the_drivers_pools, pools_are_reached)

/* A pool that cannot be opened to who was promised its device's memory is not made. */
static void opening_a_pool_fails(void)
{
	bool cuda = hoist__dev_api(dev) == HOIST__API_CUDA;
	int (*fail)(const char *);
	struct hoist__dev_pool *pool = NULL;
	bool can = false;
	open_peers();
	OK(hoist__dev_can_access(dev, peer, &can));
	find(hoist__dev_api(dev), "hoist_emulator_fail", &fail);
	cr_assert_eq(fail(cuda ? "cuMemPoolSetAccess:1" : "hipMemPoolSetAccess:1"), 0);
	cr_assert_eq(hoist__dev_pool_create(peer, 0, &pool), -EREMOTEIO);
	cr_assert_eq(counters().live_pools, 0);
	OK(hoist__dev_pool_create(peer, 0, &pool));
	hoist__dev_pool_destroy(pool);
	close_peers();
}
EMULATED(pools_that_cannot_be_opened_are_not_made, opening_a_pool_fails)

/* Enabled by somebody else, refused for good, and a call that fails once. */
static void enabling_fails(void)
{
	static const struct {
		int code;
		int err;
		bool can;
		bool again; /* whether it is asked for the next time */
	} rows[] = {{999, -EREMOTEIO, false, true}, {217, 0, false, false}};
	bool cuda = hoist__dev_api(dev) == HOIST__API_CUDA;
	const char *function = cuda ? "cuCtxEnablePeerAccess" : "hipDeviceEnablePeerAccess";
	int (*fail)(const char *);
	uint64_t (*calls)(const char *);
	find(hoist__dev_api(dev), "hoist_emulator_fail", &fail);
	find(hoist__dev_api(dev), "hoist_emulator_calls", &calls);
	open_peers();
	for (size_t i = 0; i < 2; i++) {
		char spec[64];
		bool can = false;
		uint64_t staged = counters().staged_copies;
		(void)snprintf(spec, sizeof spec, "%s:1+:%d", function, rows[i].code);
		cr_assert_eq(fail(spec), 0);
		cr_assert_eq(hoist__dev_can_access(dev, peer, &can), rows[i].err);
		cr_assert_eq(can, rows[i].can);
		uint64_t before = calls(function);
		OK(copy_from_peer());
		cr_assert_eq(counters().staged_copies, staged + 1);
		cr_assert_eq(calls(function) > before, rows[i].again);
	}
	cr_assert_eq(fail(""), 0);
	close_peers();
}
EMULATED(access_that_cannot_be_enabled_is_not_promised, enabling_fails)

static void enabled_by_others(void)
{
	bool cuda = hoist__dev_api(dev) == HOIST__API_CUDA;
	int (*fail)(const char *);
	bool can = false;
	open_peers();
	find(hoist__dev_api(dev), "hoist_emulator_fail", &fail);
	cr_assert_eq(fail(cuda ? "cuCtxEnablePeerAccess:1:704" : "hipDeviceEnablePeerAccess:1:704"),
		     0);
	OK(hoist__dev_can_access(dev, peer, &can));
	cr_assert(can);
	if (!cuda) {
		unsigned (*last)(void);
		find(HOIST__API_HIP, "hipGetLastError", &last);
		cr_assert_eq(last(), 0);
	}
	close_peers();
}
EMULATED(access_that_others_enabled_is_there, enabled_by_others)

static int wait_a_little(void *context)
{
	usleep(20000);
	*(volatile int *)context = 1;
	return 0;
}

static void synchronize(void)
{
	static int done[2];
	struct hoist__dev_stream *streams[2];
	for (int i = 0; i < 2; i++) {
		OK(hoist__dev_stream_create(dev, &streams[i]));
		OK(hoist__dev_stream_call(streams[i], wait_a_little, &done[i]));
	}
	OK(hoist__dev_synchronize(dev));
	cr_assert_eq(done[0] + done[1], 2);
	for (int i = 0; i < 2; i++)
		hoist__dev_stream_destroy(streams[i]);
	OK(hoist__dev_synchronize(dev));
}
EVERYWHERE(synchronize_waits_for_all_streams, synchronize)

static void synchronize_without_context(void)
{
	OK(hoist__dev_synchronize(dev));
	cr_assert_eq(counters().live_contexts, 0);
}
ON_EMULATED(cuda_synchronize_makes_no_context, HOIST__API_CUDA, synchronize_without_context)

static void synchronize_failing(void)
{
	int (*fail)(const char *);
	struct hoist__dev_stream *stream = NULL;
	uintptr_t memory = 0;
	find(hoist__dev_api(dev), "hoist_emulator_fail", &fail);
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_mem_alloc(dev, 4096, &memory));
	OK(hoist__dev_host_register(dev, host, BYTES));
	cr_assert_eq(fail("async:1"), 0);
	OK(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, (uintptr_t)host, 4096));
	cr_assert_eq(hoist__dev_synchronize(dev), -EREMOTEIO);
	cr_assert_not_null(strstr(hoist__error_text(), "waiting for the device"));
	hoist__dev_stream_destroy(stream);
	OK(hoist__dev_mem_free(dev, memory, 4096));
	OK(hoist__dev_host_unregister(dev, host, BYTES));
}
EMULATED(synchronize_tells_of_failed_work, synchronize_failing)

Test(device_query, the_cpu_has_nothing_to_wait_for)
{
	open_device(HOIST__API_CPU);
	OK(hoist__dev_synchronize(dev));
}

/* --- addresses --- */

static struct hoist__pointer ask(uintptr_t address)
{
	struct hoist__pointer pointer;
	memset(&pointer, 0x5a, sizeof pointer);
	OK(hoist__pointer_find(address, &pointer));
	return pointer;
}

static void expect_unknown(uintptr_t address)
{
	struct hoist__pointer pointer = ask(address);
	cr_expect_eq(pointer.api, HOIST__API_CPU, "%#zx", (size_t)address);
	cr_expect_eq(pointer.ordinal, -1);
	cr_expect(pointer.host && !pointer.device && !pointer.managed);
	cr_expect_eq(pointer.device_address, 0);
}

static void pageable(void)
{
	int local = 0;
	expect_unknown((uintptr_t)host);
	expect_unknown((uintptr_t)&local);
	expect_unknown(0);
	expect_unknown(1);
	expect_unknown(UINTPTR_MAX);
	cr_assert_eq(hoist__dev_synchronize(dev), 0);
	if (hoist__api_emulated(HOIST__API_CUDA))
		cr_assert_eq(counters().live_contexts, 0, "asking makes none");
}
EVERYWHERE(addresses_that_no_driver_knows_are_the_hosts, pageable)

static void pointers(void)
{
	enum hoist__api api = hoist__dev_api(dev);
	uintptr_t memory = 0;
	uintptr_t managed = 0;
	uintptr_t seen = 0;
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	struct hoist__pointer pointer = ask(memory + BYTES - 1);
	cr_expect(pointer.api == api && pointer.ordinal == 0);
	cr_expect(!pointer.host && pointer.device && !pointer.managed);
	cr_expect_eq(pointer.device_address, memory + BYTES - 1);
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_host_address(dev, host + 5, &seen));
	pointer = ask((uintptr_t)host + 5);
	cr_expect(pointer.api == api && pointer.ordinal == -1);
	cr_expect(pointer.host && pointer.device && !pointer.managed);
	cr_expect_eq(pointer.device_address, seen);
	expect_unknown((uintptr_t)host + BYTES);
	OK(hoist__dev_host_unregister(dev, host, BYTES));
	expect_unknown((uintptr_t)host + 5);
	if (hoist__dev_managed_alloc(dev, BYTES, &managed) == 0) {
		pointer = ask(managed + 100);
		cr_expect(pointer.api == api && pointer.ordinal == 0);
		cr_expect(pointer.host && pointer.device && pointer.managed);
		cr_expect_eq(pointer.device_address, managed + 100);
		OK(hoist__dev_mem_free(dev, managed, BYTES));
	}
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	pointer = ask(memory);
	cr_expect(!pointer.managed);
}
EVERYWHERE(drivers_know_their_memory, pointers)

/* A driver says where kernels of the current context see memory, or that they do not: hoist's
 * answer is the same in every context, and without one. */
static void pointers_in_contexts(void)
{
	unsigned (*retain)(void **, int);
	unsigned (*push)(void *);
	unsigned (*pop)(void **);
	void *context = NULL;
	pointers();
	find(HOIST__API_CUDA, "cuDevicePrimaryCtxRetain", &retain);
	find(HOIST__API_CUDA, "cuCtxPushCurrent_v2", &push);
	find(HOIST__API_CUDA, "cuCtxPopCurrent_v2", &pop);
	for (int ordinal = 0; ordinal < 2; ordinal++) {
		cr_assert(retain(&context, ordinal) == 0 && push(context) == 0);
		pointers();
		cr_assert_eq(pop(&context), 0);
	}
}
ON_EMULATED(cuda_knows_its_memory_in_any_context, HOIST__API_CUDA, pointers_in_contexts)

static void second_device(void)
{
	struct hoist__dev *second = NULL;
	uintptr_t memory = 0;
	OK(hoist__dev_get(hoist__dev_api(dev), 1, &second));
	OK(hoist__dev_mem_alloc(second, 4096, &memory));
	cr_assert_eq(ask(memory).ordinal, 1);
	OK(hoist__dev_mem_free(second, memory, 4096));
}
EMULATED(memory_belongs_to_its_device, second_device)

/* Registered memory goes by two addresses where the driver has two, and copies take both. */
static void two_addresses(void)
{
	struct hoist__dev_stream *stream = NULL;
	uintptr_t memory = 0;
	uintptr_t seen = 0;
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_host_address(dev, host, &seen));
	if (hoist__dev_api(dev) == HOIST__API_HIP && hoist__api_emulated(HOIST__API_HIP))
		cr_assert_neq(seen, (uintptr_t)host);
	memset(host, 7, 4096);
	OK(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, seen, 4096));
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, seen + 4096, memory, 4096));
	OK(hoist__fill_async(stream, seen + 8192, 0x0201, 2, 2048));
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(memcmp(host, host + 4096, 4096), 0);
	cr_assert_eq(host[8192], 1);
	cr_assert_eq(host[8192 + 4095], 2);
	struct hoist__pointer pointer = ask(seen + 10);
	cr_assert(pointer.host && pointer.device);
	cr_assert_eq(pointer.device_address, seen + 10);
	OK(hoist__dev_host_unregister(dev, host, BYTES));
	if (seen != (uintptr_t)host)
		cr_assert_neq(
			hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, seen, 4096),
			0, "that name has gone");
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	hoist__dev_stream_destroy(stream);
}
EVERYWHERE(registered_memory_goes_by_either_address, two_addresses)

/* Asking costs nobody their last error, and failures that are answers leave none. */
static void last_error(void)
{
	int (*fail)(const char *);
	unsigned (*get)(void);
	struct hoist__pointer pointer;
	OK(hoist__dev_synchronize(dev));
	find(HOIST__API_HIP, "hoist_emulator_fail", &fail);
	find(HOIST__API_HIP, "hipGetLastError", &get);
	cr_assert_eq(fail("hipPointerGetAttributes:1:1"), 0); /* ROCm 5's way of saying it */
	expect_unknown((uintptr_t)host);
	cr_assert_eq(get(), 0);
	cr_assert_eq(fail("hipPointerGetAttributes:1:719"), 0);
	cr_assert_eq(hoist__pointer_find((uintptr_t)host, &pointer), -EREMOTEIO);
	cr_assert_not_null(strstr(hoist__error_text(), "HIP error 719"), "%s", hoist__error_text());
	cr_assert_eq(get(), 0);
}
ON_EMULATED(hip_asking_leaves_no_last_error, HOIST__API_HIP, last_error)

/* Host memory has an address for kernels, which is asked for in a context. */
static void asking_for_host_memory_fails(void)
{
	static const char *const calls[] = {"cuCtxGetCurrent", "cuMemHostGetDevicePointer"};
	int (*fail)(const char *);
	struct hoist__pointer pointer;
	OK(hoist__dev_host_register(dev, host, BYTES));
	find(HOIST__API_CUDA, "hoist_emulator_fail", &fail);
	for (size_t i = 0; i < 2; i++) {
		char spec[64];
		(void)snprintf(spec, sizeof spec, "%s:1:719", calls[i]);
		cr_assert_eq(fail(spec), 0);
		cr_assert_eq(hoist__pointer_find((uintptr_t)host, &pointer), -EREMOTEIO);
	}
	/* A driver that takes the address for the kernels' own. */
	cr_assert_eq(fail("cuMemHostGetDevicePointer:1:1"), 0);
	cr_assert_eq(ask((uintptr_t)host + 7).device_address, (uintptr_t)host + 7);
	OK(hoist__dev_host_unregister(dev, host, BYTES));
}
ON_EMULATED(cuda_asking_for_host_memory_can_fail, HOIST__API_CUDA, asking_for_host_memory_fails)

static void asking_fails(void)
{
	int (*fail)(const char *);
	struct hoist__pointer pointer;
	OK(hoist__dev_synchronize(dev));
	find(HOIST__API_CUDA, "hoist_emulator_fail", &fail);
	static const char *const unknown[] = {"3", "4", "201"};
	for (size_t i = 0; i < 3; i++) {
		char spec[64];
		(void)snprintf(spec, sizeof spec, "cuPointerGetAttributes:1:%s", unknown[i]);
		cr_assert_eq(fail(spec), 0);
		expect_unknown((uintptr_t)host);
	}
	/* A driver that says it of what it does not know, and one that is too old to say all. */
	uintptr_t memory = 0;
	OK(hoist__dev_mem_alloc(dev, 4096, &memory));
	cr_assert_eq(fail("cuPointerGetAttributes:1+:1"), 0);
	expect_unknown((uintptr_t)host);
	cr_assert_eq(fail("cuPointerGetAttributes:1:1"), 0);
	expect_unknown((uintptr_t)host);
	cr_assert_eq(fail("cuPointerGetAttributes:1:1"), 0);
	cr_assert_eq(hoist__pointer_find(memory, &pointer), -EREMOTEIO);
	OK(hoist__dev_mem_free(dev, memory, 4096));
	cr_assert_eq(fail("cuPointerGetAttributes:1:719"), 0);
	cr_assert_eq(hoist__pointer_find((uintptr_t)host, &pointer), -EREMOTEIO);
	cr_assert_not_null(strstr(hoist__error_text(), "CUDA error 719"), "%s",
			   hoist__error_text());
}
ON_EMULATED(cuda_asking_can_fail, HOIST__API_CUDA, asking_fails)

/* --- drivers that others loaded --- */

/* A copy of the stand-in under the driver's own name, where nothing else finds it. */
static void *load_as(const char *stand_in, const char *name)
{
	char command[12000];
	char path[4096];
	char folder[2048];
	const char *temporary = getenv("TMPDIR");
	(void)snprintf(folder, sizeof folder, "%s/query-XXXXXX",
		       temporary == NULL ? "/tmp" : temporary);
	cr_assert_not_null(mkdtemp(folder)); /* tests run at the same time */
	(void)snprintf(path, sizeof path, "%s/%s", folder, name);
	(void)snprintf(command, sizeof command, "cp '%s/%s' '%s'", getenv("HOIST_EMULATOR_DIR"),
		       stand_in, path);
	cr_assert_eq(system(command), 0, "%s", command);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	cr_assert_not_null(library, "%s", dlerror());
	cr_assert(unlink(path) == 0 && rmdir(folder) == 0);
	return library;
}

static void symbol(void *library, const char *name, void *pointer)
{
	void *found = dlsym(library, name);
	cr_assert_not_null(found, "%s", dlerror());
	memcpy(pointer, &found, sizeof found);
}

/* As a program starts a driver of its own: device memory of 4096 bytes. */
static unsigned long long start_cuda(void *cuda)
{
	unsigned (*init)(unsigned);
	unsigned (*retain)(void **, int);
	unsigned (*push)(void *);
	unsigned (*alloc)(unsigned long long *, size_t);
	void *context = NULL;
	unsigned long long memory = 0;
	symbol(cuda, "cuInit", &init);
	symbol(cuda, "cuDevicePrimaryCtxRetain", &retain);
	symbol(cuda, "cuCtxPushCurrent_v2", &push);
	symbol(cuda, "cuMemAlloc_v2", &alloc);
	cr_assert(init(0) == 0 && retain(&context, 0) == 0 && push(context) == 0 &&
		  alloc(&memory, 4096) == 0);
	return memory;
}

static void register_in_cuda(void *cuda, void *address, size_t bytes)
{
	unsigned (*register_host)(void *, size_t, unsigned);
	symbol(cuda, "cuMemHostRegister_v2", &register_host);
	cr_assert_eq(register_host(address, bytes, 0), 0);
}

static void leave_cuda(void *cuda)
{
	unsigned (*pop)(void **);
	void *context = NULL;
	symbol(cuda, "cuCtxPopCurrent_v2", &pop);
	cr_assert_eq(pop(&context), 0);
}

Test(device_query, a_driver_that_others_loaded_is_asked)
{
	static unsigned char registered[64];
	unsigned (*hip_malloc)(void **, size_t);
	void *hip_memory = NULL;
	int local = 0;
	if (!have_stand_ins())
		cr_skip_test("the stand-in drivers are not built");
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	expect_unknown((uintptr_t)&local);
	expect_unknown((uintptr_t)&local);
	void *cuda = load_as("libhoist-emulated-cuda.so", "libcuda.so.1");
	expect_unknown((uintptr_t)&local); /* loaded, not started */
	unsigned long long memory = start_cuda(cuda);
	register_in_cuda(cuda, registered, sizeof registered);
	struct hoist__pointer pointer = ask((uintptr_t)memory + 3);
	cr_assert(pointer.api == HOIST__API_CUDA && pointer.ordinal == 0);
	cr_assert(pointer.device && !pointer.host);
	leave_cuda(cuda);
	pointer = ask((uintptr_t)memory + 3);
	cr_assert(pointer.device && !pointer.host, "as before: no context is current now");
	pointer = ask((uintptr_t)registered + 5);
	cr_assert(pointer.api == HOIST__API_CUDA && pointer.device && pointer.host);
	cr_assert_eq(pointer.device_address, (uintptr_t)registered + 5);
	void *hip = load_as("libhoist-emulated-hip.so", "libamdhip64-1a2b.so.6");
	symbol(hip, "hipMalloc", &hip_malloc);
	cr_assert_eq(hip_malloc(&hip_memory, 4096), 0);
	pointer = ask((uintptr_t)hip_memory);
	cr_assert(pointer.api == HOIST__API_HIP && pointer.ordinal == 0 && pointer.device);
	expect_unknown((uintptr_t)&local);
	cr_assert_str_empty(hoist__api_library(HOIST__API_CUDA), "hoist has opened it");
	cr_assert_str_empty(hoist__api_library(HOIST__API_HIP), "hoist has opened it");
}

/* A framework's own runtime comes before the system's, whatever its name; a variable before both.
 */
Test(device_query, a_driver_that_others_loaded_is_the_one_opened)
{
	static const struct {
		enum hoist__api api;
		const char *stand_in, *name, *init, *variable;
	} rows[] = {
		{HOIST__API_HIP, "libhoist-emulated-hip.so", "libamdhip64-1a2b.so.6", "hipInit",
		 "HOIST_HIP_LIBRARY"},
		{HOIST__API_CUDA, "libhoist-emulated-cuda.so", "libcuda.so.550.1", "cuInit",
		 "HOIST_CUDA_LIBRARY"},
	};
	if (!have_stand_ins())
		cr_skip_test("the stand-in drivers are not built");
	for (size_t i = 0; i < 2; i++) {
		unsigned (*init)(unsigned);
		int count = 0;
		setenv("HOIST_EMULATE", "cuda:2,hip:2", 1); /* for what is loaded here alone */
		symbol(load_as(rows[i].stand_in, rows[i].name), rows[i].init, &init);
		cr_assert_eq(init(0), 0);
		unsetenv("HOIST_EMULATE");
		setenv(rows[i].variable, "/nowhere/libdriver.so", 1);
		cr_assert_eq(hoist__dev_count(rows[i].api, &count), -ENODEV);
		cr_assert_not_null(strstr(hoist__error_text(), "/nowhere/libdriver.so"));
		unsetenv(rows[i].variable);
		OK(hoist__dev_count(rows[i].api, &count));
		cr_assert_eq(count, 2);
		cr_assert_not_null(strstr(hoist__api_library(rows[i].api), rows[i].name), "%s",
				   hoist__api_library(rows[i].api));
		cr_assert_str_eq(hoist__api_library_reason(rows[i].api),
				 "this process had loaded it");
	}
}

Test(device_query, asking_opens_no_driver)
{
	int local = 0;
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	expect_unknown((uintptr_t)&local);
	cr_assert_str_empty(hoist__api_library(HOIST__API_CUDA));
	cr_assert_null(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
	cr_assert_null(dlopen("libhoist-emulated-cuda.so", RTLD_NOW | RTLD_NOLOAD));
}

/* Hoist failed to start a driver; the program did not, later. */
Test(device_query, a_driver_that_only_others_could_start_is_asked)
{
	int count = 0;
	if (!have_stand_ins())
		cr_skip_test("the stand-in drivers are not built");
	setenv("HOIST_EMULATE", "cuda:1", 1);
	setenv("HOIST_EMULATE_FAIL", "cuInit:1+:2", 1);
	cr_assert_lt(hoist__dev_count(HOIST__API_CUDA, &count), 0);
	unsetenv("HOIST_EMULATE_FAIL");
	void *cuda = load_as("libhoist-emulated-cuda.so", "libcuda.so.1");
	unsigned long long memory = start_cuda(cuda);
	struct hoist__pointer pointer = ask((uintptr_t)memory);
	cr_assert(pointer.api == HOIST__API_CUDA && pointer.device && !pointer.host);
	expect_unknown((uintptr_t)&count);
}

/* What fails for every address, as a driver of another version does, tells nothing of any. */
Test(device_query, a_driver_that_nobody_can_start_is_nobodys)
{
	int count = 0;
	if (!have_stand_ins())
		cr_skip_test("the stand-in drivers are not built");
	setenv("HOIST_EMULATE", "cuda:1", 1);
	setenv("HOIST_EMULATE_FAIL", "cuInit:1+:803,cuPointerGetAttributes:1+:803", 1);
	(void)load_as("libhoist-emulated-cuda.so", "libcuda.so.1");
	cr_assert_lt(hoist__dev_count(HOIST__API_CUDA, &count), 0);
	expect_unknown((uintptr_t)&count);
}

/* A driver that could not be opened knows no address. */
Test(device_query, a_driver_without_devices_is_not_asked)
{
	int count = 0;
	int local = 0;
	if (!have_stand_ins())
		cr_skip_test("the stand-in drivers are not built");
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	setenv("HOIST_EMULATE_FAIL", "cuInit:1+:100", 1);
	cr_assert_eq(hoist__dev_count(HOIST__API_CUDA, &count), -ENODEV);
	cr_assert_str_not_empty(hoist__api_library(HOIST__API_CUDA));
	expect_unknown((uintptr_t)&local);
}
