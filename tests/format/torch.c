/* SPDX-License-Identifier: MIT */
/* PyTorch's checkpoints, made here instruction by instruction: tensors are found, and everything
 * else is refused.  Files that PyTorch wrote are read by zip_real.c. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "tests/format/pickles.h"

static struct hoist__manifest *accepted(const void *pickle, size_t n, size_t *at)
{
	struct hoist__manifest *manifest = NULL;
	cr_assert_eq(parse_pickle(pickle, n, &manifest, at), 0, "%s", hoist__error_text());
	return manifest;
}

#define ACCEPTED(pickle, at) accepted(pickle, sizeof(pickle) - 1, at)

static void expect_one(const void *pickle, size_t n, hoist_dtype dtype, uint64_t offset,
		       uint64_t bytes)
{
	size_t at = 0;
	struct hoist__manifest *manifest = accepted(pickle, n, &at);
	cr_assert_eq(manifest->n_tensors, 1);
	cr_expect_str_eq(manifest->tensors[0].name, "w");
	cr_expect_eq(manifest->tensors[0].name_bytes, 1);
	cr_expect_eq(manifest->tensors[0].dtype, dtype);
	cr_expect_eq(manifest->tensors[0].offset, at + offset);
	cr_expect_eq(manifest->tensors[0].bytes, bytes);
	hoist__manifest_destroy(manifest);
}

#define EXPECT_ONE(pickle, dtype, offset, bytes)                                                   \
	expect_one(pickle, sizeof(pickle) - 1, dtype, offset, bytes)

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

#define ONE_ELEMENT "K\0K\1\x85K\1\x85" HOOKS
#define OF_CLASS(class) BEGIN V2 "(" STORAGE(class, "K\1") ONE_ELEMENT "tR" END
#define OF_DTYPE(dtype, count)                                                                     \
	BEGIN V3 "(" STORAGE_OF("torch.storage", "UntypedStorage", "0", count) ONE_ELEMENT         \
		"ctorch\n" dtype "\ntR" END

Test(torch, every_storage_and_dtype_is_read)
{
	EXPECT_ONE(OF_CLASS("FloatStorage"), HOIST_F32, 0, 4);
	EXPECT_ONE(OF_CLASS("HalfStorage"), HOIST_F16, 0, 2);
	EXPECT_ONE(OF_CLASS("BFloat16Storage"), HOIST_BF16, 0, 2);
	EXPECT_ONE(OF_CLASS("DoubleStorage"), HOIST_F64, 0, 8);
	EXPECT_ONE(OF_CLASS("LongStorage"), HOIST_I64, 0, 8);
	EXPECT_ONE(OF_CLASS("IntStorage"), HOIST_I32, 0, 4);
	EXPECT_ONE(OF_CLASS("ShortStorage"), HOIST_I16, 0, 2);
	EXPECT_ONE(OF_CLASS("CharStorage"), HOIST_I8, 0, 1);
	EXPECT_ONE(OF_CLASS("ByteStorage"), HOIST_U8, 0, 1);
	EXPECT_ONE(OF_CLASS("BoolStorage"), HOIST_BOOL, 0, 1);
	EXPECT_ONE(OF_CLASS("ComplexFloatStorage"), HOIST_C64, 0, 8);
	EXPECT_ONE(OF_CLASS("ComplexDoubleStorage"), HOIST_C128, 0, 16);
	EXPECT_ONE(OF_CLASS("UntypedStorage"), HOIST_U8, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e4m3fn", "K\1"), HOIST_F8_E4M3FN, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e5m2", "K\1"), HOIST_F8_E5M2, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e4m3fnuz", "K\1"), HOIST_F8_E4M3FNUZ, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e5m2fnuz", "K\1"), HOIST_F8_E5M2FNUZ, 0, 1);
	EXPECT_ONE(OF_DTYPE("float8_e8m0fnu", "K\1"), HOIST_F8_E8M0FNU, 0, 1);
	EXPECT_ONE(OF_DTYPE("uint16", "K\2"), HOIST_U16, 0, 2);
	EXPECT_ONE(OF_DTYPE("uint64", "K\10"), HOIST_U64, 0, 8);
	MALFORMED(OF_DTYPE("uint16", "K\1"),
		  "tensor \"w\": storage \"0\" has 1 bytes, and the tensor needs 2 from element 0 "
		  "on");
	UNSUPPORTED(OF_DTYPE("float4_e2m1fn_x2", "K\1"),
		    "the pickle names \"float4_e2m1fn_x2\" of the Python module \"torch\"");
	UNSUPPORTED(OF_CLASS("QInt8Storage"),
		    "the pickle has a quantised tensor: save .int_repr()");
}

/* Parameters and attributes are wrappers that are taken off. */
Test(torch, wrapped_tensors_are_tensors)
{
	EXPECT_ONE(BEGIN "ctorch._utils\n_rebuild_parameter\n(" TENSOR HOOKS "tR" END, HOIST_F32, 0,
		   24);
	EXPECT_ONE(BEGIN "ctorch._utils\n_rebuild_parameter_with_state\n(" TENSOR HOOKS "}tR" END,
		   HOIST_F32, 0, 24);
	EXPECT_ONE(BEGIN "ctorch._tensor\n_rebuild_from_type_v2\n(" V2
			 "ctorch.nn.parameter\nParameter\n(" FLOATS TWO_BY_THREE "t}tR" END,
		   HOIST_F32, 0, 24);
	EXPECT_ONE(BEGIN V2 "(" FLOATS TWO_BY_THREE "}tR" END, HOIST_F32, 0, 24);
	EXPECT_ONE(BEGIN V2 "(" FLOATS TWO_BY_THREE "}X\4\0\0\0conj\x89s"
			    "tR" END,
		   HOIST_F32, 0, 24);
	UNSUPPORTED(BEGIN V2 "(" FLOATS TWO_BY_THREE "}X\4\0\0\0conj\x88s"
			     "tR" END,
		    "is the conjugate or the negative of its bytes: save .resolve_conj()");
	MALFORMED(BEGIN "ctorch._utils\n_rebuild_parameter\n(K\1" HOOKS "tR" END,
		  "a parameter is not made of a tensor");
	MALFORMED(BEGIN
		  "ctorch._tensor\n_rebuild_from_type_v2\n(ctorch\nSize\nctorch\nTensor\n)}tR" END,
		  "a tensor with attributes is not made of a tensor");
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
	MALFORMED(PROTOCOL "}X\0\0\0\0" TENSOR END, "or is empty");
	MALFORMED(PROTOCOL "}N" TENSOR END, "a tensor whose key is neither text nor an integer");
	MALFORMED(PROTOCOL "}K\1\x85}" ONE("x") TENSOR "s" END, "neither text nor an integer");
	MALFORMED(PROTOCOL "}" ONE("\xff") TENSOR END, "no text in UTF-8");
	MALFORMED(PROTOCOL "}" ONE("\0") TENSOR END, "no text in UTF-8");
	MALFORMED(PROTOCOL "}(" ONE("w") TENSOR ONE("w") TENSOR "u.",
		  "two tensors are called \"w\"");
	MALFORMED(PROTOCOL "}(X\3\0\0\0a.b" TENSOR ONE("a") "}" ONE("b") TENSOR "su.",
		  "two tensors are called \"a.b\"");
}

