/* SPDX-License-Identifier: MIT */
/* Memory resources on the CPU: the meaning of options, blocks, and the calls that are refused. */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "hoist/memory-driver.h"
#include "tests/support/lib-unit.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static hoist_memory_statistics sound_statistics(hoist_memory *memory)
{
	hoist_memory_statistics s = statistics_of(memory);
	cr_expect_leq(s.requested_bytes, s.allocated_bytes);
	cr_expect_leq(s.allocated_bytes + s.cached_bytes + s.pending_bytes, s.reserved_bytes);
	return s;
}

/* --- options --- */

Test(options, none_are_host_memory, .init = open_cpu)
{
	hoist_memory *memory = make_memory(NULL);
	hoist_memory_info info = memory_info_of(memory);
	cr_expect_eq(info.kind, HOIST_MEMORY_HOST);
	cr_expect_eq(info.device, devices[0]);
	cr_expect_eq(info.device_id, -1);
	cr_expect_eq(info.is_host_accessible, 1);
	cr_expect_eq(info.is_device_accessible, 0);
	cr_expect_eq(info.is_managed, 0);
	cr_expect_eq(info.node, -1);
	cr_expect_eq(info.alignment, 64);
	cr_expect_not_null(strstr(info.name, "host memory "));
	hoist_memory_unref(memory);
	hoist_memory_unref(NULL);
}

Test(options, unknown_options_are_refused)
{
	refuse_memory(&(hoist_memory_options){.size = 4}, -EINVAL, "sizeof(hoist_memory_options)");
	refuse_memory(OPTIONS(.kind = 9), -EINVAL, "9 is no kind of memory");
	refuse_memory(OPTIONS(.kind = -1), -EINVAL, "-1 is no kind of memory");
	refuse_memory(OPTIONS(.flags = 0x10), -EINVAL, "0x10 are no flags");
	refuse_memory(OPTIONS(.placement = 5), -EINVAL, "5 is no placement");
	refuse_memory(OPTIONS(.pages = 3), -EINVAL, "3 is no kind of pages");
	refuse_memory(OPTIONS(.debug = 3), -EINVAL, "debug level 3; the highest is 2");
	refuse_memory(OPTIONS(.exhausted_retries = 1), -EINVAL, "no exhausted function");
	refuse_memory(OPTIONS(.budget_wait_ns = 1), -EINVAL, "no budget to wait for");
	refuse_memory(OPTIONS(.limit_bytes = 10, .soft_limit_bytes = 11), -EINVAL,
		      "soft_limit_bytes (11) exceeds limit_bytes (10)");
}

Test(options, nodes_must_fit_the_placement)
{
	static const int missing[] = {1023};
	static const int negative[] = {-1};
	refuse_memory(OPTIONS(.placement = HOIST_PLACE_BIND), -EINVAL, "bind needs nodes");
	refuse_memory(OPTIONS(.placement = HOIST_PLACE_BIND, .nodes = missing, .n_nodes = 1),
		      -EINVAL, "this machine has no NUMA node 1023");
	refuse_memory(OPTIONS(.placement = HOIST_PLACE_PREFER, .nodes = negative, .n_nodes = 1),
		      -EINVAL, "no NUMA node -1");
	refuse_memory(OPTIONS(.nodes = missing, .n_nodes = 1), -EINVAL,
		      "nodes are for PREFER, BIND and INTERLEAVE; the placement is default");
}

Test(options, each_kind_has_its_own, .init = open_cpu)
{
	static const hoist_memory_functions functions = {.size = sizeof functions};
	refuse_memory(OPTIONS(.functions = &functions), -EINVAL, "host memory has no functions");
	refuse_memory(OPTIONS(.flags = HOIST_MEMORY_CURRENT_POOL), -EINVAL,
		      "host memory has no current pool");
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_CUSTOM, .region_bytes = 1), -EINVAL,
		      "custom memory has no region_bytes");
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_CUSTOM, .debug = 1), -EINVAL,
		      "custom memory has no debug level");
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_HEAP, .cache_bytes = 1), -EINVAL,
		      "heap memory has no cache_bytes");
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_DEVICE), -EINVAL,
		      "device memory needs a device, and the device is NULL");
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[0]), -ENOTSUP,
		      "the CPU has no managed memory");
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[0]), -ENOTSUP,
		      "the CPU has no driver");
}

