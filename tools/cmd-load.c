/* SPDX-License-Identifier: MIT */
/* tools/cmd-load.c - hoist load: loads, and reports.
 * The contract is in tools/tool.h. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tools/cached.h"
#include "cli/format.h"
#include "cli/json.h"
#include "tools/launcher.h"
#include "tools/load-report.h"
#include "tools/operation.h"
#include "tools/stages.h"
#include "tools/timeline.h"
#include "tools/unconverted.h"
#include "tools/verify.h"

#define SHM_RANKS 64u /* at most; the library checks groups of several machines */

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

/* The tensors of a load that streams are counted as they come. */
struct counting {
	hoist_dtype asked;
	struct unconverted *unconverted;
};

static void count_given(void *context, hoist_buffer *buffer)
{
	const struct counting *counting = context;
	unconverted_count(counting->unconverted, counting->asked, hoist_buffer_dtype(buffer));
}

/* These facts stand beside the report of the load. */
struct more {
	uint64_t first_ns;	  /* --stream: until the first tensor came */
	hoist_load_report before; /* --into: of the load into fresh memory */
	struct unconverted unconverted;
	hoist_group_report group; /* its note is NULL without a group of several machines */
};

/* "cuda:0", "cuda:0 and 7 further targets". */
static void print_targets(const hoist_load_report *report, const struct args *args)
{
	size_t n = args->load.n_targets > 0 ? args->load.n_targets - 1 : args->load.n_replicas;
	(void)printf("to        %s", report->device);
	if (n > 0)
		(void)printf(" and %zu further %s%s", n,
			     args->load.n_targets > 0 ? "target" : "replica", n == 1 ? "" : "s");
	(void)printf("%s\n", report->emulated ? " (emulated: no real device was used)" : "");
}

static void print_stream(const hoist_load_report *report, const struct args *args,
			 uint64_t first_ns)
{
	struct text a, b;
	if ((args->load.flags & HOIST_LOAD_STREAM) == 0)
		return;
	(void)printf("stream    the first tensor came after %s",
		     format_seconds(seconds_of(first_ns), &a));
	if (args->load.window_bytes > 0)
		(void)printf("; %s in use at most, window %s",
			     format_bytes(report->window_peak_bytes, &a),
			     format_bytes(args->load.window_bytes, &b));
	(void)putchar('\n');
}

/* A map without --populate is read when it is touched, so its bytes are in no rate. */
static void print_took(const hoist_load_report *report, bool populated)
{
	struct text a, b;
	double seconds = seconds_of(report->ns);
	uint64_t mapped = populated ? 0 : report->mapped_bytes;
	uint64_t read = report->bytes > mapped ? report->bytes - mapped : 0;
	(void)printf("took      %s, ", format_seconds(seconds, &a));
	if (read > 0 || mapped == 0)
		(void)printf("%s", format_rate(rate_of(read, seconds), &a));
	if (read > 0 && mapped > 0)
		(void)printf(" for the %s that were read, ", format_bytes(read, &a));
	if (mapped > 0)
		(void)printf("%s mapped, to be read when they are touched",
			     format_bytes(mapped, &b));
	(void)printf(", %s of CPU time\n", format_seconds(seconds_of(report->cpu_ns), &a));
}

static void print_stages(const hoist_load_report *report)
{
	const char *before = "stages    ";
	double percent = report->ns > 0 ? 100 / seconds_of(report->ns) : 0;
	for (size_t i = 0; i < N_STAGES; i++) {
		double share = percent * stage_seconds(report, &stages[i]);
		if (share < 0.5)
			continue;
		(void)printf("%s%s %.0f %%", before, stages[i].word, share);
		before = ", ";
	}
	if (before[0] == ',')
		(void)putchar('\n');
}

static int add_stages(json_t *object, const hoist_load_report *report)
{
	int err = 0;
	for (size_t i = 0; i < N_STAGES && err == 0; i++)
		err = json_object_set_new(object, stages[i].key,
					  json_real(stage_seconds(report, &stages[i])));
	return err < 0 ? err
		       : json_object_set_new(object, "open_seconds",
					     json_real(seconds_of(report->open_ns)));
}

static void print_before(const hoist_load_report *report, const hoist_load_report *before)
{
	struct text a, b;
	(void)printf("before    %s, %s, into fresh memory; in place: %.2f x that time\n",
		     format_seconds(seconds_of(before->ns), &a),
		     format_rate(rate_of(before->bytes, seconds_of(before->ns)), &b),
		     (double)report->ns / (double)before->ns);
}

static void print_text(const char *head, const char *text)
{
	if (text[0] == '\0')
		return;
	(void)fputs(head, stdout);
	print_escaped(stdout, text);
	(void)putchar('\n');
}

