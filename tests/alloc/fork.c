/* SPDX-License-Identifier: MIT */
/* fork() at any moment of what other threads do with pools: the child's pools of host memory
 * work, those of a driver say that they cannot. */
#include "config.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "alloc/granule.h"
#include "device/device.h"
#include "tests/support/alloc-support.h"

#define N_THREADS 3
#define N_BLOCKS 40
#define LIMIT (12 * HOIST__MIB)
#define CHILD_SECONDS 60 /* what the failure to see would be: a lock that nobody gives back */

struct shared {
	struct hoist__pool *pool;
	_Atomic bool done;
};

struct block {
	uintptr_t address;
	size_t bytes;
};

/* Growth, release, magazines, trims: some lock is always held. */
static void *work(void *argument)
{
	struct shared *shared = argument;
	uint64_t random = (uintptr_t)&random;
	uintptr_t slots[20] = {0};
	while (!atomic_load(&shared->done)) {
		uintptr_t *slot = &slots[random_below(&random, 20)];
		if (*slot != 0) {
			give_block(shared->pool, *slot);
			*slot = 0;
			continue;
		}
		size_t bytes = random_below(&random, 50) == 0
				       ? HOIST__MIB + random_below(&random, HOIST__MIB)
				       : 1 + random_below(&random, 20000);
		int err = hoist__pool_alloc(shared->pool, bytes, 0, 0, slot);
		CHECK(err == 0 || err == -EDQUOT);
		if (random_below(&random, 500) == 0)
			hoist__pool_trim(shared->pool, 0);
	}
	for (int i = 0; i < 20; i++)
		if (slots[i] != 0)
			give_block(shared->pool, slots[i]);
	return NULL;
}

static void fill(struct hoist__pool *pool, struct block *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		blocks[i].bytes = 1 + i * 997 % 30000;
		blocks[i].address = take_block(pool, blocks[i].bytes);
		memset((void *)blocks[i].address, (int)i, blocks[i].bytes);
	}
}

static void empty(struct hoist__pool *pool, const struct block *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const unsigned char *content = (unsigned char *)blocks[i].address;
		struct hoist__block found;
		CHECK(content[0] == i && content[blocks[i].bytes - 1] == i);
		CHECK(hoist__pool_find(pool, blocks[i].address, &found) == 0);
		CHECK(found.bytes == blocks[i].bytes);
		give_block(pool, blocks[i].address);
		CHECK(hoist__pool_free(pool, blocks[i].address) == -EINVAL);
	}
}

/* Everything that a process with one thread does with a pool. */
static void use_in_child(struct hoist__pool *pool, const struct block *inherited)
{
	struct block blocks[N_BLOCKS];
	uintptr_t many[5000];
	size_t n = 0;
	(void)alarm(CHILD_SECONDS);
	hoist__pool_check(pool);
	fill(pool, blocks, N_BLOCKS / 4);
	empty(pool, inherited, N_BLOCKS);
	empty(pool, blocks, N_BLOCKS / 4);
	hoist__pool_check(pool);
	/* To the limit, and over it: nobody is there to wait for. */
	while (n < 5000 && hoist__pool_alloc(pool, 10000, 0, 0, &many[n]) == 0)
		n++;
	CHECK(pool_stats(pool).reserved_bytes <= LIMIT);
	while (n > 0)
		give_block(pool, many[--n]);
	hoist__pool_trim(pool, 0);
	hoist__pool_check(pool);
	struct hoist__pool *own;
	const struct hoist__pool_options options = {.region_bytes = HOIST__MIB};
	CHECK(hoist__pool_create(&options, &own) == 0);
	give_block(own, take_block(own, 100));
	hoist__pool_unref(own);
	_exit(0);
}

static void expect_child_ends_well(pid_t child)
{
	int status = -1;
	CHECK(child > 0);
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void check_host_pool(unsigned debug)
{
	const struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_HOST,
		.region_bytes = 2 * HOIST__MIB,
		.limit_bytes = LIMIT,
		.debug = debug,
	};
	struct shared shared = {.pool = make_pool(&options)};
	struct block blocks[N_BLOCKS];
	pthread_t threads[N_THREADS];
	fill(shared.pool, blocks, N_BLOCKS);
	for (int i = 0; i < N_THREADS; i++)
		start(&threads[i], work, &shared);
	const int n = is_slow() || debug != 0 ? 8 : 40;
	for (int i = 0; i < n; i++) {
		(void)usleep(2000);
		pid_t child = fork();
		if (child == 0)
			use_in_child(shared.pool, blocks);
		expect_child_ends_well(child);
	}
	atomic_store(&shared.done, true);
	for (int i = 0; i < N_THREADS; i++)
		join(threads[i]);
	empty(shared.pool, blocks, N_BLOCKS);
	expect_unused(shared.pool);
	hoist__pool_unref(shared.pool);
}

/* --- budgets --- */

