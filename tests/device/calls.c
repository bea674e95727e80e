/* SPDX-License-Identifier: MIT */
/* Calls of functions in a stream's order, on the CPU and with every driver: see device-driver.h. */
#include "config.h"

#define SUITE device_calls

#include "tests/support/device-driver.h"

#define N_CALLS 300

/* Each call notes its turn, and the byte that the copy before it wrote. */
static int order[N_CALLS];
static unsigned char found[N_CALLS];
static int n_called;

static int called(void *context)
{
	int which = (int)((int *)context - order);
	found[n_called] = host[0];
	order[n_called++] = which;
	return 0;
}

/* Copies and calls alternate: each call sees the copy before it, and not the one behind. */
static void calls_in_order(void)
{
	set_up();
	for (int i = 0; i < N_CALLS; i++) {
		OK(hoist__fill_async(stream, memory, (uint32_t)i, 1, 64));
		to_host(stream, host, memory, 64);
		OK(hoist__dev_stream_call(stream, called, &order[i]));
	}
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(n_called, N_CALLS);
	for (int i = 0; i < N_CALLS; i++) {
		cr_assert_eq(order[i], i);
		cr_assert_eq(found[i], (unsigned char)i);
	}
	OK(hoist__dev_stream_query(stream));
	tear_down();
}
ANYWHERE(calls_are_made_in_the_streams_order, calls_in_order)

static int fails(void *context)
{
	n_called++;
	return hoist__fail(*(int *)context, "call %d has no paper", n_called);
}

static void failing_calls(void)
{
	static int codes[] = {-EILSEQ, -ENOENT};
	set_up();
	OK(hoist__dev_stream_call(stream, fails, &codes[0]));
	OK(hoist__dev_stream_call(stream, fails, &codes[1]));
	OK(hoist__dev_stream_call(stream, called, &order[0]));
	OK(hoist__fill_async(stream, memory, 0x61, 1, BYTES));
	int err = -EAGAIN;
	while (err == -EAGAIN)
		err = hoist__dev_stream_query(stream);
	cr_assert_eq(err, -EILSEQ, "asking tells it, and does not take it");
	cr_assert_eq(hoist__dev_stream_synchronize(stream), -EILSEQ);
	cr_assert_str_eq(hoist__error_text(), "call 1 has no paper");
	cr_assert_eq(n_called, 3);
	OK(hoist__dev_stream_synchronize(stream));
	OK(hoist__dev_stream_query(stream));
	/* The work behind went on, and so does the stream. */
	to_host(stream, host, memory, BYTES);
	OK(hoist__dev_stream_synchronize(stream));
	for (size_t i = 0; i < BYTES; i++)
		cr_assert(host[i] == 0x61, "byte %zu is %#x", i, host[i]);
	OK(hoist__dev_stream_call(stream, fails, &codes[1]));
	cr_assert_eq(hoist__dev_stream_synchronize(stream), -ENOENT);
	cr_assert_str_eq(hoist__error_text(), "call 4 has no paper");
	OK(hoist__dev_stream_call(stream, fails, &codes[0]));
	tear_down_with(-EILSEQ);
}
ANYWHERE(calls_that_fail_are_told_once, failing_calls)

/* A stream makes its calls before it ends, and a failure of theirs ends with the stream. */
static void calls_at_the_end(void)
{
	static int code = -EILSEQ;
	struct hoist__dev_stream *other = NULL;
	struct hoist__dev_stream *wrapper = NULL;
	OK(hoist__dev_stream_create(dev, &other));
	for (int i = 0; i < 20; i++)
		OK(hoist__dev_stream_call(other, called, &order[i]));
	OK(hoist__dev_stream_call(other, fails, &code));
	hoist__dev_stream_destroy(other);
	cr_assert_eq(n_called, 21);
	if (hoist__dev_api(dev) == HOIST__API_CPU)
		return;
	OK(hoist__dev_stream_wrap(dev, NULL, &wrapper));
	OK(hoist__dev_stream_call(wrapper, called, &order[21]));
	hoist__dev_stream_destroy(wrapper);
	cr_assert_eq(n_called, 22);
}
ANYWHERE(calls_are_made_before_a_stream_ends, calls_at_the_end)

static void calls_and_captures(void)
{
	set_up();
	begin_capture(stream);
	cr_assert_eq(hoist__dev_stream_call(stream, called, &order[0]), -ENOTSUP);
	SAYS("captures a graph");
	cr_assert_eq(end_capture(stream), 0);
	OK(hoist__dev_stream_call(stream, called, &order[0]));
	OK(hoist__dev_stream_synchronize(stream));
	cr_assert_eq(n_called, 1);
	tear_down();
}
EVERYWHERE(calls_are_in_no_graph, calls_and_captures)

/* Behind a failure of the driver's a call is not made, and leaves nothing behind. */
static void calls_behind_failures(void)
{
	set_up();
	OK(hoist__dev_stream_synchronize(stream));
	inject("async:1");
	control.hold(1); /* both are queued before the first one fails */
	to_device(stream, memory, (uintptr_t)host, BYTES);
	OK(hoist__dev_stream_call(stream, called, &order[0]));
	control.hold(0);
	cr_assert_eq(hoist__dev_stream_synchronize(stream), -EREMOTEIO);
	cr_assert_eq(n_called, 0);
	cr_assert_eq(hoist__dev_stream_call(stream, called, &order[0]), -EREMOTEIO);
	control.reset();
	tear_down();
}
EMULATED(calls_behind_a_failure_are_not_made, calls_behind_failures)

static int calls_the_driver(void *context)
{
	uint64_t available = 0;
	uint64_t total = 0;
	(void)context;
	return hoist__dev_mem_info(dev, &available, &total);
}

static void misuse(void)
{
	set_up();
	OK(hoist__dev_stream_call(stream, calls_the_driver, NULL));
	cr_assert_neq(hoist__dev_stream_synchronize(stream), 0);
	cr_assert_gt(counters().bad_calls, 0);
	tear_down();
}
EMULATED(a_call_must_not_call_the_driver, misuse)
