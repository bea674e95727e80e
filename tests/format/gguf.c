/* SPDX-License-Identifier: MIT */
/* Reading GGUF: its types and rules, one by one.  The bytes are made here from the format's
 * description. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "tests/format/gguf-bytes.h"
#include "tests/support/format-expect.h"
#include "tests/support/locale.h"

#define HEAD(n_tensors, n_pairs) "GGUF" N4("\3") N8(n_tensors) N8(n_pairs)
/* A tensor of one f32 at 0. */
#define TENSOR(name) N8("\1") name N4("\1") N8("\1") N4("\0") N8("\0")

static struct hoist__manifest *parse(const void *content, size_t n)
{
	const struct bytes file = {.p = (unsigned char *)(uintptr_t)content, .n = n};
	struct hoist__manifest *manifest = NULL;
	cr_assert_eq(bytes_parse(&file, n, HOIST__GGUF, &manifest), 0, "%s", hoist_error());
	return manifest;
}

/* 131 bytes of header, data at 144 (alignment 16): b [3, 2] of f16 there, a [1] of i8 at 160. */
static const char small[] =
	HEAD("\2", "\1") N8("\21") "general.alignment" N4("\4") N4("\20") /* a pair: u32 16 */
	N8("\1") "a" N4("\1") N8("\1") N4("\30") N8("\20")		  /* a tensor */
	N8("\1") "b" N4("\2") N8("\2") N8("\3") N4("\1") N8("\0")	  /* another */
	"\0\0\0\0\0\0\0\0\0\0\0\0\0"					  /* up to 144 */
	"ABCDEFGHIJKL" N4("\0")						  /* b */
	"x";								  /* a */

Test(format_gguf, a_small_file)
{
	struct hoist__manifest *m = parse(small, sizeof small - 1);
	cr_assert_eq(m->n_tensors, 2);
	cr_expect_eq(m->data_offset % 16, 0);
	cr_expect_eq(m->data_offset, sizeof small - 1 - 17);
	/* In order of their bytes, extents outermost first. */
	const struct hoist__tensor *b = &m->tensors[0];
	cr_expect_str_eq(b->name, "b");
	cr_expect_eq(b->name_bytes, 1);
	cr_expect_eq(b->dtype, HOIST_F16);
	cr_expect_eq(b->rank, 2);
	cr_expect_eq(b->shape[0], 3);
	cr_expect_eq(b->shape[1], 2);
	cr_expect_null(b->strides);
	cr_expect_eq(b->bytes, 12);
	cr_expect_eq(b->offset, m->data_offset);
	const struct hoist__tensor *a = &m->tensors[1];
	cr_expect_str_eq(a->name, "a");
	cr_expect_eq(a->dtype, HOIST_I8);
	cr_expect_eq(a->offset, m->data_offset + 16);
	cr_assert_eq(m->n_metadata, 1);
	cr_expect_str_eq(value_of(m, "general.alignment"), "16");
	/* The pairs as they stand. */
	cr_expect_eq(m->n_raw_metadata, 1);
	cr_assert_eq(m->raw_metadata_bytes, 33);
	cr_expect_arr_eq(m->raw_metadata, small + 24, 33);
	hoist__manifest_destroy(m);
}

Test(format_gguf, version_2_is_read_alike)
{
	char two[sizeof small];
	memcpy(two, small, sizeof small);
	two[4] = 2;
	struct hoist__manifest *m = parse(two, sizeof small - 1);
	cr_expect_eq(m->n_tensors, 2);
	hoist__manifest_destroy(m);
}

/* --- values --- */

