/* SPDX-License-Identifier: MIT */
/* The source of a group's load: wants, chunks, cells, the end.
 * The contracts are in lib/group/group.h and lib/load/source.h. */
#include "config.h"

#define XXH_INLINE_ALL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/log.h"
#include "lib/device/device.h"
#include "lib/group/group.h"
#include "numa/processors.h"
#include "numa/topology.h"

/* --- begin --- */

/* The node of the device that the rank stages for; -1: it has none, or the node is not known. */
static int node_of_device(const struct hoist_load *load)
{
	return load->n_streams > 0 ? hoist__device_node(hoist__load_staging_device(load)) : -1;
}

/* The node of all processors that this rank may use.  If they are of several, that of its
 * device. */
static int node_of_rank(const struct hoist__topology *topology, const struct hoist_load *load)
{
	cpu_set_t set;
	int found = -1;
	(void)hoist__processors_allowed(&set);
	for (size_t n = 0; n < topology->n_nodes; n++) {
		const struct hoist__node *node = &topology->nodes[n];
		bool any = false;
		for (size_t c = 0; c < node->n_cpus; c++)
			any = any || CPU_ISSET((size_t)node->cpus[c], &set);
		if (any && found >= 0)
			return node_of_device(load);
		found = any ? node->id : found;
	}
	return found;
}

/* Says which files lie on a disk of this rank's node.  Where that is not known, all ranks are
 * alike. */
static void find_near(struct hoist__member *member, const struct hoist_load *load)
{
	const struct hoist_checkpoint *checkpoint = load->checkpoint;
	struct hoist__topology *topology = NULL;
	if (hoist__topology_load("/sys", &topology) < 0)
		return;
	int node = topology->n_nodes > 1 ? node_of_rank(topology, load) : -1;
	for (size_t f = 0; node >= 0 && f < checkpoint->n_files; f++)
		if (hoist__topology_block_node(topology, "/sys", checkpoint->files[f].file->dev) ==
		    node)
			hoist__wants_near(member->cells.wants, member->cells.n,
					  member->cells.first[f], member->cells.first[f + 1]);
	hoist__topology_destroy(topology);
}

/* By the facts that tell files apart, and are the same in each process. */
static int identify(const struct hoist_checkpoint *checkpoint, uint64_t ret[2])
{
	size_t n = 3 * checkpoint->n_files;
	uint64_t *facts = calloc(n + 1, sizeof *facts);
	if (facts == NULL)
		return hoist__fail_nomem("the facts of files", n * sizeof *facts);
	for (size_t f = 0; f < checkpoint->n_files; f++) {
		const struct hoist__file *file = checkpoint->files[f].file;
		facts[3 * f] = file->bytes;
		facts[3 * f + 1] = file->ino;
		facts[3 * f + 2] = (uint64_t)file->mtime_ns;
	}
	XXH128_hash_t hash = XXH3_128bits(facts, n * sizeof *facts);
	free(facts);
	ret[0] = hash.low64;
	ret[1] = hash.high64;
	return 0;
}

static void moved(void *context)
{
	struct hoist__member *member = context;
	hoist__engine_wake(member->load->job.engine);
	hoist__cell_reader_wake(&member->feeder.reader);
}

static int open_transport(struct hoist__member *member, struct hoist_load *load)
{
	struct hoist__transport_options options = {
		.name = member->name,
		.rank = member->rank,
		.n_ranks = member->n_ranks,
		.n_slots = member->n_slots,
		.timeout_ns = member->timeout_ns,
		.moved = moved,
		.context = member,
	};
	int err = hoist__cells_make(&member->cells, load, HOIST__CELL_LEAST_SLOTS);
	if (err == 0)
		find_near(member, load);
	if (err == 0)
		err = identify(load->checkpoint, options.identity);
	options.wants = member->cells.wants;
	options.n_cells = member->cells.n;
	return err == 0 ? member->ops->open(&options, &member->transport) : err;
}

