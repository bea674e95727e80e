/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint-open.c - opens a checkpoint: its files, their headers, and one table
 * over all.
 * The contract is in hoist/checkpoint.h.
 *
 * path -> { index file | file of any format | folder } -> shards -> tables.  A half-opened
 * checkpoint is an ordinary one with fewer parts, so that every failure ends in
 * hoist_checkpoint_close(). */
#include "config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "io/again.h"
#include "lib/checkpoint/checkpoint.h"

/* An index holds only names: the limit that safetensors sets to a header is enough. */
#define MAX_INDEX_BYTES HOIST__SAFETENSORS_MAX_HEADER

/* --- indices --- */

static int parse_index(const struct hoist__file *file, struct hoist__index **ret)
{
	if (file->bytes > MAX_INDEX_BYTES)
		return hoist__fail(-EBADMSG,
				   "%s: %llu bytes are too many for an index (limit %llu)",
				   file->path, (unsigned long long)file->bytes,
				   (unsigned long long)MAX_INDEX_BYTES);
	size_t bytes = (size_t)file->bytes;
	char *json = malloc(bytes > 0 ? bytes : 1);
	if (json == NULL)
		return hoist__fail_nomem("an index", bytes);
	int err = hoist__file_read(file, 0, json, bytes);
	if (err == 0)
		err = hoist__index_parse(file->path, json, bytes, ret);
	free(json);
	return err;
}

int hoist__checkpoint_add_index(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
				const struct hoist__file *file)
{
	int err = parse_index(file, &checkpoint->index);
	if (err < 0)
		return err;
	const struct hoist__index *index = checkpoint->index;
	err = hoist__checkpoint_add(checkpoint, dir_fd, folder, index->files, index->n_files);
	if (err < 0)
		return hoist__fail_in(err, "%s names a file that cannot be used", file->path);
	for (size_t f = 0; err == 0 && f < index->n_files; f++) {
		struct hoist__checkpoint_file *shard = &checkpoint->files[f];
		size_t n = shard->manifest->n_tensors;
		shard->named = calloc(n > 0 ? n : 1, sizeof *shard->named);
		err = shard->named == NULL ? hoist__fail_nomem("the tensors of a shard", n)
					   : hoist__index_check(index, file->path, f,
								shard->manifest, shard->named);
	}
	return err;
}

/* --- single files --- */

int hoist__open_parent(const char *path, char **ret_path, int *ret_fd)
{
	const char *slash = strrchr(path, '/');
	char *folder = slash == NULL   ? strdup(".")
		       : slash == path ? strdup("/")
				       : strndup(path, (size_t)(slash - path));
	if (folder == NULL)
		return hoist__fail_nomem("a path", strlen(path));
	int fd = HOIST__UNINTERRUPTED(open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0) {
		int err = hoist__fail_errno(-errno, "opening %s", folder);
		free(folder);
		return err;
	}
	*ret_path = folder;
	*ret_fd = fd;
	return 0;
}

static int open_index_file(hoist_checkpoint *checkpoint, const struct hoist__file *file)
{
	char *folder;
	int fd;
	int err = hoist__open_parent(file->path, &folder, &fd);
	if (err < 0)
		return err;
	err = hoist__checkpoint_add_index(checkpoint, fd, folder, file);
	close(fd);
	free(folder);
	return err;
}

static int open_gguf_parts(hoist_checkpoint *checkpoint)
{
	const char *path = checkpoint->files[0].file->path;
	char *folder;
	int fd;
	int err = hoist__open_parent(path, &folder, &fd);
	if (err < 0)
		return err;
	err = hoist__gguf_add_parts(checkpoint, fd, folder,
				    hoist__checkpoint_file_name(checkpoint, 0));
	close(fd);
	free(folder);
	return err;
}

/* Takes over @file. */
static int open_only_file(hoist_checkpoint *checkpoint, struct hoist__file *file,
			  enum hoist__format format)
{
	checkpoint->files = calloc(1, sizeof *checkpoint->files);
	if (checkpoint->files == NULL) {
		hoist__file_close(file);
		return hoist__fail_nomem("a list of files", sizeof *checkpoint->files);
	}
	struct hoist__checkpoint_file *shard = &checkpoint->files[0];
	*shard = (struct hoist__checkpoint_file){.format = format, .file = file};
	checkpoint->n_files = 1;
	const struct hoist__reader reader =
		hoist__checkpoint_file_reader(file, checkpoint->lenient);
	int err = hoist__format_parse(&reader, format, &shard->manifest);
	if (err == 0 && format != HOIST__RAW)
		err = hoist__kept_find(AT_FDCWD, file->path, 0, shard);
	if (err == 0 && hoist__gguf_is_first(shard))
		err = open_gguf_parts(checkpoint);
	return err;
}

static int open_file(hoist_checkpoint *checkpoint, const char *path, bool raw)
{
	struct hoist__file *file;
	enum hoist__format format = HOIST__RAW;
	int err = hoist__file_open(AT_FDCWD, path, NULL, 0, &file);
	if (err < 0)
		return err;
	const struct hoist__reader reader =
		hoist__checkpoint_file_reader(file, checkpoint->lenient);
	if (!raw)
		err = hoist__format_detect(&reader, &format);
	if (err == 0 && format != HOIST__INDEX)
		return open_only_file(checkpoint, file, format);
	if (err == 0)
		err = open_index_file(checkpoint, file);
	hoist__file_close(file);
	return err;
}

static int open_path(hoist_checkpoint *checkpoint, const char *path, bool raw)
{
	int fd = HOIST__UNINTERRUPTED(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0 && errno == ENOTDIR)
		return open_file(checkpoint, path, raw);
	if (fd < 0)
		return hoist__fail_errno(-errno, "opening %s", path);
	if (raw) {
		close(fd);
		return hoist__fail(-EISDIR, "opening %s: this is a folder; name a file", path);
	}
	int err = hoist__checkpoint_add_folder(checkpoint, fd, path);
	close(fd);
	return err;
}

int hoist_checkpoint_open(const char *path, unsigned flags, hoist_checkpoint **ret)
{
	if (path == NULL || ret == NULL)
		return hoist__fail(-EINVAL, "opening a checkpoint: the path or the result is NULL");
	if ((flags & ~HOIST__OPEN_FLAGS) != 0)
		return hoist__fail(-EINVAL, "opening %s: unknown flags 0x%x", path, flags);
	uint64_t begin = hoist__now_ns();
	hoist_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
	if (checkpoint == NULL)
		return hoist__fail_nomem("a checkpoint", sizeof *checkpoint);
	atomic_init(&checkpoint->refs, 1);
	checkpoint->file_flags = (flags & HOIST_OPEN_FOLLOW_LINKS) != 0 ? 0 : HOIST__FILE_BENEATH;
	checkpoint->lenient = (flags & HOIST_OPEN_SKIP_UNSUPPORTED) != 0;
	int err = open_path(checkpoint, path, (flags & HOIST_OPEN_RAW) != 0);
	if (err == 0)
		err = hoist__checkpoint_build_tensors(checkpoint);
	if (err == 0)
		err = hoist__checkpoint_build_metadata(checkpoint);
	if (err < 0) {
		hoist_checkpoint_close(checkpoint);
		return err;
	}
	checkpoint->open_ns = hoist__now_ns() - begin;
	*ret = checkpoint;
	return 0;
}
