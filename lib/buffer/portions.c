/* SPDX-License-Identifier: MIT */
/* lib/buffer/portions.c - storages over ranges of one storage, and the pages that they give back.
 * The contract is in lib/buffer/portions.h. */
#include "config.h"

#include "lib/buffer/portions.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/lock-fork.h"
#include "base/log.h"
#include "lib/buffer/storage-private.h"
#include "lib/memory/memory.h"

/* A storage with the fields that its owner need not see. */
struct portion {
	struct hoist__storage storage; /* first: the storage's end frees the struct */
	struct hoist__storage *whole;  /* referenced */
	struct hoist__portion_range range;
	size_t page_bytes;
	bool listed; /* from here on: guarded by the lock, once the table is closed */
	struct portion *before;
	struct portion *behind;
};

_Static_assert(offsetof(struct portion, storage) == 0, "one pointer frees both");

struct slot {
	struct hoist__portion_range range;
	struct hoist__storage *_Atomic xstorage; /* NULL: not taken; else with a reference */
};

struct hoist__portions {
	struct hoist__storage *whole; /* referenced */
	size_t page_bytes;
	_Atomic size_t xnext; /* the slot behind the one that was taken last: often the next one */
	size_t n;
	struct slot slots[];
};

static struct hoist__lock lock;

HOIST__WATCH_FORKS(lock, alloc, "tensors of a load")

/* --- pages --- */

/* NULL: the storage's memory is of no pool. */
static struct hoist__pool *pool_of(const struct hoist__storage *storage)
{
	if (!hoist__storage_has_block(storage) || storage->memory->ops != &hoist__memory_pool_ops)
		return NULL;
	return atomic_load(&storage->memory->xpool);
}

static size_t page_bytes_of(const struct hoist__storage *storage)
{
	if (storage->discard != NULL)
		return storage->page_bytes;
	struct hoist__pool *pool = pool_of(storage);
	uintptr_t address = hoist__storage_address(storage);
	return pool != NULL && address != 0 ? hoist__pool_page_bytes(pool, address) : 0;
}

bool hoist__storage_can_shrink(const struct hoist__storage *storage)
{
	return page_bytes_of(storage) != 0;
}

/* Gives back the pages that lie in the gap, and have a byte of @of. */
static void give_back(const struct hoist__storage *whole, size_t page,
		      struct hoist__portion_range gap, struct hoist__portion_range of)
{
	uintptr_t base = hoist__storage_address(whole);
	uintptr_t begin = hoist__max_u64(hoist__round_up(base + gap.begin, page),
					 hoist__round_down(base + of.begin, page));
	uintptr_t end = hoist__min_u64(hoist__round_down(base + gap.end, page),
				       hoist__round_up(base + of.end, page));
	HOIST__ASSERT(gap.begin <= of.begin && of.end <= gap.end && gap.end <= whole->bytes);
	int err = 0;
	if (begin < end && whole->discard != NULL)
		err = whole->discard(whole->context, begin, end - begin);
	else if (begin < end)
		err = hoist__pool_discard(pool_of(whole), begin, end - begin);
	if (err < 0)
		hoist__log(alloc, "pages of dropped tensors are kept until the last one goes: %s",
			   hoist__error_text());
}

/* --- one portion --- */

/* Pre: the lock is held. */
static struct hoist__portion_range gap_around(const struct portion *portion)
{
	HOIST__ASSERT(portion->before == NULL || portion->before->behind == portion);
	HOIST__ASSERT(portion->behind == NULL || portion->behind->before == portion);
	return (struct hoist__portion_range){
		portion->before != NULL ? portion->before->range.end : 0,
		portion->behind != NULL ? portion->behind->range.begin : portion->whole->bytes,
	};
}

/* The last reference to the portion is gone, and so is the work with its bytes.  Two neighbours
 * that end at once have no page in common: the later one of the two gives it back. */
static void end(void *context)
{
	struct portion *portion = context;
	struct hoist__portion_range gap = {0, 0};
	hoist__lock(&lock);
	bool others = portion->before != NULL || portion->behind != NULL;
	if (portion->listed && others)
		gap = gap_around(portion);
	if (portion->before != NULL)
		portion->before->behind = portion->behind;
	if (portion->behind != NULL)
		portion->behind->before = portion->before;
	hoist__unlock(&lock);
	if (gap.end != 0)
		give_back(portion->whole, portion->page_bytes, gap, portion->range);
	hoist__storage_unref(portion->whole);
}

static int make(const struct hoist__portions *portions, const struct hoist__portion_range *range,
		struct hoist__storage **ret)
{
	struct hoist__storage *whole = portions->whole;
	struct portion *made = calloc(1, sizeof *made);
	if (made == NULL)
		return hoist__fail_nomem("a tensor's storage", sizeof *made);
	struct hoist__storage *storage = &made->storage;
	hoist__storage_init(storage, whole->device, range->end - range->begin);
	storage->kind = whole->kind;
	if (whole->memory != NULL)
		storage->memory = hoist_memory_ref(whole->memory);
	storage->release = end;
	storage->context = made;
	storage->place.address = hoist__storage_address(whole) + range->begin;
	storage->place.device_address = storage->place.address;
	hoist__storage_publish(storage);
	made->whole = hoist__storage_ref(whole);
	made->range = *range;
	made->page_bytes = portions->page_bytes;
	*ret = storage;
	return 0;
}

