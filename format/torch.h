/* SPDX-License-Identifier: MIT */
/* format/torch.h - PyTorch's checkpoints: torch.save since 1.6.
 *
 *   FOLDER/data.pkl      a pickle (pickle.h) of the object that was saved
 *   FOLDER/data/KEY      the bytes of storage KEY
 *   FOLDER/byteorder     "little" (2.1 and later); "big" is refused
 *   and other entries, which are ignored
 *
 * in a zip archive (zip.h) of stored entries.  The object's tensors become tensors:
 *
 *   - of dicts at any depth, named by their keys with "." between: {"model": {"w": ...}} has
 *     "model.w".  Keys are text or integers.  Lists and tuples count from 0: "list.0".
 *   - an object that is a tensor itself is called "tensor"
 *   - nn.Parameter is its tensor; requires_grad, hooks and attributes are passed over
 *   - two names of one tensor (tied weights), and views of one storage, are tensors whose bytes
 *     overlap; strides are kept.
 *
 * Texts, numbers and bools in dicts whose keys are all text become metadata under such a name, as
 * Python prints them: {"epoch": 3} is "epoch" = "3".  A name may come twice, from {"a.b": 1} and
 * from {"a": {"b": 2}}, and is then there twice.  Other values are passed over: None, numbers in
 * lists, dtypes, devices, sizes, attributes of an OrderedDict (a state dict's _metadata).
 *
 * Refused: storages of a quantized type, views that conjugate or negate, sparse tensors, and
 * every other value that is not plain, by name.
 *
 * Memory: the directory (zip.h), data.pkl (at most 100 MB) and 32 times its bytes.
 */
#ifndef HOIST_FORMAT_TORCH_H
#define HOIST_FORMAT_TORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/format.h"
#include "format/pickle.h"
#include "format/zip.h"

#define HOIST__TORCH_NAME "tensor"

/* The names that a pickle may have. */
enum hoist__torch_global {
	HOIST__TORCH_ORDERED_DICT,
	HOIST__TORCH_SIZE,
	HOIST__TORCH_DEVICE,
	HOIST__TORCH_REBUILD_V2,
	HOIST__TORCH_REBUILD_V3,
	HOIST__TORCH_REBUILD_PARAMETER,
	HOIST__TORCH_REBUILD_PARAMETER_STATE,
	HOIST__TORCH_REBUILD_TYPE,
	HOIST__TORCH_TENSOR_CLASS,  /* torch.Tensor, torch.nn.parameter.Parameter */
	HOIST__TORCH_STORAGE_CLASS, /* with a dtype */
	HOIST__TORCH_DTYPE,	    /* with a dtype */
};

struct hoist__torch_storage {
	const char *key; /* not terminated by a NUL */
	size_t key_bytes;
	uint64_t bytes;
	hoist_dtype dtype;
};

struct hoist__torch_tensor {
	const struct hoist__torch_storage *storage;
	hoist_dtype dtype;
	int rank;
	int64_t offset;	      /* in elements of dtype */
	const int64_t *shape; /* rank values each, as in the file: not checked */
	const int64_t *strides;
};

/* --- values for the instructions of the pickle --- */

int hoist__torch_global(struct hoist__pickle *pickle, const char *module, size_t module_bytes,
			const char *name, size_t name_bytes, struct hoist__pickle_value *ret);
int hoist__torch_reduce(struct hoist__pickle *pickle, const struct hoist__pickle_value *callable,
			const struct hoist__pickle_value *arguments,
			struct hoist__pickle_value *ret);
int hoist__torch_persistent(struct hoist__pickle *pickle, const struct hoist__pickle_value *id,
			    struct hoist__pickle_value *ret);

/* --- tensors from the pickle's object --- */

struct hoist__torch_file {
	struct hoist__zip zip;
	struct hoist__pickle pickle;
	const char *folder; /* with its '/', not terminated by a NUL */
	size_t folder_bytes;
};

/* Finds the bytes of @tensor, and fills all of @ret but name and shape; strides are NULL if the
 * tensor is dense.  @name is for messages.
 * Returns: 0; -EBADMSG; -ENOTSUP; the reader's error. */
int hoist__torch_place(struct hoist__torch_file *file, const struct hoist__torch_tensor *tensor,
		       const char *name, struct hoist__tensor *ret);

/* Gives the tensors and metadata of @object, in the order of the file.
 * Returns: 0; -EBADMSG; -ENOTSUP; -ENOMEM; the reader's error. */
int hoist__torch_walk(struct hoist__torch_file *file, const struct hoist__pickle_value *object,
		      struct hoist__manifest **ret);

#endif
