/* SPDX-License-Identifier: MIT */
/* The failure sweep: every driver call, every copy and every allocation of a
 * load fails once, in turn, until the load succeeds; after each, nothing is left. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/load-support.h"

/* --- allocation: malloc and its kin, of all threads, while armed --- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);

static _Atomic long countdown = -1; /* the allocation that fails; < 0: none */

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static bool fails_now(void)
{
	if (atomic_load(&countdown) < 0)
		return false;
	if (atomic_fetch_sub(&countdown, 1) != 0)
		return false;
	errno = ENOMEM;
	return true;
}

__attribute__((visibility("default"))) void *malloc(size_t bytes)
{
	return fails_now() ? NULL : __libc_malloc(bytes);
}

__attribute__((visibility("default"))) void *calloc(size_t n, size_t bytes)
{
	return fails_now() ? NULL : __libc_calloc(n, bytes);
}

__attribute__((visibility("default"))) void *realloc(void *old, size_t bytes)
{
	return fails_now() ? NULL : __libc_realloc(old, bytes);
}
#define CAN_INTERPOSE 1
#else
#define CAN_INTERPOSE 0
#endif

/* --- one load, however it ends --- */

static char path[512];
static const char *spec;
static bool wide; /* small reads, halves that become floats, a replica, digests */

/* 0, or the first error: opening, starting, loading and taking a buffer. */
static int scenario(void)
{
	hoist_device *device = NULL;
	hoist_device *replica = NULL;
	hoist_checkpoint *checkpoint = NULL;
	hoist_load *load = NULL;
	hoist_buffer *buffer = NULL;
	unsigned char byte;
	hoist_load_options o = {.size = sizeof o};
	int err = hoist_device_open(spec, &device);
	if (err == 0 && wide)
		err = hoist_device_open("cuda:1", &replica);
	o.device = device;
	if (wide) {
		o.replicas = &replica;
		o.n_replicas = 1;
		o.dtype = HOIST_F32;
		o.chunk_bytes = 32 << 10;
		o.flags = HOIST_LOAD_DIGEST;
	}
	if (err == 0)
		err = hoist_checkpoint_open(path, 0, &checkpoint);
	if (err == 0)
		err = hoist_load_start(checkpoint, &o, &load);
	if (err == 0)
		err = hoist_load_wait(load);
	if (err == 0)
		err = hoist_load_buffer(load, "t000002", &buffer);
	if (err == 0)
		err = hoist_buffer_read(buffer, 1, &byte, 1);
	hoist_buffer_unref(buffer);
	buffer = NULL;
	if (err == 0 && wide)
		err = hoist_load_replica(load, 0, 1, &buffer);
	hoist_buffer_unref(buffer);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(replica);
	hoist_device_unref(device);
	return err;
}

static void write_checkpoint(void)
{
	const size_t sizes[] = {3 << 20, 17, 5 << 20, 0, 100000};
	snprintf(path, sizeof path, "%s/m.safetensors", support_folder());
	support_write("m.safetensors", 0, 5, sizes, -1);
}

static void write_halves(void)
{
	static const unsigned char bytes[60003];
	snprintf(path, sizeof path, "%s", support_path("h.safetensors"));
	support_put_safetensors(
		path,
		"{\"t000001\":{\"dtype\":\"F16\",\"shape\":[30000],\"data_offsets\":[0,60000]},"
		"\"t000002\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[60000,60003]}}",
		bytes, sizeof bytes);
}

/* No more than an idle process holds, which is measured: pools may keep regions. */
static void check_nothing_more(const char *api, const struct hoist_emulator_counters *idle)
{
	struct hoist_emulator_counters now = support_counters(api);
	CHECK(now.live_allocations <= idle->live_allocations);
	CHECK(now.live_streams <= idle->live_streams);
	CHECK(now.live_events <= idle->live_events);
	CHECK(now.live_registered_bytes <= idle->live_registered_bytes);
	CHECK(now.use_after_free == 0);
	CHECK(now.bad_frees == 0);
	CHECK(now.pageable_copies == 0);
}

static void sweep_driver(const char *api, const char *what)
{
	OK(scenario());
	struct hoist_emulator_counters idle = support_counters(api);
	int failures = 0;
	for (int n = 1;; n++) {
		char fault[32];
		snprintf(fault, sizeof fault, "%s:%d", what, n);
		support_reset(api);
		support_fail(api, fault);
		int err = scenario();
		bool injected = support_counters(api).injected_failures > 0;
		support_fail(api, NULL);
		if (err == 0 && !injected)
			break;
		failures++;
		CHECK(err == 0 || hoist_error()[0] != '\0');
		check_nothing_more(api, &idle);
		support_reset(api);
		if (!wide || n % 8 == 0)
			OK(scenario()); /* the next one works */
		CHECK(n < 1000);
	}
	CHECK(failures > 0);
	printf("%s: %d injected failures of \"%s\" survived\n", api, failures, what);
}

static void sweep_allocations(void)
{
	if (!CAN_INTERPOSE) {
		printf("%s: allocation failures are not swept under a sanitizer's malloc\n", spec);
		return;
	}
	OK(scenario());
	long n = 0;
	for (;; n++) {
		atomic_store(&countdown, n);
		int err = scenario();
		bool failed = atomic_exchange(&countdown, -1) < 0;
		if (err == 0 && !failed)
			break;
		/* A failure may also be survived: a fallback that needs less. */
		CHECK(err == 0 || err == -ENOMEM || err == -EAGAIN || err == -ENOSPC ||
		      err == -EREMOTEIO || err == -EBADMSG);
		OK(scenario());
		CHECK(n < 5000);
	}
	CHECK(n > 10);
	printf("%s: %ld failed allocations survived\n", spec, n);
}

int main(void)
{
	support_emulate("cuda:2,hip:1");
	setenv("HOIST_EMULATE_LATENCY", "5", 1);
	write_checkpoint();
	spec = "cuda:0";
	sweep_driver("cuda", "any");
	sweep_driver("cuda", "async");
	wide = true;
	write_halves();
	sweep_driver("cuda", "any");
	sweep_driver("cuda", "async");
	sweep_allocations();
	wide = false;
	snprintf(path, sizeof path, "%s/m.safetensors", support_folder());
	spec = "hip:0";
	sweep_driver("hip", "any");
	sweep_driver("hip", "async");
	sweep_allocations();
	spec = "cpu";
	sweep_allocations();
	support_cleanup();
	return 0;
}
