/* SPDX-License-Identifier: MIT */
/* tests/support/device-driver.h - one body of expectations for every driver: the stand-ins for CUDA
 * and HIP, and the real ones where they answer.
 *
 *   #define SUITE device_things        before this file is included
 *   static void body(void) { ... }     uses dev and host; between set_up() and tear_down() also
 *                                      stream and memory
 *   EVERYWHERE(name, body)             or ANYWHERE (with the CPU), EMULATED, ON_EMULATED, ON_REAL
 */
#ifndef HOIST_TESTS_DEVICE_DRIVER_H
#define HOIST_TESTS_DEVICE_DRIVER_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "device/cuda-types.h"
#include "device/device.h"
#include "device/hip-types.h"
#include "tests/support/emulator-driver.h"

#define BYTES ((size_t)4 << 20)

#define OK(call) cr_assert_eq(call, 0, "%s", hoist__error_text())

static struct hoist__dev *dev;
static struct control control; /* of a stand-in */
static unsigned char *host;    /* BYTES, registered from set_up() to tear_down() */
static struct hoist__dev_stream *stream;
static uintptr_t memory; /* BYTES of the device's */

/* A function of the driver library that hoist opened. */
static inline void find(enum hoist__api api, const char *name, void *pointer)
{
	void *library = dlopen(hoist__api_library(api), RTLD_NOW | RTLD_NOLOAD);
	cr_assert_not_null(library, "%s: %s", hoist__api_library(api), dlerror());
	void *symbol = dlsym(library, name);
	cr_assert_not_null(symbol, "%s", dlerror());
	memcpy(pointer, &symbol, sizeof symbol);
}

static inline void open_device(enum hoist__api api)
{
	cr_assert_eq(hoist__dev_get(api, 0, &dev), 0, "%s", hoist__error_text());
	host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(host, MAP_FAILED);
	memset(host, 0, BYTES);
	if (hoist__api_emulated(api))
		control_of(api, &control);
}

/* Two stand-in devices of each kind; false where there are none to be had. */
static inline bool emulate(enum hoist__api api)
{
	if (!have_stand_ins())
		return false;
	setenv("HOIST_EMULATE", "cuda:2,hip:2", 1);
	open_device(api);
	return true;
}

/* The machine's own driver; false where it does not answer. */
static inline bool use_real(enum hoist__api api)
{
	int count = 0;
	unsetenv("HOIST_EMULATE");
	if (hoist__dev_count(api, &count) < 0)
		return false;
	open_device(api);
	return true;
}

