/* SPDX-License-Identifier: MIT */
/* cli/fail.h - how the command and the benchmarks fail: one line on stderr, and an exit status. */
#ifndef HOIST_CLI_FAIL_H
#define HOIST_CLI_FAIL_H

#include <stdbool.h>

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

/* Prints "hoist: <formatted>" as one line on stderr, whatever the text contains (a file's name may
 * contain a newline), and returns STATUS_FAILED. */
int fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same with hoist_error(), the text of the library call that just failed. */
int fail_library(void);

/* The same for a call that returned @err.  Adds a remedy ("why; remedy") if the text has none and
 * the kind of error has an obvious one. */
int fail_call(int err);

/* Prints "host memory is exhausted", and returns STATUS_FAILED. */
int fail_memory(void);

/* True once something could not be printed on stdout; main() prints the reason.  Long output asks
 * after each line, so that it ends early and keeps the reason. */
bool output_failed(void);

/* Closes stdout.  Printed output may not have arrived: a full disk shows at some write, or only at
 * closing.  A reader that has gone away (`hoist ls | head`) needs no message.
 * Returns: @status, or STATUS_FAILED. */
int output_finish(int status);

#endif
