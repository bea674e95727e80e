/* SPDX-License-Identifier: MIT */
/* Views: which elements they show, and what is refused.  What a view shows is compared with an
 * index computed by hand, on buffers whose element i holds i. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/hoist.h"
#include "tests/lib-support.h"

#define MAX_RANK 4

static hoist_device *cpu;

static void open_cpu(void)
{
	cr_assert_eq(hoist_device_open("cpu", &cpu), 0, "%s", hoist_error());
}

static hoist_buffer *create(hoist_dtype dtype, int rank, const int64_t *shape)
{
	hoist_buffer *buffer = NULL;
	cr_assert_eq(hoist_buffer_create(cpu, dtype, rank, shape, HOIST_BUFFER_ZERO, &buffer), 0,
		     "%s", hoist_error());
	return buffer;
}

/* i32, element i (in C order) holds i. */
static hoist_buffer *count(int rank, const int64_t *shape)
{
	hoist_buffer *buffer = create(HOIST_I32, rank, shape);
	int32_t *data = hoist_buffer_data(buffer);
	for (uint64_t i = 0; i < hoist_buffer_elements(buffer); i++)
		data[i] = (int32_t)i;
	return buffer;
}

/* All elements in C order; unaligned ones, too.  Returns how many. */
static size_t read_i32(const hoist_buffer *buffer, int32_t *values)
{
	int rank = hoist_buffer_rank(buffer);
	const int64_t *shape = hoist_buffer_shape(buffer);
	const int64_t *strides = hoist_buffer_strides(buffer);
	int64_t index[MAX_RANK] = {0};
	size_t n = (size_t)hoist_buffer_elements(buffer);
	for (size_t i = 0; i < n; i++) {
		const char *at = hoist_buffer_data(buffer);
		for (int k = 0; k < rank; k++)
			at += index[k] * strides[k] * (int64_t)sizeof *values;
		memcpy(&values[i], at, sizeof *values);
		for (int k = rank - 1; k >= 0 && ++index[k] == shape[k]; k--)
			index[k] = 0;
	}
	return n;
}

static void expect_text(const char *text)
{
	cr_expect_not_null(strstr(hoist_error(), text), "\"%s\" lacks \"%s\"", hoist_error(), text);
}

/* --- slices --- */

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
	 {{HOIST_NONE, 2, 1, 0}, {HOIST_NONE, 2, 1, 0}, {HOIST_NONE, 2, 1, 0}},
	 3,
	 {2, 2, 2},
	 0,
	 8,
	 {0, 1, 3, 4, 9, 10, 12, 13}},
	{"V013",
	 3,
	 {3, 3, 3},
	 3,
	 {{1, HOIST_NONE, 2, 0}, {1, HOIST_NONE, 2, 0}, {1, HOIST_NONE, 2, 0}},
	 3,
	 {1, 1, 1},
	 1,
	 1,
	 {13}},
	{"V015",
	 3,
	 {2, 3, 2},
	 3,
	 {{HOIST_NONE, HOIST_NONE, 1, 0}, {2, 0, 1, 1}, {HOIST_NONE, HOIST_NONE, 1, 0}},
	 2,
	 {2, 2},
	 0,
	 4,
	 {4, 5, 10, 11}},
	{"V016",
	 2,
	 {3, 3},
	 2,
	 {{HOIST_NONE, HOIST_NONE, -1, 0}, {HOIST_NONE, HOIST_NONE, -1, 0}},
	 2,
	 {3, 3},
	 0,
	 9,
	 {8, 7, 6, 5, 4, 3, 2, 1, 0}},
	{"V017",
	 3,
	 {3, 3, 3},
	 3,
	 {{4, HOIST_NONE, 1, 0}, {HOIST_NONE, 2, 1, 0}, {8, 10, -1, 0}},
	 3,
	 {0, 2, 0},
	 1,
	 0,
	 {0}},
	{"V021",
	 2,
	 {3, 3},
	 2,
	 {{HOIST_NONE, 2, 1, 0}, {HOIST_NONE, 2, 1, 0}},
	 2,
	 {2, 2},
	 0,
	 4,
	 {0, 1, 3, 4}},
	{"V025",
	 2,
	 {2, 3},
	 2,
	 {{0, 0, 1, 1}, {HOIST_NONE, HOIST_NONE, 1, 0}},
	 1,
	 {3},
	 1,
	 3,
	 {0, 1, 2}},
	{"V027", 1, {10}, 1, {{2, 5, 1, 0}}, 1, {3}, 1, 3, {2, 3, 4}},
	{"V075",
	 2,
	 {2, 5},
	 2,
	 {{1, 2, 1, 0}, {HOIST_NONE, HOIST_NONE, 1, 0}},
	 2,
	 {1, 5},
	 1,
	 5,
	 {5, 6, 7, 8, 9}},
	{"V076",
	 2,
	 {4, 5},
	 2,
	 {{-2, -1, 1, 0}, {HOIST_NONE, HOIST_NONE, 1, 0}},
	 2,
	 {1, 5},
	 1,
	 5,
	 {10, 11, 12, 13, 14}},
	{"fewer indices", 2, {3, 2}, 1, {{-1, 0, 1, 1}}, 1, {2}, 1, 2, {4, 5}},
	{"all integers", 2, {3, 2}, 2, {{-1, 0, 1, 1}, {-2, 0, 1, 1}}, 0, {0}, 1, 1, {4}},
	{"a column",
	 2,
	 {3, 2},
	 2,
	 {{HOIST_NONE, HOIST_NONE, 1, 0}, {1, 0, 1, 1}},
	 1,
	 {3},
	 0,
	 3,
	 {1, 3, 5}},
	{"adjacent rows",
	 2,
	 {4, 2},
	 2,
	 {{1, 3, 1, 0}, {HOIST_NONE, HOIST_NONE, 1, 0}},
	 2,
	 {2, 2},
	 1,
	 4,
	 {2, 3, 4, 5}},
};

