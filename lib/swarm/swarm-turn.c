/* SPDX-License-Identifier: MIT */
/* The member of a swarm whose turn it is to read a cell, and how many turns each has.
 * The contracts are in lib/swarm/swarm.h and swarm-view.h. */
#include "config.h"

#include "base/assert.h"
#include "base/checked.h"
#include "lib/swarm/swarm-view.h"

/* --- turns --- */

/* May the member read the cell for others? */
static bool may_read(const struct hoist__swarm *swarm, unsigned m, size_t cell, uint64_t now)
{
	const struct hoist__swarm_member *member = &swarm->members[m];
	return member->here && hoist__swarm_has(swarm, m, cell) && !member->distrusted &&
	       !hoist__swarm_is_slow(swarm, m, now);
}

static unsigned weight_at(const struct hoist__swarm *swarm, unsigned m, size_t cell)
{
	const struct hoist__swarm_member *member = &swarm->members[m];
	return cell >= member->share.from ? member->share.weight : member->weight_before;
}

/* A step through @n places, of the golden ratio nearly, that comes to each once: the visits to
 * places beside each other are spread evenly. */
static unsigned step_through(unsigned n)
{
	unsigned step = (unsigned)((uint64_t)n * 618 / 1000);
	while (step > 1 && hoist__gcd_u64(step, n) > 1)
		step--;
	return step > 1 ? step : 1;
}

/* The member whose turn it is to read the cell, here or gone; NOBODY: there is none.  Each member
 * has as many places as its weight is, and so many turns in as many cells as there are places. */
static unsigned turn_of(const struct hoist__swarm *swarm, size_t cell)
{
	unsigned seats[HOIST__SWARM_MEMBERS];
	unsigned weights[HOIST__SWARM_MEMBERS];
	unsigned n = 0;
	unsigned n_places = 0;
	unsigned divisor = 0;
	for (unsigned i = 0; i < swarm->n_members; i++) {
		if (swarm->members[swarm->ring[i]].first_cell > cell)
			continue;
		seats[n] = swarm->ring[i];
		weights[n] = weight_at(swarm, seats[n], cell);
		divisor = (unsigned)hoist__gcd_u64(divisor, weights[n]);
		n_places += weights[n++];
	}
	if (n == 0)
		return HOIST__SWARM_NOBODY;
	n_places /= divisor;
	if (n_places == n)
		return seats[cell % n];
	size_t place = cell % n_places * step_through(n_places) % n_places;
	unsigned i = 0;
	for (; place >= weights[i] / divisor; i++)
		place -= weights[i] / divisor;
	return seats[i];
}

unsigned hoist__swarm_reader_among(const struct hoist__swarm *swarm, size_t cell, uint64_t now,
				   const unsigned *members, unsigned n)
{
	unsigned turn = turn_of(swarm, cell);
	unsigned best = n;
	uint64_t most = 0;
	for (unsigned i = 0; i < n; i++) {
		uint64_t hash =
			hoist__swarm_mix(swarm->members[members[i]].id + hoist__swarm_mix(cell));
		if (!may_read(swarm, members[i], cell, now))
			continue;
		if (members[i] == turn)
			return i;
		/* A member of a small weight stands behind all others at most cells. */
		if (hash % HOIST__SWARM_FULL >= weight_at(swarm, members[i], cell))
			hash >>= 32;
		if (best == n || hash > most) {
			best = i;
			most = hash;
		}
	}
	return best;
}

/* --- the rate of this member's reads --- */

/* It is told once bursts had so many bytes and lasted so long: short ones tell of a page cache, or
 * of other programs.  Older ones count less and less. */
#define LEAST_BYTES (4 * HOIST__CELL_BYTES)
#define LEAST_NS (UINT64_C(500) * 1000000)
#define MOST_NS (8 * LEAST_NS)

void hoist__swarm_reading_begins(struct hoist__swarm *swarm, uint64_t now)
{
	if (swarm->n_reading++ > 0)
		return;
	swarm->burst = (struct hoist__swarm_burst){.n = 0};
	swarm->burst_at = now;
}

