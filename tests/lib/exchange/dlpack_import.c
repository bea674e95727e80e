/* SPDX-License-Identifier: MIT */
/* DLPack tensors as buffers: tensors that are taken or refused, and the calls of their deleters. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/dlpack.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-unit.h"

static const int64_t shape_4[] = {4};
static const int64_t shape_23[] = {2, 3};

/* --- tensors that are taken --- */

/* proves: S0.29 S3.01 V035 */
Test(dlpack_import, every_dtype_aliases)
{
	for (int i = HOIST_BOOL; i <= HOIST_F8_E8M0FNU; i++) {
		hoist_dtype dtype = (hoist_dtype)i;
		unsigned char array[4 * 16] = {0};
		struct lib_offer offer;
		if (hoist_dtype_bits(dtype) == 0)
			continue;
		size_t item = hoist_dtype_bits(dtype) / 8;
		unsigned char seven[16] = {7, 7};
		lib_offer(&offer, array, dtype, 1, shape_4, NULL);
		hoist_buffer *b = imported(lib_managed(&offer), NULL, 0);
		cr_expect_eq(hoist_buffer_dtype(b), dtype);
		cr_expect_eq(hoist_buffer_rank(b), 1);
		cr_expect_eq(hoist_buffer_shape(b)[0], 4);
		cr_expect_eq(hoist_buffer_data(b), array);
		OK(hoist_buffer_write(b, 0, seven, item));
		cr_expect_arr_eq(array, seven, item, "%s", hoist_dtype_name(dtype));
		hoist_buffer_unref(b);
		cr_expect_eq(offer.n_deleted, 1u);
	}
}

/* proves: S0.29 V036 V208 */
Test(dlpack_import, a_reference_or_a_copy)
{
	int array[4] = {0, 1, 2, 3};
	struct lib_offer offer;
	for (int i = 0; i < 10; i++) {
		lib_offer(&offer, array, HOIST_I32, 1, shape_4, NULL);
		hoist_buffer_unref(imported(lib_managed(&offer), NULL, 0));
		cr_expect_eq(offer.n_deleted, 1u, "V208");
	}
	lib_offer(&offer, array, HOIST_I32, 1, shape_4, NULL);
	hoist_buffer *b = imported(lib_managed(&offer), NULL, HOIST_DLPACK_COPY);
	cr_expect_eq(offer.n_deleted, 1u, "the deleter of what was copied is called at once");
	cr_expect_neq(hoist_buffer_data(b), array, "V036");
	array[2] = 9;
	cr_expect_eq(((int *)hoist_buffer_data(b))[2], 2);
	cr_expect_eq(hoist_buffer_dtype(b), HOIST_I32, "V036");
	hoist_buffer_unref(b);
	cr_expect_eq(offer.n_deleted, 1u);
}

