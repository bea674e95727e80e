/* SPDX-License-Identifier: MIT */
/* Views: the elements that they show, and the views that are refused.  Element i of the buffers
 * holds i, so that a view's elements are compared with indices computed by hand. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/lib-unit.h"
#include "tests/support/random.h"

/* --- slices --- */

/* Slices in a table: the compound literals of hoist/buffer.h are no constants. */
#define EVERY HOIST_NONE, HOIST_NONE, 1, 0
#define BACK HOIST_NONE, HOIST_NONE, -1, 0
#define ODD 1, HOIST_NONE, 2, 0
#define TO(stop) HOIST_NONE, stop, 1, 0
#define FROM(start, stop) start, stop, 1, 0
#define ONE(at) at, 0, 1, 1

static const struct {
	const char *vector;
	int rank;
	int64_t shape[3];
	int n;
	hoist_slice slices[3];
	int view_rank;
	int64_t view_shape[3];
	int contiguous;
	int n_values; /* elements of the view in C order */
	int32_t values[10];
} slices[] = {
	{"V011",
	 3,
	 {3, 3, 3},
	 3,
	 {{TO(2)}, {TO(2)}, {TO(2)}},
	 3,
	 {2, 2, 2},
	 0,
	 8,
	 {0, 1, 3, 4, 9, 10, 12, 13}},
	{"V013", 3, {3, 3, 3}, 3, {{ODD}, {ODD}, {ODD}}, 3, {1, 1, 1}, 1, 1, {13}},
	{"V015", 3, {2, 3, 2}, 3, {{EVERY}, {ONE(2)}, {EVERY}}, 2, {2, 2}, 0, 4, {4, 5, 10, 11}},
	{"V016", 2, {3, 3}, 2, {{BACK}, {BACK}}, 2, {3, 3}, 0, 9, {8, 7, 6, 5, 4, 3, 2, 1, 0}},
	{"V017",
	 3,
	 {3, 3, 3},
	 3,
	 {{FROM(4, HOIST_NONE)}, {TO(2)}, {8, 10, -1, 0}},
	 3,
	 {0, 2, 0},
	 1,
	 0,
	 {0}},
	{"V021", 2, {3, 3}, 2, {{TO(2)}, {TO(2)}}, 2, {2, 2}, 0, 4, {0, 1, 3, 4}},
	{"V025", 2, {2, 3}, 2, {{ONE(0)}, {EVERY}}, 1, {3}, 1, 3, {0, 1, 2}},
	{"V027", 1, {10}, 1, {{FROM(2, 5)}}, 1, {3}, 1, 3, {2, 3, 4}},
	{"V075", 2, {2, 5}, 2, {{FROM(1, 2)}, {EVERY}}, 2, {1, 5}, 1, 5, {5, 6, 7, 8, 9}},
	{"V076", 2, {4, 5}, 2, {{FROM(-2, -1)}, {EVERY}}, 2, {1, 5}, 1, 5, {10, 11, 12, 13, 14}},
	{"fewer indices", 2, {3, 2}, 1, {{ONE(-1)}}, 1, {2}, 1, 2, {4, 5}},
	{"all integers", 2, {3, 2}, 2, {{ONE(-1)}, {ONE(-2)}}, 0, {0}, 1, 1, {4}},
	{"a column", 2, {3, 2}, 2, {{EVERY}, {ONE(1)}}, 1, {3}, 0, 3, {1, 3, 5}},
	{"adjacent rows", 2, {4, 2}, 2, {{FROM(1, 3)}, {EVERY}}, 2, {2, 2}, 1, 4, {2, 3, 4, 5}},
};

