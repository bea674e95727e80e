/* SPDX-License-Identifier: MIT */
/* lib/doctor/doctor-probe.c - measures for a moment how fast a file is read, and gives advice.
 * The contract is in lib/doctor/doctor.h.
 *
 * A few shapes of direct reads come first, then reads through the page cache, each for a share
 * of a second and of the bytes: less than two seconds and 256 MiB in all, however slow the disk.
 * Direct reads leave the page cache alone; the pages that the other reads bring into it are
 * dropped again. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc/region.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/figure.h"
#include "hoist/doctor.h"
#include "io/engine.h"
#include "io/fs.h"
#include "lib/doctor/doctor.h"
#include "numa/group.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define LEAST_BYTES ((uint64_t)32 << 20) /* a smaller file says nothing about its disk */
#define MEMORY_BYTES ((size_t)32 << 20)
#define MEASURE_BYTES ((uint64_t)32 << 20) /* at most seven times */
#define MEASURE_NS (HOIST__NS_PER_S / 4)
#define MAX_DEPTH 16
/* A change is advised only if it is faster by this factor. */
#define WORTH 1.1

static const struct shape {
	size_t chunk_bytes;
	unsigned depth;
} shapes[] = {
	{(size_t)1 << 20, 8}, {(size_t)1 << 20, 16}, {(size_t)2 << 20, 8}, {(size_t)4 << 20, 8}};

struct probe {
	const struct hoist__file *file;
	unsigned char *memory; /* MEMORY_BYTES, in huge pages if there are any */
	uint64_t next;	       /* where the next measurement begins */
	uint64_t bytes;	       /* read so far */
	bool abandoned;	       /* the kernel may still write to `memory` */
};

/* --- one measurement --- */

struct reading {
	struct hoist__request requests[MAX_DEPTH];
	uint64_t at;
	uint64_t end;
	uint64_t deadline;
	uint64_t done;
	int err;
};

static void submit(struct probe *probe, struct reading *reading, const struct shape *shape,
		   bool direct, struct hoist__engine *engine, struct hoist__request *request)
{
	size_t index = (size_t)(request - reading->requests);
	if (reading->err < 0 || reading->at + shape->chunk_bytes > reading->end ||
	    hoist__now_ns() > reading->deadline)
		return;
	*request = (struct hoist__request){
		.file = probe->file,
		.offset = reading->at,
		.address = probe->memory + index * shape->chunk_bytes,
		.bytes = shape->chunk_bytes,
		.need = shape->chunk_bytes,
		.direct = direct,
		.buffer = -1,
	};
	reading->err = hoist__engine_submit(engine, &request, 1);
	if (reading->err == 0)
		reading->at += shape->chunk_bytes;
}

/* Reads from reading->at on.
 * Returns: 0; a negative errno value. */
static int read_all(struct probe *probe, struct reading *reading, const struct shape *shape,
		    bool direct, struct hoist__engine *engine)
{
	unsigned n = 0;
	for (unsigned i = 0; i < shape->depth; i++) {
		uint64_t before = reading->at;
		submit(probe, reading, shape, direct, engine, &reading->requests[i]);
		n += reading->at > before;
	}
	while (n > 0) {
		struct hoist__request *request;
		int got = hoist__engine_reap(engine, &request, 1, UINT64_MAX);
		if (got < 0)
			return got;
		if (got == 0)
			continue;
		n--;
		if (request->result < 0)
			reading->err = request->result;
		reading->done += request->done;
		uint64_t before = reading->at;
		submit(probe, reading, shape, direct, engine, request);
		n += reading->at > before;
	}
	return reading->err;
}

/* Measures bytes a second, from @start on, into *rate.
 * Returns: 0; the error, with its text. */
static int measure_at(struct probe *probe, const struct shape *shape, bool direct, uint64_t start,
		      double *rate)
{
	const struct hoist__engine_options options = {
		.depth = shape->depth, .files = &probe->file, .n_files = 1};
	struct hoist__engine *engine = NULL;
	int err = hoist__engine_create(&options, &engine);
	if (err < 0)
		return err;
	uint64_t begin = hoist__now_ns();
	struct reading reading = {
		.at = start,
		.end = hoist__min_u64(start + MEASURE_BYTES, probe->file->bytes),
		.deadline = begin + MEASURE_NS,
	};
	err = read_all(probe, &reading, shape, direct, engine);
	uint64_t took = hoist__now_ns() - begin;
	probe->abandoned |= hoist__engine_abandoned(engine);
	hoist__engine_destroy(engine);
	probe->bytes += reading.done;
	if (err < 0)
		return hoist__fail_errno(err, "reading %s", probe->file->path);
	*rate = took > 0 ? (double)reading.done * 1e9 / (double)took : 0;
	return 0;
}

