/* SPDX-License-Identifier: MIT */
/* Buffers over files: numpy.memmap's modes and rules, and .max files. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hoist/mmap.h"
#include "tests/support/lib-unit.h"

static const char *path;

static void name_file(void)
{
	char name[32];
	(void)snprintf(name, sizeof name, "mmap-%ld", (long)getpid());
	path = temporary(name);
	(void)unlink(path);
}

static void remove_file(void)
{
	(void)unlink(path);
}

static size_t read_file(unsigned char *bytes, size_t n)
{
	FILE *file = fopen(path, "rb");
	cr_assert_not_null(file);
	n = fread(bytes, 1, n, file);
	cr_assert_eq(fclose(file), 0);
	return n;
}

static void write_8(void)
{
	static const unsigned char bytes[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	name_file();
	write_file(path, bytes, sizeof bytes);
}

static int map(hoist_dtype dtype, int rank, const int64_t *shape, const char *mode, int64_t offset,
	       hoist_buffer **ret)
{
	return hoist_buffer_mmap(path, dtype, rank, shape, mode, offset, 0, ret);
}

static hoist_buffer *mapped(int rank, const int64_t *shape, const char *mode, int64_t offset)
{
	hoist_buffer *buffer = NULL;
	cr_assert_eq(map(HOIST_I8, rank, shape, mode, offset, &buffer), 0, "%s", hoist_error());
	return buffer;
}

static const int64_t two_by_four[] = {2, 4};
static const int64_t two_by_three[] = {2, 3};

/* proves: S0.32 V047 V048 V049 */
Test(mmap, copies_for_reading_and_maps_privately, .init = write_8, .fini = remove_file)
{
	unsigned char bytes[16];
	hoist_buffer *standard = mapped(2, two_by_four, NULL, 0);
	hoist_buffer *read = mapped(2, two_by_three, "r", 2);
	int8_t *whole = hoist_buffer_data(standard);
	int8_t *part = hoist_buffer_data(read);
	for (int i = 0; i < 8; i++)
		cr_expect_eq(whole[i], i, "V047");
	for (int i = 0; i < 6; i++)
		cr_expect_eq(part[i], i + 2, "V048");
	part[0] = 0;
	cr_expect_eq(whole[2], 2, "V049");
	whole[1] = 77;
	cr_assert_eq(read_file(bytes, sizeof bytes), 8);
	for (int i = 0; i < 8; i++)
		cr_expect_eq(bytes[i], i);
	/* A copy does not change with the file. */
	write_file(path, "abcdefgh", 8);
	cr_expect_eq(part[1], 3);
	DROP(standard, read);
}

/* proves: S0.32 S4.21 */
Test(mmap, read_only_without_a_copy_is_read_only, .init = write_8, .fini = remove_file)
{
	hoist_buffer *buffer = NULL;
	void *bytes = NULL;
	size_t n = 0;
	OK(hoist_buffer_mmap(path, HOIST_I8, 2, two_by_four, "readonly", 0, HOIST_MMAP_NO_COPY,
			     &buffer));
	hoist_buffer *view = make_slice(buffer, 1, SLICES(HOIST_AT(1)));
	cr_expect_eq(hoist_buffer_host_bytes(view, 1, &bytes, &n), -EROFS);
	OK(hoist_buffer_host_bytes(view, 0, &bytes, &n));
	cr_expect_eq(((const int8_t *)bytes)[0], 4);
	DROP(buffer, view);
}

/* proves: S0.32 S0.33 V052 V053 */
Test(mmap, shared_maps_write_to_the_file, .init = write_8, .fini = remove_file)
{
	unsigned char bytes[16];
	hoist_buffer *buffer = mapped(2, two_by_four, "r+", 0);
	hoist_buffer *other = mapped(2, two_by_four, "readwrite", 0);
	hoist_buffer *view = make_view_as(buffer, HOIST_U8);
	((int8_t *)hoist_buffer_data(buffer))[3] = 99;
	cr_expect_eq(((uint8_t *)hoist_buffer_data(view))[3], 99, "V053");
	cr_expect_eq(((int8_t *)hoist_buffer_data(other))[3], 99, "other maps see it");
	hoist_buffer_unref(buffer);
	OK(hoist_buffer_flush(view));
	DROP(view, other);
	cr_assert_eq(read_file(bytes, sizeof bytes), 8);
	cr_expect_eq(bytes[3], 99);
}

