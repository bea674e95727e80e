/* SPDX-License-Identifier: MIT */
/* io/ahead.h - threads that bring what files hold into the page cache, and into maps of them,
 * before anyone touches it.
 *
 *     part   |== done ==|-- a slice of one thread --|............|
 *                        WILLNEED, read, map
 *
 * Every byte is read once with read(2), into memory that is thrown away: a bad sector or a file
 * that shrank is then an error with a place, where a touch of the map would have been SIGBUS, and
 * MAP_POPULATE or mlock(2), on many kernels, a call that never returns.  Only what has been read so
 * is mapped in, with MADV_POPULATE_READ; a kernel without that maps it when it is touched, from the
 * page cache.  Nothing is copied for a private map: that is what a write does, later.
 *
 * Parts on several disks (disks.h) are read beside each other: a thread takes its next slice from
 * the disk at which the fewest threads are.
 *
 * Threads: one owner; cancel and progress from any thread.  fork: the child may only stop.
 */
#ifndef HOIST_IO_AHEAD_H
#define HOIST_IO_AHEAD_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of one file, in the order in which they will be wanted of its disk. */
struct hoist__ahead_part {
	int fd;		  /* open for reading until stop; the owner's */
	const char *path; /* for messages; likewise */
	uint64_t offset;
	uint64_t bytes;
	void *address; /* where the byte at `offset` is in a map of the file; NULL: nowhere */
	unsigned disk; /* below HOIST__MAX_DISKS */
};

struct hoist__ahead;

/* Starts reading with @n_threads threads (0: 4 for each disk).  @parts are copied.
 * Returns: 0; -ENOMEM, also if the system gives no thread; -EPERM, a filter forbids them. */
int hoist__ahead_start(const struct hoist__ahead_part *parts, size_t n_parts, unsigned n_threads,
		       struct hoist__ahead **ret);

/* Bytes so far, and in all.  Never blocks. */
void hoist__ahead_progress(const struct hoist__ahead *ahead, uint64_t *done, uint64_t *total);

/* Waits until all is there, or @timeout_ns has passed.
 * Returns: 0; -EAGAIN on time-out; the first failure with its text: -ENODATA the file is shorter,
 *   -EIO and the like, with file and offset; -ENOMEM; -ECANCELED. */
int hoist__ahead_wait(struct hoist__ahead *ahead, uint64_t timeout_ns);

/* After a failure of hoist__ahead_wait(): the part in which it was, and where in the file; NULL: it
 * was not at a place. */
const struct hoist__ahead_part *hoist__ahead_failed(struct hoist__ahead *ahead, uint64_t *ret);

/* Ends it after the reads that are under way, of 256 KiB at most each.  Never blocks. */
void hoist__ahead_cancel(struct hoist__ahead *ahead);

/* Cancels, ends the threads and frees.  Takes NULL. */
void hoist__ahead_stop(struct hoist__ahead *ahead);

#endif
