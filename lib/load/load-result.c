/* SPDX-License-Identifier: MIT */
/* The results of a load: its buffers, and the report with its figures and reasons.
 * The contract is in hoist/load.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/buffer/buffer-private.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/load/give.h"
#include "lib/memory/budget.h"
#include "lib/memory/device-memory.h"

static int check_loaded(struct hoist_load *load)
{
	if (load->give != NULL)
		return hoist__fail(-EINVAL, "the load gives its tensors one by one "
					    "(HOIST_LOAD_STREAM); take them with "
					    "hoist_load_next()");
	if (!hoist__job_is_done(&load->job))
		return hoist__fail(-EAGAIN, "the load has not ended yet; wait for the load first");
	return hoist__job_outcome(&load->job);
}

static const struct hoist__plan_want *want_of(const struct hoist_load *load, size_t target)
{
	return &load->plan.wants[load->targets[target].want];
}

size_t hoist_load_n_tensors(const hoist_load *load)
{
	return want_of(load, 0)->n_tensors;
}

size_t hoist_load_n_targets(const hoist_load *load)
{
	return load->n_targets;
}

size_t hoist_load_target_n_tensors(const hoist_load *load, size_t target)
{
	return target < load->n_targets ? want_of(load, target)->n_tensors : 0;
}

/* If two threads make the table at once, the later one drops its own. */
static int need_portions(const struct hoist_load *load, struct hoist__target *target,
			 struct hoist__storage *whole, struct hoist__portions **ret)
{
	struct hoist__portions *known = atomic_load(&target->portions);
	if (known == NULL && target->to_host && (load->options.flags & HOIST__LOAD_SPLITS) == 0 &&
	    hoist__storage_can_shrink(whole)) {
		struct hoist__portions *made;
		int err = hoist__plan_portions(&load->plan, &load->plan.wants[target->want], whole,
					       &made);
		if (err < 0)
			return err;
		if (atomic_compare_exchange_strong(&target->portions, &known, made))
			known = made;
		else
			hoist__portions_close(made);
	}
	*ret = known;
	return 0;
}

/* Gives the storage, borrowed, that the @index-th tensor, which is not empty, lies in on the
 * target, and its place there: that of its lot, or, without SPLIT, a portion of that if pages of
 * the storage can go back alone. */
static int place_of(struct hoist_load *load, size_t target, size_t index,
		    struct hoist__storage **storage, size_t *offset)
{
	const struct hoist__plan_tensor *tensor = &load->plan.tensors[index];
	struct hoist__storage *whole = load->targets[target].storages[tensor->lot];
	struct hoist__portions *portions;
	size_t begin = 0;
	*storage = whole;
	int err = need_portions(load, &load->targets[target], whole, &portions);
	if (err == 0 && portions != NULL)
		err = hoist__portions_take(portions, (size_t)tensor->target, storage, &begin);
	*offset = (size_t)tensor->target - begin;
	return err;
}

/* Makes the buffer of a tensor without bytes, over no storage. */
static int make_empty(struct hoist_load *load, size_t target, const struct hoist__view *view,
		      hoist_buffer **ret)
{
	struct hoist__storage *none;
	int err = hoist__storage_none(load->targets[target].device, &none);
	if (err < 0)
		return err;
	err = hoist__buffer_over(none, 0, view->dtype, view->rank, view->shape, ret);
	hoist__storage_unref(none);
	return err;
}

/* The strides of a whole tensor are the file's.  A slice has strides only in a map; elsewhere the
 * slice is packed. */
int hoist__load_make_buffer(struct hoist_load *load, size_t index, size_t target,
			    hoist_buffer **ret)
{
	const struct hoist__plan_tensor *planned = &load->plan.tensors[index];
	const struct hoist__tensor *tensor = hoist__load_entry(load, index)->tensor;
	int64_t strides[HOIST_MAX_RANK];
	struct hoist__view view = {
		.dtype = planned->dtype,
		.rank = tensor->rank,
		.offset = (size_t)planned->target,
		.shape = planned->shape,
		.strides = planned->whole ? tensor->strides : NULL,
		.stream = load->targets[target].shares_stream ? load->targets[target].stream : NULL,
	};
	if (load->plan.wants[planned->want].in_place) {
		*ret = hoist_buffer_ref(hoist__into_buffer(load->into, target, index));
		return 0;
	}
	if (planned->bytes == 0)
		return make_empty(load, target, &view, ret);
	struct hoist__storage *storage = NULL;
	int err = load->maps ? hoist__mapped_view(load, index, strides, &view, &storage)
			     : place_of(load, target, index, &storage, &view.offset);
	if (err == 0 && view.strides == NULL && view.stream == NULL)
		return hoist__buffer_over(storage, view.offset, view.dtype, view.rank, view.shape,
					  ret);
	if (err == 0)
		err = hoist__buffer_measure(view.dtype, view.rank, view.shape, &view.elements,
					    &view.bytes);
	return err < 0 ? err : hoist__buffer_make(storage, &view, ret);
}

