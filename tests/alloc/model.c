/* SPDX-License-Identifier: MIT */
/* Pools against a reference that is too simple to be wrong: every thread keeps an array of the
 * blocks it holds.  Now and then all threads meet, and the pool's figures, its own checks, and
 * the absence of overlaps are compared with the arrays. */
#include "config.h"

#include <stdatomic.h>

#include "device/device.h"
#include "tests/support/alloc-support.h"

#define THREADS_MOST 4
#define SLOTS 300
#define SHARED 64 /* blocks on their way from one thread to another */
#define MEETINGS 10

struct scenario {
	const char *name;
	enum hoist__memory_kind kind;
	unsigned n_threads;
	unsigned n_operations; /* of each thread, in all */
	size_t region_bytes;
	size_t keep_bytes;
	size_t cache_bytes;
	size_t limit_bytes;
	size_t large_bytes; /* one request in 200 is up to this large */
	unsigned debug;
};

static const struct scenario scenarios[] = {
	{"one thread", HOIST__MEMORY_HOST, 1, 600000, 4 * HOIST__MIB, 16 * HOIST__MIB, 0, 0,
	 4 * HOIST__MIB, 0},
	{"threads", HOIST__MEMORY_HOST, 4, 300000, 4 * HOIST__MIB, 16 * HOIST__MIB, 0, 0,
	 4 * HOIST__MIB, 0},
	{"no magazines", HOIST__MEMORY_HOST, 4, 60000, 2 * HOIST__MIB, 0, NO_CACHE, 0,
	 2 * HOIST__MIB, 0},
	{"a limit", HOIST__MEMORY_HOST, 4, 60000, 2 * HOIST__MIB, 8 * HOIST__MIB, 64 * HOIST__KIB,
	 12 * HOIST__MIB, 4 * HOIST__MIB, 0},
	{"tiny regions", HOIST__MEMORY_HOST, 3, 10000, 128 * HOIST__KIB, HOIST__MIB, 0, 0,
	 HOIST__MIB / 2, 0},
	{"poison", HOIST__MEMORY_HOST, 3, 40000, 4 * HOIST__MIB, 16 * HOIST__MIB, 0, 0,
	 2 * HOIST__MIB, 1},
	{"redzones", HOIST__MEMORY_HOST, 3, 40000, 4 * HOIST__MIB, 16 * HOIST__MIB, 0, 0,
	 2 * HOIST__MIB, 2},
	{"redzones, a limit", HOIST__MEMORY_HOST, 3, 20000, 2 * HOIST__MIB, 8 * HOIST__MIB, 0,
	 24 * HOIST__MIB, 4 * HOIST__MIB, 2},
	{"device", HOIST__MEMORY_DEVICE, 4, 100000, 4 * HOIST__MIB, 16 * HOIST__MIB, 0, 0,
	 8 * HOIST__MIB, 0},
	{"device, a limit", HOIST__MEMORY_DEVICE, 3, 30000, 2 * HOIST__MIB, 0, 0, 20 * HOIST__MIB,
	 4 * HOIST__MIB, 0},
	{"device, redzones", HOIST__MEMORY_DEVICE, 2, 3000, 4 * HOIST__MIB, 16 * HOIST__MIB, 0, 0,
	 HOIST__MIB, 2},
	{"managed", HOIST__MEMORY_MANAGED, 2, 30000, 4 * HOIST__MIB, 16 * HOIST__MIB, 0, 0,
	 4 * HOIST__MIB, 0},
};

struct block {
	uintptr_t address; /* 0: none */
	size_t bytes;
	unsigned char mark;
};

struct model;

struct worker {
	struct model *model;
	unsigned index;
	uint64_t random;
	struct block blocks[SLOTS];
};

struct model {
	const struct scenario *scenario;
	struct hoist__pool *pool;
	bool readable; /* the host may look at the blocks */
	pthread_barrier_t barrier;
	pthread_mutex_t lock; /* of what follows */
	struct block shared[SHARED];
	_Atomic uint64_t n_full;
	struct worker workers[THREADS_MOST];
};

/* --- one operation --- */

static size_t some_bytes(struct worker *worker)
{
	const struct scenario *scenario = worker->model->scenario;
	uint64_t *random = &worker->random;
	if (random_below(random, 200) == 0)
		return 1 + random_below(random, scenario->large_bytes);
	return 1 + random_below(random, (size_t)64 << random_below(random, 10));
}

