/* SPDX-License-Identifier: MIT */
/* Wrapped allocations and system calls: one call of a scenario fails, and a count of the memory
 * shows that nothing is left. */
#include "config.h"

#include "tests/support/failing-calls.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tests/support/check.h"
#include "tests/support/few-pages.h"
#include "tests/support/wrap.h"

struct failing failing = {.kinds = FAIL_ALLOCATIONS | FAIL_SYSTEM, .error = ENOMEM};

static void *unmap_refused; /* munmap() was made to fail on this */
static size_t unmap_refused_bytes;
static bool refused_was_emptied;
static uintptr_t leaf; /* the latest part of the page map */
static size_t leaf_bytes;

static bool fails(unsigned kind)
{
	if ((failing.kinds & kind) == 0 ||
	    atomic_fetch_add(&failing.n_calls, 1) + 1 != atomic_load(&failing.at))
		return false;
	errno = failing.error;
	return true;
}

bool failing_call(void)
{
	return fails(FAIL_SYSTEM);
}

bool failing_is_over(void)
{
	long at = atomic_load(&failing.at);
	return at == 0 || atomic_load(&failing.n_calls) >= at;
}

/* --- allocations --- */

static void *counted(void *memory)
{
	if (memory != NULL)
		atomic_fetch_add(&failing.n_allocated, 1);
	return memory;
}

WRAP(void *, malloc, (size_t bytes))
{
	return fails(FAIL_ALLOCATIONS) ? NULL : counted(__real_malloc(bytes));
}

WRAP(void *, calloc, (size_t n, size_t bytes))
{
	return fails(FAIL_ALLOCATIONS) ? NULL : counted(__real_calloc(n, bytes));
}

WRAP(void *, realloc, (void *memory, size_t bytes))
{
	if (fails(FAIL_ALLOCATIONS))
		return NULL;
	void *moved = __real_realloc(memory, bytes);
	return memory == NULL ? counted(moved) : moved;
}

WRAP(void *, aligned_alloc, (size_t align, size_t bytes))
{
	return fails(FAIL_ALLOCATIONS) ? NULL : counted(__real_aligned_alloc(align, bytes));
}

WRAP(void, free, (void *memory))
{
	if (memory != NULL)
		atomic_fetch_sub(&failing.n_allocated, 1);
	__real_free(memory);
}

/* The caller frees the line.  An inlined getline() calls __getdelim(). */
WRAP(ssize_t, __getdelim, (char **line, size_t *room, int end, FILE *file))
{
	if (fails(FAIL_SYSTEM))
		return -1;
	bool had = *line != NULL;
	ssize_t n = getdelim(line, room, end, file);
	if (!had)
		(void)counted(*line);
	return n;
}

WRAP(ssize_t, getline, (char **line, size_t *room, FILE *file))
{
	return __wrap___getdelim(line, room, '\n', file);
}

/* --- mappings --- */

WRAP(void *, mmap, (void *at, size_t bytes, int access, int flags, int fd, off_t offset))
{
	if (failing.on_next_map != NULL) {
		void (*call)(void) = failing.on_next_map;
		failing.on_next_map = NULL;
		call();
	}
	if (failing.fail_next_map || fails(FAIL_SYSTEM)) {
		failing.fail_next_map = false;
		errno = failing.error;
		return MAP_FAILED;
	}
	if (failing.pretend_hugetlb && (flags & MAP_HUGETLB) != 0)
		flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *memory = __real_mmap(at, bytes, access, flags, fd, offset);
	/* Parts of the page map stay, except for the ends that are cut off.  No other mapping has
	 * this flag. */
	if (memory != MAP_FAILED && (flags & MAP_NORESERVE) != 0) {
		leaf = (uintptr_t)memory;
		leaf_bytes = bytes;
	} else if (memory != MAP_FAILED) {
		atomic_fetch_add(&failing.n_mapped, 1);
		leaf_bytes = 0; /* the memory may lie where an end was cut off */
	}
	return memory;
}

WRAP(int, munmap, (void *memory, size_t bytes))
{
	if ((uintptr_t)memory - leaf < leaf_bytes)
		return fails(FAIL_SYSTEM) ? -1 : __real_munmap(memory, bytes);
	if (fails(FAIL_SYSTEM)) {
		unmap_refused = memory;
		unmap_refused_bytes = bytes;
		return -1;
	}
	int err = __real_munmap(memory, bytes);
	if (err == 0)
		atomic_fetch_sub(&failing.n_mapped, 1);
	return err;
}

