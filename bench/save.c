/* SPDX-License-Identifier: MIT */
/* save FILE [TARGET] - a checkpoint in memory to a disk, the disk's answer included.
 *
 *   device -> disk          buffers on an emulated device: its memory is populated, its copies are
 *                           as fast as memory
 *   host -> disk            buffers in host memory, which lie there as in FILE: a file of another
 *                           writer's is seldom aligned to 512 bytes, so all bytes go through slots
 *   aligned host -> disk    buffers of a copy of FILE that hoist wrote: all bytes are written from
 *                           where they are
 *
 * beside fio's best: a new file, fallocate, direct writes of as many bytes by io_uring from huge
 * pages, fsync; fio_write() in fio.h says what is in the time.  fio's buffers are depth x block in
 * all, so that a save reads more memory than fio does: raw writes from as much memory (raw.h) stand
 * beside, too, without a bar.
 *
 * FILE gives the tensors (2 GiB or so); what is written goes to TARGET, a name that nothing has
 * (default: FILE.saved), and is removed each time; the copy is TARGET.copy.  Memory for the slots
 * was in use just before, as fio's buffers are before its clock starts.  The file system's log is
 * written before each run.  Runs alternate; figures are medians.
 */
#include "config.h"

#include "bench/bench.h"
#include "bench/fio.h"
#include "bench/io-file.h"
#include "bench/raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <hoist/hoist.h>

#define GIB ((double)((uint64_t)1 << 30))
#define SLOTS_BYTES ((size_t)128 << 20) /* of a save, at most */

static const char usage[] = "usage: save [--runs N] [--json PATH] FILE.safetensors [TARGET]\n";

struct request {
	const char *path;
	const char *target;
	const char *device;
};

struct subject {
	const char *work;
	struct request request;
	struct samples seconds;
	struct samples cpu;
	hoist_save_report report; /* of the last run */
};

static void save_all(const struct request *request, hoist_checkpoint *checkpoint, hoist_load *load,
		     hoist_save_report *report)
{
	hoist_save *save = NULL;
	const hoist_save_options options = {.size = sizeof options, .flags = HOIST_SAVE_NO_REPLACE};
	bench_must(hoist_save_create(request->target, &options, &save), "saving", request->target);
	bench_must(bench_add_buffers(save, checkpoint, load), "adding the buffers of",
		   request->path);
	bench_must(hoist_save_start(save), "saving", request->target);
	bench_must(hoist_save_wait(save), "saving", request->target);
	*report = (hoist_save_report){.size = sizeof *report};
	bench_must(hoist_save_get_report(save, report), "reporting", request->target);
	hoist_save_destroy(save);
}

/* Loads, then saves.  Only the save is in the report. */
static void in_child(const void *argument, void *ret)
{
	const struct request *request = argument;
	hoist_checkpoint *checkpoint = NULL;
	hoist_device *device = NULL;
	hoist_load *load = NULL;
	char resident[24];
	(void)snprintf(resident, sizeof resident, "%llu",
		       (unsigned long long)bench_file_bytes(request->path));
	if (setenv("HOIST_EMULATE", "cuda:1", 1) < 0 ||
	    setenv("HOIST_EMULATE_RESIDENT", resident, 1) < 0)
		bench_fail("no memory");
	bench_must(hoist_device_open(request->device, &device), "opening", request->device);
	bench_must(hoist_checkpoint_open(request->path, 0, &checkpoint), "opening", request->path);
	const hoist_load_options options = {.size = sizeof options, .device = device};
	bench_must(hoist_load_start(checkpoint, &options, &load), "loading", request->path);
	bench_must(hoist_load_wait(load), "loading", request->path);
	sync();
	bench_touch_memory(SLOTS_BYTES);
	save_all(request, checkpoint, load, ret);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(device);
}

static void remove_file(const char *path)
{
	if (unlink(path) < 0)
		bench_fail("%s cannot be removed", path);
}

/* FILE lies in the page cache before the load: else the disk would have read it just before the
 * save, and not before a peer's writes. */
static void measure(struct subject *subject)
{
	hoist_save_report *report = &subject->report;
	bench_make_hot(subject->request.path);
	/* Frees the memory that raw writes keep: else the child would touch none. */
	bench_touch_memory((size_t)bench_file_bytes(subject->request.path));
	(void)bench_in_child(in_child, &subject->request, report, sizeof *report);
	samples_add(&subject->seconds, (double)report->ns / 1e9);
	samples_add(&subject->cpu, (double)report->cpu_ns / 1e9 / ((double)report->bytes / GIB));
	remove_file(subject->request.target);
}

