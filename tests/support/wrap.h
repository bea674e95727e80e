/* SPDX-License-Identifier: MIT */
/* tests/support/wrap.h - calls of the library's that the linker sends to the test (--wrap):
 *
 *     WRAP(int, fsync, (int fd))
 *     {
 *             return disk_is_full ? -1 : __real_fsync(fd);
 *     }
 */
#ifndef HOIST_TESTS_WRAP_H
#define HOIST_TESTS_WRAP_H

#define WRAP(result, name, parameters)                                                             \
	result __real_##name parameters;                                                           \
	result __wrap_##name parameters;                                                           \
	result __wrap_##name parameters

#endif
