/* SPDX-License-Identifier: MIT */
/* alloc/jemalloc.h - finds and calls the jemalloc that the program has.
 *
 * The library neither links nor opens jemalloc, which would replace the program's malloc.  Instead
 * jemalloc is looked up among the symbols that the program has anyway (linked or preloaded):
 * "mallocx" and so on, then "je_mallocx" for builds that keep the prefix.  The functions are found
 * by name and called through the declarations here.  Where configure finds jemalloc's header,
 * jemalloc-abi.c compares the declarations with it.
 *
 * Threads: any.
 */
#ifndef HOIST_ALLOC_JEMALLOC_H
#define HOIST_ALLOC_JEMALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* extent_hooks_t, with jemalloc's meaning.  A hook that is NULL is an operation that cannot be
 * done. */
struct hoist__je_hooks {
	void *(*alloc)(struct hoist__je_hooks *, void *, size_t, size_t, bool *, bool *, unsigned);
	bool (*dalloc)(struct hoist__je_hooks *, void *, size_t, bool, unsigned);
	void (*destroy)(struct hoist__je_hooks *, void *, size_t, bool, unsigned);
	bool (*commit)(struct hoist__je_hooks *, void *, size_t, size_t, size_t, unsigned);
	bool (*decommit)(struct hoist__je_hooks *, void *, size_t, size_t, size_t, unsigned);
	bool (*purge_lazy)(struct hoist__je_hooks *, void *, size_t, size_t, size_t, unsigned);
	bool (*purge_forced)(struct hoist__je_hooks *, void *, size_t, size_t, size_t, unsigned);
	bool (*split)(struct hoist__je_hooks *, void *, size_t, size_t, size_t, bool, unsigned);
	bool (*merge)(struct hoist__je_hooks *, void *, size_t, void *, size_t, bool, unsigned);
};

/* The argument of "experimental.arenas_create_ext" (5.3).  No public header declares it. */
struct hoist__je_arena_config {
	struct hoist__je_hooks *hooks;
	bool metadata_use_hooks;
};

/* The flags of mallocx() and its like; the exponent of an alignment is or'ed in unchanged. */
#define HOIST__JE_TCACHE(cache) ((int)(((cache) + 2u) << 8))
#define HOIST__JE_TCACHE_NONE HOIST__JE_TCACHE(-1u)
#define HOIST__JE_ARENA(arena) ((int)(((arena) + 1u) << 20))

struct hoist__je {
	void *(*mallocx)(size_t bytes, int flags);
	void (*dallocx)(void *address, int flags);
	size_t (*sallocx)(const void *address, int flags);
	int (*mallctl)(const char *name, void *old, size_t *old_bytes, void *new, size_t new_bytes);
	const char *version;
};

/* Returns: 0; -ENOTSUP: the program has no jemalloc, or one older than 5.2 (the text says how to
 *   get one). */
int hoist__je_find(struct hoist__je *ret);

/* Reads or writes the value called @name, or does both.  @old or @new may be NULL.
 * Returns: 0; the error of mallctl(), negative: -ENOENT (no such name), -EAGAIN, -EFAULT... */
int hoist__je_ctl(const struct hoist__je *je, const char *name, void *old, const void *new,
		  size_t bytes);

/* The same for "arena.ARENA.@name": writes the value, or (@new NULL) performs the action. */
int hoist__je_arena_set(const struct hoist__je *je, unsigned arena, const char *name,
			const void *new, size_t bytes);
/* Returns: "stats.arenas.ARENA.@name"; 0 if this jemalloc has no such figure. */
size_t hoist__je_arena_stat(const struct hoist__je *je, unsigned arena, const char *name);

#endif
