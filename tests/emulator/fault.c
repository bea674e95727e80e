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

/* The first failure of a walk through a driver, and how to go on to its end. */
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

/* Returns 0, with all of it filled. */
static unsigned share_cuda_memory(void)
{
	const struct hoist__cu_pool_props props = {
		.type = HOIST__CU_ALLOCATION_PINNED,
		.handle_types = HOIST__CU_HANDLE_FD,
		.location_type = HOIST__CU_LOCATION_DEVICE,
	};
	unsigned result = 0;
	hoist__cu_pool pool = NULL;
	hoist__cu_device_ptr memory = 0;
	hoist__cu_ipc_handle handle;
	hoist__cu_block_handle block;
	cuda_start(&cu, "cuda:1", 0);
	TRY(cu.cuMemAlloc(&memory, BYTES));
	TRY(cu.cuIpcGetMemHandle(&handle, memory));
	TRY(cu.cuMemPoolCreate(&pool, &props));
	TRY(cu.cuMemAllocFromPoolAsync(&memory, BYTES, pool, NULL));
	TRY(cu.cuMemPoolExportPointer(&block, memory));
	TRY(cu.cuMemPoolExportToShareableHandle(&peer.fd, pool, HOIST__CU_HANDLE_FD, 0));
	memcpy(peer.plain, handle.bytes, sizeof peer.plain);
	memcpy(peer.block, block.bytes, sizeof peer.block);
out:
	return result;
}

static unsigned share_hip_memory(void)
{
	const struct hoist__hip_pool_props props = {
		.type = HOIST__HIP_ALLOCATION_PINNED,
		.handle_types = HOIST__HIP_HANDLE_FD,
		.location_type = HOIST__HIP_LOCATION_DEVICE,
	};
	unsigned result = 0;
	hoist__hip_pool pool = NULL;
	void *memory = NULL;
	hoist__hip_ipc_handle handle;
	hoist__hip_block_handle block;
	hip_open(&hip, "hip:1");
	TRY(hip.hipInit(0));
	TRY(hip.hipMalloc(&memory, BYTES));
	TRY(hip.hipIpcGetMemHandle(&handle, memory));
	TRY(hip.hipMemPoolCreate(&pool, &props));
	TRY(hip.hipMallocFromPoolAsync(&memory, BYTES, pool, NULL));
	TRY(hip.hipMemPoolExportPointer(&block, memory));
	TRY(hip.hipMemPoolExportToShareableHandle(&peer.fd, pool, HOIST__HIP_HANDLE_FD, 0));
	memcpy(peer.plain, handle.bytes, sizeof peer.plain);
	memcpy(peer.block, block.bytes, sizeof peer.block);
out:
	return result;
}

/* It ends with this process.  To be called before that opens a driver. */
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

/* Calls every function of the table once where nothing fails, and gives back
 * all that it took: what a failed call would have given is NULL. */
struct cuda_things {
	hoist__cu_context context;
	hoist__cu_device_ptr memory;
	hoist__cu_device_ptr managed;
	hoist__cu_device_ptr pooled;
	hoist__cu_device_ptr ordered; /* of the device's own pool */
	hoist__cu_pool pool;
	hoist__cu_stream stream;
	hoist__cu_event event;
	hoist__cu_device_ptr opened; /* these three are of the peer */
	hoist__cu_pool peers;
	hoist__cu_device_ptr imported;
	hoist__cu_device_ptr reserved; /* addresses, of @granule bytes */
	hoist__cu_memory physical;
	size_t granule;
	bool mapped;
	bool pushed;
	bool registered;
};

static unsigned ask_cuda_device(void)
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
	/* There is no second device: its success would be a failure. */
	unsigned code = cu.cuCtxEnablePeerAccess(NULL, 0);
	TRY(code == HOIST__CU_ERROR_INVALID_CONTEXT ? 0 : code);
	TRY(cu.cuDevicePrimaryCtxGetState(0, &flags, &number));
	TRY(cu.cuPointerGetAttributes(0, &attribute, &place, 0));
out:
	return result;
}

