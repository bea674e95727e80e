/* SPDX-License-Identifier: MIT */
/* Cuts parts into slices; threads read the slices and map them in.
 * The contract is in io/ahead.h. */
#include "config.h"

#include "io/ahead.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/wait.h"
#include "io/again.h"
#include "io/disks.h"
#include "io/file.h"
#include "io/rescue.h"
#include "io/worker.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

/* A part of at least LEAST_STREAM is read in slices of that size and more.  A stream reaches the
 * disk's rate after some MiB, and the kernel's window, of up to some MiB, reaches beyond the
 * slice's end.  So a slice is a thread's share of the rest of the part: long at first, and short
 * at the end, where all threads are to end together. */
#define LEAST_STREAM ((uint64_t)32 << 20)
/* A piece of a slice is read, and then mapped while the kernel reads the next ones. */
#define PIECE_BYTES ((uint64_t)4 << 20)
/* Lets a cancel take effect soon.  Larger reads are no faster. */
#define READ_BYTES ((size_t)256 << 10)
#define MAX_THREADS 4u	 /* for each disk */
#define MAX_RETRIES 1000 /* of MADV_POPULATE_READ after EINTR or EAGAIN */
#define MAX_FORGETS 3u	 /* in a piece: another process may hold the folio for a moment */

struct hoist__ahead {
	size_t n_parts;
	struct hoist__ahead_part *parts;
	uint64_t total;
	pid_t pid;
	_Atomic uint64_t xdone;
	atomic_bool xcancelled;

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t ended;
	struct place {
		size_t part;	   /* the next slice begins in this part, */
		uint64_t at;	   /* at this offset in the part */
		unsigned n_slices; /* that threads are reading */
	} disks[HOIST__MAX_DISKS];
	unsigned n_disks;
	unsigned n_running; /* threads */
	int err;
	char text[HOIST__ERROR_BYTES];
	const struct hoist__ahead_part *failed; /* NULL: the failure has no offset */
	uint64_t failed_at;

	unsigned n_threads;
	pthread_t threads[MAX_THREADS * HOIST__MAX_DISKS];
};

/* A range of a part: a slice, which one thread reads, or a piece of a slice. */
struct slice {
	const struct hoist__ahead_part *part;
	uint64_t at; /* in the part */
	uint64_t bytes;
	uint64_t failed_at; /* in the file */
};

/* A thread's means of reading. */
struct reader {
	void *scratch; /* READ_BYTES */
	int sink;      /* /dev/null; -1: it cannot be had */
	int own;       /* another description of the file of the part's descriptor `of`; -1: none */
	int of;
	int fd; /* that the slice is read by: `own`, or the part's, which is not streamed then */
};

static bool streams(const struct hoist__ahead_part *part)
{
	return part->bytes >= LEAST_STREAM;
}

/* --- readers --- */

/* The kernel keeps one window of readahead for each open file description, so threads that share a
 * description spoil the window for one another.  SEQUENTIAL doubles the window.  A network's file
 * is not opened again: the server is asked, and FUSE may forget the file's pages. */
static void turn_to(struct reader *reader, const struct hoist__ahead_part *part)
{
	char path[32];
	if (streams(part) && part->fd != reader->of) {
		if (reader->own >= 0)
			(void)close(reader->own);
		reader->of = part->fd;
		reader->own = -1;
		(void)snprintf(path, sizeof path, "/proc/self/fd/%d", part->fd);
		if (!hoist__fs_of_fd(part->fd)->network)
			reader->own = HOIST__UNINTERRUPTED(open(path, O_RDONLY | O_CLOEXEC));
		if (reader->own >= 0)
			(void)posix_fadvise(reader->own, 0, 0, POSIX_FADV_SEQUENTIAL);
	}
	reader->fd = streams(part) && reader->own >= 0 ? reader->own : part->fd;
}

