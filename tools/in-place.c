/* SPDX-License-Identifier: MIT */
/* A copy over what it copies. */
#include "config.h"

#include "tools/in-place.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/format.h"
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

/* Is @file NAME-ddddd-of-ddddd.safetensors, where @to is NAME.safetensors or its index? */
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

bool in_place(hoist_checkpoint *checkpoint, const char *to)
{
	hoist_file_info file = {.size = sizeof file};
	for (size_t f = 0; hoist_checkpoint_file(checkpoint, f, &file) == 0; f++) {
		const char *name = base_name(file.path);
		if ((strcmp(name, base_name(to)) == 0 || is_shard_of(name, base_name(to))) &&
		    same_folder(file.path, to))
			return true;
	}
	return false;
}

bool has_digests(const hoist_checkpoint *checkpoint)
{
	return hoist_checkpoint_metadata_find(checkpoint, "hoist.xxh3_128") != NULL;
}

/* How many tensors its files hold, which may be more than their index names. */
static int count_held(hoist_checkpoint *checkpoint, size_t *ret)
{
	hoist_file_info file = {.size = sizeof file};
	size_t n = 0;
	for (size_t f = 0; hoist_checkpoint_file(checkpoint, f, &file) == 0; f++) {
		hoist_checkpoint *shard = NULL;
		int err = hoist_checkpoint_open(file.path, HOIST_OPEN_FOLLOW_LINKS, &shard);
		if (err != 0)
			return fail_call(err);
		n += hoist_checkpoint_n_tensors(shard);
		hoist_checkpoint_close(shard);
	}
	*ret = n;
	return STATUS_OK;
}

int in_place_check(hoist_checkpoint *checkpoint, const hoist_save *save, const char *to, size_t n)
{
	const char *is = hoist_checkpoint_format(checkpoint);
	size_t held = hoist_checkpoint_n_tensors(checkpoint);
	if (strcmp(is, hoist_save_format(save)) != 0)
		return fail("%s is what is copied: as %s it would lose what %s alone can hold; "
			    "copy it to another name",
			    to, hoist_save_format(save), is);
	/* A part of a GGUF model opens all of its parts. */
	if (hoist_checkpoint_n_files(checkpoint) > 1 && strcmp(is, "safetensors") == 0) {
		int status = count_held(checkpoint, &held);
		if (status != STATUS_OK)
			return status;
	}
	if (n < held)
		return fail("%s is what is copied: it would lose %zu of its %zu tensors; copy them "
			    "to another name",
			    to, held - n, held);
	return STATUS_OK;
}
