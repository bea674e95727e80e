/* SPDX-License-Identifier: MIT */
/* The engines and the populator under load; plain C, so that TSan sees them.
 * HOIST_TEST_SEED repeats a run. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#include "base/checked.h"
#include "tests/support/io-helpers.h"
#include "tests/support/random.h"
#include "io/populate.h"

#define DEPTH 24u
#define BLOCK ((size_t)32 << 10)

static uint64_t seed = 1;

struct load {
	struct hoist__engine *engine;
	struct hoist__file *file;
	struct hoist__request requests[DEPTH];
	unsigned char *memory;
	bool cancelled;
};

/* Some reads, of random places, in one batch. */
static unsigned submit_some(struct load *load, struct hoist__request **idle, unsigned n_idle)
{
	unsigned n = (unsigned)random_below(&seed, n_idle + 1);
	for (unsigned i = 0; i < n; i++) {
		struct hoist__request *request = idle[i];
		size_t slot = (size_t)(request - load->requests);
		bool direct = load->file->direct_fd >= 0 && random_below(&seed, 2) == 0;
		*request = (struct hoist__request){
			.file = load->file,
			.offset = random_below(&seed, load->file->bytes / 4096) * 4096,
			.address = load->memory + slot * BLOCK,
			.bytes = BLOCK,
			.need = 1,
			.direct = direct,
			.hot = !direct && random_below(&seed, 2) == 0,
			.drop = random_below(&seed, 4) == 0,
			.buffer = -1,
		};
		request->need = hoist__min_u64(BLOCK, load->file->bytes - request->offset);
	}
	OK(hoist__engine_submit(load->engine, idle, n));
	return n;
}

static void check_one(struct load *load, const struct hoist__request *request)
{
	if (request->result == -ECANCELED) {
		CHECK(load->cancelled);
		return;
	}
	CHECK(request->result == 0 && request->done >= request->need);
	for (size_t i = 0; i < request->need; i++)
		CHECK(request->address[i] == byte_at(request->offset + i));
}

static void round_of(struct load *load)
{
	static const uint64_t timeouts[] = {0, 50000, 1000000, UINT64_MAX};
	struct hoist__request *idle[DEPTH];
	unsigned n_idle = DEPTH;
	load->cancelled = false;
	for (unsigned i = 0; i < DEPTH; i++)
		idle[i] = &load->requests[i];
	for (int step = 0; step < 60 || n_idle < DEPTH; step++) {
		if (step < 60) {
			unsigned n = submit_some(load, idle, n_idle);
			n_idle -= n;
			memmove(idle, idle + n, n_idle * sizeof idle[0]);
		}
		if (random_below(&seed, 20) == 0) {
			hoist__engine_cancel(load->engine);
			load->cancelled = true;
		}
		int got = hoist__engine_reap(load->engine, idle + n_idle, 1 + DEPTH / 2,
					     timeouts[random_below(&seed, 4)]);
		CHECK(got >= 0);
		for (int i = 0; i < got; i++)
			check_one(load, idle[n_idle + (unsigned)i]);
		n_idle += (unsigned)got;
	}
}

static void *drive(void *argument)
{
	round_of(argument);
	return NULL;
}

static atomic_bool waking;

static void *wake(void *engine)
{
	struct timespec time = {.tv_nsec = 200000};
	while (atomic_load(&waking)) {
		hoist__engine_wake(engine);
		(void)nanosleep(&time, NULL);
	}
	return NULL;
}

/* Each round is driven by another thread, while somebody wakes it. */
static void engine_under_load(enum hoist__engine_kind kind)
{
	struct load load = {.file = new_file(1000001)};
	load.memory = new_memory(DEPTH * BLOCK);
	struct hoist__engine_options options = {
		.kind = kind, .depth = DEPTH + DEPTH / 2, .n_threads = 6, .shared = true};
	OK(hoist__engine_create(&options, &load.engine));
	pthread_t waker;
	atomic_store(&waking, true);
	OK(pthread_create(&waker, NULL, wake, load.engine));
	for (int round = 0; round < 3; round++) {
		pthread_t thread;
		OK(pthread_create(&thread, NULL, drive, &load));
		pthread_join(thread, NULL);
	}
	atomic_store(&waking, false);
	pthread_join(waker, NULL);
	hoist__engine_destroy(load.engine);
	/* And destroyed in the middle of its work. */
	for (int round = 0; round < 10; round++) {
		struct hoist__request *idle[DEPTH];
		for (unsigned i = 0; i < DEPTH; i++)
			idle[i] = &load.requests[i];
		load.engine = new_engine(kind, DEPTH, false);
		(void)submit_some(&load, idle, DEPTH);
		hoist__engine_destroy(load.engine);
	}
	free(load.memory);
	hoist__file_close(load.file);
}

