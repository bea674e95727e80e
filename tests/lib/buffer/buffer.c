/* SPDX-License-Identifier: MIT */
/* Buffers on the CPU and on emulated devices: shapes, views, reference counts, and the texts of
 * refusals. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/lib-unit.h"

static hoist_buffer *create_bytes(hoist_device *device, size_t bytes, unsigned flags)
{
	return make_buffer(device, HOIST_U8, 1, SHAPE((int64_t)bytes), flags);
}

/* proves: S0.07 V020 */
Test(buffer, knows_its_shape, .init = open_all)
{
	const int64_t shape[] = {2, 3, 4};
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_BF16, 3, shape, 0);
		cr_expect_eq(hoist_buffer_dtype(b), HOIST_BF16);
		cr_expect_eq(hoist_buffer_rank(b), 3);
		cr_expect_arr_eq(hoist_buffer_shape(b), shape, sizeof shape);
		cr_expect_arr_eq(hoist_buffer_strides(b), (SHAPE(12, 4, 1)), sizeof shape);
		cr_expect_eq(hoist_buffer_elements(b), 24);
		cr_expect_eq(hoist_buffer_bytes(b), 48);
		cr_expect_eq(hoist_buffer_device(b), devices[i]);
		cr_expect(hoist_buffer_is_contiguous(b));
		cr_expect_not(hoist_buffer_is_pinned(b));
		cr_expect_eq(hoist_buffer_data(b) == NULL, i != 0);
		cr_expect_neq(hoist_buffer_address(b), 0);
		hoist_buffer_unref(b);
		b = make_buffer(devices[i], HOIST_I32, 2, SHAPE(3, 3), 0);
		cr_expect(hoist_buffer_is_contiguous(b), "V020");
		hoist_buffer_unref(b);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* proves: S0.09 S0.10 V087 */
Test(buffer, pinned_is_host_memory_that_the_device_sees, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = create_bytes(devices[i], 5000, HOIST_BUFFER_PINNED);
		cr_expect(hoist_buffer_is_pinned(b));
		cr_expect_eq(hoist_buffer_is_host(b), i == 0);
		hoist_buffer *plain = create_bytes(devices[i], 10, 0);
		cr_expect_eq(hoist_buffer_is_host(plain), i == 0, "V087");
		hoist_buffer_unref(plain);
		unsigned char *data = hoist_buffer_data(b);
		cr_assert_not_null(data);
		memset(data, 7, 5000);
		cr_expect_neq(hoist_buffer_address(b), 0);
		cr_expect_eq(hoist_buffer_device(b), devices[i]);
		hoist_buffer_unref(b);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* proves: S4.20 V219 */
Test(buffer, zero_is_zero_even_in_used_memory, .init = open_all)
{
	enum { BYTES = 100000 };
	static unsigned char bytes[BYTES];
	for (int i = 0; i < LIB_N_DEVICES; i++)
		for (unsigned pinned = 0; pinned <= HOIST_BUFFER_PINNED; pinned++) {
			memset(bytes, 0xa5, BYTES);
			hoist_buffer *b = create_bytes(devices[i], BYTES, pinned);
			uintptr_t address = hoist_buffer_address(b);
			OK(hoist_buffer_write(b, 0, bytes, BYTES));
			hoist_buffer_unref(b);
			b = create_bytes(devices[i], BYTES, pinned | HOIST_BUFFER_ZERO);
			cr_expect_eq(hoist_buffer_address(b), address, "the pool reuses memory");
			OK(hoist_buffer_read(b, 0, bytes, BYTES));
			for (int k = 0; k < BYTES; k++)
				cr_assert_eq(bytes[k], 0, "%s: byte %d", lib_specs[i], k);
			hoist_buffer_unref(b);
		}
	expect_all_given_back();
}

Test(buffer, rank_0_is_one_element, .init = open_all)
{
	const double value = 2.5;
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_F64, 0, NULL, 0);
		cr_expect_eq(hoist_buffer_elements(b), 1);
		cr_expect_eq(hoist_buffer_bytes(b), 8);
		cr_expect(hoist_buffer_is_contiguous(b));
		double read = 0;
		OK(hoist_buffer_write(b, 0, &value, 8));
		OK(hoist_buffer_read(b, 0, &read, 8));
		cr_expect(read >= value && read <= value);
		hoist_buffer_unref(b);
	}
}

Test(buffer, without_elements_has_shape_and_no_memory, .init = open_all)
{
	const int64_t shape[] = {3, 0, 5};
	for (int i = 0; i < LIB_N_DEVICES; i++)
		for (unsigned flags = 0; flags < 4; flags++) {
			hoist_buffer *b = make_buffer(devices[i], HOIST_F32, 3, shape, flags);
			cr_expect_eq(hoist_buffer_elements(b), 0);
			cr_expect_eq(hoist_buffer_bytes(b), 0);
			cr_expect_null(hoist_buffer_data(b));
			cr_expect_eq(hoist_buffer_address(b), 0);
			cr_expect_eq(hoist_buffer_device(b), devices[i]);
			OK(hoist_buffer_read(b, 0, NULL, 0));
			OK(hoist_buffer_write(b, 0, NULL, 0));
			hoist_buffer *copy = make_copy(b, devices[0]);
			cr_expect_arr_eq(hoist_buffer_shape(copy), shape, sizeof shape);
			OK(hoist_buffer_copy_into(b, copy));
			hoist_buffer *view = make_view(b, 0, HOIST_U8, 1, SHAPE(0));
			DROP(b, copy, view);
		}
	cr_expect_eq(lib_counters("cuda").live_contexts, 0, "nothing was asked of a driver");
}

