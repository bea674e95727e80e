/* SPDX-License-Identifier: MIT */
/* hoist/checkpoint.h - files that name tensors.
 *
 *     hoist_checkpoint *model;
 *     size_t index;
 *     hoist_tensor_info info = {.size = sizeof info};
 *     hoist_checkpoint_open("model/", 0, &model);
 *     hoist_checkpoint_find(model, "lm_head.weight", &index);
 *     hoist_checkpoint_tensor(model, index, &info);
 *     printf("%s: %llu bytes\n", info.name, (unsigned long long)info.bytes);
 *     hoist_checkpoint_close(model);
 *
 * A Checkpoint is one file, or several that belong together, opened by path.  The content of a file
 * says its format:
 *
 *   safetensors, and its index (model.safetensors.index.json), which names shards
 *   GGUF, versions 2 and 3; the first file of a model in several (NAME-00001-of-00005.gguf) opens
 *     all of them
 *   .npy (one tensor, "arr_0"), .npz (stored entries), and .max, as MAX writes buffers
 *   PyTorch's zip checkpoints (torch.save since 1.6), and their index
 *   (pytorch_model.bin.index.json)
 *
 * In a folder, names say which files belong to the checkpoint.  The first line of this list for
 * which there is a file counts, and the others are not examined:
 *
 *   1. *.safetensors.index.json: the only one, or model.safetensors.index.json
 *   2. *.safetensors: model.safetensors, or else all of them, which are joined
 *   3. *.gguf: the only model, be it one file or several
 *   4. *.bin.index.json: the only one, or pytorch_model.bin.index.json
 *   5. *.npz: the only one
 *   6. *.npy: all of them; each is a tensor with the file's name without .npy
 *   7. *.max: the only one
 *   8. *.pt, *.pth, *.bin: pytorch_model.bin, or else the only one
 *
 * Files whose names begin with a dot are left out.  Files that are joined must all be of one
 * format, and no two may hold a tensor of the same name.
 *
 * Opening reads headers only, and checks every rule of the format: all tensors that a checkpoint
 * lists can be loaded.  An index must not name shards outside its folder.  Symbolic links are
 * followed inside the folder only, unless the caller trusts them (HOIST_OPEN_FOLLOW_LINKS).  One
 * kind needs no such trust: a link directly in the folder that is opened, in
 * models--NAME/snapshots/REVISION, as Hugging Face's cache has
 * them, to a regular file directly in models--NAME/blobs, of the process's user or root.
 *
 * Files are not trusted: opening ends with a checkpoint or with an error, whatever bytes the files
 * have.  Opening and the checkpoint together take less memory than 12 times the bytes of the
 * headers (PyTorch: 33 times the bytes of the pickle and of the archive's directory) and 1 MiB for
 * each file.
 *
 * Tensors are ordered by the names of their files, and within a file by their bytes.
 *
 * Threads: a checkpoint is immutable; any thread may read it.  Its one owner calls
 * hoist_checkpoint_close().  A Load that was started on it keeps the parts that it needs.
 */
#ifndef HOIST_CHECKPOINT_H
#define HOIST_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/dtype.h>
#include <hoist/error.h>

HOIST_BEGIN

typedef struct hoist_checkpoint hoist_checkpoint;

/* --- opening --- */

/* Files in a folder may be symbolic links to any place. */
#define HOIST_OPEN_FOLLOW_LINKS 1u

/* Opens a file of any kind as one tensor of u8, called "data", with all bytes of the file.  So a
 * file in a program's own format gets to a device as fast as tensors do. */
#define HOIST_OPEN_RAW 2u

/* Leaves out the values of a PyTorch file that hoist cannot read: sets, objects of a program's
 * classes, sparse, meta, quantised and nested tensors, views that conjugate or negate, all but the
 * first of several tensors of one name, tensors whose key is no name, and whole files of PyTorch
 * before 1.6.  Tensors and plain values are read.  hoist_checkpoint_skipped() lists these with the reasons.  The tensors in the state of
 * an object are read: a module that was saved whole has at least the tensors of its state_dict(),
 * under those names.  No code is executed.  Without this flag each of these is -ENOTSUP or -EBADMSG.  Files of
 * other formats are opened as without the flag. */
#define HOIST_OPEN_SKIP_UNSUPPORTED 4u

/* Opens the checkpoint at @path, a file or a folder.
 * Returns: 0; -EINVAL (unknown flags; a folder with several checkpoints: the text lists them);
 *   -EBADMSG (malformed, or of no known format: the text names file, tensor and byte); -ENOTSUP (a
 *   feature of the format that hoist does not read); -ENOENT, -EACCES and the like; -EXDEV (a link
 *   that leaves the folder); -ENODATA (a file shrinks while it is opened); -EISDIR (RAW with a
 *   folder); -ENOMEM. */
HOIST_API int hoist_checkpoint_open(const char *path, unsigned flags, hoist_checkpoint **ret);
HOIST_API void hoist_checkpoint_close(hoist_checkpoint *checkpoint); /* takes NULL */

/* --- files and tensors --- */

/* The format: "safetensors", "gguf", "npy", "npz", "max" or "pytorch".  A constant. */
HOIST_API const char *hoist_checkpoint_format(const hoist_checkpoint *checkpoint);

