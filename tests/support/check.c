/* SPDX-License-Identifier: MIT */
/* A failed check says where, prints the last error, cleans up and ends the process. */
#include "config.h"

#include "tests/support/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "hoist/error.h"

static char at[256];
static void (*clean_up)(void);
static pid_t owner; /* of the cleanup */

void check_at(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	(void)vsnprintf(at, sizeof at, format, args);
	va_end(args);
}

void check_cleanup(void (*cleanup)(void))
{
	clean_up = cleanup;
	owner = getpid();
}

void check_failed(const char *file, int line, const char *function, const char *what)
{
	(void)fprintf(stderr, "%s:%d: %s: failed: %s%s%s\n  hoist_error(): %s\n", file, line,
		      function, what, at[0] != '\0' ? "; " : "", at, hoist_error());
	(void)fflush(stdout);
	if (clean_up != NULL && owner == getpid())
		clean_up();
	_exit(1);
}
