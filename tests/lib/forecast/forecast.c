/* SPDX-License-Identifier: MIT */
/* Forecasts of loads whose figures are known, line for line; refusals, which are those of the load;
 * the line for a log.  The linker (--wrap) sends the library's questions about the page cache
 * through this program.  lib/load/model compares random forecasts with their loads. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "io/file.h"
#include "tests/support/load-support.h"
#include "tests/support/wrap.h"

enum { ROWS = 256, COLUMNS = 1024, FLOATS = ROWS * COLUMNS * 4, BYTES = 100000, REST = 24000 };

static hoist_device *devices[2]; /* cuda:0, cuda:1 */
static hoist_checkpoint *checkpoint;
static bool hot;     /* all is in the page cache, or nothing */
static bool unknown; /* the kernel does not say */

WRAP(int, hoist__file_resident,
     (const struct hoist__file *file, uint64_t offset, uint64_t bytes, uint64_t *ret))
{
	(void)file;
	(void)offset;
	*ret = hot ? bytes : 0;
	return unknown ? -ENOTSUP : 0;
}

WRAP(int, hoist__file_resident_ahead,
     (const struct hoist__file *file, struct hoist__resident_window *window, uint64_t offset,
      uint64_t bytes, uint64_t end, uint64_t *ret))
{
	(void)window;
	(void)end;
	return __wrap_hoist__file_resident(file, offset, bytes, ret);
}

/* "w" f32 of [ROWS, COLUMNS], "b" u8 of [BYTES], and a file's "rest" that lies in between. */
static void write_file(void)
{
	static unsigned char bytes[FLOATS + REST + BYTES];
	char header[512];
	(void)snprintf(header, sizeof header,
		       "{\"w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
		       "\"rest\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]},"
		       "\"b\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[%d,%d]}}",
		       ROWS, COLUMNS, FLOATS, REST, FLOATS, FLOATS + REST, BYTES, FLOATS + REST,
		       FLOATS + REST + BYTES);
	support_put_safetensors("f.safetensors", header, bytes, sizeof bytes);
	checkpoint = support_open("f.safetensors");
}

static hoist_forecast forecast(const hoist_load_options *o)
{
	hoist_forecast f = {.size = sizeof f};
	OK(hoist_load_forecast(checkpoint, o, &f));
	return f;
}

static bool says(const hoist_forecast *f, const char *piece)
{
	char line[2048];
	size_t n = hoist_forecast_explain(f, line, sizeof line);
	CHECK(n == strlen(line));
	if (strstr(line, piece) == NULL)
		(void)fprintf(stderr, "\"%s\" is not in: %s\n", piece, line);
	return strstr(line, piece) != NULL;
}

/* --- loads whose figures are known --- */

static const char *const b[] = {"b"};
static const char *const w_and_b[] = {"w", "b"};
static const hoist_load_slice columns = {.tensor = "w", .axis = 1, .n_ranks = 4, .rank = 1};

