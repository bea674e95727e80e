/* SPDX-License-Identifier: MIT */
/* .npy and .npz: the arrays of good ones are found, and bad ones are refused with a reason. */
#include "config.h"

#include <stdio.h>

#include "format/npy.h"
#include "tests/support/format-archive.h"
#include "tests/support/format-expect.h"

/* A file of that version around @header, with @n bytes of array. */
static void array_file(struct bytes *file, int major, const char *header, size_t n)
{
	put(file, "\x93NUMPY", 6);
	put_number(file, (uint64_t)major, 1);
	put_number(file, 0, 1);
	put_number(file, strlen(header), major == 1 ? 2 : 4);
	put_text(file, header);
	put_zeros(file, n);
}

static int parse(const struct bytes *file, struct hoist__manifest **ret)
{
	struct hoist__reader reader = reader_of(file, "m.npy");
	return hoist__npy_parse(&reader, ret);
}

static void expect_refused(struct bytes *file, int code, const char *text)
{
	struct hoist__manifest *manifest = NULL;
	int err = parse(file, &manifest);
	expect_failed(err, manifest, code, text);
	bytes_free(file);
}

Test(npy, every_dtype_of_numpy_is_read)
{
	static const struct {
		const char *descr;
		hoist_dtype dtype;
		size_t bytes;
	} rows[] = {
		{"|b1", HOIST_BOOL, 1},	   {"|i1", HOIST_I8, 1},
		{"<i2", HOIST_I16, 2},	   {"<i4", HOIST_I32, 4},
		{"<i8", HOIST_I64, 8},	   {"|u1", HOIST_U8, 1},
		{"<u2", HOIST_U16, 2},	   {"<u4", HOIST_U32, 4},
		{"<u8", HOIST_U64, 8},	   {"<f2", HOIST_F16, 2},
		{"<f4", HOIST_F32, 4},	   {"<f8", HOIST_F64, 8},
		{"<c8", HOIST_C64, 8},	   {"<c16", HOIST_C128, 16},
		{"f4", HOIST_F32, 4},	   {"=i4", HOIST_I32, 4},
		{">u1", HOIST_U8, 1},	   {"<V2", HOIST_BF16, 2},
		{"<f1", HOIST_F8_E5M2, 1}, {"bfloat16", HOIST_BF16, 2},
		{"float32", HOIST_F32, 4}, {"float8_e4m3fn", HOIST_F8_E4M3FN, 1},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct bytes file = {.n = 0};
		struct hoist__manifest *manifest = NULL;
		char header[128];
		snprintf(header, sizeof header,
			 "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3), }   \n",
			 rows[i].descr);
		array_file(&file, 1, header, 6 * rows[i].bytes);
		cr_assert_eq(parse(&file, &manifest), 0, "%s", hoist__error_text());
		cr_assert_eq(manifest->n_tensors, 1);
		const struct hoist__tensor *tensor = manifest->tensors;
		cr_expect_str_eq(tensor->name, "arr_0");
		cr_expect_eq(tensor->name_bytes, 5);
		cr_expect_eq(tensor->dtype, rows[i].dtype, "%s", rows[i].descr);
		cr_expect_eq(tensor->rank, 2);
		cr_expect_eq(tensor->shape[0], 2);
		cr_expect_eq(tensor->shape[1], 3);
		cr_expect_null(tensor->strides);
		cr_expect_eq(tensor->bytes, 6 * rows[i].bytes);
		cr_expect_eq(tensor->offset, 10 + strlen(header));
		cr_expect_eq(manifest->data_offset, tensor->offset);
		hoist__manifest_destroy(manifest);
		bytes_free(&file);
	}
}

