/* SPDX-License-Identifier: MIT */
/* Memory, streams and copies of every driver, and failures of each call: see device-driver.h. */
#include "config.h"

#define SUITE device_driver

#include "base/checked.h"
#include "tests/support/device-driver.h"

static void fill(unsigned char *bytes, unsigned seed)
{
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)((i * 2654435761u + seed) >> 11);
}

/* --- memory --- */

static void device_memory(void)
{
	uint64_t before = 0;
	uint64_t after = 0;
	uint64_t total = 0;
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
	size_t bytes = hoist__dev_props(dev)->total_bytes * 2;
	cr_assert_eq(hoist__dev_mem_alloc(dev, bytes, &memory), -ENOSPC);
	cr_assert_eq(memory, 0);
	SAYS("device memory is exhausted");
	SAYS("MiB are free");
}
EVERYWHERE(memory_that_is_exhausted_is_ENOSPC, device_memory_full)

static void host_registration(void)
{
	uintptr_t seen = 0;
	OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_host_address(dev, host + 4096, &seen));
	cr_assert_neq(seen, 0);
	cr_assert_eq(hoist__dev_host_register(dev, host, BYTES), -EREMOTEIO);
	SAYS("page-locking 4194304 bytes");
	OK(hoist__dev_host_unregister(dev, host, BYTES));
	cr_assert_eq(hoist__dev_host_unregister(dev, host, BYTES), -EREMOTEIO);
	SAYS("unregistering host memory");
	cr_assert_eq(hoist__dev_host_register(dev, NULL, BYTES), -EINVAL);
}
EVERYWHERE(host_memory_is_registered_once, host_registration)

/* A map of a file without write permission, as a process has of another one's memory. */
static void read_only_registration(void)
{
	int fd = memfd_create("host", MFD_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, BYTES), 0);
	unsigned char *shared = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	unsigned char *seen = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	cr_assert(shared != MAP_FAILED && seen != MAP_FAILED);
	set_up();
	fill(shared, 7);
	cr_assert_eq(hoist__dev_host_register(dev, seen, BYTES), -EREMOTEIO);
	int err = hoist__dev_host_register_read_only(dev, seen, BYTES);
	if (err == 0) {
		to_device(stream, memory, (uintptr_t)seen, BYTES);
		to_host(stream, host, memory, BYTES);
		OK(hoist__dev_stream_synchronize(stream));
		cr_assert_eq(memcmp(host, shared, BYTES), 0);
		OK(hoist__dev_host_unregister(dev, seen, BYTES));
	} else {
		cr_assert_eq(err, -ENOTSUP);
		SAYS("mapped for reading only");
		cr_assert(hoist__dev_api(dev) == HOIST__API_HIP ||
			  !hoist__dev_props(dev)->emulated);
	}
	/* Also of memory that may be written. */
	err = hoist__dev_host_register_read_only(dev, shared, BYTES);
	if (err == 0)
		OK(hoist__dev_host_unregister(dev, shared, BYTES));
	tear_down();
	(void)munmap(shared, BYTES);
	(void)munmap(seen, BYTES);
	(void)close(fd);
}
EVERYWHERE(memory_mapped_for_reading_only_is_registered, read_only_registration)

/* --- streams and copies --- */

/* Host -> device -> elsewhere on the device at an odd address -> host. */
static void copies_on(struct hoist__dev_stream *on)
{
	size_t half = BYTES / 2 - 1;
	struct hoist__dev_event *event = NULL;
	OK(hoist__dev_event_create(dev, 0, &event));
	fill(host, 1);
	unsigned char *expected = malloc(half);
	cr_assert_not_null(expected);
	memcpy(expected, host, half);
	to_device(on, memory, (uintptr_t)host, half);
	OK(hoist__copy_async(on, HOIST__COPY_DEVICE_TO_DEVICE, memory + half + 1, memory, half));
	OK(hoist__fill_async(on, memory + half + 1, 0x5a, 1, 3));
	to_host(on, host + half, memory + half + 1, half);
	to_host(on, NULL, 0, 0);
	OK(hoist__dev_event_record(event, on));
	OK(hoist__dev_event_synchronize(event));
	OK(hoist__dev_event_query(event));
	OK(hoist__dev_stream_query(on));
	memset(expected, 0x5a, 3);
	cr_assert_eq(memcmp(host + half, expected, half), 0);
	free(expected);
	hoist__dev_event_destroy(event);
}

