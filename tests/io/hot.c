/* SPDX-License-Identifier: MIT */
/* Reads of bytes that are in the page cache, by threads, and of bytes that must not stay there;
 * files of several devices: the same tests for both engines. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/checked.h"
#include "base/error.h"
#include "tests/support/io-helpers.h"
#include "tests/support/patience.h"

/* --- hot --- */

#define BYTES (((size_t)9 << 20) + 1234)

Test(io_hot, of_every_size)
{
	static const size_t sizes[] = {1,	4095,	 65536,	    (1 << 20) - 1,
				       1 << 20, 1048577, (3 << 20), BYTES - 5};
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(BYTES);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, 4, false);
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(sizes); i++) {
			memset(memory, 0xEE, BYTES);
			struct hoist__request request = read_of(file, memory + 1, 3, sizes[i]);
			request.hot = true;
			run_request(engine, &request);
			cr_assert(request.result == 0 && request.done == sizes[i] &&
				  request.direct_done == 0 && !request.fell_back);
			cr_assert(first_wrong(file->fd, memory + 1, 3, sizes[i]) == sizes[i]);
			cr_assert(memory[0] == 0xEE && memory[1 + sizes[i]] == 0xEE);
		}
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* The room that is asked for may pass the end; what is needed may not. */
Test(io_hot, the_end_of_the_file)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(2 * BYTES);
	FOR_EACH_ENGINE(kind)
	for (size_t past = 1; past < BYTES; past = past * 7 + 1) {
		struct hoist__engine *engine = new_engine(kind, 4, false);
		struct hoist__request request = read_of(file, memory, 0, BYTES + past);
		request.hot = true;
		run_request(engine, &request);
		cr_assert(request.result == -ENODATA && request.done == BYTES);
		request.need = BYTES;
		run_request(engine, &request);
		cr_assert(request.result == 0 && request.done == BYTES);
		cr_assert(first_wrong(file->fd, memory, 0, BYTES) == BYTES);
		request = read_of(file, memory, BYTES + past, 2 << 20);
		request.hot = true;
		run_request(engine, &request);
		cr_assert(request.result == -ENODATA && request.done == 0);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

#define N 24u
#define BLOCK ((size_t)1500 << 10)

static void set_up_mixed(struct hoist__request *requests, struct hoist__request **batch,
			 const struct hoist__file *file, unsigned char *memory)
{
	for (unsigned i = 0; i < N; i++) {
		requests[i] = read_of(file, memory + i * BLOCK, i * BLOCK / 8 / 4096 * 4096, BLOCK);
		requests[i].hot = i % 3 == 0;
		requests[i].direct = i % 3 == 1 && file->direct_fd >= 0;
		batch[i] = &requests[i];
	}
}

/* Hot, direct and others at once; cancelled, and destroyed, in the middle. */
Test(io_hot, among_others)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(N * BLOCK);
	struct hoist__request requests[N], *batch[N];
	FOR_EACH_ENGINE(kind)
	for (int round = 0; round < 12; round++) {
		struct hoist__engine *engine = new_engine(kind, N, round % 2 == 0);
		set_up_mixed(requests, batch, file, memory);
		cr_assert(hoist__engine_submit(engine, batch, N) == 0, "%s", hoist__error_text());
		if (round >= 9) {
			hoist__engine_destroy(engine);
			continue;
		}
		bool cancel = round % 3 == 1;
		if (cancel)
			hoist__engine_cancel(engine);
		reap_all(engine, N);
		for (unsigned i = 0; i < N; i++) {
			const struct hoist__request *r = &requests[i];
			cr_assert(r->result == 0 || (cancel && r->result == -ECANCELED), "%d",
				  r->result);
			cr_assert((r->result == 0) == (r->done == BLOCK));
			cr_assert(first_wrong(file->fd, r->address, r->offset, r->done) == r->done);
		}
		set_up_mixed(requests, batch, file, memory);
		cr_assert(hoist__engine_submit(engine, batch, N) == 0);
		reap_all(engine, N);
		for (unsigned i = 0; i < N; i++)
			cr_assert(requests[i].result == 0 && requests[i].done == BLOCK);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

static int in_child(struct hoist__engine *engine, struct hoist__request **batch)
{
	struct hoist__request *ready[N];
	hoist__engine_wake(engine);
	hoist__engine_cancel(engine);
	if (hoist__engine_submit(engine, batch, 0) != -ESTALE ||
	    hoist__engine_reap(engine, ready, N, 0) != -ESTALE)
		return 1;
	hoist__engine_destroy(engine);
	return 0;
}

/* The child has no threads, and takes nothing from its parent: no wake, no cancel. */
Test(io_hot, a_fork_in_the_middle)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(N * BLOCK);
	struct hoist__request requests[N], *batch[N];
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, N, false);
		set_up_mixed(requests, batch, file, memory);
		cr_assert(hoist__engine_submit(engine, batch, N) == 0);
		pid_t child = fork();
		cr_assert(child >= 0);
		if (child == 0)
			_exit(in_child(engine, batch));
		int status;
		cr_assert(waitpid(child, &status, 0) == child);
		cr_expect(status == 0, "child: %x", (unsigned)status);
		reap_all(engine, N);
		for (unsigned i = 0; i < N; i++)
			cr_assert(requests[i].result == 0 && requests[i].done == BLOCK);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* However a ring is driven, and where the kernel refuses that, all is read. */
Test(io_hot, every_way_to_drive_a_ring)
{
	struct hoist__file *file = new_file(BYTES);
	unsigned char *memory = new_memory(N * BLOCK);
	struct hoist__engine_buffer buffer = {memory, N * BLOCK};
	struct hoist__request requests[N], *batch[N];
	FOR_EACH_ENGINE(kind)
	for (size_t way = 0; way < 8; way++) {
		struct hoist__engine_options options = {
			.kind = kind,
			.depth = N,
			.shared = way % 2 == 0,
			.buffers = &buffer,
			.n_buffers = 1,
			.files = (const struct hoist__file *const *)&file,
			.n_files = way >= 4};
		struct hoist__engine *engine = NULL;
		cr_assert(hoist__engine_create(&options, &engine) == 0, "%s", hoist__error_text());
		set_up_mixed(requests, batch, file, memory);
		cr_assert(hoist__engine_submit(engine, batch, N) == 0);
		if (way % 4 == 3)
			hoist__engine_cancel(engine);
		reap_all(engine, N);
		set_up_mixed(requests, batch, file, memory);
		cr_assert(hoist__engine_submit(engine, batch, N) == 0);
		reap_all(engine, N);
		for (unsigned i = 0; i < N; i++)
			cr_assert(requests[i].result == 0 &&
				  first_wrong(file->fd, requests[i].address, requests[i].offset,
					      BLOCK) == BLOCK);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* --- bytes that must not stay in the page cache --- */

static uint64_t resident(const struct hoist__file *file, uint64_t offset, uint64_t bytes)
{
	uint64_t n = 0;
	cr_assert(hoist__file_resident(file, offset, bytes, &n) == 0);
	return n;
}

#define HALF ((size_t)4 << 20)

static void drop_half(enum hoist__engine_kind kind, const struct hoist__file *file,
		      unsigned char *memory)
{
	cr_assert(posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	if (resident(file, 0, 2 * HALF) > 0)
		cr_skip_test("the page cache of this file system cannot be emptied");
	cr_assert(posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM) == 0); /* no readahead */
	/* The kernel may take pages back at once where memory is short. */
	for (uint64_t until = 0; resident(file, 0, HALF) != HALF && patience(&until);)
		cr_assert(hoist__file_read(file, 0, memory, HALF) == 0);
	cr_assert(resident(file, 0, HALF) == HALF);
	struct hoist__engine *engine = new_engine(kind, 4, false);
	struct hoist__request requests[4], *batch[4];
	for (unsigned i = 0; i < 4; i++) {
		size_t at = HALF + i * HALF / 4;
		requests[i] = read_of(file, memory + at, at, HALF / 4);
		requests[i].drop = true;
		batch[i] = &requests[i];
	}
	cr_assert(hoist__engine_submit(engine, batch, 4) == 0);
	reap_all(engine, 4);
	for (unsigned i = 0; i < 4; i++)
		cr_assert(requests[i].result == 0 && requests[i].done == HALF / 4);
	hoist__engine_destroy(engine);
	cr_assert(resident(file, HALF, HALF) == 0, "%llu stayed",
		  (unsigned long long)resident(file, HALF, HALF));
	cr_assert(resident(file, 0, HALF) == HALF);
	cr_assert(first_wrong(file->fd, memory, 0, 2 * HALF) == 2 * HALF);
}

Test(io_hot, drop_leaves_the_cache_as_it_was)
{
	struct hoist__file *file = new_file(2 * HALF);
	unsigned char *memory = new_memory(2 * HALF);
	if (file->in_memory)
		cr_skip_test("the file lives in memory");
	bool by_kernel = file->dontcache;
	FOR_EACH_ENGINE(kind)
	{
		drop_half(kind, file, memory);
		file->dontcache = false; /* as on an older kernel: the engine asks for it */
		drop_half(kind, file, memory);
		file->dontcache = by_kernel;
	}
	free(memory);
	hoist__file_close(file);
}

/* Pages that this load read are not taken for pages that were there before. */
static void drop_all(enum hoist__engine_kind kind, struct hoist__file *file, unsigned char *memory)
{
	cr_assert(posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
	if (resident(file, 0, 2 * HALF) > 0)
		cr_skip_test("the page cache of this file system cannot be emptied");
	struct hoist__engine *engine = new_engine(kind, 2, false);
	struct hoist__request requests[2], *ready[2] = {&requests[0], &requests[1]};
	unsigned n_idle = 2;
	for (size_t at = 0; at < 2 * HALF || n_idle < 2;) {
		while (at < 2 * HALF && n_idle > 0) {
			struct hoist__request *request = ready[--n_idle];
			*request = read_of(file, memory + at, at, HALF / 8);
			request->drop = resident(file, at, HALF / 8) == 0;
			cr_assert(request->drop, "at %zu", at);
			cr_assert(hoist__engine_submit(engine, &request, 1) == 0);
			at += HALF / 8;
		}
		int got = hoist__engine_reap(engine, ready + n_idle, 2, UINT64_MAX);
		cr_assert(got > 0 && ready[n_idle]->result == 0);
		n_idle += (unsigned)got;
	}
	hoist__engine_destroy(engine);
	cr_assert(resident(file, 0, 2 * HALF) == 0);
	cr_assert(first_wrong(file->fd, memory, 0, 2 * HALF) == 2 * HALF);
}

Test(io_hot, drop_reads_nothing_ahead)
{
	unsigned char *memory = new_memory(2 * HALF);
	FOR_EACH_ENGINE(kind)
	for (int by_kernel = 0; by_kernel < 2; by_kernel++) {
		struct hoist__file *file = new_file(2 * HALF);
		if (file->in_memory)
			cr_skip_test("the file lives in memory");
		file->dontcache = file->dontcache && by_kernel;
		drop_all(kind, file, memory);
		hoist__file_close(file);
	}
	free(memory);
}

/* A hot request, or one of more than can be dropped at once. */
Test(io_hot, drop_is_not_for_all)
{
	struct hoist__file *file = new_file(HALF);
	unsigned char *memory = new_memory(HALF);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, 4, false);
		struct hoist__request request = read_of(file, memory, 0, HALF);
		request.drop = request.hot = true;
		run_request(engine, &request);
		cr_assert(request.result == 0 && resident(file, 0, HALF) == HALF);
		request = read_of(file, memory, 0, ((size_t)1 << 30) + 1);
		request.drop = true;
		struct hoist__request *one = &request;
		cr_assert(hoist__engine_submit(engine, &one, 1) == -EINVAL);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

/* --- several devices --- */

Test(io_hot, files_of_two_devices)
{
	char path[64];
	struct stat st;
	(void)snprintf(path, sizeof path, "/dev/shm/hoist-io-%d", (int)getpid());
	struct hoist__file *disk = new_file(BYTES);
	if (stat("/dev/shm", &st) < 0 || st.st_dev == disk->dev || access("/dev/shm", W_OK) < 0)
		cr_skip_test("there is no second file system");
	make_file(path, BYTES);
	struct hoist__file *memory_file = open_file(path);
	unlink(path);
	const struct hoist__file *files[] = {disk, memory_file, disk};
	unsigned char *memory = new_memory(2 * N * 4096);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine_options options = {
			.kind = kind, .depth = N, .files = files, .n_files = 3};
		struct hoist__engine *engine = NULL;
		struct hoist__request requests[2 * N], *batch[2 * N];
		cr_assert(hoist__engine_create(&options, &engine) == 0);
		cr_assert(hoist__engine_room(engine) == 2 * N);
		if (kind == HOIST__ENGINE_URING)
			cr_assert(strstr(hoist__engine_reason(engine), "2 disks") != NULL);
		for (unsigned i = 0; i < 2 * N; i++) {
			requests[i] = read_of(files[i % 2], memory + i * 4096, i * 8192, 4096);
			batch[i] = &requests[i];
		}
		cr_assert(hoist__engine_submit(engine, batch, 2 * N) == 0);
		reap_all(engine, 2 * N);
		for (unsigned i = 0; i < 2 * N; i++)
			cr_assert(requests[i].result == 0 &&
				  first_wrong(files[i % 2]->fd, memory + i * 4096, i * 8192,
					      4096) == 4096);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(memory_file);
	hoist__file_close(disk);
}
