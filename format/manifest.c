/* SPDX-License-Identifier: MIT */
/* format/manifest.c - fills and finishes manifests.
 * The contract is in format/format.h and format/manifest.h. */
#include "config.h"

#include "format/manifest.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/layout.h"
#include "base/list.h"
#include "base/utf8.h"
#include "format/quote.h"

struct hoist__manifest_box *hoist__manifest_create(void)
{
	struct hoist__manifest_box *box = calloc(1, sizeof *box);
	if (box == NULL)
		(void)hoist__fail_nomem("a manifest", sizeof *box);
	return box;
}

void hoist__manifest_destroy(struct hoist__manifest *manifest)
{
	if (manifest == NULL)
		return;
	struct hoist__manifest_box *box =
		HOIST__CONTAINER_OF(manifest, struct hoist__manifest_box, manifest);
	free(manifest->tensors);
	free(manifest->by_name);
	free(manifest->metadata);
	free(manifest->skipped);
	hoist__arena_fini(&box->arena);
	free(box->raw);
	free(box);
}

int hoist__manifest_rename(struct hoist__manifest *manifest, const char *name, size_t name_bytes)
{
	struct hoist__manifest_box *box =
		HOIST__CONTAINER_OF(manifest, struct hoist__manifest_box, manifest);
	char quoted[HOIST__QUOTED_BYTES];
	assert(manifest->n_tensors == 1);
	if (name_bytes == 0 || hoist__utf8_text(name, name_bytes) < name_bytes)
		return hoist__fail(-EINVAL, "no tensor can be called %s: a name is UTF-8",
				   hoist__quoted(name, name_bytes, quoted));
	manifest->tensors[0].name_bytes = name_bytes;
	return hoist__arena_text(&box->arena, name, name_bytes, "a tensor's name",
				 &manifest->tensors[0].name);
}

int hoist__keep_string(struct hoist__json *json, const char *what,
		       const struct hoist__json_string *string, struct hoist__arena *arena,
		       const char **ret, size_t *n)
{
	if (string->nul)
		return hoist__json_fail(json, string->at, "%s holds a NUL character", what);
	char *text = hoist__arena_alloc(arena, string->bytes + 1, 1);
	if (text == NULL)
		return hoist__fail_nomem(what, string->bytes + 1);
	*n = hoist__json_decode(string, text);
	*ret = text;
	return 0;
}

