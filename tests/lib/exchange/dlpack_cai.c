/* SPDX-License-Identifier: MIT */
/* The CUDA Array Interface's fields, out and in; and the table of DLPack's functions. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "hoist/cai.h"
#include "hoist/dlpack.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-unit.h"

static const int64_t shape_23[] = {2, 3};

static hoist_buffer *create(hoist_device *device, hoist_dtype dtype, unsigned flags)
{
	return make_buffer(device, dtype, 2, shape_23, flags);
}

static void count(void *context)
{
	++*(int *)context;
}

/* --- out --- */

/* proves: S3.04 */
Test(cai, typestr_of_every_dtype, .init = open_all)
{
	static const struct {
		hoist_dtype dtype;
		const char *typestr; /* NULL: none */
	} rows[] = {
		{HOIST_BOOL, "|b1"},   {HOIST_I8, "|i1"},	{HOIST_I16, "<i2"},
		{HOIST_I32, "<i4"},    {HOIST_I64, "<i8"},	{HOIST_U8, "|u1"},
		{HOIST_U16, "<u2"},    {HOIST_U32, "<u4"},	{HOIST_U64, "<u8"},
		{HOIST_F16, "<f2"},    {HOIST_F32, "<f4"},	{HOIST_F64, "<f8"},
		{HOIST_C64, "<c8"},    {HOIST_C128, "<c16"},	{HOIST_BF16, NULL},
		{HOIST_F8_E5M2, NULL}, {HOIST_F4_E2M1FN, NULL},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		hoist_cai cai = {.size = sizeof cai};
		hoist_buffer *back = NULL;
		hoist_buffer *b = create(devices[1], rows[i].dtype, HOIST_BUFFER_LAZY);
		int err = hoist_buffer_to_cai(b, &cai);
		if (rows[i].typestr != NULL) {
			cr_expect_eq(err, 0, "%s", hoist_error());
			cr_expect_str_eq(cai.typestr, rows[i].typestr);
			cr_expect_eq(cai.data, hoist_buffer_address(b));
			cr_assert_eq(hoist_buffer_from_cai(&cai, NULL, NULL, 0, &back), 0, "%s: %s",
				     cai.typestr, hoist_error());
			cr_expect_eq(hoist_buffer_dtype(back), rows[i].dtype, "%s", cai.typestr);
			hoist_buffer_unref(back);
		} else {
			cr_expect_eq(err, -ENOTSUP);
			expect_text("has no typestr");
		}
		hoist_buffer_unref(b);
	}
}

/* proves: S3.01 S3.04 S3.05 V202 */
Test(cai, fields_out_and_in, .init = open_all)
{
	for (unsigned pinned = 0; pinned <= HOIST_BUFFER_PINNED; pinned++)
		for (int i = 1; i < LIB_N_DEVICES; i++) {
			hoist_cai cai = {.size = sizeof cai};
			hoist_buffer *back = NULL;
			int released = 0;
			const hoist_cai_owner owner = {count, &released};
			const hoist_slice every[] = {HOIST_STEP(HOIST_NONE, HOIST_NONE, -1),
						     HOIST_STEP(HOIST_NONE, HOIST_NONE, 2)};
			const int values[] = {0, 1, 2, 3, 4, 5};
			const int expected[] = {3, 5, 0, 2};
			int got[4] = {0};
			hoist_buffer *b = create(devices[i], HOIST_I32, pinned);
			OK(hoist_buffer_write(b, 0, values, sizeof values));
			OK(hoist_buffer_to_cai(b, &cai));
			cr_expect_eq(cai.version, 3);
			cr_expect_eq(cai.has_strides, 0);
			OK(hoist_buffer_from_cai(&cai, NULL, NULL, 0, &back));
			hoist_buffer_info info = info_of(back);
			cr_expect_eq(info.has_implicit_strides, 1, "None came in");
			hoist_buffer_unref(back);
			cr_expect_eq(cai.is_read_only, 0);
			hoist_buffer *view = make_slice(b, 2, every);
			OK(hoist_buffer_freeze(b));
			OK(hoist_buffer_to_cai(view, &cai));
			cr_expect_eq(cai.has_strides, 1);
			cr_expect_eq(cai.strides[0], -12);
			cr_expect_eq(cai.strides[1], 8);
			cr_expect_eq(cai.shape[1], 2);
			cr_expect_eq(cai.is_read_only, 1);
			OK(hoist_buffer_from_cai(&cai, &owner, NULL, 0, &back));
			cr_expect_eq(hoist_buffer_address(back), hoist_buffer_address(view));
			cr_expect_eq(hoist_buffer_strides(back)[0], -3);
			cr_expect_eq(hoist_buffer_strides(back)[1], 2);
			OK(hoist_buffer_get_info(back, &info));
			cr_expect_eq(info.is_read_only, 1);
			cr_expect_eq(info.has_implicit_strides, 0);
			cr_expect_eq(info.is_device_accessible, 1);
			cr_expect_null(hoist_buffer_data(back), "the address is the device's");
			if (!pinned) {
				cr_expect_eq(hoist_buffer_device(back), devices[i]);
				cr_expect_eq(info.device_id, i == 2, "V202 %s", lib_specs[i]);
			}
			OK(hoist_buffer_copy_out(back, got, sizeof got));
			cr_expect_arr_eq(got, expected, sizeof got);
			cr_expect_eq(released, 0);
			hoist_buffer_unref(back);
			cr_expect_eq(released, 1);
			DROP(view, b);
		}
	expect_all_given_back();
}

