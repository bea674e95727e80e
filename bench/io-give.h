/* SPDX-License-Identifier: MIT */
/* bench/io-give.h - `hoist bench load`: loads that give their tensors one by one, to several
 * targets and in place, beside one whole load. */
#ifndef HOIST_BENCH_IO_GIVE_H
#define HOIST_BENCH_IO_GIVE_H

#include "bench/io-file.h"
#include "bench/results.h"

/* Measures, cold, @runs times each and in turns, to @device:
 *
 *   - one load of all that is selected, the peer of the others;
 *   - the same, tensor by tensor, each dropped at once, through a window of an eighth of the bytes;
 *   - eight targets on the device, each with an eighth of every tensor along axis 1;
 *   - the whole load, into the buffers of an earlier one, which is not measured.
 *
 * Returns a STATUS_*. */
int bench_give(struct bench_file *file, hoist_device *device, const char *spec, unsigned runs,
	       struct results *results);

#endif
