/* SPDX-License-Identifier: MIT */
/* Buffers as DLPack tensors: the fields that a consumer sees, and the tensors' life. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/dlpack.h"
#include "hoist/mmap.h"
#include "tests/support/lib-custom.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-unit.h"

static void refused(hoist_buffer *b, const hoist_dlpack_options *options, int err, const char *text)
{
	struct DLManagedTensorVersioned *tensor = NULL;
	REFUSED(hoist_buffer_to_dlpack(b, options, &tensor), err, text);
	cr_expect_null(tensor);
}

static const int64_t shape_4[] = {1, 4};

/* --- a consumer's view --- */

/* proves: S0.30 S5.01 S5.03 S3.11 V040 */
Test(dlpack_export, every_dtype_aliases, .init = open_cpu)
{
	for (int i = HOIST_BOOL; i <= HOIST_F8_E8M0FNU; i++) {
		hoist_dtype dtype = (hoist_dtype)i;
		hoist_dtype_info info = {.size = sizeof info};
		if (hoist_dtype_get_info(dtype, &info) != 0)
			continue;
		hoist_buffer *b = make_buffer(devices[0], dtype, 2, shape_4, HOIST_BUFFER_ZERO);
		struct DLManagedTensorVersioned *tensor = exported(b, NULL);
		const hoist_dl_managed *seen = lib_seen(tensor);
		cr_expect_eq(seen->major, 1u, "%s", info.name);
		cr_expect_eq(seen->flags, 0u, "%s", info.name);
		cr_expect_eq(seen->tensor.dtype.code, info.dlpack_code, "%s", info.name);
		cr_expect_eq(seen->tensor.dtype.bits, info.bits, "%s", info.name);
		cr_expect_eq(seen->tensor.dtype.lanes, 1, "%s", info.name);
		cr_expect_eq(seen->tensor.device.type, HOIST_DL_CPU);
		cr_expect_eq(seen->tensor.rank, 2);
		cr_expect_eq(seen->tensor.shape[0], 1);
		cr_expect_eq(seen->tensor.shape[1], 4);
		cr_expect_eq(seen->tensor.strides[0], 4);
		cr_expect_eq(seen->tensor.strides[1], 1);
		cr_expect_eq(seen->tensor.byte_offset, 0u);
		cr_expect_eq(seen->tensor.data, hoist_buffer_data(b));
		unsigned char later = 1;
		OK(hoist_buffer_write(b, 0, &later, 1));
		cr_expect_eq(*(unsigned char *)seen->tensor.data, 1, "%s", info.name);
		hoist_buffer_unref(b);
		cr_expect_eq(*(unsigned char *)seen->tensor.data, 1, "%s", info.name);
		hoist_dlpack_release(tensor);
	}
}

/* proves: S3.11 S5.05 */
Test(dlpack_export, rank_0_has_no_shape_and_empty_ones_no_data, .init = open_cpu)
{
	hoist_buffer *b = make_buffer(devices[0], HOIST_F32, 0, NULL, 0);
	struct DLManagedTensorVersioned *tensor = exported(b, NULL);
	cr_expect_null(lib_seen(tensor)->tensor.shape);
	cr_expect_null(lib_seen(tensor)->tensor.strides);
	cr_expect_not_null(lib_seen(tensor)->tensor.data);
	hoist_dlpack_release(tensor);
	hoist_buffer_unref(b);
	b = make_buffer(devices[0], HOIST_F32, 3, SHAPE(2, 0, 3), 0);
	tensor = exported(b, NULL);
	cr_expect_null(lib_seen(tensor)->tensor.data);
	cr_expect_eq(lib_seen(tensor)->tensor.shape[1], 0);
	cr_expect_not_null(lib_seen(tensor)->tensor.strides);
	hoist_dlpack_release(tensor);
	hoist_buffer_unref(b);
}

