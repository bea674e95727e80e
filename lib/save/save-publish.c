/* SPDX-License-Identifier: MIT */
/* Ends a save: no file has a name before all of them are on the disk.
 * The contract is in lib/save/save.h. */
#include "config.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "lib/save/save.h"

/* A larger file is no index of ours. */
#define MAX_INDEX_BYTES ((uint64_t)256 << 20)

/* --- before --- */

/* Checks that no source file changed, so that the bytes are of one version. */
static int check_sources(const struct hoist_save *save)
{
	const struct hoist__file *last = NULL;
	int err = 0;
	for (size_t i = 0; err == 0 && i < save->n_sources; i++) {
		const struct hoist__save_source *source = &save->sources[i];
		if (source->checkpoint == NULL)
			continue;
		const struct hoist_checkpoint *checkpoint = source->checkpoint;
		const struct hoist__file *file =
			checkpoint->files[checkpoint->tensors[source->index].file].file;
		if (file != last)
			err = hoist__file_changed(file);
		last = file;
	}
	return err;
}

/* The headers are written again with the digests, which are only known now. */
static int finish_files(struct hoist_save *save)
{
	int err = 0;
	for (size_t f = 0; err == 0 && f < save->n_files; f++) {
		struct hoist__save_file *file = &save->files[f];
		if (file->digests != NULL) {
			err = hoist__save_header(save, file);
			if (err == 0)
				err = hoist__output_write(file->output, 0, file->out.header,
							  file->out.header_bytes);
		}
		if (err == 0)
			err = hoist__output_finish(file->output);
	}
	if (err == 0 && save->index != NULL) {
		err = hoist__output_write(save->index, 0, save->index_text, save->index_bytes);
		if (err == 0)
			err = hoist__output_finish(save->index);
	}
	return err;
}

/* --- shards of the checkpoint that is replaced --- */

/* Tells whether @file is NAME-ddddd-of-ddddd.safetensors, with the NAME of index @index_name. */
static bool is_shard(const char *file, const char *index_name)
{
	static const char pattern[] = "-ddddd-of-ddddd.safetensors";
	size_t n = strlen(index_name) - strlen(".safetensors.index.json");
	if (strncmp(file, index_name, n) != 0 || strlen(file) != n + sizeof pattern - 1)
		return false;
	for (size_t i = 0; i < sizeof pattern - 1; i++) {
		bool digit = isdigit((unsigned char)file[n + i]) != 0;
		if (pattern[i] == 'd' ? !digit : file[n + i] != pattern[i])
			return false;
	}
	return true;
}

static bool is_written(const struct hoist_save *save, const char *file)
{
	for (size_t f = 0; f < save->n_files; f++)
		if (strcmp(hoist__save_name(save->files[f].path), file) == 0)
			return true;
	return false;
}

/* The index that is replaced, or removed because one file takes its place; or NULL. */
static const char *old_index_path(const struct hoist_save *save)
{
	return save->index != NULL ? save->index_path : save->shadow_path;
}

static int parse_old_index(const struct hoist__file *file, struct hoist__index **ret)
{
	size_t bytes = (size_t)file->bytes;
	char *text = malloc(bytes + 1);
	if (text == NULL)
		return hoist__fail_nomem("the text of an index", bytes + 1);
	int err = hoist__file_read(file, 0, text, bytes);
	if (err == 0)
		err = hoist__index_parse(file->path, text, bytes, ret);
	free(text);
	return err;
}

/* *ret: the old index; NULL if there is none.  A file that is no index names no shards, and is
 * replaced.  If the system refuses to read the index, its shards are unknown, and the save must not
 * go on. */
static int read_old_index(const struct hoist_save *save, struct hoist__index **ret)
{
	const char *path = old_index_path(save);
	struct hoist__file *file;
	*ret = NULL;
	int err = path == NULL
			  ? -ENOENT
			  : hoist__file_open(AT_FDCWD, path, NULL, HOIST__FILE_NO_DIRECT, &file);
	if (err == 0) {
		err = file->bytes <= MAX_INDEX_BYTES ? parse_old_index(file, ret) : -EBADMSG;
		hoist__file_close(file);
	}
	if (err == 0 || err == -ENOENT || err == -EBADMSG)
		return 0;
	return hoist__fail_in(err, "saving %s, where an index must be read, or removed",
			      save->path);
}

