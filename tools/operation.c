/* SPDX-License-Identifier: MIT */
/* tools/operation.c - one load, as load, cat and digest need it.
 * The contract is in tools/operation.h. */
#include "config.h"

#include "tools/operation.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/clock.h"
#include "cli/format.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "hoist/compat.h"
#include "tools/launcher.h"
#include "tools/selection.h"
#include "tools/skipped.h"
#include "tools/stages.h"

/* Progress and Ctrl-C are looked at ten times a second. */
#define STEP_NS 100000000

static int open_replicas(struct operation *op, const struct args *args)
{
	size_t n = args->load.n_replicas;
	op->replicas = calloc(n > 0 ? n : 1, sizeof(hoist_device *));
	if (op->replicas == NULL)
		return fail_memory();
	for (; op->n_replicas < n; op->n_replicas++) {
		int err = hoist_device_open(args->load.replicas[op->n_replicas],
					    &op->replicas[op->n_replicas]);
		if (err != 0)
			return fail_call(err);
	}
	return STATUS_OK;
}

/* Each target has the tensors and the dtype of the whole load, and slices of its own. */
static int open_targets(struct operation *op, const struct args *args)
{
	const struct load_args *load = &args->load;
	size_t n = load->n_targets;
	op->targets = calloc(n + 1, sizeof *op->targets);
	op->target_list = calloc(n + 1, sizeof *op->target_list);
	if (op->targets == NULL || op->target_list == NULL)
		return fail_memory();
	for (; op->n_targets < n; op->n_targets++) {
		const struct target_args *given = &load->targets[op->n_targets];
		hoist_load_target *target = &op->targets[op->n_targets];
		int err = hoist_device_open(given->device, &target->device);
		if (err != 0)
			return fail_call(err);
		target->size = sizeof *target;
		target->n_slices = given->n_slices;
		target->slices =
			given->n_slices > 0 ? &load->target_slices[given->first_slice] : NULL;
		target->dtype = load->dtype;
		op->target_list[op->n_targets] = target;
	}
	return STATUS_OK;
}

static int select_tensors(struct operation *op, const struct args *args)
{
	struct selection selection;
	int status = selection_of(args, op->checkpoint, &selection);
	if (status != STATUS_OK)
		return status;
	op->n_names = selection.n;
	status = selection_names(&selection, op->checkpoint, &op->names);
	selection_free(&selection);
	return status;
}

static bool is_cpu(const char *device)
{
	return strcmp(device, "cpu") == 0 || strcmp(device, "cpu:0") == 0;
}

/* With --io map, the kernel reads for a load to the CPU alone, when a page is touched or ahead of
 * that; other loads are read through the page cache, and map nothing. */
static int check_map(const struct args *args)
{
	const struct load_args *load = &args->load;
	const char *device = load->n_targets > 0 ? load->targets[0].device : args->device;
	if (args->io != HOIST_IO_MAP)
		return STATUS_OK;
	if (!is_cpu(device) || load->n_replicas > 0 || load->n_targets > 1)
		return load->of_map == NULL
			       ? STATUS_OK
			       : args_refuse(args,
					     "only a load to the CPU alone is mapped: leave out --",
					     load->of_map, "");
	const char *of_reads = args->engine != HOIST_ENGINE_AUTO ? "--engine"
			       : load->chunk_bytes > 0		 ? "--chunk"
			       : load->depth > 0		 ? "--depth"
								 : NULL;
	if (of_reads != NULL)
		return args_refuse(args, "the kernel reads what --io map maps: leave out ",
				   of_reads, "");
	if (load->n_order > 0 && (load->flags & (HOIST_LOAD_POPULATE | HOIST_LOAD_STREAM)) == 0)
		return args_refuse(args,
				   "--io map reads each page when the page is touched, in no given "
				   "order: add --populate or --stream, or leave out ",
				   "--order", "");
	return STATUS_OK;
}

/* Fills in what the options, and for groups of several machines a launcher, say of the group.  Its
 * name, in *ret_name, is from malloc; NULL: there is no group. */
