/* SPDX-License-Identifier: MIT */
/* The object that callers of loads hold: options, start, wait, cancel, end.
 * The contract is in hoist/load.h; the state is in lib/load/load.h. */
#include "config.h"

#include "lib/load/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/load/give.h"
#include "lib/plan/adaptive.h"

#define DEFAULT_TENSOR_ALIGN 256
#define MAX_DEPTH 4096u

/* With SPLIT, tensors share a lot if they have at most so many bytes together: as many as one read
 * and one copy bring, wherever they begin in a block of the file, and a small part of what a caller
 * holds who keeps one of them. */
#define LOT_BYTES (((uint64_t)2 << 20) - 2 * HOIST__PLAN_ALIGN)

/* --- start --- */

#define KNOWN_FLAGS                                                                                \
	(HOIST_LOAD_CALLER_DRIVEN | HOIST_LOAD_POPULATE | HOIST_LOAD_DROP_CACHE |                  \
	 HOIST_LOAD_DIGEST | HOIST_LOAD_VERIFY | HOIST_LOAD_SPLIT | HOIST_LOAD_STREAM |            \
	 HOIST_LOAD_TIMELINE)

static int check_way(const hoist_load_options *o)
{
	if ((unsigned)o->engine > HOIST_ENGINE_THREADS)
		return hoist__fail(-EINVAL, "hoist_load_options.engine is %d; it is 0 to 2",
				   (int)o->engine);
	if ((unsigned)o->io > HOIST_IO_ADAPTIVE)
		return hoist__fail(-EINVAL, "hoist_load_options.io is %d; it is 0 to 4",
				   (int)o->io);
	if ((unsigned)o->map > HOIST_MAP_READ_WRITE)
		return hoist__fail(-EINVAL, "hoist_load_options.map is %d; it is 0 to 2",
				   (int)o->map);
	if ((o->flags & ~KNOWN_FLAGS) != 0)
		return hoist__fail(-EINVAL, "hoist_load_options.flags has unknown bits: 0x%x",
				   o->flags & ~KNOWN_FLAGS);
	if (o->io == HOIST_IO_ADAPTIVE && (o->flags & HOIST_LOAD_DROP_CACHE) != 0)
		return hoist__fail(-EINVAL, "HOIST_LOAD_DROP_CACHE would drop the pages that an "
					    "adaptive load maps; leave the flag out, or read the "
					    "tensors (HOIST_IO_AUTO, --io auto)");
	if (o->chunk_bytes % 4096 != 0 || o->chunk_bytes > HOIST__GIB)
		return hoist__fail(
			-EINVAL,
			"chunk_bytes is %zu; a chunk has a multiple of 4096 bytes, up to 1 GiB",
			o->chunk_bytes);
	if (o->depth > MAX_DEPTH)
		return hoist__fail(-EINVAL, "depth is %u; the greatest depth is %u", o->depth,
				   MAX_DEPTH);
	if (o->window_bytes > 0 && (o->flags & HOIST_LOAD_STREAM) == 0)
		return hoist__fail(-EINVAL, "window_bytes is for loads that give their tensors "
					    "one by one; add HOIST_LOAD_STREAM to flags");
	return 0;
}

static int check_options(const hoist_load_options *o)
{
	int err = check_way(o);
	if (err < 0)
		return err;
	if (o->n_order >= UINT32_MAX || (o->n_order > 0 && o->order == NULL))
		return hoist__fail(-EINVAL, "n_order is %zu, and order is %s", o->n_order,
				   o->order == NULL ? "NULL" : "no list of so many names");
	for (size_t i = 0; i < o->n_order; i++)
		if (o->order[i] == NULL)
			return hoist__fail(-EINVAL, "order[%zu] is NULL", i);
	if (o->tensor_align > HOIST__LOAD_MAX_ALIGN ||
	    (o->tensor_align != 0 && !hoist__is_power_of_two(o->tensor_align)))
		return hoist__fail(
			-EINVAL,
			"tensor_align is %zu; tensors can be aligned to powers of two up to %d",
			o->tensor_align, HOIST__LOAD_MAX_ALIGN);
	return 0;
}

/* A caller who keeps one tensor of a lot keeps the lot, so one takes half of a window at most. */
static uint64_t most_of_a_lot(const hoist_load_options *o)
{
	if ((o->flags & HOIST__LOAD_SPLITS) == 0)
		return 0;
	if (o->window_bytes == 0)
		return LOT_BYTES;
	return hoist__max_u64(1, hoist__min_u64(LOT_BYTES, o->window_bytes / 2));
}

