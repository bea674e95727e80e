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
 * What is saved: buffers on any device, of any strides (written row-major), and tensors of an opened
 * checkpoint, which are read from its files as they are needed.  All of it goes through one ring of
 * slots whose bytes a Budget bounds, whatever the size of the model.  (Two rare things need memory
 * for one tensor at a time beside it, which no budget bounds: buffers with strides whose elements are
 * less than a byte, and tensors that lie in their file with strides.)
 *
 * A file appears whole or not at all: it is written without a name (or, where the file system has no such
 * files, under a hidden one) in the same folder, with direct writes and an exact tail, synchronised,
 * renamed over the old one, and the folder is synchronised.  Until hoist_save_wait() has given 0 the
 * old file may be there, whole; once it has, the new one is, also after a loss of power.  A save that
 * fails or is cancelled leaves the old file, and nothing else; so does one that is killed, but that
 * it may leave a file named ".NAME.hoist-XXXXXX", which is of no use to anybody.  The files that a
 * checkpoint was opened of may be replaced by a save of its tensors.
 *
 * What is at the path: a file is replaced and gives the new one its mode, less the umask and the right
 * to execute; if the new one is of another group, or one of the two has an access control list (which
 * is not taken over), its group may do no more than everybody.  A symbolic link is replaced itself, as
 * mv and rsync do: what it points to, which may be a cache's blob that others use, stays.  (To replace
 * that, give realpath()'s result.)  A folder, a device or a FIFO is refused.
 *
 * Of a save of several shards, files are renamed once all are written, one after the other, the index
 * last.  Each is whole at any time; but no system call replaces several at once: who is killed, or
 * reads, between the first rename and the last finds shards of both.  Then what they replace is removed:
 * one file at the path, and the shards that the index that was replaced named, that are called
 * NAME-ddddd-of-ddddd.safetensors, and that the new index does not name; no other file is.
 *
 * One file NAME.safetensors takes the place of shards as well: as whoever opens the folder reads its
 * index first, NAME.safetensors.index.json is removed once the file is on the disk, and then such
 * shards as it named.  model.safetensors, which is what a folder without an index is read by, is
 * refused where there is an index of another name.
 *
 * Tensors that the new checkpoint lacks go with the old one.  But a save that reads a shard of what it
 * replaces, and would remove tensors of another shard that no checkpoint of the save was opened with,
 * is refused: its owner opened one file of several.
 *
 * Threads: every function may be called from any thread; adding must not overlap anything else.
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

#define HOIST_SAVE_DIGEST 1u   /* an XXH3-128 of each tensor is kept in the file (safetensors:
				* and gguf: metadata "hoist.xxh3_128", 32 hexadecimal digits a
				* tensor in the order of their bytes in that file), which
				* HOIST_LOAD_VERIFY compares */
#define HOIST_SAVE_NO_SYNC 2u  /* does not wait for the disk: after a loss of power the file may be
				* the old one, the new one, or damaged.  Where the save removes old
				* files (an index, shards that no new one replaces, the one file in
				* whose place there are shards), it waits as without this flag: new
				* files are on the disk before old ones are removed */
#define HOIST_SAVE_NO_REPLACE 4u /* fails if the file is there already */

typedef struct hoist_save_options {
	size_t size;             /* sizeof(hoist_save_options); fields beyond are defaults */
	const char *format;      /* "safetensors", "gguf", "npy", "max"; NULL: by the path's ending,
				  * else safetensors.  An ending of what is not written (.pt, .pth,
				  * .bin, .ckpt, .npz, .h5, .onnx and the like) needs a format */
	enum hoist_engine engine;
	enum hoist_io io;        /* AUTO (direct where the file system can), DIRECT or CACHED; what
				  * tensors of checkpoints are read with as well: see load.h */
	hoist_budget *budget;    /* NULL: HOIST_BUDGET_DEFAULT bytes of its own */
	uint64_t shard_bytes;    /* safetensors: most tensor bytes in one file, but that a larger tensor
				  * has one to itself; 0: one file.  If one does not hold all, files
				  * are named NAME-00001-of-0000N.safetensors and have an index,
				  * NAME.safetensors.index.json; the path is NAME.safetensors, or
				  * that of the index, which then is written in any case */
	unsigned flags;
} hoist_save_options;