/* Order of keys, spaces, quotes, Python 2's longs, versions; shapes of no axis and no element. */
Test(npy, every_form_of_the_header_is_read)
{
	static const struct {
		const char *header;
		int major;
		int rank;
		size_t bytes;
		int64_t strides[3]; /* 0: none */
	} rows[] = {
		{"{'descr':'<f4','fortran_order':False,'shape':()}", 1, 0, 4, {0}},
		{"{\"shape\": (5,), \"fortran_order\": True, \"descr\": \"<f4\"}\n", 2, 1, 20, {0}},
		{"{ 'shape' : (2L, 3L), 'descr' : '<f4' , 'fortran_order':True ,}",
		 3,
		 2,
		 24,
		 {1, 2}},
		{"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1, 4,), }",
		 1,
		 3,
		 32,
		 {1, 2, 2}},
		{"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 6), }", 1, 2, 24, {0}},
		{"{'descr': '<f4', 'fortran_order': True, 'shape': (3, 0, 2), }", 1, 3, 0, {0}},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (0,), }", 1, 1, 0, {0}},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct bytes file = {.n = 0};
		struct hoist__manifest *manifest = NULL;
		array_file(&file, rows[i].major, rows[i].header, rows[i].bytes);
		cr_assert_eq(parse(&file, &manifest), 0, "%s", hoist__error_text());
		const struct hoist__tensor *tensor = manifest->tensors;
		cr_expect_eq(tensor->rank, rows[i].rank, "%zu", i);
		cr_expect_eq(tensor->bytes, rows[i].bytes, "%zu", i);
		cr_expect_eq(tensor->strides != NULL, rows[i].strides[0] != 0, "%zu", i);
		for (int k = 0; tensor->strides != NULL && k < tensor->rank; k++)
			cr_expect_eq(tensor->strides[k], rows[i].strides[k], "%zu, %d", i, k);
		hoist__manifest_destroy(manifest);
		bytes_free(&file);
	}
}

/* A header that is longer than what is read at once. */
Test(npy, a_header_may_be_padded_far)
{
	struct bytes file = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	static char header[20000];
	memset(header, ' ', sizeof header - 1);
	memcpy(header, "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)", 54);
	header[sizeof header - 2] = '}';
	array_file(&file, 1, header, 3);
	cr_assert_eq(parse(&file, &manifest), 0, "%s", hoist__error_text());
	cr_expect_eq(manifest->tensors[0].offset, 10 + sizeof header - 1);
	hoist__manifest_destroy(manifest);
	bytes_free(&file);
}

