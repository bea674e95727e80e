/* SPDX-License-Identifier: MIT */
/* Where buffers come from, and where their memory goes: streams, resources, laziness, closing. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/lib-custom.h"
#include "tests/support/lib-unit.h"

static const int64_t shape_10[] = {10};

/* --- on streams --- */

/* proves: S0.02 S0.08 S0.23 */
Test(create, on_a_stream_keeps_that_very_stream, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_stream *streams[2];
		hoist_buffer *other = NULL;
		OK(hoist_stream_create(devices[i], &streams[0]));
		OK(hoist_stream_create(devices[i], &streams[1]));
		hoist_buffer *b =
			make_buffer_on(streams[0], HOIST_F32, 1, shape_10, HOIST_BUFFER_ZERO);
		hoist_stream *found = stream_of(b);
		cr_expect_eq(found, streams[0]);
		cr_expect_eq(hoist_buffer_device(b), devices[i]);
		OK(hoist_buffer_on_stream(b, streams[0], &other));
		cr_expect_eq(other, b, "its own stream: itself");
		hoist_buffer_unref(other);
		OK(hoist_buffer_on_stream(b, streams[1], &other));
		cr_expect_neq(other, b);
		cr_expect_eq(hoist_buffer_address(other), hoist_buffer_address(b));
		cr_expect(hoist_buffer_equal(other, b));
		cr_expect_eq(hoist_buffer_on_stream(b, NULL, &other), -EINVAL);
		DROP(other, b);
		DROP_STREAMS(streams[0], streams[1]);
	}
	expect_all_given_back();
}

/* proves: S0.08 S0.23 */
Test(create, without_a_stream_is_on_the_default_one, .init = open_all)
{
	hoist_buffer *same = NULL;
	hoist_buffer *b = make_buffer(devices[1], HOIST_F32, 1, shape_10, 0);
	hoist_stream *found = stream_of(b);
	hoist_stream *stream = default_stream(devices[1]);
	cr_expect_eq(found, stream);
	OK(hoist_buffer_on_stream(b, stream, &same));
	cr_expect_eq(same, b);
	cr_expect_eq(hoist_buffer_create_on(NULL, HOIST_F32, 1, shape_10, 0, &same), -EINVAL);
	hoist_stream_unref(stream);
	DROP(b, b);
}

/* --- from resources --- */

