/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint.h - the inside of an opened checkpoint.
 *
 *   files[f]     the opened file and its manifest, in order of file name
 *   tensors[t]   every tensor the checkpoint offers, in order of (file, offset); those of one
 *                PyTorch file may overlap
 *   by_name[]    indices of tensors, ordered by name: names are unique
 *
 * A tensor that a shard holds but the index does not name is not offered.  References are counted
 * only inside the library: a load that is still running keeps the files of a checkpoint that its
 * owner has closed.
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

/* The content tells the format. */
#define HOIST__ANY_FORMAT HOIST__N_FORMATS

/* Words of the identity of a checkpoint: hoist__checkpoint_identify(). */
#define HOIST__CHECKPOINT_IDENTITY 4u

/* All flags of hoist_checkpoint_open(). */
#define HOIST__OPEN_FLAGS (HOIST_OPEN_FOLLOW_LINKS | HOIST_OPEN_RAW | HOIST_OPEN_SKIP_UNSUPPORTED)

struct hoist__checkpoint_file {
	enum hoist__format format;
	struct hoist__file *file;
	struct hoist__manifest *manifest;
	bool *named;	     /* the tensors that the index names; NULL: there is no index */
	const char *digests; /* hexadecimal digits, as format/digest.h says, of the manifest or
			      * kept; NULL: there are none, or not those of each tensor */
	char *kept;	     /* those beside the file, from malloc; NULL: none */
	bool kept_is_old;    /* there are digests beside the file, of another content */
};

struct hoist__checkpoint_tensor {
	const struct hoist__tensor *tensor;
	size_t file;
};

struct hoist_checkpoint {
	_Atomic unsigned refs;
	unsigned file_flags; /* of hoist__file_open(), for files beneath a folder */
	bool lenient;	     /* HOIST_OPEN_SKIP_UNSUPPORTED */
	size_t n_absent; /* files that are on other machines (absent.h): only a load of the group
			  * gets their bytes */
	bool shown;	 /* a member of a group has shown the checkpoint, with this identity: */
	uint64_t identity[HOIST__CHECKPOINT_IDENTITY];
	bool none_kept; /* no file directly in the folder has digests beside it */
	size_t n_files;
	struct hoist__checkpoint_file *files;
	size_t n_tensors;
	struct hoist__checkpoint_tensor *tensors;
	size_t *by_name;
	size_t n_metadata;
	struct hoist__metadata *metadata; /* the strings belong to the index and the manifests */
	struct hoist__index *index;	  /* NULL: there is none */
	uint64_t bytes;
	uint64_t open_ns; /* the time that opening it took */
};

hoist_checkpoint *hoist__checkpoint_ref(hoist_checkpoint *checkpoint);

/* Opens and parses one file of @format.  HOIST__ANY_FORMAT: the shard tells the format; an index is
 * refused.  @lenient: see struct hoist__reader. */
int hoist__checkpoint_file_open(int dir_fd, const char *path, const char *display, unsigned flags,
				enum hoist__format format, bool lenient,
				struct hoist__checkpoint_file *ret);
void hoist__checkpoint_file_close(struct hoist__checkpoint_file *shard);

/* Gives the digits of the digest of @tensor, which is one of the file's manifest.
 * Returns: 0; -ENODATA (the file holds no digests, or not one for each tensor). */
int hoist__checkpoint_file_digest(const struct hoist__checkpoint_file *shard,
				  const struct hoist__tensor *tensor, const char **ret);

/* True if the manifest itself has digests, be they right or wrong. */
bool hoist__checkpoint_holds_digests(const struct hoist__checkpoint_file *shard);

/* The ending of the names of files with digests. */
#define HOIST__KEPT_ENDING ".xxh3"

/* Finds the digests that hoist_checkpoint_keep_digests() wrote beside the file @path of @dir_fd,
 * which was opened with @flags and holds none itself.  Sets @shard's kept; or kept_is_old, if the
 * digests there are broken or of another content.  A NAME.xxh3 that cannot be read is left out, and
 * logged. Returns: 0; -ENOMEM; -EMFILE, -ENFILE. */
