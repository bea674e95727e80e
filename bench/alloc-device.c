/* SPDX-License-Identifier: MIT */
/* Measurements on a device, an emulated one as a rule: many live blocks, two streams in
 * little memory, events, and the rounding of pinned blocks.  The contract is
 * in alloc-work.h. */
#include "config.h"

#include "bench/alloc-work.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <hoist/error.h>

#include "cli/fail.h"

#define CHUNK 256 /* operations between two looks at the clock */

static int make_memory(const struct work *work, int kind, size_t region_bytes, size_t limit_bytes,
		       hoist_memory **ret)
{
	hoist_memory_options options = {
		.size = sizeof options,
		.kind = kind,
		.device = work->device,
		.region_bytes = region_bytes,
		.keep_bytes = region_bytes,
		.limit_bytes = limit_bytes,
	};
	return hoist_memory_create(&options, ret) == 0 ? STATUS_OK : fail_library();
}

static int get_statistics(hoist_memory *memory, hoist_memory_statistics *ret)
{
	*ret = (hoist_memory_statistics){.size = sizeof *ret};
	return hoist_memory_get_statistics(memory, ret) == 0 ? STATUS_OK : fail_library();
}

/* --- many live blocks: random_allocations of RMM's benchmarks --- */

#define LARGEST MIB(4)
#define PERCENT_ALLOCATIONS 73

struct live {
	struct allocator allocator;
	uint64_t random;
	uintptr_t *blocks;
	uint32_t n;
	uint32_t most;
	uint32_t largest; /* sizes are uniform from 1 to this */
};

/* One allocation or one free: 73 % are allocations, until the most are live. */
static bool live_step(struct live *live)
{
	const struct allocator *allocator = &live->allocator;
	uint64_t random = work_random(&live->random);
	bool wants = random % 100 < PERCENT_ALLOCATIONS;
	if (live->n == 0 || (wants && live->n < live->most)) {
		uintptr_t block =
			allocator->alloc(allocator, 1 + work_below(random, live->largest));
		live->blocks[live->n] = block;
		live->n += block != 0;
		return block != 0;
	}
	uint32_t which = work_below(random, live->n);
	uintptr_t block = live->blocks[which];
	live->blocks[which] = live->blocks[--live->n];
	return allocator->free(allocator, block) == 0;
}

static double live_time(struct live *live, uint64_t ns)
{
	uint64_t start = clock_ns();
	uint64_t now = start;
	uint64_t n = 0;
	while (now - start < ns) {
		for (int i = 0; i < CHUNK; i++) {
			if (!live_step(live))
				return -1;
		}
		n += CHUNK;
		now = clock_ns();
	}
	return n > 0 ? (double)(now - start) / (double)n : 0;
}

static int live_run(const struct work *work, struct live *live, double *ret)
{
	(void)work_use_processors(0, 1); /* steadier, no more */
	while (live->n < live->most) {
		if (!live_step(live))
			return work_fail(work->subject, hoist_error());
	}
	if (live_time(live, work_warm_ns(work)) < 0)
		return work_fail(work->subject, hoist_error());
	*ret = live_time(live, work_timed_ns(work));
	return *ret >= 0 ? STATUS_OK : work_fail(work->subject, hoist_error());
}

/* Blocks that fit into three fifths of the device, in one region. */
static int live_sizes(const struct work *work, struct live *live, size_t *region_bytes)
{
	uint64_t free_bytes = 0;
	uint64_t total = 0;
	if (hoist_device_memory(work->device, &free_bytes, &total) != 0)
		return fail_library();
	live->most = (uint32_t)work->measurement->argument;
	uint64_t mean = free_bytes / 5 * 3 / live->most;
	live->largest = (uint32_t)(2 * mean < LARGEST ? 2 * mean : LARGEST);
	if (live->largest == 0)
		return fail("the device has no free memory");
	*region_bytes = (size_t)live->most * live->largest / 8 * 5; /* a quarter above the mean */
	live->blocks = calloc(live->most, sizeof *live->blocks);
	return live->blocks != NULL ? STATUS_OK : fail_memory();
}

