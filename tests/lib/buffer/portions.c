/* SPDX-License-Identifier: MIT */
/* Portions of one storage: random ranges are taken and dropped in any order, and after each step
 * the kernel is asked for every page.  The model knows bytes: a page is there as long as a portion
 * that somebody holds has a byte in it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/buffer/portions.h"
#include "lib/memory/memory.h"
#include "tests/support/lib-unit.h"
#include "tests/support/random.h"

#define PAGE ((size_t)4096)
#define WHOLE ((size_t)2 << 20)
#define N_PAGES (WHOLE / PAGE)
#define N_MOST 300

struct model {
	uint64_t seed;
	hoist_memory *memory;
	struct hoist__storage *whole;
	struct hoist__portions *table;
	unsigned char *bytes; /* where the whole lies */
	size_t n;
	struct hoist__portion_range ranges[N_MOST];
	struct hoist__storage *held[N_MOST]; /* NULL: dropped, or never taken */
	size_t n_held;
};

/* Half of the ranges share pages, some have bytes of nobody's between them, and some are large. */
static void choose_ranges(struct model *m)
{
	size_t at = random_below(&m->seed, 3) * 1000;
	for (m->n = 0; m->n < N_MOST; m->n++) {
		static const size_t most[] = {100, 5000, 100000};
		size_t bytes = 1 + random_below(&m->seed, most[random_below(&m->seed, 3)]);
		if (at + bytes > WHOLE)
			break;
		m->ranges[m->n] = (struct hoist__portion_range){at, at + bytes};
		at += bytes + (random_below(&m->seed, 2) ? 0 : random_below(&m->seed, 9000));
	}
}

/* Blocks of this size have a region of their own. */
static void make_whole(struct model *m, unsigned flags)
{
	const hoist_memory_options options = {
		.size = sizeof options, .region_bytes = WHOLE, .keep_bytes = 1};
	OK(hoist_memory_create(&options, &m->memory));
	OK(hoist__storage_create(m->memory, NULL, WHOLE, 0, flags, &m->whole));
	m->bytes = (unsigned char *)hoist__storage_address(m->whole);
	for (size_t i = 0; i < WHOLE; i++)
		m->bytes[i] = (unsigned char)(i * 31 + i / PAGE);
	cr_assert(hoist__storage_can_shrink(m->whole));
}

static void check_bytes(const struct model *m)
{
	for (size_t i = 0; i < m->n; i++)
		for (size_t at = m->ranges[i].begin; m->held[i] != NULL && at < m->ranges[i].end;
		     at++)
			cr_assert_eq(m->bytes[at], (unsigned char)(at * 31 + at / PAGE));
}

/* Every page, and the statistics, while at least one portion is held. */
static void check_pages(const struct model *m)
{
	unsigned char there[N_PAGES];
	bool wanted[N_PAGES] = {false};
	hoist_memory_statistics s = {.size = sizeof s};
	size_t n = 0;
	for (size_t i = 0; i < m->n; i++)
		for (size_t p = m->ranges[i].begin / PAGE;
		     m->held[i] != NULL && p <= (m->ranges[i].end - 1) / PAGE; p++)
			wanted[p] = true;
	OK(mincore(m->bytes, WHOLE, there));
	for (size_t p = 0; p < N_PAGES; p++) {
		cr_assert_eq(there[p] & 1, wanted[p], "page %zu of seed %llu", p,
			     (unsigned long long)m->seed);
		n += wanted[p];
	}
	OK(hoist_memory_get_statistics(m->memory, &s));
	cr_assert_eq(s.requested_bytes, n * PAGE);
	cr_assert_eq(s.allocated_bytes, n * PAGE);
	cr_assert_eq(s.reserved_bytes, n * PAGE);
	cr_assert_eq(s.n_blocks, 1);
}

static void drop(struct model *m, size_t i)
{
	hoist__storage_unref(m->held[i]);
	m->held[i] = NULL;
	m->n_held--;
}

/* Takes most of the portions, some twice. */
static void take(struct model *m)
{
	for (size_t i = 0; i < m->n; i++) {
		struct hoist__storage *again;
		struct hoist__storage *made;
		size_t bytes = m->ranges[i].end - m->ranges[i].begin;
		size_t begin;
		if (random_below(&m->seed, 8) == 0)
			continue;
		OK(hoist__portions_take(m->table, m->ranges[i].begin, &made, &begin));
		OK(hoist__portions_take(m->table, m->ranges[i].end - 1, &again, &begin));
		cr_assert(made == again && begin == m->ranges[i].begin);
		cr_assert_eq(hoist__storage_bytes(made), bytes);
		cr_assert_eq(hoist__storage_address(made), (uintptr_t)m->bytes + begin);
		cr_assert_eq(hoist__storage_memory(made), m->memory);
		if (random_below(&m->seed, 8) == 0)
			continue; /* the table alone holds it */
		m->held[i] = hoist__storage_ref(made);
		m->n_held++;
	}
}

