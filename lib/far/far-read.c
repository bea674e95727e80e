/* SPDX-License-Identifier: MIT */
/* Cells from storage: the reading thread, and readings that fail, here and at other members.
 * The contract is in lib/far/far.h. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/far/far.h"

void hoist__far_read(struct hoist__far *far, const struct hoist__swarm_act *act)
{
	struct hoist__far_slot *slot = &far->slots[act->slot];
	hoist__far_refill(far, act->slot);
	pthread_mutex_lock(&far->lock);
	slot->job.cell = act->cell;
	memcpy(slot->blocks, act->blocks, sizeof slot->blocks);
	slot->has_digest = false;
	hoist__far_note_reader(far, slot, far->id);
	far->queue[far->n_queue++] = act->slot;
	pthread_mutex_unlock(&far->lock);
	hoist__cell_reader_wake(&far->reader);
}

/* --- readings that fail --- */

struct hoist__wire_message hoist__far_refusal(struct hoist__far *far,
					      const struct hoist__swarm_act *act)
{
	struct hoist__wire_message m = {.kind = HOIST__WIRE_REFUSE, .ticket = act->ticket};
	pthread_mutex_lock(&far->lock);
	if (act->unreadable)
		(void)snprintf(m.text, sizeof m.text, "%.*s", (int)sizeof m.text - 1,
			       far->read_failure.text);
	pthread_mutex_unlock(&far->lock);
	return m;
}

void hoist__far_note_refusal(struct hoist__far *far, const struct hoist__far_peer *peer,
			     const struct hoist__wire_message *refuse)
{
	if (refuse->text[0] == '\0')
		return;
	(void)hoist__fail(-EIO, "the member at %s could not read it: %s", peer->at.text,
			  refuse->text);
	hoist__failure_keep(&far->refusal);
}

void hoist__far_lose(struct hoist__far *far, size_t cell)
{
	size_t file = hoist__cells_file(&far->cells, cell);
	const char *path = far->load->checkpoint->files[file].file->path;
	uint64_t at = (cell - far->cells.first[file]) * HOIST__CELL_BYTES;
	pthread_mutex_lock(&far->lock);
	int err = far->read_err;
	const struct hoist__failure own = far->read_failure;
	pthread_mutex_unlock(&far->lock);
	if (err < 0)
		err = hoist__fail_again(err, &own);
	else
		err = hoist__fail(far->refusal.text[0] != '\0' ? -EIO : -ECONNRESET,
				  "no member of the group \"%s\" that is left has %s, which is "
				  "needed from byte %llu on%s%s%s%.400s",
				  far->name, path, (unsigned long long)at,
				  far->refusal.text[0] != '\0' ? "; " : "", far->refusal.text,
				  far->note[0] != '\0' ? "; " : "", far->note);
	hoist__far_fail(far, err);
}

/* --- the reading thread's --- */

static unsigned slot_of_job(const struct hoist__far *far, struct hoist__cell_job *job)
{
	return (unsigned)(HOIST__CONTAINER_OF(job, struct hoist__far_slot, job) - far->slots);
}

static struct hoist__cell_job *next_job(void *context)
{
	struct hoist__far *far = context;
	struct hoist__cell_job *job = NULL;
	pthread_mutex_lock(&far->lock);
	if (far->n_queue > 0) {
		job = &far->slots[far->queue[0]].job;
		far->n_queue--;
		memmove(&far->queue[0], &far->queue[1], far->n_queue * sizeof far->queue[0]);
	}
	pthread_mutex_unlock(&far->lock);
	int err = job != NULL ? hoist__far_populate(far, slot_of_job(far, job)) : 0;
	if (err < 0) {
		hoist__far_fail(far, err);
		job = NULL;
	}
	return job;
}

static void job_done(void *context, struct hoist__cell_job *job, int err)
{
	struct hoist__far *far = context;
	pthread_mutex_lock(&far->lock);
	if (err < 0 && far->read_err == 0) {
		far->read_err = err;
		hoist__failure_keep(&far->read_failure);
	}
	hoist__swarm_read(far->swarm, slot_of_job(far, job), err < 0, hoist__now_ns());
	pthread_mutex_unlock(&far->lock);
	hoist__far_ring(far);
	if (err == 0)
		hoist__engine_wake(far->load->job.engine);
}

static void reader_failed(void *context, int err)
{
	hoist__far_fail(context, err);
}

const struct hoist__cell_reader_ops hoist__far_reader_ops = {
	.next = next_job,
	.done = job_done,
	.failed = reader_failed,
};
