/* SPDX-License-Identifier: MIT */
/* hoist/load.h - one asynchronous load: from files to buffers on a device.
 *
 *     hoist_load_options o = {.size = sizeof o, .device = device};
 *     hoist_load_start(checkpoint, &o, &load);
 *     hoist_load_wait(load);                       // 0, or why it failed
 *     hoist_load_buffer(load, "lm_head.weight", &weight);
 *     hoist_load_destroy(load);                    // buffers live on
 *
 * A load to the host reads straight into its final memory; a load to a device
 * reads into pinned staging slots and copies each to the device as it fills, so
 * that disk and bus work at the same time.  The load's buffers are views of one
 * allocation.  Nothing is handed out before the whole load has succeeded.
 *
 * Tensors that are the same bytes of a file (tied weights) share their memory, on any device, and
 * are read once.  Others that overlap in their file each have their own, but where they are read
 * straight into host memory, or mapped: there they overlap, too.
 *
 * The staging memory is bounded by a Budget, whatever the checkpoint's size; a
 * load that must wait for bytes of a shared budget waits.
 *
 * Driving: a load has a thread of its own, or, with HOIST_LOAD_CALLER_DRIVEN, no
 * thread, and the caller calls hoist_load_step() until it is done.
 *
 * Maps (HOIST_IO_MAP; doc/maps.md): without POPULATE the load ends before anything is read, and
 * what fails later has no call to say so.  A page that cannot be read is SIGBUS to the thread that
 * touches it.  So is a page that its file no longer has because the file shrank, even if the page
 * was read or written before.  With POPULATE such failures are the load's, as far as they are there
 * by then.  What is written to a file in place may be seen, in parts; what replaces it by rename is
 * not.  Report: all is mapped_bytes; io_reason says which map.
 *
 * Threads: every function may be called from any thread; steps of one load must
 * not overlap.  Failures travel in the load: hoist_load_wait() gives the first
 * one, with its text in the calling thread's hoist_error().
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

enum hoist_engine {
	HOIST_ENGINE_AUTO = 0, /* io_uring, or threads where it is refused, and under Valgrind */
	HOIST_ENGINE_URING = 1,
	HOIST_ENGINE_THREADS = 2
};

enum hoist_io {
	HOIST_IO_AUTO = 0,   /* direct, but through the page cache what lies there already */
	HOIST_IO_DIRECT = 1, /* direct wherever the file system can */
	HOIST_IO_CACHED = 2, /* through the page cache */
	HOIST_IO_MAP = 3     /* host: maps of the files (options.map), read on touch.
			      * A device is never fed from a map: its bytes are read through
			      * the page cache */
};

/* What a write to a mapped buffer does. */
enum hoist_map {
	HOIST_MAP_COPY_ON_WRITE = 0, /* it is private */
	HOIST_MAP_READ_ONLY = 1,     /* buffers are read-only */
	HOIST_MAP_READ_WRITE = 2     /* it is the file's */
};

#define HOIST_LOAD_CALLER_DRIVEN 1u
#define HOIST_LOAD_POPULATE 2u   /* MAP: reads everything into the page cache and maps it in, with
				  * progress; done when the load is */
#define HOIST_LOAD_DROP_CACHE 4u /* at the end nothing of the files that were read is left in the
				  * page cache, even what was there before */
#define HOIST_LOAD_DIGEST 8u     /* computes an XXH3-128 of each tensor's bytes, as they are in the
				  * file, while they pass; see hoist_load_digest().  Not of slices, nor
				  * of maps */
#define HOIST_LOAD_VERIFY 16u    /* the same, and compares them with those that the checkpoint holds
				  * (hoist/save.h) */

/* Part of a tensor along one axis.  Not of a tensor that has strides in its file; of types smaller
 * than a byte, and of blocks, what begins and ends between two bytes or blocks. */
typedef struct hoist_load_slice {
	const char *tensor; /* a name, or a glob: of which tensors */
	int axis;           /* -rank..rank-1 */
	int rank;           /* n_ranks > 0: the rank-th of n_ranks equal parts; the extent must be a
			     * multiple of n_ranks */
	int n_ranks;
	int64_t begin;      /* else: [begin, end) of it, negative ones from its end.  Within the
			     * extent: nothing is clipped */
	int64_t end;        /* HOIST_SLICE_END: the extent */
} hoist_load_slice;

#define HOIST_SLICE_END INT64_MAX

typedef struct hoist_load_options {
	size_t size;          /* sizeof(hoist_load_options); fields beyond are defaults */
	hoist_device *device; /* where to; NULL: the CPU */
	hoist_stream *stream; /* copies are queued here; NULL: a stream of the load's own */
	enum hoist_engine engine;
	enum hoist_io io;
	hoist_budget *budget; /* NULL: HOIST_BUDGET_DEFAULT bytes of its own */
	const char *const *tensors; /* names or globs (fnmatch: * ? [...]).  NULL: all; a list
				     * of none: none.  A name that equals a tensor's is that
				     * tensor, whatever it holds */
	size_t n_tensors;
	unsigned flags;
	size_t tensor_align;  /* tensors begin at multiples of this, a power of two up to 4096; 0:
			       * 256.  Host: only converted ones and slices; others as in the file,
			       * to the page */
	const hoist_load_slice *slices; /* only these parts are read; several may name a tensor,
					 * of different axes */
	size_t n_slices;
	hoist_dtype dtype;    /* f32, f16 or bf16: tensors of these three are converted to it while
			       * they are staged; 0: none is */
	enum hoist_map map;   /* MAP */
	hoist_device *const *replicas; /* further devices that get the same bytes, each read once;
					* see hoist_load_replica() */
	size_t n_replicas;
	hoist_memory *memory; /* where the destination is allocated: memory of `device`, or, for the
			       * CPU, any that it can access; it must give blocks aligned to 4096
			       * bytes (the file system's blocks, if they are larger).  Replicas
			       * take their devices' own.  NULL: the device's own */
	size_t chunk_bytes;   /* of one read, a multiple of 4096 up to 1 GiB, or 0: chosen for the
			       * file system and the way.  Less where the budget has no room, more
			       * where the file system's blocks or a conversion need it */
	unsigned depth;       /* reads in flight on each disk, up to 4096; 0: chosen */
} hoist_load_options;