static void copies(void)
{
	set_up();
	cr_assert_not_null(hoist__dev_stream_native(stream));
	cr_assert_eq(hoist__dev_stream_dev(stream), dev);
	copies_on(stream);
	tear_down();
}
EVERYWHERE(bytes_survive_copies_in_every_direction, copies)

static void wrapped(void)
{
	struct hoist__dev_stream *wrapper = NULL;
	set_up();
	OK(hoist__dev_stream_wrap(dev, NULL, &wrapper));
	cr_assert_null(hoist__dev_stream_native(wrapper));
	copies_on(wrapper);
	hoist__dev_stream_destroy(wrapper);
	OK(hoist__dev_stream_wrap(dev, hoist__dev_stream_native(stream), &wrapper));
	copies_on(wrapper);
	hoist__dev_stream_destroy(wrapper);
	/* The native stream outlives its wrapper. */
	copies_on(stream);
	tear_down();
}
EVERYWHERE(streams_of_others_can_be_used, wrapped)

static void peers(void)
{
	struct hoist__dev *other = NULL;
	struct hoist__dev_event *event = NULL;
	uintptr_t there = 0;
	int count = 0;
	OK(hoist__dev_count(hoist__dev_api(dev), &count));
	if (count < 2)
		cr_skip_test("there is one device only");
	OK(hoist__dev_get(hoist__dev_api(dev), 1, &other));
	cr_assert_neq(other, dev);
	cr_assert_str_neq(hoist__dev_props(other)->pci, hoist__dev_props(dev)->pci);
	set_up();
	OK(hoist__dev_mem_alloc(other, BYTES, &there));
	OK(hoist__dev_event_create(other, 0, &event));
	cr_assert_eq(hoist__dev_event_record(event, stream), -EINVAL);
	OK(hoist__fill_async(stream, memory, 0x77, 1, BYTES));
	OK(hoist__copy_peer_async(stream, other, there, dev, memory, BYTES));
	OK(hoist__fill_async(stream, memory, 0, 1, BYTES));
	OK(hoist__copy_peer_async(stream, dev, memory, other, there, BYTES - 1));
	to_host(stream, host, memory, BYTES);
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(host[0], 0x77);
	cr_assert_eq(host[BYTES - 2], 0x77);
	cr_assert_eq(host[BYTES - 1], 0);
	hoist__dev_event_destroy(event);
	OK(hoist__dev_mem_free(other, there, BYTES));
	tear_down();
}
EVERYWHERE(bytes_move_between_devices, peers)

/* --- captures --- */

/* While a stream captures a graph, all that hoist may do elsewhere leaves it whole. */
static void capture(void)
{
	struct hoist__dev_stream *other = NULL;
	struct hoist__dev_stream *wrapper = NULL;
	struct hoist__dev_event *event = NULL;
	bool capturing = true;
	OK(hoist__dev_stream_create(dev, &other));
	OK(hoist__dev_stream_wrap(dev, hoist__dev_stream_native(other), &wrapper));
	OK(hoist__dev_stream_capturing(wrapper, &capturing));
	cr_assert_not(capturing);
	begin_capture(other);
	OK(hoist__dev_stream_capturing(wrapper, &capturing));
	cr_assert(capturing);
	hoist__dev_stream_destroy(wrapper); /* waits for the native stream, but not now */
	set_up();
	OK(hoist__dev_stream_capturing(stream, &capturing));
	cr_assert_not(capturing);
	OK(hoist__dev_event_create(dev, 0, &event));
	to_device(stream, memory, (uintptr_t)host, BYTES);
	OK(hoist__dev_event_record(event, stream));
	OK(hoist__dev_event_synchronize(event));
	OK(hoist__dev_event_query(event));
	OK(hoist__dev_stream_synchronize(stream));
	OK(hoist__dev_stream_query(stream));
	hoist__dev_event_destroy(event);
	tear_down();
	cr_assert_eq(end_capture(other), 0, "the capture is whole");
	OK(hoist__dev_stream_capturing(other, &capturing));
	cr_assert_not(capturing);
	hoist__dev_stream_destroy(other);
}
EVERYWHERE(capture_elsewhere_stays_whole, capture)