/* proves: S2.24 */
Test(options, bound_memory_is_on_its_node)
{
	static const int nodes[] = {0};
	hoist_memory *memory =
		make_memory(OPTIONS(.placement = HOIST_PLACE_BIND, .nodes = nodes, .n_nodes = 1,
				    .pages = HOIST_PAGES_SMALL, .name = "bound"));
	hoist_memory_info info = memory_info_of(memory);
	cr_expect_eq(info.node, 0);
	cr_expect_str_eq(info.name, "bound");
	uintptr_t block = alloc(memory, 1000, 0);
	hoist_block_info found = find_block(block);
	cr_expect_leq(found.node, 0, "node 0, or unknown where the kernel does not tell");
	release(memory, block);
	hoist_memory_unref(memory);
}

/* --- blocks --- */

Test(block, is_aligned_and_writable)
{
	hoist_memory *memory = make_memory(NULL);
	for (size_t align = 1; align <= 2 * MIB; align *= 2)
		for (size_t bytes = 1; bytes <= 4 * MIB; bytes = bytes * 7 + 1) {
			uintptr_t block = alloc(memory, bytes, align);
			cr_assert_eq(block % (align > 64 ? align : 64), 0);
			memset((void *)block, 0x5a, bytes);
			release(memory, block);
		}
	cr_expect_eq(sound_statistics(memory).n_blocks, 0);
	hoist_memory_unref(memory);
}

Test(block, zero_bytes_take_no_memory)
{
	hoist_memory *memory = make_memory(NULL);
	uintptr_t block = 77;
	OK(hoist_memory_alloc(memory, 0, 0, &block));
	cr_expect_eq(block, 0);
	OK(hoist_memory_free(memory, block));
	cr_expect_eq(sound_statistics(memory).reserved_bytes, 0, "it took something");
	cr_expect_eq(hoist_memory_alloc(memory, 0, 3, &block), -EINVAL);
	hoist_memory_unref(memory);
}

Test(block, with_a_wrong_alignment_is_refused)
{
	hoist_memory *memory = make_memory(OPTIONS(.name = "picky"));
	static const size_t aligns[] = {3, 63, 4 * MIB, SIZE_MAX};
	for (int warm = 0; warm < 2; warm++) {
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(aligns); i++) {
			uintptr_t block = 77;
			cr_expect_eq(hoist_memory_alloc(memory, 1, aligns[i], &block), -EINVAL);
			cr_expect_eq(block, 77);
			expect_text("\"picky\": ");
			expect_text("is no power of two up to 2 MiB");
		}
		release(memory, alloc(memory, 1, 0)); /* from here on there is a pool */
	}
	hoist_memory_unref(memory);
}

Test(block, beyond_the_machine_is_out_of_memory)
{
	hoist_memory *memory = make_memory(NULL);
	uintptr_t block = 77;
	cr_expect_eq(hoist_memory_alloc(memory, SIZE_MAX, 0, &block), -ENOMEM);
	cr_expect_eq(hoist_memory_alloc(memory, (size_t)1 << 46, 0, &block), -ENOMEM);
	cr_expect_eq(block, 77);
	release(memory, alloc(memory, 100, 0));
	hoist_memory_unref(memory);
}

