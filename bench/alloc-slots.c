/* SPDX-License-Identifier: MIT */
/* Slots: each thread has an array of blocks, half of it full, picks a slot at random, frees
 * what is there or else allocates.  The memory itself is never touched.  The contract is
 * in alloc-work.h. */
#include "config.h"

#include "bench/alloc-work.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <hoist/error.h>

#include "cli/fail.h"

#define N_SIZES 4096 /* a power of two */

/* All slots together, with the rounding to regions, stay far below this. */
#define LIMIT_BYTES GIB(8)

static const struct shape {
	uint32_t n_slots;
	size_t least; /* sizes are uniform, or their logarithms are */
	size_t most;
	bool logarithmic;
	unsigned chunk;	     /* operations between two looks at the clock */
	size_t region_bytes; /* 0: the default */
} shapes[] = {
	[SLOTS_FIXED] = {10000, 4096, 4096, false, 1024, 0},
	[SLOTS_MIXED] = {10000, 64, 4096, false, 1024, 0},
	[SLOTS_LARGE] = {64, KIB(64), MIB(32), true, 128, GIB(1)},
};

struct slots {
	const struct shape *shape;
	struct allocator allocator;
	uint64_t random;
	uintptr_t *blocks; /* 0: empty */
	size_t *sizes;	   /* N_SIZES to choose from */
	char error[256];   /* of the operation that failed */
};

static void slots_end(struct slots *slots)
{
	for (uint32_t i = 0; slots->blocks != NULL && i < slots->shape->n_slots; i++) {
		if (slots->blocks[i] != 0)
			(void)slots->allocator.free(&slots->allocator, slots->blocks[i]);
	}
	free(slots->blocks);
	free(slots->sizes);
	slots->blocks = NULL;
	slots->sizes = NULL;
}

static void choose_sizes(const struct shape *shape, size_t sizes[N_SIZES])
{
	double range = log((double)shape->most / (double)shape->least);
	size_t span = shape->most - shape->least;
	for (size_t i = 0; i < N_SIZES; i++) {
		double at = ((double)i + 0.5) / N_SIZES;
		sizes[i] = shape->logarithmic ? (size_t)((double)shape->least * exp(at * range))
					      : shape->least + (size_t)(at * (double)(span + 1));
	}
}

/* Makes empty slots.  The caller owes slots_end() in either case. */
static bool slots_begin(struct slots *slots, const struct shape *shape,
			const struct allocator *allocator, int thread)
{
	*slots = (struct slots){
		.shape = shape, .allocator = *allocator, .random = work_seed(thread)};
	slots->blocks = calloc(shape->n_slots, sizeof *slots->blocks);
	slots->sizes = calloc(N_SIZES, sizeof *slots->sizes);
	if (slots->blocks == NULL || slots->sizes == NULL)
		return false;
	choose_sizes(shape, slots->sizes);
	return true;
}

/* Does @n operations.  False if one failed; slots->error has the reason. */
static bool slots_run(struct slots *slots, unsigned n)
{
	const struct allocator *allocator = &slots->allocator;
	uint32_t n_slots = slots->shape->n_slots;
	uint64_t state = slots->random;
	bool good = true;
	for (unsigned i = 0; i < n && good; i++) {
		uint64_t random = work_random(&state);
		uintptr_t *block = &slots->blocks[work_below(random, n_slots)];
		if (*block != 0) {
			good = allocator->free(allocator, *block) == 0;
			*block = 0;
		} else {
			*block = allocator->alloc(allocator, slots->sizes[random % N_SIZES]);
			good = *block != 0;
		}
	}
	slots->random = state;
	if (!good)
		(void)strncpy(slots->error, hoist_error(), sizeof slots->error - 1);
	return good;
}

/* Fills about half of the slots.  As slots_run(). */
static bool slots_fill(struct slots *slots)
{
	return slots_run(slots, 4 * slots->shape->n_slots);
}

/* Runs for @ns or a little longer.  Returns: nanoseconds per operation; negative if one
 * failed. */
static double slots_time(struct slots *slots, uint64_t ns)
{
	uint64_t start = clock_ns();
	uint64_t now = start;
	uint64_t n = 0;
	while (now - start < ns) {
		if (!slots_run(slots, slots->shape->chunk))
			return -1;
		n += slots->shape->chunk;
		now = clock_ns();
	}
	return n > 0 ? (double)(now - start) / (double)n : 0;
}

