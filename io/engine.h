/* SPDX-License-Identifier: MIT */
/* io/engine.h - many reads and writes in flight; the caller that submits them reaps them.
 *
 * One interface, two implementations: io_uring (uring.c), and a pool of threads that call
 * pread (threads.c) where io_uring is refused: container seccomp policies,
 * kernel.io_uring_disabled, gVisor, old kernels, memory limits.  The choice is made by probing
 * when an engine is created, never guessed from a kernel version.
 *
 * A request is the caller's own struct; the engine holds a pointer to it from
 * submit until it is reaped and never allocates per request.  Its life:
 *
 *     idle --submit--> in flight --reap--> idle
 *
 * The engine finishes what it started:
 *   - A short read or write is continued where it stopped: a direct one if that place is aligned,
 *     otherwise through the page cache.
 *   - EINTR and EAGAIN are repeated.
 *   - A direct request that the file system refuses (EINVAL, EOPNOTSUPP), or whose memory the
 *     kernel cannot hand to a disk (EFAULT: pages of a driver), is finished through the page cache.
 *     So is a direct read that fails with an I/O error, but never such a write: the cache would
 *     accept the bytes, which proves nothing about the disk.
 *   - A read that fails in the page cache as well is rescued (rescue.h): if it still ends with an
 *     I/O error, `done` is where the bad block begins.
 *
 * A request ends in one of:
 *     result 0 and done >= need
 *     -ENODATA   the file ends before offset + need (it has shrunk)
 *     -ECANCELED
 *     other      the kernel's error; `done` bytes are valid (written: handed over, which is
 *                not yet on the disk: fsync is the caller's)
 *
 * A request may read rows of a file straight to their places in memory (`rows`): one request for
 * many small reads.  Only bytes that lie in the page cache are read so; a thread of the crew makes
 * the calls (rows.h).  Bytes of the request are then counted row by row, without the gaps.
 *
 * Disks: where options.files lie on several disks (disks.h), each disk has `depth` requests of its
 * own, so that a slow disk whose queue is full takes nothing from the others.  Room counts all
 * disks together.
 *
 * Threads: an engine is driven by one thread at a time.  With SHARED, each call may come
 * from another thread (externally ordered); without, every call must come from the creator
 * (io_uring's single issuer).  Buffers must stay valid and untouched while in
 * flight.  fork: the child gets -ESTALE from every call and may only destroy.
 */
#ifndef HOIST_IO_ENGINE_H
#define HOIST_IO_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "io/file.h"

enum hoist__engine_kind { HOIST__ENGINE_AUTO, HOIST__ENGINE_URING, HOIST__ENGINE_THREADS };

/* The next call for a request in flight (request.c):
 *
 *     DIRECT --refused, failed, stopped at an unaligned place--> CACHED
 *     CACHED --a read meets a bad block--> RESCUE --bytes--> CACHED
 *     all is read, and the pages are to be dropped --> DROP
 *     a request for work: WORK alone */
enum hoist__request_state {
	HOIST__REQUEST_DIRECT, /* past the page cache */
	HOIST__REQUEST_CACHED, /* through the page cache */
	HOIST__REQUEST_RESCUE, /* reads around the bad block */
	HOIST__REQUEST_DROP,   /* drops the pages from the page cache */
	HOIST__REQUEST_WORK    /* calls the caller's function */
};

/* Rows of @bytes, @stride apart in the file, and @address_stride apart in memory. */
struct hoist__rows {
	uint64_t offset;
	unsigned char *address;
	size_t bytes;
	size_t n;
	uint64_t stride;
	ptrdiff_t address_stride;
};

/* One read or write, or a piece of the caller's own work.  The caller fills the first group; the
 * engine the second.
 *
 * Work: with `work`, the request moves no bytes of a file.  A thread of the engine's calls the
 * function once, and the result of the call is the request's.  The threads that copy out of the
 * page cache make such calls (crew.h).  If the system gives the engine no thread, the submitting
 * thread makes the call.  The engine counts, reaps and cancels work as it does reads: cancelled
 * before its call, the request ends with -ECANCELED, and no call is made. */
struct hoist__request {
	const struct hoist__file *file;
	uint64_t offset;	/* direct: a multiple of offset_align */
	unsigned char *address; /* direct: a multiple of memory_align */
	size_t bytes; /* room; direct: a multiple of offset_align, may pass the end of file */
	size_t need;  /* the request succeeds when this much is read; <= bytes */
	bool direct;  /* through direct_fd; else through the page cache */
	int buffer;   /* index of the registered buffer that holds `address`, or -1 */
	bool write;   /* memory to file; need == bytes; `file` is one of hoist__output's */
	bool hot;     /* cached: the bytes are known to lie in the page cache, so threads copy them;
		       * no ring could do that as fast */
	/* Rows: hot, no write; `offset` and `address` are the first row's, and `bytes` and `need`
	 * the sum of all.  The array is the caller's until the request is reaped. */
	const struct hoist__rows *rows;
	size_t n_rows; /* 0: one range */
	/* Hot: memory that has no pages yet.  The thread that copies bytes to a part of it
	 * populates that part just before (with rows: all of it), and so finds it in its cache. */
	unsigned char *fresh;
	size_t fresh_bytes;
	bool drop; /* a read of bytes that were not in the page cache: the pages that the read
		    * brings in are dropped again; bytes <= 1 GiB.  The kernel's readahead
		    * for `file` is switched off for good */
	int (*work)(void *owner); /* returns 0 or a negative errno; NULL: a read or write.  Beside
				   * it only `file` (whose disk's queue the work waits in) and
				   * `owner` count */
	void *owner;		  /* the caller's */

