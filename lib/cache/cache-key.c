/* SPDX-License-Identifier: MIT */
/* lib/cache/cache-key.c - finds out if a checkpoint has changed since its image was made.
 * The contract is in lib/cache/cache.h.
 *
 * The checkpoint's files are only looked at, not opened.  A rename, chmod or another link makes an
 * image stale, too: only the inode's ctime tells of a write after which the mtime was set back.
 * If a folder has changed, files may have come that belong to the checkpoint, or that have nothing
 * to do with it.  Only then is the checkpoint opened, to see which files it has now. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "lib/cache/cache.h"
#include "lib/checkpoint/checkpoint.h"

#define INDEX_SUFFIX ".index.json"

static int look_at(const char *path, struct hoist__image_file *ret)
{
	struct stat status;
	int err = hoist__path_stat(path, &status);
	if (err < 0)
		return err;
	ret->dev = status.st_dev;
	ret->ino = status.st_ino;
	ret->bytes = S_ISDIR(status.st_mode) ? 0 : (uint64_t)status.st_size;
	ret->mtime_ns = hoist__file_time_ns(&status.st_mtim);
	ret->ctime_ns = hoist__file_time_ns(&status.st_ctim);
	return S_ISDIR(status.st_mode) ? 1 : 0;
}

/* --- making --- */

void hoist__image_key_free(struct hoist__image_key *key)
{
	for (size_t i = 0; key->paths != NULL && i < key->n_files; i++)
		free(key->paths[i]);
	free(key->paths);
	free(key->files);
	*key = (struct hoist__image_key){0};
}

static int add(struct hoist__image_key *key, const char *path, const struct hoist__image_file *file)
{
	size_t n = key->n_files + 1;
	struct hoist__image_file *files = realloc(key->files, n * sizeof *files);
	if (files != NULL)
		key->files = files;
	char **paths = realloc(key->paths, n * sizeof *paths);
	if (paths != NULL)
		key->paths = paths;
	char *copy = strdup(path);
	if (files == NULL || paths == NULL || copy == NULL) {
		free(copy);
		return hoist__fail_nomem("an image's list of files", n * sizeof *files);
	}
	files[n - 1] = *file;
	paths[n - 1] = copy;
	key->n_files = n;
	return 0;
}

static int add_looked_at(struct hoist__image_key *key, const char *path,
			 enum hoist__image_file_kind kind)
{
	struct hoist__image_file file = {.kind = kind};
	int err = look_at(path, &file);
	return err < 0 ? hoist__fail_errno(err, "%s", path) : add(key, path, &file);
}

static bool is_index(const char *name)
{
	size_t n = strlen(name);
	size_t suffix = strlen(INDEX_SUFFIX);
	return n >= suffix && strcmp(name + n - suffix, INDEX_SUFFIX) == 0;
}

struct indices {
	struct hoist__image_key *key;
	const char *folder;
};

/* Adds every index in the folder.  One of them is the checkpoint's.  A change of another one is
 * rare, and only costs a load. */
static int add_index(void *context, const char *name)
{
	const struct indices *indices = context;
	if (!is_index(name))
		return 0;
	char *path = hoist__join_path(indices->folder, name);
	if (path == NULL)
		return -ENOMEM;
	int err = add_looked_at(indices->key, path, HOIST__IMAGE_INDEX);
	free(path);
	return err;
}

static int add_indices(struct hoist__image_key *key, const char *folder)
{
	struct indices indices = {key, folder};
	return hoist__folder_list(AT_FDCWD, folder, folder, add_index, &indices);
}

static int add_shards(struct hoist__image_key *key, const hoist_checkpoint *checkpoint)
{
	int err = 0;
	for (size_t f = 0; err == 0 && f < checkpoint->n_files; f++) {
		const struct hoist__file *opened = checkpoint->files[f].file;
		const struct hoist__image_file file = {
			.dev = opened->dev,
			.ino = opened->ino,
			.bytes = opened->bytes,
			.mtime_ns = opened->mtime_ns,
			.ctime_ns = opened->ctime_ns,
			.kind = HOIST__IMAGE_SHARD,
		};
		err = add(key, opened->path, &file);
	}
	return err;
}

