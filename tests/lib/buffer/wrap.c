/* SPDX-License-Identifier: MIT */
/* Buffers over the caller's memory: whose it is, what is refused, when it is released. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/lib-buffers.h"

static hoist_device *devices[LIB_N_DEVICES];

static void open_all(void)
{
	open_devices(devices);
}

static void count_release(void *context)
{
	++*(int *)context;
}

/* proves: S0.03 S0.28 S2.02 V137 V142 V208 */
Test(wrap, releases_once_when_the_last_view_goes, .init = open_all)
{
	static int32_t data[24];
	int released = 0;
	const hoist_buffer_source source = {.size = sizeof source,
					    .address = (uintptr_t)data,
					    .bytes = sizeof data,
					    .release = count_release,
					    .context = &released};
	hoist_buffer *b = NULL;
	hoist_buffer *view = NULL;
	cr_assert_eq(hoist_buffer_wrap(&source, HOIST_I32, 2, (const int64_t[]){4, 6}, NULL, &b), 0,
		     "%s", hoist_error());
	hoist_buffer_info info = info_of(b);
	cr_expect_eq(hoist_buffer_data(b), data);
	cr_expect_eq(info.device_id, -1, "V137");
	cr_expect_eq(info.is_device_accessible, 0, "V137");
	cr_expect_eq(info.is_host_accessible, 1, "V137");
	cr_expect_null(info.memory);
	cr_expect_eq(hoist_buffer_device(b), devices[0]);
	cr_assert_eq(hoist_buffer_slice(b, 1, (hoist_slice[]){HOIST_AT(1)}, &view), 0);
	hoist_buffer_close(b, NULL);
	hoist_buffer_unref(b);
	cr_expect_eq(released, 0);
	hoist_buffer_unref(view);
	cr_expect_eq(released, 1, "V142");
}

/* proves: S2.02 V141 */
Test(wrap, what_does_not_fit_is_refused_and_not_taken, .init = open_all)
{
	static int32_t data[24];
	int released = 0;
	hoist_memory *memory = NULL;
	hoist_buffer *b = NULL;
	cr_assert_eq(hoist_memory_of_device(devices[0], HOIST_MEMORY_HOST, &memory), 0);
	hoist_buffer_source source = {.size = sizeof source,
				      .address = (uintptr_t)data,
				      .bytes = 20,
				      .release = count_release,
				      .context = &released};
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 2, (const int64_t[]){5, 4}, NULL, &b),
		     -EINVAL);
	expect_text("need 40 bytes, there are 20");
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 1, (const int64_t[]){4},
				       (const int64_t[]){-1}, &b),
		     -EINVAL);
	expect_text("6 bytes before the first element");
	source.memory = memory;
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 1, (const int64_t[]){4}, NULL, &b),
		     -EINVAL, "V141");
	expect_text("not to both");
	source.release = NULL;
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 1, (const int64_t[]){4}, NULL, &b),
		     -EINVAL, "no block of the resource");
	source.memory = NULL;
	source.address = 0;
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 1, (const int64_t[]){4}, NULL, &b),
		     -EINVAL);
	expect_text("address 0");
	source.address = (uintptr_t)data;
	cr_assert_eq(hoist_stream_create(devices[0], &source.stream), 0);
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 1, (const int64_t[]){4}, NULL, &b),
		     -EINVAL);
	hoist_stream_unref(source.stream);
	source.stream = NULL;
	source.device = devices[1];
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 1, (const int64_t[]){4}, NULL, &b),
		     -EINVAL);
	expect_text("of cpu, not of cuda:0");
	cr_expect_null(b);
	cr_expect_eq(released, 0);
	hoist_memory_unref(memory);
}

/* proves: S2.02 */
Test(wrap, reversed_strides_need_bytes_before, .init = open_all)
{
	static int32_t data[] = {1, 2, 3, 4};
	const hoist_buffer_source source = {.size = sizeof source,
					    .address = (uintptr_t)(data + 3),
					    .bytes = 4,
					    .bytes_before = 12,
					    .is_read_only = 1};
	hoist_buffer *b = NULL;
	cr_assert_eq(hoist_buffer_wrap(&source, HOIST_I32, 1, (const int64_t[]){4},
				       (const int64_t[]){-1}, &b),
		     0, "%s", hoist_error());
	const int32_t *first = hoist_buffer_data(b);
	cr_expect_eq(first[0], 4);
	cr_expect_eq(first[-3], 1);
	cr_expect_eq(info_of(b).is_read_only, 1);
	hoist_buffer_unref(b);
}