/* Twice, inside, elsewhere: errors at each debug level, and nothing changes. */
static void check_wrong_frees(unsigned debug)
{
	hoist_memory *memory = make_memory(OPTIONS(.debug = debug, .name = "strict"));
	hoist_memory *other = make_memory(OPTIONS(.debug = debug));
	static const size_t sizes[] = {100, 100 * KIB, 3 * MIB, 40 * MIB};
	int local = 0;
	cr_expect_eq(hoist_memory_free(memory, (uintptr_t)&local), -EINVAL);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		uintptr_t block = alloc(memory, sizes[i], 0);
		uint64_t live = sound_statistics(memory).n_blocks;
		REFUSED(hoist_memory_free(memory, block + 64), -EINVAL, "\"strict\": ");
		cr_expect_eq(hoist_memory_free(memory, block + 1), -EINVAL);
		cr_expect_eq(hoist_memory_free(other, block), -EINVAL);
		cr_expect_eq(hoist_memory_free(memory, (uintptr_t)&local), -EINVAL);
		cr_expect_eq(sound_statistics(memory).n_blocks, live);
		release(memory, block);
		cr_expect_eq(hoist_memory_free(memory, block), -EINVAL);
		cr_expect_eq(sound_statistics(memory).n_blocks, live - 1);
	}
	hoist_memory_unref(other);
	hoist_memory_unref(memory);
}

Test(block, wrongly_freed_is_an_error)
{
	for (unsigned debug = 0; debug <= 2; debug++)
		check_wrong_frees(debug);
}

/* A mistake that AddressSanitizer would see first. */
__attribute__((noinline, no_sanitize("address"))) static void spoil(uintptr_t address)
{
	*(volatile unsigned char *)address ^= 0xff;
}

Test(block, overwritten_behind_its_end_is_seen_at_level_2)
{
	hoist_memory *memory = make_memory(OPTIONS(.debug = 2));
	uintptr_t block = alloc(memory, 100, 0);
	spoil(block + 100);
	cr_expect_eq(hoist_memory_free(memory, block), -EFAULT);
	cr_expect_eq(hoist_memory_free(memory, block), -EINVAL, "it was freed all the same");
	hoist_memory_unref(memory);
}

Test(block, is_found_by_any_of_its_addresses)
{
	hoist_memory *memory = make_memory(NULL);
	static const size_t sizes[] = {100, 100 * KIB, 3 * MIB};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		uintptr_t block = alloc(memory, sizes[i], 0);
		hoist_block_info info = find_block(block + sizes[i] - 1);
		cr_expect_eq(info.memory, memory);
		cr_expect_eq(info.address, block);
		cr_expect_eq(info.bytes, sizes[i]);
		cr_expect_geq(info.allocated_bytes, sizes[i]);
		cr_expect_leq(info.region, block);
		cr_expect_geq(info.region + info.region_bytes, block + sizes[i]);
		uintptr_t seen = device_address(memory, block + 7);
		cr_expect_eq(seen, block + 7, "the CPU sees what the host sees");
		cr_expect_eq(hoist_memory_find(block + sizes[i], &info), -ENOENT);
		release(memory, block);
		cr_expect_eq(hoist_memory_find(block, &info), -ENOENT);
		cr_expect_eq(hoist_memory_device_address(memory, block, &seen), -EINVAL);
	}
	hoist_memory_unref(memory);
}

Test(block, host_memory_has_no_attributes)
{
	hoist_memory *memory = make_memory(NULL);
	uint64_t value;
	REFUSED(hoist_memory_get_attribute(memory, 0, &value), -ENOTSUP,
		"only a driver's pool has attributes");
	cr_expect_eq(hoist_memory_set_attribute(memory, 0, 1), -ENOTSUP);
	REFUSED(hoist_memory_free_on(memory, 77, NULL), -EINVAL, "the stream is NULL");
	cr_expect_eq(hoist_memory_use(memory, 77, NULL), -EINVAL);
	hoist_memory_unref(memory);
}

