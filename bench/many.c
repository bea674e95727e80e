/* SPDX-License-Identifier: MIT */
/* many MANY ONE [TINY] - a checkpoint of very many tensors beside one of as many bytes in one
 * tensor: what a tensor costs.
 *
 *   opening     MANY is opened, and each of its tensors asked for, in one process; its header hot
 *   loading     both, to the host, cold and hot, each in a process of its own, into fresh memory;
 *               hoist_load_start() until hoist_load_wait() is back
 *   streaming   the same two, each tensor taken with hoist_load_next() and dropped
 *   buffers     then all are handed out, and given back
 *   tiny        a million tensors of 64 bytes, hot, to an emulated device, in place there, and to
 *               the host in turn: the time, and how many copies the driver makes for each slot
 *
 *   tests/mkcheckpoint --bytes 2048000000 --tensors 100000 --equal FOLDER    makes MANY
 *   tests/mkcheckpoint --bytes 2048000000 --tensors 1 FOLDER                 makes ONE
 *   tests/mkcheckpoint --bytes 64000000 --tensors 1000000 --equal FOLDER     makes TINY */
#include "config.h"

#include "bench/bench.h"
#include "bench/once.h"

#include <stdio.h>

static const char usage[] = "usage: many [--runs N] [--json PATH] MANY.safetensors ONE.safetensors "
			    "[TINY.safetensors]\n";

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

/* Where the rows of one comparison stand, and its bar. */
struct comparison {
	const char *work;
	int hot;
	int streams;
	double most; /* the time of many tensors, in that of one */
};

static void compare(struct results *results, const struct bench_args *args,
		    const struct comparison *comparison)
{
	struct samples seconds[2] = {{.n = 0}, {.n = 0}};
	double bytes[2] = {0, 0};
	struct once_result result;
	for (size_t i = 0; i < args->n_runs; i++) {
		for (int j = 0; j < 2; j++) {
			const struct once_options how = {.path = args->operands[j],
							 .device = "cpu",
							 .hot = comparison->hot,
							 .streams = comparison->streams};
			once_load(&how, &result);
			samples_add(&seconds[j], result.seconds);
			bytes[j] = (double)result.report.bytes;
		}
	}
	/* The two files may differ by some bytes, so the times for a byte are compared. */
	double many = samples_median(&seconds[0]) / bytes[0];
	double one = samples_median(&seconds[1]) / bytes[1];
	results_rates(results, comparison->work, "many tensors", bytes[0], &seconds[0]);
	results_rates(results, comparison->work, "one tensor", bytes[1], &seconds[1]);
	results_ratio(results, comparison->work, 1, "one tensor", one / many);
	results_bar(results, comparison->work, "time / one tensor's", many / one, "x", false,
		    comparison->most);
}

enum { DEVICE, IN_PLACE, HOST, N_WAYS };

static void load_tiny(struct results *results, const struct bench_args *args)
{
	static const char work[] = "tiny tensors, hot, to an emulated device";
	const char *path = args->operands[2];
	struct once_options ways[N_WAYS] = {[HOST] = {.path = path, .device = "cpu", .hot = 1}};
	struct samples seconds[N_WAYS] = {{.n = 0}};
	struct once_result result[N_WAYS];
	ways[DEVICE] = (struct once_options){.path = path,
					     .device = "cuda:0",
					     .hot = 1,
					     .emulate = "cuda:1",
					     .emulated_resident = 8 * bench_file_bytes(path)};
	ways[IN_PLACE] = ways[DEVICE];
	ways[IN_PLACE].in_place = 1;
	for (size_t i = 0; i < args->n_runs; i++) {
		for (int j = 0; j < N_WAYS; j++) {
			once_load(&ways[j], &result[j]);
			samples_add(&seconds[j], result[j].seconds);
		}
	}
	double fresh = samples_median(&seconds[DEVICE]);
	results_samples(results, work, "the host", "s", &seconds[HOST]);
	results_samples(results, work, "in place", "s", &seconds[IN_PLACE]);
	results_ratio(results, work, 1, "the host", samples_median(&seconds[HOST]) / fresh);
	results_bar(results, work, "time", fresh, "s", false, 0.6);
	results_bar(results, work, "time in place / fresh",
		    samples_median(&seconds[IN_PLACE]) / fresh, "x", false, 1.0);
	/* Each chunk is one read into one slot.  In place, tensors that its ends cut are copies of
	 * their own. */
	for (int j = DEVICE; j <= IN_PLACE; j++) {
		double copies = (double)result[j].report.n_copies;
		double slots = (double)result[j].report.n_reads;
		results_value(results, work, j == DEVICE ? "copies" : "copies in place", copies,
			      "");
		results_value(results, work, j == DEVICE ? "slots" : "slots in place", slots, "");
		results_bar(results, work, j == DEVICE ? "copies / slot" : "copies / slot in place",
			    copies / slots, "x", false, j == DEVICE ? 1.1 : 3);
	}
}

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 5};
	struct samples opening = {.n = 0};
	struct samples handing = {.n = 0};
	bench_parse(argc, argv, usage, 2, 3, NULL, &args);
	struct results results;
	results_create("many", &results);
	for (size_t i = 0; i < args.n_runs; i++) {
		samples_add(&opening, open_and_list(args.operands[0]) * 1e3);
		samples_add(&handing, hand_out(args.operands[0]) * 1e3);
	}
	results_samples(&results, "many tensors", "buffers handed out", "ms", &handing);
	results_bar(&results, "many tensors", "opened and listed", samples_median(&opening), "ms",
		    false, 150);
	static const struct comparison comparisons[] = {
		{"many tensors to host, cold", 0, 0, 1.1},
		{"many tensors to host, hot", 1, 0, 1.1},
		{"many tensors to host, streamed, hot", 1, 1, 1.2},
	};
	for (size_t i = 0; i < sizeof comparisons / sizeof comparisons[0]; i++)
		compare(&results, &args, &comparisons[i]);
	if (args.n_operands == 3)
		load_tiny(&results, &args);
	bench_print(&results, args.json);
	return 0;
}
