/* SPDX-License-Identifier: MIT */
/* Waits that another thread ends, and a device that gives no answer: reads of a pipe whose end
 * stays empty, which --wrap gives to the threads engine (pread knows no pipes).
 * Plain C, so that TSan sees the threads. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "tests/support/io-helpers.h"
#include "tests/support/wrap.h"

static int stuck_fd = -1;
static atomic_uint n_in_it, most_in_it; /* threads */

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	if (fd == stuck_fd) {
		unsigned now = atomic_fetch_add(&n_in_it, 1) + 1;
		unsigned most = atomic_load(&most_in_it);
		while (now > most && !atomic_compare_exchange_weak(&most_in_it, &most, now))
			continue;
		ssize_t n = read(fd, to, bytes);
		atomic_fetch_sub(&n_in_it, 1);
		return n;
	}
	return __real_pread(fd, to, bytes, offset);
}

#define DEPTH 4u
#define N_STUCK 6u
#define N_THREADS 4u
#define BYTES ((size_t)64 << 10)

struct bench {
	int ends[2];
	struct hoist__file slow;
	struct hoist__file *fast;
	struct hoist__engine *engine;
	struct hoist__request stuck[N_STUCK];
	char bytes[N_STUCK];
	unsigned char *memory;
};

static char slow_name[] = "a pipe";

static void set_up(struct bench *b, enum hoist__engine_kind kind)
{
	OK(pipe(b->ends));
	stuck_fd = b->ends[0];
	b->slow = (struct hoist__file){
		.path = slow_name, .fd = b->ends[0], .direct_fd = -1, .dev = UINT64_MAX};
	b->fast = new_file(BYTES);
	b->memory = new_memory(BYTES);
	const struct hoist__file *files[] = {&b->slow, b->fast};
	struct hoist__engine_options options = {
		.kind = kind, .depth = DEPTH, .n_threads = N_THREADS, .files = files, .n_files = 2};
	OK(hoist__engine_create(&options, &b->engine));
	CHECK(hoist__engine_room(b->engine) == 2 * DEPTH);
}

static void submit_stuck(struct bench *b, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct hoist__request *request = &b->stuck[i];
		*request = read_of(&b->slow, (unsigned char *)&b->bytes[i], 0, 1);
		OK(hoist__engine_submit(b->engine, &request, 1));
	}
}

/* The pipe gives its bytes at last. */
static void tear_down(struct bench *b, unsigned n_stuck)
{
	CHECK(write(b->ends[1], "123456", n_stuck) == (ssize_t)n_stuck);
	for (unsigned n = 0; n < n_stuck; n++) {
		struct hoist__request *ready = NULL;
		CHECK(hoist__engine_reap(b->engine, &ready, 1, UINT64_MAX) == 1);
		CHECK(ready->result == 0 && ready->done == 1);
	}
	CHECK(hoist__engine_room(b->engine) == 2 * DEPTH);
	hoist__engine_destroy(b->engine);
	hoist__file_close(b->fast);
	free(b->memory);
	close(b->ends[0]);
	close(b->ends[1]);
}

static void nap(long ns)
{
	struct timespec time = {.tv_nsec = ns};
	(void)nanosleep(&time, NULL);
}

static void *wake_later(void *engine)
{
	nap(5000000);
	hoist__engine_wake(engine);
	return NULL;
}

static void *wake_often(void *engine)
{
	for (int i = 0; i < 1000; i++)
		hoist__engine_wake(engine);
	return NULL;
}

/* Every wake is one return, or shares it with others; none is lost. */
static void wakes(struct bench *b)
{
	struct hoist__request *ready[DEPTH];
	pthread_t thread;
	submit_stuck(b, 1);
	CHECK(hoist__engine_reap(b->engine, ready, DEPTH, 1000000) == 0);
	for (int i = 0; i < 3; i++) {
		OK(pthread_create(&thread, NULL, wake_later, b->engine));
		CHECK(hoist__engine_reap(b->engine, ready, DEPTH, UINT64_MAX) == 0);
		pthread_join(thread, NULL);
	}
	/* Before the wait. */
	hoist__engine_wake(b->engine);
	hoist__engine_wake(b->engine);
	CHECK(hoist__engine_reap(b->engine, ready, DEPTH, UINT64_MAX) == 0);
	/* Once heard it is over: this wait runs its time. */
	uint64_t start = hoist__now_ns();
	CHECK(hoist__engine_reap(b->engine, ready, DEPTH, 3000000) == 0);
	CHECK(hoist__now_ns() - start >= 3000000);
	/* In a storm, one by one and with reads between. */
	OK(pthread_create(&thread, NULL, wake_often, b->engine));
	for (uint64_t at = 0; at < BYTES; at += 4096) {
		struct hoist__request request = {.file = b->fast,
						 .offset = at,
						 .address = b->memory + at,
						 .bytes = 4096,
						 .need = 4096,
						 .hot = at % 8192 == 0,
						 .buffer = -1};
		struct hoist__request *one = &request;
		OK(hoist__engine_submit(b->engine, &one, 1));
		int got = 0;
		while (got == 0)
			got = hoist__engine_reap(b->engine, ready, DEPTH, UINT64_MAX);
		CHECK(got == 1 && ready[0] == &request && request.result == 0);
	}
	pthread_join(thread, NULL);
	CHECK(first_wrong(b->fast->fd, b->memory, 0, BYTES) == BYTES);
	/* The storm leaves one wake at most. */
	(void)hoist__engine_reap(b->engine, ready, DEPTH, 1000000);
	OK(pthread_create(&thread, NULL, wake_later, b->engine));
	CHECK(hoist__engine_reap(b->engine, ready, DEPTH, UINT64_MAX) == 0);
	pthread_join(thread, NULL);
}