/* proves: S3.03 S3.05 V200 */
Test(dlpack_import, layouts)
{
	static double array[36];
	static const struct {
		const char *name;
		hoist_dtype dtype;
		int rank;
		int64_t shape[2];
		int64_t strides[2];
		int has_strides;
		int contiguous;
	} rows[] = {
		{"(3,) i32", HOIST_I32, 1, {3}, {1}, 1, 1},
		{"(3,) i32, no strides", HOIST_I32, 1, {3}, {1}, 0, 1},
		{"(6,6)[::2,::2] f64", HOIST_F64, 2, {3, 3}, {12, 2}, 1, 0},
		{"(3,4) F", HOIST_F64, 2, {3, 4}, {1, 3}, 1, 0},
		{"(3,4) no strides", HOIST_F64, 2, {3, 4}, {4, 1}, 0, 1},
		{"() f16", HOIST_F16, 0, {0}, {0}, 0, 1},
		{"(0,3), strides", HOIST_F64, 2, {0, 3}, {3, 1}, 1, 1},
		{"(0,3), no strides", HOIST_F64, 2, {0, 3}, {3, 1}, 0, 1},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct lib_offer offer;
		lib_offer(&offer, array, rows[i].dtype, rows[i].rank, rows[i].shape,
			  rows[i].has_strides ? rows[i].strides : NULL);
		hoist_buffer *b = imported(lib_managed(&offer), NULL, 0);
		if (hoist_buffer_elements(b) > 0)
			cr_expect_eq(hoist_buffer_data(b), array, "%s", rows[i].name);
		for (int k = 0; k < rows[i].rank; k++) {
			cr_expect_eq(hoist_buffer_shape(b)[k], rows[i].shape[k], "%s",
				     rows[i].name);
			cr_expect_eq(hoist_buffer_strides(b)[k], rows[i].strides[k], "%s",
				     rows[i].name);
		}
		cr_expect_eq(hoist_buffer_is_contiguous(b), rows[i].contiguous, "%s", rows[i].name);
		hoist_buffer_info info = info_of(b);
		cr_expect_eq(info.device_id, -1, "%s", rows[i].name);
		cr_expect_eq(info.is_device_accessible, 0, "%s", rows[i].name);
		cr_expect_eq(info.is_read_only, 0, "%s", rows[i].name);
		cr_expect_eq(info.has_implicit_strides, !rows[i].has_strides, "%s", rows[i].name);
		hoist_buffer_unref(b);
		cr_expect_eq(offer.n_deleted, 1u, "%s", rows[i].name);
	}
}

/* proves: S3.05 V205 */
Test(dlpack_import, is_sliced_where_its_elements_are)
{
	static int array[30];
	static const struct {
		const char *order;
		int64_t strides[2];
		ptrdiff_t bytes;
		int64_t stride;
	} rows[] = {{"C", {6, 1}, 52, 1}, {"F", {1, 5}, 28, 5}};
	const hoist_slice slices[] = {HOIST_AT(2), HOIST_RANGE(1, -1)};
	for (size_t i = 0; i < 2; i++) {
		struct lib_offer offer;
		lib_offer(&offer, array, HOIST_I32, 2, SHAPE(5, 6), rows[i].strides);
		hoist_buffer *b = imported(lib_managed(&offer), NULL, 0);
		hoist_buffer *view = make_slice(b, 2, slices);
		cr_expect_eq((char *)hoist_buffer_data(view) - (char *)array, rows[i].bytes,
			     "V205 %s", rows[i].order);
		cr_expect_eq(hoist_buffer_shape(view)[0], 4);
		cr_expect_eq(hoist_buffer_strides(view)[0], rows[i].stride);
		hoist_buffer_unref(b);
		cr_expect_eq(offer.n_deleted, 0u, "the view keeps it");
		hoist_buffer_unref(view);
		cr_expect_eq(offer.n_deleted, 1u);
	}
}

/* proves: S3.03 S5.03 V200 */
Test(dlpack_import, read_only_is_kept)
{
	int array[4] = {0, 1, 2, 3};
	const int value = 7;
	struct lib_offer offer;
	lib_offer(&offer, array, HOIST_I32, 1, shape_4, NULL);
	offer.u.managed.flags = HOIST_DL_READ_ONLY | HOIST_DL_IS_COPIED;
	hoist_buffer *b = imported(lib_managed(&offer), NULL, 0);
	hoist_buffer_info info = info_of(b);
	cr_expect_eq(info.is_read_only, 1);
	hoist_buffer *view = make_view_as(b, HOIST_U8);
	cr_expect_eq(hoist_buffer_write(view, 0, &value, sizeof value), -EROFS);
	struct DLManagedTensorVersioned *again = exported(view, NULL);
	cr_expect_eq(lib_seen(again)->flags, HOIST_DL_READ_ONLY);
	DROP(view, b);
	cr_expect_eq(offer.n_deleted, 0u, "what it was exported as keeps it");
	hoist_dlpack_release(again);
	cr_expect_eq(offer.n_deleted, 1u);
	/* A copy may be written. */
	lib_offer(&offer, array, HOIST_I32, 1, shape_4, NULL);
	offer.u.managed.flags = HOIST_DL_READ_ONLY;
	b = imported(lib_managed(&offer), NULL, HOIST_DLPACK_COPY);
	OK(hoist_buffer_write(b, 0, &value, sizeof value));
	hoist_buffer_unref(b);
	cr_expect_eq(array[0], 0);
}

