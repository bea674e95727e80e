/* SPDX-License-Identifier: MIT */
/* format/npz.c - reads NumPy's archives of arrays.
 * The contract is in format/format.h and format/npy.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/manifest.h"
#include "format/npy.h"
#include "format/zip.h"

static const char suffix[] = ".npy";
#define SUFFIX_BYTES (sizeof suffix - 1)

static bool is_array(const struct hoist__zip_entry *entry)
{
	return entry->name_bytes > SUFFIX_BYTES &&
	       memcmp(entry->name + entry->name_bytes - SUFFIX_BYTES, suffix, SUFFIX_BYTES) == 0;
}

static int read_entry(struct hoist__zip *zip, const struct hoist__zip_entry *entry,
		      struct hoist__arena *arena, struct hoist__tensor *tensor)
{
	char shown[HOIST__QUOTED_BYTES];
	char what[2 * HOIST__QUOTED_BYTES + 16];
	uint64_t at;
	int err = hoist__zip_data(zip, entry,
				  "numpy.savez writes such, numpy.savez_compressed does not", &at);
	if (err < 0)
		return err;
	size_t n = entry->name_bytes - SUFFIX_BYTES;
	err = hoist__arena_text(arena, entry->name, n, "a name", &tensor->name);
	if (err < 0)
		return err;
	tensor->name_bytes = n;
	(void)snprintf(what, sizeof what, "%s: entry %s", zip->file,
		       hoist__quoted(entry->name, entry->name_bytes, shown));
	return hoist__npy_read(&zip->window, what, at, at + entry->bytes, arena, tensor);
}

static int by_offset(const void *left, const void *right)
{
	const struct hoist__tensor *a = left;
	const struct hoist__tensor *b = right;
	return (a->offset > b->offset) - (a->offset < b->offset);
}

static int read_entries(struct hoist__zip *zip, struct hoist__manifest_box *box)
{
	struct hoist__manifest *manifest = &box->manifest;
	size_t n = 0;
	for (size_t i = 0; i < zip->n; i++)
		n += is_array(&zip->entries[i]);
	if (n == 0 && zip->n > 0)
		return hoist__fail(-EBADMSG,
				   "%s: a zip archive, but neither NumPy's (no entry ends in "
				   ".npy) nor PyTorch's (no entry is FOLDER/data.pkl)",
				   zip->file);
	manifest->data_offset = zip->directory_at;
	if (n == 0)
		return 0;
	manifest->tensors = calloc(n, sizeof *manifest->tensors);
	if (manifest->tensors == NULL)
		return hoist__fail_nomem("the list of tensors", n * sizeof *manifest->tensors);
	int err = 0;
	for (size_t i = 0; err == 0 && i < zip->n; i++)
		if (is_array(&zip->entries[i]))
			err = read_entry(zip, &zip->entries[i], &box->arena,
					 &manifest->tensors[manifest->n_tensors++]);
	if (err < 0)
		return err;
	/* The directory may list entries in another order than they lie in. */
	qsort(manifest->tensors, n, sizeof *manifest->tensors, by_offset);
	manifest->data_offset = manifest->tensors[0].offset;
	return hoist__manifest_names(zip->file, manifest);
}

int hoist__npz_parse(const struct hoist__reader *reader, struct hoist__manifest **ret)
{
	struct hoist__zip zip;
	struct hoist__manifest_box *box = hoist__manifest_create();
	if (box == NULL)
		return -ENOMEM;
	int err = hoist__zip_open(reader, &zip);
	if (err == 0) {
		err = read_entries(&zip, box);
		hoist__zip_close(&zip);
	}
	if (err < 0)
		hoist__manifest_destroy(&box->manifest);
	else
		*ret = &box->manifest;
	return err;
}
