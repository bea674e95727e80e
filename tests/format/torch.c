/* SPDX-License-Identifier: MIT */
/* PyTorch's checkpoints, made here instruction by instruction: what becomes of tensors, and why
 * everything else is refused.  Files that PyTorch wrote are read by format_zip_real.c. */
#include "config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tests/support/format-archive.h"
#include "format/torch.h"

/* Pieces of pickles.  A text of one character; of more: its length comes first. */
#define ONE(c) "X\1\0\0\0" c
#define CPU "X\3\0\0\0cpu"
#define STORAGE_OF(module, class, key, count)                                                      \
	"(X\7\0\0\0storagec" module "\n" class "\n" ONE(key) CPU count "tQ"
#define STORAGE(class, count) STORAGE_OF("torch", class, "0", count)
#define V2 "ctorch._utils\n_rebuild_tensor_v2\n"
#define V3 "ctorch._utils\n_rebuild_tensor_v3\n"
#define HOOKS                                                                                      \
	"\x89"                                                                                     \
	"ccollections\nOrderedDict\n)R"
/* Two by three elements of storage 0, which has at least six. */
#define TWO_BY_THREE                                                                               \
	"K\0"                                                                                      \
	"K\2K\3\x86"                                                                               \
	"K\3K\1\x86" HOOKS
#define TENSOR V2 "(" STORAGE("FloatStorage", "K\6") TWO_BY_THREE "tR"
/* {"w": ...} */
#define BEGIN "\x80\2}" ONE("w")
#define END "s."

struct model {
	struct archive archive;
	size_t at; /* of the bytes of storage 0 */
};

static void model_begin(struct model *model, const void *pickle, size_t n)
{
	*model = (struct model){.archive = {.align = 64, .descriptors = true, .flags = 0x800}};
	archive_add(&model->archive, "m/data.pkl", pickle, n);
	model->at = archive_add(&model->archive, "m/data/0", "0123456789abcdefghijklmn", 24);
}

static int parse(const struct archive *archive, struct hoist__manifest **ret)
{
	struct hoist__reader reader = reader_of(&archive->file, "m.pt");
	return hoist__torch_parse(&reader, ret);
}

static int parse_pickle(const void *pickle, size_t n, struct hoist__manifest **ret, size_t *at)
{
	struct model model;
	model_begin(&model, pickle, n);
	archive_end(&model.archive, "");
	int err = parse(&model.archive, ret);
	if (at != NULL)
		*at = model.at;
	archive_free(&model.archive);
	return err;
}

static void expect_text(const char *text)
{
	cr_expect_not_null(strstr(hoist__error_text(), text), "\"%s\" lacks \"%s\"",
			   hoist__error_text(), text);
}

static void refused(const void *pickle, size_t n, int code, const char *text)
{
	struct hoist__manifest *manifest = NULL;
	cr_expect_eq(parse_pickle(pickle, n, &manifest, NULL), code, "%s", text);
	cr_expect_null(manifest);
	expect_text(text);
}

#define REFUSED(pickle, code, text) refused(pickle, sizeof(pickle) - 1, code, text)

static struct hoist__manifest *accepted(const void *pickle, size_t n, size_t *at)
{
	struct hoist__manifest *manifest = NULL;
	cr_assert_eq(parse_pickle(pickle, n, &manifest, at), 0, "%s", hoist__error_text());
	return manifest;
}

#define ACCEPTED(pickle, at) accepted(pickle, sizeof(pickle) - 1, at)

static void expect_one(const void *pickle, size_t n, const char *name, hoist_dtype dtype,
		       uint64_t offset, uint64_t bytes)
{
	size_t at = 0;
	struct hoist__manifest *manifest = accepted(pickle, n, &at);
	cr_assert_eq(manifest->n_tensors, 1);
	cr_expect_str_eq(manifest->tensors[0].name, name);
	cr_expect_eq(manifest->tensors[0].name_bytes, strlen(name));
	cr_expect_eq(manifest->tensors[0].dtype, dtype, "%s", name);
	cr_expect_eq(manifest->tensors[0].offset, at + offset, "%s", name);
	cr_expect_eq(manifest->tensors[0].bytes, bytes, "%s", name);
	hoist__manifest_destroy(manifest);
}

#define EXPECT_ONE(pickle, name, dtype, offset, bytes)                                             \
	expect_one(pickle, sizeof(pickle) - 1, name, dtype, offset, bytes)

