/* SPDX-License-Identifier: MIT */
/* Single elements: on the CPU, on emulated devices and in pinned memory. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/copy.h"
#include "hoist/element.h"
#include "hoist/number.h"
#include "tests/support/lib-unit.h"
#include "tests/support/random.h"

#define AT(...) (int)(sizeof(SHAPE(__VA_ARGS__)) / sizeof(int64_t)), SHAPE(__VA_ARGS__)

static void set_i64(hoist_buffer *buffer, int n, const int64_t *indices, int64_t value)
{
	OK(hoist_buffer_set(buffer, n, indices, hoist_number_i64(value), 0));
}

static int64_t to_i64(hoist_number number)
{
	int64_t value = 0;
	OK(hoist_number_to_i64(number, &value));
	return value;
}

static int64_t get_i64(hoist_buffer *buffer, int n, const int64_t *indices)
{
	hoist_number number;
	OK(hoist_buffer_get(buffer, n, indices, &number));
	return to_i64(number);
}

static int64_t item_i64(hoist_buffer *buffer)
{
	hoist_number number;
	OK(hoist_buffer_item(buffer, &number));
	return to_i64(number);
}

/* --- indices --- */

/* proves: S0.15 S0.17 V004 V005 */
Test(buffer_item, indices_find_their_element_on_every_device, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b =
			make_buffer(devices[i], HOIST_I32, 3, SHAPE(3, 4, 5), HOIST_BUFFER_ZERO);
		set_i64(b, AT(0, 1, 3), 68);
		hoist_buffer *one = make_slice(b, 3, SLICES(HOIST_AT(0), HOIST_AT(1), HOIST_AT(3)));
		cr_expect_eq(hoist_buffer_rank(one), 0, "V004");
		cr_expect_eq(hoist_buffer_dtype(one), HOIST_I32, "V004");
		cr_expect_eq(item_i64(one), 68, "V004");
		set_i64(b, AT(-1, -1, -1), 72);
		cr_expect_eq(get_i64(b, AT(2, 3, 4)), 72, "V005");
		cr_expect_eq(get_i64(b, AT(0, 1, 3)), 68, "V005");
		DROP(one, b);
	}
	expect_all_given_back();
}

static const struct {
	const char *vector;
	int n;
	int64_t indices[4];
	int err;
	const char *text;
} wrong[] = {
	{"V006", 3, {5, 2, 2}, -ERANGE, "index 5 is outside axis 0, which has 3"},
	{"V007", 3, {-4, -3, -3}, -ERANGE, "index -4 is outside axis 0, which has 3"},
	{"last axis", 3, {0, 0, 5}, -ERANGE, "index 5 is outside axis 2, which has 5"},
	{"far", 3, {0, 0, INT64_MIN}, -ERANGE, "index -9223372036854775808 is outside axis 2"},
	{"V008", 2, {2, 2}, -EINVAL, "2 indices for a buffer of rank 3; give one for each axis"},
	{"too many", 4, {0, 0, 0, 0}, -EINVAL, "4 indices for a buffer of rank 3"},
	{"none", 0, {0}, -EINVAL, "0 indices for a buffer of rank 3"},
	{"negative", -1, {0}, -EINVAL, "-1 indices for a buffer of rank 3"},
};

/* proves: S0.15 V006 V007 V008 */
Test(buffer_item, wrong_indices_are_refused_with_their_figures, .init = open_all)
{
	for (int i = 0; i < 2; i++) {
		hoist_buffer *b =
			make_buffer(devices[i], HOIST_I32, 3, SHAPE(3, 4, 5), HOIST_BUFFER_ZERO);
		for (size_t k = 0; k < sizeof wrong / sizeof wrong[0]; k++) {
			hoist_number number = hoist_number_i64(-7);
			REFUSED(hoist_buffer_get(b, wrong[k].n, wrong[k].indices, &number),
				wrong[k].err, wrong[k].text);
			cr_expect_eq(number.as.i64, -7, "%s", wrong[k].vector);
			REFUSED(hoist_buffer_set(b, wrong[k].n, wrong[k].indices, number, 0),
				wrong[k].err, wrong[k].text);
		}
		hoist_number number;
		cr_expect_eq(hoist_buffer_get(b, 3, NULL, &number), -EINVAL);
		hoist_buffer_unref(b);
	}
}

