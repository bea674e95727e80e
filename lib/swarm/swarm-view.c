/* SPDX-License-Identifier: MIT */
/* A swarm's members, and the way of a cell.
 * The contracts are in lib/swarm/swarm.h and swarm-view.h. */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "lib/swarm/swarm-view.h"

/* --- the way of a cell --- */

/* Rotates the members by @by places. */
static void rotate(unsigned *members, unsigned n, unsigned by)
{
	unsigned before[HOIST__SWARM_MEMBERS];
	memcpy(before, members, n * sizeof before[0]);
	for (unsigned i = 0; i < n; i++)
		members[i] = before[(by + i) % n];
}

/* Moves members that are slow, or that nobody asks, behind the others.
 * Returns: the number of the others. */
static unsigned put_slow_last(const struct hoist__swarm *swarm, uint64_t now, unsigned *members,
			      unsigned n)
{
	unsigned slow[HOIST__SWARM_MEMBERS];
	unsigned n_slow = 0;
	unsigned n_quick = 0;
	for (unsigned i = 0; i < n; i++)
		if (hoist__swarm_is_slow(swarm, members[i], now) ||
		    swarm->members[members[i]].distrusted)
			slow[n_slow++] = members[i];
		else
			members[n_quick++] = members[i];
	for (unsigned i = 0; i < n_slow; i++)
		members[n_quick + i] = slow[i];
	return n_quick;
}

/* The members of one machine on a way: a list, by their places. */
struct house {
	unsigned n;
	unsigned first, last;
	unsigned head;
	uint64_t hash;	/* the head's */
	unsigned place; /* the head's in the tree */
};

/* Lists the first @n members by machine, and chooses the heads: by rendezvous hashing, so that two
 * members whose views differ by a member do not wait for each other.  Returns: the machines. */
static unsigned find_houses(const struct hoist__swarm *swarm, size_t cell,
			    const struct hoist__swarm_way *way, unsigned n, unsigned *next,
			    unsigned *house_of, struct house *houses)
{
	unsigned n_houses = 0;
	for (unsigned i = 0; i < n; i++) {
		const struct hoist__swarm_member *member = &swarm->members[way->members[i]];
		unsigned *index = &house_of[member->first_of_machine];
		uint64_t hash = i == 0 && way->has_reader
					? UINT64_MAX
					: hoist__swarm_mix(member->id + hoist__swarm_mix(cell));
		bool is_new = *index == HOIST__SWARM_NOBODY;
		*index = is_new ? n_houses++ : *index;
		struct house *house = &houses[*index];
		if (is_new)
			*house = (struct house){.first = i, .last = i};
		next[house->last] = i;
		house->last = i;
		if (house->n++ == 0 || hash > house->hash) {
			house->head = i;
			house->hash = hash;
		}
	}
	return n_houses;
}

/* Puts the members of the first member's machine behind it, then those of the next machine, and
 * says from whom each gets the cell.  The @n_slow last keep their places: nobody but slow ones gets
 * cells from them. */
static void make_tree(const struct hoist__swarm *swarm, size_t cell, unsigned n_slow,
		      struct hoist__swarm_way *way)
{
	const struct hoist__swarm_way list = *way;
	unsigned house_of[HOIST__SWARM_MEMBERS]; /* by first_of_machine */
	unsigned next[HOIST__SWARM_MEMBERS];
	struct house houses[HOIST__SWARM_MEMBERS];
	unsigned n = 0;
	memset(house_of, 0xff, sizeof house_of); /* NOBODY */
	unsigned n_houses =
		find_houses(swarm, cell, &list, way->n - n_slow, next, house_of, houses);
	for (unsigned h = 0; h < n_houses; h++) {
		struct house *house = &houses[h];
		house->place = n;
		way->before[n] = h > 0 ? houses[h - 1].place : 0;
		way->members[n++] = list.members[house->head];
		for (unsigned i = house->first, k = 0; k < house->n; k++, i = next[i]) {
			if (i == house->head)
				continue;
			way->before[n] = house->place;
			way->members[n++] = list.members[i];
		}
	}
	for (; n < way->n; n++) {
		unsigned house = house_of[swarm->members[way->members[n]].first_of_machine];
		bool alone = house == HOIST__SWARM_NOBODY;
		way->before[n] = !alone ? houses[house].place : n > 0 ? n - 1 : 0;
	}
}

