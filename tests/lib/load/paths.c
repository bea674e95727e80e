/* SPDX-License-Identifier: MIT */
/* The whole path: {io_uring, threads} x {cpu, emulated cuda, emulated hip} x
 * {direct, cached, auto, map} x {aligned, unaligned, tiny, empty, sharded,
 * 100,000 tensors}, each byte against pread. */
#include "config.h"

#include <string.h>

#include "tests/support/load-support.h"

static const char *const devices[] = {"cpu", "cuda:0", "hip:0"};

/* ThreadSanitizer sees threads, not bytes: fewer ways and tensors show it as much. */
#ifdef __SANITIZE_THREAD__
enum { MANY = 5000, LAST_IO = HOIST_IO_AUTO };
#else
enum { MANY = 100000, LAST_IO = HOIST_IO_MAP };
#endif

static bool uring_refused;

static void load_every_way(const char *path, bool all_io)
{
	for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
		hoist_device *device = support_device(devices[d]);
		for (int engine = HOIST_ENGINE_URING; engine <= HOIST_ENGINE_THREADS; engine++) {
			if (engine == HOIST_ENGINE_URING && uring_refused)
				continue;
			for (int io = HOIST_IO_AUTO;
			     io <= LAST_IO && (all_io || io <= HOIST_IO_DIRECT); io++) {
				const hoist_load_options o = {
					.size = sizeof o,
					.device = device,
					.engine = (enum hoist_engine)engine,
					.io = (enum hoist_io)io,
				};
				hoist_load_report report;
				support_load_and_compare(path, &o, &report);
				CHECK(strcmp(report.device, devices[d]) == 0);
				CHECK(report.emulated == (d > 0));
				CHECK(report.staging_peak_bytes <= report.budget_bytes);
				CHECK(report.pinned_peak_bytes <= report.budget_bytes);
				CHECK(io != HOIST_IO_CACHED || report.direct_bytes == 0);
			}
		}
		hoist_device_unref(device);
	}
}

static void load_file(size_t n, const size_t *sizes, int data_offset, bool all_io)
{
	const char *path = support_path("m.safetensors");
	support_write("m.safetensors", 0, n, sizes, data_offset);
	load_every_way(path, all_io);
	support_cleanup();
}

static void aligned_data(void)
{
	const size_t sizes[] = {4096, 12288, 9 << 20, 4096};
	load_file(4, sizes, 0, true);
}

static void unaligned_data(void)
{
	const size_t sizes[] = {1, 4095, 3, (5 << 20) + 17, 0, 12345, 4 << 20, 7};
	load_file(8, sizes, 1333, true);
}

static void tiny_and_empty_files(void)
{
	const size_t one[] = {1};
	const size_t empty[] = {0, 0};
	load_file(1, one, -1, true);
	load_file(2, empty, -1, true);
	load_file(0, NULL, -1, true);
}

static void shards(void)
{
	const char *const files[] = {"a.safetensors", "b.safetensors", "c.safetensors"};
	const size_t first[] = {0, 3, 4, 8};
	const size_t sizes[] = {1 << 20, 5, 300000, 6 << 20, 0, 11, 70000, 8191};
	for (size_t f = 0; f < 3; f++)
		support_write(files[f], first[f], first[f + 1] - first[f], sizes + first[f],
			      f == 1 ? 0 : -1);
	support_write_index(files, first, 3);
	load_every_way(support_folder(), true);
	support_cleanup();
}

static void many_tensors(void)
{
	size_t *sizes = calloc(MANY, sizeof *sizes);
	CHECK(sizes != NULL);
	for (size_t i = 0; i < MANY; i++)
		sizes[i] = i * 7919 % 203;
	load_file(MANY, sizes, -1, false);
	free(sizes);
}

static void part_of_a_checkpoint(void)
{
	enum { N = 200 };
	size_t sizes[N];
	for (size_t i = 0; i < N; i++)
		sizes[i] = 50000 + i;
	const char *path = support_path("m.safetensors");
	support_write("m.safetensors", 0, N, sizes, -1);
	const char *const globs[] = {"t00001?", "t000100", "t0001[5-7]0", "t000199"};
	for (size_t d = 0; d < sizeof devices / sizeof devices[0]; d++) {
		hoist_load_report report;
		hoist_load_options o = {
			.size = sizeof o, .tensors = globs, .n_tensors = 4, .io = HOIST_IO_DIRECT};
		OK(hoist_device_open(devices[d], &o.device));
		support_load_and_compare(path, &o, &report);
		CHECK(report.n_tensors == 15);
		/* Each of the 6 runs of tensors reads its own bytes, and its edges. */
		CHECK(report.direct_bytes + report.cached_bytes <= report.bytes + 6 * 8192);
		o.io = HOIST_IO_MAP;
		support_load_and_compare(path, &o, &report);
		hoist_device_unref(o.device);
	}
	support_cleanup();
}

static void nothing_pageable_nothing_left(void)
{
	for (size_t d = 1; d < sizeof devices / sizeof devices[0]; d++) {
		const char *api = d == 1 ? "cuda" : "hip";
		struct hoist_emulator_counters c = support_counters(api);
		CHECK(c.pageable_copies == 0);
		CHECK(c.bad_copies == 0);
		CHECK(c.bad_frees == 0);
		CHECK(c.use_after_free == 0);
		CHECK(c.live_bytes == 0 ||
		      c.live_bytes <= 64u << 20); /* a pool may keep a region */
	}
}

int main(void)
{
	support_emulate("cuda:1,hip:1");
	const size_t one[] = {1};
	support_write("probe.safetensors", 0, 1, one, -1);
	const char *path = support_path("probe.safetensors");
	hoist_checkpoint *checkpoint = support_open(path);
	hoist_load *load;
	const hoist_load_options o = {.size = sizeof o, .engine = HOIST_ENGINE_URING};
	OK(hoist_load_start(checkpoint, &o, &load));
	uring_refused = hoist_load_wait(load) < 0;
	if (uring_refused)
		fprintf(stderr, "without io_uring: %s\n", hoist_error());
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	support_cleanup();

	aligned_data();
	unaligned_data();
	tiny_and_empty_files();
	shards();
	part_of_a_checkpoint();
	many_tensors();
	nothing_pageable_nothing_left();
	return 0;
}
