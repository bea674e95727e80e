/* SPDX-License-Identifier: MIT */
/* The stand-in answers what programs ask of a real libcuda, beside hoist's own calls. */
#include "config.h"

#include <criterion/criterion.h>
#include <string.h>

#include "emulator/cuda-client.h"
#include "tests/support/emulator-driver.h"

#define BYTES ((size_t)4096)

enum {
	INVALID = HOIST__CU_ERROR_INVALID_VALUE,
	HANDLE = HOIST__CU_ERROR_INVALID_HANDLE,
	CONTEXT = HOIST__CU_ERROR_INVALID_CONTEXT,
	DESTROYED = 709,
	UNSUPPORTED = HOIST__CU_ERROR_NOT_SUPPORTED
};

static struct cuda cu;

/* The functions, by symbol: two versions of one function may be there. */
static struct {
#define X(name, symbol, result, arguments, need, since) result(*symbol) arguments;
	EMU_CUDA_CLIENT_TABLE(X)
#undef X
} client;

static void find_client(void)
{
#define X(name, symbol, result, arguments, need, since)                                            \
	*(void **)&client.symbol = driver_symbol(cu.so, #symbol);
	EMU_CUDA_CLIENT_TABLE(X)
#undef X
}

static void start(void)
{
	cuda_start(&cu, "cuda:2", 0);
	find_client();
}

/* --- addresses of functions --- */

static void *ask(const char *name, int version, uint64_t flags, int *status)
{
	void *ret = &cu;
	cr_assert(client.cuGetProcAddress_v2(name, &ret, version, flags, status) == 0, "%s", name);
	return ret;
}

Test(emulator_client, addresses_go_by_version)
{
	static const struct {
		const char *name;
		int version;
		const char *symbol; /* NULL: none */
		int status;
	} cases[] = {
		{"cuInit", 2000, "cuInit", EMU_CU_FOUND},
		{"cuMemAlloc", 3020, "cuMemAlloc_v2", EMU_CU_FOUND},
		{"cuMemAlloc", 3010, NULL, EMU_CU_NO_VERSION},
		{"cuGetProcAddress", 11030, "cuGetProcAddress", EMU_CU_FOUND},
		{"cuGetProcAddress", 13000, "cuGetProcAddress_v2", EMU_CU_FOUND},
		{"cuEventElapsedTime", 12070, "cuEventElapsedTime", EMU_CU_FOUND},
		{"cuEventElapsedTime", 12080, "cuEventElapsedTime_v2", EMU_CU_FOUND},
		{"cuStreamGetCtx", 12040, "cuStreamGetCtx", EMU_CU_FOUND},
		{"cuStreamGetCtx", 12050, "cuStreamGetCtx_v2", EMU_CU_FOUND}, /* lacked */
		{"cuGraphCreate", 10000, "cuGraphCreate", EMU_CU_FOUND},      /* lacked */
		{"cuGraphCreate", 9000, NULL, EMU_CU_NO_VERSION},
		{"cuMemAlloc_v2", 13000, NULL, EMU_CU_NO_SYMBOL},
		{"cuNothing", 13000, NULL, EMU_CU_NO_SYMBOL},
		{"cuMem", 13000, NULL, EMU_CU_NO_SYMBOL},
		{"", 13000, NULL, EMU_CU_NO_SYMBOL},
	};
	cuda_open(&cu, "cuda:1"); /* no cuInit() is needed */
	find_client();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int status = -1;
		void *expected = cases[i].symbol != NULL ? dlsym(cu.so, cases[i].symbol) : NULL;
		cr_expect(ask(cases[i].name, cases[i].version, 0, &status) == expected, "%s %d",
			  cases[i].name, cases[i].version);
		cr_expect(status == cases[i].status, "%s %d: %d", cases[i].name, cases[i].version,
			  status);
		cr_expect((expected != NULL) == (cases[i].symbol != NULL), "%s is not exported",
			  cases[i].symbol);
	}
	cr_expect(ask("cuInit", 2000, 0, NULL) != NULL, "the status is optional");
}

