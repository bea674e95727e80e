/* SPDX-License-Identifier: MIT */
/* Plain values that Python saves as calls: dicts of a class, bytes, NumPy's scalars. */
#include "config.h"

#include <criterion/criterion.h>

#include "tests/format/pickles.h"

#define TEXT2(text) "X\2\0\0\0" text
#define LATIN1 "X\6\0\0\0latin1"
#define ENCODE GLOBAL("_codecs", "encode")
#define SCALAR_OF GLOBAL("numpy.core.multiarray", "scalar")
#define DTYPE(name, order)                                                                         \
	GLOBAL("numpy", "dtype") TEXT2(name) "\x89\x88\x87R(K\3" ONE(order) "NNNK\0K\0K\0tb"
/* A scalar of protocol 4, whose bytes are @n, an escape, and then @bytes. */
#define SCALAR(name, order, n, bytes) SCALAR_OF DTYPE(name, order) "C" n bytes "\x86R"

/* Reads {"w": VALUE}, and compares the text of the metadata "w"; NULL: there is none. */
static void reads_as(const void *pickle, size_t n, const char *text)
{
	struct hoist__manifest *manifest = NULL;
	cr_assert_eq(parse_pickle(pickle, n, &manifest, NULL), 0, "%s", hoist__error_text());
	cr_expect_eq(manifest->n_tensors, 0);
	cr_expect_eq(manifest->n_skipped, 0);
	cr_assert_eq(manifest->n_metadata, text != NULL, "%s", text != NULL ? text : "(none)");
	if (text != NULL)
		cr_expect_str_eq(manifest->metadata[0].value, text);
	hoist__manifest_destroy(manifest);
}

#define READS_AS(value, text) reads_as(BEGIN value END, sizeof(BEGIN value END) - 1, text)

Test(torch_plain, numpys_scalars_are_numbers)
{
	READS_AS(SCALAR("b1", "|", "\1", "\1"), "True");
	READS_AS(SCALAR("i1", "|", "\1", "\xff"), "-1");
	READS_AS(SCALAR("i2", "<", "\2", "\0\1"), "256");
	READS_AS(SCALAR("i4", ">", "\4", "\0\0\1\0"), "256");
	READS_AS(SCALAR("i8", "<", "\x8", "\xfe\xff\xff\xff\xff\xff\xff\xff"), "-2");
	READS_AS(SCALAR("u8", "<", "\x8", "\7\0\0\0\0\0\0\0"), "7");
	READS_AS(SCALAR("f2", "<", "\2", "\0\x3e"), "1.5");
	READS_AS(SCALAR("f4", "<", "\4", "\xcd\xcc\xcc\x3d"), "0.1");
	READS_AS(SCALAR("f8", ">", "\x8", "\x3f\xb9\x99\x99\x99\x99\x99\x9a"), "0.1");
	READS_AS(GLOBAL("numpy._core.multiarray", "scalar") DTYPE("i1", "|") "C\1\5\x86R", "5");
	/* Above 63 bits; a text; a date. */
	READS_AS(SCALAR("u8", "<", "\x8", "\xff\xff\xff\xff\xff\xff\xff\xff"), NULL);
	READS_AS(SCALAR("U1", "<", "\4", "x\0\0\0"), NULL);
	READS_AS(SCALAR("M8", "<", "\1", "x"), NULL);
	/* Protocol 2 makes bytes of a text. */
	READS_AS(SCALAR_OF DTYPE("i2", "<") ENCODE "X\3\0\0\0\xc3\xbf\1" LATIN1 "\x86R\x86R",
		 "511");
}

