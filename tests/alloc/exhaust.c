/* SPDX-License-Identifier: MIT */
/* The means of a pool before it says that there is no more: limits, budgets, other threads'
 * magazines, the caller's callback, the caller's memory, registered pieces. */
#include "config.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "alloc/budget.h"
#include "base/clock.h"
#include "device/device.h"
#include "tests/support/alloc-support.h"

#define MILLISECOND UINT64_C(1000000)

static int try_block(struct hoist__pool *pool, size_t bytes, uintptr_t *ret)
{
	return hoist__pool_alloc(pool, bytes, 0, 0, ret);
}

/* --- what others have cached --- */

#define MANY 8000

struct hoarder {
	struct hoist__pool *pool;
	size_t n; /* blocks it could have */
	pthread_barrier_t barrier;
};

static size_t take_all(struct hoist__pool *pool, uintptr_t *blocks)
{
	size_t n = 0;
	while (n < MANY && try_block(pool, 1000, &blocks[n]) == 0)
		n++;
	CHECK(n < MANY);
	return n;
}

/* Takes all there is, frees it, and sits there with full magazines. */
static void *hoard(void *argument)
{
	struct hoarder *hoarder = argument;
	uintptr_t *blocks = calloc(MANY, sizeof *blocks);
	CHECK(blocks != NULL);
	hoarder->n = take_all(hoarder->pool, blocks);
	for (size_t i = 0; i < hoarder->n; i++)
		give_block(hoarder->pool, blocks[i]);
	free(blocks);
	(void)pthread_barrier_wait(&hoarder->barrier);
	(void)pthread_barrier_wait(&hoarder->barrier);
	/* Its magazines no longer hold the blocks that the other thread took. */
	uintptr_t at;
	CHECK(try_block(hoarder->pool, 1000, &at) == -EDQUOT);
	(void)pthread_barrier_wait(&hoarder->barrier);
	return NULL;
}

static void check_magazines_of_others(void)
{
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB,
						    .limit_bytes = 4 * HOIST__MIB};
	struct hoarder hoarder = {.pool = make_pool(&options)};
	uintptr_t *blocks = calloc(MANY, sizeof *blocks);
	pthread_t thread;
	CHECK(blocks != NULL);
	CHECK(pthread_barrier_init(&hoarder.barrier, NULL, 2) == 0);
	start(&thread, hoard, &hoarder);
	(void)pthread_barrier_wait(&hoarder.barrier);
	CHECK(pool_stats(hoarder.pool).cached_bytes > 0);
	size_t n = take_all(hoarder.pool, blocks);
	CHECK(n == hoarder.n);
	(void)pthread_barrier_wait(&hoarder.barrier);
	(void)pthread_barrier_wait(&hoarder.barrier);
	give_blocks(hoarder.pool, blocks, n);
	/* Also where the next request is of another shape, and for all the memory. */
	uintptr_t all = take_block(hoarder.pool, 4 * HOIST__MIB);
	give_block(hoarder.pool, all);
	join(thread);
	expect_unused(hoarder.pool);
	hoist__pool_unref(hoarder.pool);
	CHECK(pthread_barrier_destroy(&hoarder.barrier) == 0);
	free(blocks);
}

/* --- the soft limit --- */

static void check_soft_limit(void)
{
	struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB,
					      .keep_bytes = 64 * HOIST__MIB};
	for (int soft = 0; soft < 2; soft++) {
		options.soft_bytes = soft ? 8 * HOIST__MIB : 0;
		struct hoist__pool *pool = make_pool(&options);
		give_block(pool, take_block(pool, 6 * HOIST__MIB));
		uintptr_t a = take_block(pool, 4 * HOIST__MIB);
		size_t empty = soft ? 0 : 6 * HOIST__MIB;
		CHECK(pool_stats(pool).reserved_bytes == empty + 4 * HOIST__MIB);
		/* It is no limit: what is really needed is there. */
		uintptr_t b = take_block(pool, 9 * HOIST__MIB);
		CHECK(pool_stats(pool).reserved_bytes == empty + 13 * HOIST__MIB);
		give_block(pool, a);
		give_block(pool, b);
		hoist__pool_unref(pool);
	}
}

/* Blocks in magazines keep their regions; above the soft limit they are taken out. */
static void check_soft_limit_empties_magazines(void)
{
	const struct hoist__pool_options options = {
		.region_bytes = 2 * HOIST__MIB, .soft_bytes = 2 * HOIST__MIB, .keep_bytes = 0};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t blocks[100];
	for (int i = 0; i < 100; i++)
		blocks[i] = take_block(pool, 1000);
	give_blocks(pool, blocks, 100);
	CHECK(pool_stats(pool).cached_bytes > 0);
	uintptr_t large = take_block(pool, 3 * HOIST__MIB);
	CHECK(pool_stats(pool).cached_bytes == 0);
	CHECK(pool_stats(pool).reserved_bytes == 3 * HOIST__MIB);
	give_block(pool, large);
	expect_unused(pool);
	hoist__pool_unref(pool);
}

