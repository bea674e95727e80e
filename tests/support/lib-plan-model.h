/* SPDX-License-Identifier: MIT */
/* tests/support/lib-plan-model.h - checkpoints, selections, slices and conversions as choices
 * make them, planned, carried out in memory and compared element by element with what shapes and
 * indices say. */
#ifndef HOIST_TESTS_LIB_PLAN_MODEL_H
#define HOIST_TESTS_LIB_PLAN_MODEL_H

#include <stddef.h>
#include <stdint.h>

/* How large it may be. */
struct plan_model_size {
	unsigned tensors;
	unsigned tensor_bytes; /* of the largest */
};

/* The features that plans had, counted over all checks. */
struct plan_model_saw {
	size_t n_laid;	 /* chunks whose pieces were laid out */
	size_t n_planes; /* stacks of several planes in these: transposed tensors in place */
	size_t n_tight;	 /* extents of the same bytes in several forms */
	size_t n_cut;	 /* parts of extents that overlap, beyond the first of each */
	size_t n_later; /* plans that began later on */
};

/* One of them; @choose gives a number below @n for each choice, @label names it in messages. */
void plan_model_check(unsigned label, const struct plan_model_size *size,
		      uint64_t (*choose)(uint64_t n), struct plan_model_saw *saw);

#endif