Test(emulator_client, addresses_are_refused)
{
	void *at = &cu;
	int status = 7;
	cuda_open(&cu, "cuda:1");
	find_client();
	cr_expect(client.cuGetProcAddress_v2(NULL, &at, 13000, 0, NULL) == INVALID);
	cr_expect(client.cuGetProcAddress_v2("cuInit", NULL, 13000, 0, NULL) == INVALID);
	cr_expect(client.cuGetProcAddress_v2("cuInit", &at, EMU_CUDA_VERSION + 10, 0, &status) ==
		  INVALID);
	cr_expect(client.cuGetProcAddress_v2("cuInit", &at, -1, 0, &status) == INVALID);
	cr_expect(client.cuGetProcAddress_v2("cuInit", &at, 13000, 3, &status) == INVALID);
	cr_expect(client.cuGetProcAddress_v2("cuInit", &at, 13000, 4, &status) == INVALID);
	cr_expect(at == &cu && status == 7, "a refused call gives nothing");
	cr_expect(client.cuGetProcAddress("cuInit", &at, 11030, 0) == 0 && at != &cu);
	cr_expect(client.cuGetProcAddress("cuNothing", &at, 11030, 0) == HOIST__CU_ERROR_NOT_FOUND);
}

Test(emulator_client, each_stream_variant_is_found)
{
	hoist__cu_result (*flags_of)(hoist__cu_stream stream, unsigned *ret) = NULL;
	unsigned long long ids[2] = {0, 0};
	start();
	void *plain = ask("cuStreamGetId", 13000, EMU_CU_LEGACY_STREAM, NULL);
	void *own = ask("cuStreamGetId", 13000, EMU_CU_STREAM_OF_THREAD, NULL);
	cr_assert(plain != own && own == dlsym(cu.so, "cuStreamGetId_ptsz"));
	__typeof__(client.cuStreamGetId) get_id = NULL;
	*(void **)&get_id = own;
	cr_expect(client.cuStreamGetId(NULL, &ids[0]) == 0);
	cr_expect(get_id(NULL, &ids[1]) == 0);
	cr_expect(ids[0] != ids[1], "the NULL stream is another one for the variant");
	cr_expect(ask("cuMemcpyHtoD", 13000, 2, NULL) == dlsym(cu.so, "cuMemcpyHtoD_v2_ptds"));
	cr_expect(ask("cuInit", 13000, 2, NULL) == dlsym(cu.so, "cuInit"), "has no stream");
	*(void **)&flags_of = ask("cuStreamGetFlags", 13000, 2, NULL);
	unsigned flags = 9;
	cr_expect(flags_of(NULL, &flags) == 0 && flags == 0);
}

Test(emulator_client, lacked_functions_say_so)
{
	hoist__cu_result (*lacked)(void *) = NULL;
	cuda_open(&cu, "cuda:1");
	find_client();
	*(void **)&lacked = ask("cuGraphCreate", 13000, 0, NULL);
	cr_expect(lacked(NULL) == HOIST__CU_ERROR_NOT_INITIALIZED);
	cr_assert(cu.cuInit(0) == 0);
	cr_expect(lacked(NULL) == UNSUPPORTED);
}

/* --- contexts --- */

Test(emulator_client, the_last_release_ends_a_context)
{
	hoist__cu_context context = NULL;
	hoist__cu_device_ptr memory = 0;
	hoist__cu_device device = -1;
	unsigned flags = 0;
	int active = 0;
	start();
	cr_assert(cu.cuDevicePrimaryCtxRetain(&context, 0) == 0); /* the second time */
	cr_expect(client.cuDevicePrimaryCtxRelease_v2(0) == 0);
	cr_expect(cu.cuMemAlloc(&memory, BYTES) == 0);
	cr_expect(cu.cuMemFree(memory) == 0);
	cr_expect(client.cuDevicePrimaryCtxRelease_v2(0) == 0);
	cr_expect(cu.cuMemAlloc(&memory, BYTES) == DESTROYED);
	cr_expect(client.cuDevicePrimaryCtxRelease_v2(0) == CONTEXT);
	cr_expect(client.cuDevicePrimaryCtxRelease_v2(2) == HOIST__CU_ERROR_INVALID_DEVICE);
	cr_expect(cu.cuCtxPushCurrent(context) == CONTEXT);
	cr_expect(client.cuCtxSetCurrent(context) == CONTEXT);
	cr_expect(client.cuDevicePrimaryCtxSetFlags_v2(0, 4) == 0);
	cr_expect(client.cuDevicePrimaryCtxSetFlags_v2(0, 3) == INVALID, "two ways to wait");
	cr_expect(cu.cuDevicePrimaryCtxGetState(0, &flags, &active) == 0);
	cr_expect(flags == 4 && active == 0);
	cr_assert(cu.cuDevicePrimaryCtxRetain(&context, 1) == 0);
	cr_expect(client.cuCtxSetCurrent(context) == 0);
	cr_expect(client.cuCtxGetDevice(&device) == 0 && device == 1);
	cr_expect(client.cuCtxSetCurrent(NULL) == 0);
	cr_expect(client.cuCtxGetDevice(&device) == CONTEXT);
	cr_expect(client.cuCtxGetDevice_v2(&device, context) == 0 && device == 1);
}

