/* SPDX-License-Identifier: MIT */
/* tools/in-place.h - a copy that replaces its own source, which must not lose anything.
 *
 * A copy is in place if it writes over, or removes, a file that it reads.  Then everything in that
 * file must be in the copy, or the copy is refused:
 *   the format stays: another one has no place for types of metadata, or for content that is not
 *     a tensor
 *   every tensor is taken: otherwise only those of --tensor, or of an index that does not name all
 *     tensors of its shards, would be left
 *   every file is read that the index at the copy's place names: a save of a copy of one shard
 *     removes the index and the other shards
 *   everything beside the tensors is kept: metadata, and digests if there were any
 */
#ifndef HOIST_TOOLS_IN_PLACE_H
#define HOIST_TOOLS_IN_PLACE_H

#include <stdbool.h>

#include <hoist/hoist.h>

/* True if a file written at @to, or the shards of that name, would replace a file of @checkpoint's.
 * Symbolic links to such a file are followed. */
bool in_place(hoist_checkpoint *checkpoint, const char *to);

/* Checks a copy in place, to which @n tensors were added, and which may write @shards.
 * Returns: 0 if nothing is lost; otherwise the status, with the reason printed. */
int in_place_check(hoist_checkpoint *checkpoint, const hoist_save *save, const char *to,
		   bool shards, size_t n);

/* True if @checkpoint's files hold digests. */
bool has_digests(const hoist_checkpoint *checkpoint);

#endif
