/* SPDX-License-Identifier: MIT */
/* What copies allow, what they make, and what they say of what they refuse. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <hoist/layout.h>

#include "hoist/compat.h"
#include "tests/support/lib-copy.h"
#include "tests/support/random.h"

static hoist_device *devices[LIB_N_DEVICES];
static struct lib_place places[LIB_N_PLACES];

static void open_all(void)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	lib_open_all(devices);
	lib_open_places(devices, places);
}

static void close_all(void)
{
	lib_close_places(places);
	cr_assert(lib_drivers_content());
	cr_assert(lib_only_default_streams(devices));
}

static void expect_text(const char *text)
{
	cr_expect_not_null(strstr(hoist_error(), text), "\"%s\" lacks \"%s\"", hoist_error(), text);
}

#define EXPECT_OK(call) cr_assert_eq(call, 0, "%s", hoist_error())

static hoist_buffer *create(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape)
{
	hoist_buffer *buffer = NULL;
	EXPECT_OK(hoist_buffer_create(device, dtype, rank, shape, HOIST_BUFFER_ZERO, &buffer));
	return buffer;
}

/* Values of i32, counting from @first. */
static hoist_buffer *create_counting(hoist_device *device, int rank, const int64_t *shape,
				     int32_t first)
{
	int32_t values[64];
	hoist_buffer *buffer = create(device, HOIST_I32, rank, shape);
	size_t n = hoist_buffer_elements(buffer);
	cr_assert_leq(n, 64);
	for (size_t i = 0; i < n; i++)
		values[i] = first + (int32_t)i;
	EXPECT_OK(hoist_buffer_copy_in(buffer, values, n * sizeof values[0]));
	return buffer;
}

static void expect_values(hoist_buffer *buffer, const int32_t *values, size_t n)
{
	int32_t got[64] = {0};
	cr_assert_eq(hoist_buffer_elements(buffer), n);
	EXPECT_OK(hoist_buffer_copy_out(buffer, got, n * sizeof got[0]));
	cr_expect_arr_eq(got, values, n * sizeof got[0]);
}

static hoist_buffer *slice(hoist_buffer *buffer, int n, const hoist_slice *slices)
{
	hoist_buffer *made = NULL;
	EXPECT_OK(hoist_buffer_slice(buffer, n, slices, &made));
	return made;
}

static void drop(hoist_buffer **buffers, size_t n)
{
	for (size_t i = 0; i < n; i++)
		hoist_buffer_unref(buffers[i]);
}

static const int64_t three[] = {3};
static const int64_t three_by_three[] = {3, 3};

/* --- into buffers there are --- */

/* proves: S0.27 V069 V070 */
Test(copy, goes_only_between_equals, .init = open_all)
{
	hoist_buffer *a = create(devices[0], HOIST_F32, 1, (const int64_t[]){6});
	hoist_buffer *b = create(devices[1], HOIST_I32, 1, (const int64_t[]){6});
	hoist_buffer *c = create(devices[1], HOIST_F32, 1, (const int64_t[]){5});
	hoist_buffer *d = create(devices[1], HOIST_F32, 2, (const int64_t[]){2, 3});
	hoist_buffer *nine = create(devices[0], HOIST_F32, 2, three_by_three);
	hoist_buffer *v70[2] = {create(devices[0], HOIST_I32, 2, (const int64_t[]){2, 3}),
				create(devices[0], HOIST_I16, 2, (const int64_t[]){2, 3})};
	cr_expect_eq(hoist_buffer_copy_into(b, a), -EINVAL);
	expect_text("copying 6 elements of f32 into a buffer of 6 of i32; both must agree");
	cr_expect_eq(hoist_buffer_copy_into(c, a), -EINVAL);
	cr_expect_eq(hoist_buffer_copy_into(nine, d), -EINVAL, "V069");
	expect_text("copying 6 elements of f32 into a buffer of 9 of f32");
	cr_expect_eq(hoist_buffer_copy_into(v70[0], v70[1]), -EINVAL, "V070");
	cr_expect_eq(hoist_buffer_copy_into(NULL, a), -EINVAL);
	expect_text("the destination is NULL");
	cr_expect_eq(hoist_buffer_copy_into(a, NULL), -EINVAL);
	expect_text("the source is NULL");
	cr_expect_eq(hoist_buffer_copy_into(d, a), 0, "shapes may differ");
	cr_expect_eq(hoist_buffer_copy_with(a, d, NULL, 16), -EINVAL);
	expect_text("0x10 are no flags");
	drop((hoist_buffer *[]){a, b, c, d, nine, v70[0], v70[1]}, 7);
	close_all();
}

