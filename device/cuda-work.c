/* SPDX-License-Identifier: MIT */
/* device/cuda-work.c - the CUDA backend: copies and fills on streams.
 * The contract is in device/device-ops.h. */
#include "config.h"

#include "base/error.h"
#include "device/cuda-run.h"
#include "device/driver.h"

int hoist__cuda_copy_async(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
			   uintptr_t src, size_t bytes)
{
	switch (kind) {
	case HOIST__COPY_HOST_TO_DEVICE:
		return RUN(stream->dev, "queueing a copy to the device",
			   hoist__cuda.cuMemcpyHtoDAsync(dst, (const void *)src, bytes,
							 stream->native));
	case HOIST__COPY_DEVICE_TO_HOST:
		return RUN(stream->dev, "queueing a copy to the host",
			   hoist__cuda.cuMemcpyDtoHAsync((void *)dst, src, bytes, stream->native));
	case HOIST__COPY_DEVICE_TO_DEVICE:
		return RUN(stream->dev, "queueing a copy on the device",
			   hoist__cuda.cuMemcpyDtoDAsync(dst, src, bytes, stream->native));
	}
	return hoist__fail(-EINVAL, "there is no copy of kind %d", (int)kind);
}

/* The driver wants the contexts of both devices, also of one that hoist has not used yet. */
int hoist__cuda_copy_peer_async(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
				uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src,
				size_t bytes)
{
	int err = hoist__cuda_retain(dst_dev);
	if (err == 0)
		err = hoist__cuda_retain(src_dev);
	if (err < 0)
		return err;
	return RUN(stream->dev, "queueing a copy between devices",
		   hoist__cuda.cuMemcpyPeerAsync(dst, atomic_load(&dst_dev->context), src,
						 atomic_load(&src_dev->context), bytes,
						 stream->native));
}

static hoist__cu_result fill(hoist__cu_stream stream, uintptr_t dst, uint32_t value, unsigned width,
			     size_t n)
{
	if (width == 1)
		return hoist__cuda.cuMemsetD8Async(dst, (unsigned char)value, n, stream);
	if (width == 2)
		return hoist__cuda.cuMemsetD16Async(dst, (unsigned short)value, n, stream);
	return hoist__cuda.cuMemsetD32Async(dst, value, n, stream);
}

int hoist__cuda_fill_async(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
			   unsigned width, size_t n)
{
	return RUN(stream->dev, "queueing the setting of memory",
		   fill(stream->native, dst, value, width, n));
}

/* --- rows --- */

/* The type of a side tells the driver from which field the address comes; the other field stays
 * empty. */
static struct hoist__cu_copy_2d plane_of(enum hoist__copy kind, const struct hoist__box *box)
{
	struct hoist__cu_copy_2d copy = {
		.src_pitch = box->src_pitch,
		.dst_pitch = box->dst_pitch,
		.width = box->width,
		.height = box->rows,
	};
	copy.src_type = HOIST__CU_MEMORY_DEVICE;
	copy.dst_type = HOIST__CU_MEMORY_DEVICE;
	if (kind == HOIST__COPY_HOST_TO_DEVICE) {
		copy.src_type = HOIST__CU_MEMORY_HOST;
		copy.src_host = (const void *)box->src;
	} else {
		copy.src_device = box->src;
	}
	if (kind == HOIST__COPY_DEVICE_TO_HOST) {
		copy.dst_type = HOIST__CU_MEMORY_HOST;
		copy.dst_host = (void *)box->dst;
	} else {
		copy.dst_device = box->dst;
	}
	return copy;
}

static hoist__cu_result copy_planes(hoist__cu_stream stream, enum hoist__copy kind,
				    const struct hoist__box *box)
{
	const struct hoist__cu_copy_2d plane = plane_of(kind, box);
	const struct hoist__cu_copy_3d copy = {
		.src_type = plane.src_type,
		.src_host = plane.src_host,
		.src_device = plane.src_device,
		.src_pitch = plane.src_pitch,
		.src_height = box->src_plane / box->src_pitch,
		.dst_type = plane.dst_type,
		.dst_host = plane.dst_host,
		.dst_device = plane.dst_device,
		.dst_pitch = plane.dst_pitch,
		.dst_height = box->dst_plane / box->dst_pitch,
		.width = plane.width,
		.height = plane.height,
		.depth = box->planes,
	};
	return hoist__cuda.cuMemcpy3DAsync(&copy, stream);
}

/* Within one device the driver may refuse any pitch that cuMemAllocPitch() did not choose.  Then
 * the rows go one by one.  Where something else is wrong, the first row fails, too. */
static hoist__cu_result copy_plane(hoist__cu_stream stream, enum hoist__copy kind,
				   const struct hoist__box *box)
{
	const struct hoist__cu_copy_2d plane = plane_of(kind, box);
	hoist__cu_result result = hoist__cuda.cuMemcpy2DAsync(&plane, stream);
	if (kind != HOIST__COPY_DEVICE_TO_DEVICE || result != HOIST__CU_ERROR_INVALID_VALUE)
		return result;
	result = HOIST__CU_SUCCESS;
	for (size_t i = 0; i < box->rows && result == HOIST__CU_SUCCESS; i++)
		result = hoist__cuda.cuMemcpyDtoDAsync(box->dst + i * box->dst_pitch,
						       box->src + i * box->src_pitch, box->width,
						       stream);
	return result;
}

int hoist__cuda_copy_box(struct hoist__dev_stream *stream, enum hoist__copy kind,
			 const struct hoist__box *box)
{
	return RUN(stream->dev, "queueing a copy of rows",
		   box->planes > 1 ? copy_planes(stream->native, kind, box)
				   : copy_plane(stream->native, kind, box));
}
