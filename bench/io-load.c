/* SPDX-License-Identifier: MIT */
/* hoist bench load: whole loads, by either engine, cold and hot, to each device that is asked for;
 * beside one, tensors one by one, several targets, groups, and reads by hand.
 * The contract is in request.h.
 * Subjects alternate; figures are medians.  A load to the host goes to fresh memory. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/io-file.h"
#include "bench/request.h"
#include "bench/plot.h"
#include "bench/results.h"
#include "bench/io-calls.h"
#include "bench/io-give.h"
#include "bench/io-many.h"
#include "bench/io-map.h"
#include "bench/io-peers.h"
#include "bench/io-save.h"
#include "bench/ranks.h"
#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/fail.h"

#define DEFAULT_RUNS 3
#define QUICK_BYTES ((uint64_t)1 << 20)
#define MAX_DEVICES 8
#define N_ENGINES 3
#define N_STATES 2

static const struct {
	const char *name;
	enum hoist_engine engine;
} subjects[N_ENGINES] = {
	{"hoist", HOIST_ENGINE_AUTO}, /* as it chooses by itself */
	{"io_uring", HOIST_ENGINE_URING},
	{"threads", HOIST_ENGINE_THREADS},
};

static const char *const states[N_STATES] = {"cold", "hot"};

/* One work: a device and a state of the page cache. */
struct work {
	char label[64];
	char refused[N_ENGINES][256];	      /* why it cannot be done; "": it can */
	hoist_load_report reports[N_ENGINES]; /* of the last runs */
};

struct bench {
	const struct bench_request *request;
	struct bench_file file;
	struct results results;
	char *specs; /* --device, cut into its parts */
	hoist_device *devices[MAX_DEVICES];
	size_t n_devices;
	struct work works[MAX_DEVICES][N_STATES];
	unsigned runs;
	size_t n_done;
};

static int open_devices(struct bench *bench)
{
	char *save = NULL;
	bench->specs = strdup(bench->request->device);
	if (bench->specs == NULL)
		return fail_memory();
	for (char *spec = strtok_r(bench->specs, ",", &save); spec != NULL;
	     spec = strtok_r(NULL, ",", &save)) {
		if (bench->n_devices == MAX_DEVICES)
			return fail("--device %s: more than %d devices", bench->request->device,
				    MAX_DEVICES);
		int err = hoist_device_open(spec, &bench->devices[bench->n_devices]);
		if (err != 0)
			return fail_call(err);
		for (int hot = 0; hot < N_STATES; hot++)
			(void)snprintf(bench->works[bench->n_devices][hot].label,
				       sizeof bench->works[0][0].label, "%s to %.32s", states[hot],
				       spec);
		bench->n_devices++;
	}
	return bench->n_devices > 0 ? STATUS_OK : fail("--device names no device");
}

static void add(struct bench *bench, const struct work *work, int subject, double seconds)
{
	const hoist_load_report *report = &work->reports[subject];
	bench_file_add(&bench->results, &(struct bench_run){.work = work->label,
							    .subject = subjects[subject].name,
							    .compared = subject > 0,
							    .emulated = report->emulated != 0,
							    .bytes = report->bytes,
							    .seconds = seconds,
							    .cpu_ns = report->cpu_ns});
}

/* Finds out whether the engine works at all, and keeps the error's text if not. */
static void try_engine(struct bench *bench, size_t device, int subject)
{
	int err = bench_file_try(&bench->file, bench->devices[device], subjects[subject].engine);
	for (int hot = 0; hot < N_STATES && err != 0; hot++)
		(void)snprintf(bench->works[device][hot].refused[subject],
			       sizeof bench->works[0][0].refused[0], "%s", hoist_error());
}

static int measure(struct bench *bench, size_t device, int hot, int subject)
{
	struct work *work = &bench->works[device][hot];
	const struct bench_way way = {.engine = subjects[subject].engine, .hot = hot != 0};
	double seconds = 0;
	if (interrupted())
		return fail("stopped by a signal");
	progress_steps(work->label, subjects[subject].name, bench->n_done++,
		       bench->n_devices * N_STATES * N_ENGINES * bench->runs);
	if (work->refused[subject][0] != '\0')
		return STATUS_OK;
	int status = bench_file_load(&bench->file, bench->devices[device], NULL, &way, &seconds,
				     &work->reports[subject]);
	/* The files were not cold in this run, so its time counts for no engine. */
	if (status == STATUS_OK && !hot && bench->file.never_cold) {
		for (int i = 0; i < N_ENGINES; i++)
			(void)snprintf(work->refused[i], sizeof work->refused[i],
				       "the files stay in the page cache");
		return STATUS_OK;
	}
	if (status == STATUS_OK)
		add(bench, work, subject, seconds);
	return status;
}

/* The engines take turns, and each run begins with another one, so that no engine always comes
 * first. */
static int measure_all(struct bench *bench)
{
	int status = STATUS_OK;
	for (size_t device = 0; device < bench->n_devices; device++) {
		for (int subject = 1; subject < N_ENGINES; subject++)
			try_engine(bench, device, subject);
	}
	for (unsigned run = 0; run < bench->runs; run++) {
		for (size_t device = 0; device < bench->n_devices; device++) {
			for (int hot = 0; hot < N_STATES; hot++) {
				for (int i = 0; i < N_ENGINES && status == STATUS_OK; i++)
					status = measure(bench, device, hot,
							 (i + (int)run) % N_ENGINES);
			}
		}
	}
	return status;
}

