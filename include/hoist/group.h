/* SPDX-License-Identifier: MIT */
/* hoist/group.h - one load by several processes, which reads each byte once for all of them.
 *
 *     hoist_group group = {.size = sizeof group, .name = "shm:llama", .rank = r, .n_ranks = 8};
 *     hoist_load_options o = {.size = sizeof o, .device = device,
 *                             .slices = &mine, .n_slices = 1};
 *     hoist_group_load(&group, checkpoint, &o, &load);
 *     hoist_load_wait(load);                       // 0: all ranks have all that they asked for
 *
 * Each rank asks for tensors, slices and a dtype of its own, on a device of its own.  Bytes that one
 * rank wants are read by that rank.  All others are divided among the ranks, and each byte is read
 * from storage once.  There are two kinds of groups.  "dir:FOLDER/NAME" is of the second kind: all
 * that is said of "tcp:" holds for "dir:", too, but for the door.
 *
 *                     "shm:NAME"                       "tcp://HOST:PORT/NAME", "dir:FOLDER/NAME"
 *   ranks             of one user on one machine       on any machines that reach each other
 *   bytes go by       memory that all share            UCX: RDMA where there is, else TCP; on one
 *                                                      machine, memory that its ranks share
 *   they meet         at an abstract socket            "tcp:": at the door, an address of one of
 *                                                      them; "dir:": at a folder that all see
 *   their number      n_ranks, fixed                   n_ranks, or 0: unknown; ranks may come
 *                                                      late, and go
 *   one fails         all fail                         the others go on without it
 *   files             the same inodes                  the same bytes, in copies of each rank's own,
 *                                                      or some, or none, on some machines:
 *                                                      hoist_group_open()
 *
 * Memory: each rank shares up to a quarter of its budget, 16 to 64 MiB ("shm:") or 16 to 128 MiB
 * ("tcp:"), which its load's budget bounds beside the staging slots.  Beside the budget, a rank of a
 * "tcp:" group keeps the wants of each other rank: 1 MiB for each TiB of the files, and up to 2 MiB
 * more if that rank wants parts of cells of 2 MiB (columns).  Ranks of one process each have a budget of
 * their own: a rank that waits for bytes of another's would wait for the timeout.
 *
 * Groups of one machine ("shm:").  Bytes for all are put into memory that all share, by the rank that
 * reads them, and the others copy them from there; so do CUDA devices themselves, where they get bytes
 * as they are in the file.  Ranks on the NUMA node of a file's disk read all that is divided of that
 * file, if there are any.  A rank is on the node on which alone it may run (numactl -N); one that may
 * run on several is on that of the first device of its load.
 * Where long parts of several ranks meet, the blocks of 4 KiB at their seams may be read twice: one
 * block of 64 at most.
 *
 * Together: a group's load begins once all ranks have come, and ends in all ranks at one time.
 * Each has succeeded then, or none has: a rank that dies, fails, is cancelled, does not come or
 * stops is a failure in the others.  A rank that has no tensors to load takes part, too.
 *
 * Nothing is left: the ranks meet at an abstract socket, and share memory without a name, and both
 * end with the processes.  The socket belongs to the network namespace: containers that have
 * namespaces of their own do not meet.
 *
 * Trust: another user's process is refused.  A process of the same user that is no rank, or a
 * broken one, cannot harm a rank's memory, but it can make the load fail or give wrong bytes.
 *
 * Groups of several machines ("tcp:", "dir:").  HOST:PORT is the door: the first rank that can listen
 * there listens, and the others connect; so HOST is a name or an address of the machine of one of
 * them.  If HOST has several addresses, the door is at each of them that its machine has.  NAME
 * keeps groups apart that use one door by mistake.  "dir:FOLDER/NAME" needs no address: each rank
 * writes a file NAME.ID.member, with the addresses of its machine, into the folder, and removes the
 * file at the end.  All ranks must see the folder (a shared file system).
 *
 * A load begins once n_ranks have come, or, if n_ranks is 0, nobody new has come for a second; after
 * the timeout, with those that are there.  The others do not wait for a rank that came and died.  A
 * rank that comes when others have begun takes part from
 * a place on that they have not reached: some tens of MiB ahead, or, if digests are made, the
 * beginning of the next tensor or file.  It reads the bytes before by itself, or asks the others for them if it has no
 * files.  A rank that has all that it wants stays until those that need its bytes have them.
 *
 * A rank that dies, hangs for 5 s or is cut off is left out, and others read its part.  If a child of
 * fork() outlives the rank, this takes 5 s, too: the child keeps the rank's connections open.  A rank
 * that is slow waits alone: after some seconds the others do not wait for it, and it reads by itself
 * the bytes that it lacks.  A rank whose bytes were wrong (each cell of 2 MiB that crosses the
 * network has an XXH3-128) is asked no more.  If a rank's storage gave it wrong bytes, the others fail
 * that compare digests of tensors (HOIST_LOAD_VERIFY).  A rank fails if its own load fails, if its files differ
 * from the group's, or if it does not know the group's secret.
 *
 * Ranks of one user on one machine share memory, as those of a "shm:" group do: a machine's network
 * carries each byte once, however many ranks the machine has.  A broken rank of the same user can
 * give its neighbours wrong bytes.  Without UCX (libucp.so.0) a rank reads all from storage, also
 * beside ranks of its own machine, and its report says so.
 *
 * The same files: names, types, shapes and places of all tensors, metadata (with the digests that
 * files of `hoist cp --digest` hold), sizes of files, and 64 blocks from all over the files are
 * compared; and, between two ranks that both have digests of all tensors, in the files or kept beside
 * them (hoist_checkpoint_keep_digests()), the digests.  Times and inodes may differ.
 *
 * Secret: a rank proves that it knows the group's secret, and asks the same of the other, before it
 * says or learns anything.  The secret is `secret`, or the environment's HOIST_GROUP_SECRET, or the
 * text of the file that HOIST_GROUP_SECRET_FILE names: 16 bytes and more.  Without any, ranks of one
 * user meet on one machine alone, at a loopback address.  Nothing is encrypted, and a program that
 * reaches UCX's ports can harm the process: doc/group.md says which network is assumed.
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
			      * once the load has ended.  Or "tcp://HOST:PORT/" and 1 to 63 bytes;
			      * [HOST] for an address of IPv6; or "dir:FOLDER/" and 1 to 63 bytes */
	unsigned rank;       /* shm: 0 to n_ranks - 1, each once; tcp: the same, if n_ranks is not 0.
			      * A rank that dies and comes again has its rank again */
	unsigned n_ranks;    /* shm: 1 to 64; tcp: 0 (unknown) to 128 */
	uint64_t timeout_ns; /* how long the ranks wait for one that has not come, or that gives no
			      * sign of life (it is stopped).  100 ms and more; 0: 30 s */
	const char *secret;  /* tcp: a text of 16 bytes and more that all members know; NULL: the
			      * environment's */
} hoist_group;

