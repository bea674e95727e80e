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

/* Questions (cuda-query.c): see device-ops.h. */
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
int hoist__cuda_stream_call(struct hoist__dev_stream *stream, void (*function)(void *argument),
			    void *argument);

/* Pools (cuda-pool.c): see device-ops.h. */
int hoist__cuda_pool_create(struct hoist__dev_pool *pool);
int hoist__cuda_pool_current(struct hoist__dev_pool *pool);
void hoist__cuda_pool_destroy(struct hoist__dev_pool *pool);
int hoist__cuda_pool_alloc(struct hoist__dev_pool *pool, size_t bytes,
			   struct hoist__dev_stream *stream, uintptr_t *ret);
int hoist__cuda_pool_free(struct hoist__dev_pool *pool, uintptr_t address,
			  struct hoist__dev_stream *stream);
int hoist__cuda_pool_trim(struct hoist__dev_pool *pool, size_t keep_bytes);
int hoist__cuda_pool_get(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			 uint64_t *ret);
int hoist__cuda_pool_set(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute,
			 uint64_t value);
int hoist__cuda_pool_set_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
				bool allowed);
int hoist__cuda_pool_get_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
				bool *ret);

/* Sharing between processes (cuda-ipc.c). */
int hoist__cuda_allocation(struct hoist__dev *dev, uintptr_t address, uintptr_t *base,
			   size_t *bytes);
int hoist__cuda_ipc_export(struct hoist__dev *dev, uintptr_t base, struct hoist__ipc_handle *ret);
int hoist__cuda_ipc_open(struct hoist__dev *dev, const struct hoist__ipc_handle *handle,
			 uintptr_t *ret);
int hoist__cuda_ipc_close(struct hoist__dev *dev, uintptr_t base);
int hoist__cuda_pool_import(struct hoist__dev_pool *pool, int fd);
int hoist__cuda_pool_export(struct hoist__dev_pool *pool, int *ret);
int hoist__cuda_pool_export_block(struct hoist__dev_pool *pool, uintptr_t address,
				  struct hoist__ipc_handle *ret);
int hoist__cuda_pool_import_block(struct hoist__dev_pool *pool,
				  const struct hoist__ipc_handle *handle, uintptr_t *ret);

/* Memory of graphs (cuda-graph.c): see device-ops.h. */
int hoist__cuda_graph_alloc(struct hoist__dev_stream *stream, size_t bytes, uintptr_t *ret);
int hoist__cuda_graph_free(struct hoist__dev_stream *stream, uintptr_t address);
int hoist__cuda_graph_get(struct hoist__dev *dev, enum hoist__pool_attribute attribute,
			  uint64_t *ret);
int hoist__cuda_graph_reset(struct hoist__dev *dev, enum hoist__pool_attribute attribute);
int hoist__cuda_graph_trim(struct hoist__dev *dev);

/* Virtual memory (cuda-vmm.c): see device-ops.h. */
int hoist__cuda_vmm_check(struct hoist__dev *dev, const struct hoist__vmm_props *props);
int hoist__cuda_vmm_granularity(struct hoist__dev *dev, const struct hoist__vmm_props *props,
				size_t *ret);
int hoist__cuda_vmm_reserve(struct hoist__dev *dev, size_t bytes, size_t align, uintptr_t hint,
			    uintptr_t *ret);
int hoist__cuda_vmm_unreserve(struct hoist__dev *dev, uintptr_t address, size_t bytes);
int hoist__cuda_vmm_create(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			   size_t bytes, uint64_t *ret);
int hoist__cuda_vmm_release(struct hoist__dev *dev, uint64_t handle);
int hoist__cuda_vmm_map(struct hoist__dev *dev, uintptr_t address, size_t bytes, uint64_t handle);
int hoist__cuda_vmm_unmap(struct hoist__dev *dev, uintptr_t address, size_t bytes);
int hoist__cuda_vmm_set_access(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			       const struct hoist__dev *who, enum hoist__vmm_access access);

#endif
