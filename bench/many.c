/* SPDX-License-Identifier: MIT */
/* many MANY ONE - a checkpoint of very many tensors beside one of as many bytes in one tensor: what
 * a tensor costs.
 *
 *   opening     MANY is opened, and each of its tensors asked for, in one process; its header hot
 *   loading     both, to the host, cold and hot, each in a process of its own, into fresh memory;
 *               hoist_load_start() until hoist_load_wait() is back
 *   buffers     then all are handed out, and given back
 *
 *   tests/mkcheckpoint --bytes 2048000000 --tensors 100000 --equal FOLDER    makes MANY
 *   tests/mkcheckpoint --bytes 2048000000 --tensors 1 FOLDER                 makes ONE */
#include "config.h"

#include "bench/bench.h"
#include "bench/once.h"

#include <stdio.h>

static const char usage[] =
	"usage: many [--runs N] [--json PATH] MANY.safetensors ONE.safetensors\n";

static double open_and_list(const char *path)
{
	hoist_checkpoint *checkpoint = NULL;
	size_t bytes = 0;
	double begin = clock_seconds();
	bench_must(hoist_checkpoint_open(path, 0, &checkpoint), "opening", path);
	for (size_t i = 0; i < hoist_checkpoint_n_tensors(checkpoint); i++) {
		hoist_tensor_info info = {.size = sizeof info};
		bench_must(hoist_checkpoint_tensor(checkpoint, i, &info), "listing", path);
		bytes += info.bytes;
	}
	double seconds = clock_seconds() - begin;
	if (bytes != hoist_checkpoint_bytes(checkpoint))
		bench_fail("%s: the tensors have %zu bytes in all", path, bytes);
	hoist_checkpoint_close(checkpoint);
	return seconds;
}

/* Seconds for handing out all buffers of a load, and giving them back. */
static double hand_out(const char *path)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	const hoist_load_options options = {.size = sizeof options, .io = HOIST_IO_MAP};
	bench_must(hoist_checkpoint_open(path, 0, &checkpoint), "opening", path);
	bench_must(hoist_load_start(checkpoint, &options, &load), "loading", path);
	bench_must(hoist_load_wait(load), "loading", path);
	double begin = clock_seconds();
	for (size_t i = 0; i < hoist_load_n_tensors(load); i++) {
		size_t which = 0;
		hoist_buffer *buffer = NULL;
		bench_must(hoist_load_tensor(load, i, &which, &buffer), "a buffer of", path);
		hoist_buffer_unref(buffer);
	}
	double seconds = clock_seconds() - begin;
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	return seconds;
}

static void compare(struct results *results, const struct bench_args *args, int hot)
{
	const char *work = hot ? "many tensors to host, hot" : "many tensors to host, cold";
	struct samples seconds[2] = {{.n = 0}, {.n = 0}};
	double bytes[2] = {0, 0};
	struct once_result result;
	for (size_t i = 0; i < args->n_runs; i++) {
		for (int j = 0; j < 2; j++) {
			const struct once_options how = {
				.path = args->operands[j], .device = "cpu", .hot = hot};
			once_load(&how, &result);
			samples_add(&seconds[j], result.seconds);
			bytes[j] = (double)result.report.bytes;
		}
	}
	/* The two files may differ by some bytes, so the times for a byte are compared. */
	double many = samples_median(&seconds[0]) / bytes[0];
	double one = samples_median(&seconds[1]) / bytes[1];
	results_rates(results, work, "many tensors", bytes[0], &seconds[0]);
	results_rates(results, work, "one tensor", bytes[1], &seconds[1]);
	results_ratio(results, work, 1, "one tensor", one / many);
	results_bar(results, work, "time / one tensor's", many / one, "x", false, 1.1);
}

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 5};
	struct samples opening = {.n = 0};
	struct samples handing = {.n = 0};
	bench_parse(argc, argv, usage, 2, 2, NULL, &args);
	struct results results;
	results_create("many", &results);
	for (size_t i = 0; i < args.n_runs; i++) {
		samples_add(&opening, open_and_list(args.operands[0]) * 1e3);
		samples_add(&handing, hand_out(args.operands[0]) * 1e3);
	}
	results_samples(&results, "many tensors", "buffers handed out", "ms", &handing);
	results_bar(&results, "many tensors", "opened and listed", samples_median(&opening), "ms",
		    false, 150);
	compare(&results, &args, 0);
	compare(&results, &args, 1);
	bench_print(&results, args.json);
	return 0;
}
