/* SPDX-License-Identifier: MIT */
/* tools/launcher.h - groups of several machines: the rank and the door that the environment of
 * torchrun, mpirun or srun gives this process.  doc/group.md has the rule;
 * python/hoist/launcher.py is the same for Python. */
#ifndef HOIST_TOOLS_LAUNCHER_H
#define HOIST_TOOLS_LAUNCHER_H

#include <stdbool.h>

/* Is it a group of several machines: "tcp://..." or "dir:..."? */
bool launcher_is_far(const char *group);

/* Finds the rank that a launcher gave this process, and the number of ranks; *ret_n_ranks is 0
 * where there is no launcher.  Returns: STATUS_OK; STATUS_FAILED (numbers that are no rank). */
int launcher_rank(unsigned *ret_rank, unsigned *ret_n_ranks);

/* Makes "tcp://HOST:PORT/NAME" of "tcp:///NAME"; other names stay.  *ret is from malloc.
 * Returns: STATUS_OK; STATUS_FAILED (the environment names no host, or no port). */
int launcher_name(const char *group, char **ret);

#endif
