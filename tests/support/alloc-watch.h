/* SPDX-License-Identifier: MIT */
/* tests/support/alloc-watch.h - memory of some kind, as a stray write and a test see it. */
#ifndef HOIST_TESTS_ALLOC_WATCH_H
#define HOIST_TESTS_ALLOC_WATCH_H

#include "alloc/watch.h"
#include "tests/support/alloc-unit.h"
#include "tests/support/emulator-driver.h"

#define POISONED __attribute__((no_sanitize("address")))

static struct hoist__dev *dev;		     /* NULL: host memory */
static struct hoist__dev_stream *own_stream; /* of the tests */

POISONED static inline void poke(uintptr_t address, unsigned char value)
{
	if (dev == NULL) {
		*(volatile unsigned char *)address = value;
		return;
	}
	OK(hoist__fill_async(own_stream, address, value, 1, 1));
	OK(hoist__dev_stream_synchronize(own_stream));
}

POISONED static inline bool all_are(uintptr_t address, size_t bytes, unsigned char value)
{
	for (size_t i = 0; i < bytes; i++)
		if (((const volatile unsigned char *)address)[i] != value)
			return false;
	return true;
}

static struct control control; /* of the stand-in, on a device that has one */

static inline void open_device(enum hoist__api api)
{
	setenv("HOIST_EMULATE", "cuda:1,hip:1", 1);
	setenv("HOIST_EMULATE_MEMORY", "256M", 1);
	OK(hoist__dev_get(api, 0, &dev));
	if (api != HOIST__API_CPU)
		control_of(api, &control);
	OK(hoist__dev_stream_create(dev, &own_stream));
}

static inline void expect_nothing_left(void)
{
	hoist__dev_stream_destroy(own_stream);
	if (hoist__dev_api(dev) == HOIST__API_CPU)
		return;
	struct hoist_emulator_counters now = counters_of(&control);
	cr_assert_eq(now.live_allocations, 0);
	cr_assert_eq(now.live_registrations, 0);
	cr_assert_eq(now.live_streams, 0);
	cr_assert_eq(now.pageable_copies, 0);
	cr_assert_eq(now.bad_copies, 0);
	cr_assert_eq(now.use_after_free, 0);
}

#endif
