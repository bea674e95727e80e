/* SPDX-License-Identifier: MIT */
/* tests/faults/locked.h - what this process holds, and could leave behind: descriptors, threads,
 * maps of files (the checkpoint's, memfds, rings of io_uring; not malloc's heap and stacks, which
 * the C library keeps) and bytes of the budget that everything is charged to.  Nothing is allocated
 * for it: little may be left. */
#ifndef HOIST_TESTS_FAULT_LOCKED_H
#define HOIST_TESTS_FAULT_LOCKED_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hoist/hoist.h>

#include "tests/support/patience.h"

struct held {
	int descriptors;
	int threads; /* -1, as that: there is no /proc to say it */
	int maps_kib;
	size_t budget;
};

static hoist_budget *held_budget;

/* Returns: NULL where there is no /proc; ends the program where it cannot be read otherwise. */
static inline const char *held_read(const char *path)
{
	static char text[1 << 18];
	size_t used = 0;
	ssize_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return NULL;
	while (fd >= 0 && used + 1 < sizeof text &&
	       (n = read(fd, text + used, sizeof text - 1 - used)) > 0)
		used += (size_t)n;
	if (fd < 0 || n < 0 || used + 1 == sizeof text) {
		(void)printf("WRONG: %s cannot be read: %s\n", path, strerror(errno));
		(void)fflush(stdout);
		_exit(1);
	}
	(void)close(fd);
	text[used] = '\0';
	return text;
}

/* Lines end with the name of what is mapped: none, "[heap]" and the like, or a file's. */
static inline int held_maps_kib(void)
{
	unsigned long bytes = 0;
	const char *line = held_read("/proc/self/maps");
	if (line == NULL)
		return -1;
	for (; *line != '\0'; line = strchr(line, '\n') + 1) {
		unsigned long begin, end;
		char name = '\n';
		if (sscanf(line, "%lx-%lx %*s %*s %*s %*u%*[ ]%c", &begin, &end, &name) == 3 &&
		    name != '[' && name != '\n')
			bytes += end - begin;
	}
	return (int)(bytes >> 10);
}

static inline int held_threads(void)
{
	int n = -1;
	const char *text = held_read("/proc/self/status");
	const char *line = text == NULL ? NULL : strstr(text, "\nThreads:");
	if (line != NULL)
		(void)sscanf(line, "\nThreads: %d", &n);
	return n;
}

static inline struct held held_now(void)
{
	struct held held = {.threads = held_threads(),
			    .maps_kib = held_maps_kib(),
			    .budget = hoist_budget_used(held_budget)};
	for (int fd = 0; fd < 1024; fd++)
		held.descriptors += fcntl(fd, F_GETFD) >= 0;
	return held;
}

/* After some time in which nothing runs. */
static inline struct held held_idle(void)
{
	struct held held = held_now();
	for (int tries = 0; held.threads > 1 && tries < 200; tries++) {
		(void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		held = held_now();
	}
	return held;
}

enum held_verdict { HELD_AS_BEFORE, HELD_MORE_THREADS, HELD_MORE };

/* Says so. */
static inline enum held_verdict held_compare(const struct held *before)
{
	/* A thread that was joined is seen for a moment. */
	struct held now = held_now();
	for (uint64_t until = 0; now.threads > before->threads && patience(&until);)
		now = held_now();
	enum held_verdict more = HELD_AS_BEFORE;
	if (now.threads > before->threads)
		more = HELD_MORE_THREADS;
	if (now.descriptors != before->descriptors || now.maps_kib > before->maps_kib ||
	    now.budget != 0)
		more = HELD_MORE;
	(void)printf("%s: %d descriptors",
		     more == HELD_AS_BEFORE	 ? "held as before"
		     : more == HELD_MORE_THREADS ? "more threads"
						 : "LEAK",
		     now.descriptors);
	if (now.threads >= 0)
		(void)printf(", %d threads, %d KiB of maps of files", now.threads, now.maps_kib);
	(void)printf(", %zu bytes of the budget", now.budget);
	if (more != HELD_AS_BEFORE)
		(void)printf("; before: %d, %d, %d", before->descriptors, before->threads,
			     before->maps_kib);
	(void)printf("%s\n", now.threads < 0 ? " (no /proc to count more)" : "");
	return more;
}

#endif