Test(block, null_is_refused_everywhere)
{
	uintptr_t address;
	uint64_t value;
	cr_expect_eq(hoist_memory_alloc(NULL, 1, 0, &address), -EINVAL);
	cr_expect_eq(hoist_memory_alloc_on(NULL, 1, 0, NULL, &address), -EINVAL);
	cr_expect_eq(hoist_memory_free(NULL, 0), -EINVAL);
	cr_expect_eq(hoist_memory_free_on(NULL, 0, NULL), -EINVAL);
	cr_expect_eq(hoist_memory_use(NULL, 0, NULL), -EINVAL);
	cr_expect_eq(hoist_memory_release_captured(NULL), -EINVAL);
	cr_expect_eq(hoist_memory_device_address(NULL, 0, &address), -EINVAL);
	cr_expect_eq(hoist_memory_add_region(NULL, 0, 0), -EINVAL);
	cr_expect_eq(hoist_memory_trim(NULL, 0), -EINVAL);
	cr_expect_eq(hoist_memory_get_info(NULL, NULL), -EINVAL);
	cr_expect_eq(hoist_memory_get_statistics(NULL, NULL), -EINVAL);
	cr_expect_eq(hoist_memory_reset_peaks(NULL), -EINVAL);
	cr_expect_eq(hoist_memory_snapshot(NULL, 1), -EINVAL);
	cr_expect_eq(hoist_memory_trace(NULL, NULL), -EINVAL);
	cr_expect_eq(hoist_memory_get_attribute(NULL, 0, &value), -EINVAL);
	REFUSED(hoist_memory_of_device(NULL, 0, NULL), -EINVAL, "NULL");
}

/* --- limits --- */

Test(limit, is_never_exceeded_and_tells_the_figures)
{
	hoist_memory *memory = make_memory(OPTIONS(.limit_bytes = 64 * MIB, .name = "small"));
	uintptr_t block = alloc(memory, 40 * MIB, 0);
	uintptr_t none = 77;
	cr_expect_eq(hoist_memory_alloc(memory, 40 * MIB, 0, &none), -EDQUOT);
	cr_expect_eq(none, 77);
	expect_text("\"small\": ");
	expect_text("40 MiB");
	expect_text("64 MiB");
	cr_expect_leq(sound_statistics(memory).reserved_bytes, 64 * MIB);
	release(memory, block);
	release(memory, alloc(memory, 40 * MIB, 0));
	hoist_memory_unref(memory);
}

struct holder {
	hoist_memory *memory;
	uintptr_t held[3];
	unsigned n_calls;
};

/* Frees one block a call. */
static int free_one(void *context, size_t bytes, unsigned attempt)
{
	struct holder *holder = context;
	cr_expect_eq(bytes, 20 * MIB);
	cr_expect_eq(attempt, ++holder->n_calls);
	if (holder->held[attempt - 1] == 0)
		return 0;
	release(holder->memory, holder->held[attempt - 1]);
	return 1;
}

static void expect_calls_with(unsigned retries)
{
	struct holder holder = {0};
	holder.memory =
		make_memory(OPTIONS(.limit_bytes = 32 * MIB, .exhausted = free_one,
				    .exhausted_context = &holder, .exhausted_retries = retries));
	holder.held[0] = alloc(holder.memory, 16 * MIB, 0);
	holder.held[1] = alloc(holder.memory, 16 * MIB, 0);
	uintptr_t block = alloc(holder.memory, 20 * MIB, 0);
	cr_expect_eq(holder.n_calls, 2);
	cr_expect_eq(sound_statistics(holder.memory).n_exhausted, 2);
	/* The third call gives up: the first failure is the request's. */
	holder.n_calls = 0;
	memset(holder.held, 0, sizeof holder.held);
	uintptr_t none = 77;
	cr_expect_eq(hoist_memory_alloc(holder.memory, 20 * MIB, 0, &none), -EDQUOT);
	cr_expect_eq(holder.n_calls, 1);
	cr_expect_eq(none, 77);
	release(holder.memory, block);
	hoist_memory_unref(holder.memory);
}

Test(limit, is_waited_for_by_the_callers_function)
{
	expect_calls_with(3);
	expect_calls_with(UINT_MAX);
}

