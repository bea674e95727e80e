/* SPDX-License-Identifier: MIT */
/* tests/support/few-pages.h - for a wrapped madvise(): a range that is populated gets its first
 * pages alone, and no huge page.  The kernel clears each page, which takes most of the time of
 * tests that make and drop pools again and again, and do not ask which pages are there. */
#ifndef HOIST_TESTS_FEW_PAGES_H
#define HOIST_TESTS_FEW_PAGES_H

#include <stddef.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static inline void few_pages(size_t *bytes, int *advice)
{
	const size_t few = (size_t)64 << 10;
	if (*bytes > few && *advice == MADV_HUGEPAGE)
		*advice = MADV_NOHUGEPAGE;
	else if (*bytes > few && *advice == MADV_POPULATE_WRITE)
		*bytes = few;
}

#endif
