/* SPDX-License-Identifier: MIT */
/* tests/support/lib-gate.h - a gate that holds a stream back until the test opens it, and shows
 * whether work behind it ran:
 *
 *     hoist_stream_call(held, gate_pass, &gate);
 *     hoist_stream_call(waits, gate_look, &gate);
 *     gate_open(&gate);
 *
 * Then gate.seen is 1 if gate_look() ran behind gate_pass(), and 0 if gate_look() ran before. */
#ifndef HOIST_TESTS_LIB_GATE_H
#define HOIST_TESTS_LIB_GATE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

struct gate {
	sem_t open;
	atomic_int passed;
	atomic_int seen; /* `passed`, as gate_look() found it; -1: gate_look() did not run */
};

static inline void gate_init(struct gate *gate)
{
	(void)sem_init(&gate->open, 0, 0);
	atomic_init(&gate->passed, 0);
	atomic_init(&gate->seen, -1);
}

static inline void gate_open(struct gate *gate)
{
	(void)sem_post(&gate->open);
}

static inline void *gate_open_after_20_ms(void *gate)
{
	usleep(20000);
	gate_open(gate);
	return NULL;
}

/* Starts a thread that opens the gate in the middle of the test's next call.  The test joins it. */
static inline pthread_t gate_open_soon(struct gate *gate)
{
	pthread_t opener;
	if (pthread_create(&opener, NULL, gate_open_after_20_ms, gate) != 0)
		abort();
	return opener;
}

static inline int gate_pass(void *context)
{
	struct gate *gate = context;
	while (sem_wait(&gate->open) != 0)
		continue;
	atomic_store(&gate->passed, 1);
	return 0;
}

static inline int gate_look(void *context)
{
	struct gate *gate = context;
	atomic_store(&gate->seen, atomic_load(&gate->passed));
	return 0;
}

#endif
