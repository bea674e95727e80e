/* SPDX-License-Identifier: MIT */
/* Moves requests to the kernel or the crew, and their results back.
 * The contract is in io/uring-private.h. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "io/uring-private.h"

/* Cached reads of this size or more are handed to the kernel's worker threads.  Smaller ones are
 * made at submission, which costs less than waking a worker.  From a cold cache, the workers' reads
 * run in parallel, each with its whole size read ahead: 4 MiB x 16 gave 1.2 to 1.5 GB/s of a disk's
 * 1.9, threads of our own 1.4 to 1.5.  Reads at submission wait for each other and gave 1.0, for
 * twice the CPU time. */
#define ASYNC_MIN_BYTES (128u << 10)

/* True if a worker of the kernel's must make the call.  The submitting thread must never wait for a
 * server: FUSE asks its server for attributes in the middle of a read, and blocks new requests
 * while it has too many, so even direct reads block. */
static bool for_worker(const struct hoist__uring *u, const struct hoist__request *request,
		       const struct hoist__attempt *a)
{
	const struct hoist__fs *fs = request->file->fs;
	bool loops = u->mode.reads_loop && a->what == HOIST__ATTEMPT_READ;
	return (fs != NULL && fs->network) ||
	       (!a->direct && (loops || a->bytes >= ASYNC_MIN_BYTES));
}

/* How long a broken ring is watched for the requests that the kernel still has. */
#define BROKEN_WAIT_NS (2 * HOIST__NS_PER_S)

/* --- towards the kernel --- */

/* The kernel lacks memory (EAGAIN) or wants its completions taken first (EBUSY): see
 * io_uring_enter(2).  The time of a wait is over (ETIME): see io_uring_wait_cqes(3). */
static bool passing(int err)
{
	return err == -EINTR || err == -EAGAIN || err == -EBUSY || err == -ETIME;
}

int hoist__uring_note(struct hoist__uring *u, int err)
{
	if (err < 0 && !passing(err) && u->broken == 0) {
		u->broken = err;
		u->broken_deadline = hoist__deadline(BROKEN_WAIT_NS);
		hoist__log(io, "io_uring_enter: %s; the ring is given up", strerrorname_np(-err));
	}
	return err < 0 ? err : 0;
}

static struct hoist__disk_queue *queue_of(struct hoist__uring *u,
					  const struct hoist__request *request)
{
	return &u->disk_queues[hoist__disk_of(&u->disks, request->file)];
}

static void prepare_read(struct hoist__uring *u, struct io_uring_sqe *sqe,
			 const struct hoist__request *request, const struct hoist__attempt *a,
			 int fd)
{
	int piece = hoist__uring_buffer(&u->buffers, request->buffer, a->address, a->bytes);
	if (a->what == HOIST__ATTEMPT_WRITE && piece >= 0)
		io_uring_prep_write_fixed(sqe, fd, a->address, a->bytes, a->offset, piece);
	else if (a->what == HOIST__ATTEMPT_WRITE)
		io_uring_prep_write(sqe, fd, a->address, a->bytes, a->offset);
	else if (piece >= 0)
		io_uring_prep_read_fixed(sqe, fd, a->address, a->bytes, a->offset, piece);
	else
		io_uring_prep_read(sqe, fd, a->address, a->bytes, a->offset);
	sqe->rw_flags = a->flags;
	if (for_worker(u, request, a))
		sqe->flags |= IOSQE_ASYNC;
}

static void prepare(struct hoist__uring *u, struct io_uring_sqe *sqe,
		    struct hoist__request *request)
{
	struct hoist__attempt attempt;
	hoist__request_next(request, &attempt);
	HOIST__ASSERT(attempt.what != HOIST__ATTEMPT_RESCUE && attempt.bytes != 0);
	int file = hoist__uring_file(&u->files, request->file, attempt.direct);
	int fd = file >= 0 ? file : attempt.fd;
	if (attempt.what == HOIST__ATTEMPT_DROP)
		io_uring_prep_fadvise(sqe, fd, attempt.offset, attempt.bytes, POSIX_FADV_DONTNEED);
	else
		prepare_read(u, sqe, request, &attempt, fd);
	if (file >= 0)
		sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(sqe, request);
}

struct io_uring_sqe *hoist__uring_sqe(struct hoist__uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
	if (sqe == NULL && hoist__uring_note(u, io_uring_submit(&u->ring)) == 0)
		sqe = io_uring_get_sqe(&u->ring);
	return sqe;
}

static void fill_from(struct hoist__uring *u, struct hoist__disk_queue *queue)
{
	while (u->broken == 0 && queue->n_active < u->disk_depth &&
	       !hoist__list_empty(&queue->pending)) {
		struct io_uring_sqe *sqe = hoist__uring_sqe(u);
		if (sqe == NULL)
			return;
		struct hoist__list *node = hoist__list_pop(&queue->pending);
		hoist__list_push_back(&u->active, node);
		queue->n_active++;
		HOIST__ASSERT(queue->n_active <= u->disk_depth &&
			      queue->n_active <= u->engine.depth);
		HOIST__ASSERT(queue_of(u, hoist__uring_request(node)) == queue);
		prepare(u, sqe, hoist__uring_request(node));
	}
}

