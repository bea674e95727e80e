/* SPDX-License-Identifier: MIT */
/* Loads to the host beside reads by hand.  The contract is in io-peers.h. */
#include "config.h"

#include "bench/io-peers.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "bench/hot.h"
#include "bench/made.h"
#include "bench/pages.h"
#include "bench/raw.h"
#include "cli/fail.h"
#include "cli/interrupt.h"
#include "cli/progress.h"

#define RANK 3
#define N_RANKS 8
#define ROW_BYTES ((uint64_t)128 << 10)
#define MOST_ROWS ((uint64_t)4096) /* 512 MiB */

static const struct fio_shape raw_shape = {.block_bytes = (uint64_t)2 << 20, .depth = 64};
static const char cold_work[] = "cold to cpu, warm memory";
static const char rows_work[] = "16 KiB of rows of 128, hot to cpu";
static const char row_reads[] = "a pread for each row, 2 threads";
static const char *const hot_works[] = {"hot to cpu, fresh memory", "hot to cpu, warm memory"};

struct peers {
	struct bench_file *file;
	hoist_device *device;
	hoist_memory *memory; /* keeps what a load gives back, for the next */
	struct results *results;
	int n_threads;
	char reads[48];	    /* the name of the hot peer */
	const char *no_raw; /* why there are no raw reads; NULL: there are */
};

/* One load, which is measured if it has a @work. */
static int load(const struct peers *peers, const struct bench_way *way, const char *work,
		hoist_load_report *report)
{
	double seconds = 0;
	int status = bench_file_load(peers->file, peers->device, NULL, way, &seconds, report);
	if (status == STATUS_OK && work != NULL)
		bench_file_add(peers->results, &(struct bench_run){.work = work,
								   .subject = "hoist",
								   .bytes = report->bytes,
								   .seconds = seconds,
								   .cpu_ns = report->cpu_ns});
	return status;
}

/* --- cold --- */

/* Raw reads of all files. */
static int read_raw(const struct peers *peers)
{
	char name[32];
	uint64_t bytes = 0;
	double seconds = 0;
	for (size_t i = 0; i < hoist_checkpoint_n_files(peers->file->checkpoint); i++) {
		hoist_file_info info = {.size = sizeof info};
		if (hoist_checkpoint_file(peers->file->checkpoint, i, &info) != 0)
			return fail_library();
		bytes += info.bytes;
		if (info.bytes > 0)
			seconds += (double)info.bytes / raw_read(info.path, &raw_shape);
	}
	results_peer(peers->results, cold_work, raw_label(&raw_shape, name, sizeof name),
		     (double)bytes / seconds);
	return STATUS_OK;
}

static int measure_cold(struct peers *peers)
{
	const struct bench_way way = {.memory = peers->memory};
	hoist_load_report report;
	if (!peers->file->whole)
		peers->no_raw = "only a part of the files is loaded";
	if (peers->no_raw != NULL)
		return STATUS_OK;
	int status = load(peers, &way, cold_work, &report);
	if (peers->file->never_cold)
		peers->no_raw = "the files stay in the page cache";
	else if (report.direct_bytes < report.bytes || strncmp(report.engine, "io_uring", 8) != 0)
		peers->no_raw = "hoist does not read directly by io_uring here";
	if (status == STATUS_OK && peers->no_raw == NULL)
		status = read_raw(peers);
	return status;
}

/* --- hot --- */

struct copy {
	enum hot_way way;
	int n_threads;
	int warm;
	double seconds; /* of the files so far */
	uint64_t bytes; /* with the gaps between tensors */
};

static int copy_span(const struct bench_span *span, void *context)
{
	struct copy *copy = context;
	const struct hot_source source = {
		.fd = span->fd, .offset = span->offset, .bytes = (size_t)span->bytes};
	copy->bytes += span->bytes;
	copy->seconds += hot_copy(&source, copy->way, copy->n_threads, copy->warm);
	return STATUS_OK;
}

static int measure_peer(const struct peers *peers, enum hot_way way, int warm)
{
	struct copy copy = {.way = way, .n_threads = peers->n_threads, .warm = warm};
	bench_touch_memory((size_t)peers->file->bytes);
	int status = bench_file_each(peers->file, copy_span, &copy);
	if (status == STATUS_OK)
		results_peer(peers->results, hot_works[warm],
			     way == HOT_PREAD ? peers->reads : "memcpy from a populated map",
			     (double)copy.bytes / copy.seconds);
	return status;
}

