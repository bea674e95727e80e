/* SPDX-License-Identifier: MIT */
/* The engine on io_uring: makes the ring, waits for it, ends it.
 * The contract is in io/engine-impl.h. */
#include "config.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/wait.h"
#include "io/uring-private.h"
#include "io/worker.h"

#define BROKEN_POLL_NS 1000000

/* The time until the kernel is asked to cancel again.  A cancel does not find a request that moves
 * from one of the kernel's threads to another, and the kernel may move such a request for ever (a
 * direct read that is answered with EAGAIN). */
#define CANCEL_AGAIN_NS 10000000

/* Without an ear, a wait is cut into pieces of this length, so that a wake is seen. */
#define DEAF_WAIT_NS 1000000

/* Threads for hot requests: fewer than this already reach the memory's full speed. */
#define MAX_HOT_THREADS 8u

/* --- waiting --- */

/* Adds a read of the eventfd to the ring, so that a signal arrives as a completion. */
static void listen_for_signals(struct hoist__uring *u)
{
	if (u->listening || u->deaf || u->broken != 0)
		return;
	struct io_uring_sqe *sqe = hoist__uring_sqe(u);
	if (sqe == NULL)
		return;
	/* The number read is of no interest, and may arrive after the end of the ring. */
	static uint64_t heard;
	io_uring_prep_read(sqe, u->event_fd, &heard, sizeof heard, 0);
	io_uring_sqe_set_data64(sqe, HOIST__URING_EAR);
	u->listening = true;
}

/* Submits the SQEs and lets the kernel make completions; waits for one of them, up to @wait_ns. */
static int enter(struct hoist__uring *u, uint64_t wait_ns)
{
	if (wait_ns == 0)
		return hoist__uring_note(u, io_uring_submit_and_get_events(&u->ring));
	if (!u->listening)
		wait_ns = hoist__min_u64(wait_ns, DEAF_WAIT_NS);
	if (wait_ns / HOIST__NS_PER_S >= INT32_MAX)
		return hoist__uring_note(u, io_uring_submit_and_wait(&u->ring, 1));
	struct __kernel_timespec timeout = {
		.tv_sec = (int64_t)(wait_ns / HOIST__NS_PER_S),
		.tv_nsec = (int64_t)(wait_ns % HOIST__NS_PER_S),
	};
	struct io_uring_cqe *first;
	return hoist__uring_note(
		u, io_uring_submit_and_wait_timeout(&u->ring, &first, 1, &timeout, NULL));
}

static void end_all(struct hoist__uring *u, struct hoist__list *from, int result)
{
	for (struct hoist__list *node; (node = hoist__list_pop(from)) != NULL;) {
		hoist__request_end(hoist__uring_request(node), result);
		hoist__list_push_back(&u->finished, node);
	}
}

static void end_pending(struct hoist__uring *u, int result)
{
	for (unsigned i = 0; i < u->disks.n; i++)
		end_all(u, &u->disk_queues[i].pending, result);
}

/* Ends the requests that a broken ring never took: the SQEs that the kernel has not consumed are
 * the last ones filled. */
static void end_unseen(struct hoist__uring *u)
{
	for (unsigned n = io_uring_sq_ready(&u->ring); n > 0; n--) {
		struct io_uring_sq *sq = &u->ring.sq;
		struct io_uring_sqe *sqe = &sq->sqes[--sq->sqe_tail & *sq->kring_mask];
		if (sqe->user_data == HOIST__URING_CANCEL || sqe->user_data == HOIST__URING_EAR)
			continue;
		struct hoist__request *request = (void *)(uintptr_t)sqe->user_data;
		hoist__list_remove(&request->node);
		hoist__request_end(request, u->broken);
		hoist__list_push_back(&u->finished, &request->node);
	}
	end_pending(u, u->broken);
}

/* Asks the kernel to cancel every active request.  ASYNC_CANCEL_ANY came with Linux 5.19.  Before,
 * the cancel finds nothing (ENOENT) or is refused (EINVAL), and the reads run to their end. */
static void cancel_active(struct hoist__uring *u)
{
	u->cancelled = u->cancelled && !hoist__list_empty(&u->active);
	if (!u->cancelled || u->cancelling || u->broken != 0 ||
	    hoist__deadline_left(u->cancel_at) > 0)
		return;
	struct io_uring_sqe *sqe = hoist__uring_sqe(u);
	if (sqe == NULL)
		return;
	io_uring_prep_cancel64(sqe, 0, IORING_ASYNC_CANCEL_ALL | IORING_ASYNC_CANCEL_ANY);
	io_uring_sqe_set_data64(sqe, HOIST__URING_CANCEL);
	HOIST__ASSERT(!hoist__list_empty(&u->active));
	u->cancelling = true;
	u->cancel_at = hoist__deadline(CANCEL_AGAIN_NS);
	(void)hoist__uring_note(u, io_uring_submit(&u->ring));
}

