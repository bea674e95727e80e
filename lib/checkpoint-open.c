/* SPDX-License-Identifier: MIT */
/* Opening a checkpoint: which files it has, their headers, and one table over all.
 *
 * path -> { index file | safetensors file | folder } -> shards -> tables.  A
 * half-opened checkpoint is an ordinary one with fewer parts, so every failure
 * ends in hoist_checkpoint_close(). */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "lib/checkpoint.h"

#define INDEX_SUFFIX ".safetensors.index.json"
#define FILE_SUFFIX ".safetensors"

/* An index is names only: the limit that safetensors sets to a header serves here. */
#define MAX_INDEX_BYTES HOIST__SAFETENSORS_MAX_HEADER

void hoist__shard_close(struct hoist__shard *shard)
{
	hoist__manifest_destroy(shard->manifest);
	hoist__file_close(shard->file);
	*shard = (struct hoist__shard){0};
}

/* The parts of a format that need to know of bytes only. */
static const struct hoist__parser {
	int (*header_bytes)(const char *file, const void *prefix, size_t n_prefix,
			    uint64_t file_bytes, size_t *ret);
	int (*parse)(const char *file, const void *header, size_t header_bytes, uint64_t file_bytes,
		     struct hoist__manifest **ret);
} parsers[] = {
	[HOIST__SAFETENSORS] = {hoist__safetensors_header_bytes, hoist__safetensors_parse},
	[HOIST__MAX] = {hoist__max_header_bytes, hoist__max_parse},
};

static int read_header(struct hoist__shard *shard, enum hoist__format format)
{
	const struct hoist__file *file = shard->file;
	unsigned char prefix[HOIST__MAX_FILE_PREFIX] = {0};
	size_t n_prefix = file->bytes < sizeof prefix ? (size_t)file->bytes : sizeof prefix;
	int err = hoist__file_read(file, 0, prefix, n_prefix);
	if (err < 0)
		return err;
	if (format == HOIST__ANY_FORMAT)
		format = hoist__max_is(prefix, n_prefix) ? HOIST__MAX : HOIST__SAFETENSORS;
	const struct hoist__parser *parser = &parsers[format];
	size_t header_bytes;
	err = parser->header_bytes(file->path, prefix, n_prefix, file->bytes, &header_bytes);
	if (err < 0)
		return err;
	shard->format = format;
	unsigned char *header = malloc(header_bytes);
	if (header == NULL)
		return hoist__fail_nomem("a header", header_bytes);
	err = hoist__file_read(file, 0, header, header_bytes);
	if (err == 0)
		err = parser->parse(file->path, header, header_bytes, file->bytes,
				    &shard->manifest);
	free(header);
	return err;
}

int hoist__shard_open(int dir_fd, const char *path, const char *display, unsigned flags,
		      enum hoist__format format, struct hoist__shard *ret)
{
	struct hoist__shard shard = {0};
	int err = hoist__file_open(dir_fd, path, display, flags, &shard.file);
	if (err == 0)
		err = read_header(&shard, format);
	if (err < 0) {
		hoist__shard_close(&shard);
		return err;
	}
	*ret = shard;
	return 0;
}

/* "<folder>/<name>" for messages. */
static char *join(const char *folder, const char *name)
{
	char *path;
	const char *slash = folder[0] != '\0' && folder[strlen(folder) - 1] == '/' ? "" : "/";
	if (asprintf(&path, "%s%s%s", folder, slash, name) < 0) {
		hoist__fail_nomem("a path", strlen(folder) + strlen(name) + 2);
		return NULL;
	}
	return path;
}

static int add_shards(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
		      const char *const *names, size_t n)
{
	checkpoint->files = calloc(n > 0 ? n : 1, sizeof *checkpoint->files);
	if (checkpoint->files == NULL)
		return hoist__fail_nomem("a list of files", n * sizeof *checkpoint->files);
	for (size_t f = 0; f < n; f++) {
		char *display = join(folder, names[f]);
		if (display == NULL)
			return -ENOMEM;
		int err = hoist__shard_open(dir_fd, names[f], display, checkpoint->file_flags,
					    HOIST__SAFETENSORS, &checkpoint->files[f]);
		free(display);
		if (err < 0)
			return err;
		checkpoint->n_files++;
	}
	return 0;
}

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

