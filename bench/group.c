/* SPDX-License-Identifier: MIT */
/* group FILE - a checkpoint that four processes load together, cold: each a quarter of the rows of
 * every tensor, or each everything.  ranks.h says what is measured.  With --part, only subjects
 * with that text in their names run, for a profiler. */
#include "config.h"

#include <string.h>

#include "bench/bench.h"
#include "bench/io-file.h"
#include "bench/ranks.h"
#include "bench/request.h"
#include "cli/fail.h"

static const char usage[] =
	"usage: group [--runs N] [--part NAME] [--json PATH] FILE.safetensors\n";

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 5};
	struct bench_option part = {.name = "part", .text = "all"};
	struct bench_file file;
	struct results results;
	bench_parse(argc, argv, usage, 1, 1, &part, &args);
	const struct bench_request request = {.path = args.operands[0]};
	results_create("group", &results);
	if (bench_file_open(&request, &file) != STATUS_OK ||
	    bench_ranks(&file, strcmp(part.text, "all") == 0 ? NULL : part.text,
			(unsigned)args.n_runs, &results) != STATUS_OK)
		return 1;
	bench_file_close(&file);
	bench_print(&results, args.json);
	return 0;
}
