/* SPDX-License-Identifier: MIT */
/* Views of the same bytes as another dtype, and of any layout. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/dlpack.h"
#include "hoist/element.h"
#include "hoist/layout.h"
#include "hoist/number.h"
#include "tests/support/lib-unit.h"

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
		hoist_buffer *base =
			zeroed(devices[0], dtypes[i].from, dtypes[i].rank, dtypes[i].shape);
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
		DROP(view, base);
	}
}

/* proves: S0.26 V057 V058 V060 V066 */
Test(view, another_dtype_shows_the_same_bytes, .init = open_cpu)
{
	hoist_buffer *base = zeroed(devices[0], HOIST_I8, 2, SHAPE(2, 6));
	int8_t *bytes = hoist_buffer_data(base);
	for (int i = 0; i < 12; i++)
		bytes[i] = (int8_t)(10 * (i / 6) + i % 6);
	hoist_buffer *view = make_view(base, 0, HOIST_I8, 2, SHAPE(6, 2));
	const int8_t *seen = hoist_buffer_data(view);
	cr_expect_eq(seen[0], 0);
	cr_expect_eq(seen[2], 2);
	cr_expect_eq(seen[3 * 2 + 1], 11);
	cr_expect_eq(seen[5 * 2 + 1], 15);
	hoist_buffer_unref(view);
	OK(hoist_buffer_view_as(base, HOIST_I16, &view));
	memset(hoist_buffer_data(view), 0, 2);
	cr_expect_eq(bytes[0], 0);
	cr_expect_eq(bytes[1], 0);
	hoist_buffer_unref(view);
	OK(hoist_buffer_view(base, 1, HOIST_I32, 1, SHAPE(2), &view));
	cr_expect(hoist_buffer_is_aligned(view, 1));
	cr_expect_not(hoist_buffer_is_aligned(view, 4));
	cr_expect_not(hoist_buffer_is_aligned(view, 0));
	cr_expect(hoist_buffer_is_aligned(base, 0));
	DROP(view, base);
}

/* proves: S0.26 */
Test(view, strided_rows_take_another_dtype, .init = open_cpu)
{
	hoist_buffer *base = zeroed(devices[0], HOIST_I8, 2, SHAPE(3, 8));
	hoist_buffer *rows =
		make_slice(base, 2, SLICES(HOIST_STEP(2, HOIST_NONE, -2), HOIST_RANGE(4, 8)));
	hoist_buffer *view = make_view_as(rows, HOIST_I16);
	cr_expect_eq(hoist_buffer_strides(view)[0], -8);
	cr_expect_eq(hoist_buffer_shape(view)[1], 2);
	cr_expect_eq(hoist_buffer_data(view), hoist_buffer_data(rows));
	hoist_buffer_unref(view);
	REFUSED(hoist_buffer_view(rows, 0, HOIST_I8, 1, SHAPE(8), &view), -EINVAL, "contiguous");
	hoist_buffer_unref(rows);
	OK(hoist_buffer_slice(base, 2, SLICES(HOIST_ALL, HOIST_STEP(HOIST_NONE, HOIST_NONE, 2)),
			      &rows));
	REFUSED(hoist_buffer_view_as(rows, HOIST_I16, &view), -EINVAL, "axis 1 has stride 2");
	DROP(rows, base);
}

/* Strides that lead nowhere forbid nothing: of axes of extent 1, and where there are no elements.
 */
/* proves: S0.11 S0.26 */
Test(view, strides_that_do_not_count_take_another_dtype, .init = open_cpu)
{
	hoist_buffer *base = zeroed(devices[0], HOIST_I8, 2, SHAPE(3, 5));
	hoist_buffer *row = make_slice(base, 2, SLICES(HOIST_RANGE(1, 2), HOIST_RANGE(0, 4)));
	cr_assert(hoist_buffer_is_contiguous(row));
	hoist_buffer *view = make_view_as(row, HOIST_I16);
	cr_expect_eq(hoist_buffer_shape(view)[1], 2);
	cr_expect(hoist_buffer_is_contiguous(view));
	cr_expect_eq(hoist_buffer_data(view), hoist_buffer_data(row));
	DROP(view, row, base);

	static const struct {
		int64_t shape[2];
		int64_t last;
	} empty[] = {{{2, 0}, 0}, {{0, 6}, 3}};
	for (size_t i = 0; i < sizeof empty / sizeof empty[0]; i++) {
		base = zeroed(devices[0], HOIST_I8, 2, empty[i].shape);
		/* Slices without elements have strides of 0. */
		OK(hoist_buffer_slice(base, 2, SLICES(HOIST_ALL, HOIST_ALL), &row));
		OK(hoist_buffer_view_as(row, HOIST_I16, &view));
		cr_expect_eq(hoist_buffer_shape(view)[0], empty[i].shape[0]);
		cr_expect_eq(hoist_buffer_shape(view)[1], empty[i].last);
		DROP(view, row, base);
	}
}