static const struct known {
	const char *what;
	hoist_load_options o;
	int device; /* of `devices`; -1: the CPU */
	bool hot;
	uint64_t bytes, destination, least_read, most_read, mapped, straight, staged, converted;
	uint64_t n_reads;
	size_t slot_bytes;
} known[] = {
	{"all to the CPU, hot",
	 {0},
	 -1,
	 true,
	 FLOATS + REST + BYTES,
	 0,
	 FLOATS + REST + BYTES,
	 FLOATS + REST + BYTES + 8192,
	 0,
	 FLOATS + REST + BYTES,
	 0,
	 0,
	 0,
	 0},
	{"one to the CPU, in reads of 4 KiB",
	 {.tensors = b, .n_tensors = 1, .chunk_bytes = 4096},
	 -1,
	 true,
	 BYTES,
	 0,
	 BYTES,
	 BYTES + 4096,
	 0,
	 BYTES,
	 0,
	 0,
	 26,
	 0},
	{"maps",
	 {.io = HOIST_IO_MAP},
	 -1,
	 false,
	 FLOATS + REST + BYTES,
	 0,
	 0,
	 0,
	 FLOATS + REST + BYTES,
	 0,
	 0,
	 0,
	 0,
	 0},
	{"a map of one",
	 {.io = HOIST_IO_MAP, .tensors = b, .n_tensors = 1},
	 -1,
	 false,
	 BYTES,
	 0,
	 0,
	 0,
	 BYTES,
	 0,
	 0,
	 0,
	 0,
	 0},
	{"nothing", {.tensors = b, .n_tensors = 0}, -1, false, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	{"halves to a device",
	 {.dtype = HOIST_F16, .chunk_bytes = 64 << 10},
	 0,
	 false,
	 FLOATS + REST + BYTES,
	 FLOATS / 2 + REST + BYTES,
	 FLOATS + REST + BYTES,
	 FLOATS + REST + BYTES + 8192 * 20,
	 0,
	 0,
	 FLOATS + REST + BYTES,
	 FLOATS,
	 0,
	 64 << 10},
	{"a gap too large to read through",
	 {.tensors = w_and_b, .n_tensors = 2},
	 0,
	 false,
	 FLOATS + BYTES,
	 FLOATS + BYTES,
	 FLOATS + BYTES,
	 FLOATS + BYTES + 2 * 8192,
	 0,
	 0,
	 FLOATS + BYTES,
	 0,
	 2,
	 2 << 20},
	{"a quarter of the columns, cold: gaps are read through",
	 {.tensors = w_and_b, .n_tensors = 1, .slices = &columns, .n_slices = 1},
	 0,
	 false,
	 FLOATS / 4,
	 FLOATS / 4,
	 FLOATS - COLUMNS * 3,
	 FLOATS + 8192,
	 0,
	 0,
	 FLOATS / 4,
	 0,
	 1,
	 2 << 20},
	{"a quarter of the columns, hot: rows go straight to their places",
	 {.tensors = w_and_b, .n_tensors = 1, .slices = &columns, .n_slices = 1},
	 -1,
	 true,
	 FLOATS / 4,
	 FLOATS / 4,
	 FLOATS / 4,
	 FLOATS / 4,
	 0,
	 FLOATS / 4,
	 0,
	 0,
	 1,
	 0},
};

static void check_known(const struct known *k)
{
	hoist_load_options o = k->o;
	o.size = sizeof o;
	o.device = k->device >= 0 ? devices[k->device] : NULL;
	if (strcmp(k->what, "nothing") == 0)
		o.tensors = b;
	hot = k->hot;
	const hoist_forecast f = forecast(&o);
	const uint64_t read = f.direct_bytes + f.cached_bytes;
	bool right = f.bytes == k->bytes && read >= k->least_read && read <= k->most_read &&
		     f.mapped_bytes == k->mapped && f.straight_bytes == k->straight &&
		     f.staged_bytes == k->staged && f.converted_bytes == k->converted &&
		     f.resident_bytes == (k->hot ? f.cached_bytes : 0) &&
		     (k->n_reads == 0 || f.n_reads == k->n_reads) &&
		     f.slot_bytes == k->slot_bytes && (f.n_slots >= 2) == (k->slot_bytes > 0) &&
		     f.n_files == (k->bytes > 0) && f.n_targets == 1 && f.fits && f.residency;
	/* Padding between tensors is the destination's, too. */
	right = right && f.targets[0].bytes >= k->destination &&
		f.targets[0].bytes <=
			k->destination + 8192 + (k->destination == 0 ? 2 * (uint64_t)FLOATS : 0);
	if (!right)
		(void)fprintf(
			stderr,
			"%s: %llu bytes, %llu read, %llu mapped, %llu straight, %llu staged, "
			"%llu converted, %llu in the page cache, %llu reads, %zu slots of %zu, "
			"%llu files, %llu of %llu bytes\n",
			k->what, (unsigned long long)f.bytes, (unsigned long long)read,
			(unsigned long long)f.mapped_bytes, (unsigned long long)f.straight_bytes,
			(unsigned long long)f.staged_bytes, (unsigned long long)f.converted_bytes,
			(unsigned long long)f.resident_bytes, (unsigned long long)f.n_reads,
			f.n_slots, f.slot_bytes, (unsigned long long)f.n_files,
			(unsigned long long)f.targets[0].bytes,
			(unsigned long long)f.targets[0].free_bytes);
	CHECK(right);
}

/* --- a budget, a window, memory that does not suffice --- */

static void check_bounds(void)
{
	hoist_load_options o = {.size = sizeof o, .device = devices[0]};
	OK(hoist_budget_create(256 << 10, &o.budget));
	hoist_forecast f = forecast(&o);
	CHECK(f.budget_bytes == 256 << 10 && f.n_slots == 2 && f.slot_bytes == 128 << 10);
	CHECK(says(&f, " through 2 slots of 0.131 MB"));
	CHECK(hoist_budget_used(o.budget) == 0 && hoist_budget_peak(o.budget) == 0);
	hoist_budget_unref(o.budget);
	OK(hoist_budget_create(64 << 10, &o.budget));
	CHECK(hoist_load_forecast(checkpoint, &o, &f) == -EDQUOT);
	support_said("raise the budget");
	hoist_budget_unref(o.budget);
	o = (hoist_load_options){.size = sizeof o,
				 .device = devices[0],
				 .flags = HOIST_LOAD_STREAM,
				 .window_bytes = FLOATS + 1};
	f = forecast(&o);
	CHECK(f.targets[0].bytes == FLOATS + 1);
	o.window_bytes = 1;
	f = forecast(&o);
	CHECK(f.targets[0].bytes >= FLOATS && f.targets[0].bytes < FLOATS + REST);
	/* The devices have 64 MiB each. */
	static const size_t large = (size_t)70 << 20;
	support_write("large.safetensors", 0, 1, &large, -1);
	hoist_checkpoint *small = checkpoint;
	checkpoint = support_open("large.safetensors");
	o = (hoist_load_options){.size = sizeof o, .device = devices[0]};
	f = forecast(&o);
	CHECK(!f.fits && f.targets[0].bytes == large && f.targets[0].free_bytes < large);
	CHECK(says(&f, "TOO LITTLE"));
	hoist_checkpoint_close(checkpoint);
	checkpoint = small;
}

/* Two targets on one device take their bytes from the same memory; a stranger's answer is none. */
static void check_rest(void)
{
	hoist_device *replicas[] = {devices[1]};
	hoist_load_options o = {
		.size = sizeof o, .device = devices[0], .replicas = replicas, .n_replicas = 1};
	unknown = true;
	hoist_forecast f = forecast(&o);
	CHECK(f.n_targets == 2 && !f.residency && f.resident_bytes == 0);
	CHECK(strcmp(f.targets[1].device, "cuda:1") == 0 && f.targets[1].emulated);
	CHECK(f.targets[0].n_tensors == 3 && f.targets[1].bytes == f.targets[0].bytes);
	CHECK(says(&f, " and cuda:1 (emulated), ") && says(&f, "0.001 GB in 3 tensors to cuda:0"));
	unknown = false;
	/* A caller of an older header has fewer fields, and a short line is cut. */
	char line[12];
	hoist_forecast short_one = {.size = offsetof(hoist_forecast, n_reads)};
	OK(hoist_load_forecast(checkpoint, &o, &short_one));
	CHECK(short_one.bytes == f.bytes && short_one.n_reads == 0);
	CHECK(hoist_forecast_explain(&f, line, sizeof line) > sizeof line &&
	      strlen(line) == sizeof line - 1);
	CHECK(hoist_forecast_explain(&f, NULL, 0) > sizeof line);
	f.size = sizeof f + 8;
	CHECK(hoist_load_forecast(checkpoint, &o, &f) == -EINVAL);
	support_said("hoist_forecast");
	CHECK(hoist_load_forecast(NULL, &o, &short_one) == -EINVAL);
	CHECK(hoist_load_forecast(checkpoint, &o, NULL) == -EINVAL);
}

/* --- refusals are the load's --- */

static void check_refusals(void)
{
	static const char *const none[] = {"none"};
	hoist_memory *there = NULL;
	hoist_buffer *buffer = NULL;
	hoist_buffer *lower = NULL;
	hoist_device *cpu = support_device("cpu");
	const int64_t shape[] = {ROWS, COLUMNS};
	const hoist_memory_options options = {
		.size = sizeof options, .kind = HOIST_MEMORY_DEVICE, .device = devices[0]};
	OK(hoist_memory_create(&options, &there));
	OK(hoist_buffer_create(cpu, HOIST_F32, 2, shape, 0, &buffer));
	OK(hoist_buffer_create(cpu, HOIST_I8, 2, shape, 0, &lower));
	const hoist_load_into twice[] = {{"w", buffer}, {"w", buffer}};
	const hoist_load_into other = {"w", lower};
	const hoist_load_options refused[] = {
		{.tensors = none, .n_tensors = 1},
		{.flags = 1u << 30},
		{.chunk_bytes = 4095},
		{.window_bytes = 1},
		{.order = none, .n_order = 1},
		{.dtype = HOIST_I32},
		{.flags = HOIST_LOAD_VERIFY},
		{.io = HOIST_IO_MAP, .dtype = HOIST_F16},
		{.io = HOIST_IO_MAP, .flags = HOIST_LOAD_DIGEST},
		{.memory = there},
		{.device = devices[1], .memory = there},
		{.into = twice, .n_into = 2},
		{.into = &other, .n_into = 1},
		{.slices = &columns, .n_slices = 1, .flags = HOIST_LOAD_DIGEST},
	};
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		hoist_load_options o = refused[i];
		hoist_load *load = NULL;
		hoist_forecast f = {.size = sizeof f};
		char text[1024];
		o.size = sizeof o;
		int err = hoist_load_start(checkpoint, &o, &load);
		(void)snprintf(text, sizeof text, "%s", hoist_error());
		CHECK(err < 0 && load == NULL);
		if (hoist_load_forecast(checkpoint, &o, &f) != err)
			(void)fprintf(stderr, "number %zu: not %d\n", i, err);
		CHECK(hoist_load_forecast(checkpoint, &o, &f) == err && f.bytes == 0);
		CHECK(strcmp(hoist_error(), text) == 0);
	}
	const hoist_load_into into = {"w", buffer};
	const hoist_load_options o = {.size = sizeof o, .into = &into, .n_into = 1};
	hot = true;
	const hoist_forecast f = forecast(&o);
	CHECK(f.targets[0].bytes == 0 && f.bytes == FLOATS &&
	      f.straight_bytes + f.staged_bytes == FLOATS);
	hoist_buffer_unref(buffer);
	hoist_buffer_unref(lower);
	hoist_memory_unref(there);
	hoist_device_unref(cpu);
}

int main(void)
{
	support_emulate("cuda:2");
	setenv("HOIST_EMULATE_MEMORY", "64M", 1);
	devices[0] = support_device("cuda:0");
	devices[1] = support_device("cuda:1");
	write_file();
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		check_known(&known[i]);
	check_bounds();
	check_rest();
	check_refusals();
	const struct hoist_emulator_counters seen = support_counters("cuda");
	CHECK(seen.copies == 0 && seen.live_registered_bytes == 0 && seen.live_streams == 0);
	hoist_checkpoint_close(checkpoint);
	hoist_device_unref(devices[0]);
	hoist_device_unref(devices[1]);
	support_cleanup();
	return 0;
}
