/* SPDX-License-Identifier: MIT */
/* format/raw.c - reads any file as one tensor of all its bytes.
 * The contract is in format/format.h. */
#include "config.h"

#include <stdlib.h>

#include "base/error.h"
#include "format/format.h"
#include "format/manifest.h"

int hoist__raw_parse(const struct hoist__reader *reader, struct hoist__manifest **ret)
{
	if (reader->bytes > INT64_MAX)
		return hoist__fail(-EBADMSG, "%s: %llu bytes are too many for one tensor",
				   reader->name, (unsigned long long)reader->bytes);
	struct hoist__manifest_box *box = hoist__manifest_create();
	if (box == NULL)
		return -ENOMEM;
	struct hoist__manifest *manifest = &box->manifest;
	int64_t *shape = hoist__arena_alloc(&box->arena, sizeof *shape, sizeof *shape);
	manifest->tensors = calloc(1, sizeof *manifest->tensors);
	if (shape == NULL || manifest->tensors == NULL) {
		hoist__manifest_destroy(manifest);
		return hoist__fail_nomem("a tensor of all bytes", sizeof *manifest->tensors);
	}
	*shape = (int64_t)reader->bytes;
	manifest->tensors[0] = (struct hoist__tensor){
		.name = HOIST__RAW_NAME,
		.name_bytes = sizeof HOIST__RAW_NAME - 1,
		.dtype = HOIST_U8,
		.rank = 1,
		.shape = shape,
		.bytes = reader->bytes,
	};
	manifest->n_tensors = 1;
	int err = hoist__manifest_names(reader->name, manifest);
	if (err < 0)
		hoist__manifest_destroy(manifest);
	else
		*ret = manifest;
	return err;
}