static const struct value {
	unsigned type;
	const char *bytes;
	size_t n;
	const char *text;
} values[] = {
#define VALUE(type, bytes, text)                                                                   \
	{                                                                                          \
		type, bytes, sizeof(bytes) - 1, text                                               \
	}
	VALUE(0, "\xff", "255"),
	VALUE(0, "\0", "0"),
	VALUE(1, "\x80", "-128"),
	VALUE(2, "\xff\xff", "65535"),
	VALUE(3, "\0\x80", "-32768"),
	VALUE(4, "\xff\xff\xff\xff", "4294967295"),
	VALUE(5, "\0\0\0\x80", "-2147483648"),
	VALUE(6, "\xac\xc5\x27\x37", "1e-05"),
	VALUE(6, "\0\x40\x1c\x46", "10000"),
	VALUE(6, "\xcd\xcc\xcc\x3d", "0.1"),
	VALUE(6, "\xff\xff\x7f\x7f", "3.4028235e+38"),
	VALUE(6, "\1\0\x80\x80", "-1.1754945e-38"),
	VALUE(6, "\0\0\0\x80", "-0"),
	VALUE(6, "\0\0\x80\x7f", "inf"),
	VALUE(6, "\0\0\x80\xff", "-inf"),
	VALUE(6, "\0\0\xc0\x7f", "nan"),
	VALUE(7, "\0", "false"),
	VALUE(7, "\1", "true"),
	VALUE(8, N8("\0"), ""),
	/* As it is, but for the NUL and the byte that is no UTF-8. */
	VALUE(8, N8("\12") "a\"\\\n\xc3\xa4\0\xff\1z",
	      "a\"\\\n\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\1z"),
	VALUE(10, "\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"),
	VALUE(11, "\0\0\0\0\0\0\0\x80", "-9223372036854775808"),
	VALUE(12, "\x18\x2d\x44\x54\xfb\x21\x09\x40", "3.141592653589793"),
	VALUE(12, "\xff\xff\xff\xff\xff\xff\xef\xff", "-1.7976931348623157e+308"),
	VALUE(9, N4("\4") N8("\0"), "[]"),
	VALUE(9, N4("\1") N8("\3") "\xff\0\1", "[-1,0,1]"),
	VALUE(9, N4("\7") N8("\2") "\1\0", "[true,false]"),
	VALUE(9, N4("\6") N8("\3") "\0\0\xc0\x7f\0\0\x80\x7f\0\0\x80\xc1", "[null,null,-16]"),
	VALUE(9, N4("\6") N8("\2") "\xff\xff\x7f\xff\1\0\x80\x80",
	      "[-3.40282347e+38,-1.17549449e-38]"),
	VALUE(9, N4("\14") N8("\1") "\x18\x2d\x44\x54\xfb\x21\x09\x40", "[3.1415926535897931]"),
	VALUE(9,
	      N4("\10") N8("\4") N8("\0")
		      N8("\1") "x" N8("\3") "\"\\\n" N8("\6") "\1\x1f\0\xff\t\r",
	      "[\"\",\"x\",\"\\\"\\\\\\n\",\"\\u0001\\u001f\xef\xbf\xbd\xef\xbf\xbd\\t\\r\"]"),
	VALUE(9, N4("\11") N8("\2") N4("\0") N8("\1") "\7" N4("\10") N8("\1") N8("\1") "y",
	      "[[7],[\"y\"]]"),
#undef VALUE
};

Test(format_gguf, every_type_of_value_as_text)
{
	const size_t n = sizeof values / sizeof values[0];
	struct bytes file = {.n = 0};
	begin_gguf(&file, 0, n);
	for (size_t i = 0; i < n; i++) {
		char key[16];
		snprintf(key, sizeof key, "k%zu", i);
		put_string(&file, key);
		put_number(&file, values[i].type, 4);
		put(&file, values[i].bytes, values[i].n);
	}
	struct hoist__manifest *m = parse(file.p, file.n);
	cr_assert_eq(m->n_metadata, n);
	for (size_t i = 0; i < n; i++)
		cr_expect_str_eq(m->metadata[i].value, values[i].text, "%zu: %s", i,
				 m->metadata[i].value);
	cr_expect_eq(m->raw_metadata_bytes, file.n - 24);
	hoist__manifest_destroy(m);
	bytes_free(&file);
}