/* A part of the last byte is a byte, as in a buffer of its own. */
/* proves: S0.26 S4.04 */
Test(view, elements_may_fill_no_whole_bytes, .init = open_cpu)
{
	hoist_buffer *base = zeroed(devices[0], HOIST_U8, 1, SHAPE(3));
	hoist_buffer *view = make_view(base, 1, HOIST_F4_E2M1FN, 1, SHAPE(3));
	cr_expect_eq(hoist_buffer_bytes(view), 2);
	hoist_buffer_unref(view);
	REFUSED(hoist_buffer_view(base, 1, HOIST_F4_E2M1FN, 1, SHAPE(5), &view), -EINVAL,
		"3 bytes from byte 1");
	hoist_buffer_unref(base);
}

/* --- as arrays in C --- */

/* proves: S4.10 S4.11 V222 */
Test(view, an_array_is_of_the_buffers_own_dtype, .init = open_cpu)
{
	void *array = NULL;
	uint64_t n = 99;
	hoist_buffer *base = counted(devices[0], 2, SHAPE(3, 4));
	OK(hoist_buffer_host_array(base, HOIST_I32, 1, &array, &n));
	cr_expect_eq(n, 12);
	int32_t *values = array;
	cr_expect_eq(values[7], 7);
	values[7] = 70;
	array = NULL;
	static const hoist_dtype others[] = {HOIST_F32, HOIST_U32, HOIST_I64, HOIST_I8};
	for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
		cr_expect_eq(hoist_buffer_host_array(base, others[i], 0, &array, &n), -EPROTOTYPE,
			     "V222");
		expect_text(hoist_dtype_name(others[i]));
		expect_text("the buffer's elements are i32");
		cr_expect(array == NULL && n == 12, "untouched");
	}
	cr_expect_eq(hoist_buffer_host_array(base, (hoist_dtype)999, 0, &array, &n), -EINVAL);
	/* The caller makes a view of the wanted elements first. */
	hoist_buffer *other = make_view_as(base, HOIST_U16);
	OK(hoist_buffer_host_array(other, HOIST_U16, 0, &array, &n));
	cr_expect(n == 24 && ((uint16_t *)array)[14] == 70);
	hoist_buffer_unref(other);
	OK(hoist_buffer_freeze(base));
	cr_expect_eq(hoist_buffer_host_array(base, HOIST_I32, 1, &array, &n), -EROFS);
	OK(hoist_buffer_host_array(base, HOIST_I32, 0, &array, &n));
	hoist_buffer_unref(base);
	cr_expect_eq(hoist_buffer_host_array(NULL, HOIST_I32, 0, &array, &n), -EINVAL);
}

/* proves: S4.10 S4.11 */
Test(view, an_array_has_its_memory_and_lies_as_c_wants, .init = open_cpu)
{
	void *array = NULL;
	uint64_t n = 99;
	hoist_buffer *b = make_buffer(devices[0], HOIST_F64, 1, SHAPE(5),
				      HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO);
	OK(hoist_buffer_host_array(b, HOIST_F64, 0, &array, &n));
	cr_expect(array != NULL && n == 5 && ((double *)array)[4] == 0);
	hoist_buffer *view = make_slice(b, 1, SLICES(HOIST_STEP(HOIST_NONE, HOIST_NONE, 2)));
	REFUSED(hoist_buffer_host_array(view, HOIST_F64, 0, &array, &n), -EINVAL, "not contiguous");
	hoist_buffer_unref(view);
	OK(hoist_buffer_view(b, 1, HOIST_F32, 1, SHAPE(2), &view));
	REFUSED(hoist_buffer_host_array(view, HOIST_F32, 0, &array, &n), -EINVAL,
		"is not aligned for f32");
	hoist_buffer_unref(view);
	OK(hoist_buffer_view(b, 0, HOIST_F32, 1, SHAPE(0), &view));
	OK(hoist_buffer_host_array(view, HOIST_F32, 0, &array, &n));
	cr_expect(array == NULL && n == 0, "no elements");
	DROP(view, b);
	b = zeroed(devices[0], HOIST_F4_E2M1FN, 1, SHAPE(4));
	REFUSED(hoist_buffer_host_array(b, HOIST_F4_E2M1FN, 0, &array, &n), -ENOTSUP,
		"no whole bytes");
	OK(hoist_buffer_close(b, NULL));
	cr_expect_eq(hoist_buffer_host_array(b, HOIST_F4_E2M1FN, 0, &array, &n), -EBADF);
	hoist_buffer_unref(b);
}

