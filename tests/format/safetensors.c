/* SPDX-License-Identifier: MIT */
/* The rules of the safetensors format, one by one. */
#include "config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/support/format-expect.h"

#define FILE_NAME "model.safetensors"

/* The bytes of a header in a block of its exact size, so that a sanitizer sees
 * a read beyond the end. */
static unsigned char *make_header(const char *json, size_t n)
{
	unsigned char *header = malloc(8 + n);
	cr_assert_not_null(header);
	for (int i = 0; i < 8; i++)
		header[i] = (unsigned char)((uint64_t)n >> (8 * i));
	memcpy(header + 8, json, n);
	return header;
}

static int parse_bytes(const char *json, size_t n, uint64_t data_bytes,
		       struct hoist__manifest **ret)
{
	unsigned char *header = make_header(json, n);
	int err = hoist__safetensors_parse(FILE_NAME, header, 8 + n, 8 + n + data_bytes, ret);
	free(header);
	return err;
}

static struct hoist__manifest *parse(const char *json, uint64_t data_bytes)
{
	struct hoist__manifest *manifest = NULL;
	int err = parse_bytes(json, strlen(json), data_bytes, &manifest);
	cr_assert_eq(err, 0, "%s: %s", json, hoist_error());
	cr_assert_not_null(manifest);
	return manifest;
}

static void expect_refused(const char *json, size_t n, uint64_t data_bytes, const char *expected)
{
	struct hoist__manifest *manifest = NULL;
	int err = parse_bytes(json, n, data_bytes, &manifest);
	cr_expect_eq(err, -EBADMSG, "%s: %d", json, err);
	cr_expect_null(manifest, "%s: the result was touched", json);
	cr_expect_str_eq(hoist_error(), expected);
	if (err == 0)
		hoist__manifest_destroy(manifest);
}

#define A "tensor \"a\": "
#define JSON "not valid JSON: "
#define OVERFLOWS " overflows: its elements or its bytes do not fit in 63 bits "
#define NO_PAIR "data_offsets is not a pair [begin, end) (header byte 29)"
/* Headers begin so. */
#define METADATA "{\"__metadata__\":"
#define U8 "{\"a\":{\"dtype\":\"U8\","
#define SHAPE "{\"a\":{\"shape\":"
#define OFFSETS "{\"a\":{\"data_offsets\":"
#define X "{\"a\":{\"x\":"

/* A wrong header, how many bytes of data the file has, and all of the message behind
 * "model.safetensors: ". */
