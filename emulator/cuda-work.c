/* SPDX-License-Identifier: MIT */
/* emulator/cuda-work.c - the stand-in for libcuda.so.1: copies and fills on streams.
 * The contract is device/cuda-table.h; emulator/face.h says how a face is made. */
#include "config.h"

#include "emulator/cuda-face.h"
#include "emulator/stream.h"

/* --- bytes --- */

hoist__cu_result cuMemcpyHtoDAsync_v2(hoist__cu_device_ptr dst, const void *src, size_t bytes,
				      hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuMemcpyHtoDAsync_v2, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy(device, stream_of(stream), EMU_TO_DEVICE, (uintptr_t)dst,
					 (uintptr_t)src, bytes);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemcpyDtoHAsync_v2(void *dst, hoist__cu_device_ptr src, size_t bytes,
				      hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuMemcpyDtoHAsync_v2, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy(device, stream_of(stream), EMU_TO_HOST, (uintptr_t)dst,
					 (uintptr_t)src, bytes);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemcpyDtoDAsync_v2(hoist__cu_device_ptr dst, hoist__cu_device_ptr src,
				      size_t bytes, hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuMemcpyDtoDAsync_v2, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy(device, stream_of(stream), EMU_ON_DEVICE, (uintptr_t)dst,
					 (uintptr_t)src, bytes);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemcpyPeerAsync(hoist__cu_device_ptr dst, hoist__cu_context dst_context,
				   hoist__cu_device_ptr src, hoist__cu_context src_context,
				   size_t bytes, hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuMemcpyPeerAsync, &device);
	const struct hoist__emu_device *to = hoist__emu_cuda_context_device(dst_context);
	const struct hoist__emu_device *from = hoist__emu_cuda_context_device(src_context);
	if (result == EMU_SUCCESS && (to == NULL || from == NULL))
		result = EMU_INVALID_CONTEXT;
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy_peer(device, stream_of(stream), to, (uintptr_t)dst, from,
					      (uintptr_t)src, bytes);
	return (hoist__cu_result)result;
}

/* --- rows --- */

static int direction_of(unsigned dst, unsigned src, enum hoist__emu_direction *ret)
{
	bool to_host = dst == HOIST__CU_MEMORY_HOST;
	bool from_host = src == HOIST__CU_MEMORY_HOST;
	if ((!to_host && dst != HOIST__CU_MEMORY_DEVICE) ||
	    (!from_host && src != HOIST__CU_MEMORY_DEVICE) || (to_host && from_host))
		return EMU_INVALID_VALUE;
	*ret = to_host ? EMU_TO_HOST : from_host ? EMU_TO_DEVICE : EMU_ON_DEVICE;
	return EMU_SUCCESS;
}

/* This driver knows the members of a description that hoist uses; all others must be 0.  CUDA
 * documents that a pitch is at least the width and at most the attribute MAX_PITCH, however few the
 * rows are. */
static int box_of(const struct hoist__cu_copy_3d *copy, struct hoist__emu_box *box)
{
	if (copy->src_x != 0 || copy->src_y != 0 || copy->src_z != 0 || copy->src_lod != 0 ||
	    copy->dst_x != 0 || copy->dst_y != 0 || copy->dst_z != 0 || copy->dst_lod != 0 ||
	    copy->reserved0 != NULL || copy->reserved1 != NULL)
		return EMU_INVALID_VALUE;
	if (copy->src_pitch < copy->width || copy->dst_pitch < copy->width ||
	    copy->src_pitch > EMU_MAX_PITCH || copy->dst_pitch > EMU_MAX_PITCH)
		return EMU_INVALID_VALUE;
	if (copy->depth > 1 && (copy->src_height < copy->height || copy->dst_height < copy->height))
		return EMU_INVALID_VALUE;
	bool to_host = copy->dst_type == HOIST__CU_MEMORY_HOST;
	bool from_host = copy->src_type == HOIST__CU_MEMORY_HOST;
	*box = (struct hoist__emu_box){
		.dst = to_host ? (uintptr_t)copy->dst_host : (uintptr_t)copy->dst_device,
		.src = from_host ? (uintptr_t)copy->src_host : (uintptr_t)copy->src_device,
		.width = copy->width,
		.rows = copy->height,
		.planes = copy->depth,
		.dst_pitch = copy->dst_pitch,
		.src_pitch = copy->src_pitch,
		.dst_plane = copy->dst_pitch * copy->dst_height,
		.src_plane = copy->src_pitch * copy->src_height,
	};
	return EMU_SUCCESS;
}

static int copy_box(struct hoist__emu_device *device, const struct hoist__cu_copy_3d *copy,
		    hoist__cu_stream stream)
{
	enum hoist__emu_direction direction = EMU_ON_DEVICE;
	struct hoist__emu_box box;
	int result = direction_of(copy->dst_type, copy->src_type, &direction);
	if (result == EMU_SUCCESS)
		result = box_of(copy, &box);
	if (result == EMU_SUCCESS)
		result = hoist__emu_copy_box(device, stream_of(stream), direction, &box);
	return result;
}

hoist__cu_result cuMemcpy2DAsync_v2(const struct hoist__cu_copy_2d *copy, hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuMemcpy2DAsync_v2, &device);
	if (result != EMU_SUCCESS || copy == NULL)
		return (hoist__cu_result)(result != EMU_SUCCESS ? result : EMU_INVALID_VALUE);
	const struct hoist__cu_copy_3d one = {
		.src_x = copy->src_x,
		.src_y = copy->src_y,
		.src_type = copy->src_type,
		.src_host = copy->src_host,
		.src_device = copy->src_device,
		.src_pitch = copy->src_pitch,
		.dst_x = copy->dst_x,
		.dst_y = copy->dst_y,
		.dst_type = copy->dst_type,
		.dst_host = copy->dst_host,
		.dst_device = copy->dst_device,
		.dst_pitch = copy->dst_pitch,
		.width = copy->width,
		.height = copy->height,
		.depth = 1,
	};
	return (hoist__cu_result)copy_box(device, &one, stream);
}

hoist__cu_result cuMemcpy3DAsync_v2(const struct hoist__cu_copy_3d *copy, hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(FN_cuMemcpy3DAsync_v2, &device);
	if (result == EMU_SUCCESS && copy == NULL)
		result = EMU_INVALID_VALUE;
	if (result == EMU_SUCCESS)
		result = copy_box(device, copy, stream);
	return (hoist__cu_result)result;
}

/* --- setting --- */

static hoist__cu_result set(unsigned function, hoist__cu_device_ptr dst, uint32_t value,
			    unsigned width, size_t n, hoist__cu_stream stream)
{
	struct hoist__emu_device *device = NULL;
	int result = hoist__emu_face_enter_current(function, &device);
	if (result == EMU_SUCCESS)
		result = hoist__emu_memset(device, stream_of(stream), (uintptr_t)dst, value, width,
					   n);
	return (hoist__cu_result)result;
}

hoist__cu_result cuMemsetD8Async(hoist__cu_device_ptr dst, unsigned char value, size_t n,
				 hoist__cu_stream stream)
{
	return set(FN_cuMemsetD8Async, dst, value, 1, n, stream);
}

hoist__cu_result cuMemsetD16Async(hoist__cu_device_ptr dst, unsigned short value, size_t n,
				  hoist__cu_stream stream)
{
	return set(FN_cuMemsetD16Async, dst, value, 2, n, stream);
}

hoist__cu_result cuMemsetD32Async(hoist__cu_device_ptr dst, unsigned int value, size_t n,
				  hoist__cu_stream stream)
{
	return set(FN_cuMemsetD32Async, dst, value, 4, n, stream);
}