/* The wants of all members in one cell. */
struct sum {
	unsigned n_blocks;		       /* of all wants */
	unsigned n_runs;		       /* likewise */
	unsigned n_readers;		       /* members that want blocks, and have the file */
	unsigned n_others;		       /* in `others` */
	unsigned others[HOIST__SWARM_MEMBERS]; /* that only have the file */
};

static unsigned count_runs(const uint64_t *blocks)
{
	unsigned n = 0;
	uint64_t before = 0; /* the last bit of the word before */
	for (unsigned w = 0; w < HOIST__CELL_WORDS; w++) {
		n += (unsigned)__builtin_popcountll(blocks[w] & ~(blocks[w] << 1 | before));
		before = blocks[w] >> 63;
	}
	return n;
}

/* Finds the members that want the cell, and those that only have its file, both in the street's
 * order.  A late member wants cells before its first in its own view alone. */
static void find_members(const struct hoist__swarm *swarm, size_t cell,
			 struct hoist__swarm_way *way, struct sum *sum)
{
	for (unsigned i = 0; i < swarm->n_members; i++) {
		uint64_t blocks[HOIST__CELL_WORDS];
		unsigned m = swarm->street[i];
		const struct hoist__swarm_member *member = &swarm->members[m];
		if (!member->here)
			continue;
		bool late = m != 0 &&
			    (member->first_cell > cell || swarm->members[0].first_cell > cell);
		unsigned n = late ? 0 : hoist__swarm_wants_of(&member->wants, cell, blocks);
		if (n == 0) {
			if (hoist__swarm_has(swarm, m, cell))
				sum->others[sum->n_others++] = m;
			continue;
		}
		for (unsigned w = 0; w < HOIST__CELL_WORDS; w++)
			way->united[w] |= blocks[w];
		sum->n_blocks += n;
		sum->n_runs += count_runs(blocks);
		sum->n_readers += hoist__swarm_has(swarm, m, cell);
		way->members[way->n++] = m;
	}
}

/* Chooses how the bytes get from the reader to the others.  A star costs the links that lead from
 * the readers, which take turns, the wants of all; a chain costs each link the united ones. */
static void choose_shape(const struct sum *sum, struct hoist__swarm_way *way)
{
	unsigned united = hoist__blocks_count(way->united);
	unsigned overlap =
		sum->n_readers > HOIST__SWARM_OVERLAP ? sum->n_readers : HOIST__SWARM_OVERLAP;
	way->star = 2 * sum->n_blocks < overlap * united;
	way->apart = sum->n_blocks <= united + HOIST__SWARM_TWICE && sum->n_readers == way->n &&
		     sum->n_runs <= HOIST__SWARM_RUNS;
}

void hoist__swarm_way_of(const struct hoist__swarm *swarm, size_t cell, uint64_t now,
			 struct hoist__swarm_way *ret)
{
	struct sum sum = {.n_blocks = 0};
	*ret = (struct hoist__swarm_way){.n = 0};
	find_members(swarm, cell, ret, &sum);
	if (ret->n == 0)
		return;
	choose_shape(&sum, ret);
	unsigned n = ret->n;
	unsigned reader = hoist__swarm_reader_among(swarm, cell, now, ret->members, ret->n);
	ret->has_reader = reader < ret->n;
	rotate(ret->members, ret->n, ret->has_reader ? reader : 0);
	unsigned n_slow = n - put_slow_last(swarm, now, ret->members, n);
	if (!ret->has_reader) {
		reader = hoist__swarm_reader_among(swarm, cell, now, sum.others, sum.n_others);
		ret->has_reader = ret->only_reads = reader < sum.n_others;
	}
	if (ret->only_reads) {
		memmove(&ret->members[1], &ret->members[0], ret->n * sizeof ret->members[0]);
		ret->members[0] = sum.others[reader];
		ret->n++;
	}
	if (swarm->has_neighbours && !ret->star)
		make_tree(swarm, cell, n_slow, ret);
	else
		for (unsigned i = 0; i < ret->n; i++)
			ret->before[i] = ret->star || i == 0 ? 0 : i - 1;
}