/* proves: S2.02 S2.11 */
Test(wrap, nothing_of_a_device_is_as_what_is_made_there, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		const hoist_buffer_source source = {.size = sizeof source, .device = devices[i]};
		hoist_buffer *made = NULL;
		hoist_buffer *wrapped = NULL;
		cr_assert_eq(hoist_buffer_create(devices[i], HOIST_U8, 1, (const int64_t[]){0}, 0,
						 &made),
			     0);
		cr_assert_eq(hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){0}, NULL,
					       &wrapped),
			     0, "%s", hoist_error());
		hoist_buffer_info expected = info_of(made);
		hoist_buffer_info info = info_of(wrapped);
		cr_expect_eq(info.device_id, expected.device_id);
		cr_expect_eq(info.is_host_accessible, expected.is_host_accessible);
		cr_expect_eq(info.is_device_accessible, expected.is_device_accessible);
		hoist_buffer_unref(made);
		hoist_buffer_unref(wrapped);
	}
}

/* proves: S2.02 */
Test(wrap, elements_that_fill_no_whole_bytes, .init = open_all)
{
	unsigned char data[2] = {0x21, 0x43};
	hoist_buffer_source source = {
		.size = sizeof source, .address = (uintptr_t)data, .bytes = sizeof data};
	hoist_buffer *b = NULL;
	cr_assert_eq(hoist_buffer_wrap(&source, HOIST_F4_E2M1FN, 1, (const int64_t[]){3}, NULL, &b),
		     0, "%s", hoist_error());
	cr_expect_eq(hoist_buffer_bytes(b), 2);
	hoist_buffer_unref(b);
	source.bytes = 1;
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_F4_E2M1FN, 1, (const int64_t[]){3}, NULL, &b),
		     -EINVAL);
	expect_text("need 2 bytes, there are 1");
}

/* proves: S2.02 */
Test(wrap, memory_ends_within_the_address_space, .init = open_all)
{
	static const struct {
		uintptr_t address;
		size_t bytes, bytes_before;
	} rows[] = {
		{UINTPTR_MAX, 1, 0}, {1, SIZE_MAX, 0}, {1, 1, 1},
		{8, 8, 9},	     {0, 0, 1},	       {SIZE_MAX / 2, SIZE_MAX / 2, SIZE_MAX / 2},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		const hoist_buffer_source source = {.size = sizeof source,
						    .address = rows[i].address,
						    .bytes = rows[i].bytes,
						    .bytes_before = rows[i].bytes_before};
		hoist_buffer *b = NULL;
		cr_expect_eq(hoist_buffer_wrap(&source, HOIST_U8, 1,
					       (const int64_t[]){rows[i].bytes > 0}, NULL, &b),
			     -EINVAL, "%zu", i);
		cr_expect_null(b);
	}
}

/* proves: S2.02 S2.10 */
Test(wrap, a_block_goes_back_to_its_resource, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory = NULL;
		hoist_buffer *b = NULL;
		hoist_buffer_source source = {.size = sizeof source, .bytes = 1000};
		cr_assert_eq(hoist_memory_of_device(devices[i], HOIST_MEMORY_DEVICE, &memory), 0);
		cr_assert_eq(hoist_memory_alloc(memory, 1000, 0, &source.address), 0);
		source.memory = memory;
		cr_assert_eq(hoist_stream_create(devices[i], &source.stream), 0);
		source.address += 256;
		cr_expect_eq(
			hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){1000}, NULL, &b),
			-EINVAL);
		source.address -= 256;
		cr_assert_eq(
			hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){1000}, NULL, &b),
			0, "%s", hoist_error());
		cr_expect_eq(info_of(b).memory, memory);
		hoist_buffer_unref(b);
		cr_expect_eq(hoist_memory_free(memory, source.address), -EINVAL, "it was freed");
		hoist_stream_unref(source.stream);
		hoist_memory_unref(memory);
	}
	cr_assert(lib_nothing_outstanding(devices));
}

/* proves: S2.11 V139 V140 */
Test(wrap, drivers_say_whose_memory_it_is, .init = open_all)
{
	static const struct {
		int kind;
		int pinned, managed, data;
	} kinds[] = {
		{HOIST_MEMORY_PINNED, 1, 0, 1},
		{HOIST_MEMORY_MANAGED, 0, 1, 1},
		{HOIST_MEMORY_DEVICE, 0, 0, 0},
	};
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		const hoist_memory_options options = {
			.size = sizeof options, .kind = kinds[i].kind, .device = devices[2]};
		hoist_memory *memory = NULL;
		hoist_buffer *b = NULL;
		hoist_buffer_source source = {.size = sizeof source, .bytes = 100};
		cr_assert_eq(hoist_memory_create(&options, &memory), 0);
		cr_assert_eq(hoist_memory_alloc(memory, 100, 0, &source.address), 0, "%s",
			     hoist_error());
		cr_assert_eq(
			hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){100}, NULL, &b),
			0, "%s", hoist_error());
		hoist_buffer_info info = info_of(b);
		cr_expect_eq(info.is_device_accessible, 1);
		cr_expect_eq(info.is_host_accessible, kinds[i].data, "%zu", i);
		cr_expect_eq(info.is_managed, kinds[i].managed, "%zu", i);
		cr_expect_eq(hoist_buffer_is_pinned(b), kinds[i].pinned, "%zu", i);
		hoist_buffer_unref(b);
		cr_assert_eq(hoist_memory_free(memory, source.address), 0,
			     "it was not the buffer's");
		hoist_memory_unref(memory);
	}
}

