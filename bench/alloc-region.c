/* SPDX-License-Identifier: MIT */
/* A fresh region of host memory in huge pages, all of it populated: by hoist, and by the best
 * that can be written by hand.  The contract is in alloc-work.h. */
#include "config.h"

#include "bench/alloc-work.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <hoist/error.h>

#include "cli/fail.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define MAX_THREADS 4

struct part {
	char *start;
	size_t bytes;
	bool touch;
	int err;
};

static void *populate_part(void *argument)
{
	struct part *part = argument;
	if (!part->touch) {
		part->err = madvise(part->start, part->bytes, MADV_POPULATE_WRITE) == 0 ? 0 : errno;
		return NULL;
	}
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	for (size_t i = 0; i < part->bytes; i += page)
		((volatile char *)part->start)[i] = 1;
	return NULL;
}

/* @bytes of memory at a multiple of 2 MiB, which ask for huge pages; *whole is the whole
 * mapping.  NULL without memory. */
static char *map_huge(size_t bytes, void **whole)
{
	*whole = mmap(NULL, bytes + MIB(2), PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (*whole == MAP_FAILED)
		return NULL;
	char *start = (char *)*whole + (MIB(2) - (uintptr_t)*whole % MIB(2)) % MIB(2);
	(void)madvise(start, bytes,
		      MADV_HUGEPAGE); /* without huge pages this is slower, as hoist is */
	return start;
}

static int populate_by_hand(size_t bytes, int n_threads, bool touch, uint64_t *ns)
{
	struct part parts[MAX_THREADS];
	void *whole = NULL;
	uint64_t start = clock_ns();
	char *memory = map_huge(bytes, &whole);
	if (memory == NULL)
		return fail_memory();
	size_t each = bytes / (size_t)n_threads;
	for (int i = 0; i < n_threads; i++)
		parts[i] = (struct part){memory + (size_t)i * each, each, touch, 0};
	work_in_threads(n_threads, populate_part, parts, sizeof parts[0]);
	*ns = clock_ns() - start;
	(void)munmap(whole, bytes + MIB(2));
	for (int i = 0; i < n_threads; i++) {
		if (parts[i].err != 0)
			return fail("madvise(MADV_POPULATE_WRITE): %s", strerror(parts[i].err));
	}
	return STATUS_OK;
}

static int populate_with_hoist(size_t bytes, uint64_t *ns)
{
	hoist_memory_options options = {
		.size = sizeof options, .kind = HOIST_MEMORY_HOST, .region_bytes = bytes};
	hoist_memory *memory = NULL;
	uintptr_t block = 0;
	uint64_t start = clock_ns();
	if (hoist_memory_create(&options, &memory) != 0)
		return fail_library();
	int status = STATUS_OK;
	if (hoist_memory_alloc(memory, bytes, 0, &block) != 0)
		status = fail_library();
	*ns = clock_ns() - start;
	if (status == STATUS_OK && hoist_memory_free(memory, block) != 0)
		status = fail_library();
	hoist_memory_unref(memory);
	return status;
}

int work_region(const struct work *work, double values[WORK_MAX_FIGURES])
{
	size_t bytes = work->quick ? MIB(64) : GIB(1);
	int n_threads = work->measurement->n_threads;
	uint64_t ns = 0;
	int err = work_use_processors(0, n_threads); /* hoist takes as many threads */
	int status =
		err == 0 ? STATUS_OK : fail("using %d processors: %s", n_threads, strerror(-err));
	/* A virtual machine's host may have taken free memory back.  Then the first touch of this
	 * memory is slow, and the subject that comes first would pay for it. */
	if (status == STATUS_OK)
		status = populate_by_hand(bytes, n_threads, true, &ns);
	if (status == STATUS_OK && work->subject == SUBJECT_HOIST)
		status = populate_with_hoist(bytes, &ns);
	else if (status == STATUS_OK)
		status = populate_by_hand(bytes, n_threads, work->subject == SUBJECT_TOUCH, &ns);
	values[0] = (double)ns / 1e6 * (double)GIB(1) / (double)bytes;
	return status;
}