int work_random_live(const struct work *work, double values[WORK_MAX_FIGURES])
{
	struct live live = {.random = work_seed(0)};
	hoist_memory *memory = NULL;
	hoist_stream *stream = NULL;
	size_t region_bytes = 0;
	int status = live_sizes(work, &live, &region_bytes);
	if (status == STATUS_OK)
		status = make_memory(work, HOIST_MEMORY_DEVICE, region_bytes, 0, &memory);
	if (status == STATUS_OK && work->subject == SUBJECT_STREAM &&
	    hoist_stream_create(work->device, &stream) != 0)
		status = fail_library();
	if (status == STATUS_OK) {
		live.allocator = work_allocator(work->subject, memory, stream);
		status = live_run(work, &live, &values[0]);
	}
	while (live.n > 0)
		(void)live.allocator.free(&live.allocator, live.blocks[--live.n]);
	free(live.blocks);
	hoist_memory_unref(memory);
	hoist_stream_unref(stream);
	return status;
}

/* --- two streams in turn, in 1.1 times what is live: rmm's issue 2039 ---
 *
 * A phase fills the room with blocks of one stream, while those of the phase before, which
 * were the other stream's, are freed in their order.  Small and large blocks change places
 * between the streams, so that what one stream leaves never suits it next time. */

#define ROOM GIB(1)
#define BLOCKS 4096 /* most blocks of a phase: those of 256 KiB and more that fit the room */
#define PHASES_TO_REST 8

struct batch {
	uintptr_t blocks[BLOCKS];
	uint32_t bytes[BLOCKS];
	size_t n;
	size_t n_freed;
	hoist_stream *stream;
};

struct phases {
	hoist_memory *memory;
	hoist_stream *streams[2];
	struct batch batches[2];
	uint64_t random;
	size_t live_bytes;
	size_t live_peak;
	uint64_t n_refused;
	double fragmentation; /* the worst */
};

static int free_oldest(struct phases *phases, struct batch *batch)
{
	size_t i = batch->n_freed++;
	phases->live_bytes -= batch->bytes[i];
	if (hoist_memory_free_on(phases->memory, batch->blocks[i], batch->stream) != 0)
		return fail_library();
	return STATUS_OK;
}

static int free_batch(struct phases *phases, struct batch *batch)
{
	int status = STATUS_OK;
	while (batch->n_freed < batch->n && status == STATUS_OK)
		status = free_oldest(phases, batch);
	return status;
}

/* Puts one more block into @batch; *full if there is no room even without @before. */
static int add_block(struct phases *phases, struct batch *batch, struct batch *before,
		     uint32_t bytes, bool *full)
{
	while (phases->live_bytes + bytes > ROOM && before->n_freed < before->n) {
		if (free_oldest(phases, before) != STATUS_OK)
			return STATUS_FAILED;
	}
	*full = phases->live_bytes + bytes > ROOM || batch->n == BLOCKS;
	if (*full)
		return STATUS_OK;
	int err = hoist_memory_alloc_on(phases->memory, bytes, 0, batch->stream,
					&batch->blocks[batch->n]);
	if (err == -EDQUOT || err == -ENOSPC) {
		phases->n_refused++;
		*full = true;
		return STATUS_OK;
	}
	if (err != 0)
		return fail_library();
	batch->bytes[batch->n++] = bytes;
	phases->live_bytes += bytes;
	if (phases->live_bytes > phases->live_peak)
		phases->live_peak = phases->live_bytes;
	return STATUS_OK;
}

static int run_phase(struct phases *phases, unsigned phase)
{
	struct batch *batch = &phases->batches[phase % 2];
	struct batch *before = &phases->batches[1 - phase % 2];
	bool large = (phase + 1) / 2 % 2 != 0;
	uint32_t least = (uint32_t)(large ? MIB(8) : KIB(256));
	uint32_t span = (uint32_t)(large ? MIB(24) : KIB(1792));
	bool full = false;
	*batch = (struct batch){.stream = phases->streams[phase % 2]};
	while (!full) {
		uint32_t bytes = least + work_below(work_random(&phases->random), span);
		if (add_block(phases, batch, before, bytes, &full) != STATUS_OK)
			return STATUS_FAILED;
	}
	return free_batch(phases, before);
}

/* Both streams pass everything, and what they passed comes back.  Twice: the first time events
 * may have to be recorded, which are passed the second time. */