/* A limit below a region's size: no block fails for its slab that is not too large itself. */
static void check_small_limits(void)
{
	for (size_t limit = 64 * HOIST__KIB; limit <= 4 * HOIST__MIB; limit *= 2) {
		const struct hoist__pool_options options = {.limit_bytes = limit};
		for (size_t bytes = 1; bytes <= limit; bytes += 1 + bytes / 17) {
			struct hoist__pool *pool = make_pool(&options);
			give_block(pool, take_block(pool, bytes));
			hoist__pool_unref(pool);
		}
	}
}

/* --- budgets --- */

struct loan {
	struct hoist__pool *pool;
	uintptr_t block;
	unsigned us; /* until it is given back */
};

static void *give_later(void *argument)
{
	struct loan *loan = argument;
	(void)usleep(loan->us);
	give_block(loan->pool, loan->block);
	return NULL;
}

static void check_shared_budget(void)
{
	struct hoist__budget *budget;
	CHECK(hoist__budget_create(10 * HOIST__MIB, &budget) == 0);
	struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB, .budget = budget};
	struct hoist__pool *a = make_pool(&options);
	options.budget_wait_ns = 50 * MILLISECOND;
	struct hoist__pool *b = make_pool(&options);
	options.budget_wait_ns = 60000 * MILLISECOND;
	struct hoist__pool *c = make_pool(&options);
	struct loan loan = {.pool = a, .block = take_block(a, 8 * HOIST__MIB)};
	uintptr_t at = 77;
	CHECK(hoist__budget_used(budget) == 8 * HOIST__MIB);
	uint64_t began = hoist__now_ns();
	CHECK(try_block(b, 4 * HOIST__MIB, &at) == -EDQUOT);
	CHECK(hoist__now_ns() - began >= 50 * MILLISECOND);
	CHECK(strstr(hoist__error_text(), "budget") != NULL);
	CHECK(at == 77 && hoist__budget_used(budget) == 8 * HOIST__MIB);
	CHECK(atomic_load(&pool_stats(b).calls.of[HOIST__CALL_WAIT].n) > 0);
	/* A request above the whole budget is not waited for. */
	CHECK(try_block(c, 11 * HOIST__MIB, &at) == -EDQUOT);
	CHECK(atomic_load(&pool_stats(c).calls.of[HOIST__CALL_WAIT].n) == 0);
	/* 2 MiB are left: less than that is there without waiting. */
	give_block(c, take_block(c, HOIST__MIB));
	hoist__pool_trim(c, 0);
	/* Later and later, until the other thread was late enough to be waited for. */
	uintptr_t block = 0;
	for (loan.us = 50000; block == 0; loan.us *= 2) {
		pthread_t thread;
		start(&thread, give_later, &loan);
		block = take_block(c, 4 * HOIST__MIB);
		join(thread);
		if (atomic_load(&pool_stats(c).calls.of[HOIST__CALL_WAIT].longest_ns) > MILLISECOND)
			break;
		give_block(c, block);
		hoist__pool_trim(c, 0);
		loan.block = take_block(a, 8 * HOIST__MIB);
		block = 0;
	}
	CHECK(hoist__budget_used(budget) == 4 * HOIST__MIB);
	CHECK(hoist__budget_peak(budget) <= 10 * HOIST__MIB);
	give_block(c, block);
	hoist__pool_unref(a);
	hoist__pool_unref(b);
	hoist__pool_unref(c);
	CHECK(hoist__budget_used(budget) == 0);
	hoist__budget_unref(budget);
}

static void check_device_budget(void)
{
	struct hoist__budget *device, *process;
	uintptr_t at;
	CHECK(hoist__budget_create(6 * HOIST__MIB, &device) == 0);
	CHECK(hoist__budget_create(4 * HOIST__MIB, &process) == 0);
	const struct hoist__pool_options options = {
		.region_bytes = 2 * HOIST__MIB, .budget = process, .device_budget = device};
	struct hoist__pool *pool = make_pool(&options);
	CHECK(try_block(pool, 7 * HOIST__MIB, &at) == -ENOSPC);
	CHECK(strstr(hoist__error_text(), "device's memory limit is 6 MiB") != NULL);
	/* The grant of one budget goes back when the other refuses. */
	CHECK(try_block(pool, 5 * HOIST__MIB, &at) == -EDQUOT);
	CHECK(hoist__budget_used(device) == 0 && hoist__budget_used(process) == 0);
	at = take_block(pool, 3 * HOIST__MIB);
	CHECK(hoist__budget_used(device) == 3 * HOIST__MIB);
	CHECK(hoist__budget_used(process) == 3 * HOIST__MIB);
	give_block(pool, at);
	hoist__pool_unref(pool);
	CHECK(hoist__budget_used(device) == 0 && hoist__budget_used(process) == 0);
	hoist__budget_unref(device);
	hoist__budget_unref(process);
}

