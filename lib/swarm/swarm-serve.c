/* SPDX-License-Identifier: MIT */
/* A swarm's slots: sends to other members, when a slot is free, and when the member may end.
 * The contracts are in lib/swarm/swarm.h and swarm-view.h. */
#include "config.h"

#include "lib/swarm/swarm-view.h"

/* A member of a chain waits so much longer for the next one, for each member behind the next one:
 * of those that wait for a slow member, the one before the slow member is to say so. */
#define BEHIND_NS (HOIST__SWARM_PATIENCE_NS / 8)
#define MOST_BEHIND 4u

/* --- the way of a slot's cell --- */

static unsigned place_of(const struct hoist__swarm_way *way, unsigned member)
{
	for (unsigned i = 0; i < way->n; i++)
		if (way->members[i] == member)
			return i;
	return HOIST__SWARM_NOBODY;
}

/* Notes the members that should ask this one for the slot's cell. */
void hoist__swarm_note_expected(const struct hoist__swarm *s, struct hoist__swarm_slot *slot,
				const struct hoist__swarm_way *way)
{
	unsigned place = place_of(way, 0);
	slot->expect = (struct hoist__member_set){.word = {0}};
	slot->place = way->apart && place != HOIST__SWARM_NOBODY ? 0 : place;
	slot->depth = 0;
	slot->view = s->view;
	slot->n_behind = 0;
	if (way->apart || place == HOIST__SWARM_NOBODY)
		return;
	for (unsigned i = place; i > 0; i = way->before[i])
		slot->depth++;
	for (unsigned i = place + 1; i < way->n; i++)
		if (way->before[i] == place)
			hoist__member_set_add(&slot->expect, way->members[i]);
		else if (!way->star && slot->n_behind < MOST_BEHIND)
			slot->n_behind++;
}

/* Does the member at one place of the way get the cell from the one at the other, or from one that
 * does? */
static bool gets_from(const struct hoist__swarm_way *way, unsigned place, unsigned from)
{
	if (way->apart || place >= way->n || from >= way->n)
		return false;
	while (place > 0 && place != from)
		place = way->before[place];
	return place == from;
}

void hoist__swarm_look_at_view(const struct hoist__swarm *s, struct hoist__swarm_slot *slot,
			       uint64_t now)
{
	struct hoist__swarm_way way;
	if (slot->view == s->view)
		return;
	bool share_changed = slot->view < s->share_view;
	hoist__swarm_way_of(s, slot->cell, now, &way);
	hoist__swarm_note_expected(s, slot, &way);
	slot->circular = share_changed && gets_from(&way, place_of(&way, slot->from), slot->place);
}

bool hoist__swarm_asks_for_others(const struct hoist__swarm_member *member,
				  const struct hoist__swarm_slot *slot)
{
	for (unsigned i = 0; i < member->n_asks; i++)
		if (member->asks[i].cell == slot->cell && member->asks[i].last_resort &&
		    !hoist__blocks_within(member->asks[i].blocks, slot->blocks))
			return true;
	return false;
}

/* Should the member ask for the slot's cell, and is it waited for? */
static bool is_expected(const struct hoist__swarm *s, const struct hoist__swarm_slot *slot,
			unsigned m, uint64_t now)
{
	return hoist__member_set_has(&slot->expect, m) &&
	       !hoist__member_set_has(&slot->served, m) && s->members[m].here &&
	       !hoist__swarm_is_done(s, m, slot->cell) && !hoist__swarm_is_slow(s, m, now) &&
	       !hoist__swarm_asks_for_others(&s->members[m], slot);
}

/* --- asks of others --- */

enum fate { WAITS, SENDABLE, REFUSED };