/* proves: S0.11 S0.12 S0.13 S0.14 V011 V013 V015 V016 V017 V021 V025 V027 V075 V076 */
Test(view, slices_show_what_they_name, .init = open_cpu)
{
	int32_t values[64];
	for (size_t i = 0; i < sizeof slices / sizeof slices[0]; i++) {
		hoist_buffer *base = count(slices[i].rank, slices[i].shape);
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
		hoist_buffer_unref(view);
		hoist_buffer_unref(base);
	}
}

/* proves: S0.12 V011 V012 V013 V031 */
Test(view, a_slice_of_a_slice_is_the_same_memory, .init = open_cpu)
{
	hoist_buffer *base = count(3, (const int64_t[]){3, 3, 3});
	hoist_slice two[] = {HOIST_RANGE(HOIST_NONE, 2), HOIST_RANGE(HOIST_NONE, 2),
			     HOIST_RANGE(HOIST_NONE, 2)};
	hoist_slice one[] = {HOIST_RANGE(HOIST_NONE, 1), HOIST_RANGE(HOIST_NONE, 1),
			     HOIST_RANGE(HOIST_NONE, 1)};
	hoist_buffer *first;
	hoist_buffer *second;
	cr_assert_eq(hoist_buffer_slice(base, 3, two, &first), 0);
	cr_assert_eq(hoist_buffer_slice(first, 3, one, &second), 0);
	*(int32_t *)hoist_buffer_data(second) = 37;
	cr_expect_eq(*(int32_t *)hoist_buffer_data(base), 37);
	cr_expect_eq(*(int32_t *)hoist_buffer_data(first), 37);
	hoist_buffer_info a = {.size = sizeof a};
	hoist_buffer_info b = {.size = sizeof b};
	cr_assert_eq(hoist_buffer_get_info(base, &a), 0);
	cr_assert_eq(hoist_buffer_get_info(second, &b), 0);
	cr_expect_eq(a.storage_id, b.storage_id);
	cr_expect_neq(a.id, b.id);
	hoist_buffer_unref(base);
	hoist_buffer_unref(first);
	*(int32_t *)hoist_buffer_data(second) = 38; /* it keeps the memory */
	hoist_buffer_unref(second);
}

