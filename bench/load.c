/* SPDX-License-Identifier: MIT */
/* load FILE - a checkpoint to the host and to a device: how near the disk's own rate and that of
 * memory, what it costs in CPU time, whether disk and bus overlap, and how much is staged.
 *
 *   cold file to host      hoist beside fio's best (io_uring, direct, huge pages)
 *   hot file to host       beside memcpy from a populated mapping, and pread in pieces of 256 KiB,
 *                          both with a thread for each processor
 *   half-cached            every second 16 MiB cached, against half the hot and half the cold time
 *   cold file to device    an emulated device whose copy engine is set to the disk's
 *                          rate, the hardest case for overlap, against
 *                          max(read time, copy time)
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

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB ((double)((uint64_t)1 << 30))

struct options {
	const char *path;
	const char *json;
	size_t n_runs;
	uint64_t rate;	 /* of the emulated copy engine; 0: the disk's */
	uint64_t budget; /* 0: the default */
};

/* One way of loading, and what its runs gave. */
struct subject {
	const char *name;
	struct once_options how;
	struct bench_samples seconds;
	struct bench_samples cpu;
	struct bench_samples whole_cpu;
	hoist_load_report report; /* of the last run */
};

static void usage(FILE *to)
{
	fputs("usage: load [OPTION]... FILE.safetensors\n"
	      "Measures loading FILE; 2 GiB or more is worth measuring:\n"
	      "  tests/mkcheckpoint --bytes 2G --shards 1 FOLDER writes one.\n"
	      "  --runs N        of each, alternating (5)\n"
	      "  --rate BYTES    per second, of the emulated device's copies (the disk's rate)\n"
	      "  --budget BYTES  for staging (hoist's default)\n"
	      "  --json PATH     the results as JSON too; - : instead, on stdout\n",
	      to);
}

static struct options parse(int argc, char **argv)
{
	static const struct option longs[] = {
		{"runs", required_argument, NULL, 'n'},	  {"rate", required_argument, NULL, 'r'},
		{"budget", required_argument, NULL, 'b'}, {"json", required_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},	  {NULL, 0, NULL, 0},
	};
	struct options options = {.n_runs = 5};
	uint64_t number = 0;
	for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
		bool good = true;
		switch (c) {
		case 'n':
			good = bench_parse_bytes(optarg, &number) && number >= 1 &&
			       number <= BENCH_MAX_RUNS;
			options.n_runs = (size_t)number;
			break;
		case 'r':
			good = bench_parse_bytes(optarg, &options.rate);
			break;
		case 'b':
			good = bench_parse_bytes(optarg, &options.budget);
			break;
		case 'j':
			options.json = optarg;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			good = false;
		}
		if (!good) {
			usage(stderr);
			exit(2);
		}
	}
	if (optind + 1 != argc) {
		usage(stderr);
		exit(2);
	}
	options.path = argv[optind];
	return options;
}

static void measure(struct subject *subject)
{
	struct once_result result;
	once_load(&subject->how, &result);
	double gib = (double)result.report.bytes / GIB;
	bench_sample(&subject->seconds, result.seconds);
	bench_sample(&subject->cpu, result.cpu_seconds / gib);
	bench_sample(&subject->whole_cpu, result.whole_cpu_seconds / gib);
	subject->report = result.report;
}

static double rate_of(const struct subject *subject)
{
	return (double)subject->report.bytes / bench_median(&subject->seconds);
}

static void add_rows(struct bench_results *results, const char *work, const struct subject *subject)
{
	char name[64];
	bench_row(results, work, 1, subject->name, rate_of(subject) / 1e9, "GB/s");
	(void)snprintf(name, sizeof name, "%s, CPU, the load", subject->name);
	bench_row(results, work, 1, name, bench_median(&subject->cpu), "s/GiB");
	(void)snprintf(name, sizeof name, "%s, CPU, whole process", subject->name);
	bench_row(results, work, 1, name, bench_median(&subject->whole_cpu), "s/GiB");
}

