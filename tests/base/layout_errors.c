/* SPDX-License-Identifier: MIT */
/* Refusals of layouts: values that do not fit, layouts filled in wrongly, and the words for them.
 */
#include "config.h"

#include <criterion/criterion.h>

#include <stdint.h>
#include <string.h>

#include "tests/support/base-layout.h"
#include "base/error.h"
#include "base/layout.h"
#include "hoist/layout.h"

#define N_OF(table) (sizeof(table) / sizeof((table)[0]))
#define HUGE_ (INT64_C(1) << 62)

/* A result that no call may touch. */
static hoist_layout marked(void)
{
	hoist_layout layout;
	memset(&layout, 0x5a, sizeof layout);
	return layout;
}

static bool is_marked(const hoist_layout *layout)
{
	hoist_layout as_it_was = marked();
	return memcmp(layout, &as_it_was, sizeof as_it_was) == 0;
}

/* proves: S3.20 */
Test(base_layout_errors, wrong_arguments_make_no_layout)
{
	static const struct {
		int rank;
		int64_t shape[3], strides[3];
		int has_strides, in_bytes;
		int64_t itemsize;
		int err;
		const char *text;
	} cases[] = {
		{2, {3, -1}, {0}, 0, 0, 4, -EINVAL, "axis 1 has the extent -1"},
		{2, {3, -1}, {1, 1}, 1, 0, 4, -EINVAL, "axis 1 has the extent -1"},
		{65, {0}, {0}, 0, 0, 4, -EINVAL, "rank 65 is outside 0..64"},
		{-1, {0}, {0}, 0, 0, 4, -EINVAL, "rank -1 is outside 0..64"},
		{1, {3}, {0}, 0, 0, 0, -EINVAL, "an itemsize of 0"},
		{1, {3}, {1}, 1, 0, -4, -EINVAL, "an itemsize of -4"},
		{2,
		 {3, 3},
		 {12, 6},
		 1,
		 1,
		 4,
		 -EINVAL,
		 "axis 1 has a stride of 6 bytes, not a multiple of the itemsize 4"},
		{1, {3}, {1}, 1, 2, 4, -EINVAL, "not in 2"},
		{2, {HUGE_, 2}, {0}, 0, 0, 1, -EOVERFLOW, "63 bits"},
		{2, {HUGE_, 2}, {0, 0}, 1, 0, 1, -EOVERFLOW, "63 bits"},
		{1, {HUGE_}, {0}, 0, 0, 2, -EOVERFLOW, "2 bytes"},
		{1, {HUGE_}, {0}, 1, 0, 2, -EOVERFLOW, "2 bytes"},
		{1, {2}, {HUGE_}, 1, 0, 2, -EOVERFLOW, "2 bytes"},
		{1, {2}, {-HUGE_ - 1}, 1, 0, 2, -EOVERFLOW, "2 bytes"},
		{1, {3}, {HUGE_}, 1, 0, 1, -EOVERFLOW, "63 bits"},
		{2, {2, 2}, {HUGE_, HUGE_}, 1, 0, 1, -EOVERFLOW, "63 bits"},
		{2, {2, 2}, {INT64_MIN, -1}, 1, 0, 1, -EOVERFLOW, "63 bits"},
		{1, {2}, {INT64_MAX}, 1, 0, 1, -EOVERFLOW, "1 bytes"},
		/* Both sides fit; backwards along axis 0, one would be as long as both. */
		{2, {2, 2}, {-HUGE_ - 1, HUGE_}, 1, 0, 1, -EOVERFLOW, "63 bits"},
	};
	for (size_t i = 0; i < N_OF(cases); i++) {
		hoist_layout made = marked();
		int err = hoist_layout_make(cases[i].rank, cases[i].shape,
					    cases[i].has_strides ? cases[i].strides : NULL,
					    cases[i].itemsize, cases[i].in_bytes, &made);
		cr_expect_eq(err, cases[i].err, "case %zu: %d", i, err);
		cr_expect_not_null(strstr(hoist_error(), cases[i].text), "case %zu: %s", i,
				   hoist_error());
		cr_expect(is_marked(&made), "case %zu", i);
	}
}