/* proves: S0.13 S0.14 V170 */
Test(view, wrong_indices_are_named, .init = open_cpu)
{
	hoist_buffer *base = count(2, (const int64_t[]){3, 5});
	hoist_buffer *view = NULL;
	cr_expect_eq(hoist_buffer_slice(base, 1, (hoist_slice[]){HOIST_AT(3)}, &view), -ERANGE);
	expect_text("3");
	cr_expect_eq(hoist_buffer_slice(base, 1, (hoist_slice[]){HOIST_AT(-4)}, &view), -ERANGE);
	expect_text("-4");
	/* Even if another axis is empty. */
	cr_expect_eq(
		hoist_buffer_slice(base, 2, (hoist_slice[]){HOIST_AT(3), HOIST_RANGE(2, 2)}, &view),
		-ERANGE);
	cr_expect_eq(
		hoist_buffer_slice(base, 2, (hoist_slice[]){HOIST_ALL, HOIST_STEP(0, 3, 0)}, &view),
		-EINVAL);
	cr_expect_eq(hoist_buffer_slice(base, 3, (hoist_slice[]){HOIST_ALL, HOIST_ALL, HOIST_ALL},
					&view),
		     -EINVAL);
	cr_expect_null(view);
	cr_expect_eq(hoist_buffer_slice(NULL, 0, NULL, &view), -EINVAL);
	hoist_buffer_unref(base);
}

/* proves: S0.12 */
Test(view, parts_of_bytes_begin_at_bits, .init = open_cpu)
{
	hoist_buffer *base = create(HOIST_F4_E2M1FN, 2, (const int64_t[]){2, 6});
	hoist_buffer *view = NULL;
	cr_assert_eq(
		hoist_buffer_slice(base, 2, (hoist_slice[]){HOIST_AT(1), HOIST_RANGE(1, 4)}, &view),
		0);
	hoist_buffer_info info = {.size = sizeof info};
	cr_assert_eq(hoist_buffer_get_info(view, &info), 0);
	cr_expect_eq(info.offset, 3); /* element 7 is the upper half of byte 3 */
	cr_expect_eq(info.bit_offset, 4);
	cr_expect_eq(hoist_buffer_bytes(view), 2); /* 12 bits */
	cr_expect_not(hoist_buffer_is_aligned(view, 1));
	hoist_buffer *as = NULL;
	cr_expect_eq(hoist_buffer_view_as(view, HOIST_U8, &as), -EINVAL);
	expect_text("bit 4");
	hoist_buffer_unref(view);
	hoist_buffer_unref(base);
}

/* proves: S0.12 */
Test(view, blocks_are_sliced_between_blocks, .init = open_cpu)
{
	hoist_buffer *base = create(HOIST_Q4_0, 2, (const int64_t[]){4, 128}); /* 18 bytes for 32 */
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_slice(base, 2,
					(hoist_slice[]){HOIST_RANGE(1, 3), HOIST_RANGE(32, 96)},
					&view),
		     0, "%s", hoist_error());
	hoist_buffer_info info = {.size = sizeof info};
	cr_assert_eq(hoist_buffer_get_info(view, &info), 0);
	cr_expect_eq(info.offset, 5 * 18);
	cr_expect_eq(hoist_buffer_bytes(view), (size_t)4 * 18);
	hoist_buffer_unref(view);
	cr_expect_eq(
		hoist_buffer_slice(base, 2, (hoist_slice[]){HOIST_ALL, HOIST_RANGE(0, 33)}, &view),
		-EINVAL);
	expect_text("blocks of 32");
	cr_expect_eq(hoist_buffer_slice(base, 2, (hoist_slice[]){HOIST_ALL, HOIST_AT(0)}, &view),
		     -EINVAL);
	cr_expect_eq(hoist_buffer_slice(base, 2, (hoist_slice[]){HOIST_ALL, HOIST_STEP(0, 64, 2)},
					&view),
		     -EINVAL);
	cr_expect_eq(hoist_buffer_view_as(base, HOIST_U8, &view), -EINVAL);
	expect_text("blocks");
	hoist_buffer_unref(base);
}

/* proves: S0.14 */
Test(view, without_elements_goes_nowhere, .init = open_cpu)
{
	hoist_buffer *base = create(HOIST_F64, 2, (const int64_t[]){0, INT64_MAX / 16});
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_slice(
			     base, 2,
			     (hoist_slice[]){HOIST_ALL, HOIST_STEP(HOIST_NONE, HOIST_NONE, -1)},
			     &view),
		     0, "%s", hoist_error());
	hoist_buffer_info info = {.size = sizeof info};
	cr_assert_eq(hoist_buffer_get_info(view, &info), 0);
	cr_expect_eq(info.offset, 0);
	hoist_buffer_unref(view);
	hoist_buffer_unref(base);
}