Test(buffer, packs_blocks_and_parts_of_bytes, .init = open_all)
{
	static const struct {
		hoist_dtype dtype;
		size_t bytes;
	} expected[] = {{HOIST_F4_E2M1FN, 64}, {HOIST_F6_E2M3FN, 96}, {HOIST_Q4_0, 72}};
	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
		hoist_buffer *b = make_buffer(devices[1], expected[i].dtype, 2, SHAPE(2, 64), 0);
		cr_expect_eq(hoist_buffer_bytes(b), expected[i].bytes);
		cr_expect_eq(hoist_buffer_elements(b), 128);
		hoist_buffer_unref(b);
	}
	hoist_buffer *b = make_buffer(devices[0], HOIST_F4_E2M1FN, 1, SHAPE(3), 0);
	cr_expect_eq(hoist_buffer_bytes(b), 2, "a part of a byte counts as one");
	hoist_buffer_unref(b);
	b = NULL;
	REFUSED(hoist_buffer_create(devices[0], HOIST_Q4_0, 1, SHAPE(33), 0, &b), -EINVAL,
		"a buffer on cpu: 33 elements of q4_0 are not whole blocks of 32");
	cr_expect_null(b);
}

/* proves: S4.23 */
Test(buffer, impossible_buffers_are_refused, .init = open_all)
{
	const int64_t one[65] = {1};
	const int64_t large[] = {INT64_MAX};
	hoist_buffer *b = NULL;
	REFUSED(hoist_buffer_create(NULL, HOIST_U8, 1, one, 0, &b), -EINVAL,
		"to make a buffer on is NULL");
	for (int i = 0; i < 2; i++) {
		hoist_device *d = devices[i];
		REFUSED(hoist_buffer_create(d, HOIST_U8, 65, one, 0, &b), -EINVAL,
			"rank 65 is outside 0..64");
		cr_expect_eq(hoist_buffer_create(d, HOIST_U8, -1, one, 0, &b), -EINVAL);
		cr_expect_eq(hoist_buffer_create(d, HOIST_U8, 1, NULL, 0, &b), -EINVAL);
		REFUSED(hoist_buffer_create(d, HOIST_U8, 2, SHAPE(2, -1), 0, &b), -EINVAL,
			"axis 1 has the extent -1");
		cr_expect_eq(hoist_buffer_create(d, HOIST_DTYPE_INVALID, 1, one, 0, &b), -EINVAL);
		cr_expect_eq(hoist_buffer_create(d, (hoist_dtype)9999, 1, one, 0, &b), -EINVAL);
		REFUSED(hoist_buffer_create(d, HOIST_U8, 1, one, 16, &b), -EINVAL,
			"0x10 are no flags");
		cr_expect_eq(hoist_buffer_create(d, HOIST_U8, 2, SHAPE(INT64_MAX, 2), 0, &b),
			     -EOVERFLOW);
		cr_expect_eq(hoist_buffer_create(d, HOIST_F32, 1, large, 0, &b), -EOVERFLOW);
		cr_expect_eq(hoist_buffer_create(d, HOIST_U8, 1, large, 0, &b),
			     i == 0 ? -ENOMEM : -ENOSPC);
		expect_text(i == 0 ? "a buffer on cpu: " : "a buffer on cuda:0: ");
	}
	cr_expect_null(b);
	cr_assert(lib_nothing_outstanding(devices));
}

Test(buffer, exhausted_device_memory_is_not_host_memory, .init = open_all)
{
	hoist_buffer *b = NULL;
	const int64_t shape[] = {(int64_t)17 << 30};
	cr_expect_eq(hoist_buffer_create(devices[1], HOIST_U8, 1, shape, 0, &b), -ENOSPC);
	cr_expect_null(b);
	cr_assert(lib_nothing_outstanding(devices));
}

Test(buffer, a_full_device_first_gives_back_its_kept_memory, .init = open_all)
{
	/* 10 GiB of 16 GiB at a time: the second only fits once the first is gone, and
	 * the pool may keep none of it. */
	const int64_t shape[] = {(int64_t)10 << 30};
	hoist_buffer_unref(create_bytes(devices[1], 1000, 0));
	for (int i = 0; i < 3; i++)
		hoist_buffer_unref(make_buffer(devices[1], HOIST_U8, 1, shape, 0));
	/* The limit is 99 % of the memory.  A buffer takes all but 16 MiB of this limit, while
	 * the pool keeps 32 MiB for small buffers. */
	const int64_t all[] = {((int64_t)16 << 30) / 100 * 99 - (16 << 20)};
	hoist_buffer_unref(create_bytes(devices[1], 1000, 0));
	hoist_buffer_unref(make_buffer(devices[1], HOIST_U8, 1, all, 0));
	cr_assert(lib_nothing_outstanding(devices));
}

