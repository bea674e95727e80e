/* SPDX-License-Identifier: MIT */
/* In the place of Criterion's header, where what unit tests check is checked by a fuzz target: what
 * is asserted ends the program, with what did not hold. */
#ifndef HOIST_TESTS_FUZZ_CRITERION_H
#define HOIST_TESTS_FUZZ_CRITERION_H

#include <stdio.h>
#include <stdlib.h>

#define CR_HOLDS(condition)                                                                        \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__,    \
				      #condition);                                                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* A message follows the operands. */
#define cr_assert(condition, ...) CR_HOLDS(condition)
#define cr_assert_not(condition, ...) CR_HOLDS(!(condition))
#define cr_assert_not_null(pointer, ...) CR_HOLDS((pointer) != NULL)
#define cr_assert_eq(a, b, ...) CR_HOLDS((a) == (b))
#define cr_assert_lt(a, b, ...) CR_HOLDS((a) < (b))
#define cr_assert_leq(a, b, ...) CR_HOLDS((a) <= (b))
#define cr_assert_geq(a, b, ...) CR_HOLDS((a) >= (b))

#endif
