/* SPDX-License-Identifier: MIT */
/* format/index.c - reads an index (model.safetensors.index.json and PyTorch's like it): which shard
 * holds which tensor.
 * The contract is in format/format.h.
 *
 * The pairs are collected as they come.  Then tensors and files are sorted by name, which puts a
 * name that comes twice next to its twin. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/list.h"
#include "base/order.h"
#include "format/format.h"
#include "format/manifest.h"
#include "format/quote.h"

/* One pair of weight_map. */
struct pair {
	const char *tensor;
	const char *file;
	size_t at; /* position of the tensor's name */
};

struct box {
	struct hoist__index index;
	struct hoist__arena arena;
};

struct reader {
	struct hoist__json json;
	struct box *box;
	struct pair *pairs;
	size_t n;
	size_t room;
	struct hoist__metadata_list metadata;
	bool map_seen;
	bool metadata_seen;
};

void hoist__index_destroy(struct hoist__index *index)
{
	if (index == NULL)
		return;
	struct box *box = HOIST__CONTAINER_OF(index, struct box, index);
	free(index->files);
	free(index->entries);
	free(index->of_file);
	free(index->first);
	free(index->metadata);
	hoist__arena_fini(&box->arena);
	free(box);
}

/* True if the path is relative and free of ".." components. */
static bool stays_inside(const char *path)
{
	if (path[0] == '/')
		return false;
	while (*path != '\0') {
		size_t length = strcspn(path, "/");
		if (length == 2 && path[0] == '.' && path[1] == '.')
			return false;
		path += length + (path[length] == '/');
	}
	return true;
}

/* Writes @path to @out without "." components and empty ones, so that one file has one name.  @out
 * NULL only measures.  Returns the length. */
static size_t simplify(const char *path, char *out)
{
	size_t n = 0;
	while (*path != '\0') {
		size_t length = strcspn(path, "/");
		if (length > 0 && !(length == 1 && path[0] == '.')) {
			size_t slash = n > 0;
			if (out != NULL && slash)
				out[n] = '/';
			if (out != NULL)
				memcpy(out + n + slash, path, length);
			n += slash + length;
		}
		path += length + (path[length] == '/');
	}
	if (out != NULL)
		out[n] = '\0';
	return n;
}

/* Checks the name of a shard, which is at @at, and simplifies it. */
static int check_shard_name(struct reader *r, size_t at, const char **name, size_t bytes)
{
	char shown[HOIST__QUOTED_BYTES];
	if (!stays_inside(*name))
		return hoist__json_fail(&r->json, at, "its shard %s leaves the index's folder",
					hoist__quoted(*name, bytes, shown));
	size_t n = simplify(*name, NULL);
	if (n == 0)
		return hoist__json_fail(&r->json, at, "the name of its shard is empty");
	if (n == bytes)
		return 0;
	char *simple = hoist__arena_alloc(&r->box->arena, n + 1, 1);
	if (simple == NULL)
		return hoist__fail_nomem("the name of a shard", n + 1);
	(void)simplify(*name, simple);
	*name = simple;
	return 0;
}

/* From the name on, `subject` makes every message name the tensor. */
static int read_pair(struct reader *r)
{
	struct hoist__json *json = &r->json;
	struct hoist__json_string key;
	struct hoist__json_string file;
	struct pair pair = {0};
	size_t bytes;
	int err = hoist__json_key(json, &key);
	if (err < 0)
		return err;
	if (key.bytes == 0)
		return hoist__json_fail(json, key.at, "a tensor's name is empty");
	err = hoist__keep_string(json, "a tensor's name", &key, &r->box->arena, &pair.tensor,
				 &bytes);
	if (err < 0)
		return err;
	pair.at = key.at;
	json->subject = pair.tensor;
	json->subject_bytes = bytes;
	if (hoist__json_peek(json) != '"')
		return hoist__json_fail(json, json->at, "the name of its shard is not a string");
	err = hoist__json_string(json, "a string", &file);
	if (err == 0)
		err = hoist__keep_string(json, "the name of its shard", &file, &r->box->arena,
					 &pair.file, &bytes);
	if (err == 0)
		err = check_shard_name(r, file.at, &pair.file, bytes);
	json->subject = NULL;
	void *pairs = r->pairs;
	if (err == 0)
		err = hoist__vector_grow(&pairs, r->n, &r->room, sizeof pair,
					 "the list of tensors");
	r->pairs = pairs;
	if (err == 0)
		r->pairs[r->n++] = pair;
	return err;
}

static int read_map(struct reader *r)
{
	int err = hoist__json_open(&r->json, '{', "\"weight_map\"");
	if (err < 0)
		return err;
	int more;
	for (size_t n = 0; (more = hoist__json_next(&r->json, '}', n)) > 0; n++) {
		err = read_pair(r);
		if (err < 0)
			return err;
	}
	return more;
}

