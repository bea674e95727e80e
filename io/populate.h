/* SPDX-License-Identifier: MIT */
/* io/populate.h - threads that fault memory in ahead of the reads into it.
 *
 * First touch is several times slower than a read from the page cache and costs
 * a direct read its large pages.  So threads populate fresh destinations ahead of the readers.
 * Hot bytes are no work for these threads: the thread that copies the bytes populates their place
 * just before (request.fresh in io/engine.h).  The owner passes such places by.
 * Each reader (one for each disk) goes through its own parts of the memory in ascending order.  The
 * threads run on the processors of the memory's node, if the calling thread may run on any of them.
 * The threads serve the reader that has the fewest pages populated ahead of its position.  The
 * populated prefix of each reader's parts only grows:
 *
 *     reader 0 [== done ==|-- in work --|........]                        [............]
 *     reader 1                                    [= done =|- in work -|..]
 *     base     ...                                                           base + bytes
 *
 * Memory is populated in slices.  A slice with parts of several readers belongs to each of them.
 * A slice counts as done once the slice is populated, or its only reader has passed it by.
 * Memory between parts belongs to the reader of the part before.  Holes are populated for nobody.
 *
 * Threads: the owner alone calls, wait and stop included.
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

/* Bytes [begin, end) from the memory's start, whole pages. */
struct hoist__populator_hole {
	size_t begin;
	size_t end;
};

struct hoist__populator_options {
	void *address; /* page-aligned, an UNPOPULATED block */
	size_t bytes;
	unsigned n_threads; /* 0: as many as the memory's node has processors for this thread, up
			     * to 16 (numa/processors.h) */
	/* In ascending order; none: all memory is reader 0's.  Used only by the start. */
	const struct hoist__populator_part *parts;
	size_t n_parts;
	/* Populates bytes of the memory, in any of the threads.  NULL: hoist__populate().
	 * Returns: 0; -ENOMEM. */
	int (*populate)(void *context, void *address, size_t bytes);
	void *context;
	/* Ranges that no thread may touch: maps of files.  In ascending order and disjoint; copied.
	 */
	const struct hoist__populator_hole *holes;
	size_t n_holes;
};

/* Starts populating.
 * Returns: 0; -ENOMEM, also if the system gives no thread; -EPERM: a filter forbids threads. */
int hoist__populator_start(const struct hoist__populator_options *options,
			   struct hoist__populator **ret);

/* *ret: @reader's parts are populated up to this byte from the start; all bytes once all of its
 * parts are.  The reader reads up to byte @want next.  Never blocks.
 * Returns: 0; the error of the populating thread (-ENOMEM), with its text. */
int hoist__populator_done(struct hoist__populator *populator, unsigned reader, size_t want,
			  size_t *ret);

/* The reader has no need of its parts of the first @end bytes: no thread begins to populate slices
 * that end there or before and have parts of no other reader.  A slice that reaches beyond @end
 * stays, and is populated whole. */
void hoist__populator_pass(struct hoist__populator *populator, unsigned reader, size_t end);

/* Waits until @reader's parts of the first @want bytes are populated, or @timeout_ns has passed.
 * Returns: 0; -EAGAIN on time-out; -ENOMEM as above. */
int hoist__populator_wait(struct hoist__populator *populator, unsigned reader, size_t want,
			  uint64_t timeout_ns);

/* Joins the threads, after the slices in work, and frees.  Takes NULL. */
void hoist__populator_stop(struct hoist__populator *populator);

#endif
