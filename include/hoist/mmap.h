/* SPDX-License-Identifier: MIT */
/* hoist/mmap.h - buffers over files.
 *
 * hoist_buffer_mmap() has the modes and the rules of numpy.memmap; nothing is read
 * before it is touched.  Weights that go to a GPU are better loaded (hoist/load.h):
 * pages of a file are what no driver copies from quickly.
 *
 * A file that shrinks: a page that it no longer has raises SIGBUS when it is touched, by whoever
 * does, whatever the mode, even if the page had been read or written before; the bytes behind the new
 * end in the last page read as 0.  A page that cannot be read (a bad sector) is SIGBUS, too; POPULATE
 * makes of both an error of the call, as far as they are so by then.  Where writes cannot reach the
 * disk any more (full, or gone), SIGBUS again: so files that are made longer get their blocks at once.
 * Who replaces files by renaming others over them shrinks none: maps go on showing the old one.
 *
 * Threads: any.
 */
#ifndef HOIST_MMAP_H
#define HOIST_MMAP_H

#include <stdint.h>

#include <hoist/buffer.h>

HOIST_BEGIN

/* "r": a read-only buffer over the file's pages, on which hoist's writes are -EROFS, in place of
 * a copy. */
#define HOIST_MMAP_NO_COPY 1u

/* All bytes are read before the call returns, by several threads, into the page cache, and mapped
 * in.  No effect on what is copied. */
#define HOIST_MMAP_POPULATE 2u

/* A contiguous buffer on the CPU, @offset bytes into the file @path; any @offset.
 *
 *   @mode                    bytes are                                the file
 *   NULL, "c", "copyonwrite" private pages of the file               is never written
 *   "r", "readonly"          a copy in memory, which may be written   is never written
 *   "r+", "readwrite"        the file's own pages                     takes all writes; a
 *                                                                     shorter one is made longer
 *   "w+", "write"            the file's own pages                     is made anew, of zeros
 *
 * That "r" copies is MAX's rule, for callers who write to what they read; NO_COPY is NumPy's.
 * The file's descriptor is closed again; the map lives as long as any view.
 * Returns: 0; -EINVAL (an unknown mode, with those there are; an empty file; not a regular file;
 *   unknown flags); -ENODATA (c, r: the file is shorter than what is asked for, with both
 *   lengths; it shrank while it was read); -EOVERFLOW (a negative @offset, or an end beyond 63
 *   bits); -ENOENT, -EACCES and the like; -EIO (POPULATE, "r": with the file and the offset);
 *   -ENOSPC (the file cannot be made longer); -ENOMEM; as hoist_buffer_create(). */
HOIST_API int hoist_buffer_mmap(const char *path, hoist_dtype dtype, int rank, const int64_t *shape,
				const char *mode, int64_t offset, unsigned flags,
				hoist_buffer **ret);

/* Waits until what was written to a buffer over a file's own pages ("r+", "w+") is on disk.
 * Returns: 0, also where there is nothing to write; -EINVAL (not contiguous: flush what it is a view
 *   of); -ENOTSUP (device memory); -EIO and the like. */
HOIST_API int hoist_buffer_flush(hoist_buffer *buffer);

/* The one buffer of a .max file, in memory of its own: writing to it changes no file.  It is what
 * MAX's load_max_buffer() gives, so that bf16 of rank 0 comes as one element of rank 1; the dtypes
 * that MAX cannot load (the floats below 16 bits) come as they are.  A file of several buffers is a
 * checkpoint (hoist/checkpoint.h), which keeps every rank.
 * Returns: 0; -EBADMSG (not such a file, of a newer version, malformed: with the byte); -EINVAL (it
 *   holds none, or several: with how many); -ENOENT and the like; -ENOMEM. */
HOIST_API int hoist_buffer_load_max(const char *path, hoist_buffer **ret);

HOIST_END

#endif
