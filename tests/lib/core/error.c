/* SPDX-License-Identifier: MIT */
/* The driver's own number of a failure: hoist_error_driver(). */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/lib-unit.h"

static void expect_driver(const char *api, int number)
{
	const char *said = "unchanged";
	cr_expect_eq(hoist_error_driver(&said), number, "%d: %s", hoist_error_driver(NULL),
		     hoist_error());
	cr_expect(api == NULL ? said == NULL : said != NULL && strcmp(said, api) == 0, "%s",
		  said != NULL ? said : "(none)");
}

/* A failure without a driver. */
static void fail_without_driver(void)
{
	cr_assert_eq(hoist_stream_synchronize(NULL), -EINVAL);
}

/* --- calls that fail at once --- */

/* proves: S4.23 */
Test(error, a_refused_call_tells_the_drivers_number)
{
	const int64_t shape[] = {1 << 20};
	static const struct {
		int device;
		const char *api;
		const char *fault;
		unsigned flags;
		int err;
		int number;
	} cases[] = {
		{1, "cuda", "cuMemAlloc:1+:2", 0, -ENOSPC, 2},
		{1, "cuda", "cuMemAlloc:1+:999", 0, -EREMOTEIO, 999},
		{1, "cuda", "cuMemHostRegister:1+:304", HOIST_BUFFER_PINNED, -EREMOTEIO, 304},
		{3, "hip", "hipMalloc:1+:2", 0, -ENOSPC, 2},
		{3, "hip", "hipMalloc:1+:719", 0, -EREMOTEIO, 719},
	};
	open_all();
	cr_expect_eq(hoist_error_driver(NULL), 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		hoist_buffer *buffer = NULL;
		fail_without_driver();
		OK(lib_fail(cases[i].api, cases[i].fault));
		cr_expect_eq(hoist_buffer_create(devices[cases[i].device], HOIST_U8, 1, shape,
						 cases[i].flags, &buffer),
			     cases[i].err, "case %zu: %s", i, hoist_error());
		expect_driver(cases[i].api, cases[i].number);
		lib_reset(cases[i].api);
		/* Success keeps the number, the next failure does not. */
		OK(hoist_device_synchronize(devices[0]));
		expect_driver(cases[i].api, cases[i].number);
		fail_without_driver();
		expect_driver(NULL, 0);
	}
}

/* The calls that undo a failed request do not hide its number. */
Test(error, memory_that_is_given_back_after_a_failure_keeps_the_number)
{
	static const struct {
		int kind;
		int preferred;
		const char *fault;
		int number;
	} cases[] = {
		{HOIST_MEMORY_VIRTUAL, 0, "cuMemCreate:1+:2", 2},
		{HOIST_MEMORY_VIRTUAL, 0, "cuMemSetAccess:1+:999", 999},
		{HOIST_MEMORY_MANAGED, HOIST_PREFER_DEVICE, "cuMemAdvise_v2:1+:999", 999},
	};
	open_all();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		uintptr_t block = 0;
		hoist_memory *memory =
			make_memory(OPTIONS(.kind = cases[i].kind, .device = devices[1],
					    .preferred_location = cases[i].preferred));
		OK(lib_fail("cuda", cases[i].fault));
		cr_expect_lt(hoist_memory_alloc(memory, 1000, 0, &block), 0, "case %zu", i);
		expect_driver("cuda", cases[i].number);
		lib_reset("cuda");
		hoist_memory_unref(memory);
	}
}

Test(error, a_driver_that_does_not_start_tells_its_number)
{
	hoist_device *device = NULL;
	emulate();
	cr_assert_eq(setenv("HOIST_EMULATE_FAIL", "cuInit:1+:802,hipInit:1+:100", 1), 0);
	/* The second opening repeats the failure of the first; gpu tells of the first API. */
	static const struct {
		const char *spec;
		const char *api;
		int number;
	} cases[] = {{"cuda:0", "cuda", 802},
		     {"cuda:0", "cuda", 802},
		     {"hip:0", "hip", 100},
		     {"gpu:0", "cuda", 802}};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		fail_without_driver();
		cr_expect_eq(hoist_device_open(cases[i].spec, &device), -ENODEV, "%s",
			     hoist_error());
		expect_driver(cases[i].api, cases[i].number);
	}
}

