/* SPDX-License-Identifier: MIT */
/* alloc/spans.c - finds, takes and merges spans of granules.
 * The contract is in alloc/spans.h. */
#include "config.h"

#include "alloc/spans.h"

#include "base/assert.h"
#include "base/checked.h"

#define NEAR_FITS 4 /* spans looked at in the list of the size wanted */

/* --- the index --- */

struct place {
	unsigned level;
	unsigned list;
};

/* Returns: the list for a free span of @n granules. */
static struct place place_of(size_t n)
{
	if (n < HOIST__SPAN_LISTS)
		return (struct place){0, (unsigned)n};
	unsigned log = 63 - (unsigned)__builtin_clzll(n);
	return (struct place){log - 4, (unsigned)(n >> (log - 5)) & (HOIST__SPAN_LISTS - 1)};
}

static struct place next_up(struct place at)
{
	if (++at.list == HOIST__SPAN_LISTS)
		at = (struct place){at.level + 1, 0};
	return at;
}

static bool listed(const struct hoist__spans *spans, const struct hoist__granule *span)
{
	struct place at = place_of(span->n);
	if ((spans->levels >> at.level & 1) == 0 || (spans->lists[at.level] >> at.list & 1) == 0)
		return false;
	return span->prev != NULL ? span->prev->next == span
				  : spans->heads[at.level][at.list] == span;
}

static void index_insert(struct hoist__spans *spans, struct hoist__granule *span)
{
	struct place at = place_of(span->n);
	struct hoist__granule **head = &spans->heads[at.level][at.list];
	HOIST__ASSERT(span->n != 0 && at.level < HOIST__SPAN_LEVELS);
	HOIST__ASSERT((*head != NULL) == (spans->lists[at.level] >> at.list & 1));
	HOIST__ASSERT(*head == NULL || (*head)->prev == NULL);
	span->kind = HOIST__SPAN_FREE;
	span->prev = NULL;
	span->next = *head;
	if (*head != NULL)
		(*head)->prev = span;
	*head = span;
	spans->lists[at.level] |= UINT32_C(1) << at.list;
	spans->levels |= UINT32_C(1) << at.level;
}

static void index_remove(struct hoist__spans *spans, struct hoist__granule *span)
{
	HOIST__ASSERT(span->kind == HOIST__SPAN_FREE && listed(spans, span));
	HOIST__ASSERT(span->next == NULL || span->next->prev == span);
	if (span->next != NULL)
		span->next->prev = span->prev;
	if (span->prev != NULL) {
		span->prev->next = span->next;
		return;
	}
	struct place at = place_of(span->n);
	spans->heads[at.level][at.list] = span->next;
	if (span->next != NULL)
		return;
	spans->lists[at.level] &= ~(UINT32_C(1) << at.list);
	if (spans->lists[at.level] == 0)
		spans->levels &= ~(UINT32_C(1) << at.level);
}

/* Returns: the first span of the first list at @from or above that is not empty. */
static struct hoist__granule *index_from(const struct hoist__spans *spans, struct place from)
{
	if (from.level >= HOIST__SPAN_LEVELS)
		return NULL;
	uint32_t lists = spans->lists[from.level] & (UINT32_MAX << from.list);
	if (lists == 0) {
		uint32_t above = from.level + 1 < 32 ? UINT32_MAX << (from.level + 1) : 0;
		uint32_t levels = spans->levels & above;
		if (levels == 0)
			return NULL;
		from.level = (unsigned)__builtin_ctz(levels);
		lists = spans->lists[from.level];
	}
	HOIST__ASSERT(spans->heads[from.level][__builtin_ctz(lists)] != NULL);
	return spans->heads[from.level][__builtin_ctz(lists)];
}

/* --- extents and their bits --- */

static size_t n_words(size_t n)
{
	return (n + 63) / 64;
}

size_t hoist__extent_bits_bytes(size_t n)
{
	return (n_words(n) + n_words(n_words(n))) * sizeof(uint64_t);
}

static size_t index_of(const struct hoist__extent *extent, uintptr_t address)
{
	return (address - extent->base) >> HOIST__GRANULE_SHIFT;
}

