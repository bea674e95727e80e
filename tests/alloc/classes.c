/* SPDX-License-Identifier: MIT */
/* Size classes and the geometry of slabs: what rounding wastes, and that no block is outside. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#include "alloc/slab.h"
#include "base/checked.h"
#include "tests/support/random.h"

#define BASE ((uintptr_t)0x5000 << 32)

static const unsigned quanta[] = {6, 8};

static unsigned n_classes(unsigned shift)
{
	return hoist__class_of(HOIST__CLASS_MOST_BYTES, shift) + 1;
}

Test(alloc_classes, every_size_is_in_the_least_class_that_holds_it)
{
	for (size_t q = 0; q < HOIST__ARRAY_SIZE(quanta); q++)
		for (size_t bytes = 1; bytes <= HOIST__CLASS_MOST_BYTES; bytes++) {
			unsigned class = hoist__class_of(bytes, quanta[q]);
			cr_assert_leq(bytes, hoist__class_bytes(class, quanta[q]));
			if (class > 0)
				cr_assert_gt(bytes, hoist__class_bytes(class - 1, quanta[q]));
		}
}

Test(alloc_classes, classes_are_multiples_of_the_quantum_and_waste_an_eighth_at_most)
{
	for (size_t q = 0; q < HOIST__ARRAY_SIZE(quanta); q++) {
		const size_t quantum = (size_t)1 << quanta[q];
		size_t before = 0;
		cr_assert_leq(n_classes(quanta[q]), HOIST__CLASSES_MOST);
		for (unsigned class = 0; class < n_classes(quanta[q]); class ++) {
			size_t bytes = hoist__class_bytes(class, quanta[q]);
			cr_assert_eq(bytes % quantum, 0);
			cr_assert_eq(hoist__class_of(bytes, quanta[q]), class);
			/* The least that it holds: one quantum aside, no more is wasted. */
			size_t waste = bytes - (before + 1);
			cr_assert(waste < quantum || waste * 8 < bytes, "%zu of %zu", waste, bytes);
			before = bytes;
		}
		cr_assert_eq(before, HOIST__CLASS_MOST_BYTES);
	}
}

Test(alloc_classes, slabs_hold_their_blocks_and_waste_little)
{
	static const size_t most[] = {1, 2, 4, 8, HOIST__SLAB_GRANULES_MOST, 1000};
	for (size_t q = 0; q < HOIST__ARRAY_SIZE(quanta); q++)
		for (unsigned i = 0; i < n_classes(quanta[q]); i++)
			for (size_t m = 0; m < HOIST__ARRAY_SIZE(most); m++) {
				size_t bytes = hoist__class_bytes(i, quanta[q]);
				struct hoist__class class = {0};
				if (!hoist__class_possible(bytes, most[m])) {
					cr_assert_gt(bytes, most[m] * HOIST__GRANULE_BYTES);
					continue;
				}
				hoist__class_init(&class, i, bytes, most[m]);
				size_t slab = class.n_granules * HOIST__GRANULE_BYTES;
				cr_assert_leq(class.n_granules, most[m]);
				cr_assert_leq(class.n_granules, HOIST__SLAB_GRANULES_MOST);
				cr_assert_geq(class.n_blocks, 1);
				cr_assert_leq(class.n_blocks, HOIST__SLAB_BLOCKS_MOST);
				cr_assert_leq(class.n_blocks * bytes, slab);
				/* With room to choose, at most a twelfth lies behind the blocks. */
				if (most[m] >= HOIST__SLAB_GRANULES_MOST)
					cr_assert_leq((slab - class.n_blocks * bytes) * 12, slab,
						      "%zu bytes", bytes);
			}
}

/* Division by multiplication must agree with division, at every byte that could differ. */
Test(alloc_classes, addresses_are_told_to_blocks_exactly)
{
	for (size_t q = 0; q < HOIST__ARRAY_SIZE(quanta); q++)
		for (unsigned i = 0; i < n_classes(quanta[q]); i++) {
			struct hoist__class class = {0};
			size_t bytes = hoist__class_bytes(i, quanta[q]);
			uint32_t index;
			hoist__class_init(&class, i, bytes, SIZE_MAX);
			struct hoist__slab *slab = hoist__slab_create(NULL, &class);
			cr_assert_not_null(slab);
			slab->base = BASE;
			for (uint32_t k = 0; k < slab->n_blocks; k++) {
				uintptr_t block = hoist__slab_block(slab, k);
				cr_assert_eq(hoist__slab_index(slab, block), k);
				cr_assert_eq(hoist__slab_index(slab, block + 1), k);
				cr_assert_eq(hoist__slab_index(slab, block + bytes - 1), k);
				cr_assert(hoist__slab_at(slab, block, &index) && index == k);
				cr_assert_not(hoist__slab_at(slab, block + 1, &index));
				cr_assert_not(hoist__slab_at(slab, block + bytes - 1, &index));
			}
			/* The bytes behind the last block are no block. */
			uintptr_t end = BASE + slab->n_blocks * bytes;
			uintptr_t all = BASE + class.n_granules * HOIST__GRANULE_BYTES;
			for (uintptr_t at = end; at < all; at += 64)
				cr_assert_not(hoist__slab_at(slab, at, &index));
			free(slab);
		}
}

