/* SPDX-License-Identifier: MIT */
/* Millions of small live blocks: what they cost in memory, and in time once blocks picked at random
 * are replaced.  The contract is in alloc-work.h. */
#include "config.h"

#include "bench/alloc-work.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <hoist/error.h>

#include "cli/fail.h"

#define LEAST 8 /* bytes of a block, uniform */
#define MOST 48
#define CHUNK 256 /* replacements between two looks at the clock */

struct small {
	struct allocator allocator;
	uint64_t random;
	uintptr_t *blocks;
	uint32_t n; /* live */
	uint32_t most;
	uint64_t asked; /* bytes of the first fill */
};

/* A block of which one byte is written; 0 if there is none. */
static uintptr_t take(struct small *small, size_t *bytes)
{
	*bytes = LEAST + work_below(work_random(&small->random), MOST - LEAST + 1);
	uintptr_t block = small->allocator.alloc(&small->allocator, *bytes);
	if (block != 0)
		*(volatile char *)block = 1;
	return block;
}

static bool fill(struct small *small)
{
	while (small->n < small->most) {
		size_t bytes = 0;
		uintptr_t block = take(small, &bytes);
		if (block == 0)
			return false;
		small->blocks[small->n++] = block;
		small->asked += bytes;
	}
	return true;
}

/* Returns: nanoseconds for an allocation or a free; negative if one failed. */
static double replace(struct small *small, uint64_t ns)
{
	uint64_t start = clock_ns();
	uint64_t now = start;
	uint64_t n = 0;
	while (now - start < ns) {
		for (int i = 0; i < CHUNK; i++) {
			size_t bytes = 0;
			uint32_t which = work_below(work_random(&small->random), small->n);
			if (small->allocator.free(&small->allocator, small->blocks[which]) != 0)
				return -1;
			small->blocks[which] = take(small, &bytes);
			if (small->blocks[which] == 0)
				return -1;
		}
		n += 2 * CHUNK;
		now = clock_ns();
	}
	return (double)(now - start) / (double)n;
}

/* Bytes of this process that are in memory. */
static uint64_t resident_bytes(void)
{
	unsigned long long pages = 0;
	FILE *file = fopen("/proc/self/statm", "re");
	if (file == NULL || fscanf(file, "%*u %llu", &pages) != 1)
		pages = 0;
	if (file != NULL)
		(void)fclose(file);
	return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int make_memory(const struct work *work, hoist_memory **ret)
{
	bool heap = work->subject == SUBJECT_HEAP;
	hoist_memory_options options = {.size = sizeof options,
					.kind = heap ? HOIST_MEMORY_HEAP : HOIST_MEMORY_HOST,
					/* Less than is live, so that the memory can be compared. */
					.region_bytes = work->quick ? MIB(2) : 0};
	if (!heap && work->subject != SUBJECT_HOIST)
		return STATUS_OK;
	return hoist_memory_create(&options, ret) == 0 ? STATUS_OK : fail_library();
}

static int measure(const struct work *work, struct small *small, hoist_memory *memory,
		   double values[WORK_MAX_FIGURES])
{
	hoist_memory_statistics now = {.size = sizeof now};
	uint64_t before = resident_bytes();
	if (!fill(small))
		return work_fail(work->subject, hoist_error());
	values[1] = (double)(resident_bytes() - before) / (double)small->asked;
	if (memory != NULL) {
		if (hoist_memory_get_statistics(memory, &now) != 0)
			return fail_library();
		values[2] = (double)now.reserved_bytes / (double)small->asked;
	}
	if (replace(small, work_warm_ns(work)) < 0)
		return work_fail(work->subject, hoist_error());
	values[0] = replace(small, 5 * work_timed_ns(work));
	return values[0] >= 0 ? STATUS_OK : work_fail(work->subject, hoist_error());
}

int work_small(const struct work *work, double values[WORK_MAX_FIGURES])
{
	struct small small = {.random = work_seed(0)};
	hoist_memory *memory = NULL;
	(void)work_use_processors(0, 1); /* steadier, no more */
	small.most = (uint32_t)work->measurement->argument / (work->quick ? 10 : 1);
	small.blocks = malloc(small.most * sizeof *small.blocks);
	if (small.blocks == NULL)
		return fail_memory();
	for (uint32_t i = 0; i < small.most; i++) /* resident before the blocks are */
		small.blocks[i] = i;
	int status = make_memory(work, &memory);
	if (status == STATUS_OK) {
		small.allocator = work_allocator(work->subject, memory, NULL);
		status = measure(work, &small, memory, values);
	}
	while (small.n > 0) {
		uintptr_t block = small.blocks[--small.n];
		if (block != 0)
			(void)small.allocator.free(&small.allocator, block);
	}
	free(small.blocks);
	hoist_memory_unref(memory);
	return status;
}