/* proves: S0.11 S0.12 S0.13 S0.14 V011 V013 V015 V016 V017 V021 V025 V027 V075 V076 */
Test(view, slices_show_the_elements_that_they_name, .init = open_cpu)
{
	int32_t values[64];
	for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
		hoist_buffer *base = counted(devices[0], slices[i].rank, slices[i].shape);
		hoist_buffer *view = NULL;
		cr_assert_eq(hoist_buffer_slice(base, slices[i].n, slices[i].slices, &view), 0,
			     "%s: %s", slices[i].vector, hoist_error());
		cr_expect_eq(hoist_buffer_rank(view), slices[i].view_rank, "%s", slices[i].vector);
		for (int k = 0; k < slices[i].view_rank; k++)
			cr_expect_eq(hoist_buffer_shape(view)[k], slices[i].view_shape[k], "%s",
				     slices[i].vector);
		cr_expect_eq(hoist_buffer_is_contiguous(view), slices[i].contiguous, "%s",
			     slices[i].vector);
		size_t n = read_i32(view, values);
		cr_assert_eq(n, (size_t)slices[i].n_values, "%s", slices[i].vector);
		for (size_t k = 0; k < n; k++)
			cr_expect_eq(values[k], slices[i].values[k], "%s: element %zu",
				     slices[i].vector, k);
		DROP(view, base);
	}
}

/* proves: S0.12 V011 V012 V013 */
Test(view, a_slice_of_a_slice_is_the_same_memory, .init = open_cpu)
{
	hoist_buffer *base = counted(devices[0], 3, SHAPE(3, 3, 3));
	hoist_slice two[] = {HOIST_RANGE(HOIST_NONE, 2), HOIST_RANGE(HOIST_NONE, 2),
			     HOIST_RANGE(HOIST_NONE, 2)};
	hoist_slice one[] = {HOIST_RANGE(HOIST_NONE, 1), HOIST_RANGE(HOIST_NONE, 1),
			     HOIST_RANGE(HOIST_NONE, 1)};
	hoist_buffer *first;
	hoist_buffer *second;
	OK(hoist_buffer_slice(base, 3, two, &first));
	OK(hoist_buffer_slice(first, 3, one, &second));
	*(int32_t *)hoist_buffer_data(second) = 37;
	cr_expect_eq(*(int32_t *)hoist_buffer_data(base), 37);
	cr_expect_eq(*(int32_t *)hoist_buffer_data(first), 37);
	hoist_buffer_info a = info_of(base);
	hoist_buffer_info b = info_of(second);
	cr_expect_eq(a.storage_id, b.storage_id);
	cr_expect_neq(a.id, b.id);
	DROP(base, first);
	*(int32_t *)hoist_buffer_data(second) = 38; /* the view keeps the memory */
	hoist_buffer_unref(second);
}

/* proves: S0.13 S0.14 V170 */
Test(view, wrong_indices_are_named, .init = open_cpu)
{
	hoist_buffer *base = counted(devices[0], 2, SHAPE(3, 5));
	hoist_buffer *view = NULL;
	REFUSED(hoist_buffer_slice(base, 1, SLICES(HOIST_AT(3)), &view), -ERANGE, "3");
	REFUSED(hoist_buffer_slice(base, 1, SLICES(HOIST_AT(-4)), &view), -ERANGE, "-4");
	/* Even if another axis is empty. */
	cr_expect_eq(hoist_buffer_slice(base, 2, SLICES(HOIST_AT(3), HOIST_RANGE(2, 2)), &view),
		     -ERANGE);
	cr_expect_eq(hoist_buffer_slice(base, 2, SLICES(HOIST_ALL, HOIST_STEP(0, 3, 0)), &view),
		     -EINVAL);
	cr_expect_eq(hoist_buffer_slice(base, 3, SLICES(HOIST_ALL, HOIST_ALL, HOIST_ALL), &view),
		     -EINVAL);
	cr_expect_null(view);
	cr_expect_eq(hoist_buffer_slice(NULL, 0, NULL, &view), -EINVAL);
	hoist_buffer_unref(base);
}

