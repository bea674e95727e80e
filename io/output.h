/* SPDX-License-Identifier: MIT */
/* io/output.h - a file that appears whole or not at all.
 *
 *     create   makes a nameless file (O_TMPFILE), or a file with a hidden name where the file
 *              system has no nameless ones, in the folder of the path; allocates its blocks
 *     ...      the owner writes through hoist__output_file(), the last block padded
 *     finish   sets the exact length and mode, then calls fsync; a failed fsync is never repeated
 *     publish  gives the file its name, over an old file.  The caller syncs the folder, once for
 *              all of its files: hoist__output_sync_folder()
 *     destroy  removes a file that was not published
 *
 * A file at the path is replaced.  The new file gets the old one's mode, less the umask, the right
 * to execute, and the group's rights where these do not carry over (output-mode.h).  A symbolic
 * link at the path is replaced itself, as mv and rsync do, and its target stays as it is (the
 * target may be the blob of a cache that others link to).  A folder, a device, a FIFO or a link to
 * one of these is refused.
 *
 * A process that is killed leaves no trace of a nameless file, except between two system calls of
 * publish: then a file named ".NAME.hoist-XXXXXX" stays.  Where files cannot be nameless, a file of
 * this name exists from create on.
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

/* Makes @path's file of @bytes bytes, with the mode of the file that it replaces, else 0666, less
 * the umask.
 * Returns: 0; -ENOSPC, -EDQUOT (no blocks; the text has the number of free bytes); -EFBIG (the
 *   file system, RLIMIT_FSIZE); -ENOENT, -EACCES, -EROFS and the like of the folder; -EISDIR;
 *   -EINVAL (the path holds something that is no file); -EEXIST; -ENOMEM. */
int hoist__output_create(const char *path, uint64_t bytes, unsigned flags,
			 struct hoist__output **ret);

/* The file for requests with `write`; direct_fd and the alignments are as of any file. */
const struct hoist__file *hoist__output_file(const struct hoist__output *output);

/* Writes exactly @bytes at @offset through the page cache, in the calling thread.  No other write
 * to that range may be in flight.  Returns: 0; -ENOSPC, -EIO and the like. */
int hoist__output_write(const struct hoist__output *output, uint64_t offset, const void *from,
			size_t bytes);

/* Ends writing: no write may be in flight or follow.  The direct descriptor may be gone afterwards.
 * Returns: 0; -EIO, -ENOSPC, -EDQUOT and the like; -EMFILE, -ENFILE, -ENOMEM: no descriptor
 *   is left for asking the file system whether it kept all bytes.  After a failure the file must
 *   not be published. */
int hoist__output_finish(struct hoist__output *output);

/* Withdraws NO_SYNC: the file is on the disk after the call, and later calls synchronise as well.
 * Does nothing if the flag is not set.  Pre: finished.
 * Returns: 0; -EIO and the like.  After a failure the file must not be published. */
int hoist__output_sync(struct hoist__output *output);

/* Gives the file its name.  Pre: finished.  Returns: 0; -EEXIST with NO_REPLACE; the kernel's. */
int hoist__output_publish(struct hoist__output *output);
/* Calls fsync for the file's folder, unless NO_SYNC.  Returns: 0; -EIO and the like. */
int hoist__output_sync_folder(const struct hoist__output *output);

/* Checks @name, which is not a path, in the output's folder, as hoist__output_create() checks its
 * own name: @name is to be removed once this output has been published.  Returns: 0; -EEXIST,
 * -EISDIR, -EINVAL; the error of fstatat(2). */
int hoist__output_check_old(const struct hoist__output *output, const char *name);

/* Tells whether anything is called @name, which is not a path, in the output's folder.  True where
 * looking fails. */
bool hoist__output_has(const struct hoist__output *output, const char *name);

/* Removes the file @name, which is not a path, from the output's folder.
 * Returns: 1; 0 if it is not there; -EACCES, -EPERM, -EROFS and the like, without a text. */
int hoist__output_remove(const struct hoist__output *output, const char *name);

void hoist__output_destroy(struct hoist__output *output); /* takes NULL */

#endif