int hoist__kept_find(int dir_fd, const char *path, unsigned flags,
		     struct hoist__checkpoint_file *shard);

/* Makes *digits, from malloc, the kept digests of the file, and sets *digits to NULL.  Another
 * member of a group keeps these digests beside its copy of the file.
 *
 * Returns: 0; -EBADMSG (not one digest for each tensor): *digits is as before. */
int hoist__kept_take(struct hoist__checkpoint_file *shard, char **digits);

/* Returns a reader of the file's bytes for a parser; valid while @file is open. */
struct hoist__reader hoist__checkpoint_file_reader(struct hoist__file *file, bool lenient);

/* Returns "<folder>/<name>" from malloc, for messages; NULL without memory (the text is set). */
char *hoist__join_path(const char *folder, const char *name);

/* Opens the parent folder of @path, and gives the folder's path (from malloc).
 * Returns: 0; as open(); -ENOMEM. */
int hoist__open_parent(const char *path, char **ret_path, int *ret_fd);

/* The last component of the file's path; part of the path. */
const char *hoist__checkpoint_file_name(const struct hoist_checkpoint *checkpoint, size_t file);

/* When the process runs out of file descriptors, the ones for direct reads can be spared.
 * Returns: false if no file had one. */
bool hoist__checkpoint_give_up_direct(hoist_checkpoint *checkpoint);

/* Calls @each for each name in the folder @path of @dir_fd, until a call fails.  Messages name the
 * folder @display.
 * Returns: 0; the failure of @each; the system's error. */
int hoist__folder_list(int dir_fd, const char *path, const char *display,
		       int (*each)(void *context, const char *name), void *context);

/* --- parts of opening; @folder is @dir_fd's path, for messages --- */

/* Opens further files, whose content tells their format; all of a checkpoint must have one
 * format. */
int hoist__checkpoint_add(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
			  const char *const *names, size_t n);
/* Adds an index, and the files that it names. */
int hoist__checkpoint_add_index(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
				const struct hoist__file *file);
/* Adds the folder's files, as hoist/checkpoint.h says. */
int hoist__checkpoint_add_folder(hoist_checkpoint *checkpoint, int dir_fd, const char *folder);

/* Returns the part's number in a file name, from 1, and in *count how many parts there are; 0 if
 * the name is not that of a part. */
unsigned hoist__gguf_name(const char *name, unsigned *count);
/* True if the shard is the first of several files. */
bool hoist__gguf_is_first(const struct hoist__checkpoint_file *shard);
/* Opens the other parts beside files[0], which is called @name in @folder.
 * Returns: 0; -EINVAL for another name; -EBADMSG if the parts do not belong together; as
 *   opening. */
int hoist__gguf_add_parts(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
			  const char *name);

/* Fill the tables from the files and the index.
 * Returns: 0; -EBADMSG for a name in two files; -EOVERFLOW; -ENOMEM. */
int hoist__checkpoint_build_tensors(hoist_checkpoint *checkpoint);
int hoist__checkpoint_build_metadata(hoist_checkpoint *checkpoint);

/* Digests the headers' tensors and metadata, the files' sizes, and blocks from all over the files
 * to the first two words: the same result for all that have the same files.  The other two words
 * digest the digests of all tensors, which the files hold, or which are kept beside them; 0: not
 * all are there.  A checkpoint that was shown has the identity that was shown.  Returns: 0; as
 * reading. */
int hoist__checkpoint_identify(const struct hoist_checkpoint *checkpoint,
			       uint64_t ret[static HOIST__CHECKPOINT_IDENTITY]);

/* Digests blocks from all over a file of the checkpoint.  Returns: 0; as reading. */
int hoist__checkpoint_sample(const struct hoist_checkpoint *checkpoint,
			     const struct hoist__file *file, uint64_t ret[static 2]);

#endif