/* --- memory --- */

Test(emulator_client, pinned_memory_ends_by_its_own_function_alone)
{
	unsigned char *memory = NULL;
	unsigned type = 0;
	start();
	cr_expect(client.cuMemHostAlloc((void **)&memory, 0, 0) == INVALID);
	cr_expect(client.cuMemHostAlloc((void **)&memory, BYTES, 8) == INVALID);
	cr_assert(client.cuMemHostAlloc((void **)&memory, BYTES, 1) == 0);
	memory[BYTES - 1] = 3;
	cr_expect(client.cuPointerGetAttribute(&type, HOIST__CU_POINTER_MEMORY_TYPE,
					       (uintptr_t)memory) == 0);
	cr_expect(type == HOIST__CU_MEMORY_HOST);
	cr_expect(cu.cuMemHostUnregister(memory) == HOIST__CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
	cr_expect(cu.cuMemFree((uintptr_t)memory) == INVALID);
	cr_expect(client.cuMemFreeHost(memory + 1) == INVALID);
	cr_expect(client.cuMemFreeHost(memory) == 0);
	cr_expect(client.cuMemFreeHost(memory) == INVALID);
	cr_expect(client.cuPointerGetAttribute(&type, HOIST__CU_POINTER_MEMORY_TYPE,
					       (uintptr_t)memory) == INVALID);
	static unsigned char registered[2 * BYTES];
	cr_assert(cu.cuMemHostRegister(registered, BYTES, 0) == 0);
	cr_expect(client.cuMemFreeHost(registered) == INVALID);
	cr_expect(cu.cuMemHostUnregister(registered) == 0);
}

/* The host writes a block of the pool, and a copy on a stream carries the bytes on. */
static void use_pool(hoist__cu_pool pool, unsigned type, bool managed)
{
	hoist__cu_device_ptr block = 0;
	hoist__cu_device_ptr copy = 0;
	hoist__cu_stream stream = NULL;
	unsigned got = 0;
	bool is_managed = !managed;
	unsigned char back[BYTES] = {0};
	cr_assert(cu.cuStreamCreate(&stream, 1) == 0);
	cr_assert(cu.cuMemAllocFromPoolAsync(&block, BYTES, pool, stream) == 0);
	cr_assert(cu.cuMemAlloc(&copy, BYTES) == 0);
	memset((void *)(uintptr_t)block, 5, BYTES);
	cr_expect(client.cuPointerGetAttribute(&got, HOIST__CU_POINTER_MEMORY_TYPE, block) == 0);
	cr_expect(got == type);
	cr_expect(client.cuPointerGetAttribute(&is_managed, HOIST__CU_POINTER_IS_MANAGED, block) ==
		  0);
	cr_expect(is_managed == managed);
	cr_expect(client.cuMemcpyAsync(copy, block, BYTES, stream) == 0);
	cr_expect(client.cuMemcpyAsync((uintptr_t)back, copy, BYTES, stream) == 0);
	cr_expect(cu.cuStreamSynchronize(stream) == 0);
	cr_expect(back[0] == 5 && back[BYTES - 1] == 5);
	cr_expect(cu.cuMemHostUnregister((void *)(uintptr_t)block) ==
		  HOIST__CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
	cr_expect(cu.cuMemFreeAsync(block, stream) == 0);
	cr_expect(cu.cuMemFreeAsync(block, stream) == INVALID);
	cr_expect(cu.cuMemFree(copy) == 0);
	cr_expect(cu.cuStreamDestroy(stream) == 0);
}

Test(emulator_client, pools_of_the_host_and_of_managed_memory)
{
	static const struct {
		unsigned type, location_type;
		int location;
		unsigned result;
	} cases[] = {
		{1, HOIST__CU_LOCATION_HOST, 0, 0},
		{1, HOIST__CU_LOCATION_HOST_NODE, 0, 0},
		{EMU_CU_ALLOCATION_MANAGED, EMU_CU_LOCATION_NONE, 0, 0},
		{EMU_CU_ALLOCATION_MANAGED, HOIST__CU_LOCATION_DEVICE, 1, 0},
		{EMU_CU_ALLOCATION_MANAGED, HOIST__CU_LOCATION_HOST, 0, 0},
		{1, EMU_CU_LOCATION_NONE, 0, INVALID},
		{1, HOIST__CU_LOCATION_HOST_NODE, -1, INVALID},
		{1, 9, 0, INVALID},
		{3, HOIST__CU_LOCATION_DEVICE, 0, INVALID},
		{1, HOIST__CU_LOCATION_DEVICE, 2, HOIST__CU_ERROR_INVALID_DEVICE},
	};
	start();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct hoist__cu_pool_props props = {
			.type = cases[i].type,
			.location_type = cases[i].location_type,
			.location = cases[i].location,
		};
		struct hoist__cu_location location = {cases[i].location_type, cases[i].location};
		bool managed = cases[i].type == EMU_CU_ALLOCATION_MANAGED;
		hoist__cu_pool pool = NULL;
		hoist__cu_pool own = NULL;
		cr_expect(cu.cuMemPoolCreate(&pool, &props) == cases[i].result, "%zu", i);
		cr_expect(client.cuMemGetMemPool(&own, &location, cases[i].type) == cases[i].result,
			  "%zu", i);
		if (cases[i].result != 0)
			continue;
		unsigned type = managed ? HOIST__CU_MEMORY_DEVICE : HOIST__CU_MEMORY_HOST;
		use_pool(pool, type, managed);
		use_pool(own, type, managed);
		cr_expect(cu.cuMemPoolDestroy(pool) == 0);
		cr_expect(cu.cuMemPoolDestroy(own) == INVALID, "the driver's own");
	}
	struct hoist_emulator_counters count = counters_of(&cu.control);
	cr_expect(count.live_allocations == 0 && count.live_pools == 0);
	const struct hoist__cu_pool_props shared = {
		.type = 1, .handle_types = 1, .location_type = HOIST__CU_LOCATION_HOST};
	hoist__cu_pool pool = NULL;
	cr_expect(cu.cuMemPoolCreate(&pool, &shared) == UNSUPPORTED);
}

Test(emulator_client, a_device_has_the_pool_that_was_set)
{
	const struct hoist__cu_pool_props props = {.type = 1,
						   .location_type = HOIST__CU_LOCATION_DEVICE};
	hoist__cu_pool own = NULL, made = NULL, got = NULL;
	start();
	cr_assert(client.cuDeviceGetDefaultMemPool(&own, 0) == 0);
	cr_assert(cu.cuMemPoolCreate(&made, &props) == 0);
	cr_expect(client.cuDeviceSetMemPool(1, made) == INVALID, "a pool of another device");
	cr_expect(client.cuDeviceSetMemPool(0, NULL) == INVALID);
	cr_expect(client.cuDeviceSetMemPool(0, made) == 0);
	cr_expect(cu.cuDeviceGetMemPool(&got, 0) == 0 && got == made);
	cr_expect(client.cuDeviceGetDefaultMemPool(&got, 0) == 0 && got == own);
	cr_expect(cu.cuMemPoolDestroy(made) == 0);
	cr_expect(cu.cuDeviceGetMemPool(&got, 0) == 0 && got == own);
}

/* Each kind of memory on either side. */
Test(emulator_client, a_copy_finds_its_direction)
{
	static unsigned char pageable[4][BYTES];
	unsigned char *pinned = NULL;
	hoist__cu_device_ptr device = 0;
	start();
	cr_assert(client.cuMemAllocHost_v2((void **)&pinned, BYTES) == 0);
	cr_assert(cu.cuMemAlloc(&device, BYTES) == 0);
	memset(pageable[0], 1, BYTES);
	cr_expect(client.cuMemcpy((uintptr_t)pageable[1], (uintptr_t)pageable[0], BYTES) == 0);
	cr_expect(client.cuMemcpy((uintptr_t)pinned, (uintptr_t)pageable[1], BYTES) == 0);
	cr_expect(client.cuMemcpy(device, (uintptr_t)pinned, BYTES) == 0);
	cr_expect(client.cuMemcpy((uintptr_t)pageable[2], device, BYTES) == 0);
	cr_expect(memcmp(pageable[0], pageable[2], BYTES) == 0);
	cr_expect(client.cuMemsetD32_v2(device, 0x02020202, BYTES / 4) == 0);
	cr_expect(client.cuMemcpyDtoD_v2(device, device + BYTES / 2, BYTES / 2) == 0);
	cr_expect(client.cuMemcpyDtoH_v2(pageable[3], device, BYTES) == 0);
	cr_expect(pageable[3][0] == 2 && pageable[3][BYTES - 1] == 2, "the call has waited");
	cr_expect(client.cuMemcpyHtoD_v2(device + 1, pageable, BYTES) == INVALID);
	cr_expect(client.cuMemcpy(device, (uintptr_t)pinned, 0) == 0);
	cr_expect(client.cuMemFreeHost(pinned) == 0 && cu.cuMemFree(device) == 0);
}

Test(emulator_client, streams_know_what_they_are)
{
	hoist__cu_stream stream = NULL;
	hoist__cu_context context = NULL;
	int least = 1, greatest = 1, priority = 1;
	unsigned flags = 9;
	start();
	cr_expect(client.cuCtxGetStreamPriorityRange(&least, &greatest) == 0 && least == 0 &&
		  greatest < 0);
	cr_expect(client.cuStreamCreateWithPriority(&stream, 2, 0) == INVALID);
	cr_assert(client.cuStreamCreateWithPriority(&stream, 1, greatest - 9) == 0);
	cr_expect(client.cuStreamGetPriority(stream, &priority) == 0 && priority == greatest);
	cr_expect(client.cuStreamGetFlags(stream, &flags) == 0 && flags == 1);
	cr_expect(client.cuStreamGetCtx(stream, &context) == 0 && context != NULL);
	cr_expect(client.cuStreamGetCtx(stream, NULL) == INVALID);
	cr_expect(cu.cuStreamDestroy(stream) == 0);
	cr_expect(client.cuStreamGetFlags(stream, &flags) == HANDLE);
}

/* --- failures --- */

static unsigned first;

static void took(unsigned result)
{
	if (first == 0)
		first = result;
}

/* Calls each function of the table once. */
static void walk_devices(void)
{
	struct emu_cu_uuid uuid;
	void *at = NULL;
	char bus[16];
	hoist__cu_context context = NULL;
	hoist__cu_device device = -1;
	unsigned flags = 0;
	unsigned long long id = 0;
	int low = 0, high = 0;
	took(client.cuGetProcAddress("cuInit", &at, 11030, 0));
	took(client.cuGetProcAddress_v2("cuInit", &at, 13000, 0, NULL));
	took(client.cuDeviceGetUuid(&uuid, 0));
	took(client.cuDeviceGetUuid_v2(&uuid, 1));
	cr_expect(cu.cuDeviceGetPCIBusId(bus, sizeof bus, 1) == 0);
	took(client.cuDeviceGetByPCIBusId(&device, bus));
	cr_expect(first != 0 || device == 1);
	took(cu.cuDevicePrimaryCtxRetain(&context, 1));
	took(client.cuDevicePrimaryCtxRelease_v2(1));
	took(client.cuDevicePrimaryCtxSetFlags_v2(1, 0));
	took(cu.cuCtxGetCurrent(&context));
	took(client.cuCtxSetCurrent(context));
	took(client.cuCtxGetDevice(&device));
	took(client.cuCtxGetDevice_v2(&device, context));
	took(client.cuCtxGetFlags(&flags));
	took(client.cuCtxGetId(context, &id));
	took(client.cuCtxGetApiVersion(context, &flags));
	took(client.cuCtxGetStreamPriorityRange(&low, &high));
	took(client.cuCtxSynchronize_v2(context));
}

static void walk_memory(void)
{
	const struct hoist__cu_memory_props props = {.type = 1, .location = {1, 0}};
	struct hoist__cu_location location = {HOIST__CU_LOCATION_HOST, 0};
	static unsigned char bytes[BYTES];
	size_t granule = (size_t)2 << 20;
	hoist__cu_device_ptr address = 0;
	hoist__cu_memory memory = 0, again = 0;
	hoist__cu_pool pool = NULL;
	void *host[2] = {NULL, NULL};
	bool managed = false;
	took(client.cuMemAllocHost_v2(&host[0], BYTES));
	took(client.cuMemHostAlloc(&host[1], BYTES, 0));
	took(cu.cuMemAlloc(&address, BYTES));
	took(client.cuPointerGetAttribute(&managed, HOIST__CU_POINTER_IS_MANAGED, address));
	took(client.cuMemcpy(address, (uintptr_t)bytes, BYTES));
	took(client.cuMemcpyAsync(address, (uintptr_t)bytes, BYTES, NULL));
	took(client.cuMemcpyHtoD_v2(address, bytes, BYTES));
	took(client.cuMemcpyDtoH_v2(bytes, address, BYTES));
	took(client.cuMemcpyDtoD_v2(address, address, 8));
	took(client.cuMemsetD8_v2(address, 1, 8));
	took(client.cuMemsetD16_v2(address, 1, 8));
	took(client.cuMemsetD32_v2(address, 1, 8));
	took(cu.cuMemFree(address));
	for (int i = 0; i < 2; i++)
		if (host[i] != NULL)
			took(client.cuMemFreeHost(host[i]));
	took(cu.cuMemAddressReserve(&address, granule, 0, 0, 0));
	took(cu.cuMemCreate(&memory, granule, &props, 0));
	took(cu.cuMemMap(address, granule, 0, memory, 0));
	took(client.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address));
	took(cu.cuMemUnmap(address, granule));
	took(cu.cuMemRelease(memory));
	if (again != 0)
		took(cu.cuMemRelease(again));
	took(cu.cuMemAddressFree(address, granule));
	took(client.cuDeviceGetDefaultMemPool(&pool, 0));
	if (pool != NULL)
		took(client.cuDeviceSetMemPool(0, pool));
	took(client.cuMemGetDefaultMemPool(&pool, &location, 1));
	took(client.cuMemGetMemPool(&pool, &location, 1));
}