/* proves: S0.27 V068 V071 */
Test(copy, of_what_is_not_contiguous_can_be_refused, .init = open_all)
{
	hoist_buffer *whole = create_counting(devices[0], 3, (const int64_t[]){3, 4, 3}, 0);
	hoist_buffer *column = slice(whole, 3, (hoist_slice[]){HOIST_ALL, HOIST_AT(0), HOIST_ALL});
	hoist_buffer *dst = create(devices[1], HOIST_I32, 2, three_by_three);
	hoist_buffer *flat = create(devices[1], HOIST_I32, 1, (const int64_t[]){9});
	cr_expect_eq(hoist_buffer_copy_with(dst, column, NULL, HOIST_COPY_CONTIGUOUS), -EINVAL,
		     "V068");
	expect_text("the source, of shape [3, 3], is not contiguous");
	cr_expect_eq(hoist_buffer_copy_with(column, dst, NULL, HOIST_COPY_CONTIGUOUS), -EINVAL);
	expect_text("the destination, of shape [3, 3], is not contiguous");
	/* First of all, this is no copy. */
	cr_expect_eq(hoist_buffer_copy_with(column, column, NULL, HOIST_COPY_CONTIGUOUS), 0,
		     "V071");
	cr_expect_eq(hoist_buffer_copy_into(column, column), 0);
	cr_expect_eq(hoist_buffer_copy_into(flat, column), -EINVAL);
	expect_text("copying [3, 3] into [9]: where shapes differ both must be contiguous, and the "
		    "source is not");
	EXPECT_OK(hoist_buffer_copy_into(dst, column));
	expect_values(dst, (const int32_t[]){0, 1, 2, 12, 13, 14, 24, 25, 26}, 9);
	drop((hoist_buffer *[]){whole, column, dst, flat}, 4);
	close_all();
}

/* proves: S2.06 S2.07 S4.15 */
Test(copy, of_bytes_looks_at_their_count_alone, .init = open_all)
{
	hoist_buffer *ints = create_counting(devices[0], 1, (const int64_t[]){4}, 7);
	hoist_buffer *bytes = create(devices[1], HOIST_U8, 2, (const int64_t[]){2, 8});
	hoist_buffer *fewer = create(devices[1], HOIST_U8, 1, (const int64_t[]){15});
	hoist_buffer *odd = create(devices[0], HOIST_U8, 1, (const int64_t[]){16});
	hoist_buffer *strided = slice(bytes, 2, (hoist_slice[]){HOIST_ALL, HOIST_RANGE(0, 4)});
	cr_expect_eq(hoist_buffer_copy_with(fewer, ints, NULL, HOIST_COPY_BYTES), -EINVAL);
	expect_text("copying 16 bytes into a buffer of 15; both must agree");
	cr_expect_eq(hoist_buffer_copy_with(odd, strided, NULL, HOIST_COPY_BYTES), -EINVAL);
	expect_text("the source, of shape [2, 4], is not contiguous");
	EXPECT_OK(hoist_buffer_copy_with(bytes, ints, NULL, HOIST_COPY_BYTES));
	int32_t got[4];
	EXPECT_OK(hoist_buffer_read(bytes, 0, got, sizeof got));
	cr_expect_arr_eq(got, ((const int32_t[]){7, 8, 9, 10}), sizeof got);
	drop((hoist_buffer *[]){ints, bytes, fewer, odd, strided}, 5);
	close_all();
}

/* proves: S0.27 */
Test(copy, into_what_overlaps_or_is_read_only_is_refused, .init = open_all)
{
	hoist_buffer *src = create_counting(devices[0], 2, three_by_three, 1);
	hoist_buffer *dst = create(devices[0], HOIST_I32, 2, three_by_three);
	hoist_layout layout;
	hoist_buffer *same_row = NULL;
	EXPECT_OK(hoist_buffer_get_layout(dst, &layout));
	layout.strides[0] = 0;
	EXPECT_OK(hoist_buffer_with_layout(dst, &layout, HOIST_I32, &same_row));
	cr_expect_eq(hoist_buffer_copy_into(same_row, src), -EINVAL);
	expect_text("elements of the destination, of shape [3, 3], overlap");
	/* A window that moves on by one element. */
	hoist_buffer *window = NULL;
	layout.strides[0] = 1;
	EXPECT_OK(hoist_buffer_with_layout(dst, &layout, HOIST_I32, &window));
	cr_expect_eq(hoist_buffer_copy_into(window, src), -EINVAL);
	/* As sources both are fine. */
	EXPECT_OK(hoist_buffer_copy_into(src, window));
	EXPECT_OK(hoist_buffer_freeze(dst));
	cr_expect_eq(hoist_buffer_copy_into(dst, src), -EROFS);
	cr_expect_eq(hoist_buffer_copy_in(dst, &layout, 36), -EROFS);
	cr_expect_eq(hoist_buffer_write(dst, 0, &layout, 4), -EROFS);
	cr_expect_eq(hoist_buffer_fill(dst, "a", 1), -EROFS);
	cr_expect_eq(hoist_buffer_copy_into(src, dst), 0);
	EXPECT_OK(hoist_buffer_close(window, NULL));
	cr_expect_eq(hoist_buffer_copy_into(src, window), -EBADF);
	drop((hoist_buffer *[]){src, dst, same_row, window}, 4);
	close_all();
}

