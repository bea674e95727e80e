/* SPDX-License-Identifier: MIT */
/* Buffers over the caller's memory: its owner, its release, and the memory that is refused. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/count.h"
#include "tests/support/lib-unit.h"

static void count_release(void *context)
{
	++*(int *)context;
}

/* proves: S0.03 S0.28 S2.02 V137 V142 V208 */
Test(wrap, releases_once_when_the_last_view_goes, .init = open_all)
{
	static int32_t data[24];
	int released = 0;
	hoist_buffer *b = make_wrapped(SOURCE(.address = (uintptr_t)data, .bytes = sizeof data,
					      .release = count_release, .context = &released),
				       HOIST_I32, 2, SHAPE(4, 6), NULL);
	hoist_buffer_info info = info_of(b);
	cr_expect_eq(hoist_buffer_data(b), data);
	cr_expect_eq(info.device_id, -1, "V137");
	cr_expect_eq(info.is_device_accessible, 0, "V137");
	cr_expect_eq(info.is_host_accessible, 1, "V137");
	cr_expect_null(info.memory);
	cr_expect_eq(hoist_buffer_device(b), devices[0]);
	hoist_buffer *view = make_slice(b, 1, SLICES(HOIST_AT(1)));
	hoist_buffer_close(b, NULL);
	hoist_buffer_unref(b);
	cr_expect_eq(released, 0);
	hoist_buffer_unref(view);
	cr_expect_eq(released, 1, "V142");
}

/* proves: S2.02 V141 */
Test(wrap, memory_that_does_not_fit_is_refused_and_not_taken, .init = open_all)
{
	static int32_t data[24];
	int released = 0;
	hoist_buffer *b = NULL;
	hoist_memory *memory = memory_of(devices[0], HOIST_MEMORY_HOST);
	hoist_buffer_source source = {.size = sizeof source,
				      .address = (uintptr_t)data,
				      .bytes = 20,
				      .release = count_release,
				      .context = &released};
	REFUSED(hoist_buffer_wrap(&source, HOIST_I16, 2, SHAPE(5, 4), NULL, &b), -EINVAL,
		"need 40 bytes, there are 20");
	REFUSED(hoist_buffer_wrap(&source, HOIST_I16, 1, SHAPE(4), SHAPE(-1), &b), -EINVAL,
		"6 bytes before the first element");
	source.memory = memory;
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 1, SHAPE(4), NULL, &b), -EINVAL, "V141");
	expect_text("not to both");
	source.release = NULL;
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 1, SHAPE(4), NULL, &b), -EINVAL,
		     "no block of the resource");
	source.memory = NULL;
	source.address = 0;
	REFUSED(hoist_buffer_wrap(&source, HOIST_I16, 1, SHAPE(4), NULL, &b), -EINVAL, "address 0");
	source.address = (uintptr_t)data;
	OK(hoist_stream_create(devices[0], &source.stream));
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_I16, 1, SHAPE(4), NULL, &b), -EINVAL);
	hoist_stream_unref(source.stream);
	source.stream = NULL;
	source.device = devices[1];
	REFUSED(hoist_buffer_wrap(&source, HOIST_I16, 1, SHAPE(4), NULL, &b), -EINVAL,
		"of cpu, not of cuda:0");
	cr_expect_null(b);
	cr_expect_eq(released, 0);
	hoist_memory_unref(memory);
}

/* proves: S2.02 */
Test(wrap, reversed_strides_need_bytes_before, .init = open_all)
{
	static int32_t data[] = {1, 2, 3, 4};
	hoist_buffer *b = make_wrapped(SOURCE(.address = (uintptr_t)(data + 3), .bytes = 4,
					      .bytes_before = 12, .is_read_only = 1),
				       HOIST_I32, 1, SHAPE(4), SHAPE(-1));
	const int32_t *first = hoist_buffer_data(b);
	cr_expect_eq(first[0], 4);
	cr_expect_eq(first[-3], 1);
	cr_expect_eq(info_of(b).is_read_only, 1);
	hoist_buffer_unref(b);
}

/* proves: S2.02 S2.11 */
Test(wrap, an_empty_wrapped_buffer_is_like_an_empty_created_one, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *made = make_buffer(devices[i], HOIST_U8, 1, SHAPE(0), 0);
		hoist_buffer *wrapped =
			make_wrapped(SOURCE(.device = devices[i]), HOIST_U8, 1, SHAPE(0), NULL);
		hoist_buffer_info expected = info_of(made);
		hoist_buffer_info info = info_of(wrapped);
		cr_expect_eq(info.device_id, expected.device_id);
		cr_expect_eq(info.is_host_accessible, expected.is_host_accessible);
		cr_expect_eq(info.is_device_accessible, expected.is_device_accessible);
		DROP(made, wrapped);
	}
}