/* Whichever context the caller has current, or none, and whether or not the device is named. */
static void wrap_and_read(const hoist_buffer_source *source)
{
	unsigned char out[100] = {0};
	hoist_buffer *b = NULL;
	cr_assert_eq(hoist_buffer_wrap(source, HOIST_U8, 1, (const int64_t[]){100}, NULL, &b), 0,
		     "%s", hoist_error());
	cr_expect_eq(hoist_buffer_device(b), devices[1]);
	cr_expect_eq(info_of(b).is_device_accessible, 1);
	cr_assert_eq(hoist_buffer_copy_out(b, out, sizeof out), 0, "%s", hoist_error());
	cr_expect_eq(out[99], 7);
	hoist_buffer_unref(b);
}

/* proves: S2.11 */
Test(wrap, drivers_say_it_in_any_context, .init = open_all)
{
	static const int kinds[] = {HOIST_MEMORY_PINNED, HOIST_MEMORY_MANAGED, HOIST_MEMORY_DEVICE};
	for (size_t i = 0; i < 3; i++) {
		const hoist_memory_options options = {
			.size = sizeof options, .kind = kinds[i], .device = devices[1]};
		hoist_memory *memory = NULL;
		hoist_buffer *made = NULL;
		cr_assert_eq(hoist_memory_create(&options, &memory), 0, "%s", hoist_error());
		cr_assert_eq(hoist_buffer_create_from(memory, NULL, HOIST_U8, 1,
						      (const int64_t[]){100}, 0, &made),
			     0, "%s", hoist_error());
		cr_assert_eq(hoist_buffer_fill(made, &(unsigned char){7}, 1), 0, "%s",
			     hoist_error());
		hoist_buffer_source source = {
			.size = sizeof source, .address = hoist_buffer_address(made), .bytes = 100};
		for (int ordinal = -1; ordinal < 2; ordinal++) {
			lib_enter_context(ordinal);
			source.device = NULL;
			wrap_and_read(&source);
			source.device = devices[1];
			wrap_and_read(&source);
			lib_leave_context(ordinal);
		}
		hoist_buffer_unref(made);
		hoist_memory_unref(memory);
	}
	cr_assert(lib_nothing_outstanding(devices));
	cr_assert(lib_drivers_content());
}

static const char *api_of(int i)
{
	return i == 3 ? "hip" : "cuda";
}

/* A question whether a stream captures, asked of the driver. */
static const char *question_of(int i)
{
	return i == 3 ? "hipStreamIsCapturing:1+" : "cuStreamIsCapturing:1+";
}

/* Waiting for a stream that captures breaks the graph; so may a wait where the driver, in vain, is
 * asked. */
Test(wrap, releases_no_memory_while_a_stream_that_uses_it_captures, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (int silent = 0; silent < 2; silent++) {
			int released = 0;
			uintptr_t block = 0;
			hoist_memory *memory = NULL;
			hoist_stream *stream = NULL;
			hoist_buffer *b = NULL;
			const hoist_memory_options options = {.size = sizeof options,
							      .kind = HOIST_MEMORY_DEVICE,
							      .device = devices[i]};
			cr_assert_eq(hoist_memory_create(&options, &memory), 0);
			cr_assert_eq(hoist_memory_alloc(memory, 64, 0, &block), 0);
			const hoist_buffer_source source = {.size = sizeof source,
							    .address = block,
							    .bytes = 64,
							    .device = devices[i],
							    .release = count_release,
							    .context = &released};
			cr_assert_eq(hoist_stream_create(devices[i], &stream), 0);
			cr_assert_eq(hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){64},
						       NULL, &b),
				     0, "%s", hoist_error());
			cr_assert_eq(lib_capture(api_of(i), hoist_stream_native(stream), 1), 0);
			cr_assert_eq(hoist_buffer_fill_on(b, "x", 1, stream), 0, "%s",
				     hoist_error());
			cr_assert_eq(lib_fail(api_of(i), silent ? question_of(i) : NULL), 0);
			hoist_buffer_unref(b);
			cr_expect_eq(released, 0, "%s", lib_specs[i]);
			cr_assert_eq(lib_fail(api_of(i), NULL), 0);
			cr_expect_eq(lib_capture(api_of(i), hoist_stream_native(stream), 0), 0,
				     "%s: the capture is whole", lib_specs[i]);
			cr_assert_eq(hoist_device_synchronize(devices[i]), 0, "%s", hoist_error());
			cr_expect_eq(released, 1, "%s", lib_specs[i]);
			cr_assert_eq(hoist_memory_free(memory, block), 0);
			hoist_stream_unref(stream);
			hoist_memory_unref(memory);
		}
	cr_assert(lib_nothing_outstanding(devices));
	cr_assert(lib_drivers_content());
}

