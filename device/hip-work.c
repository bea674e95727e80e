/* SPDX-License-Identifier: MIT */
/* device/hip-work.c - the HIP backend: copies and fills on streams.
 * The contract is in device/device-ops.h. */
#include "config.h"

#include "base/checked.h"
#include "base/error.h"
#include "device/driver.h"
#include "device/hip-run.h"

static hoist__hip_copy_kind kind_of(enum hoist__copy kind)
{
	switch (kind) {
	case HOIST__COPY_HOST_TO_DEVICE:
		return HOIST__HIP_COPY_HOST_TO_DEVICE;
	case HOIST__COPY_DEVICE_TO_HOST:
		return HOIST__HIP_COPY_DEVICE_TO_HOST;
	case HOIST__COPY_DEVICE_TO_DEVICE:
		break;
	}
	return HOIST__HIP_COPY_DEVICE_TO_DEVICE;
}

int hoist__hip_copy_async(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
			  uintptr_t src, size_t bytes)
{
	static const char *const what[] = {
		[HOIST__COPY_HOST_TO_DEVICE] = "queueing a copy to the device",
		[HOIST__COPY_DEVICE_TO_HOST] = "queueing a copy to the host",
		[HOIST__COPY_DEVICE_TO_DEVICE] = "queueing a copy on the device",
	};
	return RUN(stream->dev, what[kind],
		   hoist__hip.hipMemcpyAsync((void *)dst, (const void *)src, bytes, kind_of(kind),
					     stream->native));
}

int hoist__hip_copy_peer_async(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
			       uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src,
			       size_t bytes)
{
	return RUN(stream->dev, "queueing a copy between devices",
		   hoist__hip.hipMemcpyPeerAsync((void *)dst, dst_dev->ordinal, (const void *)src,
						 src_dev->ordinal, bytes, stream->native));
}

static hoist__hip_error fill(hoist__hip_stream stream, uintptr_t dst, uint32_t value,
			     unsigned width, size_t n)
{
	if (width == 1)
		return hoist__hip.hipMemsetAsync((void *)dst, (unsigned char)value, n, stream);
	if (width == 2)
		return hoist__hip.hipMemsetD16Async((void *)dst, (unsigned short)value, n, stream);
	return hoist__hip.hipMemsetD32Async((void *)dst, (int)value, n, stream);
}

int hoist__hip_fill_async(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
			  unsigned width, size_t n)
{
	return RUN(stream->dev, "queueing the setting of memory",
		   fill(stream->native, dst, value, width, n));
}

/* --- rows ---
 *
 * These two calls of the runtime are the same in ROCm 5, 6 and 7.  Calls that describe a side by
 * its type of memory (hipMemcpyParam2DAsync, hipDrvMemcpy3DAsync) have other numbers since 6. */

/* ROCm 5 computes the bytes of a plane in 32 bits, so each call gets no more rows than fit. */
static hoist__hip_error copy_rows(hoist__hip_stream stream, enum hoist__copy kind,
				  const struct hoist__box *box)
{
	size_t most = HOIST__HIP_MAX_PITCH / hoist__max_u64(box->dst_pitch, box->src_pitch);
	hoist__hip_error error = HOIST__HIP_SUCCESS;
	for (size_t row = 0; row < box->rows && error == HOIST__HIP_SUCCESS; row += most)
		error = hoist__hip.hipMemcpy2DAsync(
			(void *)(box->dst + row * box->dst_pitch), box->dst_pitch,
			(const void *)(box->src + row * box->src_pitch), box->src_pitch, box->width,
			hoist__min_u64(most, box->rows - row), kind_of(kind), stream);
	return error;
}

/* The width of a side is not given, because the copy needs only pitch and height.  With a width,
 * ROCm 5.7 and later refuse an allocation that ends within the last plane. */
static hoist__hip_error copy_planes(hoist__hip_stream stream, enum hoist__copy kind,
				    const struct hoist__box *box)
{
	const struct hoist__hip_copy_3d copy = {
		.src = {.address = (void *)box->src,
			.pitch = box->src_pitch,
			.height = box->src_plane / box->src_pitch},
		.dst = {.address = (void *)box->dst,
			.pitch = box->dst_pitch,
			.height = box->dst_plane / box->dst_pitch},
		.width = box->width,
		.height = box->rows,
		.depth = box->planes,
		.kind = kind_of(kind),
	};
	return hoist__hip.hipMemcpy3DAsync(&copy, stream);
}

int hoist__hip_copy_box(struct hoist__dev_stream *stream, enum hoist__copy kind,
			const struct hoist__box *box)
{
	return RUN(stream->dev, "queueing a copy of rows",
		   box->planes > 1 ? copy_planes(stream->native, kind, box)
				   : copy_rows(stream->native, kind, box));
}
