/* SPDX-License-Identifier: MIT */
/* alloc/populate.h - making pages be there before anyone needs them. */
#ifndef HOIST_ALLOC_POPULATE_H
#define HOIST_ALLOC_POPULATE_H

#include <stdbool.h>
#include <stddef.h>

#include "numa/place.h"

struct hoist__populate_job {
	void *base;
	size_t bytes;
	unsigned n_threads; /* the most; fewer if there are fewer slices */
	/* Where the threads run: turn by turn on each of @nodes.  NULL: anywhere. */
	const struct hoist__topology *topology;
	const struct hoist__nodeset *nodes;
};

/* What had to be done another way; all false when all went well. */
struct hoist__populate_report {
	bool touched;	 /* MADV_POPULATE_WRITE was refused: touched byte by byte */
	bool unpinned;	 /* a thread could not run on its node's CPUs */
	bool no_threads; /* not all threads could be started */
};

/* True if the kernel here knows and allows MADV_POPULATE_WRITE. */
bool hoist__populate_supported(void);

/* Populates in slices that the threads take in order.
 * Returns: 0; -ENOMEM.  @report is filled in either case. */
int hoist__populate_parallel(const struct hoist__populate_job *job,
			     struct hoist__populate_report *report);

#endif
