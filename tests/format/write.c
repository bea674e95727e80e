/* SPDX-License-Identifier: MIT */
/* A safetensors file or an index that was written reads as the same; a tensor that a format cannot
 * hold is refused. */
#include "config.h"

#include <stdlib.h>

#include "tests/support/format-expect.h"

static const int64_t shape[] = {3, 5};

/* Everything that text can hold. */
static const char strange[] = "a\"b\\c\n\x01\x1f/\xc3\xa9\xf0\x9f\x98\x80\x7f";

static void expect_refused(struct hoist__out_file *file, int code, const char *text)
{
	file->header = NULL;
	int err = hoist__safetensors_write(file);
	expect_failed(err, file->header, code, text);
}

Test(format_write, safetensors_are_read_back)
{
	const int64_t none[] = {0, 7};
	const int64_t nibbles[] = {6};
	const struct hoist__metadata metadata[] = {{"format", "pt"}, {strange, strange}, {"k", ""}};
	struct hoist__out_tensor tensors[] = {
		{.name = "z", .dtype = HOIST_F32, .rank = 2, .shape = shape, .bytes = 60},
		{.name = "none", .dtype = HOIST_BF16, .rank = 2, .shape = none, .bytes = 0},
		{.name = strange, .dtype = HOIST_U8, .rank = 0, .shape = NULL, .bytes = 1},
		{.name = "a", .dtype = HOIST_F4_E2M1FN, .rank = 1, .shape = nibbles, .bytes = 3},
	};
	struct hoist__out_file out = {.name = "m",
				      .n_tensors = 4,
				      .tensors = tensors,
				      .n_metadata = 3,
				      .metadata = metadata};
	cr_assert_eq(hoist__safetensors_write(&out), 0, "%s", hoist__error_text());
	cr_expect_eq(out.header_bytes % 8, 0);
	cr_expect_eq(out.bytes, out.header_bytes + 64);
	struct hoist__manifest *manifest;
	cr_assert_eq(
		hoist__safetensors_parse("m", out.header, out.header_bytes, out.bytes, &manifest),
		0, "%s", hoist__error_text());
	cr_assert_eq(manifest->n_tensors, 4);
	for (size_t i = 0; i < 4; i++)
		expect_same(&manifest->tensors[i], &tensors[i]);
	cr_assert_eq(manifest->n_metadata, 3);
	for (size_t i = 0; i < 3; i++) {
		cr_expect_str_eq(manifest->metadata[i].key, metadata[i].key);
		cr_expect_str_eq(manifest->metadata[i].value, metadata[i].value);
	}
	hoist__manifest_destroy(manifest);
	free(out.header);
}

Test(format_write, a_file_without_tensors)
{
	struct hoist__out_file out = {.name = "m"};
	cr_assert_eq(hoist__safetensors_write(&out), 0, "%s", hoist__error_text());
	cr_expect_eq(out.bytes, 16);
	cr_expect_eq(memcmp(out.header, "\10\0\0\0\0\0\0\0{}      ", 16), 0);
	free(out.header);
}

Test(format_write, large_files_begin_at_a_page)
{
	const int64_t many[] = {1 << 20};
	struct hoist__out_tensor tensor = {
		.name = "x", .dtype = HOIST_U8, .rank = 1, .shape = many, .bytes = 1 << 20};
	struct hoist__out_file out = {.name = "m", .n_tensors = 1, .tensors = &tensor};
	cr_assert_eq(hoist__safetensors_write(&out), 0, "%s", hoist__error_text());
	cr_expect_eq(out.header_bytes, 4096);
	cr_expect_eq(tensor.offset, 4096);
	free(out.header);
}

Test(format_write, tensors_that_safetensors_cannot_hold_are_refused)
{
	const int64_t odd[] = {3};
	struct hoist__out_tensor tensors[] = {
		{.name = "b", .dtype = HOIST_U8, .rank = 0, .bytes = 1},
		{.name = "a", .dtype = HOIST_U8, .rank = 0, .bytes = 1},
		{.name = "x", .dtype = HOIST_U8, .rank = 0, .bytes = 1},
	};
	struct hoist__out_file out = {.name = "m", .n_tensors = 3, .tensors = tensors};
	tensors[2].name = "b";
	expect_refused(&out, -EINVAL, "two tensors are called \"b\"");
	tensors[2].name = "";
	expect_refused(&out, -EINVAL, "the name of tensor 2 is empty");
	tensors[2].name = "\xff";
	expect_refused(&out, -EINVAL, "is not UTF-8");
	tensors[2].name = "__metadata__";
	expect_refused(&out, -EINVAL, "can be called __metadata__");
	tensors[2] = (struct hoist__out_tensor){.name = "q", .dtype = HOIST_Q4_0, .bytes = 18};
	expect_refused(&out, -EINVAL,
		       "safetensors has no dtype q4_0; dequantise it (--dtype, "
		       "hoist_save_tensor.dtype), or save it as gguf");
	tensors[2].dtype = HOIST_C128;
	expect_refused(&out, -EINVAL, "safetensors has no dtype c128; convert it first");
	tensors[2] = (struct hoist__out_tensor){
		.name = "n", .dtype = HOIST_F4_E2M1FN, .rank = 1, .shape = odd, .bytes = 2};
	expect_refused(&out, -EINVAL, "3 elements of f4_e2m1fn are no whole bytes");
	tensors[2] =
		(struct hoist__out_tensor){.name = "h", .dtype = HOIST_U8, .bytes = UINT64_MAX};
	expect_refused(&out, -EOVERFLOW, "too many bytes");
}

Test(format_write, an_index_is_read_back)
{
	const char *const files[] = {"m-1.safetensors", "m-2.safetensors"};
	const char *const tensors[] = {"b", strange, "a"};
	const size_t file_of[] = {0, 1, 1};
	const struct hoist__metadata metadata[] = {{"format", "pt"}, {"total_size", "1"}};
	char *text;
	size_t bytes;
	cr_assert_eq(hoist__index_write(files, 3, tensors, file_of, 1234567890123, 2, metadata,
					&text, &bytes),
		     0);
	struct hoist__index *index;
	cr_assert_eq(hoist__index_parse("i", text, bytes, &index), 0, "%s", hoist__error_text());
	cr_expect_eq(index->n_files, 2);
	cr_expect_eq(index->n_entries, 3);
	for (size_t i = 0; i < 3; i++) {
		size_t k = 0;
		while (k < 3 && strcmp(index->entries[k].tensor, tensors[i]) != 0)
			k++;
		cr_assert_lt(k, 3, "%s", tensors[i]);
		cr_expect_str_eq(index->files[index->entries[k].file], files[file_of[i]]);
	}
	cr_assert_eq(index->n_metadata, 2);
	cr_expect_str_eq(index->metadata[0].key, "total_size");
	cr_expect_str_eq(index->metadata[0].value, "1234567890123");
	cr_expect_str_eq(index->metadata[1].value, "pt");
	hoist__index_destroy(index);
	free(text);
}