static void mark_start(struct hoist__extent *extent, uintptr_t address)
{
	size_t i = index_of(extent, address);
	extent->starts[i / 64] |= UINT64_C(1) << (i % 64);
	extent->groups[i / 4096] |= UINT64_C(1) << (i / 64 % 64);
}

static void unmark_start(struct hoist__extent *extent, uintptr_t address)
{
	size_t i = index_of(extent, address);
	extent->starts[i / 64] &= ~(UINT64_C(1) << (i % 64));
	if (extent->starts[i / 64] == 0)
		extent->groups[i / 4096] &= ~(UINT64_C(1) << (i / 64 % 64));
}

/* Returns: the highest bit of @word at or below @i; -1 if none. */
static int bit_below(uint64_t word, unsigned i)
{
	word &= UINT64_MAX >> (63 - i);
	return word == 0 ? -1 : 63 - __builtin_clzll(word);
}

struct hoist__granule *hoist__spans_around(const struct hoist__extent *extent, uintptr_t address)
{
	size_t i = index_of(extent, address);
	size_t word = i / 64;
	int bit = bit_below(extent->starts[word], (unsigned)(i % 64));
	HOIST__ASSERT(i < extent->n && (extent->starts[0] & 1) != 0);
	if (bit < 0) {
		/* The first granule of the extent is a start, so the search finds one. */
		size_t group = word / 64;
		int in_group = word % 64 == 0 ? -1
					      : bit_below(extent->groups[group],
							  (unsigned)(word % 64) - 1);
		while (in_group < 0)
			in_group = bit_below(extent->groups[--group], 63);
		word = group * 64 + (unsigned)in_group;
		bit = bit_below(extent->starts[word], 63);
	}
	return hoist__granule_at(extent->base, word * 64 + (unsigned)bit);
}

size_t hoist__span_bytes_in(const struct hoist__extent *extent,
			    const struct hoist__granule *granule)
{
	size_t bytes = (size_t)granule->n << HOIST__GRANULE_SHIFT;
	size_t left = extent->base + extent->bytes - granule->address;
	return bytes < left ? bytes : left;
}

size_t hoist__span_bytes(const struct hoist__granule *granule)
{
	return hoist__span_bytes_in(atomic_load_explicit(&granule->extent, memory_order_relaxed),
				    granule);
}

static void set_empty(struct hoist__spans *spans, struct hoist__extent *extent, bool empty)
{
	HOIST__ASSERT(extent->empty != empty);
	extent->empty = empty;
	if (empty) {
		if (extent->keep)
			hoist__list_push_front(&spans->empty, &extent->link);
		spans->empty_bytes += extent->bytes;
	} else {
		HOIST__ASSERT(extent->keep != hoist__list_empty(&extent->link));
		HOIST__ASSERT(spans->empty_bytes >= extent->bytes);
		hoist__list_remove(&extent->link);
		spans->empty_bytes -= extent->bytes;
	}
}

void hoist__spans_init(struct hoist__spans *spans)
{
	hoist__list_init(&spans->empty);
}

/* --- spans --- */

static void make_span(struct hoist__extent *extent, uintptr_t address, size_t n, size_t n_before)
{
	struct hoist__granule *span = hoist__granule_of(address);
	HOIST__ASSERT(n != 0 && index_of(extent, address) + n <= extent->n);
	HOIST__ASSERT(n_before <= index_of(extent, address));
	HOIST__ASSERT(atomic_load_explicit(&span->extent, memory_order_relaxed) == extent);
	span->address = address;
	span->n = (uint32_t)n;
	span->n_before = (uint32_t)n_before;
	mark_start(extent, address);
}

/* Returns: the span behind @span; NULL at the extent's end. */
static struct hoist__granule *span_after(const struct hoist__extent *extent,
					 const struct hoist__granule *span)
{
	size_t end = index_of(extent, span->address) + span->n;
	HOIST__ASSERT(end <= extent->n);
	return end == extent->n ? NULL : hoist__granule_at(extent->base, end);
}

/* Returns: the span before @span; NULL at the extent's start. */
static struct hoist__granule *span_before(const struct hoist__granule *span)
{
	if (span->n_before == 0)
		return NULL;
	return hoist__granule_of(span->address -
				 ((uintptr_t)span->n_before << HOIST__GRANULE_SHIFT));
}

