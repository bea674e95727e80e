/* SPDX-License-Identifier: MIT */
/* lib/plan/adaptive.h - HOIST_IO_ADAPTIVE: the only lot of a plan is a patchwork, in which ranges
 * of files that lie in the page cache are mapped, and all others are read.
 */
#ifndef HOIST_LIB_PLAN_ADAPTIVE_H
#define HOIST_LIB_PLAN_ADAPTIVE_H

#include "lib/buffer/storage.h"
#include "lib/plan/plan.h"

/* Moves large extents so that they lie in huge pages as in their files, finds the hot ranges, and
 * splits the extents there; the number of ranges is *ret_maps.  Pre: the
 * plan has one lot, of the host, not in place, and stages nothing.
 * Returns: 0; -ENOMEM, and the plan is split nowhere: extents may have moved. */
int hoist__adaptive_find(const hoist_checkpoint *checkpoint, struct hoist__plan *plan,
			 size_t *ret_maps);

/* Makes the lot as a patchwork.  Pre: *n_maps > 0, which then counts the maps that were made: a
 * range that the kernel does not map is read.
 * Returns: 0; -ENOMEM. */
int hoist__adaptive_allocate(const hoist_checkpoint *checkpoint, struct hoist__plan *plan,
			     hoist_device *device, size_t *n_maps, struct hoist__storage **ret);

#endif