static int make_memory(const struct work *work, const struct shape *shape, unsigned flags,
		       hoist_memory **ret)
{
	hoist_memory_options options = {
		.size = sizeof options,
		.kind = HOIST_MEMORY_HOST,
		.flags = flags,
		.region_bytes =
			work->quick && shape->region_bytes != 0 ? MIB(128) : shape->region_bytes,
		.keep_bytes = LIMIT_BYTES, /* growing again is not what is measured */
		.limit_bytes = LIMIT_BYTES,
	};
	return hoist_memory_create(&options, ret) == 0 ? STATUS_OK : fail_library();
}

/* --- several threads, each with slots of its own --- */

struct slots_thread {
	const struct work *work;
	pthread_barrier_t *barrier;
	int index;
	struct slots slots;
	double ns; /* per operation; negative if one failed */
};

static void *run_thread(void *argument)
{
	struct slots_thread *thread = argument;
	(void)work_use_processors(thread->index, 1); /* steadier, no more */
	bool good = slots_fill(&thread->slots) &&
		    slots_time(&thread->slots, work_warm_ns(thread->work)) >= 0;
	(void)pthread_barrier_wait(thread->barrier);
	thread->ns = good ? slots_time(&thread->slots, work_timed_ns(thread->work)) : -1;
	(void)pthread_barrier_wait(thread->barrier); /* nobody gives back before all are done */
	return NULL;
}

static int run_threads(struct slots_thread *threads, int n)
{
	pthread_barrier_t barrier;
	if (pthread_barrier_init(&barrier, NULL, (unsigned)n) != 0)
		return fail_memory();
	for (int i = 0; i < n; i++)
		threads[i].barrier = &barrier;
	work_in_threads(n, run_thread, threads, sizeof threads[0]);
	(void)pthread_barrier_destroy(&barrier);
	return STATUS_OK;
}

static int measure_threads(const struct work *work, const struct shape *shape,
			   const struct allocator *allocator, double *ret)
{
	int n = work->measurement->n_threads;
	struct slots_thread *threads = calloc((size_t)n, sizeof *threads);
	if (threads == NULL)
		return fail_memory();
	int status = STATUS_OK;
	for (int i = 0; i < n; i++) {
		threads[i].work = work;
		threads[i].index = i;
		if (!slots_begin(&threads[i].slots, shape, allocator, i))
			status = fail_memory();
	}
	if (status == STATUS_OK)
		status = run_threads(threads, n);
	double sum = 0;
	for (int i = 0; i < n; i++) {
		sum += threads[i].ns;
		if (status == STATUS_OK && threads[i].ns < 0)
			status = work_fail(work->subject, threads[i].slots.error);
		slots_end(&threads[i].slots);
	}
	free(threads);
	if (status == STATUS_OK)
		*ret = sum / n;
	return status;
}

int work_slots(const struct work *work, double values[WORK_MAX_FIGURES])
{
	const struct shape *shape = &shapes[work->measurement->argument];
	hoist_memory *memory = NULL;
	if (work->subject == SUBJECT_HOIST && make_memory(work, shape, 0, &memory) != STATUS_OK)
		return STATUS_FAILED;
	struct allocator allocator = work_allocator(work->subject, memory, NULL);
	int status = measure_threads(work, shape, &allocator, &values[0]);
	hoist_memory_unref(memory);
	return status;
}

/* --- what statistics cost --- */

/* Alternates between two resources, so that other work of the machine disturbs both alike. */
static int compare_slots(const struct work *work, struct slots both[2], double values[])
{
	int n_slices = work->quick ? 2 : 20;
	double sums[2] = {0};
	for (int i = 0; i < 2; i++) {
		if (!slots_fill(&both[i]) || slots_time(&both[i], work_warm_ns(work)) < 0)
			return work_fail(work->subject, both[i].error);
	}
	for (int i = 0; i < 2 * n_slices; i++) {
		int which = (i ^ i >> 1) & 1; /* 0 1 1 0 ... */
		double ns = slots_time(&both[which], work_timed_ns(work) / 20);
		if (ns < 0)
			return work_fail(work->subject, both[which].error);
		sums[which] += ns;
	}
	values[0] = sums[0] / n_slices;
	values[1] = sums[1] / n_slices;
	values[2] = 100 * (sums[0] / sums[1] - 1);
	return STATUS_OK;
}

