/* SPDX-License-Identifier: MIT */
/* tools/tree.h - hoist ls --tree: tensors as a tree of the parts of their names, with the sizes.
 *
 *     BYTES  TENSORS  NAME
 *  22.2 MiB        1  embed_tokens.weight  bf16 [5693, 2048]
 *   976 MiB      288  layers
 *  30.5 MiB        9    0..31  (32 alike, each)
 *   8.0 MiB        1      mlp.down_proj.weight  bf16 [2048, 2048]
 *
 * A dot divides parts.  Siblings whose parts are numbers are shown once if they are alike: the same
 * names below, dtypes and shapes.
 */
#ifndef HOIST_TOOLS_TREE_H
#define HOIST_TOOLS_TREE_H

#include <hoist/checkpoint.h>

#include "tools/selection.h"

/* Prints the tree of the selected tensors to standard output.  *bytes: of these tensors.  Returns:
 * a STATUS_*. */
int tree_print(const hoist_checkpoint *checkpoint, const struct selection *selection,
	       uint64_t *bytes);

#endif