/* proves: S2.02 */
Test(wrap, elements_that_fill_no_whole_bytes, .init = open_all)
{
	unsigned char data[2] = {0x21, 0x43};
	hoist_buffer_source source = {
		.size = sizeof source, .address = (uintptr_t)data, .bytes = sizeof data};
	hoist_buffer *b = make_wrapped(&source, HOIST_F4_E2M1FN, 1, SHAPE(3), NULL);
	cr_expect_eq(hoist_buffer_bytes(b), 2);
	hoist_buffer_unref(b);
	source.bytes = 1;
	REFUSED(hoist_buffer_wrap(&source, HOIST_F4_E2M1FN, 1, SHAPE(3), NULL, &b), -EINVAL,
		"need 2 bytes, there are 1");
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
		hoist_buffer *b = NULL;
		cr_expect_eq(
			hoist_buffer_wrap(SOURCE(.address = rows[i].address, .bytes = rows[i].bytes,
						 .bytes_before = rows[i].bytes_before),
					  HOIST_U8, 1, SHAPE(rows[i].bytes > 0), NULL, &b),
			-EINVAL, "%zu", i);
		cr_expect_null(b);
	}
}

/* proves: S2.02 S2.10 */
Test(wrap, a_block_goes_back_to_its_resource, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *b = NULL;
		hoist_buffer_source source = {.size = sizeof source, .bytes = 1000};
		hoist_memory *memory = memory_of(devices[i], HOIST_MEMORY_DEVICE);
		OK(hoist_memory_alloc(memory, 1000, 0, &source.address));
		source.memory = memory;
		OK(hoist_stream_create(devices[i], &source.stream));
		source.address += 256;
		cr_expect_eq(hoist_buffer_wrap(&source, HOIST_U8, 1, SHAPE(1000), NULL, &b),
			     -EINVAL);
		source.address -= 256;
		OK(hoist_buffer_wrap(&source, HOIST_U8, 1, SHAPE(1000), NULL, &b));
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
		hoist_buffer_source source = {.size = sizeof source, .bytes = 100};
		hoist_memory *memory = make_kind(kinds[i].kind, devices[2]);
		OK(hoist_memory_alloc(memory, 100, 0, &source.address));
		hoist_buffer *b = make_wrapped(&source, HOIST_U8, 1, SHAPE(100), NULL);
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

/* proves: S2.02 S2.11 */
Test(wrap, pinned_memory_is_named_by_either_address, .init = open_all)
{
	for (int i = 1; i <= 2; i++) {
		hoist_memory *memory = make_kind(HOIST_MEMORY_PINNED, devices[i]);
		hoist_buffer *pinned =
			make_buffer_from(memory, NULL, HOIST_U8, 1, SHAPE(100), 0);
		hoist_buffer_source source = {.size = sizeof source,
					      .address = hoist_buffer_address(pinned) + 10,
					      .bytes = 50,
					      .bytes_before = 10};
		hoist_buffer *b = make_wrapped(&source, HOIST_U8, 1, SHAPE(50), NULL);
		cr_expect_eq(hoist_buffer_address(b), source.address);
		cr_expect_eq((char *)hoist_buffer_data(b), (char *)hoist_buffer_data(pinned) + 10);
		cr_expect_eq(hoist_buffer_is_pinned(b), 1);
		memset(hoist_buffer_data(pinned), 3, 100);
		unsigned char out[50] = {0};
		OK(hoist_buffer_copy_out(b, out, sizeof out));
		cr_expect_eq(out[49], 3);
		hoist_buffer_unref(b);
		hoist_buffer_unref(pinned);
		hoist_memory_unref(memory);
	}
}

/* Whichever context the caller has current, or none, and whether or not the device is named. */
static void wrap_and_read(const hoist_buffer_source *source)
{
	unsigned char out[100] = {0};
	hoist_buffer *b = make_wrapped(source, HOIST_U8, 1, SHAPE(100), NULL);
	cr_expect_eq(hoist_buffer_device(b), devices[1]);
	cr_expect_eq(info_of(b).is_device_accessible, 1);
	OK(hoist_buffer_copy_out(b, out, sizeof out));
	cr_expect_eq(out[99], 7);
	hoist_buffer_unref(b);
}

/* proves: S2.11 */
Test(wrap, drivers_say_it_in_any_context, .init = open_all)
{
	static const int kinds[] = {HOIST_MEMORY_PINNED, HOIST_MEMORY_MANAGED, HOIST_MEMORY_DEVICE};
	for (size_t i = 0; i < 3; i++) {
		hoist_memory *memory = make_kind(kinds[i], devices[1]);
		hoist_buffer *made = make_buffer_from(memory, NULL, HOIST_U8, 1, SHAPE(100), 0);
		OK(hoist_buffer_fill(made, &(unsigned char){7}, 1));
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
	expect_all_given_back();
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
			hoist_memory *memory = make_kind(HOIST_MEMORY_DEVICE, devices[i]);
			uintptr_t block = alloc(memory, 64, 0);
			hoist_stream *stream = make_stream(devices[i]);
			hoist_buffer *b = make_wrapped(
				SOURCE(.address = block, .bytes = 64, .device = devices[i],
				       .release = count_release, .context = &released),
				HOIST_U8, 1, SHAPE(64), NULL);
			OK(set_capture(stream, 1));
			OK(hoist_buffer_fill_on(b, "x", 1, stream));
			OK(lib_fail(api_of(devices[i]), silent ? question_of(i) : NULL));
			hoist_buffer_unref(b);
			cr_expect_eq(released, 0, "%s", lib_specs[i]);
			OK(lib_fail(api_of(devices[i]), NULL));
			cr_expect_eq(set_capture(stream, 0), 0, "%s: the capture is whole",
				     lib_specs[i]);
			OK(hoist_device_synchronize(devices[i]));
			cr_expect_eq(released, 1, "%s", lib_specs[i]);
			OK(hoist_memory_free(memory, block));
			hoist_stream_unref(stream);
			hoist_memory_unref(memory);
		}
	expect_all_given_back();
}

/* Host memory too, which no device parks for itself. */
Test(wrap, host_memory_is_released_after_the_capture, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		static unsigned char bytes[64];
		int released = 0;
		hoist_stream *stream = make_stream(devices[i]);
		hoist_buffer *b =
			make_wrapped(SOURCE(.address = (uintptr_t)bytes, .bytes = sizeof bytes,
					    .release = count_release, .context = &released),
				     HOIST_U8, 1, SHAPE(64), NULL);
		OK(set_capture(stream, 1));
		OK(hoist_buffer_close(b, stream));
		hoist_buffer_unref(b);
		cr_expect_eq(released, 0, "%s: the graph may use the bytes", lib_specs[i]);
		cr_expect_eq(set_capture(stream, 0), 0, "%s: the capture is whole", lib_specs[i]);
		/* Host memory waits for all devices of the driver. */
		for (int d = 1; d < LIB_N_DEVICES; d++)
			OK(hoist_device_synchronize(devices[d]));
		cr_expect_eq(released, 1, "%s", lib_specs[i]);
		hoist_stream_unref(stream);
	}
	expect_all_given_back();
}

