/* SPDX-License-Identifier: MIT */
/* tests/support/device-driver.h - one body of expectations for every driver: the stand-ins for CUDA
 * and HIP, and the real ones where they answer.
 *
 *   #define SUITE device_things        before this file is included
 *   static void body(void) { ... }     uses dev, and host where it needs host memory
 *   EVERYWHERE(name, body)             or EMULATED, ON_EMULATED, ON_REAL */
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
#include "emulator/control.h"

#define BYTES ((size_t)4 << 20)

static struct hoist__dev *dev;
static unsigned char *host; /* BYTES, registered where a test says so */

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
}

static inline bool have_stand_ins(void)
{
	setenv("HOIST_EMULATOR_DIR", EMULATOR_DIR, 0);
	char path[4096];
	(void)snprintf(path, sizeof path, "%s/libhoist-emulated-cuda.so",
		       getenv("HOIST_EMULATOR_DIR"));
	return access(path, R_OK) == 0;
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

#define EMULATED(name, body)                                                                       \
	ON_EMULATED(cuda_##name, HOIST__API_CUDA, body)                                            \
	ON_EMULATED(hip_##name, HOIST__API_HIP, body)

#define OK(call) cr_assert_eq(call, 0, "%s", hoist__error_text())

/* --- captures --- */

/* The stand-ins have no graphs: they are told.  Real drivers begin and end one for it, in
 * their global mode. */
static inline void begin_capture(struct hoist__dev_stream *stream)
{
	enum hoist__api api = hoist__dev_api(dev);
	int (*tell)(void *, int);
	unsigned (*begin)(void *, unsigned); /* as both drivers have it, by our types */
	if (hoist__api_emulated(api)) {
		find(api, "hoist_emulator_capture", &tell);
		cr_assert_eq(tell(hoist__dev_stream_native(stream), 1), 0);
		return;
	}
	find(api, api == HOIST__API_CUDA ? "cuStreamBeginCapture_v2" : "hipStreamBeginCapture",
	     &begin);
	cr_assert_eq(begin(hoist__dev_stream_native(stream), 0), 0);
}

/* 0 if the capture is whole. */
static inline int end_capture(struct hoist__dev_stream *stream)
{
	enum hoist__api api = hoist__dev_api(dev);
	bool cuda = api == HOIST__API_CUDA;
	int (*tell)(void *, int);
	unsigned (*end)(void *, void **);
	unsigned (*destroy)(void *);
	void *graph = NULL;
	if (hoist__api_emulated(api)) {
		find(api, "hoist_emulator_capture", &tell);
		return tell(hoist__dev_stream_native(stream), 0);
	}
	find(api, cuda ? "cuStreamEndCapture" : "hipStreamEndCapture", &end);
	find(api, cuda ? "cuGraphDestroy" : "hipGraphDestroy", &destroy);
	int result = (int)end(hoist__dev_stream_native(stream), &graph);
	if (graph != NULL)
		(void)destroy(graph);
	return result;
}

/* --- what only a stand-in can tell --- */

static inline struct hoist_emulator_counters counters(void)
{
	struct hoist_emulator_counters result;
	void (*read)(struct hoist_emulator_counters *);
	find(hoist__dev_api(dev), "hoist_emulator_counters", &read);
	read(&result);
	return result;
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

#endif