int hoist_load_target_tensor(hoist_load *load, size_t target, size_t index, size_t *ret_tensor,
			     hoist_buffer **ret)
{
	int err = check_loaded(load);
	if (err < 0)
		return err;
	if (target >= load->n_targets)
		return hoist__fail(-EINVAL, "target %zu: the load has %zu", target,
				   load->n_targets);
	const struct hoist__plan_want *want = want_of(load, target);
	if (index >= want->n_tensors)
		return hoist__fail(-EINVAL, "tensor %zu was not loaded: the load has %zu", index,
				   want->n_tensors);
	size_t i = want->first_tensor + index;
	err = hoist__load_make_buffer(load, i, target, ret);
	if (err == 0 && ret_tensor != NULL)
		*ret_tensor = load->plan.tensors[i].index;
	return err;
}

int hoist_load_tensor(hoist_load *load, size_t index, size_t *ret_tensor, hoist_buffer **ret)
{
	return hoist_load_target_tensor(load, 0, index, ret_tensor, ret);
}

int hoist_load_replica(hoist_load *load, size_t replica, size_t index, hoist_buffer **ret)
{
	size_t n = load->options.n_replicas;
	if (replica >= n)
		return hoist__fail(-EINVAL, "replica %zu: the load has %zu", replica, n);
	return hoist_load_target_tensor(load, replica + 1, index, NULL, ret); /* 0 is no replica */
}

static int compare_index(const void *a, const void *b)
{
	size_t first = *(const size_t *)a;
	size_t second = ((const struct hoist__plan_tensor *)b)->index;
	return (first > second) - (first < second);
}

int hoist_load_buffer(hoist_load *load, const char *name, hoist_buffer **ret)
{
	int err = check_loaded(load);
	if (err < 0)
		return err;
	size_t tensor;
	err = hoist_checkpoint_find(load->checkpoint, name, &tensor);
	if (err < 0)
		return err;
	/* The plan has its tensors in the order of the checkpoint. */
	const struct hoist__plan_tensor *found =
		bsearch(&tensor, load->plan.tensors, want_of(load, 0)->n_tensors,
			sizeof *load->plan.tensors, compare_index);
	if (found == NULL)
		return hoist__fail(-ENOENT,
				   "tensor \"%.200s\" is in the checkpoint, but was not selected",
				   name);
	return hoist__load_make_buffer(load, (size_t)(found - load->plan.tensors), 0, ret);
}

int hoist_load_digest(hoist_load *load, size_t index, unsigned char ret[16])
{
	const struct hoist__plan_want *first = want_of(load, 0);
	bool done = hoist__job_is_done(&load->job);
	bool streams = load->give != NULL && load->digests != NULL && index < first->n_tensors;
	int err = done ? hoist__job_outcome(&load->job) : 0;
	if (streams && hoist__give_is_ready(load, index))
		err = 0;
	else if (!done)
		err = hoist__fail(-EAGAIN,
				  "the load has not ended yet; wait for the load, or take the "
				  "tensor with hoist_load_next(), first");
	if (err < 0)
		return err;
	if (load->digests == NULL)
		return hoist__fail(-EINVAL, "no digests were made: load with HOIST_LOAD_DIGEST");
	if (index >= first->n_tensors)
		return hoist__fail(-EINVAL, "tensor %zu was not loaded: the load has %zu", index,
				   first->n_tensors);
	hoist__digests_get(load->digests, load->plan.tensors[index].index, ret);
	return 0;
}

int hoist_load_into_state(hoist_load *load, size_t target, size_t index, enum hoist_into_state *ret)
{
	if (load->into == NULL)
		return hoist__fail(-EINVAL, "the load is not in place: it was started without "
					    "hoist_load_options.into");
	if (!hoist__job_is_done(&load->job))
		return hoist__fail(-EAGAIN,
				   "the load has not ended yet; its buffers are being written");
	return hoist__into_state(load->into, target, index, ret);
}

void hoist_load_progress(const hoist_load *load, uint64_t *done, uint64_t *total)
{
	if (done != NULL)
		*done = atomic_load_explicit(&load->arrived, memory_order_relaxed);
	if (total != NULL)
		*total = load->plan.bytes;
}

