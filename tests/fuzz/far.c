/* SPDX-License-Identifier: MIT */
/* A member of a group on several machines, among members that say anything: frames of any kind and
 * content, wants that do not fit, and a swarm whose members join, leave, ask, warn and boast as
 * they like.  The swarm asks only those that are there, sends only blocks that are in a slot,
 * writes to no slot that is in use; and once the others have left, its load has all that it wants.
 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/swarm/swarm.h"
#include "lib/wire/wire.h"
#include "tests/fuzz/fuzz-support.h"

/* --- frames --- */

static void check_message(const struct hoist__frame *frame, const struct hoist__wire_message *m)
{
	static unsigned char packed[HOIST__CHANNEL_MOST_BYTES];
	struct hoist__wire_message again;
	HOLDS(m->kind == frame->kind && memchr(m->text, '\0', sizeof m->text) != NULL);
	HOLDS(m->n_bytes == 0 ||
	      (m->bytes >= frame->bytes && m->bytes + m->n_bytes == frame->bytes + frame->n_bytes));
	const struct hoist__frame other = {
		.kind = frame->kind, .bytes = packed, .n_bytes = hoist__wire_pack(m, packed)};
	HOLDS(other.n_bytes <= frame->n_bytes && hoist__wire_unpack(&other, &again) == 0);
	HOLDS(again.id == m->id && again.ticket == m->ticket && again.cell == m->cell &&
	      again.flag == m->flag && again.n_bytes == m->n_bytes &&
	      strcmp(again.text, m->text) == 0);
}

enum { MOST_CELLS = 300 };

static bool understood[HOIST__WIRE_BYE + 1]; /* by kind: an input had such a message */

/* Says which kinds of messages none of the inputs had; run.sh wants all. */
static void tell_kinds(void)
{
	for (unsigned kind = HOIST__WIRE_HELLO; kind <= HOIST__WIRE_BYE; kind++)
		if (!understood[kind])
			(void)fprintf(stderr, "fuzz: no input has a message of kind %u\n", kind);
}

/* Asks for the blocks of each cell, once the wants are whole and right. */
static void use_wants(struct hoist__wire_wanting *wanting)
{
	struct hoist__swarm_wants *wants = &wanting->wants;
	uint64_t blocks[HOIST__CELL_WORDS];
	if (!hoist__wire_wanting_whole(wanting) || hoist__swarm_wants_check(wants) < 0)
		return;
	for (size_t c = 0; c < wants->n_cells; c++)
		HOLDS(hoist__swarm_wants_of(wants, c, blocks) <= HOIST__CELL_BLOCKS);
	hoist__swarm_wants_fini(wants);
}

static void hear_frames(struct fuzz_bytes *from)
{
	struct hoist__wire_wanting wanting = {.kinds_here = 0};
	while (from->n > 0) {
		struct hoist__wire_message m;
		uint16_t kind = (uint16_t)fuzz_below(from, HOIST__WIRE_BYE + 2u);
		size_t n = fuzz_below(from, 1u + (fuzz_below(from, 4) == 0 ? 4096 : 100));
		n = n < from->n ? n : from->n;
		const struct hoist__frame frame = {.kind = kind, .bytes = from->p, .n_bytes = n};
		from->p += n;
		from->n -= n;
		if (hoist__wire_unpack(&frame, &m) < 0) {
			fuzz_check_text(hoist_error());
			continue;
		}
		understood[m.kind] = true;
		check_message(&frame, &m);
		/* A member refuses a HELLO of other cells than its own. */
		if (m.kind == HOIST__WIRE_HELLO && m.n_cells <= MOST_CELLS)
			HOLDS(hoist__wire_wanting_begin(&wanting, &m) == 0);
		if (m.kind == HOIST__WIRE_WANTS || m.kind == HOIST__WIRE_PATTERNS)
			(void)hoist__wire_wanting_take(&wanting, &m);
		use_wants(&wanting);
	}
	hoist__swarm_wants_fini(&wanting.wants);
}

/* --- a swarm: what its caller does, and what the caller knows --- */

enum { SWARM_CELLS = 40, MOST_SLOTS = 12, MOST_SENDS = 40, MOST_DEEDS = 20000 };
enum slot_state { IDLE, READING, ASKED, WITHDRAWING, THERE };