static int reader_open(struct reader *ret)
{
	*ret = (struct reader){.scratch = malloc(READ_BYTES), .of = -1, .own = -1};
	ret->sink = HOIST__UNINTERRUPTED(open("/dev/null", O_WRONLY | O_CLOEXEC));
	return ret->scratch == NULL ? hoist__fail_nomem("reading ahead", READ_BYTES) : 0;
}

static void reader_close(struct reader *reader)
{
	if (reader->own >= 0)
		(void)close(reader->own);
	if (reader->sink >= 0)
		(void)close(reader->sink);
	free(reader->scratch);
}

/* Reads up to @bytes at @offset into the page cache, without a copy where the file system lends its
 * pages.  The copy into the scratch buffer decides whether a read has failed, and how.  Returns: as
 * pread(2). */
static ssize_t fetch(const struct reader *reader, uint64_t offset, size_t bytes)
{
	off_t at = (off_t)offset;
	ssize_t n = reader->sink >= 0 ? sendfile(reader->sink, reader->fd, &at, bytes) : -1;
	return n > 0 ? n : pread(reader->fd, reader->scratch, bytes, (off_t)offset);
}

/* --- one piece --- */

static int read_failed(struct slice *piece, uint64_t offset, int err)
{
	const struct hoist__ahead_part *part = piece->part;
	piece->failed_at = offset;
	if (err == 0)
		return hoist__fail(
			-ENODATA,
			"reading ahead %llu bytes at byte %llu of %s: the file ends at byte %llu",
			(unsigned long long)part->bytes, (unsigned long long)part->offset,
			part->path, (unsigned long long)offset);
	return hoist__file_read_failed(err, part->path, offset);
}

static bool is_cancelled(const struct hoist__ahead *ahead)
{
	return atomic_load_explicit(&ahead->xcancelled, memory_order_relaxed);
}

/* Begins to read exactly the piece.  Only a hint: fetch() brings the pages that the hint did not.
 */
static void hint(const struct slice *piece)
{
	const struct hoist__ahead_part *part = piece->part;
	(void)posix_fadvise(part->fd, (off_t)(part->offset + piece->at), (off_t)piece->bytes,
			    POSIX_FADV_WILLNEED);
}

/* An earlier read of the file left a folio that cannot be read as a whole.  The bytes beside the
 * bad sector must get into the cache, since the map shows the cache.  So the cache is asked to
 * forget the folio, and the hint then brings single pages. */
static void forget_folios(const struct slice *piece)
{
	uint64_t begin = piece->part->offset + piece->at;
	uint64_t from = hoist__round_down(begin, HOIST__RESCUE_BYTES);
	uint64_t to = hoist__round_up(begin + piece->bytes, HOIST__RESCUE_BYTES);
	(void)posix_fadvise(piece->part->fd, (off_t)from, (off_t)(to - from), POSIX_FADV_DONTNEED);
	hint(piece);
}

/* A bad sector can spoil a folio that an earlier read left in the cache: the cache is asked to
 * forget the folio, a few times, before the piece fails. */
static int read_piece(const struct hoist__ahead *ahead, const struct reader *reader,
		      struct slice *piece)
{
	uint64_t offset = piece->part->offset + piece->at;
	uint64_t end = offset + piece->bytes;
	unsigned n_again = 0;
	unsigned n_forgets = 0;
	while (offset < end) {
		if (is_cancelled(ahead))
			return -ECANCELED;
		ssize_t n = fetch(reader, offset, (size_t)hoist__min_u64(READ_BYTES, end - offset));
		int err = n < 0 ? errno : 0;
		if (n > 0) {
			offset += (uint64_t)n;
			n_again = 0;
		} else if (hoist__rescuable(err) && n_forgets++ < MAX_FORGETS) {
			forget_folios(piece);
		} else if (!hoist__again(err, &n_again)) {
			return read_failed(piece, offset, err);
		}
	}
	return 0;
}