/* As torch 2.1 and later lay it out. */
Test(torch, the_files_beside_the_pickle_are_known)
{
	static const char pickle[] = BEGIN TENSOR END;
	struct hoist__manifest *manifest = NULL;
	for (int zip64 = 0; zip64 < 2; zip64++) {
		struct archive archive = {.align = 64, .zip64 = zip64, .flags = 0x800};
		archive_add(&archive, "model/data.pkl", pickle, sizeof pickle - 1);
		archive_add(&archive, "model/.format_version", "1", 1);
		archive_add(&archive, "model/.storage_alignment", "64", 2);
		archive_add(&archive, "model/byteorder", "little", 6);
		size_t at = archive_add(&archive, "model/data/0", "0123456789abcdefghijklmn", 24);
		archive_add(&archive, "model/version", "3\n", 2);
		archive_add(&archive, "model/.data/serialization_id", "0123456789", 10);
		archive_end(&archive, "");
		cr_assert_eq(parse(&archive, &manifest), 0, "%s", hoist__error_text());
		cr_assert_eq(manifest->n_tensors, 1);
		cr_expect_str_eq(manifest->tensors[0].name, "w");
		cr_expect_eq(manifest->tensors[0].rank, 2);
		cr_expect_eq(manifest->tensors[0].shape[1], 3);
		cr_expect_null(manifest->tensors[0].strides);
		cr_expect_eq(manifest->tensors[0].offset, at);
		cr_expect_eq(manifest->data_offset, at);
		hoist__manifest_destroy(manifest);
		archive_free(&archive);
	}
}

#define ONE_ELEMENT                                                                                \
	"K\0"                                                                                      \
	"K\1\x85K\1\x85" HOOKS
#define OF_CLASS(class) BEGIN V2 "(" STORAGE(class, "K\1") ONE_ELEMENT "tR" END
#define OF_DTYPE(dtype, count)                                                                     \
	BEGIN V3 "(" STORAGE_OF("torch.storage", "UntypedStorage", "0", count) ONE_ELEMENT         \
		"ctorch\n" dtype "\ntR" END

Test(torch, every_storage_and_dtype_is_read)
{
	EXPECT_ONE(OF_CLASS("FloatStorage"), "w", HOIST_F32, 0, 4);
	EXPECT_ONE(OF_CLASS("HalfStorage"), "w", HOIST_F16, 0, 2);
	EXPECT_ONE(OF_CLASS("BFloat16Storage"), "w", HOIST_BF16, 0, 2);
	EXPECT_ONE(OF_CLASS("DoubleStorage"), "w", HOIST_F64, 0, 8);
	EXPECT_ONE(OF_CLASS("LongStorage"), "w", HOIST_I64, 0, 8);
	EXPECT_ONE(OF_CLASS("IntStorage"), "w", HOIST_I32, 0, 4);
	EXPECT_ONE(OF_CLASS("ShortStorage"), "w", HOIST_I16, 0, 2);
	EXPECT_ONE(OF_CLASS("CharStorage"), "w", HOIST_I8, 0, 1);
	EXPECT_ONE(OF_CLASS("ByteStorage"), "w", HOIST_U8, 0, 1);
	EXPECT_ONE(OF_CLASS("BoolStorage"), "w", HOIST_BOOL, 0, 1);
	EXPECT_ONE(OF_CLASS("ComplexFloatStorage"), "w", HOIST_C64, 0, 8);
	EXPECT_ONE(OF_CLASS("ComplexDoubleStorage"), "w", HOIST_C128, 0, 16);
	EXPECT_ONE(OF_CLASS("UntypedStorage"), "w", HOIST_U8, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e4m3fn", "K\1"), "w", HOIST_F8_E4M3FN, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e5m2", "K\1"), "w", HOIST_F8_E5M2, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e4m3fnuz", "K\1"), "w", HOIST_F8_E4M3FNUZ, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e5m2fnuz", "K\1"), "w", HOIST_F8_E5M2FNUZ, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e8m0fnu", "K\1"), "w", HOIST_F8_E8M0FNU, 0, 1);
	EXPECT_ONE(OF_DTYPE("uint16", "K\2"), "w", HOIST_U16, 0, 2);
	EXPECT_ONE(OF_DTYPE("uint64", "K\10"), "w", HOIST_U64, 0, 8);
	REFUSED(OF_DTYPE("uint16", "K\1"), -EBADMSG,
		"tensor \"w\": storage \"0\" has 1 bytes, and the tensor needs 2 from element 0 "
		"on");
	REFUSED(OF_DTYPE("float4_e2m1fn_x2", "K\1"), -ENOTSUP,
		"the pickle names \"float4_e2m1fn_x2\" of the Python module \"torch\"");
	REFUSED(OF_CLASS("QInt8Storage"), -ENOTSUP, "the pickle names \"QInt8Storage\"");
}

