/* SPDX-License-Identifier: MIT */
/* alloc/jemalloc.h - jemalloc, where the program has it.
 *
 * The library neither links nor opens jemalloc: it would replace the program's malloc.
 * It is looked for among the symbols that the program has by itself (linked, or
 * preloaded): "mallocx" and so on, then "je_mallocx" for builds that keep the prefix.
 * Found by name, it is used by the declarations here; where configure finds jemalloc's
 * header, jemalloc-abi.c compares them.
 *
 * Threads: any.
 */
#ifndef HOIST_ALLOC_JEMALLOC_H
#define HOIST_ALLOC_JEMALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* extent_hooks_t, with jemalloc's meaning; what is NULL cannot be done. */
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

/* What "experimental.arenas_create_ext" (5.3) takes; in no public header. */
struct hoist__je_arena_config {
	struct hoist__je_hooks *hooks;
	bool metadata_use_hooks;
};

/* The flags of mallocx() and its like; an alignment's exponent is added as it is. */
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

/* Returns: 0; -ENOTSUP: the program has no jemalloc, or one before 5.2 (text: how to
 *   get it). */
int hoist__je_find(struct hoist__je *ret);

/* Reads, writes, or does both to, the value called @name; @old or @new may be NULL.
 * Returns: 0; what mallctl() says, negative: -ENOENT (no such name), -EAGAIN, -EFAULT... */
int hoist__je_ctl(const struct hoist__je *je, const char *name, void *old, const void *new,
		  size_t bytes);

/* The same for "arena.ARENA.@name": writing, or (@new NULL) doing. */
int hoist__je_arena_set(const struct hoist__je *je, unsigned arena, const char *name,
			const void *new, size_t bytes);
/* For "stats.arenas.ARENA.@name": 0 where this jemalloc has no such figure. */
size_t hoist__je_arena_stat(const struct hoist__je *je, unsigned arena, const char *name);

#endif