/* Memory that processes share; what is imported comes from another process. */
static unsigned share_cuda(struct cuda_things *things)
{
	unsigned result = 0;
	int fd = -1;
	size_t bytes = 0;
	hoist__cu_device_ptr base = 0;
	hoist__cu_ipc_handle handle;
	hoist__cu_block_handle block;
	TRY(cu.cuMemGetAddressRange(&base, &bytes, things->memory));
	TRY(cu.cuIpcGetMemHandle(&handle, things->memory));
	TRY(cu.cuMemPoolExportPointer(&block, things->pooled));
	TRY(cu.cuMemPoolExportToShareableHandle(&fd, things->pool, HOIST__CU_HANDLE_FD, 0));
	close(fd);
	memcpy(handle.bytes, peer.plain, sizeof handle.bytes);
	memcpy(block.bytes, peer.block, sizeof block.bytes);
	TRY(cu.cuIpcOpenMemHandle(&things->opened, handle, 1));
	TRY(cu.cuMemPoolImportFromShareableHandle(&things->peers, (void *)(uintptr_t)peer.fd,
						  HOIST__CU_HANDLE_FD, 0));
	TRY(cu.cuMemPoolImportPointer(&things->imported, things->peers, &block));
out:
	return result;
}

static unsigned unshare_cuda(struct cuda_things *things, unsigned result)
{
	if (things->imported != 0)
		result = first_of(result, cu.cuMemFree(things->imported));
	if (things->peers != NULL)
		result = first_of(result, cu.cuMemPoolDestroy(things->peers));
	if (things->opened != 0)
		result = first_of(result, cu.cuIpcCloseMemHandle(things->opened));
	return result;
}

/* Who may use a pool's memory. */
static unsigned access_cuda_pool(const struct cuda_things *things)
{
	const struct hoist__cu_access access = {{HOIST__CU_LOCATION_DEVICE, 0},
						HOIST__CU_ACCESS_READ_WRITE};
	struct hoist__cu_location location = access.location;
	hoist__cu_access_flags flags = 0;
	unsigned result = 0;
	TRY(cu.cuMemPoolSetAccess(things->pool, &access, 1));
	TRY(cu.cuMemPoolGetAccess(&flags, things->pool, &location));
out:
	return result;
}

static unsigned use_cuda_pool(struct cuda_things *things)
{
	const struct hoist__cu_pool_props props = {
		.type = HOIST__CU_ALLOCATION_PINNED,
		.handle_types = HOIST__CU_HANDLE_FD,
		.location_type = HOIST__CU_LOCATION_DEVICE,
	};
	unsigned result = 0;
	hoist__cu_pool own = NULL;
	uint64_t value = 0;
	TRY(cu.cuDeviceGetMemPool(&own, 0));
	TRY(cu.cuMemPoolCreate(&things->pool, &props));
	TRY(cu.cuMemPoolGetAttribute(things->pool, HOIST__CU_POOL_THRESHOLD, &value));
	TRY(cu.cuMemPoolSetAttribute(things->pool, HOIST__CU_POOL_THRESHOLD, &value));
	TRY(cu.cuMemAllocFromPoolAsync(&things->pooled, BYTES, things->pool, things->stream));
	TRY(cu.cuMemPoolTrimTo(things->pool, 0));
	TRY(access_cuda_pool(things));
	TRY(share_cuda(things));
out:
	return result;
}

static void nothing(void *argument)
{
	(void)argument;
}

static unsigned work_on_cuda(const struct cuda_things *things)
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
	TRY(cu.cuMemcpy2DAsync(&plane, things->stream));
	TRY(cu.cuMemcpy3DAsync(&planes, things->stream));
	TRY(cu.cuLaunchHostFunc(things->stream, nothing, NULL));
	TRY(cu.cuMemsetD8Async(things->memory, 1, 8, things->stream));
	TRY(cu.cuMemsetD16Async(things->memory, 1, 8, things->stream));
	TRY(cu.cuMemsetD32Async(things->memory, 1, 8, things->stream));
out:
	return result;
}