/* proves: S3.20 */
Test(base_layout_errors, extreme_arguments_make_a_layout)
{
	int64_t shape[HOIST_MAX_RANK];
	int64_t bytes[] = {-12, 8, 4};
	hoist_layout made;
	for (int i = 0; i < HOIST_MAX_RANK; i++)
		shape[i] = 1;
	cr_expect_eq(hoist_layout_make(64, shape, NULL, 3, HOIST_STRIDES_IN_ITEMS, &made), 0);
	cr_expect(made.implicit && made.rank == 64 && made.itemsize == 3 && made.offset == 0);
	shape[0] = 3;
	cr_expect_eq(hoist_layout_make(3, shape, bytes, 4, HOIST_STRIDES_IN_BYTES, &made), 0);
	cr_expect(!made.implicit && made.strides[0] == -3 && made.strides[1] == 2);
	/* Strides that nothing steps by are not looked at; nor are extents beside a 0. */
	cr_expect_eq(hoist_layout_make(1, (int64_t[]){1}, (int64_t[]){INT64_MIN}, 8, 0, &made), 0);
	cr_expect_eq(hoist_layout_make(3, (int64_t[]){INT64_MAX, 0, INT64_MAX}, NULL, 8, 0, &made),
		     0);
	cr_expect_eq(hoist_layout_volume(&made), 0);
	cr_expect_eq(made.strides[2], 0);
	cr_expect_eq(hoist_layout_make(1, (int64_t[]){INT64_MAX}, NULL, 1, 0, &made), 0);
	cr_expect_eq(hoist_layout_volume(&made), INT64_MAX);
	cr_expect_eq(hoist_layout_make(0, NULL, NULL, 1, 0, &made), 0);
	cr_expect_eq(hoist_layout_dense(2, (int64_t[]){2, 3}, 1, HOIST_ORDER_K, NULL, &made),
		     -EINVAL);
	cr_expect_eq(hoist_layout_dense(2, (int64_t[]){2, 3}, 1, HOIST_ORDER_AXES, NULL, &made),
		     -EINVAL);
	cr_expect_eq(made.rank, 0);
}

/* Every function that makes one from another; each takes (2, 3). */
static int op_slice(const hoist_layout *layout, hoist_layout *ret)
{
	const hoist_slice slices[] = {HOIST_STEP(HOIST_NONE, HOIST_NONE, -1), HOIST_AT(1)};
	return hoist_layout_slice(layout, 2, slices, ret);
}

static int op_permute(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_permute(layout, 2, (int[]){1, 0}, ret);
}

static int op_reshape(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_reshape(layout, 2, (int64_t[]){1, 6}, ret);
}

static int op_flatten(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_flatten(layout, 0, -1, HOIST_MERGE_ALL, ret);
}

static int op_unsqueeze(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_unsqueeze(layout, 2, (int[]){0, -1}, ret);
}

static int op_broadcast(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_broadcast(layout, 3, (int64_t[]){2, 2, 3}, ret);
}

static int op_repack(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_repack(layout, 2, 0, -1, 1, ret);
}

static int op_dense(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_to_dense(layout, HOIST_ORDER_F, NULL, ret);
}

static int op_required(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_required_bytes(layout, &ret->offset);
}

static int op_max_itemsize(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_max_itemsize(layout, 16, 0, -1, &ret->offset);
}

static int op_byte_offset(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_byte_offset(layout, &ret->offset);
}

static int op_byte_strides(const hoist_layout *layout, hoist_layout *ret)
{
	return hoist_layout_byte_strides(layout, ret->strides);
}

static const struct {
	const char *name;
	int (*run)(const hoist_layout *, hoist_layout *);
	bool makes;
} ops[] = {
	{"slice", op_slice, true},
	{"permute", op_permute, true},
	{"reshape", op_reshape, true},
	{"flatten", op_flatten, true},
	{"squeeze", hoist_layout_squeeze, true},
	{"unsqueeze", op_unsqueeze, true},
	{"broadcast", op_broadcast, true},
	{"repack", op_repack, true},
	{"dense", op_dense, true},
	{"required_bytes", op_required, false},
	{"max_itemsize", op_max_itemsize, false},
	{"byte_offset", op_byte_offset, false},
	{"byte_strides", op_byte_strides, false},
};

Test(base_layout_errors, the_result_may_be_the_argument)
{
	for (size_t i = 0; i < N_OF(ops); i++) {
		hoist_layout layout = read_layout("implicit 2,3", 4);
		hoist_layout made = marked();
		if (!ops[i].makes)
			continue;
		cr_assert_eq(ops[i].run(&layout, &made), 0, "%s", ops[i].name);
		cr_assert_eq(ops[i].run(&layout, &layout), 0, "%s", ops[i].name);
		cr_expect(hoist_layout_equal(&layout, &made), "%s", ops[i].name);
		/* Only what the rank covers is written. */
		cr_expect_eq(made.shape[made.rank], INT64_C(0x5a5a5a5a5a5a5a5a), "%s", ops[i].name);
		cr_expect_eq(made.strides[made.rank], INT64_C(0x5a5a5a5a5a5a5a5a));
	}
}

