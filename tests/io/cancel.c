/* SPDX-License-Identifier: MIT */
/* A read that never ends by itself, and cancels that the kernel does not find it for: some requests
 * are between two of its threads just then.  The engine asks again, as long as it takes.  And the
 * number of threads that the kernel may have where reads hang. */
#include "config.h"

#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/uring-private.h"
#include "tests/support/io-helpers.h"
#include "tests/support/wrap-uring.h"

static atomic_int n_lost; /* so many cancels reach nobody */
static atomic_int n_cancels;
static atomic_uint read_flags; /* of the last read's SQE */

/* Looks at the SQEs that the kernel has not taken yet. */
static void look(struct io_uring *ring)
{
	struct io_uring_sq *sq = &ring->sq;
	for (unsigned n = io_uring_sq_ready(ring); n > 0; n--) {
		struct io_uring_sqe *sqe = &sq->sqes[(sq->sqe_tail - n) & *sq->kring_mask];
		if (sqe->opcode == IORING_OP_READ && sqe->user_data != HOIST__URING_EAR)
			atomic_store(&read_flags, sqe->flags);
		if (sqe->opcode != IORING_OP_ASYNC_CANCEL)
			continue;
		atomic_fetch_add(&n_cancels, 1);
		if (atomic_fetch_sub(&n_lost, 1) > 0) {
			uint64_t mark = sqe->user_data;
			io_uring_prep_nop(sqe);
			sqe->user_data = mark;
		}
	}
}

#define ENTER(name, parameters, arguments)                                                         \
	WRAP(int, name, parameters)                                                                \
	{                                                                                          \
		look(ring);                                                                        \
		return __real_##name arguments;                                                    \
	}

URING_ENTERS(ENTER)

/* The engine is destroyed, or a caller that waits reaps the read. */
static void cancel_a_read(int lost, bool destroy)
{
	int ends[2];
	unsigned char byte[4096];
	OK(pipe(ends));
	const struct hoist__file file = {
		.path = (char *)(uintptr_t) "a pipe", .fd = ends[0], .direct_fd = -1};
	struct hoist__request read = {
		.file = &file, .address = byte, .bytes = sizeof byte, .need = 1, .buffer = -1};
	struct hoist__request *one = &read, *back = NULL;
	const struct hoist__engine_options options = {.kind = HOIST__ENGINE_URING, .depth = 4};
	struct hoist__engine *engine = NULL;
	OK(hoist__engine_create(&options, &engine));
	atomic_store(&n_lost, lost);
	atomic_store(&n_cancels, 0);
	OK(hoist__engine_submit(engine, &one, 1));
	CHECK(hoist__engine_reap(engine, &back, 1, 1000000) == 0);
	if (!destroy) {
		hoist__engine_cancel(engine);
		CHECK(hoist__engine_reap(engine, &back, 1, UINT64_MAX) == 1);
		CHECK(back == one && read.result == -ECANCELED);
	}
	hoist__engine_destroy(engine);
	CHECK(atomic_load(&n_cancels) == lost + 1);
	close(ends[0]);
	close(ends[1]);
}

/* The engine goes on as before once the cancel has ended. */
static void used_again(bool network)
{
	const struct hoist__fs far = {.name = "a network", .network = true};
	char path[256];
	make_file(scratch(path, sizeof path, "cancel"), 4096);
	struct hoist__file *file = NULL;
	OK(hoist__file_open(AT_FDCWD, path, NULL, HOIST__FILE_NO_DIRECT, &file));
	if (network)
		file->fs = &far;
	unsigned char bytes[4096];
	struct hoist__request read = read_of(file, bytes, 0, 4096);
	struct hoist__request *one = &read, *back = NULL;
	const struct hoist__engine_options options = {.kind = HOIST__ENGINE_URING, .depth = 4};
	struct hoist__engine *engine = NULL;
	OK(hoist__engine_create(&options, &engine));
	for (int i = 0; i < 3; i++) {
		hoist__engine_cancel(engine);
		OK(hoist__engine_submit(engine, &one, 1));
		hoist__engine_cancel(engine);
		CHECK(hoist__engine_reap(engine, &back, 1, UINT64_MAX) == 1);
		CHECK(read.result == 0 || read.result == -ECANCELED);
		OK(hoist__engine_submit(engine, &one, 1));
		CHECK(hoist__engine_reap(engine, &back, 1, UINT64_MAX) == 1);
		CHECK(read.result == 0 && read.done == 4096);
		/* The submitting thread must not wait for a server. */
		CHECK(((atomic_load(&read_flags) & IOSQE_ASYNC) != 0) == network);
	}
	hoist__engine_destroy(engine);
	hoist__file_close(file);
	unlink(path);
}

/* --- the kernel's threads for a network --- */

static struct hoist__engine *new_far_engine(bool shared)
{
	static const struct hoist__fs network = {.name = "a network", .network = true};
	static const struct hoist__file file = {
		.path = (char *)(uintptr_t) "a file", .fd = 0, .direct_fd = -1, .fs = &network};
	const struct hoist__file *files = &file;
	const struct hoist__engine_options options = {.kind = HOIST__ENGINE_URING,
						      .depth = 4,
						      .shared = shared,
						      .files = &files,
						      .n_files = 1};
	struct hoist__engine *engine = NULL;
	OK(hoist__engine_create(&options, &engine));
	return engine;
}

/* The workers that reads of the calling thread may have, once the thread has entered the ring. */
static void *ask(void *argument)
{
	struct io_uring *ring = &hoist__uring_of(argument)->ring;
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	CHECK(sqe != NULL);
	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data64(sqe, HOIST__URING_CANCEL); /* whose end is nobody's business */
	CHECK(io_uring_submit(ring) == 1);
	unsigned n[2] = {0, 0};
	struct rlimit limit;
	OK(getrlimit(RLIMIT_NPROC, &limit));
	int err = io_uring_register_iowq_max_workers(ring, n);
	CHECK(err < 0 || n[0] >= hoist__min_u64(limit.rlim_cur, HOIST__URING_NETWORK_WORKERS));
	return NULL;
}

static void in_a_thread(void *(*run)(void *), void *argument)
{
	pthread_t thread;
	OK(pthread_create(&thread, NULL, run, argument));
	OK(pthread_join(thread, NULL));
}

static void *alone(void *unused)
{
	(void)unused;
	struct hoist__engine *engine = new_far_engine(false);
	(void)ask(engine);
	hoist__engine_destroy(engine);
	return NULL;
}

/* The second ring of a thread that has as many as it wants says so of itself, too. */
static void *for_others(void *unused)
{
	(void)unused;
	struct hoist__engine *first = new_far_engine(true);
	struct hoist__engine *second = new_far_engine(true);
	in_a_thread(ask, first);
	in_a_thread(ask, second);
	hoist__engine_destroy(second);
	hoist__engine_destroy(first);
	return NULL;
}

/* Requests that hang on a network must not take all threads of the kernel's.  The kernel keeps the
 * limit by thread, so that each case has a new one. */
static void workers_of_a_network(void)
{
	in_a_thread(alone, NULL);
	in_a_thread(for_others, NULL);
}

int main(void)
{
	if (hoist__uring_probe(NULL, 0) != 0) {
		printf("skipped: %s\n", hoist__error_text());
		return 77;
	}
	for (int lost = 0; lost <= 3; lost += 3)
		for (int destroy = 0; destroy < 2; destroy++)
			cancel_a_read(lost, destroy != 0);
	used_again(false);
	used_again(true);
	workers_of_a_network();
	return 0;
}
