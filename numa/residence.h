/* SPDX-License-Identifier: MIT */
/* numa/residence.h - how much of a range of memory is in huge pages, as the kernel reports it. */
#ifndef HOIST_NUMA_RESIDENCE_H
#define HOIST_NUMA_RESIDENCE_H

#include <stddef.h>
#include <stdint.h>

struct hoist__residence {
	uintptr_t base; /* in: the range */
	size_t bytes;
	double resident; /* out: bytes of it in memory */
	double huge;	 /* bytes of these in huge pages */
};

/* Fills all @n ranges, which are in the order of their addresses, from one reading of @path
 * ("/proc/self/smaps").  If a mapping reaches beyond a range, the range gets its share.
 * Returns: 0; the error of opening the file. */
int hoist__residence(const char *path, struct hoist__residence *ranges, size_t n);

#endif