/* 0.1 */
#define TENTH "G\x3f\xb9\x99\x99\x99\x99\x99\x9a"

/* Values that are not plain, have no name of texts, or are no C string are passed over. */
Test(torch, plain_values_are_metadata)
{
	static const char pickle[] =
		PROTOCOL "}(" ONE("i") "K\7" ONE("n") "\x8a\2\0\x80" /* -32768 */
		ONE("b") "\x8a\x09\0\0\0\0\0\0\0\0\1" ONE("f")
			TENTH ONE("t") "\x88" ONE("s") "X\2\0\0\0\xc3\xa9" ONE("0") ONE("\0")
				ONE("u") ONE("\xff") "K\1K\2NK\2" ONE("l") "](K\1K\2e" ONE(
					"d") "}" ONE("e") "M\0\1s" ONE("v")
					GLOBAL("torch", "device") ONE("c") "\x85R" ONE("z")
						GLOBAL("torch", "Size") ")\x85R" ONE("y")
							GLOBAL("torch", "float16") "u.";
	static pair_of_texts expected[] = {
		{"i", "7"},    {"n", "-32768"},	  {"f", "0.1"},
		{"t", "True"}, {"s", "\xc3\xa9"}, {"d.e", "256"},
	};
	static pair_of_texts twice[] = {{"a.b", "1"}, {"a.b", "2"}};
	struct hoist__manifest *manifest = ACCEPTED(pickle, NULL);
	cr_expect_eq(manifest->n_tensors, 0);
	expect_metadata(manifest, expected, sizeof expected / sizeof expected[0]);
	hoist__manifest_destroy(manifest);
	/* {"a.b": 1, "a": {"b": 2}}: no reason to refuse the tensors beside them. */
	manifest = ACCEPTED("\x80\2}(X\3\0\0\0a.bK\1" ONE("a") "}" ONE("b") "K\2su.", NULL);
	expect_metadata(manifest, twice, 2);
	hoist__manifest_destroy(manifest);
}

