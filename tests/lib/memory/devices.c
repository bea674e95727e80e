/* SPDX-License-Identifier: MIT */
/* Memory resources of emulated CUDA and HIP devices: when contexts are made, the device's limit,
 * streams, the driver's pools, and addresses as the device sees them. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "hoist/memory-driver.h"
#include "lib/device/device.h"
#include "tests/support/lib-support.h"

#define MIB ((size_t)1 << 20)
#define MEMORY (256 * MIB)

static hoist_device *devices[LIB_N_DEVICES];

/* Devices have 256 MiB. */
static void open_all(void)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	setenv("HOIST_EMULATE_MEMORY", "256M", 1);
	lib_open_all(devices);
}

static void expect_text(const char *text)
{
	cr_expect_not_null(strstr(hoist_error(), text), "\"%s\" lacks \"%s\"", hoist_error(), text);
}

#define OPTIONS(...) (&(hoist_memory_options){.size = sizeof(hoist_memory_options), __VA_ARGS__})

static hoist_memory *create(const hoist_memory_options *options)
{
	hoist_memory *memory = NULL;
	cr_assert_eq(hoist_memory_create(options, &memory), 0, "%s", hoist_error());
	return memory;
}

static uintptr_t alloc(hoist_memory *memory, size_t bytes)
{
	uintptr_t address = 0;
	cr_assert_eq(hoist_memory_alloc(memory, bytes, 0, &address), 0, "%s", hoist_error());
	return address;
}

static void release(hoist_memory *memory, uintptr_t address)
{
	cr_assert_eq(hoist_memory_free(memory, address), 0, "%s", hoist_error());
}

static hoist_stream *stream_on(hoist_device *device)
{
	hoist_stream *stream = NULL;
	cr_assert_eq(hoist_stream_create(device, &stream), 0, "%s", hoist_error());
	return stream;
}

static void expect_all_given_back(void)
{
	cr_expect(lib_nothing_outstanding(devices));
	cr_expect(lib_drivers_content());
}

static const char *api_of(int i)
{
	return i == 3 ? "hip" : "cuda";
}

/* --- kinds --- */

/* proves: S2.21 S2.22 S2.24 S2.26 */
Test(kinds, know_who_can_access_them, .init = open_all)
{
	static const struct {
		int kind;
		int host, device, managed, has_id;
		size_t alignment;
	} rows[] = {
		{HOIST_MEMORY_HOST, 1, 0, 0, 0, 64},
		{HOIST_MEMORY_PINNED, 1, 1, 0, 0, 64},
		{HOIST_MEMORY_DEVICE, 0, 1, 0, 1, 256},
		{HOIST_MEMORY_MANAGED, 1, 1, 1, 1, 256},
		{HOIST_MEMORY_DRIVER_POOL, 0, 1, 0, 1, 256},
	};
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
			hoist_memory *memory =
				create(OPTIONS(.kind = rows[k].kind, .device = devices[i]));
			hoist_memory_info info = {.size = sizeof info};
			cr_assert_eq(hoist_memory_get_info(memory, &info), 0);
			cr_expect_eq(info.kind, rows[k].kind);
			cr_expect_eq(info.device, devices[i]);
			cr_expect_eq(info.is_host_accessible, rows[k].host);
			cr_expect_eq(info.is_device_accessible, rows[k].device);
			cr_expect_eq(info.is_managed, rows[k].managed);
			cr_expect_eq(info.device_id, rows[k].has_id ? (i == 2 ? 1 : 0) : -1);
			cr_expect_eq(info.alignment, rows[k].alignment);
			hoist_memory_unref(memory);
		}
	cr_expect_eq(lib_counters("cuda").live_contexts, 0, "making a resource makes no context");
}

/* proves: S2.22 S2.24 S2.25 S2.26 S2.29 */
Test(kinds, each_gives_and_takes_back_blocks, .init = open_all)
{
	static const int kinds[] = {HOIST_MEMORY_HOST, HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE,
				    HOIST_MEMORY_MANAGED, HOIST_MEMORY_DRIVER_POOL};
	static const size_t sizes[] = {1, 1000, 300000, 3 * MIB, 40 * MIB};
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
			hoist_memory *memory =
				create(OPTIONS(.kind = kinds[k], .device = devices[i]));
			for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
				for (size_t align = 0; align <= MIB; align = align * 8 + 512) {
					uintptr_t block = 0;
					cr_assert_eq(hoist_memory_alloc(memory, sizes[s],
									align & -align, &block),
						     0, "%s", hoist_error());
					cr_expect_eq(block & ((align & -align) - (align != 0)), 0);
					hoist_memory_statistics st = {.size = sizeof st};
					cr_assert_eq(hoist_memory_get_statistics(memory, &st), 0);
					cr_expect_eq(st.requested_bytes, sizes[s]);
					cr_expect_eq(st.n_blocks, 1);
					cr_expect_geq(st.reserved_bytes, st.allocated_bytes);
					release(memory, block);
					cr_expect_eq(hoist_memory_free(memory, block), -EINVAL);
				}
			hoist_memory_unref(memory);
		}
	expect_all_given_back();
}