static int make_group(const struct args *args, bool again, hoist_group *ret, char **ret_name)
{
	const struct load_args *load = &args->load;
	char *name = NULL;
	*ret_name = NULL;
	*ret = (hoist_group){
		.size = sizeof *ret,
		.rank = load->rank,
		.n_ranks = load->n_ranks,
		.timeout_ns = load->timeout_s * UINT64_C(1000000000),
	};
	if (load->group == NULL)
		return STATUS_OK;
	int status = launcher_name(load->group, &name);
	if (status == STATUS_OK && load->n_ranks == 0 && launcher_is_far(load->group))
		status = launcher_rank(&ret->rank, &ret->n_ranks);
	if (status == STATUS_OK &&
	    asprintf(ret_name, "%s%s", name, again ? OPERATION_AGAIN : "") < 0) {
		*ret_name = NULL;
		status = fail_memory();
	}
	free(name);
	ret->name = *ret_name;
	return status;
}

/* A rank that lacks files is shown the checkpoint by a rank that has all. */
static int open_checkpoint(struct operation *op, const struct args *args)
{
	const char *path = args->operands[0];
	hoist_group group;
	char *name;
	int status = make_group(args, false, &group, &name);
	if (status != STATUS_OK)
		return status;
	int err = name != NULL && launcher_is_far(name)
			  ? hoist_group_open(&group, path, args->open_flags, &op->checkpoint)
			  : hoist_checkpoint_open(path, args->open_flags, &op->checkpoint);
	free(name);
	return err != 0 ? fail_call(err) : STATUS_OK;
}

int operation_open(struct operation *op, const struct args *args)
{
	*op = (struct operation){0};
	int status = check_map(args);
	if (status != STATUS_OK)
		return status;
	if (args->budget != 0 && hoist_budget_create(args->budget, &op->budget) != 0)
		return fail_library();
	status = open_checkpoint(op, args);
	if (status != STATUS_OK)
		return status;
	if (hoist_device_open(args->device, &op->device) != 0)
		return fail_library();
	skipped_note(op->checkpoint);
	op->slices = args->load.slices;
	op->n_slices = args->load.n_slices;
	status = select_tensors(op, args);
	if (status == STATUS_OK)
		status = open_replicas(op, args);
	return status == STATUS_OK ? open_targets(op, args) : status;
}

static int cancelled(struct operation *op)
{
	struct text done_text, total_text;
	uint64_t done = 0;
	uint64_t total = 0;
	hoist_load_progress(op->load, &done, &total);
	return fail("cancelled after %s of %s", format_bytes(done, &done_text),
		    format_bytes(total, &total_text));
}

/* Takes the next tensor of a load that streams, and drops the tensor. */
static int take_next(struct operation *op, uint64_t start_ns)
{
	hoist_load_item item = {.size = sizeof item};
	int got = hoist_load_next(op->load, STEP_NS, &item);
	if (got != 1)
		return got;
	if (op->first_ns == 0 && hoist_buffer_bytes(item.buffer) > 0)
		op->first_ns = clock_ns() - start_ns;
	if (op->given != NULL && item.target == 0)
		op->given(op->given_context, item.buffer);
	hoist_buffer_unref(item.buffer);
	return got;
}

/* Does some of the work.  True: the load has ended. */
static bool step(struct operation *op, bool streams, uint64_t start_ns)
{
	if (!streams)
		return hoist_load_step(op->load, STEP_NS) != 0;
	int got = take_next(op, start_ns);
	return got != 1 && got != -ETIMEDOUT;
}

static void show_progress(struct operation *op)
{
	uint64_t done = 0;
	uint64_t total = 0;
	if (!progress_is_due())
		return;
	hoist_load_progress(op->load, &done, &total);
	progress_held(stages_held(op->load, &op->seen));
	progress_update(done, total);
}

/* Drives the load to its end.
 * Returns: as hoist_load_wait(). */
static int drive(struct operation *op, bool streams)
{
	bool asked = false;
	uint64_t start_ns = clock_ns();
	op->seen = (hoist_load_report){0};
	progress_begin("loading");
	while (!step(op, streams, start_ns)) {
		show_progress(op);
		/* After a cancel the steps go on until all that was begun has ended. */
		if (interrupted() && !asked) {
			asked = true;
			hoist_load_cancel(op->load);
		}
	}
	return hoist_load_wait(op->load);
}

