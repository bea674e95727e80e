/* SPDX-License-Identifier: MIT */
/* hoist bench io: a sweep over sizes, depths, engines and ways of reading one file.  The contract
 * is in request.h.
 *
 * Each cell loads the same bytes to the CPU, or to --device.  The order mixes the cells, so that a
 * disk whose rate drifts does not favour the last ones.  A first load decides how many bytes a cell
 * loads: all of the sweep should take about a minute.  The sweep ends when it has taken twice that,
 * with the cells that it has. */
#include "config.h"

#include "bench/request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/io-file.h"
#include "bench/io-sweep.h"
#include "bench/plot.h"
#include "bench/results.h"
#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/fail.h"

#define SECONDS 60.0
#define MOST_SECONDS (2 * SECONDS)
#define LEAST_BYTES ((uint64_t)16 << 20)
#define MOST_BYTES ((uint64_t)512 << 20)
#define PROBE_BYTES ((uint64_t)64 << 20)
#define QUICK_BYTES ((uint64_t)1 << 20)

#define N_CELLS (SWEEP_N_WAYS * SWEEP_N_ENGINES * SWEEP_N_BLOCKS * SWEEP_N_DEPTHS)
/* Shares no factor with N_CELLS: every cell is measured, neighbours at different times. */
#define STRIDE 77

enum { DIRECT, COLD, HOT };

struct bench {
	const struct bench_request *request;
	struct bench_file file;
	hoist_device *device;
	struct sweep sweep;
	double begin;
	size_t n_done;
	bool out_of_time;
	char reasons[SWEEP_N_WAYS][SWEEP_N_ENGINES][256];
	hoist_load_report report; /* of the last load */
};

static int measure(struct bench *bench, const struct bench_way *way, struct sweep_cell *cell)
{
	double seconds = 0;
	if (interrupted())
		return fail("stopped by a signal");
	int status =
		bench_file_load(&bench->file, bench->device, NULL, way, &seconds, &bench->report);
	if (status != STATUS_OK || cell == NULL || seconds <= 0)
		return status;
	double gib = (double)bench->report.bytes / (double)((uint64_t)1 << 30);
	samples_add(&cell->rates, (double)bench->report.bytes / seconds);
	samples_add(&cell->cpu, (double)bench->report.cpu_ns / 1e9 / gib);
	return STATUS_OK;
}

static void skip(struct bench *bench, int way, int engine, const char *reason)
{
	char *text = bench->reasons[way][engine];
	(void)snprintf(text, sizeof bench->reasons[way][engine], "%s", reason);
	bench->sweep.skipped[way][engine] = text;
}

/* One try shows whether the engine can be measured here. */
static int try_engine(struct bench *bench, int engine)
{
	const enum hoist_engine engines[] = {HOIST_ENGINE_URING, HOIST_ENGINE_THREADS};
	int err = bench_file_try(&bench->file, NULL, engines[engine]);
	for (int way = 0; way < SWEEP_N_WAYS && err != 0; way++)
		skip(bench, way, engine, hoist_error());
	return err == -ENOMEM ? fail_call(err) : STATUS_OK;
}

static int try_direct(struct bench *bench)
{
	const struct bench_way way = {.io = HOIST_IO_DIRECT};
	int status = measure(bench, &way, NULL);
	if (status != STATUS_OK)
		return status;
	for (int engine = 0; engine < SWEEP_N_ENGINES; engine++) {
		if (bench->report.direct_bytes == 0)
			skip(bench, DIRECT, engine, bench->report.io_reason);
		if (bench->file.never_cold)
			skip(bench, COLD, engine, "the file stays in the page cache");
	}
	return STATUS_OK;
}

/* Chooses the bytes that each cell reads, so that all cells together take a minute. */
static int choose_bytes(struct bench *bench)
{
	const struct bench_way way = {.io = HOIST_IO_DIRECT};
	const unsigned runs = bench->request->runs > 0 ? bench->request->runs : 1;
	if (bench->request->quick)
		return bench_file_select(&bench->file, QUICK_BYTES);
	int status = bench_file_select(&bench->file, PROBE_BYTES);
	double begin = clock_seconds();
	if (status == STATUS_OK)
		status = measure(bench, &way, NULL);
	if (status != STATUS_OK)
		return status;
	double rate = (double)bench->file.bytes / (clock_seconds() - begin);
	double bytes = rate * SECONDS / (N_CELLS + 2) / runs;
	uint64_t most = bytes > (double)MOST_BYTES ? MOST_BYTES : (uint64_t)bytes;
	return bench_file_select(&bench->file, most > LEAST_BYTES ? most : LEAST_BYTES);
}

