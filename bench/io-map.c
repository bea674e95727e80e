/* SPDX-License-Identifier: MIT */
/* Loads that map, beside plain loads.  The contract is in io-map.h. */
#include "config.h"

#include "bench/io-map.h"

#include "cli/fail.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

#define N_WORKS 4

static const char plain[] = "a plain load";
static const char map[] = "a map, touched";
static const char populated[] = "cold to cpu, populated map";
static const char cold[] = "cold to cpu, adaptive, touched";
static const char half[] = "half-cached to cpu, adaptive, touched";
static const char hot[] = "hot to cpu, adaptive, touched";

/* For each work: a plain load, and the other one. */
static const struct {
	const char *name;
	struct bench_way ways[2];
} works[N_WORKS] = {
	{populated, {{.hot = false}, {.io = HOIST_IO_MAP, .flags = HOIST_LOAD_POPULATE}}},
	{cold, {{.touch = true}, {.io = HOIST_IO_ADAPTIVE, .touch = true}}},
	{half,
	 {{.half = true, .touch = true}, {.io = HOIST_IO_ADAPTIVE, .half = true, .touch = true}}},
	{hot,
	 {{.hot = true, .touch = true}, {.io = HOIST_IO_ADAPTIVE, .hot = true, .touch = true}}},
};

static int measure(struct bench_file *file, hoist_device *device, int work, int other,
		   struct results *results)
{
	double seconds = 0;
	hoist_load_report report;
	if (interrupted())
		return fail("stopped by a signal");
	int status =
		bench_file_load(file, device, NULL, &works[work].ways[other], &seconds, &report);
	if (status == STATUS_OK && (!file->never_cold || works[work].name == hot))
		bench_file_add(results, &(struct bench_run){.work = works[work].name,
							    .subject = other ? "hoist" : plain,
							    .compared = !other,
							    .bytes = report.bytes,
							    .seconds = seconds,
							    .cpu_ns = report.cpu_ns});
	return status;
}

/* A map by hand of the hot files. */
static int measure_map(struct bench_file *file, struct results *results)
{
	double seconds = 0;
	int status = bench_file_touch(file, &seconds);
	if (status == STATUS_OK)
		results_peer(results, hot, map, (double)file->bytes / seconds);
	return status;
}

/* The median time of a byte, in ns; 0: it was not measured. */
static double time_of(const struct results *results, const char *work, const char *subject)
{
	const struct result_row *row = results_find(results, work, 1, subject, "GB/s");
	return row != NULL && results_median(row) > 0 ? 1 / results_median(row) : 0;
}

static void add_bars(struct results *results)
{
	double mean = (time_of(results, cold, "hoist") + time_of(results, hot, "hoist")) / 2;
	const char *const limited[] = {populated, cold};
	results_bar(results, hot, "time / the map's",
		    time_of(results, hot, "hoist") / time_of(results, hot, map), "x", false, 1.2);
	if (time_of(results, cold, "hoist") == 0)
		return;
	for (int i = 0; i < 2; i++)
		results_bar(results, limited[i], "time / the plain load's",
			    time_of(results, limited[i], "hoist") /
				    time_of(results, limited[i], plain),
			    "x", false, 1.1);
	results_bar(results, half, "time / the mean of hot and cold",
		    time_of(results, half, "hoist") / mean, "x", false, 1.05);
}

int bench_map(struct bench_file *file, hoist_device *device, unsigned runs, struct results *results)
{
	int status = STATUS_OK;
	for (unsigned run = 0; run < runs && status == STATUS_OK; run++) {
		for (int i = 0; i < 2 * N_WORKS && status == STATUS_OK; i++) {
			/* Each round begins with the other one of each two. */
			int other = (i + (int)run) % 2;
			progress_steps("maps", works[i / 2].name,
				       (size_t)run * 2 * N_WORKS + (size_t)i,
				       (size_t)runs * 2 * N_WORKS);
			status = measure(file, device, i / 2, other, results);
		}
		if (status == STATUS_OK)
			status = measure_map(file, results);
	}
	if (file->never_cold)
		results_missing(results, "cold maps", "the files stay in the page cache");
	if (status == STATUS_OK)
		add_bars(results);
	return status;
}
