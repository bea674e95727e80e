/* SPDX-License-Identifier: MIT */
/* io/snapshot.h - the links of a snapshot in Hugging Face's cache, which lead to blobs beside it.
 *
 *     models--ORG--NAME/
 *       blobs/HASH                               the bytes
 *       snapshots/REVISION/[FOLDER/...]NAME  ->  ../../[../...]blobs/HASH
 *
 * A checkpoint's files must stay in their folder, and these links leave it.  One is followed if all
 * of this is so:
 *
 *   the link's folder   lies in snapshots/REVISION of a folder models--*, by the kernel's own path
 *   its text            leads to a name directly in that model's blobs, and to nothing else
 *   blobs               is a folder, no link
 *   the blob            is a regular file, no link, of this process's user or of root
 *
 * A tree that others made can so name blobs of its own alone.  The blob is found without being
 * opened, since opening a device can have an effect.
 */
#ifndef HOIST_IO_SNAPSHOT_H
#define HOIST_IO_SNAPSHOT_H

/* Opens the blob that the link @name in @dir_fd leads to, with the open(2) flags @flags.
 * Returns: a descriptor; -EXDEV: @name is no such link, or /proc is missing; the blob cannot be
 *   opened: -ENOENT, -EACCES and the like. */
int hoist__snapshot_open(int dir_fd, const char *name, int flags);

#endif
