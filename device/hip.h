/* SPDX-License-Identifier: MIT */
/* device/hip.h - the opened HIP driver; private to device/hip*.c. */
#ifndef HOIST_DEVICE_HIP_H
#define HOIST_DEVICE_HIP_H

#include "device/device-ops.h"
#include "device/dl.h"
#include "device/hip-table.h"

struct hoist__hip_table {
	HOIST__HIP_TABLE(HOIST__DL_MEMBER)
};

/* Filled by hoist__hip_open(), constant afterwards. */
extern struct hoist__hip_table hoist__hip;

int hoist__hip_open(int *count, const char **library);
int hoist__hip_probe(struct hoist__dev *dev);

/* 0, -EAGAIN for work in flight, or "hip:0: <what>: hipErrorX (...)". */
int hoist__hip_judge(const struct hoist__dev *dev, hoist__hip_error error, const char *what);

/* Questions about devices (hip-query.c): see device-ops.h. */
int hoist__hip_can_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret);
int hoist__hip_enable_access(struct hoist__dev *dev, struct hoist__dev *peer);
int hoist__hip_synchronize(struct hoist__dev *dev);

/* Work (hip-work.c): see device-ops.h. */
int hoist__hip_copy_async(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
			  uintptr_t src, size_t bytes);
int hoist__hip_copy_peer_async(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
			       uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src,
			       size_t bytes);
int hoist__hip_copy_box(struct hoist__dev_stream *stream, enum hoist__copy kind,
			const struct hoist__box *box);
int hoist__hip_fill_async(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
			  unsigned width, size_t n);

#endif
