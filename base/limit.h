/* SPDX-License-Identifier: MIT */
/* base/limit.h - how long a file may become.
 *
 * RLIMIT_FSIZE holds for files in memory (memfd) as for others, and who makes one longer gets SIGXFSZ,
 * which ends a program that does not know of it.  So it is asked before. */
#ifndef HOIST_BASE_LIMIT_H
#define HOIST_BASE_LIMIT_H

#include <stdint.h>

/* May a file have @bytes?  @what, for the message, is being made.
 * Returns: 0; -EFBIG with both figures and the remedy. */
int hoist__check_file_bytes(uint64_t bytes, const char *what);

#endif
