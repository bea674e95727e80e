/* SPDX-License-Identifier: MIT */
/* device/cuda.h - the opened CUDA driver; private to device/cuda*.c. */
#ifndef HOIST_DEVICE_CUDA_H
#define HOIST_DEVICE_CUDA_H

#include "device/cuda-table.h"
#include "device/device-ops.h"
#include "device/dl.h"

struct hoist__cuda_table {
	HOIST__CUDA_TABLE(HOIST__DL_MEMBER)
};

/* Filled by hoist__cuda_open(), constant afterwards. */
extern struct hoist__cuda_table hoist__cuda;

int hoist__cuda_open(int *count, const char **library);
int hoist__cuda_probe(struct hoist__dev *dev);

/* 0, -EAGAIN for work in flight, or "cuda:0: <what>: CUDA_ERROR_X (...)". */
int hoist__cuda_judge(const struct hoist__dev *dev, hoist__cu_result result, const char *what);

/* Questions about devices (cuda-query.c): see device-ops.h. */
int hoist__cuda_can_access(struct hoist__dev *dev, struct hoist__dev *peer, bool *ret);
int hoist__cuda_enable_access(struct hoist__dev *dev, struct hoist__dev *peer);
int hoist__cuda_synchronize(struct hoist__dev *dev);

/* Work (cuda-work.c): see device-ops.h. */
int hoist__cuda_copy_async(struct hoist__dev_stream *stream, enum hoist__copy kind, uintptr_t dst,
			   uintptr_t src, size_t bytes);
int hoist__cuda_copy_peer_async(struct hoist__dev_stream *stream, struct hoist__dev *dst_dev,
				uintptr_t dst, struct hoist__dev *src_dev, uintptr_t src,
				size_t bytes);
int hoist__cuda_copy_box(struct hoist__dev_stream *stream, enum hoist__copy kind,
			 const struct hoist__box *box);
int hoist__cuda_fill_async(struct hoist__dev_stream *stream, uintptr_t dst, uint32_t value,
			   unsigned width, size_t n);

#endif
