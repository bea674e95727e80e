/* SPDX-License-Identifier: MIT */
/* Opens the devices, and speaks with the stand-in drivers: counters, failures and latency. */
#include "config.h"

#include "tests/support/lib-support.h"
#include "tests/support/patience.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/error.h"
#include "lib/memory/device-memory.h"

const char *const lib_specs[LIB_N_DEVICES] = {"cpu", "cuda:0", "cuda:1", "hip:0"};

static const char *const apis[] = {"cuda", "hip"};

static void emulator_path(const char *api, char *path, size_t bytes)
{
	const char *folder = getenv("HOIST_EMULATOR_DIR");
	(void)snprintf(path, bytes, "%s/libhoist-emulated-%s.so", folder != NULL ? folder : ".",
		       api);
}

bool lib_emulate(void)
{
	char path[4096];
	for (size_t i = 0; i < 2; i++) {
		emulator_path(apis[i], path, sizeof path);
		if (access(path, R_OK) != 0)
			return false;
	}
	return setenv("HOIST_EMULATE", "cuda:2,hip:1", 1) == 0;
}

void lib_need_emulators(void)
{
	if (lib_emulate())
		return;
	printf("skipped: the emulators are not built\n");
	exit(77);
}

void lib_open_all(hoist_device *devices[LIB_N_DEVICES])
{
	for (size_t i = 0; i < LIB_N_DEVICES; i++)
		if (hoist_device_open(lib_specs[i], &devices[i]) != 0) {
			(void)fprintf(stderr, "opening %s: %s\n", lib_specs[i], hoist_error());
			abort();
		}
}

/* The handle is kept: the libraries are never unloaded anyway. */
static void *control(const char *api, const char *function)
{
	char path[4096];
	emulator_path(api, path, sizeof path);
	void *so = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	void *symbol = so != NULL ? dlsym(so, function) : NULL;
	if (symbol == NULL) {
		(void)fprintf(stderr, "%s in %s: %s\n", function, path, dlerror());
		abort();
	}
	dlclose(so);
	return symbol;
}

/* A call of this function in the stand-in of @api. */
#define CONTROL(api, function, ...)                                                                \
	({                                                                                         \
		__typeof__(&function) function_;                                                   \
		*(void **)&function_ = control(api, #function);                                    \
		function_(__VA_ARGS__);                                                            \
	})

struct hoist_emulator_counters lib_counters(const char *api)
{
	struct hoist_emulator_counters counters;
	CONTROL(api, hoist_emulator_counters, &counters);
	return counters;
}

uint64_t lib_calls(const char *api, const char *name)
{
	return CONTROL(api, hoist_emulator_calls, name);
}

int lib_fail(const char *api, const char *spec)
{
	return CONTROL(api, hoist_emulator_fail, spec);
}

int lib_preferred(const char *api, uintptr_t address)
{
	return CONTROL(api, hoist_emulator_preferred, address);
}

void lib_set_latency(const char *api, unsigned min_us, unsigned max_us)
{
	CONTROL(api, hoist_emulator_set_latency, min_us, max_us);
}

void lib_reset(const char *api)
{
	CONTROL(api, hoist_emulator_reset);
}

int lib_capture(const char *api, void *stream, int on)
{
	return CONTROL(api, hoist_emulator_capture, stream, on);
}

void lib_hold(const char *api, bool hold)
{
	CONTROL(api, hoist_emulator_hold, hold);
}

static bool is_zero(const char *api, const char *name, uint64_t value)
{
	if (value == 0)
		return true;
	(void)fprintf(stderr, "%s: %s is %llu\n", api, name, (unsigned long long)value);
	return false;
}

void lib_enter_context(int ordinal)
{
	unsigned (*retain)(void **, int);
	unsigned (*push)(void *);
	void *context = NULL;
	*(void **)&retain = control("cuda", "cuDevicePrimaryCtxRetain");
	*(void **)&push = control("cuda", "cuCtxPushCurrent_v2");
	if (ordinal >= 0 && (retain(&context, ordinal) != 0 || push(context) != 0))
		abort();
}

void lib_leave_context(int ordinal)
{
	unsigned (*pop)(void **);
	void *context = NULL;
	*(void **)&pop = control("cuda", "cuCtxPopCurrent_v2");
	if (ordinal >= 0 && pop(&context) != 0)
		abort();
}

bool lib_drivers_content(void)
{
	bool content = true;
	for (size_t i = 0; i < 2; i++) {
		const struct hoist_emulator_counters c = lib_counters(apis[i]);
		content &= is_zero(apis[i], "pageable_copies", c.pageable_copies);
		content &= is_zero(apis[i], "bad_copies", c.bad_copies);
		content &= is_zero(apis[i], "bad_touches", c.bad_touches);
		content &= is_zero(apis[i], "staged_copies", c.staged_copies);
		content &= is_zero(apis[i], "bad_frees", c.bad_frees);
		content &= is_zero(apis[i], "use_after_free", c.use_after_free);
		content &= is_zero(apis[i], "broken_captures", c.broken_captures);
	}
	return content;
}

/* Memory that was freed behind a stream comes back after the stream's work: a little later where
 * the driver refused to wait, or the free could not be noted at first. */
static void give_back(hoist_device *const devices[LIB_N_DEVICES])
{
	uint64_t until = 0;
	do
		for (size_t i = 0; i < LIB_N_DEVICES; i++)
			hoist__device_trim(devices[i]);
	while (lib_counters("cuda").live_events + lib_counters("hip").live_events != 0 &&
	       patience(&until));
}

bool lib_nothing_outstanding(hoist_device *const devices[LIB_N_DEVICES])
{
	bool nothing = true;
	give_back(devices);
	for (size_t i = 0; i < 2; i++) {
		const struct hoist_emulator_counters c = lib_counters(apis[i]);
		nothing &= is_zero(apis[i], "live_allocations", c.live_allocations);
		nothing &= is_zero(apis[i], "live_bytes", c.live_bytes);
		nothing &= is_zero(apis[i], "live_registrations", c.live_registrations);
		nothing &= is_zero(apis[i], "live_streams", c.live_streams);
		nothing &= is_zero(apis[i], "live_events", c.live_events);
		nothing &= is_zero(apis[i], "live_pools", c.live_pools);
		nothing &= is_zero(apis[i], "live_reservations", c.live_reservations);
	}
	return nothing;
}