/* proves: S2.26 */
Test(managed, is_kept_where_it_is_preferred, .init = open_all)
{
	static const struct {
		int location;
		int on_host; /* what the stand-in is told, but for the device itself */
	} rows[] = {{HOIST_PREFER_NONE, -1},
		    {HOIST_PREFER_DEVICE, 0},
		    {HOIST_PREFER_HOST, -2},
		    {HOIST_PREFER_HOST_NODE, -3}};
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
			bool of_device = rows[k].location == HOIST_PREFER_DEVICE;
			uintptr_t block = 0;
			hoist_memory *memory =
				create(OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[i],
					       .preferred_location = rows[k].location));
			int err = hoist_memory_alloc(memory, 1000, 0, &block);
			if (i == 3 && rows[k].location == HOIST_PREFER_HOST_NODE) {
				cr_expect_eq(err, -ENOTSUP);
				expect_text("no preferred node of managed memory");
			} else {
				cr_assert_eq(err, 0, "%s", hoist_error());
				cr_expect_eq(lib_preferred(api_of(i), block),
					     of_device ? (i == 2) : rows[k].on_host, "%d %zu", i,
					     k);
				release(memory, block);
			}
			hoist_memory_unref(memory);
		}
	expect_all_given_back();
}

/* proves: S2.26 */
Test(managed, refuses_what_is_no_preference, .init = open_all)
{
	hoist_memory *memory = NULL;
	cr_expect_eq(hoist_memory_create(OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[1],
						 .preferred_location = 4),
					 &memory),
		     -EINVAL);
	expect_text("4 is no preferred location");
	cr_expect_eq(hoist_memory_create(OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[1],
						 .preferred_node = 1),
					 &memory),
		     -EINVAL);
	expect_text("the preferred location is no node's");
	cr_expect_eq(hoist_memory_create(OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[1],
						 .preferred_location = HOIST_PREFER_HOST_NODE,
						 .preferred_node = 999),
					 &memory),
		     -EINVAL);
	expect_text("no NUMA node 999");
	cr_expect_eq(hoist_memory_create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1],
						 .preferred_location = HOIST_PREFER_HOST),
					 &memory),
		     -EINVAL);
	expect_text("device memory has no preferred location");
	cr_expect_null(memory);
	/* A device that the driver will not prefer: no block, and nothing is left. */
	memory = create(OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[1],
				.preferred_location = HOIST_PREFER_DEVICE));
	uintptr_t none = 77;
	cr_assert_eq(lib_fail("cuda", "cuMemAdvise_v2:1+:101"), 0);
	cr_expect_eq(hoist_memory_alloc(memory, 1000, 0, &none), -ENOTSUP);
	expect_text("no preferred location of managed memory");
	cr_expect_eq(none, 77);
	cr_assert_eq(lib_fail("cuda", ""), 0);
	release(memory, alloc(memory, 1000));
	hoist_memory_unref(memory);
	expect_all_given_back();
}

Test(kinds, a_context_comes_with_the_first_block, .init = open_all)
{
	hoist_memory *memory = create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1]));
	cr_assert_eq(hoist_memory_trim(memory, 0), 0);
	hoist_memory_statistics s = {.size = sizeof s};
	cr_assert_eq(hoist_memory_get_statistics(memory, &s), 0);
	uintptr_t none = 77;
	cr_assert_eq(hoist_memory_alloc(memory, 0, 0, &none), 0);
	cr_expect_eq(lib_counters("cuda").live_contexts, 0);
	release(memory, alloc(memory, 1));
	cr_expect_eq(lib_counters("cuda").live_contexts, 1);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* --- the device's limit --- */