static void *ask_here(void *context)
{
	*(int *)context = hoist_error_driver(NULL);
	fail_without_driver();
	return NULL;
}

Test(error, each_thread_has_its_own_number, .init = open_all)
{
	const int64_t shape[] = {1 << 20};
	hoist_buffer *buffer = NULL;
	pthread_t thread;
	int seen = -1;
	OK(lib_fail("cuda", "cuMemAlloc:1+:2"));
	cr_assert_eq(hoist_buffer_create(devices[1], HOIST_U8, 1, shape, 0, &buffer), -ENOSPC);
	cr_assert_eq(pthread_create(&thread, NULL, ask_here, &seen), 0);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_expect_eq(seen, 0);
	expect_driver("cuda", 2);
}

/* --- failures that come later, on other threads --- */

/* The copy fails after the driver accepted it.  A stream of the CPU waits for the copy, and a
 * thread of hoist's own finds the failure. */
Test(error, a_streams_failure_brings_the_number, .init = open_all)
{
	const int64_t shape[] = {1 << 20};
	hoist_stream *cuda = make_stream(devices[1]);
	hoist_stream *cpu = make_stream(devices[0]);
	hoist_buffer *pinned = make_buffer(devices[1], HOIST_U8, 1, shape, HOIST_BUFFER_PINNED);
	hoist_buffer *there = make_buffer(devices[1], HOIST_U8, 1, shape, 0);
	OK(lib_fail("cuda", "async:1:716"));
	lib_set_latency("cuda", 20000, 20000);
	OK(hoist_buffer_copy_on(there, pinned, cuda));
	OK(hoist_stream_wait_for(cpu, cuda));
	fail_without_driver();
	REFUSED(hoist_stream_synchronize(cpu), -EREMOTEIO,
		"work on a stream of cpu: waiting for a stream of cuda:0");
	expect_driver("cuda", 716);
	fail_without_driver();
	cr_expect_eq(hoist_stream_synchronize(cuda), -EREMOTEIO);
	expect_driver("cuda", 716);
	lib_reset("cuda");
	DROP(there, pinned);
	DROP_STREAMS(cpu, cuda);
}

Test(error, a_load_brings_the_number_to_its_waiter, .init = open_all)
{
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	static const unsigned char bytes[100000] = {1, 2, 3};
	const char *path = temporary("number.bin");
	write_file(path, bytes, sizeof bytes);
	OK(hoist_checkpoint_open(path, HOIST_OPEN_RAW, &checkpoint));
	const hoist_load_options options = {.size = sizeof options, .device = devices[1]};
	OK(lib_fail("cuda", "cuMemcpyHtoDAsync:1+:719"));
	OK(hoist_load_start(checkpoint, &options, &load));
	fail_without_driver();
	cr_expect_eq(hoist_load_wait(load), -EREMOTEIO, "%s", hoist_error());
	expect_driver("cuda", 719);
	/* As often as somebody asks. */
	fail_without_driver();
	cr_expect_eq(hoist_load_wait(load), -EREMOTEIO);
	expect_driver("cuda", 719);
	lib_reset("cuda");
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	cr_expect_eq(unlink(path), 0);
}

Test(error, a_save_brings_the_number_to_its_waiter, .init = open_all)
{
	hoist_save *save = NULL;
	hoist_buffer *buffer = zeroed(devices[3], HOIST_U8, 1, SHAPE(100000));
	OK(hoist_save_create(temporary("number.safetensors"), NULL, &save));
	OK(hoist_save_add(save, "x", buffer));
	OK(lib_fail("hip", "hipMemcpyAsync:1+:719"));
	OK(hoist_save_start(save));
	fail_without_driver();
	cr_expect_eq(hoist_save_wait(save), -EREMOTEIO, "%s", hoist_error());
	expect_driver("hip", 719);
	lib_reset("hip");
	hoist_save_destroy(save);
	hoist_buffer_unref(buffer);
}
