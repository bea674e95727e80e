/* SPDX-License-Identifier: MIT */
/* Now and then all threads of a process let go of what they have and wait, while one of them writes
 * down what the process holds then.  The figures of a process that lives long must not grow. */
#include "config.h"

#include "tests/soak/worker.h"

#include <dirent.h>
#include <malloc.h>
#include <string.h>

#include "lib/memory/device-memory.h"
#include "lib/memory/memory.h"
#include "tests/support/count.h"
#include "tests/support/smaps.h"

#define MIB ((size_t)1 << 20)

hoist_memory *soak_pools[SOAK_N_POOLS];
static hoist_budget *pool_budget;

/* --- pools: new ones after each rest, of what little they keep --- */

static void make_pools(void)
{
	static const int kinds[] = {HOIST_MEMORY_HOST, HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE,
				    HOIST_MEMORY_DRIVER_POOL};
	static const int devices[] = {CPU, CUDA_0, CUDA_1, HIP_0};
	OK(hoist_budget_create(24 * MIB, &pool_budget));
	for (int p = 0; p < SOAK_N_POOLS; p++) {
		hoist_memory_options o = {
			.size = sizeof o, .kind = kinds[p], .device = soak_devices[devices[p]]};
		if (p == POOL_DRIVER) {
			o.flags = HOIST_MEMORY_SHAREABLE;
		} else {
			o.region_bytes = 2 * MIB;
			o.keep_bytes = 65536;
			o.cache_bytes = soak_chance(2) ? 1 : 65536;
			o.budget = pool_budget;
		}
		OK(hoist_memory_create(&o, &soak_pools[p]));
	}
}

static void drop_pools(void)
{
	for (int p = 0; p < SOAK_N_POOLS; p++) {
		hoist_memory_unref(soak_pools[p]);
		soak_pools[p] = NULL;
	}
	/* Device memory goes back behind streams, which have ended by now. */
	if (pool_budget != NULL && hoist_budget_used(pool_budget) != 0)
		(void)fprintf(stderr, "pools: %zu bytes of the budget are still used\n",
			      hoist_budget_used(pool_budget));
	CHECK(pool_budget == NULL || hoist_budget_used(pool_budget) == 0);
	hoist_budget_unref(pool_budget);
	pool_budget = NULL;
}

/* --- what there is --- */

/* Resident, and nobody else's; without the memory of the devices that the drivers stand in for: it
 * is counted by what is allocated of it. */
static uint64_t private_kib(void)
{
	struct smaps smaps = {0};
	uint64_t sum = 0;
	while (smaps_next(&smaps))
		if (strstr(smaps.mapping, "memfd:hoist-emulated-device") == NULL)
			sum += smaps_kib(&smaps, "Private_");
	CHECK(sum > 0); /* 0 would never grow */
	return sum;
}

/* More than there ever were are told by kind. */
static uint64_t handles(bool tell)
{
	static const char *const apis[] = {"cuda", "hip"};
	static uint64_t most = UINT64_MAX;
	uint64_t n = 0;
	for (size_t i = 0; i < 2; i++) {
		const struct hoist_emulator_counters c = lib_counters(apis[i]);
		n += c.live_allocations + c.live_registrations + c.live_streams + c.live_events +
		     c.live_pools + c.live_imports;
	}
	for (size_t i = 0; i < 2 && tell && n > most; i++) {
		const struct hoist_emulator_counters c = lib_counters(apis[i]);
		printf("slot %d, %s: %d allocations, %d registrations, %d streams, %d events, %d "
		       "pools, %d imports\n",
		       self.slot, apis[i], (int)c.live_allocations, (int)c.live_registrations,
		       (int)c.live_streams, (int)c.live_events, (int)c.live_pools,
		       (int)c.live_imports);
	}
	if (tell && (most == UINT64_MAX || n > most))
		most = n;
	return n;
}

/* The bytes of their devices' memory that the drivers have given out. */
static uint64_t device_bytes(void)
{
	return lib_counters("cuda").live_bytes + lib_counters("hip").live_bytes;
}

