/* SPDX-License-Identifier: MIT */
/* Managed memory, virtual memory and the drivers' own pools, on every driver: see device-driver.h.
 */
#include "config.h"

#define SUITE device_pool

#include "tests/support/device-driver.h"
#include "device/cuda.h"
#include "device/hip.h"
#include "device/vmm.h"
#include "tests/support/patience.h"

#define LIMIT ((size_t)64 << 20)

/* Skips where a real driver or device has none. */
static struct hoist__dev_pool *make_pool(size_t max_bytes)
{
	struct hoist__dev_pool *pool = NULL;
	int err = hoist__dev_pool_create(dev, max_bytes, &pool);
	if (err == -ENOTSUP && !hoist__dev_props(dev)->emulated)
		cr_skip_test("%s", hoist__error_text());
	cr_assert_eq(err, 0, "%s", hoist__error_text());
	OK(hoist__dev_stream_create(dev, &stream));
	return pool;
}

static void drop_pool(struct hoist__dev_pool *pool)
{
	hoist__dev_pool_destroy(pool);
	hoist__dev_stream_destroy(stream);
}

static uint64_t get(struct hoist__dev_pool *pool, enum hoist__pool_attribute attribute)
{
	uint64_t value = 0;
	OK(hoist__dev_pool_get(pool, attribute, &value));
	return value;
}

/* --- managed memory --- */

static void managed(void)
{
	uintptr_t copy = 0;
	int err = hoist__dev_managed_alloc(dev, BYTES, &memory);
	if (err == -ENOTSUP && !hoist__dev_props(dev)->emulated)
		cr_skip_test("%s", hoist__error_text());
	cr_assert_eq(err, 0, "%s", hoist__error_text());
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_mem_alloc(dev, BYTES, &copy));
	unsigned char *bytes = (unsigned char *)memory;
	memset(bytes, 0x31, BYTES);
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, copy, memory, BYTES));
	OK(hoist__fill_async(stream, memory, 0x32, 1, BYTES / 2));
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, memory + BYTES / 2, copy,
			     BYTES / 2));
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(bytes[0], 0x32);
	cr_assert_eq(bytes[BYTES / 2 - 1], 0x32);
	cr_assert_eq(bytes[BYTES / 2], 0x31);
	cr_assert_eq(bytes[BYTES - 1], 0x31);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	OK(hoist__dev_mem_free(dev, copy, BYTES));
	hoist__dev_stream_destroy(stream);
	cr_assert_eq(hoist__dev_managed_alloc(dev, 0, &memory), -EINVAL);
}
EVERYWHERE(managed_memory_is_the_hosts_and_the_devices, managed)

static void managed_full(void)
{
	size_t bytes = hoist__dev_props(dev)->total_bytes * 2;
	cr_assert_eq(hoist__dev_managed_alloc(dev, bytes, &memory), -ENOSPC);
	cr_assert_eq(memory, 0);
	nothing_is_left("after a refusal");
}
EMULATED(managed_memory_that_is_exhausted_is_ENOSPC, managed_full)

/* --- virtual memory --- */

