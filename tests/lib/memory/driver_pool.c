/* SPDX-License-Identifier: MIT */
/* Memory resources over the pools of a driver, on emulated CUDA and HIP devices. */
#include "config.h"

#include <errno.h>

#include "hoist/memory-driver.h"
#include "tests/support/lib-unit.h"

#define MIB ((size_t)1 << 20)

/* proves: S2.23 V150 */
Test(driver_pool, attributes_are_the_drivers, .init = open_all)
{
	hoist_memory *memory = make_kind(HOIST_MEMORY_DRIVER_POOL, devices[1]);
	uint64_t value = 77;
	cr_expect_eq(figure(memory, HOIST_POOL_RELEASE_THRESHOLD), UINT64_MAX);
	OK(hoist_memory_set_attribute(memory, HOIST_POOL_RELEASE_THRESHOLD, MIB));
	cr_expect_eq(figure(memory, HOIST_POOL_RELEASE_THRESHOLD), MIB);
	for (int a = HOIST_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES;
	     a <= HOIST_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES; a++)
		for (uint64_t flag = 0; flag < 2; flag++) {
			OK(hoist_memory_set_attribute(memory, a, flag));
			cr_expect_eq(figure(memory, a), flag);
		}
	uintptr_t block = alloc(memory, 10 * MIB, 0);
	uint64_t used = figure(memory, HOIST_POOL_USED_CURRENT);
	cr_expect_geq(used, 10 * MIB);
	cr_expect_geq(figure(memory, HOIST_POOL_USED_HIGH), used);
	cr_expect_eq(hoist_memory_set_attribute(memory, HOIST_POOL_USED_CURRENT, 0), -EINVAL);
	cr_expect_eq(hoist_memory_set_attribute(memory, HOIST_POOL_USED_HIGH, 1), -EINVAL);
	cr_expect_eq(hoist_memory_get_attribute(memory, 8, &value), -EINVAL);
	cr_expect_eq(hoist_memory_get_attribute(memory, -1, &value), -EINVAL);
	release(memory, block);
	OK(hoist_memory_set_attribute(memory, HOIST_POOL_USED_HIGH, 0));
	OK(hoist_memory_reset_peaks(memory));
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* proves: S2.22 */
Test(driver_pool, has_its_own_limit, .init = open_all)
{
	hoist_memory *memory =
		make_memory(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1],
				    .limit_bytes = 64 * MIB, .name = "driver's"));
	uintptr_t block = alloc(memory, 48 * MIB, 0);
	uintptr_t none = 77;
	cr_expect_eq(hoist_memory_alloc(memory, 48 * MIB, 0, &none), -ENOSPC);
	cr_expect_eq(none, 77);
	expect_text("\"driver's\": ");
	release(memory, block);
	release(memory, alloc(memory, 48 * MIB, 0));
	OK(hoist_memory_trim(memory, 0));
	hoist_memory_unref(memory);
	expect_all_given_back();
}

/* proves: S2.22 */
Test(driver_pool, the_devices_own_is_left_alone, .init = open_all)
{
	const hoist_memory_options *options =
		OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1],
			.flags = HOIST_MEMORY_CURRENT_POOL);
	hoist_memory *one = make_memory(options);
	hoist_memory *two = make_memory(options);
	uint64_t before = figure(one, HOIST_POOL_RELEASE_THRESHOLD);
	cr_expect_neq(before, UINT64_MAX, "its threshold is as it was");
	uintptr_t block = alloc(one, 5 * MIB, 0);
	uintptr_t other = alloc(two, 5 * MIB, 0);
	/* Its blocks are its own: of one pool, but not of one resource. */
	cr_expect_eq(hoist_memory_free(one, other), -EINVAL);
	release(one, block);
	hoist_memory_unref(one);
	release(two, other);
	cr_expect_eq(figure(two, HOIST_POOL_RELEASE_THRESHOLD), before);
	OK(hoist_memory_trim(two, 0));
	hoist_memory_unref(two);
	refuse_memory(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1],
			      .limit_bytes = MIB, .flags = HOIST_MEMORY_CURRENT_POOL),
		      -EINVAL, "");
	expect_all_given_back();
}

/* proves: S2.22 */
Test(driver_pool, has_a_handle_and_an_owner, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i++) {
		hoist_memory *one = make_kind(HOIST_MEMORY_DRIVER_POOL, devices[i]);
		hoist_memory *current[2];
		void *handle = NULL;
		void *again = NULL;
		void *currents[2] = {NULL, NULL};
		OK(hoist_memory_native_pool(one, &handle));
		cr_expect_not_null(handle);
		OK(hoist_memory_native_pool(one, &again));
		cr_expect_eq(again, handle);
		hoist_memory_info info = memory_info_of(one);
		cr_expect_eq(info.is_own, 1);
		for (int k = 0; k < 2; k++) {
			current[k] = make_memory(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL,
							 .device = devices[i],
							 .flags = HOIST_MEMORY_CURRENT_POOL));
			OK(hoist_memory_native_pool(current[k], &currents[k]));
			OK(hoist_memory_get_info(current[k], &info));
			cr_expect_eq(info.is_own, 0);
		}
		cr_expect_eq(currents[0], currents[1], "the device has one");
		cr_expect_neq(currents[0], handle);
		for (int k = 0; k < 2; k++)
			hoist_memory_unref(current[k]);
		hoist_memory_unref(one);
	}
	hoist_memory *device = make_kind(HOIST_MEMORY_DEVICE, devices[1]);
	void *none = NULL;
	REFUSED(hoist_memory_native_pool(device, &none), -ENOTSUP,
		"is device memory; only a driver's pool has a handle");
	cr_expect_eq(hoist_memory_native_pool(NULL, &none), -EINVAL);
	cr_expect_null(none);
	hoist_memory_unref(device);
	expect_all_given_back();
}

