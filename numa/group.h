/* SPDX-License-Identifier: MIT */
/* numa/group.h - how much memory the process's control group still gives.
 *
 * The kernel does not refuse memory beyond a group's limit: it kills a process that populates more.
 * So large amounts are compared with the limit before.  Each group counts, from the process's own
 * up to the mount.  A group gives its limit, less the memory charged to it, plus the pages of files
 * in that memory, which the kernel takes back, plus the swap that the group may use.  Both
 * hierarchies are read: v1's memory controller, and v2.
 *
 * The answer holds for one moment: other processes in the group go on.  A file that cannot be read
 * limits nothing.
 */
#ifndef HOIST_NUMA_GROUP_H
#define HOIST_NUMA_GROUP_H

#include <stdint.h>

/* Smaller amounts are not checked: a look costs some 50 us. */
#define HOIST__GROUP_LEAST_BYTES ((uint64_t)8 << 20)

struct hoist__group {
	uint64_t limit_bytes; /* of the group that has the least left */
	uint64_t left_bytes;  /* still given by that group */
	char name[160];	      /* of that group, as the mount shows it: "/" is the container's own */
};

/* @root: "", or a folder with a tree like the system's.
 * Returns: 0; -ENOENT if no group limits this process, or the limit is unknown. */
int hoist__group_look(const char *root, struct hoist__group *ret);

/* Checks whether there is room for @bytes that will be populated, and @spare beside them.  @what is
 * for the message.
 * Returns: 0 (also if there is no limit); -ENOMEM with the figures. */
int hoist__group_check(uint64_t bytes, uint64_t spare, const char *what);

#endif