/* proves: S0.27 V094 */
Test(copy, of_a_plane_goes_between_devices, .init = open_all)
{
	static const int ways[][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 1}, {3, 1}};
	const int64_t shape[] = {5, 2, 3};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		hoist_buffer *dst = create(devices[ways[i][0]], HOIST_I32, 3, shape);
		hoist_buffer *src = create_counting(devices[ways[i][1]], 3, shape, 0);
		hoist_buffer *to = slice(dst, 1, (hoist_slice[]){HOIST_AT(1)});
		hoist_buffer *from = slice(src, 1, (hoist_slice[]){HOIST_AT(3)});
		cr_assert_eq(hoist_buffer_copy_with(to, from, NULL, HOIST_COPY_CONTIGUOUS), 0,
			     "V094, way %zu: %s", i, hoist_error());
		int32_t all[30] = {0};
		for (int k = 0; k < 6; k++)
			all[6 + k] = 18 + k;
		expect_values(dst, all, 30);
		drop((hoist_buffer *[]){dst, src, to, from}, 4);
	}
	close_all();
}

/* --- raw bytes and the caller's memory --- */

/* proves: S4.14 */
Test(copy, reads_and_writes_stay_inside, .init = open_all)
{
	char host[16] = "";
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = create(devices[i], HOIST_U8, 1, (const int64_t[]){10});
		cr_expect_eq(hoist_buffer_read(b, 5, host, 6), -EINVAL);
		expect_text("reading 6 bytes from byte 5 on leaves the buffer of 10");
		cr_expect_eq(hoist_buffer_write(b, 11, host, 0), -EINVAL);
		expect_text("writing 0 bytes from byte 11 on");
		cr_expect_eq(hoist_buffer_write(b, SIZE_MAX, host, 2), -EINVAL);
		cr_expect_eq(hoist_buffer_read(b, 2, host, SIZE_MAX), -EINVAL);
		cr_expect_eq(hoist_buffer_read(b, 0, NULL, 1), -EINVAL);
		cr_expect_eq(hoist_buffer_write(b, 0, NULL, 1), -EINVAL);
		expect_text("the host memory is NULL");
		cr_expect_eq(hoist_buffer_read(b, 10, host, 0), 0);
		hoist_buffer *every_other =
			slice(b, 1, (hoist_slice[]){HOIST_STEP(HOIST_NONE, HOIST_NONE, 2)});
		cr_expect_eq(hoist_buffer_read(every_other, 0, host, 1), -EINVAL);
		expect_text("not contiguous");
		cr_expect_eq(hoist_buffer_copy_in(b, host, 9), -EINVAL);
		expect_text("copying in 9 bytes; the buffer has 10, and both must agree");
		cr_expect_eq(hoist_buffer_copy_out(b, host, 11), -EINVAL);
		expect_text("copying out 11 bytes; the buffer has 10");
		cr_expect_eq(hoist_buffer_copy_out(b, NULL, 10), -EINVAL);
		drop((hoist_buffer *[]){b, every_other}, 2);
	}
	cr_expect_eq(hoist_buffer_read(NULL, 0, host, 1), -EINVAL);
	cr_expect_eq(hoist_buffer_write(NULL, 0, host, 1), -EINVAL);
	cr_expect_eq(hoist_buffer_copy_in(NULL, host, 1), -EINVAL);
	cr_expect_eq(hoist_buffer_copy_out(NULL, host, 1), -EINVAL);
	close_all();
}