/* Memory and addresses apart: made here, given back by unmap_cuda(). */
static unsigned map_cuda(struct cuda_things *things)
{
	const struct hoist__cu_memory_props props = {.type = HOIST__CU_ALLOCATION_PINNED,
						     .location = {HOIST__CU_LOCATION_DEVICE, 0}};
	const struct hoist__cu_access access = {props.location, HOIST__CU_ACCESS_READ_WRITE};
	unsigned result = 0;
	TRY(cu.cuMemGetAllocationGranularity(&things->granule, &props,
					     HOIST__CU_GRANULARITY_MINIMUM));
	TRY(cu.cuMemAddressReserve(&things->reserved, things->granule, 0, 0, 0));
	TRY(cu.cuMemCreate(&things->physical, things->granule, &props, 0));
	TRY(cu.cuMemMap(things->reserved, things->granule, 0, things->physical, 0));
	things->mapped = true;
	TRY(cu.cuMemSetAccess(things->reserved, things->granule, &access, 1));
out:
	return result;
}

static unsigned unmap_cuda(const struct cuda_things *things, unsigned result)
{
	if (things->mapped)
		result = first_of(result, cu.cuMemUnmap(things->reserved, things->granule));
	if (things->physical != 0)
		result = first_of(result, cu.cuMemRelease(things->physical));
	if (things->reserved != 0)
		result = first_of(result, cu.cuMemAddressFree(things->reserved, things->granule));
	return result;
}

/* Uses the memory that a device keeps for graphs, and memory from the device's own pool. */
static unsigned use_cuda_graphs(struct cuda_things *things)
{
	unsigned result = 0;
	uint64_t value = 0;
	TRY(cu.cuMemAllocAsync(&things->ordered, BYTES, things->stream));
	TRY(cu.cuDeviceGetGraphMemAttribute(0, HOIST__CU_GRAPH_USED_HIGH, &value));
	value = 0;
	TRY(cu.cuDeviceSetGraphMemAttribute(0, HOIST__CU_GRAPH_USED_HIGH, &value));
	TRY(cu.cuDeviceGraphMemTrim(0));
out:
	return result;
}

static unsigned use_cuda_device(struct cuda_things *things)
{
	unsigned result = 0;
	size_t bytes = 0;
	hoist__cu_device_ptr seen = 0;
	hoist__cu_capture_status status = 0;
	hoist__cu_capture_mode mode = 0;
	float ms = 0;
	TRY(cu.cuMemGetInfo(&bytes, &bytes));
	TRY(cu.cuMemAlloc(&things->memory, BYTES));
	TRY(cu.cuMemAllocManaged(&things->managed, BYTES, HOIST__CU_ATTACH_GLOBAL));
	TRY(cu.cuMemAdvise_v2(things->managed, BYTES, HOIST__CU_ADVISE_PREFERRED_LOCATION,
			      (struct hoist__cu_location){HOIST__CU_LOCATION_DEVICE, 0}));
	TRY(cu.cuMemHostRegister(host, BYTES, 1));
	things->registered = true;
	TRY(cu.cuMemHostGetDevicePointer(&seen, host, 0));
	TRY(cu.cuStreamCreate(&things->stream, 1));
	TRY(cu.cuStreamIsCapturing(things->stream, &status));
	TRY(cu.cuThreadExchangeStreamCaptureMode(&mode));
	TRY(cu.cuEventCreate(&things->event, 0));
	TRY(cu.cuMemcpyHtoDAsync(things->memory, host, BYTES, things->stream));
	TRY(cu.cuMemcpyDtoDAsync(things->memory, things->memory, 8, things->stream));
	TRY(cu.cuMemcpyPeerAsync(things->memory, things->context, things->memory, things->context,
				 8, things->stream));
	TRY(work_on_cuda(things));
	TRY(cu.cuCtxSynchronize());
	TRY(cu.cuMemcpyDtoHAsync(host, things->memory, BYTES, things->stream));
	TRY(cu.cuEventRecord(things->event, things->stream));
	TRY(cu.cuStreamWaitEvent(things->stream, things->event, 0));
	TRY(cu.cuEventSynchronize(things->event));
	TRY(cu.cuStreamSynchronize(things->stream));
	TRY(cu.cuEventQuery(things->event));
	TRY(cu.cuStreamQuery(things->stream));
	TRY(cu.cuEventElapsedTime(&ms, things->event, things->event));
	TRY(map_cuda(things));
	TRY(use_cuda_graphs(things));
	TRY(use_cuda_pool(things));
out:
	return result;
}

