/* SPDX-License-Identifier: MIT */
/* bench/io-peers.h - `hoist bench load`: loads to the host beside what reads by hand reach. */
#ifndef HOIST_BENCH_IO_PEERS_H
#define HOIST_BENCH_IO_PEERS_H

#include "bench/io-file.h"
#include "bench/results.h"

/* Measures, @runs times each and in turns, to @device, which is the CPU:
 *
 *   - cold, into memory that was touched before, beside direct reads by io_uring into as much
 *     memory (raw.h); only of whole files that hoist reads so;
 *   - hot, into fresh and into touched memory, beside pread by a thread for each processor, and
 *     memcpy from a map, without a bar: no copy out of a map is safe when the file shrinks;
 *   - rows of 16 KiB of 128, an eighth of a tensor along axis 1, hot, beside a pread for each row
 *     by two threads.  The tensor is made (made.h), with at most as many bytes as @file.
 *
 * Returns a STATUS_*. */
int bench_peers(struct bench_file *file, hoist_device *device, unsigned runs,
		struct results *results);

#endif