/* Writes the copy of FILE whose tensors begin at multiples of a page.  free() is owed. */
static char *write_copy(const char *path, const char *target)
{
	hoist_save_report report;
	char *copy;
	if (asprintf(&copy, "%s.copy", target) < 0)
		bench_fail("no memory");
	const struct request request = {path, copy, "cpu"};
	(void)bench_in_child(in_child, &request, &report, sizeof report);
	return copy;
}

static double rate_of(const struct subject *subject)
{
	return (double)subject->report.bytes / samples_median(&subject->seconds);
}

static void add(struct results *results, const struct subject *subject, const char *peer,
		double peer_rate)
{
	const hoist_save_report *report = &subject->report;
	double rate = rate_of(subject);
	results_rates(results, subject->work, "hoist", (double)report->bytes, &subject->seconds);
	results_samples(results, subject->work, "hoist, CPU", "s/GiB", &subject->cpu);
	results_value(results, subject->work, "hoist, of it waiting for fsync",
		      (double)report->sync_ns / 1e9, "s");
	results_value(results, subject->work, "hoist, written straight",
		      (double)report->straight_bytes, "bytes");
	results_value(results, subject->work, "hoist, staged at most",
		      (double)report->staging_peak_bytes, "bytes");
	results_ratio(results, subject->work, 1, peer, rate / peer_rate);
	results_bar(results, subject->work, "rate / fio's best", rate / peer_rate, "x", true, 0.95);
}

enum { DEVICE, HOST, ALIGNED, N_SUBJECTS, FIO = N_SUBJECTS, RAW, N_TURNS };

/* The peers, and what their runs gave. */
struct peers {
	struct fio_shape fio_shape;
	struct fio_shape raw_shape;
	struct samples fio;
	struct samples creating;
	struct samples raw;
};

static void find_shapes(const char *target, uint64_t bytes, struct peers *peers)
{
	if (!fio_reserve_huge_pages())
		fputs("save: no huge pages to be had: fio runs without\n", stderr);
	peers->fio_shape = fio_best_write(target, bytes);
	peers->raw_shape = raw_best_write(target, bytes);
}

static void measure_peer(int turn, const char *target, uint64_t bytes, struct peers *peers)
{
	struct fio_result result;
	if (turn == RAW) {
		samples_add(&peers->raw, raw_write(target, bytes, &peers->raw_shape) / 1e9);
		return;
	}
	fio_write(target, bytes, &peers->fio_shape, &result);
	samples_add(&peers->fio, result.bytes_per_second / 1e9);
	samples_add(&peers->creating, result.creating_seconds);
}

static void add_all(struct results *results, const struct subject *subjects,
		    const struct peers *peers)
{
	static const char work[] = "new file, fallocate, O_DIRECT, fsync";
	char fio[64];
	char raw[64];
	fio_label(&peers->fio_shape, fio, sizeof fio);
	raw_label(&peers->raw_shape, raw, sizeof raw);
	results_samples(results, work, fio, "GB/s", &peers->fio);
	results_samples(results, work, "of it creating and allocating the file", "s",
			&peers->creating);
	results_samples(results, "the same, as much memory as the file", raw, "GB/s", &peers->raw);
	for (int i = 0; i < N_SUBJECTS; i++)
		add(results, &subjects[i], fio, samples_median(&peers->fio) * 1e9);
	for (int i = 0; i < N_SUBJECTS; i++)
		results_ratio(results, subjects[i].work, 1, raw,
			      rate_of(&subjects[i]) / samples_median(&peers->raw) / 1e9);
}

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 5};
	struct peers peers = {.fio = {.n = 0}};
	bench_parse(argc, argv, usage, 1, 2, NULL, &args);
	const char *path = args.operands[0];
	char *target = bench_target(&args, 1, path);
	char *copy = write_copy(path, target);
	uint64_t bytes = bench_file_bytes(path);
	struct subject subjects[N_SUBJECTS] = {
		[DEVICE] = {.work = "device -> disk, fsync", .request = {path, target, "cuda:0"}},
		[HOST] = {.work = "host -> disk, fsync", .request = {path, target, "cpu"}},
		[ALIGNED] = {.work = "aligned host -> disk, fsync",
			     .request = {copy, target, "cpu"}},
	};
	struct results results;
	results_create("save", &results);
	find_shapes(target, bytes, &peers);
	for (size_t i = 0; i < args.n_runs * N_TURNS; i++) {
		/* Each round begins with another one. */
		int turn = (int)((i + i / N_TURNS) % N_TURNS);
		if (turn < N_SUBJECTS)
			measure(&subjects[turn]);
		else
			measure_peer(turn, target, bytes, &peers);
	}
	remove_file(copy);
	add_all(&results, subjects, &peers);
	free(copy);
	free(target);
	bench_print(&results, args.json);
	return 0;
}
