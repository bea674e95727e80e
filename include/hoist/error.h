/* SPDX-License-Identifier: MIT */
/* hoist/error.h - how hoist reports failure, and the conventions that all headers share.
 *
 *     if (hoist_device_open("cuda:0", &device) < 0) {
 *             fprintf(stderr, "%s\n", hoist_error());  // the cause and the remedy, in words
 *             return 1;
 *     }
 *
 * Every function that can fail returns 0 (or a count that is not negative) on success and a
 * negative errno value on failure.  A function stores its results through its last parameters
 * (`ret`, `ret_...`).  A failing call leaves these untouched.  Each code has one meaning
 * throughout:
 *
 *   -EINVAL      an argument is wrong
 *   -ERANGE      an index is outside its axis
 *   -EDOM        a number is outside the range of its dtype
 *   -EPROTOTYPE  the buffer's elements have another dtype than the caller named
 *   -EBADF       the buffer was closed
 *   -EROFS       the bytes are read-only, or were frozen
 *   -EBUSY       the object is in use already
 *   -ENOMEM      host memory is exhausted
 *   -ENOSPC      device memory, or the file system, is exhausted
 *   -EDQUOT      a limit set on a memory resource is reached
 *   -EBADMSG     a file is malformed, or changed while hoist read it
 *   -ENODATA     a file is shorter than when it was opened
 *   -ENOENT      no such file, tensor or library
 *   -ENODEV      no such device, or no driver for it
 *   -ENOTSUP     this build, kernel, driver or file system cannot do the operation
 *   -EPERM       the system forbids the operation (memlock limit, seccomp, sysctl)
 *   -EREMOTEIO   a driver call failed; the text has the driver's own name for the error
 *   -EOVERFLOW   a shape, a stride or an offset does not fit in 64 bits
 *   -EAGAIN      the work has not completed yet: ask again later
 *   -EDEADLK     a stream of the CPU would wait for itself; see hoist_stream_call()
 *   -ECANCELED   the operation was cancelled
 *   -ESTALE      the object belongs to the process that forked this one
 *
 * Other codes are the kernel's, passed on unchanged (-EIO, -EACCES, ...).
 *
 * How to read the comments in these headers:
 *
 *   Returns:     lists 0 or the result, then each error with its condition in parentheses.  "as
 *                hoist_x()" stands for every error that hoist_x() lists.
 *   size         is the first field of every struct of options or information.  The caller sets
 *                this field to sizeof the struct.  Options: a smaller struct, from an older
 *                header, has the defaults for the fields that it lacks; a larger one, from a newer
 *                header, is accepted if its further bytes are 0, else -EINVAL.  Information: the
 *                library fills the struct up to `size`; a size that is larger than this library
 *                knows is -EINVAL.  Both: a size of 0 is -EINVAL.
 *   borrowed     means that the caller gets a pointer and no reference: the pointer is valid as
 *                long as the object that it was asked of.
 *   options      may be NULL where the comment says so: every field then has its default, which
 *                is 0 or NULL.
 *
 * The library never prints, never exits and installs no signal handler.  The one exception is the
 * user's own request: HOIST_DEBUG=io,alloc,... in the environment writes a debug log to standard
 * error.
 */
#ifndef HOIST_ERROR_H
#define HOIST_ERROR_H

#include <errno.h> /* -ENOENT and the like, which these headers name */

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

/* The calling thread's last failure in words: the operation, its object, the cause and, where there
 * is one, the remedy.
 * Returns: the text, never NULL; "" if no call of this thread has failed.  The text belongs to the
 *   thread and stays valid until the thread's next failing call.  Success does not clear the text:
 *   read it only after a failure.
 * Threads: any.  The function allocates nothing; the text is cut at 1023 bytes. */
HOIST_API const char *hoist_error(void);

/* The number that a driver gave for the calling thread's last failure: a CUresult or a hipError_t.
 * The number is present whatever code the failure has: -ENOSPC for an allocation that the driver
 * refused comes with the driver's number, too.  An asynchronous failure (of a stream's work, a
 * load, a save) brings its number, like its text, to the call that reports the failure.
 * @ret_api: the API that the number belongs to, "cuda" or "hip", a constant; NULL if there is no
 *   number.  The parameter may be NULL.
 * Returns: the number; 0 if no driver call failed.  Like the text, the number belongs to the
 *   thread, stays until the thread's next failing call, and is not cleared by success.
 * Threads: any. */
HOIST_API int hoist_error_driver(const char **ret_api);

/* The version of these headers.  HOIST_VERSION_NUMBER grows with it, for #if:
 *
 *     #if HOIST_VERSION_NUMBER >= HOIST_VERSION_OF(0, 2, 0)
 */
#define HOIST_VERSION_MAJOR 0
#define HOIST_VERSION_MINOR 2
#define HOIST_VERSION_PATCH 0
#define HOIST_VERSION_OF(major, minor, patch) ((major) * 1000000 + (minor) * 1000 + (patch))
#define HOIST_VERSION_NUMBER                                                                       \
	HOIST_VERSION_OF(HOIST_VERSION_MAJOR, HOIST_VERSION_MINOR, HOIST_VERSION_PATCH)

/* The library's version at run time, as "MAJOR.MINOR.PATCH".  A program that was compiled with newer
 * headers than the library's may not start: the symbols have versions.
 * Returns: a constant.  Threads: any. */
HOIST_API const char *hoist_version(void);

HOIST_END

#endif
