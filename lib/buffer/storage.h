/* SPDX-License-Identifier: MIT */
/* lib/buffer/storage.h - the bytes behind buffers: shared, reference counted.
 *
 * A storage owns its bytes, or keeps their owner alive.  There are four origins:
 *
 *   resource  a block of a hoist_memory; taken at once, or (LAZY) by the first
 *             hoist__storage_allocate(); freed to it, in the order of `stream` if there is one
 *   wrapped   memory from elsewhere (a map, a patchwork (patchwork.h), the caller's, another
 *             process's); release(context)
 *             is called once, by the last reference
 *   portion   a range of another storage (portions.h)
 *   none      no bytes (empty buffers)
 *
 * Work on streams: hoist__storage_use() notes that work queued on a stream uses the bytes.  If the
 * resource can order a free behind several streams, it is told at once.  For any other storage the
 * streams are kept, and the last reference waits for them.
 *
 * Consumers: memory that was exported (DLPack, the CUDA Array Interface) may be used by work that
 * the consumer queued on streams of its own, which nobody else knows.  That work may go on when the
 * consumer lets go.  The last reference to such a storage parks it (lib/memory/parked.h): its block
 * or its foreign memory goes back when the devices have been waited for.  Memory that a capturing
 * stream uses is parked, too, and so is a block that its resource does not free then: both go back
 * after the capture.
 *
 * Threads: the count is atomic.  If several threads allocate at once, one wins.  Freezing is one
 * way.  Everything else is immutable.  There are no locks.
 */
#ifndef HOIST_LIB_BUFFER_STORAGE_H
#define HOIST_LIB_BUFFER_STORAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "alloc/pool.h"
#include "base/assert.h"
#include "hoist/buffer.h"
#include "hoist/device.h"
#include "io/map.h"

struct hoist__storage;

/* --- making --- */

#define HOIST__STORAGE_LAZY 1u
#define HOIST__STORAGE_ZERO 2u
#define HOIST__STORAGE_UNPOPULATED 4u /* HOIST__ALLOC_UNPOPULATED of alloc/pool.h */

/* Makes a storage of @bytes bytes from @memory; 0 makes one of no bytes.  The block is allocated
 * and freed on @stream, of which a reference is taken; NULL: on no stream.
 * Returns: 0; as hoist_memory_alloc(). */
int hoist__storage_create(hoist_memory *memory, hoist_stream *stream, size_t bytes, size_t align,
			  unsigned flags, struct hoist__storage **ret);

/* Makes a storage of no bytes. */
int hoist__storage_none(hoist_device *device, struct hoist__storage **ret);

/* Memory from elsewhere, of @device. */
struct hoist__foreign {
	hoist_device *device;
	enum hoist__memory_kind kind; /* PINNED: registered with the device's driver */
	uintptr_t address;
	uintptr_t device_address; /* as the device's kernels see it; 0: the same */
	size_t bytes;
	bool read_only;
	bool mapped;	/* another process made the memory */
	bool no_access; /* neither host nor device may touch the memory (a caller's own resource) */
	void (*release)(void *context); /* NULL: there is nothing to call */
	/* Gives back pages that nobody will touch again, in multiples of page_bytes, while the rest
	 * stays (portions.h); NULL: no page can.  Returns: 0; an error, and the pages stay. */
	int (*discard)(void *context, uintptr_t address, size_t bytes);
	size_t page_bytes;
	void *context;
};

/* Makes a storage over memory from elsewhere.  On failure, release is not called.
 * Returns: 0; -ENOMEM. */
int hoist__storage_wrap(const struct hoist__foreign *foreign, struct hoist__storage **ret);

/* The context that the memory was wrapped with. */
void *hoist__storage_context(const struct hoist__storage *storage);

/* Makes a storage over the caller's block of @memory, and frees the block to @memory in the end.
 * Returns: 0; -EINVAL, -ENOMEM. */
int hoist__storage_adopt(hoist_memory *memory, hoist_stream *stream, uintptr_t address,
			 size_t bytes, struct hoist__storage **ret);

/* The last reference will neither free nor release anything: the caller owns the memory again, as
 * the object that needed the storage could not be made. */
void hoist__storage_forget(struct hoist__storage *storage);

/* Takes over *map, which becomes zero on success. */
int hoist__storage_map(hoist_device *device, struct hoist__file_map *map, bool read_only,
		       struct hoist__storage **ret);

/* Calls @ended when the storage has ended and its memory has been given back; in any thread, which
 * may be one of the driver's.  Pre: nobody else knows the storage yet; one watcher. */
