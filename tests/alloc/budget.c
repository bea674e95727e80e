/* SPDX-License-Identifier: MIT */
/* Budgets: the bytes that they give, the turns of callers that wait, and the error texts. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "alloc/budget.h"
#include "base/error.h"
#include "base/figure.h"

static struct hoist__budget *make_budget(size_t bytes)
{
	struct hoist__budget *budget = NULL;
	cr_assert_eq(hoist__budget_create(bytes, &budget), 0);
	return budget;
}

Test(alloc_budget, gives_its_free_bytes_and_remembers_its_peak)
{
	struct hoist__budget *budget = make_budget(100);
	cr_assert_eq(hoist__budget_limit(budget), 100);
	cr_assert_eq(hoist__budget_acquire(budget, 60), 0);
	cr_assert_eq(hoist__budget_acquire(budget, 40), 0);
	cr_assert_eq(hoist__budget_acquire(budget, 1), -EAGAIN);
	cr_assert_eq(hoist__budget_acquire(budget, 0), 0);
	cr_assert_eq(hoist__budget_used(budget), 100);
	hoist__budget_release(budget, 60);
	cr_assert_eq(hoist__budget_acquire(budget, 61), -EAGAIN);
	cr_assert_eq(hoist__budget_used(budget), 40);
	cr_assert_eq(hoist__budget_peak(budget), 100);
	hoist__budget_release(budget, 40);
	hoist__budget_unref(budget);
}

Test(alloc_budget, says_that_too_much_will_never_fit)
{
	struct hoist__budget *budget = make_budget((size_t)8 << 20);
	cr_assert_eq(hoist__budget_acquire(budget, ((size_t)8 << 20) + 1), -EDQUOT);
	cr_assert(strstr(hoist__error_text(), "the budget is 8 MiB") != NULL);
	cr_assert_eq(hoist__budget_acquire_wait(budget, SIZE_MAX, UINT64_MAX), -EDQUOT);
	cr_assert_eq(hoist__budget_used(budget), 0);
	hoist__budget_unref(budget);
}

Test(alloc_budget, stops_waiting_when_the_time_is_over)
{
	struct hoist__budget *budget = make_budget(10);
	cr_assert_eq(hoist__budget_acquire_wait(budget, 10, 0), 0);
	cr_assert_eq(hoist__budget_acquire_wait(budget, 1, 0), -EAGAIN);
	cr_assert_eq(hoist__budget_acquire_wait(budget, 1, 1000000), -EAGAIN);
	hoist__budget_release(budget, 10);
	cr_assert_eq(hoist__budget_acquire_wait(budget, 10, UINT64_MAX), 0);
	hoist__budget_release(budget, 10);
	hoist__budget_unref(budget);
}

/* Callers that do not wait cannot pass a waiting ticket for ever. */
Test(alloc_budget, lets_a_ticket_be_passed_by_no_more_than_the_limit)
{
	struct hoist__budget *budget = make_budget(100);
	struct hoist__budget_ticket large = {0};
	struct hoist__budget_ticket small = {0};
	size_t passed = 0;
	cr_assert_eq(hoist__budget_acquire(budget, 70), 0);
	cr_assert_eq(hoist__budget_acquire_turn(budget, &large, 90, 0), -EAGAIN);
	cr_assert_eq(hoist__budget_acquire_turn(budget, &small, 20, 0), -EAGAIN);
	while (hoist__budget_acquire(budget, 30) == 0) {
		hoist__budget_release(budget, 30);
		passed += 30;
	}
	cr_assert_eq(passed, 90);
	cr_assert(strstr(hoist__error_text(), "others wait for the rest") != NULL);
	cr_assert_eq(hoist__budget_acquire(budget, 10), 0);
	cr_assert_eq(hoist__budget_acquire(budget, 1), -EAGAIN);
	cr_assert_eq(hoist__budget_acquire(budget, 0), 0);
	/* In the order that they came, each with its bytes from the moment they are free. */
	hoist__budget_release(budget, 80);
	cr_assert_eq(hoist__budget_used(budget), 90);
	cr_assert_eq(hoist__budget_acquire_turn(budget, &small, 20, 0), -EAGAIN);
	cr_assert_eq(hoist__budget_acquire_turn(budget, &large, 90, 0), 0);
	hoist__budget_release(budget, 90);
	cr_assert_eq(hoist__budget_used(budget), 20);
	cr_assert_eq(hoist__budget_acquire_turn(budget, &small, 20, UINT64_MAX), 0);
	hoist__budget_release(budget, 20);
	cr_assert_eq(hoist__budget_used(budget), 0);
	cr_assert_eq(hoist__budget_peak(budget), 100);
	hoist__budget_unref(budget);
}

Test(alloc_budget, serves_the_ticket_behind_one_that_leaves)
{
	struct hoist__budget *budget = make_budget(100);
	struct hoist__budget_ticket large = {0};
	struct hoist__budget_ticket small = {0};
	cr_assert_eq(hoist__budget_acquire(budget, 50), 0);
	cr_assert_eq(hoist__budget_acquire_turn(budget, &large, 60, 0), -EAGAIN);
	cr_assert_eq(hoist__budget_acquire_turn(budget, &small, 40, 0), -EAGAIN);
	cr_assert_eq(hoist__budget_acquire_turn(budget, &(struct hoist__budget_ticket){0}, 101, 0),
		     -EDQUOT);
	hoist__budget_leave(budget, &large);
	hoist__budget_leave(budget, &large);
	cr_assert_eq(hoist__budget_used(budget), 90);
	/* A grant of a ticket that leaves goes back, too, and to the next ticket. */
	cr_assert_eq(hoist__budget_acquire_turn(budget, &large, 50, 0), -EAGAIN);
	hoist__budget_leave(budget, &small);
	cr_assert_eq(hoist__budget_used(budget), 100);
	hoist__budget_leave(budget, &large);
	cr_assert_eq(hoist__budget_used(budget), 50);
	hoist__budget_release(budget, 50);
	hoist__budget_unref(budget);
}

Test(alloc_budget, needs_a_limit)
{
	struct hoist__budget *budget = NULL;
	cr_assert_eq(hoist__budget_create(0, &budget), -EINVAL);
	cr_assert_null(budget);
	hoist__budget_unref(NULL);
}

Test(alloc_budget, lives_until_its_last_reference)
{
	struct hoist__budget *budget = make_budget(10);
	cr_assert_eq(hoist__budget_ref(budget), budget);
	hoist__budget_unref(budget);
	cr_assert_eq(hoist__budget_acquire(budget, 10), 0);
	hoist__budget_release(budget, 10);
	hoist__budget_unref(budget);
}

Test(alloc_figure, reads_as_people_write)
{
	cr_assert_str_eq(hoist__figure(0).text, "0 bytes");
	cr_assert_str_eq(hoist__figure(1000).text, "1000 bytes");
	cr_assert_str_eq(hoist__figure(1024).text, "1 KiB");
	cr_assert_str_eq(hoist__figure((size_t)256 << 20).text, "256 MiB");
	cr_assert_str_eq(hoist__figure((size_t)3 << 29).text, "1.5 GiB");
	cr_assert_str_eq(hoist__figure(UINT64_MAX).text, "16777216.0 TiB");
}