static void add_refused(struct bench *bench)
{
	for (size_t device = 0; device < bench->n_devices; device++) {
		for (int hot = 0; hot < N_STATES; hot++) {
			const struct work *work = &bench->works[device][hot];
			for (int i = 0; i < N_ENGINES; i++) {
				char what[96];
				(void)snprintf(what, sizeof what, "%s, %s", work->label,
					       subjects[i].name);
				if (work->refused[i][0] != '\0')
					results_missing(&bench->results, what, work->refused[i]);
			}
		}
	}
}

/* --- which way the bytes took --- */

static void print_ways(const struct bench *bench)
{
	struct text a, b, c;
	(void)fputs("\nthe way that bytes took\n", stdout);
	for (size_t device = 0; device < bench->n_devices; device++) {
		for (int hot = 0; hot < N_STATES; hot++) {
			const struct work *work = &bench->works[device][hot];
			const hoist_load_report *report = &work->reports[0];
			if (work->refused[0][0] != '\0')
				continue;
			(void)printf("%-18s %s direct, %s cached, %s staged at most; %s; ",
				     work->label, format_bytes(report->direct_bytes, &a),
				     format_bytes(report->cached_bytes, &b),
				     format_bytes(report->staging_peak_bytes, &c), report->engine);
			print_escaped(stdout, report->io_reason);
			(void)putchar('\n');
		}
	}
	if (bench->file.dropped > 0)
		(void)printf("dropped from the page cache: %s\n",
			     format_bytes(bench->file.dropped, &a));
}

static json_t *ways_json(const struct bench *bench)
{
	json_t *ways = json_array();
	for (size_t device = 0; device < bench->n_devices; device++) {
		for (int hot = 0; hot < N_STATES; hot++) {
			for (int i = 0; i < N_ENGINES; i++) {
				const struct work *work = &bench->works[device][hot];
				const hoist_load_report *report = &work->reports[i];
				if (work->refused[i][0] != '\0')
					continue;
				json_t *way = json_pack(
					"{s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "work",
					json_text(work->label), "subject", subjects[i].name,
					"engine", report->engine, "engine_reason",
					json_text(report->engine_reason), "io_reason",
					json_text(report->io_reason), "direct_bytes",
					json_count(report->direct_bytes), "cached_bytes",
					json_count(report->cached_bytes), "mapped_bytes",
					json_count(report->mapped_bytes), "staging_peak_bytes",
					json_count(report->staging_peak_bytes));
				if (json_array_append_new(ways, way) != 0) {
					json_decref(ways);
					return NULL;
				}
			}
		}
	}
	return ways;
}

static int print_json(const struct bench *bench)
{
	return results_print_json(&bench->results,
				  json_pack("{s:o, s:o, s:o, s:o, s:b}", "file",
					    json_text(bench->request->path), "bytes",
					    json_count(bench->file.bytes), "dropped_bytes",
					    json_count(bench->file.dropped), "ways",
					    ways_json(bench), "quick", (int)bench->request->quick));
}

/* All that is measured on one device besides whole loads. */
static int measure_device(struct bench *bench, hoist_device *device)
{
	const char *spec = hoist_device_spec(device);
	struct results *results = &bench->results;
	int status = bench_give(&bench->file, device, spec, bench->runs, results);
	if (status == STATUS_OK)
		status = bench_many(bench->file.bytes, device, spec, bench->runs, results);
	if (status != STATUS_OK || strcmp(spec, "cpu") != 0)
		return status;
	status = bench_peers(&bench->file, device, bench->runs, results);
	return status == STATUS_OK ? bench_map(&bench->file, device, bench->runs, results) : status;
}

static int run(struct bench *bench)
{
	int svg = -1;
	if (plot_prepare(bench->request->svg, &svg) != STATUS_OK)
		return STATUS_FAILED;
	int status = measure_all(bench);
	for (size_t device = 0; device < bench->n_devices && status == STATUS_OK; device++)
		status = measure_device(bench, bench->devices[device]);
	if (status == STATUS_OK)
		status = bench_calls(&bench->results);
	if (status == STATUS_OK && bench->request->save)
		status = bench_save(bench->request, &bench->file, bench->devices[0], bench->runs,
				    &bench->results);
	add_refused(bench);
	progress_end();
	if (status == STATUS_OK && bench->request->json) {
		status = print_json(bench);
	} else if (status == STATUS_OK) {
		status = results_print(&bench->results, bench->request->bars);
		print_ways(bench);
	}
	if (status == STATUS_OK)
		status = plot_draw(&bench->results, bench->request->svg, svg);
	plot_end(svg);
	return status;
}

int bench_load(const struct bench_request *request)
{
	struct bench *bench = calloc(1, sizeof *bench);
	if (bench == NULL)
		return fail_memory();
	bench->request = request;
	bench->runs = request->runs != 0 ? request->runs : request->quick ? 1 : DEFAULT_RUNS;
	interrupt_watch();
	results_create("load", &bench->results);
	int status = bench_file_open(request, &bench->file);
	if (status == STATUS_OK && request->quick)
		status = bench_file_select(&bench->file, QUICK_BYTES);
	/* A group's ranks are forks: no driver is open yet, and no thread runs. */
	if (status == STATUS_OK)
		status = bench_ranks(&bench->file, bench->runs, NULL, &bench->results);
	if (status == STATUS_OK)
		status = open_devices(bench);
	if (status == STATUS_OK)
		status = run(bench);
	bench_file_close(&bench->file);
	for (size_t i = 0; i < bench->n_devices; i++)
		hoist_device_unref(bench->devices[i]);
	results_destroy(&bench->results);
	free(bench->specs);
	free(bench);
	return status;
}
