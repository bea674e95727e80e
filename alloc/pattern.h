/* SPDX-License-Identifier: MIT */
/* alloc/pattern.h - fills memory of any kind with a byte, and finds bytes that have changed.
 *
 * Host memory is read and written directly.  Device memory is set by the driver and read back
 * through a registered buffer, on a stream that is made when first needed.  The stream carries none
 * of the user's work, so the caller makes sure that no other stream uses the memory.
 *
 * If a driver fails, or in a child of fork for which the driver is gone, a fill returns false and a
 * comparison finds no change: debugging finds less, but nothing else goes wrong.
 *
 * Threads: any.  Comparisons of device memory run one at a time.
 */
#ifndef HOIST_ALLOC_PATTERN_H
#define HOIST_ALLOC_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

struct hoist__pattern;

#define HOIST__FOUND_BYTES 8

/* The bytes that differ from the expected value. */
struct hoist__change {
	uintptr_t first; /* the first byte that differs */
	size_t n;	 /* how many bytes differ */
	size_t n_found;
	unsigned char found[HOIST__FOUND_BYTES]; /* the bytes that are there, from the first on */
};

/* @dev: NULL: the host reads and writes the memory itself.  Returns: 0; -ENOMEM. */
int hoist__pattern_create(struct hoist__dev *dev, struct hoist__pattern **ret);
void hoist__pattern_destroy(struct hoist__pattern *pattern); /* takes NULL */

/* Sets @bytes bytes (0: none) to @value.  On a device the fill is complete after
 * hoist__pattern_settle().
 * Returns: false if the driver refuses. */
bool hoist__pattern_fill(struct hoist__pattern *pattern, uintptr_t address, size_t bytes,
			 unsigned char value);

/* Waits until all fills so far are complete.  Returns: false if the driver failed. */
bool hoist__pattern_settle(struct hoist__pattern *pattern);

/* True if any of @bytes bytes is not @value: *ret says which. */
bool hoist__pattern_changed(struct hoist__pattern *pattern, uintptr_t address, size_t bytes,
			    unsigned char value, struct hoist__change *ret);

#endif
