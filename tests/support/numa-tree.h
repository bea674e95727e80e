/* SPDX-License-Identifier: MIT */
/* A sysfs tree unpacked from a manifest: one entry a line, "path<TAB>content"
 * with \n for a newline, "path<TAB>-> target" for a symbolic link, "path/<TAB>" for
 * a folder.  sysfs/capture.sh writes them. */
#ifndef HOIST_TESTS_NUMA_TREE_H
#define HOIST_TESTS_NUMA_TREE_H

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tree {
	char root[PATH_MAX];
};

static inline void tree_make_parents(char *path)
{
	for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
		*at = '\0';
		(void)mkdir(path, 0700);
		*at = '/';
	}
}

static inline int tree_add(const struct tree *tree, const char *entry, const char *content)
{
	char path[5 * PATH_MAX];
	(void)snprintf(path, sizeof path, "%s/%s", tree->root, entry);
	tree_make_parents(path);
	if (path[strlen(path) - 1] == '/')
		return 0;
	if (strncmp(content, "-> ", 3) == 0)
		return symlink(content + 3, path);
	FILE *file = fopen(path, "w");
	if (file == NULL)
		return -1;
	for (const char *at = content; *at != '\0'; at++) {
		if (at[0] == '\\' && at[1] == 'n') {
			fputc('\n', file);
			at++;
		} else {
			fputc(*at, file);
		}
	}
	return fclose(file);
}

/* An empty tree in a new folder.  Returns 0, or -1. */
static inline int tree_create(struct tree *tree)
{
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(tree->root, sizeof tree->root, "%s/hoist-sysfs-XXXXXX",
		       tmp != NULL ? tmp : "/tmp");
	return mkdtemp(tree->root) != NULL ? 0 : -1;
}

/* The tree of sysfs/<name>.txt.  Returns 0, or -1. */
static inline int tree_unpack(struct tree *tree, const char *name)
{
	const char *srcdir = getenv("srcdir");
	char path[PATH_MAX], line[16384];
	(void)snprintf(path, sizeof path, "%s/sysfs/%s.txt", srcdir != NULL ? srcdir : ".", name);
	FILE *manifest = fopen(path, "r");
	if (manifest == NULL || tree_create(tree) != 0)
		return -1;
	int err = 0;
	while (err == 0 && fgets(line, sizeof line, manifest) != NULL) {
		char *tab = strchr(line, '\t');
		if (line[0] == '#' || tab == NULL)
			continue;
		line[strcspn(line, "\n")] = '\0';
		*tab = '\0';
		err = tree_add(tree, line, tab + 1);
	}
	fclose(manifest);
	return err;
}

static inline int tree_remove_one(const char *path, const struct stat *info, int type,
				  struct FTW *walk)
{
	(void)info;
	(void)type;
	(void)walk;
	return remove(path);
}

static inline void tree_remove(const struct tree *tree)
{
	(void)nftw(tree->root, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
