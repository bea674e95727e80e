/* SPDX-License-Identifier: MIT */
/* Buffers as text: their metadata, and their elements. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/copy.h"
#include "hoist/element.h"
#include "hoist/number.h"
#include "tests/support/lib-unit.h"
#include "tests/support/random.h"

/* Element i, in C order, holds i. */
static hoist_buffer *count(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape)
{
	hoist_buffer *buffer = make_buffer(device, dtype, rank, shape, 0);
	size_t bytes = hoist_buffer_bytes(buffer);
	void *host = malloc(bytes);
	for (uint64_t i = 0; i < hoist_buffer_elements(buffer); i++)
		OK(hoist_number_encode(hoist_number_u64(i), 0, host, dtype, i));
	OK(hoist_buffer_write(buffer, 0, host, bytes));
	free(host);
	return buffer;
}

/* For the caller to free. */
static char *describe(hoist_buffer *buffer, unsigned flags)
{
	int64_t n = hoist_buffer_describe(buffer, flags, NULL, 0);
	cr_assert_geq(n, 0, "%s", hoist_error());
	char *text = malloc((size_t)n + 1);
	cr_assert_eq(hoist_buffer_describe(buffer, flags, text, (size_t)n + 1), n);
	cr_assert_eq(strlen(text), (size_t)n);
	return text;
}

/* Drops the buffer. */
static void expect(hoist_buffer *buffer, unsigned flags, const char *wanted)
{
	char *text = describe(buffer, flags);
	cr_expect_str_eq(text, wanted, "\n%s\nis not\n%s", text, wanted);
	free(text);
	hoist_buffer_unref(buffer);
}

static hoist_buffer *wrap(const void *data, size_t bytes, hoist_dtype dtype, int rank,
			  const int64_t *shape, const int64_t *strides)
{
	return make_wrapped(
		SOURCE(.address = (uintptr_t)data, .bytes = bytes, .device = devices[0]), dtype,
		rank, shape, strides);
}

/* proves: S0.19 V078 */
Test(buffer_print, without_values_the_text_gives_dtype_shape_and_device, .init = open_all)
{
	const int64_t shape[] = {3, 4}, none[] = {0};
	static const char *const texts[LIB_N_DEVICES] = {
		"hoist.Buffer(dtype=f32, shape=(3, 4), device=cpu)",
		"hoist.Buffer(dtype=f32, shape=(3, 4), device=cuda:0)",
		"hoist.Buffer(dtype=f32, shape=(3, 4), device=cuda:1)",
		"hoist.Buffer(dtype=f32, shape=(3, 4), device=hip:0)",
	};
	for (int i = 0; i < LIB_N_DEVICES; i++)
		expect(make_buffer(devices[i], HOIST_F32, 2, shape, 0), 0, texts[i]);
	expect(make_buffer(devices[1], HOIST_F4_E2M1FN, 2, shape, HOIST_BUFFER_PINNED), 0,
	       "hoist.Buffer(dtype=f4_e2m1fn, shape=(3, 4), device=cuda:0, pinned)");
	expect(make_buffer(devices[0], HOIST_I8, 1, none, 0), 0,
	       "hoist.Buffer(dtype=i8, shape=(0,), device=cpu)");
	expect(make_buffer(devices[0], HOIST_I8, 0, NULL, HOIST_BUFFER_LAZY), 0,
	       "hoist.Buffer(dtype=i8, shape=(), device=cpu)");
	const int32_t data[] = {0, 1, 2, 3, 4, 5};
	hoist_buffer *b = wrap(data, sizeof data, HOIST_I32, 2, SHAPE(3, 2), SHAPE(1, 3));
	OK(hoist_buffer_freeze(b));
	expect(b, 0,
	       "hoist.Buffer(dtype=i32, shape=(3, 2), device=cpu, strides=(1, 3), read-only)");
	b = make_buffer(devices[1], HOIST_BF16, 2, shape, 0);
	OK(hoist_buffer_close(b, NULL));
	expect(b, 0, "hoist.Buffer(dtype=bf16, shape=(3, 4), device=cuda:0, closed)");
	expect(make_buffer(devices[0], HOIST_Q4_0, 1, SHAPE(32), 0), 0,
	       "hoist.Buffer(dtype=q4_0, shape=(32,), device=cpu)");
}

