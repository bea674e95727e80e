/* SPDX-License-Identifier: MIT */
/* alloc/watch.c - keeps the table of a watched pool's blocks; fills and checks them.
 * The contract is in alloc/watch.h. */
#include "config.h"

#include "alloc/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc/annotate.h"
#include "alloc/pattern.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

#define HOST_QUANTUM ((size_t)64)
#define DEVICE_QUANTUM ((size_t)256)
#define SLOTS_LEAST ((size_t)64)

enum state {
	STATE_FREE, /* the allocator has the block again, or the user does not have it yet */
	STATE_LIVE,
	STATE_QUARANTINE
};

struct entry {
	uintptr_t raw; /* or SLOT_NEVER or SLOT_GONE: neither is a block's address */
	uintptr_t user;
	size_t bytes;
	size_t allocated;
	uintptr_t next; /* in quarantine: the raw address of the next block, 0 if last */
	enum state state;
	bool untouched;
	bool red;    /* has redzones */
	bool filled; /* the whole block, when it was freed */
};

#define SLOT_NEVER ((uintptr_t)0) /* used */
#define SLOT_GONE ((uintptr_t)1)  /* its region ended */

struct hoist__watch {
	unsigned debug;
	bool direct; /* the host can read and write it */
	bool annotates;
	bool host_alone; /* only the host writes to the memory, no device does */
	size_t quantum;
	struct hoist__pattern *pattern;

	pthread_mutex_t lock;
	struct entry *slots; /* n_slots is a power of two, or 0 */
	size_t n_slots;
	size_t n_noted;	   /* entries */
	size_t n_occupied; /* entries, and slots that are SLOT_GONE */
	uintptr_t oldest;  /* in quarantine; 0: it is empty */
	uintptr_t latest;
	_Atomic size_t quarantined;
	bool has_fault;
	char fault[HOIST__ERROR_BYTES];
};

/* --- the table; the functions below are called with the lock held --- */

/* Returns: the slot of @raw, or the slot where it could be put.  There is always a slot that was
 * never used, so the search ends. */
static struct entry *slot_of(struct entry *slots, size_t n_slots, uintptr_t raw)
{
	HOIST__ASSERT(raw > SLOT_GONE && hoist__is_power_of_two(n_slots));
	size_t at = (size_t)(raw * UINT64_C(0x9e3779b97f4a7c15) >> (__builtin_clzll(n_slots) + 1));
	struct entry *gone = NULL;
	for (;; at++) {
		struct entry *slot = &slots[at & (n_slots - 1)];
		if (slot->raw == raw)
			return slot;
		if (slot->raw == SLOT_NEVER)
			return gone != NULL ? gone : slot;
		if (slot->raw == SLOT_GONE && gone == NULL)
			gone = slot;
	}
}

static struct entry *find(const struct hoist__watch *watch, uintptr_t raw)
{
	if (watch->n_slots == 0)
		return NULL;
	struct entry *slot = slot_of(watch->slots, watch->n_slots, raw);
	return slot->raw == raw ? slot : NULL;
}

/* Makes room for one more entry: at most three quarters of the slots are occupied. */
static int make_room(struct hoist__watch *watch)
{
	if ((watch->n_occupied + 1) * 4 <= watch->n_slots * 3)
		return 0;
	size_t n = SLOTS_LEAST;
	while (n < 2 * (watch->n_noted + 1))
		n *= 2;
	struct entry *slots = calloc(n, sizeof *slots);
	if (slots == NULL)
		return hoist__fail_nomem("watching blocks", n * sizeof *slots);
	for (size_t i = 0; i < watch->n_slots; i++) {
		const struct entry *entry = &watch->slots[i];
		if (entry->raw != SLOT_NEVER && entry->raw != SLOT_GONE)
			*slot_of(slots, n, entry->raw) = *entry;
	}
	free(watch->slots);
	watch->slots = slots;
	watch->n_slots = n;
	watch->n_occupied = watch->n_noted;
	return 0;
}

/* Gives the entry of @raw, or adds an empty one. */
static int note(struct hoist__watch *watch, uintptr_t raw, struct entry **ret)
{
	struct entry *entry = find(watch, raw);
	if (entry == NULL) {
		int err = make_room(watch);
		if (err != 0)
			return err;
		entry = slot_of(watch->slots, watch->n_slots, raw);
		watch->n_occupied += entry->raw == SLOT_NEVER;
		watch->n_noted++;
		*entry = (struct entry){.raw = raw};
		HOIST__ASSERT(watch->n_noted <= watch->n_occupied &&
			      watch->n_occupied < watch->n_slots);
	}
	*ret = entry;
	return 0;
}

