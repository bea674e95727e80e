/* SPDX-License-Identifier: MIT */
/* The states of the lots of a load that gives its tensors while it runs.
 * The contract is in lib/load/give.h. */
#include "config.h"

#include "lib/load/give.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "device/device.h"
#include "base/wait.h"
#include "lib/load/pump.h"

/* --- the object --- */

void hoist__give_unref(struct hoist__give *give)
{
	if (!hoist__unref(&give->refs))
		return;
	HOIST__ASSERT(give->fd < 0);
	pthread_cond_destroy(&give->changed);
	pthread_mutex_destroy(&give->lock);
	free(give->first_of);
	free(give->tensor_of);
	free(give->places);
	free(give->states);
	free(give->tickets);
	free(give->queued);
	free(give->windows);
	free(give->line);
	free(give->is_ready);
	free(give);
}

void hoist__give_close(struct hoist__give *give)
{
	if (give == NULL)
		return;
	pthread_mutex_lock(&give->lock);
	int fd = give->fd;
	give->fd = -1;
	pthread_mutex_unlock(&give->lock);
	if (fd >= 0)
		(void)close(fd);
	hoist__give_unref(give);
}

bool hoist__give_awaits_copies(const struct hoist_load *load)
{
	return load->give != NULL && load->give->n_copied < load->give->n_queued;
}

/* The number of the lot that the tensor is given with. */
static size_t lot_of(const struct hoist_load *load, size_t tensor)
{
	const struct hoist__plan_tensor *planned = &load->plan.tensors[tensor];
	return planned->bytes > 0 ? planned->lot : load->plan.n_lots;
}

/* Sorts the tensors by their lots; within a lot they stay in order. */
static void list_tensors(const struct hoist_load *load, struct hoist__give *give)
{
	const struct hoist__plan *plan = &load->plan;
	for (size_t i = 0; i < plan->n_tensors; i++)
		give->first_of[lot_of(load, i) + 1]++;
	for (size_t lot = 0; lot <= plan->n_lots; lot++)
		give->first_of[lot + 1] += give->first_of[lot];
	for (size_t i = 0; i < plan->n_tensors; i++)
		give->tensor_of[give->first_of[lot_of(load, i)]++] = i;
	/* Each first is now its lot's end. */
	for (size_t lot = plan->n_lots + 1; lot > 0; lot--)
		give->first_of[lot] = give->first_of[lot - 1];
	give->first_of[0] = 0;
}

static int make_tables(const struct hoist_load *load, struct hoist__give *give)
{
	size_t n = load->plan.n_lots + 1;
	give->first_of = calloc(n + 1, sizeof *give->first_of);
	give->tensor_of = calloc(load->plan.n_tensors + 1, sizeof *give->tensor_of);
	give->states = calloc(n, sizeof *give->states);
	give->tickets = calloc(n, sizeof *give->tickets);
	give->queued = calloc(n, sizeof *give->queued);
	give->line = calloc(n, sizeof *give->line);
	give->is_ready = calloc(n, sizeof *give->is_ready);
	give->windows = calloc(load->n_targets, sizeof *give->windows);
	if (give->window_bytes > 0)
		give->places = calloc(n * load->n_targets, sizeof *give->places);
	bool made = give->first_of != NULL && give->tensor_of != NULL && give->states != NULL &&
		    give->tickets != NULL && give->queued != NULL && give->line != NULL &&
		    give->is_ready != NULL && give->windows != NULL &&
		    (give->window_bytes == 0 || give->places != NULL);
	return made ? 0
		    : hoist__fail_nomem("a load that gives its tensors one by one",
					(n + load->plan.n_tensors) * sizeof *give->first_of);
}

int hoist__give_create(struct hoist_load *load)
{
	struct hoist__give *give = calloc(1, sizeof *give);
	if (give == NULL || hoist__condition_init(&give->changed) < 0) {
		free(give);
		return hoist__fail_nomem("a load that gives its tensors one by one", sizeof *give);
	}
	atomic_init(&give->refs, 1);
	give->generation = hoist__fork_now();
	give->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	give->window_bytes = load->options.window_bytes;
	give->n_targets = (unsigned)load->n_targets;
	give->turn = HOIST__MAX_DISKS;
	give->fd = -1;
	int err = make_tables(load, give);
	if (err < 0) {
		hoist__give_unref(give);
		return err;
	}
	list_tensors(load, give);
	for (size_t lot = 0; give->window_bytes == 0 && lot < load->plan.n_lots; lot++)
		give->states[lot] = HOIST__GIVE_TAKEN;
	size_t n_lots = load->plan.n_lots;
	if (give->first_of[n_lots] < give->first_of[n_lots + 1])
		give->line[give->n_line++] = n_lots;
	give->is_ready[n_lots] = true;
	load->give = give;
	return 0;
}

/* --- who is told --- */

bool hoist__give_speaks(const struct hoist__give *give)
{
	return give->over || give->n_gone < give->n_line ||
	       (give->starved && !hoist__give_fits(give, true));
}