static void run(uint64_t seed, unsigned flags)
{
	struct model m = {.seed = seed};
	hoist_memory_statistics s = {.size = sizeof s};
	choose_ranges(&m);
	make_whole(&m, flags);
	OK(hoist__portions_create(m.whole, m.ranges, m.n, &m.table));
	hoist__storage_unref(m.whole);
	take(&m);
	for (size_t i = 0; i < m.n; i++)
		if (m.held[i] != NULL && m.n_held > 1 && random_below(&m.seed, 4) == 0)
			drop(&m, i); /* can be taken again: nothing goes back yet */
	OK(hoist_memory_get_statistics(m.memory, &s));
	cr_assert_eq(s.reserved_bytes, WHOLE);
	hoist__portions_close(m.table);
	while (m.n_held > 0) {
		check_pages(&m);
		size_t i = random_below(&m.seed, m.n);
		while (m.held[i] == NULL)
			i = (i + 1) % m.n;
		/* Neighbours often go together. */
		for (size_t n = random_below(&m.seed, 4); i < m.n && n < 4; i++, n++)
			if (m.held[i] != NULL)
				drop(&m, i);
		check_bytes(&m);
	}
	OK(hoist_memory_get_statistics(m.memory, &s));
	cr_assert_eq(s.reserved_bytes, 0, "the block goes with the last portion");
	cr_assert_eq(s.requested_bytes, 0);
	cr_assert_eq(s.n_blocks, 0);
	hoist_memory_unref(m.memory);
}

Test(portions, give_back_each_page_with_its_last_byte, .init = open_cpu)
{
	for (uint64_t seed = 1; seed <= 12; seed++)
		run(seed, seed % 2 == 0 ? HOIST__STORAGE_UNPOPULATED : 0);
}

/* Nobody holds a portion: the block goes at once. */
Test(portions, of_which_none_is_held_take_the_block_along, .init = open_cpu)
{
	struct model m = {.seed = 1};
	hoist_memory_statistics s = {.size = sizeof s};
	struct hoist__storage *made;
	size_t begin;
	choose_ranges(&m);
	make_whole(&m, 0);
	OK(hoist__portions_create(m.whole, m.ranges, m.n, &m.table));
	OK(hoist__portions_take(m.table, m.ranges[3].begin, &made, &begin));
	hoist__storage_unref(m.whole);
	hoist__portions_close(m.table);
	hoist__portions_close(NULL);
	OK(hoist_memory_get_statistics(m.memory, &s));
	cr_assert_eq(s.reserved_bytes, 0);
	hoist_memory_unref(m.memory);
}

/* Whether blocks of the resource can give pages back. */
static bool can_shrink(const hoist_memory_options *options, size_t bytes)
{
	struct hoist__storage *whole;
	hoist_memory *memory;
	OK(hoist_memory_create(options, &memory));
	OK(hoist__storage_create(memory, NULL, bytes, 0, 0, &whole));
	bool can = hoist__storage_can_shrink(whole);
	hoist__storage_unref(whole);
	hoist_memory_unref(memory);
	return can;
}

Test(portions, need_pageable_memory_in_a_region_of_its_own, .init = open_all)
{
	struct hoist__storage *none;
	OK(hoist__storage_none(devices[0], &none));
	cr_expect_not(hoist__storage_can_shrink(none));
	hoist__storage_unref(none);
	for (int d = 0; d < LIB_N_DEVICES; d++) {
		const hoist_memory_options pinned = {.size = sizeof pinned,
						     .kind = HOIST_MEMORY_PINNED,
						     .device = devices[d],
						     .region_bytes = 65536};
		const hoist_memory_options device = {.size = sizeof device,
						     .kind = HOIST_MEMORY_DEVICE,
						     .device = devices[d],
						     .region_bytes = 65536};
		cr_expect_not(can_shrink(&pinned, 65536));
		cr_expect_eq(can_shrink(&device, 65536), d == 0, "of the CPU: host memory");
	}
	const hoist_memory_options host = {.size = sizeof host, .region_bytes = 1 << 20};
	cr_expect_not(can_shrink(&host, 65536));
}
