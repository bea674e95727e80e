/* SPDX-License-Identifier: MIT */
/* Scopes: which driver calls they spare, the caller's state after them, and failures within. */
#include "config.h"

#define SUITE device_scope

#include "base/checked.h"
#include "device/scope.h"
#include "tests/support/device-driver.h"

#define THREAD_LOCAL_MODE 1u

/* --- the calling thread's state --- */

static struct {
	unsigned (*exchange)(unsigned *mode); /* as both drivers have it, by our types */
	hoist__cu_result (*context)(hoist__cu_context *);
	hoist__hip_error (*device)(int *);
	hoist__hip_error (*set_device)(int);
} driver;

static void find_driver(void)
{
	if (is_cuda()) {
		find(HOIST__API_CUDA, "cuThreadExchangeStreamCaptureMode", &driver.exchange);
		find(HOIST__API_CUDA, "cuCtxGetCurrent", &driver.context);
		return;
	}
	find(HOIST__API_HIP, "hipThreadExchangeStreamCaptureMode", &driver.exchange);
	find(HOIST__API_HIP, "hipGetDevice", &driver.device);
	find(HOIST__API_HIP, "hipSetDevice", &driver.set_device);
}

struct state {
	uintptr_t current; /* context or device */
	unsigned mode;
};

static struct state state_now(void)
{
	struct state state = {.mode = THREAD_LOCAL_MODE};
	hoist__cu_context context = NULL;
	int device = -1;
	cr_assert_eq(driver.exchange(&state.mode), 0);
	unsigned mode = state.mode;
	cr_assert_eq(driver.exchange(&mode), 0);
	cr_assert_eq(is_cuda() ? driver.context(&context) : driver.device(&device), 0);
	state.current = is_cuda() ? (uintptr_t)context : (uintptr_t)device;
	return state;
}

static struct state state_before;

static void expect_state_before(const char *when)
{
	struct state now = state_now();
	cr_assert_eq(now.current, state_before.current, "%s", when);
	cr_assert_eq(now.mode, state_before.mode, "%s", when);
}

/* A caller with the mode that is not the usual one and, with HIP, the second device. */
static void be_a_caller(void)
{
	unsigned mode = THREAD_LOCAL_MODE;
	find_driver();
	cr_assert_eq(driver.exchange(&mode), 0);
	if (!is_cuda())
		cr_assert_eq(driver.set_device(1), 0);
	state_before = state_now();
}

/* --- calls --- */

static uint64_t n_calls(void)
{
	return counters().calls;
}

static struct hoist__dev *second(void)
{
	struct hoist__dev *other = NULL;
	OK(hoist__dev_get(hoist__dev_api(dev), 1, &other));
	return other;
}

/* One call each: a copy, a record, a wait. */
static void three_calls(struct hoist__dev_event *event)
{
	to_device(stream, memory, (uintptr_t)host, BYTES);
	OK(hoist__dev_event_record(event, stream));
	OK(hoist__dev_event_synchronize(event));
}

static void spares(void)
{
	struct hoist__dev_event *event = NULL;
	struct hoist__dev_event *others = NULL;
	struct hoist__dev_scope outer;
	struct hoist__dev_scope inner;
	be_a_caller();
	set_up();
	OK(hoist__dev_event_create(dev, 0, &event));
	OK(hoist__dev_event_create(second(), 0, &others));
	uint64_t before = n_calls();
	three_calls(event);
	cr_assert_gt(n_calls() - before, 9);
	hoist__dev_enter(dev, &outer);
	before = n_calls();
	three_calls(event);
	cr_assert_eq(n_calls() - before, 3);
	hoist__dev_enter(dev, &inner); /* empty */
	three_calls(event);
	hoist__dev_leave(&inner);
	cr_assert_eq(n_calls() - before, 6);
	/* The other device is entered and left for each call, or once. */
	struct hoist__dev_stream *far = NULL;
	OK(hoist__dev_stream_create(second(), &far));
	before = n_calls();
	OK(hoist__dev_event_record(others, far));
	OK(hoist__dev_event_record(others, far));
	cr_assert_eq(n_calls() - before, 6);
	hoist__dev_enter(second(), &inner);
	OK(hoist__dev_event_record(others, far));
	OK(hoist__dev_event_record(others, far));
	hoist__dev_leave(&inner);
	cr_assert_eq(n_calls() - before, 10);
	three_calls(event);
	cr_assert_eq(n_calls() - before, 13);
	hoist__dev_leave(&outer);
	expect_state_before("left");
	hoist__dev_stream_destroy(far);
	hoist__dev_event_destroy(event);
	hoist__dev_event_destroy(others);
	tear_down();
	expect_state_before("at the end");
}
EMULATED(a_call_in_a_scope_is_one_driver_call, spares)

