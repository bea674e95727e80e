/* SPDX-License-Identifier: MIT */
/* disks BOTH ONE TWO - a checkpoint whose shards lie on two disks: are they read at the same time?
 *
 * ONE and TWO are its shards, BOTH its index, in a folder that has links to them.  All three are
 * loaded cold, in turn, each in a process of its own: to the host, and to an emulated device.
 * Two disks at once take as long as the slower one alone.  disks.sh makes all that. */
#include "config.h"

#include "bench/bench.h"
#include "bench/once.h"

#include <stdio.h>

static const char usage[] =
	"usage: disks [--runs N] [--json PATH] BOTH.safetensors.index.json ONE.safetensors "
	"TWO.safetensors\n";

static void compare(struct results *results, const struct bench_args *args,
		    const struct once_options *how, uint64_t bytes, const char *work)
{
	static const char *const subjects[] = {"both disks", "the first alone", "the second alone"};
	struct samples seconds[3] = {{.n = 0}};
	double median[3];
	double loaded[3];
	for (size_t i = 0; i < args->n_runs; i++)
		/* The subjects take turns within a run, so that a slow moment of the machine meets
		 * all of them. */
		for (int j = 0; j < 3; j++) {
			struct once_options options = *how;
			struct once_result result;
			options.path = args->operands[j];
			bench_make_cold(args->operands[1]);
			bench_make_cold(args->operands[2]);
			/* The first call gives back the memory that was kept for the load before.
			 */
			bench_touch_memory((size_t)bytes);
			bench_touch_memory((size_t)bytes);
			once_load(&options, &result);
			samples_add(&seconds[j], result.seconds);
			loaded[j] = (double)result.report.bytes;
		}
	for (int j = 0; j < 3; j++) {
		median[j] = samples_median(&seconds[j]);
		results_samples(results, work, subjects[j], "s", &seconds[j]);
		results_rates(results, work, subjects[j], loaded[j], &seconds[j]);
	}
	double slower = median[1] > median[2] ? median[1] : median[2];
	results_ratio(results, work, 1, "the slower disk alone", slower / median[0]);
	results_ratio(results, work, 1, "one after the other", (median[1] + median[2]) / median[0]);
	results_bar(results, work, "time / the slower disk's", median[0] / slower, "x", false, 1.1);
}

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 5};
	bench_parse(argc, argv, usage, 3, 3, NULL, &args);
	struct results results;
	results_create("disks", &results);
	uint64_t bytes = bench_file_bytes(args.operands[1]) + bench_file_bytes(args.operands[2]);
	const struct once_options host = {.device = "cpu", .follow_links = 1};
	const struct once_options device = {.device = "cuda:0",
					    .emulate = "cuda:1",
					    .emulated_resident = bytes + ((uint64_t)64 << 20),
					    .follow_links = 1};
	compare(&results, &args, &host, bytes, "two disks to host, cold");
	compare(&results, &args, &device, bytes, "two disks to emulated device, cold");
	bench_print(&results, args.json);
	return 0;
}
