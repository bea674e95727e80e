/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint.c - references to checkpoints, and questions about their tensors.
 * The contract is in hoist/checkpoint.h. */
#include "config.h"

#include "lib/checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/digest.h"
#include "lib/core/options.h"

hoist_checkpoint *hoist__checkpoint_ref(hoist_checkpoint *checkpoint)
{
	atomic_fetch_add_explicit(&checkpoint->refs, 1, memory_order_relaxed);
	return checkpoint;
}

void hoist_checkpoint_close(hoist_checkpoint *checkpoint)
{
	if (checkpoint == NULL ||
	    atomic_fetch_sub_explicit(&checkpoint->refs, 1, memory_order_acq_rel) != 1)
		return;
	for (size_t f = 0; f < checkpoint->n_files; f++)
		hoist__checkpoint_file_close(&checkpoint->files[f]);
	hoist__index_destroy(checkpoint->index);
	free(checkpoint->files);
	free(checkpoint->tensors);
	free(checkpoint->by_name);
	free(checkpoint->metadata);
	free(checkpoint);
}

const char *hoist_checkpoint_format(const hoist_checkpoint *checkpoint)
{
	return hoist__format_name(checkpoint->n_files > 0 ? checkpoint->files[0].format
							  : HOIST__SAFETENSORS);
}

size_t hoist_checkpoint_n_files(const hoist_checkpoint *checkpoint)
{
	return checkpoint->n_files;
}

size_t hoist_checkpoint_n_tensors(const hoist_checkpoint *checkpoint)
{
	return checkpoint->n_tensors;
}

uint64_t hoist_checkpoint_bytes(const hoist_checkpoint *checkpoint)
{
	return checkpoint->bytes;
}

static int fail_index(const char *what, size_t index, size_t n)
{
	return hoist__fail(-EINVAL, "%s %zu does not exist: the checkpoint has %zu", what, index,
			   n);
}

int hoist_checkpoint_file(const hoist_checkpoint *checkpoint, size_t index, hoist_file_info *info)
{
	if (index >= checkpoint->n_files)
		return fail_index("file", index, checkpoint->n_files);
	const struct hoist__file *file = checkpoint->files[index].file;
	const hoist_file_info full = {
		.size = sizeof full, .path = file->path, .bytes = file->bytes};
	return hoist__options_out("hoist_file_info", info, &full, sizeof full);
}

int hoist_checkpoint_tensor(const hoist_checkpoint *checkpoint, size_t index,
			    hoist_tensor_info *info)
{
	if (index >= checkpoint->n_tensors)
		return fail_index("tensor", index, checkpoint->n_tensors);
	const struct hoist__checkpoint_tensor *entry = &checkpoint->tensors[index];
	const hoist_tensor_info full = {
		.size = sizeof full,
		.name = entry->tensor->name,
		.dtype = entry->tensor->dtype,
		.rank = entry->tensor->rank,
		.shape = entry->tensor->shape,
		.bytes = entry->tensor->bytes,
		.file = entry->file,
		.offset = entry->tensor->offset,
		.strides = entry->tensor->strides,
	};
	return hoist__options_out("hoist_tensor_info", info, &full, sizeof full);
}

size_t hoist_checkpoint_n_skipped(const hoist_checkpoint *checkpoint)
{
	size_t n = 0;
	for (size_t f = 0; f < checkpoint->n_files; f++)
		n += checkpoint->files[f].manifest->n_skipped;
	return n;
}

int hoist_checkpoint_skipped(const hoist_checkpoint *checkpoint, size_t index,
			     hoist_skipped_info *info)
{
	size_t i = index;
	size_t f = 0;
	while (f < checkpoint->n_files && i >= checkpoint->files[f].manifest->n_skipped)
		i -= checkpoint->files[f++].manifest->n_skipped;
	if (f == checkpoint->n_files)
		return fail_index("skipped value", index, index - i);
	const struct hoist__skipped *skipped = &checkpoint->files[f].manifest->skipped[i];
	const hoist_skipped_info full = {
		.size = sizeof full, .name = skipped->name, .reason = skipped->reason, .file = f};
	return hoist__options_out("hoist_skipped_info", info, &full, sizeof full);
}

struct wanted {
	const char *name;
	const hoist_checkpoint *checkpoint;
};

static int compare_name(const void *key, const void *index)
{
	const struct wanted *wanted = key;
	const size_t *t = index;
	return strcmp(wanted->name, wanted->checkpoint->tensors[*t].tensor->name);
}

int hoist_checkpoint_find(const hoist_checkpoint *checkpoint, const char *name, size_t *ret)
{
	const struct wanted wanted = {name, checkpoint};
	const size_t *found =
		bsearch(&wanted, checkpoint->by_name, name != NULL ? checkpoint->n_tensors : 0,
			sizeof *checkpoint->by_name, compare_name);
	if (found == NULL)
		return hoist__fail(-ENOENT, "the checkpoint has no tensor \"%.200s\"",
				   name != NULL ? name : "(null)");
	*ret = *found;
	return 0;
}

int hoist_checkpoint_digest(const hoist_checkpoint *checkpoint, size_t index, unsigned char ret[16])
{
	if (index >= checkpoint->n_tensors)
		return fail_index("tensor", index, checkpoint->n_tensors);
	const struct hoist__checkpoint_tensor *entry = &checkpoint->tensors[index];
	const char *hex;
	int err =
		hoist__checkpoint_file_digest(&checkpoint->files[entry->file], entry->tensor, &hex);
	if (err == 0)
		hoist__digest_from_hex(hex, ret);
	return err;
}

size_t hoist_checkpoint_n_metadata(const hoist_checkpoint *checkpoint)
{
	return checkpoint->n_metadata;
}

int hoist_checkpoint_metadata(const hoist_checkpoint *checkpoint, size_t index, const char **key,
			      const char **value)
{
	if (index >= checkpoint->n_metadata)
		return fail_index("metadata entry", index, checkpoint->n_metadata);
	*key = checkpoint->metadata[index].key;
	*value = checkpoint->metadata[index].value;
	return 0;
}

const char *hoist_checkpoint_metadata_find(const hoist_checkpoint *checkpoint, const char *key)
{
	for (size_t i = 0; i < checkpoint->n_metadata; i++)
		if (strcmp(checkpoint->metadata[i].key, key) == 0)
			return checkpoint->metadata[i].value;
	return NULL;
}