const char *hoist__load_io_rule(const struct hoist_load *load)
{
	const char *asked = load->options.io == HOIST_IO_DIRECT ? "direct, as asked"
			    : load->options.io == HOIST_IO_CACHED
				    ? "through the page cache, as asked"
			    : load->n_maps > 0 ? "what is cached is mapped, the rest direct"
					       : "direct unless cached";
	if (load->plan.n_extents == 0)
		asked = "nothing to read";
	else if (load->options.io == HOIST_IO_MAP && !load->to_host)
		asked = "through the page cache: a device is not fed from a map";
	else if (load->options.io == HOIST_IO_MAP && !load->maps)
		asked = "through the page cache: several targets are not fed from a map";
	return asked;
}

/* States the rule that the options gave, then each exception with its count. */
static void describe_io(const struct hoist_load *load, char *text, size_t bytes)
{
	const struct hoist__routes *routes = &load->routes;
	if (load->map != NULL) {
		(void)snprintf(text, bytes, "%s", hoist__checkpoint_map_note(load->map));
		return;
	}
	int used = snprintf(text, bytes, "%s", hoist__load_io_rule(load));
	const struct {
		uint64_t n;
		const char *what;
	} notes[] = {
		{routes->resident, "lay in the page cache"},
		{routes->straight, load->to_host ? "took rows straight to their places"
						 : "took rows alone, without gaps"},
		{routes->unknown, "direct because the kernel does not say what is cached"},
		{routes->no_direct, "not direct"},
		{routes->fell_back, "finished through the cache after a direct read was refused"},
	};
	for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++)
		if (notes[i].n > 0 && used >= 0 && (size_t)used < bytes)
			used += snprintf(text + used, bytes - (size_t)used,
					 "; %llu of %llu reads %s", (unsigned long long)notes[i].n,
					 (unsigned long long)load->report.n_reads, notes[i].what);
	if (routes->no_direct > 0 && routes->note != NULL && used >= 0 && (size_t)used < bytes)
		(void)snprintf(text + used, bytes - (size_t)used, " (%s)", routes->note);
}

/* Runs before the job's release: the engine's texts and the staging's peak are read here. */
void hoist__load_finish_report(struct hoist_load *load)
{
	hoist_load_report *report = &load->report;
	report->bytes = load->plan.bytes;
	report->n_tensors = load->plan.n_tensors;
	report->window_peak_bytes = hoist__give_peak(load);
	report->budget_bytes = hoist__budget_limit(hoist__budget_of(load->job.budget));
	report->emulated = hoist__dev_props(hoist__device_dev(load->targets[0].device))->emulated;
	(void)snprintf(report->device, sizeof report->device, "%s",
		       hoist_device_spec(load->targets[0].device));
	struct hoist__job *job = &load->job;
	const char *engine = job->engine != NULL ? hoist__engine_name(job->engine) : "none";
	const char *reason =
		job->engine != NULL ? hoist__engine_reason(job->engine) : "no reads were needed";
	(void)snprintf(report->engine, sizeof report->engine, "%s", engine);
	(void)snprintf(report->engine_reason, sizeof report->engine_reason, "%s", reason);
	describe_io(load, report->io_reason, sizeof report->io_reason);
	for (size_t e = 0; e < load->plan.n_extents; e++)
		if (load->maps || load->plan.extents[e].mapped)
			report->mapped_bytes +=
				load->plan.extents[e].end - load->plan.extents[e].begin;
	if (load->maps && job->err == 0)
		atomic_store_explicit(&load->arrived, load->plan.bytes, memory_order_relaxed);
	struct hoist__pool *pool;
	if (job->staging != NULL)
		report->staging_peak_bytes = hoist__staging_peak_bytes(job->staging);
	if (job->staging != NULL && !load->to_host &&
	    hoist__device_staging_pool(hoist__load_staging_device(load), &pool) == 0) {
		struct hoist__pool_stats stats;
		hoist__pool_stats(pool, &stats);
		report->pinned_peak_bytes = stats.reserved_peak_bytes;
	}
	report->open_ns = load->checkpoint->open_ns;
	hoist__job_times(job, &report->ns, &report->cpu_ns);
	hoist__stages_look(&job->stages, report);
}

int hoist_load_get_report(hoist_load *load, hoist_load_report *report)
{
	if (!hoist__job_is_done(&load->job))
		return hoist__fail(-EAGAIN,
				   "the load has not ended yet; its report is not complete");
	return hoist__options_out("hoist_load_report", report, &load->report, sizeof load->report);
}
