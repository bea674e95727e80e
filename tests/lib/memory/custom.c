/* SPDX-License-Identifier: MIT */
/* CUSTOM memory resources: the arguments of the caller's functions, and the checks of their
 * answers. */
#include "config.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/lib-custom.h"
#include "tests/support/lib-unit.h"

#define N 100

static hoist_memory *create(struct backing *backing)
{
	return make_custom(backing, NULL, 1, 0);
}

Test(custom, needs_functions)
{
	hoist_memory_functions functions = {.size = sizeof functions, .alloc = take};
	hoist_memory_options options = {.size = sizeof options, .kind = HOIST_MEMORY_CUSTOM};
	hoist_memory *memory = NULL;
	refuse_memory(&options, -EINVAL, "custom memory needs functions");
	options.functions = &functions;
	refuse_memory(&options, -EINVAL, "free is NULL");
	functions.alloc = NULL;
	functions.free = give;
	refuse_memory(&options, -EINVAL, "alloc is NULL");
	functions.size = 3;
	refuse_memory(&options, -EINVAL, "sizeof(hoist_memory_functions)");
	cr_expect_null(memory);
}

/* proves: S2.21 S4.19 */
Test(custom, gets_the_bytes_and_alignment_of_each_request)
{
	struct backing backing = {0};
	hoist_memory *memory = create(&backing);
	hoist_memory_info info = memory_info_of(memory);
	cr_expect_eq(info.is_host_accessible, 1);
	cr_expect_eq(info.is_device_accessible, 0);
	cr_expect_eq(info.alignment, 1);
	cr_expect_eq(info.device_id, -1);
	uintptr_t block = 77;
	OK(hoist_memory_alloc(memory, 0, 0, &block));
	cr_expect_eq(block, 0);
	cr_expect_eq(backing.n_allocs, 0, "nothing is not asked for");
	OK(hoist_memory_free(memory, 0));
	cr_expect_eq(backing.n_frees, 0);
	OK(hoist_memory_alloc(memory, 1000, 0, &block));
	cr_expect_eq(backing.bytes, 1000);
	cr_expect_eq(backing.align, 1);
	cr_expect_null(backing.stream);
	OK(hoist_memory_free(memory, block));
	OK(hoist_memory_alloc(memory, 1001, 4096, &block));
	cr_expect_eq(backing.align, 4096);
	backing.bytes = 0;
	OK(hoist_memory_free(memory, block));
	cr_expect_eq(backing.bytes, 1001, "the size is remembered");
	cr_expect_eq(backing.n_ends, 0);
	hoist_memory_unref(memory);
	cr_expect_eq(backing.n_ends, 1);
	cr_expect_eq(backing.n_frees, backing.n_allocs);
}

/* proves: S2.21 S4.19 */
Test(custom, gets_the_stream)
{
	struct backing backing = {0};
	hoist_memory *memory = create(&backing);
	hoist_device *cpu = NULL;
	OK(hoist_device_open("cpu", &cpu));
	hoist_stream *stream = default_stream(cpu);
	uintptr_t block = alloc_on(memory, 10, 0, stream);
	cr_expect_eq(backing.stream, stream);
	REFUSED(hoist_memory_use(memory, block, stream), -ENOTSUP,
		"\"mine\": custom memory cannot wait for several streams");
	backing.stream = NULL;
	OK(hoist_memory_free_on(memory, block, stream));
	cr_expect_eq(backing.stream, stream);
	cr_expect_eq(hoist_memory_alloc_on(memory, 10, 0, NULL, &block), -EINVAL);
	hoist_stream_unref(stream);
	hoist_memory_unref(memory);
}

static int wait_for_all(void *context)
{
	struct backing *backing = context;
	backing->n_waits++;
	return backing->fail;
}

/* proves: S4.19 */
Test(custom, waits_as_its_function_says)
{
	struct backing backing = {0};
	hoist_memory_functions functions = {
		.size = sizeof functions,
		.alloc = take,
		.free = give,
		.is_host_accessible = 1,
		.synchronize = wait_for_all,
	};
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_CUSTOM,
		.name = "waiting",
		.functions = &functions,
		.functions_context = &backing,
	};
	hoist_memory *memory = make_memory(&options);
	OK(hoist_memory_synchronize(memory));
	cr_expect_eq(backing.n_waits, 1);
	backing.fail = -EXDEV;
	REFUSED(hoist_memory_synchronize(memory), -EXDEV, "\"waiting\": its synchronize function");
	backing.fail = 5;
	REFUSED(hoist_memory_synchronize(memory), -EINVAL, "its synchronize function gave 5");
	cr_expect_eq(backing.n_waits, 3);
	backing.fail = 0;
	hoist_memory_unref(memory);
	/* Functions without `synchronize`, and callers built before this field, have nothing to
	 * wait for. */
	functions.size = offsetof(hoist_memory_functions, synchronize);
	OK(hoist_memory_create(&options, &memory));
	OK(hoist_memory_synchronize(memory));
	cr_expect_eq(backing.n_waits, 3);
	hoist_memory_unref(memory);
	cr_expect_eq(hoist_memory_synchronize(NULL), -EINVAL);
}