/* Returns: a copy of the entry of a noted block.  Only the calling thread changes the entry now. */
static struct entry copy_of(struct hoist__watch *watch, uintptr_t raw)
{
	pthread_mutex_lock(&watch->lock);
	const struct entry *entry = find(watch, raw);
	struct entry copy = *entry;
	pthread_mutex_unlock(&watch->lock);
	return copy;
}

static void put_in_quarantine(struct hoist__watch *watch, struct entry *entry)
{
	HOIST__ASSERT((watch->oldest == 0) == (atomic_load(&watch->quarantined) == 0));
	entry->state = STATE_QUARANTINE;
	entry->next = 0;
	if (watch->oldest == 0)
		watch->oldest = entry->raw;
	else
		find(watch, watch->latest)->next = entry->raw;
	watch->latest = entry->raw;
	atomic_fetch_add(&watch->quarantined, entry->allocated);
}

static void store(struct hoist__watch *watch, const struct entry *changed)
{
	pthread_mutex_lock(&watch->lock);
	struct entry *entry = find(watch, changed->raw);
	HOIST__ASSERT(entry != NULL &&
		      (entry->state == STATE_LIVE) != (changed->state == STATE_LIVE));
	*entry = *changed;
	if (changed->state == STATE_QUARANTINE)
		put_in_quarantine(watch, entry);
	pthread_mutex_unlock(&watch->lock);
}

/* --- making --- */

static bool is_host(enum hoist__memory_kind kind)
{
	return kind == HOIST__MEMORY_HOST || kind == HOIST__MEMORY_PINNED;
}

bool hoist__watch_annotates(void)
{
	return hoist__asan_runs() || hoist__valgrind_runs();
}

int hoist__watch_create(const struct hoist__watch_options *options, struct hoist__watch **ret)
{
	bool host = is_host(options->kind);
	bool direct = host || hoist__dev_api(options->dev) == HOIST__API_CPU;
	struct hoist__watch *watch = calloc(1, sizeof *watch);
	if (watch == NULL)
		return hoist__fail_nomem("watching a pool", sizeof *watch);
	watch->debug = options->debug;
	watch->direct = direct;
	watch->annotates = host && hoist__watch_annotates();
	watch->host_alone = options->kind == HOIST__MEMORY_HOST;
	watch->quantum = host ? HOST_QUANTUM : DEVICE_QUANTUM;
	/* The device itself fills and compares memory that the CPU cannot touch. */
	int err = hoist__pattern_create(direct ? NULL : options->dev, &watch->pattern);
	if (err != 0) {
		free(watch);
		return err;
	}
	err = pthread_mutex_init(&watch->lock, NULL);
	if (err != 0) {
		hoist__pattern_destroy(watch->pattern);
		free(watch);
		return hoist__fail_errno(-err, "watching a pool");
	}
	*ret = watch;
	return 0;
}

void hoist__watch_destroy(struct hoist__watch *watch)
{
	if (watch == NULL)
		return;
	HOIST__ASSERT(watch->oldest == 0);
	pthread_mutex_destroy(&watch->lock);
	hoist__pattern_destroy(watch->pattern);
	free(watch->slots);
	free(watch);
}

/* --- filling and checking --- */

/* True if memory is filled when it is freed. */
static bool fills(const struct hoist__watch *watch)
{
	return watch->debug >= 2 || (watch->debug == 1 && watch->direct);
}

static void show_all(const struct hoist__watch *watch, const struct entry *entry)
{
	if (watch->annotates)
		hoist__annotate_shown(entry->raw, entry->allocated, true);
}

static void hide_all(const struct hoist__watch *watch, const struct entry *entry)
{
	if (watch->annotates)
		hoist__annotate_hidden(entry->raw, entry->allocated);
}

static void show_block(const struct hoist__watch *watch, const struct entry *entry)
{
	hide_all(watch, entry);
	if (watch->annotates)
		hoist__annotate_shown(entry->user, entry->bytes,
				      entry->untouched || !watch->host_alone);
}

static size_t red_before(const struct entry *entry)
{
	return hoist__min_u64(entry->user - entry->raw, HOIST__REDZONE_MOST);
}

static size_t red_behind(const struct entry *entry)
{
	uintptr_t end = entry->user + entry->bytes;
	return hoist__min_u64(entry->raw + entry->allocated - end, HOIST__REDZONE_MOST);
}