int work_statistics(const struct work *work, double values[WORK_MAX_FIGURES])
{
	static const unsigned flags[2] = {0, HOIST_MEMORY_NO_STATISTICS};
	const struct shape *shape = &shapes[work->measurement->argument];
	hoist_memory *memory[2] = {NULL, NULL};
	struct slots both[2] = {{.blocks = NULL}, {.blocks = NULL}};
	int status = STATUS_OK;
	(void)work_use_processors(0, 1); /* steadier, no more */
	for (int i = 0; i < 2 && status == STATUS_OK; i++) {
		status = make_memory(work, shape, flags[i], &memory[i]);
		struct allocator allocator = work_allocator(work->subject, memory[i], NULL);
		if (status == STATUS_OK && !slots_begin(&both[i], shape, &allocator, 0))
			status = fail_memory();
	}
	if (status == STATUS_OK)
		status = compare_slots(work, both, values);
	for (int i = 0; i < 2; i++) {
		slots_end(&both[i]);
		hoist_memory_unref(memory[i]);
	}
	return status;
}

/* --- how much memory the large sizes need --- */

static unsigned n_room_operations(const struct work *work)
{
	return work->quick ? 10000 : 200000;
}

static int get_statistics(hoist_memory *memory, hoist_memory_statistics *ret)
{
	*ret = (hoist_memory_statistics){.size = sizeof *ret};
	return hoist_memory_get_statistics(memory, ret) == 0 ? STATUS_OK : fail_library();
}

/* Measures with more than enough memory: the rounding, averaged over time (in %), and the
 * peak of the bytes asked for. */
static int measure_rounding(const struct work *work, struct slots *slots, double *percent,
			    uint64_t *peak)
{
	double requested = 0;
	double allocated = 0;
	hoist_memory_statistics now;
	for (unsigned n = 0; n < n_room_operations(work); n += slots->shape->chunk) {
		if (!slots_run(slots, slots->shape->chunk))
			return work_fail(work->subject, slots->error);
		if (get_statistics(slots->allocator.memory, &now) != STATUS_OK)
			return STATUS_FAILED;
		requested += (double)now.requested_bytes;
		allocated += (double)now.allocated_bytes;
	}
	*percent = 100 * (allocated / requested - 1);
	*peak = now.requested_peak;
	return STATUS_OK;
}

/* Tries the same operations with @limit bytes in one region.  *reserved is the reserved bytes if
 * all succeed, else 0. */
static int try_room(const struct work *work, const struct shape *shape, size_t limit,
		    uint64_t *reserved)
{
	hoist_memory_options options = {.size = sizeof options,
					.kind = HOIST_MEMORY_HOST,
					.region_bytes = limit,
					.limit_bytes = limit};
	hoist_memory *memory = NULL;
	if (hoist_memory_create(&options, &memory) != 0)
		return fail_library();
	struct allocator allocator = work_allocator(work->subject, memory, NULL);
	struct slots slots;
	hoist_memory_statistics now;
	int status = STATUS_OK;
	*reserved = 0;
	if (!slots_begin(&slots, shape, &allocator, 0)) {
		status = fail_memory();
	} else if (slots_run(&slots, n_room_operations(work))) {
		status = get_statistics(memory, &now);
		*reserved = now.reserved_peak;
	}
	slots_end(&slots);
	hoist_memory_unref(memory);
	return status;
}

/* Finds the least memory that is enough, in % above the peak of the bytes asked for.  Tries
 * from below, since a resource that has more room uses more. */
static int find_room(const struct work *work, const struct shape *shape, uint64_t peak,
		     double *percent)
{
	for (unsigned more = 1; more <= 200; more += more < 20 ? 1 : more / 10) {
		size_t limit = (size_t)((double)peak * (1 + more / 100.0)) / MIB(2) * MIB(2);
		uint64_t reserved = 0;
		if (limit < peak)
			continue;
		if (try_room(work, shape, limit, &reserved) != STATUS_OK)
			return STATUS_FAILED;
		if (reserved != 0) {
			*percent = 100 * ((double)reserved / (double)peak - 1);
			return STATUS_OK;
		}
	}
	return fail("three times the memory asked for is not enough: %s", hoist_error());
}

int work_slots_room(const struct work *work, double values[WORK_MAX_FIGURES])
{
	const struct shape *shape = &shapes[work->measurement->argument];
	hoist_memory *memory = NULL;
	uint64_t peak = 0;
	int status = make_memory(work, shape, 0, &memory);
	if (status != STATUS_OK)
		return status;
	struct allocator allocator = work_allocator(work->subject, memory, NULL);
	struct slots slots;
	if (!slots_begin(&slots, shape, &allocator, 0))
		status = fail_memory();
	else
		status = measure_rounding(work, &slots, &values[0], &peak);
	slots_end(&slots);
	hoist_memory_unref(memory);
	return status == STATUS_OK ? find_room(work, shape, peak, &values[1]) : status;
}
