/* SPDX-License-Identifier: MIT */
/* The allocator beside others: every subject of a measurement in turn, each in a process of
 * its own, and that as often as there are runs.  The contract is in request.h. */
#include "config.h"

#include "bench/request.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/child.h"
#include "bench/plot.h"
#include "bench/results.h"
#include "bench/alloc-work.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/fail.h"

#define DEFAULT_RUNS 5

/* The environment for emulated devices: their memory is address space, of which little is ever
 * touched. */
#define EMULATE "HOIST_EMULATE=cuda:1"
#define EMULATE_MEMORY "HOIST_EMULATE_MEMORY=1T"
#define EMULATED_DEVICE "cuda:0"

struct bench {
	const struct bench_request *request;
	struct results results;
	unsigned runs;
	int n_processors;
	unsigned absent;   /* SUBJECT() of those that cannot be measured here */
	size_t n_children; /* for the progress: done, */
	size_t n_all;	   /* and in all */
	size_t n_failed;
};

static bool selected(const struct bench *bench, const struct measurement *measurement)
{
	const struct bench_request *request = bench->request;
	if (request->quick && !measurement->quick)
		return false;
	for (size_t i = 0; i < request->n_works; i++) {
		if (strcmp(request->works[i], measurement->name) == 0)
			return true;
	}
	return request->n_works == 0;
}

static unsigned runs_of(const struct bench *bench, const struct measurement *measurement)
{
	return measurement->exact ? 1 : bench->runs;
}

static bool measured(const struct bench *bench, const struct measurement *measurement,
		     unsigned subject)
{
	return (measurement->subjects & ~bench->absent & 1u << subject) != 0;
}

/* --- one child --- */

/* A worker is this program again: so each measurement begins in a fresh process, and an allocator
 * can be preloaded. */
static int run_worker(const struct bench *bench, size_t index, unsigned subject,
		      struct child_result *result)
{
	char spec[32];
	char preload[64];
	const char *settings[4];
	size_t n = 0;
	bool emulate = strcmp(bench->request->device, "cpu") == 0;
	(void)snprintf(spec, sizeof spec, "%zu,%u,%d", index, subject, bench->request->quick);
	if (subjects[subject].package != NULL) {
		(void)snprintf(preload, sizeof preload, "LD_PRELOAD=%s", subjects[subject].library);
		settings[n++] = preload;
	}
	if (emulate) {
		settings[n++] = EMULATE;
		settings[n++] = EMULATE_MEMORY;
	}
	settings[n] = NULL;
	const char *const argv[] = {"/proc/self/exe",
				    "bench",
				    "worker",
				    spec,
				    "--device",
				    emulate ? EMULATED_DEVICE : bench->request->device,
				    NULL};
	struct child child = {.argv = argv, .settings = settings, .output = -1};
	return child_run(&child, result);
}

static void missing(struct bench *bench, unsigned subject, const char *reason)
{
	bench->absent |= 1u << subject;
	results_missing(&bench->results, subjects[subject].name, reason);
}

/* Finds out whether the other allocators are there.  If malloc is not the C library's even
 * without them, as under a sanitizer, none of them can be measured. */
static int find_peers(struct bench *bench)
{
	static const char word[] = "missing ";
	bool replaced = false;
	for (unsigned subject = SUBJECT_GLIBC; subject <= SUBJECT_HEAP; subject++) {
		struct child_result result;
		char reason[256];
		if (replaced) {
			missing(bench, subject, "this program's malloc is replaced");
			continue;
		}
		if (run_worker(bench, n_measurements, subject, &result) != STATUS_OK)
			return STATUS_FAILED;
		const char *line = child_last_line(&result);
		if (result.status == 0 && line[0] == '\0')
			continue;
		replaced = subject == SUBJECT_GLIBC;
		if (replaced && strncmp(line, word, strlen(word)) == 0)
			(void)snprintf(reason, sizeof reason, "this program's malloc is that of %s",
				       line + strlen(word));
		else if (strncmp(line, word, strlen(word)) == 0)
			(void)snprintf(reason, sizeof reason, "%s is not installed; install %s",
				       subjects[subject].library, subjects[subject].package);
		else
			(void)snprintf(reason, sizeof reason, "status %d: %s", result.status, line);
		missing(bench, subject, reason);
	}
	return STATUS_OK;
}

