/* SPDX-License-Identifier: MIT */
/* io/lanes.h - which requests wait for which device.
 *
 * One lane for each device that the files of an engine lie on, so that a full queue of a slow
 * one holds up nobody else.  Lanes and not rings: a ring is only memory between one thread
 * and the kernel, whose queues are those of the devices, and several rings of one thread
 * gain nothing (measured: two rings, of two threads even, on one disk 1.72 GB/s, one 1.65
 * to 1.9), but can be waited for together only by a detour. */
#ifndef HOIST_IO_LANES_H
#define HOIST_IO_LANES_H

#include "io/engine.h"

struct hoist__lanes {
	unsigned n; /* at least 1 */
	uint64_t devices[HOIST__ENGINE_MAX_LANES];
};

/* The lanes of @options' files; one, if there are none. */
void hoist__lanes_find(const struct hoist__engine_options *options, struct hoist__lanes *ret);

/* The lane of @file; a device without one shares the last. */
unsigned hoist__lanes_of(const struct hoist__lanes *lanes, const struct hoist__file *file);

#endif