static const struct refused {
	const char *json;
	uint64_t data_bytes;
	const char *message;
} refused[] = {
	/* the header as JSON */
	{"", 0, "the header does not begin with '{' (header byte 8)"},
	{" {}", 0, "the header does not begin with '{' (header byte 8)"},
	{"[]", 0, "the header does not begin with '{' (header byte 8)"},
	{"{", 0, JSON "expected a key in quotes, but it ends (header byte 9)"},
	{"{\"a", 0, JSON "a string that is never closed (header byte 9)"},
	{"{\"a\"", 0, JSON "expected ':' after a key, but it ends (header byte 12)"},
	{"{\"a\" 1", 0, JSON "expected ':' after a key, found '1' (header byte 13)"},
	{"{a:1}", 0, JSON "expected a key in quotes, found 'a' (header byte 9)"},
	{"{}x", 0,
	 JSON "expected nothing but spaces behind the last '}', found 'x' (header byte 10)"},
	{"{,}", 0, JSON "expected a key in quotes, found ',' (header byte 9)"},
	{U8 "}}", 0, A JSON "expected a key in quotes, found '}' (header byte 27)"},
	{"{\"a\":{\"dtype\":\"U8\" 1}}", 0,
	 A JSON "expected ',' or '}', found '1' (header byte 27)"},
	{X "tru}}", 0, A JSON "expected a value, found 't' (header byte 18)"},
	{X "01}}", 0, A JSON "a number begins with 0 (header byte 18)"},
	{X "-}}", 0, A JSON "expected a digit, found '}' (header byte 19)"},
	{X "1.}}", 0, A JSON "expected a digit after the point, found '}' (header byte 20)"},
	{X "1e+}}", 0, A JSON "expected a digit in the exponent, found '}' (header byte 21)"},
	{"{\"\x80\":1}", 0, "not valid UTF-8: byte 0x80 (header byte 10)"},
	{"{\"\xc0\xaf\":1}", 0, "not valid UTF-8: byte 0xc0 (header byte 10)"},
	{"{\"\xe0\x80\xaf\":1}", 0, "not valid UTF-8: byte 0xe0 (header byte 10)"},
	{"{\"\xf0\x80\x80\xaf\":1}", 0, "not valid UTF-8: byte 0xf0 (header byte 10)"},
	{"{\"\xed\xa0\x80\":1}", 0, "not valid UTF-8: byte 0xed (header byte 10)"},
	{"{\"\xf4\x90\x80\x80\":1}", 0, "not valid UTF-8: byte 0xf4 (header byte 10)"},
	{"{\"\xe2\x82", 0, "not valid UTF-8: byte 0xe2 (header byte 10)"},
	{"{\"a\nb\":1}", 0, JSON "control character 0x0a in a string (header byte 11)"},
	{"{\"\\x\":1}", 0, JSON "unknown escape in a string (header byte 10)"},
	{"{\"\\u12g4\":1}", 0, JSON "\\u is not followed by 4 hexadecimal digits (header byte 10)"},
	{"{\"\\ud800\":1}", 0, JSON "an escape is half a surrogate pair (header byte 10)"},
	{"{\"\\udc00\":1}", 0, JSON "an escape is half a surrogate pair (header byte 10)"},
	/* names */
	{"{\"\":{}}", 0, "a tensor's name is empty (header byte 9)"},
	{"{\"a\\u0000b\":{}}", 0, "a tensor's name holds a NUL character (header byte 9)"},
	{U8 "\"shape\":[0],\"data_offsets\":[0,0]},\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[0],"
	    "\"data_offsets\":[0,0]}}",
	 0, A "the name comes twice (header byte 61)"},
	/* __metadata__ */
	{METADATA "[]}", 0, "\"__metadata__\" is not an object (header byte 24)"},
	{METADATA "{\"step\":1}}", 0,
	 "\"__metadata__\": the value of \"step\" is not a string (header byte 32)"},
	{METADATA "{\"a\":\"\",\"a\":\"\"}}", 0,
	 "metadata: the key \"a\" comes twice (header byte 32)"},
	{METADATA "{},\"__metadata__\":{}}", 0, "\"__metadata__\" comes twice (header byte 27)"},
	{METADATA "{\"a\":\"\\u0000\"}}", 0,
	 "a value of \"__metadata__\" holds a NUL character (header byte 29)"},
	/* a tensor's keys */
	{"{\"a\":1}", 0, A "its description is not an object (header byte 13)"},
	{"{\"a\":{}}", 0, A "the key \"dtype\" is missing (header byte 9)"},
	{"{\"a\":{\"dtype\":\"U8\"}}", 0, A "the key \"shape\" is missing (header byte 9)"},
	{U8 "\"shape\":[]}}", 0, A "the key \"data_offsets\" is missing (header byte 9)"},
	{U8 "\"dtype\":\"U8\"}}", 0, A "the key \"dtype\" comes twice (header byte 27)"},
	/* dtype */
	{"{\"a\":{\"dtype\":8}}", 0, A "dtype is not a string (header byte 22)"},
	{"{\"a\":{\"dtype\":\"f32\"}}", 0, A "dtype \"f32\" is not known (header byte 22)"},
	{"{\"a\":{\"dtype\":\"\"}}", 0, A "dtype \"\" is not known (header byte 22)"},
	/* shape */
	{SHAPE "{}}}", 0, A "shape is not an array (header byte 22)"},
	{SHAPE "[-1]}}", 0, A "an extent of shape is negative (header byte 23)"},
	{SHAPE "[1, -0]}}", 0, A "an extent of shape is negative (header byte 26)"},
	{SHAPE "[2.0]}}", 0, A "an extent of shape is not an integer (header byte 23)"},
	{SHAPE "[1e2]}}", 0, A "an extent of shape is not an integer (header byte 23)"},
	{SHAPE "[true]}}", 0, A "an extent of shape is not a number (header byte 23)"},
	{SHAPE "[\"1\"]}}", 0, A "an extent of shape is not a number (header byte 23)"},
	{SHAPE "[[1]]}}", 0, A "an extent of shape is not a number (header byte 23)"},
	{SHAPE "[9223372036854775808]}}", 0,
	 A "an extent of shape does not fit in 63 bits (header byte 23)"},
	{U8 "\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
	 A "shape [4294967296, 4294967296] of u8" OVERFLOWS "(header byte 35)"},
	{U8 "\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
	 A "shape [0, 4294967296, 4294967296] of u8" OVERFLOWS "(header byte 35)"},
	{U8 "\"shape\":[0,4294967296,2147483648],\"data_offsets\":[0,0]}}", 0,
	 A "shape [0, 4294967296, 2147483648] of u8" OVERFLOWS "(header byte 35)"},
	{"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
	 A "shape [2305843009213693952] of f64" OVERFLOWS "(header byte 36)"},
	{"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2,
	 A "shape [3] of f4_e2m1fn is 12 bits, not a whole number of bytes (header byte 35)"},
	/* data_offsets */
	{OFFSETS "0}}", 0, A "data_offsets is not an array (header byte 29)"},
	{OFFSETS "[]}}", 0, A NO_PAIR},
	{OFFSETS "[0]}}", 0, A NO_PAIR},
	{OFFSETS "[0,1,2]}}", 0, A NO_PAIR},
	{OFFSETS "[-8,0]}}", 0, A "an offset of data_offsets is negative (header byte 30)"},
	{OFFSETS "[0,18446744073709551616]}}", 0,
	 A "an offset of data_offsets does not fit in 63 bits (header byte 32)"},
	{U8 "\"shape\":[2],\"data_offsets\":[4,2]}}", 2,
	 A "data_offsets [4, 2) end before they begin (header byte 54)"},
	{"{\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,10]}}", 10,
	 "tensor \"a.weight\": data_offsets [0, 10) are 10 bytes, but shape [2, 3] of f32 is 24 "
	 "(header byte 64)"},
	{U8 "\"shape\":[1,1,1,1,1,1,1,9],\"data_offsets\":[0,1]}}", 1,
	 A "data_offsets [0, 1) are 1 bytes, but shape [1, 1, 1, 1, 1, 1, ...] of u8 is 9 (header "
	   "byte 68)"},
	{U8 "\"shape\":[5],\"data_offsets\":[0,5]}}", 4,
	 A "data_offsets [0, 5) end beyond the file, which holds 4 bytes of data; is it "
	   "incomplete? (header byte 54)"},
	/* all ranges together */
	{U8 "\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_"
	    "offsets\":[3,7]}}",
	 7,
	 "tensor \"b\": data_offsets [3, 7) overlap those of tensor \"a\", which end at 4 (header "
	 "byte 106)"},
	{U8 "\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_"
	    "offsets\":[2,2]}}",
	 4,
	 "tensor \"b\": data_offsets [2, 2) overlap those of tensor \"a\", which end at 4 (header "
	 "byte 106)"},
	{U8 "\"shape\":[4],\"data_offsets\":[1,5]}}", 5,
	 A "data_offsets [1, 5) leave a hole: no tensor has the bytes [0, 1) (header byte 54)"},
	{"{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]},\"a\":{\"dtype\":\"U8\","
	 "\"shape\":[4],\"data_offsets\":[0,4]}}",
	 6,
	 "tensor \"b\": data_offsets [5, 6) leave a hole: no tensor has the bytes [4, 5) (header "
	 "byte 54)"},
	{U8 "\"shape\":[4],\"data_offsets\":[0,4]}}", 6,
	 "the tensors hold 4 bytes of data, but 2 more follow them (byte 65)"},
	{"{}", 1, "the tensors hold 0 bytes of data, but 1 more follow them (byte 10)"},
};

