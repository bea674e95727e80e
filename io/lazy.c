/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/lazy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/log.h"
#include "base/wait.h"
#include "io/lazy-kernel.h"
#include "io/lazy-private.h"
#include "io/worker.h"

#define WINDOW HOIST__LAZY_WINDOW_BYTES

/* --- memory --- */

/* Ranges one behind the other, each from a new window on, as it lies in its file to the alignment
 * of direct reads. */
static int lay_out(struct hoist__lazy *lazy, struct hoist__lazy_range *ranges, size_t n)
{
	lazy->areas = calloc(n + 1, sizeof *lazy->areas);
	if (lazy->areas == NULL)
		return hoist__fail_nomem("lazy memory", n * sizeof *lazy->areas);
	uint64_t align = (uint64_t)sysconf(_SC_PAGESIZE);
	for (size_t i = 0; i < n; i++) {
		const struct hoist__file *file = ranges[i].file;
		uint64_t start = hoist__round_down(ranges[i].begin,
						   hoist__max_u64(align, file->offset_align));
		lazy->areas[i] = (struct hoist__lazy_area){file, start, lazy->n_windows};
		ranges[i].at = lazy->n_windows * WINDOW + (size_t)(ranges[i].begin - start);
		lazy->n_windows += (ranges[i].end - start + WINDOW - 1) / WINDOW;
	}
	lazy->n_areas = n;
	lazy->bytes = lazy->n_windows * WINDOW;
	lazy->windows = calloc(lazy->n_windows + 1, sizeof *lazy->windows);
	if (lazy->windows == NULL)
		return hoist__fail_nomem("lazy memory", lazy->n_windows * sizeof *lazy->windows);
	return 0;
}

/* A child of fork has it not at all.  Nor is it locked or filled by mlockall(MCL_FUTURE): pages
 * that are there would be zeros for ever. */
static int set_apart(const struct hoist__region *region)
{
	void *base = (void *)region->base;
	if (munlock(base, region->bytes) < 0 || madvise(base, region->bytes, MADV_DONTNEED) < 0 ||
	    madvise(base, region->bytes, MADV_DONTFORK) < 0)
		return hoist__fail_errno(-errno, "setting %zu bytes apart", region->bytes);
	return 0;
}

static int reserve(size_t bytes, bool lazy, const struct hoist__placement *placement,
		   struct hoist__region **ret)
{
	const struct hoist__region_options options = {
		.kind = HOIST__MEMORY_HOST,
		.bytes = bytes,
		.placement = *placement,
		.lazy = lazy,
	};
	struct hoist__region *region = NULL;
	int err = hoist__region_create(&options, &region);
	if (err == 0)
		err = set_apart(region);
	if (err < 0) {
		hoist__region_destroy(region);
		return err;
	}
	*ret = region;
	return 0;
}

/* --- the kernel's part --- */

static int open_descriptors(struct hoist__lazy *lazy)
{
	bool moves = false;
	int err = hoist__uffd_open(&lazy->uffd, &moves);
	if (err == 0)
		err = hoist__uffd_register(lazy->uffd, lazy->data, lazy->bytes, &moves);
	if (err < 0)
		return err;
	atomic_init(&lazy->xmoves, moves);
	lazy->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	lazy->nothing = memfd_create("hoist-unreadable", MFD_CLOEXEC);
	if (lazy->kick < 0 || lazy->nothing < 0)
		return hoist__fail_errno(-errno, "opening descriptors for lazy memory");
	(void)snprintf(lazy->note, sizeof lazy->note,
		       "filled when touched (userfaultfd; windows of 2 MiB are %s)",
		       moves ? "moved in" : "copied in: no UFFDIO_MOVE here");
	return 0;
}

static int start_threads(struct hoist__lazy *lazy, const struct hoist__placement *placement)
{
	/* They wait for files more than they compute. */
	unsigned n = 2 * hoist__worker_cpus();
	n = (unsigned)hoist__min_u64(n, hoist__min_u64(HOIST__LAZY_MAX_THREADS, lazy->n_windows));
	int err = 0;
	pthread_mutex_lock(&lazy->mutex);
	for (unsigned i = 0; i < n && err == 0; i++) {
		struct hoist__lazy_thread *thread = &lazy->threads[i];
		thread->lazy = lazy;
		err = reserve(WINDOW, false, placement, &thread->staging);
		int refused = 0;
		if (err == 0)
			refused = hoist__worker_start(&thread->id, hoist__lazy_serve, thread);
		if (refused != 0)
			err = hoist__fail_thread(refused, "starting a thread for lazy memory");
		lazy->n_threads += err == 0;
		if (err < 0) {
			hoist__region_destroy(thread->staging);
			thread->staging = NULL;
		}
	}
	lazy->n_running = lazy->n_threads;
	pthread_mutex_unlock(&lazy->mutex);
	return lazy->n_threads > 0 ? 0 : err;
}

