/* SPDX-License-Identifier: MIT */
/* tests/support/check.h - checks of plain programs, which NDEBUG does not remove.  A check that
 * fails ends the process at once, a child of fork too, with status 1, after it said on stderr
 * where, in which function, and the text of hoist's last error.
 *
 *     check_at("%s, call %lu", scenario, n);    // optional: said by every later failure
 *     CHECK(n == 3);
 *     OK(hoist_buffer_create(...));             // a call that must give 0
 */
#ifndef HOIST_TESTS_CHECK_H
#define HOIST_TESTS_CHECK_H

#include <stdio.h>

#define CHECK(condition)                                                                           \
	((condition) ? (void)0 : check_failed(__FILE__, __LINE__, __func__, #condition))
#define OK(call) CHECK((call) == 0)

/* Runs a case, and says first which one. */
#define CASE(name) ((void)printf("%s\n", #name), (void)fflush(stdout), name())

/* Has @cleanup called when a check fails, in this process and not in its children: for files and
 * processes that must not stay behind.  A test's normal end does not call it. */
void check_cleanup(void (*cleanup)(void));

/* Ends the process with status 1. */
void check_failed(const char *file, int line, const char *function, const char *what)
	__attribute__((noreturn));

/* Sets the words that tell a failure's round, seed or scenario.  For the whole process: threads do
 * not call this while others check. */
void check_at(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