/* proves: S3.11 S5.05 */
Test(dlpack_export, a_slice_begins_with_its_first_element, .init = open_cpu)
{
	hoist_buffer *b = make_buffer(devices[0], HOIST_I16, 2, SHAPE(4, 6), HOIST_BUFFER_ZERO);
	const hoist_slice every[] = {HOIST_STEP(HOIST_NONE, HOIST_NONE, -1), HOIST_ALL};
	hoist_buffer *view = make_slice(b, 2, every);
	struct DLManagedTensorVersioned *tensor = exported(view, NULL);
	cr_expect_eq(lib_seen(tensor)->tensor.strides[0], -6);
	cr_expect_eq((char *)lib_seen(tensor)->tensor.data,
		     (char *)hoist_buffer_data(b) + 3 * 6 * 2);
	cr_expect_eq(lib_seen(tensor)->tensor.byte_offset, 0u);
	hoist_dlpack_release(tensor);
	DROP(view, b);
}

/* proves: S2.12 */
Test(dlpack_export, bytes_of_one_axis_are_a_view_away, .init = open_cpu)
{
	hoist_buffer *b = make_buffer(devices[0], HOIST_F32, 2, shape_4, 0);
	hoist_buffer *bytes = make_view(b, 0, HOIST_I8, 1, SHAPE(16));
	struct DLManagedTensorVersioned *tensor = exported(bytes, NULL);
	cr_expect_eq(lib_seen(tensor)->tensor.dtype.code, 0);
	cr_expect_eq(lib_seen(tensor)->tensor.dtype.bits, 8);
	cr_expect_eq(lib_seen(tensor)->tensor.rank, 1);
	cr_expect_eq(lib_seen(tensor)->tensor.shape[0], 16);
	cr_expect_eq(lib_seen(tensor)->tensor.strides[0], 1);
	cr_expect_eq(lib_seen(tensor)->tensor.byte_offset, 0u);
	hoist_dlpack_release(tensor);
	DROP(bytes, b);
}

/* proves: S5.03 */
Test(dlpack_export, sub_byte_types_are_packed, .init = open_cpu)
{
	hoist_buffer *b =
		make_buffer(devices[0], HOIST_F4_E2M1FN, 2, SHAPE(3, 4), HOIST_BUFFER_ZERO);
	struct DLManagedTensorVersioned *tensor = exported(b, NULL);
	cr_expect_eq(lib_seen(tensor)->tensor.dtype.code, 17);
	cr_expect_eq(lib_seen(tensor)->tensor.dtype.bits, 4);
	cr_expect_eq(lib_seen(tensor)->flags & HOIST_DL_SUBBYTE_PADDED, 0u);
	hoist_dlpack_release(tensor);
	const hoist_slice from_1[] = {HOIST_ALL, HOIST_RANGE(1, HOIST_NONE)};
	hoist_buffer *odd = make_slice(b, 2, from_1);
	refused(odd, NULL, -ENOTSUP, "bit 4 of a byte");
	hoist_buffer_unref(odd);
	const hoist_slice from_2[] = {HOIST_ALL, HOIST_RANGE(2, HOIST_NONE)};
	OK(hoist_buffer_slice(b, 2, from_2, &odd));
	tensor = exported(odd, NULL);
	cr_expect_eq((char *)lib_seen(tensor)->tensor.data, (char *)hoist_buffer_data(b) + 1);
	hoist_dlpack_release(tensor);
	DROP(odd, b);
}

Test(dlpack_export, block_types_are_refused, .init = open_cpu)
{
	hoist_buffer *b = make_buffer(devices[0], HOIST_Q4_0, 1, SHAPE(32), 0);
	refused(b, NULL, -ENOTSUP, "no type for q4_0");
	hoist_buffer_unref(b);
}

/* --- read-only --- */

