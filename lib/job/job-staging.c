/* SPDX-License-Identifier: MIT */
/* The means of a running job: bytes of the budget, staging slots, an engine.
 * The contract is in lib/job/job.h. */
#include "config.h"

#include <errno.h>

#include "alloc/annotate.h"
#include "base/assert.h"
#include "base/checked.h"
#include "base/log.h"
#include "lib/job/job.h"
#include "lib/memory/budget.h"
#include "lib/memory/memory.h"
#include "numa/group.h"

/* How often a driver that does not tell when a copy ends is asked. */
#define COPY_POLL_NS (100 * UINT64_C(1000))

/* --- the turn at the budget --- */

/* Returns: 0, `held` says whether the bytes came; -EDQUOT, they exceed the limit. */
static int wait_for_turn(struct hoist__job *job, size_t least, uint64_t timeout_ns)
{
	struct hoist__budget *budget = hoist__budget_of(job->budget);
	hoist__memories_yield(budget);
	int err = hoist__budget_acquire_turn(budget, &job->ticket, least, timeout_ns);
	HOIST__ASSERT(job->held == 0 && (err == -EAGAIN) == job->ticket.in_line);
	if (err == 0)
		job->held = least;
	return err == -EAGAIN ? 0 : err;
}

static void leave_budget(struct hoist__job *job)
{
	struct hoist__budget *budget = hoist__budget_of(job->budget);
	hoist__budget_leave(budget, &job->ticket);
	if (job->held > 0)
		hoist__budget_release(budget, job->held);
	job->held = 0;
	HOIST__ASSERT(!job->ticket.in_line);
}

int hoist__job_take_staging(struct hoist__job *job, size_t least, uint64_t timeout_ns)
{
	HOIST__ASSERT(job->staging == NULL && job->phase <= HOIST__JOB_RUNNING);
	HOIST__ASSERT(!job->ticket.in_line || job->held == 0);
	enum hoist_stage stage = hoist__stages_enter(&job->stages, HOIST_STAGE_ALLOCATE);
	int err = job->ticket.in_line ? -EAGAIN : job->kind->make_staging(job);
	if (err == -EAGAIN && job->held == 0) {
		(void)hoist__stages_enter(&job->stages, HOIST_STAGE_BUDGET);
		err = wait_for_turn(job, least,
				    hoist__min_u64(timeout_ns, HOIST__JOB_CANCEL_POLL_NS));
		err = err < 0 ? err : 1;
	}
	(void)hoist__stages_enter(&job->stages, stage);
	return err;
}

/* --- slots --- */

/* Limits the slots to half of the room that the control group has left: pinned pages cannot be
 * reclaimed, and the kernel would kill the process.  Blocks that the pool has kept need no new
 * room: one block, or, where the staging grows, all of them. */
static unsigned room_for_slots(const struct hoist__staging_options *options)
{
	struct hoist__group group;
	struct hoist__pool_stats kept;
	unsigned n = options->n_slots;
	size_t slot_bytes = options->slot_bytes;
	uint64_t bytes = n * (uint64_t)slot_bytes;
	hoist__pool_stats(options->pool, &kept);
	size_t has = options->n_step > 0 ? kept.free_bytes : kept.largest_free_bytes;
	if (bytes < HOIST__GROUP_LEAST_BYTES || bytes <= has ||
	    hoist__pools_make_room(2 * bytes, "staging slots") == 0 ||
	    hoist__group_look("", &group) != 0)
		return n;
	uint64_t room = group.left_bytes / 2 / slot_bytes;
	return (unsigned)hoist__min_u64(n, hoist__max_u64(room, 2));
}

void hoist__job_size_staging(const struct hoist__job *job, struct hoist__staging_options *options,
			     size_t usual)
{
	struct hoist__budget *budget = hoist__budget_of(job->budget);
	options->n_slots = room_for_slots(options);
	HOIST__ASSERT(options->n_slots >= 2);
	size_t free_bytes = hoist__budget_limit(budget) - hoist__budget_used(budget);
	hoist__pool_trim(options->pool, free_bytes >= 2 * usual ? usual : 0);
}

/* The job waits for the end of a copy as it does for requests: in the engine. */
static void wake(void *context)
{
	struct hoist__job *job = context;
	hoist__engine_wake(job->engine);
}