/* Digests of tensors may fail.  This rank has a number, too: the others show its failure's text. */
static int note_readers(struct hoist__member *member)
{
	struct hoist__cell_readers *readers = &member->readers;
	int err = hoist__cell_readers_make(readers, &member->cells);
	for (unsigned r = 0; r < member->n_ranks; r++) {
		char number[16];
		(void)snprintf(number, sizeof number, "%u", r);
		hoist__cell_readers_name(readers, r, r + 1, "rank", number);
	}
	for (size_t c = 0; err == 0 && c < member->cells.n; c++) {
		const struct hoist__cell *cell = &member->ownership.cells[c];
		hoist__cell_readers_note(readers, &member->cells, c,
					 (cell->shared ? cell->owner : member->rank) + 1);
	}
	return err;
}

static int share_out(struct hoist__member *member)
{
	const uint64_t *wants[HOIST__GROUP_RANKS];
	for (unsigned r = 0; r < member->n_ranks; r++)
		wants[r] = member->ops->wants(member->transport, r);
	int err =
		hoist__ownership_make(wants, member->n_ranks, member->cells.n, &member->ownership);
	if (err == 0)
		err = note_readers(member);
	return err == 0 ? hoist__feeder_start(&member->feeder, member) : err;
}

static int reserve(struct hoist__load_source *source, struct hoist_load *load, size_t staging,
		   uint64_t timeout_ns)
{
	struct hoist__member *member = hoist__member_of(source);
	if (member->charge.bytes == 0)
		member->n_slots =
			hoist__cell_slots(load, HOIST__CELL_LEAST_SLOTS, HOIST__GROUP_MOST_SLOTS);
	return hoist__cell_charge_take(&member->charge, load,
				       member->n_slots * (size_t)HOIST__CELL_BYTES, staging,
				       timeout_ns, member->timeout_ns);
}

static int begin(struct hoist__load_source *source, struct hoist_load *load, uint64_t timeout_ns)
{
	struct hoist__member *member = hoist__member_of(source);
	uint64_t wait = hoist__min_u64(timeout_ns, HOIST__JOB_CANCEL_POLL_NS);
	int err = 0;
	/* begin() is called until all have met; the transport's thread reads `load` meanwhile. */
	if (member->transport == NULL) {
		member->load = load;
		err = open_transport(member, load);
	}
	if (err == 0)
		err = member->ops->meet(member->transport, wait);
	if (err == 0)
		err = share_out(member);
	member->met = err == 0;
	return err;
}

/* --- chunks --- */

static enum hoist__load_source_state look(struct hoist__load_source *source,
					  const struct hoist__chunk *chunk)
{
	const struct hoist__member *member = hoist__member_of(source);
	struct hoist__cell_walk walk = {.cell = SIZE_MAX};
	enum hoist__load_source_state state = HOIST__SOURCE_FILE;
	while (hoist__cells_next(&member->cells, chunk, &walk)) {
		const struct hoist__cell *cell = &member->ownership.cells[walk.cell];
		if (!cell->shared)
			continue;
		if (member->ops->arrived(member->transport, cell->owner, cell->ordinal) == NULL)
			return HOIST__SOURCE_LATER;
		state = HOIST__SOURCE_READY;
	}
	return state;
}

static const struct hoist__cell *cell_of(const struct hoist__member *member, size_t file,
					 uint64_t offset)
{
	return &member->ownership.cells[hoist__cells_at(&member->cells, file, offset)];
}

static size_t alike(struct hoist__load_source *source, size_t file, uint64_t offset, size_t bytes,
		    bool *ret_foreign)
{
	const struct hoist__member *member = hoist__member_of(source);
	uint64_t end = offset;
	*ret_foreign = cell_of(member, file, offset)->shared;
	while (end < offset + bytes && cell_of(member, file, end)->shared == *ret_foreign)
		end = hoist__round_down(end, HOIST__CELL_BYTES) + HOIST__CELL_BYTES;
	return (size_t)hoist__min_u64(end - offset, bytes);
}

static int copy(struct hoist__load_source *source, size_t file, uint64_t offset, size_t bytes,
		unsigned char *to)
{
	const struct hoist__member *member = hoist__member_of(source);
	while (bytes > 0) {
		const struct hoist__cell *cell = cell_of(member, file, offset);
		size_t at = (size_t)(offset % HOIST__CELL_BYTES);
		size_t n = (size_t)hoist__min_u64(bytes, HOIST__CELL_BYTES - at);
		const unsigned char *from =
			member->ops->arrived(member->transport, cell->owner, cell->ordinal);
		/* An owner that takes its word back is broken; the bytes do not matter then. */
		if (from != NULL)
			memcpy(to, from + at, n);
		offset += n;
		to += n;
		bytes -= n;
	}
	return 0;
}

