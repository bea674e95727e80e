/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint-tables.c - makes one table of tensors, and one of metadata, over all
 * files.
 * The contract is in lib/checkpoint/checkpoint.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "format/digest.h"
#include "format/quote.h"
#include "lib/checkpoint/checkpoint.h"

static int compare_by_name(const void *a, const void *b, void *context)
{
	const hoist_checkpoint *checkpoint = context;
	const struct hoist__checkpoint_tensor *first = &checkpoint->tensors[*(const size_t *)a];
	const struct hoist__checkpoint_tensor *second = &checkpoint->tensors[*(const size_t *)b];
	return strcmp(first->tensor->name, second->tensor->name);
}

/* Adds the tensors of one file.  If all of them are offered, the file's own order by name is
 * used. */
static int add_tensors(hoist_checkpoint *checkpoint, size_t f)
{
	const struct hoist__checkpoint_file *shard = &checkpoint->files[f];
	const struct hoist__manifest *manifest = shard->manifest;
	const size_t first = checkpoint->n_tensors;
	for (size_t t = 0; t < manifest->n_tensors; t++) {
		const struct hoist__tensor *tensor = &manifest->tensors[t];
		if (shard->named != NULL && !shard->named[t]) {
			char name[HOIST__QUOTED_BYTES];
			hoist__log(format, "%s: %s is not in the index; left out",
				   shard->file->path,
				   hoist__quoted(tensor->name, tensor->name_bytes, name));
			continue;
		}
		size_t n = checkpoint->n_tensors++;
		checkpoint->tensors[n] =
			(struct hoist__checkpoint_tensor){.tensor = tensor, .file = f};
		checkpoint->by_name[n] = n;
		/* Each tensor lies within its file, but their sum may pass 2^64. */
		if (hoist__add_overflow(checkpoint->bytes, tensor->bytes, &checkpoint->bytes))
			return hoist__fail(-EOVERFLOW, "the tensors' bytes do not fit in 64 bits");
	}
	if (checkpoint->n_tensors - first == manifest->n_tensors)
		for (size_t t = 0; t < manifest->n_tensors; t++)
			checkpoint->by_name[first + t] = first + manifest->by_name[t];
	return 0;
}

/* Checks whether by_name is in order.
 * Returns: 0; -EBADMSG if two files have the same name. */
static int check_order(const hoist_checkpoint *checkpoint, bool *ret)
{
	*ret = true;
	for (size_t i = 1; *ret && i < checkpoint->n_tensors; i++) {
		const struct hoist__checkpoint_tensor *a =
			&checkpoint->tensors[checkpoint->by_name[i - 1]];
		const struct hoist__checkpoint_tensor *b =
			&checkpoint->tensors[checkpoint->by_name[i]];
		int order = strcmp(a->tensor->name, b->tensor->name);
		if (order == 0) {
			char name[HOIST__QUOTED_BYTES];
			return hoist__fail(
				-EBADMSG, "tensor %s is in two files: %s and %s",
				hoist__quoted(a->tensor->name, a->tensor->name_bytes, name),
				checkpoint->files[a->file].file->path,
				checkpoint->files[b->file].file->path);
		}
		*ret = order < 0;
	}
	return 0;
}

/* --- digests --- */

static const char *digest_text(const struct hoist__manifest *manifest)
{
	for (size_t m = 0; m < manifest->n_metadata; m++)
		if (strcmp(manifest->metadata[m].key, HOIST__DIGEST_KEY) == 0)
			return manifest->metadata[m].value;
	return NULL;
}

bool hoist__checkpoint_holds_digests(const struct hoist__checkpoint_file *shard)
{
	return digest_text(shard->manifest) != NULL;
}

/* The digests that the manifest has; NULL: not one for each tensor. */
static const char *find_digests(const struct hoist__manifest *manifest)
{
	const char *text = digest_text(manifest);
	size_t n = text != NULL ? strlen(text) : 0;
	return text != NULL && n == manifest->n_tensors * HOIST__DIGEST_HEX &&
			       strspn(text, "0123456789abcdef") == n
		       ? text
		       : NULL;
}

