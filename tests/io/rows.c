/* SPDX-License-Identifier: MIT */
/* Rows of a file that are read straight to their places: random lists of rows against a read of
 * each row by this program, files that end or fail within a row, cancels, and fresh memory.  The
 * linker sends the library's reads through here (--wrap). */
#include "config.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "base/checked.h"
#include "tests/support/io-helpers.h"
#include "tests/support/random.h"
#include "tests/support/wrap.h"

#define BYTES (((size_t)5 << 20) + 777)
#define MOST_LISTS 7u

/* --- the calls --- */

static _Atomic uint64_t bad_begin, bad_end; /* bytes of the file that cannot be read */
static atomic_uint n_calls;
static _Atomic int cut_fd = -1; /* the file ends at `cut_at` once this many calls were made: */
static atomic_uint cut_after;
static _Atomic uint64_t cut_at;

static void count_call(void)
{
	if (atomic_fetch_add(&n_calls, 1) + 1 == atomic_load(&cut_after) && cut_fd >= 0)
		OK(ftruncate(cut_fd, (off_t)cut_at));
}

/* How much of a read ends before the bad bytes; 0: the read begins in them. */
static size_t good(uint64_t offset, size_t bytes)
{
	uint64_t begin = bad_begin, end = bad_end;
	if (begin == end || offset >= end || offset + bytes <= begin)
		return bytes;
	return offset < begin ? (size_t)(begin - offset) : 0;
}

WRAP(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset))
{
	size_t n = good((uint64_t)offset, bytes);
	count_call();
	if (n == 0) {
		errno = EIO;
		return -1;
	}
	return __real_pread(fd, to, n, offset);
}

WRAP(ssize_t, preadv, (int fd, const struct iovec *to, int n_vectors, off_t offset))
{
	size_t bytes = 0;
	for (int i = 0; i < n_vectors; i++)
		bytes += to[i].iov_len;
	size_t n = good((uint64_t)offset, bytes);
	count_call();
	if (n == 0) {
		errno = EIO;
		return -1;
	}
	struct iovec less[64];
	int count = 0;
	CHECK(n_vectors <= 64);
	for (size_t left = n; left > 0 && count < n_vectors; left -= less[count++].iov_len) {
		less[count] = to[count];
		if (less[count].iov_len > left)
			less[count].iov_len = left;
	}
	return __real_preadv(fd, less, count, offset);
}

/* --- values --- */

static struct hoist__request rows_of(const struct hoist__file *file, const struct hoist__rows *rows,
				     size_t n)
{
	struct hoist__request request = {
		.file = file, .buffer = -1, .hot = true, .rows = rows, .n_rows = n};
	request.offset = rows[0].offset;
	request.address = rows[0].address;
	for (size_t i = 0; i < n; i++)
		request.bytes += rows[i].bytes * rows[i].n;
	request.need = request.bytes;
	return request;
}

/* Random lists whose places in memory follow each other, with gaps that must stay as they are.
 * Returns: how many lists. */
static size_t draw(uint64_t *random, unsigned char *memory, size_t room, struct hoist__rows *rows)
{
	static const size_t gaps[] = {0, 1, 7, 500, 3000, 3072, 3073, 9000, 40000};
	size_t n = 1 + random_below(random, MOST_LISTS);
	size_t at = 0;
	uint64_t offset = random_below(random, BYTES / 2);
	for (size_t i = 0; i < n; i++) {
		struct hoist__rows *list = &rows[i];
		list->bytes = 1 + random_below(random, random_below(random, 3) == 0 ? 30000 : 900);
		list->stride = list->bytes + gaps[random_below(random, 9)];
		list->n = 1 + random_below(random, 200);
		size_t span = list->n * list->stride;
		size_t step = list->bytes + random_below(random, 3);
		if (random_below(random, 4) == 0)
			offset = random_below(random, BYTES);
		if (offset + span > BYTES || at + list->n * step > room) {
			list->n = 1;
			list->bytes = 1;
			offset = random_below(random, BYTES);
		}
		list->offset = offset;
		list->address = memory + at;
		list->address_stride = (ptrdiff_t)step;
		if (list->n > 1 && random_below(random, 3) == 0) {
			list->address += (list->n - 1) * step; /* backwards */
			list->address_stride = -(ptrdiff_t)step;
		}
		at += list->n * step;
		offset += span;
	}
	return n;
}

