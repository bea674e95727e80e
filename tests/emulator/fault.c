/* SPDX-License-Identifier: MIT */
/* Injected failures: of every function of both tables, and of copies. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/emulator-driver.h"

#define BYTES 4096

static struct cuda cu;
static struct hip hip;
static char host[BYTES];

/* Ends a step of a walk at its first failure. */
#define TRY(call)                                                                                  \
	do {                                                                                       \
		unsigned code_ = (call);                                                           \
		if (code_ != 0) {                                                                  \
			result = code_;                                                            \
			goto out;                                                                  \
		}                                                                                  \
	} while (0)

static unsigned first_of(unsigned first, unsigned then)
{
	return first != 0 ? first : then;
}

/* --- another process, which has memory to be shared --- */

static struct {
	unsigned char plain[64];
	unsigned char block[64];
	int fd; /* of the pool: first as the peer knows it, then our own */
} peer;

/* The peer ends with this process, which must not have opened a driver yet. */
static void start_peer(unsigned (*share)(void))
{
	char path[64];
	int told[2];
	int ended[2];
	cr_assert(pipe(told) == 0 && pipe(ended) == 0);
	pid_t pid = fork();
	cr_assert(pid >= 0);
	if (pid == 0) {
		char byte = 0;
		close(ended[1]);
		if (share() != 0 || write(told[1], &peer, sizeof peer) != (ssize_t)sizeof peer)
			_exit(1);
		(void)!read(ended[0], &byte, 1);
		_exit(0);
	}
	close(told[1]);
	close(ended[0]);
	cr_assert(read(told[0], &peer, sizeof peer) == (ssize_t)sizeof peer);
	(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, peer.fd);
	peer.fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(peer.fd > 0);
}

/* --- walks --- */

static void nothing(void *argument)
{
	(void)argument;
}

#define OWN(name) name##_cuda
#define OWN2(name) hoist__cu_##name
#define CALL(name) cu.cu##name
#define TYPE(name) hoist__cu_##name
#define VALUE(name) HOIST__CU_##name
#define ADDRESS hoist__cu_device_ptr
#define ALLOC cu.cuMemAlloc
#define ALLOC_MANAGED cu.cuMemAllocManaged
#define ALLOC_FROM_POOL cu.cuMemAllocFromPoolAsync
#define ALLOC_ASYNC cu.cuMemAllocAsync
#define FREE cu.cuMemFree
#define FREE_ASYNC cu.cuMemFreeAsync
#define REGISTER cu.cuMemHostRegister
#define UNREGISTER cu.cuMemHostUnregister
#define HOST_ADDRESS cu.cuMemHostGetDevicePointer
#define CREATE_STREAM cu.cuStreamCreate
#define CREATE_EVENT cu.cuEventCreate
#include "tests/emulator/fault-walk.inc.h"

#define OWN(name) name##_hip
#define OWN2(name) hoist__hip_##name
#define CALL(name) hip.hip##name
#define TYPE(name) hoist__hip_##name
#define VALUE(name) HOIST__HIP_##name
#define ADDRESS void *
#define ALLOC hip.hipMalloc
#define ALLOC_MANAGED hip.hipMallocManaged
#define ALLOC_FROM_POOL hip.hipMallocFromPoolAsync
#define ALLOC_ASYNC hip.hipMallocAsync
#define FREE hip.hipFree
#define FREE_ASYNC hip.hipFreeAsync
#define REGISTER hip.hipHostRegister
#define UNREGISTER hip.hipHostUnregister
#define HOST_ADDRESS hip.hipHostGetDevicePointer
#define CREATE_STREAM hip.hipStreamCreateWithFlags
#define CREATE_EVENT hip.hipEventCreateWithFlags
#include "tests/emulator/fault-walk.inc.h"

/* --- CUDA's own steps --- */

static unsigned start_cuda(void)
{
	cuda_start(&cu, "cuda:1", 0);
	return 0;
}

