/* SPDX-License-Identifier: MIT */
/* format/safetensors.c - reads the header of a safetensors file.
 * The contract is in format/format.h.
 *
 * One walk over the header fills an entry for each tensor, and makes all checks of a tensor alone.
 * Then names are compared in order of name, and ranges in order of offset.  Sorting takes n log n
 * steps, whatever a file says.
 *
 * This reader is lenient where the format's own reader is: unknown keys of a tensor are passed
 * over, "__metadata__" may be null, and the tensors may come in any order.  Duplicate names, which
 * the format forbids and some readers let pass, are refused. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/format.h"
#include "format/little.h"
#include "format/manifest.h"
#include "format/quote.h"
#include "format/safetensors.h"

#define PREFIX_BYTES 8

/* A tensor while its header is read. */
struct entry {
	struct hoist__tensor tensor; /* its offset is relative to the data until the end */
	size_t key_at;		     /* position of its name in the header; also gives its rank
				      * there */
	size_t range_at;	     /* position of the value of data_offsets */
	size_t index;		     /* in the manifest */
};

struct reader {
	struct hoist__json json;
	struct hoist__manifest_box *box;
	uint64_t data_bytes; /* behind the header, by the file's size */
	struct entry *entries;
	size_t n;
	size_t room;
	struct entry **sorted;			 /* by range */
	struct entry **named;			 /* by name */
	struct hoist__safetensors_fields fields; /* of the tensor being read */
	struct hoist__metadata_list metadata;
	bool metadata_seen;
};

int hoist__safetensors_header_bytes(const char *file, const void *prefix, size_t n_prefix,
				    uint64_t file_bytes, size_t *ret)
{
	char name[HOIST__QUOTED_BYTES];
	(void)hoist__file_quoted(file, name);
	if (n_prefix < PREFIX_BYTES || file_bytes < PREFIX_BYTES)
		return hoist__fail(-EBADMSG,
				   "%s: a safetensors file begins with 8 bytes of header length, "
				   "but the file has %llu (byte 0)",
				   name, (unsigned long long)hoist__min_u64(n_prefix, file_bytes));
	uint64_t n = hoist__little(prefix, PREFIX_BYTES);
	if (n > HOIST__SAFETENSORS_MAX_HEADER)
		return hoist__fail(
			-EBADMSG,
			"%s: the header's length is %llu bytes, above the format's limit "
			"of %llu (byte 0); is this a safetensors file?",
			name, (unsigned long long)n,
			(unsigned long long)HOIST__SAFETENSORS_MAX_HEADER);
	if (n > file_bytes - PREFIX_BYTES)
		return hoist__fail(-EBADMSG,
				   "%s: the header's length is %llu bytes, but the file ends after "
				   "%llu bytes (byte 0)",
				   name, (unsigned long long)n, (unsigned long long)file_bytes);
	*ret = (size_t)(PREFIX_BYTES + n);
	return 0;
}

static int read_metadata(struct reader *r)
{
	struct hoist__json *json = &r->json;
	/* null stands for no metadata. */
	if (hoist__json_peek(json) == 'n')
		return hoist__json_skip(json);
	int err = hoist__json_open(json, '{', "\"__metadata__\"");
	if (err < 0)
		return err;
	int more;
	for (size_t n = 0; (more = hoist__json_next(json, '}', n)) > 0; n++) {
		struct hoist__json_string key;
		struct hoist__json_string value;
		struct hoist__metadata pair;
		size_t length;
		err = hoist__json_key(json, &key);
		if (err == 0 && hoist__json_peek(json) != '"') {
			char shown[HOIST__QUOTED_BYTES];
			return hoist__json_fail(json, json->at,
						"\"__metadata__\": the value of %s is not a string",
						hoist__quoted(key.raw, key.bytes, shown));
		}
		if (err == 0)
			err = hoist__json_string(json, "a string", &value);
		if (err == 0)
			err = hoist__keep_string(json, "a key of \"__metadata__\"", &key,
						 &r->box->arena, &pair.key, &length);
		if (err == 0)
			err = hoist__keep_string(json, "a value of \"__metadata__\"", &value,
						 &r->box->arena, &pair.value, &length);
		if (err == 0)
			err = hoist__metadata_push(&r->metadata, &pair, key.at);
		if (err < 0)
			return err;
	}
	return more;
}

