/* SPDX-License-Identifier: MIT */
/* The tensors that a plan selects, slices in numbers, and options that are refused. */
#include "config.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "tests/support/lib-plan.h"

static struct hoist__plan plan;

static int make(const struct plan_one *options)
{
	hoist__plan_fini(&plan);
	return plan_make_one(&plan_made.checkpoint, options, &plan);
}

static void is_refused(const struct plan_one *options, int err, const char *text)
{
	cr_assert_eq(make(options), err);
	cr_assert_not_null(strstr(hoist_error(), text), "%s", hoist_error());
	cr_assert(plan.tensors == NULL && plan.runs == NULL && plan.arena == NULL);
}

/* --- which --- */

static void name_three(void)
{
	static const char *const odd[] = {"a[0]", "a0", "b*"};
	plan_begin();
	for (size_t i = 0; i < 3; i++)
		plan_add(0, 100 + i, HOIST_U8, 0, NULL)->name = odd[i];
	plan_made.by_name[0] = 1; /* "a0" < "a[0]" < "b*" */
	plan_made.by_name[1] = 0;
}

static size_t n_selected(const char *const *patterns, size_t n)
{
	cr_assert_eq(
		make(&(struct plan_one){.tensor_align = 1, .patterns = patterns, .n_patterns = n}),
		0);
	return plan.n_tensors;
}

Test(lib_plan, a_name_that_looks_like_a_glob_is_a_name_first)
{
	name_three();
	cr_assert_eq(n_selected((const char *[]){"a[0]"}, 1), 1);
	cr_assert_eq(plan.tensors[0].index, 0);
	cr_assert_eq(n_selected((const char *[]){"a*", "a0"}, 2), 2);
	cr_assert_eq(n_selected((const char *[]){"a*"}, 0), 0); /* a list of none is none, */
	cr_assert_eq(n_selected(NULL, 0), 3);			/* no list is all */
	const char *none[] = {"a0", "c"};
	is_refused(&(struct plan_one){.tensor_align = 1, .patterns = none, .n_patterns = 2},
		   -ENOENT, "\"c\"");
	hoist__plan_fini(&plan);
}

Test(lib_plan, slices_name_tensors_as_selections_do)
{
	static const int64_t shape[] = {8, 3};
	static const hoist_load_slice some[] = {{.tensor = "t00[12]", .begin = 2, .end = 4},
						{.tensor = "t001", .axis = 1, .end = 2},
						{.tensor = "t000", .axis = 1, .end = 1}};
	plan_begin();
	for (size_t i = 0; i < 3; i++)
		plan_add(0, 4096 + 24 * i, HOIST_U8, 2, shape);
	const char *names[] = {"t001", "t002"};
	struct plan_one options = {.tensor_align = 1,
				   .patterns = names,
				   .n_patterns = 2,
				   .slices = some,
				   .n_slices = 3};
	cr_assert_eq(make(&options), 0, "%s", hoist_error()); /* t000 is not selected: no harm */
	cr_assert(plan.tensors[0].shape[0] == 2 && plan.tensors[0].shape[1] == 2);
	cr_assert(plan.tensors[1].shape[0] == 2 && plan.tensors[1].shape[1] == 3);
	cr_assert_eq(plan.bytes, 4 + 6);
	options.slices = &(hoist_load_slice){.tensor = "x*", .end = 1};
	options.n_slices = 1;
	is_refused(&options, -ENOENT, "\"x*\"");
	hoist__plan_fini(&plan);
}

/* --- refusals --- */

struct refusal {
	hoist_load_slice slices[2];
	size_t n;
	const char *text;
};

