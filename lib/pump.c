/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "lib/load.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "lib/memory.h"
#include "lib/objects.h"
#include "lib/pump.h"

/* How long a wait may last before the pump looks again whether it was cancelled,
 * and how long when a device copy may complete meanwhile. */
#define CANCEL_POLL_NS (20 * UINT64_C(1000000))
#define COPY_POLL_NS (100 * UINT64_C(1000))

void hoist__pump_fail(struct hoist_load *load, int err)
{
	if (load->phase != HOIST__PHASE_DRAINING) {
		load->phase = HOIST__PHASE_DRAINING;
		load->err = err;
		hoist__error_copy(load->text, sizeof load->text);
		hoist__log(load, "failed: %s", load->text);
	}
	if (load->engine != NULL)
		hoist__engine_cancel(load->engine);
}

/* --- begin --- */

static int create_engine(struct hoist_load *load)
{
	static const enum hoist__engine_kind kinds[] = {
		[HOIST_ENGINE_AUTO] = HOIST__ENGINE_AUTO,
		[HOIST_ENGINE_URING] = HOIST__ENGINE_URING,
		[HOIST_ENGINE_THREADS] = HOIST__ENGINE_THREADS,
	};
	struct hoist__engine_buffer memory = {0};
	if (load->ring != NULL)
		hoist__staging_memory(load->ring, &memory);
	const struct hoist__engine_options options = {
		.kind = kinds[load->engine_kind],
		.depth = HOIST__LOAD_DEPTH,
		.shared = load->caller_driven,
		.buffers = &memory,
		.n_buffers = load->ring != NULL ? 1 : 0,
		.files = load->files,
		.n_files = (unsigned)load->checkpoint->n_files,
	};
	return hoist__engine_create(&options, &load->engine);
}

/* A ring of the usual size stays pinned between loads, since pinning is slow; but
 * what is kept and the new ring must fit the budget together, were the one of no
 * use for the other. */
static void trim_pool(struct hoist__pool *pool, struct hoist__budget *budget)
{
	const size_t usual = HOIST__STAGING_SLOTS * HOIST__STAGING_SLOT_BYTES;
	size_t free_bytes = hoist__budget_limit(budget) - hoist__budget_used(budget);
	hoist__pool_trim(pool, free_bytes >= 2 * usual ? usual : 0);
	hoist__pool_reset_peak(pool);
}

static int create_ring(struct hoist_load *load)
{
	struct hoist__pool *pool;
	int err = hoist__device_staging_pool(load->device, &pool);
	if (err < 0)
		return err;
	/* A small load takes no more of a shared budget than it can use: a slot for each
	 * read, and one more. */
	uint64_t n_reads = load->plan.bytes / HOIST__STAGING_SLOT_BYTES + load->plan.n_extents;
	struct hoist__dev_stream *stream = hoist__stream_dev_stream(load->stream);
	const struct hoist__staging_options options = {
		.streams = &stream,
		.n_streams = 1,
		.pool = pool,
		.budget = hoist__budget_of(load->budget),
		.n_slots = (unsigned)hoist__min_u64(n_reads + 1, HOIST__STAGING_SLOTS),
	};
	trim_pool(pool, options.budget);
	err = hoist__staging_create(&options, &load->ring);
	if (err < 0)
		return err;
	unsigned n = hoist__staging_n_slots(load->ring);
	load->slots = calloc(n, sizeof *load->slots);
	load->copying = calloc(n, sizeof *load->copying);
	if (load->slots == NULL || load->copying == NULL)
		return hoist__fail_nomem("a table of slots", n * sizeof *load->slots);
	return 0;
}

/* Waits until the ring may fit, or the time is over. */
static int wait_for_budget(struct hoist_load *load, uint64_t timeout_ns)
{
	struct hoist__budget *budget = hoist__budget_of(load->budget);
	const size_t least = 2 * HOIST__STAGING_MIN_SLOT_BYTES;
	hoist__memories_yield(budget);
	int err = hoist__budget_acquire_wait(budget, least, timeout_ns);
	if (err == 0)
		hoist__budget_release(budget, least);
	return err == -EAGAIN ? 0 : err;
}

/* Populating ahead is an optimisation: without the threads, reads fault pages in. */
static void start_populator(struct hoist_load *load)
{
	struct hoist__storage *storage = load->storages[0];
	void *base = (void *)hoist__storage_address(storage);
	if (hoist__populator_start(base, hoist__storage_bytes(storage), 0, &load->populator) < 0)
		hoist__log(load, "not populating ahead: %s", hoist__error_text());
}

static int begin_host(struct hoist_load *load)
{
	load->inflight = calloc(HOIST__LOAD_DEPTH, sizeof *load->inflight);
	if (load->inflight == NULL)
		return hoist__fail_nomem("requests", HOIST__LOAD_DEPTH * sizeof *load->inflight);
	for (unsigned i = 0; i < HOIST__LOAD_DEPTH; i++) {
		load->inflight[i].next_free = load->free_inflight;
		load->free_inflight = &load->inflight[i];
	}
	if (hoist__load_is_lazy(load))
		start_populator(load);
	return 0;
}

