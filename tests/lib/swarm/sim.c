/* SPDX-License-Identifier: MIT */
/* The simulated network of a swarm: events in the order of time. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/swarm/sim-private.h"
#include "tests/support/check.h"

const struct sim *the_sim;
struct node sim_nodes[SIM_MEMBERS];
uint64_t sim_now;
uint64_t sim_n_events;
struct sim_result sim_result_so_far;
static struct event *heap;
static size_t n_heap;
static size_t heap_room;

/* --- the queue --- */

static bool before(const struct event *a, const struct event *b)
{
	return a->ns != b->ns ? a->ns < b->ns : a->order < b->order;
}

void sim_push(struct event event)
{
	if (n_heap == heap_room) {
		heap_room = heap_room == 0 ? 4096 : 2 * heap_room;
		heap = realloc(heap, heap_room * sizeof *heap);
		CHECK(heap != NULL);
	}
	event.order = sim_n_events++;
	size_t i = n_heap++;
	for (; i > 0 && before(&event, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = event;
}

static struct event pop(void)
{
	struct event first = heap[0];
	struct event last = heap[--n_heap];
	size_t i = 0;
	for (size_t child; (child = 2 * i + 1) < n_heap; i = child) {
		if (child + 1 < n_heap && before(&heap[child + 1], &heap[child]))
			child++;
		if (!before(&heap[child], &last))
			break;
		heap[i] = heap[child];
	}
	heap[i] = last;
	return first;
}

/* --- events --- */

/* The blocks of cell @c that member @m wants: [*begin, *end). */
static void wants_in(unsigned m, size_t c, uint64_t random, uint64_t *begin, uint64_t *end)
{
	uint64_t all = the_sim->n_cells * HOIST__CELL_BLOCKS;
	uint64_t at = c * HOIST__CELL_BLOCKS;
	uint64_t part = HOIST__CELL_BLOCKS / the_sim->n;
	*begin = at;
	*end = at + HOIST__CELL_BLOCKS;
	switch (the_sim->members[m].wants) {
	case SIM_ALL:
		break;
	case SIM_PARTS: /* not at the beginnings of cells */
		*begin = m == 0 ? 0 : all * m / the_sim->n + 77;
		*end = m + 1 == the_sim->n ? all : all * (m + 1) / the_sim->n + 77;
		*begin = *begin > at ? *begin : at;
		*end = *end < at + HOIST__CELL_BLOCKS ? *end : at + HOIST__CELL_BLOCKS;
		break;
	case SIM_COLUMNS:
		*begin = at + m * part;
		*end = *begin + part;
		break;
	case SIM_NARROW:
		*begin = at + m / 2 * 2 * part;
		*end = *begin + 2 * part;
		break;
	case SIM_RANDOM:
		*begin = at + (random >> 33) % 256;
		*end = random >> 62 != 0 ? at + 256 + (random >> 41) % 256 : *begin;
		break;
	case SIM_NOTHING:
		*end = *begin;
		break;
	}
}

static void make_wants(unsigned m, struct hoist__swarm_wants *ret)
{
	uint64_t *bitmap = calloc(hoist__wants_words(the_sim->n_cells), sizeof *bitmap);
	uint64_t state = the_sim->seed * 1000 + m;
	CHECK(bitmap != NULL);
	for (size_t c = 0; c < the_sim->n_cells; c++) {
		uint64_t begin;
		uint64_t end;
		state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
		wants_in(m, c, state, &begin, &end);
		if (begin < end)
			hoist__wants_add(bitmap, begin, end);
	}
	OK(hoist__swarm_wants_make(bitmap, the_sim->n_cells, ret));
	free(bitmap);
	const struct sim_member *member = &the_sim->members[m];
	if (member->has_to > 0) {
		hoist__swarm_wants_mark_lacking(ret, 0, member->has_from);
		hoist__swarm_wants_mark_lacking(ret, member->has_to, the_sim->n_cells);
	}
}

/* Every third machine by itself has no number. */
static uint64_t machine_of(unsigned m)
{
	return the_sim->per_machine == 1 && m % 3 == 0 ? 0 : sim_machine(m) + 1;
}

/* As a member chooses it (lib/far/far-meet.c). */
static size_t first_cell_of_late(void)
{
	size_t most = 0;
	for (unsigned o = 0; o < the_sim->n; o++) {
		if (!sim_nodes[o].here || sim_nodes[o].first_cell != 0)
			continue;
		size_t done = hoist__swarm_done(sim_nodes[o].swarm);
		most = done > most ? done : most;
	}
	size_t first = hoist__swarm_cell_ahead(most, the_sim->n_slots);
	return first < the_sim->n_cells ? first : the_sim->n_cells;
}

static void join(unsigned m)
{
	struct node *node = &sim_nodes[m];
	node->first_cell = sim_now > 0 ? first_cell_of_late() : 0;
	const struct hoist__swarm_options options = {
		.id = (m + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ the_sim->seed,
		.machine = machine_of(m),
		.reads = the_sim->members[m].reads,
		.n_cells = the_sim->n_cells,
		.first_cell = node->first_cell,
		.n_slots = the_sim->n_slots,
		.wants = &node->wants,
	};
	make_wants(m, &node->wants);
	OK(hoist__swarm_create(&options, &node->swarm));
	for (size_t c = 0; c < the_sim->n_cells; c++) {
		uint64_t blocks[HOIST__CELL_WORDS];
		bool wanted = hoist__swarm_wants_of(&node->wants, c, blocks) > 0;
		node->n_wanted += wanted;
		node->has[c] = !wanted;
	}
	node->here = true;
	for (unsigned o = 0; o < the_sim->n; o++) {
		node->number_of[o] = -1;
		if (o == m || sim_nodes[o].swarm == NULL || sim_is_cut(m, o))
			continue;
		sim_push((struct event){.ns = sim_now, .kind = HELLO, .member = m, .other = o});
		sim_push((struct event){.ns = sim_now, .kind = HELLO, .member = o, .other = m});
	}
	sim_push((struct event){.ns = sim_now + sim_beat_ns(), .kind = BEAT, .member = m});
	node->wake = sim_now + 1;
	sim_push((struct event){.ns = node->wake, .kind = WAKE, .member = m});
}

/* A send ends, unless it has ended with its member before. */
static void end_send(unsigned m, unsigned i, uint64_t order, uint64_t ns)
{
	struct node *node = &sim_nodes[m];
	if (!node->sends[i].is || node->sends[i].order != order)
		return;
	node->sends[i].is = false;
	if (node->sends[i].lent)
		hoist__swarm_returned(node->swarm, node->sends[i].slot, node->sends[i].number);
	else
		hoist__swarm_sent(node->swarm, node->sends[i].slot, node->sends[i].number, ns);
}

static void gone(unsigned m, unsigned other)
{
	struct node *node = &sim_nodes[m];
	if (node->number_of[other] < 0)
		return;
	hoist__swarm_leave(node->swarm, (unsigned)node->number_of[other], sim_now);
	for (unsigned i = 0; i < SIM_SENDS; i++)
		if (node->sends[i].is && node->sends[i].to == other)
			end_send(m, i, node->sends[i].order, SIM_SECOND);
	node->number_of[other] = -1;
}

static void hello(unsigned m, unsigned other)
{
	struct node *node = &sim_nodes[m];
	struct hoist__swarm_wants wants;
	make_wants(other, &wants);
	int number = hoist__swarm_join(node->swarm,
				       (other + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ the_sim->seed,
				       machine_of(other), the_sim->members[other].reads,
				       sim_nodes[other].first_cell, &wants, sim_now);
	CHECK(number > 0);
	node->number_of[other] = number;
	if (!sim_nodes[other].here)
		gone(m, other);
}

/* A slot's ticket that is still waited for; -1: none. */
static int slot_of_ticket(unsigned m, uint64_t ticket)
{
	unsigned slot = (unsigned)(ticket % HOIST__SWARM_SLOTS);
	return sim_nodes[m].ticket[slot] == ticket ? (int)slot : -1;
}

static void received(const struct event *e)
{
	struct node *node = &sim_nodes[e->member];
	int slot = slot_of_ticket(e->member, e->ticket);
	if (slot < 0)
		return;
	node->ticket[slot] = 0;
	if (the_sim->members[e->other].fate == SIM_LIES)
		hoist__swarm_refused(node->swarm, (unsigned)slot, true, sim_now);
	else
		hoist__swarm_received(node->swarm, (unsigned)slot, e->number, sim_now);
	if (the_sim->members[e->member].fate == SIM_LOSES &&
	    sim_machine(e->member) == sim_machine(e->other) && node->n_loans++ % 3 == 0)
		hoist__swarm_lost(node->swarm, (unsigned)slot, sim_now);
}

static void fate(unsigned m)
{
	switch (the_sim->members[m].fate) {
	case SIM_DIES:
		sim_leave(m, SIM_DEATH_NS);
		break;
	case SIM_HANGS:
		sim_leave(m, SIM_HANG_NS);
		break;
	case SIM_CUT: /* nobody hears of it any more, nor it of anybody */
		for (unsigned o = 0; o < the_sim->n; o++)
			if (o != m && sim_nodes[o].here && the_sim->members[o].fate != SIM_CUT) {
				sim_push((struct event){.ns = sim_now + SIM_HANG_NS,
							.kind = GONE,
							.member = o,
							.other = m});
				sim_push((struct event){.ns = sim_now + SIM_HANG_NS,
							.kind = GONE,
							.member = m,
							.other = o});
			}
		break;
	default:
		break;
	}
}

static void beat(unsigned m)
{
	struct hoist__swarm_share share = hoist__swarm_update_share(sim_nodes[m].swarm);
	for (unsigned o = 0; o < the_sim->n; o++)
		if (o != m && sim_nodes[o].here && !sim_is_cut(m, o))
			sim_push((struct event){.ns = sim_now + LATENCY_NS,
						.kind = HEARD,
						.member = o,
						.other = m,
						.number = hoist__swarm_done(sim_nodes[m].swarm),
						.share = share});
	sim_push((struct event){.ns = sim_now + sim_beat_ns(), .kind = BEAT, .member = m});
}

/* A message of another member, whose number is @number in this one's view. */
static void hear(const struct event *e, unsigned number)
{
	struct hoist__swarm *swarm = sim_nodes[e->member].swarm;
	switch (e->kind) {
	case HEARD:
		hoist__swarm_heard(swarm, number, (size_t)e->number);
		hoist__swarm_heard_share(swarm, number, &e->share);
		break;
	case ASKED:
		OK(hoist__swarm_asked(swarm, number, e->ticket, e->cell, e->blocks, e->flag,
				      sim_machine(e->member) == sim_machine(e->other)));
		break;
	case UNASKED:
		hoist__swarm_unasked(swarm, number, e->ticket);
		break;
	case WARNED:
		hoist__swarm_warned(swarm, number, e->flag, sim_now);
		break;
	default:
		break;
	}
}

static void refused(const struct event *e)
{
	struct node *node = &sim_nodes[e->member];
	int slot = slot_of_ticket(e->member, e->ticket);
	if (slot < 0)
		return;
	node->ticket[slot] = 0;
	hoist__swarm_refused(node->swarm, (unsigned)slot, false, sim_now);
}

/* An event of a member that is there. */
static void happen(const struct event *e)
{
	struct node *node = &sim_nodes[e->member];
	int number = e->other == e->member ? 0 : node->number_of[e->other];
	switch (e->kind) {
	case HELLO:
		hello(e->member, e->other);
		break;
	case GONE:
		gone(e->member, e->other);
		break;
	case FATE:
		fate(e->member);
		break;
	case BEAT:
		beat(e->member);
		break;
	case READ_DONE:
		hoist__swarm_read(node->swarm, e->slot, false, sim_now);
		break;
	case REFUSED:
		refused(e);
		break;
	case SENT:
		end_send(e->member, e->slot, e->order, e->number);
		break;
	case RECEIVED:
		received(e);
		break;
	case USED:
		node->n_used++;
		hoist__swarm_used(node->swarm, e->cell);
		break;
	default:
		if (number >= 0)
			hear(e, (unsigned)number);
	}
}

static void handle(const struct event *e)
{
	const struct node *node = &sim_nodes[e->member];
	if (e->kind == JOIN) {
		join(e->member);
		return;
	}
	if (!node->here || node->ended || (e->kind == WAKE && node->wake != e->ns))
		return;
	happen(e);
	if (sim_now > 0) /* members that begin together know each other before they begin */
		sim_drive(e->member);
}

static bool never_ends(unsigned m)
{
	enum sim_fate fate = the_sim->members[m].fate;
	return fate == SIM_STUCK || fate == SIM_STALLED;
}

static bool all_ended(void)
{
	for (unsigned m = 0; m < the_sim->n; m++) {
		const struct node *node = &sim_nodes[m];
		bool dies = the_sim->members[m].fate == SIM_DIES ||
			    the_sim->members[m].fate == SIM_HANGS;
		if (never_ends(m))
			continue;
		if (node->swarm == NULL || (node->here && !node->ended && !(dies && !node->here)))
			return false;
	}
	return true;
}

struct sim_result sim_run(const struct sim *sim)
{
	the_sim = sim;
	sim_now = 0;
	n_heap = 0;
	sim_n_events = 0;
	memset(sim_nodes, 0, sizeof sim_nodes);
	sim_result_so_far = (struct sim_result){0};
	for (unsigned m = 0; m < the_sim->n; m++) {
		const struct sim_member *member = &the_sim->members[m];
		sim_nodes[m].has = calloc(the_sim->n_cells + 1, 1);
		sim_push((struct event){.ns = member->joins_ns, .kind = JOIN, .member = m});
		if (member->fate != SIM_LIVES)
			sim_push((struct event){.ns = member->fate_ns, .kind = FATE, .member = m});
	}
	while (n_heap > 0 && sim_now < LIMIT_NS && !all_ended()) {
		struct event event = pop();
		sim_now = event.ns;
		handle(&event);
	}
	sim_result_so_far.ended = true;
	for (unsigned m = 0; m < the_sim->n; m++) {
		struct node *node = &sim_nodes[m];
		if ((node->ended || node->here) && !never_ends(m))
			sim_result_so_far.ended = sim_result_so_far.ended &&
						  (node->lost || node->n_used == node->n_wanted);
		sim_result_so_far.n_lost += node->lost;
		if (node->sent > sim_result_so_far.most_up)
			sim_result_so_far.most_up = node->sent;
		if (node->received > sim_result_so_far.most_down)
			sim_result_so_far.most_down = node->received;
		hoist__swarm_destroy(node->swarm);
		hoist__swarm_wants_fini(&node->wants);
		free(node->has);
	}
	sim_result_so_far.n_events = sim_n_events;
	free(heap);
	heap = NULL;
	heap_room = 0;
	return sim_result_so_far;
}