/* proves: S3.04 */
Test(cai, comes_in_whichever_context_is_current, .init = open_all)
{
	for (int ordinal = -1; ordinal < 2; ordinal++) {
		hoist_cai cai = {.size = sizeof cai};
		hoist_buffer *back = NULL;
		hoist_buffer *b = create(devices[1], HOIST_I32, 0);
		OK(hoist_buffer_to_cai(b, &cai));
		lib_enter_context(ordinal);
		OK(hoist_buffer_from_cai(&cai, NULL, NULL, 0, &back));
		cr_expect_eq(hoist_buffer_device(back), devices[1]);
		lib_leave_context(ordinal);
		DROP(back, b);
	}
}

/* proves: S3.05 */
Test(cai, host_memory_has_none, .init = open_all)
{
	hoist_cai cai = {.size = sizeof cai};
	hoist_buffer *b = create(devices[0], HOIST_I32, 0);
	REFUSED(hoist_buffer_to_cai(b, &cai), -ENOTSUP, "no device can touch");
	cr_expect_eq(hoist_buffer_to_cai(NULL, &cai), -EINVAL);
	hoist_buffer_unref(b);
	b = create(devices[1], HOIST_I32, 0);
	cai.size = 0;
	cr_expect_eq(hoist_buffer_to_cai(b, &cai), -EINVAL);
	OK(hoist_buffer_close(b, NULL));
	cai.size = sizeof cai;
	cr_expect_eq(hoist_buffer_to_cai(b, &cai), -EBADF);
	hoist_buffer_unref(b);
}

/* --- in --- */

enum change {
	OLD,
	MASK,
	STREAM,
	TYPESTR,
	DATA,
	STRIDES,
	EXTENT,
	RANK,
};

static void change(hoist_cai *cai, enum change what, int64_t a, const char *text)
{
	switch (what) {
	case OLD:
		cai->version = (int)a;
		break;
	case MASK:
		cai->has_mask = (int)a;
		break;
	case STREAM:
		cai->has_stream = 1;
		cai->stream = (intptr_t)a;
		break;
	case TYPESTR:
		memset(cai->typestr, 0, sizeof cai->typestr);
		memcpy(cai->typestr, text, strlen(text));
		break;
	case DATA:
		cai->data = (uintptr_t)a;
		break;
	case STRIDES:
		cai->has_strides = 1;
		cai->strides[0] = 12;
		cai->strides[1] = a;
		break;
	case EXTENT:
		cai->shape[0] = a;
		break;
	case RANK:
		cai->rank = (int)a;
		break;
	}
}

