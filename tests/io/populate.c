/* SPDX-License-Identifier: MIT */
/* Memory that is faulted in ahead of its reader.  The linker (--wrap) lets a test
 * hold back the slice that begins at `held`. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc/region.h"
#include "tests/support/io-helpers.h"
#include "tests/support/wrap.h"
#include "io/populate.h"
#include "io/worker.h"
#include "numa/processors.h"

#define MIB ((size_t)1 << 20)

static _Atomic(void *) held;
static _Atomic(void *) waiting; /* a thread, before that slice */
static atomic_int n_populated;
static unsigned char *order[16]; /* of the first slices to end */
static atomic_uint order_n;

WRAP(int, hoist__populate, (void *address, size_t bytes))
{
	while (atomic_load(&held) == address) {
		atomic_store(&waiting, address);
		sched_yield();
	}
	int err = __real_hoist__populate(address, bytes);
	unsigned n = atomic_fetch_add(&order_n, 1);
	if (n < sizeof order / sizeof *order)
		order[n] = address;
	atomic_fetch_add(&n_populated, 1);
	return err;
}

/* --- threads --- */

static unsigned pretended; /* processors of the memory's node; 0: the machine's own */
static atomic_uint n_started;

WRAP(void, hoist__processors_for, (const void *address, struct hoist__processors *ret))
{
	__real_hoist__processors_for(address, ret);
	if (pretended != 0)
		ret->n = pretended;
}

WRAP(int, hoist__worker_start, (pthread_t * thread, void *(*run)(void *), void *argument))
{
	atomic_fetch_add(&n_started, 1);
	return __real_hoist__worker_start(thread, run, argument);
}

/* For one reader. */
static int start(void *memory, size_t bytes, unsigned n_threads, struct hoist__populator **ret)
{
	const struct hoist__populator_options options = {
		.address = memory, .bytes = bytes, .n_threads = n_threads};
	return hoist__populator_start(&options, ret);
}

static unsigned char *reserve(size_t bytes)
{
	void *memory =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert(memory != MAP_FAILED);
	return memory;
}

/* Pages of [memory, memory+bytes) that are there. */
static size_t pages_present(void *memory, size_t bytes)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (bytes + page - 1) / page, present = 0;
	unsigned char *map = malloc(n);
	cr_assert(map != NULL && mincore(memory, bytes, map) == 0);
	for (size_t i = 0; i < n; i++)
		present += map[i] & 1u;
	free(map);
	return present;
}

/* As many threads as the node has processors, as there are slices of 16 MiB, and as the bound says.
 */
Test(io_populate, the_processors_of_the_node_populate)
{
	static const struct {
		unsigned processors;
		unsigned asked;
		size_t slices;
		unsigned expected;
	} rows[] = {{1, 0, 9, 1}, {6, 0, 9, 6},	   {6, 0, 3, 3},
		    {6, 2, 9, 2}, {40, 0, 20, 16}, {40, 40, 20, 16}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t bytes = rows[i].slices * 16 * MIB;
		unsigned char *room = reserve(bytes + 16 * MIB);
		unsigned char *memory = room + 16 * MIB - (uintptr_t)room % (16 * MIB);
		struct hoist__populator *populator = NULL;
		pretended = rows[i].processors;
		atomic_store(&n_started, 0);
		cr_assert(start(memory, bytes, rows[i].asked, &populator) == 0);
		hoist__populator_stop(populator);
		cr_expect(atomic_load(&n_started) == rows[i].expected, "%zu: %u", i,
			  atomic_load(&n_started));
		munmap(room, bytes + 16 * MIB);
	}
	pretended = 0;
}

Test(io_populate, populates_every_page_in_order)
{
	for (size_t bytes = 4096; bytes <= 52 * MIB; bytes = bytes * 7 / 4096 * 4096) {
		unsigned char *memory = reserve(bytes);
		struct hoist__populator *populator = NULL;
		cr_assert(start(memory, bytes, 0, &populator) == 0);
		size_t done = 0, before = 0;
		while (done < bytes) {
			cr_assert(hoist__populator_wait(populator, 0, before + 1, UINT64_MAX) == 0);
			cr_assert(hoist__populator_done(populator, 0, 0, &done) == 0);
			cr_assert(done > before && done <= bytes, "the prefix only grows");
			cr_assert(pages_present(memory, done) == (done + 4095) / 4096);
			before = done;
		}
		cr_expect(hoist__populator_wait(populator, 0, bytes + 12345, UINT64_MAX) == 0,
			  "more than all is all");
		hoist__populator_stop(populator);
		for (size_t i = 0; i < bytes; i += 4096)
			cr_assert(memory[i] == 0);
		munmap(memory, bytes);
	}
}

