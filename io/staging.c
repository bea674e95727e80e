/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/staging.h"

#include <assert.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

#define MIN_SLOTS 2u

_Static_assert(HOIST__STAGING_MIN_SLOT_BYTES % HOIST__FILE_MAX_ALIGN == 0,
	       "the smallest slot holds an aligned piece of any file");

struct ring_slot {
	struct hoist__slot slot;
	bool no_event; /* a copy is queued without an event behind it */
};

/* n_free + n_reading + n_full + n_copying == n_slots; only two of them are kept. */
struct hoist__staging {
	struct hoist__dev_stream *stream;
	struct hoist__pool *pool;
	struct hoist__budget *budget;
	uintptr_t address;
	size_t slot_bytes;
	unsigned n_slots;
	unsigned n_free;
	unsigned n_copying;
	unsigned n_busy_peak;
	int failed; /* the device's first error: from then on the ring only drains */
	struct hoist__list free;
	struct hoist__list copying; /* oldest first */
	struct ring_slot *slots;
};

static struct hoist__slot *slot_of(struct hoist__list *node)
{
	return HOIST__CONTAINER_OF(node, struct hoist__slot, node);
}

static struct ring_slot *ring_slot_of(struct hoist__slot *slot)
{
	return HOIST__CONTAINER_OF(slot, struct ring_slot, slot);
}

/* --- size --- */

static int fail_budget(int err, const struct hoist__budget *budget, size_t least)
{
	if (err == -EDQUOT)
		return hoist__fail(err,
				   "staging needs at least %zu bytes of the budget, whose "
				   "limit is %zu; raise it",
				   least, hoist__budget_limit(budget));
	return hoist__fail(err, "staging waits for %zu bytes of a budget of %zu", least,
			   hoist__budget_limit(budget));
}

/* The largest ring that the budget has free: as many slots of the wanted size as
 * fit, or else of half that size, and so on. */
static int charge(struct hoist__staging *ring, size_t slot_bytes, unsigned n_slots)
{
	size_t smallest = hoist__min_u64(slot_bytes, HOIST__STAGING_MIN_SLOT_BYTES);
	int err = -EINVAL;
	for (;;) {
		for (unsigned n = n_slots; n >= MIN_SLOTS; n--) {
			err = hoist__budget_acquire(ring->budget, n * slot_bytes);
			if (err == 0) {
				ring->slot_bytes = slot_bytes;
				ring->n_slots = n;
				return 0;
			}
		}
		if (slot_bytes == smallest)
			return fail_budget(err, ring->budget, MIN_SLOTS * smallest);
		slot_bytes = hoist__max_u64(hoist__round_down(slot_bytes / 2, 4096), smallest);
	}
}

/* --- making and ending --- */

static int make_slots(struct hoist__staging *ring)
{
	struct hoist__dev *dev = hoist__stream_dev(ring->stream);
	ring->slots = calloc(ring->n_slots, sizeof *ring->slots);
	if (ring->slots == NULL)
		return hoist__fail_nomem("staging slots", ring->n_slots * sizeof *ring->slots);
	for (unsigned i = 0; i < ring->n_slots; i++) {
		struct hoist__slot *slot = &ring->slots[i].slot;
		slot->state = HOIST__SLOT_FREE;
		slot->index = i;
		int err = hoist__event_create(dev, 0, &slot->copied);
		if (err != 0)
			return hoist__fail_in(err, "making a staging ring");
		hoist__list_push_back(&ring->free, &slot->node);
		ring->n_free++;
	}
	return 0;
}

static int check_options(const struct hoist__staging_options *options, size_t slot_bytes,
			 unsigned n_slots)
{
	if (slot_bytes % 4096 != 0 || n_slots < MIN_SLOTS || n_slots > HOIST__STAGING_MAX_SLOTS ||
	    slot_bytes > SIZE_MAX / n_slots)
		return hoist__fail(-EINVAL, "a staging ring of %u slots of %zu bytes", n_slots,
				   slot_bytes);
	if (options->stream == NULL || options->pool == NULL || options->budget == NULL)
		return hoist__fail(-EINVAL, "a staging ring needs a stream, a pool and a budget");
	return 0;
}

