/* SPDX-License-Identifier: MIT */
/* alloc/pattern.h - filling memory of any kind with a byte, and finding what has changed.
 *
 * Host memory is read and written directly.  Device memory is set by the driver and read back
 * through a registered buffer, on a stream that is made when first needed; nothing of the
 * user's is in that stream, so the caller makes sure that no other one uses the memory.
 *
 * A driver's failure, and a child of fork for which the driver is gone, make a fill false and
 * a comparison equal: debugging finds less, nothing else goes wrong.
 *
 * Threads: any; comparisons of device memory are one at a time.
 */
#ifndef HOIST_ALLOC_PATTERN_H
#define HOIST_ALLOC_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

struct hoist__pattern;

#define HOIST__FOUND_BYTES 8

/* Where memory was not what it should be. */
struct hoist__change {
	uintptr_t first; /* the first byte that differs */
	size_t n;	 /* how many do */
	size_t n_found;
	unsigned char found[HOIST__FOUND_BYTES]; /* what is there, from the first on */
};

/* @dev NULL: the host reads and writes the memory itself.  Returns: 0; -ENOMEM. */
int hoist__pattern_create(struct hoist__dev *dev, struct hoist__pattern **ret);
void hoist__pattern_destroy(struct hoist__pattern *pattern); /* takes NULL */

/* Sets @bytes bytes (0: none) to @value; on a device, by hoist__pattern_settle() at the latest.
 * Returns: false if the driver refuses. */
bool hoist__pattern_fill(struct hoist__pattern *pattern, uintptr_t address, size_t bytes,
			 unsigned char value);

/* Everything filled so far is.  Returns: false if the driver failed. */
bool hoist__pattern_settle(struct hoist__pattern *pattern);

/* True if one of @bytes bytes is not @value: *ret says which. */
bool hoist__pattern_changed(struct hoist__pattern *pattern, uintptr_t address, size_t bytes,
			    unsigned char value, struct hoist__change *ret);

#endif
