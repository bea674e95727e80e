/* SPDX-License-Identifier: MIT */
/* A file's bytes as memory. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>

#include "base/error.h"
#include "tests/support/io-helpers.h"
#include "io/map.h"

Test(io_map, shows_any_range_of_the_file)
{
	struct hoist__file *file = new_file(20000);
	const struct {
		uint64_t offset;
		size_t bytes;
	} ranges[] = {{0, 20000}, {1, 1}, {4095, 2}, {4096, 4096}, {12345, 7655}, {19999, 1}};
	for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
		for (int mode = HOIST__MAP_READ_ONLY; mode <= HOIST__MAP_COPY_ON_WRITE; mode++) {
			struct hoist__file_map map = {0};
			cr_assert(hoist__file_map_open(file, (enum hoist__file_map_mode)mode,
						       ranges[i].offset, ranges[i].bytes,
						       &map) == 0);
			cr_expect(map.bytes == ranges[i].bytes);
			cr_expect(first_wrong(file->fd, map.data, ranges[i].offset, map.bytes) ==
				  map.bytes);
			hoist__file_map_close(&map);
			cr_expect(map.data == NULL && map.bytes == 0);
			hoist__file_map_close(&map);
		}
	}
	hoist__file_close(file);
}

Test(io_map, keeps_writes_private)
{
	struct hoist__file *file = new_file(8192);
	struct hoist__file_map one = {0}, two = {0};
	cr_assert(hoist__file_map_open(file, HOIST__MAP_COPY_ON_WRITE, 100, 8000, &one) == 0);
	cr_assert(hoist__file_map_open(file, HOIST__MAP_COPY_ON_WRITE, 100, 8000, &two) == 0);
	memset(one.data, 0xAA, one.bytes);
	cr_expect(first_wrong(file->fd, two.data, 100, 8000) == 8000);
	unsigned char *memory = new_memory(8192);
	cr_assert(hoist__file_read(file, 0, memory, 8192) == 0);
	for (size_t i = 0; i < 8192; i++)
		cr_assert(memory[i] == byte_at(i), "byte %zu of the file was written", i);
	free(memory);
	hoist__file_map_close(&one);
	hoist__file_map_close(&two);
	hoist__file_close(file);
}

/* The file was opened to be read, and its path may lead elsewhere by now. */
Test(io_map, writes_to_the_file_where_that_is_asked_for)
{
	struct hoist__file *file = new_file(9000); /* it has no name any more */
	struct hoist__file_map map = {0};
	cr_expect(hoist__file_map_open(file, HOIST__MAP_WRITE, 0, 9000, &map) == -EINVAL);
	cr_assert(hoist__file_map_open(file, HOIST__MAP_READ_WRITE, 4000, 5000, &map) == 0, "%s",
		  hoist__error_text());
	map.data[1] ^= 0xFF;
	unsigned char byte;
	cr_assert(hoist__file_read(file, 4001, &byte, 1) == 0);
	cr_expect(byte == (unsigned char)(byte_at(4001) ^ 0xFF));
	cr_expect(first_wrong(file->fd, map.data, 4000, 5000) == 5000);
	hoist__file_map_close(&map);
	hoist__file_close(file);
}

Test(io_map, refuses_bytes_that_the_file_does_not_have)
{
	char path[256];
	make_file(scratch(path, sizeof path, "short"), 10000);
	struct hoist__file *file = open_file(path);
	struct hoist__file_map map = {0};
	cr_expect(hoist__file_map_open(file, HOIST__MAP_READ_ONLY, 0, 0, &map) == -EINVAL);
	cr_expect(hoist__file_map_open(file, HOIST__MAP_READ_ONLY, 0, 10001, &map) == -ENODATA);
	cr_expect(hoist__file_map_open(file, HOIST__MAP_READ_ONLY, 10000, 1, &map) == -ENODATA);
	cr_expect(hoist__file_map_open(file, HOIST__MAP_READ_ONLY, UINT64_MAX, 2, &map) == -EINVAL);
	cr_expect(hoist__file_map_open(file, (enum hoist__file_map_mode)7, 0, 1, &map) == -EINVAL);
	cr_assert(truncate(path, 5000) == 0);
	cr_expect(hoist__file_map_open(file, HOIST__MAP_READ_ONLY, 0, 5001, &map) == -ENODATA,
		  "the file shrank after it was opened");
	cr_expect(map.base == NULL, "the result is untouched");
	cr_expect(hoist__file_map_open(file, HOIST__MAP_READ_ONLY, 0, 5000, &map) == 0);
	hoist__file_map_close(&map);
	hoist__file_close(file);
	unlink(path);
}