Test(npy, other_dtypes_are_refused_by_name)
{
	static const struct {
		const char *descr;
		const char *text;
	} rows[] = {
		{"'>f4'", "m.npy: the dtype \">f4\" is big-endian; save .astype("},
		{"'>V2'", "the dtype \">V2\" is raw bytes"},
		{"'|V2'", "the dtype \"|V2\" is raw bytes"},
		{"'<V1'", "the dtype \"<V1\" is what NumPy leaves of any small dtype of ml_dtypes"},
		{"'|O'", "the dtype \"|O\" is Python objects"},
		{"'<U3'", "the dtype \"<U3\" is text"},
		{"'|S4'", "the dtype \"|S4\" is text"},
		{"'<M8[s]'", "the dtype \"<M8[s]\" is dates"},
		{"'<f16'", "the dtype \"<f16\" is none that hoist has"},
		{"'int4'", "the dtype \"int4\" is none that hoist has"},
		{"'float4_e2m1fn'", "is none that hoist has"},
		{"''", "the dtype \"\" is none that hoist has"},
		{"'<'", "the dtype \"<\" is none that hoist has"},
		{"'0123456789012345678901234567890123456789'", "is none that hoist has"},
		{"[('a', '<f4'), ('b', '<i8')]",
		 "a structured dtype, of several fields; save each"},
		{"('<f4', (2,))", "a structured dtype"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct bytes file = {.n = 0};
		char header[256];
		snprintf(header, sizeof header,
			 "{'descr': %s, 'fortran_order': False, 'shape': (2, 3), }", rows[i].descr);
		array_file(&file, 1, header, 96);
		expect_refused(&file, -ENOTSUP, rows[i].text);
	}
}

Test(npy, a_malformed_header_is_refused_with_its_byte)
{
	static const struct {
		const char *header;
		const char *text;
	} rows[] = {
		{"", "lacks '{' at its beginning (byte 10)"},
		{"[]", "lacks '{'"},
		{"{}", "lacks 'descr'"},
		{"{'descr': '<f4'}", "lacks 'fortran_order'"},
		{"{'descr': '<f4', 'fortran_order': False}", "lacks 'shape'"},
		{"{'descr': '<f4', 'descr': '<f4'}", "'descr' comes twice (byte 27)"},
		{"{'x': 1}", "the unknown key \"x\" (byte 11)"},
		{"{descr: '<f4'}", "no string for a key"},
		{"{'descr' '<f4'}", "lacks ':' behind a key"},
		{"{'descr': 4}", "no string for 'descr'"},
		{"{'descr': '<f4}", "no plain end"},
		{"{'descr': '<\\x664'}", "no plain end"},
		{"{'descr': '<f4' 'shape': ()}", "lacks a comma"},
		{"{'fortran_order': 0}", "neither True nor False (byte 28)"},
		{"{'fortran_order': true}", "neither True nor False"},
		{"{'fortran_order': Tru", "neither True nor False"},
		{"{'fortran_order': False", "lacks '}' at its end"},
		{"{'shape': 3}", "lacks '(' before the shape"},
		{"{'shape': (3)}", "a number, not a tuple"},
		{"{'shape': (3 4)}", "lacks a comma"},
		{"{'shape': (-3,)}", "an extent is no number from 0 on"},
		{"{'shape': (,)}", "an extent is no number from 0 on"},
		{"{'shape': (0x3,)}", "lacks a comma"},
		{"{'shape': (3,", "an extent is no number"},
		{"{'shape': (9223372036854775808,)}", "does not fit in 63 bits (byte 21)"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x", "something follows"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}}", "something follows"},
		{"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
		 "more elements than fit in 63 bits"},
		{"{'descr': '<f4', 'fortran_order': True, 'shape': (4294967296, 4294967296, 0)}",
		 "more elements than fit in 63 bits"},
		{"{'descr': '<f4', 'fortran_order': True, 'shape': (9223372036854775807,)}",
		 "do not fit in memory"},
	};
	struct bytes file = {.n = 0};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		array_file(&file, 1, rows[i].header, 4);
		expect_refused(&file, -EBADMSG, rows[i].text);
	}
	char header[512] = "{'shape': (1";
	for (int i = 0; i < 64; i++)
		strcat(header, ",1");
	array_file(&file, 1, strcat(header, ")}"), 4);
	expect_refused(&file, -EBADMSG, "more than 64 axes");
}

static const char four[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }\n";

Test(npy, a_file_ends_where_its_array_does)
{
	struct bytes file = {.n = 0};
	expect_refused(&file, -EBADMSG, "not an array of NumPy");
	put_text(&file, "\x93NUMPX\1");
	expect_refused(&file, -EBADMSG, "not an array of NumPy");
	array_file(&file, 4, four, 16);
	expect_refused(&file, -ENOTSUP, "version 4.0 of the format; 1.0, 2.0 and 3.0 are known");
	array_file(&file, 1, four, 15);
	expect_refused(&file, -EBADMSG,
		       "its array has 16 bytes, and 15 follow the header (byte 68)");
	array_file(&file, 1, four, 17);
	expect_refused(&file, -EBADMSG, "1 bytes follow its array of 16; numpy.savez keeps");
	array_file(&file, 1, four, 0);
	set_number(&file, 8, 59, 2);
	expect_refused(&file, -EBADMSG, "68 bytes are there, and it has 69");
	array_file(&file, 2, four, 0);
	set_number(&file, 8, UINT32_MAX, 4);
	expect_refused(&file, -EBADMSG, "it has 4294967307");
	array_file(&file, 2, four, 2 << 20);
	set_number(&file, 8, (1 << 20) + 1, 4);
	expect_refused(&file, -EBADMSG, "1048577 bytes, and 1048576 are the most (byte 8)");
}

/* Every byte changed to every value, and every length: never a crash; what is accepted is within
 * the file. */
Test(npy, no_byte_is_trusted)
{
	struct bytes file = {.n = 0};
	array_file(&file, 1, four, 16);
	size_t n = file.n;
	for (size_t at = 0; at < n - 16; at++) {
		unsigned char was = file.p[at];
		for (unsigned value = 0; value < 256; value++) {
			struct hoist__manifest *manifest = NULL;
			file.p[at] = (unsigned char)value;
			int err = parse(&file, &manifest);
			cr_assert(err == 0 || err == -EBADMSG || err == -ENOTSUP);
			if (err == 0)
				cr_assert_eq(manifest->tensors[0].offset +
						     manifest->tensors[0].bytes,
					     n);
			hoist__manifest_destroy(manifest);
		}
		file.p[at] = was;
	}
	cut_everywhere(&file, HOIST__NPY);
	bytes_free(&file);
}