/* Within a scope a thread may make the calls that a capture elsewhere forbids. */
static void beside_a_capture(void)
{
	struct hoist__dev_stream *captures = NULL;
	struct hoist__dev_event *event = NULL;
	struct hoist__dev_scope scope;
	be_a_caller();
	set_up();
	OK(hoist__dev_event_create(dev, 0, &event));
	OK(hoist__dev_stream_create(dev, &captures));
	begin_capture(captures);
	hoist__dev_enter(dev, &scope);
	three_calls(event);
	hoist__dev_leave(&scope);
	expect_state_before("left");
	cr_assert_eq(end_capture(captures), 0);
	hoist__dev_stream_destroy(captures);
	hoist__dev_event_destroy(event);
	tear_down();
}
EMULATED(a_scope_breaks_no_capture, beside_a_capture)

/* --- the caller's own functions --- */

static void steps_out(void)
{
	struct hoist__dev_scope scopes[3];
	struct hoist__dev_steps steps;
	struct hoist__dev_event *event = NULL;
	be_a_caller();
	set_up();
	OK(hoist__dev_event_create(dev, 0, &event));
	for (int depth = 0; depth <= 3; depth++) {
		for (int i = 0; i < depth; i++)
			hoist__dev_enter(i % 2 == 0 ? dev : second(), &scopes[i]);
		struct state within = state_now();
		hoist__dev_step_out(&steps);
		expect_state_before("out");
		three_calls(event); /* a custom resource may use hoist */
		hoist__dev_step_in(&steps);
		cr_assert_eq(state_now().current, within.current, "%d", depth);
		cr_assert_eq(state_now().mode, within.mode, "%d", depth);
		uint64_t before = n_calls();
		three_calls(event);
		cr_assert_eq(n_calls() - before == 3, depth % 2 == 1, "%d", depth);
		for (int i = depth; i-- > 0;)
			hoist__dev_leave(&scopes[i]);
		expect_state_before("left");
	}
	hoist__dev_event_destroy(event);
	tear_down();
}
EMULATED(a_thread_steps_out_and_in_again, steps_out)

/* --- failures --- */

/* The result of the calls: an error, or none if the scope alone met it. */
static int within_scopes(void)
{
	struct hoist__dev_scope outer;
	struct hoist__dev_scope inner;
	struct hoist__dev_steps steps;
	struct hoist__dev_event *event = NULL;
	int err;
	stream = NULL;
	memory = 0;
	(void)hoist__fail(0, "the caller's text");
	hoist__dev_enter(dev, &outer);
	hoist__dev_enter(second(), &inner);
	hoist__dev_leave(&inner);
	cr_assert_str_eq(hoist__error_text(), "the caller's text");
	TRY(hoist__dev_mem_alloc(dev, BYTES, &memory));
	TRY(hoist__dev_stream_create(dev, &stream));
	TRY(hoist__dev_event_create(dev, 0, &event));
	TRY(hoist__fill_async(stream, memory, 0x5a, 1, BYTES));
	hoist__dev_enter(second(), &inner);
	err = hoist__dev_event_record(event, stream);
	hoist__dev_leave(&inner);
	hoist__dev_step_out(&steps);
	hoist__dev_step_in(&steps);
	if (err == 0)
		err = hoist__dev_event_synchronize(event);
out:
	hoist__dev_event_destroy(event);
	hoist__dev_stream_destroy(stream);
	int after = hoist__dev_mem_free(dev, memory, BYTES);
	hoist__dev_leave(&outer);
	return err < 0 ? err : after;
}

static void sweep(void)
{
	be_a_caller();
	sweep_calls(within_scopes, 6, expect_state_before);
	nothing_is_left("at the end");
}
EMULATED(failure_of_any_call_in_scopes_leaves_the_callers_state, sweep)

/* The driver cannot switch: each call switches by itself once it can again. */
static void not_held(void)
{
	struct hoist__dev_scope scope;
	struct hoist__dev_event *event = NULL;
	be_a_caller();
	set_up();
	OK(hoist__dev_event_create(dev, 0, &event));
	inject_in("cuCtxPushCurrent", "hipSetDevice", "1");
	hoist__dev_enter(dev, &scope);
	inject(NULL);
	three_calls(event);
	hoist__dev_leave(&scope);
	expect_state_before("not held");
	/* A device that cannot be left is current within the outer scope: the outer scope's calls
	 * must not trust it. */
	hoist__dev_enter(dev, &scope);
	inject_in("cuCtxPopCurrent", "hipSetDevice", is_cuda() ? "1+" : "2+");
	uint64_t free_bytes;
	uint64_t total_bytes;
	OK(hoist__dev_mem_info(second(), &free_bytes, &total_bytes));
	inject(NULL);
	three_calls(event);
	hoist__dev_leave(&scope);
	hoist__dev_event_destroy(event);
	tear_down();
}
EMULATED(a_scope_that_the_driver_refuses_changes_nothing, not_held)