Test(base_layout_errors, layouts_filled_in_wrongly)
{
	for (size_t i = 0; i < N_OF(ops); i++) {
		for (int wrong = 0; wrong < 5; wrong++) {
			hoist_layout layout = read_layout("C 2,3", 4);
			hoist_layout made = marked();
			if (wrong == 0)
				layout.rank = 65;
			if (wrong == 1)
				layout.rank = -1;
			if (wrong == 2)
				layout.itemsize = 0;
			if (wrong == 3)
				layout.shape[1] = -3;
			int err = ops[i].run(wrong == 4 ? NULL : &layout, &made);
			cr_expect_eq(err, -EINVAL, "%s, %d: %d", ops[i].name, wrong, err);
			cr_expect(is_marked(&made), "%s, %d", ops[i].name, wrong);
		}
	}
}

/* proves: S3.20 S3.28 S3.29 S3.30 S3.32 S3.35 S3.36 S3.37 S3.38 */
Test(base_layout_errors, values_that_do_not_fit_are_refused)
{
	hoist_layout far = read_layout("strides 4611686018427387904 1", 1);
	hoist_layout made = marked();
	int64_t bytes = 77;
	int64_t max = 77;
	far.shape[0] = 2; /* reaches 2^62 */
	far.offset = INT64_MAX - 1;
	cr_expect_eq(hoist_layout_bounds(&far, &bytes, &max), -EOVERFLOW);
	cr_expect_eq(hoist_layout_required_bytes(&far, &bytes), -EOVERFLOW);
	cr_expect_eq(hoist_layout_slice(&far, 1, &(hoist_slice){1, 0, 1, 1}, &made), -EOVERFLOW);
	cr_expect_eq(hoist_layout_unsqueeze(&far, 1, (int[]){0}, &made), -EOVERFLOW);
	far.shape[0] = 3; /* cannot be stepped through */
	cr_expect_eq(hoist_layout_slice(&far, 1, &(hoist_slice){0, 3, 2, 0}, &made), -EOVERFLOW);
	cr_expect_eq(hoist_layout_bounds(&far, &bytes, &max), -EOVERFLOW);
	far.shape[0] = 1;
	far.offset = INT64_MIN;
	cr_expect_eq(hoist_layout_required_bytes(&far, &bytes), -EINVAL);
	cr_expect_not_null(strstr(hoist_error(), " 9223372036854775808 items before the base"),
			   "%s", hoist_error());
	far.offset = INT64_MAX - 1;
	far.itemsize = 2;
	cr_expect_eq(hoist_layout_byte_offset(&far, &bytes), -EOVERFLOW);
	cr_expect_eq(hoist_layout_byte_strides(&far, made.strides), -EOVERFLOW);

	hoist_layout one = read_layout("C 1", 2);
	cr_expect_eq(hoist_layout_broadcast(&one, 1, (int64_t[]){HUGE_}, &made), -EOVERFLOW);
	cr_expect_eq(hoist_layout_broadcast(&one, 2, (int64_t[]){HUGE_, 2}, &made), -EOVERFLOW);
	one.offset = HUGE_;
	cr_expect_eq(hoist_layout_repack(&one, 1, 0, -1, 1, &made), -EOVERFLOW);
	cr_expect_eq(hoist_layout_max_itemsize(&one, 16, 0, -1, &bytes), -EOVERFLOW);
	one.offset = INT64_MAX;
	cr_expect_eq(hoist_layout_required_bytes(&one, &bytes), -EOVERFLOW);
	hoist_layout rows = read_layout("C 1,1", 4);
	rows.strides[0] = HUGE_;
	cr_expect_eq(hoist_layout_repack(&rows, 2, 0, -1, 1, &made), -EOVERFLOW);
	rows.strides[0] = 1;
	rows.shape[1] = HUGE_;
	cr_expect_eq(hoist_layout_repack(&rows, 2, 0, -1, 1, &made), -EOVERFLOW);
	cr_expect_eq(hoist_layout_reshape(&rows, 2, (int64_t[]){HUGE_, 2}, &made), -EOVERFLOW);
	rows.shape[0] = 2;
	cr_expect_eq(hoist_layout_volume(&rows), -EOVERFLOW);
	cr_expect_eq(hoist_layout_reshape(&rows, 1, (int64_t[]){-1}, &made), -EOVERFLOW);
	hoist_layout empty = read_layout("C 0,1,1", 1);
	empty.shape[1] = empty.shape[2] = HUGE_;
	empty.strides[2] = 1; /* so that the last two cannot be one, and the first two can */
	cr_expect_eq(hoist_layout_flatten(&empty, 0, -1, HOIST_MERGE_ALL, &made), 0);
	empty.strides[2] = 0;
	cr_expect_eq(hoist_layout_flatten(&empty, 1, 2, HOIST_MERGE_ALL, &made), -EOVERFLOW);

	cr_expect_eq(bytes, 77);
	cr_expect_eq(max, 77);
}