/* Parameters and attributes are wrappers that are taken off. */
Test(torch, wrapped_tensors_are_tensors)
{
	EXPECT_ONE(BEGIN "ctorch._utils\n_rebuild_parameter\n(" TENSOR HOOKS "tR" END, "w",
		   HOIST_F32, 0, 24);
	EXPECT_ONE(BEGIN "ctorch._utils\n_rebuild_parameter_with_state\n(" TENSOR HOOKS "}tR" END,
		   "w", HOIST_F32, 0, 24);
	EXPECT_ONE(BEGIN "ctorch._tensor\n_rebuild_from_type_v2\n(" V2
			 "ctorch.nn.parameter\nParameter\n(" STORAGE("FloatStorage", "K\6")
				 TWO_BY_THREE "t}tR" END,
		   "w", HOIST_F32, 0, 24);
	EXPECT_ONE(BEGIN V2 "(" STORAGE("FloatStorage", "K\6") TWO_BY_THREE "}tR" END, "w",
		   HOIST_F32, 0, 24);
	EXPECT_ONE(BEGIN V2 "(" STORAGE("FloatStorage", "K\6") TWO_BY_THREE "}X\4\0\0\0conj\x89s"
									    "tR" END,
		   "w", HOIST_F32, 0, 24);
	REFUSED(BEGIN V2 "(" STORAGE("FloatStorage", "K\6") TWO_BY_THREE "}X\4\0\0\0conj\x88s"
									 "tR" END,
		-ENOTSUP, "is the conjugate or the negative of its bytes; save .resolve_conj()");
	REFUSED(BEGIN "ctorch._utils\n_rebuild_parameter\n(K\1" HOOKS "tR" END, -EBADMSG,
		"a parameter is not made of a tensor");
	REFUSED(BEGIN
		"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nSize\nctorch\nTensor\n)}tR" END,
		-EBADMSG, "a tensor with attributes is not made of a tensor");
}

/* --- names and metadata --- */

Test(torch, names_are_keys_and_indices)
{
	static const char pickle[] = "\x80\4\x95\x10\0\0\0\0\0\0\0}(" /* a dict */
				     "\x8c\1a\x94]\x94(" TENSOR "\x94"
				     ")h\2\x85"
				     "e" /* "a": [w, (), (w,)] */
				     "K\x05}J\xff\xff\xff\xff"
				     "h\2s"		  /* 5: {-1: w} */
				     "\x8c\0}\x8c\1xh\2s" /* "": {"x": w} */
				     "u.";
	static const char *const names[] = {"a.0", "a.2.0", "5.-1", ".x"};
	struct hoist__manifest *manifest = ACCEPTED(pickle, NULL);
	cr_assert_eq(manifest->n_tensors, 4);
	for (size_t i = 0; i < 4; i++)
		cr_expect_str_eq(manifest->tensors[i].name, names[i]);
	hoist__manifest_destroy(manifest);
}

Test(torch, names_that_no_tensor_can_have_are_refused)
{
	REFUSED("\x80\2}X\0\0\0\0" TENSOR END, -EBADMSG, "or is empty");
	REFUSED("\x80\2}N" TENSOR END, -EBADMSG,
		"a tensor whose key is neither text nor an integer");
	REFUSED("\x80\2}K\1\x85}" ONE("x") TENSOR "s" END, -EBADMSG, "neither text nor an integer");
	REFUSED("\x80\2}" ONE("\xff") TENSOR END, -EBADMSG, "no text in UTF-8");
	REFUSED("\x80\2}" ONE("\0") TENSOR END, -EBADMSG, "no text in UTF-8");
	REFUSED("\x80\2}(" ONE("w") TENSOR ONE("w") TENSOR "u.", -EBADMSG,
		"two tensors are called \"w\"");
	REFUSED("\x80\2}(X\3\0\0\0a.b" TENSOR ONE("a") "}" ONE("b") TENSOR "su.", -EBADMSG,
		"two tensors are called \"a.b\"");
}