/* A save to @path that holds nothing yet.  Nothing is written before it is started.
 * Returns: 0; -EINVAL (options; a format that is not written, asked for or what the path's ending
 *   stands for); -ENOMEM. */
HOIST_API int hoist_save_create(const char *path, const hoist_save_options *options,
				hoist_save **ret);

/* What is written: "safetensors", "gguf", "npy" or "max". */
HOIST_API const char *hoist_save_format(const hoist_save *save);

/* One tensor more, at the end.  A reference is taken; names are copied.
 * Returns: 0; -EINVAL (the name is empty; the save has been started; the buffer's memory is out of
 *   reach); -EBADF a closed buffer; -ENOMEM. */
HOIST_API int hoist_save_add(hoist_save *save, const char *name, hoist_buffer *buffer);
/* Tensor @index of a checkpoint; @name NULL: as it is called there. */
HOIST_API int hoist_save_add_tensor(hoist_save *save, const char *name,
				    hoist_checkpoint *checkpoint, size_t index);

/* A string beside the tensors, UTF-8; a key that is there already gets the new value.  .npy and .max
 * hold none.  Returns: 0; -EINVAL; -ENOMEM. */
HOIST_API int hoist_save_metadata(hoist_save *save, const char *key, const char *value);

/* All metadata of @checkpoint, but what is true of its files only (digests, an index's total_size).
 * From GGUF to GGUF the key-values keep their types; .npy and .max take none, without a failure.
 * To safetensors, tensors of PyTorch's files get "format" = "pt" beside the file's own keys, unless
 * that key is one of them: Hugging Face's transformers refuse metadata without it.  So do, with
 * DIGEST, those of safetensors files that have no metadata, which are taken for PyTorch's.
 * Returns: 0; -EINVAL; -ENOMEM. */
HOIST_API int hoist_save_metadata_of(hoist_save *save, hoist_checkpoint *checkpoint);

/* Starts writing: waits for the work on the buffers' streams, and takes the blocks of all files.
 * Returns: 0; -EINVAL (what the format cannot hold, with which tensor and why; two of one name);
 *   -ENOSPC, -EDQUOT they do not fit on the disk; -EFBIG; -EEXIST (NO_REPLACE; an index that would
 *   be read instead of model.safetensors; shards that would be lost); -EISDIR; -ENOENT, -EACCES and the
 *   like of the folder; -ENOTSUP a buffer's stream captures; -ENOMEM.  It may be tried again. */
HOIST_API int hoist_save_start(hoist_save *save);

/* Waits for the end.
 * Returns: 0, the files are there; or the first failure: -ECANCELED; -ENOSPC, -EDQUOT the disk is
 *   full, or the budget below the least that works (the text tells); -EIO and the like; what
 *   reading a source gave. */
HOIST_API int hoist_save_wait(hoist_save *save);
HOIST_API void hoist_save_cancel(hoist_save *save);
/* Bytes written, and bytes in all. */
HOIST_API void hoist_save_progress(const hoist_save *save, uint64_t *done, uint64_t *total);

typedef struct hoist_save_report {
	size_t size;      /* in: sizeof(hoist_save_report) */
	uint64_t bytes;   /* of all files */
	uint64_t n_tensors;
	uint64_t n_files; /* without the index */
	uint64_t ns;
	uint64_t cpu_ns;
	uint64_t sync_ns; /* of ns: from the last write on, until the disk has it all */
	uint64_t direct_bytes;
	uint64_t cached_bytes;
	size_t staging_peak_bytes;
	size_t budget_bytes;
	char engine[16];
	char engine_reason[256];
	char io_reason[256];
} hoist_save_report;

/* Returns: 0; -EINVAL for a bad size; -EAGAIN not done yet. */
HOIST_API int hoist_save_get_report(hoist_save *save, hoist_save_report *report);

/* Takes NULL.  Cancels if need be and waits. */
HOIST_API void hoist_save_destroy(hoist_save *save);

HOIST_END

#endif
