/* SPDX-License-Identifier: MIT */
/* numa/processors.h - the processors that may work on some memory.
 *
 * Counted are the processors that the calling thread may run on (its affinity, and so the cpuset of
 * its control group) and that belong to the memory's node.  The memory's node is the one node that
 * its pages are bound to or preferred on; else the thread's own node, where a first touch puts the
 * page.  If none of the node's processors is allowed, or the machine has one node, all allowed
 * processors count.  A control group may have a quota of processor time (cpu.max, in v1
 * cpu.cfs_quota_us): then no more processors count than the quota can keep busy.
 */
#ifndef HOIST_NUMA_PROCESSORS_H
#define HOIST_NUMA_PROCESSORS_H

#include <sched.h>
#include <stdbool.h>

struct hoist__processors {
	unsigned n; /* at least 1 */
	bool near;  /* `set` has the node's allowed processors: threads are to run on these */
	cpu_set_t set;
};

/* Threads that populate memory, at most.  Each clears some 10 GB/s of huge pages, so that this many
 * are ahead of any disks, and as quick as the memory of one node.  More would only take processors
 * from the readers. */
#define HOIST__PROCESSORS_POPULATE 16u

/* The number of processors that the calling thread may run on, at least 1.  *@ret: which; empty if
 * the machine has more than the set can hold. */
unsigned hoist__processors_allowed(cpu_set_t *ret);

/* Reads the machine's topology, in some 0.1 ms a node.  @address: of a page of the memory. */
void hoist__processors_for(const void *address, struct hoist__processors *ret);

/* Has the calling thread run on the set, if it is near.  The thread is one of hoist's own. */
void hoist__processors_stay(const struct hoist__processors *processors);

/* The processors that the control groups of this process can keep busy, rounded up; UINT_MAX: no
 * group has a quota.  @root as in numa/group.h; group.c has this function. */
unsigned hoist__group_processors(const char *root);

#endif