/* proves: S2.01 S2.10 S2.11 S2.21 S4.02 V131 V147 V148 */
Test(create, from_every_kind_of_resource, .init = open_all)
{
	static const struct {
		int kind;
		int device; /* the resource's */
		int of;	    /* the buffer's */
		int host, accelerator, managed, pinned, id;
	} kinds[] = {
		{HOIST_MEMORY_HOST, 0, 0, 1, 0, 0, 0, -1},
		{HOIST_MEMORY_HOST, 1, 0, 1, 0, 0, 0, -1}, /* near the device, but the CPU's */
		{HOIST_MEMORY_PINNED, 0, 0, 1, 0, 0, 1, -1},
		{HOIST_MEMORY_PINNED, 2, 2, 1, 1, 0, 1, 1},
		{HOIST_MEMORY_DEVICE, 1, 1, 0, 1, 0, 0, 0},
		{HOIST_MEMORY_DEVICE, 3, 3, 0, 1, 0, 0, 0},
		{HOIST_MEMORY_MANAGED, 1, 1, 1, 1, 1, 0, 0},
		{HOIST_MEMORY_DRIVER_POOL, 2, 2, 0, 1, 0, 0, 1},
	};
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		hoist_buffer *b = NULL;
		hoist_memory *memory = make_kind(kinds[i].kind, devices[kinds[i].device]);
		cr_assert_eq(
			hoist_buffer_create_from(memory, NULL, HOIST_U8, 1, SHAPE(1024), 0, &b), 0,
			"%zu: %s", i, hoist_error());
		hoist_buffer *c = make_buffer_from(memory, NULL, HOIST_U8, 1, SHAPE(2048), 0);
		hoist_buffer_info info = info_of(b);
		cr_expect_eq(hoist_buffer_bytes(b), 1024);
		cr_expect_neq(hoist_buffer_address(b), 0);
		cr_expect_neq(hoist_buffer_address(b), hoist_buffer_address(c));
		cr_expect_eq(hoist_buffer_device(b), devices[kinds[i].of], "%zu", i);
		cr_expect_eq(info.memory, memory);
		cr_expect_eq(info.is_host_accessible, kinds[i].host, "%zu", i);
		cr_expect_eq(info.is_device_accessible, kinds[i].accelerator, "%zu", i);
		cr_expect_eq(info.is_managed, kinds[i].managed, "%zu", i);
		cr_expect_eq(info.device_id, kinds[i].id, "%zu", i);
		cr_expect_eq(info.is_mapped, 0);
		cr_expect_eq(hoist_buffer_is_pinned(b), kinds[i].pinned, "%zu", i);
		cr_expect_eq(hoist_buffer_data(b) != NULL, kinds[i].host, "%zu", i);
		hoist_memory_unref(memory); /* the buffers keep the resource */
		DROP(b, c);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* proves: S2.03 S2.05 S2.21 V136 */
Test(close, gives_the_block_back_on_the_stream_named, .init = open_all)
{
	struct backing custom = {0};
	hoist_memory *memory = make_custom(&custom, devices[0], 1, 0);
	hoist_buffer *b = NULL;
	hoist_stream *made_on = make_stream(devices[0]);
	hoist_stream *closed_on = make_stream(devices[0]);
	for (int named = 0; named < 2; named++) {
		custom.n_frees = 0;
		OK(hoist_buffer_create_from(memory, made_on, HOIST_U8, 1, shape_10, 0, &b));
		OK(hoist_buffer_close(b, named ? closed_on : NULL));
		cr_expect_eq(custom.n_frees, 1);
		cr_expect_eq(custom.bytes, 10);
		cr_expect_eq(custom.stream, named ? closed_on : made_on);
		cr_expect_eq(hoist_buffer_close(b, closed_on), 0, "closing again does nothing");
		cr_expect_eq(custom.n_frees, 1);
		cr_expect(hoist_buffer_is_closed(b));
		cr_expect_eq(hoist_buffer_address(b), 0);
		cr_expect_null(hoist_buffer_data(b));
		cr_expect_eq(hoist_buffer_bytes(b), 0);
		cr_expect_null(info_of(b).memory);
		cr_expect_eq(info_of(b).is_closed, 1);
		hoist_buffer *view = NULL;
		REFUSED(hoist_buffer_slice(b, 0, NULL, &view), -EBADF, "closed");
		cr_expect_not(hoist_buffer_equal(b, b));
		hoist_buffer_unref(b);
	}
	hoist_memory_unref(memory);
	DROP_STREAMS(made_on, closed_on);
}

/* proves: S2.03 S4.18 */
Test(close, views_keep_the_storage, .init = open_all)
{
	struct backing custom = {0};
	hoist_memory *memory = make_custom(&custom, devices[0], 1, 0);
	hoist_buffer *b = make_buffer_from(memory, NULL, HOIST_U8, 1, shape_10, 0);
	hoist_buffer *view = make_slice(b, 1, SLICES(HOIST_RANGE(2, 4)));
	OK(hoist_buffer_close(b, NULL));
	cr_expect_eq(custom.n_frees, 0);
	memset(hoist_buffer_data(view), 1, 2);
	hoist_buffer_unref(view);
	cr_expect_eq(custom.n_frees, 1);
	hoist_buffer_unref(b);
	cr_expect_eq(custom.n_frees, 1);
	hoist_memory_unref(memory);
}

/* proves: S2.04 */
Test(free_on, names_the_stream_and_leaves_the_buffer_open, .init = open_all)
{
	struct backing custom = {0};
	hoist_memory *memory = make_custom(&custom, devices[0], 1, 0);
	hoist_stream *streams[] = {make_stream(devices[0]), make_stream(devices[0])};
	hoist_buffer *b = make_buffer_from(memory, streams[0], HOIST_U8, 1, shape_10, 0);
	REFUSED(hoist_buffer_free_on(b, NULL), -EINVAL, "NULL");
	OK(hoist_buffer_free_on(b, streams[1]));
	cr_expect_not(hoist_buffer_is_closed(b));
	memset(hoist_buffer_data(b), 1, 10);
	cr_expect_eq(custom.n_frees, 0);
	OK(hoist_buffer_close(b, NULL));
	cr_expect_eq(custom.stream, streams[1]);
	cr_expect_eq(hoist_buffer_free_on(b, streams[0]), -EBADF);
	cr_expect_eq(hoist_buffer_free_on(NULL, streams[0]), -EINVAL);
	hoist_buffer_unref(b);
	OK(hoist_buffer_create(devices[1], HOIST_U8, 1, shape_10, 0, &b));
	REFUSED(hoist_buffer_free_on(b, streams[0]), -EINVAL, "cannot order");
	hoist_buffer_unref(b);
	hoist_memory_unref(memory);
	DROP_STREAMS(streams[0], streams[1]);
}

/* A view's last stream does not order the work of the other views' streams. */
/* proves: S2.03 */
Test(close, a_view_on_a_stream_leaves_the_order_of_the_others, .init = open_all)
{
	struct backing custom = {0};
	hoist_memory *memory = make_custom(&custom, devices[0], 1, 0);
	hoist_stream *streams[] = {make_stream(devices[0]), make_stream(devices[0])};
	hoist_buffer *b = make_buffer_from(memory, streams[0], HOIST_U8, 1, shape_10, 0);
	hoist_buffer *view = make_slice(b, 0, NULL);
	OK(hoist_buffer_close(view, streams[1]));
	hoist_buffer_unref(view);
	cr_expect_eq(custom.n_frees, 0);
	OK(hoist_buffer_close(b, NULL));
	cr_expect_eq(custom.n_frees, 1);
	cr_expect_eq(custom.stream, streams[0]);
	hoist_buffer_unref(b);
	hoist_memory_unref(memory);
	DROP_STREAMS(streams[0], streams[1]);
}

#define LARGE ((int64_t)64 << 20)

static void note_the_last_filled_byte(void *context)
{
	unsigned char *bytes = context;
	bytes[0] = bytes[LARGE];
}

/* The memory of a buffer goes after the work that was queued on the buffer's new stream. */
/* proves: S0.23 */
Test(on_stream, memory_goes_behind_the_stream_it_was_put_on, .init = open_all)
{
	unsigned char *bytes = calloc(1, (size_t)LARGE + 1);
	cr_assert_not_null(bytes);
	hoist_buffer_source source = {
		.size = sizeof source, .address = (uintptr_t)bytes + 1, .bytes = (size_t)LARGE};
	hoist_buffer *put = NULL;
	hoist_stream *stream = make_stream(devices[0]);
	hoist_buffer *large = make_wrapped(&source, HOIST_U8, 1, SHAPE(LARGE), NULL);
	source.bytes = 10;
	source.release = note_the_last_filled_byte;
	source.context = bytes;
	hoist_buffer *b = make_wrapped(&source, HOIST_U8, 1, shape_10, NULL);
	OK(hoist_buffer_on_stream(b, stream, &put));
	OK(hoist_buffer_fill_on(large, "\x5a", 1, stream));
	DROP(put, b);
	cr_expect_eq(bytes[0], 0x5a);
	hoist_buffer_unref(large);
	hoist_stream_unref(stream);
	free(bytes);
}

/* proves: S2.03 */
Test(close, a_stream_that_cannot_order_the_memory_is_refused, .init = open_all)
{
	hoist_stream *other = make_stream(devices[3]);
	hoist_buffer *b = make_buffer(devices[1], HOIST_U8, 1, shape_10, 0);
	cr_expect_eq(hoist_buffer_close(b, other), -EINVAL);
	cr_expect_not(hoist_buffer_is_closed(b));
	OK(hoist_buffer_close(b, NULL));
	cr_expect_eq(hoist_buffer_close(NULL, NULL), -EINVAL);
	hoist_buffer_unref(b);
	hoist_stream_unref(other);
}

/* proves: S2.11 */
Test(create, from_a_resource_that_nobody_can_touch, .init = open_all)
{
	struct backing custom = {0};
	hoist_memory *memory = make_custom(&custom, devices[0], 0, 0);
	void *bytes = NULL;
	size_t n = 0;
	hoist_buffer *b = make_buffer_from(memory, NULL, HOIST_U8, 1, shape_10, 0);
	cr_expect_eq(info_of(b).is_host_accessible, 0);
	cr_expect_eq(info_of(b).is_device_accessible, 0);
	cr_expect_null(hoist_buffer_data(b));
	cr_expect_eq(hoist_buffer_host_bytes(b, 0, &bytes, &n), -ENOTSUP);
	hoist_buffer_unref(b);
	hoist_memory_unref(memory);
}

/* --- lazily --- */

/* proves: S4.01 S4.06 S4.07 S4.17 V211 V212 V223 */
Test(lazy, takes_memory_when_it_is_needed, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_F32, 1, shape_10,
					      HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO);
		cr_expect_eq(info_of(b).is_allocated, 0);
		cr_expect_eq(hoist_buffer_address(b), 0);
		cr_expect_eq(info_of(b).storage_bytes, 40);
		hoist_buffer *view = make_view(b, 4, HOIST_F32, 1, SHAPE(4));
		cr_expect_eq(info_of(view).is_allocated, 0);
		OK(hoist_buffer_allocate(view));
		cr_expect_eq(info_of(b).is_allocated, 1, "the whole storage");
		cr_expect_eq(hoist_buffer_address(view), hoist_buffer_address(b) + 4);
		cr_expect_eq(info_of(view).offset, 4);
		cr_expect_eq(hoist_buffer_bytes(view), 16);
		cr_assert_eq(hoist_buffer_allocate(b), 0, "again: nothing");
		DROP(b, view);
	}
	hoist_buffer *twins[2];
	for (int i = 0; i < 2; i++)
		OK(hoist_buffer_create(devices[0], HOIST_U8, 1, shape_10, HOIST_BUFFER_LAZY,
				       &twins[i]));
	cr_expect_not(hoist_buffer_equal(twins[0], twins[1]), "no memory is not the same memory");
	cr_expect(hoist_buffer_equal(twins[0], twins[0]));
	DROP(twins[0], twins[1]);
	hoist_buffer *never =
		make_buffer(devices[1], HOIST_F32, 1, SHAPE(INT64_MAX / 16), HOIST_BUFFER_LAZY);
	cr_expect_eq(hoist_buffer_allocate(never), -ENOSPC);
	hoist_buffer_unref(never);
	cr_assert(lib_nothing_outstanding(devices));
}

