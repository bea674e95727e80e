/* SPDX-License-Identifier: MIT */
/* emulator/control.c - the functions that steer a stand-in, and the report at exit.
 * The contract is in emulator/control.h. */
#include "config.h"

#include "emulator/core.h"
#include "emulator/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void hoist_emulator_counters(struct hoist_emulator_counters *ret)
{
	hoist__emu_lock();
	*ret = hoist__emu.count;
	hoist__emu_unlock();
}

uint64_t hoist_emulator_calls(const char *function)
{
	const struct hoist__emu_face *face = &hoist__emu_face;
	for (unsigned i = 0; i < face->n_functions; i++) {
		if (strcmp(face->functions[i].symbol, function) != 0 &&
		    strcmp(face->functions[i].name, function) != 0)
			continue;
		hoist__emu_lock();
		uint64_t calls = hoist__emu.calls[i];
		hoist__emu_unlock();
		return calls;
	}
	return UINT64_MAX;
}

const char *hoist_emulator_function(unsigned index)
{
	const struct hoist__emu_face *face = &hoist__emu_face;
	return index < face->n_functions ? face->functions[index].symbol : NULL;
}

int hoist_emulator_fail(const char *spec)
{
	hoist__emu_load_environment();
	hoist__emu_lock();
	int err = hoist__emu_faults_set(spec);
	hoist__emu_unlock();
	return err;
}

void hoist_emulator_set_rate(uint64_t bytes_per_second)
{
	hoist__emu_load_environment();
	hoist__emu_lock();
	hoist__emu.now.rate = bytes_per_second;
	hoist__emu_unlock();
}

void hoist_emulator_set_latency(unsigned min_us, unsigned max_us)
{
	hoist__emu_load_environment();
	hoist__emu_lock();
	hoist__emu.now.latency_ns[0] = UINT64_C(1000) * min_us;
	hoist__emu.now.latency_ns[1] = UINT64_C(1000) * (max_us < min_us ? min_us : max_us);
	hoist__emu_unlock();
}

void hoist_emulator_set_memory(uint64_t bytes)
{
	hoist__emu_load_environment();
	hoist__emu_lock();
	hoist__emu.now.memory = bytes < EMU_MAX_MEMORY ? bytes : EMU_MAX_MEMORY;
	hoist__emu_unlock();
}

void hoist_emulator_set_devices(int count)
{
	hoist__emu_load_environment();
	hoist__emu_lock();
	int *n_devices = &hoist__emu.environment.n_devices;
	int before = *n_devices;
	if (count > EMU_MAX_DEVICES)
		count = EMU_MAX_DEVICES;
	for (int i = before; i < count && hoist__emu.environment.resident > 0; i++)
		hoist__emu_make_resident(&hoist__emu.devices[i]);
	if (count > before)
		__atomic_store_n(n_devices, count, __ATOMIC_RELEASE);
	hoist__emu_unlock();
}

void hoist_emulator_set_register_most(uint64_t bytes)
{
	hoist__emu_load_environment();
	hoist__emu_lock();
	hoist__emu.now.register_most = bytes;
	hoist__emu_unlock();
}

void hoist_emulator_hold(int hold)
{
	hoist__emu_load_environment();
	hoist__emu_lock();
	hoist__emu.hold = hold != 0;
	(void)pthread_cond_broadcast(&hoist__emu.progress);
	hoist__emu_unlock();
}

/* [locked] */
static void reset_streams(void)
{
	for (int i = 0; i < hoist__emu.environment.n_devices; i++) {
		struct hoist__list *head = &hoist__emu.devices[i].streams;
		for (struct hoist__list *node = head->next; node != head; node = node->next) {
			struct hoist__emu_stream *stream =
				HOIST__CONTAINER_OF(node, struct hoist__emu_stream, node);
			stream->error = 0;
			hoist__emu_capture_end(stream);
		}
	}
}

/* Counters of live objects are kept, and each peak begins again at the present value. */
void hoist_emulator_reset(void)
{
	hoist__emu_load_environment();
	hoist__emu_lock();
	const struct hoist_emulator_counters old = hoist__emu.count;
	hoist__emu.count = (struct hoist_emulator_counters){
		.live_allocations = old.live_allocations,
		.live_bytes = old.live_bytes,
		.peak_bytes = old.live_bytes,
		.live_registrations = old.live_registrations,
		.live_registered_bytes = old.live_registered_bytes,
		.peak_registered_bytes = old.live_registered_bytes,
		.live_streams = old.live_streams,
		.live_pools = old.live_pools,
		.live_reservations = old.live_reservations,
		.live_events = old.live_events,
		.live_contexts = old.live_contexts,
		.live_imports = old.live_imports,
	};
	memset(hoist__emu.calls, 0, sizeof hoist__emu.calls);
	hoist__emu.n_faults = 0;
	hoist__emu.hold = false;
	hoist__emu.now = hoist__emu.environment;
	reset_streams();
	(void)pthread_cond_broadcast(&hoist__emu.progress);
	hoist__emu_unlock();
}

/* --- the report --- */

/* [locked] The functions that a program called and that the stand-in lacks. */
static void print_absent(FILE *file, const struct hoist__emu_face *face)
{
	const char *name = NULL;
	const char *comma = "";
	uint64_t calls = 0;
	for (unsigned i = 0; face->absent != NULL && (name = face->absent(i, &calls)) != NULL;
	     i++) {
		if (calls == 0)
			continue;
		fprintf(file, "%s\"%s\": %llu", comma, name, (unsigned long long)calls);
		comma = ", ";
	}
}

/* [locked] One line: {"emulator": "cuda", ..., "functions": {...}, "not_supported": {...}}. */
static void print_report(FILE *file)
{
	const struct hoist__emu_face *face = &hoist__emu_face;
	fprintf(file, "{\"emulator\": \"%s\", \"pid\": %d, \"devices\": %d", face->api,
		hoist__emu.pid, hoist__emu.environment.n_devices);
#define X(name) fprintf(file, ", \"%s\": %llu", #name, (unsigned long long)hoist__emu.count.name);
	HOIST_EMULATOR_COUNTERS(X)
#undef X
	fprintf(file, ", \"functions\": {");
	for (unsigned i = 0; i < face->n_functions; i++)
		fprintf(file, "%s\"%s\": %llu", i == 0 ? "" : ", ", face->functions[i].symbol,
			(unsigned long long)hoist__emu.calls[i]);
	fprintf(file, "}, \"not_supported\": {");
	print_absent(file, face);
	fprintf(file, "}}\n");
}

/* A process that never made a driver call has nothing to report.  A forked child leaves the report
 * to its parent.  A failure to write cannot be told to anybody: a missing line tells it. */
__attribute__((destructor)) static void report_at_exit(void)
{
	const char *path = secure_getenv("HOIST_EMULATE_REPORT");
	if (path == NULL || *path == '\0' || hoist__emu.pid != (int)getpid())
		return;
	FILE *file = fopen(path, "ae");
	if (file == NULL)
		return;
	hoist__emu_lock();
	print_report(file);
	hoist__emu_unlock();
	(void)fclose(file);
}