Test(lib_plan, slices_that_are_refused)
{
	static const struct refusal refusals[] = {
		{{{.tensor = "t000", .axis = 2, .end = 1}},
		 1,
		 "[0:1] along axis 2 of \"t000\", of "
		 "shape [8, 12]: there is no such axis"},
		{{{.tensor = "t000", .axis = -3, .end = 1}}, 1, "no such axis"},
		{{{.tensor = "t001", .axis = 0, .end = 1}},
		 1,
		 "of shape []: there is no such axis"},
		{{{.tensor = "t000", .begin = 1, .end = 9}}, 1, "outside the axis"},
		{{{.tensor = "t000", .begin = -9, .end = 1}}, 1, "[-9:1] along axis 0"},
		{{{.tensor = "t000", .begin = 3, .end = 2}}, 1, "before its beginning"},
		{{{.tensor = "t000", .begin = 0, .end = -9}}, 1, "outside the axis"},
		{{{.tensor = "t000", .begin = INT64_MIN, .end = INT64_MIN}}, 1, "outside the axis"},
		{{{.tensor = "t000", .begin = 9, .end = HOIST_SLICE_END}}, 1, "outside the axis"},
		{{{.tensor = "t000", .rank = 1, .n_ranks = 3}},
		 1,
		 "part 1 of 3 along axis 0 of \"t000\", of shape [8, 12]: the axis cannot be cut"},
		{{{.tensor = "t000", .rank = 3, .n_ranks = 3}}, 1, "there is no rank 3 of 3"},
		{{{.tensor = "t000", .rank = -1, .n_ranks = 3}}, 1, "rank -1 of 3"},
		{{{.tensor = "t000", .rank = 0, .n_ranks = -1}}, 1, "rank 0 of -1"},
		{{{.tensor = NULL}}, 1, "number 0 names no tensor"},
		{{{.tensor = "t000", .axis = 1, .end = 3}, {.tensor = "t*0", .axis = -1, .end = 2}},
		 2,
		 "[0:2] along axis -1 of \"t000\", of shape [8, 12]: another slice cuts the same "
		 "axis"},
		{{{.tensor = "t002", .axis = 1, .end = 3}},
		 1,
		 "[:, 0:3] of \"t002\", f4_e2m1fn of "
		 "shape [4, 6], cuts a byte"},
		{{{.tensor = "t003", .axis = 1, .end = 31}}, 1, "cuts a block"},
		{{{.tensor = "t003", .axis = 1, .begin = 8, .end = 40}},
		 1,
		 "multiple of 32 elements"},
		{{{.tensor = "t004", .end = 1}}, 1, "the tensor has strides in the file"},
	};
	static const int64_t shape[] = {8, 12};
	static const int64_t nibbles[] = {4, 6};
	static const int64_t blocks[] = {2, 64};
	plan_begin();
	plan_add(0, 4096, HOIST_F32, 2, shape);
	plan_add(0, 5000, HOIST_F32, 0, NULL);
	plan_add(0, 6000, HOIST_F4_E2M1FN, 2, nibbles);
	plan_add(0, 7000, HOIST_Q4_0, 2, blocks);
	plan_add(0, 8000, HOIST_F32, 2, shape)->strides = shape;
	for (size_t r = 0; r < HOIST__ARRAY_SIZE(refusals); r++) {
		struct plan_one options = {
			.tensor_align = 1, .slices = refusals[r].slices, .n_slices = refusals[r].n};
		is_refused(&options, -EINVAL, refusals[r].text);
	}
}

Test(lib_plan, dtypes_that_nothing_converts_to_are_refused)
{
	plan_begin();
	plan_add(0, 4096, HOIST_F32, 0, NULL);
	is_refused(&(struct plan_one){.tensor_align = 1, .dtype = HOIST_I32}, -EINVAL, "i32");
	is_refused(&(struct plan_one){.tensor_align = 1, .dtype = (hoist_dtype)99}, -EINVAL,
		   "dtype 99");
}

Test(lib_plan, sizes_beyond_63_bits_are_refused)
{
	for (int kind = HOIST__PLAN_HOST; kind <= HOIST__PLAN_DEVICE; kind++) {
		plan_begin();
		for (size_t i = 0; i < 3; i++)
			plan_add(i, 4096, HOIST_F32, 0, NULL)->bytes = UINT64_C(1) << 61;
		struct plan_one options = {.kind = (enum hoist__plan_kind)kind,
					   .tensor_align = 256};
		cr_assert_eq(make(&options), 0, "%s", hoist_error());
		plan_made.tensors[1].bytes = UINT64_C(1) << 62;
		is_refused(&options, -EOVERFLOW, "t001");
		for (size_t i = 0; i < 3; i++)
			plan_made.tensors[i].bytes = (UINT64_C(1) << 62) - 4096;
		is_refused(&options, -EOVERFLOW, "63 bits");
	}
}