/* proves: S0.18 S4.08 S4.09 V223 */
Test(lazy, host_bytes_take_it, .init = open_all)
{
	void *bytes = NULL;
	size_t n = 0;
	hoist_buffer *b = make_buffer(devices[0], HOIST_U8, 1, SHAPE(100),
				      HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO);
	OK(hoist_buffer_host_bytes(b, 1, &bytes, &n));
	cr_expect_eq(n, 100);
	for (size_t i = 0; i < n; i++)
		cr_expect_eq(((unsigned char *)bytes)[i], 0);
	hoist_buffer *every_other = make_slice(b, 1, SLICES(HOIST_STEP(HOIST_NONE, HOIST_NONE, 2)));
	cr_expect_eq(hoist_buffer_host_bytes(every_other, 0, &bytes, &n), -EINVAL);
	DROP(every_other, b);
	OK(hoist_buffer_create(devices[1], HOIST_U8, 1, shape_10, 0, &b));
	REFUSED(hoist_buffer_host_bytes(b, 0, &bytes, &n), -ENOTSUP, "copy the buffer to the cpu");
	hoist_buffer_unref(b);
}

/* --- flags --- */

/* proves: S4.24 */
Test(freeze, is_for_good_and_for_all_views, .init = open_all)
{
	void *bytes = NULL;
	size_t n = 0;
	hoist_buffer *b = zeroed(devices[0], HOIST_U8, 1, shape_10);
	hoist_buffer *view = make_slice(b, 1, SLICES(HOIST_RANGE(2, 4)));
	OK(hoist_buffer_freeze(view));
	cr_expect_eq(info_of(b).is_read_only, 1);
	REFUSED(hoist_buffer_host_bytes(b, 1, &bytes, &n), -EROFS, "frozen");
	cr_expect_eq(hoist_buffer_write(b, 0, "x", 1), -EROFS);
	OK(hoist_buffer_host_bytes(b, 0, &bytes, &n));
	DROP(view, b);
}