/* What is not plain, has no name of texts, or is no C string is passed over. */
Test(torch, plain_values_are_metadata)
{
	static const char pickle[] = "\x80\2}(" ONE("i") "K\7" ONE("n") "\x8a\2\0\x80" /* -32768 */
		ONE("b") "\x8a\x09\0\0\0\0\0\0\0\0\1" ONE(
			"f") "G\x3f\xb9\x99\x99\x99\x99\x99"
			     "\x9a" ONE("t") "\x88" ONE("s") "X\2\0\0\0\xc3\xa9" ONE("0") ONE(
				     "\0") ONE("u")
				     ONE("\xff") "K\1"
						 "K\2"
						 "NK\2" ONE("l") "](K\1K\2e" ONE("d") "}" ONE("e") "M\0\1s" ONE(
							 "v") "ct"
							      "or"
							      "ch"
							      "\n"
							      "de"
							      "vi"
							      "ce"
							      "\n" ONE("c") "\x85R" ONE(
								      "z") "ctorch\nSize\n)"
									   "\x85R" ONE("y") "ctorch"
											    "\nfloa"
											    "t16\n"
											    "u.";
	static const char *const expected[][2] = {
		{"i", "7"},    {"n", "-32768"},	  {"f", "0.1"},
		{"t", "True"}, {"s", "\xc3\xa9"}, {"d.e", "256"},
	};
	struct hoist__manifest *manifest = ACCEPTED(pickle, NULL);
	cr_expect_eq(manifest->n_tensors, 0);
	cr_assert_eq(manifest->n_metadata, sizeof expected / sizeof expected[0]);
	for (size_t i = 0; i < manifest->n_metadata; i++) {
		cr_expect_str_eq(manifest->metadata[i].key, expected[i][0]);
		cr_expect_str_eq(manifest->metadata[i].value, expected[i][1]);
	}
	hoist__manifest_destroy(manifest);
	/* {"a.b": 1, "a": {"b": 2}}: no reason to refuse the tensors beside them. */
	manifest = ACCEPTED("\x80\2}(X\3\0\0\0a.bK\1" ONE("a") "}" ONE("b") "K\2su.", NULL);
	cr_assert_eq(manifest->n_metadata, 2);
	for (size_t i = 0; i < 2; i++) {
		cr_expect_str_eq(manifest->metadata[i].key, "a.b");
		cr_expect_str_eq(manifest->metadata[i].value, i == 0 ? "1" : "2");
	}
	hoist__manifest_destroy(manifest);
}

/* --- what tries to be executed --- */

#define NOT_PLAIN                                                                                  \
	", which is no tensor or plain value, and hoist executes no code; save "                   \
	"model.state_dict() with torch.save, or a safetensors file (byte 2 of data.pkl)"

Test(torch, names_of_python_are_refused_by_name)
{
	REFUSED("\x80\2"
		"cos\nsystem\n(X\2\0\0\0lstR.",
		-ENOTSUP,
		"m.pt: the pickle names \"system\" of the Python module \"os\"" NOT_PLAIN);
	REFUSED("\x80\2"
		"c__builtin__\neval\n",
		-ENOTSUP, "names \"eval\" of the Python module \"__builtin__\"" NOT_PLAIN);
	REFUSED("\x80\2"
		"c__torch__\nNet\n",
		-ENOTSUP, "\"Net\" of the Python module \"__torch__\"");
	REFUSED("\x80\2"
		"cnumpy.core.multiarray\nscalar\n",
		-ENOTSUP, "\"scalar\"");
	REFUSED("\x80\2"
		"ctorch\nload\n",
		-ENOTSUP, "\"load\" of the Python module \"torch\"");
	REFUSED("\x80\2"
		"ctorch\nfloat6_e2m3fn\n",
		-ENOTSUP, "\"float6_e2m3fn\"");
	REFUSED("\x80\2"
		"ccollections\nOrderedDict\0\n",
		-ENOTSUP, "\"OrderedDict\\u0000\"");
	REFUSED("\x80\2"
		"ctorch\n0123456789012345678901234567890123456789\n",
		-ENOTSUP, "\"0123456789012345678901234567890123456789\"");
	REFUSED("\x80\4\x8c\2os\x8c\6system\x93", -ENOTSUP, "names \"system\"");
	REFUSED("\x80\4\x8c\2osK\1\x93", -EBADMSG, "a name is no text");
	REFUSED("\x80\2"
		"cos\nsystem",
		-EBADMSG, "a name has no end");
}

