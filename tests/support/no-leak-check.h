/* SPDX-License-Identifier: MIT */
/* tests/support/no-leak-check.h - switches LeakSanitizer off in the program that includes this
 * file, once.  LeakSanitizer's tracer crashes in some programs when it looks at the threads that
 * UCX leaves behind: in net/fabric_swallowed always, where the environment is small.  net/fabric
 * and net/fabric_failures look for leaks of the same code. */
#ifndef HOIST_TESTS_NO_LEAK_CHECK_H
#define HOIST_TESTS_NO_LEAK_CHECK_H

__attribute__((visibility("default"))) const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
	return "detect_leaks=0";
}

#endif
