/* SPDX-License-Identifier: MIT */
/* base/figure.c - formats byte counts for people.
 * The contract is in base/figure.h. */
#include "config.h"

#include "base/figure.h"

#include <stdio.h>

#include "base/checked.h"

struct hoist__figure hoist__figure(uint64_t bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	struct hoist__figure figure;
	size_t unit = 0;
	while (unit + 1 < HOIST__ARRAY_SIZE(units) && bytes >> (10 * (unit + 1)) != 0)
		unit++;
	uint64_t one = UINT64_C(1) << (10 * unit);
	if (bytes % one == 0)
		(void)snprintf(figure.text, sizeof figure.text, "%llu %s",
			       (unsigned long long)(bytes / one), units[unit]);
	else
		(void)snprintf(figure.text, sizeof figure.text, "%.1f %s",
			       (double)bytes / (double)one, units[unit]);
	return figure;
}