/* Compares the first @done bytes of the lists; each later byte must be 0xEE. */
static void check_rows(const struct hoist__rows *rows, size_t n, size_t done,
		       const unsigned char *memory, size_t room)
{
	unsigned char *model = malloc(room);
	CHECK(model != NULL);
	memset(model, 0xEE, room);
	for (size_t i = 0; i < n; i++)
		for (size_t r = 0; r < rows[i].n; r++) {
			ptrdiff_t at =
				rows[i].address - memory + (ptrdiff_t)r * rows[i].address_stride;
			size_t bytes = rows[i].bytes < done ? rows[i].bytes : done;
			fill(model + at, rows[i].offset + r * rows[i].stride, bytes);
			done -= bytes;
		}
	CHECK(memcmp(model, memory, room) == 0);
	free(model);
}

static void of_any_kind(void)
{
	struct hoist__file *file = new_file(BYTES);
	size_t room = 4 * BYTES;
	unsigned char *memory = new_memory(room);
	uint64_t random = 20261123;
	FOR_EACH_ENGINE(kind)
	{
		const struct hoist__engine_options options = {.kind = kind, .depth = 4};
		struct hoist__engine *engine;
		OK(hoist__engine_create(&options, &engine));
		for (int i = 0; i < 60; i++) {
			struct hoist__rows rows[MOST_LISTS];
			size_t n = draw(&random, memory, room, rows);
			struct hoist__request request = rows_of(file, rows, n);
			memset(memory, 0xEE, room);
			run_request(engine, &request);
			CHECK(request.result == 0 && request.done == request.bytes);
			CHECK(request.direct_done == 0 && !request.fell_back);
			check_rows(rows, n, request.bytes, memory, room);
		}
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* Rows of 100 bytes with gaps of 400 share calls; rows with gaps of 4,000 have a call each. */
static void calls_for_rows(void)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(BYTES);
	static const struct {
		uint64_t stride;
		unsigned least, most;
	} table[] = {{500, 1, 1000 / 25}, {4100, 1000, 1000}};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(table); i++) {
		const struct hoist__engine_options options = {.kind = HOIST__ENGINE_AUTO,
							      .depth = 1};
		const struct hoist__rows rows = {.address = memory,
						 .bytes = 100,
						 .n = 1000,
						 .stride = table[i].stride,
						 .address_stride = 100};
		struct hoist__request request = rows_of(file, &rows, 1);
		struct hoist__engine *engine;
		OK(hoist__engine_create(&options, &engine));
		n_calls = 0;
		run_request(engine, &request);
		CHECK(request.result == 0);
		CHECK(n_calls >= table[i].least && n_calls <= table[i].most);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* --- what goes wrong --- */

/* 400 rows of 1,000 bytes, 10,000 apart. */
static struct hoist__rows usual(unsigned char *memory)
{
	return (struct hoist__rows){.offset = 5,
				    .address = memory,
				    .bytes = 1000,
				    .n = 400,
				    .stride = 10000,
				    .address_stride = 1000};
}

/* Bad bytes in a gap do not matter; bad bytes in a row end the request at the first of them that a
 * read of single pages cannot get. */
static void bad_bytes(void)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(BYTES);
	static const struct {
		uint64_t begin, end;
		int result;
		uint64_t offset; /* of the first byte that was not read */
	} table[] = {
		{1005, 10005, 0, 0},
		{2000000 + 5, 2000000 + 6, -EIO, 2000000 + 5},
		{2000000 + 504, 2000000 + 900, -EIO, 2000000 + 504},
	};
	FOR_EACH_ENGINE(kind)
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(table); i++) {
		const struct hoist__engine_options options = {.kind = kind, .depth = 1};
		const struct hoist__rows rows = usual(memory);
		struct hoist__request request = rows_of(file, &rows, 1);
		struct hoist__engine *engine;
		OK(hoist__engine_create(&options, &engine));
		memset(memory, 0xEE, BYTES);
		bad_end = table[i].end;
		bad_begin = table[i].begin;
		run_request(engine, &request);
		bad_begin = bad_end;
		CHECK(request.result == table[i].result);
		CHECK(request.result == 0 || hoist__request_offset(&request) == table[i].offset);
		check_rows(&rows, 1, request.done, memory, request.done);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* The file is cut while the request is served. */
static void shrinks(void)
{
	unsigned char *memory = new_memory(BYTES);
	FOR_EACH_ENGINE(kind)
	for (unsigned after = 1; after < 400; after += 57) {
		const struct hoist__engine_options options = {.kind = kind, .depth = 1};
		struct hoist__file *file = new_writable_file(BYTES);
		const struct hoist__rows rows = usual(memory);
		struct hoist__request request = rows_of(file, &rows, 1);
		struct hoist__engine *engine;
		OK(hoist__engine_create(&options, &engine));
		memset(memory, 0xEE, BYTES);
		n_calls = 0;
		cut_at = (after + 1) * 10000 + 5 + 123;
		cut_after = after;
		cut_fd = file->fd;
		run_request(engine, &request);
		cut_fd = -1;
		CHECK(request.result == -ENODATA && request.done == (after + 1) * 1000 + 123);
		CHECK(hoist__request_offset(&request) == cut_at);
		check_rows(&rows, 1, request.done, memory, request.done);
		hoist__engine_destroy(engine);
		hoist__file_close(file);
	}
	free(memory);
}

/* All requests come back after a cancel, each whole or cancelled. */
static void cancelled(void)
{
	enum { N = 12 };
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(N * (size_t)400000);
	FOR_EACH_ENGINE(kind)
	{
		const struct hoist__engine_options options = {.kind = kind, .depth = N};
		struct hoist__rows rows[N];
		struct hoist__request requests[N], *batch[N];
		struct hoist__engine *engine;
		OK(hoist__engine_create(&options, &engine));
		for (unsigned i = 0; i < N; i++) {
			rows[i] = usual(memory + i * (size_t)400000);
			requests[i] = rows_of(file, &rows[i], 1);
			batch[i] = &requests[i];
		}
		OK(hoist__engine_submit(engine, batch, N));
		hoist__engine_cancel(engine);
		reap_all(engine, N);
		for (unsigned i = 0; i < N; i++)
			CHECK(requests[i].result == -ECANCELED ||
			      (requests[i].result == 0 && requests[i].done == 400000));
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

static void refused(void)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(BYTES);
	const struct hoist__engine_options options = {.depth = 1};
	struct hoist__engine *engine;
	OK(hoist__engine_create(&options, &engine));
	for (int i = 0; i < 6; i++) {
		struct hoist__rows rows = usual(memory);
		struct hoist__request request = rows_of(file, &rows, 1);
		struct hoist__request *batch = &request;
		request.bytes += i == 0;
		request.need += i == 0;
		request.write = i == 1;
		request.hot = i != 2;
		rows.n = i == 3 ? 0 : rows.n;
		rows.stride = i == 4 ? UINT64_MAX / 2 : rows.stride;
		rows.offset = i == 5 ? INT64_MAX : rows.offset;
		CHECK(hoist__engine_submit(engine, &batch, 1) == -EINVAL);
	}
	hoist__engine_destroy(engine);
	free(memory);
	hoist__file_close(file);
}

/* --- fresh memory --- */

static size_t n_present(void *memory, size_t bytes)
{
	static unsigned char map[4096];
	size_t n = 0;
	CHECK(bytes <= 4096 * sizeof map && mincore(memory, bytes, map) == 0);
	for (size_t i = 0; i < bytes / 4096; i++)
		n += map[i] & 1u;
	return n;
}

/* A hot request has pages made for all of its fresh memory, and only that; rows for memory behind
 * their own, too.  Where the memory is gone, the request fails. */
static void fresh_memory(void)
{
	struct hoist__file *file = new_file(BYTES);
	size_t room = (size_t)12 << 20;
	for (int i = 0; i < 4; i++)
		FOR_EACH_ENGINE(kind)
		{
			const struct hoist__engine_options options = {.kind = kind, .depth = 1};
			struct hoist__engine *engine;
			unsigned char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE,
						     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
			CHECK(memory != MAP_FAILED);
			(void)madvise(memory, room, MADV_NOHUGEPAGE);
			OK(hoist__engine_create(&options, &engine));
			const struct hoist__rows rows = usual(memory);
			struct hoist__request request =
				i % 2 == 0 ? rows_of(file, &rows, 1)
					   : read_of(file, memory, 5, BYTES - 5);
			request.hot = true;
			request.fresh = memory;
			request.fresh_bytes = i % 2 == 0 ? (size_t)6 << 20 : request.bytes;
			if (i >= 2)
				request.fresh = memory + room - 4096;
			if (i == 2)
				OK(munmap(memory + room - 4096, 4096));
			if (i == 2)
				request.fresh_bytes = 4096;
			run_request(engine, &request);
			CHECK(request.result == (i == 2 ? -ENOMEM : 0));
			if (i == 0)
				CHECK(n_present(memory, (size_t)6 << 20) == (6 << 20) / 4096 &&
				      n_present(memory + (6 << 20), room - (6 << 20)) == 0);
			if (i == 1)
				check_bytes(memory, 5, BYTES - 5);
			hoist__engine_destroy(engine);
			(void)munmap(memory, room);
		}
	hoist__file_close(file);
}

int main(void)
{
	of_any_kind();
	calls_for_rows();
	bad_bytes();
	shrinks();
	cancelled();
	refused();
	fresh_memory();
	return 0;
}
