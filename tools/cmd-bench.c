/* SPDX-License-Identifier: MIT */
/* hoist bench - measures. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/args.h"
#include "bench/request.h"
#include "cli/json.h"

#define OPTIONS_TABLE (OPTION_RUNS | OPTION_QUICK | OPTION_SVG | OPTION_JSON)

static const struct bench {
	const char *name;
	const char *summary;
	unsigned options;
	bool takes_file;
	int (*run)(const struct bench_request *request);
} benches[] = {
	{"alloc", "the allocator beside others: malloc of glibc, jemalloc, mimalloc and tcmalloc",
	 OPTIONS_TABLE | OPTION_DEVICE | OPTION_WORK | OPTION_BARS, false, bench_alloc},
	{"replay", "the allocations and frees that FILE recorded (hoist_memory_trace(), RMM's log)",
	 OPTION_DEVICE | OPTION_RUNS | OPTION_JSON, true, bench_replay},
	{"io", "reading FILE: size of a read x reads in flight x engine x direct, cached, hot",
	 OPTIONS_TABLE | OPTION_DEVICE | OPTION_OPEN, true, bench_io},
	{"load",
	 "loading the checkpoint FILE: engines, streams, targets, groups, peers; --save: "
	 "saving, too",
	 OPTIONS_TABLE | OPTION_DEVICE | OPTION_BARS | OPTION_SAVE | OPTION_TO | OPTION_OPEN, true,
	 bench_load},
	{"group",
	 "loading the checkpoint FILE by four processes together: as shm: and tcp: groups; --svg: "
	 "bytes over time",
	 OPTIONS_TABLE | OPTION_BARS | OPTION_OPEN, true, bench_group},
	{"copy", "copies in host memory beside memcpy and loops by hand; views and buffers",
	 OPTIONS_TABLE | OPTION_BARS, false, bench_copy},
};

#define N_BENCHES (sizeof benches / sizeof benches[0])

static int list(const struct args *args)
{
	if (!args->json) {
		for (size_t i = 0; i < N_BENCHES; i++)
			(void)printf("%-8s  %s\n", benches[i].name, benches[i].summary);
		(void)printf("\nof alloc:\n");
		bench_alloc_list();
		return STATUS_OK;
	}
	json_t *array = json_array();
	for (size_t i = 0; i < N_BENCHES; i++) {
		json_t *item = json_pack("{s:s, s:s}", "name", benches[i].name, "summary",
					 benches[i].summary);
		if (json_array_append_new(array, item) != 0) {
			json_decref(array);
			return fail_memory();
		}
	}
	return json_print(json_pack("{s:o}", "benches", array), true);
}

static const struct bench *find(const char *name)
{
	for (size_t i = 0; i < N_BENCHES; i++)
		if (strcmp(name, benches[i].name) == 0)
			return &benches[i];
	return NULL;
}

/* Refuses options that the measurement does not take, and values that it cannot use. */
static int check(const struct args *args, const struct bench *bench)
{
	if (args->bars && args->json)
		return args_refuse(args, "--json has the bars: leave out ", "--bars", "");
	int status = args_only(args, bench->name, bench->options);
	if (status != STATUS_OK)
		return status;
	const char *path = args->operands[1];
	if (bench->takes_file && path == NULL)
		return args_refuse(args, bench->name, " needs a FILE", "");
	if (!bench->takes_file && path != NULL)
		return args_refuse(args, bench->name, " takes no FILE: leave it out", "");
	if (args->to != NULL && !args->save)
		return args_refuse(args, "--to is for --save: add that, or leave out --to", "", "");
	if (bench->run == bench_io && args->runs > 9)
		return args_refuse(args, "io takes at most 9 --runs", "", "");
	for (size_t i = 0; i < args->n_patterns; i++)
		if (!bench_alloc_has(args->patterns[i]))
			return args_refuse(args, "--work ", args->patterns[i],
					   ": there is no such work");
	return STATUS_OK;
}

int cmd_bench(const struct args *args)
{
	const char *what = args->operands[0];
	const struct bench_request request = {.path = args->operands[1],
					      .device = args->device,
					      .works = args->patterns,
					      .n_works = args->n_patterns,
					      .runs = args->runs,
					      .open_flags = args->open_flags,
					      .svg = args->svg,
					      .to = args->to,
					      .save = args->save,
					      .quick = args->quick,
					      .bars = args->bars,
					      .json = args->json};
	if (what != NULL && strcmp(what, "worker") == 0 && request.path != NULL)
		return bench_alloc_worker(request.path, request.device);
	const struct bench *bench = what != NULL ? find(what) : NULL;
	if (what != NULL && bench == NULL)
		return args_refuse(args, "there is nothing to measure called ", what, "");
	int status = bench != NULL ? check(args, bench) : args_only(args, "the list", OPTION_JSON);
	if (status != STATUS_OK)
		return status;
	return bench != NULL ? bench->run(&request) : list(args);
}
