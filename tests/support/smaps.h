/* SPDX-License-Identifier: MIT */
/* tests/support/smaps.h - the figures of /proc/self/smaps, line by line.
 *
 *   struct smaps smaps = {0};
 *   while (smaps_next(&smaps))
 *           if (strstr(smaps.mapping, path) != NULL)
 *                   sum += smaps_kib(&smaps, "Rss:");
 *
 * The loop runs to the end, which closes the file. */
#ifndef HOIST_TESTS_SUPPORT_SMAPS_H
#define HOIST_TESTS_SUPPORT_SMAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct smaps {
	FILE *file;
	uintptr_t from; /* the mapping's addresses, */
	uintptr_t to;
	char mapping[1024]; /* and its line */
	char line[1024];    /* a figure of the mapping */
};

/* Reads the next figure.  False: there is none. */
static inline bool smaps_next(struct smaps *smaps)
{
	if (smaps->file == NULL)
		smaps->file = fopen("/proc/self/smaps", "re");
	if (smaps->file == NULL) {
		perror("/proc/self/smaps");
		abort();
	}
	while (fgets(smaps->line, sizeof smaps->line, smaps->file) != NULL) {
		uintptr_t from, to; /* a figure's first letter may be read as a number, too */
		if (sscanf(smaps->line, "%zx-%zx ", &from, &to) != 2)
			return true;
		smaps->from = from;
		smaps->to = to;
		memcpy(smaps->mapping, smaps->line, sizeof smaps->mapping);
	}
	(void)fclose(smaps->file);
	smaps->file = NULL;
	return false;
}

/* KiB of a figure whose name begins with @name; 0 of others. */
static inline size_t smaps_kib(const struct smaps *smaps, const char *name)
{
	const char *colon = strchr(smaps->line, ':');
	bool is = colon != NULL && strncmp(smaps->line, name, strlen(name)) == 0;
	return is ? strtoul(colon + 1, NULL, 10) : 0;
}

#endif
