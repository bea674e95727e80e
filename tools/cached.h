/* SPDX-License-Identifier: MIT */
/* tools/cached.h - `hoist load --cache`: loads from the cache, after adding the checkpoint if
 * needed. */
#ifndef HOIST_TOOLS_CACHED_H
#define HOIST_TOOLS_CACHED_H

#include <hoist/load.h>

#include "tools/args.h"

/* Attaches the image of the checkpoint, and copies its tensors to the device unless that is the
 * CPU. *report is filled as by a load.
 * Returns: a STATUS_*, with the message printed. */
int cached_load(const struct args *args, hoist_load_report *report);

/* Returns the checkpoint's path, for either command. */
const char *cached_path(const struct args *args);

#endif