static int open_index(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
		      const struct hoist__file *file)
{
	int err = parse_index(file, &checkpoint->index);
	if (err < 0)
		return err;
	const struct hoist__index *index = checkpoint->index;
	err = add_shards(checkpoint, dir_fd, folder, index->files, index->n_files);
	if (err < 0)
		return hoist__fail_in(err, "%s names a file that cannot be used", file->path);
	for (size_t f = 0; f < index->n_files; f++) {
		err = hoist__index_check(index, file->path, f, checkpoint->files[f].manifest);
		if (err < 0)
			return err;
	}
	return 0;
}

/* --- folders --- */

static bool has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name);
	size_t m = strlen(suffix);
	return n > m && strcmp(name + n - m, suffix) == 0;
}

struct names {
	char **list;
	size_t n;
};

static void free_names(struct names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->list[i]);
	free(names->list);
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int add_name(struct names *names, const char *name)
{
	char **list = realloc(names->list, (names->n + 1) * sizeof *list);
	if (list == NULL)
		return hoist__fail_nomem("a list of files", (names->n + 1) * sizeof *list);
	names->list = list;
	names->list[names->n] = strdup(name);
	if (names->list[names->n] == NULL)
		return hoist__fail_nomem("a file name", strlen(name));
	names->n++;
	return 0;
}

/* The names in @dir_fd that end in @suffix, hidden ones left out, sorted. */
static int list_folder(int dir_fd, const char *folder, const char *suffix, struct names *ret)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	if (dir == NULL) {
		int err = -errno;
		if (fd >= 0)
			close(fd);
		return hoist__fail_errno(err, "listing %s", folder);
	}
	int err = 0;
	struct dirent *entry;
	while (err == 0 && (errno = 0, entry = readdir(dir)) != NULL)
		if (entry->d_name[0] != '.' && has_suffix(entry->d_name, suffix))
			err = add_name(ret, entry->d_name);
	if (err == 0 && errno != 0)
		err = hoist__fail_errno(-errno, "listing %s", folder);
	closedir(dir);
	if (ret->n > 1)
		qsort(ret->list, ret->n, sizeof *ret->list, compare_names);
	return err;
}

static int open_index_named(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
			    const char *name)
{
	char *display = join(folder, name);
	if (display == NULL)
		return -ENOMEM;
	struct hoist__file *file;
	int err = hoist__file_open(dir_fd, name, display,
				   HOIST__FILE_NO_DIRECT | checkpoint->file_flags, &file);
	free(display);
	if (err < 0)
		return err;
	err = open_index(checkpoint, dir_fd, folder, file);
	hoist__file_close(file);
	return err;
}

/* The one index if there is one; "model" if there are several; else all files. */
static int open_listed(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
		       const struct names *indices, const struct names *files)
{
	static const char model_index[] = "model" INDEX_SUFFIX;
	for (size_t i = 0; i < indices->n; i++)
		if (indices->n == 1 || strcmp(indices->list[i], model_index) == 0)
			return open_index_named(checkpoint, dir_fd, folder, indices->list[i]);
	if (indices->n > 1)
		return hoist__fail(-EINVAL,
				   "%s has %zu index files (%s, %s, ...); name the one to open",
				   folder, indices->n, indices->list[0], indices->list[1]);
	static const char *const model[] = {"model" FILE_SUFFIX};
	for (size_t i = 0; i < files->n; i++)
		if (strcmp(files->list[i], model[0]) == 0)
			return add_shards(checkpoint, dir_fd, folder, model, 1);
	if (files->n == 0)
		return hoist__fail(-ENOENT, "%s has no checkpoint: neither *%s nor *%s is there",
				   folder, INDEX_SUFFIX, FILE_SUFFIX);
	return add_shards(checkpoint, dir_fd, folder, (const char *const *)files->list, files->n);
}