Test(io_populate, keeps_bytes_that_are_there_already)
{
	unsigned char *memory = reserve(4 * MIB);
	fill(memory, 0, 4 * MIB);
	struct hoist__populator *populator = NULL;
	cr_assert(start(memory, 4 * MIB, 2, &populator) == 0);
	cr_assert(hoist__populator_wait(populator, 0, 4 * MIB, UINT64_MAX) == 0);
	hoist__populator_stop(populator);
	for (size_t i = 0; i < 4 * MIB; i++)
		cr_assert(memory[i] == byte_at(i));
	munmap(memory, 4 * MIB);
}

Test(io_populate, stops_early)
{
	unsigned char *memory = reserve(512 * MIB);
	struct hoist__populator *populator = NULL;
	cr_assert(start(memory, 512 * MIB, 1, &populator) == 0);
	cr_expect(hoist__populator_wait(populator, 0, 512 * MIB, 0) == -EAGAIN);
	hoist__populator_stop(populator);
	cr_expect(pages_present(memory, 512 * MIB) < 512 * MIB / 4096);
	munmap(memory, 512 * MIB);
	hoist__populator_stop(NULL);
}

Test(io_populate, reports_memory_that_cannot_be_had)
{
	/* Nothing is mapped behind the first half. */
	unsigned char *memory = reserve(64 * MIB);
	munmap(memory + 32 * MIB, 32 * MIB);
	struct hoist__populator *populator = NULL;
	cr_assert(start(memory, 64 * MIB, 2, &populator) == 0);
	cr_expect(hoist__populator_wait(populator, 0, 64 * MIB, UINT64_MAX) == -ENOMEM);
	size_t done;
	cr_expect(hoist__populator_done(populator, 0, 0, &done) == -ENOMEM);
	hoist__populator_stop(populator);
	munmap(memory, 32 * MIB);
}

Test(io_populate, counts_no_slice_before_the_ones_in_front_of_it)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < 2)
		cr_skip_test("one CPU: one thread, and slices in order");
	/* Slices of 16 MiB by address: at least three of them. */
	unsigned char *memory = reserve(64 * MIB);
	struct hoist__populator *populator = NULL;
	atomic_store(&held, memory);
	cr_assert(start(memory, 64 * MIB, 2, &populator) == 0);
	while (atomic_load(&n_populated) < 3)
		sched_yield();
	size_t done = 1;
	cr_expect(hoist__populator_done(populator, 0, 0, &done) == 0 && done == 0);
	cr_expect(hoist__populator_wait(populator, 0, 1, 1000000) == -EAGAIN);
	atomic_store(&held, NULL);
	cr_expect(hoist__populator_wait(populator, 0, 64 * MIB, UINT64_MAX) == 0);
	hoist__populator_stop(populator);
	munmap(memory, 64 * MIB);
}

/* --- several readers --- */

static void await_held(void)
{
	while (atomic_load(&waiting) != atomic_load(&held))
		sched_yield();
}

/* One thread, so that slices come one after the other: in front of the reader that has the fewest
 * populated ahead of what it wants. */
