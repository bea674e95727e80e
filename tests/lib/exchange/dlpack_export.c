/* SPDX-License-Identifier: MIT */
/* Buffers as DLPack tensors: what a consumer sees, and for how long. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/dlpack.h"
#include "hoist/hoist.h"
#include "hoist/mmap.h"
#include "tests/support/lib-dlpack.h"
#include "tests/support/lib-support.h"

static hoist_device *devices[LIB_N_DEVICES];

static void open_all(void)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	lib_open_all(devices);
}

static void open_cpu(void)
{
	cr_assert_eq(hoist_device_open("cpu", &devices[0]), 0);
}

static void expect_text(const char *text)
{
	cr_expect_not_null(strstr(hoist_error(), text), "\"%s\" lacks \"%s\"", hoist_error(), text);
}

static hoist_buffer *create(hoist_device *device, hoist_dtype dtype, int rank, const int64_t *shape,
			    unsigned flags)
{
	hoist_buffer *b = NULL;
	cr_assert_eq(hoist_buffer_create(device, dtype, rank, shape, flags, &b), 0, "%s",
		     hoist_error());
	return b;
}

static struct DLManagedTensorVersioned *export(hoist_buffer *b, const hoist_dlpack_options *options)
{
	struct DLManagedTensorVersioned *tensor = NULL;
	cr_assert_eq(hoist_buffer_to_dlpack(b, options, &tensor), 0, "%s", hoist_error());
	return tensor;
}

static int refused(hoist_buffer *b, const hoist_dlpack_options *options)
{
	struct DLManagedTensorVersioned *tensor = NULL;
	int err = hoist_buffer_to_dlpack(b, options, &tensor);
	cr_expect_null(tensor);
	return err;
}

static const int64_t shape_4[] = {1, 4};

/* --- what a consumer sees --- */

/* proves: S0.30 S5.01 S5.03 S3.11 V040 */
Test(dlpack_export, every_dtype_aliases, .init = open_cpu)
{
	for (int i = HOIST_BOOL; i <= HOIST_F8_E8M0FNU; i++) {
		hoist_dtype dtype = (hoist_dtype)i;
		hoist_dtype_info info = {.size = sizeof info};
		if (hoist_dtype_get_info(dtype, &info) != 0)
			continue;
		hoist_buffer *b = create(devices[0], dtype, 2, shape_4, HOIST_BUFFER_ZERO);
		struct DLManagedTensorVersioned *tensor = export(b, NULL);
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
		cr_assert_eq(hoist_buffer_write(b, 0, &later, 1), 0);
		cr_expect_eq(*(unsigned char *)seen->tensor.data, 1, "%s", info.name);
		hoist_buffer_unref(b);
		cr_expect_eq(*(unsigned char *)seen->tensor.data, 1, "%s", info.name);
		hoist_dlpack_release(tensor);
	}
}

/* proves: S3.11 S5.05 */
Test(dlpack_export, rank_0_has_no_shape_and_empty_ones_no_data, .init = open_cpu)
{
	const int64_t empty[] = {2, 0, 3};
	hoist_buffer *b = create(devices[0], HOIST_F32, 0, NULL, 0);
	struct DLManagedTensorVersioned *tensor = export(b, NULL);
	cr_expect_null(lib_seen(tensor)->tensor.shape);
	cr_expect_null(lib_seen(tensor)->tensor.strides);
	cr_expect_not_null(lib_seen(tensor)->tensor.data);
	hoist_dlpack_release(tensor);
	hoist_buffer_unref(b);
	b = create(devices[0], HOIST_F32, 3, empty, 0);
	tensor = export(b, NULL);
	cr_expect_null(lib_seen(tensor)->tensor.data);
	cr_expect_eq(lib_seen(tensor)->tensor.shape[1], 0);
	cr_expect_not_null(lib_seen(tensor)->tensor.strides);
	hoist_dlpack_release(tensor);
	hoist_buffer_unref(b);
}

