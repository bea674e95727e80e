/* SPDX-License-Identifier: MIT */
/* Makes and ends the staging ring; its slots.
 * The contract is in io/staging.h. */
#include "config.h"

#include "io/staging-private.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

#define MIN_SLOTS 2u

_Static_assert(HOIST__STAGING_MIN_SLOT_BYTES % HOIST__FILE_MAX_ALIGN == 0,
	       "the smallest slot holds an aligned piece of any file");

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

/* Charges the bytes that the caller does not hold yet. */
static int charge_more(struct hoist__staging *ring, size_t held, size_t bytes)
{
	if (bytes > held) {
		int err = hoist__budget_acquire(ring->budget, bytes - held);
		if (err != 0)
			return err;
	}
	ring->charged = hoist__max_u64(bytes, held);
	return 0;
}

/* Finds the largest ring that fits in the budget: as many slots of the wanted size as fit, else
 * slots of half that size, in multiples of the smallest size (to which the slots' reads are
 * aligned), and so on. */
static int charge(struct hoist__staging *ring, const struct hoist__staging_options *options,
		  size_t slot_bytes, unsigned n_slots)
{
	size_t least = options->slot_bytes_least != 0 ? options->slot_bytes_least
						      : HOIST__STAGING_MIN_SLOT_BYTES;
	size_t smallest = hoist__min_u64(slot_bytes, least);
	int err = -EINVAL;
	for (;;) {
		for (unsigned n = n_slots; n >= MIN_SLOTS; n--) {
			err = charge_more(ring, options->held, n * slot_bytes);
			if (err == 0) {
				HOIST__ASSERT(ring->charged >= n * slot_bytes);
				ring->slot_bytes = slot_bytes;
				ring->n_slots = n;
				return 0;
			}
		}
		if (slot_bytes == smallest)
			return fail_budget(err, ring->budget, MIN_SLOTS * smallest);
		HOIST__ASSERT(slot_bytes > smallest);
		slot_bytes = smallest * hoist__max_u64(slot_bytes / 2 / smallest, 1);
	}
}

/* --- making and ending --- */

static int make_slots(struct hoist__staging *ring)
{
	size_t n_events = (size_t)ring->n_slots * ring->n_streams;
	HOIST__ASSERT(ring->n_slots >= MIN_SLOTS && ring->n_slots <= HOIST__STAGING_MAX_SLOTS);
	HOIST__ASSERT(ring->address % HOIST__FILE_MAX_ALIGN == 0 && ring->slot_bytes % 4096 == 0);
	ring->slots = calloc(ring->n_slots, sizeof *ring->slots);
	ring->events = calloc(n_events > 0 ? n_events : 1, sizeof *ring->events);
	if (ring->slots == NULL || ring->events == NULL)
		return hoist__fail_nomem("staging slots", ring->n_slots * sizeof *ring->slots +
								  n_events * sizeof *ring->events);
	for (size_t e = 0; e < n_events; e++) {
		struct hoist__dev *dev = hoist__dev_stream_dev(ring->streams[e % ring->n_streams]);
		int err = hoist__dev_event_create(dev, 0, &ring->events[e]);
		if (err != 0)
			return hoist__fail_in(err, "making a staging ring");
	}
	for (unsigned i = 0; i < ring->n_slots; i++) {
		struct hoist__slot *slot = &ring->slots[i].slot;
		slot->state = HOIST__SLOT_FREE;
		slot->index = i;
		hoist__list_push_back(&ring->free, &slot->node);
		ring->n_free++;
	}
	HOIST__ASSERT(hoist__staging_adds_up(ring));
	return 0;
}

void hoist__teller_unref(struct hoist__teller *teller)
{
	HOIST__ASSERT(teller == NULL || atomic_load(&teller->refs) != 0);
	if (teller == NULL || atomic_fetch_sub_explicit(&teller->refs, 1, memory_order_acq_rel) > 1)
		return;
	pthread_mutex_destroy(&teller->lock);
	free(teller);
}

static struct hoist__teller *new_teller(const struct hoist__staging_options *options)
{
	struct hoist__teller *teller = calloc(1, sizeof *teller);
	if (teller == NULL || pthread_mutex_init(&teller->lock, NULL) != 0) {
		free(teller);
		return NULL;
	}
	atomic_init(&teller->refs, 1);
	teller->moved = options->moved;
	teller->context = options->context;
	return teller;
}

/* Without telling, the owner polls for the ends of copies. */
static void start_telling(struct hoist__staging *ring, const struct hoist__staging_options *options)
{
	if (options->moved == NULL || ring->n_streams == 0)
		return;
	ring->teller = new_teller(options);
	ring->tells = ring->teller != NULL;
	for (unsigned s = 0; ring->tells && s < ring->n_streams; s++)
		ring->tells = hoist__dev_stream_create(hoist__dev_stream_dev(ring->streams[s]),
						       &ring->telling[s]) == 0;
	if (!ring->tells)
		hoist__log(io, "ends of copies are looked for: %s", hoist__error_text());
}

