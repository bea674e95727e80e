/* SPDX-License-Identifier: MIT */
/* Reading ahead of a map; plain C, so that TSan sees the threads.  The linker (--wrap) sends some
 * of the library's calls through this program: a slow disk, bad places on it, a file that shrinks
 * between two calls. */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#include "base/error.h"
#include "tests/support/io-helpers.h"
#include "io/ahead.h"
#include "io/map.h"
#include "tests/support/read-gate.h"
#include "tests/support/wrap.h"

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define FOREVER UINT64_MAX

/* --- the world --- */

static atomic_ulong held_file;		    /* reads of this inode wait */
static _Atomic uint64_t bad_begin, bad_end; /* reads of these bytes fail */
static atomic_int fail_at;		    /* the n-th call from now on fails; 0: none */
static atomic_int madvise_err;		    /* populating fails so */
static const char *_Atomic shrinks;	    /* before it is populated */
static atomic_bool lends_nothing;	    /* sendfile() is refused, */
static atomic_bool opens_nothing;	    /* and so is open() */
static atomic_ulong n_lent, n_copied;	    /* bytes */

static bool fails(void)
{
	return atomic_load(&fail_at) > 0 && atomic_fetch_sub(&fail_at, 1) == 1;
}

static ino_t inode_of(int fd)
{
	struct stat st;
	CHECK(fstat(fd, &st) == 0);
	return st.st_ino;
}

/* How many of the @bytes the disk gives; -1, with errno: it cannot read the first one. */
static ssize_t disk_gives(int fd, size_t bytes, off_t offset)
{
	uint64_t from = (uint64_t)offset;
	gate_pass();
	while (atomic_load(&held_file) != 0 && inode_of(fd) == atomic_load(&held_file))
		(void)usleep(500);
	if (from >= bad_end || from + bytes <= bad_begin)
		return (ssize_t)bytes;
	errno = ENODATA; /* what NVMe says */
	return from >= bad_begin ? -1 : (ssize_t)(bad_begin - from);
}

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	ssize_t n = disk_gives(fd, bytes, offset);
	n = n < 0 ? n : __real_pread(fd, to, (size_t)n, offset);
	atomic_fetch_add(&n_copied, n > 0 ? (size_t)n : 0);
	return n;
}

WRAP(ssize_t, sendfile, (int to, int from, off_t *offset, size_t bytes))
{
	errno = EINVAL;
	ssize_t n = lends_nothing ? -1 : disk_gives(from, bytes, *offset);
	n = n < 0 ? n : __real_sendfile(to, from, offset, (size_t)n);
	atomic_fetch_add(&n_lent, n > 0 ? (size_t)n : 0);
	return n;
}

WRAP(int, madvise, (void *address, size_t bytes, int advice))
{
	const char *path = atomic_exchange(&shrinks, NULL);
	if (path != NULL)
		OK(truncate(path, 100));
	errno = madvise_err;
	return madvise_err != 0 ? -1 : __real_madvise(address, bytes, advice);
}

WRAP(int, open, (const char *path, int flags, ...))
{
	errno = EMFILE;
	if ((opens_nothing && (flags & O_ACCMODE) == O_WRONLY) ||
	    (opens_nothing && strncmp(path, "/proc/self/fd/", 14) == 0) || fails())
		return -1;
	return __real_open(path, flags, 0600);
}

WRAP(void *, calloc, (size_t n, size_t bytes))
{
	return fails() ? NULL : __real_calloc(n, bytes);
}

WRAP(void *, malloc, (size_t bytes))
{
	return fails() ? NULL : __real_malloc(bytes);
}

WRAP(int, pthread_create,
     (pthread_t * id, const pthread_attr_t *how, void *(*run)(void *), void *arg))
{
	return fails() ? EAGAIN : __real_pthread_create(id, how, run, arg);
}

/* --- support --- */

static struct hoist__ahead_part part_of(const struct hoist__file *file, uint64_t offset,
					uint64_t bytes, void *address)
{
	return (struct hoist__ahead_part){.fd = file->fd,
					  .path = file->path,
					  .offset = offset,
					  .bytes = bytes,
					  .address = address};
}

static int run_one(struct hoist__ahead_part part)
{
	struct hoist__ahead *ahead = NULL;
	int err = hoist__ahead_start(&part, 1, 0, &ahead);
	if (err < 0)
		return err;
	err = hoist__ahead_wait(ahead, FOREVER);
	hoist__ahead_stop(ahead);
	return err;
}

