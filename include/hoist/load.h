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
 * time.  The load's buffers are views of one allocation.  A load hands out buffers only after all
 * of it has succeeded.
 *
 * Tensors that are the same bytes of a file (tied weights) share their memory, on any device, and
 * are read once.  Other tensors that overlap in their file have separate memory on a device.  Where
 * they are read straight into host memory, or mapped, they overlap there, too.
 *
 * A Budget bounds the staging memory, whatever the checkpoint's size.  A load waits for bytes of a
 * shared budget that are in use.
 *
 * Driving: a load has a thread of its own.  With HOIST_LOAD_CALLER_DRIVEN it has no thread, and the
 * caller calls hoist_load_step() until the load is done.
 *
 * Maps (HOIST_IO_MAP; doc/maps.md): without POPULATE the load ends before a byte is read, so no
 * call can report a later failure.  A page that cannot be read raises SIGBUS in the thread that
 * touches it.  So does a page that its file lost because the file shrank, even if the page was read
 * or written before.  With POPULATE such failures are failures of the load, if they are present by
 * then.  A map may show, in parts, bytes that are written to the file in place.  It does not show a
 * file that replaces the mapped one by rename.  The report counts all bytes as mapped_bytes;
 * io_reason names the map.
 *
 * Threads: every function may be called from any thread; steps of one load must not overlap.
 * fork: a child gets -ESTALE from step and wait of its parent's loads.
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
	HOIST_IO_MAP = 3     /* host: maps of the files (options.map), read when touched.  Device:
			      * read through the page cache; hoist never feeds a device from a
			      * map */
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
} hoist_load_options;

/* --- running a load --- */

/* Starts loading.  @options NULL: all tensors to the CPU.  The load takes the destination's memory
 * now, and other memory while it runs.
 * Returns: 0; -EINVAL (an option out of its range; a slice that its tensor does not have; DIGEST or
 *   VERIFY with slices or maps; maps with `memory`; a stream or memory of another device; a replica
 *   given twice); -ENOTSUP (maps that convert; replicas of a CPU, or of another API); -ENOENT (a
 *   pattern of options->tensors, or of a slice, matches no tensor: the text names the pattern);
 *   -ENODATA (VERIFY, and the checkpoint holds no digests); -EOVERFLOW; -ENOMEM, -ENOSPC (the
 *   destination's memory; -ENOMEM also if the destination is host memory and larger than the rest
 *   of the control group's limit, because the kernel would end the process); -ENODEV, -EREMOTEIO.
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
 *   was allowed). */
HOIST_API int hoist_load_wait(hoist_load *load);

/* Asks the load to end soon.  hoist_load_wait() then gives -ECANCELED, unless the load had already
 * ended or failed.  Does not block. */
HOIST_API void hoist_load_cancel(hoist_load *load);

/* Bytes that have arrived, and bytes in all.  May be called at any time. */
HOIST_API void hoist_load_progress(const hoist_load *load, uint64_t *done, uint64_t *total);

/* --- the loaded tensors --- */

/* The number of selected tensors.  For use after hoist_load_wait() has given 0, as all functions of
 * this section. */
HOIST_API size_t hoist_load_n_tensors(const hoist_load *load);

/* The buffer of the selected tensor @index, a new reference; *@ret_tensor is the checkpoint's index
 * of that tensor.
 * Returns: 0; -EINVAL (@index is too large); -EAGAIN (the load is not done); the load's failure;
 *   -ENOMEM. */
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

/* After a load with DIGEST or VERIFY: the digest of the selected tensor @index.  The digest is
 * XXH3-128 in its canonical (big-endian) form, of the tensor's bytes as they are in the file.
 * Returns: 0; -EINVAL (@index is too large; neither flag was given); -EAGAIN (the load is not
 *   done); the load's failure. */
HOIST_API int hoist_load_digest(hoist_load *load, size_t index, unsigned char ret[16]);

/* --- report and end --- */

typedef struct hoist_load_report {
	size_t size;             /* in: sizeof(hoist_load_report) */
	uint64_t bytes;          /* of the selected tensors in their files; tied tensors count
				  * once */
	uint64_t n_tensors;
	uint64_t ns;             /* from start to end */
	uint64_t cpu_ns;         /* of the whole process in that time, user + system */
	uint64_t direct_bytes;   /* read with O_DIRECT (alignment included) */
	uint64_t cached_bytes;   /* read through the page cache */
	uint64_t mapped_bytes;   /* mapped, not read */
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
} hoist_load_report;

/* Fills @report up to report->size with the facts of a load that is done.
 * Returns: 0; -EINVAL (report->size is 0 or larger than this library knows); -EAGAIN (the load is
 *   not done). */
HOIST_API int hoist_load_get_report(hoist_load *load, hoist_load_report *report);

/* Takes NULL.  Cancels the load if it still runs, and waits for its end.  Buffers that were handed
 * out live on.  In a child of fork the call does nothing. */
HOIST_API void hoist_load_destroy(hoist_load *load);

HOIST_END

#endif
