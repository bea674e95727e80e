/* SPDX-License-Identifier: MIT */
/* Calls that are made to fail, one by one: each scenario is run with its first call
 * made to fail, then its second, and so on until none is left.  Whatever
 * the scenario says then, nothing may be left behind.
 *
 * The calls are those of the library's own code: the linker sends them here
 * (--wrap, see failing_calls in alloc/build.am), which works beside the sanitizers' own
 * interception.  For one source file of a program. */
#ifndef HOIST_TESTS_ALLOC_FAILING_CALLS_H
#define HOIST_TESTS_ALLOC_FAILING_CALLS_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

#define ADVICE_POPULATE_WRITE 23

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s; %s, call %ld, %s (%s)\n", __FILE__, __LINE__,  \
				#condition, scenario_name, fail_at, strerror(fail_with),           \
				hoist__error_text());                                              \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

static const char *scenario_name = "";
static long fail_at; /* the call to fail; 0: none */
static int fail_with = ENOMEM;
static atomic_long n_calls;
static atomic_long n_allocated; /* malloc and the like, not freed yet */
static atomic_long n_mapped;
static bool pretend_hugetlb;	  /* MAP_HUGETLB gives ordinary pages */
static bool hugetlb_node_is_full; /* ... that cannot be populated, the first time */
static void *unmap_refused;	  /* what munmap() was made to fail on */
static size_t unmap_refused_bytes;
static bool refused_was_emptied;
static void (*on_next_map)(void); /* called once, before the mmap() */
static bool fail_next_map;
static uintptr_t leaf; /* the latest part of the page map */
static size_t leaf_bytes;

static bool fails(void)
{
	if (atomic_fetch_add(&n_calls, 1) + 1 != fail_at)
		return false;
	errno = fail_with;
	return true;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
int __real_munmap(void *memory, size_t bytes);
int __real_mprotect(void *memory, size_t bytes, int access);
int __real_madvise(void *memory, size_t bytes, int advice);
int __real_mlock(const void *memory, size_t bytes);
int __real_pthread_setspecific(pthread_key_t key, const void *value);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument);
long __real_mbind(void *memory, unsigned long bytes, int mode, const unsigned long *mask,
		  unsigned long bits, unsigned flags);
long __real_move_pages(int pid, unsigned long n, void **pages, const int *nodes, int *status,
		       int flags);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
void __wrap_free(void *memory);
ssize_t __wrap_getline(char **line, size_t *room, FILE *file);
ssize_t __wrap___getdelim(char **line, size_t *room, int end, FILE *file);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset);
int __wrap_munmap(void *memory, size_t bytes);
int __wrap_mprotect(void *memory, size_t bytes, int access);
int __wrap_madvise(void *memory, size_t bytes, int advice);
int __wrap_mlock(const void *memory, size_t bytes);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument);
long __wrap_mbind(void *memory, unsigned long bytes, int mode, const unsigned long *mask,
		  unsigned long bits, unsigned flags);
long __wrap_move_pages(int pid, unsigned long n, void **pages, const int *nodes, int *status,
		       int flags);

static void *counted(void *memory)
{
	if (memory != NULL)
		atomic_fetch_add(&n_allocated, 1);
	return memory;
}

void *__wrap_malloc(size_t bytes)
{
	return fails() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return fails() ? NULL : counted(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	if (fails())
		return NULL;
	void *moved = __real_realloc(memory, bytes);
	return memory == NULL ? counted(moved) : moved;
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
	return fails() ? NULL : counted(__real_aligned_alloc(align, bytes));
}

void __wrap_free(void *memory)
{
	if (memory != NULL)
		atomic_fetch_sub(&n_allocated, 1);
	__real_free(memory);
}

/* Its line is the caller's to free.  What is inlined of it calls the other. */
ssize_t __wrap___getdelim(char **line, size_t *room, int end, FILE *file)
{
	if (fails())
		return -1;
	bool had = *line != NULL;
	ssize_t n = getdelim(line, room, end, file);
	if (!had)
		(void)counted(*line);
	return n;
}

ssize_t __wrap_getline(char **line, size_t *room, FILE *file)
{
	return __wrap___getdelim(line, room, '\n', file);
}

void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int fd, off_t offset)
{
	if (on_next_map != NULL) {
		void (*call)(void) = on_next_map;
		on_next_map = NULL;
		call();
	}
	if (fail_next_map || fails()) {
		fail_next_map = false;
		errno = fail_with;
		return MAP_FAILED;
	}
	if (pretend_hugetlb && (flags & MAP_HUGETLB) != 0)
		flags = MAP_PRIVATE | MAP_ANONYMOUS;
	void *memory = __real_mmap(at, bytes, access, flags, fd, offset);
	/* Parts of the page map stay, but for what is cut off their ends: they are the only ones
	 * so mapped. */
	if (memory != MAP_FAILED && (flags & MAP_NORESERVE) != 0) {
		leaf = (uintptr_t)memory;
		leaf_bytes = bytes;
	} else if (memory != MAP_FAILED) {
		atomic_fetch_add(&n_mapped, 1);
		leaf_bytes = 0; /* it may be where an end was cut off */
	}
	return memory;
}

