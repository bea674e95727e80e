/* SPDX-License-Identifier: MIT */
/* .max headers: what is read from good ones, and why bad ones are refused.  Files are made here,
 * byte by byte. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/format.h"

struct file {
	unsigned char bytes[512];
	size_t n;
};

static void put(struct file *file, uint64_t value, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		file->bytes[file->n++] = (unsigned char)(value >> (8 * i));
}

static void begin(struct file *file, uint64_t entry_bytes)
{
	static const unsigned char magic[] = {0x93, 0xf0, 0x9f, 0x94, 0xa5, 0x2b, 0x2b, 0x93};
	*file = (struct file){.n = 0};
	for (size_t i = 0; i < sizeof magic; i++)
		file->bytes[file->n++] = magic[i];
	put(file, 0, 4);
	put(file, 1, 4);
	put(file, entry_bytes, 8);
}

static void entry(struct file *file, const char *key, int dtype, int rank, const uint32_t *shape,
		  uint64_t offset)
{
	put(file, strlen(key), 4);
	memcpy(file->bytes + file->n, key, strlen(key));
	file->n += strlen(key);
	put(file, (uint64_t)dtype, 1);
	put(file, (uint64_t)rank, 1);
	for (int i = 0; i < rank; i++)
		put(file, shape[i], 4);
	put(file, offset, 8);
}

static int parse(const struct file *file, size_t file_bytes, struct hoist__manifest **ret)
{
	size_t header_bytes = 0;
	size_t prefix = file->n < HOIST__MAX_FILE_PREFIX ? file->n : HOIST__MAX_FILE_PREFIX;
	int err = hoist__max_header_bytes("m.max", file->bytes, prefix, file_bytes, &header_bytes);
	if (err < 0)
		return err;
	/* On the heap and exact, so that a sanitizer sees each byte too many. */
	unsigned char *header = malloc(header_bytes);
	cr_assert_not_null(header);
	memcpy(header, file->bytes, header_bytes);
	err = hoist__max_parse("m.max", header, header_bytes, file_bytes, ret);
	free(header);
	return err;
}

static void expect_refused(const struct file *file, size_t file_bytes, const char *text)
{
	struct hoist__manifest *manifest = NULL;
	cr_expect_eq(parse(file, file_bytes, &manifest), -EBADMSG, "%s", text);
	cr_expect_null(manifest);
	cr_expect_not_null(strstr(hoist__error_text(), text), "\"%s\" lacks \"%s\"",
			   hoist__error_text(), text);
}

static const uint32_t two_by_three[] = {2, 3};

/* The vector's own bytes: metadata of 23, the tensor at 47, 71 bytes in all. */
static void vector_117(struct file *file)
{
	begin(file, 23);
	entry(file, "x", 81, 2, two_by_three, 47);
	file->n += 24;
}

/* proves: S1.26 V117 */
Test(max, an_entry_is_a_tensor)
{
	struct file file;
	struct hoist__manifest *manifest = NULL;
	vector_117(&file);
	cr_assert_eq(file.n, 71);
	cr_assert(hoist__max_is(file.bytes, file.n));
	cr_assert_eq(parse(&file, file.n, &manifest), 0, "%s", hoist__error_text());
	cr_assert_eq(manifest->n_tensors, 1);
	const struct hoist__tensor *tensor = &manifest->tensors[0];
	cr_expect_str_eq(tensor->name, "x");
	cr_expect_eq(tensor->dtype, HOIST_F32);
	cr_expect_eq(tensor->rank, 2);
	cr_expect_eq(tensor->shape[0], 2);
	cr_expect_eq(tensor->shape[1], 3);
	cr_expect_eq(tensor->offset, 47);
	cr_expect_eq(tensor->bytes, 24);
	cr_expect_eq(manifest->data_offset, 47);
	hoist__manifest_destroy(manifest);
}

/* proves: S1.24 S1.26 */
Test(max, entries_in_any_order_come_in_that_of_their_bytes)
{
	struct file file;
	struct hoist__manifest *manifest = NULL;
	size_t metadata = (4 + 1 + 2 + 8 + 8) + (4 + 0 + 2 + 0 + 8) + (4 + 2 + 2 + 4 + 8);
	size_t data = 24 + metadata;
	const uint32_t none[] = {0};
	begin(&file, metadata);
	entry(&file, "b", 80, 2, two_by_three, data + 8); /* bf16: 12 bytes */
	entry(&file, "", 82, 0, NULL, data);		  /* f64, rank 0 */
	entry(&file, "\xc3\xa9", 1, 1, none, data + 20);
	cr_assert_eq(parse(&file, data + 20, &manifest), 0, "%s", hoist__error_text());
	cr_assert_eq(manifest->n_tensors, 3);
	cr_expect_str_eq(manifest->tensors[0].name, "buffer");
	cr_expect_eq(manifest->tensors[0].rank, 0);
	cr_expect_eq(manifest->tensors[0].dtype, HOIST_F64);
	cr_expect_str_eq(manifest->tensors[1].name, "b");
	cr_expect_eq(manifest->tensors[1].dtype, HOIST_BF16);
	cr_expect_eq(manifest->tensors[2].bytes, 0);
	hoist__manifest_destroy(manifest);
}

