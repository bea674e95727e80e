/* SPDX-License-Identifier: MIT */
/* cli/nearest.h - the word that a user may have meant.
 *
 *     struct nearest nearest = {.typed = "devcie", .bytes = 6};
 *     for each word:  nearest_try(&nearest, word);
 *     if (nearest.word != NULL)  "did you mean nearest.word?"
 */
#ifndef HOIST_CLI_NEAREST_H
#define HOIST_CLI_NEAREST_H

#include <stddef.h>

struct nearest {
	const char *typed;
	size_t bytes;	  /* of `typed` */
	const char *word; /* the nearest of the words so far; NULL: none is near */
	size_t distance;  /* from it */
};

/* Keeps @word, which has 31 bytes at most, if it is nearer than those before.  A word is near if at
 * most a third of its letters, and one at least, were left out, added, replaced or swapped with the
 * next (the restricted Damerau-Levenshtein distance). */
void nearest_try(struct nearest *nearest, const char *word);

#endif
