/* SPDX-License-Identifier: MIT */
/* A walk through one driver: it calls every function of the table once where nothing fails, and
 * gives back all that it took.  A failed call gives 0.  fault.c includes this file once for each
 * driver, and defines before:
 *
 *   OWN(name)     a function or struct of this file's, for this driver
 *   OWN2(name)    a struct of the driver's
 *   CALL(name)    a function whose name both drivers have, such as MemCreate; each other one,
 *                 such as ALLOC, has a macro
 *   TYPE(name)    hoist__cu_name or hoist__hip_name
 *   VALUE(NAME)   HOIST__CU_NAME or HOIST__HIP_NAME
 *   ADDRESS       the type of a device's address
 */

struct OWN(things) {
	void *context; /* CUDA's */
	bool pushed;
	ADDRESS memory;
	ADDRESS managed;
	ADDRESS pooled;
	ADDRESS ordered; /* of the device's own pool */
	TYPE(pool) pool;
	TYPE(stream) stream;
	TYPE(event) event;
	ADDRESS opened; /* these three are of the peer */
	TYPE(pool) peers;
	ADDRESS imported;
	ADDRESS reserved; /* addresses, of @granule bytes */
	TYPE(memory) physical;
	size_t granule;
	bool mapped;
	bool registered;
};

/* The steps that the drivers do not have in common. */
static unsigned OWN(start)(void);
static unsigned OWN(ask_device)(void);
static unsigned OWN(enter)(struct OWN(things) *things);
static unsigned OWN(work)(const struct OWN(things) *things);
static unsigned OWN(leave)(const struct OWN(things) *things, unsigned result);

static const struct OWN2(pool_props) OWN(pool_props) = {
	.type = VALUE(ALLOCATION_PINNED),
	.handle_types = VALUE(HANDLE_FD),
	.location_type = VALUE(LOCATION_DEVICE),
};

/* The peer's part.  Returns 0, with all of @peer filled. */
static unsigned OWN(share_memory)(void)
{
	unsigned result = 0;
	TYPE(pool) pool = NULL;
	ADDRESS memory = 0;
	TYPE(ipc_handle) handle;
	TYPE(block_handle) block;
	TRY(OWN(start)());
	TRY(ALLOC(&memory, BYTES));
	TRY(CALL(IpcGetMemHandle)(&handle, memory));
	TRY(CALL(MemPoolCreate)(&pool, &OWN(pool_props)));
	TRY(ALLOC_FROM_POOL(&memory, BYTES, pool, NULL));
	TRY(CALL(MemPoolExportPointer)(&block, memory));
	TRY(CALL(MemPoolExportToShareableHandle)(&peer.fd, pool, VALUE(HANDLE_FD), 0));
	memcpy(peer.plain, handle.bytes, sizeof peer.plain);
	memcpy(peer.block, block.bytes, sizeof peer.block);
out:
	return result;
}

/* Memory that processes share; the imported memory comes from another process. */
static unsigned OWN(share)(struct OWN(things) *things)
{
	unsigned result = 0;
	int fd = -1;
	size_t bytes = 0;
	ADDRESS base = 0;
	TYPE(ipc_handle) handle;
	TYPE(block_handle) block;
	TRY(CALL(MemGetAddressRange)(&base, &bytes, things->memory));
	TRY(CALL(IpcGetMemHandle)(&handle, things->memory));
	TRY(CALL(MemPoolExportPointer)(&block, things->pooled));
	TRY(CALL(MemPoolExportToShareableHandle)(&fd, things->pool, VALUE(HANDLE_FD), 0));
	close(fd);
	memcpy(handle.bytes, peer.plain, sizeof handle.bytes);
	memcpy(block.bytes, peer.block, sizeof block.bytes);
	TRY(CALL(IpcOpenMemHandle)(&things->opened, handle, 1));
	TRY(CALL(MemPoolImportFromShareableHandle)(&things->peers, (void *)(uintptr_t)peer.fd,
						  VALUE(HANDLE_FD), 0));
	TRY(CALL(MemPoolImportPointer)(&things->imported, things->peers, &block));
out:
	return result;
}

static unsigned OWN(unshare)(struct OWN(things) *things, unsigned result)
{
	if (things->imported != 0)
		result = first_of(result, FREE(things->imported));
	if (things->peers != 0)
		result = first_of(result, CALL(MemPoolDestroy)(things->peers));
	if (things->opened != 0)
		result = first_of(result, CALL(IpcCloseMemHandle)(things->opened));
	return result;
}

/* Sets the access of a device to a pool's memory, and asks for it. */
static unsigned OWN(access_pool)(const struct OWN(things) *things)
{
	const struct OWN2(access) access = {{VALUE(LOCATION_DEVICE), 0},
						VALUE(ACCESS_READ_WRITE)};
	struct OWN2(location) location = access.location;
	TYPE(access_flags) flags = 0;
	unsigned result = 0;
	TRY(CALL(MemPoolSetAccess)(things->pool, &access, 1));
	TRY(CALL(MemPoolGetAccess)(&flags, things->pool, &location));
out:
	return result;
}

static unsigned OWN(use_pool)(struct OWN(things) *things)
{
	unsigned result = 0;
	TYPE(pool) own = NULL;
	uint64_t value = 0;
	TRY(CALL(DeviceGetMemPool)(&own, 0));
	TRY(CALL(MemPoolCreate)(&things->pool, &OWN(pool_props)));
	TRY(CALL(MemPoolGetAttribute)(things->pool, VALUE(POOL_THRESHOLD), &value));
	TRY(CALL(MemPoolSetAttribute)(things->pool, VALUE(POOL_THRESHOLD), &value));
	TRY(ALLOC_FROM_POOL(&things->pooled, BYTES, things->pool, things->stream));
	TRY(CALL(MemPoolTrimTo)(things->pool, 0));
	TRY(OWN(access_pool)(things));
	TRY(OWN(share)(things));
out:
	return result;
}

