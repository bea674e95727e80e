/* SPDX-License-Identifier: MIT */
/* lib/checkpoint/checkpoint-shard.c - opens the files of a checkpoint, tells their format, reads
 * their headers.
 * The contract is in lib/checkpoint/checkpoint.h. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/error.h"
#include "io/direct.h"
#include "lib/checkpoint/checkpoint.h"

void hoist__checkpoint_file_close(struct hoist__checkpoint_file *shard)
{
	hoist__manifest_destroy(shard->manifest);
	hoist__file_close(shard->file);
	free(shard->named);
	free(shard->kept);
	*shard = (struct hoist__checkpoint_file){0};
}

static int read_file(void *context, uint64_t offset, void *buffer, size_t bytes)
{
	return hoist__file_read(context, offset, buffer, bytes);
}

struct hoist__reader hoist__checkpoint_file_reader(struct hoist__file *file, bool lenient)
{
	return (struct hoist__reader){.name = file->path,
				      .bytes = file->bytes,
				      .read = read_file,
				      .context = file,
				      .lenient = lenient};
}

int hoist__checkpoint_file_open(int dir_fd, const char *path, const char *display, unsigned flags,
				enum hoist__format format, bool lenient,
				struct hoist__checkpoint_file *ret)
{
	struct hoist__checkpoint_file shard = {.format = format};
	int err = hoist__file_open(dir_fd, path, display, flags, &shard.file);
	if (err < 0)
		return err;
	const struct hoist__reader reader = hoist__checkpoint_file_reader(shard.file, lenient);
	if (format == HOIST__ANY_FORMAT)
		err = hoist__format_detect(&reader, &shard.format);
	if (err == 0 && shard.format == HOIST__INDEX)
		err = hoist__fail(-EBADMSG, "%s: this is an index of other files, not one of them",
				  shard.file->path);
	if (err == 0)
		err = hoist__format_parse(&reader, shard.format, &shard.manifest);
	if (err < 0) {
		hoist__checkpoint_file_close(&shard);
		return err;
	}
	*ret = shard;
	return 0;
}

char *hoist__join_path(const char *folder, const char *name)
{
	char *path;
	const char *slash = folder[0] != '\0' && folder[strlen(folder) - 1] == '/' ? "" : "/";
	if (asprintf(&path, "%s%s%s", folder, slash, name) < 0) {
		hoist__fail_nomem("a path", strlen(folder) + strlen(name) + 2);
		return NULL;
	}
	return path;
}

static int add_shard(hoist_checkpoint *checkpoint, int dir_fd, const char *folder, const char *name)
{
	struct hoist__checkpoint_file *shard = &checkpoint->files[checkpoint->n_files];
	char *display = hoist__join_path(folder, name);
	if (display == NULL)
		return -ENOMEM;
	int err = hoist__checkpoint_file_open(dir_fd, name, display, checkpoint->file_flags,
					      HOIST__ANY_FORMAT, checkpoint->lenient, shard);
	free(display);
	if (err < 0)
		return err;
	if (!checkpoint->none_kept || strchr(name, '/') != NULL)
		err = hoist__kept_find(dir_fd, name, checkpoint->file_flags, shard);
	if (err < 0) {
		hoist__checkpoint_file_close(shard);
		return err;
	}
	checkpoint->n_files++;
	const struct hoist__checkpoint_file *first = &checkpoint->files[0];
	if (shard->format != first->format)
		return hoist__fail(-EBADMSG,
				   "%s is a file of the format \"%s\", but %s is one of \"%s\": "
				   "they are not of one checkpoint",
				   shard->file->path, hoist__format_name(shard->format),
				   first->file->path, hoist__format_name(first->format));
	return 0;
}

bool hoist__checkpoint_give_up_direct(hoist_checkpoint *checkpoint)
{
	bool any = false;
	for (size_t i = 0; i < checkpoint->n_files; i++) {
		struct hoist__file *file = checkpoint->files[i].file;
		if (file->direct_fd < 0)
			continue;
		hoist__direct_give_up(file, HOIST__TOO_FEW_DESCRIPTORS);
		any = true;
	}
	return any;
}

static int fail_limit(size_t n_files)
{
	struct rlimit limit = {0, 0};
	(void)getrlimit(RLIMIT_NOFILE, &limit);
	return hoist__fail_in(-EMFILE,
			      "a checkpoint of %zu files, where RLIMIT_NOFILE is %llu; raise that "
			      "limit (ulimit -n)",
			      n_files, (unsigned long long)limit.rlim_cur);
}

int hoist__checkpoint_add(hoist_checkpoint *checkpoint, int dir_fd, const char *folder,
			  const char *const *names, size_t n)
{
	size_t all = checkpoint->n_files + n;
	struct hoist__checkpoint_file *files =
		realloc(checkpoint->files, (all > 0 ? all : 1) * sizeof *files);
	if (files == NULL)
		return hoist__fail_nomem("a list of files", all * sizeof *files);
	checkpoint->files = files;
	int err = 0;
	for (size_t i = 0; err == 0 && i < n; i++) {
		err = add_shard(checkpoint, dir_fd, folder, names[i]);
		if (err == -EMFILE && hoist__checkpoint_give_up_direct(checkpoint))
			err = add_shard(checkpoint, dir_fd, folder, names[i]);
	}
	return err == -EMFILE && n > 1 ? fail_limit(n) : err;
}

const char *hoist__checkpoint_file_name(const struct hoist_checkpoint *checkpoint, size_t file)
{
	const char *path = checkpoint->files[file].file->path;
	const char *slash = strrchr(path, '/');
	return slash != NULL ? slash + 1 : path;
}