Test(limit, a_budget_is_shared)
{
	hoist_budget *budget = NULL;
	OK(hoist_budget_create(64 * MIB, &budget));
	hoist_memory *one = make_memory(OPTIONS(.budget = budget));
	hoist_memory *two = make_memory(OPTIONS(.budget = budget, .budget_wait_ns = 1000000));
	uintptr_t block = alloc(one, 48 * MIB, 0);
	uintptr_t other = 77;
	REFUSED(hoist_memory_alloc(two, 48 * MIB, 0, &other), -EDQUOT, "64 MiB");
	/* A resource keeps empty regions, but gives them up for another one. */
	release(one, block);
	other = alloc(two, 48 * MIB, 0);
	cr_expect_eq(sound_statistics(one).reserved_bytes, 0);
	release(two, other);
	/* A request does not wait for the budget while regions are only kept, by its own
	 * resource or another. */
	hoist_memory *three = make_memory(OPTIONS(.budget = budget, .budget_wait_ns = UINT64_MAX));
	other = alloc(three, 48 * MIB, 0);
	release(three, other);
	other = alloc(three, 64 * MIB, 0);
	release(three, other);
	cr_expect_eq(sound_statistics(three).calls[HOIST_CALL_WAIT].n, 0);
	hoist_memory_unref(three);
	hoist_budget_unref(budget); /* the resources keep references */
	hoist_memory_unref(one);
	hoist_memory_unref(two);
}

/* --- kept memory --- */

/* proves: S4.20 */
Test(kept, trim_gives_back_all_but_the_bytes_to_keep)
{
	hoist_memory *memory = make_memory(OPTIONS(.keep_bytes = 256 * MIB));
	uintptr_t blocks[3];
	for (int i = 0; i < 3; i++)
		blocks[i] = alloc(memory, 32 * MIB, 0);
	for (int i = 0; i < 3; i++)
		release(memory, blocks[i]);
	cr_expect_eq(sound_statistics(memory).reserved_bytes, 96 * MIB);
	OK(hoist_memory_trim(memory, 64 * MIB));
	cr_expect_eq(sound_statistics(memory).reserved_bytes, 64 * MIB);
	OK(hoist_memory_trim(memory, 0));
	cr_expect_eq(sound_statistics(memory).reserved_bytes, 0);
	cr_expect_eq(sound_statistics(memory).reserved_peak, 96 * MIB);
	OK(hoist_memory_reset_peaks(memory));
	const hoist_memory_statistics s = sound_statistics(memory);
	cr_expect_eq(s.reserved_peak, 0);
	cr_expect(s.n_allocs == 3 && s.n_frees == 3 && s.n_growths == 3);
	cr_expect_gt(s.calls[HOIST_CALL_MAP].n, 0);
	cr_expect_gt(s.calls[HOIST_CALL_MAP].longest_ns, 0);
	hoist_memory_unref(memory);
}

Test(kept, statistics_can_be_switched_off)
{
	hoist_memory *memory = make_memory(OPTIONS(.flags = HOIST_MEMORY_NO_STATISTICS));
	uintptr_t block = alloc(memory, 100, 0);
	cr_expect_eq(sound_statistics(memory).n_blocks, 0);
	cr_expect_eq(sound_statistics(memory).requested_bytes, 0);
	cr_expect_geq(sound_statistics(memory).allocated_bytes, 100);
	release(memory, block);
	hoist_memory_unref(memory);
}

Test(kept, a_region_of_the_callers_is_used_first_and_left_alone)
{
	size_t bytes = 8 * MIB;
	void *mine = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(mine, MAP_FAILED);
	uintptr_t base = (uintptr_t)mine;
	hoist_memory *memory = make_memory(NULL);
	cr_expect_eq(hoist_memory_add_region(memory, base, 1000), -EINVAL);
	OK(hoist_memory_add_region(memory, base, bytes));
	cr_expect_eq(hoist_memory_add_region(memory, base + MIB, MIB), -EINVAL, "it overlaps");
	uintptr_t block = alloc(memory, 3 * MIB, 0);
	cr_expect(block >= base && block + 3 * MIB <= base + bytes);
	memset((void *)block, 1, 3 * MIB);
	release(memory, block);
	OK(hoist_memory_trim(memory, 0));
	hoist_memory_unref(memory);
	((volatile char *)mine)[bytes - 1] = 1;
	cr_expect_eq(munmap(mine, bytes), 0);
}

