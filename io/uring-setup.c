/* SPDX-License-Identifier: MIT */
#include "config.h"

#include "io/uring.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

/* liburing 2.3 (Debian 12) knows these; 2.2 does not know all of them. */
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif
#ifndef IORING_FEAT_MIN_TIMEOUT
#define IORING_FEAT_MIN_TIMEOUT (1U << 15)
#endif

#define MAX_SQ_ENTRIES 128u
#define MAX_PIECE_BYTES HOIST__GIB
#define MAX_PIECES (1u << 14)

/* Waiting with a time limit, and completions that are never dropped. */
#define NEEDED_FEATURES (IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP)

/* --- the ring --- */

/* liburing maps and unmaps rings without the C library: ThreadSanitizer takes two
 * rings, of two threads, that lay at one address for one, unless it is told that
 * the first had ended. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
static char ring_ends;
#define AFTER_RINGS_ENDED() __tsan_acquire(&ring_ends)
#define RING_ENDS() __tsan_release(&ring_ends)
#else
#define AFTER_RINGS_ENDED() ((void)0)
#define RING_ENDS() ((void)0)
#endif

static const char *explain(int err)
{
	switch (err) {
	case -EPERM:
		return " (seccomp or kernel.io_uring_disabled)";
	case -ENOSYS:
		return " (this kernel or sandbox has none)";
	case -ENOMEM:
		return " (memory, or RLIMIT_MEMLOCK)";
	case -EMFILE:
	case -ENFILE:
		return " (too many open files)";
	case -ENOTSUP:
		return " (the kernel is older than 5.11)";
	default:
		return "";
	}
}

static int refused(int err)
{
	const char *name = strerrorname_np(-err);
	return hoist__fail(err, "io_uring refused: %s%s", name != NULL ? name : "unknown error",
			   explain(err));
}

/* Each unknown flag is EINVAL, so the kernel is asked with fewer and fewer.
 * A shared ring has no single issuer, and no cooperative completion either: the
 * thread that submitted may be away from the kernel while another one waits. */
int hoist__uring_setup(struct io_uring *ring, unsigned depth, bool shared, const char **mode)
{
	static const struct {
		unsigned flags;
		bool shared;
		const char *mode;
	} tries[] = {
		{IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
		 false, "single issuer"},
		{IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, false, "cooperative"},
		{IORING_SETUP_SUBMIT_ALL, true, "shared"},
		{0, true, "plain"},
	};
	int err = -EINVAL;
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(tries) && err == -EINVAL; i++) {
		if (shared && !tries[i].shared)
			continue;
		unsigned entries = (unsigned)hoist__min_u64(depth, MAX_SQ_ENTRIES);
		/* All requests and one cancel. */
		struct io_uring_params params = {
			.flags = tries[i].flags | IORING_SETUP_CQSIZE,
			.cq_entries = depth + 1 > entries ? depth + 1 : entries,
		};
		err = io_uring_queue_init_params(entries, ring, &params);
		if (err == 0)
			*mode = tries[i].mode;
	}
	if (err != 0)
		return refused(err);
	AFTER_RINGS_ENDED();
	if ((ring->features & NEEDED_FEATURES) != NEEDED_FEATURES) {
		hoist__uring_close(ring);
		return refused(-ENOTSUP);
	}
	return 0;
}

void hoist__uring_close(struct io_uring *ring)
{
	RING_ENDS();
	io_uring_queue_exit(ring);
}

/* A filter may allow io_uring_setup and refuse io_uring_enter. */
static int try_ring(void)
{
	struct io_uring ring;
	const char *mode;
	int err = hoist__uring_setup(&ring, 1, false, &mode);
	if (err != 0)
		return err;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&ring);
	io_uring_prep_nop(sqe);
	io_uring_sqe_set_data64(sqe, 0);
	do
		err = io_uring_submit_and_wait(&ring, 1);
	while (err == -EINTR);
	hoist__uring_close(&ring);
	return err < 0 ? refused(err) : 0;
}

