/* SPDX-License-Identifier: MIT */
/* tools/selection.h - the tensors that --tensor and --exclude leave: the one reader of these
 * options.
 *
 * --tensor picks tensors; without it all are picked.  --exclude then takes away.  A text that is
 * the name of a tensor means that tensor alone, whatever characters it has; any other text is a
 * glob.  A text that matches nothing is an error, and so is a selection that leaves nothing.
 */
#ifndef HOIST_TOOLS_SELECTION_H
#define HOIST_TOOLS_SELECTION_H

#include <stdbool.h>
#include <stddef.h>

#include <hoist/hoist.h>

#include "tools/args.h"

struct selection {
	bool *picked; /* by the tensor's index; NULL: neither option was given, all are picked */
	size_t n;     /* tensors that are picked */
};

/* Both print what is wrong.  Returns: a STATUS_*; with OK, selection_free() is owed. */
int selection_of(const struct args *args, hoist_checkpoint *checkpoint, struct selection *ret);
int selection_of_image(const struct args *args, const hoist_image *image, struct selection *ret);
void selection_free(struct selection *selection);

static inline bool selection_has(const struct selection *selection, size_t index)
{
	return selection->picked == NULL || selection->picked[index];
}

/* Lists the names of the picked tensors, as loads take them; *ret is from malloc, and NULL if all
 * are picked.  The names are the checkpoint's. */
int selection_names(const struct selection *selection, hoist_checkpoint *checkpoint,
		    const char ***ret);

/* True if @pattern means the tensor called @name, by the rule above. */
bool selection_matches(hoist_checkpoint *checkpoint, const char *pattern, const char *name);

#endif
