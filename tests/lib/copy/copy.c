/* SPDX-License-Identifier: MIT */
/* Copies: the buffers that they accept and make, and the texts of refusals. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <hoist/layout.h>

#include "hoist/compat.h"
#include "tests/lib/copy/places.h"
#include "tests/support/child.h"
#include "tests/support/random.h"

/* --- into buffers there are --- */

/* proves: S0.27 V069 V070 */
Test(copy, goes_only_between_equals, .init = open_places)
{
	hoist_buffer *a = zeroed(devices[0], HOIST_F32, 1, SHAPE(6));
	hoist_buffer *b = zeroed(devices[1], HOIST_I32, 1, SHAPE(6));
	hoist_buffer *c = zeroed(devices[1], HOIST_F32, 1, SHAPE(5));
	hoist_buffer *d = zeroed(devices[1], HOIST_F32, 2, SHAPE(2, 3));
	hoist_buffer *nine = zeroed(devices[0], HOIST_F32, 2, SHAPE(3, 3));
	hoist_buffer *v70[2] = {zeroed(devices[0], HOIST_I32, 2, SHAPE(2, 3)),
				zeroed(devices[0], HOIST_I16, 2, SHAPE(2, 3))};
	REFUSED(hoist_buffer_copy_into(b, a), -EINVAL,
		"copying 6 elements of f32 into a buffer of 6 of i32; both must agree");
	cr_expect_eq(hoist_buffer_copy_into(c, a), -EINVAL);
	cr_expect_eq(hoist_buffer_copy_into(nine, d), -EINVAL, "V069");
	expect_text("copying 6 elements of f32 into a buffer of 9 of f32");
	cr_expect_eq(hoist_buffer_copy_into(v70[0], v70[1]), -EINVAL, "V070");
	REFUSED(hoist_buffer_copy_into(NULL, a), -EINVAL, "the destination is NULL");
	REFUSED(hoist_buffer_copy_into(a, NULL), -EINVAL, "the source is NULL");
	cr_expect_eq(hoist_buffer_copy_into(d, a), 0, "shapes may differ");
	REFUSED(hoist_buffer_copy_with(a, d, NULL, 16), -EINVAL, "0x10 are no flags");
	DROP(a, b, c, d, nine, v70[0], v70[1]);
	close_places();
}

/* proves: S0.27 V068 V071 */
Test(copy, strided_buffers_can_be_refused, .init = open_places)
{
	hoist_buffer *whole = create_counting(devices[0], 3, SHAPE(3, 4, 3), 0);
	hoist_buffer *column = make_slice(whole, 3, SLICES(HOIST_ALL, HOIST_AT(0), HOIST_ALL));
	hoist_buffer *dst = zeroed(devices[1], HOIST_I32, 2, SHAPE(3, 3));
	hoist_buffer *flat = zeroed(devices[1], HOIST_I32, 1, SHAPE(9));
	cr_expect_eq(hoist_buffer_copy_with(dst, column, NULL, HOIST_COPY_CONTIGUOUS), -EINVAL,
		     "V068");
	expect_text("the source, of shape [3, 3], is not contiguous");
	REFUSED(hoist_buffer_copy_with(column, dst, NULL, HOIST_COPY_CONTIGUOUS), -EINVAL,
		"the destination, of shape [3, 3], is not contiguous");
	/* A buffer onto itself is no copy, and no error. */
	cr_expect_eq(hoist_buffer_copy_with(column, column, NULL, HOIST_COPY_CONTIGUOUS), 0,
		     "V071");
	OK(hoist_buffer_copy_into(column, column));
	REFUSED(hoist_buffer_copy_into(flat, column), -EINVAL,
		"copying [3, 3] into [9]: where shapes differ both must be contiguous, and the "
		"source is not");
	OK(hoist_buffer_copy_into(dst, column));
	expect_values(dst, (const int32_t[]){0, 1, 2, 12, 13, 14, 24, 25, 26}, 9);
	DROP(whole, column, dst, flat);
	close_places();
}