/* Returns the disk's rate in bytes per second, as fio finds it. */
static double to_host(const struct options *options, struct bench_results *results)
{
	static const char work[] = "cold file to host";
	struct subject subjects[] = {
		{.name = "hoist, io_uring", .how = {.engine = HOIST_ENGINE_URING}},
		{.name = "hoist, threads", .how = {.engine = HOIST_ENGINE_THREADS}},
		{.name = "hoist, warm memory", .how = {.warm_ups = 1}},
	};
	const size_t n = sizeof subjects / sizeof subjects[0];
	struct bench_samples fio = {.n = 0};
	struct bench_samples fio_cpu = {.n = 0};
	struct fio_shape shape = fio_best_read(options->path);
	for (size_t i = 0; i < options->n_runs; i++) {
		struct fio_result result;
		fio_read(options->path, &shape, &result);
		bench_sample(&fio, result.bytes_per_second);
		bench_sample(&fio_cpu, result.cpu_seconds_per_byte * GIB);
		for (size_t j = 0; j < n; j++) {
			subjects[j].how.path = options->path;
			subjects[j].how.device = "cpu";
			measure(&subjects[j]);
		}
	}
	char name[64];
	double best = bench_median(&fio);
	bench_row(results, work, 1, fio_label(&shape, name, sizeof name), best / 1e9, "GB/s");
	bench_row(results, work, 1, "fio, CPU", bench_median(&fio_cpu), "s/GiB");
	for (size_t j = 0; j < n; j++) {
		add_rows(results, work, &subjects[j]);
		(void)snprintf(name, sizeof name, "fio (%s)", subjects[j].name);
		bench_ratio(results, work, 1, name, rate_of(&subjects[j]) / best);
	}
	bench_bar(results, work, "rate / fio's best", rate_of(&subjects[0]) / best, true, 1.0);
	bench_bar(results, work, "the same, warm memory", rate_of(&subjects[2]) / best, true, 1.0);
	bench_bar(results, "CPU time, cold", "s/GiB, fresh memory", bench_median(&subjects[0].cpu),
		  false, 0.10);
	bench_bar(results, "CPU time, cold", "s/GiB, warm memory", bench_median(&subjects[2].cpu),
		  false, 0.10);
	return best;
}

/* From the page cache, into fresh or into warm memory. */
static void hot_to_host(const struct options *options, struct bench_results *results, int warm)
{
	const char *work =
		warm ? "hot file to host, warm memory" : "hot file to host, fresh memory";
	int n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
	struct subject hoist = {
		.name = "hoist",
		.how = {.path = options->path, .device = "cpu", .hot = 1, .warm_ups = warm}};
	struct bench_samples copy = {.n = 0};
	struct bench_samples read = {.n = 0};
	for (size_t i = 0; i < options->n_runs; i++) {
		bench_sample(&copy, hot_run(options->path, HOT_MEMCPY, n_threads, warm));
		measure(&hoist);
		bench_sample(&read, hot_run(options->path, HOT_PREAD, n_threads, warm));
	}
	double bytes = (double)bench_file_bytes(options->path);
	double by_copy = bytes / bench_median(&copy);
	double by_read = bytes / bench_median(&read);
	double best = by_copy > by_read ? by_copy : by_read;
	bench_row(results, work, n_threads, "memcpy from a populated map", by_copy / 1e9, "GB/s");
	bench_row(results, work, n_threads, "pread, 256 KiB", by_read / 1e9, "GB/s");
	add_rows(results, work, &hoist);
	bench_ratio(results, work, n_threads, "memcpy from a populated map",
		    rate_of(&hoist) / by_copy);
	bench_ratio(results, work, n_threads, "pread, 256 KiB", rate_of(&hoist) / by_read);
	bench_bar(results, work, "rate / the better of both", rate_of(&hoist) / best, true, 0.95);
}