/* --- other shapes --- */

/* proves: S3.32 V174 V175 */
Test(view, reshapes_without_a_copy_or_not_at_all, .init = open_cpu)
{
	hoist_buffer *base = count(2, (const int64_t[]){4, 6});
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_reshape(base, 3, (const int64_t[]){2, -1, 3}, &view), 0, "%s",
		     hoist_error());
	cr_expect_eq(hoist_buffer_shape(view)[1], 4);
	cr_expect_eq(hoist_buffer_data(view), hoist_buffer_data(base));
	hoist_buffer_unref(view);
	cr_expect_eq(hoist_buffer_reshape(base, 1, (const int64_t[]){23}, &view), -EINVAL);
	hoist_buffer *columns = NULL;
	cr_assert_eq(hoist_buffer_slice(base, 2, (hoist_slice[]){HOIST_ALL, HOIST_RANGE(0, 5)},
					&columns),
		     0);
	cr_expect_eq(hoist_buffer_reshape(columns, 1, (const int64_t[]){20}, &view), -EINVAL);
	hoist_buffer_unref(columns);
	hoist_buffer_unref(base);
}

/* proves: S3.31 */
Test(view, permutes_axes, .init = open_cpu)
{
	int32_t values[6];
	hoist_buffer *base = count(2, (const int64_t[]){2, 3});
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_permute(base, (const int[]){-1, 0}, &view), 0, "%s",
		     hoist_error());
	cr_assert_eq(read_i32(view, values), 6);
	cr_expect_arr_eq(values, ((const int32_t[]){0, 3, 1, 4, 2, 5}), sizeof values);
	hoist_buffer_unref(view);
	cr_expect_eq(hoist_buffer_permute(base, (const int[]){0, 0}, &view), -EINVAL);
	hoist_buffer_unref(base);
}

/* --- other dtypes --- */

static const struct {
	const char *vector;
	hoist_dtype from;
	int rank;
	int64_t shape[2];
	hoist_dtype to;
	int err;
	int64_t last; /* extent of the last axis */
	const char *text;
} dtypes[] = {
	{"V058", HOIST_I8, 2, {2, 4}, HOIST_I16, 0, 2, NULL},
	{"grows", HOIST_I32, 2, {2, 3}, HOIST_I8, 0, 12, NULL},
	{"same size", HOIST_F32, 2, {2, 3}, HOIST_I32, 0, 3, NULL},
	{"to bits", HOIST_U8, 1, {3}, HOIST_F4_E2M1FN, 0, 6, NULL},
	{"from bits", HOIST_F6_E2M3FN, 1, {4}, HOIST_U8, 0, 3, NULL},
	{"the issue's own",
	 HOIST_I8,
	 2,
	 {2, 4},
	 HOIST_I64,
	 -EINVAL,
	 0,
	 "view(i64): last axis holds 4 bytes, not a multiple of 8"},
	{"V082", HOIST_F32, 0, {0}, HOIST_U8, -ERANGE, 0, "rank 0"},
	{"no dtype", HOIST_F32, 1, {4}, (hoist_dtype)31, -EINVAL, 0, "31"},
};

/* proves: S0.26 V058 V082 */
Test(view, the_last_axis_takes_another_dtype, .init = open_cpu)
{
	for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
		hoist_buffer *base = create(dtypes[i].from, dtypes[i].rank, dtypes[i].shape);
		hoist_buffer *view = NULL;
		cr_expect_eq(hoist_buffer_view_as(base, dtypes[i].to, &view), dtypes[i].err,
			     "%s: %s", dtypes[i].vector, hoist_error());
		if (dtypes[i].err == 0) {
			cr_expect_eq(hoist_buffer_shape(view)[dtypes[i].rank - 1], dtypes[i].last,
				     "%s", dtypes[i].vector);
			cr_expect_eq(hoist_buffer_data(view), hoist_buffer_data(base));
			cr_expect_eq(hoist_buffer_bytes(view), hoist_buffer_bytes(base));
		} else {
			expect_text(dtypes[i].text);
		}
		hoist_buffer_unref(view);
		hoist_buffer_unref(base);
	}
}