/* proves: V226 */
Test(format_safetensors, every_rule_has_a_message_with_file_tensor_and_byte)
{
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		char expected[512];
		snprintf(expected, sizeof expected, FILE_NAME ": %s", refused[i].message);
		expect_refused(refused[i].json, strlen(refused[i].json), refused[i].data_bytes,
			       expected);
	}
}

Test(format_safetensors, a_nul_byte_in_the_header_is_refused)
{
	static const char in_string[] = "{\"a\0b\":1}";
	static const char behind[] = "{}\0\0";
	expect_refused(in_string, sizeof in_string - 1, 0,
		       FILE_NAME ": not valid JSON: control character 0x00 in a string "
				 "(header byte 11)");
	expect_refused(behind, sizeof behind - 1, 0,
		       FILE_NAME ": not valid JSON: expected nothing but spaces behind the last "
				 "'}', found byte 0x00 (header byte 10)");
}

Test(format_safetensors, deep_nesting_is_refused_without_recursion_to_the_end)
{
	const size_t depth = 1000000;
	char *json = malloc(depth + 16);
	cr_assert_not_null(json);
	size_t n = (size_t)sprintf(json, "{\"a\":{\"x\":");
	memset(json + n, '[', depth);
	expect_refused(json, n + depth, 0,
		       FILE_NAME ": tensor \"a\": values are nested more than 64 deep "
				 "(header byte 82)");
	free(json);
}

