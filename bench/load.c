/* SPDX-License-Identifier: MIT */
/* load FILE - a checkpoint to the host and to a device: how near the disk's own rate and that of
 * memory, what it costs in CPU time, whether disk and bus overlap, and how much is staged.
 *
 *   cold file to host      hoist beside fio's best (io_uring, direct, huge pages); in memory that
 *                          was touched before, beside raw reads into as much memory (raw.h), too
 *   hot file to host       beside pread in pieces of 2 MiB, and memcpy from a populated mapping,
 *                          both with a thread for each processor; no copy out of a mapping is safe
 *                          when the file shrinks, so memcpy is shown without a bar
 *   half-cached            every second 16 MiB cached, against half the hot and half the cold time
 *   cold file to device    an emulated device whose copy engine is set to the disk's rate, the
 *                          hardest case for overlap, against max(read time, copy time)
 *   in place               cold and hot: a second load, into the buffers of the first, beside a
 *                          load into fresh memory and one into kept memory; hot also beside pread
 *                          into memory that is there
 *   staging                the peaks beside the budget
 *
 * Destinations: "fresh" is memory that the process never had, which the kernel clears page by page;
 * hoist's first load in a process gets that, and so do the peers of the rows called so (huge pages,
 * untouched).  "Warm" is memory that is populated already: hoist's second load in a process, whose
 * pool kept the block of the first, beside peers that touch theirs before the clock starts.  fio
 * reads into one warm buffer again and again, whatever hoist does.
 *
 * Runs of hoist and of its peers alternate; figures are medians. */
#include "config.h"

#include "bench/bench.h"
#include "bench/fio.h"
#include "bench/hot.h"
#include "bench/once.h"
#include "bench/raw.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "usage: load [OPTION]... FILE.safetensors\n"
			    "Measures loading FILE; 2 GiB or more is worth measuring:\n"
			    "  tests/mkcheckpoint --bytes 2G --shards 1 FOLDER writes one.\n"
			    "  --runs N        of each, alternating (5)\n"
			    "  --part cold     only the rows of cold files to the host (all)\n"
			    "  --part hot      only the rows of hot and half-cached files\n"
			    "  --part into     only the rows of loads in place\n"
			    "  --json PATH     the results as JSON too; - : instead, on stdout\n";

#define GIB ((double)((uint64_t)1 << 30))

/* One way of loading, and what its runs gave. */
struct subject {
	const char *name;
	struct once_options how;
	struct samples seconds;
	struct samples cpu;
	struct samples whole_cpu;
	hoist_load_report report; /* of the last run */
};

static void measure(struct subject *subject)
{
	struct once_result result;
	once_load(&subject->how, &result);
	double gib = (double)result.report.bytes / GIB;
	samples_add(&subject->seconds, result.seconds);
	samples_add(&subject->cpu, result.cpu_seconds / gib);
	samples_add(&subject->whole_cpu, result.whole_cpu_seconds / gib);
	subject->report = result.report;
}

static double rate_of(const struct subject *subject)
{
	return (double)subject->report.bytes / samples_median(&subject->seconds);
}

static void add_rows(struct results *results, const char *work, const struct subject *subject)
{
	char name[64];
	results_rates(results, work, subject->name, (double)subject->report.bytes,
		      &subject->seconds);
	(void)snprintf(name, sizeof name, "%s, CPU, the load", subject->name);
	results_samples(results, work, name, "s/GiB", &subject->cpu);
	(void)snprintf(name, sizeof name, "%s, CPU, whole process", subject->name);
	results_samples(results, work, name, "s/GiB", &subject->whole_cpu);
}

