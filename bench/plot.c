/* SPDX-License-Identifier: MIT */
/* Results as an SVG image: bars, a group for each work, a colour for each subject.  The contract is
 * in plot.h. */
#include "config.h"

#include "bench/plot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/child.h"
#include "cli/fail.h"

#define MAX_SERIES 12

/* Rows whose units begin alike share an axis. */
static const struct panel {
	const char *unit; /* "ns" takes ns/op and ns/pair */
	const char *title;
	const char *scale; /* of the figures' axis */
} panels[] = {
	{"ns/", "nanoseconds for an operation, or a pair of allocation and free; less is better",
	 "set logscale y\n"},
	{"ms", "milliseconds for 1 GiB; less is better", "unset logscale y\nset yrange [0:*]\n"},
	{"GB/s", "GB/s; more is better", "unset logscale y\nset yrange [0:*]\n"},
};

#define N_PANELS (sizeof panels / sizeof panels[0])

static bool belongs(const struct panel *panel, const struct result_row *row)
{
	return strncmp(row->unit, panel->unit, strlen(panel->unit)) == 0;
}

/* The subjects of @panel, in the order of their first rows. */
static size_t series_of(const struct results *results, const struct panel *panel,
			const char *series[MAX_SERIES])
{
	size_t n = 0;
	for (size_t i = 0; i < results->n_rows; i++) {
		const struct result_row *row = &results->rows[i];
		size_t j = 0;
		while (j < n && strcmp(series[j], row->subject) != 0)
			j++;
		if (j == n && n < MAX_SERIES && belongs(panel, row))
			series[n++] = row->subject;
	}
	return n;
}

/* Writes one line for each work: its name, then a column for each of the series, "?" where a figure
 * is missing. */
static void write_data(FILE *out, const struct results *results, const struct panel *panel,
		       const char *const *series, size_t n)
{
	for (size_t i = 0; i < results->n_rows; i++) {
		const struct result_row *first = &results->rows[i];
		const struct result_row *row = NULL;
		bool again = false;
		for (size_t j = 0; j < i && !again; j++)
			again = results->rows[j].threads == first->threads &&
				strcmp(results->rows[j].work, first->work) == 0 &&
				strcmp(results->rows[j].unit, first->unit) == 0;
		if (again || !belongs(panel, first))
			continue;
		(void)fprintf(out, "\"%s, %d thr.%s\"", first->work, first->threads,
			      first->emulated ? " (emulated)" : "");
		for (size_t j = 0; j < n; j++) {
			row = results_find(results, first->work, first->threads, series[j],
					   first->unit);
			if (row != NULL)
				(void)fprintf(out, " %g", results_median(row));
			else
				(void)fputs(" ?", out);
		}
		(void)fputc('\n', out);
	}
}

static void write_panel(FILE *out, const struct results *results, const struct panel *panel)
{
	const char *series[MAX_SERIES];
	size_t n = series_of(results, panel, series);
	if (n == 0)
		return;
	(void)fputs("$data << END\n", out);
	write_data(out, results, panel, series, n);
	(void)fprintf(out, "END\n%sset title '%s'\nplot", panel->scale, panel->title);
	for (size_t i = 0; i < n; i++)
		(void)fprintf(out, "%s $data using %zu%s title '%s'", i > 0 ? "," : "", i + 2,
			      i == 0 ? ":xtic(1)" : "", series[i]);
	(void)fputc('\n', out);
}

static void write_script(FILE *out, const void *context)
{
	const struct results *results = context;
	const char *series[MAX_SERIES];
	unsigned n = 0;
	for (size_t i = 0; i < N_PANELS; i++)
		n += series_of(results, &panels[i], series) > 0;
	(void)fprintf(out,
		      "set terminal svg size 1400,%u noenhanced font 'sans,12' background 'white'\n"
		      "set style data histograms\n"
		      "set style histogram clustered gap 1\n"
		      "set style fill solid 0.9 noborder\n"
		      "set datafile missing '?'\n"
		      "set grid y\n"
		      "set xtics rotate by -30\n"
		      "set key outside right top\n"
		      "set rmargin 26\n"
		      "set multiplot layout %u,1\n",
		      n * 520, n);
	for (size_t i = 0; i < N_PANELS; i++)
		write_panel(out, results, &panels[i]);
}

static int run_gnuplot(const char *const *argv, const char *input, int output,
		       struct child_result *result)
{
	struct child child = {.argv = argv, .input = input, .output = output};
	if (child_run(&child, result) != STATUS_OK)
		return STATUS_FAILED;
	if (result->status == 127)
		return fail("drawing needs gnuplot, which is not here; install gnuplot-nox");
	return STATUS_OK;
}

int plot_prepare(const char *path, int *ret)
{
	static const char *const argv[] = {"gnuplot", "--version", NULL};
	struct child_result result;
	*ret = -1;
	if (path == NULL)
		return STATUS_OK;
	if (run_gnuplot(argv, NULL, -1, &result) != STATUS_OK)
		return STATUS_FAILED;
	*ret = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
	return *ret >= 0 ? STATUS_OK : fail("%s: %s", path, strerror(errno));
}

void plot_end(int fd)
{
	if (fd >= 0)
		(void)close(fd);
}

static int run_script(const char *script, const char *path, int fd)
{
	static const char *const argv[] = {"gnuplot", "-", NULL};
	struct child_result result;
	if (ftruncate(fd, 0) != 0)
		return fail("%s: %s", path, strerror(errno));
	int status = run_gnuplot(argv, script, fd, &result);
	if (status == STATUS_OK && result.status != 0)
		return fail("gnuplot ended with status %d: %s", result.status,
			    child_last_line(&result));
	return status;
}

int plot_run(void (*make)(FILE *out, const void *context), const void *context, const char *path,
	     int fd)
{
	char *script = NULL;
	size_t length = 0;
	if (fd < 0)
		return STATUS_OK;
	FILE *out = open_memstream(&script, &length);
	if (out == NULL)
		return fail_memory();
	make(out, context);
	if (fclose(out) != 0 || script == NULL) {
		free(script);
		return fail_memory();
	}
	int status = run_script(script, path, fd);
	free(script);
	return status;
}

int plot_draw(const struct results *results, const char *path, int fd)
{
	const char *series[MAX_SERIES];
	size_t n = 0;
	for (size_t i = 0; i < N_PANELS; i++)
		n += series_of(results, &panels[i], series);
	if (fd < 0)
		return STATUS_OK;
	/* This check comes before plot_run(), which empties the file. */
	if (n == 0)
		return fail("%s: nothing was measured in time, so there is nothing to draw", path);
	return plot_run(write_script, results, path, fd);
}
