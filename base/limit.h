/* SPDX-License-Identifier: MIT */
/* base/limit.h - how long a file may become.
 *
 * RLIMIT_FSIZE holds for files in memory (memfd) as for others.  A process that makes a file longer
 * gets SIGXFSZ, which ends a program that does not handle it.  So the limit is checked before. */
#ifndef HOIST_BASE_LIMIT_H
#define HOIST_BASE_LIMIT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns how long a file of this process may become; UINT64_MAX: there is no limit. */
uint64_t hoist__file_limit(void);

/* Checks whether a file may have @bytes bytes.  @what is being made, for the message.
 * Returns: 0; -EFBIG with both figures and the remedy. */
int hoist__check_file_bytes(uint64_t bytes, const char *what);

/* For a memfd_create(2) that failed with @errnum: sets "@what: <why>", and the remedy.
 * Returns: -ENOTSUP for ENOSYS; otherwise -@errnum. */
int hoist__fail_memfd(int errnum, const char *what);

/* Calls write(2), but a file at its limit (EFBIG) and a pipe without a reader (EPIPE) are errors
 * and no signals, whatever the program does with SIGXFSZ and SIGPIPE.  Use this for files that
 * others opened, and for files whose length is not known beforehand. */
ssize_t hoist__write(int fd, const void *bytes, size_t n);

#endif