static int read_tensor(struct reader *r, const struct hoist__json_string *name)
{
	struct hoist__json *json = &r->json;
	struct entry entry = {.key_at = name->at};
	if (name->bytes == 0)
		return hoist__json_fail(json, name->at, "a tensor's name is empty");
	int err = hoist__keep_string(json, "a tensor's name", name, &r->box->arena,
				     &entry.tensor.name, &entry.tensor.name_bytes);
	if (err < 0)
		return err;
	/* From here on every message names the tensor. */
	json->subject = entry.tensor.name;
	json->subject_bytes = entry.tensor.name_bytes;
	struct hoist__safetensors_fields *fields = &r->fields;
	err = hoist__safetensors_fields(json, name->at, r->data_bytes, fields);
	json->subject = NULL;
	if (err < 0)
		return err;
	entry.tensor.dtype = fields->dtype;
	entry.tensor.rank = fields->rank;
	entry.tensor.bytes = fields->bytes;
	entry.tensor.offset = (uint64_t)fields->begin;
	entry.range_at = fields->range_at;
	if (fields->rank > 0) {
		size_t bytes = (size_t)fields->rank * sizeof(int64_t);
		int64_t *shape = hoist__arena_alloc(&r->box->arena, bytes, sizeof *shape);
		if (shape == NULL)
			return hoist__fail_nomem("a tensor's shape", bytes);
		memcpy(shape, fields->shape, bytes);
		entry.tensor.shape = shape;
	}
	void *entries = r->entries;
	err = hoist__vector_grow(&entries, r->n, &r->room, sizeof entry, "the list of tensors");
	r->entries = entries;
	if (err == 0)
		r->entries[r->n++] = entry;
	return err;
}

static int read_header(struct reader *r)
{
	struct hoist__json *json = &r->json;
	/* The format's description demands this first byte; spaces may only follow the header. */
	if (json->bytes == 0 || json->text[0] != '{')
		return hoist__json_fail(json, 0, "the header does not begin with '{'");
	json->at = 1;
	int more;
	for (size_t n = 0; (more = hoist__json_next(json, '}', n)) > 0; n++) {
		struct hoist__json_string key;
		int err = hoist__json_key(json, &key);
		if (err < 0)
			return err;
		if (hoist__json_is(&key, "__metadata__")) {
			if (r->metadata_seen)
				return hoist__json_fail(json, key.at,
							"\"__metadata__\" comes twice");
			r->metadata_seen = true;
			err = read_metadata(r);
		} else {
			err = read_tensor(r, &key);
		}
		if (err < 0)
			return err;
	}
	return more < 0 ? more : hoist__json_end(json);
}

static int by_position(const struct entry *a, const struct entry *b)
{
	return (a->key_at > b->key_at) - (a->key_at < b->key_at);
}

static int by_name(const void *left, const void *right)
{
	const struct entry *a = *(const struct entry *const *)left;
	const struct entry *b = *(const struct entry *const *)right;
	int order = strcmp(a->tensor.name, b->tensor.name);
	return order != 0 ? order : by_position(a, b);
}

/* An empty tensor comes before one that begins at the same byte. */
static int by_range(const void *left, const void *right)
{
	const struct hoist__tensor *a = &(*(const struct entry *const *)left)->tensor;
	const struct hoist__tensor *b = &(*(const struct entry *const *)right)->tensor;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes ? -1 : 1;
	return by_position(*(const struct entry *const *)left, *(const struct entry *const *)right);
}

/* Fails on the range of @entry: "data_offsets [begin, end) <what>". */
static int fail_range(struct reader *r, const struct entry *entry, const char *format, ...)
	HOIST__PRINTF(3, 4);
static int fail_range(struct reader *r, const struct entry *entry, const char *format, ...)
{
	char what[256];
	va_list args;
	va_start(args, format);
	(void)vsnprintf(what, sizeof what, format, args);
	va_end(args);
	unsigned long long begin = entry->tensor.offset;
	r->json.subject = entry->tensor.name;
	r->json.subject_bytes = entry->tensor.name_bytes;
	return hoist__json_fail(&r->json, entry->range_at, "data_offsets [%llu, %llu) %s", begin,
				begin + entry->tensor.bytes, what);
}

/* Sorts.  Most files are in order already, by range or by name or both. */
static void sort(struct entry **entries, size_t n, int (*compare)(const void *, const void *))
{
	size_t i = 1;
	while (i < n && compare(&entries[i - 1], &entries[i]) <= 0)
		i++;
	if (i < n)
		qsort(entries, n, sizeof(struct entry *), compare);
}

static int check_names(struct reader *r)
{
	sort(r->named, r->n, by_name);
	for (size_t i = 1; i < r->n; i++)
		if (strcmp(r->named[i - 1]->tensor.name, r->named[i]->tensor.name) == 0) {
			r->json.subject = r->named[i]->tensor.name;
			r->json.subject_bytes = r->named[i]->tensor.name_bytes;
			return hoist__json_fail(&r->json, r->named[i]->key_at,
						"the name comes twice");
		}
	return 0;
}

