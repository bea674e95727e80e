/* SPDX-License-Identifier: MIT */
/* hoist/load.h - one asynchronous load: from files to buffers on a device.
 *
 *     hoist_load_options o = {.size = sizeof o, .device = device};
 *     hoist_load_start(checkpoint, &o, &load);
 *     hoist_load_wait(load);                       // 0, or why it failed
 *     hoist_load_buffer(load, "lm_head.weight", &weight);
 *     hoist_load_destroy(load);                    // buffers live on
 *
 * A load to the host reads straight into the final memory.  A load to a device reads into pinned
 * staging slots and copies each slot to the device when it is full: disk and bus work at the same
 * time.  A load hands out buffers only after all of it has succeeded, unless it streams.
 *
 * Memory: the tensors of a load lie in one allocation on each target, which goes back with the last
 * buffer.  With HOIST_LOAD_SPLIT, blocks go back one by one; of the CPU's own memory, the pages of
 * the block do, and its addresses with the last block.  Without SPLIT, host memory goes back
 * tensor by tensor: when the last buffer over a tensor goes, views and exports included, so does
 * each page in which no other tensor has a byte.  The load itself refers to all its tensors until
 * hoist_load_destroy(), which then gives back what no buffer is over.  Keeping one tensor of 4 KiB
 * keeps two pages at most:
 *
 *     hoist_load_destroy(load);                    // the caller has a buffer over each tensor
 *     move(layer);                                 // use them layer by layer,
 *     hoist_buffer_unref(layer);                   // and the pages of each go back
 *
 * This needs memory that hoist mapped for the load alone and that nobody pinned: that of an
 * adaptive load that maps, the CPU's own (loads of 8 MiB and more; with several targets, of 16
 * MiB), or that of a resource of kind HOST at debug level 0 without upstream (loads of half its
 * region_bytes and more).  There each tensor is a storage of its own
 * (hoist_buffer_info.storage_id): hoist_buffer_freeze() and hoist_buffer_fork() act on that tensor
 * alone.  The drop of a tensor's last buffer waits for the work that streams have queued with the
 * tensor.  Tensors that overlap share a storage.  In all other memory the tensors of one block do.
 *
 * Streaming (HOIST_LOAD_STREAM): tensors are given one by one, each as soon as its bytes have
 * arrived, while later ones still load:
 *
 *     hoist_load_options o = {.size = sizeof o, .flags = HOIST_LOAD_STREAM,
 *                             .window_bytes = (size_t)2 << 30};
 *     hoist_load_item item = {.size = sizeof item};
 *     hoist_load_start(checkpoint, &o, &load);
 *     while ((got = hoist_load_next(load, UINT64_MAX, &item)) > 0) {
 *             use(item.tensor, item.buffer);
 *             hoist_buffer_unref(item.buffer);     // makes room for later tensors
 *     }
 *
 * The tensors come in the order of the files, or those that options.order names first.  With
 * window_bytes the load takes at most so much memory for tensors on each target: a checkpoint
 * of any size passes through.  While the caller keeps the window full, the load keeps its staging
 * slots.  So the caller must not wait meanwhile for a load or a save with the same Budget.
 *
 * In place (options.into): tensors are read into buffers of the caller's, as when a trainer has
 * written new weights, or when a model that slept comes back.  The load allocates no destination:
 *
 *     hoist_load_into into[] = {{"wq", q}, {"wk", k}, {"wv", v}};   // views of one fused buffer
 *     hoist_load_options o = {.size = sizeof o, .into = into, .n_into = 3};
 *     hoist_load_start(checkpoint, &o, &load);
 *     if (hoist_load_wait(load) < 0)
 *             hoist_load_into_state(load, 0, i, &state);           // untouched, whole or torn
 *     hoist_load_destroy(load);
 *
 * A buffer may have any strides, and another one of the dtypes f32, f16 and bf16.  Contiguous host
 * memory that has the same place within a page as the file is read straight, but for the two ends
 * that fill no page; so is memory that an earlier load of the file gave.  Other memory is filled
 * from staging slots.  Where neighbouring elements of the file lie apart in the buffer, each
 * element is moved by itself, in an order that suits the processor.  Into a matrix that is
 * transposed on a device, each read is one copy, whose rows are as long as the read has rows of the
 * matrix: larger chunk_bytes make them longer.  Other such buffers are slow on a device: with more
 * than two axes in another order, or rows above 256 KiB in the file, each element is a row of a 2-D
 * copy, and where strides are negative, a copy.
 *
 * Writes wait for the work that was queued on each buffer's stream before hoist_load_start().  Work
 * that is queued behind hoist_load_wait() sees the tensors.  Between the two the buffers must be
 * left alone.  The load refers to them until hoist_load_destroy().
 *
 * Tensors that are the same bytes of a file (tied weights) share their memory, on any device, and
 * are read once.  Other tensors that overlap in their file have separate memory on a device.  Where
 * they are read straight into host memory, or mapped, they overlap there, too.
 *
 * A Budget bounds the staging memory, whatever the checkpoint's size.  A load waits for bytes of a
 * shared budget that are in use.
 *
 * Driving: a load has a thread of its own.  With HOIST_LOAD_CALLER_DRIVEN it has no thread, and the
 * caller calls hoist_load_step() until the load is done.  If the load streams, the caller calls
 * hoist_load_next() instead: with a window, steps alone do not end the load.
 *
 * Maps (HOIST_IO_MAP; doc/maps.md): without POPULATE the load ends before a byte is read, so no
 * call can report a later failure.  A page that cannot be read raises SIGBUS in the thread that
 * touches it.  So does a page that its file lost because the file shrank, even if the page was read
 * or written before.  With POPULATE such failures are failures of the load, if they are present by
 * then.  A map may show, in parts, bytes that are written to the file in place.  It does not show a
 * file that replaces the mapped one by rename.  The report counts all bytes as mapped_bytes;
 * io_reason names the map.
 *
 * Adaptive (HOIST_IO_ADAPTIVE): the destination is host memory in which the ranges of the files
 * that lie in the page cache when the load starts are mapped, and all else is read.  A load of a
 * file that is all cached copies nothing; one of a file that is not cached is a plain load.  A
 * mapped range has 2 MiB at least, and a load makes at most 1,000 maps, of the longest such ranges.
 * The buffers are writable, and writes stay private.  mapped_bytes in the report counts what is
 * mapped.  Two rules of maps hold for mapped ranges.  A touch raises SIGBUS where the file has
 * shrunk later.  Bytes that are later written to the file in place may show, in parts, in pages
 * that nobody wrote to through a buffer.  Loads that must own their memory use HOIST_IO_AUTO.
 * DIGEST and VERIFY read mapped ranges through the page cache; if the file is shorter by then, the
 * load fails.  DROP_CACHE is refused.  A load of a group, to a device, to several targets or in
 * place (`into`), with `memory`, SPLIT or STREAM, with a conversion or with slices that are packed
 * (along another axis than the first) is the same as with AUTO, and so is one for which nothing is
 * cached.
 *
 * Threads: every function may be called from any thread; steps of one load must not overlap.
 * fork: a child gets -ESTALE from step, wait, next and fd of its parent's loads.
 * Errors: a load keeps its first failure.  hoist_load_wait() returns it, and its text is then in
 * the calling thread's hoist_error().
 */
