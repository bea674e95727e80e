/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "alloc/spans.h"

#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/list.h"

#define SPANS_PER_CHUNK 128
#define MAX_MISSES 8 /* candidates that alignment may spoil before we ask for more */

struct hoist__span_chunk {
	struct hoist__span_chunk *next;
	struct hoist__span spans[SPANS_PER_CHUNK];
};

void hoist__spans_init(struct hoist__spans *spans)
{
	*spans = (struct hoist__spans){.random = UINT64_C(0x9e3779b97f4a7c15)};
}

void hoist__spans_done(struct hoist__spans *spans)
{
	while (spans->chunks != NULL) {
		struct hoist__span_chunk *chunk = spans->chunks;
		spans->chunks = chunk->next;
		free(chunk);
	}
	*spans = (struct hoist__spans){0};
}

struct hoist__span_chunk *hoist__span_chunk_create(void)
{
	struct hoist__span_chunk *chunk = calloc(1, sizeof *chunk);
	if (chunk == NULL)
		(void)hoist__fail_nomem("block descriptors", sizeof *chunk);
	return chunk;
}

static void put_spare(struct hoist__spans *spans, struct hoist__span *span)
{
	span->next = spans->spares;
	spans->spares = span;
	spans->n_spares++;
}

static struct hoist__span *get_spare(struct hoist__spans *spans)
{
	struct hoist__span *span = spans->spares;
	assert(span != NULL);
	spans->spares = span->next;
	spans->n_spares--;
	return span;
}

void hoist__spans_give(struct hoist__spans *spans, struct hoist__span_chunk *chunk)
{
	chunk->next = spans->chunks;
	spans->chunks = chunk;
	for (size_t i = 0; i < SPANS_PER_CHUNK; i++)
		put_spare(spans, &chunk->spans[i]);
}

/* xorshift64: priorities need be unrelated to the keys, nothing more. */
static uint64_t next_random(struct hoist__spans *spans)
{
	uint64_t x = spans->random;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return spans->random = x;
}

static struct hoist__span *span_of(struct hoist__tree_node *node)
{
	return node == NULL ? NULL : HOIST__CONTAINER_OF(node, struct hoist__span, node);
}

static bool is_whole(const struct hoist__span *span)
{
	return span->prev == NULL && span->next == NULL;
}

static struct hoist__tree *tree_of_free(struct hoist__spans *spans, const struct hoist__span *span)
{
	return is_whole(span) ? &spans->empty : &spans->free;
}

/* Into the tree its state asks for. */
static void link_span(struct hoist__spans *spans, struct hoist__span *span)
{
	span->node.priority = next_random(spans);
	if (span->requested != 0) {
		span->node.key = (struct hoist__tree_key){span->address, 0};
		hoist__tree_insert(&spans->live, &span->node);
		return;
	}
	span->node.key = (struct hoist__tree_key){span->bytes, span->address};
	hoist__tree_insert(tree_of_free(spans, span), &span->node);
	if (is_whole(span))
		spans->empty_bytes += span->bytes;
}

static void unlink_free(struct hoist__spans *spans, struct hoist__span *span)
{
	assert(span->requested == 0);
	hoist__tree_remove(tree_of_free(spans, span), &span->node);
	if (is_whole(span))
		spans->empty_bytes -= span->bytes;
}

void hoist__spans_add(struct hoist__spans *spans, struct hoist__extent *extent)
{
	struct hoist__span *span = get_spare(spans);
	*span = (struct hoist__span){
		.address = extent->base, .bytes = extent->bytes, .extent = extent};
	extent->first = span;
	link_span(spans, span);
}

void hoist__spans_remove(struct hoist__spans *spans, struct hoist__extent *extent)
{
	struct hoist__span *span = extent->first;
	assert(is_whole(span));
	unlink_free(spans, span);
	extent->first = NULL;
	put_spare(spans, span);
}

struct hoist__extent *hoist__spans_largest_empty(const struct hoist__spans *spans)
{
	struct hoist__span *span = span_of(hoist__tree_last(&spans->empty));
	return span == NULL ? NULL : span->extent;
}

/* Cuts @span, which is in no tree, before @bytes; the rest becomes free. */
static void split(struct hoist__spans *spans, struct hoist__span *span, size_t bytes)
{
	struct hoist__span *rest = get_spare(spans);
	*rest = (struct hoist__span){
		.address = span->address + bytes,
		.bytes = span->bytes - bytes,
		.prev = span,
		.next = span->next,
		.extent = span->extent,
	};
	if (span->next != NULL)
		span->next->prev = rest;
	span->next = rest;
	span->bytes = bytes;
}

/* The bytes to skip at the span's start; SIZE_MAX if the want does not fit. */
static size_t fit(const struct hoist__span *span, const struct hoist__want *want)
{
	size_t skip = (size_t)(hoist__round_up(span->address, want->align) - span->address);
	bool fits = skip <= span->bytes && want->bytes <= span->bytes - skip;
	return fits ? skip : SIZE_MAX;
}

