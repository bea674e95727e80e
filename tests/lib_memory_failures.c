/* SPDX-License-Identifier: MIT */
/* Every allocation of hoist's own and every driver call of a scenario with memory resources fails
 * once, in turn: the scenario says so, nothing is left over, and the next one works. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/hoist.h"
#include "tests/lib-failing.h"
#include "tests/lib-support.h"

#define MANY 5000
#define MIB ((size_t)1 << 20)

/* --- the scenario --- */

static hoist_device *devices[LIB_N_DEVICES];

/* All that a resource can do, on @device; the first failure ends it, blocks are always freed. */
static int use_blocks(hoist_memory *memory, hoist_stream *stream, int null)
{
	static const size_t sizes[] = {100, 5000, 300000, 3 * MIB};
	uintptr_t blocks[4] = {0};
	uintptr_t seen;
	hoist_memory_statistics s = {.size = sizeof s};
	int err = 0;
	for (size_t i = 0; err == 0 && i < 4; i++)
		err = i % 2 == 0 ? hoist_memory_alloc(memory, sizes[i], 0, &blocks[i])
				 : hoist_memory_alloc_on(memory, sizes[i], 0, stream, &blocks[i]);
	if (err == 0 && (err = hoist_memory_device_address(memory, blocks[0], &seen)) == -ENOTSUP)
		err = 0;
	if (err == 0)
		err = hoist_memory_use(memory, blocks[1], stream);
	if (err == 0)
		err = hoist_memory_snapshot(memory, null);
	if (err == 0)
		err = hoist_memory_get_statistics(memory, &s);
	for (size_t i = 0; i < 4; i++) {
		/* A free on a stream may want memory for that; then the block is still there. */
		int failed = hoist_memory_free_on(memory, blocks[i], stream);
		if (failed == -ENOMEM)
			failed = hoist_memory_free(memory, blocks[i]);
		if (failed == -ENOMEM)
			failed = hoist_memory_free(memory, blocks[i]);
		if (err == 0)
			err = failed;
	}
	return err;
}

static int use_kind(int kind, hoist_device *device, hoist_memory *upstream, hoist_stream *stream,
		    int null)
{
	hoist_memory *memory = NULL;
	const hoist_memory_options options = {
		.size = sizeof options,
		.kind = kind,
		.device = device,
		.upstream = upstream,
		.debug = kind == HOIST_MEMORY_PINNED ? 2 : 0,
		.region_bytes = kind == HOIST_MEMORY_DRIVER_POOL ? 0 : 4 * MIB,
	};
	int err = hoist_memory_create(&options, &memory);
	if (err == 0)
		err = use_blocks(memory, stream, null);
	hoist_memory_unref(memory);
	return err;
}

/* Each kind, and one over another, on the @i-th device. */
static int run(int i)
{
	static const int kinds[] = {HOIST_MEMORY_PINNED, HOIST_MEMORY_DEVICE, HOIST_MEMORY_MANAGED,
				    HOIST_MEMORY_DRIVER_POOL};
	hoist_stream *stream = NULL;
	hoist_stream *on_cpu = NULL;
	hoist_memory *up = NULL;
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int err = hoist_stream_create(devices[i], &stream);
	if (err == 0)
		err = hoist_stream_create(devices[0], &on_cpu);
	if (err == 0)
		err = use_kind(HOIST_MEMORY_HOST, devices[0], NULL, on_cpu, null);
	for (size_t k = 0; err == 0 && k < sizeof kinds / sizeof kinds[0]; k++)
		err = use_kind(kinds[k], devices[i], NULL, stream, null);
	const hoist_memory_options options = {
		.size = sizeof options, .kind = HOIST_MEMORY_DRIVER_POOL, .device = devices[i]};
	if (err == 0)
		err = hoist_memory_create(&options, &up);
	if (err == 0)
		err = use_kind(HOIST_MEMORY_DEVICE, devices[i], up, stream, null);
	hoist_memory_unref(up);
	hoist_stream_unref(on_cpu);
	hoist_stream_unref(stream);
	close(null);
	return err;
}

/* A stream that could not be waited for before it was destroyed frees a little later. */
static void check_clean(const char *what, unsigned long n)
{
	for (int tries = 0; !lib_nothing_outstanding(devices); tries++) {
		if (tries == 100)
			lib_die("%s %lu: something is left", what, n);
		usleep(10000);
	}
	if (!lib_drivers_content())
		lib_die("%s %lu: the drivers saw a misuse", what, n);
}

/* --- the sweeps --- */

static void sweep_driver(int i, const char *api)
{
	unsigned long n = 1;
	for (; n < MANY; n++) {
		char fault[64];
		(void)snprintf(fault, sizeof fault, "any:%lu", n);
		if (lib_fail(api, fault) != 0)
			lib_die("%s: %s is not understood", api, fault);
		int err = run(i);
		if (err != 0 && (!lib_is_failure(err) || hoist_error()[0] == '\0'))
			lib_die("%s %s: an unexpected error, %d", api, fault, err);
		bool struck = lib_counters(api).injected_failures != 0;
		check_clean(fault, n);
		lib_reset(api);
		lib_set_latency(api, 0, 20);
		if (!struck)
			break;
	}
	if (n == MANY || n < 20)
		lib_die("%s: the sweep ended at %lu", api, n);
	if (run(i) != 0)
		lib_die("%s: does not work any more", api);
	printf("%s: %lu calls failed in turn\n", api, n - 1);
}

static void run_alone(unsigned long n)
{
	lib_open_all(devices);
	lib_fail_allocation(n);
	int err = run(1);
	if (err != 0 && !lib_is_failure(err))
		lib_die("allocation %lu: an unexpected error, %d", n, err);
	lib_fail_allocation(0);
	check_clean("allocation", n);
	if (run(1) != 0)
		lib_die("after allocation %lu: does not work any more", n);
	check_clean("after allocation", n);
}

int main(void)
{
	if (!lib_emulate()) {
		printf("skipped: the emulators are not built\n");
		return 77;
	}
	(void)fflush(stdout);
	setenv("HOIST_EMULATE_LATENCY", "0..20", 1);
	lib_sweep_allocations(run_alone, MANY);
	lib_open_all(devices);
	if (run(1) != 0 || run(3) != 0)
		lib_die("without failures");
	check_clean("without failures", 0);
	sweep_driver(1, "cuda");
	sweep_driver(3, "hip");
	return 0;
}
