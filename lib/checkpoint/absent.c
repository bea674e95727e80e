/* SPDX-License-Identifier: MIT */
/* A checkpoint of which all files, or some, are on other machines.
 * The contract is in lib/checkpoint/absent.h. */
#include "config.h"

#include "lib/checkpoint/absent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/again.h"

#define PIECE_BYTES ((size_t)64 << 10)

bool hoist__gaps_next(struct hoist__gaps *gaps, const struct hoist_checkpoint *checkpoint,
		      uint64_t *ret_end)
{
	uint64_t end = checkpoint->files[gaps->file].file->bytes;
	while (gaps->tensor < checkpoint->n_tensors &&
	       checkpoint->tensors[gaps->tensor].file == gaps->file) {
		const struct hoist__tensor *tensor = checkpoint->tensors[gaps->tensor].tensor;
		if (tensor->offset > gaps->at) {
			*ret_end = tensor->offset;
			return true;
		}
		if (tensor->offset + tensor->bytes > gaps->at)
			gaps->at = tensor->offset + tensor->bytes;
		gaps->tensor++;
	}
	*ret_end = end;
	return gaps->at < end;
}

/* --- files of this machine --- */

struct settling {
	hoist_checkpoint *shown;
	char *folder; /* in which the files are looked for, from malloc; */
	int dir_fd;   /* -1: there is none */
	struct hoist__gaps gaps;
	unsigned char *pieces[2];
};

static int open_folder(struct settling *s, const char *path)
{
	const char *slash = strrchr(path, '/');
	size_t before = slash == path ? 1 : slash != NULL ? (size_t)(slash - path) : 0;
	const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
	s->folder = strdup(path);
	if (s->folder == NULL)
		return hoist__fail_nomem("a path", strlen(path));
	s->dir_fd = HOIST__UNINTERRUPTED(open(path, flags));
	if (s->dir_fd >= 0 || errno != ENOTDIR)
		return 0;
	(void)snprintf(s->folder, strlen(path) + 1, "%.*s", (int)before, path);
	s->dir_fd = HOIST__UNINTERRUPTED(open(before > 0 ? s->folder : ".", flags));
	return s->dir_fd < 0 ? hoist__fail_errno(-errno, "opening the folder of %s", path) : 0;
}

/* The path by which messages name a file of the checkpoint, from malloc. */
static char *path_of(const struct settling *s, const char *name)
{
	return s->folder[0] != '\0' ? hoist__join_path(s->folder, name) : strdup(name);
}

/* *ret is NULL if the file is not here. */
static int find_local(const struct settling *s, const char *name, struct hoist__file **ret)
{
	char *path = path_of(s, name);
	*ret = NULL;
	if (path == NULL)
		return hoist__fail_nomem("a path", strlen(name));
	int err = s->dir_fd < 0
			  ? -ENOENT
			  : hoist__file_open(s->dir_fd, name, path, s->shown->file_flags, ret);
	free(path);
	return err == -ENOENT ? 0 : err;
}

static int compare_gap(const struct settling *s, const struct hoist__file *shown,
		       const struct hoist__file *local, uint64_t end)
{
	for (uint64_t at = s->gaps.at; at < end;) {
		size_t n = (size_t)hoist__min_u64(end - at, PIECE_BYTES);
		int err = hoist__file_read(shown, at, s->pieces[0], n);
		if (err == 0)
			err = hoist__file_read(local, at, s->pieces[1], n);
		if (err < 0)
			return err;
		if (memcmp(s->pieces[0], s->pieces[1], n) != 0)
			return hoist__fail(-EINVAL,
					   "%s is not the file that the other members of the group "
					   "have: it differs between bytes %llu and %llu; copy it "
					   "anew, or remove it",
					   local->path, (unsigned long long)at,
					   (unsigned long long)(at + n));
		at += n;
	}
	return 0;
}

/* Compares all but the tensors' bytes; with @local NULL, only walks over the file. */
static int compare(struct settling *s, size_t f, const struct hoist__file *local)
{
	const struct hoist__file *shown = s->shown->files[f].file;
	uint64_t end;
	int err = 0;
	if (local != NULL && local->bytes != shown->bytes)
		return hoist__fail(-EINVAL,
				   "%s has %llu bytes; the other members of the group have one of "
				   "%llu; copy it anew, or remove it",
				   local->path, (unsigned long long)local->bytes,
				   (unsigned long long)shown->bytes);
	s->gaps.file = f;
	s->gaps.at = 0;
	while (err == 0 && hoist__gaps_next(&s->gaps, s->shown, &end)) {
		err = local != NULL ? compare_gap(s, shown, local, end) : 0;
		s->gaps.at = end;
	}
	return err;
}

/* --- absent files --- */

/* Names the file as the caller does, and makes its bytes unreadable. */
static int seal(struct settling *s, struct hoist__file *file, const char *name)
{
	int fd = HOIST__UNINTERRUPTED(open(file->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
	if (fd < 0)
		return hoist__fail_errno(-errno, "opening %s", file->path);
	int err = HOIST__UNINTERRUPTED(dup3(fd, file->fd, O_CLOEXEC)) < 0
			  ? hoist__fail_errno(-errno, "a descriptor of %s", file->path)
			  : 0;
	(void)close(fd);
	char *path = err == 0 ? path_of(s, name) : NULL;
	if (err == 0 && path == NULL)
		err = hoist__fail_nomem("a path", strlen(name));
	if (err < 0)
		return err;
	free(file->path);
	file->path = path;
	file->elsewhere = true;
	if (file->direct_fd >= 0)
		(void)close(file->direct_fd);
	file->direct_fd = -1;
	(void)snprintf(file->direct_note, sizeof file->direct_note, "the file is elsewhere");
	s->shown->n_absent++;
	return 0;
}

static int settle_file(struct settling *s, size_t f)
{
	struct hoist__file **file = &s->shown->files[f].file;
	const char *slash = strrchr((*file)->path, '/');
	char *name = strdup(slash != NULL ? slash + 1 : (*file)->path);
	struct hoist__file *local = NULL;
	if (name == NULL)
		return hoist__fail_nomem("a name", strlen((*file)->path));
	int err = find_local(s, name, &local);
	if (err == 0)
		err = compare(s, f, local);
	if (err == 0 && local != NULL) {
		hoist__file_close(*file);
		*file = local;
		local = NULL;
	} else if (err == 0) {
		err = seal(s, *file, name);
	}
	hoist__file_close(local);
	free(name);
	return err;
}

int hoist__checkpoint_settle(hoist_checkpoint *shown, const char *path)
{
	struct settling s = {
		.shown = shown, .dir_fd = -1, .pieces = {malloc(PIECE_BYTES), malloc(PIECE_BYTES)}};
	int err = s.pieces[0] != NULL && s.pieces[1] != NULL
			  ? open_folder(&s, path)
			  : hoist__fail_nomem("a piece of a file", PIECE_BYTES);
	for (size_t f = 0; err == 0 && f < shown->n_files; f++)
		err = settle_file(&s, f);
	if (s.dir_fd >= 0)
		(void)close(s.dir_fd);
	free(s.folder);
	free(s.pieces[0]);
	free(s.pieces[1]);
	return err;
}
