/* SPDX-License-Identifier: MIT */
/* model.safetensors.index.json: its rules, and the tensors that a shard must hold. */
#include "config.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/format.h"

#define FILE_NAME "model.safetensors.index.json"

static int parse_bytes(const char *json, size_t n, struct hoist__index **ret)
{
	/* A block of its exact size, so that a sanitizer sees a read beyond it. */
	char *copy = malloc(n > 0 ? n : 1);
	cr_assert_not_null(copy);
	memcpy(copy, json, n);
	int err = hoist__index_parse(FILE_NAME, copy, n, ret);
	free(copy);
	return err;
}

static struct hoist__index *parse(const char *json)
{
	struct hoist__index *index = NULL;
	int err = parse_bytes(json, strlen(json), &index);
	cr_assert_eq(err, 0, "%s: %s", json, hoist_error());
	return index;
}

/* A shard's manifest with these tensors, each of one byte. */
static struct hoist__manifest *make_shard(const char *const *names, size_t n)
{
	unsigned char header[1024] = {0};
	char *json = (char *)header + 8;
	size_t used = (size_t)sprintf(json, "{");
	for (size_t i = 0; i < n; i++)
		used += (size_t)sprintf(
			json + used,
			"%s\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
			i > 0 ? "," : "", names[i], i, i + 1);
	used += (size_t)sprintf(json + used, "}");
	header[0] = (unsigned char)used;
	header[1] = (unsigned char)(used >> 8);
	struct hoist__manifest *manifest = NULL;
	cr_assert_eq(hoist__safetensors_parse("shard", header, 8 + used, 8 + used + n, &manifest),
		     0);
	return manifest;
}

#define X "{\"weight_map\":{\"x\":"
#define TENSOR_X "tensor \"x\": "
#define EMPTY TENSOR_X "the name of its shard is empty (byte 19)"
#define LEAVES(shard) TENSOR_X "its shard \"" shard "\" leaves the index's folder (byte 19)"

static const struct refused {
	const char *json;
	const char *message;
} refused[] = {
	{"", "the index is not an object (byte 0)"},
	{"[]", "the index is not an object (byte 0)"},
	{"{}", "it is JSON, but no index: the key \"weight_map\" is missing; name the folder, a "
	       "file of tensors, or their index (NAME.index.json) (byte 0)"},
	{"{\"weight_map\":null}", "\"weight_map\" is not an object (byte 14)"},
	{"{\"weight_map\":{}", "not valid JSON: expected ',' or '}', but it ends (byte 16)"},
	{"{\"weight_map\":{}}]",
	 "not valid JSON: expected nothing but spaces behind the last '}', found ']' (byte 17)"},
	{"{\"weight_map\":{},\"weight_map\":{}}", "\"weight_map\" comes twice (byte 17)"},
	{"{\"metadata\":{},\"metadata\":{}}", "\"metadata\" comes twice (byte 15)"},
	{"{\"metadata\":[]}", "\"metadata\" is not an object (byte 12)"},
	{"{\"metadata\":{\"a\":1,\"a\":2},\"weight_map\":{}}",
	 "metadata: the key \"a\" comes twice (byte 19)"},
	{"{\"weight_map\":{\"\":\"a\"}}", "a tensor's name is empty (byte 15)"},
	{"{\"weight_map\":{\"\\u0000\":\"a\"}}", "a tensor's name holds a NUL character (byte 15)"},
	{X "1}}", TENSOR_X "the name of its shard is not a string (byte 19)"},
	{X "\"\"}}", EMPTY},
	{X "\".\"}}", EMPTY},
	{X "\".//./\"}}", EMPTY},
	{X "\"a\\u0000\"}}", TENSOR_X "the name of its shard holds a NUL character (byte 19)"},
	{X "\"/etc/passwd\"}}", LEAVES("/etc/passwd")},
	{X "\"..\"}}", LEAVES("..")},
	{X "\"../a\"}}", LEAVES("../a")},
	{X "\"a/../b\"}}", LEAVES("a/../b")},
	{X "\"a/..\"}}", LEAVES("a/..")},
	{X "\"a//..\"}}", LEAVES("a//..")},
	{X "\"\\u002e./a\"}}", LEAVES("../a")},
	{X "\"a\",\"y\":\"a\",\"x\":\"b\"}}", TENSOR_X "the name comes twice (byte 31)"},
};

