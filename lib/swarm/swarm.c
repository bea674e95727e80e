/* SPDX-License-Identifier: MIT */
/* A swarm's slots: the next deed.
 * The contract is in lib/swarm/swarm.h. */
#include "config.h"

#include "base/assert.h"
#include "lib/swarm/swarm-view.h"

#define RESORT 8u /* times the patience: of the last resort, and of its giver */
#define LOOK_NS (UINT64_C(100) * 1000000) /* how often patience is looked at */
/* A late member waits no longer for others that do not move. */
#define EARLY_NS (4 * HOIST__SWARM_PATIENCE_NS)
/* Each member of a chain is so much more patient than the one before it. */
#define PLACE_NS (HOIST__SWARM_PATIENCE_NS / 4)

static size_t cell_at_step(const struct hoist__swarm *s, size_t step)
{
	size_t cell = s->options.first_cell + step;
	return cell < s->options.n_cells ? cell : cell - s->options.n_cells;
}

static void choose_slot(struct hoist__swarm *s, size_t cell, uint64_t now)
{
	for (unsigned i = 0; i < s->options.n_slots; i++) {
		struct hoist__swarm_slot *slot = &s->slots[i];
		uint64_t own[HOIST__CELL_WORDS];
		if (slot->state != HOIST__SLOT_FREE)
			continue;
		*slot = (struct hoist__swarm_slot){.cell = cell};
		slot->needed = (s->marks[cell] & HOIST__CELL_USED) == 0 &&
			       hoist__swarm_wants_of(&s->members[0].wants, cell, own) > 0;
		s->slot_of[cell] = (uint16_t)(i + 1);
		s->n_free--;
		hoist__swarm_set_state(s, slot, HOIST__SLOT_CHOSEN, now);
		return;
	}
	HOIST__ASSERT(false);
}

/* --- where a cell's bytes come from --- */

static bool may_ask(const struct hoist__swarm *s, const struct hoist__swarm_slot *slot, unsigned m,
		    uint64_t now)
{
	return m != 0 && !hoist__member_set_has(&slot->tried, m) && !s->members[m].distrusted &&
	       (!hoist__swarm_is_slow(s, m, now) || !hoist__swarm_has(s, 0, slot->cell));
}

static void give_ask(struct hoist__swarm *s, struct hoist__swarm_slot *slot, unsigned member,
		     bool last_resort, uint64_t now, struct hoist__swarm_act *ret)
{
	slot->from = member;
	slot->circular = false;
	ret->deed = HOIST__SWARM_ASK;
	ret->member = member;
	ret->last_resort = last_resort;
	hoist__swarm_set_state(s, slot, HOIST__SLOT_ASKED, now);
}

static void give_read(struct hoist__swarm *s, struct hoist__swarm_slot *slot, uint64_t now,
		      struct hoist__swarm_act *ret)
{
	/* Blocks that others already ask for are read, too. */
	for (unsigned m = 1; m < s->n_members && !slot->alone; m++)
		for (unsigned i = 0; i < s->members[m].n_asks; i++)
			for (unsigned w = 0;
			     s->members[m].asks[i].cell == slot->cell && w < HOIST__CELL_WORDS; w++)
				slot->blocks[w] |= s->members[m].asks[i].blocks[w];
	ret->deed = HOIST__SWARM_READ;
	s->counts.read_bytes += hoist__blocks_count(slot->blocks) * HOIST__BLOCK_BYTES;
	hoist__swarm_reading_begins(s, now);
	hoist__swarm_set_state(s, slot, HOIST__SLOT_READING, now);
}

/* May the cell be asked for at the member as the last resort? */
static bool may_resort(const struct hoist__swarm *s, unsigned m, size_t cell)
{
	return m != 0 && s->members[m].here && hoist__swarm_has(s, m, cell) &&
	       !s->members[m].distrusted;
}

/* Asks a member that has the cell's file and was not tried.  False: there is none. */
static bool ask_untried(struct hoist__swarm *s, struct hoist__swarm_slot *slot,
			const struct hoist__swarm_way *way, uint64_t now,
			struct hoist__swarm_act *ret)
{
	for (unsigned i = 0; i < way->n + s->n_members; i++) {
		unsigned m = i < way->n ? way->members[i] : i - way->n;
		if (!may_resort(s, m, slot->cell) || hoist__member_set_has(&slot->tried, m))
			continue;
		give_ask(s, slot, m, true, now, ret);
		return true;
	}
	return false;
}