static int open_folder(hoist_checkpoint *checkpoint, int dir_fd, const char *folder)
{
	struct names indices = {0};
	struct names files = {0};
	int err = list_folder(dir_fd, folder, INDEX_SUFFIX, &indices);
	if (err == 0)
		err = list_folder(dir_fd, folder, FILE_SUFFIX, &files);
	if (err == 0)
		err = open_listed(checkpoint, dir_fd, folder, &indices, &files);
	free_names(&indices);
	free_names(&files);
	return err;
}

/* --- single files --- */

/* A safetensors file begins with a length of at most 100 MB in 8 bytes, so one
 * of these is zero; JSON text has no zero byte. */
static int is_index(const struct hoist__file *file, bool *ret)
{
	unsigned char start[8] = {0};
	size_t n = file->bytes < sizeof start ? (size_t)file->bytes : sizeof start;
	int err = hoist__file_read(file, 0, start, n);
	if (err < 0)
		return err;
	size_t i = 0;
	while (i < n &&
	       (start[i] == ' ' || start[i] == '\t' || start[i] == '\n' || start[i] == '\r'))
		i++;
	*ret = i < n && start[i] == '{' && memchr(start, 0, n) == NULL;
	return 0;
}

static int open_index_file(hoist_checkpoint *checkpoint, const struct hoist__file *file)
{
	const char *slash = strrchr(file->path, '/');
	char *folder = slash == NULL	     ? strdup(".")
		       : slash == file->path ? strdup("/")
					     : strndup(file->path, (size_t)(slash - file->path));
	if (folder == NULL)
		return hoist__fail_nomem("a path", strlen(file->path));
	int dir_fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int err = dir_fd < 0 ? hoist__fail_errno(-errno, "opening %s", folder)
			     : open_index(checkpoint, dir_fd, folder, file);
	if (dir_fd >= 0)
		close(dir_fd);
	free(folder);
	return err;
}

static int open_file(hoist_checkpoint *checkpoint, const char *path)
{
	struct hoist__file *file;
	bool index = false;
	int err = hoist__file_open(AT_FDCWD, path, NULL, 0, &file);
	if (err < 0)
		return err;
	err = is_index(file, &index);
	if (err == 0 && index)
		err = open_index_file(checkpoint, file);
	if (err < 0 || index) {
		hoist__file_close(file);
		return err;
	}
	checkpoint->files = calloc(1, sizeof *checkpoint->files);
	if (checkpoint->files == NULL) {
		hoist__file_close(file);
		return hoist__fail_nomem("a list of files", sizeof *checkpoint->files);
	}
	checkpoint->files[0].file = file;
	checkpoint->n_files = 1;
	return read_header(&checkpoint->files[0], HOIST__ANY_FORMAT);
}

static int open_path(hoist_checkpoint *checkpoint, const char *path)
{
	int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && errno == ENOTDIR)
		return open_file(checkpoint, path);
	if (fd < 0)
		return hoist__fail_errno(-errno, "opening %s", path);
	int err = open_folder(checkpoint, fd, path);
	close(fd);
	return err;
}

int hoist_checkpoint_open(const char *path, unsigned flags, hoist_checkpoint **ret)
{
	if (path == NULL || ret == NULL)
		return hoist__fail(-EINVAL, "opening a checkpoint: the path or the result is NULL");
	if ((flags & ~HOIST_OPEN_FOLLOW_LINKS) != 0)
		return hoist__fail(-EINVAL, "opening %s: unknown flags 0x%x", path, flags);
	hoist_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
	if (checkpoint == NULL)
		return hoist__fail_nomem("a checkpoint", sizeof *checkpoint);
	atomic_init(&checkpoint->refs, 1);
	checkpoint->file_flags = (flags & HOIST_OPEN_FOLLOW_LINKS) != 0 ? 0 : HOIST__FILE_BENEATH;
	int err = open_path(checkpoint, path);
	if (err == 0)
		err = hoist__checkpoint_build_tensors(checkpoint);
	if (err == 0)
		err = hoist__checkpoint_build_metadata(checkpoint);
	if (err < 0) {
		hoist_checkpoint_close(checkpoint);
		return err;
	}
	*ret = checkpoint;
	return 0;
}