/* Opens the checkpoint at @path as hoist_checkpoint_open() does.  If there is nothing at @path, or
 * files are missing there (an index names one, a GGUF model has fewer parts, a folder is empty), and
 * the group is a "tcp:" group, a rank that has all files shows them: names, types, shapes, metadata,
 * and the digests that the files hold or that are kept beside them.
 * Such a checkpoint is loaded by hoist_group_load() alone, with the same group; the bytes of the
 * missing files then come from the other ranks.  The missing files have the names that they have on that
 * rank's machine, in the folder @path, or beside the file @path.  Blocks until such a rank has shown the
 * files, or until the group's timeout.
 * Returns: 0; -EINVAL (a file at @path is not the group's: it has another size, or differs outside of the
 *   tensors, or in blocks of the tensors that are compared); as hoist_checkpoint_open(); as hoist_group_load() for the group; -ENODATA,
 *   -ECONNREFUSED and the like (no rank has shown the files within the timeout); -ETIMEDOUT; -EACCES (the
 *   secret is not the group's); -ENOTSUP (more than 512 MiB of the files are no tensor's, or
 *   are kept digests; a file's name has 200 bytes or more; files in different folders of an index have one
 *   name; the index has files in folders, which sort otherwise without these folders). */
HOIST_API int hoist_group_open(const hoist_group *group, const char *path, unsigned flags,
			       hoist_checkpoint **ret);