/* Checks that the ranges follow each other without a gap from 0 to the file's end. */
static int check_ranges(struct reader *r)
{
	uint64_t end = 0;
	sort(r->sorted, r->n, by_range);
	for (size_t i = 0; i < r->n; i++) {
		const struct hoist__tensor *tensor = &r->sorted[i]->tensor;
		char shown[HOIST__QUOTED_BYTES];
		if (tensor->offset < end)
			return fail_range(r, r->sorted[i],
					  "overlap those of tensor %s, which end at %llu",
					  hoist__quoted(r->sorted[i - 1]->tensor.name,
							r->sorted[i - 1]->tensor.name_bytes, shown),
					  (unsigned long long)end);
		if (tensor->offset > end)
			return fail_range(r, r->sorted[i],
					  "leave a hole: no tensor has the bytes [%llu, %llu)",
					  (unsigned long long)end,
					  (unsigned long long)tensor->offset);
		end += tensor->bytes;
	}
	if (end == r->data_bytes)
		return 0;
	r->json.unit = "byte";
	return hoist__json_fail(&r->json, r->json.bytes + end,
				"the tensors hold %llu bytes of data, but %llu more follow them",
				(unsigned long long)end, (unsigned long long)(r->data_bytes - end));
}

/* Moves the entries into the manifest, in the order of r->sorted. */
static int fill_manifest(struct reader *r)
{
	struct hoist__manifest *manifest = &r->box->manifest;
	uint64_t data_offset = PREFIX_BYTES + r->json.bytes;
	manifest->data_offset = data_offset;
	int err = hoist__metadata_finish(&r->json, &r->metadata, &manifest->metadata,
					 &manifest->n_metadata);
	if (err < 0 || r->n == 0)
		return err;
	manifest->tensors = malloc(r->n * sizeof *manifest->tensors);
	manifest->by_name = malloc(r->n * sizeof *manifest->by_name);
	if (manifest->tensors == NULL || manifest->by_name == NULL)
		return hoist__fail_nomem("the list of tensors", r->n * sizeof *manifest->tensors);
	for (size_t i = 0; i < r->n; i++) {
		manifest->tensors[i] = r->sorted[i]->tensor;
		manifest->tensors[i].offset += data_offset;
		r->sorted[i]->index = i;
	}
	for (size_t i = 0; i < r->n; i++)
		manifest->by_name[i] = r->named[i]->index;
	manifest->n_tensors = r->n;
	return 0;
}

static int read_all(struct reader *r)
{
	int err = read_header(r);
	if (err < 0)
		return err;
	if (r->n > 0) {
		r->sorted = malloc(r->n * sizeof(struct entry *));
		r->named = malloc(r->n * sizeof(struct entry *));
		if (r->sorted == NULL || r->named == NULL)
			return hoist__fail_nomem("the order of tensors",
						 r->n * sizeof(struct entry *));
		for (size_t i = 0; i < r->n; i++)
			r->named[i] = r->sorted[i] = &r->entries[i];
		err = check_names(r);
	}
	if (err == 0)
		err = check_ranges(r);
	return err < 0 ? err : fill_manifest(r);
}

/* The length is checked again: the file may have changed since it was read. */
int hoist__safetensors_parse(const char *file, const void *header, size_t header_bytes,
			     uint64_t file_bytes, struct hoist__manifest **ret)
{
	size_t expected;
	int err =
		hoist__safetensors_header_bytes(file, header, header_bytes, file_bytes, &expected);
	if (err < 0)
		return err;
	if (expected != header_bytes) {
		char name[HOIST__QUOTED_BYTES];
		return hoist__fail(-EBADMSG,
				   "%s: the header was %zu bytes and is now %zu: the file changed "
				   "while it was read (byte 0)",
				   hoist__file_quoted(file, name), header_bytes, expected);
	}
	struct reader r = {
		.json = {.file = file,
			 .unit = "header byte",
			 .text = (const char *)header + PREFIX_BYTES,
			 .bytes = header_bytes - PREFIX_BYTES,
			 .base = PREFIX_BYTES},
		.data_bytes = file_bytes - header_bytes,
		.box = hoist__manifest_create(),
	};
	if (r.box == NULL)
		return -ENOMEM;
	err = read_all(&r);
	free(r.entries);
	free(r.sorted);
	free(r.named);
	hoist__metadata_drop(&r.metadata);
	if (err < 0)
		hoist__manifest_destroy(&r.box->manifest);
	else
		*ret = &r.box->manifest;
	return err;
}
