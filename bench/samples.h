/* SPDX-License-Identifier: MIT */
/* bench/samples.h - times, and the median of several. */
#ifndef HOIST_BENCH_SAMPLES_H
#define HOIST_BENCH_SAMPLES_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define MAX_RUNS 99

/* The monotonic clock. */
static inline uint64_t clock_ns(void)
{
	struct timespec now = {0};
	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

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
