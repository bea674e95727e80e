/* SPDX-License-Identifier: MIT */
/* Random plans against a model: see lib-plan-model.h.  fuzz/plan.c has other choices. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/support/lib-plan-model.h"
#include "tests/support/random.h"

static uint64_t seed;

static uint64_t below(uint64_t n)
{
	return random_below(&seed, n);
}

Test(lib_plan_model, every_element_is_read_once_and_lands_in_its_place)
{
	const struct plan_model_size size = {20, 250000};
	struct plan_model_saw saw = {0};
	for (unsigned first = 1; first < 400; first++) {
		seed = first;
		plan_model_check(first, &size, below, &saw);
	}
	cr_assert_gt(saw.n_cut, 100, "%zu", saw.n_cut);
	cr_assert_gt(saw.n_tight, 20, "%zu", saw.n_tight);
	cr_assert_gt(saw.n_later, 20, "%zu", saw.n_later);
}

Test(lib_plan_model, small_tensors_are_laid_out_as_they_will_lie)
{
	const struct plan_model_size size = {150, 600};
	struct plan_model_saw saw = {0};
	for (unsigned first = 1; first < 800; first++) {
		seed = first;
		plan_model_check(first, &size, below, &saw);
	}
	cr_assert_gt(saw.n_laid, 100, "%zu", saw.n_laid);
	cr_assert_gt(saw.n_planes, 300, "%zu", saw.n_planes);
}
