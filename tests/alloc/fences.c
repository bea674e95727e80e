/* SPDX-License-Identifier: MIT */
/* Without membarrier(2): magazines are emptied by means of real fences where the kernel refuses it
 * from the start; where it refuses later, other threads' magazines are left alone. */
#include "config.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "alloc/magazine.h"
#include "tests/support/alloc-support.h"
#include "tests/support/numa-refuse.h"

#define N_THREADS 3
#define N_SLOTS 100
#define SKIP 77

struct shared {
	struct hoist__pool *pool;
	_Atomic bool done;
	pthread_barrier_t barrier;
};

/* Fast paths alone, each block with its owner's mark at both ends. */
static void *work(void *argument)
{
	struct shared *shared = argument;
	uint64_t random = (uintptr_t)&random;
	const unsigned char mark = (unsigned char)(random >> 12);
	unsigned char *slots[N_SLOTS] = {0};
	while (!atomic_load(&shared->done)) {
		unsigned char **slot = &slots[random_below(&random, N_SLOTS)];
		if (*slot == NULL) {
			*slot = (unsigned char *)take_block(shared->pool, 500);
			(*slot)[0] = (*slot)[499] = mark;
		} else {
			CHECK((*slot)[0] == mark && (*slot)[499] == mark);
			give_block(shared->pool, (uintptr_t)*slot);
			*slot = NULL;
		}
	}
	for (int i = 0; i < N_SLOTS; i++)
		if (slots[i] != NULL)
			give_block(shared->pool, (uintptr_t)slots[i]);
	return NULL;
}

static void trim_while_others_work(struct shared *shared)
{
	pthread_t threads[N_THREADS];
	atomic_store(&shared->done, false);
	for (int i = 0; i < N_THREADS; i++)
		start(&threads[i], work, shared);
	for (int i = 0; i < 2000; i++) {
		hoist__pool_trim(shared->pool, 0);
		CHECK(pool_stats(shared->pool).cached_bytes <= (N_THREADS + 1) * HOIST__MIB);
	}
	atomic_store(&shared->done, true);
	for (int i = 0; i < N_THREADS; i++)
		join(threads[i]);
	hoist__pool_check(shared->pool);
	CHECK(pool_stats(shared->pool).n_blocks == 0);
}

/* Leaves something in this thread's magazines, and stays. */
static void *cache_and_wait(void *argument)
{
	struct shared *shared = argument;
	give_block(shared->pool, take_block(shared->pool, 500));
	(void)pthread_barrier_wait(&shared->barrier);
	(void)pthread_barrier_wait(&shared->barrier);
	return NULL;
}

/* The blocks that a trim leaves in another thread's magazines. */
static size_t cached_after_trim(struct shared *shared)
{
	pthread_t thread;
	CHECK(pthread_barrier_init(&shared->barrier, NULL, 2) == 0);
	start(&thread, cache_and_wait, shared);
	(void)pthread_barrier_wait(&shared->barrier);
	CHECK(pool_stats(shared->pool).cached_bytes > 0);
	hoist__pool_trim(shared->pool, 0);
	size_t bytes = pool_stats(shared->pool).cached_bytes;
	(void)pthread_barrier_wait(&shared->barrier);
	join(thread);
	CHECK(pthread_barrier_destroy(&shared->barrier) == 0);
	CHECK(pool_stats(shared->pool).cached_bytes == 0);
	return bytes;
}

static void open_pool(struct shared *shared)
{
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB};
	shared->pool = make_pool(&options);
}

static void refuse_membarrier(void)
{
	if (refuse(SYS_membarrier, EPERM) != 0) {
		printf("skipped: no seccomp filters here\n");
		(void)fflush(stdout);
		_exit(SKIP);
	}
}

static void refused_from_the_start(void)
{
	struct shared shared = {0};
	refuse_membarrier();
	open_pool(&shared);
	CHECK(hoist__cache_fences);
	trim_while_others_work(&shared);
	CHECK(cached_after_trim(&shared) == 0);
	expect_unused(shared.pool);
	hoist__pool_unref(shared.pool);
}

static void refused_later(void)
{
	struct shared shared = {0};
	open_pool(&shared);
	trim_while_others_work(&shared);
	CHECK(cached_after_trim(&shared) == 0);
	refuse_membarrier();
	trim_while_others_work(&shared);
	CHECK(hoist__cache_fences || cached_after_trim(&shared) > 0);
	expect_unused(shared.pool);
	hoist__pool_unref(shared.pool);
}

static int in_child(void (*run)(void))
{
	int status = -1;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		(void)alarm(60);
		run();
		exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status));
	return WEXITSTATUS(status);
}

int main(void)
{
	int first = in_child(refused_from_the_start);
	int second = in_child(refused_later);
	return first != 0 ? first : second;
}
