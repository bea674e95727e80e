/* SPDX-License-Identifier: MIT */
/* lib/buffer/portions.h - one storage, the whole, whose memory goes back range by range.
 *
 * A portion is a storage of its own over one range of the whole's bytes: it has references, streams
 * and consumers of its own.  The owner (a load) takes portions, hands them out, and in the end
 * closes the table.  Until then the table itself holds every portion that was taken, so that a
 * range can be taken again, and nothing goes back.
 *
 *   whole    |[  a  ][b][   c   ]..[ d ]|      ranges: in order, disjoint; bytes between them
 *   pages    |    |    |    |    |    | |      are nobody's
 *
 * Closing gives back the pages in which no byte belongs to a portion that somebody holds.  From
 * then on the portions that are held form a list in the order of their bytes.  The end of one makes
 * a gap that reaches from the portion before to the portion behind.  The pages that lie in the gap
 * as a whole, and have a byte of the ended portion, go back: so neighbours that share a page keep
 * the page, the last of them gives it back, and no page goes back twice.  The last portion gives
 * back nothing: the whole ends with it, and so does its block.
 *
 *   before   ..[ a ]......[ c ]..[ d ]..       the gap that c leaves: from the end of a to the
 *   after    ..[ a ]............. [ d ]..      beginning of d
 *
 * The work that streams have queued with a portion is waited for before its pages go back, as for
 * memory from elsewhere (storage.h).  Work that still runs may use the pages of other portions
 * only.  A page that the kernel does not take back stays with the block, and is only logged.
 *
 * Each portion holds the whole.  Invariants, under one lock for all tables: `before` and `behind`
 * of listed portions agree; ranges of listed portions are in order.
 *
 * Threads: take from any thread.  close is the last call.  Portions end in any thread, and in a
 * child of fork, whose pages are its own.
 */
#ifndef HOIST_LIB_BUFFER_PORTIONS_H
#define HOIST_LIB_BUFFER_PORTIONS_H

#include <stddef.h>

#include "lib/buffer/storage.h"

struct hoist__portions;

/* Bytes [begin, end) of the whole; never empty. */
struct hoist__portion_range {
	size_t begin;
	size_t end;
};

/* True if pages of the storage's memory can go back while the rest of it stays. */
bool hoist__storage_can_shrink(const struct hoist__storage *storage);

/* Makes the table.  @ranges, of which a copy is taken, are in order and disjoint.  Pre: the storage
 * can shrink.
 * Returns: 0; -ENOMEM. */
int hoist__portions_create(struct hoist__storage *whole, const struct hoist__portion_range *ranges,
			   size_t n, struct hoist__portions **ret);

/* Gives the portion, borrowed from the table, whose range holds byte @offset of the whole, and
 * where the range begins.  Pre: a range holds the byte.
 * Returns: 0; -ENOMEM. */
int hoist__portions_take(struct hoist__portions *portions, size_t offset,
			 struct hoist__storage **ret, size_t *begin);

/* Lets go of all portions, and frees the table.  Takes NULL. */
void hoist__portions_close(struct hoist__portions *portions);

#endif