/* proves: S2.06 S2.07 S4.15 */
Test(copy, bytes_are_compared_by_their_count_alone, .init = open_places)
{
	hoist_buffer *ints = create_counting(devices[0], 1, SHAPE(4), 7);
	hoist_buffer *bytes = zeroed(devices[1], HOIST_U8, 2, SHAPE(2, 8));
	hoist_buffer *fewer = zeroed(devices[1], HOIST_U8, 1, SHAPE(15));
	hoist_buffer *odd = zeroed(devices[0], HOIST_U8, 1, SHAPE(16));
	hoist_buffer *strided = make_slice(bytes, 2, SLICES(HOIST_ALL, HOIST_RANGE(0, 4)));
	REFUSED(hoist_buffer_copy_with(fewer, ints, NULL, HOIST_COPY_BYTES), -EINVAL,
		"copying 16 bytes into a buffer of 15; both must agree");
	REFUSED(hoist_buffer_copy_with(odd, strided, NULL, HOIST_COPY_BYTES), -EINVAL,
		"the source, of shape [2, 4], is not contiguous");
	OK(hoist_buffer_copy_with(bytes, ints, NULL, HOIST_COPY_BYTES));
	int32_t got[4];
	OK(hoist_buffer_read(bytes, 0, got, sizeof got));
	cr_expect_arr_eq(got, ((const int32_t[]){7, 8, 9, 10}), sizeof got);
	DROP(ints, bytes, fewer, odd, strided);
	close_places();
}

/* proves: S0.27 */
Test(copy, overlapping_and_read_only_destinations_are_refused, .init = open_places)
{
	hoist_buffer *src = create_counting(devices[0], 2, SHAPE(3, 3), 1);
	hoist_buffer *dst = zeroed(devices[0], HOIST_I32, 2, SHAPE(3, 3));
	hoist_layout layout;
	hoist_buffer *same_row = NULL;
	OK(hoist_buffer_get_layout(dst, &layout));
	layout.strides[0] = 0;
	OK(hoist_buffer_with_layout(dst, &layout, HOIST_I32, &same_row));
	REFUSED(hoist_buffer_copy_into(same_row, src), -EINVAL,
		"elements of the destination, of shape [3, 3], overlap");
	/* A window that moves on by one element. */
	hoist_buffer *window = NULL;
	layout.strides[0] = 1;
	OK(hoist_buffer_with_layout(dst, &layout, HOIST_I32, &window));
	cr_expect_eq(hoist_buffer_copy_into(window, src), -EINVAL);
	/* As sources both are fine. */
	OK(hoist_buffer_copy_into(src, window));
	OK(hoist_buffer_freeze(dst));
	cr_expect_eq(hoist_buffer_copy_into(dst, src), -EROFS);
	cr_expect_eq(hoist_buffer_copy_in(dst, &layout, 36), -EROFS);
	cr_expect_eq(hoist_buffer_write(dst, 0, &layout, 4), -EROFS);
	cr_expect_eq(hoist_buffer_fill(dst, "a", 1), -EROFS);
	OK(hoist_buffer_copy_into(src, dst));
	OK(hoist_buffer_close(window, NULL));
	cr_expect_eq(hoist_buffer_copy_into(src, window), -EBADF);
	DROP(src, dst, same_row, window);
	close_places();
}

/* proves: S0.27 V094 */
Test(copy, a_plane_goes_between_devices, .init = open_places)
{
	static const int ways[][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 1}, {3, 1}};
	const int64_t shape[] = {5, 2, 3};
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		hoist_buffer *dst = zeroed(devices[ways[i][0]], HOIST_I32, 3, shape);
		hoist_buffer *src = create_counting(devices[ways[i][1]], 3, shape, 0);
		hoist_buffer *to = make_slice(dst, 1, SLICES(HOIST_AT(1)));
		hoist_buffer *from = make_slice(src, 1, SLICES(HOIST_AT(3)));
		cr_assert_eq(hoist_buffer_copy_with(to, from, NULL, HOIST_COPY_CONTIGUOUS), 0,
			     "V094, way %zu: %s", i, hoist_error());
		int32_t all[30] = {0};
		for (int k = 0; k < 6; k++)
			all[6 + k] = 18 + k;
		expect_values(dst, all, 30);
		DROP(dst, src, to, from);
	}
	close_places();
}

/* --- raw bytes and the caller's memory --- */