void hoist__uring_fill(struct hoist__uring *u)
{
	for (unsigned i = 0; i < u->disks.n; i++)
		fill_from(u, &u->disk_queues[i]);
}

/* --- the crew --- */

void hoist__uring_signal(void *context)
{
	struct hoist__uring *u = context;
	uint64_t one = 1;
	if (atomic_exchange(&u->sleeping, false))
		(void)!write(u->event_fd, &one, sizeof one);
}

/* The ear is cut off by a cancel of all requests, and comes back. */
static void hear(struct hoist__uring *u, int result)
{
	HOIST__ASSERT(u->listening);
	u->listening = false;
	if (result < 0 && result != -ECANCELED && result != -EINTR && !u->deaf) {
		u->deaf = true;
		hoist__log(io, "reading an eventfd: %s; waits are cut short",
			   strerrorname_np(-result));
	}
}

bool hoist__uring_has_crew(struct hoist__uring *u)
{
	if (u->crew != NULL || u->no_crew)
		return u->crew != NULL;
	/* Hot bytes come from memory, whatever their disk: one queue serves all of them. */
	struct hoist__crew_options options = {
		.n_threads = u->n_hot_threads,
		.disks = {.n = 1},
		.ended = hoist__uring_signal,
		.context = u,
	};
	u->no_crew = hoist__crew_create(&options, &u->crew) != 0;
	if (u->no_crew)
		hoist__log(io, "no threads beside the ring: %s", hoist__error_text());
	return !u->no_crew;
}

static bool for_crew(const struct hoist__request *request)
{
	struct hoist__attempt next;
	hoist__request_next(request, &next);
	return next.what == HOIST__ATTEMPT_RESCUE || next.what == HOIST__ATTEMPT_WORK ||
	       (!next.direct && request->hot && !request->write);
}

/* Calls made here are slow, and each waits for the one before, but the requests end.  Returns: as
 * hoist__request_finish(). */
static bool make_here(struct hoist__uring *u, struct hoist__request *request)
{
	struct hoist__attempt attempt;
	if (hoist__request_is_stuck(request) && !u->no_workers) {
		size_t n = strlen(u->engine.reason);
		(void)snprintf(u->engine.reason + n, sizeof u->engine.reason - n,
			       ", no threads of the kernel's could start: raise ulimit -u, or the "
			       "container's pids limit");
		u->no_workers = true;
	}
	hoist__request_next(request, &attempt);
	return hoist__request_finish(request, hoist__attempt_make(&attempt));
}

/* Gives the request to the crew or to its disk's queue, by its next call. */
static void dispatch(struct hoist__uring *u, struct hoist__request *request)
{
	if (for_crew(request) && hoist__uring_has_crew(u)) {
		hoist__crew_submit(u->crew, &request, 1);
	} else if (request->work != NULL) {
		(void)make_here(u, request);
		hoist__list_push_back(&u->finished, &request->node);
	} else {
		hoist__list_push_back(&queue_of(u, request)->pending, &request->node);
	}
}

int hoist__uring_submit(struct hoist__engine *engine, struct hoist__request *const *requests,
			unsigned n)
{
	struct hoist__uring *u = hoist__uring_of(engine);
	if (u->broken != 0)
		return hoist__fail_errno(u->broken, "io_uring_enter");
	HOIST__ASSERT(n <= engine->depth - engine->in_flight);
	for (unsigned i = 0; i < n; i++)
		dispatch(u, requests[i]);
	/* The SQEs go with the reaper's next enter.  If the ring breaks here, reap returns each
	 * request with the error. */
	hoist__uring_fill(u);
	return 0;
}

/* --- back from the kernel --- */

/* True if this thread must make the request's next call: neither the kernel nor a crew can. */
static bool is_mine(struct hoist__uring *u, const struct hoist__request *request)
{
	struct hoist__attempt next;
	hoist__request_next(request, &next);
	return hoist__request_is_stuck(request) ||
	       (next.what == HOIST__ATTEMPT_RESCUE && !hoist__uring_has_crew(u));
}

static void complete(struct hoist__uring *u, struct hoist__request *request, int result)
{
	HOIST__ASSERT(queue_of(u, request)->n_active != 0 && !hoist__list_empty(&request->node));
	bool ended = hoist__request_finish(request, result);
	while (!ended && is_mine(u, request))
		ended = make_here(u, request);
	hoist__list_remove(&request->node);
	queue_of(u, request)->n_active--;
	if (ended)
		hoist__list_push_back(&u->finished, &request->node);
	else
		dispatch(u, request);
}

void hoist__uring_collect(struct hoist__uring *u)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;
	io_uring_for_each_cqe(&u->ring, head, cqe)
	{
		n++;
		if (cqe->user_data == HOIST__URING_CANCEL) {
			HOIST__ASSERT(u->cancelling);
			u->cancelling = false;
		} else if (cqe->user_data == HOIST__URING_EAR) {
			hear(u, cqe->res);
		} else if (!u->engine.abandoned) { /* else the owner has it back, or freed it */
			complete(u, io_uring_cqe_get_data(cqe), cqe->res);
		}
	}
	io_uring_cq_advance(&u->ring, n);
	if (u->crew != NULL)
		hoist__crew_take(u->crew, &u->finished);
}
