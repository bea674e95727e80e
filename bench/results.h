/* SPDX-License-Identifier: MIT */
/* bench/results.h - the results of a benchmark: samples in; a table, JSON or an image (plot.h) out.
 *
 * Every benchmark uses this, `hoist bench` and the programs of this folder alike.
 *
 *   row      a work, its threads, a subject and a unit.  Samples of the same row are runs of the
 *            same thing; the row's value is their median.  Less is better, unless the row says
 *            that more is.  A bar says what the value should be
 *   ratio    hoist beside a peer, above 1 hoist is better: of two rows where the peer's says that
 *            it is compared, or given
 *   missing  what was not measured, and why
 *
 * Nothing here fails before the end: once memory is short all is passed over, and the functions
 * that print say so.
 */
#ifndef HOIST_BENCH_RESULTS_H
#define HOIST_BENCH_RESULTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "bench/samples.h"

struct result_row {
	const char *work; /* texts are copied */
	const char *subject;
	const char *unit;
	int threads;
	bool emulated;
	bool compared; /* with the row of "hoist": a ratio is given */
	bool more;     /* more is better */
	bool has_bar;  /* the value should be at most (more: at least): */
	double bar;
	struct samples samples;
};

struct results {
	const char *bench;	 /* "alloc" */
	struct result_row *rows; /* in the order of their first samples */
	size_t n_rows;
	json_t *ratios;	 /* those that were given */
	json_t *missing; /* [{"subject", "reason"}] */
	bool failed;	 /* for lack of memory */
};

void results_create(const char *bench, struct results *ret);
void results_destroy(struct results *results);

/* A sample of the row that agrees with @row in its texts and threads; a new one if none does. */
void results_add(struct results *results, const struct result_row *row, double value);

/* A sample of a peer, whose row has one thread: @rate bytes a second, in GB/s. */
void results_peer(struct results *results, const char *work, const char *subject, double rate);

/* All of @samples, as a row of one thread; more is better in GB/s, less in any other unit. */
void results_samples(struct results *results, const char *work, const char *subject,
		     const char *unit, const struct samples *samples);

/* Likewise the rates in GB/s at which @bytes took @seconds. */
void results_rates(struct results *results, const char *work, const char *subject, double bytes,
		   const struct samples *seconds);

/* Likewise one value, which samples of several rows gave. */
void results_value(struct results *results, const char *work, const char *subject, double value,
		   const char *unit);

/* One value that should be at most @bar, or with @more at least that. */
void results_bar(struct results *results, const char *work, const char *subject, double value,
		 const char *unit, bool more, double bar);

/* @ratio is already the right way round: above 1 hoist is better. */
void results_ratio(struct results *results, const char *work, int threads, const char *against,
		   double ratio);

void results_missing(struct results *results, const char *subject, const char *reason);

/* The row; NULL if there is none. */
const struct result_row *results_find(const struct results *results, const char *work, int threads,
				      const char *subject, const char *unit);

double results_median(const struct result_row *row);

/* The table; @bars: with the bars that rows have.  Returns a STATUS_*. */
int results_print(const struct results *results, bool bars);

/* One JSON object: "bench", "rows", "ratios", "missing", and the members of @more, which is taken
 * (NULL: building it failed).  Returns a STATUS_*. */
int results_print_json(const struct results *results, json_t *more);

/* The object alone; NULL without memory. */
json_t *results_json(const struct results *results);

#endif
