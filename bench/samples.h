/* SPDX-License-Identifier: MIT */
/* bench/samples.h - times, and the median of several. */
#ifndef HOIST_BENCH_SAMPLES_H
#define HOIST_BENCH_SAMPLES_H

#include <stddef.h>
#include <stdint.h>

#include "cli/clock.h"

#define MAX_RUNS 99

static inline double clock_seconds(void)
{
	return (double)clock_ns() * 1e-9;
}

/* Values of one thing measured several times. */
struct samples {
	double values[MAX_RUNS];
	size_t n;
};

void samples_add(struct samples *samples, double value); /* at most MAX_RUNS */
void samples_sort(struct samples *samples);
double samples_median(const struct samples *samples); /* 0 if there are none */

#endif
