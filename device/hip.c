/* SPDX-License-Identifier: MIT */
/* device/hip.c - the HIP backend, on the runtime API: memory, streams, events.
 * The thread's current device is hip-current.c's, copies are hip-work.c's. */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "device/driver.h"
#include "device/hip-run.h"

/* --- memory --- */

static int hip_mem_info(struct hoist__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes)
{
	size_t available = 0;
	size_t total = 0;
	int err = RUN_RELAXED(dev, "asking how much memory is free",
			      hoist__hip.hipMemGetInfo(&available, &total));
	if (err < 0)
		return err;
	*free_bytes = available;
	*total_bytes = total;
	return 0;
}

static int hip_mem_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret)
{
	void *address = NULL;
	int err =
		RUN_RELAXED(dev, "allocating device memory", hoist__hip.hipMalloc(&address, bytes));
	if (err < 0)
		return hoist__driver_fail_alloc(dev, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

static int hip_managed_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret)
{
	void *address = NULL;
	hoist__hip_error error = HOIST__HIP_SUCCESS;
	if (hoist__hip.hipMallocManaged == NULL)
		return hoist__driver_fail_lacks(dev, "managed memory");
	int err = RUN_RELAXED(
		dev, "allocating managed memory",
		error = hoist__hip.hipMallocManaged(&address, bytes, HOIST__HIP_ATTACH_GLOBAL));
	if (error == HOIST__HIP_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_refuses(dev, (int)error, "managed memory");
	if (err < 0)
		return hoist__driver_fail_alloc(dev, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

/* The runtime knows one location on the host, which is all of it. */
static int hip_managed_prefer(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			      enum hoist__prefer prefer, int node)
{
	int location = prefer == HOIST__PREFER_DEVICE ? dev->ordinal : HOIST__HIP_CPU;
	hoist__hip_error error = HOIST__HIP_SUCCESS;
	if (hoist__hip.hipMemAdvise == NULL || prefer == HOIST__PREFER_NODE)
		return hoist__driver_fail_lacks(dev, prefer == HOIST__PREFER_NODE
							     ? "preferred node of managed memory"
							     : "preferred location of managed "
							       "memory");
	(void)node;
	int err = RUN_RELAXED(dev, "preferring a location of managed memory",
			      error = hoist__hip.hipMemAdvise((void *)address, bytes,
							      HOIST__HIP_ADVISE_PREFERRED_LOCATION,
							      location));
	if (error == HOIST__HIP_ERROR_INVALID_DEVICE)
		return hoist__driver_fail_lacks(dev, "preferred location of managed memory");
	return err;
}

static int hip_mem_free(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	(void)bytes;
	return RELEASE(dev, "freeing device memory", hoist__hip.hipFree((void *)address));
}

static int hip_host_register(struct hoist__dev *dev, void *address, size_t bytes)
{
	const unsigned flags = HOIST__HIP_HOST_REGISTER_PORTABLE | HOIST__HIP_HOST_REGISTER_MAPPED;
	int err = RUN_RELAXED(dev, "hipHostRegister",
			      hoist__hip.hipHostRegister(address, bytes, flags));
	return err < 0 ? hoist__driver_fail_register(err, bytes) : 0;
}

static int hip_host_unregister(struct hoist__dev *dev, void *address, size_t bytes)
{
	(void)bytes;
	return RELEASE(dev, "unregistering host memory", hoist__hip.hipHostUnregister(address));
}

static int hip_host_address(struct hoist__dev *dev, void *address, uintptr_t *ret)
{
	void *seen = NULL;
	int err = RUN(dev, "asking for the device's address of host memory",
		      hoist__hip.hipHostGetDevicePointer(&seen, address, 0));
	if (err == 0)
		*ret = (uintptr_t)seen;
	return err;
}

/* --- streams --- */

static int hip_stream_create(struct hoist__dev_stream *stream)
{
	hoist__hip_stream native = NULL;
	int err = RUN(stream->dev, "creating a stream",
		      hoist__hip.hipStreamCreateWithFlags(&native, HOIST__HIP_STREAM_NON_BLOCKING));
	if (err == 0)
		stream->native = native;
	return err;
}

static void hip_stream_destroy(struct hoist__dev_stream *stream)
{
	int err = RELEASE(stream->dev, "destroying a stream",
			  hoist__hip.hipStreamDestroy(stream->native));
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
}

static int hip_stream_synchronize(struct hoist__dev_stream *stream)
{
	return RUN_RELAXED(stream->dev, "waiting for a stream",
			   hoist__hip.hipStreamSynchronize(stream->native));
}

static int hip_stream_query(struct hoist__dev_stream *stream)
{
	return RUN_RELAXED(stream->dev, "asking a stream for its state",
			   hoist__hip.hipStreamQuery(stream->native));
}

/* Where work on the NULL stream would break the capture of a blocking stream, the runtime
 * says that instead: the answer is yes too. */
static hoist__hip_error ask_capture(hoist__hip_stream stream, hoist__hip_capture_status *status)
{
	hoist__hip_error error = hoist__hip.hipStreamIsCapturing(stream, status);
	if (error != HOIST__HIP_ERROR_CAPTURE_IMPLICIT)
		return error;
	(void)hoist__hip.hipGetLastError();
	*status = HOIST__HIP_CAPTURE_ACTIVE;
	return HOIST__HIP_SUCCESS;
}

/* The runtime knows its streams: of a wrapped one it says that the caller has destroyed it. */
static int hip_stream_capturing(struct hoist__dev_stream *stream, bool *ret)
{
	hoist__hip_capture_status status = HOIST__HIP_CAPTURE_NONE;
	hoist__hip_error error = HOIST__HIP_SUCCESS;
	int err = 0;
	if (hoist__hip.hipStreamIsCapturing != NULL)
		err = RUN(stream->dev, "asking whether a stream captures",
			  error = ask_capture(stream->native, &status));
	if (error == HOIST__HIP_ERROR_CONTEXT_DESTROYED)
		return hoist__fail(-EBADF, "hip:%d: a wrapped stream is destroyed already",
				   stream->dev->ordinal);
	if (err == 0)
		*ret = status != HOIST__HIP_CAPTURE_NONE;
	return err;
}

static int hip_stream_wait_event(struct hoist__dev_stream *stream, struct hoist__dev_event *event)
{
	return RUN(stream->dev, "making a stream wait for an event",
		   hoist__hip.hipStreamWaitEvent(stream->native, event->native, 0));
}

/* --- events --- */

static int hip_event_create(struct hoist__dev_event *event)
{
	unsigned flags = HOIST__HIP_EVENT_BLOCKING_SYNC;
	if ((event->flags & HOIST__EVENT_TIMING) == 0)
		flags |= HOIST__HIP_EVENT_DISABLE_TIMING;
	hoist__hip_event native = NULL;
	int err = RUN(event->dev, "creating an event",
		      hoist__hip.hipEventCreateWithFlags(&native, flags));
	if (err == 0)
		event->native = native;
	return err;
}

static void hip_event_destroy(struct hoist__dev_event *event)
{
	int err = RELEASE(event->dev, "destroying an event",
			  hoist__hip.hipEventDestroy(event->native));
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
}

static int hip_event_record(struct hoist__dev_event *event, struct hoist__dev_stream *stream)
{
	return RUN(event->dev, "recording an event",
		   hoist__hip.hipEventRecord(event->native, stream->native));
}

static int hip_event_query(struct hoist__dev_event *event)
{
	return RUN_RELAXED(event->dev, "asking an event for its state",
			   hoist__hip.hipEventQuery(event->native));
}

static int hip_event_synchronize(struct hoist__dev_event *event)
{
	return RUN_RELAXED(event->dev, "waiting for an event",
			   hoist__hip.hipEventSynchronize(event->native));
}

static int hip_event_elapsed_ns(struct hoist__dev_event *start, struct hoist__dev_event *end,
				uint64_t *ret)
{
	float ms = 0;
	int err = RUN(start->dev, "asking for the time between two events",
		      hoist__hip.hipEventElapsedTime(&ms, start->native, end->native));
	if (err == 0)
		*ret = hoist__driver_ns(ms);
	return err;
}

const struct hoist__dev_ops hoist__hip_ops = {
	.events_read_streams = true,
	.open = hoist__hip_open,
	.probe = hoist__hip_probe,
	.can_access = hoist__hip_can_access,
	.enable_access = hoist__hip_enable_access,
	.synchronize = hoist__hip_synchronize,
	.mem_info = hip_mem_info,
	.mem_alloc = hip_mem_alloc,
	.managed_alloc = hip_managed_alloc,
	.managed_prefer = hip_managed_prefer,
	.mem_free = hip_mem_free,
	.host_register = hip_host_register,
	.host_unregister = hip_host_unregister,
	.host_address = hip_host_address,
	.stream_create = hip_stream_create,
	.stream_destroy = hip_stream_destroy,
	.stream_synchronize = hip_stream_synchronize,
	.stream_query = hip_stream_query,
	.stream_capturing = hip_stream_capturing,
	.stream_wait_event = hip_stream_wait_event,
	.event_create = hip_event_create,
	.event_destroy = hip_event_destroy,
	.event_record = hip_event_record,
	.event_query = hip_event_query,
	.event_synchronize = hip_event_synchronize,
	.event_elapsed_ns = hip_event_elapsed_ns,
	.pool_create = hoist__hip_pool_create,
	.pool_current = hoist__hip_pool_current,
	.pool_destroy = hoist__hip_pool_destroy,
	.pool_alloc = hoist__hip_pool_alloc,
	.pool_free = hoist__hip_pool_free,
	.pool_trim = hoist__hip_pool_trim,
	.pool_get = hoist__hip_pool_get,
	.pool_set = hoist__hip_pool_set,
	.pool_set_access = hoist__hip_pool_set_access,
	.pool_get_access = hoist__hip_pool_get_access,
	.allocation = hoist__hip_allocation,
	.ipc_export = hoist__hip_ipc_export,
	.ipc_open = hoist__hip_ipc_open,
	.ipc_close = hoist__hip_ipc_close,
	.pool_import = hoist__hip_pool_import,
	.pool_export = hoist__hip_pool_export,
	.pool_export_block = hoist__hip_pool_export_block,
	.pool_import_block = hoist__hip_pool_import_block,
	.graph_alloc = hoist__hip_graph_alloc,
	.graph_free = hoist__hip_graph_free,
	.graph_get = hoist__hip_graph_get,
	.graph_reset = hoist__hip_graph_reset,
	.graph_trim = hoist__hip_graph_trim,
	.vmm_check = hoist__hip_vmm_check,
	.vmm_granularity = hoist__hip_vmm_granularity,
	.vmm_reserve = hoist__hip_vmm_reserve,
	.vmm_unreserve = hoist__hip_vmm_unreserve,
	.vmm_create = hoist__hip_vmm_create,
	.vmm_release = hoist__hip_vmm_release,
	.vmm_map = hoist__hip_vmm_map,
	.vmm_unmap = hoist__hip_vmm_unmap,
	.vmm_set_access = hoist__hip_vmm_set_access,
	.copy_async = hoist__hip_copy_async,
	.copy_peer_async = hoist__hip_copy_peer_async,
	.copy_box = hoist__hip_copy_box,
	.stream_call = hoist__hip_stream_call,
	.fill_async = hoist__hip_fill_async,
};