static void tell_next(const struct hoist__extent *extent, const struct hoist__granule *span)
{
	struct hoist__granule *next = span_after(extent, span);
	if (next != NULL)
		next->n_before = span->n;
}

void hoist__spans_add(struct hoist__spans *spans, struct hoist__extent *extent)
{
	HOIST__ASSERT(extent->base % HOIST__GRANULE_BYTES == 0 && extent->n != 0);
	HOIST__ASSERT((extent->bytes - 1) >> HOIST__GRANULE_SHIFT == extent->n - 1);
	HOIST__ASSERT(hoist__granule_is_of(hoist__granule_of(extent->base), extent->owner));
	extent->starts = extent->bits;
	extent->groups = extent->bits + n_words(extent->n);
	hoist__list_init(&extent->link);
	make_span(extent, extent->base, extent->n, 0);
	hoist__granule_of(extent->base)->kind = HOIST__SPAN_EMPTY;
	spans->free_granules += extent->n;
	set_empty(spans, extent, true);
}

void hoist__spans_remove(struct hoist__spans *spans, struct hoist__extent *extent)
{
	assert(extent->empty);
	HOIST__ASSERT(hoist__granule_of(extent->base)->n == extent->n);
	HOIST__ASSERT(spans->free_granules >= extent->n);
	set_empty(spans, extent, false);
	spans->free_granules -= extent->n;
	hoist__granule_of(extent->base)->kind = HOIST__SPAN_NONE;
}

struct hoist__extent *hoist__spans_largest_empty(const struct hoist__spans *spans)
{
	struct hoist__extent *largest = NULL;
	for (struct hoist__list *link = spans->empty.next; link != &spans->empty;
	     link = link->next) {
		struct hoist__extent *extent =
			HOIST__CONTAINER_OF(link, struct hoist__extent, link);
		if (largest == NULL || extent->n > largest->n)
			largest = extent;
	}
	return largest;
}

/* Returns: where a span of @want would start in the free @span; 0 if it does not fit. */
static uintptr_t fit(const struct hoist__granule *span, const struct hoist__want *want)
{
	HOIST__ASSERT(want->n != 0 && want->bytes <= want->n << HOIST__GRANULE_SHIFT);
	HOIST__ASSERT(want->align <= HOIST__SPAN_LISTS && hoist__is_power_of_two(want->align));
	uintptr_t start =
		hoist__round_up(span->address, (uint64_t)want->align << HOIST__GRANULE_SHIFT);
	size_t n = ((start - span->address) >> HOIST__GRANULE_SHIFT) + want->n;
	if (n != span->n)
		return n < span->n ? start : 0;
	/* The wanted span would reach the end of @span, which may be the end of the extent, where
	 * the last granule need not be whole. */
	const struct hoist__extent *extent =
		atomic_load_explicit(&span->extent, memory_order_relaxed);
	return want->bytes <= extent->base + extent->bytes - start ? start : 0;
}

/* Frees the first @n granules of @span, which is out of the index.  Returns: the rest of the
 * span. */
static struct hoist__granule *cut_front(struct hoist__spans *spans, struct hoist__extent *extent,
					struct hoist__granule *span, size_t n)
{
	make_span(extent, span->address + (n << HOIST__GRANULE_SHIFT), span->n - n, n);
	span->n = (uint32_t)n;
	index_insert(spans, span);
	return hoist__granule_at(span->address, n);
}

static void cut_back(struct hoist__spans *spans, struct hoist__extent *extent,
		     struct hoist__granule *span, size_t n)
{
	make_span(extent, span->address + (n << HOIST__GRANULE_SHIFT), span->n - n, n);
	span->n = (uint32_t)n;
	struct hoist__granule *rest = hoist__granule_at(span->address, n);
	tell_next(extent, rest);
	index_insert(spans, rest);
}

/* Cuts the wanted span out of @span, from @start on.  Pre: @span is out of the index, and @start
 * lies in it. */
