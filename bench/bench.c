/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <hoist/error.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct bench_results {
	json_t *root;
};

void bench_fail(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "%s: ", program_invocation_short_name);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

double bench_now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double cpu_seconds_of(const struct rusage *usage)
{
	return (double)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) +
	       (double)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1e-6;
}

double bench_cpu_seconds(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return cpu_seconds_of(&usage);
}

/* What the child wrote, all of it.  Returns: false if it ended before. */
static bool read_result(int fd, char *result, size_t bytes)
{
	size_t have = 0;
	while (have < bytes) {
		ssize_t got = read(fd, result + have, bytes - have);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		have += (size_t)got;
	}
	return true;
}

double bench_in_child(void (*run)(const void *argument, void *result), const void *argument,
		      void *result, size_t bytes)
{
	int ends[2];
	if (pipe(ends) < 0)
		bench_fail("pipe: %s", strerror(errno));
	fflush(NULL);
	pid_t child = fork();
	if (child < 0)
		bench_fail("fork: %s", strerror(errno));
	if (child == 0) {
		close(ends[0]);
		run(argument, result);
		/* A result fits into the pipe: it is written in one piece. */
		ssize_t put = write(ends[1], result, bytes);
		fflush(NULL);
		_exit(put == (ssize_t)bytes ? 0 : 1);
	}
	close(ends[1]);
	bool whole = read_result(ends[0], result, bytes);
	close(ends[0]);
	int status = 0;
	struct rusage usage;
	while (wait4(child, &status, 0, &usage) < 0) {
		if (errno != EINTR)
			bench_fail("wait4: %s", strerror(errno));
	}
	if (!whole || status != 0)
		bench_fail("a child process ended with status %#x", (unsigned)status);
	return cpu_seconds_of(&usage);
}

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		bench_fail("%s: %s", path, strerror(errno));
	return fd;
}