/* One mapping reads the bytes that another wrote; then one copy reads both. */
static void vmm(void)
{
	const struct hoist__vmm_props props = {.recommended = true};
	uintptr_t address = 0;
	uint64_t physical = 0;
	size_t bytes = 0;
	int err = hoist__vmm_granularity(dev, &props, &bytes);
	if (err == -ENOTSUP && !hoist__dev_props(dev)->emulated)
		cr_skip_test("%s", hoist__error_text());
	cr_assert_eq(err, 0, "%s", hoist__error_text());
	unsigned char *out = aligned_alloc(4096, 2 * bytes);
	cr_assert_not_null(out);
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_host_register(dev, out, 2 * bytes));
	OK(hoist__vmm_reserve(dev, 2 * bytes, 0, 0, &address));
	OK(hoist__vmm_create(dev, &props, bytes, &physical));
	for (uintptr_t at = address; at < address + 2 * bytes; at += bytes) {
		OK(hoist__vmm_map(dev, at, bytes, physical));
		OK(hoist__vmm_set_access(dev, at, bytes, dev, HOIST__VMM_READ_WRITE));
	}
	OK(hoist__fill_async(stream, address, 0x51, 1, bytes));
	OK(hoist__fill_async(stream, address + bytes, 0x52, 1, bytes / 2));
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)out, address,
			     2 * bytes));
	OK(hoist__dev_stream_synchronize(stream));
	for (size_t i = 0; i < 2 * bytes; i += bytes) {
		cr_assert_eq(out[i], 0x52);
		cr_assert_eq(out[i + bytes - 1], 0x51);
	}
	for (uintptr_t at = address; at < address + 2 * bytes; at += bytes)
		OK(hoist__vmm_unmap(dev, at, bytes));
	OK(hoist__vmm_release(dev, physical));
	OK(hoist__vmm_unreserve(dev, address, 2 * bytes));
	OK(hoist__dev_host_unregister(dev, out, 2 * bytes));
	free(out);
	hoist__dev_stream_destroy(stream);
}
EVERYWHERE(virtual_memory_is_the_same_wherever_it_is_mapped, vmm)

/* --- pools --- */

static void order(void)
{
	uintptr_t again = 0;
	struct hoist__dev_pool *pool = make_pool(0);
	OK(hoist__dev_host_register(dev, host, BYTES));
	cr_assert_eq(get(pool, HOIST__POOL_USED_CURRENT), 0);
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &memory));
	cr_assert_eq(memory % 256, 0);
	cr_assert_geq(get(pool, HOIST__POOL_USED_CURRENT), BYTES);
	cr_assert_geq(get(pool, HOIST__POOL_RESERVED_CURRENT), BYTES);
	OK(hoist__fill_async(stream, memory, 0x41, 1, BYTES));
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host, memory, BYTES));
	OK(hoist__dev_pool_free(pool, memory, stream));
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &again));
	OK(hoist__fill_async(stream, again, 0x42, 1, BYTES));
	OK(hoist__dev_pool_free(pool, again, stream));
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(host[0], 0x41);
	cr_assert_eq(host[BYTES - 1], 0x41);
	OK(hoist__dev_pool_free(pool, 0, stream));
	OK(hoist__dev_host_unregister(dev, host, BYTES));
	drop_pool(pool);
}
EVERYWHERE(pool_gives_and_takes_in_the_streams_order, order)

static void figures(void)
{
	struct hoist__dev_pool *pool = make_pool(0);
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &memory));
	OK(hoist__dev_pool_free(pool, memory, stream));
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(get(pool, HOIST__POOL_USED_CURRENT), 0);
	cr_assert_geq(get(pool, HOIST__POOL_USED_HIGH), BYTES);
	cr_assert_geq(get(pool, HOIST__POOL_RESERVED_HIGH), BYTES);
	OK(hoist__dev_pool_set(pool, HOIST__POOL_USED_HIGH, 0));
	cr_assert_eq(get(pool, HOIST__POOL_USED_HIGH), 0);
	OK(hoist__dev_pool_trim(pool, 0));
	cr_assert_eq(get(pool, HOIST__POOL_RESERVED_CURRENT), 0);
	for (int i = HOIST__POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES;
	     i <= HOIST__POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES; i++) {
		enum hoist__pool_attribute flag = (enum hoist__pool_attribute)i;
		cr_assert_eq(get(pool, flag), 1, "flag %d", i);
		OK(hoist__dev_pool_set(pool, flag, 0));
		cr_assert_eq(get(pool, flag), 0, "flag %d", i);
	}
	drop_pool(pool);
}
EVERYWHERE(pool_has_figures, figures)