/* --- types of tensors --- */

/* Where the program's decimal point has two bytes, with numbers that have no byte to spare. */
Test(format_gguf, the_locale_changes_nothing)
{
	char text[16];
	if (!locale_set("ps_AF"))
		cr_skip_test("no such locale can be made here");
	snprintf(text, sizeof text, "%.1f", 0.5);
	cr_assert_eq(strlen(text), 4, "%s", text);
	static const char content[] = HEAD("\0", "\2") N8("\1") "a" N4("\11") N4("\6")
		N8("\3") "\1\0\x80\x80\1\0\x80\x80\1\0\x80\x80" N8("\1") "b" N4(
			"\14") "\x18\x2d\x44\x54\xfb\x21\x09\x40";
	struct hoist__manifest *m = parse(content, sizeof content - 1);
	cr_expect_str_eq(value_of(m, "a"), "[-1.17549449e-38,-1.17549449e-38,-1.17549449e-38]");
	cr_expect_str_eq(value_of(m, "b"), "3.141592653589793");
	hoist__manifest_destroy(m);
}

/* A file of nothing but empty tensors need not be padded: nothing lies beyond its end. */
Test(format_gguf, empty_tensors_are_within_the_file)
{
	static const char content[] = HEAD("\1", "\1")
		N8("\21") "general.alignment" N4("\4") "\0\0\1\0" N8("\1") "t" N4("\1") N8("\0")
			N4("\0") N8("\0");
	struct hoist__manifest *m = parse(content, sizeof content - 1);
	cr_assert_eq(m->n_tensors, 1);
	cr_expect_eq(m->tensors[0].offset, sizeof content - 1);
	cr_expect_eq(m->tensors[0].bytes, 0);
	cr_expect_eq(m->data_offset, sizeof content - 1);
	hoist__manifest_destroy(m);
}

Test(format_gguf, every_type_of_the_table)
{
	for (int id = 0; id < 64; id++) {
		const hoist_dtype dtype = hoist__dtype_from_gguf(id);
		const struct hoist__dtype_info *info = hoist__dtype_info(dtype);
		const unsigned row = info != NULL ? info->block_elements * 2 : 2;
		struct bytes file = {.n = 0};
		struct hoist__manifest *m = NULL;
		begin_gguf(&file, 1, 0);
		put_string(&file, "t");
		put_number(&file, 2, 4);
		put_number(&file, row, 8);
		put_number(&file, 3, 8);
		put_number(&file, (uint64_t)id, 4);
		put_number(&file, 0, 8);
		put_zeros(&file, 96 - file.n);
		put_zeros(&file, 6 * (info != NULL ? info->block_bytes : 8));
		int err = bytes_parse(&file, file.n, HOIST__GGUF, &m);
		if (info == NULL) {
			char text[64];
			snprintf(text, sizeof text,
				 "f: tensor \"t\": its type %d is none that is known (byte 53)",
				 id);
			cr_expect_eq(err, -ENOTSUP, "%d", id);
			cr_expect_str_eq(hoist_error(), text);
		} else {
			cr_assert_eq(err, 0, "%d: %s", id, hoist_error());
			cr_expect_eq(m->tensors[0].dtype, dtype);
			cr_expect_eq(m->tensors[0].bytes, 6 * info->block_bytes);
			cr_expect_eq(m->tensors[0].shape[1], row);
			hoist__manifest_destroy(m);
		}
		bytes_free(&file);
	}
}

/* --- malformed files --- */

#define ONE_PAIR HEAD("\0", "\1") N8("\1") "k"
#define ONE_TENSOR HEAD("\1", "\0") N8("\1") "t"
#define ALIGNMENT HEAD("\0", "\1") N8("\21") "general.alignment"
#define CUT "the file is cut short: "
#define WRONG_ORDER                                                                                \
	"a big-endian GGUF file, which is not read; llama.cpp's gguf_convert_endian.py makes it "  \
	"little-endian (byte 4)"
