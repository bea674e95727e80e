/* SPDX-License-Identifier: MIT */
/* alloc/granule.c - makes the page map, and takes and releases its records.
 * The contract is in alloc/granule.h. */
#include "config.h"

#include "alloc/granule.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/spans.h"
#include "base/assert.h"
#include "base/error.h"
#include "device/device.h"

_Static_assert(sizeof(struct hoist__granule) == 64, "one cache line");

struct hoist__granule *_Atomic hoist__granule_root[(size_t)1 << HOIST__ROOT_BITS];

/* Asks for huge pages for the records of a large region: else a walk through many blocks misses the
 * TLB at each.  A small region would waste most of a huge page. */
static void want_huge_pages(uintptr_t base, size_t n)
{
	if (n * sizeof(struct hoist__granule) < HOIST__LEAF_HUGE_PAGE_BYTES / 2)
		return;
	size_t page_granules = HOIST__LEAF_HUGE_PAGE_BYTES / sizeof(struct hoist__granule);
	for (size_t i = 0; i < n; i += page_granules) {
		uintptr_t record = (uintptr_t)hoist__granule_at(base, i);
		(void)madvise((void *)(record & -HOIST__LEAF_HUGE_PAGE_BYTES),
			      HOIST__LEAF_HUGE_PAGE_BYTES, MADV_HUGEPAGE);
	}
}

/* If two threads make a leaf at once, the later one discards its leaf. */
static int need_leaf(uintptr_t address)
{
	size_t root = address >> (HOIST__GRANULE_SHIFT + HOIST__LEAF_BITS);
	struct hoist__granule *known = atomic_load(&hoist__granule_root[root]);
	if (known != NULL)
		return 0;
	const size_t bytes = HOIST__LEAF_MAPPED_BYTES;
	char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (start == MAP_FAILED)
		return hoist__fail_nomem("a part of the page map", HOIST__LEAF_BYTES);
	char *made = start + (-(uintptr_t)start & (HOIST__LEAF_HUGE_PAGE_BYTES - 1));
	HOIST__ASSERT(made + HOIST__LEAF_BYTES + HOIST__LEAF_COUNTS_BYTES <= start + bytes);
	if (!atomic_compare_exchange_strong(&hoist__granule_root[root], &known, (void *)made))
		(void)munmap(start, bytes);
	return 0;
}

/* --- pages of records --- */

/* Guards the counts: no thread gives a page back while another takes a record in it. */
static pthread_mutex_t pages_lock = PTHREAD_MUTEX_INITIALIZER;

void hoist__granules_lock(void)
{
	pthread_mutex_lock(&pages_lock);
}

void hoist__granules_unlock(void)
{
	pthread_mutex_unlock(&pages_lock);
}

/* Returns: the count of records with an extent, or soon to have one, in the page of the record at
 * @address.  The counts of a leaf lie behind its records. */
static uint16_t *count_at(uintptr_t address, size_t page_records)
{
	size_t root = address >> (HOIST__GRANULE_SHIFT + HOIST__LEAF_BITS);
	struct hoist__granule *leaf = atomic_load(&hoist__granule_root[root]);
	HOIST__ASSERT(hoist__mutex_held(&pages_lock) && leaf != NULL);
	size_t index = (address >> HOIST__GRANULE_SHIFT) & (HOIST__LEAF_GRANULES - 1);
	return (uint16_t *)(void *)(leaf + HOIST__LEAF_GRANULES) + index / page_records;
}

/* Returns: how many records from @base on, at most @n, lie in one page, or in a larger run of
 * @page_records, a power of two. */
static size_t in_page(uintptr_t base, size_t n, size_t page_records)
{
	size_t left = page_records - ((base >> HOIST__GRANULE_SHIFT) & (page_records - 1));
	HOIST__ASSERT((page_records & (page_records - 1)) == 0 && n != 0);
	return left < n ? left : n;
}

static size_t records_in_a_page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE) / sizeof(struct hoist__granule);
}

/* Counts @n records in one page, before the first of them is taken. */
static void count_records(uintptr_t base, size_t n, size_t page_records)
{
	HOIST__ASSERT(in_page(base, n, page_records) == n);
	pthread_mutex_lock(&pages_lock);
	uint16_t *count = count_at(base, page_records);
	HOIST__ASSERT(n <= page_records && *count + n <= UINT16_MAX);
	*count = (uint16_t)(*count + n);
	pthread_mutex_unlock(&pages_lock);
}

static void give_back(uintptr_t start, uintptr_t end)
{
	if (start != end)
		(void)madvise((void *)start, end - start, MADV_DONTNEED);
}

/* Uncounts @n records of one leaf, which have no extent any more.  Gives back pages without a
 * counted record, which read as zero from then on.  Adjacent pages go back in one call. */