static struct known {
	struct hoist__swarm *swarm;
	struct hoist__swarm_wants wants;
	size_t n_cells;
	unsigned n_slots;
	uint64_t now;
	unsigned n_members; /* with those that have gone; number 0 is this one */
	bool here[HOIST__SWARM_MEMBERS];
	bool used[SWARM_CELLS];
	struct {
		enum slot_state state;
		size_t cell;
		unsigned from;
		bool came; /* from a member */
		uint64_t blocks[HOIST__CELL_WORDS];
		unsigned n_sends;
	} slots[MOST_SLOTS];
	struct {
		bool busy, lent;
		unsigned slot, member;
	} sends[MOST_SENDS]; /* loans stand behind the sends */
	bool reads;
	bool lost;
	bool was_bad; /* a reading of its own failed */
} k;

static void take_blocks(struct fuzz_bytes *from, uint64_t *blocks)
{
	uint64_t how = fuzz_below(from, 4);
	memset(blocks, how == 0 ? 0xff : 0, sizeof(uint64_t[HOIST__CELL_WORDS]));
	if (how == 1)
		for (unsigned w = 0; w < HOIST__CELL_WORDS; w++)
			blocks[w] = fuzz_take(from, 1) * UINT64_C(0x0101010101010101);
	if (how > 1)
		blocks[fuzz_below(from, HOIST__CELL_WORDS)] = fuzz_take(from, 8);
}

static void take_wants(struct fuzz_bytes *from, struct hoist__swarm_wants *ret)
{
	static uint64_t bitmap[SWARM_CELLS][HOIST__CELL_WORDS];
	uint64_t how = fuzz_below(from, 3);
	for (size_t c = 0; c < k.n_cells; c++) {
		memset(bitmap[c], how == 0 ? 0xff : 0, sizeof bitmap[c]);
		if (how == 2)
			take_blocks(from, bitmap[c]);
	}
	HOLDS(hoist__swarm_wants_make(bitmap[0], k.n_cells, ret) == 0);
}

static void begin_swarm(struct fuzz_bytes *from)
{
	memset(&k, 0, sizeof k);
	k.n_cells = fuzz_below(from, SWARM_CELLS + 1);
	k.n_slots = 8 + (unsigned)fuzz_below(from, MOST_SLOTS - 8 + 1);
	k.reads = fuzz_below(from, 4) != 0;
	k.now = 1;
	k.n_members = 1;
	take_wants(from, &k.wants);
	const struct hoist__swarm_options options = {
		.id = 100,
		.machine = 7,
		.reads = k.reads,
		.n_cells = k.n_cells,
		.first_cell = fuzz_below(from, 2) * fuzz_below(from, k.n_cells + 1),
		.n_slots = k.n_slots,
		.wants = &k.wants,
	};
	HOLDS(hoist__swarm_create(&options, &k.swarm) == 0);
}

static void end_send(unsigned i)
{
	if (!k.sends[i].busy)
		return;
	k.sends[i].busy = false;
	k.slots[k.sends[i].slot].n_sends--;
	if (k.sends[i].lent)
		hoist__swarm_returned(k.swarm, k.sends[i].slot, k.sends[i].member);
	else
		hoist__swarm_sent(k.swarm, k.sends[i].slot, k.sends[i].member, 1000000);
}

/* If there is no free one, the first loan ends. */
static unsigned loan_entry(void)
{
	for (unsigned i = HOIST__SWARM_SENDS; i < MOST_SENDS; i++)
		if (!k.sends[i].busy)
			return i;
	end_send(HOIST__SWARM_SENDS);
	return HOIST__SWARM_SENDS;
}

static void do_send(const struct hoist__swarm_act *act)
{
	unsigned i = 0;
	while (i < HOIST__SWARM_SENDS && k.sends[i].busy)
		i++;
	if (act->lend)
		i = loan_entry();
	else
		HOLDS(i < HOIST__SWARM_SENDS);
	HOLDS(hoist__swarm_slot_of(k.swarm, act->cell) == (int)act->slot);
	HOLDS(k.slots[act->slot].state == THERE && k.slots[act->slot].cell == act->cell);
	for (unsigned w = 0; w < HOIST__CELL_WORDS; w++)
		HOLDS((act->blocks[w] & ~k.slots[act->slot].blocks[w]) == 0);
	k.sends[i].busy = true;
	k.sends[i].lent = act->lend;
	k.sends[i].slot = act->slot;
	k.sends[i].member = act->member;
	k.slots[act->slot].n_sends++;
}