#define PAIR_K "metadata \"k\": "
#define PAIR_ALIGNMENT "metadata \"general.alignment\": general.alignment is "
#define TENSOR_T "tensor \"t\": "
#define OVERFLOWS TENSOR_T "its shape overflows: its elements or its bytes do not fit in 63 bits "
#define BEYOND(place, held)                                                                        \
	TENSOR_T "its 4 bytes at offset " place " end beyond the file, which holds " held          \
		 " bytes of data; is it incomplete?"

static const struct refused {
	const char *content;
	size_t n;
	int err;
	const char *message; /* behind "f: " */
} refused[] = {
#define REFUSED(content, err, message)                                                             \
	{                                                                                          \
		content, sizeof(content) - 1, err, message                                         \
	}
	REFUSED("GGUF", -EBADMSG, CUT "the beginning needs 24 bytes, 4 are left (byte 0)"),
	REFUSED("GGUF" N4("\1") N8("\0") N8("\0"), -ENOTSUP,
		"version 1 of GGUF, whose counts have 32 bits; versions 2 and 3 are read: convert "
		"the model again (byte 4)"),
	REFUSED("GGUF" N4("\4") N8("\0") N8("\0"), -ENOTSUP,
		"version 4 of GGUF; versions 2 and 3 are read (byte 4)"),
	REFUSED("GGUF" N4("\0") N8("\0") N8("\0"), -EBADMSG,
		"version 0 of GGUF; versions 2 and 3 are read (byte 4)"),
	REFUSED("GGUF\0\0\0\3" N8("\0") N8("\0"), -ENOTSUP, WRONG_ORDER),
	REFUSED("FUGG\0\0\0\3" N8("\0") N8("\0"), -ENOTSUP, WRONG_ORDER),
	REFUSED("GGUF" N4("\3") "\xff\xff\xff\xff\xff\xff\xff\xff" N8("\0"), -EBADMSG,
		"the header says that there are 18446744073709551615 tensors, but 0 bytes are left "
		"for them (byte 8)"),
	REFUSED(HEAD("\0", "\2") "0123456789012345678901234", -EBADMSG,
		"the header says that there are 2 pairs of metadata, but 25 bytes are left for "
		"them (byte 16)"),
	/* pairs */
	REFUSED(HEAD("\0", "\1") N8("\xff") "0123456", -EBADMSG,
		CUT "a key of the metadata needs 255 bytes, 7 are left (byte 32)"),
	REFUSED(HEAD("\0", "\1") N8("\0") N4("\0") N4("\0"), -EBADMSG,
		"a key of the metadata is empty (byte 24)"),
	REFUSED(HEAD("\0", "\1") N8("\2") "a\0" N4("\0") "\0", -EBADMSG,
		"a key of the metadata is no text in UTF-8: byte 0x00 (byte 33)"),
	REFUSED(HEAD("\0", "\1") N8("\2") "\xffz" N4("\0") "\0", -EBADMSG,
		"a key of the metadata is no text in UTF-8: byte 0xff (byte 32)"),
	REFUSED(ONE_PAIR N4("\15") "\0", -EBADMSG,
		PAIR_K "the type of a value is 13; the types are 0 to 12 (byte 33)"),
	REFUSED(ONE_PAIR N4("\14") "\0", -EBADMSG,
		PAIR_K CUT "a value needs 8 bytes, 1 are left (byte 37)"),
	REFUSED(ONE_PAIR N4("\7") "\2", -EBADMSG,
		PAIR_K "a value of type bool is 2, neither 0 nor 1 (byte 37)"),
	REFUSED(ONE_PAIR N4("\10") N8("\5") "abc", -EBADMSG,
		PAIR_K CUT "a string needs 5 bytes, 3 are left (byte 45)"),
	REFUSED(ONE_PAIR N4("\11") N4("\15") N8("\0"), -EBADMSG,
		PAIR_K "the type of an array's elements is 13; the types are 0 to 12 (byte 37)"),
	REFUSED(ONE_PAIR N4("\11") N4("\12") "\1\0\0\0\0\0\0\x20"
					     "01234567",
		-EBADMSG,
		PAIR_K "an array says that it has 2305843009213693953 elements of type u64, but 8 "
		       "bytes are left for them (byte 41)"),
	REFUSED(ONE_PAIR N4("\11") N4("\7") N8("\2") "\1\3", -EBADMSG,
		PAIR_K "a value of type bool is 3, neither 0 nor 1 (byte 50)"),
	REFUSED(HEAD("\0", "\2") N8("\1") "k" N4("\0") "\0" N8("\1") "k" N4("\1") "\0", -EBADMSG,
		"metadata: the key \"k\" comes twice (byte 38)"),
	REFUSED(ALIGNMENT N4("\12") N8("\40"), -EBADMSG,
		PAIR_ALIGNMENT "of type u64, not u32 (byte 53)"),
	REFUSED(ALIGNMENT N4("\4") N4("\60"), -EBADMSG,
		PAIR_ALIGNMENT "48, not a power of two (byte 53)"),
	REFUSED(ALIGNMENT N4("\4") N4("\0"), -EBADMSG,
		PAIR_ALIGNMENT "0, not a power of two (byte 53)"),
	/* tensors */
	REFUSED(HEAD("\1", "\0") N8("\0") N4("\1") N8("\1") N4("\0") N8("\0"), -EBADMSG,
		"a tensor's name is empty (byte 24)"),
	REFUSED(ONE_TENSOR N4("\101") N8("\0") N8("\0"), -EBADMSG,
		TENSOR_T "rank 65 is above 64 (byte 33)"),
	REFUSED(ONE_TENSOR N4("\2") N8("\1") N4("\0"), -EBADMSG,
		TENSOR_T CUT "an extent of a tensor needs 8 bytes, 4 are left (byte 45)"),
	REFUSED(ONE_TENSOR N4("\1") "\0\0\0\0\0\0\0\x80" N4("\0") N8("\0"), -EBADMSG,
		TENSOR_T "the extent 9223372036854775808 does not fit in 63 bits (byte 37)"),
	REFUSED(ONE_TENSOR N4("\1") "\0\0\0\0\0\0\0\x40" N4("\0") N8("\0"), -EBADMSG,
		OVERFLOWS "(byte 45)"),
	REFUSED(ONE_TENSOR N4("\2") "\0\0\0\0\0\0\0\x40" N8("\2") N4("\0") N8("\0"), -EBADMSG,
		OVERFLOWS "(byte 53)"),
	/* An empty one has strides, too. */
	REFUSED(ONE_TENSOR N4("\3") "\0\0\0\0\0\0\0\x40" N8("\2") N8("\0") N4("\0") N8("\0"),
		-EBADMSG, OVERFLOWS "(byte 61)"),
	REFUSED(ONE_TENSOR N4("\2") N8("\20") N8("\2") N4("\2") N8("\0"), -EBADMSG,
		TENSOR_T
		"its rows of 16 elements are not whole blocks of 32, as q4_0 has them (byte 53)"),
	REFUSED(ONE_TENSOR N4("\0") N4("\2") N8("\0"), -EBADMSG,
		TENSOR_T
		"its rows of 1 elements are not whole blocks of 32, as q4_0 has them (byte 37)"),
	REFUSED(ONE_TENSOR N4("\1") N8("\1") N4("\4") N8("\0"), -ENOTSUP,
		TENSOR_T "its type 4 is none that is known (byte 45)"),
	REFUSED(ONE_TENSOR N4("\1") N8("\1") "\xff\xff\xff\xff" N8("\0"), -ENOTSUP,
		TENSOR_T "its type 4294967295 is none that is known (byte 45)"),
	REFUSED(ONE_TENSOR N4("\1") N8("\1") N4("\0") N8("\10"), -EBADMSG,
		TENSOR_T "its offset 8 is not a multiple of the alignment, 32 (byte 49)"),
	REFUSED(HEAD("\1", "\0") TENSOR("t"), -EBADMSG, BEYOND("0", "0")),
	REFUSED(HEAD("\1", "\0") TENSOR("t") "\0\0\0\0\0\0\0ABC", -EBADMSG, BEYOND("0", "3")),
	REFUSED(ONE_TENSOR N4("\1") N8("\1") N4("\0") "\340\377\377\377\377\377\377\377"
						      "\0\0\0\0\0\0\0ABCD",
		-EBADMSG, BEYOND("18446744073709551584", "4")),
	REFUSED(HEAD("\2", "\0") TENSOR("t") TENSOR("u") "\0\0\0\0\0\0ABCD", -EBADMSG,
		"tensor \"u\" begins at 96, within the one before it, which ends at 100"),
	REFUSED(HEAD("\2", "\0") TENSOR("t") N8("\1") "t" N4("\1") N8("\0") N4("\0")
			N8("\0") "\0\0\0\0\0\0ABCD",
		-EBADMSG, "two tensors are called \"t\""),
#undef REFUSED
};