static void print_group(const hoist_group_report *group, bool verbose)
{
	struct text a, b, c;
	if (group->note == NULL)
		return;
	(void)printf("%sof %u: %s from storage, %s from members, %s to members",
		     verbose ? "group     " : "group ", group->n_members,
		     format_bytes(group->storage_bytes, &a),
		     format_bytes(group->received_bytes, &b), format_bytes(group->sent_bytes, &c));
	if (verbose)
		(void)printf("; asked in vain %s times, not waited %s times",
			     format_count(group->n_refused, &a), format_count(group->n_late, &b));
	if (group->note[0] != '\0') {
		(void)fputs("; ", stdout);
		print_escaped(stdout, group->note);
	}
	(void)putchar('\n');
	print_text(verbose ? "by        " : "by ", group->way);
	print_text(verbose ? "damage    " : "damage: ", group->damage);
}

static int add_group(json_t *object, const hoist_group_report *group)
{
	if (group->note == NULL)
		return 0;
	return json_object_set_new(
		object, "group",
		json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "members",
			  json_count(group->n_members), "storage_bytes",
			  json_count(group->storage_bytes), "received_bytes",
			  json_count(group->received_bytes), "sent_bytes",
			  json_count(group->sent_bytes), "refused", json_count(group->n_refused),
			  "late", json_count(group->n_late), "note", json_text(group->note),
			  "damaged", json_count(group->n_damaged), "damage",
			  json_text(group->damage), "way", json_text(group->way)));
}

static void print_details(const hoist_load_report *report, const struct args *args)
{
	struct text a, b, c;
	(void)printf("loaded    %s tensor%s, %s bytes (%s)\n", format_count(report->n_tensors, &a),
		     report->n_tensors == 1 ? "" : "s", format_count(report->bytes, &b),
		     format_bytes(report->bytes, &c));
	print_targets(report, args);
	print_took(report, (args->load.flags & HOIST_LOAD_POPULATE) != 0);
	print_stages(report);
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
}

static void print_report(const hoist_load_report *report, const struct args *args,
			 const struct more *more)
{
	if (args->verbose || args->run)
		print_details(report, args);
	else
		load_line(report, args);
	if (args->load.into)
		print_before(report, &more->before);
	print_stream(report, args, more->first_ns);
	print_group(&more->group, args->verbose);
	unconverted_print(&more->unconverted, LOADS_CONVERT);
	if (args->verify)
		(void)printf("verified  every byte equals the files'\n");
}

/* Takes @plan over; NULL: the object is the report alone. */
static int print_json(const hoist_load_report *report, const struct args *args,
		      const struct more *more, json_t *plan)
{
	bool streams = (args->load.flags & HOIST_LOAD_STREAM) != 0;
	double seconds = seconds_of(report->ns);
	json_t *object = json_pack(
		"{s:o, s:o, s:f, s:f, s:f, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
		"s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o}",
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
		"n_copies", json_count(report->n_copies), "verified", args->verify, "unconverted",
		json_count(more->unconverted.n), "targets",
		json_count(args->load.n_targets > 0 ? args->load.n_targets
						    : 1 + args->load.n_replicas),
		"first_tensor_seconds",
		streams ? json_real(seconds_of(more->first_ns)) : json_null(), "window_bytes",
		json_count(args->load.window_bytes), "window_peak_bytes",
		json_count(report->window_peak_bytes));
	int err = add_stages(object, report);
	if (args->load.into && err == 0)
		err = json_object_set_new(object, "fresh_seconds",
					  json_real(seconds_of(more->before.ns)));
	if (err == 0)
		err = add_group(object, &more->group);
	if (err < 0) {
		json_decref(plan);
		json_decref(object);
		return fail_memory();
	}
	if (plan != NULL)
		object = json_pack("{s:o, s:o}", "plan", plan, "load", object);
	return json_print(object, true);
}

static int load_cached(const struct args *args)
{
	const struct more none = {0};
	hoist_load_report report;
	if (args->verify)
		return args_refuse(args, "", "--verify",
				   " is not for --cache: its files are compared by their identity");
	int status = cached_load(args, &report);
	if (status == STATUS_OK && args->json)
		status = print_json(&report, args, &none, NULL);
	else if (status == STATUS_OK)
		print_report(&report, args, &none);
	return status;
}

/* Targets have devices and slices of their own; what is dropped cannot be verified. */
static int check_targets(const struct args *args)
{
	const struct load_args *load = &args->load;
	const char *beside = args->has_device	    ? "--device"
			     : load->n_replicas > 0 ? "--replica"
			     : load->n_slices > 0   ? "--slice"
						    : NULL;
	if (load->window_bytes > 0 && (load->flags & HOIST_LOAD_STREAM) == 0)
		return args_refuse(args, "", "--window",
				   " bounds what --stream holds: add that, or leave out --window");
	if (load->n_targets > 0 && beside != NULL)
		return args_refuse(args, "a target names its device and its slices: leave out ",
				   beside, ", or write it into --target");
	if ((args->verify || load->into) && (load->flags & HOIST_LOAD_STREAM) != 0)
		return args_refuse(args, "--stream drops each tensor, so nothing is left for ",
				   args->verify ? "--verify" : "--into", ": leave out one of them");
	return STATUS_OK;
}