static size_t pages_present(const void *memory, size_t bytes)
{
	static unsigned char there[16384];
	size_t n = (bytes + PAGE - 1) / PAGE, present = 0;
	CHECK(n <= sizeof there && mincore((void *)(uintptr_t)memory, bytes, there) == 0);
	for (size_t i = 0; i < n; i++)
		present += there[i] & 1u;
	return present;
}

/* Pages of the process's own table, not of the page cache: from pagemap. */
static size_t pages_mapped(const void *memory, size_t bytes)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0);
	size_t mapped = 0;
	for (size_t at = 0; at < bytes; at += PAGE) {
		uint64_t entry = 0;
		CHECK(__real_pread(fd, &entry, sizeof entry,
				   (off_t)(((uintptr_t)memory + at) / PAGE * sizeof entry)) ==
		      sizeof entry);
		mapped += entry >> 63;
	}
	close(fd);
	return mapped;
}

/* --- cases --- */

/* Maps the files anew, without a page of them in the cache, and reads the parts. */
static void bring_in(struct hoist__file *const *files, enum hoist__file_map_mode mode,
		     struct hoist__file_map *maps)
{
	struct hoist__ahead *ahead = NULL;
	uint64_t done, total;
	for (int i = 0; i < 2; i++) {
		OK(posix_fadvise(files[i]->fd, 0, 0, POSIX_FADV_DONTNEED));
		OK(hoist__file_map_open(files[i], mode, 100, files[i]->bytes - 100, &maps[i]));
	}
	struct hoist__ahead_part parts[] = {
		part_of(files[0], 100, 5 * MIB, maps[0].data),
		part_of(files[0], 9 * MIB, 2 * MIB + 5, maps[0].data + 9 * MIB - 100),
		part_of(files[1], 200, 0, NULL),
		part_of(files[1], 100, 200, maps[1].data),
	};
	OK(hoist__ahead_start(parts, 4, 0, &ahead));
	OK(hoist__ahead_wait(ahead, FOREVER));
	hoist__ahead_progress(ahead, &done, &total);
	CHECK(done == total && total == 7 * MIB + 205);
	CHECK(hoist__ahead_failed(ahead, &done) == NULL);
	hoist__ahead_stop(ahead);
}

static bool all_are_in(const struct hoist__file_map *map)
{
	size_t mapped = pages_mapped(map->base, 5 * MIB);
	return pages_present(map->base, 5 * MIB) == 5 * MIB / PAGE &&
	       pages_present((char *)map->base + 9 * MIB, 2 * MIB) == 2 * MIB / PAGE &&
	       (mapped == 5 * MIB / PAGE ||
		(mapped == 0 && madvise(NULL, 0, 22) < 0 && "no such call here"));
}

/* The kernel may reclaim pages again at once, where other programs want memory, or DAMON reclaims.
 * Pages that were all there in one of ten tries were brought in. */
static void brings_all_parts_in(void)
{
	struct hoist__file *files[] = {new_file(11 * MIB + 5), new_file(300)};
	struct hoist__file_map maps[2] = {{0}};
	for (int mode = HOIST__MAP_READ_ONLY; mode <= HOIST__MAP_READ_WRITE; mode++) {
		bool all = false;
		for (unsigned n = 0; !all && n < 10; n++) {
			bring_in(files, (enum hoist__file_map_mode)mode, maps);
			all = all_are_in(&maps[0]);
			CHECK(first_wrong(files[0]->fd, maps[0].data, 100, maps[0].bytes) ==
			      maps[0].bytes);
			hoist__file_map_close(&maps[0]);
			hoist__file_map_close(&maps[1]);
		}
		CHECK(all);
	}
	/* Without a map: into the page cache. */
	OK(run_one(part_of(files[0], 0, 11 * MIB + 5, NULL)));
	hoist__ahead_stop(NULL);
	hoist__file_close(files[0]);
	hoist__file_close(files[1]);
}

/* A part that is streamed, and a short one of the same file; which of the two ways the bytes took.
 */