#ifndef HOIST_LOAD_H
#define HOIST_LOAD_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/budget.h>
#include <hoist/buffer.h>
#include <hoist/checkpoint.h>
#include <hoist/device.h>
#include <hoist/error.h>
#include <hoist/memory.h>

HOIST_BEGIN

typedef struct hoist_load hoist_load;

/* --- options --- */

enum hoist_engine {
	HOIST_ENGINE_AUTO = 0, /* io_uring, or threads where io_uring is refused, and under
				* Valgrind */
	HOIST_ENGINE_URING = 1,
	HOIST_ENGINE_THREADS = 2
};

enum hoist_io {
	HOIST_IO_AUTO = 0,   /* direct; bytes that are in the page cache already are read there */
	HOIST_IO_DIRECT = 1, /* direct (O_DIRECT) wherever the file system supports it */
	HOIST_IO_CACHED = 2, /* through the page cache */
	HOIST_IO_MAP = 3,    /* host: maps of the files (options.map), read when touched.  Device:
			      * read through the page cache; hoist never feeds a device from a
			      * map */
	HOIST_IO_ADAPTIVE = 4 /* host: ranges that are in the page cache already are mapped,
			      * copy-on-write; the rest is read as by AUTO.  See "Adaptive" above */
};

/* The effect of writing to a mapped buffer. */
enum hoist_map {
	HOIST_MAP_COPY_ON_WRITE = 0, /* the write is private to the buffer's memory */
	HOIST_MAP_READ_ONLY = 1,     /* buffers are read-only */
	HOIST_MAP_READ_WRITE = 2     /* the write goes to the file */
};