/* proves: S0.19 V078 V079 */
Test(buffer_print, values_stand_in_brackets, .init = open_all)
{
	const int64_t three[] = {3}, two_three[] = {2, 3}, deep[] = {2, 2, 2}, none[] = {3, 0};
	static const char *const v079[LIB_N_DEVICES] = {
		"hoist.Buffer([0.0, 1.0, 2.0], dtype=bf16, shape=(3,), device=cpu)",
		"hoist.Buffer([0.0, 1.0, 2.0], dtype=bf16, shape=(3,), device=cuda:0)",
		"hoist.Buffer([0.0, 1.0, 2.0], dtype=bf16, shape=(3,), device=cuda:1)",
		"hoist.Buffer([0.0, 1.0, 2.0], dtype=bf16, shape=(3,), device=hip:0)",
	};
	hoist_buffer *b = NULL;
	OK(hoist_buffer_scalar(hoist_number_i64(5), HOIST_I32, devices[0], &b));
	expect(b, HOIST_DESCRIBE_VALUES, "hoist.Buffer(5, dtype=i32, shape=(), device=cpu)");
	for (int i = 0; i < LIB_N_DEVICES; i++)
		expect(count(devices[i], HOIST_BF16, 1, three), HOIST_DESCRIBE_VALUES, v079[i]);
	const float floats[] = {1, 2.5F, (float)__builtin_nan(""), 0, -__builtin_inff(), 0.1F};
	expect(wrap(floats, sizeof floats, HOIST_F32, 2, two_three, NULL), HOIST_DESCRIBE_VALUES,
	       "hoist.Buffer([[ 1.0,  2.5,  nan],\n"
	       "              [ 0.0, -inf,  0.1]], dtype=f32, shape=(2, 3), device=cpu)");
	expect(count(devices[3], HOIST_U8, 3, deep), HOIST_DESCRIBE_VALUES,
	       "hoist.Buffer([[[0, 1],\n"
	       "               [2, 3]],\n"
	       "\n"
	       "              [[4, 5],\n"
	       "               [6, 7]]], dtype=u8, shape=(2, 2, 2), device=hip:0)");
	expect(make_buffer(devices[1], HOIST_F32, 2, none, 0), HOIST_DESCRIBE_VALUES,
	       "hoist.Buffer([], dtype=f32, shape=(3, 0), device=cuda:0)");
	expect(make_buffer(devices[0], HOIST_BOOL, 2, two_three, HOIST_BUFFER_ZERO),
	       HOIST_DESCRIBE_VALUES,
	       "hoist.Buffer([[False, False, False],\n"
	       "              [False, False, False]], dtype=bool, shape=(2, 3), device=cpu)");
	const double complex[] = {1, -2};
	expect(wrap(complex, sizeof complex, HOIST_C128, 0, NULL, NULL), HOIST_DESCRIBE_VALUES,
	       "hoist.Buffer(1.0-2.0j, dtype=c128, shape=(), device=cpu)");
}

