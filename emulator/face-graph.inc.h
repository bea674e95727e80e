/* SPDX-License-Identifier: MIT */
/* emulator/face-graph.inc.h - memory of graphs; part of cuda.c and of hip.c.
 * See face.h. */
#include "emulator/graph.h"

SAME(EMU_GRAPH_USED_CURRENT, GRAPH_USED_CURRENT);
SAME(EMU_GRAPH_USED_HIGH, GRAPH_USED_HIGH);
SAME(EMU_GRAPH_RESERVED_CURRENT, GRAPH_RESERVED_CURRENT);
SAME(EMU_GRAPH_RESERVED_HIGH, GRAPH_RESERVED_HIGH);

RESULT SYMBOL(MallocAsync)(NATIVE(device_ptr) *ret, size_t bytes, NATIVE(stream) stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN(MallocAsync), &device);
	uintptr_t address = 0;
	if (result == EMU_SUCCESS && ret == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_alloc(device, stream_of(stream), bytes, &address);
	if (result == EMU_SUCCESS)
		*ret = (NATIVE(device_ptr))address;
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(DeviceGraphMemTrim)(NATIVE(device) ordinal)
{
	int result = hoist__emu_face_enter(FN(DeviceGraphMemTrim));
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_trim(hoist__emu_device(ordinal));
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(DeviceGetGraphMemAttribute)(NATIVE(device) ordinal, NATIVE(graph_attribute) attribute,
					  void *value)
{
	int result = hoist__emu_face_enter(FN(DeviceGetGraphMemAttribute));
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_get(hoist__emu_device(ordinal), attribute, value);
	return hoist__emu_face_leave(result);
}

RESULT SYMBOL(DeviceSetGraphMemAttribute)(NATIVE(device) ordinal, NATIVE(graph_attribute) attribute,
					  void *value)
{
	int result = hoist__emu_face_enter(FN(DeviceSetGraphMemAttribute));
	if (result == EMU_SUCCESS && value == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_graph_set(hoist__emu_device(ordinal), attribute,
					      *(const uint64_t *)value);
	return hoist__emu_face_leave(result);
}