#define HOIST_LOAD_CALLER_DRIVEN 1u /* no thread: see hoist_load_step() */
#define HOIST_LOAD_POPULATE 2u   /* MAP: reads all bytes into the page cache and maps them in before
				  * the load is done; progress counts them */
#define HOIST_LOAD_DROP_CACHE 4u /* at the end no page of the files that were read is left in the
				  * page cache, even if it was there before */
#define HOIST_LOAD_DIGEST 8u     /* computes an XXH3-128 of each tensor's bytes, as they are in the
				  * file, while they are loaded; see hoist_load_digest().  Not with
				  * slices or maps */
#define HOIST_LOAD_VERIFY 16u    /* as DIGEST, and compares the digests with those that the
				  * checkpoint holds (hoist/save.h) */
#define HOIST_LOAD_SPLIT 32u     /* a block of memory for each tensor, and for each group of small
				  * tensors that follow each other (up to 2 MiB together): a block
				  * goes back with the last buffer that uses it.  Tied tensors share
				  * theirs.  Maps have no blocks */
#define HOIST_LOAD_STREAM 64u    /* tensors are taken with hoist_load_next(), and with no other
				  * function.  Implies SPLIT */
#define HOIST_LOAD_TIMELINE 128u /* records when each chunk was where: hoist/timeline.h */

/* A part of a tensor along one axis.  A tensor that has strides in its file cannot be sliced.  A
 * slice of a type smaller than a byte, or of blocks, must begin and end between two bytes or
 * blocks. */
typedef struct hoist_load_slice {
	const char *tensor; /* a name or a glob: the tensors to slice */
	int axis;           /* -rank..rank-1 */
	int rank;           /* n_ranks > 0: the part number `rank` of n_ranks equal parts; the
			     * extent must be a multiple of n_ranks */
	int n_ranks;
	int64_t begin;      /* n_ranks 0: [begin, end) of the extent; negative values count from its
			     * end.  Both must be within the extent: nothing is clipped */
	int64_t end;        /* HOIST_SLICE_END: the extent */
} hoist_load_slice;

#define HOIST_SLICE_END INT64_MAX

/* A buffer of the caller's that a tensor is read into.  Its shape is that of the tensor, or of the
 * slices of the tensor that are asked for. */
typedef struct hoist_load_into {
	const char *tensor;   /* a name, or a glob that matches one tensor */
	hoist_buffer *buffer; /* a lazy buffer takes its memory in hoist_load_start() */
} hoist_load_into;

/* One of several destinations, each with tensors, slices and a dtype of its own.  The files are
 * read once for all of them, with one exception (hoist_load_options.targets).  Fields that are not
 * set have the defaults of hoist_load_options. */
typedef struct hoist_load_target {
	size_t size;          /* sizeof(hoist_load_target) */
	hoist_device *device; /* the targets of a load are on devices of one API and on the CPU;
			       * several may be on one device */
	hoist_stream *stream;
	const char *const *tensors;
	size_t n_tensors;
	const hoist_load_slice *slices;
	size_t n_slices;
	hoist_dtype dtype;
	hoist_memory *memory;
	const hoist_load_into *into;
	size_t n_into;
} hoist_load_target;

