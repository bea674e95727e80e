/* SPDX-License-Identifier: MIT */
/* An emulated device for a test of one folder, or a real one where HOIST_TEST_DEVICE says
 * cuda:0 or hip:0; and the emulator's controls. */
#ifndef HOIST_TESTS_ALLOC_DEVICE_H
#define HOIST_TESTS_ALLOC_DEVICE_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "device/device.h"
#include "emulator/control.h"

static struct hoist__dev *dev;
static void *stand_in; /* the emulator's library; NULL on a real device */

static void open_device(void)
{
	const char *real = getenv("HOIST_TEST_DEVICE");
	enum hoist__api api =
		real != NULL && strncmp(real, "hip", 3) == 0 ? HOIST__API_HIP : HOIST__API_CUDA;
	if (real == NULL) {
		setenv("HOIST_EMULATE", "cuda:1", 1);
		setenv("HOIST_EMULATE_MEMORY", "1G", 1);
	}
	if (hoist__dev_get(api, 0, &dev) != 0)
		cr_skip_test("%s", hoist__error_text());
	if (real == NULL) {
		stand_in = dlopen(hoist__api_library(api), RTLD_NOW | RTLD_NOLOAD);
		cr_assert_not_null(stand_in, "%s", dlerror());
	}
}

static inline void need_stand_in(void)
{
	if (stand_in == NULL)
		cr_skip_test("only the emulator can be made to fail");
}

static inline struct hoist_emulator_counters counters(void)
{
	struct hoist_emulator_counters now;
	__typeof__(&hoist_emulator_counters) ask;
	*(void **)&ask = dlsym(stand_in, "hoist_emulator_counters");
	ask(&now);
	return now;
}

static inline void make_fail(const char *spec)
{
	__typeof__(&hoist_emulator_fail) fail;
	*(void **)&fail = dlsym(stand_in, "hoist_emulator_fail");
	cr_assert_eq(fail(spec), 0, "%s", spec);
}

static inline void set_register_most(uint64_t bytes)
{
	__typeof__(&hoist_emulator_set_register_most) set;
	*(void **)&set = dlsym(stand_in, "hoist_emulator_set_register_most");
	set(bytes);
}

static inline void hold(int on)
{
	__typeof__(&hoist_emulator_hold) set;
	*(void **)&set = dlsym(stand_in, "hoist_emulator_hold");
	set(on);
}

static inline uint64_t calls_of(const char *function)
{
	__typeof__(&hoist_emulator_calls) calls;
	*(void **)&calls = dlsym(stand_in, "hoist_emulator_calls");
	return calls(function);
}

/* Unmapped before unregistered is a use after free to the emulator. */
static inline void expect_nothing_left(void)
{
	if (stand_in == NULL)
		return;
	struct hoist_emulator_counters now = counters();
	cr_assert_eq(now.live_allocations, 0);
	cr_assert_eq(now.live_bytes, 0);
	cr_assert_eq(now.live_registrations, 0);
	cr_assert_eq(now.bad_frees, 0);
	cr_assert_eq(now.use_after_free, 0);
}

#endif