/* proves: S0.19 V079 */
Test(buffer_print, long_buffers_are_cut, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = count(devices[i], HOIST_I32, 1, SHAPE(100000));
		char *text = describe(b, HOIST_DESCRIBE_VALUES);
		cr_expect_not_null(strstr(text, "([0, 1, 2, ..., 99997, 99998, 99999], "), "V079");
		cr_expect_not_null(strstr(text, "shape=(100000,)"), "V079");
		free(text);
		hoist_buffer_unref(b);
	}
	expect(count(devices[1], HOIST_I32, 2, SHAPE(100, 100)), HOIST_DESCRIBE_VALUES,
	       "hoist.Buffer([[   0,    1,    2, ...,   97,   98,   99],\n"
	       "              [ 100,  101,  102, ...,  197,  198,  199],\n"
	       "              [ 200,  201,  202, ...,  297,  298,  299],\n"
	       "              ...,\n"
	       "              [9700, 9701, 9702, ..., 9797, 9798, 9799],\n"
	       "              [9800, 9801, 9802, ..., 9897, 9898, 9899],\n"
	       "              [9900, 9901, 9902, ..., 9997, 9998, 9999]], "
	       "dtype=i32, shape=(100, 100), device=cuda:0)");
	expect(count(devices[0], HOIST_I64, 2, SHAPE(2, 1000)), HOIST_DESCRIBE_VALUES,
	       "hoist.Buffer([[   0,    1,    2, ...,  997,  998,  999],\n"
	       "              [1000, 1001, 1002, ..., 1997, 1998, 1999]], "
	       "dtype=i64, shape=(2, 1000), device=cpu)");
	hoist_buffer *b = count(devices[0], HOIST_U16, 1, SHAPE(1000));
	char *text = describe(b, HOIST_DESCRIBE_VALUES);
	cr_expect_null(strstr(text, "..."));
	cr_expect_not_null(strstr(text, " 499, 500, "));
	free(text);
	hoist_buffer_unref(b);
	b = count(devices[0], HOIST_U16, 1, SHAPE(1001));
	expect(b, HOIST_DESCRIBE_VALUES,
	       "hoist.Buffer([0, 1, 2, ..., 998, 999, 1000], dtype=u16, shape=(1001,), "
	       "device=cpu)");
}

/* Strides of 0 make tensors that no memory has room for. */
Test(buffer_print, with_many_axes_less_is_shown, .init = open_all)
{
	const int8_t one = 7;
	int64_t shape[16], strides[16] = {0};
	for (int i = 0; i < 16; i++)
		shape[i] = 10;
	hoist_buffer *b = wrap(&one, 1, HOIST_I8, 5, shape, strides);
	char *text = describe(b, HOIST_DESCRIBE_VALUES);
	size_t sevens = 0;
	for (const char *at = text; (at = strchr(at, '7')) != NULL; at++)
		sevens++;
	cr_expect_eq(sevens, 6 * 6 * 6 * 6 * 6);
	free(text);
	hoist_buffer_unref(b);
	b = wrap(&one, 1, HOIST_I8, 8, shape, strides);
	text = describe(b, HOIST_DESCRIBE_VALUES);
	sevens = 0;
	for (const char *at = text; (at = strchr(at, '7')) != NULL; at++)
		sevens++;
	cr_expect_eq(sevens, 1 << 8);
	free(text);
	hoist_buffer_unref(b);
	b = wrap(&one, 1, HOIST_I8, 16, shape, strides);
	text = describe(b, HOIST_DESCRIBE_VALUES);
	cr_expect_not_null(strstr(text, "hoist.Buffer([...], dtype=i8, shape=(10, "));
	free(text);
	hoist_buffer_unref(b);
}

/* The window goes forwards and backwards over memory that the CPU cannot touch.  The text equals
 * that of the same elements in host memory. */
static void expect_same(hoist_dtype dtype, const hoist_slice *slices)
{
	char *first = NULL;
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], dtype, 3, SHAPE(30, 32, 512), 0),
			     *view = NULL;
		size_t bytes = hoist_buffer_bytes(b);
		unsigned char *host = malloc(bytes);
		uint64_t state = 9;
		random_fill(&state, host, bytes);
		OK(hoist_buffer_write(b, 0, host, bytes));
		OK(hoist_buffer_slice(b, 3, slices, &view));
		char *text = describe(view, HOIST_DESCRIBE_VALUES);
		*strstr(text, ", device=") = '\0';
		if (first == NULL)
			first = strdup(text);
		cr_expect_str_eq(text, first, "%s on %s", hoist_dtype_name(dtype), lib_specs[i]);
		free(text);
		free(host);
		DROP(view, b);
	}
	free(first);
}

Test(buffer_print, views_of_device_memory_read_as_those_of_host_memory, .init = open_all)
{
	static const hoist_dtype dtypes[] = {HOIST_I8,	 HOIST_F16,	  HOIST_F64,
					     HOIST_C128, HOIST_F6_E2M3FN, HOIST_F4_E2M1FN};
	const hoist_slice views[][3] = {
		{HOIST_ALL, HOIST_ALL, HOIST_ALL},
		{HOIST_STEP(HOIST_NONE, HOIST_NONE, -1), HOIST_STEP(HOIST_NONE, HOIST_NONE, -2),
		 HOIST_STEP(HOIST_NONE, HOIST_NONE, -3)},
		{HOIST_STEP(HOIST_NONE, HOIST_NONE, -7), HOIST_AT(-1),
		 HOIST_STEP(3, HOIST_NONE, 5)},
		{HOIST_AT(29), HOIST_RANGE(1, 3), HOIST_AT(511)},
	};
	for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
		for (size_t k = 0; k < sizeof views / sizeof views[0]; k++)
			expect_same(dtypes[i], views[k]);
	expect_all_given_back();
}

