/* SPDX-License-Identifier: MIT */
/* The pump: begin, rounds and end of a load.
 * The contract is in lib/job/job.h; lib/load/load.h tells how the pump works. */
#include "config.h"

#include "lib/load/load.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "lib/device/stream.h"
#include "lib/load/give.h"
#include "lib/load/pump.h"
#include "lib/memory/budget.h"
#include "lib/memory/device-memory.h"

/* True if the equations of lib/load/load.h hold, and the engine has the open requests. */
HOIST__CONDITION static bool adds_up(const struct hoist_load *load)
{
	unsigned n_open[HOIST__MAX_DISKS] = {0};
	unsigned n_flights = 0;
	unsigned n_free = 0;
	unsigned n_inflight = 0;
	size_t n = 0;
	for (unsigned d = 0; d < load->disk_table.n; d++)
		n += load->disks[d].most_flights;
	for (size_t i = 0; i < n; i++)
		n_open[load->flights[i].disk] += load->flights[i].n_open;
	for (const struct hoist__list *node = load->free_flights.next; node != &load->free_flights;
	     node = node->next)
		n_free++;
	for (unsigned d = 0; d < load->disk_table.n; d++) {
		const struct hoist__load_disk *disk = &load->disks[d];
		n_flights += disk->n_flights;
		n_inflight += n_open[d];
		if (n_open[d] != disk->n_requests + disk->n_settling ||
		    disk->due_sequence > disk->next_sequence)
			return false;
	}
	return n_free + n_flights == n && n_inflight == hoist__job_n_inflight(&load->job);
}

/* --- begin --- */

static int create_engine(struct hoist_load *load)
{
	struct hoist__engine_options options = {
		.files = load->files,
		.n_files = (unsigned)load->n_files,
		.depth = load->n_files == 0 ? 1 : 0, /* of a load that only waits for others */
	};
	/* Flights that are settled are in the engine beside the reads. */
	for (unsigned d = 0; d < load->disk_table.n; d++)
		options.depth =
			(unsigned)hoist__max_u64(options.depth, load->disks[d].most_flights);
	if (options.depth > HOIST__ENGINE_MAX_DEPTH)
		options.depth = HOIST__ENGINE_MAX_DEPTH;
	return hoist__job_create_engine(&load->job, load->options.engine, &options);
}

/* Slots lie one behind the other, so their size is a multiple of the reads' alignment. */
static size_t wanted_slot(const struct hoist_load *load)
{
	size_t bytes = load->options.chunk_bytes != 0 ? load->options.chunk_bytes
						      : HOIST__STAGING_SLOT_BYTES;
	return (size_t)hoist__round_up(hoist__max_u64(bytes, hoist__plan_least_bytes(&load->plan)),
				       load->plan.align);
}

/* The smallest slot that this load works with; it needs two of them. */
static size_t slot_least(const struct hoist_load *load)
{
	uint64_t slot = hoist__min_u64(wanted_slot(load), HOIST__STAGING_MIN_SLOT_BYTES);
	return (size_t)hoist__max_u64(slot, hoist__plan_least_bytes(&load->plan));
}

int hoist__pump_check_budget(const struct hoist_load *load)
{
	size_t limit = hoist__budget_limit(hoist__budget_of(load->job.budget));
	if (!load->plan.has_staged || 2 * slot_least(load) <= limit)
		return 0;
	return hoist__fail(
		-EDQUOT,
		"the budget of %zu bytes is too small: the load stages its bytes in at "
		"least two slots of %zu bytes (reads of these files are aligned to %llu); "
		"raise the budget to at least %zu",
		limit, slot_least(load), (unsigned long long)load->plan.align,
		2 * slot_least(load));
}

/* A small load takes no more of a shared budget than it can use: a slot for each
 * read, and one more. */
static unsigned wanted_slots(const struct hoist_load *load, size_t slot_bytes)
{
	uint64_t n_reads = load->plan.bytes / slot_bytes + load->plan.n_extents + 1;
	uint64_t usual = (uint64_t)HOIST__STAGING_SLOTS * HOIST__STAGING_SLOT_BYTES / slot_bytes;
	uint64_t depth = hoist__pump_depth(load);
	uint64_t most = hoist__max_u64(usual, depth + depth / 2);
	most = hoist__min_u64(hoist__max_u64(most, 2), HOIST__STAGING_MAX_SLOTS);
	return (unsigned)hoist__min_u64(n_reads < 2 ? 2 : n_reads, most);
}

