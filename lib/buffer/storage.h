/* SPDX-License-Identifier: MIT */
/* lib/buffer/storage.h - the bytes behind buffers: shared, reference counted.
 *
 * A storage keeps what its bytes need.  There are three origins:
 *
 *   resource  a block of a hoist_memory; taken at once, or (LAZY) by the first
 *             hoist__storage_allocate(); freed to it, in the order of `stream` if there is one
 *   wrapped   memory from elsewhere (a map, the caller's, another process's); release(context)
 *             is called once, by the last reference
 *   none      no bytes (empty buffers)
 *
 * Work on streams: hoist__storage_use() notes that work queued on a stream uses the bytes.
 * A resource that can order a free behind several streams is told so at once; for all other
 * storage the streams are kept, and the last reference waits for them.
 *
 * Consumers: what was exported (DLPack, the CUDA Array Interface) may be used by work that its
 * consumer queued on streams that nobody knows, and that goes on when the consumer lets go.  The
 * last reference to such a storage parks it (lib/memory/parked.h): its block or its foreign memory
 * goes back when the devices have been waited for.  A block whose resource does not free it while
 * its stream captures is parked too, and freed after the capture.
 *
 * Threads: counting is atomic; of several threads that allocate at once one wins; freezing is
 * one way; everything else is immutable.  There are no locks.
 */
#ifndef HOIST_LIB_BUFFER_STORAGE_H
#define HOIST_LIB_BUFFER_STORAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/pool.h"
#include "hoist/buffer.h"
#include "hoist/device.h"
#include "io/map.h"

struct hoist__storage;

/* --- making --- */

#define HOIST__STORAGE_LAZY 1u
#define HOIST__STORAGE_ZERO 2u
#define HOIST__STORAGE_UNPOPULATED 4u /* HOIST__ALLOC_LAZY of alloc/pool.h */

/* @bytes (0 gives a storage of no bytes) from @memory.  @stream NULL, or the stream that the block
 * is allocated and freed on, of which a reference is taken. Returns: 0; as hoist_memory_alloc(). */
int hoist__storage_create(hoist_memory *memory, hoist_stream *stream, size_t bytes, size_t align,
			  unsigned flags, struct hoist__storage **ret);

/* A storage of no bytes. */
int hoist__storage_none(hoist_device *device, struct hoist__storage **ret);

/* Memory from elsewhere, of @device. */
struct hoist__foreign {
	hoist_device *device;
	enum hoist__memory_kind kind; /* PINNED: registered with the device's driver */
	uintptr_t address;
	uintptr_t device_address; /* as the device's kernels see it; 0: the same */
	size_t bytes;
	bool read_only;
	bool mapped;	/* another process's */
	bool no_access; /* neither host nor device may touch it (a caller's own resource) */
	void (*release)(void *context); /* NULL: nothing to do */
	void *context;
};

/* If it fails, release is not called.  Returns: 0; -ENOMEM. */
int hoist__storage_wrap(const struct hoist__foreign *foreign, struct hoist__storage **ret);

/* The caller's block of @memory, freed to it.  Returns: 0; -EINVAL, -ENOMEM. */
int hoist__storage_adopt(hoist_memory *memory, hoist_stream *stream, uintptr_t address,
			 size_t bytes, struct hoist__storage **ret);

/* The last reference will neither free nor release anything: for a caller who could not make
 * what the storage was for, and owns the memory again. */
void hoist__storage_forget(struct hoist__storage *storage);

/* Takes over *map (zeroed on success). */
int hoist__storage_map(hoist_device *device, struct hoist__file_map *map, bool read_only,
		       struct hoist__storage **ret);

struct hoist__storage *hoist__storage_ref(struct hoist__storage *storage);
void hoist__storage_unref(struct hoist__storage *storage); /* takes NULL */

/* --- using --- */

/* Takes the memory if there is none yet; no-op else.  It is zero, if it is to be, and ready for
 * work on any stream. */
int hoist__storage_allocate(struct hoist__storage *storage);

/* Work queued on @stream uses the bytes, or will: they stay until it has passed.  Of a LAZY one
 * without memory, too.
 * Returns: 0; -EINVAL (the memory's resource cannot be ordered by such a stream); -ENOMEM. */
int hoist__storage_use(struct hoist__storage *storage, hoist_stream *stream);

/* The stream that the block is freed on, instead of the one it was allocated on.  With other
 * references: one stream more that uses it, as they are not ordered by it.
 * Returns: 0; -EINVAL, -ENOMEM as above. */
int hoist__storage_free_on(struct hoist__storage *storage, hoist_stream *stream);

/* --- consumers: storage-parked.c --- */

/* Somebody uses the bytes on streams of his own as long as he has the storage in whatever way: at
 * its end that work may still run. */
void hoist__storage_lend(struct hoist__storage *storage);

/* The same, but he lets go now: his work is all queued. */
void hoist__storage_returned(struct hoist__storage *storage);

/* Waits until consumers' work on the bytes is over.  For the only holder of the storage.
 * Returns: 0; -EBUSY (somebody may still have the address; a stream captures a graph); -EAGAIN,
 *   -EREMOTEIO, -ESTALE. */
int hoist__storage_await_consumers(struct hoist__storage *storage);

/* True if there is no reference but the caller's. */
bool hoist__storage_is_alone(const struct hoist__storage *storage);

/* The block of an adopted storage that nobody else knows yet is at @address. */
void hoist__storage_move(struct hoist__storage *storage, uintptr_t address);

void hoist__storage_freeze(struct hoist__storage *storage);

/* --- what is known --- */

uintptr_t hoist__storage_address(const struct hoist__storage *storage); /* 0: none, or not yet */
/* The same byte as the device's kernels see it. */
uintptr_t hoist__storage_device_address(const struct hoist__storage *storage);
size_t hoist__storage_bytes(const struct hoist__storage *storage);
uint64_t hoist__storage_id(const struct hoist__storage *storage);
hoist_device *hoist__storage_device(const struct hoist__storage *storage); /* borrowed */
hoist_memory *
hoist__storage_memory(const struct hoist__storage *storage); /* borrowed; may be NULL */
/* HOST for no bytes; unless DEVICE, the address is a pointer. */
enum hoist__memory_kind hoist__storage_kind(const struct hoist__storage *storage);
hoist_stream *hoist__storage_stream(
	const struct hoist__storage *storage); /* borrowed; the block is freed on it; may be NULL */
bool hoist__storage_is_read_only(const struct hoist__storage *storage); /* or frozen */
bool hoist__storage_is_mapped(const struct hoist__storage *storage);
bool hoist__storage_has_access(const struct hoist__storage *storage);
/* The CPU can touch the bytes. */
bool hoist__storage_is_on_host(const struct hoist__storage *storage);

/* Drops a reference.  Returns: true if it was the last.  Who has the only one needs no exchange to
 * know that: nobody else is there to take another. */
static inline bool hoist__unref(_Atomic unsigned *refs)
{
	return atomic_load_explicit(refs, memory_order_acquire) == 1 ||
	       atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

/* Numbers that no object of the process has had: buffers' and storages'. */
uint64_t hoist__next_id(void);

/* A contiguous buffer in C order over storage bytes from @offset on; takes a
 * reference of its own.
 * Returns: 0; -EINVAL (rank, shape, dtype; or the buffer leaves the storage, with
 *   the figures); -EOVERFLOW; -ENOMEM. */
int hoist__buffer_over(struct hoist__storage *storage, size_t offset, hoist_dtype dtype, int rank,
		       const int64_t *shape, hoist_buffer **ret);

#endif
