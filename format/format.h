/* SPDX-License-Identifier: MIT */
/* format/format.h - bytes <-> named tensors.
 *
 * A parser here is given the header's bytes, or a reader that fetches them, and the size of the
 * file they came from.  It never opens or maps anything, so that a fuzzer can drive it.  Nothing in
 * a file is trusted: every length, offset and count is checked against the file's size before it is
 * used, and no size of an allocation comes from the file unchecked.  The memory that parsing needs,
 * the result included, is below 12 times the header's bytes, plus 1 MiB (PyTorch: 33 times the
 * bytes of its pickle and directory, see torch.h).  tests/format/nomem.c and nomem-zip.c
 * measure the most expensive files.  For each of the fuzzer's inputs the memory is counted
 * (tests/fuzz/fuzz-support.h), and no input of up to 1 MiB may take a second.
 *
 * A failure on the content is always -EBADMSG, or -ENOTSUP if the file is sound but hoist does not
 * read it.  Its text names the file, the tensor if there is one, and the byte.  `@file` below is
 * the file's name, used in messages only.
 *
 * Threads: a parsed object is immutable; any thread may read it.
 */
#ifndef HOIST_FORMAT_FORMAT_H
#define HOIST_FORMAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hoist/dtype.h"

/* One tensor of one file.  All pointers belong to the manifest. */
struct hoist__tensor {
	const char *name; /* valid UTF-8, not empty, no NUL */
	size_t name_bytes;
	hoist_dtype dtype;
	int rank;             /* 0 .. HOIST__MAX_RANK */
	const int64_t *shape; /* NULL for rank 0 */
	const int64_t *strides; /* in elements, none negative; NULL: row-major, dense */
	uint64_t bytes;       /* from its first byte in the file to its last: for a dense tensor by
			       * shape and dtype, otherwise the span of shape and strides */
	uint64_t offset;      /* from the start of the file */
};

struct hoist__metadata {
	const char *key;
	const char *value;
};

/* A part of a file that a lenient reader left out, and the reason. */
struct hoist__skipped {
	const char *name; /* as a tensor's name; "": the whole file */
	const char *reason;
};

/* The content of one file: its tensors in the order of their bytes in the file (empty ones at the
 * place their offset gives; ties in the order of the header).  Tensors may overlap if the format
 * allows it (PyTorch's shared storages). */
struct hoist__manifest {
	size_t n_tensors;
	struct hoist__tensor *tensors;
	size_t *by_name; /* indices of tensors in the order of strcmp(); NULL without tensors */
	size_t n_metadata;
	struct hoist__metadata *metadata; /* in the header's order; GGUF's values as text, arrays
					   * as JSON */
	size_t n_skipped;
	struct hoist__skipped *skipped;   /* in the order of strcmp(): only from a lenient reader */
	uint64_t data_offset;             /* where tensor bytes begin */
	/* GGUF: the key-value block as it is in the file, so that a writer can keep the types. */
	const void *raw_metadata;
	size_t raw_metadata_bytes;
	uint64_t n_raw_metadata;
};

void hoist__manifest_destroy(struct hoist__manifest *manifest); /* takes NULL */

/* Gives the only tensor another name: if a format has no place for a name, the opener of the file
 * names the tensor.
 * Returns: 0; -EINVAL (empty, no UTF-8); -ENOMEM. */
int hoist__manifest_rename(struct hoist__manifest *manifest, const char *name, size_t name_bytes);

/* --- any format ---
 *
 * The format is told by a file's content, never by its name. */
enum hoist__format {
	HOIST__SAFETENSORS, /* byte 8 is '{' */
	HOIST__INDEX, /* of safetensors or PyTorch: JSON that names files, holds no tensors */
	HOIST__GGUF,  /* "GGUF" */
	HOIST__NPY,   /* "\x93NUMPY" */
	HOIST__NPZ,   /* a zip archive that is not PyTorch's */
	HOIST__MAX,   /* hoist__max_is() */
	HOIST__TORCH, /* a zip archive with an entry "<folder>/data.pkl" */
	HOIST__RAW,   /* any file, if its opener says so: never detected */
	HOIST__N_FORMATS
};

