/* SPDX-License-Identifier: MIT */
/* Makes and ends the staging, and gives its slots.
 * The contract is in io/staging.h. */
#include "config.h"

#include "io/staging-private.h"

#include <stdlib.h>
#include <string.h>

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
				   "staging needs at least %zu bytes of the budget, and the budget "
				   "has %zu; raise the budget",
				   least, hoist__budget_limit(budget));
	return hoist__fail(err,
			   "staging needs %zu bytes of the budget of %zu bytes, and other users "
			   "hold the rest; wait for them",
			   least, hoist__budget_limit(budget));
}

/* Charges the bytes that the caller does not hold yet. */
static int charge_more(struct hoist__staging *staging, size_t held, size_t bytes)
{
	if (bytes > held) {
		int err = hoist__budget_acquire(staging->budget, bytes - held);
		if (err != 0)
			return err;
	}
	staging->charged = hoist__max_u64(bytes, held);
	return 0;
}

/* The sizes that a first part may have, the largest first. */
struct sizes {
	unsigned first; /* the most slots */
	size_t smallest;
	unsigned n;
	size_t slot_bytes;
};

static struct sizes largest(const struct hoist__staging_options *options)
{
	size_t least = options->slot_bytes_least != 0 ? options->slot_bytes_least
						      : HOIST__STAGING_MIN_SLOT_BYTES;
	struct sizes sizes = {
		.first = options->n_slots != 0 ? options->n_slots : HOIST__STAGING_SLOTS,
		.slot_bytes =
			options->slot_bytes != 0 ? options->slot_bytes : HOIST__STAGING_SLOT_BYTES,
	};
	if (options->n_step != 0 && options->n_step < sizes.first)
		sizes.first = options->n_step;
	sizes.n = sizes.first;
	sizes.smallest = hoist__min_u64(sizes.slot_bytes, least);
	return sizes;
}

/* One slot less; behind two, slots of half the size, in multiples of the smallest size (to which
 * the slots' reads are aligned).  False: there is no smaller part. */
static bool shrink(struct sizes *sizes)
{
	if (sizes->n > MIN_SLOTS) {
		sizes->n--;
		return true;
	}
	if (sizes->slot_bytes == sizes->smallest)
		return false;
	HOIST__ASSERT(sizes->slot_bytes > sizes->smallest);
	sizes->slot_bytes =
		sizes->smallest * hoist__max_u64(sizes->slot_bytes / 2 / sizes->smallest, 1);
	sizes->n = sizes->first;
	return true;
}

unsigned hoist__staging_fit(const struct hoist__staging_options *options, size_t room,
			    size_t *slot_bytes)
{
	struct sizes sizes = largest(options);
	bool fits = true;
	while (fits && sizes.n * sizes.slot_bytes > room)
		fits = shrink(&sizes);
	*slot_bytes = sizes.slot_bytes;
	return fits ? sizes.n : 0;
}

/* Charges the largest first part that fits in the budget.  A staging that cannot have all of its
 * first part does not grow. */
static int charge(struct hoist__staging *staging, const struct hoist__staging_options *options,
		  unsigned n_slots)
{
	struct sizes sizes = largest(options);
	int err = charge_more(staging, options->held, sizes.n * sizes.slot_bytes);
	while (err != 0 && shrink(&sizes))
		err = charge_more(staging, options->held, sizes.n * sizes.slot_bytes);
	if (err != 0)
		return fail_budget(err, staging->budget, MIN_SLOTS * sizes.smallest);
	HOIST__ASSERT(staging->charged >= sizes.n * sizes.slot_bytes);
	staging->slot_bytes = sizes.slot_bytes;
	staging->n_step = staging->n_making = sizes.n;
	staging->n_slots = sizes.n < sizes.first ? sizes.n : n_slots;
	return 0;
}

/* --- making and ending --- */