typedef struct hoist_load_options {
	size_t size;          /* sizeof(hoist_load_options) */
	hoist_device *device; /* the destination; NULL: the CPU */
	hoist_stream *stream; /* copies are queued here; NULL: a stream of the load's own */
	enum hoist_engine engine;
	enum hoist_io io;
	hoist_budget *budget; /* NULL: a budget of the load's own, HOIST_BUDGET_DEFAULT bytes */
	const char *const *tensors; /* names or globs (fnmatch: * ? [...]) of the tensors to load.
				     * NULL: all; an empty list: none.  A text that is the name of
				     * a tensor selects that tensor alone, even if the text has
				     * characters of a glob */
	size_t n_tensors;
	unsigned flags;
	size_t tensor_align;  /* tensors begin at multiples of this, a power of two up to 4096; 0:
			       * 256.  Host: for converted tensors and slices only; other tensors
			       * have the same place within a page as in the file */
	const hoist_load_slice *slices; /* of the tensors that are named here only these parts are
					 * loaded; several slices of different axes may name one
					 * tensor */
	size_t n_slices;
	hoist_dtype dtype;    /* f32, f16 or bf16: tensors of these three dtypes are converted to
			       * this one while they are staged; 0: no conversion */
	enum hoist_map map;   /* for HOIST_IO_MAP */
	hoist_device *const *replicas; /* further devices that get the same bytes; each byte is read
					* once; see hoist_load_replica() */
	size_t n_replicas;
	hoist_memory *memory; /* the resource for the destination: memory of `device`, or, for the
			       * CPU, any memory that the CPU can access.  Its blocks must be
			       * aligned to 4096 bytes, or to the file system's blocks if these are
			       * larger.  Replicas use their devices' own resources.  NULL: the
			       * device's own */
	size_t chunk_bytes;   /* of one read, a multiple of 4096 up to 1 GiB; 0: hoist chooses for
			       * the file system and the way of reading.  Reads are smaller where
			       * the budget has no room, and larger where the file system's blocks
			       * or a conversion need it */
	unsigned depth;       /* reads in flight on each disk, up to 4096; 0: hoist chooses */
	size_t window_bytes;  /* STREAM: blocks for tensors have at most so many bytes on each
			       * target; two targets on one device have a window each.  A block is
			       * taken when its bytes are due, and counts until the last buffer
			       * over it has gone; tied tensors count once.  A block larger than
			       * the window is taken when no other is.  Blocks are not charged to
			       * `budget`.  Not with maps.  0: all blocks are taken at the start */
	const hoist_load_target *const *targets; /* up to 16 destinations in place of the one of these
						  * options: then device, stream, tensors, slices,
						  * dtype, replicas, memory and into must not be
						  * set here.
						  * Bytes that several targets have are read once.
						  * Only where tensors of one target overlap in a
						  * file, and are converted for a device, are
						  * common bytes read for each.
						  * Several targets are not mapped: HOIST_IO_MAP
						  * reads through the page cache */
	size_t n_targets;
	const char *const *order; /* names or globs of the tensors that are read, and given, first:
				   * those that match order[0], then those that match order[1], and
				   * so on; the rest comes in the order of the files, as do tensors
				   * that match one entry.  A tensor belongs to the first entry
				   * that it matches; tied tensors, and others that overlap, to the
				   * first of all of theirs.  An entry selects nothing.  For loads of
				   * all kinds; maps are populated in this order.  Each entry may
				   * begin a read and a block of memory of its own, so a list of all
				   * tensors in another order than that of the files reads more
				   * slowly.  NULL: the order of the files */
	size_t n_order;
	const hoist_load_into *into; /* the tensors to load, each into a buffer: "In place" above.
				      * Without `device` and `stream` the device is that of the
				      * first buffer, or the CPU if the CPU can touch its memory.
				      * Buffers of other devices belong to other targets.  `order`
				      * gives the order of reading.  Not with tensors, dtype, memory,
				      * replicas, maps or STREAM */
	size_t n_into;
} hoist_load_options;

/* --- running a load --- */

