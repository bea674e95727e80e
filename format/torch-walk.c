/* SPDX-License-Identifier: MIT */
/* format/torch-walk.c - turns the saved object into named tensors, metadata and skipped values.
 * The contract is in format/torch.h.
 *
 * The depth of the walk is bounded, and so is its work: each visited value counts as memory does.
 * Otherwise a pickle of a hundred bytes could hold 2^64 names of one tensor. */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/number.h"
#include "base/utf8.h"
#include "format/manifest.h"
#include "format/quote.h"
#include "format/torch-skip.h"
#include "format/torch.h"
#include "hoist/number.h"

#define MAX_DEPTH 64
#define TOO_DEEP "dicts and lists nested more than 64 deep"

struct entry {
	struct hoist__tensor tensor;
	size_t order;
};

struct walk {
	struct hoist__torch_file *file;
	struct hoist__manifest_box *box;
	struct entry *entries;
	size_t n;
	size_t room;
	struct hoist__metadata_list metadata;
	struct hoist__torch_skips skips;
	char *path; /* of the value being visited: keys with '.' between them */
	size_t path_bytes;
	size_t path_room;
	int depth;
	int unnamed;  /* keys in the path that are neither text nor integers */
	int not_text; /* keys in the path that are not text, are indices, or name attributes */
};

/* --- names --- */

/* Refuses the value being visited; a lenient reader lists it. */
static int refuse(struct walk *w, int err, const char *what)
{
	char shown[HOIST__QUOTED_BYTES];
	if (w->file->pickle.lenient)
		return hoist__torch_skip(&w->skips, w->path, w->path_bytes, what);
	return hoist__fail(err, "%s: data.pkl: %s: %s", w->file->pickle.file,
			   hoist__quoted(w->path, w->path_bytes, shown), what);
}

static int push_name(struct walk *w, const char *name, size_t n)
{
	size_t wanted = w->path_bytes + n + 2;
	size_t room = wanted > w->path_room ? 2 * wanted : 0;
	int err = hoist__pickle_charge(&w->file->pickle, n + room);
	if (err < 0)
		return err;
	if (room > 0) {
		char *grown = realloc(w->path, room);
		if (grown == NULL)
			return hoist__fail_nomem("a name", room);
		w->path = grown;
		w->path_room = room;
	}
	if (w->depth > 1)
		w->path[w->path_bytes++] = '.';
	if (n > 0)
		memcpy(w->path + w->path_bytes, name, n);
	w->path_bytes += n;
	return 0;
}

/* --- tensors and metadata --- */

static int keep_shape(struct walk *w, const struct hoist__torch_tensor *from,
		      struct hoist__tensor *tensor)
{
	size_t bytes = (size_t)from->rank * sizeof(int64_t);
	bool strided = tensor->strides != NULL;
	if (from->rank == 0)
		return 0;
	int err = hoist__pickle_charge(&w->file->pickle, 2 * bytes);
	int64_t *numbers = NULL;
	if (err == 0)
		numbers = hoist__arena_alloc(&w->box->arena, (strided ? 2 : 1) * bytes, 8);
	if (numbers == NULL)
		return err < 0 ? err : hoist__fail_nomem("a shape", 2 * bytes);
	memcpy(numbers, from->shape, bytes);
	tensor->shape = numbers;
	if (strided) {
		memcpy(numbers + from->rank, from->strides, bytes);
		tensor->strides = numbers + from->rank;
	}
	return 0;
}

