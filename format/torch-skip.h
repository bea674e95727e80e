/* SPDX-License-Identifier: MIT */
/* format/torch-skip.h - the list of what a lenient reader of PyTorch's checkpoints leaves out.
 *
 * Names and reasons live as long as the manifest, or are constants.  The memory of the list and of
 * its texts counts as the pickle's (hoist__pickle_charge()). */
#ifndef HOIST_FORMAT_TORCH_SKIP_H
#define HOIST_FORMAT_TORCH_SKIP_H

#include <stddef.h>

#include "format/manifest.h"
#include "format/torch.h"

/* An object that is opaque itself is listed under this name. */
#define HOIST__TORCH_OBJECT "object"

struct hoist__torch_skips {
	struct hoist__torch_file *file;
	struct hoist__manifest_box *box; /* of the texts */
	struct hoist__skipped *list;	 /* from malloc */
	size_t n;
	size_t room;
};

/* Lists @name, with @reason; a name that is no text in UTF-8 is quoted.
 * Returns: 0; -EBADMSG (too much memory); -ENOMEM. */
int hoist__torch_skip(struct hoist__torch_skips *skips, const char *name, size_t name_bytes,
		      const char *reason);

/* The same with the reason of an opaque value, or with the text of the last failure. */
int hoist__torch_skip_opaque(struct hoist__torch_skips *skips, const char *name, size_t name_bytes,
			     struct hoist__torch_opaque *opaque);
int hoist__torch_skip_failed(struct hoist__torch_skips *skips, const char *name, size_t name_bytes);

/* Sorts the list, and gives it to the manifest. */
void hoist__torch_skips_finish(struct hoist__torch_skips *skips, struct hoist__manifest *manifest);

/* Makes the manifest of a file from which nothing can be read.
 * Returns: 0; -ENOMEM. */
int hoist__torch_skip_file(const char *reason, struct hoist__manifest **ret);

#endif