Test(torch, calls_of_anything_else_are_refused)
{
	REFUSED("\x80\2"
		"ctorch\nTensor\n)R.",
		-ENOTSUP, "REDUCE calls a class of tensors");
	REFUSED("\x80\2"
		"ctorch\nFloatStorage\nK\1\x85R.",
		-ENOTSUP, "REDUCE calls a class");
	REFUSED("\x80\2"
		"ctorch\nfloat32\n)R.",
		-ENOTSUP, "REDUCE calls a class");
	REFUSED("\x80\2" ONE("x") ")R.", -EBADMSG, "REDUCE calls a value that is no function");
	REFUSED("\x80\2"
		"ctorch\nSize\n]R.",
		-EBADMSG, "or passes no tuple");
	REFUSED("\x80\2"
		"ctorch\nSize\n)R.",
		-EBADMSG, "a torch.Size is not made of a tuple");
	REFUSED("\x80\2"
		"ccollections\nOrderedDict\n]\x85R.",
		-ENOTSUP, "made of 1 arguments");
	/* The state of a plain dict, of a list; one that is no dict. */
	REFUSED("\x80\2}}b.", -ENOTSUP, "BUILD sets the state of an object that is no OrderedDict");
	REFUSED("\x80\2]}b.", -ENOTSUP, "BUILD");
	REFUSED("\x80\2"
		"ccollections\nOrderedDict\n)R]b.",
		-ENOTSUP, "or the state is no dict");
	REFUSED("\x80\2"
		"ccollections\nOrderedDict\n}b.",
		-ENOTSUP, "BUILD");
	REFUSED("\x80\2}" ONE("x") "Q.", -EBADMSG, "a persistent id is not ('storage', class");
	REFUSED("\x80\2"
		"(X\6\0\0\0module" ONE("x") ONE("x") ONE("x") "K\1tQ.",
		-EBADMSG, "a persistent id is not");
	REFUSED("\x80\2" STORAGE_OF("torch", "Size", "0", "K\1") ".", -EBADMSG, "a persistent id");
	REFUSED("\x80\2" STORAGE("FloatStorage", "J\xff\xff\xff\xff") ".", -EBADMSG,
		"a persistent id");
	REFUSED("\x80\2" STORAGE("FloatStorage", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f") ".",
		-EBADMSG, "a storage has 9223372036854775807 elements");
}

/* Each of the 256 instructions, alone: what is not known is refused by its number. */
Test(torch, instructions_are_known_or_refused_by_number)
{
	static const char known[] = "(NJKMGX}])taesuqrhjcRbQ."
				    "\x80\x85\x86\x87\x88\x89\x8a\x8c\x93\x94\x95";
	for (unsigned op = 0; op < 256; op++) {
		unsigned char pickle[3] = {0x80, 2, (unsigned char)op};
		char text[64];
		struct hoist__manifest *manifest = NULL;
		int err = parse_pickle(pickle, 3, &manifest, NULL);
		cr_expect_null(manifest);
		if (memchr(known, (int)op, sizeof known - 1) != NULL) {
			cr_expect_eq(err, -EBADMSG, "0x%02x", op);
			continue;
		}
		cr_expect_eq(err, -ENOTSUP, "0x%02x", op);
		snprintf(text, sizeof text, "the pickle has the instruction 0x%02x", op);
		expect_text(text);
		expect_text("(byte 2 of data.pkl)");
	}
	REFUSED("\x80\2(i", -ENOTSUP,
		"0x69 (INST), which tensors and plain values do not need, and "
		"hoist executes no code; save model.state_dict()");
	REFUSED("\x80\2(o", -ENOTSUP, "0x6f (OBJ)");
	REFUSED("\x80\2\x82\1", -ENOTSUP, "0x82 (EXT1)");
	REFUSED("\x80\2\x81", -ENOTSUP, "0x81 (NEWOBJ)");
	REFUSED("\x80\2\x8b\xff\xff\xff\x7f", -ENOTSUP, "0x8b (LONG4)");
	REFUSED("\x80\1.", -ENOTSUP, "pickle protocol 1; torch.save writes 2, and up to 5 is read");
	REFUSED("\x80\6.", -ENOTSUP, "pickle protocol 6");
}

/* --- what is no pickle --- */

Test(torch, stacks_and_memos_that_do_not_add_up_are_refused)
{
	REFUSED("", -EBADMSG, "cut short: 1 bytes are wanted, 0 left (byte 0 of data.pkl)");
	REFUSED(".", -EBADMSG, "ends with 0 values on its stack");
	REFUSED("(.", -EBADMSG, "ends with 1 values on its stack");
	REFUSED("NN.", -EBADMSG, "ends with 2 values on its stack");
	REFUSED("N.N", -EBADMSG, "and 1 bytes behind it");
	REFUSED("X\xff\xff\xff\xff"
		"abc",
		-EBADMSG, "4294967295 bytes are wanted, 3 left");
	REFUSED("\x8c\4abc", -EBADMSG, "4 bytes are wanted, 3 left");
	REFUSED("\x8a\xff"
		"abc",
		-EBADMSG, "255 bytes are wanted, 3 left");
	REFUSED("\x95\xff\xff\xff\xff\xff\xff\xff\xff", -EBADMSG,
		"a frame of 18446744073709551615");
	REFUSED("K", -EBADMSG, "1 bytes are wanted, 0 left");
	REFUSED("G1234567", -EBADMSG, "8 bytes are wanted, 7 left");
	REFUSED("\x85", -EBADMSG, "has no 1 values");
	REFUSED("NN\x87", -EBADMSG, "has no 3 values");
	REFUSED("N(N\x86", -EBADMSG, "has no 2 values");
	REFUSED("Nt", -EBADMSG, "has no mark");
	REFUSED("N((u", -EBADMSG, "has nothing below it");
	REFUSED("(u", -EBADMSG, "has no mark");
	REFUSED("((e", -EBADMSG, "has nothing below it");
	REFUSED("}(Nu", -EBADMSG, "a key without a value");
	REFUSED("](NNu", -EBADMSG, "added to a value that is no dict");
	REFUSED("}Na", -EBADMSG, "added to a value that is no list");
	REFUSED(")Na", -EBADMSG, "added to a value that is no list");
	REFUSED("NNNs", -EBADMSG, "added to a value that is no dict");
	REFUSED("q\0", -EBADMSG, "has no 1 values");
	REFUSED("(q\0", -EBADMSG, "has no 1 values");
	REFUSED("Nq\1", -EBADMSG, "memo 1 comes after only 0");
	REFUSED("Nr\xff\xff\xff\xff", -EBADMSG, "memo 4294967295 comes after only 0");
	REFUSED("h\0", -EBADMSG, "memo 0 was never filled");
	REFUSED("Nq\0j\1\0\0\0", -EBADMSG, "memo 1 was never filled");
}

/* --- bombs --- */

static void repeat(struct bytes *to, const char *text, size_t times)
{
	for (size_t i = 0; i < times; i++)
		put_text(to, text);
}

static void refused_bytes(struct bytes *pickle, const char *text)
{
	refused(pickle->p, pickle->n, -EBADMSG, text);
	bytes_free(pickle);
}

Test(torch, objects_do_not_nest_or_multiply_without_end)
{
	struct bytes pickle = {.n = 0};
	REFUSED("]q\0h\0a.", -EBADMSG, "an object that holds itself");
	REFUSED("}q\0" ONE("a") "]h\0as.", -EBADMSG, "an object that holds itself");
	/* 65 lists, and a million of them. */
	repeat(&pickle, "]", 65);
	repeat(&pickle, "a", 64);
	put_text(&pickle, ".");
	refused_bytes(&pickle, "nested more than 64 deep");
	repeat(&pickle, "]", 1000000);
	repeat(&pickle, "a", 999999);
	put_text(&pickle, ".");
	refused_bytes(&pickle, "more than 32 times their memory");
	/* Each list holds the one before it twice. */
	put_text(&pickle, "N");
	for (int i = 0; i < 60; i++) {
		unsigned char twice[] = {0x94, 'h', (unsigned char)i, 0x86};
		put(&pickle, twice, sizeof twice);
	}
	put_text(&pickle, ".");
	refused_bytes(&pickle, "the same ones are in many places");
}

/* A long name above many: each tensor would have a copy of it. */
Test(torch, names_do_not_multiply_without_end)
{
	struct bytes pickle = {.n = 0};
	put_text(&pickle, "}X");
	put_number(&pickle, 100000, 4);
	repeat(&pickle, "n", 100000);
	put_text(&pickle, "]");
	put(&pickle, TENSOR, sizeof TENSOR - 1);
	put_text(&pickle, "\x94"
			  "a(");
	for (int i = 0; i < 1000; i++)
		put(&pickle, "h", 2);
	put_text(&pickle, "es.");
	refused_bytes(&pickle, "the same ones are in many places");
}

#define PUT(pickle, literal) put(pickle, literal, sizeof(literal) - 1)

/* What is looked at in many places is work, though it takes no memory. */
Test(torch, work_is_bounded)
{
	struct bytes pickle = {.n = 0};
	/* A key of 100,000 bytes for each of 10,000 values that are passed over. */
	PUT(&pickle, "}(X");
	put_number(&pickle, 100000, 4);
	repeat(&pickle, "n", 100000);
	PUT(&pickle, "\x94N");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, "h\0N");
	PUT(&pickle, "u.");
	refused_bytes(&pickle, "the same ones are in many places");
	/* A value as long that is no UTF-8, as often. */
	PUT(&pickle, "}(" ONE("a") "X");
	put_number(&pickle, 100000, 4);
	repeat(&pickle, "n", 99999);
	PUT(&pickle, "\xff\x94");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, ONE("b") "h\0");
	PUT(&pickle, "u.");
	refused_bytes(&pickle, "the same ones are in many places");
	/* A dict that says 10,000 times that nothing is negated, for 10,000 tensors. */
	PUT(&pickle, "](}(" ONE("n") "\x94\x89");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, "h\0\x89");
	PUT(&pickle, "u\x94" V2 "\x94(" STORAGE("FloatStorage", "K\6") "\x94" TWO_BY_THREE "h\1tR");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, "h\2(h\3K\0))\x89Nh\1tR");
	PUT(&pickle, "e.");
	refused_bytes(&pickle, "the same ones are in many places");
}

