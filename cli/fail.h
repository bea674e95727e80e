/* SPDX-License-Identifier: MIT */
/* cli/fail.h - how the command and the benchmarks fail: one line on stderr, and an exit status. */
#ifndef HOIST_CLI_FAIL_H
#define HOIST_CLI_FAIL_H

#include <stdbool.h>

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

/* Prints "hoist: <formatted>" as one line on stderr, whatever the text holds (a
 * file's name may hold a newline), and returns STATUS_FAILED. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same with hoist_error(), the text of the library call that just failed. */
int fail_library(void);

/* The same for a call that returned @err, with a remedy where the text has none ("why;
 * remedy") and the kind of error has an obvious one. */
int fail_call(int err);

/* "host memory is exhausted". */
int fail_memory(void);

/* True once something could not be printed on stdout; main() will say so.  Asked
 * after each line of long output, it ends that early and keeps the reason. */
bool output_failed(void);

/* Closes stdout.  The output may not have arrived: a full disk shows at some write, or only
 * at closing.  A reader who has gone away (`hoist ls | head`) needs no message.
 * Returns: @status, or STATUS_FAILED. */
int output_finish(int status);

#endif
