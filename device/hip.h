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

/* Pools (hip-pool.c): see device-ops.h. */
int hoist__hip_pool_create(struct hoist__dev_pool *pool);
int hoist__hip_pool_current(struct hoist__dev_pool *pool);
void hoist__hip_pool_destroy(struct hoist__dev_pool *pool);
int hoist__hip_pool_alloc(struct hoist__dev_pool *pool, size_t bytes,
			  struct hoist__dev_stream *stream, uintptr_t *ret);
int hoist__hip_pool_free(struct hoist__dev_pool *pool, uintptr_t address,
			 struct hoist__dev_stream *stream);
int hoist__hip_pool_trim(struct hoist__dev_pool *pool, size_t keep_bytes);
int hoist__hip_pool_get(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t *ret);
int hoist__hip_pool_set(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			uint64_t value);

#endif