/* Host memory too, which no device parks for itself. */
Test(wrap, host_memory_is_released_after_the_capture, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		static unsigned char bytes[64];
		int released = 0;
		hoist_stream *stream = NULL;
		hoist_buffer *b = NULL;
		const hoist_buffer_source source = {.size = sizeof source,
						    .address = (uintptr_t)bytes,
						    .bytes = sizeof bytes,
						    .release = count_release,
						    .context = &released};
		cr_assert_eq(hoist_stream_create(devices[i], &stream), 0);
		cr_assert_eq(
			hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){64}, NULL, &b), 0,
			"%s", hoist_error());
		cr_assert_eq(lib_capture(api_of(i), hoist_stream_native(stream), 1), 0);
		cr_assert_eq(hoist_buffer_close(b, stream), 0, "%s", hoist_error());
		hoist_buffer_unref(b);
		cr_expect_eq(released, 0, "%s: the graph may use the bytes", lib_specs[i]);
		cr_expect_eq(lib_capture(api_of(i), hoist_stream_native(stream), 0), 0,
			     "%s: the capture is whole", lib_specs[i]);
		/* Host memory waits for all devices of the driver. */
		for (int d = 1; d < LIB_N_DEVICES; d++)
			cr_assert_eq(hoist_device_synchronize(devices[d]), 0, "%s", hoist_error());
		cr_expect_eq(released, 1, "%s", lib_specs[i]);
		hoist_stream_unref(stream);
	}
	cr_assert(lib_nothing_outstanding(devices));
	cr_assert(lib_drivers_content());
}

/* The end of a wrapped stream waits for nothing where nobody knows whether the native one captures.
 */
Test(wrap, streams_end_without_a_wait_where_the_driver_does_not_say, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_stream *stream = NULL;
		hoist_stream *again = NULL;
		cr_assert_eq(hoist_stream_create(devices[i], &stream), 0);
		void *native = hoist_stream_native(stream);
		cr_assert_eq(hoist_stream_wrap(devices[i], native, &again), 0);
		cr_assert_eq(lib_capture(api_of(i), native, 1), 0);
		cr_assert_eq(lib_fail(api_of(i), question_of(i)), 0);
		hoist_stream_unref(again);
		cr_assert_eq(lib_fail(api_of(i), NULL), 0);
		cr_expect_eq(lib_capture(api_of(i), native, 0), 0, "%s: the capture is whole",
			     lib_specs[i]);
		hoist_stream_unref(stream);
	}
	cr_assert(lib_nothing_outstanding(devices));
	cr_assert(lib_drivers_content());
}

Test(wrap, does_not_keep_streams_that_are_over, .init = open_all)
{
	enum { STREAMS = 100 };
	static unsigned char data[64];
	const hoist_buffer_source source = {
		.size = sizeof source, .address = (uintptr_t)data, .bytes = sizeof data};
	hoist_buffer *there = NULL;
	hoist_buffer *b = NULL;
	cr_assert_eq(hoist_buffer_create(devices[1], HOIST_U8, 1, (const int64_t[]){64},
					 HOIST_BUFFER_PINNED | HOIST_BUFFER_ZERO, &there),
		     0);
	cr_assert_eq(hoist_buffer_wrap(&source, HOIST_U8, 1, (const int64_t[]){64}, NULL, &b), 0);
	for (int i = 0; i < STREAMS; i++) {
		hoist_stream *stream = NULL;
		cr_assert_eq(hoist_stream_create(devices[0], &stream), 0);
		cr_assert_eq(hoist_buffer_copy_on(b, there, stream), 0, "%s", hoist_error());
		cr_assert_eq(hoist_stream_synchronize(stream), 0);
		hoist_stream_unref(stream);
	}
	/* Each stream of the cpu is a thread. */
	char line[128];
	int threads = 0;
	FILE *status = fopen("/proc/self/status", "r");
	cr_assert_not_null(status);
	while (fgets(line, sizeof line, status) != NULL)
		if (sscanf(line, "Threads: %d", &threads) == 1)
			break;
	(void)fclose(status);
	cr_expect_lt(threads, STREAMS / 2);
	hoist_buffer_unref(b);
	hoist_buffer_unref(there);
}
