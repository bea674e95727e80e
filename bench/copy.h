/* SPDX-License-Identifier: MIT */
/* bench/copy.h - the parts of the copy benchmark. */
#ifndef HOIST_BENCH_COPY_H
#define HOIST_BENCH_COPY_H

#include "bench/bench.h"

/* Making views and buffers, and dropping them: nanoseconds a pair. */
void copy_objects(struct results *results, unsigned n_runs);

void copy_must(int rc, const char *what); /* exits if @rc is an error */

#endif
