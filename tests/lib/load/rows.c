/* SPDX-License-Identifier: MIT */
/* Slices of cached files: rows go straight to their places, without a slot, and have the bytes that
 * this program reads by itself; where the rows are not cached or are short, slots take them.  Files
 * that are cached in part, shrink or cannot be read.  The linker sends the library's reads through
 * here (--wrap). */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/support/load-support.h"
#include "tests/support/page-cache.h"
#include "tests/support/patience.h"
#include "tests/support/random.h"
#include "tests/support/wrap.h"

#define STRAIGHT "took rows straight to their places"

static const struct shape {
	const char *name;
	int rank;
	int64_t extents[3];
} shapes[] = {
	{"a", 2, {700, 16384}},	  {"b", 2, {60, 131072}}, {"c", 2, {5000, 2000}},
	{"d", 3, {20, 30, 8192}}, {"e", 1, {3000000}},
};
#define N (sizeof shapes / sizeof shapes[0])

static char path[512];
static uint64_t data_at; /* in the file */
static uint64_t data_bytes;

static uint64_t bytes_of(const struct shape *shape)
{
	uint64_t n = 1;
	for (int a = 0; a < shape->rank; a++)
		n *= (uint64_t)shape->extents[a];
	return n;
}

/* Writes the checkpoint, of pseudo-random bytes, to its disk. */
static void write_file(void)
{
	char header[1024] = "{";
	uint64_t at = 0, random = 5;
	for (size_t i = 0; i < N; i++) {
		size_t n = strlen(header);
		uint64_t end = at + bytes_of(&shapes[i]);
		n += (size_t)snprintf(header + n, sizeof header - n,
				      "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[", i > 0 ? "," : "",
				      shapes[i].name);
		for (int a = 0; a < shapes[i].rank; a++)
			n += (size_t)snprintf(header + n, sizeof header - n, "%s%lld",
					      a > 0 ? "," : "", (long long)shapes[i].extents[a]);
		(void)snprintf(header + n, sizeof header - n, "],\"data_offsets\":[%llu,%llu]}%s",
			       (unsigned long long)at, (unsigned long long)end,
			       i + 1 == N ? "}" : "");
		at = end;
	}
	unsigned char *data = malloc(at);
	CHECK(data != NULL);
	random_fill(&random, data, at);
	(void)snprintf(path, sizeof path, "%s/rows.safetensors", support_folder());
	support_put_safetensors("rows.safetensors", header, data, at);
	free(data);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && fsync(fd) == 0);
	data_at = (uint64_t)lseek(fd, 0, SEEK_END) - at;
	data_bytes = at;
	close(fd);
}

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);

/* --- the calls --- */

static atomic_uint n_preads; /* of rows: none has so many bytes as a chunk */
static _Atomic uint64_t bad_begin, bad_end;
static _Atomic uint64_t cut_at; /* the file is cut here when a row is read; 0: not */

static bool is_bad(off_t offset, size_t bytes)
{
	return bad_begin < bad_end && (uint64_t)offset < bad_end &&
	       (uint64_t)offset + bytes > bad_begin;
}

static void note_row(void)
{
	atomic_fetch_add(&n_preads, 1);
	uint64_t at = atomic_exchange(&cut_at, 0);
	if (at != 0)
		OK(truncate(path, (off_t)at));
}

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	note_row();
	if (is_bad(offset, bytes)) {
		errno = EIO;
		return -1;
	}
	return __real_pread(fd, to, bytes, offset);
}

WRAP(ssize_t, preadv, (int fd, const struct iovec *to, int n, off_t offset))
{
	size_t bytes = 0;
	for (int i = 0; i < n; i++)
		bytes += to[i].iov_len;
	note_row();
	if (is_bad(offset, bytes)) {
		errno = EIO;
		return -1;
	}
	return __real_preadv(fd, to, n, offset);
}

/* --- values --- */

/* Compares a slice of one axis with rows that this program reads. */
static void compare(hoist_load *load, const struct shape *shape, int axis, int64_t begin,
		    int64_t end)
{
	hoist_buffer *buffer;
	const struct shape *s = shapes;
	uint64_t at = data_at;
	for (; s != shape; s++)
		at += bytes_of(s);
	uint64_t inner = 1, outer = 1;
	for (int a = 0; a < shape->rank; a++) {
		outer *= a < axis ? (uint64_t)shape->extents[a] : 1;
		inner *= a > axis ? (uint64_t)shape->extents[a] : 1;
	}
	size_t row = (size_t)((uint64_t)(end - begin) * inner);
	uint64_t stride = (uint64_t)shape->extents[axis] * inner;
	OK(hoist_load_buffer(load, shape->name, &buffer));
	CHECK(hoist_buffer_bytes(buffer) == row * outer);
	const unsigned char *got = (const unsigned char *)hoist_buffer_address(buffer);
	unsigned char *want = malloc(row);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(want != NULL && fd >= 0);
	for (uint64_t r = 0; r < outer; r++) {
		off_t from = (off_t)(at + r * stride + (uint64_t)begin * inner);
		CHECK(__real_pread(fd, want, row, from) == (ssize_t)row);
		CHECK(memcmp(want, got + r * row, row) == 0);
	}
	close(fd);
	free(want);
	hoist_buffer_unref(buffer);
}