static struct portion *portion_of(struct hoist__storage *storage)
{
	HOIST__ASSERT(storage->release == end);
	return HOIST__CONTAINER_OF(storage, struct portion, storage);
}

/* --- the table --- */

int hoist__portions_create(struct hoist__storage *whole, const struct hoist__portion_range *ranges,
			   size_t n, struct hoist__portions **ret)
{
	size_t size = sizeof(struct hoist__portions) + n * sizeof(struct slot);
	struct hoist__portions *made = calloc(1, size);
	if (made == NULL)
		return hoist__fail_nomem("the tensors of a load", size);
	watch_forks();
	made->whole = hoist__storage_ref(whole);
	made->page_bytes = page_bytes_of(whole);
	made->n = n;
	HOIST__ASSERT(made->page_bytes != 0);
	for (size_t i = 0; i < n; i++) {
		HOIST__ASSERT(ranges[i].begin < ranges[i].end && ranges[i].end <= whole->bytes);
		HOIST__ASSERT(i == 0 || ranges[i - 1].end <= ranges[i].begin);
		made->slots[i].range = ranges[i];
	}
	*ret = made;
	return 0;
}

static int compare(const void *key, const void *element)
{
	size_t offset = *(const size_t *)key;
	const struct slot *slot = element;
	return (offset >= slot->range.end) - (offset < slot->range.begin);
}

static struct slot *slot_of(struct hoist__portions *portions, size_t offset)
{
	size_t next = atomic_load_explicit(&portions->xnext, memory_order_relaxed);
	struct slot *slot = &portions->slots[next % portions->n];
	if (compare(&offset, slot) != 0)
		slot = bsearch(&offset, portions->slots, portions->n, sizeof *slot, compare);
	HOIST__ASSERT(slot != NULL);
	next = (size_t)(slot - portions->slots) + 1;
	atomic_store_explicit(&portions->xnext, next, memory_order_relaxed);
	return slot;
}

/* If two threads take a portion at once, the later one drops its own. */
int hoist__portions_take(struct hoist__portions *portions, size_t offset,
			 struct hoist__storage **ret, size_t *begin)
{
	struct slot *slot = slot_of(portions, offset);
	struct hoist__storage *known = atomic_load(&slot->xstorage);
	if (known == NULL) {
		struct hoist__storage *made = NULL;
		int err = make(portions, &slot->range, &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&slot->xstorage, &known, made))
			known = made;
		else
			hoist__storage_unref(made);
	}
	*ret = known;
	*begin = slot->range.begin;
	return 0;
}

/* Portions that only the table holds end now: nobody can take another reference. */
static void drop_unheld(struct hoist__portions *portions)
{
	for (size_t i = 0; i < portions->n; i++) {
		struct hoist__storage *storage = atomic_load(&portions->slots[i].xstorage);
		if (storage == NULL || !hoist__storage_is_alone(storage))
			continue;
		atomic_store(&portions->slots[i].xstorage, NULL);
		hoist__storage_unref(storage);
	}
}

/* Puts the portions that are left in a list, and gives back what lies between them.  The table
 * still holds each, so none ends meanwhile. */
static void list_held(struct hoist__portions *portions)
{
	struct portion *before = NULL;
	struct hoist__portion_range gap = {0, 0};
	hoist__lock(&lock);
	for (size_t i = 0; i < portions->n; i++) {
		struct hoist__storage *storage = atomic_load(&portions->slots[i].xstorage);
		if (storage == NULL)
			continue;
		struct portion *portion = portion_of(storage);
		portion->listed = true;
		portion->before = before;
		if (before != NULL)
			before->behind = portion;
		before = portion;
	}
	hoist__unlock(&lock);
	if (before == NULL)
		return;
	for (size_t i = 0; i < portions->n; i++) {
		if (atomic_load(&portions->slots[i].xstorage) == NULL)
			continue;
		gap.end = portions->slots[i].range.begin;
		give_back(portions->whole, portions->page_bytes, gap, gap);
		gap.begin = portions->slots[i].range.end;
	}
	gap.end = portions->whole->bytes;
	give_back(portions->whole, portions->page_bytes, gap, gap);
}

void hoist__portions_close(struct hoist__portions *portions)
{
	if (portions == NULL)
		return;
	drop_unheld(portions);
	list_held(portions);
	for (size_t i = 0; i < portions->n; i++)
		hoist__storage_unref(atomic_load(&portions->slots[i].xstorage));
	hoist__storage_unref(portions->whole);
	free(portions);
}