/* proves: S3.11 S5.05 */
Test(dlpack_export, a_slice_begins_with_its_first_element, .init = open_cpu)
{
	const int64_t shape[] = {4, 6};
	hoist_buffer *b = create(devices[0], HOIST_I16, 2, shape, HOIST_BUFFER_ZERO);
	hoist_buffer *view = NULL;
	const hoist_slice every[] = {HOIST_STEP(HOIST_NONE, HOIST_NONE, -1), HOIST_ALL};
	cr_assert_eq(hoist_buffer_slice(b, 2, every, &view), 0, "%s", hoist_error());
	struct DLManagedTensorVersioned *tensor = export(view, NULL);
	cr_expect_eq(lib_seen(tensor)->tensor.strides[0], -6);
	cr_expect_eq((char *)lib_seen(tensor)->tensor.data,
		     (char *)hoist_buffer_data(b) + 3 * 6 * 2);
	cr_expect_eq(lib_seen(tensor)->tensor.byte_offset, 0u);
	hoist_dlpack_release(tensor);
	hoist_buffer_unref(view);
	hoist_buffer_unref(b);
}

/* proves: S2.12 */
Test(dlpack_export, bytes_of_one_axis_are_a_view_away, .init = open_cpu)
{
	const int64_t n[] = {16};
	hoist_buffer *b = create(devices[0], HOIST_F32, 2, shape_4, 0);
	hoist_buffer *bytes = NULL;
	cr_assert_eq(hoist_buffer_view(b, 0, HOIST_I8, 1, n, &bytes), 0);
	struct DLManagedTensorVersioned *tensor = export(bytes, NULL);
	cr_expect_eq(lib_seen(tensor)->tensor.dtype.code, 0);
	cr_expect_eq(lib_seen(tensor)->tensor.dtype.bits, 8);
	cr_expect_eq(lib_seen(tensor)->tensor.rank, 1);
	cr_expect_eq(lib_seen(tensor)->tensor.shape[0], 16);
	cr_expect_eq(lib_seen(tensor)->tensor.strides[0], 1);
	cr_expect_eq(lib_seen(tensor)->tensor.byte_offset, 0u);
	hoist_dlpack_release(tensor);
	hoist_buffer_unref(bytes);
	hoist_buffer_unref(b);
}

/* proves: S5.03 */
Test(dlpack_export, sub_byte_types_are_packed, .init = open_cpu)
{
	const int64_t shape[] = {3, 4};
	hoist_buffer *b = create(devices[0], HOIST_F4_E2M1FN, 2, shape, HOIST_BUFFER_ZERO);
	hoist_buffer *odd = NULL;
	struct DLManagedTensorVersioned *tensor = export(b, NULL);
	cr_expect_eq(lib_seen(tensor)->tensor.dtype.code, 17);
	cr_expect_eq(lib_seen(tensor)->tensor.dtype.bits, 4);
	cr_expect_eq(lib_seen(tensor)->flags & HOIST_DL_SUBBYTE_PADDED, 0u);
	hoist_dlpack_release(tensor);
	const hoist_slice from_1[] = {HOIST_ALL, HOIST_RANGE(1, HOIST_NONE)};
	cr_assert_eq(hoist_buffer_slice(b, 2, from_1, &odd), 0, "%s", hoist_error());
	cr_expect_eq(refused(odd, NULL), -ENOTSUP);
	expect_text("bit 4 of a byte");
	hoist_buffer_unref(odd);
	const hoist_slice from_2[] = {HOIST_ALL, HOIST_RANGE(2, HOIST_NONE)};
	cr_assert_eq(hoist_buffer_slice(b, 2, from_2, &odd), 0);
	tensor = export(odd, NULL);
	cr_expect_eq((char *)lib_seen(tensor)->tensor.data, (char *)hoist_buffer_data(b) + 1);
	hoist_dlpack_release(tensor);
	hoist_buffer_unref(odd);
	hoist_buffer_unref(b);
}

Test(dlpack_export, block_types_are_refused, .init = open_cpu)
{
	const int64_t shape[] = {32};
	hoist_buffer *b = create(devices[0], HOIST_Q4_0, 1, shape, 0);
	cr_expect_eq(refused(b, NULL), -ENOTSUP);
	expect_text("no type for q4_0");
	hoist_buffer_unref(b);
}

/* --- read-only --- */

