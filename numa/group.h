/* SPDX-License-Identifier: MIT */
/* numa/group.h - how much memory the process's control group still gives.
 *
 * Who populates more than that is not refused by the kernel but killed.  So large amounts are
 * compared with it before.  What counts is each group from the process's own up to the mount:
 * its limit, less what is charged to it, plus the pages of files among that, which the kernel takes
 * back, plus the swap that it may use.  Both hierarchies, v1's memory controller and v2.
 *
 * It is a picture of a moment: others in the group go on.  What cannot be read limits nothing.
 */
#ifndef HOIST_NUMA_GROUP_H
#define HOIST_NUMA_GROUP_H

#include <stdint.h>

/* Less is not looked at: the look costs some 50 us. */
#define HOIST__GROUP_LEAST_BYTES ((uint64_t)8 << 20)

struct hoist__group {
	uint64_t limit_bytes; /* of the group that has least left */
	uint64_t left_bytes;  /* what it still gives */
	char name[160];	      /* of that group, as the mount shows it: "/" is the container's own */
};

/* @root: "", or a folder with a tree like the system's.
 * Returns: 0; -ENOENT no group limits this process, or it cannot be known. */
int hoist__group_look(const char *root, struct hoist__group *ret);

/* Is there room for @bytes that will be populated, and @spare beside them?  @what for the message.
 * Returns: 0 (also where nothing limits it); -ENOMEM with the figures. */
int hoist__group_check(uint64_t bytes, uint64_t spare, const char *what);

#endif