/* Returns the disk's rate in bytes per second, as fio finds it. */
static double to_host(const struct bench_args *args, struct results *results)
{
	static const char work[] = "cold file to host";
	struct subject subjects[] = {
		{.name = "hoist, io_uring", .how = {.engine = HOIST_ENGINE_URING}},
		{.name = "hoist, threads", .how = {.engine = HOIST_ENGINE_THREADS}},
		{.name = "hoist, warm memory", .how = {.warm_ups = 1}},
	};
	const size_t n = sizeof subjects / sizeof subjects[0];
	struct samples fio = {.n = 0};
	struct samples fio_cpu = {.n = 0};
	struct samples raw = {.n = 0};
	struct fio_shape shape = fio_best_read(args->operands[0]);
	struct fio_shape raw_shape = raw_best_read(args->operands[0]);
	for (size_t i = 0; i < args->n_runs; i++) {
		struct fio_result result;
		fio_read(args->operands[0], &shape, &result);
		samples_add(&fio, result.bytes_per_second / 1e9);
		samples_add(&fio_cpu, result.cpu_seconds_per_byte * GIB);
		for (size_t j = 0; j < n; j++) {
			subjects[j].how.path = args->operands[0];
			subjects[j].how.device = "cpu";
			measure(&subjects[j]);
		}
		samples_add(&raw, raw_read(args->operands[0], &raw_shape) / 1e9);
	}
	char name[64];
	double best = samples_median(&fio) * 1e9;
	results_samples(results, work, fio_label(&shape, name, sizeof name), "GB/s", &fio);
	results_samples(results, work, "fio, CPU", "s/GiB", &fio_cpu);
	for (size_t j = 0; j < n; j++) {
		add_rows(results, work, &subjects[j]);
		(void)snprintf(name, sizeof name, "fio (%s)", subjects[j].name);
		results_ratio(results, work, 1, name, rate_of(&subjects[j]) / best);
	}
	results_samples(results, work, raw_label(&raw_shape, name, sizeof name), "GB/s", &raw);
	double by_raw = rate_of(&subjects[2]) / 1e9 / samples_median(&raw);
	results_bar(results, work, "warm memory, rate / raw reads", by_raw, "x", true, 0.98);
	results_bar(results, work, "rate / fio's best", rate_of(&subjects[0]) / best, "x", true,
		    1.0);
	results_bar(results, work, "the same, warm memory", rate_of(&subjects[2]) / best, "x", true,
		    1.0);
	results_bar(results, "CPU time, cold", "fresh memory", samples_median(&subjects[0].cpu),
		    "s/GiB", false, 0.10);
	results_bar(results, "CPU time, cold", "warm memory", samples_median(&subjects[2].cpu),
		    "s/GiB", false, 0.10);
	return best;
}

/* Loads from the page cache, into fresh or into warm memory. */
static void hot_to_host(const struct bench_args *args, struct results *results, int warm)
{
	int n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
	char work[80];
	(void)snprintf(work, sizeof work, "hot file to host, %s memory (peers: %d threads)",
		       warm ? "warm" : "fresh", n_threads);
	struct subject hoist = {
		.name = "hoist",
		.how = {.path = args->operands[0], .device = "cpu", .hot = 1, .warm_ups = warm}};
	struct samples copy = {.n = 0};
	struct samples read = {.n = 0};
	for (size_t i = 0; i < args->n_runs; i++) {
		samples_add(&copy, hot_run(args->operands[0], HOT_MEMCPY, n_threads, warm));
		measure(&hoist);
		samples_add(&read, hot_run(args->operands[0], HOT_PREAD, n_threads, warm));
	}
	double bytes = (double)bench_file_bytes(args->operands[0]);
	double by_copy = bytes / samples_median(&copy);
	double by_read = bytes / samples_median(&read);
	results_rates(results, work, "memcpy from a populated map", bytes, &copy);
	results_rates(results, work, "pread, 2 MiB", bytes, &read);
	add_rows(results, work, &hoist);
	results_ratio(results, work, 1, "memcpy from a populated map", rate_of(&hoist) / by_copy);
	results_ratio(results, work, 1, "pread, 2 MiB", rate_of(&hoist) / by_read);
	results_bar(results, work, "rate / pread's", rate_of(&hoist) / by_read, "x", true, 0.95);
}

static void half_to_host(const struct bench_args *args, struct results *results)
{
	static const char work[] = "half-cached file to host";
	struct subject subjects[] = {{.name = "hoist, cold"},
				     {.name = "hoist, hot", .how = {.hot = 1}},
				     {.name = "hoist, half", .how = {.hot = 2}}};
	for (size_t i = 0; i < args->n_runs; i++) {
		for (size_t j = 0; j < 3; j++) {
			subjects[j].how.path = args->operands[0];
			subjects[j].how.device = "cpu";
			measure(&subjects[j]);
		}
	}
	for (size_t j = 0; j < 3; j++)
		add_rows(results, work, &subjects[j]);
	double predicted =
		(samples_median(&subjects[0].seconds) + samples_median(&subjects[1].seconds)) / 2;
	double half = samples_median(&subjects[2].seconds);
	results_value(results, work, "predicted of both halves", predicted, "s");
	results_samples(results, work, "hoist, half", "s", &subjects[2].seconds);
	results_ratio(results, work, 1, "predicted of both halves", predicted / half);
	results_bar(results, work, "predicted / measured", predicted / half, "x", true, 0.95);
}

