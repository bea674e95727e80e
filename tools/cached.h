/* SPDX-License-Identifier: MIT */
/* tools/cached.h - `hoist load --cache`: from the cache, where the checkpoint is put if need be. */
#ifndef HOIST_TOOLS_CACHED_H
#define HOIST_TOOLS_CACHED_H

#include <hoist/load.h>

#include "tools/args.h"

/* Attaches the image of the checkpoint, and copies its tensors to the device if that is not the
 * CPU.  Returns a STATUS_*, the message printed; *report is as that of a load. */
int cached_load(const struct args *args, hoist_load_report *report);

/* The checkpoint's path, of either command. */
const char *cached_path(const struct args *args);

#endif
