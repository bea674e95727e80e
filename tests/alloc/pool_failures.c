/* SPDX-License-Identifier: MIT */
/* Pools, with every call that can fail failing.  What failed changed nothing, and the pool goes
 * on: once the failure is over, all that was refused is given. */
#include "config.h"

#include "alloc/pool-private.h"
#include "base/checked.h"
#include "tests/support/alloc-failing-calls.h"

/* --- scenarios: 0, or the first error; nothing is kept --- */

static struct hoist__pool_stats stats_of(struct hoist__pool *pool)
{
	struct hoist__pool_stats now;
	hoist__pool_stats(pool, &now);
	return now;
}

/* Which ones the test runs under; NULL if none. */
static const char *sanitizers(void)
{
	const char *list = getenv("HOIST_TEST_SANITIZERS");
	return list != NULL && list[0] != '\0' ? list : NULL;
}

static bool failure_is_over(void)
{
	return fail_at == 0 || atomic_load(&n_calls) >= fail_at;
}

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

/* Asks for everything that @blocks has not.  Returns: the first error. */
static int take_missing(struct hoist__pool *pool, uintptr_t *blocks)
{
	int first_err = 0;
	for (size_t i = 0; i < N_REQUESTS; i++) {
		if (blocks[i] != 0)
			continue;
		bool over = failure_is_over();
		int err = hoist__pool_alloc(pool, requests[i].bytes, requests[i].align,
					    requests[i].flags, &blocks[i]);
		CHECK(err == 0 || !over);
		CHECK((err == 0) == (blocks[i] != 0));
		if (err == 0)
			memset((void *)blocks[i], 1, requests[i].bytes);
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
			CHECK(hoist__pool_free(pool, blocks[i]) == 0);
		blocks[i] = 0;
	}
	hoist__pool_check(pool);
}

