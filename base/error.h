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
 * Beside the text stands the number of the driver call that failed, if one did.
 * Every new text clears it; hoist__fail_in() and hoist__fail_because() keep it.
 *
 * Asynchronous work must not fail into a worker's thread-local: it keeps the
 * failure in its own object (hoist__failure_keep()), and the waiting call tells
 * it in the caller's thread (hoist__fail_again()).  So does a function whose
 * clean-up may fail too.
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

/* The same as hoist__fail() for a call of the driver of @api ("cuda", "hip"; static), which
 * gave @number. */
int hoist__fail_driver(int err, const char *api, int number, const char *format, ...)
	HOIST__PRINTF(4, 5);

/* Puts "<formatted>: " in front of the present text and returns @err. */
int hoist__fail_in(int err, const char *format, ...) HOIST__PRINTF(2, 3);

/* "host memory is exhausted: @what (@bytes bytes)"; returns -ENOMEM. */
int hoist__fail_nomem(const char *what, size_t bytes);

/* pthread_create() refused, with @err (negative): "@what: <why>", and what helps.  -EAGAIN, which to
 * our callers would mean "busy", becomes -ENOMEM; returns the rest as it is. */
int hoist__fail_thread(int err, const char *what);

/* A thread's failure as a value. */
struct hoist__failure {
	const char *api; /* of the driver whose call failed; NULL: none */
	int number;	 /* that the driver gave */
	char text[HOIST__ERROR_BYTES];
};

/* Copies the calling thread's last failure. */
void hoist__failure_keep(struct hoist__failure *ret);

/* Makes @failure the calling thread's last one; returns @err. */
int hoist__fail_again(int err, const struct hoist__failure *failure);

/* As hoist__fail(), with the driver's number of @cause.  Its text may be an argument. */
int hoist__fail_because(int err, const struct hoist__failure *cause, const char *format, ...)
	HOIST__PRINTF(3, 4);

/* The present text, and a way to copy it out (always terminated). */
const char *hoist__error_text(void);
void hoist__error_copy(char *buffer, size_t bytes);

#endif
