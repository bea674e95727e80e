/* SPDX-License-Identifier: MIT */
/* The source of a group's load: wants, chunks, cells, the end.
 * The contracts are in lib/group/group.h and lib/load/source.h. */
#include "config.h"

#define XXH_INLINE_ALL
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "lib/group/group.h"
#include "lib/memory/budget.h"
#include "lib/memory/memory.h"
#include "numa/processors.h"
#include "numa/topology.h"

#define RING_BYTES (HOIST__GROUP_SLOTS * (size_t)HOIST__CELL_BYTES)

size_t hoist__member_file(const struct hoist__member *member, size_t cell)
{
	size_t low = 0;
	size_t high = member->load->checkpoint->n_files;
	while (high - low > 1) {
		size_t mid = low + (high - low) / 2;
		if (member->first_cell[mid] <= cell)
			low = mid;
		else
			high = mid;
	}
	return low;
}

static size_t file_of(const struct hoist__member *member, const struct hoist__chunk *chunk)
{
	return member->load->plan.extents[chunk->extent].file;
}

static size_t cell_at(const struct hoist__member *member, size_t file, uint64_t offset)
{
	return member->first_cell[file] + (size_t)(offset / HOIST__CELL_BYTES);
}

/* The cells of one chunk, each once, in order: `cell` is SIZE_MAX at first. */
struct cells {
	size_t cell;
	size_t last; /* of `part` */
	unsigned part;
};

static bool next_cell(const struct hoist__member *member, const struct hoist__chunk *chunk,
		      struct cells *at)
{
	size_t file = file_of(member, chunk);
	if (at->cell != SIZE_MAX && at->cell < at->last) {
		at->cell++;
		return true;
	}
	for (unsigned part = at->cell == SIZE_MAX ? 0 : at->part + 1; part < chunk->n_parts;
	     part++) {
		uint64_t offset = chunk->offset + part * chunk->part_stride;
		size_t first = cell_at(member, file, offset);
		size_t last = cell_at(member, file, offset + chunk->need - 1);
		at->part = part;
		if (at->cell != SIZE_MAX && first <= at->cell)
			first = at->cell + 1;
		if (first > last)
			continue;
		at->cell = first;
		at->last = last;
		return true;
	}
	return false;
}

/* --- begin --- */

static int number_cells(struct hoist__member *member, const struct hoist_checkpoint *checkpoint)
{
	size_t n = 0;
	member->first_cell = calloc(checkpoint->n_files + 1, sizeof *member->first_cell);
	if (member->first_cell == NULL)
		return hoist__fail_nomem("a table of files", checkpoint->n_files);
	for (size_t f = 0; f < checkpoint->n_files; f++) {
		member->first_cell[f] = n;
		n += (size_t)((checkpoint->files[f].file->bytes + HOIST__CELL_BYTES - 1) /
			      HOIST__CELL_BYTES);
	}
	member->first_cell[checkpoint->n_files] = n;
	member->wants = calloc(hoist__wants_words(n) + 1, sizeof *member->wants);
	member->touches = calloc(n + 1, sizeof *member->touches);
	if (member->wants == NULL || member->touches == NULL)
		return hoist__fail_nomem("the cells of a group",
					 hoist__wants_words(n) * sizeof *member->wants);
	return 0;
}

static int visit(void *context, const struct hoist__chunk *chunk)
{
	struct hoist__member *member = context;
	struct cells at = {.cell = SIZE_MAX};
	size_t file = file_of(member, chunk);
	uint64_t base = member->first_cell[file] * (uint64_t)HOIST__CELL_BLOCKS;
	for (unsigned part = 0; part < chunk->n_parts; part++) {
		uint64_t offset = chunk->offset + part * chunk->part_stride;
		hoist__wants_add(member->wants, base + offset / HOIST__BLOCK_BYTES,
				 base + (offset + chunk->need - 1) / HOIST__BLOCK_BYTES + 1);
	}
	while (next_cell(member, chunk, &at)) {
		member->touches[at.cell]++;
		if (at.cell > member->last_cell)
			member->last_cell = at.cell;
	}
	size_t reach = member->last_cell - cell_at(member, file, chunk->offset) + 1;
	if (reach > member->reach)
		member->reach = reach;
	return 0;
}