/* proves: S0.15 V046 */
Test(buffer_item, rank_0_takes_no_index_or_the_index_0, .init = open_all)
{
	hoist_number number;
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_I32, 0, NULL, 0);
		set_i64(b, 0, NULL, 5);
		cr_expect_eq(get_i64(b, AT(0)), 5);
		set_i64(b, AT(0), 8);
		cr_expect_eq(get_i64(b, 0, NULL), 8);
		REFUSED(hoist_buffer_get(b, AT(1), &number), -ERANGE,
			"index 1 of a buffer of rank 0, which has index 0 alone");
		cr_expect_eq(hoist_buffer_get(b, AT(-1), &number), -ERANGE);
		cr_expect_eq(hoist_buffer_get(b, AT(0, 0), &number), -EINVAL);
		cr_expect_eq(hoist_buffer_get(b, 1, NULL, &number), -EINVAL);
		hoist_buffer_unref(b);
	}
}

/* proves: V016 V019 */
Test(buffer_item, elements_of_vectors_and_of_reversed_views, .init = open_all)
{
	const hoist_slice backwards[] = {HOIST_STEP(HOIST_NONE, HOIST_NONE, -1),
					 HOIST_STEP(HOIST_NONE, HOIST_NONE, -1)};
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_I32, 1, SHAPE(10), 0);
		for (int64_t k = 0; k < 10; k++)
			set_i64(b, 1, &k, k);
		for (int64_t k = 0; k < 10; k++) {
			hoist_buffer *one = make_slice(b, 1, SLICES(HOIST_AT(k)));
			cr_expect_eq(item_i64(one), k, "V019");
			hoist_buffer_unref(one);
		}
		hoist_buffer_unref(b);
		b = make_buffer(devices[i], HOIST_I32, 2, SHAPE(3, 3), 0);
		for (int64_t k = 0; k < 9; k++)
			set_i64(b, AT(k / 3, k % 3), k + 1);
		hoist_buffer *reversed = make_slice(b, 2, backwards);
		for (int64_t k = 0; k < 9; k++)
			cr_expect_eq(get_i64(reversed, AT(k / 3, k % 3)), 9 - k, "V016");
		set_i64(reversed, AT(0, 1), 80);
		cr_expect_eq(get_i64(b, AT(2, 1)), 80);
		DROP(reversed, b);
	}
}

/* --- the item --- */

/* proves: S0.17 S4.12 V010 V064 V065 V223 */
Test(buffer_item, item_wants_exactly_one_element, .init = open_all)
{
	static const struct {
		int rank;
		int64_t shape[3];
		const char *text;
	} wrong_items[] = {
		{1, {2}, "a buffer with 2 items; it needs exactly 1"}, /* V065 */
		{3, {3, 4, 5}, "60 items"},			       /* V010 */
		{2, {3, 0}, "0 items"},
	};
	hoist_number number;
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		for (int rank = 0; rank <= 3; rank++) {
			const int64_t zeros[3] = {0};
			double value = 0;
			hoist_buffer *b =
				make_buffer(devices[i], HOIST_F32, rank, SHAPE(1, 1, 1), 0);
			OK(hoist_buffer_set(b, rank, zeros, hoist_number_f64(3.14), 0));
			OK(hoist_buffer_item(b, &number));
			cr_expect_eq(number.kind, HOIST_NUMBER_F64);
			OK(hoist_number_to_f64(number, &value));
			cr_expect_eq(value, (double)3.14f, "V064: rank %d", rank);
			hoist_buffer_unref(b);
		}
		number = hoist_number_i64(-7);
		for (size_t k = 0; k < sizeof wrong_items / sizeof wrong_items[0]; k++) {
			hoist_buffer *b = make_buffer(devices[i], HOIST_I32, wrong_items[k].rank,
						      wrong_items[k].shape, 0);
			REFUSED(hoist_buffer_item(b, &number), -EINVAL, wrong_items[k].text);
			cr_expect_eq(number.as.i64, -7);
			hoist_buffer_unref(b);
		}
	}
}

