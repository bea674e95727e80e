/* SPDX-License-Identifier: MIT */
/* io/lazy-serve.c - the threads that fill: who waits comes first, then what is read ahead of a
 * touch, then what is wanted untouched. */
#include "config.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/log.h"
#include "io/lazy-kernel.h"
#include "io/lazy-private.h"

#define WINDOW HOIST__LAZY_WINDOW_BYTES
#define MOST_AHEAD 32u /* windows */

void hoist__lazy_kick(struct hoist__lazy *lazy)
{
	/* Fails only if it has been kicked very often already. */
	if (lazy->kick >= 0)
		(void)!eventfd_write(lazy->kick, 1);
}

void hoist__lazy_keep(struct hoist__lazy *lazy, int err, const struct hoist__file *file,
		      uint64_t offset)
{
	pthread_mutex_lock(&lazy->mutex);
	if (lazy->err == 0) {
		lazy->err = err;
		lazy->failed = file;
		lazy->failed_at = offset;
		hoist__error_copy(lazy->text, sizeof lazy->text);
		pthread_cond_broadcast(&lazy->filled);
	}
	pthread_mutex_unlock(&lazy->mutex);
}

/* --- ahead of a touch; under the lock --- */

/* As many windows as are there already before the touched one, in one go: who reads along gets ever
 * more, who jumps about nothing. */
static void read_ahead(struct hoist__lazy *lazy, size_t index)
{
	const struct hoist__lazy_area *area = hoist__lazy_area_of(lazy, index);
	size_t end = area + 1 < lazy->areas + lazy->n_areas ? area[1].first : lazy->n_windows;
	size_t n = 0;
	while (n < MOST_AHEAD && index - n > area->first &&
	       lazy->windows[index - n - 1].state != HOIST__LAZY_EMPTY)
		n++;
	struct hoist__lazy_span span = {index + 1, (size_t)hoist__min_u64(index + 1 + n, end)};
	if (span.next == span.end)
		return;
	if (lazy->n_spans == HOIST__LAZY_SPANS) {
		for (unsigned i = 1; i < lazy->n_spans; i++)
			lazy->spans[i - 1] = lazy->spans[i];
		lazy->n_spans--;
	}
	lazy->spans[lazy->n_spans++] = span;
	hoist__lazy_kick(lazy);
}

/* The newest touch's first. */
static bool next_ahead(struct hoist__lazy *lazy, size_t *ret)
{
	while (lazy->n_spans > 0) {
		struct hoist__lazy_span *span = &lazy->spans[lazy->n_spans - 1];
		while (span->next < span->end) {
			size_t index = span->next++;
			if (lazy->windows[index].state == HOIST__LAZY_EMPTY) {
				*ret = index;
				return true;
			}
		}
		lazy->n_spans--;
	}
	return false;
}

static bool next_wanted(struct hoist__lazy *lazy, size_t *ret)
{
	if (!lazy->wanting)
		return false;
	for (; lazy->cursor < lazy->n_windows; lazy->cursor++) {
		const struct hoist__lazy_window *window = &lazy->windows[lazy->cursor];
		bool unchecked = window->state == HOIST__LAZY_PARTS && !window->checked;
		if (window->wanted && (window->state == HOIST__LAZY_EMPTY || unchecked)) {
			*ret = lazy->cursor++;
			return true;
		}
	}
	return false;
}

/* --- the work --- */

static void stop_threads(struct hoist__lazy *lazy)
{
	lazy->stop = true;
	hoist__lazy_kick(lazy);
}

/* It is FILLING, and this thread's.  That some of it cannot be read is no failure yet: a window
 * holds what nobody asked for, too.  That the file is shorter is. */
static void fill(struct hoist__lazy_thread *thread, size_t index)
{
	struct hoist__lazy *lazy = thread->lazy;
	int err = hoist__lazy_fill(thread, index);
	pthread_mutex_lock(&lazy->mutex);
	struct hoist__lazy_window *window = &lazy->windows[index];
	window->state = err < 0 ? HOIST__LAZY_PARTS : HOIST__LAZY_WHOLE;
	lazy->n_whole += err == 0;
	lazy->n_wanted_tried += hoist__lazy_is_tried(window);
	if (window->wanted) {
		pthread_cond_broadcast(&lazy->filled);
		lazy->cursor = (size_t)hoist__min_u64(lazy->cursor, index);
	}
	if (lazy->n_whole == lazy->n_windows)
		stop_threads(lazy);
	pthread_mutex_unlock(&lazy->mutex);
	/* Not before the state says so: who looks again and still finds nothing is served anew. */
	hoist__uffd_wake(lazy->uffd, hoist__lazy_window_at(lazy, index), WINDOW);
}

/* The @n-th wanted range's part of window @index, in whole pages; false: there is none any more.
 * *n becomes the next one's number. */
static bool wanted_part(struct hoist__lazy *lazy, size_t index, size_t *n,
			struct hoist__lazy_want *ret)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	bool found = false;
	pthread_mutex_lock(&lazy->mutex);
	for (; *n < lazy->n_wants && !found; ++*n) {
		const struct hoist__lazy_want *want = &lazy->wants[*n];
		ret->at = (size_t)hoist__max_u64(hoist__round_down(want->at, page), index * WINDOW);
		ret->end = (size_t)hoist__min_u64(want->end, (index + 1) * WINDOW);
		found = ret->at < ret->end;
	}
	pthread_mutex_unlock(&lazy->mutex);
	return found;
}