/* --- code --- */

#define NOT_PLAIN                                                                                  \
	", which is no tensor or plain value, and hoist executes no code; save "                   \
	"model.state_dict() with torch.save, or a safetensors file; "                              \
	"--skip-unsupported (HOIST_OPEN_SKIP_UNSUPPORTED) leaves such values out (byte 2 of data.pkl)"

Test(torch, names_of_python_are_refused_by_name)
{
	UNSUPPORTED(PROTOCOL GLOBAL("os", "system") "(X\2\0\0\0lstR.",
		    "m.pt: the pickle names \"system\" of the Python module \"os\"" NOT_PLAIN);
	UNSUPPORTED(PROTOCOL GLOBAL("__builtin__", "eval"),
		    "names \"eval\" of the Python module \"__builtin__\"" NOT_PLAIN);
	UNSUPPORTED(PROTOCOL GLOBAL("__torch__", "Net"),
		    "\"Net\" of the Python module \"__torch__\"");
	UNSUPPORTED(PROTOCOL GLOBAL("numpy.core.multiarray", "fromstring"), "\"fromstring\"");
	UNSUPPORTED(PROTOCOL GLOBAL("numpy.core.multiarray", "_reconstruct"),
		    "a NumPy array: save");
	UNSUPPORTED(PROTOCOL GLOBAL("torch._utils", "_rebuild_sparse_tensor"),
		    "the pickle has a sparse tensor: save .to_dense(); --skip-unsupported");
	UNSUPPORTED(PROTOCOL GLOBAL("__builtin__", "set"), "the pickle has a set, whose items");
	UNSUPPORTED(PROTOCOL GLOBAL("torch", "load"), "\"load\" of the Python module \"torch\"");
	UNSUPPORTED(PROTOCOL GLOBAL("torch", "float6_e2m3fn"), "\"float6_e2m3fn\"");
	UNSUPPORTED(PROTOCOL "ccollections\nOrderedDict\0\n", "\"OrderedDict\\u0000\"");
	UNSUPPORTED(PROTOCOL GLOBAL("torch", "0123456789012345678901234567890123456789"),
		    "\"0123456789012345678901234567890123456789\"");
	UNSUPPORTED("\x80\4\x8c\2os\x8c\6system\x93", "names \"system\"");
	MALFORMED("\x80\4\x8c\2osK\1\x93", "a name is no text");
	MALFORMED(PROTOCOL "cos\nsystem", "a name has no end");
}

