/* SPDX-License-Identifier: MIT */
/* Helpers of the plain C tests of pools: making pools, taking and giving blocks, checking books,
 * running threads. */
#ifndef HOIST_TESTS_ALLOC_SUPPORT_H
#define HOIST_TESTS_ALLOC_SUPPORT_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alloc/pool.h"
#include "base/checked.h"
#include "base/error.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#define NO_CACHE 1 /* bytes, less than a quantum: what is freed is in its slab at once */

/* True if the test is to do less, because a sanitizer makes it slow. */
static inline bool is_slow(void)
{
	const char *sanitizers = getenv("HOIST_TEST_SANITIZERS");
	return sanitizers != NULL && sanitizers[0] != '\0';
}

static inline struct hoist__pool *make_pool(const struct hoist__pool_options *options)
{
	struct hoist__pool *pool = NULL;
	CHECK(hoist__pool_create(options, &pool) == 0);
	return pool;
}

static inline uintptr_t take_block(struct hoist__pool *pool, size_t bytes)
{
	uintptr_t address = 0;
	CHECK(hoist__pool_alloc(pool, bytes, 0, 0, &address) == 0);
	return address;
}

static inline struct hoist__pool_stats pool_stats(struct hoist__pool *pool)
{
	struct hoist__pool_stats now;
	hoist__pool_stats(pool, &now);
	return now;
}

/* Nobody is in a call: books that are whole, and empty after a trim. */
static inline void expect_unused(struct hoist__pool *pool)
{
	struct hoist__pool_stats now = pool_stats(pool);
	hoist__pool_check(pool);
	CHECK(now.n_blocks == 0 && now.requested_bytes == 0 && now.allocated_bytes == 0);
	hoist__pool_trim(pool, 0);
	hoist__pool_check(pool);
	now = pool_stats(pool);
	CHECK(now.cached_bytes == 0 && now.pending_bytes == 0);
	CHECK(now.reserved_bytes == 0 && now.n_regions == 0 && now.free_bytes == 0);
}

static inline void give_block(struct hoist__pool *pool, uintptr_t address)
{
	CHECK(hoist__pool_free(pool, address) == 0);
}

static inline void give_blocks(struct hoist__pool *pool, const uintptr_t *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++)
		give_block(pool, blocks[i]);
}

static inline void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
	CHECK(pthread_create(thread, NULL, run, argument) == 0);
}

static inline void join(pthread_t thread)
{
	CHECK(pthread_join(thread, NULL) == 0);
}

/* Runs @n threads, each with its own of @arguments, of @bytes each, and waits for them. */
static inline void run_all(void *(*run)(void *), void *arguments, size_t bytes, size_t n)
{
	pthread_t threads[16];
	CHECK(n <= 16);
	for (size_t i = 0; i < n; i++)
		start(&threads[i], run, (char *)arguments + i * bytes);
	for (size_t i = 0; i < n; i++)
		join(threads[i]);
}

#endif
