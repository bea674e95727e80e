/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "lib/memory/ring.h"

#include <errno.h>

#include "base/checked.h"
#include "lib/memory/memory.h"
#include "lib/memory/objects.h"
#include "numa/group.h"

int hoist__turn_wait(struct hoist__turn *turn, hoist_budget *budget, size_t least,
		     uint64_t timeout_ns)
{
	struct hoist__budget *line = hoist__budget_of(budget);
	hoist__memories_yield(line);
	int err = hoist__budget_acquire_turn(line, &turn->ticket, least, timeout_ns);
	if (err == 0)
		turn->held = least;
	return err == -EAGAIN ? 0 : err;
}

void hoist__turn_leave(struct hoist__turn *turn, hoist_budget *budget)
{
	struct hoist__budget *line = hoist__budget_of(budget);
	hoist__budget_leave(line, &turn->ticket);
	if (turn->held > 0)
		hoist__budget_release(line, turn->held);
	turn->held = 0;
}

void hoist__ring_trim(struct hoist__pool *pool, hoist_budget *budget, size_t usual)
{
	struct hoist__budget *line = hoist__budget_of(budget);
	size_t free_bytes = hoist__budget_limit(line) - hoist__budget_used(line);
	hoist__pool_trim(pool, free_bytes >= 2 * usual ? usual : 0);
}

unsigned hoist__ring_slots(struct hoist__pool *pool, unsigned n, size_t slot_bytes)
{
	struct hoist__group group;
	struct hoist__pool_stats kept;
	uint64_t bytes = n * (uint64_t)slot_bytes;
	hoist__pool_stats(pool, &kept);
	if (bytes < HOIST__GROUP_LEAST_BYTES || bytes <= kept.largest_free_bytes ||
	    hoist__pools_make_room(2 * bytes, "staging slots") == 0 ||
	    hoist__group_look("", &group) != 0)
		return n;
	uint64_t room = group.left_bytes / 2 / slot_bytes;
	return (unsigned)hoist__min_u64(n, hoist__max_u64(room, 2));
}

enum hoist__engine_kind hoist__engine_kind_of(enum hoist_engine engine)
{
	static const enum hoist__engine_kind kinds[] = {
		[HOIST_ENGINE_AUTO] = HOIST__ENGINE_AUTO,
		[HOIST_ENGINE_URING] = HOIST__ENGINE_URING,
		[HOIST_ENGINE_THREADS] = HOIST__ENGINE_THREADS,
	};
	return kinds[engine];
}
