/* SPDX-License-Identifier: MIT */
/* Memory of graphs: one resource for each device, taken and given while a stream captures. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "hoist/memory-driver.h"
#include "tests/support/lib-buffers.h"

#define MIB ((size_t)1 << 20)

static hoist_device *devices[LIB_N_DEVICES];

static void open_all(void)
{
	open_devices(devices);
}

static const char *api_of(int i)
{
	return i == 3 ? "hip" : "cuda";
}

static hoist_memory *graphs_of(int i)
{
	hoist_memory *memory = NULL;
	cr_assert_eq(hoist_memory_of_device(devices[i], HOIST_MEMORY_GRAPH, &memory), 0, "%s",
		     hoist_error());
	return memory;
}

static uint64_t figure(hoist_memory *memory, int attribute)
{
	uint64_t value = 77;
	cr_assert_eq(hoist_memory_get_attribute(memory, attribute, &value), 0, "%s", hoist_error());
	return value;
}

/* proves: S2.27 V151 */
Test(graph, each_device_has_one, .init = open_all)
{
	hoist_memory *memories[LIB_N_DEVICES] = {NULL};
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_device *again = NULL;
		hoist_memory *same = NULL;
		hoist_memory_info info = {.size = sizeof info};
		memories[i] = graphs_of(i);
		cr_assert_eq(hoist_device_open(lib_specs[i], &again), 0);
		cr_assert_eq(hoist_memory_of_device(again, HOIST_MEMORY_GRAPH, &same), 0);
		cr_expect_eq(same, memories[i]);
		cr_assert_eq(hoist_memory_get_info(same, &info), 0);
		cr_expect_eq(info.kind, HOIST_MEMORY_GRAPH);
		cr_expect_eq(info.device, devices[i]);
		cr_expect(info.is_device_accessible && !info.is_host_accessible);
		hoist_memory_unref(same);
		hoist_device_unref(again);
	}
	cr_expect_neq(memories[1], memories[2]);
	const hoist_memory_options another = {
		.size = sizeof another, .kind = HOIST_MEMORY_GRAPH, .device = devices[1]};
	hoist_memory *none = NULL;
	cr_expect_eq(hoist_memory_create(&another, &none), -EINVAL);
	cr_expect(strstr(hoist_error(), "hoist_memory_of_device()") != NULL, "%s", hoist_error());
	cr_expect_null(none);
	for (int i = 1; i < LIB_N_DEVICES; i++)
		hoist_memory_unref(memories[i]);
	cr_expect_eq(hoist_memory_of_device(devices[0], HOIST_MEMORY_GRAPH, &none), -ENOTSUP);
	cr_expect_null(none);
}

/* proves: S2.27 */
Test(graph, takes_and_gives_while_a_stream_captures, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory = graphs_of(i);
		hoist_stream *stream = NULL;
		uintptr_t block = 77;
		uintptr_t left = 0;
		cr_assert_eq(hoist_stream_create(devices[i], &stream), 0);
		cr_expect_eq(hoist_memory_alloc(memory, 1000, 0, &block), -EINVAL);
		cr_expect_eq(hoist_memory_alloc_on(memory, 1000, 0, stream, &block), -EINVAL);
		expect_text("captures no graph");
		cr_expect_eq(block, 77);
		uint64_t used = figure(memory, HOIST_POOL_USED_CURRENT);
		cr_assert_eq(lib_capture(api_of(i), hoist_stream_native(stream), 1), 0);
		cr_expect_eq(hoist_memory_alloc_on(memory, 1000, 4096, stream, &block), -EINVAL);
		cr_assert_eq(hoist_memory_alloc_on(memory, MIB, 0, stream, &block), 0, "%s",
			     hoist_error());
		cr_expect_eq(figure(memory, HOIST_POOL_USED_CURRENT), used + MIB);
		cr_expect_geq(figure(memory, HOIST_POOL_USED_HIGH), used + MIB);
		cr_expect_geq(figure(memory, HOIST_POOL_RESERVED_CURRENT), MIB);
		cr_assert_eq(hoist_memory_free_on(memory, block, stream), 0, "%s", hoist_error());
		cr_expect_eq(hoist_memory_free_on(memory, block, stream), -EINVAL);
		cr_expect_eq(figure(memory, HOIST_POOL_USED_CURRENT), used);
		/* A buffer of the graph, whose fill and copy are the graph's, and which goes in it.
		 */
		hoist_buffer *b = NULL;
		cr_assert_eq(hoist_buffer_create_from(memory, stream, HOIST_U8, 1,
						      (const int64_t[]){4096}, 0, &b),
			     0, "%s", hoist_error());
		cr_expect_eq(hoist_buffer_fill_on(b, (unsigned char[]){7}, 1, stream), 0, "%s",
			     hoist_error());
		hoist_buffer_unref(b);
		cr_expect_eq(figure(memory, HOIST_POOL_USED_CURRENT), used);
		/* What the graph does not free is the graph's. */
		cr_assert_eq(hoist_memory_alloc_on(memory, 1000, 0, stream, &left), 0);
		cr_assert_eq(hoist_memory_free(memory, left), 0);
		cr_expect_gt(figure(memory, HOIST_POOL_USED_CURRENT), used);
		cr_assert_eq(lib_capture(api_of(i), hoist_stream_native(stream), 0), 0,
			     "the capture is whole");
		cr_expect_eq(figure(memory, HOIST_POOL_USED_CURRENT), used);
		hoist_memory_statistics s = {.size = sizeof s};
		cr_assert_eq(hoist_memory_get_statistics(memory, &s), 0);
		cr_expect_eq(s.n_blocks, 0);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	cr_expect(lib_nothing_outstanding(devices));
	cr_expect(lib_drivers_content());
}

