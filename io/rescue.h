/* SPDX-License-Identifier: MIT */
/* io/rescue.h - healthy bytes beside a bad place, after a read through the page cache has failed.
 *
 * The cache keeps files in folios, which some file systems make large (xfs, up to 2 MiB).  One bad
 * sector makes all of a folio unreadable: reads of bytes that the disk does have fail as well, and
 * what they tell of the bad place is where the folio begins.
 *
 * Threads: any. */
#ifndef HOIST_IO_RESCUE_H
#define HOIST_IO_RESCUE_H

#include <errno.h>
#include <stdbool.h>

#include "io/file.h"

/* The most that may be one folio, which begins at a multiple of its size. */
#define HOIST__RESCUE_BYTES ((uint64_t)2 << 20)

/* Does @err, an errno value of a read through the page cache, say that a disk could not read?  It
 * is EIO nearly always; the others are the block layer's own names for such. */
static inline bool hoist__rescuable(int err)
{
	return err == EIO || err == ENODATA || err == EREMOTEIO || err == EILSEQ;
}

/* Reads what such a read at @offset did not: past the cache, block by block, or, where direct reads
 * are refused, once more through it.  In the calling thread.
 * Returns: as pread(2), so many bytes, up to the bad place; 0 where the file ends; a negative
 *   errno: it is in the block, or page, of @offset itself. */
int64_t hoist__file_rescue(const struct hoist__file *file, uint64_t offset, void *to, size_t bytes);

#endif
