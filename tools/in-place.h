/* SPDX-License-Identifier: MIT */
/* tools/in-place.h - a copy over what it copies, which must not lose what it cannot carry.
 *
 * A copy is in place if it writes over, or removes, a file that it reads.  All of that file is in
 * the copy then, or the copy is refused:
 *   the format stays: another one has no place for types of metadata, or for what is no tensor
 *   every tensor is taken: those of --tensor alone, or of an index that names not all that its
 *     shards hold, would be all that is left
 *   every file is read that the index at the copy's place names: of a copy of one shard, the save
 *     removes the index and the other shards
 *   what was kept beside the tensors is kept: metadata, and digests if there were any
 */
#ifndef HOIST_TOOLS_IN_PLACE_H
#define HOIST_TOOLS_IN_PLACE_H

#include <stdbool.h>

#include <hoist/hoist.h>

/* Does a file written at @to, or the shards of that name, take the place of a file of
 * @checkpoint's?  Symbolic links to such a file are followed. */
bool in_place(hoist_checkpoint *checkpoint, const char *to);

/* Of a copy in place, to which @n tensors were added, and which may write @shards: 0 if nothing is
 * lost; else the status, the reason printed. */
int in_place_check(hoist_checkpoint *checkpoint, const hoist_save *save, const char *to,
		   bool shards, size_t n);

/* Are digests kept in @checkpoint's files? */
bool has_digests(const hoist_checkpoint *checkpoint);

#endif
