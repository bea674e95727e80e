/* SPDX-License-Identifier: MIT */
/* Blocks in and out of stream order, mixed by chance, beside the reference of stream-trails.h.  The
 * thread that freed a block left behind a number of each stream: each must have been seen before
 * another block may have those addresses.
 *
 * Captured work never runs: the blocks of a graph may come again only after
 * hoist__pool_release_captured(), or for the same lane while the capture lasts.
 * Exit: 0, 1. */
#include "config.h"

#include <sys/mman.h>

#include "tests/alloc/stream-trails.h"
#include "tests/support/patience.h"

static const struct scenario scenarios[] = {
	{"cuda", HOIST__API_CUDA, HOIST__MEMORY_DEVICE, 1, 60000, 0, 0, 0, false},
	{"cuda, graphs", HOIST__API_CUDA, HOIST__MEMORY_DEVICE, 1, 60000, 0, 0, 0, true},
	{"cuda, graphs, a limit", HOIST__API_CUDA, HOIST__MEMORY_DEVICE, 1, 40000, 12 * HOIST__MIB,
	 0, 0, true},
	{"cuda, threads", HOIST__API_CUDA, HOIST__MEMORY_DEVICE, 3, 40000, 0, 0, 0, false},
	{"cuda, threads, a limit", HOIST__API_CUDA, HOIST__MEMORY_DEVICE, 3, 20000, 16 * HOIST__MIB,
	 NO_CACHE, 0, false},
	{"cuda, redzones", HOIST__API_CUDA, HOIST__MEMORY_DEVICE, 1, 4000, 0, 0, 2, false},
	{"cuda, pinned", HOIST__API_CUDA, HOIST__MEMORY_PINNED, 3, 30000, 0, 0, 0, false},
	{"cuda, pinned, graphs", HOIST__API_CUDA, HOIST__MEMORY_PINNED, 1, 30000, 0, NO_CACHE, 0,
	 true},
	{"cuda, pinned, redzones", HOIST__API_CUDA, HOIST__MEMORY_PINNED, 2, 10000, 0, 0, 2, false},
	{"cuda, managed", HOIST__API_CUDA, HOIST__MEMORY_MANAGED, 2, 20000, 0, 0, 0, false},
	{"hip, graphs", HOIST__API_HIP, HOIST__MEMORY_DEVICE, 1, 40000, 0, 0, 0, true},
	{"hip, threads", HOIST__API_HIP, HOIST__MEMORY_DEVICE, 3, 20000, 0, 0, 0, false},
	{"hip, pinned", HOIST__API_HIP, HOIST__MEMORY_PINNED, 2, 20000, 0, 0, 0, false},
	{"cpu, device", HOIST__API_CPU, HOIST__MEMORY_DEVICE, 3, 30000, 0, 0, 0, false},
	{"cpu, host", HOIST__API_CPU, HOIST__MEMORY_HOST, 3, 30000, 0, 0, 0, false},
	{"cpu, host, a limit", HOIST__API_CPU, HOIST__MEMORY_HOST, 2, 20000, 12 * HOIST__MIB,
	 NO_CACHE, 0, false},
	{"cpu, host, poison", HOIST__API_CPU, HOIST__MEMORY_HOST, 2, 10000, 0, 0, 1, false},
};

/* --- one operation --- */

static size_t some_bytes(uint64_t *random)
{
	if (random_below(random, 100) == 0)
		return 1 + random_below(random, HOIST__MIB);
	return 1 + random_below(random, (size_t)256 << random_below(random, 8));
}

static void take(struct worker *worker, struct block *block)
{
	struct model *model = worker->model;
	uint64_t *random = &worker->random;
	size_t bytes = some_bytes(random);
	size_t align = random_below(random, 8) == 0 ? (size_t)1 << random_below(random, 14) : 0;
	unsigned home = (unsigned)(random_below(random, LANES));
	bool on = random_below(random, 2) == 0;
	uintptr_t address = 0;
	int err = on ? hoist__pool_alloc_on(model->pool, bytes, align, model->lanes[home].stream,
					    &address)
		     : hoist__pool_alloc(model->pool, bytes, align, 0, &address);
	if (err == -EDQUOT && model->scenario->limit_bytes != 0) {
		atomic_fetch_add(&model->n_full, 1);
		return;
	}
	CHECK(err == 0 && address != 0);
	CHECK(align == 0 || address % align == 0);
	*block = (struct block){.address = address, .bytes = bytes, .home = home};
	expect_free(model, block, on ? (int)home : -1);
}

static void tell(struct model *model, struct block *block, unsigned at)
{
	struct lane *lane = &model->lanes[at];
	CHECK(hoist__pool_use(model->pool, block->address, lane->stream) == 0);
	if (lane->capturing && block->needs[at].capture == 0)
		block->needs[at].capture = lane->capture;
	block->needs[at].any = true;
	block->untold &= at != block->home;
}

