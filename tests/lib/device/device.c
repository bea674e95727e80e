/* SPDX-License-Identifier: MIT */
/* Devices and streams: specs, the messages for wrong ones, interning. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/lib-unit.h"

static void expect_refused(const char *spec, int err, const char *text)
{
	hoist_device *device = NULL;
	REFUSED(hoist_device_open(spec, &device), err, text);
	cr_expect_null(device, "%s", spec);
}

/* proves: S1.01 S1.09 V225 */
Test(device, cpu_is_one_object_under_all_its_names)
{
	hoist_device *cpu = open_device("cpu");
	cr_assert_eq(open_device("cpu:0"), cpu);
	cr_assert_eq(open_device("cpu:000"), cpu);
	cr_assert_str_eq(hoist_device_spec(cpu), "cpu");
}

Test(device, malformed_specs_are_refused)
{
	static const char *const specs[] = {"",	      "cp",	 "cpux",    "CPU",	":0",
					    "cuda:",  "cuda:-1", "cuda: 1", "cuda:1x",	"cuda:+1",
					    "gpus:0", "gpu:",	 "tpu:0",   "cuda:0:0", "cpu "};
	for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
		expect_refused(specs[i], -EINVAL,
			       "names no device; say cpu, cuda:N, hip:N or gpu:N");
	expect_refused(NULL, -EINVAL, "\"\" names no device");
}

/* proves: S1.02 */
Test(device, numbers_beyond_the_last_device_say_how_many_there_are)
{
	expect_refused("cpu:1", -EINVAL, "\"cpu:1\": this machine has 1 CPU device; say cpu:0");
	emulate();
	expect_refused(
		"cuda:2", -EINVAL,
		"\"cuda:2\": this machine has 2 emulated CUDA devices; say cuda:0 to cuda:1");
	expect_refused("gpu:9", -EINVAL,
		       "\"gpu:9\": this machine has 2 emulated CUDA devices; say cuda:0 to cuda:1");
	expect_refused("hip:1", -EINVAL,
		       "\"hip:1\": this machine has 1 emulated HIP device; say hip:0");
	expect_refused("cuda:99999999999999999999", -EINVAL, "has 2 emulated CUDA devices");
	expect_refused("cuda:2147483648", -EINVAL, "has 2 emulated CUDA devices");
}

/* proves: S1.02 */
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

/* proves: S1.02 S1.09 */
Test(device, gpu_is_cuda_before_hip, .init = emulate)
{
	cr_assert_eq(open_device("gpu"), open_device("cuda:0"));
	cr_assert_eq(open_device("gpu:1"), open_device("cuda:1"));
	cr_assert_str_eq(hoist_device_spec(open_device("gpu:1")), "cuda:1");
}

Test(device, gpu_is_hip_where_there_is_no_cuda, .init = emulate)
{
	setenv("HOIST_EMULATE", "hip:1", 1);
	setenv("HOIST_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
	cr_assert_str_eq(hoist_device_spec(open_device("gpu:0")), "hip:0");
}

Test(device, count_is_by_api, .init = emulate)
{
	int n = 0;
	OK(hoist_device_count("cpu", &n));
	cr_assert_eq(n, 1);
	OK(hoist_device_count("cuda", &n));
	cr_assert_eq(n, 2);
	OK(hoist_device_count("hip", &n));
	cr_assert_eq(n, 1);
	cr_assert_eq(hoist_device_count("gpu", &n), -EINVAL);
	REFUSED(hoist_device_count(NULL, &n), -EINVAL, "say cpu, cuda or hip");
}

/* proves: S1.04 S1.05 */
Test(device, info_describes_each, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_device_info info = device_info_of(devices[i]);
		cr_expect_eq(strncmp(lib_specs[i], info.api, strlen(info.api)), 0);
		cr_expect_eq(info.id, i == 2 ? 1 : 0);
		cr_expect_eq(info.is_host, i == 0);
		cr_expect_eq(info.emulated, i != 0);
		cr_expect_neq(info.name[0], '\0');
		cr_expect_neq(info.architecture[0], '\0');
		cr_expect_eq(info.pci[0] == '\0', i == 0);
		cr_expect_geq(info.numa_node, -1);
		cr_expect_gt(info.total_memory, 0);
		cr_expect_str_eq(info.label, i == 0 ? "cpu" : "gpu");
		cr_expect_eq(info.is_compatible, 1);
		cr_expect_eq(info.is_virtual, 0);
		cr_expect_eq(info.driver_version == 0, i == 0);
		cr_expect_eq(info.is_host_unified, i == 0);
		cr_expect_str_eq(hoist_device_spec(devices[i]), lib_specs[i]);
	}
}

