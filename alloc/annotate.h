/* SPDX-License-Identifier: MIT */
/* alloc/annotate.h - tells AddressSanitizer and Valgrind which bytes of a mapping are in use.
 *
 * Both tools know malloc.  Blocks within a mapping look all the same to them until they are told:
 *
 *   hidden   no access is allowed: free memory, redzones
 *   shown    a user's block, to the byte
 *
 * ASan: a library built with ASan has its functions.  A library built without it has weak
 * references to them, which resolve in a program that was built with ASan.  Valgrind: its client
 * requests are a few instructions that do nothing outside of Valgrind.  They are compiled in where
 * configure found valgrind/memcheck.h.
 *
 * Memory is shown to Valgrind as undefined only where the host alone writes to it.  Valgrind does
 * not see the writes of drivers and of the kernel's rings, so it would warn of every byte that is
 * read after such a write.
 */
#ifndef HOIST_ALLOC_ANNOTATE_H
#define HOIST_ALLOC_ANNOTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef HOIST_VALGRIND
#include <valgrind/memcheck.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HOIST__ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HOIST__ASAN 1
#endif
#endif

#ifdef HOIST__ASAN
#include <sanitizer/asan_interface.h>
static inline bool hoist__asan_runs(void)
{
	return true;
}
#else
extern void __asan_poison_memory_region(const volatile void *address, size_t bytes)
	__attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *address, size_t bytes)
	__attribute__((weak));
static inline bool hoist__asan_runs(void)
{
	return __asan_poison_memory_region != NULL && __asan_unpoison_memory_region != NULL;
}
#endif

static inline bool hoist__valgrind_runs(void)
{
#ifdef HOIST_VALGRIND
	return RUNNING_ON_VALGRIND != 0;
#else
	return false;
#endif
}

/* Hides [address, address + bytes).  ASan wants both ends at multiples of 8. */
static inline void hoist__annotate_hidden(uintptr_t address, size_t bytes)
{
	if (hoist__asan_runs())
		__asan_poison_memory_region((const void *)address, bytes);
#ifdef HOIST_VALGRIND
	(void)VALGRIND_MAKE_MEM_NOACCESS(address, bytes);
#endif
}

/* Nothing is mapped in [address, address + bytes) any more, and what comes there next is not hidden.
 * Valgrind sees mappings come and go, ASan does not. */
static inline void hoist__annotate_gone(uintptr_t address, size_t bytes)
{
	if (hoist__asan_runs())
		__asan_unpoison_memory_region((const void *)address, bytes);
}

/* Shows [address, address + bytes).  @defined: the content is valid, or is written where Valgrind
 * does not see it. */
static inline void hoist__annotate_shown(uintptr_t address, size_t bytes, bool defined)
{
	if (hoist__asan_runs())
		__asan_unpoison_memory_region((const void *)address, bytes);
#ifdef HOIST_VALGRIND
	if (defined)
		(void)VALGRIND_MAKE_MEM_DEFINED(address, bytes);
	else
		(void)VALGRIND_MAKE_MEM_UNDEFINED(address, bytes);
#else
	(void)defined;
#endif
}

#endif