static int measure_hot(const struct peers *peers, int warm)
{
	hoist_load_report report;
	const struct bench_way way = {.hot = true, .memory = warm ? peers->memory : NULL};
	int status = load(peers, &way, hot_works[warm], &report);
	if (status == STATUS_OK)
		status = measure_peer(peers, HOT_PREAD, warm);
	return status == STATUS_OK ? measure_peer(peers, HOT_MEMCPY, warm) : status;
}

/* --- rows --- */

static int measure_rows(struct peers *peers, struct bench_file *file, const struct made *made,
			uint64_t n_rows)
{
	const hoist_load_slice slice = {
		.tensor = "t0", .axis = 1, .rank = RANK, .n_ranks = N_RANKS};
	const hoist_load_target target = {
		.size = sizeof target, .device = peers->device, .slices = &slice, .n_slices = 1};
	const hoist_load_target *const targets[] = {&target};
	const struct bench_way way = {.hot = true, .targets = targets, .n_targets = 1};
	const struct hot_rows rows = {.offset = made->data_at + RANK * (ROW_BYTES / N_RANKS),
				      .stride = ROW_BYTES,
				      .bytes = (size_t)(ROW_BYTES / N_RANKS),
				      .n = (size_t)n_rows};
	const struct hot_source source = {.fd = made->fd, .rows = &rows};
	struct bench_file *of_all = peers->file;
	hoist_load_report report;
	peers->file = file;
	int status = load(peers, &way, rows_work, &report);
	peers->file = of_all;
	if (status != STATUS_OK)
		return status;
	bench_touch_memory((size_t)report.bytes);
	results_peer(peers->results, rows_work, row_reads,
		     (double)report.bytes / hot_copy(&source, HOT_PREAD, 2, 0));
	return status;
}

/* --- all --- */

static void add_bar(const struct peers *peers, const char *work, const char *peer, double bar)
{
	const struct result_row *own = results_find(peers->results, work, 1, "hoist", "GB/s");
	const struct result_row *other = results_find(peers->results, work, 1, peer, "GB/s");
	char what[80];
	(void)snprintf(what, sizeof what, "rate / %s", peer);
	if (own != NULL && other != NULL)
		results_bar(peers->results, work, what, results_median(own) / results_median(other),
			    "x", true, bar);
}

static int measure_all(struct peers *peers, unsigned runs)
{
	struct made made = {.fd = -1};
	struct bench_file file = {0};
	char name[32];
	uint64_t n_rows = peers->file->bytes / ROW_BYTES + 1;
	n_rows = n_rows < MOST_ROWS ? n_rows : MOST_ROWS;
	int status = made_open(1, n_rows, ROW_BYTES, &made);
	if (status == STATUS_OK)
		status = bench_file_open(&(struct bench_request){.path = made.path}, &file);
	/* The memory that is warm from then on. */
	if (status == STATUS_OK)
		status = load(peers, &(struct bench_way){.memory = peers->memory}, NULL,
			      &(hoist_load_report){0});
	for (unsigned run = 0; run < runs && status == STATUS_OK; run++) {
		progress_steps("beside reads by hand", peers->reads, run, runs);
		if (interrupted())
			status = fail("stopped by a signal");
		for (int warm = 0; warm < 2 && status == STATUS_OK; warm++)
			status = measure_hot(peers, warm);
		if (status == STATUS_OK)
			status = measure_rows(peers, &file, &made, n_rows);
		if (status == STATUS_OK)
			status = measure_cold(peers);
	}
	if (peers->no_raw != NULL)
		results_missing(peers->results, cold_work, peers->no_raw);
	add_bar(peers, cold_work, raw_label(&raw_shape, name, sizeof name), 0.98);
	for (int warm = 0; warm < 2; warm++)
		add_bar(peers, hot_works[warm], peers->reads, 0.95);
	add_bar(peers, rows_work, row_reads, 0.9);
	bench_file_close(&file);
	made_close(&made);
	return status;
}

int bench_peers(struct bench_file *file, hoist_device *device, unsigned runs,
		struct results *results)
{
	struct peers peers = {.file = file, .device = device, .results = results};
	const hoist_memory_options options = {.size = sizeof options,
					      .kind = HOIST_MEMORY_HOST,
					      .keep_bytes = 2 * (size_t)file->bytes};
	if (hoist_memory_create(&options, &peers.memory) != 0)
		return fail_library();
	peers.n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
	(void)snprintf(peers.reads, sizeof peers.reads, "pread, 2 MiB, %d threads",
		       peers.n_threads);
	int status = measure_all(&peers, runs);
	hoist_memory_unref(peers.memory);
	return status;
}
