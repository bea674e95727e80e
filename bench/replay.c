/* SPDX-License-Identifier: MIT */
/* Recorded allocations and frees, done again.  The contract is in request.h.
 *
 * Each thread of the recording is a thread here, and does the same operations.  All operations
 * happen in the order of the file, so that every run is the same and a free comes after its
 * allocation.  A thread does its events until the next one is another thread's, and wakes that
 * thread.  Only the events are timed, not the waking. */
#include "config.h"

#include "bench/request.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include <hoist/error.h>
#include <hoist/memory.h>

#include "bench/results.h"
#include "bench/trace.h"
#include "bench/alloc-work.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/fail.h"

#define DEFAULT_RUNS 3

struct replay {
	const char *path;
	const struct trace *trace;
	hoist_device *device;
	hoist_device_info info;
	hoist_memory *memory;
	hoist_stream **streams; /* trace->n_streams + 1; the first is NULL */
	uintptr_t *addresses;	/* of the blocks; 0: not live */
	struct player *players;
	size_t next; /* event */
	uint64_t ns;
	hoist_memory_statistics at_peak;
	bool over;
	char error[1280]; /* "" if all went well */
};

struct player {
	struct replay *replay;
	pthread_t thread;
	sem_t baton;
};

/* Only the thread that has the baton runs this. */
static bool play_event(struct replay *replay, const struct event *event)
{
	uintptr_t *address = &replay->addresses[event->block];
	hoist_stream *stream = replay->streams[event->stream];
	int err;
	if (event->bytes == 0) {
		err = stream != NULL ? hoist_memory_free_on(replay->memory, *address, stream)
				     : hoist_memory_free(replay->memory, *address);
		*address = 0;
	} else {
		err = stream != NULL ? hoist_memory_alloc_on(replay->memory, event->bytes, 0,
							     stream, address)
				     : hoist_memory_alloc(replay->memory, event->bytes, 0, address);
	}
	if (err != 0)
		(void)snprintf(replay->error, sizeof replay->error, "%s, line %" PRIu32 ": %s",
			       replay->path, event->line, hoist_error());
	return err == 0;
}

static bool look_at_peak(struct replay *replay)
{
	replay->at_peak.size = sizeof replay->at_peak;
	if (hoist_memory_get_statistics(replay->memory, &replay->at_peak) == 0)
		return true;
	(void)snprintf(replay->error, sizeof replay->error, "%s", hoist_error());
	return false;
}

/* Plays the events of one thread until the next event is another thread's.  True if there are
 * more. */
static bool play_own(struct replay *replay, uint32_t thread)
{
	const struct trace *trace = replay->trace;
	uint64_t start = clock_ns();
	bool good = !interrupted();
	if (!good)
		(void)strcpy(replay->error, "stopped by a signal");
	while (good && replay->next < trace->n_events &&
	       trace->events[replay->next].thread == thread) {
		size_t i = replay->next++;
		good = play_event(replay, &trace->events[i]);
		if (good && i == trace->peak) {
			replay->ns += clock_ns() - start;
			good = look_at_peak(replay);
			start = clock_ns();
		}
	}
	replay->ns += clock_ns() - start;
	return good && replay->next < trace->n_events;
}

static void *run_player(void *argument)
{
	struct player *player = argument;
	struct replay *replay = player->replay;
	uint32_t self = (uint32_t)(player - replay->players);
	for (;;) {
		while (sem_wait(&player->baton) != 0)
			; /* a signal */
		if (replay->over)
			return NULL;
		if (play_own(replay, self)) {
			(void)sem_post(
				&replay->players[replay->trace->events[replay->next].thread].baton);
			continue;
		}
		replay->over = true;
		for (uint32_t i = 0; i < replay->trace->n_threads; i++)
			(void)sem_post(&replay->players[i].baton);
		return NULL;
	}
}

static int run_players(struct replay *replay)
{
	uint32_t n = replay->trace->n_threads;
	uint32_t n_made = 0;
	int err = 0;
	replay->players = calloc(n, sizeof *replay->players);
	if (replay->players == NULL)
		return fail_memory();
	for (uint32_t i = 0; i < n; i++) {
		replay->players[i].replay = replay;
		(void)sem_init(&replay->players[i].baton, 0, 0); /* cannot fail with 0 */
	}
	while (n_made < n && err == 0) {
		err = pthread_create(&replay->players[n_made].thread, NULL, run_player,
				     &replay->players[n_made]);
		n_made += err == 0;
	}
	/* All begin asleep. */
	replay->over = err != 0;
	for (uint32_t i = 0; i < n_made && err != 0; i++)
		(void)sem_post(&replay->players[i].baton);
	if (err == 0)
		(void)sem_post(&replay->players[replay->trace->events[0].thread].baton);
	for (uint32_t i = 0; i < n_made; i++)
		(void)pthread_join(replay->players[i].thread, NULL);
	for (uint32_t i = 0; i < n; i++)
		(void)sem_destroy(&replay->players[i].baton);
	free(replay->players);
	replay->players = NULL;
	return err == 0 ? STATUS_OK : fail("making %" PRIu32 " threads: %s", n, strerror(err));
}