/* Keeps one value of the metadata if it is a scalar: strings decoded, numbers and words as they
 * are. */
static int read_metadata_value(struct reader *r, const struct hoist__metadata *partial, size_t at)
{
	struct hoist__json *json = &r->json;
	struct hoist__metadata pair = *partial;
	struct hoist__json_string value;
	size_t n;
	char first = hoist__json_peek(json);
	int err;
	if (first == '"') {
		err = hoist__json_string(json, "a string", &value);
	} else {
		size_t begin = json->at;
		err = hoist__json_skip(json);
		value = (struct hoist__json_string){
			.raw = json->text + begin, .bytes = json->at - begin, .at = begin};
	}
	if (err < 0 || first == '{' || first == '[' || first == 'n')
		return err;
	err = hoist__keep_string(json, "a value of the metadata", &value, &r->box->arena,
				 &pair.value, &n);
	return err < 0 ? err : hoist__metadata_push(&r->metadata, &pair, at);
}

static int read_metadata(struct reader *r)
{
	struct hoist__json *json = &r->json;
	/* null stands for no metadata. */
	if (hoist__json_peek(json) == 'n')
		return hoist__json_skip(json);
	int err = hoist__json_open(json, '{', "\"metadata\"");
	if (err < 0)
		return err;
	int more;
	for (size_t n = 0; (more = hoist__json_next(json, '}', n)) > 0; n++) {
		struct hoist__json_string key;
		struct hoist__metadata pair = {0};
		size_t length;
		err = hoist__json_key(json, &key);
		if (err == 0)
			err = hoist__keep_string(json, "a key of the metadata", &key,
						 &r->box->arena, &pair.key, &length);
		if (err == 0)
			err = read_metadata_value(r, &pair, key.at);
		if (err < 0)
			return err;
	}
	return more;
}

/* Unknown keys are passed over, but the two known ones may come only once. */
static int read_index(struct reader *r)
{
	struct hoist__json *json = &r->json;
	int err = hoist__json_open(json, '{', "the index");
	if (err < 0)
		return err;
	int more;
	for (size_t n = 0; (more = hoist__json_next(json, '}', n)) > 0; n++) {
		struct hoist__json_string key;
		err = hoist__json_key(json, &key);
		if (err < 0)
			return err;
		bool *seen = hoist__json_is(&key, "weight_map") ? &r->map_seen
			     : hoist__json_is(&key, "metadata") ? &r->metadata_seen
								: NULL;
		if (seen != NULL && *seen)
			return hoist__json_fail(json, key.at, "\"%s\" comes twice",
						seen == &r->map_seen ? "weight_map" : "metadata");
		if (seen != NULL)
			*seen = true;
		err = seen == NULL	     ? hoist__json_skip(json)
		      : seen == &r->map_seen ? read_map(r)
					     : read_metadata(r);
		if (err < 0)
			return err;
	}
	if (more == 0)
		more = hoist__json_end(json);
	if (more == 0 && !r->map_seen)
		return hoist__json_fail(
			json, 0,
			"it is JSON, but no index: the key \"weight_map\" is missing; "
			"name the folder, a file of tensors, or their index "
			"(NAME.index.json)");
	return more;
}

static int by_tensor(const void *left, const void *right)
{
	const struct pair *a = left;
	const struct pair *b = right;
	int order = strcmp(a->tensor, b->tensor);
	return order != 0 ? order : (a->at > b->at) - (a->at < b->at);
}

static int check_names(struct reader *r)
{
	qsort(r->pairs, r->n, sizeof *r->pairs, by_tensor);
	for (size_t i = 1; i < r->n; i++)
		if (strcmp(r->pairs[i - 1].tensor, r->pairs[i].tensor) == 0) {
			r->json.subject = r->pairs[i].tensor;
			r->json.subject_bytes = strlen(r->pairs[i].tensor);
			return hoist__json_fail(&r->json, r->pairs[i].at, "the name comes twice");
		}
	return 0;
}

/* Fills `files` with every pair's shard, in order, each once. */
static int fill_files(struct reader *r)
{
	struct hoist__index *index = &r->box->index;
	index->files = malloc(r->n * sizeof *index->files);
	if (index->files == NULL)
		return hoist__fail_nomem("the list of shards", r->n * sizeof *index->files);
	for (size_t i = 0; i < r->n; i++)
		index->files[i] = r->pairs[i].file;
	qsort(index->files, r->n, sizeof *index->files, hoist__compare_texts);
	for (size_t i = 0; i < r->n; i++)
		if (index->n_files == 0 ||
		    strcmp(index->files[index->n_files - 1], index->files[i]) != 0)
			index->files[index->n_files++] = index->files[i];
	return 0;
}

