/* SPDX-License-Identifier: MIT */
/* Writing GGUF: the bytes of a small file; and a written file reads as the same tensors and pairs.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "tests/format/gguf-bytes.h"
#include "tests/support/format-expect.h"

/* The whole file that the writer describes, with tensors of zeros. */
static struct hoist__manifest *read_back(const struct hoist__out_file *out)
{
	struct bytes file = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	put(&file, out->header, out->header_bytes);
	put_zeros(&file, out->bytes - out->header_bytes);
	int err = bytes_parse(&file, file.n, HOIST__GGUF, &manifest);
	bytes_free(&file);
	cr_assert_eq(err, 0, "%s", hoist_error());
	cr_assert_eq(manifest->n_tensors, out->n_tensors);
	for (size_t i = 0; i < out->n_tensors; i++)
		expect_same(find_tensor(manifest, out->tensors[i].name), &out->tensors[i]);
	return manifest;
}

Test(format_gguf_write, the_bytes_of_a_small_file)
{
	static const char expected[] =
		"GGUF" N4("\3") N8("\2") N8("\1") N8("\1") "k" N4("\10") N8("\2") "vw" /* a pair */
		N8("\1") "b" N4("\2") N8("\2") N8("\3") N4("\1") N8("\0") /* a tensor */
		N8("\1") "a" N4("\0") N4("\0") N8("\40");		  /* another */
	struct hoist__out_tensor tensors[] = {
		{.name = "b",
		 .dtype = HOIST_F16,
		 .rank = 2,
		 .shape = (int64_t[]){3, 2},
		 .bytes = 12},
		{.name = "a", .dtype = HOIST_F32, .rank = 0, .bytes = 4},
	};
	struct hoist__out_file out = {
		.name = "f",
		.n_tensors = 2,
		.tensors = tensors,
		.n_metadata = 1,
		.metadata = &(struct hoist__metadata){"k", "vw"},
	};
	cr_assert_eq(hoist__gguf_write(&out), 0, "%s", hoist_error());
	cr_assert_eq(out.header_bytes, sizeof expected - 1);
	cr_expect_arr_eq(out.header, expected, sizeof expected - 1);
	cr_expect_eq(tensors[0].offset, 128);
	cr_expect_eq(tensors[1].offset, 160);
	cr_expect_eq(out.bytes, 192); /* the last one is padded as well */
	struct hoist__manifest *manifest = read_back(&out);
	cr_expect_str_eq(value_of(manifest, "k"), "vw");
	hoist__manifest_destroy(manifest);
	free(out.header);
}

Test(format_gguf_write, every_dtype_that_gguf_has)
{
	struct hoist__out_tensor tensors[64];
	int64_t shapes[64][2];
	char names[64][8];
	struct hoist__out_file out = {.name = "f", .tensors = tensors};
	for (int id = 0; id < 64; id++) {
		const struct hoist__dtype_info *info =
			hoist__dtype_info(hoist__dtype_from_gguf(id));
		if (info == NULL)
			continue;
		size_t n = out.n_tensors++;
		shapes[n][0] = 3;
		shapes[n][1] = 2 * (int64_t)info->block_elements;
		snprintf(names[n], sizeof names[n], "t%d", id);
		tensors[n] = (struct hoist__out_tensor){.name = names[n],
							.dtype = info->dtype,
							.rank = 2,
							.shape = shapes[n],
							.bytes = 6 * info->block_bytes};
	}
	cr_assert_gt(out.n_tensors, 30);
	cr_assert_eq(hoist__gguf_write(&out), 0, "%s", hoist_error());
	hoist__manifest_destroy(read_back(&out));
	free(out.header);
}

Test(format_gguf_write, nothing_is_a_file_too)
{
	struct hoist__out_file out = {.name = "f"};
	cr_assert_eq(hoist__gguf_write(&out), 0, "%s", hoist_error());
	struct hoist__manifest *manifest = read_back(&out);
	cr_expect_eq(manifest->n_metadata, 0);
	hoist__manifest_destroy(manifest);
	free(out.header);
}

