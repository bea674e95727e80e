/* SPDX-License-Identifier: MIT */
/* tests/support/locale.h - another language's way to write numbers, for this process. */
#ifndef HOIST_TESTS_LOCALE_H
#define HOIST_TESTS_LOCALE_H

#include <locale.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Makes the locale @name ("de_DE") in $TMPDIR, and sets it.  Returns: false if this machine cannot
 * make it. */
static inline bool locale_set(const char *name)
{
	const char *folder = getenv("TMPDIR");
	char command[4096];
	char full[64];
	if (folder == NULL)
		folder = "/tmp";
	(void)snprintf(full, sizeof full, "%s.UTF-8", name);
	(void)snprintf(command, sizeof command,
		       "localedef --no-archive -i %s -f UTF-8 '%s/%s' >/dev/null 2>&1", name, folder,
		       full);
	setenv("LOCPATH", folder, 1);
	return system(command) <= 255 && setlocale(LC_ALL, full) != NULL;
}

#endif
