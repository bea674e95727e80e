/* SPDX-License-Identifier: MIT */
/* The metadata of a save: strings beside the tensors.
 * The contract is in hoist/save.h. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "lib/save/save.h"

static int reserve_metadata(struct hoist_save *save)
{
	if (save->n_metadata < save->metadata_room)
		return 0;
	size_t room = save->metadata_room == 0 ? 16 : 2 * save->metadata_room;
	struct hoist__metadata *metadata = realloc(save->metadata, room * sizeof *metadata);
	if (metadata != NULL)
		save->metadata = metadata;
	char **strings = realloc(save->strings, 2 * room * sizeof *strings);
	if (strings != NULL)
		save->strings = strings;
	if (metadata == NULL || strings == NULL)
		return hoist__fail_nomem("a list of metadata", room * sizeof *metadata);
	save->metadata_room = room;
	return 0;
}

/* Sets @key to @value.  Only the first @known entries may already have this key. */
static int set_metadata(struct hoist_save *save, size_t known, const char *key, const char *value)
{
	size_t i = 0;
	while (i < known && strcmp(save->metadata[i].key, key) != 0)
		i++;
	if (i == known)
		i = save->n_metadata;
	int err = reserve_metadata(save);
	if (err < 0)
		return err;
	char *copy = strdup(value);
	char *own_key = i == save->n_metadata ? strdup(key) : save->strings[2 * i];
	if (copy == NULL || own_key == NULL) {
		if (i == save->n_metadata)
			free(own_key);
		free(copy);
		return hoist__fail_nomem("metadata", strlen(value) + 1);
	}
	if (i == save->n_metadata)
		save->n_metadata++;
	else
		free(save->strings[2 * i + 1]);
	save->strings[2 * i] = own_key;
	save->strings[2 * i + 1] = copy;
	save->metadata[i] = (struct hoist__metadata){own_key, copy};
	return 0;
}

static bool is_utf8(const char *text)
{
	size_t n = strlen(text);
	return hoist__utf8_text(text, n) == n;
}

int hoist_save_metadata(hoist_save *save, const char *key, const char *value)
{
	int err = hoist__save_check_open(save);
	if (err < 0)
		return err;
	if (key == NULL || key[0] == '\0' || value == NULL)
		return hoist__fail(-EINVAL, "saving %s: metadata without a key or a value",
				   save->path);
	if (!save->format->has_metadata)
		return hoist__fail(-EINVAL,
				   "saving %s: this format has no place for metadata (\"%.60s\"); "
				   "save as safetensors or gguf",
				   save->path, key);
	if (!is_utf8(key) || !is_utf8(value))
		return hoist__fail(-EINVAL,
				   "saving %s: metadata %zu: its %s is not UTF-8; encode the "
				   "bytes, as hexadecimal digits or base64",
				   save->path, save->n_metadata, is_utf8(key) ? "value" : "key");
	if (strcmp(key, HOIST__DIGEST_KEY) == 0)
		return hoist__fail(-EINVAL,
				   "saving %s: the metadata key %s is reserved for the digests "
				   "that HOIST_SAVE_DIGEST (--digest) makes",
				   save->path, key);
	return set_metadata(save, save->n_metadata, key, value);
}

/* True for a key whose value describes the checkpoint's own files. */
static bool is_stale(const char *key)
{
	return strcmp(key, HOIST__DIGEST_KEY) == 0 || strcmp(key, "total_size") == 0;
}

static bool has_metadata(const struct hoist_save *save, const char *key)
{
	for (size_t i = 0; i < save->n_metadata; i++)
		if (strcmp(save->metadata[i].key, key) == 0)
			return true;
	return false;
}

/* Hugging Face's readers take a safetensors file without metadata for PyTorch's, and refuse a file
 * whose metadata do not name the framework, even if digests are its only metadata. */
static bool is_of_pytorch(const struct hoist_save *save, const hoist_checkpoint *checkpoint)
{
	if (save->format->format != HOIST__SAFETENSORS || checkpoint->n_files == 0)
		return false;
	if (checkpoint->files[0].format == HOIST__TORCH)
		return true;
	return checkpoint->files[0].format == HOIST__SAFETENSORS && save->n_metadata == 0 &&
	       (save->flags & HOIST_SAVE_DIGEST) != 0;
}

int hoist_save_metadata_of(hoist_save *save, hoist_checkpoint *checkpoint)
{
	int err = hoist__save_check_open(save);
	if (err < 0)
		return err;
	if (checkpoint == NULL)
		return hoist__fail(-EINVAL, "saving %s: the checkpoint is NULL", save->path);
	if (!save->format->has_metadata)
		return 0;
	/* From GGUF to GGUF the pairs are copied as they are, since a text would lose their
	 * types. */
	if (save->format->format == HOIST__GGUF && checkpoint->n_files > 0 &&
	    checkpoint->files[0].format == HOIST__GGUF) {
		hoist_checkpoint_close(save->like);
		save->like = hoist__checkpoint_ref(checkpoint);
		return 0;
	}
	/* The checkpoint's own keys differ from each other, so only the save's earlier keys are
	 * searched. */
	const size_t known = save->n_metadata;
	for (size_t i = 0; err == 0 && i < checkpoint->n_metadata; i++) {
		const struct hoist__metadata *m = &checkpoint->metadata[i];
		/* The first of several values of one key counts. */
		bool again = i > 0 && strcmp(checkpoint->metadata[i - 1].key, m->key) == 0;
		if (!again && m->key[0] != '\0' && !is_stale(m->key))
			err = set_metadata(save, known, m->key, m->value);
	}
	if (err == 0 && is_of_pytorch(save, checkpoint) && !has_metadata(save, "format"))
		err = set_metadata(save, save->n_metadata, "format", "pt");
	return err;
}
