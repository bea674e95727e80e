/* SPDX-License-Identifier: MIT */
/* Memory, streams, events and copies of every driver: see device-driver.h. */
#include "config.h"

#define SUITE device_driver

#include "base/checked.h"
#include "tests/support/device-driver.h"

static void fill(unsigned char *bytes, unsigned seed)
{
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 11);
}

/* --- properties --- */

static void properties(void)
{
	const struct hoist__dev_props *props = hoist__dev_props(dev);
	enum hoist__api api = hoist__dev_api(dev);
	struct hoist__dev *again = NULL;
	unsigned part;
	int count = 0;
	OK(hoist__dev_count(api, &count));
	cr_assert_geq(count, 1);
	OK(hoist__dev_get(api, 0, &again));
	cr_assert_eq(again, dev);
	cr_assert_eq(hoist__dev_get(api, count, &again), -EINVAL);
	cr_assert_not_null(strstr(hoist__error_text(), "there is no device"));
	cr_assert_eq(again, dev);
	cr_assert_str_not_empty(props->name);
	cr_assert_eq(strncmp(props->architecture, api == HOIST__API_CUDA ? "sm_" : "gfx", 3), 0);
	cr_assert_gt(strlen(props->architecture), 3, "%s", props->architecture);
	cr_assert_null(strchr(props->architecture, ':'));
	cr_assert_eq(sscanf(props->pci, "%x:%x:%x.%x", &part, &part, &part, &part), 4, "%s",
		     props->pci);
	cr_assert_gt(props->total_bytes, BYTES);
	cr_assert_gt(props->driver_version, 0);
	cr_assert_geq(props->numa_node, -1);
	cr_assert_eq(props->emulated, hoist__api_emulated(api));
	cr_assert_str_not_empty(hoist__api_library(api));
}
EVERYWHERE(device_has_properties, properties)

/* --- memory --- */

static void device_memory(void)
{
	uint64_t before = 0;
	uint64_t after = 0;
	uint64_t total = 0;
	uintptr_t memory = 0;
	OK(hoist__dev_mem_info(dev, &before, &total));
	cr_assert_leq(before, total);
	OK(hoist__dev_mem_alloc(dev, 64 * BYTES, &memory));
	cr_assert_eq(memory % 256, 0);
	OK(hoist__dev_mem_info(dev, &after, &total));
	cr_assert_lt(after, before);
	OK(hoist__dev_mem_free(dev, memory, 64 * BYTES));
	OK(hoist__dev_mem_free(dev, 0, 1));
	cr_assert_eq(hoist__dev_mem_alloc(dev, 0, &memory), -EINVAL);
}
EVERYWHERE(memory_is_given_and_taken_back, device_memory)

static void device_memory_full(void)
{
	uintptr_t memory = 0;
	size_t bytes = hoist__dev_props(dev)->total_bytes * 2;
	cr_assert_eq(hoist__dev_mem_alloc(dev, bytes, &memory), -ENOSPC);
	cr_assert_eq(memory, 0);
	cr_assert_not_null(strstr(hoist__error_text(), "device memory is exhausted"));
	cr_assert_not_null(strstr(hoist__error_text(), "MiB are free"), "%s", hoist__error_text());
}
EVERYWHERE(memory_that_is_exhausted_is_ENOSPC, device_memory_full)

static void host_registration(void)
{
	uintptr_t seen = 0;
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_host_address(dev, host + 4096, &seen));
	cr_assert_neq(seen, 0);
	cr_assert_eq(hoist__dev_host_register(dev, host, BYTES), -EREMOTEIO);
	cr_assert_not_null(strstr(hoist__error_text(), "page-locking 4194304 bytes"));
	OK(hoist__dev_host_unregister(dev, host, BYTES));
	cr_assert_eq(hoist__dev_host_unregister(dev, host, BYTES), -EREMOTEIO);
	cr_assert_not_null(strstr(hoist__error_text(), "unregistering host memory"));
	cr_assert_eq(hoist__dev_host_register(dev, NULL, BYTES), -EINVAL);
}
EVERYWHERE(host_memory_is_registered_once, host_registration)