/* Makes the fitting free span live, and what is left of it free. */
static struct hoist__span *carve(struct hoist__spans *spans, struct hoist__span *span,
				 const struct hoist__want *want, size_t skip)
{
	unlink_free(spans, span);
	if (skip > 0) {
		struct hoist__span *head = span;
		split(spans, head, skip);
		span = head->next;
		link_span(spans, head);
	}
	if (span->bytes > want->bytes) {
		split(spans, span, want->bytes);
		link_span(spans, span->next);
	}
	span->requested = want->requested;
	link_span(spans, span);
	return span;
}

/* The best fit in one tree.  Alignment may spoil the first candidates; a span
 * of size + align fits for certain. */
static struct hoist__span *best_fit(const struct hoist__tree *tree, const struct hoist__want *want,
				    size_t *skip)
{
	struct hoist__tree_key key = {want->bytes, 0};
	for (int misses = 0;; misses++) {
		if (misses == MAX_MISSES && key.major < want->bytes + want->align)
			key = (struct hoist__tree_key){want->bytes + want->align, 0};
		struct hoist__span *span = span_of(hoist__tree_at_least(tree, key));
		if (span == NULL)
			return NULL;
		*skip = fit(span, want);
		if (*skip != SIZE_MAX)
			return span;
		key = (struct hoist__tree_key){span->bytes, span->address + 1};
	}
}

struct hoist__span *hoist__spans_take(struct hoist__spans *spans, const struct hoist__want *want,
				      size_t most_empty)
{
	size_t skip;
	struct hoist__span *span = best_fit(&spans->free, want, &skip);
	if (span == NULL) {
		span = best_fit(&spans->empty, want, &skip);
		if (span == NULL || span->bytes > most_empty)
			return NULL;
	}
	return carve(spans, span, want, skip);
}

struct hoist__span *hoist__spans_take_from(struct hoist__spans *spans, struct hoist__extent *extent,
					   const struct hoist__want *want, bool whole)
{
	size_t skip = fit(extent->first, want);
	if (skip == SIZE_MAX)
		return NULL;
	struct hoist__want all = *want;
	if (whole && skip == 0)
		all.bytes = extent->bytes;
	return carve(spans, extent->first, &all, skip);
}

struct hoist__span *hoist__spans_take_whole(struct hoist__spans *spans,
					    const struct hoist__want *want)
{
	size_t skip;
	struct hoist__span *span = best_fit(&spans->empty, want, &skip);
	if (span == NULL || skip != 0 || span->bytes - want->bytes > want->bytes / 8)
		return NULL;
	return hoist__spans_take_from(spans, span->extent, want, true);
}

/* Adds @next to @span, both free, neighbours, and in no tree. */
static void merge(struct hoist__spans *spans, struct hoist__span *span, struct hoist__span *next)
{
	span->bytes += next->bytes;
	span->next = next->next;
	if (next->next != NULL)
		next->next->prev = span;
	put_spare(spans, next);
}

struct hoist__extent *hoist__spans_release(struct hoist__spans *spans, struct hoist__span *span)
{
	hoist__tree_remove(&spans->live, &span->node);
	span->requested = 0;
	struct hoist__span *next = span->next;
	if (next != NULL && next->requested == 0) {
		unlink_free(spans, next);
		merge(spans, span, next);
	}
	struct hoist__span *prev = span->prev;
	if (prev != NULL && prev->requested == 0) {
		unlink_free(spans, prev);
		merge(spans, prev, span);
		span = prev;
	}
	link_span(spans, span);
	return is_whole(span) ? span->extent : NULL;
}

struct hoist__span *hoist__spans_around(const struct hoist__spans *spans, uintptr_t address)
{
	struct hoist__tree_key key = {address, 0};
	struct hoist__span *span = span_of(hoist__tree_at_most(&spans->live, key));
	return span != NULL && address - span->address < span->bytes ? span : NULL;
}

struct hoist__span *hoist__spans_at(const struct hoist__spans *spans, uintptr_t address)
{
	struct hoist__span *span = hoist__spans_around(spans, address);
	return span != NULL && span->address == address ? span : NULL;
}

void hoist__spans_check(const struct hoist__spans *spans, const struct hoist__extent *extent)
{
	uintptr_t at = extent->base;
	const struct hoist__span *prev = NULL;
	for (struct hoist__span *span = extent->first; span != NULL; span = span->next) {
		bool live = span->requested != 0;
		const struct hoist__tree *tree = live		  ? &spans->live
						 : is_whole(span) ? &spans->empty
								  : &spans->free;
		assert(span->address == at && span->bytes > 0 && span->extent == extent);
		assert(span->prev == prev && span->requested <= span->bytes);
		assert(live || prev == NULL || prev->requested != 0);
		assert(hoist__tree_at_least(tree, span->node.key) == &span->node);
		(void)tree;
		at += span->bytes;
		prev = span;
	}
	assert(at == extent->base + extent->bytes);
}
