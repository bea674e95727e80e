/* SPDX-License-Identifier: MIT */
/* Counts or estimates how much of a file is in the page cache.
 * The contract is in io/file.h.
 *
 * cachestat(2) counts, but only for callers that own the file or may write it.  Other callers, and
 * kernels before 6.5, get an estimate: small reads that must not block, at places spread over the
 * range.  mincore(2) is no help: it tells those other callers that everything is resident.
 *
 * Such a read has a side effect: where a byte is not cached, the kernel starts to read some KiB
 * ahead.  Two things follow.  Where the disk answers at once, the byte arrives in time after all:
 * the count of blocks that this thread has had read shows it.  And the next estimate, also of
 * another process, must not look at the same places: places are drawn at random. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "alloc/map.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/error.h"
#include "io/file.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif

/* The kernel's definitions, which Debian 12's headers lack. */
struct cachestat_range {
	uint64_t off;
	uint64_t len; /* 0: to the end */
};

struct cachestat {
	uint64_t nr_cache;
	uint64_t nr_dirty;
	uint64_t nr_writeback;
	uint64_t nr_evicted;
	uint64_t nr_recently_evicted;
};

#define SAMPLE_EVERY_BYTES (16 * HOIST__MIB)
#define MIN_SAMPLES 3u
#define MAX_SAMPLES 16u

/* A cold window costs the kernel a microsecond, a hot one 20 to 300: little against its copy. */
#define WINDOW_BYTES (32 * HOIST__MIB)
#define WINDOW_NS (HOIST__NS_PER_S / 10)
#define WINDOW_SAMPLES 8u

static int count(const struct hoist__file *file, uint64_t offset, uint64_t bytes, uint64_t *ret)
{
	struct cachestat_range range = {.off = offset, .len = bytes};
	struct cachestat stat;
	if (syscall(SYS_cachestat, file->fd, &range, &stat, 0u) < 0)
		return -errno;
	/* Pages at the ends are counted as well; the range is cached whole only if each page is. */
	uint64_t page = hoist__page_bytes();
	uint64_t n_pages = (offset + bytes - 1) / page - offset / page + 1;
	*ret = stat.nr_cache >= n_pages ? bytes : hoist__min_u64(stat.nr_cache * page, bytes - 1);
	return 0;
}

/* The blocks that block devices have read for this thread; stays 0 where the kernel does not
 * account. */
static long blocks_read(void)
{
	struct rusage usage;
	return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_inblock : 0;
}

/* Samples one byte.  *blocks: as blocks_read(), before and after.  Returns: 1: it is cached; 0: it
 * is not; an error. */
static int sample(const struct hoist__file *file, uint64_t offset, long *blocks)
{
	char byte;
	struct iovec one = {.iov_base = &byte, .iov_len = 1};
	long before = *blocks;
	ssize_t n = preadv2(file->fd, &one, 1, (off_t)offset, RWF_NOWAIT);
	int err = errno;
	*blocks = blocks_read();
	if (n < 0)
		return err == EAGAIN ? 0 : -err;
	return n == 1 && *blocks == before;
}

/* SplitMix64's finaliser (Steele, Lea and Flood, 2014). */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

/* Takes at least @least samples.  Unless all samples agree on "cached", the result lies between
 * none and all: places that were not sampled may be cached. */
static int estimate(const struct hoist__file *file, uint64_t offset, uint64_t bytes, uint64_t least,
		    uint64_t *ret)
{
	uint64_t page = hoist__page_bytes();
	uint64_t n = bytes / SAMPLE_EVERY_BYTES;
	n = hoist__min_u64(hoist__max_u64(n, least), MAX_SAMPLES);
	/* At most one sample a page: a second one would find the bytes that the first has had
	 * read. */
	n = hoist__min_u64(n, (offset + bytes - 1) / page - offset / page + 1);
	uint64_t seed = hoist__now_ns();
	uint64_t hits = 0;
	long blocks = blocks_read();
	for (uint64_t i = 0; i < n; i++) {
		/* A random place in each n-th of the range. */
		uint64_t from = bytes / n * i;
		uint64_t part = i == n - 1 ? bytes - from : bytes / n;
		int hit = sample(file, offset + from + mix(seed + i) % part, &blocks);
		if (hit < 0)
			return hit;
		hits += (uint64_t)hit;
	}
	uint64_t guess = hoist__max_u64(bytes / n * hits, 1);
	*ret = hits == n ? bytes : hoist__min_u64(guess, bytes - 1);
	return 0;
}

