/* SPDX-License-Identifier: MIT */
/* .max headers: the tensors of good ones are found, and bad ones are refused with a reason.  Files
 * are made here, byte by byte. */
#include "config.h"

#include <stdlib.h>

#include "tests/support/format-expect.h"

static void begin(struct bytes *file, uint64_t entry_bytes)
{
	file->n = 0;
	put_text(file, "\x93\xf0\x9f\x94\xa5\x2b\x2b\x93");
	put_number(file, 0, 4);
	put_number(file, 1, 4);
	put_number(file, entry_bytes, 8);
}

static void entry(struct bytes *file, const char *key, int dtype, int rank, const uint32_t *shape,
		  uint64_t offset)
{
	put_number(file, strlen(key), 4);
	put_text(file, key);
	put_number(file, (uint64_t)dtype, 1);
	put_number(file, (uint64_t)rank, 1);
	for (int i = 0; i < rank; i++)
		put_number(file, shape[i], 4);
	put_number(file, offset, 8);
}

static int parse(const struct bytes *file, size_t file_bytes, struct hoist__manifest **ret)
{
	size_t header_bytes = 0;
	size_t prefix = file->n < HOIST__MAX_FILE_PREFIX ? file->n : HOIST__MAX_FILE_PREFIX;
	int err = hoist__max_header_bytes("m.max", file->p, prefix, file_bytes, &header_bytes);
	if (err < 0)
		return err;
	/* On the heap and exact, so that a sanitizer sees each byte too many. */
	unsigned char *header = malloc(header_bytes);
	cr_assert_not_null(header);
	memcpy(header, file->p, header_bytes);
	err = hoist__max_parse("m.max", header, header_bytes, file_bytes, ret);
	free(header);
	return err;
}

static void expect_refused(const struct bytes *file, size_t file_bytes, const char *text)
{
	struct hoist__manifest *manifest = NULL;
	int err = parse(file, file_bytes, &manifest);
	expect_failed(err, manifest, -EBADMSG, text);
}

static const uint32_t two_by_three[] = {2, 3};

/* The vector's own bytes: metadata of 23, the tensor at 47, 71 bytes in all. */
static void vector_117(struct bytes *file)
{
	begin(file, 23);
	entry(file, "x", 81, 2, two_by_three, 47);
	put_zeros(file, 24);
}

/* proves: S1.26 V117 */
Test(max, an_entry_is_a_tensor)
{
	struct bytes file = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	vector_117(&file);
	cr_assert_eq(file.n, 71);
	cr_assert(hoist__max_is(file.p, file.n));
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
	bytes_free(&file);
}

/* proves: S1.24 S1.26 */
Test(max, entries_in_any_order_come_in_that_of_their_bytes)
{
	struct bytes file = {.n = 0};
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
	bytes_free(&file);
}

/* proves: S1.24 S1.26 V118 */
Test(max, a_broken_rule_is_refused_with_its_byte)
{
	static const char old[] = "\x93\xf0\x9f\x94\xa5\x93\0\0";
	static const struct {
		size_t at;
		unsigned n; /* bytes, which are */
		uint64_t value;
		const char *text;
	} rows[] = {
		{0, 1, 0x92, "not a .max file"},
		{8, 4, 110, "version 110"},
		{8, 4, 1, "version 1 of"},
		{16, 8, 48, "have 48 bytes; behind it are 47"},
		{16, 8, UINT64_MAX, "18446744073709551615"},
		{16, 8, 22, "an offset needs 8 bytes, 7 are left"},
		{24, 4, 200, "a key needs 200 bytes"},
		{28, 1, 0xff, "UTF-8 (byte 28)"},
		{28, 1, 0, "UTF-8 (byte 28)"},
		{29, 1, 71, "71 is no dtype of MAX"}, /* f32 in the first releases */
		{30, 1, 65, "rank 65"},
		{31, 8, UINT64_MAX, "fit"},
		{39, 8, 46, "at 46"},
	};
	struct bytes file = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		vector_117(&file);
		set_number(&file, rows[i].at, rows[i].value, rows[i].n);
		expect_refused(&file, 71, rows[i].text);
	}
	vector_117(&file);
	expect_refused(&file, 70, "its 24 bytes at 47");
	file.n = 6;
	expect_refused(&file, 6, "not a .max file");
	file.n = 20;
	expect_refused(&file, 20, "cut short: 20 bytes of 24");
	file.n = 0;
	put(&file, old, sizeof old);
	expect_refused(&file, file.n, "format before this one");
	begin(&file, 100000001);
	expect_refused(&file, 200000000, "100000000 are the most");
	vector_117(&file);
	file.p[12] = 99; /* the minor version is ignored */
	cr_expect_eq(parse(&file, 71, &manifest), 0);
	hoist__manifest_destroy(manifest);
	bytes_free(&file);
}

/* proves: S1.24 */
Test(max, tensors_do_not_overlap_and_have_one_name_each)
{
	struct bytes file = {.n = 0};
	begin(&file, 46);
	entry(&file, "x", 81, 2, two_by_three, 70);
	entry(&file, "y", 81, 2, two_by_three, 93);
	expect_refused(&file, 200, "begins at 93");
	begin(&file, 46);
	entry(&file, "x", 81, 2, two_by_three, 94);
	entry(&file, "x", 81, 2, two_by_three, 70);
	expect_refused(&file, 200, "two tensors are called \"x\"");
	bytes_free(&file);
}

/* Without strides the tensor could be listed, and not be used. */
Test(max, a_tensor_without_elements_has_strides)
{
	static const uint32_t shape[] = {0, UINT32_MAX, UINT32_MAX};
	struct bytes file = {.n = 0};
	begin(&file, 4 + 1 + 2 + 12 + 8);
	entry(&file, "x", 81, 3, shape, 51);
	expect_refused(&file, 51, "tensor \"x\" (byte 24): the shape has more elements than");
	bytes_free(&file);
}

/* Never a crash, and a tensor that is accepted lies within the file. */
Test(max, no_byte_of_the_header_is_trusted)
{
	struct bytes file = {.n = 0};
	vector_117(&file);
	for (size_t at = 0; at < 47; at++) {
		unsigned char was = file.p[at];
		for (unsigned value = 0; value < 256; value++) {
			struct hoist__manifest *manifest = NULL;
			file.p[at] = (unsigned char)value;
			int err = parse(&file, 71, &manifest);
			cr_assert(err == 0 || err == -EBADMSG);
			if (err == 0)
				expect_within(manifest, 71);
			hoist__manifest_destroy(manifest);
		}
		file.p[at] = was;
	}
	bytes_free(&file);
}
