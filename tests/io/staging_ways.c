/* SPDX-License-Identifier: MIT */
/* The staging slots on their other ways: from a device, to several devices, rows, and being told
 * when copies end.  Plain C, so that ThreadSanitizer can watch the driver's threads. */
#include "config.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tests/support/emulator-driver.h"
#include "tests/support/io-helpers.h"
#include "tests/support/patience.h"
#include "io/staging.h"

#define SLOT ((size_t)64 << 10)
#define N_DEVICES 2
#define N_SLOTS 3

static struct hoist__dev *devs[N_DEVICES];
static struct hoist__dev_stream *streams[N_DEVICES];
static struct hoist__pool *pool;
static struct hoist__budget *budget;
static struct control control;
static atomic_int n_moved;

static void moved(void *context)
{
	CHECK(context == &n_moved);
	atomic_fetch_add(&n_moved, 1);
}

static struct hoist__staging *new_staging(unsigned n_streams)
{
	struct hoist__staging *staging = NULL;
	struct hoist__staging_options options = {
		.streams = streams,
		.n_streams = n_streams,
		.moved = moved,
		.context = &n_moved,
		.pool = pool,
		.budget = budget,
		.slot_bytes = SLOT,
		.n_slots = N_SLOTS,
	};
	OK(hoist__staging_create(&options, &staging));
	CHECK(!hoist__staging_ask(staging)); /* nothing is in flight */
	return staging;
}

static uintptr_t device_memory(int device, size_t bytes)
{
	uintptr_t address = 0;
	OK(hoist__dev_mem_alloc(devs[device], bytes, &address));
	return address;
}

/* Until @n calls of moved() more than @before have come. */
static void await_moved(int before, int n)
{
	for (uint64_t until = 0; atomic_load(&n_moved) < before + n;)
		CHECK(patience(&until));
}

static struct hoist__slot *await_fetched(struct hoist__staging *staging)
{
	struct hoist__slot *slot = NULL;
	int n;
	while ((n = hoist__staging_fetched(staging, &slot)) == 0)
		continue;
	CHECK(n == 1 && slot->state == HOIST__SLOT_FULL);
	return slot;
}

/* One slot to both devices, as rows of 100 bytes, and back from each of them. */
static void to_several_and_back(void)
{
	struct hoist__staging *staging = new_staging(N_DEVICES);
	uintptr_t at[N_DEVICES] = {device_memory(0, SLOT), device_memory(1, SLOT)};
	struct hoist__slot *slot = hoist__staging_acquire(staging);
	fill(slot->request.address, 0, SLOT);
	hoist__slot_filled(staging, slot);
	slot->useful = 4000;
	int before = atomic_load(&n_moved);
	for (unsigned d = 0; d < N_DEVICES; d++) {
		const struct hoist__slot_box piece = {.slot_offset = 50,
						      .device_address = at[d] + 7,
						      .bytes = 100,
						      .rows = 40,
						      .slot_stride = 300,
						      .device_stride = 110};
		OK(hoist__slot_copy(staging, slot, d, &piece, 1));
	}
	CHECK(hoist__staging_n_copying(staging) == 1);
	CHECK(hoist__staging_ask(staging) && hoist__staging_ask(staging));
	await_moved(before, N_DEVICES);
	CHECK(hoist__staging_take_copied(staging) == 0);
	CHECK(hoist__staging_reclaim(staging) == 1);
	CHECK(hoist__staging_take_copied(staging) == 4000 &&
	      hoist__staging_take_copied(staging) == 0);
	for (unsigned d = 0; d < N_DEVICES; d++) {
		slot = hoist__staging_acquire(staging);
		memset(slot->request.address, 0xee, SLOT);
		const struct hoist__slot_box piece = {
			.slot_offset = 3, .device_address = at[d] + 7, .bytes = 40 * 110 - 10};
		OK(hoist__slot_fetch(staging, slot, d, &piece, 1));
		CHECK(slot->state == HOIST__SLOT_FETCHING);
		CHECK(hoist__staging_n_fetching(staging) == 1);
		CHECK(await_fetched(staging) == slot);
		for (unsigned r = 0; r < 40; r++)
			for (unsigned i = 0; i < 100; i++)
				CHECK(slot->request.address[3 + r * 110 + i] ==
				      byte_at(50 + r * 300 + i));
		CHECK(slot->request.address[2] == 0xee);
		hoist__slot_release(staging, slot);
	}
	hoist__staging_destroy(staging);
	for (int d = 0; d < N_DEVICES; d++)
		OK(hoist__dev_mem_free(devs[d], at[d], SLOT));
}