static void take(struct worker *worker, struct block *block)
{
	struct model *model = worker->model;
	size_t bytes = some_bytes(worker);
	size_t align = random_below(&worker->random, 8) == 0
			       ? (size_t)1 << random_below(&worker->random, 17)
			       : 0;
	int err = hoist__pool_alloc(model->pool, bytes, align, 0, &block->address);
	if (err == -EDQUOT && model->scenario->limit_bytes != 0) {
		atomic_fetch_add(&model->n_full, 1);
		block->address = 0;
		return;
	}
	CHECK(err == 0);
	size_t quantum = model->scenario->kind == HOIST__MEMORY_HOST ? 64 : 256;
	CHECK(block->address % (align < quantum ? quantum : align) == 0);
	block->bytes = bytes;
	block->mark = (unsigned char)random_next(&worker->random);
	if (model->readable) {
		((unsigned char *)block->address)[0] = block->mark;
		((unsigned char *)block->address)[bytes / 2] = block->mark;
		((unsigned char *)block->address)[bytes - 1] = block->mark;
	}
}

static void give(struct worker *worker, struct block *block)
{
	struct model *model = worker->model;
	const unsigned char *content = (unsigned char *)block->address;
	if (model->readable)
		CHECK(content[0] == block->mark && content[block->bytes / 2] == block->mark &&
		      content[block->bytes - 1] == block->mark);
	give_block(model->pool, block->address);
	block->address = 0;
}

static void ask(struct worker *worker, const struct block *block)
{
	struct hoist__pool *owner = NULL;
	struct hoist__block found;
	uintptr_t inside = block->address + random_below(&worker->random, block->bytes);
	CHECK(hoist__pool_find(worker->model->pool, inside, &found) == 0);
	CHECK(found.address == block->address && found.bytes == block->bytes);
	CHECK(found.allocated >= block->bytes && found.region != NULL);
	CHECK(hoist__pools_find(inside, &owner, &found) == 0);
	CHECK(owner == worker->model->pool && found.address == block->address);
}

static void free_wrongly(struct worker *worker, const struct block *block)
{
	if (block->bytes > 1) {
		size_t inside = 1 + random_below(&worker->random, block->bytes - 1);
		CHECK(hoist__pool_free(worker->model->pool, block->address + inside) == -EINVAL);
	}
	CHECK(hoist__pool_free(worker->model->pool, (uintptr_t)worker) == -EINVAL);
}

/* The block gets another thread, which will free it. */
static void hand_over(struct worker *worker, struct block *block)
{
	struct model *model = worker->model;
	struct block *shared = &model->shared[random_below(&worker->random, SHARED)];
	pthread_mutex_lock(&model->lock);
	struct block other = *shared;
	*shared = *block;
	pthread_mutex_unlock(&model->lock);
	*block = other;
}

static void operate(struct worker *worker)
{
	struct block *block = &worker->blocks[random_below(&worker->random, SLOTS)];
	uint64_t what = random_below(&worker->random, 1000);
	if (what == 0)
		hoist__pool_trim(worker->model->pool,
				 random_below(&worker->random, 16 * HOIST__MIB));
	else if (block->address == 0)
		take(worker, block);
	else if (what < 700)
		give(worker, block);
	else if (what < 900)
		hand_over(worker, block);
	else if (what < 980)
		ask(worker, block);
	else
		free_wrongly(worker, block);
}

/* --- meetings --- */

struct census {
	struct block all[THREADS_MOST * SLOTS + SHARED];
	size_t n;
	size_t requested;
};

static int by_address(const void *a, const void *b)
{
	const struct block *x = a, *y = b;
	return (x->address > y->address) - (x->address < y->address);
}

static void count(struct census *census, const struct block *blocks, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (blocks[i].address == 0)
			continue;
		census->all[census->n++] = blocks[i];
		census->requested += blocks[i].bytes;
	}
}

static void compare(struct model *model)
{
	static struct census census;
	census.n = 0;
	census.requested = 0;
	for (unsigned i = 0; i < model->scenario->n_threads; i++)
		count(&census, model->workers[i].blocks, SLOTS);
	count(&census, model->shared, SHARED);
	qsort(census.all, census.n, sizeof census.all[0], by_address);
	for (size_t i = 1; i < census.n; i++)
		CHECK(census.all[i - 1].address + census.all[i - 1].bytes <= census.all[i].address);
	hoist__pool_check(model->pool);
	struct hoist__pool_stats now = pool_stats(model->pool);
	CHECK(now.n_blocks == census.n && now.requested_bytes == census.requested);
	CHECK(now.n_allocs - now.n_frees == census.n);
	CHECK(now.requested_bytes <= now.allocated_bytes);
	CHECK(now.allocated_bytes + now.cached_bytes + now.pending_bytes <= now.reserved_bytes);
	CHECK(model->scenario->limit_bytes == 0 ||
	      now.reserved_peak_bytes <= model->scenario->limit_bytes);
}