Test(device, info_goes_no_further_than_its_size)
{
	hoist_device_info info = {.size = offsetof(hoist_device_info, is_host), .emulated = 77};
	hoist_device *cpu = open_device("cpu");
	OK(hoist_device_get_info(cpu, &info));
	cr_assert_str_eq(info.api, "cpu");
	cr_assert_eq(info.emulated, 77);
	info.size = 0;
	cr_assert_eq(hoist_device_get_info(cpu, &info), -EINVAL);
	info.size = sizeof info + 1;
	cr_assert_eq(hoist_device_get_info(cpu, &info), -EINVAL);
	cr_assert_eq(hoist_device_get_info(NULL, &info), -EINVAL);
}

/* proves: S1.07 */
Test(device, memory_says_how_much_is_free, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		uint64_t free_bytes = 0;
		uint64_t total = 0;
		OK(hoist_device_memory(devices[i], &free_bytes, &total));
		cr_expect_gt(free_bytes, 0);
		cr_expect_geq(total, free_bytes);
	}
}

/* proves: S1.06 V100 */
Test(device, peers_reach_each_other_alike, .init = open_all)
{
	for (int a = 0; a < LIB_N_DEVICES; a++)
		for (int b = 0; b < LIB_N_DEVICES; b++) {
			int one = -1, other = -1;
			OK(hoist_device_can_access(devices[a], devices[b], &one));
			OK(hoist_device_can_access(devices[b], devices[a], &other));
			cr_expect_eq(one, other, "%s, %s", lib_specs[a], lib_specs[b]);
			bool one_api = a == b || (a != 0 && b != 0 && a != 3 && b != 3);
			cr_expect_eq(one, one_api, "%s, %s", lib_specs[a], lib_specs[b]);
		}
	int can = 77;
	cr_expect_eq(hoist_device_can_access(NULL, devices[0], &can), -EINVAL);
	cr_expect_eq(hoist_device_can_access(devices[0], NULL, &can), -EINVAL);
	cr_expect_eq(can, 77);
}

/* proves: V225 */
Test(device, buffers_are_of_the_device_they_were_made_on)
{
	open_all();
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_buffer *buffer = make_buffer(devices[i], HOIST_F32, 1, SHAPE(4), 0);
		for (int k = 0; k < LIB_N_DEVICES; k++)
			cr_expect_eq(hoist_buffer_device(buffer) == devices[k], i == k);
		hoist_buffer_unref(buffer);
		hoist_memory *memory[] = {memory_of(devices[i], HOIST_MEMORY_DEVICE),
					  memory_of(devices[i], HOIST_MEMORY_DEVICE)};
		cr_expect_eq(memory[0], memory[1]);
		hoist_memory_unref(memory[0]);
		hoist_memory_unref(memory[1]);
	}
}

