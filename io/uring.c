/* SPDX-License-Identifier: MIT */
/* io/uring.c - the engine on io_uring.
 *
 *     submit -> pending --(a free SQE)--> active --CQE--> policy --> finished -> reap
 *        |         ^                                        |            ^
 *        |         +------------- next again ---------------+            |
 *        +--(hot)--> crew -----------------------------------------------+
 *
 * The SQ ring may be smaller than the depth, and each device has its own: what has no
 * SQE stays pending, in its device's lane.  The CQ ring cannot overflow: it has room for
 * every request, one cancel and one poll.
 *
 * That poll is of an eventfd, by which the crew and hoist__engine_wake() end a wait.
 *
 * A polled ring (IOPOLL) takes direct requests alone, and no poll: the crew has the rest,
 * and whoever waits spins while the ring has any.
 *
 * A ring breaks if io_uring_enter fails for good (a seccomp filter installed after
 * creation, a call from the wrong thread): requests the kernel has not seen end
 * with that error, the others when they complete, or are abandoned: an end that
 * only an enter would show is never seen.
 */
#include "config.h"

#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "io/crew.h"
#include "io/engine-impl.h"
#include "io/uring.h"
#include "io/worker.h"

/* A read through the page cache, or a copy from it, of this much or more is handed to the
 * kernel's worker threads; smaller ones are made at submission, which costs less than
 * waking a worker.  Cold, these then read in parallel, each ahead by its whole size: 4 MiB x 16
 * gave 1.2 to 1.5 GB/s of a disk's 1.9, threads of our own 1.4 to 1.5, and reads at submission,
 * which wait for each other, 1.0 for twice the CPU time. */
#define ASYNC_MIN_BYTES (128u << 10)

/* How long a broken ring is looked at for what the kernel still has. */
#define BROKEN_WAIT_NS (2 * HOIST__NS_PER_S)
#define BROKEN_POLL_NS 1000000

/* A wait that could not be armed to be woken is cut into these. */
#define UNARMED_WAIT_NS 1000000

/* Threads for hot requests: the memory is as fast as it gets with fewer. */
#define MAX_HOT_THREADS 8u

/* user_data of what is no request */
#define TAG_CANCEL 0u
#define TAG_POLL 1u

struct uring {
	struct hoist__engine engine; /* first: the two are cast into each other */
	struct io_uring ring;
	struct hoist__uring_mode mode;
	unsigned lane_depth;
	struct hoist__lanes lanes;
	struct lane {
		struct hoist__list pending;
		unsigned n_active;
	} rows[HOIST__ENGINE_MAX_LANES];
	struct hoist__list active;
	struct hoist__list finished;
	struct hoist__crew *crew; /* NULL until there is work for it */
	bool no_crew;		  /* it was refused */
	unsigned n_hot_threads;
	int event_fd;
	atomic_bool signalled; /* event_fd has been written to */
	atomic_bool woken;     /* hoist__engine_wake() */
	bool polling;	       /* the poll of event_fd is in flight */
	bool cancelling;       /* a cancel is */
	int broken;	       /* 0, or the errno that enter failed with */
	uint64_t broken_deadline;
	struct hoist__uring_files files;
	struct hoist__uring_buffers buffers;
};

static struct uring *uring_of(struct hoist__engine *engine)
{
	return HOIST__CONTAINER_OF(engine, struct uring, engine);
}

static struct hoist__request *request_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__request, node);
}

/* --- towards the kernel --- */

static bool passing(int err)
{
	return err == -EINTR || err == -EAGAIN || err == -EBUSY || err == -ETIME;
}

static int note(struct uring *u, int err)
{
	if (err < 0 && !passing(err) && u->broken == 0) {
		u->broken = err;
		u->broken_deadline = hoist__deadline(BROKEN_WAIT_NS);
		hoist__log(io, "io_uring_enter: %s; the ring is given up", strerrorname_np(-err));
	}
	return err < 0 ? err : 0;
}

static struct lane *lane_of(struct uring *u, const struct hoist__request *request)
{
	return &u->rows[hoist__lanes_of(&u->lanes, request->file)];
}