/* As many tensors have a storage whose name is as long as an archive allows. */
Test(torch, names_of_storages_are_not_looked_for_without_end)
{
	char name[65000] = "m/data/";
	struct archive archive = {.align = 64, .flags = 0x800};
	struct bytes pickle = {.n = 0};
	struct hoist__manifest *manifest = NULL;
	const size_t n = sizeof name - 8;
	memset(name + 7, 'k', n);
	PUT(&pickle, "](" V2 "\x94((X\7\0\0\0storagectorch\nFloatStorage\nX");
	put_number(&pickle, n, 4);
	put(&pickle, name + 7, n);
	PUT(&pickle, CPU "K\6tQ\x94" TWO_BY_THREE "tR");
	for (int i = 1; i < 10000; i++)
		PUT(&pickle, "h\0(h\1K\0))\x89NtR");
	PUT(&pickle, "e.");
	archive_add(&archive, "m/data.pkl", pickle.p, pickle.n);
	archive_add(&archive, name, "0123456789abcdefghijklmn", 24);
	archive_end(&archive, "");
	cr_expect_eq(parse(&archive, &manifest), -EBADMSG);
	expect_text("the same ones are in many places");
	archive_free(&archive);
	bytes_free(&pickle);
}

Test(torch, memory_is_bounded)
{
	struct bytes pickle = {.n = 0};
	put_text(&pickle, "N");
	repeat(&pickle, "\x94", 1000000);
	refused_bytes(&pickle, "more than 32 times their memory");
	repeat(&pickle, "}", 1000000);
	refused_bytes(&pickle, "more than 32 times their memory");
	repeat(&pickle, "N\x85", 1000000);
	refused_bytes(&pickle, "more than 32 times their memory");
}