Test(torch, calls_of_anything_else_are_refused)
{
	UNSUPPORTED(PROTOCOL GLOBAL("torch", "Tensor") ")R.", "a call of a class of tensors");
	UNSUPPORTED(PROTOCOL GLOBAL("torch", "FloatStorage") "K\1\x85R.", "a call of a class");
	UNSUPPORTED(PROTOCOL GLOBAL("torch", "float32") ")R.", "a call of a class");
	MALFORMED(PROTOCOL ONE("x") ")R.", "REDUCE calls a value that is no function");
	MALFORMED(PROTOCOL GLOBAL("torch", "Size") "]R.", "or passes no tuple");
	MALFORMED(PROTOCOL GLOBAL("torch", "Size") ")R.", "a torch.Size is not made of a tuple");
	UNSUPPORTED(PROTOCOL ORDERED "]\x85R.", "an OrderedDict made of arguments");
	/* The state of a plain dict, of a list; one that is no dict. */
	UNSUPPORTED(PROTOCOL "}}b.", "a state (BUILD) for a value that takes none");
	UNSUPPORTED(PROTOCOL "]}b.", "BUILD");
	UNSUPPORTED(PROTOCOL ORDERED ")R]b.", "or a state that is no dict");
	UNSUPPORTED(PROTOCOL ORDERED "}b.", "BUILD");
	MALFORMED(PROTOCOL "}" ONE("x") "Q.", "a persistent id is not ('storage', class");
	MALFORMED(PROTOCOL "(X\6\0\0\0module" ONE("x") ONE("x") ONE("x") "K\1tQ.",
		  "a persistent id is not");
	MALFORMED(PROTOCOL STORAGE_OF("torch", "Size", "0", "K\1") ".", "a persistent id");
	MALFORMED(PROTOCOL STORAGE("FloatStorage", "J\xff\xff\xff\xff") ".", "a persistent id");
	MALFORMED(PROTOCOL STORAGE("FloatStorage", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f") ".",
		  "a storage has 9223372036854775807 elements");
}

/* Each of the 256 instructions, alone: an unknown one is refused by its number. */
Test(torch, instructions_are_known_or_refused_by_number)
{
	static const char known[] = "(NJKMGXBC}])taesuqrhjcRbQ."
				    "\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e"
				    "\x90\x91\x92\x93\x94\x95\x96";
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
		if (op == 0x8f) {
			expect_text("the pickle has a set");
			continue;
		}
		snprintf(text, sizeof text, "the pickle has the instruction 0x%02x", op);
		expect_text(text);
		expect_text("(byte 2 of data.pkl)");
	}
	UNSUPPORTED(PROTOCOL "(i", "0x69 (INST), which tensors and plain values do not need, and "
				   "hoist executes no code; save model.state_dict()");
	UNSUPPORTED(PROTOCOL "(o", "0x6f (OBJ)");
	UNSUPPORTED(PROTOCOL "\x82\1", "0x82 (EXT1)");
	MALFORMED(PROTOCOL "\x81", "has no 2 values");
	MALFORMED(PROTOCOL "\x8b\xff\xff\xff\x7f", "2147483647 bytes are wanted");
	UNSUPPORTED("\x80\1.", "pickle protocol 1; torch.save writes 2, and up to 5 is read");
	UNSUPPORTED("\x80\6.", "pickle protocol 6");
}

/* --- broken pickles --- */

Test(torch, stacks_and_memos_that_do_not_add_up_are_refused)
{
	MALFORMED("", "cut short: 1 bytes are wanted, 0 left (byte 0 of data.pkl)");
	MALFORMED(".", "ends with 0 values on its stack");
	MALFORMED("(.", "ends with 1 values on its stack");
	MALFORMED("NN.", "ends with 2 values on its stack");
	MALFORMED("N.N", "and 1 bytes behind it");
	MALFORMED("X\xff\xff\xff\xff"
		  "abc",
		  "4294967295 bytes are wanted, 3 left");
	MALFORMED("\x8c\4abc", "4 bytes are wanted, 3 left");
	MALFORMED("\x8a\xff"
		  "abc",
		  "255 bytes are wanted, 3 left");
	MALFORMED("\x95\xff\xff\xff\xff\xff\xff\xff\xff", "a frame of 18446744073709551615");
	MALFORMED("K", "1 bytes are wanted, 0 left");
	MALFORMED("G1234567", "8 bytes are wanted, 7 left");
	MALFORMED("\x85", "has no 1 values");
	MALFORMED("NN\x87", "has no 3 values");
	MALFORMED("N(N\x86", "has no 2 values");
	MALFORMED("Nt", "has no mark");
	MALFORMED("N((u", "has nothing below it");
	MALFORMED("(u", "has no mark");
	MALFORMED("((e", "has nothing below it");
	MALFORMED("}(Nu", "a key without a value");
	MALFORMED("](NNu", "added to a value that is no dict");
	MALFORMED("}Na", "added to a value that is no list");
	MALFORMED(")Na", "added to a value that is no list");
	MALFORMED("NNNs", "added to a value that is no dict");
	MALFORMED("q\0", "has no 1 values");
	MALFORMED("(q\0", "has no 1 values");
	MALFORMED("Nq\1", "memo 1 comes after only 0");
	MALFORMED("Nr\xff\xff\xff\xff", "memo 4294967295 comes after only 0");
	MALFORMED("h\0", "memo 0 was never filled");
	MALFORMED("Nq\0j\1\0\0\0", "memo 1 was never filled");
}

/* --- tensors that do not fit --- */