/* --- the caller's state --- */

static struct {
	hoist__cu_result (*current)(hoist__cu_context *);
	hoist__cu_result (*push)(hoist__cu_context);
	hoist__cu_result (*pop)(hoist__cu_context *);
	hoist__cu_result (*retain)(hoist__cu_context *, hoist__cu_device);
} contexts;

static void find_contexts(void)
{
	find(HOIST__API_CUDA, "cuCtxGetCurrent", &contexts.current);
	find(HOIST__API_CUDA, "cuCtxPushCurrent_v2", &contexts.push);
	find(HOIST__API_CUDA, "cuCtxPopCurrent_v2", &contexts.pop);
	find(HOIST__API_CUDA, "cuDevicePrimaryCtxRetain", &contexts.retain);
}

static hoist__cu_context current_context(void)
{
	hoist__cu_context context = NULL;
	cr_assert_eq(contexts.current(&context), 0);
	return context;
}

static void cuda_context(void)
{
	hoist__cu_context context = NULL;
	hoist__cu_context mine = NULL;
	find_contexts();
	copies();
	cr_assert_null(current_context());
	/* The primary context itself, and a foreign one where there is a second. */
	for (int ordinal = 0; ordinal < 2; ordinal++) {
		if (contexts.retain(&mine, ordinal) != 0)
			continue;
		cr_assert_eq(contexts.push(mine), 0);
		copies();
		cr_assert_eq(current_context(), mine);
		cr_assert_eq(contexts.pop(&context), 0);
		cr_assert_eq(context, mine);
		cr_assert_null(current_context());
	}
}
ON_EMULATED(cuda_callers_context_is_kept, HOIST__API_CUDA, cuda_context)
ON_REAL(cuda_callers_context_is_kept, HOIST__API_CUDA, cuda_context)

/* A pop may fail before it was done, or tell the failure of earlier work after it: in both cases
 * one context goes, hoist's. */
static void cuda_context_after_failure(void)
{
	static const char *const specs[] = {"cuCtxPopCurrent:1", "cuCtxPopCurrent:1:700"};
	find_contexts();
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(specs); i++) {
		hoist__cu_context context = NULL;
		hoist__cu_context mine = NULL;
		uint64_t available = 0;
		uint64_t total = 0;
		cr_assert_eq(contexts.retain(&mine, 1), 0);
		cr_assert_eq(contexts.push(mine), 0);
		inject(specs[i]);
		OK(hoist__dev_mem_info(dev, &available, &total));
		cr_assert_eq(current_context(), mine, "%s", specs[i]);
		cr_assert_eq(contexts.pop(&context), 0);
		cr_assert_null(current_context(), "%s", specs[i]);
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
	cr_assert_eq(hoist__dev_mem_alloc(dev, hoist__dev_props(dev)->total_bytes * 2, &memory),
		     -ENOSPC);
	cr_assert_eq(get(&current), 0);
	cr_assert_eq(current, count - 1);
	cr_assert_eq(last(), 0);
}
ON_EMULATED(hip_callers_device_and_last_error_are_kept, HOIST__API_HIP, hip_device)
ON_REAL(hip_callers_device_and_last_error_are_kept, HOIST__API_HIP, hip_device)

/* --- stand-ins only --- */

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

static void failed_work(void)
{
	set_up();
	inject("async:1");
	to_device(stream, memory, (uintptr_t)host, BYTES);
	cr_assert_eq(hoist__dev_stream_synchronize(stream), -EREMOTEIO);
	cr_assert_not_null(strcasestr(hoist__error_text(), "illegal"), "%s", hoist__error_text());
	tear_down_with(-EREMOTEIO);
	nothing_is_left("after failed work");
}
EMULATED(work_that_fails_is_told_when_it_is_waited_for, failed_work)

