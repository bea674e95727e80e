/* SPDX-License-Identifier: MIT */
/* Saves and loads that share a budget of the least that works: each gets its turn, whoever cancels
 * leaves the line, and nothing is held in the end.  And what devices are asked for. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/save-support.h"
#include "tests/support/under-tsan.h"

#define LEAST ((size_t)128 << 10)
#define N_THREADS 8
#define N_TIMES (UNDER_TSAN ? 3 : 6)

static hoist_device *cpu;
static hoist_device *device; /* of the loads */
static hoist_budget *budget;

static hoist_save *begin(const char *path, int64_t bytes)
{
	const hoist_save_options options = {
		.size = sizeof options, .budget = budget, .flags = HOIST_SAVE_NO_SYNC};
	hoist_buffer *buffer;
	hoist_save *save;
	OK(hoist_buffer_create(cpu, HOIST_U8, 1, &bytes, HOIST_BUFFER_ZERO, &buffer));
	OK(hoist_save_create(path, &options, &save));
	OK(hoist_save_add(save, "a", buffer));
	hoist_buffer_unref(buffer);
	return save;
}

static void load(const char *path)
{
	const hoist_load_options options = {
		.size = sizeof options, .device = device, .budget = budget};
	hoist_load_destroy(support_load(path, &options));
}

/* Saves, loads what it saved; every third one is cancelled, waiting or not. */
static void *in_turn(void *argument)
{
	unsigned number = *(const unsigned *)argument;
	char path[600];
	(void)snprintf(path, sizeof path, "%s/%u.safetensors", support_folder(), number);
	for (unsigned i = 0; i < N_TIMES; i++) {
		hoist_save *save = begin(path, 300000 + 100 * number);
		OK(hoist_save_start(save));
		bool cancelled = (number + i) % 3 == 2;
		if (cancelled)
			hoist_save_cancel(save);
		int err = hoist_save_wait(save);
		CHECK(err == 0 || (cancelled && err == -ECANCELED));
		hoist_save_destroy(save);
		if (err == 0)
			load(path);
	}
	return NULL;
}

static void at_the_least(void)
{
	unsigned numbers[N_THREADS];
	pthread_t threads[N_THREADS];
	(void)support_folder(); /* made by one */
	/* Two of the smallest rings are more than it has. */
	OK(hoist_budget_create(LEAST + 4096, &budget));
	for (unsigned i = 0; i < N_THREADS; i++) {
		numbers[i] = i;
		OK(pthread_create(&threads[i], NULL, in_turn, &numbers[i]));
	}
	for (unsigned i = 0; i < N_THREADS; i++)
		OK(pthread_join(threads[i], NULL));
	CHECK(hoist_budget_used(budget) == 0);
	CHECK(hoist_budget_peak(budget) <= LEAST + 4096);
	hoist_budget_unref(budget);
}

/* --- small tensors of two devices, one of each after the other --- */

static uint64_t n_waits(void)
{
	return lib_calls("cuda", "cuStreamSynchronize") + lib_calls("cuda", "cuEventSynchronize");
}

