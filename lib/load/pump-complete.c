/* SPDX-License-Identifier: MIT */
/* Finished requests: counts the bytes, delivers chunks, or explains the failure.
 * The contract is in lib/load/pump.h. */
#include "config.h"

#include <sys/stat.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/log.h"
#include "lib/load/give.h"
#include "lib/load/pump.h"

/* The selected tensor that has byte @at of the chunk's file; in the chunk's gaps, the next one. */
static const char *tensor_name(const struct hoist_load *load, const struct hoist__chunk *chunk,
			       uint64_t at)
{
	size_t file = load->plan.extents[chunk->extent].file;
	const struct hoist__tensor *tensor =
		hoist__plan_tensor_at(load->checkpoint, &load->plan, file, at);
	if (tensor == NULL)
		tensor = hoist__plan_tensor_at(load->checkpoint, &load->plan, file,
					       hoist__plan_wanted(&load->plan, chunk, at));
	return tensor != NULL ? tensor->name : "?";
}

/* The file's end is asked for, not concluded from this read: reads end in any order, and the file
 * may now end far before this chunk. */
static void fail_short(struct hoist_load *load, const struct hoist__request *request,
		       const struct hoist__chunk *chunk)
{
	struct stat now;
	uint64_t end = hoist__request_offset(request);
	if (hoist__file_stat(request->file->fd, &now) == 0 && S_ISREG(now.st_mode) &&
	    (uint64_t)now.st_size < end)
		end = (uint64_t)now.st_size;
	hoist__job_fail(
		&load->job,
		hoist__fail(
			-ENODATA,
			"%s ends at byte %llu, before the end of tensor \"%.200s\": the file had "
			"%llu bytes when it was opened; do not change files while they are loaded",
			request->file->path, (unsigned long long)end, tensor_name(load, chunk, end),
			(unsigned long long)request->file->bytes));
}

static void fail_read(struct hoist_load *load, const struct hoist__request *request,
		      const struct hoist__chunk *chunk)
{
	(void)hoist__pump_source_ends(load, false); /* says why, if the source has failed */
	if (load->job.phase == HOIST__JOB_DRAINING)
		return;
	if (request->result == -ENODATA) {
		fail_short(load, request, chunk);
		return;
	}
	uint64_t at = hoist__plan_wanted(&load->plan, chunk, hoist__request_offset(request));
	/* -EAGAIN: the engine gave up repeating the read.  The load's caller would take -EAGAIN for
	 * "not done yet". */
	int err = request->result == -EAGAIN ? -EIO : request->result;
	hoist__job_fail(&load->job,
			hoist__fail_errno(err, "reading %s at byte %llu, tensor \"%.200s\"",
					  request->file->path, (unsigned long long)at,
					  tensor_name(load, chunk, at)));
}

static void account(struct hoist_load *load, const struct hoist__request *request)
{
	HOIST__ASSERT(request->direct_done <= request->done && request->done <= request->bytes);
	load->report.direct_bytes += request->direct_done;
	load->report.cached_bytes += request->done - request->direct_done;
	load->routes.fell_back += request->fell_back;
}

/* --- in sequence, or in the order of completion --- */

void hoist__pump_land(struct hoist_load *load, struct hoist__flight *flight)
{
	HOIST__ASSERT(flight->n_open == 0 && load->disks[flight->disk].n_flights != 0);
	HOIST__ASSERT(hoist__list_empty(&flight->node));
	load->disks[flight->disk].n_flights--;
	hoist__list_push_front(&load->free_flights, &flight->node);
}

static void land_image(struct hoist_load *load, const struct hoist__flight *flight)
{
	hoist__timeline_end(load->job.stages.timeline, &flight->lap);
	hoist__pump_count(load, &flight->chunk);
	atomic_fetch_add_explicit(&load->arrived, flight->chunk.useful, memory_order_relaxed);
}

/* Gives the settling of the flight to the engine.  False: the pump's thread is to settle it. */
static bool submit_work(struct hoist_load *load, struct hoist__flight *flight)
{
	struct hoist__load_disk *disk = &load->disks[flight->disk];
	struct hoist__request *request = &flight->requests[0];
	if (!hoist__pump_has_work(load, flight) || hoist__engine_room(load->job.engine) == 0)
		return false;
	size_t file = load->plan.extents[flight->chunk.extent].file;
	*request = (struct hoist__request){
		.file = load->checkpoint->files[file].file,
		.buffer = -1,
		.work = hoist__pump_settle,
		.owner = flight,
	};
	/* The engine refuses what it cannot serve any more; reads fail then, too. */
	if (hoist__engine_submit(load->job.engine, &request, 1) < 0)
		return false;
	flight->settling = true;
	flight->n_open = 1;
	disk->n_settling++;
	HOIST__ASSERT(hoist__list_empty(&flight->node) && disk->n_settling <= disk->n_flights);
	return true;
}