static int access_of(hoist_memory *memory, hoist_device *peer)
{
	int allowed = 77;
	OK(hoist_memory_get_peer_access(memory, peer, &allowed));
	return allowed;
}

/* proves: S2.22 */
Test(driver_pool, says_which_peers_may_access_it, .init = open_all)
{
	hoist_memory *memory = make_kind(HOIST_MEMORY_DRIVER_POOL, devices[1]);
	int allowed = 77;
	cr_expect_eq(access_of(memory, devices[1]), 1, "its own device always");
	for (int other = 0; other < LIB_N_DEVICES; other++)
		if (other != 1)
			cr_expect_eq(access_of(memory, devices[other]), 0, "%d", other);
	OK(hoist_memory_set_peer_access(memory, devices[2], 1));
	cr_expect_eq(access_of(memory, devices[2]), 1);
	cr_assert_eq(hoist_memory_set_peer_access(memory, devices[2], 1), 0, "again is no error");
	OK(hoist_memory_set_peer_access(memory, devices[2], 0));
	cr_expect_eq(access_of(memory, devices[2]), 0);
	OK(hoist_memory_set_peer_access(memory, devices[1], 1));
	REFUSED(hoist_memory_set_peer_access(memory, devices[1], 0), -EINVAL,
		"cuda:0 always has access to a pool of cuda:0");
	REFUSED(hoist_memory_set_peer_access(memory, devices[3], 1), -EINVAL,
		"hip:0 can have no access to a pool of cuda:0");
	cr_expect_eq(hoist_memory_set_peer_access(memory, devices[0], 1), -EINVAL);
	cr_expect_eq(hoist_memory_set_peer_access(memory, NULL, 1), -EINVAL);
	cr_expect_eq(hoist_memory_get_peer_access(NULL, devices[2], &allowed), -EINVAL);
	cr_expect_eq(allowed, 77);
	/* Two resources over the device's own pool have one setting. */
	hoist_memory *current[2];
	for (int k = 0; k < 2; k++)
		current[k] =
			make_memory(OPTIONS(.kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[1],
					    .flags = HOIST_MEMORY_CURRENT_POOL));
	OK(hoist_memory_set_peer_access(current[0], devices[2], 1));
	cr_expect_eq(access_of(current[1], devices[2]), 1);
	cr_expect_eq(access_of(memory, devices[2]), 0);
	hoist_memory_unref(current[0]);
	hoist_memory_unref(current[1]);
	hoist_memory_unref(memory);
	hoist_memory *host = make_memory(NULL);
	cr_expect_eq(hoist_memory_set_peer_access(host, devices[1], 1), -ENOTSUP);
	hoist_memory_unref(host);
	expect_all_given_back();
}

Test(driver_pool, a_block_that_a_capture_uses_stays, .init = open_all)
{
	for (int i = 1; i < LIB_N_DEVICES; i += 2) {
		hoist_memory *memory = make_kind(HOIST_MEMORY_DRIVER_POOL, devices[i]);
		hoist_stream *stream = make_stream(devices[i]);
		uintptr_t block = alloc(memory, 1000, 0);
		OK(hoist_memory_use(memory, block, stream));
		OK(set_capture(stream, 1));
		REFUSED(hoist_memory_free(memory, block), -EAGAIN, "captures a graph");
		cr_expect_eq(hoist_memory_free_on(memory, block, stream), -EAGAIN);
		/* Where the driver does not say, a wait is not risked. */
		OK(lib_fail(api_of(devices[i]),
			    i == 3 ? "hipStreamIsCapturing:1+" : "cuStreamIsCapturing:1+"));
		cr_expect_eq(hoist_memory_free(memory, block), -EAGAIN);
		OK(lib_fail(api_of(devices[i]), NULL));
		uintptr_t none = 77;
		REFUSED(hoist_memory_alloc_on(memory, 1000, 0, stream, &none), -ENOTSUP,
			"take memory of kind GRAPH");
		cr_expect_eq(none, 77);
		hoist_memory_statistics s = statistics_of(memory);
		cr_expect_eq(s.n_blocks, 1);
		cr_expect_eq(s.n_frees, 0);
		OK(set_capture(stream, 0));
		release(memory, block);
		hoist_stream_unref(stream);
		hoist_memory_unref(memory);
	}
	expect_all_given_back();
}
