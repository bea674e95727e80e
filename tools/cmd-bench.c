/* SPDX-License-Identifier: MIT */
/* hoist bench - measures. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/args.h"
#include "tools/bench-alloc.h"
#include "tools/bench-io.h"
#include "tools/bench-replay.h"
#include "tools/bench-work.h"
#include "cli/json.h"

static const struct {
	const char *name;
	const char *summary;
} benches[] = {
	{"alloc", "the allocator beside others: malloc of glibc, jemalloc, mimalloc and tcmalloc"},
	{"replay",
	 "the allocations and frees that FILE recorded (hoist_memory_trace(), RMM's log)"},
	{"io", "reading FILE: size of a read x reads in flight x engine x direct, cached, hot"},
	{"load",
	 "loading the checkpoint FILE, cold and hot, by either engine; --save: saving, too"},
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

static int of_file(const struct args *args, const char *what, const char *file)
{
	bool load = strcmp(what, "load") == 0;
	if (file == NULL)
		return args_refuse(args, what, " needs a FILE", "");
	if (args->n_patterns > 0)
		return args_refuse(args, what, " takes no --work", "");
	if (!load && (args->save || args->to != NULL))
		return args_refuse(args, "io takes no --save and no --to", "", "");
	if (args->to != NULL && !args->save)
		return args_refuse(args, "--to is for --save", "", "");
	if (!load && args->runs > 9)
		return args_refuse(args, "io takes at most 9 --runs", "", "");
	return load ? bench_load(args, file) : bench_io(args, file);
}

int cmd_bench(const struct args *args)
{
	const char *what = args->operands[0];
	const char *file = args->operands[1];
	if (what == NULL)
		return list(args);
	if (strcmp(what, "worker") == 0 && file != NULL)
		return work_child(file, args->device);
	if (strcmp(what, "io") == 0 || strcmp(what, "load") == 0)
		return of_file(args, what, file);
	if (args->save || args->to != NULL || args->open_flags != 0)
		return args_refuse(args, what, " takes no --save, --to or --follow-links", "");
	if (strcmp(what, "alloc") == 0) {
		if (file != NULL)
			return args_refuse(args, "alloc takes no FILE: ", file, "");
		return bench_alloc(args);
	}
	if (strcmp(what, "replay") != 0)
		return args_refuse(args, "there is nothing to measure called ", what, "");
	if (file == NULL)
		return args_refuse(args, "replay needs a FILE", "", "");
	if (args->svg != NULL || args->quick || args->n_patterns > 0)
		return args_refuse(args, "replay takes no --work, --quick or --svg", "", "");
	return bench_replay(args);
}
