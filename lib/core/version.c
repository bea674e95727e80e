/* SPDX-License-Identifier: MIT */
/* lib/core/version.c - hoist_version().
 * The contract is in hoist/error.h. */
#include "config.h"

#include "hoist/error.h"

const char *hoist_version(void)
{
	return PACKAGE_VERSION;
}