/* "1 byte before it was overwritten" */
static int fail_changed(const struct entry *entry, const struct hoist__change *change,
			unsigned char expected, const char *where, const char *remedy)
{
	char found[3 * HOIST__FOUND_BYTES + 1] = "";
	for (size_t i = 0; i < change->n_found; i++)
		(void)snprintf(found + 3 * i, 4, "%02x ", change->found[i]);
	int err = hoist__fail(-EFAULT,
			      "the block of %zu bytes at %#zx: %zu byte%s %s, the first at offset "
			      "%td: found %sinstead of %02x; look for a %s",
			      entry->bytes, (size_t)entry->user, change->n,
			      change->n == 1 ? "" : "s", where,
			      (ptrdiff_t)(change->first - entry->user), found, expected, remedy);
	hoist__log(alloc, "%s", hoist__error_text());
	return err;
}

/* Checks the fill of a free block.  Changed bytes are filled again, so that one fault is found
 * once. */
static int check_fill(struct hoist__watch *watch, const struct entry *entry, size_t bytes)
{
	struct hoist__change change;
	if (!entry->filled ||
	    !hoist__pattern_changed(watch->pattern, entry->raw, bytes, HOIST__POISON_FREE, &change))
		return 0;
	(void)hoist__pattern_fill(watch->pattern, entry->raw, bytes, HOIST__POISON_FREE);
	(void)hoist__pattern_settle(watch->pattern);
	return fail_changed(entry, &change, HOIST__POISON_FREE,
			    "of it overwritten after it was freed", "use after free");
}

static int check_red(struct hoist__watch *watch, const struct entry *entry)
{
	struct hoist__change change;
	int err = 0;
	size_t before = red_before(entry);
	if (hoist__pattern_changed(watch->pattern, entry->user + entry->bytes, red_behind(entry),
				   HOIST__POISON_RED, &change))
		err = fail_changed(entry, &change, HOIST__POISON_RED, "behind it overwritten",
				   "write past its end");
	if (hoist__pattern_changed(watch->pattern, entry->user - before, before, HOIST__POISON_RED,
				   &change))
		err = fail_changed(entry, &change, HOIST__POISON_RED, "before it overwritten",
				   "write before its start");
	return err;
}

static void fill_new(struct hoist__watch *watch, struct entry *entry)
{
	struct hoist__pattern *pattern = watch->pattern;
	if (entry->untouched || !fills(watch))
		return;
	(void)hoist__pattern_fill(pattern, entry->user, entry->bytes, HOIST__POISON_NEW);
	if (watch->debug >= 2) {
		size_t before = red_before(entry);
		bool red = hoist__pattern_fill(pattern, entry->user - before, before,
					       HOIST__POISON_RED);
		red &= hoist__pattern_fill(pattern, entry->user + entry->bytes, red_behind(entry),
					   HOIST__POISON_RED);
		entry->red = red;
	}
	entry->red &= hoist__pattern_settle(pattern);
}

/* --- a block's life --- */

/* Returns: the bytes before the user's block that keep its alignment: a redzone, at level 2. */
static size_t lead_of(const struct hoist__watch *watch, size_t align)
{
	if (watch->debug < 2)
		return 0;
	return hoist__max_u64(hoist__max_u64(align, watch->quantum), HOIST__REDZONE_BYTES);
}

void hoist__watch_size(const struct hoist__watch *watch, size_t bytes, size_t align,
		       size_t *raw_bytes, size_t *raw_align)
{
	size_t lead = lead_of(watch, align);
	*raw_bytes = lead == 0 ? bytes : lead + bytes + HOIST__REDZONE_BYTES;
	*raw_align = lead == 0 ? align : lead;
}

/* The old entry says how much of the block was filled when it was freed.  It is replaced only if
 * the fill is unchanged. */
int hoist__watch_allocated(struct hoist__watch *watch, uintptr_t raw, size_t raw_allocated,
			   size_t bytes, size_t align, bool untouched, uintptr_t *ret)
{
	struct entry *noted;
	pthread_mutex_lock(&watch->lock);
	int err = note(watch, raw, &noted);
	const struct entry last = err == 0 ? *noted : (struct entry){0};
	pthread_mutex_unlock(&watch->lock);
	if (err != 0)
		return err;
	assert(last.state == STATE_FREE);
	struct entry entry = {
		.raw = raw,
		.user = raw + (untouched ? 0 : lead_of(watch, align)),
		.bytes = bytes,
		.allocated = raw_allocated,
		.state = STATE_LIVE,
		.untouched = untouched,
	};
	HOIST__ASSERT(entry.user + bytes <= raw + raw_allocated);
	show_all(watch, &entry);
	if (watch->direct)
		err = check_fill(watch, &last, hoist__min_u64(last.allocated, raw_allocated));
	if (err != 0) {
		hide_all(watch, &entry);
		return err;
	}
	fill_new(watch, &entry);
	show_block(watch, &entry);
	store(watch, &entry);
	*ret = entry.user;
	return 0;
}