/* proves: S1.24 S1.26 V118 */
Test(max, what_breaks_a_rule_is_refused_with_its_byte)
{
	static const unsigned char old[] = {0x93, 0xf0, 0x9f, 0x94, 0xa5, 0x93, 0, 0, 0};
	struct file file;
	vector_117(&file);
	file.bytes[0] ^= 1;
	expect_refused(&file, 71, "not a .max file");
	vector_117(&file);
	file.n = 6;
	expect_refused(&file, 6, "not a .max file");
	file.n = 20;
	expect_refused(&file, 20, "cut short: 20 bytes of 24");
	memcpy(file.bytes, old, sizeof old);
	file.n = sizeof old;
	expect_refused(&file, file.n, "format before this one");
	vector_117(&file);
	file.bytes[8] = 110;
	expect_refused(&file, 71, "version 110");
	file.bytes[8] = 1;
	expect_refused(&file, 71, "version 1 of");
	vector_117(&file);
	file.bytes[12] = 99; /* the minor version is ignored */
	struct hoist__manifest *manifest = NULL;
	cr_expect_eq(parse(&file, 71, &manifest), 0);
	hoist__manifest_destroy(manifest);
	vector_117(&file);
	file.bytes[16] = 48;
	expect_refused(&file, 71, "have 48 bytes; behind it are 47");
	vector_117(&file);
	memset(file.bytes + 16, 0xff, 8);
	expect_refused(&file, 71, "18446744073709551615");
	begin(&file, 100000001);
	expect_refused(&file, 200000000, "100000000 are the most");
	vector_117(&file);
	file.bytes[16] = 22;
	expect_refused(&file, 71, "an offset needs 8 bytes, 7 are left");
	vector_117(&file);
	file.bytes[24] = 200;
	expect_refused(&file, 71, "a key needs 200 bytes");
	vector_117(&file);
	file.bytes[28] = 0xff;
	expect_refused(&file, 71, "UTF-8 (byte 28)");
	vector_117(&file);
	file.bytes[28] = '\0';
	expect_refused(&file, 71, "UTF-8 (byte 28)");
	vector_117(&file);
	file.bytes[29] = 71; /* f32 in the first releases */
	expect_refused(&file, 71, "71 is no dtype of MAX");
	vector_117(&file);
	file.bytes[30] = 65;
	expect_refused(&file, 71, "rank 65");
	vector_117(&file);
	file.bytes[39] = 46;
	expect_refused(&file, 71, "at 46");
	vector_117(&file);
	expect_refused(&file, 70, "its 24 bytes at 47");
	vector_117(&file);
	memset(file.bytes + 31, 0xff, 8);
	expect_refused(&file, 71, "fit");
}

/* proves: S1.24 */
Test(max, tensors_do_not_overlap_and_have_one_name_each)
{
	struct file file;
	begin(&file, 46);
	entry(&file, "x", 81, 2, two_by_three, 70);
	entry(&file, "y", 81, 2, two_by_three, 93);
	expect_refused(&file, 200, "begins at 93");
	begin(&file, 46);
	entry(&file, "x", 81, 2, two_by_three, 94);
	entry(&file, "x", 81, 2, two_by_three, 70);
	expect_refused(&file, 200, "two tensors are called \"x\"");
}

/* Every single byte changed to every value: never a crash, and what is accepted is within the file.
 */
/* Else it could be listed, and not be used. */
Test(max, a_tensor_without_elements_has_strides)
{
	static const uint32_t shape[] = {0, UINT32_MAX, UINT32_MAX};
	struct file file;
	begin(&file, 4 + 1 + 2 + 12 + 8);
	entry(&file, "x", 81, 3, shape, 51);
	expect_refused(&file, 51, "tensor \"x\" (byte 24): the shape has more elements than");
}

Test(max, no_byte_of_the_header_is_trusted)
{
	struct file good;
	vector_117(&good);
	for (size_t at = 0; at < 47; at++)
		for (unsigned value = 0; value < 256; value++) {
			struct file file = good;
			struct hoist__manifest *manifest = NULL;
			file.bytes[at] = (unsigned char)value;
			int err = parse(&file, 71, &manifest);
			cr_assert(err == 0 || err == -EBADMSG);
			for (size_t i = 0; err == 0 && i < manifest->n_tensors; i++) {
				const struct hoist__tensor *tensor = &manifest->tensors[i];
				cr_assert_leq(tensor->offset, 71);
				cr_assert_leq(tensor->bytes, 71 - tensor->offset);
			}
			hoist__manifest_destroy(manifest);
		}
}
