/* SPDX-License-Identifier: MIT */
/* format/arena.h - many small pieces of memory that are freed together.
 *
 * A parser's names and shapes live as long as its manifest, so they are bump-allocated from a chain
 * of chunks.  Chunks double from 1 KiB to 1 MiB: at most about half of the memory taken from malloc
 * is unused.
 *
 * Threads: one user at a time.
 */
#ifndef HOIST_FORMAT_ARENA_H
#define HOIST_FORMAT_ARENA_H

#include <stddef.h>

struct hoist__arena_chunk;

/* An arena of all zeros is empty. */
struct hoist__arena {
	struct hoist__arena_chunk *chunks; /* newest first */
	size_t used;			   /* bytes taken of the newest chunk */
};

/* Returns @bytes of memory aligned to @align (a power of two, at most 8); NULL if host memory is
 * exhausted. */
void *hoist__arena_alloc(struct hoist__arena *arena, size_t bytes, size_t align);

/* Copies @n bytes of @text, and puts a NUL behind them.  @what: for the message.
 * Returns: 0; -ENOMEM. */
int hoist__arena_text(struct hoist__arena *arena, const char *text, size_t n, const char *what,
		      const char **ret);

void hoist__arena_fini(struct hoist__arena *arena);

#endif