/* The lane where the block is freed stands for all that it got. */
static void freed_on(struct model *model, struct block *block, unsigned at)
{
	struct lane *lane = &model->lanes[at];
	struct need *need = &block->needs[at];
	need->any = true;
	if (!lane->capturing) {
		need->queued = true;
		need->number = (uint16_t)atomic_load(&lane->issued);
	} else if (need->capture == 0) {
		need->capture = lane->capture;
	}
}

/* A block that is freed while one of its lanes captures is the graph's, too. */
static void note_graphs(const struct model *model, struct block *block)
{
	for (unsigned i = 0; i < LANES; i++)
		if (block->needs[i].any && block->needs[i].capture == 0 &&
		    model->lanes[i].capturing)
			block->needs[i].capture = model->lanes[i].capture;
}

static void give(struct worker *worker, struct block *block)
{
	struct model *model = worker->model;
	uint64_t how = random_below(&worker->random, 8);
	unsigned at = block->home;
	if (how == 0) { /* elsewhere, or on none */
		if (block->untold)
			tell(model, block, block->home);
		at = (unsigned)(random_below(&worker->random, LANES + 1));
	} else if (!block->untold && how == 1) {
		at = LANES;
	}
	if (at < LANES)
		freed_on(model, block, at);
	note_graphs(model, block);
	leave_trail(model, block);
	CHECK((at < LANES
		       ? hoist__pool_free_on(model->pool, block->address, model->lanes[at].stream)
		       : hoist__pool_free(model->pool, block->address)) == 0);
	block->address = 0;
}

static void use(struct worker *worker, struct block *block)
{
	unsigned at = (unsigned)(random_below(&worker->random, LANES));
	work(worker->model, block, at);
	/* While the capture lasts, the pool must be told that a graph has the block. */
	if (at != block->home || worker->model->lanes[at].capturing ||
	    random_below(&worker->random, 2) == 0)
		tell(worker->model, block, at);
	else
		block->untold = true;
}

static void release_captured(struct model *model)
{
	CHECK(hoist__pool_release_captured(model->pool) == 0);
	for (unsigned at = 0; at < LANES; at++) {
		if (model->lanes[at].capturing)
			continue;
		for (size_t i = 0; i < model->n_trails; i++)
			model->trails[i].needs[at].capture = 0;
		for (unsigned i = 0; i < SLOTS; i++)
			model->workers[0].blocks[i].needs[at].capture = 0;
	}
}

static void begin_capture(struct model *model, unsigned at)
{
	struct lane *lane = &model->lanes[at];
	CHECK(model->control->capture(hoist__dev_stream_native(lane->stream), 1) == 0);
	lane->capturing = true;
	lane->capture++;
}

/* The pool is told of the lane then: else it could not know the next capture from this one. */
static void end_capture(struct worker *worker, unsigned at)
{
	struct model *model = worker->model;
	struct lane *lane = &model->lanes[at];
	CHECK(model->control->capture(hoist__dev_stream_native(lane->stream), 0) == 0);
	lane->capturing = false;
	unsigned i = 0;
	while (i < SLOTS && worker->blocks[i].address == 0)
		i++;
	CHECK(i < SLOTS);
	tell(model, &worker->blocks[i], at);
}

static void do_seldom(struct worker *worker)
{
	struct model *model = worker->model;
	unsigned at = (unsigned)(random_below(&worker->random, LANES));
	switch (random_below(&worker->random, 8)) {
	case 0:
		hoist__pool_trim(model->pool, random_below(&worker->random, 8 * HOIST__MIB));
		break;
	case 1:
		if (model->scenario->n_threads == 1)
			release_captured(model);
		break;
	case 2:
	case 3:
		if (model->scenario->captures && model->lanes[at].capturing)
			end_capture(worker, at);
		else if (model->scenario->captures)
			begin_capture(model, at);
		break;
	case 4: /* some lateness, where the device has none by itself */
		if (!model->lanes[at].capturing)
			CHECK(hoist__fill_async(model->lanes[at].stream, model->scratch, 0, 1,
						SCRATCH_BYTES) == 0);
		break;
	default:
		catch_up(model, at);
	}
}

static void operate(struct worker *worker)
{
	struct block *block = &worker->blocks[random_below(&worker->random, SLOTS)];
	uint64_t what = random_below(&worker->random, 1000);
	struct hoist__block found;
	if (what < 20)
		do_seldom(worker);
	else if (block->address == 0)
		take(worker, block);
	else if (what < 500)
		give(worker, block);
	else if (what < 900)
		use(worker, block);
	else if (what < 950)
		CHECK(hoist__pool_find(worker->model->pool, block->address, &found) == 0 &&
		      found.bytes == block->bytes);
	else
		CHECK(hoist__pool_free_on(worker->model->pool, block->address + 1,
					  worker->model->lanes[0].stream) == -EINVAL);
}

