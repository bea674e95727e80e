/* SPDX-License-Identifier: MIT */
/* A lenient reader lists values that are no tensors, and reads the tensors beside them. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/format/pickles.h"

/* An object of a class that nobody knows, without state. */
#define NET GLOBAL("net", "Net") ")\x81"
#define MADE "a value of \"Net\" of the Python module \"net\": hoist executes no code"
#define SET "a set, whose items have no names: save a list"
#define QUANTISED "a quantised tensor: save .int_repr() and the scales, or .dequantize()"
#define VIEW                                                                                       \
	"a tensor that is the conjugate or the negative of its bytes: save "                       \
	".resolve_conj().resolve_neg()"
#define UNNAMED "a tensor whose key is neither text nor an integer, or is empty"
#define PARTS "X\x0b\0\0\0_parameters"
#define MODULES "X\x08\0\0\0_modules"
#define BUFFERS "X\x08\0\0\0_buffers"

#define ROW(what, pickle, tensors, skipped)                                                        \
	{                                                                                          \
		what, pickle, sizeof(pickle) - 1, tensors, skipped                                 \
	}

/* The names of tensors, and the skipped values with their reasons, as "a; b". */
static const struct {
	const char *what;
	const char *pickle;
	size_t n;
	const char *tensors;
	const char *skipped;
} rows[] = {
	ROW("nothing", BEGIN TENSOR END, "w", ""),
	/* Objects. */
	ROW("an object", PROTOCOL NET ".", "", "object: " MADE),
	ROW("a class", BEGIN GLOBAL("net", "Net") END, "", "w: " MADE),
	ROW("a call", BEGIN GLOBAL("net", "Net") TENSOR "\x85R" END, "", "w: " MADE),
	ROW("an object with names of arguments", BEGIN GLOBAL("net", "Net") ")}\x92" END, "",
	    "w: " MADE),
	ROW("its state", BEGIN NET "}" ONE("a") TENSOR "sb" END, "w.a", "w: " MADE),
	ROW("its slots",
	    BEGIN NET "N}" ONE("a") TENSOR "s\x86"
					   "b" END,
	    "w.a", "w: " MADE),
	ROW("a state that is no dict", BEGIN NET TENSOR "b" END, "", "w: " MADE),
	ROW("its items", BEGIN NET "(" ONE("a") TENSOR "u" END, "w.a", "w: " MADE),
	ROW("a list's items", BEGIN NET TENSOR "a(" TENSOR "e" END, "", "w: " MADE),
	ROW("the parts of a module",
	    PROTOCOL NET "}(" PARTS "}" ONE("a") TENSOR "s" BUFFERS "}" ONE("b") TENSOR
	    "s" MODULES "}" ONE("c") NET "}" PARTS "}" ONE("a") TENSOR "ssbsub.",
	    "a; b; c.a", "c: " MADE "; object: " MADE),
	ROW("a module's list of its parameters",
	    PROTOCOL NET "}(" PARTS "}" ONE("a") TENSOR "sX\x0d\0\0\0_flat_weights](" TENSOR "eub.",
	    "a", "object: " MADE),
	ROW("an attribute that is a set", BEGIN NET "}" ONE("a") "\x8fsb" END, "", "w: " MADE),
	ROW("an object that holds itself", BEGIN NET "q\0}" ONE("a") "h\0sb" END, "", "w: " MADE),
	ROW("a state for a dict", BEGIN "}" ONE("a") TENSOR "s}b" END, "w.a", ""),
	ROW("an object in two places", BEGIN "](" NET "q\0h\0h\0e" END, "", "w.0: " MADE),
	/* Tensors that are none. */
	ROW("a storage", BEGIN FLOATS END, "",
	    "w: a storage, which has no shape: save a tensor of it"),
	ROW("two tensors of one quantised storage",
	    PROTOCOL "}(" ONE("a") V2 "(" STORAGE("QInt8Storage", "K\6") "q\0" TWO_BY_THREE
									 "tR" ONE("b") V2
	    "(h\0" TWO_BY_THREE "tRu.",
	    "", "a: " QUANTISED "; b: " QUANTISED),
	ROW("a sparse tensor", BEGIN GLOBAL("torch._utils", "_rebuild_sparse_tensor") "NN\x86R" END,
	    "", "w: a sparse tensor: save .to_dense()"),
	ROW("a meta tensor",
	    BEGIN GLOBAL("torch._utils", "_rebuild_meta_tensor_no_storage") "NN\x86R" END, "",
	    "w: a meta tensor, which has no bytes"),
	ROW("a quantised storage",
	    BEGIN V2 "(" STORAGE("QInt8Storage", "K\6") TWO_BY_THREE "tR" END, "", "w: " QUANTISED),
	ROW("a parameter of it",
	    BEGIN "ctorch._utils\n_rebuild_parameter\n(" V2 "(" STORAGE("QInt8Storage", "K\6")
		    TWO_BY_THREE "tR" HOOKS "tR" END,
	    "", "w: " QUANTISED),
	ROW("an unknown dtype",
	    BEGIN V3 "(" STORAGE_OF("torch.storage", "UntypedStorage", "0", "K\6") TWO_BY_THREE
	    "ctorch\nfloat1\ntR" END,
	    "", "w: a value of \"float1\" of the Python module \"torch\": hoist executes no code"),
	ROW("a view that conjugates", BEGIN V2 "(" FLOATS TWO_BY_THREE "}X\4\0\0\0conj\x88stR" END,
	    "", "w: " VIEW),
	ROW("a class of tensors",
	    BEGIN "ctorch._tensor\n_rebuild_from_type_v2\n(" V2 "cnet\nNet\n(" FLOATS TWO_BY_THREE
		  "t}tR" END,
	    "", "w: " MADE),
	/* Sets and names. */
	ROW("a set", BEGIN "\x8f(K\1\x90" END, "", "w: " SET),
	ROW("a frozen set", BEGIN "(K\1\x91" END, "", "w: " SET),
	ROW("a set of protocol 2", BEGIN GLOBAL("__builtin__", "set") "]K\1a\x85R" END, "",
	    "w: " SET),
	ROW("two tensors of one name",
	    PROTOCOL "}(X\3\0\0\0a.b" TENSOR ONE("a") "}" ONE("b") TENSOR "sX\1\0\0\0c" TENSOR "u.",
	    "a.b; c", "a.b: another tensor before it has the same name"),
	ROW("a key of another kind", PROTOCOL "}(N" TENSOR ONE("a") TENSOR "u.", "a",
	    "?: " UNNAMED),
	ROW("an empty key", PROTOCOL "}X\0\0\0\0" TENSOR END, "", "object: " UNNAMED),
	ROW("a key that is no text", PROTOCOL "}" ONE("\xff") TENSOR END, "",
	    "\"?\": a tensor whose key is no text in UTF-8"),
	ROW("a list that holds itself", BEGIN "]q\0h\0a" END, "",
	    "w.0: an object that holds itself"),
};

