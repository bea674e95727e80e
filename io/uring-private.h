/* SPDX-License-Identifier: MIT */
/* io/uring-private.h - the engine on io_uring, shared by uring.c (making, waiting, ending) and
 * uring-move.c (requests to the kernel or the crew, and back).
 *
 *     submit -> pending --(a free SQE)--> active --CQE--> policy --> finished -> reap
 *        |         ^                                        |            ^
 *        |         +------------- next again ---------------+            |
 *        +--(hot)--> crew -----------------------------------------------+
 *
 * The SQ ring may be smaller than the depth, and each disk has a queue of its own: what has no
 * SQE stays pending there.  The CQ ring cannot overflow: it has room for
 * every request, one cancel and one poll.
 *
 * That poll is of an eventfd, by which the crew and hoist__engine_wake() end a wait.
 *
 * A ring breaks if io_uring_enter fails for good (a seccomp filter installed after
 * creation, a call from the wrong thread): requests the kernel has not seen end
 * with that error, the others when they complete, or are abandoned: an end that
 * only an enter would show is never seen.
 */
#ifndef HOIST_IO_URING_PRIVATE_H
#define HOIST_IO_URING_PRIVATE_H

#include <stdatomic.h>

#include "io/crew.h"
#include "io/engine-impl.h"
#include "io/uring.h"

/* Threads of the kernel's that reads of a network file system may have. */
#define HOIST__URING_NETWORK_WORKERS 512u

/* user_data of what is no request */
#define HOIST__URING_CANCEL 0u
#define HOIST__URING_POLL 1u

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
	bool no_crew;		  /* it was refused */
	bool no_workers;	  /* so were the kernel's own threads */
	unsigned n_hot_threads;
	int event_fd;
	atomic_bool signalled; /* event_fd has been written to */
	atomic_bool woken;     /* hoist__engine_wake() */
	bool polling;	       /* the poll of event_fd is in flight */
	bool cancelling;       /* a cancel is */
	bool cancelled;	       /* what is active is to end: */
	uint64_t cancel_at;    /* it is asked for again then */
	int broken;	       /* 0, or the errno that enter failed with */
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

/* What io_uring_enter gave: a failure that does not pass breaks the ring.  Returns: 0; @err. */
int hoist__uring_note(struct hoist__uring *u, int err);

/* An SQE, after handing the full ring over if need be; NULL if the kernel takes nothing now. */
struct io_uring_sqe *hoist__uring_sqe(struct hoist__uring *u);

/* SQEs for what is pending, as many as each disk may have. */
void hoist__uring_fill(struct hoist__uring *u);

/* Engine operations; what has ended goes to `finished`. */
int hoist__uring_submit(struct hoist__engine *engine, struct hoist__request *const *requests,
			unsigned n);
void hoist__uring_collect(struct hoist__uring *u);

/* Ends the reaper's wait: from any thread, @context is the ring. */
void hoist__uring_signal(void *context);

/* Once the eventfd is known to be written to: it is read. */
void hoist__uring_hear(struct hoist__uring *u);

/* Threads beside the ring, from the first request for them on; false: none are to be had. */
bool hoist__uring_has_crew(struct hoist__uring *u);

#endif