/* proves: S1.02 S1.03 */
Test(device_limit, of_the_first_opening_holds)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	setenv("HOIST_EMULATE_MEMORY", "256M", 1);
	hoist_device *device = NULL;
	hoist_device *same = NULL;
	const hoist_device_options first = {.size = sizeof first, .memory_limit = 100 * MIB};
	const hoist_device_options later = {.size = sizeof later, .memory_limit = 200 * MIB};
	cr_assert_eq(hoist_device_open_with("cuda:0", &first, &device), 0, "%s", hoist_error());
	cr_assert_eq(hoist_device_open_with("cuda:0", &later, &same), 0);
	cr_assert_eq(device, same);
	cr_expect_eq(lib_counters("cuda").live_contexts, 0);
	hoist_memory *one = create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = device));
	hoist_memory *two = create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = device));
	uintptr_t block = alloc(one, 64 * MIB);
	uintptr_t none = 77;
	cr_expect_eq(hoist_memory_alloc(two, 64 * MIB, 0, &none), -ENOSPC);
	cr_expect_eq(none, 77);
	expect_text("64 MiB");
	expect_text("36 MiB");
	expect_text("100 MiB");
	/* Buffers are under it too. */
	hoist_buffer *buffer = NULL;
	const int64_t shape[] = {64 << 20};
	cr_expect_eq(hoist_buffer_create(device, HOIST_U8, 1, shape, 0, &buffer), -ENOSPC);
	expect_text("a buffer on cuda:0: ");
	expect_text("100 MiB");
	/* Pinned memory is the host's, and other devices have limits of their own. */
	cr_expect_eq(hoist_buffer_create(device, HOIST_U8, 1, shape, HOIST_BUFFER_PINNED, &buffer),
		     0);
	hoist_buffer_unref(buffer);
	release(one, block);
	hoist_memory_unref(one);
	release(two, alloc(two, 64 * MIB));
	hoist_memory_unref(two);
}

/* proves: S1.03 V105 */
Test(device_limit, is_too_little_for_one_request)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
	setenv("HOIST_EMULATE_MEMORY", "256M", 1);
	hoist_device *device = NULL;
	hoist_buffer *buffer = NULL;
	const hoist_device_options limit = {.size = sizeof limit, .memory_limit = 100 * MIB};
	const int64_t shape[] = {101 << 20};
	cr_assert_eq(hoist_device_open_with("cuda:0", &limit, &device), 0, "%s", hoist_error());
	cr_expect_eq(hoist_buffer_create(device, HOIST_U8, 1, shape, 0, &buffer), -ENOSPC);
	expect_text("101 MiB");
	expect_text("100 MiB");
	cr_expect_null(buffer);
}

/* proves: S1.02 */
Test(device_limit, is_what_is_free_by_default, .init = open_all)
{
	hoist_memory *memory = create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1]));
	uintptr_t none = 77;
	cr_expect_eq(hoist_memory_alloc(memory, MEMORY, 0, &none), -ENOSPC);
	expect_text("256 MiB");
	release(memory, alloc(memory, 250 * MIB));
	hoist_memory_unref(memory);
	hoist_device *device = NULL;
	const hoist_device_options limit = {.size = sizeof limit, .memory_limit = 1};
	cr_expect_eq(hoist_device_open_with("cpu", &limit, &device), -EINVAL);
	expect_text("the CPU has no memory limit");
	cr_expect_eq(hoist_device_open_with("cuda:0", NULL, &device), 0);
	cr_expect_eq(device, devices[1]);
	const hoist_device_options wrong = {.size = 3};
	cr_expect_eq(hoist_device_open_with("cuda:0", &wrong, &device), -EINVAL);
	expect_all_given_back();
}

Test(device_limit, what_other_resources_keep_is_given_back_first, .init = open_all)
{
	hoist_memory *keeper = create(
		OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1], .keep_bytes = MEMORY));
	hoist_memory *memory = create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1]));
	release(keeper, alloc(keeper, 200 * MIB));
	hoist_memory_statistics s = {.size = sizeof s};
	cr_assert_eq(hoist_memory_get_statistics(keeper, &s), 0);
	cr_assert_geq(s.reserved_bytes, 200 * MIB);
	release(memory, alloc(memory, 200 * MIB));
	cr_assert_eq(hoist_memory_get_statistics(keeper, &s), 0);
	cr_expect_eq(s.reserved_bytes, 0);
	hoist_memory_unref(keeper);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* --- addresses --- */

