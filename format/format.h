/* SPDX-License-Identifier: MIT */
/* format/format.h - bytes <-> named tensors.
 *
 * A parser here is given bytes and the size of the file they came from; it
 * never opens, reads or maps anything, so that a fuzzer can drive it.  Nothing
 * in a file is trusted: every length, offset and count is checked against the
 * file's size before it is used, and no allocation's size comes from the file
 * unchecked.  The memory that parsing needs, the result included, is below 8 times
 * the header's bytes (tests/format_nomem.c measures the dearest headers: 7.3 for
 * nothing but empty metadata, 4 for tensors).
 *
 * Every failure on the content is -EBADMSG and its text names the file, the
 * tensor where there is one, and the byte: `@file` below is that name, used in
 * messages only.
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
	uint64_t bytes;       /* what shape and dtype say, and what the file holds */
	uint64_t offset;      /* from the start of the file */
};

struct hoist__metadata {
	const char *key;
	const char *value;
};

/* What one file holds: its tensors in the order of their bytes in the file
 * (empty ones at the place their offset gives; ties in the order of the header). */
struct hoist__manifest {
	size_t n_tensors;
	struct hoist__tensor *tensors;
	size_t n_metadata;
	struct hoist__metadata *metadata; /* in the header's order */
	uint64_t data_offset;             /* where tensor bytes begin */
};

void hoist__manifest_destroy(struct hoist__manifest *manifest); /* takes NULL */

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

/* Checks the first 8 bytes and gives the bytes of the whole header, prefix
 * included (8 + n): what to read next.
 * Returns: 0; -EBADMSG. @n_prefix is how many of the 8 bytes exist. */
int hoist__safetensors_header_bytes(const char *file, const void *prefix, size_t n_prefix,
				    uint64_t file_bytes, size_t *ret);

/* @header holds those bytes (8 + n).
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

/* Does it begin as such a file does? */
bool hoist__max_is(const void *prefix, size_t n_prefix);

/* As the functions for safetensors; the prefix has 24 bytes. */
int hoist__max_header_bytes(const char *file, const void *prefix, size_t n_prefix,
			    uint64_t file_bytes, size_t *ret);
int hoist__max_parse(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		     struct hoist__manifest **ret);

/* --- model.safetensors.index.json --- */

struct hoist__index_entry {
	const char *tensor;
	size_t file; /* index into files */
};

/* {"metadata": {...}, "weight_map": {tensor: shard file name}}.  A shard's name
 * is relative to the index's folder and stays inside it: absolute paths, empty
 * names and any ".." component are refused here (symbolic links are the
 * opener's to check). */
struct hoist__index {
	size_t n_files;
	const char **files; /* unique, in order of name */
	size_t n_entries;
	struct hoist__index_entry *entries; /* ordered by tensor name (strcmp) */
	size_t n_metadata;
	struct hoist__metadata *metadata; /* scalars only, numbers as text */
};

/* Returns: 0; -EBADMSG; -ENOMEM. */
int hoist__index_parse(const char *file, const void *json, size_t json_bytes,
		       struct hoist__index **ret);

/* The entry of a tensor, or NULL. O(log n). */
const struct hoist__index_entry *hoist__index_find(const struct hoist__index *index,
						   const char *tensor);

/* Does shard @file_index, whose content is @manifest, hold every tensor that the
 * index says it does?  Tensors that the index does not name are no error.
 * Returns: 0; -EBADMSG naming index, shard and tensor; -ENOMEM. */
int hoist__index_check(const struct hoist__index *index, const char *index_file,
		       size_t file_index, const struct hoist__manifest *manifest);

void hoist__index_destroy(struct hoist__index *index); /* takes NULL */

#endif
