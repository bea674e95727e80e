/* SPDX-License-Identifier: MIT */
/* tools/rename.h - 's/PATTERN/TEXT/': other names for tensors, as sed writes it.
 *
 * PATTERN is an extended regular expression of POSIX.  In TEXT, \1 to \9 are its groups, & is all
 * that matched, and a backslash takes the meaning from any other character.  A g behind the last
 * delimiter replaces every match instead of the first.  Any character but a backslash may be the
 * delimiter in place of the slash.  A delimiter within PATTERN or TEXT has a backslash before it.
 */
#ifndef HOIST_TOOLS_RENAME_H
#define HOIST_TOOLS_RENAME_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

struct rename {
	regex_t pattern;
	char *to; /* TEXT, without backslashes before delimiters */
	bool global;
	const char *whole; /* the user's text */
	bool used;	   /* it has changed a name, or matched one */
};

/* Reads @text, which stays in use.  Returns: NULL, and rename_free() is owed; otherwise a
 * description of a good text, which lives until the next call. */
const char *rename_parse(struct rename *ret, const char *text);
void rename_free(struct rename *rename);

/* Gives @name as the @n renames leave it, each applied to what the one before left; *ret is from
 * malloc.  Returns: 0; -ENOMEM. */
int rename_apply(struct rename *renames, size_t n, const char *name, char **ret);

#endif