/* proves: S4.14 */
Test(copy, reads_and_writes_stay_inside, .init = open_places)
{
	char host[16] = "";
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = zeroed(devices[i], HOIST_U8, 1, SHAPE(10));
		REFUSED(hoist_buffer_read(b, 5, host, 6), -EINVAL,
			"reading 6 bytes from byte 5 on leaves the buffer of 10");
		REFUSED(hoist_buffer_write(b, 11, host, 0), -EINVAL,
			"writing 0 bytes from byte 11 on");
		cr_expect_eq(hoist_buffer_write(b, SIZE_MAX, host, 2), -EINVAL);
		cr_expect_eq(hoist_buffer_read(b, 2, host, SIZE_MAX), -EINVAL);
		cr_expect_eq(hoist_buffer_read(b, 0, NULL, 1), -EINVAL);
		REFUSED(hoist_buffer_write(b, 0, NULL, 1), -EINVAL, "the host memory is NULL");
		OK(hoist_buffer_read(b, 10, host, 0));
		hoist_buffer *every_other =
			make_slice(b, 1, SLICES(HOIST_STEP(HOIST_NONE, HOIST_NONE, 2)));
		REFUSED(hoist_buffer_read(every_other, 0, host, 1), -EINVAL, "not contiguous");
		REFUSED(hoist_buffer_copy_in(b, host, 9), -EINVAL,
			"copying in 9 bytes; the buffer has 10, and both must agree");
		REFUSED(hoist_buffer_copy_out(b, host, 11), -EINVAL,
			"copying out 11 bytes; the buffer has 10");
		cr_expect_eq(hoist_buffer_copy_out(b, NULL, 10), -EINVAL);
		DROP(b, every_other);
	}
	cr_expect_eq(hoist_buffer_read(NULL, 0, host, 1), -EINVAL);
	cr_expect_eq(hoist_buffer_write(NULL, 0, host, 1), -EINVAL);
	cr_expect_eq(hoist_buffer_copy_in(NULL, host, 1), -EINVAL);
	cr_expect_eq(hoist_buffer_copy_out(NULL, host, 1), -EINVAL);
	close_places();
}

/* proves: S4.14 V214 */
Test(copy, in_and_out_pack_all_elements, .init = open_places)
{
	float values[10];
	for (int i = 0; i < 10; i++)
		values[i] = (float)i;
	for (int i = 0; i < LIB_N_PLACES; i++) {
		float got[10] = {0};
		hoist_buffer *b = make_buffer_from(places[i].memory, NULL, HOIST_F32, 2,
						   SHAPE(5, 2), HOIST_BUFFER_LAZY);
		OK(hoist_buffer_copy_in(b, values, 40));
		OK(hoist_buffer_copy_out(b, got, 40));
		cr_expect_arr_eq(got, values, 40, "V214, %s", places[i].name);
		hoist_buffer *back = make_slice(
			b, 2, SLICES(HOIST_STEP(HOIST_NONE, HOIST_NONE, -2), HOIST_AT(1)));
		OK(hoist_buffer_copy_out(back, got, 12));
		cr_expect_arr_eq(got, ((const float[]){9, 5, 1}), 12, "%s", places[i].name);
		OK(hoist_buffer_copy_in(back, (const float[]){-1, -2, -3}, 12));
		OK(hoist_buffer_copy_out(b, got, 40));
		cr_expect_arr_eq(got, ((const float[]){0, -3, 2, 3, 4, -2, 6, 7, 8, -1}), 40);
		DROP(b, back);
	}
	close_places();
}

/* Three elements of 4 bits have 12 bits of 2 bytes.  A neighbour's bits in the last byte stay,
 * and bits without an element read as 0. */