/* proves: S3.04 */
Test(cai, refusals, .init = open_all)
{
	static int host[6];
	const struct {
		enum change what;
		int64_t a;
		const char *typestr;
		int err;
		const char *text;
	} rows[] = {
		{OLD, 2, NULL, -ENOTSUP, "version 2"},
		{OLD, 0, NULL, -ENOTSUP, "version 0"},
		{MASK, 1, NULL, -ENOTSUP, "mask"},
		{STREAM, 0, NULL, -EINVAL, "stream is 0"},
		{STREAM, -1, NULL, -EINVAL, "stream is -1"},
		{TYPESTR, 0, ">i4", -ENOTSUP, "\">i4\""},
		{TYPESTR, 0, "<V2", -ENOTSUP, "\"<V2\""},
		{TYPESTR, 0, "|S4", -ENOTSUP, "\"|S4\""},
		{TYPESTR, 0, "|i4", -ENOTSUP, "\"|i4\""},
		{TYPESTR, 0, "<f16", -ENOTSUP, "\"<f16\""},
		{TYPESTR, 0, "", -ENOTSUP, "\"\""},
		{TYPESTR, 0, "<i4XXXXX", -ENOTSUP, "<i4XXXXX"},
		{DATA, 0, NULL, -EINVAL, "no driver knows"},
		{DATA, (int64_t)(uintptr_t)host, NULL, -EINVAL, "no driver knows"},
		{STRIDES, 6, NULL, -EINVAL, "axis 1 has a stride of 6 bytes"},
		{EXTENT, -1, NULL, -EINVAL, "extent -1"},
		{EXTENT, INT64_MAX, NULL, -EOVERFLOW, ""},
		{RANK, 65, NULL, -EINVAL, "rank 65"},
		{RANK, -1, NULL, -EINVAL, "rank -1"},
	};
	int released = 0;
	const hoist_cai_owner owner = {count, &released};
	hoist_cai good = {.size = sizeof good};
	hoist_buffer *b = create(devices[1], HOIST_I32, 0);
	hoist_buffer *back = NULL;
	OK(hoist_buffer_to_cai(b, &good));
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		hoist_cai cai = good;
		change(&cai, rows[i].what, rows[i].a, rows[i].typestr);
		cr_expect_eq(hoist_buffer_from_cai(&cai, &owner, NULL, 0, &back), rows[i].err,
			     "row %zu: %s", i, hoist_error());
		expect_text(rows[i].text);
		cr_expect_null(back);
	}
	hoist_stream *other = make_stream(devices[2]);
	REFUSED(hoist_buffer_from_cai(&good, &owner, other, 0, &back), -EINVAL,
		"the stream is of cuda:1, the memory of cuda:0");
	good.has_stream = 1;
	good.stream = 1;
	cr_expect_eq(hoist_buffer_from_cai(&good, &owner, other, 0, &back), -EINVAL);
	cr_expect_eq(hoist_buffer_from_cai(&good, &owner, NULL, 2, &back), -EINVAL);
	cr_expect_eq(hoist_buffer_from_cai(NULL, &owner, NULL, 0, &back), -EINVAL);
	cr_expect_eq(released, 0);
	hoist_stream_unref(other);
	hoist_buffer_unref(b);
}

/* proves: S3.04 */
Test(cai, without_elements_the_stream_says_where, .init = open_all)
{
	hoist_cai cai = {.size = sizeof cai, .version = 3, .typestr = "=f4", .rank = 1};
	hoist_buffer *b = NULL;
	hoist_stream *stream = make_stream(devices[2]);
	OK(hoist_buffer_from_cai(&cai, NULL, stream, 0, &b));
	cr_expect_eq(hoist_buffer_device(b), devices[2]);
	cr_expect_eq(hoist_buffer_dtype(b), HOIST_F32);
	hoist_buffer_unref(b);
	OK(hoist_buffer_from_cai(&cai, NULL, NULL, 0, &b));
	cr_expect_eq(hoist_buffer_device(b), devices[1]);
	hoist_buffer_unref(b);
	hoist_stream_unref(stream);
}

/* --- DLPack's table --- */

struct told {
	char kind[32];
	char text[256];
	int n;
};

static void note(void *context, const char *kind, const char *text)
{
	struct told *told = context;
	(void)strncpy(told->kind, kind, sizeof told->kind - 1);
	(void)strncpy(told->text, text, sizeof told->text - 1);
	told->n++;
}

static const hoist_dl_exchange *table(void)
{
	return (const hoist_dl_exchange *)(const void *)hoist_dlpack_exchange_api();
}

