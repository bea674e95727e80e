/* SPDX-License-Identifier: MIT */
/* hoist/error.h - how hoist reports failure, and the words every header shares.
 *
 * Every function that can fail returns 0 (or a count that is not negative) on
 * success and a negative errno value on failure.  Results leave through the
 * last parameter, which a failing call leaves untouched.  The codes have one
 * meaning throughout:
 *
 *   -EINVAL      the caller's argument is wrong
 *   -ERANGE      an index is outside its axis
 *   -EDOM        a number is outside its dtype
 *   -EPROTOTYPE  a buffer's elements are of another dtype than the one they are asked for as
 *   -EBADF       the buffer was closed
 *   -EROFS       the bytes are read-only, or were frozen
 *   -EBUSY       it is in use already
 *   -ENOMEM      host memory is exhausted
 *   -ENOSPC      device memory, or the file system, is exhausted
 *   -EDQUOT      a limit set on a memory resource is reached
 *   -EBADMSG     a file is malformed, or changed while it was read
 *   -ENODATA     a file is shorter than what it was opened with says
 *   -ENOENT      no such file, tensor or library
 *   -ENODEV      no such device, or no driver for it
 *   -ENOTSUP     this build, kernel, driver or file system cannot do it
 *   -EPERM       the system forbids it (memlock limit, seccomp, sysctl)
 *   -EREMOTEIO   a driver call failed; the text has the driver's own name for it
 *   -EOVERFLOW   a shape, a stride or an offset does not fit in 64 bits
 *   -EAGAIN      not now: the work has not completed
 *   -EDEADLK     a stream of the CPU would wait for itself; see hoist_stream_call()
 *   -ECANCELED   the operation was cancelled
 *   -ESTALE      the object belongs to the process that forked this one
 *
 * Other codes are the kernel's, passed on as they are (-EIO, -EACCES, ...).
 * The library never prints, never exits and installs no signal handler.  The
 * one exception is the user's own request: HOIST_DEBUG=io,alloc,... in the
 * environment writes a debug log to standard error.
 */
#ifndef HOIST_ERROR_H
#define HOIST_ERROR_H

#ifdef __cplusplus
#define HOIST_BEGIN extern "C" {
#define HOIST_END }
#else
#define HOIST_BEGIN
#define HOIST_END
#endif

#if defined(__GNUC__)
#define HOIST_API __attribute__((visibility("default")))
#else
#define HOIST_API
#endif

HOIST_BEGIN

/* The calling thread's last failure in words: what was being done, to what,
 * why it failed and, where there is one, the remedy.
 * Returns: never NULL; "" if no call of this thread has failed.  The text is
 *   the thread's own and holds until its next failing call; it is not cleared
 *   by success, so read it only after a failure.
 * Threads: any.  Allocates nothing; the text is cut at 1023 bytes. */
HOIST_API const char *hoist_error(void);

/* The number that a driver gave for the calling thread's last failure: a CUresult or a hipError_t.
 * It is there whatever code the failure has: -ENOSPC of an allocation that the driver refused
 * comes with the driver's number, too.  What failed asynchronously (a stream's work, a load, a
 * save) brings its number to the call that tells of it, as it brings its text.
 * @ret_api: whose number it is, "cuda" or "hip", a constant; NULL if there is none.  May be NULL.
 * Returns: the number; 0 if no driver's call failed.  Like the text, it is the thread's own, holds
 *   until its next failing call, and is not cleared by success.
 * Threads: any. */
HOIST_API int hoist_error_driver(const char **ret_api);

/* The library's version at run time, as "MAJOR.MINOR.PATCH".
 * Returns: a constant.  Threads: any. */
HOIST_API const char *hoist_version(void);

HOIST_END

#endif