Test(address, of_pinned_memory_is_the_devices, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory =
			create(OPTIONS(.kind = HOIST_MEMORY_PINNED, .device = devices[i]));
		static const size_t sizes[] = {100, 5000, 3 * MIB};
		const char *asked =
			i == 3 ? "hipHostGetDevicePointer" : "cuMemHostGetDevicePointer";
		uint64_t before = lib_calls(api_of(i), asked);
		for (size_t k = 0; k < 3; k++) {
			uintptr_t block = alloc(memory, sizes[k]);
			memset((void *)block, 1, sizes[k]);
			uintptr_t seen = 0;
			uintptr_t inside = 0;
			cr_assert_eq(hoist_memory_device_address(memory, block, &seen), 0, "%s",
				     hoist_error());
			cr_assert_eq(hoist_memory_device_address(memory, block + 77, &inside), 0);
			cr_expect_eq(inside, seen + 77);
			/* The driver was asked once for the region, if at all. */
			cr_expect_leq(lib_calls(api_of(i), asked), before + 1);
			before = lib_calls(api_of(i), asked);
			uintptr_t direct = 0;
			cr_assert_eq(hoist__dev_host_address(hoist__device_dev(devices[i]),
							     (void *)block, &direct),
				     0);
			cr_expect_eq(seen, direct);
			cr_expect_eq(hoist_memory_device_address(memory, block - 1, &seen),
				     -EINVAL);
			release(memory, block);
		}
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

Test(address, of_other_memory, .init = open_all)
{
	hoist_memory *host = create(OPTIONS(.device = devices[1], .name = "pages"));
	hoist_memory *device = create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1]));
	hoist_memory *driver =
		create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1]));
	uintptr_t seen = 77;
	uintptr_t block = alloc(host, 100);
	cr_expect_eq(hoist_memory_device_address(host, block, &seen), -ENOTSUP);
	expect_text("\"pages\": host memory cannot be seen by a device");
	cr_expect_eq(seen, 77);
	release(host, block);
	block = alloc(device, 100);
	cr_expect_eq(hoist_memory_device_address(device, block + 5, &seen), 0);
	cr_expect_eq(seen, block + 5);
	release(device, block);
	cr_expect_eq(hoist_memory_device_address(device, block, &seen), -EINVAL);
	block = alloc(driver, 100);
	cr_expect_eq(hoist_memory_device_address(driver, block + 5, &seen), 0);
	cr_expect_eq(seen, block + 5);
	cr_expect_eq(hoist_memory_device_address(driver, block + 100, &seen), -EINVAL);
	release(driver, block);
	hoist_memory_unref(host);
	hoist_memory_unref(device);
	hoist_memory_unref(driver);
	expect_all_given_back();
}

/* --- streams --- */

Test(stream, must_be_one_that_can_order_the_memory, .init = open_all)
{
	/* Of cpu, cuda:0, cuda:1, hip:0: which may order memory of cuda:0? */
	static const struct {
		int kind;
		int fits[LIB_N_DEVICES];
	} rows[] = {
		{HOIST_MEMORY_HOST, {1, 0, 0, 0}},	  {HOIST_MEMORY_PINNED, {1, 1, 1, 0}},
		{HOIST_MEMORY_DEVICE, {0, 1, 0, 0}},	  {HOIST_MEMORY_MANAGED, {1, 1, 0, 0}},
		{HOIST_MEMORY_DRIVER_POOL, {0, 1, 0, 0}},
	};
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_stream *stream = stream_on(devices[i]);
		for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
			hoist_memory *memory =
				create(OPTIONS(.kind = rows[k].kind, .device = devices[1],
					       .name = "ordered"));
			uintptr_t block = 77;
			int err = hoist_memory_alloc_on(memory, 1000, 0, stream, &block);
			cr_expect_eq(err, rows[k].fits[i] ? 0 : -EINVAL, "kind %d on %s: %d, %s",
				     rows[k].kind, lib_specs[i], err, hoist_error());
			if (err == 0) {
				cr_expect_eq(hoist_memory_use(memory, block, stream), 0);
				cr_expect_eq(hoist_memory_free_on(memory, block, stream), 0, "%s",
					     hoist_error());
			} else {
				expect_text("\"ordered\": a stream of ");
				expect_text(lib_specs[i]);
				expect_text("memory of cuda:0");
				block = alloc(memory, 1000);
				cr_expect_eq(hoist_memory_free_on(memory, block, stream), -EINVAL);
				cr_expect_eq(hoist_memory_use(memory, block, stream), -EINVAL);
				release(memory, block);
			}
			hoist_memory_unref(memory);
		}
		hoist_stream_unref(stream);
	}
	expect_all_given_back();
}