/* Looks once at a broken ring: completions still arrive in its memory, unless they wait for an
 * enter that cannot be made any more.  The crew works on. */
static void drain_broken(struct hoist__uring *u, uint64_t left)
{
	HOIST__ASSERT(u->broken < 0);
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

/* True if the kernel has requests to take, or completions that it makes only when it is entered.  A
 * reap that could return at once must look first: otherwise the crew's completions and wakes could
 * starve the kernel's. */
static bool has_kernel_work(struct hoist__uring *u)
{
	if (u->broken != 0)
		return false;
	return io_uring_sq_ready(&u->ring) > 0 ||
	       (IO_URING_READ_ONCE(*u->ring.sq.kflags) & IORING_SQ_TASKRUN) != 0;
}

HOIST__CONDITION static unsigned length(const struct hoist__list *list)
{
	unsigned n = 0;
	for (const struct hoist__list *node = list->next; node != list; node = node->next)
		n++;
	return n;
}

/* True if the lists and the crew have the requests in flight, and a sound ring's queues count the
 * active ones. */
HOIST__CONDITION static bool adds_up(const struct hoist__uring *u)
{
	unsigned n_active = 0;
	unsigned n = length(&u->active) + length(&u->finished);
	for (unsigned i = 0; i < u->disks.n; i++) {
		n_active += u->disk_queues[i].n_active;
		n += length(&u->disk_queues[i].pending);
	}
	return (u->crew != NULL ? n <= u->engine.in_flight : n == u->engine.in_flight) &&
	       (u->broken != 0 || n_active == length(&u->active));
}

/* Waits in the kernel, unless the last look before finds that there is nothing to wait for (see
 * io/uring-private.h).  Returns: as enter(). */
static int sleep_in_kernel(struct hoist__uring *u, uint64_t wait_ns, bool *woken)
{
	atomic_store(&u->sleeping, true);
	if (u->crew != NULL)
		hoist__crew_take(u->crew, &u->finished);
	*woken = atomic_exchange(&u->woken, false);
	bool any = *woken || !hoist__list_empty(&u->finished);
	if (!any)
		listen_for_signals(u);
	int err = any && !has_kernel_work(u) ? 0 : enter(u, any ? 0 : wait_ns);
	atomic_store(&u->sleeping, false);
	return err;
}

/* Enters the kernel at most once if something is ready to be returned, and otherwise until
 * something is, or @timeout_ns has passed. */
static unsigned uring_reap(struct hoist__engine *engine, struct hoist__request **ret, unsigned max,
			   uint64_t timeout_ns)
{
	struct hoist__uring *u = hoist__uring_of(engine);
	uint64_t deadline = hoist__deadline(timeout_ns);
	HOIST__ASSERT(adds_up(u));
	uint64_t left = timeout_ns;
	bool woken = false;
	for (;;) {
		hoist__uring_collect(u);
		hoist__uring_fill(u);
		woken = atomic_exchange(&u->woken, false) || woken;
		bool any = woken || !hoist__list_empty(&u->finished);
		if (any && !has_kernel_work(u))
			break;
		cancel_active(u);
		uint64_t wait = u->cancelled ? hoist__min_u64(left, CANCEL_AGAIN_NS) : left;
		int err = 0;
		if (u->broken != 0)
			drain_broken(u, left);
		else if (any || wait == 0)
			err = enter(u, 0);
		else
			err = sleep_in_kernel(u, wait, &woken);
		hoist__uring_collect(u);
		if (any || woken || !hoist__list_empty(&u->finished) || left == 0)
			break;
		/* The kernel is short of memory or of room: let others run. */
		if (err == -EAGAIN || err == -EBUSY)
			sched_yield();
		left = hoist__deadline_left(deadline);
	}
	unsigned n = 0;
	HOIST__ASSERT(adds_up(u));
	for (; n < max && !hoist__list_empty(&u->finished); n++)
		ret[n] = hoist__uring_request(hoist__list_pop(&u->finished));
	return n;
}

static void uring_wake(struct hoist__engine *engine)
{
	struct hoist__uring *u = hoist__uring_of(engine);
	atomic_store(&u->woken, true);
	hoist__uring_signal(u);
}

/* --- ending --- */

static void uring_cancel(struct hoist__engine *engine)
{
	struct hoist__uring *u = hoist__uring_of(engine);
	end_pending(u, -ECANCELED);
	if (u->crew != NULL)
		hoist__crew_cancel(u->crew);
	if (hoist__list_empty(&u->active))
		return;
	/* Marks the active requests: none of them is continued, even if the kernel cannot cut it
	 * short. */
	for (struct hoist__list *node = u->active.next; node != &u->active; node = node->next)
		hoist__uring_request(node)->cancelled = true;
	u->cancelled = true;
	u->cancel_at = 0;
	cancel_active(u);
}

static void uring_destroy(struct hoist__engine *engine, bool forked)
{
	struct hoist__uring *u = hoist__uring_of(engine);
	struct hoist__request *request;
	while (!forked && engine->in_flight > 0)
		engine->in_flight -= uring_reap(engine, &request, 1, UINT64_MAX);
	HOIST__ASSERT(forked || (hoist__list_empty(&u->active) && hoist__list_empty(&u->finished)));
	/* The kernel releases a closed ring's memory late; unregistering releases it at once.  A
	 * child only closes its copy of the descriptor: the ring stays the parent's.  For abandoned
	 * requests, unregistering might wait for their end. */
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
	.submit = hoist__uring_submit,
	.reap = uring_reap,
	.cancel = uring_cancel,
	.wake = uring_wake,
	.destroy = uring_destroy,
};

/* Lets the kernel's worker threads run only where the creator may run, so that pages that they
 * bring into the cache lie on that node.  The workers belong to the calling thread, for all its
 * rings: the caller of a shared engine keeps its own setting. */
static void place_workers(struct hoist__uring *u)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) == 0)
		(void)io_uring_register_iowq_aff(&u->ring, sizeof set, &set);
}