int hoist__checkpoint_file_digest(const struct hoist__checkpoint_file *shard,
				  const struct hoist__tensor *tensor, const char **ret)
{
	const struct hoist__manifest *manifest = shard->manifest;
	const char *text = shard->digests;
	if (text != NULL) {
		*ret = text + (size_t)(tensor - manifest->tensors) * HOIST__DIGEST_HEX;
		return 0;
	}
	text = digest_text(manifest);
	if (text == NULL && shard->kept_is_old)
		return hoist__fail(-ENODATA,
				   "%s.xxh3 has no digests of %s as the file is now; `hoist digest "
				   "--keep` makes them",
				   shard->file->path, shard->file->path);
	if (text == NULL)
		return hoist__fail(-ENODATA,
				   "%s holds no digests; `hoist digest --keep` keeps them beside "
				   "the file, and `hoist cp --digest` makes a copy that holds them",
				   shard->file->path);
	return hoist__fail(-ENODATA,
			   "%s: metadata \"" HOIST__DIGEST_KEY
			   "\" is not %d lower-case hexadecimal digits for each of its %zu "
			   "tensors (it has %zu characters)",
			   shard->file->path, HOIST__DIGEST_HEX, manifest->n_tensors, strlen(text));
}

/* --- the tables --- */

int hoist__checkpoint_build_tensors(hoist_checkpoint *checkpoint)
{
	size_t most = 0;
	for (size_t f = 0; f < checkpoint->n_files; f++)
		most += checkpoint->files[f].manifest->n_tensors;
	checkpoint->tensors = calloc(most > 0 ? most : 1, sizeof *checkpoint->tensors);
	checkpoint->by_name = calloc(most > 0 ? most : 1, sizeof *checkpoint->by_name);
	if (checkpoint->tensors == NULL || checkpoint->by_name == NULL)
		return hoist__fail_nomem("a table of tensors", most * sizeof *checkpoint->tensors);
	int err = 0;
	for (size_t f = 0; err == 0 && f < checkpoint->n_files; f++) {
		struct hoist__checkpoint_file *shard = &checkpoint->files[f];
		shard->digests = shard->kept != NULL ? shard->kept : find_digests(shard->manifest);
		err = add_tensors(checkpoint, f);
	}
	bool in_order = false;
	if (err == 0)
		err = check_order(checkpoint, &in_order);
	if (err < 0 || in_order)
		return err;
	qsort_r(checkpoint->by_name, checkpoint->n_tensors, sizeof *checkpoint->by_name,
		compare_by_name, checkpoint);
	return check_order(checkpoint, &in_order);
}

/* Orders by key, then as gathered: the index's metadata comes before the files'. */
static int compare_metadata(const void *a, const void *b, void *context)
{
	const struct hoist__metadata *all = context;
	size_t first = *(const size_t *)a;
	size_t second = *(const size_t *)b;
	int order = strcmp(all[first].key, all[second].key);
	return order != 0 ? order : (first > second) - (first < second);
}

static size_t gather_metadata(const hoist_checkpoint *checkpoint, struct hoist__metadata *all)
{
	size_t n = 0;
	const struct hoist__index *index = checkpoint->index;
	for (size_t i = 0; index != NULL && i < index->n_metadata; i++)
		all[n++] = index->metadata[i];
	for (size_t f = 0; f < checkpoint->n_files; f++) {
		const struct hoist__manifest *manifest = checkpoint->files[f].manifest;
		for (size_t i = 0; i < manifest->n_metadata; i++)
			all[n++] = manifest->metadata[i];
	}
	return n;
}

/* Files often repeat the same pairs: equal pairs are next to each other after sorting, and each is
 * kept once.  Pairs of one key with different values are all kept. */
int hoist__checkpoint_build_metadata(hoist_checkpoint *checkpoint)
{
	size_t most = checkpoint->index != NULL ? checkpoint->index->n_metadata : 0;
	for (size_t f = 0; f < checkpoint->n_files; f++)
		most += checkpoint->files[f].manifest->n_metadata;
	if (most == 0)
		return 0;
	struct hoist__metadata *all = calloc(most, sizeof *all);
	size_t *order = calloc(most, sizeof *order);
	checkpoint->metadata = calloc(most, sizeof *checkpoint->metadata);
	int err = 0;
	if (all == NULL || order == NULL || checkpoint->metadata == NULL) {
		err = hoist__fail_nomem("metadata", most * sizeof *all);
	} else {
		size_t n = gather_metadata(checkpoint, all);
		for (size_t i = 0; i < n; i++)
			order[i] = i;
		qsort_r(order, n, sizeof *order, compare_metadata, all);
		for (size_t i = 0; i < n; i++) {
			const struct hoist__metadata *next = &all[order[i]];
			const struct hoist__metadata *last =
				&checkpoint->metadata[checkpoint->n_metadata -
						      (checkpoint->n_metadata > 0)];
			if (checkpoint->n_metadata == 0 || strcmp(last->key, next->key) != 0 ||
			    strcmp(last->value, next->value) != 0)
				checkpoint->metadata[checkpoint->n_metadata++] = *next;
		}
	}
	free(all);
	free(order);
	return err;
}
