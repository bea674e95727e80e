/* SPDX-License-Identifier: MIT */
/* Reads in flight: the same tests for both engines, against pread(2). */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>

#include "base/checked.h"
#include "base/error.h"
#include "tests/support/io-helpers.h"

/* --- reading whole files --- */

struct job {
	enum hoist__engine_kind kind;
	size_t block;
	unsigned depth;
	bool direct;
	bool registered;
};

static struct hoist__engine *engine_of(const struct job *job,
				       const struct hoist__file *const *files, unsigned n_files,
				       unsigned char *memory, size_t bytes)
{
	bool registered = job->registered;
	return engine_with(job->kind, job->depth, files, registered ? n_files : 0,
			   registered ? memory : NULL, bytes);
}

/* Sets up the read of the block at @offset; what is asked for may pass the end. */
static void set_up(struct hoist__request *request, const struct job *job,
		   const struct hoist__file *file, unsigned char *memory, uint64_t offset)
{
	size_t need = hoist__min_u64(job->block, file->bytes - offset);
	size_t align = job->direct ? file->offset_align : 1;
	*request = (struct hoist__request){
		.file = file,
		.offset = offset,
		.address = memory + offset,
		.bytes = hoist__round_up(need, align),
		.need = need,
		.direct = job->direct,
		.buffer = job->registered ? 0 : -1,
	};
}

static void check_done(const struct job *job, const struct hoist__request *request)
{
	cr_assert(request->result == 0, "result %d at %llu", request->result,
		  (unsigned long long)request->offset);
	cr_assert(request->done >= request->need && request->done <= request->bytes);
	if (!job->direct)
		cr_expect(request->direct_done == 0 && !request->fell_back);
	else if (!request->fell_back)
		cr_expect(request->direct_done == request->done);
}

/* Reads all of @file, as many blocks at a time as the engine takes. */
static void read_all(const struct job *job, struct hoist__engine *engine,
		     const struct hoist__file *file, unsigned char *memory)
{
	struct hoist__request *requests = calloc(job->depth, sizeof *requests);
	struct hoist__request **idle = calloc(job->depth, sizeof *idle);
	struct hoist__request **batch = calloc(job->depth, sizeof *batch);
	unsigned n_idle = job->depth, n_busy = 0;
	for (unsigned i = 0; i < job->depth; i++)
		idle[i] = &requests[i];
	uint64_t next = 0;
	while (next < file->bytes || n_busy > 0) {
		unsigned n = 0;
		for (; n_idle > 0 && next < file->bytes; next += job->block) {
			batch[n] = idle[--n_idle];
			set_up(batch[n++], job, file, memory, next);
		}
		cr_assert(hoist__engine_submit(engine, batch, n) == 0, "%s", hoist__error_text());
		n_busy += n;
		cr_assert(hoist__engine_room(engine) == job->depth - n_busy);
		int got = hoist__engine_reap(engine, idle + n_idle, 3, UINT64_MAX);
		cr_assert(got > 0 && got <= 3 && (unsigned)got <= n_busy);
		for (int i = 0; i < got; i++)
			check_done(job, idle[n_idle + (unsigned)i]);
		n_idle += (unsigned)got;
		n_busy -= (unsigned)got;
	}
	free(requests);
	free(idle);
	free(batch);
}

static void run(const struct job *job, const struct hoist__file *file)
{
	if (job->direct && file->direct_fd < 0)
		return;
	size_t room = file->bytes + 4096;
	unsigned char *memory = new_memory(room);
	struct hoist__engine *engine = engine_of(job, &file, 1, memory, room);
	read_all(job, engine, file, memory);
	size_t wrong = first_wrong(file->fd, memory, 0, file->bytes);
	cr_assert(wrong == file->bytes, "byte %zu of %zu; block %zu, depth %u, direct %d", wrong,
		  (size_t)file->bytes, job->block, job->depth, job->direct);
	hoist__engine_destroy(engine);
	free(memory);
}

static void run_all_ways(const struct hoist__file *file, size_t block, unsigned depth)
{
	FOR_EACH_ENGINE(kind)
	for (int way = 0; way < 4; way++) {
		struct job job = {kind, block, depth, (way & 1) != 0, (way & 2) != 0};
		run(&job, file);
	}
}

Test(io_engine, reads_files_of_every_size)
{
	static const size_t sizes[] = {1,    511,   512,     4095,	   4096,
				       4097, 10000, 1 << 20, 3145728 + 777};
	static const size_t blocks[] = {4096, 65536, 1 << 20};
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
		struct hoist__file *file = new_file(sizes[i]);
		for (size_t k = 0; k < HOIST__ARRAY_SIZE(blocks); k++)
			run_all_ways(file, blocks[k], 7);
		hoist__file_close(file);
	}
}