/* Starts this rank's part of a load.  All else is as hoist_load_start() and the functions of
 * hoist/load.h say, with these exceptions: HOIST_IO_MAP, `order` and window_bytes are refused,
 * HOIST_IO_ADAPTIVE is AUTO; chunk_bytes is 2 MiB at most.  A caller that drives its load and makes
 * no step within the timeout is a rank that has stopped ("shm:") or is slow ("tcp:").
 *
 * Streaming (HOIST_LOAD_STREAM): a rank has tensors before the others have all of theirs, and keeps
 * them if another rank fails later.  hoist_load_next() gives 0 once all ranks have all ("shm:"), or
 * those that need this one ("tcp:").  There is no window: a rank whose window is full would hold the
 * bytes that all ranks wait for.
 *
 * hoist_load_next() and hoist_load_wait_for() give -ECONNRESET where hoist_load_wait() gives
 * -ETIMEDOUT: from these two that means "not yet".
 *
 * In place (`into`): buffers are untouched, whole or torn as after any load, also if another rank
 * died.  The ranks wait for one whose buffers' streams are busy as for one that has not come.
 *
 * The report is this rank's: direct_bytes and cached_bytes are those that it read, for all.
 *
 * hoist_load_wait() and the like then also give, with "shm:":
 *   -ECONNRESET (a rank died, failed or was cancelled; the text names the rank);
 *   -ETIMEDOUT (a rank did not come within the timeout, or stopped; the text names the rank);
 *   -EEXIST (this rank is there already; for rank 0: another group has the name);
 *   -EINVAL (a rank gave another n_ranks, or another checkpoint: files of other sizes, times or
 *   inodes); -EPROTO (a rank has another version of hoist); -EPERM (another user's process has the
 *   name); -EBADMSG (a rank sent nonsense).
 * With "tcp:":
 *   -EINVAL (the group has other files; until the timeout, at the door is a group of another
 *   name); -ENOSPC (128 ranks have come to the group, with those that have gone: the limit);
 *   -ECONNRESET (no rank that is left has bytes that this one needs; the text names the file, and
 *   the ranks that died, hung or were cut off);
 *   -EIO (the same, and a rank that has the file could not read them: the text names the rank, and
 *   says what failed there);
 *   -EACCES (the secret is not the group's).
 * With both: -EBADMSG of HOIST_LOAD_VERIFY (the text names the ranks that read the damaged tensor's
 *   bytes from storage, too); -EDQUOT (a budget below 16 MiB and two staging slots, or one of which
 *   others left no room for them within the timeout).
 *
 * Returns: 0; as hoist_load_start(); -EINVAL (no name, no such rank, a timeout too short; a secret
 *   too short); -ENOTSUP (an option that groups do not have; a name of another kind); -EHOSTUNREACH
 *   (nobody knows HOST); as open() (FOLDER); -EACCES (no secret, and HOST is no loopback address; a
 *   secret's file that others may read). */
HOIST_API int hoist_group_load(const hoist_group *group, hoist_checkpoint *checkpoint,
			       const hoist_load_options *options, hoist_load **ret);

/* The share of a rank of a "tcp:" group in the group's work. */
typedef struct hoist_group_report {
	size_t size;             /* in: sizeof(hoist_group_report) */
	unsigned n_members;      /* ranks that took part, with this one */
	uint64_t storage_bytes;  /* that this rank read, for itself and others: whole blocks of 4 KiB */
	uint64_t received_bytes; /* that it got from others */
	uint64_t sent_bytes;     /* that it gave to others */
	uint64_t n_refused;      /* times that another rank did not have the bytes that this one asked for */
	uint64_t n_late;         /* times that this rank did not wait any longer for another */
	const char *note;        /* which members did not come, or left before their end, and why; "": none.
				  * Valid as long as the load, as are the texts below */
	uint64_t n_damaged;      /* times that bytes of another rank were wrong: they came from elsewhere
				  * then */
	const char *damage;      /* the first eight ranks whose bytes were wrong, as this rank has seen or others have
				  * said, how often, and what to do; "": none */
	const char *way;         /* the ways of the bytes between ranks: UCX's transports and devices,
				  * "tcp/eth0", and why bytes for a device passed through slots of the
				  * host's; memory that ranks of one machine share; "": none went */
} hoist_group_report;

/* Fills @report up to report->size.  Returns: 0; -EAGAIN (the load has not ended); -ENOTSUP (the load
 *   is of no "tcp:" group); -EINVAL (report->size is 0 or larger than this library knows).
 * Threads: any. */
HOIST_API int hoist_group_get_report(hoist_load *load, hoist_group_report *report);

/* A rank of a "tcp:" group, as the rank that is asked sees it. */
typedef struct hoist_group_member {
	size_t size; /* sizeof(hoist_group_member) of the library; fields may be added at the end */
	uint64_t id; /* random */
	const char *address;     /* at which it listens, "10.0.0.1:34567" */
	int has_files;           /* 1: it has files of the checkpoint: all, or some */
	int begun;               /* 0: it waits for others */
	uint64_t bytes;          /* of the checkpoint, in cells of 2 MiB, and */
	uint64_t done_bytes;     /* those of them that the rank has, or does not want */
	uint64_t storage_bytes;  /* that it read from storage, */
	uint64_t received_bytes; /* got from others, */
	uint64_t sent_bytes;     /* and gave to others */
	unsigned rank;           /* below n_ranks */
	unsigned n_ranks;        /* of the group; 0: unknown, and `rank` says nothing */
} hoist_group_member;

/* Calls @each for each rank of a "tcp:" group that is loading now, in this process or another, until a
 * call does not return 0; a negative value is the result then.  The member is valid during the call.
 * Figures are at most 100 ms old.
 * Returns: 0; -ECONNREFUSED and the like (no rank of the group is there); -EACCES (the secret is not
 *   the group's); -EINVAL (at the door is a group of another name); -ETIMEDOUT; -ENOTSUP ("shm:"). */
HOIST_API int hoist_group_look(const hoist_group *group,
			       int (*each)(void *context, const hoist_group_member *member),
			       void *context);

HOIST_END

#endif
