/* SPDX-License-Identifier: MIT */
/* The results of a load: its buffers, and the report with its figures and reasons.
 * The contract is in hoist/load.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "lib/buffer/buffer-private.h"
#include "lib/core/options.h"
#include "lib/device/device.h"
#include "lib/load/load.h"
#include "lib/memory/budget.h"
#include "lib/memory/device-memory.h"

static int check_loaded(struct hoist_load *load)
{
	if (!hoist__job_is_done(&load->job))
		return hoist__fail(-EAGAIN, "the load has not ended yet; wait for the load first");
	return hoist__job_outcome(&load->job);
}

size_t hoist_load_n_tensors(const hoist_load *load)
{
	return load->plan.n_tensors;
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
static int make_buffer(struct hoist_load *load, size_t index, size_t target, hoist_buffer **ret)
{
	const struct hoist__plan_tensor *planned = &load->plan.tensors[index];
	const struct hoist__tensor *tensor = hoist__load_entry(load, index)->tensor;
	struct hoist__storage *storage = load->targets[target].storage;
	int64_t strides[HOIST_MAX_RANK];
	struct hoist__view view = {
		.dtype = planned->dtype,
		.rank = tensor->rank,
		.offset = (size_t)planned->target,
		.shape = planned->shape,
		.strides = planned->whole ? tensor->strides : NULL,
	};
	if (planned->bytes == 0)
		return make_empty(load, target, &view, ret);
	int err = load->maps ? hoist__mapped_view(load, index, strides, &view, &storage) : 0;
	if (err == 0 && view.strides == NULL)
		return hoist__buffer_over(storage, view.offset, view.dtype, view.rank, view.shape,
					  ret);
	if (err == 0)
		err = hoist__buffer_measure(view.dtype, view.rank, view.shape, &view.elements,
					    &view.bytes);
	return err < 0 ? err : hoist__buffer_make(storage, &view, ret);
}

static int check_index(const struct hoist_load *load, size_t index)
{
	if (index < load->plan.n_tensors)
		return 0;
	return hoist__fail(-EINVAL, "tensor %zu was not loaded: the load has %zu", index,
			   load->plan.n_tensors);
}

int hoist_load_tensor(hoist_load *load, size_t index, size_t *ret_tensor, hoist_buffer **ret)
{
	int err = check_loaded(load);
	if (err < 0)
		return err;
	err = check_index(load, index);
	if (err == 0)
		err = make_buffer(load, index, 0, ret);
	if (err == 0 && ret_tensor != NULL)
		*ret_tensor = load->plan.tensors[index].index;
	return err;
}

int hoist_load_replica(hoist_load *load, size_t replica, size_t index, hoist_buffer **ret)
{
	int err = check_loaded(load);
	if (err < 0)
		return err;
	if (replica >= load->n_targets - 1) /* the first target is no replica */
		return hoist__fail(-EINVAL, "replica %zu: the load has %zu", replica,
				   load->n_targets - 1);
	err = check_index(load, index);
	return err < 0 ? err : make_buffer(load, index, replica + 1, ret);
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
		bsearch(&tensor, load->plan.tensors, load->plan.n_tensors,
			sizeof *load->plan.tensors, compare_index);
	if (found == NULL)
		return hoist__fail(-ENOENT,
				   "tensor \"%.200s\" is in the checkpoint, but was not selected",
				   name);
	return make_buffer(load, (size_t)(found - load->plan.tensors), 0, ret);
}

void hoist_load_progress(const hoist_load *load, uint64_t *done, uint64_t *total)
{
	if (done != NULL)
		*done = atomic_load_explicit(&load->arrived, memory_order_relaxed);
	if (total != NULL)
		*total = load->plan.bytes;
}

/* States the rule that the options gave, then each exception with its count. */
static void describe_io(const struct hoist_load *load, char *text, size_t bytes)
{
	const struct hoist__routes *routes = &load->routes;
	const char *asked = load->options.io == HOIST_IO_DIRECT ? "direct, as asked"
			    : load->options.io == HOIST_IO_CACHED
				    ? "through the page cache, as asked"
				    : "direct unless cached";
	if (load->plan.n_extents == 0)
		asked = "nothing to read";
	else if (load->options.io >= HOIST_IO_MAP && !load->to_host)
		asked = "through the page cache: a device is not fed from a map";
	if (load->map != NULL) {
		(void)snprintf(text, bytes, "%s", hoist__load_map_note(load->map));
		return;
	}
	int used = snprintf(text, bytes, "%s", asked);
	const struct {
		uint64_t n;
		const char *what;
	} notes[] = {
		{routes->resident, "lay in the page cache"},
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
	report->budget_bytes = hoist__budget_limit(hoist__budget_of(load->job.budget));
	report->emulated = hoist__dev_props(hoist__device_dev(load->targets[0].device))->emulated;
	(void)snprintf(report->device, sizeof report->device, "%s",
		       hoist_device_spec(load->targets[0].device));
	const struct hoist__job *job = &load->job;
	const char *engine = job->engine != NULL ? hoist__engine_name(job->engine) : "none";
	const char *reason =
		job->engine != NULL ? hoist__engine_reason(job->engine) : "no reads were needed";
	(void)snprintf(report->engine, sizeof report->engine, "%s", engine);
	(void)snprintf(report->engine_reason, sizeof report->engine_reason, "%s", reason);
	describe_io(load, report->io_reason, sizeof report->io_reason);
	for (size_t e = 0; load->maps && e < load->plan.n_extents; e++)
		report->mapped_bytes += load->plan.extents[e].end - load->plan.extents[e].begin;
	if (load->maps && job->err == 0)
		atomic_store_explicit(&load->arrived, load->plan.bytes, memory_order_relaxed);
	struct hoist__pool *pool;
	if (job->staging != NULL)
		report->staging_peak_bytes = hoist__staging_peak_bytes(job->staging);
	if (job->staging != NULL && !load->to_host &&
	    hoist__device_staging_pool(load->targets[0].device, &pool) == 0) {
		struct hoist__pool_stats stats;
		hoist__pool_stats(pool, &stats);
		report->pinned_peak_bytes = stats.reserved_peak_bytes;
	}
	hoist__job_times(job, &report->ns, &report->cpu_ns);
}

int hoist_load_get_report(hoist_load *load, hoist_load_report *report)
{
	if (!hoist__job_is_done(&load->job))
		return hoist__fail(-EAGAIN,
				   "the load has not ended yet; its report is not complete");
	return hoist__options_out("hoist_load_report", report, &load->report, sizeof load->report);
}