static unsigned walk_cuda(void)
{
	struct cuda_things things = {0};
	hoist__cu_context current = NULL;
	unsigned result = ask_cuda_device();
	if (result != 0)
		return result;
	TRY(cu.cuDevicePrimaryCtxRetain(&things.context, 0));
	TRY(cu.cuCtxGetCurrent(&current));
	TRY(cu.cuCtxPushCurrent(things.context));
	things.pushed = true;
	result = use_cuda_device(&things);
out:
	/* Nothing may be freed under what is queued. */
	if (things.stream != NULL && result != 0)
		(void)cu.cuStreamSynchronize(things.stream);
	result = unshare_cuda(&things, result);
	result = unmap_cuda(&things, result);
	if (things.ordered != 0)
		result = first_of(result, cu.cuMemFreeAsync(things.ordered, things.stream));
	if (things.pooled != 0)
		result = first_of(result, cu.cuMemFreeAsync(things.pooled, things.stream));
	if (things.pool != NULL)
		result = first_of(result, cu.cuMemPoolDestroy(things.pool));
	if (things.event != NULL)
		result = first_of(result, cu.cuEventDestroy(things.event));
	if (things.stream != NULL)
		result = first_of(result, cu.cuStreamDestroy(things.stream));
	if (things.registered)
		result = first_of(result, cu.cuMemHostUnregister(host));
	if (things.managed != 0)
		result = first_of(result, cu.cuMemFree(things.managed));
	if (things.memory != 0)
		result = first_of(result, cu.cuMemFree(things.memory));
	if (things.pushed) {
		unsigned code = cu.cuCtxPopCurrent(NULL);
		if (code != 0)
			(void)cu.cuCtxPopCurrent(NULL);
		result = first_of(result, code);
	}
	return result;
}

struct hip_things {
	void *memory;
	void *managed;
	void *pooled;
	void *ordered; /* of the device's own pool */
	hoist__hip_pool pool;
	hoist__hip_stream stream;
	hoist__hip_event event;
	void *opened; /* these three are of the peer */
	hoist__hip_pool peers;
	void *imported;
	void *reserved; /* addresses, of @granule bytes */
	hoist__hip_memory physical;
	size_t granule;
	bool mapped;
	bool registered;
};

static unsigned ask_hip_device(void)
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

/* Memory that processes share; what is imported comes from another process. */
static unsigned share_hip(struct hip_things *things)
{
	unsigned result = 0;
	int fd = -1;
	size_t bytes = 0;
	void *base = NULL;
	hoist__hip_ipc_handle handle;
	hoist__hip_block_handle block;
	TRY(hip.hipMemGetAddressRange(&base, &bytes, things->memory));
	TRY(hip.hipIpcGetMemHandle(&handle, things->memory));
	TRY(hip.hipMemPoolExportPointer(&block, things->pooled));
	TRY(hip.hipMemPoolExportToShareableHandle(&fd, things->pool, HOIST__HIP_HANDLE_FD, 0));
	close(fd);
	memcpy(handle.bytes, peer.plain, sizeof handle.bytes);
	memcpy(block.bytes, peer.block, sizeof block.bytes);
	TRY(hip.hipIpcOpenMemHandle(&things->opened, handle, 1));
	TRY(hip.hipMemPoolImportFromShareableHandle(&things->peers, (void *)(uintptr_t)peer.fd,
						    HOIST__HIP_HANDLE_FD, 0));
	TRY(hip.hipMemPoolImportPointer(&things->imported, things->peers, &block));
out:
	return result;
}

static unsigned unshare_hip(struct hip_things *things, unsigned result)
{
	if (things->imported != NULL)
		result = first_of(result, hip.hipFree(things->imported));
	if (things->peers != NULL)
		result = first_of(result, hip.hipMemPoolDestroy(things->peers));
	if (things->opened != NULL)
		result = first_of(result, hip.hipIpcCloseMemHandle(things->opened));
	return result;
}

/* Who may use a pool's memory. */
static unsigned access_hip_pool(const struct hip_things *things)
{
	const struct hoist__hip_access access = {{HOIST__HIP_LOCATION_DEVICE, 0},
						 HOIST__HIP_ACCESS_READ_WRITE};
	struct hoist__hip_location location = access.location;
	hoist__hip_access_flags flags = 0;
	unsigned result = 0;
	TRY(hip.hipMemPoolSetAccess(things->pool, &access, 1));
	TRY(hip.hipMemPoolGetAccess(&flags, things->pool, &location));
out:
	return result;
}

