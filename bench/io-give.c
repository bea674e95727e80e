/* SPDX-License-Identifier: MIT */
/* Loads that stream through a window, to several targets, and in place.
 * The contract is in io-give.h. */
#include "config.h"

#include "bench/io-give.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/fail.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

#define PARTS 8 /* the window is such a part of the bytes; so many targets */

enum { WHOLE, STREAM, TARGETS, IN_PLACE, N_SUBJECTS };

static const char *const names[N_SUBJECTS] = {"a whole load", "through a window", "8 targets",
					      "in place"};

struct give {
	struct bench_file *file;
	hoist_device *device;
	struct results *results;
	char works[N_SUBJECTS][64];
	char refused[N_SUBJECTS][96]; /* why it is not measured; "": it is */
	struct bench_way ways[N_SUBJECTS];
	hoist_load_report reports[N_SUBJECTS];
	uint64_t largest; /* bytes of the largest tensor */
	hoist_load_slice *slices;
	size_t n_slices; /* of each target */
	hoist_load_target targets[PARTS];
	const hoist_load_target *list[PARTS];
};

/* Finds the largest tensor, and how many can be cut into columns. */
static int look(struct give *give)
{
	const struct bench_file *file = give->file;
	give->slices = calloc(file->n_names * PARTS + 1, sizeof *give->slices);
	if (give->slices == NULL)
		return fail_memory();
	for (size_t i = 0; i < file->n_names; i++) {
		size_t tensor = 0;
		hoist_tensor_info info = {.size = sizeof info};
		if (hoist_checkpoint_find(file->checkpoint, file->names[i], &tensor) != 0 ||
		    hoist_checkpoint_tensor(file->checkpoint, tensor, &info) != 0)
			return fail_library();
		give->largest = info.bytes > give->largest ? info.bytes : give->largest;
		if (info.rank >= 2 && info.strides == NULL && info.shape[1] > 0 &&
		    info.shape[1] % PARTS == 0 && hoist_dtype_bits(info.dtype) % 8 == 0)
			give->slices[give->n_slices++].tensor = file->names[i];
	}
	if (file->n_slices > 0)
		give->largest = file->bytes;
	return STATUS_OK;
}

/* Target t has part t of each tensor that can be cut, and all of every other. */
static void make_targets(struct give *give)
{
	size_t n = give->n_slices;
	for (size_t t = 0; t < PARTS; t++) {
		hoist_load_slice *slices = &give->slices[t * n];
		for (size_t i = 0; i < n; i++)
			slices[i] = (hoist_load_slice){.tensor = give->slices[i].tensor,
						       .axis = 1,
						       .rank = (int)t,
						       .n_ranks = PARTS};
		give->targets[t] = (hoist_load_target){.size = sizeof give->targets[t],
						       .device = give->device,
						       .tensors = give->file->names,
						       .n_tensors = give->file->n_names,
						       .slices = slices,
						       .n_slices = n};
		give->list[t] = &give->targets[t];
	}
	give->ways[TARGETS].targets = give->list;
	give->ways[TARGETS].n_targets = PARTS;
	if (n == 0 || give->file->n_slices > 0)
		(void)snprintf(give->refused[TARGETS], sizeof give->refused[TARGETS],
			       "no tensor can be cut into %d parts along axis 1", PARTS);
}

static int measure(struct give *give, int subject)
{
	double seconds = 0;
	if (give->refused[subject][0] != '\0')
		return STATUS_OK;
	if (interrupted())
		return fail("stopped by a signal");
	hoist_load_report *report = &give->reports[subject];
	int status = bench_file_load(give->file, give->device, NULL, &give->ways[subject], &seconds,
				     report);
	for (int i = 0; i < N_SUBJECTS && status == STATUS_OK && give->file->never_cold; i++)
		(void)snprintf(give->refused[i], sizeof give->refused[i],
			       "the files stay in the page cache");
	if (status != STATUS_OK || give->file->never_cold)
		return status;
	for (int work = STREAM; work < N_SUBJECTS; work++)
		if (subject == WHOLE || subject == work)
			bench_file_add(give->results,
				       &(struct bench_run){
					       .work = give->works[work],
					       .subject = subject == WHOLE ? names[WHOLE] : "hoist",
					       .compared = subject == WHOLE,
					       .emulated = report->emulated != 0,
					       .bytes = report->bytes,
					       .seconds = seconds,
					       .cpu_ns = report->cpu_ns});
	return status;
}

/* The median time, as a multiple of the whole load's. */
static double times_whole(const struct give *give, int subject)
{
	const struct result_row *own =
		results_find(give->results, give->works[subject], 1, "hoist", "GB/s");
	const struct result_row *whole =
		results_find(give->results, give->works[subject], 1, names[WHOLE], "GB/s");
	return own != NULL && whole != NULL && results_median(own) > 0
		       ? results_median(whole) / results_median(own)
		       : 0;
}

static void add_bars(struct give *give)
{
	const hoist_load_report *stream = &give->reports[STREAM];
	const hoist_load_report *targets = &give->reports[TARGETS];
	for (int i = STREAM; i < N_SUBJECTS; i++)
		if (give->refused[i][0] != '\0')
			results_missing(give->results, give->works[i], give->refused[i]);
	if (give->refused[STREAM][0] == '\0') {
		results_bar(give->results, give->works[STREAM], "time / the whole load's",
			    times_whole(give, STREAM), "x", false, 1.05);
		results_bar(give->results, give->works[STREAM], "destination at most",
			    (double)stream->window_peak_bytes, "bytes", false,
			    (double)(give->ways[STREAM].window_bytes + give->largest));
	}
	if (give->refused[IN_PLACE][0] == '\0')
		results_bar(give->results, give->works[IN_PLACE], "time / the whole load's",
			    times_whole(give, IN_PLACE), "x", false, 1.0);
	if (give->refused[TARGETS][0] == '\0') {
		results_bar(give->results, give->works[TARGETS], "time / the whole load's",
			    times_whole(give, TARGETS), "x", false, 1.1);
		results_bar(give->results, give->works[TARGETS], "read for each byte",
			    (double)(targets->direct_bytes + targets->cached_bytes) /
				    (double)give->file->bytes,
			    "bytes", false, 1.02);
	}
}

int bench_give(struct bench_file *file, hoist_device *device, const char *spec, unsigned runs,
	       struct results *results)
{
	struct give *give = calloc(1, sizeof *give);
	if (give == NULL)
		return fail_memory();
	give->file = file;
	give->device = device;
	give->results = results;
	for (int i = STREAM; i < N_SUBJECTS; i++)
		(void)snprintf(give->works[i], sizeof give->works[i], "cold to %.32s, %s", spec,
			       names[i]);
	give->ways[IN_PLACE].in_place = true;
	give->ways[STREAM].window_bytes = (size_t)(file->bytes / PARTS) + 1;
	int status = look(give);
	if (status == STATUS_OK)
		make_targets(give);
	for (unsigned run = 0; run < runs * N_SUBJECTS && status == STATUS_OK; run++) {
		/* Each round begins with another subject. */
		int subject = (int)((run + run / N_SUBJECTS) % N_SUBJECTS);
		progress_steps("one by one", names[subject], run, (size_t)runs * N_SUBJECTS);
		status = measure(give, subject);
	}
	if (status == STATUS_OK)
		add_bars(give);
	free(give->slices);
	free(give);
	return status;
}