/* proves: S0.06 V046 V091 */
Test(buffer_item, scalar_is_one_element_of_rank_0, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = NULL;
		OK(hoist_buffer_scalar(hoist_number_i64(5), HOIST_I32, devices[i], &b));
		cr_expect_eq(hoist_buffer_rank(b), 0);
		cr_expect_eq(hoist_buffer_elements(b), 1);
		cr_expect_eq(hoist_buffer_dtype(b), HOIST_I32);
		cr_expect_eq(hoist_buffer_device(b), devices[i], "V091");
		cr_expect_eq(item_i64(b), 5, "V046");
		set_i64(b, AT(0), 8);
		cr_expect_eq(item_i64(b), 8, "V046");
		hoist_buffer_unref(b);
		b = NULL;
		cr_expect_eq(hoist_buffer_scalar(hoist_number_i64(300), HOIST_I8, devices[i], &b),
			     -EDOM);
		cr_expect_eq(hoist_buffer_scalar(hoist_number_i64(1), HOIST_Q4_0, devices[i], &b),
			     -ENOTSUP);
		cr_expect_eq(hoist_buffer_scalar(hoist_number_i64(1), HOIST_I8, NULL, &b), -EINVAL);
		cr_expect_null(b);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* --- dtypes --- */

static const hoist_dtype all[] = {
	HOIST_BOOL,	 HOIST_I8,	    HOIST_I16,	     HOIST_I32,		HOIST_I64,
	HOIST_U8,	 HOIST_U16,	    HOIST_U32,	     HOIST_U64,		HOIST_F16,
	HOIST_BF16,	 HOIST_F32,	    HOIST_F64,	     HOIST_C64,		HOIST_C128,
	HOIST_F8_E4M3FN, HOIST_F8_E4M3FNUZ, HOIST_F8_E5M2,   HOIST_F8_E5M2FNUZ, HOIST_F8_E8M0FNU,
	HOIST_F6_E2M3FN, HOIST_F6_E3M2FN,   HOIST_F4_E2M1FN,
};

/* A value that every dtype holds exactly. */
static hoist_number value_of(hoist_dtype dtype, uint64_t *state)
{
	uint64_t random = random_next(state);
	if (dtype == HOIST_C64 || dtype == HOIST_C128)
		return hoist_number_c128((double)(random % 100), -(double)(random % 7));
	if (dtype == HOIST_F8_E8M0FNU)
		return hoist_number_f64(ldexp(1, (int)(random % 200) - 100));
	if (dtype >= HOIST_F16)
		return hoist_number_f64((double)(random % 9) * 0.5 - (random % 2 ? 0 : 2.5));
	return hoist_number_i64((int64_t)(random % 2));
}

/* Compares every element of a strided view with a model in host memory, which is written at the
 * index of the element in the whole buffer.  The comparison includes the bytes that must not
 * change. */
static void try_dtype(hoist_device *device, unsigned flags, hoist_dtype dtype, uint64_t *state)
{
	enum { ROWS = 5, COLUMNS = 8, BYTES = ROWS * COLUMNS * 16 };
	const hoist_slice some[] = {HOIST_STEP(HOIST_NONE, 0, -2), HOIST_STEP(1, 7, 3)};
	unsigned char model[BYTES], found[BYTES];
	hoist_buffer *b = make_buffer(device, dtype, 2, SHAPE(ROWS, COLUMNS), flags);
	size_t bytes = hoist_buffer_bytes(b);
	random_fill(state, model, bytes);
	OK(hoist_buffer_write(b, 0, model, bytes));
	hoist_buffer *view = make_slice(b, 2, some);
	cr_assert_arr_eq(hoist_buffer_shape(view), (SHAPE(2, 2)), 16);
	for (int64_t row = 0; row < 2; row++)
		for (int64_t column = 0; column < 2; column++) {
			uint64_t index = (uint64_t)((4 - 2 * row) * COLUMNS + 1 + 3 * column);
			hoist_number value = value_of(dtype, state), expected, number;
			cr_assert_eq(hoist_buffer_set(view, AT(row, column), value, 0), 0, "%s: %s",
				     hoist_dtype_name(dtype), hoist_error());
			OK(hoist_number_encode(value, 0, model, dtype, index));
			OK(hoist_number_decode(model, dtype, index, &expected));
			OK(hoist_buffer_get(view, AT(row, column), &number));
			cr_assert_eq(number.kind, expected.kind);
			cr_assert_eq(number.as.u64, expected.as.u64, "%s of %s",
				     hoist_dtype_name(dtype), hoist_device_spec(device));
		}
	OK(hoist_buffer_read(b, 0, found, bytes));
	cr_assert_arr_eq(found, model, bytes, "%s of %s", hoist_dtype_name(dtype),
			 hoist_device_spec(device));
	DROP(view, b);
}

/* proves: S0.15 S4.13 */
Test(buffer_item, every_dtype_on_every_device_touches_its_own_bits_alone, .init = open_all)
{
	uint64_t state = 1;
	for (int i = 0; i < LIB_N_DEVICES; i++)
		for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
			try_dtype(devices[i], 0, all[k], &state);
			try_dtype(devices[i], HOIST_BUFFER_PINNED, all[k], &state);
		}
	expect_all_given_back();
}

