/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/absent.h - a checkpoint of which all files, or some, are on other machines.
 *
 * hoist_group_open() makes such a checkpoint of files that a member of the group has shown: they
 * have the sizes of the member's files and the same bytes, but holes where the tensors are.  Files
 * that lie on this machine take the places of those that were shown.  The others are absent: their
 * descriptors cannot be read, so that a read of a tensor's bytes there fails, and never gives
 * zeros.
 */
#ifndef HOIST_LIB_CHECKPOINT_ABSENT_H
#define HOIST_LIB_CHECKPOINT_ABSENT_H

#include "lib/checkpoint/checkpoint.h"

/* A walk over the bytes of a checkpoint's files that are no tensor's.  Begins zeroed. */
struct hoist__gaps {
	size_t file;
	uint64_t at;
	size_t tensor; /* of the checkpoint's; those before it end before `at` */
};

/* Finds the next gap of gaps->file: from gaps->at on, to *ret_end.  The caller sets `at` behind
 * what it has taken, and goes to the next file, whose `at` is 0, when there is none.  False: none.
 */
bool hoist__gaps_next(struct hoist__gaps *gaps, const struct hoist_checkpoint *checkpoint,
		      uint64_t *ret_end);

/* Puts files of this machine in the places of @shown's, and makes the others absent.  Those of this
 * machine have the same names and lie in the folder @path, or beside the file @path; where nothing
 * is at @path, there are none.  Messages name the files as if all were there.
 * Returns: 0; -EINVAL (a file of this machine has another size, or other bytes that are no
 *   tensor's); as opening and reading; -ENOMEM. */
int hoist__checkpoint_settle(hoist_checkpoint *shown, const char *path);

#endif