static void do_fill(const struct hoist__swarm_act *act, enum slot_state state)
{
	HOLDS(act->slot < k.n_slots && act->cell < k.n_cells);
	/* The swarm frees slots by itself: but not while they are written to, or sent. */
	HOLDS(k.slots[act->slot].state == IDLE || k.slots[act->slot].state == THERE);
	HOLDS(k.slots[act->slot].n_sends == 0);
	k.slots[act->slot].state = state;
	k.slots[act->slot].cell = act->cell;
	k.slots[act->slot].from = act->member;
	k.slots[act->slot].came = false;
	memcpy(k.slots[act->slot].blocks, act->blocks, sizeof act->blocks);
}

static void do_deed(const struct hoist__swarm_act *act)
{
	switch (act->deed) {
	case HOIST__SWARM_READ:
		HOLDS(k.reads);
		do_fill(act, READING);
		break;
	case HOIST__SWARM_ASK:
		HOLDS(act->member > 0 && act->member < k.n_members && k.here[act->member]);
		do_fill(act, ASKED);
		break;
	case HOIST__SWARM_SEND:
		HOLDS(act->member > 0 && act->member < k.n_members && k.here[act->member]);
		do_send(act);
		break;
	case HOIST__SWARM_REFUSE:
		HOLDS(act->member > 0 && act->member < k.n_members && k.here[act->member]);
		break;
	case HOIST__SWARM_WITHDRAW:
		HOLDS(k.slots[act->slot].state == ASKED && k.slots[act->slot].from == act->member);
		k.slots[act->slot].state = WITHDRAWING;
		break;
	case HOIST__SWARM_WARN:
		hoist__swarm_warned(k.swarm, act->member, act->distrust, k.now);
		break;
	default:
		k.lost = true;
	}
}

/* Until there is nothing to do. */
static void do_all(void)
{
	struct hoist__swarm_act act;
	for (unsigned i = 0; !k.lost; i++) {
		HOLDS(i < MOST_DEEDS);
		hoist__swarm_next(k.swarm, k.now, &act);
		if (act.deed == HOIST__SWARM_NOTHING)
			break;
		do_deed(&act);
	}
	HOLDS(hoist__swarm_done(k.swarm) <= k.n_cells);
	(void)hoist__swarm_may_end(k.swarm);
}

/* Bytes on their way to a slot end, as @how says. */
static void end_fill(unsigned slot, uint64_t how)
{
	enum slot_state was = k.slots[slot].state;
	bool good = how % 4 != 0;
	if (was == READING) {
		k.was_bad |= !good;
		k.slots[slot].state = good ? THERE : IDLE;
		hoist__swarm_read(k.swarm, slot, !good, k.now);
	} else if (was == ASKED && good) {
		k.slots[slot].state = THERE;
		k.slots[slot].came = true;
		hoist__swarm_received(k.swarm, slot, 1000000, k.now);
	} else if (was == ASKED) {
		k.slots[slot].state = IDLE;
		hoist__swarm_refused(k.swarm, slot, how % 8 != 0, k.now);
	} else if (was == WITHDRAWING) {
		k.slots[slot].state = IDLE;
		hoist__swarm_withdrawn(k.swarm, slot, k.now);
	}
}

/* A neighbour has filled anew what it lent. */
static void lose(unsigned slot)
{
	if (!k.slots[slot].came || k.slots[slot].n_sends > 0 ||
	    hoist__swarm_slot_of(k.swarm, k.slots[slot].cell) != (int)slot)
		return;
	k.slots[slot].state = IDLE;
	k.slots[slot].came = false;
	hoist__swarm_lost(k.swarm, slot, k.now);
}

/* The own load uses what is there. */
static void use_cells(void)
{
	uint64_t own[HOIST__CELL_WORDS];
	for (size_t c = 0; c < k.n_cells; c++) {
		int slot = hoist__swarm_slot_of(k.swarm, c);
		if (slot < 0 || k.used[c] || hoist__swarm_wants_of(&k.wants, c, own) == 0)
			continue;
		HOLDS(k.slots[slot].state == THERE && k.slots[slot].cell == c);
		for (unsigned w = 0; w < HOIST__CELL_WORDS; w++)
			HOLDS((own[w] & ~k.slots[slot].blocks[w]) == 0);
		k.used[c] = true;
		hoist__swarm_used(k.swarm, c);
	}
}