/* proves: S5.03 S3.11 */
Test(dlpack_export, read_only_is_said_or_refused, .init = open_cpu)
{
	struct DLManagedTensor *legacy = NULL;
	hoist_buffer *b = create(devices[0], HOIST_F32, 2, shape_4, HOIST_BUFFER_ZERO);
	cr_assert_eq(hoist_buffer_to_dlpack_legacy(b, NULL, &legacy), 0, "%s", hoist_error());
	cr_expect_eq(lib_seen_legacy(legacy)->tensor.data, hoist_buffer_data(b));
	cr_expect_eq(lib_seen_legacy(legacy)->tensor.strides[0], 4);
	hoist_dlpack_release_legacy(legacy);
	cr_assert_eq(hoist_buffer_freeze(b), 0);
	struct DLManagedTensorVersioned *tensor = export(b, NULL);
	cr_expect_eq(lib_seen(tensor)->flags, HOIST_DL_READ_ONLY);
	hoist_dlpack_release(tensor);
	legacy = NULL;
	cr_expect_eq(hoist_buffer_to_dlpack_legacy(b, NULL, &legacy), -ENOTSUP);
	cr_expect_null(legacy);
	expect_text("read-only, which DLPack's legacy struct cannot say");
	const hoist_dlpack_options copy = {.size = sizeof copy, .copy = HOIST_DLPACK_COPY_ALWAYS};
	cr_assert_eq(hoist_buffer_to_dlpack_legacy(b, &copy, &legacy), 0, "%s", hoist_error());
	cr_expect_neq(lib_seen_legacy(legacy)->tensor.data, hoist_buffer_data(b));
	hoist_dlpack_release_legacy(legacy);
	hoist_buffer_unref(b);
}

/* --- life --- */

/* proves: S5.06 */
Test(dlpack_export, the_tensor_keeps_the_storage, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = create(devices[i], HOIST_F32, 2, shape_4, 0);
		struct DLManagedTensorVersioned *closed = export(b, NULL);
		struct DLManagedTensorVersioned *dropped = export(b, NULL);
		cr_expect_eq(hoist_buffer_close(b, NULL), 0);
		cr_expect_eq(refused(b, NULL), -EBADF);
		hoist_buffer_unref(b);
		cr_expect_not_null(lib_seen(closed)->tensor.data);
		hoist_dlpack_release(closed);
		hoist_buffer *again = NULL;
		cr_assert_eq(hoist_buffer_from_dlpack(dropped, NULL, 0, &again), 0, "%s",
			     hoist_error());
		const float value[] = {1, 2, 3, 4};
		float got[4] = {0};
		cr_expect_eq(hoist_buffer_write(again, 0, value, sizeof value), 0);
		cr_expect_eq(hoist_buffer_read(again, 0, got, sizeof got), 0);
		cr_expect_arr_eq(got, value, sizeof got);
		hoist_buffer_unref(again);
	}
	hoist_dlpack_release(NULL);
	hoist_dlpack_release_legacy(NULL);
	cr_assert(lib_nothing_outstanding(devices));
	cr_assert(lib_drivers_content());
}

/* proves: S0.30 */
Test(dlpack_export, lazy_memory_is_taken, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = create(devices[i], HOIST_F32, 2, shape_4,
					 HOIST_BUFFER_LAZY | HOIST_BUFFER_ZERO);
		struct DLManagedTensorVersioned *tensor = export(b, NULL);
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
			create(devices[rows[i].device], HOIST_F32, 2, shape_4, rows[i].flags);
		expect_device(b, rows[i].type, rows[i].id, rows[i].vector);
		struct DLManagedTensorVersioned *tensor = export(b, NULL);
		cr_expect_eq(lib_seen(tensor)->tensor.device.type, rows[i].type, "%s",
			     rows[i].vector);
		cr_expect_eq(lib_seen(tensor)->tensor.device.id, rows[i].id, "%s", rows[i].vector);
		hoist_dlpack_release(tensor);
		hoist_buffer_unref(b);
	}
}

static int take(void *context, size_t bytes, size_t align, hoist_stream *stream, uintptr_t *ret)
{
	static _Alignas(64) unsigned char room[64];
	(void)context;
	(void)stream;
	cr_assert(bytes <= sizeof room && align <= 64);
	*ret = (uintptr_t)room;
	return 0;
}

static void give(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	(void)context;
	(void)address;
	(void)bytes;
	(void)stream;
}

static hoist_buffer *create_custom(hoist_device *device, int host, int accelerator)
{
	const hoist_memory_functions functions = {
		.size = sizeof functions,
		.alloc = take,
		.free = give,
		.is_host_accessible = host,
		.is_device_accessible = accelerator,
	};
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_CUSTOM,
		.device = device,
		.functions = &functions,
	};
	hoist_memory *memory;
	hoist_buffer *b = NULL;
	cr_assert_eq(hoist_memory_create(&options, &memory), 0, "%s", hoist_error());
	cr_assert_eq(hoist_buffer_create_from(memory, NULL, HOIST_F32, 2, shape_4, 0, &b), 0, "%s",
		     hoist_error());
	hoist_memory_unref(memory);
	return b;
}