/* --- a save that reads some shards of what it replaces --- */

static bool reads_file(const struct hoist_save *save, const struct stat *st)
{
	const struct hoist_checkpoint *last = NULL;
	for (size_t i = 0; i < save->n_sources; i++) {
		const struct hoist_checkpoint *checkpoint = save->sources[i].checkpoint;
		if (checkpoint == NULL || checkpoint == last)
			continue;
		for (size_t f = 0; f < checkpoint->n_files; f++) {
			const struct hoist__file *file = checkpoint->files[f].file;
			if (file->dev == st->st_dev && file->ino == st->st_ino)
				return true;
		}
		last = checkpoint;
	}
	return false;
}

/* Returns: 1: the shard is a file of one of the save's checkpoints; 0: it is not, or does not exist
 * (*@there); -ENOMEM. */
static int is_read(const struct hoist_save *save, const char *shard, bool *there)
{
	const char *index = old_index_path(save);
	char *path = NULL;
	struct stat st;
	if (asprintf(&path, "%.*s%s", (int)(hoist__save_name(index) - index), index, shard) < 0)
		return hoist__fail_nomem("a path", strlen(index) + strlen(shard));
	*there = stat(path, &st) == 0;
	free(path);
	return *there && reads_file(save, &st);
}

static int compare_entry(const void *name, const void *entry)
{
	return strcmp(name, ((const struct hoist__index_entry *)entry)->tensor);
}

static void mark_saved(const struct hoist_save *save, const struct hoist__index *old, bool *saved)
{
	for (size_t i = 0; i < save->n_sources; i++) {
		const struct hoist__index_entry *entry =
			bsearch(save->sources[i].name, old->entries, old->n_entries, sizeof *entry,
				compare_entry);
		if (entry != NULL)
			saved[entry - old->entries] = true;
	}
}

/* A tensor of shard @f that is not saved, or NULL. */
static const char *find_lost(const struct hoist__index *old, size_t f, const bool *saved)
{
	for (size_t i = old->first[f]; i < old->first[f + 1]; i++)
		if (!saved[old->of_file[i]])
			return old->entries[old->of_file[i]].tensor;
	return NULL;
}

/* Only fails if the save reads one of the old shards: a save from elsewhere means to replace all of
 * them. */
static int check_shards(const struct hoist_save *save, const struct hoist__index *old, bool *saved)
{
	const char *index_name = hoist__save_name(old_index_path(save));
	const char *lost = NULL;
	size_t n_read = 0;
	mark_saved(save, old, saved);
	for (size_t f = 0; f < old->n_files; f++) {
		bool there = false;
		int read = is_shard(old->files[f], index_name)
				   ? is_read(save, old->files[f], &there)
				   : 0;
		if (read < 0)
			return read;
		n_read += (size_t)read;
		if (there && read == 0 && lost == NULL)
			lost = find_lost(old, f, saved);
	}
	if (n_read == 0 || lost == NULL)
		return 0;
	return hoist__fail(-EEXIST,
			   "saving %s: the save reads %zu of the %zu shards of %s and replaces "
			   "that index, so tensor \"%.200s\" of another shard would be lost; save "
			   "a checkpoint opened by that index, or save to another name",
			   save->path, n_read, old->n_files, index_name, lost);
}

int hoist__save_check_replaced(const struct hoist_save *save)
{
	struct hoist__index *old;
	int err = read_old_index(save, &old);
	if (err < 0 || old == NULL)
		return err;
	bool *saved = calloc(old->n_entries + 1, sizeof *saved);
	err = saved != NULL ? check_shards(save, old, saved)
			    : hoist__fail_nomem("a table of tensors", old->n_entries + 1);
	free(saved);
	hoist__index_destroy(old);
	return err;
}

/* --- removal --- */

/* Tells whether file @i of the old index is to be removed: its name is a shard's, and no file of
 * that name is written. */
static bool is_stale(const struct hoist_save *save, const struct hoist__index *old, size_t i)
{
	return is_shard(old->files[i], hoist__save_name(old_index_path(save))) &&
	       !is_written(save, old->files[i]);
}

