/* SPDX-License-Identifier: MIT */
/* A .npy or .max file that was written reads as the same, by the parsers and byte by byte; a tensor
 * that these formats cannot hold is refused. */
#include "config.h"

#include <stdlib.h>

#include "base/dtype.h"
#include "format/npy.h"
#include "tests/support/format-expect.h"

static const int64_t shape[] = {3, 4};

static void expect_refused(int (*write)(struct hoist__out_file *), struct hoist__out_file *file,
			   int code, const char *text)
{
	file->header = NULL;
	int err = write(file);
	expect_failed(err, file->header, code, text);
}

/* The whole file: header, and zeros to its end. */
static void make_file(const struct hoist__out_file *out, struct bytes *file)
{
	put(file, out->header, out->header_bytes);
	put_zeros(file, out->bytes - out->header_bytes);
	free(out->header);
}

/* As NumPy itself writes it, but for the length of the padding. */
Test(npy_write, the_header_is_numpys)
{
	struct hoist__out_tensor tensor = {
		.name = "x", .dtype = HOIST_F32, .rank = 2, .shape = shape, .bytes = 48};
	struct hoist__out_file out = {.name = "m.npy", .n_tensors = 1, .tensors = &tensor};
	static const char expected[] =
		"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
	cr_assert_eq(hoist__npy_write(&out), 0, "%s", hoist__error_text());
	cr_assert_eq(out.header_bytes, 128);
	cr_expect_eq(out.bytes, 176);
	cr_expect_eq(tensor.offset, 128);
	cr_expect_eq(memcmp(out.header, "\x93NUMPY\1\0\166\0", 10), 0);
	cr_expect_eq(memcmp(out.header + 10, expected, strlen(expected)), 0);
	for (size_t i = 10 + strlen(expected); i < 127; i++)
		cr_expect_eq(out.header[i], ' ');
	cr_expect_eq(out.header[127], '\n');
	free(out.header);
}

Test(npy_write, each_dtype_and_rank_is_read_back)
{
	int64_t ones[64];
	for (size_t i = 0; i < 64; i++)
		ones[i] = i < 63 ? 1 : 2;
	for (int dtype = 0; dtype < 256; dtype++) {
		const struct hoist__dtype_info *info = hoist__dtype_info((hoist_dtype)dtype);
		for (int rank = 0; info != NULL && rank <= 64; rank += rank < 3 ? 1 : 61) {
			struct hoist__out_tensor tensor = {
				.name = "arr_0",
				.dtype = info->dtype,
				.rank = rank,
				.shape = ones + 64 - rank,
				.bytes = (rank > 0 ? 2 : 1) * info->block_bytes,
			};
			struct hoist__out_file out = {
				.name = "m.npy", .n_tensors = 1, .tensors = &tensor};
			struct hoist__manifest *manifest = NULL;
			struct bytes file = {.n = 0};
			if (!info->numpy_native) {
				expect_refused(hoist__npy_write, &out, -EINVAL,
					       "which NumPy lacks; save it as");
				continue;
			}
			cr_assert_eq(hoist__npy_write(&out), 0, "%s", hoist__error_text());
			cr_expect_eq(out.header_bytes % 64, 0);
			make_file(&out, &file);
			struct hoist__reader reader = reader_of(&file, "m.npy");
			cr_assert_eq(hoist__npy_parse(&reader, &manifest), 0, "%s",
				     hoist__error_text());
			expect_same(manifest->tensors, &tensor);
			hoist__manifest_destroy(manifest);
			bytes_free(&file);
		}
	}
}

Test(npy_write, large_arrays_begin_on_a_page)
{
	static const int64_t large[] = {1 << 20};
	struct hoist__out_tensor tensor = {
		.name = "x", .dtype = HOIST_U8, .rank = 1, .shape = large, .bytes = 1 << 20};
	struct hoist__out_file out = {.name = "m.npy", .n_tensors = 1, .tensors = &tensor};
	cr_assert_eq(hoist__npy_write(&out), 0, "%s", hoist__error_text());
	cr_expect_eq(tensor.offset, 4096);
	cr_expect_eq(out.header_bytes, 4096);
	free(out.header);
}

Test(npy_write, a_file_holds_exactly_one_tensor)
{
	struct hoist__out_tensor tensors[2] = {
		{.name = "x", .dtype = HOIST_BF16, .rank = 2, .shape = shape, .bytes = 24},
		{.name = "y", .dtype = HOIST_F32, .rank = 2, .shape = shape, .bytes = 48}};
	struct hoist__out_file out = {.name = "m.npy", .n_tensors = 2, .tensors = tensors};
	expect_refused(hoist__npy_write, &out, -EINVAL,
		       "m.npy: a .npy file holds one tensor, and there are 2; save them as "
		       "safetensors");
	out.n_tensors = 0;
	expect_refused(hoist__npy_write, &out, -EINVAL, "there are 0");
	out.n_tensors = 1;
	expect_refused(hoist__npy_write, &out, -EINVAL,
		       "cannot hold bf16, which NumPy lacks; save it as safetensors");
	tensors[0].dtype = HOIST_Q4_0;
	expect_refused(hoist__npy_write, &out, -EINVAL,
		       "cannot hold q4_0, which NumPy lacks; "
		       "save it as gguf");
	tensors[0].dtype = HOIST_F32;
	tensors[0].bytes = UINT64_MAX - 100;
	expect_refused(hoist__npy_write, &out, -EOVERFLOW, "too many bytes");
}