static bool will_have(const struct hoist__swarm *s, size_t cell, uint64_t now)
{
	uint64_t own[HOIST__CELL_WORDS];
	struct hoist__swarm_way way;
	if (hoist__swarm_step_of(s, 0, cell) < s->next)
		return false;
	if (hoist__swarm_wants_of(&s->members[0].wants, cell, own) > 0)
		return true;
	hoist__swarm_way_of(s, cell, now, &way);
	return way.has_reader && way.members[0] == 0;
}

static bool is_unreadable(const struct hoist__swarm *s, size_t cell)
{
	return (s->marks[cell] & HOIST__CELL_UNREADABLE) != 0;
}

/* Would this member and @member wait for each other?  True if nobody that is left has the file of
 * the slot's cell, and this member gets the cell from @member, or from one that does.  After the
 * last member with the file has left, others still ask in the order of before. */
static bool is_circular(const struct hoist__swarm *s, const struct hoist__swarm_slot *slot,
			unsigned member, uint64_t now)
{
	struct hoist__swarm_way way;
	if (slot->state != HOIST__SLOT_ASKED || hoist__swarm_anybody_has(s, slot->cell))
		return false;
	hoist__swarm_way_of(s, slot->cell, now, &way);
	return gets_from(&way, place_of(&way, 0), place_of(&way, member));
}

static enum fate fate_of(struct hoist__swarm *s, unsigned member,
			 const struct hoist__swarm_ask *ask, uint64_t now)
{
	const struct hoist__swarm_slot *slot = hoist__swarm_slot_at(s, ask->cell);
	bool resort = ask->last_resort && hoist__swarm_can_read(s, ask->cell);
	if (is_unreadable(s, ask->cell) && (slot == NULL || slot->state != HOIST__SLOT_HERE))
		return REFUSED;
	if (slot == NULL)
		return resort || will_have(s, ask->cell, now) ? WAITS : REFUSED;
	if (slot->state == HOIST__SLOT_CHOSEN)
		return WAITS;
	if (!hoist__blocks_within(ask->blocks, slot->blocks))
		return resort ? WAITS : REFUSED;
	if (slot->state == HOIST__SLOT_HERE)
		return SENDABLE;
	return is_circular(s, slot, member, now) ? REFUSED : WAITS;
}

static void give_send(struct hoist__swarm *s, unsigned member, unsigned i,
		      struct hoist__swarm_act *ret)
{
	struct hoist__swarm_member *m = &s->members[member];
	const struct hoist__swarm_ask *ask = &m->asks[i];
	struct hoist__swarm_slot *slot = hoist__swarm_slot_at(s, ask->cell);
	*ret = (struct hoist__swarm_act){.deed = HOIST__SWARM_SEND,
					 .member = member,
					 .slot = (unsigned)(slot - s->slots),
					 .cell = ask->cell,
					 .lend = ask->lend,
					 .ticket = ask->ticket};
	memcpy(ret->blocks, ask->blocks, sizeof ret->blocks);
	slot->n_sending++;
	s->n_sending += !ask->lend;
	m->n_sending += !ask->lend;
	s->counts.sent_bytes += hoist__blocks_count(ask->blocks) * HOIST__BLOCK_BYTES;
	hoist__swarm_drop_ask(m, i);
}

bool hoist__swarm_answer(struct hoist__swarm *s, uint64_t now, struct hoist__swarm_act *ret)
{
	unsigned best = HOIST__SWARM_NOBODY;
	unsigned best_ask = 0;
	for (unsigned m = 1; m < s->n_members; m++) {
		struct hoist__swarm_member *member = &s->members[m];
		for (unsigned i = 0; i < member->n_asks; i++) {
			const struct hoist__swarm_ask *ask = &member->asks[i];
			enum fate fate = fate_of(s, m, ask, now);
			if (fate == REFUSED) {
				*ret = (struct hoist__swarm_act){
					.deed = HOIST__SWARM_REFUSE,
					.member = m,
					.cell = ask->cell,
					.ticket = ask->ticket,
					.unreadable = is_unreadable(s, ask->cell)};
				hoist__swarm_drop_ask(member, i);
				return true;
			}
			bool may = ask->lend || (s->n_sending < HOIST__SWARM_SENDS &&
						 member->n_sending < HOIST__SWARM_SENDS / 2);
			if (fate == SENDABLE && may &&
			    (best == HOIST__SWARM_NOBODY ||
			     hoist__swarm_step_of(s, 0, ask->cell) <
				     hoist__swarm_step_of(s, 0,
							  s->members[best].asks[best_ask].cell))) {
				best = m;
				best_ask = i;
			}
		}
	}
	if (best != HOIST__SWARM_NOBODY)
		give_send(s, best, best_ask, ret);
	return best != HOIST__SWARM_NOBODY;
}