static void prepare_read(struct uring *u, struct io_uring_sqe *sqe, const struct hoist__attempt *a,
			 int fd, int buffer)
{
	int piece = hoist__uring_buffer(&u->buffers, buffer, a->address, a->bytes);
	if (a->what == HOIST__ATTEMPT_WRITE && piece >= 0)
		io_uring_prep_write_fixed(sqe, fd, a->address, a->bytes, a->offset, piece);
	else if (a->what == HOIST__ATTEMPT_WRITE)
		io_uring_prep_write(sqe, fd, a->address, a->bytes, a->offset);
	else if (piece >= 0)
		io_uring_prep_read_fixed(sqe, fd, a->address, a->bytes, a->offset, piece);
	else
		io_uring_prep_read(sqe, fd, a->address, a->bytes, a->offset);
	sqe->rw_flags = a->flags;
	if (!a->direct && a->bytes >= ASYNC_MIN_BYTES)
		sqe->flags |= IOSQE_ASYNC;
}

static void prepare(struct uring *u, struct io_uring_sqe *sqe, struct hoist__request *request)
{
	struct hoist__attempt attempt;
	hoist__request_next(request, &attempt);
	int file = hoist__uring_file(&u->files, request->file, attempt.direct);
	int fd = file >= 0 ? file : attempt.fd;
	if (attempt.what == HOIST__ATTEMPT_DROP)
		io_uring_prep_fadvise(sqe, fd, attempt.offset, attempt.bytes, POSIX_FADV_DONTNEED);
	else
		prepare_read(u, sqe, &attempt, fd, request->buffer);
	if (file >= 0)
		sqe->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(sqe, request);
}

/* An SQE, after handing the full ring over if need be; NULL if the kernel takes
 * nothing now. */
static struct io_uring_sqe *get_sqe(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
	if (sqe == NULL && note(u, io_uring_submit(&u->ring)) == 0)
		sqe = io_uring_get_sqe(&u->ring);
	return sqe;
}

static void fill_from(struct uring *u, struct lane *lane)
{
	while (u->broken == 0 && lane->n_active < u->lane_depth &&
	       !hoist__list_empty(&lane->pending)) {
		struct io_uring_sqe *sqe = get_sqe(u);
		if (sqe == NULL)
			return;
		struct hoist__list *node = hoist__list_pop(&lane->pending);
		hoist__list_push_back(&u->active, node);
		lane->n_active++;
		prepare(u, sqe, request_of(node));
	}
}

static void fill_sqes(struct uring *u)
{
	for (unsigned i = 0; i < u->lanes.n; i++)
		fill_from(u, &u->rows[i]);
}

/* --- the crew --- */

/* From any thread: ends the reaper's wait. */
static void signal_reaper(void *context)
{
	struct uring *u = context;
	uint64_t one = 1;
	/* A counter that is not zero already wakes just as well: EAGAIN is no loss. */
	if (!atomic_exchange(&u->signalled, true))
		(void)!write(u->event_fd, &one, sizeof one);
}

/* Once the eventfd is known to be written to.  It is emptied first: what is signalled after the
 * exchange writes to it again, and what was before is seen by the caller, who looks after it. */
static void hear(struct uring *u)
{
	uint64_t n;
	(void)!read(u->event_fd, &n, sizeof n);
	(void)atomic_exchange(&u->signalled, false);
}

/* Threads beside the ring, from the first request for them on.  Without, the ring has to do. */
static bool has_crew(struct uring *u)
{
	if (u->crew != NULL || u->no_crew)
		return u->crew != NULL;
	struct hoist__crew_options options = {
		.n_threads = u->n_hot_threads,
		.lanes = {.n = 1},
		.ended = signal_reaper,
		.context = u,
	};
	u->no_crew = hoist__crew_create(&options, &u->crew) != 0;
	if (u->no_crew)
		hoist__log(io, "no threads for hot reads: %s", hoist__error_text());
	return !u->no_crew;
}

static bool for_crew(const struct uring *u, const struct hoist__request *request)
{
	struct hoist__attempt next;
	hoist__request_next(request, &next);
	return !next.direct && (u->mode.polled || (request->hot && !request->write));
}

