/* SPDX-License-Identifier: MIT */
/* format/torch-skip.c - lists what a lenient reader of PyTorch's checkpoints leaves out.
 * The contract is in format/torch-skip.h. */
#include "config.h"

#include "format/torch-skip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "format/quote.h"

/* Copies a text into the manifest. */
static int keep(const struct hoist__torch_skips *skips, const char *text, size_t n,
		const char **ret)
{
	int err = hoist__pickle_charge(&skips->file->pickle, n + 1);
	if (err < 0)
		return err;
	return hoist__arena_text(&skips->box->arena, text, n, "a text", ret);
}

int hoist__torch_skip(struct hoist__torch_skips *skips, const char *name, size_t name_bytes,
		      const char *reason)
{
	char shown[HOIST__QUOTED_BYTES];
	struct hoist__skipped skipped = {.reason = reason};
	void *list = skips->list;
	/* A long name may be that of many values.  The list grows by half while the old one still
	 * exists. */
	int err = hoist__pickle_charge(&skips->file->pickle, name_bytes + 3 * sizeof skipped);
	if (err < 0)
		return err;
	if (name_bytes == 0) {
		name = HOIST__TORCH_OBJECT;
		name_bytes = strlen(name);
	} else if (hoist__utf8_text(name, name_bytes) < name_bytes) {
		name = hoist__quoted(name, name_bytes, shown);
		name_bytes = strlen(name);
	}
	err = keep(skips, name, name_bytes, &skipped.name);
	if (err == 0)
		err = hoist__vector_grow(&list, skips->n, &skips->room, sizeof skipped,
					 "skipped values");
	skips->list = list;
	if (err == 0)
		skips->list[skips->n++] = skipped;
	return err;
}

int hoist__torch_skip_opaque(struct hoist__torch_skips *skips, const char *name, size_t name_bytes,
			     struct hoist__torch_opaque *opaque)
{
	char shown[2][HOIST__QUOTED_BYTES];
	char text[sizeof shown + 128];
	int err = 0;
	if (opaque->what != NULL) {
		opaque->reason = opaque->what;
	} else if (opaque->reason == NULL) {
		int n = snprintf(text, sizeof text,
				 "a value of %s of the Python module %s: hoist executes no code",
				 hoist__quoted(opaque->name, opaque->name_bytes, shown[0]),
				 hoist__quoted(opaque->module, opaque->module_bytes, shown[1]));
		err = keep(skips, text, (size_t)n, &opaque->reason);
	}
	return err == 0 ? hoist__torch_skip(skips, name, name_bytes, opaque->reason) : err;
}

int hoist__torch_skip_failed(struct hoist__torch_skips *skips, const char *name, size_t name_bytes)
{
	const char *reason;
	const char *text = hoist__error_text();
	int err = keep(skips, text, strlen(text), &reason);
	return err == 0 ? hoist__torch_skip(skips, name, name_bytes, reason) : err;
}

static int by_name(const void *left, const void *right)
{
	const struct hoist__skipped *a = left;
	const struct hoist__skipped *b = right;
	int order = strcmp(a->name, b->name);
	return order != 0 ? order : strcmp(a->reason, b->reason);
}

void hoist__torch_skips_finish(struct hoist__torch_skips *skips, struct hoist__manifest *manifest)
{
	if (skips->n > 1)
		qsort(skips->list, skips->n, sizeof *skips->list, by_name);
	manifest->skipped = skips->list;
	manifest->n_skipped = skips->n;
	*skips = (struct hoist__torch_skips){.list = NULL};
}

int hoist__torch_skip_file(const char *reason, struct hoist__manifest **ret)
{
	struct hoist__manifest_box *box = hoist__manifest_create();
	if (box == NULL)
		return -ENOMEM;
	box->manifest.skipped = malloc(sizeof *box->manifest.skipped);
	if (box->manifest.skipped == NULL) {
		hoist__manifest_destroy(&box->manifest);
		return hoist__fail_nomem("a list", sizeof *box->manifest.skipped);
	}
	box->manifest.skipped[0] = (struct hoist__skipped){.name = "", .reason = reason};
	box->manifest.n_skipped = 1;
	*ret = &box->manifest;
	return 0;
}