/* proves: S5.05 */
Test(dlpack_import, offsets_negative_strides_and_no_elements)
{
	short array[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
	short got[6] = {0};
	const short expected[] = {5, 6, 7, 2, 3, 4};
	struct lib_offer offer;
	hoist_dl_tensor *tensor = lib_offer(&offer, array, HOIST_I16, 2, shape_23, SHAPE(-3, 1));
	tensor->byte_offset = 10;
	hoist_buffer *b = imported(lib_managed(&offer), NULL, 0);
	cr_expect_eq(hoist_buffer_data(b), array + 5);
	OK(hoist_buffer_copy_out(b, got, sizeof got));
	cr_expect_arr_eq(got, expected, sizeof got);
	hoist_buffer_unref(b);
	tensor = lib_offer(&offer, NULL, HOIST_I16, 2, SHAPE(0, 5), SHAPE(INT64_MIN, INT64_MAX));
	b = imported(lib_managed(&offer), NULL, 0);
	cr_expect_null(hoist_buffer_data(b));
	cr_expect_eq(hoist_buffer_elements(b), 0u);
	hoist_buffer_unref(b);
	cr_expect_eq(offer.n_deleted, 1u);
	/* Not aligned: the bytes are read as they are. */
	tensor = lib_offer(&offer, (char *)array + 1, HOIST_I16, 1, shape_4, NULL);
	b = imported(lib_managed(&offer), NULL, 0);
	cr_expect_not(hoist_buffer_is_aligned(b, 0));
	OK(hoist_buffer_copy_out(b, got, 8));
	cr_expect_arr_eq((char *)got, (char *)array + 1, 8);
	hoist_buffer_unref(b);
}

/* proves: S5.09 */
Test(dlpack_import, packed_elements)
{
	unsigned char array[] = {0x21, 0x43, 0x65};
	unsigned char got[2] = {0};
	const hoist_slice two[] = {HOIST_RANGE(0, 2)};
	struct lib_offer offer;
	lib_offer(&offer, array, HOIST_F4_E2M1FN, 1, SHAPE(3), NULL);
	hoist_buffer *b = imported(lib_managed(&offer), NULL, 0); /* a byte and a half */
	cr_expect_eq(hoist_buffer_bytes(b), 2u);
	hoist_buffer *pair = make_slice(b, 1, two);
	OK(hoist_buffer_copy_out(pair, got, 1));
	cr_expect_eq(got[0], 0x21);
	DROP(pair, b);
	/* From the low half of the last byte downwards. */
	hoist_dl_tensor *tensor = lib_offer(&offer, array, HOIST_F4_E2M1FN, 1, shape_4, SHAPE(-1));
	tensor->byte_offset = 2;
	b = imported(lib_managed(&offer), NULL, 0);
	OK(hoist_buffer_copy_out(b, got, 2));
	cr_expect_eq(got[0], 0x45);
	cr_expect_eq(got[1], 0x23);
	hoist_buffer_unref(b);
}

/* proves: S5.05 */
Test(dlpack_import, no_deleter_is_fine)
{
	int array[4] = {0};
	struct lib_offer offer;
	lib_offer(&offer, array, HOIST_I32, 1, shape_4, NULL);
	offer.u.managed.deleter = NULL;
	hoist_buffer_unref(imported(lib_managed(&offer), NULL, 0));
	lib_offer_legacy(&offer, array, HOIST_I32, 1, shape_4, NULL);
	offer.u.legacy.deleter = NULL;
	hoist_buffer *b = NULL;
	OK(hoist_buffer_from_dlpack_legacy(lib_legacy(&offer), NULL, 0, &b));
	hoist_buffer_unref(b);
}

/* proves: S3.03 S5.01 */
Test(dlpack_import, the_legacy_struct)
{
	int array[6] = {0, 1, 2, 3, 4, 5};
	struct lib_offer offer;
	hoist_buffer *b = NULL;
	lib_offer_legacy(&offer, array, HOIST_I32, 2, shape_23, NULL);
	OK(hoist_buffer_from_dlpack_legacy(lib_legacy(&offer), NULL, 0, &b));
	hoist_buffer_info info = info_of(b);
	cr_expect_eq(info.is_read_only, 0);
	cr_expect_eq(hoist_buffer_data(b), array);
	OK(hoist_buffer_close(b, NULL));
	cr_expect_eq(offer.n_deleted, 1u, "closing the only buffer lets it go");
	hoist_buffer_unref(b);
	cr_expect_eq(offer.n_deleted, 1u);
	lib_offer_legacy(&offer, array, HOIST_I32, 2, shape_23, NULL);
	OK(hoist_buffer_from_dlpack_legacy(lib_legacy(&offer), NULL, HOIST_DLPACK_COPY, &b));
	cr_expect_eq(offer.n_deleted, 1u);
	hoist_buffer_unref(b);
	cr_expect_eq(hoist_buffer_from_dlpack_legacy(NULL, NULL, 0, &b), -EINVAL);
}

/* --- refused tensors, which stay the caller's --- */

enum change {
	MAJOR,
	FLAGS,
	LANES,
	CODE,
	DEVICE,
	RANK,
	EXTENTS,
	STRIDES,
	DATA,
	OFFSET,
	SHAPE,
};

static void change(struct lib_offer *offer, enum change what, int64_t a, int64_t b)
{
	hoist_dl_tensor *tensor = &offer->u.managed.tensor;
	switch (what) {
	case MAJOR:
		offer->u.managed.major = (uint32_t)a;
		break;
	case FLAGS:
		offer->u.managed.flags = (uint64_t)a;
		break;
	case LANES:
		tensor->dtype.lanes = (uint16_t)a;
		break;
	case CODE:
		tensor->dtype.code = (uint8_t)a;
		tensor->dtype.bits = (uint8_t)b;
		break;
	case DEVICE:
		tensor->device = (hoist_dl_device){(int32_t)a, (int32_t)b};
		break;
	case RANK:
		tensor->rank = (int32_t)a;
		break;
	case EXTENTS:
		offer->shape[0] = a;
		offer->shape[1] = b;
		break;
	case STRIDES:
		offer->strides[0] = a;
		offer->strides[1] = b;
		break;
	case DATA:
		tensor->data = NULL;
		break;
	case OFFSET:
		tensor->byte_offset = (uint64_t)a;
		break;
	case SHAPE:
		tensor->shape = NULL;
		break;
	}
}

/* proves: S5.04 S5.03 S5.05 S3.02 S3.06 */
Test(dlpack_import, refusals, .init = open_all)
{
	static const struct {
		enum change what;
		int64_t a;
		int64_t b;
		int err;
		const char *text;
	} rows[] = {
		{MAJOR, 0, 0, -ENOTSUP, "version 0.3"},
		{MAJOR, 2, 0, -ENOTSUP, "version 2.3, hoist knows 1"},
		{FLAGS, 8, 0, -ENOTSUP, "flags 0x8 are newer"},
		{LANES, 4, 0, -ENOTSUP, "4 lanes"},
		{LANES, 0, 0, -ENOTSUP, "0 lanes"},
		{CODE, 3, 64, -ENOTSUP, "type 3 with 64 bits"},	  /* opaque handles */
		{CODE, 2, 128, -ENOTSUP, "type 2 with 128 bits"}, /* f128 */
		{CODE, 4, 32, -ENOTSUP, "type 4 with 32 bits"},	  /* bf16 of other bits */
		{CODE, 6, 1, -ENOTSUP, "type 6 with 1 bits"},	  /* bool */
		{CODE, 7, 8, -ENOTSUP, "type 7 with 8 bits"},	  /* f8_e3m4 */
		{CODE, 15, 8, -ENOTSUP, "type 15 with 8 bits"},	  /* FP6 */
		{CODE, 16, 4, -ENOTSUP, "type 16 with 4 bits"},
		{CODE, 17, 8, -ENOTSUP, "type 17 with 8 bits"}, /* FP4 */
		{CODE, 200, 8, -ENOTSUP, "type 200 with 8 bits"},
		{DEVICE, HOIST_DL_METAL, 0, -ENOTSUP, "type 8 is not supported"},
		{DEVICE, HOIST_DL_TRN, 0, -ENOTSUP, "type 18 is not supported"},
		{DEVICE, 0, 0, -ENOTSUP, "type 0 is not supported"},
		{DEVICE, HOIST_DL_CUDA, 2, -ENODEV, "device 2 of cuda is not here; there are 2"},
		{DEVICE, HOIST_DL_CUDA, -1, -ENODEV, "device -1 of cuda"},
		{RANK, 65, 0, -EINVAL, "rank 65"},
		{RANK, -1, 0, -EINVAL, "rank -1"},
		{RANK, INT32_MIN, 0, -EINVAL, "rank -2147483648"},
		{EXTENTS, 2, -3, -EINVAL, "axis 1 has the extent -3"},
		{EXTENTS, INT64_MAX, 2, -EOVERFLOW, "63 bits"},
		{EXTENTS, (int64_t)1 << 61, 1, -EOVERFLOW, ""},
		{STRIDES, INT64_MAX, 1, -EOVERFLOW, ""},
		{STRIDES, INT64_MIN, 1, -EOVERFLOW, ""},
		{STRIDES, -((int64_t)1 << 60), 1, -EOVERFLOW, ""},
		{DATA, 0, 0, -EINVAL, "no data"},
		{OFFSET, -1, 0, -EOVERFLOW, "byte_offset 18446744073709551615"},
		{SHAPE, 0, 0, -EINVAL, "rank 2 needs a shape"},
	};
	int array[6] = {0};
	for (unsigned flags = 0; flags <= HOIST_DLPACK_COPY; flags++)
		for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
			struct lib_offer offer;
			hoist_buffer *b = NULL;
			lib_offer(&offer, array, HOIST_I32, 2, shape_23, SHAPE(3, 1));
			change(&offer, rows[i].what, rows[i].a, rows[i].b);
			cr_expect_eq(hoist_buffer_from_dlpack(lib_managed(&offer), NULL, flags, &b),
				     rows[i].err, "row %zu: %s", i, hoist_error());
			expect_text(rows[i].text);
			expect_text("DLPack");
			cr_expect_null(b);
			cr_expect_eq(offer.n_deleted, 0u, "row %zu", i);
			hoist_dlpack_release(lib_managed(&offer));
			cr_expect_eq(offer.n_deleted, 1u, "row %zu", i);
		}
	hoist_buffer *b = NULL;
	cr_expect_eq(hoist_buffer_from_dlpack(NULL, NULL, 0, &b), -EINVAL);
}

