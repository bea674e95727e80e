/* SPDX-License-Identifier: MIT */
/* lib/swarm/cell-pin.h - registers slots of cells with a driver, so that devices copy from them.
 *
 * Each slot is registered by itself, when devices first copy from it: its pages are there by then,
 * huge ones if they could be had, and a registration would pin small ones.  A driver that refuses
 * one slot is not asked about others of that kind: those that this process may write to, or those
 * that it may only read.  Ranks that are threads of one process share their maps, so the driver
 * refuses the second one's registration.
 *
 * Threads: one at a time: the one that drives the load.
 */
#ifndef HOIST_LIB_SWARM_CELL_PIN_H
#define HOIST_LIB_SWARM_CELL_PIN_H

#include <stdbool.h>

#include "device/device.h"

struct hoist__cell_pins {
	struct hoist__dev *dev; /* NULL: no slot is registered */
	bool refused[2];	/* slots that may be written; that may only be read */
};

/* Registers the @slot of a cell, unless *pinned says that it is.  Returns: *pinned; false: the
 * driver refuses. */
bool hoist__cell_pin(struct hoist__cell_pins *pins, struct hoist__dev *dev, unsigned char *slot,
		     bool read_only, bool *pinned);

/* Ends the registration, if there is one.  Pre: no copy from the slot is in flight. */
void hoist__cell_unpin(const struct hoist__cell_pins *pins, unsigned char *slot, bool *pinned);

#endif
