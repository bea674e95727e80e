/* SPDX-License-Identifier: MIT */
/* A program that runs for days: mappings, resident memory and the heap stay as they were, over
 * very many blocks, regions, and threads that come and go. */
#include "config.h"

#include <errno.h>
#include <semaphore.h>

#include "device/device.h"
#include "tests/support/alloc-figures.h"
#include "tests/support/patience.h"

#define SLOTS 500

/* --- a steady mix in one thread --- */

static size_t some_bytes(uint64_t *random)
{
	uint64_t what = random_below(random, 1000);
	if (what == 0)
		return 3 * HOIST__MIB + random_below(random, HOIST__MIB); /* a region of its own */
	if (what < 5)
		return HOIST__MIB + random_below(random, HOIST__MIB / 2);
	return 1 + random_below(random, (size_t)256 << random_below(random, 6));
}

static void churn(struct hoist__pool *pool, uintptr_t *slots, uint64_t *random, long n)
{
	for (long i = 0; i < n; i++) {
		uintptr_t *slot = &slots[random_below(random, SLOTS)];
		if (*slot != 0)
			give_block(pool, *slot);
		*slot = *slot != 0 ? 0 : take_block(pool, some_bytes(random));
	}
}

static void free_slots(struct hoist__pool *pool, uintptr_t *slots)
{
	for (size_t i = 0; i < SLOTS; i++) {
		if (slots[i] != 0)
			give_block(pool, slots[i]);
		slots[i] = 0;
	}
}

static void check_mix(void)
{
	const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB,
						    .keep_bytes = 8 * HOIST__MIB};
	static uintptr_t slots[SLOTS];
	uint64_t random = 5;
	const long n = is_slow() ? 100000 : 1000000;
	struct hoist__pool *pool = make_pool(&options);
	churn(pool, slots, &random, n);
	hoist__pool_trim(pool, 0);
	struct figures before = figures();
	for (int i = 0; i < 3; i++) {
		churn(pool, slots, &random, n / 3);
		hoist__pool_trim(pool, 0);
	}
	/* Other blocks live now than did then: what is reserved for them may differ. */
	struct figures after = figures();
	CHECK(pool_stats(pool).reserved_bytes < 64 * HOIST__MIB);
	free_slots(pool, slots);
	expect_unused(pool);
	if (!is_slow()) {
		CHECK(after.n_mappings <= before.n_mappings + 30);
		CHECK(after.resident_bytes <= before.resident_bytes + 16 * HOIST__MIB);
	}
	struct figures empty = figures();
	churn(pool, slots, &random, n / 3);
	free_slots(pool, slots);
	expect_unused(pool);
	expect_steady("a mix", empty, figures(), 16 * HOIST__KIB);
	hoist__pool_unref(pool);
}

/* --- slabs that come and go, in a thread whose shard has no region --- */

static void *one_at_a_time(void *argument)
{
	struct hoist__pool *pool = argument;
	for (int i = 0; i < 20000; i++)
		give_block(pool, take_block(pool, 900 * HOIST__KIB));
	return NULL;
}

static void check_borrowed_slabs(void)
{
	const struct hoist__pool_options options = {.region_bytes = 16 * HOIST__MIB,
						    .limit_bytes = 16 * HOIST__MIB,
						    .keep_bytes = 16 * HOIST__MIB,
						    .cache_bytes = NO_CACHE};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t block = take_block(pool, 100);
	pthread_t threads[8];
	for (int i = 0; i < 8; i++) {
		start(&threads[i], one_at_a_time, pool);
		join(threads[i]);
	}
	struct figures before = figures();
	for (int i = 0; i < 8; i++) {
		start(&threads[i], one_at_a_time, pool);
		join(threads[i]);
	}
	expect_steady("borrowed slabs", before, figures(), 16 * HOIST__KIB);
	give_block(pool, block);
	expect_unused(pool);
	hoist__pool_unref(pool);
}

/* --- blocks in the order of streams --- */

static void freed_behind_work(struct hoist__pool *pool, struct hoist__dev_stream **streams, long n)
{
	uint64_t random = 3;
	for (long i = 0; i < n; i++) {
		struct hoist__dev_stream *stream = streams[i % 2];
		size_t bytes = (size_t)256 << random_below(&random, 4);
		uintptr_t block = 0;
		CHECK((i % 3 == 0 ? hoist__pool_alloc(pool, bytes, 0, 0, &block)
				  : hoist__pool_alloc_on(pool, bytes, 0, stream, &block)) == 0);
		if (i % 16 == 0)
			CHECK(hoist__fill_async(stream, block, 1, 1, bytes) == 0);
		if (i % 8 == 0)
			CHECK(hoist__pool_use(pool, block, streams[1 - i % 2]) == 0);
		CHECK(hoist__pool_free_on(pool, block, stream) == 0);
		/* Else chance says how many are pending at most. */
		for (int k = 0; i % 500 == 0 && k < 2; k++)
			CHECK(hoist__dev_stream_synchronize(streams[k]) == 0);
		if (i % 500 == 0)
			hoist__pool_trim(pool, HOIST__MIB);
	}
}