/* Measures behind the part that was read last, so that no cache of the disk has the bytes. */
static int measure(struct probe *probe, const struct shape *shape, bool direct, double *rate)
{
	uint64_t start = probe->next;
	if (start + MEASURE_BYTES > probe->file->bytes)
		start = 0;
	probe->next = start + MEASURE_BYTES;
	return measure_at(probe, shape, direct, start, rate);
}

/* --- the measurements --- */

static int measure_direct(struct probe *probe, struct hoist__advice *advice)
{
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(shapes); i++) {
		double rate = 0;
		int err = measure(probe, &shapes[i], true, &rate);
		if (err < 0)
			return err;
		if (rate <= advice->direct_rate * (i > 0 ? WORTH : 1))
			continue;
		advice->direct_rate = rate;
		advice->chunk_bytes = shapes[i].chunk_bytes;
		advice->depth = shapes[i].depth;
	}
	return 0;
}

/* Measures reads through the page cache: first as it is, then again, with the bytes in the
 * cache. */
static int measure_cached(struct probe *probe, struct hoist__advice *advice)
{
	uint64_t start = probe->next + MEASURE_BYTES > probe->file->bytes ? 0 : probe->next;
	uint64_t bytes = hoist__min_u64(MEASURE_BYTES, probe->file->bytes - start);
	uint64_t resident = 0;
	int err = hoist__file_resident(probe->file, start, bytes, &resident);
	bool was_cold = err == 0 && resident < bytes / 2;
	double rate = 0;
	err = measure_at(probe, &shapes[0], false, start, &rate);
	if (err < 0)
		return err;
	if (was_cold)
		advice->cached_rate = rate;
	err = measure_at(probe, &shapes[0], false, start, &advice->hot_rate);
	/* Pages that were in the cache before stay there. */
	if (err == 0 && resident == 0 && !probe->file->in_memory)
		(void)posix_fadvise(probe->file->fd, (off_t)start, (off_t)bytes,
				    POSIX_FADV_DONTNEED);
	return err;
}

/* Measures the best shape into memory of small pages, which shows the gain of huge ones. */
static int measure_small_pages(struct probe *probe, struct hoist__advice *advice)
{
	const struct shape best = {advice->chunk_bytes, advice->depth};
	unsigned char *huge = probe->memory;
	double rate = 0;
	unsigned char *small = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (small == MAP_FAILED)
		return hoist__fail_nomem("a probe", MEMORY_BYTES);
	(void)madvise(small, MEMORY_BYTES, MADV_NOHUGEPAGE);
	memset(small, 1, MEMORY_BYTES);
	probe->memory = small;
	int err = measure(probe, &best, true, &rate);
	probe->memory = huge;
	if (!probe->abandoned)
		(void)munmap(small, MEMORY_BYTES);
	if (err == 0 && rate > 0)
		advice->huge_gain = advice->direct_rate / rate;
	return err;
}

/* True if the memory at @address is in huge pages, by the mapping's entry in smaps. */
static bool is_huge(const unsigned char *address)
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	char *line = NULL;
	size_t room = 0;
	bool inside = false;
	unsigned long long kib = 0;
	while (maps != NULL && getline(&line, &room, maps) > 0) {
		unsigned long long from, to;
		if (sscanf(line, "%llx-%llx ", &from, &to) == 2)
			inside = (uintptr_t)address >= from && (uintptr_t)address < to;
		else if (inside && sscanf(line, "AnonHugePages: %llu kB", &kib) == 1)
			break;
	}
	free(line);
	if (maps != NULL)
		(void)fclose(maps);
	return kib > 0;
}

static int measure_all(struct probe *probe, struct hoist__advice *advice)
{
	int err = 0;
	bool direct = probe->file->direct_fd >= 0 && !probe->file->in_memory;
	advice->huge_pages = is_huge(probe->memory);
	if (direct)
		err = measure_direct(probe, advice);
	if (err == 0)
		err = measure_cached(probe, advice);
	if (err == 0 && direct && advice->huge_pages && !probe->abandoned)
		err = measure_small_pages(probe, advice);
	return err;
}

/* --- the advice --- */

static void put(struct hoist__advice *advice, size_t *at, const char *format, ...)
	HOIST__PRINTF(3, 4);
