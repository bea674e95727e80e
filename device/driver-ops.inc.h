/* SPDX-License-Identifier: MIT */
/* device/driver-ops.inc.h - the backend that CUDA and HIP share; included once by cuda.c and once
 * by hip.c, after all else.
 *
 * The two drivers differ in prefixes, a few names, and the points below.  So the operations of
 * device-ops.h are written once, in the parts included here, as static functions driver_*().  A
 * debugger finds both copies by that name.  The driver's own calls keep their names:
 * CALL(StreamQuery) is cuStreamQuery or hipStreamQuery.
 *
 * cuda-run.h and hip-run.h define:
 *   RESULT, NATIVE(type), VALUE(constant)   the driver's types and constants
 *   CALL(function), OURS(name)              its functions; hoist__cuda_name, hoist__hip_name
 *   RUN, RUN_RELAXED, RELEASE               make a call with the device current
 *   DEVICE_ID(dev)                          CUDA's handle of the device, HIP's ordinal
 *   FORGET_ERROR()                          takes HIP's last error back
 *
 * cuda.c and hip.c define, where the drivers differ:
 *   HOST_REGISTER            the name of the function that registers, for messages
 *   EVENTS_READ_STREAMS      asking an event reads the stream that it was recorded on
 *   POOLS_HAVE_THRESHOLDS    a pool whose release threshold cannot be set is a failure
 *   driver_says_destroyed()  true if the result means that the stream is destroyed
 *   driver_open_handle()     opens another process's allocation
 *   driver_check_import()    0 if the device can import a pool
 *   driver_managed_prefer(), driver_vmm_check()    operations, see device-ops.h
 *
 * Opening, questions and copies are each driver's own: *-open.c, *-query.c, *-work.c.
 */
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "device/driver.h"

#include "device/driver-memory.inc.h"
#include "device/driver-stream.inc.h"
#include "device/driver-pool.inc.h"
#include "device/driver-ipc.inc.h"
#include "device/driver-graph.inc.h"
#include "device/driver-vmm.inc.h"

const struct hoist__dev_ops OURS(ops) = {
	.open = OURS(open),
	.probe = OURS(probe),
	.can_access = OURS(can_access),
	.enable_access = OURS(enable_access),
	.synchronize = OURS(synchronize),
	.enter = OURS(enter),
	.leave = OURS(leave),
	.mem_info = driver_mem_info,
	.mem_alloc = driver_mem_alloc,
	.mem_free = driver_mem_free,
	.host_register = driver_host_register,
	.host_unregister = driver_host_unregister,
	.host_address = driver_host_address,
	.managed_alloc = driver_managed_alloc,
	.managed_prefer = driver_managed_prefer,
	.stream_create = driver_stream_create,
	.stream_destroy = driver_stream_destroy,
	.stream_synchronize = driver_stream_synchronize,
	.stream_query = driver_stream_query,
	.stream_capturing = driver_stream_capturing,
	.stream_wait_event = driver_stream_wait_event,
	.events_read_streams = EVENTS_READ_STREAMS,
	.event_create = driver_event_create,
	.event_destroy = driver_event_destroy,
	.event_record = driver_event_record,
	.event_query = driver_event_query,
	.event_synchronize = driver_event_synchronize,
	.event_elapsed_ns = driver_event_elapsed_ns,
	.pool_create = driver_pool_create,
	.pool_current = driver_pool_current,
	.pool_destroy = driver_pool_destroy,
	.pool_alloc = driver_pool_alloc,
	.pool_free = driver_pool_free,
	.pool_trim = driver_pool_trim,
	.pool_get = driver_pool_get,
	.pool_set = driver_pool_set,
	.pool_set_access = driver_pool_set_access,
	.pool_get_access = driver_pool_get_access,
	.allocation = driver_allocation,
	.ipc_export = driver_ipc_export,
	.ipc_open = driver_ipc_open,
	.ipc_close = driver_ipc_close,
	.pool_import = driver_pool_import,
	.pool_export = driver_pool_export,
	.pool_export_block = driver_pool_export_block,
	.pool_import_block = driver_pool_import_block,
	.graph_alloc = driver_graph_alloc,
	.graph_free = driver_graph_free,
	.graph_get = driver_graph_get,
	.graph_reset = driver_graph_reset,
	.graph_trim = driver_graph_trim,
	.vmm_check = driver_vmm_check,
	.vmm_granularity = driver_vmm_granularity,
	.vmm_reserve = driver_vmm_reserve,
	.vmm_unreserve = driver_vmm_unreserve,
	.vmm_create = driver_vmm_create,
	.vmm_release = driver_vmm_release,
	.vmm_map = driver_vmm_map,
	.vmm_unmap = driver_vmm_unmap,
	.vmm_set_access = driver_vmm_set_access,
	.copy_async = OURS(copy_async),
	.copy_peer_async = OURS(copy_peer_async),
	.copy_box = OURS(copy_box),
	.stream_call = driver_stream_call,
	.fill_async = OURS(fill_async),
};
