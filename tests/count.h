/* SPDX-License-Identifier: MIT */
/* tests/count.h - how many there are: entries of a folder (/proc/self/fd, with the one that this
 * takes, and /proc/self/task among them), lines of a file.  What cannot be read ends the test: it
 * would look as if there were none. */
#ifndef HOIST_TESTS_COUNT_H
#define HOIST_TESTS_COUNT_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* Without "." and "..". */
static inline unsigned count_entries(const char *path)
{
	unsigned n = 0;
	DIR *folder = opendir(path);
	if (folder == NULL) {
		perror(path);
		abort();
	}
	while (readdir(folder) != NULL)
		n++;
	(void)closedir(folder);
	return n - 2;
}

static inline unsigned count_lines(const char *path)
{
	unsigned n = 0;
	FILE *file = fopen(path, "re");
	if (file == NULL) {
		perror(path);
		abort();
	}
	for (int c; (c = getc_unlocked(file)) != EOF;)
		n += c == '\n';
	(void)fclose(file);
	return n;
}

#endif
