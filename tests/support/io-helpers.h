/* SPDX-License-Identifier: MIT */
/* tests/support/io-helpers.h - files with known bytes, for the tests of io/.
 *
 * Byte i of every such file is a function of i, so that a block in a wrong place
 * is seen.  Aborts where a file cannot be made: that ends a test of any kind. */
#ifndef HOIST_TESTS_IO_HELPERS_H
#define HOIST_TESTS_IO_HELPERS_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/engine.h"

#define HELPER static inline __attribute__((unused))

#define NEEDED(condition)                                                                          \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: needed: %s\n", __FILE__, __LINE__, #condition);    \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

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
	NEEDED(block != NULL);
	fill(block, offset, bytes);
	NEEDED(pwrite(fd, block, bytes, (off_t)offset) == (ssize_t)bytes);
	free(block);
}

/* A file of @bytes that is on its disk, not only in the page cache. */
HELPER void make_file(const char *path, size_t bytes)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	NEEDED(fd >= 0);
	if (bytes > 0)
		write_at(fd, 0, bytes);
	NEEDED(fsync(fd) == 0);
	close(fd);
}

HELPER struct hoist__file *open_file(const char *path)
{
	struct hoist__file *file = NULL;
	NEEDED(hoist__file_open(AT_FDCWD, path, NULL, 0, &file) == 0);
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
	NEEDED(unlink(path) == 0);
	return file;
}

/* The same, for writing; @path's file is not unlinked. */
HELPER struct hoist__file *writable_file(const char *path, size_t bytes)
{
	make_file(path, bytes);
	struct hoist__file *file = open_file(path);
	NEEDED(close(file->fd) == 0);
	file->fd = open(path, O_RDWR | O_CLOEXEC);
	NEEDED(file->fd >= 0);
	if (file->direct_fd >= 0) {
		NEEDED(close(file->direct_fd) == 0);
		file->direct_fd = open(path, O_RDWR | O_CLOEXEC | O_DIRECT);
		NEEDED(file->direct_fd >= 0);
	}
	return file;
}

HELPER struct hoist__file *new_writable_file(size_t bytes)
{
	static int n;
	char name[32], path[256];
	(void)snprintf(name, sizeof name, "out-%d", n++);
	struct hoist__file *file = writable_file(scratch(path, sizeof path, name), bytes);
	NEEDED(unlink(path) == 0);
	return file;
}

/* Submits one request and gives it back ended. */
HELPER void run_request(struct hoist__engine *engine, struct hoist__request *request)
{
	struct hoist__request *ready = NULL;
	NEEDED(hoist__engine_submit(engine, &request, 1) == 0);
	NEEDED(hoist__engine_reap(engine, &ready, 1, UINT64_MAX) == 1 && ready == request);
}

/* Memory for direct reads. */
HELPER unsigned char *new_memory(size_t bytes)
{
	void *memory;
	NEEDED(posix_memalign(&memory, 4096, bytes) == 0);
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
		NEEDED(pread(fd, block, want, (off_t)(offset + at)) == (ssize_t)want);
		for (size_t i = 0; i < want; i++)
			if (memory[at + i] != block[i])
				return at + i;
		at += want;
	}
	return bytes;
}

HELPER struct hoist__engine *new_engine(enum hoist__engine_kind kind, unsigned depth, bool shared)
{
	struct hoist__engine_options options = {.kind = kind, .depth = depth, .shared = shared};
	struct hoist__engine *engine = NULL;
	NEEDED(hoist__engine_create(&options, &engine) == 0);
	return engine;
}

#endif
