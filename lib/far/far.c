/* SPDX-License-Identifier: MIT */
/* The source of the load of a member of a group on several machines.
 * The contracts are in lib/far/far.h and lib/load/source.h. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/wait.h"
#include "lib/far/far.h"
#include "lib/memory/budget.h"

unsigned char *hoist__far_slot(const struct hoist__far *far, unsigned slot)
{
	return far->arena + slot * (size_t)HOIST__CELL_BYTES;
}

size_t hoist__far_cell_bytes(const struct hoist__far *far, size_t cell)
{
	size_t file = hoist__cells_file(&far->cells, cell);
	uint64_t at = (cell - far->cells.first[file]) * HOIST__CELL_BYTES;
	uint64_t left = far->load->checkpoint->files[file].file->bytes - at;
	return left < HOIST__CELL_BYTES ? (size_t)left : (size_t)HOIST__CELL_BYTES;
}

void hoist__far_fail(struct hoist__far *far, int err)
{
	pthread_mutex_lock(&far->lock);
	if (far->err == 0) {
		hoist__failure_keep(&far->failure);
		far->err = err;
	}
	pthread_cond_broadcast(&far->changed);
	pthread_mutex_unlock(&far->lock);
	hoist__engine_wake(far->load->job.engine);
}

/* --- begin --- */

static int reserve(struct hoist__load_source *source, struct hoist_load *load, size_t staging,
		   uint64_t timeout_ns)
{
	struct hoist__far *far = hoist__far_of(source);
	if (far->charge.bytes == 0)
		far->n_slots = hoist__cell_slots(load, staging, HOIST__SWARM_SLOTS);
	return hoist__cell_charge_take(&far->charge, load, hoist__far_arena_bytes(far), staging,
				       timeout_ns, far->timeout_ns);
}

static int make_slots(struct hoist__far *far)
{
	far->slots = calloc(far->n_slots, sizeof *far->slots);
	far->peers = calloc(HOIST__FAR_PEERS, sizeof *far->peers);
	far->known = calloc(HOIST__FAR_MOST_KNOWN, sizeof *far->known);
	if (far->slots == NULL || far->peers == NULL || far->known == NULL)
		return hoist__fail_nomem("a member of a group", far->n_slots * sizeof *far->slots);
	int err = hoist__far_arena_make(far);
	if (err < 0)
		return err;
	for (unsigned i = 0; i < far->n_slots; i++) {
		far->slots[i].job.slot = hoist__far_slot(far, i);
		far->slots[i].job.blocks = far->slots[i].blocks;
	}
	far->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return far->bell < 0 ? hoist__fail_errno(-errno, "a bell of a group") : 0;
}

/* Without UCX, or with one that finds no transport, the member is alone. */
static int open_fabric(struct hoist__far *far)
{
	const struct hoist__fabric_options options = {
		.handlers = hoist__far_handlers,
		.context = far,
		.arena = far->arena,
		.arena_bytes = hoist__far_arena_bytes(far),
	};
	int err = hoist__fabric_open(&options, &far->fabric);
	if (err == -ENOMEM)
		return err;
	if (err < 0) {
		const struct hoist__swarm_options alone = {
			.id = far->id,
			.reads = far->reads,
			.n_cells = far->cells.n,
			.n_slots = far->n_slots,
			.wants = &far->wants,
		};
		(void)snprintf(far->note, sizeof far->note, "%s", hoist_error());
		hoist__log(load, "group \"%s\": this member reads all from storage: %s", far->name,
			   far->note);
		far->fabric = NULL;
		far->state = HOIST__FAR_BEGUN;
		far->ready = true;
		return hoist__swarm_create(&alone, &far->swarm);
	}
	return hoist__far_open(far);
}

