/* SPDX-License-Identifier: MIT */
/* io/uring-private.h - the engine on io_uring, shared by uring.c (making, waiting, ending) and
 * uring-requests.c (requests to the kernel or the crew, and back).
 *
 *     submit -> pending --(a free SQE)--> active --CQE--> policy --> finished -> reap
 *        |         ^                                        |            ^
 *        |         +------------- next again ---------------+            |
 *        +--(hot)--> crew -----------------------------------------------+
 *
 * The SQ ring may be smaller than the depth, and each disk has a queue of its own: a request
 * without an SQE stays pending there.  The CQ ring cannot overflow: it has room for
 * every request, one cancel and one ear.
 *
 * The ear is a read of an eventfd, by which the crew and hoist__engine_wake() end a wait.  The ring
 * makes the read, so that the owner needs no call to empty the eventfd.  Only an owner that is
 * about to sleep is worth a write: the owner sets `sleeping`, looks for ended requests and for a
 * wake once more, and enters the kernel.  A signal comes behind its cause, takes `sleeping` back,
 * and writes if the flag was set.  So either the owner's last look finds the cause, or the signal
 * finds the flag.
 *
 * A ring breaks if io_uring_enter fails for good (a seccomp filter installed after
 * creation, a call from the wrong thread).  Requests that the kernel has not seen end
 * with that error.  The others end when they complete, or are abandoned after a while: a
 * completion that only an enter would show is never seen.
 */
#ifndef HOIST_IO_URING_PRIVATE_H
#define HOIST_IO_URING_PRIVATE_H

#include <stdatomic.h>

#include "io/crew.h"
#include "io/engine-impl.h"
#include "io/uring.h"

/* The kernel's worker threads that reads of a network file system may occupy. */
#define HOIST__URING_NETWORK_WORKERS 512u

/* user_data of SQEs that are no requests */
#define HOIST__URING_CANCEL 0u
#define HOIST__URING_EAR 1u

struct hoist__uring {
	struct hoist__engine engine; /* first: the two are cast into each other */
	struct io_uring ring;
	struct hoist__uring_mode mode;
	unsigned disk_depth;
	struct hoist__disks disks;
	struct hoist__disk_queue {
		struct hoist__list pending;
		unsigned n_active;
	} disk_queues[HOIST__MAX_DISKS];
	struct hoist__list active;
	struct hoist__list finished;
	struct hoist__crew *crew; /* NULL until there is work for it */
	bool no_crew;		  /* making the crew failed */
	bool no_workers;	  /* the kernel could not start its own threads */
	unsigned n_hot_threads;
	int event_fd;
	atomic_bool sleeping; /* the owner is about to wait, and no signal has come since */
	atomic_bool woken;    /* hoist__engine_wake() */
	bool listening;	      /* the ear is in flight */
	bool deaf;	      /* the kernel refused the ear: waits are cut short */
	bool cancelling;      /* a cancel is in flight */
	bool cancelled;	      /* active requests are to end: */
	uint64_t cancel_at;   /* when the kernel is asked again */
	int broken;	      /* 0, or the errno that enter failed with */
	uint64_t broken_deadline;
	struct hoist__uring_files files;
	struct hoist__uring_buffers buffers;
};

static inline struct hoist__uring *hoist__uring_of(struct hoist__engine *engine)
{
	return HOIST__CONTAINER_OF(engine, struct hoist__uring, engine);
}

static inline struct hoist__request *hoist__uring_request(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__request, node);
}

/* Notes the result of io_uring_enter: a failure that is not transient breaks the ring.  Returns: 0;
 * @err. */
int hoist__uring_note(struct hoist__uring *u, int err);

/* Gives an SQE, submitting a full ring first; NULL if the kernel takes nothing now. */
struct io_uring_sqe *hoist__uring_sqe(struct hoist__uring *u);

/* Makes SQEs for pending requests, as many as each disk may have in flight. */
void hoist__uring_fill(struct hoist__uring *u);

/* Engine operations; ended requests go to `finished`. */
int hoist__uring_submit(struct hoist__engine *engine, struct hoist__request *const *requests,
			unsigned n);
void hoist__uring_collect(struct hoist__uring *u);

/* Ends the owner's wait, if the owner waits; @context is the ring.  Threads: any. */
void hoist__uring_signal(void *context);

/* Makes the crew at the first request for it.  False: the system gives no threads. */
bool hoist__uring_has_crew(struct hoist__uring *u);

#endif