/* proves: S2.13 S3.12 V144 V145 */
Test(dlpack_device, follows_what_a_resource_says, .init = open_all)
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
	cr_expect_eq(refused(b, NULL), -ENOTSUP, "V145");
	hoist_buffer_unref(b);
}

/* proves: S2.13 */
Test(dlpack_device, managed_memory, .init = open_all)
{
	const int types[] = {0, HOIST_DL_CUDA_MANAGED, HOIST_DL_CUDA_MANAGED, HOIST_DL_ROCM_HOST};
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		const hoist_memory_options options = {
			.size = sizeof options,
			.kind = HOIST_MEMORY_MANAGED,
			.device = devices[i],
		};
		hoist_memory *memory;
		hoist_buffer *b = NULL;
		hoist_buffer *back = NULL;
		cr_assert_eq(hoist_memory_create(&options, &memory), 0, "%s", hoist_error());
		cr_assert_eq(hoist_buffer_create_from(memory, NULL, HOIST_F32, 2, shape_4, 0, &b),
			     0, "%s", hoist_error());
		hoist_memory_unref(memory);
		expect_device(b, types[i], 0, lib_specs[i]);
		cr_assert_eq(hoist_buffer_from_dlpack(export(b, NULL), NULL, 0, &back), 0, "%s",
			     hoist_error());
		hoist_buffer_info info = {.size = sizeof info};
		cr_assert_eq(hoist_buffer_get_info(back, &info), 0);
		cr_expect(info.is_managed, "%s", lib_specs[i]);
		cr_expect_eq(hoist_buffer_data(back), hoist_buffer_data(b));
		hoist_buffer_unref(back);
		const hoist_dlpack_options copy = {.size = sizeof copy,
						   .copy = HOIST_DLPACK_COPY_ALWAYS};
		struct DLManagedTensorVersioned *tensor = export(b, &copy);
		cr_expect_eq(lib_seen(tensor)->tensor.device.type, types[i], "%s", lib_specs[i]);
		hoist_dlpack_release(tensor);
		hoist_buffer_unref(b);
	}
	cr_assert(lib_nothing_outstanding(devices));
	cr_assert(lib_drivers_content());
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
			hoist_buffer *b = create(devices[i], HOIST_F32, 2, shape_4,
						 HOIST_BUFFER_ZERO | pinned);
			cr_assert_eq(hoist_buffer_dlpack_device(b, &where), 0);
			cr_assert_eq(hoist_buffer_freeze(b), 0);
			struct DLManagedTensorVersioned *tensor = export(b, &always);
			const hoist_dl_managed *seen = lib_seen(tensor);
			cr_expect_eq(seen->flags, HOIST_DL_IS_COPIED);
			cr_expect_neq((uintptr_t)seen->tensor.data, hoist_buffer_address(b));
			cr_expect_eq(seen->tensor.device.type, where.type, "%s", lib_specs[i]);
			cr_expect_eq(seen->tensor.device.id, where.id, "%s", lib_specs[i]);
			hoist_dlpack_release(tensor);
			tensor = export(b, &never);
			/* Host memory by its host address. */
			cr_expect_eq((uintptr_t)lib_seen(tensor)->tensor.data,
				     pinned ? (uintptr_t)hoist_buffer_data(b)
					    : hoist_buffer_address(b));
			hoist_dlpack_release(tensor);
			hoist_buffer_unref(b);
		}
	cr_assert(lib_nothing_outstanding(devices));
	cr_assert(lib_drivers_content());
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
				hoist_buffer *b = create(devices[i], HOIST_F32, 2, shape_4, pinned);
				hoist_buffer *back = NULL;
				float got[4] = {0};
				hoist_dl_device here;
				cr_assert_eq(hoist_buffer_write(b, 0, value, sizeof value), 0);
				cr_assert_eq(hoist_buffer_dlpack_device(b, &here), 0);
				bool fits =
					(here.type == places[k].type && here.id == places[k].id) ||
					(places[k].type == 1 && pinned);
				struct DLManagedTensorVersioned *tensor = export(b, &options);
				const hoist_dl_managed *seen = lib_seen(tensor);
				cr_expect_eq(seen->flags, fits ? 0 : HOIST_DL_IS_COPIED,
					     "%s to (%d, %d)", lib_specs[i], places[k].type,
					     places[k].id);
				cr_expect_eq(seen->tensor.device.type, places[k].type);
				cr_expect_eq(seen->tensor.device.id, places[k].id);
				cr_assert_eq(hoist_buffer_from_dlpack(tensor, NULL, 0, &back), 0,
					     "%s", hoist_error());
				cr_expect_eq(hoist_buffer_read(back, 0, got, sizeof got), 0);
				cr_expect_arr_eq(got, value, sizeof got);
				hoist_buffer_unref(back);
				options.copy = HOIST_DLPACK_COPY_NEVER;
				if (!fits) {
					cr_expect_eq(refused(b, &options), -ENOTSUP);
					expect_text("must not be copied");
				}
				hoist_buffer_unref(b);
			}
	cr_assert(lib_nothing_outstanding(devices));
	cr_assert(lib_drivers_content());
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
		hoist_buffer *b = create(devices[streams[i].device], HOIST_F32, 2, shape_4,
					 HOIST_BUFFER_ZERO);
		if (streams[i].text == NULL) {
			hoist_dlpack_release(export(b, &options));
		} else {
			cr_expect_eq(refused(b, &options), -EINVAL, "row %zu", i);
			expect_text(streams[i].text);
		}
		hoist_buffer_unref(b);
	}
	hoist_buffer *b = create(devices[0], HOIST_F32, 2, shape_4, 0);
	cr_expect_eq(refused(NULL, NULL), -EINVAL);
	hoist_dlpack_options options = {.size = sizeof options, .copy = 3};
	cr_expect_eq(refused(b, &options), -EINVAL);
	options.copy = 0;
	options.has_stream = 2;
	cr_expect_eq(refused(b, &options), -EINVAL);
	options.has_stream = 0;
	options.device.type = HOIST_DL_METAL;
	cr_expect_eq(refused(b, &options), -ENOTSUP);
	options.device = (hoist_dl_device){HOIST_DL_CUDA, 9};
	cr_expect_eq(refused(b, &options), -ENODEV);
	options.size = 3;
	cr_expect_eq(refused(b, &options), -EINVAL);
	hoist_buffer_unref(b);
	cr_assert(lib_nothing_outstanding(devices));
}

