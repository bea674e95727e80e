/* SPDX-License-Identifier: MIT */
/* bench/io-many.h - `hoist bench load`: what a tensor costs. */
#ifndef HOIST_BENCH_IO_MANY_H
#define HOIST_BENCH_IO_MANY_H

#include "bench/io-file.h"
#include "bench/results.h"

/* Measures, hot, to @device, @runs times each and in turns, checkpoints that are made (made.h) with
 * at most @most_bytes and as many tensors as their bars are about:
 *
 *   - 1,000,000 tensors of 64 bytes, into fresh memory and in place: the time, and on a GPU how
 *     many copies the driver makes for each slot;
 *   - 100,000 tensors of 10 KiB, taken one by one, beside one tensor of as many bytes.
 *
 * With fewer tensors there are no bars of time.  Returns a STATUS_*. */
int bench_many(uint64_t most_bytes, hoist_device *device, const char *spec, unsigned runs,
	       struct results *results);

#endif
