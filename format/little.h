/* SPDX-License-Identifier: MIT */
/* format/little.h - little-endian numbers in files. */
#ifndef HOIST_FORMAT_LITTLE_H
#define HOIST_FORMAT_LITTLE_H

#include <stdint.h>

/* Returns the little-endian number of @n bytes, at most 8. */
static inline uint64_t hoist__little(const unsigned char *bytes, unsigned n)
{
	uint64_t value = 0;
	while (n-- > 0)
		value = value << 8 | bytes[n];
	return value;
}

#endif