void hoist__pump_size_staging(const struct hoist_load *load, struct hoist__staging_options *ret)
{
	ret->slot_bytes_least = slot_least(load);
	ret->slot_bytes = wanted_slot(load);
	ret->n_slots = wanted_slots(load, ret->slot_bytes);
}

static int make_staging(struct hoist__job *job)
{
	struct hoist_load *load = hoist__load_of(job);
	struct hoist__pool *pool;
	int err = hoist__device_staging_pool(hoist__load_staging_device(load), &pool);
	if (err < 0)
		return err;
	struct hoist__dev_stream *streams[HOIST__STAGING_MAX_STREAMS];
	unsigned n_streams = 0;
	for (size_t t = 0; t < load->n_targets; t++)
		if (!load->targets[t].to_host && load->targets[t].number == n_streams)
			streams[n_streams++] = hoist__stream_dev_stream(load->targets[t].stream);
	struct hoist__staging_options options = {
		.streams = streams,
		.n_streams = n_streams,
		.pool = pool,
	};
	hoist__pump_size_staging(load, &options);
	hoist__job_size_staging(job, &options, HOIST__STAGING_SLOTS * HOIST__STAGING_SLOT_BYTES);
	/* The pool outlives the load; the report wants this load's peak. */
	hoist__pool_reset_peak(pool);
	err = hoist__job_create_staging(job, &options);
	if (err < 0)
		return err;
	/* The budget may have had room for smaller slots only. */
	load->staged_bytes = (size_t)hoist__round_down(hoist__staging_slot_bytes(job->staging),
						       load->plan.align);
	HOIST__ASSERT(load->staged_bytes >= hoist__plan_least_bytes(&load->plan) &&
		      load->boxes == NULL);
	load->boxes = calloc(HOIST__PUMP_BOXES, sizeof *load->boxes);
	if (load->boxes == NULL)
		return hoist__fail_nomem("a table of copies",
					 HOIST__PUMP_BOXES * sizeof *load->boxes);
	size_t n_reached = load->source != NULL ? hoist__staging_n_slots(job->staging) : 0;
	load->reached = calloc(n_reached + 1, sizeof *load->reached);
	if (load->reached == NULL)
		return hoist__fail_nomem("a table of chunks", n_reached * sizeof *load->reached);
	return 0;
}

_Static_assert(HOIST__MAX_DISKS <= HOIST__POPULATOR_READERS, "each disk is a reader");

/* Populating ahead is an optimisation: without the threads, reads fault pages in.  Chunks before
 * the cursors were hot. */
void hoist__pump_start_populator(struct hoist_load *load)
{
	struct hoist__storage *storage = load->fresh;
	const struct hoist__plan *plan = &load->plan;
	struct hoist__populator_part *parts = calloc(plan->n_extents, sizeof *parts);
	struct hoist__populator_hole *holes = calloc(load->n_maps + 1, sizeof *holes);
	size_t n = 0;
	size_t n_holes = 0;
	for (size_t e = 0; parts != NULL && holes != NULL && e < plan->n_extents; e++) {
		const struct hoist__plan_extent *extent = &plan->extents[e];
		uint64_t bytes = hoist__round_up(extent->end, extent->align) -
				 hoist__round_down(extent->begin, extent->align);
		uint64_t begin = load->lots[extent->lot].at + extent->image;
		HOIST__ASSERT(extent->staged || begin + bytes <= hoist__storage_bytes(storage));
		if (extent->mapped)
			holes[n_holes++] = (struct hoist__populator_hole){(size_t)begin,
									  (size_t)(begin + bytes)};
		else if (!extent->staged)
			parts[n++] = (struct hoist__populator_part){
				.begin = (size_t)begin,
				.end = (size_t)(begin + bytes),
				.reader = hoist__pump_disk_of(load, extent->file),
			};
	}
	const struct hoist__populator_options options = {
		.address = (void *)hoist__storage_address(storage),
		.bytes = hoist__storage_bytes(storage),
		.parts = parts,
		.n_parts = n,
		.populate = load->pages.populate,
		.context = load->pages.context,
		.holes = holes,
		.n_holes = n_holes,
	};
	if (parts == NULL || holes == NULL ||
	    hoist__populator_start(&options, &load->populator) < 0)
		hoist__log(load, "not populating ahead: %s", hoist__error_text());
	free(parts);
	free(holes);
	load->no_populator = load->populator == NULL;
	for (unsigned d = 0; load->populator != NULL && d < load->disk_table.n; d++)
		hoist__populator_pass(load->populator, d, load->disks[d].populated);
}

