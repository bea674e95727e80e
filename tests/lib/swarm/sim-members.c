/* SPDX-License-Identifier: MIT */
/* The simulated members: what they do. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tests/lib/swarm/sim-private.h"
#include "tests/support/check.h"

/* --- what members do --- */

uint64_t sim_beat_ns(void)
{
	return the_sim->n > 32 ? SIM_SECOND / 2 : SIM_SECOND / 10;
}

unsigned sim_machine(unsigned m)
{
	return m - m % the_sim->per_machine;
}

bool sim_is_cut(unsigned a, unsigned b)
{
	const struct sim_member *x = &the_sim->members[a];
	const struct sim_member *y = &the_sim->members[b];
	return (x->fate == SIM_CUT && sim_now >= x->fate_ns) !=
	       (y->fate == SIM_CUT && sim_now >= y->fate_ns);
}

static double link_of(unsigned member)
{
	const struct sim_member *m = &the_sim->members[member];
	return the_sim->link / (m->fate == SIM_SLOW_LINK && sim_now >= m->fate_ns ? 20 : 1);
}

static double storage_of(unsigned member)
{
	const struct sim_member *m = &the_sim->members[member];
	if (m->fate == SIM_STALLED && sim_now >= m->fate_ns)
		return 1; /* a byte a second: never */
	return the_sim->storage / (m->fate == SIM_SLOW_STORAGE && sim_now >= m->fate_ns ? 4 : 1);
}

static uint64_t bytes_of(const uint64_t *blocks)
{
	uint64_t n = 0;
	for (unsigned w = 0; w < HOIST__CELL_WORDS; w++)
		n += (uint64_t)__builtin_popcountll(blocks[w]);
	return n * HOIST__BLOCK_BYTES;
}

/* Serves @bytes at @rate after what @free serves already.  Returns: when it has ended. */
static uint64_t serve(uint64_t *free_at, uint64_t bytes, double rate)
{
	uint64_t start = *free_at > sim_now ? *free_at : sim_now;
	*free_at = start + (uint64_t)((double)bytes / rate * 1e9);
	return *free_at;
}

static unsigned member_of(unsigned node, unsigned number)
{
	for (unsigned m = 0; m < the_sim->n; m++)
		if (sim_nodes[node].number_of[m] == (int)number)
			return m;
	CHECK(false); /* the member is not there */
	return 0;
}

/* Moves bytes between two machines.  Returns: the time that takes. */
static uint64_t carry(unsigned from, unsigned to, uint64_t bytes, bool lost)
{
	struct node *sender = &sim_nodes[sim_machine(from)];
	struct node *receiver = &sim_nodes[sim_machine(to)];
	uint64_t up = serve(&sender->up_free, bytes, link_of(from));
	uint64_t down = lost ? up : serve(&receiver->down_free, bytes, link_of(to));
	sender->sent += bytes;
	receiver->received += lost ? 0 : bytes;
	return (up > down ? up : down) - sim_now;
}

static void send_cell(unsigned from, const struct hoist__swarm_act *act)
{
	struct node *node = &sim_nodes[from];
	unsigned to = member_of(from, act->member);
	uint64_t bytes = bytes_of(act->blocks);
	bool lost = !sim_nodes[to].here || sim_is_cut(from, to);
	CHECK(hoist__swarm_slot_of(node->swarm, act->cell) == (int)act->slot);
	CHECK(act->lend == (sim_machine(from) == sim_machine(to)));
	uint64_t end = sim_now + LATENCY_NS + (act->lend ? 0 : carry(from, to, bytes, lost));
	unsigned i = 0;
	while (node->sends[i].is)
		CHECK(++i < SIM_SENDS);
	node->sends[i].is = true;
	node->sends[i].lent = act->lend;
	node->sends[i].order = sim_n_events;
	node->sends[i].slot = act->slot;
	node->sends[i].number = act->member;
	node->sends[i].to = to;
	sim_push((struct event){.ns = lost ? LIMIT_NS : end,
				.kind = SENT,
				.member = from,
				.other = to,
				.slot = i,
				.number = end - sim_now});
	if (!lost)
		sim_push((struct event){.ns = end,
					.kind = RECEIVED,
					.member = to,
					.other = from,
					.ticket = act->ticket,
					.number = end - sim_now,
					.cell = act->cell});
}

static void use_cells(unsigned m)
{
	struct node *node = &sim_nodes[m];
	bool slow =
		the_sim->members[m].fate == SIM_SLOW_USE && sim_now >= the_sim->members[m].fate_ns;
	if (the_sim->members[m].fate == SIM_STUCK && sim_now >= the_sim->members[m].fate_ns)
		return; /* its load waits for a device, for ever */
	while (node->first < the_sim->n_cells && node->has[node->first] != 0)
		node->first++;
	for (size_t c = node->first, n = 0; c < the_sim->n_cells; c++) {
		uint64_t blocks[HOIST__CELL_WORDS];
		n += node->has[c] == 0;
		if (n > HOIST__SWARM_SLOTS && node->first_cell == 0)
			break;
		if (node->has[c] != 0)
			continue;
		if (hoist__swarm_slot_of(node->swarm, c) < 0) {
			if (the_sim->in_order)
				break;
			continue;
		}
		(void)hoist__swarm_wants_of(&node->wants, c, blocks);
		node->has[c] = 1;
		sim_push((struct event){.ns = serve(&node->use_free, slow ? bytes_of(blocks) : 0,
						    the_sim->link / 20) +
					      1,
					.kind = USED,
					.member = m,
					.cell = c});
	}
}