/* Groups the entries by file: counts them, then puts them in their places. */
static int group_entries(struct hoist__index *index)
{
	index->first = calloc(index->n_files + 1, sizeof *index->first);
	index->of_file = malloc(index->n_entries * sizeof *index->of_file);
	size_t *next = malloc(index->n_files * sizeof *next);
	if (index->first == NULL || index->of_file == NULL || next == NULL) {
		free(next);
		return hoist__fail_nomem("the tensors of each shard",
					 index->n_entries * sizeof *index->of_file);
	}
	for (size_t i = 0; i < index->n_entries; i++)
		index->first[index->entries[i].file + 1]++;
	for (size_t f = 0; f < index->n_files; f++) {
		next[f] = index->first[f];
		index->first[f + 1] += index->first[f];
	}
	for (size_t i = 0; i < index->n_entries; i++)
		index->of_file[next[index->entries[i].file]++] = i;
	free(next);
	return 0;
}

/* Sorted pairs make the entries sorted; sorted files let each pair's file be found by bisection. */
static int fill_index(struct reader *r)
{
	struct hoist__index *index = &r->box->index;
	int err = hoist__metadata_finish(&r->json, &r->metadata, &index->metadata,
					 &index->n_metadata);
	if (err < 0 || r->n == 0)
		return err;
	err = check_names(r);
	if (err == 0)
		err = fill_files(r);
	if (err < 0)
		return err;
	index->entries = malloc(r->n * sizeof *index->entries);
	if (index->entries == NULL)
		return hoist__fail_nomem("the list of tensors", r->n * sizeof *index->entries);
	index->n_entries = r->n;
	for (size_t i = 0; i < r->n; i++) {
		const char **file = bsearch(&r->pairs[i].file, index->files, index->n_files,
					    sizeof *index->files, hoist__compare_texts);
		index->entries[i] = (struct hoist__index_entry){
			.tensor = r->pairs[i].tensor,
			.file = (size_t)(file - index->files),
		};
	}
	return group_entries(index);
}

int hoist__index_parse(const char *file, const void *json, size_t json_bytes,
		       struct hoist__index **ret)
{
	struct box *box = calloc(1, sizeof *box);
	if (box == NULL)
		return hoist__fail_nomem("an index", sizeof *box);
	struct reader r = {
		.json = {.file = file, .unit = "byte", .text = json, .bytes = json_bytes},
		.box = box,
	};
	int err = read_index(&r);
	if (err == 0)
		err = fill_index(&r);
	free(r.pairs);
	hoist__metadata_drop(&r.metadata);
	if (err < 0)
		hoist__index_destroy(&box->index);
	else
		*ret = &box->index;
	return err;
}

static int by_name(const void *name, const void *skipped)
{
	return strcmp(name, ((const struct hoist__skipped *)skipped)->name);
}

/* True if a lenient reader left the tensor out, or the whole file. */
static bool is_skipped(const struct hoist__manifest *manifest, const char *tensor)
{
	if (manifest->n_skipped == 0)
		return false;
	return manifest->skipped[0].name[0] == '\0' ||
	       bsearch(tensor, manifest->skipped, manifest->n_skipped, sizeof *manifest->skipped,
		       by_name) != NULL;
}

static const char *tensor_at(const struct hoist__index *index, size_t i)
{
	return index->entries[index->of_file[i]].tensor;
}

/* Marks the tensors that the index places in this file.  Both lists are ordered by name, so that
 * one walk is enough.
 * Returns: the place in of_file of the first missing tensor; first[f + 1] if there is none. */
static size_t mark_named(const struct hoist__index *index, size_t f,
			 const struct hoist__manifest *manifest, bool *named)
{
	const size_t end = index->first[f + 1];
	size_t missing = end;
	size_t i = index->first[f];
	for (size_t j = 0; j < manifest->n_tensors; j++) {
		const size_t t = manifest->by_name[j];
		int order = 1;
		for (; i < end; i++) {
			order = strcmp(tensor_at(index, i), manifest->tensors[t].name);
			if (order >= 0)
				break;
			if (missing == end && !is_skipped(manifest, tensor_at(index, i)))
				missing = i;
		}
		named[t] = i < end && order == 0;
		i += named[t];
	}
	for (; i < end && missing == end; i++)
		if (!is_skipped(manifest, tensor_at(index, i)))
			missing = i;
	return missing;
}

int hoist__index_check(const struct hoist__index *index, const char *index_file, size_t f,
		       const struct hoist__manifest *manifest, bool *named)
{
	size_t i = mark_named(index, f, manifest, named);
	if (i == index->first[f + 1])
		return 0;
	const char *missing = tensor_at(index, i);
	char tensor[HOIST__QUOTED_BYTES];
	char shard[HOIST__QUOTED_BYTES];
	char name[HOIST__QUOTED_BYTES];
	return hoist__fail(-EBADMSG,
			   "%s: tensor %s is not in its shard %s; the files do not belong together",
			   hoist__file_quoted(index_file, name),
			   hoist__quoted(missing, strlen(missing), tensor),
			   hoist__file_quoted(index->files[f], shard));
}