/* Shortages pass; what the kernel, a filter or a setting refuses stays refused. */
static bool lasting(int verdict)
{
	return verdict == 0 || verdict == -EPERM || verdict == -ENOSYS || verdict == -EACCES ||
	       verdict == -EINVAL || verdict == -ENOTSUP;
}

int hoist__uring_probe(char *note, size_t note_bytes)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static bool known;
	static int verdict;
	static char text[128];

	pthread_mutex_lock(&mutex);
	if (!known) {
		verdict = try_ring();
		if (verdict != 0)
			hoist__error_copy(text, sizeof text);
		else
			(void)snprintf(text, sizeof text, "io_uring works");
		known = lasting(verdict);
		hoist__log(io, "probe: %s", text);
	}
	int err = verdict;
	if (note != NULL && note_bytes > 0)
		(void)snprintf(note, note_bytes, "%s", text);
	if (err != 0)
		hoist__fail(err, "%s", text);
	pthread_mutex_unlock(&mutex);
	return err;
}

/* --- registered files --- */

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t) * (const struct hoist__file *const *)a;
	uintptr_t y = (uintptr_t) * (const struct hoist__file *const *)b;
	return x < y ? -1 : x > y;
}

/* liburing raises RLIMIT_NOFILE where the table exceeds it; the limit is the host
 * program's to set. */
static bool within_file_limit(unsigned n)
{
	struct rlimit limit;
	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && n <= limit.rlim_cur;
}

static int register_files(struct io_uring *ring, const struct hoist__engine_options *options,
			  struct hoist__uring_files *files)
{
	unsigned n = options->n_files;
	if (n == 0)
		return 0;
	if (n > UINT_MAX / 2 || !within_file_limit(2 * n)) {
		(void)snprintf(files->note, sizeof files->note,
			       ", files not registered: RLIMIT_NOFILE");
		return 0;
	}
	files->rows = calloc(n, sizeof *files->rows);
	int *fds = calloc(n, 2 * sizeof *fds);
	if (files->rows == NULL || fds == NULL) {
		free(fds);
		return hoist__fail_nomem("files of an engine", n * sizeof *files->rows);
	}
	memcpy(files->rows, options->files, n * sizeof *files->rows);
	qsort(files->rows, n, sizeof *files->rows, by_address);
	for (unsigned i = 0; i < n; i++) {
		fds[2 * i] = files->rows[i]->fd;
		fds[2 * i + 1] = files->rows[i]->direct_fd; /* -1: an empty place */
	}
	int err = io_uring_register_files(ring, fds, 2 * n);
	free(fds);
	if (err < 0) {
		(void)snprintf(files->note, sizeof files->note, ", files not registered: %s",
			       strerrorname_np(-err));
		return 0;
	}
	files->n_rows = n;
	(void)snprintf(files->note, sizeof files->note, ", %u registered file%s", n,
		       n == 1 ? "" : "s");
	return 0;
}

int hoist__uring_file(const struct hoist__uring_files *files, const struct hoist__file *file,
		      bool direct)
{
	if (files->n_rows == 0)
		return -1;
	const struct hoist__file **row =
		bsearch(&file, files->rows, files->n_rows, sizeof *files->rows, by_address);
	return row == NULL ? -1 : (int)(row - files->rows) * 2 + (direct ? 1 : 0);
}

/* --- registered buffers --- */

static size_t count_pieces(const struct hoist__engine_options *options)
{
	size_t n = 0;
	for (unsigned i = 0; i < options->n_buffers; i++)
		n += (options->buffers[i].bytes + MAX_PIECE_BYTES - 1) / MAX_PIECE_BYTES;
	return n;
}