static int make_tables(struct hoist__staging *staging)
{
	size_t n_events = staging->n_events = (size_t)staging->n_slots * staging->n_streams;
	HOIST__ASSERT(staging->n_slots >= MIN_SLOTS &&
		      staging->n_slots <= HOIST__STAGING_MAX_SLOTS);
	HOIST__ASSERT(staging->slot_bytes % 4096 == 0);
	staging->slots = calloc(staging->n_slots, sizeof *staging->slots);
	staging->events = calloc(n_events > 0 ? n_events : 1, sizeof *staging->events);
	staging->parts = calloc(staging->n_slots / staging->n_step + 1, sizeof *staging->parts);
	if (staging->slots == NULL || staging->events == NULL || staging->parts == NULL)
		return hoist__fail_nomem("staging slots",
					 staging->n_slots * sizeof *staging->slots +
						 n_events * sizeof *staging->events);
	for (size_t e = 0; e < n_events; e++) {
		struct hoist__dev *dev =
			hoist__dev_stream_dev(staging->streams[e % staging->n_streams]);
		int err = hoist__dev_event_create(dev, 0, &staging->events[e]);
		if (err != 0)
			return hoist__fail_in(err, "making staging slots");
	}
	return 0;
}

/* --- growing --- */

bool hoist__staging_grow(struct hoist__staging *staging)
{
	unsigned n = (unsigned)hoist__min_u64(staging->n_step, staging->n_slots - staging->n_made);
	if (n == 0 || staging->n_making != 0 || staging->failed != 0)
		return false;
	size_t bytes = n * staging->slot_bytes;
	/* The bytes that the job held at first may be more than the first part took. */
	size_t spare = staging->charged - staging->n_made * staging->slot_bytes;
	if (bytes > spare && hoist__budget_acquire(staging->budget, bytes - spare) != 0)
		return false;
	staging->charged += bytes > spare ? bytes - spare : 0;
	staging->n_making = n;
	return true;
}

int hoist__staging_make(struct hoist__staging *staging)
{
	/* With slots of whole huge pages a direct read into a slot is one request.  Smaller slots
	 * are aligned as any file may want. */
	size_t align = staging->slot_bytes % HOIST__HUGE_PAGE_BYTES == 0 ? HOIST__HUGE_PAGE_BYTES
									 : HOIST__FILE_MAX_ALIGN;
	HOIST__ASSERT(staging->n_making != 0 && staging->making == 0);
	int err = hoist__pool_alloc(staging->pool, staging->n_making * staging->slot_bytes, align,
				    0, &staging->making);
	if (err != 0)
		hoist__fail_in(err, "making %u staging slots of %zu bytes", staging->n_making,
			       staging->slot_bytes);
	return err;
}

