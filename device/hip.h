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

/* Questions (hip-query.c): see device-ops.h. */
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
int hoist__hip_stream_call(struct hoist__dev_stream *stream, void (*function)(void *argument),
			   void *argument);

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
int hoist__hip_pool_set_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool allowed);
int hoist__hip_pool_get_access(struct hoist__dev_pool *pool, const struct hoist__dev *peer,
			       bool *ret);

/* Sharing between processes (hip-ipc.c). */
int hoist__hip_allocation(struct hoist__dev *dev, uintptr_t address, uintptr_t *base,
			  size_t *bytes);
int hoist__hip_ipc_export(struct hoist__dev *dev, uintptr_t base, struct hoist__ipc_handle *ret);
int hoist__hip_ipc_open(struct hoist__dev *dev, const struct hoist__ipc_handle *handle,
			uintptr_t *ret);
int hoist__hip_ipc_close(struct hoist__dev *dev, uintptr_t base);
int hoist__hip_pool_import(struct hoist__dev_pool *pool, int fd);
int hoist__hip_pool_export(struct hoist__dev_pool *pool, int *ret);
int hoist__hip_pool_export_block(struct hoist__dev_pool *pool, uintptr_t address,
				 struct hoist__ipc_handle *ret);
int hoist__hip_pool_import_block(struct hoist__dev_pool *pool,
				 const struct hoist__ipc_handle *handle, uintptr_t *ret);

/* Memory of graphs (hip-graph.c): see device-ops.h. */
int hoist__hip_graph_alloc(struct hoist__dev_stream *stream, size_t bytes, uintptr_t *ret);
int hoist__hip_graph_free(struct hoist__dev_stream *stream, uintptr_t address);
int hoist__hip_graph_get(struct hoist__dev *dev, enum hoist__pool_attribute attribute,
			 uint64_t *ret);
int hoist__hip_graph_reset(struct hoist__dev *dev, enum hoist__pool_attribute attribute);
int hoist__hip_graph_trim(struct hoist__dev *dev);

/* Virtual memory (hip-vmm.c): see device-ops.h. */
int hoist__hip_vmm_check(struct hoist__dev *dev, const struct hoist__vmm_props *props);
int hoist__hip_vmm_granularity(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			       size_t *ret);
int hoist__hip_vmm_reserve(struct hoist__dev *dev, size_t bytes, size_t align, uintptr_t hint,
			   uintptr_t *ret);
int hoist__hip_vmm_unreserve(struct hoist__dev *dev, uintptr_t address, size_t bytes);
int hoist__hip_vmm_create(struct hoist__dev *dev, const struct hoist__vmm_props *props,
			  size_t bytes, uint64_t *ret);
int hoist__hip_vmm_release(struct hoist__dev *dev, uint64_t handle);
int hoist__hip_vmm_map(struct hoist__dev *dev, uintptr_t address, size_t bytes, uint64_t handle);
int hoist__hip_vmm_unmap(struct hoist__dev *dev, uintptr_t address, size_t bytes);
int hoist__hip_vmm_set_access(struct hoist__dev *dev, uintptr_t address, size_t bytes,
			      const struct hoist__dev *who, enum hoist__vmm_access access);

#endif
