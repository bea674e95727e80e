/* SPDX-License-Identifier: MIT */
/* Reads and writes by fio.  The contract is in fio.h. */
#include "config.h"

#include "bench/fio.h"

#include "bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE_PAGES_FILE "/proc/sys/vm/nr_hugepages"
#define MOST_BUFFERS ((uint64_t)256 << 20)
/* Huge pages of 2 MiB; fio takes one or two more. */
#define HUGE_PAGES_NEEDED 136

static long pages_before = -1;
static bool have_huge_pages;

static long read_huge_pages(void)
{
	long pages = -1;
	FILE *file = fopen(HUGE_PAGES_FILE, "re");
	if (file == NULL)
		return -1;
	if (fscanf(file, "%ld", &pages) != 1)
		pages = -1;
	fclose(file);
	return pages;
}

static bool write_huge_pages(long pages)
{
	FILE *file = fopen(HUGE_PAGES_FILE, "we");
	if (file == NULL)
		return false;
	bool written = fprintf(file, "%ld\n", pages) > 0;
	return fclose(file) == 0 && written;
}

static void give_back(void)
{
	if (pages_before >= 0)
		(void)write_huge_pages(pages_before);
	pages_before = -1;
}

bool fio_reserve_huge_pages(void)
{
	long pages = read_huge_pages();
	if (pages < 0)
		return false;
	if (write_huge_pages(pages + HUGE_PAGES_NEEDED)) {
		pages_before = pages;
		atexit(give_back);
	}
	have_huge_pages = read_huge_pages() >= pages + HUGE_PAGES_NEEDED;
	return have_huge_pages;
}

/* popen(3) gives the path to a shell, and fio itself takes a colon for the end of a name. */
static char *quote(const char *path)
{
	if (strpbrk(path, "'\\\n:") != NULL)
		bench_fail("%s: choose a path without quotes, backslashes and colons", path);
	char *quoted;
	if (asprintf(&quoted, "'%s'", path) < 0)
		bench_fail("no memory");
	return quoted;
}

static double number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	if (!json_is_number(value))
		bench_fail("fio's JSON has no number \"%s\"", key);
	return json_number_value(value);
}

/* fio prints notes before its JSON: the object begins at the first brace. */
static json_t *parse(FILE *from)
{
	char *text = NULL;
	size_t capacity = 0;
	json_error_t error;
	if (getdelim(&text, &capacity, '\0', from) <= 0)
		bench_fail("fio printed nothing; is it installed (Debian: apt-get install fio)?");
	const char *brace = strchr(text, '{');
	json_t *root = brace == NULL ? NULL : json_loads(brace, JSON_DISABLE_EOF_CHECK, &error);
	if (root == NULL)
		bench_fail("fio failed: %s", text);
	free(text);
	return root;
}

/* Runs fio once: @way is "read" or "write", @more its further options. */
static void run_fio(const char *path, const char *way, const char *more, uint64_t bytes,
		    const struct fio_shape *shape, struct fio_result *ret)
{
	char *quoted = quote(path);
	char *command;
	if (asprintf(&command,
		     "fio --name=bench --filename=%s --rw=%s %s --direct=1 --ioengine=io_uring "
		     "--bs=%" PRIu64 " --iodepth=%u --size=%" PRIu64
		     " --iomem=%s --thread --output-format=json 2>&1",
		     quoted, way, more, shape->block_bytes, shape->depth, bytes,
		     have_huge_pages ? "mmaphuge" : "mmap") < 0)
		bench_fail("no memory");
	FILE *output = popen(command, "re");
	if (output == NULL)
		bench_fail("no process for fio");
	json_t *root = parse(output);
	int status = pclose(output);
	if (status != 0)
		bench_fail("fio ended with status %d: %s", WEXITSTATUS(status), command);
	const json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
	const json_t *side = json_object_get(job, way);
	double seconds = number(side, "runtime") / 1000;
	if (number(side, "io_bytes") < (double)bytes || seconds <= 0)
		bench_fail("fio did not %s the whole file", way);
	ret->bytes_per_second = (double)bytes / seconds;
	ret->cpu_seconds_per_byte =
		(number(job, "usr_cpu") + number(job, "sys_cpu")) / 100 * seconds / (double)bytes;
	json_decref(root);
	free(command);
	free(quoted);
}