/* proves: S0.12 */
Test(view, parts_of_bytes_begin_at_bits, .init = open_cpu)
{
	hoist_buffer *base = zeroed(devices[0], HOIST_F4_E2M1FN, 2, SHAPE(2, 6));
	hoist_buffer *view = make_slice(base, 2, SLICES(HOIST_AT(1), HOIST_RANGE(1, 4)));
	hoist_buffer_info info = info_of(view);
	cr_expect_eq(info.offset, 3); /* element 7 is the upper half of byte 3 */
	cr_expect_eq(info.bit_offset, 4);
	cr_expect_eq(hoist_buffer_bytes(view), 2); /* 12 bits */
	cr_expect_not(hoist_buffer_is_aligned(view, 1));
	hoist_buffer *as = NULL;
	REFUSED(hoist_buffer_view_as(view, HOIST_U8, &as), -EINVAL, "bit 4");
	DROP(view, base);
}

/* proves: S0.12 */
Test(view, blocks_are_sliced_between_blocks, .init = open_cpu)
{
	hoist_buffer *base = zeroed(devices[0], HOIST_Q4_0, 2, SHAPE(4, 128)); /* 18 bytes for 32 */
	hoist_buffer *view = make_slice(base, 2, SLICES(HOIST_RANGE(1, 3), HOIST_RANGE(32, 96)));
	hoist_buffer_info info = info_of(view);
	cr_expect_eq(info.offset, 5 * 18);
	cr_expect_eq(hoist_buffer_bytes(view), (size_t)4 * 18);
	hoist_buffer_unref(view);
	REFUSED(hoist_buffer_slice(base, 2, SLICES(HOIST_ALL, HOIST_RANGE(0, 33)), &view), -EINVAL,
		"blocks of 32");
	cr_expect_eq(hoist_buffer_slice(base, 2, SLICES(HOIST_ALL, HOIST_AT(0)), &view), -EINVAL);
	cr_expect_eq(hoist_buffer_slice(base, 2, SLICES(HOIST_ALL, HOIST_STEP(0, 64, 2)), &view),
		     -EINVAL);
	REFUSED(hoist_buffer_view_as(base, HOIST_U8, &view), -EINVAL, "blocks");
	hoist_buffer_unref(base);
}

/* proves: S0.14 */
Test(view, without_elements_goes_nowhere, .init = open_cpu)
{
	hoist_buffer *base = zeroed(devices[0], HOIST_F64, 2, SHAPE(0, INT64_MAX / 16));
	hoist_buffer *view =
		make_slice(base, 2, SLICES(HOIST_ALL, HOIST_STEP(HOIST_NONE, HOIST_NONE, -1)));
	hoist_buffer_info info = info_of(view);
	cr_expect_eq(info.offset, 0);
	DROP(view, base);
}

/* --- other shapes --- */

/* proves: S3.32 */
Test(view, reshapes_without_a_copy_or_not_at_all, .init = open_cpu)
{
	hoist_buffer *base = counted(devices[0], 2, SHAPE(4, 6));
	hoist_buffer *view = NULL;
	OK(hoist_buffer_reshape(base, 3, SHAPE(2, -1, 3), &view));
	cr_expect_eq(hoist_buffer_shape(view)[1], 4);
	cr_expect_eq(hoist_buffer_data(view), hoist_buffer_data(base));
	hoist_buffer_unref(view);
	cr_expect_eq(hoist_buffer_reshape(base, 1, SHAPE(23), &view), -EINVAL);
	hoist_buffer *columns = make_slice(base, 2, SLICES(HOIST_ALL, HOIST_RANGE(0, 5)));
	cr_expect_eq(hoist_buffer_reshape(columns, 1, SHAPE(20), &view), -EINVAL);
	DROP(columns, base);
}

/* proves: S3.31 */
Test(view, permutes_axes, .init = open_cpu)
{
	int32_t values[6];
	hoist_buffer *base = counted(devices[0], 2, SHAPE(2, 3));
	hoist_buffer *view = NULL;
	OK(hoist_buffer_permute(base, (const int[]){-1, 0}, &view));
	cr_assert_eq(read_i32(view, values), 6);
	cr_expect_arr_eq(values, ((const int32_t[]){0, 3, 1, 4, 2, 5}), sizeof values);
	hoist_buffer_unref(view);
	cr_expect_eq(hoist_buffer_permute(base, (const int[]){0, 0}, &view), -EINVAL);
	hoist_buffer_unref(base);
}