static bool has(const struct hoist__image_key *key, const struct hoist__image_file *file)
{
	for (size_t i = 0; i < key->n_files; i++)
		if (key->files[i].dev == file->dev && key->files[i].ino == file->ino)
			return true;
	return false;
}

/* The shards come first: a tensor's shard is an index into them. */
int hoist__image_key_make(const char *path, hoist_checkpoint *checkpoint,
			  struct hoist__image_key *ret)
{
	struct hoist__image_key key = {0};
	struct hoist__image_file self = {0};
	int kind = look_at(path, &self);
	int err = kind < 0 ? hoist__fail_errno(kind, "%s", path) : add_shards(&key, checkpoint);
	if (err == 0 && kind == 1) {
		self.kind = HOIST__IMAGE_FOLDER;
		err = add(&key, path, &self);
		if (err == 0)
			err = add_indices(&key, path);
	} else if (err == 0 && !has(&key, &self)) {
		self.kind = HOIST__IMAGE_INDEX;
		err = add(&key, path, &self);
	}
	if (err < 0)
		hoist__image_key_free(&key);
	else
		*ret = key;
	return err;
}

/* --- checking --- */

static int stale(const char *path, const char *what)
{
	return hoist__fail(-ESTALE,
			   "%s %s since the checkpoint was cached; add the checkpoint again "
			   "(`hoist cache add`)",
			   path, what);
}

/* The plainest difference is told.  The ctime is compared last: it shows a write whose mtime was
 * set back, but also moves when the file is renamed or gets other attributes. */
static int check_file(const char *path, const struct hoist__image_file *was)
{
	struct hoist__image_file is = {0};
	int err = look_at(path, &is);
	if (err == -ENOENT || err == -ENOTDIR)
		return stale(path, "was removed");
	if (err < 0)
		return hoist__fail_errno(err, "%s", path);
	if (is.dev != was->dev || is.ino != was->ino)
		return stale(path, "was replaced by another file");
	if (is.bytes != was->bytes)
		return hoist__fail(-ESTALE,
				   "%s had %llu bytes when the checkpoint was cached, and has %llu "
				   "now; add the checkpoint again (`hoist cache add`)",
				   path, (unsigned long long)was->bytes,
				   (unsigned long long)is.bytes);
	if (is.mtime_ns != was->mtime_ns)
		return stale(path, "was written to");
	return is.ctime_ns == was->ctime_ns
		       ? 0
		       : stale(path, "was written to, renamed or given other attributes");
}

/* Checks that the folder now has the same shards in the same order. */
static int check_folder(const struct hoist__image_table *table, const char *path)
{
	hoist_checkpoint *now = NULL;
	uint64_t n_shards = 0;
	int err = hoist_checkpoint_open(path, table->header->open_flags, &now);
	if (err < 0)
		return err;
	while (n_shards < table->header->n_files &&
	       table->files[n_shards].kind == HOIST__IMAGE_SHARD)
		n_shards++;
	bool same = now->n_files == n_shards && now->n_tensors == table->header->n_tensors;
	for (size_t f = 0; same && f < now->n_files; f++)
		same = now->files[f].file->dev == table->files[f].dev &&
		       now->files[f].file->ino == table->files[f].ino;
	hoist_checkpoint_close(now);
	return same ? 0 : stale(path, "has other files");
}

int hoist__image_key_check(const struct hoist__image_table *table)
{
	const char *folder = NULL;
	int err = 0;
	for (uint64_t f = 0; err == 0 && f < table->header->n_files; f++) {
		const struct hoist__image_file *file = &table->files[f];
		const char *path = table->strings + file->path;
		err = check_file(path, file);
		if (err == -ESTALE && file->kind == HOIST__IMAGE_FOLDER) {
			folder = path;
			err = 0;
		}
	}
	return err == 0 && folder != NULL ? check_folder(table, folder) : err;
}
