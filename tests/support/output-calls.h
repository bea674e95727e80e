/* SPDX-License-Identifier: MIT */
/* tests/support/output-calls.h - the calls that allocate, cut, synchronise and name a file that the
 * library writes, each as SPOILED(name, NAME, parameters, arguments) for a test that wraps them. */
#ifndef HOIST_TESTS_OUTPUT_CALLS_H
#define HOIST_TESTS_OUTPUT_CALLS_H

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/wrap.h"

/* clang-format off */
#define OUTPUT_CALLS(SPOILED) \
	SPOILED(fallocate, FALLOCATE, (int fd, int mode, off_t offset, off_t bytes), \
		(fd, mode, offset, bytes)) \
	SPOILED(fsync, FSYNC, (int fd), (fd)) \
	SPOILED(ftruncate, FTRUNCATE, (int fd, off_t bytes), (fd, bytes)) \
	SPOILED(linkat, LINKAT, \
		(int from, const char *old, int to, const char *name, int flags), \
		(from, old, to, name, flags)) \
	SPOILED(renameat, RENAMEAT, (int from, const char *old, int to, const char *name), \
		(from, old, to, name))
/* clang-format on */

#endif