/* To whoever does what comes next of @request. */
static void dispatch(struct uring *u, struct hoist__request *request)
{
	if (for_crew(u, request) && has_crew(u))
		hoist__crew_submit(u->crew, &request, 1);
	else
		hoist__list_push_back(&lane_of(u, request)->pending, &request->node);
}

static int uring_submit(struct hoist__engine *engine, struct hoist__request *const *requests,
			unsigned n)
{
	struct uring *u = uring_of(engine);
	if (u->broken != 0)
		return hoist__fail_errno(u->broken, "io_uring_enter");
	for (unsigned i = 0; i < n; i++)
		dispatch(u, requests[i]);
	fill_sqes(u);
	/* What the kernel does not take now stays in the ring, and goes with the next
	 * enter; if the ring just broke, reap says so of each request. */
	if (u->broken == 0 && io_uring_sq_ready(&u->ring) > 0)
		(void)note(u, io_uring_submit(&u->ring));
	return 0;
}

/* --- back from the kernel --- */

static void complete(struct uring *u, struct hoist__request *request, int result)
{
	bool ended = hoist__request_finish(request, result);
	hoist__list_remove(&request->node);
	lane_of(u, request)->n_active--;
	if (ended)
		hoist__list_push_back(&u->finished, &request->node);
	else
		dispatch(u, request);
}

static void collect(struct uring *u)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;
	io_uring_for_each_cqe(&u->ring, head, cqe)
	{
		n++;
		if (cqe->user_data == TAG_CANCEL) {
			u->cancelling = false;
		} else if (cqe->user_data == TAG_POLL) {
			u->polling = false;
			hear(u);
		} else if (!u->engine.abandoned) { /* else it is its owner's again, or freed */
			complete(u, io_uring_cqe_get_data(cqe), cqe->res);
		}
	}
	io_uring_cq_advance(&u->ring, n);
	if (u->crew != NULL)
		hoist__crew_take(u->crew, &u->finished);
}

/* --- waiting --- */

/* Has the kernel tell of the eventfd with the completions. */
static void arm(struct uring *u)
{
	if (u->polling || u->broken != 0 || u->mode.polled)
		return;
	struct io_uring_sqe *sqe = get_sqe(u);
	if (sqe == NULL)
		return;
	io_uring_prep_poll_add(sqe, u->event_fd, POLLIN);
	io_uring_sqe_set_data64(sqe, TAG_POLL);
	u->polling = true;
}

/* Of a polled ring: one look at the device, or, where it has nothing, a wait for the crew. */
static int look(struct uring *u, uint64_t wait_ns)
{
	if (wait_ns == 0 || !hoist__list_empty(&u->active) || io_uring_sq_ready(&u->ring) > 0)
		return note(u, io_uring_submit_and_get_events(&u->ring));
	struct pollfd event = {.fd = u->event_fd, .events = POLLIN};
	struct timespec limit = {.tv_sec = (time_t)(wait_ns / HOIST__NS_PER_S),
				 .tv_nsec = (long)(wait_ns % HOIST__NS_PER_S)};
	if (ppoll(&event, 1, wait_ns == UINT64_MAX ? NULL : &limit, NULL) > 0)
		hear(u);
	return 0;
}

/* Hands over what is queued and runs completions; waits for one of them up to
 * @wait_ns. */
static int enter(struct uring *u, uint64_t wait_ns)
{
	if (u->mode.polled)
		return look(u, wait_ns);
	if (wait_ns == 0)
		return note(u, io_uring_submit_and_get_events(&u->ring));
	if (!u->polling)
		wait_ns = hoist__min_u64(wait_ns, UNARMED_WAIT_NS);
	if (wait_ns / HOIST__NS_PER_S >= INT32_MAX)
		return note(u, io_uring_submit_and_wait(&u->ring, 1));
	struct __kernel_timespec timeout = {
		.tv_sec = (int64_t)(wait_ns / HOIST__NS_PER_S),
		.tv_nsec = (int64_t)(wait_ns % HOIST__NS_PER_S),
	};
	struct io_uring_cqe *first;
	return note(u, io_uring_submit_and_wait_timeout(&u->ring, &first, 1, &timeout, NULL));
}

