/* SPDX-License-Identifier: MIT */
/* tests/support/alloc-figures.h - what a process has of mappings, memory and heap, for tests that
 * it stays so. */
#ifndef HOIST_TESTS_ALLOC_FIGURES_H
#define HOIST_TESTS_ALLOC_FIGURES_H

#include <malloc.h>

#include "tests/support/alloc-support.h"
#include "tests/support/count.h"

struct figures {
	size_t n_mappings;
	size_t resident_bytes;
	size_t heap_bytes;
};

static inline struct figures figures(void)
{
	struct figures now = {0};
	now.n_mappings = count_lines("/proc/self/maps");
	FILE *statm = fopen("/proc/self/statm", "re");
	CHECK(statm != NULL && fscanf(statm, "%*s %zu", &now.resident_bytes) == 1);
	(void)fclose(statm);
	now.resident_bytes *= (size_t)sysconf(_SC_PAGESIZE);
	now.heap_bytes = mallinfo2().uordblks;
	return now;
}

/* The heap may have grown by @heap_more: bookkeeping that follows a peak.  A sanitizer's own memory
 * grows, and its malloc says nothing. */
static inline void expect_steady(const char *what, struct figures before, struct figures after,
				 size_t heap_more)
{
	printf("%s: %zu mappings, %zu KiB resident, %zu bytes of heap; then %zu, %zu, %zu\n", what,
	       before.n_mappings, before.resident_bytes / HOIST__KIB, before.heap_bytes,
	       after.n_mappings, after.resident_bytes / HOIST__KIB, after.heap_bytes);
	if (is_slow())
		return;
	CHECK(after.n_mappings <= before.n_mappings + 8);
	CHECK(after.resident_bytes <= before.resident_bytes + 2 * HOIST__MIB);
	CHECK(after.heap_bytes <= before.heap_bytes + heap_more);
}

#endif
