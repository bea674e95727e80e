/* SPDX-License-Identifier: MIT */
/* numa/residence.h - what of a range of memory is in huge pages, as the kernel tells it. */
#ifndef HOIST_LIB_RESIDENCE_H
#define HOIST_LIB_RESIDENCE_H

#include <stddef.h>
#include <stdint.h>

struct hoist__residence {
	uintptr_t base; /* in: the range */
	size_t bytes;
	double resident; /* out: bytes of it in memory */
	double huge;	 /* of these, in huge pages */
};

/* Fills all @n of them, which are in the order of addresses, from one reading of @path
 * ("/proc/self/smaps").  Where a mapping reaches beyond a range, the range has its share.
 * Returns: 0; what opening the file says. */
int hoist__residence(const char *path, struct hoist__residence *ranges, size_t n);

#endif
