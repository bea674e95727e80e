/* SPDX-License-Identifier: MIT */
/* The object that callers of loads hold: options, start, wait, cancel, end.
 * The contract is in hoist/load.h; the state is in lib/load/load.h. */
#include "config.h"

#include "lib/load/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "lib/core/options.h"

#define DEFAULT_TENSOR_ALIGN 256
#define MAX_DEPTH 4096u

/* --- start --- */

#define KNOWN_FLAGS                                                                                \
	(HOIST_LOAD_CALLER_DRIVEN | HOIST_LOAD_POPULATE | HOIST_LOAD_DROP_CACHE |                  \
	 HOIST_LOAD_DIGEST | HOIST_LOAD_VERIFY)

static int check_way(const hoist_load_options *o)
{
	if ((unsigned)o->engine > HOIST_ENGINE_THREADS)
		return hoist__fail(-EINVAL, "hoist_load_options.engine is %d; it is 0 to 2",
				   (int)o->engine);
	if ((unsigned)o->io > HOIST_IO_MAP)
		return hoist__fail(-EINVAL, "hoist_load_options.io is %d; it is 0 to 3",
				   (int)o->io);
	if ((unsigned)o->map > HOIST_MAP_READ_WRITE)
		return hoist__fail(-EINVAL, "hoist_load_options.map is %d; it is 0 to 2",
				   (int)o->map);
	if ((o->flags & ~KNOWN_FLAGS) != 0)
		return hoist__fail(-EINVAL, "hoist_load_options.flags has unknown bits: 0x%x",
				   o->flags & ~KNOWN_FLAGS);
	if (o->chunk_bytes % 4096 != 0 || o->chunk_bytes > HOIST__GIB)
		return hoist__fail(
			-EINVAL,
			"chunk_bytes is %zu; a chunk has a multiple of 4096 bytes, up to 1 GiB",
			o->chunk_bytes);
	if (o->depth > MAX_DEPTH)
		return hoist__fail(-EINVAL, "depth is %u; the greatest depth is %u", o->depth,
				   MAX_DEPTH);
	return 0;
}

static int check_lists(const hoist_load_options *o)
{
	if (o->n_tensors > 0 && o->tensors == NULL)
		return hoist__fail(-EINVAL, "n_tensors is %zu, but tensors is NULL", o->n_tensors);
	for (size_t i = 0; i < o->n_tensors; i++)
		if (o->tensors[i] == NULL)
			return hoist__fail(-EINVAL, "tensors[%zu] is NULL", i);
	if (o->n_slices > 0 && o->slices == NULL)
		return hoist__fail(-EINVAL, "n_slices is %zu, but slices is NULL", o->n_slices);
	if (o->n_slices > 0 && (o->flags & HOIST__LOAD_DIGESTS) != 0)
		return hoist__fail(
			-EINVAL,
			"digests are of whole tensors; load without slices (--slice), or ask for "
			"no digests (HOIST_LOAD_DIGEST, HOIST_LOAD_VERIFY, --check-digests)");
	if (o->n_replicas > 0 && o->replicas == NULL)
		return hoist__fail(-EINVAL, "n_replicas is %zu, but replicas is NULL",
				   o->n_replicas);
	return 0;
}

static int check_options(const hoist_load_options *o)
{
	int err = check_way(o);
	if (err == 0)
		err = check_lists(o);
	if (err < 0)
		return err;
	if (o->tensor_align > HOIST__LOAD_MAX_ALIGN ||
	    (o->tensor_align != 0 && !hoist__is_power_of_two(o->tensor_align)))
		return hoist__fail(
			-EINVAL,
			"tensor_align is %zu; tensors can be aligned to powers of two up to %d",
			o->tensor_align, HOIST__LOAD_MAX_ALIGN);
	if (o->stream != NULL && o->device != NULL && hoist_stream_device(o->stream) != o->device)
		return hoist__fail(-EINVAL,
				   "the stream belongs to %s, and the load goes to %s; both must "
				   "be of one device",
				   hoist_device_spec(hoist_stream_device(o->stream)),
				   hoist_device_spec(o->device));
	return 0;
}

static int make_plan(struct hoist_load *load, const hoist_load_options *o)
{
	const struct hoist__plan_options options = {
		.kind = load->to_host ? HOIST__PLAN_HOST : HOIST__PLAN_DEVICE,
		.tensor_align = o->tensor_align != 0 ? o->tensor_align : DEFAULT_TENSOR_ALIGN,
		.patterns = o->tensors,
		.n_patterns = o->n_tensors,
		.slices = o->slices,
		.n_slices = o->n_slices,
		.dtype = o->dtype,
		.max_parts = o->depth == 0 || o->depth > HOIST__LOAD_PARTS ? HOIST__LOAD_PARTS
									   : o->depth,
	};
	return hoist__plan_make(load->checkpoint, &options, &load->plan);
}

/* Lists the files that are read, in the order of the plan, each once. */
static int list_files(struct hoist_load *load)
{
	size_t n = load->checkpoint->n_files;
	size_t last = SIZE_MAX;
	load->files = calloc(n > 0 ? n : 1, sizeof *load->files);
	if (load->files == NULL)
		return hoist__fail_nomem("a load", n * sizeof *load->files);
	for (size_t e = 0; e < load->plan.n_extents; e++) {
		/* Extents are in the order of the files. */
		if (load->plan.extents[e].file == last)
			continue;
		last = load->plan.extents[e].file;
		load->files[load->n_files++] = load->checkpoint->files[last].file;
	}
	return 0;
}

/* The plan depends on where the load goes, all else on the plan. */
static int prepare(struct hoist_load *load, const hoist_load_options *o)
{
	int err = hoist__load_take_devices(load, o);
	if (err == 0)
		err = make_plan(load, o);
	if (err == 0)
		err = list_files(load);
	if (err == 0 && (o->flags & HOIST__LOAD_DIGESTS) != 0)
		err = hoist__digests_create(load);
	if (err == 0)
		err = hoist__load_allocate(load);
	return err;
}

static void free_load(struct hoist_load *load)
{
	hoist__load_drop_targets(load);
	hoist__digests_destroy(load->digests);
	free(load->files);
	free(load->boxes);
	free(load->flights);
	free(load->requests);
	hoist__plan_fini(&load->plan);
	hoist_checkpoint_close(load->checkpoint);
	hoist__job_fini(&load->job);
	free(load);
}

/* prepare() follows the options' pointers; afterwards only their values are used. */
int hoist_load_start(hoist_checkpoint *checkpoint, const hoist_load_options *options,
		     hoist_load **ret)
{
	hoist_load_options o = {.size = sizeof o};
	if (checkpoint == NULL || ret == NULL)
		return hoist__fail(-EINVAL,
				   "starting a load: the checkpoint or the result is NULL");
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
	err = prepare(load, &o);
	if (err == 0)
		err = hoist__job_start(&load->job);
	if (err < 0) {
		free_load(load);
		return err;
	}
	*ret = load;
	return 0;
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

int hoist_load_wait(hoist_load *load)
{
	return hoist__job_wait(&load->job);
}

void hoist_load_cancel(hoist_load *load)
{
	hoist__job_cancel(&load->job);
}

void hoist_load_destroy(hoist_load *load)
{
	if (load != NULL && hoist__job_stop(&load->job))
		free_load(load);
}
