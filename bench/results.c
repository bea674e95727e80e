/* SPDX-License-Identifier: MIT */
/* Rows, medians, ratios: as a table, as JSON.  The contract is in results.h. */
#include "config.h"

#include "bench/results.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/fail.h"
#include "cli/format.h"
#include "cli/json.h"

#define SUBJECT_HOIST_NAME "hoist"

void results_create(const char *bench, struct results *ret)
{
	*ret = (struct results){.bench = bench, .ratios = json_array(), .missing = json_array()};
	ret->failed = ret->ratios == NULL || ret->missing == NULL;
}

static void free_texts(struct result_row *row)
{
	free((char *)(uintptr_t)row->work);
	free((char *)(uintptr_t)row->subject);
	free((char *)(uintptr_t)row->unit);
}

void results_destroy(struct results *results)
{
	for (size_t i = 0; i < results->n_rows; i++)
		free_texts(&results->rows[i]);
	free(results->rows);
	json_decref(results->ratios);
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
	row->samples.n = 0;
	row->work = strdup(like->work);
	row->subject = strdup(like->subject);
	row->unit = strdup(like->unit);
	if (row->work == NULL || row->subject == NULL || row->unit == NULL) {
		free_texts(row);
		return NULL;
	}
	results->n_rows++;
	return row;
}

void results_add(struct results *results, const struct result_row *like, double value)
{
	const struct result_row *found =
		results_find(results, like->work, like->threads, like->subject, like->unit);
	struct result_row *row =
		found != NULL ? &results->rows[found - results->rows] : append_row(results, like);
	if (row == NULL)
		results->failed = true;
	else
		samples_add(&row->samples, value);
}

/* A row of one thread. */
static struct result_row plain_row(const char *work, const char *subject, const char *unit)
{
	return (struct result_row){.work = work,
				   .subject = subject,
				   .unit = unit,
				   .threads = 1,
				   .more = strcmp(unit, "GB/s") == 0};
}

void results_peer(struct results *results, const char *work, const char *subject, double rate)
{
	const struct result_row row = {.work = work,
				       .subject = subject,
				       .unit = "GB/s",
				       .threads = 1,
				       .compared = true,
				       .more = true};
	results_add(results, &row, rate / 1e9);
}

void results_samples(struct results *results, const char *work, const char *subject,
		     const char *unit, const struct samples *samples)
{
	const struct result_row row = plain_row(work, subject, unit);
	for (size_t i = 0; i < samples->n; i++)
		results_add(results, &row, samples->values[i]);
}

void results_rates(struct results *results, const char *work, const char *subject, double bytes,
		   const struct samples *seconds)
{
	const struct result_row row = plain_row(work, subject, "GB/s");
	for (size_t i = 0; i < seconds->n; i++)
		results_add(results, &row, bytes / seconds->values[i] / 1e9);
}

void results_value(struct results *results, const char *work, const char *subject, double value,
		   const char *unit)
{
	const struct result_row row = plain_row(work, subject, unit);
	results_add(results, &row, value);
}

void results_bar(struct results *results, const char *work, const char *subject, double value,
		 const char *unit, bool more, double bar)
{
	const struct result_row row = {.work = work,
				       .subject = subject,
				       .unit = unit,
				       .threads = 1,
				       .more = more,
				       .has_bar = true,
				       .bar = bar};
	results_add(results, &row, value);
}

static json_t *ratio_json(const char *work, int threads, const char *against, double ratio)
{
	return json_pack("{s:o, s:i, s:o, s:f}", "work", json_text(work), "threads", threads,
			 "against", json_text(against), "ratio", ratio);
}

void results_ratio(struct results *results, const char *work, int threads, const char *against,
		   double ratio)
{
	json_t *item = ratio_json(work, threads, against, ratio);
	results->failed |= json_array_append_new(results->ratios, item) != 0;
}

void results_missing(struct results *results, const char *subject, const char *reason)
{
	json_t *item =
		json_pack("{s:o, s:o}", "subject", json_text(subject), "reason", json_text(reason));
	results->failed |= json_array_append_new(results->missing, item) != 0;
}

