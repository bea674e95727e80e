/* SPDX-License-Identifier: MIT */
/* tools/copy-tensors.h - the tensors of a copy: which ones, under which names, and in which form.
 */
#ifndef HOIST_TOOLS_COPY_TENSORS_H
#define HOIST_TOOLS_COPY_TENSORS_H

#include <stddef.h>

#include <hoist/hoist.h>

#include "tools/args.h"
#include "tools/unconverted.h"

/* Facts for the report. */
struct copy_tensors {
	size_t n;
	struct unconverted unconverted;
};

/* Adds the tensors of @checkpoint that --tensor and --exclude leave to @save, under the names that
 * --rename gives, as --slice and --dtype say.  Returns: a STATUS_*, with the message printed. */
int copy_add_tensors(hoist_save *save, hoist_checkpoint *checkpoint, const struct args *args,
		     struct copy_tensors *ret);

#endif