Test(format_index, every_rule_has_a_message_with_file_tensor_and_byte)
{
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		char expected[512];
		struct hoist__index *index = NULL;
		snprintf(expected, sizeof expected, FILE_NAME ": %s", refused[i].message);
		cr_expect_eq(parse_bytes(refused[i].json, strlen(refused[i].json), &index),
			     -EBADMSG, "%s", refused[i].json);
		cr_expect_null(index);
		cr_expect_str_eq(hoist_error(), expected);
	}
}

Test(format_index, names_that_only_look_like_leaving_are_accepted)
{
	struct hoist__index *index = parse(
		"{\"weight_map\":{\"x\":\"..a\",\"y\":\"a..\",\"z\":\"sub/...\",\"w\":\"./m\"}}");
	cr_expect_eq(index->n_files, 4);
	hoist__index_destroy(index);
}

Test(format_index, files_and_tensors_are_in_the_order_of_their_names)
{
	struct hoist__index *index = parse(
		"{\"metadata\":{\"total_size\":12345678901234567890,\"f\":-1.5e3,\"s\":\"\\u00e9\","
		"\"b\":true,\"n\":null,\"o\":{\"p\":[1]},\"a\":[]},"
		"\"other\":[{}],"
		"\"weight_map\":{\"t3\":\"m-2\",\"t1\":\"m-2\",\"t2\":\"m-1\",\"t10\":\"m-3\"}}");
	cr_assert_eq(index->n_files, 3);
	cr_expect_str_eq(index->files[0], "m-1");
	cr_expect_str_eq(index->files[1], "m-2");
	cr_expect_str_eq(index->files[2], "m-3");
	static const struct hoist__index_entry expected[] = {
		{"t1", 1}, {"t10", 2}, {"t2", 0}, {"t3", 1}};
	cr_assert_eq(index->n_entries, 4);
	for (size_t i = 0; i < 4; i++) {
		cr_expect_str_eq(index->entries[i].tensor, expected[i].tensor);
		cr_expect_eq(index->entries[i].file, expected[i].file);
	}
	static const struct hoist__metadata pairs[] = {{"total_size", "12345678901234567890"},
						       {"f", "-1.5e3"},
						       {"s", "\xc3\xa9"},
						       {"b", "true"}};
	cr_assert_eq(index->n_metadata, 4);
	for (size_t i = 0; i < 4; i++) {
		cr_expect_str_eq(index->metadata[i].key, pairs[i].key);
		cr_expect_str_eq(index->metadata[i].value, pairs[i].value);
	}
	hoist__index_destroy(index);
}

Test(format_index, an_index_without_tensors_is_valid)
{
	struct hoist__index *index = parse(" {\"weight_map\":{},\"metadata\":null}\n");
	struct hoist__manifest *manifest = make_shard(NULL, 0);
	cr_expect_eq(index->n_files, 0);
	cr_expect_eq(index->n_entries, 0);
	hoist__manifest_destroy(manifest);
	hoist__index_destroy(index);
	hoist__index_destroy(NULL);
}

Test(format_index, two_spellings_of_a_shard_are_one_file)
{
	struct hoist__index *index =
		parse("{\"weight_map\":{\"a\":\"f/s\",\"b\":\"./f/s\",\"c\":\"f//s\",\"d\":"
		      "\"f/./s\",\"e\":\".//f/s/.\",\"g\":\".f/s\",\"h\":\"f./s\"}}");
	cr_assert_eq(index->n_files, 3);
	cr_expect_str_eq(index->files[0], ".f/s");
	cr_expect_str_eq(index->files[1], "f./s");
	cr_expect_str_eq(index->files[2], "f/s");
	for (size_t i = 0; i < index->n_entries; i++)
		cr_expect_eq(index->entries[i].file, i < 5 ? 2 : i - 5);
	hoist__index_destroy(index);
}

