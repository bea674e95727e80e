/* SPDX-License-Identifier: MIT */
/* The timeline of a load (hoist/timeline.h): intervals follow each other, have the bytes that were
 * asked for, and say where chunks were held; and the times of a load that runs, which never
 * fall. */
#include "config.h"

#include <hoist/timeline.h>

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/load-support.h"

#define KIB ((size_t)1 << 10)
#define ROWS 256
#define COLUMNS 1024
#define HOLD_US 20000
#define MOST_LANES 4096
#define WATCHED 30

static float floats[ROWS * COLUMNS];

static const hoist_load_slice columns = {.tensor = "a", .axis = 1, .begin = 3, .end = 700};

/* The kinds of a load's chunks. */
enum { SLOTS = 1 << HOIST_INTERVAL_SLOT, STRAIGHT = 1 << HOIST_INTERVAL_STRAIGHT };

static const struct row {
	const char *name;
	const char *device;
	hoist_load_options options;
	unsigned kinds;
	uint32_t targets; /* of each slot */
	bool replica;
} rows[] = {
	{"host", "cpu", {.io = HOIST_IO_CACHED}, STRAIGHT, 0, false},
	{"threads", "cpu", {.engine = HOIST_ENGINE_THREADS}, STRAIGHT, 0, false},
	{"digests", "cpu", {.flags = HOIST_LOAD_DIGEST}, STRAIGHT, 0, false},
	{"conversion", "cpu", {.dtype = HOIST_BF16}, SLOTS, 0, false},
	{"device", "cuda:0", {.io = HOIST_IO_CACHED}, SLOTS, 1, false},
	{"steps", "cuda:0", {.flags = HOIST_LOAD_CALLER_DRIVEN}, SLOTS, 1, false},
	{"replica", "cuda:0", {.dtype = HOIST_F16}, SLOTS, 3, true},
	{"columns", "cuda:0", {.slices = &columns, .n_slices = 1}, SLOTS, 1, false},
	{"map", "cpu", {.io = HOIST_IO_MAP}, 0, 0, false},
};

static size_t count(hoist_load *load)
{
	size_t n = 0;
	size_t n_lost = 1;
	OK(hoist_load_n_intervals(load, &n, &n_lost));
	CHECK(n_lost == 0);
	OK(hoist_load_n_intervals(load, &n, NULL));
	return n;
}

static hoist_load_interval at(hoist_load *load, size_t index)
{
	hoist_load_interval interval = {.size = sizeof interval};
	OK(hoist_load_get_interval(load, index, &interval));
	return interval;
}

/* No two intervals of a lane (a slot, an index of STRAIGHT chunks, the waits) overlap; chunks come
 * first, each list in the order of its ends.  Returns: the bytes of all. */
static uint64_t check_intervals(const struct row *row, hoist_load *load,
				const hoist_load_report *report)
{
	static uint64_t ends[3][MOST_LANES];
	uint64_t waited[HOIST_STAGE_BUDGET + 1] = {0};
	uint64_t last[2] = {0};
	uint64_t bytes = 0;
	memset(ends, 0, sizeof ends);
	for (size_t i = 0, n = count(load); i < n; i++) {
		const hoist_load_interval is = at(load, i);
		bool wait = is.kind == HOIST_INTERVAL_WAIT;
		unsigned lane = wait ? 0 : is.number;
		CHECK(is.begin_ns <= is.full_ns && is.full_ns <= is.copy_ns &&
		      is.copy_ns <= is.end_ns && is.end_ns <= report->ns);
		CHECK(lane < MOST_LANES && is.begin_ns >= ends[is.kind][lane]);
		ends[is.kind][lane] = is.end_ns;
		CHECK(is.end_ns >= last[wait] && (wait || last[1] == 0));
		last[wait] = is.end_ns;
		CHECK(wait || (row->kinds >> is.kind & 1) != 0);
		CHECK(is.targets == (is.kind == HOIST_INTERVAL_SLOT ? row->targets : 0));
		CHECK((is.bytes > 0) == !wait);
		if (wait)
			waited[is.number] += is.end_ns - is.begin_ns;
		bytes += is.bytes;
	}
	for (int stage = 0; stage <= HOIST_STAGE_BUDGET; stage++)
		CHECK(waited[stage] <= support_time(report, (enum hoist_stage)stage));
	CHECK(waited[HOIST_STAGE_WORK] == 0 && waited[HOIST_STAGE_PLAN] > 0);
	return bytes;
}

