/* SPDX-License-Identifier: MIT */
/* emulator/hip-work.c - the stand-in for libamdhip64: copies and fills on streams.
 * The contract is device/hip-table.h; emulator/face.h says how a face is made. */
#include "config.h"

#include "base/checked.h"
#include "emulator/hip-face.h"
#include "emulator/stream.h"

/* --- bytes --- */

static int direction_of(hoist__hip_copy_kind kind, enum hoist__emu_direction *ret)
{
	switch (kind) {
	case HOIST__HIP_COPY_HOST_TO_DEVICE:
		*ret = EMU_TO_DEVICE;
		return EMU_SUCCESS;
	case HOIST__HIP_COPY_DEVICE_TO_HOST:
		*ret = EMU_TO_HOST;
		return EMU_SUCCESS;
	case HOIST__HIP_COPY_DEVICE_TO_DEVICE:
		*ret = EMU_ON_DEVICE;
		return EMU_SUCCESS;
	default:
		return EMU_INVALID_VALUE;
	}
}

hoist__hip_error hipMemcpyAsync(void *dst, const void *src, size_t bytes, hoist__hip_copy_kind kind,
				hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	enum hoist__emu_direction direction = EMU_ON_DEVICE;
	int result = hoist__emu_face_enter_current(FN_hipMemcpyAsync, &device);
	if (result == EMU_SUCCESS)
		result = direction_of(kind, &direction);
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy(device, stream_of(stream), direction, (uintptr_t)dst,
					 (uintptr_t)src, bytes);
	return hoist__emu_face_leave(result);
}

hoist__hip_error hipMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
				    size_t bytes, hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_hipMemcpyPeerAsync, &device);
	const struct hoist__emu_device *to = hoist__emu_device(dst_device);
	const struct hoist__emu_device *from = hoist__emu_device(src_device);
	if (result == EMU_SUCCESS && (to == NULL || from == NULL))
		result = EMU_INVALID_DEVICE;
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy_peer(device, stream_of(stream), to, (uintptr_t)dst, from,
					      (uintptr_t)src, bytes);
	return hoist__emu_face_leave(result);
}

/* --- rows --- */

hoist__hip_error hipMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
				  size_t width, size_t rows, hoist__hip_copy_kind kind,
				  hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	enum hoist__emu_direction direction = EMU_ON_DEVICE;
	const struct hoist__emu_box box = {
		.dst = (uintptr_t)dst,
		.src = (uintptr_t)src,
		.width = width,
		.rows = rows,
		.planes = 1,
		.dst_pitch = dst_pitch,
		.src_pitch = src_pitch,
	};
	int result = hoist__emu_face_enter_current(FN_hipMemcpy2DAsync, &device);
	if (result == EMU_SUCCESS)
		result = direction_of(kind, &direction);
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy_box(device, stream_of(stream), direction, &box);
	return hoist__emu_face_leave(result);
}

/* ROCm 5 computes the distance of planes in 32 bits, and copies wrong bytes where it is greater. */
static bool is_far(const struct hoist__hip_pitched *side)
{
	uint64_t plane = 0;
	return hoist__mul_overflow(side->pitch, side->height, &plane) || plane > UINT32_MAX;
}

/* This driver knows the members of a description that hoist uses; all others must be 0.  Where the
 * width of a side is given, ROCm 5.7 and later divide the allocation by the size of a plane and
 * want as many planes as are copied, so the last plane must be whole.  This driver wants that of
 * both sides.  ROCm 6 refuses a pitch of INT32_MAX, too. */
static int box_of(const struct hoist__hip_copy_3d *copy, struct hoist__emu_box *box)
{
	for (int i = 0; i < 3; i++)
		if (copy->src_position[i] != 0 || copy->dst_position[i] != 0)
			return EMU_INVALID_VALUE;
	if (copy->src_array != NULL || copy->dst_array != NULL)
		return EMU_INVALID_VALUE;
	if (copy->depth > 1 && (copy->src.height < copy->height || copy->dst.height < copy->height))
		return EMU_INVALID_VALUE;
	if (copy->depth > 1 && (is_far(&copy->src) || is_far(&copy->dst)))
		return EMU_INVALID_VALUE;
	if (copy->src.pitch < copy->src.width || copy->dst.pitch < copy->dst.width ||
	    copy->src.pitch < copy->width || copy->dst.pitch < copy->width)
		return EMU_INVALID_VALUE;
	if (copy->src.pitch >= EMU_MAX_PITCH || copy->dst.pitch >= EMU_MAX_PITCH)
		return EMU_INVALID_VALUE;
	*box = (struct hoist__emu_box){
		.dst = (uintptr_t)copy->dst.address,
		.src = (uintptr_t)copy->src.address,
		.width = copy->width,
		.rows = copy->height,
		.planes = copy->depth,
		.dst_pitch = copy->dst.pitch,
		.src_pitch = copy->src.pitch,
		.dst_plane = copy->dst.pitch * copy->dst.height,
		.src_plane = copy->src.pitch * copy->src.height,
		.whole_planes = copy->src.width != 0 || copy->dst.width != 0,
	};
	return EMU_SUCCESS;
}

hoist__hip_error hipMemcpy3DAsync(const struct hoist__hip_copy_3d *copy, hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	enum hoist__emu_direction direction = EMU_ON_DEVICE;
	struct hoist__emu_box box;
	int result = hoist__emu_face_enter_current(FN_hipMemcpy3DAsync, &device);
	if (result == EMU_SUCCESS && copy == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = direction_of(copy->kind, &direction);
	if (result == EMU_SUCCESS)
		result = box_of(copy, &box);
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy_box(device, stream_of(stream), direction, &box);
	return hoist__emu_face_leave(result);
}

/* --- setting --- */

static hoist__hip_error set(unsigned function, void *dst, uint32_t value, unsigned width, size_t n,
			    hoist__hip_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(function, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_memset(device, stream_of(stream), (uintptr_t)dst, value, width,
					   n);
	return hoist__emu_face_leave(result);
}

hoist__hip_error hipMemsetAsync(void *dst, int value, size_t bytes, hoist__hip_stream stream)
{
	return set(FN_hipMemsetAsync, dst, (uint32_t)value, 1, bytes, stream);
}

hoist__hip_error hipMemsetD16Async(void *dst, unsigned short value, size_t n,
				   hoist__hip_stream stream)
{
	return set(FN_hipMemsetD16Async, dst, value, 2, n, stream);
}

hoist__hip_error hipMemsetD32Async(void *dst, int value, size_t n, hoist__hip_stream stream)
{
	return set(FN_hipMemsetD32Async, dst, (uint32_t)value, 4, n, stream);
}
