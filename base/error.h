/* SPDX-License-Identifier: MIT */
/* base/error.h - the thread's last failure in words.
 *
 * The text is in one fixed thread-local buffer: no allocation and no destructor, so that nothing
 * can fail while reporting that memory has run out.  The text is set once, where the cause is
 * known.  The layers above put the action they were at in front of it with hoist__fail_in().  A
 * message says what was tried, on what object, why it failed, and, after a ';', the remedy if there
 * is one:
 *
 *   "pinning 256 MiB: RLIMIT_MEMLOCK is 8 MiB; raise it with `ulimit -l`"
 *
 * Beside the text is the number that the driver gave, if a driver call failed.  Every new text
 * clears the number; hoist__fail_in() and hoist__fail_because() keep it.
 *
 * Asynchronous work must not leave its failure in a worker's thread-local buffer.  It keeps the
 * failure in its own object (hoist__failure_keep()), and the call that waits for the work sets it
 * again in the caller's thread (hoist__fail_again()).  A function whose clean-up may fail does the
 * same.
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

/* Sets the text and returns @err (a negative errno value), so that a failing function can write
 * `return hoist__fail(-EINVAL, "shape has %d axes; ...", n)`. */
int hoist__fail(int err, const char *format, ...) HOIST__PRINTF(2, 3);

/* The same with ": <strerror(-err)>" behind the text, for system calls. */
int hoist__fail_errno(int err, const char *format, ...) HOIST__PRINTF(2, 3);

/* The same as hoist__fail() for a call of the driver of @api ("cuda", "hip"; a static string) that
 * returned @number. */
int hoist__fail_driver(int err, const char *api, int number, const char *format, ...)
	HOIST__PRINTF(4, 5);

/* Puts "<formatted>: " in front of the present text, and returns @err. */
int hoist__fail_in(int err, const char *format, ...) HOIST__PRINTF(2, 3);

/* Sets "host memory is exhausted: @what (@bytes bytes)", and returns -ENOMEM. */
int hoist__fail_nomem(const char *what, size_t bytes);

/* For a pthread_create() that failed with @err (negative): sets "@what: <why>", and the remedy.
 * Returns: -ENOMEM for -EAGAIN, which callers would take for "busy"; otherwise @err. */
int hoist__fail_thread(int err, const char *what);

/* A thread's failure as a value. */
struct hoist__failure {
	const char *api; /* of the driver whose call failed; NULL: none */
	int number;	 /* the number that the driver gave */
	char text[HOIST__ERROR_BYTES];
};

/* Copies the calling thread's last failure. */
void hoist__failure_keep(struct hoist__failure *ret);

/* Makes @failure the calling thread's last failure, and returns @err. */
int hoist__fail_again(int err, const struct hoist__failure *failure);

/* The same as hoist__fail(), but keeps the driver's number of @cause.  The text of @cause may be an
 * argument. */
int hoist__fail_because(int err, const struct hoist__failure *cause, const char *format, ...)
	HOIST__PRINTF(3, 4);

/* Return the present text, and copy it out (always terminated). */
const char *hoist__error_text(void);
void hoist__error_copy(char *buffer, size_t bytes);

#endif