int hoist__file_counts_resident(const struct hoist__file *file)
{
	uint64_t bytes;
	return file->bytes == 0 ? 0 : count(file, 0, 1, &bytes);
}

int hoist__file_resident(const struct hoist__file *file, uint64_t offset, uint64_t bytes,
			 uint64_t *ret)
{
	uint64_t inside = offset < file->bytes ? hoist__min_u64(bytes, file->bytes - offset) : 0;
	if (inside == 0 || file->in_memory) {
		*ret = inside;
		return 0;
	}
	int err = count(file, offset, inside, ret);
	if (err != 0)
		err = estimate(file, offset, inside, MIN_SAMPLES, ret);
	if (err != 0)
		return hoist__fail(-ENOTSUP, "%s: the kernel does not say what is cached (%s)",
				   file->path, strerrorname_np(-err));
	return 0;
}

/* --- windows --- */

static bool covers(const struct hoist__resident_window *window, const struct hoist__file *file,
		   uint64_t offset, uint64_t bytes)
{
	return window->file_ino == file->ino && window->file_dev == file->dev &&
	       offset >= window->begin && offset < window->end && bytes <= window->end - offset &&
	       hoist__now_ns() - window->asked_ns < WINDOW_NS;
}

/* Asks about all of the window, whose range is set. */
static void look(const struct hoist__file *file, struct hoist__resident_window *window)
{
	uint64_t bytes = window->end - window->begin;
	uint64_t resident = 0;
	bool counted = count(file, window->begin, bytes, &resident) == 0;
	bool known =
		counted || estimate(file, window->begin, bytes, WINDOW_SAMPLES, &resident) == 0;
	window->answer = HOIST__WINDOW_MIXED;
	if (known && resident == bytes)
		window->answer = HOIST__WINDOW_ALL;
	else if (counted && resident == 0)
		window->answer = HOIST__WINDOW_NONE;
	else if (known && !counted && resident <= 1)
		window->answer = HOIST__WINDOW_FEW;
}

int hoist__file_resident_ahead(const struct hoist__file *file,
			       struct hoist__resident_window *window, uint64_t offset,
			       uint64_t bytes, uint64_t end, uint64_t *ret)
{
	uint64_t limit = hoist__min_u64(end, file->bytes);
	uint64_t inside = offset < file->bytes ? hoist__min_u64(bytes, file->bytes - offset) : 0;
	if (!file->in_memory && inside > 1 && !covers(window, file, offset, inside) &&
	    limit > offset && limit - offset > inside) {
		*window = (struct hoist__resident_window){
			.file_ino = file->ino,
			.file_dev = file->dev,
			.begin = offset,
			.end = offset +
			       hoist__max_u64(inside, hoist__min_u64(limit - offset, WINDOW_BYTES)),
			.asked_ns = hoist__now_ns(),
		};
		look(file, window);
	}
	if (inside <= 1 || window->answer == HOIST__WINDOW_MIXED ||
	    !covers(window, file, offset, inside))
		return hoist__file_resident(file, offset, bytes, ret);
	*ret = 0;
	if (window->answer == HOIST__WINDOW_ALL)
		*ret = inside;
	else if (window->answer == HOIST__WINDOW_FEW)
		*ret = 1; /* an estimate is never certain that nothing is cached */
	return 0;
}