Test(custom, failures_are_passed_on_with_the_name)
{
	struct backing backing = {.fail = -EXDEV};
	hoist_memory *memory = create(&backing);
	uintptr_t block = 77;
	cr_expect_eq(hoist_memory_alloc(memory, 123, 0, &block), -EXDEV);
	cr_expect_eq(block, 77);
	expect_text("\"mine\": its alloc function, asked for 123 bytes");
	backing.fail = 5;
	REFUSED(hoist_memory_alloc(memory, 123, 0, &block), -EINVAL, "its alloc function gave 5");
	backing.fail = 0;
	OK(hoist_memory_alloc(memory, 123, 0, &block));
	OK(hoist_memory_free(memory, block));
	hoist_memory_unref(memory);
}

Test(custom, impossible_answers_are_not_believed)
{
	struct backing backing = {0};
	hoist_memory *memory = create(&backing);
	uintptr_t block = 77;
	backing.answer = 0x1001;
	REFUSED(hoist_memory_alloc(memory, 10, 16, &block), -EINVAL,
		"gave 0x1001, which is not aligned to 16 bytes");
	cr_expect_eq(backing.n_frees, 1, "it got the block back");
	OK(hoist_memory_alloc(memory, 10, 0, &block));
	uintptr_t twice = 77;
	REFUSED(hoist_memory_alloc(memory, 10, 0, &twice), -EINVAL, "gave 0x1001, which is in use");
	cr_expect_eq(twice, 77);
	cr_expect_eq(backing.n_frees, 1, "the block that is in use was not freed");
	OK(hoist_memory_free(memory, block));
	hoist_memory_unref(memory);
}

Test(custom, wrong_frees_do_not_reach_it)
{
	struct backing backing = {0};
	hoist_memory *memory = create(&backing);
	uintptr_t blocks[N];
	for (size_t i = 0; i < N; i++)
		OK(hoist_memory_alloc(memory, 100 + i, 0, &blocks[i]));
	REFUSED(hoist_memory_free(memory, 77), -EINVAL, "\"mine\": no live block starts at 0x4d");
	REFUSED(hoist_memory_free(memory, blocks[3] + 3), -EINVAL, "lies inside the block at");
	uintptr_t seen = device_address(memory, blocks[5] + 99);
	cr_expect_eq(seen, blocks[5] + 99);
	cr_expect_eq(hoist_memory_device_address(memory, 77, &seen), -EINVAL);
	cr_expect_eq(backing.n_frees, 0);
	for (size_t i = 0; i < N; i++) {
		size_t at = i * 37 % N; /* in no order */
		OK(hoist_memory_free(memory, blocks[at]));
		cr_expect_eq(backing.bytes, 100 + at);
		cr_expect_eq(hoist_memory_free(memory, blocks[at]), -EINVAL);
	}
	cr_expect_eq(backing.n_frees, N);
	hoist_memory_unref(memory);
}

Test(custom, is_counted)
{
	struct backing backing = {0};
	hoist_memory *memory = create(&backing);
	uintptr_t one = alloc(memory, 100, 0);
	uintptr_t two = alloc(memory, 50, 0);
	OK(hoist_memory_free(memory, one));
	hoist_memory_statistics s = statistics_of(memory);
	cr_expect_eq(s.requested_bytes, 50);
	cr_expect_eq(s.requested_peak, 150);
	cr_expect_eq(s.allocated_bytes, 50);
	cr_expect_eq(s.n_blocks, 1);
	cr_expect_eq(s.n_allocs, 2);
	cr_expect_eq(s.n_frees, 1);
	OK(hoist_memory_reset_peaks(memory));
	OK(hoist_memory_get_statistics(memory, &s));
	cr_expect_eq(s.requested_peak, 50);
	OK(hoist_memory_trim(memory, 0));
	cr_expect_eq(hoist_memory_trace(memory, "x"), -ENOTSUP);
	cr_expect_eq(hoist_memory_add_region(memory, 0, 1 << 20), -ENOTSUP);
	OK(hoist_memory_free(memory, two));
	hoist_memory_unref(memory);
}

