/* SPDX-License-Identifier: MIT */
/* Gives what a load recorded: its intervals, and its times so far.
 * The contract is in hoist/timeline.h; io/timeline.h records. */
#include "config.h"

#include "hoist/timeline.h"

#include "lib/core/options.h"
#include "lib/load/load.h"

static int check_recorded(const struct hoist_load *load)
{
	if (load->job.stages.timeline == NULL)
		return hoist__fail(-EINVAL, "the load has no timeline: start the load with "
					    "HOIST_LOAD_TIMELINE in hoist_load_options.flags");
	if (!hoist__job_is_done(&load->job))
		return hoist__fail(-EAGAIN, "the load has not ended yet; its timeline is not "
					    "complete: wait for the load first");
	return 0;
}

int hoist_load_n_intervals(hoist_load *load, size_t *ret, size_t *ret_lost)
{
	const struct hoist__timeline *timeline = load->job.stages.timeline;
	int err = check_recorded(load);
	if (err < 0)
		return err;
	*ret = timeline->n_chunks + timeline->n_waits;
	if (ret_lost != NULL)
		*ret_lost = timeline->lost;
	return 0;
}

/* Targets of one device share a stream, and so their copies. */
static uint32_t targets_of(const struct hoist_load *load, uint32_t streams)
{
	uint32_t targets = 0;
	for (size_t t = 0; t < load->n_targets; t++)
		if (!load->targets[t].to_host && (streams >> load->targets[t].number & 1) != 0)
			targets |= UINT32_C(1) << t;
	return targets;
}

int hoist_load_get_interval(hoist_load *load, size_t index, hoist_load_interval *interval)
{
	int err = check_recorded(load);
	if (err < 0)
		return err;
	const struct hoist__lap *lap = hoist__timeline_lap(load->job.stages.timeline, index);
	if (lap == NULL)
		return hoist__fail(-EINVAL,
				   "interval %zu: the load has fewer; "
				   "hoist_load_n_intervals() counts them",
				   index);
	const hoist_load_interval known = {
		.kind = lap->kind,
		.number = lap->number,
		.begin_ns = lap->begin_ns,
		.full_ns = lap->full_ns,
		.copy_ns = lap->copy_ns,
		.end_ns = lap->end_ns,
		.bytes = lap->bytes,
		.targets = targets_of(load, lap->streams),
	};
	return hoist__options_out("hoist_load_interval", interval, &known, sizeof known);
}

int hoist_load_get_times(hoist_load *load, hoist_load_report *report)
{
	hoist_load_report known = {0};
	hoist__stages_look(&load->job.stages, &known);
	return hoist__options_out("hoist_load_report", report, &known, sizeof known);
}
