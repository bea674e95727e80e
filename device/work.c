/* SPDX-License-Identifier: MIT */
/* device/work.c - the work on streams: checks arguments and the process, then calls the backend.
 * The contract is in device/device.h. */
#include "config.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "device/device-ops.h"

int hoist__copy_async(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
		      uintptr_t src, size_t bytes)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err < 0 || bytes == 0)
		return err;
	if (dst == 0 || src == 0)
		return hoist__fail(-EINVAL, "a copy of %zu bytes %s address 0", bytes,
				   dst == 0 ? "to" : "from");
	return stream->dev->ops->copy_async(stream, kind, dst, src, bytes);
}

/* Enables the access of @dev to @peer's memory if possible.  A copy works without it. */
static void reach(struct hoist__dev *dev, struct hoist__dev *peer)
{
	bool can = false;
	if (hoist__dev_can_access(dev, peer, &can) < 0)
		hoist__log(device, "copies go by the host: %s", hoist__error_text());
}

int hoist__copy_peer_async(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
			   uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src, size_t bytes)
{
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err < 0 || bytes == 0)
		return err;
	if (dst_dev->api != stream->dev->api || src_dev->api != stream->dev->api)
		return hoist__fail(-EINVAL, "a %s stream cannot copy from %s to %s",
				   hoist__api_name(stream->dev->api), hoist__api_name(src_dev->api),
				   hoist__api_name(dst_dev->api));
	if (dst == 0 || src == 0)
		return hoist__fail(-EINVAL, "a copy of %zu bytes %s address 0", bytes,
				   dst == 0 ? "to" : "from");
	reach(stream->dev, stream->dev == dst_dev ? src_dev : dst_dev);
	return stream->dev->ops->copy_peer_async(stream, dst_dev, dst, src_dev, src, bytes);
}

int hoist__fill_async(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
		      unsigned width, size_t n)
{
	uint64_t bytes = 0;
	int err = hoist__dev_check_process(stream->generation, "the stream");
	if (err < 0 || n == 0)
		return err;
	if (width != 1 && width != 2 && width != 4)
		return hoist__fail(-EINVAL, "elements of %u bytes cannot be set: 1, 2 or 4 can",
				   width);
	if (dst == 0 || dst % width != 0 || hoist__mul_overflow(n, width, &bytes))
		return hoist__fail(-EINVAL, "setting %zu elements of %u bytes at address %#zx", n,
				   width, (size_t)dst);
	return stream->dev->ops->fill_async(stream, dst, value, width, n);
}