/* proves: S4.14 V214 */
Test(copy, in_and_out_pack_all_elements, .init = open_all)
{
	float values[10];
	for (int i = 0; i < 10; i++)
		values[i] = (float)i;
	for (int i = 0; i < LIB_N_PLACES; i++) {
		hoist_buffer *b = NULL;
		float got[10] = {0};
		EXPECT_OK(hoist_buffer_create_from(places[i].memory, NULL, HOIST_F32, 2,
						   (const int64_t[]){5, 2}, HOIST_BUFFER_LAZY, &b));
		EXPECT_OK(hoist_buffer_copy_in(b, values, 40));
		EXPECT_OK(hoist_buffer_copy_out(b, got, 40));
		cr_expect_arr_eq(got, values, 40, "V214, %s", places[i].name);
		hoist_buffer *back = slice(
			b, 2, (hoist_slice[]){HOIST_STEP(HOIST_NONE, HOIST_NONE, -2), HOIST_AT(1)});
		EXPECT_OK(hoist_buffer_copy_out(back, got, 12));
		cr_expect_arr_eq(got, ((const float[]){9, 5, 1}), 12, "%s", places[i].name);
		EXPECT_OK(hoist_buffer_copy_in(back, (const float[]){-1, -2, -3}, 12));
		EXPECT_OK(hoist_buffer_copy_out(b, got, 40));
		cr_expect_arr_eq(got, ((const float[]){0, -3, 2, 3, 4, -2, 6, 7, 8, -1}), 40);
		drop((hoist_buffer *[]){b, back}, 2);
	}
	close_all();
}

/* Three elements of 4 bits are 2 bytes, of which they have 12 bits: what others have of the last
 * byte stays, and what nobody has comes out as 0. */
/* proves: S4.14 */
Test(copy, in_and_out_know_the_part_of_the_last_byte, .init = open_all)
{
	static const unsigned char ones[] = {0xff, 0xff};
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		unsigned char got[2] = {0, 0};
		hoist_buffer *whole = create(devices[i], HOIST_F4_E2M1FN, 1, (const int64_t[]){4});
		hoist_buffer *part = slice(whole, 1, (hoist_slice[]){HOIST_RANGE(0, 3)});
		EXPECT_OK(hoist_buffer_write(whole, 0, got, 2));
		EXPECT_OK(hoist_buffer_write(part, 0, ones, 2));
		EXPECT_OK(hoist_buffer_read(whole, 0, got, 2));
		cr_expect_arr_eq(got, ((const unsigned char[]){0xff, 0x0f}), 2, "%d", i);
		EXPECT_OK(hoist_buffer_write(part, 1, (const unsigned char[]){0xa5}, 1));
		EXPECT_OK(hoist_buffer_write(part, 0, (const unsigned char[]){0x21}, 1));
		EXPECT_OK(hoist_buffer_read(whole, 0, got, 2));
		cr_expect_arr_eq(got, ((const unsigned char[]){0x21, 0x05}), 2, "%d", i);
		EXPECT_OK(hoist_buffer_write(whole, 0, ones, 2));
		EXPECT_OK(hoist_buffer_copy_out(part, got, 2));
		cr_expect_arr_eq(got, ((const unsigned char[]){0xff, 0x0f}), 2, "%d", i);
		memset(got, 0xff, 2);
		EXPECT_OK(hoist_buffer_copy_out(part, got, 2));
		cr_expect_eq(got[1], 0x0f, "%d", i);
		drop((hoist_buffer *[]){whole, part}, 2);
	}
	close_all();
}

/* --- into new buffers --- */

/* proves: S0.20 V023 V024 V083 */
Test(copy, by_the_name_of_contiguous_is_one_always, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *nine = create_counting(devices[i], 2, three_by_three, 1);
		hoist_buffer *corner =
			slice(nine, 2, (hoist_slice[]){HOIST_RANGE(0, 2), HOIST_RANGE(0, 2)});
		hoist_buffer *made[3] = {NULL};
		EXPECT_OK(hoist_buffer_contiguous(corner, NULL, &made[0]));
		EXPECT_OK(hoist_buffer_contiguous(nine, NULL, &made[1]));
		EXPECT_OK(hoist_buffer_contiguous(nine, devices[0], &made[2]));
		cr_expect(hoist_buffer_is_contiguous(made[0]), "V023");
		cr_expect_arr_eq(hoist_buffer_shape(made[0]), ((const int64_t[]){2, 2}), 16);
		expect_values(made[0], (const int32_t[]){1, 2, 4, 5}, 4);
		cr_expect_eq(hoist_buffer_device(made[0]), devices[i]);
		cr_expect_eq(hoist_buffer_device(made[2]), devices[0], "V083");
		/* V024: writes to either are not seen by the other. */
		const int32_t zero = 0;
		EXPECT_OK(hoist_buffer_write(nine, 0, &zero, 4));
		EXPECT_OK(hoist_buffer_write(made[1], 4, &zero, 4));
		expect_values(made[1], (const int32_t[]){1, 0, 3, 4, 5, 6, 7, 8, 9}, 9);
		expect_values(nine, (const int32_t[]){0, 2, 3, 4, 5, 6, 7, 8, 9}, 9);
		drop((hoist_buffer *[]){nine, corner, made[0], made[1], made[2]}, 5);
	}
	close_all();
}

