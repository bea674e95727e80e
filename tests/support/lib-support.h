/* SPDX-License-Identifier: MIT */
/* tests/support/lib-support.h - devices and the emulators behind them, for the tests of lib/. */
#ifndef HOIST_TESTS_LIB_SUPPORT_H
#define HOIST_TESTS_LIB_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulator/control.h"
#include "hoist/device.h"

/* Sets HOIST_EMULATE to two CUDA devices and one HIP device.  Returns false if the
 * emulators are not built (then nothing is set). */
bool lib_emulate(void);

/* The same for a plain program, which ends as skipped without the emulators. */
void lib_need_emulators(void);

/* cpu and, behind the emulators, cuda:0, cuda:1 and hip:0. */
#define LIB_N_DEVICES 4
extern const char *const lib_specs[LIB_N_DEVICES];

/* Opens all of them; a failure ends the test. */
void lib_open_all(hoist_device *devices[LIB_N_DEVICES]);

/* "cuda" or "hip": functions of the stand-in that hoist has opened. */
struct hoist_emulator_counters lib_counters(const char *api);
uint64_t lib_calls(const char *api, const char *function);
int lib_fail(const char *api, const char *spec);
void lib_set_latency(const char *api, unsigned min_us, unsigned max_us);
void lib_reset(const char *api);
int lib_preferred(const char *api, uintptr_t address);
int lib_capture(const char *api, void *stream, int on);

/* No stream of the stand-in starts an operation while the stand-in is held. */
void lib_hold(const char *api, bool hold);

/* Makes the primary context of cuda:@ordinal current in this thread, above the present one; -1:
 * does nothing.  Leaving takes the same argument. */
void lib_enter_context(int ordinal);
void lib_leave_context(int ordinal);

/* Returns: false if a stand-in saw a misuse (pageable memory, a bad range, use after free),
 * which stderr then names. */
bool lib_drivers_content(void);

/* Gives back the memory that the devices keep.  Returns: false if a stand-in still holds
 * anything but contexts, which stderr then names. */
bool lib_nothing_outstanding(hoist_device *const devices[LIB_N_DEVICES]);

#endif