/* The source of a parser's bytes: it reads header and tail in pieces, and never tensors. */
struct hoist__reader {
	const char *name; /* for messages */
	uint64_t bytes;	  /* of the whole file */
	/* Reads exactly @bytes at @offset, which lie within the file.  Returns 0, or a negative
	 * errno value with its text. */
	int (*read)(void *context, uint64_t offset, void *buffer, size_t bytes);
	void *context;
	/* Parts of a PyTorch file that are neither tensors nor plain values are listed in the
	 * manifest, and the rest is read.  Such parts fail otherwise. */
	bool lenient;
};

/* "safetensors", "safetensors index", "gguf", "npy", "npz", "max", "pytorch",
 * "raw". */
const char *hoist__format_name(enum hoist__format format);

/* Tells the format.  For a lenient reader a pickle without an archive is PyTorch's, too.
 * Returns: 0; -EBADMSG (none of them: the text has the first bytes and the known formats, or the
 *   name of the other format; empty); the reader's error. */
int hoist__format_detect(const struct hoist__reader *reader, enum hoist__format *ret);

/* Parses any file but an index, which hoist__index_parse() reads.
 * Returns: 0; -EBADMSG; -ENOTSUP (a feature of the format that hoist does not read: the text names
 *   it); -ENOMEM; the reader's error. */
int hoist__format_parse(const struct hoist__reader *reader, enum hoist__format format,
			struct hoist__manifest **ret);

/* The parsers that hoist__format_parse() calls. */
int hoist__gguf_parse(const struct hoist__reader *reader, struct hoist__manifest **ret);
int hoist__npy_parse(const struct hoist__reader *reader, struct hoist__manifest **ret);
int hoist__npz_parse(const struct hoist__reader *reader, struct hoist__manifest **ret);
int hoist__torch_parse(const struct hoist__reader *reader, struct hoist__manifest **ret);

/* Gives one tensor of this name, of u8, with all bytes of the file. */
#define HOIST__RAW_NAME "data"
int hoist__raw_parse(const struct hoist__reader *reader, struct hoist__manifest **ret);

/* --- safetensors ---
 *
 *   0  u64  n, the header's bytes (little-endian); at most 100,000,000
 *   8  u8[n]  JSON object: name -> {"dtype", "shape", "data_offsets": [begin, end)},
 *             and "__metadata__" -> {string: string}; spaces may follow it
 *   8+n  tensor bytes; offsets are relative to here
 *
 * Rules (each has its own message): n within the limit and the file; valid
 * UTF-8 and JSON that begins with '{'; names unique; dtype known; extents
 * not negative, at most HOIST__MAX_RANK of them; the count and the bytes do not
 * overflow (extents of 0 counting as 1) and are whole bytes; begin <= end;
 * end - begin equals the bytes of shape and dtype; ranges in order of begin are
 * contiguous from 0 (no overlap, no hole) and end exactly at the end of the
 * file.  Keys of a tensor other than these three are passed over, and
 * "__metadata__" may be null, as in the format's own reader; a name or metadata
 * text with a NUL is refused, since no C string can hold it. */
#define HOIST__SAFETENSORS_MAX_HEADER UINT64_C(100000000)

/* Checks the first 8 bytes and gives the size of the whole header, prefix included (8 + n): the
 * bytes to read next.  @n_prefix is how many of the 8 bytes exist.
 * Returns: 0; -EBADMSG. */
int hoist__safetensors_header_bytes(const char *file, const void *prefix, size_t n_prefix,
				    uint64_t file_bytes, size_t *ret);

/* Parses a header of 8 + n bytes.
 * Returns: 0; -EBADMSG; -ENOMEM. */
int hoist__safetensors_parse(const char *file, const void *header, size_t header_bytes,
			     uint64_t file_bytes, struct hoist__manifest **ret);