/* Pairs of many types, some of which do not outlive the file. */
static const char pairs[] = "GGUF" N4("\3") N8("\0") N8("\12")		      /**/
	N8("\3") "u16" N4("\2") "\xff\xff"				      /**/
	N8("\21") "general.alignment" N4("\4") N4("\100")		      /**/
	N8("\10") "split.no" N4("\2") "\0\0"				      /**/
	N8("\13") "split.count" N4("\2") "\1\0"				      /**/
	N8("\23") "split.tensors.count" N4("\5") N4("\0")		      /**/
	N8("\16") "hoist.xxh3_128" N4("\10") N8("\1") "0"		      /**/
	N8("\7") "strings" N4("\11") N4("\10") N8("\2") N8("\1") "x" N8("\0") /**/
	N8("\6") "nested" N4("\11") N4("\11") N8("\2") N4("\0") N8("\1") "\7" N4("\6") N8("\1")
		N4("\0")			   /**/
	N8("\3") "raw" N4("\10") N8("\2") "\0\xff" /**/
	N8("\4") "name" N4("\10") N8("\3") "old";

Test(format_gguf_write, pairs_keep_their_types_and_bytes)
{
	const struct bytes file = {.p = (unsigned char *)(uintptr_t)pairs, .n = sizeof pairs - 1};
	struct hoist__manifest *like = NULL;
	cr_assert_eq(bytes_parse(&file, file.n, HOIST__GGUF, &like), 0, "%s", hoist_error());
	const struct hoist__metadata more[] = {{"name", "new"},
					       {"hoist.xxh3_128", "fresh"},
					       {"split.no", "3"},
					       {"split.x", "kept"}};
	struct hoist__out_tensor tensors[] = {
		{.name = "a", .dtype = HOIST_I8, .rank = 1, .shape = (int64_t[]){1}, .bytes = 1},
		{.name = "b", .dtype = HOIST_I8, .rank = 1, .shape = (int64_t[]){1}, .bytes = 1},
	};
	struct hoist__out_file out = {.name = "f",
				      .n_tensors = 2,
				      .tensors = tensors,
				      .n_metadata = 4,
				      .metadata = more,
				      .like = like};
	cr_assert_eq(hoist__gguf_write(&out), 0, "%s", hoist_error());
	struct hoist__manifest *made = read_back(&out);
	/* The alignment is that of the file it is made like. */
	cr_expect_eq(tensors[0].offset % 64, 0);
	cr_expect_eq(tensors[1].offset, tensors[0].offset + 64);
	cr_expect_eq(made->n_metadata, 8);
	static const char *const kept[] = {"u16", "general.alignment", "strings", "nested", "raw"};
	for (size_t i = 0; i < 5; i++) {
		cr_expect_str_eq(value_of(made, kept[i]), value_of(like, kept[i]));
		cr_expect_str_neq(value_of(made, kept[i]), "(none)");
	}
	cr_expect_str_eq(value_of(made, "name"), "new");
	cr_expect_str_eq(value_of(made, "hoist.xxh3_128"), "fresh");
	cr_expect_str_eq(value_of(made, "split.no"), "(none)");
	cr_expect_str_eq(value_of(made, "split.count"), "(none)");
	cr_expect_str_eq(value_of(made, "split.tensors.count"), "(none)");
	cr_expect_str_eq(value_of(made, "split.x"), "kept");
	/* From "strings" to before "name" nothing was left out: these bytes are the same. */
	const size_t n = 35 + 61 + 25;
	const char *first = memmem(pairs, sizeof pairs - 1, "\7\0\0\0\0\0\0\0strings", 15);
	cr_assert_not_null(memmem(made->raw_metadata, made->raw_metadata_bytes, first, n));
	hoist__manifest_destroy(made);
	hoist__manifest_destroy(like);
	free(out.header);
}

/* A digest is known when the bytes have been written: the header is made once more. */
Test(format_gguf_write, other_values_of_the_same_lengths_move_nothing)
{
	struct hoist__out_tensor tensor = {
		.name = "t", .dtype = HOIST_F32, .rank = 1, .shape = (int64_t[]){2}, .bytes = 8};
	struct hoist__metadata pair = {"hoist.xxh3_128", "0000"};
	struct hoist__out_file out = {.name = "f",
				      .n_tensors = 1,
				      .tensors = &tensor,
				      .n_metadata = 1,
				      .metadata = &pair};
	cr_assert_eq(hoist__gguf_write(&out), 0);
	const uint64_t offset = tensor.offset;
	const size_t header_bytes = out.header_bytes;
	const uint64_t bytes = out.bytes;
	free(out.header);
	pair.value = "ffff";
	cr_assert_eq(hoist__gguf_write(&out), 0);
	cr_expect_eq(tensor.offset, offset);
	cr_expect_eq(out.header_bytes, header_bytes);
	cr_expect_eq(out.bytes, bytes);
	cr_expect_not_null(memmem(out.header, out.header_bytes, "ffff", 4));
	free(out.header);
}