/* --- slabs against an array of owners --- */

#define SLABS 8

struct owners {
	struct hoist__class class;
	struct hoist__slab *slabs[SLABS]; /* NULL: the class gave it up */
	struct hoist__entry *out;
	size_t n_out;
};

static void add_slab(struct owners *owners)
{
	for (size_t i = 0; i < SLABS; i++)
		if (owners->slabs[i] == NULL) {
			struct hoist__slab *slab = hoist__class_spare(&owners->class);
			if (slab == NULL)
				slab = hoist__slab_create(NULL, &owners->class);
			cr_assert_not_null(slab);
			slab->base = BASE + i * HOIST__MIB;
			owners->slabs[i] = slab;
			hoist__class_add(&owners->class, slab);
			return;
		}
	cr_assert_fail("more slabs than blocks can be out of");
}

static void take_out(struct owners *owners, size_t n)
{
	size_t taken = hoist__class_take(&owners->class, owners->out + owners->n_out, n);
	if (taken == 0) {
		add_slab(owners);
		taken = hoist__class_take(&owners->class, owners->out + owners->n_out, n);
	}
	cr_assert(taken > 0 && taken <= n);
	for (size_t i = owners->n_out; i < owners->n_out + taken; i++) {
		/* Nobody's until now. */
		cr_assert_eq(atomic_exchange(owners->out[i].state, 1), 0);
		struct hoist__slab *slab =
			owners->slabs[(owners->out[i].address - BASE) / HOIST__MIB];
		uint32_t index;
		cr_assert(hoist__slab_at(slab, owners->out[i].address, &index));
		cr_assert_eq(&slab->states[index], owners->out[i].state);
	}
	owners->n_out += taken;
}

static void put_back(struct owners *owners, size_t k)
{
	struct hoist__entry entry = owners->out[k];
	size_t i = (entry.address - BASE) / HOIST__MIB;
	owners->out[k] = owners->out[--owners->n_out];
	atomic_store(entry.state, 0);
	struct hoist__slab *dropped =
		hoist__class_give(&owners->class, owners->slabs[i], entry.address);
	if (dropped == NULL)
		return;
	cr_assert_eq(dropped, owners->slabs[i]);
	cr_assert_eq(dropped->n_free, dropped->n_blocks);
	owners->slabs[i] = NULL;
	hoist__class_return_spare(&owners->class, dropped);
}

static void run_owners(size_t bytes)
{
	struct owners owners = {0};
	uint64_t random = bytes;
	hoist__class_init(&owners.class, 0, bytes, SIZE_MAX);
	hoist__lock(&owners.class.lock);
	const size_t most = (SLABS - 1) * owners.class.n_blocks;
	cr_assert_not_null(owners.out = calloc(most + 64, sizeof *owners.out));
	for (int i = 0; i < 20000; i++) {
		size_t n = 1 + random_below(&random, 32);
		if (owners.n_out + n <= most && random_below(&random, 2) == 0)
			take_out(&owners, n);
		else
			for (; n > 0 && owners.n_out > 0; n--)
				put_back(&owners, random_below(&random, owners.n_out));
		hoist__class_check(&owners.class);
		cr_assert_eq(owners.class.n_out, owners.n_out);
	}
	while (owners.n_out > 0)
		put_back(&owners, 0);
	/* At most one is kept for the next allocation. */
	struct hoist__slab *kept = hoist__class_shrink(&owners.class);
	if (kept != NULL)
		hoist__class_return_spare(&owners.class, kept);
	cr_assert_null(hoist__class_shrink(&owners.class));
	cr_assert_eq(owners.class.n_slabs, 0);
	hoist__class_check(&owners.class);
	hoist__unlock(&owners.class.lock);
	hoist__class_done(&owners.class);
	free(owners.out);
}

Test(alloc_classes, slabs_agree_with_an_array_of_owners)
{
	run_owners(64);
	run_owners(448);
	run_owners(5120);
	run_owners(64 * HOIST__KIB);
	run_owners(HOIST__MIB);
}
