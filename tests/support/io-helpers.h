/* SPDX-License-Identifier: MIT */
/* tests/support/io-helpers.h - files with known bytes, for the tests of io/.
 *
 * Byte i of every such file is a function of i, so that a block in a wrong place
 * is seen.  A file that cannot be made ends the test, of any kind. */
#ifndef HOIST_TESTS_IO_HELPERS_H
#define HOIST_TESTS_IO_HELPERS_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hoist/error.h"
#include "io/engine.h"
#include "tests/support/check.h"

#define HELPER static inline __attribute__((unused))

/* A name in the test's own folder. */
HELPER const char *scratch(char *path, size_t bytes, const char *name)
{
	const char *folder = getenv("TMPDIR");
	(void)snprintf(path, bytes, "%s/hoist-io-%d-%s", folder != NULL ? folder : "/tmp",
		       (int)getpid(), name);
	return path;
}

HELPER unsigned char byte_at(uint64_t i)
{
	return (unsigned char)((i * 31 + i / 4096 * 7 + i / 1048576 * 3 + 1) & 0xff);
}

HELPER void fill(unsigned char *to, uint64_t offset, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		to[i] = byte_at(offset + i);
}

HELPER void write_at(int fd, uint64_t offset, size_t bytes)
{
	unsigned char *block = malloc(bytes + 1);
	CHECK(block != NULL);
	fill(block, offset, bytes);
	CHECK(pwrite(fd, block, bytes, (off_t)offset) == (ssize_t)bytes);
	free(block);
}

/* A file of @bytes that is on its disk, not only in the page cache. */
HELPER void make_file(const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	if (bytes > 0)
		write_at(fd, 0, bytes);
	OK(fsync(fd));
	close(fd);
}

HELPER struct hoist__file *open_file(const char *path)
{
	struct hoist__file *file = NULL;
	OK(hoist__file_open(AT_FDCWD, path, NULL, 0, &file));
	return file;
}

/* Makes, opens and unlinks a file: nothing is left, whatever the test does. */
HELPER struct hoist__file *new_file(size_t bytes)
{
	static int n;
	char name[32], path[256];
	(void)snprintf(name, sizeof name, "file-%d", n++);
	make_file(scratch(path, sizeof path, name), bytes);
	struct hoist__file *file = open_file(path);
	OK(unlink(path));
	return file;
}

/* The same, for writing; @path's file is not unlinked. */
HELPER struct hoist__file *writable_file(const char *path, size_t bytes)
{
	make_file(path, bytes);
	struct hoist__file *file = open_file(path);
	OK(close(file->fd));
	file->fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(file->fd >= 0);
	if (file->direct_fd >= 0) {
		OK(close(file->direct_fd));
		file->direct_fd = open(path, O_RDWR | O_CLOEXEC | O_DIRECT);
		CHECK(file->direct_fd >= 0);
	}
	return file;
}

HELPER struct hoist__file *new_writable_file(size_t bytes)
{
	static int n;
	char name[32], path[256];
	(void)snprintf(name, sizeof name, "out-%d", n++);
	struct hoist__file *file = writable_file(scratch(path, sizeof path, name), bytes);
	OK(unlink(path));
	return file;
}

/* For each engine that works here. */
#define FOR_EACH_ENGINE(kind)                                                                      \
	for (enum hoist__engine_kind kind = HOIST__ENGINE_URING; kind <= HOIST__ENGINE_THREADS;    \
	     kind++)                                                                               \
		if (kind == HOIST__ENGINE_THREADS || hoist__uring_probe(NULL, 0) == 0)

/* A read of @bytes, all of them needed. */
HELPER struct hoist__request read_of(const struct hoist__file *file, unsigned char *to,
				     uint64_t offset, size_t bytes)
{
	return (struct hoist__request){.file = file,
				       .offset = offset,
				       .address = to,
				       .bytes = bytes,
				       .need = bytes,
				       .buffer = -1};
}

/* Submits one request and gives it back ended. */
HELPER void run_request(struct hoist__engine *engine, struct hoist__request *request)
{
	struct hoist__request *ready = NULL;
	OK(hoist__engine_submit(engine, &request, 1));
	CHECK(hoist__engine_reap(engine, &ready, 1, UINT64_MAX) == 1 && ready == request);
}

/* Waits until @n requests have come back, in whatever order. */
HELPER void reap_all(struct hoist__engine *engine, unsigned n)
{
	struct hoist__request *ready[16];
	while (n > 0) {
		int got = hoist__engine_reap(engine, ready, n < 16 ? n : 16, UINT64_MAX);
		CHECK(got > 0 && (unsigned)got <= n);
		n -= (unsigned)got;
	}
}

/* Memory for direct reads. */
HELPER unsigned char *new_memory(size_t bytes)
{
	void *memory;
	OK(posix_memalign(&memory, 4096, bytes));
	memset(memory, 0xEE, bytes);
	return memory;
}

/* The first byte of [memory, memory+bytes) that is not what the file holds from
 * @offset on by pread(2), in the given descriptor; @bytes if all are right. */
HELPER size_t first_wrong(int fd, const unsigned char *memory, uint64_t offset, size_t bytes)
{
	unsigned char block[4096];
	for (size_t at = 0; at < bytes;) {
		size_t want = bytes - at < sizeof block ? bytes - at : sizeof block;
		CHECK(pread(fd, block, want, (off_t)(offset + at)) == (ssize_t)want);
		for (size_t i = 0; i < want; i++)
			if (memory[at + i] != block[i])
				return at + i;
		at += want;
	}
	return bytes;
}

/* The bytes are those of such a file, from @offset on. */
HELPER void check_bytes(const unsigned char *got, uint64_t offset, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		CHECK(got[i] == byte_at(offset + i));
}

/* The last error's text has @text in it. */
HELPER void check_said(const char *text)
{
	CHECK(strstr(hoist_error(), text) != NULL);
}

/* An engine that has registered @n_files files and, unless NULL, @memory. */
HELPER struct hoist__engine *engine_with(enum hoist__engine_kind kind, unsigned depth,
					 const struct hoist__file *const *files, unsigned n_files,
					 unsigned char *memory, size_t bytes)
{
	struct hoist__engine_buffer buffer = {memory, bytes};
	struct hoist__engine_options options = {.kind = kind,
						.depth = depth,
						.buffers = &buffer,
						.n_buffers = memory != NULL,
						.files = files,
						.n_files = n_files};
	struct hoist__engine *engine = NULL;
	OK(hoist__engine_create(&options, &engine));
	return engine;
}

HELPER struct hoist__engine *new_engine(enum hoist__engine_kind kind, unsigned depth, bool shared)
{
	struct hoist__engine_options options = {.kind = kind, .depth = depth, .shared = shared};
	struct hoist__engine *engine = NULL;
	OK(hoist__engine_create(&options, &engine));
	return engine;
}

#endif
