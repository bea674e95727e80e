/* SPDX-License-Identifier: MIT */
/* Plans the files: the place of each tensor, headers, and the outputs to write to.
 * The contract is in lib/save/save.h. */
#include "config.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "lib/device/device.h"
#include "lib/save/save.h"

#define ENDING HOIST__SAVE_ENDING
#define INDEX_ENDING HOIST__SAVE_INDEX_ENDING
#define MAX_SHARDS 99999u

/* --- shards --- */

static bool ends_with(const char *path, const char *ending)
{
	size_t n = strlen(path);
	size_t m = strlen(ending);
	return n > m && strcmp(path + n - m, ending) == 0;
}

/* The path without its ending, allocated with malloc. */
static char *stem_of(const char *path)
{
	size_t n = strlen(path);
	if (ends_with(path, INDEX_ENDING))
		n -= strlen(INDEX_ENDING);
	else if (ends_with(path, ENDING))
		n -= strlen(ENDING);
	return strndup(path, n);
}

/* Fills files up in the order of the tensors.  Returns: the number of files.  Only counts if the
 * files do not exist yet. */
static size_t fill_files(struct hoist_save *save)
{
	size_t n = 1;
	uint64_t bytes = 0;
	for (size_t i = 0; i < save->n_sources; i++) {
		uint64_t more = save->tensors[i].bytes;
		if (save->shard_bytes != 0 && bytes > 0 &&
		    (more > save->shard_bytes || bytes > save->shard_bytes - more)) {
			n++;
			bytes = 0;
		}
		bytes += more;
		if (save->files == NULL)
			continue;
		struct hoist__save_file *file = &save->files[n - 1];
		if (file->out.n_tensors++ == 0) {
			file->first = i;
			file->out.tensors = &save->tensors[i];
		}
	}
	return n;
}

static int name_files(struct hoist_save *save)
{
	char *stem = stem_of(save->path);
	if (stem == NULL)
		return hoist__fail_nomem("a path", strlen(save->path));
	int err = 0;
	for (size_t f = 0; err == 0 && f < save->n_files; f++)
		if (asprintf(&save->files[f].path, "%s-%05zu-of-%05zu" ENDING, stem, f + 1,
			     save->n_files) < 0) {
			save->files[f].path = NULL;
			err = hoist__fail_nomem("a path", strlen(save->path));
		}
	if (err == 0 && asprintf(&save->index_path, "%s" INDEX_ENDING, stem) < 0) {
		save->index_path = NULL;
		err = hoist__fail_nomem("a path", strlen(save->path));
	}
	free(stem);
	return err;
}

static int plan_files(struct hoist_save *save)
{
	/* The first pass counts the files, the second, after the list was made, fills them. */
	size_t n = fill_files(save);
	if (n > MAX_SHARDS)
		return hoist__fail(-EINVAL,
				   "saving %s: %zu shards of %" PRIu64
				   " bytes, and %u are the most; raise the size of "
				   "a shard (shard_bytes, --shard-bytes)",
				   save->path, n, save->shard_bytes, MAX_SHARDS);
	save->files = calloc(n, sizeof *save->files);
	if (save->files == NULL)
		return hoist__fail_nomem("a list of files", n * sizeof *save->files);
	save->n_files = n;
	save->files[0].out.tensors = save->tensors;
	(void)fill_files(save);
	/* A path that names an index gets one, even for a single file. */
	if (n > 1 || ends_with(save->path, INDEX_ENDING))
		return name_files(save);
	save->files[0].path = strdup(save->path);
	if (save->files[0].path == NULL)
		return hoist__fail_nomem("a path", strlen(save->path) + 1);
	if (save->format->format == HOIST__SAFETENSORS && ends_with(save->path, ENDING) &&
	    asprintf(&save->shadow_path, "%s.index.json", save->path) < 0) {
		save->shadow_path = NULL;
		return hoist__fail_nomem("a path", strlen(save->path));
	}
	return 0;
}

/* --- headers --- */

