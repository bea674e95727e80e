/* SPDX-License-Identifier: MIT */
/* malloc and its kin, wrapped: counts calls and live bytes, and lets one call fail. */
#include "config.h"

#include "tests/format/nomem.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <time.h>

#include "hoist/error.h"
#include "tests/support/check.h"
#include "tests/support/wrap.h"

size_t counted_peak;

static bool counting;
static long fail_at;
static long n_calls;
static long n_live;
static size_t live_bytes;
static clock_t begun;

static bool must_fail(void)
{
	return counting && n_calls++ == fail_at;
}

static void *count(void *memory)
{
	if (memory != NULL && counting) {
		n_live++;
		live_bytes += malloc_usable_size(memory);
		counted_peak = live_bytes > counted_peak ? live_bytes : counted_peak;
	}
	return memory;
}

WRAP(void *, malloc, (size_t bytes))
{
	return must_fail() ? NULL : count(__real_malloc(bytes));
}

WRAP(void *, calloc, (size_t n, size_t bytes))
{
	return must_fail() ? NULL : count(__real_calloc(n, bytes));
}

/* Both blocks exist during the copy, as in some libraries; others need not have both. */
WRAP(void *, realloc, (void *memory, size_t bytes))
{
	if (must_fail())
		return NULL;
	size_t before = memory != NULL && counting ? malloc_usable_size(memory) : 0;
	void *grown = count(__real_realloc(memory, bytes));
	if (grown != NULL && before > 0) {
		n_live--;
		live_bytes -= before;
	}
	return grown;
}

WRAP(void, free, (void *memory))
{
	if (memory != NULL && counting) {
		n_live--;
		live_bytes -= malloc_usable_size(memory);
	}
	__real_free(memory);
}

void count_begin(long which)
{
	fail_at = which;
	n_calls = n_live = 0;
	live_bytes = counted_peak = 0;
	begun = clock();
	counting = true;
}

void count_end(void)
{
	counting = false;
	CHECK(n_live == 0);
}

double counted_seconds(void)
{
	return (double)(clock() - begun) / CLOCKS_PER_SEC;
}

void fail_each(int (*once)(void *context), void *context, int expected, long least)
{
	int err = -ENOMEM;
	long which = 0;
	for (; err == -ENOMEM; which++) {
		count_begin(which);
		err = once(context);
		count_end();
		CHECK(err == expected || err == -ENOMEM);
		CHECK(err == expected || strstr(hoist_error(), "host memory is exhausted") != NULL);
	}
	CHECK(which > least);
}
