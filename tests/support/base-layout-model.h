/* SPDX-License-Identifier: MIT */
/* Random layouts, and where their items lie. */
#ifndef HOIST_TESTS_BASE_LAYOUT_MODEL_H
#define HOIST_TESTS_BASE_LAYOUT_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <hoist/layout.h>

#include "tests/support/base-layout.h"

#define MOST 5	    /* extents; ranks, too, before axes are added */
#define ROUNDS 4000 /* of each test */
#define MOST_PLACES 20000

/* The places of all items, in C order; in items from the base. */
struct model {
	int64_t n;
	int64_t places[MOST_PLACES];
};

/* Random numbers: where they begin, and one in 0..n-1. */
void seed(uint64_t from);
int64_t layout_below(int64_t n);

/* The axes 0..n-1 in any order. */
void shuffle(int n, int *axes);

/* Counts @index up, the last axis fastest.  Returns: false when it starts again. */
bool next_index(int rank, const int64_t *shape, int64_t *index);

/* Where the item @index lies, in items from the base. */
int64_t place_of(const hoist_layout *layout, const int64_t *index);

bool is_empty(const hoist_layout *layout);
void walk(const hoist_layout *layout, struct model *ret);

/* In words; two of them can be used at a time. */
const char *words(const hoist_layout *layout);

/* Any index or range that an axis of @extent takes. */
hoist_slice random_slice(int64_t extent);

/* A layout: dense in any order, or, where @wild, with any strides; and some of it, by slices
 * and permutations. */
hoist_layout random_layout(bool wild);
hoist_layout random_part(bool wild);

#endif