/* proves: S0.16 V042 V043 */
Test(buffer_item, bf16_is_rounded_or_cut_and_read_back_as_it_is, .init = open_all)
{
	const int64_t one[] = {1}, first = 0;
	const double largest = 0x1.fep127;
	hoist_buffer *b = make_buffer(devices[0], HOIST_BF16, 1, one, 0);
	uint16_t *bits = hoist_buffer_data(b);
	uint64_t state = 42;
	for (int i = 0; i < 20000; i++) {
		uint64_t random = random_next(&state);
		hoist_number number;
		double value;
		memcpy(&value, &random, sizeof value);
		if (i % 2 != 0)
			value = ldexp((double)(int64_t)random,
				      (int)(random_next(&state) % 250) - 190);
		unsigned flags = i % 3 == 0 ? HOIST_TOWARD_ZERO : 0;
		OK(hoist_buffer_set(b, 1, &first, hoist_number_f64(value), flags));
		OK(hoist_buffer_get(b, 1, &first, &number));
		double read = number.as.f64;
		if (isnan(value))
			cr_assert(isnan(read), "V042");
		else if (fabs(value) > largest)
			cr_assert(fabs(read) == largest || isinf(read), "V042: %a", value);
		else
			cr_assert(fabs(read - value) <= fmax(fabs(value) * 0x1p-7, 0x1p-133),
				  "V042: %a became %a", value, read);
		uint32_t widened = (uint32_t)*bits << 16;
		float stored;
		memcpy(&stored, &widened, sizeof stored);
		if (!isnan(read))
			cr_assert_eq(read, (double)stored, "V043");
	}
	hoist_buffer_unref(b);
}

/* --- through views --- */

/* proves: S0.26 V057 V058 V060 */
Test(buffer_item, views_of_other_shapes_and_dtypes_share_their_elements, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_I8, 2, SHAPE(2, 6), 0),
			     *view = NULL;
		for (int64_t k = 0; k < 12; k++)
			set_i64(b, AT(k / 6, k % 6), 10 * (k / 6) + k % 6);
		OK(hoist_buffer_view(b, 0, HOIST_I8, 2, SHAPE(6, 2), &view));
		cr_expect_eq(get_i64(view, AT(0, 0)), 0, "V057");
		cr_expect_eq(get_i64(view, AT(1, 0)), 2, "V057");
		cr_expect_eq(get_i64(view, AT(3, 1)), 11, "V057");
		cr_expect_eq(get_i64(view, AT(5, 1)), 15, "V057");
		DROP(view, b);

		b = make_buffer(devices[i], HOIST_I8, 2, SHAPE(2, 4), 0);
		for (int64_t k = 0; k < 8; k++)
			set_i64(b, AT(k / 4, k % 4), 1);
		OK(hoist_buffer_view(b, 0, HOIST_I16, 2, SHAPE(2, 2), &view));
		for (int64_t k = 0; k < 4; k++)
			cr_expect_eq(get_i64(view, AT(k / 2, k % 2)), 257, "V058");
		set_i64(view, AT(0, 0), 0);
		for (int64_t k = 0; k < 8; k++)
			cr_expect_eq(get_i64(b, AT(k / 4, k % 4)), k > 1, "V060");
		DROP(view, b);
	}
}