/* proves: S0.01 S0.04 S0.05 S0.10 V001 V002 V003 V030 V033 V045 V055 V056 */
Test(create, flags_shapes_and_dtypes, .init = open_all)
{
	static const struct {
		int rank;
		int64_t shape[5];
		uint64_t elements;
	} shapes[] = {
		{3, {2, 4, 3}, 24},	 {2, {1, 4}, 4}, {0, {0}, 1},
		{5, {1, 1, 1, 1, 1}, 1}, {1, {0}, 0},
	};
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		hoist_buffer *b =
			make_buffer(devices[0], HOIST_I16, shapes[i].rank, shapes[i].shape, 0);
		cr_expect_eq(hoist_buffer_elements(b), shapes[i].elements, "V055");
		cr_expect(hoist_buffer_is_host(b), "V030");
		cr_expect_not(hoist_buffer_is_pinned(b), "V033");
		hoist_buffer_unref(b);
	}
	for (int dtype = 1; dtype < 128; dtype++) {
		hoist_buffer *b = NULL;
		if (hoist_dtype_name((hoist_dtype)dtype) == NULL)
			continue;
		cr_expect_eq(
			hoist_buffer_create(devices[0], (hoist_dtype)dtype, 1, SHAPE(2), 0, &b), 0,
			"V003: %s: %s", hoist_dtype_name((hoist_dtype)dtype), hoist_error());
		cr_expect_eq(hoist_buffer_bytes(b),
			     (2 * hoist_dtype_bits((hoist_dtype)dtype) + 7) / 8, "V056");
		hoist_buffer_unref(b);
	}
	int64_t shape[] = {2, 3};
	hoist_buffer *b = make_buffer(devices[0], HOIST_I32, 2, shape,
				      HOIST_BUFFER_PINNED | HOIST_BUFFER_ZERO);
	shape[0] = 1;
	cr_expect_eq(hoist_buffer_shape(b)[0], 2, "V002");
	cr_expect(hoist_buffer_is_pinned(b), "V033");
	for (int i = 0; i < 6; i++)
		cr_expect_eq(((const int32_t *)hoist_buffer_data(b))[i], 0, "V045");
	hoist_buffer_unref(b);
	b = NULL;
	cr_expect_eq(hoist_buffer_create(devices[0], HOIST_I32, 2, shape,
					 HOIST_BUFFER_PINNED | HOIST_BUFFER_SHAREABLE, &b),
		     -EINVAL);
	cr_expect_eq(
		hoist_buffer_create(devices[1], HOIST_I32, 2, shape, HOIST_BUFFER_SHAREABLE, &b),
		-EINVAL);
	cr_expect_null(b);
	OK(hoist_buffer_create(devices[0], HOIST_I32, 2, shape, HOIST_BUFFER_SHAREABLE, &b));
	cr_expect_eq(((const int32_t *)hoist_buffer_data(b))[2], 0);
	hoist_buffer_unref(b);
}

