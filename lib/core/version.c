/* SPDX-License-Identifier: MIT */
/* lib/core/version.c - hoist_version().
 * The contract is in hoist/error.h. */
#include "config.h"

#include <assert.h>

#include "hoist/error.h"

#define TEXT_OF(value) #value
#define TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

static_assert(__builtin_strcmp(PACKAGE_VERSION, TEXT(HOIST_VERSION_MAJOR, HOIST_VERSION_MINOR,
						     HOIST_VERSION_PATCH)) == 0,
	      "configure.ac and hoist/error.h have the same version");

const char *hoist_version(void)
{
	return PACKAGE_VERSION;
}
