/* SPDX-License-Identifier: MIT */
/* hoist/save.h - one asynchronous save: buffers, or tensors of a checkpoint, to files.
 *
 *     hoist_save_options o = {.size = sizeof o};
 *     hoist_save_create("model.safetensors", &o, &save);
 *     hoist_save_add(save, "lm_head.weight", buffer);
 *     hoist_save_start(save);
 *     hoist_save_wait(save);                       // 0, or why it failed
 *     hoist_save_destroy(save);
 *
 * Sources: buffers on any device and of any strides (written row-major), and tensors of an opened
 * checkpoint, which are read from its files as they are needed.  Bytes go through one set of
 * staging slots, which grows as long as the disk has less to write than it can take.  A Budget
 * bounds the slots, whatever the size of the model.
 *
 * Tensors of a checkpoint that are converted or sliced on their way (hoist_save_add_tensor_as())
 * need memory beside the slots, which then are a quarter of the budget: less than the rest of the
 * budget (and 2 MiB at least), for a part of the tensors at a time.  One row of a tensor (an index
 * of its first axis) is never divided.  The budget is not charged with that memory, which is the
 * CPU's own resource's, 32 MiB at a time.  Two rare sources need memory for one tensor at a time,
 * which no budget bounds: buffers with strides whose elements are less than a byte, and tensors
 * that lie in their file with strides.
 *
 * Pageable host buffers (not pinned ones) without strides that follow each other in memory as they
 * were added, 256 KiB or more together, are written straight from their memory, without a slot and
 * without a copy.  Direct writes need memory and file to be aligned alike, by the disk's measure
 * (statx, dio_mem_align: 4 bytes for NVMe, 512 for many others); buffers that are not go through
 * slots.  In a safetensors file with 1 MiB of tensors or more the first tensor begins at a multiple
 * of 4096, and the others follow without gaps.  So all tensors of such a file that hoist wrote are
 * aligned alike if they were loaded to the host whole, without SPLIT and without another dtype, and
 * are saved in the order of that file.  Equal tensors make equal files, wherever they lie.
 *
 * A file appears whole or not at all.  hoist writes the file without a name in the same folder (or
 * under a hidden name, where the file system has no files without a name), with direct writes and
 * an exact tail; synchronises it; renames it over the old file; and synchronises the folder.  Until
 * hoist_save_wait() has given 0 the old file may be at the path, whole.  Afterwards the new file
 * is, also after a loss of power.  A save that fails or is cancelled leaves the old file and no
 * other.  So does a save whose process is killed, but such a save may leave a file named
 * ".NAME.hoist-XXXXXX", which has no use.  A save may replace the files that its tensors'
 * checkpoint was opened from.
 *
 * At the path: a file is replaced.  The new file gets the old one's mode, less the umask and the
 * right to execute.  If the new file is of another group, or one of the two files has an access
 * control list (which is not copied), the new file's group gets no more rights than everybody.  A
 * symbolic link is replaced itself, as mv and rsync do; the file that it points to, which may be a
 * cache's blob that others use, stays.  (To replace that file, give realpath()'s result.)  A
 * folder, a device or a FIFO is refused.
 *
 * Several shards: once all files are written they are renamed one after the other, the index last.
 * Each file is whole at any time.  But no system call replaces several files at once: if the
 * process is killed, or somebody reads, between the first rename and the last, there are shards of
 * both checkpoints.  Afterwards the save removes the files that it replaces: one file at the path,
 * and the shards that the replaced index named, that are called NAME-ddddd-of-ddddd.safetensors,
 * and that the new index does not name.  It removes no other file.
 *
 * One file NAME.safetensors also takes the place of shards.  A reader of the folder looks at the
 * index first, so NAME.safetensors.index.json is removed once the file is on the disk, and then the
 * shards that it named, as above.  model.safetensors, by which a folder without an index is read,
 * is refused if the folder has an index of another name.
 *
 * Tensors that the new checkpoint lacks go with the old one.  One such save is refused: a save that
 * reads a shard of the checkpoint that it replaces, and would remove tensors of another shard that
 * no checkpoint of the save was opened with.  Its caller opened one file of several.
 *
 * Threads: every function may be called from any thread; adding must not overlap any other call.
 * Buffers must not be written to until the save has ended.
 */
#ifndef HOIST_SAVE_H
#define HOIST_SAVE_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/budget.h>
#include <hoist/buffer.h>
#include <hoist/checkpoint.h>
#include <hoist/error.h>
#include <hoist/load.h>

HOIST_BEGIN

typedef struct hoist_save hoist_save;

/* --- options --- */