static int make_flights(struct hoist_load *load)
{
	unsigned n = 0;
	for (unsigned d = 0; d < load->disk_table.n; d++)
		n += load->disks[d].most_flights;
	HOIST__ASSERT(n != 0 && load->n_parts != 0 && load->flights == NULL);
	load->flights = calloc(n, sizeof *load->flights);
	load->requests = calloc((size_t)n * load->n_parts, sizeof *load->requests);
	unsigned n_rows = hoist__pump_may_go_straight(load) ? HOIST__LOAD_ROWS : 0;
	load->rows = calloc((size_t)n * n_rows + 1, sizeof *load->rows);
	if (load->flights == NULL || load->requests == NULL || load->rows == NULL)
		return hoist__fail_nomem("requests",
					 (size_t)n * load->n_parts * sizeof *load->requests);
	for (unsigned i = n; i-- > 0;) {
		load->flights[i].load = load;
		load->flights[i].rows = &load->rows[(size_t)i * n_rows];
		load->flights[i].requests = &load->requests[(size_t)i * load->n_parts];
		hoist__list_push_front(&load->free_flights, &load->flights[i].node);
	}
	return 0;
}

/* The first rows of each disk decide how the load begins. */
bool hoist__pump_begins_with_slots(struct hoist_load *load)
{
	bool straight = load->to_host && hoist__pump_may_go_straight(load);
	for (unsigned d = 0; straight && d < load->disk_table.n; d++)
		straight = hoist__pump_begins_straight(load, d);
	return load->plan.has_staged && !straight;
}

/* Makes the slots of a load that began without, once rows are not hot, or waits for its turn at the
 * budget.  The engine has registered no buffer. */
static void add_slots(struct hoist_load *load, uint64_t timeout_ns)
{
	uint64_t wait = hoist__job_n_inflight(&load->job) > 0 ? 0 : timeout_ns;
	int err = hoist__job_take_staging(&load->job, 2 * slot_least(load), wait);
	if (err < 0)
		hoist__job_fail(&load->job, err);
	load->needs_slots = err > 0;
}

/* Called again while others have the budget: the staging is made first, so a repeated call finds
 * nothing half done. */
static int begin(struct hoist__job *job, uint64_t timeout_ns)
{
	struct hoist_load *load = hoist__load_of(job);
	if ((load->plan.n_extents == 0 && load->source == NULL) || load->maps)
		return 0;
	if (load->disk_table.n == 0)
		hoist__pump_find_disks(load);
	int err = hoist__pump_check_budget(load);
	size_t least = load->plan.has_staged ? 2 * slot_least(load) : 0;
	if (err == 0 && load->source != NULL) {
		(void)hoist__stages_enter(&job->stages, HOIST_STAGE_BUDGET);
		err = load->source->ops->reserve(load->source, load, least, timeout_ns);
	}
	if (err == 0 && load->into != NULL) {
		(void)hoist__stages_enter(&job->stages, HOIST_STAGE_CALLER);
		err = hoist__into_await(load->into, timeout_ns);
	}
	(void)hoist__stages_enter(&job->stages, HOIST_STAGE_ALLOCATE);
	if (err == 0 && load->job.staging == NULL && hoist__pump_begins_with_slots(load))
		err = hoist__job_take_staging(job, least, timeout_ns);
	if (err == 0 && load->flights == NULL && load->plan.n_extents > 0)
		err = make_flights(load);
	if (err == 0 && job->engine == NULL)
		err = create_engine(load);
	if (err == 0 && load->source != NULL) {
		(void)hoist__stages_enter(&job->stages, HOIST_STAGE_GROUP);
		err = load->source->ops->begin(load->source, load, timeout_ns);
	}
	(void)hoist__stages_enter(&job->stages, HOIST_STAGE_WORK);
	if (err == 0)
		hoist__give_begin(load);
	return err;
}

/* --- end --- */

/* True if every byte of each lot has arrived. */
HOIST__CONDITION static bool lots_are_complete(const struct hoist_load *load)
{
	bool complete = true;
	for (size_t lot = 0; lot < load->plan.n_lots && complete; lot++)
		complete = load->lots[lot].left == 0;
	return complete;
}