static unsigned cut(struct iovec *pieces, const struct hoist__engine_options *options,
		    struct hoist__uring_buffers *buffers)
{
	unsigned n = 0;
	for (unsigned i = 0; i < options->n_buffers; i++) {
		const struct hoist__engine_buffer *buffer = &options->buffers[i];
		struct hoist__uring_buffer *row = &buffers->rows[i];
		row->base = (uintptr_t)buffer->address;
		row->bytes = buffer->bytes;
		row->first = n;
		for (size_t at = 0; at < buffer->bytes; at += MAX_PIECE_BYTES) {
			pieces[n].iov_base = (char *)buffer->address + at;
			pieces[n].iov_len = hoist__min_u64(buffer->bytes - at, MAX_PIECE_BYTES);
			n++;
		}
	}
	return n;
}

static void say_buffers(struct hoist__uring_buffers *buffers, unsigned n, int err)
{
	if (err == 0) {
		buffers->n_rows = n;
		(void)snprintf(buffers->note, sizeof buffers->note, ", %u registered buffer%s", n,
			       n == 1 ? "" : "s");
	} else {
		(void)snprintf(buffers->note, sizeof buffers->note,
			       ", buffers not registered: %s%s", strerrorname_np(-err),
			       err == -ENOMEM ? " (RLIMIT_MEMLOCK)" : "");
	}
}

/* Kernels before 6.12 keep a registered buffer of several huge pages as 4 KiB
 * pieces, which cuts a direct read at the device's segment limit (1 MiB where it
 * is 254); the same read into plain huge pages stays whole.  MIN_TIMEOUT came
 * with the same release. */
static bool splits_huge_pages(const struct io_uring *ring)
{
	return (ring->features & IORING_FEAT_MIN_TIMEOUT) == 0;
}

static int register_buffers(struct io_uring *ring, const struct hoist__engine_options *options,
			    struct hoist__uring_buffers *buffers)
{
	size_t n_pieces = count_pieces(options);
	if (n_pieces == 0)
		return 0;
	if (n_pieces > MAX_PIECES) {
		say_buffers(buffers, options->n_buffers, -EMFILE);
		return 0;
	}
	if (splits_huge_pages(ring)) {
		(void)snprintf(buffers->note, sizeof buffers->note,
			       ", buffers not registered: this kernel would split them");
		return 0;
	}
	struct iovec *pieces = calloc(n_pieces, sizeof *pieces);
	buffers->rows = calloc(options->n_buffers, sizeof *buffers->rows);
	if (pieces == NULL || buffers->rows == NULL) {
		free(pieces);
		return hoist__fail_nomem("buffers of an engine", n_pieces * sizeof *pieces);
	}
	unsigned n = cut(pieces, options, buffers);
	say_buffers(buffers, options->n_buffers, io_uring_register_buffers(ring, pieces, n));
	free(pieces);
	return 0;
}

int hoist__uring_buffer(const struct hoist__uring_buffers *buffers, int index, const void *address,
			size_t bytes)
{
	if (index < 0 || (unsigned)index >= buffers->n_rows)
		return -1;
	const struct hoist__uring_buffer *row = &buffers->rows[index];
	uintptr_t start = (uintptr_t)address;
	if (start < row->base || bytes > row->bytes || start - row->base > row->bytes - bytes)
		return -1;
	size_t at = start - row->base;
	if (at % MAX_PIECE_BYTES + bytes > MAX_PIECE_BYTES)
		return -1;
	return (int)(row->first + at / MAX_PIECE_BYTES);
}

/* --- both --- */

int hoist__uring_register(struct io_uring *ring, const struct hoist__engine_options *options,
			  struct hoist__uring_files *files, struct hoist__uring_buffers *buffers)
{
	int err = register_files(ring, options, files);
	return err != 0 ? err : register_buffers(ring, options, buffers);
}

void hoist__uring_unregister(struct io_uring *ring, struct hoist__uring_files *files,
			     struct hoist__uring_buffers *buffers)
{
	if (buffers->n_rows > 0)
		(void)io_uring_unregister_buffers(ring);
	if (files->n_rows > 0)
		(void)io_uring_unregister_files(ring);
}