/* proves: S5.03 S3.11 */
Test(dlpack_export, read_only_is_said_or_refused, .init = open_cpu)
{
	struct DLManagedTensor *legacy = NULL;
	hoist_buffer *b = make_buffer(devices[0], HOIST_F32, 2, shape_4, HOIST_BUFFER_ZERO);
	OK(hoist_buffer_to_dlpack_legacy(b, NULL, &legacy));
	cr_expect_eq(lib_seen_legacy(legacy)->tensor.data, hoist_buffer_data(b));
	cr_expect_eq(lib_seen_legacy(legacy)->tensor.strides[0], 4);
	hoist_dlpack_release_legacy(legacy);
	OK(hoist_buffer_freeze(b));
	struct DLManagedTensorVersioned *tensor = exported(b, NULL);
	cr_expect_eq(lib_seen(tensor)->flags, HOIST_DL_READ_ONLY);
	hoist_dlpack_release(tensor);
	legacy = NULL;
	cr_expect_eq(hoist_buffer_to_dlpack_legacy(b, NULL, &legacy), -ENOTSUP);
	cr_expect_null(legacy);
	expect_text("read-only, which DLPack's legacy struct cannot say");
	const hoist_dlpack_options copy = {.size = sizeof copy, .copy = HOIST_DLPACK_COPY_ALWAYS};
	OK(hoist_buffer_to_dlpack_legacy(b, &copy, &legacy));
	cr_expect_neq(lib_seen_legacy(legacy)->tensor.data, hoist_buffer_data(b));
	hoist_dlpack_release_legacy(legacy);
	hoist_buffer_unref(b);
}

/* --- life --- */

/* proves: S5.06 */
Test(dlpack_export, the_tensor_keeps_the_storage, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_F32, 2, shape_4, 0);
		struct DLManagedTensorVersioned *closed = exported(b, NULL);
		struct DLManagedTensorVersioned *dropped = exported(b, NULL);
		OK(hoist_buffer_close(b, NULL));
		refused(b, NULL, -EBADF, "");
		hoist_buffer_unref(b);
		cr_expect_not_null(lib_seen(closed)->tensor.data);
		hoist_dlpack_release(closed);
		hoist_buffer *again = imported(dropped, NULL, 0);
		const float value[] = {1, 2, 3, 4};
		float got[4] = {0};
		OK(hoist_buffer_write(again, 0, value, sizeof value));
		OK(hoist_buffer_read(again, 0, got, sizeof got));
		cr_expect_arr_eq(got, value, sizeof got);
		hoist_buffer_unref(again);
	}
	hoist_dlpack_release(NULL);
	hoist_dlpack_release_legacy(NULL);
	expect_all_given_back();
}

