/* SPDX-License-Identifier: MIT */
/* emulator/face-graph.inc.h - memory of graphs; part of cuda.c. */
#include "emulator/cuda-face.h"
#include "emulator/graph.h"

#define SAME(ours, drivers) _Static_assert((int)(ours) == (int)(drivers), #drivers)
SAME(EMU_GRAPH_USED_CURRENT, HOIST__CU_GRAPH_USED_CURRENT);
SAME(EMU_GRAPH_USED_HIGH, HOIST__CU_GRAPH_USED_HIGH);
SAME(EMU_GRAPH_RESERVED_CURRENT, HOIST__CU_GRAPH_RESERVED_CURRENT);
SAME(EMU_GRAPH_RESERVED_HIGH, HOIST__CU_GRAPH_RESERVED_HIGH);
#undef SAME

hoist__cu_result cuMemAllocAsync(hoist__cu_device_ptr *ret, size_t bytes, hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_cuda_enter_context(FN_cuMemAllocAsync, &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_alloc(device, stream_of(stream), bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = address;
	return (hoist__cu_result)result;
}

hoist__cu_result cuDeviceGraphMemTrim(hoist__cu_device ordinal)
{
	int result = hoist__emu_cuda_enter(FN_cuDeviceGraphMemTrim);
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_trim(hoist__emu_device(ordinal));
	return (hoist__cu_result)result;
}

hoist__cu_result cuDeviceGetGraphMemAttribute(hoist__cu_device ordinal,
					      hoist__cu_graph_attribute attribute, void *value)
{
	int result = hoist__emu_cuda_enter(FN_cuDeviceGetGraphMemAttribute);
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_get(hoist__emu_device(ordinal), attribute, value);
	return (hoist__cu_result)result;
}

hoist__cu_result cuDeviceSetGraphMemAttribute(hoist__cu_device ordinal,
					      hoist__cu_graph_attribute attribute, void *value)
{
	int result = hoist__emu_cuda_enter(FN_cuDeviceSetGraphMemAttribute);
	if (result == EMU_SUCCESS && value == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_set(hoist__emu_device(ordinal), attribute,
					      *(const uint64_t *)value);
	return (hoist__cu_result)result;
}
