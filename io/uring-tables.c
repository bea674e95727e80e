/* SPDX-License-Identifier: MIT */
/* Registers files and buffers with a ring, which saves each request their look-up.
 * The contract is in io/uring.h. */
#include "config.h"

#include "io/uring.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/checked.h"
#include "base/error.h"

#define MAX_PIECE_BYTES HOIST__GIB
#define MAX_PIECES (1u << 14)

/* --- registered files --- */

static int by_address(const void *a, const void *b)
{
	uintptr_t x = (uintptr_t) * (const struct hoist__file *const *)a;
	uintptr_t y = (uintptr_t) * (const struct hoist__file *const *)b;
	return x < y ? -1 : x > y;
}

/* liburing would raise RLIMIT_NOFILE for a table larger than the limit; only the host program may
 * change the limit. */
static bool within_file_limit(unsigned n)
{
	struct rlimit limit;
	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && n <= limit.rlim_cur;
}

/* Registered files only save time, so a refusal is noted and the requests name descriptors.  Each
 * file has two rows, for its cached and its direct descriptor; the files are sorted so that a
 * request finds its rows by bisection. */
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
		fds[2 * i + 1] = files->rows[i]->direct_fd; /* -1: an empty row */
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

/* Kernels before 6.12 keep a registered buffer of several huge pages as 4 KiB pieces, which cuts a
 * direct read at the device's segment limit (1 MiB where the limit is 254).  The same read into
 * unregistered huge pages stays whole.  MIN_TIMEOUT came with the same release. */
static bool splits_huge_pages(const struct io_uring *ring)
{
	return (ring->features & IORING_FEAT_MIN_TIMEOUT) == 0;
}

/* A refusal leaves the table empty, with the reason in the note: reads then use plain addresses. */
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