#define N_HOT 8u
#define HOT_BYTES ((size_t)5 << 20)

/* Hot requests, each served by several threads, some cancelled in the middle. */
static void hot_pieces(enum hoist__engine_kind kind)
{
	struct hoist__file *file = new_file(HOT_BYTES);
	unsigned char *memory = new_memory(N_HOT * HOT_BYTES);
	struct hoist__engine *engine = new_engine(kind, N_HOT, false);
	for (int round = 0; round < 6; round++) {
		struct hoist__request requests[N_HOT], *batch[N_HOT];
		for (unsigned i = 0; i < N_HOT; i++) {
			size_t bytes = 1 + random_below(&seed, HOT_BYTES);
			requests[i] = (struct hoist__request){
				.file = file,
				.offset = random_below(&seed, HOT_BYTES - bytes + 1),
				.address = memory + i * HOT_BYTES,
				.bytes = bytes,
				.need = bytes,
				.hot = i % 4 != 0,
				.buffer = -1};
			batch[i] = &requests[i];
		}
		OK(hoist__engine_submit(engine, batch, N_HOT));
		bool cancel = round % 3 == 2;
		if (cancel)
			hoist__engine_cancel(engine);
		reap_all(engine, N_HOT);
		for (unsigned i = 0; i < N_HOT; i++) {
			struct hoist__request *r = &requests[i];
			CHECK(r->result == 0 ? r->done == r->bytes
					     : cancel && r->result == -ECANCELED);
			CHECK(first_wrong(file->fd, r->address, r->offset, r->done) == r->done);
		}
	}
	hoist__engine_destroy(engine);
	free(memory);
	hoist__file_close(file);
}

/* The reader writes behind the populated prefix while threads populate ahead. */
static void populator_ahead_of_its_reader(void)
{
	size_t bytes = (size_t)70 << 20;
	unsigned char *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	for (unsigned n_threads = 1; n_threads <= 4; n_threads++) {
		const struct hoist__populator_options options = {
			.address = memory, .bytes = bytes, .n_threads = n_threads};
		struct hoist__populator *populator = NULL;
		OK(hoist__populator_start(&options, &populator));
		size_t at = 0, done = 0;
		while (at < bytes) {
			int err = hoist__populator_wait(populator, 0, at + 1, 1000000);
			CHECK(err == 0 || err == -EAGAIN);
			OK(hoist__populator_done(populator, 0, at + 1, &done));
			for (; at < done; at += 4096)
				memory[at] = (unsigned char)n_threads;
		}
		hoist__populator_stop(populator);
		OK(hoist__populator_start(&options, &populator));
		hoist__populator_stop(populator);
		for (at = 0; at < bytes; at += 4096)
			CHECK(memory[at] == n_threads);
		OK(madvise(memory, bytes, MADV_DONTNEED));
	}
	munmap(memory, bytes);
}

int main(void)
{
	const char *given = getenv("HOIST_TEST_SEED");
	if (given != NULL)
		seed = strtoull(given, NULL, 0);
	printf("HOIST_TEST_SEED=%llu\n", (unsigned long long)seed);
	engine_under_load(HOIST__ENGINE_THREADS);
	hot_pieces(HOIST__ENGINE_THREADS);
	if (hoist__uring_probe(NULL, 0) == 0) {
		engine_under_load(HOIST__ENGINE_URING);
		hot_pieces(HOIST__ENGINE_URING);
	}
	populator_ahead_of_its_reader();
	return 0;
}
