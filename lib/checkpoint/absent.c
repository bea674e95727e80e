/* SPDX-License-Identifier: MIT */
/* A checkpoint of which all files, or some, are on other machines.
 * The contract is in lib/checkpoint/absent.h. */
#include "config.h"

#include "lib/checkpoint/absent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/again.h"
#include "io/direct.h"

#define PIECE_BYTES ((size_t)64 << 10)

bool hoist__gaps_next(struct hoist__gaps *gaps, const struct hoist_checkpoint *checkpoint,
		      uint64_t most, uint64_t *ret_at, uint64_t *ret_n)
{
	uint64_t end = checkpoint->files[gaps->file].file->bytes;
	for (; gaps->tensor < checkpoint->n_tensors; gaps->tensor++) {
		const struct hoist__checkpoint_tensor *t = &checkpoint->tensors[gaps->tensor];
		if (t->file > gaps->file)
			break;
		if (t->file < gaps->file)
			continue;
		if (t->tensor->offset > gaps->at) {
			end = t->tensor->offset;
			break;
		}
		gaps->at = hoist__max_u64(gaps->at, t->tensor->offset + t->tensor->bytes);
	}
	if (gaps->at >= end)
		return false;
	*ret_at = gaps->at;
	*ret_n = hoist__min_u64(end - gaps->at, most);
	gaps->at += *ret_n;
	return true;
}

/* --- files of this machine --- */

struct localizing {
	hoist_checkpoint *shown;
	char *folder;	   /* where files of this machine may lie, for messages; from malloc */
	int dir_fd;	   /* of the folder; -1: there is none */
	const char *named; /* the name of the file that the caller named; NULL: a folder */
	struct hoist__gaps gaps;
	unsigned char *pieces[2];
};

static int open_folder(struct localizing *l, const char *path)
{
	l->dir_fd = HOIST__UNINTERRUPTED(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (l->dir_fd < 0 && errno == ENOTDIR) {
		const char *slash = strrchr(path, '/');
		l->named = slash != NULL ? slash + 1 : path;
		return hoist__open_parent(path, &l->folder, &l->dir_fd);
	}
	if (l->dir_fd < 0 && errno != ENOENT)
		return hoist__fail_errno(-errno, "opening %s", path);
	l->folder = strdup(path);
	return l->folder == NULL ? hoist__fail_nomem("a path", strlen(path)) : 0;
}

/* *ret is NULL if the file is not here.  Links are followed as hoist_checkpoint_open() does. */
static int find_local(const struct localizing *l, const char *name, struct hoist__file **ret)
{
	bool named = l->named != NULL && strcmp(name, l->named) == 0;
	unsigned flags = named ? 0 : l->shown->file_flags;
	*ret = NULL;
	if (l->dir_fd < 0)
		return 0;
	char *path = hoist__join_path(l->folder, name);
	if (path == NULL)
		return -ENOMEM;
	int err = hoist__file_open(l->dir_fd, name, path, flags, ret);
	if (err == -EMFILE && hoist__checkpoint_give_up_direct(l->shown))
		err = hoist__file_open(l->dir_fd, name, path, flags | HOIST__FILE_NO_DIRECT, ret);
	free(path);
	return err == -ENOENT ? 0 : err;
}

static int fail_other(const struct hoist__file *local, const char *what, uint64_t at, uint64_t end)
{
	return hoist__fail(-EINVAL,
			   "%s is not the group's file: %s %llu to %llu differ from those of the "
			   "other members; copy the file from their machines, or remove it",
			   local->path, what, (unsigned long long)at, (unsigned long long)end);
}

static int compare_gaps(struct localizing *l, size_t f, const struct hoist__file *local)
{
	const struct hoist__file *shown = l->shown->files[f].file;
	uint64_t at;
	uint64_t n;
	int err = 0;
	l->gaps.file = f;
	l->gaps.at = 0;
	while (err == 0 && hoist__gaps_next(&l->gaps, l->shown, PIECE_BYTES, &at, &n)) {
		err = hoist__file_read(shown, at, l->pieces[0], (size_t)n);
		if (err == 0)
			err = hoist__file_read(local, at, l->pieces[1], (size_t)n);
		if (err == 0 && memcmp(l->pieces[0], l->pieces[1], (size_t)n) != 0)
			err = fail_other(local, "bytes", at, at + n);
	}
	return err;
}

static int compare(struct localizing *l, size_t f, const struct hoist__shown_file *shown,
		   const struct hoist__file *local)
{
	uint64_t sample[2];
	if (local->bytes != shown->bytes)
		return hoist__fail(
			-EINVAL,
			"%s has %llu bytes, and %llu on the other members' machines; copy "
			"the file from there, or remove it",
			local->path, (unsigned long long)local->bytes,
			(unsigned long long)shown->bytes);
	int err = compare_gaps(l, f, local);
	if (err == 0)
		err = hoist__checkpoint_sample(l->shown, local, sample);
	if (err == 0 && memcmp(sample, shown->sample, sizeof sample) != 0)
		err = fail_other(local, "some of the tensors' bytes,", 0, local->bytes);
	return err;
}

/* --- absent files --- */

/* Names the file as the caller does, and makes its bytes unreadable. */
static int make_absent(const struct localizing *l, struct hoist__file *file, const char *name)
{
	char *path = hoist__join_path(l->folder, name);
	if (path == NULL)
		return -ENOMEM;
	int fd = HOIST__UNINTERRUPTED(open(file->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
	int err = fd < 0 || HOIST__UNINTERRUPTED(dup3(fd, file->fd, O_CLOEXEC)) < 0
			  ? hoist__fail_errno(-errno, "a descriptor of %s", file->path)
			  : 0;
	if (fd >= 0)
		(void)close(fd);
	if (err < 0) {
		free(path);
		return err;
	}
	free(file->path);
	file->path = path;
	file->absent = true;
	hoist__direct_give_up(file, "the file is on another machine");
	l->shown->n_absent++;
	return 0;
}

static int localize_file(struct localizing *l, size_t f, const struct hoist__shown_file *shown)
{
	struct hoist__file **file = &l->shown->files[f].file;
	struct hoist__file *local = NULL;
	if (strcmp(hoist__checkpoint_file_name(l->shown, f), shown->name) != 0)
		return hoist__fail(
			-ENOTSUP,
			"the member that shows the checkpoint has %.80s where this one has "
			"%.80s: files in folders of an index are sorted otherwise without "
			"these folders; give each machine all files or none",
			shown->name, hoist__checkpoint_file_name(l->shown, f));
	int err = find_local(l, shown->name, &local);
	if (err < 0 || local == NULL)
		return err < 0 ? err : make_absent(l, *file, shown->name);
	err = compare(l, f, shown, local);
	hoist__file_close(err == 0 ? *file : local);
	if (err == 0)
		*file = local;
	return err;
}

int hoist__checkpoint_localize(hoist_checkpoint *shown, const char *path,
			       const struct hoist__shown_file *files)
{
	struct localizing l = {
		.shown = shown, .dir_fd = -1, .pieces = {malloc(PIECE_BYTES), malloc(PIECE_BYTES)}};
	int err = l.pieces[0] != NULL && l.pieces[1] != NULL
			  ? open_folder(&l, path)
			  : hoist__fail_nomem("a piece of a file", PIECE_BYTES);
	shown->shown = true;
	for (size_t f = 0; err == 0 && f < shown->n_files; f++)
		err = localize_file(&l, f, &files[f]);
	if (l.dir_fd >= 0)
		(void)close(l.dir_fd);
	free(l.folder);
	free(l.pieces[0]);
	free(l.pieces[1]);
	return err;
}