static int make_plan(struct hoist_load *load, const hoist_load_options *o,
		     const struct hoist__load_asked *asked)
{
	struct hoist__plan_asked wants[HOIST__LOAD_TARGETS];
	for (size_t t = 0; t < load->n_targets; t++) {
		const hoist_load_target *a = &asked->targets[t];
		wants[load->targets[t].want] = (struct hoist__plan_asked){
			.kind = load->targets[t].to_host ? HOIST__PLAN_HOST : HOIST__PLAN_DEVICE,
			.patterns = a->tensors,
			.n_patterns = a->n_tensors,
			.slices = a->slices,
			.n_slices = a->n_slices,
			.dtype = a->dtype,
			.into = a->n_into > 0 ? hoist__into_planned(load->into, t) : NULL,
			.n_into = a->n_into,
		};
	}
	const struct hoist__plan_options options = {
		.wants = wants,
		.n_wants = load->n_wants,
		.order = o->order,
		.n_order = o->n_order,
		.tensor_align = o->tensor_align != 0 ? o->tensor_align : DEFAULT_TENSOR_ALIGN,
		.lot_bytes = most_of_a_lot(o),
		.lots_apart = o->window_bytes > 0,
		.max_parts = o->depth == 0 || o->depth > HOIST__LOAD_PARTS ? HOIST__LOAD_PARTS
									   : o->depth,
	};
	return hoist__plan_make(load->checkpoint, &options, &load->plan);
}

/* Lists the files that are read, each once. */
static int list_files(struct hoist_load *load)
{
	size_t n = load->checkpoint->n_files;
	load->files = calloc(n > 0 ? n : 1, sizeof *load->files);
	if (load->files == NULL)
		return hoist__fail_nomem("a load", n * sizeof *load->files);
	for (size_t e = 0; e < load->plan.n_extents; e++) {
		size_t f = load->plan.extents[e].file;
		load->files[f] = load->checkpoint->files[f].file;
	}
	for (size_t f = 0; f < n; f++)
		if (load->files[f] != NULL)
			load->files[load->n_files++] = load->files[f];
	return 0;
}

/* Tells whether the load was asked to be adaptive, and hot ranges can be mapped in its destination;
 * else the load reads as HOIST_IO_AUTO does. */
static bool can_adapt(const struct hoist_load *load, const struct hoist__load_asked *asked)
{
	return load->options.io == HOIST_IO_ADAPTIVE && load->to_host && load->n_targets == 1 &&
	       asked->targets[0].memory == NULL && load->into == NULL &&
	       load->options.window_bytes == 0 && (load->options.flags & HOIST__LOAD_SPLITS) == 0 &&
	       !load->plan.has_staged && load->plan.n_lots == 1;
}

/* The plan depends on where the load goes, all else on the plan. */
static int lay_out(struct hoist_load *load, const hoist_load_options *o,
		   struct hoist__load_asked *asked)
{
	int err = hoist__load_ask(o, asked);
	if (err == 0)
		err = hoist__load_take_targets(load, asked);
	if (err == 0 && load->n_streams > 0)
		load->job.dev = hoist__device_dev(hoist__load_staging_device(load));
	if (err == 0)
		err = hoist__load_open_into(load, asked);
	if (err == 0)
		err = make_plan(load, o, asked);
	if (err == 0)
		err = load->maps ? hoist__mapped_check(load)
				 : hoist__load_check_memory(load, asked);
	if (err == 0 && can_adapt(load, asked))
		err = hoist__adaptive_find(load->checkpoint, &load->plan, &load->n_maps);
	if (err == 0)
		err = list_files(load);
	if (err == 0 && (o->flags & HOIST__LOAD_DIGESTS) != 0)
		err = hoist__digests_create(load->checkpoint, &load->plan,
					    (o->flags & HOIST_LOAD_VERIFY) != 0, &load->digests);
	return err < 0 ? err : hoist__into_match(load->into, load->checkpoint, &load->plan);
}

static int prepare(struct hoist_load *load, const struct hoist__load_asked *asked)
{
	int err = 0;
	if ((load->options.flags & HOIST_LOAD_TIMELINE) != 0)
		err = hoist__job_record(&load->job);
	if (err == 0 && (load->options.flags & HOIST_LOAD_STREAM) != 0)
		err = hoist__give_create(load);
	(void)hoist__stages_enter(&load->job.stages, HOIST_STAGE_ALLOCATE);
	if (err == 0)
		err = hoist__load_allocate(load, asked);
	return err < 0 ? err : hoist__into_begin(load->into);
}

void hoist__load_free(struct hoist_load *load)
{
	hoist__load_drop_targets(load);
	hoist__into_close(load->into);
	hoist__give_close(load->give);
	hoist__digests_destroy(load->digests);
	free(load->lots);
	free(load->files);
	free(load->boxes);
	free(load->reached);
	free(load->flights);
	free(load->requests);
	free(load->rows);
	hoist__plan_fini(&load->plan);
	if (load->source != NULL)
		load->source->ops->destroy(load->source);
	hoist_checkpoint_close(load->checkpoint);
	hoist__job_fini(&load->job);
	free(load);
}