/* proves: S5.08 S3.13 */
Test(dlpack_exchange, allocates_on_every_device, .init = open_all)
{
	static const hoist_dl_device places[] = {{1, 0}, {2, 0},  {2, 1}, {10, 0},
						 {3, 0}, {11, 0}, {13, 0}};
	cr_expect_eq(table()->major, 1u);
	cr_expect_null(table()->previous);
	cr_expect_eq(table(), (const void *)hoist_dlpack_exchange_api());
	for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
		struct lib_offer offer;
		struct told told = {.n = 0};
		struct DLManagedTensorVersioned *made = NULL;
		void *object = NULL;
		hoist_dl_tensor *prototype = lib_offer(&offer, NULL, HOIST_BF16, 2, shape_23, NULL);
		prototype->device = places[i];
		cr_assert_eq(table()->allocate(prototype, &made, &told, note), 0, "%s",
			     hoist_error());
		const hoist_dl_tensor *seen = &lib_seen(made)->tensor;
		cr_expect_eq(seen->device.type, places[i].type);
		cr_expect_eq(seen->device.id, places[i].id);
		cr_expect_eq(seen->dtype.code, 4);
		cr_expect_eq(seen->shape[1], 3);
		cr_expect_not_null(seen->data);
		cr_assert_eq(table()->from_managed(made, &object), 0);
		cr_expect_eq(hoist_buffer_dtype(object), HOIST_BF16);
		hoist_buffer_unref(object);
		cr_expect_eq(told.n, 0);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* proves: S5.08 */
Test(dlpack_exchange, each_failure_names_its_kind_and_cause, .init = open_all)
{
	struct lib_offer offer;
	struct told told = {.n = 0};
	struct DLManagedTensorVersioned *made = NULL;
	hoist_dl_tensor *prototype = lib_offer(&offer, NULL, HOIST_F32, 2, shape_23, NULL);
	prototype->device.type = HOIST_DL_VULKAN;
	cr_expect_eq(table()->allocate(prototype, &made, &told, note), -1);
	cr_expect_str_eq(told.kind, "BufferError");
	cr_expect_not_null(strstr(told.text, "type 7 is not supported"), "%s", told.text);
	prototype = lib_offer(&offer, NULL, HOIST_F32, 2, shape_23, NULL);
	offer.shape[0] = -2;
	cr_expect_eq(table()->allocate(prototype, &made, &told, note), -1);
	cr_expect_str_eq(told.kind, "ValueError");
	offer.shape[0] = (int64_t)1 << 46;
	cr_expect_eq(table()->allocate(prototype, &made, &told, note), -1);
	cr_expect_str_eq(told.kind, "MemoryError", "%s", told.text);
	offer.shape[0] = INT64_MAX;
	cr_expect_eq(table()->allocate(prototype, &made, &told, note), -1);
	cr_expect_str_eq(told.kind, "OverflowError");
	cr_expect_eq(table()->allocate(NULL, &made, &told, note), -1);
	cr_expect_eq(told.n, 5);
	cr_expect_eq(table()->allocate(NULL, &made, NULL, NULL), -1);
	cr_expect_null(made);
}

/* proves: S5.08 S3.13 */
Test(dlpack_exchange, borrows_and_takes, .init = open_all)
{
	struct lib_offer offer;
	int array[6] = {0};
	void *object = NULL;
	void *native = &offer;
	hoist_dl_tensor seen;
	struct DLManagedTensorVersioned *tensor = NULL;
	lib_offer(&offer, array, HOIST_I32, 2, shape_23, NULL);
	cr_assert_eq(table()->from_managed(lib_managed(&offer), &object), 0);
	cr_assert_eq(table()->to_tensor(object, &seen), 0, "%s", hoist_error());
	cr_expect_eq(seen.data, array);
	cr_expect_eq(seen.rank, 2);
	cr_expect_eq(seen.shape, hoist_buffer_shape(object), "borrowed, not copied");
	cr_expect_eq(seen.strides, hoist_buffer_strides(object));
	cr_assert_eq(table()->to_managed(object, &tensor), 0);
	OK(hoist_buffer_freeze(object));
	cr_expect_eq(table()->to_tensor(object, &seen), -1, "it could not say read-only");
	hoist_buffer_unref(object);
	cr_expect_eq(offer.n_deleted, 0u);
	hoist_dlpack_release(tensor);
	cr_expect_eq(offer.n_deleted, 1u);
	/* A refused tensor is deleted, too. */
	lib_offer(&offer, array, HOIST_I32, 2, shape_23, NULL);
	offer.u.managed.major = 9;
	cr_expect_eq(table()->from_managed(lib_managed(&offer), &object), -1);
	cr_expect_eq(offer.n_deleted, 1u);
	cr_expect_eq(table()->to_managed(NULL, &tensor), -1);
	cr_expect_eq(table()->to_tensor(NULL, &seen), -1);
	cr_expect_eq(table()->current_stream(HOIST_DL_CPU, 0, &native), 0);
	cr_expect_null(native);
	cr_expect_eq(table()->current_stream(HOIST_DL_METAL, 0, &native), -1);
}