int hoist__staging_create(const struct hoist__staging_options *options, struct hoist__staging **ret)
{
	size_t slot_bytes =
		options->slot_bytes != 0 ? options->slot_bytes : HOIST__STAGING_SLOT_BYTES;
	unsigned n_slots = options->n_slots != 0 ? options->n_slots : HOIST__STAGING_SLOTS;
	int err = check_options(options, slot_bytes, n_slots);
	if (err != 0)
		return err;
	struct hoist__staging *ring = calloc(1, sizeof *ring);
	if (ring == NULL)
		return hoist__fail_nomem("a staging ring", sizeof *ring);
	hoist__list_init(&ring->free);
	hoist__list_init(&ring->copying);
	ring->stream = options->stream;
	ring->budget = hoist__budget_ref(options->budget);
	ring->pool = hoist__pool_ref(options->pool);

	err = charge(ring, slot_bytes, n_slots);
	if (err == 0) {
		size_t bytes = ring->n_slots * ring->slot_bytes;
		/* Slots of whole huge pages: a direct read into one is one request.
		 * Smaller ones lie as any file wants it. */
		size_t align = ring->slot_bytes % HOIST__HUGE_PAGE_BYTES == 0
				       ? HOIST__HUGE_PAGE_BYTES
				       : HOIST__FILE_MAX_ALIGN;
		err = hoist__pool_alloc(ring->pool, bytes, align, 0, &ring->address);
		if (err != 0)
			hoist__fail_in(err, "making a staging ring of %u slots of %zu bytes",
				       ring->n_slots, ring->slot_bytes);
	}
	if (err == 0)
		err = make_slots(ring);
	if (err != 0) {
		hoist__staging_destroy(ring);
		return err;
	}
	hoist__log(io, "staging ring of %u slots of %zu bytes", ring->n_slots, ring->slot_bytes);
	*ret = ring;
	return 0;
}

/* Blocks until the device is past the copy of @slot. */
static int finish_copy(struct hoist__staging *ring, struct hoist__slot *slot)
{
	if (!ring_slot_of(slot)->no_event && hoist__event_synchronize(slot->copied) == 0)
		return 0;
	return hoist__stream_synchronize(ring->stream);
}

void hoist__staging_destroy(struct hoist__staging *ring)
{
	if (ring == NULL)
		return;
	/* In the order of the stream; a device that has failed copies no more. */
	for (struct hoist__list *node; (node = hoist__list_pop(&ring->copying)) != NULL;)
		(void)finish_copy(ring, slot_of(node));
	for (unsigned i = 0; ring->slots != NULL && i < ring->n_slots; i++)
		hoist__event_destroy(ring->slots[i].slot.copied);
	if (ring->address != 0)
		(void)hoist__pool_free(ring->pool, ring->address);
	if (ring->n_slots != 0)
		hoist__budget_release(ring->budget, ring->n_slots * ring->slot_bytes);
	hoist__pool_unref(ring->pool);
	hoist__budget_unref(ring->budget);
	free(ring->slots);
	free(ring);
}

/* --- what it is --- */

size_t hoist__staging_slot_bytes(const struct hoist__staging *ring)
{
	return ring->slot_bytes;
}

unsigned hoist__staging_n_slots(const struct hoist__staging *ring)
{
	return ring->n_slots;
}

unsigned hoist__staging_n_copying(const struct hoist__staging *ring)
{
	return ring->n_copying;
}

void hoist__staging_memory(const struct hoist__staging *ring, struct hoist__engine_buffer *ret)
{
	ret->address = (void *)ring->address;
	ret->bytes = ring->n_slots * ring->slot_bytes;
}

size_t hoist__staging_peak_bytes(const struct hoist__staging *ring)
{
	return ring->n_busy_peak * ring->slot_bytes;
}

/* --- transitions --- */