/* --- streams and copies --- */

/* Host -> device -> elsewhere on the device at an odd address -> host. */
static void copies_on(struct hoist__dev_stream *stream)
{
	size_t half = BYTES / 2 - 1;
	uintptr_t memory = 0;
	struct hoist__dev_event *event = NULL;
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	OK(hoist__dev_event_create(dev, 0, &event));
	fill(host, 1);
	unsigned char *expected = malloc(half);
	cr_assert_not_null(expected);
	memcpy(expected, host, half);
	OK(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, (uintptr_t)host, half));
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_DEVICE, memory + half + 1, memory,
			     half));
	OK(hoist__fill_async(stream, memory + half + 1, 0x5a, 1, 3));
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host + half,
			     memory + half + 1, half));
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, 0, 0, 0));
	OK(hoist__dev_event_record(event, stream));
	OK(hoist__dev_event_synchronize(event));
	OK(hoist__dev_event_query(event));
	OK(hoist__dev_stream_query(stream));
	memset(expected, 0x5a, 3);
	cr_assert_eq(memcmp(host + half, expected, half), 0);
	free(expected);
	hoist__dev_event_destroy(event);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	OK(hoist__dev_host_unregister(dev, host, BYTES));
}

static void copies(void)
{
	struct hoist__dev_stream *stream = NULL;
	OK(hoist__dev_stream_create(dev, &stream));
	cr_assert_not_null(hoist__dev_stream_native(stream));
	cr_assert_eq(hoist__dev_stream_dev(stream), dev);
	copies_on(stream);
	hoist__dev_stream_destroy(stream);
}
EVERYWHERE(bytes_survive_copies_in_every_direction, copies)

static void wrapped(void)
{
	struct hoist__dev_stream *own = NULL;
	struct hoist__dev_stream *stream = NULL;
	OK(hoist__dev_stream_wrap(dev, NULL, &stream));
	cr_assert_null(hoist__dev_stream_native(stream));
	copies_on(stream);
	hoist__dev_stream_destroy(stream);
	OK(hoist__dev_stream_create(dev, &own));
	OK(hoist__dev_stream_wrap(dev, hoist__dev_stream_native(own), &stream));
	copies_on(stream);
	hoist__dev_stream_destroy(stream);
	/* The native stream is still there. */
	copies_on(own);
	hoist__dev_stream_destroy(own);
}
EVERYWHERE(streams_of_others_can_be_used, wrapped)

/* What one stream wrote, another reads only behind the event. */
static void ordering(void)
{
	struct hoist__dev_stream *writer = NULL;
	struct hoist__dev_stream *reader = NULL;
	struct hoist__dev_event *written = NULL;
	uintptr_t memory = 0;
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	OK(hoist__dev_stream_create(dev, &writer));
	OK(hoist__dev_stream_create(dev, &reader));
	OK(hoist__dev_event_create(dev, 0, &written));
	OK(hoist__dev_event_query(written));
	OK(hoist__dev_stream_wait_event(reader, written));
	for (unsigned round = 1; round <= 5; round++) {
		OK(hoist__fill_async(writer, memory, (unsigned char)round, 1, BYTES));
		OK(hoist__dev_event_record(written, writer));
		OK(hoist__dev_stream_wait_event(reader, written));
		OK(hoist__copy_async(reader, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host, memory,
				     BYTES));
		OK(hoist__dev_stream_synchronize(reader));
		cr_assert_eq(host[0], round);
		cr_assert_eq(host[BYTES - 1], round);
	}
	hoist__dev_event_destroy(written);
	hoist__dev_stream_destroy(reader);
	hoist__dev_stream_destroy(writer);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	OK(hoist__dev_host_unregister(dev, host, BYTES));
}
EVERYWHERE(streams_wait_for_each_others_events, ordering)

