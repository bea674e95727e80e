/* SPDX-License-Identifier: MIT */
/* base/limit.h - how long a file may become.
 *
 * RLIMIT_FSIZE holds for files in memory (memfd) as for others, and who makes one longer gets
 * SIGXFSZ, which ends a program that does not know of it.  So it is asked before. */
#ifndef HOIST_BASE_LIMIT_H
#define HOIST_BASE_LIMIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How long a file of this process may become; UINT64_MAX: as it likes. */
uint64_t hoist__file_limit(void);

/* May a file have @bytes?  @what, for the message, is being made.
 * Returns: 0; -EFBIG with both figures and the remedy. */
int hoist__check_file_bytes(uint64_t bytes, const char *what);

/* memfd_create(2) failed with @errnum: "@what: <why>", and what helps.  ENOSYS is -ENOTSUP. */
int hoist__fail_memfd(int errnum, const char *what);

/* write(2), but that a file at its limit (EFBIG) and a pipe that nobody reads (EPIPE) are errors
 * and no signals, whatever the program does with SIGXFSZ and SIGPIPE: for what others opened, and
 * files whose length nobody knows before. */
ssize_t hoist__write(int fd, const void *bytes, size_t n);

#endif