/* Takes the caller's metadata, and room for the digests: zeros for now, so that the header has its
 * final size. */
static int take_metadata(const struct hoist_save *save, struct hoist__save_file *file)
{
	size_t n = save->n_metadata;
	file->metadata = calloc(n + 1, sizeof *file->metadata);
	if (file->metadata == NULL)
		return hoist__fail_nomem("a list of metadata", (n + 1) * sizeof *file->metadata);
	if (n > 0)
		memcpy(file->metadata, save->metadata, n * sizeof *file->metadata);
	if ((save->flags & HOIST_SAVE_DIGEST) != 0) {
		size_t bytes = file->out.n_tensors * HOIST__DIGEST_HEX;
		file->digests = malloc(bytes + 1);
		if (file->digests == NULL)
			return hoist__fail_nomem("digests", bytes + 1);
		memset(file->digests, '0', bytes);
		file->digests[bytes] = '\0';
		file->metadata[n++] = (struct hoist__metadata){HOIST__DIGEST_KEY, file->digests};
	}
	file->out.name = file->path;
	file->out.metadata = file->metadata;
	file->out.n_metadata = n;
	if (save->like != NULL)
		file->out.like = save->like->files[0].manifest;
	return 0;
}

/* The header's place in the file is fixed, so its size must not change. */
int hoist__save_header(struct hoist_save *save, struct hoist__save_file *file)
{
	unsigned char *old = file->out.header;
	size_t bytes = file->out.header_bytes;
	file->out.header = NULL;
	int err = save->format->write(&file->out);
	if (err == 0 && file->out.header_bytes == bytes) {
		free(old);
		return 0;
	}
	if (err == 0) {
		free(file->out.header);
		err = hoist__fail(-EINVAL, "%s: its header has %zu bytes now, not %zu", file->path,
				  file->out.header_bytes, bytes);
	}
	file->out.header = old;
	file->out.header_bytes = bytes;
	return err;
}

static int make_headers(struct hoist_save *save)
{
	int err = 0;
	if (save->n_files > 1) { /* a single file's names are checked by its writer */
		const struct hoist__out_file all = {
			.name = save->path,
			.n_tensors = save->n_sources,
			.tensors = save->tensors,
		};
		err = hoist__out_check_names(&all);
	}
	for (size_t f = 0; err == 0 && f < save->n_files; f++) {
		struct hoist__save_file *file = &save->files[f];
		err = take_metadata(save, file);
		if (err == 0)
			err = save->format->write(&file->out);
		if (err == 0)
			save->total_bytes += file->out.bytes;
	}
	return err;
}

/* The index has bare file names: it lies in the folder of its shards. */
static int make_index(struct hoist_save *save)
{
	if (save->index_path == NULL)
		return 0;
	size_t *file_of = calloc(save->n_sources, sizeof *file_of);
	const char **names = calloc(save->n_sources, sizeof *names);
	const char **files = calloc(save->n_files, sizeof *files);
	int err = -ENOMEM;
	if (file_of == NULL || names == NULL || files == NULL) {
		hoist__fail_nomem("an index", save->n_sources * sizeof *names);
		goto end;
	}
	for (size_t f = 0; f < save->n_files; f++) {
		const struct hoist__save_file *file = &save->files[f];
		files[f] = hoist__save_name(file->path);
		for (size_t i = 0; i < file->out.n_tensors; i++) {
			file_of[file->first + i] = f;
			names[file->first + i] = save->tensors[file->first + i].name;
		}
	}
	err = hoist__index_write(files, save->n_sources, names, file_of, save->tensor_bytes,
				 save->n_metadata, save->metadata, &save->index_text,
				 &save->index_bytes);
end:
	free(files);
	free(names);
	free(file_of);
	return err;
}

/* --- outputs --- */

struct others {
	const struct hoist_save *save;
	const char *folder;
};