static void put(struct hoist__advice *advice, size_t *at, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	int n = vsnprintf(advice->text + *at, sizeof advice->text - *at, format, arguments);
	va_end(arguments);
	if (n > 0)
		*at = hoist__min_u64(*at + (size_t)n, sizeof advice->text - 1);
}

/* Says which way to read, and then the figures that speak for it. */
static void advise(const struct probe *probe, struct hoist__advice *advice)
{
	const struct hoist__fs *fs = hoist__fs_of_fd(probe->file->fd);
	size_t at = 0;
	double direct = advice->direct_rate;
	double cached = advice->cached_rate;
	advice->io = cached > direct * WORTH ? HOIST_IO_CACHED : HOIST_IO_AUTO;
	if (probe->file->in_memory)
		put(advice, &at, "io auto: the file is in memory, and is copied at %.2f GB/s",
		    advice->hot_rate / 1e9);
	else if (advice->io == HOIST_IO_CACHED)
		put(advice, &at, "io cached: %.2f GB/s through an empty page cache", cached / 1e9);
	else if (direct > 0)
		put(advice, &at, "io auto, %s x %u: %.2f GB/s direct",
		    hoist__figure(advice->chunk_bytes).text, advice->depth, direct / 1e9);
	else
		put(advice, &at, "io auto: there are no direct reads here");
	if (advice->io == HOIST_IO_CACHED && direct > 0)
		put(advice, &at, ", %.2f direct", direct / 1e9);
	else if (advice->io == HOIST_IO_AUTO && cached > 0)
		put(advice, &at, ", %.2f through an empty page cache", cached / 1e9);
	if (!probe->file->in_memory)
		put(advice, &at, ", %.2f from a full one", advice->hot_rate / 1e9);
	if (!advice->huge_pages)
		put(advice, &at, "; no huge pages are to be had (see transparent pages)");
	else if (advice->huge_gain > 0)
		put(advice, &at, "; huge pages: %.2f x the rate of small ones", advice->huge_gain);
	put(advice, &at, "; %s%s", fs->name, fs->network ? ", over a network" : "");
	if (fs->depth > 0 && direct > 0)
		put(advice, &at, ", for which hoist chooses %s x %u by itself",
		    hoist__figure(fs->chunk_bytes).text, fs->depth);
	advice->bytes = probe->bytes;
}

static void skip(struct hoist__advice *advice, const char *format, ...) HOIST__PRINTF(2, 3);
static void skip(struct hoist__advice *advice, const char *format, ...)
{
	va_list arguments;
	*advice = (struct hoist__advice){.io = HOIST_IO_AUTO};
	va_start(arguments, format);
	(void)vsnprintf(advice->skipped, sizeof advice->skipped, format, arguments);
	va_end(arguments);
}

/* Maps memory for the reads, in huge pages if possible; *whole is the mapping to unmap. */
static unsigned char *map_memory(void **whole)
{
	size_t bytes = MEMORY_BYTES + HOIST__HUGE_PAGE_BYTES;
	void *mapped =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mapped == MAP_FAILED)
		return NULL;
	uintptr_t skipped = HOIST__HUGE_PAGE_BYTES - (uintptr_t)mapped % HOIST__HUGE_PAGE_BYTES;
	unsigned char *memory = (unsigned char *)mapped + skipped;
	(void)madvise(memory, MEMORY_BYTES, MADV_HUGEPAGE);
	memset(memory, 1, MEMORY_BYTES);
	*whole = mapped;
	return memory;
}

void hoist__doctor_probe(hoist_doctor *doctor, const char *path, const struct hoist__file *file)
{
	struct hoist__advice *advice = &doctor->advice;
	struct probe probe = {.file = file};
	void *whole = NULL;
	*advice = (struct hoist__advice){.io = HOIST_IO_AUTO};
	if (file == NULL || file->bytes < LEAST_BYTES) {
		skip(advice, "%s has no file of %s or more to read; name one", path,
		     hoist__figure(LEAST_BYTES).text);
		return;
	}
	/* Twice the bytes: a second memory, of small pages, is measured, too. */
	if (hoist__group_check(2 * MEMORY_BYTES, 0, "the probe's memory") < 0) {
		skip(advice, "%s", hoist__error_text());
		return;
	}
	probe.memory = map_memory(&whole);
	if (probe.memory == NULL) {
		skip(advice, "there is no memory to read into");
		return;
	}
	if (measure_all(&probe, advice) < 0)
		skip(advice, "%s", hoist__error_text());
	else
		advise(&probe, advice);
	/* A read that was given up may still write to the memory. */
	if (!probe.abandoned)
		(void)munmap(whole, MEMORY_BYTES + HOIST__HUGE_PAGE_BYTES);
}