Test(format_gguf, a_malformed_file_is_refused)
{
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		const struct bytes file = {.p = (unsigned char *)(uintptr_t)refused[i].content,
					   .n = refused[i].n};
		struct hoist__manifest *m = NULL;
		int err = bytes_parse(&file, file.n, HOIST__GGUF, &m);
		cr_expect_eq(err, refused[i].err, "%zu: %d: %s", i, err, refused[i].message);
		cr_expect_null(m, "%zu: the result was touched", i);
		cr_expect_str_eq(hoist_error() + 3, refused[i].message, "%zu", i);
	}
}

Test(format_gguf, arrays_are_nested_at_most_16_deep)
{
	for (int depth = 16; depth <= 17; depth++) {
		struct bytes file = {.n = 0};
		struct hoist__manifest *m = NULL;
		begin_gguf(&file, 0, 1);
		put_string(&file, "k");
		put_number(&file, 9, 4);
		for (int i = 1; i < depth; i++) {
			put_number(&file, 9, 4);
			put_number(&file, 1, 8);
		}
		put_number(&file, 0, 4);
		put_number(&file, 0, 8);
		int err = bytes_parse(&file, file.n, HOIST__GGUF, &m);
		cr_expect_eq(err, depth == 16 ? 0 : -EBADMSG);
		if (err == 0)
			cr_expect_str_eq(m->metadata[0].value, "[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]");
		else
			cr_expect_str_eq(hoist_error(),
					 "f: metadata \"k\": arrays are nested more than 16 deep "
					 "(byte 229)");
		hoist__manifest_destroy(m);
		bytes_free(&file);
	}
}

