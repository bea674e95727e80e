/* SPDX-License-Identifier: MIT */
/* tests/support/lib-plan-random.h - a checkpoint made of structs by chance (plan_made). */
#ifndef HOIST_TESTS_LIB_PLAN_RANDOM_H
#define HOIST_TESTS_LIB_PLAN_RANDOM_H

#include "tests/support/lib-plan-model.h"
#include "tests/support/lib-plan.h"

void plan_make_random(const struct plan_model_size *size, uint64_t (*choose)(uint64_t n));

/* Returns how many of @n elements, which lie one behind the other, from number @to on in @got,
 * are not those of @tensor from number @from on. */
uint64_t plan_count_wrong(const struct hoist__tensor *tensor, hoist_dtype dtype,
			  const unsigned char *got, uint64_t to, uint64_t from, uint64_t n);

#endif