/* Starts loading.  @options NULL: all tensors to the CPU.  The load takes the destination's memory
 * now (with a window: when its bytes are due), and other memory while it runs.
 * Returns: 0; -EINVAL (an option out of its range; a slice that its tensor does not have; DIGEST or
 *   VERIFY with slices or maps; DROP_CACHE with ADAPTIVE; maps with `memory` or a window; a window
 *   without STREAM; a stream or memory of another device; a replica given twice; targets beside
 *   fields that each target has; in place: tensors, dtype, memory, replicas, maps or STREAM beside
 *   into; a buffer of another shape, dtype or device than its tensor, with both; buffers that
 *   overlap, or interleave otherwise than as parts of one matrix; elements of one that overlap, as
 *   with a stride of 0; a tensor in two buffers, a glob for several tensors); -EROFS (a buffer is
 *   read-only or frozen); -EBADF (a buffer was closed); -ENOTSUP (maps that convert; replicas of a
 *   CPU; replicas or targets of another API; in place: the stream of a buffer captures a graph, or
 *   elements overlap in the file); -ENOENT (a pattern of options->tensors, of a slice, of
 *   options->order or of into matches no tensor: the text names the pattern); -ENODATA (VERIFY, and
 *   the checkpoint holds no digests); -EOVERFLOW; -ENOMEM, -ENOSPC (the destination's memory;
 *   -ENOMEM also if the destination is host memory and larger than the rest of the control group's
 *   limit, because the kernel would end the process); -ENODEV, -EREMOTEIO.
 *   Maps: also -ENODATA (a file has shrunk); READ_WRITE: -EACCES, -EROFS, -EPERM, -ETXTBSY. */
HOIST_API int hoist_load_start(hoist_checkpoint *checkpoint, const hoist_load_options *options,
			       hoist_load **ret);

/* CALLER_DRIVEN: does the work that can be done now, and waits up to @timeout_ns nanoseconds for
 * some.
 * Returns: 1 (the load is done: hoist_load_wait() does not block); 0 (call again); -EINVAL (the
 *   load has a thread of its own). */
HOIST_API int hoist_load_step(hoist_load *load, uint64_t timeout_ns);

/* Waits for the end.  Drives a caller-driven load to its end.
 * Returns: 0, every byte has arrived; or the first failure: -ECANCELED; -EBADMSG (a file changed
 *   during the load; VERIFY found a damaged tensor, which the text names); -ENODATA (a file
 *   shrank); -EIO and the like; -EREMOTEIO; -EDQUOT (the budget is below the least that works);
 *   -ENOMEM, -EPERM (memory cannot be allocated or pinned; io_uring is refused where only io_uring
 *   was allowed); -EINVAL (a load with window_bytes, unless hoist_load_next() has given all tensors
 *   or the load has failed or was cancelled: nobody would take what the window waits for). */
HOIST_API int hoist_load_wait(hoist_load *load);

/* The same, for @timeout_ns nanoseconds at most; 0: looks, and drives a caller-driven load one step.
 * Returns: as hoist_load_wait(); -ETIMEDOUT (the load has not ended yet, and goes on).  A rank of a
 *   group that did not come is -ECONNRESET here. */
HOIST_API int hoist_load_wait_for(hoist_load *load, uint64_t timeout_ns);

/* Asks the load to end soon.  hoist_load_wait() then gives -ECANCELED, unless the load had already
 * ended or failed.  Does not block. */
HOIST_API void hoist_load_cancel(hoist_load *load);

/* Bytes that have arrived, and bytes in all.  May be called at any time. */
HOIST_API void hoist_load_progress(const hoist_load *load, uint64_t *done, uint64_t *total);

/* --- tensors while the load runs: HOIST_LOAD_STREAM --- */

typedef struct hoist_load_item {
	size_t size;          /* in: sizeof(hoist_load_item) */
	size_t target;        /* of options.targets; without them 0: options.device, and r + 1:
			       * options.replicas[r] */
	size_t tensor;        /* the checkpoint's index */
	hoist_buffer *buffer; /* a new reference: the caller's, and the only one unless tensors
			       * share a block (SPLIT) */
	size_t index;         /* among the tensors that the target selected.  hoist_load_digest()
			       * takes it for target 0 (and replicas) only */
} hoist_load_item;