static void add_run(const struct replay *replay, struct results *results,
		    const hoist_memory_statistics *end)
{
	const struct trace *trace = replay->trace;
	const hoist_memory_statistics *peak = &replay->at_peak;
	double mib = (double)MIB(1);
	const struct {
		const char *work;
		const char *unit;
		double value;
	} figures[] = {
		{"replay", "ns/op", (double)replay->ns / (double)trace->n_events},
		{"peak, asked for", "MiB", (double)end->requested_peak / mib},
		{"peak, reserved", "MiB", (double)end->reserved_peak / mib},
		{"rounding at the peak", "%",
		 100 * ((double)peak->allocated_bytes / (double)peak->requested_bytes - 1)},
		{"fragmentation at the peak", "%", 100 * peak->fragmentation},
		{"regions made", "regions", (double)end->n_growths},
		{"events recorded", "events", (double)end->n_events},
	};
	for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
		struct result_row row = {.work = figures[i].work,
					 .subject = "hoist",
					 .unit = figures[i].unit,
					 .threads = (int)trace->n_threads,
					 .emulated = replay->info.emulated != 0};
		results_add(results, &row, figures[i].value);
	}
}

/* Frees what the recording left. */
static void free_rest(struct replay *replay)
{
	for (uint32_t i = 0; i < replay->trace->n_blocks; i++) {
		if (replay->addresses[i] != 0)
			(void)hoist_memory_free(replay->memory, replay->addresses[i]);
		replay->addresses[i] = 0;
	}
}

static int run_once(struct replay *replay, struct results *results)
{
	hoist_memory_options options = {.size = sizeof options,
					.kind = replay->info.is_host ? HOIST_MEMORY_HOST
								     : HOIST_MEMORY_DEVICE,
					.device = replay->device};
	hoist_memory_statistics end = {.size = sizeof end};
	if (hoist_memory_create(&options, &replay->memory) != 0)
		return fail_library();
	replay->next = 0;
	replay->ns = 0;
	int status = run_players(replay);
	if (status == STATUS_OK && replay->error[0] != '\0')
		status = fail("%s", replay->error);
	if (status == STATUS_OK && hoist_memory_get_statistics(replay->memory, &end) != 0)
		status = fail_library();
	if (status == STATUS_OK)
		add_run(replay, results, &end);
	free_rest(replay);
	hoist_memory_unref(replay->memory);
	replay->memory = NULL;
	return status;
}

static int open_streams(struct replay *replay)
{
	replay->streams = calloc((size_t)replay->trace->n_streams + 1, sizeof *replay->streams);
	replay->addresses = calloc(replay->trace->n_blocks, sizeof *replay->addresses);
	if (replay->streams == NULL || replay->addresses == NULL)
		return fail_memory();
	for (uint32_t i = 1; i <= replay->trace->n_streams; i++) {
		if (hoist_stream_create(replay->device, &replay->streams[i]) != 0)
			return fail_library();
	}
	return STATUS_OK;
}

static void close_streams(struct replay *replay)
{
	for (uint32_t i = 1; replay->streams != NULL && i <= replay->trace->n_streams; i++)
		hoist_stream_unref(replay->streams[i]);
	free(replay->streams);
	free(replay->addresses);
}

static int print_json(const struct replay *replay, const struct results *results)
{
	const struct trace *trace = replay->trace;
	return results_print_json(
		results,
		json_pack("{s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "file", json_text(replay->path),
			  "device", json_text(hoist_device_spec(replay->device)), "emulated",
			  replay->info.emulated, "events", json_count(trace->n_events), "threads",
			  json_count(trace->n_threads), "streams", json_count(trace->n_streams),
			  "unknown_frees", json_count(trace->n_unknown)));
}

static int print_table(const struct replay *replay, const struct results *results)
{
	const struct trace *trace = replay->trace;
	int status = results_print(results, false);
	(void)printf("\n%zu events of %" PRIu32 " threads and %" PRIu32 " streams, on %s%s\n",
		     trace->n_events, trace->n_threads, trace->n_streams,
		     hoist_device_spec(replay->device), replay->info.emulated ? " (emulated)" : "");
	if (trace->n_unknown > 0)
		(void)printf("passed over: %zu frees of what was allocated before the recording "
			     "began\n",
			     trace->n_unknown);
	return status;
}

static int replay_trace(const struct bench_request *request, const struct trace *trace)
{
	struct replay replay = {
		.path = request->path, .trace = trace, .info = {.size = sizeof replay.info}};
	struct results results;
	unsigned runs = request->runs != 0 ? request->runs : DEFAULT_RUNS;
	int status = STATUS_OK;
	results_create("replay", &results);
	if (hoist_device_open(request->device, &replay.device) != 0 ||
	    hoist_device_get_info(replay.device, &replay.info) != 0)
		status = fail_library();
	if (status == STATUS_OK)
		status = open_streams(&replay);
	interrupt_watch();
	for (unsigned i = 0; i < runs && status == STATUS_OK; i++)
		status = run_once(&replay, &results);
	if (status == STATUS_OK)
		status = request->json ? print_json(&replay, &results)
				       : print_table(&replay, &results);
	close_streams(&replay);
	hoist_device_unref(replay.device);
	results_destroy(&results);
	return status;
}

int bench_replay(const struct bench_request *request)
{
	struct trace trace = {0};
	int status = trace_read(request->path, &trace);
	if (status == STATUS_OK)
		status = replay_trace(request, &trace);
	trace_free(&trace);
	return status;
}