/* --- meetings --- */

static int by_address(const void *a, const void *b)
{
	const struct block *x = *(struct block *const *)a, *y = *(struct block *const *)b;
	return (x->address > y->address) - (x->address < y->address);
}

/* Blocks that streams have still to pass are pending: the earlier figure of the pool covers them.
 */
static size_t bytes_under_way(const struct model *model)
{
	size_t bytes = 0;
	for (size_t i = 0; i < model->n_trails; i++)
		bytes += is_over(model, &model->trails[i]) ? 0 : model->trails[i].bytes;
	return bytes;
}

static void compare(struct model *model)
{
	static struct block *all[THREADS_MOST * SLOTS];
	size_t n = 0;
	size_t requested = 0;
	for (unsigned i = 0; i < model->scenario->n_threads * SLOTS; i++) {
		struct block *block = &model->workers[i / SLOTS].blocks[i % SLOTS];
		if (block->address == 0)
			continue;
		all[n++] = block;
		requested += block->bytes;
	}
	qsort(all, n, sizeof(struct block *), by_address);
	for (size_t i = 1; i < n; i++)
		CHECK(all[i - 1]->address + all[i - 1]->bytes <= all[i]->address);
	hoist__pool_check(model->pool);
	struct hoist__pool_stats now = pool_stats(model->pool);
	CHECK(now.n_blocks == n && now.requested_bytes == requested);
	CHECK(now.n_allocs - now.n_frees == n);
	CHECK(now.requested_bytes <= now.allocated_bytes);
	CHECK(now.allocated_bytes + now.cached_bytes + now.pending_bytes <= now.reserved_bytes);
	CHECK(now.pending_bytes >= bytes_under_way(model));
	CHECK(model->scenario->limit_bytes == 0 ||
	      now.reserved_peak_bytes <= model->scenario->limit_bytes);
}

/* A lane's stream goes, and another comes: its clock goes on. */
static void replace_stream(struct worker *worker, unsigned at)
{
	struct model *model = worker->model;
	struct lane *lane = &model->lanes[at];
	if (lane->capturing)
		end_capture(worker, at);
	if (model->scenario->captures)
		release_captured(model);
	hoist__pools_forget_stream(lane->stream);
	hoist__dev_stream_destroy(lane->stream); /* waits for its work */
	CHECK(hoist__dev_stream_create(model->dev, &lane->stream) == 0);
	for (size_t i = 0; i < model->n_trails; i++)
		model->trails[i].needs[at] = (struct need){0};
	for (unsigned i = 0; i < THREADS_MOST * SLOTS; i++)
		model->workers[i / SLOTS].blocks[i % SLOTS].needs[at] = (struct need){0};
}

static void meet(struct worker *worker, int i)
{
	struct model *model = worker->model;
	(void)pthread_barrier_wait(&model->barrier);
	if (worker->index == 0) {
		compare(model);
		replace_stream(worker, (unsigned)i % LANES);
		compare(model);
	}
	(void)pthread_barrier_wait(&model->barrier);
}

static void *run_worker(void *argument)
{
	struct worker *worker = argument;
	struct model *model = worker->model;
	unsigned n = model->scenario->n_operations / MEETINGS;
	if (is_slow())
		n /= 8;
	for (int i = 0; i < MEETINGS; i++) {
		for (unsigned k = 0; k < n; k++)
			operate(worker);
		meet(worker, i);
	}
	for (unsigned i = 0; i < LANES && model->scenario->captures; i++)
		if (model->lanes[i].capturing)
			end_capture(worker, i);
	for (unsigned i = 0; i < SLOTS; i++)
		if (worker->blocks[i].address != 0)
			give(worker, &worker->blocks[i]);
	return NULL;
}

/* --- the stage --- */

static struct control *open_driver(enum hoist__api api)
{
	static struct control controls[HOIST__N_APIS];
	const char *library =
		api == HOIST__API_CUDA ? "libhoist-emulated-cuda.so" : "libhoist-emulated-hip.so";
	if (api == HOIST__API_CPU)
		return NULL;
	(void)driver_open(library, "cuda:1,hip:1", &controls[api]);
	return &controls[api];
}

