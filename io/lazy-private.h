/* SPDX-License-Identifier: MIT */
/* io/lazy-private.h - what the files of lazy memory share.
 *
 *   lazy.c         the object: memory, threads, what is wanted, the end
 *   lazy-serve.c   what the threads do
 *   lazy-fill.c    one window, one page: reading it and putting it in place
 *   lazy-kernel.c  userfaultfd(2)
 */
#ifndef HOIST_IO_LAZY_PRIVATE_H
#define HOIST_IO_LAZY_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "alloc/region.h"
#include "base/error.h"
#include "io/lazy.h"

#define HOIST__LAZY_MAX_THREADS 4u

enum hoist__lazy_state {
	HOIST__LAZY_EMPTY,
	HOIST__LAZY_FILLING,
	HOIST__LAZY_WHOLE, /* TRIED, and all of it is there */
	HOIST__LAZY_PARTS  /* TRIED in vain: page by page from now on */
};

struct hoist__lazy_window {
	unsigned char state;
	bool wanted;
	bool checked; /* PARTS: each page that is wanted was tried */
};

struct hoist__lazy_area {
	const struct hoist__file *file;
	uint64_t start; /* where its first window begins in the file: aligned for direct reads */
	size_t first;	/* its first window; it ends where the next area begins */
};

struct hoist__lazy_span {
	size_t next; /* windows [next, end) are to be filled ahead */
	size_t end;
};

struct hoist__lazy_want {
	size_t at; /* bytes [at, end) of the memory */
	size_t end;
};

#define HOIST__LAZY_SPANS 8u

struct hoist__lazy_thread {
	struct hoist__lazy *lazy;
	struct hoist__region *staging; /* one window; the thread's until it ends */
	pthread_t id;
};

struct hoist__lazy {
	/* Constant while threads run. */
	struct hoist__region *region;
	unsigned char *data;
	size_t bytes;
	size_t n_windows;
	size_t n_areas;
	struct hoist__lazy_area *areas;
	int uffd;
	int nothing; /* an empty file: maps of it are SIGBUS */
	int node;    /* threads run there, as the kernel would not be told where pages go; -1 */
	pid_t pid;
	char note[128];

	atomic_bool xmoves;    /* UFFDIO_MOVE works */
	atomic_bool xplain;    /* all is filled: plain memory, which children have, too */
	pthread_mutex_t pages; /* one page at a time is tried again */

	pthread_mutex_t mutex; /* guards what follows */
	pthread_cond_t filled;
	struct hoist__lazy_window *windows;
	size_t n_whole;
	struct hoist__lazy_span spans[HOIST__LAZY_SPANS];
	unsigned n_spans;
	bool wanting;
	struct hoist__lazy_want *wants;
	size_t n_wants;
	size_t wants_room;
	size_t n_asked;	       /* how often something was wanted */
	size_t n_wanted;       /* windows */
	size_t n_wanted_tried; /* of these, whole or checked */
	size_t cursor;	       /* no window before it is wanted, and empty or to be checked */
	int kick; /* an eventfd: there is something to do besides faults; -1: no threads */
	bool stop;
	unsigned n_running;
	int err;
	char text[HOIST__ERROR_BYTES];
	const struct hoist__file *failed; /* NULL: not at a place */
	uint64_t failed_at;

	unsigned n_threads;
	struct hoist__lazy_thread threads[HOIST__LAZY_MAX_THREADS];
};

/* --- lazy-serve.c --- */

void *hoist__lazy_serve(void *thread);

/* Under the lock: threads that wait for work look again. */
void hoist__lazy_kick(struct hoist__lazy *lazy);

/* Without the lock, the calling thread's text: the first failure is kept, at byte @offset of @file.
 */
void hoist__lazy_keep(struct hoist__lazy *lazy, int err, const struct hoist__file *file,
		      uint64_t offset);

/* Under the lock: the window counts as tried. */
static inline bool hoist__lazy_is_tried(const struct hoist__lazy_window *window)
{
	return window->wanted && (window->state == HOIST__LAZY_WHOLE ||
				  (window->state == HOIST__LAZY_PARTS && window->checked));
}

/* --- lazy-fill.c --- */

/* Reads and places window @index, which is FILLING.  Who waits for it is not woken.
 * Returns: 0; the failure, which is kept if it is -ENODATA: its pages tell of others. */
int hoist__lazy_fill(struct hoist__lazy_thread *thread, size_t index);

/* The page at @address, of a window that was tried: is there after this, or SIGBUS.  Wakes.
 * Returns: 0; the failure, which is kept. */
int hoist__lazy_fill_page(struct hoist__lazy_thread *thread, uintptr_t address);

const struct hoist__lazy_area *hoist__lazy_area_of(const struct hoist__lazy *lazy, size_t index);

static inline unsigned char *hoist__lazy_window_at(const struct hoist__lazy *lazy, size_t index)
{
	return lazy->data + index * HOIST__LAZY_WINDOW_BYTES;
}

#endif
