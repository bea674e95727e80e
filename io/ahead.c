/* SPDX-License-Identifier: MIT */
/* Cuts parts into slices; threads read the slices and map them in.
 * The contract is in io/ahead.h. */
#include "config.h"

#include "io/ahead.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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

/* A thread takes a slice at a time, and asks the kernel to begin reading all of it: the bytes
 * behind the one that the thread waits for are on their way meanwhile. */
#define SLICE_BYTES ((uint64_t)4 << 20)
/* Fits in a core's cache, and lets a cancel take effect soon.  Larger reads are no faster. */
#define READ_BYTES ((size_t)256 << 10)
#define MAX_THREADS 4u	 /* for each disk */
#define MAX_RETRIES 1000 /* of MADV_POPULATE_READ after EINTR or EAGAIN */
#define MAX_FORGETS 3u	 /* in a slice: another process may hold the folio for a moment */

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

/* The range of a part that one thread reads. */
struct slice {
	const struct hoist__ahead_part *part;
	uint64_t at; /* in the part */
	uint64_t bytes;
	uint64_t failed_at; /* in the file */
};

/* --- one slice --- */

static int read_failed(struct slice *slice, uint64_t offset, int err)
{
	const struct hoist__ahead_part *part = slice->part;
	slice->failed_at = offset;
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

/* Only a hint: pread(2) fetches the pages that the hint did not. */
static void hint(const struct slice *slice)
{
	const struct hoist__ahead_part *part = slice->part;
	(void)posix_fadvise(part->fd, (off_t)(part->offset + slice->at), (off_t)slice->bytes,
			    POSIX_FADV_WILLNEED);
}

/* An earlier read of the file left a folio that cannot be read as a whole.  The bytes beside the
 * bad sector must get into the cache, since the map shows the cache.  So the cache is asked to
 * forget the folio, and the hint then brings single pages. */
static void forget_folios(const struct slice *slice)
{
	uint64_t begin = slice->part->offset + slice->at;
	uint64_t from = hoist__round_down(begin, HOIST__RESCUE_BYTES);
	uint64_t to = hoist__round_up(begin + slice->bytes, HOIST__RESCUE_BYTES);
	(void)posix_fadvise(slice->part->fd, (off_t)from, (off_t)(to - from), POSIX_FADV_DONTNEED);
	hint(slice);
}

/* A bad sector can spoil a folio that an earlier read left in the cache: the cache is asked to
 * forget the folio, a few times, before the slice fails. */
static int read_slice(struct hoist__ahead *ahead, struct slice *slice, void *scratch)
{
	const struct hoist__ahead_part *part = slice->part;
	uint64_t offset = part->offset + slice->at;
	uint64_t end = offset + slice->bytes;
	unsigned n_again = 0;
	unsigned n_forgets = 0;
	hint(slice);
	while (offset < end) {
		if (is_cancelled(ahead))
			return -ECANCELED;
		size_t want = (size_t)hoist__min_u64(READ_BYTES, end - offset);
		ssize_t n = pread(part->fd, scratch, want, (off_t)offset);
		int err = n < 0 ? errno : 0;
		if (n > 0) {
			offset += (uint64_t)n;
			n_again = 0;
		} else if (hoist__rescuable(err) && n_forgets++ < MAX_FORGETS) {
			forget_folios(slice);
		} else if (!hoist__again(err, &n_again)) {
			return read_failed(slice, offset, err);
		}
	}
	return 0;
}

/* The kernel refused to map pages that were read a moment ago: the file may be shorter now. */
static int map_failed(struct slice *slice, int err)
{
	const struct hoist__ahead_part *part = slice->part;
	uint64_t offset = part->offset + slice->at;
	struct stat st;
	if (hoist__file_stat(part->fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size < offset + slice->bytes)
		return read_failed(slice, (uint64_t)st.st_size, 0);
	if (err == EINVAL)
		return 0; /* before Linux 5.14: a touch maps the page */
	if (err == EFAULT || err == EHWPOISON)
		err = EIO;
	slice->failed_at = offset;
	return hoist__fail_errno(-err, "mapping %llu bytes at %llu of %s in",
				 (unsigned long long)slice->bytes, (unsigned long long)offset,
				 part->path);
}

/* madvise(2) takes whole pages.  The map is of whole pages, so rounding outwards stays inside. */
static int map_slice(struct slice *slice)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)slice->part->address + slice->at;
	uintptr_t from = hoist__round_down(begin, page);
	uintptr_t to = hoist__round_up(begin + slice->bytes, page);
	for (int i = 0; i < MAX_RETRIES; i++) {
		if (madvise((void *)from, to - from, MADV_POPULATE_READ) == 0)
			return 0;
		if (errno != EINTR && errno != EAGAIN)
			return map_failed(slice, errno);
	}
	return 0; /* no error: a touch will map the pages */
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
	*ret = (struct slice){.part = part,
			      .at = place->at,
			      .bytes = hoist__min_u64(SLICE_BYTES, part->bytes - place->at)};
	place->at += ret->bytes;
	place->n_slices++;
	HOIST__ASSERT(ret->bytes != 0 && place->at <= part->bytes);
	HOIST__ASSERT(place == &ahead->disks[part->disk]);
	return true;
}

/* Under the lock: the first failure wins.  A cancel is no failure of a slice. */
static void keep_failure(struct hoist__ahead *ahead, int err, const struct slice *slice)
{
	if (err == 0 || ahead->err != 0 || err == -ECANCELED)
		return;
	ahead->err = err;
	HOIST__ASSERT(err < 0 && hoist__mutex_held(&ahead->mutex));
	ahead->failed = slice->part;
	ahead->failed_at = slice->failed_at;
	hoist__error_copy(ahead->text, sizeof ahead->text);
}

/* A slice counts as done only once it is mapped, so progress never runs ahead of the map. */
static void *run(void *argument)
{
	struct hoist__ahead *ahead = argument;
	void *scratch = malloc(READ_BYTES);
	int err = scratch == NULL ? hoist__fail_nomem("reading ahead", READ_BYTES) : 0;
	struct slice slice = {0};
	pthread_mutex_lock(&ahead->mutex);
	while (err == 0 && claim(ahead, &slice)) {
		pthread_mutex_unlock(&ahead->mutex);
		err = read_slice(ahead, &slice, scratch);
		if (err == 0 && slice.part->address != NULL)
			err = map_slice(&slice);
		if (err == 0)
			atomic_fetch_add_explicit(&ahead->xdone, slice.bytes, memory_order_relaxed);
		pthread_mutex_lock(&ahead->mutex);
		HOIST__ASSERT(ahead->disks[slice.part->disk].n_slices != 0);
		ahead->disks[slice.part->disk].n_slices--;
	}
	keep_failure(ahead, err, &slice);
	HOIST__ASSERT(ahead->n_running != 0 && atomic_load(&ahead->xdone) <= ahead->total);
	if (--ahead->n_running == 0)
		pthread_cond_broadcast(&ahead->ended);
	pthread_mutex_unlock(&ahead->mutex);
	free(scratch);
	return NULL;
}

/* Starts @n threads, but no more than there can be slices.  One thread is enough: fewer are only
 * slower.  The lock keeps the threads from ending before n_running is set. */
static int start_threads(struct hoist__ahead *ahead, unsigned n)
{
	if (n == 0 || n > MAX_THREADS * ahead->n_disks)
		n = MAX_THREADS * ahead->n_disks;
	uint64_t n_slices = ahead->total / SLICE_BYTES + ahead->n_parts;
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