Test(buffer, one_refusal_to_pin_is_answered_by_giving_back, .init = open_all)
{
	/* The driver refuses the first registration as a full one does; what the device
	 * keeps, here the transfer's slots, is released before the second. */
	hoist_buffer *b = create_bytes(devices[1], 10, HOIST_BUFFER_ZERO);
	char host[10];
	OK(hoist_buffer_read(b, 0, host, sizeof host));
	uint64_t kept = lib_counters("cuda").live_registered_bytes;
	cr_assert_gt(kept, 0);
	OK(lib_fail("cuda", "cuMemHostRegister:1"));
	const size_t bytes = (size_t)3 << 20;
	hoist_buffer *pinned = create_bytes(devices[1], bytes, HOIST_BUFFER_PINNED);
	cr_expect_eq(lib_counters("cuda").injected_failures, 1);
	cr_expect_eq(lib_counters("cuda").live_registered_bytes, bytes);
	DROP(b, pinned);
	cr_assert(lib_nothing_outstanding(devices));
}

/* proves: S4.04 */
Test(view, shares_the_bytes, .init = open_all)
{
	const int64_t shape[] = {4, 2};
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = create_bytes(devices[i], 100, HOIST_BUFFER_ZERO);
		hoist_buffer *view = make_view(b, 3, HOIST_F32, 2, shape);
		hoist_buffer *inner = make_view(view, 5, HOIST_I16, 1, shape);
		cr_expect_eq(hoist_buffer_address(view), hoist_buffer_address(b) + 3);
		cr_expect_eq(hoist_buffer_address(inner), hoist_buffer_address(b) + 8);
		cr_expect_eq(hoist_buffer_bytes(view), 32);
		cr_expect_eq(hoist_buffer_rank(view), 2);
		cr_expect_eq(hoist_buffer_dtype(inner), HOIST_I16);
		OK(hoist_buffer_write(inner, 1, "abc", 3));
		/* The storage outlives the buffer that it was made for. */
		hoist_buffer_unref(b);
		char got[4] = "";
		OK(hoist_buffer_read(view, 6, got, 3));
		cr_expect_str_eq(got, "abc");
		DROP(view, inner);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* proves: S4.04 */
Test(view, stays_inside_its_buffer_even_if_the_storage_goes_on, .init = open_all)
{
	hoist_buffer *b = create_bytes(devices[0], 100, 0);
	hoist_buffer *none = NULL;
	hoist_buffer *view = make_view(b, 10, HOIST_U8, 1, SHAPE(20));
	REFUSED(hoist_buffer_view(view, 0, HOIST_U8, 1, SHAPE(21), &none), -EINVAL,
		"a view of 21 bytes from byte 0 on leaves its buffer of 20 bytes");
	cr_expect_eq(hoist_buffer_view(view, 18, HOIST_F32, 0, NULL, &none), -EINVAL);
	cr_expect_eq(hoist_buffer_view(view, 21, HOIST_U8, 1, SHAPE(0), &none), -EINVAL);
	cr_expect_eq(hoist_buffer_view(view, SIZE_MAX, HOIST_U8, 1, SHAPE(1), &none), -EINVAL);
	REFUSED(hoist_buffer_view(view, 0, HOIST_U8, 1, SHAPE(-1), &none), -EINVAL,
		"a view: axis 0 has the extent -1");
	cr_expect_eq(hoist_buffer_view(NULL, 0, HOIST_U8, 0, NULL, &none), -EINVAL);
	cr_expect_null(none);
	OK(hoist_buffer_view(view, 20, HOIST_U8, 1, SHAPE(0), &none));
	DROP(none, view, b);
}

Test(buffer, references_may_be_dropped_in_any_order, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_device *device = open_device(lib_specs[i]);
		hoist_buffer *b = create_bytes(device, 64, HOIST_BUFFER_ZERO);
		hoist_buffer *view = make_view(b, 0, HOIST_U8, 1, SHAPE(8));
		cr_assert_eq(hoist_buffer_ref(b), b);
		cr_expect_eq(info_of(b).n_refs, 2);
		cr_expect_eq(info_of(b).n_storage_refs, 2);
		cr_expect_eq(info_of(view).n_refs, 1);
		for (int k = 0; k < 5; k++)
			hoist_device_unref(device);
		DROP(b, b);
		cr_expect_eq(info_of(view).n_storage_refs, 1);
		char got[8];
		memset(got, 1, sizeof got);
		OK(hoist_buffer_read(view, 0, got, sizeof got));
		cr_expect_arr_eq(got, ((const char[8]){0}), 8);
		cr_expect_str_eq(hoist_device_spec(hoist_buffer_device(view)), lib_specs[i]);
		OK(hoist_buffer_close(view, NULL));
		cr_expect_eq(info_of(view).n_storage_refs, 0);
		hoist_buffer_unref(view);
	}
	hoist_buffer_unref(NULL);
	cr_assert(lib_nothing_outstanding(devices));
}
