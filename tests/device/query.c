/* SPDX-License-Identifier: MIT */
/* The answers of drivers about devices and addresses: see device-driver.h. */
#include "config.h"

#define SUITE device_query

#include <errno.h>

#include "device/cuda.h"
#include "device/hip.h"
#include "tests/support/device-driver.h"

/* --- properties --- */

static void properties(void)
{
	const struct hoist__dev_props *props = hoist__dev_props(dev);
	enum hoist__api api = hoist__dev_api(dev);
	struct hoist__dev *again = NULL;
	unsigned part;
	int count = 0;
	OK(hoist__dev_count(api, &count));
	cr_assert_geq(count, 1);
	OK(hoist__dev_get(api, 0, &again));
	cr_assert_eq(again, dev);
	cr_assert_eq(hoist__dev_get(api, count, &again), -EINVAL);
	SAYS("there is no device");
	cr_assert_eq(again, dev);
	cr_assert_str_not_empty(props->name);
	cr_assert_eq(strncmp(props->architecture, api == HOIST__API_CUDA ? "sm_" : "gfx", 3), 0);
	cr_assert_gt(strlen(props->architecture), 3, "%s", props->architecture);
	cr_assert_null(strchr(props->architecture, ':'));
	cr_assert_eq(sscanf(props->pci, "%x:%x:%x.%x", &part, &part, &part, &part), 4, "%s",
		     props->pci);
	cr_assert_gt(props->total_bytes, BYTES);
	cr_assert_gt(props->driver_version, 0);
	cr_assert_geq(props->numa_node, -1);
	cr_assert_eq(props->emulated, hoist__api_emulated(api));
	cr_assert_str_not_empty(hoist__api_library(api));
}
EVERYWHERE(device_has_properties, properties)

/* --- a device with the host's memory: no stand-in is one --- */

static __typeof__(hoist__cuda.cuDeviceGetAttribute) ask_cuda;
static __typeof__(hoist__hip.hipDeviceGetAttribute) ask_hip;
static int answer_unified;

static hoist__cu_result cuda_unified(int *ret, hoist__cu_attribute attribute,
				     hoist__cu_device device)
{
	if (attribute != HOIST__CU_ATTRIBUTE_INTEGRATED)
		return ask_cuda(ret, attribute, device);
	*ret = 1;
	return (hoist__cu_result)answer_unified;
}

static hoist__hip_error hip_unified(int *ret, hoist__hip_attribute attribute, int device)
{
	if (attribute != HOIST__HIP_ATTRIBUTE_INTEGRATED)
		return ask_hip(ret, attribute, device);
	*ret = 1;
	return (hoist__hip_error)answer_unified;
}

static void unified_memory(void)
{
	bool is_cuda = hoist__dev_api(dev) == HOIST__API_CUDA;
	ask_cuda = hoist__cuda.cuDeviceGetAttribute;
	ask_hip = hoist__hip.hipDeviceGetAttribute;
	hoist__cuda.cuDeviceGetAttribute = cuda_unified;
	hoist__hip.hipDeviceGetAttribute = hip_unified;
	for (answer_unified = 0; answer_unified <= 1; answer_unified++) {
		OK(is_cuda ? hoist__cuda_probe(dev) : hoist__hip_probe(dev));
		cr_expect_eq(hoist__dev_props(dev)->is_unified, answer_unified == 0);
	}
	hoist__cuda.cuDeviceGetAttribute = ask_cuda;
	hoist__hip.hipDeviceGetAttribute = ask_hip;
}
EVERYWHERE(memory_of_device_and_host, unified_memory)

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

/* The promise holds: work of the device touches the peer's memory, as a kernel does. */
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

/* A driver opens its pools one by one to a peer: pools made before peer access, and after it. */
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

/* A pool is not made if a device that was promised access to its memory cannot have access. */
static void opening_a_pool_fails(void)
{
	struct hoist__dev_pool *pool = NULL;
	bool can = false;
	open_peers();
	OK(hoist__dev_can_access(dev, peer, &can));
	inject_in("cuMemPoolSetAccess", "hipMemPoolSetAccess", "1");
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
	const char *function = is_cuda() ? "cuCtxEnablePeerAccess" : "hipDeviceEnablePeerAccess";
	open_peers();
	for (size_t i = 0; i < 2; i++) {
		char spec[64];
		bool can = false;
		uint64_t staged = counters().staged_copies;
		(void)snprintf(spec, sizeof spec, "%s:1+:%d", function, rows[i].code);
		inject(spec);
		cr_assert_eq(hoist__dev_can_access(dev, peer, &can), rows[i].err);
		cr_assert_eq(can, rows[i].can);
		uint64_t before = control.calls(function);
		OK(copy_from_peer());
		cr_assert_eq(counters().staged_copies, staged + 1);
		cr_assert_eq(control.calls(function) > before, rows[i].again);
	}
	inject("");
	close_peers();
}
EMULATED(access_that_cannot_be_enabled_is_not_promised, enabling_fails)