/* What a driver fails to free belongs to the graph; a wait for the stream would break the graph. */
/* proves: S2.27 */
Test(graph, outlives_a_free_that_fails, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		const char *fault = i == 3 ? "hipFreeAsync:1" : "cuMemFreeAsync:1";
		hoist_memory *memory = graphs_of(i);
		hoist_stream *stream = NULL;
		hoist_buffer *b = NULL;
		cr_assert_eq(hoist_stream_create(devices[i], &stream), 0);
		cr_assert_eq(lib_capture(api_of(i), hoist_stream_native(stream), 1), 0);
		cr_assert_eq(hoist_buffer_create_from(memory, stream, HOIST_U8, 1,
						      (const int64_t[]){4096}, 0, &b),
			     0, "%s", hoist_error());
		cr_assert_eq(lib_fail(api_of(i), fault), 0);
		hoist_buffer_unref(b);
		cr_expect_eq(lib_counters(api_of(i)).injected_failures, 1);
		cr_expect_eq(lib_capture(api_of(i), hoist_stream_native(stream), 0), 0,
			     "the capture is whole");
		lib_reset(api_of(i));
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	cr_expect(lib_nothing_outstanding(devices));
	cr_expect(lib_drivers_content());
}

/* proves: S2.27 */
Test(graph, is_trimmed_and_its_marks_are_reset, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory = graphs_of(i);
		hoist_stream *stream = NULL;
		uintptr_t block = 0;
		uint64_t none = 77;
		cr_assert_eq(hoist_stream_create(devices[i], &stream), 0);
		cr_assert_eq(lib_capture(api_of(i), hoist_stream_native(stream), 1), 0);
		cr_assert_eq(hoist_memory_alloc_on(memory, 3 * MIB, 0, stream, &block), 0);
		cr_assert_eq(hoist_memory_free_on(memory, block, stream), 0);
		cr_assert_eq(lib_capture(api_of(i), hoist_stream_native(stream), 0), 0);
		cr_expect_geq(figure(memory, HOIST_POOL_RESERVED_CURRENT), 3 * MIB);
		cr_assert_eq(hoist_memory_trim(memory, 0), 0, "%s", hoist_error());
		cr_expect_eq(figure(memory, HOIST_POOL_RESERVED_CURRENT), 0);
		cr_expect_geq(figure(memory, HOIST_POOL_RESERVED_HIGH), 3 * MIB);
		cr_assert_eq(hoist_memory_set_attribute(memory, HOIST_POOL_RESERVED_HIGH, 0), 0);
		cr_expect_eq(figure(memory, HOIST_POOL_RESERVED_HIGH), 0);
		cr_expect_geq(figure(memory, HOIST_POOL_USED_HIGH), 3 * MIB);
		cr_assert_eq(hoist_memory_reset_peaks(memory), 0);
		cr_expect_eq(figure(memory, HOIST_POOL_USED_HIGH), 0);
		cr_expect_eq(hoist_memory_set_attribute(memory, HOIST_POOL_USED_HIGH, 1), -EINVAL);
		cr_expect_eq(hoist_memory_set_attribute(memory, HOIST_POOL_USED_CURRENT, 0),
			     -EINVAL);
		cr_expect_eq(
			hoist_memory_get_attribute(memory, HOIST_POOL_RELEASE_THRESHOLD, &none),
			-ENOTSUP);
		cr_expect_eq(none, 77);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	cr_expect(lib_nothing_outstanding(devices));
	cr_expect(lib_drivers_content());
}