/* 0: running; 1: the budget is in use, call again; else the load fails.  -EAGAIN
 * means "busy" from the ring alone: elsewhere (no thread to be had) it is final. */
static int begin(struct hoist_load *load, uint64_t timeout_ns)
{
	if (load->plan.n_extents == 0 || (load->to_host && load->io == HOIST_IO_MAP)) {
		load->phase = HOIST__PHASE_RUNNING;
		return 0;
	}
	int err = 0;
	if (load->to_host) {
		err = begin_host(load);
	} else {
		err = create_ring(load);
		if (err == -EAGAIN) {
			err = wait_for_budget(load, hoist__min_u64(timeout_ns, CANCEL_POLL_NS));
			return err < 0 ? err : 1;
		}
	}
	if (err == 0)
		err = create_engine(load);
	if (err == 0)
		load->phase = HOIST__PHASE_RUNNING;
	return err;
}

/* --- end --- */

static void check_files(struct hoist_load *load)
{
	size_t last = SIZE_MAX;
	for (size_t e = 0; load->err == 0 && e < load->plan.n_extents; e++) {
		size_t file = load->plan.extents[e].file;
		if (file == last)
			continue;
		last = file;
		int err = hoist__file_changed(load->checkpoint->files[file].file);
		if (err < 0)
			hoist__pump_fail(load, err);
	}
}

/* The kernel may write into this load's memory at any later time: it is nobody's
 * any more, and stays allocated, pinned and charged to the budget. */
static void give_up_memory(struct hoist_load *load)
{
	hoist__log(load, "reads were abandoned: their memory is never used again");
	if (load->to_host)
		(void)hoist__storage_ref(load->storages[0]);
	while (load->ring != NULL && hoist__staging_wait(load->ring) > 0)
		continue;
	load->ring = NULL;
}

static void end(struct hoist_load *load)
{
	if (load->phase == HOIST__PHASE_RUNNING)
		check_files(load);
	hoist__load_finish_report(load);
	if (load->engine != NULL && hoist__engine_abandoned(load->engine))
		give_up_memory(load);
	hoist__engine_destroy(load->engine);
	load->engine = NULL;
	hoist__staging_destroy(load->ring);
	load->ring = NULL;
	hoist__populator_stop(load->populator);
	load->populator = NULL;
	load->phase = HOIST__PHASE_DONE;
}

/* --- one round --- */

/* A load that failed waits for its copies only when the ring is destroyed: a
 * stream that is broken never completes them one by one. */
static unsigned n_awaited_copies(const struct hoist_load *load)
{
	bool awaits = load->ring != NULL && load->phase == HOIST__PHASE_RUNNING;
	return awaits ? hoist__staging_n_copying(load->ring) : 0;
}

static void nap(uint64_t ns)
{
	const struct timespec time = {.tv_nsec = (long)ns};
	(void)nanosleep(&time, NULL);
}

static void wait_for_something(struct hoist_load *load, bool populating, uint64_t timeout_ns)
{
	uint64_t wait = hoist__min_u64(timeout_ns, CANCEL_POLL_NS);
	unsigned n_copying = n_awaited_copies(load);
	if (load->n_inflight > 0) {
		hoist__pump_reap(load, n_copying > 0 ? hoist__min_u64(wait, COPY_POLL_NS) : wait);
	} else if (n_copying > 0 && timeout_ns == UINT64_MAX) {
		hoist__pump_reclaimed(load, hoist__staging_wait(load->ring));
	} else if (n_copying > 0 && timeout_ns > 0) {
		/* The device does not say when; the stream may have the caller's work too. */
		nap(hoist__min_u64(wait, COPY_POLL_NS));
	} else if (populating) {
		size_t need = (size_t)(load->next.target + load->next.bytes);
		int err = hoist__populator_wait(load->populator, need, wait);
		if (err < 0 && err != -EAGAIN)
			hoist__pump_fail(load, err);
	}
}

static bool all_home(const struct hoist_load *load)
{
	bool more = load->phase == HOIST__PHASE_RUNNING &&
		    (load->has_next || load->cursor.extent < load->plan.n_extents);
	return load->engine == NULL ||
	       (!more && load->n_inflight == 0 && n_awaited_copies(load) == 0);
}

bool hoist__pump_step(struct hoist_load *load, uint64_t timeout_ns)
{
	if (load->phase == HOIST__PHASE_DONE)
		return true;
	if (atomic_load_explicit(&load->cancelled, memory_order_relaxed) &&
	    load->phase != HOIST__PHASE_DRAINING)
		hoist__pump_fail(load, hoist__fail(-ECANCELED, "the load was cancelled"));
	if (load->phase == HOIST__PHASE_READY) {
		int begun = begin(load, timeout_ns);
		if (begun > 0)
			return false;
		if (begun < 0)
			hoist__pump_fail(load, begun);
	}
	bool populating = false;
	if (load->engine != NULL) {
		if (n_awaited_copies(load) > 0)
			hoist__pump_reclaimed(load, hoist__staging_reclaim(load->ring));
		if (load->phase == HOIST__PHASE_RUNNING)
			populating = hoist__pump_submit(load);
		if (!all_home(load))
			wait_for_something(load, populating, timeout_ns);
	}
	if (!all_home(load))
		return false;
	end(load);
	return true;
}
