/* SPDX-License-Identifier: MIT */
/* One thread allocates and hands its blocks to another, which frees them: over a queue of
 * one producer and one consumer.  The memory itself is not touched.  The contract is
 * in alloc-work.h. */
#include "config.h"

#include "bench/alloc-work.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <hoist/error.h>

#include "cli/fail.h"

#define QUEUE_BLOCKS 1024
#define CHUNK 1024 /* blocks between two looks at the clock */
#define CACHE_LINE 64

/* Each side keeps what it last saw of the other's index, and looks again only when that says
 * full or empty. */
struct side {
	_Alignas(CACHE_LINE) _Atomic size_t index; /* blocks put in, or taken out, so far */
	size_t seen;				   /* the other side's index, as last seen */
};

struct queue {
	struct side in;
	struct side out;
	_Alignas(CACHE_LINE) uintptr_t blocks[QUEUE_BLOCKS];
};

struct pair {
	const struct work *work;
	struct allocator allocator;
	struct queue queue;
	uint64_t start_ns;
	uint64_t end_ns;
	uint64_t n;	      /* blocks between the two */
	_Atomic bool stopped; /* the consumer failed */
	char error[2][256];   /* "" if nothing failed */
};

/* Between two looks at the other side: long enough for some blocks to come together, as each
 * look takes a cache line away from the other processor.  At times the processor is offered
 * to others, should there be only one. */
static void relax(unsigned *looks)
{
	for (int i = 0; i < 50; i++) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("isb");
#endif
	}
	if (++*looks % 50 == 0)
		(void)sched_yield();
}

static void put(struct queue *queue, uintptr_t block)
{
	size_t index = atomic_load_explicit(&queue->in.index, memory_order_relaxed);
	unsigned looks = 0;
	while (index - queue->in.seen == QUEUE_BLOCKS) {
		queue->in.seen = atomic_load_explicit(&queue->out.index, memory_order_acquire);
		if (index - queue->in.seen == QUEUE_BLOCKS)
			relax(&looks);
	}
	queue->blocks[index % QUEUE_BLOCKS] = block;
	atomic_store_explicit(&queue->in.index, index + 1, memory_order_release);
}

static uintptr_t take(struct queue *queue)
{
	size_t index = atomic_load_explicit(&queue->out.index, memory_order_relaxed);
	unsigned looks = 0;
	while (index == queue->out.seen) {
		queue->out.seen = atomic_load_explicit(&queue->in.index, memory_order_acquire);
		if (index == queue->out.seen)
			relax(&looks);
	}
	uintptr_t block = queue->blocks[index % QUEUE_BLOCKS];
	atomic_store_explicit(&queue->out.index, index + 1, memory_order_release);
	return block;
}

/* Hands over blocks for @ns.  Returns their number; 0 if an allocation failed. */
static uint64_t produce(struct pair *pair, uint64_t ns)
{
	size_t bytes = pair->work->measurement->argument;
	uint64_t start = clock_ns();
	uint64_t n = 0;
	do {
		for (int i = 0; i < CHUNK; i++) {
			uintptr_t block = pair->allocator.alloc(&pair->allocator, bytes);
			if (block == 0)
				return 0;
			put(&pair->queue, block);
		}
		n += CHUNK;
	} while (clock_ns() - start < ns && !atomic_load(&pair->stopped));
	return n;
}

static void *run_producer(struct pair *pair)
{
	(void)work_use_processors(0, 1); /* steadier, no more */
	bool good = produce(pair, work_warm_ns(pair->work)) > 0;
	pair->start_ns = clock_ns();
	if (good)
		pair->n = produce(pair, work_timed_ns(pair->work));
	if (pair->n == 0)
		(void)strncpy(pair->error[0], hoist_error(), sizeof pair->error[0] - 1);
	put(&pair->queue, 0); /* the end */
	return NULL;
}

/* Ends when the last block is free: the queue holds few of the millions. */
static void *run_consumer(struct pair *pair)
{
	(void)work_use_processors(1, 1); /* steadier, no more */
	uintptr_t block;
	while ((block = take(&pair->queue)) != 0) {
		if (pair->allocator.free(&pair->allocator, block) == 0)
			continue;
		(void)strncpy(pair->error[1], hoist_error(), sizeof pair->error[1] - 1);
		atomic_store(&pair->stopped, true);
	}
	pair->end_ns = clock_ns();
	return NULL;
}

struct role {
	struct pair *pair;
	void *(*run)(struct pair *pair);
};

static void *run_role(void *argument)
{
	const struct role *role = argument;
	return role->run(role->pair);
}

/* hoist_error() is the failing thread's own, so each role leaves its error in the pair. */
int work_handover(const struct work *work, double values[WORK_MAX_FIGURES])
{
	hoist_memory *memory = NULL;
	hoist_memory_options options = {.size = sizeof options, .kind = HOIST_MEMORY_HOST};
	struct pair *pair = aligned_alloc(CACHE_LINE, sizeof *pair);
	if (pair == NULL)
		return fail_memory();
	memset(pair, 0, sizeof *pair);
	int status = STATUS_OK;
	if (work->subject == SUBJECT_HOIST && hoist_memory_create(&options, &memory) != 0)
		status = fail_library();
	if (status == STATUS_OK) {
		pair->work = work;
		pair->allocator = work_allocator(work->subject, memory, NULL);
		struct role roles[] = {{pair, run_producer}, {pair, run_consumer}};
		work_in_threads(2, run_role, roles, sizeof roles[0]);
		bool freed = !atomic_load(&pair->stopped);
		if (pair->n == 0 || !freed)
			status = work_fail(work->subject, pair->error[freed ? 0 : 1]);
		else
			values[0] = (double)(pair->end_ns - pair->start_ns) / (double)pair->n;
	}
	hoist_memory_unref(memory);
	free(pair);
	return status;
}
