/* SPDX-License-Identifier: MIT */
/* tests/support/count.h - the number of entries of a folder (/proc/self/fd, which includes the
 * descriptor of the count itself, /proc/self/task) and of lines of a file (/proc/self/maps).  An
 * unreadable path ends the test, because 0 would look like a result. */
#ifndef HOIST_TESTS_COUNT_H
#define HOIST_TESTS_COUNT_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Lines that have @words in them. */
static inline unsigned count_lines_with(const char *path, const char *words)
{
	unsigned n = 0;
	char *line = NULL;
	size_t room = 0;
	FILE *file = fopen(path, "re");
	if (file == NULL) {
		perror(path);
		abort();
	}
	while (getline(&line, &room, file) >= 0)
		n += strstr(line, words) != NULL;
	free(line);
	(void)fclose(file);
	return n;
}

static inline unsigned count_lines(const char *path)
{
	return count_lines_with(path, "");
}

#endif
