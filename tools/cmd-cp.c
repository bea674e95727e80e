/* SPDX-License-Identifier: MIT */
/* tools/cmd-cp.c - hoist cp: copies a checkpoint: joins shards, splits, picks tensors, converts
 * formats.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <hoist/hoist.h>

#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "tools/args.h"
#include "tools/beside.h"
#include "tools/copy-tensors.h"
#include "tools/in-place.h"
#include "tools/skipped.h"

struct copy {
	hoist_checkpoint *checkpoint;
	hoist_budget *budget; /* NULL: the library's default */
	hoist_save *save;
	char *path;	    /* of the copy */
	const char *folder; /* that the copy lies in, if the user named that; else NULL */
	bool made_folder;
	struct copy_tensors tensors;
	struct beside beside;
	hoist_save_report report;
};

/* --- the path of the copy --- */

static bool is_folder(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* A copy into a folder gets the name that readers of its format look for. */
static int find_path(struct copy *copy, const struct args *args)
{
	const char *to = args->operands[1];
	const char *format = args->copy.format != NULL ? args->copy.format : "safetensors";
	size_t n = strlen(to);
	if (to[n - 1] == '/' || is_folder(to))
		copy->folder = to;
	int written = copy->folder != NULL ? asprintf(&copy->path, "%s%smodel.%s", to,
						      to[n - 1] == '/' ? "" : "/", format)
					   : asprintf(&copy->path, "%s", to);
	if (written >= 0)
		return STATUS_OK;
	copy->path = NULL;
	return fail_memory();
}

/* Makes the folder that a name with a slash at its end asks for; the folders above must be there.
 */
static int make_folder(struct copy *copy)
{
	if (copy->folder == NULL || is_folder(copy->folder))
		return STATUS_OK;
	if (mkdir(copy->folder, 0777) < 0)
		return fail("creating the folder %s: %s", copy->folder, strerror(errno));
	copy->made_folder = true;
	return STATUS_OK;
}

/* --- before the copy --- */

static int add_metadata(struct copy *copy, const struct args *args)
{
	const struct copy_args *given = &args->copy;
	int err = hoist_save_metadata_of(copy->save, copy->checkpoint);
	if (err == 0 && given->n_metadata > 0 &&
	    strcmp(hoist_save_format(copy->save), "safetensors") != 0)
		return fail("--metadata is for safetensors: %s has %s; leave --metadata out",
			    hoist_save_format(copy->save),
			    strcmp(hoist_save_format(copy->save), "gguf") == 0
				    ? "metadata with types, which a text cannot give"
				    : "no place for metadata");
	/* Files without metadata are taken for PyTorch's; with some, they must say so. */
	if (err == 0 && given->n_metadata > 0 && hoist_checkpoint_n_metadata(copy->checkpoint) == 0)
		err = hoist_save_metadata(copy->save, "format", "pt");
	for (size_t i = 0; err == 0 && i < given->n_metadata; i++)
		err = hoist_save_metadata(copy->save, given->metadata[i].key,
					  given->metadata[i].value);
	return err != 0 ? fail_call(err) : STATUS_OK;
}

static bool is_gguf_anew(const struct copy *copy)
{
	return strcmp(hoist_save_format(copy->save), "gguf") == 0 &&
	       strcmp(hoist_checkpoint_format(copy->checkpoint), "gguf") != 0;
}

/* Readers of GGUF go by general.architecture and by names of their own for the tensors.  Whoever
 * writes NAME.gguf expects a model that llama.cpp loads, and learns now rather than there that it
 * is none. */
static int check_container(const struct copy *copy, const struct args *args)
{
	if (!is_gguf_anew(copy) || args->copy.format != NULL)
		return STATUS_OK;
	return fail("%s would be a GGUF file that llama.cpp does not load: names and metadata stay "
		    "those of %s, and general.architecture is missing; use llama.cpp's "
		    "convert_hf_to_gguf.py, or give --format gguf to change the container alone",
		    copy->path, hoist_checkpoint_format(copy->checkpoint));
}

static int create_save(struct copy *copy, const struct args *args, bool over_itself)
{
	const struct copy_args *given = &args->copy;
	/* A copy over its own source keeps the digests that the source has. */
	bool digest = given->digest || (over_itself && has_digests(copy->checkpoint));
	const hoist_save_options options = {
		.size = sizeof options,
		.format = given->format,
		.engine = args->engine,
		.io = args->io,
		.budget = copy->budget,
		.shard_bytes = given->shard_bytes,
		.flags = (digest ? HOIST_SAVE_DIGEST : 0) |
			 (given->no_sync ? HOIST_SAVE_NO_SYNC : 0) |
			 (given->no_replace ? HOIST_SAVE_NO_REPLACE : 0),
	};
	int err = hoist_save_create(copy->path, &options, &copy->save);
	return err != 0 ? fail_call(err) : STATUS_OK;
}

static int check_in_place(const struct copy *copy, const struct args *args)
{
	const char *losing = args->load.dtype != 0     ? "--dtype"
			     : args->load.n_slices > 0 ? "--slice"
						       : NULL;
	if (losing != NULL)
		return fail("%s is a source of the copy: with %s the file would lose what it has; "
			    "copy to another name",
			    copy->path, losing);
	return in_place_check(copy->checkpoint, copy->save, copy->path, args->copy.shard_bytes != 0,
			      copy->tensors.n);
}

static int prepare(struct copy *copy, const struct args *args)
{
	int status = find_path(copy, args);
	if (status != STATUS_OK)
		return status;
	if (args->budget != 0 && hoist_budget_create(args->budget, &copy->budget) != 0)
		return fail_library();
	int err = hoist_checkpoint_open(args->operands[0], args->open_flags, &copy->checkpoint);
	if (err != 0)
		return fail_call(err);
	skipped_note(copy->checkpoint);
	bool over_itself = in_place(copy->checkpoint, copy->path);
	status = create_save(copy, args, over_itself);
	if (status == STATUS_OK)
		status = check_container(copy, args);
	if (status == STATUS_OK)
		status = copy_add_tensors(copy->save, copy->checkpoint, args, &copy->tensors);
	if (status == STATUS_OK && over_itself)
		status = check_in_place(copy, args);
	return status == STATUS_OK ? add_metadata(copy, args) : status;
}

/* From a folder to a folder. */
static int find_beside(struct copy *copy, const struct args *args)
{
	const char *from = args->operands[0];
	bool folders = copy->folder != NULL && is_folder(from);
	if (args->copy.only_weights && !folders)
		return args_refuse(args,
				   "nothing but weights goes from or to a single file: leave out ",
				   "--only-weights", "");
	if (args->copy.only_weights || !folders)
		return STATUS_OK;
	unsigned flags =
		(args->open_flags & HOIST_OPEN_FOLLOW_LINKS) != 0 ? BESIDE_FOLLOW_LINKS : 0;
	flags |= args->copy.no_sync ? BESIDE_NO_SYNC : 0;
	hoist_dtype_info dtype = {.size = sizeof dtype};
	if (args->load.dtype != HOIST_DTYPE_INVALID)
		(void)hoist_dtype_get_info(args->load.dtype, &dtype);
	return beside_find(&copy->beside, from, copy->folder, dtype.numpy, flags);
}

/* --- copying --- */

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
	int err = hoist_save_start(copy->save);
	if (err == 0)
		err = wait(copy);
	if (err == -ECANCELED)
		return cancelled(copy);
	return err != 0 ? fail_call(err) : STATUS_OK;
}

