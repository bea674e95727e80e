/* SPDX-License-Identifier: MIT */
/* alloc/region.c - creates and destroys regions of all kinds.
 * The contract is in alloc/region.h. */
#include "config.h"

#include "alloc/region.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "alloc/annotate.h"
#include "alloc/recipe.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/figure.h"
#include "base/list.h"
#include "base/log.h"

#define MAX_BYTES ((size_t)1 << 47) /* a process's address space */

static bool of_device(const struct hoist__region_options *options)
{
	return options->kind == HOIST__MEMORY_DEVICE || options->kind == HOIST__MEMORY_MANAGED;
}

/* --- memory from a driver or a source --- */

static int take_managed(const struct hoist__region_options *options, size_t bytes, uintptr_t *ret)
{
	struct hoist__failure cause;
	uintptr_t taken;
	int err = hoist__dev_managed_alloc(options->dev, bytes, &taken);
	if (err < 0)
		return err;
	err = hoist__dev_managed_prefer(options->dev, taken, bytes, options->prefer,
					options->prefer_node);
	if (err == 0) {
		*ret = taken;
		return 0;
	}
	/* Freeing may set a text of its own. */
	hoist__failure_keep(&cause);
	if (hoist__dev_mem_free(options->dev, taken, bytes) < 0)
		hoist__log(alloc, "freeing managed memory: %s", hoist__error_text());
	return hoist__fail_again(err, &cause);
}

static int take(struct hoist__region_storage *storage, size_t bytes)
{
	const struct hoist__region_options *options = &storage->region.options;
	const struct hoist__source *source = options->source;
	uint64_t start = hoist__now_ns();
	int err;
	HOIST__ASSERT(storage->taken_bytes == 0);
	if (source != NULL)
		err = source->acquire(source->context, bytes, HOIST__REGION_ALIGN, &storage->taken);
	else if (options->kind == HOIST__MEMORY_MANAGED)
		err = take_managed(options, bytes, &storage->taken);
	else
		err = hoist__dev_mem_alloc(options->dev, bytes, &storage->taken);
	hoist__called(options->calls, HOIST__CALL_ALLOC, start);
	if (err == 0)
		storage->taken_bytes = bytes;
	return err;
}

/* A failure is only logged: the region is gone for the caller in any case. */
static void give_back(struct hoist__region_storage *storage)
{
	const struct hoist__region_options *options = &storage->region.options;
	const struct hoist__source *source = options->source;
	uint64_t start = hoist__now_ns();
	if (source != NULL)
		source->release(source->context, storage->taken, storage->taken_bytes);
	else if (hoist__dev_mem_free(options->dev, storage->taken, storage->taken_bytes) != 0)
		hoist__log(alloc, "freeing device memory: %s", hoist__error_text());
	hoist__called(options->calls, HOIST__CALL_ALLOC, start);
	storage->taken_bytes = 0;
}

/* Drivers align large allocations to 2 MiB, which no manual promises.  An allocation that is not
 * aligned to our granule is made again with a granule more, and its aligned middle is used. */
static int take_aligned(struct hoist__region_storage *storage)
{
	struct hoist__region *region = &storage->region;
	region->bytes = hoist__region_bound(&region->options);
	int err = take(storage, region->bytes);
	if (err == 0 && storage->taken % HOIST__REGION_ALIGN != 0) {
		give_back(storage);
		hoist__region_note(region, HOIST__STEP_RESERVE,
				   "not aligned to 64 KiB: as much more was taken");
		err = take(storage, region->bytes + HOIST__REGION_ALIGN);
	}
	HOIST__ASSERT(err != 0 || storage->taken_bytes >= region->bytes);
	region->base = hoist__round_up(storage->taken, HOIST__REGION_ALIGN);
	return err;
}

static int create_taken(struct hoist__region_storage *storage)
{
	struct hoist__region *region = &storage->region;
	uint64_t start = hoist__now_ns();
	int err = take_aligned(storage);
	region->step_ns[HOIST__STEP_RESERVE] = hoist__now_ns() - start;
	region->piece_bytes = region->bytes;
	if (err != 0 || of_device(&region->options))
		return err;
	err = hoist__recipe_adopt(storage);
	if (err != 0)
		give_back(storage);
	return err;
}

static int create_given(struct hoist__region_storage *storage)
{
	struct hoist__region *region = &storage->region;
	region->base = region->options.given;
	region->bytes = region->options.bytes;
	region->piece_bytes = region->bytes;
	return of_device(&region->options) ? 0 : hoist__recipe_adopt(storage);
}

/* --- creating, destroying --- */

static int check_given(const struct hoist__region_options *options)
{
	if (options->given % HOIST__REGION_ALIGN != 0 || options->bytes % HOIST__REGION_ALIGN != 0)
		return hoist__fail(
			-EINVAL, "a region of %zu bytes at %#zx: both must be multiples of 64 KiB",
			options->bytes, (size_t)options->given);
	if (options->source != NULL || options->given + options->bytes < options->given)
		return hoist__fail(-EINVAL, "a region of %zu bytes at %#zx: %s", options->bytes,
				   (size_t)options->given,
				   options->source != NULL ? "and from a source"
							   : "ends behind all addresses");
	return 0;
}

