/* SPDX-License-Identifier: MIT */
/* hoist/memory-driver.h - memory that a driver manages: its pools, and blocks that grow.
 *
 *     hoist_virtual_options growing = {.size = sizeof growing, .reserve_bytes = (size_t)8 << 30};
 *     hoist_memory_options options = {.size = sizeof options, .kind = HOIST_MEMORY_VIRTUAL,
 *                                     .device = device, .virtual_options = &growing};
 *     hoist_memory_create(&options, &memory);
 *     hoist_memory_alloc(memory, bytes, 0, &address);
 *     hoist_memory_grow(memory, address, 2 * bytes, &address);   // the same address
 *
 * hoist/memory.h has the resources themselves.  hoist/hoist.h does not include this header.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef HOIST_MEMORY_DRIVER_H
#define HOIST_MEMORY_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/device.h>
#include <hoist/error.h>
#include <hoist/memory.h>

HOIST_BEGIN

/* --- VIRTUAL memory --- */

/* A device's access to VIRTUAL memory. */
enum { HOIST_ACCESS_READ_WRITE, HOIST_ACCESS_READ, HOIST_ACCESS_NONE };

/* The properties of VIRTUAL memory; 0 or NULL is each option's default.  VIRTUAL memory is pinned
 * memory of the resource's device; no other process can import it. */
typedef struct hoist_virtual_options {
	size_t size;		  /* sizeof(hoist_virtual_options) */
	int minimum_granularity;  /* 1: blocks are multiples of the driver's smallest granularity,
				   * not of the recommended one */
	int rdma;		  /* 1: network adapters may access the memory directly */
	uintptr_t address_hint;	  /* where blocks begin, if that address is free; a multiple of the
				   * granularity.  0: the driver chooses */
	size_t address_align;	  /* of blocks; a power of two; 0: the granularity */
	size_t reserve_bytes;	  /* the least addresses that each block reserves: up to this size
				   * a block always grows in place.  0: the block's own size */
	hoist_device *const *peers; /* other devices that may access the memory; copied */
	size_t n_peers;
	int self_access;	  /* HOIST_ACCESS_... of the resource's device */
	int peer_access;	  /* of the peers */
} hoist_virtual_options;

/* The granularity of VIRTUAL blocks: each block has a multiple of this number of bytes, all of them
 * usable, whatever was requested.
 * Returns: 0; -ENOTSUP (not VIRTUAL); -EREMOTEIO; -ESTALE. */
HOIST_API int hoist_memory_granularity(hoist_memory *memory, size_t *ret);

/* Grows the VIRTUAL block that starts at @address to @bytes.  The block keeps its content; the
 * added bytes are undefined.  It grows in place if the addresses behind it are free (up to
 * reserve_bytes they always are).  Else its memory appears at other addresses, without a copy, and
 * the old address is gone.  *@ret is the block's start.  @bytes that the block has already change
 * nothing.  A block that moves must not be in use, except on streams that were named to
 * hoist_memory_use(): the call waits for these.  hoist_buffer_grow() grows a block that a buffer
 * owns.
 * Returns: 0; -EINVAL (no live block starts there); -ENOTSUP (not VIRTUAL); -ENOMEM, -ENOSPC
 *   (memory, addresses); -EAGAIN (the block must move, and one of those streams captures a graph);
 *   -EREMOTEIO; -ESTALE.  After a failure the block is as it was. */
HOIST_API int hoist_memory_grow(hoist_memory *memory, uintptr_t address, size_t bytes,
				uintptr_t *ret);

/* --- drivers' pools --- */

/* Attributes of a driver's pool, with the driver's meaning.  GRAPH has the last four.  The first
 * four can be set; the *_HIGH ones can be set to 0. */
enum {
	HOIST_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES,
	HOIST_POOL_REUSE_ALLOW_OPPORTUNISTIC,
	HOIST_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
	HOIST_POOL_RELEASE_THRESHOLD, /* bytes kept at synchronization; hoist sets UINT64_MAX */
	HOIST_POOL_RESERVED_CURRENT,
	HOIST_POOL_RESERVED_HIGH,
	HOIST_POOL_USED_CURRENT,
	HOIST_POOL_USED_HIGH
};

/* The value of an attribute.  Makes the pool, and with it the device's context, if no block did
 * yet.
 * Returns: 0; -EINVAL (no such attribute); -ENOTSUP (neither a DRIVER_POOL nor, for the last four,
 *   GRAPH; the driver does not have the attribute); -EREMOTEIO; -ESTALE. */
HOIST_API int hoist_memory_get_attribute(hoist_memory *memory, int attribute, uint64_t *ret);

/* Sets an attribute.  Makes the pool, as hoist_memory_get_attribute().
 * Returns: as hoist_memory_get_attribute(); -EINVAL (the attribute cannot be set to @value). */
HOIST_API int hoist_memory_set_attribute(hoist_memory *memory, int attribute, uint64_t value);

/* The driver's handle of the pool (CUmemoryPool, hipMemPool_t), for the driver's own calls.  The
 * handle is valid as long as the resource.  info.is_own says whether the pool is the resource's
 * own: the caller must not destroy such a pool, and frees blocks that it allocated from the pool by
 * the driver's calls.  Makes the pool, as hoist_memory_get_attribute().
 * Returns: 0; -ENOTSUP (not a DRIVER_POOL); -EREMOTEIO; -ESTALE. */
HOIST_API int hoist_memory_native_pool(hoist_memory *memory, void **ret);

/* Allows (@allowed is not 0) or forbids kernels and copies of @peer to access all memory of the
 * pool, including blocks that are allocated already.  The pool's own device always has access.  The
 * setting of CURRENT_POOL holds for all its users; the setting of another process's pool holds for
 * this process only.  Makes the pool, as hoist_memory_get_attribute().
 * Returns: 0; -EINVAL (@peer is NULL or of another driver; @allowed is 0 for the own device);
 *   -ENOTSUP (not a DRIVER_POOL; @peer cannot access the device: hoist_device_can_access());
 *   -EREMOTEIO; -ESTALE. */
HOIST_API int hoist_memory_set_peer_access(hoist_memory *memory, hoist_device *peer, int allowed);

/* Whether @peer has access: *@ret is 1 or 0, as the driver says now; 0 for a device of another
 * driver.
 * Returns: 0; as hoist_memory_set_peer_access(). */
HOIST_API int hoist_memory_get_peer_access(hoist_memory *memory, hoist_device *peer, int *ret);

HOIST_END

#endif
