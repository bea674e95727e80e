/* SPDX-License-Identifier: MIT */
/* Slices of cached files to devices, and streamed to the host: no byte between the rows is read,
 * and the tensors have the bytes of the file. */
#include "config.h"

#include <string.h>

#include "tests/support/load-support.h"
#include "tests/support/page-cache.h"
#include "tests/support/patience.h"
#include "tests/support/random.h"

enum { ROWS = 1200, COLUMNS = 16384, BYTES = ROWS * COLUMNS, MOST = 2, HALVES = 32 };

struct way {
	const char *name;
	const char *devices[MOST]; /* NULL: none */
	int64_t begin[MOST];
	int64_t end[MOST];
	size_t chunk_bytes;
	unsigned flags;
	bool all;      /* gaps are read, too */
	bool converts; /* another tensor, to f32 */
};

static unsigned char *bytes;
static hoist_device *cpu;

static void write_file(void)
{
	const size_t all = BYTES + 2 * HALVES;
	char header[256];
	uint64_t random = 7;
	bytes = malloc(all);
	CHECK(bytes != NULL);
	random_fill(&random, bytes, all);
	(void)snprintf(header, sizeof header,
		       "{\"w\":{\"dtype\":\"U8\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
		       "\"h\":{\"dtype\":\"F16\",\"shape\":[%d],\"data_offsets\":[%d,%zu]}}",
		       ROWS, COLUMNS, BYTES, HALVES, BYTES, all);
	support_put_safetensors("rows.safetensors", header, bytes, all);
}

static void compare(hoist_buffer *buffer, int64_t begin, int64_t end)
{
	hoist_buffer *here = NULL;
	size_t row = (size_t)(end - begin);
	OK(hoist_buffer_to(buffer, cpu, &here));
	const unsigned char *is = (const unsigned char *)hoist_buffer_address(here);
	CHECK(hoist_buffer_bytes(here) == ROWS * row);
	for (size_t r = 0; r < ROWS; r++)
		CHECK(memcmp(is + r * row, bytes + r * COLUMNS + begin, row) == 0);
	hoist_buffer_unref(here);
}

static void take_all(const struct way *way, hoist_load *load)
{
	bool streams = (way->flags & HOIST_LOAD_STREAM) != 0;
	hoist_load_item item = {.size = sizeof item};
	while (streams && hoist_load_next(load, UINT64_MAX, &item) == 1) {
		compare(item.buffer, way->begin[item.target], way->end[item.target]);
		hoist_buffer_unref(item.buffer);
	}
	OK(hoist_load_wait(load));
	for (size_t t = 0; !streams && t < hoist_load_n_targets(load); t++) {
		hoist_buffer *buffer = NULL;
		OK(hoist_load_target_tensor(load, t, 0, NULL, &buffer));
		compare(buffer, way->begin[t], way->end[t]);
		hoist_buffer_unref(buffer);
	}
}

static hoist_load_report load_once(const struct way *way)
{
	static const char *const names[] = {"w", "h"};
	hoist_checkpoint *checkpoint = support_open("rows.safetensors");
	hoist_device *devices[MOST] = {NULL};
	hoist_load_slice slices[MOST];
	hoist_load_target targets[MOST];
	const hoist_load_target *pointers[MOST];
	hoist_load *load = NULL;
	size_t n = 0;
	for (; n < MOST && way->devices[n] != NULL; n++) {
		devices[n] = support_device(way->devices[n]);
		slices[n] = (hoist_load_slice){
			.tensor = "w", .axis = 1, .begin = way->begin[n], .end = way->end[n]};
		targets[n] = (hoist_load_target){.size = sizeof targets[n],
						 .device = devices[n],
						 .tensors = names,
						 .n_tensors = way->converts ? 2 : 1,
						 .dtype = way->converts ? HOIST_F32 : 0,
						 .slices = &slices[n],
						 .n_slices = 1};
		pointers[n] = &targets[n];
	}
	const hoist_load_options o = {.size = sizeof o,
				      .targets = pointers,
				      .n_targets = n,
				      .chunk_bytes = way->chunk_bytes,
				      .flags = way->flags};
	OK(hoist_load_start(checkpoint, &o, &load));
	take_all(way, load);
	const hoist_load_report report = support_report(load);
	hoist_load_destroy(load);
	hoist_checkpoint_close(checkpoint);
	for (size_t t = 0; t < n; t++)
		hoist_device_unref(devices[t]);
	return report;
}

/* Loads again while pages leave the cache before they are looked for. */
static void load_cached(const struct way *way)
{
	hoist_load_report report;
	uint64_t until = 0;
	bool exact;
	do {
		page_cache_fill(support_path("rows.safetensors"));
		report = load_once(way);
		/* Elements that are converted are read in whole blocks. */
		uint64_t more = way->converts ? 4096 : 0;
		exact = report.direct_bytes == 0 && report.cached_bytes >= report.bytes &&
			report.cached_bytes <= report.bytes + more;
	} while (!exact && !way->all && patience(&until));
	printf("%s: %llu of %llu bytes, %llu reads\n", way->name,
	       (unsigned long long)report.cached_bytes, (unsigned long long)report.bytes,
	       (unsigned long long)report.n_reads);
	CHECK(exact == !way->all);
	page_cache_drop(support_path("rows.safetensors"), 0, 0);
	(void)load_once(way);
}

int main(void)
{
	static const struct way ways[] = {
		{.name = "a device", .devices = {"cuda:0"}, .begin = {2048}, .end = {4096}},
		{.name = "small slots",
		 .devices = {"cuda:0"},
		 .begin = {7},
		 .end = {1900},
		 .chunk_bytes = 65536,
		 .flags = HOIST_LOAD_CALLER_DRIVEN},
		{.name = "two devices, one slice",
		 .devices = {"cuda:0", "cuda:1"},
		 .begin = {2048, 2048},
		 .end = {4096, 4096}},
		{.name = "two devices",
		 .devices = {"cuda:0", "cuda:1"},
		 .begin = {2048, 9000},
		 .end = {4096, 12000}},
		{.name = "two devices, and elements that are converted",
		 .devices = {"cuda:0", "cuda:1"},
		 .begin = {2048, 9000},
		 .end = {4096, 12000},
		 .converts = true},
		{.name = "a device, streamed",
		 .devices = {"cuda:0"},
		 .begin = {2048},
		 .end = {4096},
		 .flags = HOIST_LOAD_STREAM},
		{.name = "the host, streamed",
		 .devices = {"cpu"},
		 .begin = {2048},
		 .end = {4096},
		 .flags = HOIST_LOAD_STREAM},
		/* Reading the gaps costs no more than leaving them out. */
		{.name = "most of the file",
		 .devices = {"cuda:0"},
		 .begin = {1},
		 .end = {16000},
		 .all = true},
		{.name = "a device and the host",
		 .devices = {"cuda:0", "cpu"},
		 .begin = {2048, 2048},
		 .end = {4096, 4096},
		 .all = true},
	};
	support_emulate("cuda:2");
	cpu = support_device("cpu");
	write_file();
	for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
		load_cached(&ways[i]);
	support_check_copies("cuda");
	free(bytes);
	hoist_device_unref(cpu);
	support_cleanup();
	return 0;
}