/* Chunks that are cut at cells have one (lib/swarm/cells.h). */
static unsigned char *reach(struct hoist__load_source *source, const struct hoist__chunk *chunk)
{
	struct hoist__member *member = hoist__member_of(source);
	size_t only = hoist__cells_only(&member->cells, chunk);
	if (only == SIZE_MAX || !member->ownership.cells[only].shared)
		return NULL;
	const struct hoist__cell *cell = &member->ownership.cells[only];
	unsigned char *from = member->ops->reach(member->transport, member->load->job.dev,
						 cell->owner, cell->ordinal);
	return from != NULL ? from + chunk->offset % HOIST__CELL_BYTES : NULL;
}

static void landed(struct hoist__load_source *source, const struct hoist__chunk *chunk)
{
	struct hoist__member *member = hoist__member_of(source);
	struct hoist__cell_walk walk = {.cell = SIZE_MAX};
	while (hoist__cells_next(&member->cells, chunk, &walk)) {
		const struct hoist__cell *cell = &member->ownership.cells[walk.cell];
		HOIST__ASSERT(member->cells.touches[walk.cell] > 0);
		if (--member->cells.touches[walk.cell] == 0 && cell->shared)
			member->ops->release(member->transport, cell->owner, cell->ordinal);
	}
}

/* --- the end --- */

static int step(struct hoist__load_source *source, bool whole)
{
	struct hoist__member *member = hoist__member_of(source);
	pthread_mutex_lock(&member->lock);
	int err = member->err < 0 ? hoist__fail_again(member->err, &member->failure) : 0;
	pthread_mutex_unlock(&member->lock);
	if (err < 0)
		return err;
	if (whole && member->ops->finish(member->transport))
		return 1;
	return member->ops->check(member->transport);
}

static int damaged(struct hoist__load_source *source, const struct hoist__checkpoint_tensor *tensor,
		   int err)
{
	const struct hoist__member *member = hoist__member_of(source);
	return hoist__cell_readers_say(&member->readers, &member->cells, member->name, tensor, err);
}

static void fail(struct hoist__load_source *source, struct hoist_load *load)
{
	struct hoist__member *member = hoist__member_of(source);
	if (member->transport == NULL)
		return;
	(void)hoist__fail_again(load->job.err, &load->job.failure);
	member->ops->leave(member->transport);
}

static void end(struct hoist__load_source *source, struct hoist_load *load)
{
	struct hoist__member *member = hoist__member_of(source);
	struct hoist__feeder *feeder = &member->feeder;
	(void)load;
	bool stopped = hoist__cell_reader_stop(&feeder->reader);
	/* The kernel may still write to slots of an engine that was abandoned. */
	if (!stopped) {
		hoist__log(load, "requests for the group were abandoned: the slots stay");
		feeder->fed = NULL;
		if (member->transport != NULL)
			member->ops->stop(member->transport); /* its thread knows the load */
		return;
	}
	/* The transport's thread wakes the engine. */
	member->ops->close(member->transport);
	member->transport = NULL;
	hoist__cell_reader_destroy(&feeder->reader);
	hoist__cell_charge_return(&member->charge);
}

static void destroy(struct hoist__load_source *source)
{
	struct hoist__member *member = hoist__member_of(source);
	hoist__ownership_fini(&member->ownership);
	pthread_mutex_destroy(&member->lock);
	free(member->feeder.cells);
	free(member->feeder.fed);
	hoist__cell_readers_fini(&member->readers);
	hoist__cells_fini(&member->cells);
	free(member->name);
	free(member);
}

const struct hoist__load_source_ops hoist__member_ops = {
	.reserve = reserve,
	.begin = begin,
	.look = look,
	.alike = alike,
	.copy = copy,
	.reach = reach,
	.landed = landed,
	.step = step,
	.damaged = damaged,
	.fail = fail,
	.end = end,
	.destroy = destroy,
};
