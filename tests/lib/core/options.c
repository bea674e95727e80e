/* SPDX-License-Identifier: MIT */
/* Options structs of older and newer callers: sizes, defaults, and fields that are not known. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "lib/core/options.h"

struct known {
	size_t size;
	int a;
	int b;
	void *pointer;
};

struct newer {
	struct known known;
	long c;
};

Test(options, in_takes_all_fields_of_an_equal_size)
{
	int object;
	const struct known given = {sizeof given, 1, 2, &object};
	struct known known;
	cr_assert_eq(hoist__options_in("known", &given, &known, sizeof known), 0);
	cr_assert_eq(memcmp(&given, &known, sizeof known), 0);
}

Test(options, in_defaults_the_fields_that_an_older_caller_lacks)
{
	struct known given = {offsetof(struct known, b), 1, 77, &given};
	struct known known;
	memset(&known, 0xff, sizeof known);
	cr_assert_eq(hoist__options_in("known", &given, &known, sizeof known), 0);
	cr_assert_eq(known.size, sizeof known);
	cr_assert_eq(known.a, 1);
	cr_assert_eq(known.b, 0);
	cr_assert_null(known.pointer);
}

Test(options, in_takes_a_newer_caller_that_leaves_new_fields_alone)
{
	const struct newer given = {{sizeof given, 1, 2, NULL}, 0};
	struct known known;
	cr_assert_eq(hoist__options_in("known", &given, &known, sizeof known), 0);
	cr_assert_eq(known.size, sizeof known);
	cr_assert_eq(known.b, 2);
}

Test(options, in_refuses_a_newer_caller_that_uses_new_fields)
{
	const struct newer given = {{sizeof given, 1, 2, NULL}, 1};
	struct known known = {.a = 5};
	cr_assert_eq(hoist__options_in("struct known", &given, &known, sizeof known), -EINVAL);
	cr_assert_eq(known.a, 5, "untouched on failure");
	cr_assert_not_null(strstr(hoist_error(), "struct known: byte 24 of 32 is set"), "%s",
			   hoist_error());
}

Test(options, in_refuses_a_size_that_cannot_hold_itself)
{
	struct known given = {0, 1, 2, NULL};
	struct known known = {.a = 5};
	for (given.size = 0; given.size < sizeof given.size; given.size++)
		cr_assert_eq(hoist__options_in("known", &given, &known, sizeof known), -EINVAL);
	cr_assert_eq(known.a, 5);
	cr_assert_eq(hoist__options_in("known", &given, &known, sizeof known), 0);
	cr_assert_eq(known.a, 0);
}

Test(options, in_makes_defaults_of_no_struct)
{
	struct known known = {.a = 5, .pointer = &known};
	cr_assert_eq(hoist__options_in("known", NULL, &known, sizeof known), 0);
	cr_assert_eq(known.size, sizeof known);
	cr_assert_eq(known.a, 0);
	cr_assert_null(known.pointer);
}

Test(options, out_fills_the_fields_that_the_caller_has_room_for)
{
	const struct known known = {sizeof known, 1, 2, NULL};
	struct known given = {offsetof(struct known, b), 9, 9, NULL};
	cr_assert_eq(hoist__options_out("known", &given, &known, sizeof known), 0);
	cr_assert_eq(given.size, offsetof(struct known, b));
	cr_assert_eq(given.a, 1);
	cr_assert_eq(given.b, 9);
	given.size = sizeof given;
	cr_assert_eq(hoist__options_out("known", &given, &known, sizeof known), 0);
	cr_assert_eq(given.b, 2);
}

Test(options, out_refuses_bad_sizes_and_no_struct)
{
	const struct known known = {sizeof known, 1, 2, NULL};
	struct newer given = {{0, 9, 9, NULL}, 9};
	cr_assert_eq(hoist__options_out("known", NULL, &known, sizeof known), -EINVAL);
	cr_assert_eq(hoist__options_out("known", &given, &known, sizeof known), -EINVAL);
	cr_assert_not_null(
		strstr(hoist_error(), "size field is 0; set that field to sizeof(known)"));
	given.known.size = sizeof given;
	cr_assert_eq(hoist__options_out("known", &given, &known, sizeof known), -EINVAL);
	cr_assert_not_null(strstr(hoist_error(), "older than the caller's header"));
	cr_assert_eq(given.known.a, 9);
}
