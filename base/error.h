/* SPDX-License-Identifier: MIT */
/* base/error.h - the thread's last failure in words.
 *
 * One fixed thread-local buffer: no allocation, no destructor, nothing to go
 * wrong while reporting that memory has run out.  The text is set once, where
 * the cause is known; the layers above add what they were doing in front of it
 * with hoist__fail_in().  A message names what was tried, on what, why it
 * failed, and the remedy after a ';' where there is one:
 *
 *   "pinning 256 MiB: RLIMIT_MEMLOCK is 8 MiB; raise it with `ulimit -l`"
 *
 * Asynchronous work must not fail into a worker's thread-local: it copies the
 * text into its own object (hoist__error_text()) and the waiting call restores
 * it in the caller's thread with hoist__fail().
 */
#ifndef HOIST_BASE_ERROR_H
#define HOIST_BASE_ERROR_H

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>

#include "hoist/error.h"

#define HOIST__ERROR_BYTES 1024

#if defined(__GNUC__)
#define HOIST__PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define HOIST__PRINTF(f, a)
#endif

/* Sets the text and returns @err (a negative errno value), so that a failing
 * function can say `return hoist__fail(-EINVAL, "shape has %d axes; ...", n)`. */
int hoist__fail(int err, const char *format, ...) HOIST__PRINTF(2, 3);

/* The same with ": <strerror(-err)>" behind the text: for system calls. */
int hoist__fail_errno(int err, const char *format, ...) HOIST__PRINTF(2, 3);

/* Puts "<formatted>: " in front of the present text and returns @err. */
int hoist__fail_in(int err, const char *format, ...) HOIST__PRINTF(2, 3);

/* "host memory is exhausted: @what (@bytes bytes)"; returns -ENOMEM. */
int hoist__fail_nomem(const char *what, size_t bytes);

/* pthread_create() refused, with @err (negative): "@what: <why>", and what helps.  -EAGAIN, which to
 * our callers would mean "busy", becomes -ENOMEM; returns the rest as it is. */
int hoist__fail_thread(int err, const char *what);

/* The present text, and a way to copy it out (always terminated). */
const char *hoist__error_text(void);
void hoist__error_copy(char *buffer, size_t bytes);

#endif
