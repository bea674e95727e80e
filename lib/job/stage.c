/* SPDX-License-Identifier: MIT */
/* Where a job's time goes.
 * The contracts are in lib/job/stage.h and hoist/load.h. */
#include "config.h"

#include "lib/job/stage.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/line.h"

void hoist__stages_begin(struct hoist__stages *stages, enum hoist__job_stage first)
{
	uint64_t now = hoist__now_ns();
	*stages = (struct hoist__stages){.begin_ns = now, .since_ns = now, .now = first};
}

/* The changes of one thread, each of which others see behind the odd turn. */
static void change(struct hoist__stages *stages, enum hoist__job_stage next, uint64_t ns,
		   uint64_t now)
{
	enum hoist__job_stage last = atomic_load_explicit(&stages->now, memory_order_relaxed);
	unsigned turn = atomic_load_explicit(&stages->turn, memory_order_relaxed);
	atomic_store_explicit(&stages->turn, turn + 1, memory_order_relaxed);
	atomic_store_explicit(&stages->ns[last], ns, memory_order_release);
	atomic_store_explicit(&stages->since_ns, now, memory_order_release);
	atomic_store_explicit(&stages->now, next, memory_order_release);
	atomic_store_explicit(&stages->turn, turn + 2, memory_order_release);
}

enum hoist__job_stage hoist__stages_enter(struct hoist__stages *stages, enum hoist__job_stage next)
{
	enum hoist__job_stage last = atomic_load_explicit(&stages->now, memory_order_relaxed);
	uint64_t since = atomic_load_explicit(&stages->since_ns, memory_order_relaxed);
	uint64_t ns = atomic_load_explicit(&stages->ns[last], memory_order_relaxed);
	uint64_t now = hoist__now_ns();
	HOIST__ASSERT(next < HOIST__N_STAGES && now >= since);
	change(stages, next, ns + now - since, now);
	if (last != HOIST__STAGE_WORK)
		hoist__timeline_wait(stages->timeline, last, since, now);
	return last;
}

/* Each stage: its field in the report, and its words in the line. */
static const struct {
	size_t field;
	const char *name;
} stages_told[HOIST__N_STAGES] = {
	[HOIST__STAGE_WORK] = {offsetof(hoist_load_report, work_ns), "at work"},
	[HOIST__STAGE_PLAN] = {offsetof(hoist_load_report, plan_ns), "planning"},
	[HOIST__STAGE_ALLOCATE] = {offsetof(hoist_load_report, allocate_ns), "allocating"},
	[HOIST__STAGE_CALLER] = {offsetof(hoist_load_report, caller_ns), "waiting for the caller"},
	[HOIST__STAGE_READ] = {offsetof(hoist_load_report, read_ns), "waiting for reads"},
	[HOIST__STAGE_CONVERT] = {offsetof(hoist_load_report, convert_ns), "converting"},
	[HOIST__STAGE_COPY] = {offsetof(hoist_load_report, copy_ns),
			       "waiting for copies to the device"},
	[HOIST__STAGE_PAGES] = {offsetof(hoist_load_report, pages_ns), "waiting for fresh pages"},
	[HOIST__STAGE_GROUP] = {offsetof(hoist_load_report, group_ns), "waiting for the group"},
	[HOIST__STAGE_BUDGET] = {offsetof(hoist_load_report, budget_ns), "waiting for the budget"},
};

void hoist__stages_report(const struct hoist__stages *stages, hoist_load_report *report)
{
	for (int i = 0; i < HOIST__N_STAGES; i++) {
		uint64_t ns = atomic_load_explicit(&stages->ns[i], memory_order_acquire);
		memcpy((char *)report + stages_told[i].field, &ns, sizeof ns);
	}
}

/* The thread that changes the times is at it for some nanoseconds.  In a child of fork there is no
 * such thread. */
#define MOST_LOOKS 10000

void hoist__stages_look(const struct hoist__stages *stages, hoist_load_report *report)
{
	unsigned turn = 1;
	unsigned after = 0;
	unsigned running = 0;
	uint64_t since = 0;
	for (int i = 0; i < MOST_LOOKS && (turn != after || turn % 2 == 1); i++) {
		turn = atomic_load_explicit(&stages->turn, memory_order_acquire);
		running = atomic_load_explicit(&stages->now, memory_order_acquire);
		since = atomic_load_explicit(&stages->since_ns, memory_order_acquire);
		hoist__stages_report(stages, report);
		after = atomic_load_explicit(&stages->turn, memory_order_relaxed);
	}
	uint64_t now = hoist__max_u64(hoist__now_ns(), since);
	uint64_t ns;
	memcpy(&ns, (char *)report + stages_told[running].field, sizeof ns);
	ns += now - since;
	memcpy((char *)report + stages_told[running].field, &ns, sizeof ns);
	report->ns = now - stages->begin_ns;
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