static int add_tensor(struct walk *w, const struct hoist__torch_tensor *from)
{
	struct entry entry = {.order = w->n};
	void *entries = w->entries;
	if (w->depth == 0 && w->path_bytes == 0) {
		int err = push_name(w, HOIST__TORCH_NAME, strlen(HOIST__TORCH_NAME));
		if (err < 0)
			return err;
	}
	/* The path may be long, and lead to many tensors. */
	int err = hoist__pickle_charge(&w->file->pickle, w->path_bytes);
	if (err < 0)
		return err;
	if (w->unnamed > 0 || w->path_bytes == 0)
		return refuse(w, -EBADMSG,
			      "a tensor whose key is neither text nor an integer, or is empty");
	if (hoist__utf8_text(w->path, w->path_bytes) < w->path_bytes)
		return refuse(w, -EBADMSG, "a tensor whose key is no text in UTF-8");
	/* Charge for four entries: the list grows by half while the old one still exists, and then
	 * becomes the manifest's, sorted. */
	err = hoist__pickle_charge(&w->file->pickle, 4 * sizeof entry + w->path_bytes + 1);
	if (err == 0)
		err = hoist__arena_text(&w->box->arena, w->path, w->path_bytes, "a name",
					&entry.tensor.name);
	if (err == 0) /* @entry.tensor keeps its name */
		err = hoist__torch_place(w->file, from, entry.tensor.name, &entry.tensor);
	if (err == -ENOTSUP && w->file->pickle.lenient)
		return hoist__torch_skip_failed(&w->skips, w->path, w->path_bytes);
	entry.tensor.name_bytes = w->path_bytes;
	if (err == 0)
		err = keep_shape(w, from, &entry.tensor);
	if (err == 0)
		err = hoist__vector_grow(&entries, w->n, &w->room, sizeof entry, "tensors");
	w->entries = entries;
	if (err == 0)
		w->entries[w->n++] = entry;
	return err;
}

/* Gives the text of a plain value, as Python prints it; *ret is @number if the text is made there.
 * False if the value is not plain. */
static bool text_of(const struct hoist__pickle_value *value, char number[HOIST__NUMBER_TEXT],
		    const char **ret, size_t *n)
{
	*ret = number;
	if (value->kind == HOIST__PICKLE_TEXT) {
		*ret = value->u.text;
		*n = value->n;
	} else if (value->kind == HOIST__PICKLE_FLOAT) {
		*n = hoist__number_text(
			(hoist_number){.kind = HOIST_NUMBER_F64, .as.f64 = value->u.real},
			(hoist_dtype)value->dtype, number);
	} else if (value->kind == HOIST__PICKLE_BOOL) {
		*n = (size_t)snprintf(number, HOIST__NUMBER_TEXT, "%s",
				      value->u.integer != 0 ? "True" : "False");
	} else if (value->kind == HOIST__PICKLE_INT) {
		*n = (size_t)snprintf(number, HOIST__NUMBER_TEXT, "%" PRId64, value->u.integer);
	} else {
		return false;
	}
	return true;
}

/* Texts that do not fit in a C string are passed over, as are values that are not plain. */
static int add_metadata(struct walk *w, const struct hoist__pickle_value *value)
{
	char number[HOIST__NUMBER_TEXT];
	const char *text;
	size_t n;
	struct hoist__metadata pair;
	if (w->not_text > 0 || w->depth == 0 || !text_of(value, number, &text, &n))
		return 0;
	/* Charge before looking: text and path may be long, and in many places. */
	int err = hoist__pickle_charge(&w->file->pickle,
				       HOIST__METADATA_BYTES + w->path_bytes + n + 2);
	if (err < 0 || hoist__utf8_text(w->path, w->path_bytes) < w->path_bytes ||
	    hoist__utf8_text(text, n) < n)
		return err;
	err = hoist__arena_text(&w->box->arena, w->path, w->path_bytes, "a name", &pair.key);
	if (err == 0)
		err = hoist__arena_text(&w->box->arena, text, n, "a value", &pair.value);
	return err == 0 ? hoist__metadata_push(&w->metadata, &pair, w->metadata.n) : err;
}

/* --- the walk --- */

static int visit(struct walk *w, const struct hoist__pickle_value *value);

