/* SPDX-License-Identifier: MIT */
/* tests/support/keep-programs.h - new processes of a long test run its program (as the cache's
 * holder) and load the stand-in drivers: copies of the files that were there when the test began,
 * whatever is built meanwhile. */
#ifndef HOIST_TESTS_KEEP_PROGRAMS_H
#define HOIST_TESTS_KEEP_PROGRAMS_H

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/check.h"

/* Copies the bytes, and makes no link. */
static inline void keep_copy(const char *from, const char *to)
{
	static char block[65536];
	ssize_t n = -1;
	int in = open(from, O_RDONLY | O_CLOEXEC);
	CHECK(in >= 0);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	CHECK(out >= 0);
	while ((n = read(in, block, sizeof block)) > 0)
		CHECK(write(out, block, (size_t)n) == n);
	CHECK(n == 0);
	CHECK(close(out) == 0);
	(void)close(in);
}

/* To @folder, this program as @name; processes that are started from now on use them. */
static inline void keep_programs(const char *folder, const char *name)
{
	static const char *const drivers[] = {"libhoist-emulated-cuda.so",
					      "libhoist-emulated-hip.so"};
	const char *built = getenv("HOIST_EMULATOR_DIR");
	char from[PATH_MAX];
	char to[PATH_MAX];
	for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
		(void)snprintf(from, sizeof from, "%s/%s", built != NULL ? built : ".", drivers[i]);
		(void)snprintf(to, sizeof to, "%s/%s", folder, drivers[i]);
		keep_copy(from, to);
	}
	(void)snprintf(to, sizeof to, "%s/%s", folder, name);
	keep_copy("/proc/self/exe", to);
	OK(setenv("HOIST_EMULATOR_DIR", folder, 1));
	OK(setenv("HOIST_CACHE_HOLDER", to, 1));
}

#endif