static int by_offset(const void *left, const void *right)
{
	const struct hoist__tensor *a = left;
	const struct hoist__tensor *b = right;
	if (a->offset != b->offset)
		return a->offset < b->offset ? -1 : 1;
	/* An empty tensor comes before the tensor that begins at the same byte. */
	return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int by_name(const void *left, const void *right)
{
	const struct hoist__tensor *const *a = left;
	const struct hoist__tensor *const *b = right;
	return strcmp((*a)->name, (*b)->name);
}

/* Pre: the tensors are in the order of their offsets, so that only neighbours can overlap. */
static int check_ranges(const char *file, const struct hoist__manifest *manifest)
{
	char name[HOIST__QUOTED_BYTES];
	for (size_t i = 1; i < manifest->n_tensors; i++) {
		const struct hoist__tensor *before = &manifest->tensors[i - 1];
		const struct hoist__tensor *tensor = &manifest->tensors[i];
		if (before->offset + before->bytes > tensor->offset)
			return hoist__fail(
				-EBADMSG,
				"%s: tensor %s begins at %llu, within the one before it, "
				"which ends at %llu",
				file, hoist__quoted(tensor->name, tensor->name_bytes, name),
				(unsigned long long)tensor->offset,
				(unsigned long long)(before->offset + before->bytes));
	}
	return 0;
}

/* Sorting puts equal names next to each other. */
int hoist__manifest_names(const char *file, struct hoist__manifest *manifest)
{
	const size_t n = manifest->n_tensors;
	char name[HOIST__QUOTED_BYTES];
	if (n == 0)
		return 0;
	const struct hoist__tensor **sorted = malloc(n * sizeof(void *));
	manifest->by_name = malloc(n * sizeof *manifest->by_name);
	if (sorted == NULL || manifest->by_name == NULL) {
		free(sorted);
		return hoist__fail_nomem("the order of names", n * sizeof(void *));
	}
	for (size_t i = 0; i < n; i++)
		sorted[i] = &manifest->tensors[i];
	qsort(sorted, n, sizeof(void *), by_name);
	int err = 0;
	for (size_t i = 0; err == 0 && i < n; i++) {
		manifest->by_name[i] = (size_t)(sorted[i] - manifest->tensors);
		if (i > 0 && strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
			err = hoist__fail(
				-EBADMSG, "%s: two tensors are called %s", file,
				hoist__quoted(sorted[i]->name, sorted[i]->name_bytes, name));
	}
	free(sorted);
	return err;
}

/* Most files have their tensors in this order already: then no sort is needed. */
static bool in_order(const struct hoist__manifest *manifest)
{
	for (size_t i = 1; i < manifest->n_tensors; i++)
		if (by_offset(&manifest->tensors[i - 1], &manifest->tensors[i]) > 0)
			return false;
	return true;
}

int hoist__manifest_order(const char *file, struct hoist__manifest *manifest)
{
	if (!in_order(manifest))
		qsort(manifest->tensors, manifest->n_tensors, sizeof *manifest->tensors, by_offset);
	int err = check_ranges(file, manifest);
	return err == 0 ? hoist__manifest_names(file, manifest) : err;
}

int hoist__tensor_bytes(hoist_dtype dtype, int rank, const int64_t *shape, uint64_t *ret)
{
	int64_t strides[HOIST__MAX_RANK];
	uint64_t elements;
	size_t bytes;
	/* The strides are computed only to refuse those that overflow: a shape with an extent of 0
	 * has no bytes, but strides. */
	int err = hoist__layout_c_strides(rank, shape, strides);
	if (err == 0)
		err = hoist__layout_elements(rank, shape, &elements);
	if (err == 0)
		err = hoist_dtype_bytes(dtype, elements, &bytes);
	if (err == 0)
		*ret = bytes;
	return err;
}

int hoist__vector_grow(void **items, size_t n, size_t *room, size_t size, const char *what)
{
	if (n < *room)
		return 0;
	/* Grow by half: the old and the new array may exist at the same time. */
	size_t wanted = *room == 0 ? 16 : *room + *room / 2;
	uint64_t bytes;
	void *grown = NULL;
	if (!hoist__mul_overflow(wanted, size, &bytes))
		grown = realloc(*items, bytes);
	if (grown == NULL)
		return hoist__fail_nomem(what, bytes);
	*items = grown;
	*room = wanted;
	return 0;
}

struct hoist__metadata_item {
	struct hoist__metadata pair;
	size_t at; /* position of the key */
};
_Static_assert(HOIST__METADATA_BYTES ==
		       2 * sizeof(struct hoist__metadata_item) + sizeof(struct hoist__metadata),
	       "what is charged for a pair is what it takes");

/* Pairs are collected in chunks that never move, so that a pair never takes more memory than
 * HOIST__METADATA_BYTES charges for it. */
struct hoist__metadata_chunk {
	struct hoist__metadata_chunk *next;
	size_t n;
	size_t room;
	struct hoist__metadata_item items[];
};

/* A chunk has at most twice as many items as there are, within these limits. */
#define LEAST_ITEMS 16
#define MOST_ITEMS 4096

static int add_chunk(struct hoist__metadata_list *list)
{
	size_t room = hoist__min_u64(hoist__max_u64(list->n, LEAST_ITEMS), MOST_ITEMS);
	struct hoist__metadata_chunk *chunk;
	size_t bytes = sizeof *chunk + room * sizeof *chunk->items;
	chunk = malloc(bytes);
	if (chunk == NULL)
		return hoist__fail_nomem("metadata", bytes);
	*chunk = (struct hoist__metadata_chunk){.room = room};
	if (list->last != NULL)
		list->last->next = chunk;
	else
		list->first = chunk;
	list->last = chunk;
	return 0;
}

int hoist__metadata_push(struct hoist__metadata_list *list, const struct hoist__metadata *pair,
			 size_t at)
{
	int err = list->last == NULL || list->last->n == list->last->room ? add_chunk(list) : 0;
	if (err < 0)
		return err;
	struct hoist__metadata_chunk *chunk = list->last;
	chunk->items[chunk->n++] = (struct hoist__metadata_item){.pair = *pair, .at = at};
	list->n++;
	return 0;
}

static int by_key(const void *left, const void *right)
{
	const struct hoist__metadata_item *a = *(const struct hoist__metadata_item *const *)left;
	const struct hoist__metadata_item *b = *(const struct hoist__metadata_item *const *)right;
	int order = strcmp(a->pair.key, b->pair.key);
	return order != 0 ? order : (a->at > b->at) - (a->at < b->at);
}

/* Finds a key that comes twice by sorting: comparing all pairs would take too long for a hostile
 * header of very many keys.  Equal keys are in the order of the file, so the error names the later
 * one. */
static int check_keys(const struct hoist__json *json, const struct hoist__metadata_list *list)
{
	const struct hoist__metadata_item **sorted = malloc(list->n * sizeof *sorted);
	if (sorted == NULL)
		return hoist__fail_nomem("the order of metadata", list->n * sizeof *sorted);
	size_t n = 0;
	for (const struct hoist__metadata_chunk *c = list->first; c != NULL; c = c->next)
		for (size_t i = 0; i < c->n; i++)
			sorted[n++] = &c->items[i];
	qsort(sorted, n, sizeof *sorted, by_key);
	int err = 0;
	for (size_t i = 1; i < n && err == 0; i++) {
		const char *key = sorted[i]->pair.key;
		char shown[HOIST__QUOTED_BYTES];
		if (strcmp(sorted[i - 1]->pair.key, key) == 0)
			err = hoist__json_fail(json, sorted[i]->at,
					       "metadata: the key %s comes twice",
					       hoist__quoted(key, strlen(key), shown));
	}
	free(sorted);
	return err;
}

int hoist__metadata_finish(const struct hoist__json *json, const struct hoist__metadata_list *list,
			   struct hoist__metadata **ret, size_t *n)
{
	if (list->n == 0)
		return 0;
	int err = json != NULL ? check_keys(json, list) : 0;
	if (err < 0)
		return err;
	struct hoist__metadata *pairs = malloc(list->n * sizeof *pairs);
	if (pairs == NULL)
		return hoist__fail_nomem("metadata", list->n * sizeof *pairs);
	*n = 0;
	for (const struct hoist__metadata_chunk *c = list->first; c != NULL; c = c->next)
		for (size_t i = 0; i < c->n; i++)
			pairs[(*n)++] = c->items[i].pair;
	*ret = pairs;
	return 0;
}

void hoist__metadata_drop(struct hoist__metadata_list *list)
{
	while (list->first != NULL) {
		struct hoist__metadata_chunk *next = list->first->next;
		free(list->first);
		list->first = next;
	}
	*list = (struct hoist__metadata_list){0};
}
