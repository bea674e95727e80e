/* SPDX-License-Identifier: MIT */
/* Pools, with every call that can fail failing.  A failed call changes nothing, and the pool goes
 * on: once the failure is over, the pool gives all that it refused. */
#include "config.h"

#include "alloc/pool-private.h"
#include "base/checked.h"
#include "tests/support/alloc-support.h"
#include "tests/support/failing-calls.h"
#include "tests/support/under-tsan.h"

/* --- scenarios: 0, or the first error; nothing is kept --- */

/* The first error of a scenario is what it returns. */
static void note(int *first_err, int err)
{
	if (*first_err == 0)
		*first_err = err;
	CHECK(err == 0 || hoist__error_text()[0] != '\0');
}

static const struct {
	size_t bytes;
	size_t align;
	unsigned flags;
} requests[] = {
	{100, 0, 0},
	{90000, 0, 0},
	{100, 4096, 0},
	{1200000, 0, 0}, /* a span of a shared region */
	{3000000, 0, 0}, /* a region of its own */
	{5000, 0, HOIST__ALLOC_UNPOPULATED},
	{1500000, 2 * HOIST__MIB, 0},
	{1000000, 0, 0},
	{700000, 0, 0},
};

#define N_REQUESTS HOIST__ARRAY_SIZE(requests)

/* All of it in the first scenario, whose pages are all there. */
static void write_to(uintptr_t block, size_t bytes)
{
	if (!failing.few_pages)
		memset((void *)block, 1, bytes);
	*(volatile char *)block = 1;
	*(volatile char *)(block + bytes - 1) = 1;
}

/* Asks for everything that @blocks has not.  Returns: the first error. */
static int take_missing(struct hoist__pool *pool, uintptr_t *blocks)
{
	int first_err = 0;
	for (size_t i = 0; i < N_REQUESTS; i++) {
		if (blocks[i] != 0)
			continue;
		bool over = failing_is_over();
		int err = hoist__pool_alloc(pool, requests[i].bytes, requests[i].align,
					    requests[i].flags, &blocks[i]);
		CHECK(err == 0 || !over);
		CHECK((err == 0) == (blocks[i] != 0));
		if (err == 0)
			write_to(blocks[i], requests[i].bytes);
		note(&first_err, err);
		hoist__pool_check(pool);
	}
	return first_err;
}

/* A free cannot fail. */
static void free_blocks(struct hoist__pool *pool, uintptr_t *blocks)
{
	for (size_t i = 0; i < N_REQUESTS; i++) {
		if (blocks[i] != 0)
			OK(hoist__pool_free(pool, blocks[i]));
		blocks[i] = 0;
	}
	hoist__pool_check(pool);
}

static void end_pool(struct hoist__pool *pool)
{
	struct hoist__pool_stats now = pool_stats(pool);
	CHECK(now.n_blocks == 0 && now.allocated_bytes == 0 && now.requested_bytes == 0);
	hoist__pool_trim(pool, 0);
	now = pool_stats(pool);
	CHECK(now.reserved_bytes == 0 && now.n_regions == 0 && now.cached_bytes == 0);
	hoist__pool_unref(pool);
}

static int use_pool(const struct hoist__pool_options *options)
{
	struct hoist__pool *pool;
	uintptr_t blocks[N_REQUESTS] = {0};
	int first_err = hoist__pool_create(options, &pool);
	if (first_err != 0)
		return first_err;
	for (int i = 0; i < 2; i++) {
		note(&first_err, take_missing(pool, blocks));
		if (failing_is_over())
			CHECK(take_missing(pool, blocks) == 0);
		size_t n = 0;
		for (size_t k = 0; k < N_REQUESTS; k++)
			n += blocks[k] != 0;
		CHECK(pool_stats(pool).n_blocks == n);
		free_blocks(pool, blocks);
		hoist__pool_trim(pool, i == 0 ? HOIST__MIB : 0);
	}
	end_pool(pool);
	return first_err;
}

static int plain_pool(void)
{
	const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB};
	return use_pool(&options);
}

/* Empty regions are kept, and given back when growth needs room. */
static int tight_pool(void)
{
	const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB,
						    .keep_bytes = 16 * HOIST__MIB,
						    .limit_bytes = 16 * HOIST__MIB,
						    .cache_bytes = 100};
	return use_pool(&options);
}

static int watched_pool(void)
{
	const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB, .debug = 2};
	return use_pool(&options);
}

/* Another thread's cache, and its end. */
static void *visit(void *argument)
{
	struct hoist__pool *pool = argument;
	uintptr_t blocks[N_REQUESTS] = {0};
	(void)take_missing(pool, blocks);
	free_blocks(pool, blocks);
	return NULL;
}

/* A thread that asks once: no later call makes the cache that failed half way. */
static void *visit_once(void *argument)
{
	uintptr_t block = 0;
	if (hoist__pool_alloc(argument, 100, 0, 0, &block) == 0)
		OK(hoist__pool_free(argument, block));
	return NULL;
}

static int visited_pool(void)
{
	const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB,
						    .keep_bytes = 8 * HOIST__MIB};
	struct hoist__pool *pool;
	uintptr_t blocks[N_REQUESTS] = {0};
	int first_err = hoist__pool_create(&options, &pool);
	if (first_err != 0)
		return first_err;
	note(&first_err, take_missing(pool, blocks));
	for (int i = 0; i < 3; i++) {
		pthread_t thread;
		CHECK(__real_pthread_create(&thread, NULL, i > 0 ? visit : visit_once, pool) == 0);
		OK(pthread_join(thread, NULL));
	}
	free_blocks(pool, blocks);
	end_pool(pool);
	return first_err;
}

