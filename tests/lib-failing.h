/* SPDX-License-Identifier: MIT */
/* Allocations of hoist's own that fail when told to: the program is linked with --wrap for each
 * function (lib_wrap in lib.am), so that libc's and the emulators' are left alone. */
#ifndef HOIST_TESTS_LIB_FAILING_H
#define HOIST_TESTS_LIB_FAILING_H

#include <stdbool.h>

#include "base/error.h"

/* Says why, and hoist_error(), and ends the program. */
void lib_die(const char *format, ...) HOIST__PRINTF(1, 2) __attribute__((noreturn));

/* Runs @scenario in a process of its own for the first allocation that fails in it, for the second,
 * and so on until none is left to fail: so what is made once is swept too.  @scenario calls
 * lib_fail_allocation() where counting begins, and with 0 where it ends.  A sweep as long as
 * @most, or shorter than 20, ends the program. */
void lib_sweep_allocations(void (*scenario)(unsigned long n), unsigned long most);

/* The @n-th allocation from now on fails; 0: none does. */
void lib_fail_allocation(unsigned long n);

/* What a failing allocation or driver call may come out as. */
bool lib_is_failure(int err);

#endif