/* --- tensors that do not fit --- */

#define VIEW(offset, size, stride)                                                                 \
	BEGIN V2 "(" STORAGE("FloatStorage", "K\6") offset size stride HOOKS "tR" END
#define HUGE "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"

Test(torch, views_stay_in_their_storage)
{
	size_t at = 0;
	EXPECT_ONE(VIEW("K\5", ")", ")"), "w", HOIST_F32, 20, 4);
	EXPECT_ONE(VIEW("K\1", "K\5\x85", "K\1\x85"), "w", HOIST_F32, 4, 20);
	EXPECT_ONE(VIEW("M\xe8\3", "K\0\x85", "K\1\x85"), "w", HOIST_F32, 24, 0);
	EXPECT_ONE(VIEW(HUGE, "K\0\x85", "K\1\x85"), "w", HOIST_F32, 24, 0);
	static const char columns[] = VIEW("K\0", "K\2K\3\x86", "K\1K\2\x86");
	struct hoist__manifest *manifest = ACCEPTED(columns, &at);
	cr_expect_eq(manifest->tensors[0].strides[0], 1);
	cr_expect_eq(manifest->tensors[0].strides[1], 2);
	hoist__manifest_destroy(manifest);
	REFUSED(VIEW("K\6", ")", ")"), -EBADMSG,
		"tensor \"w\": storage \"0\" has 24 bytes, and the tensor needs 4 from element 6 "
		"on");
	REFUSED(VIEW("K\1", "K\6\x85", "K\1\x85"), -EBADMSG, "needs 24 from element 1 on");
	REFUSED(VIEW("K\0", "K\2K\3\x86", "K\3K\2\x86"), -EBADMSG, "needs 32 from element 0 on");
	REFUSED(VIEW(HUGE, ")", ")"), -EBADMSG, "from element 9223372036854775807 on");
	REFUSED(VIEW("K\0", HUGE "\x85", "K\1\x85"), -EBADMSG, "tensor \"w\": ");
	REFUSED(VIEW("K\0", HUGE "\x85", HUGE "\x85"), -EBADMSG, "more elements than fit");
	REFUSED(VIEW("K\0", HUGE HUGE "\x86", "K\0K\0\x86"), -EBADMSG, "more elements than fit");
	REFUSED(VIEW("K\0", "K\0" HUGE HUGE "\x87", "K\0K\0K\0\x87"), -EBADMSG,
		"more elements than fit");
	REFUSED(VIEW("K\0", "J\xff\xff\xff\xff\x85", "K\1\x85"), -EBADMSG, "the extent -1");
	REFUSED(VIEW("K\0", "K\2\x85", "J\xff\xff\xff\xff\x85"), -EBADMSG, "with the stride -1");
	REFUSED(VIEW("K\0", "K\2\x85", ")"), -EBADMSG, "1 extents and 0 strides");
	REFUSED(VIEW("K\0", "]", ")"), -EBADMSG, "a tensor's size is no tuple of integers");
	REFUSED(VIEW("K\0", ")", "N\x85"), -EBADMSG, "a tensor's stride is no tuple of integers");
	REFUSED(VIEW("J\xff\xff\xff\xff", ")", ")"), -EBADMSG, "is not made of a storage");
	REFUSED(BEGIN V2 "NK\0))" HOOKS "tR" END, -EBADMSG, "has no mark");
	REFUSED(BEGIN V2 ")R" END, -EBADMSG, "is not made of a storage, an offset");
	REFUSED(BEGIN V3 "(" STORAGE("FloatStorage", "K\6") TWO_BY_THREE "NtR" END, -EBADMSG,
		"is not made of a storage");
	struct bytes wide = {.n = 0};
	put(&wide, BEGIN V2 "(" STORAGE("FloatStorage", "K\6") "K\0(",
	    sizeof(BEGIN V2 "(" STORAGE("FloatStorage", "K\6") "K\0(") - 1);
	repeat(&wide, "K\1", 65);
	put_text(&wide, "t)");
	put(&wide, HOOKS "tR" END, sizeof(HOOKS "tR" END) - 1);
	refused_bytes(&wide, "size has 65 axes, above 64");
}

