/* SPDX-License-Identifier: MIT */
/* tests/support/unit-check.h - checks of hoist's calls in Criterion's tests; check.h is the one of
 * plain programs. */
#ifndef HOIST_TESTS_UNIT_CHECK_H
#define HOIST_TESTS_UNIT_CHECK_H

#include <criterion/criterion.h>
#include <string.h>

#include "hoist/error.h"

/* A call that must give 0; any other value ends the test. */
#define OK(call) cr_assert_eq(call, 0, "%s: %s", #call, hoist_error())

/* A call that must give @err, a negative errno, and leave an error text that contains @text. */
#define REFUSED(call, err, text)                                                                   \
	do {                                                                                       \
		cr_expect_eq(call, err, "%s: %s", #call, hoist_error());                           \
		expect_text(text);                                                                 \
	} while (0)

static inline void expect_text(const char *text)
{
	cr_expect_not_null(strstr(hoist_error(), text), "\"%s\" lacks \"%s\"", hoist_error(), text);
}

#endif