/* Asks one that has the cell's file as the last resort: those that were late after the others,
 * again and again.  False: there is none left. */
static bool resort(struct hoist__swarm *s, struct hoist__swarm_slot *slot,
		   const struct hoist__swarm_way *way, uint64_t now, struct hoist__swarm_act *ret)
{
	if (!slot->resort)
		slot->tried = (struct hoist__member_set){.word = {0}};
	slot->resort = true;
	if (ask_untried(s, slot, way, now, ret))
		return true;
	for (unsigned w = 0; w < sizeof slot->late / sizeof slot->late.word[0]; w++)
		slot->tried.word[w] &= ~slot->late.word[w];
	slot->late = (struct hoist__member_set){.word = {0}};
	slot->n_rounds += slot->n_rounds < HOIST__SWARM_SLOWEST;
	return ask_untried(s, slot, way, now, ret);
}

/* Asks a member that may have got the cell while its file was there.  One that would wait for this
 * member refuses.  False: there is none, or a member that is left has the file. */
static bool ask_around(struct hoist__swarm *s, struct hoist__swarm_slot *slot,
		       const struct hoist__swarm_way *way, uint64_t now,
		       struct hoist__swarm_act *ret)
{
	if (hoist__swarm_anybody_has(s, slot->cell))
		return false;
	for (unsigned i = 0; i < way->n; i++)
		if (may_ask(s, slot, way->members[i], now)) {
			give_ask(s, slot, way->members[i], false, now, ret);
			return true;
		}
	return false;
}

/* Reads this member's own blocks of a cell that is unreadable: the blocks that failed may be
 * others'.  False: that was tried. */
static bool read_alone(struct hoist__swarm *s, struct hoist__swarm_slot *slot, uint64_t now,
		       struct hoist__swarm_act *ret)
{
	if (!hoist__swarm_has(s, 0, slot->cell) || slot->alone)
		return false;
	slot->alone = true;
	(void)hoist__swarm_wants_of(&s->members[0].wants, slot->cell, slot->blocks);
	give_read(s, slot, now, ret);
	return true;
}

static bool is_asked_for_others(const struct hoist__swarm *s, const struct hoist__swarm_slot *slot)
{
	bool found = false;
	for (unsigned m = 1; m < s->n_members && !found; m++)
		found = hoist__swarm_asks_for_others(&s->members[m], slot);
	return found;
}

/* Decides where the bytes of a CHOSEN slot come from. */
static void decide(struct hoist__swarm *s, struct hoist__swarm_slot *slot, uint64_t now,
		   struct hoist__swarm_act *ret)
{
	struct hoist__swarm_way way;
	hoist__swarm_way_of(s, slot->cell, now, &way);
	hoist__swarm_note_expected(s, slot, &way);
	unsigned place = slot->place;
	bool may_read = hoist__swarm_can_read(s, slot->cell);
	ret->slot = (unsigned)(slot - s->slots);
	ret->cell = slot->cell;
	memset(slot->blocks, 0, sizeof slot->blocks);
	if (way.apart)
		(void)hoist__swarm_wants_of(&s->members[0].wants, slot->cell, slot->blocks);
	else if (place != HOIST__SWARM_NOBODY)
		hoist__swarm_blocks_at(s, &way, slot->cell, place, slot->blocks);
	/* Others have the blocks of the way alone: who wants more gets them by a read. */
	bool reader = place == 0 || place == HOIST__SWARM_NOBODY ||
		      (may_read && is_asked_for_others(s, slot));
	for (unsigned i = reader || slot->resort ? 0 : place; i > 0;) {
		i = way.before[i];
		unsigned m = way.members[i];
		bool past = way.has_reader && m == way.members[0] &&
			    hoist__swarm_is_done(s, m, slot->cell);
		if (!may_ask(s, slot, m, now))
			continue;
		give_ask(s, slot, m, past && !may_read, now, ret);
		memcpy(ret->blocks, slot->blocks, sizeof ret->blocks);
		return;
	}
	if (may_read)
		give_read(s, slot, now, ret);
	else if (!slot->needed ||
		 (!ask_around(s, slot, &way, now, ret) && !resort(s, slot, &way, now, ret) &&
		  !read_alone(s, slot, now, ret))) {
		ret->deed = slot->needed ? HOIST__SWARM_LOST : HOIST__SWARM_NOTHING;
		hoist__swarm_free_slot(s, slot, now);
	}
	memcpy(ret->blocks, slot->blocks, sizeof ret->blocks);
}