/* Raises the number of the kernel's worker threads for network file systems.  Each read of a file
 * system whose reads block occupies a worker until the read ends.  By default there are four
 * workers for each CPU, for all rings that a thread of the program enters: a server that hangs
 * would take them all, and stall other rings and this ring's other disks.  The kernel starts more
 * workers only when all others wait.  The ring is told even if another ring already set the limit
 * for this thread: a ring's limit applies to each thread that enters the ring.  Linux before 5.15
 * has no such call. */
static void allow_workers(struct hoist__uring *u, const struct hoist__engine_options *options)
{
	bool network = false;
	for (unsigned i = 0; i < options->n_files && !network; i++)
		network = options->files[i]->fs != NULL && options->files[i]->fs->network;
	unsigned now[2] = {0, 0};
	if (!network || io_uring_register_iowq_max_workers(&u->ring, now) < 0)
		return;
	unsigned most[2] = {now[0], 0};
	if (most[0] < HOIST__URING_NETWORK_WORKERS)
		most[0] = HOIST__URING_NETWORK_WORKERS;
	(void)io_uring_register_iowq_max_workers(&u->ring, most);
}

static void init(struct hoist__uring *u, const struct hoist__engine_options *options)
{
	u->engine.ops = &uring_ops;
	hoist__disks_find(options->files, options->n_files, &u->disks);
	u->disk_depth = options->depth;
	u->engine.depth = options->depth * u->disks.n;
	for (unsigned i = 0; i < u->disks.n; i++)
		hoist__list_init(&u->disk_queues[i].pending);
	hoist__list_init(&u->active);
	hoist__list_init(&u->finished);
	u->n_hot_threads = (unsigned)hoist__min_u64(hoist__worker_cpus(), MAX_HOT_THREADS);
}

static void say(struct hoist__uring *u)
{
	char disks[32] = "";
	if (u->disks.n > 1)
		(void)snprintf(disks, sizeof disks, ", %u disks", u->disks.n);
	(void)snprintf(u->engine.reason, sizeof u->engine.reason, "io_uring: %s%s%s%s",
		       u->mode.text, disks, u->buffers.note, u->files.note);
}

int hoist__uring_create(const struct hoist__engine_options *options, struct hoist__engine **ret)
{
	struct hoist__uring *u = calloc(1, sizeof *u);
	if (u == NULL)
		return hoist__fail_nomem("an io_uring engine", sizeof *u);
	init(u, options);
	u->event_fd = eventfd(0, EFD_CLOEXEC);
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
	/* The ring exists: the end of the engine also unregisters the tables that were
	 * registered. */
	if (err != 0) {
		uring_destroy(&u->engine, false);
		return err;
	}
	if (!options->shared)
		place_workers(u);
	allow_workers(u, options);
	say(u);
	*ret = &u->engine;
	return 0;
}