/* proves: S0.33 V126 */
Test(mmap, write_makes_the_file, .init = name_file, .fini = remove_file)
{
	unsigned char bytes[64];
	hoist_buffer *buffer = mapped(1, SHAPE(4), "w+", 0);
	cr_assert_eq(read_file(bytes, sizeof bytes), 4, "V126");
	for (int i = 0; i < 4; i++)
		cr_expect_eq(bytes[i], 0);
	((int8_t *)hoist_buffer_data(buffer))[0] = 5;
	hoist_buffer_unref(buffer);
	cr_assert_eq(read_file(bytes, sizeof bytes), 4);
	cr_expect_eq(bytes[0], 5);
	/* Anew, longer, with an offset. */
	buffer = mapped(1, SHAPE(4), "write", 10);
	((int8_t *)hoist_buffer_data(buffer))[0] = 6;
	hoist_buffer_unref(buffer);
	cr_assert_eq(read_file(bytes, sizeof bytes), 14);
	cr_expect_eq(bytes[0], 0);
	cr_expect_eq(bytes[10], 6);
}

/* proves: S0.33 */
Test(mmap, offsets_need_no_alignment, .init = name_file, .fini = remove_file)
{
	enum { BYTES = 3 * 4096 };
	static unsigned char bytes[BYTES];
	for (int i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 256);
	write_file(path, bytes, BYTES);
	for (int64_t offset = 4090; offset < 4100; offset++) {
		hoist_buffer *buffer = mapped(1, SHAPE(4096), "c", offset);
		cr_expect_arr_eq(hoist_buffer_data(buffer), bytes + offset, 4096);
		hoist_buffer_unref(buffer);
	}
	/* Only the modes that write make a file longer. */
	hoist_buffer *buffer = mapped(1, SHAPE(4096), "r+", BYTES);
	hoist_buffer_unref(buffer);
	struct stat st;
	cr_assert_eq(stat(path, &st), 0);
	cr_expect_eq(st.st_size, BYTES + 4096);
}

/* proves: S0.33 V123 V124 V127 V129 V130 */
Test(mmap, a_broken_rule_is_named, .init = write_8, .fini = remove_file)
{
	static const char *const modes[] = {"r", "c", "r+", "w+"};
	const int64_t none[] = {0};
	hoist_buffer *b = NULL;
	cr_expect_eq(map(HOIST_I8, 2, two_by_four, "x", 0, &b), -EINVAL, "V123");
	expect_text("c (copyonwrite), r (readonly), r+ (readwrite) and w+ (write)");
	for (int i = 0; i < 2; i++) {
		cr_expect_eq(map(HOIST_I16, 2, two_by_four, modes[i], 0, &b), -ENODATA, "V124");
		expect_text("has 8 bytes, a map up to byte 16 is longer");
	}
	for (int i = 0; i < 4; i++) {
		cr_expect_eq(map(HOIST_I8, 2, two_by_four, modes[i], -1, &b), -EOVERFLOW, "V130");
		cr_expect_eq(map(HOIST_I8, 2, two_by_four, modes[i], INT64_MAX, &b), -EOVERFLOW);
	}
	cr_assert_eq(map(HOIST_I8, 1, none, "c", 0, &b), 0, "V129: %s", hoist_error());
	cr_expect_eq(hoist_buffer_elements(b), 0);
	hoist_buffer_unref(b);
	b = NULL;
	cr_expect_eq(map(HOIST_I8, 1, SHAPE(-1), "c", 0, &b), -EINVAL);
	cr_expect_eq(hoist_buffer_mmap(path, HOIST_I8, 1, none, "c", 0, 4, &b), -EINVAL);
	cr_expect_eq(hoist_buffer_mmap(NULL, HOIST_I8, 1, none, "c", 0, 0, &b), -EINVAL);
	write_file(path, "", 0);
	cr_expect_eq(map(HOIST_I8, 1, none, "c", 0, &b), -EINVAL, "V129");
	expect_text("empty");
	remove_file();
	cr_expect_eq(map(HOIST_I8, 2, two_by_four, "r", 0, &b), -ENOENT, "V127");
	cr_expect_eq(map(HOIST_I8, 2, two_by_four, "r+", 0, &b), -ENOENT);
	cr_assert_eq(mkdir(path, 0700), 0);
	cr_expect_eq(map(HOIST_I8, 2, two_by_four, "r", 0, &b), -EINVAL);
	expect_text("not a regular file");
	cr_assert_eq(rmdir(path), 0);
	cr_assert_eq(mkfifo(path, 0600), 0);
	cr_expect_eq(map(HOIST_I8, 2, two_by_four, "r", 0, &b), -EINVAL, "and does not block");
	cr_expect_null(b);
}

