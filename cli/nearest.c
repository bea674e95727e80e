/* SPDX-License-Identifier: MIT */
/* The word that a user may have meant.
 * The contract is in cli/nearest.h. */
#include "config.h"

#include <string.h>

#include "cli/nearest.h"

#define MOST_BYTES 31

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* rows[i % 3][j]: the distance between the first i letters of @a and the first j of @b. */
static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
	size_t rows[3][MOST_BYTES + 1];
	for (size_t j = 0; j <= n_b; j++)
		rows[0][j] = j;
	for (size_t i = 1; i <= n_a; i++) {
		size_t *row = rows[i % 3];
		const size_t *last = rows[(i - 1) % 3];
		const size_t *before = rows[(i + 1) % 3];
		row[0] = i;
		for (size_t j = 1; j <= n_b; j++) {
			row[j] = least(least(last[j], row[j - 1]) + 1,
				       last[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], before[j - 2] + 1);
		}
	}
	return rows[n_a % 3][n_b];
}

void nearest_try(struct nearest *nearest, const char *word)
{
	size_t n = strlen(word);
	if (n > MOST_BYTES || nearest->bytes > MOST_BYTES)
		return;
	size_t found = distance(nearest->typed, nearest->bytes, word, n);
	if (found > 1 && 3 * found > n)
		return;
	if (nearest->word != NULL && found >= nearest->distance)
		return;
	nearest->word = word;
	nearest->distance = found;
}