static unsigned ask_device_cuda(void)
{
	unsigned result = 0;
	int number = 0;
	size_t bytes = 0;
	char text[64];
	const char *words = NULL;
	unsigned flags = 0;
	hoist__cu_pointer_attribute attribute = HOIST__CU_POINTER_MEMORY_TYPE;
	void *place = NULL;
	TRY(cu.cuDriverGetVersion(&number));
	TRY(cu.cuInit(0));
	TRY(cu.cuGetErrorName(1, &words));
	TRY(cu.cuGetErrorString(1, &words));
	TRY(cu.cuDeviceGetCount(&number));
	TRY(cu.cuDeviceGet(&number, 0));
	TRY(cu.cuDeviceGetName(text, sizeof text, 0));
	TRY(cu.cuDeviceTotalMem(&bytes, 0));
	TRY(cu.cuDeviceGetAttribute(&number, HOIST__CU_ATTRIBUTE_COMPUTE_MAJOR, 0));
	TRY(cu.cuDeviceGetPCIBusId(text, sizeof text, 0));
	TRY(cu.cuDeviceCanAccessPeer(&number, 0, 0));
	/* There is no second device: success would be a failure. */
	unsigned code = cu.cuCtxEnablePeerAccess(NULL, 0);
	TRY(code == HOIST__CU_ERROR_INVALID_CONTEXT ? 0 : code);
	TRY(cu.cuDevicePrimaryCtxGetState(0, &flags, &number));
	TRY(cu.cuPointerGetAttributes(0, &attribute, &place, 0));
out:
	return result;
}
static unsigned enter_cuda(struct things_cuda *things)
{
	unsigned result = 0;
	hoist__cu_context context = NULL;
	hoist__cu_context current = NULL;
	TRY(cu.cuDevicePrimaryCtxRetain(&context, 0));
	things->context = context;
	TRY(cu.cuCtxGetCurrent(&current));
	TRY(cu.cuCtxPushCurrent(things->context));
	things->pushed = true;
out:
	return result;
}

static unsigned leave_cuda(const struct things_cuda *things, unsigned result)
{
	if (!things->pushed)
		return result;
	unsigned code = cu.cuCtxPopCurrent(NULL);
	if (code != 0)
		(void)cu.cuCtxPopCurrent(NULL);
	return first_of(result, code);
}

static unsigned work_cuda(const struct things_cuda *things)
{
	const struct hoist__cu_copy_2d plane = {
		.src_type = HOIST__CU_MEMORY_HOST,
		.src_host = host,
		.src_pitch = 8,
		.dst_type = HOIST__CU_MEMORY_DEVICE,
		.dst_device = things->memory,
		.dst_pitch = 8,
		.width = 4,
		.height = 2,
	};
	const struct hoist__cu_copy_3d planes = {
		.src_type = HOIST__CU_MEMORY_DEVICE,
		.src_device = things->memory,
		.src_pitch = 8,
		.src_height = 2,
		.dst_type = HOIST__CU_MEMORY_HOST,
		.dst_host = host,
		.dst_pitch = 8,
		.dst_height = 2,
		.width = 4,
		.height = 2,
		.depth = 2,
	};
	unsigned result = 0;
	TRY(cu.cuMemAdvise_v2(things->managed, BYTES, HOIST__CU_ADVISE_PREFERRED_LOCATION,
			      (struct hoist__cu_location){HOIST__CU_LOCATION_DEVICE, 0}));
	TRY(cu.cuMemcpyHtoDAsync(things->memory, host, BYTES, things->stream));
	TRY(cu.cuMemcpyDtoDAsync(things->memory, things->memory, 8, things->stream));
	TRY(cu.cuMemcpyPeerAsync(things->memory, things->context, things->memory, things->context,
				 8, things->stream));
	TRY(cu.cuMemcpy2DAsync(&plane, things->stream));
	TRY(cu.cuMemcpy3DAsync(&planes, things->stream));
	TRY(cu.cuMemsetD8Async(things->memory, 1, 8, things->stream));
	TRY(cu.cuMemsetD16Async(things->memory, 1, 8, things->stream));
	TRY(cu.cuMemsetD32Async(things->memory, 1, 8, things->stream));
	TRY(cu.cuCtxSynchronize());
	TRY(cu.cuMemcpyDtoHAsync(host, things->memory, BYTES, things->stream));
out:
	return result;
}
/* --- HIP's own steps --- */