/* The kernel refused to map pages that were read a moment ago: the file may be shorter now. */
static int map_failed(struct slice *piece, int err)
{
	const struct hoist__ahead_part *part = piece->part;
	uint64_t offset = part->offset + piece->at;
	struct stat st;
	if (hoist__file_stat(part->fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size < offset + piece->bytes)
		return read_failed(piece, (uint64_t)st.st_size, 0);
	if (err == EINVAL)
		return 0; /* before Linux 5.14: a touch maps the page */
	if (err == EFAULT || err == EHWPOISON)
		err = EIO;
	piece->failed_at = offset;
	return hoist__fail_errno(-err, "mapping %llu bytes at %llu of %s in",
				 (unsigned long long)piece->bytes, (unsigned long long)offset,
				 part->path);
}

/* madvise(2) takes whole pages.  The map is of whole pages, so rounding outwards stays inside. */
static int map_piece(struct slice *piece)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)piece->part->address + piece->at;
	uintptr_t from = hoist__round_down(begin, page);
	uintptr_t to = hoist__round_up(begin + piece->bytes, page);
	for (int i = 0; i < MAX_RETRIES; i++) {
		if (madvise((void *)from, to - from, MADV_POPULATE_READ) == 0)
			return 0;
		if (errno != EINTR && errno != EAGAIN)
			return map_failed(piece, errno);
	}
	return 0; /* no error: a touch will map the pages */
}

/* Without a stream, the kernel begins to read a whole piece at once. */
static int bring_in(const struct hoist__ahead *ahead, const struct reader *reader,
		    struct slice *piece)
{
	if (reader->fd == piece->part->fd)
		hint(piece);
	int err = read_piece(ahead, reader, piece);
	return err == 0 && piece->part->address != NULL ? map_piece(piece) : err;
}

/* A piece counts as done only once it is mapped, so progress never runs ahead of the map.  *failed:
 * the piece that failed. */
static int bring_slice(struct hoist__ahead *ahead, struct reader *reader, const struct slice *slice,
		       struct slice *failed)
{
	int err = 0;
	turn_to(reader, slice->part);
	for (uint64_t done = 0; done < slice->bytes && err == 0;) {
		struct slice piece = {.part = slice->part,
				      .at = slice->at + done,
				      .bytes = hoist__min_u64(PIECE_BYTES, slice->bytes - done)};
		err = bring_in(ahead, reader, &piece);
		*failed = piece;
		done += piece.bytes;
		if (err == 0)
			atomic_fetch_add_explicit(&ahead->xdone, piece.bytes, memory_order_relaxed);
	}
	return err;
}

/* --- threads --- */

/* Under the lock.  Returns: true if the disk has another slice, to which the disk's place then
 * points. */
static bool has_more(struct hoist__ahead *ahead, unsigned disk)
{
	struct place *place = &ahead->disks[disk];
	HOIST__ASSERT(hoist__mutex_held(&ahead->mutex) && disk < ahead->n_disks);
	while (place->part < ahead->n_parts && (ahead->parts[place->part].disk != disk ||
						place->at == ahead->parts[place->part].bytes)) {
		place->part++;
		place->at = 0;
	}
	return place->part < ahead->n_parts;
}

/* The bytes of the slice that begins at @at. */
static uint64_t slice_bytes(const struct hoist__ahead_part *part, uint64_t at)
{
	uint64_t rest = part->bytes - at;
	uint64_t share = hoist__round_up(rest / MAX_THREADS, PIECE_BYTES);
	uint64_t bytes = streams(part) ? hoist__max_u64(share, LEAST_STREAM) : PIECE_BYTES;
	return hoist__min_u64(bytes, rest);
}

/* Under the lock: takes the next slice.  Returns: false if none is left, or after a failure or a
 * cancel. */