/* Starts loading.  @options NULL: everything to the CPU.
 * Returns: 0; -EINVAL (an option out of its range; a slice that its tensor does not have; DIGEST or
 *   VERIFY with slices or maps; maps with `memory`; a stream or memory of
 *   another device; a replica given twice); -ENOTSUP (maps that convert; replicas of a CPU, or of
 *   another API); -ENOENT if a pattern of options->tensors, or of a slice, matches nothing (the text
 *   names it); -ENODATA VERIFY, but the checkpoint holds no digests; -EOVERFLOW; -ENOMEM, -ENOSPC
 *   for the destination, -ENOMEM also where it is host memory and more than the control group has
 *   left, as the kernel would end the process; -ENODEV, -EREMOTEIO.  Maps: also -ENODATA a file has
 *   shrunk; READ_WRITE: -EACCES, -EROFS, -EPERM, -ETXTBSY.  What the load needs while it runs is
 *   taken when it runs. */
HOIST_API int hoist_load_start(hoist_checkpoint *checkpoint, const hoist_load_options *options,
			       hoist_load **ret);

/* CALLER_DRIVEN: does what can be done now, waiting up to @timeout_ns for it.
 * Returns: 1 done (hoist_load_wait() then does not block); 0 call again; -EINVAL
 *   if the load drives itself. */
HOIST_API int hoist_load_step(hoist_load *load, uint64_t timeout_ns);

/* Waits for the end (a caller-driven load is driven to it).
 * Returns: 0, every byte has arrived; or the first failure: -ECANCELED; -EBADMSG a
 *   file changed meanwhile, or VERIFY found a tensor damaged (the text says which); -ENODATA it shrank; -EIO and the like; -EREMOTEIO; -EDQUOT
 *   the budget is below the least that works; -ENOMEM, -EPERM memory that cannot
 *   be had or pinned, or io_uring refused where nothing else would do. */
HOIST_API int hoist_load_wait(hoist_load *load);

/* Asks the load to end soon; hoist_load_wait() then gives -ECANCELED unless it
 * had already ended, or failed.  Does not block. May be called from any thread. */
HOIST_API void hoist_load_cancel(hoist_load *load);

/* Bytes that have arrived, and bytes in all.  Any time, from any thread. */
HOIST_API void hoist_load_progress(const hoist_load *load, uint64_t *done, uint64_t *total);

/* After a successful hoist_load_wait(): how many tensors were selected, the
 * checkpoint's index of the i-th, and its buffer (a new reference).
 * Returns: 0; -EINVAL index; -ENOENT name not in the checkpoint or not selected;
 *   -EAGAIN not done yet; the load's failure; -ENOMEM. */
HOIST_API size_t hoist_load_n_tensors(const hoist_load *load);
HOIST_API int hoist_load_tensor(hoist_load *load, size_t index, size_t *ret_tensor,
				hoist_buffer **ret);
HOIST_API int hoist_load_buffer(hoist_load *load, const char *name, hoist_buffer **ret);

/* The same tensor on options.replicas[@replica].
 * Returns: as hoist_load_tensor(); -EINVAL for a replica that there is not. */
HOIST_API int hoist_load_replica(hoist_load *load, size_t replica, size_t index,
				 hoist_buffer **ret);

/* After a load with DIGEST or VERIFY: the digest of the @index-th tensor, XXH3-128 in its canonical
 * (big-endian) form, of its bytes as they are in the file.
 * Returns: 0; -EINVAL (index; neither flag was given); -EAGAIN; the load's failure. */
HOIST_API int hoist_load_digest(hoist_load *load, size_t index, unsigned char ret[16]);

typedef struct hoist_load_report {
	size_t size;             /* in: sizeof(hoist_load_report) */
	uint64_t bytes;          /* of the selected tensors in their files, tied ones once */
	uint64_t n_tensors;
	uint64_t ns;             /* from start to end */
	uint64_t cpu_ns;         /* of the whole process meanwhile, user + system */
	uint64_t direct_bytes;   /* read with O_DIRECT (alignment included) */
	uint64_t cached_bytes;   /* read through the page cache */
	uint64_t mapped_bytes;   /* mapped, not read */
	uint64_t n_reads;
	uint64_t n_copies;       /* host to device */
	size_t staging_peak_bytes;
	size_t pinned_peak_bytes; /* of the device's staging pool */
	size_t budget_bytes;
	int emulated;            /* the device is an emulated one */
	char device[32];         /* "cuda:0" */
	char engine[16];         /* "io_uring", "threads", "none" (maps) */
	char engine_reason[256]; /* why that engine */
	char io_reason[256];     /* why bytes took the way they took */
} hoist_load_report;

/* What the load did and why; complete after hoist_load_wait().
 * Returns: 0; -EINVAL for a bad size; -EAGAIN not done yet. */
HOIST_API int hoist_load_get_report(hoist_load *load, hoist_load_report *report);

/* Takes NULL.  Cancels if need be and waits; buffers that were handed out live on.  In a child of
 * fork it does nothing. */
HOIST_API void hoist_load_destroy(hoist_load *load);

HOIST_END

#endif