/* proves: S4.14 */
Test(copy, in_and_out_know_the_part_of_the_last_byte, .init = open_places)
{
	static const unsigned char ones[] = {0xff, 0xff};
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		unsigned char got[2] = {0, 0};
		hoist_buffer *whole = zeroed(devices[i], HOIST_F4_E2M1FN, 1, SHAPE(4));
		hoist_buffer *part = make_slice(whole, 1, SLICES(HOIST_RANGE(0, 3)));
		OK(hoist_buffer_write(whole, 0, got, 2));
		OK(hoist_buffer_write(part, 0, ones, 2));
		OK(hoist_buffer_read(whole, 0, got, 2));
		cr_expect_arr_eq(got, ((const unsigned char[]){0xff, 0x0f}), 2, "%d", i);
		OK(hoist_buffer_write(part, 1, (const unsigned char[]){0xa5}, 1));
		OK(hoist_buffer_write(part, 0, (const unsigned char[]){0x21}, 1));
		OK(hoist_buffer_read(whole, 0, got, 2));
		cr_expect_arr_eq(got, ((const unsigned char[]){0x21, 0x05}), 2, "%d", i);
		OK(hoist_buffer_write(whole, 0, ones, 2));
		OK(hoist_buffer_copy_out(part, got, 2));
		cr_expect_arr_eq(got, ((const unsigned char[]){0xff, 0x0f}), 2, "%d", i);
		memset(got, 0xff, 2);
		OK(hoist_buffer_copy_out(part, got, 2));
		cr_expect_eq(got[1], 0x0f, "%d", i);
		DROP(whole, part);
	}
	close_places();
}

/* --- into new buffers --- */

/* proves: S0.20 V023 V024 V083 */
Test(copy, by_the_name_of_contiguous_is_one_always, .init = open_places)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *nine = create_counting(devices[i], 2, SHAPE(3, 3), 1);
		hoist_buffer *corner =
			make_slice(nine, 2, SLICES(HOIST_RANGE(0, 2), HOIST_RANGE(0, 2)));
		hoist_buffer *made[3] = {NULL};
		OK(hoist_buffer_contiguous(corner, NULL, &made[0]));
		OK(hoist_buffer_contiguous(nine, NULL, &made[1]));
		OK(hoist_buffer_contiguous(nine, devices[0], &made[2]));
		cr_expect(hoist_buffer_is_contiguous(made[0]), "V023");
		cr_expect_arr_eq(hoist_buffer_shape(made[0]), (SHAPE(2, 2)), 16);
		expect_values(made[0], (const int32_t[]){1, 2, 4, 5}, 4);
		cr_expect_eq(hoist_buffer_device(made[0]), devices[i]);
		cr_expect_eq(hoist_buffer_device(made[2]), devices[0], "V083");
		/* V024: writes to either are not seen by the other. */
		const int32_t zero = 0;
		OK(hoist_buffer_write(nine, 0, &zero, 4));
		OK(hoist_buffer_write(made[1], 4, &zero, 4));
		expect_values(made[1], (const int32_t[]){1, 0, 3, 4, 5, 6, 7, 8, 9}, 9);
		expect_values(nine, (const int32_t[]){0, 2, 3, 4, 5, 6, 7, 8, 9}, 9);
		DROP(nine, corner, made[0], made[1], made[2]);
	}
	close_places();
}

/* proves: S0.21 V032 V084 V085 */
Test(copy, is_deep, .init = open_places)
{
	const int32_t zero = 0;
	hoist_buffer *host = create_counting(devices[0], 1, SHAPE(3), 1);
	hoist_buffer *copies[2] = {NULL};
	OK(hoist_buffer_copy(host, devices[0], &copies[0]));
	OK(hoist_buffer_write(host, 0, &zero, 4));
	OK(hoist_buffer_copy(host, NULL, &copies[1]));
	expect_values(copies[0], (const int32_t[]){1, 2, 3}, 3); /* V032 */
	expect_values(copies[1], (const int32_t[]){0, 2, 3}, 3);
	DROP(host, copies[1]);
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_buffer *there[3] = {NULL};
		OK(hoist_buffer_copy(copies[0], devices[i], &there[0]));
		OK(hoist_buffer_copy(there[0], devices[0], &there[1]));
		OK(hoist_buffer_copy(there[0], devices[i], &there[2]));
		OK(hoist_buffer_write(there[0], 0, &zero, 4));
		expect_values(there[1], (const int32_t[]){1, 2, 3}, 3); /* V084 */
		expect_values(there[2], (const int32_t[]){1, 2, 3}, 3); /* V085 */
		cr_expect_eq(hoist_buffer_dtype(there[1]), HOIST_I32);
		cr_expect_eq(hoist_buffer_device(there[2]), devices[i]);
		drop_buffers(there, 3);
	}
	hoist_buffer *none = NULL;
	cr_expect_eq(hoist_buffer_copy(NULL, devices[0], &none), -EINVAL);
	REFUSED(hoist_buffer_copy_to_stream(copies[0], NULL, &none), -EINVAL,
		"the stream to copy on is NULL");
	cr_expect_null(none);
	hoist_buffer_unref(copies[0]);
	close_places();
}