static void join(char *to, size_t room, size_t *n, const char *first, const char *second)
{
	*n += (size_t)snprintf(to + *n, room - *n, "%s%s%s", *n > 0 ? "; " : "", first, second);
}

static int parse_lenient(const void *pickle, size_t n, struct hoist__manifest **ret)
{
	struct model model;
	model_begin(&model, pickle, n);
	archive_end(&model.archive, "");
	int err = parse_as(&model.archive, true, ret);
	archive_free(&model.archive);
	return err;
}

Test(torch_skip, what_is_no_tensor_is_listed_and_the_rest_is_read)
{
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		char tensors[256] = "";
		char skipped[1024] = "";
		char reason[512];
		size_t n = 0;
		struct hoist__manifest *manifest = NULL;
		cr_assert_eq(parse_lenient(rows[i].pickle, rows[i].n, &manifest), 0, "%s: %s",
			     rows[i].what, hoist__error_text());
		for (size_t t = 0; t < manifest->n_tensors; t++)
			join(tensors, sizeof tensors, &n,
			     manifest->tensors[manifest->by_name[t]].name, "");
		n = 0;
		for (size_t s = 0; s < manifest->n_skipped; s++) {
			snprintf(reason, sizeof reason, ": %s", manifest->skipped[s].reason);
			join(skipped, sizeof skipped, &n, manifest->skipped[s].name, reason);
		}
		cr_expect_str_eq(tensors, rows[i].tensors, "%s: %s", rows[i].what, tensors);
		cr_expect_str_eq(skipped, rows[i].skipped, "%s: %s", rows[i].what, skipped);
		cr_expect_eq(manifest->n_metadata, 0, "%s", rows[i].what);
		hoist__manifest_destroy(manifest);
		/* Where nothing is skipped, every row but the first is refused.  A state for a
		 * dict is refused, too, although a lenient reader lists nothing. */
		manifest = NULL;
		if (i != 0)
			cr_expect_lt(parse_pickle(rows[i].pickle, rows[i].n, &manifest, NULL), 0,
				     "%s", rows[i].what);
		hoist__manifest_destroy(manifest);
	}
}

/* A lenient reader refuses broken files, too, and instructions that are unknown. */
Test(torch_skip, broken_files_are_refused)
{
	static const struct {
		const char *pickle;
		size_t n;
		int err;
	} broken[] = {
#define BROKEN(pickle, err) {pickle, sizeof(pickle) - 1, err}
		BROKEN(BEGIN "Q" END, -EBADMSG),
		BROKEN(BEGIN V2 "(" FLOATS "K\5K\2K\3\x86K\3K\1\x86" HOOKS "tR" END, -EBADMSG),
		BROKEN(BEGIN "N(K\1\x90" END, -EBADMSG),
		BROKEN(BEGIN "K\1)\x81" END, -EBADMSG),
		BROKEN(BEGIN GLOBAL("net", "Net") "\x81" END, -EBADMSG),
		BROKEN(PROTOCOL "(i", -ENOTSUP),
	};
	for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
		struct hoist__manifest *manifest = NULL;
		cr_expect_eq(parse_lenient(broken[i].pickle, broken[i].n, &manifest), broken[i].err,
			     "%zu: %s", i, hoist__error_text());
		cr_expect_null(manifest);
	}
}