/* A block that was freed is nobody's, however often it is freed again. */
static void free_twice(struct model *model)
{
	struct worker *worker = &model->workers[0];
	struct block block = {0};
	take(worker, &block);
	if (block.address == 0)
		return;
	uintptr_t address = block.address;
	give(worker, &block);
	struct hoist__pool_stats before = pool_stats(model->pool);
	for (int i = 0; i < 3; i++)
		CHECK(hoist__pool_free(model->pool, address) == -EINVAL);
	struct hoist__pool_stats after = pool_stats(model->pool);
	CHECK(before.n_frees == after.n_frees && before.cached_bytes == after.cached_bytes &&
	      before.allocated_bytes == after.allocated_bytes &&
	      before.requested_bytes == after.requested_bytes);
	struct hoist__block found;
	CHECK(hoist__pool_find(model->pool, address, &found) == -ENOENT);
}

static void meet(struct worker *worker)
{
	struct model *model = worker->model;
	(void)pthread_barrier_wait(&model->barrier);
	if (worker->index == 0) {
		compare(model);
		for (int i = 0; i < 20; i++)
			free_twice(model);
		compare(model);
	}
	(void)pthread_barrier_wait(&model->barrier);
}

static void *work(void *argument)
{
	struct worker *worker = argument;
	const struct scenario *scenario = worker->model->scenario;
	unsigned n = scenario->n_operations / MEETINGS;
	/* A limit is met by chance, so its scenarios go on for longer. */
	if (is_slow())
		n /= scenario->limit_bytes == 0 ? 10 : 2;
	for (int i = 0; i < MEETINGS; i++) {
		for (unsigned k = 0; k < n; k++)
			operate(worker);
		meet(worker);
	}
	for (unsigned i = 0; i < SLOTS; i++)
		if (worker->blocks[i].address != 0)
			give(worker, &worker->blocks[i]);
	return NULL;
}

static void run(const struct scenario *scenario, struct hoist__dev *dev)
{
	static struct model model;
	const struct hoist__pool_options options = {
		.kind = scenario->kind,
		.dev = scenario->kind == HOIST__MEMORY_HOST ? NULL : dev,
		.region_bytes = scenario->region_bytes,
		.keep_bytes = scenario->keep_bytes,
		.cache_bytes = scenario->cache_bytes,
		.limit_bytes = scenario->limit_bytes,
		.debug = scenario->debug,
	};
	pthread_t threads[THREADS_MOST];
	memset(&model, 0, sizeof model);
	model.scenario = scenario;
	model.pool = make_pool(&options);
	model.readable = scenario->kind == HOIST__MEMORY_HOST;
	CHECK(pthread_mutex_init(&model.lock, NULL) == 0);
	CHECK(pthread_barrier_init(&model.barrier, NULL, scenario->n_threads) == 0);
	for (unsigned i = 0; i < scenario->n_threads; i++) {
		model.workers[i].model = &model;
		model.workers[i].index = i;
		model.workers[i].random = i + 1;
		start(&threads[i], work, &model.workers[i]);
	}
	for (unsigned i = 0; i < scenario->n_threads; i++)
		join(threads[i]);
	for (unsigned i = 0; i < SHARED; i++)
		if (model.shared[i].address != 0)
			give(&model.workers[0], &model.shared[i]);
	uint64_t n_allocs = pool_stats(model.pool).n_allocs;
	CHECK(n_allocs > scenario->n_operations / 100);
	expect_unused(model.pool);
	hoist__pool_unref(model.pool);
	CHECK(pthread_barrier_destroy(&model.barrier) == 0);
	CHECK(pthread_mutex_destroy(&model.lock) == 0);
	/* Else the limit was never tried. */
	CHECK((scenario->limit_bytes != 0) == (atomic_load(&model.n_full) != 0));
	printf("%s: %llu blocks, %llu times full\n", scenario->name, (unsigned long long)n_allocs,
	       (unsigned long long)atomic_load(&model.n_full));
}

int main(void)
{
	struct hoist__dev *dev;
	CHECK(setenv("HOIST_EMULATE", "cuda:1", 1) == 0);
	CHECK(setenv("HOIST_EMULATE_MEMORY", "1G", 1) == 0);
	CHECK(hoist__dev_get(HOIST__API_CUDA, 0, &dev) == 0);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(scenarios); i++)
		run(&scenarios[i], dev);
	return 0;
}
