/* SPDX-License-Identifier: MIT */
/* io/populate.h - threads that fault memory in ahead of the reads into it.
 *
 * First touch is several times slower than a read from the page cache and costs
 * a direct read its large pages, so fresh destinations are populated by other threads
 * while readers follow.  Each reader (one for each disk) goes through its own parts of the memory
 * in ascending order.  Pages of the reader that has the fewest populated ahead of what it wants
 * come next.  Of each reader's parts the populated prefix only grows:
 *
 *     reader 0 [== done ==|-- in work --|........]                        [............]
 *     reader 1                                    [= done =|- in work -|..]
 *     base     ...                                                           base + bytes
 *
 * Memory is populated in slices.  One with parts of several readers is one of each; what
 * is nobody's part belongs to the reader of the part before it.
 *
 * Threads: one owner, who may wait; stop is the owner's too.
 */
#ifndef HOIST_IO_POPULATE_H
#define HOIST_IO_POPULATE_H

#include <stddef.h>
#include <stdint.h>

#define HOIST__POPULATOR_READERS 8u

struct hoist__populator;

/* Where a reader reads to: bytes [begin, end) from the memory's start. */
struct hoist__populator_part {
	size_t begin;
	size_t end;
	unsigned reader; /* below HOIST__POPULATOR_READERS */
};

struct hoist__populator_options {
	void *address; /* page-aligned, a LAZY block */
	size_t bytes;
	unsigned n_threads; /* 0: by the machine, 1..4 */
	/* In ascending order; none: all is reader 0's.  Used only by the start. */
	const struct hoist__populator_part *parts;
	size_t n_parts;
};

/* Starts populating.
 * Returns: 0; -ENOMEM, also if there can be no more threads; -EPERM if a filter refuses them. */
int hoist__populator_start(const struct hoist__populator_options *options,
			   struct hoist__populator **ret);

/* *ret: so many bytes from the start, those of @reader's parts are populated now; all bytes if all
 * of its parts are.  The reader reads up to byte @want next.  Never blocks. Returns: 0; the error
 * of the populating thread (-ENOMEM), with its text. */
int hoist__populator_done(struct hoist__populator *populator, unsigned reader, size_t want,
			  size_t *ret);

/* Waits until @reader's parts of the first @want bytes are populated, or @timeout_ns has passed.
 * Returns: 0; -EAGAIN on time-out; -ENOMEM as above. */
int hoist__populator_wait(struct hoist__populator *populator, unsigned reader, size_t want,
			  uint64_t timeout_ns);

/* Ends the threads (after the slice they are at) and frees.  Takes NULL. */
void hoist__populator_stop(struct hoist__populator *populator);

#endif