/* --- the callback --- */

struct asked {
	struct hoist__pool *pool;
	uintptr_t block; /* to be given up at attempt @gives_at */
	unsigned gives_at;
	unsigned stops_at;
	unsigned n;
	size_t bytes;
};

static int exhausted(void *context, size_t bytes, unsigned attempt)
{
	struct asked *asked = context;
	CHECK(attempt == ++asked->n);
	asked->bytes = bytes;
	if (attempt == asked->gives_at)
		give_block(asked->pool, asked->block);
	return attempt != asked->stops_at;
}

static void check_callback(void)
{
	struct asked asked = {0};
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB,
						    .limit_bytes = 4 * HOIST__MIB,
						    .exhausted = exhausted,
						    .exhausted_context = &asked,
						    .exhausted_retries = 5};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t at = 77;
	asked = (struct asked){.pool = pool, .block = take_block(pool, 3 * HOIST__MIB)};
	CHECK(asked.n == 0);
	/* Nothing helps: asked as often as was said. */
	CHECK(try_block(pool, 2 * HOIST__MIB, &at) == -EDQUOT && at == 77);
	CHECK(asked.n == 5 && asked.bytes == 2 * HOIST__MIB);
	CHECK(pool_stats(pool).n_exhausted == 5);
	/* It gives up. */
	asked.n = 0;
	asked.stops_at = 2;
	CHECK(try_block(pool, 2 * HOIST__MIB, &at) == -EDQUOT);
	CHECK(asked.n == 2);
	/* It helps. */
	asked.n = 0;
	asked.stops_at = 0;
	asked.gives_at = 3;
	CHECK(try_block(pool, 2 * HOIST__MIB, &at) == 0);
	CHECK(asked.n == 3 && pool_stats(pool).n_exhausted == 10);
	give_block(pool, at);
	/* Requests without sense are nobody's exhaustion. */
	asked.n = 0;
	CHECK(try_block(pool, 0, &at) == -EINVAL && asked.n == 0);
	expect_unused(pool);
	hoist__pool_unref(pool);
}

/* --- the caller's memory --- */

static uintptr_t map_bytes(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	return (uintptr_t)memory;
}

static bool lies_in(uintptr_t address, size_t bytes, uintptr_t base, size_t all)
{
	return address >= base && address + bytes <= base + all;
}

static void check_given_region(void)
{
	const size_t all = 16 * HOIST__MIB;
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB};
	struct hoist__pool *pool = make_pool(&options), *other = make_pool(&options);
	uintptr_t memory = map_bytes(all + HOIST__MIB);
	uintptr_t base = hoist__round_up(memory, 64 * HOIST__KIB);
	/* Not from a granule's start, nor to one's end: what lies between is added. */
	CHECK(hoist__pool_add_region(pool, base - 1 + 64 * HOIST__KIB, all) == 0);
	base += 64 * HOIST__KIB;
	size_t added = pool_stats(pool).reserved_bytes;
	CHECK(added == all - 64 * HOIST__KIB && pool_stats(pool).n_regions == 1);
	/* Overlaps, with one's own and others'. */
	CHECK(hoist__pool_add_region(pool, base, all) == -EINVAL);
	CHECK(hoist__pool_add_region(other, base + HOIST__MIB, 64 * HOIST__KIB) == -EINVAL);
	CHECK(hoist__pool_add_region(other, base - 64 * HOIST__KIB, all) == -EINVAL);
	CHECK(pool_stats(other).reserved_bytes == 0 && pool_stats(pool).reserved_bytes == added);
	/* Small, medium and large blocks come from it, before the pool grows. */
	uintptr_t small = take_block(pool, 1000), medium = take_block(pool, HOIST__MIB / 2);
	uintptr_t large = take_block(pool, 6 * HOIST__MIB);
	CHECK(pool_stats(pool).n_regions == 1);
	CHECK(lies_in(small, 1000, base, added) && lies_in(large, 6 * HOIST__MIB, base, added));
	memset((void *)large, 1, 6 * HOIST__MIB);
	uintptr_t more = take_block(pool, 12 * HOIST__MIB);
	CHECK(pool_stats(pool).n_regions == 2);
	give_block(pool, small);
	give_block(pool, medium);
	give_block(pool, large);
	give_block(pool, more);
	hoist__pool_trim(pool, 0);
	hoist__pool_check(pool);
	CHECK(pool_stats(pool).reserved_bytes == added); /* it is not the pool's to give back */
	uintptr_t almost = take_block(pool, added);
	CHECK(almost == base);
	give_block(pool, almost);
	hoist__pool_unref(pool);
	memset((void *)base, 2, added); /* the caller's again */
	CHECK(hoist__pool_add_region(other, base, added) == 0);
	hoist__pool_unref(other);
	CHECK(munmap((void *)memory, all + HOIST__MIB) == 0);
}

