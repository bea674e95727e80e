/* SPDX-License-Identifier: MIT */
/* bench/io-map.h - `hoist bench load`: loads to the host that map, beside plain loads. */
#ifndef HOIST_BENCH_IO_MAP_H
#define HOIST_BENCH_IO_MAP_H

#include "bench/io-file.h"
#include "bench/results.h"

/* Measures, @runs times each and in turns, to @device, which is the CPU:
 *
 *   - a cold populated map (HOIST_IO_MAP, HOIST_LOAD_POPULATE), beside a plain load;
 *   - HOIST_IO_ADAPTIVE of a hot, a cold and a half-cached file, beside a plain load; every byte is
 *     touched before the clock stops.
 *
 * Returns a STATUS_*. */
int bench_map(struct bench_file *file, hoist_device *device, unsigned runs,
	      struct results *results);

#endif