/* proves: S0.30 */
Test(dlpack_export, lazy_memory_is_taken, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = make_buffer(devices[i], HOIST_F32, 2, shape_4,
					      HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO);
		struct DLManagedTensorVersioned *tensor = exported(b, NULL);
		cr_expect_not_null(lib_seen(tensor)->tensor.data, "%s", lib_specs[i]);
		cr_expect_eq((uintptr_t)lib_seen(tensor)->tensor.data, hoist_buffer_address(b));
		hoist_dlpack_release(tensor);
		hoist_buffer_unref(b);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* --- devices --- */

static void expect_device(const hoist_buffer *b, int type, int id, const char *what)
{
	hoist_dl_device where = {-1, -1};
	cr_assert_eq(hoist_buffer_dlpack_device(b, &where), 0, "%s: %s", what, hoist_error());
	cr_expect_eq(where.type, type, "%s: type %d", what, where.type);
	cr_expect_eq(where.id, id, "%s: id %d", what, where.id);
}

/* proves: S0.31 S5.02 V039 V088 V089 */
Test(dlpack_device, follows_memory, .init = open_all)
{
	static const struct {
		const char *vector;
		int device;
		unsigned flags;
		int type;
		int id;
	} rows[] = {
		{"V039", 0, 0, 1, 0},
		{"mlock'ed", 0, HOIST_BUFFER_PINNED, 1, 0},
		{"V088", 1, 0, 2, 0},
		{"V088 second", 2, 0, 2, 1},
		{"V088 hip", 3, 0, 10, 0},
		{"V089", 1, HOIST_BUFFER_PINNED, 3, 0},
		{"V089 second", 2, HOIST_BUFFER_PINNED, 3, 0},
		{"V089 hip", 3, HOIST_BUFFER_PINNED, 11, 0},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		hoist_buffer *b =
			make_buffer(devices[rows[i].device], HOIST_F32, 2, shape_4, rows[i].flags);
		expect_device(b, rows[i].type, rows[i].id, rows[i].vector);
		struct DLManagedTensorVersioned *tensor = exported(b, NULL);
		cr_expect_eq(lib_seen(tensor)->tensor.device.type, rows[i].type, "%s",
			     rows[i].vector);
		cr_expect_eq(lib_seen(tensor)->tensor.device.id, rows[i].id, "%s", rows[i].vector);
		hoist_dlpack_release(tensor);
		hoist_buffer_unref(b);
	}
}

/* The buffer's resource ends with the buffer. */
static hoist_buffer *create_custom(hoist_device *device, int host, int accelerator)
{
	hoist_memory *memory = make_custom(NULL, device, host, accelerator);
	hoist_buffer *b = make_buffer_from(memory, NULL, HOIST_F32, 2, shape_4, 0);
	hoist_memory_unref(memory);
	return b;
}

/* proves: S2.13 S3.12 V144 V145 */
Test(dlpack_device, follows_the_resource, .init = open_all)
{
	hoist_buffer *b = create_custom(devices[1], 1, 1);
	expect_device(b, HOIST_DL_CUDA_HOST, 0, "V144 unified and pinned");
	hoist_buffer_unref(b);
	b = create_custom(devices[1], 1, 0);
	expect_device(b, HOIST_DL_CPU, 0, "V144 host");
	hoist_buffer_unref(b);
	b = create_custom(devices[2], 0, 1);
	expect_device(b, HOIST_DL_CUDA, 1, "V144 device");
	hoist_buffer_unref(b);
	b = create_custom(devices[1], 0, 0);
	hoist_dl_device where = {-1, -1};
	cr_expect_eq(hoist_buffer_dlpack_device(b, &where), -ENOTSUP, "V145");
	expect_text("neither the CPU nor a device");
	cr_expect_eq(where.type, -1);
	refused(b, NULL, -ENOTSUP, "neither the CPU nor a device may touch the buffer's memory");
	hoist_buffer_unref(b);
}

/* proves: S2.13 */
Test(dlpack_device, managed_memory, .init = open_all)
{
	const int types[] = {0, HOIST_DL_CUDA_MANAGED, HOIST_DL_CUDA_MANAGED, HOIST_DL_ROCM_HOST};
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory = make_kind(HOIST_MEMORY_MANAGED, devices[i]);
		hoist_buffer *b = make_buffer_from(memory, NULL, HOIST_F32, 2, shape_4, 0);
		hoist_memory_unref(memory);
		expect_device(b, types[i], 0, lib_specs[i]);
		hoist_buffer *back = imported(exported(b, NULL), NULL, 0);
		hoist_buffer_info info = info_of(back);
		cr_expect(info.is_managed, "%s", lib_specs[i]);
		cr_expect_eq(hoist_buffer_data(back), hoist_buffer_data(b));
		hoist_buffer_unref(back);
		const hoist_dlpack_options copy = {.size = sizeof copy,
						   .copy = HOIST_DLPACK_COPY_ALWAYS};
		struct DLManagedTensorVersioned *tensor = exported(b, &copy);
		cr_expect_eq(lib_seen(tensor)->tensor.device.type, types[i], "%s", lib_specs[i]);
		hoist_dlpack_release(tensor);
		hoist_buffer_unref(b);
	}
	expect_all_given_back();
}

/* proves: S5.02 */
Test(dlpack_device, devices_by_their_numbers, .init = open_all)
{
	static const struct {
		int type;
		int id;
		const char *spec; /* NULL: refused */
		int err;
	} rows[] = {
		{1, 0, "cpu", 0},	{1, 7, "cpu", 0},	 {2, 1, "cuda:1", 0},
		{3, 0, "cuda:0", 0},	{13, 5, "cuda:0", 0},	 {10, 0, "hip:0", 0},
		{11, 3, "hip:0", 0},	{2, 2, NULL, -ENODEV},	 {2, -1, NULL, -ENODEV},
		{10, 1, NULL, -ENODEV}, {4, 0, NULL, -ENOTSUP},	 {0, 0, NULL, -ENOTSUP},
		{8, 0, NULL, -ENOTSUP}, {99, 0, NULL, -ENOTSUP}, {-1, 0, NULL, -ENOTSUP},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		hoist_device *found = NULL;
		const hoist_dl_device where = {rows[i].type, rows[i].id};
		cr_expect_eq(hoist_device_from_dlpack(where, &found), rows[i].err, "(%d, %d): %s",
			     rows[i].type, rows[i].id, hoist_error());
		if (rows[i].spec != NULL)
			cr_expect_str_eq(hoist_device_spec(found), rows[i].spec);
		if (rows[i].err == -ENOTSUP)
			expect_text("not supported");
		hoist_device_unref(found);
	}
}

