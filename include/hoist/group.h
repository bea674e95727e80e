/* SPDX-License-Identifier: MIT */
/* hoist/group.h - one load by several processes, which reads each byte once for all of them.
 *
 *     hoist_group group = {.size = sizeof group, .name = "shm:llama", .rank = r, .n_ranks = 8};
 *     hoist_load_options o = {.size = sizeof o, .device = device,
 *                             .slices = &mine, .n_slices = 1};
 *     hoist_group_load(&group, checkpoint, &o, &load);
 *     hoist_load_wait(load);                       // 0: all ranks have all that they asked for
 *
 * The ranks of a group are processes of one user on one machine.  Each asks for tensors, slices and
 * a dtype of its own, on a device of its own.  Bytes that one rank wants are read by that rank.
 * All others are divided among the ranks: the rank that reads them puts them in memory that all
 * share, and the others copy them from there.  Ranks that run on the NUMA node of a file's disk,
 * and on no other (numactl -N), read all that is divided of that file, if there are any.  So the
 * group reads each byte from storage once, in blocks of 4 KiB.  Where long parts of several ranks
 * meet, the blocks at their seams may be read twice: one block of 64 at most.
 *
 * Together: a group's load begins once all ranks have come, and ends in all ranks at one time.
 * Each has succeeded then, or none has: a rank that dies, fails, is cancelled, does not come or
 * stops is a failure in the others.  A rank that has no tensors to load takes part, too.
 *
 * Nothing is left: the ranks meet at an abstract socket, and share memory without a name, and both
 * end with the processes.  The socket belongs to the network namespace: containers that have
 * namespaces of their own do not meet.
 *
 * Memory: each rank shares up to 16 MiB, which its load's budget bounds beside the staging slots.
 * Ranks of one process each have a budget of their own: a rank that waits for bytes of another's
 * would wait for the timeout.
 *
 * Trust: another user's process is refused.  A process of the same user that is no rank, or a
 * broken one, cannot harm a rank's memory, but it can make the load fail or give wrong bytes.
 */
#ifndef HOIST_GROUP_H
#define HOIST_GROUP_H

#include <stddef.h>
#include <stdint.h>

#include <hoist/checkpoint.h>
#include <hoist/error.h>
#include <hoist/load.h>

HOIST_BEGIN

typedef struct hoist_group {
	size_t size;         /* sizeof(hoist_group) */
	const char *name;    /* "shm:" and 1 to 63 bytes, the same in all ranks: a number, a path,
			      * any text.  The name is this user's alone.  The name may be used again
			      * once the load has ended */
	unsigned rank;       /* 0 to n_ranks - 1, each once */
	unsigned n_ranks;    /* 1 to 64 */
	uint64_t timeout_ns; /* how long the ranks wait for one that has not come, or that gives no
			      * sign of life (it is stopped).  100 ms and more; 0: 30 s */
} hoist_group;

/* Starts this rank's part of a load.  All else is as hoist_load_start() and the functions of
 * hoist/load.h say, with these exceptions: HOIST_IO_MAP, `order` and window_bytes are refused,
 * HOIST_IO_ADAPTIVE is AUTO; chunk_bytes is 2 MiB at most.  A caller that drives its load and makes
 * no step within the timeout is a rank that has stopped.
 *
 * Streaming (HOIST_LOAD_STREAM): a rank has tensors before the others have all of theirs, and keeps
 * them if another rank fails later.  hoist_load_next() gives 0 once all ranks have all.  There is no
 * window: a rank whose window is full would hold the bytes that all ranks wait for.
 *
 * hoist_load_next() and hoist_load_wait_for() give -ECONNRESET where hoist_load_wait() gives
 * -ETIMEDOUT: from these two that means "not yet".
 *
 * In place (`into`): buffers are untouched, whole or torn as after any load, also if another rank
 * died.  The ranks wait for one whose buffers' streams are busy as for one that has not come.
 *
 * The report is this rank's: direct_bytes and cached_bytes are those that it read, for all.
 *
 * hoist_load_wait() and the like then also give:
 *   -ECONNRESET (a rank died, failed or was cancelled; the text names the rank);
 *   -ETIMEDOUT (a rank did not come within the timeout, or stopped; the text names the rank);
 *   -EEXIST (this rank is there already; for rank 0: another group has the name);
 *   -EINVAL (a rank gave another n_ranks, or another checkpoint: files of other sizes, times or
 *   inodes); -EPROTO (a rank has another version of hoist); -EPERM (another user's process has the
 *   name); -EBADMSG (a rank sent nonsense); -EDQUOT (a budget below 16 MiB and two staging slots,
 *   or one of which others left no room for them within the timeout).
 *
 * Returns: 0; as hoist_load_start(); -EINVAL (no name, no such rank, a timeout too short); -ENOTSUP
 *   (an option that groups do not have; a name that does not begin with "shm:"). */
HOIST_API int hoist_group_load(const hoist_group *group, hoist_checkpoint *checkpoint,
			       const hoist_load_options *options, hoist_load **ret);

HOIST_END

#endif