static int measure_cell(struct bench *bench, int index)
{
	const enum hoist_engine engines[] = {HOIST_ENGINE_URING, HOIST_ENGINE_THREADS};
	int depth = index % SWEEP_N_DEPTHS;
	int block = index / SWEEP_N_DEPTHS % SWEEP_N_BLOCKS;
	int engine = index / SWEEP_N_DEPTHS / SWEEP_N_BLOCKS % SWEEP_N_ENGINES;
	int way = index / SWEEP_N_DEPTHS / SWEEP_N_BLOCKS / SWEEP_N_ENGINES;
	char label[64];
	const struct bench_way how = {.engine = engines[engine],
				      .io = way == DIRECT ? HOIST_IO_DIRECT : HOIST_IO_CACHED,
				      .hot = way == HOT,
				      .chunk_bytes = sweep_blocks[block],
				      .depth = sweep_depths[depth]};
	progress_steps(sweep_label(way, block, depth, label, sizeof label), sweep_engines[engine],
		       bench->n_done++, N_CELLS);
	if (bench->sweep.skipped[way][engine] != NULL)
		return STATUS_OK;
	return measure(bench, &how, &bench->sweep.cells[way][engine][block][depth]);
}

static int measure_own(struct bench *bench)
{
	const struct bench_way cold = {.hot = false};
	const struct bench_way hot = {.hot = true};
	int status =
		bench->file.never_cold ? STATUS_OK : measure(bench, &cold, &bench->sweep.own[0]);
	return status == STATUS_OK ? measure(bench, &hot, &bench->sweep.own[1]) : status;
}

static int measure_all(struct bench *bench)
{
	const unsigned runs = bench->request->runs > 0 ? bench->request->runs : 1;
	const unsigned step = N_CELLS / 5; /* between two of hoist's own choice */
	int status = STATUS_OK;
	for (unsigned run = 0; run < runs; run++) {
		for (unsigned i = 0; i < N_CELLS && status == STATUS_OK; i++) {
			bench->out_of_time = clock_seconds() - bench->begin > MOST_SECONDS;
			if (bench->out_of_time)
				return STATUS_OK;
			if (i % step == 0)
				status = measure_own(bench);
			if (status == STATUS_OK)
				status = measure_cell(bench, (int)(i * STRIDE % N_CELLS));
		}
	}
	return status;
}

/* --- results --- */

static void add_cell(struct results *results, const struct sweep_cell *cell, const char *work,
		     const char *subject, bool compared, bool emulated)
{
	struct result_row row = {.work = work,
				 .subject = subject,
				 .unit = "GB/s",
				 .threads = 1,
				 .emulated = emulated,
				 .compared = compared,
				 .more = true};
	for (size_t i = 0; i < cell->rates.n; i++)
		results_add(results, &row, cell->rates.values[i] / 1e9);
	row.unit = "CPU s/GiB";
	row.more = false;
	row.compared = false;
	for (size_t i = 0; i < cell->cpu.n; i++)
		results_add(results, &row, cell->cpu.values[i]);
}

/* Adds hoist's own choice, cold and hot, beside the fastest shape that a caller can choose. */
static void add_own(const struct bench *bench, struct results *results)
{
	static const char *const works[] = {"cold, chosen by hoist", "hot, chosen by hoist"};
	const struct sweep *sweep = &bench->sweep;
	for (int i = 0; i < 2; i++) {
		const struct sweep_cell *best = NULL;
		for (int way = i == 0 ? DIRECT : HOT; way <= (i == 0 ? COLD : HOT); way++) {
			int at[3];
			const struct sweep_cell *cell =
				sweep_best(sweep, way, &at[0], &at[1], &at[2]);
			if (cell != NULL && (best == NULL || sweep_rate(cell) > sweep_rate(best)))
				best = cell;
		}
		add_cell(results, &sweep->own[i], works[i], "hoist", false, bench->report.emulated);
		if (best != NULL)
			add_cell(results, best, works[i], "the fastest of all", true,
				 bench->report.emulated);
	}
}