static void check_refused_regions(void)
{
	struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t memory = map_bytes(HOIST__MIB);
	uintptr_t base = hoist__round_up(memory, 64 * HOIST__KIB);
	CHECK(hoist__pool_add_region(pool, 0, HOIST__MIB) == -EINVAL);
	CHECK(hoist__pool_add_region(pool, base, 0) == -EINVAL);
	CHECK(hoist__pool_add_region(pool, base, 64 * HOIST__KIB - 1) == -EINVAL);
	CHECK(hoist__pool_add_region(pool, base + 1, 128 * HOIST__KIB - 2) == -EINVAL);
	CHECK(hoist__pool_add_region(pool, base, SIZE_MAX) == -EINVAL);
	CHECK(hoist__pool_add_region(pool, UINTPTR_MAX - 10, 5) == -EINVAL);
	CHECK(pool_stats(pool).reserved_bytes == 0);
	hoist__pool_unref(pool);
	options.limit_bytes = 64 * HOIST__MIB;
	pool = make_pool(&options);
	CHECK(hoist__pool_add_region(pool, base, 128 * HOIST__KIB) == -EINVAL);
	hoist__pool_unref(pool);
	CHECK(munmap((void *)memory, HOIST__MIB) == 0);
}

/* --- registered pieces --- */

#define PIECE (64 * HOIST__MIB) /* the least that regions are registered in */

static void expect_within_a_piece(struct hoist__pool *pool, uintptr_t address)
{
	struct hoist__block block;
	CHECK(hoist__pool_find(pool, address, &block) == 0);
	size_t start = block.address - block.region->base;
	CHECK(start / block.region->piece_bytes ==
	      (start + block.allocated - 1) / block.region->piece_bytes);
}

static void check_pieces(struct hoist__dev *dev)
{
	enum { N = 2000 };
	const struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_PINNED, .dev = dev, .region_bytes = 3 * PIECE};
	struct hoist__pool *pool = make_pool(&options);
	static uintptr_t blocks[N];
	uint64_t random = 3;
	struct hoist__block block;
	blocks[0] = take_block(pool, 100);
	CHECK(hoist__pool_find(pool, blocks[0], &block) == 0);
	CHECK(block.region->piece_bytes == PIECE && block.region->bytes == 3 * PIECE);
	size_t n = 1;
	/* Until it is full, so that every end of a piece is met. */
	while (n < N && pool_stats(pool).n_regions == 1) {
		size_t bytes = 1 + random_below(&random, (size_t)4096 << random_below(&random, 11));
		blocks[n] = take_block(pool, bytes);
		expect_within_a_piece(pool, blocks[n++]);
		if (random_below(&random, 4) == 0)
			give_block(pool, blocks[--n]);
	}
	CHECK(n < N);
	while (n > 0)
		give_block(pool, blocks[--n]);
	hoist__pool_check(pool);
	hoist__pool_trim(pool, 0);
	/* Less than half a region, but more than a piece: one registration or none. */
	uintptr_t at = 77;
	CHECK(try_block(pool, PIECE + 1, &at) < 0 && at == 77);
	at = take_block(pool, PIECE);
	expect_within_a_piece(pool, at);
	give_block(pool, at);
	expect_unused(pool);
	hoist__pool_unref(pool);
}

int main(void)
{
	struct hoist__dev *dev;
	CHECK(setenv("HOIST_EMULATE", "cuda:1", 1) == 0);
	CHECK(setenv("HOIST_EMULATE_REGISTER_MOST", "64M", 1) == 0);
	CHECK(hoist__dev_get(HOIST__API_CUDA, 0, &dev) == 0);
	check_magazines_of_others();
	check_soft_limit();
	check_soft_limit_empties_magazines();
	check_small_limits();
	check_shared_budget();
	check_device_budget();
	check_callback();
	check_given_region();
	check_refused_regions();
	check_pieces(dev);
	return 0;
}
