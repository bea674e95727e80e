/* SPDX-License-Identifier: MIT */
/* device/cuda.h - the opened CUDA driver; private to device/cuda*.c. */
#ifndef HOIST_DEVICE_CUDA_H
#define HOIST_DEVICE_CUDA_H

#include "device/device-ops.h"
#include "device/dl.h"
#include "device/cuda-table.h"

struct hoist__cuda_table {
	HOIST__CUDA_TABLE(HOIST__DL_MEMBER)
};

/* Filled by hoist__cuda_open(), constant afterwards. */
extern struct hoist__cuda_table hoist__cuda;

int hoist__cuda_open(int *count, const char **library);
int hoist__cuda_probe(struct hoist__dev *dev);

/* 0, -EAGAIN for work in flight, or "cuda:0: <what>: CUDA_ERROR_X (...)". */
int hoist__cuda_judge(const struct hoist__dev *dev, hoist__cu_result result, const char *what);

#endif