Test(io_populate, goes_in_front_of_each_reader)
{
	/* On the grid of slices. */
	unsigned char *reserved = reserve(176 * MIB);
	unsigned char *memory = (unsigned char *)(((uintptr_t)reserved + 16 * MIB - 1) &
						  ~(uintptr_t)(16 * MIB - 1));
	/* Slices 0 to 2 are reader 0's, 3 both readers', 4 to 6 reader 1's, and 7, which is
	 * nobody's part; 8 and 9 reader 0's. */
	static const struct hoist__populator_part parts[] = {
		{0, 56 * MIB, 0}, {56 * MIB, 112 * MIB, 1}, {128 * MIB, 160 * MIB, 0}};
	const struct hoist__populator_options options = {.address = memory,
							 .bytes = 160 * MIB,
							 .n_threads = 1,
							 .parts = parts,
							 .n_parts = 3};
	struct hoist__populator *populator = NULL;
	size_t done = 1;
	atomic_store(&held, memory);
	cr_assert(hoist__populator_start(&options, &populator) == 0);
	await_held();
	/* Reader 1 wants all up to slice 6: these come first, then one of each. */
	cr_expect(hoist__populator_done(populator, 1, 112 * MIB, &done) == 0 && done == 48 * MIB);
	cr_expect(hoist__populator_done(populator, 0, 0, &done) == 0 && done == 0);
	atomic_store(&held, memory + 16 * MIB);
	await_held();
	/* Each reader has a populated prefix of its own; all of the prefix is all of the memory. */
	cr_expect(hoist__populator_done(populator, 1, 0, &done) == 0 && done == 160 * MIB);
	cr_expect(hoist__populator_done(populator, 0, 0, &done) == 0 && done == 16 * MIB);
	cr_expect(hoist__populator_wait(populator, 0, 17 * MIB, 1000000) == -EAGAIN);
	cr_expect(hoist__populator_wait(populator, 1, 160 * MIB, 0) == 0);
	atomic_store(&held, NULL);
	cr_assert(hoist__populator_wait(populator, 0, 160 * MIB, UINT64_MAX) == 0);
	hoist__populator_stop(populator);
	cr_assert_eq(order_n, 10);
	static const unsigned want[] = {0, 3, 4, 5, 6, 7, 1, 2, 8, 9};
	for (unsigned i = 0; i < 10; i++)
		cr_expect_eq((size_t)(order[i] - memory) / (16 * MIB), want[i], "slice %u", i);
	cr_expect_eq(pages_present(memory, 160 * MIB), 160 * MIB / 4096);
	munmap(reserved, 176 * MIB);
}

/* The reader passes by all that ends before a place: slices of it alone are not populated, and it
 * waits for none of them.  A slice that reaches beyond, or that another reader has a part of, is
 * populated whole. */
Test(io_populate, places_that_are_passed_by)
{
	static const struct {
		size_t end;   /* MiB that reader 0 passes by */
		size_t first; /* the first slice of reader 0's that is populated then */
		bool shared;  /* reader 1 has a byte in the second slice */
	} table[] = {{0, 0, false},  {15, 0, false}, {16, 1, false},
		     {40, 2, false}, {64, 4, false}, {40, 2, true}};
	const size_t slice = 16 * MIB;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		unsigned char *reserved = reserve(6 * slice);
		unsigned char *memory = reserved + slice - (uintptr_t)reserved % slice;
		const struct hoist__populator_part parts[] = {
			{0, slice + MIB, 0},
			{slice + MIB, slice + 2 * MIB, table[i].shared},
			{slice + 2 * MIB, 4 * slice, 0}};
		const struct hoist__populator_options options = {.address = memory,
								 .bytes = 4 * slice,
								 .n_threads = 1,
								 .parts = parts,
								 .n_parts = 3};
		struct hoist__populator *populator = NULL;
		/* The thread is in the first slice until the test has passed by the others. */
		atomic_store(&waiting, NULL);
		atomic_store(&held, memory);
		cr_assert(hoist__populator_start(&options, &populator) == 0);
		while (atomic_load(&waiting) == NULL)
			sched_yield();
		hoist__populator_pass(populator, 0, table[i].end * MIB);
		size_t done = 0;
		cr_assert(hoist__populator_done(populator, 0, 0, &done) == 0 && done == 0);
		atomic_store(&held, NULL);
		cr_assert(hoist__populator_wait(populator, 0, 4 * slice, UINT64_MAX) == 0);
		for (size_t s = 1; s < 4; s++) {
			bool wanted = s >= table[i].first || (s == 1 && table[i].shared);
			size_t there = pages_present(memory + s * slice, slice);
			cr_assert(there == (wanted ? slice / 4096 : 0), "slice %zu", s);
		}
		hoist__populator_stop(populator);
		munmap(reserved, 6 * slice);
	}
}