void bench_make_cold(const char *path)
{
	int fd = open_file(path);
	if (fsync(fd) < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
		bench_fail("%s: cannot be dropped from the page cache", path);
	close(fd);
}

void bench_make_hot(const char *path)
{
	int fd = open_file(path);
	size_t bytes = (size_t)4 << 20;
	char *buffer = malloc(bytes);
	if (buffer == NULL)
		bench_fail("no memory");
	ssize_t got;
	while ((got = read(fd, buffer, bytes)) > 0)
		;
	if (got < 0)
		bench_fail("%s: %s", path, strerror(errno));
	free(buffer);
	close(fd);
}

void bench_make_half(const char *path)
{
	const size_t piece = (size_t)16 << 20;
	uint64_t bytes = bench_file_bytes(path);
	char *buffer = malloc(piece);
	if (buffer == NULL)
		bench_fail("no memory");
	bench_make_cold(path);
	int fd = open_file(path);
	(void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no readahead into the next piece */
	for (uint64_t at = 0; at < bytes; at += 2 * piece) {
		if (pread(fd, buffer, piece, (off_t)at) < 0)
			bench_fail("%s: %s", path, strerror(errno));
	}
	close(fd);
	free(buffer);
}

double bench_resident(const char *path)
{
	int fd = open_file(path);
	size_t bytes = (size_t)bench_file_bytes(path);
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t n_pages = (bytes + page - 1) / page;
	if (n_pages == 0)
		bench_fail("%s is empty", path);
	void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	unsigned char *pages = malloc(n_pages);
	if (map == MAP_FAILED || pages == NULL || mincore(map, bytes, pages) < 0)
		bench_fail("%s: mincore: %s", path, strerror(errno));
	size_t resident = 0;
	for (size_t i = 0; i < n_pages; i++)
		resident += pages[i] & 1;
	free(pages);
	munmap(map, bytes);
	close(fd);
	return (double)resident / (double)n_pages;
}

static char *kept;
static size_t kept_bytes;

void bench_keep_memory(size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	if (kept != NULL)
		return;
	kept = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (kept == MAP_FAILED)
		bench_fail("no memory to touch: %s", strerror(errno));
	kept_bytes = bytes;
	(void)madvise(kept, bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < bytes; i += page)
		((volatile char *)kept)[i] = 1;
}

void bench_touch_memory(size_t bytes)
{
	bench_keep_memory(bytes);
	munmap(kept, kept_bytes);
	kept = NULL;
}

uint64_t bench_file_bytes(const char *path)
{
	struct stat status;
	if (stat(path, &status) < 0)
		bench_fail("%s: %s", path, strerror(errno));
	if (!S_ISREG(status.st_mode))
		bench_fail("%s is not a file", path);
	return (uint64_t)status.st_size;
}

void bench_parse(int argc, char **argv, const char *usage, size_t n_runs, int n_operands,
		 struct bench_args *ret)
{
	static const struct option longs[] = {
		{"runs", required_argument, NULL, 'n'},
		{"json", required_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool good = true;
	*ret = (struct bench_args){.n_runs = n_runs};
	for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
		uint64_t number = 0;
		switch (c) {
		case 'n':
			good &= bench_parse_bytes(optarg, &number) && number >= 1 &&
				number <= BENCH_MAX_RUNS;
			ret->n_runs = (size_t)number;
			break;
		case 'j':
			ret->json = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			good = false;
		}
	}
	ret->operands = argv + optind;
	ret->n_operands = argc - optind;
	if (!good || ret->n_operands < n_operands) {
		fputs(usage, stderr);
		exit(2);
	}
}

void bench_must(int rc, const char *what, const char *of)
{
	if (rc < 0)
		bench_fail("%s %s: %s", what, of, hoist_error());
}

bool bench_parse_bytes(const char *text, uint64_t *ret)
{
	if (*text < '0' || *text > '9')
		return false;
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	unsigned shift = 0;
	switch (*end) {
	case 'K':
		shift = 10;
		break;
	case 'M':
		shift = 20;
		break;
	case 'G':
		shift = 30;
		break;
	default:
		break;
	}
	if (errno != 0 || end[shift != 0] != '\0' || value > UINT64_MAX >> shift)
		return false;
	*ret = (uint64_t)value << shift;
	return true;
}

void bench_sample(struct bench_samples *samples, double value)
{
	if (samples->n == BENCH_MAX_RUNS)
		bench_fail("more than %d runs", BENCH_MAX_RUNS);
	samples->values[samples->n++] = value;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;
	return (x > y) - (x < y);
}

double bench_median(const struct bench_samples *samples)
{
	double sorted[BENCH_MAX_RUNS];
	size_t n = samples->n;
	if (n == 0)
		bench_fail("a median of nothing was asked for");
	memcpy(sorted, samples->values, n * sizeof sorted[0]);
	qsort(sorted, n, sizeof sorted[0], compare);
	return n % 2 != 0 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

struct bench_results *bench_results_create(const char *name)
{
	struct bench_results *results = malloc(sizeof *results);
	if (results == NULL)
		bench_fail("no memory");
	results->root =
		json_pack("{s:s, s:[], s:[], s:[]}", "bench", name, "rows", "ratios", "bars");
	if (results->root == NULL)
		bench_fail("no memory");
	return results;
}

static void append(struct bench_results *results, const char *list, json_t *item)
{
	if (json_array_append_new(json_object_get(results->root, list), item) < 0)
		bench_fail("no memory for a result");
}

void bench_row(struct bench_results *results, const char *work, int threads, const char *subject,
	       double value, const char *unit)
{
	append(results, "rows",
	       json_pack("{s:s, s:i, s:s, s:f, s:s}", "work", work, "threads", threads, "subject",
			 subject, "value", value, "unit", unit));
}

void bench_ratio(struct bench_results *results, const char *work, int threads, const char *against,
		 double ratio)
{
	append(results, "ratios",
	       json_pack("{s:s, s:i, s:s, s:f}", "work", work, "threads", threads, "against",
			 against, "ratio", ratio));
}

void bench_bar(struct bench_results *results, const char *work, const char *what, double value,
	       bool at_least, double bar)
{
	bool met = at_least ? value >= bar : value <= bar;
	append(results, "bars",
	       json_pack("{s:s, s:s, s:f, s:f, s:s, s:b}", "work", work, "what", what, "value",
			 value, "bar", bar, "sense", at_least ? "at least" : "at most", "met",
			 (int)met));
}

static const char *text_of(const json_t *item, const char *key)
{
	return json_string_value(json_object_get(item, key));
}

static void print_table(const json_t *root)
{
	size_t i;
	const json_t *item;
	printf("%-40s %-34s %12s  %s\n", "work", "subject", "value", "unit");
	json_array_foreach(json_object_get(root, "rows"), i, item)
		printf("%-40s %-34s %12.4g  %s\n", text_of(item, "work"), text_of(item, "subject"),
		       json_number_value(json_object_get(item, "value")), text_of(item, "unit"));
	printf("\n%-40s %-34s %12s\n", "work", "hoist against", "ratio");
	json_array_foreach(json_object_get(root, "ratios"), i, item)
		printf("%-40s %-34s %12.3f\n", text_of(item, "work"), text_of(item, "against"),
		       json_number_value(json_object_get(item, "ratio")));
	if (json_array_size(json_object_get(root, "bars")) == 0)
		return;
	printf("\n%-40s %-34s %12s\n", "work", "bar", "value");
	json_array_foreach(json_object_get(root, "bars"), i, item)
		printf("%-40s %-34s %12.3f  %s %g: %s\n", text_of(item, "work"),
		       text_of(item, "what"), json_number_value(json_object_get(item, "value")),
		       text_of(item, "sense"), json_number_value(json_object_get(item, "bar")),
		       json_is_true(json_object_get(item, "met")) ? "met" : "MISSED");
}

void bench_results_print(struct bench_results *results, const char *json_path)
{
	bool to_stdout = json_path != NULL && strcmp(json_path, "-") == 0;
	if (!to_stdout)
		print_table(results->root);
	if (to_stdout) {
		json_dumpf(results->root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
		putchar('\n');
	} else if (json_path != NULL &&
		   json_dump_file(results->root, json_path,
				  JSON_INDENT(1) | JSON_REAL_PRECISION(6)) < 0) {
		bench_fail("%s cannot be written", json_path);
	}
	json_decref(results->root);
	free(results);
	if (fflush(stdout) != 0)
		bench_fail("stdout: %s", strerror(errno));
}
