/* SPDX-License-Identifier: MIT */
/* Options, children, and files made cold or hot.  The contract is in bench.h. */
#include "config.h"

#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <hoist/error.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/pages.h"
#include "cli/fail.h"

void bench_fail(const char *format, ...)
{
	char text[1024];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(text, sizeof text, format, args);
	va_end(args);
	exit(fail("%s", text));
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

/* Reads the whole result of the child.  Returns: false if the child ended before. */
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
	/* Otherwise the child would print the parent's buffered output a second time. */
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

/* Ends the process if a function of pages.h failed, which has printed the message. */
static void need(int status)
{
	if (status != STATUS_OK)
		exit(1);
}

void bench_make_cold(const char *path)
{
	int fd = open_file(path);
	need(pages_drop(fd));
	close(fd);
}

void bench_make_hot(const char *path)
{
	int fd = open_file(path);
	need(pages_read(fd, 0, bench_file_bytes(path)));
	close(fd);
}

void bench_make_half(const char *path)
{
	int fd = open_file(path);
	need(pages_halve(fd, 0, bench_file_bytes(path)));
	close(fd);
}

double bench_resident(const char *path)
{
	int fd = open_file(path);
	uint64_t bytes = bench_file_bytes(path);
	uint64_t resident = 0;
	if (bytes == 0)
		bench_fail("%s is empty", path);
	need(pages_count(fd, 0, bytes, &resident));
	close(fd);
	return (double)resident / (double)bytes;
}

static void *kept;
static size_t kept_bytes;

void bench_keep_memory(size_t bytes)
{
	if (kept != NULL)
		return;
	kept_bytes = pages_to_touch(bytes);
	need(pages_touch(kept_bytes, &kept));
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

static _Noreturn void show_usage(FILE *out, const char *usage, int status)
{
	fputs(usage, out);
	exit(status);
}

void bench_parse(int argc, char **argv, const char *usage, int least, int most,
		 struct bench_option *option, struct bench_args *args)
{
	const struct option longs[] = {
		{"runs", required_argument, NULL, 'n'},
		{"json", required_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{option != NULL ? option->name : NULL, required_argument, NULL, 'o'},
		{NULL, 0, NULL, 0},
	};
	for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
		char *end = NULL;
		if (c == 'n')
			args->n_runs = strtoul(optarg, &end, 10);
		else if (c == 'j')
			args->json = optarg;
		else if (c == 'o')
			option->text = optarg;
		else
			show_usage(c == 'h' ? stdout : stderr, usage, c == 'h' ? 0 : 2);
		if (end != NULL && (*end != '\0' || args->n_runs < 1 || args->n_runs > MAX_RUNS))
			show_usage(stderr, usage, 2);
	}
	args->operands = argv + optind;
	args->n_operands = argc - optind;
	if (args->n_operands < least || args->n_operands > most)
		show_usage(stderr, usage, 2);
}

char *bench_target(const struct bench_args *args, int index, const char *path)
{
	char *target = NULL;
	bool given = args->n_operands > index;
	if (asprintf(&target, "%s%s", given ? args->operands[index] : path, given ? "" : ".saved") <
	    0)
		bench_fail("no memory");
	if (access(target, F_OK) == 0)
		bench_fail("%s is there already", target);
	return target;
}

void bench_must(int rc, const char *what, const char *of)
{
	if (rc < 0)
		bench_fail("%s %s: %s", what, of, hoist_error());
}

void bench_print(struct results *results, const char *json_path)
{
	bool to_stdout = json_path != NULL && strcmp(json_path, "-") == 0;
	if (to_stdout)
		need(results_print_json(results, json_object()));
	else
		need(results_print(results, true));
	if (json_path != NULL && !to_stdout) {
		json_t *object = results_json(results);
		if (object == NULL ||
		    json_dump_file(object, json_path, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) < 0)
			bench_fail("%s cannot be written", json_path);
		json_decref(object);
	}
	results_destroy(results);
	need(output_finish(STATUS_OK));
}
