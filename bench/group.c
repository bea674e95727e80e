/* SPDX-License-Identifier: MIT */
/* hoist bench group - a checkpoint that four processes load together.  ranks.h says what is
 * measured.  The contract is in request.h. */
#include "config.h"

#include <stdlib.h>

#include "bench/group-watch.h"
#include "bench/io-file.h"
#include "bench/plot.h"
#include "bench/ranks.h"
#include "bench/request.h"
#include "cli/fail.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/progress.h"

#define DEFAULT_RUNS 5
#define QUICK_BYTES ((uint64_t)16 << 20)

static int measure(const struct bench_request *request, struct group_watch *watch,
		   struct results *results)
{
	struct bench_file file;
	unsigned runs = request->runs != 0 ? request->runs : request->quick ? 1 : DEFAULT_RUNS;
	int status = bench_file_open(request, &file);
	if (status == STATUS_OK && request->quick)
		status = bench_file_select(&file, QUICK_BYTES);
	if (status == STATUS_OK)
		status = bench_ranks(&file, runs, watch, results);
	progress_end();
	if (status == STATUS_OK && request->json)
		status = results_print_json(
			results, json_pack("{s:b, s:o, s:o}", "quick", (int)request->quick, "bytes",
					   json_count(file.bytes), "dropped_bytes",
					   json_count(file.dropped)));
	else if (status == STATUS_OK)
		status = results_print(results, request->bars);
	bench_file_close(&file);
	return status;
}

int bench_group(const struct bench_request *request)
{
	struct results results;
	int svg = -1;
	struct group_watch *watch = calloc(1, sizeof *watch);
	if (watch == NULL)
		return fail_memory();
	interrupt_watch();
	results_create("group", &results);
	int status = plot_prepare(request->svg, &svg);
	if (status == STATUS_OK)
		status = measure(request, watch, &results);
	if (status == STATUS_OK)
		status = group_watch_draw(watch, request->svg, svg);
	plot_end(svg);
	results_destroy(&results);
	free(watch);
	return status;
}