/* proves: S0.21 */
Test(copy, is_aligned_where_the_source_is_not, .init = open_places)
{
	hoist_buffer *bytes = zeroed(devices[0], HOIST_U8, 1, SHAPE(17));
	hoist_buffer *odd = make_view(bytes, 1, HOIST_F64, 1, SHAPE(2));
	hoist_buffer *copy = make_copy(odd, NULL);
	cr_expect_not(hoist_buffer_is_aligned(odd, 0));
	cr_expect(hoist_buffer_is_aligned(copy, 0));
	DROP(bytes, odd, copy);
	close_places();
}

/* proves: S2.06 */
Test(copy, by_clone_has_memory_from_the_same_resource, .init = open_places)
{
	for (int i = 0; i < LIB_N_PLACES; i++) {
		hoist_buffer *made = NULL;
		hoist_buffer *src =
			make_buffer_from(places[i].memory, NULL, HOIST_I32, 1, SHAPE(3), 0);
		OK(hoist_buffer_copy_in(src, (const int32_t[]){4, 5, 6}, 12));
		OK(hoist_buffer_clone(src, places[i].stream, &made));
		OK(hoist_stream_synchronize(places[i].stream));
		expect_values(made, (const int32_t[]){4, 5, 6}, 3);
		hoist_buffer_info info = info_of(made);
		cr_expect_eq(info.memory, places[i].memory, "%s", places[i].name);
		DROP(src, made);
	}
	int32_t own[3] = {1, 2, 3};
	hoist_buffer *none = NULL;
	hoist_buffer *mine = make_wrapped(SOURCE(.address = (uintptr_t)own, .bytes = sizeof own),
					  HOIST_I32, 1, SHAPE(3), NULL);
	REFUSED(hoist_buffer_clone(mine, places[0].stream, &none), -EINVAL,
		"the 12 bytes of a buffer on cpu are from no resource");
	cr_expect_eq(hoist_buffer_clone(mine, NULL, &none), -EINVAL);
	cr_expect_null(none);
	hoist_buffer_unref(mine);
	close_places();
}

/* --- between all kinds of memory --- */

/* proves: S2.06 S2.07 S2.08 V132 V215 */
Test(copy, goes_between_all_kinds_of_memory, .init = open_places)
{
	uint64_t seed = 9;
	for (int i = 0; i < LIB_N_PLACES; i++)
		for (int k = 0; k < LIB_N_PLACES; k++) {
			unsigned char *models[2];
			hoist_buffer *from = lib_random_buffer(&places[i], 1024, &seed, &models[0]);
			hoist_buffer *to = lib_random_buffer(&places[k], 1024, &seed, &models[1]);
			OK(hoist_buffer_copy_with(to, from, places[i].stream,
						  HOIST_COPY_BYTES | HOIST_COPY_WAIT));
			cr_expect(lib_has_bytes(to, models[0], 1024), "V132 V215: %s to %s",
				  places[i].name, places[k].name);
			DROP(from, to);
			free(models[0]);
			free(models[1]);
		}
	close_places();
}

/* proves: S0.27 */
Test(copy, a_copy_of_nothing_asks_no_driver, .init = open_places)
{
	const int64_t shape[] = {3, 0, 5};
	hoist_buffer *dst = zeroed(devices[0], HOIST_F32, 3, shape);
	hoist_buffer *src = zeroed(devices[1], HOIST_F32, 3, shape);
	uint64_t before = lib_counters("cuda").calls;
	OK(hoist_buffer_copy_into(dst, src));
	OK(hoist_buffer_copy_into(src, dst));
	OK(hoist_buffer_copy_in(src, NULL, 0));
	OK(hoist_buffer_copy_out(src, NULL, 0));
	OK(hoist_buffer_fill(src, "a", 1));
	hoist_buffer *made = make_copy(src, NULL);
	cr_expect_eq(lib_counters("cuda").calls, before);
	DROP(dst, src, made);
	close_places();
}

