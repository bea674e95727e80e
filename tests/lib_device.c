/* SPDX-License-Identifier: MIT */
/* Devices, streams and budgets: specs, what is said of wrong ones, interning. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "hoist/hoist.h"
#include "lib/objects.h"
#include "tests/lib-support.h"

static hoist_device *open_device(const char *spec)
{
	hoist_device *device = NULL;
	cr_assert_eq(hoist_device_open(spec, &device), 0, "%s: %s", spec, hoist_error());
	return device;
}

static void expect_refused(const char *spec, int err, const char *text)
{
	hoist_device *device = NULL;
	int got = hoist_device_open(spec, &device);
	cr_expect_eq(got, err, "%s: %d", spec, got);
	cr_expect_null(device);
	cr_expect_not_null(strstr(hoist_error(), text), "%s: %s", spec, hoist_error());
}

static void emulate(void)
{
	if (!lib_emulate())
		cr_skip_test("the emulators are not built");
}

Test(device, cpu_is_one_object_under_all_its_names)
{
	hoist_device *cpu = open_device("cpu");
	cr_assert_eq(open_device("cpu:0"), cpu);
	cr_assert_eq(open_device("cpu:000"), cpu);
	cr_assert_str_eq(hoist_device_spec(cpu), "cpu");
}

Test(device, what_is_no_spec_is_refused)
{
	static const char *const specs[] = {"",	      "cp",	 "cpux",    "CPU",	":0",
					    "cuda:",  "cuda:-1", "cuda: 1", "cuda:1x",	"cuda:+1",
					    "gpus:0", "gpu:",	 "tpu:0",   "cuda:0:0", "cpu "};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
		expect_refused(specs[i], -EINVAL,
			       "names no device; say cpu, cuda:N, hip:N or gpu:N");
	expect_refused(NULL, -EINVAL, "\"\" names no device");
}

Test(device, numbers_beyond_the_last_device_say_how_many_there_are)
{
	expect_refused("cpu:1", -EINVAL, "\"cpu:1\": this machine has 1 CPU device (0)");
	emulate();
	expect_refused("cuda:2", -EINVAL,
		       "\"cuda:2\": this machine has 2 emulated CUDA devices (0..1)");
	expect_refused("gpu:9", -EINVAL,
		       "\"gpu:9\": this machine has 2 emulated CUDA devices (0..1)");
	expect_refused("hip:1", -EINVAL, "\"hip:1\": this machine has 1 emulated HIP device (0)");
	expect_refused("cuda:99999999999999999999", -EINVAL, "has 2 emulated CUDA devices");
	expect_refused("cuda:2147483648", -EINVAL, "has 2 emulated CUDA devices");
}

Test(device, without_a_driver_the_reason_is_given)
{
	setenv("HOIST_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
	setenv("HOIST_HIP_LIBRARY", "/nowhere/libhip.so", 1);
	expect_refused("cuda:0", -ENODEV, "\"cuda:0\": CUDA");
	expect_refused("hip", -ENODEV, "/nowhere/libhip.so");
	expect_refused("gpu:0", -ENODEV, "neither API has a device; CUDA: no driver library");
	expect_refused("gpu", -ENODEV, "; HIP: no driver library");
	int n = 77;
	cr_expect_eq(hoist_device_count("cuda", &n), -ENODEV);
	cr_expect_eq(n, 77);
}

Test(device, gpu_is_cuda_before_hip)
{
	emulate();
	cr_assert_eq(open_device("gpu"), open_device("cuda:0"));
	cr_assert_eq(open_device("gpu:1"), open_device("cuda:1"));
	cr_assert_str_eq(hoist_device_spec(open_device("gpu:1")), "cuda:1");
}

Test(device, gpu_is_hip_where_there_is_no_cuda)
{
	emulate();
	setenv("HOIST_EMULATE", "hip:1", 1);
	setenv("HOIST_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
	cr_assert_str_eq(hoist_device_spec(open_device("gpu:0")), "hip:0");
}

Test(device, count_is_by_api)
{
	emulate();
	int n = 0;
	cr_assert_eq(hoist_device_count("cpu", &n), 0);
	cr_assert_eq(n, 1);
	cr_assert_eq(hoist_device_count("cuda", &n), 0);
	cr_assert_eq(n, 2);
	cr_assert_eq(hoist_device_count("hip", &n), 0);
	cr_assert_eq(n, 1);
	cr_assert_eq(hoist_device_count("gpu", &n), -EINVAL);
	cr_assert_eq(hoist_device_count(NULL, &n), -EINVAL);
	cr_assert_not_null(strstr(hoist_error(), "say cpu, cuda or hip"));
}

Test(device, info_describes_each)
{
	emulate();
	hoist_device *devices[LIB_N_DEVICES];
	lib_open_all(devices);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_device_info info = {.size = sizeof info};
		cr_assert_eq(hoist_device_get_info(devices[i], &info), 0);
		cr_expect_eq(strncmp(lib_specs[i], info.api, strlen(info.api)), 0);
		cr_expect_eq(info.id, i == 2 ? 1 : 0);
		cr_expect_eq(info.is_host, i == 0);
		cr_expect_eq(info.emulated, i != 0);
		cr_expect_neq(info.name[0], '\0');
		cr_expect_neq(info.architecture[0], '\0');
		cr_expect_eq(info.pci[0] == '\0', i == 0);
		cr_expect_geq(info.numa_node, -1);
		cr_expect_gt(info.total_memory, 0);
		cr_expect_str_eq(hoist_device_spec(devices[i]), lib_specs[i]);
	}
}

Test(device, info_goes_no_further_than_its_size)
{
	hoist_device_info info = {.size = offsetof(hoist_device_info, is_host), .emulated = 77};
	hoist_device *cpu = open_device("cpu");
	cr_assert_eq(hoist_device_get_info(cpu, &info), 0);
	cr_assert_str_eq(info.api, "cpu");
	cr_assert_eq(info.emulated, 77);
	info.size = 0;
	cr_assert_eq(hoist_device_get_info(cpu, &info), -EINVAL);
	info.size = sizeof info + 1;
	cr_assert_eq(hoist_device_get_info(cpu, &info), -EINVAL);
	cr_assert_eq(hoist_device_get_info(NULL, &info), -EINVAL);
}

Test(device, memory_says_how_much_is_free)
{
	emulate();
	hoist_device *devices[LIB_N_DEVICES];
	lib_open_all(devices);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		uint64_t free_bytes = 0;
		uint64_t total = 0;
		cr_assert_eq(hoist_device_memory(devices[i], &free_bytes, &total), 0);
		cr_expect_gt(free_bytes, 0);
		cr_expect_geq(total, free_bytes);
	}
}

Test(device, unref_too_often_does_no_harm)
{
	hoist_device *cpu = open_device("cpu");
	cr_assert_eq(hoist_device_ref(cpu), cpu);
	for (int i = 0; i < 10; i++)
		hoist_device_unref(cpu);
	hoist_device_unref(NULL);
	cr_assert_str_eq(hoist_device_spec(cpu), "cpu");
	cr_assert_eq(open_device("cpu"), cpu);
}

Test(device, opening_makes_no_context)
{
	emulate();
	hoist_device *cuda = open_device("cuda:0");
	hoist_device_info info = {.size = sizeof info};
	cr_assert_eq(hoist_device_get_info(cuda, &info), 0);
	cr_assert_eq(lib_counters("cuda").live_contexts, 0);
	uint64_t free_bytes;
	cr_assert_eq(hoist_device_memory(cuda, &free_bytes, &free_bytes), 0);
	cr_assert_eq(lib_counters("cuda").live_contexts, 1);
}

Test(device, pools_are_made_once_and_of_their_kinds)
{
	emulate();
	hoist_device *devices[LIB_N_DEVICES];
	lib_open_all(devices);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		struct hoist__pool *memory[2], *pinned[2], *staging[2];
		for (int k = 0; k < 2; k++) {
			cr_assert_eq(hoist__device_pool(devices[i], &memory[k]), 0);
			cr_assert_eq(hoist__device_pinned_pool(devices[i], &pinned[k]), 0);
			cr_assert_eq(hoist__device_staging_pool(devices[i], &staging[k]), 0);
		}
		cr_assert_eq(memory[0], memory[1]);
		cr_assert_eq(pinned[0], pinned[1]);
		cr_assert_eq(staging[0], staging[1]);
		cr_expect_eq(hoist__pool_options_of(memory[0])->kind,
			     i == 0 ? HOIST__MEMORY_HOST : HOIST__MEMORY_DEVICE);
		cr_expect_eq(hoist__pool_options_of(pinned[0])->kind, HOIST__MEMORY_PINNED);
		cr_expect_eq(hoist__pool_options_of(staging[0])->kind, HOIST__MEMORY_PINNED);
	}
}

Test(device, staging_regions_are_exact_and_kept)
{
	emulate();
	struct hoist__pool *pool;
	cr_assert_eq(hoist__device_staging_pool(open_device("cuda:0"), &pool), 0);
	const size_t bytes = (size_t)128 << 10;
	uintptr_t block;
	struct hoist__pool_stats stats;
	for (int round = 0; round < 2; round++) {
		cr_assert_eq(hoist__pool_alloc(pool, bytes, 4096, 0, &block), 0, "%s",
			     hoist_error());
		hoist__pool_stats(pool, &stats);
		cr_expect_eq(stats.reserved_bytes, bytes);
		cr_assert_eq(hoist__pool_free(pool, block), 0);
		hoist__pool_stats(pool, &stats);
		cr_expect_eq(stats.reserved_bytes, bytes);
	}
	cr_expect_eq(lib_counters("cuda").live_registered_bytes, bytes);
}

Test(stream, default_one_is_shared_and_others_are_not)
{
	emulate();
	hoist_device *devices[LIB_N_DEVICES];
	lib_open_all(devices);
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_stream *first = NULL, *second = NULL, *other = NULL;
		cr_assert_eq(hoist_device_default_stream(devices[i], &first), 0);
		cr_assert_eq(hoist_device_default_stream(devices[i], &second), 0);
		cr_assert_eq(first, second);
		cr_assert_eq(hoist_stream_create(devices[i], &other), 0);
		cr_assert_neq(first, other);
		cr_expect_eq(hoist_stream_device(other), devices[i]);
		cr_expect_eq(hoist_stream_native(other) == NULL, i == 0);
		cr_expect_eq(hoist_stream_synchronize(other), 0);
		cr_expect_eq(hoist_stream_ref(other), other);
		hoist_stream_unref(other);
		hoist_stream_unref(other);
		hoist_stream_unref(first);
		hoist_stream_unref(second);
	}
	hoist_stream_unref(NULL);
	cr_expect_eq(lib_counters("cuda").live_streams, 2);
	cr_expect_eq(lib_counters("hip").live_streams, 1);
}

Test(stream, wraps_native_handles_but_not_on_the_cpu)
{
	emulate();
	hoist_stream *stream = NULL;
	cr_expect_eq(hoist_stream_wrap(open_device("cpu"), NULL, &stream), -ENOTSUP);
	cr_expect_not_null(strstr(hoist_error(), "wrapping a stream of cpu"));
	hoist_device *cuda = open_device("cuda:0");
	hoist_stream *native = NULL;
	cr_assert_eq(hoist_stream_create(cuda, &native), 0);
	cr_assert_eq(hoist_stream_wrap(cuda, hoist_stream_native(native), &stream), 0);
	cr_expect_eq(hoist_stream_native(stream), hoist_stream_native(native));
	hoist_stream_unref(stream);
	cr_expect_eq(lib_counters("cuda").live_streams, 1, "the caller's handle is left alone");
	cr_expect_eq(hoist_stream_synchronize(native), 0);
	hoist_stream_unref(native);
}

Test(stream, what_is_null_is_refused)
{
	hoist_stream *stream = NULL;
	cr_expect_eq(hoist_stream_create(NULL, &stream), -EINVAL);
	cr_expect_eq(hoist_stream_wrap(NULL, NULL, &stream), -EINVAL);
	cr_expect_eq(hoist_stream_synchronize(NULL), -EINVAL);
	cr_expect_eq(hoist_device_default_stream(NULL, &stream), -EINVAL);
	cr_expect_eq(hoist_device_memory(NULL, NULL, NULL), -EINVAL);
	cr_expect_null(stream);
}

Test(budget, wraps_the_one_below)
{
	hoist_budget *budget = NULL;
	cr_assert_eq(hoist_budget_create(0, &budget), -EINVAL);
	cr_assert_null(budget);
	cr_assert_eq(hoist_budget_create(100, &budget), 0);
	cr_assert_eq(hoist_budget_ref(budget), budget);
	cr_assert_eq(hoist__budget_limit(hoist__budget_of(budget)), 100);
	cr_assert_eq(hoist__budget_acquire(hoist__budget_of(budget), 60), 0);
	cr_assert_eq(hoist_budget_used(budget), 60);
	hoist__budget_release(hoist__budget_of(budget), 60);
	hoist_budget_unref(budget);
	cr_assert_eq(hoist_budget_used(budget), 0);
	cr_assert_eq(hoist_budget_peak(budget), 60);
	hoist_budget_unref(budget);
	hoist_budget_unref(NULL);
}

Test(version, is_the_packages)
{
	cr_assert_str_eq(hoist_version(), PACKAGE_VERSION);
}
