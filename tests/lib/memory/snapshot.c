/* SPDX-License-Identifier: MIT */
/* Snapshots of memory resources, read back by jansson: they are JSON, they add up, they take any
 * name, and a snapshot arrives whole through small writes. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/clock.h"
#include "numa/residence.h"
#include "tests/support/lib-unit.h"

#define MIB ((size_t)1 << 20)
#define MANY 100000

static int scratch_file(void)
{
	char *path = strdup(temporary("snapshot.XXXXXX"));
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	unlink(path);
	free(path);
	return fd;
}

static json_t *parse(const char *text, size_t n)
{
	json_error_t error;
	json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
	cr_assert_not_null(json, "%s at byte %d of %.300s", error.text, error.position, text);
	return json;
}

static json_t *snapshot(hoist_memory *memory)
{
	int fd = scratch_file();
	OK(hoist_memory_snapshot(memory, fd));
	off_t n = lseek(fd, 0, SEEK_END);
	cr_assert_gt(n, 0);
	char *text = malloc((size_t)n);
	cr_assert_eq(pread(fd, text, (size_t)n, 0), n);
	cr_expect_eq(text[n - 1], '\n');
	json_t *json = parse(text, (size_t)n);
	free(text);
	close(fd);
	return json;
}

static const char *text_of(const json_t *json, const char *key)
{
	const char *text = json_string_value(json_object_get(json, key));
	cr_assert_not_null(text, "no string %s", key);
	return text;
}

static json_int_t number_of(const json_t *json, const char *key)
{
	const json_t *value = json_object_get(json, key);
	cr_assert(json_is_integer(value), "no number %s", key);
	return json_integer_value(value);
}

/* Bytes, or the requested ones, of blocks in @state. */
static json_int_t sum_of(const json_t *json, const char *state, const char *key)
{
	json_int_t sum = 0;
	size_t i;
	json_t *block;
	json_array_foreach(json_object_get(json, "blocks"), i,
			   block) if (strcmp(text_of(block, "state"), state) == 0) sum +=
		number_of(block, key);
	return sum;
}

Test(snapshot, has_the_defaults)
{
	hoist_memory *memory = make_memory(NULL);
	json_t *json = snapshot(memory);
	const json_t *options = json_object_get(json, "options");
	cr_expect_eq(number_of(options, "region_bytes"), 32 * MIB);
	cr_expect_eq(number_of(options, "keep_bytes"), 256 * MIB);
	cr_expect_eq(number_of(options, "cache_bytes"), 4 * MIB);
	cr_expect_eq(number_of(options, "limit_bytes"), 0);
	json_decref(json);
	hoist_memory_unref(memory);
}

Test(snapshot, adds_up)
{
	hoist_memory *memory =
		make_memory(OPTIONS(.limit_bytes = 512 * MIB, .cache_bytes = 100000));
	static const size_t sizes[] = {1, 100, 5000, 300000, 3 * MIB, 40 * MIB};
	uintptr_t blocks[6];
	for (size_t i = 0; i < 6; i++)
		blocks[i] = alloc(memory, sizes[i], 0);
	uintptr_t cached = alloc(memory, 777, 0);
	OK(hoist_memory_free(memory, cached));
	json_t *json = snapshot(memory);
	const json_t *statistics = json_object_get(json, "statistics");
	cr_expect_str_eq(text_of(json, "kind"), "host");
	cr_expect_str_eq(text_of(json, "device"), "cpu");
	const json_t *options = json_object_get(json, "options");
	cr_expect_eq(number_of(options, "limit_bytes"), 512 * MIB);
	cr_expect_eq(number_of(options, "cache_bytes"), 100000);
	cr_expect_eq(number_of(options, "region_bytes"), 32 * MIB);
	cr_expect_str_eq(text_of(options, "placement"), "default");
	cr_expect(json_is_null(json_object_get(options, "budget")));
	cr_expect(json_is_null(json_object_get(options, "upstream")));
	cr_expect_eq(number_of(statistics, "n_blocks"), 6);
	json_int_t requested = 0;
	for (size_t i = 0; i < 6; i++)
		requested += (json_int_t)sizes[i];
	cr_expect_eq(number_of(statistics, "requested_bytes"), requested);
	cr_expect_eq(sum_of(json, "live", "requested"), requested);
	cr_expect_eq(sum_of(json, "live", "bytes"), number_of(statistics, "allocated_bytes"));
	cr_expect_geq(sum_of(json, "cached", "bytes"), number_of(statistics, "cached_bytes"));
	cr_expect_gt(sum_of(json, "cached", "bytes"), 0);
	/* The blocks of all states are what the regions hold. */
	const json_t *regions = json_object_get(json, "regions");
	cr_expect_eq(json_array_size(regions), (size_t)number_of(statistics, "n_regions"));
	json_int_t reserved = 0;
	size_t i;
	json_t *region;
	json_array_foreach(regions, i, region)
	{
		reserved += number_of(region, "bytes");
		cr_expect_str_eq(text_of(region, "kind"), "host");
		cr_expect_not(json_is_true(json_object_get(region, "pinned")));
		cr_expect_gt(number_of(json_object_get(json_object_get(region, "steps"), "reserve"),
				       "ns"),
			     0);
	}
	cr_expect_eq(reserved, number_of(statistics, "reserved_bytes"));
	json_int_t all = sum_of(json, "live", "bytes") + sum_of(json, "cached", "bytes") +
			 sum_of(json, "pending", "bytes") + sum_of(json, "free", "bytes");
	cr_expect_leq(all, reserved);
	cr_expect_geq(all, reserved - reserved / 64, "%lld of %lld", (long long)all,
		      (long long)reserved);
	/* Regions are populated: the kernel knows their pages, and how large they are. */
	const json_t *share = json_object_get(json, "huge_page_share");
	cr_expect(json_is_null(share) ||
		  (json_real_value(share) >= 0 && json_real_value(share) <= 1));
	json_decref(json);
	for (i = 0; i < 6; i++)
		OK(hoist_memory_free(memory, blocks[i]));
	hoist_memory_unref(memory);
}