Test(stream, may_end_before_what_was_freed_on_it_is_used_again, .init = open_all)
{
	static const int kinds[] = {HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE,
				    HOIST_MEMORY_DRIVER_POOL};
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
			hoist_memory *memory =
				create(OPTIONS(.kind = kinds[k], .device = devices[i]));
			hoist_stream *one = stream_on(devices[i]);
			hoist_stream *two = stream_on(devices[i]);
			uintptr_t freed = alloc(memory, 5000);
			uintptr_t used = alloc(memory, 5000);
			cr_assert_eq(hoist_memory_use(memory, used, one), 0);
			cr_assert_eq(hoist_memory_use(memory, used, two), 0);
			cr_assert_eq(hoist_memory_free_on(memory, freed, one), 0);
			hoist_stream_unref(one);
			release(memory, used);
			hoist_stream_unref(two);
			release(memory, alloc(memory, 5000));
			cr_expect_eq(hoist_memory_free(memory, used), -EINVAL);
			cr_expect_eq(hoist_memory_free(memory, freed), -EINVAL);
			hoist_memory_unref(memory);
		}
	expect_all_given_back();
}

/* proves: S2.29 */
Test(stream, on_the_same_one_a_block_comes_back_at_once, .init = open_all)
{
	hoist_memory *memory = create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1]));
	hoist_stream *stream = stream_on(devices[1]);
	uintptr_t first = 0;
	uintptr_t second = 0;
	cr_assert_eq(hoist_memory_alloc_on(memory, 5 * MIB, 0, stream, &first), 0);
	cr_assert_eq(hoist_memory_free_on(memory, first, stream), 0);
	hoist_memory_statistics s = {.size = sizeof s};
	cr_assert_eq(hoist_memory_get_statistics(memory, &s), 0);
	cr_expect_geq(s.pending_bytes, 5 * MIB);
	cr_assert_eq(hoist_memory_alloc_on(memory, 5 * MIB, 0, stream, &second), 0);
	cr_expect_eq(first, second);
	cr_assert_eq(hoist_memory_free_on(memory, second, stream), 0);
	hoist_stream_unref(stream);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* proves: S4.19 */
Test(stream, a_resource_waits_for_its_device, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory =
			create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[i]));
		hoist_stream *stream = stream_on(devices[i]);
		hoist_buffer *b = NULL;
		lib_set_latency(api_of(i), 20000, 20000);
		cr_assert_eq(hoist_buffer_create_from(memory, stream, HOIST_U8, 1,
						      (const int64_t[]){1000}, HOIST_BUFFER_ZERO,
						      &b),
			     0, "%s", hoist_error());
		cr_assert_eq(hoist_memory_synchronize(memory), 0, "%s", hoist_error());
		cr_expect_eq(hoist_stream_query(stream), 0);
		lib_set_latency(api_of(i), 10, 20);
		hoist_buffer_unref(b);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

/* --- the driver's pools --- */

/* proves: S2.23 V150 */
Test(driver_pool, attributes_are_the_drivers, .init = open_all)
{
	hoist_memory *memory =
		create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1]));
	uint64_t value = 77;
	cr_assert_eq(hoist_memory_get_attribute(memory, HOIST_POOL_RELEASE_THRESHOLD, &value), 0,
		     "%s", hoist_error());
	cr_expect_eq(value, UINT64_MAX);
	cr_assert_eq(hoist_memory_set_attribute(memory, HOIST_POOL_RELEASE_THRESHOLD, MIB), 0);
	cr_assert_eq(hoist_memory_get_attribute(memory, HOIST_POOL_RELEASE_THRESHOLD, &value), 0);
	cr_expect_eq(value, MIB);
	for (int a = HOIST_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES;
	     a <= HOIST_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES; a++)
		for (uint64_t flag = 0; flag < 2; flag++) {
			cr_expect_eq(hoist_memory_set_attribute(memory, a, flag), 0);
			cr_expect_eq(hoist_memory_get_attribute(memory, a, &value), 0);
			cr_expect_eq(value, flag);
		}
	uintptr_t block = alloc(memory, 10 * MIB);
	uint64_t high = 0;
	cr_assert_eq(hoist_memory_get_attribute(memory, HOIST_POOL_USED_CURRENT, &value), 0);
	cr_assert_eq(hoist_memory_get_attribute(memory, HOIST_POOL_USED_HIGH, &high), 0);
	cr_expect_geq(value, 10 * MIB);
	cr_expect_geq(high, value);
	cr_expect_eq(hoist_memory_set_attribute(memory, HOIST_POOL_USED_CURRENT, 0), -EINVAL);
	cr_expect_eq(hoist_memory_set_attribute(memory, HOIST_POOL_USED_HIGH, 1), -EINVAL);
	cr_expect_eq(hoist_memory_get_attribute(memory, 8, &value), -EINVAL);
	cr_expect_eq(hoist_memory_get_attribute(memory, -1, &value), -EINVAL);
	release(memory, block);
	cr_assert_eq(hoist_memory_set_attribute(memory, HOIST_POOL_USED_HIGH, 0), 0);
	cr_assert_eq(hoist_memory_reset_peaks(memory), 0);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* proves: S2.22 */