static void timing(void)
{
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_event *start = NULL;
	struct hoist__dev_event *end = NULL;
	struct hoist__dev_event *plain = NULL;
	uint64_t ns = 77;
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_event_create(dev, HOIST__EVENT_TIMING, &start));
	OK(hoist__dev_event_create(dev, HOIST__EVENT_TIMING, &end));
	OK(hoist__dev_event_create(dev, 0, &plain));
	cr_assert_eq(hoist__dev_event_elapsed_ns(start, end, &ns), -EINVAL);
	uintptr_t memory = 0;
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	OK(hoist__dev_event_record(start, stream));
	OK(hoist__dev_event_record(plain, stream));
	for (int i = 0; i < 10; i++)
		OK(hoist__fill_async(stream, memory, 1, 1, BYTES));
	OK(hoist__dev_event_record(end, stream));
	OK(hoist__dev_event_synchronize(end));
	cr_assert_eq(hoist__dev_event_elapsed_ns(plain, end, &ns), -EINVAL);
	cr_assert_eq(ns, 77);
	OK(hoist__dev_event_elapsed_ns(start, end, &ns));
	cr_assert_gt(ns, 0);
	cr_assert_lt(ns, UINT64_C(10000000000));
	hoist__dev_event_destroy(plain);
	hoist__dev_event_destroy(end);
	hoist__dev_event_destroy(start);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	hoist__dev_stream_destroy(stream);
}
EVERYWHERE(events_tell_the_time_between_them, timing)

static void peers(void)
{
	struct hoist__dev *other = NULL;
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_event *event = NULL;
	uintptr_t here = 0;
	uintptr_t there = 0;
	int count = 0;
	OK(hoist__dev_count(hoist__dev_api(dev), &count));
	if (count < 2)
		cr_skip_test("there is one device only");
	OK(hoist__dev_get(hoist__dev_api(dev), 1, &other));
	cr_assert_neq(other, dev);
	cr_assert_str_neq(hoist__dev_props(other)->pci, hoist__dev_props(dev)->pci);
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_mem_alloc(dev, BYTES, &here));
	OK(hoist__dev_mem_alloc(other, BYTES, &there));
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_event_create(other, 0, &event));
	cr_assert_eq(hoist__dev_event_record(event, stream), -EINVAL);
	OK(hoist__fill_async(stream, here, 0x77, 1, BYTES));
	OK(hoist__copy_peer_async(stream, other, there, dev, here, BYTES));
	OK(hoist__fill_async(stream, here, 0, 1, BYTES));
	OK(hoist__copy_peer_async(stream, dev, here, other, there, BYTES - 1));
	OK(hoist__copy_async(stream, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)host, here, BYTES));
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(host[0], 0x77);
	cr_assert_eq(host[BYTES - 2], 0x77);
	cr_assert_eq(host[BYTES - 1], 0);
	hoist__dev_event_destroy(event);
	hoist__dev_stream_destroy(stream);
	OK(hoist__dev_mem_free(other, there, BYTES));
	OK(hoist__dev_mem_free(dev, here, BYTES));
	OK(hoist__dev_host_unregister(dev, host, BYTES));
}
EVERYWHERE(bytes_move_between_devices, peers)

/* --- captures --- */

/* While a stream captures a graph, all that hoist may do elsewhere leaves it whole. */
static void capture(void)
{
	struct hoist__dev_stream *other = NULL;
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_event *event = NULL;
	uintptr_t memory = 0;
	bool capturing = true;
	OK(hoist__dev_stream_create(dev, &other));
	OK(hoist__dev_stream_wrap(dev, hoist__dev_stream_native(other), &stream));
	OK(hoist__dev_stream_capturing(stream, &capturing));
	cr_assert_not(capturing);
	begin_capture(other);
	OK(hoist__dev_stream_capturing(stream, &capturing));
	cr_assert(capturing);
	hoist__dev_stream_destroy(stream); /* waits for what it wraps, but not now */
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_stream_capturing(stream, &capturing));
	cr_assert_not(capturing);
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_event_create(dev, 0, &event));
	OK(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, (uintptr_t)host, BYTES));
	OK(hoist__dev_event_record(event, stream));
	OK(hoist__dev_event_synchronize(event));
	OK(hoist__dev_event_query(event));
	OK(hoist__dev_stream_synchronize(stream));
	OK(hoist__dev_stream_query(stream));
	OK(hoist__dev_host_unregister(dev, host, BYTES));
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	hoist__dev_event_destroy(event);
	hoist__dev_stream_destroy(stream);
	cr_assert_eq(end_capture(other), 0, "the capture is whole");
	OK(hoist__dev_stream_capturing(other, &capturing));
	cr_assert_not(capturing);
	hoist__dev_stream_destroy(other);
}
EVERYWHERE(capture_elsewhere_stays_whole, capture)