/* A single cell tells little of what storage gives to several. */
static struct hoist__swarm_burst all_bursts(const struct hoist__swarm *swarm)
{
	struct hoist__swarm_burst all = swarm->bursts;
	if (swarm->burst.n > 1) {
		all.bytes += swarm->burst.bytes;
		all.ns += swarm->burst.ns;
	}
	return all;
}

void hoist__swarm_reading_ends(struct hoist__swarm *swarm, const struct hoist__swarm_slot *slot,
			       uint64_t now)
{
	struct hoist__swarm_burst *burst = &swarm->burst;
	HOIST__ASSERT(swarm->n_reading > 0);
	swarm->n_reading--;
	burst->n++;
	burst->bytes += hoist__blocks_count(slot->blocks) * HOIST__BLOCK_BYTES;
	burst->ns = now - swarm->burst_at;
	if (swarm->n_reading > 0 && burst->ns < MOST_NS)
		return;
	swarm->bursts = all_bursts(swarm);
	if (swarm->bursts.ns > MOST_NS) {
		swarm->bursts.bytes /= 2;
		swarm->bursts.ns /= 2;
	}
	*burst = (struct hoist__swarm_burst){.n = 0};
	swarm->burst_at = now;
}

static uint64_t rate_of(const struct hoist__swarm *swarm)
{
	struct hoist__swarm_burst all = all_bursts(swarm);
	if (all.bytes < LEAST_BYTES || all.ns < LEAST_NS)
		return 0;
	return (uint64_t)((double)all.bytes * 1e9 / (double)all.ns);
}

/* --- shares --- */

/* Members that are nearly as quick as the quickest count as equal: rates are never quite. */
static unsigned weight_for(uint64_t rate, uint64_t best)
{
	double part = (double)rate / (double)best;
	unsigned weight = (unsigned)(part * HOIST__SWARM_FULL + 0.5);
	return part >= 0.7 ? HOIST__SWARM_FULL : weight > 1 ? weight : 1;
}

void hoist__swarm_heard_share(struct hoist__swarm *swarm, unsigned member,
			      const struct hoist__swarm_share *share)
{
	struct hoist__swarm_member *m = &swarm->members[member];
	bool same = m->share.weight == share->weight && m->share.from == share->from;
	HOIST__ASSERT(share->weight > 0 && share->weight <= HOIST__SWARM_FULL);
	m->weight_before = same ? m->weight_before : m->share.weight;
	m->share = *share;
	if (same)
		return;
	swarm->share_view = ++swarm->view;
	swarm->changed = true;
}

struct hoist__swarm_share hoist__swarm_update_share(struct hoist__swarm *swarm)
{
	struct hoist__swarm_share share = swarm->members[0].share;
	size_t at = swarm->options.first_cell + hoist__swarm_done(swarm);
	size_t most = at;
	uint64_t best = share.rate = rate_of(swarm);
	for (unsigned m = 1; m < swarm->n_members; m++) {
		const struct hoist__swarm_member *member = &swarm->members[m];
		size_t its = member->first_cell + member->done;
		if (!member->here)
			continue;
		if (member->reads && member->share.rate > best)
			best = member->share.rate;
		if (its > most && its <= swarm->options.n_cells)
			most = its;
	}
	unsigned weight = share.rate != 0 ? weight_for(share.rate, best) : share.weight;
	unsigned more = weight > share.weight ? weight : share.weight;
	unsigned difference = 2 * more - weight - share.weight;
	size_t from = hoist__swarm_cell_ahead(most, swarm->options.n_slots);
	size_t next = swarm->options.first_cell + swarm->next + HOIST__SWARM_AHEAD;
	from = next > from ? next : from;
	if (4 * difference >= more && at >= share.from && from < swarm->options.n_cells) {
		share.weight = weight;
		share.from = from;
	}
	hoist__swarm_heard_share(swarm, 0, &share);
	return share;
}
