/* SPDX-License-Identifier: MIT */
/* tests/lib/load/adaptive.h - the page cache as adaptive.c wants it, and the maps of the process.
 */
#ifndef HOIST_TESTS_LIB_LOAD_ADAPTIVE_H
#define HOIST_TESTS_LIB_LOAD_ADAPTIVE_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hoist/dlpack.h"
#include "io/file.h"
#include "lib/load/load.h"
#include "tests/support/load-support.h"
#include "tests/support/patience.h"
#include "tests/support/random.h"
#include "tests/support/smaps.h"
#include "tests/support/touch.h"
#include "tests/support/wrap.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)

/* --- the world --- */

/* Answers while a load starts; afterwards the real ones. */
static enum { REAL, NONE, ALL, PATTERN } answers;
static uint64_t seed;			     /* of the pattern */
static unsigned hot_of;			     /* so many of 8 granules are hot */
static uint64_t hot_run, hot_bytes, hot_end; /* what the answers come to: see note() */
static size_t n_hot_runs;
static int fail_maps; /* the first so many maps fail */
static int n_failed;

/* A run of hot answers has ended. */
static void end_run(void)
{
	if (hot_run >= 2 * MIB) {
		hot_bytes += hot_run;
		n_hot_runs++;
	}
	hot_run = 0;
}

static void note(uint64_t offset, uint64_t bytes, bool hot)
{
	if (!hot || offset != hot_end)
		end_run();
	if (hot)
		hot_run += bytes;
	hot_end = offset + bytes;
}

WRAP(int, hoist__file_resident_ahead,
     (const struct hoist__file *file, struct hoist__resident_window *window, uint64_t offset,
      uint64_t bytes, uint64_t end, uint64_t *ret))
{
	if (answers == REAL)
		return __real_hoist__file_resident_ahead(file, window, offset, bytes, end, ret);
	uint64_t state = seed + offset;
	bool hot = answers == ALL || (answers == PATTERN && random_below(&state, 8) < hot_of);
	note(offset, bytes, hot);
	*ret = hot ? bytes : bytes / 2;
	return 0;
}

WRAP(void *, mmap, (void *address, size_t bytes, int prot, int flags, int fd, off_t offset))
{
	if ((flags & MAP_FIXED) != 0 && fd >= 0 && n_failed < fail_maps) {
		n_failed++;
		(void)munmap(address, bytes);
		errno = ENOMEM;
		return MAP_FAILED;
	}
	return __real_mmap(address, bytes, prot, flags, fd, offset);
}

/* The maps of the process that show the file, and their bytes. */
static size_t count_maps(const char *path, size_t *bytes)
{
	char line[1024];
	size_t n = 0;
	FILE *maps = fopen("/proc/self/maps", "re");
	CHECK(maps != NULL);
	*bytes = 0;
	while (fgets(line, sizeof line, maps) != NULL) {
		unsigned long begin, end;
		if (strstr(line, path) == NULL || sscanf(line, "%lx-%lx", &begin, &end) != 2)
			continue;
		n++;
		*bytes += end - begin;
	}
	(void)fclose(maps);
	return n;
}

static size_t n_maps(const char *path)
{
	size_t bytes;
	return count_maps(path, &bytes);
}

/* Starts a load, which the caller drives, so that nothing is read yet. */
static hoist_load *start(hoist_checkpoint *checkpoint, hoist_load_options o)
{
	hoist_load *load;
	o.size = sizeof o;
	o.io = HOIST_IO_ADAPTIVE;
	o.flags |= HOIST_LOAD_CALLER_DRIVEN;
	hot_run = hot_bytes = hot_end = 0;
	n_hot_runs = 0;
	OK(hoist_load_start(checkpoint, &o, &load));
	end_run();
	answers = REAL;
	return load;
}

static hoist_load *start_all_hot(hoist_checkpoint *checkpoint, unsigned flags)
{
	answers = ALL;
	return start(checkpoint, (hoist_load_options){.flags = flags});
}

static hoist_buffer *tensor(hoist_load *load, size_t index)
{
	hoist_buffer *buffer;
	OK(hoist_load_tensor(load, index, NULL, &buffer));
	return buffer;
}

static hoist_tensor_info info_of(hoist_checkpoint *checkpoint, size_t index)
{
	hoist_tensor_info info = {.size = sizeof info};
	OK(hoist_checkpoint_tensor(checkpoint, index, &info));
	return info;
}

/* --- comparing --- */

/* The buffer's bytes against the file's, which pread(2) gives. */
static void compare_one(hoist_checkpoint *checkpoint, size_t which, hoist_buffer *buffer)
{
	hoist_tensor_info info = info_of(checkpoint, which);
	hoist_file_info file = {.size = sizeof file};
	OK(hoist_checkpoint_file(checkpoint, info.file, &file));
	int fd = open(file.path, O_RDONLY | O_CLOEXEC);
	unsigned char *bytes = malloc(info.bytes + 1);
	CHECK(fd >= 0 && bytes != NULL && hoist_buffer_bytes(buffer) == info.bytes);
	CHECK(pread(fd, bytes, info.bytes, (off_t)info.offset) == (ssize_t)info.bytes);
	CHECK(info.bytes == 0 || memcmp(bytes, hoist_buffer_data(buffer), info.bytes) == 0);
	free(bytes);
	close(fd);
}

/* Digests are those that a load makes which reads everything. */
static void compare_digests(hoist_checkpoint *checkpoint, const hoist_load_options *asked,
			    hoist_load *load)
{
	hoist_load_options o = *asked;
	hoist_load *plain;
	o.io = HOIST_IO_CACHED;
	OK(hoist_load_start(checkpoint, &o, &plain));
	OK(hoist_load_wait(plain));
	for (size_t i = 0; i < hoist_load_n_tensors(load); i++) {
		unsigned char is[16];
		unsigned char should[16];
		OK(hoist_load_digest(load, i, is));
		OK(hoist_load_digest(plain, i, should));
		CHECK(memcmp(is, should, 16) == 0);
	}
	hoist_load_destroy(plain);
}

/* The bytes of the process's own and of the page cache that are mapped in at the file's maps. */
static size_t resident_maps(const char *path)
{
	struct smaps smaps = {0};
	size_t kib = 0;
	while (smaps_next(&smaps))
		if (strstr(smaps.mapping, path) != NULL)
			kib += smaps_kib(&smaps, "Rss:");
	return kib * 1024;
}

#endif