struct asking {
	struct hoist__budget *budget;
	_Atomic bool done;
};

/* Its lock is nearly always held. */
static void *ask(void *argument)
{
	struct asking *asking = argument;
	while (!atomic_load(&asking->done)) {
		CHECK(hoist__budget_acquire(asking->budget, 1) == 0);
		hoist__budget_release(asking->budget, 1);
	}
	return NULL;
}

static void check_budget(void)
{
	struct asking asking = {0};
	pthread_t threads[2];
	CHECK(hoist__budget_create(64 * HOIST__MIB, &asking.budget) == 0);
	/* So small that no thread is started to populate it: ThreadSanitizer has none in a child.
	 */
	const struct hoist__pool_options options = {.region_bytes = 2 * HOIST__MIB,
						    .budget = asking.budget};
	struct hoist__pool *pool = make_pool(&options);
	for (int i = 0; i < 2; i++)
		start(&threads[i], ask, &asking);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		if (child == 0) {
			(void)alarm(CHILD_SECONDS);
			give_block(pool, take_block(pool, 100));
			hoist__pool_unref(pool);
			_exit(0);
		}
		expect_child_ends_well(child);
	}
	atomic_store(&asking.done, true);
	for (int i = 0; i < 2; i++)
		join(threads[i]);
	expect_unused(pool);
	hoist__pool_unref(pool);
	CHECK(hoist__budget_used(asking.budget) == 0);
	hoist__budget_unref(asking.budget);
}

/* --- memory of a driver --- */

static void expect_stale(struct hoist__pool *pool, struct hoist__dev_stream *stream,
			 uintptr_t small, uintptr_t large)
{
	uintptr_t at = 77;
	(void)alarm(CHILD_SECONDS);
	CHECK(hoist__pool_alloc(pool, 100, 0, 0, &at) == -ESTALE);
	CHECK(hoist__pool_alloc(pool, 100, 4096, 0, &at) == -ESTALE);
	CHECK(hoist__pool_alloc(pool, 8 * HOIST__MIB, 0, 0, &at) == -ESTALE);
	CHECK(hoist__pool_alloc_on(pool, 100, 0, stream, &at) == -ESTALE);
	CHECK(hoist__pool_free(pool, small) == -ESTALE);
	CHECK(hoist__pool_free(pool, large) == -ESTALE);
	CHECK(hoist__pool_free_on(pool, small, stream) == -ESTALE);
	CHECK(hoist__pool_use(pool, small, stream) == -ESTALE);
	CHECK(hoist__pool_release_captured(pool) == -ESTALE);
	CHECK(at == 77);
	/* The child may still ask about the parent's blocks, and the pool's end must not hang. */
	struct hoist__block found;
	CHECK(hoist__pool_find(pool, small + 1, &found) == 0 && found.bytes == 100);
	CHECK(pool_stats(pool).n_blocks == 2);
	hoist__pool_check(pool);
	hoist__pool_trim(pool, 0);
	hoist__pool_unref(pool);
	_exit(0);
}

static void check_driver_pool(enum hoist__memory_kind kind, struct hoist__dev *dev)
{
	const struct hoist__pool_options options = {
		.kind = kind, .dev = dev, .region_bytes = 4 * HOIST__MIB};
	struct hoist__pool *pool = make_pool(&options);
	struct hoist__dev_stream *stream;
	CHECK(hoist__dev_stream_create(dev, &stream) == 0);
	uintptr_t small = take_block(pool, 100), large = take_block(pool, 3 * HOIST__MIB);
	pid_t child = fork();
	if (child == 0)
		expect_stale(pool, stream, small, large);
	expect_child_ends_well(child);
	give_block(pool, small);
	give_block(pool, large);
	expect_unused(pool);
	hoist__pool_unref(pool);
	hoist__dev_stream_destroy(stream);
}

/* --- addresses of the parent's that the child has for something else --- */

