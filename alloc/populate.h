/* SPDX-License-Identifier: MIT */
/* alloc/populate.h - faults pages in before they are used. */
#ifndef HOIST_ALLOC_POPULATE_H
#define HOIST_ALLOC_POPULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "numa/place.h"

/* Threads take the work in slices of this size, so that they finish together, and slow huge pages
 * are noticed early. */
#define HOIST__SLICE_BYTES ((size_t)16 << 20)

struct hoist__populate_job {
	void *base;
	size_t bytes;
	size_t slice_bytes; /* at most, a multiple of 2 MiB; 0: HOIST__SLICE_BYTES */
	unsigned n_threads; /* the most; fewer if there are fewer slices */
	/* The nodes on which the threads run, in turn.  NULL: anywhere. */
	const struct hoist__topology *topology;
	const struct hoist__nodeset *nodes;
	/* Huge pages were asked for.  If a thread gets them slower than this many bytes per second,
	 * twice in a row, the kernel is told to stop giving them.  0: any rate will do. */
	uint64_t thp_floor;
	/* For shared memory, for which the kernel gives small pages: each whole 2 MiB is made a
	 * huge page, as far as the kernel can.  @base is 2 MiB-aligned. */
	bool collapse;
};

/* The fallbacks that were taken; all 0 if there were none. */
struct hoist__populate_report {
	bool touched;	 /* MADV_POPULATE_WRITE was refused: touched byte by byte */
	bool unpinned;	 /* a thread could not run on its node's CPUs */
	bool no_threads; /* not all threads could be started */
	bool slow;	 /* huge pages came below the floor: */
	uint64_t rate;	 /* this many bytes per second of a thread */
	size_t small_at; /* from this offset on small pages were asked for; `bytes` if the kernel
			  * refused, or nothing was left */
	size_t collapsed; /* bytes of which huge pages were made */
	int collapse_err; /* why not of all bytes, a negative errno value; 0: the kernel did not
			   * refuse */
};

/* True if the kernel here knows and allows MADV_POPULATE_WRITE. */
bool hoist__populate_supported(void);

/* Returns: 0; -ENOMEM.  @report is filled in either case. */
int hoist__populate_parallel(const struct hoist__populate_job *job,
			     struct hoist__populate_report *report);

#endif