void hoist__staging_made(struct hoist__staging *staging, int err)
{
	unsigned n = staging->n_making;
	uintptr_t address = staging->making;
	HOIST__ASSERT(n != 0 && (err == 0) == (address != 0));
	staging->n_making = 0;
	staging->making = 0;
	if (err != 0) {
		hoist__budget_release(staging->budget, n * staging->slot_bytes);
		staging->charged -= n * staging->slot_bytes;
		staging->n_slots = staging->n_made;
		hoist__log(io, "staging stays at %u slots: %s", staging->n_made,
			   strerrorname_np(-err));
		return;
	}
	staging->parts[staging->n_made / staging->n_step] = address;
	for (unsigned i = 0; i < n; i++) {
		struct hoist__staging_slot *own = &staging->slots[staging->n_made];
		own->address = address + i * staging->slot_bytes;
		own->slot.index = staging->n_made++;
		own->slot.state = HOIST__SLOT_FREE;
		hoist__list_push_back(&staging->free, &own->slot.node);
		staging->n_free++;
	}
	HOIST__ASSERT(address % HOIST__FILE_MAX_ALIGN == 0 && staging->n_made <= staging->n_slots);
	HOIST__ASSERT(hoist__staging_adds_up(staging));
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
static void start_telling(struct hoist__staging *staging,
			  const struct hoist__staging_options *options)
{
	if (options->moved == NULL || staging->n_streams == 0)
		return;
	staging->teller = new_teller(options);
	staging->tells = staging->teller != NULL;
	for (unsigned s = 0; staging->tells && s < staging->n_streams; s++)
		staging->tells =
			hoist__dev_stream_create(hoist__dev_stream_dev(staging->streams[s]),
						 &staging->telling[s]) == 0;
	if (!staging->tells)
		hoist__log(io, "ends of copies are looked for: %s", hoist__error_text());
}

static int check_options(const struct hoist__staging_options *options, size_t slot_bytes,
			 unsigned n_slots)
{
	if (slot_bytes % 4096 != 0 || n_slots < MIN_SLOTS || n_slots > HOIST__STAGING_MAX_SLOTS ||
	    slot_bytes > SIZE_MAX / n_slots || options->n_step == 1)
		return hoist__fail(-EINVAL, "staging cannot have %u slots of %zu bytes", n_slots,
				   slot_bytes);
	if (options->pool == NULL || options->budget == NULL)
		return hoist__fail(-EINVAL, "staging needs a pool and a budget");
	if (options->n_streams > HOIST__STAGING_MAX_STREAMS)
		return hoist__fail(-EINVAL, "staging for %u devices; %u is the most",
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
	struct hoist__staging *staging = calloc(1, sizeof *staging);
	if (staging == NULL)
		return hoist__fail_nomem("staging", sizeof *staging);
	hoist__list_init(&staging->free);
	hoist__list_init(&staging->copying);
	hoist__list_init(&staging->fetching);
	for (; staging->n_streams < options->n_streams; staging->n_streams++)
		staging->streams[staging->n_streams] = options->streams[staging->n_streams];
	staging->budget = hoist__budget_ref(options->budget);
	staging->pool = hoist__pool_ref(options->pool);
	staging->timeline = options->timeline;

	err = charge(staging, options, n_slots);
	if (err == 0)
		err = make_tables(staging);
	if (err == 0)
		err = hoist__staging_make(staging);
	if (err == 0)
		hoist__staging_made(staging, 0);
	if (err != 0) {
		staging->charged -= hoist__min_u64(staging->charged, options->held);
		hoist__staging_destroy(staging);
		return err;
	}
	start_telling(staging, options);
	hoist__log(io, "staging of %u slots of %zu bytes", staging->n_slots, staging->slot_bytes);
	*ret = staging;
	return 0;
}

/* Finishes in the order of the streams.  Errors do not matter: a device that has failed copies no
 * more. */
static unsigned finish_all(struct hoist__staging *staging, struct hoist__list *list)
{
	unsigned n = 0;
	for (struct hoist__list *node; (node = hoist__list_pop(list)) != NULL; n++) {
		(void)hoist__slot_finish(staging, hoist__slot_of(node));
		hoist__slot_make_free(staging, hoist__slot_of(node));
	}
	return n;
}

void hoist__staging_settle(struct hoist__staging *staging)
{
	staging->n_copying -= finish_all(staging, &staging->copying);
	staging->n_fetching -= finish_all(staging, &staging->fetching);
	HOIST__ASSERT(staging->n_copying == 0 && staging->n_fetching == 0);
	staging->asked_copy = staging->asked_fetch = NULL;
	staging->tells = false;
	if (staging->teller != NULL) {
		pthread_mutex_lock(&staging->teller->lock);
		staging->teller->moved = NULL;
		pthread_mutex_unlock(&staging->teller->lock);
	}
	hoist__teller_unref(staging->teller);
	staging->teller = NULL;
	for (unsigned s = 0; s < staging->n_streams; s++) {
		hoist__dev_stream_destroy(staging->telling[s]);
		staging->telling[s] = NULL;
	}
}

void hoist__staging_destroy(struct hoist__staging *staging)
{
	if (staging == NULL)
		return;
	hoist__staging_settle(staging);
	HOIST__ASSERT(staging->making == 0);
	for (size_t e = 0; staging->events != NULL && e < staging->n_events; e++)
		hoist__dev_event_destroy(staging->events[e]);
	for (unsigned i = 0; i < staging->n_made; i += staging->n_step)
		(void)hoist__pool_free(staging->pool, staging->parts[i / staging->n_step]);
	if (staging->charged != 0)
		hoist__budget_release(staging->budget, staging->charged);
	hoist__pool_unref(staging->pool);
	hoist__budget_unref(staging->budget);
	free(staging->events);
	free(staging->parts);
	free(staging->slots);
	free(staging);
}

/* --- properties --- */

size_t hoist__staging_slot_bytes(const struct hoist__staging *staging)
{
	return staging->slot_bytes;
}

unsigned hoist__staging_n_slots(const struct hoist__staging *staging)
{
	return staging->n_slots;
}

unsigned hoist__staging_n_copying(const struct hoist__staging *staging)
{
	return staging->n_copying;
}

unsigned hoist__staging_n_fetching(const struct hoist__staging *staging)
{
	return staging->n_fetching;
}

unsigned hoist__staging_n_free(const struct hoist__staging *staging)
{
	return staging->failed != 0 ? 0 : staging->n_free;
}

bool hoist__staging_memory(const struct hoist__staging *staging, struct hoist__engine_buffer *ret)
{
	if (staging->n_step < staging->n_slots)
		return false;
	ret->address = (void *)staging->parts[0];
	ret->bytes = staging->n_slots * staging->slot_bytes;
	return true;
}

size_t hoist__staging_peak_bytes(const struct hoist__staging *staging)
{
	return staging->n_busy_peak * staging->slot_bytes;
}

/* --- transitions --- */

struct hoist__slot *hoist__staging_acquire(struct hoist__staging *staging)
{
	struct hoist__list *node = staging->failed != 0 ? NULL : hoist__list_pop(&staging->free);
	if (node == NULL)
		return NULL;
	struct hoist__slot *slot = hoist__slot_of(node);
	assert(slot->state == HOIST__SLOT_FREE);
	slot->state = HOIST__SLOT_READING;
	slot->useful = 0;
	slot->from = NULL;
	slot->request = (struct hoist__request){
		.address = (unsigned char *)staging->slots[slot->index].address,
	};
	HOIST__ASSERT(slot == &staging->slots[slot->index].slot && slot->index < staging->n_made);
	staging->slots[slot->index].lap = (struct hoist__lap){
		.kind = HOIST_INTERVAL_SLOT,
		.number = slot->index,
		.begin_ns = hoist__timeline_now(staging->timeline),
	};
	staging->n_free--;
	if (staging->n_made - staging->n_free > staging->n_busy_peak)
		staging->n_busy_peak = staging->n_made - staging->n_free;
	HOIST__ASSERT(hoist__staging_adds_up(staging));
	return slot;
}

void hoist__slot_filled(struct hoist__staging *staging, struct hoist__slot *slot)
{
	assert(slot->state == HOIST__SLOT_READING);
	HOIST__ASSERT(staging->slots[slot->index].queued == 0);
	slot->state = HOIST__SLOT_FULL;
	staging->slots[slot->index].lap.full_ns = hoist__timeline_now(staging->timeline);
}

void hoist__slot_make_free(struct hoist__staging *staging, struct hoist__slot *slot)
{
	HOIST__ASSERT(slot->state != HOIST__SLOT_FREE && hoist__list_empty(&slot->node));
	HOIST__ASSERT(staging->slots[slot->index].queued == 0 && staging->n_free < staging->n_made);
	slot->state = HOIST__SLOT_FREE;
	staging->slots[slot->index].lap.bytes = slot->useful;
	hoist__timeline_end(staging->timeline, &staging->slots[slot->index].lap);
	hoist__list_push_front(&staging->free, &slot->node);
	staging->n_free++;
}

void hoist__slot_release(struct hoist__staging *staging, struct hoist__slot *slot)
{
	assert(slot->state == HOIST__SLOT_READING || slot->state == HOIST__SLOT_FULL);
	hoist__slot_make_free(staging, slot);
	HOIST__ASSERT(hoist__staging_adds_up(staging));
}