/* The end of a wrapped stream waits for nothing where nobody knows whether the native one captures.
 */
Test(wrap, streams_end_without_a_wait_where_the_driver_does_not_say, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_stream *stream = make_stream(devices[i]);
		void *native = hoist_stream_native(stream);
		hoist_stream *again = wrap_stream(devices[i], native);
		OK(lib_capture(api_of(devices[i]), native, 1));
		OK(lib_fail(api_of(devices[i]), question_of(i)));
		hoist_stream_unref(again);
		OK(lib_fail(api_of(devices[i]), NULL));
		cr_expect_eq(lib_capture(api_of(devices[i]), native, 0), 0,
			     "%s: the capture is whole", lib_specs[i]);
		hoist_stream_unref(stream);
	}
	expect_all_given_back();
}

Test(wrap, does_not_keep_streams_that_are_over, .init = open_all)
{
	enum { STREAMS = 100 };
	static unsigned char data[64];
	hoist_buffer *there = make_buffer(devices[1], HOIST_U8, 1, SHAPE(64),
					  HOIST_BUFFER_PINNED | HOIST_BUFFER_ZERO);
	hoist_buffer *b = make_wrapped(SOURCE(.address = (uintptr_t)data, .bytes = sizeof data),
				       HOIST_U8, 1, SHAPE(64), NULL);
	for (int i = 0; i < STREAMS; i++) {
		hoist_stream *stream = make_stream(devices[0]);
		OK(hoist_buffer_copy_on(b, there, stream));
		OK(hoist_stream_synchronize(stream));
		hoist_stream_unref(stream);
	}
	/* Each stream of the CPU is a thread. */
	cr_expect_lt(count_entries("/proc/self/task"), STREAMS / 2);
	DROP(b, there);
}
