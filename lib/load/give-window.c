/* SPDX-License-Identifier: MIT */
/* The window of a load: lots take memory when their bytes are due, and make room when they are
 * back.
 * The contract is in lib/load/give.h. */
#include "config.h"

#include "base/assert.h"
#include "device/device.h"
#include "lib/device/device.h"
#include "lib/load/give.h"
#include "lib/load/pump.h"

bool hoist__give_fits_on(const struct hoist__give *give, unsigned target, bool idle)
{
	const struct hoist__give_window *window = &give->windows[target];
	bool room = window->needs <= give->window_bytes &&
		    window->held <= give->window_bytes - window->needs;
	return window->needs == 0 || room || window->held == 0 || (idle && window->out == 0);
}

bool hoist__give_fits(const struct hoist__give *give, bool idle)
{
	bool fits = true;
	for (unsigned t = 0; t < give->n_targets && fits; t++)
		fits = hoist__give_fits_on(give, t, idle);
	return fits;
}

/* --- back --- */

static void count_back(struct hoist__give_place *place)
{
	struct hoist__give_window *window = &place->give->windows[place->target];
	HOIST__ASSERT(place->bytes <= window->held);
	window->held -= place->bytes;
	if (place->out) {
		HOIST__ASSERT(place->bytes <= window->out);
		window->out -= place->bytes;
	}
	place->out = false;
}

/* A forked child never takes the lock, which another thread of its parent may have held. */
void hoist__give_back(void *context)
{
	struct hoist__give_place *place = context;
	struct hoist__give *give = place->give;
	if (give->generation != hoist__fork_now())
		return;
	pthread_mutex_lock(&give->lock);
	count_back(place);
	place->give = NULL;
	if (give->engine != NULL)
		hoist__engine_wake(give->engine);
	hoist__give_tell(give);
	pthread_mutex_unlock(&give->lock);
	hoist__give_unref(give);
}

/* --- taken --- */

/* Takes the lot's memory on one target. */
static int take_on(struct hoist_load *load, unsigned t, size_t lot)
{
	struct hoist__give *give = load->give;
	struct hoist__target *target = &load->targets[t];
	struct hoist__give_place *place = hoist__give_place(load, t, lot);
	*place = (struct hoist__give_place){give, t, load->plan.lots[lot].bytes, false};
	pthread_mutex_lock(&give->lock);
	struct hoist__give_window *window = &give->windows[t];
	window->held += place->bytes;
	pthread_mutex_unlock(&give->lock);
	int err = hoist__load_take_lot(load, target, lot);
	pthread_mutex_lock(&give->lock);
	if (err == 0 && window->held > give->peak)
		give->peak = window->held;
	if (err < 0)
		count_back(place);
	pthread_mutex_unlock(&give->lock);
	if (err < 0) {
		place->give = NULL;
		return hoist__fail_in(err, "the memory of tensor \"%.200s\" on %s",
				      hoist__give_name(load, lot),
				      hoist_device_spec(target->device));
	}
	atomic_fetch_add_explicit(&give->refs, 1, memory_order_relaxed);
	hoist__storage_watch(target->storages[lot], hoist__give_back, place);
	return 0;
}

static int take(struct hoist_load *load, size_t lot)
{
	int err = 0;
	load->give->states[lot] = HOIST__GIVE_TAKEN;
	for (unsigned t = 0; err == 0 && t < load->give->n_targets; t++)
		if (load->targets[t].want == load->plan.lots[lot].want)
			err = take_on(load, t, lot);
	return err;
}

/* --- the lots of a chunk --- */

/* Goes through the lots of a chunk, some of them several times. */
struct walk {
	const struct hoist__chunk *chunk;
	struct hoist__piece_cursor cursor;
	struct hoist__plan_piece piece;
	size_t place;
	bool begun;
};

/* SIZE_MAX: there are no more. */
static size_t next_lot(const struct hoist_load *load, struct walk *walk)
{
	const struct hoist__plan_extent *extent = &load->plan.extents[walk->chunk->extent];
	if (!extent->staged) {
		bool first = !walk->begun;
		walk->begun = true;
		return first ? extent->lot : SIZE_MAX;
	}
	if (walk->begun && ++walk->place < walk->piece.n_places)
		return hoist__plan_place(&load->plan, &walk->piece, walk->place)->lot;
	walk->begun = hoist__plan_piece(&load->plan, walk->chunk, &walk->cursor, &walk->piece);
	walk->place = 0;
	return walk->begun ? hoist__plan_place(&load->plan, &walk->piece, 0)->lot : SIZE_MAX;
}