/* proves: S0.26 V057 V058 V060 V066 */
Test(view, of_other_dtypes_is_the_same_bytes, .init = open_cpu)
{
	hoist_buffer *base = create(HOIST_I8, 2, (const int64_t[]){2, 6});
	int8_t *bytes = hoist_buffer_data(base);
	for (int i = 0; i < 12; i++)
		bytes[i] = (int8_t)(10 * (i / 6) + i % 6);
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_view(base, 0, HOIST_I8, 2, (const int64_t[]){6, 2}, &view), 0);
	const int8_t *seen = hoist_buffer_data(view);
	cr_expect_eq(seen[0], 0);
	cr_expect_eq(seen[2], 2);
	cr_expect_eq(seen[3 * 2 + 1], 11);
	cr_expect_eq(seen[5 * 2 + 1], 15);
	hoist_buffer_unref(view);
	cr_assert_eq(hoist_buffer_view_as(base, HOIST_I16, &view), 0);
	memset(hoist_buffer_data(view), 0, 2);
	cr_expect_eq(bytes[0], 0);
	cr_expect_eq(bytes[1], 0);
	hoist_buffer_unref(view);
	cr_assert_eq(hoist_buffer_view(base, 1, HOIST_I32, 1, (const int64_t[]){2}, &view), 0);
	cr_expect(hoist_buffer_is_aligned(view, 1));
	cr_expect_not(hoist_buffer_is_aligned(view, 4));
	cr_expect_not(hoist_buffer_is_aligned(view, 0));
	cr_expect(hoist_buffer_is_aligned(base, 0));
	hoist_buffer_unref(view);
	hoist_buffer_unref(base);
}

/* proves: S0.26 */
Test(view, strided_rows_take_another_dtype, .init = open_cpu)
{
	hoist_buffer *base = create(HOIST_I8, 2, (const int64_t[]){3, 8});
	hoist_buffer *rows = NULL;
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_slice(
			     base, 2,
			     (hoist_slice[]){HOIST_STEP(2, HOIST_NONE, -2), HOIST_RANGE(4, 8)},
			     &rows),
		     0);
	cr_assert_eq(hoist_buffer_view_as(rows, HOIST_I16, &view), 0, "%s", hoist_error());
	cr_expect_eq(hoist_buffer_strides(view)[0], -8);
	cr_expect_eq(hoist_buffer_shape(view)[1], 2);
	cr_expect_eq(hoist_buffer_data(view), hoist_buffer_data(rows));
	hoist_buffer_unref(view);
	cr_expect_eq(hoist_buffer_view(rows, 0, HOIST_I8, 1, (const int64_t[]){8}, &view), -EINVAL);
	expect_text("contiguous");
	hoist_buffer_unref(rows);
	cr_assert_eq(hoist_buffer_slice(
			     base, 2,
			     (hoist_slice[]){HOIST_ALL, HOIST_STEP(HOIST_NONE, HOIST_NONE, 2)},
			     &rows),
		     0);
	cr_expect_eq(hoist_buffer_view_as(rows, HOIST_I16, &view), -EINVAL);
	expect_text("axis 1 has stride 2");
	hoist_buffer_unref(rows);
	hoist_buffer_unref(base);
}

/* Strides that lead nowhere forbid nothing: of axes of extent 1, and where there are no elements.
 */
