/* SPDX-License-Identifier: MIT */
/* One process of the soak: its threads take turns at actions, in rounds. */
#include "config.h"

#include "tests/soak/worker.h"

#include "tests/soak/parent.h"

#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "hoist/ipc.h"
#include "tests/support/quiet-fork.h"
#include "tests/support/under-tsan.h"

hoist_device *soak_devices[LIB_N_DEVICES];
hoist_budget *soak_budget;

static int slot;
static uint64_t seed;
static pthread_barrier_t barrier;
static bool leaving; /* written by one thread while the others wait */

/* The turns of an action in a hundred or so. */
static const struct turn {
	enum soak_action action;
	unsigned share;
	void (*run)(void);
} turns[] = {
	{SOAK_load, 30, soak_load},
	{SOAK_load_static, 8, soak_load_static},
	{SOAK_load_private, 5, soak_load_private},
	{SOAK_save, 12, soak_save},
	{SOAK_save_private, 6, soak_save_private},
	{SOAK_save_shards, 2, soak_save_shards},
	{SOAK_save_again, 4, soak_save_again},
	{SOAK_attach, 10, soak_attach},
	{SOAK_add, 4, soak_add},
	{SOAK_drop, 1, soak_drop},
	{SOAK_copy, 8, soak_copy},
	{SOAK_pool, 6, soak_pool},
	{SOAK_parcel, 6, soak_parcel},
	{SOAK_send, 6, soak_send},
#if !UNDER_TSAN && !defined(QUIET_FORKS)
	{SOAK_fork, 4, soak_fork},
#endif
};
#define N_TURNS (sizeof turns / sizeof turns[0])

static void act(void)
{
	unsigned all = 0;
	for (size_t i = 0; i < N_TURNS; i++)
		all += turns[i].share;
	uint64_t which = soak_below(all);
	size_t i = 0;
	while (which >= turns[i].share)
		which -= turns[i++].share;
	uint64_t own = soak_random();
	uint64_t after = soak_random();
	soak_begin(turns[i].action, own);
	turns[i].run();
	self.random = after; /* how much an action took of it depends on time */
}

static bool is_over(uint64_t round_end)
{
	return soak_now() >= round_end || atomic_load(&board->stop);
}

/* All threads do the same rounds. */
static void *live(void *argument)
{
	int thread = (int)(intptr_t)argument;
	self = (struct soak_self){.slot = slot,
				  .thread = thread,
				  .random = soak_mix(seed ^ (uint64_t)thread << 32),
				  .beat = &board->slots[slot].beats[thread]};
	atomic_store(&self.beat->tid, (int)syscall(SYS_gettid));
	while (!leaving) {
		uint64_t round_end = soak_now() + board->round_ns;
		while (!is_over(round_end))
			if (thread < SOAK_THREADS) {
				act();
			} else {
				soak_beat();
				soak_take();
			}
		soak_begin(SOAK_idle, self.random);
		atomic_store(&self.beat->since_ns, 0); /* others may have long to go */
		(void)pthread_barrier_wait(&barrier);
		if (thread == 0) {
			soak_begin(SOAK_rest, self.random);
			soak_rest();
			leaving = atomic_load(&board->stop);
		}
		(void)pthread_barrier_wait(&barrier);
	}
	atomic_store(&self.beat->since_ns, 0);
	return NULL;
}

static void die_with_parent(void)
{
	pid_t parent = getppid();
	OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
	CHECK(getppid() == parent);
}

/* Objects that the first use makes and the library keeps are there from the beginning. */
static void use_all_devices(void)
{
	const int64_t shape[] = {1000};
	for (int d = 0; d < LIB_N_DEVICES; d++) {
		hoist_buffer *buffer = NULL;
		hoist_stream *stream = NULL;
		OK(hoist_device_default_stream(soak_devices[d], &stream));
		OK(hoist_buffer_create_on(stream, HOIST_I8, 1, shape, HOIST_BUFFER_ZERO, &buffer));
		OK(hoist_stream_synchronize(stream));
		if (d != CPU) { /* the stand-ins' memory has a descriptor from then on */
			hoist_ipc_descriptor descriptor;
			OK(hoist_ipc_export(buffer, &descriptor, NULL));
		}
		hoist_buffer_unref(buffer);
		hoist_stream_unref(stream);
	}
}

/* glibc's malloc keeps what is free at the end of each thread's arena up to a threshold, and raises
 * the threshold to twice the largest block that was freed, at most 64 MiB.  A fixed threshold keeps
 * malloc's own memory out of the judgement of what the process holds. */
static void fix_malloc_thresholds(void)
{
	bool fixed = mallopt(M_TRIM_THRESHOLD, 128 << 10) == 1 &&
		     mallopt(M_MMAP_THRESHOLD, 128 << 10) == 1;
	CHECK(fixed || soak_is_watched()); /* a sanitizer's malloc has no such thresholds */
}

int soak_worker(int its_slot, uint64_t its_seed, const char *folder)
{
	pthread_t threads[SOAK_BEATS];
	(void)snprintf(soak_folder, sizeof soak_folder, "%s", folder);
	soak_board_open(soak_path("board"));
	slot = its_slot;
	seed = its_seed;
	self = (struct soak_self){
		.slot = slot, .random = seed, .beat = &board->slots[slot].beats[0]};
	die_with_parent();
	fix_malloc_thresholds();
	lib_open_all(soak_devices);
	use_all_devices();
	/* Budgets do not cross processes: each has its part of all. */
	OK(hoist_budget_create(((size_t)256 << 10) << soak_below(6), &soak_budget));
	soak_listen();
	soak_rest();
	OK(pthread_barrier_init(&barrier, NULL, SOAK_BEATS));
	for (intptr_t i = 0; i < SOAK_BEATS; i++)
		OK(pthread_create(&threads[i], NULL, live, (void *)i));
	for (int i = 0; i < SOAK_BEATS; i++)
		OK(pthread_join(threads[i], NULL));
	soak_rest_last();
	hoist_budget_unref(soak_budget);
	for (int d = 0; d < LIB_N_DEVICES; d++)
		hoist_device_unref(soak_devices[d]);
	return 0;
}
