/* SPDX-License-Identifier: MIT */
/* A forecast as one line.
 * The contract is in hoist/forecast.h. */
#include "config.h"

#include <inttypes.h>

#include "base/line.h"
#include "hoist/forecast.h"

static double gb(uint64_t bytes)
{
	return (double)bytes / 1e9;
}

/* "to cuda:0 (emulated): 16.100 GB of 80.000 GB free" for each target. */
static void add_targets(struct hoist__line *line, const hoist_forecast *f)
{
	for (size_t t = 0; t < f->n_targets; t++) {
		const hoist_forecast_target *target = &f->targets[t];
		hoist__line_add(line, "%s %s%s, %.3f GB", t == 0 ? " to" : " and", target->device,
				target->emulated ? " (emulated)" : "", gb(target->bytes));
		if (target->free_bytes != UINT64_MAX)
			hoist__line_add(line, " of %.3f GB free", gb(target->free_bytes));
	}
	if (!f->fits)
		hoist__line_add(line, ", WHICH IS TOO LITTLE");
}

static void add_reads(struct hoist__line *line, const hoist_forecast *f)
{
	const struct {
		uint64_t n;
		const char *what;
	} ways[] = {
		{f->direct_bytes, "to read direct"},
		{f->cached_bytes, "to read cached"},
		{f->mapped_bytes, "to map"},
	};
	const char *before = ": ";
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		if (ways[i].n == 0)
			continue;
		hoist__line_add(line, "%s%.3f GB %s", before, gb(ways[i].n), ways[i].what);
		before = ", ";
	}
	hoist__line_add(line, "%s%" PRIu64 " reads of %" PRIu64 " files", before, f->n_reads,
			f->n_files);
	if (f->residency)
		hoist__line_add(line, ", %.3f GB in the page cache now", gb(f->resident_bytes));
}

size_t hoist_forecast_explain(const hoist_forecast *f, char *text, size_t bytes)
{
	struct hoist__line line = {.text = text, .bytes = bytes};
	hoist__line_add(&line, "%.3f GB in %" PRIu64 " tensors", gb(f->bytes), f->n_tensors);
	add_targets(&line, f);
	add_reads(&line, f);
	if (f->straight_bytes > 0)
		hoist__line_add(&line, "; %.3f GB straight to their place", gb(f->straight_bytes));
	if (f->staged_bytes > 0)
		hoist__line_add(&line, "; %.3f GB through %zu slots of %.3f MB",
				gb(f->staged_bytes), f->n_slots, (double)f->slot_bytes / 1e6);
	if (f->converted_bytes > 0)
		hoist__line_add(&line, "; %.3f GB converted", gb(f->converted_bytes));
	hoist__line_add(&line, "; %s", f->io_reason);
	return line.used;
}
