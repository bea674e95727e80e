/* SPDX-License-Identifier: MIT */
/* A pool has as many shards as there are processors, of which the system is made to tell any
 * number, and threads are spread over all of them; the contract is in alloc/pool-private.h. */
#include "config.h"

#include <errno.h>
#include <sched.h>

#include "alloc/pool-private.h"
#include "tests/support/alloc-support.h"

#define SHARDS_MOST 128

static int n_processors; /* -1: the system does not tell */

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set);

int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
	(void)pid;
	if (n_processors < 0) {
		errno = EPERM;
		return -1;
	}
	CPU_ZERO_S(bytes, set);
	for (size_t i = 0; i < (size_t)n_processors; i++)
		CPU_SET_S(i, bytes, set);
	return 0;
}

struct thread {
	struct hoist__pool *pool;
	unsigned shard;
};

static void *allocate(void *argument)
{
	struct thread *thread = argument;
	uintptr_t block = take_block(thread->pool, 1000);
	/* Under some sanitizers pools are watched: threads have caches all the same. */
	thread->shard = hoist__cache_known(thread->pool->index)->shard;
	give_block(thread->pool, block);
	return NULL;
}

/* As many threads as shards, each in one of its own. */
static void expect_spread(struct hoist__pool *pool)
{
	bool used[SHARDS_MOST] = {false};
	for (unsigned i = 0; i < pool->n_shards; i++) {
		struct thread thread = {.pool = pool};
		pthread_t id;
		start(&id, allocate, &thread);
		join(id);
		CHECK(thread.shard < pool->n_shards && !used[thread.shard]);
		used[thread.shard] = true;
	}
}

static void expect_shards(int processors, unsigned shards)
{
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB};
	n_processors = processors;
	struct hoist__pool *pool = make_pool(&options);
	CHECK(pool->n_shards == shards);
	expect_spread(pool);
	expect_unused(pool);
	hoist__pool_unref(pool);
}

int main(void)
{
	expect_shards(1, 1);
	expect_shards(8, 8);
	expect_shards(9, 9);
	expect_shards(128, 128);
	expect_shards(512, SHARDS_MOST);
	expect_shards(-1, SHARDS_MOST);
	return 0;
}
