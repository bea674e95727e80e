/* SPDX-License-Identifier: MIT */
/* io/ahead.h - threads that read parts of files into the page cache, and fault them into maps,
 * before the caller touches them.
 *
 *     part   |== done ==|-- a slice of one thread ----------|............|
 *                        |= piece =|= piece =|->|  window  |
 *                         mapped    mapped    read, ahead of it the kernel
 *
 * Every byte is first read: with sendfile(2) to /dev/null, which copies nothing, or, where a file
 * system does not lend its pages, with pread(2) into a scratch buffer.  A bad sector or a file that
 * shrank is then an error with an offset.  Touching the map instead would raise SIGBUS, and
 * MAP_POPULATE or mlock(2) would never return on many kernels.  Only bytes that were read are
 * mapped in, with MADV_POPULATE_READ, while the kernel reads the next ones.
 *
 * A long part of a local file is streamed: each thread reads its slice in order, through an open
 * file description of its own, so that the kernel's readahead runs ahead of the thread, in large
 * folios.  The window may bring some MiB behind the part's end.  The kernel is
 * told each piece of a short part, of a network's file, and of a file that cannot be opened again,
 * with WILLNEED, and brings no other byte.
 *
 * Kernels without MADV_POPULATE_READ map a page when it is touched, from the page cache.
 * Populating copies nothing for a private map: the first write to a page does.
 *
 * Parts on several disks (disks.h) are read in parallel: a thread takes its next slice from the
 * disk that the fewest threads are reading.
 *
 * Threads: one owner; cancel and progress from any thread.  fork: the child may only stop.
 */
#ifndef HOIST_IO_AHEAD_H
#define HOIST_IO_AHEAD_H

#include <stddef.h>
#include <stdint.h>

/* A range of one file.  The parts of a disk are in the order in which the caller will want them. */
struct hoist__ahead_part {
	int fd;		  /* open for reading until stop; owned by the caller */
	const char *path; /* for messages; likewise */
	uint64_t offset;
	uint64_t bytes;
	void *address; /* of the byte at `offset` in a map of the file; NULL: not mapped */
	unsigned disk; /* below HOIST__MAX_DISKS */
};

struct hoist__ahead;

/* Starts reading with @n_threads threads (0: 4 for each disk).  @parts are copied.
 * Returns: 0; -ENOMEM, also if the system gives no thread; -EPERM, a filter forbids them. */
int hoist__ahead_start(const struct hoist__ahead_part *parts, size_t n_parts, unsigned n_threads,
		       struct hoist__ahead **ret);

/* *done: bytes read so far; *total: bytes of all parts.  Never blocks. */
void hoist__ahead_progress(const struct hoist__ahead *ahead, uint64_t *done, uint64_t *total);

/* Waits until all parts are read, or @timeout_ns has passed.
 * Returns: 0; -EAGAIN on time-out; the first failure with its text: -ENODATA the file is shorter,
 *   -EIO and the like, with file and offset; -ENOMEM; -ECANCELED. */
int hoist__ahead_wait(struct hoist__ahead *ahead, uint64_t timeout_ns);

/* After a failure of hoist__ahead_wait(): the part that failed, and the offset in its file.  NULL:
 * the failure has no offset. */
const struct hoist__ahead_part *hoist__ahead_failed(struct hoist__ahead *ahead, uint64_t *ret);

/* Stops reading after the reads in flight, each at most 256 KiB.  Never blocks. */
void hoist__ahead_cancel(struct hoist__ahead *ahead);

/* Cancels, joins the threads and frees @ahead.  Takes NULL. */
void hoist__ahead_stop(struct hoist__ahead *ahead);

#endif