Test(format_safetensors, more_axes_than_the_limit_are_refused)
{
	char json[512] = "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1";
	for (int i = 1; i < 64; i++)
		strcat(json, ",1");
	size_t n = strlen(json);
	strcpy(json + n, "]}}");
	struct hoist__manifest *manifest = parse(json, 1);
	cr_expect_eq(manifest->tensors[0].rank, 64);
	cr_expect_eq(manifest->tensors[0].shape[63], 1);
	hoist__manifest_destroy(manifest);
	strcpy(json + n, ",1]}}");
	expect_refused(json, strlen(json), 1,
		       FILE_NAME ": tensor \"a\": shape has more than 64 axes (header byte 56)");
}

Test(format_safetensors, a_valid_header_gives_its_tensors_in_order_of_their_bytes)
{
	struct hoist__manifest *manifest = parse(
		"{\"__metadata__\":{\"format\":\"pt\",\"a\":\"\\u00e9\\n\"},"
		"\"b\":{\"data_offsets\":[24,26],\"dtype\":\"BF16\",\"shape\":[]},"
		"\"e2\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[24,24],\"new\":"
		"[{\"k\":null}]},"
		"\"e1\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[24,24]},"
		"\"\\u0041\\ud83d\\ude00\":{\"\\u0064type\":\"F\\u00332\",\"shape\":[2,3],"
		"\"data_offsets\":[0,24]},"
		"\"f6\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[26,29]}} \n\t ",
		29);
	const char *names[] = {"A\xf0\x9f\x98\x80", "e2", "e1", "b", "f6"};
	uint64_t bytes[] = {24, 0, 0, 2, 3};
	cr_assert_eq(manifest->n_tensors, 5);
	uint64_t offset = manifest->data_offset;
	for (size_t i = 0; i < 5; i++) {
		const struct hoist__tensor *tensor = &manifest->tensors[i];
		cr_expect_str_eq(tensor->name, names[i]);
		cr_expect_eq(tensor->name_bytes, strlen(names[i]));
		cr_expect_eq(tensor->bytes, bytes[i]);
		cr_expect_eq(tensor->offset, offset);
		offset += bytes[i];
	}
	cr_expect_eq(manifest->tensors[0].dtype, HOIST_F32);
	cr_expect_eq(manifest->tensors[0].rank, 2);
	cr_expect_eq(manifest->tensors[0].shape[0], 2);
	cr_expect_eq(manifest->tensors[0].shape[1], 3);
	cr_expect_eq(manifest->tensors[3].rank, 0);
	cr_expect_null(manifest->tensors[3].shape);
	cr_assert_eq(manifest->n_metadata, 2);
	cr_expect_str_eq(manifest->metadata[0].key, "format");
	cr_expect_str_eq(manifest->metadata[0].value, "pt");
	cr_expect_str_eq(manifest->metadata[1].value, "\xc3\xa9\n");
	hoist__manifest_destroy(manifest);
}

Test(format_safetensors, no_tensors_and_null_metadata_are_a_valid_file)
{
	struct hoist__manifest *manifest = parse("{\"__metadata__\":null}", 0);
	cr_expect_eq(manifest->n_tensors, 0);
	cr_expect_eq(manifest->n_metadata, 0);
	hoist__manifest_destroy(manifest);
	hoist__manifest_destroy(NULL);
}

