/* SPDX-License-Identifier: MIT */
/* The feeder: has this rank's cells read to its slots, for all ranks.
 * The contract is in lib/group/group.h. */
#include "config.h"

#include <stdlib.h>

#include "base/assert.h"
#include "lib/group/group.h"

static void failed(void *context, int err)
{
	struct hoist__feeder *feeder = context;
	struct hoist__member *member = feeder->member;
	pthread_mutex_lock(&member->lock);
	if (member->err == 0) {
		member->err = err;
		hoist__failure_keep(&member->failure);
	}
	pthread_mutex_unlock(&member->lock);
	hoist__engine_wake(member->load->job.engine);
}

/* Gives the next cell a slot. */
static struct hoist__cell_job *next(void *context)
{
	struct hoist__feeder *feeder = context;
	struct hoist__member *member = feeder->member;
	uint32_t k = feeder->next;
	unsigned n_slots = member->n_slots;
	if (k == feeder->n_cells)
		return NULL;
	struct hoist__fed_cell *fed = &feeder->fed[k % n_slots];
	uint64_t before = 0;
	if (k >= n_slots)
		before = member->ownership.cells[feeder->cells[k - n_slots]].wanted_by;
	int given = fed->busy ? 0 : member->ops->slot(member->transport, k, before, &fed->job.slot);
	if (given < 0)
		failed(feeder, given);
	if (given <= 0)
		return NULL;
	fed->busy = true;
	fed->ordinal = k;
	fed->job.cell = feeder->cells[k];
	fed->job.blocks = member->ownership.united + fed->job.cell * HOIST__CELL_WORDS;
	feeder->next++;
	return &fed->job;
}

static void done(void *context, struct hoist__cell_job *job, int err)
{
	struct hoist__feeder *feeder = context;
	struct hoist__member *member = feeder->member;
	struct hoist__fed_cell *fed = HOIST__CONTAINER_OF(job, struct hoist__fed_cell, job);
	fed->busy = false;
	if (err < 0)
		failed(feeder, err);
	else
		member->ops->publish(member->transport, fed->ordinal,
				     member->ownership.cells[job->cell].wanted_by);
}

int hoist__feeder_start(struct hoist__feeder *feeder, struct hoist__member *member)
{
	static const struct hoist__cell_reader_ops ops = {
		.next = next, .done = done, .failed = failed};
	const struct hoist__ownership *o = &member->ownership;
	uint32_t n = o->n_owned[member->rank];
	feeder->member = member;
	if (n == 0)
		return 0;
	feeder->cells = calloc(n, sizeof *feeder->cells);
	feeder->fed = calloc(member->n_slots, sizeof *feeder->fed);
	if (feeder->cells == NULL || feeder->fed == NULL)
		return hoist__fail_nomem("the cells of a rank", n * sizeof *feeder->cells);
	for (size_t c = 0; c < o->n_cells; c++)
		if (o->cells[c].shared && o->cells[c].owner == member->rank)
			feeder->cells[feeder->n_cells++] = c;
	HOIST__ASSERT(feeder->n_cells == n);
	return hoist__cell_reader_start(&feeder->reader, &member->cells, &ops, feeder);
}