static void intervals_of(const struct row *row)
{
	hoist_load_options o = row->options;
	hoist_device *replica = row->replica ? support_device("cuda:1") : NULL;
	o.size = sizeof o;
	o.flags |= HOIST_LOAD_TIMELINE;
	o.device = support_device(row->device);
	o.chunk_bytes = 64 * KIB;
	o.replicas = &replica;
	o.n_replicas = row->replica;
	hoist_load *load = support_load("floats.safetensors", &o);
	const hoist_load_report report = support_report(load);
	CHECK(check_intervals(row, load, &report) == (row->kinds == 0 ? 0 : report.bytes));
	hoist_load_report times = {.size = sizeof times};
	support_times(load, &times);
	CHECK(times.ns == report.ns && times.read_ns == report.read_ns);
	hoist_load_interval interval = {.size = sizeof interval};
	CHECK(hoist_load_get_interval(load, count(load), &interval) == -EINVAL);
	support_said("hoist_load_n_intervals() counts them");
	interval.size = 0;
	CHECK(hoist_load_get_interval(load, 0, &interval) == -EINVAL);
	hoist_load_destroy(load);
	hoist_device_unref(replica);
	hoist_device_unref(o.device);
}

/* A load that was not asked to has no timeline, but times. */
static void off(void)
{
	size_t n = 7;
	hoist_load *load = support_load("floats.safetensors", NULL);
	hoist_load_interval interval = {.size = sizeof interval};
	CHECK(hoist_load_n_intervals(load, &n, NULL) == -EINVAL && n == 7);
	support_said("start the load with HOIST_LOAD_TIMELINE");
	CHECK(hoist_load_get_interval(load, 0, &interval) == -EINVAL);
	support_said("start the load with HOIST_LOAD_TIMELINE");
	hoist_load_report times = {.size = 0};
	CHECK(hoist_load_get_times(load, &times) == -EINVAL);
	hoist_load_destroy(load);
}

/* While no copy ends, the load waits for copies, and so do its slots. */
static void held_copies(bool cancels)
{
	hoist_load_options o = {.size = sizeof o,
				.device = support_device("cuda:0"),
				.io = HOIST_IO_CACHED,
				.chunk_bytes = 64 * KIB,
				.flags = HOIST_LOAD_TIMELINE};
	hoist_checkpoint *checkpoint = support_open("floats.safetensors");
	hoist_load_report times = {.size = sizeof times};
	hoist_load *load;
	size_t n;
	OK(hoist_budget_create(128 * KIB, &o.budget));
	support_hold("cuda", true);
	OK(hoist_load_start(checkpoint, &o, &load));
	CHECK(hoist_load_n_intervals(load, &n, NULL) == -EAGAIN);
	support_said("wait for the load first");
	while (times.copy_ns < HOLD_US * UINT64_C(1000)) {
		support_times(load, &times);
	}
	if (cancels)
		hoist_load_cancel(load);
	support_hold("cuda", false);
	CHECK(hoist_load_wait(load) == (cancels ? -ECANCELED : 0));
	uint64_t waited = 0;
	uint64_t longest = 0;
	for (size_t i = 0; i < count(load); i++) {
		const hoist_load_interval is = at(load, i);
		if (is.kind == HOIST_INTERVAL_WAIT && is.number == HOIST_STAGE_COPY)
			waited += is.end_ns - is.begin_ns;
		else if (is.kind == HOIST_INTERVAL_SLOT && is.end_ns - is.copy_ns > longest)
			longest = is.end_ns - is.copy_ns;
	}
	/* The load looks after the driver now and then: its waits are several, with work between.
	 */
	CHECK(waited >= HOLD_US * UINT64_C(500) && longest >= HOLD_US * UINT64_C(1000));
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_budget_unref(o.budget);
	hoist_device_unref(o.device);
	support_reset("cuda");
}

/* Looks at the times until the load has ended, and once more. */
static void *watch(void *argument)
{
	hoist_load *load = argument;
	hoist_load_report times = {.size = sizeof times};
	hoist_load_report report = {.size = sizeof report};
	while (hoist_load_get_report(load, &report) == -EAGAIN)
		support_times(load, &times);
	support_times(load, &times);
	CHECK(times.ns == report.ns);
	return NULL;
}

/* No time falls while another thread changes it, nor with the load's end. */
static void watched(void)
{
	hoist_load_options o = {.size = sizeof o,
				.device = support_device("cuda:0"),
				.chunk_bytes = 4 * KIB,
				.depth = 2};
	hoist_checkpoint *checkpoint = support_open("floats.safetensors");
	for (int i = 0; i < WATCHED; i++) {
		hoist_load *load;
		pthread_t watcher;
		OK(hoist_load_start(checkpoint, &o, &load));
		CHECK(pthread_create(&watcher, NULL, watch, load) == 0);
		OK(hoist_load_wait(load));
		CHECK(pthread_join(watcher, NULL) == 0);
		hoist_load_destroy(load);
	}
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(o.device);
}

int main(void)
{
	char header[128];
	support_emulate("cuda:2");
	(void)snprintf(header, sizeof header,
		       "{\"a\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%zu]}}",
		       ROWS, COLUMNS, sizeof floats);
	support_put_safetensors("floats.safetensors", header, floats, sizeof floats);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		check_at("%s", rows[i].name);
		intervals_of(&rows[i]);
	}
	check_at("watched");
	watched();
	check_at("off");
	off();
	check_at("held copies");
	held_copies(false);
	check_at("held copies, cancelled");
	held_copies(true);
	support_cleanup();
	return 0;
}