/* proves: S0.34 V066 */
Test(buffer_item, an_element_is_aligned_as_its_address_is, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_I32, 1, SHAPE(5), 0), *bytes = NULL;
		cr_expect(hoist_buffer_is_aligned(b, 0), "V066");
		cr_expect(hoist_buffer_is_aligned(b, 4), "V066");
		OK(hoist_buffer_view(b, 0, HOIST_U8, 1, SHAPE(20), &bytes));
		hoist_buffer *one = make_slice(bytes, 1, SLICES(HOIST_AT(1)));
		cr_expect(hoist_buffer_is_aligned(one, 1), "V066");
		cr_expect_not(hoist_buffer_is_aligned(one, 4), "V066");
		/* Misaligned elements are read and written like others. */
		hoist_buffer *odd = make_view(bytes, 1, HOIST_F64, 1, SHAPE(2));
		cr_expect_not(hoist_buffer_is_aligned(odd, 0));
		set_i64(odd, AT(1), -3);
		cr_expect_eq(get_i64(odd, AT(1)), -3);
		DROP(odd, one, bytes, b);
	}
}

/* proves: V092 */
Test(buffer_item, pinned_memory_of_a_device_is_read_and_written, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_F32, 2, SHAPE(2, 1),
					      HOIST_BUFFER_PINNED | HOIST_BUFFER_ZERO);
		cr_expect(hoist_buffer_is_pinned(b), "V092");
		cr_expect_eq(get_i64(b, AT(0, 0)), 0, "V092");
		set_i64(b, AT(1, 0), 42);
		cr_expect_eq(get_i64(b, AT(1, 0)), 42, "V092");
		hoist_buffer_unref(b);
	}
}

/* proves: S0.17 V102 */
Test(buffer_item, pinned_memory_is_read_after_the_queued_work, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_buffer *seven = NULL;
		hoist_stream *stream = make_stream(devices[i]);
		hoist_buffer *pinned = make_buffer_on(stream, HOIST_I32, 0, NULL,
						      HOIST_BUFFER_PINNED | HOIST_BUFFER_ZERO);
		OK(hoist_buffer_scalar(hoist_number_i64(7), HOIST_I32, devices[i], &seven));
		cr_expect_eq(item_i64(pinned), 0);
		/* The copy is late. */
		lib_set_latency(api_of(devices[i]), 20000, 20000);
		OK(hoist_buffer_copy_on(pinned, seven, stream));
		cr_expect_eq(item_i64(pinned), 7, "V102");
		DROP(pinned, seven);
		hoist_stream_unref(stream);
		lib_reset(api_of(devices[i]));
	}
}

/* --- refusals and failures --- */

Test(buffer_item, values_that_do_not_fit_change_nothing, .init = open_all)
{
	const int64_t shape[] = {4}, first = 0, outside = 4;
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_U8, 1, shape, HOIST_BUFFER_ZERO);
		REFUSED(hoist_buffer_set(b, 1, &first, hoist_number_i64(256), 0), -EDOM,
			"256 is outside u8, which is 0 to 255");
		cr_expect_eq(hoist_buffer_set(b, 1, &outside, hoist_number_i64(256), 0), -ERANGE,
			     "a binding tells the index from the value");
		cr_expect_eq(hoist_buffer_set(b, 1, &first, hoist_number_f64(0.5), 0), -EINVAL);
		cr_expect_eq(hoist_buffer_set(b, 1, &first, hoist_number_i64(1), 4), -EINVAL);
		cr_expect_eq(get_i64(b, 1, &first), 0);
		OK(hoist_buffer_set(b, 1, &first, hoist_number_i64(256), HOIST_SATURATE));
		cr_expect_eq(get_i64(b, 1, &first), 255);
		hoist_buffer_unref(b);
	}
}