static const struct {
	const char *name;
	int axis;
	int64_t begin, end;
	bool straight; /* if it is cached */
} cuts[] = {
	{"a", 1, 2048, 4096, true},   {"a", 1, 0, 16383, true},	       {"a", 1, 7, 600, true},
	{"b", 1, 49152, 65536, true}, {"b", 1, 1, 131071, true},       {"c", 1, 5, 1990, true},
	{"c", 1, 100, 200, false},    {"d", 2, 4096, 8192, true},      {"d", 1, 3, 5, true},
	{"d", 1, 0, 29, true},	      {"e", 0, 12345, 2500000, false},
};
#define N_CUTS (sizeof cuts / sizeof cuts[0])

static const struct shape *shape_of(const char *name)
{
	const struct shape *shape = shapes;
	while (strcmp(shape->name, name) != 0)
		shape++;
	return shape;
}

/* Loads one cut.  Returns: its report. */
static hoist_load_report cut(size_t i, hoist_load_options o)
{
	const hoist_load_slice slice = {.tensor = cuts[i].name,
					.axis = cuts[i].axis,
					.begin = cuts[i].begin,
					.end = cuts[i].end};
	o.size = sizeof o;
	o.slices = &slice;
	o.n_slices = 1;
	o.tensors = &slice.tensor;
	o.n_tensors = 1;
	n_preads = 0;
	hoist_load *load = support_load(path, &o);
	hoist_load_report report = support_report(load);
	compare(load, shape_of(cuts[i].name), cuts[i].axis, cuts[i].begin, cuts[i].end);
	hoist_load_destroy(load);
	return report;
}

static bool went_straight(const hoist_load_report *report)
{
	return strstr(report->io_reason, STRAIGHT) != NULL;
}

static bool without_slots(const hoist_load_report *report)
{
	return went_straight(report) && report->staging_peak_bytes == 0;
}

/* Tells whether a load took nothing but rows that were cached. */
static bool all_straight(const hoist_load_report *report)
{
	return without_slots(report) && report->cached_bytes == report->bytes;
}

/* Loads a cut of the cached file, again while pages leave the cache before they are looked for. */
static hoist_load_report cut_cached(size_t i, hoist_load_options o, bool straight)
{
	hoist_load_report report;
	uint64_t until = 0;
	do {
		page_cache_fill(path);
		report = cut(i, o);
	} while (straight && !all_straight(&report) && patience(&until));
	return report;
}

static void cached_rows(void)
{
	static const enum hoist_engine engines[] = {HOIST_ENGINE_AUTO, HOIST_ENGINE_THREADS};
	const bool has_direct =
		cut(0, (hoist_load_options){.io = HOIST_IO_DIRECT}).direct_bytes > 0;
	for (size_t e = 0; e < 2; e++)
		for (size_t i = 0; i < N_CUTS; i++)
			for (unsigned io = HOIST_IO_AUTO; io <= HOIST_IO_CACHED; io++) {
				const hoist_load_options o = {.engine = engines[e],
							      .io = (enum hoist_io)io,
							      .chunk_bytes = i % 2 * 65536};
				bool direct = io == HOIST_IO_DIRECT && has_direct;
				bool straight = cuts[i].straight && !direct;
				const hoist_load_report report = cut_cached(i, o, straight);
				CHECK(went_straight(&report) == straight);
				CHECK(!straight || (n_preads > 0 && all_straight(&report)));
			}
}

/* Several slices, and whole tensors between them, at once; into memory of a resource, too. */
static void all_at_once(void)
{
	const hoist_load_slice slices[] = {
		{.tensor = "a", .axis = 1, .begin = 100, .end = 9000},
		{.tensor = "b", .axis = 1, .rank = 3, .n_ranks = 8},
		{.tensor = "d", .axis = 2, .begin = 17, .end = 8000},
	};
	const hoist_memory_options options = {.size = sizeof options, .kind = HOIST_MEMORY_HOST};
	hoist_memory *memory;
	OK(hoist_memory_create(&options, &memory));
	for (int i = 0; i < 4; i++) {
		hoist_load_options o = {.size = sizeof o,
					.slices = slices,
					.n_slices = 3,
					.memory = i % 2 == 0 ? NULL : memory,
					.engine = i < 2 ? HOIST_ENGINE_AUTO : HOIST_ENGINE_THREADS};
		hoist_load *load = NULL;
		hoist_load_report report;
		uint64_t until = 0;
		do {
			hoist_load_destroy(load);
			page_cache_fill(path);
			load = support_load(path, &o);
			report = support_report(load);
		} while (!without_slots(&report) && patience(&until));
		CHECK(without_slots(&report));
		compare(load, &shapes[0], 1, 100, 9000);
		compare(load, &shapes[1], 1, 49152, 65536);
		compare(load, &shapes[2], 0, 0, 5000);
		compare(load, &shapes[3], 2, 17, 8000);
		compare(load, &shapes[4], 0, 0, 3000000);
		hoist_load_destroy(load);
	}
	hoist_memory_unref(memory);
}