/* --- the object --- */

static int init_locks(struct hoist__lazy *lazy)
{
	int err = pthread_mutex_init(&lazy->mutex, NULL);
	if (err != 0)
		return hoist__fail_errno(-err, "creating a mutex");
	err = pthread_mutex_init(&lazy->pages, NULL);
	if (err == 0 && hoist__condition_init(&lazy->filled) == 0)
		return 0;
	if (err == 0)
		pthread_mutex_destroy(&lazy->pages);
	pthread_mutex_destroy(&lazy->mutex);
	return hoist__fail(-ENOMEM, "creating a mutex or a condition variable");
}

static int build(struct hoist__lazy *lazy, struct hoist__lazy_range *ranges, size_t n_ranges,
		 const struct hoist__placement *placement)
{
	int err = lay_out(lazy, ranges, n_ranges);
	if (err == 0)
		err = reserve(lazy->bytes, true, placement, &lazy->region);
	if (err < 0)
		return err;
	lazy->data = (unsigned char *)lazy->region->base;
	if (lazy->region->placed == HOIST__PLACED_FIRST_TOUCH)
		lazy->node = hoist__nodeset_first(&placement->nodes);
	err = open_descriptors(lazy);
	return err == 0 ? start_threads(lazy, placement) : err;
}

int hoist__lazy_open(struct hoist__lazy_range *ranges, size_t n_ranges,
		     const struct hoist__placement *placement, struct hoist__lazy **ret)
{
	struct hoist__lazy *lazy = calloc(1, sizeof *lazy);
	if (lazy == NULL)
		return hoist__fail_nomem("lazy memory", sizeof *lazy);
	lazy->uffd = lazy->nothing = lazy->kick = lazy->node = -1;
	lazy->pid = getpid();
	int err = init_locks(lazy);
	if (err < 0) {
		free(lazy);
		return err;
	}
	err = build(lazy, ranges, n_ranges, placement);
	if (err < 0) {
		hoist__lazy_close(lazy);
		return err;
	}
	hoist__log(io, "lazy: %zu bytes, %s", lazy->bytes, lazy->note);
	*ret = lazy;
	return 0;
}

unsigned char *hoist__lazy_data(const struct hoist__lazy *lazy)
{
	return lazy->data;
}

size_t hoist__lazy_bytes(const struct hoist__lazy *lazy)
{
	return lazy->bytes;
}

const char *hoist__lazy_note(const struct hoist__lazy *lazy)
{
	return lazy->note;
}

/* --- ahead --- */

/* Under the lock.  They mostly come one behind the other. */
static int add_want(struct hoist__lazy *lazy, size_t at, size_t end)
{
	struct hoist__lazy_want *last = lazy->n_wants > 0 ? &lazy->wants[lazy->n_wants - 1] : NULL;
	if (last != NULL && last->at <= at && at <= last->end) {
		last->end = (size_t)hoist__max_u64(last->end, end);
		return 0;
	}
	if (lazy->n_wants == lazy->wants_room) {
		size_t room = lazy->wants_room == 0 ? 16 : 2 * lazy->wants_room;
		struct hoist__lazy_want *wants = realloc(lazy->wants, room * sizeof *wants);
		if (wants == NULL)
			return hoist__fail_nomem("what is wanted of lazy memory",
						 room * sizeof *wants);
		lazy->wants = wants;
		lazy->wants_room = room;
	}
	lazy->wants[lazy->n_wants++] = (struct hoist__lazy_want){at, end};
	return 0;
}

int hoist__lazy_want(struct hoist__lazy *lazy, size_t at, size_t bytes)
{
	size_t end = (at + bytes + WINDOW - 1) / WINDOW;
	pthread_mutex_lock(&lazy->mutex);
	int err = add_want(lazy, at, at + bytes);
	for (size_t i = at / WINDOW; err == 0 && i < end; i++) {
		struct hoist__lazy_window *window = &lazy->windows[i];
		lazy->n_wanted_tried -= hoist__lazy_is_tried(window);
		lazy->n_wanted += !window->wanted;
		window->wanted = true;
		window->checked = false;
		lazy->n_wanted_tried += hoist__lazy_is_tried(window);
	}
	lazy->cursor = (size_t)hoist__min_u64(lazy->cursor, at / WINDOW);
	lazy->n_asked++;
	lazy->wanting = true;
	hoist__lazy_kick(lazy);
	pthread_mutex_unlock(&lazy->mutex);
	return err;
}

