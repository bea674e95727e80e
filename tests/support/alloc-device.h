/* SPDX-License-Identifier: MIT */
/* An emulated device for a test of one folder, or a real one where HOIST_TEST_DEVICE says
 * cuda:0 or hip:0; and the emulator's controls. */
#ifndef HOIST_TESTS_ALLOC_DEVICE_H
#define HOIST_TESTS_ALLOC_DEVICE_H

#include "tests/support/alloc-unit.h"
#include "tests/support/emulator-driver.h"

static struct hoist__dev *dev;
static struct control control; /* of the emulator */
static bool emulated;

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
	emulated = real == NULL;
	if (emulated)
		control_of(api, &control);
}

static inline void need_stand_in(void)
{
	if (!emulated)
		cr_skip_test("only the emulator can be made to fail");
}

static inline struct hoist_emulator_counters counters(void)
{
	return counters_of(&control);
}

static inline void make_fail(const char *spec)
{
	cr_assert_eq(control.fail(spec), 0, "%s", spec);
}

/* Unmapped before unregistered is a use after free to the emulator. */
static inline void expect_nothing_left(void)
{
	if (!emulated)
		return;
	struct hoist_emulator_counters now = counters();
	cr_assert_eq(now.live_allocations, 0);
	cr_assert_eq(now.live_bytes, 0);
	cr_assert_eq(now.live_registrations, 0);
	cr_assert_eq(now.bad_frees, 0);
	cr_assert_eq(now.use_after_free, 0);
}

#endif
