/* SPDX-License-Identifier: MIT */
/* slice FILE... - a tensor-parallel slice, rank 3 of 8, of every tensor, along either axis, against
 * reading as many bytes that lie together (of the same file, as one tensor of its bytes).  Where
 * the file is hot, the slice along axis 1 also stands beside a pread for each row, by two threads.
 *
 * To the host, into fresh memory, each in a process of its own; cold and hot.  All tensors must
 * have rank 2 and extents that are multiples of 8: tests/mkcheckpoint --bytes 2G --tensors 16
 * --equal --columns 8192 FOLDER has rows of 16 KiB, of which a slice along axis 1 takes 2 KiB;
 * --columns 65536: 16 KiB of 128. */
#include "config.h"

#include "bench/bench.h"
#include "bench/hot.h"
#include "bench/once.h"

#include <stdio.h>
#include <string.h>

#define N_RANKS 8
#define RANK 3

static const char usage[] = "usage: slice [--runs N] [--json PATH] FILE.safetensors...\n";

struct part {
	struct samples seconds;
	struct once_result last;
};

static void run(struct part *part, const char *path, const hoist_load_slice *slice, int raw,
		int hot)
{
	const struct once_options how = {.path = path,
					 .device = "cpu",
					 .hot = hot,
					 .raw = raw,
					 .slices = slice,
					 .n_slices = 1};
	once_load(&how, &part->last);
	samples_add(&part->seconds, part->last.seconds);
}

/* The name of the folder that the file is in: "rows16k". */
static const char *folder_of(const char *path)
{
	static char name[64];
	const char *end = strrchr(path, '/');
	if (end == NULL)
		return path;
	const char *start = end;
	while (start > path && start[-1] != '/')
		start--;
	(void)snprintf(name, sizeof name, "%.*s", (int)(end - start), start);
	return name;
}

/* The rows of the slice along axis 1.  All tensors are of one shape and follow each other. */
static void find_rows(const char *path, struct hot_rows *rows)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_tensor_info first = {.size = sizeof first};
	bench_must(hoist_checkpoint_open(path, 0, &checkpoint), "opening", path);
	bench_must(hoist_checkpoint_tensor(checkpoint, 0, &first), "asking", path);
	rows->stride = first.bytes / (uint64_t)first.shape[0];
	rows->bytes = (size_t)(rows->stride / N_RANKS);
	rows->offset = first.offset + RANK * rows->bytes;
	rows->n = hoist_checkpoint_n_tensors(checkpoint) * (size_t)first.shape[0];
	hoist_checkpoint_close(checkpoint);
}

static void compare(struct results *results, const struct bench_args *args, const char *path,
		    int hot)
{
	struct part axes[2] = {{.seconds = {.n = 0}}, {.seconds = {.n = 0}}};
	struct part together = {.seconds = {.n = 0}};
	struct samples straight = {.n = 0};
	struct hot_rows rows;
	uint64_t bytes = bench_file_bytes(path);
	/* As many bytes, from the middle of the file. */
	const hoist_load_slice raw = {.tensor = "data",
				      .begin = (int64_t)(bytes / 2),
				      .end = (int64_t)(bytes / 2 + bytes / N_RANKS)};
	char work[64];
	char what[64];
	(void)snprintf(work, sizeof work, "slice 1 of 8, %s: %.30s", hot ? "hot" : "cold",
		       folder_of(path));
	find_rows(path, &rows);
	for (size_t i = 0; i < args->n_runs; i++) {
		if (hot)
			samples_add(&straight, hot_run_rows(path, &rows, 2));
		run(&together, path, &raw, 1, hot);
		for (int axis = 0; axis < 2; axis++) {
			const hoist_load_slice slice = {
				.tensor = "*", .axis = axis, .rank = RANK, .n_ranks = N_RANKS};
			run(&axes[axis], path, &slice, 0, hot);
		}
	}
	double reference = samples_median(&together.seconds) / (double)together.last.report.bytes;
	results_rates(results, work, "bytes that lie together", (double)together.last.report.bytes,
		      &together.seconds);
	for (int axis = 0; axis < 2; axis++) {
		const hoist_load_report *report = &axes[axis].last.report;
		double each = samples_median(&axes[axis].seconds) / (double)report->bytes;
		(void)snprintf(what, sizeof what, "axis %d", axis);
		results_rates(results, work, what, (double)report->bytes, &axes[axis].seconds);
		(void)snprintf(what, sizeof what, "axis %d, read for each byte", axis);
		results_value(results, work, what,
			      (double)(report->direct_bytes + report->cached_bytes) /
				      (double)report->bytes,
			      "bytes");
		(void)snprintf(what, sizeof what, "axis %d: time / together's", axis);
		results_bar(results, work, what, each / reference, "x", false, 1.2);
	}
	if (!hot)
		return;
	results_rates(results, work, "a pread for each row", (double)(rows.n * rows.bytes),
		      &straight);
	results_bar(results, work, "axis 1: rate / preads'",
		    samples_median(&straight) / samples_median(&axes[1].seconds), "x", true, 0.9);
}

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 5};
	bench_parse(argc, argv, usage, 1, 99, NULL, &args);
	struct results results;
	results_create("slice", &results);
	for (int i = 0; i < args.n_operands; i++) {
		compare(&results, &args, args.operands[i], 0);
		compare(&results, &args, args.operands[i], 1);
	}
	bench_print(&results, args.json);
	return 0;
}