Test(driver_pool, has_its_own_limit, .init = open_all)
{
	hoist_memory *memory =
		create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1],
			       .limit_bytes = 64 * MIB, .name = "driver's"));
	uintptr_t block = alloc(memory, 48 * MIB);
	uintptr_t none = 77;
	cr_expect_eq(hoist_memory_alloc(memory, 48 * MIB, 0, &none), -ENOSPC);
	cr_expect_eq(none, 77);
	expect_text("\"driver's\": ");
	release(memory, block);
	release(memory, alloc(memory, 48 * MIB));
	cr_assert_eq(hoist_memory_trim(memory, 0), 0);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* proves: S2.22 */
Test(driver_pool, the_devices_own_is_left_alone, .init = open_all)
{
	const hoist_memory_options *options =
		OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1],
			.flags = HOIST_MEMORY_CURRENT_POOL);
	hoist_memory *one = create(options);
	hoist_memory *two = create(options);
	uint64_t before = 0;
	uint64_t after = 0;
	cr_assert_eq(hoist_memory_get_attribute(one, HOIST_POOL_RELEASE_THRESHOLD, &before), 0);
	cr_expect_neq(before, UINT64_MAX, "its threshold is as it was");
	uintptr_t block = alloc(one, 5 * MIB);
	uintptr_t other = alloc(two, 5 * MIB);
	/* Its blocks are its own: of one pool, but not of one resource. */
	cr_expect_eq(hoist_memory_free(one, other), -EINVAL);
	release(one, block);
	hoist_memory_unref(one);
	release(two, other);
	cr_assert_eq(hoist_memory_get_attribute(two, HOIST_POOL_RELEASE_THRESHOLD, &after), 0);
	cr_expect_eq(before, after);
	cr_assert_eq(hoist_memory_trim(two, 0), 0);
	hoist_memory_unref(two);
	hoist_memory *memory = NULL;
	cr_expect_eq(
		hoist_memory_create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1],
					    .limit_bytes = MIB, .flags = HOIST_MEMORY_CURRENT_POOL),
				    &memory),
		-EINVAL);
	expect_all_given_back();
}

/* proves: S2.22 */
Test(driver_pool, has_a_handle_and_an_owner, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *one =
			create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[i]));
		hoist_memory *current[2];
		void *handle = NULL;
		void *again = NULL;
		void *currents[2] = {NULL, NULL};
		hoist_memory_info info = {.size = sizeof info};
		cr_assert_eq(hoist_memory_native_pool(one, &handle), 0, "%s", hoist_error());
		cr_expect_not_null(handle);
		cr_assert_eq(hoist_memory_native_pool(one, &again), 0);
		cr_expect_eq(again, handle);
		cr_assert_eq(hoist_memory_get_info(one, &info), 0);
		cr_expect_eq(info.is_own, 1);
		for (int k = 0; k < 2; k++) {
			current[k] = create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL,
						    .device = devices[i],
						    .flags = HOIST_MEMORY_CURRENT_POOL));
			cr_assert_eq(hoist_memory_native_pool(current[k], &currents[k]), 0);
			cr_assert_eq(hoist_memory_get_info(current[k], &info), 0);
			cr_expect_eq(info.is_own, 0);
		}
		cr_expect_eq(currents[0], currents[1], "the device has one");
		cr_expect_neq(currents[0], handle);
		for (int k = 0; k < 2; k++)
			hoist_memory_unref(current[k]);
		hoist_memory_unref(one);
	}
	hoist_memory *device = create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1]));
	void *none = NULL;
	cr_expect_eq(hoist_memory_native_pool(device, &none), -ENOTSUP);
	expect_text("is device memory; only a driver's pool has a handle");
	cr_expect_eq(hoist_memory_native_pool(NULL, &none), -EINVAL);
	cr_expect_null(none);
	hoist_memory_unref(device);
	expect_all_given_back();
}

