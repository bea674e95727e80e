/* SPDX-License-Identifier: MIT */
/* lib/buffer/patchwork.c - anonymous memory of one region, with maps of files over parts of it.
 * The contract is in lib/buffer/patchwork.h. */
#include "config.h"

#include "lib/buffer/patchwork.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "alloc/annotate.h"
#include "alloc/map.h"
#include "alloc/watch.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"

struct patch {
	uintptr_t begin;
	uintptr_t end;
};

struct patchwork {
	struct hoist__region *region;
	struct patch *patches; /* ascending; complete before pages go back */
	size_t n_patches;
	size_t room;
	atomic_bool discarded; /* pages have gone back */
};

/* Tools that were told of bytes that went back must not keep that for the next mapping here. */
static void release(void *context)
{
	struct patchwork *own = context;
	if (atomic_load(&own->discarded) && hoist__watch_annotates())
		hoist__annotate_shown(own->region->base, own->region->bytes, true);
	hoist__region_destroy(own->region);
	free(own->patches);
	free(own);
}

static void keep_small(uintptr_t begin, uintptr_t end)
{
	if (begin < end)
		(void)madvise((void *)begin, end - begin, MADV_NOHUGEPAGE);
}

/* Keeps the kernel from making huge pages of anonymous memory, which would fill the holes again.
 * Patches are left alone: there the advice would keep huge pages of the page cache from being
 * mapped whole. */
static void keep_rest_small(const struct patchwork *own)
{
	uintptr_t at = own->region->base;
	for (size_t p = 0; p < own->n_patches; p++) {
		keep_small(at, own->patches[p].begin);
		at = own->patches[p].end;
	}
	keep_small(at, own->region->base + own->region->bytes);
}

/* Memory that is never used again needs no more than MADV_DONTNEED: see the header. */
static int discard(void *context, uintptr_t address, size_t bytes)
{
	struct patchwork *own = context;
	if (!atomic_exchange(&own->discarded, true) && own->region->pages == HOIST__PAGES_THP)
		keep_rest_small(own);
	int err = hoist__region_discard(own->region, address, bytes);
	if (err == 0 && hoist__watch_annotates())
		hoist__annotate_hidden(address, bytes);
	return err;
}

int hoist__patchwork_create(hoist_device *device, size_t bytes, size_t skew,
			    struct hoist__storage **ret)
{
	const struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST,
		.bytes = bytes + skew,
		.unpopulated = true,
	};
	HOIST__ASSERT(skew < HOIST__HUGE_PAGE_BYTES && skew % hoist__page_bytes() == 0);
	struct patchwork *made = calloc(1, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a load's memory", sizeof *made);
	int err = hoist__region_create(&options, &made->region);
	if (err == 0) {
		const struct hoist__foreign foreign = {
			.device = device,
			.address = made->region->base + skew,
			.bytes = bytes,
			.release = release,
			.discard = discard,
			.page_bytes = hoist__page_bytes(),
			.context = made,
		};
		HOIST__ASSERT(made->region->base % HOIST__HUGE_PAGE_BYTES == 0);
		err = hoist__storage_wrap(&foreign, ret);
	}
	if (err < 0) {
		hoist__region_destroy(made->region);
		free(made);
	}
	return err;
}

/* Some refusals come after the kernel has unmapped what was there: the hole is filled at once,
 * before another mapping takes the place.  If there is no hole, NOREPLACE fails, which is as good.
 */
static void fill_hole(void *address, size_t bytes)
{
	(void)mmap(address, bytes, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

static int add_patch(struct patchwork *own, uintptr_t begin, uintptr_t end)
{
	if (own->n_patches == own->room) {
		size_t room = own->room * 2 + 16;
		struct patch *grown = realloc(own->patches, room * sizeof *grown);
		if (grown == NULL)
			return hoist__fail_nomem("a load's memory", room * sizeof *grown);
		own->patches = grown;
		own->room = room;
	}
	HOIST__ASSERT(own->n_patches == 0 || own->patches[own->n_patches - 1].end <= begin);
	own->patches[own->n_patches++] = (struct patch){begin, end};
	return 0;
}

/* NORESERVE: hardly any page of a map is ever copied. */
int hoist__patchwork_map(struct hoist__storage *storage, size_t at, const struct hoist__file *file,
			 uint64_t offset, size_t bytes)
{
	void *address = (void *)(hoist__storage_address(storage) + at);
	HOIST__ASSERT(at % hoist__page_bytes() == 0 && offset % hoist__page_bytes() == 0);
	HOIST__ASSERT(bytes != 0 && at + bytes <= hoist__storage_bytes(storage));
	struct patchwork *own = hoist__storage_context(storage);
	uintptr_t end = (uintptr_t)address + hoist__round_up(bytes, hoist__page_bytes());
	int err = add_patch(own, (uintptr_t)address, end);
	if (err < 0)
		return err;
	if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
		 file->fd, (off_t)offset) != MAP_FAILED)
		return 0;
	err = -errno;
	own->n_patches--;
	fill_hole(address, end - (uintptr_t)address);
	return hoist__fail_errno(err, "mapping %zu bytes at %llu of %s", bytes,
				 (unsigned long long)offset, file->path);
}
