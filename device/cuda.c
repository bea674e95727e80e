/* SPDX-License-Identifier: MIT */
/* device/cuda.c - the CUDA backend, on the driver API: memory, streams, events.
 * Contexts are cuda-context.c's, copies cuda-work.c's. */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "device/cuda-run.h"
#include "device/driver.h"

/* --- memory --- */

static int cuda_mem_info(struct hoist__dev *dev, uint64_t *free_bytes, uint64_t *total_bytes)
{
	size_t available = 0;
	size_t total = 0;
	int err = RUN_RELAXED(dev, "asking how much memory is free",
			      hoist__cuda.cuMemGetInfo(&available, &total));
	if (err < 0)
		return err;
	*free_bytes = available;
	*total_bytes = total;
	return 0;
}

static int cuda_mem_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret)
{
	hoist__cu_device_ptr address = 0;
	int err = RUN_RELAXED(dev, "allocating device memory",
			      hoist__cuda.cuMemAlloc(&address, bytes));
	if (err < 0)
		return hoist__driver_fail_alloc(dev, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

static int cuda_managed_alloc(struct hoist__dev *dev, size_t bytes, uintptr_t *ret)
{
	hoist__cu_device_ptr address = 0;
	hoist__cu_result result = HOIST__CU_SUCCESS;
	if (hoist__cuda.cuMemAllocManaged == NULL)
		return hoist__driver_fail_lacks(dev, "managed memory");
	int err = RUN_RELAXED(
		dev, "allocating managed memory",
		result = hoist__cuda.cuMemAllocManaged(&address, bytes, HOIST__CU_ATTACH_GLOBAL));
	if (result == HOIST__CU_ERROR_NOT_SUPPORTED)
		return hoist__driver_fail_refuses(dev, (int)result, "managed memory");
	if (err < 0)
		return hoist__driver_fail_alloc(dev, err, bytes);
	*ret = (uintptr_t)address;
	return 0;
}

static struct hoist__cu_location location_of(const struct hoist__dev *dev,
					     enum hoist__prefer prefer, int node)
{
	switch (prefer) {
	case HOIST__PREFER_HOST:
		return (struct hoist__cu_location){HOIST__CU_LOCATION_HOST, 0};
	case HOIST__PREFER_NODE:
		return (struct hoist__cu_location){HOIST__CU_LOCATION_HOST_NODE, node};
	default:
		return (struct hoist__cu_location){HOIST__CU_LOCATION_DEVICE, dev->native};
	}
}

static int cuda_managed_prefer(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			       enum hoist__prefer prefer, int node)
{
	hoist__cu_result result = HOIST__CU_SUCCESS;
	if (hoist__cuda.cuMemAdvise_v2 == NULL)
		return hoist__driver_fail_lacks(dev, "preferred location of managed memory");
	int err = RUN_RELAXED(dev, "preferring a location of managed memory",
			      result = hoist__cuda.cuMemAdvise_v2(
				      address, bytes, HOIST__CU_ADVISE_PREFERRED_LOCATION,
				      location_of(dev, prefer, node)));
	/* Devices that cannot use managed memory beside the host. */
	if (result == HOIST__CU_ERROR_INVALID_DEVICE)
		return hoist__driver_fail_lacks(dev, "preferred location of managed memory");
	return err;
}

static int cuda_mem_free(struct hoist__dev *dev, uintptr_t address, size_t bytes)
{
	(void)bytes;
	return RELEASE(dev, "freeing device memory", hoist__cuda.cuMemFree(address));
}

static int cuda_host_register(struct hoist__dev *dev, void *address, size_t bytes)
{
	const unsigned flags = HOIST__CU_HOST_REGISTER_PORTABLE | HOIST__CU_HOST_REGISTER_DEVICEMAP;
	int err = RUN_RELAXED(dev, "cuMemHostRegister",
			      hoist__cuda.cuMemHostRegister(address, bytes, flags));
	return err < 0 ? hoist__driver_fail_register(err, bytes) : 0;
}

static int cuda_host_unregister(struct hoist__dev *dev, void *address, size_t bytes)
{
	(void)bytes;
	return RELEASE(dev, "unregistering host memory", hoist__cuda.cuMemHostUnregister(address));
}

static int cuda_host_address(struct hoist__dev *dev, void *address, uintptr_t *ret)
{
	hoist__cu_device_ptr seen = 0;
	int err = RUN(dev, "asking for the device's address of host memory",
		      hoist__cuda.cuMemHostGetDevicePointer(&seen, address, 0));
	if (err == 0)
		*ret = (uintptr_t)seen;
	return err;
}

/* --- streams --- */

static int cuda_stream_create(struct hoist__dev_stream *stream)
{
	hoist__cu_stream native = NULL;
	int err = RUN(stream->dev, "creating a stream",
		      hoist__cuda.cuStreamCreate(&native, HOIST__CU_STREAM_NON_BLOCKING));
	if (err == 0)
		stream->native = native;
	return err;
}

static void cuda_stream_destroy(struct hoist__dev_stream *stream)
{
	int err = RELEASE(stream->dev, "destroying a stream",
			  hoist__cuda.cuStreamDestroy(stream->native));
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
}

static int cuda_stream_synchronize(struct hoist__dev_stream *stream)
{
	return RUN_RELAXED(stream->dev, "waiting for a stream",
			   hoist__cuda.cuStreamSynchronize(stream->native));
}

static int cuda_stream_query(struct hoist__dev_stream *stream)
{
	return RUN_RELAXED(stream->dev, "asking a stream for its state",
			   hoist__cuda.cuStreamQuery(stream->native));
}

/* Where work on the NULL stream would break the capture of a blocking stream, the driver
 * says that instead: the answer is yes too. */
static hoist__cu_result ask_capture(hoist__cu_stream stream, hoist__cu_capture_status *status)
{
	hoist__cu_result result = hoist__cuda.cuStreamIsCapturing(stream, status);
	if (result != HOIST__CU_ERROR_CAPTURE_IMPLICIT)
		return result;
	*status = HOIST__CU_CAPTURE_ACTIVE;
	return HOIST__CU_SUCCESS;
}

static int cuda_stream_capturing(struct hoist__dev_stream *stream, bool *ret)
{
	hoist__cu_capture_status status = HOIST__CU_CAPTURE_NONE;
	int err = 0;
	if (hoist__cuda.cuStreamIsCapturing != NULL)
		err = RUN(stream->dev, "asking whether a stream captures",
			  ask_capture(stream->native, &status));
	if (err == 0)
		*ret = status != HOIST__CU_CAPTURE_NONE;
	return err;
}

static int cuda_stream_wait_event(struct hoist__dev_stream *stream, struct hoist__dev_event *event)
{
	return RUN(stream->dev, "making a stream wait for an event",
		   hoist__cuda.cuStreamWaitEvent(stream->native, event->native, 0));
}

/* --- events --- */

static int cuda_event_create(struct hoist__dev_event *event)
{
	unsigned flags = HOIST__CU_EVENT_BLOCKING_SYNC;
	if ((event->flags & HOIST__EVENT_TIMING) == 0)
		flags |= HOIST__CU_EVENT_DISABLE_TIMING;
	hoist__cu_event native = NULL;
	int err = RUN(event->dev, "creating an event", hoist__cuda.cuEventCreate(&native, flags));
	if (err == 0)
		event->native = native;
	return err;
}

static void cuda_event_destroy(struct hoist__dev_event *event)
{
	int err = RELEASE(event->dev, "destroying an event",
			  hoist__cuda.cuEventDestroy(event->native));
	if (err < 0)
		hoist__log(device, "%s", hoist__error_text());
}

static int cuda_event_record(struct hoist__dev_event *event, struct hoist__dev_stream *stream)
{
	return RUN(event->dev, "recording an event",
		   hoist__cuda.cuEventRecord(event->native, stream->native));
}

static int cuda_event_query(struct hoist__dev_event *event)
{
	return RUN_RELAXED(event->dev, "asking an event for its state",
			   hoist__cuda.cuEventQuery(event->native));
}

static int cuda_event_synchronize(struct hoist__dev_event *event)
{
	return RUN_RELAXED(event->dev, "waiting for an event",
			   hoist__cuda.cuEventSynchronize(event->native));
}

static int cuda_event_elapsed_ns(struct hoist__dev_event *start, struct hoist__dev_event *end,
				 uint64_t *ret)
{
	float ms = 0;
	int err = RUN(start->dev, "asking for the time between two events",
		      hoist__cuda.cuEventElapsedTime(&ms, start->native, end->native));
	if (err == 0)
		*ret = hoist__driver_ns(ms);
	return err;
}

#include "device/driver-graph.inc.h"
#include "device/driver-ipc.inc.h"
#include "device/driver-pool.inc.h"
#include "device/driver-vmm.inc.h"

const struct hoist__dev_ops hoist__cuda_ops = {
	.open = hoist__cuda_open,
	.probe = hoist__cuda_probe,
	.can_access = hoist__cuda_can_access,
	.enable_access = hoist__cuda_enable_access,
	.synchronize = hoist__cuda_synchronize,
	.mem_info = cuda_mem_info,
	.mem_alloc = cuda_mem_alloc,
	.managed_alloc = cuda_managed_alloc,
	.managed_prefer = cuda_managed_prefer,
	.mem_free = cuda_mem_free,
	.host_register = cuda_host_register,
	.host_unregister = cuda_host_unregister,
	.host_address = cuda_host_address,
	.stream_create = cuda_stream_create,
	.stream_destroy = cuda_stream_destroy,
	.stream_synchronize = cuda_stream_synchronize,
	.stream_query = cuda_stream_query,
	.stream_capturing = cuda_stream_capturing,
	.stream_wait_event = cuda_stream_wait_event,
	.event_create = cuda_event_create,
	.event_destroy = cuda_event_destroy,
	.event_record = cuda_event_record,
	.event_query = cuda_event_query,
	.event_synchronize = cuda_event_synchronize,
	.event_elapsed_ns = cuda_event_elapsed_ns,
	.pool_create = hoist__cuda_pool_create,
	.pool_current = hoist__cuda_pool_current,
	.pool_destroy = hoist__cuda_pool_destroy,
	.pool_alloc = hoist__cuda_pool_alloc,
	.pool_free = hoist__cuda_pool_free,
	.pool_trim = hoist__cuda_pool_trim,
	.pool_get = hoist__cuda_pool_get,
	.pool_set = hoist__cuda_pool_set,
	.pool_set_access = hoist__cuda_pool_set_access,
	.pool_get_access = hoist__cuda_pool_get_access,
	.allocation = hoist__cuda_allocation,
	.ipc_export = hoist__cuda_ipc_export,
	.ipc_open = hoist__cuda_ipc_open,
	.ipc_close = hoist__cuda_ipc_close,
	.pool_import = hoist__cuda_pool_import,
	.pool_export = hoist__cuda_pool_export,
	.pool_export_block = hoist__cuda_pool_export_block,
	.pool_import_block = hoist__cuda_pool_import_block,
	.graph_alloc = hoist__cuda_graph_alloc,
	.graph_free = hoist__cuda_graph_free,
	.graph_get = hoist__cuda_graph_get,
	.graph_reset = hoist__cuda_graph_reset,
	.graph_trim = hoist__cuda_graph_trim,
	.vmm_check = hoist__cuda_vmm_check,
	.vmm_granularity = hoist__cuda_vmm_granularity,
	.vmm_reserve = hoist__cuda_vmm_reserve,
	.vmm_unreserve = hoist__cuda_vmm_unreserve,
	.vmm_create = hoist__cuda_vmm_create,
	.vmm_release = hoist__cuda_vmm_release,
	.vmm_map = hoist__cuda_vmm_map,
	.vmm_unmap = hoist__cuda_vmm_unmap,
	.vmm_set_access = hoist__cuda_vmm_set_access,
	.copy_async = hoist__cuda_copy_async,
	.copy_peer_async = hoist__cuda_copy_peer_async,
	.copy_box = hoist__cuda_copy_box,
	.stream_call = hoist__cuda_stream_call,
	.fill_async = hoist__cuda_fill_async,
};
