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
#include "io-helpers.h"
#include "io/populate.h"

#define MIB ((size_t)1 << 20)

static _Atomic(void *) held;
static atomic_int n_populated;

int __real_hoist__populate(void *address, size_t bytes);
int __wrap_hoist__populate(void *address, size_t bytes);
int __wrap_hoist__populate(void *address, size_t bytes)
{
	while (atomic_load(&held) == address)
		sched_yield();
	int err = __real_hoist__populate(address, bytes);
	atomic_fetch_add(&n_populated, 1);
	return err;
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

Test(io_populate, populates_every_page_in_order)
{
	for (size_t bytes = 4096; bytes <= 52 * MIB; bytes = bytes * 7 / 4096 * 4096) {
		unsigned char *memory = reserve(bytes);
		struct hoist__populator *populator = NULL;
		cr_assert(hoist__populator_start(memory, bytes, 0, &populator) == 0);
		size_t done = 0, before = 0;
		while (done < bytes) {
			cr_assert(hoist__populator_wait(populator, before + 1, UINT64_MAX) == 0);
			cr_assert(hoist__populator_done(populator, &done) == 0);
			cr_assert(done > before && done <= bytes, "the prefix only grows");
			cr_assert(pages_present(memory, done) == (done + 4095) / 4096);
			before = done;
		}
		cr_expect(hoist__populator_wait(populator, bytes + 12345, UINT64_MAX) == 0,
			  "more than all is all");
		hoist__populator_stop(populator);
		for (size_t i = 0; i < bytes; i += 4096)
			cr_assert(memory[i] == 0);
		munmap(memory, bytes);
	}
}

Test(io_populate, keeps_what_is_there_already)
{
	unsigned char *memory = reserve(4 * MIB);
	fill(memory, 0, 4 * MIB);
	struct hoist__populator *populator = NULL;
	cr_assert(hoist__populator_start(memory, 4 * MIB, 2, &populator) == 0);
	cr_assert(hoist__populator_wait(populator, 4 * MIB, UINT64_MAX) == 0);
	hoist__populator_stop(populator);
	for (size_t i = 0; i < 4 * MIB; i++)
		cr_assert(memory[i] == byte_at(i));
	munmap(memory, 4 * MIB);
}

Test(io_populate, stops_early)
{
	unsigned char *memory = reserve(512 * MIB);
	struct hoist__populator *populator = NULL;
	cr_assert(hoist__populator_start(memory, 512 * MIB, 1, &populator) == 0);
	cr_expect(hoist__populator_wait(populator, 512 * MIB, 0) == -EAGAIN);
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
	cr_assert(hoist__populator_start(memory, 64 * MIB, 2, &populator) == 0);
	cr_expect(hoist__populator_wait(populator, 64 * MIB, UINT64_MAX) == -ENOMEM);
	size_t done;
	cr_expect(hoist__populator_done(populator, &done) == -ENOMEM);
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
	cr_assert(hoist__populator_start(memory, 64 * MIB, 2, &populator) == 0);
	while (atomic_load(&n_populated) < 3)
		sched_yield();
	size_t done = 1;
	cr_expect(hoist__populator_done(populator, &done) == 0 && done == 0);
	cr_expect(hoist__populator_wait(populator, 1, 1000000) == -EAGAIN);
	atomic_store(&held, NULL);
	cr_expect(hoist__populator_wait(populator, 64 * MIB, UINT64_MAX) == 0);
	hoist__populator_stop(populator);
	munmap(memory, 64 * MIB);
}
