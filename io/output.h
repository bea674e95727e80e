/* SPDX-License-Identifier: MIT */
/* io/output.h - a file that appears whole or not at all.
 *
 *     create   a nameless file (O_TMPFILE), or a hidden name where the file system has none of
 *              these, in the folder of the path; its blocks are allocated
 *     ...      the owner writes through hoist__output_file(), the last block padded
 *     finish   its exact length and mode, then fsync; an fsync that fails is never tried again
 *     publish  under its name (over an old file); the folder's fsync is the caller's, once for
 *              all of its files: hoist__output_sync_folder()
 *     destroy  what was not published leaves nothing behind
 *
 * What is at the path: a file is replaced, whose mode the new one gets, less the umask and the right
 * to execute, and less what its group could do where that says nothing (output-mode.h).  A symbolic
 * link is replaced itself, as mv and rsync do, and what it points to stays as it is (it may be the
 * blob of a cache that others link to); a folder, a device, a FIFO or a link to one of these is
 * refused.
 *
 * A process that is killed leaves nothing of a nameless file but, if that happened between two
 * system calls of publish, a file named ".NAME.hoist-XXXXXX"; where files cannot be nameless, that
 * one is there from the beginning.
 *
 * Threads: one owner.
 */
#ifndef HOIST_IO_OUTPUT_H
#define HOIST_IO_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file.h"

struct hoist__output;

#define HOIST__OUTPUT_NO_DIRECT 1u
#define HOIST__OUTPUT_NO_REPLACE 2u /* create and publish fail with -EEXIST */
#define HOIST__OUTPUT_NO_SYNC 4u    /* nothing waits for the disk */

/* @path's file of @bytes bytes; the mode is that of the file it replaces, else 0666, less the umask.
 * Returns: 0; -ENOSPC, -EDQUOT (the blocks cannot be had, with how many are free); -EFBIG (the
 *   file system, RLIMIT_FSIZE); -ENOENT, -EACCES, -EROFS and the like of the folder; -EISDIR;
 *   -EINVAL (no file is there); -EEXIST; -ENOMEM. */
int hoist__output_create(const char *path, uint64_t bytes, unsigned flags,
			 struct hoist__output **ret);

/* For requests with `write`; direct_fd and the alignments as of any file. */
const struct hoist__file *hoist__output_file(const struct hoist__output *output);

/* Writes exactly @bytes at @offset through the page cache, in the calling thread; nothing else may
 * be writing there.  Returns: 0; -ENOSPC, -EIO and the like. */
int hoist__output_write(const struct hoist__output *output, uint64_t offset, const void *from,
			size_t bytes);

/* Nothing is written any more.  The direct descriptor may be gone afterwards.
 * Returns: 0; -EIO, -ENOSPC, -EDQUOT and the like; -EMFILE, -ENFILE, -ENOMEM: no descriptor could
 *   be had to ask the file system by.  After a failure the file must not be published. */
int hoist__output_finish(struct hoist__output *output);

/* Withdraws NO_SYNC: the file is on the disk after the call, and later calls synchronise as well.
 * Nothing is done without that flag.  Pre: finished.
 * Returns: 0; -EIO and the like.  After a failure the file must not be published. */
int hoist__output_sync(struct hoist__output *output);

/* Pre: finished. */
int hoist__output_publish(struct hoist__output *output);
int hoist__output_sync_folder(const struct hoist__output *output);

/* Looks at @name, which is not a path, in the output's folder, as hoist__output_create() did at its own:
 * it is to go when this output has been published.  Returns: 0; -EEXIST, -EISDIR, -EINVAL; what
 * looking gave. */
int hoist__output_check_old(const struct hoist__output *output, const char *name);

/* Is there anything called @name, which is not a path, in the output's folder?  True where looking
 * fails. */
bool hoist__output_has(const struct hoist__output *output, const char *name);

/* Removes the file @name, which is not a path, from the output's folder.
 * Returns: 1; 0 if it is not there; -EACCES, -EPERM, -EROFS and the like, without a text. */
int hoist__output_remove(const struct hoist__output *output, const char *name);

void hoist__output_destroy(struct hoist__output *output); /* takes NULL */

#endif