static void use_addresses(struct hoist__pool *parents, uintptr_t base, size_t bytes)
{
	const struct hoist__pool_options options = {.region_bytes = bytes};
	struct hoist__pool *own = make_pool(&options);
	struct block blocks[N_BLOCKS];
	(void)alarm(CHILD_SECONDS);
	CHECK(mmap((void *)base, bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == (void *)base);
	CHECK(hoist__pool_add_region(own, base, bytes) == 0);
	fill(own, blocks, N_BLOCKS);
	CHECK(blocks[0].address >= base && blocks[0].address < base + bytes);
	/* As others are trimmed when memory runs out. */
	hoist__pool_trim(parents, 0);
	hoist__pool_unref(parents);
	hoist__pool_check(own);
	empty(own, blocks, N_BLOCKS);
	hoist__pool_check(own);
	_exit(0);
}

/* The pool has blocks in magazines, wholly free slabs and empty regions, all of which the child
 * must leave alone. */
static void check_reused_addresses(struct hoist__dev *dev)
{
	const struct hoist__pool_options options = {.kind = HOIST__MEMORY_PINNED,
						    .dev = dev,
						    .region_bytes = 4 * HOIST__MIB,
						    .keep_bytes = 64 * HOIST__MIB};
	struct hoist__pool *pool = make_pool(&options);
	uintptr_t blocks[500];
	struct hoist__block found;
	for (int i = 0; i < 500; i++)
		blocks[i] = take_block(pool, 1000);
	CHECK(hoist__pool_find(pool, blocks[0], &found) == 0);
	uintptr_t base = found.region->base;
	size_t bytes = found.region->bytes;
	give_blocks(pool, blocks, 500);
	pid_t child = fork();
	if (child == 0)
		use_addresses(pool, base, bytes);
	expect_child_ends_well(child);
	expect_unused(pool);
	hoist__pool_unref(pool);
}

/* --- a fork while another thread makes a region, or ends one --- */

static atomic_bool pauses; /* the next that calls one of these waits for the fork */
static uintptr_t paused_base;
static size_t paused_bytes;
static sem_t is_paused, goes_on;

static void pause_with(uintptr_t base, size_t n)
{
	if (!atomic_exchange(&pauses, false))
		return;
	paused_base = base;
	paused_bytes = n << HOIST__GRANULE_SHIFT;
	CHECK(sem_post(&is_paused) == 0);
	CHECK(sem_wait(&goes_on) == 0);
}

int __real_hoist__granules_take(uintptr_t base, size_t n, struct hoist__extent *extent);
int __wrap_hoist__granules_take(uintptr_t base, size_t n, struct hoist__extent *extent);
int __wrap_hoist__granules_take(uintptr_t base, size_t n, struct hoist__extent *extent)
{
	int err = __real_hoist__granules_take(base, n, extent);
	pause_with(base, n);
	return err;
}

void __real_hoist__granules_release(uintptr_t base, size_t n);
void __wrap_hoist__granules_release(uintptr_t base, size_t n);
void __wrap_hoist__granules_release(uintptr_t base, size_t n)
{
	pause_with(base, n);
	__real_hoist__granules_release(base, n);
}

/* Its block ends with the pool. */
static void *make_one(void *pool)
{
	(void)take_block(pool, HOIST__MIB);
	return NULL;
}

static void *end_empty(void *pool)
{
	hoist__pool_trim(pool, 0);
	return NULL;
}

static void *end_pool(void *pool)
{
	hoist__pool_unref(pool);
	return NULL;
}

static void fork_meanwhile(void *(*run)(void *), struct hoist__pool *pool)
{
	pthread_t thread;
	atomic_store(&pauses, true);
	CHECK(pthread_create(&thread, NULL, run, pool) == 0);
	CHECK(sem_wait(&is_paused) == 0);
	pid_t child = fork();
	if (child == 0) {
		const struct hoist__pool_options options = {.region_bytes = paused_bytes};
		struct hoist__pool *own = make_pool(&options);
		struct block blocks[N_BLOCKS];
		(void)alarm(CHILD_SECONDS);
		/* The parent's is not here, so its place is free. */
		CHECK(mmap((void *)paused_base, paused_bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1,
			   0) == (void *)paused_base);
		CHECK(hoist__pool_add_region(own, paused_base, paused_bytes) == 0);
		fill(own, blocks, N_BLOCKS);
		hoist__pool_check(own);
		_exit(0);
	}
	expect_child_ends_well(child);
	CHECK(sem_post(&goes_on) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
}

static void check_regions_on_the_way(struct hoist__dev *dev)
{
	const struct hoist__pool_options options = {.kind = HOIST__MEMORY_PINNED,
						    .dev = dev,
						    .region_bytes = 4 * HOIST__MIB,
						    .keep_bytes = 64 * HOIST__MIB};
	CHECK(sem_init(&is_paused, 0, 0) == 0 && sem_init(&goes_on, 0, 0) == 0);
	struct hoist__pool *pool = make_pool(&options);
	fork_meanwhile(make_one, pool);
	uintptr_t block = take_block(pool, 8 * HOIST__MIB);
	give_block(pool, block);
	fork_meanwhile(end_empty, pool);
	hoist__pool_check(pool);
	fork_meanwhile(end_pool, pool);
}

int main(void)
{
	struct hoist__dev *dev;
	CHECK(setenv("HOIST_EMULATE", "cuda:1", 1) == 0);
	CHECK(hoist__dev_get(HOIST__API_CUDA, 0, &dev) == 0);
	for (unsigned debug = 0; debug <= 2; debug++)
		check_host_pool(debug);
	check_budget();
	check_driver_pool(HOIST__MEMORY_DEVICE, dev);
	check_driver_pool(HOIST__MEMORY_PINNED, dev);
	check_driver_pool(HOIST__MEMORY_MANAGED, dev);
	check_reused_addresses(dev);
	check_regions_on_the_way(dev);
	return 0;
}
