/* SPDX-License-Identifier: MIT */
/* tools/cmd-cp.c - hoist cp: copies a checkpoint: joins shards, splits, picks tensors, converts
 * formats.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <hoist/hoist.h>

#include "tools/args.h"
#include "cli/format.h"
#include "tools/in-place.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "tools/operation.h"

struct copy {
	hoist_checkpoint *checkpoint;
	hoist_budget *budget; /* NULL: the library's default */
	hoist_save *save;
	char *path; /* of the copy */
	size_t n_tensors;
	hoist_save_report report;
};

/* --- the path of the copy --- */

/* A copy into a folder gets the name that readers of its format look for. */
static int find_path(const struct args *args, char **ret)
{
	struct stat st;
	const char *to = args->operands[1];
	const char *format = args->format != NULL ? args->format : "safetensors";
	size_t n = strlen(to);
	bool folder = (stat(to, &st) == 0 && S_ISDIR(st.st_mode)) || to[n - 1] == '/';
	int written =
		folder ? asprintf(ret, "%s%smodel.%s", to, to[n - 1] == '/' ? "" : "/", format)
		       : asprintf(ret, "%s", to);
	return written >= 0 ? STATUS_OK : fail_memory();
}

/* --- the tensors to copy --- */

static int add_tensor(struct copy *copy, const struct args *args, bool *used, size_t index)
{
	hoist_tensor_info tensor = {.size = sizeof tensor};
	if (hoist_checkpoint_tensor(copy->checkpoint, index, &tensor) != 0)
		return fail_library();
	bool selected = args->n_patterns == 0;
	for (size_t p = 0; p < args->n_patterns; p++)
		if (operation_matches(copy->checkpoint, args->patterns[p], tensor.name))
			selected = used[p] = true;
	if (selected && hoist_save_add_tensor(copy->save, NULL, copy->checkpoint, index) != 0)
		return fail_library();
	copy->n_tensors += selected;
	return STATUS_OK;
}

static int add_tensors(struct copy *copy, const struct args *args)
{
	bool *used = calloc(args->n_patterns + 1, sizeof *used);
	if (used == NULL)
		return fail_memory();
	int status = STATUS_OK;
	size_t n = hoist_checkpoint_n_tensors(copy->checkpoint);
	for (size_t i = 0; status == STATUS_OK && i < n; i++)
		status = add_tensor(copy, args, used, i);
	for (size_t p = 0; status == STATUS_OK && p < args->n_patterns; p++)
		if (!used[p])
			status = fail("%s has no tensor that matches \"%s\"; see `hoist ls`",
				      args->operands[0], args->patterns[p]);
	free(used);
	return status;
}

/* --- copying --- */

static int prepare(struct copy *copy, const struct args *args)
{
	int status = find_path(args, &copy->path);
	if (status != STATUS_OK)
		return status;
	if (args->budget != 0 && hoist_budget_create(args->budget, &copy->budget) != 0)
		return fail_library();
	int err = hoist_checkpoint_open(args->operands[0], args->open_flags, &copy->checkpoint);
	if (err != 0)
		return fail_call(err);
	/* A copy over its own source keeps the digests that the source has. */
	bool over_itself = in_place(copy->checkpoint, copy->path);
	bool digest = args->digest || (over_itself && has_digests(copy->checkpoint));
	const hoist_save_options options = {
		.size = sizeof options,
		.format = args->format,
		.engine = args->engine,
		.io = args->io,
		.budget = copy->budget,
		.shard_bytes = args->shard_bytes,
		.flags = (digest ? HOIST_SAVE_DIGEST : 0) |
			 (args->no_sync ? HOIST_SAVE_NO_SYNC : 0) |
			 (args->no_replace ? HOIST_SAVE_NO_REPLACE : 0),
	};
	err = hoist_save_create(copy->path, &options, &copy->save);
	if (err != 0)
		return fail_call(err);
	status = add_tensors(copy, args);
	if (status == STATUS_OK && over_itself)
		status = in_place_check(copy->checkpoint, copy->save, copy->path,
					args->shard_bytes != 0, copy->n_tensors);
	if (status != STATUS_OK)
		return status;
	err = hoist_save_metadata_of(copy->save, copy->checkpoint);
	return err != 0 ? fail_call(err) : STATUS_OK;
}

