/* SPDX-License-Identifier: MIT */
/* lib/checkpoint.h - what is inside an opened checkpoint.
 *
 *   files[f]     the opened file and its manifest, in order of file name
 *   tensors[t]   every tensor the checkpoint offers, in order of (file, offset)
 *   by_name[]    indices of tensors, ordered by name: names are unique
 *
 * A tensor that a shard holds but the index does not name is not offered.
 * Reference counted inside the library only: a load that is still running keeps
 * the files of a checkpoint that its owner has closed.
 */
#ifndef HOIST_LIB_CHECKPOINT_H
#define HOIST_LIB_CHECKPOINT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "format/format.h"
#include "hoist/checkpoint.h"
#include "io/file.h"

enum hoist__format { HOIST__SAFETENSORS, HOIST__MAX, HOIST__ANY_FORMAT };

struct hoist__shard {
	enum hoist__format format;
	struct hoist__file *file;
	struct hoist__manifest *manifest;
};

struct hoist__entry {
	const struct hoist__tensor *tensor;
	size_t file;
};

struct hoist_checkpoint {
	_Atomic unsigned refs;
	unsigned file_flags; /* of hoist__file_open, for files beneath a folder */
	size_t n_files;
	struct hoist__shard *files;
	size_t n_tensors;
	struct hoist__entry *tensors;
	size_t *by_name;
	size_t n_metadata;
	struct hoist__metadata *metadata; /* strings belong to index and manifests */
	struct hoist__index *index;	  /* NULL without one */
	uint64_t bytes;
};

hoist_checkpoint *hoist__checkpoint_ref(hoist_checkpoint *checkpoint);

/* Opens and parses one file of that format (ANY: it says which). */
int hoist__shard_open(int dir_fd, const char *path, const char *display, unsigned flags,
		      enum hoist__format format, struct hoist__shard *ret);
/* Fill the tables from files and index.  Returns: 0; -EBADMSG a name in two files;
 * -EOVERFLOW; -ENOMEM. */
int hoist__checkpoint_build_tensors(hoist_checkpoint *checkpoint);
int hoist__checkpoint_build_metadata(hoist_checkpoint *checkpoint);

void hoist__shard_close(struct hoist__shard *shard);

#endif