static void remove_shards(const struct hoist_save *save, const struct hoist__index *old)
{
	for (size_t i = 0; old != NULL && i < old->n_files; i++)
		if (is_stale(save, old, i)) {
			hoist__log(load, "%s: removing %s, which is no longer a part of it",
				   save->path, old->files[i]);
			(void)hoist__output_remove(save->files[0].output, old->files[i]);
		}
}

/* The name of the single file that the shards replace, or NULL. */
static const char *old_file_name(const struct hoist_save *save)
{
	bool shards = save->index != NULL && strcmp(save->path, save->index_path) != 0;
	return shards ? hoist__save_name(save->path) : NULL;
}

/* Removes the files that were replaced: the shards of the old index, and the single file that was
 * at the path. */
static void remove_stale(const struct hoist_save *save, const struct hoist__index *old)
{
	remove_shards(save, old);
	if (old_file_name(save) != NULL)
		(void)hoist__output_remove(save->index, old_file_name(save));
}

/* Removes the old index, so that readers open the one file instead of the old shards.  Until then
 * the old index is in place, also on the disk, and readers get the old checkpoint. */
static int remove_shadow(const struct hoist_save *save)
{
	if (save->shadow_path == NULL)
		return 0;
	const struct hoist__output *output = save->files[0].output;
	int removed = hoist__output_remove(output, hoist__save_name(save->shadow_path));
	if (removed < 0)
		return hoist__fail_errno(removed,
					 "saving %s: the file is complete, but readers of its "
					 "folder take %s instead, which could not be removed",
					 save->path, save->shadow_path);
	return removed > 0 ? hoist__output_sync_folder(output) : 0;
}

/* --- new files are on the disk before old ones are removed, also with NO_SYNC --- */

static bool is_there(const struct hoist_save *save, const char *name)
{
	return name != NULL && hoist__output_has(save->files[0].output, name);
}

static bool removes(const struct hoist_save *save, const struct hoist__index *old)
{
	for (size_t i = 0; old != NULL && i < old->n_files; i++)
		if (is_stale(save, old, i))
			return true;
	return is_there(save, old_file_name(save)) ||
	       (save->shadow_path != NULL && is_there(save, hoist__save_name(save->shadow_path)));
}

static int sync_before_removal(const struct hoist_save *save, const struct hoist__index *old)
{
	int err = 0;
	if (!removes(save, old))
		return 0;
	for (size_t f = 0; err == 0 && f < save->n_files; f++)
		err = hoist__output_sync(save->files[f].output);
	if (err == 0 && save->index != NULL)
		err = hoist__output_sync(save->index);
	return err;
}

/* --- publishing --- */

static int publish_files(struct hoist_save *save)
{
	int err = 0;
	for (size_t f = 0; err == 0 && f < save->n_files; f++) {
		err = hoist__output_publish(save->files[f].output);
		if (err < 0 && f > 0)
			err = hoist__fail_in(err, "%zu of %zu shards have been replaced", f,
					     save->n_files);
	}
	/* The shards' names reach the disk before the index that names them. */
	if (err == 0 && save->index != NULL)
		err = hoist__output_sync_folder(save->files[0].output);
	if (err == 0 && save->index != NULL)
		err = hoist__output_publish(save->index);
	return err;
}

static int publish(struct hoist_save *save, const struct hoist__index *old)
{
	int err = publish_files(save);
	if (err == 0)
		err = hoist__output_sync_folder(save->files[0].output);
	if (err == 0)
		err = remove_shadow(save);
	if (err == 0)
		remove_stale(save, old);
	return err;
}

/* The last moment for a cancel is before the first file gets its name. */
int hoist__save_publish(struct hoist_save *save)
{
	uint64_t start = hoist__now_ns();
	struct hoist__index *old = NULL;
	int err = check_sources(save);
	if (err == 0)
		err = finish_files(save);
	if (err == 0)
		err = read_old_index(save, &old);
	if (err == 0)
		err = sync_before_removal(save, old);
	if (err == 0 && atomic_load_explicit(&save->job.cancelled, memory_order_relaxed))
		err = hoist__fail(-ECANCELED, "the save was cancelled");
	if (err == 0) {
		err = publish(save, old);
		save->report.sync_ns = hoist__now_ns() - start;
	}
	hoist__index_destroy(old);
	return err;
}