/* If an engine was asked for by name, no other one replaces it. */
static int load_failed(const struct args *args, int err)
{
	if (args->engine == HOIST_ENGINE_URING && strstr(hoist_error(), "io_uring refused") != NULL)
		return fail(
			"%s; see `hoist doctor`, or leave out --engine uring: threads read then",
			hoist_error());
	return fail_call(err);
}

static void use_targets(struct operation *op, hoist_load_options *options)
{
	for (size_t t = 0; t < op->n_targets; t++) {
		op->targets[t].tensors = options->tensors;
		op->targets[t].n_tensors = options->n_tensors;
	}
	options->targets = op->target_list;
	options->n_targets = op->n_targets;
	options->device = NULL;
	options->tensors = NULL;
	options->n_tensors = 0;
	options->dtype = HOIST_DTYPE_INVALID;
}

/* The report of a load of a group of several machines. */
static int report_group(struct operation *op)
{
	op->group = (hoist_group_report){.size = sizeof op->group};
	int err = hoist_group_get_report(op->load, &op->group);
	return err == 0 || err == -ENOTSUP ? STATUS_OK : fail_call(err);
}

/* Starts the load, and drives it: this thread can so show progress, and see a signal between two
 * steps. */
static int start(struct operation *op, const struct args *args, const hoist_load_options *options,
		 const hoist_group *group)
{
	int err = group->name != NULL ? hoist_group_load(group, op->checkpoint, options, &op->load)
				      : hoist_load_start(op->checkpoint, options, &op->load);
	if (err != 0)
		return load_failed(args, err);
	err = drive(op, (options->flags & HOIST_LOAD_STREAM) != 0);
	if (err == -ECANCELED)
		return cancelled(op);
	if (err != 0)
		return load_failed(args, err);
	progress_end();
	op->report.size = sizeof op->report;
	if (hoist_load_get_report(op->load, &op->report) != 0)
		return fail_library();
	return report_group(op);
}

static int run(struct operation *op, const struct args *args, const hoist_load_options *options)
{
	hoist_group group;
	char *name;
	int status = make_group(args, options->n_into > 0, &group, &name);
	interrupt_watch();
	if (status == STATUS_OK)
		status = start(op, args, options, &group);
	free(name);
	return status;
}

static void set_options(struct operation *op, const struct args *args, hoist_load_options *ret)
{
	*ret = (hoist_load_options){
		.size = sizeof *ret,
		.device = op->device,
		.engine = args->engine,
		.io = args->io,
		.budget = op->budget,
		.tensors = op->names,
		.n_tensors = op->names != NULL ? op->n_names : 0,
		.flags = HOIST_LOAD_CALLER_DRIVEN | args->load.flags |
			 (args->keep ? HOIST_LOAD_DIGEST : 0),
		.slices = args->load.slices,
		.n_slices = args->load.n_slices,
		.dtype = args->load.dtype,
		.map = args->load.map,
		.replicas = op->replicas,
		.n_replicas = op->n_replicas,
		.window_bytes = args->load.window_bytes,
		.order = args->load.order,
		.n_order = args->load.n_order,
		.chunk_bytes = args->load.chunk_bytes,
		.depth = args->load.depth,
	};
	if (op->n_targets > 0)
		use_targets(op, ret);
}

int operation_load(struct operation *op, const struct args *args)
{
	hoist_load_options options;
	set_options(op, args, &options);
	return run(op, args, &options);
}

int operation_forecast(struct operation *op, const struct args *args, hoist_forecast *ret)
{
	hoist_load_options options;
	set_options(op, args, &options);
	*ret = (hoist_forecast){.size = sizeof *ret};
	int err = hoist_load_forecast(op->checkpoint, &options, ret);
	return err < 0 ? fail_call(err) : STATUS_OK;
}

/* Takes the buffers of the load, with the names of their tensors. */
static int take_buffers(const struct operation *op, hoist_load_into *into, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		hoist_tensor_info tensor = {.size = sizeof tensor};
		size_t which = 0;
		if (hoist_load_tensor(op->load, i, &which, &into[i].buffer) != 0 ||
		    hoist_checkpoint_tensor(op->checkpoint, which, &tensor) != 0)
			return fail_library();
		into[i].tensor = tensor.name;
	}
	return STATUS_OK;
}