/* --- not all is cached --- */

static const struct {
	unsigned from, to; /* sixteenths of the file that are not cached */
} table[] = {{0, 16}, {0, 1}, {3, 4}, {2, 16}, {1, 3}, {8, 9}};

/* Whole tensors, in large fresh memory: hot places get their pages from the threads that copy, all
 * others from a populator, in whatever order the two kinds come. */
static void images_cached_in_part(void)
{
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		for (size_t small = 0; small < 2; small++) {
			uint64_t unit = (data_at + data_bytes) / 16;
			page_cache_fill(path);
			page_cache_drop(path, (off_t)(table[i].from * unit),
					(off_t)((table[i].to - table[i].from) * unit));
			hoist_load_options o = {.size = sizeof o, .chunk_bytes = small * 65536};
			hoist_load *load = support_load(path, &o);
			for (size_t s = 0; s < N; s++)
				compare(load, &shapes[s], 0, 0, shapes[s].extents[0]);
			hoist_load_destroy(load);
		}
}

/* Parts of the file are not cached: the load begins straight or in slots, and changes. */
static void cached_in_part(void)
{
	uint64_t random = 99;
	unsigned n_both = 0;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		for (size_t c = 0; c < N_CUTS; c++) {
			uint64_t unit = (data_at + data_bytes) / 16;
			page_cache_fill(path);
			page_cache_drop(path,
					(off_t)(table[i].from * unit + random_below(&random, 9999)),
					(off_t)((table[i].to - table[i].from) * unit));
			const hoist_load_options o = {.engine = c % 2 == 0 ? HOIST_ENGINE_AUTO
									   : HOIST_ENGINE_THREADS};
			const hoist_load_report report = cut(c, o);
			n_both += went_straight(&report) && report.staging_peak_bytes > 0;
		}
	/* A tmpfs keeps all that it is told to forget. */
	page_cache_drop(path, 0, 0);
	const hoist_load_report report = cut(0, (hoist_load_options){0});
	CHECK(n_both > 0 || went_straight(&report));
}

/* --- failures --- */

/* Loads columns of "a" only, cached; that fails, and the text has @piece, the tensor and the file.
 * Reads of pages that left the cache may get by without the calls that fail. */
static void fails(int err, const char *piece)
{
	const hoist_load_slice slice = {.tensor = "a", .axis = 1, .begin = 2048, .end = 4096};
	const hoist_load_options o = {.size = sizeof o,
				      .slices = &slice,
				      .n_slices = 1,
				      .tensors = &slice.tensor,
				      .n_tensors = 1};
	hoist_checkpoint *checkpoint = support_open(path);
	uint64_t until = 0;
	int got;
	do {
		hoist_load *load = NULL;
		page_cache_fill(path);
		OK(hoist_load_start(checkpoint, &o, &load));
		got = hoist_load_wait(load);
		hoist_load_destroy(load);
	} while (got == 0 && patience(&until));
	CHECK(got == err);
	support_said(piece);
	support_said("tensor \"a\"");
	support_said(path);
	hoist_checkpoint_close(checkpoint);
}

/* Bytes of a row that cannot be read, by any call; bytes of a gap, which no call needs. */
static void bad_row(void)
{
	char piece[64];
	uint64_t begin = data_at + 100 * 16384 + 2048;
	bad_end = begin + 2048;
	bad_begin = begin;
	(void)snprintf(piece, sizeof piece, "at byte %llu", (unsigned long long)begin);
	fails(-EIO, piece);
	bad_end = begin - 10;
	bad_begin = begin - 1000;
	const hoist_load_report report = cut_cached(0, (hoist_load_options){0}, true);
	CHECK(all_straight(&report));
	bad_begin = bad_end;
}

/* The file is cut while the first row is read.  Runs last: the file is spoilt. */
static void shrinks(void)
{
	char piece[64];
	uint64_t at = data_at + 650 * 16384 + 3000;
	(void)snprintf(piece, sizeof piece, "ends at byte %llu", (unsigned long long)at);
	cut_at = at;
	fails(-ENODATA, piece);
	CHECK(cut_at == 0);
}

int main(void)
{
	write_file();
	cached_rows();
	all_at_once();
	images_cached_in_part();
	cached_in_part();
	bad_row();
	shrinks();
	support_cleanup();
	return 0;
}