static bool claim(struct hoist__ahead *ahead, struct slice *ret)
{
	struct place *place = NULL;
	for (unsigned d = 0; d < ahead->n_disks; d++)
		if (has_more(ahead, d) &&
		    (place == NULL || ahead->disks[d].n_slices < place->n_slices))
			place = &ahead->disks[d];
	if (place == NULL || ahead->err != 0 || is_cancelled(ahead))
		return false;
	const struct hoist__ahead_part *part = &ahead->parts[place->part];
	*ret = (struct slice){.part = part, .at = place->at, .bytes = slice_bytes(part, place->at)};
	place->at += ret->bytes;
	place->n_slices++;
	HOIST__ASSERT(ret->bytes != 0 && place->at <= part->bytes);
	HOIST__ASSERT(place == &ahead->disks[part->disk]);
	return true;
}

/* Under the lock: the first failure wins.  A cancel is no failure of a slice. */
static void keep_failure(struct hoist__ahead *ahead, int err, const struct slice *failed)
{
	if (err == 0 || ahead->err != 0 || err == -ECANCELED)
		return;
	ahead->err = err;
	HOIST__ASSERT(err < 0 && hoist__mutex_held(&ahead->mutex));
	ahead->failed = failed->part;
	ahead->failed_at = failed->failed_at;
	hoist__error_copy(ahead->text, sizeof ahead->text);
}

static void *run(void *argument)
{
	struct hoist__ahead *ahead = argument;
	struct reader reader;
	struct slice slice = {0};
	struct slice failed = {0};
	int err = reader_open(&reader);
	pthread_mutex_lock(&ahead->mutex);
	while (err == 0 && claim(ahead, &slice)) {
		pthread_mutex_unlock(&ahead->mutex);
		err = bring_slice(ahead, &reader, &slice, &failed);
		pthread_mutex_lock(&ahead->mutex);
		HOIST__ASSERT(ahead->disks[slice.part->disk].n_slices != 0);
		ahead->disks[slice.part->disk].n_slices--;
	}
	keep_failure(ahead, err, &failed);
	pthread_mutex_unlock(&ahead->mutex);
	reader_close(&reader); /* before wait() returns */
	pthread_mutex_lock(&ahead->mutex);
	HOIST__ASSERT(ahead->n_running != 0 && atomic_load(&ahead->xdone) <= ahead->total);
	if (--ahead->n_running == 0)
		pthread_cond_broadcast(&ahead->ended);
	pthread_mutex_unlock(&ahead->mutex);
	return NULL;
}

/* Starts @n threads, but no more than there can be slices.  One thread is enough: fewer are only
 * slower.  The lock keeps the threads from ending before n_running is set. */
static int start_threads(struct hoist__ahead *ahead, unsigned n)
{
	if (n == 0 || n > MAX_THREADS * ahead->n_disks)
		n = MAX_THREADS * ahead->n_disks;
	uint64_t n_slices = ahead->total / PIECE_BYTES + ahead->n_parts;
	n = (unsigned)hoist__min_u64(n, n_slices);
	n = n == 0 ? 1 : n;
	int err = 0;
	pthread_mutex_lock(&ahead->mutex);
	while (ahead->n_threads < n && err == 0) {
		err = hoist__worker_start(&ahead->threads[ahead->n_threads], run, ahead);
		ahead->n_threads += err == 0;
	}
	ahead->n_running = ahead->n_threads;
	pthread_mutex_unlock(&ahead->mutex);
	return ahead->n_threads > 0 ? 0
				    : hoist__fail_thread(err, "starting a thread to read ahead");
}

/* --- the object --- */

static int init_locks(struct hoist__ahead *ahead)
{
	int err = -pthread_mutex_init(&ahead->mutex, NULL);
	if (err != 0)
		return err;
	err = hoist__condition_init(&ahead->ended);
	if (err != 0)
		pthread_mutex_destroy(&ahead->mutex);
	return err;
}