/* --- the archive --- */

static void expect_archive(struct archive *archive, int code, const char *text)
{
	struct hoist__manifest *manifest = NULL;
	archive_end(archive, "");
	cr_expect_eq(parse(archive, &manifest), code, "%s", text);
	cr_expect_null(manifest);
	expect_text(text);
	archive_free(archive);
}

Test(torch, archives_that_lack_something_are_refused)
{
	static const char pickle[] = BEGIN TENSOR END;
	const size_t n = sizeof pickle - 1;
	struct model model;
	struct archive archive = {.n = 0};
	archive_add(&archive, "x.npy", "", 0);
	expect_archive(&archive, -EBADMSG, "not PyTorch's: no entry is FOLDER/data.pkl");
	archive_add(&archive, "a/data.pkl", pickle, n);
	archive_add(&archive, "b/data.pkl", pickle, n);
	expect_archive(&archive, -EBADMSG, "two entries are called data.pkl");
	archive_add(&archive, "a/data.pkl", pickle, n);
	expect_archive(&archive, -EBADMSG, "storage \"0\" has no entry of the archive");
	archive_add(&archive, "a/data.pkl", pickle, n);
	archive_add(&archive, "a/data/0", pickle, 23);
	expect_archive(&archive, -EBADMSG, "storage \"0\" has 24 bytes, and its entry holds 23");
	archive_add(&archive, "a/data.pkl", pickle, n);
	archive.method = 8;
	archive_add(&archive, "a/data/0", pickle, 24);
	expect_archive(&archive, -ENOTSUP,
		       "entry \"a/data/0\" is compressed (method 8, deflate), and only stored "
		       "entries are read; torch.save stores them as they are");
	archive.method = 8;
	archive_add(&archive, "a/data.pkl", pickle, n);
	expect_archive(&archive, -ENOTSUP, "entry \"a/data.pkl\" is compressed");
	model_begin(&model, pickle, n);
	archive_add(&model.archive, "m/byteorder", "big", 3);
	expect_archive(
		&model.archive, -ENOTSUP,
		"m.pt: the numbers have the byte order \"big\", and hoist reads only \"little\"");
	model_begin(&model, pickle, n);
	archive_add(&model.archive, "m/byteorder", "little ", 7);
	expect_archive(&model.archive, -ENOTSUP, "byte order \"little \"");
	model_begin(&model, pickle, n);
	archive_add(&model.archive, "m/byteorder", "", 0);
	expect_archive(&model.archive, -ENOTSUP, "byte order \"\"");
}

/* Every byte of the pickle changed to every value: never a crash; what is accepted lies within the
 * file. */
Test(torch, no_byte_of_the_pickle_is_trusted)
{
	static const char pickle[] = "\x80\2}(" ONE("a") TENSOR "q\0" ONE("b") "](h\0h\0e" ONE("c")
		V3 "(" STORAGE_OF("torch.storage", "UntypedStorage", "0", "K\2") ONE_ELEMENT
		"ctorch\nuint16\ntR" ONE("d") "G\x3f\xb9\x99\x99\x99\x99\x99\x9au.";
	struct model model;
	struct hoist__manifest *manifest = ACCEPTED(pickle, NULL);
	cr_assert_eq(manifest->n_tensors, 4);
	hoist__manifest_destroy(manifest);
	model_begin(&model, pickle, sizeof pickle - 1);
	archive_end(&model.archive, "");
	struct bytes *file = &model.archive.file;
	size_t begin = 64;
	cr_assert_eq(memcmp(file->p + begin, pickle, sizeof pickle - 1), 0);
	for (size_t at = begin; at < begin + sizeof pickle - 1; at++) {
		unsigned char was = file->p[at];
		for (unsigned value = 0; value < 256; value++) {
			file->p[at] = (unsigned char)value;
			manifest = NULL;
			int err = parse(&model.archive, &manifest);
			cr_assert(err == 0 || err == -EBADMSG || err == -ENOTSUP);
			for (size_t i = 0; err == 0 && i < manifest->n_tensors; i++) {
				cr_assert_leq(manifest->tensors[i].offset, file->n);
				cr_assert_leq(manifest->tensors[i].bytes,
					      file->n - manifest->tensors[i].offset);
			}
			hoist__manifest_destroy(manifest);
		}
		file->p[at] = was;
	}
	archive_free(&model.archive);
}