/* proves: S5.03 */
Test(dlpack_import, padded_elements_are_refused)
{
	unsigned char array[4] = {0};
	struct lib_offer offer;
	hoist_buffer *b = NULL;
	lib_offer(&offer, array, HOIST_F4_E2M1FN, 1, shape_4, NULL);
	offer.u.managed.flags = HOIST_DL_SUBBYTE_PADDED;
	REFUSED(hoist_buffer_from_dlpack(lib_managed(&offer), NULL, 0, &b), -ENOTSUP,
		"take a byte each");
	cr_expect_eq(offer.n_deleted, 0u);
	/* The flag has no meaning for whole bytes. */
	lib_offer(&offer, array, HOIST_U8, 1, shape_4, NULL);
	offer.u.managed.flags = HOIST_DL_SUBBYTE_PADDED;
	hoist_buffer_unref(imported(lib_managed(&offer), NULL, 0));
	cr_expect_eq(offer.n_deleted, 1u);
}

/* proves: S0.29 V062 */
Test(dlpack_import, contiguous_only_where_that_is_asked_for)
{
	int array[4] = {0, 1, 2, 3};
	const int64_t shape[] = {2, 2};
	struct lib_offer offer;
	hoist_buffer *b = NULL;
	lib_offer(&offer, array, HOIST_I32, 2, shape, SHAPE(1, 2));
	cr_expect_eq(
		hoist_buffer_from_dlpack(lib_managed(&offer), NULL, HOIST_DLPACK_CONTIGUOUS, &b),
		-EINVAL, "V062");
	expect_text("make it so");
	cr_expect_eq(offer.n_deleted, 0u);
	OK(hoist_buffer_from_dlpack(lib_managed(&offer), NULL, 0, &b));
	int got[4] = {0};
	const int expected[] = {0, 2, 1, 3};
	OK(hoist_buffer_copy_out(b, got, sizeof got));
	cr_expect_arr_eq(got, expected, sizeof got);
	hoist_buffer_unref(b);
	lib_offer(&offer, array, HOIST_I32, 2, shape, NULL);
	hoist_buffer_unref(imported(lib_managed(&offer), NULL, HOIST_DLPACK_CONTIGUOUS));
	lib_offer(&offer, array, HOIST_I32, 2, shape, NULL);
	cr_expect_eq(hoist_buffer_from_dlpack(lib_managed(&offer), NULL, 4, &b), -EINVAL);
	cr_expect_eq(offer.n_deleted, 0u);
}