static unsigned start_hip(void)
{
	hip_open(&hip, "hip:1");
	return hip.hipInit(0);
}

static unsigned ask_device_hip(void)
{
	static struct hoist__hip_props_r0600 new_props;
	static struct hoist__hip_props_r0000 old_props;
	struct hoist__hip_pointer_attributes pointer;
	unsigned result = 0;
	int number = 0;
	size_t bytes = 0;
	char text[64];
	(void)hip.hipGetErrorName(1);
	(void)hip.hipGetErrorString(1);
	TRY(hip.hipRuntimeGetVersion(&number));
	TRY(hip.hipInit(0));
	TRY(hip.hipGetDeviceCount(&number));
	TRY(hip.hipDeviceGet(&number, 0));
	TRY(hip.hipDeviceGetName(text, sizeof text, 0));
	TRY(hip.hipDeviceTotalMem(&bytes, 0));
	/* No attribute is known, and there is no second device: success would be a failure. */
	unsigned code = hip.hipDeviceGetAttribute(&number, HOIST__HIP_ATTRIBUTE_HOST_NUMA_ID, 0);
	TRY(code == HOIST__HIP_ERROR_INVALID_VALUE ? 0 : code);
	code = hip.hipDeviceEnablePeerAccess(0, 0);
	TRY(code == HOIST__HIP_ERROR_INVALID_DEVICE ? 0 : code);
	(void)hip.hipGetLastError();
	TRY(hip.hipGetLastError());
	TRY(hip.hipDeviceGetPCIBusId(text, sizeof text, 0));
	TRY(hip.hipDeviceCanAccessPeer(&number, 0, 0));
	TRY(hip.hipPointerGetAttributes(&pointer, text));
	TRY(hip.hipDeviceSynchronize());
	TRY(hip.hipGetDevicePropertiesR0600(&new_props, 0));
	TRY(hip.hipGetDevicePropertiesR0000(&old_props, 0));
	TRY(hip.hipGetDevice(&number));
	TRY(hip.hipSetDevice(0));
out:
	return result;
}

static unsigned enter_hip(struct things_hip *things)
{
	(void)things;
	return 0;
}

static unsigned leave_hip(const struct things_hip *things, unsigned result)
{
	(void)things;
	return result;
}

static unsigned work_hip(const struct things_hip *things)
{
	const struct hoist__hip_copy_3d planes = {
		.src = {.address = things->memory, .pitch = 8, .width = 4, .height = 2},
		.dst = {.address = host, .pitch = 8, .width = 4, .height = 2},
		.width = 4,
		.height = 2,
		.depth = 2,
		.kind = HOIST__HIP_COPY_DEVICE_TO_HOST,
	};
	unsigned result = 0;
	TRY(hip.hipMemAdvise(things->managed, BYTES, HOIST__HIP_ADVISE_PREFERRED_LOCATION, 0));
	TRY(hip.hipMemcpyAsync(things->memory, host, BYTES, HOIST__HIP_COPY_HOST_TO_DEVICE,
			       things->stream));
	TRY(hip.hipMemcpyPeerAsync(things->memory, 0, things->memory, 0, 8, things->stream));
	TRY(hip.hipMemcpy2DAsync(things->memory, 8, host, 8, 4, 2, HOIST__HIP_COPY_HOST_TO_DEVICE,
				 things->stream));
	TRY(hip.hipMemcpy3DAsync(&planes, things->stream));
	TRY(hip.hipMemsetAsync(things->memory, 1, 8, things->stream));
	TRY(hip.hipMemsetD16Async(things->memory, 1, 8, things->stream));
	TRY(hip.hipMemsetD32Async(things->memory, 1, 8, things->stream));
out:
	return result;
}