/* Tries what is wanted of a window of PARTS, page by page; once more if more was wanted
 * meanwhile. */
static void check(struct hoist__lazy_thread *thread, size_t index)
{
	struct hoist__lazy *lazy = thread->lazy;
	struct hoist__lazy_want part;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int err = 0;
	pthread_mutex_lock(&lazy->mutex);
	size_t n_asked = lazy->n_asked;
	pthread_mutex_unlock(&lazy->mutex);
	for (size_t n = 0; err == 0 && wanted_part(lazy, index, &n, &part);)
		for (size_t at = part.at; err == 0 && at < part.end; at += page)
			err = hoist__lazy_fill_page(thread, (uintptr_t)lazy->data + at);
	pthread_mutex_lock(&lazy->mutex);
	struct hoist__lazy_window *window = &lazy->windows[index];
	if (lazy->n_asked == n_asked) {
		lazy->n_wanted_tried += !window->checked;
		window->checked = true;
		pthread_cond_broadcast(&lazy->filled);
	} else {
		lazy->cursor = (size_t)hoist__min_u64(lazy->cursor, index);
	}
	pthread_mutex_unlock(&lazy->mutex);
}

/* Of a window that is FILLING, whoever fills it wakes. */
static void serve(struct hoist__lazy_thread *thread, uintptr_t address)
{
	struct hoist__lazy *lazy = thread->lazy;
	size_t index = (address - (uintptr_t)lazy->data) / WINDOW;
	pthread_mutex_lock(&lazy->mutex);
	unsigned char state = lazy->windows[index].state;
	if (state == HOIST__LAZY_EMPTY) {
		lazy->windows[index].state = HOIST__LAZY_FILLING;
		read_ahead(lazy, index);
	}
	pthread_mutex_unlock(&lazy->mutex);
	if (state == HOIST__LAZY_EMPTY)
		fill(thread, index);
	else if (state != HOIST__LAZY_FILLING)
		(void)hoist__lazy_fill_page(thread, address);
}

/* True if there was a window that nobody waits for. */
static bool fill_ahead(struct hoist__lazy_thread *thread)
{
	struct hoist__lazy *lazy = thread->lazy;
	size_t index = 0;
	pthread_mutex_lock(&lazy->mutex);
	bool any = next_ahead(lazy, &index) || next_wanted(lazy, &index);
	bool empty = any && lazy->windows[index].state == HOIST__LAZY_EMPTY;
	if (empty)
		lazy->windows[index].state = HOIST__LAZY_FILLING;
	pthread_mutex_unlock(&lazy->mutex);
	if (empty)
		fill(thread, index);
	else if (any)
		check(thread, index);
	return any;
}

/* A kick that says "stop" is left for the others. */
static void wait_for_work(struct hoist__lazy *lazy)
{
	struct pollfd fds[2] = {{.fd = lazy->uffd, .events = POLLIN},
				{.fd = lazy->kick, .events = POLLIN}};
	if (poll(fds, 2, -1) <= 0 || fds[1].revents == 0)
		return;
	pthread_mutex_lock(&lazy->mutex);
	eventfd_t n;
	if (!lazy->stop)
		(void)!eventfd_read(lazy->kick, &n);
	pthread_mutex_unlock(&lazy->mutex);
}

static bool stopped(struct hoist__lazy *lazy)
{
	pthread_mutex_lock(&lazy->mutex);
	bool stop = lazy->stop;
	pthread_mutex_unlock(&lazy->mutex);
	return stop;
}

/* The last thread's, if all is filled: nothing of ours is needed any more, but the memory. */
static void become_plain(struct hoist__lazy *lazy)
{
	hoist__uffd_unregister(lazy->uffd, lazy->data, lazy->bytes);
	(void)madvise(lazy->data, lazy->bytes, MADV_DOFORK);
	int fds[] = {lazy->uffd, lazy->nothing, lazy->kick};
	lazy->uffd = lazy->nothing = lazy->kick = -1;
	for (unsigned i = 0; i < 3; i++)
		close(fds[i]);
	atomic_store(&lazy->xplain, true);
	hoist__log(io, "lazy: all %zu bytes are there", lazy->bytes);
}

static void run_on(int node)
{
	struct hoist__topology *topology;
	if (hoist__topology_load("/sys", &topology) < 0)
		return;
	if (hoist__run_on_node(topology, node) < 0)
		hoist__log(io, "lazy: %s", hoist__error_text());
	hoist__topology_destroy(topology);
}

void *hoist__lazy_serve(void *argument)
{
	struct hoist__lazy_thread *thread = argument;
	struct hoist__lazy *lazy = thread->lazy;
	uintptr_t address;
	if (lazy->node >= 0)
		run_on(lazy->node);
	while (!stopped(lazy)) {
		if (hoist__uffd_next(lazy->uffd, &address))
			serve(thread, address);
		else if (!fill_ahead(thread))
			wait_for_work(lazy);
	}
	hoist__region_destroy(thread->staging);
	thread->staging = NULL;
	pthread_mutex_lock(&lazy->mutex);
	if (--lazy->n_running == 0 && lazy->n_whole == lazy->n_windows)
		become_plain(lazy);
	pthread_mutex_unlock(&lazy->mutex);
	return NULL;
}
