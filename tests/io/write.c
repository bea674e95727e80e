/* SPDX-License-Identifier: MIT */
/* Writes in flight: the same tests for both engines, read back by pread(2). */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

#include "base/checked.h"
#include "base/error.h"
#include "tests/support/io-helpers.h"

#define BYTES ((size_t)3 << 20)
#define BLOCK ((size_t)256 << 10)
#define N (BYTES / BLOCK)

static struct hoist__request write_of(const struct hoist__file *file, unsigned char *from,
				      uint64_t offset, size_t bytes, bool direct)
{
	return (struct hoist__request){.file = file,
				       .offset = offset,
				       .address = from,
				       .bytes = bytes,
				       .need = bytes,
				       .direct = direct,
				       .write = true,
				       .buffer = -1};
}

/* All of a file, its blocks in the wrong order. */
static void write_all(struct hoist__engine *engine, const struct hoist__file *file,
		      unsigned char *memory, bool direct)
{
	struct hoist__request requests[N], *batch[N];
	for (size_t i = 0; i < N; i++) {
		size_t at = (i * 5 % N) * BLOCK;
		requests[i] = write_of(file, memory + at, at, BLOCK, direct);
		requests[i].buffer = 0; /* there may be none */
		batch[i] = &requests[i];
	}
	cr_assert(hoist__engine_submit(engine, batch, N) == 0, "%s", hoist__error_text());
	reap_all(engine, N);
	for (size_t i = 0; i < N; i++) {
		cr_assert(requests[i].result == 0 && requests[i].done == BLOCK);
		cr_assert(requests[i].direct_done == (direct ? BLOCK : 0));
	}
}

Test(io_write, a_written_block_is_read)
{
	unsigned char *memory = new_memory(BYTES);
	fill(memory, 0, BYTES);
	FOR_EACH_ENGINE(kind)
	for (int way = 0; way < 4; way++) {
		bool direct = (way & 1) != 0;
		struct hoist__file *file = new_writable_file(100);
		if (!direct || file->direct_fd >= 0) {
			struct hoist__engine *engine =
				(way & 2) != 0
					? engine_with(kind, N,
						      (const struct hoist__file *const *)&file, 1,
						      memory, BYTES)
					: new_engine(kind, N, false);
			write_all(engine, file, memory, direct);
			hoist__engine_destroy(engine);
			cr_assert(first_wrong(file->fd, memory, 0, BYTES) == BYTES);
		}
		hoist__file_close(file);
	}
	free(memory);
}

/* Through the cache no alignment is wanted. */
Test(io_write, odd_places)
{
	struct hoist__file *file = new_writable_file(0);
	unsigned char *memory = new_memory(300000);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, 1, false);
		for (uint64_t at = 1; at < 200000; at = at * 3 + 1) {
			size_t bytes = 1 + at / 2;
			fill(memory + 3, at, bytes);
			struct hoist__request request =
				write_of(file, memory + 3, at, bytes, false);
			run_request(engine, &request);
			cr_assert(request.result == 0 && request.done == bytes);
			cr_assert(first_wrong(file->fd, memory + 3, at, bytes) == bytes);
		}
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* A direct write that the file system refuses is finished through the cache. */
Test(io_write, refused_direct_writes)
{
	struct hoist__file *file = new_writable_file(0);
	unsigned char *memory = new_memory(10000);
	if (file->direct_fd < 0)
		cr_skip_test("no direct writes here: %s", file->direct_note);
	file->offset_align = 1; /* not so */
	file->memory_align = 1;
	fill(memory, 0, 10000);
	FOR_EACH_ENGINE(kind)
	{
		cr_assert(ftruncate(file->fd, 0) == 0);
		struct hoist__engine *engine = new_engine(kind, 1, false);
		struct hoist__request request = write_of(file, memory + 7, 7, 9001, true);
		run_request(engine, &request);
		cr_assert(request.result == 0 && request.done == 9001 && request.fell_back);
		cr_assert(request.direct_done == 0);
		cr_assert(first_wrong(file->fd, memory + 7, 7, 9001) == 9001);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* A real error ends it at once; `done` is what was written before. */
Test(io_write, errors)
{
	struct hoist__file *file = new_writable_file(0), *read_only = new_file(4096);
	unsigned char *memory = new_memory(BYTES);
	char full_name[] = "/dev/full";
	struct hoist__file full = {.path = full_name, .direct_fd = -1};
	full.fd = open(full_name, O_RDWR | O_CLOEXEC);
	cr_assert(full.fd >= 0);
	/* Its signal would end the process: writers of large files must see to that. */
	cr_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
	struct rlimit limit = {.rlim_cur = 300000, .rlim_max = RLIM_INFINITY};
	cr_assert(getrlimit(RLIMIT_FSIZE, &limit) == 0);
	struct rlimit small = {.rlim_cur = 300000, .rlim_max = limit.rlim_max};
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, 1, false);
		struct hoist__request request = write_of(&full, memory, 0, 5000, false);
		run_request(engine, &request);
		cr_assert(request.result == -ENOSPC && request.done == 0);

		request = write_of(read_only, memory, 0, 4096, false);
		run_request(engine, &request);
		cr_assert(request.result == -EBADF && request.done == 0);

		cr_assert(setrlimit(RLIMIT_FSIZE, &small) == 0);
		request = write_of(file, memory, 0, BYTES, false);
		run_request(engine, &request);
		cr_assert(setrlimit(RLIMIT_FSIZE, &limit) == 0);
		cr_assert(request.result == -EFBIG && request.done == 300000, "%d after %zu",
			  request.result, request.done);

		request = write_of(file, memory, 0, BYTES, false);
		run_request(engine, &request);
		cr_assert(request.result == 0);
		hoist__engine_destroy(engine);
	}
	close(full.fd);
	free(memory);
	hoist__file_close(read_only);
	hoist__file_close(file);
}

