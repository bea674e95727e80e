/* SPDX-License-Identifier: MIT */
/* tools/config-dtype.h - the dtype that a model's config.json names.
 *
 * transformers loads weights in the dtype that "dtype", or "torch_dtype", of config.json says, so a
 * copy with converted weights needs a config.json that says the new dtype.
 */
#ifndef HOIST_TOOLS_CONFIG_DTYPE_H
#define HOIST_TOOLS_CONFIG_DTYPE_H

#include <stdbool.h>

/* Reads the JSON text of *@fd, and puts a descriptor of a changed text in *fd's place (and closes
 * *fd) if a key "dtype" or "torch_dtype", at any depth, has another one of "float32", "float16" and
 * "bfloat16" than @dtype.  All other bytes stay.  *fd is at its start afterwards.  @name: for
 * messages, which are printed.
 * Returns: a STATUS_*. */
int config_dtype_set(int *fd, const char *dtype, const char *name, bool *changed);

#endif