static void of_two_devices(void)
{
	hoist_device *devices[2];
	hoist_buffer *buffers[2];
	const int64_t n = 1 << 20;
	const int64_t part = 1 << 10;
	unsigned char want[1 << 10];
	hoist_save *save;
	OK(hoist_budget_create(8 << 20, &budget));
	const hoist_save_options options = {.size = sizeof options, .budget = budget};
	const char *path = support_path("m.safetensors");
	OK(hoist_save_create(path, &options, &save));
	for (unsigned d = 0; d < 2; d++) {
		OK(hoist_device_open(d == 0 ? "cuda:0" : "cuda:1", &devices[d]));
		OK(hoist_buffer_create(devices[d], HOIST_U8, 1, &n, 0, &buffers[d]));
		for (int64_t i = 0; i < n / part; i++) {
			memset(want, (int)(i * 2 + d), sizeof want);
			OK(hoist_buffer_write(buffers[d], (size_t)(i * part), want, sizeof want));
		}
	}
	for (int64_t i = 0; i < 2 * n / part; i++) {
		char name[16];
		hoist_buffer *view;
		(void)snprintf(name, sizeof name, "t%06lld", (long long)i);
		OK(hoist_buffer_view(buffers[i % 2], (size_t)(i / 2 * part), HOIST_U8, 1, &part,
				     &view));
		OK(hoist_save_add(save, name, view));
		hoist_buffer_unref(view);
	}
	const struct hoist_emulator_counters before = support_counters("cuda");
	const uint64_t waits = n_waits();
	CHECK(hoist_save_start(save) == 0 && hoist_save_wait(save) == 0);
	/* Each is one copy, for which nobody waits alone. */
	const struct hoist_emulator_counters after = support_counters("cuda");
	CHECK(after.copies - before.copies == (uint64_t)(2 * n / part));
	CHECK(after.pageable_copies == before.pageable_copies);
	CHECK(n_waits() - waits < 100);
	hoist_save_destroy(save);
	struct saved saved;
	OK(saved_read(path, &saved));
	CHECK(saved.n == saved.data + 2 * (size_t)n);
	for (size_t i = 0; i < 2 * (size_t)n; i++)
		CHECK(saved.bytes[saved.data + i] == (unsigned char)(i / (size_t)part));
	saved_free(&saved);
	for (unsigned d = 0; d < 2; d++) {
		hoist_buffer_unref(buffers[d]);
		hoist_device_unref(devices[d]);
	}
	CHECK(hoist_budget_used(budget) == 0);
	hoist_budget_unref(budget);
}

/* --- a device that copies slowly --- */

/* Driver calls of saving the buffer. */
static uint64_t count_calls(hoist_buffer *buffer, enum hoist_engine engine, uint64_t *ret_ns)
{
	const hoist_save_options options = {
		.size = sizeof options, .engine = engine, .flags = HOIST_SAVE_NO_SYNC};
	hoist_save_report report = {.size = sizeof report};
	hoist_save *save;
	OK(hoist_save_create(support_path("m.safetensors"), &options, &save));
	OK(hoist_save_add(save, "t", buffer));
	uint64_t before = support_counters("cuda").calls;
	CHECK(hoist_save_start(save) == 0 && hoist_save_wait(save) == 0);
	uint64_t n = support_counters("cuda").calls - before;
	OK(hoist_save_get_report(save, &report));
	*ret_ns = report.ns;
	hoist_save_destroy(save);
	return n;
}

/* A wait for copies alone ends when the driver says that one has: no one asks in between, but
 * whenever the loop looks whether the save was cancelled, that is every 20 ms. */
static void of_a_slow_one(void)
{
	enum { N_BLOCKS = 5 };
	static const enum hoist_engine engines[] = {HOIST_ENGINE_AUTO, HOIST_ENGINE_THREADS};
	const int64_t n = 4 * N_BLOCKS << 20;
	hoist_buffer *buffer;
	OK(hoist_buffer_create(device, HOIST_U8, 1, &n, 0, &buffer));
	for (size_t e = 0; e < 2; e++) {
		uint64_t ns;
		uint64_t n_fast = count_calls(buffer, engines[e], &ns);
		support_set_rate("cuda", 64 << 20);
		uint64_t n_slow = count_calls(buffer, engines[e], &ns);
		support_set_rate("cuda", 0);
		printf("%" PRIu64 " driver calls in %" PRIu64 " ms; of a fast device %" PRIu64 "\n",
		       n_slow, ns / 1000000, n_fast);
		CHECK(n_slow <= n_fast + 16 * N_BLOCKS + 8 * (ns / 20000000 + 1));
	}
	hoist_buffer_unref(buffer);
}

int main(void)
{
	support_emulate("cuda:2");
	cpu = support_device("cpu");
	device = support_device("cuda:0");
	at_the_least();
	of_a_slow_one();
	hoist_device_unref(device);
	hoist_device_unref(cpu);
	of_two_devices();
	support_cleanup();
	return 0;
}