static void streams_and_pieces(void)
{
	const size_t bytes = 45 * MIB + 77;
	struct hoist__file *file = new_file(bytes);
	for (int refused = 0; refused < 4; refused++) {
		lends_nothing = (refused & 1) != 0;
		opens_nothing = (refused & 2) != 0;
		struct hoist__file_map map = {0};
		OK(hoist__file_map_open(file, HOIST__MAP_COPY_ON_WRITE, 0, bytes, &map));
		OK(posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED));
		const struct hoist__ahead_part parts[] = {
			part_of(file, 5, 40 * MIB, map.data + 5),
			part_of(file, 41 * MIB, 4 * MIB + 77, map.data + 41 * MIB)};
		struct hoist__ahead *ahead = NULL;
		uint64_t done, total;
		n_lent = n_copied = 0;
		OK(hoist__ahead_start(parts, 2, 0, &ahead));
		OK(hoist__ahead_wait(ahead, FOREVER));
		hoist__ahead_progress(ahead, &done, &total);
		hoist__ahead_stop(ahead);
		CHECK(done == total && total == 44 * MIB + 77);
		CHECK(n_lent + n_copied == total && (refused == 0 ? n_copied : n_lent) == 0);
		CHECK(first_wrong(file->fd, map.data, 0, bytes) == bytes);
		hoist__file_map_close(&map);
	}
	lends_nothing = opens_nothing = false;
	hoist__file_close(file);
}

/* A private map's pages are the file's still: nothing was copied. */
static void populating_copies_nothing(void)
{
	struct hoist__file *file = new_file(8 * PAGE);
	struct hoist__file_map map = {0};
	OK(hoist__file_map_open(file, HOIST__MAP_COPY_ON_WRITE, 0, 8 * PAGE, &map));
	OK(run_one(part_of(file, 0, 8 * PAGE, map.data)));
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	map.data[PAGE] = 7;
	CHECK(fd >= 0 && pwrite(fd, "new", 3, 0) == 3 && pwrite(fd, "new", 3, PAGE) == 3);
	CHECK(memcmp(map.data, "new", 3) == 0 && map.data[PAGE] == 7 &&
	      map.data[PAGE + 1] == byte_at(PAGE + 1));
	close(fd);
	hoist__file_map_close(&map);
	hoist__file_close(file);
}

static void *open_later(void *unused)
{
	(void)usleep(20000);
	gate_open();
	return unused;
}

static void progress_and_a_quick_end(void)
{
	size_t bytes = 32 * MIB;
	struct hoist__file *file = new_file(bytes);
	struct hoist__ahead_part part = part_of(file, 0, bytes, NULL);
	struct hoist__ahead *ahead = NULL;
	/* 128 reads of 256 KiB; of 96, in pieces of 16, one thread has ended six pieces. */
	gate_shut_after(96);
	OK(hoist__ahead_start(&part, 1, 0, &ahead));
	uint64_t done = 0, before = 0, total;
	while (done < 8 * MIB) {
		CHECK(hoist__ahead_wait(ahead, 1000000) == -EAGAIN);
		hoist__ahead_progress(ahead, &done, &total);
		CHECK(done >= before && done < total && total == bytes);
		before = done;
	}
	hoist__ahead_cancel(ahead);
	gate_open();
	CHECK(hoist__ahead_wait(ahead, FOREVER) == -ECANCELED);
	CHECK(gate_asked <= 96 + 4); /* no thread began another */
	hoist__ahead_stop(ahead);
	gate_shut_after(20);
	pthread_t thread;
	OK(hoist__ahead_start(&part, 1, 2, &ahead));
	OK(pthread_create(&thread, NULL, open_later, NULL));
	hoist__ahead_stop(ahead); /* in the middle */
	OK(pthread_join(thread, NULL));
	hoist__file_close(file);
}

/* In a short part, and in one that is streamed; by either call. */
static void a_bad_place(void)
{
	struct hoist__file *file = new_file(36 * MIB);
	bad_begin = 7 * MIB + 512;
	bad_end = 7 * MIB + 1024;
	for (int i = 0; i < 4; i++) {
		lends_nothing = (i & 1) != 0;
		CHECK(run_one(part_of(file, 0, (i & 2) != 0 ? 36 * MIB : 10 * MIB, NULL)) == -EIO);
		check_said("at byte 7340544: ");
		check_said(file->path);
		OK(run_one(part_of(file, 0, 7 * MIB, NULL)));
	}
	lends_nothing = false;
	bad_end = 0;
	hoist__file_close(file);
}

