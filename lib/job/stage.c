/* SPDX-License-Identifier: MIT */
/* Where a job's time goes.
 * The contracts are in lib/job/stage.h and hoist/load.h. */
#include "config.h"

#include "lib/job/stage.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/line.h"
#include "device/device.h"

void hoist__stages_begin(struct hoist__stages *stages, enum hoist_stage first)
{
	uint64_t now = hoist__now_ns();
	*stages = (struct hoist__stages){.generation = hoist__fork_now(),
					 .begin_ns = now,
					 .lock = PTHREAD_MUTEX_INITIALIZER,
					 .since_ns = now,
					 .now = first};
}

/* The stage @next begins, and ends at once if the time @ended.  Returns: the stage before. */
static enum hoist_stage change(struct hoist__stages *stages, enum hoist_stage next, bool ended)
{
	enum hoist_stage last = stages->now;
	uint64_t since = stages->since_ns;
	HOIST__ASSERT((unsigned)next < HOIST__N_STAGES);
	if (stages->ended)
		return last;
	pthread_mutex_lock(&stages->lock);
	uint64_t now = hoist__now_ns();
	HOIST__ASSERT(now >= since);
	stages->ns[last] += now - since;
	stages->since_ns = now;
	stages->now = next;
	stages->ended = ended;
	pthread_mutex_unlock(&stages->lock);
	if (last != HOIST_STAGE_WORK)
		hoist__timeline_wait(stages->timeline, last, since, now);
	return last;
}

enum hoist_stage hoist__stages_enter(struct hoist__stages *stages, enum hoist_stage next)
{
	return change(stages, next, false);
}

void hoist__stages_end(struct hoist__stages *stages)
{
	(void)change(stages, stages->now, true);
}

/* Each stage: its field in the report, and its words in the line. */
static const struct {
	size_t field;
	const char *name;
} stages_told[HOIST__N_STAGES] = {
	[HOIST_STAGE_WORK] = {offsetof(hoist_load_report, work_ns), "at work"},
	[HOIST_STAGE_PLAN] = {offsetof(hoist_load_report, plan_ns), "planning"},
	[HOIST_STAGE_ALLOCATE] = {offsetof(hoist_load_report, allocate_ns), "allocating"},
	[HOIST_STAGE_CALLER] = {offsetof(hoist_load_report, caller_ns), "waiting for the caller"},
	[HOIST_STAGE_READ] = {offsetof(hoist_load_report, read_ns), "waiting for reads"},
	[HOIST_STAGE_CONVERT] = {offsetof(hoist_load_report, convert_ns), "converting"},
	[HOIST_STAGE_COPY] = {offsetof(hoist_load_report, copy_ns),
			      "waiting for copies to the device"},
	[HOIST_STAGE_PAGES] = {offsetof(hoist_load_report, pages_ns), "waiting for fresh pages"},
	[HOIST_STAGE_GROUP] = {offsetof(hoist_load_report, group_ns), "waiting for the group"},
	[HOIST_STAGE_BUDGET] = {offsetof(hoist_load_report, budget_ns), "waiting for the budget"},
};

void hoist__stages_look(struct hoist__stages *stages, hoist_load_report *report)
{
	/* In a child of fork, the thread that holds the lock may not exist. */
	bool locked = stages->generation == hoist__fork_now()
			      ? pthread_mutex_lock(&stages->lock) == 0
			      : pthread_mutex_trylock(&stages->lock) == 0;
	uint64_t now = stages->ended ? stages->since_ns : hoist__now_ns();
	for (unsigned i = 0; i < HOIST__N_STAGES; i++) {
		uint64_t ns = stages->ns[i] + (i == stages->now ? now - stages->since_ns : 0);
		memcpy((char *)report + stages_told[i].field, &ns, sizeof ns);
	}
	report->ns = now - stages->begin_ns;
	if (locked)
		pthread_mutex_unlock(&stages->lock);
}

/* --- the line --- */

struct share {
	uint64_t n; /* nanoseconds, or bytes */
	const char *name;
};

/* The longest first. */
static void sort(struct share *shares, size_t n)
{
	for (size_t i = 1; i < n; i++)
		for (size_t k = i; k > 0 && shares[k].n > shares[k - 1].n; k--) {
			const struct share longer = shares[k];
			shares[k] = shares[k - 1];
			shares[k - 1] = longer;
		}
}

static void add_shares(struct hoist__line *line, const hoist_load_report *r)
{
	struct share shares[HOIST__N_STAGES];
	const char *before = ": ";
	for (int i = 0; i < HOIST__N_STAGES; i++) {
		shares[i].name = stages_told[i].name;
		memcpy(&shares[i].n, (const char *)r + stages_told[i].field, sizeof shares[i].n);
	}
	sort(shares, HOIST__N_STAGES);
	for (size_t i = 0; i < HOIST__N_STAGES; i++) {
		uint64_t percent =
			r->ns == 0 ? 0
				   : (uint64_t)(100.0 * (double)shares[i].n / (double)r->ns + 0.5);
		if (percent == 0)
			continue;
		hoist__line_add(line, "%s%" PRIu64 " %% %s", before, percent, shares[i].name);
		before = ", ";
	}
}

static void add_ways(struct hoist__line *line, const hoist_load_report *r)
{
	const struct share ways[] = {
		{r->direct_bytes, "read direct"},
		{r->cached_bytes, "cached"},
		{r->mapped_bytes, "mapped"},
	};
	const char *before = "; ";
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
		if (ways[i].n == 0)
			continue;
		hoist__line_add(line, "%s%.3f GB %s", before, (double)ways[i].n / 1e9,
				ways[i].name);
		before = ", ";
	}
}

size_t hoist_load_explain(const hoist_load_report *report, char *text, size_t bytes)
{
	struct hoist__line line = {.text = text, .bytes = bytes};
	double seconds = (double)report->ns / 1e9;
	double gb = (double)report->bytes / 1e9;
	hoist__line_add(&line, "%.3f GB to %s%s in %.3f s", gb, report->device,
			report->emulated ? " (emulated)" : "", seconds);
	/* Mapped bytes have not moved. */
	if (seconds > 0 && report->mapped_bytes == 0)
		hoist__line_add(&line, " (%.2f GB/s)", gb / seconds);
	add_shares(&line, report);
	add_ways(&line, report);
	hoist__line_add(&line, "; opened in %.3f s", (double)report->open_ns / 1e9);
	return line.used;
}