void hoist__lazy_unwant(struct hoist__lazy *lazy)
{
	pthread_mutex_lock(&lazy->mutex);
	lazy->wanting = false;
	pthread_cond_broadcast(&lazy->filled);
	pthread_mutex_unlock(&lazy->mutex);
}

void hoist__lazy_progress(struct hoist__lazy *lazy, uint64_t *done, uint64_t *total)
{
	pthread_mutex_lock(&lazy->mutex);
	*done = (uint64_t)lazy->n_wanted_tried * WINDOW;
	*total = (uint64_t)lazy->n_wanted * WINDOW;
	pthread_mutex_unlock(&lazy->mutex);
}

/* Under the lock. */
static int outcome(const struct hoist__lazy *lazy)
{
	return lazy->err != 0 ? hoist__fail(lazy->err, "%s", lazy->text) : 0;
}

int hoist__lazy_wait(struct hoist__lazy *lazy, uint64_t timeout_ns)
{
	uint64_t deadline = hoist__deadline(timeout_ns);
	int waited = 0;
	pthread_mutex_lock(&lazy->mutex);
	while (lazy->err == 0 && lazy->wanting && lazy->n_wanted_tried < lazy->n_wanted &&
	       waited == 0)
		waited = hoist__condition_wait(&lazy->filled, &lazy->mutex, deadline);
	int err = outcome(lazy);
	if (err == 0 && lazy->n_wanted_tried < lazy->n_wanted)
		err = hoist__fail(lazy->wanting ? -EAGAIN : -ECANCELED,
				  "%zu of %zu windows of 2 MiB are filled so far",
				  lazy->n_wanted_tried, lazy->n_wanted);
	pthread_mutex_unlock(&lazy->mutex);
	return err;
}

/* In a child of fork the lock may be a thread's that is not there. */
static int error_in_child(const struct hoist__lazy *lazy)
{
	if (atomic_load(&lazy->xplain))
		return outcome(lazy); /* nobody changes it any more */
	return hoist__fail(-ESTALE,
			   "memory that is filled when touched is process %d's, which forked this "
			   "one before all of it was there",
			   (int)lazy->pid);
}

int hoist__lazy_error(struct hoist__lazy *lazy)
{
	if (lazy->pid != getpid())
		return error_in_child(lazy);
	pthread_mutex_lock(&lazy->mutex);
	int err = outcome(lazy);
	pthread_mutex_unlock(&lazy->mutex);
	return err;
}

const struct hoist__file *hoist__lazy_failed(struct hoist__lazy *lazy, uint64_t *ret)
{
	bool parent = lazy->pid == getpid();
	if (!parent && !atomic_load(&lazy->xplain))
		return NULL;
	if (parent)
		pthread_mutex_lock(&lazy->mutex);
	const struct hoist__file *file = lazy->failed;
	if (file != NULL)
		*ret = lazy->failed_at;
	if (parent)
		pthread_mutex_unlock(&lazy->mutex);
	return file;
}

/* --- the end --- */

static void end_threads(struct hoist__lazy *lazy)
{
	pthread_mutex_lock(&lazy->mutex);
	lazy->stop = true;
	hoist__lazy_kick(lazy);
	pthread_mutex_unlock(&lazy->mutex);
	for (unsigned i = 0; i < lazy->n_threads; i++)
		pthread_join(lazy->threads[i].id, NULL);
	pthread_cond_destroy(&lazy->filled);
	pthread_mutex_destroy(&lazy->pages);
	pthread_mutex_destroy(&lazy->mutex);
}

static void close_one(int fd)
{
	if (fd >= 0)
		close(fd);
}

void hoist__lazy_close(struct hoist__lazy *lazy)
{
	if (lazy == NULL)
		return;
	/* A child after fork has no such threads, and not the memory unless it was plain: something
	 * else may lie there by now. */
	bool parent = lazy->pid == getpid();
	if (parent)
		end_threads(lazy);
	if (parent || atomic_load(&lazy->xplain))
		hoist__region_destroy(lazy->region);
	close_one(lazy->uffd);
	close_one(lazy->nothing);
	close_one(lazy->kick);
	free(lazy->areas);
	free(lazy->windows);
	free(lazy->wants);
	free(lazy);
}