int hoist__job_create_staging(struct hoist__job *job, struct hoist__staging_options *options)
{
	HOIST__ASSERT(job->staging == NULL);
	options->moved = wake;
	options->context = job;
	options->timeline = job->stages.timeline;
	options->budget = hoist__budget_of(job->budget);
	options->held = job->held;
	int err = hoist__staging_create(options, &job->staging);
	if (err == 0)
		job->held = 0;
	return err;
}

/* --- the engine --- */

int hoist__job_create_engine(struct hoist__job *job, enum hoist_engine engine,
			     struct hoist__engine_options *options)
{
	static const enum hoist__engine_kind kinds[] = {
		[HOIST_ENGINE_AUTO] = HOIST__ENGINE_AUTO,
		[HOIST_ENGINE_URING] = HOIST__ENGINE_URING,
		[HOIST_ENGINE_THREADS] = HOIST__ENGINE_THREADS,
	};
	struct hoist__engine_buffer memory = {0};
	bool whole = job->staging != NULL && hoist__staging_memory(job->staging, &memory);
	/* Valgrind stops all other threads while one waits in io_uring_enter(2), which it takes for
	 * a call that does not wait: minutes for a load of some KiB. */
	if (engine == HOIST_ENGINE_AUTO && hoist__valgrind_runs())
		engine = HOIST_ENGINE_THREADS;
	options->kind = kinds[engine];
	options->shared = job->caller_driven;
	options->buffers = &memory;
	options->n_buffers = whole ? 1 : 0;
	options->depth += job->staging != NULL && !whole ? 1 : 0; /* a part in making */
	HOIST__ASSERT(job->engine == NULL && job->phase == HOIST__JOB_READY);
	return hoist__engine_create(options, &job->engine);
}

static int make_part(void *staging)
{
	return hoist__staging_make(staging);
}

void hoist__job_grow_staging(struct hoist__job *job, const struct hoist__file *file)
{
	struct hoist__request *request = &job->growing;
	if (job->phase != HOIST__JOB_RUNNING || !hoist__staging_grow(job->staging))
		return;
	*request = (struct hoist__request){
		.file = file,
		.work = make_part,
		.owner = job->staging,
	};
	int err = hoist__engine_submit(job->engine, &request, 1);
	if (err == 0)
		return;
	hoist__staging_made(job->staging, err);
	hoist__job_fail(job, err);
}

/* Takes the part that was made, and its request out of @requests.  A part that could not be made is
 * no failure of the job, which goes on with the slots that it has.  Returns: the requests left. */
static unsigned take_part(struct hoist__job *job, struct hoist__request **requests, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (requests[i] != &job->growing)
			continue;
		hoist__staging_made(job->staging, job->growing.result);
		requests[i] = requests[n - 1];
		return n - 1;
	}
	return n;
}

unsigned hoist__job_n_inflight(const struct hoist__job *job)
{
	return job->engine != NULL ? hoist__engine_in_flight(job->engine) : 0;
}

unsigned hoist__job_reap(struct hoist__job *job, struct hoist__request **ret, unsigned max,
			 bool copying, uint64_t timeout_ns)
{
	HOIST__ASSERT(!copying || job->staging != NULL);
	bool look = copying && timeout_ns > 0 && !hoist__staging_ask(job->staging);
	uint64_t most = look ? COPY_POLL_NS : HOIST__JOB_CANCEL_POLL_NS;
	enum hoist_stage stage = hoist__stages_enter(&job->stages, job->awaited);
	int n = hoist__engine_reap(job->engine, ret, max, hoist__min_u64(timeout_ns, most));
	(void)hoist__stages_enter(&job->stages, stage);
	if (n < 0)
		hoist__job_fail(job, n);
	return n < 0 ? 0 : take_part(job, ret, (unsigned)n);
}

/* --- the end --- */

bool hoist__job_release(struct hoist__job *job)
{
	bool abandoned = job->engine != NULL && hoist__engine_abandoned(job->engine);
	/* Once the slots are settled, no end of a copy wakes the engine. */
	if (job->staging != NULL)
		hoist__staging_settle(job->staging);
	if (abandoned) {
		hoist__log(load, "requests were abandoned: their memory is never used again");
		job->staging = NULL;
	}
	HOIST__ASSERT(abandoned || hoist__job_n_inflight(job) == 0);
	hoist__engine_destroy(job->engine);
	job->engine = NULL;
	hoist__staging_destroy(job->staging);
	job->staging = NULL;
	leave_budget(job);
	return !abandoned;
}
