/* SPDX-License-Identifier: MIT */
/* tests/support/failing-calls.h - calls that are made to fail, one by one.  A sweep runs a scenario
 * with its first call made to fail, then with its second, and so on until none is left.  Whatever
 * the scenario says then, nothing may be left behind.
 *
 *     failing.kinds = FAIL_ALLOCATIONS;
 *     failing_sweep("a pool", use_pool, ENOMEM);
 *
 * Without the first line, calls of all kinds fail.  use_pool() gives 0, or the error that stopped
 * use_pool().
 *
 * The calls are those of the library's own code: the linker sends them to failing-calls.c (--wrap,
 * $(failing_calls) in alloc/build.am), which works beside the sanitizers' own interception.  A
 * program has failing-calls.c in its _SOURCES. */
#ifndef HOIST_TESTS_FAILING_CALLS_H
#define HOIST_TESTS_FAILING_CALLS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

enum {
	FAIL_ALLOCATIONS = 1,
	FAIL_SYSTEM = 2, /* mmap() and the like, getline(), threads */
};

struct failing {
	unsigned kinds;
	atomic_long at; /* the call to fail, counted by n_calls; 0: none */
	int error;
	atomic_long n_calls;	 /* of these kinds */
	atomic_long n_allocated; /* malloc and the like, not freed yet */
	atomic_long n_mapped;
	bool pretend_hugetlb;	   /* MAP_HUGETLB gives ordinary pages */
	bool hugetlb_node_is_full; /* ... that cannot be populated, the first time */
	void (*on_next_map)(void); /* called once, before the mmap() */
	bool fail_next_map;
	bool few_pages; /* as few-pages.h says */
};

extern struct failing failing;

/* Counts a call of the test's own; true if it is the one to fail. */
bool failing_call(void);

/* True if the call to fail has come, or there is none. */
bool failing_is_over(void);

void failing_expect_nothing_left(void);

/* Fails unless some calls failed, and some of them stopped the scenario. */
void failing_sweep(const char *name, int (*scenario)(void), int error);

/* The scenario in a thread of its own: the memory that is kept for a thread ends with it. */
int failing_in_thread(int (*scenario)(void));

void *__real_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
int __real_munmap(void *memory, size_t bytes);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument);

#endif