static void join(struct fuzz_bytes *from)
{
	struct hoist__swarm_wants wants;
	uint64_t id = 95 + fuzz_below(from, 12);
	bool reads = fuzz_below(from, 2) == 0;
	size_t first = fuzz_below(from, 3) == 0 ? fuzz_below(from, k.n_cells + 1) : 0;
	take_wants(from, &wants);
	int number = hoist__swarm_join(k.swarm, id, fuzz_below(from, 3) + 6, reads, first, &wants,
				       k.now);
	if (number < 0) {
		HOLDS(number == -EEXIST || number == -ENOSPC);
		hoist__swarm_wants_fini(&wants);
		return;
	}
	HOLDS((unsigned)number == k.n_members);
	k.here[number] = true;
	k.n_members++;
	HOLDS(hoist__swarm_members(k.swarm) == k.n_members);
}

/* How far the member is, and its share. */
static void hear_beat(struct fuzz_bytes *from, unsigned member)
{
	size_t done = fuzz_below(from, k.n_cells + 1);
	const struct hoist__swarm_share share = {
		.rate = done % 3 * 5000000,
		.from = done + done % 5,
		.weight = done % HOIST__SWARM_FULL + 1,
	};
	hoist__swarm_heard(k.swarm, member, done);
	hoist__swarm_heard_share(k.swarm, member, &share);
	(void)hoist__swarm_update_share(k.swarm);
}

static void ask(struct fuzz_bytes *from, unsigned member)
{
	uint64_t blocks[HOIST__CELL_WORDS];
	uint64_t ticket = fuzz_below(from, 200);
	size_t cell = fuzz_below(from, 16) == 0 ? (size_t)fuzz_take(from, 8)
						: fuzz_below(from, k.n_cells + 1);
	bool last_resort = fuzz_below(from, 4) == 0;
	take_blocks(from, blocks);
	bool lend = fuzz_below(from, 2) == 0;
	HOLDS(hoist__swarm_asked(k.swarm, member, ticket, cell, blocks, last_resort, lend) < 0 ||
	      cell < k.n_cells);
}

static void leave(unsigned member)
{
	k.here[member] = false;
	hoist__swarm_leave(k.swarm, member, k.now);
}

static void hear(struct fuzz_bytes *from)
{
	unsigned member = (unsigned)fuzz_below(from, k.n_members);
	uint64_t what = fuzz_below(from, 10);
	if (what == 0)
		join(from);
	else if (what == 1)
		hoist__swarm_warned(k.swarm, member, fuzz_below(from, 2) != 0, k.now);
	if (!k.here[member])
		return;
	if (what == 2)
		leave(member);
	else if (what == 3)
		hoist__swarm_unasked(k.swarm, member, fuzz_below(from, 200));
	else if (what < 6)
		hear_beat(from, member);
	else
		ask(from, member);
}

/* The others have left: readings and loads end well. */
static void go_on_alone(void)
{
	bool all = true;
	uint64_t own[HOIST__CELL_WORDS];
	for (unsigned m = 1; m < k.n_members; m++)
		if (k.here[m])
			leave(m);
	for (unsigned i = 0; !k.lost && !hoist__swarm_may_end(k.swarm); i++) {
		HOLDS(i < MOST_DEEDS);
		do_all();
		for (unsigned s = 0; s < k.n_slots; s++)
			end_fill(s, 1);
		for (unsigned s = 0; s < MOST_SENDS; s++)
			end_send(s);
		use_cells();
		k.now += UINT64_C(100000000);
	}
	for (size_t c = 0; c < k.n_cells; c++)
		all = all && (k.used[c] || hoist__swarm_wants_of(&k.wants, c, own) == 0);
	HOLDS(all || k.lost);
	HOLDS(!k.lost || !k.reads || k.was_bad);
}

static void drive_swarm(struct fuzz_bytes *from)
{
	begin_swarm(from);
	while (from->n > 0 && !k.lost) {
		switch (fuzz_below(from, 9)) {
		case 0:
			do_all();
			break;
		case 1:
			end_fill((unsigned)fuzz_below(from, k.n_slots), fuzz_below(from, 32));
			break;
		case 2:
			end_send((unsigned)fuzz_below(from, MOST_SENDS));
			break;
		case 3:
			use_cells();
			break;
		case 4:
			k.now += fuzz_below(from, 20000) * UINT64_C(1000000);
			break;
		case 5:
			lose((unsigned)fuzz_below(from, k.n_slots));
			break;
		default:
			hear(from);
			break;
		}
	}
	go_on_alone();
	hoist__swarm_destroy(k.swarm);
	hoist__swarm_wants_fini(&k.wants);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static bool began;
	struct fuzz_bytes from = {bytes, n};
	if (!began)
		HOLDS(atexit(tell_kinds) == 0);
	began = true;
	if (fuzz_below(&from, 4) == 0)
		hear_frames(&from);
	else
		drive_swarm(&from);
	return 0;
}