static void end_pool(struct hoist__pool *pool)
{
	struct hoist__pool_stats now = stats_of(pool);
	CHECK(now.n_blocks == 0 && now.allocated_bytes == 0 && now.requested_bytes == 0);
	hoist__pool_trim(pool, 0);
	now = stats_of(pool);
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
		if (failure_is_over())
			CHECK(take_missing(pool, blocks) == 0);
		size_t n = 0;
		for (size_t k = 0; k < N_REQUESTS; k++)
			n += blocks[k] != 0;
		CHECK(stats_of(pool).n_blocks == n);
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

/* What is empty is kept, and given back when growth needs room. */
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
	for (int i = 0; i < 2; i++) {
		pthread_t thread;
		CHECK(__real_pthread_create(&thread, NULL, visit, pool) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
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
	/* ThreadSanitizer has its own idea of addresses. */
	const bool anywhere = sanitizers() != NULL && strstr(sanitizers(), "thread") != NULL;
	struct hoist__pool *pool;
	next += 8 * HOIST__GIB;
	void *memory = __real_mmap(
		anywhere ? NULL : (void *)next, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | (anywhere ? 0 : MAP_FIXED_NOREPLACE), -1, 0);
	CHECK(memory != MAP_FAILED);
	int first_err = hoist__pool_create(&options, &pool);
	if (first_err == 0) {
		uintptr_t block;
		int err = hoist__pool_add_region(pool, (uintptr_t)memory, bytes);
		note(&first_err, err);
		CHECK(stats_of(pool).n_regions == (err == 0));
		CHECK(err == 0 || stats_of(pool).reserved_bytes == 0);
		if (err != 0)
			CHECK(hoist__pool_add_region(pool, (uintptr_t)memory, bytes) == 0);
		size_t reserved = stats_of(pool).reserved_bytes;
		err = hoist__pool_alloc(pool, 6 * HOIST__MIB, 0, 0, &block);
		note(&first_err, err);
		if (err != 0)
			CHECK(hoist__pool_alloc(pool, 6 * HOIST__MIB, 0, 0, &block) == 0);
		memset((void *)block, 1, 6 * HOIST__MIB);
		CHECK(stats_of(pool).reserved_bytes == reserved);
		CHECK(hoist__pool_free(pool, block) == 0);
		hoist__pool_unref(pool);
	}
	CHECK(__real_munmap(memory, bytes) == 0);
	return first_err;
}

/* In a thread of its own: what is kept for a thread ends with it. */
static int (*scenario_in_thread)(void);

static void *run_in_thread(void *ret)
{
	*(int *)ret = scenario_in_thread();
	/* The text is each thread's own. */
	char text[HOIST__ERROR_BYTES];
	hoist__error_copy(text, sizeof text);
	CHECK(*(int *)ret == 0 || text[0] != '\0');
	return NULL;
}

static int in_thread(void)
{
	int err = 0;
	pthread_t thread;
	CHECK(__real_pthread_create(&thread, NULL, run_in_thread, &err) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	if (err != 0)
		(void)hoist__fail(err, "in a thread of its own");
	return err;
}

static void sweep_in_thread(const char *name, int (*scenario)(void), int error)
{
	scenario_in_thread = scenario;
	sweep(name, in_thread, error);
}

/* The list of pools grows with the first of a process, and is never given back. */
static void check_more_pools_than_ever(void)
{
	const struct hoist__pool_options options = {.region_bytes = HOIST__MIB};
	struct hoist__pool *first, *second;
	int err = -1;
	scenario_name = "more pools than ever";
	CHECK(hoist__pool_create(&options, &first) == 0);
	long before = atomic_load(&n_allocated);
	for (fail_at = 1; err != 0; fail_at++) {
		atomic_store(&n_calls, 0);
		err = hoist__pool_create(&options, &second);
		CHECK(err == 0 || (err == -ENOMEM && atomic_load(&n_allocated) == before));
	}
	CHECK(fail_at > 3);
	fail_at = 0;
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
		CHECK(hoist__pool_free(tight, block) == 0);
	return unused;
}

/* The pause lets it come to wait.  If it does not, it has nothing to wait for. */
static void start_waiter(void)
{
	CHECK(__real_pthread_create(&waiter, NULL, want_a_region, NULL) == 0);
	(void)usleep(50000);
}

/* Who waits is told, whether the other's region comes or not. */
static void check_waiter_is_told(bool comes)
{
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB,
						    .limit_bytes = 2 * HOIST__MIB};
	uintptr_t block;
	scenario_name = "waiting for the limit";
	fail_at = 0;
	CHECK(hoist__pool_create(&options, &tight) == 0);
	on_next_map = start_waiter;
	fail_with = ENOMEM;
	(void)alarm(60); /* the failure to see is a thread that waits for ever */
	fail_next_map = !comes;
	int err = hoist__pool_alloc(tight, 2 * HOIST__MIB, 0, 0, &block);
	CHECK(on_next_map == NULL);
	CHECK(pthread_join(waiter, NULL) == 0);
	(void)alarm(0);
	if (comes) {
		CHECK(err == 0 && waiter_err == -EDQUOT);
		CHECK(hoist__pool_free(tight, block) == 0);
	} else {
		/* Whoever came first has it; a second try finds what the other gave back. */
		CHECK(waiter_err == 0);
		if (err == 0)
			CHECK(hoist__pool_free(tight, block) == 0);
	}
	end_pool(tight);
}

int main(void)
{
	check_more_pools_than_ever();
	atomic_store(&n_allocated, 0); /* the list of pools stays */
	sweep_in_thread("pool", plain_pool, ENOMEM);
	sweep_in_thread("tight pool", tight_pool, ENOMEM);
	sweep_in_thread("watched pool", watched_pool, ENOMEM);
	sweep_in_thread("pool of two threads", visited_pool, ENOMEM);
	sweep_in_thread("pool of given memory", given_pool, ENOMEM);
	if (sanitizers() == NULL) { /* they are slow */
		sweep_in_thread("tight pool", tight_pool, EPERM);
		sweep_in_thread("tight pool", tight_pool, EINVAL);
		sweep_in_thread("pool of given memory", given_pool, EINVAL);
	}
	check_waiter_is_told(true);
	check_waiter_is_told(false);
	return 0;
}