/* --- the report --- */

/* Prints "<what>a, b" of the files beside the weights that have the state; nothing if none has. */
static void print_beside(const struct copy *copy, const char *what, int state)
{
	size_t n = 0;
	for (size_t i = 0; i < copy->beside.n_files; i++)
		if ((int)copy->beside.files[i].state == state) {
			(void)fputs(n++ == 0 ? what : ", ", stdout);
			print_escaped(stdout, copy->beside.files[i].name);
			if (copy->beside.files[i].changed)
				(void)fputs(" (with the new dtype)", stdout);
		}
	if (n > 0)
		(void)putchar('\n');
}

/* One line: the copy, its rate, and the time behind the last write if that set the pace. */
static void print_line(const struct copy *copy)
{
	struct text a, b;
	const hoist_save_report *report = &copy->report;
	double seconds = (double)report->ns / 1e9;
	(void)printf("copied %s tensor%s, %s, to ", format_count(report->n_tensors, &a),
		     report->n_tensors == 1 ? "" : "s", format_bytes(report->bytes, &b));
	print_escaped(stdout, copy->path);
	if (report->n_files > 1)
		(void)printf(" (%s shards and their index)", format_count(report->n_files, &a));
	(void)printf(" in %s: %s", format_seconds(seconds, &a),
		     format_rate(rate_of(report->bytes, seconds), &b));
	if (2 * report->sync_ns > report->ns)
		(void)printf(", mostly waiting until the disk had kept it (%d %% of the time)",
			     (int)(100 * report->sync_ns / report->ns));
	(void)putchar('\n');
}