/* proves: S0.11 S0.26 */
Test(view, strides_that_do_not_count_take_another_dtype, .init = open_cpu)
{
	hoist_buffer *base = create(HOIST_I8, 2, (const int64_t[]){3, 5});
	hoist_buffer *row = NULL;
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_slice(
			     base, 2, (hoist_slice[]){HOIST_RANGE(1, 2), HOIST_RANGE(0, 4)}, &row),
		     0);
	cr_assert(hoist_buffer_is_contiguous(row));
	cr_assert_eq(hoist_buffer_view_as(row, HOIST_I16, &view), 0, "%s", hoist_error());
	cr_expect_eq(hoist_buffer_shape(view)[1], 2);
	cr_expect(hoist_buffer_is_contiguous(view));
	cr_expect_eq(hoist_buffer_data(view), hoist_buffer_data(row));
	hoist_buffer_unref(view);
	hoist_buffer_unref(row);
	hoist_buffer_unref(base);

	static const struct {
		int64_t shape[2];
		int64_t last;
	} empty[] = {{{2, 0}, 0}, {{0, 6}, 3}};
	for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
		base = create(HOIST_I8, 2, empty[i].shape);
		/* Slices without elements have strides of 0. */
		cr_assert_eq(
			hoist_buffer_slice(base, 2, (hoist_slice[]){HOIST_ALL, HOIST_ALL}, &row),
			0);
		cr_assert_eq(hoist_buffer_view_as(row, HOIST_I16, &view), 0, "%s", hoist_error());
		cr_expect_eq(hoist_buffer_shape(view)[0], empty[i].shape[0]);
		cr_expect_eq(hoist_buffer_shape(view)[1], empty[i].last);
		hoist_buffer_unref(view);
		hoist_buffer_unref(row);
		hoist_buffer_unref(base);
	}
}

/* A part of the last byte is a byte, as in a buffer of its own. */
/* proves: S0.26 S4.04 */
Test(view, of_elements_that_fill_no_whole_bytes, .init = open_cpu)
{
	hoist_buffer *base = create(HOIST_U8, 1, (const int64_t[]){3});
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_view(base, 1, HOIST_F4_E2M1FN, 1, (const int64_t[]){3}, &view), 0,
		     "%s", hoist_error());
	cr_expect_eq(hoist_buffer_bytes(view), 2);
	hoist_buffer_unref(view);
	cr_expect_eq(hoist_buffer_view(base, 1, HOIST_F4_E2M1FN, 1, (const int64_t[]){5}, &view),
		     -EINVAL);
	expect_text("3 bytes from byte 1");
	hoist_buffer_unref(base);
}

/* --- any layout --- */

/* proves: S3.07 S3.08 S3.09 V204 V205 V210 */
Test(view, any_layout_within_the_buffer, .init = open_cpu)
{
	hoist_layout layout;
	hoist_buffer *view = NULL;
	hoist_buffer *bytes = create(HOIST_U8, 1, (const int64_t[]){20});
	cr_assert_eq(hoist_layout_make(2, (const int64_t[]){5, 4}, NULL, 2, 0, &layout), 0);
	cr_expect_eq(hoist_buffer_with_layout(bytes, &layout, HOIST_I16, &view), -EINVAL, "V204");
	expect_text("at least 40 bytes, got 20");
	cr_expect_eq(hoist_buffer_with_layout(bytes, &layout, HOIST_I32, &view), -EINVAL, "V210");
	expect_text("2 bytes");
	hoist_buffer_unref(bytes);

	hoist_buffer *base = count(2, (const int64_t[]){5, 6});
	cr_assert_eq(hoist_buffer_get_layout(base, &layout), 0);
	cr_assert_eq(hoist_layout_slice(&layout, 2,
					(hoist_slice[]){HOIST_AT(2), HOIST_RANGE(1, -1)}, &layout),
		     0);
	cr_assert_eq(hoist_buffer_with_layout(base, &layout, HOIST_I32, &view), 0, "V205");
	cr_expect_eq((char *)hoist_buffer_data(view) - (char *)hoist_buffer_data(base), 52);
	cr_expect_eq(hoist_buffer_shape(view)[0], 4);
	hoist_buffer_unref(view);
	layout.offset = -1;
	cr_expect_eq(hoist_buffer_with_layout(base, &layout, HOIST_I32, &view), -EINVAL);
	expect_text("before the first element");
	layout.offset = 0;
	layout.shape[0] = -1;
	cr_expect_eq(hoist_buffer_with_layout(base, &layout, HOIST_I32, &view), -EINVAL);
	layout.rank = 65;
	cr_expect_eq(hoist_buffer_with_layout(base, &layout, HOIST_I32, &view), -EINVAL);
	cr_expect_eq(hoist_buffer_with_layout(base, NULL, HOIST_I32, &view), -EINVAL);
	layout = (hoist_layout){.rank = 0, .itemsize = 1, .offset = INT64_MIN};
	cr_expect_eq(hoist_buffer_with_layout(base, &layout, HOIST_U8, &view), -EINVAL);
	expect_text("begins 9223372036854775808 bytes before");
	cr_expect_eq(hoist_buffer_with_layout(base, &layout, (hoist_dtype)999, &view), -EINVAL);
	expect_text("999 is no dtype");
	cr_expect_eq(hoist_buffer_slice(base, 1, NULL, &view), -EINVAL);
	expect_text("the 1 indices are NULL");
	hoist_buffer_unref(base);
}

