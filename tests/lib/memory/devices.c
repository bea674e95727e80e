/* SPDX-License-Identifier: MIT */
/* Memory resources of emulated CUDA and HIP devices: when contexts are made, the device's limit,
 * streams, and addresses as the device sees them. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/memory-driver.h"
#include "lib/device/device.h"
#include "tests/support/child.h"
#include "tests/support/lib-custom.h"
#include "tests/support/lib-unit.h"

#define MIB ((size_t)1 << 20)
#define MEMORY (256 * MIB)

/* Devices have 256 MiB. */
static void open_small(void)
{
	setenv("HOIST_EMULATE_MEMORY", "256M", 1);
	open_all();
}

/* --- kinds --- */

/* proves: S2.21 S2.22 S2.24 S2.26 */
Test(kinds, know_whether_host_and_device_can_access_them, .init = open_small)
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
			hoist_memory *memory = make_kind(rows[k].kind, devices[i]);
			hoist_memory_info info = memory_info_of(memory);
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
Test(kinds, each_gives_and_takes_back_blocks, .init = open_small)
{
	static const int kinds[] = {HOIST_MEMORY_HOST, HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE,
				    HOIST_MEMORY_MANAGED, HOIST_MEMORY_DRIVER_POOL};
	static const size_t sizes[] = {1, 1000, 300000, 3 * MIB, 40 * MIB};
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
			hoist_memory *memory = make_kind(kinds[k], devices[i]);
			for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
				for (size_t align = 0; align <= MIB; align = align * 8 + 512) {
					uintptr_t block = alloc(memory, sizes[s], align & -align);
					cr_expect_eq(block & ((align & -align) - (align != 0)), 0);
					hoist_memory_statistics st = statistics_of(memory);
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
Test(managed, is_kept_where_it_is_preferred, .init = open_small)
{
	static const struct {
		int location;
		int on_host; /* the location that the stand-in gets; HOIST_PREFER_DEVICE gives the
				device's own */
	} rows[] = {{HOIST_PREFER_NONE, -1},
		    {HOIST_PREFER_DEVICE, 0},
		    {HOIST_PREFER_HOST, -2},
		    {HOIST_PREFER_HOST_NODE, -3}};
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
			bool of_device = rows[k].location == HOIST_PREFER_DEVICE;
			uintptr_t block = 0;
			hoist_memory *memory = make_memory(
				OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[i],
					.preferred_location = rows[k].location));
			int err = hoist_memory_alloc(memory, 1000, 0, &block);
			if (i == 3 && rows[k].location == HOIST_PREFER_HOST_NODE) {
				cr_expect_eq(err, -ENOTSUP);
				expect_text("no preferred node of managed memory");
			} else {
				cr_assert_eq(err, 0, "%s", hoist_error());
				cr_expect_eq(lib_preferred(api_of(devices[i]), block),
					     of_device ? (i == 2) : rows[k].on_host, "%d %zu", i,
					     k);
				release(memory, block);
			}
			hoist_memory_unref(memory);
		}
	expect_all_given_back();
}

/* proves: S2.26 */
Test(managed, refuses_a_senseless_preferred_location, .init = open_small)
{
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[1],
			      .preferred_location = 4),
		      -EINVAL, "4 is no preferred location");
	refuse_memory(
		OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[1], .preferred_node = 1),
		-EINVAL, "the preferred location is no node's");
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[1],
			      .preferred_location = HOIST_PREFER_HOST_NODE, .preferred_node = 999),
		      -EINVAL, "no NUMA node 999");
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1],
			      .preferred_location = HOIST_PREFER_HOST),
		      -EINVAL, "device memory has no preferred location");
	/* A device that the driver will not prefer: no block, and nothing is left. */
	hoist_memory *memory =
		make_memory(OPTIONS(.kind = HOIST_MEMORY_MANAGED, .device = devices[1],
				    .preferred_location = HOIST_PREFER_DEVICE));
	uintptr_t none = 77;
	OK(lib_fail("cuda", "cuMemAdvise_v2:1+:101"));
	REFUSED(hoist_memory_alloc(memory, 1000, 0, &none), -ENOTSUP,
		"no preferred location of managed memory");
	cr_expect_eq(none, 77);
	OK(lib_fail("cuda", ""));
	release(memory, alloc(memory, 1000, 0));
	hoist_memory_unref(memory);
	expect_all_given_back();
}

