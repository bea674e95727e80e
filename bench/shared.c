/* SPDX-License-Identifier: MIT */
/* shared A B [TARGET] - two loads, each to an emulated device of its own, and one save of host
 * memory, all of one budget of 256 MiB: at once, against one after the other.
 *
 * A and B are checkpoints of about a GiB, cold; what is saved is B's tensors, loaded before the
 * clock starts.  The copy engines of the devices run at 4 GB/s.  Each run is a process of its own;
 * the two kinds alternate, figures are medians.  TARGET (default: B.saved) is removed each time. */
#include "config.h"

#include "bench/bench.h"
#include "bench/io-file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hoist/hoist.h>

#define BUDGET ((size_t)256 << 20)
#define RATE "4000000000"

static const char usage[] =
	"usage: shared [--runs N] [--json PATH] A.safetensors B.safetensors [TARGET]\n";

struct request {
	const char *paths[2];
	const char *target;
	int at_once;
};

struct result {
	double seconds;
	double bytes;
	size_t peak;
};

struct state {
	hoist_budget *budget;
	hoist_device *devices[2];
	hoist_checkpoint *checkpoints[2];
	hoist_load *loads[2];
	hoist_load *source; /* what is saved */
	hoist_save *save;
};

static void prepare(const struct request *request, struct state *state)
{
	static const char *const specs[2] = {"cuda:0", "cuda:1"};
	char resident[24];
	(void)snprintf(resident, sizeof resident, "%llu",
		       (unsigned long long)bench_file_bytes(request->paths[0]));
	if (setenv("HOIST_EMULATE", "cuda:2", 1) < 0 || setenv("HOIST_EMULATE_RATE", RATE, 1) < 0 ||
	    setenv("HOIST_EMULATE_RESIDENT", resident, 1) < 0)
		bench_fail("no memory");
	bench_must(hoist_budget_create(BUDGET, &state->budget), "making", "a budget");
	for (int i = 0; i < 2; i++) {
		uint64_t free_bytes;
		uint64_t total_bytes;
		bench_must(hoist_device_open(specs[i], &state->devices[i]), "opening", specs[i]);
		bench_must(hoist_device_memory(state->devices[i], &free_bytes, &total_bytes),
			   "asking", specs[i]);
		bench_must(hoist_checkpoint_open(request->paths[i], 0, &state->checkpoints[i]),
			   "opening", request->paths[i]);
	}
	bench_must(hoist_load_start(state->checkpoints[1], NULL, &state->source), "loading",
		   request->paths[1]);
	bench_must(hoist_load_wait(state->source), "loading", request->paths[1]);
	const hoist_save_options options = {
		.size = sizeof options, .budget = state->budget, .flags = HOIST_SAVE_NO_REPLACE};
	bench_must(hoist_save_create(request->target, &options, &state->save), "saving",
		   request->target);
	bench_must(bench_add_buffers(state->save, state->checkpoints[1], state->source),
		   "adding the buffers of", request->paths[1]);
	sync();
	for (int i = 0; i < 2; i++)
		bench_make_cold(request->paths[i]);
}

static void start_load(const struct request *request, struct state *state, int i)
{
	const hoist_load_options options = {
		.size = sizeof options, .device = state->devices[i], .budget = state->budget};
	bench_must(hoist_load_start(state->checkpoints[i], &options, &state->loads[i]), "loading",
		   request->paths[i]);
}

static void wait_all(const struct request *request, const struct state *state)
{
	for (int i = 0; i < 2; i++)
		bench_must(hoist_load_wait(state->loads[i]), "loading", request->paths[i]);
	bench_must(hoist_save_wait(state->save), "saving", request->target);
}

static void in_child(const void *argument, void *ret)
{
	const struct request *request = argument;
	struct result *result = ret;
	struct state state = {.budget = NULL};
	prepare(request, &state);
	double begin = clock_seconds();
	for (int i = 0; i < 2; i++) {
		start_load(request, &state, i);
		if (!request->at_once)
			bench_must(hoist_load_wait(state.loads[i]), "loading", request->paths[i]);
	}
	bench_must(hoist_save_start(state.save), "saving", request->target);
	wait_all(request, &state);
	result->seconds = clock_seconds() - begin;
	result->peak = hoist_budget_peak(state.budget);
	result->bytes = (double)hoist_checkpoint_bytes(state.checkpoints[0]) +
			2.0 * (double)hoist_checkpoint_bytes(state.checkpoints[1]);
	hoist_save_destroy(state.save);
	hoist_load_destroy(state.source);
	for (int i = 0; i < 2; i++) {
		hoist_load_destroy(state.loads[i]);
		hoist_checkpoint_close(state.checkpoints[i]);
		hoist_device_unref(state.devices[i]);
	}
	hoist_budget_unref(state.budget);
}

int main(int argc, char **argv)
{
	static const char work[] = "two loads, one save, 256 MiB";
	static const char *const names[2] = {"one after the other", "at once"};
	struct bench_args args = {.n_runs = 5};
	struct samples seconds[2] = {{.n = 0}, {.n = 0}};
	size_t peak = 0;
	double bytes = 0;
	bench_parse(argc, argv, usage, 2, 3, NULL, &args);
	char *target = bench_target(&args, 2, args.operands[1]);
	struct results results;
	results_create("shared", &results);
	for (size_t i = 0; i < args.n_runs; i++) {
		for (int at_once = 0; at_once < 2; at_once++) {
			const struct request request = {
				{args.operands[0], args.operands[1]}, target, at_once};
			struct result result;
			(void)bench_in_child(in_child, &request, &result, sizeof result);
			if (unlink(target) < 0)
				bench_fail("%s cannot be removed", target);
			samples_add(&seconds[at_once], result.seconds);
			bytes = result.bytes;
			if (result.peak > peak)
				peak = result.peak;
		}
	}
	double in_turn = samples_median(&seconds[0]);
	double at_once = samples_median(&seconds[1]);
	for (int i = 0; i < 2; i++) {
		results_samples(&results, work, names[i], "s", &seconds[i]);
		results_rates(&results, work, names[i], bytes, &seconds[i]);
	}
	results_value(&results, work, "peak of the budget", (double)peak, "bytes");
	results_ratio(&results, work, 1, names[0], in_turn / at_once);
	results_bar(&results, work, "at once / in turn", at_once / in_turn, "x", false, 1.1);
	results_bar(&results, work, "peak / budget", (double)peak / (double)BUDGET, "x", false,
		    1.0);
	free(target);
	bench_print(&results, args.json);
	return 0;
}
