/* SPDX-License-Identifier: MIT */
/* cli/fail.c - failures as one line on stderr, and output that cannot be written.
 * The contract is in cli/fail.h. */
#include "config.h"

#include "cli/fail.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <hoist/error.h>

#include "cli/format.h"
#include "cli/progress.h"

static void print_line(const char *text)
{
	progress_end();
	(void)fputs("hoist: ", stderr);
	print_escaped(stderr, text);
	(void)fputc('\n', stderr);
}

int fail(const char *format, ...)
{
	char text[1280];
	va_list arguments;
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	print_line(text);
	return STATUS_FAILED;
}

int fail_library(void)
{
	print_line(hoist_error());
	return STATUS_FAILED;
}

static const char *remedy_of(int err)
{
	switch (err) {
	case -EMFILE:
		return "raise the limit on open files (ulimit -n)";
	case -ENOMEM:
		return "end other programs, raise the limit on memory (ulimit -v and -l, the "
		       "container's), or load fewer tensors";
	default:
		return NULL;
	}
}

int fail_call(int err)
{
	const char *remedy = remedy_of(err);
	if (remedy == NULL || strstr(hoist_error(), "; ") != NULL)
		return fail_library();
	return fail("%s; %s", hoist_error(), remedy);
}

int fail_memory(void)
{
	print_line("host memory is exhausted");
	return STATUS_FAILED;
}

static int output_error; /* errno of the first failure to print */

bool output_failed(void)
{
	if (!ferror(stdout))
		return false;
	if (output_error == 0)
		output_error = errno != 0 ? errno : EIO;
	return true;
}

int output_finish(int status)
{
	bool failed = output_failed();
	if (fclose(stdout) != 0) {
		if (!failed)
			output_error = errno;
		failed = true;
	}
	if (!failed)
		return status;
	if (output_error == EPIPE)
		return STATUS_FAILED;
	return fail("writing to standard output: %s", strerror(output_error));
}