/* proves: S0.21 V032 V084 V085 */
Test(copy, is_deep, .init = open_all)
{
	const int32_t zero = 0;
	hoist_buffer *host = create_counting(devices[0], 1, three, 1);
	hoist_buffer *copies[2] = {NULL};
	EXPECT_OK(hoist_buffer_copy(host, devices[0], &copies[0]));
	EXPECT_OK(hoist_buffer_write(host, 0, &zero, 4));
	EXPECT_OK(hoist_buffer_copy(host, NULL, &copies[1]));
	expect_values(copies[0], (const int32_t[]){1, 2, 3}, 3); /* V032 */
	expect_values(copies[1], (const int32_t[]){0, 2, 3}, 3);
	drop((hoist_buffer *[]){host, copies[1]}, 2);
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_buffer *there[3] = {NULL};
		EXPECT_OK(hoist_buffer_copy(copies[0], devices[i], &there[0]));
		EXPECT_OK(hoist_buffer_copy(there[0], devices[0], &there[1]));
		EXPECT_OK(hoist_buffer_copy(there[0], devices[i], &there[2]));
		EXPECT_OK(hoist_buffer_write(there[0], 0, &zero, 4));
		expect_values(there[1], (const int32_t[]){1, 2, 3}, 3); /* V084 */
		expect_values(there[2], (const int32_t[]){1, 2, 3}, 3); /* V085 */
		cr_expect_eq(hoist_buffer_dtype(there[1]), HOIST_I32);
		cr_expect_eq(hoist_buffer_device(there[2]), devices[i]);
		drop(there, 3);
	}
	hoist_buffer *none = NULL;
	cr_expect_eq(hoist_buffer_copy(NULL, devices[0], &none), -EINVAL);
	cr_expect_eq(hoist_buffer_copy_to_stream(copies[0], NULL, &none), -EINVAL);
	expect_text("the stream to copy on is NULL");
	cr_expect_null(none);
	hoist_buffer_unref(copies[0]);
	close_all();
}

/* proves: S0.21 */
Test(copy, is_aligned_where_the_source_is_not, .init = open_all)
{
	hoist_buffer *bytes = create(devices[0], HOIST_U8, 1, (const int64_t[]){17});
	hoist_buffer *odd = NULL;
	hoist_buffer *copy = NULL;
	EXPECT_OK(hoist_buffer_view(bytes, 1, HOIST_F64, 1, (const int64_t[]){2}, &odd));
	EXPECT_OK(hoist_buffer_copy(odd, NULL, &copy));
	cr_expect_not(hoist_buffer_is_aligned(odd, 0));
	cr_expect(hoist_buffer_is_aligned(copy, 0));
	drop((hoist_buffer *[]){bytes, odd, copy}, 3);
	close_all();
}

/* proves: S2.06 */
Test(copy, by_clone_has_memory_from_the_same_resource, .init = open_all)
{
	for (int i = 0; i < LIB_N_PLACES; i++) {
		hoist_buffer *src = NULL;
		hoist_buffer *made = NULL;
		EXPECT_OK(hoist_buffer_create_from(places[i].memory, NULL, HOIST_I32, 1, three, 0,
						   &src));
		EXPECT_OK(hoist_buffer_copy_in(src, (const int32_t[]){4, 5, 6}, 12));
		EXPECT_OK(hoist_buffer_clone(src, places[i].stream, &made));
		EXPECT_OK(hoist_stream_synchronize(places[i].stream));
		expect_values(made, (const int32_t[]){4, 5, 6}, 3);
		hoist_buffer_info info = {.size = sizeof info};
		EXPECT_OK(hoist_buffer_get_info(made, &info));
		cr_expect_eq(info.memory, places[i].memory, "%s", places[i].name);
		drop((hoist_buffer *[]){src, made}, 2);
	}
	int32_t own[3] = {1, 2, 3};
	const hoist_buffer_source source = {
		.size = sizeof source, .address = (uintptr_t)own, .bytes = sizeof own};
	hoist_buffer *mine = NULL;
	hoist_buffer *none = NULL;
	EXPECT_OK(hoist_buffer_wrap(&source, HOIST_I32, 1, three, NULL, &mine));
	cr_expect_eq(hoist_buffer_clone(mine, places[0].stream, &none), -EINVAL);
	expect_text("the 12 bytes of a buffer on cpu are from no resource");
	cr_expect_eq(hoist_buffer_clone(mine, NULL, &none), -EINVAL);
	cr_expect_null(none);
	hoist_buffer_unref(mine);
	close_all();
}

