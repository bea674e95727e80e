/* SPDX-License-Identifier: MIT */
/* Says in one line what a load did, and what set its pace.
 * The contract is in tools/load-report.h. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "cli/format.h"
#include "tools/load-report.h"

/* A stage that took less than this part of the time does not set the pace alone. */
#define PACE_PERCENT 50

/* Bytes that were read through the page cache lay there, unless the user asked for that way.  A
 * member of a group that read nothing got all bytes from others. */
static const char *pace_of_reads(const hoist_load_report *report, const struct args *args)
{
	if (args->load.group != NULL && report->direct_bytes + report->cached_bytes == 0)
		return "as fast as other members send";
	if (report->direct_bytes >= report->cached_bytes)
		return "as fast as the disk reads";
	if (args->io == HOIST_IO_CACHED)
		return "as fast as reads through the page cache are";
	return "from the page cache, as fast as it is copied";
}

static const char *way_of_maps(const hoist_load_report *report, const struct args *args)
{
	if (strcmp(report->engine, "cache") == 0)
		return "shared with the cache";
	return args->io == HOIST_IO_ADAPTIVE ? "mapped from the page cache"
					     : "mapped, to be read when touched";
}

/* Prints what the load waited for most of the time. */
static void print_pace(const hoist_load_report *report, const struct args *args)
{
	const struct {
		uint64_t ns;
		const char *text;
	} paces[] = {
		{report->read_ns, pace_of_reads(report, args)},
		{report->copy_ns, "as fast as the device takes copies"},
		{report->convert_ns, "as fast as the processors convert and digest"},
		{report->pages_ns, "as fast as the kernel makes fresh pages"},
		{report->allocate_ns, "mostly allocating memory"},
		{report->plan_ns, "mostly planning"},
		{report->group_ns, "waiting for other ranks"},
		{report->budget_ns, "waiting for the budget"},
		{report->caller_ns, "waiting for room in the window"},
		{report->work_ns, "mostly at work for each tensor and chunk"},
	};
	for (size_t i = 0; i < sizeof paces / sizeof paces[0]; i++) {
		uint64_t percent = report->ns > 0 ? paces[i].ns * 100 / report->ns : 0;
		if (percent >= PACE_PERCENT)
			(void)printf(", %s (%d %% of the time)", paces[i].text, (int)percent);
	}
}

void load_line(const hoist_load_report *report, const struct args *args)
{
	struct text a, b;
	size_t further =
		args->load.n_targets > 0 ? args->load.n_targets - 1 : args->load.n_replicas;
	bool populated = (args->load.flags & HOIST_LOAD_POPULATE) != 0;
	uint64_t mapped = populated ? 0 : report->mapped_bytes;
	uint64_t read = report->bytes > mapped ? report->bytes - mapped : 0;
	double seconds = (double)report->ns / 1e9;
	(void)printf("loaded %s tensor%s, %s, to %s", format_count(report->n_tensors, &a),
		     report->n_tensors == 1 ? "" : "s", format_bytes(report->bytes, &b),
		     report->device);
	if (further > 0)
		(void)printf(" and %zu further %s%s", further,
			     args->load.n_targets > 0 ? "target" : "replica",
			     further == 1 ? "" : "s");
	(void)printf("%s in %s", report->emulated ? " (emulated: no real device was used)" : "",
		     format_seconds(seconds, &a));
	if (mapped > 0)
		(void)printf(": %s %s", format_bytes(mapped, &a), way_of_maps(report, args));
	if (read > 0)
		(void)printf("%s %s%s", mapped > 0 ? "," : ":",
			     format_rate(rate_of(read, seconds), &a),
			     mapped > 0 ? " for the rest" : "");
	if (read > 0)
		print_pace(report, args);
	(void)putchar('\n');
}