Test(format_index, a_shard_must_hold_the_tensors_that_the_index_lists)
{
	struct hoist__index *index =
		parse("{\"weight_map\":{\"a\":\"m-1\",\"b\":\"m-2\",\"c\":\"m-1\"}}");
	static const char *const more[] = {"c", "extra", "a", "b"};
	static const char *const less[] = {"b", "a"};
	static const char *const missing = FILE_NAME
		": tensor \"c\" is not in its shard m-1; the files do not belong together";
	bool named[4];
	struct hoist__manifest *manifest = make_shard(more, 4);
	cr_expect_eq(hoist__index_check(index, FILE_NAME, 0, manifest, named), 0);
	cr_expect(named[0] && !named[1] && named[2] && !named[3]);
	cr_expect_eq(hoist__index_check(index, FILE_NAME, 1, manifest, named), 0);
	cr_expect(!named[0] && !named[1] && !named[2] && named[3]);
	hoist__manifest_destroy(manifest);
	manifest = make_shard(less, 2);
	cr_expect_eq(hoist__index_check(index, FILE_NAME, 1, manifest, named), 0);
	cr_expect_eq(hoist__index_check(index, FILE_NAME, 0, manifest, named), -EBADMSG);
	cr_expect_str_eq(hoist_error(), missing);
	hoist__manifest_destroy(manifest);
	/* The first one that is not there is named, wherever it would be. */
	static const char *const all[] = {"a", "b", "c", "d", "e"};
	for (size_t i = 0; i < 5; i++) {
		const char *others[4];
		char expected[256];
		for (size_t k = 0; k < 4; k++)
			others[k] = all[k + (k >= i)];
		hoist__index_destroy(index);
		index = parse(
			"{\"weight_map\":{\"e\":\"m\",\"d\":\"m\",\"c\":\"m\",\"b\":\"m\",\"a\":"
			"\"m\"}}");
		manifest = make_shard(others, 4);
		snprintf(expected, sizeof expected, "tensor \"%s\" is not in its shard", all[i]);
		cr_expect_eq(hoist__index_check(index, FILE_NAME, 0, manifest, named), -EBADMSG);
		cr_expect_not_null(strstr(hoist_error(), expected), "%s", hoist_error());
		hoist__manifest_destroy(manifest);
	}
	hoist__index_destroy(index);
}

Test(format_index, no_changed_byte_lets_a_shard_leave_the_folder)
{
	static const char base[] =
		"{\"metadata\":{\"n\":1},\"weight_map\":{\"a\":\"x./m\",\"b\":\".x/m\"}}";
	const size_t n = sizeof base - 1;
	char json[sizeof base];
	size_t accepted = 0;
	for (size_t i = 0; i <= n; i++)
		for (int value = 0; value < 256; value++) {
			struct hoist__index *index = NULL;
			memcpy(json, base, sizeof json);
			json[i] = (char)value;
			/* The last round cuts instead of changing. */
			size_t bytes = i < n ? n : (size_t)value % n;
			int err = parse_bytes(json, bytes, &index);
			cr_assert(err == 0 || err == -EBADMSG);
			for (size_t k = 0; err == 0 && k < index->n_files; k++) {
				cr_assert_neq(index->files[k][0], '/');
				cr_assert_neq(index->files[k][0], '\0');
				cr_assert_neq(strncmp(index->files[k], "../", 3), 0);
			}
			accepted += err == 0;
			hoist__index_destroy(index);
		}
	cr_expect_gt(accepted, 256);
}

static int by_tensor(const void *a, const void *b)
{
	const struct hoist__index_entry *left = a;
	const struct hoist__index_entry *right = b;
	return strcmp(left->tensor, right->tensor);
}

Test(format_index, a_hundred_thousand_tensors_are_sorted_and_found)
{
	const size_t n = 100000;
	char *json = malloc(n * 40 + 64);
	cr_assert_not_null(json);
	size_t used = (size_t)sprintf(json, "{\"weight_map\":{");
	for (size_t i = 0; i < n; i++)
		used += (size_t)sprintf(json + used, "%s\"t.%zu\":\"m-%zu\"", i > 0 ? "," : "",
					i * 7919 % n, i % 5000);
	used += (size_t)sprintf(json + used, "}}");
	struct hoist__index *index = NULL;
	cr_assert_eq(parse_bytes(json, used, &index), 0, "%s", hoist_error());
	cr_expect_eq(index->n_files, 5000);
	cr_expect_eq(index->n_entries, n);
	for (size_t i = 0; i < n; i++) {
		char name[32];
		snprintf(name, sizeof name, "t.%zu", i * 7919 % n);
		const struct hoist__index_entry key = {.tensor = name};
		const struct hoist__index_entry *entry =
			bsearch(&key, index->entries, n, sizeof key, by_tensor);
		cr_assert_not_null(entry);
		snprintf(name, sizeof name, "m-%zu", i % 5000);
		cr_assert_str_eq(index->files[entry->file], name);
	}
	hoist__index_destroy(index);
	free(json);
}