static int check_options(const struct hoist__region_options *options)
{
	bool others = options->source != NULL || options->given != 0;
	if (options->bytes == 0)
		return hoist__fail(-EINVAL, "a region of 0 bytes");
	if (of_device(options) && options->dev == NULL)
		return hoist__fail(-EINVAL, "device memory without a device");
	if (options->unpopulated && (options->kind != HOIST__MEMORY_HOST || others))
		return hoist__fail(-EINVAL,
				   "only pageable host memory of our own can be unpopulated");
	if (options->bytes > MAX_BYTES)
		return hoist__fail(of_device(options) ? -ENOSPC : -ENOMEM,
				   "a region of %s exceeds every address space",
				   hoist__figure(options->bytes).text);
	return options->given != 0 ? check_given(options) : 0;
}

size_t hoist__region_bound(const struct hoist__region_options *options)
{
	if (of_device(options) || options->source != NULL || options->given != 0)
		return hoist__round_up(options->bytes, HOIST__REGION_ALIGN);
	return hoist__round_up(options->bytes,
			       options->hugetlb ? HOIST__HUGE_PAGE_BYTES : hoist__page_bytes());
}

static int create(struct hoist__region_storage *storage)
{
	const struct hoist__region_options *options = &storage->region.options;
	if (options->given != 0)
		return create_given(storage);
	if (of_device(options) || options->source != NULL)
		return create_taken(storage);
	return hoist__recipe_make(storage);
}

int hoist__region_create(const struct hoist__region_options *options, struct hoist__region **ret)
{
	int err = check_options(options);
	if (err != 0)
		return err;
	struct hoist__region_storage *storage = calloc(1, sizeof *storage);
	if (storage == NULL)
		return hoist__fail_nomem("region", sizeof *storage);
	struct hoist__region *region = &storage->region;
	storage->generation = hoist__fork_now();
	region->options = *options;
	region->node = -1;
	err = create(storage);
	if (err != 0) {
		free(storage);
		return err;
	}
	for (int step = 0; step < HOIST__N_STEPS; step++)
		if (region->step_note[step][0] != '\0')
			hoist__log(alloc, "region of %zu bytes: %s", region->bytes,
				   region->step_note[step]);
	HOIST__ASSERT(region->base % HOIST__REGION_ALIGN == 0 && region->bytes != 0);
	HOIST__ASSERT(region->bytes <= hoist__region_bound(options));
	HOIST__ASSERT(region->piece_bytes <= region->bytes && region->piece_bytes != 0);
	*ret = region;
	return 0;
}

/* Huge pages that keep_small() has made small, of all regions.  Each adds up to two mappings to the
 * process, which may have 65,530. */
static atomic_uint n_small;
#define MOST_SMALL 2000u

void hoist__region_destroy(struct hoist__region *region)
{
	if (region == NULL)
		return;
	struct hoist__region_storage *storage =
		HOIST__CONTAINER_OF(region, struct hoist__region_storage, region);
	atomic_fetch_sub(&n_small, atomic_load(&region->n_small));
	hoist__recipe_undo(storage);
	if (storage->taken_bytes != 0)
		give_back(storage);
	free(storage);
}

void hoist__region_forked(struct hoist__region *region)
{
	const struct hoist__region_storage *storage =
		HOIST__CONTAINER_OF(region, struct hoist__region_storage, region);
	if (storage->not_in_children)
		hoist__annotate_gone(region->base, region->bytes);
}

/* Keeps the kernel from making huge pages in the whole region. */
static void keep_all_small(struct hoist__region *region)
{
	if (!atomic_exchange(&region->all_small, true))
		(void)madvise((void *)region->base, region->bytes, MADV_NOHUGEPAGE);
}

/* Keeps the kernel from making a huge page of the one around @edge, of which a part goes back. */
static void keep_edge_small(struct hoist__region *region, uintptr_t edge)
{
	uintptr_t end = region->base + region->bytes;
	uintptr_t page = hoist__round_down(edge, HOIST__HUGE_PAGE_BYTES);
	if (edge == page || edge == end || atomic_load(&region->all_small) ||
	    atomic_exchange(&region->last_small, page) == page)
		return;
	if (atomic_fetch_add(&n_small, 1) >= MOST_SMALL) {
		atomic_fetch_sub(&n_small, 1);
		keep_all_small(region);
		return;
	}
	atomic_fetch_add(&region->n_small, 1);
	uintptr_t from = hoist__max_u64(page, region->base);
	uintptr_t to = hoist__min_u64(page + HOIST__HUGE_PAGE_BYTES, end);
	(void)madvise((void *)from, to - from, MADV_NOHUGEPAGE);
}

void hoist__region_keep_small(struct hoist__region *region, uintptr_t address, size_t bytes)
{
	if (region->pages != HOIST__PAGES_THP)
		return;
	keep_edge_small(region, address);
	keep_edge_small(region, address + bytes);
}

/* MADV_DONTNEED, as MADV_FREE keeps the pages until memory is short: until then they would count
 * for the process and its control group.  Huge pages that are whole stay what they are under
 * MADV_NOHUGEPAGE, which is only advice here. */
int hoist__region_discard(struct hoist__region *region, uintptr_t address, size_t bytes)
{
	uint64_t start = hoist__now_ns();
	HOIST__ASSERT(region->options.kind == HOIST__MEMORY_HOST && !region->pinned);
	HOIST__ASSERT(address >= region->base && bytes <= region->bytes &&
		      address - region->base <= region->bytes - bytes);
	int err = madvise((void *)address, bytes, MADV_DONTNEED) == 0 ? 0 : -errno;
	hoist__called(region->options.calls, HOIST__CALL_MAP, start);
	return err == 0 ? 0
			: hoist__fail_errno(err, "giving %s of a region back",
					    hoist__figure(bytes).text);
}