static void enabled_by_others(void)
{
	bool can = false;
	open_peers();
	inject_in("cuCtxEnablePeerAccess", "hipDeviceEnablePeerAccess", "1:704");
	OK(hoist__dev_can_access(dev, peer, &can));
	cr_assert(can);
	if (!is_cuda()) {
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
	set_up();
	inject("async:1");
	to_device(stream, memory, (uintptr_t)host, BYTES);
	cr_assert_eq(hoist__dev_synchronize(dev), -EREMOTEIO);
	SAYS("waiting for the device");
	tear_down_with(-EREMOTEIO);
}
EMULATED(synchronize_tells_of_failed_work, synchronize_failing)

Test(device_query, the_cpu_has_nothing_to_wait_for)
{
	open_device(HOIST__API_CPU);
	OK(hoist__dev_synchronize(dev));
}

/* --- addresses --- */

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
	OK(hoist__dev_get(hoist__dev_api(dev), 1, &second));
	OK(hoist__dev_mem_alloc(second, 4096, &memory));
	cr_assert_eq(ask(memory).ordinal, 1);
	OK(hoist__dev_mem_free(second, memory, 4096));
}
EMULATED(memory_belongs_to_its_device, second_device)

/* Registered memory goes by two addresses where the driver has two, and copies take both. */
static void two_addresses(void)
{
	uintptr_t seen = 0;
	set_up();
	OK(hoist__dev_host_address(dev, host, &seen));
	if (!is_cuda() && hoist__api_emulated(HOIST__API_HIP))
		cr_assert_neq(seen, (uintptr_t)host);
	memset(host, 7, 4096);
	to_device(stream, memory, seen, 4096);
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
	unsigned (*get)(void);
	struct hoist__pointer pointer;
	OK(hoist__dev_synchronize(dev));
	find(HOIST__API_HIP, "hipGetLastError", &get);
	inject("hipPointerGetAttributes:1:1"); /* ROCm 5's way of saying it */
	expect_unknown((uintptr_t)host);
	cr_assert_eq(get(), 0);
	inject("hipPointerGetAttributes:1:719");
	cr_assert_eq(hoist__pointer_find((uintptr_t)host, &pointer), -EREMOTEIO);
	SAYS("HIP error 719");
	cr_assert_eq(get(), 0);
}
ON_EMULATED(hip_asking_leaves_no_last_error, HOIST__API_HIP, last_error)

/* Host memory has an address for kernels, which is asked for in a context. */
static void asking_for_host_memory_fails(void)
{
	static const char *const calls[] = {"cuCtxGetCurrent", "cuMemHostGetDevicePointer"};
	struct hoist__pointer pointer;
	OK(hoist__dev_host_register(dev, host, BYTES));
	for (size_t i = 0; i < 2; i++) {
		char spec[64];
		(void)snprintf(spec, sizeof spec, "%s:1:719", calls[i]);
		inject(spec);
		cr_assert_eq(hoist__pointer_find((uintptr_t)host, &pointer), -EREMOTEIO);
	}
	/* A driver that takes the address for the kernels' own. */
	inject("cuMemHostGetDevicePointer:1:1");
	cr_assert_eq(ask((uintptr_t)host + 7).device_address, (uintptr_t)host + 7);
	OK(hoist__dev_host_unregister(dev, host, BYTES));
}
ON_EMULATED(cuda_asking_for_host_memory_can_fail, HOIST__API_CUDA, asking_for_host_memory_fails)

static void asking_fails(void)
{
	struct hoist__pointer pointer;
	OK(hoist__dev_synchronize(dev));
	static const char *const unknown[] = {"3", "4", "201"};
	for (size_t i = 0; i < 3; i++) {
		char spec[64];
		(void)snprintf(spec, sizeof spec, "cuPointerGetAttributes:1:%s", unknown[i]);
		inject(spec);
		expect_unknown((uintptr_t)host);
	}
	/* A driver that says it of what it does not know, and one that is too old to say all. */
	OK(hoist__dev_mem_alloc(dev, 4096, &memory));
	inject("cuPointerGetAttributes:1+:1");
	expect_unknown((uintptr_t)host);
	inject("cuPointerGetAttributes:1:1");
	expect_unknown((uintptr_t)host);
	inject("cuPointerGetAttributes:1:1");
	cr_assert_eq(hoist__pointer_find(memory, &pointer), -EREMOTEIO);
	OK(hoist__dev_mem_free(dev, memory, 4096));
	inject("cuPointerGetAttributes:1:719");
	cr_assert_eq(hoist__pointer_find((uintptr_t)host, &pointer), -EREMOTEIO);
	SAYS("CUDA error 719");
}
ON_EMULATED(cuda_asking_can_fail, HOIST__API_CUDA, asking_fails)