static int refuse_other_index(void *context, const char *name)
{
	const struct others *others = context;
	const struct hoist_save *save = others->save;
	if (name[0] == '.' || !ends_with(name, INDEX_ENDING) ||
	    strcmp(name, hoist__save_name(save->shadow_path)) == 0)
		return 0;
	return hoist__fail(-EEXIST,
			   "saving %s: readers that open %s take %s there, and not this file; "
			   "remove that index, or save to another folder",
			   save->path, others->folder, name);
}

/* Readers open a folder by the only index in it, whatever its name, and only without an index by
 * this file. */
static int check_other_indices(const struct hoist_save *save)
{
	const char *name = hoist__save_name(save->path);
	if (strcmp(name, "model" ENDING) != 0)
		return 0;
	size_t n = (size_t)(name - save->path);
	char *folder = n > 0 ? strndup(save->path, n) : strdup(".");
	if (folder == NULL)
		return hoist__fail_nomem("a path", n);
	struct others others = {save, folder};
	int err = hoist__folder_list(AT_FDCWD, folder, folder, refuse_other_index, &others);
	free(folder);
	/* A user that may not list the folder cannot open it as a checkpoint either. */
	return err == -EACCES ? 0 : err;
}

static int check_shadows(const struct hoist_save *save)
{
	if (save->shadow_path == NULL)
		return 0;
	int err =
		hoist__output_check_old(save->files[0].output, hoist__save_name(save->shadow_path));
	return err < 0 ? err : check_other_indices(save);
}

static int create_outputs(struct hoist_save *save)
{
	unsigned flags = 0;
	if (save->io == HOIST_IO_CACHED)
		flags |= HOIST__OUTPUT_NO_DIRECT;
	if ((save->flags & HOIST_SAVE_NO_REPLACE) != 0)
		flags |= HOIST__OUTPUT_NO_REPLACE;
	if ((save->flags & HOIST_SAVE_NO_SYNC) != 0)
		flags |= HOIST__OUTPUT_NO_SYNC;
	int err = 0;
	for (size_t f = 0; err == 0 && f < save->n_files; f++)
		err = hoist__output_create(save->files[f].path, save->files[f].out.bytes, flags,
					   &save->files[f].output);
	if (err == 0 && save->index_path != NULL)
		err = hoist__output_create(save->index_path, save->index_bytes,
					   flags | HOIST__OUTPUT_NO_DIRECT, &save->index);
	/* The shards also take the place of a single file at the path. */
	if (err == 0 && save->index_path != NULL && strcmp(save->path, save->index_path) != 0)
		err = hoist__output_check_old(save->index, hoist__save_name(save->path));
	if (err == 0)
		err = check_shadows(save);
	return err < 0 ? err : hoist__save_check_replaced(save);
}

int hoist__save_plan(struct hoist_save *save)
{
	int err = hoist__save_plan_sources(save);
	if (err == 0)
		err = hoist__save_plan_batches(save);
	if (err == 0)
		err = plan_files(save);
	if (err == 0)
		err = make_headers(save);
	if (err == 0)
		err = make_index(save);
	if (err == 0)
		err = create_outputs(save);
	return err;
}

/* Leaves the save as it was before hoist__save_plan(), so a start that failed can be repeated. */
void hoist__save_unplan(struct hoist_save *save)
{
	for (size_t f = 0; f < save->n_files; f++) {
		struct hoist__save_file *file = &save->files[f];
		hoist__output_destroy(file->output);
		free(file->out.header);
		free(file->metadata);
		free(file->digests);
		free(file->path);
	}
	free(save->files);
	save->files = NULL;
	save->n_files = 0;
	hoist__output_destroy(save->index);
	save->index = NULL;
	free(save->index_path);
	free(save->shadow_path);
	free(save->index_text);
	save->index_path = save->shadow_path = save->index_text = NULL;
	hoist__save_unplan_batches(save);
	free(save->tensors);
	save->tensors = NULL;
	for (unsigned s = 0; s < save->n_streams; s++)
		hoist_stream_unref(save->streams[s]);
	save->n_streams = 0;
	save->tensor_bytes = save->total_bytes = 0;
	save->source_align = 0;
}