static int pass_all(struct phases *phases)
{
	for (int i = 0; i < 4; i++) {
		if (hoist_stream_synchronize(phases->streams[i % 2]) != 0 ||
		    (i % 2 == 1 && hoist_memory_trim(phases->memory, SIZE_MAX) != 0))
			return fail_library();
	}
	return STATUS_OK;
}

/* All memory is free: finds out whether it is in one piece. */
static int rest(struct phases *phases)
{
	hoist_memory_statistics now;
	for (int i = 0; i < 2; i++) {
		if (free_batch(phases, &phases->batches[i]) != STATUS_OK)
			return STATUS_FAILED;
	}
	if (pass_all(phases) != STATUS_OK || get_statistics(phases->memory, &now) != STATUS_OK)
		return STATUS_FAILED;
	if (now.fragmentation > phases->fragmentation)
		phases->fragmentation = now.fragmentation;
	return STATUS_OK;
}

static int run_phases(const struct work *work, struct phases *phases, double values[])
{
	unsigned n = work->quick ? 2 * PHASES_TO_REST : 25 * PHASES_TO_REST;
	hoist_memory_statistics now;
	int status = STATUS_OK;
	for (unsigned i = 0; i < n && status == STATUS_OK; i++) {
		status = run_phase(phases, i);
		if (status == STATUS_OK && (i + 1) % PHASES_TO_REST == 0)
			status = rest(phases);
	}
	if (status != STATUS_OK || get_statistics(phases->memory, &now) != STATUS_OK)
		return STATUS_FAILED;
	values[0] = (double)phases->n_refused;
	values[1] = 100 * phases->fragmentation;
	values[2] = (double)now.reserved_peak / (double)phases->live_peak;
	return STATUS_OK;
}

int work_two_streams(const struct work *work, double values[WORK_MAX_FIGURES])
{
	size_t limit = ROOM / 10 * 11 / MIB(2) * MIB(2);
	struct phases *phases = calloc(1, sizeof *phases);
	if (phases == NULL)
		return fail_memory();
	phases->random = work_seed(0);
	int status = make_memory(work, HOIST_MEMORY_DEVICE, limit, limit, &phases->memory);
	for (int i = 0; i < 2 && status == STATUS_OK; i++) {
		if (hoist_stream_create(work->device, &phases->streams[i]) != 0)
			status = fail_library();
		phases->batches[i].stream = phases->streams[i];
	}
	if (status == STATUS_OK)
		status = run_phases(work, phases, values);
	hoist_memory_unref(phases->memory);
	for (int i = 0; i < 2; i++)
		hoist_stream_unref(phases->streams[i]);
	free(phases);
	return status;
}

/* --- events of stream-ordered frees, and the calls of an allocation right behind one --- */

#define STREAMS 4
#define FREES 10000
#define PAIRS 100000
#define EVENT_BLOCK KIB(16)

struct ordered {
	hoist_memory *memory;
	hoist_stream *streams[STREAMS];
	uintptr_t blocks[FREES];
};

static uint64_t n_calls(const hoist_memory_statistics *statistics)
{
	uint64_t n = 0;
	for (int i = 0; i < HOIST_N_CALLS; i++)
		n += statistics->calls[i].n;
	return n;
}

/* Counts the events that are recorded while FREES blocks are freed on all streams in turn. */
static int count_events(struct ordered *ordered, double *ret)
{
	hoist_memory_statistics before, after;
	for (int i = 0; i < FREES; i++) {
		if (hoist_memory_alloc_on(ordered->memory, EVENT_BLOCK, 0,
					  ordered->streams[i % STREAMS], &ordered->blocks[i]) != 0)
			return fail_library();
	}
	if (get_statistics(ordered->memory, &before) != STATUS_OK)
		return STATUS_FAILED;
	for (int i = 0; i < FREES; i++) {
		if (hoist_memory_free_on(ordered->memory, ordered->blocks[i],
					 ordered->streams[i % STREAMS]) != 0)
			return fail_library();
	}
	if (get_statistics(ordered->memory, &after) != STATUS_OK)
		return STATUS_FAILED;
	*ret = 64.0 * (double)(after.n_events - before.n_events) / FREES;
	return STATUS_OK;
}