/* Blocks of the devices' own resources that are live. */
static uint64_t give_back(void)
{
	static const int kinds[] = {HOIST_MEMORY_DEVICE, HOIST_MEMORY_PINNED};
	uint64_t blocks = 0;
	for (int d = 0; d < LIB_N_DEVICES; d++) {
		OK(hoist_device_synchronize(soak_devices[d]));
		hoist__device_trim(soak_devices[d]);
		for (size_t k = 0; k < 2; k++) {
			hoist_memory_statistics s = {.size = sizeof s};
			hoist_memory *memory = NULL;
			OK(hoist_memory_of_device(soak_devices[d], kinds[k], &memory));
			OK(hoist_memory_trim(memory, 0));
			OK(hoist_memory_get_statistics(memory, &s));
			blocks += s.n_blocks;
			hoist_memory_unref(memory);
		}
	}
	return blocks;
}

/* By all pools of the devices. */
static uint64_t kept_by_pools(void)
{
	static const int kinds[] = {HOIST_MEMORY_DEVICE, HOIST_MEMORY_PINNED};
	uint64_t bytes = 0;
	for (int d = 0; d < LIB_N_DEVICES; d++) {
		struct hoist__pool *staging = NULL;
		OK(hoist__device_staging_pool(soak_devices[d], &staging));
		bytes += soak_kept_by(staging);
		for (size_t k = 0; k < 2; k++) {
			hoist_memory *memory = NULL;
			OK(hoist_memory_of_device(soak_devices[d], kinds[k], &memory));
			bytes += soak_kept_by(atomic_load(&memory->xpool));
			hoist_memory_unref(memory);
		}
	}
	return bytes;
}

/* More than there ever were: which? */
static void show_fds(void)
{
	static uint64_t most;
	static bool first = true;
	char name[300];
	char to[256];
	uint64_t n = count_entries("/proc/self/fd");
	DIR *dir = n > most && !first ? opendir("/proc/self/fd") : NULL;
	for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
		(void)snprintf(name, sizeof name, "/proc/self/fd/%s", entry->d_name);
		ssize_t bytes = readlink(name, to, sizeof to);
		if (bytes > 0)
			printf("slot %d has %s: %.*s\n", self.slot, entry->d_name, (int)bytes, to);
	}
	if (dir != NULL)
		(void)closedir(dir);
	(void)fflush(stdout);
	most = n > most ? n : most;
	first = false;
}

/* @before: what there was last time, zeros if there was no such time; @n: how many there were. */
static void look(const struct soak_rest *before, unsigned n, struct soak_rest *rest)
{
	/* Threads that have been told to end, and events that have passed, go soon: what was there
	 * before is waited for, for some seconds, once the process has done all that it does. */
	const int most = n < 2 ? 100 : 2000;
	for (int tries = 0; tries < most; tries++) {
		rest->blocks = give_back();
		rest->handles = handles(false);
		rest->device_bytes = device_bytes();
		rest->threads = count_entries("/proc/self/task");
		rest->fds = count_entries("/proc/self/fd") - 1;
		if (rest->blocks <= before->blocks && rest->handles <= before->handles &&
		    rest->device_bytes <= before->device_bytes &&
		    rest->threads <= before->threads && rest->fds <= before->fds)
			break;
		(void)usleep(2000);
	}
	show_fds();
	(void)handles(true);
	struct mallinfo2 heap = mallinfo2();
	rest->kept = kept_by_pools();
	rest->in_use = heap.uordblks + heap.hblkhd;
	/* (Where a sanitizer has a malloc of its own, the former is 0.) */
	rest->in_use = rest->in_use > rest->kept ? rest->in_use - rest->kept : 0;
	rest->maps = count_lines("/proc/self/maps");
	(void)malloc_trim(0); /* what is free is resident where it lies between what is not */
	rest->private_kib = private_kib();
	rest->ns = soak_now();
}

void soak_rest(void)
{
	struct soak_slot *slot = &board->slots[self.slot];
	static struct soak_rest before;
	unsigned n = atomic_load(&slot->n_rests);
	soak_parcels_clear();
	drop_pools();
	CHECK(hoist_budget_used(soak_budget) == 0);
	if (n < SOAK_RESTS) {
		look(&before, n, &slot->rests[n]);
		before = slot->rests[n];
		atomic_store(&slot->n_rests, n + 1);
	}
	CHECK(lib_drivers_content());
	soak_count(SOAK_N_rests, 1);
	make_pools();
}

void soak_rest_last(void)
{
	drop_pools();
}
