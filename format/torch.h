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
 * from {"a": {"b": 2}}, and is then there twice.  NumPy's scalars are such numbers.  A defaultdict,
 * a Counter, an argparse.Namespace and a types.SimpleNamespace are dicts.  Other plain values are
 * passed over: None, bytes, complex numbers, numbers in lists, dtypes, devices, sizes, attributes
 * of an OrderedDict (a state dict's _metadata).
 *
 * Refused, by name: every other value.  Among them are storages of a quantised type, views that
 * conjugate or negate, sparse and meta tensors, storages, sets, and objects of a program's own classes.
 *
 * A lenient reader (struct hoist__reader) lists these values in the manifest, with the reason, and
 * reads the rest:
 *
 *   - An opaque object keeps the state that BUILD and SETITEMS would give it.  The tensors there are
 *     tensors under the object's name: {"model": MODEL} has "model.weight" where MODEL's state is
 *     {"weight": ...}.  The dicts _parameters, _buffers and _modules of a state give no part of a
 *     name, so that a module that was saved whole has the names of its state_dict(), and those of
 *     its other tensors.  The arguments of an opaque call, and other items of an opaque object, are
 *     not looked at.
 *   - A value that is in several places is listed once, where it is met first.
 *   - A state for a value that takes none, and sets among an object's attributes, are passed over
 *     without a row.
 *   - The first of several tensors of one name is read; the others are listed.
 *   - Tensors whose key is neither text nor an integer are listed.
 *   - A pickle without an archive, as torch before 1.6 wrote, is a manifest without tensors, which
 *     lists the file itself.
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

/* A file that is a pickle without an archive. */
#define HOIST__TORCH_OLD                                                                           \
	"a Python pickle, as PyTorch before 1.6 wrote its checkpoints: reading it would run its "  \
	"instructions; save it again with a newer torch.save, or as safetensors"

/* True if @bytes begin as such a pickle does. */
static inline bool hoist__torch_is_old(const unsigned char *bytes, size_t n)
{
	return n >= 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
}

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
	HOIST__TORCH_DEFAULT_DICT,
	HOIST__TORCH_COUNTER,
	HOIST__TORCH_NAMESPACE,
	HOIST__TORCH_BUILTIN, /* int, bytes and their like: a call makes a plain value */
	HOIST__TORCH_ENCODE,  /* _codecs.encode: bytes from a text */
	HOIST__TORCH_NUMPY_DTYPE,
	HOIST__TORCH_NUMPY_SCALAR,
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

/* A dtype of NumPy's.  Its state, which comes after it, has the byte order. */
struct hoist__torch_numpy_dtype {
	hoist_dtype dtype; /* HOIST_DTYPE_INVALID: text, dates, records and the like */
	bool big_endian;
};

/* A value that is neither a tensor nor plain, and why. */
struct hoist__torch_opaque {
	const char *what; /* for the reason; NULL: an object of the class (or made by the function)
			   * that is named below */
	const char *module; /* texts of the pickle, not terminated by a NUL; NULL: none */
	size_t module_bytes;
	const char *name;
	size_t name_bytes;
	const char *reason;		   /* as the manifest has it; NULL: not listed yet */
	struct hoist__pickle_object state; /* keys and values */
};

/* --- values for the instructions of the pickle ---
 *
 * Each returns: 0; -EBADMSG (malformed, or too much memory); -ENOTSUP (a machine that is not lenient
 * refuses the value); -ENOMEM. */

int hoist__torch_global(struct hoist__pickle *pickle, const char *module, size_t module_bytes,
			const char *name, size_t name_bytes, struct hoist__pickle_value *ret);
/* NEWOBJ: makes an object without calling its constructor. */
int hoist__torch_new(struct hoist__pickle *pickle, const struct hoist__pickle_value *class_value,
		     const struct hoist__pickle_value *arguments, struct hoist__pickle_value *ret);
/* BUILD: gives @to its state.  Changes the object that @to refers to. */
int hoist__torch_build(struct hoist__pickle *pickle, const struct hoist__pickle_value *to,
		       const struct hoist__pickle_value *state);
int hoist__torch_reduce(struct hoist__pickle *pickle, const struct hoist__pickle_value *callable,
			const struct hoist__pickle_value *arguments,
			struct hoist__pickle_value *ret);
int hoist__torch_persistent(struct hoist__pickle *pickle, const struct hoist__pickle_value *id,
			    struct hoist__pickle_value *ret);

extern const char hoist__torch_set[]; /* what a set is said to be */

/* Makes an opaque value that says @what.  A machine that is not lenient fails, and says the same.
 * Returns: 0; -ENOTSUP; -EBADMSG (too much memory); -ENOMEM. */
int hoist__torch_opaque(struct hoist__pickle *pickle, const char *what,
			 struct hoist__pickle_value *ret);

/* --- parts of these: torch-names.c, torch-plain.c --- */

bool hoist__torch_is(const char *text, size_t n, const char *expected);
bool hoist__torch_is_global(const struct hoist__pickle_value *value,
			    enum hoist__torch_global global);

/* Makes another opaque value, without a state, for the same reason. */
int hoist__torch_opaque_like(struct hoist__pickle *pickle,
			      const struct hoist__torch_opaque *opaque,
			      struct hoist__pickle_value *ret);

/* Makes the plain value of a call of @global, which is none of PyTorch's own.
 * Returns: as hoist__torch_reduce(). */
int hoist__torch_plain(struct hoist__pickle *pickle, enum hoist__torch_global global,
		       const struct hoist__pickle_value *arguments,
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

/* Gives the tensors, the metadata and the skipped values of @object, in the order of the file.
 * Returns: 0; -EBADMSG; -ENOTSUP; -ENOMEM; the reader's error. */
int hoist__torch_walk(struct hoist__torch_file *file, const struct hoist__pickle_value *object,
		      struct hoist__manifest **ret);

#endif