/* --- copies, and other devices --- */

/* proves: S5.07 */
Test(dlpack_copy, is_the_consumers_alone, .init = open_all)
{
	const hoist_dlpack_options always = {.size = sizeof always,
					     .copy = HOIST_DLPACK_COPY_ALWAYS};
	const hoist_dlpack_options never = {.size = sizeof never, .copy = HOIST_DLPACK_COPY_NEVER};
	for (unsigned pinned = 0; pinned <= HOIST_BUFFER_PINNED; pinned++)
		for (int i = 0; i < LIB_N_DEVICES; i++) {
			hoist_dl_device where;
			hoist_buffer *b = make_buffer(devices[i], HOIST_F32, 2, shape_4,
						      HOIST_BUFFER_ZERO | pinned);
			OK(hoist_buffer_dlpack_device(b, &where));
			OK(hoist_buffer_freeze(b));
			struct DLManagedTensorVersioned *tensor = exported(b, &always);
			const hoist_dl_managed *seen = lib_seen(tensor);
			cr_expect_eq(seen->flags, HOIST_DL_IS_COPIED);
			cr_expect_neq((uintptr_t)seen->tensor.data, hoist_buffer_address(b));
			cr_expect_eq(seen->tensor.device.type, where.type, "%s", lib_specs[i]);
			cr_expect_eq(seen->tensor.device.id, where.id, "%s", lib_specs[i]);
			hoist_dlpack_release(tensor);
			tensor = exported(b, &never);
			/* Host memory by its host address. */
			cr_expect_eq((uintptr_t)lib_seen(tensor)->tensor.data,
				     pinned ? (uintptr_t)hoist_buffer_data(b)
					    : hoist_buffer_address(b));
			hoist_dlpack_release(tensor);
			hoist_buffer_unref(b);
		}
	expect_all_given_back();
}

/* proves: S5.07 */
Test(dlpack_copy, goes_where_the_consumer_wants_it, .init = open_all)
{
	static const hoist_dl_device places[] = {{1, 0}, {2, 0},  {2, 1}, {10, 0},
						 {3, 0}, {11, 0}, {13, 0}};
	const float value[] = {1, 2, 3, 4};
	for (unsigned pinned = 0; pinned <= HOIST_BUFFER_PINNED; pinned++)
		for (int i = 0; i < LIB_N_DEVICES; i++)
			for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
				hoist_dlpack_options options = {.size = sizeof options,
								.device = places[k]};
				hoist_buffer *b =
					make_buffer(devices[i], HOIST_F32, 2, shape_4, pinned);
				float got[4] = {0};
				hoist_dl_device here;
				OK(hoist_buffer_write(b, 0, value, sizeof value));
				OK(hoist_buffer_dlpack_device(b, &here));
				bool fits =
					(here.type == places[k].type && here.id == places[k].id) ||
					(places[k].type == 1 && pinned);
				struct DLManagedTensorVersioned *tensor = exported(b, &options);
				const hoist_dl_managed *seen = lib_seen(tensor);
				cr_expect_eq(seen->flags, fits ? 0 : HOIST_DL_IS_COPIED,
					     "%s to (%d, %d)", lib_specs[i], places[k].type,
					     places[k].id);
				cr_expect_eq(seen->tensor.device.type, places[k].type);
				cr_expect_eq(seen->tensor.device.id, places[k].id);
				hoist_buffer *back = imported(tensor, NULL, 0);
				OK(hoist_buffer_read(back, 0, got, sizeof got));
				cr_expect_arr_eq(got, value, sizeof got);
				hoist_buffer_unref(back);
				options.copy = HOIST_DLPACK_COPY_NEVER;
				if (!fits) {
					refused(b, &options, -ENOTSUP, "must not be copied");
				}
				hoist_buffer_unref(b);
			}
	expect_all_given_back();
}

