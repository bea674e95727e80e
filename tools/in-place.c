/* SPDX-License-Identifier: MIT */
/* tools/in-place.c - checks a copy that replaces files it reads.
 * The contract is in tools/in-place.h. */
#include "config.h"

#include "tools/in-place.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/format.h"
#include "tools/tool.h"

#define ENDING ".safetensors"
#define INDEX_ENDING ENDING ".index.json"

static bool stat_folder(const char *path, struct stat *ret)
{
	char *folder = NULL;
	if (asprintf(&folder, "%.*s.", (int)(base_name(path) - path), path) < 0)
		return false;
	bool there = stat(folder, ret) == 0;
	free(folder);
	return there;
}

static bool same_folder(const char *a, const char *b)
{
	struct stat of_a, of_b;
	return stat_folder(a, &of_a) && stat_folder(b, &of_b) && of_a.st_dev == of_b.st_dev &&
	       of_a.st_ino == of_b.st_ino;
}

static bool cut(size_t *n, const char *text, const char *ending)
{
	size_t m = strlen(ending);
	bool ends = *n > m && strncmp(text + *n - m, ending, m) == 0;
	if (ends)
		*n -= m;
	return ends;
}

/* True if @file is NAME-ddddd-of-ddddd.safetensors, where @to is NAME.safetensors or its index. */
static bool is_shard_of(const char *file, const char *to)
{
	static const char pattern[] = "-00000-of-00000" ENDING;
	size_t n = strlen(to);
	if (!cut(&n, to, INDEX_ENDING))
		(void)cut(&n, to, ENDING);
	if (strncmp(file, to, n) != 0 || strlen(file) != n + sizeof pattern - 1)
		return false;
	for (size_t i = 0; i < sizeof pattern - 1; i++)
		if (pattern[i] == '0' ? isdigit((unsigned char)file[n + i]) == 0
				      : file[n + i] != pattern[i])
			return false;
	return true;
}

/* True if the file @path is at the place of @to, or of one of its shards. */
static bool has_place_of(const char *path, const char *to)
{
	const char *name = base_name(path);
	return (strcmp(name, base_name(to)) == 0 || is_shard_of(name, base_name(to))) &&
	       same_folder(path, to);
}

/* True if @path is the only name of the file at @to, in another spelling: a file system may ignore
 * case.  A link at @to is replaced, and the file that the link names stays. */
static bool is_only_file_at(const char *path, const char *to)
{
	struct stat file, there;
	return stat(path, &file) == 0 && lstat(to, &there) == 0 && file.st_nlink == 1 &&
	       file.st_dev == there.st_dev && file.st_ino == there.st_ino;
}

static bool is_over(const char *path, const char *to)
{
	if (has_place_of(path, to) || is_only_file_at(path, to))
		return true;
	char *resolved = realpath(path, NULL);
	bool over = resolved != NULL && has_place_of(resolved, to);
	free(resolved);
	return over;
}

bool in_place(hoist_checkpoint *checkpoint, const char *to)
{
	hoist_file_info file = {.size = sizeof file};
	for (size_t f = 0; hoist_checkpoint_file(checkpoint, f, &file) == 0; f++)
		if (is_over(file.path, to))
			return true;
	return false;
}

bool has_digests(const hoist_checkpoint *checkpoint)
{
	return hoist_checkpoint_metadata_find(checkpoint, "hoist.xxh3_128") != NULL;
}

/* True if the file @path is one of @checkpoint's. */
static bool is_read(hoist_checkpoint *checkpoint, const char *path)
{
	hoist_file_info file = {.size = sizeof file};
	struct stat wanted, st;
	if (stat(path, &wanted) < 0)
		return false;
	for (size_t f = 0; hoist_checkpoint_file(checkpoint, f, &file) == 0; f++)
		if (stat(file.path, &st) == 0 && st.st_dev == wanted.st_dev &&
		    st.st_ino == wanted.st_ino)
			return true;
	return false;
}

/* Adds how many tensors the file holds, whether an index names them or not. */
static int count_file(const char *path, size_t *n)
{
	hoist_checkpoint *file = NULL;
	int err = hoist_checkpoint_open(path, HOIST_OPEN_FOLLOW_LINKS, &file);
	if (err != 0)
		return fail_call(err);
	*n += hoist_checkpoint_n_tensors(file);
	hoist_checkpoint_close(file);
	return STATUS_OK;
}

static int count_read(hoist_checkpoint *checkpoint, size_t *n)
{
	hoist_file_info file = {.size = sizeof file};
	int status = STATUS_OK;
	for (size_t f = 0; status == STATUS_OK && hoist_checkpoint_file(checkpoint, f, &file) == 0;
	     f++)
		status = count_file(file.path, n);
	return status;
}

/* Gives the index that a save to @to replaces or removes, from malloc.  One file of another name
 * leaves every index alone. */
static int index_of(const char *to, bool shards, char **ret)
{
	size_t n = strlen(to);
	bool named = cut(&n, to, INDEX_ENDING) || cut(&n, to, ENDING);
	*ret = NULL;
	if (!named && !shards)
		return STATUS_OK;
	return asprintf(ret, "%.*s" INDEX_ENDING, (int)n, to) < 0 ? fail_memory() : STATUS_OK;
}

/* Adds the tensors in files that the old index names and @checkpoint does not read. */
static int count_unread(hoist_checkpoint *checkpoint, const char *to, const char *index, size_t *n)
{
	struct stat st;
	if (lstat(index, &st) < 0 && errno == ENOENT)
		return STATUS_OK;
	hoist_checkpoint *old = NULL;
	if (hoist_checkpoint_open(index, HOIST_OPEN_FOLLOW_LINKS, &old) != 0)
		return fail("%s is a source of the copy, and its index, which would be removed and "
			    "may name other files, cannot be read (%s); copy to another name, or "
			    "remove %s",
			    to, hoist_error(), index);
	hoist_file_info file = {.size = sizeof file};
	int status = STATUS_OK;
	for (size_t f = 0; status == STATUS_OK && hoist_checkpoint_file(old, f, &file) == 0; f++)
		if (!is_read(checkpoint, file.path))
			status = count_file(file.path, n);
	hoist_checkpoint_close(old);
	return status;
}

static int count_held(hoist_checkpoint *checkpoint, const char *to, bool shards, size_t *ret)
{
	char *index = NULL;
	*ret = 0;
	int status = count_read(checkpoint, ret);
	if (status == STATUS_OK)
		status = index_of(to, shards, &index);
	if (status == STATUS_OK && index != NULL)
		status = count_unread(checkpoint, to, index, ret);
	free(index);
	return status;
}

int in_place_check(hoist_checkpoint *checkpoint, const hoist_save *save, const char *to,
		   bool shards, size_t n)
{
	const char *is = hoist_checkpoint_format(checkpoint);
	size_t held = hoist_checkpoint_n_tensors(checkpoint);
	if (strcmp(is, hoist_save_format(save)) != 0)
		return fail("%s is a source of the copy: as %s the file would lose content that "
			    "only %s can hold; copy to another name",
			    to, hoist_save_format(save), is);
	/* Opening a part of a GGUF model opens all of its parts. */
	if (strcmp(is, "safetensors") == 0) {
		int status = count_held(checkpoint, to, shards, &held);
		if (status != STATUS_OK)
			return status;
	}
	if (n < held)
		return fail("%s is a source of the copy: the file would lose %zu of its %zu "
			    "tensors; copy to another name",
			    to, held - n, held);
	return STATUS_OK;
}