void hoist__swarm_blocks_at(const struct hoist__swarm *swarm, const struct hoist__swarm_way *way,
			    size_t cell, unsigned place, uint64_t ret[HOIST__CELL_WORDS])
{
	if (way->star && place > 0)
		(void)hoist__swarm_wants_of(&swarm->members[way->members[place]].wants, cell, ret);
	else
		memcpy(ret, way->united, sizeof way->united);
}

/* --- patience --- */

unsigned hoist__swarm_left_free(const struct hoist__swarm *swarm)
{
	for (unsigned m = 1; swarm->options.reads && m < swarm->n_members; m++)
		if (swarm->members[m].here && !swarm->members[m].reads_all)
			return swarm->options.n_slots / HOIST__SWARM_GUESTS;
	return 0;
}

static uint64_t quicker(uint64_t a, uint64_t b)
{
	return a == 0 || (b != 0 && b < a) ? b : a;
}

/* The time in which a member whose storage is slower than others' reads its part of all slots. */
static uint64_t reading_ns(const struct hoist__swarm *swarm)
{
	uint64_t slowest = UINT64_MAX;
	unsigned n = 0;
	for (unsigned m = 0; m < swarm->n_members; m++) {
		const struct hoist__swarm_member *member = &swarm->members[m];
		if (!member->here || !member->reads)
			continue;
		n++;
		if (member->share.weight < HOIST__SWARM_FULL && member->share.rate < slowest)
			slowest = member->share.rate;
	}
	if (slowest == UINT64_MAX)
		return 0;
	slowest = slowest > 0 ? slowest : 1;
	double ns = (double)swarm->options.n_slots * HOIST__CELL_BYTES * 1e9 / (double)slowest / n;
	return ns < (double)HOIST__SWARM_READING_NS ? (uint64_t)ns : HOIST__SWARM_READING_NS;
}

uint64_t hoist__swarm_patience(const struct hoist__swarm *swarm, unsigned member)
{
	const struct hoist__swarm_member *judged = &swarm->members[member];
	uint64_t quickest = 0;
	for (unsigned m = 1; m < swarm->n_members; m++)
		if (swarm->members[m].here && m != member)
			quickest = quicker(quickest, quicker(swarm->members[m].send_ns,
							     swarm->members[m].take_ns));
	if (quickest == 0)
		quickest = judged->send_ns > judged->take_ns ? judged->send_ns : judged->take_ns;
	return HOIST__SWARM_PATIENCE_NS + swarm->options.n_slots * quickest + reading_ns(swarm);
}

/* --- members --- */

void hoist__swarm_wait_anew(struct hoist__swarm *swarm, uint64_t now)
{
	for (unsigned i = 0; i < swarm->options.n_slots; i++)
		swarm->slots[i].since = now;
}

/* Finds the first member of each member's machine. */
static void find_machines(struct hoist__swarm *swarm)
{
	swarm->has_neighbours = false;
	for (unsigned m = 0; m < swarm->n_members; m++) {
		struct hoist__swarm_member *member = &swarm->members[m];
		member->first_of_machine = m;
		for (unsigned o = 0; o < m && member->machine != 0 && member->first_of_machine == m;
		     o++)
			if (swarm->members[o].machine == member->machine)
				member->first_of_machine = o;
		swarm->has_neighbours = swarm->has_neighbours || member->first_of_machine != m;
	}
}