/* A slot comes back when the last of its devices is done, and fetches come in their order. */
static void the_slowest_counts(void)
{
	struct hoist__staging *staging = new_staging(N_DEVICES);
	uintptr_t at[N_DEVICES] = {device_memory(0, SLOT), device_memory(1, SLOT)};
	control.hold(1);
	struct hoist__slot *slots[N_SLOTS];
	for (unsigned i = 0; i < N_SLOTS; i++) {
		slots[i] = hoist__staging_acquire(staging);
		memset(slots[i]->request.address, (int)i, SLOT);
		if (i == 0)
			hoist__slot_filled(staging, slots[0]);
	}
	struct hoist__slot_box piece = {.device_address = at[0], .bytes = SLOT};
	OK(hoist__slot_copy(staging, slots[0], 0, &piece, 1));
	OK(hoist__slot_fetch(staging, slots[1], 0, &piece, 1));
	piece.device_address = at[1];
	OK(hoist__slot_copy(staging, slots[0], 1, &piece, 1));
	OK(hoist__slot_fetch(staging, slots[2], 1, &piece, 1));
	struct hoist__slot *none = NULL;
	CHECK(hoist__staging_reclaim(staging) == 0 && hoist__staging_fetched(staging, &none) == 0);
	CHECK(hoist__staging_acquire(staging) == NULL && none == NULL);
	control.hold(0);
	CHECK(await_fetched(staging) == slots[1]);
	CHECK(await_fetched(staging) == slots[2]);
	CHECK(hoist__staging_wait(staging) == 1);
	for (size_t i = 0; i < SLOT; i++)
		CHECK(slots[1]->request.address[i] == 0);
	hoist__slot_release(staging, slots[1]);
	hoist__slot_filled(staging, hoist__staging_acquire(staging));
	hoist__slot_release(staging, slots[2]);
	hoist__staging_destroy(staging);
	for (int d = 0; d < N_DEVICES; d++)
		OK(hoist__dev_mem_free(devs[d], at[d], SLOT));
}

/* Destroyed with copies and fetches on their way: nobody is called afterwards. */
static void ends_in_the_middle(void)
{
	uintptr_t at = device_memory(0, SLOT);
	for (int i = 0; i < 20; i++) {
		struct hoist__staging *staging = new_staging(1);
		const struct hoist__slot_box piece = {.device_address = at, .bytes = SLOT};
		struct hoist__slot *a = hoist__staging_acquire(staging);
		struct hoist__slot *b = hoist__staging_acquire(staging);
		memset(a->request.address, i, SLOT);
		hoist__slot_filled(staging, a);
		OK(hoist__slot_copy(staging, a, 0, &piece, 1));
		OK(hoist__slot_fetch(staging, b, 0, &piece, 1));
		CHECK(hoist__staging_ask(staging));
		hoist__staging_destroy(staging);
		int n = atomic_load(&n_moved);
		struct hoist__staging *other = new_staging(0); /* most likely at the same address */
		hoist__staging_destroy(other);
		CHECK(atomic_load(&n_moved) == n);
	}
	OK(hoist__dev_mem_free(devs[0], at, SLOT));
}

static const char *const faults[] = {
	"cuMemcpyDtoHAsync:1", "cuMemcpyDtoHAsync:2", "cuEventRecord:1",
	"cuEventQuery:1",      "cuStreamWaitEvent:1", "cuLaunchHostFunc:1",
};

/* Calls of `moved` come for the slots that the owner asked about, and only for these: with one
 * stream and eight copies, for the third. */