static void print_details(const struct copy *copy)
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

static void print_report(const struct copy *copy, bool verbose)
{
	if (verbose)
		print_details(copy);
	else
		print_line(copy);
	if (is_gguf_anew(copy))
		(void)puts("format    gguf, the container alone: names and metadata are the "
			   "source's, and llama.cpp does not load it");
	unconverted_print(&copy->tensors.unconverted, "f32, f16, bf16 and quantised ones");
	print_beside(copy, "beside    ", BESIDE_TAKEN);
	print_beside(copy, "there     already, the same: ", BESIDE_THERE);
	print_beside(copy, "left      ", BESIDE_LEFT);
}

static json_t *beside_json(const struct copy *copy, int state)
{
	json_t *list = json_array();
	for (size_t i = 0; list != NULL && i < copy->beside.n_files; i++)
		if ((int)copy->beside.files[i].state == state &&
		    json_array_append_new(list, json_text(copy->beside.files[i].name)) < 0) {
			json_decref(list);
			list = NULL;
		}
	return list;
}

static int print_json(const struct copy *copy)
{
	const hoist_save_report *report = &copy->report;
	double seconds = (double)report->ns / 1e9;
	return json_print(
		json_pack("{s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o, "
			  "s:o, s:o, s:o, s:o, s:o}",
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
			  json_count(report->budget_bytes), "unconverted",
			  json_count(copy->tensors.unconverted.n), "beside",
			  beside_json(copy, BESIDE_TAKEN), "beside_there",
			  beside_json(copy, BESIDE_THERE), "beside_left",
			  beside_json(copy, BESIDE_LEFT)),
		true);
}

/* The files beside the weights are copied first, and get their names last: a copy that fails leaves
 * none of them. */
static int copy_all(struct copy *copy, const struct args *args)
{
	int status = prepare(copy, args);
	(void)signal(SIGXFSZ, SIG_IGN); /* the write fails instead */
	interrupt_watch();
	if (status == STATUS_OK)
		status = make_folder(copy);
	if (status == STATUS_OK)
		status = find_beside(copy, args);
	if (status == STATUS_OK)
		status = run(copy);
	if (status != STATUS_OK)
		return status;
	copy->made_folder = false;
	return beside_publish(&copy->beside);
}

int cmd_cp(const struct args *args)
{
	struct copy copy = {.beside = {.from_fd = -1, .to_fd = -1}};
	if (args->verbose && args->json)
		return args_refuse(args, "--json has all that --verbose prints: leave out ",
				   "--verbose", "");
	int status = copy_all(&copy, args);
	if (status == STATUS_OK && args->json)
		status = print_json(&copy);
	else if (status == STATUS_OK)
		print_report(&copy, args->verbose);
	hoist_save_destroy(copy.save);
	beside_close(&copy.beside);
	/* Only an empty folder goes. */
	if (copy.made_folder)
		(void)rmdir(copy.folder);
	hoist_checkpoint_close(copy.checkpoint);
	hoist_budget_unref(copy.budget);
	free(copy.path);
	return status;
}