/* The work has ended, or was cancelled. */
static void complete_work(struct hoist_load *load, struct hoist__flight *flight)
{
	HOIST__ASSERT(flight->n_open == 1 && load->disks[flight->disk].n_settling != 0);
	HOIST__ASSERT(flight->slot->state == HOIST__SLOT_FULL);
	load->disks[flight->disk].n_settling--;
	flight->n_open = 0;
	flight->settling = false;
	if (load->job.phase == HOIST__JOB_RUNNING && flight->requests[0].result < 0)
		hoist__job_fail(&load->job, hoist__fail_errno(flight->requests[0].result,
							      "moving a chunk to its places"));
	if (load->job.phase != HOIST__JOB_RUNNING || flight->requests[0].result < 0) {
		hoist__pump_give_up(load, flight);
		return;
	}
	int err = hoist__pump_deliver(load, flight);
	if (err < 0)
		hoist__job_fail(&load->job, err);
	hoist__pump_land(load, flight);
}

static int digest(struct hoist_load *load, const struct hoist__flight *flight)
{
	int err = hoist__digests_pass(load->digests, flight->disk, &flight->chunk,
				      flight->mapped ? NULL : flight->address);
	const struct hoist__checkpoint_tensor *damaged = hoist__digests_damaged(load->digests);
	return damaged == NULL || load->source == NULL
		       ? err
		       : load->source->ops->damaged(load->source, damaged, err);
}

/* Delivers a chunk that was read: digests it, and settles it if it is in a slot. */
static void deliver(struct hoist_load *load, struct hoist__flight *flight)
{
	struct hoist__slot *slot = flight->slot;
	int err = 0;
	HOIST__ASSERT(flight->n_open == 0 && (slot == NULL || slot->state == HOIST__SLOT_FULL));
	struct hoist__stages *stages = &load->job.stages;
	bool works = load->digests != NULL ||
		     (slot != NULL && (load->to_host || load->plan.has_conversion));
	enum hoist_stage stage =
		hoist__stages_enter(stages, works ? HOIST_STAGE_CONVERT : stages->now);
	if (load->digests != NULL)
		err = digest(load, flight);
	if (err == 0 && slot != NULL)
		hoist__into_touch(load->into, &flight->chunk);
	bool submitted = err == 0 && slot != NULL && submit_work(load, flight);
	if (err == 0 && slot != NULL && !submitted)
		(void)hoist__pump_settle(flight);
	(void)hoist__stages_enter(stages, stage);
	if (submitted)
		return;
	if (err == 0 && slot != NULL) {
		err = hoist__pump_deliver(load, flight);
	} else if (slot != NULL) {
		hoist__slot_release(load->job.staging, slot);
	} else if (err == 0) {
		land_image(load, flight);
	}
	if (err < 0)
		hoist__job_fail(&load->job, err);
	hoist__pump_land(load, flight);
}

void hoist__pump_give_up(struct hoist_load *load, struct hoist__flight *flight)
{
	if (flight->slot != NULL)
		hoist__slot_release(load->job.staging, flight->slot);
	hoist__pump_land(load, flight);
}

/* The disk's waiting flight whose sequence is due, or NULL.  A linear search: no more flights wait
 * than are read at once. */
static struct hoist__flight *next_in_sequence(struct hoist_load *load, unsigned disk)
{
	for (struct hoist__list *node = load->waiting.next; node != &load->waiting;
	     node = node->next) {
		struct hoist__flight *flight =
			HOIST__CONTAINER_OF(node, struct hoist__flight, node);
		if (flight->disk == disk && flight->sequence == load->disks[disk].due_sequence) {
			hoist__list_remove(node);
			return flight;
		}
	}
	return NULL;
}