/* --- .max, as MAX writes buffers ---
 *
 *   0   u8[8]  93 F0 9F 94 A5 2B 2B 93
 *   8   u32    major version, 0          12  u32  minor version, which readers ignore
 *   16  u64    bytes of the entries
 *   24  entries: u32 bytes of the key, the key, u8 dtype (MAX's value), u8 rank, u32[rank]
 *              extents, u64 offset of its bytes from the start of the file
 *       tensor bytes
 *
 * Rules: versions above 0 are refused; dtypes are known; entries end where the header does;
 * ranges lie behind the header, within the file, and do not overlap; keys are UTF-8 and
 * unique (the reader of MAX ignores them; an empty one becomes "buffer"). */
#define HOIST__MAX_FILE_PREFIX 24

/* True if the file begins with the bytes of a .max file. */
bool hoist__max_is(const void *prefix, size_t n_prefix);

/* The same as the functions for safetensors; the prefix has 24 bytes. */
int hoist__max_header_bytes(const char *file, const void *prefix, size_t n_prefix,
			    uint64_t file_bytes, size_t *ret);
int hoist__max_parse(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		     struct hoist__manifest **ret);

/* --- GGUF, versions 2 and 3, little-endian ---
 *
 *   0   u8[4]  "GGUF"                4  u32  version
 *   8   u64    number of tensors    16  u64  number of key-value pairs
 *   24  pairs:   string key, u32 type, value        (string: u64 bytes, UTF-8)
 *       tensors: string name, u32 rank, u64[rank] extents (the innermost first), u32 type, u64
 *                offset from the start of the tensor bytes
 *       zeros up to a multiple of the alignment (general.alignment; 32 without it)
 *       tensor bytes
 *
 * Rules: the header is at most HOIST__GGUF_MAX_HEADER bytes; keys and names are UTF-8 and
 * unique; there are 13 types of values; arrays are nested at most 16 deep; the alignment is a
 * u32 and a power of two; rows of quantised types are whole blocks; offsets are aligned, ranges
 * lie within the file and do not overlap (holes are the format's own).  The pair's text: an array
 * is JSON; in a string, bytes that are not UTF-8, and NUL, become U+FFFD (raw_metadata keeps them).
 *
 * A model in several files has the pairs split.no, split.count and split.tensors.count. */
#define HOIST__GGUF_MAX_HEADER UINT64_C(268435456)
#define HOIST__GGUF_ALIGNMENT 32

/* --- model.safetensors.index.json, pytorch_model.bin.index.json --- */

struct hoist__index_entry {
	const char *tensor;
	size_t file; /* index into files */
};

/* {"metadata": {...}, "weight_map": {tensor: shard file name}}.  A shard's name is relative to the
 * index's folder, and stays inside it: absolute paths, empty names and any ".." component are
 * refused here (the opener checks symbolic links).  "./a" and "b//c" become "a" and "b/c", so that
 * one file has one name. */
struct hoist__index {
	size_t n_files;
	const char **files; /* unique, in order of name */
	size_t n_entries;
	struct hoist__index_entry *entries; /* ordered by tensor name (strcmp) */
	size_t *of_file; /* entries by file: those of files[f] are entries[of_file[i]], */
	size_t *first;   /* first[f] <= i < first[f + 1], in order of name */
	size_t n_metadata;
	struct hoist__metadata *metadata; /* scalars only, numbers as text */
};

/* Returns: 0; -EBADMSG; -ENOMEM. */
int hoist__index_parse(const char *file, const void *json, size_t json_bytes,
		       struct hoist__index **ret);

/* Checks that shard @f, whose content is @manifest, holds every tensor that the index places in it.
 * named[t] becomes true for each tensor of the shard that the index names.  Further tensors in the
 * shard are no error, nor are tensors that a lenient reader left out of it.
 * Returns: 0; -EBADMSG naming index, shard and tensor. */
int hoist__index_check(const struct hoist__index *index, const char *index_file, size_t f,
		       const struct hoist__manifest *manifest, bool *named);

void hoist__index_destroy(struct hoist__index *index); /* takes NULL */

#endif