/* Pages that are read ahead hold the file's bytes, in every mode.  An empty map counts as
 * populated. */
Test(mmap, populates_when_asked, .fini = remove_file)
{
	enum { BYTES = 9 << 20 };
	static const char *const ways[] = {"r", "c", "r+", "r"};
	static unsigned char bytes[BYTES];
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 4096);
	name_file();
	write_file(path, bytes, BYTES);
	for (int i = 0; i < 4; i++) {
		unsigned flags = HOIST_MMAP_POPULATE | (i == 3 ? HOIST_MMAP_NO_COPY : 0);
		hoist_buffer *b = NULL;
		OK(hoist_buffer_mmap(path, HOIST_U8, 1, SHAPE(BYTES - 123), ways[i], 123, flags,
				     &b));
		cr_expect_arr_eq(hoist_buffer_data(b), bytes + 123, BYTES - 123);
		if (i != 0) { /* "r", a copy, is in memory of its own */
			unsigned char there[BYTES / 4096];
			uintptr_t page = (uintptr_t)hoist_buffer_data(b) / 4096 * 4096;
			cr_assert_eq(mincore((void *)page, BYTES, there), 0);
			for (size_t k = 0; k < sizeof there; k++)
				cr_assert(there[k] & 1, "page %zu", k);
		}
		hoist_buffer_unref(b);
	}
	hoist_buffer *b = NULL;
	OK(hoist_buffer_mmap(path, HOIST_U8, 1, SHAPE(0), "c", 0, HOIST_MMAP_POPULATE, &b));
	hoist_buffer_unref(b);
}

Test(mmap, a_full_disk_is_said_at_once, .fini = remove_file)
{
	/* A file system of its own would need root: a file larger than any disk does as well. */
	name_file();
	hoist_buffer *b = NULL;
	int err = map(HOIST_I8, 1, SHAPE((int64_t)1 << 50), "w+", 0, &b);
	cr_expect(err == -ENOSPC || err == -EFBIG, "%d: %s", err, hoist_error());
	expect_text("making");
}

Test(mmap, leaves_no_descriptor_behind, .init = write_8, .fini = remove_file)
{
	int before = dup(0);
	close(before);
	hoist_buffer *kept = mapped(2, two_by_four, "r+", 0);
	hoist_buffer *b = NULL;
	(void)map(HOIST_I16, 2, two_by_four, "r", 0, &b);
	int after = dup(0);
	close(after);
	cr_expect_eq(before, after);
	hoist_buffer_unref(kept);
}

/* --- .max --- */

static const unsigned char max_file[] = {
	0x93, 0xf0, 0x9f, 0x94, 0xa5, 0x2b, 0x2b, 0x93, 0, 0, 0, 0, 1,	 0,  0, 0,
	23,   0,    0,	  0,	0,    0,    0,	  0,	1, 0, 0, 0, 'x', 81, 2, 2,
	0,    0,    0,	  3,	0,    0,    0,	  47,	0, 0, 0, 0, 0,	 0,  0,
};

static void write_max(void)
{
	unsigned char bytes[71];
	const float values[] = {0, 1, 2, 3, 4, 5};
	name_file();
	memcpy(bytes, max_file, sizeof max_file);
	memcpy(bytes + sizeof max_file, values, sizeof values);
	write_file(path, bytes, sizeof bytes);
}

/* proves: S1.24 S1.26 V117 V122 */
Test(max_file, is_a_private_copy, .init = write_max, .fini = remove_file)
{
	unsigned char before[128];
	unsigned char after[128];
	hoist_buffer *b = NULL;
	cr_assert_eq(sizeof max_file, 47);
	size_t n = read_file(before, sizeof before);
	OK(hoist_buffer_load_max(path, &b));
	cr_expect_eq(hoist_buffer_dtype(b), HOIST_F32);
	cr_expect_eq(hoist_buffer_rank(b), 2);
	cr_expect_eq(hoist_buffer_shape(b)[1], 3);
	float *values = hoist_buffer_data(b);
	for (int i = 0; i < 6; i++)
		cr_expect_float_eq(values[i], (float)i, 0);
	values[0] = 9;
	cr_assert_eq(read_file(after, sizeof after), n);
	cr_expect_arr_eq(before, after, n, "V122");
	hoist_buffer_unref(b);
}

