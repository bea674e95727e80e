/* SPDX-License-Identifier: MIT */
/* Registers slots with a driver.
 * The contract is in lib/swarm/cell-pin.h. */
#include "config.h"

#include "lib/swarm/cell-pin.h"

#include "base/error.h"
#include "base/log.h"
#include "lib/swarm/blocks.h"

bool hoist__cell_pin(struct hoist__cell_pins *pins, struct hoist__dev *dev, unsigned char *slot,
		     bool read_only, bool *pinned)
{
	if (*pinned || pins->refused[read_only])
		return *pinned;
	int err = read_only ? hoist__dev_host_register_read_only(dev, slot, HOIST__CELL_BYTES)
			    : hoist__dev_host_register(dev, slot, HOIST__CELL_BYTES);
	if (err < 0)
		hoist__log(load, "bytes of %s in the group go through staging slots: %s",
			   read_only ? "others" : "this rank", hoist__error_text());
	pins->refused[read_only] = err < 0;
	pins->dev = dev;
	*pinned = err == 0;
	return *pinned;
}

void hoist__cell_unpin(const struct hoist__cell_pins *pins, unsigned char *slot, bool *pinned)
{
	if (*pinned && hoist__dev_host_unregister(pins->dev, slot, HOIST__CELL_BYTES) < 0)
		hoist__log(load, "unpinning a slot of a group: %s", hoist__error_text());
	*pinned = false;
}