/* --- failures --- */

static uint64_t alive(const struct control *control)
{
	struct hoist_emulator_counters count = counters_of(control);
	return count.live_allocations + count.live_registrations + count.live_streams +
	       count.live_events + count.live_pools + count.live_imports + count.live_reservations;
}

/* The rows of a table.  CUDA's other functions come behind them: client.c walks those. */
#define ONE_ROW(name, symbol, result, arguments, need, since) +1
#define ROWS(table) (0 table(ONE_ROW))

/* Fails the first use of each of the first @n functions in turn. */
static void fail_each(const struct control *control, unsigned (*walk)(void), unsigned n)
{
	char spec[128];
	cr_assert(walk() == 0);
	for (unsigned i = 0; i < n; i++)
		cr_expect(control->calls(control->function(i)) > 0, "%s is not walked",
			  control->function(i));
	for (unsigned i = 0; i < n; i++) {
		const char *function = control->function(i);
		(void)snprintf(spec, sizeof spec, "%s:1:321", function);
		control->reset();
		cr_assert(control->fail(spec) == 0);
		unsigned result = walk();
		bool cannot_fail = strncmp(function, "hipGetError", 11) == 0;
		bool swallowed = strcmp(function, "hipGetLastError") == 0;
		if (!cannot_fail && !swallowed)
			cr_expect(result == 321, "%s", function);
		cr_expect(counters_of(control).injected_failures == 1, "%s", function);
		cr_expect(alive(control) == 0, "%s", function);
	}
	control->reset();
	cr_expect(walk() == 0, "nothing is left of the failures");
}

Test(emulator_fault, every_cuda_function_fails_on_demand)
{
	start_peer(share_memory_cuda);
	cuda_open(&cu, "cuda:1");
	fail_each(&cu.control, walk_cuda, ROWS(HOIST__CUDA_TABLE));
}

Test(emulator_fault, every_hip_function_fails_on_demand)
{
	start_peer(share_memory_hip);
	hip_open(&hip, "hip:1");
	fail_each(&hip.control, walk_hip, ROWS(HOIST__HIP_TABLE));
}

Test(emulator_fault, any_call_can_be_the_one_that_fails)
{
	char spec[32];
	start_peer(share_memory_cuda);
	cuda_open(&cu, "cuda:1");
	cr_assert(walk_cuda() == 0);
	uint64_t calls = counters_of(&cu.control).calls;
	for (uint64_t n = 1; n <= calls; n++) {
		cu.control.reset();
		(void)snprintf(spec, sizeof spec, "any:%llu", (unsigned long long)n);
		cr_assert(cu.control.fail(spec) == 0);
		cr_expect(walk_cuda() != 0, "call %llu", (unsigned long long)n);
		cr_expect(alive(&cu.control) == 0, "call %llu", (unsigned long long)n);
	}
	cu.control.reset();
	(void)snprintf(spec, sizeof spec, "any:%llu", (unsigned long long)calls + 1);
	cr_assert(cu.control.fail(spec) == 0);
	cr_expect(walk_cuda() == 0, "one call beyond the last");
}

Test(emulator_fault, the_nth_use_fails_and_only_that)
{
	const unsigned out_of_memory = HOIST__CU_ERROR_OUT_OF_MEMORY;
	const unsigned success = 0;
	hoist__cu_device_ptr memory[5] = {0};
	cuda_start(&cu, "cuda:1", 0);
	cr_assert(cu.control.fail("hipMalloc:1,cuMemAlloc:3") == 0);
	for (int i = 0; i < 5; i++)
		cr_expect(cu.cuMemAlloc(&memory[i], 1) == (i == 2 ? out_of_memory : success));
	cr_assert(cu.control.fail("cuMemAlloc_v2:2+:999") == 0);
	hoist__cu_device_ptr more = 0;
	cr_expect(cu.cuMemAlloc(&more, 1) == 0);
	cr_expect(cu.cuMemFree(more) == 0);
	for (int i = 0; i < 3; i++)
		cr_expect(cu.cuMemAlloc(&more, 1) == HOIST__CU_ERROR_UNKNOWN);
	cr_assert(cu.control.fail(NULL) == 0);
	for (int i = 0; i < 5; i++)
		cr_expect(cu.cuMemFree(memory[i]) == 0);
}