/* proves: S4.10 S4.11 V222 */
Test(view, an_array_of_device_memory_is_not_to_be_had)
{
	void *array = NULL;
	uint64_t n = 99;
	open_all();
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = zeroed(devices[i], HOIST_I32, 1, SHAPE(4));
		cr_expect_eq(hoist_buffer_host_array(b, HOIST_F32, 0, &array, &n), -EPROTOTYPE);
		REFUSED(hoist_buffer_host_array(b, HOIST_I32, 0, &array, &n), -ENOTSUP,
			"copy the buffer to the cpu");
		hoist_buffer_unref(b);
	}
}

/* --- any layout --- */

/* proves: S3.07 S3.08 S3.09 V204 V205 V210 */
Test(view, any_layout_within_the_buffer, .init = open_cpu)
{
	hoist_layout layout;
	hoist_buffer *view = NULL;
	hoist_buffer *bytes = zeroed(devices[0], HOIST_U8, 1, SHAPE(20));
	OK(hoist_layout_make(2, SHAPE(5, 4), NULL, 2, 0, &layout));
	cr_expect_eq(hoist_buffer_with_layout(bytes, &layout, HOIST_I16, &view), -EINVAL, "V204");
	expect_text("at least 40 bytes, got 20");
	cr_expect_eq(hoist_buffer_with_layout(bytes, &layout, HOIST_I32, &view), -EINVAL, "V210");
	expect_text("2 bytes");
	hoist_buffer_unref(bytes);

	hoist_buffer *base = counted(devices[0], 2, SHAPE(5, 6));
	OK(hoist_buffer_get_layout(base, &layout));
	OK(hoist_layout_slice(&layout, 2, SLICES(HOIST_AT(2), HOIST_RANGE(1, -1)), &layout));
	cr_assert_eq(hoist_buffer_with_layout(base, &layout, HOIST_I32, &view), 0, "V205");
	cr_expect_eq((char *)hoist_buffer_data(view) - (char *)hoist_buffer_data(base), 52);
	cr_expect_eq(hoist_buffer_shape(view)[0], 4);
	hoist_buffer_unref(view);
	layout.offset = -1;
	REFUSED(hoist_buffer_with_layout(base, &layout, HOIST_I32, &view), -EINVAL,
		"before the first element");
	layout.offset = 0;
	layout.shape[0] = -1;
	cr_expect_eq(hoist_buffer_with_layout(base, &layout, HOIST_I32, &view), -EINVAL);
	layout.rank = 65;
	cr_expect_eq(hoist_buffer_with_layout(base, &layout, HOIST_I32, &view), -EINVAL);
	cr_expect_eq(hoist_buffer_with_layout(base, NULL, HOIST_I32, &view), -EINVAL);
	layout = (hoist_layout){.rank = 0, .itemsize = 1, .offset = INT64_MIN};
	REFUSED(hoist_buffer_with_layout(base, &layout, HOIST_U8, &view), -EINVAL,
		"begins 9223372036854775808 bytes before");
	REFUSED(hoist_buffer_with_layout(base, &layout, (hoist_dtype)999, &view), -EINVAL,
		"999 is no dtype");
	REFUSED(hoist_buffer_slice(base, 1, NULL, &view), -EINVAL, "the 1 indices are NULL");
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
		int64_t bytes = 0;
		OK(hoist_layout_dense(rank, cases[i / 8].shape, itemsize,
				      i & 2 ? HOIST_ORDER_F : HOIST_ORDER_C, NULL, &layout));
		OK(hoist_layout_required_bytes(&layout, &bytes));
		cr_expect_eq(bytes, cases[i / 8].n * itemsize, "V203");
		hoist_buffer *base = zeroed(devices[0], HOIST_U8, 1, &bytes);
		if (i & 4)
			OK(hoist_buffer_freeze(base));
		OK(hoist_buffer_with_layout(base, &layout, dtype, &view));
		cr_expect_eq(hoist_buffer_data(view), hoist_buffer_data(base), "V203");
		hoist_buffer_info info = info_of(view);
		cr_expect_eq(info.is_read_only, (i & 4) != 0, "V203");
		DROP(view, base);
		bytes--;
		base = zeroed(devices[0], HOIST_U8, 1, &bytes);
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
	hoist_buffer *base = counted(devices[0], 1, SHAPE(8));
	hoist_buffer *view = NULL;
	hoist_buffer *reversed = make_slice(base, 1, SLICES(HOIST_STEP(5, 1, -1)));
	OK(hoist_layout_make(1, SHAPE(4), SHAPE(1), 4, 0, &layout));
	layout.offset = -3;
	OK(hoist_buffer_with_layout(reversed, &layout, HOIST_I32, &view));
	cr_assert_eq(read_i32(view, values), 4);
	cr_expect_arr_eq(values, ((const int32_t[]){2, 3, 4, 5}), sizeof values);
	hoist_buffer_unref(view);
	layout.offset = -4; /* the storage goes on, but the view does not */
	cr_expect_eq(hoist_buffer_with_layout(reversed, &layout, HOIST_I32, &view), -EINVAL);
	DROP(reversed, base);
}