/* --- .npz --- */

static size_t add_array(struct archive *archive, const char *name, const char *header, size_t n)
{
	struct bytes file = {.n = 0};
	array_file(&file, 1, header, n);
	size_t at = archive_add(archive, name, file.p, file.n) + file.n - n;
	bytes_free(&file);
	return at;
}

static int parse_archive(const struct archive *archive, struct hoist__manifest **ret)
{
	struct hoist__reader reader = reader_of(&archive->file, "m.npz");
	return hoist__npz_parse(&reader, ret);
}

static void expect_archive_refused(struct archive *archive, int code, const char *text)
{
	struct hoist__manifest *manifest = NULL;
	archive_end(archive, "");
	int err = parse_archive(archive, &manifest);
	expect_failed(err, manifest, code, text);
	archive_free(archive);
}

Test(npz, arrays_come_in_the_order_of_their_bytes)
{
	struct archive archive = {.zip64 = true};
	struct hoist__manifest *manifest = NULL;
	size_t z = add_array(&archive, "z/weight.npy", four, 16);
	archive_add(&archive, "notes.txt", "passed over", 11);
	size_t a = add_array(&archive, "a.npy",
			     "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2), }", 4);
	archive_end(&archive, "");
	cr_assert_eq(parse_archive(&archive, &manifest), 0, "%s", hoist__error_text());
	cr_assert_eq(manifest->n_tensors, 2);
	cr_expect_str_eq(manifest->tensors[0].name, "z/weight");
	cr_expect_eq(manifest->tensors[0].name_bytes, 8);
	cr_expect_eq(manifest->tensors[0].offset, z);
	cr_expect_eq(manifest->tensors[0].dtype, HOIST_F32);
	cr_expect_eq(manifest->data_offset, z);
	cr_expect_str_eq(manifest->tensors[1].name, "a");
	cr_expect_eq(manifest->tensors[1].offset, a);
	cr_expect_eq(manifest->tensors[1].strides[1], 2);
	hoist__manifest_destroy(manifest);
	archive_free(&archive);
}

Test(npz, an_archive_of_no_arrays_is_read_if_it_is_empty)
{
	struct archive archive = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	archive_end(&archive, "");
	cr_assert_eq(parse_archive(&archive, &manifest), 0, "%s", hoist__error_text());
	cr_expect_eq(manifest->n_tensors, 0);
	hoist__manifest_destroy(manifest);
	archive_free(&archive);
	archive_add(&archive, "word/document.xml", "<>", 2);
	archive_add(&archive, ".npy", "", 0);
	expect_archive_refused(&archive, -EBADMSG, "neither NumPy's (no entry ends in .npy) nor");
}

Test(npz, entries_that_are_no_arrays_are_refused_by_name)
{
	struct archive archive = {.method = 8};
	add_array(&archive, "a.npy", four, 16);
	expect_archive_refused(&archive, -ENOTSUP,
			       "m.npz: entry \"a.npy\" is compressed (method 8, deflate), and only "
			       "stored entries are read; numpy.savez writes such");
	add_array(&archive, "a.npy", four, 15);
	expect_archive_refused(&archive, -EBADMSG,
			       "m.npz: entry \"a.npy\": its array has 16 bytes, and 15 follow");
	add_array(&archive, "a.npy", four, 17);
	expect_archive_refused(&archive, -EBADMSG, "entry \"a.npy\": 1 bytes follow its array");
	archive_add(&archive, "a.npy", "", 0);
	expect_archive_refused(&archive, -EBADMSG, "entry \"a.npy\": not an array of NumPy");
	add_array(&archive, "b.npy", "{'descr': '|O', 'fortran_order': False, 'shape': ()}", 4);
	expect_archive_refused(&archive, -ENOTSUP, "entry \"b.npy\": the dtype \"|O\" is Python");
}