/* --- the caller's state --- */

static void cuda_context(void)
{
	hoist__cu_result (*current)(hoist__cu_context *);
	hoist__cu_result (*push)(hoist__cu_context);
	hoist__cu_result (*pop)(hoist__cu_context *);
	hoist__cu_result (*retain)(hoist__cu_context *, hoist__cu_device);
	hoist__cu_context context = NULL;
	hoist__cu_context mine = NULL;
	find(HOIST__API_CUDA, "cuCtxGetCurrent", &current);
	find(HOIST__API_CUDA, "cuCtxPushCurrent_v2", &push);
	find(HOIST__API_CUDA, "cuCtxPopCurrent_v2", &pop);
	find(HOIST__API_CUDA, "cuDevicePrimaryCtxRetain", &retain);
	copies();
	cr_assert_eq(current(&context), 0);
	cr_assert_null(context);
	/* The primary context itself, and a foreign one where there is a second. */
	for (int ordinal = 0; ordinal < 2; ordinal++) {
		if (retain(&mine, ordinal) != 0)
			continue;
		cr_assert_eq(push(mine), 0);
		copies();
		cr_assert_eq(current(&context), 0);
		cr_assert_eq(context, mine);
		cr_assert_eq(pop(&context), 0);
		cr_assert_eq(context, mine);
		cr_assert_eq(current(&context), 0);
		cr_assert_null(context);
	}
}
ON_EMULATED(cuda_callers_context_is_kept, HOIST__API_CUDA, cuda_context)
ON_REAL(cuda_callers_context_is_kept, HOIST__API_CUDA, cuda_context)

/* Popping may fail before it was done, or say what earlier work failed with after
 * it: in both cases one context goes, ours. */
static void cuda_context_after_failure(void)
{
	static const char *const specs[] = {"cuCtxPopCurrent:1", "cuCtxPopCurrent:1:700"};
	hoist__cu_result (*current)(hoist__cu_context *);
	hoist__cu_result (*push)(hoist__cu_context);
	hoist__cu_result (*pop)(hoist__cu_context *);
	hoist__cu_result (*retain)(hoist__cu_context *, hoist__cu_device);
	int (*fail)(const char *);
	find(HOIST__API_CUDA, "cuCtxGetCurrent", &current);
	find(HOIST__API_CUDA, "cuCtxPushCurrent_v2", &push);
	find(HOIST__API_CUDA, "cuCtxPopCurrent_v2", &pop);
	find(HOIST__API_CUDA, "cuDevicePrimaryCtxRetain", &retain);
	find(HOIST__API_CUDA, "hoist_emulator_fail", &fail);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(specs); i++) {
		hoist__cu_context context = NULL;
		hoist__cu_context mine = NULL;
		uint64_t available = 0;
		uint64_t total = 0;
		cr_assert_eq(retain(&mine, 1), 0);
		cr_assert_eq(push(mine), 0);
		cr_assert_eq(fail(specs[i]), 0);
		OK(hoist__dev_mem_info(dev, &available, &total));
		cr_assert_eq(current(&context), 0);
		cr_assert_eq(context, mine, "%s", specs[i]);
		cr_assert_eq(pop(&context), 0);
		cr_assert_eq(current(&context), 0);
		cr_assert_null(context, "%s", specs[i]);
	}
}
ON_EMULATED(cuda_callers_context_outlives_failures, HOIST__API_CUDA, cuda_context_after_failure)