/* The bytes of the file's whole blocks. */
static uint64_t whole_blocks(const char *path, uint64_t bytes, const struct fio_shape *shape)
{
	bytes = bytes / shape->block_bytes * shape->block_bytes;
	if (bytes == 0)
		bench_fail("%s is smaller than one of fio's blocks", path);
	return bytes;
}

void fio_read(const char *path, const struct fio_shape *shape, struct fio_result *ret)
{
	uint64_t bytes = whole_blocks(path, bench_file_bytes(path), shape);
	bench_make_cold(path);
	run_fio(path, "read", "--readonly", bytes, shape, ret);
}

/* As fio does, which allocates a file that is too short: for O_DIRECT writes later on. */
static void create_file(const char *path, uint64_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || fallocate(fd, 0, 0, (off_t)bytes) < 0)
		bench_fail("%s: %s", path, strerror(errno));
	close(fd);
}

void fio_write(const char *path, uint64_t bytes, const struct fio_shape *shape,
	       struct fio_result *ret)
{
	bytes = whole_blocks(path, bytes, shape);
	if (unlink(path) < 0 && errno != ENOENT)
		bench_fail("%s: %s", path, strerror(errno));
	sync(); /* as before a save */
	double begin = clock_seconds();
	create_file(path, bytes);
	ret->creating_seconds = clock_seconds() - begin;
	run_fio(path, "write", "--end_fsync=1", bytes, shape, ret);
	double seconds = (double)bytes / ret->bytes_per_second + ret->creating_seconds;
	ret->bytes_per_second = (double)bytes / seconds;
	if (unlink(path) < 0)
		bench_fail("%s: %s", path, strerror(errno));
}

struct candidate {
	struct fio_shape shape;
	double rate; /* the best so far */
};

static void measure(fio_rate *rate, const char *path, uint64_t bytes, struct candidate *candidate)
{
	double found = rate(path, bytes, &candidate->shape);
	if (found > candidate->rate)
		candidate->rate = found;
}

static int faster(const void *a, const void *b)
{
	double x = ((const struct candidate *)a)->rate;
	double y = ((const struct candidate *)b)->rate;
	return (x < y) - (x > y);
}

/* A single try may be slow by chance. */
struct fio_shape fio_best(fio_rate *rate, const char *path, uint64_t bytes, unsigned most_depth)
{
	struct candidate candidates[20];
	size_t n = 0;
	for (uint64_t block = (uint64_t)1 << 20; block <= (uint64_t)16 << 20; block *= 2) {
		for (unsigned depth = 8; depth <= most_depth; depth *= 2) {
			if (block * depth > MOST_BUFFERS)
				continue;
			candidates[n] = (struct candidate){.shape = {block, depth}};
			measure(rate, path, bytes, &candidates[n++]);
		}
	}
	qsort(candidates, n, sizeof candidates[0], faster);
	for (size_t i = 0; i < 6; i++)
		measure(rate, path, bytes, &candidates[i % 3]);
	qsort(candidates, 3, sizeof candidates[0], faster);
	return candidates[0].shape;
}

static double rate_of_read(const char *path, uint64_t bytes, const struct fio_shape *shape)
{
	struct fio_result result;
	(void)bytes;
	fio_read(path, shape, &result);
	return result.bytes_per_second;
}

static double rate_of_write(const char *path, uint64_t bytes, const struct fio_shape *shape)
{
	struct fio_result result;
	fio_write(path, bytes, shape, &result);
	return result.bytes_per_second;
}

struct fio_shape fio_best_read(const char *path)
{
	return fio_best(rate_of_read, path, 0, 64);
}

struct fio_shape fio_best_write(const char *path, uint64_t bytes)
{
	return fio_best(rate_of_write, path, bytes, 16);
}

const char *fio_label(const struct fio_shape *shape, char *ret, unsigned bytes)
{
	(void)snprintf(ret, bytes, "fio, %" PRIu64 " MiB x %u, %s pages", shape->block_bytes >> 20,
		       shape->depth, have_huge_pages ? "huge" : "plain");
	return ret;
}