/* --- where they are wanted --- */

/* proves: S0.22 S0.24 S0.25 V031 V034 V086 V091 V099 */
Test(copy, to_a_device_is_made_only_if_needed, .init = open_all)
{
	hoist_buffer *host = create_counting(devices[0], 1, three, 5);
	hoist_buffer *same[2] = {NULL};
	EXPECT_OK(hoist_buffer_to(host, devices[0], &same[0]));
	EXPECT_OK(hoist_buffer_to_all(host, 1, &devices[0], &same[1]));
	cr_expect_eq(same[0], host, "V031");
	cr_expect_eq(same[1], host, "V031");
	drop(same, 2);
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_buffer *there = NULL;
		hoist_buffer *back = NULL;
		EXPECT_OK(hoist_buffer_to(host, devices[i], &there));
		EXPECT_OK(hoist_buffer_to(there, devices[0], &back));
		cr_expect_eq(hoist_buffer_device(there), devices[i], "V086");
		cr_expect_eq(hoist_buffer_device(host), devices[0]);
		cr_expect_not(hoist_buffer_is_pinned(there), "V034");
		cr_expect_not(hoist_buffer_is_pinned(back), "V034");
		expect_values(back, (const int32_t[]){5, 6, 7}, 3); /* V091 */
		drop((hoist_buffer *[]){there, back}, 2);
	}
	/* V099 */
	hoist_buffer *gpu = NULL;
	hoist_buffer *all[3] = {NULL};
	EXPECT_OK(hoist_buffer_to(host, devices[1], &gpu));
	EXPECT_OK(hoist_buffer_to_all(gpu, 3, devices, all));
	for (int i = 0; i < 3; i++)
		cr_expect_eq(hoist_buffer_device(all[i]), devices[i], "V099");
	cr_expect_eq(all[1], gpu);
	expect_values(all[2], (const int32_t[]){5, 6, 7}, 3);
	drop(all, 3);
	drop((hoist_buffer *[]){gpu, host}, 2);
	close_all();
}

/* proves: S0.25 S0.23 */
Test(copy, of_pinned_memory_to_its_own_device_is_in_the_device, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_buffer *pinned = NULL;
		hoist_buffer *made = NULL;
		hoist_buffer *on = NULL;
		EXPECT_OK(hoist_buffer_create(devices[i], HOIST_I32, 1, three, HOIST_BUFFER_PINNED,
					      &pinned));
		EXPECT_OK(hoist_buffer_copy_in(pinned, (const int32_t[]){1, 2, 3}, 12));
		EXPECT_OK(hoist_buffer_to(pinned, devices[i], &made));
		cr_expect_neq(made, pinned);
		cr_expect_not(hoist_buffer_is_pinned(made));
		cr_expect_eq(hoist_buffer_device(made), devices[i]);
		expect_values(made, (const int32_t[]){1, 2, 3}, 3);
		/* Another stream never copies. */
		hoist_stream *stream = places[2 + 3 * (i - 1)].stream;
		EXPECT_OK(hoist_buffer_to_stream(pinned, stream, &on));
		cr_expect(hoist_buffer_is_pinned(on));
		cr_expect_eq(hoist_buffer_data(on), hoist_buffer_data(pinned));
		drop((hoist_buffer *[]){pinned, made, on}, 3);
	}
	close_all();
}

/* proves: S0.24 */
Test(copy, to_a_stream_is_made_only_for_another_device, .init = open_all)
{
	hoist_stream *streams[] = {places[2].stream, places[3].stream, places[5].stream,
				   places[0].stream};
	hoist_buffer *first = NULL;
	hoist_buffer *all[4] = {NULL};
	EXPECT_OK(hoist_buffer_create_on(streams[0], HOIST_I32, 1, three, 0, &first));
	EXPECT_OK(hoist_buffer_copy_in(first, (const int32_t[]){1, 2, 3}, 12));
	EXPECT_OK(hoist_buffer_to_streams(first, 4, streams, all));
	cr_expect_eq(all[0], first);
	cr_expect_neq(all[1], first);
	cr_expect_eq(hoist_buffer_address(all[1]), hoist_buffer_address(first));
	for (int i = 0; i < 4; i++) {
		hoist_stream *stream = NULL;
		EXPECT_OK(hoist_buffer_stream(all[i], &stream));
		cr_expect_eq(stream, streams[i]);
		cr_expect_eq(hoist_buffer_device(all[i]), hoist_stream_device(streams[i]));
		expect_values(all[i], (const int32_t[]){1, 2, 3}, 3);
	}
	drop(all, 4);
	hoist_buffer_unref(first);
	close_all();
}

