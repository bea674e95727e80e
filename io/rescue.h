/* SPDX-License-Identifier: MIT */
/* io/rescue.h - healthy bytes beside a bad place, after a read through the page cache has failed.
 *
 * The page cache keeps files in folios, which some file systems make large (xfs, up to 2 MiB).  One
 * bad sector makes a whole folio unreadable.  Reads of the folio's healthy bytes then fail as well,
 * and their errors point to the folio's begin, not to the bad sector.
 *
 * Threads: any. */
#ifndef HOIST_IO_RESCUE_H
#define HOIST_IO_RESCUE_H

#include <errno.h>
#include <stdbool.h>

#include "io/file.h"

/* The largest folio.  A folio begins at a multiple of its size. */
#define HOIST__RESCUE_BYTES ((uint64_t)2 << 20)

/* Tells whether @err, an errno value of a read through the page cache, means that the disk could
 * not read.  The error is nearly always EIO; the others are the block layer's own names for it. */
static inline bool hoist__rescuable(int err)
{
	return err == EIO || err == ENODATA || err == EREMOTEIO || err == EILSEQ;
}

/* Reads at @offset, where a read through the page cache failed: past the cache, block by block, or,
 * where direct reads are refused, once more through the cache.  In the calling thread.
 * Returns: the number of bytes, up to the bad place; 0 at the end of the file; a negative errno if
 *   the bad place is in the block, or page, of @offset itself. */
int64_t hoist__file_rescue(const struct hoist__file *file, uint64_t offset, void *to, size_t bytes);

#endif