static void withdraw(struct hoist__swarm *s, struct hoist__swarm_slot *slot, uint64_t now)
{
	slot->told = false;
	hoist__swarm_set_state(s, slot, HOIST__SLOT_LEAVING, now);
}

/* Gives up the last resort after long if there is another: a slow network is the usual cause. */
static void give_up_resort(struct hoist__swarm *s, struct hoist__swarm_slot *slot, uint64_t now)
{
	if (now <= slot->since + (RESORT * hoist__swarm_patience(s, slot->from) << slot->n_rounds))
		return;
	for (unsigned m = 1; m < s->n_members; m++)
		if (m != slot->from && may_resort(s, m, slot->cell)) {
			s->counts.n_late++;
			hoist__member_set_add(&slot->late, slot->from);
			withdraw(s, slot, now);
			return;
		}
}

/* Gives up an ask if the asked member is slow now, if this member has become the reader, or the
 * asked one's giver, or after this member's patience.  A new reader must begin: all others wait for
 * it.  Members farther from the reader are more patient: one member asks elsewhere first, and the
 * others get the cell from it. */
static void give_up(struct hoist__swarm *s, struct hoist__swarm_slot *slot, uint64_t now)
{
	if (slot->resort) {
		give_up_resort(s, slot, now);
		return;
	}
	hoist__swarm_look_at_view(s, slot, now);
	if ((slot->place == 0 && hoist__swarm_can_read(s, slot->cell)) || slot->circular ||
	    hoist__swarm_is_slow(s, slot->from, now)) {
		withdraw(s, slot, now);
		return;
	}
	if (now <= slot->since + HOIST__SWARM_PATIENCE_NS ||
	    now <= slot->since + hoist__swarm_patience(s, slot->from) + slot->depth * PLACE_NS)
		return;
	s->counts.n_late++;
	s->members[slot->from].warn_slow = true;
	withdraw(s, slot, now);
}

static bool warn(struct hoist__swarm *s, struct hoist__swarm_act *ret)
{
	for (unsigned m = 0; m < s->n_members; m++) {
		struct hoist__swarm_member *member = &s->members[m];
		if (!member->here || (!member->warn_slow && !member->warn_wrong))
			continue;
		*ret = (struct hoist__swarm_act){
			.deed = HOIST__SWARM_WARN, .member = m, .distrust = member->warn_wrong};
		member->warn_slow = member->warn_slow && member->warn_wrong;
		member->warn_wrong = false;
		return true;
	}
	return false;
}

/* Looks at all slots.  True: @ret is something to do. */
static bool look_at_slots(struct hoist__swarm *s, uint64_t now, struct hoist__swarm_act *ret)
{
	for (unsigned i = 0; i < s->options.n_slots; i++) {
		struct hoist__swarm_slot *slot = &s->slots[i];
		if (slot->state == HOIST__SLOT_HERE)
			hoist__swarm_release(s, slot, now);
		if (slot->state == HOIST__SLOT_ASKED)
			give_up(s, slot, now);
		if (slot->state == HOIST__SLOT_LEAVING && !slot->told) {
			slot->told = true;
			*ret = (struct hoist__swarm_act){.deed = HOIST__SWARM_WITHDRAW,
							 .member = slot->from,
							 .slot = i,
							 .cell = slot->cell};
			return true;
		}
		if (slot->state == HOIST__SLOT_CHOSEN) {
			decide(s, slot, now, ret);
			if (ret->deed != HOIST__SWARM_NOTHING)
				return true;
		}
	}
	return false;
}

/* --- cells that get a slot --- */

/* Gives slots to cells that others ask for as the last resort. */
static void choose_resorts(struct hoist__swarm *s, uint64_t now)
{
	unsigned n = 0;
	for (unsigned i = 0; i < s->options.n_slots; i++)
		n += s->slots[i].guest && s->slots[i].state != HOIST__SLOT_FREE;
	for (unsigned m = 1; m < s->n_members; m++)
		for (unsigned i = 0; i < s->members[m].n_asks && s->n_free > 0; i++) {
			const struct hoist__swarm_ask *ask = &s->members[m].asks[i];
			if (n == s->options.n_slots / HOIST__SWARM_GUESTS)
				return;
			if (!ask->last_resort || !hoist__swarm_can_read(s, ask->cell) ||
			    hoist__swarm_slot_at(s, ask->cell) != NULL)
				continue;
			choose_slot(s, ask->cell, now);
			hoist__swarm_slot_at(s, ask->cell)->guest = true;
			n++;
		}
}