/* The engine may still write to host memory: the memory is never given back. */
static void keep_host_memory(const struct hoist_load *load)
{
	/* A tensor that is given meanwhile takes its storage along. */
	if (load->give != NULL)
		pthread_mutex_lock(&load->give->lock);
	for (size_t t = 0; t < load->n_targets; t++)
		for (size_t lot = 0; load->targets[t].to_host && lot < load->plan.n_lots; lot++)
			if (load->targets[t].storages[lot] != NULL)
				(void)hoist__storage_ref(load->targets[t].storages[lot]);
	if (load->give != NULL)
		pthread_mutex_unlock(&load->give->lock);
	hoist__into_keep(load->into);
}

/* Checks for every file that was read, once, that it did not change, and drops its pages if asked
 * to. */
static void leave_files(struct hoist_load *load)
{
	for (size_t f = 0; f < load->n_files; f++) {
		const struct hoist__file *file = load->files[f];
		/* Writing to a READ_WRITE map changes the file. */
		if (load->job.phase == HOIST__JOB_RUNNING &&
		    !(load->maps && load->options.map == HOIST_MAP_READ_WRITE)) {
			int err = hoist__file_changed(file);
			if (err < 0)
				hoist__job_fail(&load->job, err);
		}
		/* Only advice: the kernel keeps the pages that are in use. */
		if ((load->options.flags & HOIST_LOAD_DROP_CACHE) != 0)
			(void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
	}
}

static void end(struct hoist__job *job)
{
	struct hoist_load *load = hoist__load_of(job);
	HOIST__ASSERT(hoist__list_empty(&load->waiting));
	HOIST__ASSERT(load->maps || load->job.phase != HOIST__JOB_RUNNING ||
		      (load->arrived == load->plan.bytes && lots_are_complete(load)));
	leave_files(load);
	if (load->source != NULL && load->source->ops->fail != NULL && job->err < 0)
		load->source->ops->fail(load->source, load);
	/* Devices may still copy from the memory of the source. */
	if (load->n_reached > 0)
		hoist__staging_settle(job->staging);
	if (load->source != NULL)
		load->source->ops->end(load->source, load);
	hoist__load_finish_report(load);
	hoist__give_part(load);
	if (!hoist__job_release(job) && !load->maps)
		keep_host_memory(load);
	hoist__populator_stop(load->populator);
	load->populator = NULL;
	hoist__storage_unref(load->fresh);
	load->fresh = NULL;
	hoist__into_end(load->into, job->err, &job->failure);
	hoist__give_end(load);
}

/* --- one round --- */

/* The copies that the load waits for.  A failed load waits for copies only when it releases the
 * slots: a broken stream never completes them one by one. */
static unsigned n_awaited_copies(const struct hoist_load *load)
{
	const struct hoist__job *job = &load->job;
	bool awaits = job->staging != NULL && !load->to_host && job->phase == HOIST__JOB_RUNNING;
	return awaits ? hoist__staging_n_copying(job->staging) : 0;
}

/* The stage of a wait in the engine: see lib/job/stage.h. */
static enum hoist_stage awaited(const struct hoist_load *load, unsigned n_inflight,
				unsigned n_copying)
{
	unsigned n_reads = 0;
	unsigned n_settling = 0;
	for (unsigned d = 0; d < load->disk_table.n; d++) {
		n_reads += load->disks[d].n_requests;
		n_settling += load->disks[d].n_settling;
	}
	if (n_reads > 0)
		return HOIST_STAGE_READ;
	if (n_settling > 0)
		return HOIST_STAGE_CONVERT;
	if (n_copying > 0)
		return HOIST_STAGE_COPY;
	return n_inflight > 0 ? HOIST_STAGE_ALLOCATE : HOIST_STAGE_GROUP;
}

/* Waits for the first event that lets the load go on.  @disk waits for pages; HOIST__MAX_DISKS:
 * none does. */
static void wait_for_something(struct hoist_load *load, unsigned disk, uint64_t timeout_ns)
{
	unsigned n_inflight = hoist__job_n_inflight(&load->job);
	unsigned n_copying = n_awaited_copies(load);
	bool fresh = false;
	load->job.awaited = awaited(load, n_inflight, n_copying);
	if (hoist__give_starves(load, &fresh)) {
		/* The caller of a load that it drives looks first. */
		load->job.awaited = HOIST_STAGE_CALLER;
		hoist__pump_reap(load, false, fresh ? 0 : timeout_ns);
		return;
	}
	/* A source is to be heard meanwhile. */
	if (n_inflight == 0 && n_copying > 0 && timeout_ns == UINT64_MAX && load->source == NULL) {
		(void)hoist__stages_enter(&load->job.stages, HOIST_STAGE_COPY);
		hoist__pump_reclaimed(load, hoist__staging_wait(load->job.staging));
	} else if (n_inflight > 0 || (n_copying > 0 && timeout_ns > 0)) {
		/* While slots are free, the load goes on with the next read that ends.  Else, or if
		 * the source waits for its memory, the end of a copy may come first, and wakes the
		 * engine. */
		bool copying = n_copying > 0 && (n_inflight == 0 || load->n_reached > 0 ||
						 hoist__give_awaits_copies(load) ||
						 hoist__staging_n_free(load->job.staging) == 0);
		hoist__pump_reap(load, copying, timeout_ns);
	} else if (disk < HOIST__MAX_DISKS) {
		const struct hoist__chunk *next = &load->disks[disk].next;
		size_t need = hoist__pump_end_of(load, next);
		HOIST__ASSERT(load->disks[disk].has_next && load->populator != NULL);
		(void)hoist__stages_enter(&load->job.stages, HOIST_STAGE_PAGES);
		int err = hoist__populator_wait(
			load->populator, disk, need,
			hoist__min_u64(timeout_ns, HOIST__JOB_CANCEL_POLL_NS));
		if (err < 0 && err != -EAGAIN)
			hoist__job_fail(&load->job, err);
	} else if (load->source != NULL) {
		hoist__pump_reap(load, false, timeout_ns);
	}
}

static bool all_home(struct hoist_load *load)
{
	bool more = load->job.phase == HOIST__JOB_RUNNING && hoist__pump_has_chunks(load);
	return !more && hoist__job_n_inflight(&load->job) == 0 && n_awaited_copies(load) == 0;
}

/* A source may fail at any moment, or still give bytes to others once the load is whole. */
static bool is_over(struct hoist_load *load)
{
	return hoist__pump_source_ends(load, all_home(load)) && all_home(load);
}

/* Maps are populated by threads of their own.  True once these have ended. */
static bool map_round(struct hoist_load *load, uint64_t timeout_ns)
{
	int err = 0;
	if (load->job.phase == HOIST__JOB_DRAINING)
		hoist__checkpoint_map_cancel(load->map);
	(void)hoist__stages_enter(&load->job.stages, HOIST_STAGE_READ);
	bool ended = hoist__checkpoint_map_step(
		load->map, hoist__min_u64(timeout_ns, HOIST__JOB_CANCEL_POLL_NS), &err);
	(void)hoist__stages_enter(&load->job.stages, HOIST_STAGE_WORK);
	atomic_store_explicit(&load->arrived,
			      hoist__checkpoint_map_arrived(load->map, load->plan.bytes),
			      memory_order_relaxed);
	if (ended && err < 0 && load->job.phase == HOIST__JOB_RUNNING)
		hoist__job_fail(&load->job, hoist__mapped_fail(load, err));
	if (ended && load->job.phase == HOIST__JOB_RUNNING)
		hoist__give_all(load);
	return ended;
}

static bool round_of_load(struct hoist__job *job, uint64_t timeout_ns)
{
	struct hoist_load *load = hoist__load_of(job);
	unsigned populating = HOIST__MAX_DISKS;
	if (load->map != NULL)
		return map_round(load, timeout_ns);
	if (job->engine == NULL)
		return true;
	HOIST__ASSERT(adds_up(load));
	if (n_awaited_copies(load) > 0)
		hoist__pump_reclaimed(load, hoist__staging_reclaim(job->staging));
	if (job->phase == HOIST__JOB_RUNNING && load->needs_slots)
		add_slots(load, timeout_ns);
	if (job->phase == HOIST__JOB_RUNNING)
		populating = hoist__pump_submit(load);
	if (!is_over(load))
		wait_for_something(load, populating, timeout_ns);
	(void)hoist__stages_enter(&job->stages, HOIST_STAGE_WORK);
	HOIST__ASSERT(adds_up(load) && atomic_load(&load->arrived) <= load->plan.bytes);
	return is_over(load);
}

const struct hoist__job_kind hoist__load_kind = {
	.what = "load",
	.starting = "starting the load's thread",
	.begin = begin,
	.make_staging = make_staging,
	.round = round_of_load,
	.end = end,
};