/* --- wrong arguments --- */

/* proves: S5.07 */
Test(dlpack_export, wrong_arguments, .init = open_all)
{
	static const struct {
		int device;
		intptr_t stream;
		const char *text; /* NULL: allowed */
	} streams[] = {
		{0, 1, "without a stream"},
		{0, 0, "without a stream"},
		{0, -1, NULL},
		{1, 0, "stream 0"},
		{1, 1, NULL},
		{1, 2, NULL},
		{1, -1, NULL},
		{1, -2, "neither a handle"},
		{3, 0, NULL},
		{3, 1, "stream 1 is CUDA's"},
		{3, 2, "stream 2 is CUDA's"},
		{3, -1, NULL},
	};
	for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
		const hoist_dlpack_options options = {
			.size = sizeof options, .has_stream = 1, .stream = streams[i].stream};
		hoist_buffer *b = make_buffer(devices[streams[i].device], HOIST_F32, 2, shape_4,
					      HOIST_BUFFER_ZERO);
		if (streams[i].text == NULL) {
			hoist_dlpack_release(exported(b, &options));
		} else {
			refused(b, &options, -EINVAL, streams[i].text);
		}
		hoist_buffer_unref(b);
	}
	hoist_buffer *b = make_buffer(devices[0], HOIST_F32, 2, shape_4, 0);
	refused(NULL, NULL, -EINVAL, "");
	hoist_dlpack_options options = {.size = sizeof options, .copy = 3};
	refused(b, &options, -EINVAL, "");
	options.copy = 0;
	options.has_stream = 2;
	refused(b, &options, -EINVAL, "");
	options.has_stream = 0;
	options.device.type = HOIST_DL_METAL;
	refused(b, &options, -ENOTSUP, "");
	options.device = (hoist_dl_device){HOIST_DL_CUDA, 9};
	refused(b, &options, -ENODEV, "");
	options.size = 3;
	refused(b, &options, -EINVAL, "");
	hoist_buffer_unref(b);
	cr_assert(lib_nothing_outstanding(devices));
}

/* --- maps of files --- */

/* proves: V052 V053 */
Test(dlpack_export, maps_of_files_alias, .init = open_cpu)
{
	const int64_t shape[] = {2, 4};
	const char *path = temporary("dlpack.bin");
	write_file(path, "01234567", 8);
	hoist_buffer *b = NULL;
	OK(hoist_buffer_mmap(path, HOIST_I8, 2, shape, "c", 0, 0, &b));
	struct DLManagedTensorVersioned *tensor = exported(b, NULL);
	const signed char *bytes = lib_seen(tensor)->tensor.data;
	cr_expect_eq(lib_seen(tensor)->tensor.shape[1], 4, "V052");
	cr_expect_eq(bytes[7], '7', "V052");
	OK(hoist_buffer_write(b, 7, "x", 1));
	cr_expect_eq(bytes[7], 'x', "V052");
	hoist_buffer *unsigned_view = make_view(b, 0, HOIST_U8, 2, shape);
	struct DLManagedTensorVersioned *second = exported(unsigned_view, NULL);
	cr_expect_eq(lib_seen(second)->tensor.dtype.code, 1, "V053");
	cr_expect_eq(lib_seen(second)->tensor.shape[0], 2, "V053");
	OK(hoist_buffer_write(b, 0, "y", 1));
	cr_expect_eq(*(unsigned char *)lib_seen(second)->tensor.data, 'y', "V053");
	DROP(unsigned_view, b);
	hoist_dlpack_release(tensor);
	cr_expect_eq(*(unsigned char *)lib_seen(second)->tensor.data, 'y');
	hoist_dlpack_release(second);
}
