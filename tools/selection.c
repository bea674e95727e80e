/* SPDX-License-Identifier: MIT */
/* tools/selection.c - the tensors that --tensor and --exclude leave.
 * The contract is in tools/selection.h.
 *
 * A name is looked up; only a glob is compared with each tensor. */
#include "config.h"

#include "tools/selection.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

/* The names to choose from: a checkpoint's, or an image's. */
struct names {
	hoist_checkpoint *checkpoint; /* NULL: the image's */
	const hoist_image *image;
	const char *path;
	size_t n;
};

static bool find(const struct names *names, const char *name, size_t *ret)
{
	return (names->checkpoint != NULL ? hoist_checkpoint_find(names->checkpoint, name, ret)
					  : hoist_image_find(names->image, name, ret)) == 0;
}

static const char *name_of(const struct names *names, size_t index)
{
	hoist_tensor_info tensor = {.size = sizeof tensor};
	if (names->checkpoint != NULL)
		(void)hoist_checkpoint_tensor(names->checkpoint, index, &tensor);
	else
		(void)hoist_image_tensor(names->image, index, &tensor);
	return tensor.name;
}

/* Sets the tensors that @pattern means to @picked.  False: there are none. */
static bool mark(const struct names *names, const char *pattern, bool picked, bool *marks)
{
	size_t exact;
	bool found = find(names, pattern, &exact);
	if (found)
		marks[exact] = picked;
	bool glob = !found && strpbrk(pattern, "*?[") != NULL;
	for (size_t i = 0; glob && i < names->n; i++)
		if (fnmatch(pattern, name_of(names, i), 0) == 0) {
			marks[i] = picked;
			found = true;
		}
	return found;
}

static int select_all(const struct args *args, const struct names *names, bool *marks)
{
	for (size_t i = 0; i < names->n; i++)
		marks[i] = args->n_patterns == 0;
	for (size_t p = 0; p < args->n_patterns; p++)
		if (!mark(names, args->patterns[p], true, marks))
			return fail("%s has no tensor that matches \"%s\"; see `hoist ls`",
				    names->path, args->patterns[p]);
	for (size_t p = 0; p < args->n_excludes; p++)
		if (!mark(names, args->excludes[p], false, marks))
			return fail("%s has no tensor that matches \"%s\", to be excluded; see "
				    "`hoist ls`",
				    names->path, args->excludes[p]);
	return STATUS_OK;
}

static int make(const struct args *args, const struct names *names, struct selection *ret)
{
	*ret = (struct selection){.n = names->n};
	if (args->n_patterns == 0 && args->n_excludes == 0)
		return STATUS_OK;
	ret->picked = calloc(names->n + 1, sizeof *ret->picked);
	if (ret->picked == NULL)
		return fail_memory();
	int status = select_all(args, names, ret->picked);
	ret->n = 0;
	for (size_t i = 0; i < names->n; i++)
		ret->n += ret->picked[i];
	if (status == STATUS_OK && ret->n == 0)
		status =
			fail("--exclude takes every tensor of %s away; leave one out", names->path);
	if (status != STATUS_OK)
		selection_free(ret);
	return status;
}

int selection_of(const struct args *args, hoist_checkpoint *checkpoint, struct selection *ret)
{
	const struct names names = {
		.checkpoint = checkpoint,
		.path = args->operands[0],
		.n = hoist_checkpoint_n_tensors(checkpoint),
	};
	return make(args, &names, ret);
}

int selection_of_image(const struct args *args, const hoist_image *image, struct selection *ret)
{
	const struct names names = {
		.image = image,
		.path = args->operands[0],
		.n = hoist_image_n_tensors(image),
	};
	return make(args, &names, ret);
}

void selection_free(struct selection *selection)
{
	free(selection->picked);
	*selection = (struct selection){0};
}

int selection_names(const struct selection *selection, hoist_checkpoint *checkpoint,
		    const char ***ret)
{
	*ret = NULL;
	if (selection->picked == NULL)
		return STATUS_OK;
	const char **names = calloc(selection->n, sizeof *names);
	if (names == NULL)
		return fail_memory();
	const struct names all = {.checkpoint = checkpoint};
	size_t n = 0;
	for (size_t i = 0; n < selection->n; i++)
		if (selection->picked[i])
			names[n++] = name_of(&all, i);
	*ret = names;
	return STATUS_OK;
}

bool selection_matches(hoist_checkpoint *checkpoint, const char *pattern, const char *name)
{
	size_t index;
	if (hoist_checkpoint_find(checkpoint, pattern, &index) == 0)
		return strcmp(pattern, name) == 0;
	return fnmatch(pattern, name, 0) == 0;
}