/* Marks the lots of the chunk that have no memory, and adds up their bytes.  Returns: the first;
 * SIZE_MAX: all have memory. */
static size_t find_needed(struct hoist_load *load, const struct hoist__chunk *chunk)
{
	struct hoist__give *give = load->give;
	struct walk walk = {.chunk = chunk};
	size_t first = SIZE_MAX;
	size_t lot;
	pthread_mutex_lock(&give->lock);
	for (unsigned t = 0; t < give->n_targets; t++)
		give->windows[t].needs = 0;
	while ((lot = next_lot(load, &walk)) != SIZE_MAX) {
		if (give->states[lot] != HOIST__GIVE_ABSENT)
			continue;
		give->states[lot] = HOIST__GIVE_NEEDED;
		first = first != SIZE_MAX ? first : lot;
		for (unsigned t = 0; t < give->n_targets; t++)
			if (load->targets[t].want == load->plan.lots[lot].want)
				give->windows[t].needs += load->plan.lots[lot].bytes;
	}
	pthread_mutex_unlock(&give->lock);
	return first;
}

/* Takes the marked lots, or (@takes false) only removes the marks. */
static int take_marked(struct hoist_load *load, const struct hoist__chunk *chunk, bool takes)
{
	struct hoist__give *give = load->give;
	struct walk walk = {.chunk = chunk};
	size_t lot;
	int err = 0;
	while ((lot = next_lot(load, &walk)) != SIZE_MAX) {
		if (give->states[lot] != HOIST__GIVE_NEEDED)
			continue;
		give->states[lot] = HOIST__GIVE_ABSENT;
		if (takes && err == 0)
			err = take(load, lot);
	}
	return err;
}

static bool is_idle(const struct hoist_load *load)
{
	bool idle = load->job.staging == NULL || hoist__staging_n_copying(load->job.staging) == 0;
	for (unsigned d = 0; d < load->disk_table.n && idle; d++)
		idle = load->disks[d].n_flights == 0;
	return idle;
}

/* Looks for room for the needed lots, of which @first is the first. */
static bool has_room(struct hoist_load *load, unsigned disk, size_t first)
{
	struct hoist__give *give = load->give;
	pthread_mutex_lock(&give->lock);
	bool fits = hoist__give_fits(give, is_idle(load));
	give->starved = give->starved && !fits;
	give->due = first;
	pthread_mutex_unlock(&give->lock);
	give->turn = fits ? HOIST__MAX_DISKS : disk;
	return fits;
}

bool hoist__give_admits(struct hoist_load *load, unsigned disk)
{
	struct hoist__give *give = load->give;
	if (give == NULL || give->window_bytes == 0)
		return true;
	const struct hoist__chunk *chunk = &load->disks[disk].next;
	if (give->turn != HOIST__MAX_DISKS && give->turn != disk) {
		struct walk walk = {.chunk = chunk};
		size_t lot;
		while ((lot = next_lot(load, &walk)) != SIZE_MAX)
			if (give->states[lot] == HOIST__GIVE_ABSENT)
				return false;
		return true;
	}
	size_t first = find_needed(load, chunk);
	if (first == SIZE_MAX)
		return true;
	bool fits = has_room(load, disk, first);
	int err = take_marked(load, chunk, fits);
	if (err < 0)
		hoist__job_fail(&load->job, err);
	return fits && err == 0;
}

bool hoist__give_starves(struct hoist_load *load, bool *fresh)
{
	struct hoist__give *give = load->give;
	if (give == NULL || give->turn == HOIST__MAX_DISKS || !is_idle(load))
		return false;
	pthread_mutex_lock(&give->lock);
	*fresh = !give->starved;
	give->starved = true;
	hoist__give_tell(give);
	pthread_mutex_unlock(&give->lock);
	return true;
}

uint64_t hoist__give_peak(struct hoist_load *load)
{
	if (load->give == NULL)
		return 0;
	pthread_mutex_lock(&load->give->lock);
	uint64_t peak = load->give->peak;
	pthread_mutex_unlock(&load->give->lock);
	return peak;
}