/* Counts the calls of system and driver during PAIRS of an allocation and a free on one stream. */
static int count_calls(struct ordered *ordered, double *calls, double *ns)
{
	hoist_memory_statistics before, after;
	uint64_t start = 0;
	for (int i = -1; i < PAIRS;
	     i++) { /* the first pair is not counted: it may find nothing free */
		uintptr_t block = 0;
		if (hoist_memory_alloc_on(ordered->memory, EVENT_BLOCK, 0, ordered->streams[0],
					  &block) != 0 ||
		    hoist_memory_free_on(ordered->memory, block, ordered->streams[0]) != 0)
			return fail_library();
		if (i < 0) {
			if (get_statistics(ordered->memory, &before) != STATUS_OK)
				return STATUS_FAILED;
			start = clock_ns();
		}
	}
	*ns = (double)(clock_ns() - start) / PAIRS;
	if (get_statistics(ordered->memory, &after) != STATUS_OK)
		return STATUS_FAILED;
	*calls = (double)(n_calls(&after) - n_calls(&before));
	return STATUS_OK;
}

int work_events(const struct work *work, double values[WORK_MAX_FIGURES])
{
	struct ordered *ordered = calloc(1, sizeof *ordered);
	if (ordered == NULL)
		return fail_memory();
	int status = make_memory(work, HOIST_MEMORY_DEVICE, 2 * FREES * EVENT_BLOCK, 0,
				 &ordered->memory);
	for (int i = 0; i < STREAMS && status == STATUS_OK; i++) {
		if (hoist_stream_create(work->device, &ordered->streams[i]) != 0)
			status = fail_library();
	}
	if (status == STATUS_OK)
		status = count_events(ordered, &values[0]);
	if (status == STATUS_OK)
		status = count_calls(ordered, &values[1], &values[2]);
	hoist_memory_unref(ordered->memory);
	for (int i = 0; i < STREAMS; i++)
		hoist_stream_unref(ordered->streams[i]);
	free(ordered);
	return status;
}

/* --- pinned blocks: what is reserved for what is asked --- */

/* Sizes that others' users were charged twice for, and the first odd ones from 16 MiB. */
static const size_t pinned_sizes[] = {
	MIB(16), MIB(16) + 1, 20400000, 33300000, 100000001, 563000000, 1125000000, 2250000000,
};

static int measure_pinned(hoist_memory *memory, size_t bytes, double *ratio)
{
	hoist_memory_statistics before, after;
	uintptr_t block = 0;
	if (get_statistics(memory, &before) != STATUS_OK)
		return STATUS_FAILED;
	if (hoist_memory_alloc(memory, bytes, 0, &block) != 0)
		return fail_library();
	int status = get_statistics(memory, &after);
	if (hoist_memory_free(memory, block) != 0 || hoist_memory_trim(memory, 0) != 0)
		return fail_library();
	*ratio = (double)(after.reserved_bytes - before.reserved_bytes) / (double)bytes;
	return status;
}

/* The sizes ascend.  The first that exceeds a quarter of the free memory ends the measurement,
 * because the machine cannot swap pinned pages out. */
int work_pinned(const struct work *work, double values[WORK_MAX_FIGURES])
{
	size_t enough = (size_t)sysconf(_SC_AVPHYS_PAGES) / 4 * (size_t)sysconf(_SC_PAGESIZE);
	if (work->quick && enough > MIB(128))
		enough = MIB(128);
	hoist_memory *memory = NULL;
	int status = make_memory(work, HOIST_MEMORY_PINNED, 0, 0, &memory);
	values[0] = 0;
	values[1] = 0;
	for (size_t i = 0; i < sizeof pinned_sizes / sizeof pinned_sizes[0]; i++) {
		double ratio = 0;
		if (status != STATUS_OK || pinned_sizes[i] > enough)
			break;
		status = measure_pinned(memory, pinned_sizes[i], &ratio);
		if (ratio > values[0])
			values[0] = ratio;
		values[1] = (double)pinned_sizes[i] / 1e9;
	}
	hoist_memory_unref(memory);
	if (status == STATUS_OK && values[0] == 0)
		return fail("too little memory is available to pin 16 MiB");
	return status;
}
