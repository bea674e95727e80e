/* SPDX-License-Identifier: MIT */
/* tools/copy-tensors.c - the tensors of a copy.
 * The contract is in tools/copy-tensors.h. */
#include "config.h"

#include "tools/copy-tensors.h"

#include <fnmatch.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/selection.h"

/* A tensor of the copy. */
struct entry {
	size_t index; /* in the checkpoint */
	const char *name;
	char *renamed; /* NULL: it keeps its name */
};

struct entries {
	struct entry *entries;
	size_t n;
};

static const char *name_in_copy(const struct entry *entry)
{
	return entry->renamed != NULL ? entry->renamed : entry->name;
}

static void free_entries(struct entries *entries)
{
	for (size_t i = 0; i < entries->n; i++)
		free(entries->entries[i].renamed);
	free(entries->entries);
}

static int list(hoist_checkpoint *checkpoint, const struct selection *selection,
		struct entries *ret)
{
	size_t n = hoist_checkpoint_n_tensors(checkpoint);
	*ret = (struct entries){.entries = calloc(selection->n + 1, sizeof *ret->entries)};
	if (ret->entries == NULL)
		return fail_memory();
	for (size_t i = 0; i < n; i++) {
		hoist_tensor_info tensor = {.size = sizeof tensor};
		if (!selection_has(selection, i))
			continue;
		(void)hoist_checkpoint_tensor(checkpoint, i, &tensor);
		ret->entries[ret->n++] = (struct entry){.index = i, .name = tensor.name};
	}
	return STATUS_OK;
}

/* --- names --- */

static int by_name(const void *a, const void *b)
{
	return strcmp(name_in_copy(*(const struct entry *const *)a),
		      name_in_copy(*(const struct entry *const *)b));
}

/* Neighbours in the order of the new names tell whether two are equal. */
static int check_names(const struct entries *entries)
{
	const struct entry **sorted = calloc(entries->n + 1, sizeof *sorted);
	int status = STATUS_OK;
	if (sorted == NULL)
		return fail_memory();
	for (size_t i = 0; i < entries->n; i++)
		sorted[i] = &entries->entries[i];
	qsort(sorted, entries->n, sizeof *sorted, by_name);
	for (size_t i = 1; status == STATUS_OK && i < entries->n; i++)
		if (by_name(&sorted[i - 1], &sorted[i]) == 0)
			status =
				fail("--rename gives \"%s\" and \"%s\" one name, \"%s\"; give them "
				     "different ones, or leave one out with --exclude",
				     sorted[i - 1]->name, sorted[i]->name, name_in_copy(sorted[i]));
	free(sorted);
	return status;
}

static int rename_all(const struct args *args, struct entries *entries)
{
	const struct copy_args *given = &args->copy;
	for (size_t i = 0; given->n_renames > 0 && i < entries->n; i++) {
		struct entry *entry = &entries->entries[i];
		if (rename_apply(given->renames, given->n_renames, entry->name, &entry->renamed) !=
		    0)
			return fail_memory();
		if (entry->renamed[0] == '\0')
			return fail("--rename leaves nothing of the name \"%s\"", entry->name);
	}
	for (size_t r = 0; r < given->n_renames; r++)
		if (!given->renames[r].used)
			return fail("--rename %s matches the name of no tensor that is copied; see "
				    "`hoist ls`",
				    given->renames[r].whole);
	return given->n_renames > 0 ? check_names(entries) : STATUS_OK;
}

/* --- slices --- */

struct cut {
	size_t exact; /* the tensor that the slice's text is the name of; SIZE_MAX: it is a glob */
	bool used;
};

struct cuts {
	const hoist_load_slice *slices;
	size_t n;
	struct cut *cuts;
	hoist_load_slice *of_one; /* of the tensor that is added */
};

static int make_cuts(hoist_checkpoint *checkpoint, const struct args *args, struct cuts *ret)
{
	size_t n = args->load.n_slices;
	*ret = (struct cuts){
		.slices = args->load.slices,
		.n = n,
		.cuts = calloc(n + 1, sizeof *ret->cuts),
		.of_one = calloc(n + 1, sizeof *ret->of_one),
	};
	if (ret->cuts == NULL || ret->of_one == NULL)
		return fail_memory();
	for (size_t i = 0; i < n; i++)
		if (hoist_checkpoint_find(checkpoint, ret->slices[i].tensor, &ret->cuts[i].exact) !=
		    0)
			ret->cuts[i].exact = SIZE_MAX;
	return STATUS_OK;
}