static int check_options(const struct hoist__staging_options *options, size_t slot_bytes,
			 unsigned n_slots)
{
	if (slot_bytes % 4096 != 0 || n_slots < MIN_SLOTS || n_slots > HOIST__STAGING_MAX_SLOTS ||
	    slot_bytes > SIZE_MAX / n_slots)
		return hoist__fail(-EINVAL, "a staging ring of %u slots of %zu bytes", n_slots,
				   slot_bytes);
	if (options->pool == NULL || options->budget == NULL)
		return hoist__fail(-EINVAL, "a staging ring needs a pool and a budget");
	if (options->n_streams > HOIST__STAGING_MAX_STREAMS)
		return hoist__fail(-EINVAL, "a staging ring for %u devices; it is at most %u",
				   options->n_streams, HOIST__STAGING_MAX_STREAMS);
	return 0;
}

/* On failure hoist__staging_destroy() releases all that was charged, so the caller's bytes are
 * taken out of `charged` first. */
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
	hoist__list_init(&ring->fetching);
	for (; ring->n_streams < options->n_streams; ring->n_streams++)
		ring->streams[ring->n_streams] = options->streams[ring->n_streams];
	ring->budget = hoist__budget_ref(options->budget);
	ring->pool = hoist__pool_ref(options->pool);

	err = charge(ring, options, slot_bytes, n_slots);
	if (err == 0) {
		size_t bytes = ring->n_slots * ring->slot_bytes;
		/* With slots of whole huge pages a direct read into a slot is one request.  Smaller
		 * slots are aligned as any file may want. */
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
		ring->charged -= hoist__min_u64(ring->charged, options->held);
		hoist__staging_destroy(ring);
		return err;
	}
	start_telling(ring, options);
	hoist__log(io, "staging ring of %u slots of %zu bytes", ring->n_slots, ring->slot_bytes);
	*ret = ring;
	return 0;
}

/* Finishes in the order of the streams.  Errors do not matter: a device that has failed copies no
 * more. */
static unsigned finish_all(struct hoist__staging *ring, struct hoist__list *list)
{
	unsigned n = 0;
	for (struct hoist__list *node; (node = hoist__list_pop(list)) != NULL; n++) {
		(void)hoist__slot_finish(ring, hoist__slot_of(node));
		hoist__slot_make_free(ring, hoist__slot_of(node));
	}
	return n;
}

void hoist__staging_settle(struct hoist__staging *ring)
{
	ring->n_copying -= finish_all(ring, &ring->copying);
	ring->n_fetching -= finish_all(ring, &ring->fetching);
	HOIST__ASSERT(ring->n_copying == 0 && ring->n_fetching == 0);
	ring->tells = false;
	if (ring->teller != NULL) {
		pthread_mutex_lock(&ring->teller->lock);
		ring->teller->moved = NULL;
		pthread_mutex_unlock(&ring->teller->lock);
	}
	hoist__teller_unref(ring->teller);
	ring->teller = NULL;
	for (unsigned s = 0; s < ring->n_streams; s++) {
		hoist__dev_stream_destroy(ring->telling[s]);
		ring->telling[s] = NULL;
	}
}

void hoist__staging_destroy(struct hoist__staging *ring)
{
	if (ring == NULL)
		return;
	hoist__staging_settle(ring);
	for (size_t e = 0; ring->events != NULL && e < (size_t)ring->n_slots * ring->n_streams; e++)
		hoist__dev_event_destroy(ring->events[e]);
	if (ring->address != 0)
		(void)hoist__pool_free(ring->pool, ring->address);
	if (ring->charged != 0)
		hoist__budget_release(ring->budget, ring->charged);
	hoist__pool_unref(ring->pool);
	hoist__budget_unref(ring->budget);
	free(ring->events);
	free(ring->slots);
	free(ring);
}

/* --- properties --- */

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

unsigned hoist__staging_n_fetching(const struct hoist__staging *ring)
{
	return ring->n_fetching;
}

bool hoist__staging_tells(const struct hoist__staging *ring)
{
	return ring->tells;
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
	struct hoist__slot *slot = hoist__slot_of(node);
	assert(slot->state == HOIST__SLOT_FREE);
	slot->state = HOIST__SLOT_READING;
	slot->useful = 0;
	slot->request = (struct hoist__request){
		.address = (unsigned char *)ring->address + slot->index * ring->slot_bytes,
	};
	HOIST__ASSERT(slot == &ring->slots[slot->index].slot && slot->index < ring->n_slots);
	ring->n_free--;
	if (ring->n_slots - ring->n_free > ring->n_busy_peak)
		ring->n_busy_peak = ring->n_slots - ring->n_free;
	HOIST__ASSERT(hoist__staging_adds_up(ring));
	return slot;
}

void hoist__slot_filled(struct hoist__staging *ring, struct hoist__slot *slot)
{
	(void)ring;
	assert(slot->state == HOIST__SLOT_READING);
	HOIST__ASSERT(ring->slots[slot->index].queued == 0);
	slot->state = HOIST__SLOT_FULL;
}

void hoist__slot_make_free(struct hoist__staging *ring, struct hoist__slot *slot)
{
	HOIST__ASSERT(slot->state != HOIST__SLOT_FREE && hoist__list_empty(&slot->node));
	HOIST__ASSERT(ring->slots[slot->index].queued == 0 && ring->n_free < ring->n_slots);
	slot->state = HOIST__SLOT_FREE;
	hoist__list_push_front(&ring->free, &slot->node);
	ring->n_free++;
}

void hoist__slot_release(struct hoist__staging *ring, struct hoist__slot *slot)
{
	assert(slot->state == HOIST__SLOT_READING || slot->state == HOIST__SLOT_FULL);
	hoist__slot_make_free(ring, slot);
	HOIST__ASSERT(hoist__staging_adds_up(ring));
}