/* Gives the next tensor.  Waits up to @timeout_ns nanoseconds for one (0: does not wait;
 * UINT64_MAX: no limit), and drives a caller-driven load meanwhile.  Every selected tensor is given
 * once for each target, those of no bytes first, the others as options.order says or in the order
 * of the files; files on different disks do not wait for each other.  With DIGEST or VERIFY a
 * tensor is given once its digest is known, and right.
 *
 * On the caller's stream (options.stream, or that of the target) the buffer is behind its copies:
 * work on that stream needs no wait, and a buffer that is dropped there makes room at once.
 * Elsewhere the bytes are there.
 *
 * After a failure the call gives the failure.  Tensors that were given stay valid.
 * Threads: any; several may call at once, and each tensor goes to one of them.
 * Returns: 1, *@item is a tensor; 0, all were given and the load has succeeded; -ETIMEDOUT, nothing
 *   has arrived; -ENOBUFS, the window is full of what the caller holds (at once, whatever the
 *   timeout; the text says how much that is, names the largest block, and says what the next tensor
 *   needs): the load goes on when buffers are dropped; -EINVAL (a load without STREAM; item->size);
 *   -ENOMEM (for the buffer: call again); -ESTALE; the load's failure, as hoist_load_wait(), and
 *   with a window as hoist_load_start() where no memory was left. */
HOIST_API int hoist_load_next(hoist_load *load, uint64_t timeout_ns, hoist_load_item *item);

/* A descriptor for poll() and the like.  STREAM: it is readable exactly while hoist_load_next()
 * would not give -ETIMEDOUT.  Without STREAM: it is readable once the load is done and
 * hoist_load_wait() does not block.  The descriptor is the load's: the caller must not read or
 * close it.
 * Returns: the descriptor; -EINVAL (a caller-driven load); -EMFILE, -ENFILE, -ENOMEM; -ESTALE. */
HOIST_API int hoist_load_fd(hoist_load *load);

/* --- the loaded tensors --- */

/* The number of selected tensors.  For use after hoist_load_wait() has given 0, as all functions of
 * this section. */
HOIST_API size_t hoist_load_n_tensors(const hoist_load *load);

/* The buffer of the selected tensor @index, a new reference; *@ret_tensor is the checkpoint's index
 * of that tensor.  After a load in place the buffer is the caller's.
 * Returns: 0; -EINVAL (@index is too large; the load streams); -EAGAIN (the load is not done); the
 *   load's failure; -ENOMEM. */
HOIST_API int hoist_load_tensor(hoist_load *load, size_t index, size_t *ret_tensor,
				hoist_buffer **ret);

/* The buffer of the tensor called @name, a new reference.
 * Returns: 0; -ENOENT (@name is not in the checkpoint, or was not selected); as
 *   hoist_load_tensor(). */
HOIST_API int hoist_load_buffer(hoist_load *load, const char *name, hoist_buffer **ret);

/* The buffer of the selected tensor @index on the device options.replicas[@replica].
 * Returns: as hoist_load_tensor(); -EINVAL (@replica is too large). */
HOIST_API int hoist_load_replica(hoist_load *load, size_t replica, size_t index,
				 hoist_buffer **ret);

/* The number of targets: options.n_targets, or one and the replicas. */
HOIST_API size_t hoist_load_n_targets(const hoist_load *load);

/* The number of tensors that target @target selected; 0 if there is no such target.  The functions
 * above, but for replicas, and hoist_load_digest() are about target 0. */
HOIST_API size_t hoist_load_target_n_tensors(const hoist_load *load, size_t target);

/* The buffer of the tensor @index of those that target @target selected, a new reference;
 * *@ret_tensor is the checkpoint's index of that tensor, unless @ret_tensor is NULL.
 * Returns: as hoist_load_tensor(); -EINVAL (@target is too large). */
HOIST_API int hoist_load_target_tensor(hoist_load *load, size_t target, size_t index,
				       size_t *ret_tensor, hoist_buffer **ret);

/* After a load with DIGEST or VERIFY, or, if the load streams, once the tensor was given: the
 * digest of the tensor @index of those that target 0 selected.  The digest is XXH3-128 in its
 * canonical (big-endian) form, of the tensor's bytes as they are in the file.
 * Returns: 0; -EINVAL (@index is too large; neither flag was given); -EAGAIN (the load is not
 *   done, and has not given the tensor); the load's failure. */
HOIST_API int hoist_load_digest(hoist_load *load, size_t index, unsigned char ret[16]);

/* --- buffers after a load in place --- */

enum hoist_into_state {
	HOIST_INTO_UNTOUCHED = 0, /* no byte was written */
	HOIST_INTO_TORN = 1,      /* bytes may be old, new or neither */
	HOIST_INTO_WHOLE = 2      /* the tensor is there */
};