Test(kinds, a_context_comes_with_the_first_block, .init = open_small)
{
	hoist_memory *memory = make_kind(HOIST_MEMORY_DEVICE, devices[1]);
	OK(hoist_memory_trim(memory, 0));
	(void)statistics_of(memory);
	uintptr_t none = 77;
	OK(hoist_memory_alloc(memory, 0, 0, &none));
	cr_expect_eq(lib_counters("cuda").live_contexts, 0);
	release(memory, alloc(memory, 1, 0));
	cr_expect_eq(lib_counters("cuda").live_contexts, 1);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* --- the device's limit --- */

/* cuda:0, where no test has opened the devices before. */
static hoist_device *open_limited(uint64_t limit)
{
	const hoist_device_options options = {.size = sizeof options, .memory_limit = limit};
	hoist_device *device = NULL;
	emulate();
	setenv("HOIST_EMULATE_MEMORY", "256M", 1);
	OK(hoist_device_open_with("cuda:0", &options, &device));
	return device;
}

/* proves: S1.02 S1.03 */
Test(device_limit, the_first_opening_sets_it)
{
	hoist_device *device = open_limited(100 * MIB);
	cr_assert_eq(open_limited(200 * MIB), device);
	cr_expect_eq(lib_counters("cuda").live_contexts, 0);
	hoist_memory *one = make_kind(HOIST_MEMORY_DEVICE, device);
	hoist_memory *two = make_kind(HOIST_MEMORY_DEVICE, device);
	uintptr_t block = alloc(one, 64 * MIB, 0);
	uintptr_t none = 77;
	cr_expect_eq(hoist_memory_alloc(two, 64 * MIB, 0, &none), -ENOSPC);
	cr_expect_eq(none, 77);
	expect_text("64 MiB");
	expect_text("36 MiB");
	expect_text("100 MiB");
	/* Buffers are under the limit, too. */
	hoist_buffer *buffer = NULL;
	const int64_t shape[] = {64 << 20};
	REFUSED(hoist_buffer_create(device, HOIST_U8, 1, shape, 0, &buffer), -ENOSPC,
		"a buffer on cuda:0: ");
	expect_text("100 MiB");
	/* Pinned memory is the host's, and other devices have limits of their own. */
	OK(hoist_buffer_create(device, HOIST_U8, 1, shape, HOIST_BUFFER_PINNED, &buffer));
	hoist_buffer_unref(buffer);
	release(one, block);
	hoist_memory_unref(one);
	release(two, alloc(two, 64 * MIB, 0));
	hoist_memory_unref(two);
}

/* proves: S1.03 V105 */
Test(device_limit, is_too_little_for_one_request)
{
	hoist_buffer *buffer = NULL;
	REFUSED(hoist_buffer_create(open_limited(100 * MIB), HOIST_U8, 1, SHAPE(101 << 20), 0,
				    &buffer),
		-ENOSPC, "101 MiB");
	expect_text("100 MiB");
	cr_expect_null(buffer);
}

/* proves: S1.02 */
Test(device_limit, is_the_free_memory_by_default, .init = open_small)
{
	hoist_memory *memory = make_kind(HOIST_MEMORY_DEVICE, devices[1]);
	uintptr_t none = 77;
	REFUSED(hoist_memory_alloc(memory, MEMORY, 0, &none), -ENOSPC, "256 MiB");
	release(memory, alloc(memory, 250 * MIB, 0));
	hoist_memory_unref(memory);
	hoist_device *device = NULL;
	const hoist_device_options limit = {.size = sizeof limit, .memory_limit = 1};
	REFUSED(hoist_device_open_with("cpu", &limit, &device), -EINVAL,
		"the CPU has no memory limit");
	OK(hoist_device_open_with("cuda:0", NULL, &device));
	cr_expect_eq(device, devices[1]);
	const hoist_device_options wrong = {.size = 3};
	cr_expect_eq(hoist_device_open_with("cuda:0", &wrong, &device), -EINVAL);
	expect_all_given_back();
}

Test(device_limit, kept_memory_of_others_is_given_back_first, .init = open_small)
{
	hoist_memory *keeper = make_memory(
		OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[1], .keep_bytes = MEMORY));
	hoist_memory *memory = make_kind(HOIST_MEMORY_DEVICE, devices[1]);
	release(keeper, alloc(keeper, 200 * MIB, 0));
	cr_assert_geq(statistics_of(keeper).reserved_bytes, 200 * MIB);
	release(memory, alloc(memory, 200 * MIB, 0));
	cr_expect_eq(statistics_of(keeper).reserved_bytes, 0);
	hoist_memory_unref(keeper);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* --- addresses --- */

Test(address, pinned_memory_has_the_devices, .init = open_small)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory = make_kind(HOIST_MEMORY_PINNED, devices[i]);
		static const size_t sizes[] = {100, 5000, 3 * MIB};
		const char *asked =
			i == 3 ? "hipHostGetDevicePointer" : "cuMemHostGetDevicePointer";
		uint64_t before = lib_calls(api_of(devices[i]), asked);
		for (size_t k = 0; k < 3; k++) {
			uintptr_t block = alloc(memory, sizes[k], 0);
			memset((void *)block, 1, sizes[k]);
			uintptr_t seen = device_address(memory, block);
			uintptr_t inside = device_address(memory, block + 77);
			cr_expect_eq(inside, seen + 77);
			/* The driver was asked once for the region, if at all. */
			cr_expect_leq(lib_calls(api_of(devices[i]), asked), before + 1);
			before = lib_calls(api_of(devices[i]), asked);
			uintptr_t direct = 0;
			OK(hoist__dev_host_address(hoist__device_dev(devices[i]), (void *)block,
						   &direct));
			cr_expect_eq(seen, direct);
			cr_expect_eq(hoist_memory_device_address(memory, block - 1, &seen),
				     -EINVAL);
			release(memory, block);
		}
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

Test(address, other_memory_has_its_own_or_none, .init = open_small)
{
	hoist_memory *host = make_memory(OPTIONS(.device = devices[1], .name = "pages"));
	hoist_memory *device = make_kind(HOIST_MEMORY_DEVICE, devices[1]);
	hoist_memory *driver = make_kind(HOIST_MEMORY_DRIVER_POOL, devices[1]);
	uintptr_t seen = 77;
	uintptr_t block = alloc(host, 100, 0);
	REFUSED(hoist_memory_device_address(host, block, &seen), -ENOTSUP,
		"\"pages\": host memory cannot be seen by a device");
	cr_expect_eq(seen, 77);
	release(host, block);
	block = alloc(device, 100, 0);
	OK(hoist_memory_device_address(device, block + 5, &seen));
	cr_expect_eq(seen, block + 5);
	release(device, block);
	cr_expect_eq(hoist_memory_device_address(device, block, &seen), -EINVAL);
	block = alloc(driver, 100, 0);
	OK(hoist_memory_device_address(driver, block + 5, &seen));
	cr_expect_eq(seen, block + 5);
	cr_expect_eq(hoist_memory_device_address(driver, block + 100, &seen), -EINVAL);
	release(driver, block);
	hoist_memory_unref(host);
	hoist_memory_unref(device);
	hoist_memory_unref(driver);
	expect_all_given_back();
}

/* --- streams --- */

Test(stream, must_be_one_that_can_order_the_memory, .init = open_small)
{
	/* fits: cpu, cuda:0, cuda:1 and hip:0 may order memory of cuda:0. */
	static const struct {
		int kind;
		int fits[LIB_N_DEVICES];
	} rows[] = {
		{HOIST_MEMORY_HOST, {1, 0, 0, 0}},	  {HOIST_MEMORY_PINNED, {1, 1, 1, 0}},
		{HOIST_MEMORY_DEVICE, {0, 1, 0, 0}},	  {HOIST_MEMORY_MANAGED, {1, 1, 0, 0}},
		{HOIST_MEMORY_DRIVER_POOL, {0, 1, 0, 0}},
	};
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_stream *stream = make_stream(devices[i]);
		for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
			hoist_memory *memory =
				make_memory(OPTIONS(.kind = rows[k].kind, .device = devices[1],
						    .name = "ordered"));
			uintptr_t block = 77;
			int err = hoist_memory_alloc_on(memory, 1000, 0, stream, &block);
			cr_expect_eq(err, rows[k].fits[i] ? 0 : -EINVAL, "kind %d on %s: %d, %s",
				     rows[k].kind, lib_specs[i], err, hoist_error());
			if (err == 0) {
				OK(hoist_memory_use(memory, block, stream));
				OK(hoist_memory_free_on(memory, block, stream));
			} else {
				expect_text("\"ordered\": a stream of ");
				expect_text(lib_specs[i]);
				expect_text("memory of cuda:0");
				block = alloc(memory, 1000, 0);
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

Test(stream, may_end_before_memory_freed_on_it_is_used_again, .init = open_small)
{
	static const int kinds[] = {HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE,
				    HOIST_MEMORY_DRIVER_POOL};
	for (int i = 1; i < LIB_N_DEVICES; i++)
		for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
			hoist_memory *memory = make_kind(kinds[k], devices[i]);
			hoist_stream *one = make_stream(devices[i]);
			hoist_stream *two = make_stream(devices[i]);
			uintptr_t freed = alloc(memory, 5000, 0);
			uintptr_t used = alloc(memory, 5000, 0);
			OK(hoist_memory_use(memory, used, one));
			OK(hoist_memory_use(memory, used, two));
			OK(hoist_memory_free_on(memory, freed, one));
			hoist_stream_unref(one);
			release(memory, used);
			hoist_stream_unref(two);
			release(memory, alloc(memory, 5000, 0));
			cr_expect_eq(hoist_memory_free(memory, used), -EINVAL);
			cr_expect_eq(hoist_memory_free(memory, freed), -EINVAL);
			hoist_memory_unref(memory);
		}
	expect_all_given_back();
}

/* proves: S2.29 */
Test(stream, on_the_same_one_a_block_comes_back_at_once, .init = open_small)
{
	hoist_memory *memory = make_kind(HOIST_MEMORY_DEVICE, devices[1]);
	hoist_stream *stream = make_stream(devices[1]);
	uintptr_t first = alloc_on(memory, 5 * MIB, 0, stream);
	OK(hoist_memory_free_on(memory, first, stream));
	cr_expect_geq(statistics_of(memory).pending_bytes, 5 * MIB);
	uintptr_t second = alloc_on(memory, 5 * MIB, 0, stream);
	cr_expect_eq(first, second);
	OK(hoist_memory_free_on(memory, second, stream));
	hoist_stream_unref(stream);
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* proves: S4.19 */
Test(stream, a_resource_waits_for_its_device, .init = open_small)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *memory = make_kind(HOIST_MEMORY_DEVICE, devices[i]);
		hoist_stream *stream = make_stream(devices[i]);
		lib_set_latency(api_of(devices[i]), 20000, 20000);
		hoist_buffer *b = make_buffer_from(memory, stream, HOIST_U8, 1, SHAPE(1000),
						   HOIST_BUFFER_ZERO);
		OK(hoist_memory_synchronize(memory));
		OK(hoist_stream_query(stream));
		lib_set_latency(api_of(devices[i]), 10, 20);
		hoist_buffer_unref(b);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

/* --- the caller's own, under others and across fork --- */

/* Runs in the child, where host memory goes on and the rest gives -ESTALE.  Returns: 0, or the
 * number of the resource that is wrong. */
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

Test(fork, leaves_a_child_its_host_memory, .init = open_small)
{
	hoist_memory *host = make_memory(NULL);
	hoist_memory *others[] = {
		make_kind(HOIST_MEMORY_PINNED, devices[1]),
		make_kind(HOIST_MEMORY_DEVICE, devices[1]),
		make_kind(HOIST_MEMORY_DRIVER_POOL, devices[1]),
		make_custom(NULL, NULL, 1, 0),
	};
	release(host, alloc(host, 100, 0));
	for (size_t i = 0; i < 4; i++)
		release(others[i], alloc(others[i], 100, 0));
	pid_t child = fork();
	cr_assert_geq(child, 0);
	if (child == 0)
		_exit(check_child(host, others, 4));
	cr_expect_eq(child_status(child), 0);
	for (size_t i = 0; i < 4; i++) {
		release(others[i], alloc(others[i], 100, 0));
		hoist_memory_unref(others[i]);
	}
	hoist_memory_unref(host);
}

Test(upstream, must_fit_the_device, .init = open_small)
{
	hoist_memory *pinned = make_custom(NULL, NULL, 1, 1);
	hoist_memory *driver = make_kind(HOIST_MEMORY_DRIVER_POOL, devices[1]);
	refuse_memory(OPTIONS(.upstream = driver), -EINVAL, "the host cannot access that memory");
	refuse_memory(
		OPTIONS(.kind = HOIST_MEMORY_PINNED, .device = devices[1], .upstream = pinned),
		-EINVAL, "registered with a driver already");
	refuse_memory(
		OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[2], .upstream = driver),
		-EINVAL, "that memory is not of the device asked for");
	hoist_memory_unref(pinned);
	hoist_memory_unref(driver);
}

Test(upstream, gives_device_memory, .init = open_small)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *up = make_kind(HOIST_MEMORY_DRIVER_POOL, devices[i]);
		hoist_memory *memory =
			make_memory(OPTIONS(.kind = HOIST_MEMORY_DEVICE, .device = devices[i],
					    .upstream = up, .region_bytes = 4 * MIB));
		uintptr_t small = alloc(memory, 1000, 0);
		uintptr_t large = alloc(memory, 10 * MIB, 0);
		cr_expect_eq(statistics_of(up).n_blocks, 2);
		hoist_memory_unref(up);
		release(memory, small);
		release(memory, large);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}

Test(upstream, is_registered_where_the_device_must_see_it, .init = open_small)
{
	hoist_memory *up = make_custom(NULL, NULL, 1, 0);
	hoist_memory *memory = make_memory(
		OPTIONS(.kind = HOIST_MEMORY_PINNED, .device = devices[3], .upstream = up));
	uintptr_t block = alloc(memory, 1000, 0);
	memset((void *)block, 1, 1000);
	(void)device_address(memory, block + 3);
	cr_expect_eq(lib_counters("hip").live_registrations, 1);
	release(memory, block);
	hoist_memory_unref(memory);
	hoist_memory_unref(up);
	expect_all_given_back();
}