/* --- other devices --- */

/* proves: S3.03 S3.12 V202 */
Test(dlpack_import, memory_of_devices_keeps_its_kind, .init = open_all)
{
	for (unsigned pinned = 0; pinned <= HOIST_BUFFER_PINNED; pinned++)
		for (int i = 1; i < LIB_N_DEVICES; i++) {
			hoist_stream *stream = make_stream(devices[i]);
			hoist_buffer *b = make_buffer(devices[i], HOIST_F32, 2, shape_23, pinned);
			hoist_buffer *back = imported(exported(b, NULL), stream, 0);
			cr_expect_eq(hoist_buffer_device(back), devices[i], "%s", lib_specs[i]);
			cr_expect_eq(hoist_buffer_is_pinned(back), pinned != 0, "%s", lib_specs[i]);
			cr_expect_eq(hoist_buffer_address(back), hoist_buffer_address(b));
			cr_expect_eq(hoist_buffer_data(back), hoist_buffer_data(b));
			hoist_buffer_info info = info_of(back);
			cr_expect_eq(info.is_device_accessible, 1);
			hoist_stream *found = stream_of(back);
			cr_expect_eq(found, stream);
			hoist_dl_device was;
			hoist_dl_device is;
			OK(hoist_buffer_dlpack_device(b, &was));
			OK(hoist_buffer_dlpack_device(back, &is));
			cr_expect_eq(was.type, is.type, "S3.12");
			cr_expect_eq(was.id, is.id, "S3.12");
			hoist_buffer_unref(back);
			/* A copy is of the same kind, and on that stream. */
			back = imported(exported(b, NULL), stream, HOIST_DLPACK_COPY);
			cr_expect_eq(hoist_buffer_is_pinned(back), pinned != 0);
			OK(hoist_buffer_stream(back, &found));
			cr_expect_eq(found, stream);
			hoist_buffer_unref(back);
			/* A stream of another device is refused. */
			struct DLManagedTensorVersioned *tensor = exported(b, NULL);
			hoist_stream *other = make_stream(devices[0]);
			REFUSED(hoist_buffer_from_dlpack(tensor, other, 0, &back), -EINVAL,
				"the stream is of cpu");
			hoist_stream_unref(other);
			hoist_dlpack_release(tensor);
			hoist_buffer_unref(b);
			hoist_stream_unref(stream);
		}
	expect_all_given_back();
}