static unsigned use_hip_pool(struct hip_things *things)
{
	const struct hoist__hip_pool_props props = {
		.type = HOIST__HIP_ALLOCATION_PINNED,
		.handle_types = HOIST__HIP_HANDLE_FD,
		.location_type = HOIST__HIP_LOCATION_DEVICE,
	};
	unsigned result = 0;
	hoist__hip_pool own = NULL;
	uint64_t value = 0;
	TRY(hip.hipDeviceGetMemPool(&own, 0));
	TRY(hip.hipMemPoolCreate(&things->pool, &props));
	TRY(hip.hipMemPoolGetAttribute(things->pool, HOIST__HIP_POOL_THRESHOLD, &value));
	TRY(hip.hipMemPoolSetAttribute(things->pool, HOIST__HIP_POOL_THRESHOLD, &value));
	TRY(hip.hipMallocFromPoolAsync(&things->pooled, BYTES, things->pool, things->stream));
	TRY(hip.hipMemPoolTrimTo(things->pool, 0));
	TRY(access_hip_pool(things));
	TRY(share_hip(things));
out:
	return result;
}

static unsigned work_on_hip(const struct hip_things *things)
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
	TRY(hip.hipMemcpy2DAsync(things->memory, 8, host, 8, 4, 2, HOIST__HIP_COPY_HOST_TO_DEVICE,
				 things->stream));
	TRY(hip.hipMemcpy3DAsync(&planes, things->stream));
	TRY(hip.hipLaunchHostFunc(things->stream, nothing, NULL));
	TRY(hip.hipMemsetAsync(things->memory, 1, 8, things->stream));
	TRY(hip.hipMemsetD16Async(things->memory, 1, 8, things->stream));
	TRY(hip.hipMemsetD32Async(things->memory, 1, 8, things->stream));
out:
	return result;
}

/* Memory and addresses apart: made here, given back by unmap_hip(). */
static unsigned map_hip(struct hip_things *things)
{
	const struct hoist__hip_memory_props props = {.type = HOIST__HIP_ALLOCATION_PINNED,
						      .location = {HOIST__HIP_LOCATION_DEVICE, 0}};
	const struct hoist__hip_access access = {props.location, HOIST__HIP_ACCESS_READ_WRITE};
	unsigned result = 0;
	TRY(hip.hipMemGetAllocationGranularity(&things->granule, &props,
					       HOIST__HIP_GRANULARITY_MINIMUM));
	TRY(hip.hipMemAddressReserve(&things->reserved, things->granule, 0, NULL, 0));
	TRY(hip.hipMemCreate(&things->physical, things->granule, &props, 0));
	TRY(hip.hipMemMap(things->reserved, things->granule, 0, things->physical, 0));
	things->mapped = true;
	TRY(hip.hipMemSetAccess(things->reserved, things->granule, &access, 1));
out:
	return result;
}

static unsigned unmap_hip(const struct hip_things *things, unsigned result)
{
	if (things->mapped)
		result = first_of(result, hip.hipMemUnmap(things->reserved, things->granule));
	if (things->physical != NULL)
		result = first_of(result, hip.hipMemRelease(things->physical));
	if (things->reserved != NULL)
		result = first_of(result, hip.hipMemAddressFree(things->reserved, things->granule));
	return result;
}

/* Does the same as use_cuda_graphs(). */
static unsigned use_hip_graphs(struct hip_things *things)
{
	unsigned result = 0;
	uint64_t value = 0;
	TRY(hip.hipMallocAsync(&things->ordered, BYTES, things->stream));
	TRY(hip.hipDeviceGetGraphMemAttribute(0, HOIST__HIP_GRAPH_USED_HIGH, &value));
	value = 0;
	TRY(hip.hipDeviceSetGraphMemAttribute(0, HOIST__HIP_GRAPH_USED_HIGH, &value));
	TRY(hip.hipDeviceGraphMemTrim(0));
out:
	return result;
}