static int access_of(hoist_memory *memory, hoist_device *peer)
{
	int allowed = 77;
	cr_assert_eq(hoist_memory_get_peer_access(memory, peer, &allowed), 0, "%s", hoist_error());
	return allowed;
}

/* proves: S2.22 */
Test(driver_pool, says_which_peers_may_access_it, .init = open_all)
{
	hoist_memory *memory =
		create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1]));
	int allowed = 77;
	cr_expect_eq(access_of(memory, devices[1]), 1, "its own device always");
	for (int other = 0; other < LIB_N_DEVICES; other++)
		if (other != 1)
			cr_expect_eq(access_of(memory, devices[other]), 0, "%d", other);
	cr_assert_eq(hoist_memory_set_peer_access(memory, devices[2], 1), 0, "%s", hoist_error());
	cr_expect_eq(access_of(memory, devices[2]), 1);
	cr_assert_eq(hoist_memory_set_peer_access(memory, devices[2], 1), 0, "again is no error");
	cr_assert_eq(hoist_memory_set_peer_access(memory, devices[2], 0), 0);
	cr_expect_eq(access_of(memory, devices[2]), 0);
	cr_assert_eq(hoist_memory_set_peer_access(memory, devices[1], 1), 0);
	cr_expect_eq(hoist_memory_set_peer_access(memory, devices[1], 0), -EINVAL);
	expect_text("cuda:0 always has access to a pool of cuda:0");
	cr_expect_eq(hoist_memory_set_peer_access(memory, devices[3], 1), -EINVAL);
	expect_text("hip:0 can have no access to a pool of cuda:0");
	cr_expect_eq(hoist_memory_set_peer_access(memory, devices[0], 1), -EINVAL);
	cr_expect_eq(hoist_memory_set_peer_access(memory, NULL, 1), -EINVAL);
	cr_expect_eq(hoist_memory_get_peer_access(NULL, devices[2], &allowed), -EINVAL);
	cr_expect_eq(allowed, 77);
	/* Two resources over the device's own pool have one setting. */
	hoist_memory *current[2];
	for (int k = 0; k < 2; k++)
		current[k] = create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1],
					    .flags = HOIST_MEMORY_CURRENT_POOL));
	cr_assert_eq(hoist_memory_set_peer_access(current[0], devices[2], 1), 0);
	cr_expect_eq(access_of(current[1], devices[2]), 1);
	cr_expect_eq(access_of(memory, devices[2]), 0);
	hoist_memory_unref(current[0]);
	hoist_memory_unref(current[1]);
	hoist_memory_unref(memory);
	hoist_memory *host = create(NULL);
	cr_expect_eq(hoist_memory_set_peer_access(host, devices[1], 1), -ENOTSUP);
	hoist_memory_unref(host);
	expect_all_given_back();
}

Test(driver_pool, a_block_that_a_capture_uses_stays, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i += 2) {
		hoist_memory *memory =
			create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[i]));
		hoist_stream *stream = stream_on(devices[i]);
		uintptr_t block = alloc(memory, 1000);
		cr_assert_eq(hoist_memory_use(memory, block, stream), 0);
		cr_assert_eq(lib_capture(api_of(i), hoist_stream_native(stream), 1), 0);
		cr_expect_eq(hoist_memory_free(memory, block), -EAGAIN);
		expect_text("captures a graph");
		cr_expect_eq(hoist_memory_free_on(memory, block, stream), -EAGAIN);
		/* Where the driver does not say, a wait is not risked. */
		cr_assert_eq(lib_fail(api_of(i), i == 3 ? "hipStreamIsCapturing:1+"
							: "cuStreamIsCapturing:1+"),
			     0);
		cr_expect_eq(hoist_memory_free(memory, block), -EAGAIN);
		cr_assert_eq(lib_fail(api_of(i), NULL), 0);
		uintptr_t none = 77;
		cr_expect_eq(hoist_memory_alloc_on(memory, 1000, 0, stream, &none), -ENOTSUP);
		expect_text("take memory of kind GRAPH");
		cr_expect_eq(none, 77);
		hoist_memory_statistics s = {.size = sizeof s};
		cr_assert_eq(hoist_memory_get_statistics(memory, &s), 0);
		cr_expect_eq(s.n_blocks, 1);
		cr_expect_eq(s.n_frees, 0);
		cr_assert_eq(lib_capture(api_of(i), hoist_stream_native(stream), 0), 0);
		release(memory, block);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

/* --- the caller's own, under others and across fork --- */

