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
	for (unsigned first = 1; first < 400; first++) {
		seed = first;
		(void)plan_model_check(first, &size, below);
	}
}

Test(lib_plan_model, small_tensors_are_laid_out_as_they_will_lie)
{
	const struct plan_model_size size = {150, 600};
	size_t n_laid = 0;
	for (unsigned first = 1; first < 800; first++) {
		seed = first;
		n_laid += plan_model_check(first, &size, below);
	}
	cr_assert_gt(n_laid, 100, "%zu", n_laid);
}