/* proves: S1.02 S1.03 V105 */
Test(device, memory_beyond_the_limit_is_refused_with_the_figures, .init = emulate)
{
	hoist_device *device = NULL, *again = NULL;
	hoist_buffer *buffer = NULL;
	hoist_device_statistics s = {.size = sizeof s};
	hoist_device_options options = {.size = sizeof options, .memory_limit = 100 << 20};
	const int64_t fits = 60 << 20, beyond = 101 << 20, more = 41 << 20;
	OK(hoist_device_open_with("cuda:0", &options, &device));
	options.memory_limit = 1;
	OK(hoist_device_open_with("cuda:0", &options, &again));
	cr_assert_eq(again, device, "the first limit holds");
	/* V105 */
	REFUSED(hoist_buffer_create(device, HOIST_U8, 1, &beyond, 0, &buffer), -ENOSPC,
		"memory limit is 100 MiB: 101 MiB asked, 0 bytes in use, 100 MiB left");
	OK(hoist_buffer_create(device, HOIST_U8, 1, &fits, 0, &buffer));
	hoist_buffer *none = NULL;
	REFUSED(hoist_buffer_create(device, HOIST_U8, 1, &more, 0, &none), -ENOSPC,
		"41 MiB asked, 60 MiB in use, 40 MiB left");
	cr_expect_null(none);
	OK(hoist_device_get_statistics(device, &s));
	cr_expect_eq(s.memory_limit, 100 << 20);
	cr_expect_geq(s.limited, 60 << 20);
	cr_expect_leq(s.limited_peak, 100 << 20);
	/* Pinned memory is outside the limit. */
	hoist_buffer *pinned = NULL;
	int err = hoist_buffer_create(device, HOIST_U8, 1, &beyond, HOIST_BUFFER_PINNED, &pinned);
	cr_expect(err == 0 || err == -EPERM, "%s", hoist_error());
	DROP(pinned, buffer);
}

/* A look while memory is short does not make the limit small. */
Test(device, statistics_do_not_set_the_limit, .init = emulate)
{
	hoist_device *device = NULL;
	hoist_memory *managed = NULL;
	hoist_device_statistics s = {.size = sizeof s};
	hoist_memory_options options = {.size = sizeof options, .kind = HOIST_MEMORY_MANAGED};
	uintptr_t block = 0;
	OK(hoist_device_open("cuda:0", &device));
	options.device = device;
	OK(hoist_memory_create(&options, &managed));
	OK(hoist_memory_alloc(managed, (size_t)512 << 20, 0, &block));
	OK(hoist_device_get_statistics(device, &s));
	const uint64_t before = s.memory_limit;
	OK(hoist_memory_free(managed, block));
	hoist_memory_unref(managed);
	OK(hoist_device_get_statistics(device, &s));
	cr_expect_geq(s.memory_limit, before + (500 << 20));
	const int64_t bytes = 1 << 20;
	hoist_buffer *buffer = make_buffer(device, HOIST_U8, 1, &bytes, 0);
	const uint64_t expected = s.memory_limit;
	OK(hoist_device_get_statistics(device, &s));
	cr_expect_eq(s.memory_limit, expected, "the limit is what was said");
	hoist_buffer_unref(buffer);
	hoist_device_unref(device);
}

/* proves: S1.07 */
Test(device, statistics_count_the_memory_in_use, .init = open_all)
{
	const int64_t bytes = 3 << 20;
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_device_statistics s = {.size = sizeof s};
		OK(hoist_device_get_statistics(devices[i], &s));
		cr_expect(s.used == 0 && s.limited == 0 && s.pinned == 0, "%s", lib_specs[i]);
		cr_expect_eq(s.memory_limit == UINT64_MAX, i == 0, "%s", lib_specs[i]);
		cr_expect(s.free_memory > 0 && s.total_memory >= s.free_memory);
		hoist_buffer *buffer = make_buffer(devices[i], HOIST_U8, 1, &bytes, 0);
		OK(hoist_device_get_statistics(devices[i], &s));
		cr_expect_geq(s.used, (uint64_t)bytes);
		cr_expect_eq(s.limited, i == 0 ? 0 : s.used + s.cached, "%s", lib_specs[i]);
		cr_expect_leq(s.limited, s.memory_limit);
		hoist_buffer_unref(buffer);
		OK(hoist_device_get_statistics(devices[i], &s));
		cr_expect_eq(s.used, 0);
		s.size = 8;
		s.free_memory = 77;
		OK(hoist_device_get_statistics(devices[i], &s));
		cr_expect_eq(s.free_memory, 77);
	}
	hoist_device_statistics s = {.size = 0};
	cr_expect_eq(hoist_device_get_statistics(devices[0], &s), -EINVAL);
	cr_expect_eq(hoist_device_get_statistics(devices[0], NULL), -EINVAL);
	cr_expect_eq(hoist_device_get_statistics(NULL, &s), -EINVAL);
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