static void only_the_asked_are_told(void)
{
	struct hoist__staging *staging = NULL;
	uintptr_t at = device_memory(0, SLOT);
	struct hoist__staging_options options = {.streams = streams,
						 .n_streams = 1,
						 .moved = moved,
						 .context = &n_moved,
						 .pool = pool,
						 .budget = budget,
						 .slot_bytes = SLOT,
						 .n_slots = 9};
	OK(hoist__staging_create(&options, &staging));
	uint64_t before = control.calls("cuLaunchHostFunc");
	int n = atomic_load(&n_moved);
	for (int round = 0; round < 3; round++) {
		const struct hoist__slot_box piece = {.device_address = at, .bytes = SLOT};
		control.hold(1);
		for (int i = 0; i < 8; i++) {
			struct hoist__slot *slot = hoist__staging_acquire(staging);
			CHECK(hoist__staging_n_free(staging) == (unsigned)(8 - i));
			memset(slot->request.address, i, SLOT);
			hoist__slot_filled(staging, slot);
			OK(hoist__slot_copy(staging, slot, 0, &piece, 1));
		}
		CHECK(round == 2 || hoist__staging_ask(staging));
		CHECK(atomic_load(&n_moved) == n + round);
		control.hold(0);
		if (round < 2)
			await_moved(n + round, 1);
		int back = hoist__staging_reclaim(staging);
		CHECK(round == 2 || back >= 3);
		while (hoist__staging_n_copying(staging) > 0)
			CHECK(hoist__staging_wait(staging) >= 0);
	}
	CHECK(control.calls("cuLaunchHostFunc") == before + 2 && atomic_load(&n_moved) == n + 2);
	hoist__staging_destroy(staging);
	OK(hoist__dev_mem_free(devs[0], at, SLOT));
}

/* Two pieces are fetched while one call fails: an error, or none where only the telling fails. */
static void a_fault_is_an_error_and_leaks_nothing(void)
{
	uintptr_t at = device_memory(0, SLOT);
	for (size_t f = 0; f < HOIST__ARRAY_SIZE(faults); f++) {
		struct hoist__staging *staging = new_staging(1);
		const struct hoist__slot_box pieces[] = {
			{.device_address = at, .bytes = 100},
			{.slot_offset = 100, .device_address = at + 100, .bytes = 100}};
		struct hoist__slot *slot = hoist__staging_acquire(staging);
		struct hoist__slot *full = NULL;
		OK(control.fail(faults[f]));
		int err = hoist__slot_fetch(staging, slot, 0, pieces, 2);
		bool only_told = strstr(faults[f], "Wait") || strstr(faults[f], "Launch");
		CHECK(!only_told || !hoist__staging_ask(staging));
		if (slot->state == HOIST__SLOT_READING)
			hoist__slot_release(staging, slot);
		int got = 0;
		for (int i = 0; slot->state == HOIST__SLOT_FETCHING && got == 0 && i < 100000000;
		     i++)
			got = hoist__staging_fetched(staging, &full);
		CHECK(only_told ? err == 0 && got == 1 : err < 0 || got < 0);
		(void)control.fail("");
		hoist__staging_destroy(staging);
	}
	OK(hoist__dev_mem_free(devs[0], at, SLOT));
}

int main(void)
{
	(void)driver_open("libhoist-emulated-cuda.so", "cuda:2", &control);
	struct hoist__pool_options options = {.kind = HOIST__MEMORY_PINNED,
					      .region_bytes = 2 << 20};
	for (int d = 0; d < N_DEVICES; d++) {
		OK(hoist__dev_get(HOIST__API_CUDA, d, &devs[d]));
		OK(hoist__dev_stream_create(devs[d], &streams[d]));
	}
	options.dev = devs[0];
	OK(hoist__pool_create(&options, &pool));
	OK(hoist__budget_create(1 << 20, &budget));
	to_several_and_back();
	the_slowest_counts();
	ends_in_the_middle();
	only_the_asked_are_told();
	a_fault_is_an_error_and_leaks_nothing();
	struct hoist__pool_stats stats;
	hoist__pool_stats(pool, &stats);
	CHECK(stats.n_blocks == 0 && hoist__budget_used(budget) == 0);
	CHECK(counters_of(&control).use_after_free == 0);
	for (int d = 0; d < N_DEVICES; d++)
		hoist__dev_stream_destroy(streams[d]);
	hoist__pool_unref(pool);
	hoist__budget_unref(budget);
	return 0;
}