/* Freed memory stays reserved, by the threshold of a new pool. */
static void threshold(void)
{
	struct hoist__dev_pool *pool = make_pool(0);
	cr_assert_eq(get(pool, HOIST__POOL_RELEASE_THRESHOLD), UINT64_MAX);
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &memory));
	OK(hoist__dev_pool_free(pool, memory, stream));
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_geq(get(pool, HOIST__POOL_RESERVED_CURRENT), BYTES);
	OK(hoist__dev_pool_set(pool, HOIST__POOL_RELEASE_THRESHOLD, 0));
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &memory));
	OK(hoist__dev_pool_free(pool, memory, stream));
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(get(pool, HOIST__POOL_RESERVED_CURRENT), 0);
	drop_pool(pool);
}
EMULATED(pool_keeps_memory_up_to_its_threshold, threshold)
ON_REAL(cuda_pool_keeps_memory_up_to_its_threshold, HOIST__API_CUDA, threshold)

static void limit(void)
{
	struct hoist__dev_pool *pool = make_pool(LIMIT);
	cr_assert_eq(hoist__dev_pool_alloc(pool, 2 * LIMIT, stream, &memory), -ENOSPC);
	SAYS("limited to 67108864 bytes");
	cr_assert_eq(memory, 0);
	OK(hoist__dev_pool_alloc(pool, LIMIT / 2, stream, &memory));
	OK(hoist__dev_pool_free(pool, memory, stream));
	drop_pool(pool);
}
EVERYWHERE(pool_has_a_limit, limit)

static void full(void)
{
	struct hoist__dev_pool *pool = make_pool(0);
	size_t bytes = hoist__dev_props(dev)->total_bytes * 2;
	cr_assert_eq(hoist__dev_pool_alloc(pool, bytes, stream, &memory), -ENOSPC);
	SAYS("MiB are free");
	cr_assert_eq(memory, 0);
	drop_pool(pool);
}
EVERYWHERE(pool_without_a_limit_has_the_devices, full)

static void refusals(void)
{
	uint64_t value = 77;
	struct hoist__dev *cpu = NULL;
	struct hoist__dev_stream *cpus = NULL;
	struct hoist__dev_pool *pool = make_pool(0);
	OK(hoist__dev_get(HOIST__API_CPU, 0, &cpu));
	OK(hoist__dev_stream_create(cpu, &cpus));
	cr_assert_eq(hoist__dev_pool_alloc(pool, BYTES, cpus, &memory), -EINVAL);
	cr_assert_eq(hoist__dev_pool_alloc(pool, 0, stream, &memory), -EINVAL);
	cr_assert_eq(hoist__dev_pool_free(pool, 1, cpus), -EINVAL);
	cr_assert_eq(hoist__dev_pool_set(pool, HOIST__POOL_REUSE_ALLOW_OPPORTUNISTIC, 2), -EINVAL);
	cr_assert_eq(hoist__dev_pool_set(pool, HOIST__POOL_USED_CURRENT, 0), -EINVAL);
	cr_assert_eq(hoist__dev_pool_set(pool, HOIST__POOL_RESERVED_CURRENT, 0), -EINVAL);
	cr_assert_eq(hoist__dev_pool_set(pool, HOIST__POOL_USED_HIGH, 1), -EINVAL);
	cr_assert_eq(hoist__dev_pool_set(pool, HOIST__N_POOL_ATTRIBUTES, 0), -EINVAL);
	cr_assert_eq(hoist__dev_pool_get(pool, HOIST__N_POOL_ATTRIBUTES, &value), -EINVAL);
	cr_assert_eq(value, 77);
	hoist__dev_stream_destroy(cpus);
	drop_pool(pool);
}
EVERYWHERE(pool_refuses_senseless_requests, refusals)

static void current(void)
{
	struct hoist__dev_pool *made = make_pool(0);
	struct hoist__dev_pool *pool = NULL;
	OK(hoist__dev_pool_current(dev, &pool));
	uint64_t before = get(pool, HOIST__POOL_RELEASE_THRESHOLD);
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &memory));
	OK(hoist__fill_async(stream, memory, 1, 1, BYTES));
	OK(hoist__dev_pool_free(pool, memory, stream));
	OK(hoist__dev_stream_synchronize(stream));
	hoist__dev_pool_destroy(pool);
	OK(hoist__dev_pool_current(dev, &pool));
	cr_assert_eq(get(pool, HOIST__POOL_RELEASE_THRESHOLD), before);
	hoist__dev_pool_destroy(pool);
	hoist__dev_pool_destroy(NULL);
	drop_pool(made);
}
EVERYWHERE(pool_of_the_device_stays_its_own, current)