/* One entry "x" of @dtype, as .max numbers them, at byte 39 (of rank 0) or later. */
static void write_max_entry(unsigned char dtype, unsigned char rank, const unsigned char *extents,
			    const void *data, size_t n)
{
	unsigned char bytes[128] = {0};
	size_t at = 39 + 4 * (size_t)rank;
	memcpy(bytes, max_file, 16);
	bytes[16] = (unsigned char)(at - 24);
	bytes[24] = 1;
	bytes[28] = 'x';
	bytes[29] = dtype;
	bytes[30] = rank;
	for (size_t i = 0; i < rank; i++)
		bytes[31 + 4 * i] = extents[i];
	bytes[at - 8] = (unsigned char)at;
	memcpy(bytes + at, data, n);
	write_file(path, bytes, at + n);
}

/* proves: S1.25 */
Test(max_file, bf16_has_the_shape_that_max_gives, .init = name_file, .fini = remove_file)
{
	static const struct {
		const char *name;
		unsigned char number; /* of the dtype, in the file */
		hoist_dtype dtype;
		unsigned char rank, extents[2];
		size_t bytes;
		int expected_rank;
		int64_t expected[2];
	} cases[] = {
		{"bf16 of rank 0", 80, HOIST_BF16, 0, {0}, 2, 1, {1}},
		{"bf16 of rank 1", 80, HOIST_BF16, 1, {3}, 6, 1, {3}},
		{"bf16 of rank 2", 80, HOIST_BF16, 2, {2, 3}, 12, 2, {2, 3}},
		{"f16 of rank 0", 79, HOIST_F16, 0, {0}, 2, 0, {0}},
		{"f8_e4m3fn of rank 0", 75, HOIST_F8_E4M3FN, 0, {0}, 1, 0, {0}},
		{"f8_e5m2 of rank 1", 77, HOIST_F8_E5M2, 1, {4}, 4, 1, {4}},
	};
	static const unsigned char data[12] = {0x80, 0x3f, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		hoist_buffer *b = NULL;
		write_max_entry(cases[i].number, cases[i].rank, cases[i].extents, data,
				cases[i].bytes);
		cr_assert_eq(hoist_buffer_load_max(path, &b), 0, "%s: %s", cases[i].name,
			     hoist_error());
		cr_expect_eq(hoist_buffer_dtype(b), cases[i].dtype, "%s", cases[i].name);
		cr_assert_eq(hoist_buffer_rank(b), cases[i].expected_rank, "%s", cases[i].name);
		for (int k = 0; k < cases[i].expected_rank; k++)
			cr_expect_eq(hoist_buffer_shape(b)[k], cases[i].expected[k], "%s",
				     cases[i].name);
		cr_expect_eq(hoist_buffer_bytes(b), cases[i].bytes, "%s", cases[i].name);
		cr_expect_arr_eq(hoist_buffer_data(b), data, cases[i].bytes, "%s", cases[i].name);
		hoist_buffer_unref(b);
	}
}

/* proves: S1.24 V118 V120 */
Test(max_file, other_files_are_refused, .init = write_max, .fini = remove_file)
{
	unsigned char bytes[128];
	hoist_buffer *b = NULL;
	size_t n = read_file(bytes, sizeof bytes);
	bytes[0] ^= 1;
	write_file(path, bytes, n);
	cr_expect_eq(hoist_buffer_load_max(path, &b), -EBADMSG, "V118");
	expect_text("hoist_buffer_mmap");
	write_file(path, max_file, 6);
	cr_expect_eq(hoist_buffer_load_max(path, &b), -EBADMSG, "V118");
	write_file(path, "", 0);
	cr_expect_eq(hoist_buffer_load_max(path, &b), -EBADMSG);
	/* Two entries: rank 0, f32, at 24 + 2 * 15. */
	memcpy(bytes, max_file, 24);
	bytes[16] = 30;
	for (int i = 0; i < 2; i++) {
		const unsigned char entry[15] = {
			1, 0, 0, 0, (unsigned char)('a' + i), 81, 0, (unsigned char)(54 + 4 * i)};
		memcpy(bytes + 24 + 15 * i, entry, sizeof entry);
	}
	write_file(path, bytes, 62);
	cr_expect_eq(hoist_buffer_load_max(path, &b), -EINVAL, "V120: %s", hoist_error());
	expect_text("2 buffers");
	cr_expect_null(b);
	hoist_checkpoint *checkpoint = NULL;
	OK(hoist_checkpoint_open(path, 0, &checkpoint));
	cr_expect_eq(hoist_checkpoint_n_tensors(checkpoint), 2);
	cr_expect_str_eq(hoist_checkpoint_format(checkpoint), "max");
	hoist_checkpoint_close(checkpoint);
	remove_file();
	cr_expect_eq(hoist_buffer_load_max(path, &b), -ENOENT);
}
