/* SPDX-License-Identifier: MIT */
/* format/arena.c - many small pieces of memory that are freed together.
 * The contract is in format/arena.h. */
#include "config.h"

#include "format/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

#define FIRST_CHUNK_BYTES HOIST__KIB
#define LAST_CHUNK_BYTES HOIST__MIB

struct hoist__arena_chunk {
	struct hoist__arena_chunk *next;
	size_t bytes; /* of `data` */
	uint64_t data[];
};

static int add_chunk(struct hoist__arena *arena, size_t bytes)
{
	size_t size = FIRST_CHUNK_BYTES;
	if (arena->chunks != NULL)
		size = hoist__min_u64(arena->chunks->bytes * 2, LAST_CHUNK_BYTES);
	if (size < bytes)
		size = bytes;
	if (size > SIZE_MAX - sizeof(struct hoist__arena_chunk))
		return -1;
	struct hoist__arena_chunk *chunk = malloc(sizeof *chunk + size);
	if (chunk == NULL)
		return -1;
	chunk->next = arena->chunks;
	chunk->bytes = size;
	arena->chunks = chunk;
	arena->used = 0;
	return 0;
}

void *hoist__arena_alloc(struct hoist__arena *arena, size_t bytes, size_t align)
{
	size_t at = hoist__round_up(arena->used, align);
	if (arena->chunks == NULL || at > arena->chunks->bytes ||
	    arena->chunks->bytes - at < bytes) {
		if (add_chunk(arena, bytes) < 0)
			return NULL;
		at = 0;
	}
	arena->used = at + bytes;
	return (char *)arena->chunks->data + at;
}

int hoist__arena_text(struct hoist__arena *arena, const char *text, size_t n, const char *what,
		      const char **ret)
{
	char *copy = hoist__arena_alloc(arena, n + 1, 1);
	if (copy == NULL)
		return hoist__fail_nomem(what, n + 1);
	if (n > 0)
		memcpy(copy, text, n);
	copy[n] = '\0';
	*ret = copy;
	return 0;
}

void hoist__arena_fini(struct hoist__arena *arena)
{
	struct hoist__arena_chunk *chunk = arena->chunks;
	while (chunk != NULL) {
		struct hoist__arena_chunk *next = chunk->next;
		free(chunk);
		chunk = next;
	}
	arena->chunks = NULL;
	arena->used = 0;
}