Test(io_engine, works_at_every_depth)
{
	static const unsigned depths[] = {1, 2, 64, 200, 1000};
	struct hoist__file *file = new_file(1234567);
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(depths); i++)
		run_all_ways(file, 4096, depths[i]);
	hoist__file_close(file);
}

Test(io_engine, reads_files_that_are_not_in_the_cache)
{
	struct hoist__file *file = new_file(4 << 20);
	FOR_EACH_ENGINE(kind)
	for (int direct = 0; direct < 2; direct++) {
		struct job job = {kind, 1 << 18, 16, direct != 0, true};
		cr_assert(posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
		run(&job, file);
	}
	hoist__file_close(file);
}

Test(io_engine, reads_holes_as_zeros)
{
	char path[256];
	int fd = open(scratch(path, sizeof path, "sparse"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert(fd >= 0 && ftruncate(fd, (6 << 20) + 100) == 0);
	write_at(fd, 2 << 20, 5000);
	close(fd);
	struct hoist__file *file = open_file(path);
	unlink(path);
	run_all_ways(file, 65536, 16);
	hoist__file_close(file);
}

/* Unaligned offsets, addresses and lengths through the cache. */
Test(io_engine, cached_reads_need_no_alignment)
{
	struct hoist__file *file = new_file(300000);
	unsigned char *memory = new_memory(300000);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, 8, false);
		for (uint64_t offset = 1; offset < 300000; offset = offset * 3 + 1) {
			struct hoist__request request = {
				.file = file,
				.offset = offset,
				.address = memory + 3,
				.bytes = hoist__min_u64(299997, 300000 - offset),
				.need = 1,
				.buffer = -1,
			};
			request.need = request.bytes;
			run_request(engine, &request);
			cr_assert(request.result == 0 && request.done == request.bytes);
			cr_assert(first_wrong(file->fd, memory + 3, offset, request.bytes) ==
				  request.bytes);
		}
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

#define N_FILES 60

Test(io_engine, reads_many_files_at_once)
{
	struct hoist__file *files[N_FILES];
	struct hoist__request requests[N_FILES], *ready[N_FILES];
	unsigned char *memory = new_memory(N_FILES * 8192);
	for (unsigned i = 0; i < N_FILES; i++)
		files[i] = new_file(4000 + i);
	FOR_EACH_ENGINE(kind)
	for (int way = 0; way < 4; way++) {
		struct job job = {kind, 8192, N_FILES, (way & 1) != 0, (way & 2) != 0};
		if (job.direct && files[0]->direct_fd < 0)
			continue;
		memset(memory, 0xEE, N_FILES * 8192);
		/* The last file is not registered. */
		struct hoist__engine *engine =
			engine_of(&job, (const struct hoist__file *const *)files, N_FILES - 1,
				  memory, N_FILES * 8192);
		for (unsigned i = 0; i < N_FILES; i++) {
			set_up(&requests[i], &job, files[i], memory + i * 8192, 0);
			ready[i] = &requests[i];
		}
		cr_assert(hoist__engine_submit(engine, ready, N_FILES) == 0);
		reap_all(engine, N_FILES);
		for (unsigned i = 0; i < N_FILES; i++) {
			check_done(&job, &requests[i]);
			cr_assert(first_wrong(files[i]->fd, memory + i * 8192, 0, 4000 + i) ==
				  4000 + i);
		}
		hoist__engine_destroy(engine);
	}
	for (unsigned i = 0; i < N_FILES; i++)
		hoist__file_close(files[i]);
	free(memory);
}

/* --- cancelling and waiting --- */

Test(io_engine, returns_every_request_after_a_cancel)
{
	enum { N = 300 };
	struct hoist__file *file = new_file(N * 4096);
	unsigned char *memory = new_memory(N * 4096);
	struct hoist__request *requests = calloc(N, sizeof *requests);
	FOR_EACH_ENGINE(kind)
	for (int direct = 0; direct < 2; direct++) {
		if (direct && file->direct_fd < 0)
			continue;
		struct job job = {kind, 4096, N, direct != 0, false};
		struct hoist__engine *engine = new_engine(kind, N, false);
		struct hoist__request *ready[N];
		for (unsigned i = 0; i < N; i++) {
			ready[i] = &requests[i];
			set_up(ready[i], &job, file, memory, i * 4096);
		}
		cr_assert(hoist__engine_submit(engine, ready, N) == 0);
		hoist__engine_cancel(engine);
		hoist__engine_cancel(engine);
		unsigned n = 0;
		for (int got; n < N; n += (unsigned)got) {
			got = hoist__engine_reap(engine, ready, N, UINT64_MAX);
			cr_assert(got > 0);
		}
		cr_expect(n == N && hoist__engine_room(engine) == N);
		for (unsigned i = 0; i < N; i++) {
			cr_assert(requests[i].result == 0 || requests[i].result == -ECANCELED, "%d",
				  requests[i].result);
			if (requests[i].result == 0)
				cr_assert(requests[i].done == 4096);
		}
		run_request(engine, (set_up(&requests[0], &job, file, memory, 0), &requests[0]));
		cr_expect(requests[0].result == 0, "what comes after a cancel is not cancelled");
		/* And with everything in flight, the end waits. */
		for (unsigned i = 0; i < N; i++) {
			ready[i] = &requests[i];
			set_up(ready[i], &job, file, memory, i * 4096);
		}
		cr_assert(hoist__engine_submit(engine, ready, N) == 0);
		hoist__engine_destroy(engine);
	}
	free(requests);
	free(memory);
	hoist__file_close(file);
}

Test(io_engine, waits_no_longer_than_it_is_told)
{
	struct hoist__file *file = new_file(1 << 20);
	unsigned char *memory = new_memory(1 << 20);
	static const uint64_t timeouts[] = {0, 1, 1000, 100000, 10000000, UINT64_MAX - 1};
	FOR_EACH_ENGINE(kind)
	for (size_t i = 0; i < HOIST__ARRAY_SIZE(timeouts); i++) {
		struct job job = {kind, 1 << 20, 1, file->direct_fd >= 0, false};
		struct hoist__engine *engine = new_engine(kind, 1, false);
		struct hoist__request request, *ready = &request;
		set_up(&request, &job, file, memory, 0);
		cr_assert(hoist__engine_submit(engine, &ready, 1) == 0);
		int got = 0;
		while (got == 0)
			got = hoist__engine_reap(engine, &ready, 1, timeouts[i]);
		cr_expect(got == 1 && request.result == 0);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* --- threads and processes --- */

struct step {
	struct hoist__engine *engine;
	struct hoist__request *request;
};

static void *submit_elsewhere(void *argument)
{
	struct step *step = argument;
	cr_expect(hoist__engine_submit(step->engine, &step->request, 1) == 0);
	return NULL;
}

/* The kernel cancels what a thread had in flight when it exits. */
Test(io_engine, a_shared_one_outlives_the_thread_that_submitted)
{
	struct hoist__file *file = new_file(2 << 20);
	unsigned char *memory = new_memory(2 << 20);
	FOR_EACH_ENGINE(kind)
	for (int round = 0; round < 20; round++) {
		struct job job = {kind, 2 << 20, 1, round % 2 != 0 && file->direct_fd >= 0, false};
		struct hoist__engine *engine = new_engine(kind, 4, true);
		struct hoist__request request, *ready;
		set_up(&request, &job, file, memory, 0);
		(void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
		struct step step = {engine, &request};
		pthread_t thread;
		cr_assert(pthread_create(&thread, NULL, submit_elsewhere, &step) == 0);
		pthread_join(thread, NULL);
		cr_assert(hoist__engine_reap(engine, &ready, 1, UINT64_MAX) == 1);
		cr_assert(request.result == 0, "%d", request.result);
		cr_assert(first_wrong(file->fd, memory, 0, 2 << 20) == 2 << 20);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

static int in_child(struct hoist__engine *engine, struct hoist__request *request)
{
	struct hoist__request *ready = request;
	if (hoist__engine_submit(engine, &ready, 1) != -ESTALE)
		return 1;
	if (hoist__engine_reap(engine, &ready, 1, UINT64_MAX) != -ESTALE)
		return 2;
	hoist__engine_cancel(engine);
	hoist__engine_destroy(engine);
	return 0;
}

Test(io_engine, is_stale_in_a_child)
{
	struct hoist__file *file = new_file(1 << 20);
	unsigned char *memory = new_memory(1 << 20);
	FOR_EACH_ENGINE(kind)
	{
		struct job job = {kind, 65536, 16, file->direct_fd >= 0, true};
		struct hoist__engine *engine = engine_of(
			&job, (const struct hoist__file *const *)&file, 1, memory, 1 << 20);
		struct hoist__request request, *ready = &request;
		set_up(&request, &job, file, memory, 0);
		cr_assert(hoist__engine_submit(engine, &ready, 1) == 0);
		pid_t child = fork();
		cr_assert(child >= 0);
		if (child == 0)
			_exit(in_child(engine, &request));
		int status;
		cr_assert(waitpid(child, &status, 0) == child);
		cr_expect(status == 0, "child: %x", (unsigned)status);
		cr_assert(hoist__engine_reap(engine, &ready, 1, UINT64_MAX) == 1);
		cr_expect(request.result == 0);
		read_all(&job, engine, file, memory);
		cr_expect(first_wrong(file->fd, memory, 0, 1 << 20) == 1 << 20);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}
