/* SPDX-License-Identifier: MIT */
/* Requests that do not end in success, and the interface of engines: the same tests for both. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/checked.h"
#include "base/error.h"
#include "tests/support/io-helpers.h"

Test(io_engine_ends, says_where_a_file_that_shrank_ends)
{
	unsigned char *memory = new_memory(65536);
	FOR_EACH_ENGINE(kind)
	for (int direct = 0; direct < 2; direct++) {
		char path[256];
		make_file(scratch(path, sizeof path, "shrinking"), 50000);
		struct hoist__file *file = open_file(path);
		if (direct && file->direct_fd < 0) {
			hoist__file_close(file);
			continue;
		}
		cr_assert(truncate(path, 20001) == 0);
		struct hoist__engine *engine = new_engine(kind, 4, false);
		struct hoist__request request = {
			.file = file,
			.address = memory,
			.bytes = 65536,
			.need = 50000,
			.direct = direct != 0,
			.buffer = -1,
		};
		run_request(engine, &request);
		cr_expect(request.result == -ENODATA && request.done == 20001);
		cr_expect(first_wrong(file->fd, memory, 0, 20001) == 20001);
		request.offset = 40960;
		request.bytes = 4096;
		request.need = 1;
		run_request(engine, &request);
		cr_expect(request.result == -ENODATA && request.done == 0);
		request.need = 0;
		run_request(engine, &request);
		cr_expect(request.result == 0 && request.done == 0, "nothing was needed");
		hoist__engine_destroy(engine);
		hoist__file_close(file);
		unlink(path);
	}
	free(memory);
}

Test(io_engine_ends, gives_bytes_that_were_appended)
{
	char path[256];
	make_file(scratch(path, sizeof path, "growing"), 1000);
	struct hoist__file *file = open_file(path);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	write_at(fd, 1000, 9000);
	close(fd);
	unsigned char *memory = new_memory(10000);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, 1, false);
		struct hoist__request request = read_of(file, memory, 0, 10000);
		run_request(engine, &request);
		cr_expect(request.result == 0 && request.done == 10000);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
	unlink(path);
}

/* A file whose promised alignment is too small: the kernel answers EINVAL. */
Test(io_engine_ends, finishes_a_refused_direct_read_through_the_cache)
{
	struct hoist__file *file = new_file(30000);
	if (file->direct_fd < 0)
		cr_skip_test("no direct reads here: %s", file->direct_note);
	file->memory_align = 1;
	file->offset_align = 1;
	unsigned char *memory = new_memory(30000);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, 4, false);
		struct hoist__request request = {
			.file = file,
			.offset = 7,
			.address = memory + 1,
			.bytes = 20001,
			.need = 20001,
			.direct = true,
			.buffer = -1,
		};
		run_request(engine, &request);
		cr_expect(request.result == 0 && request.fell_back && request.direct_done == 0);
		cr_expect(first_wrong(file->fd, memory + 1, 7, 20001) == 20001);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

Test(io_engine_ends, reports_the_kernels_error)
{
	struct hoist__file *file = new_file(8192);
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine *engine = new_engine(kind, 4, false);
		struct hoist__request request = read_of(file, (unsigned char *)4096, 0, 4096);
		run_request(engine, &request);
		cr_expect(request.result == -EFAULT, "%d", request.result);
		hoist__engine_destroy(engine);
	}
	hoist__file_close(file);
}

/* --- the interface --- */