/* proves: S3.30 */
Test(base_layout_errors, an_index_outside_its_axis_has_the_callers_code)
{
	hoist_layout layout = read_layout("C 3,5", 4);
	hoist_layout made = marked();
	const hoist_slice slices[] = {HOIST_ALL, HOIST_AT(-6)};
	cr_expect_eq(hoist__layout_slice(&layout, 2, slices, -ERANGE, &made), -ERANGE);
	cr_expect_str_eq(hoist_error(), "slice: index -6 is outside axis 1, of extent 5");
	cr_expect_eq(hoist_layout_slice(&layout, 2, slices, &made), -EINVAL);
	cr_expect_eq(hoist__layout_slice(&layout, 3, slices, -ERANGE, &made), -EINVAL);
	cr_expect_eq(hoist__layout_slice(&layout, -1, slices, -ERANGE, &made), -EINVAL);
	cr_expect_eq(hoist__layout_slice(&layout, 1, NULL, -ERANGE, &made), -EINVAL);
	cr_expect(is_marked(&made));
}

/* Each refusal names the axis and the values. */
Test(base_layout_errors, texts)
{
	static const struct {
		const char *layout, *steps, *text;
	} cases[] = {
		{"C 3,5", "[:, ::0]", "slice: the step in axis 1 is 0"},
		{"C 3,5", "[:, :-1, :2]", "slice: 3 indices for 2 axes"},
		{"C 3,5", "permute 1,0,1", "permute: 3 axes are listed, the layout has 2"},
		{"C 3,5", "permute 1,1", "permute: axis 1 is there twice"},
		{"C 3,5", "permute 0,-3", "permute: axis -3 is outside the 2 axes there are"},
		{"C 3,5", "reshape 4,4", "reshape: from 15 items to 16"},
		{"C 3,5", "reshape -1,2,-1", "reshape: axes 0 and 2 are both -1; one can be"},
		{"C 3,5", "reshape 4,-1",
		 "reshape: axis 1 is -1, but 15 items are no multiple of 4"},
		{"C 3,5", "reshape -2,5",
		 "reshape: axis 0 has the extent -2; extents are not negative"},
		{"C 3,5", "[:, ::2]; reshape 9",
		 "reshape: axis 1 (extent 3, stride 2) does not follow on axis 0 (stride 5) as the "
		 "new shape wants; copy first"},
		{"C 3,5", "broadcast 4,5",
		 "broadcast: axis 0 has the extent 3, which becomes 4 only from 1"},
		{"C 3,5", "broadcast 5", "broadcast: to 1 axes from 2"},
		{"C 3,5", "unsqueeze 7", "unsqueeze: axis 7 is outside the 3 axes there are"},
		{"C 3,5", "repack 8", "repack: axis 1 holds 5 items, not a multiple of 2"},
		{"C 3,5", "[:, :4]; repack 8",
		 "repack: axis 0 has the stride 5, not a multiple of 2"},
		{"C 3,6", "[:, 1:5]; repack 8", "repack: the offset, 1, is not a multiple of 2"},
		{"C 3,4", "repack 8,-1,1,12", "repack: the address 0xc is not aligned to 8 bytes"},
		{"C 3,4", "repack 6",
		 "repack: neither of 4 and 6 bytes is a multiple of the other"},
		{"C 3,5", "flatten 1,0", "flatten: from axis 1 to 0, which lies before it"},
		{"C 3,5", "dense X", "99 is no order: C, F, K (of a layout) or a list of axes"},
	};
	for (size_t i = 0; i < N_OF(cases); i++) {
		hoist_layout layout = read_layout(cases[i].layout, 4);
		cr_expect_eq(do_steps(cases[i].steps, &layout), -EINVAL, "%s", cases[i].steps);
		cr_expect_str_eq(hoist_error(), cases[i].text, "%s: %s", cases[i].steps,
				 hoist_error());
	}
	hoist_layout back = read_layout("strides -1 3", 4);
	int64_t bytes = 77;
	cr_expect_eq(hoist_layout_required_bytes(&back, &bytes), -EINVAL);
	cr_expect_str_eq(hoist_error(), "the lowest item lies 2 items before the base, and no size "
					"reaches there; see hoist_layout_to_dense()");
	hoist_layout full = read_layout("C 1,1", 4);
	full.rank = 64;
	for (int i = 0; i < 64; i++)
		full.shape[i] = full.strides[i] = 1;
	cr_expect_eq(hoist_layout_unsqueeze(&full, 1, (int[]){0}, &full), -EINVAL);
	cr_expect_str_eq(hoist_error(), "unsqueeze: 1 more axes than 64; 64 is the most");
	cr_expect_eq(hoist_layout_unsqueeze(&back, -1, NULL, &back), -EINVAL);
	cr_expect_eq(hoist_layout_unsqueeze(&back, 1, NULL, &back), -EINVAL);
}
