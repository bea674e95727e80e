/* SPDX-License-Identifier: MIT */
/* hoist/checkpoint.h - files that name tensors.
 *
 * A Checkpoint is opened by path.  What a file is, is told by its content:
 *   safetensors; its index (model.safetensors.index.json), which names its shards
 *   GGUF, versions 2 and 3; the first file of a model in several
 *     (NAME-00001-of-00005.gguf) opens all of them
 *   .npy (one tensor, "arr_0"), .npz (stored entries), and .max, as MAX writes buffers
 *   PyTorch's zip checkpoints (torch.save since 1.6), and their index
 *     (pytorch_model.bin.index.json)
 * In a folder, names say what is looked at, and the first of these that is there is
 * opened; what the others are is not asked:
 *   1. *.safetensors.index.json: the only one, or model.safetensors.index.json
 *   2. *.safetensors: model.safetensors, or else all of them, which are joined
 *   3. *.gguf: the only model, be it one file or several
 *   4. *.bin.index.json: the only one, or pytorch_model.bin.index.json
 *   5. *.npz: the only one
 *   6. *.npy: all of them, each a tensor called as its file is without .npy
 *   7. *.max: the only one
 *   8. *.pt, *.pth, *.bin: pytorch_model.bin, or else the only one
 * Files whose names begin with a dot are left out.  Files that are joined are all of one
 * format, and no two hold a tensor of one name.
 * Opening reads and checks headers only; every rule of the format is checked
 * then, so that what a checkpoint lists can be loaded.  An index may not name shards
 * outside its folder; symbolic links are followed inside it only, unless the caller
 * trusts them.
 * A file is not trusted: whatever its bytes are, opening it ends with a checkpoint or with
 * a message, in memory below 12 times the bytes of its headers (PyTorch's: 33 times those of
 * its pickle and of the archive's directory) and 1 MiB a file, the checkpoint included.
 *
 * Tensors are in the order of their files (by name) and of their bytes therein.
 *
 * Threads: immutable; any thread may read it.  One owner, hoist_checkpoint_close();
 * a Load that was started on it keeps what it needs.
 */
#ifndef HOIST_CHECKPOINT_H
#define HOIST_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/dtype.h>
#include <hoist/error.h>

HOIST_BEGIN

typedef struct hoist_checkpoint hoist_checkpoint;

/* Files in a folder may be symbolic links to anywhere, as in Hugging Face's cache,
 * whose snapshots are links to blobs elsewhere. */
#define HOIST_OPEN_FOLLOW_LINKS 1u

/* A file of any kind, as one tensor called "data", u8, of all its bytes: what a program reads in a
 * format of its own gets to a device as fast as tensors do. */
#define HOIST_OPEN_RAW 2u

/* Returns: 0; -EINVAL unknown flags, or a folder with several checkpoints (the text lists
 *   them); -EBADMSG malformed, or of no format that is known (the text names file, tensor and
 *   byte); -ENOTSUP a feature of the format that hoist does not read; -ENOENT, -EACCES and the
 *   like; -EXDEV a link that leaves the folder; -ENODATA a file that shrinks while it is opened;
 *   -EISDIR RAW, but it is a folder; -ENOMEM. */
HOIST_API int hoist_checkpoint_open(const char *path, unsigned flags, hoist_checkpoint **ret);
HOIST_API void hoist_checkpoint_close(hoist_checkpoint *checkpoint); /* takes NULL */

/* "safetensors", "gguf", "npy", "npz", "max" or "pytorch". */
HOIST_API const char *hoist_checkpoint_format(const hoist_checkpoint *checkpoint);

HOIST_API size_t hoist_checkpoint_n_files(const hoist_checkpoint *checkpoint);
HOIST_API size_t hoist_checkpoint_n_tensors(const hoist_checkpoint *checkpoint);
HOIST_API uint64_t hoist_checkpoint_bytes(const hoist_checkpoint *checkpoint); /* of all tensors */

typedef struct hoist_file_info {
	size_t size;      /* in: sizeof(hoist_file_info) */
	const char *path;
	uint64_t bytes;
} hoist_file_info;

typedef struct hoist_tensor_info {
	size_t size;      /* in: sizeof(hoist_tensor_info) */
	const char *name; /* UTF-8 */
	hoist_dtype dtype;
	int rank;
	const int64_t *shape; /* rank values */
	uint64_t bytes;
	size_t file;      /* index of its file */
	uint64_t offset;  /* from the start of that file */
	const int64_t *strides; /* rank values in elements; NULL: row-major, dense.  Else `bytes` is
				 * from the first to the last byte of the tensor in the file */
} hoist_tensor_info;

/* Fill the struct up to the size it says; pointers live as long as the checkpoint.
 * Returns: 0; -EINVAL for an index that is too large, or a size that is 0 or
 *   larger than this library knows. */
HOIST_API int hoist_checkpoint_file(const hoist_checkpoint *checkpoint, size_t index,
				    hoist_file_info *info);
HOIST_API int hoist_checkpoint_tensor(const hoist_checkpoint *checkpoint, size_t index,
				      hoist_tensor_info *info);

/* The index of the tensor called @name.  O(log n).  Returns: 0; -ENOENT. */
HOIST_API int hoist_checkpoint_find(const hoist_checkpoint *checkpoint, const char *name,
				    size_t *ret);

/* Metadata: strings the files carry beside their tensors (safetensors'
 * "__metadata__", GGUF's key-value pairs as text, the index's "metadata"), in order of
 * key.  GGUF's numbers and truth values are written as in JSON, arrays as JSON: they may be
 * long (a tokenizer's words).  What several files carry alike is listed once; where they
 * differ, all values are listed, the index's first, then in order of file. */
HOIST_API size_t hoist_checkpoint_n_metadata(const hoist_checkpoint *checkpoint);
HOIST_API int hoist_checkpoint_metadata(const hoist_checkpoint *checkpoint, size_t index,
					const char **key, const char **value);
/* The first value of @key, or NULL. */
HOIST_API const char *hoist_checkpoint_metadata_find(const hoist_checkpoint *checkpoint,
						     const char *key);

HOIST_END

#endif