/* Is @a before @b in the ring, or, with @street, in the street? */
static bool is_before(const struct hoist__swarm_member *a, const struct hoist__swarm_member *b,
		      bool street)
{
	uint64_t x = hoist__swarm_mix(a->machine != 0 ? a->machine : a->id);
	uint64_t y = hoist__swarm_mix(b->machine != 0 ? b->machine : b->id);
	return street && x != y ? x < y : hoist__swarm_mix(a->id) < hoist__swarm_mix(b->id);
}

/* Puts member @m, the newest, into a list of the earlier ones. */
static void put_in(const struct hoist__swarm *swarm, unsigned m, bool street, unsigned *list)
{
	unsigned i = m;
	for (; i > 0 && is_before(&swarm->members[m], &swarm->members[list[i - 1]], street); i--)
		list[i] = list[i - 1];
	list[i] = m;
}

/* Counts the member that has come, and puts the member into the ring and the street. */
static void add_member(struct hoist__swarm *swarm)
{
	unsigned m = swarm->n_members++;
	find_machines(swarm);
	put_in(swarm, m, false, swarm->ring);
	put_in(swarm, m, true, swarm->street);
	swarm->view++;
	swarm->changed = true;
}

int hoist__swarm_create(const struct hoist__swarm_options *options, struct hoist__swarm **ret)
{
	struct hoist__swarm *s = calloc(1, sizeof *s);
	if (s != NULL) {
		s->options = *options;
		s->n_free = options->n_slots;
		s->members = calloc(HOIST__SWARM_MEMBERS, sizeof *s->members);
		s->asks = calloc((size_t)HOIST__SWARM_MEMBERS * HOIST__SWARM_ASKS, sizeof *s->asks);
		s->slot_of = calloc(options->n_cells + 1, sizeof *s->slot_of);
		s->marks = calloc(options->n_cells + 1, 1);
	}
	if (s == NULL || s->members == NULL || s->asks == NULL || s->slot_of == NULL ||
	    s->marks == NULL) {
		hoist__swarm_destroy(s);
		return hoist__fail_nomem("a group's cells", options->n_cells);
	}
	s->members[0] = (struct hoist__swarm_member){
		.here = true,
		.reads = options->reads,
		.reads_all = options->reads && hoist__swarm_wants_n_lacking(options->wants) == 0,
		.id = options->id,
		.machine = options->machine,
		.first_cell = options->first_cell,
		.share = {.weight = HOIST__SWARM_FULL},
		.weight_before = HOIST__SWARM_FULL,
		.wants = *options->wants,
	};
	add_member(s);
	*ret = s;
	return 0;
}

void hoist__swarm_destroy(struct hoist__swarm *swarm)
{
	if (swarm == NULL)
		return;
	for (unsigned m = 1; swarm->members != NULL && m < swarm->n_members; m++)
		hoist__swarm_wants_fini(&swarm->members[m].wants);
	free(swarm->members);
	free(swarm->asks);
	free(swarm->slot_of);
	free(swarm->marks);
	free(swarm);
}

int hoist__swarm_join(struct hoist__swarm *swarm, uint64_t id, uint64_t machine, bool reads,
		      size_t first_cell, struct hoist__swarm_wants *wants, uint64_t now)
{
	unsigned place = swarm->n_members;
	for (unsigned m = 0; m < place; m++)
		if (swarm->members[m].id == id)
			return -EEXIST;
	if (place == HOIST__SWARM_MEMBERS)
		return -ENOSPC;
	swarm->members[place] = (struct hoist__swarm_member){
		.here = true,
		.reads = reads,
		.reads_all = reads && hoist__swarm_wants_n_lacking(wants) == 0,
		.id = id,
		.machine = machine,
		.first_cell = first_cell,
		.share = {.weight = HOIST__SWARM_FULL},
		.weight_before = HOIST__SWARM_FULL,
		.moved_at = now,
		.wants = *wants,
		.asks = swarm->asks + (size_t)place * HOIST__SWARM_ASKS,
	};
	add_member(swarm);
	hoist__swarm_wait_anew(swarm, now);
	return (int)place;
}