static int nothing(void *context)
{
	(void)context;
	return 0;
}

/* Work of each kind, and each thing that can be waited for. */
static int work(struct hoist__dev_event *event)
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
	int err;
	TRY(hoist__copy_async(stream, HOIST__COPY_HOST_TO_DEVICE, memory, (uintptr_t)host, BYTES));
	for (unsigned width = 1; width <= 4; width *= 2)
		TRY(hoist__fill_async(stream, memory, 1, width, 1));
	TRY(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box));
	box.dst_plane = 63; /* takes a call for each plane: some may have been queued */
	TRY(hoist__copy_box_async(stream, HOIST__COPY_HOST_TO_DEVICE, &box));
	TRY(hoist__dev_stream_call(stream, nothing, NULL));
	TRY(hoist__dev_event_record(event, stream));
	TRY(hoist__dev_stream_wait_event(stream, event));
	TRY(hoist__dev_event_synchronize(event));
	TRY(hoist__dev_stream_synchronize(stream));
	TRY(hoist__dev_synchronize(dev));
out:
	return err;
}

/* Everything once, up to the first failure. */
static int scenario(void)
{
	struct hoist__dev *other = NULL;
	struct hoist__dev_event *event = NULL;
	struct hoist__pointer pointer;
	uintptr_t seen = 0;
	uint64_t numbers[2];
	bool registered = false;
	bool answer = false;
	int err;
	stream = NULL;
	memory = 0;
	TRY(hoist__dev_mem_info(dev, &numbers[0], &numbers[1]));
	TRY(hoist__dev_mem_alloc(dev, BYTES, &memory));
	TRY(hoist__dev_stream_create(dev, &stream));
	TRY(hoist__dev_stream_capturing(stream, &answer));
	TRY(hoist__dev_event_create(dev, HOIST__EVENT_TIMING, &event));
	TRY(hoist__dev_host_register(dev, host, BYTES));
	registered = true;
	TRY(hoist__dev_host_address(dev, host, &seen));
	TRY(hoist__dev_get(hoist__dev_api(dev), 1, &other));
	TRY(hoist__dev_can_access(dev, other, &answer));
	TRY(hoist__pointer_find(memory, &pointer));
	TRY(work(event));
	TRY(hoist__dev_event_elapsed_ns(event, event, &numbers[0]));
out:
	/* The first failure stays the result. */
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
	find(hoist__dev_api(dev),
	     is_cuda() ? "cuThreadExchangeStreamCaptureMode" : "hipThreadExchangeStreamCaptureMode",
	     &exchange);
	cr_assert_eq(exchange(&mode), 0);
	return mode;
}

#define THREAD_LOCAL_MODE 1u

struct state {
	uintptr_t current; /* context or device */
	unsigned mode;
};

/* The state of the calling thread, which hoist must leave. */
static struct state callers_state(void)
{
	hoist__hip_error (*device)(int *);
	struct state state;
	int ordinal = -1;
	state.mode = set_mode(THREAD_LOCAL_MODE);
	if (is_cuda()) {
		find_contexts();
		state.current = (uintptr_t)current_context();
		return state;
	}
	find(HOIST__API_HIP, "hipGetDevice", &device);
	cr_assert_eq(device(&ordinal), 0);
	state.current = (uintptr_t)ordinal;
	return state;
}

static struct state state_before;

static void expect_same_state(const char *spec)
{
	cr_assert_eq(callers_state().current, state_before.current, "%s", spec);
	cr_assert_eq(callers_state().mode, state_before.mode, "%s", spec);
}

/* The caller has another device current.  To restore the caller's state and to destroy may fail
 * once with a line in the log only; all other failures must have shown. */
static void sweep(void)
{
	hoist__hip_error (*set)(int);
	if (!is_cuda()) {
		find(HOIST__API_HIP, "hipSetDevice", &set);
		cr_assert_eq(set(1), 0);
	}
	(void)set_mode(THREAD_LOCAL_MODE);
	state_before = callers_state();
	sweep_calls(scenario, 60, expect_same_state);
	nothing_is_left("at the end");
}
EMULATED(failure_of_any_call_leaks_nothing, sweep)