/* --- one measurement --- */

/* Figures after the first are about a memory resource.  Other subjects have only those that are
 * marked `of_all`. */
static void add_figures(struct bench *bench, const struct measurement *measurement,
			unsigned subject, bool emulated, const double values[WORK_MAX_FIGURES])
{
	for (int i = 0; i < WORK_MAX_FIGURES && measurement->figures[i].unit != NULL; i++) {
		const struct figure *figure = &measurement->figures[i];
		bool is_resource = subject == SUBJECT_HOIST || subject == SUBJECT_HEAP;
		if (i > 0 && !is_resource && !figure->of_all)
			continue;
		bool is_hoist = subject == SUBJECT_HOIST && figure->subject == NULL;
		char label[96];
		(void)snprintf(label, sizeof label, "%s%s%s", measurement->label,
			       figure->label != NULL ? ", " : "",
			       figure->label != NULL ? figure->label : "");
		struct result_row row = {
			.work = label,
			.subject =
				figure->subject != NULL ? figure->subject : subjects[subject].name,
			.unit = figure->unit,
			.threads = measurement->n_threads,
			.emulated = emulated,
			.compared =
				!is_hoist && subject != SUBJECT_EMPTY && subject != SUBJECT_STREAM,
			.has_bar = is_hoist && figure->has_bar,
			.bar = figure->bar,
		};
		results_add(&bench->results, &row, values[i]);
	}
}

static void measure_failed(struct bench *bench, const struct measurement *measurement,
			   unsigned subject, struct child_result *result)
{
	char reason[1024];
	const char *line = child_last_line(result);
	if (result->status > 128)
		(void)snprintf(reason, sizeof reason, "%s, %d threads: ended by signal %d (%s)",
			       measurement->label, measurement->n_threads, result->status - 128,
			       strsignal(result->status - 128));
	else
		(void)snprintf(reason, sizeof reason, "%s, %d threads: %s", measurement->label,
			       measurement->n_threads, line);
	bench->n_failed++;
	results_missing(&bench->results, subjects[subject].name, reason);
}

static int measure_once(struct bench *bench, size_t index, unsigned subject)
{
	const struct measurement *measurement = &measurements[index];
	double values[WORK_MAX_FIGURES];
	int emulated = 0;
	struct child_result result;
	progress_steps(measurement->label, subjects[subject].name, bench->n_children++,
		       bench->n_all);
	if (run_worker(bench, index, subject, &result) != STATUS_OK)
		return STATUS_FAILED;
	if (interrupted())
		return fail("stopped by a signal");
	_Static_assert(WORK_MAX_FIGURES == 3, "as many as are read here");
	if (result.status != 0 ||
	    sscanf(child_last_line(&result), "result %d %lf %lf %lf", &emulated, &values[0],
		   &values[1], &values[2]) != 1 + WORK_MAX_FIGURES)
		measure_failed(bench, measurement, subject, &result);
	else
		add_figures(bench, measurement, subject, emulated != 0, values);
	return STATUS_OK;
}

static int measure(struct bench *bench, size_t index)
{
	const struct measurement *measurement = &measurements[index];
	char reason[128];
	if (measurement->n_threads > bench->n_processors) {
		(void)snprintf(reason, sizeof reason, "%d threads need as many processors",
			       measurement->n_threads);
		results_missing(&bench->results, measurement->label, reason);
		return STATUS_OK;
	}
	/* Another subject begins each time: a drift of the machine meets all of them. */
	for (unsigned run = 0; run < runs_of(bench, measurement); run++) {
		for (unsigned i = 0; i < N_SUBJECTS; i++) {
			unsigned subject = (i + run) % N_SUBJECTS;
			if (!measured(bench, measurement, subject))
				continue;
			if (measure_once(bench, index, subject) != STATUS_OK)
				return STATUS_FAILED;
		}
	}
	return STATUS_OK;
}