static void hip_device(void)
{
	hoist__hip_error (*set)(int);
	hoist__hip_error (*get)(int *);
	hoist__hip_error (*last)(void);
	int count = 0;
	int current = -1;
	find(HOIST__API_HIP, "hipSetDevice", &set);
	find(HOIST__API_HIP, "hipGetDevice", &get);
	find(HOIST__API_HIP, "hipGetLastError", &last);
	OK(hoist__dev_count(HOIST__API_HIP, &count));
	cr_assert_eq(set(count - 1), 0);
	copies();
	uintptr_t memory = 0;
	cr_assert_eq(hoist__dev_mem_alloc(dev, hoist__dev_props(dev)->total_bytes * 2, &memory),
		     -ENOSPC);
	cr_assert_eq(get(&current), 0);
	cr_assert_eq(current, count - 1);
	cr_assert_eq(last(), 0);
}
ON_EMULATED(hip_callers_device_and_last_error_are_kept, HOIST__API_HIP, hip_device)
ON_REAL(hip_callers_device_and_last_error_are_kept, HOIST__API_HIP, hip_device)

/* --- what only a stand-in can show --- */

static void lazy_context(void)
{
	uint64_t available = 0;
	uint64_t total = 0;
	cr_assert_eq(counters().live_contexts, 0);
	(void)hoist__dev_props(dev);
	cr_assert_eq(counters().live_contexts, 0);
	OK(hoist__dev_mem_info(dev, &available, &total));
	OK(hoist__dev_mem_info(dev, &available, &total));
	cr_assert_eq(counters().live_contexts, hoist__dev_api(dev) == HOIST__API_CUDA ? 1 : 0);
}
EMULATED(context_is_made_at_the_first_need, lazy_context)

static void lateness(void)
{
	void (*hold)(int);
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_event *event = NULL;
	uintptr_t memory = 0;
	uint64_t ns = 0;
	find(hoist__dev_api(dev), "hoist_emulator_hold", &hold);
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_event_create(dev, HOIST__EVENT_TIMING, &event));
	hold(1);
	OK(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, (uintptr_t)host, BYTES));
	OK(hoist__dev_event_record(event, stream));
	cr_assert_eq(hoist__dev_stream_query(stream), -EAGAIN);
	cr_assert_eq(hoist__dev_event_query(event), -EAGAIN);
	cr_assert_eq(hoist__dev_event_elapsed_ns(event, event, &ns), -EAGAIN);
	hold(0);
	/* A stream ends only when its work has. */
	hoist__dev_stream_destroy(stream);
	OK(hoist__dev_event_query(event));
	cr_assert_eq(counters().pageable_copies, 0);
	hoist__dev_event_destroy(event);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	OK(hoist__dev_host_unregister(dev, host, BYTES));
	nothing_is_left("after late work");
}
EMULATED(work_in_flight_is_EAGAIN, lateness)

static void failed_work(void)
{
	int (*inject)(const char *);
	struct hoist__dev_stream *stream = NULL;
	uintptr_t memory = 0;
	find(hoist__dev_api(dev), "hoist_emulator_fail", &inject);
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	OK(hoist__dev_stream_create(dev, &stream));
	cr_assert_eq(inject("async:1"), 0);
	OK(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, (uintptr_t)host, BYTES));
	cr_assert_eq(hoist__dev_stream_synchronize(stream), -EREMOTEIO);
	cr_assert_not_null(strcasestr(hoist__error_text(), "illegal"), "%s", hoist__error_text());
	hoist__dev_stream_destroy(stream);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	OK(hoist__dev_host_unregister(dev, host, BYTES));
	nothing_is_left("after failed work");
}
EMULATED(work_that_fails_is_told_when_it_is_waited_for, failed_work)

static uint64_t calls_of(const char *cuda, const char *hip)
{
	uint64_t (*calls)(const char *function);
	find(hoist__dev_api(dev), "hoist_emulator_calls", &calls);
	return calls(hoist__dev_api(dev) == HOIST__API_CUDA ? cuda : hip);
}

static uint64_t n_asked(void)
{
	return calls_of("cuEventQuery", "hipEventQuery") +
	       calls_of("cuEventSynchronize", "hipEventSynchronize");
}

static void destroy_native(void *native)
{
	unsigned (*destroy)(void *);
	find(hoist__dev_api(dev),
	     hoist__dev_api(dev) == HOIST__API_CUDA ? "cuStreamDestroy_v2" : "hipStreamDestroy",
	     &destroy);
	cr_assert_eq(destroy(native), 0);
}