static void end_all(struct uring *u, struct hoist__list *from, int result)
{
	for (struct hoist__list *node; (node = hoist__list_pop(from)) != NULL;) {
		hoist__request_end(request_of(node), result);
		hoist__list_push_back(&u->finished, node);
	}
}

static void end_pending(struct uring *u, int result)
{
	for (unsigned i = 0; i < u->lanes.n; i++)
		end_all(u, &u->rows[i].pending, result);
}

/* The SQEs that the kernel has not consumed are the last ones that were filled.  Where a
 * thread of the kernel's consumes them, none can be taken back. */
static void end_unseen(struct uring *u)
{
	unsigned n = u->mode.kernel_thread ? 0 : io_uring_sq_ready(&u->ring);
	for (; n > 0; n--) {
		struct io_uring_sq *sq = &u->ring.sq;
		struct io_uring_sqe *sqe = &sq->sqes[--sq->sqe_tail & *sq->kring_mask];
		if (sqe->user_data == TAG_CANCEL || sqe->user_data == TAG_POLL)
			continue;
		struct hoist__request *request = (void *)(uintptr_t)sqe->user_data;
		hoist__list_remove(&request->node);
		hoist__request_end(request, u->broken);
		hoist__list_push_back(&u->finished, &request->node);
	}
	end_pending(u, u->broken);
}

/* One look at a broken ring: completions still arrive in its memory, unless they
 * wait for an enter that cannot be made any more.  The crew works on. */
static void drain_broken(struct uring *u, uint64_t left)
{
	end_unseen(u);
	if (!hoist__list_empty(&u->finished))
		return;
	if (!hoist__list_empty(&u->active) && hoist__deadline_left(u->broken_deadline) == 0) {
		u->engine.abandoned = true;
		end_all(u, &u->active, u->broken);
		return;
	}
	struct timespec nap = {.tv_nsec = (long)hoist__min_u64(left, BROKEN_POLL_NS)};
	(void)nanosleep(&nap, NULL);
}

/* Has the kernel requests to take, or completions that it runs when it is entered only?  Whoever
 * has something to return already must look, or the crew and wakes could keep those waiting as
 * long as they come. */
static bool has_kernel_work(struct uring *u)
{
	if (u->broken != 0)
		return false;
	return io_uring_sq_ready(&u->ring) > 0 ||
	       (u->mode.polled && !hoist__list_empty(&u->active)) ||
	       (IO_URING_READ_ONCE(*u->ring.sq.kflags) & IORING_SQ_TASKRUN) != 0;
}

static unsigned uring_reap(struct hoist__engine *engine, struct hoist__request **ret, unsigned max,
			   uint64_t timeout_ns)
{
	struct uring *u = uring_of(engine);
	uint64_t deadline = hoist__deadline(timeout_ns);
	uint64_t left = timeout_ns;
	bool woken = false;
	for (;;) {
		collect(u);
		fill_sqes(u);
		woken = atomic_exchange(&u->woken, false) || woken;
		bool any = woken || !hoist__list_empty(&u->finished);
		if (any && !has_kernel_work(u))
			break;
		if (!any && left != 0)
			arm(u);
		int err = 0;
		if (u->broken != 0)
			drain_broken(u, left);
		else
			err = enter(u, any ? 0 : left);
		collect(u);
		if (any || !hoist__list_empty(&u->finished) || left == 0)
			break;
		/* The kernel is short of memory or of room: let others run. */
		if (err == -EAGAIN || err == -EBUSY)
			sched_yield();
		left = hoist__deadline_left(deadline);
	}
	unsigned n = 0;
	for (; n < max && !hoist__list_empty(&u->finished); n++)
		ret[n] = request_of(hoist__list_pop(&u->finished));
	return n;
}

static void uring_wake(struct hoist__engine *engine)
{
	struct uring *u = uring_of(engine);
	atomic_store(&u->woken, true);
	signal_reaper(u);
}

/* --- ending --- */