double results_median(const struct result_row *row)
{
	return samples_median(&row->samples);
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

static bool is_met(const struct result_row *row)
{
	double value = results_median(row);
	return row->more ? value >= row->bar : value <= row->bar;
}

/* Columns of the table. */
struct widths {
	int work;
	int subject;
};

static int wider(int width, const char *text)
{
	int length = (int)strlen(text);
	return length > width ? length : width;
}

static struct widths widths_of(const struct results *results)
{
	struct widths widths = {.work = 24, .subject = 16};
	for (size_t i = 0; i < results->n_rows; i++) {
		widths.work = wider(widths.work, results->rows[i].work);
		widths.subject = wider(widths.subject, results->rows[i].subject);
	}
	return widths;
}

/* A row that continues the work above leaves that column empty. */
static void print_row(const struct results *results, const struct result_row *row,
		      const struct result_row *above, const struct widths *widths, bool bars)
{
	struct text value, least, most;
	struct samples sorted = row->samples;
	char spread[2 * sizeof(struct text) + 3] = "";
	double ratio = 0;
	bool again = above != NULL && above->threads == row->threads &&
		     strcmp(above->work, row->work) == 0;
	char threads[16] = "";
	if (!again)
		(void)snprintf(threads, sizeof threads, "%d", row->threads);
	samples_sort(&sorted);
	if (sorted.n > 1)
		(void)snprintf(spread, sizeof spread, "%s..%s",
			       format_value(sorted.values[0], &least),
			       format_value(sorted.values[sorted.n - 1], &most));
	(void)printf("%-*s %2s  %-*s %8s  %-17s %-7s", widths->work, again ? "" : row->work,
		     threads, widths->subject, row->subject,
		     format_value(results_median(row), &value), spread, row->unit);
	if (ratio_of(results, row, &ratio))
		(void)printf("  %.2f x hoist's", row->more ? 1 / ratio : ratio);
	if (row->has_bar && bars)
		(void)printf("  %s %g: %s", row->more ? "at least" : "at most", row->bar,
			     is_met(row) ? "met" : "NOT MET");
	(void)printf("%s\n", row->emulated ? "  (emulated)" : "");
}

int results_print(const struct results *results, bool bars)
{
	size_t i;
	const json_t *item;
	struct widths widths = widths_of(results);
	if (results->failed)
		return fail_memory();
	(void)printf("%-*s %2s  %-*s %8s  %-17s %-7s\n", widths.work, "WORK", "TH", widths.subject,
		     "SUBJECT", "MEDIAN", "LEAST..MOST", "UNIT");
	for (i = 0; i < results->n_rows; i++)
		print_row(results, &results->rows[i], i > 0 ? &results->rows[i - 1] : NULL, &widths,
			  bars);
	json_array_foreach(results->ratios, i, item)(void)
		printf("%s: hoist is %.2f x %s\n", json_string_value(json_object_get(item, "work")),
		       json_real_value(json_object_get(item, "ratio")),
		       json_string_value(json_object_get(item, "against")));
	json_array_foreach(results->missing, i, item)
	{
		(void)printf("not measured: %s: ",
			     json_string_value(json_object_get(item, "subject")));
		print_escaped(stdout, json_string_value(json_object_get(item, "reason")));
		(void)putchar('\n');
	}
	return STATUS_OK;
}

static json_t *row_json(const struct result_row *row)
{
	struct samples sorted = row->samples;
	samples_sort(&sorted);
	return json_pack("{s:o, s:i, s:o, s:f, s:s, s:f, s:f, s:i, s:b, s:o, s:b, s:o}", "work",
			 json_text(row->work), "threads", row->threads, "subject",
			 json_text(row->subject), "value", results_median(row), "unit", row->unit,
			 "least", sorted.values[0], "most", sorted.values[sorted.n - 1], "runs",
			 (int)sorted.n, "emulated", (int)row->emulated, "bar",
			 row->has_bar ? json_real(row->bar) : json_null(), "more", (int)row->more,
			 "met", row->has_bar ? json_boolean(is_met(row)) : json_null());
}

json_t *results_json(const struct results *results)
{
	json_t *rows = json_array();
	json_t *ratios = json_copy(results->ratios);
	bool good = rows != NULL && ratios != NULL && !results->failed;
	for (size_t i = 0; i < results->n_rows && good; i++) {
		const struct result_row *row = &results->rows[i];
		double ratio = 0;
		good = json_array_append_new(rows, row_json(row)) == 0;
		if (good && ratio_of(results, row, &ratio))
			good = json_array_append_new(ratios, ratio_json(row->work, row->threads,
									row->subject, ratio)) == 0;
	}
	if (!good) {
		json_decref(rows);
		json_decref(ratios);
		return NULL;
	}
	return json_pack("{s:s, s:o, s:o, s:O}", "bench", results->bench, "rows", rows, "ratios",
			 ratios, "missing", results->missing);
}

int results_print_json(const struct results *results, json_t *more)
{
	json_t *object = results_json(results);
	if (object != NULL && (more == NULL || json_object_update(object, more) != 0)) {
		json_decref(object);
		object = NULL;
	}
	json_decref(more);
	return json_print(object, true);
}