int __wrap_munmap(void *memory, size_t bytes)
{
	if ((uintptr_t)memory - leaf < leaf_bytes)
		return fails() ? -1 : __real_munmap(memory, bytes);
	if (fails()) {
		unmap_refused = memory;
		unmap_refused_bytes = bytes;
		return -1;
	}
	int err = __real_munmap(memory, bytes);
	if (err == 0)
		atomic_fetch_sub(&n_mapped, 1);
	return err;
}

int __wrap_mprotect(void *memory, size_t bytes, int access)
{
	return fails() ? -1 : __real_mprotect(memory, bytes, access);
}

int __wrap_madvise(void *memory, size_t bytes, int advice)
{
	if (fails())
		return -1;
	if (advice == ADVICE_POPULATE_WRITE && bytes > 0 && hugetlb_node_is_full) {
		hugetlb_node_is_full = false;
		errno = EFAULT;
		return -1;
	}
	if (advice == MADV_DONTNEED && unmap_refused != NULL)
		refused_was_emptied = true;
	return __real_madvise(memory, bytes, advice);
}

int __wrap_mlock(const void *memory, size_t bytes)
{
	return fails() ? -1 : __real_mlock(memory, bytes);
}

int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
	return fails() ? ENOMEM : __real_pthread_setspecific(key, value);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
			  void *(*start)(void *), void *argument)
{
	return fails() ? EAGAIN : __real_pthread_create(thread, attributes, start, argument);
}

long __wrap_mbind(void *memory, unsigned long bytes, int mode, const unsigned long *mask,
		  unsigned long bits, unsigned flags)
{
	return fails() ? -1 : __real_mbind(memory, bytes, mode, mask, bits, flags);
}

long __wrap_move_pages(int pid, unsigned long n, void **pages, const int *nodes, int *status,
		       int flags)
{
	return fails() ? -1 : __real_move_pages(pid, n, pages, nodes, status, flags);
}

/* --- the sweep --- */

static void expect_nothing_left(void)
{
	if (unmap_refused != NULL) {
		/* The address space is lost to the kernel's refusal; the pages are not. */
		CHECK(refused_was_emptied);
		CHECK(__real_munmap(unmap_refused, unmap_refused_bytes) == 0);
		atomic_fetch_sub(&n_mapped, 1);
		unmap_refused = NULL;
		refused_was_emptied = false;
	}
	CHECK(atomic_load(&n_allocated) == 0);
	CHECK(atomic_load(&n_mapped) == 0);
}

static void sweep(const char *name, int (*scenario)(void), int error)
{
	long n_failed = 0;
	scenario_name = name;
	fail_with = error;
	fail_at = 0;
	CHECK(scenario() == 0);
	expect_nothing_left();
	for (fail_at = 1;; fail_at++) {
		atomic_store(&n_calls, 0);
		int err = scenario();
		expect_nothing_left();
		if (atomic_load(&n_calls) < fail_at) {
			CHECK(err == 0);
			break;
		}
		CHECK(err == 0 || hoist__error_text()[0] != '\0');
		n_failed += err != 0;
	}
	CHECK(fail_at > 1 && n_failed > 0);
	printf("%s: %ld calls failed (%s), %ld of them could not be helped\n", name, fail_at - 1,
	       strerror(error), n_failed);
}

#endif
