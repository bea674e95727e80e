/* SPDX-License-Identifier: MIT */
/* Registers slots with a driver.
 * The contracts are in lib/group/transport.h and group-shm.h.
 *
 * Each slot is registered by itself, when devices first copy from it: its owner has populated it by
 * then, with a huge page if there was one, and a registration would pin small ones.  A refusal is
 * the driver's word about all slots of that kind, so it is not asked again.  Ranks that are threads
 * of one process share their maps, and the first one's registration makes the driver refuse the
 * others'. */
#include "config.h"

#include "base/error.h"
#include "base/log.h"
#include "lib/group/group-shm.h"

unsigned char *hoist__shm_reach(struct hoist__transport *t, struct hoist__dev *dev, unsigned owner,
				uint32_t ordinal)
{
	struct hoist__shm_pins *pins = &t->pins;
	unsigned char *slot = hoist__shm_slot(t, owner, ordinal);
	bool *pinned = &pins->pinned[owner][ordinal % HOIST__GROUP_SLOTS];
	bool own = owner == t->options.rank;
	bool *refused = own ? &pins->own_refused : &pins->others_refused;
	if (*pinned)
		return slot;
	if (*refused)
		return NULL;
	int err = own ? hoist__dev_host_register(dev, slot, HOIST__CELL_BYTES)
		      : hoist__dev_host_register_read_only(dev, slot, HOIST__CELL_BYTES);
	if (err < 0) {
		hoist__log(load, "bytes of %s go through staging slots: %s",
			   own ? "this rank" : "other ranks", hoist__error_text());
		*refused = true;
		return NULL;
	}
	pins->dev = dev;
	*pinned = true;
	return slot;
}

void hoist__shm_unpin(struct hoist__transport *t)
{
	for (unsigned r = 0; t->pins.dev != NULL && r < t->options.n_ranks; r++)
		for (unsigned s = 0; s < HOIST__GROUP_SLOTS; s++)
			if (t->pins.pinned[r][s] &&
			    hoist__dev_host_unregister(t->pins.dev, hoist__shm_slot(t, r, s),
						       HOIST__CELL_BYTES) < 0)
				hoist__log(load, "unpinning a slot of a group: %s",
					   hoist__error_text());
}