/* The NAME of "shm:NAME", of "tcp://HOST:PORT/NAME" and of "dir:FOLDER/NAME". */
static const char *name_in(const char *group)
{
	const char *end = launcher_is_far(group) ? strrchr(group, '/') : strchr(group, ':');
	return end != NULL ? end + 1 : group;
}

static int check_group(const struct args *args)
{
	const struct load_args *load = &args->load;
	if (load->group == NULL && load->n_ranks > 0)
		return args_refuse(args, "--group and --rank belong together: add --group", "", "");
	if (load->group == NULL && load->timeout_s > 0)
		return args_refuse(args, "--group-timeout is about --group: add that", "", "");
	if (load->group == NULL)
		return STATUS_OK;
	bool far = launcher_is_far(load->group);
	if (!far && load->n_ranks == 0)
		return args_refuse(args, "--group ", load->group,
				   " and --rank belong together: add --rank");
	if (!far && load->n_ranks > SHM_RANKS)
		return args_refuse(args,
				   "--rank: a group of one machine has 64 ranks at most; more "
				   "meet as tcp://HOST:PORT/NAME",
				   "", "");
	if (load->into && strlen(name_in(load->group)) > OPERATION_NAME)
		return args_refuse(args, "--into loads twice, the second time as the group ",
				   load->group,
				   OPERATION_AGAIN ": give a NAME of 58 bytes at most");
	return STATUS_OK;
}

/* --verify cannot check converted tensors: the files have no such bytes to compare with.  An image
 * has tensors as they are in the files. */
int load_check(const struct args *args)
{
	if (args->verbose && args->json)
		return args_refuse(args, "--json has all that --verbose prints: leave out ",
				   "--verbose", "");
	if (args->cache && args->load.timeline != NULL)
		return args_refuse(args,
				   "with --cache a load maps an image, and no chunk moves: leave "
				   "out --cache, or --timeline",
				   "", "");
	if (args->cache && args->load.given != NULL)
		return args_refuse(args, "--cache takes tensors as they are: leave out --",
				   args->load.given, "");
	if (args->cache && (args->io == HOIST_IO_MAP || args->io == HOIST_IO_ADAPTIVE))
		return args_refuse(args,
				   "--cache maps an image in memory, not the files: leave out ",
				   args->io == HOIST_IO_MAP ? "--io map" : "--io adaptive", "");
	if (args->load.of_map != NULL && args->io != HOIST_IO_MAP)
		return args_refuse(args,
				   "nothing is mapped without --io map: add that, or leave out --",
				   args->load.of_map, "");
	const char *beside_into = args->io == HOIST_IO_MAP    ? "--io map"
				  : args->load.n_replicas > 0 ? "--replica"
				  : args->load.n_targets > 0  ? "--target"
							      : NULL;
	if (args->load.into && beside_into != NULL)
		return args_refuse(args, "--into reads into memory of one device: leave out ",
				   beside_into, "");
	if (args->verify && args->load.dtype != 0)
		return args_refuse(
			args, "--verify compares bytes with the files: leave out --dtype", "", "");
	int status = check_group(args);
	return status == STATUS_OK ? check_targets(args) : status;
}

int load_and_report(const struct args *args, json_t *plan)
{
	struct more more = {0};
	struct operation op = {0};
	int status = timeline_check(args->load.timeline);
	if (status == STATUS_OK)
		status = operation_open(&op, args);
	struct counting counting = {args->load.dtype, &more.unconverted};
	op.given = args->load.dtype != 0 ? count_given : NULL;
	op.given_context = &counting;
	if (status == STATUS_OK)
		status = operation_load(&op, args);
	more.before = op.report;
	more.first_ns = op.first_ns;
	if (status == STATUS_OK && args->load.into)
		status = operation_again(&op, args);
	more.group = op.group;
	if (status == STATUS_OK && args->verify)
		status = verify_loaded(&op);
	if (status == STATUS_OK && (args->load.flags & HOIST_LOAD_STREAM) == 0)
		status = unconverted_count_all(&more.unconverted, args->load.dtype, op.load);
	if (status == STATUS_OK)
		status = timeline_draw(&op, args);
	if (status == STATUS_OK && args->json)
		status = print_json(&op.report, args, &more, json_incref(plan));
	else if (status == STATUS_OK)
		print_report(&op.report, args, &more);
	json_decref(plan);
	operation_close(&op);
	return status;
}

int cmd_load(const struct args *args)
{
	int status = load_check(args);
	if (status != STATUS_OK)
		return status;
	return args->cache ? load_cached(args) : load_and_report(args, NULL);
}
