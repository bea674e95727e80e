/* SPDX-License-Identifier: MIT */
/* Loops by hand over a file that lies in the page cache.  The contract is in hot.h. */
#include "config.h"

#include "bench/hot.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/bench.h"

#define PIECE_BYTES ((size_t)2 << 20) /* as a load's */
#define HUGE_BYTES ((size_t)2 << 20)
#define MAX_THREADS 64

struct request {
	const char *path;
	enum hot_way way;
	int n_threads;
	int warm;
	const struct hot_rows *rows;
};

/* Bytes of the file [start, start + bytes); or rows [start, start + bytes). */
struct part {
	pthread_t thread;
	enum hot_way way;
	int fd;
	const char *from;
	char *to;
	size_t start;
	size_t bytes;
	const struct hot_rows *rows;
};

static void read_whole(int fd, char *to, size_t bytes, uint64_t offset)
{
	for (size_t done = 0; done < bytes;) {
		ssize_t n = pread(fd, to + done, bytes - done, (off_t)(offset + done));
		if (n <= 0)
			bench_fail("reading: %s", n < 0 ? strerror(errno) : "the file ends");
		done += (size_t)n;
	}
}

static void *copy_part(void *argument)
{
	const struct part *part = argument;
	if (part->way == HOT_MEMCPY) {
		memcpy(part->to + part->start, part->from + part->start, part->bytes);
		return NULL;
	}
	for (size_t done = 0; done < part->bytes; done += PIECE_BYTES) {
		size_t left = part->bytes - done;
		read_whole(part->fd, part->to + part->start + done,
			   left < PIECE_BYTES ? left : PIECE_BYTES, part->start + done);
	}
	return NULL;
}

static void *read_rows(void *argument)
{
	const struct part *part = argument;
	const struct hot_rows *rows = part->rows;
	for (size_t r = part->start; r < part->start + part->bytes; r++)
		read_whole(part->fd, part->to + r * rows->bytes, rows->bytes,
			   rows->offset + r * rows->stride);
	return NULL;
}

/* Maps @bytes, in huge pages as far as the kernel has them. */
static char *map_memory(size_t bytes)
{
	char *memory = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		bench_fail("no memory: %s", strerror(errno));
	memory += HUGE_BYTES - (uintptr_t)memory % HUGE_BYTES;
	(void)madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

/* Gives each thread its share, and waits for all. */
static void share_out(const struct request *request, const struct part *whole, size_t unit)
{
	struct part parts[MAX_THREADS];
	size_t share = whole->bytes / (size_t)request->n_threads / unit * unit;
	for (int i = 0; i < request->n_threads; i++) {
		bool last = i == request->n_threads - 1;
		parts[i] = *whole;
		parts[i].start = share * (size_t)i;
		parts[i].bytes = last ? whole->bytes - parts[i].start : share;
		if (pthread_create(&parts[i].thread, NULL,
				   whole->rows != NULL ? read_rows : copy_part, &parts[i]) != 0)
			bench_fail("no thread");
	}
	for (int i = 0; i < request->n_threads; i++)
		(void)pthread_join(parts[i].thread, NULL);
}

/* The source is populated before the clock starts, and so is a warm destination.  A fresh
 * destination gets its pages within the time. */
static void in_child(const void *argument, void *ret)
{
	const struct request *request = argument;
	const struct hot_rows *rows = request->rows;
	double *seconds = ret;
	size_t bytes = (size_t)bench_file_bytes(request->path);
	struct part whole = {.way = request->way, .bytes = bytes, .rows = rows};
	whole.fd = open(request->path, O_RDONLY | O_CLOEXEC);
	if (whole.fd < 0)
		bench_fail("%s: %s", request->path, strerror(errno));
	void *from = MAP_FAILED;
	if (request->way == HOT_MEMCPY) {
		from = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, whole.fd, 0);
		if (from == MAP_FAILED)
			bench_fail("%s: mmap: %s", request->path, strerror(errno));
		whole.from = from;
	}
	if (rows != NULL)
		bytes = rows->n * rows->bytes;
	whole.to = map_memory(bytes);
	if (request->warm)
		memset(whole.to, 1, bytes);
	double begin = clock_seconds();
	if (rows != NULL)
		whole.bytes = rows->n;
	share_out(request, &whole, rows != NULL ? 1 : HUGE_BYTES);
	*seconds = clock_seconds() - begin;
}

static double run(const struct request *request)
{
	double seconds = 0;
	bench_make_hot(request->path);
	bench_touch_memory((size_t)bench_file_bytes(request->path));
	(void)bench_in_child(in_child, request, &seconds, sizeof seconds);
	bench_keep_memory((size_t)bench_file_bytes(request->path));
	return seconds;
}

double hot_run(const char *path, enum hot_way way, int n_threads, int warm)
{
	const struct request request = {.path = path,
					.way = way,
					.n_threads =
						n_threads < MAX_THREADS ? n_threads : MAX_THREADS,
					.warm = warm};
	return run(&request);
}

double hot_run_rows(const char *path, const struct hot_rows *rows, int n_threads)
{
	const struct request request = {.path = path,
					.way = HOT_PREAD,
					.n_threads =
						n_threads < MAX_THREADS ? n_threads : MAX_THREADS,
					.rows = rows};
	return run(&request);
}
