/* SPDX-License-Identifier: MIT */
/* The stand-in for libamdhip64: memory of graphs. */
#include "config.h"

#include "emulator/graph.h"
#include "emulator/hip-face.h"

#define SAME(ours, drivers) _Static_assert((int)(ours) == (int)(drivers), #drivers)
SAME(EMU_GRAPH_USED_CURRENT, HOIST__HIP_GRAPH_USED_CURRENT);
SAME(EMU_GRAPH_USED_HIGH, HOIST__HIP_GRAPH_USED_HIGH);
SAME(EMU_GRAPH_RESERVED_CURRENT, HOIST__HIP_GRAPH_RESERVED_CURRENT);
SAME(EMU_GRAPH_RESERVED_HIGH, HOIST__HIP_GRAPH_RESERVED_HIGH);
#undef SAME

hoist__hip_error hipMallocAsync(void **ret, size_t bytes, hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_hip_enter_current(FN_hipMallocAsync, &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_alloc(device, stream_of(stream), bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (void *)address;
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipDeviceGraphMemTrim(int ordinal)
{
	int result = hoist__emu_hip_enter(FN_hipDeviceGraphMemTrim);
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_trim(hoist__emu_device(ordinal));
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipDeviceGetGraphMemAttribute(int ordinal, hoist__hip_graph_attribute attribute,
					       void *value)
{
	int result = hoist__emu_hip_enter(FN_hipDeviceGetGraphMemAttribute);
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_get(hoist__emu_device(ordinal), attribute, value);
	return hoist__emu_hip_leave(result);
}

hoist__hip_error hipDeviceSetGraphMemAttribute(int ordinal, hoist__hip_graph_attribute attribute,
					       void *value)
{
	int result = hoist__emu_hip_enter(FN_hipDeviceSetGraphMemAttribute);
	if (result == EMU_SUCCESS && value == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_set(hoist__emu_device(ordinal), attribute,
					      *(const uint64_t *)value);
	return hoist__emu_hip_leave(result);
}