static struct hoist__granule *carve(struct hoist__spans *spans, struct hoist__extent *extent,
				    struct hoist__granule *span, uintptr_t start,
				    const struct hoist__want *want)
{
	HOIST__ASSERT(start >= span->address && start % HOIST__GRANULE_BYTES == 0);
	HOIST__ASSERT(want->kind == HOIST__SPAN_BLOCK || want->kind == HOIST__SPAN_SLAB);
	if (start != span->address)
		span = cut_front(spans, extent, span,
				 (start - span->address) >> HOIST__GRANULE_SHIFT);
	if (span->n != want->n)
		cut_back(spans, extent, span, want->n);
	else
		tell_next(extent, span);
	HOIST__ASSERT(span->n == want->n && spans->free_granules >= span->n);
	span->kind = want->kind;
	spans->free_granules -= span->n;
	return span;
}

/* Finds the best span of the index.  *start is where the wanted span begins in it. */
static struct hoist__granule *find(const struct hoist__spans *spans, const struct hoist__want *want,
				   uintptr_t *start)
{
	struct place at = place_of(want->n);
	struct hoist__granule *span = spans->heads[at.level][at.list];
	for (int i = 0; span != NULL && i < NEAR_FITS; span = span->next, i++)
		if ((*start = fit(span, want)) != 0)
			return span;
	/* All spans of the next list up are large enough.  For aligned ones that is the list of a
	 * size that includes the cost of alignment.  A span fails only if it would end in the cut
	 * granule of an extent. */
	size_t sure = want->n + want->align - 1;
	struct place up = place_of(sure);
	if (sure >= HOIST__SPAN_LISTS || want->align == 1)
		up = next_up(up);
	span = index_from(spans, up);
	if (span == NULL || (*start = fit(span, want)) != 0)
		return span;
	span = index_from(spans, next_up(up));
	return span != NULL && (*start = fit(span, want)) != 0 ? span : NULL;
}

struct hoist__granule *hoist__spans_take_from(struct hoist__spans *spans,
					      struct hoist__extent *extent,
					      const struct hoist__want *want, bool whole)
{
	struct hoist__granule *span = hoist__granule_of(extent->base);
	HOIST__ASSERT(extent->empty && span->kind == HOIST__SPAN_EMPTY && span->n == extent->n);
	const struct hoist__want all = {span->n, 1, want->kind, extent->bytes};
	uintptr_t start = fit(span, want);
	if (start == 0 || (whole && start != extent->base))
		return NULL;
	set_empty(spans, extent, false);
	return carve(spans, extent, span, start, whole ? &all : want);
}

/* Returns: the smallest empty extent that fits and has at most @most bytes. */
static struct hoist__extent *best_empty(const struct hoist__spans *spans,
					const struct hoist__want *want, size_t most, bool whole)
{
	struct hoist__extent *best = NULL;
	for (struct hoist__list *link = spans->empty.next; link != &spans->empty;
	     link = link->next) {
		struct hoist__extent *extent =
			HOIST__CONTAINER_OF(link, struct hoist__extent, link);
		if (extent->n < want->n || extent->bytes > most ||
		    (best != NULL && extent->n >= best->n))
			continue;
		uintptr_t start = fit(hoist__granule_of(extent->base), want);
		if (start != 0 && (!whole || start == extent->base))
			best = extent;
	}
	return best;
}

struct hoist__granule *hoist__spans_take(struct hoist__spans *spans, const struct hoist__want *want,
					 size_t most_empty)
{
	uintptr_t start;
	struct hoist__granule *span = find(spans, want, &start);
	if (span != NULL) {
		struct hoist__extent *extent =
			atomic_load_explicit(&span->extent, memory_order_relaxed);
		/* The next writes go to the start of the rest, and to the span behind. */
		__builtin_prefetch(hoist__granule_of(start + (want->n << HOIST__GRANULE_SHIFT)), 1);
		__builtin_prefetch(span_after(extent, span), 1);
		index_remove(spans, span);
		return carve(spans, extent, span, start, want);
	}
	struct hoist__extent *extent = best_empty(spans, want, most_empty, false);
	return extent == NULL ? NULL : hoist__spans_take_from(spans, extent, want, false);
}

