/* SPDX-License-Identifier: MIT */
/* Memory of graphs: one resource for each device, taken and given while a stream captures. */
#include "config.h"

#include <errno.h>

#include "hoist/memory-driver.h"
#include "tests/support/lib-unit.h"

#define MIB ((size_t)1 << 20)

static hoist_memory *graphs_of(int i)
{
	return memory_of(devices[i], HOIST_MEMORY_GRAPH);
}

/* proves: S2.27 V151 */
Test(graph, each_device_has_one, .init = open_all)
{
	hoist_memory *memories[LIB_N_DEVICES] = {NULL};
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		memories[i] = graphs_of(i);
		hoist_device *again = open_device(lib_specs[i]);
		hoist_memory *same = memory_of(again, HOIST_MEMORY_GRAPH);
		cr_expect_eq(same, memories[i]);
		hoist_memory_info info = memory_info_of(same);
		cr_expect_eq(info.kind, HOIST_MEMORY_GRAPH);
		cr_expect_eq(info.device, devices[i]);
		cr_expect(info.is_device_accessible && !info.is_host_accessible);
		hoist_memory_unref(same);
		hoist_device_unref(again);
	}
	cr_expect_neq(memories[1], memories[2]);
	hoist_memory *none = NULL;
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_GRAPH, .device = devices[1]), -EINVAL,
		      "hoist_memory_of_device()");
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
		uintptr_t block = 77;
		hoist_stream *stream = make_stream(devices[i]);
		cr_expect_eq(hoist_memory_alloc(memory, 1000, 0, &block), -EINVAL);
		REFUSED(hoist_memory_alloc_on(memory, 1000, 0, stream, &block), -EINVAL,
			"captures no graph");
		cr_expect_eq(block, 77);
		uint64_t used = figure(memory, HOIST_POOL_USED_CURRENT);
		OK(set_capture(stream, 1));
		cr_expect_eq(hoist_memory_alloc_on(memory, 1000, 4096, stream, &block), -EINVAL);
		OK(hoist_memory_alloc_on(memory, MIB, 0, stream, &block));
		cr_expect_eq(figure(memory, HOIST_POOL_USED_CURRENT), used + MIB);
		cr_expect_geq(figure(memory, HOIST_POOL_USED_HIGH), used + MIB);
		cr_expect_geq(figure(memory, HOIST_POOL_RESERVED_CURRENT), MIB);
		OK(hoist_memory_free_on(memory, block, stream));
		cr_expect_eq(hoist_memory_free_on(memory, block, stream), -EINVAL);
		cr_expect_eq(figure(memory, HOIST_POOL_USED_CURRENT), used);
		/* A buffer that is filled and freed within the graph. */
		hoist_buffer *b = make_buffer_from(memory, stream, HOIST_U8, 1, SHAPE(4096), 0);
		OK(hoist_buffer_fill_on(b, (unsigned char[]){7}, 1, stream));
		hoist_buffer_unref(b);
		cr_expect_eq(figure(memory, HOIST_POOL_USED_CURRENT), used);
		/* A block that the capture does not free belongs to the graph. */
		uintptr_t left = alloc_on(memory, 1000, 0, stream);
		OK(hoist_memory_free(memory, left));
		cr_expect_gt(figure(memory, HOIST_POOL_USED_CURRENT), used);
		cr_assert_eq(set_capture(stream, 0), 0, "the capture is whole");
		cr_expect_eq(figure(memory, HOIST_POOL_USED_CURRENT), used);
		hoist_memory_statistics s = statistics_of(memory);
		cr_expect_eq(s.n_blocks, 0);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

/* A block that the driver fails to free belongs to the graph; a wait for the stream would break
 * the graph. */
/* proves: S2.27 */
Test(graph, outlives_a_free_that_fails, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		const char *fault = i == 3 ? "hipFreeAsync:1" : "cuMemFreeAsync:1";
		hoist_memory *memory = graphs_of(i);
		hoist_stream *stream = make_stream(devices[i]);
		OK(set_capture(stream, 1));
		hoist_buffer *b = make_buffer_from(memory, stream, HOIST_U8, 1, SHAPE(4096), 0);
		OK(lib_fail(api_of(devices[i]), fault));
		hoist_buffer_unref(b);
		cr_expect_eq(lib_counters(api_of(devices[i])).injected_failures, 1);
		cr_expect_eq(set_capture(stream, 0), 0, "the capture is whole");
		lib_reset(api_of(devices[i]));
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

/* proves: S2.27 */
Test(graph, is_trimmed_and_its_marks_are_reset, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory = graphs_of(i);
		uint64_t none = 77;
		hoist_stream *stream = make_stream(devices[i]);
		OK(set_capture(stream, 1));
		uintptr_t block = alloc_on(memory, 3 * MIB, 0, stream);
		OK(hoist_memory_free_on(memory, block, stream));
		OK(set_capture(stream, 0));
		cr_expect_geq(figure(memory, HOIST_POOL_RESERVED_CURRENT), 3 * MIB);
		OK(hoist_memory_trim(memory, 0));
		cr_expect_eq(figure(memory, HOIST_POOL_RESERVED_CURRENT), 0);
		cr_expect_geq(figure(memory, HOIST_POOL_RESERVED_HIGH), 3 * MIB);
		OK(hoist_memory_set_attribute(memory, HOIST_POOL_RESERVED_HIGH, 0));
		cr_expect_eq(figure(memory, HOIST_POOL_RESERVED_HIGH), 0);
		cr_expect_geq(figure(memory, HOIST_POOL_USED_HIGH), 3 * MIB);
		OK(hoist_memory_reset_peaks(memory));
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
	expect_all_given_back();
}