static void put_key(struct bytes *pickle, int i)
{
	char key[16];
	snprintf(key, sizeof key, "\x8c\4%04d", i);
	put_text(pickle, key);
}

/* A pickle of 1,000 states of 1,000 objects each must not list a million values. */
Test(torch_skip, the_list_is_bounded)
{
	struct bytes pickle = {0};
	struct hoist__manifest *manifest = NULL;
	PUT(&pickle, PROTOCOL "}(" ONE("a") NET "q\0}(");
	for (int i = 0; i < 1000; i++) {
		put_key(&pickle, i);
		PUT(&pickle, NET);
	}
	PUT(&pickle, "ub");
	for (int i = 0; i < 1000; i++) {
		put_key(&pickle, i);
		PUT(&pickle, "h\0");
	}
	PUT(&pickle, "u.");
	cr_expect_eq(parse_lenient(pickle.p, pickle.n, &manifest), -EBADMSG);
	cr_expect_null(manifest);
	expect_text("the same ones are in many places");
	bytes_free(&pickle);
}

/* Work that one object causes in many places counts as memory does. */
Test(torch_skip, work_is_bounded)
{
	static const char *const attributes[] = {"\x8f", "}"};
	struct hoist__manifest *manifest = NULL;
	/* An object of 50,000 attributes that are passed over, or empty, in 50,000 places. */
	for (size_t i = 0; i < 2; i++) {
		struct bytes pickle = {0};
		PUT(&pickle, PROTOCOL "](");
		put_text(&pickle, attributes[i]);
		PUT(&pickle, "q\0" BUFFERS "q\1" NET "q\2(");
		for (int n = 0; n < 50000; n++)
			PUT(&pickle, "h\1h\0");
		PUT(&pickle, "u");
		for (int n = 0; n < 50000; n++)
			PUT(&pickle, "h\2");
		PUT(&pickle, "e.");
		cr_expect_eq(parse_lenient(pickle.p, pickle.n, &manifest), -EBADMSG);
		expect_text("the same ones are in many places");
		bytes_free(&pickle);
	}
	/* A key of 100,000 bytes that is no UTF-8, above 10,000 values that are listed. */
	struct bytes pickle = {0};
	PUT(&pickle, PROTOCOL "}X");
	put_number(&pickle, 100000, 4);
	repeat(&pickle, "n", 99999);
	PUT(&pickle, "\xff](");
	for (int n = 0; n < 10000; n++)
		PUT(&pickle, "\x8f");
	PUT(&pickle, "es.");
	cr_expect_eq(parse_lenient(pickle.p, pickle.n, &manifest), -EBADMSG);
	expect_text("the same ones are in many places");
	bytes_free(&pickle);
	cr_expect_null(manifest);
}

/* Members of an Enum stand in many places of a training's history. */
Test(torch_skip, an_object_in_many_places_is_one_row)
{
	struct bytes pickle = {0};
	struct hoist__manifest *manifest = NULL;
	PUT(&pickle, PROTOCOL "](" NET "q\0e");
	for (int batch = 0; batch < 100; batch++) {
		PUT(&pickle, "(");
		for (int n = 0; n < 1000; n++)
			PUT(&pickle, "h\0");
		PUT(&pickle, "e");
	}
	PUT(&pickle, ".");
	cr_assert_eq(parse_lenient(pickle.p, pickle.n, &manifest), 0, "%s", hoist__error_text());
	cr_expect_eq(manifest->n_skipped, 1);
	hoist__manifest_destroy(manifest);
	bytes_free(&pickle);
}

/* PyTorch before 1.6 wrote a pickle without an archive. */
Test(torch_skip, an_old_file_is_listed_as_a_whole)
{
	struct bytes old = {0};
	struct hoist__manifest *manifest = NULL;
	enum hoist__format format = HOIST__N_FORMATS;
	put(&old,
	    "\x80\2\x8a\nl\xfc\x9c"
	    "F\xf9 j\xa8P\x19.",
	    15);
	struct hoist__reader reader = reader_of(&old, "old.pt");
	cr_expect_eq(hoist__format_detect(&reader, &format), -EBADMSG);
	reader.lenient = true;
	cr_assert_eq(hoist__format_detect(&reader, &format), 0);
	cr_assert_eq(format, HOIST__TORCH);
	cr_assert_eq(hoist__format_parse(&reader, format, &manifest), 0);
	cr_expect_eq(manifest->n_tensors, 0);
	cr_assert_eq(manifest->n_skipped, 1);
	cr_expect_str_eq(manifest->skipped[0].name, "");
	cr_expect(strstr(manifest->skipped[0].reason, "as PyTorch before 1.6") != NULL);
	hoist__manifest_destroy(manifest);
	bytes_free(&old);
}
