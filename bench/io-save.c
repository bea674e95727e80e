/* SPDX-License-Identifier: MIT */
/* Saves, measured: from buffers on a device to a file, the disk's answer included.  The contract is
 * in io-save.h. */
#include "config.h"

#include "bench/io-save.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench/raw.h"
#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/fail.h"

#define N_ENGINES 2
#define LEAST_RAW_BYTES 4096

static const struct {
	const char *name;
	enum hoist_engine engine;
} subjects[N_ENGINES] = {
	{"hoist", HOIST_ENGINE_AUTO},
	{"threads", HOIST_ENGINE_THREADS},
};

/* The peer: direct writes of as many bytes from as much memory, with fsync. */
static const struct fio_shape raw_shape = {.block_bytes = (uint64_t)2 << 20, .depth = 16};

/* Chooses a name that no file has, in --to if that is a folder, or beside the first file. */
static char *choose_path(const struct bench_request *request, const struct bench_file *file)
{
	struct stat info;
	hoist_file_info first = {.size = sizeof first};
	char *path = NULL;
	const char *to = request->to;
	bool folder = to != NULL && stat(to, &info) == 0 && S_ISDIR(info.st_mode);
	if (to != NULL && !folder)
		return strdup(to);
	if (to == NULL && hoist_checkpoint_file(file->checkpoint, 0, &first) != 0)
		return NULL;
	const char *end = folder ? to + strlen(to) : base_name(first.path);
	const char *start = folder ? to : first.path;
	if (asprintf(&path, "%.*s%s.hoist-bench-%ld.safetensors", (int)(end - start), start,
		     folder ? "/" : "", (long)getpid()) < 0)
		return NULL;
	return path;
}

static int load(struct bench_file *file, hoist_device *device, hoist_load **ret)
{
	const hoist_load_options options = {.size = sizeof options,
					    .device = device,
					    .tensors = file->names,
					    .n_tensors = file->n_names,
					    .slices = file->n_slices > 0 ? &file->slice : NULL,
					    .n_slices = file->n_slices};
	int err = hoist_load_start(file->checkpoint, &options, ret);
	if (err == 0)
		err = hoist_load_wait(*ret);
	return err == 0 ? STATUS_OK : fail_call(err);
}

static int save_once(const char *path, enum hoist_engine engine, struct bench_file *file,
		     hoist_load *loaded, hoist_save_report *report)
{
	hoist_save *save = NULL;
	const hoist_save_options options = {
		.size = sizeof options, .engine = engine, .flags = HOIST_SAVE_NO_REPLACE};
	int err = hoist_save_create(path, &options, &save);
	if (err == 0)
		err = bench_add_buffers(save, file->checkpoint, loaded);
	if (err == 0)
		err = hoist_save_start(save);
	if (err == 0)
		err = hoist_save_wait(save);
	*report = (hoist_save_report){.size = sizeof *report};
	if (err == 0)
		err = hoist_save_get_report(save, report);
	int status = err == 0 ? STATUS_OK : fail_call(err);
	hoist_save_destroy(save);
	if (status == STATUS_OK && unlink(path) != 0)
		return fail("%s: removing it again: %s", path, strerror(errno));
	return status;
}

/* One save, and its row. */
static int measure(const char *path, const char *work, int subject, struct bench_file *file,
		   hoist_load *loaded, bool emulated, struct results *results,
		   hoist_save_report *report)
{
	if (interrupted())
		return fail("stopped by a signal");
	int status = save_once(path, subjects[subject].engine, file, loaded, report);
	if (status == STATUS_OK)
		bench_file_add(results, &(struct bench_run){.work = work,
							    .subject = subjects[subject].name,
							    .compared = subject > 0,
							    .emulated = emulated,
							    .bytes = report->bytes,
							    .seconds = (double)report->ns / 1e9,
							    .cpu_ns = report->cpu_ns});
	return status;
}

/* The peer writes where hoist's own save wrote directly, by io_uring. */
static void measure_raw(const char *path, const char *work, const hoist_save_report *report,
			struct results *results)
{
	char name[32];
	if (report->direct_bytes >= report->bytes / 2 && report->bytes >= LEAST_RAW_BYTES &&
	    strncmp(report->engine, "io_uring", 8) == 0)
		results_peer(results, work, raw_label(&raw_shape, name, sizeof name),
			     raw_write(path, report->bytes, &raw_shape));
}

static void add_bar(struct results *results, const char *work)
{
	char name[32];
	const struct result_row *own = results_find(results, work, 1, subjects[0].name, "GB/s");
	const struct result_row *raw =
		results_find(results, work, 1, raw_label(&raw_shape, name, sizeof name), "GB/s");
	if (own != NULL && raw != NULL)
		results_bar(results, work, "rate / raw writes'",
			    results_median(own) / results_median(raw), "x", true, 0.95);
	else
		results_missing(results, "raw writes, beside the save",
				"hoist does not write directly by io_uring here");
}

int bench_save(const struct bench_request *request, struct bench_file *file, hoist_device *device,
	       unsigned runs, struct results *results)
{
	char work[64];
	hoist_load *loaded = NULL;
	hoist_load_report from = {.size = sizeof from};
	char *path = choose_path(request, file);
	if (path == NULL)
		return fail_memory();
	int status = load(file, device, &loaded);
	if (status == STATUS_OK && hoist_load_get_report(loaded, &from) != 0)
		status = fail_library();
	(void)snprintf(work, sizeof work, "save from %s, fsync", from.device);
	for (unsigned i = 0; i < runs * N_ENGINES && status == STATUS_OK; i++) {
		hoist_save_report report;
		/* Each round begins with another engine. */
		unsigned subject = (i + i / N_ENGINES) % N_ENGINES;
		progress_steps(work, subjects[subject].name, i, runs * N_ENGINES);
		status = measure(path, work, (int)subject, file, loaded, from.emulated != 0,
				 results, &report);
		if (status == STATUS_OK && subject == 0)
			measure_raw(path, work, &report, results);
	}
	if (status == STATUS_OK)
		add_bar(results, work);
	hoist_load_destroy(loaded);
	free(path);
	return status;
}