Test(format_gguf, no_truncation_passes)
{
	const struct bytes file = {.p = (unsigned char *)(uintptr_t)small, .n = sizeof small - 1};
	cut_everywhere(&file, HOIST__GGUF);
}

/* A file with a bit of everything, one byte of which is another. */
Test(format_gguf, any_changed_byte_is_read_or_refused)
{
	struct bytes file = {.n = 0};
	begin_gguf(&file, 2, 4);
	for (size_t i = 0; i < 2; i++) {
		const struct value *value = &values[sizeof values / sizeof values[0] - 1 - i];
		put_string(&file, i == 0 ? "nested" : "strings");
		put_number(&file, value->type, 4);
		put(&file, value->bytes, value->n);
	}
	put_string(&file, "general.name");
	put_number(&file, 8, 4);
	put_string(&file, "x");
	put(&file, small + 24, 107); /* the pair and the tensors of the small file */
	put_zeros(&file, 512 - file.n);
	spoil_each_byte(&file, 0, 300, 1, HOIST__GGUF);
	spoil_each_byte(&file, 300, file.n, 85, HOIST__GGUF);
	bytes_free(&file);
}

/* --- reading in pieces --- */

static void big_header(struct bytes *file, unsigned n_strings)
{
	begin_gguf(file, 1, 2);
	put_string(file, "tokens");
	put_number(file, 9, 4);
	put_number(file, 8, 4);
	put_number(file, n_strings, 8);
	for (unsigned i = 0; i < n_strings; i++) {
		char text[16];
		snprintf(text, sizeof text, "%u", i);
		put_string(file, text);
	}
	put_string(file, "last");
	put_number(file, 0, 4);
	put_number(file, 7, 1);
	put_string(file, "t");
	put_number(file, 1, 4);
	put_number(file, 1 << 20, 8);
	put_number(file, 0, 4);
	put_number(file, 0, 8);
	put_zeros(file, (32 - file->n % 32) % 32);
}

