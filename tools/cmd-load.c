/* SPDX-License-Identifier: MIT */
/* tools/cmd-load.c - hoist load: loads, then says how fast, which way the bytes went, and why.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/cached.h"
#include "cli/format.h"
#include "cli/json.h"
#include "tools/operation.h"
#include "tools/verify.h"

static double seconds_of(uint64_t ns)
{
	return (double)ns / 1e9;
}

/* Prints "<what>: <reason>"; a reason that begins with @what is printed alone. */
static void print_reason(const char *what, const char *reason)
{
	if (strncmp(reason, what, strlen(what)) != 0)
		(void)printf("%s%s", what, reason[0] != '\0' ? ": " : "");
	print_escaped(stdout, reason);
	(void)putchar('\n');
}

/* Tensors that --dtype leaves in the file's dtype. */
struct unconverted {
	size_t n;
	char dtypes[256]; /* each dtype once: "f8_e4m3, i64" */
};

static void add_dtype(struct unconverted *unconverted, const char *name)
{
	size_t used = strlen(unconverted->dtypes);
	size_t n = strlen(name);
	/* The name of a dtype may be the beginning of another's: f8_e4m3fn, f8_e4m3fnuz. */
	for (const char *at = unconverted->dtypes; (at = strstr(at, name)) != NULL; at += n)
		if ((at == unconverted->dtypes || at[-1] == ' ') && (at[n] == ',' || at[n] == '\0'))
			return;
	(void)snprintf(unconverted->dtypes + used, sizeof unconverted->dtypes - used, "%s%s",
		       used > 0 ? ", " : "", name);
}

static int count_unconverted(const struct operation *op, const struct args *args,
			     struct unconverted *ret)
{
	size_t n = args->load.dtype != 0 ? hoist_load_n_tensors(op->load) : 0;
	for (size_t i = 0; i < n; i++) {
		hoist_buffer *buffer = NULL;
		if (hoist_load_tensor(op->load, i, &(size_t){0}, &buffer) != 0)
			return fail_library();
		hoist_dtype dtype = hoist_buffer_dtype(buffer);
		hoist_buffer_unref(buffer);
		if (dtype == args->load.dtype)
			continue;
		ret->n++;
		add_dtype(ret, hoist_dtype_name(dtype));
	}
	return STATUS_OK;
}

static void print_unconverted(const struct unconverted *unconverted)
{
	struct text count;
	if (unconverted->n > 0)
		(void)printf(
			"dtype     %s tensor%s left as in the file: %s; f32, f16 and bf16 alone "
			"are converted\n",
			format_count(unconverted->n, &count), unconverted->n == 1 ? "" : "s",
			unconverted->dtypes);
}

static void print_report(const hoist_load_report *report, const struct args *args,
			 const struct unconverted *unconverted)
{
	struct text a, b, c;
	double seconds = seconds_of(report->ns);
	bool all_read = report->mapped_bytes == 0 || (args->load.flags & HOIST_LOAD_POPULATE) != 0;
	(void)printf("loaded    %s tensor%s, %s bytes (%s)\n", format_count(report->n_tensors, &a),
		     report->n_tensors == 1 ? "" : "s", format_count(report->bytes, &b),
		     format_bytes(report->bytes, &c));
	(void)printf("to        %s%s\n", report->device,
		     report->emulated ? " (emulated: no real device was used)" : "");
	(void)printf("took      %s, %s, %s of CPU time\n", format_seconds(seconds, &a),
		     all_read ? format_rate(rate_of(report->bytes, seconds), &b)
			      : "mapped bytes are read when they are touched",
		     format_seconds(seconds_of(report->cpu_ns), &c));
	(void)fputs("engine    ", stdout);
	print_reason(report->engine, report->engine_reason);
	(void)printf("read      %s direct, %s cached, %s mapped; ",
		     format_bytes(report->direct_bytes, &a), format_bytes(report->cached_bytes, &b),
		     format_bytes(report->mapped_bytes, &c));
	print_reason("", report->io_reason);
	(void)printf("staging   %s in use at most, %s pinned, budget %s\n",
		     format_bytes(report->staging_peak_bytes, &a),
		     format_bytes(report->pinned_peak_bytes, &b),
		     format_bytes(report->budget_bytes, &c));
	print_unconverted(unconverted);
	if (args->verify)
		(void)printf("verified  every byte equals the files'\n");
}

static int print_json(const hoist_load_report *report, bool verified,
		      const struct unconverted *unconverted)
{
	double seconds = seconds_of(report->ns);
	json_t *object = json_pack(
		"{s:o, s:o, s:f, s:f, s:f, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
		"s:o, s:o, s:b, s:o}",
		"bytes", json_count(report->bytes), "tensors", json_count(report->n_tensors),
		"seconds", seconds, "gb_per_s", rate_of(report->bytes, seconds) / 1e9,
		"cpu_seconds", seconds_of(report->cpu_ns), "device", json_text(report->device),
		"emulated", report->emulated, "engine", json_text(report->engine), "engine_reason",
		json_text(report->engine_reason), "io_reason", json_text(report->io_reason),
		"direct_bytes", json_count(report->direct_bytes), "cached_bytes",
		json_count(report->cached_bytes), "mapped_bytes", json_count(report->mapped_bytes),
		"staging_peak_bytes", json_count(report->staging_peak_bytes), "pinned_peak_bytes",
		json_count(report->pinned_peak_bytes), "budget_bytes",
		json_count(report->budget_bytes), "n_reads", json_count(report->n_reads),
		"n_copies", json_count(report->n_copies), "verified", verified, "unconverted",
		json_count(unconverted->n));
	return json_print(object, true);
}

static int load_cached(const struct args *args)
{
	const struct unconverted none = {0};
	hoist_load_report report;
	if (args->verify)
		return args_refuse(args, "", "--verify",
				   " is not for --cache: its files are compared by their identity");
	int status = cached_load(args, &report);
	if (status == STATUS_OK && args->json)
		status = print_json(&report, false, &none);
	else if (status == STATUS_OK)
		print_report(&report, args, &none);
	return status;
}

/* --verify cannot check slices or converted tensors: the files have no such bytes to compare with.
 * And an image has tensors as they are in the files. */
static int check_options(const struct args *args)
{
	if (args->cache && args->load.given != NULL)
		return args_refuse(args, "--cache takes tensors as they are: leave out --",
				   args->load.given, "");
	if (args->load.of_map != NULL && args->io < HOIST_IO_MAP)
		return args_refuse(args,
				   "nothing is mapped without --io map: add that, or leave out --",
				   args->load.of_map, "");
	if (args->verify && (args->load.n_slices > 0 || args->load.dtype != 0))
		return args_refuse(args,
				   "--verify compares whole tensors with the files: leave out ",
				   args->load.n_slices > 0 ? "--slice" : "--dtype", "");
	return STATUS_OK;
}

int cmd_load(const struct args *args)
{
	int status = check_options(args);
	if (status != STATUS_OK)
		return status;
	if (args->cache)
		return load_cached(args);
	struct unconverted unconverted = {0};
	struct operation op;
	status = operation_open(&op, args);
	if (status == STATUS_OK)
		status = operation_load(&op, args, args->patterns, args->n_patterns);
	if (status == STATUS_OK && args->verify)
		status = verify_loaded(&op);
	if (status == STATUS_OK)
		status = count_unconverted(&op, args, &unconverted);
	if (status == STATUS_OK && args->json)
		status = print_json(&op.report, args->verify, &unconverted);
	else if (status == STATUS_OK)
		print_report(&op.report, args, &unconverted);
	operation_close(&op);
	return status;
}