/* A wait with nothing in flight is for a wake: of any thread, or of before. */
static void with_nothing_in_flight(struct bench *b)
{
	struct hoist__request *ready[DEPTH];
	pthread_t thread;
	CHECK(hoist__engine_reap(b->engine, ready, DEPTH, 0) == 0);
	for (int i = 0; i < 3; i++) {
		uint64_t start = hoist__now_ns();
		CHECK(hoist__engine_reap(b->engine, ready, DEPTH, 3000000) == 0);
		CHECK(hoist__now_ns() - start >= 3000000);
		start = hoist__now_ns();
		OK(pthread_create(&thread, NULL, wake_later, b->engine));
		CHECK(hoist__engine_reap(b->engine, ready, DEPTH, UINT64_MAX) == 0);
		CHECK(hoist__now_ns() - start >= 5000000);
		pthread_join(thread, NULL);
		hoist__engine_wake(b->engine);
		CHECK(hoist__engine_reap(b->engine, ready, DEPTH, UINT64_MAX) == 0);
	}
}

/* The kernel's answers are seen, however often somebody else has one. */
static void among_wakes(struct bench *b)
{
	struct hoist__request *ready[DEPTH];
	submit_stuck(b, 1);
	CHECK(hoist__engine_reap(b->engine, ready, DEPTH, 1000000) == 0);
	CHECK(write(b->ends[1], "1", 1) == 1);
	int got = 0;
	for (int i = 0; i < 10000 && got == 0; i++) {
		hoist__engine_wake(b->engine);
		got = hoist__engine_reap(b->engine, ready, DEPTH, UINT64_MAX);
		nap(100000);
	}
	CHECK(got == 1 && ready[0] == &b->stuck[0] && ready[0]->result == 0);
}

/* More reads than its depth wait for the slow device; the other one's go by. */
static void overtaking(struct bench *b)
{
	submit_stuck(b, N_STUCK);
	CHECK(hoist__engine_room(b->engine) == 2 * DEPTH - N_STUCK);
	for (uint64_t at = 0; at < BYTES; at += 4096) {
		struct hoist__request request = read_of(b->fast, b->memory + at, at, 4096);
		run_request(b->engine, &request);
		CHECK(request.result == 0);
	}
	CHECK(first_wrong(b->fast->fd, b->memory, 0, BYTES) == BYTES);
}

/* A device gets as many reads at once as the depth says, or its share of the threads. */
static void limits(struct bench *b, enum hoist__engine_kind kind)
{
	struct hoist__request *ready[N_STUCK];
	submit_stuck(b, N_STUCK);
	CHECK(hoist__engine_reap(b->engine, ready, N_STUCK, 20000000) == 0);
	CHECK(write(b->ends[1], "123456", N_STUCK) == N_STUCK);
	unsigned n = 0;
	if (kind == HOIST__ENGINE_URING) {
		int left = 0;
		n = (unsigned)hoist__engine_reap(b->engine, ready, N_STUCK, 0);
		CHECK(n == DEPTH);
		CHECK(ioctl(b->ends[0], FIONREAD, &left) == 0 && left == N_STUCK - DEPTH);
	}
	while (n < N_STUCK)
		n += (unsigned)hoist__engine_reap(b->engine, ready, N_STUCK, UINT64_MAX);
	CHECK(kind == HOIST__ENGINE_URING || atomic_load(&most_in_it) == N_THREADS / 2);
}

int main(void)
{
	static const enum hoist__engine_kind kinds[] = {HOIST__ENGINE_THREADS, HOIST__ENGINE_URING};
	unsigned n_kinds = hoist__uring_probe(NULL, 0) == 0 ? 2 : 1;
	for (unsigned i = 0; i < n_kinds; i++) {
		struct bench b;
		set_up(&b, kinds[i]);
		wakes(&b);
		tear_down(&b, 1);
		set_up(&b, kinds[i]);
		with_nothing_in_flight(&b);
		tear_down(&b, 0);
		set_up(&b, kinds[i]);
		overtaking(&b);
		tear_down(&b, N_STUCK);
		set_up(&b, kinds[i]);
		among_wakes(&b);
		limits(&b, kinds[i]);
		tear_down(&b, 0);
	}
	printf("%u engines\n", n_kinds);
	return 0;
}