static int start(struct hoist__far *far, struct hoist_load *load)
{
	far->load = load;
	far->reads = load->checkpoint->n_absent < load->checkpoint->n_files;
	far->beat_share.weight = HOIST__SWARM_FULL;
	far->opened_at = far->met_at = hoist__now_ns();
	int err = hoist__cells_make(&far->cells, load, HOIST__CELL_LEAST_SLOTS);
	if (err == 0)
		err = hoist__checkpoint_identify(load->checkpoint, far->identity);
	if (err == 0)
		err = hoist__swarm_wants_make(far->cells.wants, far->cells.n, &far->wants);
	for (size_t f = 0; err == 0 && f < load->checkpoint->n_files; f++)
		if (load->checkpoint->files[f].file->absent)
			hoist__swarm_wants_mark_lacking(&far->wants, far->cells.first[f],
							far->cells.first[f + 1]);
	hoist__cell_readers_name(&far->readers, 0, far->id, "this", "member");
	if (err == 0)
		err = hoist__cell_readers_make(&far->readers, &far->cells);
	if (err == 0)
		err = make_slots(far);
	if (err == 0)
		err = open_fabric(far);
	if (err == 0 && far->reads)
		err = hoist__cell_reader_start(&far->reader, &far->cells, &hoist__far_reader_ops,
					       far);
	return err == 0 ? hoist__far_start(far) : err;
}

static int begin(struct hoist__load_source *source, struct hoist_load *load, uint64_t timeout_ns)
{
	struct hoist__far *far = hoist__far_of(source);
	uint64_t wait = hoist__min_u64(timeout_ns, HOIST__JOB_CANCEL_POLL_NS);
	if (far->load == NULL) {
		int err = start(far, load);
		if (err < 0)
			return err;
	}
	pthread_mutex_lock(&far->lock);
	if (far->err == 0 && far->state == HOIST__FAR_MEETING && wait > 0)
		(void)hoist__condition_wait(&far->changed, &far->lock, hoist__deadline(wait));
	int err = far->err < 0 ? hoist__fail_again(far->err, &far->failure)
			       : far->state == HOIST__FAR_MEETING;
	pthread_mutex_unlock(&far->lock);
	return err;
}

/* --- chunks --- */

static enum hoist__load_source_state look(struct hoist__load_source *source,
					  const struct hoist__chunk *chunk)
{
	struct hoist__far *far = hoist__far_of(source);
	struct hoist__cell_walk walk = {.cell = SIZE_MAX};
	enum hoist__load_source_state state = HOIST__SOURCE_READY;
	pthread_mutex_lock(&far->lock);
	while (state == HOIST__SOURCE_READY && hoist__cells_next(&far->cells, chunk, &walk))
		if (hoist__swarm_slot_of(far->swarm, walk.cell) < 0)
			state = HOIST__SOURCE_LATER;
	pthread_mutex_unlock(&far->lock);
	return state;
}

static size_t alike(struct hoist__load_source *source, size_t file, uint64_t offset, size_t bytes,
		    bool *ret_foreign)
{
	(void)source;
	(void)file;
	(void)offset;
	*ret_foreign = true;
	return bytes;
}

static int copy(struct hoist__load_source *source, size_t file, uint64_t offset, size_t bytes,
		unsigned char *to)
{
	struct hoist__far *far = hoist__far_of(source);
	int err = 0;
	while (bytes > 0 && err == 0) {
		size_t at = (size_t)(offset % HOIST__CELL_BYTES);
		size_t left = (size_t)HOIST__CELL_BYTES - at;
		size_t n = bytes < left ? bytes : left;
		err = hoist__far_copy(far, file, offset, n, to);
		offset += n;
		to += n;
		bytes -= n;
	}
	return err;
}

/* Chunks that are cut at cells have one (lib/swarm/cells.h).  A neighbour may fill its slot anew
 * amid a copy, which only the crew's copies notice, so devices copy from this member's own slots
 * alone. */