/* Visits a value under its key (NULL: item @index of a list). */
static int visit_item(struct walk *w, const struct hoist__pickle_value *key, size_t index,
		      const struct hoist__pickle_value *value)
{
	char number[24] = "?";
	const char *name = number;
	size_t n = 1;
	size_t path_bytes = w->path_bytes;
	bool text = key != NULL && key->kind == HOIST__PICKLE_TEXT;
	bool named = text || key == NULL || key->kind == HOIST__PICKLE_INT;
	if (text) {
		name = key->u.text;
		n = key->n;
	} else if (named) {
		n = (size_t)snprintf(number, sizeof number, "%" PRId64,
				     key != NULL ? key->u.integer : (int64_t)index);
	}
	w->depth++;
	w->unnamed += !named;
	w->not_text += !text;
	int err = push_name(w, name, n);
	if (err == 0)
		err = visit(w, value);
	w->depth--;
	w->unnamed -= !named;
	w->not_text -= !text;
	w->path_bytes = path_bytes;
	return err;
}

static int visit_items(struct walk *w, const struct hoist__pickle_value *value)
{
	struct hoist__pickle_object *object = value->u.object;
	bool dict = value->kind == HOIST__PICKLE_DICT;
	size_t index = 0;
	int err = 0;
	if (object == NULL) /* the empty tuple */
		return 0;
	if (object->open)
		return refuse(w, -EBADMSG, "an object that holds itself");
	if (w->depth == MAX_DEPTH)
		return refuse(w, -EBADMSG, TOO_DEEP);
	object->open = true;
	for (const struct hoist__pickle_chunk *chunk = object->first; err == 0 && chunk != NULL;
	     chunk = chunk->next)
		for (size_t i = 0; err == 0 && i < chunk->n; i += dict ? 2 : 1)
			err = visit_item(w, dict ? &chunk->values[i] : NULL, index++,
					 &chunk->values[i + dict]);
	object->open = false;
	return err;
}

/* Visits an attribute of an opaque object: its name is no part of a path where it holds a module's
 * parts.  Passed over are sets, of which each module has one, as plain values are, and the list of
 * a recurrent module's parameters. */
static int visit_attribute(struct walk *w, const struct hoist__pickle_value *key,
			   const struct hoist__pickle_value *value)
{
	static const char *const parts[] = {"_parameters", "_buffers", "_modules"};
	/* Any number of places may refer to the object. */
	int err = hoist__pickle_charge(&w->file->pickle, HOIST__PICKLE_VISIT_BYTES);
	if (err < 0)
		return err;
	if (value->kind == HOIST__PICKLE_OPAQUE && value->u.opaque->what == hoist__torch_set)
		return 0;
	if (key->kind == HOIST__PICKLE_TEXT &&
	    hoist__torch_is(key->u.text, key->n, "_flat_weights"))
		return 0;
	if (key->kind == HOIST__PICKLE_TEXT && value->kind == HOIST__PICKLE_DICT)
		for (size_t i = 0; i < HOIST__ARRAY_SIZE(parts); i++)
			if (hoist__torch_is(key->u.text, key->n, parts[i]))
				return visit_items(w, value);
	return visit_item(w, key, 0, value);
}

/* Lists an opaque value where it is met first, and visits the state that it would have. */
static int visit_opaque(struct walk *w, struct hoist__torch_opaque *opaque)
{
	int err = 0;
	if (opaque->state.open) /* as a module's parts refer to the module */
		return 0;
	if (opaque->reason == NULL)
		err = hoist__torch_skip_opaque(&w->skips, w->path, w->path_bytes, opaque);
	if (err == 0 && w->depth == MAX_DEPTH && opaque->state.first != NULL)
		return refuse(w, -EBADMSG, TOO_DEEP);
	opaque->state.open = true;
	w->not_text++;
	for (const struct hoist__pickle_chunk *chunk = opaque->state.first;
	     err == 0 && chunk != NULL; chunk = chunk->next)
		for (size_t i = 0; err == 0 && i < chunk->n; i += 2)
			err = visit_attribute(w, &chunk->values[i], &chunk->values[i + 1]);
	w->not_text--;
	opaque->state.open = false;
	return err;
}