/* --- elements that are no whole bytes, and blocks --- */

/* Rows backwards, the second block of each. */
/* proves: S0.21 */
Test(copy, blocks_stay_whole, .init = open_places)
{
	enum { ROWS = 4, BLOCK = 18 };
	const hoist_slice slices[] = {HOIST_STEP(HOIST_NONE, HOIST_NONE, -1), HOIST_RANGE(32, 64)};
	unsigned char all[ROWS][2][BLOCK];
	uint64_t seed = 6;
	random_fill(&seed, &all[0][0][0], sizeof all);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		unsigned char got[ROWS][BLOCK];
		hoist_buffer *whole = zeroed(devices[i], HOIST_Q4_0, 2, SHAPE(ROWS, 64));
		OK(hoist_buffer_copy_in(whole, all, sizeof all));
		hoist_buffer *part = make_slice(whole, 2, slices);
		hoist_buffer *made = make_copy(part, devices[(i + 1) % LIB_N_DEVICES]);
		OK(hoist_buffer_copy_out(made, got, sizeof got));
		for (int row = 0; row < ROWS; row++)
			cr_expect_arr_eq(got[row], all[ROWS - 1 - row][1], BLOCK);
		OK(hoist_buffer_fill(part, "ab", 2));
		OK(hoist_buffer_copy_out(made, got, sizeof got));
		unsigned char after[ROWS][2][BLOCK];
		OK(hoist_buffer_copy_out(whole, after, sizeof after));
		for (int row = 0; row < ROWS; row++) {
			cr_expect_arr_eq(after[row][0], all[row][0], BLOCK);
			cr_expect_arr_eq(after[row][1], "ababababababababab", BLOCK);
		}
		DROP(whole, part, made);
	}
	close_places();
}

/* proves: S0.21 */
Test(copy, parts_of_bytes_reach_every_device, .init = open_places)
{
	/* 0 to f, the lower half of a byte first. */
	static const unsigned char digits[] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
	const hoist_slice slices[] = {HOIST_STEP(13, 2, -3)}; /* d a 7 4 */
	for (int i = 0; i < LIB_N_DEVICES; i++)
		for (int k = 0; k < LIB_N_DEVICES; k++) {
			unsigned char got[2] = {0};
			hoist_buffer *all = zeroed(devices[i], HOIST_F4_E2M1FN, 1, SHAPE(16));
			OK(hoist_buffer_copy_in(all, digits, sizeof digits));
			hoist_buffer *part = make_slice(all, 1, slices);
			hoist_buffer *made = make_copy(part, devices[k]);
			OK(hoist_buffer_copy_out(made, got, sizeof got));
			cr_expect_eq(got[0], 0xad, "%d to %d", i, k);
			cr_expect_eq(got[1], 0x47, "%d to %d", i, k);
			int err = hoist_buffer_copy_into(part, made);
			cr_expect_eq(err, i == 0 ? 0 : -ENOTSUP);
			if (i != 0)
				expect_text("share bytes with others cannot be written on");
			cr_expect_eq(hoist_buffer_fill(part, "a", 1), -ENOTSUP);
			DROP(all, part, made);
		}
	close_places();
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
Test(copy, in_a_forked_child_is_refused_where_a_driver_is_needed, .init = open_places)
{
	static const int at[] = {0, 2, 3, 8};
	const hoist_slice slices[] = {HOIST_RANGE(0, 3), HOIST_RANGE(0, 3)};
	hoist_buffer *all[4];
	hoist_buffer *windows[4];
	for (int i = 0; i < 4; i++) {
		OK(hoist_buffer_create_from(places[at[i]].memory, NULL, HOIST_U8, 2, SHAPE(6, 6),
					    HOIST_BUFFER_ZERO, &all[i]));
		windows[i] = make_slice(all[i], 2, slices);
	}
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			if (i != k)
				OK(hoist_buffer_copy_into(windows[i], windows[k]));
	(void)stream_of(all[0]);
	pid_t child = fork();
	if (child == 0)
		_exit(copy_in_child(windows));
	cr_expect_eq(child_status(child), 0);
	drop_buffers(all, 4);
	drop_buffers(windows, 4);
	close_places();
}
