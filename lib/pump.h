/* SPDX-License-Identifier: MIT */
/* lib/pump.h - what the pump's files share; lib/load.h tells how it works. */
#ifndef HOIST_LIB_PUMP_H
#define HOIST_LIB_PUMP_H

#include "lib/load.h"

/* The first failure wins; its text is in this thread's hoist_error(). */
void hoist__pump_fail(struct hoist_load *load, int err);

/* Submits what there is room for, as one batch.  True if it stopped only because
 * pages are not populated yet. */
bool hoist__pump_submit(struct hoist_load *load);

/* Takes what the engine has finished, waiting up to @timeout_ns for the first. */
void hoist__pump_reap(struct hoist_load *load, uint64_t timeout_ns);

/* @n slots came back, oldest first (copies complete in the order of the stream);
 * or the device's error. */
void hoist__pump_reclaimed(struct hoist_load *load, int n);

#endif