static void check_streams(enum hoist__memory_kind kind, const char *name)
{
	const long n = is_slow() ? 50000 : 500000;
	struct hoist__dev *cpu;
	struct hoist__dev_stream *streams[2];
	CHECK(hoist__dev_get(HOIST__API_CPU, 0, &cpu) == 0);
	const struct hoist__pool_options options = {
		.kind = kind, .dev = cpu, .region_bytes = HOIST__MIB, .keep_bytes = 2 * HOIST__MIB};
	for (int i = 0; i < 2; i++)
		CHECK(hoist__dev_stream_create(cpu, &streams[i]) == 0);
	struct hoist__pool *pool = make_pool(&options);
	freed_behind_work(pool, streams, n / 5);
	struct figures before = figures();
	freed_behind_work(pool, streams, n);
	expect_steady(name, before, figures(), 64 * HOIST__KIB);
	for (uint64_t until = 0; pool_stats(pool).pending_bytes != 0 && patience(&until);)
		hoist__pool_trim(pool, 0);
	expect_unused(pool);
	for (int i = 0; i < 2; i++) {
		hoist__pools_forget_stream(streams[i]);
		hoist__dev_stream_destroy(streams[i]);
	}
	hoist__pool_unref(pool);
}

/* --- threads and pools that come and go --- */

#define N_VISITORS 4

struct visit {
	struct hoist__pool *pools[2];
	sem_t *holds;
	pthread_barrier_t *all_there;
	unsigned seed;
};

/* Bookkeeping follows the most slabs that were there at once.  So the threads always allocate in
 * the same order, and hold their blocks until all do. */
static void *visitor(void *argument)
{
	const struct visit *visit = argument;
	uint64_t random = visit->seed;
	uintptr_t blocks[100];
	for (int i = 0; i < 100; i++)
		blocks[i] = take_block(visit->pools[i % 2], 1 + random_below(&random, 3000));
	CHECK(sem_post(visit->holds) == 0);
	(void)pthread_barrier_wait(visit->all_there);
	for (int i = 0; i < 100; i++)
		give_block(visit->pools[i % 2], blocks[i]);
	return NULL;
}

static void visit_many(const struct hoist__pool_options *options, struct hoist__pool *lasting,
		       int n)
{
	struct visit visits[N_VISITORS];
	pthread_t threads[N_VISITORS];
	pthread_barrier_t all_there;
	sem_t holds;
	CHECK(sem_init(&holds, 0, 0) == 0);
	CHECK(pthread_barrier_init(&all_there, NULL, N_VISITORS) == 0);
	for (int i = 0; i < n; i++) {
		struct hoist__pool *passing = make_pool(options);
		for (unsigned k = 0; k < N_VISITORS; k++) {
			visits[k] = (struct visit){{lasting, passing}, &holds, &all_there, k + 1};
			start(&threads[k], visitor, &visits[k]);
			while (sem_wait(&holds) < 0)
				CHECK(errno == EINTR);
		}
		for (int k = 0; k < N_VISITORS; k++)
			join(threads[k]);
		/* The blocks that the ended threads cached are back where they came from. */
		CHECK(pool_stats(passing).cached_bytes == 0);
		CHECK(pool_stats(passing).n_blocks == 0);
		hoist__pool_unref(passing);
	}
	(void)pthread_barrier_destroy(&all_there);
	(void)sem_destroy(&holds);
}

static void check_threads(void)
{
	const struct hoist__pool_options options = {.region_bytes = HOIST__MIB,
						    .keep_bytes = HOIST__MIB};
	const int n = is_slow() ? 20 : 200;
	struct hoist__pool *lasting = make_pool(&options);
	visit_many(&options, lasting, n);
	hoist__pool_trim(lasting, 0);
	struct figures before = figures();
	visit_many(&options, lasting, n);
	hoist__pool_trim(lasting, 0);
	expect_steady("threads that come and go", before, figures(), 16 * HOIST__KIB);
	CHECK(pool_stats(lasting).cached_bytes == 0);
	expect_unused(lasting);
	hoist__pool_unref(lasting);
}

int main(void)
{
	check_mix();
	check_borrowed_slabs();
	check_streams(HOIST__MEMORY_DEVICE, "device memory in stream order");
	check_streams(HOIST__MEMORY_HOST, "host memory in stream order");
	check_threads();
	return 0;
}