#define LONG_NAME "1234567890123456789012345678901234567890123456789012345678901234"

#define ONE(type, size)                                                                            \
	{                                                                                          \
		.name = "t", .dtype = type, .rank = 1, .shape = (int64_t[]){1}, .bytes = size      \
	}
#define SCALAR                                                                                     \
	{                                                                                          \
		.name = "t", .dtype = HOIST_I8, .bytes = 1                                         \
	}

static const struct refused {
	struct hoist__out_tensor tensor;
	struct hoist__metadata pair;
	int err;
	const char *message;
} refused[] = {
	{ONE(HOIST_U8, 1),
	 {"k", ""},
	 -EINVAL,
	 "tensor \"t\": GGUF has no dtype u8; save it as safetensors"},
	{ONE(HOIST_C128, 16),
	 {"k", ""},
	 -EINVAL,
	 "tensor \"t\": GGUF has no dtype c128; convert it first"},
	{{.name = LONG_NAME "5", .dtype = HOIST_I8, .bytes = 1},
	 {"k", ""},
	 -EINVAL,
	 "the name of tensor \"" LONG_NAME
	 "5\" has 65 bytes, and GGUF allows 64; rename the tensor, or save as "
	 "safetensors"},
	{{.name = "t",
	  .dtype = HOIST_I8,
	  .rank = 5,
	  .shape = (int64_t[]){1, 1, 1, 1, 1},
	  .bytes = 1},
	 {"k", ""},
	 -EINVAL,
	 "tensor \"t\" has 5 axes, and GGUF allows 4; view it with fewer, or save as safetensors"},
	{{.name = "t", .dtype = HOIST_Q4_0, .rank = 2, .shape = (int64_t[]){2, 16}, .bytes = 18},
	 {"k", ""},
	 -EINVAL,
	 "tensor \"t\": rows of 16 elements are not whole blocks of 32, as GGUF wants them of "
	 "q4_0"},
	{{.name = "", .dtype = HOIST_I8, .bytes = 1},
	 {"k", ""},
	 -EINVAL,
	 "the name of tensor 0 is empty"},
	{{.name = "t", .dtype = HOIST_I8, .bytes = UINT64_C(1) << 63},
	 {"k", ""},
	 -EOVERFLOW,
	 "its tensors have too many bytes"},
	{SCALAR, {"", ""}, -EINVAL, "a key of the metadata has 0 bytes; GGUF wants 1 to 65535"},
	{SCALAR,
	 {"general.alignment", "48"},
	 -EINVAL,
	 "general.alignment is \"48\", not a power of two below 2^32"},
	{SCALAR,
	 {"general.alignment", "-8"},
	 -EINVAL,
	 "general.alignment is \"-8\", not a power of two below 2^32"},
	{SCALAR,
	 {"general.alignment", "4294967296"},
	 -EINVAL,
	 "general.alignment is \"4294967296\", not a power of two below 2^32"},
};

Test(format_gguf_write, tensors_that_gguf_cannot_hold_are_refused)
{
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		struct hoist__out_tensor tensor = refused[i].tensor;
		struct hoist__out_file out = {.name = "f",
					      .n_tensors = 1,
					      .tensors = &tensor,
					      .n_metadata = 1,
					      .metadata = &refused[i].pair};
		cr_expect_eq(hoist__gguf_write(&out), refused[i].err, "%zu", i);
		cr_expect_str_eq(hoist_error() + strlen("f: "), refused[i].message, "%zu", i);
		cr_expect_null(out.header);
	}
}

Test(format_gguf_write, the_alignment_can_be_chosen)
{
	struct hoist__out_tensor tensor = {.name = "t", .dtype = HOIST_I8, .rank = 0, .bytes = 1};
	struct hoist__metadata pair = {"general.alignment", "4096"};
	struct hoist__out_file out = {.name = "f",
				      .n_tensors = 1,
				      .tensors = &tensor,
				      .n_metadata = 1,
				      .metadata = &pair};
	cr_assert_eq(hoist__gguf_write(&out), 0, "%s", hoist_error());
	cr_expect_eq(tensor.offset, 4096);
	cr_expect_eq(out.bytes, 8192);
	hoist__manifest_destroy(read_back(&out));
	free(out.header);
}