static void captured(void)
{
	struct hoist__dev_stream *other = NULL;
	OK(hoist__dev_stream_create(dev, &other));
	begin_capture(other);
	struct hoist__dev_pool *pool = make_pool(0);
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &memory));
	OK(hoist__dev_pool_free(pool, memory, stream));
	OK(hoist__dev_pool_trim(pool, 0));
	drop_pool(pool);
	int err = hoist__dev_managed_alloc(dev, BYTES, &memory);
	if (err == 0)
		OK(hoist__dev_mem_free(dev, memory, BYTES));
	cr_assert(err == 0 || err == -ENOTSUP, "%s", hoist__error_text());
	cr_assert_eq(end_capture(other), 0, "the capture is whole");
	hoist__dev_stream_destroy(other);
}
EVERYWHERE(pool_breaks_no_capture, captured)

/* --- what only a stand-in can show --- */

static void foreign(void)
{
	uintptr_t pooled = 0;
	struct hoist__dev_pool *pool = make_pool(0);
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	cr_assert_eq(hoist__dev_pool_free(pool, memory, stream), -EREMOTEIO);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &pooled));
	OK(hoist__dev_pool_free(pool, pooled, stream));
	cr_assert_eq(hoist__dev_pool_free(pool, pooled, stream), -EREMOTEIO);
	cr_assert_eq(counters().bad_frees, 2);
	drop_pool(pool);
}
EMULATED(pool_takes_back_each_of_its_blocks_once, foreign)

/* An earlier failure of the stream, "out of memory" too, is not a failure of the free. */
static void freed_on_a_failed_stream(void)
{
	struct hoist__dev_pool *pool = make_pool(0);
	OK(hoist__dev_pool_alloc(pool, BYTES, stream, &memory));
	inject("async:1:2");
	/* From pageable memory it is waited for. */
	cr_assert_neq(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, (uintptr_t)host,
					BYTES),
		      0);
	cr_assert_neq(hoist__dev_pool_free(pool, memory, stream), 0);
	cr_assert_eq(counters().bad_frees, 0);
	cr_assert_eq(counters().live_allocations, 0);
	cr_assert_eq(get(pool, HOIST__POOL_USED_CURRENT), 0);
	control.reset();
	OK(hoist__dev_stream_synchronize(stream));
	drop_pool(pool);
}
EMULATED(pool_takes_back_once_on_a_failed_stream, freed_on_a_failed_stream)

/* A driver from before limits, and one from before the figures. */
static void old_driver(void)
{
	uint64_t value = 0;
	struct hoist__dev_pool *pool = NULL;
	struct hoist__dev_props *props =
		(struct hoist__dev_props *)(uintptr_t)hoist__dev_props(dev);
	bool cuda = is_cuda();
	props->driver_version = cuda ? 12010 : 60200000;
	cr_assert_eq(hoist__dev_pool_create(dev, LIMIT, &pool), -ENOTSUP);
	SAYS("with a limit");
	cr_assert_null(pool);
	pool = make_pool(0);
	cr_assert_eq(get(pool, HOIST__POOL_USED_CURRENT), 0);
	if (cuda) {
		props->driver_version = 11020;
		cr_assert_eq(hoist__dev_pool_get(pool, HOIST__POOL_USED_CURRENT, &value), -ENOTSUP);
		cr_assert_eq(hoist__dev_pool_set(pool, HOIST__POOL_USED_HIGH, 0), -ENOTSUP);
		cr_assert_eq(get(pool, HOIST__POOL_RELEASE_THRESHOLD), UINT64_MAX);
	}
	drop_pool(pool);
}
EMULATED(pool_of_an_old_driver_has_less, old_driver)