/* proves: S3.07 V203 */
Test(view, dense_layouts_need_the_bytes_of_their_items, .init = open_cpu)
{
	static const struct {
		int rank;
		int64_t shape[3], n;
	} cases[] = {{0, {0}, 1}, {2, {2, 3}, 6}, {2, {10, 10}, 100}, {3, {10, 13, 11}, 1430}};
	for (size_t i = 0; i < 8 * sizeof cases / sizeof cases[0]; i++) {
		int rank = cases[i / 8].rank;
		int64_t itemsize = i & 1 ? 4 : 1;
		hoist_dtype dtype = i & 1 ? HOIST_I32 : HOIST_I8;
		hoist_layout layout;
		hoist_buffer *view = NULL;
		hoist_buffer_info info = {.size = sizeof info};
		int64_t bytes = 0;
		cr_assert_eq(hoist_layout_dense(rank, cases[i / 8].shape, itemsize,
						i & 2 ? HOIST_ORDER_F : HOIST_ORDER_C, NULL,
						&layout),
			     0);
		cr_assert_eq(hoist_layout_required_bytes(&layout, &bytes), 0);
		cr_expect_eq(bytes, cases[i / 8].n * itemsize, "V203");
		hoist_buffer *base = create(HOIST_U8, 1, &bytes);
		if (i & 4)
			cr_assert_eq(hoist_buffer_freeze(base), 0);
		cr_assert_eq(hoist_buffer_with_layout(base, &layout, dtype, &view), 0, "%s",
			     hoist_error());
		cr_expect_eq(hoist_buffer_data(view), hoist_buffer_data(base), "V203");
		cr_assert_eq(hoist_buffer_get_info(view, &info), 0);
		cr_expect_eq(info.is_read_only, (i & 4) != 0, "V203");
		hoist_buffer_unref(view);
		hoist_buffer_unref(base);
		bytes--;
		base = create(HOIST_U8, 1, &bytes);
		cr_expect_eq(hoist_buffer_with_layout(base, &layout, dtype, &view), -EINVAL,
			     "V203");
		hoist_buffer_unref(base);
	}
}

/* proves: S3.07 */
Test(view, a_layout_may_go_back_where_its_buffer_does, .init = open_cpu)
{
	int32_t values[4];
	hoist_layout layout;
	hoist_buffer *base = count(1, (const int64_t[]){8});
	hoist_buffer *reversed = NULL;
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_slice(base, 1, (hoist_slice[]){HOIST_STEP(5, 1, -1)}, &reversed),
		     0);
	cr_assert_eq(
		hoist_layout_make(1, (const int64_t[]){4}, (const int64_t[]){1}, 4, 0, &layout), 0);
	layout.offset = -3;
	cr_assert_eq(hoist_buffer_with_layout(reversed, &layout, HOIST_I32, &view), 0, "%s",
		     hoist_error());
	cr_assert_eq(read_i32(view, values), 4);
	cr_expect_arr_eq(values, ((const int32_t[]){2, 3, 4, 5}), sizeof values);
	hoist_buffer_unref(view);
	layout.offset = -4; /* there is storage, but the view did not show it */
	cr_expect_eq(hoist_buffer_with_layout(reversed, &layout, HOIST_I32, &view), -EINVAL);
	hoist_buffer_unref(reversed);
	hoist_buffer_unref(base);
}

/* --- random slices, against the indices that they name --- */

static int64_t draw(uint64_t *state, int64_t least, int64_t most)
{
	return least + (int64_t)(lib_random(state) % (uint64_t)(most - least + 1));
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
		hoist_buffer *at = count(3, shape);
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
			hoist_buffer *view = NULL;
			cr_assert_eq(hoist_buffer_slice(at, rank, named, &view), 0, "%s",
				     hoist_error());
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