/* The number of files. */
HOIST_API size_t hoist_checkpoint_n_files(const hoist_checkpoint *checkpoint);
/* The number of tensors. */
HOIST_API size_t hoist_checkpoint_n_tensors(const hoist_checkpoint *checkpoint);
/* The bytes of all tensors together. */
HOIST_API uint64_t hoist_checkpoint_bytes(const hoist_checkpoint *checkpoint);

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
	size_t file;      /* index of the tensor's file */
	uint64_t offset;  /* bytes from the start of that file */
	const int64_t *strides; /* rank values in elements; NULL: row-major and dense.  With
				 * strides, `bytes` counts from the first to the last byte of the
				 * tensor in the file */
} hoist_tensor_info;

/* Fills @info up to info->size with file @index.  Pointers live as long as the checkpoint.
 * Returns: 0; -EINVAL (@index is too large; info->size is 0 or larger than this library knows). */
HOIST_API int hoist_checkpoint_file(const hoist_checkpoint *checkpoint, size_t index,
				    hoist_file_info *info);

/* Fills @info up to info->size with tensor @index.  Pointers live as long as the checkpoint.
 * Returns: as hoist_checkpoint_file(). */
HOIST_API int hoist_checkpoint_tensor(const hoist_checkpoint *checkpoint, size_t index,
				      hoist_tensor_info *info);

/* The index of the tensor called @name, found in O(log n) steps.
 * Returns: 0; -ENOENT (no tensor has that name). */
HOIST_API int hoist_checkpoint_find(const hoist_checkpoint *checkpoint, const char *name,
				    size_t *ret);

/* --- skipped values: HOIST_OPEN_SKIP_UNSUPPORTED --- */

typedef struct hoist_skipped_info {
	size_t size;        /* in: sizeof(hoist_skipped_info) */
	const char *name;   /* UTF-8: keys with "." between them, as tensors have; "object": all that
			     * the file holds is one such value; "": the whole file */
	const char *reason; /* a phrase for people: why it was left out, and what helps */
	size_t file;        /* index of the file */
} hoist_skipped_info;

/* The number of values that were left out. */
HOIST_API size_t hoist_checkpoint_n_skipped(const hoist_checkpoint *checkpoint);

/* Fills @info up to info->size with value @index of these, in the order of the files and then of the
 * names.  Pointers live as long as the checkpoint.
 * Returns: as hoist_checkpoint_file(). */
HOIST_API int hoist_checkpoint_skipped(const hoist_checkpoint *checkpoint, size_t index,
				       hoist_skipped_info *info);

/* --- digests --- */

/* Gives the digest that the checkpoint holds of tensor @index (HOIST_SAVE_DIGEST in hoist/save.h),
 * or that is kept beside the tensor's file: the XXH3-128, in its canonical form, of the tensor's
 * bytes when the file was written, or when the digests were kept.  Reads no byte of the tensor, and
 * compares nothing: HOIST_LOAD_VERIFY in hoist/load.h does.
 * Returns: 0; -EINVAL (@index is too large); -ENODATA (the tensor's file holds no digests, or not
 *   one for each of its tensors, and none are kept; or those that are kept are older than the file's
 *   last change). */
HOIST_API int hoist_checkpoint_digest(const hoist_checkpoint *checkpoint, size_t index,
				      unsigned char ret[16]);

/* Keeps digests beside the files that hold none: NAME.xxh3 beside NAME, a text, which opening finds.
 * A program may keep digests of files that another program wrote, so that later loads are verified,
 * and refits (hoist.torch.load_into(changed_only=True)) read only changed tensors.
 *
 * @digests: of all tensors, in their order, as a load with HOIST_LOAD_DIGEST gives them; they are not
 * compared with the files.  Kept digests count as long as the file has the same tensors, size, mtime
 * and ctime: not for a copy of both files.  A write through a shared map (mmap(2)) may change none of
 * these for some time, so the file must not be mapped for writing.  @checkpoint itself stays as it
 * is: checkpoints that are opened afterwards have the digests.  A NAME.xxh3 that is there is
 * replaced, whole or not at all.  The call waits until the digests are on the disk.
 * Returns: 0; -EINVAL (@n_digests is not the number of tensors); -ENOTSUP (an index does not name all
 *   tensors of a file; HOIST_OPEN_RAW; a file's ctime lies in the future); -EBADMSG (a file has
 *   changed since it was opened, or its path leads to another file); -ENOENT (the path leads to
 *   none); -EACCES, -EROFS, -ENOSPC, -EIO and the like; -ENOMEM.  After a failure some files may have
 *   new digests. */
HOIST_API int hoist_checkpoint_keep_digests(const hoist_checkpoint *checkpoint, size_t n_digests,
					    const unsigned char (*digests)[16]);

/* --- metadata --- */

/* Metadata are the strings that files carry beside their tensors: safetensors' "__metadata__",
 * GGUF's key-value pairs as text, PyTorch's texts, numbers and bools as Python prints them, the
 * index's "metadata".  They are ordered by key.  GGUF's numbers, truth values and arrays are written as JSON; arrays may be long (a tokenizer's words).
 * A value that several files have is listed once.  Where the values of a key differ, all are
 * listed: the index's first, then in the order of the files.  Strings live as long as the
 * checkpoint.
 * Returns: the number of pairs. */
HOIST_API size_t hoist_checkpoint_n_metadata(const hoist_checkpoint *checkpoint);

/* Pair @index of the metadata.  Strings live as long as the checkpoint.
 * Returns: 0; -EINVAL (@index is too large). */
HOIST_API int hoist_checkpoint_metadata(const hoist_checkpoint *checkpoint, size_t index,
					const char **key, const char **value);
/* The first value of @key; NULL if there is none. */
HOIST_API const char *hoist_checkpoint_metadata_find(const hoist_checkpoint *checkpoint,
						     const char *key);

HOIST_END

#endif