/* --- slots that become free --- */

/* Is the cell farther on in the member's pace than the member can have begun?  A machine whose
 * members lend each other their cells reads far ahead of the others. */
static bool is_far_behind(const struct hoist__swarm *s, unsigned m, size_t cell)
{
	return hoist__swarm_step_of(s, m, cell) >= s->members[m].done + s->options.n_slots;
}

/* A member whose load has stopped never comes near. */
static bool is_coming(struct hoist__swarm_member *member, uint64_t now)
{
	if (member->done != member->done_was) {
		member->done_was = member->done;
		member->moved_at = now;
	}
	return now <= member->moved_at + HOIST__SWARM_PATIENCE_NS;
}

/* Notes that members were waited for long enough, if another cell waits for the slot.  Waiting
 * begins when the last of those that are coming is near the cell. */
static void lose_patience(struct hoist__swarm *s, struct hoist__swarm_slot *slot, uint64_t now)
{
	for (unsigned m = 1; s->has_neighbours && m < s->n_members; m++)
		if (is_expected(s, slot, m, now) && is_far_behind(s, m, slot->cell) &&
		    is_coming(&s->members[m], now))
			slot->since = now;
	if (now <= slot->since + HOIST__SWARM_PATIENCE_NS ||
	    (s->n_free > hoist__swarm_left_free(s) && s->next < s->options.n_cells))
		return;
	for (unsigned m = 1; m < s->n_members; m++)
		if (is_expected(s, slot, m, now) &&
		    now > slot->since + hoist__swarm_patience(s, m) + slot->n_behind * BEHIND_NS)
			s->members[m].warn_slow = true;
}

void hoist__swarm_release(struct hoist__swarm *s, struct hoist__swarm_slot *slot, uint64_t now)
{
	if (slot->needed || slot->n_sending > 0)
		return;
	hoist__swarm_look_at_view(s, slot, now);
	lose_patience(s, slot, now);
	for (unsigned m = 1; m < s->n_members; m++)
		if (is_expected(s, slot, m, now))
			return;
	/* Asks that the slot cannot serve wait until the cell is read once more. */
	bool asked = false;
	for (unsigned m = 1; m < s->n_members && !asked; m++)
		for (unsigned i = 0; i < s->members[m].n_asks && !asked; i++)
			asked = s->members[m].asks[i].cell == slot->cell &&
				hoist__blocks_within(s->members[m].asks[i].blocks, slot->blocks);
	if (!asked)
		hoist__swarm_free_slot(s, slot, now);
}

bool hoist__swarm_may_end(const struct hoist__swarm *swarm)
{
	bool needed = false; /* by a member that lacks files */
	bool other = false;  /* another member with all files stays */
	if (swarm->next < swarm->options.n_cells || swarm->n_sending > 0 ||
	    swarm->n_free < swarm->options.n_slots)
		return false;
	for (unsigned m = 1; m < swarm->n_members; m++) {
		const struct hoist__swarm_member *member = &swarm->members[m];
		bool stays = member->here && member->done < swarm->options.n_cells;
		needed = needed || member->n_asks > 0 || (stays && !member->reads_all);
		other = other || (stays && member->reads_all);
	}
	return !needed || !swarm->options.reads || other;
}
