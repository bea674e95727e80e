/* SPDX-License-Identifier: MIT */
/* Staging that grows: by how much, within which budget, and what stays where it cannot. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/error.h"
#include "tests/support/io-helpers.h"
#include "io/staging.h"

#define SLOT ((size_t)64 << 10)

struct grown {
	struct hoist__pool *pool;
	struct hoist__budget *budget;
	struct hoist__staging *staging;
};

/* @pool_limit 0: none. */
static void open_staging(struct grown *g, unsigned n_slots, size_t budget, size_t pool_limit)
{
	const struct hoist__pool_options options = {
		.kind = HOIST__MEMORY_HOST,
		.region_bytes = 4096,
		.limit_bytes = pool_limit,
	};
	cr_assert(hoist__pool_create(&options, &g->pool) == 0, "%s", hoist__error_text());
	cr_assert(hoist__budget_create(budget, &g->budget) == 0);
	const struct hoist__staging_options staging = {
		.pool = g->pool,
		.budget = g->budget,
		.slot_bytes = SLOT,
		.n_slots = n_slots,
		.n_step = 2,
	};
	cr_assert(hoist__staging_create(&staging, &g->staging) == 0, "%s", hoist__error_text());
}

static void close_staging(struct grown *g)
{
	struct hoist__pool_stats stats;
	hoist__staging_destroy(g->staging);
	hoist__pool_stats(g->pool, &stats);
	cr_expect(stats.n_blocks == 0 && hoist__budget_used(g->budget) == 0);
	hoist__pool_unref(g->pool);
	hoist__budget_unref(g->budget);
}

/* Takes slots until none is left, and writes all of each.  Returns: how many. */
static unsigned take_all(struct grown *g, unsigned char value)
{
	unsigned n = 0;
	for (struct hoist__slot *slot; (slot = hoist__staging_acquire(g->staging)) != NULL; n++) {
		unsigned char byte = (unsigned char)(value + slot->index);
		memset(slot->request.address, byte, SLOT);
		cr_expect(slot->request.address[SLOT - 1] == byte);
	}
	return n;
}

static int make(struct grown *g)
{
	int err = hoist__staging_make(g->staging);
	hoist__staging_made(g->staging, err);
	return err;
}

Test(io_staging_grow, part_by_part)
{
	struct grown g;
	struct hoist__engine_buffer memory;
	open_staging(&g, 5, 1 << 20, 0);
	cr_expect(hoist__staging_n_slots(g.staging) == 5);
	cr_expect(!hoist__staging_memory(g.staging, &memory), "in one block");
	static const unsigned made[] = {2, 4, 5};
	for (unsigned i = 0; i < 3; i++) {
		cr_expect(take_all(&g, 1) == made[i] - (i > 0 ? made[i - 1] : 0));
		cr_expect(hoist__budget_used(g.budget) == made[i] * SLOT);
		cr_expect(hoist__staging_peak_bytes(g.staging) == made[i] * SLOT);
		cr_expect(hoist__staging_grow(g.staging) == (i < 2));
		cr_expect(!hoist__staging_grow(g.staging), "one part at a time");
		cr_expect(hoist__staging_acquire(g.staging) == NULL, "not made yet");
		if (i < 2)
			cr_expect(make(&g) == 0);
	}
	close_staging(&g);
}

/* The budget is asked again each time. */
Test(io_staging_grow, as_far_as_the_budget_goes)
{
	struct grown g;
	open_staging(&g, 8, 4 * SLOT, 0);
	cr_assert(hoist__budget_acquire(g.budget, 1) == 0);
	cr_expect(!hoist__staging_grow(g.staging));
	hoist__budget_release(g.budget, 1);
	cr_expect(hoist__staging_grow(g.staging) && make(&g) == 0);
	cr_expect(take_all(&g, 7) == 4 && !hoist__staging_grow(g.staging));
	cr_expect(hoist__budget_used(g.budget) == 4 * SLOT);
	close_staging(&g);
}

/* A part that is not made gives its charge back, and no other is begun. */
Test(io_staging_grow, not_without_memory)
{
	for (int cancelled = 0; cancelled < 2; cancelled++) {
		struct grown g;
		open_staging(&g, 8, 1 << 20, 3 * SLOT);
		cr_expect(hoist__staging_grow(g.staging));
		cr_expect(hoist__budget_used(g.budget) == 4 * SLOT);
		if (cancelled)
			hoist__staging_made(g.staging, -ECANCELED);
		else
			cr_expect(make(&g) == -EDQUOT);
		cr_expect(hoist__budget_used(g.budget) == 2 * SLOT);
		cr_expect(!hoist__staging_grow(g.staging) && take_all(&g, 3) == 2);
		close_staging(&g);
	}
}