/* Since ROCm 6.2 asking an event reads the stream that it was recorded on. */
static void events_of_the_gone(void)
{
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_stream *later = NULL;
	struct hoist__dev_event *event = NULL;
	uintptr_t memory = 0;
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
	OK(hoist__dev_event_create(dev, 0, &event));
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__fill_async(stream, memory, 1, 1, BYTES));
	OK(hoist__dev_event_record(event, stream));
	hoist__dev_stream_destroy(stream);
	uint64_t asked = n_asked();
	OK(hoist__dev_stream_create(dev, &later));
	OK(hoist__dev_event_query(event));
	OK(hoist__dev_event_synchronize(event));
	OK(hoist__dev_stream_wait_event(later, event));
	cr_expect_eq(n_asked(), asked, "no driver is asked");
	/* Recorded elsewhere it is that stream's. */
	OK(hoist__fill_async(later, memory, 2, 1, BYTES));
	OK(hoist__dev_event_record(event, later));
	OK(hoist__dev_event_synchronize(event));
	cr_expect_eq(n_asked(), asked + 1);
	hoist__dev_stream_destroy(later);
	hoist__dev_event_destroy(event);
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	cr_expect_eq(counters().use_after_free, 0);
	nothing_is_left("after events of streams that are gone");
}
EMULATED(events_outlive_their_stream, events_of_the_gone)

/* A stream that captures cannot be waited for: a wait for the device tells of its events. */
static void lost_events(void)
{
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_stream *other = NULL;
	struct hoist__dev_event *event = NULL;
	OK(hoist__dev_event_create(dev, 0, &event));
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_stream_create(dev, &other));
	OK(hoist__dev_event_record(event, stream));
	begin_capture(stream);
	cr_expect_eq(hoist__dev_synchronize(dev), -EBUSY);
	hoist__dev_stream_destroy(stream);
	begin_capture(other);
	uint64_t asked = n_asked();
	cr_expect_eq(hoist__dev_event_query(event), -EAGAIN);
	cr_expect_eq(hoist__dev_event_synchronize(event), -EBUSY, "never within a capture");
	cr_expect_eq(counters().broken_captures, 0);
	cr_expect_eq(end_capture(other), 0);
	OK(hoist__dev_event_synchronize(event));
	OK(hoist__dev_synchronize(dev));
	OK(hoist__dev_event_query(event));
	cr_expect_eq(n_asked(), asked);
	hoist__dev_stream_destroy(other);
	hoist__dev_event_destroy(event);
	cr_expect_eq(counters().use_after_free, 0);
	nothing_is_left("after lost events");
}
EMULATED(events_of_a_stream_that_captured_wait_for_the_device, lost_events)

/* The caller of hoist__dev_stream_wrap() destroys the handle first: HIP's driver can say so. */
static void wrapped_too_long(void)
{
	struct hoist__dev_stream *own = NULL;
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_event *event = NULL;
	void *native = NULL;
	unsigned (*create)(void *, unsigned);
	bool capturing = true;
	if (hoist__dev_api(dev) != HOIST__API_HIP)
		return;
	OK(hoist__dev_stream_create(dev, &own)); /* the driver is in use */
	find(HOIST__API_HIP, "hipStreamCreateWithFlags", &create);
	cr_assert_eq(create(&native, 1), 0);
	OK(hoist__dev_stream_wrap(dev, native, &stream));
	OK(hoist__dev_event_create(dev, 0, &event));
	OK(hoist__dev_event_record(event, stream));
	destroy_native(native);
	cr_expect_eq(hoist__dev_stream_capturing(stream, &capturing), -EBADF);
	cr_expect_eq(hoist__dev_event_query(event), -EAGAIN);
	OK(hoist__dev_synchronize(dev));
	OK(hoist__dev_event_query(event));
	hoist__dev_stream_destroy(stream);
	OK(hoist__dev_event_query(event));
	hoist__dev_event_destroy(event);
	hoist__dev_stream_destroy(own);
	cr_expect_eq(counters().use_after_free, 0);
	nothing_is_left("after a wrapped stream");
}
EMULATED(wrapped_streams_that_are_gone_are_noticed, wrapped_too_long)