int operation_again(struct operation *op, const struct args *args)
{
	size_t n = hoist_load_n_tensors(op->load);
	hoist_load_into *into = calloc(n > 0 ? n : 1, sizeof *into);
	if (into == NULL)
		return fail_memory();
	const hoist_load_options options = {
		.size = sizeof options,
		.device = op->device,
		.engine = args->engine,
		.io = args->io,
		.budget = op->budget,
		.flags = HOIST_LOAD_CALLER_DRIVEN | args->load.flags,
		.slices = args->load.slices,
		.n_slices = args->load.n_slices,
		.order = args->load.order,
		.n_order = args->load.n_order,
		.chunk_bytes = args->load.chunk_bytes,
		.depth = args->load.depth,
		.into = into,
		.n_into = n,
	};
	int status = take_buffers(op, into, n);
	if (status == STATUS_OK && n > 0) {
		hoist_load_destroy(op->load);
		op->load = NULL;
		status = run(op, args, &options);
	}
	for (size_t i = 0; i < n; i++)
		hoist_buffer_unref(into[i].buffer);
	free(into);
	return status;
}

/* Copies a buffer with strides into one without: a piece of the tensor is otherwise not a piece of
 * its memory. */
static int pack(hoist_buffer **buffer)
{
	hoist_buffer *packed;
	if (hoist_buffer_is_contiguous(*buffer))
		return STATUS_OK;
	if (hoist_buffer_contiguous(*buffer, NULL, &packed) != 0)
		return fail_library();
	hoist_buffer_unref(*buffer);
	*buffer = packed;
	return STATUS_OK;
}

static int read_buffer(struct operation *op, hoist_buffer *buffer, const hoist_tensor_info *tensor,
		       take_piece *take, void *context)
{
	const uint64_t bytes = hoist_buffer_bytes(buffer);
	for (uint64_t offset = 0; offset < bytes;) {
		if (interrupted())
			return fail("cancelled");
		uint64_t left = bytes - offset;
		size_t n = left < OPERATION_PIECE_BYTES ? (size_t)left : OPERATION_PIECE_BYTES;
		if (hoist_buffer_read(buffer, (size_t)offset, op->piece, n) != 0)
			return fail_library();
		int status = take(context, tensor, op->piece, n, offset);
		if (status != STATUS_OK)
			return status;
		offset += n;
		op->read_bytes += n;
		progress_update(op->read_bytes, op->report.bytes);
	}
	return STATUS_OK;
}

int operation_read(struct operation *op, size_t target, size_t index, hoist_tensor_info *tensor,
		   take_piece *take, void *context)
{
	if (op->piece == NULL && (op->piece = malloc(OPERATION_PIECE_BYTES)) == NULL)
		return fail_memory();
	size_t which = 0;
	hoist_buffer *buffer = NULL;
	if (hoist_load_target_tensor(op->load, target, index, &which, &buffer) != 0)
		return fail_library();
	*tensor = (hoist_tensor_info){.size = sizeof *tensor};
	int status = STATUS_OK;
	if (hoist_checkpoint_tensor(op->checkpoint, which, tensor) != 0)
		status = fail_library();
	if (status == STATUS_OK)
		status = pack(&buffer);
	if (status == STATUS_OK)
		status = read_buffer(op, buffer, tensor, take, context);
	hoist_buffer_unref(buffer);
	return status;
}

void operation_close(struct operation *op)
{
	progress_end();
	free(op->piece);
	free(op->names);
	hoist_load_destroy(op->load);
	while (op->n_replicas > 0)
		hoist_device_unref(op->replicas[--op->n_replicas]);
	free(op->replicas);
	while (op->n_targets > 0)
		hoist_device_unref(op->targets[--op->n_targets].device);
	free(op->targets);
	free(op->target_list);
	hoist_device_unref(op->device);
	hoist_checkpoint_close(op->checkpoint);
	hoist_budget_unref(op->budget);
	*op = (struct operation){0};
}
