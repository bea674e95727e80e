/* SPDX-License-Identifier: MIT */
/* tools/copy-tensors.h - the tensors of a copy: which ones, and under which names. */
#ifndef HOIST_TOOLS_COPY_TENSORS_H
#define HOIST_TOOLS_COPY_TENSORS_H

#include <stddef.h>

#include <hoist/hoist.h>

#include "tools/args.h"

/* Adds the tensors of @checkpoint that --tensor and --exclude leave to @save, under the names that
 * --rename gives.  *ret: how many.  Returns: a STATUS_*, with the message printed. */
int copy_add_tensors(hoist_save *save, hoist_checkpoint *checkpoint, const struct args *args,
		     size_t *ret);

#endif