struct hoist__slot *hoist__staging_acquire(struct hoist__staging *ring)
{
	struct hoist__list *node = ring->failed != 0 ? NULL : hoist__list_pop(&ring->free);
	if (node == NULL)
		return NULL;
	struct hoist__slot *slot = slot_of(node);
	assert(slot->state == HOIST__SLOT_FREE);
	slot->state = HOIST__SLOT_READING;
	slot->request = (struct hoist__request){
		.address = (unsigned char *)ring->address + slot->index * ring->slot_bytes,
	};
	ring->n_free--;
	if (ring->n_slots - ring->n_free > ring->n_busy_peak)
		ring->n_busy_peak = ring->n_slots - ring->n_free;
	return slot;
}

void hoist__slot_filled(struct hoist__staging *ring, struct hoist__slot *slot)
{
	(void)ring;
	assert(slot->state == HOIST__SLOT_READING);
	slot->state = HOIST__SLOT_FULL;
}

static void make_free(struct hoist__staging *ring, struct hoist__slot *slot)
{
	slot->state = HOIST__SLOT_FREE;
	hoist__list_push_front(&ring->free, &slot->node);
	ring->n_free++;
}

void hoist__slot_release(struct hoist__staging *ring, struct hoist__slot *slot)
{
	assert(slot->state == HOIST__SLOT_READING || slot->state == HOIST__SLOT_FULL);
	make_free(ring, slot);
}

int hoist__slot_copy(struct hoist__staging *ring, struct hoist__slot *slot,
		     const struct hoist__piece *pieces, size_t n_pieces)
{
	assert(slot->state == HOIST__SLOT_FULL);
	if (ring->failed != 0)
		return hoist__fail(ring->failed, "the staging ring's device has failed");
	uintptr_t base = (uintptr_t)slot->request.address;
	size_t n_queued = 0;
	int err = 0;
	for (; n_queued < n_pieces; n_queued++) {
		const struct hoist__piece *piece = &pieces[n_queued];
		assert(piece->bytes <= ring->slot_bytes &&
		       piece->slot_offset <= ring->slot_bytes - piece->bytes);
		err = hoist__copy_async(ring->stream, HOIST__COPY_HOST_TO_DEVICE,
					piece->device_address, base + piece->slot_offset,
					piece->bytes);
		if (err != 0)
			break;
	}
	if (err != 0 && n_queued == 0)
		return err;
	slot->state = HOIST__SLOT_COPYING;
	hoist__list_push_back(&ring->copying, &slot->node);
	ring->n_copying++;
	if (err == 0)
		err = hoist__event_record(slot->copied, ring->stream);
	ring_slot_of(slot)->no_event = err != 0;
	return err;
}

/* 0: the oldest copy is done; -EAGAIN: not yet; other: the device's error. */
static int query(struct hoist__staging *ring, struct hoist__slot *slot)
{
	if (ring_slot_of(slot)->no_event)
		return hoist__stream_synchronize(ring->stream);
	return hoist__event_query(slot->copied);
}

int hoist__staging_reclaim(struct hoist__staging *ring)
{
	int n = 0;
	/* One stream: what is behind an unfinished copy has not finished either. */
	while (ring->failed == 0 && !hoist__list_empty(&ring->copying)) {
		struct hoist__slot *slot = slot_of(ring->copying.next);
		int err = query(ring, slot);
		if (err == -EAGAIN)
			break;
		if (err != 0) {
			ring->failed = err;
			return hoist__fail_in(err, "copying to the device");
		}
		hoist__list_remove(&slot->node);
		ring->n_copying--;
		make_free(ring, slot);
		n++;
	}
	return ring->failed != 0 ? hoist__fail(ring->failed, "the staging ring's device has failed")
				 : n;
}

int hoist__staging_wait(struct hoist__staging *ring)
{
	if (hoist__list_empty(&ring->copying))
		return 0;
	int err = finish_copy(ring, slot_of(ring->copying.next));
	if (err != 0 && ring->failed == 0) {
		ring->failed = err;
		return hoist__fail_in(err, "copying to the device");
	}
	return hoist__staging_reclaim(ring);
}