static void open_model(struct model *model)
{
	const struct scenario *scenario = model->scenario;
	bool with_dev = scenario->kind != HOIST__MEMORY_HOST;
	model->control = open_driver(scenario->api);
	CHECK(hoist__dev_get(scenario->api, 0, &model->dev) == 0);
	const struct hoist__pool_options options = {
		.kind = scenario->kind,
		.dev = with_dev ? model->dev : NULL,
		.region_bytes = 2 * HOIST__MIB,
		.keep_bytes = 4 * HOIST__MIB,
		.cache_bytes = scenario->cache_bytes,
		.limit_bytes = scenario->limit_bytes,
		.debug = scenario->debug,
	};
	model->pool = make_pool(&options);
	model->host = mmap(NULL, 2 * HOST_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(model->host != MAP_FAILED);
	for (unsigned i = 0; i < NUMBERS; i++)
		model->host[i] = (uint16_t)i;
	CHECK(hoist__dev_mem_alloc(model->dev, SCRATCH_BYTES, &model->scratch) == 0);
	CHECK(hoist__dev_mem_alloc(model->dev, HOST_BYTES, &model->numbers) == 0);
	if (model->control != NULL)
		CHECK(hoist__dev_host_register(model->dev, model->host, 2 * HOST_BYTES) == 0);
	for (unsigned i = 0; i < LANES; i++) {
		struct lane *lane = &model->lanes[i];
		lane->seen = &model->host[NUMBERS + i];
		CHECK(pthread_mutex_init(&lane->lock, NULL) == 0);
		CHECK(hoist__dev_stream_create(model->dev, &lane->stream) == 0);
	}
	CHECK(hoist__copy_async(model->lanes[0].stream, HOIST__COPY_HOST_TO_DEVICE, model->numbers,
				(uintptr_t)model->host, HOST_BYTES) == 0);
	CHECK(hoist__dev_stream_synchronize(model->lanes[0].stream) == 0);
	if (model->control != NULL)
		model->control->set_latency(0, 100);
	CHECK(pthread_mutex_init(&model->lock, NULL) == 0);
	CHECK(pthread_barrier_init(&model->barrier, NULL, scenario->n_threads) == 0);
}

/* Everything comes back, with no more than time. */
static void close_model(struct model *model)
{
	if (model->scenario->n_threads == 1)
		release_captured(model);
	for (uint64_t until = 0; pool_stats(model->pool).pending_bytes != 0 && patience(&until);)
		hoist__pool_trim(model->pool, 0);
	expect_unused(model->pool);
	hoist__pool_unref(model->pool);
	CHECK(bytes_under_way(model) == 0);
	for (unsigned i = 0; i < LANES; i++) {
		hoist__dev_stream_destroy(model->lanes[i].stream);
		CHECK(pthread_mutex_destroy(&model->lanes[i].lock) == 0);
	}
	CHECK(hoist__dev_mem_free(model->dev, model->numbers, HOST_BYTES) == 0);
	CHECK(hoist__dev_mem_free(model->dev, model->scratch, SCRATCH_BYTES) == 0);
	if (model->control != NULL) {
		CHECK(hoist__dev_host_unregister(model->dev, model->host, 2 * HOST_BYTES) == 0);
		struct hoist_emulator_counters now = counters_of(model->control);
		CHECK(now.broken_captures == 0 && now.use_after_free == 0 && now.bad_frees == 0);
		CHECK(now.live_allocations == 0 && now.live_registrations == 0);
		CHECK(now.live_events == 0);
		model->control->reset();
	}
	(void)munmap(model->host, 2 * HOST_BYTES);
	CHECK(pthread_barrier_destroy(&model->barrier) == 0);
	CHECK(pthread_mutex_destroy(&model->lock) == 0);
}

static void run(const struct scenario *scenario)
{
	static struct model model;
	pthread_t threads[THREADS_MOST];
	memset(&model, 0, sizeof model);
	model.scenario = scenario;
	open_model(&model);
	for (unsigned i = 0; i < scenario->n_threads; i++) {
		model.workers[i].model = &model;
		model.workers[i].index = i;
		model.workers[i].random = i + 1;
		start(&threads[i], run_worker, &model.workers[i]);
	}
	for (unsigned i = 0; i < scenario->n_threads; i++)
		join(threads[i]);
	struct hoist__pool_stats now = pool_stats(model.pool);
	uint64_t n_reused = atomic_load(&model.n_reused);
	printf("%s: %llu blocks, %llu of them reused at once, %llu times full, %llu events\n",
	       scenario->name, (unsigned long long)now.n_allocs, (unsigned long long)n_reused,
	       (unsigned long long)atomic_load(&model.n_full),
	       (unsigned long long)now.calls.of[HOIST__CALL_EVENT].n);
	bool reuses = scenario->kind == HOIST__MEMORY_DEVICE && scenario->debug == 0;
	CHECK(reuses == (n_reused != 0));
	close_model(&model);
}

int main(void)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(scenarios); i++)
		run(&scenarios[i]);
	return 0;
}