/* --- blocks that the functions made without hoist --- */

static hoist_buffer_source source_of(hoist_memory *memory, hoist_stream *stream)
{
	return (hoist_buffer_source){
		.size = sizeof(hoist_buffer_source), .memory = memory, .stream = stream};
}

static int wrap(const hoist_buffer_source *source, hoist_buffer **ret)
{
	return hoist_buffer_wrap(source, HOIST_U8, 1, SHAPE((int64_t)source->bytes), NULL, ret);
}

/* proves: S2.02 S2.21 */
Test(custom, frees_a_wrapped_handle_that_its_functions_made)
{
	struct backing backing = {0};
	hoist_memory *memory = create(&backing);
	hoist_device *cpu = NULL;
	hoist_stream *streams[3] = {NULL};
	OK(hoist_device_open("cpu", &cpu));
	for (int i = 1; i < 3; i++)
		OK(hoist_stream_create(cpu, &streams[i]));
	/* Freed on: the source's stream; the one that closing names; none. */
	for (int i = 0; i < 3; i++) {
		hoist_buffer_source source = source_of(memory, i == 0 ? streams[1] : NULL);
		hoist_buffer *b = NULL;
		hoist_memory_statistics s = {.size = sizeof s};
		cr_assert_eq(take(&backing, 1000, 1, NULL, &source.address), 0);
		source.bytes = 1000;
		cr_assert_eq(wrap(&source, &b), 0, "%s", hoist_error());
		OK(hoist_memory_get_statistics(memory, &s));
		cr_expect_eq(s.n_blocks, 1);
		cr_expect_eq(s.requested_bytes, 1000);
		backing.stream = (hoist_stream *)77;
		backing.bytes = 0;
		OK(hoist_buffer_close(b, i == 1 ? streams[2] : NULL));
		hoist_buffer_unref(b);
		cr_expect_eq(backing.n_frees, (unsigned)i + 1);
		cr_expect_eq(backing.bytes, 1000);
		cr_expect_eq(backing.stream, i == 0 ? streams[1] : i == 1 ? streams[2] : NULL);
		cr_expect_eq(hoist_memory_free(memory, source.address), -EINVAL, "it is gone");
	}
	for (int i = 1; i < 3; i++)
		hoist_stream_unref(streams[i]);
	hoist_memory_unref(memory);
	cr_expect_eq(backing.n_ends, 1);
	cr_expect_eq(backing.n_frees, backing.n_allocs);
}

/* proves: S2.02 */
Test(custom, a_handle_that_is_not_wrapped_is_the_callers)
{
	struct backing backing = {0};
	hoist_memory *memory = create(&backing);
	hoist_buffer_source source = source_of(memory, NULL);
	hoist_buffer *b = NULL;
	uintptr_t block = alloc(memory, 100, 0);
	static const struct {
		ptrdiff_t offset;
		size_t bytes;
	} rows[] = {{1, 1}, {99, 100}, {-5, 6}, {-5, 200}};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		source.address = block + (uintptr_t)rows[i].offset;
		source.bytes = rows[i].bytes;
		cr_expect_eq(wrap(&source, &b), -EINVAL, "%zu", i);
		expect_text("\"mine\": ");
		expect_text("overlap the live block at");
		cr_expect_null(b);
	}
	/* Memory beside the block may be wrapped; this buffer is refused for its elements. */
	source.address = block + 100;
	source.bytes = 10;
	cr_expect_eq(hoist_buffer_wrap(&source, HOIST_U8, 1, SHAPE(11), NULL, &b), -EINVAL);
	cr_expect_null(b);
	hoist_memory_statistics s = statistics_of(memory);
	cr_expect_eq(s.n_blocks, 1);
	cr_expect_eq(s.n_allocs, 1);
	cr_expect_eq(backing.n_frees, 0);
	/* A live block is wrapped as it is, and freed once. */
	source.address = block;
	source.bytes = 100;
	cr_assert_eq(wrap(&source, &b), 0, "%s", hoist_error());
	hoist_buffer_unref(b);
	cr_expect_eq(backing.n_frees, 1);
	hoist_memory_unref(memory);
	cr_expect_eq(backing.n_ends, 1);
}