Test(device, opening_makes_no_context, .init = emulate)
{
	hoist_device *cuda = open_device("cuda:0");
	(void)device_info_of(cuda);
	cr_assert_eq(lib_counters("cuda").live_contexts, 0);
	uint64_t free_bytes;
	OK(hoist_device_memory(cuda, &free_bytes, &free_bytes));
	cr_assert_eq(lib_counters("cuda").live_contexts, 1);
}

/* proves: S1.08 S1.10 */
Test(stream, default_one_is_shared_and_others_are_not, .init = open_all)
{
	for (int i = 0; i < LIB_N_DEVICES; i++) {
		hoist_stream *first = NULL, *second = NULL, *other = NULL;
		OK(hoist_device_default_stream(devices[i], &first));
		OK(hoist_device_default_stream(devices[i], &second));
		cr_assert_eq(first, second);
		OK(hoist_stream_create(devices[i], &other));
		cr_assert_neq(first, other);
		cr_expect_eq(hoist_stream_device(other), devices[i]);
		cr_expect_eq(hoist_stream_native(other) == NULL, i == 0);
		OK(hoist_stream_synchronize(other));
		cr_expect_eq(hoist_stream_ref(other), other);
		DROP_STREAMS(other, other, first, second);
	}
	hoist_stream_unref(NULL);
	cr_expect_eq(lib_counters("cuda").live_streams, 2);
	cr_expect_eq(lib_counters("hip").live_streams, 1);
}

/* proves: S1.12 */
Test(stream, wraps_native_handles_but_not_on_the_cpu, .init = emulate)
{
	hoist_stream *stream = NULL;
	REFUSED(hoist_stream_wrap(open_device("cpu"), NULL, &stream), -ENOTSUP,
		"wrapping a stream of cpu");
	hoist_device *cuda = open_device("cuda:0");
	hoist_stream *native = make_stream(cuda);
	OK(hoist_stream_wrap(cuda, hoist_stream_native(native), &stream));
	cr_expect_eq(hoist_stream_native(stream), hoist_stream_native(native));
	hoist_stream_unref(stream);
	cr_expect_eq(lib_counters("cuda").live_streams, 1, "the caller's handle is left alone");
	OK(hoist_stream_synchronize(native));
	hoist_stream_unref(native);
}

/* Both drivers have handles for default streams: that of a thread is none to keep. */
/* proves: S1.12 */
Test(stream, wraps_the_default_stream_by_its_handle_but_not_a_threads)
{
	static const char *const specs[] = {"cuda:0", "hip:0"};
	emulate();
	for (int i = 0; i < 2; i++) {
		hoist_device *device = open_device(specs[i]);
		hoist_stream *stream = NULL;
		REFUSED(hoist_stream_wrap(device, (void *)2, &stream), -ENOTSUP,
			"wrap a stream that was made");
		cr_expect_null(stream);
		OK(hoist_stream_wrap(device, (void *)1, &stream));
		cr_expect_null(hoist_stream_native(stream));
		hoist_buffer *b = make_buffer_on(stream, HOIST_U8, 1, SHAPE(4096), 0);
		OK(hoist_buffer_fill_on(b, &(unsigned char){7}, 1, stream));
		OK(hoist_stream_synchronize(stream));
		hoist_buffer_unref(b);
		hoist_stream_unref(stream);
	}
}

Test(stream, null_is_refused)
{
	hoist_stream *stream = NULL;
	cr_expect_eq(hoist_stream_create(NULL, &stream), -EINVAL);
	cr_expect_eq(hoist_stream_wrap(NULL, NULL, &stream), -EINVAL);
	cr_expect_eq(hoist_stream_synchronize(NULL), -EINVAL);
	cr_expect_eq(hoist_device_default_stream(NULL, &stream), -EINVAL);
	cr_expect_eq(hoist_device_memory(NULL, NULL, NULL), -EINVAL);
	cr_expect_null(stream);
}

Test(version, is_the_packages)
{
	cr_assert_str_eq(hoist_version(), PACKAGE_VERSION);
}
