/* SPDX-License-Identifier: MIT */
/* io/rows.h - rows of a file that lie in the page cache, read straight to their places.
 *
 * The rows of a request are in the order of its list, and its bytes are counted as if the rows lay
 * one behind the other.  Rows with small gaps between them are read by one preadv, which puts the
 * gaps into memory that nobody looks at.  A row behind a larger gap is a call of its own:
 *
 *     file    |[row 0]..[row 1]..[row 2].................[row 3]..[row 4]|
 *     preadv   ----------------------------              ----------------
 *
 * Nothing here depends on the bytes being cached, but for speed.
 */
#ifndef HOIST_IO_ROWS_H
#define HOIST_IO_ROWS_H

#include "io/engine.h"

/* Contiguous bytes of a request. */
struct hoist__rows_place {
	uint64_t offset;
	unsigned char *address;
	size_t bytes; /* to the end of the row */
};

/* The place of byte @at, which is below request->bytes, of a request with rows. */
void hoist__rows_find(const struct hoist__request *request, size_t at,
		      struct hoist__rows_place *ret);

/* Reads from byte `done` on, with several calls, until some hundred KiB are read or a call ends
 * short.  Gaps do not count.
 * Returns: the bytes read; 0 at the end of the file; a negative errno if nothing was read. */
int64_t hoist__rows_read(const struct hoist__request *request);

#endif
