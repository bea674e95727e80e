/* SPDX-License-Identifier: MIT */
/* Rows, medians, ratios: as a table, as JSON. */
#include "config.h"

#include "bench/results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/format.h"
#include "cli/json.h"
#include "cli/fail.h"

#define SUBJECT_HOIST_NAME "hoist"

int results_create(const char *bench, struct results *ret)
{
	*ret = (struct results){.bench = bench, .missing = json_array()};
	return ret->missing != NULL ? STATUS_OK : fail_memory();
}

void results_destroy(struct results *results)
{
	for (size_t i = 0; i < results->n_rows; i++)
		free((char *)(uintptr_t)results->rows[i].work);
	free(results->rows);
	json_decref(results->missing);
	*results = (struct results){0};
}

const struct result_row *results_find(const struct results *results, const char *work, int threads,
				      const char *subject, const char *unit)
{
	for (size_t i = 0; i < results->n_rows; i++) {
		const struct result_row *row = &results->rows[i];
		if (row->threads == threads && strcmp(row->work, work) == 0 &&
		    strcmp(row->subject, subject) == 0 && strcmp(row->unit, unit) == 0)
			return row;
	}
	return NULL;
}

/* Room for one more row, empty but for its texts and flags. */
static struct result_row *append_row(struct results *results, const struct result_row *like)
{
	struct result_row *rows =
		reallocarray(results->rows, results->n_rows + 1, sizeof *results->rows);
	if (rows == NULL)
		return NULL;
	results->rows = rows;
	struct result_row *row = &rows[results->n_rows];
	*row = *like;
	row->n = 0;
	row->work = strdup(like->work);
	if (row->work == NULL)
		return NULL;
	results->n_rows++;
	return row;
}

int results_add(struct results *results, const struct result_row *like, double value)
{
	const struct result_row *found =
		results_find(results, like->work, like->threads, like->subject, like->unit);
	struct result_row *row =
		found != NULL ? &results->rows[found - results->rows] : append_row(results, like);
	if (row == NULL)
		return fail_memory();
	if (row->n < RESULTS_MAX_RUNS)
		row->samples[row->n++] = value;
	return STATUS_OK;
}

int results_missing(struct results *results, const char *subject, const char *reason)
{
	json_t *item =
		json_pack("{s:o, s:o}", "subject", json_text(subject), "reason", json_text(reason));
	return json_array_append_new(results->missing, item) == 0 ? STATUS_OK : fail_memory();
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;
	return (x > y) - (x < y);
}

static void sort_samples(const struct result_row *row, double sorted[RESULTS_MAX_RUNS])
{
	memcpy(sorted, row->samples, row->n * sizeof sorted[0]);
	qsort(sorted, row->n, sizeof sorted[0], compare);
}

double results_median(const struct result_row *row)
{
	double sorted[RESULTS_MAX_RUNS];
	sort_samples(row, sorted);
	return row->n % 2 != 0 ? sorted[row->n / 2]
			       : (sorted[row->n / 2 - 1] + sorted[row->n / 2]) / 2;
}

/* How much better hoist is than @row: false if that cannot be said. */
static bool ratio_of(const struct results *results, const struct result_row *row, double *ret)
{
	if (!row->compared)
		return false;
	const struct result_row *hoist =
		results_find(results, row->work, row->threads, SUBJECT_HOIST_NAME, row->unit);
	if (hoist == NULL || results_median(hoist) <= 0 || results_median(row) <= 0)
		return false;
	*ret = row->more ? results_median(hoist) / results_median(row)
			 : results_median(row) / results_median(hoist);
	return true;
}

/* "12.34", "1235": four digits that count. */
static const char *format_value(double value, struct text *ret)
{
	int digits = value >= 999.5 ? 0 : value >= 99.95 ? 1 : value >= 9.995 ? 2 : 3;
	(void)snprintf(ret->chars, sizeof ret->chars, "%.*f", digits, value);
	return ret->chars;
}

static void print_row(const struct results *results, const struct result_row *row,
		      const struct result_row *above)
{
	struct text value, least, most;
	char spread[2 * sizeof(struct text) + 3] = "";
	double sorted[RESULTS_MAX_RUNS];
	double ratio = 0;
	bool again = above != NULL && above->threads == row->threads &&
		     strcmp(above->work, row->work) == 0;
	char threads[16] = "";
	if (!again)
		(void)snprintf(threads, sizeof threads, "%d", row->threads);
	sort_samples(row, sorted);
	if (row->n > 1)
		(void)snprintf(spread, sizeof spread, "%s..%s", format_value(sorted[0], &least),
			       format_value(sorted[row->n - 1], &most));
	(void)printf("%-42s %2s  %-16s %8s  %-17s %-7s", again ? "" : row->work, threads,
		     row->subject, format_value(results_median(row), &value), spread, row->unit);
	if (ratio_of(results, row, &ratio))
		(void)printf("  %.2f x hoist's", row->more ? 1 / ratio : ratio);
	if (row->has_bar && row->more)
		(void)printf("  at least %g: %s", row->bar,
			     results_median(row) >= row->bar ? "met" : "NOT MET");
	else if (row->has_bar)
		(void)printf("  at most %g: %s", row->bar,
			     results_median(row) <= row->bar ? "met" : "NOT MET");
	(void)printf("%s\n", row->emulated ? "  (emulated)" : "");
}

void results_print(const struct results *results)
{
	size_t i;
	const json_t *item;
	(void)printf("%-42s %2s  %-16s %8s  %-17s %-7s\n", "WORK", "TH", "SUBJECT", "MEDIAN",
		     "LEAST..MOST", "UNIT");
	for (i = 0; i < results->n_rows; i++)
		print_row(results, &results->rows[i], i > 0 ? &results->rows[i - 1] : NULL);
	json_array_foreach(results->missing, i, item)
	{
		(void)printf("not measured: %s: ",
			     json_string_value(json_object_get(item, "subject")));
		print_escaped(stdout, json_string_value(json_object_get(item, "reason")));
		(void)putchar('\n');
	}
}

static json_t *row_json(const struct result_row *row)
{
	double sorted[RESULTS_MAX_RUNS];
	sort_samples(row, sorted);
	return json_pack("{s:s, s:i, s:s, s:f, s:s, s:f, s:f, s:i, s:b, s:o}", "work", row->work,
			 "threads", row->threads, "subject", row->subject, "value",
			 results_median(row), "unit", row->unit, "least", sorted[0], "most",
			 sorted[row->n - 1], "runs", (int)row->n, "emulated", (int)row->emulated,
			 "bar", row->has_bar ? json_real(row->bar) : json_null());
}

json_t *results_json(const struct results *results)
{
	json_t *rows = json_array();
	json_t *ratios = json_array();
	bool good = rows != NULL && ratios != NULL;
	for (size_t i = 0; i < results->n_rows && good; i++) {
		const struct result_row *row = &results->rows[i];
		double ratio = 0;
		good = json_array_append_new(rows, row_json(row)) == 0;
		if (good && ratio_of(results, row, &ratio))
			good = json_array_append_new(
				       ratios, json_pack("{s:s, s:i, s:s, s:f}", "work", row->work,
							 "threads", row->threads, "against",
							 row->subject, "ratio", ratio)) == 0;
	}
	if (!good) {
		json_decref(rows);
		json_decref(ratios);
		return NULL;
	}
	return json_pack("{s:s, s:o, s:o, s:O}", "bench", results->bench, "rows", rows, "ratios",
			 ratios, "missing", results->missing);
}
