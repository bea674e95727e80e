/* SPDX-License-Identifier: MIT */
/* bench/results.h - what a benchmark found: samples in, a table or JSON out.
 *
 * A row is a work, its threads, a subject and a unit; samples of the same row are runs of the
 * same thing, and the row's value is their median.  Less is better, except where a row says more.
 */
#ifndef HOIST_BENCH_RESULTS_H
#define HOIST_BENCH_RESULTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define RESULTS_MAX_RUNS 99

struct result_row {
	const char *work; /* texts are copied, but for subject and unit, which stay */
	const char *subject;
	const char *unit;
	int threads;
	bool emulated;
	bool compared; /* with the row of "hoist": a ratio is given */
	bool more;     /* is better */
	bool has_bar;  /* hoist's value should be at most (more: at least): */
	double bar;
	size_t n;
	double samples[RESULTS_MAX_RUNS];
};

struct results {
	const char *bench;	 /* "alloc" */
	struct result_row *rows; /* in the order of their first samples */
	size_t n_rows;
	json_t *missing; /* [{"subject", "reason"}] */
};

int results_create(const char *bench, struct results *ret); /* a STATUS_* */
void results_destroy(struct results *results);

/* A sample of the row that agrees with @row in its texts and threads; a new one if none does.
 * Returns a STATUS_*. */
int results_add(struct results *results, const struct result_row *row, double value);

/* @subject was not measured.  Returns a STATUS_*. */
int results_missing(struct results *results, const char *subject, const char *reason);

/* The row; NULL if there is none. */
const struct result_row *results_find(const struct results *results, const char *work, int threads,
				      const char *subject, const char *unit);

double results_median(const struct result_row *row); /* of one sample or more */

void results_print(const struct results *results);

/* {"bench", "rows", "ratios", "missing"}; NULL without memory. */
json_t *results_json(const struct results *results);

#endif
