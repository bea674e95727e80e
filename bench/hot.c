/* SPDX-License-Identifier: MIT */
/* Loops by hand over a file that lies in the page cache.  The contract is in hot.h. */
#include "config.h"

#include "bench/hot.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench/bench.h"

#define PIECE_BYTES ((size_t)256 << 10)
#define HUGE_BYTES ((size_t)2 << 20)
#define MAX_THREADS 64

struct request {
	const char *path;
	enum hot_way way;
	int n_threads;
	int warm;
};

struct part {
	pthread_t thread;
	enum hot_way way;
	int fd;
	const char *from;
	char *to;
	size_t start;
	size_t bytes;
};

static void *copy_part(void *argument)
{
	const struct part *part = argument;
	if (part->way == HOT_MEMCPY) {
		memcpy(part->to + part->start, part->from + part->start, part->bytes);
		return NULL;
	}
	for (size_t done = 0; done < part->bytes;) {
		size_t left = part->bytes - done;
		ssize_t n =
			pread(part->fd, part->to + part->start + done,
			      left < PIECE_BYTES ? left : PIECE_BYTES, (off_t)(part->start + done));
		if (n <= 0)
			bench_fail("reading: %s", strerror(errno));
		done += (size_t)n;
	}
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

/* The source is populated before the clock starts, and so is a warm destination.  A fresh
 * destination gets its pages within the time. */
static void in_child(const void *argument, void *ret)
{
	const struct request *request = argument;
	double *seconds = ret;
	struct part parts[MAX_THREADS];
	size_t bytes = (size_t)bench_file_bytes(request->path);
	size_t share = bytes / (size_t)request->n_threads / HUGE_BYTES * HUGE_BYTES;
	int fd = open(request->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		bench_fail("%s: %s", request->path, strerror(errno));
	char *from = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (from == MAP_FAILED)
		bench_fail("%s: mmap: %s", request->path, strerror(errno));
	char *to = map_memory(bytes);
	if (request->warm)
		memset(to, 1, bytes);
	double begin = clock_seconds();
	for (int i = 0; i < request->n_threads; i++) {
		size_t start = share * (size_t)i;
		bool last = i == request->n_threads - 1;
		parts[i] = (struct part){.way = request->way,
					 .fd = fd,
					 .from = from,
					 .to = to,
					 .start = start,
					 .bytes = last ? bytes - start : share};
		if (pthread_create(&parts[i].thread, NULL, copy_part, &parts[i]) != 0)
			bench_fail("no thread");
	}
	for (int i = 0; i < request->n_threads; i++)
		(void)pthread_join(parts[i].thread, NULL);
	*seconds = clock_seconds() - begin;
}

double hot_run(const char *path, enum hot_way way, int n_threads, int warm)
{
	const struct request request = {path, way,
					n_threads < MAX_THREADS ? n_threads : MAX_THREADS, warm};
	double seconds = 0;
	bench_make_hot(path);
	bench_touch_memory((size_t)bench_file_bytes(path));
	(void)bench_in_child(in_child, &request, &seconds, sizeof seconds);
	bench_keep_memory((size_t)bench_file_bytes(path));
	return seconds;
}
