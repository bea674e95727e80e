/* SPDX-License-Identifier: MIT */
/* format/write.h - named tensors -> the bytes around them.
 *
 * Every format that is written is one header, and behind it the tensors at offsets that the header
 * tells; the bytes between them are zero:
 *
 *     0 [ header ][ tensor 0 ][ 0.. ][ tensor 1 ] ... [ 0.. ] bytes
 *
 * A writer is given the content of the file, and says where everything goes; it never opens or
 * writes anything.  The header depends only on that content.  So it can be made again with other
 * metadata values of the same lengths (digests, which are known last).
 *
 * Threads: pure functions.
 */
#ifndef HOIST_FORMAT_WRITE_H
#define HOIST_FORMAT_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include "format/format.h"

struct hoist__out_tensor {
	const char *name;
	hoist_dtype dtype;
	int rank;
	const int64_t *shape;
	uint64_t bytes;	 /* by shape and dtype: row-major, dense */
	uint64_t offset; /* out: from the start of the file */
};

/* The caller fills the first group, the writer the second. */
struct hoist__out_file {
	const char *name; /* for messages */
	size_t n_tensors;
	struct hoist__out_tensor *tensors; /* in the order that their bytes will have */
	size_t n_metadata;
	const struct hoist__metadata *metadata; /* no key twice */
	const struct hoist__manifest *like; /* GGUF: its raw metadata is kept; may be NULL */

	unsigned char *header; /* from malloc, the caller's */
	size_t header_bytes;
	uint64_t bytes; /* of the whole file */
};

/* Checks what every format requires of names: not empty, UTF-8, no two alike.
 * Returns: 0; -EINVAL naming the name; -ENOMEM. */
int hoist__out_check_names(const struct hoist__out_file *file);

/* One function for each format that can be written.
 * Returns: 0; -EINVAL (a name, dtype or rank that the format cannot express, two tensors of one
 *   name; .npy: other than one tensor; the text names it, and a format that can hold it);
 *   -EOVERFLOW; -ENOMEM. */
int hoist__safetensors_write(struct hoist__out_file *file);
int hoist__gguf_write(struct hoist__out_file *file);
int hoist__npy_write(struct hoist__out_file *file);
int hoist__max_write(struct hoist__out_file *file);

/* Gives the text of a model.safetensors.index.json from malloc: which tensor is in which file.
 * @files[f] are names without a folder; @file_of[t] is the file of tensor t.
 * Returns: 0; -ENOMEM. */
int hoist__index_write(const char *const *files, size_t n_tensors, const char *const *tensors,
		       const size_t *file_of, uint64_t total_bytes, size_t n_metadata,
		       const struct hoist__metadata *metadata, char **ret, size_t *ret_bytes);

#endif