Test(io_write, a_write_that_makes_no_sense_is_refused)
{
	struct hoist__file *file = new_writable_file(0);
	unsigned char *memory = new_memory(8192);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, 1, false);
		struct hoist__request bad[] = {
			write_of(file, memory, 0, 0, false),
			write_of(file, memory, 0, 4096, false),
			write_of(file, memory, INT64_MAX - 10, 4096, false),
			write_of(file, memory, 1, 4096, true),
			write_of(file, memory + 1, 0, 4096, true),
			write_of(file, memory, 0, 4095, true),
		};
		bad[1].need = 4095;
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(bad); i++) {
			struct hoist__request *one = &bad[i];
			(void)hoist__fail(0, "%s", "");
			cr_expect(hoist__engine_submit(engine, &one, 1) == -EINVAL, "%zu", i);
			cr_expect(strstr(hoist__error_text(), "writing") != NULL);
		}
		cr_assert(hoist__engine_room(engine) == 1);
		hoist__engine_destroy(engine);
	}
	cr_assert(lseek(file->fd, 0, SEEK_END) == 0);
	free(memory);
	hoist__file_close(file);
}

/* Each one ends, written or not; the engine goes on, or goes away. */
Test(io_write, cancelled_in_the_middle)
{
	struct hoist__file *file = new_writable_file(0);
	unsigned char *memory = new_memory(BYTES);
	fill(memory, 0, BYTES);
	FOR_EACH_ENGINE(kind)
	for (int round = 0; round < 10; round++) {
		bool direct = file->direct_fd >= 0 && round % 2 == 0;
		struct hoist__engine *engine = new_engine(kind, N, false);
		struct hoist__request requests[N], *batch[N];
		for (size_t i = 0; i < N; i++) {
			requests[i] = write_of(file, memory + i * BLOCK, i * BLOCK, BLOCK, direct);
			batch[i] = &requests[i];
		}
		cr_assert(hoist__engine_submit(engine, batch, N) == 0);
		if (round >= 8) { /* destroyed with all of it in flight */
			hoist__engine_destroy(engine);
			continue;
		}
		hoist__engine_cancel(engine);
		reap_all(engine, N);
		for (size_t i = 0; i < N; i++) {
			struct hoist__request *request = &requests[i];
			cr_assert(request->result == -ECANCELED ||
				  (request->result == 0 && request->done == BLOCK));
			cr_assert(first_wrong(file->fd, request->address, request->offset,
					      request->done) == request->done);
		}
		cr_assert(hoist__engine_room(engine) == N);
		write_all(engine, file, memory, direct);
		cr_assert(first_wrong(file->fd, memory, 0, BYTES) == BYTES);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}