/* --- maps of files --- */

/* proves: V052 V053 */
Test(dlpack_export, maps_of_files_alias, .init = open_cpu)
{
	const int64_t shape[] = {2, 4};
	char path[4096];
	const char *folder = getenv("TMPDIR");
	(void)snprintf(path, sizeof path, "%s/dlpack.bin", folder != NULL ? folder : "/tmp");
	FILE *file = fopen(path, "w");
	cr_assert_not_null(file);
	cr_assert_eq(fwrite("01234567", 1, 8, file), 8u);
	cr_assert_eq(fclose(file), 0);
	hoist_buffer *b = NULL;
	hoist_buffer *unsigned_view = NULL;
	cr_assert_eq(hoist_buffer_mmap(path, HOIST_I8, 2, shape, "c", 0, 0, &b), 0, "%s",
		     hoist_error());
	struct DLManagedTensorVersioned *tensor = export(b, NULL);
	const signed char *bytes = lib_seen(tensor)->tensor.data;
	cr_expect_eq(lib_seen(tensor)->tensor.shape[1], 4, "V052");
	cr_expect_eq(bytes[7], '7', "V052");
	cr_assert_eq(hoist_buffer_write(b, 7, "x", 1), 0);
	cr_expect_eq(bytes[7], 'x', "V052");
	cr_assert_eq(hoist_buffer_view(b, 0, HOIST_U8, 2, shape, &unsigned_view), 0);
	struct DLManagedTensorVersioned *second = export(unsigned_view, NULL);
	cr_expect_eq(lib_seen(second)->tensor.dtype.code, 1, "V053");
	cr_expect_eq(lib_seen(second)->tensor.shape[0], 2, "V053");
	cr_assert_eq(hoist_buffer_write(b, 0, "y", 1), 0);
	cr_expect_eq(*(unsigned char *)lib_seen(second)->tensor.data, 'y', "V053");
	hoist_buffer_unref(unsigned_view);
	hoist_buffer_unref(b);
	hoist_dlpack_release(tensor);
	cr_expect_eq(*(unsigned char *)lib_seen(second)->tensor.data, 'y');
	hoist_dlpack_release(second);
}