static unsigned use_hip_device(struct hip_things *things)
{
	unsigned result = 0;
	size_t bytes = 0;
	void *seen = NULL;
	hoist__hip_capture_status status = 0;
	hoist__hip_capture_mode mode = 0;
	float ms = 0;
	TRY(hip.hipMemGetInfo(&bytes, &bytes));
	TRY(hip.hipMalloc(&things->memory, BYTES));
	TRY(hip.hipMallocManaged(&things->managed, BYTES, HOIST__HIP_ATTACH_GLOBAL));
	TRY(hip.hipMemAdvise(things->managed, BYTES, HOIST__HIP_ADVISE_PREFERRED_LOCATION, 0));
	TRY(hip.hipHostRegister(host, BYTES, 1));
	things->registered = true;
	TRY(hip.hipHostGetDevicePointer(&seen, host, 0));
	TRY(hip.hipStreamCreateWithFlags(&things->stream, 1));
	TRY(hip.hipStreamIsCapturing(things->stream, &status));
	TRY(hip.hipThreadExchangeStreamCaptureMode(&mode));
	TRY(hip.hipEventCreateWithFlags(&things->event, 0));
	TRY(hip.hipMemcpyAsync(things->memory, host, BYTES, HOIST__HIP_COPY_HOST_TO_DEVICE,
			       things->stream));
	TRY(hip.hipMemcpyPeerAsync(things->memory, 0, things->memory, 0, 8, things->stream));
	TRY(work_on_hip(things));
	TRY(hip.hipEventRecord(things->event, things->stream));
	TRY(hip.hipStreamWaitEvent(things->stream, things->event, 0));
	TRY(hip.hipEventSynchronize(things->event));
	TRY(hip.hipStreamSynchronize(things->stream));
	TRY(hip.hipEventQuery(things->event));
	TRY(hip.hipStreamQuery(things->stream));
	TRY(hip.hipEventElapsedTime(&ms, things->event, things->event));
	TRY(map_hip(things));
	TRY(use_hip_graphs(things));
	TRY(use_hip_pool(things));
out:
	return result;
}

static unsigned walk_hip(void)
{
	struct hip_things things = {0};
	unsigned result = ask_hip_device();
	if (result == 0)
		result = use_hip_device(&things);
	if (things.stream != NULL && result != 0)
		(void)hip.hipStreamSynchronize(things.stream);
	result = unshare_hip(&things, result);
	result = unmap_hip(&things, result);
	if (things.ordered != NULL)
		result = first_of(result, hip.hipFreeAsync(things.ordered, things.stream));
	if (things.pooled != NULL)
		result = first_of(result, hip.hipFreeAsync(things.pooled, things.stream));
	if (things.pool != NULL)
		result = first_of(result, hip.hipMemPoolDestroy(things.pool));
	if (things.event != NULL)
		result = first_of(result, hip.hipEventDestroy(things.event));
	if (things.stream != NULL)
		result = first_of(result, hip.hipStreamDestroy(things.stream));
	if (things.registered)
		result = first_of(result, hip.hipHostUnregister(host));
	if (things.managed != NULL)
		result = first_of(result, hip.hipFree(things.managed));
	if (things.memory != NULL)
		result = first_of(result, hip.hipFree(things.memory));
	return result;
}

static uint64_t alive(const struct control *control)
{
	struct hoist_emulator_counters count = counters_of(control);
	return count.live_allocations + count.live_registrations + count.live_streams +
	       count.live_events + count.live_pools + count.live_imports + count.live_reservations;
}

/* Fails the first use of each function in turn. */
static void fail_each(const struct control *control, unsigned (*walk)(void))
{
	char spec[128];
	cr_assert(walk() == 0);
	for (unsigned i = 0; control->function(i) != NULL; i++)
		cr_expect(control->calls(control->function(i)) > 0, "%s is not walked",
			  control->function(i));
	for (unsigned i = 0; control->function(i) != NULL; i++) {
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
	start_peer(share_cuda_memory);
	cuda_open(&cu, "cuda:1");
	fail_each(&cu.control, walk_cuda);
}

Test(emulator_fault, every_hip_function_fails_on_demand)
{
	start_peer(share_hip_memory);
	hip_open(&hip, "hip:1");
	fail_each(&hip.control, walk_hip);
}

Test(emulator_fault, any_call_can_be_the_one_that_fails)
{
	char spec[32];
	start_peer(share_cuda_memory);
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

Test(emulator_fault, what_cannot_be_read_is_refused_whole)
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