/* What does break a capture: to ask for an event that it recorded.  Of HIP none is asked while its
 * stream captures, one recorded before as little. */
static void broken_capture(void)
{
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_event *event = NULL;
	bool capturing = false;
	OK(hoist__dev_stream_create(dev, &stream));
	OK(hoist__dev_event_create(dev, 0, &event));
	bool hip = hoist__dev_api(dev) == HOIST__API_HIP;
	OK(hoist__dev_event_record(event, stream));
	begin_capture(stream);
	OK(hoist__dev_stream_capturing(stream, &capturing));
	cr_assert_eq(hoist__dev_event_synchronize(event), hip ? -ENOTSUP : 0);
	cr_assert_eq(hoist__dev_event_query(event), hip ? -EAGAIN : 0);
	OK(hoist__dev_event_record(event, stream));
	cr_assert_eq(counters().broken_captures, 0);
	cr_assert_eq(hoist__dev_event_query(event), hip ? -EAGAIN : -EREMOTEIO);
	cr_assert_eq(counters().broken_captures, hip ? 0 : 1);
	OK(hoist__dev_stream_capturing(stream, &capturing));
	cr_assert(capturing, "the broken capture has not ended");
	cr_assert_eq(end_capture(stream), hip ? 0 : -ECANCELED);
	hoist__dev_event_destroy(event);
	hoist__dev_stream_destroy(stream);
	nothing_is_left("after a capture");
}
EMULATED(capture_is_broken_by_asking_for_its_event, broken_capture)

static int nothing(void *context)
{
	(void)context;
	return 0;
}

/* Work of each kind, and all that can be waited for. */
static int work(struct hoist__dev_stream *stream, struct hoist__dev_event *event, uintptr_t memory)
{
	struct hoist__box box = {
		.dst = memory,
		.src = (uintptr_t)host,
		.width = 3,
		.rows = 4,
		.planes = 5,
		.dst_pitch = 8,
		.src_pitch = 8,
		.dst_plane = 64,
		.src_plane = 64,
	};
	int err = hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, (uintptr_t)host,
				    BYTES);
	for (unsigned width = 1; width <= 4 && err == 0; width *= 2)
		err = hoist__fill_async(stream, memory, 1, width, 1);
	if (err == 0)
		err = hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box);
	box.dst_plane = 63; /* takes a call for each plane: some may have been queued */
	if (err == 0)
		err = hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box);
	if (err == 0)
		err = hoist__dev_stream_call(stream, nothing, NULL);
	if (err == 0)
		err = hoist__dev_event_record(event, stream);
	if (err == 0)
		err = hoist__dev_stream_wait_event(stream, event);
	if (err == 0)
		err = hoist__dev_event_synchronize(event);
	if (err == 0)
		err = hoist__dev_stream_synchronize(stream);
	return err == 0 ? hoist__dev_synchronize(dev) : err;
}

static int ask(uintptr_t memory)
{
	struct hoist__dev *other = NULL;
	struct hoist__pointer pointer;
	bool can = false;
	int err = hoist__dev_get(hoist__dev_api(dev), 1, &other);
	if (err == 0)
		err = hoist__dev_can_access(dev, other, &can);
	return err == 0 ? hoist__pointer_find(memory, &pointer) : err;
}

