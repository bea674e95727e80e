/* SPDX-License-Identifier: MIT */
/* hoist bench - measures. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/args.h"
#include "bench/request.h"
#include "cli/json.h"

#define OPTIONS_TABLE (OPTION_RUNS | OPTION_QUICK | OPTION_SVG | OPTION_JSON)

static const struct {
	const char *name;
	const char *summary;
	unsigned options;
} benches[] = {
	{"alloc", "the allocator beside others: malloc of glibc, jemalloc, mimalloc and tcmalloc",
	 OPTIONS_TABLE | OPTION_DEVICE | OPTION_WORK | OPTION_BARS},
	{"replay", "the allocations and frees that FILE recorded (hoist_memory_trace(), RMM's log)",
	 OPTION_DEVICE | OPTION_RUNS | OPTION_JSON},
	{"io", "reading FILE: size of a read x reads in flight x engine x direct, cached, hot",
	 OPTIONS_TABLE | OPTION_DEVICE | OPTION_OPEN},
	{"load",
	 "loading the checkpoint FILE: engines, streams, targets, groups, peers; --save: "
	 "saving, too",
	 OPTIONS_TABLE | OPTION_DEVICE | OPTION_BARS | OPTION_SAVE | OPTION_TO | OPTION_OPEN},
	{"copy", "copies in host memory beside memcpy and loops by hand; views and buffers",
	 OPTIONS_TABLE | OPTION_BARS},
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

static int of_file(const struct args *args, const struct bench_request *request)
{
	const char *what = args->operands[0];
	bool load = strcmp(what, "load") == 0;
	if (request->path == NULL)
		return args_refuse(args, what, " needs a FILE", "");
	if (request->to != NULL && !request->save)
		return args_refuse(args, "--to is for --save", "", "");
	if (!load && request->runs > 9)
		return args_refuse(args, "io takes at most 9 --runs", "", "");
	return load ? bench_load(request) : bench_io(request);
}

static int of_allocator(const struct args *args, const struct bench_request *request)
{
	if (request->path != NULL)
		return args_refuse(args, "alloc takes no FILE: ", request->path, "");
	for (size_t i = 0; i < request->n_works; i++) {
		if (!bench_alloc_has(request->works[i]))
			return args_refuse(args, "--work ", request->works[i],
					   ": there is no such work");
	}
	return bench_alloc(request);
}

/* Refuses a name that is none, and options that the measurement does not take. */
static int check(const struct args *args)
{
	const char *what = args->operands[0];
	for (size_t i = 0; i < N_BENCHES; i++)
		if (strcmp(what, benches[i].name) == 0) {
			if (args->bars && args->json)
				return args_refuse(args, "--json has the bars: leave out ",
						   "--bars", "");
			return args_only(args, what, benches[i].options);
		}
	return args_refuse(args, "there is nothing to measure called ", what, "");
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
	int status = what != NULL ? check(args) : args_only(args, "the list", OPTION_JSON);
	if (status != STATUS_OK)
		return status;
	if (what == NULL)
		return list(args);
	if (strcmp(what, "io") == 0 || strcmp(what, "load") == 0)
		return of_file(args, &request);
	if (strcmp(what, "alloc") == 0)
		return of_allocator(args, &request);
	if (strcmp(what, "copy") == 0 && request.path != NULL)
		return args_refuse(args, "copy takes no FILE: ", request.path, "");
	if (strcmp(what, "copy") == 0)
		return bench_copy(&request);
	if (request.path == NULL)
		return args_refuse(args, "replay needs a FILE", "", "");
	return bench_replay(&request);
}