Test(snapshot, shows_an_unused_resource)
{
	hoist_memory *memory = make_memory(NULL);
	json_t *json = snapshot(memory);
	cr_expect_eq(json_array_size(json_object_get(json, "regions")), 0);
	cr_expect_eq(json_array_size(json_object_get(json, "blocks")), 0);
	cr_expect(json_is_null(json_object_get(json, "huge_page_share")));
	cr_expect(json_is_null(json_object_get(json, "pages_per_node")));
	json_decref(json);
	hoist_memory_unref(memory);
}

Test(snapshot, names_are_escaped)
{
	static const char *const names[] = {
		"a \"quoted\\\" name",
		"tab\tnew\nline\x01",
		"\xc3\xa4\xe2\x82\xac",
		"a name that is much longer than what is kept of one, and ends in \xe2\x82\xac",
	};
	for (size_t i = 0; i < 4; i++) {
		hoist_memory *memory = make_memory(OPTIONS(.name = names[i]));
		json_t *json = snapshot(memory);
		const char *name = text_of(json, "name");
		cr_expect_eq(strncmp(name, names[i], 20 < strlen(names[i]) ? 20 : strlen(names[i])),
			     0, "%s", name);
		json_decref(json);
		hoist_memory_unref(memory);
	}
	hoist_memory *memory = make_memory(OPTIONS(.name = "not \xff utf-8 \xe2\x82"));
	json_t *json = snapshot(memory);
	cr_expect_str_eq(text_of(json, "name"), "not \xef\xbf\xbd utf-8 \xef\xbf\xbd\xef\xbf\xbd");
	json_decref(json);
	hoist_memory_unref(memory);
}

/* The processor's time, of the best round. */
static uint64_t ns_of_snapshot(hoist_memory *memory)
{
	int fd = scratch_file();
	uint64_t best = UINT64_MAX;
	for (int i = 0; i < 5; i++) {
		cr_assert_eq(ftruncate(fd, 0), 0);
		uint64_t start = hoist__thread_cpu_ns();
		OK(hoist_memory_snapshot(memory, fd));
		best = hoist__min_u64(best, hoist__thread_cpu_ns() - start);
	}
	close(fd);
	return best;
}

/* Quadratic work would take a hundred times as long for ten times as many. */
Test(snapshot, takes_no_longer_for_each_of_100000_blocks)
{
	hoist_memory *memory = make_memory(NULL);
	static uintptr_t blocks[MANY];
	uint64_t ns[2];
	for (size_t i = 0, k = 0; k < 2; k++) {
		for (; i < (k == 0 ? MANY / 10 : MANY); i++)
			blocks[i] = alloc(memory, 64 + i % 1000, 0);
		ns[k] = ns_of_snapshot(memory);
	}
	cr_expect_lt(ns[1], 40 * ns[0], "%llu ns, then %llu ns", (unsigned long long)ns[0],
		     (unsigned long long)ns[1]);
	cr_log_info("a snapshot of %d blocks: %.1f ms", MANY, (double)ns[1] / 1e6);
	json_t *json = snapshot(memory);
	size_t n_live = 0;
	size_t i;
	json_t *block;
	json_array_foreach(json_object_get(json, "blocks"), i, block) n_live +=
		strcmp(text_of(block, "state"), "live") == 0;
	cr_expect_eq(n_live, MANY);
	json_decref(json);
	for (i = 0; i < MANY; i++)
		OK(hoist_memory_free(memory, blocks[i]));
	hoist_memory_unref(memory);
}