/* Everything once, stopping at the first failure and giving back what it has. */
static int scenario(void)
{
	struct hoist__dev_stream *stream = NULL;
	struct hoist__dev_event *event = NULL;
	uintptr_t memory = 0;
	uintptr_t seen = 0;
	uint64_t numbers[2];
	bool registered = false;
	bool capturing = false;
	int err = hoist__dev_mem_info(dev, &numbers[0], &numbers[1]);
	if (err == 0)
		err = hoist__dev_mem_alloc(dev, BYTES, &memory);
	if (err == 0)
		err = hoist__dev_stream_create(dev, &stream);
	if (err == 0)
		err = hoist__dev_stream_capturing(stream, &capturing);
	if (err == 0)
		err = hoist__dev_event_create(dev, HOIST__EVENT_TIMING, &event);
	if (err == 0) {
		err = hoist__dev_host_register(dev, host, BYTES);
		registered = err == 0;
	}
	if (err == 0)
		err = hoist__dev_host_address(dev, host, &seen);
	if (err == 0)
		err = ask(memory);
	if (err == 0)
		err = work(stream, event, memory);
	if (err == 0)
		err = hoist__dev_event_elapsed_ns(event, event, &numbers[0]);
	/* Giving back: the first failure stays the result. */
	hoist__dev_event_destroy(event);
	hoist__dev_stream_destroy(stream);
	int after = hoist__dev_mem_free(dev, memory, BYTES);
	err = err < 0 ? err : after;
	after = registered ? hoist__dev_host_unregister(dev, host, BYTES) : 0;
	return err < 0 ? err : after;
}

/* Sets the thread's capture mode; returns the one before. */
static unsigned set_mode(unsigned mode)
{
	unsigned (*exchange)(unsigned *); /* as both drivers have it, by our types */
	bool cuda = hoist__dev_api(dev) == HOIST__API_CUDA;
	find(hoist__dev_api(dev),
	     cuda ? "cuThreadExchangeStreamCaptureMode" : "hipThreadExchangeStreamCaptureMode",
	     &exchange);
	cr_assert_eq(exchange(&mode), 0);
	return mode;
}

#define THREAD_LOCAL_MODE 1u

struct state {
	uintptr_t current; /* context or device */
	unsigned mode;
};

/* What of the calling thread hoist must leave as it was. */
static struct state callers_state(void)
{
	hoist__cu_result (*context)(hoist__cu_context *);
	hoist__hip_error (*device)(int *);
	hoist__cu_context current = NULL;
	struct state state;
	int ordinal = -1;
	state.mode = set_mode(THREAD_LOCAL_MODE);
	if (hoist__dev_api(dev) == HOIST__API_CUDA) {
		find(HOIST__API_CUDA, "cuCtxGetCurrent", &context);
		cr_assert_eq(context(&current), 0);
		state.current = (uintptr_t)current;
		return state;
	}
	find(HOIST__API_HIP, "hipGetDevice", &device);
	cr_assert_eq(device(&ordinal), 0);
	state.current = (uintptr_t)ordinal;
	return state;
}

/* Fails the first driver call of the scenario, then the second, ... until the
 * scenario makes fewer calls than that.  The caller has another device current. */
static void sweep(void)
{
	int (*inject)(const char *);
	hoist__hip_error (*set)(int);
	if (hoist__dev_api(dev) == HOIST__API_HIP) {
		find(HOIST__API_HIP, "hipSetDevice", &set);
		cr_assert_eq(set(1), 0);
	}
	(void)set_mode(THREAD_LOCAL_MODE);
	const struct state state = callers_state();
	int failures = 0;
	uint64_t injected = 0;
	find(hoist__dev_api(dev), "hoist_emulator_fail", &inject);
	for (int n = 1;; n++) {
		char spec[32];
		cr_assert_lt(n, 500);
		(void)snprintf(spec, sizeof spec, "any:%d", n);
		cr_assert_eq(inject(spec), 0);
		int err = scenario();
		cr_assert_eq(inject(NULL), 0);
		cr_assert(err == 0 || err == -EREMOTEIO || err == -ENOSPC || err == -ENOMEM,
			  "%s: %d: %s", spec, err, hoist__error_text());
		failures += err < 0;
		nothing_is_left(spec);
		cr_assert_eq(callers_state().current, state.current, "%s", spec);
		cr_assert_eq(callers_state().mode, state.mode, "%s", spec);
		if (counters().injected_failures == injected)
			break;
		injected = counters().injected_failures;
	}
	/* Failing to restore the caller's state once or to destroy shows in the log
	 * only; all the rest must have shown. */
	cr_assert_gt(failures, 60, "%d", failures);
	OK(scenario());
	nothing_is_left("at the end");
}
EMULATED(failure_of_any_call_leaks_nothing, sweep)