/* Memory and addresses apart: made here, given back by OWN(unmap)(). */
static unsigned OWN(map)(struct OWN(things) *things)
{
	const struct OWN2(memory_props) props = {.type = VALUE(ALLOCATION_PINNED),
						     .location = {VALUE(LOCATION_DEVICE), 0}};
	const struct OWN2(access) access = {props.location, VALUE(ACCESS_READ_WRITE)};
	unsigned result = 0;
	TRY(CALL(MemGetAllocationGranularity)(&things->granule, &props,
					     VALUE(GRANULARITY_MINIMUM)));
	TRY(CALL(MemAddressReserve)(&things->reserved, things->granule, 0, 0, 0));
	TRY(CALL(MemCreate)(&things->physical, things->granule, &props, 0));
	TRY(CALL(MemMap)(things->reserved, things->granule, 0, things->physical, 0));
	things->mapped = true;
	TRY(CALL(MemSetAccess)(things->reserved, things->granule, &access, 1));
out:
	return result;
}

static unsigned OWN(unmap)(const struct OWN(things) *things, unsigned result)
{
	if (things->mapped)
		result = first_of(result, CALL(MemUnmap)(things->reserved, things->granule));
	if (things->physical != 0)
		result = first_of(result, CALL(MemRelease)(things->physical));
	if (things->reserved != 0)
		result = first_of(result, CALL(MemAddressFree)(things->reserved, things->granule));
	return result;
}

/* The memory that a device keeps for its graphs, and memory from the device's own pool. */
static unsigned OWN(use_graphs)(struct OWN(things) *things)
{
	unsigned result = 0;
	uint64_t value = 0;
	TRY(ALLOC_ASYNC(&things->ordered, BYTES, things->stream));
	TRY(CALL(DeviceGetGraphMemAttribute)(0, VALUE(GRAPH_USED_HIGH), &value));
	value = 0;
	TRY(CALL(DeviceSetGraphMemAttribute)(0, VALUE(GRAPH_USED_HIGH), &value));
	TRY(CALL(DeviceGraphMemTrim)(0));
out:
	return result;
}

static unsigned OWN(use_device)(struct OWN(things) *things)
{
	unsigned result = 0;
	size_t bytes = 0;
	ADDRESS seen = 0;
	TYPE(capture_status) status = 0;
	TYPE(capture_mode) mode = 0;
	float ms = 0;
	TRY(CALL(MemGetInfo)(&bytes, &bytes));
	TRY(ALLOC(&things->memory, BYTES));
	TRY(ALLOC_MANAGED(&things->managed, BYTES, VALUE(ATTACH_GLOBAL)));
	TRY(REGISTER(host, BYTES, 1));
	things->registered = true;
	TRY(HOST_ADDRESS(&seen, host, 0));
	TRY(CREATE_STREAM(&things->stream, 1));
	TRY(CALL(StreamIsCapturing)(things->stream, &status));
	TRY(CALL(ThreadExchangeStreamCaptureMode)(&mode));
	TRY(CREATE_EVENT(&things->event, 0));
	TRY(OWN(work)(things));
	TRY(CALL(LaunchHostFunc)(things->stream, nothing, NULL));
	TRY(CALL(EventRecord)(things->event, things->stream));
	TRY(CALL(StreamWaitEvent)(things->stream, things->event, 0));
	TRY(CALL(EventSynchronize)(things->event));
	TRY(CALL(StreamSynchronize)(things->stream));
	TRY(CALL(EventQuery)(things->event));
	TRY(CALL(StreamQuery)(things->stream));
	TRY(CALL(EventElapsedTime)(&ms, things->event, things->event));
	TRY(OWN(map)(things));
	TRY(OWN(use_graphs)(things));
	TRY(OWN(use_pool)(things));
out:
	return result;
}

static unsigned OWN(walk)(void)
{
	struct OWN(things) things = {0};
	unsigned result = 0;
	TRY(OWN(ask_device)());
	TRY(OWN(enter)(&things));
	TRY(OWN(use_device)(&things));
out:
	/* Queued work may still use what is freed below. */
	if (things.stream != 0 && result != 0)
		(void)CALL(StreamSynchronize)(things.stream);
	result = OWN(unshare)(&things, result);
	result = OWN(unmap)(&things, result);
	if (things.ordered != 0)
		result = first_of(result, FREE_ASYNC(things.ordered, things.stream));
	if (things.pooled != 0)
		result = first_of(result, FREE_ASYNC(things.pooled, things.stream));
	if (things.pool != 0)
		result = first_of(result, CALL(MemPoolDestroy)(things.pool));
	if (things.event != 0)
		result = first_of(result, CALL(EventDestroy)(things.event));
	if (things.stream != 0)
		result = first_of(result, CALL(StreamDestroy)(things.stream));
	if (things.registered)
		result = first_of(result, UNREGISTER(host));
	if (things.managed != 0)
		result = first_of(result, FREE(things.managed));
	if (things.memory != 0)
		result = first_of(result, FREE(things.memory));
	return OWN(leave)(&things, result);
}

#undef OWN
#undef OWN2
#undef CALL
#undef TYPE
#undef VALUE
#undef ADDRESS
#undef ALLOC
#undef ALLOC_MANAGED
#undef ALLOC_FROM_POOL
#undef ALLOC_ASYNC
#undef FREE
#undef FREE_ASYNC
#undef REGISTER
#undef UNREGISTER
#undef HOST_ADDRESS
#undef CREATE_STREAM
#undef CREATE_EVENT
