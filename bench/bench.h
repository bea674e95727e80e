/* SPDX-License-Identifier: MIT */
/* bench/bench.h - what the benchmarks share: a clock, files made cold or hot,
 * medians, and one way to print results.
 *
 * Results are rows (what was measured) and ratios (hoist against a peer; above 1
 * hoist is better) and bars (a figure, what it should be, and whether it is), printed as a table
 * for people and as JSON of the shape
 *   {"bench", "rows": [{"work", "threads", "subject", "value", "unit"}],
 *    "ratios": [{"work", "threads", "against", "ratio"}],
 *    "bars": [{"work", "what", "value", "bar", "sense", "met"}]}
 * The programs are single-threaded where they use these. */
#ifndef HOIST_BENCH_BENCH_H
#define HOIST_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_MAX_RUNS 99

/* Prints "NAME: text" on stderr and exits with status 1. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

double bench_now(void); /* seconds, monotonic */

/* User and system time of this process so far, in seconds. */
double bench_cpu_seconds(void);

/* Drops the file from the page cache (its dirty pages are written first). */
void bench_make_cold(const char *path);

/* Reads the whole file, so that it lies in the page cache. */
void bench_make_hot(const char *path);

/* Cold, but for every second piece of 16 MiB, which lies in the page cache. */
void bench_make_half(const char *path);

/* How much of the file lies in the page cache, 0 to 1. */
double bench_resident(const char *path);

/* Touches @bytes of fresh memory and frees them.  A virtual machine whose host takes
 * free memory back pays for the first touch of it, several times what the kernel
 * itself takes: that would measure the host, and whichever subject comes first. */
void bench_touch_memory(size_t bytes);

/* Takes as much, touches and keeps it, until bench_touch_memory() gives it back: so it does not
 * become idle between two runs.  Not while a child runs that should have it. */
void bench_keep_memory(size_t bytes);

uint64_t bench_file_bytes(const char *path);

/* What most programs take: --runs N, --json PATH and @n_operands operands or more, which follow
 * in *operands and are *n.  --help prints @usage; a wrong call ends the process. */
struct bench_args {
	size_t n_runs;
	const char *json;
	char **operands;
	int n_operands;
};
void bench_parse(int argc, char **argv, const char *usage, size_t n_runs, int n_operands,
		 struct bench_args *ret);

/* Exits with hoist_error() if @rc is below 0: "@what @of: why". */
void bench_must(int rc, const char *what, const char *of);

/* A count of bytes in text: "256M", suffixes K, M, G are powers of 1024. */
bool bench_parse_bytes(const char *text, uint64_t *ret);

/* Runs @run in a child process, which fills @result (@bytes of it); then returns
 * the CPU time of the child's whole life.  For what must find nothing left of
 * earlier runs, and for drivers, which do not survive a fork: a benchmark's own
 * process never opens one.  Exits if the child fails. */
double bench_in_child(void (*run)(const void *argument, void *result), const void *argument,
		      void *result, size_t bytes);

/* Values of one thing measured several times. */
struct bench_samples {
	double values[BENCH_MAX_RUNS];
	size_t n;
};
void bench_sample(struct bench_samples *samples, double value);
double bench_median(const struct bench_samples *samples);

/* What one program found; texts are copied. */
struct bench_results;
struct bench_results *bench_results_create(const char *name);
void bench_row(struct bench_results *results, const char *work, int threads, const char *subject,
	       double value, const char *unit);
/* @ratio is already the right way round: above 1 hoist is better. */
void bench_ratio(struct bench_results *results, const char *work, int threads, const char *against,
		 double ratio);
/* @value should be at most @bar, or with @at_least at least that. */
void bench_bar(struct bench_results *results, const char *work, const char *what, double value,
	       bool at_least, double bar);
/* The table on stdout; with @json_path not NULL also the JSON, "-" being stdout
 * in place of the table.  Frees @results. */
void bench_results_print(struct bench_results *results, const char *json_path);

#endif