WRAP(int, mprotect, (void *memory, size_t bytes, int access))
{
	return fails(FAIL_SYSTEM) ? -1 : __real_mprotect(memory, bytes, access);
}

WRAP(int, madvise, (void *memory, size_t bytes, int advice))
{
	if (fails(FAIL_SYSTEM))
		return -1;
	if (advice == MADV_POPULATE_WRITE && bytes > 0 && failing.hugetlb_node_is_full) {
		failing.hugetlb_node_is_full = false;
		errno = EFAULT;
		return -1;
	}
	if (advice == MADV_DONTNEED && unmap_refused != NULL)
		refused_was_emptied = true;
	if (failing.few_pages)
		few_pages(&bytes, &advice);
	return __real_madvise(memory, bytes, advice);
}

WRAP(int, mlock, (const void *memory, size_t bytes))
{
	return fails(FAIL_SYSTEM) ? -1 : __real_mlock(memory, bytes);
}

WRAP(long, mbind,
     (void *memory, unsigned long bytes, int mode, const unsigned long *mask, unsigned long bits,
      unsigned flags))
{
	return fails(FAIL_SYSTEM) ? -1 : __real_mbind(memory, bytes, mode, mask, bits, flags);
}

WRAP(long, move_pages,
     (int pid, unsigned long n, void **pages, const int *nodes, int *status, int flags))
{
	return fails(FAIL_SYSTEM) ? -1 : __real_move_pages(pid, n, pages, nodes, status, flags);
}

/* --- threads --- */

WRAP(int, pthread_setspecific, (pthread_key_t key, const void *value))
{
	return fails(FAIL_SYSTEM) ? ENOMEM : __real_pthread_setspecific(key, value);
}

WRAP(int, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument))
{
	return fails(FAIL_SYSTEM) ? EAGAIN
				  : __real_pthread_create(thread, attributes, start, argument);
}

/* --- the sweep --- */

void failing_expect_nothing_left(void)
{
	if (unmap_refused != NULL) {
		/* The kernel's refusal costs the address space, and not the pages. */
		CHECK(refused_was_emptied);
		OK(__real_munmap(unmap_refused, unmap_refused_bytes));
		atomic_fetch_sub(&failing.n_mapped, 1);
		unmap_refused = NULL;
		refused_was_emptied = false;
	}
	CHECK(atomic_load(&failing.n_allocated) == 0);
	CHECK(atomic_load(&failing.n_mapped) == 0);
}

void failing_sweep(const char *name, int (*scenario)(void), int error)
{
	long n_failed = 0;
	long at = 0;
	failing.error = error;
	check_at("%s, no failure", name);
	atomic_store(&failing.at, 0);
	OK(scenario());
	failing_expect_nothing_left();
	for (bool over = false; !over;) {
		check_at("%s, call %ld, %s", name, ++at, strerror(error));
		atomic_store(&failing.at, at);
		atomic_store(&failing.n_calls, 0);
		int err = scenario();
		failing_expect_nothing_left();
		over = atomic_load(&failing.n_calls) < at;
		CHECK(over ? err == 0 : err == 0 || hoist__error_text()[0] != '\0');
		n_failed += err != 0;
	}
	atomic_store(&failing.at, 0);
	CHECK(at > 1 && n_failed > 0);
	printf("%s: %ld calls failed (%s), %ld of them could not be helped\n", name, at - 1,
	       strerror(error), n_failed);
}

struct run {
	int (*scenario)(void);
	int err;
};

static void *run_in_thread(void *argument)
{
	struct run *run = argument;
	run->err = run->scenario();
	CHECK(run->err == 0 || hoist__error_text()[0] != '\0'); /* the text is each thread's own */
	return NULL;
}

int failing_in_thread(int (*scenario)(void))
{
	struct run run = {.scenario = scenario};
	pthread_t thread;
	OK(__real_pthread_create(&thread, NULL, run_in_thread, &run));
	OK(pthread_join(thread, NULL));
	if (run.err != 0)
		(void)hoist__fail(run.err, "in a thread of its own");
	return run.err;
}