struct hoist__granule *hoist__spans_take_whole(struct hoist__spans *spans,
					       const struct hoist__want *want)
{
	size_t bytes = want->n << HOIST__GRANULE_SHIFT;
	struct hoist__extent *extent = best_empty(spans, want, bytes + bytes / 8, true);
	return extent == NULL ? NULL : hoist__spans_take_from(spans, extent, want, true);
}

static void fetch_links(const struct hoist__granule *span)
{
	__builtin_prefetch(span->next, 1);
	__builtin_prefetch(span->prev, 1);
}

/* Merging keeps the invariant that no two neighbours are free, so at most one span on each side is
 * merged. */
struct hoist__extent *hoist__spans_release(struct hoist__spans *spans, struct hoist__granule *span)
{
	struct hoist__extent *extent = atomic_load_explicit(&span->extent, memory_order_relaxed);
	HOIST__ASSERT(span->kind == HOIST__SPAN_BLOCK || span->kind == HOIST__SPAN_SLAB);
	HOIST__ASSERT(!extent->empty && hoist__spans_around(extent, span->address) == span);
	spans->free_granules += span->n;
	/* Among many spans the records of both neighbours are cold, so both are prefetched at
	 * once. */
	struct hoist__granule *next = span_after(extent, span);
	struct hoist__granule *prev = span_before(span);
	HOIST__ASSERT(next == NULL || next->n_before == span->n);
	HOIST__ASSERT(prev == NULL || prev->n == span->n_before);
	__builtin_prefetch(prev, 1);
	if (next != NULL && next->kind == HOIST__SPAN_FREE)
		fetch_links(next);
	if (prev != NULL && prev->kind == HOIST__SPAN_FREE)
		fetch_links(prev);
	if (next != NULL && next->kind == HOIST__SPAN_FREE) {
		index_remove(spans, next);
		next->kind = HOIST__SPAN_NONE;
		unmark_start(extent, next->address);
		span->n += next->n;
	}
	if (prev != NULL && prev->kind == HOIST__SPAN_FREE) {
		index_remove(spans, prev);
		span->kind = HOIST__SPAN_NONE;
		unmark_start(extent, span->address);
		prev->n += span->n;
		span = prev;
	}
	if (span->n == extent->n) {
		span->kind = HOIST__SPAN_EMPTY;
		set_empty(spans, extent, true);
		return extent;
	}
	tell_next(extent, span);
	index_insert(spans, span);
	return NULL;
}

size_t hoist__spans_largest(const struct hoist__spans *spans)
{
	struct hoist__extent *empty = hoist__spans_largest_empty(spans);
	size_t largest = empty == NULL ? 0 : empty->n;
	if (spans->levels == 0)
		return largest;
	unsigned level = 31 - (unsigned)__builtin_clz(spans->levels);
	unsigned list = 31 - (unsigned)__builtin_clz(spans->lists[level]);
	for (const struct hoist__granule *span = spans->heads[level][list]; span != NULL;
	     span = span->next) {
		if (span->n > largest)
			largest = span->n;
		if (level == 0)
			break; /* all spans of the list have one size */
	}
	return largest;
}

/* --- checks --- */

void hoist__spans_check(const struct hoist__spans *spans, const struct hoist__extent *extent)
{
	size_t before = 0;
	bool after_free = false;
	size_t i = 0;
	while (i < extent->n) {
		const struct hoist__granule *span = hoist__granule_at(extent->base, i);
		assert(span->kind != HOIST__SPAN_NONE);
		assert(span->n != 0 && span->n <= extent->n - i);
		assert(span->n_before == before);
		assert(span->address == extent->base + (i << HOIST__GRANULE_SHIFT));
		bool is_free = span->kind == HOIST__SPAN_FREE;
		assert(!(is_free && after_free));
		assert(!is_free || listed(spans, span));
		assert((span->kind == HOIST__SPAN_EMPTY) == extent->empty);
		uintptr_t last = span->address + (((uintptr_t)span->n - 1) << HOIST__GRANULE_SHIFT);
		assert(hoist__spans_around(extent, last) == span);
		assert(hoist__spans_around(extent, span->address) == span);
		after_free = is_free;
		before = span->n;
		i += span->n;
	}
}