/* proves: S0.24 */
Test(copy, to_a_list_is_all_or_nothing, .init = open_all)
{
	hoist_buffer *host = create_counting(devices[0], 1, three, 5);
	hoist_buffer *rets[2] = {NULL};
	hoist_device *const broken[] = {devices[1], NULL};
	cr_expect_eq(hoist_buffer_to_all(host, 2, broken, rets), -EINVAL);
	expect_text("1 of 2: the device to bring a buffer to is NULL");
	cr_expect_null(rets[0]);
	cr_expect_eq(hoist_buffer_to_all(host, 2, NULL, rets), -EINVAL);
	cr_expect_eq(hoist_buffer_to_all(host, 0, NULL, NULL), 0, "none");
	cr_expect_eq(hoist_buffer_to_streams(host, 0, NULL, NULL), 0);
	hoist_stream *const no_stream[] = {NULL};
	cr_expect_eq(hoist_buffer_to_streams(host, 1, no_stream, rets), -EINVAL);
	cr_expect_eq(hoist_buffer_to(host, NULL, rets), -EINVAL);
	cr_expect_eq(hoist_buffer_to(NULL, devices[0], rets), -EINVAL);
	hoist_buffer_unref(host);
	close_all();
}

/* proves: S2.06 S2.07 S2.08 V132 V215 */
Test(copy, goes_between_all_kinds_of_memory, .init = open_all)
{
	uint64_t seed = 9;
	for (int i = 0; i < LIB_N_PLACES; i++)
		for (int k = 0; k < LIB_N_PLACES; k++) {
			unsigned char *models[2];
			hoist_buffer *from = lib_random_buffer(&places[i], 1024, &seed, &models[0]);
			hoist_buffer *to = lib_random_buffer(&places[k], 1024, &seed, &models[1]);
			EXPECT_OK(hoist_buffer_copy_with(to, from, places[i].stream,
							 HOIST_COPY_BYTES | HOIST_COPY_WAIT));
			cr_expect(lib_has_bytes(to, models[0], 1024), "V132 V215: %s to %s",
				  places[i].name, places[k].name);
			drop((hoist_buffer *[]){from, to}, 2);
			free(models[0]);
			free(models[1]);
		}
	close_all();
}

/* proves: S0.27 */
Test(copy, of_nothing_asks_no_driver, .init = open_all)
{
	const int64_t shape[] = {3, 0, 5};
	hoist_buffer *dst = create(devices[0], HOIST_F32, 3, shape);
	hoist_buffer *src = create(devices[1], HOIST_F32, 3, shape);
	hoist_buffer *made = NULL;
	uint64_t before = lib_counters("cuda").calls;
	EXPECT_OK(hoist_buffer_copy_into(dst, src));
	EXPECT_OK(hoist_buffer_copy_into(src, dst));
	EXPECT_OK(hoist_buffer_copy_in(src, NULL, 0));
	EXPECT_OK(hoist_buffer_copy_out(src, NULL, 0));
	EXPECT_OK(hoist_buffer_fill(src, "a", 1));
	EXPECT_OK(hoist_buffer_copy(src, NULL, &made));
	cr_expect_eq(lib_counters("cuda").calls, before);
	drop((hoist_buffer *[]){dst, src, made}, 3);
	close_all();
}

/* --- elements that are no whole bytes, and blocks --- */

/* Rows backwards, the second block of each. */
/* proves: S0.21 */
Test(copy, of_blocks_keeps_them_whole, .init = open_all)
{
	enum { ROWS = 4, BLOCK = 18 };
	const int64_t shape[] = {ROWS, 64};
	const hoist_slice slices[] = {HOIST_STEP(HOIST_NONE, HOIST_NONE, -1), HOIST_RANGE(32, 64)};
	unsigned char all[ROWS][2][BLOCK];
	uint64_t seed = 6;
	random_fill(&seed, &all[0][0][0], sizeof all);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		unsigned char got[ROWS][BLOCK];
		hoist_buffer *whole = create(devices[i], HOIST_Q4_0, 2, shape);
		hoist_buffer *part = NULL;
		hoist_buffer *made = NULL;
		EXPECT_OK(hoist_buffer_copy_in(whole, all, sizeof all));
		EXPECT_OK(hoist_buffer_slice(whole, 2, slices, &part));
		EXPECT_OK(hoist_buffer_copy(part, devices[(i + 1) % LIB_N_DEVICES], &made));
		EXPECT_OK(hoist_buffer_copy_out(made, got, sizeof got));
		for (int row = 0; row < ROWS; row++)
			cr_expect_arr_eq(got[row], all[ROWS - 1 - row][1], BLOCK);
		EXPECT_OK(hoist_buffer_fill(part, "ab", 2));
		EXPECT_OK(hoist_buffer_copy_out(made, got, sizeof got));
		unsigned char after[ROWS][2][BLOCK];
		EXPECT_OK(hoist_buffer_copy_out(whole, after, sizeof after));
		for (int row = 0; row < ROWS; row++) {
			cr_expect_arr_eq(after[row][0], all[row][0], BLOCK);
			cr_expect_arr_eq(after[row][1], "ababababababababab", BLOCK);
		}
		drop((hoist_buffer *[]){whole, part, made}, 3);
	}
	close_all();
}

