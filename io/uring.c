/* SPDX-License-Identifier: MIT */
/* io/uring.c - the engine on io_uring.
 *
 *     submit -> pending --(a free SQE)--> active --CQE--> policy --> finished -> reap
 *                  ^                                        |
 *                  +-------------- read on -----------------+
 *
 * The SQ ring may be smaller than the depth: what has no SQE stays pending.  The
 * CQ ring cannot overflow: it has room for every request and one cancel.
 *
 * A ring breaks if io_uring_enter fails for good (a seccomp filter installed after
 * creation, a call from the wrong thread): requests the kernel has not seen end
 * with that error, the others when they complete, or are abandoned: an end that
 * only an enter would show is never seen.
 */
#include "config.h"

#include <liburing.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/wait.h"
#include "io/engine-impl.h"
#include "io/uring.h"
#include "io/worker.h"

/* A copy from the page cache of this much or more is handed to the kernel's
 * worker threads; smaller ones are made at submission, which costs less than
 * waking a worker. */
#define ASYNC_MIN_BYTES (128u << 10)

/* How long a broken ring is looked at for what the kernel still has. */
#define BROKEN_WAIT_NS (2 * HOIST__NS_PER_S)
#define BROKEN_POLL_NS 1000000

struct uring {
	struct hoist__engine engine; /* first: the two are cast into each other */
	struct io_uring ring;
	struct hoist__list pending;
	struct hoist__list active;
	struct hoist__list finished;
	bool cancelling; /* a cancel is in flight; its user_data is 0 */
	int broken;	 /* 0, or the errno that enter failed with */
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

static void prepare(struct uring *u, struct io_uring_sqe *sqe, struct hoist__request *request)
{
	struct hoist__attempt read;
	hoist__request_next(request, &read);
	int file = hoist__uring_file(&u->files, request->file, read.direct);
	int buffer = hoist__uring_buffer(&u->buffers, request->buffer, read.address, read.bytes);
	int fd = file >= 0 ? file : read.fd;
	if (buffer >= 0)
		io_uring_prep_read_fixed(sqe, fd, read.address, read.bytes, read.offset, buffer);
	else
		io_uring_prep_read(sqe, fd, read.address, read.bytes, read.offset);
	if (file >= 0)
		sqe->flags |= IOSQE_FIXED_FILE;
	if (!read.direct && read.bytes >= ASYNC_MIN_BYTES)
		sqe->flags |= IOSQE_ASYNC;
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

static void fill_sqes(struct uring *u)
{
	while (u->broken == 0 && !hoist__list_empty(&u->pending)) {
		struct io_uring_sqe *sqe = get_sqe(u);
		if (sqe == NULL)
			return;
		struct hoist__list *node = hoist__list_pop(&u->pending);
		hoist__list_push_back(&u->active, node);
		prepare(u, sqe, request_of(node));
	}
}

static int uring_submit(struct hoist__engine *engine, struct hoist__request *const *requests,
			unsigned n)
{
	struct uring *u = uring_of(engine);
	if (u->broken != 0)
		return hoist__fail_errno(u->broken, "io_uring_enter");
	for (unsigned i = 0; i < n; i++)
		hoist__list_push_back(&u->pending, &requests[i]->node);
	fill_sqes(u);
	/* What the kernel does not take now stays in the ring, and goes with the next
	 * enter; if the ring just broke, reap says so of each request. */
	if (u->broken == 0)
		(void)note(u, io_uring_submit(&u->ring));
	return 0;
}

/* --- back from the kernel --- */

static void collect(struct uring *u)
{
	struct io_uring_cqe *cqe;
	unsigned head, n = 0;
	io_uring_for_each_cqe(&u->ring, head, cqe)
	{
		n++;
		struct hoist__request *request = io_uring_cqe_get_data(cqe);
		if (request == NULL) {
			u->cancelling = false;
			continue;
		}
		bool ended = hoist__request_finish(request, cqe->res);
		hoist__list_remove(&request->node);
		hoist__list_push_back(ended ? &u->finished : &u->pending, &request->node);
	}
	io_uring_cq_advance(&u->ring, n);
}

/* Hands over what is queued and runs completions; waits for one of them up to
 * @wait_ns. */
static int enter(struct uring *u, uint64_t wait_ns)
{
	if (wait_ns == 0)
		return note(u, io_uring_submit_and_get_events(&u->ring));
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

/* The SQEs that the kernel has not consumed are the last ones that were filled. */
static void end_unseen(struct uring *u)
{
	for (unsigned n = io_uring_sq_ready(&u->ring); n > 0; n--) {
		struct io_uring_sq *sq = &u->ring.sq;
		struct io_uring_sqe *sqe = &sq->sqes[--sq->sqe_tail & *sq->kring_mask];
		struct hoist__request *request = (void *)(uintptr_t)sqe->user_data;
		if (request == NULL)
			continue;
		hoist__list_remove(&request->node);
		hoist__request_end(request, u->broken);
		hoist__list_push_back(&u->finished, &request->node);
	}
	end_all(u, &u->pending, u->broken);
}

/* One look at a broken ring: completions still arrive in its memory, unless they
 * wait for an enter that cannot be made any more. */
static void drain_broken(struct uring *u, uint64_t left)
{
	end_unseen(u);
	if (!hoist__list_empty(&u->finished))
		return;
	if (hoist__deadline_left(u->broken_deadline) == 0) {
		u->engine.abandoned = true;
		end_all(u, &u->active, u->broken);
		return;
	}
	struct timespec nap = {.tv_nsec = (long)hoist__min_u64(left, BROKEN_POLL_NS)};
	(void)nanosleep(&nap, NULL);
}

static unsigned uring_reap(struct hoist__engine *engine, struct hoist__request **ret, unsigned max,
			   uint64_t timeout_ns)
{
	struct uring *u = uring_of(engine);
	uint64_t deadline = hoist__deadline(timeout_ns);
	uint64_t left = timeout_ns;
	for (;;) {
		collect(u);
		fill_sqes(u);
		bool any = !hoist__list_empty(&u->finished);
		if (any && (io_uring_sq_ready(&u->ring) == 0 || u->broken != 0))
			break;
		int err = 0;
		if (u->broken != 0)
			drain_broken(u, left);
		else
			err = enter(u, any ? 0 : left);
		collect(u);
		if (!hoist__list_empty(&u->finished) || left == 0)
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

/* --- ending --- */

static void uring_cancel(struct hoist__engine *engine)
{
	struct uring *u = uring_of(engine);
	end_all(u, &u->pending, -ECANCELED);
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
	io_uring_sqe_set_data64(sqe, 0);
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
	 * A child closes its copy of the descriptor: the ring stays the parent's. */
	if (!forked)
		hoist__uring_unregister(&u->ring, &u->files, &u->buffers);
	hoist__uring_close(&u->ring);
	free(u->files.rows);
	free(u->buffers.rows);
	free(u);
}

static const struct hoist__engine_ops uring_ops = {
	.name = "io_uring",
	.submit = uring_submit,
	.reap = uring_reap,
	.cancel = uring_cancel,
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

int hoist__uring_create(const struct hoist__engine_options *options, struct hoist__engine **ret)
{
	struct uring *u = calloc(1, sizeof *u);
	if (u == NULL)
		return hoist__fail_nomem("an io_uring engine", sizeof *u);
	hoist__list_init(&u->pending);
	hoist__list_init(&u->active);
	hoist__list_init(&u->finished);
	u->engine.ops = &uring_ops;

	const char *mode;
	int err = hoist__uring_setup(&u->ring, options->depth, options->shared, &mode);
	if (err != 0) {
		free(u);
		return err;
	}
	err = hoist__uring_register(&u->ring, options, &u->files, &u->buffers);
	if (err != 0) {
		uring_destroy(&u->engine, false);
		return err;
	}
	if (!options->shared)
		place_workers(u);
	(void)snprintf(u->engine.reason, sizeof u->engine.reason, "io_uring: %s%s%s", mode,
		       u->buffers.note, u->files.note);
	*ret = &u->engine;
	return 0;
}