/* --- slices in words --- */

Test(lib_plan, negative_bounds_parts_and_empty_slices)
{
	static const int64_t shape[] = {8, 12};
	static const struct {
		hoist_load_slice slice;
		int64_t first; /* element */
		int64_t rows, columns;
	} rows[] = {
		{{.tensor = "t000", .begin = -3, .end = -1}, 60, 2, 12},
		{{.tensor = "t000", .begin = -3, .end = HOIST_SLICE_END}, 60, 3, 12},
		{{.tensor = "t000", .axis = -1, .begin = 3, .end = -4}, 3, 8, 5},
		{{.tensor = "t000", .axis = 1, .rank = 2, .n_ranks = 3, .begin = 77}, 8, 8, 4},
		{{.tensor = "t000", .axis = 1, .n_ranks = 12}, 0, 8, 1},
		{{.tensor = "t000", .begin = 5, .end = 5}, 0, 0, 12},
		{{.tensor = "t000", .axis = 1, .begin = 12, .end = 12}, 0, 8, 0},
		{{.tensor = "t000", .begin = -8, .end = 8}, 0, 8, 12},
	};
	plan_begin();
	plan_add(0, 4096, HOIST_U8, 2, shape);
	for (size_t r = 0; r < HOIST__ARRAY_SIZE(rows); r++) {
		struct plan_seen seen;
		struct plan_one options = {.kind = HOIST__PLAN_DEVICE,
					   .tensor_align = 256,
					   .slices = &rows[r].slice,
					   .n_slices = 1};
		cr_assert_eq(make(&options), 0, "%s", hoist_error());
		const struct hoist__plan_tensor *tensor = &plan.tensors[0];
		cr_assert(tensor->shape[0] == rows[r].rows && tensor->shape[1] == rows[r].columns);
		cr_assert_eq(plan.bytes, (uint64_t)(rows[r].rows * rows[r].columns));
		cr_assert_eq(tensor->whole, plan.bytes == 96);
		plan_check_extents(&plan);
		struct plan_destination got = plan_run(&plan, 65536, &seen);
		if (plan.bytes > 0)
			cr_assert_eq(got.bytes[tensor->target],
				     plan_made.bytes[0][4096 + rows[r].first]);
		plan_put_away(&got);
	}
	hoist__plan_fini(&plan);
}

Test(lib_plan, a_byte_is_found_in_its_tensor)
{
	static const int64_t large[] = {9000}, small[] = {10};
	plan_begin();
	plan_add(0, 1000, HOIST_U8, 1, large);
	plan_add(0, 2000, HOIST_U8, 1, small); /* within the first */
	plan_add(1, 500, HOIST_U8, 1, small);
	cr_assert_eq(make(&(struct plan_one){.tensor_align = 1}), 0);
	static const struct {
		size_t file;
		uint64_t offset;
		int tensor; /* -1: none */
	} rows[] = {{0, 999, -1},   {0, 1000, 0}, {0, 2005, 1}, {0, 2010, 0}, {0, 9999, 0},
		    {0, 10000, -1}, {1, 499, -1}, {1, 500, 2},	{1, 510, -1}, {2, 500, -1}};
	for (size_t r = 0; r < HOIST__ARRAY_SIZE(rows); r++)
		cr_assert_eq(hoist__plan_tensor_at(&plan_made.checkpoint, &plan, rows[r].file,
						   rows[r].offset),
			     rows[r].tensor < 0 ? NULL : &plan_made.tensors[rows[r].tensor],
			     "row %zu", r);
	hoist__plan_fini(&plan);
}
