/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "hoist/error.h"

const char *hoist_version(void)
{
	return PACKAGE_VERSION;
}