/* --- random slices, against the indices that they name --- */

static int64_t draw(uint64_t *state, int64_t least, int64_t most)
{
	return least + (int64_t)(random_next(state) % (uint64_t)(most - least + 1));
}

/* Python's rules, the slow way. */
static int64_t indices_of(const hoist_slice *slice, int64_t extent, int64_t *indices)
{
	int64_t n = 0;
	if (slice->is_index) {
		indices[n++] = slice->start < 0 ? slice->start + extent : slice->start;
		return n;
	}
	int64_t step = slice->step;
	int64_t low = step > 0 ? 0 : -1;
	int64_t high = step > 0 ? extent : extent - 1;
	int64_t start = slice->start == HOIST_NONE ? (step > 0 ? low : high)
			: slice->start < 0	   ? slice->start + extent
						   : slice->start;
	int64_t stop = slice->stop == HOIST_NONE ? (step > 0 ? high : low)
		       : slice->stop < 0	 ? slice->stop + extent
						 : slice->stop;
	start = start < low ? low : start > high ? high : start;
	stop = stop < low ? low : stop > high ? high : stop;
	for (int64_t i = start; step > 0 ? i < stop : i > stop; i += step)
		indices[n++] = i;
	return n;
}

static hoist_slice draw_slice(uint64_t *state, int64_t extent)
{
	if (extent > 0 && draw(state, 0, 3) == 0)
		return HOIST_AT(draw(state, -extent, extent - 1));
	hoist_slice slice = HOIST_STEP(draw(state, -7, 7), draw(state, -7, 7), draw(state, 1, 3));
	if (draw(state, 0, 1) == 0)
		slice.step = -slice.step;
	if (draw(state, 0, 2) == 0)
		slice.start = HOIST_NONE;
	if (draw(state, 0, 2) == 0)
		slice.stop = HOIST_NONE;
	return slice;
}

/* proves: S0.12 S0.13 S0.14 V076 */
Test(view, random_slices_of_slices_show_the_elements_named, .init = open_cpu)
{
	uint64_t state = 20261121;
	static int32_t before[256];
	static int32_t after[256];
	for (int round = 0; round < 2000; round++) {
		int64_t shape[3] = {draw(&state, 1, 6), draw(&state, 1, 6), draw(&state, 1, 6)};
		hoist_buffer *at = counted(devices[0], 3, shape);
		for (int depth = 0; depth < 3; depth++) {
			int rank = hoist_buffer_rank(at);
			const int64_t *extents = hoist_buffer_shape(at);
			hoist_slice named[3] = {HOIST_ALL, HOIST_ALL, HOIST_ALL};
			int64_t indices[3][8] = {{0}};
			int64_t n[3] = {1, 1, 1};
			for (int k = 0; k < rank; k++) {
				named[k] = draw_slice(&state, extents[k]);
				n[k] = indices_of(&named[k], extents[k], indices[k]);
			}
			(void)read_i32(at, before);
			hoist_buffer *view = make_slice(at, rank, named);
			cr_assert_eq(read_i32(view, after), (size_t)(n[0] * n[1] * n[2]));
			for (int64_t i = 0, o = 0; i < n[0]; i++)
				for (int64_t j = 0; j < n[1]; j++)
					for (int64_t k = 0; k < n[2]; k++, o++) {
						int64_t from = indices[0][i];
						from = rank > 1 ? from * extents[1] + indices[1][j]
								: from;
						from = rank > 2 ? from * extents[2] + indices[2][k]
								: from;
						cr_assert_eq(after[o], before[rank > 0 ? from : 0]);
					}
			hoist_buffer_unref(at);
			at = view;
		}
		hoist_buffer_unref(at);
	}
}
