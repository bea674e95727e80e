/* SPDX-License-Identifier: MIT */
/* hoist/mmap.h - buffers over files.
 *
 *     const int64_t shape[] = {1000, 768};
 *     hoist_buffer_mmap("embeddings.bin", HOIST_F32, 2, shape, "r+", 128, 0, &table);
 *     hoist_buffer_host_array(table, HOIST_F32, 1, &array, &n);
 *     ((float *)array)[0] = 1;             // goes to the file
 *     hoist_buffer_flush(table);           // the write is on disk
 *     hoist_buffer_unref(table);           // the last view unmaps the file
 *
 * hoist_buffer_mmap() has the modes and the rules of numpy.memmap.  A page is read when it is first
 * touched, not before.  For weights that go to a GPU use hoist/load.h: no driver copies quickly
 * from the pages of a file.
 *
 * SIGBUS: three things raise this signal in the thread that touches a page, whatever the mode:
 *
 *   the file shrank    the page is no longer in the file, even if the page was read or written
 *                      before; the bytes behind the new end in the last page read as 0
 *   a read fails       for instance at a bad sector
 *   a write cannot     the disk is full, or gone.  To avoid this, a file that the call makes longer
 *   reach the disk     gets its blocks at once
 *
 * With POPULATE the first two are errors of the call, if they are the case by then.  Replacing a
 * file by renaming another over it shrinks no file: maps go on showing the old one.
 *
 * Threads: any.
 */
#ifndef HOIST_MMAP_H
#define HOIST_MMAP_H

#include <stdint.h>

#include <hoist/buffer.h>

HOIST_BEGIN

/* With mode "r": a read-only buffer over the file's pages instead of a copy.  Writing to the buffer
 * through hoist is -EROFS. */
#define HOIST_MMAP_NO_COPY 1u

/* Several threads read all bytes into the page cache and map them in before the call returns.
 * Without effect on a mode that copies. */
#define HOIST_MMAP_POPULATE 2u

/* A contiguous buffer on the CPU over the file @path, from byte @offset on.  @offset need not be a
 * multiple of anything.
 *
 *   @mode                    bytes are                                the file
 *   NULL, "c", "copyonwrite" private pages of the file                is never written
 *   "r", "readonly"          a copy in memory, which may be written   is never written
 *   "r+", "readwrite"        the file's own pages                     takes all writes; a
 *                                                                     shorter one is made longer
 *   "w+", "write"            the file's own pages                     is made anew, of zeros
 *
 * The copy of "r" is MAX's rule, for callers that write to the buffer; NO_COPY is NumPy's rule.
 * The call closes the file's descriptor again.  The map lives as long as any view.
 * Returns: 0; -EINVAL (an unknown mode: the text lists the modes; an empty file; not a regular
 *   file; unknown flags); -ENODATA (c, r: the file is shorter than the buffer: the text has both
 *   lengths; the file shrank while it was read); -EOVERFLOW (a negative @offset; an end beyond 63
 *   bits); -ENOENT, -EACCES and the like; -EIO (POPULATE, "r": the text has the file and the
 *   offset); -ENOSPC (the file cannot be made longer); -ENOMEM; as hoist_buffer_create(). */
HOIST_API int hoist_buffer_mmap(const char *path, hoist_dtype dtype, int rank, const int64_t *shape,
				const char *mode, int64_t offset, unsigned flags,
				hoist_buffer **ret);

/* Waits until everything that was written to a buffer over a file's own pages ("r+", "w+") is on
 * disk.
 * Returns: 0, also if there is nothing to write; -EINVAL (not contiguous: flush the buffer that
 *   this one is a view of); -ENOTSUP (device memory); -EIO and the like. */
HOIST_API int hoist_buffer_flush(hoist_buffer *buffer);

/* The one buffer of a .max file, in memory of its own: writing to the buffer changes no file.  The
 * result is that of MAX's load_max_buffer(): bf16 of rank 0 comes as one element of rank 1.  Dtypes
 * that MAX cannot load (the floats below 16 bits) come as they are.  A file of several buffers is a
 * checkpoint (hoist/checkpoint.h), which keeps every rank.
 * Returns: 0; -EBADMSG (not a .max file, a newer version, or malformed: the text has the byte);
 *   -EINVAL (the file holds no buffer, or several: the text has the number); -ENOENT and the like;
 *   -ENOMEM. */
HOIST_API int hoist_buffer_load_max(const char *path, hoist_buffer **ret);

HOIST_END

#endif