static int visit(struct walk *w, const struct hoist__pickle_value *value)
{
	int err = hoist__pickle_charge(&w->file->pickle, HOIST__PICKLE_VISIT_BYTES);
	if (err < 0)
		return err;
	switch (value->kind) {
	case HOIST__PICKLE_TENSOR:
		return add_tensor(w, value->u.tensor);
	case HOIST__PICKLE_LIST:
	case HOIST__PICKLE_TUPLE:
	case HOIST__PICKLE_DICT:
		return visit_items(w, value);
	case HOIST__PICKLE_OPAQUE:
		return visit_opaque(w, value->u.opaque);
	case HOIST__PICKLE_STORAGE:
		return refuse(w, -ENOTSUP, "a storage, which has no shape: save a tensor of it");
	default:
		return add_metadata(w, value);
	}
}

/* --- the manifest --- */

static int by_offset(const void *left, const void *right)
{
	const struct entry *a = left;
	const struct entry *b = right;
	if (a->tensor.offset != b->tensor.offset)
		return a->tensor.offset < b->tensor.offset ? -1 : 1;
	if (a->tensor.bytes != b->tensor.bytes)
		return a->tensor.bytes < b->tensor.bytes ? -1 : 1;
	return (a->order > b->order) - (a->order < b->order);
}

static int by_name(const void *left, const void *right)
{
	const struct entry *a = left;
	const struct entry *b = right;
	int order = strcmp(a->tensor.name, b->tensor.name);
	return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

/* Lists all tensors of one name but the first. */
static int drop_twins(struct walk *w)
{
	size_t n = 0;
	int err = 0;
	qsort(w->entries, w->n, sizeof *w->entries, by_name);
	for (size_t i = 0; err == 0 && i < w->n; i++) {
		const struct hoist__tensor *tensor = &w->entries[i].tensor;
		if (n > 0 && strcmp(w->entries[n - 1].tensor.name, tensor->name) == 0)
			err = hoist__torch_skip(&w->skips, tensor->name, tensor->name_bytes,
						"another tensor before it has the same name");
		else
			w->entries[n++] = w->entries[i];
	}
	w->n = n;
	return err;
}

static int fill_manifest(struct walk *w)
{
	struct hoist__manifest *manifest = &w->box->manifest;
	int err = hoist__metadata_finish(NULL, &w->metadata, &manifest->metadata,
					 &manifest->n_metadata);
	if (err == 0 && w->file->pickle.lenient && w->n > 1)
		err = drop_twins(w);
	if (err == 0)
		hoist__torch_skips_finish(&w->skips, manifest);
	manifest->data_offset = w->file->zip.directory_at;
	if (err < 0 || w->n == 0)
		return err;
	manifest->tensors = malloc(w->n * sizeof *manifest->tensors);
	if (manifest->tensors == NULL)
		return hoist__fail_nomem("the list of tensors", w->n * sizeof *manifest->tensors);
	qsort(w->entries, w->n, sizeof *w->entries, by_offset);
	for (size_t i = 0; i < w->n; i++)
		manifest->tensors[i] = w->entries[i].tensor;
	manifest->n_tensors = w->n;
	manifest->data_offset = manifest->tensors[0].offset;
	return hoist__manifest_names(w->file->pickle.file, manifest);
}

int hoist__torch_walk(struct hoist__torch_file *file, const struct hoist__pickle_value *object,
		      struct hoist__manifest **ret)
{
	struct walk w = {.file = file, .box = hoist__manifest_create()};
	if (w.box == NULL)
		return -ENOMEM;
	w.skips = (struct hoist__torch_skips){.file = file, .box = w.box};
	int err = visit(&w, object);
	if (err == 0)
		err = fill_manifest(&w);
	free(w.entries);
	free(w.skips.list);
	free(w.path);
	hoist__metadata_drop(&w.metadata);
	if (err < 0)
		hoist__manifest_destroy(&w.box->manifest);
	else
		*ret = &w.box->manifest;
	return err;
}
