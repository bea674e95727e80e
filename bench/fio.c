/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "bench/fio.h"

#include "bench/bench.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define HUGE_PAGES_FILE "/proc/sys/vm/nr_hugepages"
/* 8 MiB blocks by depth 16 is 64 huge pages of 2 MiB; fio takes one or two more. */
#define HUGE_PAGES_NEEDED 72

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

void fio_read(const char *path, const struct fio_shape *shape, struct fio_result *ret)
{
	uint64_t bytes = bench_file_bytes(path) / shape->block_bytes * shape->block_bytes;
	if (bytes == 0)
		bench_fail("%s is smaller than one of fio's blocks", path);
	char *quoted = quote(path);
	char *command;
	if (asprintf(&command,
		     "fio --name=read --filename=%s --readonly --rw=read --direct=1 "
		     "--ioengine=io_uring --bs=%" PRIu64 " --iodepth=%u --size=%" PRIu64
		     " --iomem=%s --thread --output-format=json 2>&1",
		     quoted, shape->block_bytes, shape->depth, bytes,
		     have_huge_pages ? "mmaphuge" : "mmap") < 0)
		bench_fail("no memory");
	bench_make_cold(path);
	FILE *output = popen(command, "re");
	if (output == NULL)
		bench_fail("no process for fio");
	json_t *root = parse(output);
	int status = pclose(output);
	if (status != 0)
		bench_fail("fio ended with status %d: %s", WEXITSTATUS(status), command);
	const json_t *job = json_array_get(json_object_get(root, "jobs"), 0);
	const json_t *read = json_object_get(job, "read");
	double seconds = number(read, "runtime") / 1000;
	if (number(read, "io_bytes") < (double)bytes || seconds <= 0)
		bench_fail("fio did not read the whole file");
	ret->bytes_per_second = number(read, "bw_bytes");
	ret->cpu_seconds_per_byte =
		(number(job, "usr_cpu") + number(job, "sys_cpu")) / 100 * seconds / (double)bytes;
	json_decref(root);
	free(command);
	free(quoted);
}

struct fio_shape fio_best_shape(const char *path)
{
	struct fio_shape best = {0, 0};
	double best_rate = 0;
	for (uint64_t block = (uint64_t)1 << 20; block <= (uint64_t)8 << 20; block *= 2) {
		for (unsigned depth = 8; depth <= 16; depth *= 2) {
			struct fio_shape shape = {block, depth};
			struct fio_result result;
			fio_read(path, &shape, &result);
			if (result.bytes_per_second > best_rate) {
				best_rate = result.bytes_per_second;
				best = shape;
			}
		}
	}
	return best;
}