/* Once: the first failure is tried again, and succeeds. */
static int relent(void *context, size_t bytes, unsigned attempt)
{
	struct backing *backing = context;
	cr_expect_eq(bytes, 10);
	if (attempt == 2)
		backing->fail = 0;
	return 1;
}

Test(custom, exhaustion_is_tried_again)
{
	struct backing backing = {.fail = -ENOSPC};
	const hoist_memory_functions functions = {
		.size = sizeof functions,
		.alloc = take,
		.free = give,
		.is_host_accessible = 1,
	};
	hoist_memory *memory =
		make_memory(OPTIONS(.kind = HOIST_MEMORY_CUSTOM, .functions = &functions,
				    .functions_context = &backing, .exhausted = relent,
				    .exhausted_context = &backing, .exhausted_retries = 2));
	uintptr_t block = alloc(memory, 10, 0);
	OK(hoist_memory_free(memory, block));
	hoist_memory_statistics s = statistics_of(memory);
	cr_expect_eq(s.n_exhausted, 2);
	hoist_memory_unref(memory);
}

/* --- as regions of others --- */

static hoist_memory *over(hoist_memory *up)
{
	return make_memory(OPTIONS(.name = "over", .upstream = up, .region_bytes = 1 << 20));
}

Test(upstream, gives_the_regions)
{
	struct backing backing = {0};
	hoist_memory *up = create(&backing);
	hoist_memory *memory = over(up);
	hoist_memory_unref(up); /* the resource keeps a reference */
	cr_expect_eq(backing.n_allocs, 0);
	uintptr_t blocks[N];
	for (size_t i = 0; i < N; i++) {
		OK(hoist_memory_alloc(memory, 1000, 0, &blocks[i]));
		memset((void *)blocks[i], (int)i, 1000);
	}
	cr_expect_eq(backing.n_allocs, 1);
	hoist_block_info info = find_block(blocks[0]);
	cr_expect_eq(info.memory, memory);
	uintptr_t large = alloc(memory, 3 << 20, 0);
	cr_expect_eq(backing.n_allocs, 2);
	OK(hoist_memory_free(memory, large));
	for (size_t i = 0; i < N; i++)
		OK(hoist_memory_free(memory, blocks[i]));
	cr_expect_eq(backing.n_ends, 0);
	hoist_memory_unref(memory);
	cr_expect_eq(backing.n_frees, backing.n_allocs);
	cr_expect_eq(backing.n_ends, 1);
}

Test(upstream, fails_for_both)
{
	struct backing backing = {.fail = -EXDEV};
	hoist_memory *up = create(&backing);
	hoist_memory *memory = over(up);
	uintptr_t none = 77;
	cr_expect_eq(hoist_memory_alloc(memory, 1000, 0, &none), -EXDEV);
	cr_expect_eq(none, 77);
	expect_text("\"over\": ");
	expect_text("\"mine\": its alloc function");
	hoist_memory_unref(memory);
	hoist_memory_unref(up);
}

Test(upstream, must_fit)
{
	static const int nodes[] = {0};
	struct backing backing = {0};
	hoist_memory *up = create(&backing);
	hoist_memory *pages = NULL;
	hoist_memory *memory = NULL;
	hoist_memory_options options = {
		.size = sizeof options, .upstream = up, .pages = HOIST_PAGES_SMALL};
	refuse_memory(&options, -EINVAL,
		      "host memory from \"mine\": placement and pages are that resource's own");
	options.pages = 0;
	options.placement = HOIST_PLACE_BIND;
	options.nodes = nodes;
	options.n_nodes = 1;
	refuse_memory(&options, -EINVAL, "");
	hoist_memory_unref(up);
	OK(hoist_memory_create(NULL, &pages));
	options = (hoist_memory_options){.size = sizeof options, .upstream = pages};
	refuse_memory(&options, -EINVAL, "takes its blocks from regions");
	hoist_memory_unref(pages);
	/* A resource that the host cannot access gives no host memory. */
	const hoist_memory_functions blind = {.size = sizeof blind, .alloc = take, .free = give};
	options = (hoist_memory_options){
		.size = sizeof options, .kind = HOIST_MEMORY_CUSTOM, .functions = &blind};
	OK(hoist_memory_create(&options, &up));
	options = (hoist_memory_options){.size = sizeof options, .upstream = up};
	refuse_memory(&options, -EINVAL, "the host cannot access that memory");
	hoist_memory_unref(up);
	cr_expect_null(memory);
}
