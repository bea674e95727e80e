/* SPDX-License-Identifier: MIT */
/* tests/support/lib-plan-asked.h - the tensors, slices, conversions, places and order that choices
 * ask of a plan of plan_made. */
#ifndef HOIST_TESTS_LIB_PLAN_ASKED_H
#define HOIST_TESTS_LIB_PLAN_ASKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/lib-plan.h"

/* One want: whether each tensor of plan_made is selected, and the range of each axis. */
struct model {
	bool wanted[PLAN_MAX_TENSORS];
	int64_t begin[PLAN_MAX_TENSORS][4];
	int64_t end[PLAN_MAX_TENSORS][4];
	hoist_load_slice slices[PLAN_MAX_TENSORS * 4];
	size_t n_slices;
	const char *patterns[PLAN_MAX_TENSORS];
	size_t n_patterns;
	hoist_dtype dtype[PLAN_MAX_TENSORS]; /* that each becomes */
	/* In place: */
	struct hoist__plan_into into[PLAN_MAX_TENSORS];
	size_t n_into;
	int64_t shapes[PLAN_MAX_TENSORS][4];
	int64_t strides[PLAN_MAX_TENSORS][4]; /* of each tensor, in elements */
	bool strided[PLAN_MAX_TENSORS];
};

enum { MAX_WANTS = 4, MAX_ORDER = 6 };

struct models {
	struct model wants[MAX_WANTS];
	struct hoist__plan_asked asked[MAX_WANTS];
	struct hoist__plan_options options;
	const char *order[MAX_ORDER];
	size_t tier[PLAN_MAX_TENSORS]; /* the first entry of the order that the tensor matches */
};

/* Chooses; @choose gives a number below @n for each choice. */
void plan_ask_random(struct models *models, uint64_t (*choose)(uint64_t n));

#endif