/* The caller's memory, each time where no region was before, so that the page map grows. */
static int given_pool(void)
{
	static uintptr_t next = (uintptr_t)0x2000 << 32;
	const struct hoist__pool_options options = {.region_bytes = 4 * HOIST__MIB};
	const size_t bytes = 8 * HOIST__MIB;
	struct hoist__pool *pool;
	next += 8 * HOIST__GIB;
	void *memory = __real_mmap((void *)next, bytes, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	CHECK(memory != MAP_FAILED);
	int first_err = hoist__pool_create(&options, &pool);
	if (first_err == 0) {
		uintptr_t block;
		int err = hoist__pool_add_region(pool, (uintptr_t)memory, bytes);
		note(&first_err, err);
		CHECK(pool_stats(pool).n_regions == (err == 0));
		CHECK(err == 0 || pool_stats(pool).reserved_bytes == 0);
		if (err != 0)
			OK(hoist__pool_add_region(pool, (uintptr_t)memory, bytes));
		size_t reserved = pool_stats(pool).reserved_bytes;
		err = hoist__pool_alloc(pool, 6 * HOIST__MIB, 0, 0, &block);
		note(&first_err, err);
		if (err != 0)
			OK(hoist__pool_alloc(pool, 6 * HOIST__MIB, 0, 0, &block));
		write_to(block, 6 * HOIST__MIB);
		CHECK(pool_stats(pool).reserved_bytes == reserved);
		OK(hoist__pool_free(pool, block));
		hoist__pool_unref(pool);
	}
	CHECK(__real_munmap(memory, bytes) == 0);
	return first_err;
}

/* The list of pools grows with the first of a process, and is never given back. */
static void check_more_pools_than_ever(void)
{
	const struct hoist__pool_options options = {.region_bytes = HOIST__MIB};
	struct hoist__pool *first, *second;
	int err = -1;
	check_at("more pools than ever");
	OK(hoist__pool_create(&options, &first));
	long before = atomic_load(&failing.n_allocated);
	for (failing.at = 1; err != 0; failing.at++) {
		atomic_store(&failing.n_calls, 0);
		err = hoist__pool_create(&options, &second);
		CHECK(err == 0 || (err == -ENOMEM && atomic_load(&failing.n_allocated) == before));
	}
	CHECK(failing.at > 3);
	failing.at = 0;
	hoist__pool_unref(first);
	hoist__pool_unref(second);
}

/* --- a thread that waits for what another's growth leaves of the limit --- */

static struct hoist__pool *tight; /* room for one region, which two threads want */
static pthread_t waiter;
static int waiter_err;

static void *want_a_region(void *unused)
{
	uintptr_t block;
	waiter_err = hoist__pool_alloc(tight, 2 * HOIST__MIB, 0, 0, &block);
	if (waiter_err == 0)
		OK(hoist__pool_free(tight, block));
	return unused;
}

/* The pause lets it come to wait.  If it does not, it has nothing to wait for. */
static void start_waiter(void)
{
	CHECK(__real_pthread_create(&waiter, NULL, want_a_region, NULL) == 0);
	(void)usleep(50000);
}

/* The waiting thread is told, whether the region of the other thread comes or not. */
static void check_waiter_is_told(bool comes)
{
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB,
						    .limit_bytes = 2 * HOIST__MIB};
	uintptr_t block;
	check_at("waiting for the limit");
	failing.at = 0;
	OK(hoist__pool_create(&options, &tight));
	failing.on_next_map = start_waiter;
	failing.error = ENOMEM;
	(void)alarm(60); /* the failure to see is a thread that waits for ever */
	failing.fail_next_map = !comes;
	int err = hoist__pool_alloc(tight, 2 * HOIST__MIB, 0, 0, &block);
	CHECK(failing.on_next_map == NULL);
	OK(pthread_join(waiter, NULL));
	(void)alarm(0);
	if (comes) {
		CHECK(err == 0 && waiter_err == -EDQUOT);
		OK(hoist__pool_free(tight, block));
	} else {
		/* The first thread has the region; a second try finds the returned memory. */
		CHECK(waiter_err == 0);
		if (err == 0)
			OK(hoist__pool_free(tight, block));
	}
	end_pool(tight);
}

static const struct scenario {
	const char *name;
	int (*run)(void);
	int error;
	bool slow;    /* left out under sanitizers */
	bool threads; /* the others have one, and are left out under ThreadSanitizer */
} scenarios[] = {
	{"pool", plain_pool, ENOMEM, false, false},
	{"tight pool", tight_pool, ENOMEM, false, false},
	{"watched pool", watched_pool, ENOMEM, false, false},
	{"pool of two threads", visited_pool, ENOMEM, false, true},
	{"pool of given memory", given_pool, ENOMEM, false, false},
	{"tight pool", tight_pool, EPERM, true, false},
	{"tight pool", tight_pool, EINVAL, true, false},
	{"pool of given memory", given_pool, EINVAL, true, false},
};

static const struct scenario *scenario;

static int run_scenario(void)
{
	return failing_in_thread(scenario->run);
}

int main(void)
{
	check_more_pools_than_ever();
	atomic_store(&failing.n_allocated, 0); /* the list of pools stays */
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(scenarios); i++) {
		scenario = &scenarios[i];
		/* Watched pools write to all of their pages: small ones are slow there. */
		failing.few_pages = i > 0 && !is_slow();
		if ((!scenario->slow || !is_slow()) && (scenario->threads || !UNDER_TSAN))
			failing_sweep(scenario->name, run_scenario, scenario->error);
	}
	check_waiter_is_told(true);
	check_waiter_is_told(false);
	return 0;
}