/* Does this member want the cell, or read it for others? */
static bool takes_part(const struct hoist__swarm *s, size_t cell, uint64_t now)
{
	uint64_t own[HOIST__CELL_WORDS];
	struct hoist__swarm_way way;
	if (hoist__swarm_wants_of(&s->members[0].wants, cell, own) > 0)
		return true;
	if (!hoist__swarm_has(s, 0, cell))
		return false;
	hoist__swarm_way_of(s, cell, now, &way);
	bool lacking = false;
	for (unsigned i = 1; i < way.n; i++)
		lacking = lacking || !hoist__swarm_is_done(s, way.members[i], cell);
	return lacking && way.has_reader && way.members[0] == 0;
}

/* A late member waits for the others to come near its cell, but not for ever. */
static bool is_early(const struct hoist__swarm *s, size_t cell, uint64_t now)
{
	bool any = false;
	if (s->options.first_cell == 0 || cell < s->options.first_cell || now > s->began + EARLY_NS)
		return false;
	for (unsigned m = 1; m < s->n_members; m++) {
		const struct hoist__swarm_member *member = &s->members[m];
		if (!member->here || member->first_cell > cell || hoist__swarm_is_slow(s, m, now))
			continue;
		any = true;
		if (hoist__swarm_step_of(s, m, cell) < member->done + s->options.n_slots)
			return false;
	}
	return any;
}

static void choose_next(struct hoist__swarm *s, uint64_t now)
{
	s->began = s->began == 0 ? now : s->began;
	while (s->n_free > hoist__swarm_left_free(s) && s->next < s->options.n_cells) {
		size_t cell = cell_at_step(s, s->next);
		if (is_early(s, cell, now))
			return;
		if (hoist__swarm_slot_at(s, cell) == NULL && takes_part(s, cell, now))
			choose_slot(s, cell, now);
		s->next++;
		s->changed = true;
	}
}

void hoist__swarm_next(struct hoist__swarm *swarm, uint64_t now, struct hoist__swarm_act *ret)
{
	*ret = (struct hoist__swarm_act){.deed = HOIST__SWARM_NOTHING};
	while (swarm->changed || now >= swarm->looked_at + LOOK_NS) {
		swarm->changed = false;
		choose_resorts(swarm, now);
		choose_next(swarm, now);
		if (look_at_slots(swarm, now, ret) || warn(swarm, ret) ||
		    hoist__swarm_answer(swarm, now, ret)) {
			swarm->changed = true;
			return;
		}
		swarm->looked_at = now;
	}
	bool waits = swarm->n_free < swarm->options.n_slots || swarm->next < swarm->options.n_cells;
	ret->wake_ns = waits ? swarm->looked_at + LOOK_NS : UINT64_MAX;
}

/* --- events --- */

void hoist__swarm_read(struct hoist__swarm *swarm, unsigned slot, bool failed, uint64_t now)
{
	struct hoist__swarm_slot *s = &swarm->slots[slot];
	HOIST__ASSERT(s->state == HOIST__SLOT_READING);
	hoist__swarm_reading_ends(swarm, s, now);
	if (failed)
		swarm->marks[s->cell] |= HOIST__CELL_UNREADABLE;
	hoist__swarm_set_state(swarm, s, failed ? HOIST__SLOT_CHOSEN : HOIST__SLOT_HERE, now);
}

/* A moving average; 0: none yet. */
static uint64_t average(uint64_t before, uint64_t ns)
{
	return before == 0 ? ns : before - before / 8 + ns / 8;
}

void hoist__swarm_received(struct hoist__swarm *swarm, unsigned slot, uint64_t ns, uint64_t now)
{
	struct hoist__swarm_slot *s = &swarm->slots[slot];
	HOIST__ASSERT(s->state == HOIST__SLOT_ASKED || s->state == HOIST__SLOT_LEAVING);
	struct hoist__swarm_member *from = &swarm->members[s->from];
	from->take_ns = average(from->take_ns, ns);
	swarm->counts.received_bytes += hoist__blocks_count(s->blocks) * HOIST__BLOCK_BYTES;
	hoist__swarm_set_state(swarm, s, HOIST__SLOT_HERE, now);
}