static void free_cuts(struct cuts *cuts)
{
	free(cuts->cuts);
	free(cuts->of_one);
}

/* Gathers the slices of one tensor.  Returns: how many there are. */
static size_t cut_one(struct cuts *cuts, size_t index, const char *name)
{
	size_t n = 0;
	for (size_t i = 0; i < cuts->n; i++) {
		struct cut *cut = &cuts->cuts[i];
		bool means = cut->exact != SIZE_MAX ? cut->exact == index
						    : fnmatch(cuts->slices[i].tensor, name, 0) == 0;
		cut->used = cut->used || means;
		if (means)
			cuts->of_one[n++] = cuts->slices[i];
	}
	return n;
}

/* --- adding --- */

/* A quantised tensor is converted, too, or refused. */
static bool is_converted(hoist_dtype dtype)
{
	return dtype == HOIST_F32 || dtype == HOIST_F16 || dtype == HOIST_BF16 ||
	       hoist_dtype_bits(dtype) == 0;
}

static int add_one(hoist_save *save, hoist_checkpoint *checkpoint, const struct entry *entry,
		   const struct args *args, struct cuts *cuts, struct copy_tensors *ret)
{
	hoist_tensor_info tensor = {.size = sizeof tensor};
	(void)hoist_checkpoint_tensor(checkpoint, entry->index, &tensor);
	const hoist_save_tensor as = {
		.size = sizeof as,
		.name = entry->renamed,
		.dtype = args->load.dtype,
		.slices = cuts->of_one,
		.n_slices = cut_one(cuts, entry->index, entry->name),
	};
	int err = hoist_save_add_tensor_as(save, checkpoint, entry->index, &as);
	if (err != 0)
		return fail_call(err);
	if (!is_converted(tensor.dtype))
		unconverted_count(&ret->unconverted, args->load.dtype, tensor.dtype);
	return STATUS_OK;
}

/* A slice of tensors that are not copied is no mistake. */
static int check_cuts(hoist_checkpoint *checkpoint, const struct args *args, struct cuts *cuts)
{
	size_t n = hoist_checkpoint_n_tensors(checkpoint);
	hoist_tensor_info tensor = {.size = sizeof tensor};
	for (size_t i = 0; i < cuts->n; i++) {
		for (size_t t = 0; t < n && !cuts->cuts[i].used; t++) {
			(void)hoist_checkpoint_tensor(checkpoint, t, &tensor);
			(void)cut_one(cuts, t, tensor.name);
		}
		if (!cuts->cuts[i].used)
			return fail("%s has no tensor that matches \"%s\", to be sliced; see "
				    "`hoist ls`",
				    args->operands[0], cuts->slices[i].tensor);
	}
	return STATUS_OK;
}

static int add_all(hoist_save *save, hoist_checkpoint *checkpoint, const struct entries *entries,
		   const struct args *args, struct copy_tensors *ret)
{
	struct cuts cuts;
	int status = make_cuts(checkpoint, args, &cuts);
	for (size_t i = 0; status == STATUS_OK && i < entries->n; i++)
		status = add_one(save, checkpoint, &entries->entries[i], args, &cuts, ret);
	if (status == STATUS_OK)
		status = check_cuts(checkpoint, args, &cuts);
	free_cuts(&cuts);
	ret->n = entries->n;
	return status;
}

int copy_add_tensors(hoist_save *save, hoist_checkpoint *checkpoint, const struct args *args,
		     struct copy_tensors *ret)
{
	struct selection selection;
	struct entries entries = {0};
	int status = selection_of(args, checkpoint, &selection);
	if (status != STATUS_OK)
		return status;
	status = list(checkpoint, &selection, &entries);
	if (status == STATUS_OK)
		status = rename_all(args, &entries);
	if (status == STATUS_OK)
		status = add_all(save, checkpoint, &entries, args, ret);
	free_entries(&entries);
	selection_free(&selection);
	return status;
}