int hoist__ahead_start(const struct hoist__ahead_part *parts, size_t n_parts, unsigned n_threads,
		       struct hoist__ahead **ret)
{
	struct hoist__ahead *ahead = calloc(1, sizeof *ahead);
	struct hoist__ahead_part *copy = calloc(n_parts + 1, sizeof *copy);
	if (ahead == NULL || copy == NULL || init_locks(ahead) != 0) {
		free(ahead);
		free(copy);
		return hoist__fail_nomem("reading ahead", n_parts * sizeof *copy);
	}
	/* The threads outlive this call, and so perhaps the caller's list. */
	if (n_parts > 0)
		memcpy(copy, parts, n_parts * sizeof *copy);
	ahead->parts = copy;
	ahead->n_parts = n_parts;
	ahead->pid = getpid();
	ahead->n_disks = 1;
	for (size_t i = 0; i < n_parts; i++) {
		ahead->total += parts[i].bytes;
		ahead->n_disks = (unsigned)hoist__max_u64(ahead->n_disks, parts[i].disk + 1);
	}
	int err = start_threads(ahead, n_threads);
	if (err < 0) {
		hoist__ahead_stop(ahead);
		return err;
	}
	*ret = ahead;
	return 0;
}

void hoist__ahead_progress(const struct hoist__ahead *ahead, uint64_t *done, uint64_t *total)
{
	*done = atomic_load_explicit(&ahead->xdone, memory_order_relaxed);
	*total = ahead->total;
}

static int fail_short(const struct hoist__ahead *ahead, int err)
{
	uint64_t done;
	uint64_t total;
	hoist__ahead_progress(ahead, &done, &total);
	return hoist__fail(err, "%llu of %llu bytes have been read ahead", (unsigned long long)done,
			   (unsigned long long)total);
}

/* Under the lock, once all threads have ended. */
static int outcome(const struct hoist__ahead *ahead)
{
	HOIST__ASSERT(ahead->n_running == 0 && hoist__mutex_held(&ahead->mutex));
	if (ahead->err != 0)
		return hoist__fail(ahead->err, "%s", ahead->text);
	bool all = atomic_load_explicit(&ahead->xdone, memory_order_relaxed) == ahead->total;
	return all ? 0 : fail_short(ahead, -ECANCELED);
}

int hoist__ahead_wait(struct hoist__ahead *ahead, uint64_t timeout_ns)
{
	uint64_t deadline = hoist__deadline(timeout_ns);
	int waited = 0;
	pthread_mutex_lock(&ahead->mutex);
	while (ahead->n_running > 0 && waited == 0)
		waited = hoist__condition_wait(&ahead->ended, &ahead->mutex, deadline);
	int err = ahead->n_running == 0 ? outcome(ahead) : fail_short(ahead, -EAGAIN);
	pthread_mutex_unlock(&ahead->mutex);
	return err;
}

const struct hoist__ahead_part *hoist__ahead_failed(struct hoist__ahead *ahead, uint64_t *ret)
{
	pthread_mutex_lock(&ahead->mutex);
	const struct hoist__ahead_part *part = ahead->failed;
	if (part != NULL)
		*ret = ahead->failed_at;
	pthread_mutex_unlock(&ahead->mutex);
	return part;
}

void hoist__ahead_cancel(struct hoist__ahead *ahead)
{
	atomic_store_explicit(&ahead->xcancelled, true, memory_order_relaxed);
}

void hoist__ahead_stop(struct hoist__ahead *ahead)
{
	if (ahead == NULL)
		return;
	/* A forked child does not have these threads, and one of them may have held the lock. */
	if (ahead->pid == getpid()) {
		hoist__ahead_cancel(ahead);
		for (unsigned i = 0; i < ahead->n_threads; i++)
			pthread_join(ahead->threads[i], NULL);
		pthread_cond_destroy(&ahead->ended);
		pthread_mutex_destroy(&ahead->mutex);
	}
	free(ahead->parts);
	free(ahead);
}