/* proves: S0.21 */
Test(copy, of_parts_of_bytes_reaches_every_device, .init = open_all)
{
	/* 0 to f, the lower half of a byte first. */
	static const unsigned char digits[] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
	const hoist_slice slices[] = {HOIST_STEP(13, 2, -3)}; /* d a 7 4 */
	for (int i = 0; i < LIB_N_DEVICES; i++)
		for (int k = 0; k < LIB_N_DEVICES; k++) {
			unsigned char got[2] = {0};
			hoist_buffer *all =
				create(devices[i], HOIST_F4_E2M1FN, 1, (const int64_t[]){16});
			hoist_buffer *part = NULL;
			hoist_buffer *made = NULL;
			EXPECT_OK(hoist_buffer_copy_in(all, digits, sizeof digits));
			EXPECT_OK(hoist_buffer_slice(all, 1, slices, &part));
			EXPECT_OK(hoist_buffer_copy(part, devices[k], &made));
			EXPECT_OK(hoist_buffer_copy_out(made, got, sizeof got));
			cr_expect_eq(got[0], 0xad, "%d to %d", i, k);
			cr_expect_eq(got[1], 0x47, "%d to %d", i, k);
			int err = hoist_buffer_copy_into(part, made);
			cr_expect_eq(err, i == 0 ? 0 : -ENOTSUP);
			if (i != 0)
				expect_text("share bytes with others cannot be written on");
			cr_expect_eq(hoist_buffer_fill(part, "a", 1), -ENOTSUP);
			drop((hoist_buffer *[]){all, part, made}, 3);
		}
	close_all();
}

/* --- fork --- */

/* Strided copies take other ways than runs do: through boxes, slots, pinned memory. */
static int copy_in_child(hoist_buffer *const *windows)
{
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			if (i != k && hoist_buffer_copy_into(windows[i], windows[k]) != -ESTALE)
				return 1 + 4 * i + k;
	/* The parent asked for the CPU's default stream: the child has one of its own. */
	hoist_buffer *copy = NULL;
	hoist_stream *stream = NULL;
	char got[9];
	if (hoist_buffer_fill(windows[0], "a", 1) != 0 ||
	    hoist_buffer_fill(windows[1], "a", 1) != -ESTALE)
		return 90;
	if (hoist_buffer_copy(windows[0], NULL, &copy) != 0 ||
	    hoist_buffer_copy_out(copy, got, sizeof got) != 0 || memcmp(got, "aaaaaaaaa", 9) != 0)
		return 91;
	if (hoist_buffer_stream(windows[0], &stream) != 0 ||
	    hoist_buffer_fill_on(windows[0], "b", 1, stream) != 0 ||
	    hoist_buffer_copy_out(windows[0], got, sizeof got) != 0)
		return 92;
	return memcmp(got, "bbbbbbbbb", 9) == 0 ? 0 : 93;
}

/* proves: S0.27 */
Test(copy, in_a_forked_child_is_refused_where_a_driver_is_needed, .init = open_all)
{
	static const int at[] = {0, 2, 3, 8};
	const int64_t shape[] = {6, 6};
	const hoist_slice slices[] = {HOIST_RANGE(0, 3), HOIST_RANGE(0, 3)};
	hoist_buffer *all[4];
	hoist_buffer *windows[4];
	for (int i = 0; i < 4; i++) {
		EXPECT_OK(hoist_buffer_create_from(places[at[i]].memory, NULL, HOIST_U8, 2, shape,
						   HOIST_BUFFER_ZERO, &all[i]));
		windows[i] = slice(all[i], 2, slices);
	}
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			if (i != k)
				EXPECT_OK(hoist_buffer_copy_into(windows[i], windows[k]));
	hoist_stream *stream = NULL;
	EXPECT_OK(hoist_buffer_stream(all[0], &stream));
	pid_t child = fork();
	if (child == 0)
		_exit(copy_in_child(windows));
	int status = -1;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect_eq(status, 0, "0x%x", (unsigned)status);
	drop(all, 4);
	drop(windows, 4);
	close_all();
}