static void try_another(struct hoist__swarm *swarm, struct hoist__swarm_slot *slot, uint64_t now)
{
	hoist__member_set_add(&slot->tried, slot->from);
	hoist__swarm_set_state(swarm, slot, HOIST__SLOT_CHOSEN, now);
}

void hoist__swarm_refused(struct hoist__swarm *swarm, unsigned slot, bool wrong, uint64_t now)
{
	struct hoist__swarm_member *from = &swarm->members[swarm->slots[slot].from];
	HOIST__ASSERT(
		swarm->slots[slot].state == HOIST__SLOT_ASKED ||
		(swarm->slots[slot].state == HOIST__SLOT_LEAVING && !swarm->slots[slot].told));
	swarm->counts.n_refused++;
	from->distrusted = from->distrusted || wrong;
	from->warn_wrong = from->warn_wrong || wrong;
	swarm->view += wrong;
	try_another(swarm, &swarm->slots[slot], now);
}

void hoist__swarm_lost(struct hoist__swarm *swarm, unsigned slot, uint64_t now)
{
	struct hoist__swarm_slot *s = &swarm->slots[slot];
	HOIST__ASSERT(s->state == HOIST__SLOT_HERE && s->n_sending == 0);
	/* The giver may be the only one that has the cell's file. */
	if (s->resort && ++s->n_lost < HOIST__SWARM_LOSSES)
		hoist__swarm_set_state(swarm, s, HOIST__SLOT_CHOSEN, now);
	else
		try_another(swarm, s, now);
}

void hoist__swarm_withdrawn(struct hoist__swarm *swarm, unsigned slot, uint64_t now)
{
	HOIST__ASSERT(swarm->slots[slot].state == HOIST__SLOT_LEAVING);
	try_another(swarm, &swarm->slots[slot], now);
}

uint64_t hoist__swarm_send_patience(const struct hoist__swarm *swarm, unsigned member,
				    bool on_their_way)
{
	return (on_their_way ? RESORT : 2) * hoist__swarm_patience(swarm, member) +
	       2 * swarm->members[member].send_ns;
}

void hoist__swarm_sent(struct hoist__swarm *swarm, unsigned slot, unsigned member, uint64_t ns)
{
	struct hoist__swarm_member *m = &swarm->members[member];
	struct hoist__swarm_slot *s = &swarm->slots[slot];
	HOIST__ASSERT(s->n_sending > 0 && m->n_sending > 0);
	s->n_sending--;
	m->n_sending--;
	swarm->n_sending--;
	hoist__member_set_add(&s->served, member);
	m->send_ns = average(m->send_ns, ns);
	swarm->changed = true;
}

void hoist__swarm_returned(struct hoist__swarm *swarm, unsigned slot, unsigned member)
{
	HOIST__ASSERT(swarm->slots[slot].n_sending > 0);
	swarm->slots[slot].n_sending--;
	hoist__member_set_add(&swarm->slots[slot].served, member);
	swarm->changed = true;
}

int hoist__swarm_slot_of(const struct hoist__swarm *swarm, size_t cell)
{
	unsigned slot = swarm->slot_of[cell];
	return slot != 0 && swarm->slots[slot - 1].state == HOIST__SLOT_HERE ? (int)slot - 1 : -1;
}

void hoist__swarm_used(struct hoist__swarm *swarm, size_t cell)
{
	swarm->marks[cell] |= HOIST__CELL_USED;
	if (swarm->slot_of[cell] != 0)
		swarm->slots[swarm->slot_of[cell] - 1].needed = false;
	swarm->changed = true;
}

size_t hoist__swarm_done(const struct hoist__swarm *swarm)
{
	size_t done = swarm->next;
	for (unsigned i = 0; i < swarm->options.n_slots; i++) {
		const struct hoist__swarm_slot *slot = &swarm->slots[i];
		size_t step = hoist__swarm_step_of(swarm, 0, slot->cell);
		if (slot->needed && slot->state != HOIST__SLOT_FREE &&
		    slot->state != HOIST__SLOT_HERE && step < done)
			done = step;
	}
	return done;
}

const struct hoist__swarm_counts *hoist__swarm_counts(const struct hoist__swarm *swarm)
{
	return &swarm->counts;
}