/* Delivers the flight, and those that waited for it: a digest needs a tensor's bytes in order. */
static void deliver_in_sequence(struct hoist_load *load, struct hoist__flight *flight)
{
	unsigned disk = flight->disk;
	HOIST__ASSERT(flight->sequence >= load->disks[disk].due_sequence);
	HOIST__ASSERT(flight->sequence < load->disks[disk].next_sequence);
	hoist__list_push_back(&load->waiting, &flight->node);
	while (load->job.phase == HOIST__JOB_RUNNING &&
	       (flight = next_in_sequence(load, disk)) != NULL) {
		load->disks[disk].due_sequence++;
		deliver(load, flight);
	}
}

void hoist__pump_arrive(struct hoist_load *load, struct hoist__flight *flight)
{
	if (load->digests != NULL)
		deliver_in_sequence(load, flight);
	else
		deliver(load, flight);
}

/* The failed bytes may lie in a gap, between tensors or between rows, that is only read along.  The
 * read then goes on behind the gap, or is complete if nothing wanted follows.  Returns: false if
 * the request, which has failed, has ended. */
static bool skip_gap(struct hoist_load *load, struct hoist__request *request)
{
	const struct hoist__flight *flight = request->owner;
	uint64_t at = request->offset + request->done;
	uint64_t end = request->offset + request->need;
	if (load->job.phase != HOIST__JOB_RUNNING || request->result == -ENODATA ||
	    flight->straight)
		return false;
	uint64_t next = hoist__min_u64(hoist__plan_wanted(&load->plan, &flight->chunk, at), end);
	if (next == at)
		return false;
	hoist__log(load, "%s: bytes %llu to %llu cannot be read, but no tensor needs them",
		   request->file->path, (unsigned long long)at, (unsigned long long)next);
	request->result = 0;
	if (next == end)
		return false;
	HOIST__ASSERT(next > at && next < end && request->offset <= at);
	request->address += next - request->offset;
	request->offset = next;
	request->bytes = request->need = (size_t)(end - next);
	request->direct = false; /* the rest need not be aligned, so it is read through the cache */
	int err = hoist__engine_submit(load->job.engine, &request, 1);
	if (err < 0) {
		hoist__job_fail(&load->job, err);
		return false;
	}
	load->report.n_reads++;
	return true;
}

static void complete(struct hoist_load *load, struct hoist__request *request)
{
	struct hoist__flight *flight = request->owner;
	if (flight->settling) {
		complete_work(load, flight);
		return;
	}
	account(load, request);
	if (request->result < 0 && skip_gap(load, request))
		return;
	if (request->result < 0)
		fail_read(load, request, &flight->chunk);
	HOIST__ASSERT(flight->n_open != 0 && load->disks[flight->disk].n_requests != 0);
	HOIST__ASSERT(request->result <= 0 && request >= flight->requests &&
		      request < flight->requests + load->n_parts);
	load->disks[flight->disk].n_requests--;
	/* The kernel may still be writing the flight's other parts. */
	if (--flight->n_open > 0)
		return;
	flight->lap.full_ns = hoist__timeline_now(load->job.stages.timeline);
	if (flight->sourced)
		load->source->ops->landed(load->source, &flight->chunk);
	if (load->job.phase == HOIST__JOB_RUNNING && flight->slot != NULL)
		hoist__slot_filled(load->job.staging, flight->slot);
	if (load->job.phase != HOIST__JOB_RUNNING)
		hoist__pump_give_up(load, flight);
	else
		hoist__pump_arrive(load, flight);
}

void hoist__pump_reap(struct hoist_load *load, bool copying, uint64_t timeout_ns)
{
	struct hoist__request *done[HOIST__PUMP_BATCH];
	unsigned n = hoist__job_reap(&load->job, done, HOIST__PUMP_BATCH, copying, timeout_ns);
	for (unsigned i = 0; i < n; i++)
		complete(load, done[i]);
	hoist__pump_give_up_waiting(load);
}

void hoist__pump_give_up_waiting(struct hoist_load *load)
{
	while (load->job.phase == HOIST__JOB_DRAINING && !hoist__list_empty(&load->waiting))
		hoist__pump_give_up(load, HOIST__CONTAINER_OF(hoist__list_pop(&load->waiting),
							      struct hoist__flight, node));
}

void hoist__pump_reclaimed(struct hoist_load *load, int n)
{
	if (n < 0) {
		hoist__job_fail(&load->job, n);
		return;
	}
	if (n > 0)
		hoist__pump_land_reached(load);
	atomic_fetch_add_explicit(&load->arrived, hoist__staging_take_copied(load->job.staging),
				  memory_order_relaxed);
	hoist__give_copied(load, (unsigned)n);
}
