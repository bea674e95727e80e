/* SPDX-License-Identifier: MIT */
/* bench/io-save.h - `hoist bench load --save`: the same tensors, back to a disk. */
#ifndef HOIST_BENCH_IO_SAVE_H
#define HOIST_BENCH_IO_SAVE_H

#include "bench/io-file.h"
#include "bench/results.h"

/* Loads what is selected to @device, saves it @runs times by either engine, to --to or beside the
 * files that it came from, and removes what was written.  Returns a STATUS_*. */
int bench_save(const struct bench_request *request, struct bench_file *file, hoist_device *device,
	       unsigned runs, struct results *results);

#endif