void hoist__storage_watch(struct hoist__storage *storage, void (*ended)(void *context),
			  void *context);

struct hoist__storage *hoist__storage_ref(struct hoist__storage *storage);
void hoist__storage_unref(struct hoist__storage *storage); /* takes NULL */

/* --- using --- */

/* Takes the storage's memory, unless it has it.  The memory is zero if that was asked for, and
 * ready for work on any stream. */
int hoist__storage_allocate(struct hoist__storage *storage);

/* Notes that work queued on @stream, now or later, uses the bytes: they stay until that work is
 * over.  A LAZY storage without memory is noted, too.
 * Returns: 0; -EINVAL (the memory's resource cannot be ordered by such a stream); -ENOMEM. */
int hoist__storage_use(struct hoist__storage *storage, hoist_stream *stream);

/* Frees the block on @stream instead of the stream it was allocated on.  If there are other
 * references, @stream is only noted as one more that uses the bytes, as it does not order the work
 * of the others.
 * Returns: 0; -EINVAL, -ENOMEM as above. */
int hoist__storage_free_on(struct hoist__storage *storage, hoist_stream *stream);

/* --- consumers: storage-parked.c --- */

/* Lends the bytes to a consumer that uses them on streams of its own as long as it holds the
 * storage in any way.  At the storage's end the consumer's work may still run. */
void hoist__storage_lend(struct hoist__storage *storage);

/* The same for a consumer that lets go now: all its work is queued. */
void hoist__storage_returned(struct hoist__storage *storage);

/* Waits until the consumers' work on the bytes is over.  Pre: the caller has the only reference.
 * Returns: 0; -EBUSY (a consumer may still have the address; a stream captures a graph); -EAGAIN,
 *   -EREMOTEIO, -ESTALE. */
int hoist__storage_await_consumers(struct hoist__storage *storage);

/* The references at this moment. */
unsigned hoist__storage_n_refs(const struct hoist__storage *storage);

/* True if the caller's reference is the only one. */
bool hoist__storage_is_alone(const struct hoist__storage *storage);

/* Sets the address of the block.  Pre: the storage is adopted, and nobody else knows it yet. */
void hoist__storage_move(struct hoist__storage *storage, uintptr_t address);

void hoist__storage_freeze(struct hoist__storage *storage);

/* --- properties --- */

uintptr_t hoist__storage_address(const struct hoist__storage *storage); /* 0: none, or not yet */
/* Returns the address of the same byte as the device's kernels see it. */
uintptr_t hoist__storage_device_address(const struct hoist__storage *storage);
size_t hoist__storage_bytes(const struct hoist__storage *storage);
uint64_t hoist__storage_id(const struct hoist__storage *storage);
hoist_device *hoist__storage_device(const struct hoist__storage *storage); /* borrowed */
hoist_memory *
hoist__storage_memory(const struct hoist__storage *storage); /* borrowed; may be NULL */
/* HOST if there are no bytes.  Unless DEVICE, the address is a pointer. */
enum hoist__memory_kind hoist__storage_kind(const struct hoist__storage *storage);
hoist_stream *hoist__storage_stream(
	/* borrowed; the block is freed on this stream; may be NULL */
	const struct hoist__storage *storage);
bool hoist__storage_is_read_only(const struct hoist__storage *storage); /* or frozen */
bool hoist__storage_is_mapped(const struct hoist__storage *storage);
bool hoist__storage_has_access(const struct hoist__storage *storage);
/* True if the CPU can touch the bytes. */
bool hoist__storage_is_on_host(const struct hoist__storage *storage);

/* Drops a reference.  The holder of the only reference needs no atomic exchange to see that: nobody
 * else could take another.
 * Returns: true if the reference was the last. */
static inline bool hoist__unref(_Atomic unsigned *refs)
{
	HOIST__ASSERT(atomic_load(refs) != 0);
	return atomic_load_explicit(refs, memory_order_acquire) == 1 ||
	       atomic_fetch_sub_explicit(refs, 1, memory_order_acq_rel) == 1;
}

/* Returns a number that no object of the process has had: for buffers and storages. */
uint64_t hoist__next_id(void);

/* Makes a contiguous buffer in C order over the storage's bytes from @offset on.  The buffer takes
 * a reference of its own.
 * Returns: 0; -EINVAL (rank, shape, dtype; or the buffer leaves the storage, with the figures);
 *   -EOVERFLOW; -ENOMEM. */
int hoist__buffer_over(struct hoist__storage *storage, size_t offset, hoist_dtype dtype, int rank,
		       const int64_t *shape, hoist_buffer **ret);

#endif