/* proves: S4.02 S4.03 V216 */
Test(create, zeroed_from_a_resource_that_the_cpu_sees_or_not, .init = open_all)
{
	static const struct {
		int kind;
		bool seen; /* by the CPU */
	} kinds[] = {{HOIST_MEMORY_MANAGED, true},
		     {HOIST_MEMORY_PINNED, true},
		     {HOIST_MEMORY_DEVICE, false}};
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		hoist_memory *memory = make_kind(kinds[i].kind, devices[1]);
		/* The second buffer has the first one's bytes. */
		for (unsigned flags = 0; flags <= HOIST_BUFFER_ZERO; flags += HOIST_BUFFER_ZERO) {
			unsigned char got[10] = {1};
			hoist_buffer *b =
				make_buffer_from(memory, NULL, HOIST_U8, 1, shape_10, flags);
			cr_expect_eq(hoist_buffer_data(b) != NULL, kinds[i].seen);
			if (flags == 0)
				OK(hoist_buffer_fill(b, "x", 1));
			OK(hoist_buffer_read(b, 0, got, sizeof got));
			for (size_t k = 0; k < sizeof got; k++)
				cr_expect_eq(got[k], flags == 0 ? 'x' : 0, "V216");
			if (kinds[i].seen && flags != 0)
				cr_expect_eq(*(unsigned char *)hoist_buffer_data(b), 0, "V216");
			hoist_buffer_unref(b);
		}
		hoist_memory_unref(memory);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* --- identities --- */

/* proves: S2.14 S4.05 S4.20 V217 */
Test(ids, are_never_the_same, .init = open_all)
{
	hoist_buffer *b = make_buffer(devices[0], HOIST_U8, 1, SHAPE(64), 0);
	hoist_buffer *other = make_view(b, 0, HOIST_U8, 1, SHAPE(64));
	hoist_buffer_info first = info_of(b);
	hoist_buffer_info second = info_of(other);
	cr_expect_neq(first.id, second.id);
	cr_expect_neq(first.id, first.storage_id);
	cr_expect_eq(first.storage_id, second.storage_id);
	cr_expect(hoist_buffer_equal(b, other), "same address, same bytes");
	uintptr_t address = hoist_buffer_address(b);
	DROP(b, other);
	OK(hoist_buffer_create(devices[0], HOIST_F32, 2, SHAPE(4, 4), 0, &b));
	hoist_buffer_info third = info_of(b);
	cr_expect_neq(third.storage_id, first.storage_id);
	cr_expect_gt(third.id, second.id);
	cr_expect_eq(hoist_buffer_dtype(b), HOIST_F32);
	cr_expect_eq(hoist_buffer_rank(b), 2);
	/* The same memory again: nothing of the old buffer is left but the bytes. */
	cr_expect_eq(hoist_buffer_address(b), address, "V217");
	hoist_buffer_unref(b);
}