static void uncount_records(uintptr_t base, size_t n, size_t page_records)
{
	const size_t page_bytes = page_records * sizeof(struct hoist__granule);
	uintptr_t start = 0;
	uintptr_t end = 0;
	pthread_mutex_lock(&pages_lock);
	while (n != 0) {
		size_t n_here = in_page(base, n, page_records);
		uint16_t *count = count_at(base, page_records);
		uintptr_t page = (uintptr_t)hoist__granule_at(base, 0) & -page_bytes;
		HOIST__ASSERT(*count >= n_here);
		*count = (uint16_t)(*count - n_here);
		if (*count == 0 && page != end) {
			give_back(start, end);
			start = page;
		}
		if (*count == 0)
			end = page + page_bytes;
		base += n_here << HOIST__GRANULE_SHIFT;
		n -= n_here;
	}
	give_back(start, end);
	pthread_mutex_unlock(&pages_lock);
}

/* Releases a part of the records at a time, so that other threads need not wait long for the
 * lock. */
void hoist__granules_release(uintptr_t base, size_t n)
{
	const size_t page_records = records_in_a_page();
	const size_t most = HOIST__LEAF_HUGE_PAGE_BYTES / sizeof(struct hoist__granule);
	while (n != 0) {
		size_t n_here = in_page(base, n, most);
		struct hoist__granule *first = hoist__granule_at(base, 0);
		for (size_t i = 0; i < n_here; i++) {
			HOIST__ASSERT(atomic_load(&first[i].extent) != NULL);
			HOIST__ASSERT(atomic_load(&first[i].slab) == NULL &&
				      atomic_load(&first[i].state) == 0);
			/* A region that its pool ends with has spans still. */
			first[i].kind = HOIST__SPAN_NONE;
			atomic_store_explicit(&first[i].owner, 0, memory_order_relaxed);
			atomic_store_explicit(&first[i].extent, NULL, memory_order_release);
		}
		uncount_records(base, n_here, page_records);
		base += n_here << HOIST__GRANULE_SHIFT;
		n -= n_here;
	}
}

/* --- taking --- */

bool hoist__extent_is_stale(const struct hoist__extent *extent)
{
	unsigned process = atomic_load(&extent->process);
	return process != 0 && process != hoist__fork_now();
}

static bool take_one(struct hoist__granule *granule, struct hoist__extent *extent)
{
	struct hoist__extent *known = NULL;
	/* Acquires what hoist__granules_release() of the region before, which may have been another
	 * pool's at the same address, has released. */
	if (atomic_compare_exchange_strong_explicit(&granule->extent, &known, extent,
						    memory_order_acq_rel, memory_order_acquire))
		return true;
	HOIST__ASSERT(known != NULL && known != extent);
	if (!hoist__extent_is_stale(known) ||
	    !atomic_compare_exchange_strong(&granule->extent, &known, extent))
		return false;
	/* The record may still name a slab or blocks that have ended.  (The record is counted twice
	 * now, so its page stays.) */
	atomic_store(&granule->slab, NULL);
	atomic_store(&granule->state, 0);
	granule->kind = HOIST__SPAN_NONE;
	return true;
}

/* Takes @n records, all on one page.  Returns: how many were taken before one that belongs to
 * another extent. */
static size_t take_some(uintptr_t base, size_t n, struct hoist__extent *extent)
{
	struct hoist__granule *first = hoist__granule_at(base, 0);
	for (size_t i = 0; i < n; i++) {
		if (!take_one(&first[i], extent))
			return i;
		HOIST__ASSERT(first[i].kind == HOIST__SPAN_NONE &&
			      atomic_load(&first[i].slab) == NULL);
		atomic_store_explicit(&first[i].owner, extent->owner, memory_order_release);
	}
	return n;
}

/* Records of a page are counted before the first is taken, so that the page stays.  If a record
 * belongs to another extent, everything taken so far is released. */
int hoist__granules_take(uintptr_t base, size_t n, struct hoist__extent *extent)
{
	HOIST__ASSERT(n != 0 && base % HOIST__GRANULE_BYTES == 0);
	uintptr_t last = base + ((n - 1) << HOIST__GRANULE_SHIFT);
	if (last < base || last >> HOIST__ADDRESS_BITS != 0)
		return hoist__fail(-ENOTSUP, "memory at %#zx: addresses above %d bits",
				   (size_t)base, HOIST__ADDRESS_BITS);
	const size_t leaf_span = HOIST__LEAF_GRANULES << HOIST__GRANULE_SHIFT;
	for (uintptr_t at = base; at <= last; at = (at | (leaf_span - 1)) + 1) {
		int err = need_leaf(at);
		if (err != 0)
			return err;
	}
	HOIST__ASSERT(hoist__granule_of(base) != NULL && hoist__granule_of(last) != NULL);
	want_huge_pages(base, n);
	const size_t page_records = records_in_a_page();
	for (size_t done = 0; done < n;) {
		uintptr_t at = base + (done << HOIST__GRANULE_SHIFT);
		size_t n_here = in_page(at, n - done, page_records);
		count_records(at, n_here, page_records);
		size_t n_taken = take_some(at, n_here, extent);
		done += n_taken;
		if (n_taken == n_here)
			continue;
		uncount_records(at, n_here - n_taken, page_records);
		hoist__granules_release(base, done);
		return hoist__fail(-EEXIST, "memory at %#zx is part of another resource already",
				   (size_t)base);
	}
	return 0;
}
