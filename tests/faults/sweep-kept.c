/* SPDX-License-Identifier: MIT */
/* Copies of this program and of the stand-in drivers, so that a build does the sweep no harm. */
#include "config.h"

#include "tests/faults/sweep.h"
#include "tests/support/keep-programs.h"

#include <sys/stat.h>

void sweep_keep_programs(void)
{
	char text[4096];
	const char *folder = sweep_path("kept");
	const char *options = getenv("ASAN_OPTIONS");
	if (mkdir(folder, 0700) < 0)
		sweep_die("%s", folder);
	keep_programs(folder, "holder");
	/* A search for leaks makes calls of its own, which would fail. */
	(void)snprintf(text, sizeof text, "%s:detect_leaks=0", options != NULL ? options : "");
	if (SWEEP_SANITIZED && setenv("ASAN_OPTIONS", text, 1) < 0)
		sweep_die("the environment");
}