static void add_results(const struct bench *bench, struct results *results)
{
	char label[64];
	add_own(bench, results);
	for (int i = 0; i < N_CELLS; i++) {
		int depth = i % SWEEP_N_DEPTHS;
		int block = i / SWEEP_N_DEPTHS % SWEEP_N_BLOCKS;
		int engine = i / SWEEP_N_DEPTHS / SWEEP_N_BLOCKS % SWEEP_N_ENGINES;
		int way = i / SWEEP_N_DEPTHS / SWEEP_N_BLOCKS / SWEEP_N_ENGINES;
		add_cell(results, &bench->sweep.cells[way][engine][block][depth],
			 sweep_label(way, block, depth, label, sizeof label), sweep_engines[engine],
			 false, bench->report.emulated);
	}
	for (int way = 0; way < SWEEP_N_WAYS; way++) {
		for (int engine = 0; engine < SWEEP_N_ENGINES; engine++) {
			(void)snprintf(label, sizeof label, "%s, %s", sweep_ways[way],
				       sweep_engines[engine]);
			if (bench->sweep.skipped[way][engine] != NULL)
				results_missing(results, label, bench->sweep.skipped[way][engine]);
		}
	}
	if (bench->out_of_time)
		results_missing(results, "further sizes and depths",
				"it took too long; name a faster disk, or a smaller file");
}

static int print_json(const struct bench *bench)
{
	struct results results;
	results_create("io", &results);
	add_results(bench, &results);
	int status = results_print_json(
		&results,
		json_pack("{s:o, s:o, s:o, s:b}", "file", json_text(bench->request->path), "bytes",
			  json_count(bench->file.bytes), "dropped_bytes",
			  json_count(bench->file.dropped), "quick", (int)bench->request->quick));
	results_destroy(&results);
	return status;
}

static void print_table(const struct bench *bench)
{
	struct text bytes;
	(void)printf("%s of ", format_bytes(bench->file.bytes, &bytes));
	print_escaped(stdout, bench->request->path);
	(void)printf(" each, to %s%s\n\n", bench->report.device,
		     bench->report.emulated ? " (emulated)" : "");
	sweep_print(&bench->sweep);
	if (bench->out_of_time)
		(void)fputs("it took too long: what has no figure was not measured\n", stdout);
	if (bench->file.dropped > 0)
		(void)printf("dropped from the page cache, and not put back: %s\n",
			     format_bytes(bench->file.dropped, &bytes));
}

static int run(struct bench *bench)
{
	int svg = -1;
	if (plot_prepare(bench->request->svg, &svg) != STATUS_OK)
		return STATUS_FAILED;
	bench->begin = clock_seconds();
	int status = choose_bytes(bench);
	for (int engine = 0; engine < SWEEP_N_ENGINES && status == STATUS_OK; engine++)
		status = try_engine(bench, engine);
	if (status == STATUS_OK)
		status = try_direct(bench);
	if (status == STATUS_OK)
		status = measure_all(bench);
	progress_end();
	if (status == STATUS_OK && bench->request->json)
		status = print_json(bench);
	else if (status == STATUS_OK)
		print_table(bench);
	if (status == STATUS_OK)
		status = sweep_draw(&bench->sweep, bench->request->svg, svg);
	plot_end(svg);
	return status;
}

int bench_io(const struct bench_request *request)
{
	struct bench *bench = calloc(1, sizeof *bench);
	if (bench == NULL)
		return fail_memory();
	bench->request = request;
	interrupt_watch();
	int err = hoist_device_open(request->device, &bench->device);
	int status = err == 0 ? bench_file_open(request, &bench->file) : fail_call(err);
	if (status == STATUS_OK)
		status = run(bench);
	bench_file_close(&bench->file);
	hoist_device_unref(bench->device);
	free(bench);
	return status;
}