static int take(void *context, size_t bytes, size_t align, hoist_stream *stream, uintptr_t *ret)
{
	(void)context;
	(void)stream;
	void *memory = NULL;
	if (posix_memalign(&memory, align < sizeof memory ? sizeof memory : align, bytes) != 0)
		return -ENOMEM;
	*ret = (uintptr_t)memory;
	return 0;
}

static void give(void *context, uintptr_t address, size_t bytes, hoist_stream *stream)
{
	(void)context;
	(void)bytes;
	(void)stream;
	free((void *)address);
}

static hoist_memory *custom(int device_accessible)
{
	const hoist_memory_functions functions = {.size = sizeof functions,
						  .alloc = take,
						  .free = give,
						  .is_host_accessible = 1,
						  .is_device_accessible = device_accessible};
	return create(OPTIONS(.kind = HOIST_MEMORY_CUSTOM, .functions = &functions));
}

/* Runs in the child: host memory goes on, the rest says what it is.
 * Returns: 0; which one is wrong. */
static int check_child(hoist_memory *host, hoist_memory *const others[], int n)
{
	uintptr_t block = 0;
	if (hoist_memory_alloc(host, 100, 0, &block) != 0 || hoist_memory_free(host, block) != 0)
		return 1;
	for (int i = 0; i < n; i++)
		if (hoist_memory_alloc(others[i], 100, 0, &block) != -ESTALE ||
		    hoist_memory_free(others[i], 77) != -ESTALE)
			return 2 + i;
	return 0;
}

Test(fork, leaves_a_child_its_host_memory, .init = open_all)
{
	hoist_memory *host = create(NULL);
	hoist_memory *others[] = {
		create(OPTIONS(.kind = HOIST_MEMORY_PINNED, .device = devices[1])),
		create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1])),
		create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1])),
		custom(0),
	};
	release(host, alloc(host, 100));
	for (size_t i = 0; i < 4; i++)
		release(others[i], alloc(others[i], 100));
	pid_t child = fork();
	cr_assert_geq(child, 0);
	if (child == 0)
		_exit(check_child(host, others, 4));
	int status = -1;
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect_eq(status, 0, "0x%x", (unsigned)status);
	for (size_t i = 0; i < 4; i++) {
		release(others[i], alloc(others[i], 100));
		hoist_memory_unref(others[i]);
	}
	hoist_memory_unref(host);
}

Test(upstream, must_fit_the_device, .init = open_all)
{
	hoist_memory *pinned = custom(1);
	hoist_memory *driver =
		create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1]));
	hoist_memory *memory = NULL;
	cr_expect_eq(hoist_memory_create(OPTIONS(.upstream = driver), &memory), -EINVAL);
	expect_text("the host cannot access that memory");
	cr_expect_eq(hoist_memory_create(OPTIONS(.kind = HOIST_MEMORY_PINNED, .device = devices[1],
						 .upstream = pinned),
					 &memory),
		     -EINVAL);
	expect_text("registered with a driver already");
	cr_expect_eq(hoist_memory_create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[2],
						 .upstream = driver),
					 &memory),
		     -EINVAL);
	expect_text("that memory is not of the device asked for");
	cr_expect_null(memory);
	hoist_memory_unref(pinned);
	hoist_memory_unref(driver);
}

Test(upstream, gives_device_memory, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *up =
			create(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[i]));
		hoist_memory *memory =
			create(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[i],
				       .upstream = up, .region_bytes = 4 * MIB));
		uintptr_t small = alloc(memory, 1000);
		uintptr_t large = alloc(memory, 10 * MIB);
		hoist_memory_statistics s = {.size = sizeof s};
		cr_assert_eq(hoist_memory_get_statistics(up, &s), 0);
		cr_expect_eq(s.n_blocks, 2);
		hoist_memory_unref(up);
		release(memory, small);
		release(memory, large);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

Test(upstream, is_registered_where_the_device_must_see_it, .init = open_all)
{
	hoist_memory *up = custom(0);
	hoist_memory *memory =
		create(OPTIONS(.kind = HOIST_MEMORY_PINNED, .device = devices[3], .upstream = up));
	uintptr_t block = alloc(memory, 1000);
	memset((void *)block, 1, 1000);
	uintptr_t seen = 0;
	cr_assert_eq(hoist_memory_device_address(memory, block + 3, &seen), 0, "%s", hoist_error());
	cr_expect_eq(lib_counters("hip").live_registrations, 1);
	release(memory, block);
	hoist_memory_unref(memory);
	hoist_memory_unref(up);
	expect_all_given_back();
}
