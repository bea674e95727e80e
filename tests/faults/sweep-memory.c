/* SPDX-License-Identifier: MIT */
/* malloc and its kin, which are counted, and one fails: of the whole process, libraries included,
 * and, by --wrap, of hoist's own alone. */
#include "config.h"

#include "tests/faults/sweep.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/support/few-pages.h"
#include "tests/support/wrap.h"

static bool fails_now(int kind)
{
	if (sweep == NULL || atomic_load_explicit(&sweep->memory, memory_order_relaxed) != kind)
		return false;
	if (atomic_fetch_add(&sweep->seen, 1) + 1 != atomic_load(&sweep->at))
		return false;
	atomic_store(&sweep->struck, true);
	atomic_store(&sweep->n_trace, backtrace(sweep->trace, SWEEP_MOST_TRACE));
	errno = ENOMEM;
	return true;
}

/* --- hoist's own --- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static bool own_fails(size_t bytes)
{
	if (sweep != NULL &&
	    atomic_load_explicit(&sweep->memory, memory_order_relaxed) == SWEEP_OWN)
		atomic_fetch_add_explicit(&sweep->bytes, (long)bytes, memory_order_relaxed);
	return fails_now(SWEEP_OWN);
}

void *__wrap_malloc(size_t bytes)
{
	return own_fails(bytes) ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return own_fails(n * bytes) ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return own_fails(0) ? NULL : __real_realloc(old, bytes);
}

/* --- pages --- */

/* hoist populates up to 32 MiB in each process. */
WRAP(int, madvise, (void *address, size_t bytes, int advice))
{
	if (sweep != NULL && sweep->few_pages)
		few_pages(&bytes, &advice);
	return __real_madvise(address, bytes, advice);
}

/* --- the whole process's --- */

#if !SWEEP_SANITIZED

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *memory);

static atomic_long own;
static atomic_long *live = &own;

static void *counted(void *block)
{
	if (block != NULL)
		atomic_fetch_add_explicit(live, 1, memory_order_relaxed);
	return block;
}

#define VISIBLE __attribute__((visibility("default")))

VISIBLE void *malloc(size_t bytes)
{
	return fails_now(SWEEP_MEMORY) ? NULL : counted(__libc_malloc(bytes));
}

VISIBLE void *calloc(size_t n, size_t bytes)
{
	return fails_now(SWEEP_MEMORY) ? NULL : counted(__libc_calloc(n, bytes));
}

VISIBLE void *realloc(void *old, size_t bytes)
{
	if (fails_now(SWEEP_MEMORY))
		return NULL;
	void *block = __libc_realloc(old, bytes);
	if (old == NULL)
		return counted(block);
	if (block == NULL && bytes == 0)
		atomic_fetch_sub_explicit(live, 1, memory_order_relaxed);
	return block;
}

VISIBLE void *memalign(size_t align, size_t bytes);
VISIBLE void *memalign(size_t align, size_t bytes)
{
	return fails_now(SWEEP_MEMORY) ? NULL : counted(__libc_memalign(align, bytes));
}

VISIBLE void *aligned_alloc(size_t align, size_t bytes)
{
	return memalign(align, bytes);
}

VISIBLE int posix_memalign(void **ret, size_t align, size_t bytes)
{
	int before = errno;
	void *block = memalign(align, bytes);
	errno = before;
	if (block == NULL)
		return ENOMEM;
	*ret = block;
	return 0;
}

VISIBLE void free(void *memory)
{
	if (memory != NULL)
		atomic_fetch_sub_explicit(live, 1, memory_order_relaxed);
	__libc_free(memory);
}

long sweep_memory_live(void)
{
	return atomic_load(live);
}

static void in_holder(void)
{
	atomic_store(&sweep->holder_blocks, 0);
	live = &sweep->holder_blocks;
}

void sweep_memory_tell(void)
{
	if (pthread_atfork(NULL, NULL, in_holder) != 0)
		sweep_die("pthread_atfork");
}

#else

long sweep_memory_live(void)
{
	return 0;
}

void sweep_memory_tell(void)
{
}

#endif