Test(io_engine_ends, refuses_options_and_requests_that_make_no_sense)
{
	struct hoist__file *file = new_file(8192);
	unsigned char *memory = new_memory(8192);
	struct hoist__engine *engine = NULL;
	struct hoist__engine_options options = {.kind = HOIST__ENGINE_THREADS, .depth = 0};
	cr_expect(hoist__engine_create(&options, &engine) == -EINVAL);
	options.depth = 4097;
	cr_expect(hoist__engine_create(&options, &engine) == -EINVAL);
	options.depth = 1;
	options.kind = (enum hoist__engine_kind)9;
	cr_expect(hoist__engine_create(&options, &engine) == -EINVAL);
	cr_expect(engine == NULL);
	hoist__engine_destroy(NULL);

	FOR_EACH_ENGINE(kind)
	{
		engine = new_engine(kind, 2, false);
		struct hoist__request good = read_of(file, memory, 0, 4096);
		struct hoist__request bad = good;
		struct hoist__request *pair[] = {&good, &bad, &good};
		bad.bytes = 0;
		cr_expect(hoist__engine_submit(engine, pair, 2) == -EINVAL);
		bad = good;
		bad.need = 4097;
		cr_expect(hoist__engine_submit(engine, pair, 2) == -EINVAL);
		bad = good;
		bad.offset = INT64_MAX;
		cr_expect(hoist__engine_submit(engine, pair, 2) == -EINVAL);
		if (file->direct_fd >= 0) {
			bad = good;
			bad.direct = true;
			bad.offset = file->offset_align / 2;
			cr_expect(hoist__engine_submit(engine, pair, 2) == -EINVAL);
			bad.offset = 0;
			bad.bytes = 4095;
			bad.need = 1;
			cr_expect(hoist__engine_submit(engine, pair, 2) == -EINVAL);
			bad.bytes = 4096;
			bad.address = memory + 1;
			cr_expect(hoist__engine_submit(engine, pair, 2) == -EINVAL);
		}
		cr_expect(hoist__engine_submit(engine, pair, 3) == -EAGAIN);
		cr_expect(hoist__engine_room(engine) == 2, "all or none");
		cr_expect(hoist__engine_reap(engine, pair, 3, 1000000) == 0,
			  "nothing is in flight: the wait runs its time");
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}

Test(io_engine_ends, refuses_direct_reads_of_a_file_without_them)
{
	struct hoist__file *file = new_file(8192);
	unsigned char *memory = new_memory(8192);
	int direct_fd = file->direct_fd;
	file->direct_fd = -1;
	struct hoist__engine *engine = new_engine(HOIST__ENGINE_THREADS, 1, false);
	struct hoist__request request = {.file = file,
					 .address = memory,
					 .bytes = 4096,
					 .need = 4096,
					 .direct = true,
					 .buffer = -1};
	struct hoist__request *ready = &request;
	cr_expect(hoist__engine_submit(engine, &ready, 1) == -EINVAL);
	hoist__engine_destroy(engine);
	file->direct_fd = direct_fd;
	free(memory);
	hoist__file_close(file);
}

Test(io_engine_ends, says_its_name_and_the_reason)
{
	struct hoist__engine *engine = new_engine(HOIST__ENGINE_THREADS, 5, false);
	cr_expect(strcmp(hoist__engine_name(engine), "threads") == 0);
	cr_expect(strcmp(hoist__engine_reason(engine), "threads: 5") == 0);
	hoist__engine_destroy(engine);
	char note[128];
	if (hoist__uring_probe(note, sizeof note) != 0)
		cr_skip_test("%s", note);
	engine = new_engine(HOIST__ENGINE_AUTO, 5, false);
	cr_expect(strcmp(hoist__engine_name(engine), "io_uring") == 0);
	cr_expect(strncmp(hoist__engine_reason(engine), "io_uring: ", 10) == 0);
	hoist__engine_destroy(engine);
	engine = new_engine(HOIST__ENGINE_URING, 5, true);
	cr_expect(strstr(hoist__engine_reason(engine), "single issuer") == NULL);
	hoist__engine_destroy(engine);
}

/* Each buffer in the middle of others, and requests that no buffer holds. */
Test(io_engine_ends, registered_buffers_change_nothing_but_speed)
{
	struct hoist__file *file = new_file(100000);
	unsigned char *memory = new_memory(100000);
	struct hoist__engine_buffer buffers[] = {
		{memory, 20000}, {memory + 20480, 40000}, {memory + 70000, 30000}};
	FOR_EACH_ENGINE(kind)
	{
		struct hoist__engine_options options = {
			.kind = kind, .depth = 4, .buffers = buffers, .n_buffers = 3};
		struct hoist__engine *engine = NULL;
		cr_assert(hoist__engine_create(&options, &engine) == 0);
		for (int index = -1; index < 5; index++) {
			memset(memory, 0xEE, 100000);
			struct hoist__request request = {.file = file,
							 .address = memory + 20480,
							 .bytes = 39000,
							 .need = 39000,
							 .buffer = index};
			run_request(engine, &request);
			cr_expect(request.result == 0);
			cr_expect(first_wrong(file->fd, memory + 20480, 0, 39000) == 39000);
		}
		/* Begins in the first buffer, ends behind it. */
		struct hoist__request over = {
			.file = file, .address = memory + 10000, .bytes = 15000, .need = 15000};
		run_request(engine, &over);
		cr_expect(over.result == 0, "%d", over.result);
		cr_expect(first_wrong(file->fd, memory + 10000, 0, 15000) == 15000);
		hoist__engine_destroy(engine);
	}
	free(memory);
	hoist__file_close(file);
}