Test(kept, blocks_in_use_outlive_their_resource)
{
	hoist_memory *memory = make_memory(OPTIONS(.name = "left alone"));
	uintptr_t block = alloc(memory, 3 * MIB, 0);
	hoist_memory_unref(memory);
	memset((void *)block, 1, 3 * MIB);
	hoist_block_info info = find_block(block + 5);
	cr_expect_eq(info.address, block);
}

/* --- of buffers --- */

Test(buffers, come_from_resources_that_can_be_asked_for, .init = open_cpu)
{
	hoist_memory *memory = memory_of(devices[0], HOIST_MEMORY_DEVICE);
	hoist_memory *same = memory_of(devices[0], HOIST_MEMORY_HOST);
	hoist_memory *pinned = memory_of(devices[0], HOIST_MEMORY_PINNED);
	cr_expect_eq(memory, same);
	cr_expect_neq(memory, pinned);
	REFUSED(hoist_memory_of_device(devices[0], HOIST_MEMORY_HEAP, &same), -EINVAL,
		"no buffers of cpu come from heap memory");
	hoist_buffer *buffer = make_buffer(devices[0], HOIST_U8, 1, SHAPE(1000), 0);
	hoist_block_info info = find_block((uintptr_t)hoist_buffer_data(buffer));
	cr_expect_eq(info.memory, memory);
	cr_expect_eq(info.bytes, 1000);
	cr_expect_eq(sound_statistics(memory).n_blocks, 1);
	hoist_buffer_unref(buffer);
	cr_expect_eq(sound_statistics(memory).n_blocks, 0);
	hoist_memory_unref(memory);
	hoist_memory_unref(memory); /* `same` */
	hoist_memory_unref(pinned);
}

/* --- traces --- */

Test(trace, has_a_line_for_each_call)
{
	const char *path = temporary("trace.csv");
	hoist_memory *memory = make_memory(NULL);
	cr_expect_eq(hoist_memory_trace(memory, "/nowhere/trace.csv"), -ENOENT);
	OK(hoist_memory_trace(memory, path));
	release(memory, alloc(memory, 123, 0));
	OK(hoist_memory_trace(memory, NULL));
	release(memory, alloc(memory, 456, 0));
	FILE *file = fopen(path, "r");
	cr_assert_not_null(file);
	char line[256];
	int n = 0;
	while (fgets(line, sizeof line, file) != NULL) {
		static const char *const contain[] = {"Thread,Time,Action,Pointer,Size,Stream",
						      ",allocate,", ",free,"};
		cr_assert_lt(n, 3);
		cr_expect_not_null(strstr(line, contain[n]), "line %d: %s", n, line);
		if (n > 0)
			cr_expect_not_null(strstr(line, ",123,"), "line %d: %s", n, line);
		n++;
	}
	cr_expect_eq(n, 3);
	(void)fclose(file);
	hoist_memory_unref(memory);
}

/* --- jemalloc --- */

Test(heap, says_how_to_have_it_or_works)
{
	hoist_memory *memory = NULL;
	int err = hoist_memory_create(OPTIONS(.kind = HOIST_MEMORY_HEAP), &memory);
	if (err != 0) {
		cr_expect_eq(err, -ENOTSUP);
		expect_text("jemalloc");
		return;
	}
	uintptr_t block = alloc(memory, 1000, 0);
	memset((void *)block, 1, 1000);
	cr_expect_geq(sound_statistics(memory).reserved_bytes, 1000);
	release(memory, block);
	OK(hoist_memory_trim(memory, 0));
	hoist_memory_unref(memory);
}