#define HOIST_SAVE_DIGEST 1u   /* keeps an XXH3-128 of each tensor in the file, which
				* HOIST_LOAD_VERIFY compares and hoist_checkpoint_digest() gives.
				* safetensors and gguf only: metadata "hoist.xxh3_128", 32
				* hexadecimal digits for each tensor in the order of the tensors'
				* bytes in that file */
#define HOIST_SAVE_NO_SYNC 2u  /* does not wait for the disk: after a loss of power the file may be
				* the old one, the new one, or damaged.  A save that removes old
				* files (an index, shards that no new one replaces, the one file
				* that shards replace) waits as without this flag: new files are on
				* the disk before old ones are removed */
#define HOIST_SAVE_NO_REPLACE 4u /* fails if the file exists already */

typedef struct hoist_save_options {
	size_t size;             /* sizeof(hoist_save_options) */
	const char *format;      /* "safetensors", "gguf", "npy", "max"; NULL: by the path's ending,
				  * else safetensors.  An ending of a format that hoist does not
				  * write (.pt, .pth, .bin, .ckpt, .npz, .h5, .onnx and the like)
				  * needs a format here */
	enum hoist_engine engine;
	enum hoist_io io;        /* AUTO (direct where the file system supports it), DIRECT or
				  * CACHED; tensors of checkpoints are read in this way, too: see
				  * hoist/load.h */
	hoist_budget *budget;    /* NULL: a budget of the save's own, HOIST_BUDGET_DEFAULT bytes */
	uint64_t shard_bytes;    /* safetensors: the most tensor bytes in one file; a larger tensor
				  * has a file to itself; 0: one file.  If one file does not hold
				  * all tensors, files are named NAME-00001-of-0000N.safetensors and
				  * have an index, NAME.safetensors.index.json.  The path is
				  * NAME.safetensors, or that of the index, which then is written in
				  * any case */
	unsigned flags;
} hoist_save_options;

/* --- filling a save --- */

/* A new save to @path, without tensors.  hoist writes nothing before hoist_save_start().
 * Returns: 0; -EINVAL (options; the format, or the format that the path's ending stands for, is not
 *   one that hoist writes); -ENOMEM. */
HOIST_API int hoist_save_create(const char *path, const hoist_save_options *options,
				hoist_save **ret);

/* The format of the files: "safetensors", "gguf", "npy" or "max". */
HOIST_API const char *hoist_save_format(const hoist_save *save);

/* Adds @buffer at the end, as the tensor called @name.  The save takes a reference to the buffer,
 * and copies the name.
 * Returns: 0; -EINVAL (the name is empty; the save has been started; neither the CPU nor a device
 *   reaches the buffer's memory); -EBADF (a closed buffer); -ENOMEM. */
HOIST_API int hoist_save_add(hoist_save *save, const char *name, hoist_buffer *buffer);

/* Adds tensor @index of a checkpoint at the end; @name NULL: under the name that the tensor has
 * there.
 * Returns: 0; -EINVAL (the name is empty; @index is too large; the save has been started);
 *   -ENOMEM. */
HOIST_API int hoist_save_add_tensor(hoist_save *save, const char *name,
				    hoist_checkpoint *checkpoint, size_t index);

/* How a tensor of a checkpoint is saved, where that is not as it lies in the file.  A field that is
 * 0 changes nothing. */
typedef struct hoist_save_tensor {
	size_t size;             /* sizeof(hoist_save_tensor) */
	const char *name;        /* NULL: the name that the tensor has in the checkpoint */
	hoist_dtype dtype;       /* f32, f16 or bf16: a tensor of one of these is converted, rounded to
				  * nearest; so is one of GGUF's quantised dtypes q4_0, q4_1, q5_0,
				  * q5_1, q8_0, q2_k to q6_k, iq4_nl, iq4_xs and mxfp4, by way of
				  * f32; a tensor of another dtype that is not quantised keeps that */
	const hoist_load_slice *slices; /* the part of the tensor to save, each on another axis.  Their
					 * field `tensor` is not read */
	size_t n_slices;
} hoist_save_tensor;

/* Adds tensor @index of a checkpoint at the end, as @as says; NULL: as it is.  A tensor may be added
 * several times, in parts.
 * Returns: as hoist_save_add_tensor(); -EINVAL (as->dtype is another one; a slice is not within its
 *   axis, divides a byte or a block, or shares its axis with another; slices of a tensor that has
 *   strides in its file); -ENOTSUP (as->dtype, and the tensor has another quantised dtype). */
HOIST_API int hoist_save_add_tensor_as(hoist_save *save, hoist_checkpoint *checkpoint,
				       size_t index, const hoist_save_tensor *as);