Test(buffer_print, a_small_buffer_is_read_from_its_device_at_once, .init = open_all)
{
	hoist_buffer *b = make_buffer(devices[1], HOIST_C128, 2, SHAPE(20, 50), HOIST_BUFFER_ZERO);
	char *text = describe(b, HOIST_DESCRIBE_VALUES);
	free(text);
	uint64_t before = lib_counters("cuda").device_to_host_bytes;
	cr_assert_gt(hoist_buffer_describe(b, HOIST_DESCRIBE_VALUES, NULL, 0), 9000);
	cr_expect_eq(lib_counters("cuda").device_to_host_bytes - before, 20 * 50 * 16);
	hoist_buffer_unref(b);
	b = make_buffer(devices[1], HOIST_F32, 2, SHAPE(1000, 1000), HOIST_BUFFER_ZERO);
	before = lib_counters("cuda").device_to_host_bytes;
	cr_assert_gt(hoist_buffer_describe(b, HOIST_DESCRIBE_VALUES, NULL, 0), 0);
	cr_expect_leq(lib_counters("cuda").device_to_host_bytes - before, 2 * (16 << 10));
	hoist_buffer_unref(b);
}

Test(buffer_print, text_is_cut_to_the_room_of_the_caller, .init = open_all)
{
	const int64_t shape[] = {2};
	static const char whole[] = "hoist.Buffer([0, 1], dtype=i8, shape=(2,), device=cpu)";
	hoist_buffer *b = count(devices[0], HOIST_I8, 1, shape);
	for (size_t room = 0; room < sizeof whole + 5; room++) {
		char text[sizeof whole + 8];
		memset(text, '#', sizeof text);
		cr_assert_eq(hoist_buffer_describe(b, HOIST_DESCRIBE_VALUES, text, room),
			     sizeof whole - 1);
		size_t fits = room < sizeof whole ? room : sizeof whole;
		if (fits > 0) {
			cr_assert_arr_eq(text, whole, fits - 1);
			cr_assert_eq(text[fits - 1], '\0');
		}
		cr_assert_eq(text[fits], '#');
	}
	hoist_buffer_unref(b);
}

Test(buffer_print, buffers_that_cannot_be_printed_say_why, .init = open_all)
{
	const int64_t shape[] = {32};
	char text[200] = "before";
	hoist_buffer *b = make_buffer(devices[1], HOIST_Q4_0, 1, shape, 0);
	REFUSED(hoist_buffer_describe(b, HOIST_DESCRIBE_VALUES, text, sizeof text), -ENOTSUP,
		"single elements of q4_0 have no address");
	cr_expect_eq(hoist_buffer_describe(b, 2, text, sizeof text), -EINVAL);
	cr_expect_eq(hoist_buffer_describe(b, 0, NULL, 1), -EINVAL);
	cr_expect_eq(hoist_buffer_describe(NULL, 0, text, sizeof text), -EINVAL);
	OK(hoist_buffer_close(b, NULL));
	cr_expect_eq(hoist_buffer_describe(b, HOIST_DESCRIBE_VALUES, text, sizeof text), -EBADF);
	hoist_buffer_unref(b);
	b = make_buffer(devices[3], HOIST_F32, 1, shape, HOIST_BUFFER_ZERO);
	OK(lib_fail("hip", "hipMemcpyAsync:1+"));
	cr_expect_eq(hoist_buffer_describe(b, HOIST_DESCRIBE_VALUES, text, sizeof text),
		     -EREMOTEIO);
	lib_reset("hip");
	cr_expect_str_eq(text, "before");
	hoist_buffer_unref(b);
	cr_assert(lib_nothing_outstanding(devices));
}
