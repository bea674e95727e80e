/* SPDX-License-Identifier: MIT */
/* Makes a ring with the best flags that the kernel takes, and probes for io_uring.
 * The contract is in io/uring.h. */
#include "config.h"

#include "io/uring.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

/* liburing 2.3 (Debian 12) knows these; 2.2 does not know all of them. */
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif

#define MAX_SQ_ENTRIES 128u

/* EXT_ARG: waits with a time limit.  NODROP: completions are never lost. */
#define NEEDED_FEATURES (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP)

/* --- the ring --- */

/* liburing maps and unmaps rings without the C library.  ThreadSanitizer would take two rings, of
 * two threads, that lay at one address one after the other for a single ring, unless it is told
 * that the first one had ended. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static char ring_ends;
#define AFTER_RINGS_ENDED() __tsan_acquire(&ring_ends)
#define RING_ENDS() __tsan_release(&ring_ends)
#else
#define AFTER_RINGS_ENDED() ((void)0)
#define RING_ENDS() ((void)0)
#endif

static const char *explain(int err)
{
	switch (err) {
	case -EPERM:
		return " (seccomp or kernel.io_uring_disabled)";
	case -ENOSYS:
		return " (this kernel or sandbox has none)";
	case -ENOMEM:
		return " (memory, or RLIMIT_MEMLOCK)";
	case -EMFILE:
	case -ENFILE:
		return " (too many open files)";
	case -ENOTSUP:
		return " (the kernel is older than 5.11)";
	default:
		return "";
	}
}

static int refused(int err)
{
	const char *name = strerrorname_np(-err);
	return hoist__fail(err, "io_uring refused: %s%s", name != NULL ? name : "unknown error",
			   explain(err));
}

/* TASKRUN_FLAG: where the kernel makes completions only when it is entered, a flag in the ring
 * shows that some are waiting. */
#define SINGLE (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG)
#define COOPERATIVE (IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG)

/* The kernel answers an unknown flag with EINVAL, so the setup is tried with fewer and fewer flags.
 * A shared ring has no single issuer.  It has no cooperative completion either: the thread that
 * submitted may stay out of the kernel while another one waits. */
static const struct {
	unsigned flags;
	bool shared;
	const char *mode;
} tries[] = {
	{SINGLE | IORING_SETUP_SUBMIT_ALL, false, "single issuer"},
	{COOPERATIVE | IORING_SETUP_SUBMIT_ALL, false, "cooperative"},
	{IORING_SETUP_SUBMIT_ALL, true, "shared"},
	{0, true, "plain"},
};

static int try_setup(struct io_uring *ring, unsigned depth, unsigned flags)
{
	unsigned entries = (unsigned)hoist__min_u64(depth, MAX_SQ_ENTRIES);
	/* Room for all requests, one cancel and one poll. */
	struct io_uring_params params = {
		.flags = flags | IORING_SETUP_CQSIZE,
		.cq_entries = depth + 2 > entries ? depth + 2 : entries,
	};
	return io_uring_queue_init_params(entries, ring, &params);
}

/* Sets the ring up with the first of `tries` that the kernel takes. */
static int set_up(struct io_uring *ring, unsigned depth,
		  const struct hoist__engine_options *options, struct hoist__uring_mode *mode)
{
	int err = -EINVAL;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(tries); i++) {
		if (options->shared && !tries[i].shared)
			continue;
		err = try_setup(ring, depth, tries[i].flags);
		(void)snprintf(mode->text, sizeof mode->text, "%s", tries[i].mode);
		if (err != -EINVAL)
			break;
	}
	if (err != 0)
		return refused(err);
	AFTER_RINGS_ENDED();
	if ((ring->features & NEEDED_FEATURES) != NEEDED_FEATURES) {
		hoist__uring_close(ring);
		return refused(-ENOTSUP);
	}
	return 0;
}

/* Linux 5.10 starts a cached read, waits for the page, and starts again if the page is not valid:
 * at a bad sector for ever, in the thread that enters the ring.  Linux 5.12 fixed that, but later
 * releases of 5.10 report the same features as 5.15.  CQE_SKIP (5.17) is the next feature that
 * tells them apart. */
static bool reads_loop(const struct io_uring *ring)
{
	return (ring->features & IORING_FEAT_CQE_SKIP) == 0;
}

int hoist__uring_setup(struct io_uring *ring, unsigned depth,
		       const struct hoist__engine_options *options, struct hoist__uring_mode *mode)
{
	int err = set_up(ring, depth, options, mode);
	if (err != 0)
		return err;
	mode->reads_loop = reads_loop(ring);
	if (mode->reads_loop) {
		size_t n = strlen(mode->text);
		(void)snprintf(
			mode->text + n, sizeof mode->text - n,
			", cached reads by the kernel's threads: before Linux 5.17 other reads "
			"of a bad sector may never end");
	}
	return 0;
}

void hoist__uring_close(struct io_uring *ring)
{
	RING_ENDS();
	io_uring_queue_exit(ring);
}

/* Makes a ring and completes a nop: a filter may allow io_uring_setup and refuse io_uring_enter. */
static int try_ring(void)
{
	struct io_uring ring;
	struct hoist__uring_mode mode;
	struct hoist__engine_options options = {.depth = 1};
	int err = hoist__uring_setup(&ring, 1, &options, &mode);
	if (err != 0)
		return err;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data64(sqe, 0);
	do
		err = io_uring_submit_and_wait(&ring, 1);
	while (err == -EINTR);
	hoist__uring_close(&ring);
	return err < 0 ? refused(err) : 0;
}

/* True for a verdict that does not change: shortages pass, but refusals by the kernel, a filter or
 * a setting stay. */
static bool lasting(int verdict)
{
	return verdict == 0 || verdict == -EPERM || verdict == -ENOSYS || verdict == -EACCES ||
	       verdict == -EINVAL || verdict == -ENOTSUP;
}

/* A lasting answer is kept, without a lock, which a forked child might find taken for ever.
 * Threads that ask at the same time may each probe; the first one to finish writes the answer.  A
 * child of a fork in the middle of the writing probes anew each time. */
struct answer {
	int verdict;
	char text[128];
};
enum { UNKNOWN, BEING_WRITTEN, KNOWN };
static struct answer answer;
static _Atomic int state;

static struct answer probe(void)
{
	struct answer is = {.verdict = try_ring()};
	int unknown = UNKNOWN;
	if (is.verdict != 0)
		hoist__error_copy(is.text, sizeof is.text);
	else
		(void)snprintf(is.text, sizeof is.text, "io_uring works");
	hoist__log(io, "probe: %s", is.text);
	if (lasting(is.verdict) &&
	    atomic_compare_exchange_strong(&state, &unknown, BEING_WRITTEN)) {
		answer = is;
		atomic_store_explicit(&state, KNOWN, memory_order_release);
	}
	return is;
}

int hoist__uring_probe(char *note, size_t note_bytes)
{
	bool known = atomic_load_explicit(&state, memory_order_acquire) == KNOWN;
	const struct answer is = known ? answer : probe();
	if (note != NULL && note_bytes > 0)
		(void)snprintf(note, note_bytes, "%s", is.text);
	if (is.verdict != 0)
		hoist__fail(is.verdict, "%s", is.text);
	return is.verdict;
}