int hoist__watch_known(struct hoist__watch *watch, uintptr_t raw, uintptr_t address,
		       uintptr_t *user, size_t *user_bytes)
{
	pthread_mutex_lock(&watch->lock);
	const struct entry *entry = find(watch, raw);
	bool live = entry != NULL && entry->state == STATE_LIVE;
	*user = live ? entry->user : 0;
	*user_bytes = live ? entry->bytes : 0;
	pthread_mutex_unlock(&watch->lock);
	return live && *user == address ? 0 : -EINVAL;
}

int hoist__watch_freed(struct hoist__watch *watch, uintptr_t raw, uintptr_t *ret)
{
	struct entry entry = copy_of(watch, raw);
	assert(entry.state == STATE_LIVE);
	show_all(watch, &entry);
	int err = entry.red ? check_red(watch, &entry) : 0;
	if (!entry.untouched && fills(watch))
		entry.filled = hoist__pattern_fill(watch->pattern, raw, entry.allocated,
						   HOIST__POISON_FREE) &&
			       hoist__pattern_settle(watch->pattern);
	hide_all(watch, &entry);
	bool waits = watch->debug >= 2 && !entry.untouched;
	entry.state = waits ? STATE_QUARANTINE : STATE_FREE;
	store(watch, &entry);
	*ret = waits ? 0 : raw;
	return err;
}

int hoist__watch_leaves(struct hoist__watch *watch, bool all, uintptr_t *ret)
{
	struct entry left = {0};
	pthread_mutex_lock(&watch->lock);
	struct entry *oldest = watch->oldest == 0 ? NULL : find(watch, watch->oldest);
	if (oldest != NULL && (all || atomic_load(&watch->quarantined) - oldest->allocated >=
					      HOIST__QUARANTINE_BYTES)) {
		HOIST__ASSERT(oldest->state == STATE_QUARANTINE);
		oldest->state = STATE_FREE;
		watch->oldest = oldest->next;
		atomic_fetch_sub(&watch->quarantined, oldest->allocated);
		HOIST__ASSERT((watch->oldest == 0) == (atomic_load(&watch->quarantined) == 0));
		left = *oldest;
	}
	pthread_mutex_unlock(&watch->lock);
	*ret = left.raw;
	if (left.raw == 0)
		return 0;
	show_all(watch, &left);
	int err = check_fill(watch, &left, left.allocated);
	hide_all(watch, &left);
	return err;
}

size_t hoist__watch_quarantined(const struct hoist__watch *watch)
{
	return atomic_load(&watch->quarantined);
}

bool hoist__watch_holds(struct hoist__watch *watch, uintptr_t raw)
{
	pthread_mutex_lock(&watch->lock);
	const struct entry *entry = find(watch, raw);
	bool holds = entry != NULL && entry->state == STATE_QUARANTINE;
	pthread_mutex_unlock(&watch->lock);
	return holds;
}

/* --- faults that no caller was told --- */

void hoist__watch_keep_fault(struct hoist__watch *watch)
{
	pthread_mutex_lock(&watch->lock);
	/* The first fault is kept, since later faults may follow from the first. */
	if (!watch->has_fault)
		hoist__error_copy(watch->fault, sizeof watch->fault);
	watch->has_fault = true;
	pthread_mutex_unlock(&watch->lock);
}

int hoist__watch_tell_fault(struct hoist__watch *watch)
{
	pthread_mutex_lock(&watch->lock);
	int err = watch->has_fault ? hoist__fail(-EFAULT, "%s", watch->fault) : 0;
	watch->has_fault = false;
	pthread_mutex_unlock(&watch->lock);
	return err;
}

/* --- regions --- */

void hoist__watch_region(struct hoist__watch *watch, uintptr_t base, size_t bytes)
{
	if (watch->annotates)
		hoist__annotate_hidden(base, bytes);
}

void hoist__watch_region_ends(struct hoist__watch *watch, uintptr_t base, size_t bytes)
{
	pthread_mutex_lock(&watch->lock);
	for (size_t i = 0; i < watch->n_slots; i++) {
		struct entry *entry = &watch->slots[i];
		if (entry->raw > SLOT_GONE && entry->raw - base < bytes) {
			HOIST__ASSERT(entry->state != STATE_QUARANTINE && watch->n_noted != 0);
			entry->raw = SLOT_GONE;
			watch->n_noted--;
		}
	}
	pthread_mutex_unlock(&watch->lock);
	if (watch->annotates)
		hoist__annotate_shown(base, bytes, true);
}

void hoist__watch_lock(struct hoist__watch *watch)
{
	pthread_mutex_lock(&watch->lock);
}

void hoist__watch_unlock(struct hoist__watch *watch)
{
	pthread_mutex_unlock(&watch->lock);
}
