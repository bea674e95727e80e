/* SPDX-License-Identifier: MIT */
/* group_copy FILE - two processes that read half of a file each into memory that both share, and
 * copy all of it from there to memory of their own: the least that two members of one machine do.
 * Prints "seconds S".  Built and run by group_machines.py. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE ((size_t)2 << 20)
#define SLOTS 64u /* of each process */

struct shared {
	atomic_size_t read[2]; /* pieces of each process's that are there */
	atomic_size_t used[2]; /* pieces of the other's that each has copied */
	unsigned char slots[2][SLOTS][PIECE];
};

static double now(void)
{
	struct timespec t;
	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static size_t piece_bytes(size_t bytes, size_t piece)
{
	size_t left = bytes - piece * PIECE;
	return left < PIECE ? left : PIECE;
}

/* Piece 2 i + self is this process's i-th. */
static int run(const char *path, struct shared *shared, unsigned self, size_t bytes)
{
	size_t n = (bytes + PIECE - 1) / PIECE;
	size_t mine = 0, theirs = 0;
	unsigned other = 1 - self;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	unsigned char *to = mmap(NULL, bytes + PIECE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (fd < 0 || to == MAP_FAILED)
		return 1;
	(void)madvise(to, bytes + PIECE, MADV_HUGEPAGE);
	while (2 * mine + self < n || 2 * theirs + other < n) {
		size_t piece = 2 * mine + self;
		if (piece < n && mine < atomic_load(&shared->used[other]) + SLOTS) {
			unsigned char *slot = shared->slots[self][mine % SLOTS];
			size_t k = piece_bytes(bytes, piece);
			if (pread(fd, slot, k, (off_t)(piece * PIECE)) != (ssize_t)k)
				return 1;
			atomic_store(&shared->read[self], ++mine);
			memcpy(to + piece * PIECE, slot, k);
		}
		piece = 2 * theirs + other;
		if (piece < n && theirs < atomic_load(&shared->read[other])) {
			memcpy(to + piece * PIECE, shared->slots[other][theirs % SLOTS],
			       piece_bytes(bytes, piece));
			atomic_store(&shared->used[self], ++theirs);
		} else if (2 * mine + self >= n) {
			(void)sched_yield();
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct stat about;
	struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (argc != 2 || stat(argv[1], &about) < 0 || shared == MAP_FAILED) {
		(void)fprintf(stderr, "usage: group_copy FILE\n");
		return 2;
	}
	int failed = 0;
	double begun = now();
	for (unsigned k = 0; k < 2; k++) {
		pid_t child = fork();
		if (child == 0)
			_exit(run(argv[1], shared, k, (size_t)about.st_size));
		failed |= child < 0;
	}
	for (int status; wait(&status) > 0;)
		failed |= status;
	printf("seconds %.4f\n", now() - begun);
	return failed != 0;
}