static void withdraw(unsigned m, const struct hoist__swarm_act *act)
{
	struct node *node = &sim_nodes[m];
	for (unsigned o = 0; o < the_sim->n; o++)
		if (node->number_of[o] == (int)act->member)
			sim_push((struct event){.ns = sim_now + LATENCY_NS,
						.kind = UNASKED,
						.member = o,
						.other = m,
						.ticket = node->ticket[act->slot]});
	node->ticket[act->slot] = 0;
	hoist__swarm_withdrawn(node->swarm, act->slot, sim_now);
}

static void warn(unsigned m, const struct hoist__swarm_act *act)
{
	unsigned about = act->member != 0 ? member_of(m, act->member) : m;
	hoist__swarm_warned(sim_nodes[m].swarm, act->member, act->distrust, sim_now);
	for (unsigned o = 0; o < the_sim->n; o++)
		if (o != m && sim_nodes[o].here && !sim_is_cut(m, o))
			sim_push((struct event){.ns = sim_now + LATENCY_NS,
						.kind = WARNED,
						.member = o,
						.other = about,
						.flag = act->distrust});
}

/* A message to another member. */
static void say(unsigned m, const struct hoist__swarm_act *act, enum event_kind kind,
		uint64_t ticket)
{
	struct event event = {.ns = sim_now + LATENCY_NS,
			      .kind = kind,
			      .member = member_of(m, act->member),
			      .other = m,
			      .cell = act->cell,
			      .ticket = ticket,
			      .flag = act->last_resort};
	memcpy(event.blocks, act->blocks, sizeof event.blocks);
	if (!sim_is_cut(m, event.member))
		sim_push(event);
}

static void do_act(unsigned m, const struct hoist__swarm_act *act)
{
	struct node *node = &sim_nodes[m];
	switch (act->deed) {
	case HOIST__SWARM_READ:
		CHECK(the_sim->members[m].reads && bytes_of(act->blocks) > 0);
		CHECK(!hoist__swarm_wants_lacks(&node->wants, act->cell));
		sim_result_so_far.read += bytes_of(act->blocks);
		sim_push((struct event){
			.ns = serve(&node->storage_free, bytes_of(act->blocks), storage_of(m)),
			.kind = READ_DONE,
			.member = m,
			.other = m,
			.slot = act->slot});
		break;
	case HOIST__SWARM_ASK:
		node->ticket[act->slot] = ++node->next_ticket * HOIST__SWARM_SLOTS + act->slot;
		say(m, act, ASKED, node->ticket[act->slot]);
		break;
	case HOIST__SWARM_SEND:
		send_cell(m, act);
		break;
	case HOIST__SWARM_REFUSE:
		say(m, act, REFUSED, act->ticket);
		break;
	case HOIST__SWARM_WITHDRAW:
		withdraw(m, act);
		break;
	case HOIST__SWARM_WARN:
		warn(m, act);
		break;
	case HOIST__SWARM_LOST:
		node->lost = node->ended = true;
		sim_result_so_far.lost_ns = sim_now;
		break;
	default:
		break;
	}
}

void sim_leave(unsigned m, uint64_t after)
{
	sim_nodes[m].here = false;
	for (unsigned o = 0; o < the_sim->n; o++)
		if (o != m)
			sim_push((struct event){
				.ns = sim_now + after, .kind = GONE, .member = o, .other = m});
}

void sim_drive(unsigned m)
{
	struct node *node = &sim_nodes[m];
	struct hoist__swarm_act act;
	if (!node->here || node->frozen || node->ended)
		return;
	for (unsigned n = 0;; n++) {
		CHECK(n < 100000);
		hoist__swarm_next(node->swarm, sim_now, &act);
		if (act.deed == HOIST__SWARM_NOTHING)
			break;
		do_act(m, &act);
		if (node->ended)
			break;
	}
	use_cells(m);
	if (!node->ended && node->n_used == node->n_wanted && hoist__swarm_may_end(node->swarm))
		node->ended = true;
	if (node->n_used == node->n_wanted && sim_now > sim_result_so_far.ns &&
	    node->n_wanted > 0 && node->has[the_sim->n_cells] == 0) {
		sim_result_so_far.ns = sim_now;
		if (the_sim->members[m].fate == SIM_LIVES && the_sim->members[m].joins_ns == 0)
			sim_result_so_far.others_ns = sim_now;
		node->has[the_sim->n_cells] = 1;
	}
	if (node->ended)
		sim_leave(m, LATENCY_NS);
	else if (act.wake_ns != UINT64_MAX && act.wake_ns > sim_now) {
		node->wake = act.wake_ns;
		sim_push((struct event){.ns = act.wake_ns, .kind = WAKE, .member = m});
	}
}
