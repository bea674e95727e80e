/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/absent.h - a checkpoint of which all files, or some, are on other machines.
 *
 * hoist_group_open() makes such a checkpoint of files that a member of the group has shown: they
 * have the names and sizes of the member's files, and the same bytes but for holes where the
 * tensors are.  Files of this machine then take the places of the shown ones.  The others are
 * absent: their descriptors cannot be read, so that a read of a tensor's bytes there fails, and
 * never gives zeros.
 */
#ifndef HOIST_LIB_CHECKPOINT_ABSENT_H
#define HOIST_LIB_CHECKPOINT_ABSENT_H

#include "lib/checkpoint/checkpoint.h"

/* A walk over the gaps of a checkpoint's files: the bytes that are no tensor's.  Begins zeroed. */
struct hoist__gaps {
	size_t file;
	uint64_t at;
	size_t tensor; /* of the checkpoint's; those before it end before `at` */
};

/* Finds the next piece of a gap of gaps->file, of @most bytes at most, and goes on behind it.  The
 * caller goes to the next file by setting `file` and `at`.  False: the file has no more gaps. */
bool hoist__gaps_next(struct hoist__gaps *gaps, const struct hoist_checkpoint *checkpoint,
		      uint64_t most, uint64_t *ret_at, uint64_t *ret_n);

struct hoist__shown_file {
	char *name;
	uint64_t bytes;
	uint64_t sample[2]; /* hoist__checkpoint_sample() of the member's file */
	char *digits;	    /* of the digests that the member keeps beside the file; NULL: none */
};

/* Files of this machine take the places of @shown's, by their names; @shown's other files become
 * absent.  This machine's lie in the folder @path, or beside the file @path; where nothing is at
 * @path, all are absent.  Messages name each file as if it lay here.  @files: as they were shown,
 * at least as many as @shown has.
 *
 * Returns: 0; -EINVAL (a file of this machine differs from the shown one in its size, in its gaps,
 * or in blocks of its tensors that are compared); -ENOTSUP (@shown has the files in another order
 * than @files); as opening and reading; -ENOMEM. */
int hoist__checkpoint_localize(hoist_checkpoint *shown, const char *path,
			       const struct hoist__shown_file *files);

#endif