#define ON_EMULATED(name, api, body)                                                               \
	Test(SUITE, emulated_##name)                                                               \
	{                                                                                          \
		if (!emulate(api))                                                                 \
			cr_skip_test("the stand-in drivers are not built");                        \
		body();                                                                            \
	}

#define ON_REAL(name, api, body)                                                                   \
	Test(SUITE, real_##name)                                                                   \
	{                                                                                          \
		if (!use_real(api))                                                                \
			cr_skip_test("no real device: %s", hoist__error_text());                   \
		body();                                                                            \
	}

/* For what the CPU offers too: no driver. */
#define ON_CPU(name, body)                                                                         \
	Test(SUITE, cpu_##name)                                                                    \
	{                                                                                          \
		open_device(HOIST__API_CPU);                                                       \
		body();                                                                            \
	}

#define EVERYWHERE(name, body)                                                                     \
	ON_EMULATED(cuda_##name, HOIST__API_CUDA, body)                                            \
	ON_EMULATED(hip_##name, HOIST__API_HIP, body)                                              \
	ON_REAL(cuda_##name, HOIST__API_CUDA, body)                                                \
	ON_REAL(hip_##name, HOIST__API_HIP, body)

#define ANYWHERE(name, body)                                                                       \
	ON_CPU(name, body)                                                                         \
	EVERYWHERE(name, body)

#define EMULATED(name, body)                                                                       \
	ON_EMULATED(cuda_##name, HOIST__API_CUDA, body)                                            \
	ON_EMULATED(hip_##name, HOIST__API_HIP, body)

/* --- the stage of one test --- */

/* The CPU needs no registration, and has a limit for it. */
static inline void set_up(void)
{
	OK(hoist__dev_stream_create(dev, &stream));
	if (hoist__dev_api(dev) != HOIST__API_CPU)
		OK(hoist__dev_host_register(dev, host, BYTES));
	OK(hoist__dev_mem_alloc(dev, BYTES, &memory));
}

/* The stream's last wait gives @err. */
static inline void tear_down_with(int err)
{
	cr_assert_eq(hoist__dev_stream_synchronize(stream), err, "%s", hoist__error_text());
	OK(hoist__dev_mem_free(dev, memory, BYTES));
	if (hoist__dev_api(dev) != HOIST__API_CPU)
		OK(hoist__dev_host_unregister(dev, host, BYTES));
	hoist__dev_stream_destroy(stream);
}

static inline void tear_down(void)
{
	tear_down_with(0);
}

static inline void to_device(struct hoist__dev_stream *on, uintptr_t dst, uintptr_t src,
			     size_t bytes)
{
	OK(hoist__copy_async(on, HOIST__COPY_HOST_TO_DEVICE, dst, src, bytes));
}

static inline void to_host(struct hoist__dev_stream *on, void *dst, uintptr_t src, size_t bytes)
{
	OK(hoist__copy_async(on, HOIST__COPY_DEVICE_TO_HOST, (uintptr_t)dst, src, bytes));
}

#define SAYS(part) cr_assert_not_null(strstr(hoist__error_text(), part), "%s", hoist__error_text())

static inline bool is_cuda(void)
{
	return hoist__dev_api(dev) == HOIST__API_CUDA;
}

/* --- addresses --- */

static inline struct hoist__pointer ask(uintptr_t address)
{
	struct hoist__pointer pointer;
	memset(&pointer, 0x5a, sizeof pointer);
	OK(hoist__pointer_find(address, &pointer));
	return pointer;
}

static inline void expect_unknown(uintptr_t address)
{
	struct hoist__pointer pointer = ask(address);
	cr_expect_eq(pointer.api, HOIST__API_CPU, "%#zx", (size_t)address);
	cr_expect_eq(pointer.ordinal, -1);
	cr_expect(pointer.host && !pointer.device && !pointer.managed);
	cr_expect_eq(pointer.device_address, 0);
}

/* --- captures --- */

/* A stand-in has no graphs: the test tells it.  A real driver begins and ends a graph, in the
 * global mode. */
static inline void begin_capture(struct hoist__dev_stream *on)
{
	enum hoist__api api = hoist__dev_api(dev);
	unsigned (*begin)(void *, unsigned); /* as both drivers have it, by our types */
	if (hoist__api_emulated(api)) {
		cr_assert_eq(control.capture(hoist__dev_stream_native(on), 1), 0);
		return;
	}
	find(api, api == HOIST__API_CUDA ? "cuStreamBeginCapture_v2" : "hipStreamBeginCapture",
	     &begin);
	cr_assert_eq(begin(hoist__dev_stream_native(on), 0), 0);
}

/* 0 if the capture is whole. */
static inline int end_capture(struct hoist__dev_stream *on)
{
	enum hoist__api api = hoist__dev_api(dev);
	bool cuda = api == HOIST__API_CUDA;
	unsigned (*end)(void *, void **);
	unsigned (*destroy)(void *);
	void *graph = NULL;
	if (hoist__api_emulated(api))
		return control.capture(hoist__dev_stream_native(on), 0);
	find(api, cuda ? "cuStreamEndCapture" : "hipStreamEndCapture", &end);
	find(api, cuda ? "cuGraphDestroy" : "hipGraphDestroy", &destroy);
	int result = (int)end(hoist__dev_stream_native(on), &graph);
	if (graph != NULL)
		(void)destroy(graph);
	return result;
}

/* --- stand-ins only --- */

static inline struct hoist_emulator_counters counters(void)
{
	return counters_of(&control);
}

/* Makes the driver fail as @spec says: see hoist_emulator_fail(). */
static inline void inject(const char *spec)
{
	cr_assert_eq(control.fail(spec), 0, "%s", spec == NULL ? "none" : spec);
}

/* The same of one function, which CUDA and HIP name differently. */
static inline void inject_in(const char *cuda, const char *hip, const char *when)
{
	char spec[96];
	(void)snprintf(spec, sizeof spec, "%s:%s", is_cuda() ? cuda : hip, when);
	inject(spec);
}

static inline uint64_t calls_of(const char *cuda, const char *hip)
{
	return control.calls(is_cuda() ? cuda : hip);
}

static inline void nothing_is_left(const char *when)
{
	struct hoist_emulator_counters left = counters();
	cr_assert_eq(left.live_allocations, 0, "%s", when);
	cr_assert_eq(left.live_registrations, 0, "%s", when);
	cr_assert_eq(left.live_streams, 0, "%s", when);
	cr_assert_eq(left.live_events, 0, "%s", when);
	cr_assert_eq(left.live_pools, 0, "%s", when);
	cr_assert_eq(left.live_reservations, 0, "%s", when);
	cr_assert_eq(left.bad_frees, 0, "%s", when);
	cr_assert_eq(left.use_after_free, 0, "%s", when);
}

/* Ends a scenario at its first failure. */
#define TRY(call)                                                                                  \
	do {                                                                                       \
		err = (call);                                                                      \
		if (err < 0)                                                                       \
			goto out;                                                                  \
	} while (0)

/* Fails the first driver call of the scenario, then the second, ... until the scenario makes fewer
 * calls.  The scenario gives 0 or its failure, and gives back what it took; @after sees each run.
 */
static inline void sweep_calls(int (*scenario)(void), int least_failures,
			       void (*after)(const char *spec))
{
	int failures = 0;
	uint64_t injected = counters().injected_failures;
	for (int n = 1;; n++) {
		char spec[32];
		cr_assert_lt(n, 500);
		(void)snprintf(spec, sizeof spec, "any:%d", n);
		inject(spec);
		int err = scenario();
		inject(NULL);
		cr_assert(err == 0 || err == -EREMOTEIO || err == -ENOSPC || err == -ENOMEM,
			  "%s: %d: %s", spec, err, hoist__error_text());
		failures += err < 0;
		nothing_is_left(spec);
		after(spec);
		if (counters().injected_failures == injected)
			break;
		injected = counters().injected_failures;
	}
	cr_assert_gt(failures, least_failures, "%d", failures);
	OK(scenario());
}

#endif