Test(buffer_item, buffers_without_elements_to_touch_are_refused, .init = open_all)
{
	const int64_t shape[] = {32}, first = 0;
	hoist_number number = hoist_number_i64(1);
	hoist_buffer *b = make_buffer(devices[1], HOIST_Q4_0, 1, shape, 0);
	REFUSED(hoist_buffer_get(b, 1, &first, &number), -ENOTSUP,
		"single elements of q4_0 have no address");
	cr_expect_eq(hoist_buffer_set(b, 1, &first, number, 0), -ENOTSUP);
	cr_expect_eq(hoist_buffer_item(b, &number), -ENOTSUP);
	hoist_buffer_unref(b);
	cr_expect_eq(hoist_buffer_get(NULL, 1, &first, &number), -EINVAL);
	cr_expect_eq(hoist_buffer_set(NULL, 1, &first, number, 0), -EINVAL);
	cr_expect_eq(hoist_buffer_item(NULL, &number), -EINVAL);
	b = make_buffer(devices[1], HOIST_I8, 1, shape, HOIST_BUFFER_ZERO);
	OK(hoist_buffer_freeze(b));
	REFUSED(hoist_buffer_set(b, 1, &first, number, 0), -EROFS,
		"the buffer to store into cannot be written to");
	OK(hoist_buffer_get(b, 1, &first, &number));
	OK(hoist_buffer_close(b, NULL));
	cr_expect_eq(hoist_buffer_get(b, 1, &first, &number), -EBADF);
	cr_expect_eq(hoist_buffer_set(b, 1, &first, number, 0), -EBADF);
	hoist_buffer_unref(b);
}

Test(buffer_item, lazy_buffers_take_their_memory, .init = open_all)
{
	const int64_t shape[] = {4}, last = -1;
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_F16, 1, shape,
					      HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO);
		cr_expect_eq(get_i64(b, 1, &last), 0);
		hoist_buffer_unref(b);
		b = make_buffer(devices[i], HOIST_F16, 1, shape, HOIST_BUFFER_LAZY);
		set_i64(b, 1, &last, 3);
		cr_expect_eq(get_i64(b, 1, &last), 3);
		hoist_buffer_unref(b);
	}
}

/* The work on the buffer's stream, which is late, is done before an element is read. */
Test(buffer_item, the_buffers_stream_is_waited_for, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		unsigned char dirty[1 << 16];
		memset(dirty, 0x5a, sizeof dirty);
		lib_set_latency(api_of(devices[i]), 2000, 4000);
		hoist_stream *stream = make_stream(devices[i]);
		/* The same block, twice. */
		for (int round = 0; round < 2; round++) {
			hoist_buffer *b = make_buffer_on(stream, HOIST_U8, 1, SHAPE(1 << 16),
							 HOIST_BUFFER_ZERO);
			cr_expect_eq(get_i64(b, AT(-1)), 0);
			OK(hoist_buffer_write(b, 0, dirty, sizeof dirty));
			hoist_buffer_unref(b);
		}
		hoist_stream_unref(stream);
		lib_reset(api_of(devices[i]));
	}
}

Test(buffer_item, a_driver_that_fails_is_reported, .init = open_all)
{
	const int64_t shape[] = {4}, first = 0;
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_number number = hoist_number_i64(-7);
		hoist_buffer *b =
			make_buffer(devices[i], HOIST_F4_E2M1FN, 1, shape, HOIST_BUFFER_ZERO);
		OK(lib_fail(api_of(devices[i]),
			    i == 3 ? "hipMemcpyAsync:1+" : "cuMemcpyDtoHAsync:1+"));
		REFUSED(hoist_buffer_get(b, 1, &first, &number), -EREMOTEIO,
			"reading elements of ");
		expect_text(lib_specs[i]);
		cr_expect_eq(hoist_buffer_set(b, 1, &first, hoist_number_i64(1), 0), -EREMOTEIO);
		cr_expect_eq(number.as.i64, -7);
		lib_reset(api_of(devices[i]));
		OK(hoist_buffer_set(b, 1, &first, hoist_number_i64(1), 0));
		cr_expect_eq(get_i64(b, 1, &first), 1);
		hoist_buffer_unref(b);
	}
	cr_assert(lib_nothing_outstanding(devices));
}
