/* SPDX-License-Identifier: MIT */
/* tests/support/wrap-syscall.h - calls of syscall(2) come here (the linker's
 * --wrap=syscall), and go on unless the test, which includes this once, refuses them. */
#ifndef HOIST_TESTS_WRAP_SYSCALL_H
#define HOIST_TESTS_WRAP_SYSCALL_H

#include <stdarg.h>
#include <stdbool.h>
#include <sys/syscall.h>

#include "tests/support/wrap.h"

/* The test's own: true, with errno set, if the kernel is not to have the call. */
static bool refuses(long number);

WRAP(long, syscall, (long number, ...))
{
	long a[6];
	va_list list;
	va_start(list, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(list, long);
	va_end(list);
	return refuses(number) ? -1 : __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#endif