/* Adds the ratio of the slowest to the fastest random work, over all numbers of live blocks. */
static void add_flatness(struct bench *bench)
{
	double least = 0;
	double most = 0;
	struct result_row row = {.work = "random, slowest/fastest",
				 .subject = subjects[SUBJECT_HOIST].name,
				 .unit = "x",
				 .threads = 1,
				 .has_bar = true,
				 .bar = 2};
	int n = 0;
	for (size_t i = 0; i < n_measurements; i++) {
		const struct result_row *found =
			results_find(&bench->results, measurements[i].label, 1, row.subject,
				     measurements[i].figures[0].unit);
		if (measurements[i].run != work_random_live || found == NULL)
			continue;
		double median = results_median(found);
		least = n == 0 || median < least ? median : least;
		most = median > most ? median : most;
		row.emulated |= found->emulated;
		n++;
	}
	if (n > 1 && least > 0)
		results_add(&bench->results, &row, most / least);
}

static int measure_all(struct bench *bench)
{
	bench->n_all = 0;
	for (size_t i = 0; i < n_measurements; i++) {
		for (unsigned j = 0; selected(bench, &measurements[i]) && j < N_SUBJECTS; j++) {
			if (measured(bench, &measurements[i], j))
				bench->n_all += runs_of(bench, &measurements[i]);
		}
	}
	int status = STATUS_OK;
	for (size_t i = 0; i < n_measurements && status == STATUS_OK; i++) {
		if (selected(bench, &measurements[i]))
			status = measure(bench, i);
		if (status == STATUS_OK && measurements[i].run == work_random_live &&
		    (i + 1 == n_measurements || measurements[i + 1].run != work_random_live))
			add_flatness(bench);
	}
	progress_end();
	return status;
}

/* --- the command --- */

static int print_results(const struct bench *bench)
{
	double load[1] = {-1};
	if (!bench->request->json)
		return results_print(&bench->results, bench->request->bars);
	(void)getloadavg(load, 1);
	return results_print_json(&bench->results,
				  json_pack("{s:i, s:f, s:b}", "processors", bench->n_processors,
					    "load_average", load[0], "quick",
					    (int)bench->request->quick));
}

static int run(struct bench *bench)
{
	int svg = -1;
	if (plot_prepare(bench->request->svg, &svg) != STATUS_OK)
		return STATUS_FAILED;
	int status = find_peers(bench);
	if (status == STATUS_OK)
		status = measure_all(bench);
	if (status == STATUS_OK)
		status = print_results(bench);
	if (status == STATUS_OK)
		status = plot_draw(&bench->results, bench->request->svg, svg);
	plot_end(svg);
	if (status == STATUS_OK && bench->n_failed > 0)
		return fail("%zu of %zu measurements failed; `not measured' says why",
			    bench->n_failed, bench->n_all);
	return status;
}

int bench_alloc(const struct bench_request *request)
{
	cpu_set_t processors;
	struct bench bench = {.request = request, .n_processors = 1};
	bench.runs = request->runs != 0 ? request->runs : request->quick ? 1 : DEFAULT_RUNS;
	if (sched_getaffinity(0, sizeof processors, &processors) == 0)
		bench.n_processors = CPU_COUNT(&processors);
	results_create("alloc", &bench.results);
	interrupt_watch();
	int status = run(&bench);
	results_destroy(&bench.results);
	return status;
}

bool bench_alloc_has(const char *work)
{
	for (size_t i = 0; i < n_measurements; i++) {
		if (strcmp(measurements[i].name, work) == 0)
			return true;
	}
	return false;
}

void bench_alloc_list(void)
{
	const char *last = "";
	for (size_t i = 0; i < n_measurements; i++) {
		if (strcmp(last, measurements[i].name) != 0)
			(void)printf("%s  --work %-10s  %s", i > 0 ? "\n" : "",
				     measurements[i].name, measurements[i].label);
		else if (strcmp(measurements[i].label, measurements[i - 1].label) != 0)
			(void)printf("; %s", measurements[i].label);
		last = measurements[i].name;
	}
	(void)putchar('\n');
}