#define VIEW(offset, size, stride) BEGIN V2 "(" FLOATS offset size stride HOOKS "tR" END
#define HUGE "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f"

Test(torch, views_stay_in_their_storage)
{
	size_t at = 0;
	EXPECT_ONE(VIEW("K\5", ")", ")"), HOIST_F32, 20, 4);
	EXPECT_ONE(VIEW("K\1", "K\5\x85", "K\1\x85"), HOIST_F32, 4, 20);
	EXPECT_ONE(VIEW("M\xe8\3", "K\0\x85", "K\1\x85"), HOIST_F32, 24, 0);
	EXPECT_ONE(VIEW(HUGE, "K\0\x85", "K\1\x85"), HOIST_F32, 24, 0);
	static const char columns[] = VIEW("K\0", "K\2K\3\x86", "K\1K\2\x86");
	struct hoist__manifest *manifest = ACCEPTED(columns, &at);
	cr_expect_eq(manifest->tensors[0].strides[0], 1);
	cr_expect_eq(manifest->tensors[0].strides[1], 2);
	hoist__manifest_destroy(manifest);
	MALFORMED(VIEW("K\6", ")", ")"),
		  "tensor \"w\": storage \"0\" has 24 bytes, and the tensor needs 4 from element 6 "
		  "on");
	MALFORMED(VIEW("K\1", "K\6\x85", "K\1\x85"), "needs 24 from element 1 on");
	MALFORMED(VIEW("K\0", "K\2K\3\x86", "K\3K\2\x86"), "needs 32 from element 0 on");
	MALFORMED(VIEW(HUGE, ")", ")"), "from element 9223372036854775807 on");
	MALFORMED(VIEW("K\0", HUGE "\x85", "K\1\x85"), "tensor \"w\": ");
	MALFORMED(VIEW("K\0", HUGE "\x85", HUGE "\x85"), "more elements than fit");
	MALFORMED(VIEW("K\0", HUGE HUGE "\x86", "K\0K\0\x86"), "more elements than fit");
	MALFORMED(VIEW("K\0", "K\0" HUGE HUGE "\x87", "K\0K\0K\0\x87"), "more elements than fit");
	MALFORMED(VIEW("K\0", "J\xff\xff\xff\xff\x85", "K\1\x85"), "the extent -1");
	MALFORMED(VIEW("K\0", "K\2\x85", "J\xff\xff\xff\xff\x85"), "with the stride -1");
	MALFORMED(VIEW("K\0", "K\2\x85", ")"), "1 extents and 0 strides");
	MALFORMED(VIEW("K\0", "]", ")"), "a tensor's size is no tuple of integers");
	MALFORMED(VIEW("K\0", ")", "N\x85"), "a tensor's stride is no tuple of integers");
	MALFORMED(VIEW("J\xff\xff\xff\xff", ")", ")"), "is not made of a storage");
	MALFORMED(BEGIN V2 "NK\0))" HOOKS "tR" END, "has no mark");
	MALFORMED(BEGIN V2 ")R" END, "is not made of a storage, an offset");
	MALFORMED(BEGIN V3 "(" FLOATS TWO_BY_THREE "NtR" END, "is not made of a storage");
	struct bytes wide = {.n = 0};
	PUT(&wide, BEGIN V2 "(" FLOATS "K\0(");
	repeat(&wide, "K\1", 65);
	PUT(&wide, "t)" HOOKS "tR" END);
	refused_bytes(&wide, "size has 65 axes, above 64");
}

/* --- the archive --- */

static void expect_archive(struct archive *archive, int code, const char *text)
{
	struct hoist__manifest *manifest = NULL;
	archive_end(archive, "");
	int err = parse(archive, &manifest);
	expect_failed(err, manifest, code, text);
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
		"ctorch\nuint16\ntR" ONE("d") TENTH "u.";
	struct model model;
	struct hoist__manifest *manifest = ACCEPTED(pickle, NULL);
	cr_assert_eq(manifest->n_tensors, 4);
	hoist__manifest_destroy(manifest);
	model_begin(&model, pickle, sizeof pickle - 1);
	archive_end(&model.archive, "");
	struct bytes *file = &model.archive.file;
	cr_assert_eq(memcmp(file->p + 64, pickle, sizeof pickle - 1), 0);
	spoil_each_byte(file, 64, 64 + sizeof pickle - 1, 1, HOIST__TORCH);
	archive_free(&model.archive);
}
