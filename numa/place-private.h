/* SPDX-License-Identifier: MIT */
/* numa/place-private.h - shared by place.c and strict.c: node sets in the kernel's form. */
#ifndef HOIST_NUMA_PLACE_PRIVATE_H
#define HOIST_NUMA_PLACE_PRIVATE_H

#include "numa/place.h"

#define HOIST__BITS_PER_LONG (8 * sizeof(unsigned long))

/* The kernel reads one bit fewer than the number it is given. */
#define HOIST__KERNEL_MASK_BITS (HOIST__MAX_NODES + 1)

struct hoist__kernel_mask {
	unsigned long bits[HOIST__MAX_NODES / HOIST__BITS_PER_LONG];
};

void hoist__kernel_mask(const struct hoist__nodeset *nodes, struct hoist__kernel_mask *ret);

#endif