/* Every function of managed memory and of pools can be missing or unsupported. */
static void unsupported(void)
{
	bool cuda = is_cuda();
	struct hoist__dev_pool *pool = NULL;
	inject(cuda ? "cuMemAllocManaged:1:801,cuMemPoolCreate:1:801,"
		      "cuDeviceGetMemPool:1:801"
		    : "hipMallocManaged:1:801,hipMemPoolCreate:1:801,"
		      "hipDeviceGetMemPool:1:801");
	cr_assert_eq(hoist__dev_managed_alloc(dev, BYTES, &memory), -ENOTSUP);
	SAYS("managed");
	cr_assert_eq(hoist__dev_pool_create(dev, 0, &pool), -ENOTSUP);
	cr_assert_eq(hoist__dev_pool_current(dev, &pool), -ENOTSUP);
	cr_assert_null(pool);
	inject(cuda ? "cuMemPoolCreate:1" : "hipMemPoolCreate:1");
	cr_assert_eq(hoist__dev_pool_create(dev, 0, &pool), -ENOMEM);
	nothing_is_left("after refusals");
}
EMULATED(features_that_the_device_lacks_are_ENOTSUP, unsupported)

/* A driver from before all of this: hoist's table as loading an old one leaves it. */
static void ancient(void)
{
	struct hoist__dev_pool *pool = NULL;
	bool capturing = true;
	hoist__cuda.cuStreamIsCapturing = NULL;
	hoist__cuda.cuThreadExchangeStreamCaptureMode = NULL;
	hoist__cuda.cuMemAllocManaged = NULL;
	hoist__cuda.cuMemPoolCreate = NULL;
	hoist__hip.hipStreamIsCapturing = NULL;
	hoist__hip.hipThreadExchangeStreamCaptureMode = NULL;
	hoist__hip.hipMallocManaged = NULL;
	hoist__hip.hipMemPoolCreate = NULL;
	cr_assert_eq(hoist__dev_managed_alloc(dev, BYTES, &memory), -ENOTSUP);
	cr_assert_eq(hoist__dev_pool_create(dev, 0, &pool), -ENOTSUP);
	cr_assert_eq(hoist__dev_pool_current(dev, &pool), -ENOTSUP);
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_stream_capturing(stream, &capturing));
	cr_assert_not(capturing);
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	hoist__dev_stream_destroy(stream);
	nothing_is_left("on an old driver");
}
EMULATED(driver_without_pools_and_captures_is_used_without, ancient)

/* Everything once, stopping at the first failure and giving back what it has. */
static int scenario(void)
{
	struct hoist__dev_pool *pool = NULL;
	struct hoist__dev_pool *own = NULL;
	uintptr_t managed_memory = 0;
	uintptr_t pooled = 0;
	uint64_t value = 0;
	int err;
	stream = NULL;
	TRY(hoist__dev_stream_create(dev, &stream));
	TRY(hoist__dev_managed_alloc(dev, BYTES, &managed_memory));
	TRY(hoist__dev_pool_create(dev, LIMIT, &pool));
	TRY(hoist__dev_pool_current(dev, &own));
	TRY(hoist__dev_pool_alloc(pool, BYTES, stream, &pooled));
	TRY(hoist__dev_pool_get(pool, HOIST__POOL_USED_CURRENT, &value));
	TRY(hoist__dev_pool_set(pool, HOIST__POOL_USED_HIGH, 0));
	TRY(hoist__dev_pool_trim(pool, 0));
out:;
	int after = hoist__dev_pool_free(pool, pooled, stream);
	err = err < 0 ? err : after;
	hoist__dev_pool_destroy(own);
	hoist__dev_pool_destroy(pool);
	after = hoist__dev_mem_free(dev, managed_memory, BYTES);
	hoist__dev_stream_destroy(stream);
	return err < 0 ? err : after;
}

static void see_nothing(const char *spec)
{
	(void)spec;
}

static void sweep(void)
{
	OK(scenario());
	sweep_calls(scenario, 20, see_nothing);
	/* A stream that could not be waited for may still be on its way. */
	for (uint64_t until = 0; counters().live_bytes > 0 && patience(&until);)
		continue;
	cr_assert_eq(counters().live_bytes, 0);
}
EMULATED(failure_of_any_call_leaks_nothing, sweep)
