/* SPDX-License-Identifier: MIT */
/* New processes run this program (the cache's holder) and load the stand-in drivers: copies of what
 * was there when the sweep began, whatever is built meanwhile. */
#include "config.h"

#include "tests/fault-sweep.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

/* Its bytes, not a link. */
static void copy_file(const char *from, const char *to)
{
	struct stat status;
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	if (in < 0 || out < 0 || fstat(in, &status) < 0)
		sweep_die("copying %s to %s", from, to);
	for (off_t left = status.st_size; left > 0;) {
		ssize_t n = sendfile(out, in, NULL, (size_t)left);
		if (n <= 0)
			sweep_die("copying %s to %s", from, to);
		left -= n;
	}
	if (close(in) < 0 || close(out) < 0)
		sweep_die("copying %s to %s", from, to);
}

void sweep_keep_programs(void)
{
	static const char *const drivers[] = {"libhoist-emulated-cuda.so",
					      "libhoist-emulated-hip.so"};
	char from[PATH_MAX];
	char to[PATH_MAX];
	const char *folder = getenv("HOIST_EMULATOR_DIR");
	if (mkdir(sweep_path("emulator"), 0700) < 0)
		sweep_die("%s", sweep_path("emulator"));
	copy_file("/proc/self/exe", sweep_path("holder"));
	for (size_t i = 0; i < sizeof drivers / sizeof drivers[0]; i++) {
		(void)snprintf(from, sizeof from, "%s/%s", folder, drivers[i]);
		(void)snprintf(to, sizeof to, "%s/%s", sweep_path("emulator"), drivers[i]);
		copy_file(from, to);
	}
	/* A search for leaks makes calls of its own, which would fail. */
	const char *options = getenv("ASAN_OPTIONS");
	(void)snprintf(to, sizeof to, "%s:detect_leaks=0", options != NULL ? options : "");
	if (SWEEP_SANITIZED && setenv("ASAN_OPTIONS", to, 1) < 0)
		sweep_die("the environment");
	if (setenv("HOIST_EMULATOR_DIR", sweep_path("emulator"), 1) < 0 ||
	    setenv("HOIST_CACHE_HOLDER", sweep_path("holder"), 1) < 0)
		sweep_die("the environment");
}
