/* SPDX-License-Identifier: MIT */
/* io/lazy.h - memory of its own that is filled from files when it is touched (userfaultfd(2)).
 *
 * One range of anonymous memory, on a node, in huge pages, cut into windows of 2 MiB:
 *
 *     file A   ....[ range 0 ]..........      file B  [ range 1 ].....
 *                   |                                  |
 *     memory   [ w0 ][ w1 ][ w2 ]              [ w3 ][ w4 ]
 *
 *     EMPTY --a touch, or ahead of one--> FILLING --> TRIED
 *
 * A touch of an EMPTY window stops its thread; one of ours reads the whole window, directly where
 * the file can and the page cache does not have it, into a huge page of its own, and moves that
 * page into place (UFFDIO_MOVE; copies it with UFFDIO_COPY where the kernel cannot).  The more
 * windows before it are filled already, the more of those behind it are filled ahead.  What of a
 * window could not be read is tried again page by page, by whoever touches it.
 *
 * A page that cannot be read (an I/O error; no memory; the file has shrunk and no longer has all
 * that it held of it when it was opened) is SIGBUS to all who touch it, for good, as with a map;
 * never zeros.  (Where a process has all the maps it may have, and that cannot be made so, the
 * whole memory becomes SIGSEGV.)  The text is kept for hoist__lazy_error().  What was read stays
 * readable, whatever becomes of the file.  Writes to the file meanwhile are an error there, too:
 * memory may hold parts of both versions.
 *
 * The kernel must let us serve its own accesses as well (a write(2) from the memory, a driver that
 * pins it): where only those of user mode could be served, they would fail with EFAULT, so that
 * opening is refused there.
 *
 * Once every window is filled, it is plain memory: no thread, no descriptor, no file is needed any
 * more.  fork: until then a child does not have the memory (SIGSEGV), as nobody would fill it
 * there; then it has its own copy, like of all plain memory.  A page that the program gives back
 * before (MADV_DONTNEED) is read again.
 *
 * Threads: any; open and close are the owner's.
 */
#ifndef HOIST_IO_LAZY_H
#define HOIST_IO_LAZY_H

#include <stddef.h>
#include <stdint.h>

#include "io/file.h"
#include "numa/place.h"

#define HOIST__LAZY_WINDOW_BYTES ((size_t)2 << 20)

struct hoist__lazy_range {
	const struct hoist__file *file; /* open until close */
	uint64_t begin;			/* in it, */
	uint64_t end;			/* behind `begin`, at most the file's size */
	size_t at; /* set by open: where the byte `begin` is, in bytes from the memory's first */
};

struct hoist__lazy;

/* Reserves memory for @ranges, on @placement.
 * Returns: 0; -EPERM, -ENOSYS, ... userfaultfd refused, with the remedy; -ENOMEM; -EAGAIN no
 * thread. */
int hoist__lazy_open(struct hoist__lazy_range *ranges, size_t n_ranges,
		     const struct hoist__placement *placement, struct hoist__lazy **ret);

unsigned char *hoist__lazy_data(const struct hoist__lazy *lazy);
size_t hoist__lazy_bytes(const struct hoist__lazy *lazy);
/* "filled on touch (userfaultfd), moved in as huge pages".  For the lazy's life. */
const char *hoist__lazy_note(const struct hoist__lazy *lazy);

/* Fills the windows of [at, at+bytes) without waiting for a touch.  What of them cannot be read is
 * an error only if it is in what was wanted.  Returns: 0; -ENOMEM. */
int hoist__lazy_want(struct hoist__lazy *lazy, size_t at, size_t bytes);

/* No more windows are begun that nobody touches.  Never blocks. */
void hoist__lazy_unwant(struct hoist__lazy *lazy);

/* Bytes of wanted windows that are there, and of all of them. */
void hoist__lazy_progress(struct hoist__lazy *lazy, uint64_t *done, uint64_t *total);

/* Waits until all that was wanted is there, or @timeout_ns has passed.
 * Returns: 0; -EAGAIN on time-out; as hoist__lazy_error(). */
int hoist__lazy_wait(struct hoist__lazy *lazy, uint64_t timeout_ns);

/* What filling has met so far, with the first text.
 * Returns: 0; -ENODATA a file shrank; -EBADMSG it was written to; -EIO and the like; -ESTALE in a
 *   child that does not have the memory. */
int hoist__lazy_error(struct hoist__lazy *lazy);

/* Where that was: the file, and the byte of it; NULL: it was not at a place. */
const struct hoist__file *hoist__lazy_failed(struct hoist__lazy *lazy, uint64_t *ret);

/* Nobody may use the memory any more.  Takes NULL. */
void hoist__lazy_close(struct hoist__lazy *lazy);

#endif