/* --- strides that nobody gave --- */

/* The buffer's answers, and those of the layout that is made of the buffer. */
static void expect_implicit(hoist_buffer *buffer, int implicit, const char *what)
{
	hoist_layout layout;
	hoist_layout same;
	int rank = hoist_buffer_rank(buffer);
	cr_expect_eq(info_of(buffer).has_implicit_strides, implicit, "%s", what);
	OK(hoist_buffer_get_layout(buffer, &layout));
	cr_expect_eq(layout.implicit, implicit, "%s", what);
	OK(hoist_layout_make(rank, hoist_buffer_shape(buffer),
			     implicit ? NULL : hoist_buffer_strides(buffer), layout.itemsize, 0,
			     &same));
	cr_expect(hoist_layout_equal(&layout, &same), "%s", what);
	same.implicit = !implicit;
	cr_expect(!hoist_layout_equal(&layout, &same), "V198 %s", what);
	hoist_buffer_unref(buffer);
}

static hoist_buffer *take_part(hoist_buffer *base, int n, const hoist_slice *slices)
{
	return make_slice(base, n, slices);
}

/* proves: S3.05 S3.23 V198 */
Test(view, strides_that_nobody_gave_stay_so, .init = open_cpu)
{
	static int32_t memory[12];
	const int64_t shape[] = {3, 4}, strides[] = {4, 1}, flat[] = {12};
	const hoist_buffer_source source = {
		.size = sizeof source, .address = (uintptr_t)memory, .bytes = sizeof memory};
	hoist_layout layout;
	hoist_buffer *base = counted(devices[0], 2, shape);
	expect_implicit(hoist_buffer_ref(base), 1, "made");
	hoist_buffer *b = make_wrapped(&source, HOIST_I32, 2, shape, NULL);
	expect_implicit(b, 1, "wrapped without");
	OK(hoist_buffer_wrap(&source, HOIST_I32, 2, shape, strides, &b));
	cr_expect(hoist_buffer_is_contiguous(b));
	expect_implicit(b, 0, "wrapped with");
	/* Views that keep the layout. */
	OK(hoist_buffer_view_as(base, HOIST_F32, &b));
	expect_implicit(b, 1, "as wide a dtype");
	hoist_stream *stream = make_stream(devices[0]);
	OK(hoist_buffer_on_stream(base, stream, &b));
	expect_implicit(b, 1, "on a stream");
	hoist_stream_unref(stream);
	OK(hoist_buffer_fork(1, &base, 1, &b));
	expect_implicit(b, 1, "forked");
	OK(hoist_buffer_copy(base, NULL, &b));
	expect_implicit(b, 1, "copied");
	OK(hoist_buffer_view(base, 0, HOIST_I32, 1, flat, &b));
	expect_implicit(b, 1, "its bytes");
	OK(hoist_buffer_get_layout(base, &layout));
	OK(hoist_buffer_with_layout(base, &layout, HOIST_I32, &b));
	expect_implicit(b, 1, "its own layout");
	/* Views whose strides are made. */
	layout.implicit = 0;
	OK(hoist_buffer_with_layout(base, &layout, HOIST_I32, &b));
	expect_implicit(b, 0, "a layout with strides");
	expect_implicit(take_part(base, 1, SLICES(HOIST_ALL)), 0, "sliced");
	expect_implicit(take_part(base, 1, SLICES(HOIST_RANGE(3, 3))), 0, "none of it");
	OK(hoist_buffer_reshape(base, 1, flat, &b));
	expect_implicit(b, 0, "reshaped");
	OK(hoist_buffer_permute(base, (const int[]){0, 1}, &b));
	expect_implicit(b, 0, "permuted");
	OK(hoist_buffer_view_as(base, HOIST_I16, &b));
	expect_implicit(b, 0, "another dtype");
	hoist_buffer *none = take_part(base, 1, SLICES(HOIST_RANGE(3, 3)));
	OK(hoist_buffer_view_as(none, HOIST_I16, &b));
	expect_implicit(b, 0, "another dtype of none");
	DROP(none, base);
}