static void a_file_that_shrank_on(int populating)
{
	char path[256];
	madvise_err = populating;
	make_file(scratch(path, sizeof path, "shrinks"), 2 * MIB);
	struct hoist__file *file = open_file(path);
	struct hoist__file_map map = {0};
	OK(hoist__file_map_open(file, HOIST__MAP_COPY_ON_WRITE, 0, 2 * MIB, &map));
	shrinks = path; /* after it was read */
	CHECK(run_one(part_of(file, 0, 2 * MIB, map.data)) == -ENODATA);
	check_said("the file ends at byte 100");
	CHECK(shrinks == NULL);
	CHECK(run_one(part_of(file, 0, 2 * MIB, map.data)) == -ENODATA); /* before */
	check_said("shrinks: the file ends at byte 100");
	madvise_err = 0;
	hoist__file_map_close(&map);
	hoist__file_close(file);
	unlink(path);
}

static void a_file_that_shrank(void)
{
	a_file_that_shrank_on(0);
	a_file_that_shrank_on(EINVAL); /* a kernel that does not populate */
}

static void kernels_that_do_not_populate(void)
{
	struct hoist__file *file = new_file(MIB);
	struct hoist__file_map map = {0};
	OK(hoist__file_map_open(file, HOIST__MAP_COPY_ON_WRITE, 0, MIB, &map));
	madvise_err = EINVAL; /* unknown */
	OK(run_one(part_of(file, 0, MIB, map.data)));
	madvise_err = EAGAIN; /* for ever */
	OK(run_one(part_of(file, 0, MIB, map.data)));
	madvise_err = EFAULT; /* though the file is long enough */
	CHECK(run_one(part_of(file, 0, MIB, map.data)) == -EIO);
	madvise_err = ENOMEM;
	CHECK(run_one(part_of(file, 0, MIB, map.data)) == -ENOMEM);
	check_said("1048576 bytes at 0 of ");
	madvise_err = 0;
	hoist__file_map_close(&map);
	hoist__file_close(file);
}

/* Two threads, and all of one disk's reads wait: the other thread brings the second disk's parts
 * in, whose turn would come after the first's. */
static void disks_beside_each_other(void)
{
	struct hoist__file *files[] = {new_file(30 * MIB), new_file(17 * MIB)};
	const struct hoist__ahead_part parts[] = {
		{files[0]->fd, files[0]->path, 0, 20 * MIB, NULL, 0},
		{files[1]->fd, files[1]->path, 0, 5 * MIB, NULL, 1},
		{files[0]->fd, files[0]->path, 20 * MIB, 10 * MIB, NULL, 0},
		{files[1]->fd, files[1]->path, 5 * MIB, 12 * MIB, NULL, 1}};
	for (int slow = 0; slow < 2; slow++) {
		struct hoist__ahead *ahead = NULL;
		uint64_t other = slow == 0 ? 17 * MIB : 30 * MIB;
		uint64_t done = 0, total = 0;
		atomic_store(&held_file, inode_of(files[slow]->fd));
		OK(hoist__ahead_start(parts, 4, 2, &ahead));
		while (done < other) {
			(void)usleep(500);
			hoist__ahead_progress(ahead, &done, &total);
		}
		CHECK(done == other && total == 47 * MIB);
		atomic_store(&held_file, 0);
		OK(hoist__ahead_wait(ahead, FOREVER));
		hoist__ahead_progress(ahead, &done, &total);
		CHECK(done == total);
		hoist__ahead_stop(ahead);
	}
	hoist__file_close(files[0]);
	hoist__file_close(files[1]);
}

static void calls_that_fail(void)
{
	struct hoist__file *file = new_file(20 * MIB);
	int n_failed = 0;
	for (int n = 1; n < 50; n++) {
		fail_at = n;
		int err = run_one(part_of(file, 0, 20 * MIB, NULL));
		bool failed = atomic_load(&fail_at) <= 0;
		fail_at = 0;
		CHECK(err == 0 || err == -ENOMEM || err == -EAGAIN);
		n_failed += err < 0;
		if (!failed)
			break;
	}
	CHECK(n_failed >= 3);
	hoist__file_close(file);
}

int main(void)
{
	CASE(brings_all_parts_in);
	CASE(streams_and_pieces);
	CASE(populating_copies_nothing);
	CASE(progress_and_a_quick_end);
	CASE(a_bad_place);
	CASE(a_file_that_shrank);
	CASE(kernels_that_do_not_populate);
	CASE(disks_beside_each_other);
	CASE(calls_that_fail);
	return 0;
}