Test(format_gguf, a_long_header_is_read_in_pieces_and_tensors_are_not)
{
	struct bytes file = {.n = 0};
	struct hoist__manifest *m = NULL;
	big_header(&file, 100000);
	const size_t header = file.n;
	put_zeros(&file, 4 << 20);
	const struct hoist__reader reader = reader_of(&file, "f");
	cr_assert_eq(hoist__gguf_parse(&reader, &m), 0, "%s", hoist_error());
	cr_expect_eq(m->data_offset, header);
	cr_expect_leq(file.read, 2 * header);
	cr_expect_str_eq(m->metadata[1].value, "7");
	const char *tokens = m->metadata[0].value;
	cr_expect_eq(strncmp(tokens, "[\"0\",\"1\",\"2\",", 13), 0);
	cr_expect_str_eq(tokens + strlen(tokens) - 16, "\"99998\",\"99999\"]");
	hoist__manifest_destroy(m);

	/* Each read fails once. */
	int reads = 0;
	int err = -EIO;
	for (; err == -EIO; reads++) {
		m = NULL;
		file.fail_at = reads + 1;
		err = hoist__gguf_parse(&reader, &m);
		cr_assert(err == 0 || (err == -EIO && m == NULL));
	}
	cr_expect_eq(err, 0);
	cr_expect_gt(reads, 3);
	hoist__manifest_destroy(m);
	bytes_free(&file);
}

/* The limit, without a file of that size: zeros are empty strings. */
static int read_zeros(void *context, uint64_t offset, void *buffer, size_t bytes)
{
	const struct bytes *start = context;
	memset(buffer, 0, bytes);
	if (offset < start->n)
		memcpy(buffer, start->p + offset,
		       bytes < start->n - offset ? bytes : start->n - offset);
	return 0;
}

Test(format_gguf, an_endless_header_is_refused_before_it_is_read)
{
	struct bytes file = {.n = 0};
	struct hoist__manifest *m = NULL;
	begin_gguf(&file, 0, 1);
	put_string(&file, "k");
	put_number(&file, 9, 4);
	put_number(&file, 0, 4);
	put_number(&file, UINT64_C(1) << 30, 8);
	const struct hoist__reader reader = {
		.name = "f", .bytes = UINT64_C(1) << 40, .read = read_zeros, .context = &file};
	cr_expect_eq(hoist__gguf_parse(&reader, &m), -EBADMSG);
	cr_expect_str_eq(hoist_error(),
			 "f: metadata \"k\": a value needs 1073741824 bytes, and the "
			 "header is then longer than 268435456 (byte 49)");
	cr_expect_null(m);
	bytes_free(&file);
}