static void half_to_host(const struct options *options, struct bench_results *results)
{
	static const char work[] = "half-cached file to host";
	struct subject subjects[] = {{.name = "hoist, cold"},
				     {.name = "hoist, hot", .how = {.hot = 1}},
				     {.name = "hoist, half", .how = {.hot = 2}}};
	for (size_t i = 0; i < options->n_runs; i++) {
		for (size_t j = 0; j < 3; j++) {
			subjects[j].how.path = options->path;
			subjects[j].how.device = "cpu";
			measure(&subjects[j]);
		}
	}
	for (size_t j = 0; j < 3; j++)
		add_rows(results, work, &subjects[j]);
	double predicted =
		(bench_median(&subjects[0].seconds) + bench_median(&subjects[1].seconds)) / 2;
	double half = bench_median(&subjects[2].seconds);
	bench_row(results, work, 1, "predicted of both halves", predicted, "s");
	bench_row(results, work, 1, "hoist, half", half, "s");
	bench_ratio(results, work, 1, "predicted of both halves", predicted / half);
	bench_bar(results, work, "predicted / measured", predicted / half, true, 0.95);
}

static void to_device(const struct options *options, struct bench_results *results,
		      double disk_rate)
{
	static const char work[] = "cold file to emulated device";
	uint64_t rate = options->rate > 0 ? options->rate : (uint64_t)disk_rate;
	struct subject device = {.name = "hoist, emulated cuda:0",
				 .how = {.path = options->path,
					 .device = "cuda:0",
					 .budget_bytes = (size_t)options->budget,
					 .emulate = "cuda:1",
					 .emulated_rate = rate,
					 .emulated_resident = bench_file_bytes(options->path)}};
	struct subject host = {.name = "hoist, to the host",
			       .how = {.path = options->path, .device = "cpu"}};
	for (size_t i = 0; i < options->n_runs; i++) {
		measure(&host);
		measure(&device);
	}

	const hoist_load_report *report = &device.report;
	double seconds = bench_median(&device.seconds);
	double read_seconds = bench_median(&host.seconds);
	double copy = (double)report->bytes / (double)rate;
	double fio_read = (double)report->bytes / disk_rate;
	double longer = read_seconds > copy ? read_seconds : copy;
	bench_row(results, work, 1, "time", seconds, "s");
	bench_row(results, work, 1, "read time (hoist to host, alternating)", read_seconds, "s");
	bench_row(results, work, 1, "read time (fio)", fio_read, "s");
	bench_row(results, work, 1, "copy time (at the set rate)", copy, "s");
	add_rows(results, work, &device);
	bench_ratio(results, work, 1, "max(read by hoist, copy)", longer / seconds);
	bench_ratio(results, work, 1, "max(read by fio, copy)",
		    (fio_read > copy ? fio_read : copy) / seconds);

	bench_bar(results, work, "time / max(read, copy)", seconds / longer, false, 1.05);

	bench_row(results, "staging", 1, "budget", (double)report->budget_bytes, "bytes");
	bench_row(results, "staging", 1, "staged at most", (double)report->staging_peak_bytes,
		  "bytes");
	bench_row(results, "staging", 1, "pinned at most", (double)report->pinned_peak_bytes,
		  "bytes");
	if (report->staging_peak_bytes > 0)
		bench_ratio(results, "staging", 1, "the budget",
			    (double)report->budget_bytes / (double)report->staging_peak_bytes);
}

int main(int argc, char **argv)
{
	struct options options = parse(argc, argv);
	struct bench_results *results = bench_results_create("load");

	if (!fio_reserve_huge_pages())
		fputs("load: no huge pages to be had (root can set vm.nr_hugepages): fio runs "
		      "without, "
		      "slower than it can\n",
		      stderr);
	bench_make_cold(options.path);
	double resident = bench_resident(options.path);
	if (resident > 0.01)
		fprintf(stderr, "load: %.0f %% of the file stays in the page cache: not cold\n",
			resident * 100);

	double disk_rate = to_host(&options, results);
	hot_to_host(&options, results, 0);
	hot_to_host(&options, results, 1);
	half_to_host(&options, results);
	to_device(&options, results, disk_rate);
	bench_results_print(results, options.json);
	return 0;
}
