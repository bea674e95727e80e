/* SPDX-License-Identifier: MIT */
/* io/ahead.c - slices of parts, and the threads that read them and map them in.
 * The contract is in ahead.h. */
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

/* What a thread takes at a time, and asks the kernel to begin reading: what is behind the byte it
 * waits for is on its way meanwhile. */
#define SLICE_BYTES ((uint64_t)4 << 20)
/* Small enough to stay in a core's cache and for a quick end; larger ones are no faster. */
#define READ_BYTES ((size_t)256 << 10)
#define MAX_THREADS 4u	 /* for each disk */
#define MAX_RETRIES 1000 /* of what the kernel calls temporary */
#define MAX_FORGETS 3u	 /* in a slice: somebody else may hold the folio for a moment */

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
		size_t part;	   /* the next slice: of this one, */
		uint64_t at;	   /* from here on */
		unsigned n_slices; /* that threads are at */
	} disks[HOIST__MAX_DISKS];
	unsigned n_disks;
	unsigned n_running; /* threads */
	int err;
	char text[HOIST__ERROR_BYTES];
	const struct hoist__ahead_part *failed; /* NULL: not at a place */
	uint64_t failed_at;

	unsigned n_threads;
	pthread_t threads[MAX_THREADS * HOIST__MAX_DISKS];
};

/* Part of a part. */
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
			-ENODATA, "reading %llu bytes at %llu of %s ahead: it ends at %llu",
			(unsigned long long)part->bytes, (unsigned long long)part->offset,
			part->path, (unsigned long long)offset);
	return hoist__file_read_failed(err, part->path, offset);
}

static bool is_cancelled(const struct hoist__ahead *ahead)
{
	return atomic_load_explicit(&ahead->xcancelled, memory_order_relaxed);
}

/* Only a hint: what it does not bring, reading does. */
static void hint(const struct slice *slice)
{
	const struct hoist__ahead_part *part = slice->part;
	(void)posix_fadvise(part->fd, (off_t)(part->offset + slice->at), (off_t)slice->bytes,
			    POSIX_FADV_WILLNEED);
}

/* Somebody has read the file before, and left a folio that nobody can read as a whole.  The bytes
 * beside the bad sector have to get into the cache, for that is what is mapped: the cache is to
 * forget the folio, and what the hint brings then are single pages. */
static void forget_folios(const struct slice *slice)
{
	uint64_t begin = slice->part->offset + slice->at;
	uint64_t from = hoist__round_down(begin, HOIST__RESCUE_BYTES);
	uint64_t to = hoist__round_up(begin + slice->bytes, HOIST__RESCUE_BYTES);
	(void)posix_fadvise(slice->part->fd, (off_t)from, (off_t)(to - from), POSIX_FADV_DONTNEED);
	hint(slice);
}

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

/* The kernel would not map what was read a moment ago: the file may be shorter now. */
static int map_failed(struct slice *slice, int err)
{
	const struct hoist__ahead_part *part = slice->part;
	uint64_t offset = part->offset + slice->at;
	struct stat st;
	if (hoist__file_stat(part->fd, &st) == 0 && S_ISREG(st.st_mode) &&
	    (uint64_t)st.st_size < offset + slice->bytes)
		return read_failed(slice, (uint64_t)st.st_size, 0);
	if (err == EINVAL)
		return 0; /* unknown to this kernel: a touch maps it */
	if (err == EFAULT || err == EHWPOISON)
		err = EIO;
	slice->failed_at = offset;
	return hoist__fail_errno(-err, "mapping %llu bytes at %llu of %s in",
				 (unsigned long long)slice->bytes, (unsigned long long)offset,
				 part->path);
}

/* The pages that the slice has a part of lie in the map as a whole. */
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
	return 0; /* no error, only not ahead */
}

/* --- threads --- */

/* Under the lock: is there more of the disk?  Its place is at the next slice then. */
static bool has_more(struct hoist__ahead *ahead, unsigned disk)
{
	struct place *place = &ahead->disks[disk];
	while (place->part < ahead->n_parts && (ahead->parts[place->part].disk != disk ||
						place->at == ahead->parts[place->part].bytes)) {
		place->part++;
		place->at = 0;
	}
	return place->part < ahead->n_parts;
}

/* Under the lock: the next one, if there is any and it is still wanted. */
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
	return true;
}

static void keep_failure(struct hoist__ahead *ahead, int err, const struct slice *slice)
{
	if (err == 0 || ahead->err != 0 || err == -ECANCELED)
		return;
	ahead->err = err;
	ahead->failed = slice->part;
	ahead->failed_at = slice->failed_at;
	hoist__error_copy(ahead->text, sizeof ahead->text);
}

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
		ahead->disks[slice.part->disk].n_slices--;
	}
	keep_failure(ahead, err, &slice);
	if (--ahead->n_running == 0)
		pthread_cond_broadcast(&ahead->ended);
	pthread_mutex_unlock(&ahead->mutex);
	free(scratch);
	return NULL;
}

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

/* Under the lock, after the end. */
static int outcome(const struct hoist__ahead *ahead)
{
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
	/* A child after fork has no such threads, and the lock may be theirs. */
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