Test(format_safetensors, the_length_prefix_is_checked_before_anything_is_read)
{
	static const struct prefix {
		uint64_t n;
		size_t n_prefix;
		uint64_t file_bytes;
		const char *message;
	} bad[] = {
		{0, 0, 0,
		 ": a safetensors file begins with 8 bytes of header length, but the file has 0 "
		 "(byte 0)"},
		{0, 7, 7,
		 ": a safetensors file begins with 8 bytes of header length, but the file has 7 "
		 "(byte 0)"},
		{100000001, 8, UINT64_C(1) << 40,
		 ": the header's length is 100000001 bytes, above the format's limit of 100000000 "
		 "(byte 0); is this a safetensors file?"},
		{UINT64_MAX, 8, UINT64_MAX,
		 ": the header's length is 18446744073709551615 bytes, above the format's limit of "
		 "100000000 (byte 0); is this a safetensors file?"},
		{93, 8, 100,
		 ": the header's length is 93 bytes, but the file ends after 100 bytes (byte 0)"},
	};
	size_t bytes = 77;
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		cr_expect_eq(hoist__safetensors_header_bytes(FILE_NAME, &bad[i].n, bad[i].n_prefix,
							     bad[i].file_bytes, &bytes),
			     -EBADMSG);
		cr_expect_str_eq(hoist_error() + strlen(FILE_NAME), bad[i].message);
		cr_expect_eq(bytes, 77);
	}
	uint64_t n = 92;
	cr_expect_eq(hoist__safetensors_header_bytes(FILE_NAME, &n, 8, 100, &bytes), 0);
	cr_expect_eq(bytes, 100);
	n = 100000000;
	cr_expect_eq(hoist__safetensors_header_bytes(FILE_NAME, &n, 8, 100000008, &bytes), 0);
	cr_expect_eq(bytes, 100000008);
}

Test(format_safetensors, a_header_that_changed_between_two_reads_is_refused)
{
	unsigned char *header = make_header("{}  ", 4);
	struct hoist__manifest *manifest = NULL;
	header[0] = 2;
	cr_expect_eq(hoist__safetensors_parse(FILE_NAME, header, 12, 12, &manifest), -EBADMSG);
	cr_expect_not_null(strstr(hoist_error(), "changed while it was read"));
	cr_expect_null(manifest);
	free(header);
}

Test(format_safetensors, long_and_hostile_names_are_cut_and_escaped)
{
	char name[3001];
	for (size_t i = 0; i < 3000; i += 2)
		memcpy(name + i, "\xc3\xa4", 2);
	name[3000] = '\0';
	char json[4000];
	snprintf(json, sizeof json, "{\"%s\":1}", name);
	struct hoist__manifest *manifest = NULL;
	char file[3001 + 20];
	snprintf(file, sizeof file, "/%s/last.safetensors", name);
	unsigned char *header = make_header(json, strlen(json));
	size_t bytes = 8 + strlen(json);
	cr_expect_eq(hoist__safetensors_parse(file, header, bytes, bytes, &manifest), -EBADMSG);
	free(header);
	cr_expect_lt(strlen(hoist_error()), 420);
	cr_expect_eq(strncmp(hoist_error(), "...\xc3\xa4", 5), 0);
	cr_expect_not_null(strstr(hoist_error(), "/last.safetensors: tensor \"\xc3\xa4"));
	cr_expect_not_null(strstr(hoist_error(), "\xc3\xa4...\" (3000 bytes): its description"));

	const char *hostile = "{\"\\u001b[31m\\u0085\\\"\x7f\":1}";
	expect_refused(hostile, strlen(hostile), 0,
		       FILE_NAME
		       ": tensor \"\\u001b[31m\\u0085\\\"\\u007f\": its description is not "
		       "an object (header byte 31)");
}

/* The promises of any accepted header, however it was changed. */
static void check_manifest(const struct hoist__manifest *manifest, uint64_t file_bytes)
{
	uint64_t at = manifest->data_offset;
	for (size_t i = 0; i < manifest->n_tensors; i++) {
		const struct hoist__tensor *tensor = &manifest->tensors[i];
		uint64_t n = 1;
		size_t bytes = 0;
		cr_assert_eq(tensor->offset, at);
		cr_assert_gt(tensor->name_bytes, 0);
		cr_assert_eq(strlen(tensor->name), tensor->name_bytes);
		for (int axis = 0; axis < tensor->rank; axis++)
			n *= (uint64_t)tensor->shape[axis];
		cr_assert_eq(hoist_dtype_bytes(tensor->dtype, n, &bytes), 0);
		cr_assert_eq(bytes, tensor->bytes);
		at += bytes;
	}
	cr_assert_eq(at, file_bytes);
}

static const char mutant_base[] =
	"{\"__metadata__\":{\"format\":\"pt\"},"
	"\"a.w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
	"\"b\\u00e9\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[24,26]},"
	"\"\xc3\xa9\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[26,34]}}  ";

/* Another reader of JSON must agree: on what is no JSON, and on the names.  (Jansson
 * passes over some NUL bytes between values.) */