/* --- where a snapshot goes --- */

struct reader {
	int fd;
	char *text;
	size_t n;
};

static void *read_slowly(void *argument)
{
	struct reader *reader = argument;
	ssize_t n;
	while ((n = read(reader->fd, reader->text + reader->n, 777)) > 0)
		reader->n += (size_t)n;
	return NULL;
}

Test(snapshot, arrives_whole_through_a_pipe)
{
	int ends[2];
	cr_assert_eq(pipe(ends), 0);
	hoist_memory *memory = make_memory(NULL);
	static uintptr_t blocks[5000];
	for (size_t i = 0; i < 5000; i++)
		blocks[i] = alloc(memory, 64, 0);
	struct reader reader = {ends[0], malloc(8 * MIB), 0};
	pthread_t thread;
	cr_assert_eq(pthread_create(&thread, NULL, read_slowly, &reader), 0);
	OK(hoist_memory_snapshot(memory, ends[1]));
	close(ends[1]);
	pthread_join(thread, NULL);
	close(ends[0]);
	json_decref(parse(reader.text, reader.n));
	free(reader.text);
	for (size_t i = 0; i < 5000; i++)
		OK(hoist_memory_free(memory, blocks[i]));
	hoist_memory_unref(memory);
}

Test(snapshot, reports_the_error_of_its_writes)
{
	hoist_memory *memory = make_memory(OPTIONS(.name = "unwritten"));
	REFUSED(hoist_memory_snapshot(memory, -1), -EBADF, "a snapshot of \"unwritten\": writing");
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	if (full >= 0)
		cr_expect_eq(hoist_memory_snapshot(memory, full), -ENOSPC);
	close(full);
	hoist_memory_unref(memory);
}

/* --- of other kinds --- */

Test(snapshot, shows_device_memory, .init = open_all)
{
	static const char *const kinds[] = {"pinned", "device", "managed", "driver_pool"};
	for (int kind = HOIST_MEMORY_PINNED; kind <= HOIST_MEMORY_DRIVER_POOL; kind++) {
		hoist_memory *memory = make_kind(kind, devices[3]);
		uintptr_t block = alloc(memory, 1000, 0);
		json_t *json = snapshot(memory);
		cr_expect_str_eq(text_of(json, "kind"), kinds[kind - HOIST_MEMORY_PINNED]);
		cr_expect_str_eq(text_of(json, "device"), "hip:0");
		cr_expect_eq(sum_of(json, "live", "requested"), 1000);
		const json_t *region = json_array_get(json_object_get(json, "regions"), 0);
		cr_expect_eq(region == NULL, kind == HOIST_MEMORY_DRIVER_POOL);
		if (region != NULL)
			cr_expect_eq(json_is_true(json_object_get(region, "pinned")),
				     kind == HOIST_MEMORY_PINNED);
		json_decref(json);
		OK(hoist_memory_free(memory, block));
		hoist_memory_unref(memory);
	}
}

/* --- residence.h --- */

static void write_maps(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");
	cr_assert_not_null(file);
	cr_assert_geq(fputs(text, file), 0);
	(void)fclose(file);
}

Test(residence, is_shared_out_over_ranges)
{
	const char *path = temporary("smaps");
	write_maps(path, "1000-3000 rw-p 00000000 00:00 0 /a/path\n"
			 "Size:                  8 kB\n"
			 "Rss:                   8 kB\n"
			 "AnonHugePages:         4 kB\n"
			 "VmFlags: rd wr\n"
			 "5000-9000 rw-p 00000000 00:00 0\n"
			 "Rss:                   0 kB\n"
			 "Private_Hugetlb:      16 kB\n"
			 "f000-10000 rw-p 00000000 00:00 0\n"
			 "Rss:                   4 kB\n");
	struct hoist__residence ranges[] = {
		{.base = 0x1000, .bytes = 0x1000}, {.base = 0x2000, .bytes = 0x1000},
		{.base = 0x4000, .bytes = 0x3000}, {.base = 0xa000, .bytes = 0x1000},
		{.base = 0xf000, .bytes = 0x1000},
	};
	OK(hoist__residence(path, ranges, 5));
	static const double resident[] = {4096, 4096, 8192, 0, 4096};
	static const double huge[] = {2048, 2048, 8192, 0, 0};
	for (size_t i = 0; i < 5; i++) {
		cr_expect_eq(ranges[i].resident, resident[i], "%zu: %f", i, ranges[i].resident);
		cr_expect_eq(ranges[i].huge, huge[i], "%zu: %f", i, ranges[i].huge);
	}
	cr_expect_eq(hoist__residence("/nowhere", ranges, 5), -ENOENT);
}