static unsigned char *reach(struct hoist__load_source *source, const struct hoist__chunk *chunk)
{
	struct hoist__far *far = hoist__far_of(source);
	size_t cell = hoist__cells_only(&far->cells, chunk);
	if (cell == SIZE_MAX)
		return NULL;
	pthread_mutex_lock(&far->lock);
	int i = hoist__swarm_slot_of(far->swarm, cell);
	bool own = i >= 0 && !far->slots[i].lost && far->slots[i].loan.bytes == NULL;
	pthread_mutex_unlock(&far->lock);
	if (!own)
		return NULL;
	unsigned char *slot = hoist__far_slot(far, (unsigned)i);
	bool pinned =
		hoist__cell_pin(&far->pins, far->load->job.dev, slot, false, &far->slots[i].pinned);
	return pinned ? slot + chunk->offset % HOIST__CELL_BYTES : NULL;
}

static void landed(struct hoist__load_source *source, const struct hoist__chunk *chunk)
{
	struct hoist__far *far = hoist__far_of(source);
	struct hoist__cell_walk walk = {.cell = SIZE_MAX};
	bool freed = false;
	pthread_mutex_lock(&far->lock);
	while (hoist__cells_next(&far->cells, chunk, &walk)) {
		HOIST__ASSERT(far->cells.touches[walk.cell] > 0);
		if (--far->cells.touches[walk.cell] > 0)
			continue;
		hoist__swarm_used(far->swarm, walk.cell);
		freed = true;
	}
	pthread_mutex_unlock(&far->lock);
	if (freed)
		hoist__far_ring(far);
}

/* --- the end --- */

static int step(struct hoist__load_source *source, bool whole)
{
	struct hoist__far *far = hoist__far_of(source);
	pthread_mutex_lock(&far->lock);
	int err = far->err < 0 ? hoist__fail_again(far->err, &far->failure) : 0;
	bool ends = err == 0 && whole && hoist__swarm_may_end(far->swarm);
	pthread_mutex_unlock(&far->lock);
	if (whole && !atomic_exchange(&far->whole, true))
		hoist__far_ring(far);
	return err < 0 ? err : ends;
}

static int damaged(struct hoist__load_source *source, const struct hoist__checkpoint_tensor *tensor,
		   int err)
{
	struct hoist__far *far = hoist__far_of(source);
	pthread_mutex_lock(&far->lock);
	err = hoist__cell_readers_say(&far->readers, &far->cells, far->name, tensor, err);
	pthread_mutex_unlock(&far->lock);
	return err;
}

static void end(struct hoist__load_source *source, struct hoist_load *load)
{
	(void)load;
	struct hoist__far *far = hoist__far_of(source);
	struct hoist__cell_reader *reader = &far->reader;
	hoist__far_stop(far);
	hoist__far_write_report(far);
	bool stopped = hoist__cell_reader_stop(reader);
	stopped = hoist__fabric_close(far->fabric) && stopped;
	far->fabric = NULL;
	if (!stopped) {
		hoist__log(load, "reads or transfers of the group were abandoned: the slots stay");
		hoist__far_arena_end(far, true);
		far->slots = NULL;
		return;
	}
	hoist__cell_reader_destroy(reader);
	hoist__far_arena_end(far, false);
	hoist__cell_charge_return(&far->charge);
}

static void destroy(struct hoist__load_source *source)
{
	struct hoist__far *far = hoist__far_of(source);
	hoist__far_close(far);
	if (far->folder_fd >= 0)
		(void)close(far->folder_fd);
	if (far->bell >= 0)
		(void)close(far->bell);
	hoist__swarm_destroy(far->swarm);
	hoist__swarm_wants_fini(&far->wants);
	hoist__cell_readers_fini(&far->readers);
	hoist__cells_fini(&far->cells);
	hoist__secret_fini(&far->secret);
	pthread_cond_destroy(&far->changed);
	pthread_mutex_destroy(&far->lock);
	free(far->slots);
	free(far->peers);
	free(far->known);
	free(far->door_text);
	free(far->name);
	free(far);
}

const struct hoist__load_source_ops hoist__far_ops = {
	.reserve = reserve,
	.begin = begin,
	.look = look,
	.alike = alike,
	.copy = copy,
	.reach = reach,
	.landed = landed,
	.step = step,
	.damaged = damaged,
	.end = end,
	.destroy = destroy,
};