void hoist__swarm_leave(struct hoist__swarm *swarm, unsigned member, uint64_t now)
{
	struct hoist__swarm_member *gone = &swarm->members[member];
	gone->here = false;
	gone->n_asks = 0;
	/* Those that come later hear of no other weight. */
	gone->share = (struct hoist__swarm_share){.weight = HOIST__SWARM_FULL};
	gone->weight_before = HOIST__SWARM_FULL;
	hoist__swarm_wants_fini(&gone->wants);
	/* A member that had done all gave away its cells: the ways of cells that have a slot
	 * stay as they are. */
	swarm->view += gone->done < swarm->options.n_cells;
	swarm->changed = true;
	/* Members that are waited for may themselves have waited for the one that has gone. */
	hoist__swarm_wait_anew(swarm, now);
	for (unsigned i = 0; i < swarm->options.n_slots; i++) {
		struct hoist__swarm_slot *slot = &swarm->slots[i];
		if (slot->state == HOIST__SLOT_ASKED && slot->from == member) {
			slot->state = HOIST__SLOT_LEAVING;
			slot->told = false;
		}
	}
}

void hoist__swarm_heard(struct hoist__swarm *swarm, unsigned member, size_t done)
{
	struct hoist__swarm_member *m = &swarm->members[member];
	if (done <= m->done)
		return;
	m->done = done < swarm->options.n_cells ? done : swarm->options.n_cells;
	swarm->changed = true;
}

void hoist__swarm_warned(struct hoist__swarm *swarm, unsigned member, bool distrust, uint64_t now)
{
	struct hoist__swarm_member *m = &swarm->members[member];
	swarm->changed = true;
	if (distrust) {
		m->distrusted = true;
		swarm->view++;
		return;
	}
	if (hoist__swarm_is_slow(swarm, member, now))
		return;
	m->slow_until = now + (HOIST__SWARM_SLOW_NS << m->n_slow);
	m->n_slow += m->n_slow < HOIST__SWARM_SLOWEST;
	swarm->view++;
	hoist__swarm_wait_anew(swarm, now);
}

int hoist__swarm_asked(struct hoist__swarm *swarm, unsigned member, uint64_t ticket, size_t cell,
		       const uint64_t blocks[HOIST__CELL_WORDS], bool last_resort, bool lend)
{
	struct hoist__swarm_member *m = &swarm->members[member];
	if (cell >= swarm->options.n_cells)
		return hoist__fail(-EBADMSG, "a member asks for cell %zu of %zu", cell,
				   swarm->options.n_cells);
	if (hoist__blocks_count(blocks) == 0)
		return hoist__fail(-EBADMSG, "a member asks for no blocks of cell %zu", cell);
	if (m->n_asks == HOIST__SWARM_ASKS)
		return hoist__fail(-EBADMSG, "a member asks for more than %u cells at a time",
				   HOIST__SWARM_ASKS);
	struct hoist__swarm_ask *ask = &m->asks[m->n_asks++];
	*ask = (struct hoist__swarm_ask){
		.ticket = ticket, .cell = cell, .last_resort = last_resort, .lend = lend};
	memcpy(ask->blocks, blocks, sizeof ask->blocks);
	swarm->changed = true;
	return 0;
}

void hoist__swarm_unasked(struct hoist__swarm *swarm, unsigned member, uint64_t ticket)
{
	struct hoist__swarm_member *m = &swarm->members[member];
	for (unsigned i = 0; i < m->n_asks; i++)
		if (m->asks[i].ticket == ticket) {
			hoist__swarm_drop_ask(m, i);
			return;
		}
}

unsigned hoist__swarm_members(const struct hoist__swarm *swarm)
{
	return swarm->n_members;
}