Test(emulator_fault, an_unreadable_list_of_faults_is_refused_whole)
{
	static const char *const bad[] = {
		"cuNoSuchThing:1", "cuMemAlloc",
		"cuMemAlloc:",	   "cuMemAlloc:0",
		"cuMemAlloc:1:",   "cuMemAlloc:1:0",
		"cuMemAlloc:x",	   "cuMemAlloc:1 ",
		"cuMemAlloc:-1",   ":1",
		"any:1:70000",	   "cuInit:1,nonsense:2",
	};
	hoist__cu_device_ptr memory = 0;
	cuda_start(&cu, "cuda:1", 0);
	cr_assert(cu.control.fail("cuMemAlloc:1") == 0);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		cr_expect(cu.control.fail(bad[i]) == -EINVAL, "%s", bad[i]);
	cr_expect(cu.cuMemAlloc(&memory, 1) == HOIST__CU_ERROR_OUT_OF_MEMORY,
		  "the earlier fault still stands");
}

Test(emulator_fault, an_asynchronous_failure_surfaces_later)
{
	hoist__cu_device_ptr memory = 0;
	hoist__cu_stream stream[2];
	hoist__cu_event before = NULL;
	hoist__cu_event after = NULL;
	const unsigned illegal = HOIST__CU_ERROR_ILLEGAL_ADDRESS;
	cuda_start(&cu, "cuda:1", 0);
	cr_assert(cu.cuMemAlloc(&memory, BYTES) == 0);
	cr_assert(cu.cuMemHostRegister(host, BYTES, 1) == 0);
	cr_assert(cu.cuStreamCreate(&stream[0], 1) == 0);
	cr_assert(cu.cuStreamCreate(&stream[1], 1) == 0);
	cr_assert(cu.cuEventCreate(&before, 0) == 0);
	cr_assert(cu.cuEventCreate(&after, 0) == 0);
	cr_assert(cu.control.fail("async:2") == 0);
	cu.control.hold(1);
	cr_expect(cu.cuMemcpyHtoDAsync(memory, host, 8, stream[0]) == 0);
	cr_expect(cu.cuEventRecord(before, stream[0]) == 0);
	cr_expect(cu.cuMemcpyHtoDAsync(memory, host, 8, stream[0]) == 0, "accepted");
	cr_expect(cu.cuMemcpyHtoDAsync(memory, host, 8, stream[0]) == 0);
	cr_expect(cu.cuEventRecord(after, stream[0]) == 0);
	cr_expect(cu.cuStreamWaitEvent(stream[1], after, 0) == 0);
	cu.control.hold(0);
	cr_expect(cu.cuEventSynchronize(before) == 0);
	cr_expect(cu.cuEventSynchronize(after) == illegal);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == illegal);
	cr_expect(cu.cuStreamSynchronize(stream[1]) == illegal, "it waited for the failed");
	cr_expect(counters_of(&cu.control).host_to_device_bytes == 8, "the first alone");
	cu.control.reset();
	cr_expect(cu.cuMemcpyHtoDAsync(memory, host, 8, stream[0]) == 0);
	cr_expect(cu.cuStreamSynchronize(stream[0]) == 0, "reset forgets it");
	cr_expect(cu.cuEventDestroy(before) == 0 && cu.cuEventDestroy(after) == 0);
	cr_expect(cu.cuStreamDestroy(stream[0]) == 0);
	cr_expect(cu.cuStreamDestroy(stream[1]) == 0);
	cr_expect(cu.cuMemHostUnregister(host) == 0);
	cr_expect(cu.cuMemFree(memory) == 0);
	cr_expect(alive(&cu.control) == 0);
}