/* A write of 1 to a counter of 0 and a read of 1 never fail. */
void hoist__give_tell(struct hoist__give *give)
{
	bool speaks = hoist__give_speaks(give);
	uint64_t one = 1;
	if (speaks)
		pthread_cond_broadcast(&give->changed);
	if (give->fd < 0 || speaks == give->readable)
		return;
	give->readable = speaks;
	ssize_t n = speaks ? write(give->fd, &one, sizeof one) : read(give->fd, &one, sizeof one);
	HOIST__ASSERT(n == sizeof one);
	(void)n;
}

/* --- states --- */

/* The disk of the lot's file: a lot has tensors of one file. */
static unsigned disk_of(const struct hoist_load *load, size_t lot)
{
	const struct hoist__give *give = load->give;
	HOIST__ASSERT(give->first_of[lot] < give->first_of[lot + 1]);
	return hoist__pump_disk_of(
		load, hoist__load_entry(load, give->tensor_of[give->first_of[lot]])->file);
}

/* The first lot of the disk from @lot on. */
static size_t lot_on(const struct hoist_load *load, unsigned disk, size_t lot)
{
	while (lot < load->plan.n_lots && disk_of(load, lot) != disk)
		lot++;
	return lot;
}

static void make_ready(struct hoist_load *load, size_t lot)
{
	struct hoist__give *give = load->give;
	give->states[lot] = HOIST__GIVE_READY;
	pthread_mutex_lock(&give->lock);
	give->line[give->n_line++] = lot;
	give->is_ready[lot] = true;
	for (unsigned t = 0; give->places != NULL && t < give->n_targets; t++) {
		struct hoist__give_place *place = hoist__give_place(load, t, lot);
		if (place->give != NULL) {
			place->out = true;
			give->windows[t].out += place->bytes;
		}
	}
	hoist__give_tell(give);
	pthread_mutex_unlock(&give->lock);
}

static void complete(struct hoist_load *load, size_t lot)
{
	struct hoist__give *give = load->give;
	unsigned disk = disk_of(load, lot);
	size_t *next = &give->next_of[disk];
	HOIST__ASSERT(lot >= *next && give->states[lot] == HOIST__GIVE_QUEUED);
	give->states[lot] = HOIST__GIVE_COMPLETE;
	while (*next < load->plan.n_lots && give->states[*next] == HOIST__GIVE_COMPLETE) {
		make_ready(load, *next);
		*next = lot_on(load, disk, *next + 1);
	}
}

/* Tells whether the lot is on a device where its buffers are not on the stream of its copies. */
static bool awaits_copies(const struct hoist_load *load, size_t lot)
{
	bool any = false;
	for (size_t t = 0; t < load->n_targets && !any; t++) {
		const struct hoist__target *target = &load->targets[t];
		any = target->want == load->plan.lots[lot].want && !target->to_host &&
		      !target->shares_stream;
	}
	return any;
}

void hoist__give_lot(struct hoist_load *load, size_t lot)
{
	struct hoist__give *give = load->give;
	if (give == NULL)
		return;
	HOIST__ASSERT(give->states[lot] == HOIST__GIVE_TAKEN && load->lots[lot].left == 0);
	give->states[lot] = HOIST__GIVE_QUEUED;
	if (!awaits_copies(load, lot)) {
		complete(load, lot);
		return;
	}
	give->tickets[lot] = give->slots_queued;
	give->queued[give->n_queued++] = lot;
}

void hoist__give_queued(struct hoist_load *load)
{
	if (load->give != NULL)
		load->give->slots_queued++;
}

void hoist__give_copied(struct hoist_load *load, unsigned n)
{
	struct hoist__give *give = load->give;
	if (give == NULL)
		return;
	give->slots_copied += n;
	HOIST__ASSERT(give->slots_copied <= give->slots_queued);
	while (give->n_copied < give->n_queued &&
	       give->tickets[give->queued[give->n_copied]] <= give->slots_copied)
		complete(load, give->queued[give->n_copied++]);
}

void hoist__give_all(struct hoist_load *load)
{
	for (size_t lot = 0; load->give != NULL && lot < load->plan.n_lots; lot++)
		make_ready(load, lot);
}

bool hoist__give_is_ready(struct hoist_load *load, size_t index)
{
	struct hoist__give *give = load->give;
	size_t lot = lot_of(load, index);
	pthread_mutex_lock(&give->lock);
	bool ready = give->is_ready[lot];
	pthread_mutex_unlock(&give->lock);
	return ready;
}

/* --- begin and end --- */

void hoist__give_begin(struct hoist_load *load)
{
	struct hoist__give *give = load->give;
	if (give == NULL)
		return;
	for (unsigned d = 0; d < load->disk_table.n; d++)
		give->next_of[d] = lot_on(load, d, 0);
	pthread_mutex_lock(&give->lock);
	give->engine = load->job.engine;
	pthread_mutex_unlock(&give->lock);
}

void hoist__give_part(struct hoist_load *load)
{
	if (load->give == NULL)
		return;
	pthread_mutex_lock(&load->give->lock);
	load->give->engine = NULL;
	pthread_mutex_unlock(&load->give->lock);
}

void hoist__give_end(struct hoist_load *load)
{
	struct hoist__give *give = load->give;
	if (give == NULL)
		return;
	pthread_mutex_lock(&give->lock);
	give->over = true;
	hoist__give_tell(give);
	pthread_mutex_unlock(&give->lock);
}
