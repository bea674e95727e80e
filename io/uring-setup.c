/* SPDX-License-Identifier: MIT */
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

/* Waiting with a time limit, and completions that are never dropped. */
#define NEEDED_FEATURES (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP)

/* --- the ring --- */

/* liburing maps and unmaps rings without the C library: ThreadSanitizer takes two
 * rings, of two threads, that lay at one address for one, unless it is told that
 * the first had ended. */
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

/* Where completions are made when the kernel is entered only, it says that there are some. */
#define SINGLE (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG)
#define COOPERATIVE (IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG)

/* Each unknown flag is EINVAL, so the kernel is asked with fewer and fewer.
 * A shared ring has no single issuer, and no cooperative completion either: the
 * thread that submitted may be away from the kernel while another one waits. */
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
	/* All requests, one cancel and one poll. */
	struct io_uring_params params = {
		.flags = flags | IORING_SETUP_CQSIZE,
		.cq_entries = depth + 2 > entries ? depth + 2 : entries,
	};
	return io_uring_queue_init_params(entries, ring, &params);
}

/* The best of `tries`. */
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

/* Linux 5.10 begins a cached read, waits for the page, and begins again when it is not valid: of a
 * bad sector for ever, in whichever thread enters the ring.  5.12 mended that, but 5.10's later
 * releases say all that 5.15 does: this is what came next. */
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
			", cached reads by threads of the kernel's: before Linux 5.17 others "
			"of a bad sector may never end");
	}
	return 0;
}

void hoist__uring_close(struct io_uring *ring)
{
	RING_ENDS();
	io_uring_queue_exit(ring);
}

/* A filter may allow io_uring_setup and refuse io_uring_enter. */
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

/* Shortages pass; what the kernel, a filter or a setting refuses stays refused. */
static bool lasting(int verdict)
{
	return verdict == 0 || verdict == -EPERM || verdict == -ENOSYS || verdict == -EACCES ||
	       verdict == -EINVAL || verdict == -ENOTSUP;
}

/* What is known stays; no lock that a child of fork might find taken for ever.  Threads that ask at
 * once may each try; who was the first to know says what all say.  A child of a fork in the middle
 * of that asks anew each time. */
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