static int cancelled(struct copy *copy)
{
	struct text done_text, total_text;
	uint64_t done = 0;
	uint64_t total = 0;
	hoist_save_progress(copy->save, &done, &total);
	return fail("cancelled after %s of %s; %s is as it was", format_bytes(done, &done_text),
		    format_bytes(total, &total_text), copy->path);
}

/* Looks often at first, for copies that are over soon, and later twenty times a second. */
static int wait(struct copy *copy)
{
	long nap = 200000;
	bool asked = false;
	copy->report.size = sizeof copy->report;
	progress_begin("copying");
	while (hoist_save_get_report(copy->save, &copy->report) == -EAGAIN) {
		uint64_t done = 0;
		uint64_t total = 0;
		hoist_save_progress(copy->save, &done, &total);
		progress_update(done, total);
		if (interrupted() && !asked) {
			asked = true;
			hoist_save_cancel(copy->save);
		}
		const struct timespec time = {.tv_nsec = nap};
		(void)nanosleep(&time, NULL); /* a signal ends it */
		nap = nap < 50000000 ? 2 * nap : nap;
	}
	progress_end();
	return hoist_save_wait(copy->save);
}

static int run(struct copy *copy)
{
	interrupt_watch();
	int err = hoist_save_start(copy->save);
	if (err == 0)
		err = wait(copy);
	if (err == -ECANCELED)
		return cancelled(copy);
	return err != 0 ? fail_call(err) : STATUS_OK;
}

/* --- the report --- */

static void print_report(const struct copy *copy)
{
	struct text a, b, c;
	const hoist_save_report *report = &copy->report;
	double seconds = (double)report->ns / 1e9;
	(void)printf("copied    %s tensor%s, %s bytes (%s)\n", format_count(report->n_tensors, &a),
		     report->n_tensors == 1 ? "" : "s", format_count(report->bytes, &b),
		     format_bytes(report->bytes, &c));
	(void)fputs("to        ", stdout);
	print_escaped(stdout, copy->path);
	if (report->n_files > 1)
		(void)printf(", %s shards and their index", format_count(report->n_files, &a));
	(void)printf("\ntook      %s, %s, %s of CPU time; %s of it behind the last write\n",
		     format_seconds(seconds, &a), format_rate(rate_of(report->bytes, seconds), &b),
		     format_seconds((double)report->cpu_ns / 1e9, &c),
		     format_seconds((double)report->sync_ns / 1e9, &(struct text){0}));
	(void)fputs("engine    ", stdout);
	print_escaped(stdout, report->engine_reason);
	(void)printf("\nwritten   %s direct, %s cached; ", format_bytes(report->direct_bytes, &a),
		     format_bytes(report->cached_bytes, &b));
	print_escaped(stdout, report->io_reason);
	(void)printf("\nstaging   %s in use at most, budget %s\n",
		     format_bytes(report->staging_peak_bytes, &a),
		     format_bytes(report->budget_bytes, &b));
}

static int print_json(const struct copy *copy)
{
	const hoist_save_report *report = &copy->report;
	double seconds = (double)report->ns / 1e9;
	return json_print(
		json_pack("{s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, "
			  "s:o}",
			  "path", json_text(copy->path), "bytes", json_count(report->bytes),
			  "tensors", json_count(report->n_tensors), "files",
			  json_count(report->n_files), "seconds", seconds, "gb_per_s",
			  rate_of(report->bytes, seconds) / 1e9, "cpu_seconds",
			  (double)report->cpu_ns / 1e9, "sync_seconds",
			  (double)report->sync_ns / 1e9, "engine", json_text(report->engine),
			  "engine_reason", json_text(report->engine_reason), "io_reason",
			  json_text(report->io_reason), "direct_bytes",
			  json_count(report->direct_bytes), "cached_bytes",
			  json_count(report->cached_bytes), "staging_peak_bytes",
			  json_count(report->staging_peak_bytes), "budget_bytes",
			  json_count(report->budget_bytes)),
		true);
}

int cmd_cp(const struct args *args)
{
	struct copy copy = {0};
	int status = prepare(&copy, args);
	if (status == STATUS_OK)
		status = run(&copy);
	if (status == STATUS_OK && args->json)
		status = print_json(&copy);
	else if (status == STATUS_OK)
		print_report(&copy);
	hoist_save_destroy(copy.save);
	hoist_checkpoint_close(copy.checkpoint);
	hoist_budget_unref(copy.budget);
	free(copy.path);
	return status;
}