static void uring_cancel(struct hoist__engine *engine)
{
	struct uring *u = uring_of(engine);
	end_pending(u, -ECANCELED);
	if (u->crew != NULL)
		hoist__crew_cancel(u->crew);
	if (hoist__list_empty(&u->active))
		return;
	/* None of these is read on, whether or not the kernel can cut it short. */
	for (struct hoist__list *node = u->active.next; node != &u->active; node = node->next)
		request_of(node)->cancelled = true;
	if (u->cancelling || u->broken != 0)
		return;
	struct io_uring_sqe *sqe = get_sqe(u);
	if (sqe == NULL)
		return;
	/* "Any" came with Linux 5.19; before, this finds nothing (ENOENT) or is
	 * refused (EINVAL), and the reads run to their end. */
	io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_ANY);
	io_uring_sqe_set_data64(sqe, TAG_CANCEL);
	u->cancelling = true;
	(void)note(u, io_uring_submit(&u->ring));
}

static void uring_destroy(struct hoist__engine *engine, bool forked)
{
	struct uring *u = uring_of(engine);
	struct hoist__request *request;
	while (!forked && engine->in_flight > 0)
		engine->in_flight -= uring_reap(engine, &request, 1, UINT64_MAX);
	/* The kernel releases a closed ring's memory late; unregistering is at once.
	 * A child closes its copy of the descriptor: the ring stays the parent's.  Of what is
	 * abandoned, unregistering might wait for the end. */
	if (!forked && !engine->abandoned)
		hoist__uring_unregister(&u->ring, &u->files, &u->buffers);
	hoist__uring_close(&u->ring);
	hoist__crew_destroy(u->crew, forked);
	close(u->event_fd);
	free(u->files.rows);
	free(u->buffers.rows);
	free(u);
}

static const struct hoist__engine_ops uring_ops = {
	.name = "io_uring",
	.submit = uring_submit,
	.reap = uring_reap,
	.cancel = uring_cancel,
	.wake = uring_wake,
	.destroy = uring_destroy,
};

/* The kernel's worker threads run where the creator may run, so that what they
 * bring into the page cache lies on that node.  They belong to the calling
 * thread, with all its rings: a shared engine's caller keeps his own. */
static void place_workers(struct uring *u)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) == 0)
		(void)io_uring_register_iowq_aff(&u->ring, sizeof set, &set);
}

static void init(struct uring *u, const struct hoist__engine_options *options)
{
	u->engine.ops = &uring_ops;
	hoist__lanes_find(options, &u->lanes);
	u->lane_depth = options->depth;
	u->engine.depth = options->depth * u->lanes.n;
	for (unsigned i = 0; i < u->lanes.n; i++)
		hoist__list_init(&u->rows[i].pending);
	hoist__list_init(&u->active);
	hoist__list_init(&u->finished);
	u->n_hot_threads = (unsigned)hoist__min_u64(hoist__worker_cpus(), MAX_HOT_THREADS);
}

static void say(struct uring *u)
{
	char lanes[32] = "";
	if (u->lanes.n > 1)
		(void)snprintf(lanes, sizeof lanes, ", %u devices", u->lanes.n);
	(void)snprintf(u->engine.reason, sizeof u->engine.reason, "io_uring: %s%s%s%s",
		       u->mode.text, lanes, u->buffers.note, u->files.note);
}

int hoist__uring_create(const struct hoist__engine_options *options, struct hoist__engine **ret)
{
	struct uring *u = calloc(1, sizeof *u);
	if (u == NULL)
		return hoist__fail_nomem("an io_uring engine", sizeof *u);
	init(u, options);
	u->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (u->event_fd < 0) {
		int err = hoist__fail_errno(-errno, "an eventfd for an engine");
		free(u);
		return err;
	}
	int err = hoist__uring_setup(&u->ring, u->engine.depth, options, &u->mode);
	if (err != 0) {
		close(u->event_fd);
		free(u);
		return err;
	}
	err = hoist__uring_register(&u->ring, options, &u->files, &u->buffers);
	/* What a polled ring does not take is nobody else's. */
	if (err == 0 && u->mode.polled && !has_crew(u))
		err = -ENOMEM;
	if (err != 0) {
		uring_destroy(&u->engine, false);
		return err;
	}
	if (!options->shared)
		place_workers(u);
	say(u);
	*ret = &u->engine;
	return 0;
}