/* Adds a string beside the tensors, UTF-8.  A key that was added before gets the new value.
 * Returns: 0; -EINVAL (no key or no value; not UTF-8; the key that DIGEST uses; .npy and .max,
 *   which have no metadata; the save has been started); -ENOMEM. */
HOIST_API int hoist_save_metadata(hoist_save *save, const char *key, const char *value);

/* Adds all metadata of @checkpoint, except entries that are true of its files only (digests, an
 * index's total_size).  From GGUF to GGUF the key-values keep their types.  .npy and .max drop
 * metadata without a failure.
 *
 * Hugging Face's transformers refuse safetensors metadata without "format".  So a save to
 * safetensors adds "format" = "pt" to the metadata of PyTorch's files, unless they have that key.
 * With DIGEST it does the same for safetensors files that have no metadata: these are taken for
 * PyTorch's.
 * Returns: 0; -EINVAL; -ENOMEM. */
HOIST_API int hoist_save_metadata_of(hoist_save *save, hoist_checkpoint *checkpoint);

/* --- running a save --- */

/* Starts writing: waits for the work on the buffers' streams, and reserves the disk blocks of all
 * files.  After a failure the call may be tried again.
 * Returns: 0; -EINVAL (the format cannot hold a tensor: the text has the tensor and the reason; two
 *   tensors of one name); -ENOSPC, -EDQUOT (the files do not fit on the disk); -EFBIG; -EEXIST (the
 *   file exists and NO_REPLACE is set; an index exists that would be read instead of
 *   model.safetensors; shards would be lost); -EISDIR; -ENOENT, -EACCES and the like (the folder);
 *   -ENOTSUP (a buffer's stream captures a graph); -ENOMEM. */
HOIST_API int hoist_save_start(hoist_save *save);

/* Waits for the end.
 * Returns: 0, the files are at their paths; or the first failure: -ECANCELED; -ENOSPC (the disk is
 *   full); -EDQUOT (the disk quota is used up, or the budget is below the least that works: the
 *   text says which); -EIO and the like; the failure of reading a source. */
HOIST_API int hoist_save_wait(hoist_save *save);

/* The same, for @timeout_ns nanoseconds at most.
 * Returns: as hoist_save_wait(); -ETIMEDOUT (the save has not ended yet, and goes on). */
HOIST_API int hoist_save_wait_for(hoist_save *save, uint64_t timeout_ns);

/* A descriptor for poll() and the like: it is readable once the save is done and hoist_save_wait()
 * does not block.  The descriptor is the save's: the caller must not read or close it.
 * Returns: the descriptor; -EINVAL (the save has not been started); -EMFILE, -ENFILE, -ENOMEM;
 *   -ESTALE (a child of fork). */
HOIST_API int hoist_save_fd(hoist_save *save);

/* Asks the save to end soon.  hoist_save_wait() then gives -ECANCELED, unless the save had already
 * ended or failed.  Does not block. */
HOIST_API void hoist_save_cancel(hoist_save *save);

/* Bytes written, and bytes in all.  May be called at any time. */
HOIST_API void hoist_save_progress(const hoist_save *save, uint64_t *done, uint64_t *total);

/* --- report and end --- */

typedef struct hoist_save_report {
	size_t size;      /* in: sizeof(hoist_save_report) */
	uint64_t bytes;   /* of all files */
	uint64_t n_tensors;
	uint64_t n_files; /* without the index */
	uint64_t ns;      /* from start to end */
	uint64_t cpu_ns;  /* of the whole process in that time, user + system */
	uint64_t sync_ns; /* of ns: from the last write until the disk has all bytes */
	uint64_t direct_bytes; /* written with O_DIRECT */
	uint64_t cached_bytes; /* written through the page cache */
	size_t staging_peak_bytes;
	size_t budget_bytes; /* the budget's limit */
	char engine[16];  /* "io_uring", "threads" */
	char engine_reason[256]; /* why hoist chose that engine */
	char io_reason[256]; /* why bytes were written that way */
	uint64_t straight_bytes; /* of direct_bytes and cached_bytes: written from the memory of the
				  * buffers that were added, without a copy */
} hoist_save_report;

/* Fills @report up to report->size with the facts of a save that is done.
 * Returns: 0; -EINVAL (report->size is 0 or larger than this library knows); -EAGAIN (the save is
 *   not done). */
HOIST_API int hoist_save_get_report(hoist_save *save, hoist_save_report *report);

/* Takes NULL.  Cancels the save if it still runs, and waits for its end.  In a child of fork the
 * call does nothing. */
HOIST_API void hoist_save_destroy(hoist_save *save);

HOIST_END

#endif
