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
	struct hot_source source;
	enum hot_way way;
	int n_threads;
	int warm;
};

/* Bytes of the source [start, start + bytes); or rows [start, start + bytes). */
struct part {
	pthread_t thread;
	enum hot_way way;
	const struct hot_source *source;
	const char *from;
	char *to;
	size_t start;
	size_t bytes;
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
	const struct hot_source *source = part->source;
	if (part->way == HOT_MEMCPY) {
		memcpy(part->to + part->start, part->from + part->start, part->bytes);
		return NULL;
	}
	for (size_t done = 0; done < part->bytes; done += PIECE_BYTES) {
		size_t left = part->bytes - done;
		read_whole(source->fd, part->to + part->start + done,
			   left < PIECE_BYTES ? left : PIECE_BYTES,
			   source->offset + part->start + done);
	}
	return NULL;
}

static void *read_rows(void *argument)
{
	const struct part *part = argument;
	const struct hot_rows *rows = part->source->rows;
	for (size_t r = part->start; r < part->start + part->bytes; r++)
		read_whole(part->source->fd, part->to + r * rows->bytes, rows->bytes,
			   rows->offset + r * rows->stride);
	return NULL;
}

/* Gives each thread its share, and waits for all. */
static void share_out(const struct part *whole, int n_threads, size_t unit)
{
	struct part parts[MAX_THREADS];
	size_t share = whole->bytes / (size_t)n_threads / unit * unit;
	for (int i = 0; i < n_threads; i++) {
		bool last = i == n_threads - 1;
		parts[i] = *whole;
		parts[i].start = share * (size_t)i;
		parts[i].bytes = last ? whole->bytes - parts[i].start : share;
		if (pthread_create(&parts[i].thread, NULL,
				   whole->source->rows != NULL ? read_rows : copy_part,
				   &parts[i]) != 0)
			bench_fail("no thread");
	}
	for (int i = 0; i < n_threads; i++)
		(void)pthread_join(parts[i].thread, NULL);
}

/* Memory for @bytes, from any multiple of a huge page in it. */
static char *map_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		bench_fail("no memory: %s", strerror(errno));
	return memory;
}

/* The file up to the source's end, with its pages. */
static char *map_source(const struct hot_source *source)
{
	void *from = mmap(NULL, (size_t)source->offset + source->bytes, PROT_READ,
			  MAP_SHARED | MAP_POPULATE, source->fd, 0);
	if (from == MAP_FAILED)
		bench_fail("mmap: %s", strerror(errno));
	return from;
}

double hot_copy(const struct hot_source *source, enum hot_way way, int n_threads, int warm)
{
	const struct hot_rows *rows = source->rows;
	size_t bytes = rows != NULL ? rows->n * rows->bytes : source->bytes;
	char *memory = map_memory(bytes);
	char *from = way == HOT_MEMCPY ? map_source(source) : NULL;
	struct part whole = {.way = way,
			     .source = source,
			     .from = from != NULL ? from + source->offset : NULL,
			     .to = memory + HUGE_BYTES - (uintptr_t)memory % HUGE_BYTES,
			     .bytes = rows != NULL ? rows->n : bytes};
	(void)madvise(whole.to, bytes, MADV_HUGEPAGE);
	if (warm)
		memset(whole.to, 1, bytes);
	double begin = clock_seconds();
	share_out(&whole, n_threads < MAX_THREADS ? n_threads : MAX_THREADS,
		  rows != NULL ? 1 : HUGE_BYTES);
	double seconds = clock_seconds() - begin;
	if (from != NULL)
		(void)munmap(from, (size_t)source->offset + source->bytes);
	(void)munmap(memory, bytes + HUGE_BYTES);
	return seconds;
}

static void in_child(const void *argument, void *ret)
{
	const struct request *request = argument;
	struct hot_source source = request->source;
	source.fd = open(request->path, O_RDONLY | O_CLOEXEC);
	if (source.fd < 0)
		bench_fail("%s: %s", request->path, strerror(errno));
	*(double *)ret = hot_copy(&source, request->way, request->n_threads, request->warm);
}

static double run(struct request *request)
{
	double seconds = 0;
	request->source.bytes = (size_t)bench_file_bytes(request->path);
	bench_make_hot(request->path);
	bench_touch_memory(request->source.bytes);
	(void)bench_in_child(in_child, request, &seconds, sizeof seconds);
	bench_keep_memory(request->source.bytes);
	return seconds;
}

double hot_run(const char *path, enum hot_way way, int n_threads, int warm)
{
	return run(
		&(struct request){.path = path, .way = way, .n_threads = n_threads, .warm = warm});
}

double hot_run_rows(const char *path, const struct hot_rows *rows, int n_threads)
{
	return run(&(struct request){
		.path = path, .source = {.rows = rows}, .way = HOT_PREAD, .n_threads = n_threads});
}
