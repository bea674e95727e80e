/* SPDX-License-Identifier: MIT */
/* bench/bench.h - what the programs of this folder, and `hoist bench copy`, share: options, files
 * made cold or hot, children, and failures that end the process.  results.h has what they find.
 * They are single-threaded where they use these. */
#ifndef HOIST_BENCH_BENCH_H
#define HOIST_BENCH_BENCH_H

#include <stddef.h>
#include <stdint.h>

#include "bench/results.h"
#include "bench/samples.h"

/* As fail(), but ends the process, with status 1. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* User and system time of this process so far, in seconds. */
double bench_cpu_seconds(void);

/* Drops the file from the page cache (its dirty pages are written first). */
void bench_make_cold(const char *path);

/* Reads the whole file, so that it lies in the page cache. */
void bench_make_hot(const char *path);

/* Makes the file cold, except for every second piece of 16 MiB, which lies in the page cache. */
void bench_make_half(const char *path);

/* How much of the file lies in the page cache, 0 to 1. */
double bench_resident(const char *path);

/* Touches pages_to_touch(@bytes) of fresh memory and frees them, for a subject that will take
 * @bytes.  Memory that is kept (bench_keep_memory()) is only freed: a parent frees what it keeps
 * before it starts a child that touches memory. */
void bench_touch_memory(size_t bytes);

/* Touches as much, and keeps it until bench_touch_memory(), so that the memory does not become idle
 * between two runs.  Not while a child runs that should have this memory. */
void bench_keep_memory(size_t bytes);

uint64_t bench_file_bytes(const char *path);

/* An option of one program: "--NAME TEXT". */
struct bench_option {
	const char *name;
	const char *text; /* the default, then the one that was given */
};

/* All programs take --runs N and --json PATH, and from @least to @most operands, which follow in
 * *operands and are *n.  @option is one more option, or NULL.  --help prints @usage; a wrong call
 * ends the process. */
struct bench_args {
	size_t n_runs; /* the default, then the number that was given */
	const char *json;
	char **operands;
	int n_operands;
};
void bench_parse(int argc, char **argv, const char *usage, int least, int most,
		 struct bench_option *option, struct bench_args *args);

/* Where a save goes: the operand @index if it was given, or "@path.saved"; nothing has that name.
 * free() is owed. */
char *bench_target(const struct bench_args *args, int index, const char *path);

/* Exits with hoist_error() if @rc is below 0: "@what @of: why". */
void bench_must(int rc, const char *what, const char *of);

/* Runs @run in a child process, which fills @result (@bytes of it); then returns
 * the CPU time of the child's whole life.  For what must find nothing left of
 * earlier runs, and for drivers, which do not survive a fork: a benchmark's own
 * process never opens one.  Exits if the child fails. */
double bench_in_child(void (*run)(const void *argument, void *result), const void *argument,
		      void *result, size_t bytes);

/* Prints the table on stdout; with @json_path not NULL also writes the JSON, "-" being stdout in
 * place of the table.  Ends @results. */
void bench_print(struct results *results, const char *json_path);

#endif
