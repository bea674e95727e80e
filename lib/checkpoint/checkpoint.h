/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint.h - what is inside an opened checkpoint.
 *
 *   files[f]     the opened file and its manifest, in order of file name
 *   tensors[t]   every tensor the checkpoint offers, in order of (file, offset); those of one
 *                PyTorch file may overlap
 *   by_name[]    indices of tensors, ordered by name: names are unique
 *
 * A tensor that a shard holds but the index does not name is not offered.
 * Reference counted inside the library only: a load that is still running keeps
 * the files of a checkpoint that its owner has closed.
 */
#ifndef HOIST_LIB_CHECKPOINT_CHECKPOINT_H
#define HOIST_LIB_CHECKPOINT_CHECKPOINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "format/format.h"
#include "hoist/checkpoint.h"
#include "io/file.h"

/* Found by content. */
#define HOIST__ANY_FORMAT HOIST__N_FORMATS

struct hoist__checkpoint_file {
	enum hoist__format format;
	struct hoist__file *file;
	struct hoist__manifest *manifest;
	bool *named; /* which of its tensors the index names; NULL: there is no index */
};

struct hoist__checkpoint_tensor {
	const struct hoist__tensor *tensor;
	size_t file;
};

struct hoist_checkpoint {
	_Atomic unsigned refs;
	unsigned file_flags; /* of hoist__file_open, for files beneath a folder */
	size_t n_files;
	struct hoist__checkpoint_file *files;
	size_t n_tensors;
	struct hoist__checkpoint_tensor *tensors;
	size_t *by_name;
	size_t n_metadata;
	struct hoist__metadata *metadata; /* strings belong to index and manifests */
	struct hoist__index *index;	  /* NULL without one */
	uint64_t bytes;
};

hoist_checkpoint *hoist__checkpoint_ref(hoist_checkpoint *checkpoint);

/* Opens and parses one file of that format (ANY: the shard says which; an index is none). */
int hoist__checkpoint_file_open(int dir_fd, const char *path, const char *display, unsigned flags,
				enum hoist__format format, struct hoist__checkpoint_file *ret);
void hoist__checkpoint_file_close(struct hoist__checkpoint_file *shard);

/* Its bytes for a parser, while @file is open. */
struct hoist__reader hoist__checkpoint_file_reader(struct hoist__file *file);

/* "<folder>/<name>" from malloc, for messages; NULL without memory (the text is set). */
char *hoist__join_path(const char *folder, const char *name);

/* Calls @each for each name in the folder @path of @dir_fd, called @display in messages, until one
 * fails.  Returns: 0; what @each did; what the system says. */
int hoist__folder_list(int dir_fd, const char *path, const char *display,
		       int (*each)(void *context, const char *name), void *context);

/* --- parts of opening; @folder is @dir_fd's path, for messages --- */

/* Opens further files, found by content; all of a checkpoint must be of one format. */
int hoist__checkpoint_add(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
			  const char *const *names, size_t n);
/* An index, and the files that it names. */
int hoist__checkpoint_add_index(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
				const struct hoist__file *file);
/* What the folder has; see include/hoist/checkpoint.h. */
int hoist__checkpoint_add_folder(hoist_checkpoint *checkpoint, int dir_fd, const char *folder);

/* The number of the part that is called so, from 1, and of how many; 0: the name is no part's. */
unsigned hoist__gguf_name(const char *name, unsigned *count);
/* Is it the first of several files? */
bool hoist__gguf_is_first(const struct hoist__checkpoint_file *shard);
/* Opens the others beside files[0], which @folder calls @name.
 * Returns: 0; -EINVAL another name; -EBADMSG they do not belong together; as opening. */
int hoist__gguf_add_parts(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
			  const char *name);

/* Fill the tables from files and index.  Returns: 0; -EBADMSG a name in two files;
 * -EOVERFLOW; -ENOMEM. */
int hoist__checkpoint_build_tensors(hoist_checkpoint *checkpoint);
int hoist__checkpoint_build_metadata(hoist_checkpoint *checkpoint);

#endif