/* Finds the wants.  A chunk of many rows that lie far apart gets fewer of them, and extents that
 * overlap are read together. */
static int find_wants(struct hoist__member *member, struct hoist_load *load)
{
	size_t n = member->first_cell[load->checkpoint->n_files];
	int err = hoist__plan_interleave(&load->plan, HOIST__CELL_BYTES);
	for (unsigned d = 0; d < load->disk_table.n; d++)
		if (load->plan.max_parts >= load->disks[d].depth)
			load->plan.max_parts = load->disks[d].depth - 1;
	for (bool far = err == 0; far;) {
		memset(member->wants, 0, n * HOIST__CELL_WORDS * sizeof *member->wants);
		memset(member->touches, 0, n * sizeof *member->touches);
		member->reach = 0;
		member->last_cell = 0;
		err = hoist__load_walk(load, visit, member);
		far = err == 0 && member->reach > HOIST__GROUP_SLOTS && load->plan.max_parts > 1;
		if (far)
			load->plan.max_parts /= 2;
	}
	HOIST__ASSERT(err < 0 || member->reach <= HOIST__GROUP_SLOTS);
	return err;
}

/* The node of all processors that this rank may use; -1: they are of several, or unknown. */
static int node_of_rank(const struct hoist__topology *topology)
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
			return -1;
		found = any ? node->id : found;
	}
	return found;
}

/* Says which files lie on a disk of this rank's node.  Where that is not known, all ranks are
 * alike. */
static void find_near(struct hoist__member *member, const struct hoist_checkpoint *checkpoint)
{
	struct hoist__topology *topology = NULL;
	if (hoist__topology_load("/sys", &topology) < 0)
		return;
	int node = topology->n_nodes > 1 ? node_of_rank(topology) : -1;
	for (size_t f = 0; node >= 0 && f < checkpoint->n_files; f++)
		if (hoist__topology_block_node(topology, "/sys", checkpoint->files[f].file->dev) ==
		    node)
			hoist__wants_near(member->wants, member->first_cell[checkpoint->n_files],
					  member->first_cell[f], member->first_cell[f + 1]);
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
	hoist__feeder_wake(&member->feeder);
}

static int open_transport(struct hoist__member *member, struct hoist_load *load)
{
	struct hoist__transport_options options = {
		.name = member->name,
		.rank = member->rank,
		.n_ranks = member->n_ranks,
		.timeout_ns = member->timeout_ns,
		.moved = moved,
		.context = member,
	};
	int err = number_cells(member, load->checkpoint);
	if (err == 0)
		err = find_wants(member, load);
	if (err == 0)
		find_near(member, load->checkpoint);
	if (err == 0)
		err = identify(load->checkpoint, options.identity);
	options.wants = member->wants;
	options.n_cells = err == 0 ? member->first_cell[load->checkpoint->n_files] : 0;
	return err == 0 ? member->ops->open(&options, &member->transport) : err;
}

static int share_out(struct hoist__member *member)
{
	const uint64_t *wants[HOIST__GROUP_RANKS];
	for (unsigned r = 0; r < member->n_ranks; r++)
		wants[r] = member->ops->wants(member->transport, r);
	int err = hoist__ownership_make(wants, member->n_ranks,
					member->first_cell[member->load->checkpoint->n_files],
					&member->ownership);
	return err == 0 ? hoist__feeder_start(&member->feeder, member) : err;
}

/* Slots of the group are staging: the budget bounds them.  One turn at the budget brings them and
 * the least of the load's own: two loads that each had one half would wait for each other. */
