/* SPDX-License-Identifier: MIT */
/* Checkpoints of very many tensors.  The contract is in io-many.h. */
#include "config.h"

#include "bench/io-many.h"

#include <stdio.h>
#include <string.h>

#include "bench/made.h"
#include "cli/fail.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

struct kind {
	const char *name;
	size_t most;	/* tensors: so many have bars */
	uint64_t bytes; /* of a tensor */
	const char *subjects[2];
	double bar; /* of the first one's time, in that of the second */
};

/* The second subject of each is the one that the first is compared with. */
enum { TINY, STREAMED, N_KINDS };
static const struct kind kinds[N_KINDS] = {
	{"tensors of 64 B", 1000000, 64, {"in place", "hoist"}, 1.0},
	{"tensors of 10 KiB, one by one", 100000, 10240, {"hoist", "one tensor"}, 1.2},
};

struct many {
	const struct kind *kind;
	hoist_device *device;
	struct results *results;
	bool cpu;
	size_t n;
	char work[80];
	hoist_load_report reports[2];
};

/* @files: many tensors; of kind STREAMED then one. */
static int measure(struct many *many, struct bench_file *files, int subject)
{
	const struct bench_way ways[N_KINDS][2] = {
		[TINY] = {{.hot = true, .in_place = true}, {.hot = true}},
		[STREAMED] = {{.hot = true, .streams = true}, {.hot = true, .streams = true}},
	};
	size_t kind = (size_t)(many->kind - kinds);
	hoist_load_report *report = &many->reports[subject];
	double seconds = 0;
	if (interrupted())
		return fail("stopped by a signal");
	int status = bench_file_load(&files[kind == STREAMED ? subject : 0], many->device, NULL,
				     &ways[kind][subject], &seconds, report);
	const struct result_row row = {.work = many->work,
				       .subject = many->kind->subjects[subject],
				       .unit = "s",
				       .threads = 1,
				       .emulated = report->emulated != 0,
				       .compared = kind == STREAMED && subject == 1};
	if (status == STATUS_OK)
		results_add(many->results, &row, seconds);
	return status;
}

/* Each chunk is one read into one slot.  In place, tensors that its ends cut are copies of their
 * own. */
static void add_copies(const struct many *many)
{
	for (int i = 0; i < 2; i++) {
		const hoist_load_report *report = &many->reports[i];
		bool in_place = i == 0;
		if (report->n_reads > 0)
			results_bar(many->results, many->work,
				    in_place ? "copies / slot, in place" : "copies / slot",
				    (double)report->n_copies / (double)report->n_reads, "x", false,
				    in_place ? 3 : 1.1);
	}
}

static double median_of(const struct many *many, int subject)
{
	return results_median(
		results_find(many->results, many->work, 1, many->kind->subjects[subject], "s"));
}

static void add_bars(const struct many *many)
{
	const struct kind *kind = many->kind;
	char what[64];
	bool tiny = kind == &kinds[TINY];
	if (tiny && !many->cpu)
		add_copies(many);
	if (many->n < kind->most)
		return;
	(void)snprintf(what, sizeof what, "time%s / %s", tiny ? " in place" : "",
		       tiny ? "into fresh memory" : kind->subjects[1]);
	results_bar(many->results, many->work, what, median_of(many, 0) / median_of(many, 1), "x",
		    false, kind->bar);
	if (tiny && !many->cpu)
		results_bar(many->results, many->work, "time", median_of(many, 1), "s", false, 0.6);
}

static int measure_kind(struct many *many, unsigned runs)
{
	struct made made[2] = {{.fd = -1}, {.fd = -1}};
	struct bench_file files[2] = {{0}, {0}};
	int n_files = many->kind == &kinds[STREAMED] ? 2 : 1;
	int status = STATUS_OK;
	for (int i = 0; i < n_files && status == STATUS_OK; i++) {
		status = made_open(i == 0 ? many->n : 1, i == 0 ? 1 : many->n, many->kind->bytes,
				   &made[i]);
		if (status == STATUS_OK)
			status = bench_file_open(&(struct bench_request){.path = made[i].path},
						 &files[i]);
	}
	for (unsigned i = 0; i < 2 * runs && status == STATUS_OK; i++) {
		/* Each round begins with the other subject. */
		int subject = (int)((i + i / 2) % 2);
		progress_steps(many->work, many->kind->subjects[subject], i, (size_t)2 * runs);
		status = measure(many, files, subject);
	}
	if (status == STATUS_OK)
		add_bars(many);
	for (int i = 0; i < 2; i++) {
		bench_file_close(&files[i]);
		made_close(&made[i]);
	}
	return status;
}

int bench_many(uint64_t most_bytes, hoist_device *device, const char *spec, unsigned runs,
	       struct results *results)
{
	int status = STATUS_OK;
	for (int i = 0; i < N_KINDS && status == STATUS_OK; i++) {
		uint64_t n = most_bytes / kinds[i].bytes + 1;
		struct many many = {.kind = &kinds[i], .device = device, .results = results};
		many.cpu = strcmp(spec, "cpu") == 0;
		many.n = n < kinds[i].most ? (size_t)n : kinds[i].most;
		(void)snprintf(many.work, sizeof many.work, "%zu %s, hot to %.24s", many.n,
			       kinds[i].name, spec);
		status = measure_kind(&many, runs);
	}
	return status;
}