Test(torch_plain, scalars_that_do_not_add_up_are_refused)
{
	MALFORMED(PROTOCOL SCALAR_OF ")R.", "a NumPy scalar is not made of a dtype");
	MALFORMED(PROTOCOL SCALAR_OF "K\1C\1x\x86R.", "a NumPy scalar is not made of a dtype");
	MALFORMED(PROTOCOL SCALAR("i4", "<", "\3", "123") ".", "a NumPy scalar of 4 bytes");
	MALFORMED(PROTOCOL SCALAR_OF DTYPE("i1", "|") ONE("x") "\x86R.", "a NumPy scalar of 1");
	MALFORMED(PROTOCOL GLOBAL("numpy", "dtype") ")R.", "a NumPy dtype is not made of a name");
	MALFORMED(PROTOCOL GLOBAL("numpy", "dtype") TEXT2("i1") "\x85R}b.", "has no byte order");
	MALFORMED(PROTOCOL ENCODE ONE("x") "\x85R.", "bytes are not made of a text in latin1");
	MALFORMED(PROTOCOL ENCODE ONE("x") ONE("y") "\x86R.", "bytes are not made of a text");
	MALFORMED(PROTOCOL ENCODE TEXT2("\xc4\x80") LATIN1 "\x86R.", "bytes are no text in latin1");
	MALFORMED(PROTOCOL ENCODE ONE("\xc3") LATIN1 "\x86R.", "bytes are no text in latin1");
}

/* A dtype's state comes after its place in the memo, and counts for those that get it from there.
 */
Test(torch_plain, a_dtype_in_the_memo_gets_its_byte_order)
{
	static const char pickle[] = PROTOCOL "}(" ONE("v") SCALAR_OF GLOBAL("numpy", "dtype")
		TEXT2("i2") "\x85Rq\0(K\3" ONE(">") "tbC\2\0\5\x86R" ONE("w") SCALAR_OF
		"h\0C\2\0\7\x86Ru.";
	struct hoist__manifest *manifest = NULL;
	cr_assert_eq(parse_pickle(pickle, sizeof pickle - 1, &manifest, NULL), 0);
	cr_assert_eq(manifest->n_metadata, 2);
	cr_expect_str_eq(manifest->metadata[0].value, "5");
	cr_expect_str_eq(manifest->metadata[1].value, "7");
	hoist__manifest_destroy(manifest);
}

/* {"w": a dict with {"x": 5}} of each kind. */
Test(torch_plain, dicts_of_a_class_are_dicts)
{
	READS_AS(GLOBAL("collections", "defaultdict") ")R" ONE("x") "K\5s", "5");
	READS_AS(GLOBAL("collections", "defaultdict")
			 GLOBAL("__builtin__", "long") "\x85R" ONE("x") "K\5s",
		 "5");
	READS_AS(GLOBAL("collections", "Counter") "}" ONE("x") "K\5s\x85R", "5");
	READS_AS(GLOBAL("argparse", "Namespace") ")\x81}" ONE("x") "K\5sb", "5");
	READS_AS(GLOBAL("types", "SimpleNamespace") ")R}" ONE("x") "K\5sb", "5");
	MALFORMED(PROTOCOL GLOBAL("collections", "defaultdict") "NN\x86R.", "made of 2 arguments");
	MALFORMED(PROTOCOL GLOBAL("collections", "Counter") ")R.",
		  "a Counter is not made of a dict");
	MALFORMED(PROTOCOL GLOBAL("argparse", "Namespace") "N\x85\x81.", "made of 1 arguments");
	MALFORMED(PROTOCOL "N)\x81.", "NEWOBJ makes an object of no class");
	UNSUPPORTED(PROTOCOL GLOBAL("torch", "Size") ")\x81.", "an object of a class of tensors");
	UNSUPPORTED(PROTOCOL GLOBAL("argparse", "Namespace") ")}\x92.", "arguments with names");
}

Test(torch_plain, other_plain_values_are_passed_over)
{
	READS_AS("B\1\0\0\0x", NULL);
	READS_AS("\x8e\1\0\0\0\0\0\0\0x", NULL);
	READS_AS("\x96\1\0\0\0\0\0\0\0x", NULL);
	READS_AS(GLOBAL("builtins", "bytearray") "C\1x\x85R", NULL);
	READS_AS(GLOBAL("builtins", "complex") "K\1K\2\x86R", NULL);
	READS_AS(GLOBAL("builtins", "int"), NULL);
	READS_AS(DTYPE("f4", "<"), NULL);
}

Test(torch_plain, long_forms_of_plain_values_are_read)
{
	READS_AS("\x8b\1\0\0\0\7", "7");
	READS_AS("\x8d\1\0\0\0\0\0\0\0x", "x");
}