/* The state of the buffer of into[@index] of target @target (0 without targets).  After a success
 * all are WHOLE.  The text of a failure says how many buffers have each state.  A tensor of a file
 * that changed while it was read, or of a device that failed, is TORN.  One that VERIFY found
 * damaged is not WHOLE.
 * Returns: 0; -EINVAL (no such buffer; the load is not in place); -EAGAIN (the load is not
 *   done). */
HOIST_API int hoist_load_into_state(hoist_load *load, size_t target, size_t index,
				    enum hoist_into_state *ret);

/* --- report and end --- */

typedef struct hoist_load_report {
	size_t size;             /* in: sizeof(hoist_load_report) */
	uint64_t bytes;          /* of the selected tensors in their files; tied tensors, and what
				  * several targets have in the same form, count once */
	uint64_t n_tensors;      /* the sum over the targets; accelerators that ask for the same
				  * tensors, slices and dtype count once */
	uint64_t ns;             /* from start to end */
	uint64_t cpu_ns;         /* of the whole process in that time, user + system */
	uint64_t direct_bytes;   /* read with O_DIRECT (alignment included) */
	uint64_t cached_bytes;   /* read through the page cache */
	uint64_t mapped_bytes;   /* mapped, not read, but for digests */
	uint64_t n_reads;
	uint64_t n_copies;       /* host to device */
	size_t staging_peak_bytes;
	size_t pinned_peak_bytes; /* of the device's staging pool */
	size_t budget_bytes;     /* the budget's limit */
	int emulated;            /* 1: the device is an emulated one */
	char device[32];         /* "cuda:0" */
	char engine[16];         /* "io_uring", "threads", "none" (maps) */
	char engine_reason[256]; /* why hoist chose that engine */
	char io_reason[256];     /* why bytes were read that way */
	size_t window_peak_bytes; /* most bytes of tensors' blocks on one target at one time; 0: the
				   * load had no window */
	uint64_t open_ns;	  /* that hoist_checkpoint_open() took; not in `ns` */
	/* Where the time went: the sum of these is `ns`.  Each nanosecond is of what the thread that
	 * drives the load did.  A wait for several things is of the first of them in this list. */
	uint64_t plan_ns;     /* choosing tensors, slices and reads; asking what the page cache has */
	uint64_t allocate_ns; /* memory for the tensors, staging memory and its pinning, maps */
	uint64_t caller_ns;   /* wait: the caller holds what fills the window, has queued work on
			       * buffers of a load in place, or makes no step of the load */
	uint64_t read_ns;     /* wait: files are read, hot bytes are copied, maps are populated */
	uint64_t convert_ns;  /* conversions, digests, moves from staging to the host's tensors, and
			       * the wait for these */
	uint64_t copy_ns;     /* wait: copies to devices */
	uint64_t pages_ns;    /* wait: the kernel makes pages of fresh memory */
	uint64_t group_ns;    /* wait: ranks that have not come, and what they or this one read for
			       * the group */
	uint64_t budget_ns;   /* wait: others have the budget */
	uint64_t work_ns;     /* all else, no wait: submitting, completing */
} hoist_load_report;

/* Fills @report up to report->size with the facts of a load that is done.
 * Returns: 0; -EINVAL (report->size is 0 or larger than this library knows); -EAGAIN (the load is
 *   not done). */
HOIST_API int hoist_load_get_report(hoist_load *load, hoist_load_report *report);

/* Writes one line for a log, without a newline: bytes, device, time, rate, and the stages of the time
 * in percent, the longest first, and the ways of the bytes.  Copies at most @bytes to
 * @text, with a NUL; @text may be NULL if @bytes is 0.  Pre: hoist_load_get_report() has filled
 * @report, whose size is sizeof *report.
 * Returns: the bytes of the whole line, without the NUL, as snprintf(). */
HOIST_API size_t hoist_load_explain(const hoist_load_report *report, char *text, size_t bytes);

/* Takes NULL.  Cancels the load if it still runs, and waits for its end.  Buffers that were handed
 * out live on; host memory that none of them is over goes back ("Memory" above).  In a child of
 * fork the call does nothing. */
HOIST_API void hoist_load_destroy(hoist_load *load);

HOIST_END

#endif