static int reserve(struct hoist__load_source *source, struct hoist_load *load, size_t staging,
		   uint64_t timeout_ns)
{
	struct hoist__member *member = hoist__member_of(source);
	struct hoist__budget *budget = hoist__budget_of(load->job.budget);
	uint64_t now = hoist__now_ns();
	if (member->charged > 0)
		return 0;
	member->budget = budget;
	member->charge_ns = member->charge_ns != 0 ? member->charge_ns : now;
	hoist__memories_yield(budget);
	int err = hoist__budget_acquire_turn(budget, &member->ticket, RING_BYTES + staging,
					     hoist__min_u64(timeout_ns, HOIST__JOB_CANCEL_POLL_NS));
	if (err == -EAGAIN && now - member->charge_ns <= member->timeout_ns)
		return 1;
	if (err == -EAGAIN)
		return hoist__fail(-EDQUOT,
				   "the budget of %zu bytes had no room for the %zu bytes that a "
				   "group's load shares and %zu of staging slots, within the "
				   "group's timeout; raise the budget",
				   hoist__budget_limit(budget), RING_BYTES, staging);
	if (err < 0)
		return hoist__fail(err,
				   "the budget of %zu bytes is too small for a group's load, which "
				   "shares %zu bytes beside %zu of staging slots",
				   hoist__budget_limit(budget), RING_BYTES, staging);
	member->charged = RING_BYTES;
	load->job.held = staging;
	return 0;
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
	struct cells at = {.cell = SIZE_MAX};
	enum hoist__load_source_state state = HOIST__SOURCE_FILE;
	while (next_cell(member, chunk, &at)) {
		const struct hoist__cell *cell = &member->ownership.cells[at.cell];
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
	return &member->ownership.cells[cell_at(member, file, offset)];
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

static void copy(struct hoist__load_source *source, size_t file, uint64_t offset, size_t bytes,
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
}

static void landed(struct hoist__load_source *source, const struct hoist__chunk *chunk)
{
	struct hoist__member *member = hoist__member_of(source);
	struct cells at = {.cell = SIZE_MAX};
	while (next_cell(member, chunk, &at)) {
		const struct hoist__cell *cell = &member->ownership.cells[at.cell];
		HOIST__ASSERT(member->touches[at.cell] > 0);
		if (--member->touches[at.cell] == 0 && cell->shared)
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

static void end(struct hoist__load_source *source, struct hoist_load *load)
{
	struct hoist__member *member = hoist__member_of(source);
	struct hoist__feeder *feeder = &member->feeder;
	if (member->transport != NULL && load->job.err < 0) {
		(void)hoist__fail_again(load->job.err, &load->job.failure);
		member->ops->leave(member->transport);
	}
	bool stopped = hoist__feeder_stop(feeder);
	load->report.direct_bytes += feeder->direct_bytes;
	load->report.cached_bytes += feeder->cached_bytes;
	load->report.n_reads += feeder->n_reads;
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
	hoist__engine_destroy(atomic_exchange(&feeder->engine, NULL));
	if (member->budget != NULL)
		hoist__budget_leave(member->budget, &member->ticket);
	if (member->charged > 0)
		hoist__budget_release(member->budget, member->charged);
	member->charged = 0;
}

static void destroy(struct hoist__load_source *source)
{
	struct hoist__member *member = hoist__member_of(source);
	hoist__ownership_fini(&member->ownership);
	pthread_mutex_destroy(&member->lock);
	free(member->feeder.cells);
	free(member->feeder.fed);
	free(member->first_cell);
	free(member->wants);
	free(member->touches);
	free(member->name);
	free(member);
}

const struct hoist__load_source_ops hoist__member_ops = {
	.reserve = reserve,
	.begin = begin,
	.look = look,
	.alike = alike,
	.copy = copy,
	.landed = landed,
	.step = step,
	.end = end,
	.destroy = destroy,
};
