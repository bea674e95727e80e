/* SPDX-License-Identifier: MIT */
/* tools/cmd-explain.c - hoist explain: what a load would read from where, and whether it fits; with
 * --run, where the time then went.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <hoist/forecast.h>

#include <stdio.h>

#include "cli/format.h"
#include "tools/load-report.h"
#include "tools/operation.h"

static void print_targets(const hoist_forecast *f)
{
	struct text a, b;
	for (size_t t = 0; t < f->n_targets; t++) {
		const hoist_forecast_target *target = &f->targets[t];
		(void)printf("to        %s%s: %s", target->device,
			     target->emulated ? " (emulated)" : "",
			     format_bytes(target->bytes, &a));
		if (target->free_bytes != UINT64_MAX)
			(void)printf(" of %s that are free", format_bytes(target->free_bytes, &b));
		(void)putchar('\n');
	}
	if (!f->fits)
		(void)printf("fits      no: load less (--tensor, --slice), pass it through "
			     "(--stream --window), or free memory\n");
}

static void print_plan(const hoist_forecast *f)
{
	struct text a, b, c;
	uint64_t all = f->direct_bytes + f->cached_bytes + f->mapped_bytes;
	(void)printf("plan      %s tensor%s, %s bytes (%s) of %s file%s\n",
		     format_count(f->n_tensors, &a), f->n_tensors == 1 ? "" : "s",
		     format_count(f->bytes, &b), format_bytes(f->bytes, &c),
		     format_count(f->n_files, (struct text[1]){0}), f->n_files == 1 ? "" : "s");
	print_targets(f);
	(void)printf("read      %s direct, %s cached, %s mapped; ",
		     format_bytes(f->direct_bytes, &a), format_bytes(f->cached_bytes, &b),
		     format_bytes(f->mapped_bytes, &c));
	print_escaped(stdout, f->io_reason);
	(void)printf("\nrequests  %s", format_count(f->n_reads, &a));
	if (f->residency)
		(void)printf("; %s of %s in the page cache now",
			     format_bytes(f->resident_bytes, &b), format_bytes(all, &c));
	(void)printf("\ncopies    %s straight to their place, %s through slots\n",
		     format_bytes(f->straight_bytes, &a), format_bytes(f->staged_bytes, &b));
	if (f->converted_bytes > 0)
		(void)printf("convert   %s\n", format_bytes(f->converted_bytes, &a));
	if (f->n_slots > 0)
		(void)printf("staging   %zu slots of %s: %s of the budget of %s\n", f->n_slots,
			     format_bytes(f->slot_bytes, &a),
			     format_bytes((uint64_t)f->n_slots * f->slot_bytes, &b),
			     format_bytes(f->budget_bytes, &c));
	else
		(void)printf("staging   none\n");
}

static json_t *targets_json(const hoist_forecast *f)
{
	json_t *list = json_array();
	for (size_t t = 0; list != NULL && t < f->n_targets; t++) {
		const hoist_forecast_target *target = &f->targets[t];
		bool known = target->free_bytes != UINT64_MAX;
		json_t *one = json_pack("{s:o, s:b, s:o, s:o, s:o}", "device",
					json_text(target->device), "emulated", target->emulated,
					"tensors", json_count(target->n_tensors), "bytes",
					json_count(target->bytes), "free_bytes",
					known ? json_count(target->free_bytes) : json_null());
		if (json_array_append_new(list, one) < 0) {
			json_decref(list);
			list = NULL;
		}
	}
	return list;
}

static json_t *plan_json(const hoist_forecast *f)
{
	char line[2048];
	(void)hoist_forecast_explain(f, line, sizeof line);
	return json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o, "
		"s:o, s:o}",
		"bytes", json_count(f->bytes), "tensors", json_count(f->n_tensors), "files",
		json_count(f->n_files), "direct_bytes", json_count(f->direct_bytes), "cached_bytes",
		json_count(f->cached_bytes), "mapped_bytes", json_count(f->mapped_bytes),
		"resident_bytes", f->residency ? json_count(f->resident_bytes) : json_null(),
		"n_reads", json_count(f->n_reads), "straight_bytes", json_count(f->straight_bytes),
		"staged_bytes", json_count(f->staged_bytes), "converted_bytes",
		json_count(f->converted_bytes), "slot_bytes", json_count(f->slot_bytes), "n_slots",
		json_count(f->n_slots), "budget_bytes", json_count(f->budget_bytes), "fits",
		f->fits, "io_reason", json_text(f->io_reason), "line", json_text(line), "targets",
		targets_json(f));
}

static int forecast(const struct args *args, hoist_forecast *ret)
{
	struct operation op;
	int status = operation_open(&op, args);
	if (status == STATUS_OK)
		status = operation_forecast(&op, args, ret);
	operation_close(&op);
	return status;
}

int cmd_explain(const struct args *args)
{
	hoist_forecast f;
	int status = load_check(args);
	if (status == STATUS_OK)
		status = forecast(args, &f);
	if (status != STATUS_OK)
		return status;
	if (!args->json)
		print_plan(&f);
	json_t *plan = args->json ? plan_json(&f) : NULL;
	if (args->json && plan == NULL)
		return fail_memory();
	if (args->run)
		return load_and_report(args, plan);
	return args->json ? json_print(json_pack("{s:o}", "plan", plan), true) : STATUS_OK;
}