	int result;		 /* 0 or negative errno, valid once reaped */
	size_t done;		 /* bytes read or written from `offset` on */
	size_t direct_done;	 /* of these, past the page cache */
	bool fell_back;		 /* a direct request was finished through the cache */
	struct hoist__list node; /* engine-private while in flight, like all that follows */
	bool cancelled;
	enum hoist__request_state state;
	unsigned n_again;      /* EINTR and EAGAIN in a row, since the last progress, */
	unsigned n_called_off; /* and how often the kernel cancelled the request */
	unsigned n_parts;      /* that threads are serving */
	size_t taken;	       /* bytes given to threads so far */
	size_t stopped;	       /* where the first part that stopped short ended; stop_result: why */
	int stop_result;
};

struct hoist__engine_buffer {
	void *address;
	size_t bytes;
};

#define HOIST__ENGINE_MAX_DEPTH 4096u

struct hoist__engine_options {
	enum hoist__engine_kind kind; /* AUTO: io_uring, or threads if that is refused */
	unsigned depth;		      /* most requests in flight on a disk, 1..4096 */
	unsigned n_threads;	      /* threads engine; 0: by the machine and depth */
	bool shared;		      /* see Threads above */
	/* Registered with io_uring where the kernel allows.  A refusal (memlock) is no
	 * error; reads are only slower.  The memory must outlive the engine. */
	const struct hoist__engine_buffer *buffers;
	unsigned n_buffers;
	const struct hoist__file *const *files;
	unsigned n_files;
};

struct hoist__engine;

/* Returns: 0; -EINVAL; -ENOMEM; with kind URING the kernel's refusal (-EPERM,
 *   -ENOSYS, ...) and a text that explains it. */
int hoist__engine_create(const struct hoist__engine_options *options, struct hoist__engine **ret);

/* Cancels and waits for what is in flight; unreaped requests are forgotten. Takes NULL. */
void hoist__engine_destroy(struct hoist__engine *engine);

/* "io_uring" or "threads", and the reason for the choice: "io_uring: single issuer, 16 registered
 * buffers", "io_uring refused: EPERM (seccomp or kernel.io_uring_disabled); threads".  Valid for
 * the engine's life. */
const char *hoist__engine_name(const struct hoist__engine *engine);
const char *hoist__engine_reason(const struct hoist__engine *engine);

/* The number of requests that submit would take now. */
unsigned hoist__engine_room(const struct hoist__engine *engine);

/* The number of requests that are submitted and not reaped. */
unsigned hoist__engine_in_flight(const struct hoist__engine *engine);

/* Takes @n requests, all or none.  The io_uring engine may start them only within the next
 * hoist__engine_reap(): so one system call both starts reads and waits for others.
 * Returns: 0; -EAGAIN if room < n; -EINVAL for a misaligned direct request (a
 *   bug) or an empty one; -ESTALE; the kernel's error if the ring is broken. */
int hoist__engine_submit(struct hoist__engine *engine, struct hoist__request *const *requests,
			 unsigned n);

/* The place in the file of the request's byte `done`: the first one that was not read. */
uint64_t hoist__request_offset(const struct hoist__request *request);

/* Gives up to @max finished requests; waits up to @timeout_ns (0: does not wait;
 * UINT64_MAX: no limit) for the first one or for hoist__engine_wake().  With nothing in flight
 * only a wake ends the wait early.
 * Returns: how many; -EINTR never; -ESTALE. */
int hoist__engine_reap(struct hoist__engine *engine, struct hoist__request **ret, unsigned max,
		       uint64_t timeout_ns);

/* Makes a waiting hoist__engine_reap(), or the next one that would wait, return at once, with the
 * finished requests or none: something else that the caller waits for has happened (a copy to a
 * device).  Threads: any, at any time before hoist__engine_destroy(); never blocks. */
void hoist__engine_wake(struct hoist__engine *engine);

/* True once a request was reaped with an error although the kernel may still be serving it:
 * io_uring_enter has been refused since the submission (by a filter installed later), so the
 * request's end can no longer be seen.  No memory given to this engine may then be freed or used
 * again: it must stay as it is for the life of the process. */
bool hoist__engine_abandoned(const struct hoist__engine *engine);

/* Asks for everything in flight to end soon.  Each request is still reaped, with -ECANCELED or with
 * its own result. */
void hoist__engine_cancel(struct hoist__engine *engine);

/* Tells whether this process can use io_uring.  The first call makes a real ring; a lasting verdict
 * is kept.  Returns: 0; the refusal, with its text.  For doctor. */
int hoist__uring_probe(char *note, size_t note_bytes);

#endif