/* --- read-only views --- */

/* Every call that writes to @buffer gives @err. */
static void expect_writing(hoist_buffer *buffer, int err, const char *what)
{
	const int32_t values[12] = {0};
	void *bytes = NULL;
	size_t n = 0;
	hoist_buffer *source = zeroed(devices[0], HOIST_I32, 2, hoist_buffer_shape(buffer));
	cr_expect_eq(hoist_buffer_set(buffer, 2, SHAPE(0, 0), hoist_number_i64(1), 0), err, "%s",
		     what);
	cr_expect_eq(hoist_buffer_copy_into(buffer, source), err, "%s", what);
	cr_expect_eq(hoist_buffer_copy_in(buffer, values, hoist_buffer_bytes(buffer)), err, "%s",
		     what);
	cr_expect_eq(hoist_buffer_fill(buffer, values, 4), err, "%s", what);
	cr_expect_eq(hoist_buffer_host_bytes(buffer, 1, &bytes, &n), err, "%s", what);
	cr_expect_eq(info_of(buffer).is_read_only, err != 0, "%s", what);
	hoist_buffer_unref(source);
}

/* proves: S3.07 S3.08 S3.09 V203 */
Test(view, a_writable_buffer_has_read_only_views, .init = open_cpu)
{
	hoist_layout layout;
	hoist_buffer *base = counted(devices[0], 2, SHAPE(3, 4));
	hoist_buffer *view = NULL;
	hoist_buffer *of_view = NULL;
	OK(hoist_buffer_read_only(base, &view));
	cr_expect_neq(view, base);
	cr_expect(hoist_buffer_equal(view, base));
	cr_expect_eq(info_of(view).storage_id, info_of(base).storage_id);
	expect_implicit(hoist_buffer_ref(view), 1, "V203: its layout");
	expect_writing(view, -EROFS, "the view");
	expect_writing(base, 0, "the buffer itself");
	/* The view shows the bytes that are written through the buffer. */
	const int64_t at[] = {1, 2};
	hoist_number number;
	OK(hoist_buffer_set(base, 2, at, hoist_number_i64(77), 0));
	OK(hoist_buffer_get(view, 2, at, &number));
	cr_expect_eq(number.as.i64, 77);
	/* Views of a read-only view are read-only, too. */
	expect_writing(of_view = take_part(view, 1, SLICES(HOIST_RANGE(0, 2))), -EROFS, "a slice");
	hoist_buffer_unref(of_view);
	OK(hoist_buffer_get_layout(view, &layout));
	OK(hoist_buffer_with_layout(view, &layout, HOIST_I32, &of_view));
	expect_writing(of_view, -EROFS, "a layout");
	hoist_buffer_unref(of_view);
	OK(hoist_buffer_read_only(view, &of_view));
	expect_writing(of_view, -EROFS, "once more");
	hoist_buffer_unref(of_view);
	/* A copy is not read-only; an exported tensor says read-only. */
	OK(hoist_buffer_copy(view, NULL, &of_view));
	expect_writing(of_view, 0, "a copy");
	hoist_buffer_unref(of_view);
	struct DLManagedTensorVersioned *tensor = exported(view, NULL);
	cr_expect_eq(((hoist_dl_managed *)tensor)->flags & HOIST_DL_READ_ONLY, 1);
	hoist_dlpack_release(tensor);
	OK(hoist_buffer_to_dlpack(base, NULL, &tensor));
	cr_expect_eq(((hoist_dl_managed *)tensor)->flags & HOIST_DL_READ_ONLY, 0);
	hoist_dlpack_release(tensor);
	hoist_buffer_unref(base);
	cr_expect_eq(hoist_buffer_get(view, 2, at, &number), 0, "it keeps the storage");
	OK(hoist_buffer_close(view, NULL));
	cr_expect_eq(hoist_buffer_read_only(view, &of_view), -EBADF);
	hoist_buffer_unref(view);
	cr_expect_eq(hoist_buffer_read_only(NULL, &of_view), -EINVAL);
}