static void in_place(const struct bench_args *args, struct results *results, int hot)
{
	const char *work = hot ? "in place, hot" : "in place, cold";
	int n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
	struct subject subjects[] = {{.name = "hoist, fresh memory"},
				     {.name = "hoist, in place", .how = {.in_place = 1}},
				     {.name = "hoist, kept memory", .how = {.warm_ups = 1}}};
	struct samples read = {.n = 0};
	for (size_t i = 0; i < args->n_runs; i++) {
		for (size_t j = 0; j < 3; j++) {
			subjects[j].how.path = args->operands[0];
			subjects[j].how.device = "cpu";
			subjects[j].how.hot = hot;
			measure(&subjects[j]);
		}
		if (hot)
			samples_add(&read, hot_run(args->operands[0], HOT_PREAD, n_threads, 1));
	}
	for (size_t j = 0; j < 3; j++)
		add_rows(results, work, &subjects[j]);
	double fresh = samples_median(&subjects[0].seconds);
	double seconds = samples_median(&subjects[1].seconds);
	if (hot) {
		results_rates(results, work, "pread, 2 MiB, into memory that is there",
			      (double)bench_file_bytes(args->operands[0]), &read);
		results_ratio(results, work, 1, "pread, 2 MiB", samples_median(&read) / seconds);
	}
	results_ratio(results, work, 1, "kept memory",
		      samples_median(&subjects[2].seconds) / seconds);
	results_bar(results, work, "time / fresh memory's", seconds / fresh, "x", false, 1.0);
}

static void to_device(const struct bench_args *args, struct results *results, double disk_rate)
{
	static const char work[] = "cold file to emulated device";
	uint64_t rate = (uint64_t)disk_rate;
	struct subject device = {.name = "hoist, emulated cuda:0",
				 .how = {.path = args->operands[0],
					 .device = "cuda:0",
					 .emulate = "cuda:1",
					 .emulated_rate = rate,
					 .emulated_resident = bench_file_bytes(args->operands[0])}};
	struct subject host = {.name = "hoist, to the host",
			       .how = {.path = args->operands[0], .device = "cpu"}};
	for (size_t i = 0; i < args->n_runs; i++) {
		measure(&host);
		measure(&device);
	}

	const hoist_load_report *report = &device.report;
	double seconds = samples_median(&device.seconds);
	double read_seconds = samples_median(&host.seconds);
	double copy = (double)report->bytes / (double)rate;
	double fio_read = (double)report->bytes / disk_rate;
	double longer = read_seconds > copy ? read_seconds : copy;
	results_samples(results, work, "time", "s", &device.seconds);
	results_samples(results, work, "read time (hoist to host, alternating)", "s",
			&host.seconds);
	results_value(results, work, "read time (fio)", fio_read, "s");
	results_value(results, work, "copy time (at the set rate)", copy, "s");
	add_rows(results, work, &device);
	results_ratio(results, work, 1, "max(read by hoist, copy)", longer / seconds);
	results_ratio(results, work, 1, "max(read by fio, copy)",
		      (fio_read > copy ? fio_read : copy) / seconds);

	results_bar(results, work, "time / max(read, copy)", seconds / longer, "x", false, 1.05);

	results_value(results, "staging", "budget", (double)report->budget_bytes, "bytes");
	results_value(results, "staging", "staged at most", (double)report->staging_peak_bytes,
		      "bytes");
	results_value(results, "staging", "pinned at most", (double)report->pinned_peak_bytes,
		      "bytes");
	if (report->staging_peak_bytes > 0)
		results_ratio(results, "staging", 1, "the budget",
			      (double)report->budget_bytes / (double)report->staging_peak_bytes);
}

/* Makes fio's huge pages, and the rows that need fio. */
static double cold(const struct bench_args *args, struct results *results)
{
	const char *path = args->operands[0];
	if (!fio_reserve_huge_pages())
		fputs("load: no huge pages to be had (root can set vm.nr_hugepages): fio runs "
		      "without, "
		      "slower than it can\n",
		      stderr);
	bench_make_cold(path);
	double resident = bench_resident(path);
	if (resident > 0.01)
		fprintf(stderr, "load: %.0f %% of the file stays in the page cache: not cold\n",
			resident * 100);
	return to_host(args, results);
}

int main(int argc, char **argv)
{
	struct bench_args args = {.n_runs = 5};
	struct bench_option part = {.name = "part", .text = "all"};
	bench_parse(argc, argv, usage, 1, 1, &part, &args);
	struct results results;
	results_create("load", &results);

	bool all = strcmp(part.text, "all") == 0;
	bool reads_cold = all || strcmp(part.text, "cold") == 0;
	double disk_rate = reads_cold ? cold(&args, &results) : 0;
	if (all || strcmp(part.text, "hot") == 0) {
		hot_to_host(&args, &results, 0);
		hot_to_host(&args, &results, 1);
		half_to_host(&args, &results);
	}
	if (all)
		to_device(&args, &results, disk_rate);
	for (int hot = 0; hot < 2 && (all || strcmp(part.text, "into") == 0); hot++)
		in_place(&args, &results, hot);
	bench_print(&results, args.json);
	return 0;
}
