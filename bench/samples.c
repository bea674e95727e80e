/* SPDX-License-Identifier: MIT */
/* The median of values that were measured several times.  The contract is in samples.h. */
#include "config.h"

#include "bench/samples.h"

#include <stdlib.h>

void samples_add(struct samples *samples, double value)
{
	if (samples->n < MAX_RUNS)
		samples->values[samples->n++] = value;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;
	return (x > y) - (x < y);
}

void samples_sort(struct samples *samples)
{
	qsort(samples->values, samples->n, sizeof samples->values[0], compare);
}

double samples_median(const struct samples *samples)
{
	struct samples sorted = *samples;
	size_t n = sorted.n;
	if (n == 0)
		return 0;
	samples_sort(&sorted);
	return n % 2 != 0 ? sorted.values[n / 2]
			  : (sorted.values[n / 2 - 1] + sorted.values[n / 2]) / 2;
}
