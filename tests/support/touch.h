/* SPDX-License-Identifier: MIT */
/* tests/support/touch.h - a touch of memory that may not be there. */
#ifndef HOIST_TESTS_TOUCH_H
#define HOIST_TESTS_TOUCH_H

#include <setjmp.h>
#include <signal.h>

#include "tests/support/check.h"

static sigjmp_buf touch_back;

static void touch_jump(int number)
{
	siglongjmp(touch_back, number);
}

/* Returns: the byte, or minus the signal.  TSan takes the mmap(2) that made it a signal, while this
 * thread waited in the kernel, for a write at the same time. */
__attribute__((no_sanitize("thread"))) static int touch(const unsigned char *byte)
{
	struct sigaction action = {.sa_handler = touch_jump}, bus, segv;
	CHECK(sigaction(SIGBUS, &action, &bus) == 0 && sigaction(SIGSEGV, &action, &segv) == 0);
	int number = sigsetjmp(touch_back, 1);
	int result = number == 0 ? *(const volatile unsigned char *)byte : -number;
	sigaction(SIGBUS, &bus, NULL);
	sigaction(SIGSEGV, &segv, NULL);
	return result;
}

#endif
