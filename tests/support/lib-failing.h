/* SPDX-License-Identifier: MIT */
/* Allocations of hoist's own that fail when told to: the program is linked with --wrap for each
 * function (fail_allocations in Makefile.am), so that libc's and the emulators' are left alone. */
#ifndef HOIST_TESTS_LIB_FAILING_H
#define HOIST_TESTS_LIB_FAILING_H

#include <stdbool.h>

#include "base/error.h"
#include "tests/support/lib-support.h"

/* Says why, and hoist_error(), and ends the program. */
void lib_die(const char *format, ...) HOIST__PRINTF(1, 2) __attribute__((noreturn));

/* Runs @scenario in a process of its own for the first allocation that fails in it, for the second,
 * and so on until none is left to fail: so what is made once is swept too.  @scenario calls
 * lib_fail_allocation() where counting begins, and with 0 where it ends.  A sweep as long as
 * @most, or shorter than 20, ends the program. */
void lib_sweep_allocations(void (*scenario)(unsigned long n), unsigned long most);

/* The devices of lib_sweep_failures(). */
extern hoist_device *lib_swept[LIB_N_DEVICES];

/* A whole program: every allocation of @scenario(1) fails in turn, then every driver call of
 * @scenario(cuda) through CUDA's stand-in, and of @scenario(hip) through HIP's; the numbers are
 * those of the devices that it is to use.  After each, nothing may be left, and without a failure it
 * works.  @scenario gives 0 or what failed, and leaves nothing behind.
 * Returns: the exit status, 77 where the emulators are not built. */
int lib_sweep_failures(int (*scenario)(int device), int cuda, int hip);

/* The @n-th allocation from now on fails; 0: none does. */
void lib_fail_allocation(unsigned long n);

/* What a failing allocation or driver call may come out as. */
bool lib_is_failure(int err);

#endif
