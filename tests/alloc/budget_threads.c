/* SPDX-License-Identifier: MIT */
/* Threads that share a budget: nobody starves, no wake-up is lost, and a
 * child of fork has a budget that works.  Exit: 0, 1. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc/budget.h"
#include "tests/support/alloc-support.h"

#define LIMIT ((size_t)1000)
#define N_SMALL 6
#define N_LARGE 200

struct state {
	struct hoist__budget *budget;
	_Atomic size_t held; /* by all, as they count it */
	_Atomic bool done;
	_Atomic unsigned long small;
	_Atomic unsigned arrived;
};

static void hold(struct state *state, size_t bytes)
{
	CHECK(atomic_fetch_add(&state->held, bytes) + bytes <= LIMIT);
	sched_yield();
	atomic_fetch_sub(&state->held, bytes);
	hoist__budget_release(state->budget, bytes);
}

/* Half of them wait, half try again and again: something small is always there. */
static void *take_small(void *argument)
{
	struct state *state = argument;
	bool waits = atomic_fetch_add(&state->arrived, 1) % 2 == 0;
	while (!atomic_load(&state->done)) {
		size_t bytes = 1 + atomic_fetch_add(&state->small, 1) % 300;
		int err = waits ? hoist__budget_acquire_wait(state->budget, bytes, UINT64_MAX)
				: hoist__budget_acquire(state->budget, bytes);
		CHECK(err == 0 || (err == -EAGAIN && !waits));
		if (err == 0)
			hold(state, bytes);
		else
			sched_yield();
	}
	return NULL;
}

static void run_large_among_small(void)
{
	struct state state = {0};
	pthread_t threads[N_SMALL];
	CHECK(hoist__budget_create(LIMIT, &state.budget) == 0);
	for (int i = 0; i < N_SMALL; i++)
		CHECK(pthread_create(&threads[i], NULL, take_small, &state) == 0);
	while (atomic_load(&state.small) < 1000)
		sched_yield();
	for (int i = 0; i < N_LARGE; i++) {
		CHECK(hoist__budget_acquire_wait(state.budget, LIMIT, UINT64_MAX) == 0);
		hold(&state, LIMIT);
	}
	atomic_store(&state.done, true);
	for (int i = 0; i < N_SMALL; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(hoist__budget_used(state.budget) == 0);
	CHECK(hoist__budget_peak(state.budget) == LIMIT);
	printf("the whole budget, %d times, among %lu small requests\n", N_LARGE,
	       atomic_load(&state.small));
	hoist__budget_unref(state.budget);
}

/* --- time-outs against grants --- */

static void *wait_briefly(void *argument)
{
	struct state *state = argument;
	struct hoist__budget_ticket ticket = {0};
	for (unsigned i = 0; i < 3000; i++) {
		size_t bytes = 1 + (i * 37) % LIMIT;
		int err = i % 2 != 0 ? hoist__budget_acquire_wait(state->budget, bytes, 1000 + i)
				     : hoist__budget_acquire_turn(state->budget, &ticket, bytes,
								  1000 + i);
		CHECK(err == 0 || err == -EAGAIN);
		if (err == 0)
			hold(state, bytes);
		else if (i % 2 == 0)
			hoist__budget_leave(state->budget, &ticket);
	}
	return NULL;
}

static void run_late(void)
{
	struct state state = {0};
	pthread_t threads[4];
	CHECK(hoist__budget_create(LIMIT, &state.budget) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, wait_briefly, &state) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	CHECK(hoist__budget_used(state.budget) == 0);
	CHECK(hoist__budget_acquire(state.budget, LIMIT) == 0);
	hoist__budget_release(state.budget, LIMIT);
	hoist__budget_unref(state.budget);
}

/* --- fork --- */

static void *wait_for_all(void *argument)
{
	struct state *state = argument;
	CHECK(hoist__budget_acquire_wait(state->budget, LIMIT, UINT64_MAX) == 0);
	hoist__budget_release(state->budget, LIMIT);
	return NULL;
}

static void run_fork(void)
{
	struct state state = {0};
	struct hoist__budget_ticket ticket = {0};
	pthread_t thread;
	int status = -1;
	CHECK(hoist__budget_create(LIMIT, &state.budget) == 0);
	CHECK(hoist__budget_acquire(state.budget, 1) == 0);
	CHECK(hoist__budget_acquire_turn(state.budget, &ticket, LIMIT, 0) == -EAGAIN);
	CHECK(pthread_create(&thread, NULL, wait_for_all, &state) == 0);
	(void)usleep(10000); /* it probably waits by then; either is to work */
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) { /* nobody waits here */
		hoist__budget_leave(state.budget, &ticket);
		CHECK(hoist__budget_acquire(state.budget, LIMIT - 1) == 0);
		hoist__budget_release(state.budget, LIMIT);
		CHECK(hoist__budget_acquire_wait(state.budget, LIMIT, UINT64_MAX) == 0);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	hoist__budget_leave(state.budget, &ticket);
	hoist__budget_release(state.budget, 1);
	CHECK(pthread_join(thread, NULL) == 0);
	hoist__budget_unref(state.budget);
}

int main(void)
{
	run_large_among_small();
	run_late();
	run_fork();
	return 0;
}