/* --- .max --- */

static void max_round(struct hoist__out_file *out, struct bytes *file,
		      struct hoist__manifest **manifest)
{
	size_t header_bytes = 0;
	cr_assert_eq(hoist__max_write(out), 0, "%s", hoist__error_text());
	make_file(out, file);
	cr_assert_eq(hoist__max_header_bytes("m.max", file->p, HOIST__MAX_FILE_PREFIX, file->n,
					     &header_bytes),
		     0, "%s", hoist__error_text());
	cr_expect_eq(header_bytes, out->header_bytes);
	cr_assert_eq(hoist__max_parse("m.max", file->p, header_bytes, file->n, manifest), 0, "%s",
		     hoist__error_text());
}

/* proves: S1.26 */
Test(max_write, tensors_are_read_back)
{
	struct hoist__out_tensor tensors[3] = {
		{.name = "b", .dtype = HOIST_BF16, .rank = 2, .shape = shape, .bytes = 24},
		{.name = "a\xc3\xa9", .dtype = HOIST_F64, .bytes = 8},
		{.name = "c", .dtype = HOIST_F8_E4M3FN, .rank = 1, .shape = shape, .bytes = 3}};
	struct hoist__out_file out = {.name = "m.max", .n_tensors = 3, .tensors = tensors};
	struct bytes file = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	max_round(&out, &file, &manifest);
	cr_assert_eq(manifest->n_tensors, 3);
	for (size_t i = 0; i < 3; i++) {
		expect_same(&manifest->tensors[i], &tensors[i]);
		cr_expect_eq(tensors[i].offset % 64, 0);
	}
	cr_expect_eq(out.bytes, tensors[2].offset + 3);
	hoist__manifest_destroy(manifest);
	bytes_free(&file);
}

Test(max_write, a_file_may_be_empty_or_large)
{
	static const int64_t large[] = {1 << 20};
	struct hoist__out_tensor tensor = {
		.name = "x", .dtype = HOIST_U8, .rank = 1, .shape = large, .bytes = 1 << 20};
	struct hoist__out_file out = {.name = "m.max", .n_tensors = 0};
	struct bytes file = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	max_round(&out, &file, &manifest);
	cr_expect_eq(out.bytes, 24);
	cr_expect_eq(manifest->n_tensors, 0);
	hoist__manifest_destroy(manifest);
	bytes_free(&file);
	out = (struct hoist__out_file){.name = "m.max", .n_tensors = 1, .tensors = &tensor};
	max_round(&out, &file, &manifest);
	cr_expect_eq(manifest->tensors[0].offset, 4096);
	hoist__manifest_destroy(manifest);
	bytes_free(&file);
}

Test(max_write, tensors_that_max_cannot_hold_are_refused)
{
	static const int64_t huge[] = {INT64_C(1) << 32, 0};
	struct hoist__out_tensor tensors[2] = {
		{.name = "x", .dtype = HOIST_C64, .rank = 2, .shape = shape, .bytes = 96},
		{.name = "x", .dtype = HOIST_F32, .rank = 2, .shape = shape, .bytes = 48}};
	struct hoist__out_file out = {.name = "m.max", .n_tensors = 1, .tensors = tensors};
	expect_refused(hoist__max_write, &out, -EINVAL,
		       "m.max: tensor \"x\": MAX has no dtype c64; save it as safetensors");
	tensors[0].dtype = HOIST_C128;
	expect_refused(hoist__max_write, &out, -EINVAL, "no dtype c128; save it as npy");
	tensors[0].dtype = HOIST_Q4_0;
	expect_refused(hoist__max_write, &out, -EINVAL, "no dtype q4_0; save it as gguf");
	tensors[0].dtype = HOIST_F32;
	tensors[0].shape = huge;
	expect_refused(hoist__max_write, &out, -EINVAL, "axis 0 has the extent 4294967296, and");
	tensors[0].shape = shape;
	out.n_tensors = 2;
	expect_refused(hoist__max_write, &out, -EINVAL, "two tensors are called \"x\"");
	tensors[1].name = "y";
	tensors[1].bytes = UINT64_MAX - 10;
	expect_refused(hoist__max_write, &out, -EOVERFLOW, "too many bytes");
}
