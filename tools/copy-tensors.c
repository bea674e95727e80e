/* SPDX-License-Identifier: MIT */
/* tools/copy-tensors.c - the tensors of a copy.
 * The contract is in tools/copy-tensors.h. */
#include "config.h"

#include "tools/copy-tensors.h"

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

/* --- adding --- */

static int add_all(hoist_save *save, hoist_checkpoint *checkpoint, const struct entries *entries)
{
	for (size_t i = 0; i < entries->n; i++) {
		const struct entry *entry = &entries->entries[i];
		if (hoist_save_add_tensor(save, entry->renamed, checkpoint, entry->index) != 0)
			return fail_library();
	}
	return STATUS_OK;
}

int copy_add_tensors(hoist_save *save, hoist_checkpoint *checkpoint, const struct args *args,
		     size_t *ret)
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
		status = add_all(save, checkpoint, &entries);
	*ret = entries.n;
	free_entries(&entries);
	selection_free(&selection);
	return status;
}