int hoist__load_plan(hoist_checkpoint *checkpoint, const hoist_load_options *options,
		     struct hoist__load_asked *asked, struct hoist_load **ret)
{
	hoist_load_options o = {.size = sizeof o};
	if (checkpoint == NULL)
		return hoist__fail(-EINVAL, "a load: the checkpoint is NULL");
	int err = options != NULL ? hoist__options_in("hoist_load_options", options, &o, sizeof o)
				  : 0;
	if (err == 0)
		err = check_options(&o);
	if (err < 0)
		return err;
	struct hoist_load *load = calloc(1, sizeof *load);
	if (load == NULL)
		return hoist__fail_nomem("a load", sizeof *load);
	err = hoist__job_init(&load->job, &hoist__load_kind, o.budget);
	if (err < 0) {
		free(load);
		return err;
	}
	load->checkpoint = hoist__checkpoint_ref(checkpoint);
	load->options = o;
	hoist__list_init(&load->free_flights);
	hoist__list_init(&load->waiting);
	load->job.caller_driven = (o.flags & HOIST_LOAD_CALLER_DRIVEN) != 0;
	hoist__job_set_start(&load->job);
	err = lay_out(load, &o, asked);
	if (err < 0)
		hoist__load_free(load);
	else
		*ret = load;
	return err;
}

/* The options' pointers are followed up to prepare(); afterwards only their values are used. */
static int start(hoist_checkpoint *checkpoint, const hoist_load_options *options,
		 struct hoist__load_source *source, const struct hoist__load_pages *pages,
		 hoist_load **ret)
{
	struct hoist__load_asked asked = {0};
	struct hoist_load *load = NULL;
	if (ret == NULL)
		return hoist__fail(-EINVAL, "starting a load: the result is NULL");
	if (checkpoint != NULL && checkpoint->n_absent > 0 && source == NULL)
		return hoist__fail(
			-ENODATA,
			"this machine lacks %zu of %zu files of the checkpoint, which was "
			"opened through a group; load it with hoist_group_load()",
			checkpoint->n_absent, checkpoint->n_files);
	int err = hoist__load_plan(checkpoint, options, &asked, &load);
	if (err < 0)
		return err;
	load->source = source;
	if (pages != NULL)
		load->pages = *pages;
	err = prepare(load, &asked);
	if (err == 0)
		err = hoist__job_start(&load->job);
	if (err < 0) {
		load->source = NULL;
		hoist__load_free(load);
		return err;
	}
	*ret = load;
	return 0;
}

int hoist_load_start(hoist_checkpoint *checkpoint, const hoist_load_options *options,
		     hoist_load **ret)
{
	return start(checkpoint, options, NULL, NULL, ret);
}

int hoist__load_start(hoist_checkpoint *checkpoint, const hoist_load_options *options,
		      struct hoist__load_source *source, hoist_load **ret)
{
	int err = start(checkpoint, options, source, NULL, ret);
	if (err < 0)
		source->ops->destroy(source);
	return err;
}

int hoist__load_start_paged(hoist_checkpoint *checkpoint, const hoist_load_options *options,
			    const struct hoist__load_pages *pages, hoist_load **ret)
{
	return start(checkpoint, options, NULL, pages, ret);
}

/* --- driving --- */

int hoist_load_step(hoist_load *load, uint64_t timeout_ns)
{
	int err = hoist__job_check_process(&load->job);
	if (err < 0)
		return err;
	if (!load->job.caller_driven)
		return hoist__fail(-EINVAL, "the load drives itself; a load that the caller drives "
					    "is started with HOIST_LOAD_CALLER_DRIVEN");
	return hoist__job_step(&load->job, timeout_ns) ? 1 : 0;
}

/* Nobody would take the tensors that the window waits for. */
static int check_wait(hoist_load *load)
{
	int err = hoist__job_check_process(&load->job);
	if (err < 0 || load->give == NULL || load->options.window_bytes == 0 ||
	    atomic_load_explicit(&load->job.cancelled, memory_order_relaxed) ||
	    hoist__load_has_given_all(load) ||
	    (hoist__job_is_done(&load->job) && hoist__job_outcome(&load->job) < 0))
		return err;
	return hoist__fail(-EINVAL, "the load has a window, and tensors that have not been given; "
				    "take them with hoist_load_next() until it gives 0, or cancel "
				    "the load");
}

int hoist_load_wait(hoist_load *load)
{
	int err = check_wait(load);
	return err < 0 ? err : hoist__job_wait(&load->job, UINT64_MAX);
}

int hoist_load_wait_for(hoist_load *load, uint64_t timeout_ns)
{
	int err = check_wait(load);
	if (err == 0)
		err = hoist__job_wait(&load->job, timeout_ns);
	if (err == 1)
		return hoist__fail(-ETIMEDOUT, "the load has not ended yet");
	return err == -ETIMEDOUT ? -ECONNRESET : err; /* it would mean: not yet */
}

void hoist_load_cancel(hoist_load *load)
{
	hoist__job_cancel(&load->job);
}

void hoist_load_destroy(hoist_load *load)
{
	if (load != NULL && hoist__job_stop(&load->job))
		hoist__load_free(load);
}