static void check_against_jansson(const char *json, size_t n,
				  const struct hoist__manifest *manifest)
{
	if (memchr(json, '\0', n) != NULL)
		return;
	bool malformed = manifest == NULL && strstr(hoist_error(), "not valid ") != NULL;
	json_t *tree = json_loadb(json, n, JSON_ALLOW_NUL, NULL);
	if (malformed)
		cr_assert_null(tree, "%.*s: %s", (int)n, json, hoist_error());
	if (manifest != NULL) {
		cr_assert_not_null(tree, "%.*s", (int)n, json);
		size_t metadata = json_object_get(tree, "__metadata__") != NULL;
		cr_assert_eq(json_object_size(tree) - metadata, manifest->n_tensors);
		for (size_t i = 0; i < manifest->n_tensors; i++)
			cr_assert_not_null(json_object_get(tree, manifest->tensors[i].name));
	}
	json_decref(tree);
}

static size_t try_mutant(const char *json, size_t n, uint64_t data_bytes)
{
	struct hoist__manifest *manifest = NULL;
	int err = parse_bytes(json, n, data_bytes, &manifest);
	check_against_jansson(json, n, manifest);
	if (err < 0) {
		cr_assert_eq(err, -EBADMSG);
		cr_assert_null(manifest);
		cr_assert_eq(strncmp(hoist_error(), FILE_NAME ": ", strlen(FILE_NAME) + 2), 0);
		return 0;
	}
	check_manifest(manifest, 8 + n + data_bytes);
	hoist__manifest_destroy(manifest);
	return 1;
}

Test(format_safetensors, no_changed_byte_makes_an_inconsistent_file_pass)
{
	const size_t n = sizeof mutant_base - 1;
	char json[sizeof mutant_base];
	size_t accepted = 0;
	cr_assert_eq(try_mutant(mutant_base, n, 34), 1);
	for (size_t i = 0; i < n; i++)
		for (int value = 0; value < 256; value++) {
			memcpy(json, mutant_base, sizeof json);
			json[i] = (char)value;
			accepted += try_mutant(json, n, 34);
		}
	/* Other names, other metadata and other types of the same size pass. */
	cr_expect_gt(accepted, n);
	cr_expect_lt(accepted, n * 64);
}

Test(format_safetensors, no_prefix_of_a_header_passes)
{
	const size_t n = sizeof mutant_base - 1;
	for (size_t i = 0; i < n - 2; i++) /* the last two bytes are padding */
		cr_expect_eq(try_mutant(mutant_base, i, 34), 0, "%zu bytes", i);
	for (uint64_t data = 0; data < 80; data++)
		cr_expect_eq(try_mutant(mutant_base, n, data), data == 34);
}

Test(format_safetensors, a_removed_or_doubled_byte_makes_no_inconsistent_file_pass)
{
	const size_t n = sizeof mutant_base - 1;
	char json[sizeof mutant_base + 1];
	for (size_t i = 0; i < n; i++) {
		memcpy(json, mutant_base, i);
		memcpy(json + i, mutant_base + i + 1, n - i - 1);
		try_mutant(json, n - 1, 34);
		memcpy(json, mutant_base, i + 1);
		memcpy(json + i + 1, mutant_base + i, n - i);
		try_mutant(json, n + 1, 34);
	}
}

Test(format_safetensors, a_hundred_thousand_tensors_in_any_order_are_sorted)
{
	const size_t n = 100000;
	size_t room = n * 120;
	char *json = malloc(room);
	cr_assert_not_null(json);
	size_t used = (size_t)sprintf(json, "{");
	for (size_t i = 0; i < n; i++) {
		size_t k = i * 7919 % n; /* a permutation: 7919 is prime to n */
		used += (size_t)sprintf(
			json + used,
			"%s\"model.layers.%zu.mlp.down_proj.weight\":{\"dtype\":\"BF16\","
			"\"shape\":[3,1],\"data_offsets\":[%zu,%zu]}",
			i > 0 ? "," : "", k, k * 6, k * 6 + 6);
	}
	used += (size_t)sprintf(json + used, "}");
	struct hoist__manifest *manifest = NULL;
	clock_t before = clock();
	cr_assert_eq(parse_bytes(json, used, n * 6, &manifest), 0, "%s", hoist_error());
	clock_t after = clock();
	cr_log_info("%zu bytes of header in %.0f ms", used,
		    (double)(after - before) * 1e3 / CLOCKS_PER_SEC);
	cr_assert_eq(manifest->n_tensors, n);
	check_manifest(manifest, 8 + used + n * 6);
	cr_expect_str_eq(manifest->tensors[77777].name, "model.layers.77777.mlp.down_proj.weight");
	hoist__manifest_destroy(manifest);
	free(json);
}
