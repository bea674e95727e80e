/* SPDX-License-Identifier: MIT */
/* lib/storage.h - the bytes behind buffers: shared, reference counted.
 *
 * A storage keeps what its bytes need: the pool its block came from, or the map
 * of a file; its device lives as long as the process.  The last reference gives
 * it back:
 *
 *   POOL  a block of alloc/pool.h       -> hoist__pool_free, hoist__pool_unref
 *   MAP   a private map of a file       -> hoist__map_close
 *   NONE  no bytes (empty buffers)
 *
 * Threads: counting is atomic; everything else is immutable.
 */
#ifndef HOIST_LIB_STORAGE_H
#define HOIST_LIB_STORAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/pool.h"
#include "hoist/buffer.h"
#include "hoist/device.h"
#include "io/map.h"

struct hoist__storage;

/* A block of @bytes (0 gives a NONE storage) from @pool, which is one of
 * @device's pools.  @flags as hoist__pool_alloc().
 * Returns: 0; as hoist__pool_alloc(). */
int hoist__storage_alloc(hoist_device *device, struct hoist__pool *pool, size_t bytes, size_t align,
			 unsigned flags, struct hoist__storage **ret);

/* Takes over *map (zeroed on success). */
int hoist__storage_map(hoist_device *device, struct hoist__map *map, struct hoist__storage **ret);

struct hoist__storage *hoist__storage_ref(struct hoist__storage *storage);
void hoist__storage_unref(struct hoist__storage *storage); /* takes NULL */

uintptr_t hoist__storage_address(const struct hoist__storage *storage); /* 0 for NONE */
/* The same byte as the device's kernels see it. */
uintptr_t hoist__storage_device_address(const struct hoist__storage *storage);
size_t hoist__storage_bytes(const struct hoist__storage *storage);
hoist_device *hoist__storage_device(const struct hoist__storage *storage); /* borrowed */
/* HOST for maps and for NONE; unless DEVICE, the address is a pointer. */
enum hoist__memory_kind hoist__storage_kind(const struct hoist__storage *storage);

/* A contiguous buffer in C order over storage bytes from @offset on; takes a
 * reference of its own.
 * Returns: 0; -EINVAL (rank, shape, dtype; or the buffer leaves the storage, with
 *   the figures); -EOVERFLOW; -ENOMEM. */
int hoist__buffer_over(struct hoist__storage *storage, size_t offset, hoist_dtype dtype, int rank,
		       const int64_t *shape, hoist_buffer **ret);

#endif