static void walk_streams(void)
{
	hoist__cu_stream stream = NULL;
	hoist__cu_event events[2] = {NULL, NULL};
	hoist__cu_context context = NULL;
	unsigned long long id = 0;
	unsigned flags = 0;
	int number = 0;
	float ms = -1;
	took(client.cuStreamCreateWithPriority(&stream, 1, -1));
	took(client.cuStreamGetPriority(stream, &number));
	took(client.cuStreamGetFlags(stream, &flags));
	took(client.cuStreamGetId(stream, &id));
	took(client.cuStreamGetCtx(stream, &context));
	took(client.cuStreamGetDevice(stream, &number));
	for (int i = 0; i < 2; i++) {
		took(cu.cuEventCreate(&events[i], 0));
		took(cu.cuEventRecord(events[i], stream));
		took(cu.cuEventSynchronize(events[i]));
	}
	took(client.cuEventElapsedTime_v2(&ms, events[0], events[1]));
	for (int i = 0; i < 2; i++)
		took(cu.cuEventDestroy(events[i]));
	if (stream != NULL)
		took(cu.cuStreamDestroy(stream));
}

static unsigned walk(void)
{
	first = 0;
	walk_devices();
	walk_memory();
	walk_streams();
	return first;
}

Test(emulator_client, every_function_fails_on_demand)
{
	static const char *const symbols[] = {
#define X(name, symbol, result, arguments, need, since) #symbol,
		EMU_CUDA_CLIENT_TABLE(X)
#undef X
	};
	char spec[128];
	start();
	cr_assert(walk() == 0);
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
		cr_expect(cu.control.calls(symbols[i]) > 0, "%s is not walked", symbols[i]);
	for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
		(void)snprintf(spec, sizeof spec, "%s:1:321", symbols[i]);
		cu.control.reset();
		cr_assert(cu.control.fail(spec) == 0);
		cr_expect(walk() == 321, "%s", symbols[i]);
		struct hoist_emulator_counters count = counters_of(&cu.control);
		cr_expect(count.injected_failures == 1, "%s", symbols[i]);
		cr_expect(count.live_allocations + count.live_registrations + count.live_streams +
					  count.live_events + count.live_reservations ==
				  0,
			  "%s", symbols[i]);
	}
	cu.control.reset();
	cr_expect(walk() == 0, "nothing is left of the failures");
}
